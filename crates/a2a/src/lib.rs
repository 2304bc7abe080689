//! Remote agents over A2A v1.0, with HTTP and JSON.
//!
//! A call of a remote agent is served by a child run whose inferences are exchanges with the agent (`exchange.rs`). What
//! was sent, and which task it started, is recorded before and after each request (`note.rs`), so that a crash on either
//! side loses nothing and sends nothing twice. Everything that the other side says is limited in size, and marked as its
//! words.

mod address;
mod answer;
mod client;
mod exchange;
mod note;
mod question;
mod turn;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aye_core::contract::display::shortened;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::executor::{InferenceRequest, LlmStreamEvent};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::message::Message;
use aye_core::contract::profile::ProfileStore;
use aye_core::contract::spec::{AgentSpec, RemoteEndpoint};
use aye_runtime::{
    AgentBackend, AgentBackendError, DelegateRunResult, DelegateRunStatus, DiscoveryError, RemoteConversation,
};
use futures::StreamExt as _;

pub use address::{EndpointError, check_endpoint};

use client::A2aClient;
use exchange::Exchanges;
use note::TaskNotes;

/// Replaces variables such as `${TOKEN}` in a text; the error says what is missing.
pub type FillVariables = Arc<dyn Fn(&str) -> Result<String, EndpointError> + Send + Sync>;

/// Maximum characters of the description in a card.
const MAX_DESCRIPTION: usize = 300;

/// Delegates to agents over A2A. Register it as `a2a`.
#[derive(Clone)]
pub struct A2aBackend {
    fill: FillVariables,
    delay: RetryDelay,
}

/// The delay between two attempts.
#[derive(Clone, Copy, Debug)]
struct RetryDelay {
    first: Duration,
    max: Duration,
}

impl RetryDelay {
    const DEFAULT: Self = Self { first: Duration::from_millis(250), max: Duration::from_secs(8) };

    /// Waits before another attempt, longer after each one.
    async fn wait(&self, tries: u32) {
        let delay = self.first.saturating_mul(1 << tries.min(10)).min(self.max);
        tokio::time::sleep(delay).await;
    }
}

impl Default for A2aBackend {
    fn default() -> Self {
        Self { fill: Arc::new(|text| Ok(text.to_owned())), delay: RetryDelay::DEFAULT }
    }
}

impl A2aBackend {
    /// Creates a backend that uses keys as they are written in the endpoints.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces variables in keys and headers right before they are sent.
    #[must_use]
    pub fn with_variables(mut self, fill: FillVariables) -> Self {
        self.fill = fill;
        self
    }

    fn exchanges(&self, spec: &AgentSpec, notes: TaskNotes) -> Option<Exchanges> {
        let endpoint = spec.endpoint.clone()?;
        Some(Exchanges::new(spec.id.clone(), endpoint, Arc::clone(&self.fill), notes, self.delay))
    }
}

#[async_trait]
impl AgentBackend for A2aBackend {
    /// Fails: only a child run knows the endpoint.
    async fn execute(
        &self,
        agent_id: &str,
        _messages: Vec<Message>,
        _event_sink: Arc<dyn EventSink>,
        _parent_run_id: Option<String>,
        _parent_tool_call_id: Option<String>,
    ) -> Result<DelegateRunResult, AgentBackendError> {
        let why = format!("`{agent_id}` is reached over A2A: delegate to it, or use `A2aAgent`");
        Err(AgentBackendError::ExecutionFailed(why))
    }

    fn serves_runs(&self) -> bool {
        true
    }

    fn conversation(
        &self,
        spec: &AgentSpec,
        thread: &ThreadId,
        notes: Arc<dyn ProfileStore>,
    ) -> Option<Arc<dyn RemoteConversation>> {
        Some(Arc::new(self.exchanges(spec, TaskNotes::stored(notes, thread))?))
    }

    async fn discover(&self, agent: &str, endpoint: &RemoteEndpoint) -> Result<AgentSpec, DiscoveryError> {
        // Without a user name or key before the host.
        let scheme = endpoint.base_url.split_once("://").map_or("", |(scheme, _)| scheme);
        let failed = |message: String| DiscoveryError {
            agent: agent.to_owned(),
            url: format!("{scheme}://{}", endpoint.host()),
            message,
        };
        let client = A2aClient::new(endpoint, &self.fill).map_err(|error| failed(error.to_string()))?;
        let found = client.discover().await.map_err(|error| failed(error.to_string()))?;
        let Some(card) = found.card else { return Err(failed("it has no agent card".into())) };
        let about = client::cleaned(&card.description).replace('\n', " ");
        let about = shortened(about.trim(), MAX_DESCRIPTION).into_owned();
        let mut spec = AgentSpec::new(agent).with_endpoint(endpoint.clone());
        if !about.is_empty() {
            // A description from outside reaches the model as a quotation.
            spec.description =
                Some(format!("an agent at {}, in its own words: \"{about}\"", endpoint.host()));
        }
        Ok(spec)
    }
}

/// Calls one agent at an endpoint without a runtime. A question of the agent ends the call, because only a run can ask it.
pub struct A2aAgent {
    backend: A2aBackend,
    endpoint: RemoteEndpoint,
}

impl A2aAgent {
    /// Creates the backend of the agent at this endpoint.
    pub fn new(backend: A2aBackend, endpoint: RemoteEndpoint) -> Self {
        Self { backend, endpoint }
    }
}

#[async_trait]
impl AgentBackend for A2aAgent {
    async fn execute(
        &self,
        agent_id: &str,
        messages: Vec<Message>,
        event_sink: Arc<dyn EventSink>,
        _parent_run_id: Option<String>,
        _parent_tool_call_id: Option<String>,
    ) -> Result<DelegateRunResult, AgentBackendError> {
        let failed = |error: String| AgentBackendError::ExecutionFailed(error);
        let spec = AgentSpec::new(agent_id).with_endpoint(self.endpoint.clone());
        let Some(exchanges) = self.backend.exchanges(&spec, TaskNotes::in_memory()) else {
            return Err(failed("it has no endpoint".into()));
        };
        let messages = Arc::new(messages.into_iter().map(Arc::new).collect());
        let request = InferenceRequest { messages, ..InferenceRequest::default() };
        let mut events =
            exchanges.executor().execute_stream(request).await.map_err(|error| failed(error.to_string()))?;
        let (mut status, mut response) = (DelegateRunStatus::Completed, String::new());
        while let Some(event) = events.next().await {
            match event {
                Ok(LlmStreamEvent::TextDelta(delta)) => {
                    event_sink.emit(AgentEvent::TextDelta { delta }).await;
                }
                Ok(LlmStreamEvent::Finish { result, .. }) => {
                    response = result.text();
                    if let Some(call) = result.tool_calls.first() {
                        let asked = call.arguments["question"].as_str().unwrap_or_default();
                        status = DelegateRunStatus::Failed(format!("it asks: {asked}"));
                        exchanges.cancel().await;
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    exchanges.cancel().await;
                    status = DelegateRunStatus::Failed(error.to_string());
                }
            }
        }
        Ok(DelegateRunResult {
            agent_id: agent_id.to_owned(),
            status,
            response: Some(response).filter(|text| !text.is_empty()),
            steps: 1,
        })
    }
}
