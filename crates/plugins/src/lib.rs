//! Behaviour that hooks into the phases of a run. No plugin names another plugin, a tool, or the runtime.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

pub mod context;
pub mod deferred_tools;
pub mod generative_ui;
pub mod handoff;
pub mod hooks;
pub mod memory;
pub mod observe;
pub mod permission;
pub mod reminder;
pub mod skills;
pub mod stop;

/// Registration of what a plugin brings.
pub mod registry {
    pub use aye_core::phase::PluginRegistrar;
}

pub use aye_core::phase::{Plugin, PluginDescriptor, PluginRegistrar};
