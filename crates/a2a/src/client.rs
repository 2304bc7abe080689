//! Requests to an agent. Nothing that comes back is larger, longer or elsewhere than it may be.

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

/// Bytes of a card, of an answer, of one event of a stream, and of a whole stream.
const MAX_CARD: usize = 256 << 10;
const MAX_ANSWER: usize = 4 << 20;
const MAX_EVENT: usize = 1 << 20;
const MAX_STREAM: usize = 32 << 20;
/// How long a connection and an answer that is no stream may take, and how long a stream may be silent.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(30);
const SILENCE: Duration = Duration::from_mins(2);
/// Characters of an error of the other side.
const MAX_WORDS: usize = 500;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum A2aClientError {
    /// The endpoint cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The client could not be set up.
    #[error("no HTTP client: {0}")]
    Setup(String),
    /// Nothing was sent.
    #[error("no connection to {0}")]
    NotReached(String),
    /// It was sent, and nobody knows what became of it.
    #[error("the connection to {0} broke")]
    Broke(String),
    /// The other side wants to be left alone for now. It did nothing.
    #[error("{0} is busy")]
    Busy(String),
    /// The other side failed, and may have done something.
    #[error("{host} failed with status {status}: {words}")]
    Failed {
        /// Who.
        host: String,
        /// The status.
        status: u16,
        /// What it said.
        words: String,
    },
    /// The other side refused the request. It did nothing.
    #[error("{host} refused it ({reason}): {words}")]
    Refused {
        /// Who.
        host: String,
        /// The status.
        status: u16,
        /// The protocol's name of the reason.
        reason: String,
        /// What it said.
        words: String,
    },
    /// It wants to be asked elsewhere.
    #[error("{host} redirects to {to}; set the endpoint's URL to where it leads, if you trust that")]
    Redirects {
        /// Who.
        host: String,
        /// Where to.
        to: String,
    },
    /// The answer is none.
    #[error("{host} gave an answer that cannot be used: {why}")]
    Unusable {
        /// Who.
        host: String,
        /// Why.
        why: String,
    },
    /// It speaks another way.
    #[error("{0}")]
    SpeaksOtherwise(String),
}

impl A2aClientError {
    /// Whether asking the same again may help, when what is asked changes nothing.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::NotReached(_) | Self::Broke(_) | Self::Busy(_) | Self::Failed { .. } => true,
            Self::Endpoint(_)
            | Self::Setup(_)
            | Self::Refused { .. }
            | Self::Redirects { .. }
            | Self::Unusable { .. }
            | Self::SpeaksOtherwise(_) => false,
        }
    }

    /// Whether the other side is known to have done nothing, and may do it when asked again.
    pub(crate) fn may_be_sent_again(&self) -> bool {
        matches!(self, Self::NotReached(_) | Self::Busy(_))
    }

    /// Whether nobody knows if the message arrived.
    pub(crate) fn leaves_open(&self) -> bool {
        matches!(self, Self::Broke(_) | Self::Failed { .. } | Self::Unusable { .. })
    }
}

/// A stream of updates.
pub(crate) type Updates = BoxStream<'static, Result<A2aResponse, A2aClientError>>;

/// What a message led to.
pub(crate) enum SendReply {
    One(Box<A2aResponse>),
    Stream(Updates),
}

/// An agent that was looked up.
#[derive(Clone)]
pub(crate) struct ReachedAgent {
    pub(crate) card: Option<A2aCard>,
    /// What the paths of the protocol follow.
    pub(crate) interface: Url,
    pub(crate) streams: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TaskPage {
    tasks: Vec<A2aTask>,
}

/// Text of the other side without what a terminal or a reader could trip over.
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

