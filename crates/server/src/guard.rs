//! Checks that every request must pass before it reaches a route: path, host, origin, type of the body,
//! token.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::HttpBody as _;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use aye_core::contract::ids::{InvalidId, check_given};

use super::access::{Caller, TokenScope};
use super::connections::Peer;
use super::error::ApiError;
use super::hub::Hub;

/// Names under which the server is reached, and origins whose pages may use it.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// `host` or `host:port`, as a Host header has it, in lower case.
    pub hosts: Vec<String>,
    /// `https://app.example.com`: other origins than the server's own.
    pub origins: Vec<String>,
}

impl Names {
    /// The names of a server that listens on an address such as `127.0.0.1:3000`, and further hosts and origins. A
    /// server on loopback or on all addresses is also reached under the names of loopback.
    pub fn of(address: &str, hosts: &[String], origins: &[String]) -> Self {
        let mut names: Vec<String> = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        if let Some((own, port)) = address.rsplit_once(':') {
            let ip = own.trim_matches(['[', ']']).parse::<IpAddr>().ok();
            names.extend(names.clone().iter().map(|host| format!("{host}:{port}")));
            if ip.is_none_or(|ip| ip.is_loopback() || ip.is_unspecified()) {
                names.extend(["127.0.0.1", "localhost", "[::1]"].map(|host| format!("{host}:{port}")));
            }
            if !ip.is_some_and(|ip| ip.is_unspecified()) {
                names.push(address.to_ascii_lowercase());
            }
        }
        let origins = origins.iter().map(|origin| origin.trim_end_matches('/').to_owned()).collect();
        Self { hosts: names, origins }
    }
}

/// The state of the guard.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) hub: Arc<Hub>,
    pub(super) names: Arc<Names>,
}

/// Bytes that a body may have.
pub(super) const MAX_BODY: usize = 8 << 20;
/// The header with which a caller says what it calls its request.
const CORRELATION_ID: &str = "x-correlation-id";
/// Members of a query that would be a token in a URL, where logs and histories keep it.
const SECRETS: [&str; 4] = ["token", "access_token", "code", "key"];

impl Guard {
    /// Whether a Host header names this server: exactly, but ignoring case.
    fn knows_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        self.names.hosts.contains(&host)
    }

    /// Whether pages of an origin may use this server.
    fn knows_origin(&self, origin: &str) -> bool {
        let own = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
        self.is_foreign(origin) || own.is_some_and(|host| self.knows_host(host))
    }

    /// Whether an origin is a configured one other than the server's own.
    fn is_foreign(&self, origin: &str) -> bool {
        self.names.origins.iter().any(|known| known == origin)
    }
}

/// Refuses a request before its route sees it.
pub(super) async fn guard(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    guard.hub.metrics.request();
    let has_content = !request.body().is_end_stream();
    let origin = match check(&guard, request.method(), request.uri(), request.headers(), has_content) {
        Ok(origin) => origin,
        Err(error) => {
            guard.hub.metrics.refused();
            return error.into_response();
        }
    };
    if request.method() == Method::OPTIONS {
        return with_cors(StatusCode::NO_CONTENT.into_response(), origin.as_ref());
    }
    if needs_token(request.uri().path()) {
        let correlation_id = match correlation_id(request.headers()) {
            Ok(id) => id,
            Err(error) => return with_cors(error.into_response(), origin.as_ref()),
        };
        let Some(caller) = caller(&guard, &request) else {
            guard.hub.metrics.refused();
            let from = request.extensions().get::<ConnectInfo<Peer>>().map(|info| info.0.0.ip());
            tokio::time::sleep(guard.hub.program.access().mistake(from)).await;
            let message = format!("send `Authorization: Bearer TOKEN`; {}", guard.hub.program.texts().token);
            let mut refused =
                ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message).into_response();
            refused.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return with_cors(refused, origin.as_ref());
        };
        if let Some(ConnectInfo(Peer(_, Some(connection)))) = request.extensions().get() {
            connection.recognise();
        }
        request.extensions_mut().insert(Caller { correlation_id, ..caller });
    }
    with_cors(next.run(request).await, origin.as_ref())
}

/// The origin of the request when its answer needs headers for a page from there.
fn check(
    guard: &Guard,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    has_content: bool,
) -> Result<Option<HeaderValue>, ApiError> {
    if !is_plain(uri.path()) {
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", "no endpoint has this path"));
    }
    let query = uri.query().unwrap_or_default();
    let names = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
    if names.clone().any(|name| SECRETS.contains(&name.to_ascii_lowercase().as_str())) {
        return Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "token_in_url",
            "tokens are not accepted in URLs; send it in the Authorization header",
        ));
    }
    // Another server on the way may have read the other one.
    if headers.get_all(header::HOST).iter().count() > 1 {
        let message = "send exactly one Host header";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "two_hosts", message));
    }
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .or_else(|| Some(uri.authority()?.as_str()));
    if !host.is_some_and(|host| guard.knows_host(host)) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "unknown_host",
            format!("unknown host name; {}", guard.hub.program.texts().host),
        ));
    }
    let origin = headers.get(header::ORIGIN);
    if let Some(origin) = origin
        && !origin.to_str().is_ok_and(|origin| guard.knows_origin(origin))
    {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "unknown_origin",
            format!("this origin is not allowed; {}", guard.hub.program.texts().origin),
        ));
    }
    // However the length of the body is said, or not at all.
    let has_body = matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
        && (headers.contains_key(header::CONTENT_TYPE) || has_content);
    if has_body && !headers.get(header::CONTENT_TYPE).is_some_and(is_json) {
        return Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not_json",
            "the content type must be application/json",
        ));
    }
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_BODY) {
        return Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the body is larger than {} MiB", MAX_BODY >> 20),
        ));
    }
    let is_foreign = |origin: &&HeaderValue| origin.to_str().is_ok_and(|origin| guard.is_foreign(origin));
    Ok(origin.filter(is_foreign).cloned())
}

