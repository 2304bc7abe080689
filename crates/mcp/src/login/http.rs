//! The network access of a login. Its URLs come from untrusted documents, so each request is checked before
//! it is sent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Url;
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest};

use crate::client::http_client;
use crate::error::{LoginError, LoginUrlError};
use aye_core::contract::address::is_this_machine;

/// One answer, and how long it may take.
const MAX_ANSWER: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(15);
/// Documents that name ever more documents have an end.
const MAX_REQUESTS: usize = 40;

/// A server's response to the first request of a connection without a token.
pub(super) struct Challenge {
    /// It refused the request for want of a login.
    pub(super) is_refused: bool,
    /// What it said about the login.
    pub(super) header: Option<String>,
}

/// Makes the requests of one login, or of one renewal. No answer leads anywhere else: redirects are answers.
pub(super) struct Http {
    is_here: bool,
    made: AtomicUsize,
}

/// Returns whether a URL is on this machine.
fn is_here(url: &Url) -> bool {
    url.host_str().is_some_and(is_this_machine)
}

impl Http {
    /// For the login at a server of this address.
    ///
    /// # Errors
    /// The address can have no login.
    pub(super) fn of(server: &Url) -> Result<Self, LoginUrlError> {
        let http = Self { is_here: is_here(server), made: AtomicUsize::new(0) };
        http.may(server)?;
        Ok(http)
    }

    /// Checks whether this URL may be reached, or shown as a login page.
    ///
    /// # Errors
    /// The reason it may not.
    pub(super) fn may(&self, url: &Url) -> Result<(), LoginUrlError> {
        let host = url.host_str().unwrap_or_default();
        if host.is_empty() || !url.username().is_empty() || url.password().is_some() {
            return Err(LoginUrlError::NoHost);
        }
        match (url.scheme(), is_here(url)) {
            ("https" | "http", true) if self.is_here => Ok(()),
            ("https" | "http", true) => Err(LoginUrlError::ThisMachine(host.to_owned())),
            ("https", false) => Ok(()),
            (scheme, _) => {
                Err(LoginUrlError::NotEncrypted { scheme: scheme.to_owned(), host: host.to_owned() })
            }
        }
    }

    async fn answer(
        &self,
        request: OAuthHttpRequest,
    ) -> Result<::http::Response<Vec<u8>>, OAuthHttpClientError> {
        if self.made.fetch_add(1, Ordering::Relaxed) >= MAX_REQUESTS {
            return Err("too many redirects between its documents".into());
        }
        let request = reqwest::Request::try_from(request.request)?;
        self.may(request.url())?;
        let client = http_client(request.url().as_str())?;
        let mut answer = client.execute(request).await?;
        let mut built = ::http::Response::builder().status(answer.status());
        for (name, value) in answer.headers() {
            built = built.header(name, value);
        }
        let is_stream = answer
            .headers()
            .get(reqwest::header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let mut body = Vec::new();
        // A stream has no end, and nothing in it is about a login.
        while !is_stream && let Some(piece) = answer.chunk().await? {
            if body.len() + piece.len() > MAX_ANSWER {
                return Err(format!("an answer is larger than {} KiB", MAX_ANSWER >> 10).into());
            }
            body.extend_from_slice(&piece);
        }
        Ok(built.body(body)?)
    }

    /// Sends a form, with a name and a password if given. Returns the status of the response.
    ///
    /// # Errors
    /// The URL may not or cannot be reached.
    pub(super) async fn post(
        &self,
        url: &Url,
        form: &[(&str, &str)],
        basic: Option<(&str, &str)>,
    ) -> Result<u16, LoginError> {
        self.may(url)?;
        let client = http_client(url.as_str()).map_err(|_| LoginError::HttpClient)?;
        let mut request = client
            .post(url.clone())
            .header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(coded(form));
        if let Some((name, password)) = basic {
            // Both are written as in a form (RFC 6749, 2.3.1).
            let coded = |text: &str| coded(&[("", text)]).trim_start_matches('=').to_owned();
            request = request.basic_auth(coded(name), Some(coded(password)));
        }
        match tokio::time::timeout(PATIENCE, request.send()).await {
            Ok(answer) => answer.map(|answer| answer.status().as_u16()).map_err(LoginError::Request),
            Err(_) => Err(LoginError::Timeout(PATIENCE)),
        }
    }

    /// Returns the server's challenge.
    pub(super) async fn challenge(&self, server: &Url) -> Result<Challenge, LoginError> {
        let client = http_client(server.as_str()).map_err(|_| LoginError::HttpClient)?;
        let hello = serde_json::json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "aye", "version": env!("CARGO_PKG_VERSION")}}});
        let asked = client
            .post(server.clone())
            .header(reqwest::header::ACCEPT, "application/json, text/event-stream")
            .json(&hello)
            .send();
        let answer = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(answer) => answer.map_err(LoginError::Request)?,
            Err(_) => return Err(LoginError::Timeout(PATIENCE)),
        };
        if answer.status() != reqwest::StatusCode::UNAUTHORIZED {
            return Ok(Challenge { is_refused: false, header: None });
        }
        let challenges = answer.headers().get_all(reqwest::header::WWW_AUTHENTICATE);
        let challenges = challenges.iter().filter_map(|value| value.to_str().ok());
        let header = challenges.max_by_key(|text| text.contains("resource_metadata")).map(str::to_owned);
        Ok(Challenge { is_refused: true, header })
    }
}

/// Fields as a form has them.
fn coded(fields: &[(&str, &str)]) -> String {
    let url = Url::parse_with_params("http://form/", fields).ok();
    url.as_ref().and_then(Url::query).unwrap_or_default().to_owned()
}

impl OAuthHttpClient for Http {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            match tokio::time::timeout(PATIENCE, self.answer(request)).await {
                Ok(answer) => answer,
                Err(_) => Err(format!("no answer for {} s", PATIENCE.as_secs()).into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_documents_may_only_lead_to_https() {
        let url = |text: &str| Url::parse(text).expect("an address");
        let far = Http::of(&url("https://example.org/mcp")).expect("a login");
        let near = Http::of(&url("http://127.0.0.1:1/mcp")).expect("a login");
        for (to, from_far, from_near) in [
            ("https://login.example.net/t", true, true),
            ("http://login.example.net/t", false, false),
            ("http://example.org/t", false, false),
            ("https://localhost/t", false, true),
            ("http://127.0.0.2:9/t", false, true),
            ("http://[::1]/t", false, true),
            ("http://[::ffff:127.0.0.1]/t", false, true),
            ("http://0.0.0.0/t", false, true),
            ("https://a.localhost./t", false, true),
            ("https://me:secret@example.org/t", false, false),
            ("ftp://127.0.0.1/t", false, false),
            ("file:///etc/passwd", false, false),
            ("javascript:alert(1)", false, false),
        ] {
            assert_eq!(far.may(&url(to)).is_ok(), from_far, "{to}");
            assert_eq!(near.may(&url(to)).is_ok(), from_near, "{to}");
        }
        assert!(Http::of(&url("http://example.org/mcp")).is_err());
    }
}
