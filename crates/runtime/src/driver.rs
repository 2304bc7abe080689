//! The driver: executes what the machine asks, in order, and reports the results as the next facts.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::Value;

use super::RuntimeCore;
use super::active_drivers::Slot;
use super::carry::ChangedFiles;
use super::children::Children;
use super::document::{CurrentStep, RunDocument};
use super::handoff::Handoff;
use super::in_flight::{Done, InFlight};
use super::lease::Lease;
use super::parts::{Answers, ClientTools, EventOutput, InferenceState, StepSnapshot, Unsaved};
use super::ready::ReadyCall;
use super::remote::RemoteConversation;
use super::request::RuntimeError;
use super::resolve::ResolvedAgent;
use super::stored_thread::StoredThread;
use super::window::Packing;
use aye_core::context::History;
use aye_core::contract::activity::Activity;
use aye_core::contract::child::{ChildRecord, ChildRunState};
use aye_core::contract::error_code::ErrorCode;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::executor::ToolExecutionMode;
use aye_core::contract::identity::{RunIdentity, RunOrigin};
use aye_core::contract::ids::{CallId, MessageId};
use aye_core::contract::inference::InferenceOverride;
use aye_core::contract::judgement::{Profile, SandboxOpening};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::message::Message;
use aye_core::contract::prefix::PromptChangesKey;
use aye_core::contract::profile::ProfileAccess;
use aye_core::contract::record::{JobClaim, RunRecord};
use aye_core::contract::suspension::{SuspendTicket, ToolCallResume};
use aye_core::phase::{
    InferenceShape, PhaseAnswer, PhaseContext, PhaseQuestion, PhaseReport, PhaseRuntime, RoundsCountedFrom,
    RunProgress, TimeLimit, inference_shape,
};
use aye_core::run::{Closing, Directive, Fact, Gate, Run, Stage};
use aye_core::state::{
    KeyRegistration, KeyScope, PersistedState, Phase, StateError, StateKeyOptions, StateStore,
    UnknownKeyPolicy,
};
use tracing::Instrument as _;

/// A run as it is about to be driven.
pub(super) struct LoadedRun {
    record: RunRecord,
    machine: Run,
    step: CurrentStep,
    messages: Vec<Message>,
    takes: Option<JobClaim>,
    begins: bool,
    stored: StoredThread,
}

impl LoadedRun {
    /// Creates a new run that starts with these messages, taken from the queue if they have a number there.
    /// If the last message asks for calls, the run serves those calls.
    pub(super) fn fresh(
        record: RunRecord,
        mode: ToolExecutionMode,
        messages: Vec<Message>,
        takes: Option<JobClaim>,
        stored: StoredThread,
    ) -> Self {
        let given = messages.last().filter(|last| !last.tool_calls.is_empty());
        let (calls, message_id) = match given {
            Some(asks) => (asks.tool_calls.clone(), asks.id.clone()),
            None => (Vec::new(), MessageId::fresh()),
        };
        let machine = if calls.is_empty() {
            Run::new(mode)
        } else {
            Run::given(mode, calls.iter().map(|call| CallId::from(call.id.as_str())).collect())
        };
        Self {
            record,
            machine,
            step: CurrentStep::new(message_id, calls),
            messages,
            takes,
            begins: true,
            stored,
        }
    }

    /// A run from the store.
    pub(super) fn stored(record: RunRecord, document: RunDocument, stored: StoredThread) -> Self {
        let RunDocument { format: _, machine, revision: _, step } = document;
        Self { record, machine, step, messages: Vec::new(), takes: None, begins: false, stored }
    }
}

/// The driver's knowledge of calls that are not closed, besides what the machine knows.
#[derive(Default)]
pub(super) struct OpenCalls {
    /// Decisions that are being applied, until their call is closed or runs.
    pub(super) decisions: HashMap<CallId, ToolCallResume>,
    /// The question a call asked last, for closing its row and for the card.
    pub(super) tickets: HashMap<CallId, SuspendTicket>,
    /// The limits that calls run under.
    pub(super) bounds: HashMap<CallId, CallBounds>,
    /// Calls between their judgement and their end.
    pub(super) ready: HashMap<CallId, Arc<ReadyCall>>,
}

