use unicode_segmentation::UnicodeSegmentation;

use super::words::Case;
use super::*;
use proptest::prelude::*;

fn with(text: &str, width: u16) -> Composer {
    let mut composer = Composer::default();
    composer.set_width(width);
    composer.set(text);
    composer
}

fn shown(text: &str, width: u16) -> Vec<&str> {
    layout::rows(text, width).into_iter().map(|row| &text[row]).collect()
}

#[test]
fn rows_break_after_spaces_or_hard_without_any() {
    assert_eq!(shown("hello big world", 10), ["hello big ", "world"]);
    assert_eq!(shown("aaaaaaaaaaaa", 5), ["aaaaa", "aaaaa", "aa"]);
    assert_eq!(shown("a\n\nb\n", 5), ["a", "", "b", ""]);
    assert_eq!(shown("漢字漢字", 5), ["漢字", "漢字"]);
    assert_eq!(shown("", 5), [""]);
}

#[test]
fn the_caret_is_placed_after_wide_characters() {
    let text = "a漢字b";
    let rows = layout::rows(text, 20);
    assert_eq!(layout::position(text, &rows, text.len() - 1), (0, 5));
    assert_eq!(layout::offset(text, &rows, 0, 2), 1);
    assert_eq!(layout::offset(text, &rows, 0, 3), 4);
}

#[test]
fn deleting_removes_whole_graphemes() {
    let mut composer = with("a👨\u{200d}👩\u{200d}👧", 20);
    composer.delete_left();
    assert_eq!(composer.text(), "a");
    let mut composer = with("e\u{301}x", 20);
    composer.left();
    composer.delete_left();
    assert_eq!(composer.text(), "x");
}

#[test]
fn words_lines_kill_and_yank() {
    let mut composer = with("one two-three\nfour", 20);
    composer.delete_word_left();
    assert_eq!(composer.text(), "one two-three\n");
    composer.yank();
    assert_eq!(composer.text(), "one two-three\nfour");
    composer.up();
    composer.delete_to_end();
    assert_eq!(composer.text(), "one \nfour");
    composer.delete_to_start();
    assert_eq!(composer.text(), "\nfour");
    for _ in 0..3 {
        composer.undo();
    }
    assert_eq!(composer.text(), "one two-three\n");
}

#[test]
fn history_keeps_the_draft() {
    let mut composer = with("draft", 20);
    composer.set_history(vec!["first".into(), "second\nline".into()]);
    composer.up();
    assert_eq!(composer.text(), "second\nline");
    composer.up();
    composer.up();
    assert_eq!(composer.text(), "first");
    composer.up();
    assert_eq!(composer.text(), "first");
    composer.down();
    composer.down();
    assert_eq!(composer.text(), "draft");
}

#[test]
fn a_draft_survives_history_changes_while_browsing() {
    let shown = || {
        let mut composer = with("draft", 20);
        composer.set_history(vec!["first".into(), "second".into()]);
        composer.up();
        composer.up();
        composer
    };
    // Another conversation with fewer messages was opened.
    let mut composer = shown();
    composer.set_history(vec!["other".into()]);
    assert_eq!(composer.text(), "draft");
    composer.up();
    assert_eq!(composer.text(), "other");
    let mut composer = shown();
    composer.set_history(Vec::new());
    composer.up();
    composer.down();
    assert_eq!(composer.text(), "draft");
    // An earlier message is edited, and undone.
    let mut composer = shown();
    composer.insert('!');
    composer.down();
    assert_eq!(composer.text(), "first!");
    composer.undo();
    composer.undo();
    assert_eq!(composer.text(), "draft");
    // Text that is inserted stays.
    let puts: [fn(&mut Composer); 2] = [|composer| composer.set("put"), |composer| composer.put_back("put")];
    for put in puts {
        let mut composer = shown();
        put(&mut composer);
        let text = composer.text().to_owned();
        composer.down();
        assert_eq!(composer.text(), text);
    }
}

#[test]
fn pastes_are_cleaned_and_long_ones_become_a_mark() {
    let mut composer = with("", 40);
    composer.paste("a\u{1b}[201~y\r\nb\r");
    assert_eq!(composer.text(), "a^[[201~y\nb\n");
    composer.clear();
    let long = "line\n".repeat(30);
    composer.paste(&long);
    assert_eq!(composer.text(), "[paste 1: 30 lines]");
    composer.insert('!');
    assert_eq!(composer.clone().take(), format!("{long}!"));
    composer.delete_left();
    composer.delete_left();
    assert_eq!(composer.text(), "");
}

#[test]
fn backslash_and_enter_is_a_new_line() {
    let mut composer = with("a\\", 20);
    assert!(composer.newline_after_backslash());
    assert_eq!(composer.text(), "a\n");
    assert!(!composer.newline_after_backslash());
}

#[test]
fn redo_reverts_the_undo_until_something_is_typed() {
    let mut composer = with("one ", 40);
    composer.insert_text("two");
    composer.undo();
    assert_eq!(composer.text(), "one ");
    composer.redo();
    assert_eq!(composer.text(), "one two");
    composer.undo();
    composer.insert('x');
    composer.redo();
    assert_eq!(composer.text(), "one x");
}

