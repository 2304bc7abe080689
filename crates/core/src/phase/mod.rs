//! The phase engine: plugins, hooks, scheduled actions, effects.
//!
//! A plugin registers what it has through a [`PluginRegistrar`]; [`ExecutionEnv`] is what all plugins of an agent
//! registered. [`PhaseRuntime::run_phase`] carries one phase out: it gathers what the hooks want on a frozen snapshot,
//! commits it, carries out the scheduled actions until none is left, and reports what the driver has to know.
//!
//! Nothing here knows a model, a tool's name, a database or a front end.

mod action;
mod config;
mod context;
mod core_actions;
mod effect;
mod engine;
mod env;
mod guard;
mod hook;
mod phase_run;
mod plugin;
mod question;
mod report;
#[cfg(test)]
mod tests;

pub use action::{
    FailedScheduledAction, FailedScheduledActions, PendingScheduledActions, PendingUpdate,
    ScheduledActionHandler, ScheduledActionHandlerArc, TypedScheduledActionHandler,
};
pub use config::{SectionError, validate_sections};
pub use context::{PhaseContext, RunProgress, RunSnapshot, ToolCallInfo};
pub use core_actions::{
    AddContextMessage, ContextLog, ContextMessages, ContextUpdate, ExcludeTool, ExcludeTools, ExcludedTools,
    IncludeOnlyTools, InferenceShape, OfferLast, RoundsCountedFrom, SetInferenceOverride, StepShape,
    StepShapeUpdate, StopRequest, inference_shape,
};
pub use effect::{EffectDispatchReport, EffectHandler, EffectHandlerArc, TypedEffectHandler};
pub use engine::{DEFAULT_MAX_PHASE_ROUNDS, PhaseRuntime};
pub use env::{ExecutionEnv, TaggedPhaseHook, TaggedRequestTransform, TaggedTool};
pub use hook::{InferenceRequestTransform, PhaseHook};
pub use plugin::{ConfigSchema, Plugin, PluginDescriptor, PluginRegistrar, TimeLimit};
pub use question::{AnotherStep, AskBeforeNext, PhaseAnswer, PhaseChoice, PhaseQuestion};
pub use report::{PhaseReport, SubmitCommandReport};
