//! The keys of a card, and the line that is typed on it.

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::layout::Position;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::super::super::app::{App, Focus};
use super::super::super::approval::grant::Writing;
use super::super::super::approval::{Batch, Card, CardKind, CardStage};
use super::super::super::composer::Composer;
use super::super::super::keymap::{Action, KeyContext};
use super::super::super::theme::{Role, Theme};
use super::super::super::wrap::{Wrap, truncate, width};
use super::super::target::{self, Hint};
use super::super::text::marked;
use super::super::{ClickTarget, Press, Rendered};
use aye_core::contract::display::visible_line;

/// A key as it is written on a card, what it does, and what a click on it presses.
struct KeyHint {
    key: String,
    what: String,
    keys: Vec<KeyEvent>,
    /// The digit that does the same. The key is empty where only the digit does it.
    number: Option<usize>,
    /// More about it, where it has a row of its own.
    detail: String,
}

impl KeyHint {
    /// Creates a hint that only informs and cannot be clicked.
    fn unbound(key: impl Into<String>, what: &str) -> KeyHint {
        KeyHint {
            key: key.into(),
            what: what.to_owned(),
            keys: Vec::new(),
            number: None,
            detail: String::new(),
        }
    }

    fn bound(chord: &str, key: Option<KeyEvent>, what: &str) -> KeyHint {
        let keys = key.into_iter().collect();
        KeyHint { key: chord.to_owned(), what: what.to_owned(), keys, number: None, detail: String::new() }
    }

    fn arrows(shown: &str, codes: [KeyCode; 2], what: &str) -> KeyHint {
        let keys = codes.into_iter().map(KeyEvent::from).collect();
        KeyHint { key: shown.to_owned(), what: what.to_owned(), keys, number: None, detail: String::new() }
    }

    fn up_down(what: &str) -> KeyHint {
        KeyHint::arrows("↑↓", [KeyCode::Up, KeyCode::Down], what)
    }
}

/// The amount of room the keys get.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum FootSize {
    /// Each answer in a row of its own, and a blank row after them.
    Airy,
    /// Each answer in a row of its own.
    List,
    /// One after another.
    Rows,
}

/// The keys, or the line that is being written.
pub(super) fn foot(
    card: &Card,
    app: &App,
    inner: u16,
    theme: &Theme,
    has_focus: bool,
    size: FootSize,
) -> Rendered {
    let mut picture = Rendered::default();
    if let Some(problem) = &card.problem {
        let problem = Line::from(marked(&visible_line(problem), Role::Error, theme));
        picture.lines.extend(Wrap::words(inner).line(&problem));
    }
    if let Some(line) = card.line() {
        let (label, is_secret) = card.surface.asks();
        let asks = match (&card.stage, card.form().and_then(|form| form.writing.as_ref())) {
            (CardStage::Reason(_), _) => "reason: ",
            (CardStage::Modify(_), _) => "change: ",
            (CardStage::Comment(_), _) => "comment: ",
            (_, Some(Writing::Pattern(_))) => "pattern: ",
            (_, Some(Writing::End(_))) => "expiry (a date, 2h, 7d, or a number of calls): ",
            _ if card.kind == CardKind::Form => &visible_line(&label),
            _ => "answer: ",
        };
        picture.stack(written(line, asks, is_secret, inner, theme));
    }
    let here = selected(card, app).map(|at| at + 1);
    let mut keys = keys(card, app, has_focus);
    let answers: Vec<KeyHint> = keys.extract_if(.., |entry| entry.number.is_some()).collect();
    let is_listed = size != FootSize::Rows && !answers.is_empty();
    if is_listed {
        let wide = |entry: &KeyHint| 8 + width(&entry.what) + width(&entry.detail) + width(&entry.key);
        let widest = answers.iter().map(wide).max().unwrap_or(0) as u16;
        let columns = inner.min(widest.clamp(ANSWERS, MAX_ANSWERS));
        for entry in answers {
            picture.stack(row(entry, card, here, has_focus, (inner, columns), theme));
        }
        if size == FootSize::Airy && !keys.is_empty() {
            picture.lines.push(Line::default());
        }
    } else if !answers.is_empty() {
        picture.stack(one_row(answers, card, here, has_focus, inner, theme));
    }
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut hints = Vec::new();
    for KeyHint { key, what, keys, .. } in keys {
        hints.push(Hint { text: format!("{key} {what}").trim().to_owned(), keys });
        if !spans.is_empty() {
            spans.push(Span::raw("   "));
        }
        let style = if has_focus { Role::Key } else { Role::Dim };
        // A no-break space keeps a key and its meaning together.
        let gap = if key.is_empty() { "" } else { "\u{a0}" };
        spans.push(Span::styled(key.replace(' ', "\u{a0}"), theme.style(style)));
        spans.push(Span::styled(format!("{gap}{}", what.replace(' ', "\u{a0}")), theme.style(Role::Dim)));
    }
    if spans.is_empty() {
        return picture;
    }
    let lines = Wrap::words(inner).line(&Line::from(spans));
    let mut below: Rendered = lines.into_iter().map(breakable).collect::<Vec<_>>().into();
    below.targets = target::of_hints(&below.lines, &hints);
    picture.stack(below);
    picture
}

