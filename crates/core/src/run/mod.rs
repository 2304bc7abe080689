//! The pure run machine: what has to happen next, as data.
//!
//! [`Run::apply`] takes a [`Fact`] and gives [`Directive`]s. It has no clock, no channel and no `await`; it knows
//! phases, calls, decisions and the end. It does not know prompts, messages, hooks, tokens or time: those stay with
//! the driver, which carries out directives and reports what happened as the next facts.
//!
//! The machine is written into the store with each checkpoint. Reading it back between any two facts changes nothing.

mod call;
mod machine;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::contract::ids::{CallId, DecisionId, SuspensionId};
use crate::contract::lifecycle::{TerminationReason, ToolCallStatus};
use crate::contract::suspension::{SuspendTicket, ToolCallResume};
use crate::state::Phase;

pub use call::{Call, CallState, DecisionEffect};
pub use machine::Run;

/// Where the machine stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", content = "at", rename_all = "snake_case")]
pub enum Stage {
    /// The user's message is stored and nothing else happened.
    Created,
    /// Hooks run.
    Phase(Phase),
    /// A model answers.
    Inferring,
    /// Calls are gated, run, or wait.
    Tools,
    /// A plugin asked the user from this phase, and the run goes on from there.
    Asking(Phase),
    /// The last hooks run; why it ends is settled.
    Ending(TerminationReason),
    /// Over.
    Done(TerminationReason),
}

/// A question about the run itself, which a plugin asked from a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunQuestion {
    /// The question; its call is none of the model's.
    pub ticket: SuspendTicket,
    /// Why the run ends when the answer is no, or none comes in time.
    pub otherwise: TerminationReason,
    /// The scheduled action that reads the answer.
    pub action: String,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<ToolCallResume>,
}

/// What the gate said about a call.
#[expect(clippy::large_enum_variant, reason = "one is made for each fact and taken apart at once")]
#[derive(Clone, Debug, PartialEq)]
pub enum Gate {
    /// Execute it.
    Proceed,
    /// Ask first.
    Suspend(SuspendTicket),
    /// The driver holds a result for it already; whether that is a success.
    SetResult {
        /// Whether the result is a success.
        succeeded: bool,
    },
    /// The call fails and the run ends.
    Block {
        /// Why.
        reason: String,
    },
}

/// How an execution ended; the driver holds the result.
#[expect(clippy::large_enum_variant, reason = "one is made for each fact and taken apart at once")]
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// The tool did what it should.
    Succeeded,
    /// It did not.
    Failed,
    /// The tool asks something itself.
    Suspended(SuspendTicket),
}

/// What is to be done about a call that was running when the process died.
#[expect(clippy::large_enum_variant, reason = "one is made for each fact and taken apart at once")]
#[derive(Clone, Debug, PartialEq)]
pub enum Lost {
    /// Gate it and run it again under the same decision: it changed nothing, or can be repeated safely.
    Again,
    /// The process died before the intent was written: it never started, and its decision is not spent.
    NotStarted,
    /// It is known how it ended; the driver holds the result.
    Ended {
        /// Whether it succeeded.
        succeeded: bool,
    },
    /// Nobody knows: ask the person.
    Ask(SuspendTicket),
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// The run was accepted and stored.
    Started,
    /// The hooks of a phase are done; `stop` when they end the run.
    PhaseDone {
        /// Which phase.
        phase: Phase,
        /// Why the run is to end.
        stop: Option<TerminationReason>,
    },
    /// The hooks of a phase are done, and one of them asks the user before the run goes on.
    PhaseAsked {
        /// Which phase.
        phase: Phase,
        /// The question.
        question: Box<RunQuestion>,
    },
    /// The plugin that asked has read the answer; `stop` when it ends the run.
    Answered {
        /// Why the run is to end.
        stop: Option<TerminationReason>,
    },
    /// The model answered; it asks for these calls, in this order, ids unique.
    Inferred {
        /// The calls.
        calls: Vec<CallId>,
    },
    /// The gate judged a call.
    Gated {
        /// The call.
        call: CallId,
        /// The verdict.
        gate: Gate,
    },
    /// An execution ended.
    Settled {
        /// The call.
        call: CallId,
        /// How.
        outcome: Settled,
    },
    /// A stored decision arrived.
    Decided {
        /// The call.
        call: CallId,
        /// The question it answers; an answer to an earlier question of the call is refused.
        suspension: SuspensionId,
        /// The decision.
        decision: ToolCallResume,
    },
    /// The time of a question ran out.
    Expired {
        /// The call.
        call: CallId,
        /// The question.
        suspension: SuspensionId,
    },
    /// The run is a copy, and a call whose yes waits here may have begun where it was copied from.
    MayHaveStarted {
        /// The call.
        call: CallId,
    },
    /// The person gave up, or a new message takes the run's place (`superseded`).
    CancelRequested {
        /// A new message takes the run's place.
        superseded: bool,
    },
    /// A new process took the run over; what became of each call that was running.
    Recovered {
        /// By call; each call that was running must be here.
        lost: Vec<(CallId, Lost)>,
    },
    /// A limit of the run was reached while something was in flight.
    LimitReached {
        /// Which one.
        reason: TerminationReason,
    },
    /// Something failed that the run cannot survive.
    Failed {
        /// What.
        message: String,
    },
}

