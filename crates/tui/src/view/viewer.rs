//! Renders the viewer and the full screen.

use ratatui::layout::Position;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::super::app::App;
use super::super::keymap::{Action, KeyContext};
use super::super::theme::{Role, Theme};
use super::super::viewer::{Document, InputPurpose, RowPosition, Scene, Viewer};
use super::super::wrap::width;
use super::layout_cache::{LayoutContext, Sheets, text_of};
use super::target::{self, Hint};
use super::{ClickTarget, Press, Rendered, spread};
use aye_core::contract::display::visible_line;

/// Rows of the viewer below the conversation.
const FOOT: usize = 2;
/// Columns left of it.
const GUTTER: u16 = 1;

/// Returns what a viewer shows now: the conversation, or that document.
pub fn scene<'a>(app: &'a App, whole: bool, document: Option<&'a Document>) -> Scene<'a> {
    let (columns, height) = app.display.size;
    let height = usize::from(height);
    let rows = if whole {
        height.saturating_sub(FOOT)
    } else {
        height.saturating_sub(super::below(app, height.max(1), &Theme::plain(), &[]).lines.len())
    };
    let layout_context = LayoutContext {
        width: columns.saturating_sub(GUTTER).max(1),
        info: &app.info,
        now: app.now,
        whole,
        image_cache: &app.display.image_cache,
        epoch: document.map_or(app.conversation.epoch, |document| document.epoch),
        layout: app.display.layout,
    };
    Scene {
        transcript: document.map_or(&app.conversation.transcript, |document| &document.pages),
        layout_context,
        rows: rows.max(1),
    }
}

/// Returns the effect of a click on a cell of the screen below the conversation.
pub fn press_at(app: &App, row: u16, column: u16) -> Option<Press> {
    let plain = Theme::plain();
    let (_, height) = app.display.size;
    let below = match (&app.overlays.viewer, &app.overlays.pane) {
        (Some(viewer), _) => foot(app, viewer, &scene(app, viewer.whole, viewer.document.as_deref()), &plain),
        (None, Some(_)) => super::below(app, usize::from(height.max(1)), &plain, &[]),
        (None, None) => return None,
    };
    let row = (usize::from(row) + below.lines.len()).checked_sub(usize::from(height))?;
    let hit = |target: &&ClickTarget| usize::from(target.row) == row && target.columns.contains(&column);
    below.targets.iter().find(hit).map(|target| target.press)
}

/// The screen of the viewer.
pub fn viewer(app: &App, viewer: &Viewer, sheets: &mut Sheets) -> Rendered {
    let theme = sheets.render_style().theme.clone();
    let scene = scene(app, true, viewer.document.as_deref());
    let mut picture: Rendered = conversation(viewer, &scene, sheets).into();
    picture.lines.resize(scene.rows, Line::default());
    if usize::from(app.display.size.1) > FOOT {
        picture.stack(foot(app, viewer, &scene, &theme));
    }
    within(picture, app.display.size.0)
}

/// The full screen: the conversation, and below it what the inline terminal has there.
pub fn full(app: &App, pane: &Viewer, sheets: &mut Sheets) -> Rendered {
    let theme = sheets.render_style().theme.clone();
    let scene = scene(app, false, None);
    let height = usize::from(app.display.size.1.max(1));
    let below = super::below(app, height, &theme, sheets.card_colours(app));
    let mut lines = conversation(pane, &scene, sheets);
    lines.resize(height.saturating_sub(below.lines.len()), Line::default());
    if !pane.follows()
        && let Some(last) = lines.last_mut()
    {
        let text = "  ↓ more below ".to_owned();
        *last = spread(Vec::new(), vec![Span::styled(text, theme.style(Role::Accent))], app.display.size.0);
    }
    let mut picture: Rendered = lines.into();
    picture.stack(below);
    within(picture, app.display.size.0)
}

