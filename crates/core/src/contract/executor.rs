//! The interface to models, and how the calls of a step are executed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use super::content::ContentBlock;
use super::error_code::ErrorCode;
use super::inference::{InferenceOverride, StreamResult};
use super::message::{Message, MessagePart, parts_of};
use super::tool_descriptor::ToolDescriptor;

/// The order in which the calls of one step run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolExecutionMode {
    /// One at a time, in order; the calls after a question wait for it.
    #[default]
    Sequential,
    /// All at once; answered calls start when every question of the step is answered.
    ParallelBatchApproval,
    /// All at once; an answered call starts at once.
    ParallelStreaming,
}

/// When a decided call of a step starts while others of the step still wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionReplayPolicy {
    /// As soon as the call's own decision is made.
    Immediate,
    /// When every pending question of the step is decided.
    BatchAllSuspended,
}

impl ToolExecutionMode {
    /// Returns when decided calls start. In sequential execution, there is no other call to wait for.
    pub fn decision_replay_policy(self) -> DecisionReplayPolicy {
        match self {
            Self::Sequential | Self::ParallelStreaming => DecisionReplayPolicy::Immediate,
            Self::ParallelBatchApproval => DecisionReplayPolicy::BatchAllSuspended,
        }
    }
}

/// One request to a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferenceRequest {
    /// The registered model id.
    pub model: String,
    /// The provider's name of the model; empty means the id.
    pub upstream_model: String,
    /// System text, in order. Byte-stable from step to step, so that prompt caches hold.
    pub system: Vec<ContentBlock>,
    /// The conversation; no unpaired call and no unpaired result in it. The list is shared with the
    /// conversation where all of it is sent.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// The tools on offer, in a stable order.
    pub tools: Vec<ToolDescriptor>,
    pub overrides: InferenceOverride,
    /// Whether to set cache marks.
    pub enable_prompt_cache: bool,
}

impl InferenceRequest {
    /// The name that goes over the wire.
    pub fn wire_model(&self) -> &str {
        if self.upstream_model.is_empty() { &self.model } else { &self.upstream_model }
    }
}

/// An event of a model's answer, in order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub enum LlmStreamEvent {
    TextDelta(String),
    ReasoningDelta(String),
    /// Thoughts that only the provider can read.
    ReasoningEncrypted(String),
    ToolCallStart {
        /// Its id: unique in this answer.
        id: String,
        name: String,
    },
    /// More of a call's arguments, as JSON text.
    ToolCallDelta {
        id: String,
        args_delta: String,
    },
    /// The provider's own word on why it stopped, where the reason in [`StreamResult`] is too general.
    StopDetail(String),
    /// An attempt failed and another one follows after a delay.
    Retrying {
        /// 1 is the first repetition.
        attempt: u32,
        /// The maximum number of retries.
        max: u32,
        /// The delay before the retry.
        delay: Duration,
        /// The model of the next attempt.
        model: String,
        reason: String,
        /// Everything that was streamed so far is withdrawn.
        reset: bool,
    },
    /// The end: always the last event, and nothing before it was an error.
    Finish {
        result: StreamResult,
        /// The model that gave it.
        model: String,
    },
}

/// The code of [`InferenceExecutionError::Paused`].
pub const CODE_PAUSED: &str = ErrorCode::Paused.as_str();

/// Why an inference failed. Two causes share a variant when the caller does the same about both.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InferenceExecutionError {
    /// The provider said no for another reason; asking again may help.
    #[error("{0}")]
    Provider(String),
    #[error("{message}")]
    RateLimited {
        message: String,
        /// The delay that the provider requests.
        retry_after: Option<Duration>,
    },
    /// The provider is overloaded or down (5xx).
    #[error("{message}")]
    Unavailable {
        message: String,
        /// The delay that the provider requests.
        retry_after: Option<Duration>,
    },
    /// The model failed so often that nothing is sent to it for a while: no request was made.
    #[error("{message}")]
    Paused {
        /// Which model, and why it failed last.
        message: String,
        /// The time until it may be asked again.
        retry_after: Duration,
    },
    /// No connection, or it broke before or in the answer.
    #[error("{0}")]
    Network(String),
    /// Nothing came for too long.
    #[error("{0}")]
    Timeout(String),
    /// The answer took longer than a whole answer may take; another one would take as long.
    #[error("{0}")]
    TooSlow(String),
    /// The key is missing, wrong, or not allowed to do this; asking again does not help.
    #[error("{0}")]
    Unauthorized(String),
    /// The request itself is refused; asking again does not help.
    #[error("{0}")]
    InvalidRequest(String),
    /// The provider refuses the request (400) for a reason that is not recognised, which may be its length; asking again
    /// does not help.
    #[error("{0}")]
    Rejected(String),
    /// The provider refuses thoughts in the conversation, because something before them is not what it was.
    #[error("{0}")]
    BoundThoughts(String),
    /// The conversation is longer than the model's window.
    #[error("{0}")]
    ContextOverflow(String),
    /// The caller gave up.
    #[error("cancelled")]
    Cancelled,
}

