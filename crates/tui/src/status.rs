//! The status line: segments by importance, as many as fit.

use std::path::Path;

use ratatui::text::{Line, Span};

use super::app::{App, Focus, RunState};
use super::host::ThreadOwner;
use super::keymap::{Action, KeyContext};
use super::theme::{Role, Theme};
use super::transcript::RunActivity;
use super::view::Hint;
use super::wrap::{truncate, width};
use aye_core::contract::display::visible_line;
use aye_core::contract::question::tool_words;

/// The pictures of the spinner.
const SPINNER: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠇", "⠏", "⠟"];

/// So much of a command's line names it.
const MAX_COMMAND_COLUMNS: u16 = 32;

/// From this many columns on, a countdown and how to interrupt fit next to each other.
const BESIDE_COUNTDOWN: u16 = 58;

mod chrome;
mod command;
mod segment;
#[cfg(test)]
mod tests;

pub use aye_core::contract::amount::duration;
pub use chrome::{Chrome, TitleProgress, chrome};
pub use command::{StatusCommand, command_input};
pub use segment::Segment;

/// A piece of the line. A smaller rank stays longer when it gets narrow.
struct StatusItem {
    text: String,
    role: Role,
    rank: u8,
    /// If the whole text does not fit, its first columns, this many, are enough.
    shrinks_to: Option<usize>,
}

impl StatusItem {
    /// Creates an item that is shown either in full or not at all.
    fn new(text: String, role: Role, rank: u8) -> StatusItem {
        StatusItem { text, role, rank, shrinks_to: None }
    }
}

/// Returns the current hint, no wider than `columns`: the possible continuations of a partial key sequence,
/// or the last hint. The hint has a row of its own, so it never hides the status line.
pub fn hint(app: &App, columns: u16, theme: &Theme) -> Option<Line<'static>> {
    let (text, role) = if !app.begun.is_empty() {
        (begun(app), Role::Key)
    } else if let Some((hint, _)) = &app.display.hint {
        (visible_line(hint).into_owned(), Role::Info)
    } else {
        // A draft over a question: Enter may be meant for either.
        let is_draft = app.focus == Focus::Composer && !app.composer.is_empty();
        (beside_question(app).filter(|_| is_draft)?, Role::Dim)
    };
    let text = truncate(&text, columns.saturating_sub(2));
    Some(Line::from(vec![Span::raw("  "), Span::styled(text, theme.style(role))]))
}

/// Returns what the keys of the composer do while a question of the conversation is pending.
pub fn beside_question(app: &App) -> Option<String> {
    if app.own_cards() == 0 {
        return None;
    }
    let chord = |action| app.keymap.chord_of(KeyContext::Composer, action);
    let (answer, enter, behind) = (chord(Action::FocusCard), chord(Action::Send), chord(Action::SendBehind));
    Some(if app.queue.keeps_waiting || app.conversation.is_active() {
        format!("{answer}: answer · {enter}: send after it")
    } else if behind.is_empty() {
        format!("{answer}: answer · {enter}: drop the question and send")
    } else {
        format!("{answer}: answer · {enter}: drop the question and send · {behind}: send after it")
    })
}

/// Returns the line that says what works in the background, no wider than `columns`.
pub fn tasks(app: &App, columns: u16, theme: &Theme) -> Option<Line<'static>> {
    let named = app
        .conversation
        .commands
        .iter()
        .map(|(id, line)| format!("{id} {}", truncate(line, MAX_COMMAND_COLUMNS)));
    let agents = match app.conversation.tasks.saturating_sub(app.conversation.commands.len()) {
        0 => None,
        1 => Some("1 subagent".to_owned()),
        n => Some(format!("{n} subagents")),
    };
    let named = agents.into_iter().chain(named).collect::<Vec<_>>().join(" · ");
    let text = truncate(&format!("in the background: {named}"), columns.saturating_sub(2));
    let line = Line::from(vec![Span::raw("  "), Span::styled(text, theme.style(Role::Dim))]);
    (app.conversation.tasks > 0).then_some(line)
}

