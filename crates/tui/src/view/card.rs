//! Pending questions as cards: the full call, the agent that asks, where it will run, and the keys.

use ratatui::layout::Position;
use ratatui::text::{Line, Span};

use super::super::app::{App, Focus};
use super::super::approval::ask::AskRow;
use super::super::approval::{Card, CardKind, CardStage};
use super::super::keymap::{Action, KeyContext};
use super::super::status::short_path;
use super::super::theme::{Role, Theme};
use super::super::wrap::{Wrap, truncate, width};
use super::entry::Colours;
use super::surface::{At, HERE, surface};
use super::{ClickTarget, Rendered, spread};
use aye_core::contract::display::{visible, visible_line};
use aye_core::contract::surface::SurfaceNode;

mod call;
mod edit;
mod foot;
mod grant;
mod stale;
mod unknown;

pub(super) use call::CardColours;
use call::call;
pub(super) use foot::answer_at;
use foot::{FootSize, foot, short_foot};
use grant::grant;

/// Left bar and blank.
const BAR: u16 = 2;
/// The columns of a card that are not available for edited text: the bar, the prompt, and the caret after the
/// last column.
pub(crate) const CARD_TEXT: u16 = BAR + edit::LEAD + 1;
/// The text about the folder in the trust question.
const TRUST: &str = "has untrusted files";
/// From this many rows on, a card lists its answers in rows of their own.
const LIST_FROM: usize = 14;
/// Renders all pending questions in at most `most` rows: the current one in full, the others in one line
/// each.
pub(super) fn cards(
    app: &App,
    columns: u16,
    most: usize,
    theme: &Theme,
    code: &[Option<Colours>],
) -> Rendered {
    let Some(current) = app.current_card() else { return Rendered::default() };
    if most == 0 {
        return Rendered::default();
    }
    if !app.is_card_whole() {
        let tab = app.keymap.chord_of(KeyContext::Composer, Action::FocusCard);
        let text = format!("│ {} · [{tab}] answers", one_line(current, app));
        return vec![Line::styled(truncate(&text, columns), theme.style(Role::Dim))].into();
    }
    let others: Vec<(usize, &Card)> =
        app.cards.open.iter().enumerate().filter(|(at, _)| *at != app.cards.at).collect();
    let gap = usize::from(most >= 12);
    let mut picture = card(current, app, columns, most - gap, theme, code);
    // The current question comes first; the title counts the others.
    let for_others = others.len().min(most - gap - picture.lines.len().min(most - gap)).min(4);
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
            let question = card.question.choice().and_then(|choice| choice.question.as_deref());
            visible_line(question.unwrap_or_default()).into_owned()
        }
        CardKind::Form | CardKind::Plan => visible_line(&card.ticket.suspension.message).into_owned(),
        CardKind::Trust => TRUST.to_owned(),
        CardKind::Permission | CardKind::Unknown => {
            super::entry::summary_of(&pending.name, card.arguments(), &app.info)
        }
    };
    let state = match (card.is_deciding(), card.edit.is_some()) {
        (true, _) => " (deciding…)",
        (false, true) => " (edited)",
        (false, false) => "",
    };
    let of = card
        .elsewhere
        .as_ref()
        .map(|of| &of.title)
        .or(card.child.as_ref())
        .map_or_else(String::new, |of| format!("{} › ", truncate(&visible_line(of), 24)));
    format!("{of}{}  {what}{state}", visible_line(&pending.name))
}

fn card(
    card: &Card,
    app: &App,
    columns: u16,
    most: usize,
    theme: &Theme,
    code: &[Option<Colours>],
) -> Rendered {
    let inner = columns.saturating_sub(BAR).max(1);
    let has_focus = app.focus == Focus::Card;
    let title = title(card, app, inner, theme);
    let mut foot = foot(card, app, inner, theme, has_focus, size_of(most));
    let mut body = body(card, app, inner, theme, code);
    let mut about = about(card, app, inner, theme);

    let room = room_for_body(card, app, inner, most, theme, &mut foot, &body, &mut about);
    let is_airy = room > body.len() + 2;
    let writing = match (&card.stage, &app.cards.batch) {
        (CardStage::Edit(text), None) => Some(edit::writing(text, inner, room, theme)),
        _ => None,
    };
    if writing.is_none() {
        scroll(&mut body, first_row(card, app, inner, theme), room, inner, theme);
    }
    let has_title = most >= 3;

    let mut rows: Rendered = if has_title { vec![title].into() } else { Rendered::default() };
    if is_airy && !body.is_empty() {
        rows.lines.push(Line::default());
    }
    match writing {
        Some(writing) => rows.stack(writing),
        None => rows.lines.extend(body),
    }
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
    let targets = rows.targets.into_iter().map(|target| ClickTarget {
        columns: target.columns.start + BAR..target.columns.end + BAR,
        ..target
    });
    let targets = targets.filter(|target| usize::from(target.row) < lines.len()).collect();
    Rendered { lines, caret, targets }
}

