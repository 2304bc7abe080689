//! The names used by most programs that embed aye: `use aye::prelude::*`.

pub use super::agent::state::{AddContextMessage, ExcludeTool, IncludeOnlyTools, SetInferenceOverride};
pub use crate::contract::context_message::ContextMessage;
pub use crate::contract::event::AgentEvent;
pub use crate::contract::event_sink::{EventSink, NullEventSink, VecEventSink};
pub use crate::contract::message::Message;
pub use crate::contract::spec::{AgentSpec, ModelEntry, ModelSpec, PluginConfigKey};
pub use crate::contract::tool::{
    ParsedCall, Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult, ToolStatus,
};
pub use crate::contract::tool_intercept::{ToolInterceptAction, ToolInterceptPayload};
pub use crate::phase::{
    PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar, TypedEffectHandler,
    TypedScheduledActionHandler,
};
pub use crate::runtime::{AgentRunResult, AgentRuntime, AgentRuntimeBuilder, RunRequest};
pub use crate::state::{
    EffectSpec, KeyScope, MergeStrategy, Phase, ScheduledActionSpec, Snapshot, StateCommand, StateError,
    StateKey, StateKeyOptions,
};
