//! Models accessed over an HTTP API.

mod environment;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret;
use tokio::time::Instant;

use super::chat_body::ChatBodies;
use super::classify::ModelEndpoint;
use super::decode::Decoder;
use super::fold::Fold;
use super::http::{Frames, LazyClient};
use super::provider::{ProviderConfig, WireFormat, normalise_base_url};
use super::scripted::whole;
use super::{anthropic_body, convert, gemini_body, http, ollama_body, responses_body};
use aye_core::contract::executor::{
    InferenceExecutionError, InferenceRequest, LlmExecutor, LlmStream, LlmStreamEvent,
};
use aye_core::contract::inference::StreamResult;

/// Requests answers from models over HTTP: chat completions and responses of OpenAI, Anthropic, Gemini,
/// Ollama.
///
/// No connection is made and no client is built before the first request. One executor keeps one connection
/// pool, so share it rather than creating another.
#[derive(Debug)]
pub struct GenaiExecutor {
    /// `None` asks genai for provider, address and key of each model.
    config: Option<ProviderConfig>,
    http: LazyClient,
    chat_bodies: ChatBodies,
}

impl Default for GenaiExecutor {
    fn default() -> Self {
        Self::new()
    }
}

struct Destination {
    origin: ModelEndpoint,
    base: reqwest::Url,
    timeouts: (Duration, Duration),
    answer_timeout: Duration,
}

impl GenaiExecutor {
    /// Takes the provider from the model's name, and key and address from the provider's usual environment variables
    /// (`OPENAI_API_KEY`, `OPENAI_BASE_URL`, ...). This is the convenience of a library; programs with configuration
    /// use [`GenaiExecutor::with`].
    pub fn new() -> Self {
        Self { config: None, http: LazyClient::default(), chat_bodies: ChatBodies::default() }
    }

    /// Asks one provider. Reads nothing from the environment.
    pub fn with(config: ProviderConfig) -> Self {
        Self { config: Some(config), ..Self::new() }
    }

    /// Returns the destination of a request, and the model's name there.
    async fn target(&self, model: &str) -> Result<(Destination, String), InferenceExecutionError> {
        let Some(config) = &self.config else { return self.environment(model).await };
        let base = config.base_url.as_deref().unwrap_or(config.adapter.default_base_url());
        let base = normalise_base_url(config.adapter, base).map_err(|problem| {
            InferenceExecutionError::InvalidRequest(format!("base_url of {}: {problem}", config.name))
        })?;
        let origin = ModelEndpoint {
            provider: config.name.clone(),
            adapter: config.adapter,
            model: model.to_owned(),
            base_url: shown_url(&base),
            key: config.api_key.clone(),
        };
        // A custom server may need no key; the official ones always do, and a request without a key only
        // wastes time.
        if origin.key.is_none() && config.base_url.is_none() && config.adapter != WireFormat::Ollama {
            return Err(origin.no_key());
        }
        Ok((
            Destination {
                origin,
                base,
                timeouts: (config.header_timeout, config.read_timeout),
                answer_timeout: config.answer_timeout,
            },
            model.to_owned(),
        ))
    }

    /// The address and the body of a request.
    fn body(
        &self,
        request: &InferenceRequest,
        origin: &ModelEndpoint,
        base: &reqwest::Url,
    ) -> Result<(reqwest::Url, Vec<u8>), InferenceExecutionError> {
        let (url, body) = match origin.adapter {
            WireFormat::OpenAi => {
                (endpoint(base, "chat/completions"), self.chat_bodies.build(request, origin))
            }
            WireFormat::Ollama => {
                let window = self.config.as_ref().and_then(|config| config.context_window);
                let body = ollama_body::build(&convert::prepare(request), request, window);
                (endpoint(base, "api/chat"), body)
            }
            WireFormat::OpenAiResponses => {
                let body = responses_body::build(&convert::prepare(request), request);
                (endpoint(base, "responses"), serde_json::to_vec(&body))
            }
            WireFormat::Anthropic => {
                let body = anthropic_body::build(&convert::prepare(request), request);
                (endpoint(base, "messages"), serde_json::to_vec(&body))
            }
            WireFormat::Gemini => {
                let mut url = endpoint(base, &gemini_body::path(request.wire_model()));
                url.query_pairs_mut().append_pair("alt", "sse");
                (url, serde_json::to_vec(&gemini_body::build(&convert::prepare(request), request)))
            }
        };
        let body = body.map_err(|error| InferenceExecutionError::InvalidRequest(error.to_string()))?;
        Ok((url, body))
    }

    async fn start(&self, mut request: InferenceRequest) -> Result<Answering, InferenceExecutionError> {
        let (target, name) = self.target(request.wire_model()).await?;
        let answered_by = std::mem::take(&mut request.model);
        let fold = Fold::new(answered_by.clone(), Arc::clone(&request.messages));
        request.model = answered_by;
        request.upstream_model = name;
        let Destination { origin, base, timeouts, answer_timeout } = target;
        let ends_at = Instant::now() + answer_timeout;
        let client = self.http.get(&origin, Some(&base))?;
        let send = async || {
            let (url, body) = self.body(&request, &origin, &base)?;
            http::send(&client, url, headers(&origin)?, body, timeouts, origin.clone()).await
        };
        let frames = match send().await {
            Err(InferenceExecutionError::Rejected(why))
                if why.contains("stream_options") && self.chat_bodies.omit_stream_options() =>
            {
                send().await
            }
            sent => sent,
        };
        Ok(Answering {
            frames: Some(frames?),
            decoder: Decoder::new(origin.clone()),
            fold,
            origin,
            ends_at,
            answer_timeout,
            over: false,
        })
    }
}

