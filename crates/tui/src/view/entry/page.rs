//! A page that a command shows: its title, and lines with headings, labels and bars.

use std::ops::Range;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::super::super::highlight::Highlighter;
use super::super::super::links::is_address;
use super::super::super::markdown;
use super::super::super::theme::{BAR_COLOURS, BAR_MARKS, Role, Theme};
use super::super::super::wrap::{Wrap, truncate, width};
use super::super::text::{INDENT, capital, indented, marked, text_width};
use aye_core::contract::display::{visible, visible_line};

/// The indent of what is wrapped: one step further than a page, which stands below its name.
const WRAPPED: u16 = 4;
/// A longer label does not move the values of the others.
const LABEL: usize = 30;
/// Columns of the smallest QR code.
const SMALLEST_CODE: usize = 21;
/// The columns that a value needs next to its label; with fewer its rest starts further left.
const VALUE: usize = 30;

/// Renders an answer of the model, which is Markdown.
pub(super) fn answer(title: &str, text: &str, columns: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mut lines = head(title, columns, theme);
    lines.push(Line::default());
    let body = markdown::render(text, text_width(columns), theme, &Highlighter::off());
    lines.extend(body.into_iter().map(|line| indented(line, INDENT)));
    lines
}

fn head(title: &str, columns: u16, theme: &Theme) -> Vec<Line<'static>> {
    let title = visible_line(title);
    let (name, about) = title.split_once(" · ").unwrap_or((&title, ""));
    let mut head = vec![Span::styled(capital(name), theme.style(Role::CardTitle))];
    if !about.is_empty() {
        head.push(Span::styled(format!("  {about}"), theme.style(Role::Dim)));
    }
    Wrap::words(columns).indent(0, INDENT).line(&Line::from(head))
}

/// Renders a page. [`TextPage`](crate::host::TextPage) says what its lines mean.
pub(super) fn page(
    title: &str,
    text: &str,
    is_literal: bool,
    columns: u16,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let mut lines = head(title, columns, theme);
    let text = visible(text.trim_end());
    let labels = text.lines().filter_map(|line| line.split_once('\t')).map(|(label, _)| width(label));
    let column = labels.filter(|wide| *wide <= LABEL).max().unwrap_or(0);
    // Each line starts in the same column as the first; only wrapped parts are indented further.
    let wrap = Wrap::words(columns).indent(INDENT, WRAPPED);
    let code = code_rows(&text).filter(|_| !is_literal).unwrap_or_default();
    let wide = text.lines().skip(code.start).take(code.len()).map(width).max().unwrap_or(0);
    for (row, line) in text.lines().enumerate() {
        if code.contains(&row) {
            lines.push(code_row(line, wide, columns, theme));
            // The blank row before it is its margin; below it is one more.
            if code.end == row + 1 {
                lines.push(code_row("", wide, columns, theme));
            }
        } else if !is_literal
            && let Some(spans) = gauge(line, usize::from(columns.saturating_sub(INDENT)), theme)
        {
            let indent = Span::raw(" ".repeat(usize::from(INDENT)));
            lines.push(Line::from(std::iter::once(indent).chain(spans).collect::<Vec<_>>()));
        } else if is_address(line) {
            let style = theme.style(Role::Text).patch(theme.links().to(line));
            lines.extend(Wrap::kept(columns).indent(INDENT, INDENT).text(line, style));
        } else if is_literal {
            lines.extend(wrap.text(line, theme.style(Role::Text)));
        } else if let Some(heading) = line.strip_prefix("── ") {
            lines.extend(wrap.text(heading, theme.style(Role::Heading)));
        } else if let Some((label, value)) = line.split_once('\t') {
            lines.extend(labelled(label, value, column, columns, theme));
        } else {
            lines.extend(wrap.line(&Line::from(marked(line, Role::Text, theme))));
        }
    }
    lines
}

/// Returns the rows of a QR code in a text, with the blank row before it.
fn code_rows(text: &str) -> Option<Range<usize>> {
    let is_row = |line: &str| !line.is_empty() && line.chars().all(|c| matches!(c, '█' | '▀' | '▄' | ' '));
    let start = text.lines().position(|line| is_row(line) && width(line.trim()) >= SMALLEST_CODE)?;
    let count = text.lines().skip(start).take_while(|line| is_row(line)).count();
    let has_margin =
        start.checked_sub(1).and_then(|above| text.lines().nth(above)).is_some_and(str::is_empty);
    Some(start - usize::from(has_margin)..start + count)
}