/// The answer that Enter takes: shown as soon as it does.
fn selected(card: &Card, app: &App) -> Option<usize> {
    let is_armed = card.was_seen(app.now)
        && app.focus == Focus::Card
        && app.cards.batch.is_none()
        && !app.display.is_linear;
    card.choice.or_else(|| card.selected().filter(|_| is_armed))
}

/// The columns of the answers, with their keys at the end: of short ones, and at most.
const ANSWERS: u16 = 66;
const MAX_ANSWERS: u16 = 100;

/// The styles of an answer's words and of its key.
fn styles(
    entry: &KeyHint,
    card: &Card,
    here: Option<usize>,
    has_focus: bool,
    theme: &Theme,
) -> (Style, Style) {
    let is_possible = entry.number.and_then(|at| card.choices().get(at - 1)).is_none_or(|it| card.takes(*it));
    if !has_focus || !is_possible {
        return (theme.style(Role::Dim), theme.style(Role::Dim));
    }
    if entry.number.is_some() && entry.number == here {
        let style = theme.style(Role::Accent).add_modifier(Modifier::BOLD);
        return (style, style);
    }
    (theme.style(Role::Text), theme.style(Role::Key))
}

/// One answer in a row of its own: its number, its words, and its key at the end.
fn row(
    entry: KeyHint,
    card: &Card,
    here: Option<usize>,
    has_focus: bool,
    (inner, columns): (u16, u16),
    theme: &Theme,
) -> Rendered {
    let (style, key_style) = styles(&entry, card, here, has_focus, theme);
    let number = entry.number.unwrap_or_default();
    let lead = if Some(number) == here { "▸" } else { " " };
    let KeyHint { key, what, keys, detail, .. } = entry;
    let room = columns.saturating_sub(width(&key) as u16 + 1);
    let mut left = vec![Span::styled(format!("{lead} {number}  {what}"), style)];
    if !detail.is_empty() {
        left.extend(marked(&format!("  {detail}"), Role::Dim, theme));
    }
    let mut spans = super::super::fit(left, usize::from(room));
    let used: usize = spans.iter().map(|span| width(&span.content)).sum();
    spans.push(Span::raw(" ".repeat(usize::from(columns).saturating_sub(used + width(&key)))));
    spans.push(Span::styled(key, key_style));
    let targets =
        keys.into_iter().map(|key| ClickTarget { row: 0, columns: 0..inner, press: Press::Key(key) });
    Rendered { lines: vec![Line::from(spans)], targets: targets.collect(), caret: None }
}

/// The answers one after another.
fn one_row(
    answers: Vec<KeyHint>,
    card: &Card,
    here: Option<usize>,
    has_focus: bool,
    inner: u16,
    theme: &Theme,
) -> Rendered {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut hints = Vec::new();
    for entry in answers {
        let (style, key_style) = styles(&entry, card, here, has_focus, theme);
        let number = entry.number.unwrap_or_default();
        let lead = if Some(number) == here { "▸" } else { "" };
        if !spans.is_empty() {
            spans.push(Span::raw("   "));
        }
        let KeyHint { key, what, keys, .. } = entry;
        let gap = if key.is_empty() { "" } else { "\u{a0}" };
        hints.push(Hint { text: format!("{number} {what}"), keys });
        let words = what.replace(' ', "\u{a0}");
        spans.push(Span::styled(format!("{lead}{number}\u{a0}{words}"), style));
        spans.push(Span::styled(format!("{gap}{key}"), key_style));
    }
    let lines = Wrap::words(inner).line(&Line::from(spans));
    let mut picture: Rendered = lines.into_iter().map(breakable).collect::<Vec<_>>().into();
    picture.targets = target::of_hints(&picture.lines, &hints);
    picture
}

