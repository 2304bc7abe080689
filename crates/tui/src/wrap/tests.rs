use proptest::prelude::*;

use super::*;
use aye_core::contract::display::is_unsafe;

fn shown(lines: &[Line<'_>]) -> Vec<String> {
    lines.iter().map(ToString::to_string).collect()
}

fn bare(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

#[test]
fn words_move_to_the_next_line_and_hang() {
    let wrap = Wrap::words(16).prefix(vec![Span::raw("- ")], vec![Span::raw("  ")]);
    let lines = wrap.text("one two three four five", Style::default());
    assert_eq!(shown(&lines), ["- one two three", "  four five"]);
}

#[test]
fn long_words_are_broken_and_wide_ones_never_halved() {
    assert_eq!(shown(&Wrap::words(5).text("abcdefghij kl", Style::default())), ["abcde", "fghij", "kl"]);
    assert_eq!(shown(&Wrap::words(5).text("漢字漢字", Style::default())), ["漢字", "漢字"]);
    assert_eq!(shown(&Wrap::words(1).text("漢a", Style::default())), ["?", "a"]);
}

#[test]
fn styles_survive_a_break_inside_a_word() {
    let bold = Style::new().bold();
    let line = Line::from(vec![Span::raw("ab"), Span::styled("cdef", bold)]);
    let lines = Wrap::words(4).line(&line);
    assert_eq!(shown(&lines), ["abcd", "ef"]);
    assert_eq!(lines[0].spans[1].style, bold);
    assert_eq!(lines[1].spans[0].style, bold);
}

#[test]
fn code_keeps_its_spaces() {
    let lines = Wrap::kept(8).text("    if x {\n\treturn", Style::default());
    assert_eq!(shown(&lines), ["    if x", " {", "    retu", "rn"]);
}

#[test]
fn code_and_output_break_after_spaces() {
    let shown_at = |width, text: &str| shown(&Wrap::kept(width).text(text, Style::default()));
    assert_eq!(shown_at(12, "error: cannot find value"), ["error: ", "cannot find ", "value"]);
    assert_eq!(shown_at(6, "ab  cdefghij k"), ["ab  ", "cdefgh", "ij k"], "a long word starts a new line");
    assert_eq!(shown_at(6, "    abcdef"), ["    ab", "cdef"], "an indent alone is not a line");
    // Styled text in the middle of a word stays styled, whatever precedes the lines.
    let bold = Style::new().bold();
    let wrap = Wrap::kept(9).prefix(vec![Span::raw("$ ")], vec![Span::raw("    ")]);
    let lines = wrap.line(&Line::from(vec![Span::raw("ls ab"), Span::styled("cdefg", bold)]));
    assert_eq!(shown(&lines), ["$ ls ", "    abcde", "    fg"]);
    assert_eq!(lines[1].spans.last().map(|span| (span.content.as_ref(), span.style)), Some(("cde", bold)));
}

#[test]
fn a_flood_of_tabs_is_bounded() {
    let lines = Wrap::words(20).text(&("\t".repeat(100_000) + "x"), Style::default());
    assert!(lines.len() <= 2, "{}", lines.len());
    assert_eq!(bare(&shown(&lines).concat()), "x");
}

#[test]
fn hostile_characters_become_visible() {
    assert_eq!(clean("a\u{202e}gpj.exe"), "a<U+202E>gpj.exe");
    assert_eq!(clean("\u{1b}[?1049l"), "^[[?1049l");
    assert_eq!(clean("\u{9d}52;c;ZXZpbA==\u{9c}"), "<U+009D>52;c;ZXZpbA==<U+009C>");
    assert_eq!(clean("x\u{e0041}\u{200b}\u{feff}\u{7f}"), "x<U+E0041><U+200B><U+FEFF>^?");
    assert_eq!(clean("👩\u{200d}💻 ❤\u{fe0f}"), "👩\u{200d}💻 ❤\u{fe0f}");
    assert!(matches!(clean("plain\ttext\n"), Cow::Borrowed(_)));
}

#[test]
fn truncation_is_marked() {
    assert_eq!(truncate("abcdef", 6), "abcdef");
    assert_eq!(truncate("abcdefg", 6), "abcde…");
    assert_eq!(truncate("漢字漢字", 6), "漢字…");
    assert_eq!(truncate("abc", 0), "");
    assert_eq!(truncate("a\nb", 9), "a b");
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{0,80}",
        "[a-c漢字\u{301}👩\u{200d}💻 \t\n]{0,60}",
        any::<String>(),
        "(\u{1b}\\[[0-9;]{0,4}[mJHK]|[a-z ]{1,9}|\u{202e}|\u{9b}){0,12}",
    ]
}

proptest! {
    #[test]
    fn no_line_is_wider_than_requested(text in texts(), width in 1u16..40, first in 0u16..9, rest in 0u16..9, words: bool) {
        let wrap = if words { Wrap::words(width) } else { Wrap::kept(width) };
        for line in wrap.indent(first, rest).text(&text, Style::default()) {
            prop_assert!(line.width() <= usize::from(width), "{line:?}");
            prop_assert!(!line.to_string().chars().any(is_unsafe), "{line:?}");
        }
    }

    #[test]
    fn all_visible_text_is_kept(text in texts(), width in 2u16..40, words: bool) {
        let wrap = if words { Wrap::words(width) } else { Wrap::kept(width) };
        let lines = shown(&wrap.text(&text, Style::default())).concat();
        prop_assert_eq!(bare(&lines), bare(&clean(&text.replace("\r\n", "\n"))));
    }

    #[test]
    fn text_that_fits_is_unchanged(words in proptest::collection::vec("[a-z]{1,6}", 1..6)) {
        let text = words.join(" ");
        prop_assert_eq!(shown(&Wrap::words(60).text(&text, Style::default())), [text]);
    }
}

#[test]
fn a_path_is_cut_in_its_middle() {
    assert_eq!(truncate_middle("~/src/aye/crates/tui/src/wrap.rs", 20), "~/src/…i/src/wrap.rs");
    assert_eq!(truncate_middle("~/short.rs", 20), "~/short.rs");
    for max in 0..30 {
        let cut = truncate_middle("/ein/模型/🦀/path/of/many/parts/file.rs", max);
        assert!(width(&cut) <= usize::from(max), "{cut} in {max}");
    }
}
