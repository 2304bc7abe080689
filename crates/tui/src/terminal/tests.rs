use std::num::NonZeroU16;

use proptest::prelude::*;
use ratatui::style::{Color, Style, Stylize};

use super::*;

mod reflow;

/// A terminal emulator that keeps its scrollback.
struct Screen {
    parser: vt100::Parser,
    writes: usize,
    bytes: usize,
    last: Vec<u8>,
}

fn nz(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n.max(1)).expect("not zero")
}

impl Screen {
    fn new(width: u16, height: u16) -> Screen {
        Screen {
            parser: vt100::Parser::new(nz(height), nz(width), 10_000),
            writes: 0,
            bytes: 0,
            last: Vec::new(),
        }
    }

    fn rows(&mut self) -> Vec<String> {
        self.parser.screen_mut().set_scrollback(usize::MAX);
        let above = self.parser.screen().scrollback();
        let (height, width) = self.parser.screen().size();
        let mut rows = Vec::new();
        for offset in (0..=above).rev() {
            self.parser.screen_mut().set_scrollback(offset);
            let mut page = self.parser.screen().rows(0, width.get());
            if offset > 0 {
                rows.extend(page.next());
            } else {
                rows.extend(page.take(usize::from(height.get())));
            }
        }
        rows.iter().map(|row| row.trim_end().to_owned()).collect()
    }

