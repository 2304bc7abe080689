//! WebFetch: reads a page of the public web as text.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Client, Response, Url};
use serde_json::{Value, json};

use super::ToolEnv;
use super::args::{CallArgs, invalid};
use super::text::binary_kind;
use super::web_net::{AllowedHosts, UrlRefused, guarded, plain_builder};
use super::web_page;
use super::web_search::{SearchUrl, WebSearchProvider};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};

const NAME: &str = "WebFetch";
const MAX_BODY: usize = 5 << 20;
/// Characters that the model reads; the rest is in a file.
const MAX_TEXT: usize = 50_000;
const MAX_REDIRECTS: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(30);

/// The outcome of a request.
enum Fetched {
    /// The answer, and the URL that gave it.
    Page(Url, Response),
    /// The first URL redirects to the second one, at another server.
    Elsewhere(Url, Url),
}

/// Returns whether a redirect stays at the server that the rules have judged. Within it, the server itself says what is
/// at a path.
fn is_same_server(from: &Url, to: &Url) -> bool {
    let is_upgrade = from.scheme() == "http" && to.scheme() == "https";
    from.host() == to.host()
        && (from.origin() == to.origin() || is_upgrade && from.port().is_none() && to.port().is_none())
}

/// Reads a page of the public web.
pub(super) struct WebFetch {
    env: Arc<ToolEnv>,
    allowed: AllowedHosts,
    /// The search of the settings: its host may be of this machine, and its requests carry a key.
    search: Option<SearchUrl>,
    client: OnceLock<Client>,
    search_client: OnceLock<Client>,
}

fn parse(args: &Value) -> Result<Url, ToolError> {
    // Models know `prompt` from elsewhere; the page is given as it is.
    let args = CallArgs::new(NAME, args, &["url", "prompt"])?;
    args.opt_text("prompt")?;
    let text = args.filled("url")?.trim();
    Url::parse(text).map_err(|error| {
        invalid(format!("invalid `url`: {error}; expected a full URL such as https://example.org/page"))
    })
}

fn failed(message: impl Into<String>) -> ToolError {
    ToolError::ExecutionFailed(message.into())
}

impl WebFetch {
    pub(super) fn new(env: Arc<ToolEnv>) -> Self {
        let allowed = AllowedHosts(env.web_allow_hosts.clone().into());
        let search = match &env.web_search {
            Some(WebSearchProvider::Url(search)) => Some(search.clone()),
            Some(WebSearchProvider::Tool(_)) | None => None,
        };
        Self { env, allowed, search, client: OnceLock::new(), search_client: OnceLock::new() }
    }

    /// Returns the client for a URL. It is made with the first call, because it costs milliseconds and most threads fetch
    /// nothing. That of a search reaches the host of the settings, wherever that is; no other URL is fetched by it.
    fn client(&self, url: &Url) -> Result<&Client, ToolError> {
        let search = self.search.as_ref().filter(|search| search.headers_for(url).is_some());
        let place = if search.is_some() { &self.search_client } else { &self.client };
        if let Some(client) = place.get() {
            return Ok(client);
        }
        let builder = self.env.http.as_ref().map_or_else(plain_builder, |factory| factory());
        let own = search.map(|search| search.host().to_owned());
        let reached = AllowedHosts(self.allowed.0.iter().cloned().chain(own).collect());
        let client = guarded(builder, &reached).build().map_err(|error| {
            ToolError::Internal(format!("no HTTP client: {}", aye_http::root_cause(&error)))
        })?;
        Ok(place.get_or_init(|| client))
    }

    /// The headers of a search; `None` if the URL is none.
    fn search_headers(&self, url: &Url) -> Option<&HeaderMap> {
        self.search.as_ref()?.headers_for(url)
    }

    fn check(&self, url: &Url) -> Result<(), UrlRefused> {
        if self.search_headers(url).is_some() { Ok(()) } else { self.allowed.check(url) }
    }

    async fn get(&self, url: Url) -> Result<Fetched, ToolError> {
        let mut url = url;
        for _ in 0..=MAX_REDIRECTS {
            let client = self.client(&url)?;
            self.check(&url).map_err(|refused| failed(refused.to_string()))?;
            let response = client
                .get(url.clone())
                .header("accept", "text/markdown, text/html, text/plain, application/json;q=0.9, */*;q=0.5")
                .headers(self.search_headers(&url).cloned().unwrap_or_default())
                .send()
                .await
                .map_err(|error| failed(format!("cannot fetch {url}: {}", aye_http::root_cause(&error))))?;
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            match location.filter(|_| response.status().is_redirection()) {
                Some(location) => {
                    let next = url.join(location).map_err(|error| {
                        failed(format!("{url} redirects to {location:?}, which is not a URL: {error}"))
                    })?;
                    if !is_same_server(&url, &next) {
                        self.allowed.check(&next).map_err(|refused| failed(refused.to_string()))?;
                        return Ok(Fetched::Elsewhere(url, next));
                    }
                    url = next;
                }
                None => return Ok(Fetched::Page(url, response)),
            }
        }
        Err(failed(format!("more than {MAX_REDIRECTS} redirects; the last one was to {url}")))
    }

