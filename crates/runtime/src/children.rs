//! Child runs: runs that serve calls of other runs.
//!
//! A served call is suspended, so a crash at any moment leaves only rows. The driver of the parent drives its
//! children too: it starts new children, resumes interrupted ones, and stores the end of each in the row of its call
//! as the decision, which resumes the call like any other decision. The id of a child's thread is derived from the
//! call, so one call has one child, however often it is started. The parent's driver stops when all its children wait
//! for users; waking the parent wakes them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::document::RunDocument;
use super::driver::Driver;
use super::nested::ChildSink;
use super::remote::RemoteConversation;
use super::request::{AgentRunResult, RunRequest, RuntimeError, stop_reason_of};
use super::{AgentRuntime, Lease, RuntimeCore, Slot, UnknownPolicy, delegate, title_of};
use aye_core::contract::child::{ChildRecord, ChildRunState, ChildStatus};
use aye_core::contract::command::CommandReport;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::{EventSink, NullEventSink};
use aye_core::contract::ids::{CallId, DecisionId, SuspensionId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::message::{Message, ToolCall};
use aye_core::contract::question::{ChildRequest, Question, QuestionDetails};
use aye_core::contract::record::{DecideOutcome, Decision, RunRecord, SuspensionStatus};
use aye_core::contract::storage::SuspensionFilter;
use aye_core::contract::suspension::{Actor, Answer, CHANNEL_CHILD, SuspendTicket, ToolCallResume};
use aye_core::failpoint::failpoint;
use aye_core::run::{CallState, Closing, Fact};

/// A task that is aborted when its waiter is dropped.
struct Attached<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Attached<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type Ended = (CallId, Result<AgentRunResult, RuntimeError>);

/// A driver's view of the children that its calls wait for.
#[derive(Default)]
pub(super) struct Children {
    active: FuturesUnordered<BoxFuture<'static, Ended>>,
    running: HashMap<CallId, (ThreadId, CancellationToken)>,
    /// Children that wait for users, with the earliest expiry of their questions.
    waiting: HashMap<CallId, (ThreadId, Option<u64>)>,
    /// Their end was written down.
    ended: HashSet<CallId>,
    /// Children started by calls that do not wait for them; they are driven once the call's result is stored.
    launched: Vec<ThreadId>,
    /// The event that the run waits, emitted when its children wait too.
    withheld: Option<AgentEvent>,
    /// The policy for calls of children that may have run.
    pub(super) unknown: UnknownPolicy,
}

impl Children {
    /// Whether a child is active.
    pub(super) fn is_any_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// The next one that comes back; never when none is at work.
    pub(super) async fn next(&mut self) -> Ended {
        match self.active.next().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// Returns the earliest expiry of the questions of waiting children.
    pub(super) fn next_expiry(&self) -> Option<u64> {
        self.waiting.values().filter_map(|(_, end)| *end).min()
    }
}

impl Driver {
    fn runtime(&self) -> AgentRuntime {
        AgentRuntime::of(&self.shared, self.slot.live())
    }

    /// The served calls that wait, with their tickets.
    fn served(&self) -> Vec<(CallId, SuspendTicket)> {
        let served = self.machine.calls().iter().filter_map(|call| match &call.state {
            CallState::Suspended { ticket } if ticket.is_served() => Some((call.id.clone(), ticket.clone())),
            CallState::New
            | CallState::Gating
            | CallState::Suspended { .. }
            | CallState::Held { .. }
            | CallState::Regating { .. }
            | CallState::Running { .. }
            | CallState::Closed { .. } => None,
        });
        served.collect()
    }

    /// Sets the children to work that are not: all that led here is written down.
    pub(super) fn begin_children(&mut self) {
        for (call, ticket) in self.served() {
            let known = &self.children;
            if !known.running.contains_key(&call)
                && !known.waiting.contains_key(&call)
                && !known.ended.contains(&call)
            {
                self.begin_child(call, &ticket);
            }
        }
        for thread in std::mem::take(&mut self.children.launched) {
            self.runtime().spawn_task(&thread);
        }
    }

    fn begin_child(&mut self, call: CallId, ticket: &SuspendTicket) {
        let child = self.child_record(&call, child_request(ticket), false);
        let state = ChildRunState {
            agent: child.agent.clone(),
            thread_id: child.thread_id.to_string(),
            parent_call_id: call.to_string(),
            ..ChildRunState::default()
        };
        let runtime = self.runtime();
        let sink = Arc::new(ChildSink::new(Arc::clone(&self.events.sink), state, runtime.clone()));
        let stop = CancellationToken::new();
        self.children.running.insert(call.clone(), (child.thread_id.clone(), stop.clone()));
        let mut task = Attached(tokio::spawn(runtime.serve(child, sink, self.children.unknown, stop)));
        self.children.active.push(Box::pin(async move {
            let result = (&mut task.0).await;
            (call, result.unwrap_or_else(|error| Err(RuntimeError::Internal(format!("a child: {error}")))))
        }));
    }

    fn child_record(&self, call: &CallId, asked: ChildRequest, background: bool) -> ChildRecord {
        let (thread, run) = (&self.record.thread_id, &self.record.id);
        ChildRecord {
            thread_id: thread.of_child(run, call),
            parent_thread: thread.clone(),
            root_thread: self.lineage.as_ref().map_or_else(|| thread.clone(), |own| own.root_thread.clone()),
            parent_run: run.clone(),
            parent_call: call.clone(),
            agent: asked.agent,
            prompt: asked.prompt,
            // A skill may name the model that runs it.
            model: asked.model.or_else(|| Some(self.agent.model_id.clone())),
            depth: self.identity.depth + 1,
            background,
            told: false,
            created_at: self.shared.clock.now_ms(),
            stop: false,
        }
    }

    /// Makes the child of a call that does not wait for it, before the call's result is written down: a crash between
    /// the two makes the call again, and finds the child there.
    pub(super) async fn launch(&mut self, id: &CallId, call: &ToolCall) -> Result<(), RuntimeError> {
        let Some(agent) = self.agent.delegates.get(&call.name).cloned() else { return Ok(()) };
        if !delegate::is_background(&call.arguments) {
            return Ok(());
        }
        let prompt = call.arguments.get("prompt").and_then(Value::as_str).unwrap_or_default().to_owned();
        let child = self.child_record(id, ChildRequest { agent, prompt, model: None }, true);
        let thread = child.thread_id.clone();
        self.runtime().make_child(child).await?;
        self.children.launched.push(thread);
        Ok(())
    }

    /// Handles the result of a child.
    pub(super) async fn child_returned(&mut self, (call, result): Ended) -> Result<(), RuntimeError> {
        let Some((thread, _)) = self.children.running.remove(&call) else { return Ok(()) };
        let Some(ticket) = self.open.tickets.get(&call).filter(|ticket| ticket.is_served()).cloned() else {
            return Ok(());
        };
        let agent = &child_request(&ticket).agent;
        let payload = match result {
            Ok(result) if result.termination == TerminationReason::Suspended => {
                let ends = result.waiting.iter().filter_map(|row| row.ticket.suspension.expires_at).min();
                self.children.waiting.insert(call, (thread, ends));
                // An answer that came while it went to sleep.
                return self.resume_children().await;
            }
            Ok(result) => {
                let state = end_state(&self.shared, agent, &call, &result).await?;
                let host = self.shared.host_of(agent);
                delegate::payload(agent, host.as_deref(), &result, &json!(state))
            }
            Err(
                error @ (RuntimeError::AgentNotFound { .. }
                | RuntimeError::ResolveFailed { .. }
                | RuntimeError::Damaged { .. }
                | RuntimeError::Internal(_)
                | RuntimeError::State(_)),
            ) => delegate::refused(agent, &error.to_string()),
            Err(error) => return Err(error),
        };
        failpoint("child.ended");
        self.child_ended(&call, &ticket.suspension.id, payload).await
    }

    /// Writes the end of a child into the row of its call, once.
    async fn child_ended(
        &mut self,
        call: &CallId,
        question: &SuspensionId,
        payload: Value,
    ) -> Result<(), RuntimeError> {
        let outcome = store_end(&self.shared, question, payload).await?;
        failpoint("child.decided");
        self.children.ended.insert(call.clone());
        match outcome {
            DecideOutcome::Accepted(row)
            | DecideOutcome::Repeated(row)
            | DecideOutcome::AlreadyDecided(row) => {
                if let Some(decision) = row.decision {
                    self.answers.add(Fact::Decided { call: row.call_id, suspension: row.id, decision });
                }
                Ok(())
            }
            DecideOutcome::Closed(_) | DecideOutcome::Expired(_) | DecideOutcome::NotFound => {
                Err(RuntimeError::Internal(format!(
                    "the row of {question} disappeared while its child was \
                              active"
                )))
            }
        }
    }

    /// Sets those to work again that sleep and were answered, or whose questions ran out of time.
    pub(super) async fn resume_children(&mut self) -> Result<(), RuntimeError> {
        if self.children.waiting.is_empty() {
            return Ok(());
        }
        let now = self.shared.clock.now_ms();
        let served: HashSet<CallId> = self.served().into_iter().map(|(call, _)| call).collect();
        self.children.waiting.retain(|call, _| served.contains(call));
        let mut woken = Vec::new();
        for (call, (thread, ends)) in &self.children.waiting {
            let is_due = ends.is_some_and(|end| end <= now);
            if is_due || self.shared.store.has_answers(thread).await? {
                woken.push(call.clone());
            }
        }
        for call in woken {
            self.children.waiting.remove(&call);
        }
        self.begin_children();
        Ok(())
    }

    /// Withholds the event that the run waits: for the user this is not true while a child of the run still
    /// works.
    pub(super) fn withhold_finish(&mut self, event: AgentEvent) -> Option<AgentEvent> {
        match &event {
            AgentEvent::RunStart { .. } if self.children.withheld.take().is_some() => return None,
            AgentEvent::RunFinish { termination: TerminationReason::Suspended, .. }
                if !self.served().is_empty() =>
            {
                self.children.withheld = Some(event);
                return None;
            }
            AgentEvent::RunFinish { .. } => self.children.withheld = None,
            _ => {}
        }
        Some(event)
    }

    /// Emits the withheld event, because all children wait for users and so does the run.
    pub(super) async fn emit_withheld_finish(&mut self) {
        if let Some(event) = self.children.withheld.take() {
            self.events.emit(event).await;
        }
    }

    /// The run is over for a call that a child works on: it ends too, with all its questions, before that is written
    /// down.
    pub(super) async fn end_child_of(
        &mut self,
        call: &CallId,
        closing: &Closing,
    ) -> Result<(), RuntimeError> {
        let is_open = self.open.tickets.get(call).is_some_and(SuspendTicket::is_served)
            && !self.children.ended.contains(call);
        if !is_open || matches!(closing, Closing::Answered) {
            return Ok(());
        }
        let runtime = self.runtime();
        // Side by side: each may take a moment.
        for (thread, stop) in self.children.running.values() {
            stop.cancel();
            runtime.cancel(thread);
        }
        while !self.children.running.is_empty() {
            let (call, result) = self.children.next().await;
            self.children.running.remove(&call);
            if let Err(error) = result {
                tracing::warn!(%call, %error, "a child run was left unchanged");
            }
        }
        self.children.waiting.remove(call);
        let superseded = matches!(closing, Closing::Superseded);
        let thread = self.record.thread_id.of_child(&self.record.id, call);
        runtime.end_child(thread.clone(), superseded).await?;
        // The child's usage so far counts towards this run.
        if let Some(run) = self.shared.store.latest_run(&thread).await? {
            self.charge_all(&run.spent);
        }
        Ok(())
    }
}

/// Stores the end of a child as the answer to its call.
async fn store_end(
    shared: &RuntimeCore,
    question: &SuspensionId,
    payload: Value,
) -> Result<DecideOutcome, RuntimeError> {
    let now = shared.clock.now_ms();
    // The id is the same for every process that finds the child ended.
    let decision_id = DecisionId::from(format!("end_{question}"));
    let resume = ToolCallResume { decision_id, ..Answer::yes(payload).resume(now) };
    let actor = Actor {
        user: "aye".into(),
        channel: CHANNEL_CHILD.into(),
        pid: shared.owner.pid,
        ..Actor::default()
    };
    Ok(shared.store.decide(question, Decision::new(resume, actor), now).await?)
}

/// The work that a call waits for.
fn child_request(ticket: &SuspendTicket) -> ChildRequest {
    match Question::of(&ticket.suspension).details {
        QuestionDetails::Child(request) => request,
        _ => ChildRequest::default(),
    }
}

/// Returns the state of a finished child as its parent's results show it.
async fn end_state(
    shared: &RuntimeCore,
    agent: &str,
    call: &CallId,
    result: &AgentRunResult,
) -> Result<ChildRunState, RuntimeError> {
    let spent = shared.store.load_run(&result.run_id).await?.map(|run| run.spent).unwrap_or_default();
    Ok(ChildRunState {
        agent: agent.to_owned(),
        thread_id: result.thread_id.to_string(),
        parent_call_id: call.to_string(),
        status: ChildStatus::of_end(&result.termination),
        steps: result.steps,
        tokens: result.usage.total(),
        spent,
        ..ChildRunState::default()
    })
}

impl AgentRuntime {
    /// Stores the answer to the call that waits for a child which ended while its parent had no driver. The
    /// call resumes when its parent does.
    pub(super) async fn answer_for(&self, child: &ChildRecord) -> Result<(), RuntimeError> {
        let shared = &self.inner.shared;
        let Some(run) =
            shared.store.latest_run(&child.thread_id).await?.filter(|run| run.status == RunStatus::Done)
        else {
            return Ok(());
        };
        let result = self.result_of(run).await?;
        let filter = SuspensionFilter {
            run: Some(child.parent_run.clone()),
            status: Some(SuspensionStatus::Open),
            ..SuspensionFilter::default()
        };
        let rows = shared.store.suspensions(filter).await?;
        let Some(row) = rows.iter().find(|row| row.call_id == child.parent_call && row.ticket.is_served())
        else {
            return Ok(());
        };
        let state = end_state(shared, &child.agent, &child.parent_call, &result).await?;
        let host = shared.host_of(&child.agent);
        let payload = delegate::payload(&child.agent, host.as_deref(), &result, &json!(state));
        store_end(shared, &row.id, payload).await?;
        self.inner.live.rows_changed(|thread| *thread == child.parent_thread);
        Ok(())
    }

    /// Creates the thread of a child, unless it exists.
    async fn make_child(&self, child: ChildRecord) -> Result<ChildRecord, RuntimeError> {
        let title = format!("{}: {}", child.agent, title_of(&child.prompt));
        let shared = &self.inner.shared;
        Ok(shared.store.create_child(child, title, shared.cwd.clone()).await?)
    }

    /// Drives a child until it is done or waits, whatever progress it has already made.
    fn serve(
        self,
        child: ChildRecord,
        sink: Arc<ChildSink>,
        unknown: UnknownPolicy,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<AgentRunResult, RuntimeError>> {
        Box::pin(async move {
            let runtime = self.of_child(&child).await?;
            let child = runtime.make_child(child).await?;
            let thread = child.thread_id.clone();
            loop {
                let slot = runtime.enter(&thread, &*sink).await;
                // From here on the slot receives a cancel itself.
                if stop.is_cancelled() {
                    return Err(RuntimeError::NothingToResume { thread_id: thread });
                }
                match runtime.acquire(&thread).await {
                    Ok(lease_guard) => {
                        let result =
                            Box::pin(runtime.serve_fenced(&child, slot, &lease_guard.lease, sink, unknown))
                                .await;
                        runtime.release(lease_guard).await;
                        return self.after_child(&child, result).await;
                    }
                    // A process that lost the parent, and does not know it yet.
                    Err(RuntimeError::ThreadAlreadyRunning { .. }) => {
                        drop(slot);
                        sink.waits();
                        tokio::select! {
                            free = self.wait_until_free(&thread) => free?,
                            () = stop.cancelled() => {}
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        })
    }

    /// Waits until the one who drives a thread says that it ceased to, or its time is over.
    async fn wait_until_free(&self, thread: &ThreadId) -> Result<(), RuntimeError> {
        let mut watch = self.inner.shared.store.watch()?;
        let Some(term) = self.driven_elsewhere(thread).await? else { return Ok(()) };
        tokio::select! {
            () = async { while !watch.next().await.concerns(thread) {} } => {}
            // A process that dies publishes no change.
            () = tokio::time::sleep(term.min(Duration::from_secs(1))) => {}
        }
        Ok(())
    }

    pub(super) async fn serve_fenced(
        &self,
        child: &ChildRecord,
        slot: Slot,
        lease: &Arc<Lease>,
        sink: Arc<dyn EventSink>,
        unknown: UnknownPolicy,
    ) -> Result<AgentRunResult, RuntimeError> {
        let thread = &child.thread_id;
        let stored = self.stored_thread(thread).await?;
        let result = match stored.newest_run() {
            Some(run) if run.status == RunStatus::Done => self.result_of(run.clone()).await,
            Some(_) => Box::pin(self.resume_fenced(stored, slot, lease, sink, unknown)).await,
            None if self.is_unwanted(thread).await? => {
                Err(RuntimeError::ResolveFailed { message: "it was stopped before it started".into() })
            }
            None => {
                let shared = &self.inner.shared;
                let parent = shared.store.load_run(&child.parent_run).await?;
                // A run and its children see the same agents from its start to its end.
                let revision = parent.as_ref().map_or(0, RunDocument::revision_of);
                let own = shared.catalog_at(revision).agents.get(&child.agent).map(|spec| spec.model.clone());
                let model = child.model.as_deref().filter(|_| own.is_some_and(|own| own.is_empty()));
                let agent = shared.resolve_at(revision, &child.agent, model)?;
                let mut request = RunRequest::new(thread.clone(), vec![Message::user(&child.prompt)]);
                request.parent_run_id = Some(child.parent_run.clone());
                request.correlation_id = parent.and_then(|parent| parent.correlation_id);
                Box::pin(self.run_fenced(request, agent, stored, slot, lease, sink)).await
            }
        };
        if result.as_ref().is_ok_and(|result| result.termination == TerminationReason::Suspended) {
            self.watch_remote(child);
        } else if result.is_ok() {
            if let Some(remote) = self.remote_of(child) {
                remote.forget().await;
            }
            // Nothing will continue the child's conversation.
            self.inner.shared.commands.end_below(thread, CommandReport::Known).await;
        }
        result
    }

    pub(super) fn remote_of(&self, child: &ChildRecord) -> Option<Arc<dyn RemoteConversation>> {
        let shared = &self.inner.shared;
        let spec = shared.catalog().agents.get(&child.agent).cloned()?;
        shared.conversation(&spec, &child.thread_id)
    }

    async fn is_unwanted(&self, thread: &ThreadId) -> Result<bool, RuntimeError> {
        Ok(self.inner.shared.store.child(thread).await?.is_some_and(|child| child.stop))
    }

    /// Returns the result of a finished run, whichever process drove it.
    ///
    /// # Errors
    /// [`RuntimeError::Store`], [`RuntimeError::Damaged`].
    pub async fn result_of(&self, run: RunRecord) -> Result<AgentRunResult, RuntimeError> {
        let store = &self.inner.shared.store;
        let answer = store.last_answer(&run.thread_id, Some(&run.id)).await?;
        let messages = store.message_count(&run.thread_id).await?;
        Ok(AgentRunResult {
            thread_id: run.thread_id,
            run_id: run.id,
            response: answer.as_ref().map(Message::text).unwrap_or_default(),
            termination: run.termination.unwrap_or(TerminationReason::NaturalEnd),
            error_code: None,
            retry_at: None,
            stop_reason: answer.as_ref().and_then(stop_reason_of),
            steps: run.steps,
            usage: run.usage,
            waiting: Vec::new(),
            expired: Vec::new(),
            messages,
        })
    }

    /// Ends the run of a child that no longer has a driver here; does nothing to a run that is done or never
    /// started.
    pub(super) fn end_child(
        &self,
        thread: ThreadId,
        superseded: bool,
    ) -> BoxFuture<'static, Result<(), RuntimeError>> {
        let runtime = self.clone();
        Box::pin(async move {
            while runtime.unfinished(&thread).await?.is_some() {
                let slot = runtime.enter(&thread, &NullEventSink).await;
                match runtime.acquire(&thread).await {
                    Ok(lease_guard) => {
                        let sink = Arc::new(NullEventSink);
                        let ended = Box::pin(runtime.cancel_fenced(
                            &thread,
                            slot,
                            &lease_guard.lease,
                            sink,
                            superseded,
                        ))
                        .await;
                        runtime.release(lease_guard).await;
                        return ended.map(drop);
                    }
                    Err(RuntimeError::ThreadAlreadyRunning { .. }) => {
                        drop(slot);
                        runtime.wait_until_free(&thread).await?;
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }
}
