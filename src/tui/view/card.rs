//! Questions that wait, as cards: what is asked in full, who asks, where it will run, and the keys.

use ratatui::layout::Position;
use ratatui::text::{Line, Span};
use serde_json::Value;

use super::super::app::{App, Focus};
use super::super::approval::{Card, CardKind, SCOPES, Stage};
use super::super::diff::diff_lines_within;
use super::super::keymap::{Action, Place};
use super::super::status::short_path;
use super::super::theme::{Role, Theme};
use super::super::wrap::{Wrap, truncate, width};
use super::{Picture, spread};
use crate::contract::display::{count_unsafe, visible, visible_line};

/// Left bar and blank.
const BAR: u16 = 2;
/// A run of blanks longer than this is drawn as dots, so that nothing hides behind it.
const BLANKS: usize = 3;

/// All open questions in at most so many rows: the current one whole, a line for each other.
pub(super) fn cards(app: &App, columns: u16, most: usize, theme: &Theme) -> Picture {
    let Some(current) = app.current_card() else { return Picture::default() };
    if most == 0 {
        return Picture::default();
    }
    let others: Vec<(usize, &Card)> =
        app.cards.iter().enumerate().filter(|(at, _)| *at != app.card).collect();
    let for_others = others.len().min(most.saturating_sub(8)).min(4);
    let gap = usize::from(most >= 12);
    let mut picture = card(current, app, columns, most - for_others - gap, theme);
    for (at, other) in others.iter().take(for_others) {
        let text = format!("  {} {}", at + 1, one_line(other, app));
        picture.lines.push(Line::styled(truncate(&text, columns), theme.style(Role::Dim)));
    }
    if gap > 0 {
        picture.lines.push(Line::default());
    }
    picture
}

fn one_line(card: &Card, app: &App) -> String {
    let pending = &card.ticket.pending;
    let what = match card.kind {
        CardKind::Ask => {
            let question = card.ticket.suspension.parameters.get("question").and_then(Value::as_str);
            visible_line(question.unwrap_or_default()).into_owned()
        }
        CardKind::Permission | CardKind::Unknown => {
            super::entry::summary_of(&pending.name, &pending.arguments, &app.info)
        }
    };
    let state = if card.is_deciding() { " (deciding…)" } else { "" };
    format!("{}  {what}{state}", visible_line(&pending.name))
}

fn card(card: &Card, app: &App, columns: u16, most: usize, theme: &Theme) -> Picture {
    let inner = columns.saturating_sub(BAR).max(1);
    let has_focus = app.focus == Focus::Card;
    let title = title(card, app, inner, theme);
    let mut foot = foot(card, app, inner, theme, has_focus);
    let mut body = body(card, app, inner, theme);
    let mut about = about(card, app, inner, theme);

    // What must be there: a row of what is asked, the keys, the title. Then the rest, as there is room.
    let has_title = most >= 3;
    let mut room = most - usize::from(has_title);
    let needs = body.len().min(if most >= 8 { 3 } else { 1 });
    if foot.lines.len() + needs > room {
        foot = short_foot(card, app, inner, theme, has_focus);
    }
    let for_foot = room.saturating_sub(needs).min(foot.lines.len());
    foot.lines.truncate(for_foot);
    foot.caret = foot.caret.filter(|at| usize::from(at.y) < for_foot);
    room -= for_foot;
    let for_about = about.len().min(room.saturating_sub(body.len().min(3)));
    about.truncate(for_about);
    room -= about.len();
    let is_airy = room > body.len() + 2;
    scroll(&mut body, card.scroll, room, inner, theme);

    let mut rows: Picture = if has_title { vec![title].into() } else { Picture::default() };
    if is_airy && !body.is_empty() {
        rows.lines.push(Line::default());
    }
    rows.lines.extend(body);
    if is_airy {
        rows.lines.push(Line::default());
    }
    rows.lines.extend(about);
    rows.stack(foot);

    let bar = theme.style(if has_focus { Role::CardBorder } else { Role::Dim });
    let lead = Span::styled(if has_focus { "┃ " } else { "│ " }, bar);
    let lines = rows.lines.into_iter().map(|line| {
        let mut spans = vec![lead.clone()];
        spans.extend(line.spans);
        Line { spans, ..line }
    });
    let caret = rows
        .caret
        .filter(|_| has_focus)
        .map(|at| Position::new((at.x + BAR).min(columns.saturating_sub(1)), at.y));
    let mut lines: Vec<Line<'static>> = lines.collect();
    lines.truncate(most.max(1));
    Picture { lines, caret }
}

