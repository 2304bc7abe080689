use proptest::prelude::*;

use super::*;
use aye_core::contract::display::is_unsafe;

fn shown(lines: &[Line<'_>]) -> String {
    let rows: Vec<String> = lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect();
    rows.join("\n")
}

fn plain(text: &str, width: u16) -> String {
    shown(&render(text, width, &Theme::plain(), &Highlighter::off()))
}

#[test]
fn formulas_are_shown_in_signs_and_dollars_stay_dollars() {
    assert_eq!(plain(r"So $\int_0^1 x^2\,dx$ and \(a\;b\).", 60), "So ∫₀¹ x² dx and a b.");
    assert_eq!(plain(r"\[ \sum_{i=1}^n i \]", 60), "∑ᵢ₌₁ⁿ i");
    for text in ["It costs $5 and $6, or US$5/US$10.", "echo $HOME/$USER and $$ here$$", "a_b^c $x$ [^1"] {
        assert_eq!(plain(text, 60), text);
    }
}

#[test]
fn blocks_of_every_kind() {
    let text = "# Title\n\nA paragraph with **bold**, *slant*, `code` and ~~old~~ text.\nSame line.\n\n\
        - one\n- two\n  - nested\n    deep\n- [x] done\n- [ ] open\n\n3. three\n4. four\n\n\
        > quoted text\n> goes on\n>\n> > deeper\n\n```rust\nfn main() {\n\n    x();\n}\n```\n\n---\n\n\
        [text](https://example.org/a) and <https://example.org> ![alt](pic.png)\n\nline  \nbreak[^1]\n\n[^1]: a note\n";
    insta::assert_snapshot!(plain(text, 40), @"
    Title

    A paragraph with bold, slant, code and
    old text. Same line.

    • one
    • two
      • nested deep
    ☑ done
    ☐ open

    3. three
    4. four

    │ quoted text goes on
    │
    │ │ deeper

      rust
      fn main() {

          x();
      }

    ────────────────────────────────────────

    text (https://example.org/a) and
    https://example.org [image: alt]
    (pic.png)

    line
    break¹

    ¹ a note
    ");
}

/// Code stands on a ground of its own, with its language, and the rest of a long line below its start.
#[test]
fn code_has_a_ground_and_keeps_its_indent() {
    let text = "a `[^1]` and [^1]\n\n```sh\n    echo one two threefold four\n\nls\n```\nafter\n";
    let theme = Theme::builtin("dark").expect("exists");
    let ground = theme.style(Role::Composer).bg;
    assert!(ground.is_some());
    let lines = render(text, 24, &theme, &Highlighter::off());
    assert_eq!(
        shown(&lines),
        "a [^1] and ¹\n\n  sh\n      echo one two\n        threefold four\n\n  ls\n\nafter"
    );
    let is_tinted =
        |line: &Line<'_>| line.width() == 24 && line.spans.iter().all(|span| span.style.bg == ground);
    assert_eq!(
        lines.iter().map(is_tinted).collect::<Vec<_>>(),
        [false, false, true, true, true, true, true, false, false]
    );
    // A wide terminal that gets a little narrower breaks no row of it.
    assert!(render(text, 110, &theme, &Highlighter::off()).iter().all(|line| line.width() <= 72));
}

#[test]
fn a_table_fits_wraps_or_becomes_records() {
    let text = "| Name | What it does | N |\n|---|:---|---:|\n| read | reads a file with line numbers | 7 |\n| 漢字 | wide | 12 |\n";
    insta::assert_snapshot!(plain(text, 60), @"
    Name │ What it does                   │  N
    ─────┼────────────────────────────────┼───
    read │ reads a file with line numbers │  7
    漢字 │ wide                           │ 12
    ");
    insta::assert_snapshot!(plain(text, 30), @"
    Name │ What it does       │  N
    ─────┼────────────────────┼───
    read │ reads a file with  │  7
         │ line numbers       │
    漢字 │ wide               │ 12
    ");
    insta::assert_snapshot!(plain(text, 14), @"
    Name: read
    What it does:
      reads a file
      with line
      numbers
    N: 7
    ────────────
    Name: 漢字
    What it does:
      wide
    N: 12
    ");
}

#[test]
fn reference_links_are_found_and_shown() {
    let text = "[home]: https://example.org\n\nSee [home] and [the page][home].\n\nNot [yet][later].\n\n[later]: /x\n";
    insta::assert_snapshot!(plain(text, 60), @"
    [home]: https://example.org

    See home (https://example.org) and the page
    (https://example.org).

    Not [yet][later].

    [later]: /x
    ");
}

#[test]
fn a_list_with_blank_lines_keeps_them_and_its_numbers() {
    assert_eq!(plain("1. a\n1. b\n\n1. c\n", 20), "1. a\n2. b\n\n3. c");
    assert_eq!(plain("- a\n\n  more\n- b\n", 20), "• a\n\n  more\n\n• b".replace("more\n\n•", "more\n•"));
}

#[test]
fn styles_come_from_roles() {
    let theme = Theme::builtin("default").expect("exists");
    let lines = render("**b** `c`\n\n```rust\nfn x() {}\n```\n", 40, &theme, &Highlighter::waiting());
    assert_eq!(lines[0].spans[0].style, theme.style(Role::Text).patch(theme.style(Role::Strong)));
    assert_eq!(lines[0].spans[2].style, theme.style(Role::Text).patch(theme.style(Role::Code)));
    assert!(
        lines[3]
            .spans
            .iter()
            .any(|span| span.content == "fn" && span.style == theme.style(Role::CodeKeyword))
    );
}

#[test]
fn hostile_text_is_made_visible() {
    let text = "a\u{1b}[2J \u{202e}x\n\n```\n\u{9b}31m\n```\n\n| \u{7} |\n|---|\n| \u{1b}] |\n\n[x](http://\u{202e}y)";
    let shown = plain(text, 60);
    assert!(!shown.chars().any(is_unsafe), "{shown:?}");
    assert!(shown.contains("^[[2J") && shown.contains("<U+009B>31m"));
}

#[test]
fn nesting_and_floods_are_bounded() {
    for text in [
        ">".repeat(20_000) + "x",
        "- ".repeat(5_000) + "x",
        "*".repeat(20_000),
        "[".repeat(20_000),
        "`".repeat(20_001) + "a",
        "a".to_owned() + &"\u{301}".repeat(50_000),
        "|".repeat(5_000) + "\n" + &"|-".repeat(5_000),
        "\t".repeat(20_000) + "x",
    ] {
        let lines = render(&text, 40, &Theme::plain(), &Highlighter::off());
        assert!(lines.iter().all(|line| line.width() <= 40));
    }
}

#[test]
fn finished_blocks_are_drained_while_the_rest_streams() {
    let theme = Theme::plain();
    let mut stream = MarkdownStream::new(&Highlighter::waiting());
    stream.push("First paragraph.\n\nSecond");
    assert_eq!(shown(&stream.drain_stable(40, &theme)), "First paragraph.");
    assert_eq!(shown(&stream.lines(40, &theme)), "\nSecond");
    stream.push(" one.\n\n- a\n- b\n- c");
    assert_eq!(shown(&stream.drain_stable(40, &theme)), "\nSecond one.\n\n• a");
    assert_eq!(shown(&stream.lines(40, &theme)), "• b\n• c");
    stream.push("\n\n```rust\nfn a() {}\nfn b");
    assert_eq!(shown(&stream.drain_stable(40, &theme)), "• b\n• c\n\n  rust\n  fn a() {}");
    assert_eq!(shown(&stream.lines(40, &theme)), "  fn b");
    stream.push("() {}\n```\nend");
    assert_eq!(shown(&stream.drain_stable(40, &theme)), "  fn b() {}");
    stream.finish();
    assert_eq!(shown(&stream.drain_stable(40, &theme)), "\nend");
    assert!(stream.is_empty());
}

#[test]
fn code_waits_for_highlighting_but_not_forever() {
    let theme = Theme::plain();
    let mut stream = MarkdownStream::new(&Highlighter::stuck());
    stream.push("```rust\nfn a() {}\nfn b() {}\n");
    assert!(stream.drain_stable(40, &theme).is_empty());
    assert_eq!(shown(&stream.lines(40, &theme)), "  rust\n  fn a() {}\n  fn b() {}");
    stream.push(&"x\n".repeat(MAX_WAITING));
    assert_eq!(stream.drain_stable(40, &theme).len(), 3);
    stream.push("```\n\n- item\n  ```rust\n  y\n  ```\n\nend\n\n");
    assert!(stream.drain_all(40, &theme).len() > MAX_WAITING);
    assert!(stream.is_empty());
}

#[test]
fn twenty_thousand_deltas_take_little_memory() {
    let theme = Theme::plain();
    let mut stream = MarkdownStream::new(&Highlighter::off());
    let mut drained = 0;
    for i in 0..20_000 {
        stream.push(if i % 40 == 39 { ".\n\n" } else { "wor d" });
        if i % 40 == 0 {
            drained += stream.drain_stable(80, &theme).len();
            stream.lines(80, &theme);
        }
        assert!(stream.tail.len() < 1_000 && stream.units.len() < 100);
    }
    stream.finish();
    drained += stream.drain_stable(80, &theme).len();
    assert!(drained >= 1_000);
}

/// Fragments of markdown that interact in odd ways. No item is empty: the parser reads a run of empty items
/// differently if more follows. A definition ends with a blank line: an HTML tag right after it may or may
/// not be read as a separate block, depending on the lookahead.
fn fragments() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-c ]{1,12}",
        2 => Just("\n".to_owned()),
        2 => Just("\n\n".to_owned()),
        1 => Just("- x".to_owned()), 1 => Just("\n- y".to_owned()), 1 => Just("\n* z".to_owned()), 1 => Just("\n1. n".to_owned()), 1 => Just("\n7) m".to_owned()),
        1 => Just("\n  ".to_owned()), 1 => Just("\n    ".to_owned()), 1 => Just("\n\n   - k".to_owned()), 1 => Just("\t".to_owned()),
        1 => Just("```".to_owned()), 1 => Just("\n```rust\n".to_owned()), 1 => Just("\n~~~~\n".to_owned()), 1 => Just("\n```\n".to_owned()),
        1 => Just("> ".to_owned()), 1 => Just("\n> ".to_owned()), 1 => Just("# ".to_owned()), 1 => Just("\n---\n".to_owned()), 1 => Just("===\n".to_owned()),
        1 => Just("**".to_owned()), 1 => Just("_".to_owned()), 1 => Just("`".to_owned()), 1 => Just("[a](b)".to_owned()), 1 => Just("[a]".to_owned()),
        1 => Just("\n[a]: /u\n\n".to_owned()), 1 => Just("\n| a | b |\n|---|---|\n| c | d |\n".to_owned()), 1 => Just("|".to_owned()),
        1 => Just("[^1]".to_owned()), 1 => Just("\n[^1]: n\n".to_owned()), 1 => Just("<b>".to_owned()), 1 => Just("\n<div>\n".to_owned()), 1 => Just("<!-- ".to_owned()),
        1 => Just("- [ ] x".to_owned()), 1 => Just("漢字👩\u{200d}💻".to_owned()), 1 => Just("\\".to_owned()), 1 => Just("&amp;".to_owned()), 1 => Just("\r\n".to_owned()),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_chunked_stream_equals_one_shot(text in fragments(), size in 1usize..9, width in 8u16..60, drain: bool) {
        let theme = Theme::plain();
        let highlighter = Highlighter::off();
        let mut stream = MarkdownStream::new(&highlighter);
        let mut lines = Vec::new();
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(size) {
            stream.push(&piece.iter().collect::<String>());
            if drain {
                lines.extend(stream.drain_stable(width, &theme));
            }
            stream.lines(width, &theme);
        }
        stream.finish();
        lines.extend(stream.drain_stable(width, &theme));
        prop_assert!(stream.is_empty());
        prop_assert_eq!(shown(&lines), shown(&render(&text, width, &theme, &highlighter)), "{:?}", text);
    }

    #[test]
    fn stable_lines_never_change(text in fragments(), size in 1usize..9) {
        let theme = Theme::plain();
        let mut stream = MarkdownStream::new(&Highlighter::off());
        let mut stable: Vec<String> = Vec::new();
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(size) {
            stream.push(&piece.iter().collect::<String>());
            let all: Vec<String> = stream.lines(30, &theme).iter().map(ToString::to_string).collect();
            prop_assert!(all.len() >= stable.len());
            prop_assert_eq!(&all[..stable.len()], &stable[..]);
            let growing = stream.tail_lines(30, &theme).len();
            stable = all[..all.len() - growing].to_vec();
        }
    }

    #[test]
    fn any_text_and_width_is_handled(text in prop_oneof![any::<String>(), fragments()], width in 1u16..50) {
        for line in render(&text, width, &Theme::plain(), &Highlighter::off()) {
            prop_assert!(line.width() <= usize::from(width), "{line:?}");
            prop_assert!(!line.to_string().chars().any(is_unsafe), "{line:?}");
        }
    }
}

#[test]
fn a_stream_may_live_in_any_thread() {
    fn sends<T: Send>() {}
    sends::<MarkdownStream>();
}

fn linked(text: &str) -> Vec<String> {
    let links = crate::links::Links::of(|name| (name == "FORCE_HYPERLINK").then(|| "1".to_owned()));
    let theme = Theme::plain().with_links(links);
    let lines = render(text, 60, &theme, &Highlighter::off());
    let is_link = |span: &&Span<'_>| span.style.underline_color.is_some();
    lines.iter().flat_map(|line| &line.spans).filter(is_link).map(|span| span.content.to_string()).collect()
}

fn good_and_evil() -> Vec<ratatui::style::Color> {
    let links = crate::links::Links::of(|name| (name == "FORCE_HYPERLINK").then(|| "1".to_owned()));
    let good = links.to("https://good.org");
    let theme = Theme::plain().with_links(links);
    let lines = render("[https://good.org](https://evil.org)", 60, &theme, &Highlighter::off());
    let colours: Vec<_> = lines[0].spans.iter().filter_map(|span| span.style.underline_color).collect();
    assert_eq!(Some(colours[0]), good.underline_color);
    colours
}

#[test]
fn links_lead_where_they_claim() {
    assert_eq!(linked("[page](https://a.org/x)"), ["page", "https://a.org/x"]);
    assert_eq!(linked("<https://a.org> and https://b.org."), ["https://a.org", "https://b.org"]);
    // Text that looks like another URL does not link to this one; the URL itself can be opened.
    assert_eq!(linked("[https://good.org](https://evil.org)"), ["https://good.org", "https://evil.org"]);
    assert_eq!(linked("[good.org](https://evil.org)"), ["https://evil.org"]);
    assert_eq!(linked("[x](javascript:alert) ![pic](file:///etc/passwd)"), Vec::<String>::new());
    let style = good_and_evil();
    assert_ne!(style[0], style[1], "each links where it claims");
    assert_eq!(linked("[x](https://a.org/\u{202e}y)"), Vec::<String>::new());
}

#[test]
fn code_blocks_show_their_number_on_request() {
    let text = "```rust,ignore\nfn a() {}\n```\n\n```\n```\n\n- item\n\n  ```sh\n  ls 漢字\n  ```\n\ntext\n\n    indented\n\n```\u{202e}x\ny\n```\n";
    let mut stream = MarkdownStream::new(&Highlighter::off()).with_numbers();
    for piece in text.split_inclusive('\n') {
        stream.push(piece);
        stream.lines(30, &Theme::plain());
    }
    stream.finish();
    insta::assert_snapshot!(shown(&stream.lines(30, &Theme::plain())));
    // The number copies the block shown below it.
    let blocks = crate::viewer::source::code_blocks(text);
    let texts: Vec<&str> = blocks.iter().map(|code| code.text.trim()).collect();
    assert_eq!(texts, ["fn a() {}", "ls 漢字", "indented", "y"]);
    for width in 1..30 {
        assert!(stream.lines(width, &Theme::plain()).iter().all(|line| line.width() <= usize::from(width)));
    }
}
