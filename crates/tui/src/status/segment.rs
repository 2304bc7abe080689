//! The segments of the status line that a user can configure.

use super::{StatusItem, cost, duration, short_path};
use crate::app::App;
use crate::host::Mode;
use crate::keymap::{Action, KeyContext};
use crate::theme::Role;
use crate::wrap::truncate;
use aye_core::contract::amount::short_number;
use aye_core::contract::display::visible_line;

/// The maximum columns of a model's name, and the minimum that still distinguishes models.
const MAX_MODEL_COLUMNS: u16 = 32;
const MIN_MODEL_COLUMNS: usize = 12;

/// Used shares of the window, in percent, from which the status line warns.
const CONTEXT_WARNING: u64 = 70;
const CONTEXT_ERROR: u64 = 90;

/// A part of the status line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    Model,
    /// The effort level of the model.
    Effort,
    Mode,
    /// The agent, unless it is the built-in one.
    Agent,
    Folder,
    /// The branch of git.
    Branch,
    /// How much of the context window is used.
    Context,
    /// Tokens in and out.
    Tokens,
    /// The cost of the conversation.
    Cost,
    /// The duration of the last or the current run.
    Elapsed,
    /// Messages that are queued.
    Queued,
    /// Agents at work in the background.
    Tasks,
    /// Questions that wait, here and elsewhere.
    Waiting,
    /// Instruction files in use.
    Instructions,
}

impl Segment {
    pub const ALL: [Segment; 14] = [
        Segment::Model,
        Segment::Effort,
        Segment::Mode,
        Segment::Agent,
        Segment::Folder,
        Segment::Branch,
        Segment::Context,
        Segment::Tokens,
        Segment::Cost,
        Segment::Elapsed,
        Segment::Queued,
        Segment::Tasks,
        Segment::Waiting,
        Segment::Instructions,
    ];

    /// The segments shown by default.
    pub(super) const STANDARD: [Segment; 10] = [
        Segment::Waiting,
        Segment::Agent,
        Segment::Model,
        Segment::Effort,
        Segment::Mode,
        Segment::Context,
        Segment::Tokens,
        Segment::Cost,
        Segment::Folder,
        Segment::Instructions,
    ];

