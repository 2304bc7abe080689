//! Commands of a file at the boundaries of a run, for people who write no Rust.
//!
//! A hook is an entry in a `hooks.toml`: a phase, perhaps a pattern of tool calls, and a command. The command gets the
//! moment as JSON on its stdin ([`event()`]) and may answer with JSON on its stdout ([`HookResponse`]); what it wants is turned
//! into what a plugin's own hook could have said. It only ever makes a run stricter: it can keep a call from running and
//! ask the person about it, and nothing that it says lets a call pass that the rules deny or ask about.
//!
//! A phase hook of the engine may be run twice and must be pure; a command has effects. So the phase hook here only
//! schedules an action, and the handler of the action runs the commands: once for each boundary. A call is judged anew
//! when its question was answered, when its world changed meanwhile, and after a restart between the verdict and the
//! start of the tool: those are boundaries of their own, and the event says whether an answer is in hand.
//!
//! What goes wrong with a command at the gate of a call keeps the call from running; anywhere else it is a warning.

mod answer;
mod config;
mod event;
mod plugin;
mod runner;
#[cfg(test)]
mod tests;

pub use answer::{Context, GivenResult, HookAsk, HookFailure, HookResponse, read};
pub use config::{
    DEFAULT_TIMEOUT, HookFileError, HookLayer, HookSpec, MAX_TIMEOUT, PHASES, load, parse, phase_name,
};
pub use event::{EVENT_VERSION, event};
pub use plugin::{HOOKS_PLUGIN, HooksPlugin, Workplace};
pub use runner::{HookNotRun, HookOutput, HookRequest, HookRunner, MAX_STDERR, request};