    fn cursor(&self) -> (u16, u16) {
        self.parser.screen().cursor_position()
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.parser.process(bytes);
        self.writes += 1;
        self.bytes += bytes.len();
        self.last = bytes.to_vec();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn terminal(width: u16, height: u16) -> LiveTerminal<Screen> {
    LiveTerminal::new(Screen::new(width, height), width, height, false)
}

fn text(rows: &[&str]) -> impl FnOnce(Rect, &mut Buffer) -> Option<Position> {
    let rows: Vec<String> = rows.iter().map(|row| (*row).to_owned()).collect();
    move |area, buf| {
        for (y, row) in rows.iter().take(usize::from(area.height)).enumerate() {
            buf.set_stringn(0, y as u16, row, usize::from(area.width), Style::default());
        }
        None
    }
}

/// The rows without trailing empty ones.
fn filled(mut rows: Vec<String>) -> Vec<String> {
    while rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    rows
}

#[test]
fn finished_lines_go_above_the_live_region_and_into_the_scrollback() {
    let mut term = terminal(20, 5);
    term.append((0..10).map(|i| Line::from(format!("line {i}"))));
    term.draw(2, text(&["live a", "live b"])).expect("in-memory writes succeed");
    term.append([Line::from("last")]);
    term.draw(2, text(&["live a", "live c"])).expect("in-memory writes succeed");
    let mut expected: Vec<String> = (0..10).map(|i| format!("line {i}")).collect();
    expected.extend(["last", "live a", "live c"].map(String::from));
    assert_eq!(term.out_mut().rows(), expected);
}

#[test]
fn only_changes_are_written_and_each_frame_is_one_write() {
    let mut term = terminal(80, 24);
    assert!(term.draw(3, text(&["one", "two", "three"])).expect("in-memory writes succeed"));
    assert!(!term.draw(3, text(&["one", "two", "three"])).expect("in-memory writes succeed"));
    assert_eq!(term.out_mut().writes, 1);
    assert!(term.draw(3, text(&["one", "twO", "three"])).expect("in-memory writes succeed"));
    let last = String::from_utf8(term.out_mut().last.clone()).expect("text");
    assert_eq!(last, "\x1b[?2026h\x1b[?25l\n\x1b[3GO\x1b[A\r\x1b[?2026l");
    assert_eq!(term.out_mut().writes, 2);
}

#[test]
fn the_cursor_is_at_the_caret() {
    let mut term = terminal(20, 6);
    term.append([Line::from("above")]);
    let caret = |x, y| {
        move |_: Rect, buf: &mut Buffer| {
            buf.set_string(0, 1, "> hi", Style::default());
            Some(Position::new(x, y))
        }
    };
    term.draw(3, caret(4, 1)).expect("in-memory writes succeed");
    assert_eq!(term.out_mut().cursor(), (2, 4));
    assert!(!term.out_mut().parser.screen().hide_cursor());
    assert!(term.draw(3, caret(3, 1)).expect("in-memory writes succeed"));
    assert_eq!(term.out_mut().cursor(), (2, 3));
    assert!(
        term.draw(3, |_, buf| {
            buf.set_string(0, 1, "> hi", Style::default());
            None
        })
        .expect("in-memory writes succeed")
    );
    assert!(term.out_mut().parser.screen().hide_cursor());
    // A caret outside the region is moved inside.
    term.draw(3, caret(90, 90)).expect("in-memory writes succeed");
    assert_eq!(term.out_mut().cursor(), (3, 19));
}

#[test]
fn styles_do_not_leak() {
    let mut term = terminal(20, 4);
    let style = Style::new().fg(Color::Red).bg(Color::Rgb(1, 2, 3)).bold().underlined();
    let line =
        Line::from(vec![Span::styled("a", style.underline_color(Color::Indexed(9))), "b".into(), "c".dim()]);
    term.append([line.clone(), Line::from("plain")]);
    term.draw(1, |_, buf| {
        buf.set_line(0, 0, &line, 20);
        None
    })
    .expect("in-memory writes succeed");
    let screen = term.out_mut().parser.screen();
    let cell = |row, column| screen.cell(row, column).expect("on the screen");
    for row in [0, 2] {
        assert_eq!(cell(row, 0).fgcolor(), vt100::Color::Idx(1));
        assert_eq!(cell(row, 0).bgcolor(), vt100::Color::Rgb(1, 2, 3));
        assert!(cell(row, 0).bold() && cell(row, 0).underline());
        assert_eq!((cell(row, 1).fgcolor(), cell(row, 1).bold()), (vt100::Color::Default, false));
        assert!(cell(row, 2).dim() && !cell(row, 2).bold());
        assert_eq!(cell(row, 5).bgcolor(), vt100::Color::Default);
    }
    assert_eq!(cell(1, 0).fgcolor(), vt100::Color::Default);
    assert!(String::from_utf8_lossy(&term.out_mut().last).contains("58:5:9"));
}

#[test]
fn foreign_characters_never_reach_the_terminal() {
    let mut term = terminal(40, 6);
    term.append([Line::from("a\u{1b}[2Jb\u{9b}c\u{202e}d"), Line::from(Span::raw("x\ty\nz"))]);
    term.draw(1, |_, buf| {
        buf[(0, 0)].set_symbol("\u{1b}]0;evil\u{7}");
        buf[(1, 0)].set_symbol("\u{202e}");
        buf[(2, 0)].set_symbol("k");
        None
    })
    .expect("in-memory writes succeed");
    let bytes = String::from_utf8(term.out_mut().last.clone()).expect("text");
    assert!(
        !bytes.contains(['\u{9b}', '\u{202e}', '\u{7}', '\t']) && !bytes.contains("\u{1b}]"),
        "{bytes:?}"
    );
    let rows = filled(term.out_mut().rows());
    assert_eq!(rows, ["a^[[2Jb<U+009B>c<U+202E>d", "x   y", "z", "??k"]);
}

/// The output without the control sequences that this module writes itself.
fn without_our_own(bytes: &str) -> String {
    let ours =
        regex::Regex::new(r"\x1b\[(\?(2026|25|7)[hl]|[0-9]*[ABGKJ]|[0-9;:]*m)|\r\n|\r").expect("a pattern");
    ours.replace_all(bytes, "").into_owned()
}

#[test]
fn hostile_output_is_only_ever_text() {
    let samples: &[(&str, &[u8])] = &[
        ("leave alternate screen", b"\x1b[?1049l"),
        ("queries whose reply arrives on stdin", b"\x1b[6n\x1b[c\x1b]11;?\x07"),
        ("kitty graphics", b"\x1b_Gf=100,a=T;AAAA\x1b\\"),
        ("unterminated OSC", b"\x1b]"),
        ("8-bit C1 as characters", "\u{9d}52;c;ZXZpbA==\u{9c}".as_bytes()),
        ("raw C1 byte", b"\x9b2J"),
        ("colour without reset", b"\x1b[31;1mred without reset"),
        ("bidi", "a\u{202e}gpj.exe \u{2066}# tsil\u{2069}".as_bytes()),
        ("clipboard", b"\x1b]52;c;AA==\x07"),
        ("backspaces and returns", b"rm -rf /\x08\x08\x08\rls"),
        ("tags and zero width", "x\u{e0041}\u{200b}\u{feff}".as_bytes()),
    ];
    for (name, bytes) in samples {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let mut term = terminal(40, 8);
        // Neither careful nor careless callers get it through.
        term.append(crate::wrap::Wrap::kept(40).text(&text, Style::default()));
        term.append([Line::raw(text.clone())]);
        term.draw(2, |area, buf| {
            buf.set_stringn(0, 0, &text, usize::from(area.width), Style::default());
            buf[(0, 1)].set_symbol(&text);
            None
        })
        .expect("in-memory writes succeed");
        let written = String::from_utf8(term.out_mut().last.clone()).expect("text");
        let rest = without_our_own(&written);
        assert!(
            !rest.chars().any(|c| c.is_control() || aye_core::contract::display::is_unsafe(c)),
            "{name}: {rest:?}"
        );
    }
}

#[test]
fn wide_characters_replace_and_are_replaced() {
    let mut term = terminal(10, 3);
    for row in ["漢字漢字漢", "a漢字漢字b", "abcdefghij", "漢bcdef 漢", "👍 x", "", "e\u{301}漢"]
    {
        term.draw(1, text(&[row])).expect("in-memory writes succeed");
        assert_eq!(filled(term.out_mut().rows()).concat(), row, "after {row}");
    }
}

#[test]
fn text_after_an_ambiguous_width_character_is_placed_by_column() {
    let mut term = terminal(10, 3);
    // The emulator gives this one four columns, most terminals two, some six.
    term.draw(1, text(&["👩\u{200d}💻 x"])).expect("in-memory writes succeed");
    let screen = term.out_mut().parser.screen();
    assert_eq!(screen.cell(0, 3).map(vt100::Cell::contents), Some("x"));
}

#[test]
fn the_region_grows_and_shrinks() {
    let mut term = terminal(10, 6);
    term.append([Line::from("top")]);
    term.draw(1, text(&["a"])).expect("in-memory writes succeed");
    term.draw(4, text(&["a", "b", "c", "d"])).expect("in-memory writes succeed");
    assert_eq!(filled(term.out_mut().rows()), ["top", "a", "b", "c", "d"]);
    term.draw(2, text(&["a", "x"])).expect("in-memory writes succeed");
    assert_eq!(filled(term.out_mut().rows()), ["top", "a", "x"]);
    term.draw(0, text(&[])).expect("in-memory writes succeed");
    assert_eq!(filled(term.out_mut().rows()), ["top"]);
    term.append([Line::from("more")]);
    term.draw(9, text(&["1", "2", "3", "4", "5", "6", "7"])).expect("in-memory writes succeed");
    assert_eq!(filled(term.out_mut().rows()), ["top", "more", "1", "2", "3", "4", "5", "6"]);
    term.finish(false).expect("in-memory writes succeed");
    assert_eq!(filled(term.out_mut().rows()), ["top", "more"]);
}

#[test]
fn finish_keeps_or_erases_the_region_and_a_new_one_starts_below() {
    let mut term = terminal(10, 6);
    term.draw(2, text(&["a", "b"])).expect("in-memory writes succeed");
    term.finish(true).expect("in-memory writes succeed");
    assert!(!term.out_mut().parser.screen().hide_cursor());
    term.draw(1, text(&["c"])).expect("in-memory writes succeed");
    assert_eq!(filled(term.out_mut().rows()), ["a", "b", "c"]);
}

#[test]
fn one_column_and_one_row_are_enough() {
    let mut term = terminal(1, 1);
    term.append([Line::from("漢a")]);
    term.draw(3, text(&["x", "y"])).expect("in-memory writes succeed");
    assert_eq!(term.out_mut().rows(), ["?", "a", "x"]);
    term.resize(0, 0);
    assert_eq!(term.size(), (1, 1));
    term.draw(0, text(&[])).expect("in-memory writes succeed");
}

#[test]
fn a_narrower_reflowing_terminal_is_followed() {
    let mut term = LiveTerminal::new(Screen::new(10, 8), 10, 8, true);
    term.draw(3, |_, buf| {
        buf.set_string(0, 0, "0123456789", Style::default());
        buf.set_string(0, 1, "01234", Style::default());
        buf.set_string(0, 2, "> abcdef", Style::default());
        Some(Position::new(8, 2))
    })
    .expect("in-memory writes succeed");
    term.resize(4, 8);
    // Three rows, two, and the cursor after the text in the second row of the third.
    assert_eq!(term.rows_above_cursor(), 3 + 2 + 1);
    term.resize(5, 8);
    assert_eq!(term.rows_above_cursor(), 2 + 1 + 1);
    term.resize(20, 8);
    assert_eq!(term.rows_above_cursor(), 2);
}

#[test]
fn twenty_thousand_small_updates_write_little() {
    let mut term = terminal(100, 40);
    for i in 0..20_000 {
        term.draw(6, text(&["----", &format!("tick {i}"), "> prompt", "----", "status", ""]))
            .expect("in-memory writes succeed");
    }
    assert!(term.out_mut().bytes < 20_000 * 64, "{}", term.out_mut().bytes);
}

#[test]
fn reflowing_terminals_are_recognised_by_their_environment() {
    let judge = |pairs: &[(&str, &str)]| {
        reflows(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    };
    assert!(judge(&[("TMUX", "/tmp/x"), ("XTERM_VERSION", "XTerm(390)")]));
    assert!(judge(&[("TERM", "xterm-256color"), ("VTE_VERSION", "7600")]));
    assert!(!judge(&[("TERM", "xterm-256color"), ("XTERM_VERSION", "XTerm(390)")]));
    assert!(!judge(&[("TERM", "linux")]));
    assert!(judge(&[("TERM", "alacritty")]));
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<String>),
    Draw(Vec<String>, Option<(u16, u16)>),
    Resize(u16, u16),
    Finish(bool),
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,8}",
        "[漢字a-c]{1,5}",
        Just("e\u{301}x".to_owned()),
        Just("👍 ok".to_owned()),
        Just("a b".to_owned()),
    ]
}

