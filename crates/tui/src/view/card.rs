//! Pending questions as cards: the full call, the agent that asks, where it will run, and the keys.

use ratatui::layout::Position;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::super::app::{App, Focus};
use super::super::approval::ask::AskRow;
use super::super::approval::{Card, CardKind, CardStage};
use super::super::host::ProjectServer;
use super::super::keymap::{Action, KeyContext};
use super::super::status::short_path;
use super::super::theme::{Role, Theme};
use super::super::wrap::{Wrap, truncate, width};
use super::entry::Colours;
use super::surface::{At, HERE, surface};
use super::text::{capital, marked};
use super::{ClickTarget, Rendered, spread};
use aye_core::contract::display::{visible, visible_line};
use aye_core::contract::judgement::Risk;
use aye_core::contract::surface::SurfaceNode;

mod call;
mod edit;
mod foot;
mod grant;
mod stale;
mod unknown;
mod words;

pub(super) use call::CardColours;
use call::call;
pub(super) use foot::answer_at;
use foot::{FootSize, foot, short_foot};
use grant::grant;
pub(in super::super) use words::question;

/// Left bar and blank.
const BAR: u16 = 2;
/// The columns of a card that are not available for edited text: the bar, the prompt, and the caret after the
/// last column.
pub(crate) const CARD_TEXT: u16 = BAR + edit::LEAD + 1;
/// Renders all pending questions in at most `most` rows, in their order: the current one in full, the others in one line
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
        let text = format!("│ {} · {tab}: answer", subject(current, app));
        return vec![Line::styled(truncate(&text, columns), theme.style(Role::Dim))].into();
    }
    let gap = usize::from(most >= 12);
    let mut picture = card(current, app, columns, most - gap, theme, code);
    // All of them are one list, and the current one is open in it. A batch shows its calls itself.
    let others = if app.cards.batch.is_some() { 0 } else { app.cards.open.len() - 1 };
    let room = most - gap - picture.lines.len().min(most - gap);
    let shown = others.min(room).min(OTHERS);
    let at = app.cards.at;
    // As many before it as after it, where there are as many.
    let above = at.min((shown / 2).max(shown.saturating_sub(others.saturating_sub(at))));
    let row = |at: usize| list_row(at, app, columns, theme);
    let mut list: Rendered = (at - above..at).map(row).collect::<Vec<_>>().into();
    list.stack(picture);
    picture = list;
    picture.lines.extend((at + 1..=at + shown - above).map(row));
    if gap > 0 {
        picture.lines.push(Line::default());
    }
    picture
}

/// Maximum rows of questions beside the one that is shown whole.
const OTHERS: usize = 4;

/// A question in the list that is not shown whole: its number, what it is about, and its state.
fn list_row(at: usize, app: &App, columns: u16, theme: &Theme) -> Line<'static> {
    let Some(card) = app.cards.open.get(at) else { return Line::default() };
    let dim = theme.style(Role::Dim);
    let (mark, role) = match (card.is_deciding(), card.kind) {
        (true, _) => ("…", Role::Dim),
        (false, CardKind::Unknown) => ("!", Role::Error),
        (false, _) => ("?", Role::Warning),
    };
    let left = vec![
        Span::styled("│ ", dim),
        Span::styled(mark, theme.style(role)),
        Span::styled(format!(" {}  {}", at + 1, subject(card, app)), dim),
    ];
    let right: Vec<Span<'static>> =
        state(card).map(|state| Span::styled(format!("{state} "), dim)).into_iter().collect();
    spread(left, right, columns)
}

/// What became of a question so far, if anything.
fn state(card: &Card) -> Option<String> {
    match &card.stage {
        CardStage::Deciding(word) => Some(format!("{word}…")),
        CardStage::Stopping => Some("stopping…".to_owned()),
        CardStage::Away => Some("in your editor…".to_owned()),
        _ if card.edit.is_some() => Some("edited".to_owned()),
        _ if card.comment.is_some() => Some("commented".to_owned()),
        _ => None,
    }
}

