use proptest::prelude::*;

use super::*;

/// The number of lines shown of a large change.
const MAX_LINES: usize = 400;

fn shown(diff: &Diff) -> String {
    diff.lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn plain(old: &str, new: &str) -> String {
    shown(&diff_lines(old, new, Show::whole(40, &Theme::plain())))
}

fn lines(word: &str, numbers: std::ops::RangeInclusive<u32>) -> String {
    numbers.map(|n| format!("{word} {n}")).collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn a_change_is_shown_with_context() {
    let old = lines("line", 1..=20);
    let new = old
        .replace("line 10\n", "line ten\n")
        .replace("line 12\n", "")
        .replace("line 20\n", "line 20\nline 21\n");
    let diff = diff_lines(&old, &new, Show::whole(40, &Theme::plain()));
    assert_eq!((diff.added, diff.removed), (2, 2));
    assert_eq!(
        header("src/a.rs", diff.added, diff.removed, 40, &Theme::plain()).to_string(),
        "src/a.rs +2 −2"
    );
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
    let theme = Theme::builtin("default").expect("exists");
    let diff =
        diff_lines("let total = first + second;\n", "let total = first - second;\n", Show::whole(60, &theme));
    let marked: Vec<&str> = diff
        .lines
        .iter()
        .flat_map(|line| &line.spans)
        .filter(|span| span.style.add_modifier.contains(ratatui::style::Modifier::REVERSED))
        .map(|span| span.content.as_ref())
        .collect();
    assert_eq!(marked, ["+", "-"]);
}

/// The indent of a line that changed further on is not what differs.
#[test]
fn an_unchanged_indent_is_not_marked() {
    let theme = Theme::builtin("default").expect("exists");
    let (old, new) = ("fn a() {\n    one(x, y);\n}\n", "fn a() {\n    two(x);\n    three(x, y);\n}\n");
    let diff = diff_lines(old, new, Show::whole(60, &theme));
    let spans = diff.lines.iter().flat_map(|line| &line.spans);
    let marked: Vec<&str> = spans
        .filter(|span| span.style.add_modifier.contains(ratatui::style::Modifier::REVERSED))
        .map(|span| span.content.as_ref())
        .collect();
    assert!(!marked.is_empty() && marked.iter().all(|text| !text.starts_with(' ')), "{marked:?}");
    // Where the indent is all that differs, it is marked.
    let diff = diff_lines("  a(b)\n", "      a(b)\n", Show::whole(60, &theme));
    let spans = diff.lines.iter().flat_map(|line| &line.spans);
    assert!(spans.into_iter().any(|span| {
        span.style.add_modifier.contains(ratatui::style::Modifier::REVERSED) && span.content.trim().is_empty()
    }));
}

#[test]
fn new_emptied_and_equal_files() {
    assert_eq!(plain("", "a\nb\n"), "1 + a\n2 + b");
    assert_eq!(plain("a\n", ""), "1 - a");
    assert_eq!(plain("a\n", "a\n"), "");
    assert_eq!(plain("", ""), "");
}

#[test]
fn line_endings_are_not_hidden() {
    assert_eq!(plain("a\nb\n", "a\r\nb\r\n"), "1 - a\n2 - b\n1 + a␍\n2 + b␍");
    assert_eq!(plain("a\n", "b"), "1 - a\n1 + b\n⋯ no newline at the end of the file now");
}

#[test]
fn large_changes_are_bounded_and_say_so() {
    let old = lines("old", 1..=9_000);
    let new = lines("new", 1..=9_000);
    let plain = Theme::plain();
    let some = Show { most: MAX_LINES, ..Show::whole(60, &plain) };
    let diff = diff_lines(&old, &new, some);
    assert_eq!((diff.added, diff.removed), (9_000, 9_000));
    assert_eq!(diff.lines.len(), MAX_LINES + 2);
    assert!(shown(&diff).contains("too many lines differ"));
    assert!(shown(&diff).ends_with("17600 more lines are not shown"));

    let long = "x".repeat(1_000_000);
    let diff = diff_lines(&long, &format!("{long}y"), some);
    assert!(diff.lines.len() < 50 && shown(&diff).contains("more characters"));
}

#[test]
fn hostile_text_is_made_visible() {
    let text = plain("a\u{1b}[2J\n", "a\u{202e}b\n");
    assert!(text.contains("^[[2J") && text.contains("<U+202E>"), "{text}");
}

proptest! {
    #[test]
    fn applying_the_shown_diff_gives_the_new_text(
        old in proptest::collection::vec("[a-c]{0,3}", 0..12),
        new in proptest::collection::vec("[a-c]{0,3}", 0..12),
    ) {
        let text = |lines: &[String]| lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>();
        let diff = diff_lines(&text(&old), &text(&new), Show::whole(80, &Theme::plain()));
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
    fn any_text_and_width_is_handled(old: String, new: String, path: String, width in 1u16..60) {
        let diff = diff_lines(&old, &new, Show::whole(width, &Theme::plain()));
        prop_assert!(diff.lines.iter().all(|line| line.width() <= usize::from(width)));
        prop_assert!(header(&path, diff.added, diff.removed, width, &Theme::plain()).width() <= usize::from(width));
    }
}

const UNIFIED: &str = "--- a/x.rs\n+++ b/x.rs\n@@ -8,4 +8,5 @@ fn\n same 漢字\n-let total = first + second;\n+let total = first - second;\n+// 🎉 new\n \n end\n@@ -40,0 +42 @@\n+last\n\\ No newline at end of file\n";

fn painted(width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let patch = Patch::parse(UNIFIED).expect("a diff");
    assert_eq!((patch.added, patch.removed, patch.len()), (3, 1, 7));
    let highlighter = crate::highlight::Highlighter::waiting();
    let (old, new) = patch.texts();
    let colours = Colours { old: highlighter.whole("rs", &old), new: highlighter.whole("rs", &new) };
    assert!(colours.are_ready());
    let (lines, hidden) = patch.lines(Show {
        width,
        theme,
        most: usize::MAX,
        colours: Some(&colours),
        numbers: true,
        layout: DiffLayout::Auto,
    });
    assert_eq!(hidden, 0);
    assert!(lines.iter().all(|line| line.width() <= usize::from(width)));
    lines
}

fn text_at(width: u16) -> String {
    let lines = painted(width, &Theme::plain());
    lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_unified_diff_is_shown_at_each_width() {
    for width in [40, 80, 160] {
        insta::assert_snapshot!(format!("unified_{width}"), text_at(width));
    }
}

#[test]
fn code_is_highlighted_and_changed_words_stay_marked() {
    let theme = Theme::builtin("dark").expect("exists");
    let lines = painted(60, &theme);
    let span = |row: &str, text: &str| {
        let line = lines.iter().find(|line| line.to_string().contains(row)).expect("the row");
        line.spans.iter().find(|span| span.content == text).map(|span| span.style)
    };
    let keyword = span("first - second", "let").expect("a separate span");
    assert_eq!(keyword.fg, theme.style(Role::CodeKeyword).fg);
    assert_eq!(keyword.bg, theme.style(Role::DiffAdd).bg);
    assert_eq!(span("first - second", "-").expect("is highlighted").bg, theme.style(Role::DiffAddWord).bg);
    // Without backgrounds the line's colour distinguishes it.
    let lines = painted(60, &Theme::builtin("default").expect("exists"));
    let line = lines.iter().find(|line| line.to_string().contains("first - second")).expect("the row");
    assert!(line.spans.iter().all(|span| span.content != "let"), "{line:?}");
}

#[test]
fn text_that_is_not_a_diff_is_not_parsed_as_one() {
    for text in ["", "hello", "@@ -1 +1", "@@ -x,1 +1,1 @@\n a", "--- a\n+++ b\n"] {
        assert_eq!(Patch::parse(text), None, "{text:?}");
    }
    let cut = Patch::parse("@@ -1,9 +1,9 @@\n a\n-b\n[… diff cut …]\n").expect("a part of a line");
    assert_eq!(cut.below.as_deref(), Some("diff cut"));
    let huge = Patch::parse("@@ -4294967295,1 +4294967295,1 @@\n-a\n+b\n").expect("a diff");
    assert!(
        !huge
            .lines(Show {
                width: 40,
                theme: &Theme::plain(),
                most: 9,
                colours: None,
                numbers: true,
                layout: DiffLayout::Auto
            })
            .0
            .is_empty()
    );
}

proptest! {
    #[test]
    fn a_written_diff_round_trips(
        old in proptest::collection::vec("[a-c]{0,3}", 0..30), new in proptest::collection::vec("[a-c]{0,3}", 0..30),
        width in 1u16..200,
    ) {
        let text = |lines: &[String]| lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>();
        let (old, new) = (text(&old), text(&new));
        let unified = similar::TextDiff::from_lines(&old, &new).unified_diff().header("a", "b").to_string();
        let read = Patch::parse(&unified).unwrap_or_default();
        let made = Patch::between(&old, &new);
        prop_assert_eq!((read.added, read.removed, read.len()), (made.added, made.removed, made.len()));
        prop_assert_eq!(read.texts(), made.texts());
        let theme = Theme::plain();
        for patch in [read, made] {
            let (lines, _) = patch.lines(Show { width, theme: &theme, most: 20, colours: None, numbers: true, layout: DiffLayout::Auto });
            prop_assert!(lines.iter().all(|line| line.width() <= usize::from(width)));
        }
    }

    #[test]
    fn arbitrary_text_is_parsed_as_a_diff_without_harm(text in "(@@ -[0-9]{1,3}(,[0-9]{1,3})? \\+[0-9]{1,3} @@\n|[-+ ]?[ab]?\n|\\PC{0,9}\n){0,30}") {
        if let Some(patch) = Patch::parse(&text) {
            patch.lines(Show { most: 50, layout: DiffLayout::Sides, ..Show::whole(130, &Theme::plain()) });
        }
    }
}

#[test]
fn both_sides_are_highlighted_from_their_own_text() {
    let theme = Theme::builtin("dark").expect("exists");
    let patch = Patch::parse("@@ -1,2 +1,4 @@\n-x\n+// y\n+// z\n+// w\n fn a() {}\n").expect("a diff");
    let highlighter = crate::highlight::Highlighter::waiting();
    let (old, new) = patch.texts();
    let colours = Colours { old: highlighter.whole("rs", &old), new: highlighter.whole("rs", &new) };
    let show = Show { colours: Some(&colours), layout: DiffLayout::Sides, ..Show::whole(120, &theme) };
    let (lines, _) = patch.lines(show);
    let row = lines.last().expect("a row");
    let keywords = row
        .spans
        .iter()
        .filter(|span| span.content == "fn" && span.style.fg == theme.style(Role::CodeKeyword).fg);
    assert_eq!(keywords.count(), 2, "{row:?}");
}

#[test]
fn a_hunk_shows_its_position_and_a_long_one_is_split() {
    let old = lines("line", 1..=20);
    let new = old.replace("line 10\n", "line ten\n").replace("line 20\n", "");
    let parts = Patch::between(&old, &new).parts(200);
    let places: Vec<String> = parts.iter().map(|(part, _)| part.place()).collect();
    assert_eq!(places, ["@@ -7,7 +7,7 @@", "@@ -17,4 +17,3 @@"]);
    assert_eq!(parts[1].0.unified(), "@@ -17,4 +17,3 @@\n line 17\n line 18\n line 19\n-line 20");
    let parts = Patch::between("", &lines("new", 1..=25)).parts(10);
    let found: Vec<(String, bool)> =
        parts.iter().map(|(part, continues_hunk)| (part.place(), *continues_hunk)).collect();
    assert_eq!(
        found,
        [
            ("@@ -0,0 +1,10 @@".to_owned(), false),
            ("@@ -0,0 +11,10 @@".to_owned(), true),
            ("@@ -0,0 +21,5 @@".to_owned(), true)
        ]
    );
    // Only a line ending was added.
    assert_eq!(Patch::between("a", "a\n").parts(10).len(), 1);
}

proptest! {
    #[test]
    fn hunks_contain_all_lines_in_order(old in "([ab]\n){0,60}", new in "([abc]\n){0,60}", most in 1usize..20) {
        let whole = Patch::between(&old, &new);
        let parts = whole.clone().parts(most);
        prop_assert_eq!(parts.iter().map(|(part, _)| part.added).sum::<usize>(), whole.added);
        prop_assert_eq!(parts.iter().map(|(part, _)| part.removed).sum::<usize>(), whole.removed);
        let (before, after) = whole.texts();
        let of = |side: fn(&Patch) -> String| parts.iter().map(|(part, _)| side(part)).collect::<String>();
        prop_assert_eq!(of(|part| part.texts().0), before);
        prop_assert_eq!(of(|part| part.texts().1), after);
        prop_assert!(parts.iter().all(|(part, _)| part.len() < most * 2 + 2));
    }
}

#[test]
fn a_change_has_two_sides_in_wide_terminals_and_on_request() {
    assert!(!DiffLayout::Auto.has_sides(SIDES_FROM - 1) && DiffLayout::Auto.has_sides(SIDES_FROM));
    assert_eq!(DiffLayout::Auto.toggled(100), DiffLayout::Sides);
    assert_eq!(DiffLayout::Auto.toggled(160), DiffLayout::Unified);
    assert_eq!(DiffLayout::Sides.toggled(100), DiffLayout::Unified);
    assert!(!DiffLayout::Sides.has_sides(SIDES_NEED - 1));
}

#[test]
fn a_background_starts_with_its_line_and_ends_at_the_edge() {
    let theme = Theme::builtin("dark").expect("exists");
    let added = theme.style(Role::DiffAdd).bg;
    assert!(added.is_some());
    let long = "let name = ".to_owned() + &"word ".repeat(20);
    for layout in [DiffLayout::Unified, DiffLayout::Sides] {
        let show = Show { layout, ..Show::whole(70, &theme) };
        let diff = diff_lines("a\n", &format!("a\n{long}\n"), show);
        for line in &diff.lines {
            // The text before a line is not tinted, nor is the text after it.
            assert_eq!(line.style, Style::default(), "{line:?}");
            let is_new = line.spans.iter().any(|span| span.style.bg == added);
            assert!(!is_new || line.width() == 70 || layout == DiffLayout::Sides, "{line:?}");
        }
        let tinted = diff.lines.iter().filter(|line| line.spans.iter().all(|span| span.style.bg == added));
        assert_eq!(tinted.count(), 2, "{layout:?}: a line that is wrapped is tinted in all of its rows");
    }
}

#[test]
fn long_lines_are_shown_in_full_without_a_limit() {
    let long = "x".repeat(1_500);
    let shown = |most| {
        let plain = Theme::plain();
        let diff = diff_lines("a\n", &format!("a\n{long}; rm\n"), Show { most, ..Show::whole(80, &plain) });
        diff.lines.iter().map(|line| line.to_string().trim().to_owned()).collect::<String>()
    };
    assert!(shown(usize::MAX).contains("; rm") && !shown(usize::MAX).contains("more characters"));
    assert!(shown(10).contains("504 more characters"), "{}", shown(10));
}
