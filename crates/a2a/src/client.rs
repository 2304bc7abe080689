//! Requests to a remote agent. Responses are limited in size and time, and come from the endpoint's origin only.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use aye_core::contract::display::{is_unsafe, shortened, visible_line};
use aye_core::contract::spec::RemoteEndpoint;
use aye_encode::a2a::{
    A2A_BINDING, A2A_CARD_PATH, A2A_VERSION, A2A_VERSION_HEADER, A2aCard, A2aResponse, A2aSendRequest,
    A2aTask,
};
use aye_http::{EventTooLong, SseParser};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Method, Response, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::FillVariables;
use super::address::{EndpointAddress, EndpointError};

/// Maximum bytes of a card, of a response, of one event of a stream, and of a whole stream.
const MAX_CARD: usize = 256 << 10;
const MAX_RESPONSE: usize = 4 << 20;
const MAX_EVENT: usize = 1 << 20;
const MAX_STREAM: usize = 32 << 20;
/// How long connecting and a response that is no stream may take, and how long a stream may be silent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
const STREAM_TIMEOUT: Duration = Duration::from_mins(2);
/// Maximum characters of the other side's error message.
const MAX_MESSAGE: usize = 500;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum A2aClientError {
    /// The endpoint cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The client could not be set up.
    #[error("no HTTP client: {0}")]
    Setup(String),
    /// There was no connection, so nothing was sent.
    #[error("no connection to {0}")]
    NotReached(String),
    /// The request was sent, and it is not known whether it arrived.
    #[error("the connection to {0} was lost")]
    ConnectionLost(String),
    /// The other side asks to try later. It did nothing.
    #[error("{0} is busy")]
    Busy(String),
    /// The other side failed, and may have done something.
    #[error("{host} failed with status {status}: {message}")]
    Failed { host: String, status: u16, message: String },
    /// The other side refused the request. It did nothing.
    #[error("{host} refused it ({reason}): {message}")]
    Refused {
        host: String,
        status: u16,
        /// The protocol's name of the reason.
        reason: String,
        message: String,
    },
    /// It redirects, and redirects are not followed.
    #[error("{host} redirects to {to}; use that URL in the endpoint if you trust it")]
    Redirects {
        host: String,
        /// The URL that it names.
        to: String,
    },
    /// The response cannot be used.
    #[error("{host} sent a response that cannot be used: {why}")]
    Unusable {
        host: String,
        /// What is wrong with it.
        why: String,
    },
    /// It offers no interface that aye supports.
    #[error("the card of {0} names no interface for {A2A_BINDING}")]
    NoInterface(String),
}

impl A2aClientError {
    /// Whether a request that changes nothing may succeed when it is repeated.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::NotReached(_) | Self::ConnectionLost(_) | Self::Busy(_) | Self::Failed { .. } => true,
            Self::Endpoint(_)
            | Self::Setup(_)
            | Self::Refused { .. }
            | Self::Redirects { .. }
            | Self::Unusable { .. }
            | Self::NoInterface(_) => false,
        }
    }

    /// Whether the other side certainly did nothing, so that a message may be sent again.
    pub(crate) fn is_safe_to_resend(&self) -> bool {
        matches!(self, Self::NotReached(_) | Self::Busy(_))
    }

    /// Whether a message may or may not have arrived.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::ConnectionLost(_) | Self::Failed { .. } | Self::Unusable { .. })
    }
}

/// A stream of updates.
pub(crate) type Updates = BoxStream<'static, Result<A2aResponse, A2aClientError>>;

/// The response to a message.
pub(crate) enum SendReply {
    One(Box<A2aResponse>),
    Stream(Updates),
}

/// An agent whose card was read.
#[derive(Clone)]
pub(crate) struct DiscoveredAgent {
    pub(crate) card: Option<A2aCard>,
    /// The URL that the protocol's paths are appended to.
    pub(crate) interface: Url,
    pub(crate) streams: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TaskPage {
    tasks: Vec<A2aTask>,
}

/// The other side's text without characters that could mislead a terminal or a reader.
pub(crate) fn cleaned(text: &str) -> String {
    if !text.chars().any(is_unsafe) {
        return text.to_owned();
    }
    text.chars().filter(|c| !is_unsafe(*c)).collect()
}

pub(crate) struct A2aClient {
    pub(crate) address: EndpointAddress,
    host: String,
    http: reqwest::Client,
}

impl A2aClient {
    pub(crate) fn new(endpoint: &RemoteEndpoint, fill: &FillVariables) -> Result<Self, A2aClientError> {
        let address = EndpointAddress::of(endpoint, fill)?;
        let http = http_client(&address.base).map_err(|error| A2aClientError::Setup(error.to_string()))?;
        Ok(Self { address, host: visible_line(endpoint.host()).into_owned(), http })
    }

