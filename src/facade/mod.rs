//! The book's names for programs that embed aye, where the book has them. Each name is documented at its
//! definition.

#[cfg(feature = "mcp")]
pub mod ext_mcp;
pub mod ext_permission;
pub mod policies;
pub mod prelude;

/// Skills.
pub mod ext_skills {
    pub use crate::plugins::skills::*;
}

/// Reminders for the model after tool calls.
pub mod ext_reminder {
    pub use crate::plugins::reminder::*;
}

/// Surfaces that a model describes.
pub mod ext_generative_ui {
    pub use crate::plugins::generative_ui::*;
}

/// Tools whose parameters a model asks for.
pub mod ext_deferred_tools {
    pub use crate::plugins::deferred_tools::*;

    /// The stored state.
    pub mod state {
        pub use crate::plugins::deferred_tools::{
            AgentToolPriors, DeferToolAction, DeferralRegistry, DeferralState, DeferralStateValue,
            DiscBetaState, PromoteToolAction, ToolUsageStats,
        };
    }
}

/// Measurements of runs.
pub mod ext_observability {
    pub use crate::plugins::observe::*;
}

/// The extensions included in the runtime.
pub mod extensions {
    /// Handoffs: a run that continues as another agent.
    pub mod handoff {
        pub use crate::plugins::handoff::*;
    }
}

/// Models.
pub mod engine {
    pub use crate::llm::*;
}

/// Specifications of agents and models.
pub mod registry_spec {
    pub use crate::contract::spec::*;
}

/// The registered items, and the agents resolved from them.
pub mod registry {
    pub use crate::contract::spec::{ModelEntry, ModelSpec};
    pub use crate::runtime::{AgentResolver, Catalog, ResolveError, ResolvedAgent};
}

/// Phases, actions, effects.
pub mod model {
    pub use crate::state::model::*;
}

/// The stores of threads and runs.
pub mod stores {
    pub use crate::contract::storage::{RunStore, ThreadRunStore, ThreadStore};
    pub use crate::store::{FileStore, InMemoryMailboxStore, InMemoryStore, Store};
}

/// One run of an agent that is put together by hand.
pub mod loop_runner {
    pub use crate::runtime::AgentRunResult;
    pub use crate::runtime::loop_runner::*;
}

/// The builder of a runtime.
pub mod builder {
    pub use crate::runtime::{AgentRuntimeBuilder, BuildError};
}

/// The state that runs keep for their agents.
pub mod agent {
    /// The core actions, and the messages that they leave.
    pub mod state {
        pub use crate::phase::{
            AddContextMessage, ContextMessages, ExcludeTool, IncludeOnlyTools, SetInferenceOverride,
        };
    }
}

/// The items that the plugins of an agent registered, and the execution of tool calls.
pub mod execution {
    pub use crate::contract::executor::{DecisionReplayPolicy, ToolExecutionMode};
    pub use crate::phase::ExecutionEnv;
    pub use crate::runtime::executor::{
        ParallelToolExecutor, SequentialToolExecutor, ToolExecutionResult, ToolExecutor, ToolExecutorError,
    };
}