/// Returns the size of the footer: answers get rows of their own if there is room.
fn size_of(most: usize) -> FootSize {
    if most >= LIST_FROM { FootSize::List } else { FootSize::Rows }
}

/// Shortens the parts around the body to fit, and returns the number of rows left for the body.
#[expect(clippy::too_many_arguments, reason = "the parts of one card")]
fn room_for_body(
    card: &Card,
    app: &App,
    inner: u16,
    most: usize,
    theme: &Theme,
    foot: &mut Rendered,
    body: &[Line<'static>],
    about: &mut Vec<Line<'static>>,
) -> usize {
    // The required parts come first: a row of the question, the keys, the title. Then come the others, as far
    // as they fit.
    let mut room = most - usize::from(most >= 3);
    let needs = body.len().min(if most >= 8 { 3 } else { 1 });
    if foot.lines.len() + needs > room {
        *foot = self::foot::foot(card, app, inner, theme, app.focus == Focus::Card, FootSize::Rows);
    }
    if foot.lines.len() + needs > room {
        *foot = short_foot(card, app, inner, theme, app.focus == Focus::Card);
    }
    let for_foot = room.saturating_sub(needs).min(foot.lines.len());
    foot.lines.truncate(for_foot);
    foot.caret = foot.caret.filter(|at| usize::from(at.y) < for_foot);
    room -= for_foot;
    let for_about = about.len().min(room.saturating_sub(body.len().min(3)));
    about.truncate(for_about);
    room - about.len()
}

/// Returns which rows of the current card's body are on the screen: the first row, the row after the last,
/// and the total.
pub(super) fn window(app: &App, columns: u16, most: usize) -> Option<(usize, usize, usize)> {
    let card = app.current_card()?;
    let theme = &Theme::plain();
    let most = most - usize::from(most >= 12);
    if most == 0 {
        return Some((0, 0, usize::MAX));
    }
    let inner = columns.saturating_sub(BAR).max(1);
    let body = body(card, app, inner, theme, &[]);
    let mut foot = foot(card, app, inner, theme, app.focus == Focus::Card, size_of(most));
    let mut about = about(card, app, inner, theme);
    let room = room_for_body(card, app, inner, most, theme, &mut foot, &body, &mut about);
    let total = body.len();
    let shown = if total <= room { total } else { room.saturating_sub(1).max(1).min(room) };
    let from = first_row(card, app, inner, theme).min(total - shown);
    Some((from, from + shown, total))
}

fn title(card: &Card, app: &App, inner: u16, theme: &Theme) -> Line<'static> {
    let name = visible_line(&card.ticket.pending.name).into_owned();
    let what = match card.kind {
        CardKind::Permission => does(card, app),
        CardKind::Plan => "is ready".to_owned(),
        CardKind::Trust => TRUST.to_owned(),
        CardKind::Ask => "has a question".to_owned(),
        CardKind::Form => "has a form".to_owned(),
        CardKind::Unknown => "was interrupted: its outcome is unknown".to_owned(),
    };
    let name = if card.kind == CardKind::Ask { header(card).unwrap_or(name) } else { name };
    let mut left = of_conversation(card, inner, theme);
    left.push(Span::styled(name, theme.style(Role::CardTitle)));
    left.push(Span::styled(format!(" {what}"), theme.style(Role::Text)));
    if card.edit.is_some() {
        left.push(Span::styled(" · as you edited it", theme.style(Role::Warning)));
    } else if card.asked_again_as_edited() {
        left.push(Span::styled(" · as it was edited", theme.style(Role::Warning)));
    }
    if app.cards.batch.is_some() {
        left = vec![Span::styled(edit::batch_title(app), theme.style(Role::CardTitle))];
    }
    let right = if app.cards.open.len() > 1 {
        vec![Span::styled(
            format!("{} of {} ", app.cards.at + 1, app.cards.open.len()),
            theme.style(Role::Dim),
        )]
    } else {
        Vec::new()
    };
    spread(left, right, inner)
}