/// A path without parts that mean another one: `..`, `.`, empty ones, and their encoded forms.
fn is_plain(path: &str) -> bool {
    let mut parts = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        if part.is_empty() && !is_last {
            return false;
        }
        let decoded = part.to_ascii_lowercase().replace("%2e", ".");
        if matches!(decoded.as_str(), "." | "..")
            || decoded.contains("%2f")
            || decoded.contains("%5c")
            || part.contains('\\')
        {
            return false;
        }
    }
    true
}

fn is_json(value: &HeaderValue) -> bool {
    let text = value.to_str().unwrap_or_default();
    let kind = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// Whether a path needs a token or a signature: all that contain data or do something. The page, its files
/// and health do not.
fn needs_token(path: &str) -> bool {
    (path.starts_with("/v1/") && !matches!(path, "/v1/sign-in" | "/v1/signed/answer"))
        || path == "/v1"
        || path == "/metrics"
}

/// Returns the caller's own id of its request.
fn correlation_id(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(CORRELATION_ID) else { return Ok(None) };
    let id = value.to_str().unwrap_or_default();
    let wrong = |error: InvalidId| {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_correlation_id", error.to_string())
    };
    check_given("correlation", id).map_err(wrong)?;
    Ok(Some(id.to_owned()))
}

fn caller(guard: &Guard, request: &Request) -> Option<Caller> {
    let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    guard.hub.program.access().caller(token.trim())
}

fn with_cors(mut response: Response, origin: Option<&HeaderValue>) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::VARY, HeaderValue::from_static("Origin"));
        let pairs = [
            (
                header::ACCESS_CONTROL_ALLOW_HEADERS,
                "Authorization, Content-Type, Last-Event-ID, A2A-Version, X-Correlation-Id, If-Match, Aye-On-Disconnect",
            ),
            (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PATCH, PUT, DELETE"),
            (header::ACCESS_CONTROL_MAX_AGE, "600"),
            (HeaderName::from_static("access-control-expose-headers"), "x-vercel-ai-ui-message-stream"),
        ];
        for (name, value) in pairs {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

/// Refuses a caller whose token does not allow this.
pub(super) fn demand(caller: &Caller, scope: TokenScope) -> Result<(), ApiError> {
    if caller.may(scope) {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        "forbidden",
        format!("the token `{}` does not have the scope `{}`", caller.token, scope.as_str()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_paths_are_refused() {
        for path in [
            "/v1/../x",
            "/v1/%2e%2e/x",
            "/v1/.%2E/x",
            "//v1/threads",
            "/v1//threads",
            "/v1/a%2fb",
            "/v1/./x",
            "/a\\b",
        ] {
            assert!(!is_plain(path), "{path}");
        }
        for path in ["/", "/v1/threads", "/v1/threads/", "/v1/threads/a..b", "/v1/a2a/tasks/x:cancel"] {
            assert!(is_plain(path), "{path}");
        }
    }

    #[test]
    fn a_server_has_the_names_of_its_address() {
        let of = |address: &str| Names::of(address, &["Aye.local".to_owned()], &["https://a/".to_owned()]);
        let loopback = ["aye.local", "aye.local:3000", "127.0.0.1:3000", "localhost:3000", "[::1]:3000"];
        assert_eq!(of("0.0.0.0:3000").hosts, loopback);
        assert_eq!(of("[::]:3000").hosts, loopback);
        assert_eq!(of("LOCALHOST:3000").hosts, [&loopback[..], &["localhost:3000"]].concat());
        assert_eq!(of("192.0.2.1:3000").hosts, ["aye.local", "aye.local:3000", "192.0.2.1:3000"]);
        assert_eq!(of("").hosts, ["aye.local"]);
        assert_eq!(of("").origins, ["https://a"]);
    }

    #[test]
    fn only_json_bodies_are_accepted() {
        let is = |text: &str| is_json(&HeaderValue::from_str(text).expect("a header"));
        assert!(
            is("application/json") && is("Application/JSON; charset=utf-8") && is("application/a2a+json")
        );
        assert!(!is("text/plain") && !is("application/x-www-form-urlencoded") && !is("text/json"));
    }

    #[test]
    fn everything_but_the_page_and_health_needs_a_token() {
        for path in ["/", "/app.js", "/health", "/health/live", "/v1/sign-in", "/.well-known/agent-card.json"]
        {
            assert!(!needs_token(path), "{path}");
        }
        for path in [
            "/v1/threads",
            "/v1/sign-in/x",
            "/v1/signed",
            "/v1/signed/answer/x",
            "/v1",
            "/metrics",
            "/v1/mcp",
        ] {
            assert!(needs_token(path), "{path}");
        }
    }
}
