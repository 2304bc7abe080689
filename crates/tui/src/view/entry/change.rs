//! The file change of a call.

use std::path::Path;

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use serde_json::Value;

pub(in crate::view) use super::super::super::diff::Colours;
use super::super::super::diff::{Patch, Show};
use super::super::super::highlight::Highlighter;
use super::super::super::theme::{Role, Theme};
use super::super::super::transcript::{ToolEntry, ToolState};
use super::super::text::indented;
use super::{DIFF_LINES, EntryLayout, OUTPUT_INDENT, folded};
use aye_core::contract::display::visible;

/// Longer changes get no colours.
const COLOURED: usize = 2_000;

/// Returns the changes of a finished call, and whether their line numbers are those of the file.
fn patch(tool: &ToolEntry) -> Option<(Patch, bool)> {
    if tool.state != ToolState::Done || !matches!(tool.name.as_str(), "Edit" | "Write") {
        return None;
    }
    let details = tool.result.as_ref().and_then(|result| result.details.as_ref());
    let diff = details.and_then(|details| details.get("diff")).and_then(Value::as_str);
    if let Some(patch) = diff.and_then(|diff| Patch::parse(&visible(diff))) {
        return Some((patch, true));
    }
    let text = |key: &str| tool.arguments.get(key).and_then(Value::as_str);
    // Only the replaced piece is known, and its line numbers are not.
    let is_edit = tool.name == "Edit";
    let (old, new) =
        if is_edit { (text("old_string")?, text("new_string")?) } else { ("", text("content")?) };
    // The result of a call that changed nothing has an empty diff.
    let is_same = diff.is_some_and(str::is_empty);
    (!is_same).then(|| (Patch::between(&visible(old), &visible(new)), !is_edit))
}

/// Renders at most `most` lines of a change.
pub(super) fn change(tool: &ToolEntry, page: EntryLayout<'_>, most: usize) -> Option<Vec<Line<'static>>> {
    let (patch, numbers) = patch(tool)?;
    let width = page.width.saturating_sub(OUTPUT_INDENT).max(1);
    let show =
        Show { most, colours: page.colours, numbers, layout: page.layout, ..Show::whole(width, page.theme) };
    let (lines, hidden) = patch.lines(show);
    let mut lines: Vec<Line<'static>> = lines.into_iter().map(|line| indented(line, OUTPUT_INDENT)).collect();
    if hidden > 0 && most == DIFF_LINES {
        lines.push(folded(hidden, page));
    } else if hidden > 0 {
        let text = super::super::truncate(&format!("    … {hidden} more lines"), page.width);
        lines.push(Line::styled(text, page.theme.style(Role::Dim)));
    }
    Some(lines)
}

/// Returns whether a change is too long to be shown in full; `None` if the call changed nothing.
pub(super) fn is_long(tool: &ToolEntry) -> Option<bool> {
    patch(tool).map(|(patch, _)| patch.len() > DIFF_LINES)
}

/// Returns whether a change is shown: as [`change`], without reading all of it.
pub(super) fn is_shown(tool: &ToolEntry) -> bool {
    if tool.state != ToolState::Done || !matches!(tool.name.as_str(), "Edit" | "Write") {
        return false;
    }
    let details = tool.result.as_ref().and_then(|result| result.details.as_ref());
    let diff = details.and_then(|details| details.get("diff")).and_then(Value::as_str);
    let key = if tool.name == "Edit" { "new_string" } else { "content" };
    diff.map_or(tool.arguments.get(key).is_some(), |diff| !diff.is_empty())
}

/// Asks for the colours of what a call changed, if it is code.
pub(super) fn colours(tool: &ToolEntry, highlighter: &Highlighter) -> Option<Colours> {
    let (patch, _) = patch(tool).filter(|(patch, _)| patch.len() <= COLOURED)?;
    let path = tool.arguments.get("file_path").and_then(Value::as_str)?;
    Some(colours_of(&patch, path, highlighter))
}

/// The same for what a call would change, if that is code.
pub(in crate::view) fn colours_before(
    patch: &Patch,
    path: &Path,
    highlighter: &Highlighter,
) -> Option<Colours> {
    (patch.len() <= COLOURED).then(|| colours_of(patch, &path.to_string_lossy(), highlighter))
}

/// Asks for the colours of a change of that file.
pub(in crate::view) fn colours_of(patch: &Patch, path: &str, highlighter: &Highlighter) -> Colours {
    let name = path.rsplit('/').next().unwrap_or(path);
    let language = name.rsplit_once('.').map_or(name, |(_, ending)| ending);
    let (old, new) = patch.texts();
    let block = |text: &str| {
        let block = highlighter.block(language);
        if !text.is_empty() {
            block.push(text);
        }
        block
    };
    Colours { old: block(&old), new: block(&new) }
}

/// Renders the number of added and removed lines, for the line of the call.
pub(super) fn counts(tool: &ToolEntry, theme: &Theme) -> Vec<Span<'static>> {
    let details = tool.result.as_ref().and_then(|result| result.details.as_ref());
    let number = |key: &str| details.and_then(|details| details.get(key)).and_then(Value::as_u64);
    if tool.state != ToolState::Done || !matches!(tool.name.as_str(), "Edit" | "Write") {
        return Vec::new();
    }
    let Some((added, removed)) = number("added").zip(number("removed")) else { return Vec::new() };
    let bare = |role| Style { bg: None, ..theme.style(role) };
    let mut spans = Vec::new();
    if added > 0 {
        spans.push(Span::styled(format!(" +{added}"), bare(Role::DiffAdd)));
    }
    if removed > 0 {
        spans.push(Span::styled(format!(" −{removed}"), bare(Role::DiffDel)));
    }
    spans
}
