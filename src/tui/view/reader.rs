//! The viewer and the full screen as pictures.

use ratatui::layout::Position;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::super::app::App;
use super::super::keymap::{Action, Place};
use super::super::reader::{Reader, Scene, Spot, Wanted};
use super::super::theme::{Role, Theme};
use super::super::wrap::width;
use super::sheet::{Paper, Sheets, text_of};
use super::{Picture, spread};
use crate::contract::display::visible_line;

/// Rows of the viewer below the conversation.
const FOOT: usize = 2;
/// Columns left of it.
const GUTTER: u16 = 1;

/// What a reader reads now.
pub fn scene<'a>(app: &'a App, reader: &Reader) -> Scene<'a> {
    let (columns, height) = app.size;
    let height = usize::from(height);
    let rows = if reader.whole {
        height.saturating_sub(FOOT)
    } else {
        height.saturating_sub(super::below(app, height.max(1), &Theme::plain()).lines.len())
    };
    let paper = Paper {
        width: columns.saturating_sub(GUTTER).max(1),
        info: &app.info,
        now: app.now,
        whole: reader.whole,
        gallery: &app.gallery,
        epoch: app.epoch,
    };
    Scene { transcript: &app.transcript, paper, rows: rows.max(1) }
}

/// The screen of the viewer.
pub fn viewer(app: &App, viewer: &Reader, sheets: &mut Sheets) -> Picture {
    let theme = sheets.look().theme.clone();
    let scene = scene(app, viewer);
    let mut picture: Picture = conversation(viewer, &scene, sheets).into();
    picture.lines.resize(scene.rows, Line::default());
    if usize::from(app.size.1) > FOOT {
        picture.stack(foot(app, viewer, &scene, &theme));
    }
    within(picture, app.size.0)
}

/// The full screen: the conversation, and below it what the inline terminal has there.
pub fn full(app: &App, pane: &Reader, sheets: &mut Sheets) -> Picture {
    let theme = sheets.look().theme.clone();
    let scene = scene(app, pane);
    let height = usize::from(app.size.1.max(1));
    let below = super::below(app, height, &theme);
    let mut lines = conversation(pane, &scene, sheets);
    lines.resize(height.saturating_sub(below.lines.len()), Line::default());
    if !pane.follows()
        && let Some(last) = lines.last_mut()
    {
        let text = "  ↓ more below ".to_owned();
        *last = spread(Vec::new(), vec![Span::styled(text, theme.style(Role::Accent))], app.size.0);
    }
    let mut picture: Picture = lines.into();
    picture.stack(below);
    within(picture, app.size.0)
}

/// Nothing is wider than the screen.
fn within(mut picture: Picture, columns: u16) -> Picture {
    for line in picture.lines.iter_mut().filter(|line| line.width() > usize::from(columns)) {
        line.spans = super::fit(std::mem::take(&mut line.spans), usize::from(columns));
    }
    picture.caret = picture.caret.map(|at| Position::new(at.x.min(columns.saturating_sub(1)), at.y));
    picture
}

/// The rows of the conversation that are in sight.
fn conversation(reader: &Reader, scene: &Scene<'_>, sheets: &mut Sheets) -> Vec<Line<'static>> {
    sheets.begin();
    let theme = sheets.look().theme.clone();
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
        let laid = sheets.lines(scene.transcript, index, folded, &scene.paper);
        for (row, line) in laid.iter().enumerate().skip(skip) {
            if lines.len() >= scene.rows {
                return lines;
            }
            let spot = Spot { id: entry.id, row };
            let is_chosen = reader.whole && index == chosen;
            lines.push(decorated(reader, spot, line, is_chosen, &theme));
        }
        if lines.len() >= scene.rows {
            break;
        }
    }
    lines
}

/// A row with what was found and what is marked in it, behind its gutter.
fn decorated(
    reader: &Reader,
    spot: Spot,
    line: &Line<'static>,
    is_chosen: bool,
    theme: &Theme,
) -> Line<'static> {
    let bar = if is_chosen { Span::styled("▎", theme.style(Role::Accent)) } else { Span::raw(" ") };
    let text = text_of(line);
    let mut parts: Vec<(std::ops::Range<usize>, Modifier)> = Vec::new();
    if let Some(search) = &reader.search {
        let is_here = search.here == Some(spot);
        let how = if is_here { Modifier::REVERSED | Modifier::BOLD } else { Modifier::REVERSED };
        parts.extend(search.hits(&text).into_iter().map(|range| (range, how)));
    }
    if let Some(columns) = reader.mark.and_then(|mark| mark.columns(spot, width(&text))) {
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

/// The bytes of a text that stand in some columns.
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

/// Where one is, and the keys.
fn foot(app: &App, viewer: &Reader, scene: &Scene<'_>, theme: &Theme) -> Picture {
    let columns = app.size.0;
    let rule = Line::styled("─".repeat(usize::from(columns)), theme.style(Role::ComposerBorder));
    let dim = |text: String| Span::styled(text, theme.style(Role::Dim));
    if let Some((wanted, text)) = &viewer.input {
        let lead = match wanted {
            Wanted::Search => "  look for: ".to_owned(),
            Wanted::Code => {
                let blocks = app.code_of_chosen();
                let list = blocks.iter().enumerate().map(|(n, code)| {
                    let lines = code.text.lines().count();
                    format!("{} {} {lines} lines", n + 1, visible_line(&code.language))
                });
                format!("  copy which? ({}): ", list.collect::<Vec<_>>().join(" · "))
            }
        };
        let lead = super::truncate(&lead, columns.saturating_sub(8));
        let shown = visible_line(text).into_owned();
        let caret = (width(&lead) + width(&shown)).min(usize::from(columns.saturating_sub(1)));
        let line = Line::from(super::fit(vec![dim(lead), Span::raw(shown)], usize::from(columns)));
        return Picture { lines: vec![rule, line], caret: Some(Position::new(caret as u16, 1)) };
    }
    let entries = scene.transcript.entries().len();
    let mut right = format!("{}/{entries} ", viewer.chosen(scene) + 1);
    if app.own_cards() > 0 {
        right = format!("{} waiting · {right}", app.own_cards());
    }
    let left = match (&app.hint, &viewer.search) {
        (Some((hint, _)), _) => format!("  {}", visible_line(hint)),
        (None, Some(search)) => {
            let chord = |action| app.keymap.chord_of(Place::Viewer, action);
            format!(
                "  \"{}\" · {} next · {} before · {} close",
                visible_line(&search.query),
                chord(Action::SearchNext),
                chord(Action::SearchPrevious),
                chord(Action::Close)
            )
        }
        (None, None) => {
            let keys = [
                (Action::Search, "search"),
                (Action::NextMessage, "message"),
                (Action::NextTool, "call"),
                (Action::Fold, "fold"),
                (Action::CopySource, "copy"),
                (Action::CodeBlock, "code"),
                (Action::View, "editor"),
                (Action::Close, "close"),
            ];
            let keys =
                keys.into_iter().map(|(action, word)| (app.keymap.chord_of(Place::Viewer, action), word));
            let keys =
                keys.filter(|(chord, _)| !chord.is_empty()).map(|(chord, word)| format!("{chord} {word}"));
            format!("  {}", keys.collect::<Vec<_>>().join(" · "))
        }
    };
    vec![rule, spread(vec![dim(left)], vec![dim(right)], columns)].into()
}