/// Marks a card of another conversation with what that is called, and one of a child with the agent that asks.
fn of_conversation(card: &Card, inner: u16, theme: &Theme) -> Vec<Span<'static>> {
    let most = (inner / 3).max(8);
    let titles = [card.elsewhere.as_ref().map(|of| &of.title), card.child.as_ref()];
    let span = |title: &String| {
        let title = truncate(&visible_line(title), most);
        Span::styled(format!("{title} › "), theme.style(Role::Warning))
    };
    titles.into_iter().flatten().map(span).collect()
}

/// Returns a description of the call, for after the tool's name.
fn does(card: &Card, app: &App) -> String {
    let proposed = card.proposed();
    let outside =
        if proposed.is_some_and(|proposed| proposed.is_outside) { ", outside this project" } else { "" };
    match card.previews() {
        [] => {}
        [file] => {
            let verb = if file.before.is_none() { "creates" } else { "changes" };
            let root = card.project(&app.info.project);
            let path = file.path.strip_prefix(root).unwrap_or(&file.path);
            return format!("{verb} {}{outside}", short_path(path, app.info.home.as_deref()));
        }
        files => return format!("changes {} files", files.len()),
    }
    let does = match proposed.and_then(|proposed| proposed.does.as_deref()) {
        Some(does) => visible_line(does).into_owned(),
        None if card.command().is_some() => "runs a command".to_owned(),
        None => "needs approval".to_owned(),
    };
    match (card.in_terminal(), card.in_background()) {
        (true, _) => format!("{does}, in a terminal in the background"),
        (false, true) => format!("{does}, in the background"),
        (false, false) => does,
    }
}

fn header(card: &Card) -> Option<String> {
    let header = card.question.choice()?.header.as_deref()?;
    Some(visible_line(header).into_owned())
}

/// Keeps the rows that fit, starting at `from`, and shows how many are hidden.
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

/// Renders the body of the card: the question.
fn body(card: &Card, app: &App, inner: u16, theme: &Theme, code: &[Option<Colours>]) -> Vec<Line<'static>> {
    if app.cards.batch.is_some() {
        return edit::batch(app, inner, theme);
    }
    match &card.stage {
        CardStage::Edit(text) => return edit::rows(text, inner, theme),
        CardStage::Hunks(hunks) => return edit::hunks(hunks, app, inner, theme).0,
        CardStage::Open
        | CardStage::Reason(_)
        | CardStage::Modify(_)
        | CardStage::Comment(_)
        | CardStage::Away
        | CardStage::Grant { .. }
        | CardStage::Deciding(_)
        | CardStage::Stopping => {}
    }
    let mut lines = Vec::new();
    match card.kind {
        CardKind::Ask => {
            let text = visible(card.asked());
            lines.extend(Wrap::words(inner).text(&text, theme.style(Role::Text)));
            lines.extend(choices(card, inner, theme));
        }
        CardKind::Form => lines.extend(form(card, inner, theme)),
        CardKind::Plan => {
            let text = "Nothing was changed. Carry it out, or write what to change.";
            lines.extend(Wrap::words(inner).text(text, theme.style(Role::Dim)));
        }
        CardKind::Trust => lines.extend(trust(app, inner, theme)),
        CardKind::Permission | CardKind::Unknown => {
            lines.extend(stale::moved(card, inner, theme));
            lines.extend(call(card, app, inner, theme, code));
            lines.extend(stale::deltas(card, inner, theme));
            let said = card.ticket.suspension.message.trim();
            if card.kind == CardKind::Unknown {
                if !said.is_empty() {
                    lines.extend(Wrap::words(inner).text(&visible(said), theme.style(Role::Dim)));
                }
                lines.extend(unknown::known(card, app, inner, theme));
            }
        }
    }
    if let Some(form) = card.form() {
        return grant(card, form, app, inner, theme);
    }
    lines
}

/// Renders the files of the folder that would grant or run something.
fn trust(app: &App, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let place = short_path(&app.info.cwd, app.info.home.as_deref());
    let text = format!(
        "These files of {place} would grant or run something. Until you trust them, they are not used."
    );
    let mut lines = Wrap::words(inner).text(&visible(&text), theme.style(Role::Text));
    for row in &app.untrusted {
        let path = row.path.strip_prefix(&app.info.project).unwrap_or(&row.path);
        let path = short_path(path, app.info.home.as_deref());
        lines.extend(Wrap::words(inner).text(&visible_line(&path), theme.style(Role::Accent)));
        let indent = vec![Span::raw("  ")];
        let wrap = Wrap::words(inner).prefix(indent.clone(), indent);
        for text in visible(&row.does).lines() {
            lines.extend(wrap.line(&Line::styled(text.to_owned(), theme.style(Role::Text))));
        }
    }
    lines
}