/// The limits that a call runs under.
#[derive(Clone, Default)]
pub(super) struct CallBounds {
    /// Git runs nothing that a repository names: see [`Judgement`](aye_core::contract::judgement::Judgement).
    pub(super) guards_git: bool,
    /// The sandbox profile that the kernel enforces, if any.
    pub(super) profile: Option<Profile>,
    /// The access that the call's grants add to that profile.
    pub(super) opened: SandboxOpening,
    /// The paths that were judged.
    pub(super) paths: Vec<PathBuf>,
}

pub(super) struct Driver {
    pub(super) shared: Arc<RuntimeCore>,
    pub(super) lease: Arc<Lease>,
    pub(super) slot: Slot,
    pub(super) events: EventOutput,
    pub(super) agent: ResolvedAgent,
    pub(super) handoff: Handoff,
    pub(super) identity: RunIdentity,
    pub(super) record: RunRecord,
    pub(super) machine: Run,
    pub(super) step: CurrentStep,
    pub(super) open: OpenCalls,
    pub(super) answers: Answers,
    pub(super) phases: PhaseRuntime,
    pub(super) history: History,
    pub(super) inference: InferenceState,
    pub(super) unsaved: Unsaved,
    pub(super) in_flight: InFlight,
    pub(super) packing: Packing,
    pub(super) active_since: u64,
    pub(super) saved_thread_state: BTreeMap<String, Value>,
    /// The call that the thread serves, if it belongs to a child.
    pub(super) lineage: Option<ChildRecord>,
    /// The snapshot taken before the current step.
    pub(super) snapped: StepSnapshot,
    pub(super) children: Children,
    /// The conversation with the remote agent, if the run serves a call of one.
    pub(super) remote: Option<Arc<dyn RemoteConversation>>,
    /// Whether another run follows under the same lease.
    pub(super) keeps_lease: bool,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<RuntimeCore>,
        lease: Arc<Lease>,
        slot: Slot,
        sink: Arc<dyn EventSink>,
        mut agent: ResolvedAgent,
        overrides: InferenceOverride,
        loaded: LoadedRun,
    ) -> Result<Self, RuntimeError> {
        let LoadedRun { record, machine, step, messages, takes, begins, stored } = loaded;
        let StoredThread {
            state: saved_thread_state,
            mut history,
            sizes,
            is_assumed,
            lineage,
            summary,
            prefix,
            ..
        } = stored;
        let phases = match &shared.phases {
            Some(given) => given.clone(),
            None => PhaseRuntime::new(StateStore::new())?,
        };
        let state = phases.store().clone();
        let remote = shared.conversation(&agent.spec, &record.thread_id);
        if let Some(remote) = &remote {
            agent.connect(&**remote);
        }
        let (handoff, agent) = Handoff::of(&shared, &record, &saved_thread_state, agent);
        phases.install(&handoff.base().env)?;
        phases.install(&agent.env)?;
        state.ensure(&shared.keys)?;
        let thread = StateKeyOptions { scope: KeyScope::Thread, ..StateKeyOptions::default() };
        state.ensure(&[
            KeyRegistration::of::<ClientTools>(StateKeyOptions::default()),
            KeyRegistration::of::<PromptChangesKey>(thread),
            KeyRegistration::of::<ChangedFiles>(thread),
        ])?;
        let persisted = PersistedState {
            revision: 0,
            values: saved_thread_state.clone().into_iter().chain(record.state.clone()).collect(),
        };
        // A key of a plugin that is gone is left out; it stays in the store until the thread's state is next written.
        if shared.phases.is_none() {
            state.restore(persisted, UnknownKeyPolicy::Skip)?;
        } else if begins {
            // An engine shared between runs keeps the state of the conversation.
            state.clear_run_scope();
        }
        for message in &messages {
            history.push(message.clone());
        }
        let of_calls =
            machine.calls().iter().filter_map(|call| Some((call.id.clone(), call.ticket()?.clone())));
        let asked = machine.asking().map(|question| &question.ticket);
        let tickets =
            of_calls.chain(asked.map(|ticket| (ticket.pending.id.clone(), ticket.clone()))).collect();
        let identity = RunIdentity::new(
            record.thread_id.clone(),
            lineage.as_ref().map(|own| own.parent_thread.clone()),
            record.id.clone(),
            record.parent_run_id.clone(),
            record.agent_id.clone(),
            if lineage.is_some() { RunOrigin::Subagent } else { RunOrigin::User },
        )
        .with_depth(lineage.as_ref().map_or(0, |own| own.depth))
        .with_correlation_id(record.correlation_id.clone());
        let active_since = shared.clock.awake_ms();
        // A step that another process began keeps what plugins set for it.
        let shape = if begins { InferenceShape::default() } else { inference_shape(&state.snapshot()) };
        let mut driver = Self {
            shared,
            lease,
            slot,
            events: EventOutput::new(sink),
            identity,
            record,
            machine,
            step,
            open: OpenCalls { tickets, ..OpenCalls::default() },
            answers: Answers::default(),
            phases,
            history,
            inference: InferenceState { overrides, shape, ..InferenceState::default() },
            unsaved: Unsaved { messages, takes, run: true, ..Unsaved::default() },
            in_flight: InFlight::default(),
            packing: Packing::of(summary, prefix, sizes, is_assumed),
            active_since,
            saved_thread_state,
            lineage,
            snapped: StepSnapshot::default(),
            children: Children::default(),
            remote,
            agent,
            handoff,
            keeps_lease: false,
        };
        let reports = driver.unsaved.messages.iter().flat_map(ChildRunState::spent_in_background);
        let spent: Vec<_> = reports.collect();
        driver.charge_all(&spent);
        driver.offer_client_tools();
        driver.phases.activate(&driver.agent.env, &driver.agent.spec)?;
        Ok(driver)
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
        let decided = match &fact {
            Fact::Decided { call, decision, .. } => Some((call.clone(), decision.clone())),
            Fact::Started
            | Fact::PhaseDone { .. }
            | Fact::AnotherStep
            | Fact::PhaseAsked { .. }
            | Fact::Postponed { .. }
            | Fact::Answered { .. }
            | Fact::Inferred { .. }
            | Fact::Gated { .. }
            | Fact::Settled { .. }
            | Fact::Expired { .. }
            | Fact::MayHaveStarted { .. }
            | Fact::CancelRequested { .. }
            | Fact::LimitReached { .. }
            | Fact::Failed { .. }
            | Fact::Recovered { .. } => None,
        };
        let settles = match &fact {
            Fact::Decided { suspension, .. } | Fact::Expired { suspension, .. }
                if !self.shared.renderers.is_empty() =>
            {
                Some(suspension.clone())
            }
            _ => None,
        };
        match self.machine.apply(fact) {
            Ok(directives) => {
                if let Some(question) = settles.filter(|_| !directives.is_empty()) {
                    self.answers.note_settled(question);
                }
                // One that was known before leads to nothing.
                if let Some((call, decision)) = decided.filter(|_| !directives.is_empty()) {
                    self.open.decisions.insert(call, decision);
                }
                directives
            }
            Err(refused) => {
                tracing::info!(run = %self.record.id, %refused, "late");
                Vec::new()
            }
        }
    }

    /// Drives until the run is over or only answers can move it. One that lost its thread stops what it does, writes
    /// nothing more, and fails with [`RuntimeError::Fenced`].
    pub(super) async fn drive(&mut self, first: Vec<Directive>) -> Result<(), RuntimeError> {
        // Log messages during the run carry the id of the client's request.
        let span = match &self.record.correlation_id {
            Some(id) => tracing::error_span!("request", correlation_id = id.as_str()),
            None => tracing::Span::none(),
        };
        // On the heap: it is what callers of callers keep on their stacks.
        let driven = Box::pin(self.drive_on(first)).instrument(span).await;
        if matches!(driven, Err(RuntimeError::Fenced { .. })) {
            self.stop_in_flight().await;
        }
        driven
    }

    async fn drive_on(&mut self, first: Vec<Directive>) -> Result<(), RuntimeError> {
        let lost = self.lease.lost();
        let mut directives = VecDeque::from(first);
        let mut facts = VecDeque::new();
        let (mut cancelled, mut is_timed_out) = (false, false);
        loop {
            while let Some(directive) = directives.pop_front() {
                if let Some(fact) = self.perform(directive).await? {
                    facts.push_back(fact);
                }
                self.announce_state_change().await;
            }
            if let Some(fact) = facts.pop_front() {
                let asks = is_question(&fact);
                directives.extend(self.apply(fact)?);
                // All the questions of an answer are one commit.
                while asks && facts.front().is_some_and(is_question) {
                    if let Some(fact) = facts.pop_front() {
                        directives.extend(self.apply(fact)?);
                    }
                }
                continue;
            }
            if !cancelled && self.slot.handle.cancel.is_cancelled() {
                cancelled = true;
                directives.extend(self.apply(Fact::CancelRequested { superseded: false })?);
                continue;
            }
            if let Some(fact) = self.answers.next_fact() {
                directives.extend(self.try_apply(fact));
                self.render_outcomes().await;
                continue;
            }
            self.begin_children();
            if self.in_flight.is_empty() && !self.children.is_any_active() {
                // From here on, whoever has an answer or wants to stop the run finds no driver and turns to the store.
                // So what follows sees everything that was sent to this one.
                self.slot.close();
                while let Ok(delivery) = self.slot.deliveries.try_recv() {
                    self.answers.add(delivery.into());
                }
                if self.slot.handle.rows_changed.notified().now_or_never().is_some() {
                    self.read_answers().await?;
                }
                let stop_requested = !cancelled && self.slot.handle.cancel.is_cancelled();
                let is_waiting = self.machine.status() == RunStatus::Waiting;
                if self.answers.has_no_fact()
                    && !self.children.is_any_active()
                    && !(stop_requested && is_waiting)
                {
                    self.emit_withheld_finish().await;
                    return match self.machine.status() {
                        RunStatus::Done => Ok(()),
                        RunStatus::Waiting => {
                            self.prepare_snapshot();
                            Ok(())
                        }
                        RunStatus::Running => {
                            Err(RuntimeError::Internal(format!("run {} makes no progress", self.record.id)))
                        }
                    };
                }
                self.slot.reopen();
                continue;
            }
            let until_expiry = self.until_expiry();
            let time_limit = self.time_limit().filter(|_| !is_timed_out);
            let time_left = time_limit.as_ref().map(|(left, _)| *left);
            tokio::select! {
                biased;
                () = lost.cancelled() => {
                    return Err(RuntimeError::Fenced { thread_id: self.record.thread_id.clone() });
                }
                () = self.slot.handle.cancel.cancelled(), if !cancelled => {}
                () = self.slot.handle.rows_changed.notified() => self.read_answers().await?,
                () = tokio::time::sleep(until_expiry.unwrap_or_default()), if until_expiry.is_some() => {
                    self.expire().await?;
                }
                () = tokio::time::sleep(time_left.unwrap_or_default()), if time_left.is_some() => {
                    is_timed_out = true;
                    if let Some((_, reason)) = time_limit {
                        directives.extend(self.apply(Fact::LimitReached { reason })?);
                    }
                }
                Some(delivery) = self.slot.deliveries.recv() => self.answers.add(delivery.into()),
                ended = self.children.next() => self.child_returned(ended).await?,
                Some(done) = self.in_flight.next() => {
                    if let Some(fact) = self.returned(done).await? {
                        facts.push_back(fact);
                    }
                    self.announce_state_change().await;
                }
                // The last branch: when it is polled, all that is in flight has begun.
                () = announce_wait(&*self.events.sink), if !self.in_flight.is_empty() => {}
            }
        }
    }

    async fn perform(&mut self, directive: Directive) -> Result<Option<Fact>, RuntimeError> {
        match directive {
            Directive::RunPhase(phase) => {
                if phase == Phase::StepStart {
                    self.take_steering().await?;
                }
                self.run_phase(phase).await.map(Some)
            }
            Directive::Answer => Ok(Some(self.answer_plugin().await)),
            Directive::Infer => {
                self.infer().await;
                Ok(None)
            }
            Directive::Gate { call, resume } => Ok(Some(self.gate(call, resume).await?)),
            Directive::Checkpoint { intent: None } => {
                if !self.is_written_at_the_end() {
                    self.checkpoint().await?;
                }
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
                self.end_child_of(&call, &closing).await?;
                let decliner = self.decliner(&call, &closing).await?;
                self.close(&call, &closing, decliner);
                if matches!(closing, Closing::Declined { .. } | Closing::ChangeWanted { .. }) {
                    self.run_unexecuted_hooks(&call).await;
                }
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
            Done::Inferred(inferred) => self.inferred(*inferred).await,
            Done::Compacted => {
                self.infer().await;
                Ok(None)
            }
            Done::Executed { call, output } => self.executed(call, output).await.map(Some),
            Done::Kept(error) => Err(error),
        }
    }

    pub(super) fn context(&mut self, phase: Phase) -> PhaseContext {
        let messages = self.history.shared();
        let progress = RunProgress {
            steps: self.machine.steps(),
            usage: self.record.usage,
            active: Duration::from_millis(self.active_ms()),
        };
        let mut ctx = PhaseContext::new(phase, self.identity.clone(), Arc::clone(&self.agent.spec))
            .with_snapshot(self.phases.store().snapshot())
            .with_tools(Arc::clone(&self.agent.descriptors))
            .with_progress(progress)
            .with_spent(self.record.spent.as_slice())
            .with_profile(self.profile())
            .with_cancellation(self.slot.handle.cancel.clone());
        ctx.messages = messages;
        ctx.response.clone_from(&self.inference.last_response);
        ctx
    }

    /// The values that outlive the thread, of the namespaces that the agent's plugins registered.
    pub(super) fn profile(&self) -> ProfileAccess {
        ProfileAccess::new(Arc::clone(&self.shared.profiles), Arc::clone(&self.agent.env.profile_keys))
    }

    /// Returns the remaining active time of the run, and the reason for which the run ends then.
    fn time_limit(&self) -> Option<(Duration, TerminationReason)> {
        let TimeLimit { active, reason } = self.agent.env.time_limit(&self.agent.spec)?;
        Some((active.saturating_sub(Duration::from_millis(self.active_ms())), reason))
    }

    pub(super) fn active_ms(&self) -> u64 {
        self.record.active_ms + self.shared.clock.awake_ms().saturating_sub(self.active_since)
    }

    /// Takes the tools that came or went since the last step.
    fn refresh_tools(&mut self) {
        if self.remote.is_some() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        if shared.catalog().revision == self.handoff.catalog_revision {
            return;
        }
        let catalog = shared.catalog_at(self.handoff.base().revision);
        self.handoff.catalog_revision = catalog.revision;
        if let Err(error) = self.agent.refresh_tools(&catalog) {
            tracing::warn!(run = %self.record.id, %error, "the tools stay unchanged");
        }
    }

    /// Emits what plugins and tools reported to the user.
    pub(super) fn emit_activities(&self, activities: Vec<Activity>) -> impl Future<Output = ()> + use<> {
        let (sink, message_id) = (Arc::clone(&self.events.sink), self.step.message_id.to_string());
        async move {
            for Activity { activity_type, content } in activities {
                let message_id = message_id.clone();
                let event =
                    AgentEvent::ActivitySnapshot { message_id, activity_type, content, replace: Some(false) };
                sink.emit(event).await;
            }
        }
    }

    /// Runs the hooks of a phase. The last answer of a run is not stored yet when its last hooks start: it is written with
    /// the end of the run, unless a hook takes its time.
    async fn run_hooks(&mut self, phase: Phase) -> Result<Result<PhaseReport, StateError>, RuntimeError> {
        let ctx = self.context(phase);
        let (phases, env) = (self.phases.clone(), Arc::clone(&self.agent.env));
        let mut hooks = Box::pin(async move { phases.run_phase(&env, ctx).await });
        if phase == Phase::RunEnd && self.has_unsaved_rows() {
            if let Some(report) = (&mut hooks).now_or_never() {
                return Ok(report);
            }
            self.checkpoint().await?;
        }
        Ok(hooks.await)
    }

    async fn run_phase(&mut self, phase: Phase) -> Result<Fact, RuntimeError> {
        if phase == Phase::StepStart {
            self.refresh_tools();
            if let Err(error) = self.follow_handoff().await {
                let message = format!("the conversation cannot be handed off: {error}");
                self.events.emit_error(&message, Some(ErrorCode::Handoff.as_str())).await;
                return Ok(Fact::Failed { message });
            }
            self.offer_client_tools();
        }
        if let (Phase::RunEnd, Some(remote)) = (phase, &self.remote) {
            remote.cancel().await;
        }
        Ok(match self.run_hooks(phase).await? {
            Ok(report) => {
                self.unsaved.commands.extend(report.commands);
                self.emit_activities(report.activities).await;
                let by_answer = self.ended_by_answer(phase);
                let mut stop = match (report.stop, by_answer) {
                    // Nothing a hook says makes an answer of what was withheld.
                    (_, Some(blocked @ TerminationReason::Blocked(_))) => Some(blocked),
                    (stop, by_answer) => stop.or(by_answer),
                };
                if phase == Phase::BeforeInference {
                    self.inference.shape = report.inference;
                }
                if phase == Phase::StepEnd && stop.is_none() && report.question.is_none() {
                    stop = self.rounds_used_up().filter(|_| !self.step.calls.is_empty());
                }
                match report.question {
                    Some(question) if stop.is_none() && phase != Phase::RunEnd => {
                        self.ask_from(phase, question)
                    }
                    None if phase == Phase::StepEnd
                        && stop.is_none()
                        && report.another_step
                        && self.rounds_used_up().is_none() =>
                    {
                        Fact::AnotherStep
                    }
                    _ => Fact::PhaseDone { phase, stop: stop.filter(|_| phase != Phase::RunEnd) },
                }
            }
            Err(error) if phase == Phase::RunEnd => {
                // The run ends whatever its last hooks return.
                tracing::error!(run = %self.record.id, %error, "hooks failed at the end of the run");
                Fact::PhaseDone { phase, stop: None }
            }
            Err(StateError::Cancelled) => Fact::CancelRequested { superseded: false },
            Err(error) => {
                let message = format!("a plugin failed: {error}");
                self.events.emit_error(&message, Some(ErrorCode::Plugin.as_str())).await;
                Fact::Failed { message }
            }
        })
    }

    /// Keeps a plugin's question, which the run waits with.
    fn ask_from(&mut self, phase: Phase, question: PhaseQuestion) -> Fact {
        let mut question = question.asked_in(phase);
        self.apply_question_terms(&mut question.ticket);
        let call = question.ticket.pending.id.clone();
        self.open(&call, &mut question.ticket);
        Fact::PhaseAsked { phase, question: Box::new(question) }
    }

    /// Lets the plugin that asked read its answer. One that cannot be read ends the run as a no does.
    async fn answer_plugin(&mut self) -> Fact {
        let (Stage::Asking(phase), Some(question)) =
            (self.machine.stage().clone(), self.machine.asking().cloned())
        else {
            return Fact::Failed { message: "an answer came to no question".into() };
        };
        let answer =
            question.decision.as_ref().and_then(|decision| PhaseAnswer::of(&question.ticket, decision));
        if question.resumes {
            let goes_on = answer.is_some_and(|answer| answer.value == Value::Bool(true));
            return Fact::Answered { stop: (!goes_on).then_some(question.otherwise) };
        }
        let ctx = self.context(phase);
        let report = match &answer {
            Some(answer) => self.phases.answer(&self.agent.env, ctx, &question.action, answer).await,
            None => Err(StateError::KeyDecode {
                key: question.action.clone(),
                message: "the answer is none of the choices".into(),
            }),
        };
        match report {
            Ok(report) => {
                self.emit_activities(report.activities).await;
                if phase == Phase::BeforeInference {
                    self.inference.shape = report.inference;
                }
                Fact::Answered { stop: report.stop }
            }
            Err(error) => {
                tracing::warn!(run = %self.record.id, %error, "the answer was not read");
                Fact::Answered { stop: Some(question.otherwise) }
            }
        }
    }

    /// The agent's own limit: n inferences, the calls of the n-th settled.
    fn rounds_used_up(&self) -> Option<TerminationReason> {
        let limit = self.agent.spec.max_rounds;
        let from = self.phases.store().snapshot().get::<RoundsCountedFrom>().copied().unwrap_or_default();
        let used = usize::try_from(self.machine.steps().saturating_sub(from)).unwrap_or(usize::MAX);
        (limit > 0 && used >= limit).then(|| {
            TerminationReason::stopped("max_rounds", format!("the limit of {limit} rounds is reached"))
        })
    }

    /// Stops what is in flight and keeps what was seen of it.
    async fn abort(&mut self) {
        self.stop_in_flight().await;
        self.keep_partial();
    }

    async fn stop_in_flight(&mut self) {
        self.slot.handle.cancel.cancel();
        self.in_flight.stop().await;
    }
}

/// Notifies the sink that the run waits. Never returns.
async fn announce_wait(sink: &dyn EventSink) {
    sink.waits();
    std::future::pending::<()>().await;
}

/// Whether a call was judged and needs a decision by the user.
fn is_question(fact: &Fact) -> bool {
    matches!(fact, Fact::Gated { gate: Gate::Suspend(_), .. })
}
