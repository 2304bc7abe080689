//! The driver: does what the machine asks, in order, and reports what happened as the next facts.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};

use super::document::{CallResult, FORMAT, RunDocument, tool_message};
use super::infer::{Inferred, Partial};
use super::live::Slot;
use super::output::CallSink;
use super::request::{AgentRunResult, RuntimeError};
use super::resolve::ResolvedAgent;
use super::{Shared, words};
use crate::contract::event::AgentEvent;
use crate::contract::event_sink::EventSink;
use crate::contract::identity::{RunIdentity, RunOrigin};
use crate::contract::ids::{CallId, MessageId, SuspensionId};
use crate::contract::inference::{InferenceOverride, StreamResult};
use crate::contract::lifecycle::{RunStatus, TerminationReason, ToolCallOutcome, ToolCallStatus};
use crate::contract::message::{Message, Role, ToolCall};
use crate::contract::record::{
    Checkpoint, Fence, OutcomeKind, OutcomeRecord, RunRecord, SuspensionRecord, SuspensionStatus,
};
use crate::contract::suspension::{SuspendTicket, ToolCallResume};
use crate::contract::tool::{ToolError, ToolOutput, ToolResult};
use crate::phase::{InferenceShape, PhaseContext, PhaseReport, PhaseRuntime, RunProgress};
use crate::run::{CallState, Closing, Directive, Fact, Notice, Run, Stage};
use crate::state::{KeyScope, PersistedState, Phase, StateStore, UnknownKeyPolicy};
use crate::store::StoreError;

/// How long tools may take to end after a cancel before they are dropped.
const ABORT_GRACE: Duration = Duration::from_secs(4);

/// What is in flight came back.
pub(super) enum Done {
    Inferred(Box<Inferred>),
    Executed { call: CallId, output: Result<ToolOutput, ToolError> },
}

/// Rows that the next checkpoint writes.
#[derive(Default)]
struct Unsaved {
    messages: Vec<Message>,
    opened: Vec<SuspensionRecord>,
    closed: Vec<(SuspensionId, SuspensionStatus)>,
    outcomes: Vec<OutcomeRecord>,
    /// Something that only the run's row holds.
    run: bool,
}

impl Unsaved {
    fn is_empty(&self) -> bool {
        self.messages.is_empty()
            && self.opened.is_empty()
            && self.closed.is_empty()
            && self.outcomes.is_empty()
            && !self.run
    }
}

/// A run as it is about to be driven.
pub(super) struct Loaded {
    record: RunRecord,
    machine: Run,
    calls: Vec<ToolCall>,
    results: Vec<CallResult>,
    recorded: bool,
    message_id: MessageId,
    messages: Vec<Message>,
}

impl Loaded {
    /// A new run that begins with these messages.
    pub(super) fn fresh(record: RunRecord, machine: Run, messages: Vec<Message>) -> Self {
        Self {
            record,
            machine,
            calls: Vec::new(),
            results: Vec::new(),
            recorded: false,
            message_id: MessageId::fresh(),
            messages,
        }
    }

    /// A run from the store.
    pub(super) fn stored(record: RunRecord, document: RunDocument) -> Self {
        let RunDocument { format: _, machine, calls, results, recorded, message_id } = document;
        Self { record, machine, calls, results, recorded, message_id, messages: Vec::new() }
    }
}

/// One run that is awake.
pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) fence: Fence,
    pub(super) slot: Slot,
    pub(super) sink: Arc<dyn EventSink>,
    pub(super) agent: ResolvedAgent,
    pub(super) overrides: InferenceOverride,
    pub(super) identity: RunIdentity,
    pub(super) record: RunRecord,
    pub(super) machine: Run,
    pub(super) message_id: MessageId,
    pub(super) calls: Vec<ToolCall>,
    pub(super) results: Vec<CallResult>,
    recorded: bool,
    /// Decisions that are being applied, by call, until their call is closed or runs.
    decisions_in_hand: HashMap<CallId, ToolCallResume>,
    /// What a dead process's calls had printed, by call: nobody here knows how they ended.
    lost: HashMap<CallId, String>,
    /// The question a call asked last, for closing its row and for the card.
    tickets: HashMap<CallId, SuspendTicket>,
    pub(super) state: StateStore,
    pub(super) phases: PhaseRuntime,
    pub(super) history: Vec<Message>,
    history_shared: Option<Arc<[Message]>>,
    pub(super) shape: InferenceShape,
    unsaved: Unsaved,
    pub(super) in_flight: FuturesUnordered<BoxFuture<'static, Done>>,
    pub(super) outputs: HashMap<CallId, Arc<CallSink>>,
    pub(super) partial: Arc<Partial>,
    last_response: Option<StreamResult>,
    error_code: Option<String>,
    awake_since: u64,
    saved_thread_state: BTreeMap<String, Value>,
}

