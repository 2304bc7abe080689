//! Read-only calls: one line each, and one line for several in a row.

use ratatui::text::{Line, Span};
use serde_json::Value;

use super::super::super::status::duration;
use super::super::super::theme::Role;
use super::super::super::transcript::{Entry, EntryKind, ToolEntry, ToolState};
use super::{EntryLayout, head_line, summary};
use aye_core::contract::display::visible_line;

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
        | EntryKind::Page { .. }
        | EntryKind::Changes(_)
        | EntryKind::Leaf(_) => false,
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
        | EntryKind::Page { .. }
        | EntryKind::Changes(_)
        | EntryKind::Leaf(_) => false,
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

/// Renders several quiet calls on one line: the number of each kind, and their subjects.
pub(in crate::view) fn group(entries: &[Entry], page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let tools: Vec<&ToolEntry> = entries
        .iter()
        .filter_map(|entry| match &entry.kind {
            EntryKind::Tool(tool) => Some(&**tool),
            _ => None,
        })
        .collect();
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for tool in &tools {
        match kinds.iter_mut().find(|(name, _)| *name == tool.name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((&tool.name, 1)),
        }
    }
    let mut seen: Vec<String> = Vec::new();
    for tool in &tools {
        let about = summary(tool, page.info);
        if !about.is_empty() && !seen.contains(&about) {
            seen.push(about);
        }
    }
    let theme = page.theme;
    let mut names = Vec::new();
    for (at, (name, count)) in kinds.iter().enumerate() {
        if at > 0 {
            names.push(Span::styled(" · ", theme.style(Role::Dim)));
        }
        names.push(Span::styled(visible_line(name).into_owned(), theme.style(Role::Tool)));
        names.push(Span::styled(format!(" ×{count}"), theme.style(Role::Dim)));
    }
    let took: u64 = tools.iter().filter_map(|tool| tool.elapsed).sum();
    let time = if took >= 100 { format!(" {}", duration(took)) } else { String::new() };
    let about = Span::styled(seen.join(", "), theme.style(Role::Text));
    vec![head_line(ToolState::Done, names, (ToolState::Done.word(), &time), about, Vec::new(), page)]
}
