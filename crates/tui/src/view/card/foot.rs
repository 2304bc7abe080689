//! The keys of a card, and the line that is typed on it.

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::layout::Position;
use ratatui::text::{Line, Span};

use super::super::super::app::App;
use super::super::super::approval::grant::Writing;
use super::super::super::approval::{Batch, Card, CardKind, CardStage};
use super::super::super::composer::Composer;
use super::super::super::keymap::{Action, KeyContext};
use super::super::super::theme::{Role, Theme};
use super::super::super::wrap::{Wrap, truncate, width};
use super::super::Rendered;
use super::super::target::{self, Hint};
use aye_core::contract::display::visible_line;

/// A key as it is written on a card, what it does, and what a click on it presses.
struct KeyHint {
    key: String,
    what: String,
    keys: Vec<KeyEvent>,
    /// The digit that does the same. The key is empty where only the digit does it.
    number: Option<usize>,
}

impl KeyHint {
    /// Creates a hint that only informs and cannot be clicked.
    fn told(key: impl Into<String>, what: &str) -> KeyHint {
        KeyHint { key: key.into(), what: what.to_owned(), keys: Vec::new(), number: None }
    }

    fn bound(chord: &str, key: Option<KeyEvent>, what: &str) -> KeyHint {
        let keys = key.into_iter().collect();
        KeyHint { key: format!("[{chord}]"), what: what.to_owned(), keys, number: None }
    }

    fn arrows(shown: &str, codes: [KeyCode; 2], what: &str) -> KeyHint {
        let keys = codes.into_iter().map(KeyEvent::from).collect();
        KeyHint { key: format!("[{shown}]"), what: what.to_owned(), keys, number: None }
    }

    fn up_down(what: &str) -> KeyHint {
        KeyHint::arrows("↑↓", [KeyCode::Up, KeyCode::Down], what)
    }
}

/// The amount of room the keys get.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum FootSize {
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
        picture.lines.extend(Wrap::words(inner).text(&visible_line(problem), theme.style(Role::Error)));
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
    let mut keys = keys(card, app, has_focus);
    if size == FootSize::List && has_focus {
        for entry in keys.extract_if(.., |entry| entry.number.is_some()) {
            picture.stack(row(entry, card, inner, theme));
        }
    }
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut hints = Vec::new();
    for KeyHint { key, what, keys, number } in keys {
        hints.push(Hint { text: format!("{key} {what}").trim().to_owned(), keys });
        if !spans.is_empty() {
            spans.push(Span::raw("  "));
        }
        let is_here = number.is_some() && number == card.choice.map(|at| at + 1);
        let (style, words) = match (has_focus, is_here) {
            (false, _) => (Role::Dim, Role::Dim),
            (true, false) => (Role::Key, Role::Dim),
            (true, true) => (Role::Accent, Role::Accent),
        };
        if let Some(number) = number.filter(|_| has_focus) {
            let mark = if is_here { "▸" } else { "" };
            spans.push(Span::styled(format!("{mark}{number}\u{a0}"), theme.style(style)));
        }
        // A no-break space keeps a key and its meaning together.
        let gap = if key.is_empty() { "" } else { "\u{a0}" };
        spans.push(Span::styled(key, theme.style(style)));
        spans.push(Span::styled(format!("{gap}{}", what.replace(' ', "\u{a0}")), theme.style(words)));
    }
    let lines = Wrap::words(inner).line(&Line::from(spans));
    let mut below: Rendered = lines.into_iter().map(breakable).collect::<Vec<_>>().into();
    below.targets = target::of_hints(&below.lines, &hints);
    picture.stack(below);
    picture
}

