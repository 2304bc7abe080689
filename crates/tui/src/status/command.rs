//! A user's command that writes the status line: its input, and when it runs.
//!
//! It runs some time after a change, one at a time, and never again while nothing changes.

use serde_json::{Value, json};

use super::cost;
use super::segment::{model, percent, tokens};
use crate::app::{App, RunState};
use crate::transcript::Moment;

/// So long is waited for the changes that come with one.
const GATHER_MS: u64 = 300;
/// The least time between two starts.
const PAUSE_MS: u64 = 1000;

/// The command's words, and what it was told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusCommand {
    is_on: bool,
    shown: Option<String>,
    told: Option<Value>,
    due: Option<Moment>,
    started: Option<Moment>,
    is_running: bool,
}

impl StatusCommand {
    /// One that a command is asked for.
    pub fn on() -> StatusCommand {
        StatusCommand { is_on: true, due: Some(Moment::default()), ..StatusCommand::default() }
    }

    /// What the command wrote last.
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

    /// What the command is to be told now, when it is.
    pub fn take(&mut self, now: Moment, told: impl FnOnce() -> Value) -> Option<String> {
        if self.is_running || self.due.is_none_or(|due| now < due) {
            return None;
        }
        self.due = None;
        let told = told();
        if self.told.as_ref() == Some(&told) {
            return None;
        }
        let text = told.to_string();
        self.told = Some(told);
        self.started = Some(now);
        self.is_running = true;
        Some(text)
    }

    /// The command wrote something, or failed: then the built-in line is shown. The first failure is said.
    pub fn wrote(&mut self, text: Result<String, String>) -> Option<String> {
        self.is_running = false;
        match text {
            Ok(text) => {
                self.shown = Some(text);
                None
            }
            Err(why) => {
                self.shown = None;
                // What fails once would fail at each change: it is left alone.
                self.is_on = false;
                self.due = None;
                Some(format!("status line command: {why}; showing the built-in line"))
            }
        }
    }
}

/// What the command gets on its standard input. Nothing in it changes by itself while time passes.
pub fn told(app: &App) -> Value {
    let info = &app.info;
    let state = match app.run {
        RunState::Idle => "idle",
        RunState::Starting(_) | RunState::Running(_) => "working",
        RunState::Stopping(_) => "stopping",
        RunState::Waiting => "waiting",
    };
    let (input, output) = tokens(app);
    let used = app.transcript.context_tokens();
    let window = info.context_window.filter(|window| *window > 0);
    json!({
        "version": info.version,
        "state": state,
        "model": model(app),
        "provider": info.provider,
        "agent": app.transcript.handed_to().map(|(agent, _)| agent).or(info.agent.as_deref()),
        "mode": info.mode.as_str(),
        "folder": info.cwd,
        "project": info.project,
        "branch": info.branch,
        "thread": app.thread.as_ref().map(|thread| json!({"id": thread.id, "title": thread.title})),
        "context": {
            "tokens": used,
            "window": window,
            "percent": window.map(|window| percent(used, window)),
        },
        "tokens": {"input": input, "output": output},
        "cost": cost(app),
        "last_run_ms": app.last_run_ms,
        "queued": app.queue.unsent.len() + app.queue.rows.len(),
        "tasks": app.tasks,
        "waiting": {"here": app.own_cards(), "elsewhere": app.unseen_elsewhere()},
        "columns": app.size.0,
    })
}
