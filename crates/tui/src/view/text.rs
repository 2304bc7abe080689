//! Short texts as spans.

use ratatui::text::{Line, Span};

use super::super::theme::{Role, Theme};

/// The indent of the model's text.
pub(super) const INDENT: u16 = 2;
/// Text wider than this is hard to read.
const TEXT_WIDTH: u16 = 110;

/// Returns the columns for the model's text.
pub(super) fn text_width(columns: u16) -> u16 {
    columns.saturating_sub(INDENT).clamp(1, TEXT_WIDTH)
}

/// The line, moved to the right.
pub(super) fn indented(line: Line<'static>, by: u16) -> Line<'static> {
    let mut spans = vec![Span::raw(" ".repeat(usize::from(by)))];
    spans.extend(line.spans);
    Line { spans, ..line }
}

/// Text whose words between backticks have the colour of code instead of their marks. Without colours the marks stay, and
/// so does one that nothing closes on its line.
pub(super) fn marked(text: &str, role: Role, theme: &Theme) -> Vec<Span<'static>> {
    let (plain, code) = (theme.style(role), theme.style(Role::Code));
    let mut spans = Vec::new();
    let mut rest = text;
    while code.fg.is_some()
        && let Some((before, after)) = rest.split_once('`')
        && let Some((inside, next)) = after.split_once('`')
        && !inside.is_empty()
        && !inside.contains('\n')
    {
        spans.push(Span::styled(before.to_owned(), plain));
        spans.push(Span::styled(inside.to_owned(), plain.patch(code)));
        rest = next;
    }
    spans.push(Span::styled(rest.to_owned(), plain));
    spans.retain(|span| !span.content.is_empty());
    spans
}

/// The text with a capital.
pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