    /// Reads the card, if there is one, and finds where the agent is spoken to.
    pub(crate) async fn reach(&self) -> Result<ReachedAgent, A2aClientError> {
        let base = &self.address.base;
        let mut places = vec![extended(base, A2A_CARD_PATH)];
        if !base.path().trim_end_matches('/').is_empty() {
            let mut origin = base.clone();
            origin.set_path("");
            places.push(extended(&origin, A2A_CARD_PATH));
        }
        for place in places {
            let response = self.ask(Method::GET, place, None, "application/json", ANSWER).await;
            match response {
                Ok(response) => {
                    let card: A2aCard = self.read(response, MAX_CARD).await?;
                    return self.reached(card);
                }
                // Not every agent with an address of its own has a card there.
                Err(A2aClientError::Refused { status: 400 | 401 | 403 | 404 | 405, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ReachedAgent { card: None, interface: base.clone(), streams: false })
    }

    fn reached(&self, card: A2aCard) -> Result<ReachedAgent, A2aClientError> {
        let base = &self.address.base;
        let streams = card.capabilities.streaming;
        let spoken = |binding: &str| binding.eq_ignore_ascii_case(A2A_BINDING);
        let mut ours =
            card.supported_interfaces.iter().filter(|interface| spoken(&interface.protocol_binding));
        // An address with a path is the interface itself, whatever name the card knows the host by.
        if !base.path().trim_end_matches('/').is_empty() {
            return Ok(ReachedAgent { interface: base.clone(), streams, card: Some(card) });
        }
        let Some(interface) = ours.next() else {
            return Err(A2aClientError::SpeaksOtherwise(format!(
                "the card of {} names no interface for {A2A_BINDING}",
                self.host
            )));
        };
        let shown = visible_line(&interface.url).into_owned();
        let url = Url::parse(&interface.url).ok().filter(|url| self.address.is_same_origin(url));
        let Some(mut url) = url else {
            return Err(A2aClientError::Redirects { host: self.host.clone(), to: shown });
        };
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        url.set_query(None);
        Ok(ReachedAgent { interface: url, streams, card: Some(card) })
    }

    fn at(&self, reached: &ReachedAgent, path: &str) -> Url {
        let tenant = self.address.target.as_ref().map(|target| format!("/{target}")).unwrap_or_default();
        extended(&reached.interface, &format!("{tenant}/{path}"))
    }

    /// Sends a message. When this returns an answer, the message arrived.
    pub(crate) async fn send(
        &self,
        to: &ReachedAgent,
        message: &A2aSendRequest,
    ) -> Result<SendReply, A2aClientError> {
        let path = if to.streams { "message:stream" } else { "message:send" };
        let accept = if to.streams { "text/event-stream" } else { "application/json" };
        let body = serde_json::to_value(message).map_err(|error| unusable(&self.host, error))?;
        let response =
            self.ask(Method::POST, self.at(to, path), Some(body), accept, self.patience(to)).await?;
        if is_stream(&response) {
            return Ok(SendReply::Stream(self.updates(response)));
        }
        self.read(response, MAX_ANSWER).await.map(|one| SendReply::One(Box::new(one)))
    }

    /// How long the head of an answer to a message may take: a server that does not stream may wait for the end of the
    /// task, although it is asked not to.
    fn patience(&self, to: &ReachedAgent) -> Duration {
        if to.streams { ANSWER } else { self.address.timeout }
    }

    pub(crate) async fn task(&self, to: &ReachedAgent, id: &str) -> Result<A2aTask, A2aClientError> {
        let url = self.at(to, &format!("tasks/{}", segment(id)));
        let response = self.ask(Method::GET, url, None, "application/json", ANSWER).await?;
        self.read(response, MAX_ANSWER).await
    }

    pub(crate) async fn cancel(&self, to: &ReachedAgent, id: &str) -> Result<(), A2aClientError> {
        let url = self.at(to, &format!("tasks/{}:cancel", segment(id)));
        self.ask(Method::POST, url, Some(Value::Object(serde_json::Map::new())), "application/json", ANSWER)
            .await
            .map(drop)
    }

    pub(crate) async fn subscribe(&self, to: &ReachedAgent, id: &str) -> Result<Updates, A2aClientError> {
        let url = self.at(to, &format!("tasks/{}:subscribe", segment(id)));
        let body = Some(Value::Object(serde_json::Map::new()));
        let response = self.ask(Method::POST, url, body, "text/event-stream", ANSWER).await?;
        Ok(self.updates(response))
    }

    /// The newest task of a context.
    pub(crate) async fn find(
        &self,
        to: &ReachedAgent,
        context: &str,
    ) -> Result<Option<A2aTask>, A2aClientError> {
        let mut url = self.at(to, "tasks");
        url.query_pairs_mut().append_pair("contextId", context).append_pair("pageSize", "10");
        let response = self.ask(Method::GET, url, None, "application/json", ANSWER).await?;
        let page: TaskPage = self.read(response, MAX_ANSWER).await?;
        Ok(page.tasks.into_iter().find(|task| task.context_id == context))
    }

    async fn ask(
        &self,
        method: Method,
        url: Url,
        body: Option<Value>,
        accept: &str,
        patience: Duration,
    ) -> Result<Response, A2aClientError> {
        let mut request = self.http.request(method, url).header(A2A_VERSION_HEADER, A2A_VERSION);
        request = request.headers(self.address.headers.clone()).header(ACCEPT, accept);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let response = match tokio::time::timeout(patience, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.is_connect() => {
                return Err(A2aClientError::NotReached(self.host.clone()));
            }
            Ok(Err(_)) | Err(_) => return Err(A2aClientError::Broke(self.host.clone())),
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
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            return Err(A2aClientError::Busy(self.host.clone()));
        }
        let body: Value = self.read(response, MAX_CARD).await.unwrap_or_default();
        let error = &body["error"];
        let words = error["message"].as_str().unwrap_or_default();
        let words = shortened(&visible_line(&cleaned(words)), MAX_WORDS).into_owned();
        let reason = error["details"][0]["reason"].as_str().unwrap_or(status.as_str());
        let reason = shortened(&visible_line(reason), 60).into_owned();
        let (host, code) = (self.host.clone(), status.as_u16());
        Err(if status.is_server_error() {
            A2aClientError::Failed { host, status: code, words }
        } else {
            A2aClientError::Refused { host, status: code, reason, words }
        })
    }

    async fn read<T: DeserializeOwned>(&self, response: Response, most: usize) -> Result<T, A2aClientError> {
        let mut bytes = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = tokio::time::timeout(ANSWER, chunks.next())
            .await
            .map_err(|_| A2aClientError::Broke(self.host.clone()))?
        {
            let chunk = chunk.map_err(|_| A2aClientError::Broke(self.host.clone()))?;
            if bytes.len() + chunk.len() > most {
                return Err(unusable(&self.host, format!("it is longer than {most} bytes")));
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
            let broke = || A2aClientError::Broke(self.host.clone());
            let Some(chunk) = tokio::time::timeout(SILENCE, self.bytes.next()).await.map_err(|_| broke())?
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

/// An id of the other side as one part of a path, whatever it holds.
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
        .connect_timeout(CONNECT)
        .pool_max_idle_per_host(0)
        // A key goes to no other host, and a message is not sent by another method.
        .redirect(reqwest::redirect::Policy::none())
        .build()
}