/// Nothing is wider than the screen.
fn within(mut picture: Rendered, columns: u16) -> Rendered {
    for line in picture.lines.iter_mut().filter(|line| line.width() > usize::from(columns)) {
        line.spans = super::fit(std::mem::take(&mut line.spans), usize::from(columns));
    }
    picture.caret = picture.caret.map(|at| Position::new(at.x.min(columns.saturating_sub(1)), at.y));
    picture
}

/// The rows of the conversation that are in sight.
fn conversation(reader: &Viewer, scene: &Scene<'_>, sheets: &mut Sheets) -> Vec<Line<'static>> {
    sheets.begin();
    let theme = sheets.render_style().theme.clone();
    let entries = scene.transcript.entries();
    if entries.is_empty() {
        return Vec::new();
    }
    let (first, skip) = reader.top(scene, sheets);
    let chosen = reader.chosen(scene);
    let mut lines = Vec::with_capacity(scene.rows);
    for (index, entry) in entries.iter().enumerate().skip(first) {
        let skip = if index == first { skip } else { 0 };
        let folded = reader.is_folded(entry.id);
        let laid = sheets.lines(scene.transcript, index, folded, &scene.layout_context);
        for (row, line) in laid.iter().enumerate().skip(skip) {
            if lines.len() >= scene.rows {
                return lines;
            }
            let row_position = RowPosition { id: entry.id, row };
            let is_chosen = reader.whole && index == chosen;
            lines.push(decorated(reader, row_position, line, is_chosen, &theme));
        }
        if lines.len() >= scene.rows {
            break;
        }
    }
    lines
}

/// Renders a row with its search matches and selection, after its gutter.
fn decorated(
    reader: &Viewer,
    row_position: RowPosition,
    line: &Line<'static>,
    is_chosen: bool,
    theme: &Theme,
) -> Line<'static> {
    let bar = if is_chosen { Span::styled("▎", theme.style(Role::Accent)) } else { Span::raw(" ") };
    let text = text_of(line);
    let mut parts: Vec<(std::ops::Range<usize>, Modifier)> = Vec::new();
    if let Some(search) = &reader.search {
        let is_here = search.here == Some(row_position);
        let how = if is_here { Modifier::REVERSED | Modifier::BOLD } else { Modifier::REVERSED };
        parts.extend(search.hits(&text).into_iter().map(|range| (range, how)));
    }
    if let Some(columns) = reader.mark.and_then(|mark| mark.columns(row_position, width(&text))) {
        parts.push((bytes_of(&text, columns), Modifier::REVERSED));
    }
    let mut spans = vec![bar];
    if parts.is_empty() {
        spans.extend(
            line.spans.iter().map(|span| Span::styled(span.content.clone(), line.style.patch(span.style))),
        );
        return Line::from(spans);
    }
    let mut at = 0;
    for span in &line.spans {
        let style = line.style.patch(span.style);
        let (start, end) = (at, at + span.content.len());
        at = end;
        let mut cuts: Vec<usize> = vec![start, end];
        cuts.extend(parts.iter().flat_map(|(range, _)| [range.start, range.end]));
        cuts.retain(|cut| (start..=end).contains(cut));
        cuts.sort_unstable();
        cuts.dedup();
        for piece in cuts.windows(2) {
            let how = parts
                .iter()
                .filter(|(range, _)| range.start <= piece[0] && piece[1] <= range.end)
                .fold(Modifier::empty(), |all, (_, how)| all | *how);
            if let Some(content) = text.get(piece[0]..piece[1]) {
                spans.push(Span::styled(content.to_owned(), style.patch(Style::new().add_modifier(how))));
            }
        }
    }
    Line::from(spans)
}

/// Returns the bytes of a text that are in the given columns.
fn bytes_of(text: &str, columns: std::ops::Range<usize>) -> std::ops::Range<usize> {
    let (mut at, mut start, mut end) = (0, None, text.len());
    for (byte, grapheme) in unicode_segmentation::UnicodeSegmentation::grapheme_indices(text, true) {
        let wide = width(grapheme);
        if start.is_none() && at + wide > columns.start {
            start = Some(byte);
        }
        if at >= columns.end {
            end = byte;
            break;
        }
        at += wide;
    }
    start.unwrap_or(end).min(end)..end
}

