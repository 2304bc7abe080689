//! Stores what a driver produces: results, outcomes, questions, and the checkpoints that make them durable.

use serde::Deserialize as _;

use super::document::{CallResult, FORMAT, RunDocument};
use super::driver::Driver;
use super::parts::Unsaved;
use super::request::RuntimeError;
use super::result_text;
use super::user_edit::CallProgress;
use aye_core::contract::ids::{CallId, SuspensionId};
use aye_core::contract::inference::{ModelUsage, TokenUsage};
use aye_core::contract::lifecycle::{RunStatus, ToolCallOutcome};
use aye_core::contract::message::{Message, Role, ToolCall, Visibility};
use aye_core::contract::question::{Question, QuestionDetails, QuestionParameters};
use aye_core::contract::record::{
    AttemptId, Checkpoint, OutcomeKind, OutcomeRecord, RunRecord, SuspensionRecord, SuspensionStatus,
};
use aye_core::contract::storage::StoreError;
use aye_core::contract::suspension::{
    ACTION_CHILD_RUN, CHANNEL_POLICY, CHANNEL_REMOTE, SuspendTicket, ToolCallResume,
};
use aye_core::contract::tool::ToolResult;
use aye_core::phase::StepShape;
use aye_core::run::{Call, Closing, Stage};
use aye_core::state::KeyScope;

impl Driver {
    pub(super) fn append_message(&mut self, message: Message) {
        self.history.push(message.clone());
        self.unsaved.messages.push(message);
    }

    pub(super) fn tool_call(&self, id: &CallId) -> Result<&ToolCall, RuntimeError> {
        self.step
            .call(id)
            .ok_or_else(|| RuntimeError::Internal(format!("run {} has no call {id}", self.record.id)))
    }

    /// The tool of a call; of a plugin's question, who asks.
    pub(super) fn tool_name(&self, id: &CallId) -> String {
        match (self.step.call(id), self.open.tickets.get(id)) {
            (Some(call), _) => call.name.clone(),
            (None, Some(ticket)) => ticket.pending.name.clone(),
            (None, None) => String::new(),
        }
    }

    /// Keeps a ticket's row and what the card shows of it.
    pub(super) fn open(&mut self, call: &CallId, ticket: &mut SuspendTicket) {
        if let Some(id) =
            self.record.correlation_id.clone().filter(|_| ticket.suspension.parameters.is_object())
        {
            let correlation_id = Some(id);
            ticket.suspension.add(QuestionParameters { correlation_id, ..QuestionParameters::default() });
        }
        self.open.tickets.insert(call.clone(), ticket.clone());
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
        self.step.set_result(CallResult { call: call.clone(), outcome, result });
    }

    pub(super) fn record_outcome(&mut self, call: &CallId, attempt: u32, kind: OutcomeKind) {
        let Some(result) = self.step.result(call) else { return };
        self.unsaved.outcomes.push(OutcomeRecord {
            id: AttemptId { run_id: self.record.id.clone(), call_id: call.clone(), attempt },
            kind,
            outcome: result.outcome,
            result: result.result.clone(),
            ended_at: self.shared.clock.now_ms(),
        });
    }

    /// Returns who declined the call: the row of its question records this, however the answer arrived.
    pub(super) async fn decliner(
        &mut self,
        call: &CallId,
        closing: &Closing,
    ) -> Result<Decliner, RuntimeError> {
        let (Closing::Declined { .. } | Closing::Skipped, Some(ticket)) =
            (closing, self.open.tickets.get(call))
        else {
            return Ok(Decliner::User);
        };
        let row = self.shared.store.suspension(&ticket.suspension.id).await?;
        Ok(match row.and_then(|row| row.decided_by).as_ref().map(|by| by.channel.as_str()) {
            Some(CHANNEL_POLICY) => Decliner::Policy,
            Some(CHANNEL_REMOTE) => Decliner::RemoteAgent,
            _ => Decliner::User,
        })
    }

