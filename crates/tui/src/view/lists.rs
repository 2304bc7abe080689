//! Renders lists: completions below the composer, and pickers in place of it.

use std::ops::Range;

use crossterm::event::KeyCode;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::super::palette::{CompletionKind, Palette};
use super::super::picker::{PickRow, Picker, PickerKind};
use super::super::theme::{Role, Theme};
use super::super::wrap::{Wrap, truncate, truncate_middle, width};
use super::target::{self, Hint};
use super::text::marked;
use super::{ClickTarget, Press, Rendered, spread};
use aye_core::contract::display::visible_line;

/// A list is no wider: what a row means stands next to its name.
const LIST_WIDTH: u16 = 100;
/// The widest column of keys; longer ones move what they do to the right.
const KEYS_WIDTH: usize = 26;

/// The first row that is shown so that the chosen one is in sight.
fn window(selected: usize, rows: usize, shown: usize) -> usize {
    selected.saturating_sub(shown / 2).min(rows.saturating_sub(shown))
}

/// Renders the completions in at most `most` rows.
pub(super) fn palette(palette: &Palette, columns: u16, most: usize, theme: &Theme) -> Rendered {
    let mut picture = Rendered::default();
    let lines = &mut picture.lines;
    if !palette.help.is_empty() {
        let help = format!("    {}", visible_line(&palette.help));
        lines.push(Line::styled(truncate(&help, columns), theme.style(Role::Dim)));
    }
    let room = most.saturating_sub(lines.len());
    let is_cut = palette.rows.len() > room;
    let most = if is_cut { room.saturating_sub(1) } else { room };
    let first = window(palette.selected, palette.rows.len(), most);
    let shown = &palette.rows[first..(first + most).min(palette.rows.len())];
    let mark = match palette.offer {
        CompletionKind::Commands => "/",
        CompletionKind::Skills => "$",
        CompletionKind::Words | CompletionKind::Files => "",
    };
    let widest = shown.iter().map(|row| width(&row.label)).max().unwrap_or(0).min(usize::from(columns) / 2);
    let row = |(i, row): (usize, &super::super::palette::CompletionItem)| {
        let is_chosen =
            first + i == palette.selected && (palette.is_chosen || palette.offer != CompletionKind::Words);
        let role = if is_chosen { Role::Accent } else { Role::Text };
        let room = columns.saturating_sub(5);
        let label = visible_line(&row.label);
        let label = match palette.offer {
            CompletionKind::Files => truncate_middle(&label, room),
            CompletionKind::Commands | CompletionKind::Skills | CompletionKind::Words => {
                truncate(&label, room)
            }
        };
        let gap = " ".repeat((widest + 2).saturating_sub(width(&label)));
        let spans = vec![
            Span::styled(if is_chosen { "  ▸ " } else { "    " }, theme.style(Role::Accent)),
            Span::styled(format!("{mark}{label}"), theme.style(role)),
            Span::raw(gap),
            Span::styled(visible_line(&row.detail).into_owned(), theme.style(Role::Dim)),
        ];
        Line::from(super::fit(spans, usize::from(columns)))
    };
    let above = lines.len();
    lines.extend(shown.iter().enumerate().map(row));
    if is_cut && room > 0 {
        let what = if palette.offer == CompletionKind::Commands { " commands" } else { "" };
        let place = if shown.is_empty() {
            format!("    {}{what}", palette.rows.len())
        } else {
            format!("    {}–{} of {}{what}", first + 1, first + shown.len(), palette.rows.len())
        };
        lines.push(Line::styled(truncate(&place, columns), theme.style(Role::Dim)));
    }
    picture.targets = rows_of(above, first..first + shown.len(), columns);
    picture
}

/// Returns the click targets of a list's rows, which start below `above` other rows.
fn rows_of(above: usize, rows: Range<usize>, columns: u16) -> Vec<ClickTarget> {
    let row =
        |(at, row)| ClickTarget { row: (above + at) as u16, columns: 0..columns, press: Press::Row(row) };
    rows.enumerate().map(row).collect()
}

