//! The action of a hook command at a boundary of a run, for the audit.

use serde::{Deserialize, Serialize};

use super::ids::CallId;
use crate::state::{EffectSpec, Phase};

/// One command that was run because of a hook in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRan {
    pub name: String,
    /// The place where the hook is configured.
    pub origin: String,
    pub phase: Phase,
    /// The call, at the boundaries of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// Its exit status; `None` when a signal or the time limit ended it, or it was not started.
    pub exit: Option<i32>,
    /// The duration of the hook, in milliseconds.
    pub duration_ms: u64,
    /// The answer or the error of the hook, on one line.
    pub answer: String,
    /// When it ended, in Unix milliseconds.
    pub at: u64,
}

/// The core effect that carries a [`HookRan`] to the driver, which writes it with its next transaction. Every
/// agent has this effect.
pub struct ReportHook;

impl EffectSpec for ReportHook {
    const KEY: &'static str = "runtime.report_hook";
    type Payload = HookRan;
}