/// The question on one line, for lists.
fn subject(card: &Card, app: &App) -> String {
    let of = card
        .elsewhere
        .as_ref()
        .map(|of| &of.title)
        .or(card.child.as_ref())
        .map_or_else(String::new, |of| format!("{} › ", truncate(&visible_line(of), 24)));
    let text = match card.kind {
        CardKind::Ask => visible_line(card.asked()).into_owned(),
        CardKind::Permission | CardKind::Unknown if card.command().is_some() => {
            format!("$ {}", visible_line(card.command().unwrap_or_default()))
        }
        _ => words::question(card, app),
    };
    format!("{of}{text}")
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
    let Parts { title, mut body, about, foot, room, is_airy } = parts(card, app, inner, most, theme, code);
    // A step of an answer keeps the height of the card, so that nothing below it moves.
    let least = match &card.stage {
        CardStage::Grant(_)
        | CardStage::Reason(_)
        | CardStage::Modify(_)
        | CardStage::Comment(_)
        | CardStage::Deciding(_)
        | CardStage::Stopping => {
            let mut open = card.clone();
            open.stage = CardStage::Open;
            self::card(&open, app, columns, most, theme, code).lines.len()
        }
        CardStage::Open | CardStage::Edit(_) | CardStage::Hunks(_) | CardStage::Away => 0,
    };
    let writing = match (&card.stage, &app.cards.batch) {
        (CardStage::Edit(text), None) => Some(edit::writing(text, inner, room, theme)),
        _ => None,
    };
    if writing.is_none() {
        let is_call = matches!(card.kind, CardKind::Permission | CardKind::Unknown);
        let whole =
            if is_call { app.keymap.chord_of(KeyContext::Card, Action::WholeCard) } else { String::new() };
        scroll(&mut body, first_row(card, app, inner, theme), room, &whole, inner, theme);
    }

    let mut rows: Rendered = title.into_iter().collect::<Vec<_>>().into();
    if is_airy {
        rows.lines.push(Line::default());
    }
    match writing {
        Some(writing) => rows.stack(writing),
        None => rows.lines.extend(body),
    }
    rows.lines.extend(about);
    if is_airy {
        rows.lines.push(Line::default());
    }
    let missing = least.saturating_sub(rows.lines.len() + foot.lines.len());
    rows.lines.extend(std::iter::repeat_n(Line::default(), missing));
    rows.stack(foot);

    let lead = Span::styled(if has_focus { "▌ " } else { "│ " }, bar(card, has_focus, theme));
    let tint = Style { bg: theme.style(Role::Composer).bg, ..Style::default() };
    let lines = rows.lines.into_iter().map(|line| {
        let mut spans = vec![lead.clone()];
        spans.extend(line.spans.into_iter().map(|span| {
            let style = line.style.patch(span.style);
            Span { style, ..span }
        }));
        if tint.bg.is_some() {
            let used: usize = spans.iter().map(|span| width(&span.content)).sum();
            if let Some(rest) = usize::from(columns).checked_sub(used).filter(|rest| *rest > 0) {
                spans.push(Span::raw(" ".repeat(rest)));
            }
            for span in &mut spans {
                span.style = tint.patch(span.style);
            }
        }
        Line::from(spans)
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

/// The colour of the bar: that of the risk.
fn bar(card: &Card, has_focus: bool, theme: &Theme) -> Style {
    let risk = card.proposed().and_then(|proposed| proposed.risk);
    theme.style(match card.kind {
        _ if !has_focus => Role::Dim,
        _ if card.danger().is_some() => Role::Error,
        CardKind::Permission if risk == Some(Risk::Reads) => Role::Success,
        CardKind::Permission | CardKind::Unknown | CardKind::Trust => Role::CardBorder,
        CardKind::Ask | CardKind::Form | CardKind::Plan => Role::Accent,
    })
}

/// The parts of a card, as much of each as there is room for.
struct Parts {
    title: Option<Line<'static>>,
    /// The whole body; `room` of its rows are shown.
    body: Vec<Line<'static>>,
    about: Vec<Line<'static>>,
    foot: Rendered,
    room: usize,
    /// Whether blank rows separate them.
    is_airy: bool,
}

/// The rows of a body that are worth more than answers in rows of their own.
const ENOUGH: usize = 15;

/// Lays the parts of a card out in at most `most` rows. The required parts come first: a row of the body, the keys, the
/// title. Then come the others, as far as they fit.
fn parts(card: &Card, app: &App, inner: u16, most: usize, theme: &Theme, code: &[Option<Colours>]) -> Parts {
    let has_focus = app.focus == Focus::Card;
    let title = (most >= 3).then(|| title(card, app, inner, theme));
    let mut room = most - usize::from(title.is_some());
    let body = body(card, app, inner, theme, code);
    let mut about = about(card, app, inner, theme);
    let needs = body.len().min(if most >= 8 { 3 } else { 1 });
    let fitted = [FootSize::Airy, FootSize::List, FootSize::Rows].into_iter().find_map(|size| {
        let foot = foot(card, app, inner, theme, has_focus, size);
        let rest = match size {
            FootSize::Airy => body.len() + about.len() + 2,
            // One more for the row that says how many are hidden.
            FootSize::List => body.len().min(ENOUGH + 1) + about.len(),
            FootSize::Rows => needs,
        };
        (foot.lines.len() + rest <= room).then_some((foot, size == FootSize::Airy))
    });
    let (mut foot, is_airy) =
        fitted.unwrap_or_else(|| (short_foot(card, app, inner, theme, has_focus), false));
    let for_foot = room.saturating_sub(needs).min(foot.lines.len());
    foot.lines.truncate(for_foot);
    foot.caret = foot.caret.filter(|at| usize::from(at.y) < for_foot);
    room -= for_foot;
    let for_about = about.len().min(room.saturating_sub(body.len().min(ENOUGH)));
    about.truncate(for_about);
    room -= about.len();
    Parts { title, body, about, foot, room: room - 2 * usize::from(is_airy), is_airy }
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
    let Parts { body, room, .. } = parts(card, app, inner, most, theme, &[]);
    let total = body.len();
    let shown = if total <= room { total } else { room.saturating_sub(1).max(1).min(room) };
    let from = first_row(card, app, inner, theme).min(total - shown);
    Some((from, from + shown, total))
}

fn title(card: &Card, app: &App, inner: u16, theme: &Theme) -> Line<'static> {
    let (text, role) = match card.danger() {
        Some(danger) => (danger, Role::Error),
        None => (words::question(card, app), Role::Text),
    };
    let mut left = of_conversation(card, inner, theme);
    left.push(Span::styled(text, theme.style(role).add_modifier(Modifier::BOLD)));
    left.extend(call::counts(card, theme));
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

/// Keeps the rows that fit, starting at `from`, and shows how many are hidden; `whole` is the key that shows all.
fn scroll(rows: &mut Vec<Line<'static>>, from: usize, room: usize, whole: &str, inner: u16, theme: &Theme) {
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
    let text = if whole.is_empty() { text } else { format!("{text} · {whole}: whole screen") };
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
        CardStage::Hunks(hunks) => return edit::hunks(hunks, app, inner, theme, code).0,
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
        CardKind::Trust if card.is_of_tools() => lines.extend(changed_tools(app, inner, theme)),
        CardKind::Trust => lines.extend(trust(app, inner, theme)),
        CardKind::Permission | CardKind::Unknown => {
            lines.extend(stale::moved(card, inner, theme));
            lines.extend(call(card, app, inner, theme, code));
            lines.extend(stale::deltas(card, inner, theme));
            let message = card.ticket.suspension.message.trim();
            if card.kind == CardKind::Unknown {
                if !message.is_empty() {
                    lines.extend(Wrap::words(inner).text(&visible(message), theme.style(Role::Dim)));
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

/// Renders what servers say about tools that are not those that the user trusted.
fn changed_tools(app: &App, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let text = "They are not those that you trusted, and are not used before you answer.";
    let mut lines = Wrap::words(inner).text(text, theme.style(Role::Text));
    for row in &app.changed_tools {
        lines.push(Line::default());
        let name = visible_line(&row.server);
        lines.extend(Wrap::words(inner).text(&name, theme.style(Role::Accent)));
        for line in &row.lines {
            lines.extend(Wrap::words(inner).indent(2, 4).text(&visible_line(line), theme.style(Role::Text)));
        }
    }
    lines
}

/// Renders the files of the folder that would grant or run something.
fn trust(app: &App, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let place = short_path(&app.info.cwd, app.info.home.as_deref());
    let text = if words::offered(app).is_empty() {
        format!(
            "These files of {place} would grant or run something. Until you trust them, they are not used."
        )
    } else {
        format!("The project {place} names it. Nothing of it runs before you answer.")
    };
    let mut lines = Wrap::words(inner).text(&visible(&text), theme.style(Role::Text));
    for row in &app.untrusted {
        let path = row.path.strip_prefix(&app.info.project).unwrap_or(&row.path);
        let path = short_path(path, app.info.home.as_deref());
        if row.servers.is_empty() {
            lines.extend(Wrap::words(inner).text(&visible_line(&path), theme.style(Role::Accent)));
            let indent = vec![Span::raw("  ")];
            let wrap = Wrap::words(inner).prefix(indent.clone(), indent);
            for text in visible(&row.does).lines() {
                lines.extend(wrap.line(&Line::styled(text.to_owned(), theme.style(Role::Text))));
            }
        }
        for server in &row.servers {
            lines.push(Line::default());
            lines.extend(server_lines(server, &path, inner, theme));
        }
    }
    lines
}

/// A server that a project names: all of its command, and what else the answer covers.
fn server_lines(server: &ProjectServer, path: &str, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let name = Line::from(vec![
        Span::styled(visible_line(&server.name).into_owned(), theme.style(Role::Accent)),
        Span::styled(format!(" · {}", visible_line(path)), theme.style(Role::Dim)),
    ]);
    let mut lines = Wrap::words(inner).line(&name);
    lines.extend(if server.is_program {
        call::server_command(&server.runs, inner, theme)
    } else {
        call::server_url(&server.runs, inner, theme)
    });
    for fact in &server.facts {
        lines.extend(Wrap::words(inner).indent(2, 4).text(&visible_line(fact), theme.style(Role::Dim)));
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
    // Descriptions stand below each other, unless a long label moves them too far.
    let labels = ask.choices().iter().map(|choice| width(&visible_line(&choice.label)));
    let widest = labels.filter(|wide| *wide <= 24).max().unwrap_or(0);
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
        let label = visible_line(&choice.label).into_owned();
        let gap = " ".repeat(2 + widest.saturating_sub(width(&label)));
        let mut spans = vec![Span::styled(label, style)];
        if let Some(description) = &choice.description {
            spans.push(Span::styled(format!("{gap}{}", visible_line(description)), theme.style(Role::Dim)));
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
            edit::hunks(hunks, app, inner, theme, &[]).1 + card.scroll
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

/// Renders what a plain approval lets the call reach and, where the user asked for it, why the card asks.
fn about(card: &Card, app: &App, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    if app.cards.batch.is_some() {
        return Vec::new();
    }
    let mut lines = edit::comment(card, inner, theme);
    lines.extend(stale::time_left(card, app, inner, theme));
    if matches!(card.kind, CardKind::Ask | CardKind::Form) || card.is_own() || card.form().is_some() {
        return lines;
    }
    let mut add_line = |text: &str| {
        let line = Line::from(marked(&visible_line(text), Role::Dim, theme));
        lines.extend(Wrap::words(inner).indent(2, 2).line(&line));
    };
    if let Some(text) = card.ticket.suspension.reach() {
        add_line(text);
    }
    // The rule and its reason were about the proposed version.
    let proposed = card.proposed();
    if let Some(grant) = proposed.and_then(|proposed| proposed.missed_grant.as_ref()) {
        let when = grant.at.map(|at| format!(" {}", app.clock.ago(app.now, at))).unwrap_or_default();
        add_line(&format!("your grant `{}` for {} {}{when}", grant.pattern, grant.scope, grant.why));
    }
    let place = card.question.cwd.as_deref().map_or(app.info.cwd.as_path(), std::path::Path::new);
    if card.is_explained || place != app.info.cwd {
        add_line(&format!("in {}", short_path(place, app.info.home.as_deref())));
    }
    // The arguments of other calls say less than the reason to ask.
    let is_clear = card.command().is_some() || !card.previews().is_empty();
    let why = card.question.why.as_ref().map(|why| match why.split_once("; add `") {
        // On a card, the second answer adds the rule.
        Some((what, _)) if !card.question.proposals().is_empty() => {
            format!("{}. [2] adds one.", capital(what))
        }
        Some(_) | None => why.clone(),
    });
    if card.edit.is_none()
        && !is_clear
        && let Some(why) = &why
    {
        add_line(why);
    }
    if card.is_explained && card.edit.is_none() {
        if let Some(rule) = proposed.and_then(|proposed| proposed.rule.as_deref()) {
            add_line(&format!("rule: {rule}"));
        }
        if let Some(why) = why.as_ref().filter(|_| is_clear) {
            add_line(why);
        }
        let does = proposed.and_then(|proposed| proposed.does.as_deref());
        let risk = proposed.and_then(|proposed| proposed.risk).map(|risk| format!("risk: {risk}"));
        let known: Vec<String> = risk.into_iter().chain(does.map(str::to_owned)).collect();
        if !known.is_empty() {
            add_line(&known.join(" · "));
        }
        if let Some(text) = card.description() {
            add_line(&format!("the agent says: {text}"));
        }
    }
    lines.extend(edit::review(card, inner, theme));
    lines
}