impl Driver {
    pub(super) async fn new(
        shared: Arc<Shared>,
        fence: Fence,
        slot: Slot,
        sink: Arc<dyn EventSink>,
        agent: ResolvedAgent,
        overrides: InferenceOverride,
        loaded: Loaded,
    ) -> Result<Self, RuntimeError> {
        let Loaded { record, machine, calls, results, recorded, message_id, messages } = loaded;
        let state = StateStore::new();
        let phases = PhaseRuntime::new(state.clone())?;
        phases.install(&agent.env)?;
        for key in &shared.keys {
            state.register(*key)?;
        }
        let saved_thread_state = shared.store.thread_state(&record.thread_id).await?;
        let persisted = PersistedState {
            revision: 0,
            values: saved_thread_state.clone().into_iter().chain(record.state.clone()).collect(),
        };
        // A key of a plugin that is gone is left out; it stays in the store until the thread's state is next written.
        state.restore(persisted, UnknownKeyPolicy::Skip)?;
        let stored = shared.store.messages(&record.thread_id).await?;
        let mut history: Vec<Message> = stored.into_iter().map(|m| m.message).collect();
        history.extend(messages.iter().cloned());
        let tickets = machine
            .calls()
            .iter()
            .filter_map(|call| Some((call.id.clone(), call.ticket()?.clone())))
            .collect();
        let identity = RunIdentity::new(
            record.thread_id.clone(),
            None,
            record.id.clone(),
            record.parent_run_id.clone(),
            record.agent_id.clone(),
            RunOrigin::User,
        );
        let awake_since = shared.clock.now_ms();
        let driver = Self {
            shared,
            fence,
            slot,
            sink,
            overrides,
            identity,
            record,
            machine,
            message_id,
            calls,
            results,
            recorded,
            decisions_in_hand: HashMap::new(),
            lost: HashMap::new(),
            tickets,
            state,
            phases,
            history,
            history_shared: None,
            shape: InferenceShape::default(),
            unsaved: Unsaved { messages, run: true, ..Unsaved::default() },
            in_flight: FuturesUnordered::new(),
            outputs: HashMap::new(),
            partial: Arc::default(),
            last_response: None,
            error_code: None,
            awake_since,
            saved_thread_state,
            agent,
        };
        driver.phases.activate(&driver.agent.env, &driver.agent.spec)?;
        Ok(driver)
    }

    /// Notes which calls a dead process left, for a run that is ended and not taken up again.
    pub(super) async fn note_lost(&mut self) -> Result<(), RuntimeError> {
        let open = self.shared.store.open_intents(&self.record.id).await?;
        self.lost = open.into_iter().map(|o| (o.intent.id.call_id, o.output)).collect();
        Ok(())
    }

    pub(super) fn into_slot(self) -> Slot {
        self.slot.renew()
    }

    pub(super) fn apply(&mut self, fact: Fact) -> Result<Vec<Directive>, RuntimeError> {
        tracing::debug!(run = %self.record.id, ?fact, "fact");
        self.machine.apply(fact).map_err(|e| RuntimeError::Internal(format!("run {}: {e}", self.record.id)))
    }

    /// Takes a fact that may have been overtaken: a refusal is the machine's right, and nothing changes.
    pub(super) fn try_apply(&mut self, fact: Fact) -> Vec<Directive> {
        if let Fact::Decided { call, decision, .. } = &fact {
            self.decisions_in_hand.insert(call.clone(), decision.clone());
        }
        match self.machine.apply(fact) {
            Ok(directives) => directives,
            Err(refused) => {
                tracing::info!(run = %self.record.id, %refused, "late");
                Vec::new()
            }
        }
    }

