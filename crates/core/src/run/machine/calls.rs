//! The calls of a step: judged, started, suspended, answered, ended.

use super::super::{
    Call, CallState, Closing, DecisionEffect, Directive, Gate, Notice, RefusedFact, Settled, Stage,
};
use super::{Next, Run, done};
use crate::contract::executor::{DecisionReplayPolicy, ToolExecutionMode};
use crate::contract::ids::{CallId, SuspensionId};
use crate::contract::lifecycle::{TerminationReason, ToolCallStatus};
use crate::contract::suspension::{SuspendTicket, ToolCallResume};
use crate::state::Phase;

impl Run {
    pub(super) fn inferred(&mut self, calls: Vec<CallId>) -> Next {
        if self.stage != Stage::Inferring {
            return if self.is_over() { Ok(Vec::new()) } else { Err(self.refuse()) };
        }
        if let Some(doubled) = calls.iter().enumerate().find(|(i, id)| calls[..*i].contains(id)) {
            return Err(RefusedFact::DoubledCall(doubled.1.clone()));
        }
        self.calls = calls.into_iter().map(Call::new).collect();
        let mut out = Vec::new();
        self.enter(Phase::AfterInference, &mut out);
        Ok(out)
    }

    /// The call, when it is one of this step and the run is at its tools.
    pub(super) fn at_tools(&self, id: &CallId) -> Result<usize, RefusedFact> {
        if self.stage != Stage::Tools {
            return Err(self.refuse());
        }
        self.calls.iter().position(|call| call.id == *id).ok_or_else(|| RefusedFact::UnknownCall(id.clone()))
    }

    pub(super) fn refuse_call(&self, index: usize) -> RefusedFact {
        let call = &self.calls[index];
        RefusedFact::Call { call: call.id.clone(), status: call.status() }
    }

    pub(super) fn gated(&mut self, id: &CallId, gate: Gate) -> Next {
        if self.is_over() {
            return Ok(Vec::new());
        }
        let index = self.at_tools(id)?;
        let allowed_by = match &self.calls[index].state {
            CallState::Gating => None,
            CallState::Regating { ticket, decision } => Some((ticket.clone(), decision.clone())),
            CallState::New
            | CallState::Suspended { .. }
            | CallState::Held { .. }
            | CallState::Running { .. }
            | CallState::Closed { .. } => return Err(self.refuse_call(index)),
        };
        let mut out = Vec::new();
        match gate {
            Gate::Proceed => {
                let call = &mut self.calls[index];
                call.attempt += 1;
                call.state = CallState::Running { allowed_by };
                out.push(Directive::Checkpoint { intent: Some(id.clone()) });
                out.push(Directive::Execute { call: id.clone() });
                self.advance(&mut out);
            }
            Gate::Suspend(ticket) => self.suspend(index, ticket, &mut out),
            Gate::SetResult { succeeded } => self.close(index, done(succeeded), None, &mut out),
            Gate::Block { reason } => {
                let closing = Closing::Blocked { reason: reason.clone() };
                return Ok(self.end(TerminationReason::Blocked(reason), false, Some((index, closing))));
            }
        }
        Ok(out)
    }

    pub(super) fn settled(&mut self, id: &CallId, outcome: Settled) -> Next {
        if self.is_over() {
            return Ok(Vec::new());
        }
        let index = self.at_tools(id)?;
        if !matches!(self.calls[index].state, CallState::Running { .. }) {
            return Err(self.refuse_call(index));
        }
        let mut out = Vec::new();
        match outcome {
            Settled::Succeeded => self.close(index, ToolCallStatus::Succeeded, None, &mut out),
            Settled::Failed => self.close(index, ToolCallStatus::Failed, None, &mut out),
            Settled::Suspended(ticket) => self.suspend(index, ticket, &mut out),
        }
        Ok(out)
    }

    pub(super) fn suspend(&mut self, index: usize, ticket: SuspendTicket, out: &mut Vec<Directive>) {
        let call = &mut self.calls[index];
        // A new question wants a new answer: the old one is not carried over to it.
        call.decided_by = None;
        call.state = CallState::Suspended { ticket };
        let id = call.id.clone();
        out.push(Directive::Checkpoint { intent: None });
        out.push(Directive::Emit(Notice::CallDone(id, ToolCallStatus::Suspended)));
        self.advance(out);
    }

    pub(super) fn close(
        &mut self,
        index: usize,
        status: ToolCallStatus,
        closing: Option<Closing>,
        out: &mut Vec<Directive>,
    ) {
        let call = &mut self.calls[index];
        call.state = CallState::Closed { status };
        let id = call.id.clone();
        if let Some(closing) = closing {
            out.push(Directive::Record { call: id.clone(), closing });
        }
        out.push(Directive::Checkpoint { intent: None });
        out.push(Directive::Emit(Notice::CallDone(id, status)));
        self.advance(out);
    }

