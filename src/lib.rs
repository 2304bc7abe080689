#![doc = include_str!("ARCHITECTURE.md")]

pub mod state;

pub mod contract;

pub mod run;

pub mod phase;

pub mod pattern;

pub mod llm;

pub mod store;

pub mod runtime;

pub mod plugins;

pub mod tools;

pub mod mcp;

pub mod config;

pub mod headless;

pub mod tui;

pub mod app;
pub mod cli;
pub mod logging;

// The book's names, so that a reader of it finds things where it says they are.

/// Models.
pub mod engine {
    pub use crate::llm::*;
}

/// Specifications of agents and models.
pub mod registry_spec {
    pub use crate::contract::spec::*;
}

/// What is registered, and what comes of resolving it.
pub mod registry {
    pub use crate::contract::spec::{ModelEntry, ModelSpec};
    pub use crate::runtime::{Catalog, ResolveError, ResolvedAgent};
}

/// Phases, actions, effects.
pub mod model {
    pub use crate::state::model::*;
}

/// Cooperative cancellation: clones share one state.
pub use tokio_util::sync::CancellationToken;

pub use contract::spec::{AgentSpec, ModelSpec, PluginConfigKey};
pub use phase::{
    ConfigSchema, DEFAULT_MAX_PHASE_ROUNDS, ExecutionEnv, FailedScheduledActions, PendingScheduledActions,
    PhaseContext, PhaseHook, PhaseRuntime, Plugin, PluginDescriptor, PluginRegistrar, TypedEffectHandler,
    TypedScheduledActionHandler,
};
pub use runtime::{
    AgentRunResult, AgentRuntime, AgentRuntimeBuilder, BuildError, ResolvedAgent, RunRequest, RuntimeError,
};
pub use state::{
    CommitEvent, CommitHook, EffectSpec, JsonValue, KeyScope, MergeStrategy, MutationBatch, PersistedState,
    Phase, ScheduledActionSpec, Snapshot, StateCommand, StateError, StateKey, StateKeyOptions, StateMap,
    StateStore, TypedEffect, UnknownKeyPolicy,
};
