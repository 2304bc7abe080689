//! Classifies errors: each becomes one sentence of one kind.
//!
//! The kind decides what happens next (wait, retry, compact, give up); the sentence is shown to the user: who
//! reported the error, and what it was. It never contains a key.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::overflow::is_overflow;
use super::provider::WireFormat;
use super::reset::wait_of;
use aye_core::contract::display::shortened;
use aye_core::contract::executor::InferenceExecutionError;

/// In every message about a model that a provider does not know.
pub const HAS_NO_MODEL: &str = " has no model ";

/// The longest piece of a foreign text in one of our sentences, in characters.
const MAX_SHOWN: usize = 600;

/// The model and the server that a request goes to.
#[derive(Clone, Debug)]
pub(super) struct ModelEndpoint {
    pub(super) provider: String,
    pub(super) adapter: WireFormat,
    pub(super) model: String,
    pub(super) base_url: String,
    pub(super) key: Option<SecretString>,
}

impl ModelEndpoint {
    /// A foreign text that may be shown: short, on one line, without the key.
    pub(super) fn shown(&self, text: &str) -> String {
        let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(key) = &self.key
            && key.expose_secret().len() >= 4
        {
            text = text.replace(key.expose_secret(), "[key]");
        }
        shortened(&hide_keys(&text), MAX_SHOWN).into_owned()
    }