/// Returns the status line, at most `columns` wide.
pub fn line(app: &App, columns: u16, theme: &Theme) -> Line<'static> {
    let mut pieces = pieces(app);
    let indent = usize::from(columns > 30) * 2;
    let room = usize::from(columns).saturating_sub(indent);
    let total = |pieces: &[StatusItem]| {
        pieces.iter().map(|piece| width(&piece.text)).sum::<usize>() + pieces.len().saturating_sub(1) * 3
    };
    while pieces.len() > 1 && total(&pieces) > room {
        let (at, least) = pieces
            .iter()
            .enumerate()
            .max_by_key(|(_, piece)| piece.rank)
            .map_or((0, None), |(at, piece)| (at, piece.shrinks_to));
        let all = width(&pieces[at].text);
        let left = room.saturating_sub(total(&pieces) - all);
        match least {
            Some(least) if least <= left && left < all => {
                pieces[at].text = truncate(&pieces[at].text, left as u16);
            }
            Some(_) | None => drop(pieces.remove(at)),
        }
    }
    let mut spans = vec![Span::raw(" ".repeat(indent))];
    for (i, piece) in pieces.into_iter().enumerate() {
        if i > 0 {
            spans.push(Span::styled(" · ", theme.style(Role::Dim)));
        }
        spans.push(Span::styled(truncate(&piece.text, room as u16), theme.style(piece.role)));
    }
    Line::from(spans)
}

/// Returns the keys of a partial sequence and its possible continuations.
fn begun(app: &App) -> String {
    let keys: Vec<String> = app.begun.iter().map(ToString::to_string).collect();
    let more = app.keymap.continuations_of(&app.key_layers(), &app.begun);
    let more: Vec<String> = more.iter().map(|(keys, help)| format!("{keys}: {help}")).collect();
    let cancel = app.keymap.chord_of(KeyContext::Composer, Action::Interrupt);
    format!("{} …  {} · {cancel}: cancel", keys.join(" "), more.join(" · "))
}

/// Returns the items to show: first those that must not be missed, then the segments the user configured, or
/// a default selection.
fn pieces(app: &App) -> Vec<StatusItem> {
    let mut pieces = working(app);
    if let Some(text) = app.display.feed.shown() {
        pieces.push(StatusItem {
            text: visible_line(text).into_owned(),
            role: Role::Status,
            rank: 3,
            shrinks_to: None,
        });
        return pieces;
    }
    match &app.display.segments {
        None => {
            let all = Segment::STANDARD.iter().flat_map(|segment| segment.pieces(app));
            pieces.extend(all);
        }
        Some(chosen) => {
            for (at, segment) in chosen.iter().enumerate() {
                // The earlier a configured segment comes, the longer it stays as the line gets narrower.
                let rank = 2 + u8::try_from(at).unwrap_or(u8::MAX - 2);
                pieces.extend(segment.pieces(app).into_iter().map(|piece| StatusItem { rank, ..piece }));
            }
        }
    }
    pieces
}