    /// Reads the card, if there is one, and finds the interface to use.
    pub(crate) async fn discover(&self) -> Result<DiscoveredAgent, A2aClientError> {
        let base = &self.address.base;
        let mut candidates = vec![extended(base, A2A_CARD_PATH)];
        if !base.path().trim_end_matches('/').is_empty() {
            let mut origin = base.clone();
            origin.set_path("");
            candidates.push(extended(&origin, A2A_CARD_PATH));
        }
        for url in candidates {
            let response = self.request(Method::GET, url, None, "application/json", RESPONSE_TIMEOUT).await;
            match response {
                Ok(response) => {
                    let card: A2aCard = self.read(response, MAX_CARD).await?;
                    return self.read_card(card);
                }
                // An agent at a path of its own may have no card there.
                Err(A2aClientError::Refused { status: 400 | 401 | 403 | 404 | 405, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(DiscoveredAgent { card: None, interface: base.clone(), streams: false })
    }

    fn read_card(&self, card: A2aCard) -> Result<DiscoveredAgent, A2aClientError> {
        let base = &self.address.base;
        let streams = card.capabilities.streaming;
        let is_supported = |binding: &str| binding.eq_ignore_ascii_case(A2A_BINDING);
        let mut ours =
            card.supported_interfaces.iter().filter(|interface| is_supported(&interface.protocol_binding));
        // A URL with a path is the interface itself, whatever host name the card uses.
        if !base.path().trim_end_matches('/').is_empty() {
            return Ok(DiscoveredAgent { interface: base.clone(), streams, card: Some(card) });
        }
        let Some(interface) = ours.next() else {
            return Err(A2aClientError::NoInterface(self.host.clone()));
        };
        let shown = visible_line(&interface.url).into_owned();
        let url = Url::parse(&interface.url).ok().filter(|url| self.address.is_same_origin(url));
        let Some(mut url) = url else {
            return Err(A2aClientError::Redirects { host: self.host.clone(), to: shown });
        };
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        url.set_query(None);
        Ok(DiscoveredAgent { interface: url, streams, card: Some(card) })
    }

    fn url(&self, agent: &DiscoveredAgent, path: &str) -> Url {
        let tenant = self.address.target.as_ref().map(|target| format!("/{target}")).unwrap_or_default();
        extended(&agent.interface, &format!("{tenant}/{path}"))
    }

    /// Sends a message. If this returns a response, the message arrived.
    pub(crate) async fn send(
        &self,
        agent: &DiscoveredAgent,
        message: &A2aSendRequest,
    ) -> Result<SendReply, A2aClientError> {
        let path = if agent.streams { "message:stream" } else { "message:send" };
        let accept = if agent.streams { "text/event-stream" } else { "application/json" };
        let body = serde_json::to_value(message).map_err(|error| unusable(&self.host, error))?;
        let response = self
            .request(Method::POST, self.url(agent, path), Some(body), accept, self.send_timeout(agent))
            .await?;
        if is_stream(&response) {
            return Ok(SendReply::Stream(self.updates(response)));
        }
        self.read(response, MAX_RESPONSE).await.map(|one| SendReply::One(Box::new(one)))
    }

    /// The time limit for the head of the response to a message: a server that does not stream may wait for the end of
    /// the task, although it is asked not to.
    fn send_timeout(&self, agent: &DiscoveredAgent) -> Duration {
        if agent.streams { RESPONSE_TIMEOUT } else { self.address.timeout }
    }

    pub(crate) async fn task(&self, agent: &DiscoveredAgent, id: &str) -> Result<A2aTask, A2aClientError> {
        let url = self.url(agent, &format!("tasks/{}", segment(id)));
        let response = self.request(Method::GET, url, None, "application/json", RESPONSE_TIMEOUT).await?;
        self.read(response, MAX_RESPONSE).await
    }

    pub(crate) async fn cancel(&self, agent: &DiscoveredAgent, id: &str) -> Result<(), A2aClientError> {
        let url = self.url(agent, &format!("tasks/{}:cancel", segment(id)));
        self.request(
            Method::POST,
            url,
            Some(Value::Object(serde_json::Map::new())),
            "application/json",
            RESPONSE_TIMEOUT,
        )
        .await
        .map(drop)
    }

    pub(crate) async fn subscribe(
        &self,
        agent: &DiscoveredAgent,
        id: &str,
    ) -> Result<Updates, A2aClientError> {
        let url = self.url(agent, &format!("tasks/{}:subscribe", segment(id)));
        let body = Some(Value::Object(serde_json::Map::new()));
        let response = self.request(Method::POST, url, body, "text/event-stream", RESPONSE_TIMEOUT).await?;
        Ok(self.updates(response))
    }

    /// The newest task of a context.
    pub(crate) async fn find(
        &self,
        agent: &DiscoveredAgent,
        context: &str,
    ) -> Result<Option<A2aTask>, A2aClientError> {
        let mut url = self.url(agent, "tasks");
        url.query_pairs_mut().append_pair("contextId", context).append_pair("pageSize", "10");
        let response = self.request(Method::GET, url, None, "application/json", RESPONSE_TIMEOUT).await?;
        let page: TaskPage = self.read(response, MAX_RESPONSE).await?;
        Ok(page.tasks.into_iter().find(|task| task.context_id == context))
    }

    async fn request(
        &self,
        method: Method,
        url: Url,
        body: Option<Value>,
        accept: &str,
        timeout: Duration,
    ) -> Result<Response, A2aClientError> {
        let mut request = self.http.request(method, url).header(A2A_VERSION_HEADER, A2A_VERSION);
        request = request.headers(self.address.headers.clone()).header(ACCEPT, accept);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let response = match tokio::time::timeout(timeout, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.is_connect() => {
                return Err(A2aClientError::NotReached(self.host.clone()));
            }
            Ok(Err(_)) | Err(_) => return Err(A2aClientError::ConnectionLost(self.host.clone())),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status.is_redirection() {
            let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
            let to = shortened(&visible_line(to), 200).into_owned();
            return Err(A2aClientError::Redirects { host: self.host.clone(), to });
        }
        // A 503 does not say that nothing was done: a proxy may send it for a request that its server took.
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Err(A2aClientError::Busy(self.host.clone()));
        }
        let body: Value = self.read(response, MAX_CARD).await.unwrap_or_default();
        let error = &body["error"];
        let message = error["message"].as_str().unwrap_or_default();
        let message = shortened(&visible_line(&cleaned(message)), MAX_MESSAGE).into_owned();
        let reason = error["details"][0]["reason"].as_str().unwrap_or(status.as_str());
        let reason = shortened(&visible_line(reason), 60).into_owned();
        let (host, code) = (self.host.clone(), status.as_u16());
        Err(if status.is_server_error() {
            A2aClientError::Failed { host, status: code, message }
        } else {
            A2aClientError::Refused { host, status: code, reason, message }
        })
    }

    async fn read<T: DeserializeOwned>(&self, response: Response, limit: usize) -> Result<T, A2aClientError> {
        let mut bytes = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = tokio::time::timeout(RESPONSE_TIMEOUT, chunks.next())
            .await
            .map_err(|_| A2aClientError::ConnectionLost(self.host.clone()))?
        {
            let chunk = chunk.map_err(|_| A2aClientError::ConnectionLost(self.host.clone()))?;
            if bytes.len() + chunk.len() > limit {
                return Err(unusable(&self.host, format!("it is longer than {limit} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&bytes).map_err(|error| unusable(&self.host, error))
    }

    /// The events of a stream, which ends after an error.
    fn updates(&self, response: Response) -> Updates {
        let events = EventStream {
            bytes: response.bytes_stream().boxed(),
            parser: SseParser::new(MAX_EVENT),
            length: 0,
            ready: VecDeque::new(),
            host: self.host.clone(),
        };
        futures::stream::try_unfold(events, |mut events| async move {
            Ok(events.next().await?.map(|event| (event, events)))
        })
        .boxed()
    }
}

struct EventStream {
    bytes: BoxStream<'static, reqwest::Result<Bytes>>,
    parser: SseParser,
    /// Bytes that were read.
    length: usize,
    ready: VecDeque<String>,
    host: String,
}

impl EventStream {
    async fn next(&mut self) -> Result<Option<A2aResponse>, A2aClientError> {
        loop {
            while let Some(data) = self.ready.pop_front() {
                // Some servers send events without data to keep the connection alive.
                if !data.is_empty() {
                    return serde_json::from_str(&data)
                        .map(Some)
                        .map_err(|error| unusable(&self.host, error));
                }
            }
            let broke = || A2aClientError::ConnectionLost(self.host.clone());
            let Some(chunk) =
                tokio::time::timeout(STREAM_TIMEOUT, self.bytes.next()).await.map_err(|_| broke())?
            else {
                return Ok(None);
            };
            let chunk = chunk.map_err(|_| broke())?;
            self.length += chunk.len();
            if self.length > MAX_STREAM {
                return Err(unusable(&self.host, format!("the stream is longer than {MAX_STREAM} bytes")));
            }
            let mut events = Vec::new();
            let pushed = self.parser.push(&chunk, &mut events);
            pushed.map_err(|EventTooLong| {
                unusable(&self.host, format!("an event is longer than {MAX_EVENT} bytes"))
            })?;
            self.ready.extend(events);
        }
    }
}

fn unusable(host: &str, why: impl ToString) -> A2aClientError {
    let why = shortened(&visible_line(&why.to_string()), 200).into_owned();
    A2aClientError::Unusable { host: host.to_owned(), why }
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

fn extended(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let whole = format!("{}/{}", base.path().trim_end_matches('/'), path.trim_start_matches('/'));
    url.set_path(&whole);
    url
}

/// Encodes an id of the other side as one segment of a path.
fn segment(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~:".contains(&byte);
    let mut out = String::new();
    for byte in id.bytes() {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn http_client(base: &Url) -> reqwest::Result<reqwest::Client> {
    aye_http::client_builder(Some(base))
        // A small answer cannot unpack into a huge one.
        .no_gzip()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(0)
        // A key goes to no other host, and a message is not sent by another method.
        .redirect(reqwest::redirect::Policy::none())
        .build()
}