/// The keys alone on one row, for a small terminal; the line that is being written goes before them.
pub(super) fn short_foot(card: &Card, app: &App, inner: u16, theme: &Theme, has_focus: bool) -> Rendered {
    if let Some(line) = card.line() {
        return written(line, "› ", card.surface.asks().1, inner, theme);
    }
    if let Some(problem) = &card.problem {
        return vec![Line::styled(truncate(&visible_line(problem), inner), theme.style(Role::Error))].into();
    }
    let here = selected(card, app).map(|at| at + 1);
    let hint = |entry: KeyHint| {
        let mark = if entry.number.is_some() && entry.number == here { "▸" } else { "" };
        let key = if entry.key.is_empty() { entry.number.unwrap_or_default().to_string() } else { entry.key };
        Hint { text: format!("{mark}[{key}]"), keys: entry.keys }
    };
    let hints: Vec<Hint> = keys(card, app, has_focus).into_iter().map(hint).collect();
    let shown: Vec<&str> = hints.iter().map(|hint| hint.text.as_str()).collect();
    let style = theme.style(if has_focus { Role::Key } else { Role::Dim });
    let mut picture: Rendered = vec![Line::styled(truncate(&shown.join(" "), inner), style)].into();
    picture.targets = target::of_hints(&picture.lines, &hints);
    picture
}