/// Renders a list in place of the composer, in at most `most` rows, with the details `more` of the selected
/// row below it.
pub(super) fn picker(picker: &Picker, more: &[String], columns: u16, most: usize, theme: &Theme) -> Rendered {
    let columns = columns.min(LIST_WIDTH);
    let read = if more.is_empty() { cut_row(picker, columns) } else { Vec::new() };
    let more = if more.is_empty() { &read[..] } else { more };
    let title = picker.kind.title();
    let mut head = vec![Span::styled(format!("  {title}"), theme.style(Role::CardTitle))];
    if !picker.filter().is_empty() {
        let typed = match picker.kind {
            // Nobody else should read the key; the end of a long one would not fit anyway.
            PickerKind::Key => "•".repeat(picker.filter().chars().count().min(usize::from(columns / 2))),
            _ => visible_line(picker.filter()).into_owned(),
        };
        head.push(Span::raw(format!("  {typed}")));
    }
    let place = if picker.count() == 0 { 0 } else { picker.selected() + 1 };
    let count = vec![Span::styled(format!("{place}/{} ", picker.count()), theme.style(Role::Dim))];
    let (has_gap, has_keys) = (most >= 8, most >= 4);
    let mut lines = Vec::new();
    if has_gap {
        lines.push(Line::default());
    }
    lines.push(spread(head, count, columns));
    // The list comes first: three of its rows, then the details of the selected one.
    let around = 1 + usize::from(has_gap) + usize::from(has_keys);
    let for_more = more.len().min(most.saturating_sub(around + 3));
    let room = most.saturating_sub(around + for_more).max(1);
    if picker.is_loading() {
        lines.push(Line::styled("    …", theme.style(Role::Dim)));
    } else if picker.count() == 0 {
        let why = match picker.kind {
            _ if !picker.filter().is_empty() => "    no match",
            PickerKind::Inbox => "    no pending questions",
            PickerKind::Grants => "    no grants; the second answer of a card adds one",
            PickerKind::Threads
            | PickerKind::Models
            | PickerKind::Skills
            | PickerKind::Rules
            | PickerKind::Modes
            | PickerKind::Efforts
            | PickerKind::Logins
            | PickerKind::Key
            | PickerKind::Themes
            | PickerKind::History
            | PickerKind::Grant
            | PickerKind::Back
            | PickerKind::Fork
            | PickerKind::RewindTarget
            | PickerKind::Thread
            | PickerKind::NameThread
            | PickerKind::DeleteThread
            | PickerKind::Compare
            | PickerKind::Help => "    empty",
        };
        lines.push(Line::styled(why, theme.style(Role::Dim)));
    }
    let first = window(picker.selected(), picker.count(), room);
    let widest = widest(picker, columns);
    let above = lines.len();
    let words = picker.words();
    let has_paths = picker.kind == PickerKind::Threads;
    for (place, row) in picker.window(first, room) {
        let is_chosen = place == picker.selected();
        // Keys are never cut.
        let cut = if picker.kind == PickerKind::Help { usize::from(columns) / 2 } else { widest };
        let row = RowLayout { row, is_chosen, widest, cut, words: &words, has_paths, columns };
        lines.push(row_line(&row, theme));
    }
    let shown = if picker.is_loading() || picker.count() == 0 { 0 } else { lines.len() - above };
    let mut targets = rows_of(above, first..first + shown, columns);
    for text in &more[..for_more] {
        let spans = marked(&format!("    {}", visible_line(text)), Role::Status, theme);
        lines.push(Line::from(super::fit(spans, usize::from(columns))));
    }
    if has_keys {
        let verb = picker.kind.verb().map(|verb| format!("Enter {verb}"));
        let jump = match picker.kind {
            PickerKind::Inbox => Some("→ open"),
            PickerKind::Threads => Some("→ more"),
            _ => None,
        };
        let typing = match picker.kind {
            PickerKind::NameThread => "type its name",
            PickerKind::Key => "paste the key; it is not shown",
            PickerKind::Threads => "type to search",
            _ => "type to filter",
        };
        let hints: Vec<Hint> = [
            verb.map(|verb| Hint::plain(verb, &[KeyCode::Enter])),
            jump.map(|jump| Hint::plain(jump, &[KeyCode::Right])),
            Some(Hint::plain(typing, &[])),
            Some(Hint::plain("Esc close", &[KeyCode::Esc])),
        ]
        .into_iter()
        .flatten()
        .collect();
        let keys: Vec<&str> = hints.iter().map(|hint| hint.text.as_str()).collect();
        let keys = truncate(&format!("    {}", keys.join(" · ")), columns);
        let line = Line::styled(keys, theme.style(Role::Dim));
        let found = target::of_hints(std::slice::from_ref(&line), &hints);
        targets.extend(found.into_iter().map(|one| ClickTarget { row: lines.len() as u16, ..one }));
        lines.push(line);
    }
    lines.truncate(most.max(1));
    targets.retain(|target| usize::from(target.row) < lines.len());
    Rendered { lines, targets, ..Rendered::default() }
}

/// Columns of what rows are called.
fn widest(picker: &Picker, columns: u16) -> usize {
    let share = match picker.kind {
        // These rows have no text next to the message.
        PickerKind::Back | PickerKind::Fork => 3,
        PickerKind::History => 5,
        // What a rule does is worth more than the rest of its pattern, which is shown below.
        PickerKind::Rules if columns < 80 => 1,
        _ => 2,
    };
    let widest = picker.widest().min(usize::from(columns) * share / 5);
    if picker.kind == PickerKind::Help {
        widest.min(KEYS_WIDTH.min(usize::from(columns) / 4))
    } else {
        widest
    }
}

