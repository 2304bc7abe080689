//! The line of a call as a sentence: `Edited src/main.rs`, `Ran make · exit 2`, `Wants to run make`.

use std::path::Path;

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use serde_json::Value;

use super::super::super::highlight::Highlighter;
use super::super::super::status::{duration, whole_seconds};
use super::super::super::theme::{Role, Theme};
use super::super::super::transcript::{ToolEntry, ToolState};
use super::super::text::capital;
use super::{Colours, EntryLayout, change, exit_code, quiet, role_of, summary};
use aye_core::contract::display::visible_line;
use aye_core::contract::judgement::Profile;
use aye_core::contract::question::tool_words;
use aye_core::contract::tool::ToolResult;

/// A call that runs for less time shows no clock.
const TICKS_FROM_MS: u64 = 5_000;
/// A shorter time is not worth a word.
const WORTH_MS: u64 = 100;
/// Longer commands get no colours.
const MAX_COLOURED: usize = 2_000;

/// A verb in the forms that a line needs.
#[derive(Clone, Copy)]
struct Verb {
    base: &'static str,
    now: &'static str,
    past: &'static str,
    /// Whether the name of the tool follows.
    is_named: bool,
}

impl Verb {
    const fn of(base: &'static str, now: &'static str, past: &'static str) -> Verb {
        Verb { base, now, past, is_named: false }
    }
}

/// Returns what the tool does.
fn verb_of(tool: &ToolEntry) -> Verb {
    let is_kept = tool.arguments.get("run_in_background") == Some(&Value::Bool(true));
    match tool.name.as_str() {
        "Bash" if is_kept => Verb::of("start", "Starting", "Started"),
        "Bash" => Verb::of("run", "Running", "Ran"),
        "BashOutput" => Verb::of("read the output of", "Reading the output of", "Read the output of"),
        "BashInput" => Verb::of("type into", "Typing into", "Typed into"),
        "KillShell" => Verb::of("stop", "Stopping", "Stopped"),
        "Read" => Verb::of("read", "Reading", "Read"),
        "Write" => Verb::of("write", "Writing", "Wrote"),
        "Edit" => Verb::of("edit", "Editing", "Edited"),
        "Grep" => Verb::of("search for", "Searching for", "Searched for"),
        "Glob" => Verb::of("look for", "Looking for", "Looked for"),
        "List" => Verb::of("list", "Listing", "Listed"),
        "WebFetch" => Verb::of("fetch", "Fetching", "Fetched"),
        "TodoWrite" => Verb::of("update the plan", "Updating the plan", "Updated the plan"),
        "AskUser" | "Limit" => Verb::of("ask", "Asking", "Asked"),
        name if name.starts_with("agent_run_") => {
            Verb { is_named: true, ..Verb::of("ask", "Asking", "Asked") }
        }
        "render_a2ui" => Verb { is_named: true, ..Verb::of("show", "Showing", "Showed") },
        _ => Verb { is_named: true, ..Verb::of("call", "Calling", "Called") },
    }
}

/// Returns how the sentence starts, and what it says of the state at its end.
fn words(tool: &ToolEntry, verb: Verb) -> (String, Option<String>) {
    let end = |word: &str| Some(word.to_owned());
    let exit = exit_code(tool).filter(|code| *code != 0).map(|code| format!("exit {code}"));
    // A command that failed did run.
    let has_run = verb.is_named || exit.is_some() || tool.name == "Bash";
    let word = || end(tool.state.word());
    match tool.state {
        ToolState::Receiving => (format!("Preparing to {}", verb.base), None),
        ToolState::Waiting if tool.child.is_some() => (verb.now.to_owned(), None),
        ToolState::Proposed | ToolState::Waiting => (format!("Wants to {}", verb.base), None),
        ToolState::Running => (verb.now.to_owned(), None),
        ToolState::Done => (verb.past.to_owned(), exit),
        ToolState::Failed if has_run => (verb.past.to_owned(), exit.or_else(word)),
        ToolState::Failed => (format!("Could not {}", verb.base), None),
        ToolState::Denied | ToolState::Declined | ToolState::Expired => {
            (format!("Did not {}", verb.base), word())
        }
        // By now nobody can tell whether it had started.
        ToolState::Cancelled => (capital(verb.base), word()),
        ToolState::Unknown => (format!("Started to {}", verb.base), word()),
    }
}

/// The time that a line shows, in milliseconds.
fn time_of(tool: &ToolEntry, page: EntryLayout<'_>) -> Option<u64> {
    match (tool.state, tool.started, tool.elapsed) {
        (ToolState::Running, Some(started), _) => {
            Some(page.now.since(started)).filter(|ms| *ms >= TICKS_FROM_MS)
        }
        (ToolState::Done | ToolState::Failed, _, elapsed) => elapsed.filter(|ms| *ms >= WORTH_MS),
        _ => None,
    }
}

