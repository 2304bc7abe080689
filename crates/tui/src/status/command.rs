//! A user's command that writes the status line: its input, and when it runs.
//!
//! It runs some time after a change, one at a time, and never again while nothing changes.

use serde_json::{Value, json};

use super::cost;
use super::segment::{model, percent, tokens};
use crate::app::{App, RunState};
use crate::transcript::Moment;

/// How long to wait after a change for related changes, in milliseconds.
const GATHER_MS: u64 = 300;
/// The least time between two starts.
const PAUSE_MS: u64 = 1000;

/// The status line command: its last output and its last input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusCommand {
    is_on: bool,
    shown: Option<String>,
    last_input: Option<Value>,
    due: Option<Moment>,
    started: Option<Moment>,
    is_running: bool,
}

impl StatusCommand {
    /// Creates the state for a configured command.
    pub fn on() -> StatusCommand {
        StatusCommand { is_on: true, due: Some(Moment::default()), ..StatusCommand::default() }
    }

    /// Returns the command's last output.
    pub fn shown(&self) -> Option<&str> {
        self.shown.as_deref()
    }

    /// Something may have changed.
    pub fn touch(&mut self, now: Moment) {
        if self.is_on && self.due.is_none() {
            let soonest = self.started.map_or(now, |started| started.plus(PAUSE_MS));
            self.due = Some(now.plus(GATHER_MS).max(soonest));
        }
    }

    /// When the command may have to be asked.
    pub fn deadline(&self) -> Option<Moment> {
        self.due.filter(|_| !self.is_running)
    }

    /// Returns the input to run the command with now, or `None` if it is not due.
    pub fn take(&mut self, now: Moment, input: impl FnOnce() -> Value) -> Option<String> {
        if self.is_running || self.due.is_none_or(|due| now < due) {
            return None;
        }
        self.due = None;
        let input = input();
        if self.last_input.as_ref() == Some(&input) {
            return None;
        }
        let text = input.to_string();
        self.last_input = Some(input);
        self.started = Some(now);
        self.is_running = true;
        Some(text)
    }

    /// Stores the command's output. If the command failed, the built-in line is shown and the command is
    /// turned off; the returned notice reports the failure.
    pub fn wrote(&mut self, text: Result<String, String>) -> Option<String> {
        self.is_running = false;
        match text {
            Ok(text) => {
                self.shown = Some(text);
                None
            }
            Err(why) => {
                self.shown = None;
                // A command that fails once would fail after every change, so it is not run again.
                self.is_on = false;
                self.due = None;
                Some(format!("status line command: {why}; showing the built-in line"))
            }
        }
    }
}

/// Returns the command's standard input. Nothing in this value changes merely because time passes.
pub fn command_input(app: &App) -> Value {
    let info = &app.info;
    let state = match app.conversation.run {
        RunState::Idle => "idle",
        RunState::Starting(_) | RunState::Running(_) => "working",
        RunState::Stopping(_) => "stopping",
        RunState::Waiting => "waiting",
    };
    let (input, output) = tokens(app);
    let used = app.conversation.transcript.context_tokens();
    let window = info.context_window.filter(|window| *window > 0);
    json!({
        "version": info.version,
        "state": state,
        "model": model(app),
        "provider": info.provider,
        "agent": app.conversation.transcript.handed_to().map(|(agent, _)| agent).or(info.agent.as_deref()),
        "mode": info.mode.as_str(),
        "folder": info.cwd,
        "project": info.project,
        "branch": info.branch,
        "thread": app.conversation.thread.as_ref().map(|thread| json!({"id": thread.id, "title": thread.title})),
        "context": {
            "tokens": used,
            "window": window,
            "percent": window.map(|window| percent(used, window)),
        },
        "tokens": {"input": input, "output": output},
        "cost": cost(app),
        "last_run_ms": app.conversation.last_run_ms,
        "queued": app.queue.unsent.len() + app.queue.rows.len(),
        "tasks": app.conversation.tasks,
        "waiting": {"here": app.own_cards(), "elsewhere": app.unseen_elsewhere()},
        "columns": app.display.size.0,
    })
}
