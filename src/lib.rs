#![doc = include_str!("ARCHITECTURE.md")]
#![warn(missing_docs)]

/// The programs of the guide for embedding aye, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct LibraryGuide;

#[cfg(feature = "a2a")]
pub use aye_a2a as a2a;
pub use aye_core::{context, phase, run, state};
pub use aye_files::{front_matter, walk};
#[cfg(feature = "mcp")]
pub use aye_mcp as mcp;
pub use aye_pattern as pattern;
pub use aye_runtime as runtime;
#[cfg(feature = "server")]
pub use aye_server as server;
pub use aye_session as session;
pub use aye_snapshots as snapshots;
pub use aye_tools as tools;
#[cfg(feature = "cli")]
pub use {
    aye_config::{self as config, agents},
    aye_headless as headless, aye_tui as tui,
};

/// The vocabulary of all layers: data, and the traits between them.
pub mod contract {
    pub use aye_core::contract::*;

    /// The traits that stores implement, and their errors.
    pub mod storage {
        pub use aye_core::contract::profile::ProfileStore;
        pub use aye_core::contract::program_store::*;
        pub use aye_core::contract::storage::*;
    }
}

/// Stores: SQLite files, and one in memory.
pub mod store {
    pub use aye_local::{InMemoryMailboxStore, InMemoryStore};
    pub use aye_store_sqlite::*;
}

mod bundled;

/// Behaviour that hooks into the phases of a run, and the rules and skills that come with aye.
pub mod plugins {
    pub use aye_plugins::*;

    /// Permissions: which calls run, which ask and which are denied.
    pub mod permission {
        pub use aye_plugins::permission::*;

        /// The rules that come with aye, as their file.
        pub const SHIPPED_RULES: &str = include_str!("../permissions.yaml");
    }

    /// Folders with instructions, resources and scripts.
    pub mod skills {
        pub use crate::bundled::bundled;
        pub use aye_plugins::skills::*;
    }
}

/// Models over HTTP, the scripted and the demo model, and the retries around any model.
pub mod llm {
    pub use aye_llm::*;
    pub use aye_runtime::{
        CircuitBreaker, CircuitBreakerConfig, CircuitOpen, LlmRetryPolicy, RetryConfigKey, RetryingExecutor,
        breaker, retry,
    };
}

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
mod commands;
#[cfg(feature = "cli")]
mod compose;
#[cfg(feature = "cli")]
mod entry;
#[cfg(feature = "cli")]
mod failure;
#[cfg(feature = "cli")]
mod import;
#[cfg(feature = "cli")]
pub mod logging;
#[cfg(feature = "cli")]
pub mod picture;
#[cfg(feature = "cli")]
mod program;
#[cfg(feature = "cli")]
mod terminal;

/// The whole program, and its context.
#[cfg(feature = "cli")]
pub mod app {
    pub use crate::entry::main;
    pub use crate::failure::Failure;
    pub use crate::program::app_context::AppContext;
}

// The book's names, so that a reader of it finds things where it says they are.

pub mod facade;

#[cfg(feature = "mcp")]
pub use facade::ext_mcp;
pub use facade::{
    agent, builder, engine, execution, ext_deferred_tools, ext_generative_ui, ext_observability,
    ext_permission, ext_reminder, ext_skills, extensions, loop_runner, model, policies, prelude, registry,
    registry_spec, stores,
};

/// The launcher of commands in the sandbox: a program whose tools use a sandbox passes this argument to this
/// function.
pub use aye_sandbox::{LAUNCH_ARG, launch_main};

/// Cooperative cancellation: clones share one state.
pub use tokio_util::sync::CancellationToken;

pub use aye_core::context::{CompactionConfig, CompactionConfigKey};
pub use aye_core::contract::profile::{ProfileAccess, ProfileKey, ProfileOwner, ProfileStore, StateScope};
pub use aye_core::contract::spec::{
    AgentSpec, ContextCompactionMode, ContextWindowPolicy, ModelSpec, PluginConfigKey,
};
pub use aye_core::phase::{
    ConfigSchema, DEFAULT_MAX_PHASE_ROUNDS, ExecutionEnv, FailedScheduledActions, PendingScheduledActions,
    PhaseContext, PhaseHook, PhaseRuntime, Plugin, PluginDescriptor, PluginRegistrar, TypedEffectHandler,
    TypedScheduledActionHandler,
};
pub use aye_core::state::{
    CommitEvent, CommitHook, EffectSpec, JsonValue, KeyScope, MergeStrategy, MutationBatch, PersistedState,
    Phase, ScheduledActionSpec, Snapshot, StateCommand, StateError, StateKey, StateKeyOptions, StateMap,
    StateStore, TypedEffect, UnknownKeyPolicy,
};
pub use aye_runtime::{
    AgentResolver, AgentRunResult, AgentRuntime, AgentRuntimeBuilder, BuildError, ResolvedAgent, RunRequest,
    RuntimeError,
};
