//! The parts of an active run. Each owns its fields; the modules that act on a part hold the code for it.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::executor::{InferenceExecutionError, LlmExecutor};
use aye_core::contract::hook::HookRan;
use aye_core::contract::ids::SuspensionId;
use aye_core::contract::inference::{InferenceOverride, StreamResult};
use aye_core::contract::judgement::JudgedCall;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::message::Message;
use aye_core::contract::prefix::PrefixRecord;
use aye_core::contract::record::{JobClaim, OutcomeRecord, SuspensionRecord, SuspensionStatus};
use aye_core::contract::sent_request::SentRequest;
use aye_core::contract::tool::ToolDescriptor;
use aye_core::phase::InferenceShape;
use aye_core::run::Fact;
use aye_core::state::{PersistedState, StateKey};

/// Where the events of a run go, and what was emitted of it.
pub(super) struct EventOutput {
    pub(super) sink: Arc<dyn EventSink>,
    /// The code of the last error.
    pub(super) error_code: Option<String>,
    /// When what failed with it may be repeated.
    pub(super) retry_at: Option<u64>,
    /// The shared state as the sink knows it, when it wants it.
    pub(super) shared_state: Option<PersistedState>,
}

impl EventOutput {
    pub(super) fn new(sink: Arc<dyn EventSink>) -> Self {
        Self { sink, error_code: None, retry_at: None, shared_state: None }
    }

    pub(super) async fn emit(&self, event: AgentEvent) {
        self.sink.emit(event).await;
    }

    pub(super) async fn emit_error(&mut self, message: &str, code: Option<&str>) {
        self.error_code = code.map(Into::into);
        self.retry_at = None;
        self.emit(AgentEvent::Error { message: message.into(), code: code.map(Into::into) }).await;
    }

    /// Emits an error that ended an inference, at this time.
    pub(super) async fn emit_failure(&mut self, message: &str, error: &InferenceExecutionError, now: u64) {
        self.emit_error(message, Some(error.code())).await;
        let wait = error.retry_after().map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        self.retry_at = wait.map(|wait| now.saturating_add(wait));
    }
}

/// What came to the questions of a run, and what is still to be done with it.
#[derive(Default)]
pub(super) struct Answers {
    /// Facts from outside, for when all that the last one led to is done: a checkpoint writes the machine as it is, and
    /// the machine must not be ahead of the rows that belong to it.
    pub(super) facts: VecDeque<Fact>,
    /// Questions that expired while the driver was active.
    pub(super) overdue: HashSet<SuspensionId>,
    /// The questions that were closed as expired.
    pub(super) expired: Vec<SuspensionId>,
    /// Questions that were answered or closed and whose renderers have not been notified yet.
    pub(super) settled: Vec<SuspensionId>,
}

impl Answers {
    /// Keeps a fact from outside until the driver takes the next one.
    pub(super) fn add(&mut self, fact: Fact) {
        self.facts.push_back(fact);
    }

    pub(super) fn next_fact(&mut self) -> Option<Fact> {
        self.facts.pop_front()
    }

    pub(super) fn has_no_fact(&self) -> bool {
        self.facts.is_empty()
    }

    pub(super) fn note_expired(&mut self, question: SuspensionId) {
        self.expired.push(question);
    }

    pub(super) fn expired(&self) -> &[SuspensionId] {
        &self.expired
    }

    pub(super) fn note_settled(&mut self, question: SuspensionId) {
        self.settled.push(question);
    }

    /// Takes the questions whose renderers are to be notified now.
    pub(super) fn take_settled(&mut self) -> Vec<SuspensionId> {
        std::mem::take(&mut self.settled)
    }
}

/// The result of an inference.
pub(super) struct Inferred {
    pub(super) outcome: Result<Answered, InferenceExecutionError>,
    pub(super) duration: Duration,
}

/// A whole answer.
pub(super) struct Answered {
    pub(super) result: StreamResult,
    /// The model that gave it.
    pub(super) model: String,
    /// The provider's own word on why it stopped.
    pub(super) stop_detail: Option<String>,
}

/// The text that was shown of an answer that is not complete.
#[derive(Default)]
pub(super) struct Partial {
    text: Mutex<String>,
}

impl Partial {
    pub(super) fn push(&self, delta: &str) {
        self.text.lock().expect("no panic while text is held").push_str(delta);
    }

    pub(super) fn clear(&self) {
        self.text.lock().expect("no panic while text is held").clear();
    }

    pub(super) fn take(&self) -> String {
        std::mem::take(&mut self.text.lock().expect("no panic while text is held"))
    }
}

/// The parameters of the next request to the model, and the last answer.
#[derive(Default)]
pub(super) struct InferenceState {
    /// The overrides that the run was started with.
    pub(super) overrides: InferenceOverride,
    /// The changes that plugins make to the next request.
    pub(super) shape: InferenceShape,
    /// The executor of the model that a plugin chose for the current step.
    pub(super) executor: Option<Arc<dyn LlmExecutor>>,
    /// The text of the answer so far.
    pub(super) partial: Arc<Partial>,
    pub(super) last_response: Option<StreamResult>,
    /// The reason why the last answer ends the run on its own.
    pub(super) ended_early: Option<TerminationReason>,
    /// What the answer to the current request keeps of it.
    pub(super) sent: Option<SentRequest>,
}

/// Rows that the next checkpoint writes.
#[derive(Default)]
pub(super) struct Unsaved {
    pub(super) messages: Vec<Message>,
    /// The start of the conversation's requests, if it was frozen anew.
    pub(super) prefix: Option<PrefixRecord>,
    pub(super) opened: Vec<SuspensionRecord>,
    pub(super) closed: Vec<(SuspensionId, SuspensionStatus)>,
    pub(super) outcomes: Vec<OutcomeRecord>,
    /// Calls judged by the rules; stored with the next write.
    pub(super) judged: Vec<JudgedCall>,
    /// Commands that hooks ran; stored with the next write.
    pub(super) commands: Vec<HookRan>,
    /// The queued message that the run starts with.
    pub(super) takes: Option<JobClaim>,
    /// Whether something changed that only the run's row contains.
    pub(super) run: bool,
}

impl Unsaved {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
            && self.prefix.is_none()
            && self.opened.is_empty()
            && self.closed.is_empty()
            && self.outcomes.is_empty()
            && self.judged.is_empty()
            && self.commands.is_empty()
            && self.takes.is_none()
            && !self.run
    }
}

/// The files kept before a step.
#[derive(Default)]
pub(super) struct StepSnapshot {
    pub(super) step: Option<u32>,
    pub(super) is_all: bool,
    pub(super) files: HashSet<PathBuf>,
}

/// The tools that the client of a run declared.
pub(super) struct ClientTools;

impl StateKey for ClientTools {
    const KEY: &'static str = "runtime.client_tools";
    type Value = Vec<ToolDescriptor>;
    type Update = Vec<ToolDescriptor>;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value = update;
    }
}
