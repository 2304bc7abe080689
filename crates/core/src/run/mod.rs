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

/// The stage of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", content = "at", rename_all = "snake_case")]
pub enum Stage {
    /// The user's message is stored and nothing else happened.
    Created,
    Phase(Phase),
    Inferring,
    /// Calls are gated, run, or wait.
    Tools,
    /// A plugin asked the user from this phase, and the run continues from there.
    Asking(Phase),
    /// The last hooks run; why it ends is settled.
    Ending(TerminationReason),
    Done(TerminationReason),
}

/// A question about the run itself, which a plugin asked from a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunQuestion {
    /// The question; its call was not made by the model.
    pub ticket: SuspendTicket,
    /// Why the run ends when the answer is no, or none comes in time.
    pub otherwise: TerminationReason,
    /// The scheduled action that reads the answer.
    pub action: String,
    /// Whether the run waits for the time of the question and then continues; the answer may come before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumes: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<ToolCallResume>,
}

/// The result of the gate for a call.
#[expect(clippy::large_enum_variant, reason = "one is made for each fact and taken apart at once")]
#[derive(Clone, Debug, PartialEq)]
pub enum Gate {
    Proceed,
    Suspend(SuspendTicket),
    /// The driver already has a result for the call.
    SetResult {
        /// Whether the result is a success.
        succeeded: bool,
    },
    /// The call fails and the run ends.
    Block {
        reason: String,
    },
}

/// The end of an execution; the driver has the result.
#[expect(clippy::large_enum_variant, reason = "one is made for each fact and taken apart at once")]
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// The tool did what it should.
    Succeeded,
    Failed,
    /// The tool asks something itself.
    Suspended(SuspendTicket),
}

/// The handling of a call that was running when the process died.
#[expect(clippy::large_enum_variant, reason = "one is made for each fact and taken apart at once")]
#[derive(Clone, Debug, PartialEq)]
pub enum Lost {
    /// Gate it and run it again under the same decision: it changed nothing, or can be repeated safely.
    Again,
    /// The process died before the intent was written: it never started, and its decision is not spent.
    NotStarted,
    /// The outcome is known, and the driver has the result.
    Ended {
        /// Whether the call succeeded.
        succeeded: bool,
    },
    /// The outcome is unknown: ask the user.
    Ask(SuspendTicket),
}

/// An event that the machine reacts to.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// The run was accepted and stored.
    Started,
    /// The hooks of a phase are done; `stop` when they end the run.
    PhaseDone {
        phase: Phase,
        /// Why the run is to end.
        stop: Option<TerminationReason>,
    },
    /// The hooks of `StepEnd` are done, and one of them has the model answer again although it asked for no calls.
    AnotherStep,
    /// The hooks of a phase are done, and one of them asks the user before the run continues.
    PhaseAsked { phase: Phase, question: Box<RunQuestion> },
    /// The model cannot be asked before the time of this question, for which the run waits.
    Postponed { question: Box<RunQuestion> },
    /// The plugin that asked has read the answer; `stop` when it ends the run.
    Answered {
        /// Why the run is to end.
        stop: Option<TerminationReason>,
    },
    /// The model answered; it asks for these calls, in this order, ids unique.
    Inferred { calls: Vec<CallId> },
    /// The gate judged a call.
    Gated { call: CallId, gate: Gate },
    Settled {
        call: CallId,
        /// The end of the execution.
        outcome: Settled,
    },
    /// A stored decision arrived.
    Decided {
        call: CallId,
        /// The question it answers; an answer to an earlier question of the call is refused.
        suspension: SuspensionId,
        decision: ToolCallResume,
    },
    /// The time of a question ran out.
    Expired { call: CallId, suspension: SuspensionId },
    /// The run is a copy, and an approved call that waits here may have started in the original run.
    MayHaveStarted { call: CallId },
    /// The user cancelled the run, or a new message replaces it (`superseded`).
    CancelRequested {
        /// A new message takes the run's place.
        superseded: bool,
    },
    /// A new process took over the run, and found what became of each call that was running.
    Recovered {
        /// By call; each call that was running must be here.
        lost: Vec<(CallId, Lost)>,
    },
    /// A limit of the run was reached while something was in flight.
    LimitReached {
        /// The limit that was reached.
        reason: TerminationReason,
    },
    /// Something failed that the run cannot survive.
    Failed { message: String },
}

/// Why a call is closed without a result of its tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The user denied the call.
    Declined {
        /// The user's comment on the answer.
        reason: Option<String>,
    },
    /// The user requested changes before anything like the call runs.
    ChangeWanted { feedback: String },
    /// The decision's payload is the result.
    Answered,
    /// The decision's payload was to be the arguments and is not an object.
    BadPayload,
    /// The user marked a call with an unknown outcome as done.
    SaidDone,
    /// The user chose to skip a call whose outcome is unknown.
    Skipped,
    /// Its question ran out of time.
    Expired,
    /// The time that the run waited for has come.
    Due,
    /// A new message took the run's place.
    Superseded,
    /// The run was cancelled before the call was executed.
    NotRun,
    /// The run was cancelled while it was executed.
    Interrupted,
    /// The run ended for another reason while it was executed.
    Stopped { why: String },
    /// A plugin blocked it.
    Blocked { reason: String },
}

/// A lifecycle event to emit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The run starts or resumes.
    RunStart,
    /// A step starts.
    StepStart,
    StepEnd,
    /// A decision reached the call.
    CallResumed(CallId),
    /// The call is settled or waits.
    CallDone(CallId, ToolCallStatus),
    /// The run is over, or waits.
    RunFinish(TerminationReason),
}

/// The actions requested by the machine, in order. All except `Infer`, `Gate` and `Execute` complete before
/// the next fact is accepted.
#[derive(Clone, Debug, PartialEq)]
pub enum Directive {
    /// Run the hooks of a phase; answered by [`Fact::PhaseDone`].
    RunPhase(Phase),
    /// Give the plugin that asked its answer; answered by [`Fact::Answered`].
    Answer,
    /// Ask the model; answered by [`Fact::Inferred`] or [`Fact::Failed`].
    Infer,
    /// Evaluate a call, with its decision if there is one; answered by [`Fact::Gated`].
    Gate {
        call: CallId,
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
        call: CallId,
    },
    /// Give a call its result.
    Record {
        call: CallId,
        closing: Closing,
    },
    /// Drop the inference and the executions in flight, and wait until nothing of them is left.
    AbortInFlight,
    Emit(Notice),
}

/// A fact that may not happen now. The machine is unchanged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RefusedFact {
    /// The fact is not allowed in the run's current stage.
    #[error("not now: the run is at {stage}")]
    Stage { stage: String },
    /// The run has no such call in this step.
    #[error("no call {0} in this step")]
    UnknownCall(CallId),
    /// The fact is not allowed in the call's current status.
    #[error("call {call} is {status:?}")]
    Call { call: CallId, status: ToolCallStatus },
    /// Another decision was made for the call.
    #[error("call {call} is already decided by {by}")]
    AlreadyDecided {
        call: CallId,
        /// The decision that counts.
        by: DecisionId,
    },
    /// The answer belongs to another question.
    #[error("call {call} has another pending question")]
    OtherQuestion { call: CallId },
    /// A call that was running is missing from the recovery.
    #[error("the outcome of call {0} is missing")]
    Unaccounted(CallId),
    /// Two calls of one answer have one id.
    #[error("duplicate call id {0}")]
    DoubledCall(CallId),
}
