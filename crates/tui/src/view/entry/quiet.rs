//! What takes one line: read-only calls, several of them in a row, and thoughts that are complete.

use ratatui::text::{Line, Span};
use serde_json::Value;

use super::super::super::status::{duration, whole_seconds};
use super::super::super::theme::Role;
use super::super::super::transcript::{Entry, EntryKind, ToolEntry, ToolState};
use super::super::text::capital;
use super::sentence::sentence;
use super::{EntryLayout, summary};

/// A shorter time is not worth a word.
const MOMENT_MS: u64 = 1000;

/// Returns whether a tool is read-only.
fn is_read_only_tool(name: &str) -> bool {
    matches!(name, "Read" | "Grep" | "Glob" | "List")
}

/// Returns whether an entry is a read-only call with nothing to show but how much it found.
pub(in crate::view) fn is_quiet(entry: &Entry) -> bool {
    match &entry.kind {
        EntryKind::Tool(tool) => {
            tool.state == ToolState::Done
                && is_read_only_tool(&tool.name)
                && tool.child.is_none()
                && tool.images.is_empty()
                && !tool.is_edited
                && tool.comment().is_none()
        }
        EntryKind::User { .. }
        | EntryKind::Assistant { .. }
        | EntryKind::Thinking { .. }
        | EntryKind::Notice { .. }
        | EntryKind::Page(_)
        | EntryKind::Changes(_)
        | EntryKind::Document(_) => false,
    }
}

/// Returns whether an entry may become a quiet call, so that those before it wait for it.
pub(in crate::view) fn may_be_quiet(entry: &Entry) -> bool {
    match &entry.kind {
        EntryKind::Tool(tool) => is_read_only_tool(&tool.name) && !entry.is_done,
        EntryKind::User { .. }
        | EntryKind::Assistant { .. }
        | EntryKind::Thinking { .. }
        | EntryKind::Notice { .. }
        | EntryKind::Page(_)
        | EntryKind::Changes(_)
        | EntryKind::Document(_) => false,
    }
}

/// Returns how much a finished call found, for its line.
pub(super) fn found(tool: &ToolEntry) -> Option<String> {
    if tool.state != ToolState::Done || !(is_read_only_tool(&tool.name) || tool.name == "WebFetch") {
        return None;
    }
    let details = tool.result.as_ref().and_then(|result| result.details.as_ref());
    let number = |key: &str| details.and_then(|details| details.get(key)).and_then(Value::as_u64);
    let many = |count: u64, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    let lines = || tool.output().trim_end().lines().count() as u64;
    Some(match (tool.name.as_str(), number("matches"), number("count")) {
        ("Grep", Some(0), _) => "no match".to_owned(),
        ("Grep", Some(matches), _) => {
            let files = number("files").map(|files| format!(" in {}", many(files, "file", "files")));
            format!("{}{}", many(matches, "match", "matches"), files.unwrap_or_default())
        }
        ("Glob", _, Some(count)) => many(count, "file", "files"),
        ("List", _, Some(count)) => many(count, "entry", "entries"),
        ("Read", ..) if !tool.images.is_empty() => many(tool.images.len() as u64, "image", "images"),
        ("Read", ..) => many(number("lines").unwrap_or_else(lines), "line", "lines"),
        _ => many(lines(), "line", "lines"),
    })
}

/// Renders several quiet calls on one line: `Read 2 files, searched 1 pattern`, and their subjects.
pub(in crate::view) fn group(entries: &[Entry], page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let tools: Vec<&ToolEntry> = entries
        .iter()
        .filter_map(|entry| match &entry.kind {
            EntryKind::Tool(tool) => Some(&**tool),
            _ => None,
        })
        .collect();
    // What was read or searched twice counts once.
    let mut seen: Vec<(&str, String)> = Vec::new();
    for tool in &tools {
        let about = (tool.name.as_str(), summary(tool, page.info));
        if !seen.contains(&about) {
            seen.push(about);
        }
    }
    let count = |names: &[&str]| seen.iter().filter(|(name, _)| names.contains(name)).count();
    let kinds = [
        ("read", count(&["Read"]), "file", "files"),
        ("searched", count(&["Grep", "Glob"]), "pattern", "patterns"),
        ("listed", count(&["List"]), "folder", "folders"),
    ];
    let parts = kinds.iter().filter(|(_, count, ..)| *count > 0);
    let parts = parts
        .map(|(verb, count, one, more)| format!("{verb} {count} {}", if *count == 1 { one } else { more }));
    let words = capital(&parts.collect::<Vec<_>>().join(", "));
    let theme = page.theme;
    let took: u64 = tools.iter().filter_map(|tool| tool.elapsed).sum();
    let time = (took >= 100).then(|| Span::styled(format!(" · {}", duration(took)), theme.style(Role::Dim)));
    let about: Vec<String> =
        seen.into_iter().map(|(_, about)| about).filter(|about| !about.is_empty()).collect();
    let about = Span::styled(format!("· {}", about.join(", ")), theme.style(Role::Dim));
    let name = vec![Span::styled(words, theme.style(Role::Tool))];
    vec![sentence(ToolState::Done, name, vec![about], time.into_iter().collect(), page)]
}

/// Complete thoughts: one line, with how long they took.
pub(in crate::view) fn thought(entry: &Entry, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let time = entry.took.filter(|took| *took >= MOMENT_MS).map(whole_seconds);
    let words = time.map_or_else(|| "thought".to_owned(), |time| format!("thought {time}"));
    let line = super::super::truncate(&format!("∴ {words} (Ctrl-O)"), page.width);
    vec![Line::styled(line, page.theme.style(Role::Thinking))]
}