    /// Drives until the run is over or only answers can move it.
    pub(super) async fn drive(&mut self, first: Vec<Directive>) -> Result<(), RuntimeError> {
        let mut directives = VecDeque::from(first);
        let mut facts = VecDeque::new();
        let mut cancelled = false;
        loop {
            while let Some(directive) = directives.pop_front() {
                if let Some(fact) = self.perform(directive).await? {
                    facts.push_back(fact);
                }
            }
            if let Some(fact) = facts.pop_front() {
                directives.extend(self.apply(fact)?);
                continue;
            }
            if !cancelled && self.slot.cancel.is_cancelled() {
                cancelled = true;
                directives.extend(self.apply(Fact::CancelRequested { superseded: false })?);
                continue;
            }
            if self.in_flight.is_empty() {
                // Answers that arrived while something else was done.
                while let Ok(delivery) = self.slot.deliveries.try_recv() {
                    let fact = Fact::Decided {
                        call: delivery.call,
                        suspension: delivery.suspension,
                        decision: delivery.resume,
                    };
                    directives.extend(self.try_apply(fact));
                }
                if directives.is_empty() {
                    return match self.machine.status() {
                        RunStatus::Done | RunStatus::Waiting => Ok(()),
                        RunStatus::Running => {
                            Err(RuntimeError::Internal(format!("run {} stands still", self.record.id)))
                        }
                    };
                }
                continue;
            }
            tokio::select! {
                biased;
                () = self.slot.cancel.cancelled(), if !cancelled => {}
                Some(delivery) = self.slot.deliveries.recv() => {
                    let fact = Fact::Decided {
                        call: delivery.call,
                        suspension: delivery.suspension,
                        decision: delivery.resume,
                    };
                    directives.extend(self.try_apply(fact));
                }
                Some(done) = self.in_flight.next() => {
                    if let Some(fact) = self.returned(done).await? {
                        facts.push_back(fact);
                    }
                }
            }
        }
    }

    async fn perform(&mut self, directive: Directive) -> Result<Option<Fact>, RuntimeError> {
        match directive {
            Directive::RunPhase(phase) => Ok(Some(self.run_phase(phase).await)),
            Directive::Infer => {
                self.infer();
                Ok(None)
            }
            Directive::Gate { call, resume } => Ok(Some(self.gate(call, resume).await?)),
            Directive::Checkpoint { intent: None } => {
                self.checkpoint().await?;
                Ok(None)
            }
            Directive::Checkpoint { intent: Some(call) } => {
                self.begin(&call).await?;
                Ok(None)
            }
            Directive::Execute { call } => {
                self.execute(&call);
                Ok(None)
            }
            Directive::Record { call, closing } => {
                self.close(&call, &closing);
                Ok(None)
            }
            Directive::AbortInFlight => {
                self.abort().await;
                Ok(None)
            }
            Directive::Emit(notice) => {
                self.announce(notice).await;
                Ok(None)
            }
        }
    }

    async fn returned(&mut self, done: Done) -> Result<Option<Fact>, RuntimeError> {
        match done {
            Done::Inferred(inferred) => self.inferred(*inferred).await.map(Some),
            Done::Executed { call, output } => self.executed(call, output).await.map(Some),
        }
    }

    pub(super) fn context(&mut self, phase: Phase) -> PhaseContext {
        let messages =
            Arc::clone(self.history_shared.get_or_insert_with(|| Arc::from(self.history.as_slice())));
        let progress = RunProgress {
            steps: self.machine.steps(),
            usage: self.record.usage,
            active: Duration::from_millis(self.active_ms()),
        };
        let mut ctx = PhaseContext::new(phase, self.identity.clone(), Arc::clone(&self.agent.spec))
            .with_snapshot(self.state.snapshot())
            .with_messages(messages)
            .with_progress(progress)
            .with_cancellation(self.slot.cancel.clone());
        ctx.response.clone_from(&self.last_response);
        ctx
    }