fn title(card: &Card, app: &App, inner: u16, theme: &Theme) -> Line<'static> {
    let name = visible_line(&card.ticket.pending.name).into_owned();
    let what = match card.kind {
        CardKind::Permission if card.command().is_some() => "wants to run",
        CardKind::Permission if !card.previews().is_empty() => "wants to change a file",
        CardKind::Permission => "wants to go ahead",
        CardKind::Ask => "asks you",
        CardKind::Unknown => "was interrupted: nobody knows whether it ran to its end",
    };
    let name = if card.kind == CardKind::Ask { header(card).unwrap_or(name) } else { name };
    let left = vec![
        Span::styled(name, theme.style(Role::CardTitle)),
        Span::styled(format!(" {what}"), theme.style(Role::Text)),
    ];
    let right = if app.cards.len() > 1 {
        vec![Span::styled(format!("{} of {} ", app.card + 1, app.cards.len()), theme.style(Role::Dim))]
    } else {
        Vec::new()
    };
    spread(left, right, inner)
}

fn header(card: &Card) -> Option<String> {
    let header = card.ticket.suspension.parameters.get("header").and_then(Value::as_str)?;
    Some(visible_line(header).into_owned()).filter(|header| !header.trim().is_empty())
}

/// Keeps the rows from `from` on that there is room for, and says how many are hidden.
fn scroll(rows: &mut Vec<Line<'static>>, from: usize, room: usize, inner: u16, theme: &Theme) {
    let total = rows.len();
    if total <= room {
        return;
    }
    if room == 0 {
        rows.clear();
        return;
    }
    let shown = room.saturating_sub(1).max(1);
    let from = from.min(total - shown);
    rows.drain(..from);
    rows.truncate(shown);
    let below = total - from - shown;
    let text = match (from, below) {
        (0, below) => format!("▼ {below} more rows below (↓)"),
        (above, 0) => format!("▲ {above} rows above (↑)"),
        (above, below) => format!("▲ {above} above, ▼ {below} below (↑ ↓)"),
    };
    let note = Line::styled(truncate(&text, inner), theme.style(Role::Warning));
    if room == 1 {
        // One row only: say what is hidden at its end, rather than hide that something is.
        let mark = format!(" …+{}", total - 1);
        if let Some(row) = rows.first_mut() {
            let text = truncate(&row.to_string(), inner.saturating_sub(mark.len() as u16));
            *row = Line::from(vec![Span::raw(text), Span::styled(mark, theme.style(Role::Warning))]);
        }
    } else {
        rows.push(note);
    }
}

/// What is asked.
fn body(card: &Card, app: &App, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    match card.kind {
        CardKind::Ask => {
            let question = card.ticket.suspension.parameters.get("question").and_then(Value::as_str);
            let question = question.unwrap_or(&card.ticket.suspension.message);
            lines.extend(Wrap::words(inner).text(&visible(question), theme.style(Role::Text)));
            lines.extend(choices(card, inner, theme));
        }
        CardKind::Permission | CardKind::Unknown => {
            lines.extend(call(card, app, inner, theme));
            let said = card.ticket.suspension.message.trim();
            if card.kind == CardKind::Unknown && !said.is_empty() {
                lines.extend(Wrap::words(inner).text(&visible(said), theme.style(Role::Dim)));
            }
        }
    }
    if let Stage::Grant { pattern, scope } = card.stage {
        return grant(card, pattern, scope, app, inner, theme);
    }
    lines
}

