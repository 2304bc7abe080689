//! The URL and the credentials of a remote agent: an endpoint that was checked.

use std::time::Duration;

use aye_core::contract::address::is_this_machine;
use aye_core::contract::display::visible_line;
use aye_core::contract::spec::RemoteEndpoint;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::FillVariables;

/// Why an endpoint cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It is not a URL with a host.
    #[error("`{0}` is not a URL")]
    NotUrl(String),
    /// It is not encrypted, and the host is another machine.
    #[error("`{0}` is not encrypted; use https")]
    NotEncrypted(String),
    /// It contains credentials.
    #[error("the URL contains a user name, a query or a fragment; keys belong to `auth`")]
    ContainsKey,
    /// `auth` has another form than expected.
    #[error(
        "`auth` must be {{type: bearer, token: \"${{NAME}}\"}} or {{type: header, name: X-Key, value: \"${{NAME}}\"}}"
    )]
    BadAuth,
    /// A variable has no value.
    #[error("{0}")]
    NoVariable(String),
    /// The name of the agent there cannot be part of a path.
    #[error("`target` must be 1 to 128 letters, digits, `-`, `_` and `.`")]
    BadTarget,
    /// The option does not exist.
    #[error("unknown option `{0}`; expected `poll_interval_ms`")]
    UnknownOption(String),
    /// The interval is not a number.
    #[error("`poll_interval_ms` must be a number of milliseconds")]
    BadPollInterval,
}

/// An endpoint that was checked.
pub(crate) struct EndpointAddress {
    /// Without a slash at the end.
    pub(crate) base: Url,
    pub(crate) target: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
    pub(crate) poll: Duration,
}

/// Checks an endpoint without replacing variables.
///
/// # Errors
/// [`EndpointError`].
pub fn check_endpoint(endpoint: &RemoteEndpoint) -> Result<(), EndpointError> {
    let fill: FillVariables = std::sync::Arc::new(|_| Ok("x".into()));
    EndpointAddress::of(endpoint, &fill).map(drop)
}

impl EndpointAddress {
    pub(crate) fn of(endpoint: &RemoteEndpoint, fill: &FillVariables) -> Result<Self, EndpointError> {
        let shown = || visible_line(&endpoint.base_url).into_owned();
        let mut base = Url::parse(&endpoint.base_url).map_err(|_| EndpointError::NotUrl(shown()))?;
        let host = base.host_str().unwrap_or_default();
        if host.is_empty() || !matches!(base.scheme(), "http" | "https") {
            return Err(EndpointError::NotUrl(shown()));
        }
        if !base.username().is_empty()
            || base.password().is_some()
            || base.query().is_some()
            || base.fragment().is_some()
        {
            return Err(EndpointError::ContainsKey);
        }
        if base.scheme() == "http" && !is_this_machine(host) {
            return Err(EndpointError::NotEncrypted(shown()));
        }
        let path = base.path().trim_end_matches('/').to_owned();
        base.set_path(&path);
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let target = endpoint.target.clone();
        let is_name = |name: &String| {
            (1..=128).contains(&name.len()) && name.chars().all(fits) && name != "." && name != ".."
        };
        if !target.as_ref().is_none_or(is_name) {
            return Err(EndpointError::BadTarget);
        }
        if let Some(unknown) = endpoint.options.keys().find(|key| *key != "poll_interval_ms") {
            return Err(EndpointError::UnknownOption(visible_line(unknown).into_owned()));
        }
        Ok(Self {
            base,
            target,
            headers: headers(endpoint.auth.as_ref(), fill)?,
            timeout: Duration::from_millis(endpoint.timeout_ms.max(1000)),
            poll: poll_interval(endpoint)?,
        })
    }

    /// Whether a URL has the same origin, so that keys may be sent there.
    pub(crate) fn is_same_origin(&self, other: &Url) -> bool {
        self.base.origin() == other.origin()
    }
}

/// Returns the time between two reads of a task that cannot be streamed.
pub(crate) fn poll_interval(endpoint: &RemoteEndpoint) -> Result<Duration, EndpointError> {
    let option = endpoint.options.get("poll_interval_ms").map_or(Some(1000), Value::as_u64);
    option.map(|ms| Duration::from_millis(ms.clamp(50, 60_000))).ok_or(EndpointError::BadPollInterval)
}

fn headers(auth: Option<&Value>, fill: &FillVariables) -> Result<HeaderMap, EndpointError> {
    let mut headers = HeaderMap::new();
    let Some(auth) = auth else { return Ok(headers) };
    let text = |key: &str| auth.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (name, value) = match text("type") {
        Some("bearer") => {
            let token = fill(text("token").ok_or(EndpointError::BadAuth)?)?;
            (AUTHORIZATION, format!("Bearer {token}"))
        }
        Some("header") => {
            let name = text("name").and_then(|name| HeaderName::try_from(name).ok());
            let value = fill(text("value").ok_or(EndpointError::BadAuth)?);
            (name.ok_or(EndpointError::BadAuth)?, value?)
        }
        Some(_) | None => return Err(EndpointError::BadAuth),
    };
    let mut value = HeaderValue::try_from(value).map_err(|_| EndpointError::BadAuth)?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(headers)
}
