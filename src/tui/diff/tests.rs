use proptest::prelude::*;

use super::*;

fn shown(diff: &Diff) -> String {
    diff.lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn plain(old: &str, new: &str) -> String {
    shown(&diff_lines(old, new, "a.rs", 40, &Theme::plain()))
}

fn lines(word: &str, numbers: std::ops::RangeInclusive<u32>) -> String {
    numbers.map(|n| format!("{word} {n}")).collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn a_change_is_shown_with_its_surroundings() {
    let old = lines("line", 1..=20);
    let new = old
        .replace("line 10\n", "line ten\n")
        .replace("line 12\n", "")
        .replace("line 20\n", "line 20\nline 21\n");
    let diff = diff_lines(&old, &new, "src/a.rs", 40, &Theme::plain());
    assert_eq!((diff.added, diff.removed), (2, 2));
    assert_eq!(diff.header(40, &Theme::plain()).to_string(), "src/a.rs +2 −2");
    insta::assert_snapshot!(shown(&diff), @"
    ⋯ 6 unchanged lines
     7   line 7
     8   line 8
     9   line 9
    10 - line 10
    10 + line ten
    11   line 11
    12 - line 12
    12   line 13
    13   line 14
    14   line 15
    ⋯ 2 unchanged lines
    17   line 18
    18   line 19
    19   line 20
    20 + line 21
    ");
}

#[test]
fn changed_words_are_marked() {
    let theme = Theme::default();
    let diff = diff_lines("let total = first + second;\n", "let total = first - second;\n", "a", 60, &theme);
    let marked: Vec<&str> = diff
        .lines
        .iter()
        .flat_map(|line| &line.spans)
        .filter(|span| span.style.add_modifier.contains(ratatui::style::Modifier::REVERSED))
        .map(|span| span.content.as_ref())
        .collect();
    assert_eq!(marked, ["+", "-"]);
}

#[test]
fn new_emptied_and_equal_files() {
    assert_eq!(plain("", "a\nb\n"), "1 + a\n2 + b");
    assert_eq!(plain("a\n", ""), "1 - a");
    assert_eq!(plain("a\n", "a\n"), "");
    assert_eq!(plain("", ""), "");
}

#[test]
fn line_ends_are_not_hidden() {
    assert_eq!(plain("a\nb\n", "a\r\nb\r\n"), "1 - a\n2 - b\n1 + a␍\n2 + b␍");
    assert_eq!(plain("a\n", "b"), "1 - a\n1 + b\n⋯ no line end at the end of the file now");
}

#[test]
fn large_changes_are_bounded_and_say_so() {
    let old = lines("old", 1..=9_000);
    let new = lines("new", 1..=9_000);
    let diff = diff_lines(&old, &new, "a", 60, &Theme::plain());
    assert_eq!((diff.added, diff.removed), (9_000, 9_000));
    assert_eq!(diff.lines.len(), MAX_LINES + 2);
    assert!(shown(&diff).contains("too many lines differ"));
    assert!(shown(&diff).ends_with("17600 more lines are not shown"));

    let long = "x".repeat(1_000_000);
    let diff = diff_lines(&long, &format!("{long}y"), "a", 60, &Theme::plain());
    assert!(diff.lines.len() < 50 && shown(&diff).contains("more characters"));
}

#[test]
fn hostile_text_is_made_visible() {
    let text = plain("a\u{1b}[2J\n", "a\u{202e}b\n");
    assert!(text.contains("^[[2J") && text.contains("<U+202E>"), "{text}");
}

proptest! {
    #[test]
    fn applying_what_is_shown_gives_the_new_text(
        old in proptest::collection::vec("[a-c]{0,3}", 0..12),
        new in proptest::collection::vec("[a-c]{0,3}", 0..12),
    ) {
        let text = |lines: &[String]| lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>();
        let diff = diff_lines_within(&text(&old), &text(&new), "a", 80, &Theme::plain(), usize::MAX);
        let mut rebuilt = Vec::new();
        let mut at = 0;
        let mut removed = 0;
        for line in shown(&diff).lines() {
            if let Some(count) = line.strip_prefix("⋯ ").and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok()) {
                rebuilt.extend_from_slice(&old[at..at + count]);
                at += count;
                continue;
            }
            let digits = old.len().max(new.len()).max(1).to_string().len();
            let sign = line.chars().nth(digits + 1).unwrap_or(' ');
            let content = line.chars().skip(digits + 3).collect::<String>();
            match sign {
                '-' => { prop_assert_eq!(&old[at], &content); at += 1; removed += 1; }
                '+' => rebuilt.push(content),
                _ => { prop_assert_eq!(&old[at], &content); rebuilt.push(content); at += 1; }
            }
        }
        if diff.added + diff.removed == 0 {
            rebuilt = old.clone();
        }
        prop_assert_eq!(&rebuilt, &new);
        prop_assert_eq!(removed, diff.removed);
    }

    #[test]
    fn any_texts_and_width_are_survived(old: String, new: String, path: String, width in 1u16..60) {
        let diff = diff_lines(&old, &new, &path, width, &Theme::plain());
        prop_assert!(diff.lines.iter().all(|line| line.width() <= usize::from(width)));
        prop_assert!(diff.header(width, &Theme::plain()).width() <= usize::from(width));
    }
}