    fn active_ms(&self) -> u64 {
        self.record.active_ms + self.shared.clock.now_ms().saturating_sub(self.awake_since)
    }

    pub(super) fn say(&mut self, message: Message) {
        self.history_shared = None;
        self.history.push(message.clone());
        self.unsaved.messages.push(message);
    }

    async fn run_phase(&mut self, phase: Phase) -> Fact {
        let ctx = self.context(phase);
        let report: Result<PhaseReport, _> = self.phases.run_phase(&self.agent.env, ctx).await;
        match report {
            Ok(report) => {
                let mut stop = report.stop;
                if phase == Phase::BeforeInference {
                    self.shape = report.inference;
                }
                if phase == Phase::StepEnd && stop.is_none() {
                    stop = self.rounds_used_up();
                }
                Fact::PhaseDone { phase, stop: stop.filter(|_| phase != Phase::RunEnd) }
            }
            Err(error) if phase == Phase::RunEnd => {
                // The run is over whatever its last hooks say.
                tracing::error!(run = %self.record.id, %error, "hooks failed at the end of the run");
                Fact::PhaseDone { phase, stop: None }
            }
            Err(crate::state::StateError::Cancelled) => Fact::CancelRequested { superseded: false },
            Err(error) => {
                let message = format!("a plugin failed: {error}");
                self.tell_error(&message, Some("plugin")).await;
                Fact::Failed { message }
            }
        }
    }

    /// The agent's own limit: n inferences, the calls of the n-th settled.
    fn rounds_used_up(&self) -> Option<TerminationReason> {
        let limit = self.agent.spec.max_rounds;
        let used = usize::try_from(self.machine.steps()).unwrap_or(usize::MAX);
        (limit > 0 && used >= limit && !self.calls.is_empty()).then(|| {
            TerminationReason::stopped("max_rounds", format!("the limit of {limit} rounds is reached"))
        })
    }

    pub(super) async fn tell_error(&mut self, message: &str, code: Option<&str>) {
        self.error_code = code.map(Into::into);
        self.sink.emit(AgentEvent::Error { message: message.into(), code: code.map(Into::into) }).await;
    }

    /// Takes a finished answer into the conversation.
    async fn inferred(&mut self, inferred: Inferred) -> Result<Fact, RuntimeError> {
        match inferred.outcome {
            Ok((mut result, model)) => {
                self.separate_ids(&mut result.tool_calls);
                if let Some(usage) = &result.usage {
                    self.record.usage.add(usage);
                }
                self.record.steps = self.machine.steps();
                for call in &result.tool_calls {
                    self.sink
                        .emit(AgentEvent::ToolCallReady {
                            id: call.id.clone(),
                            name: call.name.clone(),
                            arguments: call.arguments.clone(),
                        })
                        .await;
                }
                self.sink
                    .emit(AgentEvent::InferenceComplete {
                        model: model.clone(),
                        usage: result.usage,
                        duration_ms: u64::try_from(inferred.duration.as_millis()).unwrap_or(u64::MAX),
                    })
                    .await;
                let mut message = Message::assistant_with(result.content.clone(), result.tool_calls.clone());
                message.id = self.message_id.clone();
                message.metadata = Some(json!({
                    "model": model,
                    "usage": result.usage,
                    "duration_ms": u64::try_from(inferred.duration.as_millis()).unwrap_or(u64::MAX),
                    "stop_reason": result.stop_reason,
                }));
                self.calls.clone_from(&result.tool_calls);
                self.results.clear();
                self.recorded = result.tool_calls.is_empty();
                if !result.content.is_empty() || !result.tool_calls.is_empty() {
                    self.say(message);
                }
                self.partial.clear();
                let calls = result.tool_calls.iter().map(|call| CallId::from(call.id.as_str())).collect();
                self.last_response = Some(result);
                Ok(Fact::Inferred { calls })
            }
            Err(error) => {
                let message = error.to_string();
                self.tell_error(&message, Some(error.code())).await;
                self.keep_partial();
                Ok(Fact::Failed { message })
            }
        }
    }