/// Returns a URL that is safe to show: without user, password and query, which may contain keys.
fn shown_url(url: &reqwest::Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    // Both only fail for addresses without a host, which were refused.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    url.to_string()
}

fn endpoint(base: &reqwest::Url, path: &str) -> reqwest::Url {
    let mut url = base.clone();
    let path = format!("{}{path}", base.path());
    url.set_path(&path);
    url
}

fn headers(origin: &ModelEndpoint) -> Result<HeaderMap, InferenceExecutionError> {
    let mut headers = HeaderMap::new();
    let accepted = match origin.adapter {
        WireFormat::Ollama => "application/x-ndjson",
        _ => "text/event-stream",
    };
    headers.insert(ACCEPT, HeaderValue::from_static(accepted));
    if origin.adapter == WireFormat::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static(anthropic_body::VERSION));
    }
    if let Some(key) = &origin.key {
        let (name, prefix) = match origin.adapter {
            WireFormat::Gemini => (HeaderName::from_static("x-goog-api-key"), ""),
            WireFormat::Anthropic => (HeaderName::from_static("x-api-key"), ""),
            _ => (AUTHORIZATION, "Bearer "),
        };
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", key.expose_secret())).map_err(|_| {
            InferenceExecutionError::Unauthorized(format!(
                "the key of {} contains characters that cannot be sent",
                origin.provider
            ))
        })?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// The time a connection has to finish an answer after its last word was read, so that the connection can be
/// reused.
const LAST_BYTES: Duration = Duration::from_secs(1);
/// The longest wait for the next piece after a stop reason, if only the end of the stream shows that the
/// answer is complete: not every server closes the connection.
const LAST_WORD: Duration = Duration::from_secs(10);

/// One answer that comes in.
struct Answering {
    /// There until it is dropped.
    frames: Option<Frames>,
    decoder: Decoder,
    fold: Fold,
    origin: ModelEndpoint,
    /// When the whole answer has to be there.
    ends_at: Instant,
    answer_timeout: Duration,
    over: bool,
}

impl Answering {
    async fn next(&mut self) -> Option<Result<LlmStreamEvent, InferenceExecutionError>> {
        loop {
            if let Some(event) = self.fold.next_event() {
                return Some(Ok(event));
            }
            if self.over || self.fold.is_finished() {
                return None;
            }
            if let Err(error) = self.step().await {
                self.over = true;
                return Some(Err(error));
            }
        }
    }

    async fn step(&mut self) -> Result<(), InferenceExecutionError> {
        let Some(frames) = &mut self.frames else { return Ok(()) };
        let awaits_end = self.decoder.awaits_end(&self.fold);
        let until = if awaits_end { self.ends_at.min(Instant::now() + LAST_WORD) } else { self.ends_at };
        let Ok(next) = tokio::time::timeout_at(until, frames.next()).await else {
            self.over = true;
            return if self.decoder.end(&mut self.fold)? {
                Ok(())
            } else {
                Err(self.origin.too_slow(self.answer_timeout))
            };
        };
        match next {
            Ok(Some(frame)) => self.decoder.frame(&frame, &mut self.fold),
            Ok(None) => {
                self.over = true;
                if self.decoder.end(&mut self.fold)? { Ok(()) } else { Err(self.origin.cut()) }
            }
            // A connection that breaks after the last word takes nothing away.
            Err(error) => {
                if self.decoder.end(&mut self.fold)? {
                    Ok(())
                } else {
                    Err(error)
                }
            }
        }
    }
}

impl Drop for Answering {
    /// Reads the rest of the stream after the last word of an answer, which contains nothing of interest: a
    /// connection dropped before its end is closed, and the next request would pay for a new one, with its
    /// TLS.
    fn drop(&mut self) {
        if self.over || !self.fold.is_finished() {
            return;
        }
        if let (Some(mut frames), Ok(runtime)) = (self.frames.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(LAST_BYTES, async move {
                while let Ok(Some(_)) = frames.next().await {}
            }));
        }
    }
}

#[async_trait]
impl LlmExecutor for GenaiExecutor {
    async fn execute(&self, request: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        whole(self.execute_stream(request).await?).await
    }

    async fn execute_stream(&self, request: InferenceRequest) -> Result<LlmStream, InferenceExecutionError> {
        let answering = self.start(request).await?;
        Ok(futures::stream::unfold(answering, |mut answering| async move {
            let event = answering.next().await?;
            Some((event, answering))
        })
        .boxed())
    }

    fn name(&self) -> &str {
        self.config.as_ref().map_or("genai", |config| &config.name)
    }
}