/// One answer in a row of its own.
fn row(entry: KeyHint, card: &Card, inner: u16, theme: &Theme) -> Rendered {
    let KeyHint { key, what, keys, number } = entry;
    let number = number.unwrap_or_default();
    let is_here = card.choice.is_some_and(|at| at + 1 == number);
    let (lead, style) = if is_here { ("▸", Role::Accent) } else { (" ", Role::Text) };
    let text = format!("{key} {what}").trim_start().to_owned();
    let key_style = theme.style(if is_here { Role::Accent } else { Role::Key });
    let rest = text[key.len()..].to_owned();
    let spans = vec![
        Span::styled(format!("{lead} {number}. "), theme.style(style)),
        Span::styled(key, key_style),
        Span::styled(rest, theme.style(style)),
    ];
    let hint = Hint { text, keys };
    let mut picture: Rendered = vec![Line::from(super::super::fit(spans, usize::from(inner)))].into();
    picture.targets = target::of_hints(&picture.lines, &[hint]);
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
    let here = card.choice.map(|at| at + 1);
    let hint = |entry: KeyHint| {
        let mark = if entry.number.is_some() && entry.number == here { "▸" } else { "" };
        let key =
            if entry.key.is_empty() { format!("[{}]", entry.number.unwrap_or_default()) } else { entry.key };
        Hint { text: format!("{mark}{key}"), keys: entry.keys }
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
            Action::Allow if card.kind == CardKind::Plan => "go ahead",
            Action::Grant if card.kind == CardKind::Plan => "go ahead and accept edits",
            Action::Deny if card.kind == CardKind::Plan => "keep planning",
            Action::Allow if card.kind == CardKind::Trust => "trust this folder",
            Action::Deny if card.kind == CardKind::Trust => "not now",
            Action::Allow if card.edit.is_some() => "allow as edited",
            Action::Allow => "allow once",
            Action::Grant => "always allow…",
            Action::Deny => "deny",
            Action::Unedit => "discard edits",
            Action::RunAgain => "run again",
            Action::MarkDone => "mark as done",
            _ => "skip",
        };
        let chord = app.keymap.chord_of(KeyContext::Card, *action);
        let number = at + 1;
        if card.is_own() {
            let digit = KeyCode::Char(char::from(b'0' + number.min(9) as u8));
            let keys = vec![KeyEvent::from(digit)];
            return KeyHint { key: String::new(), what: what.to_owned(), keys, number: Some(number) };
        }
        let entry = KeyHint::bound(&chord, app.keymap.key_of(KeyContext::Card, *action), what);
        KeyHint { number: Some(number), ..entry }
    };
    card.choices().iter().enumerate().map(entry).collect()
}

/// The words of an answer that has a number.
pub(in crate::view) fn answer_at(card: &Card, app: &App, at: usize) -> Option<String> {
    answers(card, app).into_iter().nth(at).map(|entry| entry.what)
}

/// The key that lets a sandboxed command out.
fn outside(key: &dyn Fn(Action, &str) -> KeyHint, card: &Card) -> Option<KeyHint> {
    card.is_sandboxed().then(|| key(Action::AllowOutside, "allow outside the sandbox"))
}

fn keys(card: &Card, app: &App, has_focus: bool) -> Vec<KeyHint> {
    let of = |place: KeyContext, action: Action, what: &str| {
        KeyHint::bound(&app.keymap.chord_of(place, action), app.keymap.key_of(place, action), what)
    };
    let key = |action: Action, what: &str| of(KeyContext::Card, action, what);
    let esc = |what: &str| of(KeyContext::Composer, Action::Interrupt, what);
    let enter = |what: &str| key(Action::Accept, what);
    if let Some((which, ids)) = &app.cards.batch {
        let yes = match which {
            Batch::AllowReads => key(Action::AllowReads, &format!("allow these {}", ids.len())),
            Batch::DenyRest => key(Action::DenyRest, &format!("deny these {}", ids.len())),
        };
        return vec![yes, KeyHint::told("[any other key]", "back")];
    }
    let stop = |what: &str| key(Action::Stop, if card.elsewhere.is_some() { "dismiss" } else { what });
    let mut keys = match &card.stage {
        CardStage::Stopping => return vec![KeyHint::told("stopping…", "")],
        CardStage::Deciding(word) => return vec![KeyHint::told(format!("{word}…"), "")],
        CardStage::Reason(_) => vec![enter("deny, with or without a reason"), esc("back")],
        CardStage::Modify(_) => vec![enter("request changes; the call does not run"), esc("back")],
        CardStage::Comment(_) => vec![enter("add the comment"), esc("back")],
        CardStage::Edit(_) => {
            vec![enter("review"), of(KeyContext::Composer, Action::Newline, "new line"), esc("back")]
        }
        CardStage::Hunks(_) => vec![
            key(Action::Toggle, "keep or drop"),
            KeyHint::up_down("which"),
            enter("use the kept hunks"),
            esc("back"),
        ],
        CardStage::Away => return vec![KeyHint::told("in your editor…", "")],
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
                keys.extend([key(Action::EditCall, "edit"), key(Action::Comment, "comment")]);
                keys
            }
            CardKind::Permission => {
                let mut keys = answers(card, app);
                keys.extend(outside(&key, card));
                keys.extend([stop("deny and stop"), key(Action::EditCall, "edit")]);
                if !card.previews().is_empty() {
                    keys.push(key(Action::Hunks, "choose hunks"));
                }
                keys.push(key(Action::Modify, "request changes"));
                keys.push(key(Action::Comment, "comment"));
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
            let which = if reads > 0 { format!("deny the other {rest}") } else { format!("deny all {rest}") };
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