    pub(super) fn decided(
        &mut self,
        id: &CallId,
        suspension: &SuspensionId,
        decision: ToolCallResume,
    ) -> Next {
        let index = self.at_tools(id)?;
        if let Some(by) = &self.calls[index].decided_by {
            if *by == decision.decision_id {
                return Ok(Vec::new());
            }
            if !self.calls[index].is_closed() {
                return Err(RefusedFact::AlreadyDecided { call: id.clone(), by: by.clone() });
            }
        }
        let CallState::Suspended { ticket } = &self.calls[index].state else {
            return Err(self.refuse_call(index));
        };
        if ticket.suspension.id != *suspension {
            return Err(RefusedFact::OtherQuestion { call: id.clone() });
        }
        let ticket = ticket.clone();
        let verdict = DecisionEffect::of(&ticket, &decision);
        self.calls[index].decided_by = Some(decision.decision_id.clone());
        let mut out = Vec::new();
        let (status, closing) = match verdict {
            DecisionEffect::Run => {
                self.calls[index].keep(&ticket, &decision);
                self.calls[index].state = CallState::Held { ticket, decision };
                self.advance(&mut out);
                if matches!(self.calls[index].state, CallState::Held { .. }) {
                    // Nothing else writes it down: the batch still waits for other answers.
                    out.insert(0, Directive::Checkpoint { intent: None });
                }
                return Ok(out);
            }
            DecisionEffect::Decline => {
                (ToolCallStatus::Cancelled, Closing::Declined { reason: decision.reason.clone() })
            }
            DecisionEffect::Change => {
                let feedback = decision.comment().unwrap_or_default().to_owned();
                (ToolCallStatus::Cancelled, Closing::ChangeWanted { feedback })
            }
            DecisionEffect::Answer => (ToolCallStatus::Succeeded, Closing::Answered),
            DecisionEffect::Failure => (ToolCallStatus::Failed, Closing::Answered),
            DecisionEffect::BadPayload => (ToolCallStatus::Failed, Closing::BadPayload),
            DecisionEffect::SaidDone => (ToolCallStatus::Succeeded, Closing::SaidDone),
            DecisionEffect::Skip => (ToolCallStatus::Failed, Closing::Skipped),
        };
        self.announce(&mut out);
        out.push(Directive::Emit(Notice::CallResumed(id.clone())));
        self.close(index, status, Some(closing), &mut out);
        Ok(out)
    }

    /// Marks the call as possibly started, whatever its batch waits for here: in the original run, the other
    /// calls may have been answered.
    pub(super) fn may_have_started(&mut self, id: &CallId) -> Next {
        let index = self.at_tools(id)?;
        let call = &mut self.calls[index];
        let (CallState::Held { ticket, decision } | CallState::Regating { ticket, decision }) = &call.state
        else {
            return Err(self.refuse_call(index));
        };
        call.state = CallState::Running { allowed_by: Some((ticket.clone(), decision.clone())) };
        call.attempt += 1;
        Ok(vec![Directive::Checkpoint { intent: Some(id.clone()) }])
    }

    pub(super) fn expired(&mut self, id: &CallId, suspension: &SuspensionId) -> Next {
        let index = self.at_tools(id)?;
        let CallState::Suspended { ticket } = &self.calls[index].state else {
            return Err(self.refuse_call(index));
        };
        if ticket.suspension.id != *suspension {
            return Err(RefusedFact::OtherQuestion { call: id.clone() });
        }
        let mut out = Vec::new();
        self.announce(&mut out);
        self.close(index, ToolCallStatus::Failed, Some(Closing::Expired), &mut out);
        Ok(out)
    }

    /// Admits the calls that the execution mode allows, and announces when the step is done or only answers
    /// can continue it.
    pub(super) fn advance(&mut self, out: &mut Vec<Directive>) {
        self.admit(out);
        if self.calls.iter().all(Call::is_closed) {
            self.enter(Phase::StepEnd, out);
        } else if self.announced && self.is_waiting() {
            self.announced = false;
            // Directives are carried out in the machine's current state, so one checkpoint covers everything.
            if !out.contains(&Directive::Checkpoint { intent: None }) {
                out.push(Directive::Checkpoint { intent: None });
            }
            self.close_step(out);
            out.push(Directive::Emit(Notice::RunFinish(TerminationReason::Suspended)));
        }
    }

    pub(super) fn admit(&mut self, out: &mut Vec<Directive>) {
        // A call that another agent works on does not wait for a user's answer.
        let undecided = self.calls.iter().any(|call| match &call.state {
            CallState::New | CallState::Gating => true,
            CallState::Suspended { ticket } => !ticket.is_served(),
            CallState::Held { .. }
            | CallState::Regating { .. }
            | CallState::Running { .. }
            | CallState::Closed { .. } => false,
        });
        for index in 0..self.calls.len() {
            let in_flight = self.calls.iter().any(Call::is_in_flight);
            let suspended = self.calls.iter().any(|call| matches!(call.state, CallState::Suspended { .. }));
            let may = match (&self.calls[index].state, self.mode) {
                (CallState::New, ToolExecutionMode::Sequential) => !in_flight && !suspended,
                (CallState::New, _) => true,
                (CallState::Held { .. }, ToolExecutionMode::Sequential) => !in_flight,
                (CallState::Held { .. }, mode) => match mode.decision_replay_policy() {
                    DecisionReplayPolicy::Immediate => true,
                    DecisionReplayPolicy::BatchAllSuspended => !undecided,
                },
                (
                    CallState::Gating
                    | CallState::Suspended { .. }
                    | CallState::Regating { .. }
                    | CallState::Running { .. }
                    | CallState::Closed { .. },
                    _,
                ) => false,
            };
            if may {
                self.gate(index, out);
            }
        }
    }

    pub(super) fn gate(&mut self, index: usize, out: &mut Vec<Directive>) {
        self.announce(out);
        let call = &mut self.calls[index];
        let id = call.id.clone();
        let state = std::mem::replace(&mut call.state, CallState::Gating);
        let resume = if let CallState::Held { ticket, decision } = state {
            out.push(Directive::Emit(Notice::CallResumed(id.clone())));
            call.state = CallState::Regating { ticket, decision: decision.clone() };
            Some(decision)
        } else {
            None
        };
        out.push(Directive::Gate { call: id, resume });
    }
}