    /// Sets the result of a call according to how it was closed.
    pub(super) fn close(&mut self, call: &CallId, closing: &Closing, decliner: Decliner) {
        let by_policy = decliner == Decliner::Policy;
        let tool = self.tool_name(call);
        let ticket = self.open.tickets.get(call).cloned();
        // The machine hands a decision over with its fact and forgets it with the closing.
        let decision = self.open.decisions.remove(call);
        let printed = self.in_flight.end_output(call).map(|output| output.tail());
        let output = printed.unwrap_or_default();
        let output = if output.is_empty() { output_of(ticket.as_ref()) } else { output };
        let (mut result, outcome) = match closing {
            Closing::Declined { reason } if by_policy => {
                result_text::no_user_result(&tool, reason.as_deref())
            }
            Closing::Declined { .. } if decliner == Decliner::RemoteAgent => {
                result_text::answered_remotely_result(&tool)
            }
            Closing::Skipped if by_policy => {
                (result_text::unknown_result(&tool, &output), ToolCallOutcome::Failed)
            }
            _ => result_text::closing_result(
                &tool,
                closing,
                decision.as_ref(),
                &output,
                action_of(ticket.as_ref()),
            ),
        };
        if matches!(closing, Closing::Answered)
            && action_of(ticket.as_ref()) == ACTION_CHILD_RUN
            && let Some(decision) = &decision
        {
            // A child works for this run, and counts against its budget.
            let spent =
                Vec::<ModelUsage>::deserialize(&decision.result["state"]["spent"]).unwrap_or_default();
            if spent.is_empty() {
                let usage = TokenUsage::deserialize(&decision.result["usage"]);
                self.record.usage.add(&usage.unwrap_or_default());
            }
            self.charge_all(&spent);
        }
        let remark = decision.as_ref().and_then(ToolCallResume::comment);
        result.touched = match closing {
            Closing::Answered => self.touched(call, CallProgress::Answered, remark),
            Closing::SaidDone | Closing::Skipped => self.touched(call, CallProgress::Ran, remark),
            Closing::Interrupted | Closing::Stopped { .. } => self.touched(call, CallProgress::Ran, None),
            // Their words hold what was said.
            Closing::Declined { .. } | Closing::ChangeWanted { .. } | Closing::BadPayload => None,
            Closing::Expired
            | Closing::Due
            | Closing::Superseded
            | Closing::NotRun
            | Closing::Blocked { .. } => self.touched(call, CallProgress::NotRun, None),
        };
        self.record_result(call, result, outcome);
        let attempt = self.machine.call(call).map_or(0, |c| c.attempt);
        match closing {
            Closing::Interrupted | Closing::Stopped { .. } => {
                self.record_outcome(call, attempt, OutcomeKind::Cancelled);
            }
            Closing::SaidDone | Closing::Skipped => self.record_outcome(call, attempt, OutcomeKind::Unknown),
            Closing::Declined { .. }
            | Closing::ChangeWanted { .. }
            | Closing::Answered
            | Closing::BadPayload
            | Closing::Expired
            | Closing::Due
            | Closing::Superseded
            | Closing::NotRun
            | Closing::Blocked { .. } => {}
        }
        if let Some(ticket) = ticket {
            let status = match closing {
                Closing::Declined { .. } if decliner == Decliner::RemoteAgent => SuspensionStatus::Superseded,
                Closing::Declined { .. }
                | Closing::ChangeWanted { .. }
                | Closing::Answered
                | Closing::BadPayload
                | Closing::SaidDone
                | Closing::Skipped => SuspensionStatus::Applied,
                Closing::Expired | Closing::Due => SuspensionStatus::Expired,
                Closing::Superseded | Closing::NotRun | Closing::Blocked { .. } => {
                    SuspensionStatus::Superseded
                }
                // It ran, so its decision was spent with the intent.
                Closing::Interrupted | Closing::Stopped { .. } => return,
            };
            if matches!(closing, Closing::Expired) {
                self.answers.note_expired(ticket.suspension.id.clone());
            }
            let id = ticket.suspension.id;
            let asked = self.unsaved.opened.len();
            self.unsaved.opened.retain(|row| row.id != id);
            // One that was never written need not be closed.
            if self.unsaved.opened.len() == asked {
                self.unsaved.closed.push((id, status));
            }
        }
    }

    /// Writes what is true now. Nothing new to say is nothing written, unless the run is over or waits.
    pub(super) async fn checkpoint(&mut self) -> Result<(), RuntimeError> {
        self.record_step();
        let status = self.machine.status();
        if self.unsaved.is_empty() && status == self.record.status && status == RunStatus::Running {
            return Ok(());
        }
        let mut checkpoint = self.take_checkpoint()?;
        // Calls that were moved to the background, and children, still write under the lease of their run.
        checkpoint.releases = status == RunStatus::Done
            && !self.keeps_lease
            && self.lineage.is_none()
            && self.in_flight.is_empty()
            && !self.children.is_any_active();
        let releases = checkpoint.releases;
        loop {
            // Only questions may have names that others took.
            let again = (!checkpoint.opened.is_empty()).then(|| checkpoint.clone());
            let opened = checkpoint.opened.clone();
            match (self.shared.store.checkpoint(checkpoint).await, again) {
                (Ok(()), _) => {
                    if releases {
                        self.lease.note_release();
                    }
                    self.render_questions(&opened);
                    return Ok(());
                }
                (Err(StoreError::Exists { what }), Some(again)) => {
                    checkpoint = self.rename_questions(again, &what).await?;
                }
                (Err(error), _) => return Err(self.store_error(&error)),
            }
        }
    }