/// Renders the line of a call.
pub(super) fn head(tool: &ToolEntry, page: EntryLayout<'_>) -> Line<'static> {
    let theme = page.theme;
    let verb = verb_of(tool);
    let (start, state) = words(tool, verb);
    let role = role_of(tool.state);
    let mut name = vec![Span::styled(start, theme.style(Role::Tool))];
    if verb.is_named {
        let words = format!(" {}", visible_line(&tool_words(&tool.name)));
        name.push(Span::styled(words, theme.style(Role::Text)));
    }
    let mut found: Vec<Span<'static>> = Vec::new();
    let mut add_part =
        |text: &str, role: Role| found.push(Span::styled(format!(" · {text}"), theme.style(role)));
    if let Some(text) = quiet::found(tool) {
        add_part(&text, Role::Dim);
    }
    if let Some(state) = state {
        add_part(&state, if role == Role::Success { Role::Dim } else { role });
    }
    if let Some(ms) = time_of(tool, page) {
        add_part(&if tool.state == ToolState::Running { whole_seconds(ms) } else { duration(ms) }, Role::Dim);
    }
    if tool.arguments.get("run_in_background") == Some(&Value::Bool(true)) {
        add_part("in the background", Role::Dim);
    }
    if tool.result.as_ref().and_then(ToolResult::profile) == Some(Profile::Outside) {
        add_part("outside", Role::Warning);
    }
    let mut about = about(tool, page);
    if tool.name == "TodoWrite" && !about.is_empty() {
        about.insert(0, Span::styled("· ", theme.style(Role::Dim)));
    }
    let mut counts = change::counts(tool, theme);
    counts.extend(found);
    sentence(tool.state, name, about, counts, page)
}

/// Puts a line together: what is found at its end stays visible, the subject is truncated.
pub(super) fn sentence(
    state: ToolState,
    name: Vec<Span<'static>>,
    about: Vec<Span<'static>>,
    found: Vec<Span<'static>>,
    page: EntryLayout<'_>,
) -> Line<'static> {
    let mut spans = vec![Span::styled(format!("{} ", state.icon()), page.theme.style(role_of(state)))];
    spans.extend(name);
    if about.iter().any(|span| !span.content.is_empty()) {
        let wide = |spans: &[Span<'_>]| spans.iter().map(Span::width).sum::<usize>();
        let room = usize::from(page.width).saturating_sub(wide(&spans) + wide(&found) + 1).max(8);
        spans.push(Span::raw(" "));
        spans.extend(super::super::fit(about, room));
    }
    spans.extend(found);
    Line::from(super::super::fit(spans, usize::from(page.width)))
}

/// The subject of a call: a command in the colours of a shell, a path that leads to its file.
fn about(tool: &ToolEntry, page: EntryLayout<'_>) -> Vec<Span<'static>> {
    let text = summary(tool, page.info);
    // The arguments of a tool with a name of its own are less than that.
    let role = if verb_of(tool).is_named { Role::Dim } else { Role::Text };
    let style = page.theme.style(role).patch(subject(tool, page.theme));
    let pieces = page.colours.filter(|_| tool.name == "Bash").and_then(|colours| colours.new.pieces(0));
    let mut spans = Vec::new();
    let mut rest = text.as_str();
    for (role, bytes) in pieces.unwrap_or_default() {
        // Colours that do not fit the text are those of another one.
        let Some((piece, after)) = rest.split_at_checked(bytes as usize) else { break };
        spans.push(Span::styled(piece.to_owned(), style.patch(page.theme.style(role))));
        rest = after;
    }
    if !rest.is_empty() {
        spans.push(Span::styled(rest.to_owned(), style));
    }
    spans
}

/// Asks for the colours of a command that was started: before, the user may edit it.
pub(super) fn colours(tool: &ToolEntry, highlighter: &Highlighter) -> Option<Colours> {
    let is_fixed = !matches!(tool.state, ToolState::Receiving | ToolState::Proposed | ToolState::Waiting);
    let command = tool.arguments.get("command").and_then(Value::as_str)?;
    let shown = visible_line(command.trim());
    let is_wanted = tool.name == "Bash" && is_fixed && shown.len() <= MAX_COLOURED;
    is_wanted.then(|| Colours { old: highlighter.block(""), new: highlighter.whole("sh", &shown) })
}

/// Leads to the file or page that a call is about.
fn subject(tool: &ToolEntry, theme: &Theme) -> Style {
    let text = |key: &str| tool.arguments.get(key).and_then(Value::as_str);
    match tool.name.as_str() {
        "Read" | "Write" | "Edit" => text("file_path").map(|path| theme.links().file(Path::new(path))),
        "WebFetch" => text("url").map(|url| theme.links().to(url)),
        _ => None,
    }
    .unwrap_or_default()
}
