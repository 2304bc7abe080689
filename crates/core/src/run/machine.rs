use serde::{Deserialize, Serialize};

use super::{Call, CallState, Closing, Directive, Fact, Lost, Notice, RefusedFact, RunQuestion, Stage};
use crate::contract::executor::ToolExecutionMode;
use crate::contract::ids::{CallId, SuspensionId};
use crate::contract::lifecycle::{RunStatus, TerminationReason, ToolCallStatus};
use crate::contract::suspension::SuspendTicket;
use crate::state::Phase;

mod asking;
mod calls;

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
    /// Whether the calls came with the run: no model is asked, and the run ends with them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    given: bool,
    /// The question of a plugin, at [`Stage::Asking`].
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

    /// Returns whether the run's calls came with it.
    pub fn is_given(&self) -> bool {
        self.given
    }

    /// Returns the current stage.
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

    /// Returns the question of a plugin about the run itself, until its answer was read.
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

    /// Gives a question another id, before anybody was asked it. Returns `false` if no question has the first one.
    pub fn rename_question(&mut self, from: &SuspensionId, to: &SuspensionId) -> bool {
        let of_calls = self.calls.iter_mut().filter_map(|call| match &mut call.state {
            CallState::Suspended { ticket } => Some(ticket),
            CallState::New
            | CallState::Gating
            | CallState::Held { .. }
            | CallState::Regating { .. }
            | CallState::Running { .. }
            | CallState::Closed { .. } => None,
        });
        let asked = self.asking.iter_mut().map(|question| &mut question.ticket);
        let named = of_calls.chain(asked).find(|ticket| ticket.suspension.id == *from);
        named.map(|ticket| ticket.suspension.id = to.clone()).is_some()
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
            Fact::AnotherStep => self.another_step(),
            Fact::PhaseAsked { phase, question } => self.phase_asked(phase, *question),
            Fact::Postponed { question } => self.postponed(*question),
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

    /// Goes on after an answer that would have ended the run.
    fn another_step(&mut self) -> Next {
        if self.is_over() {
            return Ok(Vec::new());
        }
        if self.stage != Stage::Phase(Phase::StepEnd) || self.given {
            return Err(self.refuse());
        }
        let mut out = vec![Directive::Checkpoint { intent: None }];
        self.close_step(&mut out);
        self.begin_step(&mut out);
        Ok(out)
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
        // A new stream of events starts, because the old one ended with its process.
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
