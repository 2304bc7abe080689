//! Runs commands from a file at the boundaries of a run, for users who write no Rust.
//!
//! A hook is an entry in a `hooks.toml`: a phase, optionally a pattern of tool calls, and a command. The
//! command receives the event as JSON on its stdin ([`event()`]) and may answer with JSON on its stdout; the
//! answer is converted to what a plugin's own hook could have requested. A hook only ever makes a run
//! stricter: it can keep a call from running and ask the user about it, but it can never let a call pass that
//! the rules deny or ask about.
//!
//! A phase hook of the engine may run twice and must be pure; a command has effects. Therefore the phase hook
//! here only schedules an action, and the action's handler runs the commands: once for each boundary. A call
//! is judged again when its question was answered, when its preconditions changed in the meantime, and after
//! a restart between the verdict and the start of the tool: those are separate boundaries, and the event
//! reports whether there is a decision.
//!
//! A command that fails at the gate of a call keeps the call from running; anywhere else the failure is a
//! warning.

mod answer;
mod config;
mod event;
mod foreign;
mod plugin;
mod runner;
#[cfg(test)]
mod tests;

pub use answer::{Context, GivenResult, HookAsk, HookFailure, HookResponse, read};
pub use config::{
    DEFAULT_TIMEOUT, HookFileError, HookLayer, HookSpec, MAX_TIMEOUT, PHASES, load, parse, phase_name,
};
pub use event::{EVENT_VERSION, event};
pub use plugin::{HOOKS_PLUGIN, HookContext, HooksPlugin};
pub use runner::{HookNotRun, HookOutput, HookRequest, HookRunner, MAX_STDERR, request};
