//! The call of a question: every byte that will be executed is visible.

use std::path::PathBuf;

use ratatui::text::{Line, Span};

use super::super::super::app::App;
use super::super::super::approval::Card;
use super::super::super::diff::{Patch, Show, diff_lines, header};
use super::super::super::highlight::Highlighter;
use super::super::super::status::short_path;
use super::super::super::theme::{Role, Theme};
use super::super::super::wrap::Wrap;
use super::super::entry::{Colours, colours_before};
use aye_core::contract::display::{count_unsafe, visible, visible_line};
use aye_core::contract::tool::FilePreview;

/// The longest run of spaces drawn as spaces; longer ones are drawn as dots, so that nothing can hide after
/// them.
const BLANKS: usize = 3;

/// The command, the change of files, or the arguments.
pub(super) fn call(
    card: &Card,
    app: &App,
    inner: u16,
    theme: &Theme,
    code: &[Option<Colours>],
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut told: &[&str] = &[];
    if let Some(command) = card.command() {
        lines.extend(command_lines(command, inner, theme));
        let hidden = count_unsafe(command);
        if hidden > 0 {
            let text = format!("{hidden} invisible or control characters, escaped above");
            lines.extend(Wrap::words(inner).text(&text, theme.style(Role::Warning)));
        }
        told = match (card.in_terminal(), card.in_background()) {
            (true, _) => &["command", "run_in_background", "tty"],
            (false, true) => &["command", "run_in_background"],
            (false, false) => &["command"],
        };
    } else {
        let previews = card.previews();
        for (at, preview) in previews.iter().enumerate() {
            let path = short_path(&preview.path, app.info.home.as_deref());
            let Some((old, new)) = texts(preview) else {
                let text = format!("{path}: binary, or too long to show");
                lines.extend(Wrap::words(inner).text(&text, theme.style(Role::Warning)));
                continue;
            };
            let colours = code.get(at).and_then(Option::as_ref);
            let show = Show { colours, layout: app.display.layout, ..Show::whole(inner, theme) };
            let diff = diff_lines(&visible(old), &visible(new), show);
            lines.push(header(&path, diff.added, diff.removed, inner, theme));
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
            let mut text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if card.ticket.pending.name == "BashInput" {
                // Enter is a key like others.
                text = text.replace('\n', "⏎");
            }
            let key = Span::styled(format!("{}: ", visible_line(key)), theme.style(Role::Dim));
            let wrap = Wrap::kept(inner).prefix(vec![key], vec![Span::raw("  ")]);
            lines.extend(wrap.line(&Line::from(marked(&text, theme))));
        }
    } else if !arguments.is_null() {
        let text = arguments.to_string();
        lines.extend(Wrap::kept(inner).line(&Line::from(marked(&text, theme))));
    }
    lines
}

/// Both texts of a file, when they can be shown.
fn texts(preview: &FilePreview) -> Option<(&str, &str)> {
    let old = preview.old_text.as_deref().or(preview.before.is_none().then_some(""))?;
    Some((old, preview.new_text.as_deref()?))
}

/// The colours of the code on the current card, requested once.
#[derive(Debug, Default)]
pub(in crate::view) struct CardColours {
    /// The files, and what they would hold.
    of: Vec<(PathBuf, String)>,
    found: Vec<Option<Colours>>,
}

impl CardColours {
    /// Returns the colours of the current card, as far as they are known.
    pub(in crate::view) fn of(&mut self, app: &App, highlighter: &Highlighter) -> &[Option<Colours>] {
        let previews = app.current_card().map(Card::previews).unwrap_or_default();
        let of = previews.iter().map(|preview| (preview.path.clone(), preview.after.clone()));
        let of: Vec<(PathBuf, String)> = of.collect();
        if of != self.of {
            let ask = |preview: &FilePreview| {
                let (old, new) = texts(preview)?;
                let patch = Patch::between(&visible(old), &visible(new));
                colours_before(&patch, &preview.path, highlighter)
            };
            self.found = previews.iter().map(ask).collect();
            self.of = of;
        }
        &self.found
    }
}

/// The exact command: every blank and line end that could hide something is drawn.
fn command_lines(command: &str, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mark = Span::styled("$ ", theme.style(Role::Accent));
    let wrap = Wrap::kept(inner).prefix(vec![mark], vec![Span::raw("  ")]);
    let mut lines = Vec::new();
    let rest = Wrap::kept(inner).prefix(vec![Span::raw("  ")], vec![Span::raw("  ")]);
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
