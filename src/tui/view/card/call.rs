//! The call that is asked about: every byte that will be executed can be seen.

use ratatui::text::{Line, Span};

use super::super::super::app::App;
use super::super::super::approval::Card;
use super::super::super::diff::diff_lines_within;
use super::super::super::status::short_path;
use super::super::super::theme::{Role, Theme};
use super::super::super::wrap::Wrap;
use crate::contract::display::{count_unsafe, visible, visible_line};

/// A run of blanks longer than this is drawn as dots, so that nothing hides behind it.
const BLANKS: usize = 3;

/// The command, the change of files, or the arguments.
pub(super) fn call(card: &Card, app: &App, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut told: &[&str] = &[];
    if let Some(command) = card.command() {
        lines.extend(command_lines(command, inner, theme));
        let hidden = count_unsafe(command);
        if hidden > 0 {
            let text = format!("{hidden} invisible or control characters, written out above");
            lines.extend(Wrap::words(inner).text(&text, theme.style(Role::Warning)));
        }
        told = &["command"];
    } else {
        let previews = card.previews();
        for preview in &previews {
            let path = short_path(&preview.path, app.info.home.as_deref());
            let old = preview.old_text.as_deref().or(preview.before.is_none().then_some(""));
            let (Some(old), Some(new)) = (old, preview.new_text.as_deref()) else {
                let text = format!("{path}: not text, or too long to show");
                lines.extend(Wrap::words(inner).text(&text, theme.style(Role::Warning)));
                continue;
            };
            let diff = diff_lines_within(&visible(old), &visible(new), &path, inner, theme, usize::MAX);
            lines.push(diff.header(inner, theme));
            lines.extend(diff.lines);
            told = &["file_path", "old_string", "new_string", "content", "replace_all"];
        }
        if previews.iter().any(|preview| preview.new_text.is_none()) {
            told = &["file_path"];
        }
    }
    let arguments = card.arguments();
    if let Some(map) = arguments.as_object() {
        for (key, value) in map.iter().filter(|(key, _)| !told.contains(&key.as_str())) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let key = Span::styled(format!("{}: ", visible_line(key)), theme.style(Role::Dim));
            let wrap = Wrap::anywhere(inner).prefix(vec![key], vec![Span::raw("  ")]);
            lines.extend(wrap.line(&Line::from(marked(&text, theme))));
        }
    } else if !arguments.is_null() {
        let text = arguments.to_string();
        lines.extend(Wrap::anywhere(inner).line(&Line::from(marked(&text, theme))));
    }
    lines
}

/// The exact command: every blank and line end that could hide something is drawn.
fn command_lines(command: &str, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mark = Span::styled("$ ", theme.style(Role::Accent));
    let wrap = Wrap::anywhere(inner).prefix(vec![mark], vec![Span::raw("  ")]);
    let mut lines = Vec::new();
    let rest = Wrap::anywhere(inner).prefix(vec![Span::raw("  ")], vec![Span::raw("  ")]);
    let pieces: Vec<&str> = command.split('\n').collect();
    for (i, piece) in pieces.iter().enumerate() {
        let mut spans = marked(piece, theme);
        if i + 1 < pieces.len() {
            spans.push(Span::styled("⏎", theme.style(Role::Dim)));
        } else if piece.is_empty() && i > 0 {
            break;
        }
        let wrap = if i == 0 { &wrap } else { &rest };
        lines.extend(wrap.line(&Line::from(spans)));
    }
    lines
}

/// Text with long runs of blanks, blanks at line ends, and tabs drawn as dim marks.
fn marked(text: &str, theme: &Theme) -> Vec<Span<'static>> {
    let text = visible(text);
    let (plain, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let mut spans = Vec::new();
    let mut word = String::new();
    let mut rest: &str = &text;
    while !rest.is_empty() {
        let blanks = rest.len() - rest.trim_start_matches(' ').len();
        let at_end = blanks > 0 && (rest.len() == blanks || rest[blanks..].starts_with('\n'));
        if blanks > BLANKS || at_end {
            spans.push(Span::styled(std::mem::take(&mut word), plain));
            spans.push(Span::styled("·".repeat(blanks), dim));
            rest = &rest[blanks..];
            continue;
        }
        let Some(c) = rest.chars().next() else { break };
        if c == '\t' {
            spans.push(Span::styled(std::mem::take(&mut word), plain));
            spans.push(Span::styled("→   ", dim));
        } else {
            word.push(c);
        }
        rest = &rest[c.len_utf8()..];
    }
    spans.push(Span::styled(word, plain));
    spans
}
