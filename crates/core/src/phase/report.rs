use super::{EffectDispatchReport, InferenceShape, PhaseQuestion};
use crate::contract::activity::Activity;
use crate::contract::hook::HookRan;
use crate::contract::judgement::Judgement;
use crate::contract::lifecycle::TerminationReason;
use crate::contract::tool_intercept::ToolInterceptPayload;
use crate::state::Phase;

/// What a phase came to, for the driver.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseReport {
    /// The phase.
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
    /// How the effects went.
    pub effects: EffectDispatchReport,
    /// What the person is told, in order.
    pub activities: Vec<Activity>,
    /// Commands that hooks of files ran, for the audit.
    pub commands: Vec<HookRan>,
    /// What plugins want of the step's request; only filled by `BeforeInference`.
    pub inference: InferenceShape,
    /// What is to be done instead of executing; only filled by `BeforeToolExecute`.
    pub intercept: Option<ToolInterceptPayload>,
    /// What the rules made of the call; only filled by `BeforeToolExecute`.
    pub judgement: Option<Judgement>,
    /// What a hook asks the user before the run goes on.
    pub question: Option<PhaseQuestion>,
    /// Set from the phase on in which somebody first asked for the run to stop.
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
            stop: None,
        }
    }
}

/// What submitting a command came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubmitCommandReport {
    /// The revision after the commit.
    pub revision: u64,
    /// How many actions now wait for their phase.
    pub queued_actions: usize,
    /// How the effects went.
    pub effects: EffectDispatchReport,
    /// What the person is told, in order.
    pub activities: Vec<Activity>,
}