fn step(widths: std::ops::Range<u16>) -> impl Strategy<Value = Step> {
    let caret = proptest::option::of((0u16..30, 0u16..9));
    prop_oneof![
        3 => proptest::collection::vec(word(), 1..5).prop_map(Step::Append),
        5 => (proptest::collection::vec(word(), 0..9), caret).prop_map(|(rows, at)| Step::Draw(rows, at)),
        2 => (widths, 1u16..12).prop_map(|(width, height)| Step::Resize(width, height)),
        1 => Just(Step::Finish(false)),
    ]
}

/// Runs the steps and returns the appended lines, the live rows of the last frame, and all rows of the
/// terminal.
fn play(width: u16, height: u16, steps: &[Step]) -> (Vec<String>, Vec<String>, Vec<String>) {
    let mut term = terminal(width, height);
    let mut appended = Vec::new();
    let mut live = Vec::new();
    for step in steps {
        match step {
            Step::Append(words) => {
                // A number makes lines unique, so that duplicates are detected.
                let number = |(i, word)| format!("<{}>{word}", appended.len() + i);
                let lines: Vec<String> = words.iter().enumerate().map(number).collect();
                term.append(lines.iter().map(|line| Line::from(line.clone())));
                appended.extend(lines);
            }
            Step::Draw(rows, caret) => {
                let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
                let view = text(&rows);
                term.draw(rows.len() as u16, |area, buf| {
                    view(area, buf);
                    caret.map(|(x, y)| Position::new(x, y))
                })
                .expect("in-memory writes succeed");
                let size = term.size();
                live = rows.iter().take(usize::from(size.1)).map(|row| (*row).to_owned()).collect();
            }
            Step::Resize(width, height) => {
                term.out_mut().parser.set_size(nz(*height), nz(*width));
                term.resize(*width, *height);
            }
            Step::Finish(keep) => {
                term.finish(*keep).expect("in-memory writes succeed");
                live.clear();
            }
        }
    }
    let pending = term.has_pending();
    if pending || !matches!(steps.last(), Some(Step::Draw(..))) {
        term.draw(live.len() as u16, text(&live.iter().map(String::as_str).collect::<Vec<_>>()))
            .expect("in-memory writes succeed");
        live.truncate(usize::from(term.size().1));
    }
    (appended, live, term.out_mut().rows())
}

