//! Behaviour that hooks into the phases of a run. No plugin names another plugin, a tool, or the runtime.

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

pub use crate::phase::{Plugin, PluginDescriptor, PluginRegistrar};