/// Returns the full text of the selected row if it was truncated and the list is there to be read.
fn cut_row(picker: &Picker, columns: u16) -> Vec<String> {
    let is_read =
        matches!(picker.kind, PickerKind::Help | PickerKind::Rules | PickerKind::Skills | PickerKind::Grants);
    let Some(row) = picker.chosen().filter(|_| is_read) else { return Vec::new() };
    let widest = widest(picker, columns).max(8);
    let note = if row.note.is_empty() { 0 } else { width(&row.note) + 2 };
    let label = visible_line(&row.label);
    let is_cut = width(&label) > widest && !row.is_heading;
    if row.is_heading && width(&label) + 4 <= usize::from(columns)
        || !is_cut && 6 + widest + width(&row.detail) + note <= usize::from(columns)
    {
        return Vec::new();
    }
    let parts = [row.label.as_str(), &row.detail, &row.note];
    let parts = if is_cut || row.is_heading { &parts[..] } else { &parts[1..] };
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    let text = visible_line(&parts.join(" · ")).into_owned();
    let lines = Wrap::words(columns.saturating_sub(4).max(1)).text(&text, Style::default());
    lines.iter().take(4).map(ToString::to_string).collect()
}

/// A row of a list, and what it needs to be laid out.
struct RowLayout<'a> {
    row: &'a PickRow,
    is_chosen: bool,
    /// Columns of the labels.
    widest: usize,
    /// Columns that a label may have.
    cut: usize,
    /// The words of the filter.
    words: &'a [String],
    /// Whether details are paths.
    has_paths: bool,
    columns: u16,
}

fn row_line(layout: &RowLayout<'_>, theme: &Theme) -> Line<'static> {
    let RowLayout { row, is_chosen, widest, cut, words, columns, .. } = *layout;
    if row.is_heading {
        let mark = if is_chosen { "  ▸ " } else { "  " };
        return Line::from(vec![
            Span::styled(mark, theme.style(Role::Accent)),
            Span::styled(truncate(&row.label, columns.saturating_sub(4)), theme.style(Role::Heading)),
        ]);
    }
    let role = match (&row.unusable, is_chosen) {
        (Some(_), _) => Role::Dim,
        (None, true) => Role::Accent,
        (None, false) => Role::Text,
    };
    let label = truncate(&visible_line(&row.label), cut.max(8) as u16);
    let gap = " ".repeat((widest + 2).saturating_sub(width(&label)).max(2));
    let detail = visible_line(row.unusable.as_ref().map_or(row.detail.as_str(), String::as_str));
    let note = truncate(&visible_line(&row.note), columns / 2);
    let detail = if layout.has_paths {
        let used = 4 + width(&label) + width(&gap) + width(&note) + 2;
        truncate_middle(&detail, columns.saturating_sub(used as u16))
    } else {
        detail.into_owned()
    };
    let mut left = vec![Span::styled(if is_chosen { "  ▸ " } else { "    " }, theme.style(Role::Accent))];
    left.extend(matched(&label, words, theme.style(role)));
    left.push(Span::raw(gap));
    if row.unusable.is_some() && words.is_empty() {
        // It names commands.
        left.extend(marked(&detail, Role::Dim, theme));
    } else {
        left.extend(matched(&detail, words, theme.style(Role::Dim)));
    }
    let right = if note.is_empty() {
        Vec::new()
    } else {
        vec![Span::styled(format!("{note} "), theme.style(Role::Dim))]
    };
    spread(left, right, columns)
}

/// The text with the places bold at which these words are.
fn matched(text: &str, words: &[String], style: Style) -> Vec<Span<'static>> {
    // Lower case moves nothing in ASCII; elsewhere no place is marked.
    let folded = text.to_lowercase();
    if words.is_empty() || folded.len() != text.len() {
        return vec![Span::styled(text.to_owned(), style)];
    }
    let mut is_bold = vec![false; text.len()];
    for word in words {
        for (at, found) in folded.match_indices(word.as_str()) {
            is_bold[at..at + found.len()].fill(true);
        }
    }
    let mut spans: Vec<(String, bool)> = Vec::new();
    for (at, c) in text.char_indices() {
        match spans.last_mut() {
            Some((part, bold)) if *bold == is_bold[at] => part.push(c),
            _ => spans.push((c.to_string(), is_bold[at])),
        }
    }
    let span =
        |(part, bold)| Span::styled(part, if bold { style.add_modifier(Modifier::BOLD) } else { style });
    spans.into_iter().map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_is_bold_where_it_matches() {
        let parts = |text: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let spans = matched(text, &words, Style::default());
            let bold = |span: &Span<'_>| span.style.add_modifier.contains(Modifier::BOLD);
            spans.iter().map(|span| (span.content.to_string(), bold(span))).collect::<Vec<_>>()
        };
        let part = |text: &str, bold| (text.to_owned(), bold);
        assert_eq!(
            parts("Claude Opus", &["op", "cl"]),
            [part("Cl", true), part("aude ", false), part("Op", true), part("us", false)]
        );
        assert_eq!(
            parts("İstanbul", &["i"]),
            [part("İstanbul", false)],
            "a letter whose lower case is longer"
        );
        assert_eq!(parts("any", &[]), [part("any", false)]);
    }
}