    /// What was shown of an answer that broke off is kept, and marked.
    fn keep_partial(&mut self) {
        let text = self.partial.take();
        if text.trim().is_empty() {
            return;
        }
        let mut message = Message::assistant(text);
        message.id = self.message_id.clone();
        message.metadata = Some(json!({"interrupted": true}));
        self.say(message);
    }

    /// Call ids are unique in the thread: an id that was used before never binds to an old decision or result.
    fn separate_ids(&self, calls: &mut [ToolCall]) {
        let mut seen: std::collections::HashSet<String> =
            self.history.iter().flat_map(|m| m.tool_calls.iter().map(|c| c.id.clone())).collect();
        for call in calls {
            if call.id.is_empty() || !seen.insert(call.id.clone()) {
                call.id = format!("call_{}", uuid::Uuid::now_v7().simple());
                seen.insert(call.id.clone());
            }
        }
    }

    pub(super) fn tool_call(&self, id: &CallId) -> Result<&ToolCall, RuntimeError> {
        self.calls
            .iter()
            .find(|call| call.id == id.as_str())
            .ok_or_else(|| RuntimeError::Internal(format!("run {} has no call {id}", self.record.id)))
    }

    /// Keeps a ticket's row and what the card shows of it.
    pub(super) fn open(&mut self, call: &CallId, ticket: &SuspendTicket) {
        self.tickets.insert(call.clone(), ticket.clone());
        self.unsaved.opened.push(SuspensionRecord {
            id: ticket.suspension.id.clone(),
            thread_id: self.record.thread_id.clone(),
            run_id: self.record.id.clone(),
            call_id: call.clone(),
            ticket: ticket.clone(),
            status: SuspensionStatus::Open,
            created_at: self.shared.clock.now_ms(),
            decision: None,
            decided_by: None,
        });
    }

    /// Closes the row of a question whose answer led to no execution.
    pub(super) fn close_question(&mut self, id: SuspensionId) {
        self.unsaved.closed.push((id, SuspensionStatus::Applied));
    }

    pub(super) fn record_result(&mut self, call: &CallId, result: ToolResult, outcome: ToolCallOutcome) {
        self.unsaved.run = true;
        self.results.retain(|r| r.call != *call);
        self.results.push(CallResult { call: call.clone(), outcome, result });
    }

    pub(super) fn record_outcome(&mut self, call: &CallId, attempt: u32, kind: OutcomeKind) {
        let Some(result) = self.results.iter().find(|r| r.call == *call) else { return };
        self.unsaved.outcomes.push(OutcomeRecord {
            id: crate::contract::record::AttemptId {
                run_id: self.record.id.clone(),
                call_id: call.clone(),
                attempt,
            },
            kind,
            outcome: result.outcome,
            result: result.result.clone(),
            ended_at: self.shared.clock.now_ms(),
        });
    }

    /// Gives a call the result that goes with the way it was closed.
    fn close(&mut self, call: &CallId, closing: &Closing) {
        let tool = self.tool_call(call).map_or_else(|_| String::new(), |c| c.name.clone());
        let ticket = self.tickets.get(call).cloned();
        // The machine hands a decision over with its fact and forgets it with the closing.
        let decision = self.decisions_in_hand.remove(call);
        let output = self.outputs.remove(call).map(|sink| sink.tail()).unwrap_or_default();
        let output = if output.is_empty() { output_of(ticket.as_ref()) } else { output };
        let lost = self.lost.remove(call);
        let (result, outcome) = match &lost {
            Some(printed) if *closing == Closing::Interrupted => {
                (words::unknown_result(&tool, printed), ToolCallOutcome::Cancelled)
            }
            Some(_) | None => words::closing_result(&tool, closing, decision.as_ref(), &output),
        };
        self.record_result(call, result, outcome);
        let attempt = self.machine.call(call).map_or(0, |c| c.attempt);
        match closing {
            Closing::Interrupted if lost.is_some() => {
                self.record_outcome(call, attempt, OutcomeKind::Unknown)
            }
            Closing::Interrupted => self.record_outcome(call, attempt, OutcomeKind::Cancelled),
            Closing::SaidDone | Closing::Skipped => self.record_outcome(call, attempt, OutcomeKind::Unknown),
            Closing::Declined { .. }
            | Closing::Answered
            | Closing::BadPayload
            | Closing::Expired
            | Closing::Superseded
            | Closing::NotRun
            | Closing::Blocked { .. } => {}
        }
        if let Some(ticket) = ticket {
            let status = match closing {
                Closing::Declined { .. }
                | Closing::Answered
                | Closing::BadPayload
                | Closing::SaidDone
                | Closing::Skipped => SuspensionStatus::Applied,
                Closing::Expired => SuspensionStatus::Expired,
                Closing::Superseded | Closing::NotRun | Closing::Blocked { .. } => {
                    SuspensionStatus::Superseded
                }
                // It ran, so its decision was spent with the intent.
                Closing::Interrupted => return,
            };
            self.unsaved.closed.push((ticket.suspension.id, status));
        }
    }