/// A surface with what was put into it.
fn form(card: &Card, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let at = match card.surface.here() {
        Some(SurfaceNode::Field(field) | SurfaceNode::Check(field)) => {
            At { component: Some(&field.component), path: Some(&field.path) }
        }
        Some(SurfaceNode::Button(button)) => At { component: Some(&button.component), path: None },
        Some(_) | None => At::default(),
    };
    let mut lines = surface(card.surface.surface(), at, inner, theme);
    if card.surface.cursor().is_some() {
        lines.push(last_row("skip this question", card.surface.skips(), inner, theme));
    }
    lines
}

/// A row after the choices or fields of a question.
fn last_row(text: &str, is_here: bool, inner: u16, theme: &Theme) -> Line<'static> {
    let style = theme.style(if is_here { Role::Accent } else { Role::Dim });
    let lead = if is_here { HERE } else { "  " };
    let text = truncate(text, inner.saturating_sub(width(lead) as u16));
    Line::from(vec![Span::styled(lead, style), Span::styled(text, style)])
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
    // Where only text is asked for, there is nothing to choose until the line is left.
    if ask.line().is_none() {
        for at in ask.choices().len()..ask.rows() {
            let words = match ask.row(at) {
                Some(AskRow::Text) if ask.choices().is_empty() => "write an answer",
                Some(AskRow::Text) => "something else…",
                Some(AskRow::Choice(_) | AskRow::Skip) | None => "skip this question",
            };
            lines.push(last_row(&format!("{}. {words}", at + 1), ask.cursor() == Some(at), inner, theme));
        }
    }
    lines
}

/// Returns the first visible row of the body: where the user scrolled to, relative to the part selected with
/// the arrows.
fn first_row(card: &Card, app: &App, inner: u16, theme: &Theme) -> usize {
    match &card.stage {
        CardStage::Hunks(hunks) if app.cards.batch.is_none() => {
            edit::hunks(hunks, app, inner, theme).1 + card.scroll
        }
        // The selected answer must be visible, so the rows follow the arrows.
        _ if card.kind == CardKind::Form && app.cards.batch.is_none() => {
            let rows = form(card, inner, theme);
            let here = rows.iter().position(|row| row.spans.iter().any(|span| span.content == HERE));
            here.map_or(0, |row| row.saturating_sub(1)) + card.scroll
        }
        _ => card.scroll,
    }
}

/// Renders which agent asks, and where the call will run.
fn about(card: &Card, app: &App, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    if app.cards.batch.is_some() {
        return Vec::new();
    }
    let mut lines = edit::comment(card, inner, theme);
    lines.extend(stale::time_left(card, app, inner, theme));
    if matches!(card.kind, CardKind::Ask | CardKind::Form) || card.is_own() || card.form().is_some() {
        return lines;
    }
    let dim = theme.style(Role::Dim);
    if let Some(text) = card.ticket.suspension.reach() {
        lines.extend(Wrap::words(inner).text(text, dim));
    }
    let place = card.question.cwd.as_deref().map_or(app.info.cwd.as_path(), std::path::Path::new);
    let mut text = format!("in {}", short_path(place, app.info.home.as_deref()));
    if card.edit.is_some() {
        // The rule and its reason were about the proposed version.
        lines.extend(Wrap::words(inner).text(&text, dim));
        lines.extend(edit::review(card, inner, theme));
        return lines;
    }
    let proposed = card.proposed();
    if let Some(rule) = proposed.and_then(|proposed| proposed.rule.as_deref()) {
        text.push_str(" · rule: ");
        text.push_str(&visible_line(rule));
    }
    lines.extend(Wrap::words(inner).text(&text, dim));
    if let Some(why) = &card.question.why {
        lines.extend(Wrap::words(inner).text(&visible_line(why), dim));
    }
    if let Some(grant) = proposed.and_then(|proposed| proposed.missed_grant.as_ref()) {
        let when = grant.at.map(|at| format!(" {}", app.clock.ago(app.now, at))).unwrap_or_default();
        let text = format!("your grant `{}` for {} {}{when}", grant.pattern, grant.scope, grant.why);
        lines.extend(Wrap::words(inner).text(&visible_line(&text), dim));
    }
    lines
}
