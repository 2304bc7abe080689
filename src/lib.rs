#![doc = include_str!("ARCHITECTURE.md")]

/// The programs of the guide for embedding aye, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct LibraryGuide;

pub mod state;

pub mod contract;

pub mod context;

pub mod front_matter;

pub mod walk;

pub mod run;

pub mod phase;

pub mod pattern;

pub mod llm;

pub mod store;

pub mod runtime;

pub mod snapshots;

pub mod plugins;

pub mod agents;

pub mod tools;

pub mod mcp;

pub mod picture;

pub mod config;

pub mod headless;

pub mod tui;

pub mod app;
pub mod cli;
pub mod logging;

// The book's names, so that a reader of it finds things where it says they are.

pub mod facade;

pub use facade::{
    agent, builder, engine, execution, ext_deferred_tools, ext_generative_ui, ext_mcp, ext_observability,
    ext_permission, ext_reminder, ext_skills, extensions, loop_runner, model, policies, registry,
    registry_spec, stores,
};

/// Cooperative cancellation: clones share one state.
pub use tokio_util::sync::CancellationToken;

pub use context::{CompactionConfig, CompactionConfigKey};
pub use contract::profile::{ProfileAccess, ProfileKey, ProfileOwner, ProfileStore, StateScope};
pub use contract::spec::{AgentSpec, ContextCompactionMode, ContextWindowPolicy, ModelSpec, PluginConfigKey};
pub use phase::{
    ConfigSchema, DEFAULT_MAX_PHASE_ROUNDS, ExecutionEnv, FailedScheduledActions, PendingScheduledActions,
    PhaseContext, PhaseHook, PhaseRuntime, Plugin, PluginDescriptor, PluginRegistrar, TypedEffectHandler,
    TypedScheduledActionHandler,
};
pub use runtime::{
    AgentResolver, AgentRunResult, AgentRuntime, AgentRuntimeBuilder, BuildError, ResolvedAgent, RunRequest,
    RuntimeError,
};
pub use state::{
    CommitEvent, CommitHook, EffectSpec, JsonValue, KeyScope, MergeStrategy, MutationBatch, PersistedState,
    Phase, ScheduledActionSpec, Snapshot, StateCommand, StateError, StateKey, StateKeyOptions, StateMap,
    StateStore, TypedEffect, UnknownKeyPolicy,
};