    /// Stops what is in flight and keeps what was seen of it.
    async fn abort(&mut self) {
        self.slot.cancel.cancel();
        let deadline = tokio::time::sleep(ABORT_GRACE);
        tokio::pin!(deadline);
        let executing = !self.outputs.is_empty();
        while executing && !self.in_flight.is_empty() {
            tokio::select! {
                biased;
                done = self.in_flight.next() => {
                    // Its result, if it still has one, is told by the closing: the run is over for it.
                    drop(done);
                }
                () = &mut deadline => break,
            }
        }
        self.in_flight.clear();
        self.keep_partial();
    }

    /// Writes what is true now. Nothing new to say is nothing written, unless the run is over or waits.
    pub(super) async fn checkpoint(&mut self) -> Result<(), RuntimeError> {
        self.record_step();
        let status = self.machine.status();
        if self.unsaved.is_empty() && status == self.record.status && status == RunStatus::Running {
            return Ok(());
        }
        let checkpoint = self.take_checkpoint()?;
        self.shared.store.checkpoint(checkpoint).await.map_err(|e| self.store_error(&e))
    }

    /// Appends the results of a step to the conversation, in call order, once all are there.
    pub(super) fn record_step(&mut self) {
        let all = self.calls.iter().all(|call| self.results.iter().any(|r| r.call.as_str() == call.id));
        if self.recorded || self.calls.is_empty() || !all {
            return;
        }
        self.recorded = true;
        let order = self.calls.clone();
        for call in order {
            if let Some(result) = self.results.iter().find(|r| r.call.as_str() == call.id) {
                let message = tool_message(result);
                self.say(message);
            }
        }
    }

    pub(super) fn take_checkpoint(&mut self) -> Result<Checkpoint, RuntimeError> {
        let thread_state = self.state.export(Some(KeyScope::Thread))?.values;
        let thread_state = (thread_state != self.saved_thread_state).then(|| {
            self.saved_thread_state.clone_from(&thread_state);
            thread_state
        });
        let run = self.row()?;
        let unsaved = std::mem::take(&mut self.unsaved);
        Ok(Checkpoint {
            fence: self.fence.clone(),
            run,
            messages: unsaved.messages,
            thread_state,
            opened: unsaved.opened,
            closed: unsaved.closed,
            outcomes: unsaved.outcomes,
        })
    }

    /// The run's row as it is now.
    pub(super) fn row(&mut self) -> Result<RunRecord, RuntimeError> {
        let now = self.shared.clock.now_ms();
        self.record.active_ms = self.active_ms();
        self.awake_since = now;
        self.record.updated_at = now;
        self.record.status = self.machine.status();
        self.record.termination = self.machine.termination().cloned();
        self.record.state = self.state.export(Some(KeyScope::Run))?.values;
        self.record.machine = RunDocument {
            format: FORMAT,
            machine: self.machine.clone(),
            calls: self.calls.clone(),
            results: self.results.clone(),
            recorded: self.recorded,
            message_id: self.message_id.clone(),
        }
        .to_value();
        Ok(self.record.clone())
    }

    pub(super) fn has_unsaved_rows(&self) -> bool {
        !self.unsaved.messages.is_empty()
            || !self.unsaved.opened.is_empty()
            || !self.unsaved.closed.is_empty()
            || !self.unsaved.outcomes.is_empty()
    }