fn call(card: &Card, app: &App, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
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
    if let Some(map) = card.ticket.pending.arguments.as_object() {
        for (key, value) in map.iter().filter(|(key, _)| !told.contains(&key.as_str())) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let key = Span::styled(format!("{}: ", visible_line(key)), theme.style(Role::Dim));
            let wrap = Wrap::anywhere(inner).prefix(vec![key], vec![Span::raw("  ")]);
            lines.extend(wrap.line(&Line::from(marked(&text, theme))));
        }
    } else if !card.ticket.pending.arguments.is_null() {
        let text = card.ticket.pending.arguments.to_string();
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

fn choices(card: &Card, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let ask = &card.ask;
    let mut lines = Vec::new();
    if !ask.choices().is_empty() {
        lines.push(Line::default());
    }
    for (i, choice) in ask.choices().iter().enumerate() {
        let is_here = ask.cursor() == Some(i);
        let tick = match (ask.is_multi(), ask.is_chosen(i)) {
            (false, _) => "",
            (true, true) => "[x] ",
            (true, false) => "[ ] ",
        };
        let lead = format!("{} {}. {tick}", if is_here { "▸" } else { " " }, i + 1);
        let style = theme.style(if is_here { Role::Accent } else { Role::Text });
        let indent = Span::raw(" ".repeat(width(&lead)));
        let wrap = Wrap::words(inner).prefix(vec![Span::styled(lead, style)], vec![indent]);
        let mut spans = vec![Span::styled(visible_line(&choice.label).into_owned(), style)];
        if let Some(description) = &choice.description {
            spans.push(Span::styled(format!("  {}", visible_line(description)), theme.style(Role::Dim)));
        }
        lines.extend(wrap.line(&Line::from(spans)));
    }
    if ask.takes_text() && !ask.choices().is_empty() && ask.line().is_none() {
        let is_here = ask.cursor() == Some(ask.choices().len());
        let style = theme.style(if is_here { Role::Accent } else { Role::Dim });
        let text =
            format!("{} {}. something else…", if is_here { "▸" } else { " " }, ask.choices().len() + 1);
        lines.push(Line::styled(truncate(&text, inner), style));
    }
    lines
}

/// The rule that would be stored, spelled out.
fn grant(
    card: &Card,
    pattern: usize,
    scope: usize,
    app: &App,
    inner: u16,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("From now on, without asking:", theme.style(Role::Text))];
    let proposals = card.proposals();
    for (i, proposal) in proposals.iter().enumerate() {
        let is_here = i == pattern;
        let style = theme.style(if is_here { Role::Accent } else { Role::Text });
        let lead = Span::styled(if is_here { "▸ " } else { "  " }, style);
        let spans = vec![
            Span::styled(visible_line(&proposal.pattern).into_owned(), style),
            Span::styled(format!("  {}", visible_line(&proposal.text)), theme.style(Role::Dim)),
        ];
        let wrap = Wrap::words(inner).prefix(vec![lead], vec![Span::raw("    ")]);
        lines.extend(wrap.line(&Line::from(spans)));
    }
    let mut scopes = vec![Span::styled("for ", theme.style(Role::Text))];
    for (i, name) in SCOPES.iter().enumerate() {
        if i > 0 {
            scopes.push(Span::styled(" · ", theme.style(Role::Dim)));
        }
        let text = if i == scope { format!("[{name}]") } else { (*name).to_owned() };
        scopes.push(Span::styled(text, theme.style(if i == scope { Role::Accent } else { Role::Dim })));
    }
    lines.extend(Wrap::words(inner).line(&Line::from(scopes)));
    let reach = match scope {
        0 => "until this run is over".to_owned(),
        1 => "in this conversation, also after a restart".to_owned(),
        2 => format!("in every conversation of {}", short_path(&app.info.project, app.info.home.as_deref())),
        _ => "in every project of yours".to_owned(),
    };
    if let Some(proposal) = proposals.get(pattern) {
        let text = format!("Enter stores: allow {} {reach}", visible(&proposal.pattern));
        lines.push(Line::default());
        lines.extend(Wrap::words(inner).text(&text, theme.style(Role::Warning)));
    }
    lines
}

/// Who asks, and where it will run.
fn about(card: &Card, app: &App, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    if card.kind == CardKind::Ask || matches!(card.stage, Stage::Grant { .. }) {
        return Vec::new();
    }
    let dim = theme.style(Role::Dim);
    let mut lines = Vec::new();
    let place = card.cwd().map_or_else(|| app.info.cwd.clone(), std::path::PathBuf::from);
    let mut text = format!("in {}", short_path(&place, app.info.home.as_deref()));
    if let Some(rule) = card.rule() {
        text.push_str(" · rule: ");
        text.push_str(&visible_line(rule));
    }
    lines.extend(Wrap::words(inner).text(&text, dim));
    if let Some(why) = card.why() {
        lines.extend(Wrap::words(inner).text(&visible_line(why), dim));
    }
    lines
}

/// The keys, or the line that is being written.
fn foot(card: &Card, app: &App, inner: u16, theme: &Theme, has_focus: bool) -> Picture {
    let mut picture = Picture::default();
    if let Some(problem) = &card.problem {
        picture.lines.extend(Wrap::words(inner).text(&visible_line(problem), theme.style(Role::Error)));
    }
    if let Some(line) = card.line() {
        let asks = if matches!(card.stage, Stage::Reason(_)) { "why not? " } else { "answer: " };
        picture.stack(written(line, asks, inner, theme));
    }
    let keys = keys(card, app, has_focus);
    let mut spans: Vec<Span<'static>> = Vec::new();
    for (key, what) in keys {
        if !spans.is_empty() {
            spans.push(Span::raw("  "));
        }
        let style = theme.style(if has_focus { Role::Key } else { Role::Dim });
        spans.push(Span::styled(key, style));
        // A blank that does not break keeps a key and its meaning together.
        spans.push(Span::styled(format!("\u{a0}{}", what.replace(' ', "\u{a0}")), theme.style(Role::Dim)));
    }
    let lines = Wrap::words(inner).line(&Line::from(spans));
    picture.lines.extend(lines.into_iter().map(breakable));
    picture
}

