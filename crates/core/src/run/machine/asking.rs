//! What a plugin asks at the boundary of a phase.

use super::super::{Closing, Directive, Notice, RefusedFact, RunQuestion, Stage};
use super::{Next, Run};
use crate::contract::ids::{CallId, SuspensionId};
use crate::contract::lifecycle::{TerminationReason, ToolCallStatus};
use crate::contract::suspension::{ResumeDecisionAction, ToolCallResume};
use crate::state::Phase;

impl Run {
    pub(super) fn phase_asked(&mut self, phase: Phase, question: RunQuestion) -> Next {
        if self.is_over() {
            return Ok(Vec::new());
        }
        let may_ask = match phase {
            Phase::RunStart
            | Phase::StepStart
            | Phase::BeforeInference
            | Phase::AfterInference
            | Phase::StepEnd => true,
            // The phases of a call ask about that call, and nothing continues after the last phase.
            Phase::BeforeToolExecute | Phase::AfterToolExecute | Phase::RunEnd => false,
        };
        if self.stage != Stage::Phase(phase) || !may_ask {
            return Err(self.refuse());
        }
        Ok(self.ask(phase, question))
    }

    /// Waits before the inference that could not be made.
    pub(super) fn postponed(&mut self, question: RunQuestion) -> Next {
        if self.is_over() {
            return Ok(Vec::new());
        }
        if self.stage != Stage::Inferring {
            return Err(self.refuse());
        }
        self.steps = self.steps.saturating_sub(1);
        Ok(self.ask(Phase::BeforeInference, question))
    }

    fn ask(&mut self, phase: Phase, question: RunQuestion) -> Vec<Directive> {
        let id = question.ticket.pending.id.clone();
        self.stage = Stage::Asking(phase);
        self.asking = Some(RunQuestion { decision: None, ..question });
        self.announced = false;
        let mut out = vec![
            Directive::Checkpoint { intent: None },
            Directive::Emit(Notice::CallDone(id, ToolCallStatus::Suspended)),
        ];
        self.close_step(&mut out);
        out.push(Directive::Emit(Notice::RunFinish(TerminationReason::Suspended)));
        out
    }

    /// Returns the plugin's question, if the ids match and no other decision has answered it. `Ok(None)`:
    /// this decision is already known.
    pub(super) fn question_of(
        &mut self,
        id: &CallId,
        suspension: &SuspensionId,
        decision: Option<&ToolCallResume>,
    ) -> Result<Option<&mut RunQuestion>, RefusedFact> {
        let Some(question) = self.asking.as_mut().filter(|question| question.ticket.pending.id == *id) else {
            return Err(RefusedFact::UnknownCall(id.clone()));
        };
        if let Some(taken) = &question.decision {
            let by = taken.decision_id.clone();
            let is_known = decision.is_some_and(|decision| decision.decision_id == by);
            return if is_known {
                Ok(None)
            } else {
                Err(RefusedFact::AlreadyDecided { call: id.clone(), by })
            };
        }
        if question.ticket.suspension.id != *suspension {
            return Err(RefusedFact::OtherQuestion { call: id.clone() });
        }
        Ok(Some(question))
    }

    pub(super) fn question_decided(
        &mut self,
        id: &CallId,
        suspension: &SuspensionId,
        decision: ToolCallResume,
    ) -> Next {
        let Some(question) = self.question_of(id, suspension, Some(&decision))? else {
            return Ok(Vec::new());
        };
        let declined = decision.action == ResumeDecisionAction::Cancel;
        let reason = decision.reason.clone();
        question.decision = Some(decision);
        let mut out = Vec::new();
        self.announce(&mut out);
        out.push(Directive::Emit(Notice::CallResumed(id.clone())));
        if declined {
            self.end_asked(Closing::Declined { reason }, ToolCallStatus::Cancelled, &mut out);
        } else {
            out.push(Directive::Answer);
        }
        Ok(out)
    }

    pub(super) fn question_expired(&mut self, id: &CallId, suspension: &SuspensionId) -> Next {
        let Some(question) = self.question_of(id, suspension, None)? else { return Ok(Vec::new()) };
        let resumes = question.resumes;
        let mut out = Vec::new();
        self.announce(&mut out);
        if resumes {
            self.asking = None;
            out.push(Directive::Record { call: id.clone(), closing: Closing::Due });
            out.push(Directive::Checkpoint { intent: None });
            out.push(Directive::Emit(Notice::CallDone(id.clone(), ToolCallStatus::Succeeded)));
            self.infer_now(&mut out);
            return Ok(out);
        }
        self.end_asked(Closing::Expired, ToolCallStatus::Failed, &mut out);
        Ok(out)
    }

    /// Ends the run as its question defines, because it must not continue.
    pub(super) fn end_asked(&mut self, closing: Closing, status: ToolCallStatus, out: &mut Vec<Directive>) {
        let Some(question) = self.asking.take() else { return };
        let call = question.ticket.pending.id;
        out.push(Directive::Record { call: call.clone(), closing });
        out.push(Directive::Emit(Notice::CallDone(call, status)));
        out.extend(self.end(question.otherwise, false, None));
    }

    /// Continues after the phase that asked. The answer is used up together with the plugin's reaction, in
    /// one checkpoint.
    pub(super) fn answered(&mut self, stop: Option<TerminationReason>) -> Next {
        if self.is_over() {
            return Ok(Vec::new());
        }
        let Stage::Asking(phase) = self.stage else { return Err(self.refuse()) };
        let Some(question) = self.asking.take_if(|question| question.decision.is_some()) else {
            return Err(self.refuse());
        };
        let call = question.ticket.pending.id;
        self.stage = Stage::Phase(phase);
        let mut out = vec![
            Directive::Record { call: call.clone(), closing: Closing::Answered },
            Directive::Checkpoint { intent: None },
            Directive::Emit(Notice::CallDone(call, ToolCallStatus::Succeeded)),
        ];
        if question.resumes && stop.is_none() {
            self.infer_now(&mut out);
            return Ok(out);
        }
        Ok([out, self.phase_done(phase, stop)?].concat())
    }

    /// Makes the inference that waited, in a step that is announced again.
    fn infer_now(&mut self, out: &mut Vec<Directive>) {
        self.stage = Stage::Inferring;
        self.steps += 1;
        self.step_open = true;
        out.push(Directive::Emit(Notice::StepStart));
        out.push(Directive::Infer);
    }
}
