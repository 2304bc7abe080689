//! Behaviour that hooks into the phases of a run. No plugin names another plugin, a tool, or the runtime.

pub mod context;
pub mod permission;
pub mod skills;
pub mod stop;
