use serde::{Deserialize, Serialize};

use super::{
    Call, CallState, Closing, DecisionEffect, Directive, Fact, Gate, Lost, Notice, RefusedFact, RunQuestion,
    Settled, Stage,
};
use crate::contract::executor::{DecisionReplayPolicy, ToolExecutionMode};
use crate::contract::ids::{CallId, SuspensionId};
use crate::contract::lifecycle::{RunStatus, TerminationReason, ToolCallStatus};
use crate::contract::suspension::{ResumeDecisionAction, SuspendTicket, ToolCallResume};
use crate::state::Phase;

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    mode: ToolExecutionMode,
    stage: Stage,
    /// Inferences that were asked for.
    steps: u32,
    calls: Vec<Call>,
    /// `RunStart` was announced and `RunFinish` was not.
    announced: bool,
    /// `StepStart` was announced and `StepEnd` was not.
    step_open: bool,
    /// The calls came with the run: no model is asked, and the run is over with them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    given: bool,
    /// What a plugin asks, at [`Stage::Asking`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asking: Option<RunQuestion>,
}

type Next = Result<Vec<Directive>, RefusedFact>;

impl Run {
    /// A run that has not started.
    pub fn new(mode: ToolExecutionMode) -> Self {
        Self {
            mode,
            stage: Stage::Created,
            steps: 0,
            calls: Vec::new(),
            announced: false,
            step_open: false,
            given: false,
            asking: None,
        }
    }

    /// A run that carries out these calls, asks no model, and ends.
    pub fn given(mode: ToolExecutionMode, calls: Vec<CallId>) -> Self {
        Self { calls: calls.into_iter().map(Call::new).collect(), given: true, ..Self::new(mode) }
    }

    /// Whether its calls came with it.
    pub fn is_given(&self) -> bool {
        self.given
    }