/// The same line with ordinary blanks.
fn breakable(line: Line<'static>) -> Line<'static> {
    let spans =
        line.spans.into_iter().map(|span| Span::styled(span.content.replace('\u{a0}', " "), span.style));
    Line::from(spans.collect::<Vec<_>>())
}

/// The answers that have a number.
fn answers(card: &Card, app: &App) -> Vec<KeyHint> {
    let entry = |(at, action): (usize, &Action)| {
        let what = match action {
            Action::Allow if card.kind == CardKind::Plan => "Go ahead",
            Action::Grant if card.kind == CardKind::Plan => "Go ahead and accept edits",
            Action::Deny if card.kind == CardKind::Plan => "Keep planning",
            Action::Allow if card.is_of_tools() => "Use them",
            Action::Allow if card.kind == CardKind::Trust => match super::words::offered(app).len() {
                0 => "Trust this folder",
                1 => "Use it",
                _ => "Use them",
            },
            Action::Deny if card.kind == CardKind::Trust => "Not now",
            Action::Allow if card.edit.is_some() => "Allow as edited",
            Action::Allow => "Allow once",
            Action::Grant => "Always allow",
            Action::Deny => "Deny, and say why",
            Action::RunAgain => "Run again",
            Action::MarkDone => "Mark as done",
            _ => "Skip",
        };
        let number = at + 1;
        let detail = match action {
            Action::Grant if card.kind == CardKind::Permission && card.takes(Action::Grant) => {
                super::grant::offer(card.question.proposals())
            }
            _ => String::new(),
        };
        if card.kind == CardKind::Trust {
            let digit = KeyCode::Char(char::from(b'0' + number.min(9) as u8));
            let keys = vec![KeyEvent::from(digit)];
            return KeyHint { key: String::new(), what: what.to_owned(), keys, number: Some(number), detail };
        }
        let chord = app.keymap.chord_of(KeyContext::Card, *action);
        let entry = KeyHint::bound(&chord, app.keymap.key_of(KeyContext::Card, *action), what);
        KeyHint { number: Some(number), detail, ..entry }
    };
    card.choices().iter().enumerate().map(entry).collect()
}

/// The words of an answer that has a number.
pub(in crate::view) fn answer_at(card: &Card, app: &App, at: usize) -> Option<String> {
    answers(card, app).into_iter().nth(at).map(|entry| entry.what)
}

/// The key that lets a sandboxed command out.
fn outside(key: &dyn Fn(Action, &str) -> KeyHint, card: &Card) -> Option<KeyHint> {
    card.is_sandboxed().then(|| key(Action::AllowOutside, "outside the sandbox"))
}

fn keys(card: &Card, app: &App, has_focus: bool) -> Vec<KeyHint> {
    let of = |place: KeyContext, action: Action, what: &str| {
        KeyHint::bound(&app.keymap.chord_of(place, action), app.keymap.key_of(place, action), what)
    };
    let key = |action: Action, what: &str| of(KeyContext::Card, action, what);
    let esc = |what: &str| of(KeyContext::Composer, Action::Interrupt, what);
    let enter = |what: &str| key(Action::Accept, what);
    if let Some((which, ids)) = &app.cards.batch {
        let calls = if ids.len() == 1 { "it".to_owned() } else { format!("these {}", ids.len()) };
        let yes = match which {
            Batch::AllowReads => key(Action::AllowReads, &format!("allow {calls}")),
            Batch::DenyRest => key(Action::DenyRest, &format!("deny {calls}")),
        };
        return vec![yes, KeyHint::unbound("any other key", "back")];
    }
    let stop = |what: &str| key(Action::Stop, if card.elsewhere.is_some() { "dismiss" } else { what });
    let mut keys = match &card.stage {
        CardStage::Stopping => return vec![KeyHint::unbound("stopping…", "")],
        CardStage::Deciding(word) => return vec![KeyHint::unbound(format!("{word}…"), "")],
        CardStage::Reason(_) => vec![enter("deny, with or without a reason"), esc("back")],
        CardStage::Modify(_) => vec![enter("request changes; the call does not run"), esc("back")],
        CardStage::Comment(_) => vec![enter("add the comment"), esc("back")],
        CardStage::Edit(_) => {
            vec![enter("review"), of(KeyContext::Composer, Action::Newline, "new line"), esc("back")]
        }
        CardStage::Hunks(_) => vec![
            key(Action::Toggle, "keep or drop"),
            KeyHint::up_down("select"),
            enter("use the kept hunks"),
            esc("back"),
        ],
        CardStage::Away => return vec![KeyHint::unbound("in your editor…", "")],
        CardStage::Grant(form) if form.writing.is_some() => vec![enter("use"), esc("back")],
        CardStage::Grant(_) => vec![
            enter("grant and allow"),
            KeyHint::up_down("rule"),
            KeyHint::arrows("←→", [KeyCode::Left, KeyCode::Right], "scope"),
            key(Action::GrantEnd, "expiry"),
            key(Action::GrantUntil, "custom expiry"),
            key(Action::EditCall, "edit the rule"),
            esc("back"),
        ],
        CardStage::Open => match card.kind {
            CardKind::Permission if card.edit.is_some() => {
                let mut keys = answers(card, app);
                keys.extend(outside(&key, card));
                keys.extend([
                    key(Action::EditCall, "edit"),
                    key(Action::Unedit, "discard edits"),
                    key(Action::Comment, "comment"),
                ]);
                keys
            }
            CardKind::Permission => {
                let mut keys = answers(card, app);
                keys.extend(outside(&key, card));
                keys.push(key(Action::EditCall, "edit"));
                if !card.previews().is_empty() {
                    keys.push(key(Action::Hunks, "choose hunks"));
                }
                keys.push(key(Action::Modify, "request changes"));
                keys.push(key(Action::Comment, "comment"));
                keys.push(stop("stop"));
                keys.push(key(Action::Explain, "why"));
                if card.is_explained {
                    keys.push(key(Action::WholeCard, "whole screen"));
                    keys.push(key(Action::Phone, "on a phone"));
                }
                keys
            }
            CardKind::Unknown => {
                let mut keys = answers(card, app);
                keys.push(stop("stop"));
                keys
            }
            CardKind::Plan | CardKind::Trust => {
                let mut keys = answers(card, app);
                let is_plan = card.kind == CardKind::Plan;
                keys.push(key(Action::Stop, if is_plan { "keep planning" } else { "not now" }));
                keys
            }
            CardKind::Form if card.surface.line().is_some() => vec![enter("keep"), esc("back")],
            CardKind::Form => {
                vec![KeyHint::up_down("fields and buttons"), enter("edit, tick or press"), stop("stop")]
            }
            CardKind::Ask if card.ask.line().is_some() => vec![enter("answer"), esc("back")],
            CardKind::Ask => {
                let mut keys = vec![enter("answer"), KeyHint::up_down("choose")];
                if card.ask.is_multi() {
                    keys.push(key(Action::Toggle, "tick"));
                }
                keys.push(stop("stop"));
                keys
            }
        },
    };
    if !has_focus {
        // Elsewhere they are letters of the text: first the card.
        for entry in &mut keys {
            entry.keys.clear();
        }
        keys.insert(0, of(KeyContext::Composer, Action::FocusCard, "to answer:"));
    } else if app.cards.open.len() > 1 && matches!(card.stage, CardStage::Open) {
        keys.push(key(Action::NextCard, "next"));
        let (reads, rest) = (app.batch_count(Batch::AllowReads), app.batch_count(Batch::DenyRest));
        if reads > 0 {
            keys.push(key(Action::AllowReads, &format!("allow {reads} read-only")));
        }
        if rest > 0 {
            let which = match (reads, rest) {
                (0, rest) => format!("deny all {rest}"),
                (_, 1) => "deny the other".to_owned(),
                (_, rest) => format!("deny the other {rest}"),
            };
            keys.push(key(Action::DenyRest, &which));
        }
    }
    keys
}

/// One line that is being written; its end stays in sight.
fn written(line: &Composer, asks: &str, is_secret: bool, inner: u16, theme: &Theme) -> Rendered {
    let shown = |text: &str| {
        if is_secret { "•".repeat(text.chars().count()) } else { visible_line(text).into_owned() }
    };
    let text = shown(line.text());
    let room = usize::from(inner).saturating_sub(width(asks) + 1).max(1);
    let before = shown(&line.text()[..line.caret()]);
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
    Rendered {
        lines: vec![Line::from(spans)],
        caret: Some(Position::new(x as u16, 0)),
        ..Rendered::default()
    }
}
