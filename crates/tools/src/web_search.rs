//! `WebSearch`: a search by the provider that the user's settings name. A call is never made as it is: it becomes a call of
//! WebFetch or of an MCP tool, so that rules, cards and grants are those of these tools.

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::args::{CallArgs, invalid};
use aye_core::contract::address::is_this_machine;
use aye_core::contract::tool::{ParsedCall, Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput};

const NAME: &str = "WebSearch";
/// The place of the query in a template.
const QUERY: &str = "{query}";
/// The prefix of the names of MCP tools.
const MCP: &str = "mcp__";

/// A provider of web searches.
#[derive(Clone, Debug)]
pub enum WebSearchProvider {
    /// A URL with the query in it.
    Url(SearchUrl),
    /// A tool that takes a `query`.
    Tool(String),
}

/// A template of a URL, and what its requests carry.
#[derive(Clone, Debug)]
pub struct SearchUrl {
    before: String,
    after: String,
    host: String,
    headers: HeaderMap,
}

impl WebSearchProvider {
    /// Reads a URL with `{query}` in it, or the name of an MCP tool.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(text: &str, headers: &[(String, String)]) -> Result<Self, String> {
        if text.starts_with(MCP) {
            return Ok(Self::Tool(text.to_owned()));
        }
        let expected =
            "expected a URL with {query} in it, or the name of an MCP tool such as mcp__brave__search";
        // What stands for the query survives the parser, which encodes braces.
        let mark = "aye-query-here";
        let url = Url::parse(&text.replacen(QUERY, mark, 1)).map_err(|_| expected.to_owned())?;
        let host = url.host_str().ok_or_else(|| expected.to_owned())?;
        if url.scheme() != "https" && !(url.scheme() == "http" && is_this_machine(host)) {
            return Err("the URL must be https://, or http:// on this machine".to_owned());
        }
        let path_or_query = format!("{}?{}", url.path(), url.query().unwrap_or_default());
        let (before, after) = url.as_str().split_once(mark).ok_or_else(|| expected.to_owned())?;
        if !path_or_query.contains(mark) {
            return Err("{query} belongs into the path or the query of the URL".to_owned());
        }
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let named = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
            let (name, mut value) =
                named.ok_or_else(|| format!("`{name}` cannot be a header with that value"))?;
            value.set_sensitive(true);
            all.insert(name, value);
        }
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Ok(Self::Url(SearchUrl { before: before.to_owned(), after: after.to_owned(), host, headers: all }))
    }

    fn call(&self, query: &str) -> (String, Value) {
        match self {
            Self::Url(url) => ("WebFetch".to_owned(), json!({"url": url.of(query)})),
            Self::Tool(name) => (name.clone(), json!({"query": query})),
        }
    }
}

impl SearchUrl {
    fn of(&self, query: &str) -> String {
        let mut url = self.before.clone();
        for byte in query.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    url.push(char::from(byte));
                }
                other => {
                    let _ = write!(url, "%{other:02X}");
                }
            }
        }
        url + &self.after
    }

    /// The host with its port, which may be of this machine.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The headers of a request; `None` if it is no search.
    pub(super) fn headers_for(&self, url: &Url) -> Option<&HeaderMap> {
        url.as_str().starts_with(&self.before).then_some(&self.headers)
    }
}

/// Stands for the call that searches.
pub(super) struct WebSearch(pub(super) WebSearchProvider);

fn query(args: &Value) -> Result<String, ToolError> {
    let args = CallArgs::new(NAME, args, &["query"])?;
    Ok(args.filled("query")?.trim().to_owned())
}

#[async_trait]
impl Tool for WebSearch {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(NAME, include_str!("web_search.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {"query": {"type": "string"}},
                "required": ["query"]
            }))
            .with_category("web")
            .with_primary_argument("query")
    }

    fn stands_for(&self, args: &Value) -> Vec<(String, Value)> {
        query(args).map(|query| vec![self.0.call(&query)]).unwrap_or_default()
    }

    /// What is left has no query.
    fn prepare(&self, args: &Value) -> Result<Option<Arc<dyn ParsedCall>>, ToolError> {
        query(args)?;
        Err(invalid("a search is a call of the tool that searches"))
    }

    async fn execute(&self, args: Value, _: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        self.prepare(&args)?;
        Err(ToolError::Internal("a search is not executed itself".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(text: &str) -> WebSearchProvider {
        WebSearchProvider::parse(text, &[("X-Key".into(), "secret".into())]).expect("usable")
    }

    #[test]
    fn a_search_becomes_a_call_that_rules_know() {
        let search = WebSearch(provider("https://a.example/s?q={query}&format=json"));
        assert_eq!(
            search.stands_for(&json!({"query": " a&b=ü?#\n "})),
            [(
                "WebFetch".to_owned(),
                json!({"url": "https://a.example/s?q=a%26b%3D%C3%BC%3F%23&format=json"})
            )]
        );
        let search = WebSearch(provider("mcp__brave__search"));
        assert_eq!(
            search.stands_for(&json!({"query": "x"})),
            [("mcp__brave__search".to_owned(), json!({"query": "x"}))]
        );
        assert!(search.stands_for(&json!({"query": " "})).is_empty());
        assert!(search.validate_args(&json!({"query": " "})).is_err());
    }

    #[test]
    fn a_template_is_a_url_with_a_query() {
        for (text, why) in [
            ("https://a.example/s", "expected a URL"),
            ("search {query}", "expected a URL"),
            ("http://a.example/?q={query}", "must be https"),
            ("https://{query}.example/", "belongs into the path"),
            ("https://a.example/#{query}", "belongs into the path"),
            ("file:///{query}", "expected a URL"),
        ] {
            let error = WebSearchProvider::parse(text, &[]).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(
            WebSearchProvider::parse("https://a.example/{query}", &[("a b".into(), "c".into())]).is_err()
        );
    }

    #[test]
    fn a_key_goes_to_the_search_alone() {
        let WebSearchProvider::Url(search) = provider("https://A.example/s?q={query}") else {
            panic!("a URL")
        };
        let has_key = |url: &str| search.headers_for(&Url::parse(url).unwrap()).is_some();
        assert!(has_key("https://a.example/s?q=x"));
        for other in ["https://a.example/t?q=x", "https://a.example.evil/s?q=x", "http://a.example/s?q=x"] {
            assert!(!has_key(other), "{other}");
        }
    }
}