    /// Where it stands.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Inferences that were asked for.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// The calls of the current step.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// One call of the current step.
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.calls.iter().find(|call| call.id == *id)
    }

    /// What a plugin asks about the run itself, until its answer was read.
    pub fn asking(&self) -> Option<&RunQuestion> {
        self.asking.as_ref()
    }

    /// The questions that wait for an answer.
    pub fn open_tickets(&self) -> impl Iterator<Item = &SuspendTicket> {
        let of_calls = self.calls.iter().filter_map(|call| match &call.state {
            CallState::Suspended { ticket } => Some(ticket),
            CallState::New
            | CallState::Gating
            | CallState::Held { .. }
            | CallState::Regating { .. }
            | CallState::Running { .. }
            | CallState::Closed { .. } => None,
        });
        let asked = self.asking.iter().filter(|question| question.decision.is_none());
        of_calls.chain(asked.map(|question| &question.ticket))
    }

    /// The coarse status: a projection of the stage and the calls.
    pub fn status(&self) -> RunStatus {
        match self.stage {
            Stage::Done(_) => RunStatus::Done,
            Stage::Tools if self.is_waiting() => RunStatus::Waiting,
            Stage::Asking(_) if self.open_tickets().next().is_some() => RunStatus::Waiting,
            Stage::Created
            | Stage::Phase(_)
            | Stage::Inferring
            | Stage::Tools
            | Stage::Asking(_)
            | Stage::Ending(_) => RunStatus::Running,
        }
    }

    /// Why it ended, when it did.
    pub fn termination(&self) -> Option<&TerminationReason> {
        match &self.stage {
            Stage::Done(reason) => Some(reason),
            Stage::Created
            | Stage::Phase(_)
            | Stage::Inferring
            | Stage::Tools
            | Stage::Asking(_)
            | Stage::Ending(_) => None,
        }
    }

    fn is_waiting(&self) -> bool {
        !self.calls.iter().any(Call::is_in_flight)
            && self.calls.iter().any(|call| matches!(call.state, CallState::Suspended { .. }))
    }

    /// Takes a fact and says what has to be done.
    ///
    /// # Errors
    /// [`RefusedFact`] when the fact may not happen now; the machine is then unchanged. Facts that come late, after the
    /// end, are no error and change nothing, except decisions, which are refused by name.
    pub fn apply(&mut self, fact: Fact) -> Next {
        match fact {
            Fact::Started => match self.stage {
                Stage::Created => Ok(self.start()),
                Stage::Phase(_)
                | Stage::Inferring
                | Stage::Tools
                | Stage::Asking(_)
                | Stage::Ending(_)
                | Stage::Done(_) => Err(self.refuse()),
            },
            Fact::PhaseDone { phase, stop } => self.phase_done(phase, stop),
            Fact::PhaseAsked { phase, question } => self.phase_asked(phase, *question),
            Fact::Answered { stop } => self.answered(stop),
            Fact::Inferred { calls } => self.inferred(calls),
            Fact::Gated { call, gate } => self.gated(&call, gate),
            Fact::Settled { call, outcome } => self.settled(&call, outcome),
            Fact::Decided { call, suspension, decision } if self.asking.is_some() => {
                self.question_decided(&call, &suspension, decision)
            }
            Fact::Expired { call, suspension } if self.asking.is_some() => {
                self.question_expired(&call, &suspension)
            }
            Fact::Decided { call, suspension, decision } => self.decided(&call, &suspension, decision),
            Fact::Expired { call, suspension } => self.expired(&call, &suspension),
            Fact::MayHaveStarted { call } => self.may_have_started(&call),
            Fact::CancelRequested { superseded } => {
                if self.is_over() {
                    return Ok(Vec::new());
                }
                Ok(self.end(TerminationReason::Cancelled, superseded, None))
            }
            Fact::LimitReached { reason } => {
                if self.is_over() {
                    return Ok(Vec::new());
                }
                Ok(self.end(reason, false, None))
            }
            Fact::Failed { message } => {
                if self.is_over() {
                    return Ok(Vec::new());
                }
                Ok(self.end(TerminationReason::Error(message), false, None))
            }
            Fact::Recovered { lost } => self.recovered(lost),
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ending(_) | Stage::Done(_))
    }

    fn refuse(&self) -> RefusedFact {
        let stage = match &self.stage {
            Stage::Created => "created".to_owned(),
            Stage::Phase(phase) => format!("{phase:?}"),
            Stage::Inferring => "inference".to_owned(),
            Stage::Tools => "tools".to_owned(),
            Stage::Asking(phase) => format!("a question of {phase:?}"),
            Stage::Ending(_) => "its end".to_owned(),
            Stage::Done(_) => "done".to_owned(),
        };
        RefusedFact::Stage { stage }
    }

    fn start(&mut self) -> Vec<Directive> {
        let mut out = Vec::new();
        self.announce(&mut out);
        self.enter(Phase::RunStart, &mut out);
        out
    }

    fn announce(&mut self, out: &mut Vec<Directive>) {
        if !self.announced {
            self.announced = true;
            out.push(Directive::Emit(Notice::RunStart));
        }
    }

    fn enter(&mut self, phase: Phase, out: &mut Vec<Directive>) {
        self.stage = Stage::Phase(phase);
        out.push(Directive::RunPhase(phase));
    }

    fn begin_step(&mut self, out: &mut Vec<Directive>) {
        self.calls.clear();
        self.step_open = true;
        out.push(Directive::Emit(Notice::StepStart));
        self.enter(Phase::StepStart, out);
    }

    fn close_step(&mut self, out: &mut Vec<Directive>) {
        if self.step_open {
            self.step_open = false;
            out.push(Directive::Emit(Notice::StepEnd));
        }
    }

    fn phase_done(&mut self, phase: Phase, stop: Option<TerminationReason>) -> Next {
        if let (Stage::Ending(reason), Phase::RunEnd) = (&self.stage, phase) {
            let reason = reason.clone();
            self.stage = Stage::Done(reason.clone());
            self.announced = false;
            return Ok(vec![
                Directive::Checkpoint { intent: None },
                Directive::Emit(Notice::RunFinish(reason)),
            ]);
        }
        if self.stage != Stage::Phase(phase) {
            // A hook that outlived its phase: late, and of no use.
            return if self.is_over() { Ok(Vec::new()) } else { Err(self.refuse()) };
        }
        if let Some(reason) = stop {
            return Ok(self.end(reason, false, None));
        }
        let mut out = Vec::new();
        match phase {
            Phase::RunStart if self.given => {
                self.step_open = true;
                out.push(Directive::Emit(Notice::StepStart));
                self.stage = Stage::Tools;
                self.advance(&mut out);
            }
            Phase::RunStart => self.begin_step(&mut out),
            Phase::StepStart => self.enter(Phase::BeforeInference, &mut out),
            Phase::BeforeInference => {
                self.stage = Stage::Inferring;
                self.steps += 1;
                out.push(Directive::Infer);
            }
            Phase::AfterInference if self.calls.is_empty() => self.enter(Phase::StepEnd, &mut out),
            Phase::AfterInference => {
                self.stage = Stage::Tools;
                self.advance(&mut out);
            }
            Phase::StepEnd => {
                out.push(Directive::Checkpoint { intent: None });
                self.close_step(&mut out);
                if self.calls.is_empty() || self.given {
                    return Ok([out, self.end(TerminationReason::NaturalEnd, false, None)].concat());
                }
                self.begin_step(&mut out);
            }
            // The phases of a call run inside `Gate` and `Execute`, RunEnd only at the end.
            Phase::BeforeToolExecute | Phase::AfterToolExecute | Phase::RunEnd => return Err(self.refuse()),
        }
        Ok(out)
    }

    fn phase_asked(&mut self, phase: Phase, question: RunQuestion) -> Next {
        if self.is_over() {
            return Ok(Vec::new());
        }
        let may_ask = match phase {
            Phase::RunStart
            | Phase::StepStart
            | Phase::BeforeInference
            | Phase::AfterInference
            | Phase::StepEnd => true,
            // Those of a call ask about their call, and after the last one nothing goes on.
            Phase::BeforeToolExecute | Phase::AfterToolExecute | Phase::RunEnd => false,
        };
        if self.stage != Stage::Phase(phase) || !may_ask {
            return Err(self.refuse());
        }
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
        Ok(out)
    }

    /// The plugin's question, when it is the one that is meant and nobody answered it with another decision. `Ok(None)`:
    /// this decision is known.
    fn question_of(
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

    fn question_decided(&mut self, id: &CallId, suspension: &SuspensionId, decision: ToolCallResume) -> Next {
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

    fn question_expired(&mut self, id: &CallId, suspension: &SuspensionId) -> Next {
        if self.question_of(id, suspension, None)?.is_none() {
            return Ok(Vec::new());
        }
        let mut out = Vec::new();
        self.announce(&mut out);
        self.end_asked(Closing::Expired, ToolCallStatus::Failed, &mut out);
        Ok(out)
    }

    /// Ends the run as its question says: nobody wants it to go on.
    fn end_asked(&mut self, closing: Closing, status: ToolCallStatus, out: &mut Vec<Directive>) {
        let Some(question) = self.asking.take() else { return };
        let call = question.ticket.pending.id;
        out.push(Directive::Record { call: call.clone(), closing });
        out.push(Directive::Emit(Notice::CallDone(call, status)));
        out.extend(self.end(question.otherwise, false, None));
    }

    /// Goes on behind the phase that asked. The answer is spent with what the plugin made of it, in one checkpoint.
    fn answered(&mut self, stop: Option<TerminationReason>) -> Next {
        if self.is_over() {
            return Ok(Vec::new());
        }
        let Stage::Asking(phase) = self.stage else { return Err(self.refuse()) };
        let Some(question) = self.asking.take_if(|question| question.decision.is_some()) else {
            return Err(self.refuse());
        };
        let call = question.ticket.pending.id;
        self.stage = Stage::Phase(phase);
        let out = vec![
            Directive::Record { call: call.clone(), closing: Closing::Answered },
            Directive::Checkpoint { intent: None },
            Directive::Emit(Notice::CallDone(call, ToolCallStatus::Succeeded)),
        ];
        Ok([out, self.phase_done(phase, stop)?].concat())
    }

    fn inferred(&mut self, calls: Vec<CallId>) -> Next {
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
    fn at_tools(&self, id: &CallId) -> Result<usize, RefusedFact> {
        if self.stage != Stage::Tools {
            return Err(self.refuse());
        }
        self.calls.iter().position(|call| call.id == *id).ok_or_else(|| RefusedFact::UnknownCall(id.clone()))
    }

    fn refuse_call(&self, index: usize) -> RefusedFact {
        let call = &self.calls[index];
        RefusedFact::Call { call: call.id.clone(), status: call.status() }
    }

    fn gated(&mut self, id: &CallId, gate: Gate) -> Next {
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

    fn settled(&mut self, id: &CallId, outcome: Settled) -> Next {
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

    fn suspend(&mut self, index: usize, ticket: SuspendTicket, out: &mut Vec<Directive>) {
        let call = &mut self.calls[index];
        // A new question wants a new answer: the old one is not carried over to it.
        call.decided_by = None;
        call.state = CallState::Suspended { ticket };
        let id = call.id.clone();
        out.push(Directive::Checkpoint { intent: None });
        out.push(Directive::Emit(Notice::CallDone(id, ToolCallStatus::Suspended)));
        self.advance(out);
    }

    fn close(
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

    fn decided(&mut self, id: &CallId, suspension: &SuspensionId, decision: ToolCallResume) -> Next {
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

    /// Whatever its batch waits for here, the others may have been answered there.
    fn may_have_started(&mut self, id: &CallId) -> Next {
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

    fn expired(&mut self, id: &CallId, suspension: &SuspensionId) -> Next {
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

    /// Admits what the mode lets on, and says so when the step is over or nothing but answers can move it.
    fn advance(&mut self, out: &mut Vec<Directive>) {
        self.admit(out);
        if self.calls.iter().all(Call::is_closed) {
            self.enter(Phase::StepEnd, out);
        } else if self.announced && self.is_waiting() {
            self.announced = false;
            // Directives are carried out when the machine stands where it stands now, so one checkpoint says it all.
            if !out.contains(&Directive::Checkpoint { intent: None }) {
                out.push(Directive::Checkpoint { intent: None });
            }
            self.close_step(out);
            out.push(Directive::Emit(Notice::RunFinish(TerminationReason::Suspended)));
        }
    }

    fn admit(&mut self, out: &mut Vec<Directive>) {
        // A call that another agent works on waits for nobody's answer.
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

    fn gate(&mut self, index: usize, out: &mut Vec<Directive>) {
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

    /// Ends the run: every open call gets a result, then the last hooks run.
    fn end(
        &mut self,
        reason: TerminationReason,
        superseded: bool,
        blocked: Option<(usize, Closing)>,
    ) -> Vec<Directive> {
        let mut out = Vec::new();
        let busy = matches!(self.stage, Stage::Inferring) || self.calls.iter().any(Call::is_in_flight);
        if busy {
            out.push(Directive::AbortInFlight);
        }
        if let Some((index, closing)) = blocked {
            self.calls[index].state = CallState::Closed { status: ToolCallStatus::Failed };
            let id = self.calls[index].id.clone();
            out.push(Directive::Record { call: id.clone(), closing });
            out.push(Directive::Emit(Notice::CallDone(id, ToolCallStatus::Failed)));
        }
        if let Some(question) = self.asking.take() {
            let call = question.ticket.pending.id;
            let closing = if superseded { Closing::Superseded } else { Closing::NotRun };
            out.push(Directive::Record { call: call.clone(), closing });
            if self.announced {
                out.push(Directive::Emit(Notice::CallDone(call, ToolCallStatus::Cancelled)));
            }
        }
        for call in self.calls.iter_mut().filter(|call| !call.is_closed()) {
            let closing = match call.state {
                CallState::Running { .. } => match &reason {
                    TerminationReason::Stopped(why) => {
                        Closing::Stopped { why: why.detail.clone().unwrap_or_else(|| why.code.clone()) }
                    }
                    TerminationReason::Blocked(why) | TerminationReason::Error(why) => {
                        Closing::Stopped { why: why.clone() }
                    }
                    TerminationReason::Cancelled
                    | TerminationReason::NaturalEnd
                    | TerminationReason::BehaviorRequested
                    | TerminationReason::Suspended => Closing::Interrupted,
                },
                CallState::Suspended { .. } | CallState::Held { .. } | CallState::Regating { .. }
                    if superseded =>
                {
                    Closing::Superseded
                }
                CallState::New
                | CallState::Gating
                | CallState::Suspended { .. }
                | CallState::Held { .. }
                | CallState::Regating { .. }
                | CallState::Closed { .. } => Closing::NotRun,
            };
            call.state = CallState::Closed { status: ToolCallStatus::Cancelled };
            out.push(Directive::Record { call: call.id.clone(), closing });
            if self.announced {
                out.push(Directive::Emit(Notice::CallDone(call.id.clone(), ToolCallStatus::Cancelled)));
            }
        }
        self.close_step(&mut out);
        self.stage = Stage::Ending(reason);
        out.push(Directive::RunPhase(Phase::RunEnd));
        out
    }

    fn recovered(&mut self, lost: Vec<(CallId, Lost)>) -> Next {
        let running: Vec<_> = self
            .calls
            .iter()
            .filter(|call| matches!(call.state, CallState::Running { .. }))
            .map(|call| call.id.clone())
            .collect();
        if let Some(id) = running.iter().find(|id| !lost.iter().any(|(other, _)| other == *id)) {
            return Err(RefusedFact::Unaccounted(id.clone()));
        }
        if let Some((id, _)) = lost.iter().find(|(id, _)| !running.contains(id)) {
            return Err(RefusedFact::UnknownCall(id.clone()));
        }
        // A new stream of events begins: the old one ended with its process.
        self.announced = false;
        self.step_open = false;
        let mut out = Vec::new();
        match self.stage.clone() {
            Stage::Created => out = self.start(),
            Stage::Phase(phase) => {
                self.announce(&mut out);
                out.push(Directive::RunPhase(phase));
            }
            Stage::Inferring => {
                self.announce(&mut out);
                self.step_open = true;
                out.push(Directive::Emit(Notice::StepStart));
                out.push(Directive::Infer);
            }
            Stage::Tools => self.recover_calls(lost, &mut out),
            Stage::Asking(_) => {
                if let Some(question) = self.asking.as_ref().filter(|question| question.decision.is_some()) {
                    let call = question.ticket.pending.id.clone();
                    self.announce(&mut out);
                    out.push(Directive::Emit(Notice::CallResumed(call)));
                    out.push(Directive::Answer);
                }
            }
            Stage::Ending(_) => out.push(Directive::RunPhase(Phase::RunEnd)),
            Stage::Done(_) => {}
        }
        Ok(out)
    }

    fn recover_calls(&mut self, lost: Vec<(CallId, Lost)>, out: &mut Vec<Directive>) {
        for index in 0..self.calls.len() {
            let call = &mut self.calls[index];
            match &call.state {
                CallState::Gating => call.state = CallState::New,
                CallState::Regating { ticket, decision } => {
                    call.state = CallState::Held { ticket: ticket.clone(), decision: decision.clone() };
                }
                CallState::New
                | CallState::Suspended { .. }
                | CallState::Held { .. }
                | CallState::Running { .. }
                | CallState::Closed { .. } => {}
            }
        }
        for (id, lost) in lost {
            let Some(index) = self.calls.iter().position(|call| call.id == id) else { continue };
            let call = &mut self.calls[index];
            if lost != Lost::NotStarted {
                call.spent = call.decision().map(|decision| decision.decision_id.clone());
            }
            match lost {
                Lost::Again | Lost::NotStarted => {
                    if lost == Lost::NotStarted {
                        call.attempt = call.attempt.saturating_sub(1);
                    }
                    call.state = match std::mem::replace(&mut call.state, CallState::New) {
                        CallState::Running { allowed_by: Some((ticket, decision)) } => {
                            CallState::Held { ticket, decision }
                        }
                        CallState::New
                        | CallState::Gating
                        | CallState::Suspended { .. }
                        | CallState::Held { .. }
                        | CallState::Regating { .. }
                        | CallState::Running { .. }
                        | CallState::Closed { .. } => CallState::New,
                    };
                }
                Lost::Ended { succeeded } => {
                    let status = done(succeeded);
                    call.state = CallState::Closed { status };
                    self.announce(out);
                    out.push(Directive::Checkpoint { intent: None });
                    out.push(Directive::Emit(Notice::CallDone(id, status)));
                }
                Lost::Ask(ticket) => {
                    call.decided_by = None;
                    call.state = CallState::Suspended { ticket };
                    self.announce(out);
                    out.push(Directive::Checkpoint { intent: None });
                    out.push(Directive::Emit(Notice::CallDone(id, ToolCallStatus::Suspended)));
                }
            }
        }
        self.advance(out);
    }
}

fn done(succeeded: bool) -> ToolCallStatus {
    if succeeded { ToolCallStatus::Succeeded } else { ToolCallStatus::Failed }
}