    pub(super) fn store_error(&self, error: &StoreError) -> RuntimeError {
        match error {
            StoreError::Fenced { .. } => RuntimeError::Fenced { thread_id: self.record.thread_id.clone() },
            other => RuntimeError::Store(other.to_string()),
        }
    }

    async fn announce(&mut self, notice: Notice) {
        let event = match notice {
            Notice::RunStart => AgentEvent::RunStart {
                thread_id: self.record.thread_id.to_string(),
                run_id: self.record.id.to_string(),
                parent_run_id: self.record.parent_run_id.as_ref().map(ToString::to_string),
            },
            Notice::StepStart => {
                self.message_id = MessageId::fresh();
                self.calls.clear();
                self.results.clear();
                self.recorded = false;
                self.tickets.clear();
                AgentEvent::StepStart { message_id: self.message_id.to_string() }
            }
            Notice::StepEnd => AgentEvent::StepEnd,
            Notice::CallResumed(call) => {
                let result = self.machine.call(&call).and_then(|c| c.decision()).map(|d| d.result.clone());
                let result = result.or_else(|| self.decisions_in_hand.get(&call).map(|d| d.result.clone()));
                AgentEvent::ToolCallResumed {
                    target_id: call.to_string(),
                    result: result.unwrap_or(Value::Null),
                }
            }
            Notice::CallDone(call, status) => self.call_done(&call, status),
            Notice::RunFinish(termination) => AgentEvent::RunFinish {
                thread_id: self.record.thread_id.to_string(),
                run_id: self.record.id.to_string(),
                result: Some(json!({"response": self.response()})),
                termination,
            },
        };
        self.sink.emit(event).await;
    }

    fn call_done(&self, call: &CallId, status: ToolCallStatus) -> AgentEvent {
        let tool = self.tool_call(call).map_or_else(|_| String::new(), |c| c.name.clone());
        let (result, outcome) = match (status, self.tickets.get(call)) {
            (ToolCallStatus::Suspended, Some(ticket)) => (
                ToolResult::suspended_with(tool, ticket.suspension.message.clone(), ticket.clone()),
                ToolCallOutcome::Suspended,
            ),
            _ => match self.results.iter().find(|r| r.call == *call) {
                Some(done) => (done.result.clone(), done.outcome),
                None => (ToolResult::error(tool, "no result"), ToolCallOutcome::Failed),
            },
        };
        AgentEvent::ToolCallDone {
            id: call.to_string(),
            message_id: self.message_id.to_string(),
            result,
            outcome,
        }
    }

    /// The text of the last assistant message of this run.
    fn response(&self) -> String {
        self.history
            .iter()
            .rev()
            .take_while(|m| m.role != Role::User)
            .find(|m| m.role == Role::Assistant)
            .map(Message::text)
            .unwrap_or_default()
    }

    /// How the run came out, once `drive` returned.
    pub(super) async fn result(&mut self) -> Result<AgentRunResult, RuntimeError> {
        let waiting = self
            .machine
            .calls()
            .iter()
            .filter(|call| matches!(call.state, CallState::Suspended { .. }))
            .filter_map(|call| self.tickets.get(&call.id))
            .map(|ticket| ticket.suspension.id.clone());
        let mut suspensions = Vec::new();
        for id in waiting {
            suspensions.extend(self.shared.store.suspension(&id).await?);
        }
        let termination = match self.machine.stage() {
            Stage::Done(reason) => reason.clone(),
            Stage::Created | Stage::Phase(_) | Stage::Inferring | Stage::Tools | Stage::Ending(_) => {
                TerminationReason::Suspended
            }
        };
        Ok(AgentRunResult {
            thread_id: self.record.thread_id.clone(),
            run_id: self.record.id.clone(),
            response: self.response(),
            termination,
            error_code: self.error_code.clone(),
            steps: self.machine.steps(),
            usage: self.record.usage,
            waiting: suspensions,
        })
    }
}

/// What a question about an unknown outcome holds of the call's output.
fn output_of(ticket: Option<&SuspendTicket>) -> String {
    ticket
        .and_then(|t| t.suspension.parameters.get("output"))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