    /// The answer to the request was not a success.
    pub(super) fn http_error(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &str,
    ) -> InferenceExecutionError {
        let json: Value = serde_json::from_str(body).unwrap_or(Value::Null);
        // Gemini wraps its errors in a list when it was asked for a stream.
        let json = json.get(0).unwrap_or(&json);
        let error = json.get("error").unwrap_or(json);
        let detail = match message_of(error) {
            Some(detail) => detail.to_owned(),
            None if is_html(body) => "the server answered with a web page".to_owned(),
            None => body.to_owned(),
        };
        if status.is_redirection() {
            let to = headers.get("location").and_then(|to| to.to_str().ok()).unwrap_or("another URL");
            return InferenceExecutionError::InvalidRequest(format!(
                "{}: {} redirects requests to {}; keys are not sent to another host, so set base_url to the right one",
                self.provider,
                self.base_url,
                self.shown(to)
            ));
        }
        if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            return InferenceExecutionError::InvalidRequest(format!(
                "a proxy refuses the request to {} at {}: it wants a login (407){}",
                self.provider,
                self.base_url,
                self.through_proxy()
            ));
        }
        let retry_after = wait_of(Some(status), Some(headers), error, &detail, jiff::Timestamp::now());
        self.sort(Some(status), &code_of(error), &detail, retry_after)
    }

    /// An error object in the middle of a stream.
    pub(super) fn stream_error(&self, error: &Value) -> InferenceExecutionError {
        let status = ["code", "status", "http_code", "status_code"]
            .iter()
            .find_map(|key| error.get(key))
            .and_then(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()))
            .and_then(|code| u16::try_from(code).ok())
            .filter(|code| (400..600).contains(code))
            .and_then(|code| StatusCode::from_u16(code).ok());
        let detail = message_of(error).map_or_else(|| error.to_string(), str::to_owned);
        let retry_after = wait_of(status, None, error, &detail, jiff::Timestamp::now());
        self.sort(status, &code_of(error), &detail, retry_after)
    }

    fn sort(
        &self,
        status: Option<StatusCode>,
        code: &str,
        detail: &str,
        retry_after: Option<Duration>,
    ) -> InferenceExecutionError {
        let who = &self.provider;
        let shown = self.shown(detail);
        let shown = if shown.is_empty() { "no reason given".to_owned() } else { shown };
        let number = status.map(|status| format!(" ({})", status.as_u16())).unwrap_or_default();
        let detail_lower = detail.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| code.contains(word));
        if is_overflow(code, &detail_lower) {
            return InferenceExecutionError::ContextOverflow(format!(
                "{who}: the conversation is too long for {}: {shown}",
                self.model
            ));
        }
        let status = status.map(|status| status.as_u16());
        match status {
            // A quota that is used up does not come back by waiting some seconds.
            _ if has(&["insufficient_quota", "billing", "credit_balance", "payment"]) => {
                InferenceExecutionError::Unauthorized(format!("{who} rejected this account{number}: {shown}"))
            }
            Some(401..=403) => {
                InferenceExecutionError::Unauthorized(format!("{who} rejected the key{number}: {shown}"))
            }
            Some(404 | 410) => InferenceExecutionError::InvalidRequest(format!(
                "{who}{HAS_NO_MODEL}{} at {}{number}: {shown}",
                self.model, self.base_url
            )),
            Some(408 | 504) => {
                InferenceExecutionError::Timeout(format!("{who} took too long{number}: {shown}"))
            }
            Some(413) => InferenceExecutionError::ContextOverflow(format!(
                "{who}: the request is too large{number}: {shown}"
            )),
            Some(429) => InferenceExecutionError::RateLimited {
                message: format!("{who}: too many requests{number}: {shown}"),
                retry_after,
            },
            Some(409 | 425) => InferenceExecutionError::Provider(format!("{who}{number}: {shown}")),
            Some(400 | 422) if is_about_thoughts(&detail_lower) => InferenceExecutionError::BoundThoughts(
                format!("{who} rejected the thoughts in the conversation{number}: {shown}"),
            ),
            Some(400 | 422) if !has(&["overloaded", "rate_limit"]) => {
                InferenceExecutionError::Rejected(format!("{who} rejected the request{number}: {shown}"))
            }
            Some(400..=499) if !has(&["overloaded", "rate_limit"]) => {
                InferenceExecutionError::InvalidRequest(format!(
                    "{who} rejected the request{number}: {shown}"
                ))
            }
            Some(500..) => InferenceExecutionError::Unavailable {
                message: format!("{who} is overloaded or down{number}: {shown}"),
                retry_after,
            },
            _ if has(&["rate_limit", "usage_limit", "resource_exhausted", "too_many_requests"]) => {
                InferenceExecutionError::RateLimited {
                    message: format!("{who}: too many requests{number}: {shown}"),
                    retry_after,
                }
            }
            _ if has(&["overloaded", "unavailable", "server_error", "api_error", "internal"]) => {
                InferenceExecutionError::Unavailable {
                    message: format!("{who} is overloaded or down{number}: {shown}"),
                    retry_after,
                }
            }
            _ if has(&["authentication", "permission", "invalid_api_key", "unauthenticated"]) => {
                InferenceExecutionError::Unauthorized(format!("{who} rejected the key{number}: {shown}"))
            }
            _ if has(&["not_found"]) => InferenceExecutionError::InvalidRequest(format!(
                "{who}{HAS_NO_MODEL}{} at {}{number}: {shown}",
                self.model, self.base_url
            )),
            _ if has(&["invalid_request", "invalid_argument"]) => InferenceExecutionError::InvalidRequest(
                format!("{who} rejected the request{number}: {shown}"),
            ),
            _ => InferenceExecutionError::Provider(format!("{who} reports an error{number}: {shown}")),
        }
    }

    /// A piece of the answer that cannot be read.
    pub(super) fn bad_frame(&self, frame: &str, error: &serde_json::Error) -> InferenceExecutionError {
        if error.is_eof() {
            // An incomplete chunk means that the connection was cut.
            return self.cut();
        }
        InferenceExecutionError::Provider(format!(
            "{} sent a chunk of {} bytes that is not valid JSON: {error}",
            self.provider,
            frame.len()
        ))
    }

    /// The stream stopped before its end.
    pub(super) fn cut(&self) -> InferenceExecutionError {
        InferenceExecutionError::Network(format!(
            "the stream ended before the answer was complete ({})",
            self.provider
        ))
    }

    /// A frame without end.
    pub(super) fn too_long(&self) -> InferenceExecutionError {
        InferenceExecutionError::InvalidRequest(format!(
            "{} sent a chunk of more than 10 MiB, the maximum",
            self.provider
        ))
    }

    pub(super) fn no_headers(&self, limit: Duration) -> InferenceExecutionError {
        InferenceExecutionError::Timeout(format!(
            "{} at {} did not answer within {} s",
            self.provider,
            self.base_url,
            limit.as_secs_f32()
        ))
    }

    pub(super) fn silence(&self, limit: Duration) -> InferenceExecutionError {
        InferenceExecutionError::Timeout(format!(
            "{} sent nothing for {} s in the middle of an answer",
            self.provider,
            limit.as_secs_f32()
        ))
    }

    pub(super) fn too_slow(&self, limit: Duration) -> InferenceExecutionError {
        InferenceExecutionError::TooSlow(format!(
            "{} was still answering after {} s, the limit for one answer",
            self.provider,
            limit.as_secs_f32()
        ))
    }

    /// Converts an error of the HTTP client.
    pub(super) fn transport(&self, error: &reqwest::Error) -> InferenceExecutionError {
        let mut causes = Vec::new();
        let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
        while let Some(one) = cause {
            let text = one.to_string();
            if !text.is_empty() && causes.last() != Some(&text) {
                causes.push(text);
            }
            cause = one.source();
        }
        // The innermost one says it best; the ones around it say "error trying to connect" again.
        let why = self.shown(causes.last().map_or("no reason given", String::as_str));
        if error.is_builder() {
            return InferenceExecutionError::InvalidRequest(format!(
                "{}: the request cannot be built; check base_url and the key: {why}",
                self.provider
            ));
        }
        if error.is_timeout() {
            return InferenceExecutionError::Timeout(format!(
                "{} at {}: {why}",
                self.provider, self.base_url
            ));
        }
        if error.is_connect() {
            return InferenceExecutionError::Network(format!(
                "cannot connect to {} at {}: {why}{}",
                self.provider,
                self.base_url,
                self.through_proxy()
            ));
        }
        if error.is_body() || error.is_decode() {
            return InferenceExecutionError::Network(format!(
                "the stream ended before the answer was complete: the connection to {} broke: {why}",
                self.provider
            ));
        }
        InferenceExecutionError::Network(format!("the connection to {} broke: {why}", self.provider))
    }

    /// Names the proxy of the requests, if there is one.
    fn through_proxy(&self) -> String {
        let proxy = reqwest::Url::parse(&self.base_url).ok().and_then(|url| aye_http::proxy_of(&url));
        proxy.map(|proxy| format!("; the connection goes through the proxy {proxy}")).unwrap_or_default()
    }

    /// Converts the error of a model's name that cannot be resolved.
    pub(super) fn unresolved(&self, error: &genai::Error) -> InferenceExecutionError {
        use genai::Error;
        match error {
            Error::RequiresApiKey { .. }
            | Error::NoAuthResolver { .. }
            | Error::NoAuthData { .. }
            | Error::Resolver { .. } => self.no_key(),
            other => InferenceExecutionError::InvalidRequest(format!(
                "{}: the request cannot be built: {}",
                self.provider,
                self.shown(&other.to_string())
            )),
        }
    }

    pub(super) fn no_key(&self) -> InferenceExecutionError {
        InferenceExecutionError::Unauthorized(format!(
            "no key for {} ({}); set one, or a base_url that needs none",
            self.provider, self.base_url
        ))
    }
}