    /// The name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Segment::Model => "model",
            Segment::Effort => "effort",
            Segment::Mode => "mode",
            Segment::Agent => "agent",
            Segment::Folder => "folder",
            Segment::Branch => "branch",
            Segment::Context => "context",
            Segment::Tokens => "tokens",
            Segment::Cost => "cost",
            Segment::Elapsed => "elapsed",
            Segment::Queued => "queued",
            Segment::Tasks => "tasks",
            Segment::Waiting => "waiting",
            Segment::Instructions => "instructions",
        }
    }

    /// The segment of that name.
    pub fn from_name(name: &str) -> Option<Segment> {
        Segment::ALL.into_iter().find(|segment| segment.name() == name)
    }

    /// Returns the current items of the segment; empty if there is nothing to show.
    pub(super) fn pieces(self, app: &App) -> Vec<StatusItem> {
        let one = |text: String, role: Role, rank: u8| vec![StatusItem::new(text, role, rank)];
        let counted = |count: usize, what: &str, role: Role, rank: u8| match count {
            0 => Vec::new(),
            count => one(format!("{count} {what}"), role, rank),
        };
        let info = &app.info;
        match self {
            Segment::Model => {
                let text = truncate(&model(app), MAX_MODEL_COLUMNS);
                vec![StatusItem { text, role: Role::Status, rank: 3, shrinks_to: Some(MIN_MODEL_COLUMNS) }]
            }
            Segment::Effort => info
                .effort_in_force
                .filter(|_| !info.is_demo)
                .map_or_else(Vec::new, |effort| one(format!("effort {effort}"), Role::Status, 5)),
            Segment::Mode => {
                let role = if info.mode == Mode::Yolo { Role::Warning } else { Role::StatusMode };
                let mut pieces = one(info.mode.as_str().to_owned(), role, 4);
                // In yolo nothing is sandboxed anyway.
                let lack = info.unsandboxed.as_ref().filter(|_| info.mode != Mode::Yolo);
                pieces.extend(lack.map(|lack| StatusItem::new(lack.clone(), Role::Warning, 5)));
                pieces
            }
            Segment::Agent => {
                let handed = app.conversation.transcript.handed_to().map(|(agent, _)| agent);
                handed
                    .or(info.agent.as_deref())
                    .map_or_else(Vec::new, |agent| one(visible_line(agent).into_owned(), Role::Accent, 3))
            }
            Segment::Folder => one(short_path(&info.cwd, info.home.as_deref()), Role::Status, 7),
            Segment::Branch => info
                .branch
                .as_ref()
                .map_or_else(Vec::new, |branch| one(visible_line(branch).into_owned(), Role::Status, 7)),
            Segment::Context => match (app.conversation.transcript.context_tokens(), info.context_window) {
                (0, _) => Vec::new(),
                (used, Some(window @ 1..)) => {
                    let percent = percent(used, window);
                    let (role, rank) = match percent {
                        0..CONTEXT_WARNING => (Role::Status, 5),
                        CONTEXT_WARNING..CONTEXT_ERROR => (Role::Warning, 4),
                        CONTEXT_ERROR.. => (Role::Error, 2),
                    };
                    one(format!("{percent}% context"), role, rank)
                }
                (used, _) => one(format!("{} tokens", short_number(used)), Role::Status, 5),
            },
            Segment::Tokens => {
                let (input, output) = tokens(app);
                match (input, output) {
                    (0, 0) => Vec::new(),
                    (input, output) => {
                        one(format!("↑{} ↓{}", short_number(input), short_number(output)), Role::Status, 8)
                    }
                }
            }
            Segment::Cost => cost(app).filter(|cost| *cost > 0.0).map_or_else(Vec::new, |cost| {
                one(if cost < 0.01 { "<$0.01".to_owned() } else { format!("${cost:.2}") }, Role::Status, 6)
            }),
            Segment::Elapsed => match (app.conversation.run.active_since(), app.conversation.last_run_ms) {
                // The part that says that it works says it.
                (Some(_), _) | (None, None) => Vec::new(),
                (None, Some(ms)) => one(format!("took {}", duration(ms)), Role::Status, 6),
            },
            Segment::Queued => {
                counted(app.queue.unsent.len() + app.queue.rows.len(), "queued", Role::Warning, 2)
            }
            Segment::Tasks => {
                let what = if app.conversation.tasks == 1 { "task" } else { "tasks" };
                counted(app.conversation.tasks, what, Role::Accent, 2)
            }
            Segment::Waiting => {
                let mut pieces = counted(app.own_cards(), "waiting", Role::Warning, 1);
                let elsewhere = app.unseen_elsewhere();
                if elsewhere > 0 {
                    let chord = app.keymap.chord_of(KeyContext::Global, Action::Inbox);
                    let chord = if chord.is_empty() { chord } else { format!(" ({chord})") };
                    let text = format!("{elsewhere} waiting elsewhere{chord}");
                    pieces.extend(one(text, Role::Warning, 2));
                }
                pieces
            }
            Segment::Instructions => info.instructions.as_ref().map_or_else(Vec::new, |instructions| {
                one(visible_line(instructions).into_owned(), Role::Status, 8)
            }),
        }
    }
}

/// The model that answers, as it is shown.
pub(super) fn model(app: &App) -> String {
    let model = match app.conversation.transcript.handed_to() {
        Some((_, model)) if !model.is_empty() => visible_line(model).into_owned(),
        _ if app.info.is_demo => "demo".to_owned(),
        _ => visible_line(&app.info.model).into_owned(),
    };
    let model = match app.conversation.transcript.stands_in() {
        Some(other) => format!("{} (for {model})", visible_line(other)),
        None => model,
    };
    if model.is_empty() { "no model".to_owned() } else { model }
}

pub(super) fn percent(used: u64, window: u64) -> u64 {
    (used * 100).div_ceil(window.max(1)).min(999)
}

/// Tokens in and out.
pub(super) fn tokens(app: &App) -> (u64, u64) {
    let usage = app.conversation.transcript.usage();
    let count = |tokens: Option<i32>| u64::try_from(tokens.unwrap_or(0)).unwrap_or(0);
    (count(usage.prompt_tokens), count(usage.completion_tokens))
}