impl InferenceExecutionError {
    /// Returns whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Provider(_)
            | Self::RateLimited { .. }
            | Self::Unavailable { .. }
            | Self::Paused { .. }
            | Self::Network(_)
            | Self::Timeout(_) => true,
            Self::TooSlow(_)
            | Self::Unauthorized(_)
            | Self::InvalidRequest(_)
            | Self::Rejected(_)
            | Self::BoundThoughts(_)
            | Self::ContextOverflow(_)
            | Self::Cancelled => false,
        }
    }

    /// Returns the time until the request may be repeated, if the provider or a pause names one.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. } | Self::Unavailable { retry_after, .. } => *retry_after,
            Self::Paused { retry_after, .. } => Some(*retry_after),
            Self::Provider(_)
            | Self::Network(_)
            | Self::Timeout(_)
            | Self::TooSlow(_)
            | Self::Unauthorized(_)
            | Self::InvalidRequest(_)
            | Self::Rejected(_)
            | Self::BoundThoughts(_)
            | Self::ContextOverflow(_)
            | Self::Cancelled => None,
        }
    }

    /// A short name for events and logs.
    pub fn code(&self) -> &'static str {
        self.error_code().as_str()
    }

    fn error_code(&self) -> ErrorCode {
        match self {
            Self::Provider(_) => ErrorCode::Provider,
            Self::RateLimited { .. } => ErrorCode::RateLimited,
            Self::Unavailable { .. } => ErrorCode::Unavailable,
            Self::Paused { .. } => ErrorCode::Paused,
            Self::Network(_) => ErrorCode::Network,
            Self::Timeout(_) | Self::TooSlow(_) => ErrorCode::Timeout,
            Self::Unauthorized(_) => ErrorCode::Unauthorized,
            Self::InvalidRequest(_) | Self::Rejected(_) | Self::BoundThoughts(_) => ErrorCode::InvalidRequest,
            Self::ContextOverflow(_) => ErrorCode::ContextOverflow,
            Self::Cancelled => ErrorCode::Cancelled,
        }
    }
}

/// The stream of one answer. It ends after `Finish` or after the first error, whichever comes first; a stream that
/// ends without either was cut, which its maker reports as [`InferenceExecutionError::Network`].
pub type LlmStream = BoxStream<'static, Result<LlmStreamEvent, InferenceExecutionError>>;

/// A model provider. Dropping a stream or a future cancels the request.
#[async_trait]
pub trait LlmExecutor: Send + Sync {
    /// Asks once and waits for the whole answer.
    async fn execute(&self, request: InferenceRequest) -> Result<StreamResult, InferenceExecutionError>;

    /// Asks once and streams the answer. By default the whole answer comes as one piece.
    async fn execute_stream(&self, request: InferenceRequest) -> Result<LlmStream, InferenceExecutionError> {
        let model = request.model.clone();
        let result = self.execute(request).await?;
        Ok(futures::stream::iter(pieces_of(result, model).into_iter().map(Ok)).boxed())
    }

    /// A name for logs.
    fn name(&self) -> &str;
}

/// A whole answer as the events it would have streamed.
pub fn pieces_of(result: StreamResult, model: String) -> Vec<LlmStreamEvent> {
    let mut events = Vec::new();
    for part in parts_of(&result.content, &result.tool_calls) {
        match part {
            MessagePart::Block(ContentBlock::Text { text }) if !text.is_empty() => {
                events.push(LlmStreamEvent::TextDelta(text.clone()));
            }
            MessagePart::Block(ContentBlock::Thinking { thinking, .. }) if !thinking.is_empty() => {
                events.push(LlmStreamEvent::ReasoningDelta(thinking.clone()));
            }
            MessagePart::Block(_) => {}
            MessagePart::Call(call) => {
                events.push(LlmStreamEvent::ToolCallStart { id: call.id.clone(), name: call.name.clone() });
                events.push(LlmStreamEvent::ToolCallDelta {
                    id: call.id.clone(),
                    args_delta: call.arguments.to_string(),
                });
            }
        }
    }
    events.push(LlmStreamEvent::Finish { result, model });
    events
}