/// Why a call is closed without a result of its tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The person said no.
    Declined {
        /// What the person wrote beside it.
        reason: Option<String>,
    },
    /// The person wants it changed before anything like it runs.
    ChangeWanted {
        /// What is to be changed.
        feedback: String,
    },
    /// The decision's payload is the result.
    Answered,
    /// The decision's payload was to be the arguments and is not an object.
    BadPayload,
    /// The person said, of a call with unknown outcome, that it is done.
    SaidDone,
    /// The person said, of a call with unknown outcome, to leave it.
    Skipped,
    /// Its question ran out of time.
    Expired,
    /// A new message took the run's place.
    Superseded,
    /// The run was cancelled before the call was executed.
    NotRun,
    /// The run was cancelled while it was executed.
    Interrupted,
    /// The run ended for another reason while it was executed.
    Stopped {
        /// The reason.
        why: String,
    },
    /// A plugin blocked it.
    Blocked {
        /// Why.
        reason: String,
    },
}

/// What is to be announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The run starts or goes on.
    RunStart,
    /// A step begins.
    StepStart,
    /// It is over.
    StepEnd,
    /// A decision reached the call.
    CallResumed(CallId),
    /// The call is settled or waits.
    CallDone(CallId, ToolCallStatus),
    /// The run is over, or waits.
    RunFinish(TerminationReason),
}

/// What is to be done, in order. All but `Infer`, `Gate` and `Execute` are done before the next fact is taken.
#[derive(Clone, Debug, PartialEq)]
pub enum Directive {
    /// Run the hooks of a phase; answered by [`Fact::PhaseDone`].
    RunPhase(Phase),
    /// Give the plugin that asked its answer; answered by [`Fact::Answered`].
    Answer,
    /// Ask the model; answered by [`Fact::Inferred`] or [`Fact::Failed`].
    Infer,
    /// Judge a call, with the decision in hand when there is one; answered by [`Fact::Gated`].
    Gate {
        /// The call.
        call: CallId,
        /// The decision.
        resume: Option<ToolCallResume>,
    },
    /// Write what is true now, with the intent to execute `intent` when given. Nothing that follows may happen before
    /// it is durable.
    Checkpoint {
        /// The call that is about to start.
        intent: Option<CallId>,
    },
    /// Execute a call; answered by [`Fact::Settled`].
    Execute {
        /// The call.
        call: CallId,
    },
    /// Give a call its result.
    Record {
        /// The call.
        call: CallId,
        /// Why.
        closing: Closing,
    },
    /// Drop the inference and the executions in flight, and wait until nothing of them is left.
    AbortInFlight,
    /// Tell it.
    Emit(Notice),
}

/// A fact that may not happen now. The machine is unchanged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RefusedFact {
    /// The run does not stand where this can happen.
    #[error("not now: the run is at {stage}")]
    Stage {
        /// Where it stands.
        stage: String,
    },
    /// The run has no such call in this step.
    #[error("no call {0} in this step")]
    UnknownCall(CallId),
    /// The call does not stand where this can happen.
    #[error("call {call} is {status:?}")]
    Call {
        /// The call.
        call: CallId,
        /// Where it stands.
        status: ToolCallStatus,
    },
    /// Another decision was made for the call.
    #[error("call {call} is already decided by {by}")]
    AlreadyDecided {
        /// The call.
        call: CallId,
        /// The decision that counts.
        by: DecisionId,
    },
    /// The answer belongs to another question.
    #[error("call {call} has another pending question")]
    OtherQuestion {
        /// The call.
        call: CallId,
    },
    /// A call that was running is missing from the recovery.
    #[error("the outcome of call {0} is missing")]
    Unaccounted(CallId),
    /// Two calls of one answer have one id.
    #[error("duplicate call id {0}")]
    DoubledCall(CallId),
}