/// Renders the footer: the position and the keys.
fn foot(app: &App, viewer: &Viewer, scene: &Scene<'_>, theme: &Theme) -> Rendered {
    let columns = app.display.size.0;
    let rule = Line::styled("─".repeat(usize::from(columns)), theme.style(Role::ComposerBorder));
    let dim = |text: String| Span::styled(text, theme.style(Role::Dim));
    if let Some((wanted, text)) = &viewer.input {
        let lead = match wanted {
            InputPurpose::Search => "  search: ".to_owned(),
            InputPurpose::Code => {
                let blocks = app.code_of_chosen();
                let list = blocks.iter().enumerate().map(|(n, code)| {
                    let lines = code.text.lines().count();
                    format!("{} {} {lines} lines", n + 1, visible_line(&code.language))
                });
                format!("  copy block ({}): ", list.collect::<Vec<_>>().join(" · "))
            }
        };
        let lead = super::truncate(&lead, columns.saturating_sub(8));
        let shown = visible_line(text).into_owned();
        let caret = (width(&lead) + width(&shown)).min(usize::from(columns.saturating_sub(1)));
        let line = Line::from(super::fit(vec![dim(lead), Span::raw(shown)], usize::from(columns)));
        let caret = Some(Position::new(caret as u16, 1));
        return Rendered { lines: vec![rule, line], caret, ..Rendered::default() };
    }
    let entries = scene.transcript.entries().len();
    let chosen = viewer.chosen(scene);
    let mut right = format!("{}/{entries} ", chosen + 1);
    if let Some(file) = viewer.document.as_ref().and_then(|document| document.file_at(chosen)) {
        let name = super::truncate(&visible_line(&file.shown), columns / 3);
        right = format!("{name} · {right}");
    }
    if app.own_cards() > 0 {
        right = format!("{} waiting · {right}", app.own_cards());
    }
    let hint = |(action, word): (Action, &str)| {
        let chord = app.keymap.chord_of(KeyContext::Viewer, action);
        let key = app.keymap.key_of(KeyContext::Viewer, action);
        (!chord.is_empty()).then(|| Hint::new(format!("{chord} {word}"), key))
    };
    let (before, keys): (String, Vec<(Action, &str)>) = match (&app.display.hint, &viewer.search) {
        (Some((hint, _)), _) => (visible_line(hint).into_owned(), Vec::new()),
        (None, Some(search)) => (
            format!("\"{}\"", visible_line(&search.query)),
            vec![(Action::SearchNext, "next"), (Action::SearchPrevious, "before"), (Action::Close, "close")],
        ),
        (None, None) => {
            let has_code = viewer.document.is_none();
            let (message, call) = if has_code { ("message", "call") } else { ("file", "hunk") };
            // The first one stays where there is little room.
            let keys = [
                (Action::Close, "close"),
                (Action::Search, "search"),
                (Action::NextMessage, message),
                (Action::NextTool, call),
                (Action::Fold, "fold"),
                (Action::CopySource, "copy"),
                (Action::CodeBlock, "code"),
                (Action::View, "editor"),
            ];
            // A page alone has no parts.
            let is_one = !has_code && entries == 1;
            let is_of_parts =
                |action| matches!(action, Action::NextMessage | Action::NextTool | Action::Fold);
            let keys = keys.into_iter().filter(|(action, _)| {
                (has_code || *action != Action::CodeBlock) && !(is_one && is_of_parts(*action))
            });
            (String::new(), keys.collect())
        }
    };
    let hints: Vec<Hint> = keys.into_iter().filter_map(hint).collect();
    let parts = std::iter::once(before.as_str()).chain(hints.iter().map(|hint| hint.text.as_str()));
    let left = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ");
    let line = spread(vec![dim(format!("  {left}"))], vec![dim(right)], columns);
    let mut picture: Rendered = vec![rule, line].into();
    picture.targets = target::of_hints(&picture.lines, &hints);
    picture
}
