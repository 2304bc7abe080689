//! The actions that are always available, and the state that they leave.
//!
//! The changes that plugins want to a request are kept in the state, not only in a report: a run that is
//! resumed between `BeforeInference` and the inference finds them in its checkpoint.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    FailedScheduledActions, PendingScheduledActions, PhaseContext, PluginRegistrar,
    TypedScheduledActionHandler,
};
use crate::contract::context_message::ContextMessage;
use crate::contract::inference::InferenceOverride;
use crate::contract::lifecycle::TerminationReason;
use crate::contract::tool::ToolDescriptor;
use crate::scheduled_actions;
use crate::state::{
    MergeStrategy, ScheduledActionSpec, Snapshot, StateCommand, StateError, StateKey, StateKeyOptions,
};

/// Owns the core registrations.
pub(super) const PLUGIN_ID: &str = "runtime";

scheduled_actions! {
    /// Puts a message before the model: for this step, for all later steps, or not again for some steps.
    pub AddContextMessage = "runtime.add_context_message" in BeforeInference: ContextMessage;
    /// Changes the parameters of this step's inference; the last writer wins, field by field.
    pub SetInferenceOverride = "runtime.set_inference_override" in BeforeInference: InferenceOverride;
    /// Takes a tool out of what this step offers.
    pub ExcludeTool = "runtime.exclude_tool" in BeforeInference: String;
    /// Takes several tools out of what this step offers: as many [`ExcludeTool`]s would, at the cost of one.
    pub ExcludeTools = "runtime.exclude_tools" in BeforeInference: ExcludedTools;
    /// Offers only the listed tools in this step; several lists are joined, and exclusions come after them.
    pub IncludeOnlyTools = "runtime.include_only_tools" in BeforeInference: Vec<String>;
    /// The action that offers these tools after all others, in this order: tools that join the request later
    /// change nothing before them, so that a prompt cache stays valid.
    pub OfferLast = "runtime.offer_last" in BeforeInference: Vec<String>;
}

/// The wish to end the run: the first one counts and stays until the next run. A hook of any phase, an action handler
/// or a tool writes it with [`StateCommand::update`]; each later [`PhaseReport`](super::PhaseReport) shows it.
pub struct StopRequest;

impl StateKey for StopRequest {
    const KEY: &'static str = "runtime.stop_request";
    // Two wishes are no conflict: the run ends either way, and batches are applied in the order of registration.
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = Option<TerminationReason>;
    type Update = TerminationReason;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        value.get_or_insert(update);
    }
}

/// The number of inferences from which an agent's `max_rounds` is counted, after the user let a run continue
/// beyond that limit.
pub struct RoundsCountedFrom;

impl StateKey for RoundsCountedFrom {
    const KEY: &'static str = "runtime.rounds_counted_from";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = u32;
    type Update = u32;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value = update.max(*value);
    }
}

/// Tools that a step does not offer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExcludedTools {
    /// Their ids.
    pub tools: BTreeSet<String>,
    /// The text for a model that calls one of the tools anyway, as it reads after "the tool `id` ".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The changes that plugins want to one step's request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InferenceShape {
    /// Messages to add, in order.
    pub context_messages: Vec<ContextMessage>,
    pub overrides: InferenceOverride,
    /// Tools not to offer.
    pub excluded: BTreeSet<String>,
    /// More of them, each group with its reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded_groups: Vec<ExcludedTools>,
    /// The only tools to offer; `None` is all.
    pub include_only: Option<BTreeSet<String>>,
    /// Tools that come after all others, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last: Vec<String>,
}

impl InferenceShape {
    /// Returns whether a tool stays in the request.
    pub fn offers(&self, tool_id: &str) -> bool {
        !self.withholds(tool_id) && !self.excluded_groups.iter().any(|group| group.tools.contains(tool_id))
    }
}

impl InferenceShape {
    /// The tools that stay in the request, in the order in which they are offered.
    pub fn ordered(&self, tools: &[ToolDescriptor]) -> Vec<ToolDescriptor> {
        let offered = || tools.iter().filter(|tool| self.offers(&tool.id));
        let first = offered().filter(|tool| !self.last.contains(&tool.id));
        let last = self.last.iter().filter_map(|id| offered().find(|tool| tool.id == *id));
        first.chain(last).cloned().collect()
    }

    /// Returns whether a tool is withheld from the model individually, apart from the groups of
    /// [`ExcludeTools`].
    pub fn withholds(&self, tool_id: &str) -> bool {
        self.excluded.contains(tool_id)
            || self.include_only.as_ref().is_some_and(|only| !only.contains(tool_id))
    }

    /// Returns why a tool is not offered, if a reason was given.
    pub fn why_not(&self, tool_id: &str) -> Option<&str> {
        let group = self.excluded_groups.iter().find(|group| group.tools.contains(tool_id))?;
        group.why.as_deref().filter(|_| !self.withholds(tool_id))
    }
}

/// The [`InferenceShape`] of the current step, without the persistent messages; cleared when a step starts.
pub struct StepShape;

impl StepShape {
    /// Removes the messages from a stored state: a run that does not ask the model with this shape again needs only the
    /// rest of it, and the messages are the largest part of most runs.
    pub fn drop_messages(state: &mut BTreeMap<String, Value>) {
        if let Some(Value::Object(shape)) = state.get_mut(Self::KEY) {
            shape.remove("context_messages");
        }
    }
}

/// An update of [`StepShape`]; only the handlers of the core actions write it.
#[derive(Clone, Debug, PartialEq)]
pub enum StepShapeUpdate {
    /// A step starts.
    Clear,
    /// Adds a message, or replaces the one of the same key.
    Message(ContextMessage),
    Override(InferenceOverride),
    /// Takes a tool out.
    Exclude(String),
    ExcludeAll(ExcludedTools),
    /// Adds to the only tools.
    IncludeOnly(Vec<String>),
    /// Adds to the tools that come last.
    Last(Vec<String>),
}