/// Renders a row of a QR code with its margin: dark on light whatever the theme, because many cameras read no other.
fn code_row(line: &str, wide: usize, columns: u16, theme: &Theme) -> Line<'static> {
    let has_colours = theme.style(Role::Error).fg.is_some();
    let ground = if has_colours { Style::new().fg(Color::Black).bg(Color::White) } else { Style::new() };
    let text = format!("{line:<wide$}  ");
    let room = columns.saturating_sub(INDENT);
    Line::from(vec![Span::raw(" ".repeat(usize::from(INDENT))), Span::styled(truncate(&text, room), ground)])
}

/// Renders a label, its value next to it, and the note after that.
fn labelled(label: &str, value: &str, column: usize, columns: u16, theme: &Theme) -> Vec<Line<'static>> {
    let indent = usize::from(INDENT);
    let gap = " ".repeat((column + 2).saturating_sub(width(label)).max(2));
    let role = match label.chars().next() {
        Some('✓') => Some(Role::Success),
        Some('!') => Some(Role::Warning),
        Some('✗') => Some(Role::Error),
        _ => None,
    };
    let (mark, name) = match role {
        Some(_) => label.split_at(label.chars().next().map_or(0, char::len_utf8)),
        None => ("", label),
    };
    let first = vec![
        Span::raw(" ".repeat(indent)),
        Span::styled(mark.to_owned(), theme.style(role.unwrap_or(Role::Dim))),
        Span::styled(format!("{name}{gap}"), theme.style(Role::Dim)),
    ];
    let below = indent + column + 2;
    let below = if below + VALUE > usize::from(columns) { usize::from(WRAPPED) } else { below };
    let (value, note) = value.split_once('\t').unwrap_or((value, ""));
    let mut spans = marked(value, Role::Text, theme);
    if !note.is_empty() {
        spans.push(Span::styled(format!("  {note}"), theme.style(Role::Dim)));
    }
    Wrap::words(columns).prefix(first, vec![Span::raw(" ".repeat(below))]).line(&Line::from(spans))
}