#[test]
fn consecutive_kills_are_yanked_together_and_older_ones_in_turn() {
    let mut composer = with("one two three", 40);
    composer.delete_word_left();
    composer.delete_word_left();
    assert_eq!(composer.text(), "one ");
    composer.left();
    composer.delete_to_start();
    composer.text_end();
    composer.yank();
    assert_eq!(composer.text(), " one");
    composer.yank_pop();
    assert_eq!(composer.text(), " two three");
    composer.yank_pop();
    assert_eq!(composer.text(), " one");
    composer.left();
    composer.yank_pop();
    assert_eq!(composer.text(), " one", "only directly after a yank");
}

#[test]
fn characters_and_words_are_transposed_and_change_case() {
    let mut composer = with("ab", 40);
    composer.transpose();
    assert_eq!(composer.text(), "ba");
    let mut composer = with("one, two", 40);
    composer.text_start();
    composer.word_right();
    composer.transpose_words();
    assert_eq!((composer.text(), composer.caret()), ("two, one", 8));
    composer.text_start();
    composer.change_case(Case::Upper);
    composer.change_case(Case::Capital);
    assert_eq!(composer.text(), "TWO, One");
}

#[test]
fn a_mark_moves_and_is_deleted_as_one_and_can_be_opened() {
    let long = "line\n".repeat(30);
    let mut composer = with("a ", 80);
    composer.paste(&long);
    let end = composer.caret();
    composer.left();
    assert_eq!(composer.caret(), 2);
    composer.right();
    assert_eq!(composer.caret(), end);
    composer.word_left();
    assert_eq!(composer.caret(), 2);
    composer.go(5);
    assert!(composer.caret() == 2 || composer.caret() == end);
    assert!(composer.open_paste());
    assert_eq!(composer.text(), format!("a {long}"));
    composer.undo();
    assert_eq!(composer.take(), format!("a {long}"), "the mark still represents it");
}

#[test]
fn a_draft_is_restored_with_its_pastes() {
    let long = "x".repeat(3000);
    let mut composer = with("see ", 80);
    composer.paste(&long);
    let kept = serde_json::to_string(&composer.draft()).unwrap();
    let mut other = with("", 80);
    other.restore(serde_json::from_str(&kept).unwrap());
    assert_eq!(other.text(), composer.text());
    assert_eq!(other.take(), format!("see {long}"));
    let mut busy = with("", 80);
    busy.paste(&"y".repeat(3000));
    busy.restore(composer.draft());
    assert_eq!(busy.take(), format!("see {long}\n\n{}", "y".repeat(3000)));
}

proptest! {
    #[test]
    fn rows_contain_the_whole_text_and_fit(text in "([a-z ]|漢|\n|\t|e\u{301}){0,60}", width in 4u16..20) {
        let rows = layout::rows(&text, width);
        let mut joined = String::new();
        for (i, row) in rows.iter().enumerate() {
            joined.push_str(&text[row.clone()]);
            if rows.get(i + 1).is_some_and(|next| next.start > row.end) {
                joined.push('\n');
            }
        }
        prop_assert_eq!(&joined, &text);
        for (at, _) in text.grapheme_indices(true) {
            let (row, column) = layout::position(&text, &rows, at);
            prop_assert!(row < rows.len());
            prop_assert!(column <= usize::from(width) + 1, "column {} of {}", column, width);
        }
    }

    #[test]
    fn no_edit_breaks_the_text(edits in proptest::collection::vec((0u8..26, any::<char>()), 0..60), width in 1u16..12) {
        let mut composer = with("héllo 漢字 👨\u{200d}👩\u{200d}👧", width);
        for (edit, c) in edits {
            match edit {
                0..=3 => composer.insert(c),
                4 => composer.delete_left(),
                5 => composer.delete_right(),
                6 => composer.delete_word_left(),
                7 => composer.delete_word_right(),
                8 => composer.left(),
                9 => composer.right(),
                10 => composer.word_left(),
                11 => composer.word_right(),
                12 => composer.up(),
                13 => composer.down(),
                14 => composer.yank(),
                15 => composer.undo(),
                16 => composer.delete_to_start(),
                17 => composer.redo(),
                18 => composer.yank_pop(),
                19 => composer.transpose(),
                20 => composer.transpose_words(),
                21 => composer.change_case(Case::Capital),
                22 => composer.paste(&"long ".repeat(400)),
                23 => {
                    composer.open_paste();
                    composer.clear();
                }
                24 => composer.delete_to_end(),
                _ => composer.paste("x\ny"),
            }
            prop_assert!(composer.text().is_char_boundary(composer.caret()));
        }
    }
}

#[test]
fn sent_text_regains_its_paste_marks() {
    let sent = |text, shown| {
        let draft = Draft::sent(text, Some(shown));
        let marks: Vec<String> = draft.pastes.iter().map(|paste| paste.text.clone()).collect();
        (draft.text, marks)
    };
    let both = sent("see AAA\nand BBB.", "see [paste 1: 20 lines] and [paste 2: 30 lines].");
    assert_eq!(both, ("see AAA\nand BBB.".into(), vec![]), "the text differs");
    let both = sent("see AAA and BBB.", "see [paste 1: 20 lines] and [paste 2: 30 lines].");
    assert_eq!(both.1, ["AAA", "BBB"]);
    assert_eq!(both.0, "see [paste 1: 20 lines] and [paste 2: 30 lines].");
    let next_to = sent("AB", "[paste 1: 20 lines][paste 2: 30 lines]");
    assert_eq!(next_to, ("AB".into(), vec![]), "their border is unknown");
    for (text, shown) in [("", "[paste 1: 2 lines] x"), ("[paste ", "[paste "), ("x]", "[paste x]")] {
        assert_eq!(Draft::sent(text, Some(shown)).whole(), text);
    }
}