fn message_of(error: &Value) -> Option<&str> {
    // OpenRouter keeps what its provider said one level further in.
    let raw = error.pointer("/metadata/raw").and_then(Value::as_str);
    let message = error
        .as_str()
        .or_else(|| error.get("message").and_then(Value::as_str))
        .or_else(|| error.pointer("/error/message").and_then(Value::as_str))
        .or_else(|| error.get("error").and_then(Value::as_str))
        .or_else(|| error.get("detail").and_then(Value::as_str));
    match (message, raw) {
        (Some("Provider returned error") | None, Some(raw)) => Some(raw),
        (message, _) => message,
    }
}

/// Every word by which providers name the kind of an error, in one string.
fn code_of(error: &Value) -> String {
    ["type", "code", "status"]
        .iter()
        .filter_map(|key| error.get(key).or_else(|| error.get("error")?.get(key)))
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(" ")
        .to_ascii_lowercase()
}

pub(super) fn is_html(body: &str) -> bool {
    let start = body.trim_start().get(..14).unwrap_or_default().to_ascii_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

/// Hides anything that looks like a key of any provider, whole or partly masked.
fn hide_keys(text: &str) -> String {
    text.split(' ')
        .map(|word| {
            let core = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            let is_key = core.len() >= 12
                && ["sk-", "sk_", "gsk_", "xai-", "AIza", "key-", "pk-"]
                    .iter()
                    .any(|start| core.starts_with(start));
            if is_key { word.replace(core, "[key]") } else { word.to_owned() }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Whether a request was refused because thoughts in it do not belong to what comes before them.
fn is_about_thoughts(detail: &str) -> bool {
    detail.contains("bound to a different conversation")
        || detail.contains("thinking") && detail.contains("invalid `signature`")
}

#[cfg(test)]
mod tests;
