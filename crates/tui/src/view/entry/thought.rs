//! The model's reasoning.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::super::status::duration;
use super::super::super::theme::Role;
use super::super::super::transcript::Entry;
use super::super::super::wrap::Wrap;
use super::{EntryLayout, INDENT};
use aye_core::contract::display::visible;

/// Thoughts that are complete are folded when they are longer.
const LINES: usize = 3;
/// A shorter time is not worth a word.
const MOMENT_MS: u64 = 1000;

/// Returns whether finished thinking is folded.
pub(crate) fn is_long_thought(text: &str) -> bool {
    let text = text.trim();
    text.lines().count() > LINES || text.len() > LINES * 80
}

/// Complete thoughts: short ones as they are, longer ones as one line, with how long they took.
pub(in crate::view) fn thought(text: &str, entry: &Entry, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let style = page.theme.style(Role::Thinking);
    let time = entry.took.filter(|took| *took >= MOMENT_MS).map(duration);
    let text = text.trim();
    if is_long_thought(text) {
        let words = time.map_or_else(|| "thought".to_owned(), |time| format!("thought for {time}"));
        let count = text.lines().count();
        let plural = if count == 1 { "" } else { "s" };
        let text = format!("  ∴ {words} · {count} line{plural} (Ctrl-O)");
        let line = super::super::truncate(&text, page.width);
        return vec![Line::styled(line, style)];
    }
    let mut spans = vec![Span::styled(visible(text).into_owned(), style)];
    if let Some(time) = time {
        spans.push(Span::styled(format!(" · {time}"), page.theme.style(Role::Dim)));
    }
    let mut lines = Vec::new();
    Wrap::words(page.width).indent(INDENT, INDENT).spans_into(&spans, Style::default(), &mut lines);
    lines
}
