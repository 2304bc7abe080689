use super::{EffectDispatchReport, InferenceShape, PhaseQuestion};
use crate::contract::activity::Activity;
use crate::contract::hook::HookRan;
use crate::contract::judgement::Judgement;
use crate::contract::lifecycle::TerminationReason;
use crate::contract::tool_intercept::ToolInterceptPayload;
use crate::state::Phase;

/// The result of a phase, for the driver.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseReport {
    pub phase: Phase,
    /// Hooks that were run, those that were run again not counted twice.
    pub hooks: usize,
    /// Hooks that were run again because of an exclusive key.
    pub deferred_hooks: usize,
    /// Rounds of actions.
    pub rounds: usize,
    /// Actions that were carried out, failed ones among them.
    pub actions: usize,
    /// Actions whose handler failed.
    pub failed_actions: usize,
    /// The results of the effects.
    pub effects: EffectDispatchReport,
    /// The activities to report to the user, in order.
    pub activities: Vec<Activity>,
    /// Commands that hooks of files ran, for the audit.
    pub commands: Vec<HookRan>,
    /// The changes that plugins want to the step's request; only set by `BeforeInference`.
    pub inference: InferenceShape,
    /// The action to take instead of executing; only set by `BeforeToolExecute`.
    pub intercept: Option<ToolInterceptPayload>,
    /// The judgement of the call; only set by `BeforeToolExecute`.
    pub judgement: Option<Judgement>,
    /// The question that a hook asks the user before the run continues.
    pub question: Option<PhaseQuestion>,
    /// Whether the model answers again before the run ends; only set by `StepEnd`.
    pub another_step: bool,
    /// The reason to stop, set from the phase on in which a stop was first requested.
    pub stop: Option<TerminationReason>,
}

impl PhaseReport {
    pub(super) fn new(phase: Phase) -> Self {
        Self {
            phase,
            hooks: 0,
            deferred_hooks: 0,
            rounds: 0,
            actions: 0,
            failed_actions: 0,
            effects: EffectDispatchReport::default(),
            activities: Vec::new(),
            commands: Vec::new(),
            inference: InferenceShape::default(),
            intercept: None,
            judgement: None,
            question: None,
            another_step: false,
            stop: None,
        }
    }
}

/// The result of submitting a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubmitCommandReport {
    /// The revision after the commit.
    pub revision: u64,
    /// The number of actions that now wait for their phase.
    pub queued_actions: usize,
    /// The results of the effects.
    pub effects: EffectDispatchReport,
    /// The activities to report to the user, in order.
    pub activities: Vec<Activity>,
}