/// Returns the items that show that a run is active and which process drives it.
fn working(app: &App) -> Vec<StatusItem> {
    let mut pieces = Vec::new();
    if let Some(since) = app.conversation.run.active_since() {
        let passed = app.now.since(since);
        let stop = app.keymap.chord_of(KeyContext::Composer, Action::Interrupt);
        let (word, role) = match app.conversation.run {
            RunState::Stopping(_) => ("stopping".to_owned(), Role::Warning),
            RunState::Idle | RunState::Starting(_) | RunState::Running(_) | RunState::Waiting => {
                (run_activity(app), Role::Accent)
            }
        };
        if app.display.is_calm {
            pieces.push(StatusItem::new(format!("{word} {}", whole_seconds(passed)), role, 0));
        } else {
            // The spinner turns while something changes and stops when nothing does.
            let turned =
                app.now.min(app.conversation.moved.max(since).plus(super::app::STILL_MS)).since(since);
            let spin = SPINNER[(turned / super::app::TICK_MS) as usize % SPINNER.len()];
            pieces.push(StatusItem::new(format!("{spin} {word} {}", duration(passed)), role, 0));
        }
        let retry = app.conversation.transcript.retry(app.now);
        // Next to a countdown, how to interrupt needs a wide terminal.
        let rank = if retry.is_some() && app.display.size.0 < BESIDE_COUNTDOWN { 3 } else { 1 };
        if let Some(retry) = retry {
            let text = visible_line(&retry).into_owned();
            let when = text.split_once(": ").map(|(when, _)| when);
            let when = when.map(|when| width(when.split_once(" with ").map_or(when, |(when, _)| when)));
            pieces.push(StatusItem { text, role: Role::Warning, rank: 2, shrinks_to: when });
        }
        if !matches!(app.conversation.run, RunState::Stopping(_)) {
            match app.conversation.driver {
                ThreadOwner::Other(_) => {}
                ThreadOwner::Nobody | ThreadOwner::Own => {
                    // How to interrupt is the last item to give up as the line gets narrower.
                    pieces.push(StatusItem::new(format!("{stop} interrupts"), Role::Dim, rank));
                }
            }
        }
    }
    if let Some(vim) = &app.vim {
        pieces.push(StatusItem::new(
            format!("{} {}", vim.mode().name(), vim.pending()).trim_end().to_owned(),
            Role::StatusMode,
            1,
        ));
    }
    if let ThreadOwner::Other(pid) = app.conversation.driver {
        pieces.push(StatusItem::new(format!("running in process {pid}"), Role::Warning, 1));
    }
    pieces
}

/// The keys that the line names.
pub fn hints(app: &App) -> Vec<Hint> {
    let stop = app.keymap.chord_of(KeyContext::Composer, Action::Interrupt);
    let key = app.keymap.key_of(KeyContext::Composer, Action::Interrupt);
    vec![Hint::new(format!("{stop} interrupts"), key)]
}

/// Describes in a few words what the run is waiting for.
fn run_activity(app: &App) -> String {
    let tool = |name: &str| truncate(&visible_line(&tool_words(name)), 24);
    match app.conversation.transcript.run_activity() {
        RunActivity::Asking if app.display.size.0 < 50 => "waiting".to_owned(),
        RunActivity::Asking
            if app.display.size.0 < 80 && app.conversation.transcript.retry(app.now).is_some() =>
        {
            "waiting".to_owned()
        }
        RunActivity::Asking => "waiting for the model".to_owned(),
        RunActivity::Thinking => "thinking".to_owned(),
        RunActivity::Answering => "answering".to_owned(),
        RunActivity::Calling(name) => format!("calling {}", tool(&name)),
        RunActivity::Running(name) => format!("running {}", tool(&name)),
        RunActivity::Several(count) => format!("running {count} calls"),
    }
}

/// Returns the cost of the conversation so far: what each model answered, at its own price.
pub(super) fn cost(app: &App) -> Option<f64> {
    app.info.prices.cost(app.conversation.transcript.spent())
}

/// How long the program was open, and what the conversation cost, for the goodbye.
pub(super) fn spent(app: &App) -> Vec<String> {
    let cost = cost(app).filter(|cost| *cost >= 0.01).map(|cost| format!("${cost:.2}"));
    std::iter::once(duration(app.now.0)).chain(cost).collect()
}

/// A path with the home folder written as `~`, safe to show.
pub fn short_path(path: &Path, home: Option<&Path>) -> String {
    let short = home.filter(|home| home.parent().is_some()).and_then(|home| path.strip_prefix(home).ok());
    let text = match short {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    };
    visible_line(&text).into_owned()
}

/// [`duration`] in whole seconds.
pub(super) fn whole_seconds(ms: u64) -> String {
    if ms < 10_000 { format!("{} s", ms / 1000) } else { duration(ms) }
}