    /// Gives questions other ids whose ids another process took since they were chosen. Nobody was asked them yet: the
    /// checkpoint that asks them was refused, because `what` already exists.
    pub(super) async fn rename_questions(
        &mut self,
        mut refused: Checkpoint,
        what: &str,
    ) -> Result<Checkpoint, RuntimeError> {
        let mut is_renamed = false;
        for row in &mut refused.opened {
            if self.shared.store.suspension(&row.id).await?.is_none() {
                continue;
            }
            let fresh = another_id(&row.id);
            tracing::info!(taken = %row.id, %fresh, "another process asked a question of this id");
            is_renamed |= self.machine.rename_question(&row.id, &fresh);
            if let Some(ticket) = self.open.tickets.get_mut(&row.call_id) {
                ticket.suspension.id = fresh.clone();
            }
            row.ticket.suspension.id = fresh.clone();
            row.id = fresh;
        }
        if !is_renamed {
            return Err(RuntimeError::Store(format!("{what} already exists")));
        }
        refused.run = self.row()?;
        Ok(refused)
    }

    /// Notifies the renderers of new questions. The questions are already stored, so they
    /// can be answered at once.
    pub(super) fn render_questions(&self, opened: &[SuspensionRecord]) {
        for question in opened.iter().filter(|question| !question.ticket.is_served()) {
            for renderer in &self.shared.renderers {
                renderer.render(question);
            }
        }
    }

    /// Notifies the renderers of the outcome of their questions.
    pub(super) async fn render_outcomes(&mut self) {
        for id in self.answers.take_settled() {
            let record = match self.shared.store.suspension(&id).await {
                Ok(Some(record)) if !record.ticket.is_served() => record,
                Ok(_) => continue,
                Err(error) => {
                    tracing::warn!(%error, question = %id, "the outcome of a question cannot be reported");
                    continue;
                }
            };
            for renderer in &self.shared.renderers {
                match &record.decision {
                    Some(answer) => renderer.decided(&record, answer, record.decided_by.as_ref()),
                    None => renderer.expired(&record),
                }
            }
        }
    }

    /// Appends the results of a step to the conversation, in call order, once all are there.
    pub(super) fn record_step(&mut self) {
        // A result that the machine has not been given yet may be a different one after a crash.
        let closed = self.machine.calls().iter().all(Call::is_closed);
        if self.step.recorded || self.step.calls.is_empty() || !self.step.is_whole() || !closed {
            return;
        }
        self.step.recorded = true;
        let visibility = self.visibility_of_step();
        for mut message in self.step.tool_messages() {
            message.visibility = visibility;
            self.append_message(message);
        }
        if std::mem::take(&mut self.packing.was_cut) {
            self.ask_to_continue_answer();
        }
    }

    /// Returns the visibility of this step's results: that of the message that asked for them.
    fn visibility_of_step(&self) -> Visibility {
        let asks = |message: &Message| message.role == Role::Assistant && !message.tool_calls.is_empty();
        self.history
            .loaded()
            .rev()
            .find(|message| asks(message))
            .map_or(Visibility::All, |asks| asks.visibility)
    }

    pub(super) fn take_checkpoint(&mut self) -> Result<Checkpoint, RuntimeError> {
        let thread_state = self.phases.store().export(Some(KeyScope::Thread))?.values;
        let thread_state = (thread_state != self.saved_thread_state).then(|| {
            self.saved_thread_state.clone_from(&thread_state);
            thread_state
        });
        let run = self.row()?;
        let unsaved = std::mem::take(&mut self.unsaved);
        // A question and the machine that asks it are written together: calls are judged concurrently, and
        // the machine receives their facts one by one. Questions that the machine does not know yet wait for
        // the next checkpoint; after a crash before that, the call is judged again.
        let holds = |id: &SuspensionId| {
            let of_calls = self.machine.calls().iter().filter_map(Call::ticket);
            let asked = self.machine.asking().map(|question| &question.ticket);
            of_calls.chain(asked).any(|ticket| ticket.suspension.id == *id)
        };
        let (opened, early) = unsaved.opened.into_iter().partition(|row| holds(&row.id));
        let (held, closed) = unsaved.closed.into_iter().partition(|(id, _)| holds(id));
        self.unsaved.opened = early;
        self.unsaved.closed = held;
        Ok(Checkpoint {
            fence: self.lease.fence().clone(),
            run,
            messages: unsaved.messages,
            thread_state,
            prefix: unsaved.prefix,
            opened,
            closed,
            outcomes: unsaved.outcomes,
            judged: unsaved.judged,
            commands: unsaved.commands,
            takes: unsaved.takes,
            releases: false,
        })
    }

