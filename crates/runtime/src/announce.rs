//! Emits the events of a run and its result for a driver.

use serde_json::{Value, json};

use super::document::CurrentStep;
use super::driver::Driver;
use super::request::{AgentRunResult, RuntimeError, stop_reason_of};
use aye_core::contract::event::AgentEvent;
use aye_core::contract::ids::{CallId, MessageId};
use aye_core::contract::inference::StopReason;
use aye_core::contract::lifecycle::{RunStatus, TerminationReason, ToolCallOutcome, ToolCallStatus};
use aye_core::contract::message::{Message, Role, ToolCall};
use aye_core::contract::suspension::ToolCallResume;
use aye_core::contract::tool::ToolResult;
use aye_core::run::{Notice, Stage};

impl Driver {
    pub(super) async fn announce(&mut self, notice: Notice) {
        let event = match notice {
            Notice::RunStart => AgentEvent::RunStart {
                thread_id: self.record.thread_id.to_string(),
                run_id: self.record.id.to_string(),
                parent_run_id: self.record.parent_run_id.as_ref().map(ToString::to_string),
            },
            Notice::StepStart if self.machine.is_given() => {
                self.announce_given().await;
                return;
            }
            Notice::StepStart => {
                self.step = CurrentStep::new(MessageId::fresh(), Vec::new());
                self.open.tickets.clear();
                AgentEvent::StepStart { message_id: self.step.message_id.to_string() }
            }
            Notice::StepEnd => AgentEvent::StepEnd,
            Notice::CallResumed(call) => {
                let decision = self.machine.call(&call).and_then(|c| c.decision());
                let result = match decision.or_else(|| self.open.decisions.get(&call)) {
                    Some(ToolCallResume { arguments: Some(arguments), .. }) => json!({"edited": arguments}),
                    Some(decision) => decision.result.clone(),
                    None => Value::Null,
                };
                AgentEvent::ToolCallResumed { target_id: call.to_string(), result }
            }
            Notice::CallDone(call, status) => {
                if let (ToolCallStatus::Suspended, Some(ticket)) = (status, self.open.tickets.get(&call)) {
                    for event in AgentEvent::asked(ticket, self.step.message_id.as_str()) {
                        self.events.emit(event).await;
                    }
                    return;
                }
                self.call_done(&call)
            }
            Notice::RunFinish(termination) => AgentEvent::RunFinish {
                thread_id: self.record.thread_id.to_string(),
                run_id: self.record.id.to_string(),
                result: Some(json!({"response": self.response()})),
                termination,
            },
        };
        let Some(event) = self.withhold_finish(event) else { return };
        match event {
            start @ AgentEvent::RunStart { .. } => {
                self.events.emit(start).await;
                self.announce_whole_state().await;
            }
            finish @ AgentEvent::RunFinish { .. } => {
                self.announce_whole_state().await;
                self.events.emit(finish).await;
            }
            event => self.events.emit(event).await,
        }
    }

    /// The calls that came with the run, as if a model had asked for them.
    async fn announce_given(&mut self) {
        let message_id = self.step.message_id.to_string();
        self.events.emit(AgentEvent::StepStart { message_id }).await;
        for ToolCall { id, name, arguments, .. } in self.step.calls.clone() {
            self.events.emit(AgentEvent::ToolCallStart { id: id.clone(), name: name.clone() }).await;
            self.events.emit(AgentEvent::ToolCallReady { id, name, arguments }).await;
        }
    }

    fn call_done(&self, call: &CallId) -> AgentEvent {
        let tool = self.tool_name(call);
        let (result, outcome) = match self.step.result(call) {
            Some(done) => (done.result.clone(), done.outcome),
            None => (ToolResult::error(tool, "no result"), ToolCallOutcome::Failed),
        };
        AgentEvent::ToolCallDone {
            id: call.to_string(),
            message_id: self.step.message_id.to_string(),
            result,
            outcome,
        }
    }

    /// The text of the last assistant message of this run.
    fn response(&self) -> String {
        self.history
            .loaded()
            .rev()
            .take_while(|m| m.role != Role::User)
            .find(|m| m.role == Role::Assistant)
            .map(Message::text)
            .unwrap_or_default()
    }

    /// Why the model stopped the last time.
    fn stop_reason(&self) -> Option<StopReason> {
        match &self.inference.last_response {
            Some(response) => response.stop_reason,
            None => self.history.loaded().rev().find(|m| m.role == Role::Assistant).and_then(stop_reason_of),
        }
    }

    /// Returns the result of the run, once `drive` has returned.
    pub(super) async fn result(&mut self) -> Result<AgentRunResult, RuntimeError> {
        let waiting = self
            .machine
            .open_tickets()
            .filter_map(|ticket| self.open.tickets.get(&ticket.pending.id))
            .filter(|ticket| !ticket.is_served())
            .map(|ticket| ticket.suspension.id.clone());
        let mut suspensions = Vec::new();
        for id in waiting {
            suspensions.extend(self.shared.store.suspension(&id).await?);
        }
        if self.machine.status() == RunStatus::Waiting {
            let below = self.shared.store.waiting_below(&self.record.thread_id).await?;
            suspensions.extend(below.into_iter().filter(|row| row.thread_id != self.record.thread_id));
        }
        let termination = match self.machine.stage() {
            Stage::Done(reason) => reason.clone(),
            Stage::Created
            | Stage::Phase(_)
            | Stage::Inferring
            | Stage::Tools
            | Stage::Asking(_)
            | Stage::Ending(_) => TerminationReason::Suspended,
        };
        Ok(AgentRunResult {
            thread_id: self.record.thread_id.clone(),
            run_id: self.record.id.clone(),
            response: self.response(),
            termination,
            error_code: self.events.error_code.clone(),
            retry_at: self.events.retry_at,
            stop_reason: self.stop_reason(),
            steps: self.machine.steps(),
            usage: self.record.usage,
            waiting: suspensions,
            expired: self.answers.expired().to_vec(),
            messages: self.history.len() as u64,
        })
    }
}