    async fn fetch(&self, url: Url, ctx: &ToolCallContext) -> Result<ToolResult, ToolError> {
        let (url, response) = match self.get(url).await? {
            Fetched::Page(url, response) => (url, response),
            Fetched::Elsewhere(from, to) => {
                let text = format!(
                    "{from} redirects to another server: {to}\nNothing was fetched there; call {NAME} with that URL for it."
                );
                let details = json!({"url": from.as_str(), "redirect": to.as_str()});
                return Ok(ToolResult::text(NAME, text).with_details(details));
            }
        };
        let status = response.status();
        let media_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_ascii_lowercase();
        let (body, cut) = body(response).await.map_err(|error| failed(format!("{url}: {error}")))?;
        let kind = media_type.split(';').next().unwrap_or_default().trim().to_owned();
        if is_binary(&kind, &body, &media_type) {
            let what = if kind.is_empty() { "binary data" } else { &kind };
            return Err(failed(format!("{url} is {what}, {} bytes; it is not shown as text", body.len())));
        }
        let text = web_page::decode(&body, &media_type);
        let text = if web_page::is_html(&kind, &text) { web_page::markdown(text).await } else { text };
        let (text, file) = self.shorten(&url, text, cut, &ctx.run_identity.thread_id).await;
        let details = json!({
            "url": url.as_str(), "status": status.as_u16(), "content_type": media_type,
            "bytes": body.len(), "truncated": cut || file.is_some(), "output_file": file,
        });
        let result = if status.is_success() {
            ToolResult::text(NAME, text)
        } else {
            ToolResult::error(NAME, format!("{url} answered {status}\n{text}"))
        };
        Ok(result.with_details(details))
    }

    /// Cuts a long text and keeps all of it.
    async fn shorten(
        &self,
        url: &Url,
        text: String,
        cut: bool,
        thread: &ThreadId,
    ) -> (String, Option<PathBuf>) {
        let note = if cut { format!("\n[cut at {MAX_BODY} bytes]") } else { String::new() };
        let Some((at, _)) = text.char_indices().nth(MAX_TEXT) else {
            let text = if text.trim().is_empty() { "(no text)".into() } else { text };
            return (text + &note, None);
        };
        let (start, more) = (text[..at].to_owned(), text.len() - at);
        let name = format!("web-{}.txt", uuid::Uuid::now_v7());
        match self.env.artifacts.keep_artifact(thread, &name, text.into_bytes()).await {
            Ok(path) => {
                let text = format!("{start}\n[… {more} more bytes; Read {} for all]{note}", path.display());
                (text, Some(path))
            }
            Err(error) => {
                tracing::warn!(%error, %url, "a long page was not kept");
                (format!("{start}\n[… {more} more bytes]{note}"), None)
            }
        }
    }
}

/// The body up to the cap, and whether there was more.
async fn body(mut response: Response) -> Result<(Vec<u8>, bool), String> {
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| format!("the response broke off: {}", aye_http::root_cause(&error)))?
    {
        let room = MAX_BODY - body.len();
        if chunk.len() > room {
            body.extend_from_slice(&chunk[..room]);
            return Ok((body, true));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((body, false))
}

fn is_binary(kind: &str, body: &[u8], media_type: &str) -> bool {
    let texty = kind.is_empty()
        || kind.starts_with("text/")
        || [
            "json",
            "xml",
            "javascript",
            "yaml",
            "toml",
            "x-sh",
            "form-urlencoded",
            "graphql",
            "octet-stream",
        ]
        .iter()
        .any(|word| kind.contains(word));
    let head = &body[..body.len().min(8192)];
    !texty || binary_kind(head).is_some() && !web_page::is_utf16(body, media_type)
}

#[async_trait]
impl Tool for WebFetch {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(NAME, include_str!("web_fetch.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {"url": {"type": "string"}},
                "required": ["url"]
            }))
            .with_category("web")
            // A GET may have side effects on the server: an interrupted one is not sent again automatically.
            .with_class(ToolClass::Opaque)
            .with_primary_argument("url")
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        let url = parse(args)?;
        self.check(&url).map_err(|refused| invalid(refused.to_string()))
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let url = parse(&args)?;
        tokio::select! {
            biased;
            () = ctx.cancellation.cancelled() => Err(failed("cancelled")),
            result = tokio::time::timeout(TIMEOUT, self.fetch(url, ctx)) => match result {
                Ok(result) => Ok(result?.into()),
                Err(_) => Err(failed(format!("no complete response within {} s", TIMEOUT.as_secs()))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_at_the_server_that_was_judged() {
        for (from, to, same) in [
            ("http://a.example/x", "http://a.example/y", true),
            ("http://a.example/x", "https://A.example/x", true),
            ("https://a.example/x", "http://a.example/x", false),
            ("https://a.example/x", "https://a.example:8443/x", false),
            ("http://a.example:8080/x", "https://a.example/x", false),
            ("https://a.example/x", "https://www.a.example/x", false),
            ("https://a.example/x", "https://b.example/x", false),
        ] {
            let url = |text: &str| Url::parse(text).expect("a URL");
            assert_eq!(is_same_server(&url(from), &url(to)), same, "{from} -> {to}");
        }
    }
}