    /// The run's row as it is now.
    pub(super) fn row(&mut self) -> Result<RunRecord, RuntimeError> {
        self.charge_bill();
        let now = self.shared.clock.now_ms();
        self.record.active_ms = self.active_ms();
        self.active_since = self.shared.clock.awake_ms();
        self.record.updated_at = now;
        self.record.status = self.machine.status();
        self.record.termination = self.machine.termination().cloned();
        self.record.state = self.phases.store().export(Some(KeyScope::Run))?.values;
        if !may_infer_again(self.machine.stage()) {
            StepShape::drop_messages(&mut self.record.state);
        }
        self.record.machine = RunDocument {
            format: FORMAT,
            machine: self.machine.clone(),
            revision: self.handoff.base().revision,
            step: self.step.clone(),
        }
        .to_value();
        Ok(self.record.clone())
    }

    /// Whether what is unsaved is the answer that ended the run: the end of the run follows, and one commit writes both.
    pub(super) fn is_written_at_the_end(&self) -> bool {
        let Unsaved { messages, prefix: _, opened, closed, outcomes, judged, commands, takes, run: _ } =
            &self.unsaved;
        matches!(self.machine.stage(), Stage::Ending(_))
            && self.step.calls.is_empty()
            && messages.iter().all(Message::is_from_agent)
            && opened.is_empty()
            && closed.is_empty()
            && outcomes.is_empty()
            && judged.is_empty()
            && commands.is_empty()
            && takes.is_none()
    }

    pub(super) fn has_unsaved_rows(&self) -> bool {
        !self.unsaved.messages.is_empty()
            || !self.unsaved.opened.is_empty()
            || !self.unsaved.closed.is_empty()
            || !self.unsaved.outcomes.is_empty()
            || self.unsaved.takes.is_some()
    }

    pub(super) fn store_error(&self, error: &StoreError) -> RuntimeError {
        match error {
            StoreError::Fenced { .. } => RuntimeError::Fenced { thread_id: self.record.thread_id.clone() },
            StoreError::NotQueued { thread, id } => {
                RuntimeError::NotQueued { thread_id: thread.clone(), id: *id }
            }
            StoreError::Full => RuntimeError::Full,
            other => RuntimeError::Store(other.to_string()),
        }
    }
}

/// Whether a run that another process resumes at this stage asks the model without running the hooks that shape the request
/// first.
fn may_infer_again(stage: &Stage) -> bool {
    match stage {
        Stage::Inferring | Stage::Asking(_) => true,
        Stage::Created | Stage::Phase(_) | Stage::Tools | Stage::Ending(_) | Stage::Done(_) => false,
    }
}

/// Returns an id for a question whose id is taken.
pub(super) fn another_id(taken: &SuspensionId) -> SuspensionId {
    let tail = uuid::Uuid::now_v7().simple().to_string();
    SuspensionId::from(format!("{taken}_{}", &tail[tail.len() - 8..]))
}

/// Says who declined a call, or chose to skip one whose outcome is unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Decliner {
    User,
    /// A setting: nobody could be asked.
    Policy,
    /// The remote agent that asked, because it no longer needs the answer.
    RemoteAgent,
}

/// Returns the action of a question, which determines the kind of answer.
fn action_of(ticket: Option<&SuspendTicket>) -> &str {
    ticket.map(|ticket| ticket.suspension.action.as_str()).unwrap_or_default()
}

/// Returns the output of the call that a question about an unknown outcome contains.
fn output_of(ticket: Option<&SuspendTicket>) -> String {
    match ticket.map(|ticket| Question::of(&ticket.suspension).details) {
        Some(QuestionDetails::UnknownOutcome(known)) => known.output.unwrap_or_default(),
        _ => String::new(),
    }
}