/// The keys alone on one row, for a small terminal; the line that is being written goes before them.
fn short_foot(card: &Card, app: &App, inner: u16, theme: &Theme, has_focus: bool) -> Picture {
    if let Some(line) = card.line() {
        return written(line, "› ", inner, theme);
    }
    if let Some(problem) = &card.problem {
        return vec![Line::styled(truncate(&visible_line(problem), inner), theme.style(Role::Error))].into();
    }
    let keys: Vec<String> = keys(card, app, has_focus).into_iter().map(|(key, _)| key).collect();
    let style = theme.style(if has_focus { Role::Key } else { Role::Dim });
    vec![Line::styled(truncate(&keys.join(" "), inner), style)].into()
}

/// The same line with ordinary blanks.
fn breakable(line: Line<'static>) -> Line<'static> {
    let spans =
        line.spans.into_iter().map(|span| Span::styled(span.content.replace('\u{a0}', " "), span.style));
    Line::from(spans.collect::<Vec<_>>())
}

fn keys(card: &Card, app: &App, has_focus: bool) -> Vec<(String, String)> {
    let chord = |action: Action| app.keymap.chord_of(Place::Card, action);
    let key = |action: Action, what: &str| (format!("[{}]", chord(action)), what.to_owned());
    let esc = |what: &str| {
        (format!("[{}]", app.keymap.chord_of(Place::Composer, Action::Interrupt)), what.to_owned())
    };
    let enter = |what: &str| (format!("[{}]", chord(Action::Accept)), what.to_owned());
    let mut keys = match &card.stage {
        Stage::Deciding(word) => return vec![(format!("{word}…"), String::new())],
        Stage::Reason(_) => vec![enter("no, with or without a reason"), esc("back")],
        Stage::Grant { .. } => vec![
            enter("store and allow"),
            ("[↑↓]".into(), "rule".into()),
            ("[←→]".into(), "how far".into()),
            esc("back"),
        ],
        Stage::Open => match card.kind {
            CardKind::Permission => vec![
                key(Action::Allow, "allow once"),
                key(Action::Deny, "no"),
                key(Action::Grant, "always…"),
                key(Action::Stop, "no, and stop"),
            ],
            CardKind::Unknown => vec![
                key(Action::RunAgain, "run again"),
                key(Action::MarkDone, "it is done"),
                key(Action::Skip, "skip"),
                key(Action::Stop, "stop"),
            ],
            CardKind::Ask if card.ask.line().is_some() => vec![enter("answer"), esc("back")],
            CardKind::Ask => {
                let mut keys = vec![enter(if card.ask.choices().is_empty() { "write" } else { "answer" })];
                if card.ask.is_multi() {
                    keys.push(key(Action::Toggle, "choose"));
                }
                keys.push(key(Action::Skip, "skip"));
                keys.push(key(Action::Stop, "stop"));
                keys
            }
        },
    };
    if !has_focus {
        keys.insert(
            0,
            (format!("[{}]", app.keymap.chord_of(Place::Composer, Action::FocusCard)), "to answer:".into()),
        );
    } else if app.cards.len() > 1 && matches!(card.stage, Stage::Open) {
        keys.push(key(Action::NextCard, "next"));
    }
    keys
}

/// One line that is being written; its end stays in sight.
fn written(line: &super::super::composer::Composer, asks: &str, inner: u16, theme: &Theme) -> Picture {
    let text = visible_line(line.text()).into_owned();
    let room = usize::from(inner).saturating_sub(width(asks) + 1).max(1);
    let before = visible_line(&line.text()[..line.caret()]).into_owned();
    let mut start = 0;
    while width(&before[start..]) > room {
        start += before[start..].chars().next().map_or(1, char::len_utf8);
    }
    let shown = truncate(&text[start..], room as u16 + 1);
    let x = width(asks) + width(&before[start..]);
    let spans = vec![
        Span::styled(asks.to_owned(), theme.style(Role::Accent)),
        Span::styled(shown, theme.style(Role::Text)),
    ];
    Picture { lines: vec![Line::from(spans)], caret: Some(Position::new(x as u16, 0)) }
}
