//! Short texts as spans.

use ratatui::text::Span;

use super::super::theme::{Role, Theme};

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
