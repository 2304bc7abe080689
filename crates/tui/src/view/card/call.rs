//! The call of a question: every byte that will be executed is visible.

use std::path::PathBuf;

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::super::app::App;
use super::super::super::approval::{Card, CardStage};
use super::super::super::diff::{Patch, Show, diff_lines, header};
use super::super::super::highlight::{CodeBlock, Highlighter, Pieces};
use super::super::super::status::short_path;
use super::super::super::theme::{Role, Theme};
use super::super::super::wrap::{Wrap, width};
use super::super::entry::{Colours, colours_before, colours_of};
use super::edit::patch_of;
use aye_core::contract::display::{count_unsafe, visible, visible_line};
use aye_core::contract::tool::FilePreview;

/// The longest run of spaces drawn as spaces; longer ones are drawn as dots, so that nothing can hide after
/// them.
const BLANKS: usize = 3;

/// The columns of a title after its question: the counts, and which card of how many it is.
const TITLE: usize = 36;

/// The command, the change of files, or the arguments.
pub(super) fn call(
    card: &Card,
    app: &App,
    inner: u16,
    theme: &Theme,
    code: &[Option<Colours>],
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut shown: &[&str] = &[];
    if let Some(command) = card.command() {
        let colours = code.first().and_then(Option::as_ref).map(|colours| &colours.new);
        let danger = card.proposed().and_then(|proposed| proposed.danger.as_ref());
        let danger = danger.map(|danger| danger.words.as_slice()).unwrap_or_default();
        lines.extend(command_lines(command, danger, colours, inner, theme));
        let hidden = count_unsafe(command);
        if hidden > 0 {
            let text = format!("{hidden} invisible or control characters, escaped above");
            lines.extend(Wrap::words(inner).indent(2, 2).text(&text, theme.style(Role::Warning)));
        }
        shown = match (card.in_terminal(), card.in_background()) {
            (true, _) => &["command", "description", "run_in_background", "tty"],
            (false, true) => &["command", "description", "run_in_background"],
            (false, false) => &["command", "description"],
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
            if !is_in_title(card, app, inner) {
                lines.push(header(&path, diff.added, diff.removed, inner, theme));
            }
            lines.extend(diff.lines);
            shown = &["file_path", "old_string", "new_string", "content", "replace_all", "patch"];
        }
        if previews.iter().any(|preview| preview.new_text.is_none()) {
            shown = &["file_path"];
        }
    }
    let arguments = card.arguments();
    if let Some(map) = arguments.as_object() {
        for (key, value) in map.iter().filter(|(key, _)| !shown.contains(&key.as_str())) {
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

/// Whether the title of the card names the one file that would change, whole.
fn is_in_title(card: &Card, app: &App, inner: u16) -> bool {
    let room = usize::from(inner).saturating_sub(TITLE);
    card.danger().is_none()
        && app.cards.batch.is_none()
        && card.previews().len() == 1
        && width(&super::words::question(card, app)) <= room
}

/// Renders the number of added and removed lines of the one file that would change.
pub(super) fn counts(card: &Card, theme: &Theme) -> Vec<Span<'static>> {
    let [preview] = card.previews() else { return Vec::new() };
    let Some((old, new)) = texts(preview).filter(|_| card.danger().is_none()) else { return Vec::new() };
    let patch = Patch::between(old, new);
    let (added, removed) = (patch.added, patch.removed);
    let bare = |role| Style { bg: None, ..theme.style(role) };
    vec![
        Span::styled(format!("  +{added}"), bare(Role::DiffAdd)),
        Span::styled(format!(" −{removed}"), bare(Role::DiffDel)),
    ]
}

/// Both texts of a file, when they can be shown.
fn texts(preview: &FilePreview) -> Option<(&str, &str)> {
    let old = preview.old_text.as_deref().or(preview.before.is_none().then_some(""))?;
    Some((old, preview.new_text.as_deref()?))
}

/// The colours of the code on the current card, requested once.
#[derive(Debug, Default)]
pub(in crate::view) struct CardColours {
    /// The files, and what they would hold; or the command.
    of: Vec<(PathBuf, String)>,
    found: Vec<Option<Colours>>,
}

impl CardColours {
    /// Returns the colours of the current card, as far as they are known. Those of a command are the new lines of the
    /// first.
    pub(in crate::view) fn of(&mut self, app: &App, highlighter: &Highlighter) -> &[Option<Colours>] {
        if let Some(CardStage::Hunks(hunks)) = app.current_card().map(|card| &card.stage) {
            // The whole change of the file has other colours than its hunks.
            let of = vec![(hunks.file().to_owned(), hunks.whole()), (PathBuf::new(), "hunks".to_owned())];
            if of != self.of {
                let file = hunks.file().to_string_lossy();
                let ask = |hunk| colours_of(&patch_of(hunks, hunk), &file, highlighter);
                self.found = hunks.all().iter().map(|hunk| Some(ask(hunk))).collect();
                self.of = of;
            }
            return &self.found;
        }
        let previews = app.current_card().map(Card::previews).unwrap_or_default();
        let command = app.current_card().and_then(Card::command);
        let command = command.filter(|command| command.len() <= MAX_COLOURED);
        let of: Vec<(PathBuf, String)> = match command {
            Some(command) => vec![(PathBuf::new(), command.to_owned())],
            None => previews.iter().map(|preview| (preview.path.clone(), preview.after.clone())).collect(),
        };
        if of != self.of {
            let ask = |preview: &FilePreview| {
                let (old, new) = texts(preview)?;
                let patch = Patch::between(&visible(old), &visible(new));
                colours_before(&patch, &preview.path, highlighter)
            };
            self.found = match command {
                Some(command) => {
                    let (old, new) = (highlighter.block(""), highlighter.whole("sh", command));
                    vec![Some(Colours { old, new })]
                }
                None => previews.iter().map(ask).collect(),
            };
            self.of = of;
        }
        &self.found
    }
}

/// Longer commands get no colours.
const MAX_COLOURED: usize = 20_000;

/// The exact command of a server that a project names.
pub(super) fn server_command(command: &str, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    command_lines(command, &[], None, inner, theme)
}

/// The exact URL of a server that a project names.
pub(super) fn server_url(url: &str, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let lead = Span::styled("  connects to ", theme.style(Role::Dim));
    let text = Line::from(marked_in(url, true, theme.style(Role::Strong), theme.style(Role::Dim)));
    Wrap::kept(inner).prefix(vec![lead], vec![Span::raw("    ")]).line(&text)
}

/// The exact command: every blank and line end that could hide something is drawn.
fn command_lines(
    command: &str,
    danger: &[String],
    colours: Option<&CodeBlock>,
    inner: u16,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let mark = Span::styled("  $ ", theme.style(Role::Dim));
    let wrap = Wrap::kept(inner).prefix(vec![mark], vec![Span::raw("    ")]);
    let mut lines = Vec::new();
    let rest = Wrap::kept(inner).prefix(vec![Span::raw("    ")], vec![Span::raw("    ")]);
    let pieces: Vec<&str> = command.split('\n').collect();
    for (i, piece) in pieces.iter().enumerate() {
        let colours = colours.and_then(|colours| colours.pieces(i)).unwrap_or_default();
        let mut spans = Vec::new();
        let parts = coloured(piece, danger, &colours);
        let count = parts.len();
        for (at, (role, text)) in parts.into_iter().enumerate() {
            let strong = theme.style(role).patch(theme.style(Role::Strong));
            spans.extend(marked_in(text, at + 1 == count, strong, theme.style(Role::Dim)));
        }
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

/// Cuts a line of a command where its colour changes. What is dangerous has one colour whatever it is else.
fn coloured<'t>(line: &'t str, danger: &[String], colours: &Pieces) -> Vec<(Role, &'t str)> {
    let mut roles = Vec::with_capacity(line.len());
    for (role, bytes) in colours {
        roles.extend(std::iter::repeat_n(*role, *bytes as usize));
    }
    roles.resize(line.len(), Role::Text);
    let is_edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '-' | '_' | '.'));
    for word in danger.iter().filter(|word| !word.is_empty()) {
        for (at, found) in line.match_indices(word.as_str()) {
            let end = at + found.len();
            if is_edge(line[..at].chars().next_back()) && is_edge(line[end..].chars().next()) {
                roles[at..end].fill(Role::Error);
            }
        }
    }
    // A run of blanks is never cut: it must be seen whole.
    for at in 1..line.len() {
        if line.as_bytes()[at] == b' ' {
            roles[at] = roles[at - 1];
        }
    }
    let mut parts: Vec<(Role, &str)> = Vec::new();
    let mut from = 0;
    for (at, c) in line.char_indices() {
        let end = at + c.len_utf8();
        if end == line.len() || roles[end] != roles[at] {
            parts.push((roles[at], &line[from..end]));
            from = end;
        }
    }
    parts
}

/// Text with long runs of blanks, blanks at line ends, and tabs drawn as dim marks.
fn marked(text: &str, theme: &Theme) -> Vec<Span<'static>> {
    marked_in(text, true, theme.style(Role::Text), theme.style(Role::Dim))
}

/// The same for a part of a line that ends with all of a run of blanks; `is_last`: with the line, too.
fn marked_in(text: &str, is_last: bool, plain: Style, dim: Style) -> Vec<Span<'static>> {
    let text = visible(text);
    let mut spans = Vec::new();
    let mut word = String::new();
    let mut rest: &str = &text;
    while !rest.is_empty() {
        let blanks = rest.len() - rest.trim_start_matches(' ').len();
        let at_end = blanks > 0 && (is_last && rest.len() == blanks || rest[blanks..].starts_with('\n'));
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
