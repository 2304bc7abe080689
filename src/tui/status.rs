//! The status line: pieces by importance, as many as there is room for.

use std::path::Path;

use ratatui::text::{Line, Span};

use super::app::{App, RunState};
use super::host::Driver;
use super::keymap::{Action, Place};
use super::theme::{Role, Theme};
use super::transcript::Doing;
use super::wrap::{truncate, width};
use crate::contract::display::visible_line;

/// The pictures of the spinner.
const SPINNER: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠇", "⠏", "⠟"];

/// A piece of the line. A smaller rank stays longer when it gets narrow.
struct Piece {
    text: String,
    role: Role,
    rank: u8,
}

/// The status line, no wider than asked. A hint takes its place while it is there.
pub fn line(app: &App, columns: u16, theme: &Theme) -> Line<'static> {
    if let Some((hint, _)) = &app.hint {
        let text = truncate(&visible_line(hint), columns.saturating_sub(2));
        return Line::from(vec![Span::raw("  "), Span::styled(text, theme.style(Role::Info))]);
    }
    let mut pieces = pieces(app);
    let indent = usize::from(columns > 30) * 2;
    let room = usize::from(columns).saturating_sub(indent);
    let total = |pieces: &[Piece]| {
        pieces.iter().map(|piece| width(&piece.text)).sum::<usize>() + pieces.len().saturating_sub(1) * 3
    };
    while pieces.len() > 1 && total(&pieces) > room {
        let least = pieces.iter().enumerate().max_by_key(|(_, piece)| piece.rank).map_or(0, |(at, _)| at);
        pieces.remove(least);
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

fn pieces(app: &App) -> Vec<Piece> {
    let info = &app.info;
    let mut pieces = Vec::new();
    let mut add = |text: String, role: Role, rank: u8| pieces.push(Piece { text, role, rank });
    if let Some(since) = app.run.awake_since() {
        let passed = app.now.since(since);
        // It turns while something moves and stands still when nothing does.
        let turned = app.now.min(app.moved.max(since).plus(super::app::STILL_MS)).since(since);
        let spin = SPINNER[(turned / super::app::TICK_MS) as usize % SPINNER.len()];
        let stop = app.keymap.chord_of(Place::Composer, Action::Interrupt);
        let (word, role) = match app.run {
            RunState::Stopping(_) => ("stopping".to_owned(), Role::Warning),
            RunState::Idle | RunState::Starting(_) | RunState::Running(_) | RunState::Waiting => {
                (doing(app), Role::Accent)
            }
        };
        add(format!("{spin} {word} {}", duration(passed)), role, 0);
        if let Some(retry) = app.transcript.retry(app.now) {
            add(visible_line(&retry).into_owned(), Role::Warning, 2);
        } else if !matches!(app.run, RunState::Stopping(_)) {
            match app.driver {
                Driver::Other(_) => {}
                Driver::Nobody | Driver::Own => add(format!("{stop} stops"), Role::Dim, 9),
            }
        }
    }
    if let Some(vim) = &app.vim {
        add(format!("{} {}", vim.mode().name(), vim.pending()).trim_end().to_owned(), Role::StatusMode, 1);
    }
    if let Driver::Other(pid) = app.driver {
        add(format!("driven by process {pid}"), Role::Warning, 1);
    }
    if app.own_cards() > 0 {
        add(format!("{} waiting", app.own_cards()), Role::Warning, 1);
    }
    let elsewhere = app.unseen_elsewhere();
    if elsewhere > 0 {
        let chord = app.keymap.chord_of(Place::Global, Action::Inbox);
        add(format!("{elsewhere} elsewhere {chord}").trim_end().to_owned(), Role::Warning, 2);
    }
    let handed = app.transcript.handed_to();
    if let Some(agent) = handed.map(|(agent, _)| agent).or(info.agent.as_deref()) {
        add(visible_line(agent).into_owned(), Role::Accent, 3);
    }
    let model = match handed {
        Some((_, model)) if !model.is_empty() => visible_line(model).into_owned(),
        _ if info.is_demo => "demo".to_owned(),
        _ => visible_line(&info.model).into_owned(),
    };
    let model = match app.transcript.stands_in() {
        Some(other) => format!("{} (for {model})", visible_line(other)),
        None => model,
    };
    add(if model.is_empty() { "no model".to_owned() } else { model }, Role::Status, 3);
    let mode = if info.mode == super::host::Mode::Yolo { Role::Warning } else { Role::StatusMode };
    add(info.mode.as_str().to_owned(), mode, 4);
    let used = app.transcript.context_tokens();
    if used > 0 {
        let text = match info.context_window.filter(|window| *window > 0) {
            Some(window) => format!("{}% context", (used * 100).div_ceil(window).min(999)),
            None => format!("{} tokens", short_number(used)),
        };
        add(text, Role::Status, 5);
    }
    let usage = app.transcript.usage();
    let tokens = |count: Option<i32>| u64::try_from(count.unwrap_or(0)).unwrap_or(0);
    let (read, written) = (tokens(usage.prompt_tokens), tokens(usage.completion_tokens));
    if read + written > 0 {
        add(format!("↑{} ↓{}", short_number(read), short_number(written)), Role::Status, 7);
    }
    if let Some(cost) = cost(app).filter(|cost| *cost > 0.0) {
        add(if cost < 0.01 { "<$0.01".to_owned() } else { format!("${cost:.2}") }, Role::Status, 6);
    }
    add(short_path(&info.cwd, info.home.as_deref()), Role::Status, 7);
    if let Some(instructions) = &info.instructions {
        add(visible_line(instructions).into_owned(), Role::Status, 8);
    }
    pieces
}

/// What is being waited for, in a few words.
fn doing(app: &App) -> String {
    let tool = |name: &str| truncate(&visible_line(name), 24);
    match app.transcript.doing() {
        Doing::Asking if app.size.0 < 50 => "waiting".to_owned(),
        Doing::Asking => "waiting for the model".to_owned(),
        Doing::Thinking => "thinking".to_owned(),
        Doing::Answering => "answering".to_owned(),
        Doing::Calling(name) => format!("calling {}", tool(&name)),
        Doing::Running(name) => format!("running {}", tool(&name)),
        Doing::Several(count) => format!("running {count} calls"),
    }
}

/// What the conversation cost so far, when prices are known.
fn cost(app: &App) -> Option<f64> {
    let price = app.info.price?;
    let usage = app.transcript.usage();
    let count = |tokens: Option<i32>| f64::from(tokens.unwrap_or(0).max(0)) / 1_000_000.0;
    let cached = count(usage.cache_read_tokens);
    let fresh = (count(usage.prompt_tokens) - cached).max(0.0);
    let cached_price = price.cache_read.unwrap_or(price.input);
    Some(fresh * price.input + cached * cached_price + count(usage.completion_tokens) * price.output)
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

/// A time span in few characters: `0.4s`, `12s`, `3m05s`.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=9 => format!("{}.{}s", seconds, ms % 1000 / 100),
        10..=59 => format!("{seconds}s"),
        60..=3599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

fn short_number(n: u64) -> String {
    match n {
        0..=9999 => n.to_string(),
        10_000..=999_999 => format!("{}k", n / 1000),
        _ => format!("{:.1}M", n as f64 / 1_000_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_spans_are_short() {
        let home = Path::new("/home/me");
        assert_eq!(short_path(Path::new("/home/me/x"), Some(home)), "~/x");
        assert_eq!(short_path(home, Some(home)), "~");
        assert_eq!(short_path(Path::new("/home/metoo"), Some(home)), "/home/metoo");
        assert_eq!(short_path(Path::new("/x"), Some(Path::new("/"))), "/x");
        let spans = [0, 420, 9_990, 61_000, 3_660_000].map(duration);
        assert_eq!(spans, ["0.0s", "0.4s", "9.9s", "1m01s", "1h01m"]);
    }
}