impl StateKey for StepShape {
    const KEY: &'static str = "runtime.step_shape";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = InferenceShape;
    type Update = StepShapeUpdate;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        match update {
            StepShapeUpdate::Clear => *value = InferenceShape::default(),
            StepShapeUpdate::Message(message) => put(&mut value.context_messages, message),
            StepShapeUpdate::Override(changes) => value.overrides.merge(changes),
            StepShapeUpdate::Exclude(tool) => {
                value.excluded.insert(tool);
            }
            StepShapeUpdate::ExcludeAll(group) => value.excluded_groups.push(group),
            StepShapeUpdate::IncludeOnly(tools) => {
                value.include_only.get_or_insert_default().extend(tools);
            }
            StepShapeUpdate::Last(tools) => {
                for tool in tools {
                    if !value.last.contains(&tool) {
                        value.last.push(tool);
                    }
                }
            }
        }
    }
}

/// The messages that last, and when the throttled ones were last shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextLog {
    /// Persistent messages, in the order of their first appearance, so that a prompt cache stays valid.
    pub persistent: Vec<ContextMessage>,
    /// The step in which a throttled message was last shown, by key.
    pub shown: BTreeMap<String, u32>,
}

/// The run's [`ContextLog`].
pub struct ContextMessages;

/// An update of [`ContextMessages`]; only the handlers of the core actions write it.
#[derive(Clone, Debug, PartialEq)]
pub enum ContextUpdate {
    /// Adds a persistent message, or replaces the one of the same key in its place.
    Keep(ContextMessage),
    /// Notes the step in which a throttled message is shown.
    Shown(String, u32),
}

impl StateKey for ContextMessages {
    const KEY: &'static str = "runtime.context_messages";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = ContextLog;
    type Update = ContextUpdate;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        match update {
            ContextUpdate::Keep(message) => put(&mut value.persistent, message),
            ContextUpdate::Shown(key, step) => {
                value.shown.insert(key, step);
            }
        }
    }
}

fn put(messages: &mut Vec<ContextMessage>, message: ContextMessage) {
    match messages.iter_mut().find(|known| known.key == message.key) {
        Some(known) => *known = message,
        None => messages.push(message),
    }
}

/// Returns the changes that plugins want to the step's request: the persistent messages first, then the
/// step's own. A message of the step replaces the persistent one with the same key for the duration of the
/// step.
pub fn inference_shape(snapshot: &Snapshot) -> InferenceShape {
    let mut shape = snapshot.get::<StepShape>().cloned().unwrap_or_default();
    if let Some(log) = snapshot.get::<ContextMessages>() {
        let mut messages = log.persistent.clone();
        for message in shape.context_messages {
            put(&mut messages, message);
        }
        shape.context_messages = messages;
    }
    shape
}

struct CoreHandlers;

#[async_trait]
impl TypedScheduledActionHandler<AddContextMessage> for CoreHandlers {
    async fn handle_typed(
        &self,
        ctx: &PhaseContext,
        message: ContextMessage,
    ) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        if message.persistent {
            command.update::<ContextMessages>(ContextUpdate::Keep(message));
            return Ok(command);
        }
        if message.cooldown_turns > 0 {
            let step = ctx.progress.steps;
            let shown = ctx.state::<ContextMessages>().and_then(|log| log.shown.get(&message.key));
            if shown.is_some_and(|shown| *shown < step && step - shown <= message.cooldown_turns) {
                return Ok(command);
            }
            command.update::<ContextMessages>(ContextUpdate::Shown(message.key.clone(), step));
        }
        command.update::<StepShape>(StepShapeUpdate::Message(message));
        Ok(command)
    }
}

/// Handlers that only note their payload in the shape of the step.
macro_rules! shaping {
    ($($action:ty => $update:ident;)+) => {$(
        #[async_trait]
        impl TypedScheduledActionHandler<$action> for CoreHandlers {
            async fn handle_typed(
                &self,
                _: &PhaseContext,
                payload: <$action as ScheduledActionSpec>::Payload,
            ) -> Result<StateCommand, StateError> {
                let mut command = StateCommand::new();
                command.update::<StepShape>(StepShapeUpdate::$update(payload));
                Ok(command)
            }
        }
    )+};
}

shaping! {
    SetInferenceOverride => Override;
    ExcludeTool => Exclude;
    ExcludeTools => ExcludeAll;
    IncludeOnlyTools => IncludeOnly;
    OfferLast => Last;
}

/// Registers the core keys and handlers.
pub(super) fn register(registrar: &mut PluginRegistrar) -> Result<(), StateError> {
    let kept = StateKeyOptions::default();
    registrar.register_key::<PendingScheduledActions>(kept)?;
    registrar.register_key::<FailedScheduledActions>(kept)?;
    registrar.register_key::<StopRequest>(kept)?;
    registrar.register_key::<RoundsCountedFrom>(kept)?;
    registrar.register_key::<StepShape>(kept)?;
    registrar.register_key::<ContextMessages>(kept)?;
    registrar.register_scheduled_action::<AddContextMessage, _>(CoreHandlers)?;
    registrar.register_scheduled_action::<SetInferenceOverride, _>(CoreHandlers)?;
    registrar.register_scheduled_action::<ExcludeTool, _>(CoreHandlers)?;
    registrar.register_scheduled_action::<ExcludeTools, _>(CoreHandlers)?;
    registrar.register_scheduled_action::<IncludeOnlyTools, _>(CoreHandlers)?;
    registrar.register_scheduled_action::<OfferLast, _>(CoreHandlers)
}