fn joined(rows: &[String]) -> String {
    rows.concat().chars().filter(|c| !c.is_whitespace()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn scrollback_and_screen_contain_each_line_once(
        (width, height) in (15u16..30, 1u16..10),
        steps in proptest::collection::vec(step(12..13), 1..25),
    ) {
        // The height changes, the width does not.
        let steps: Vec<Step> = steps
            .into_iter()
            .map(|step| match step {
                Step::Resize(_, height) => Step::Resize(width, height),
                other => other,
            })
            .collect();
        let tall_enough = steps.iter().all(|step| !matches!(step, Step::Resize(..)));
        let (appended, live, rows) = play(width, height, &steps);
        if tall_enough {
            let expected: Vec<String> = appended.iter().chain(&live).cloned().collect();
            prop_assert_eq!(filled(rows), filled(expected));
        } else {
            // A live region taller than the new screen leaves some of its rows in the scrollback.
            let numbered: Vec<&String> =
                rows.iter().filter(|row| row.starts_with('<')).collect();
            let expected: Vec<&String> = appended.iter().collect();
            prop_assert_eq!(numbered, expected);
        }
    }

    #[test]
    fn a_width_change_loses_nothing(
        (width, height) in (15u16..30, 1u16..10),
        steps in proptest::collection::vec(step(15..30), 1..25),
    ) {
        let (appended, _, rows) = play(width, height, &steps);
        let all = joined(&rows);
        for line in appended {
            let line = joined(std::slice::from_ref(&line));
            prop_assert_eq!(all.matches(&line).count(), 1, "{}", line);
        }
    }

    #[test]
    fn any_size_and_text_is_handled(
        (width, height) in (1u16..8, 1u16..6),
        steps in proptest::collection::vec(step(1..8), 1..15),
    ) {
        play(width, height, &steps);
    }

    #[test]
    fn a_diffed_row_looks_like_a_painted_one(rows in proptest::collection::vec("[ab漢字 ]{0,12}", 1..12)) {
        let mut term = terminal(12, 2);
        for row in &rows {
            let styled = |_: Rect, buf: &mut Buffer| {
                for (i, grapheme) in row.chars().enumerate() {
                    let style = if i % 3 == 0 { Style::new().red() } else { Style::new() };
                    let x = row.chars().take(i).map(|c| if c.is_ascii() { 1 } else { 2 }).sum();
                    if x < 12 {
                        buf.set_stringn(x, 0, grapheme.to_string(), usize::from(12 - x), style);
                    }
                }
                None
            };
            term.draw(1, styled).expect("in-memory writes succeed");
            let mut fresh = terminal(12, 2);
            fresh.draw(1, styled).expect("in-memory writes succeed");
            for x in 0..12 {
                let (a, b) = (term.out.parser.screen().cell(0, x), fresh.out.parser.screen().cell(0, x));
                let cell_style = |cell: Option<&vt100::Cell>| cell.map(|cell| {
                    let text = cell.contents().to_owned();
                    let text = if text.is_empty() && !cell.is_wide_continuation() { " ".to_owned() } else { text };
                    (text.clone(), (text != " ").then(|| cell.fgcolor()))
                });
                prop_assert_eq!(cell_style(a), cell_style(b), "column {} of {:?}", x, row);
            }
        }
    }
}

#[test]
fn text_links_to_a_url_and_each_row_ends_it() {
    use crate::links::Links;
    let links = Links::of(|name| (name == "FORCE_HYPERLINK").then(|| "1".to_owned()));
    let style = Style::new().bold().patch(links.to("https://a.org/x"));
    let mut term = terminal(20, 5).with_links(links.clone());
    term.append([Line::from(vec![Span::styled("here", style), Span::raw(" not")])]);
    term.draw(0, |_, _| None).expect("is drawn");
    let bytes = String::from_utf8_lossy(&term.out_mut().last).into_owned();
    let link = "\x1b]8;id=aye0;https://a.org/x\x1b\\";
    assert!(bytes.contains(&format!("{link}\x1b[1mhere\x1b]8;;\x1b\\")), "{bytes:?}");
    assert!(!bytes.contains("58:"), "the number is not a colour: {bytes:?}");
    assert_eq!(term.out_mut().rows()[0], "here not");
    // An unknown number links nowhere.
    let mut term = terminal(20, 5);
    term.append([Line::styled("here", style)]);
    term.draw(0, |_, _| None).expect("is drawn");
    assert!(!String::from_utf8_lossy(&term.out_mut().last).contains("a.org"));
}

/// In tmux, cells erased after a text still belong to its row, and break with it.
#[test]
fn a_shortened_row_is_erased_from_its_start() {
    let mut terminal = terminal(40, 10);
    let rule = "-".repeat(40);
    terminal.draw(2, text(&[&rule, "status"])).expect("in-memory writes succeed");
    let last =
        |terminal: &mut LiveTerminal<Screen>| String::from_utf8_lossy(&terminal.out_mut().last).into_owned();
    terminal.append([Line::from("short")]);
    terminal.draw(2, text(&[&rule, "status"])).expect("in-memory writes succeed");
    let bytes = last(&mut terminal);
    assert!(bytes.contains("\x1b[Kshort\r\n") && !bytes.contains("short\x1b[K"), "{bytes:?}");
    // The same in a row that is only changed.
    terminal.draw(2, text(&["-", "status"])).expect("in-memory writes succeed");
    let bytes = last(&mut terminal);
    assert!(bytes.contains("\x1b[K-") && !bytes.contains("-\x1b[K"), "{bytes:?}");
    assert_eq!(terminal.out_mut().rows()[..3], ["short", "-", "status"]);
}