/// Renders a line of a page that is a bar (`▕██▓▏`) or a row of its legend (`▓ tools …`), each part in its colour. A bar
/// that is too wide is scaled. `None` for any other line.
fn gauge(line: &str, room: usize, theme: &Theme) -> Option<Vec<Span<'static>>> {
    let part_of = |mark: char| BAR_MARKS.iter().position(|known| *known == mark).map(|at| BAR_COLOURS[at]);
    let span = |mark: char| {
        let (role, faint) = part_of(mark).unwrap_or((Role::Dim, Modifier::empty()));
        Span::styled(mark.to_string(), theme.style(role).add_modifier(faint))
    };
    if let Some(inside) = line.strip_prefix('▕').and_then(|rest| rest.strip_suffix('▏')) {
        let cells: Vec<char> = inside.chars().collect();
        let shown = cells.len().min(room.saturating_sub(2));
        let scaled = (0..shown).map(|at| cells[at * cells.len() / shown]);
        return Some(std::iter::once('▕').chain(scaled).chain(['▏']).map(span).collect());
    }
    let (mark, rest) = line.split_once(' ')?;
    let mut marks = mark.chars();
    let (mark, after) = (marks.next()?, marks.next());
    let is_row = after.is_none() && part_of(mark).is_some() && rest.starts_with(char::is_alphabetic);
    let text = || {
        let text = truncate(&format!(" {rest}"), room.saturating_sub(1) as u16);
        Span::styled(text, theme.style(Role::Text))
    };
    is_row.then(|| vec![span(mark), text()])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a bar have the colours of its legend, at any width; nothing else is taken for one.
    #[test]
    fn a_bar_and_its_legend_have_the_same_colours() {
        let theme = Theme::builtin("dark").expect("exists");
        let colours = |line: &str, room| {
            let spans = gauge(line, room, &theme).expect("a part of a bar");
            spans.into_iter().filter(|span| span.content.starts_with(['█', '▓', '▒'])).map(|span| span.style)
        };
        let bar = colours("▕██▓▓▒▒  ▏", 80).collect::<Vec<_>>();
        assert_eq!(bar.len(), 6);
        let legend =
            ["█ system prompt  1k", "▓ tools  2k", "▒ messages  2k"].map(|row| colours(row, 80).next());
        assert_eq!([Some(bar[0]), Some(bar[2]), Some(bar[4])], legend);
        for name in ["default", "dark", "light"] {
            let theme = Theme::builtin(name).expect("exists");
            let styles =
                BAR_MARKS.map(|mark| gauge(&format!("{mark} part"), 80, &theme).expect("a row")[0].style);
            for (at, style) in styles.iter().enumerate() {
                assert!(!styles[..at].contains(style), "{name}: {} has the colour of another", BAR_MARKS[at]);
            }
        }
        assert_eq!(colours("▕██▓▓▒▒  ▏", 6).count(), 3, "scaled");
        for other in ["a text", "█ ▄▄ █", "· ", "", "▕ not closed"] {
            assert!(gauge(other, 80, &theme).is_none(), "{other:?}");
        }
    }

    /// A camera sees dark on light, with a margin on every side, in a dark theme, too.
    #[test]
    fn a_qr_code_is_dark_on_light() {
        let rows = ["█▀▀▀▀▀█ ▄ ▄ █▀▀▀▀▀█ ▀", "█ ███ █ ▀█▄ █ ███ █ █"];
        let text = format!("a\tb\n\n  {}\n  {}\n\nmore", rows[0], rows[1]);
        for name in ["dark", "light", "default", "plain"] {
            let theme = Theme::builtin(name).expect("exists");
            let lines = page("Server", &text, false, 60, &theme);
            let shown: Vec<String> = lines.iter().map(ToString::to_string).collect();
            assert_eq!(shown[3].trim(), rows[0], "{shown:?}");
            let ground = (name != "plain").then_some((Color::Black, Color::White));
            for line in &lines[2..6] {
                let code = line.spans.last().expect("the code");
                assert_eq!(code.style.fg.zip(code.style.bg), ground, "{name}: {shown:?}");
                assert_eq!(width(&code.content), 2 + width(rows[0]) + 2, "{name}: {shown:?}");
            }
            assert_eq!(shown[6].trim(), "", "{shown:?}");
        }
        assert!(!shown_has_ground(&page(
            "x",
            "  ▄▀█ too short",
            false,
            60,
            &Theme::builtin("dark").expect("exists")
        )));
    }

    fn shown_has_ground(lines: &[Line<'static>]) -> bool {
        lines.iter().any(|line| line.spans.iter().any(|span| span.style.bg.is_some()))
    }

    fn shown(title: &str, text: &str, is_literal: bool, columns: u16) -> Vec<Line<'static>> {
        page(title, text, is_literal, columns, &Theme::builtin("dark").expect("exists"))
    }

    #[test]
    fn labels_headings_and_code_of_a_page_have_styles_of_their_own() {
        let text = "── tools\n✓ echo\tconnected · 2 tools\n! a\tneeds `login`\tsince 9:41\n\tand more";
        let lines = shown("usage · since 3d", text, false, 60);
        let rows: Vec<String> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(
            rows,
            [
                "Usage  since 3d",
                "  tools",
                "  ✓ echo  connected · 2 tools",
                "  ! a     needs login  since 9:41",
                "          and more",
            ]
        );
        let theme = Theme::builtin("dark").expect("exists");
        let style = |row: usize, word: &str| {
            let found = lines[row].spans.iter().find(|span| span.content.trim() == word);
            found.unwrap_or_else(|| panic!("{word} in {:?}", lines[row])).style
        };
        assert_eq!(style(0, "Usage"), theme.style(Role::CardTitle));
        assert_eq!(style(1, "tools"), theme.style(Role::Heading));
        assert_eq!(style(2, "✓"), theme.style(Role::Success));
        assert_eq!(style(3, "login").fg, theme.style(Role::Code).fg);
        assert_eq!(style(3, "since"), theme.style(Role::Dim));
        // A value that has no room next to its label goes on below it.
        let narrow = shown("", "folder\ta value that needs two rows", false, 24);
        assert_eq!(narrow[2].to_string(), "    needs two rows");
    }

    #[test]
    fn an_answer_of_the_model_is_laid_out_as_answers_are() {
        let text = "It **fails**:\n\n- `a`\tb\n- c\n";
        let theme = Theme::builtin("dark").expect("exists");
        let rows: Vec<String> =
            answer("Beside · why?", text, 60, &theme).iter().map(ToString::to_string).collect();
        assert_eq!(rows, ["Beside  why?", "", "  It fails:", "  ", "  • a    b", "  • c"]);
    }

    #[test]
    fn nothing_in_a_literal_page_is_a_mark() {
        let text = "── a\n█ b `c`\n▕██▏\nx  `rm -rf`";
        let rows: Vec<String> = shown("Call", text, true, 60).iter().map(ToString::to_string).collect();
        assert_eq!(rows, ["Call", "  ── a", "  █ b `c`", "  ▕██▏", "  x  `rm -rf`"]);
    }
}
