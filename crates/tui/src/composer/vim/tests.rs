use proptest::prelude::*;

use super::*;
use crate::composer::paste::Draft;

/// The text after these keys; `|` is the caret, before and after. `<` is Escape.
fn run(before: &str, keys: &str) -> String {
    let mut composer = Composer::default();
    composer.set_width(80);
    let at = before.find('|').expect("contains a caret");
    composer.set(before.replacen('|', "", 1));
    composer.go(at);
    let mut vim = Vim { mode: VimMode::Normal, ..Vim::default() };
    press(&mut vim, &mut composer, keys);
    let mut after = composer.text().to_owned();
    after.insert(composer.caret(), '|');
    after
}

fn press(vim: &mut Vim, composer: &mut Composer, keys: &str) {
    for c in keys.chars() {
        match (c, vim.inserts()) {
            ('<', _) => {
                vim.escape(composer);
            }
            ('\u{12}', false) => {
                composer.redo();
                vim.settle(composer);
            }
            (c, true) => {
                composer.insert(c);
                vim.note_typed(c);
            }
            (c, false) => vim.key(composer, c),
        }
    }
}

#[test]
fn motions() {
    for (before, keys, after) in [
        ("|one two", "w", "one |two"),
        ("one, |two", "b", "one|, two"),
        ("one, |two", "B", "|one, two"),
        ("|one two", "e", "on|e two"),
        ("one tw|o", "ge", "on|e two"),
        ("|a.b c", "W", "a.b |c"),
        ("|one", "$", "on|e"),
        ("  on|e", "0", "|  one"),
        ("  on|e", "^", "  |one"),
        ("|a b c d", "3w", "a b c |d"),
        ("|one two", "fo", "one tw|o"),
        ("|abcabc", "fc;", "abcab|c"),
        ("|abcabc", "tc", "a|bcabc"),
        ("abcab|c", "Fa", "abc|abc"),
        ("|f(a[b])", "%", "f(a[b]|)"),
        ("a\nb\n|c", "gg", "|a\nb\nc"),
        ("|a\nb\nc", "G", "a\nb\n|c"),
        ("|a\nb\nc", "2G", "a\n|b\nc"),
        ("|a\nb\n\nc\nd", "}", "a\nb\n|\nc\nd"),
        ("a\nb\n\nc\n|d", "{", "a\nb\n|\nc\nd"),
        ("a|b\ncd", "j", "ab\nc|d"),
        ("|漢字 é", "l", "漢|字 é"),
    ] {
        assert_eq!(run(before, keys), after, "{before} {keys}");
    }
}

#[test]
fn operators_with_motions_counts_and_lines() {
    for (before, keys, after) in [
        ("|one two three", "dw", "|two three"),
        ("|one two three", "d2w", "|three"),
        ("|one two three", "2dw", "|three"),
        ("one |two", "dw", "one| "),
        ("one |two\nthree", "dw", "one| \nthree"),
        ("|one two", "de", "| two"),
        ("one |two", "db", "|two"),
        ("one t|wo", "D", "one |t"),
        ("one t|wo", "d0", "|wo"),
        ("|one two", "dfw", "|o"),
        ("|one (two)", "dt(", "|(two)"),
        ("a\n|b\nc", "dd", "a\n|c"),
        ("a\nb\n|c", "dd", "a\n|b"),
        ("|a\nb\nc", "2dd", "|c"),
        ("|a\nb\nc", "dj", "|c"),
        ("a\nb\n|c", "dgg", "|"),
        ("|one two", "cwx<", "|x two"),
        ("|one two", "c2wx<", "|x"),
        ("  |one\ntwo", "ccx<", "|x\ntwo"),
        ("|one two", "yyp", "one two\n|one two"),
        ("|one\ntwo", "ddp", "two\n|one"),
        ("|one two", "ywP", "one| one two"),
        ("|one two", "gUw", "|ONE two"),
        ("ONE |TWO", "guiw", "ONE |two"),
        ("|aBc", "g~~", "|AbC"),
        ("|abc", "x", "|bc"),
        ("ab|c", "X", "a|c"),
        ("|abc", "3x", "|"),
        ("|abc", "rz", "|zbc"),
        ("|abc", "2~", "AB|c"),
        ("|a\n  b", "J", "a| b"),
        ("a|b", "sX<", "a|X"),
        ("f|(a, b) c", "d%", "f| c"),
    ] {
        assert_eq!(run(before, keys), after, "{before} {keys}");
    }
}

#[test]
fn text_objects() {
    for (before, keys, after) in [
        ("one t|wo three", "diw", "one | three"),
        ("one t|wo three", "daw", "one |three"),
        ("one t|wo", "daw", "on|e"),
        ("a.b|.c d", "diW", "| d"),
        ("say \"he|llo you\" now", "di\"", "say \"|\" now"),
        ("say \"he|llo you\" now", "da\"", "say |now"),
        ("|say 'x' now", "ci'y<", "say '|y' now"),
        ("f(a, (b|), c)", "di(", "f(a, (|), c)"),
        ("f(a, (b|), c)", "d2i(", "f(|)"),
        ("f(a, b|)", "da(", "|f"),
        ("{\n  a|\n}", "di{", "{|}"),
        ("[a|b]", "yi]$p", "[ab]a|b"),
        ("a\n\nb\n|c\n\nd", "dip", "a\n\n|\nd"),
        ("a\n\nb\n|c\n\nd", "dap", "a\n\n|d"),
        ("<a|b>", "ci>x<", "<|x>"),
    ] {
        assert_eq!(run(before, keys), after, "{before} {keys}");
    }
}

#[test]
fn dot_repeats_the_last_change() {
    for (before, keys, after) in [
        ("|one two three", "dw.", "|three"),
        ("|one two three", "cwx<w.", "x |x three"),
        ("|a\nb", "A;<j.", "a;\nb|;"),
        ("|a", "ox<.", "a\nx\n|x"),
        ("|abcd", "x2.", "|d"),
        ("|a", "3ix<", "xx|xa"),
        ("|one two", "ciwx<w.", "x |x"),
        ("|ab", "~.", "A|B"),
    ] {
        assert_eq!(run(before, keys), after, "{before} {keys}");
    }
}

#[test]
fn undo_reverts_a_whole_change_and_redo_restores_it() {
    assert_eq!(run("|one two", "cwlong text<u"), "|one two");
    assert_eq!(run("|one two", "cwlong text<u\u{12}"), "long tex|t two");
    assert_eq!(run("|one two", "dwdwuu"), "|one two");
    assert_eq!(run("|a\nb\nc", "3Ju"), "|a\nb\nc");
}

#[test]
fn visual_mode_selects_and_changes() {
    for (before, keys, after) in [
        ("|one two", "ved", "| two"),
        ("|one two", "vwy$p", "one twoone |t"),
        ("a\n|b\nc", "Vd", "a\n|c"),
        ("|a\nb\nc", "Vjd", "|c"),
        ("one t|wo", "viwU", "one |TWO"),
        ("f(a|b)", "vi(cx<", "f(|x)"),
        ("|abc", "vlrz", "|zzc"),
        ("on|e two", "vbd", "| two"),
        ("|one two", "veohd", "| two"),
        ("|one two", "yiwwviwp", "one on|e"),
    ] {
        assert_eq!(run(before, keys), after, "{before} {keys}");
    }
}

#[test]
fn escape_leaves_one_level_at_a_time() {
    let (mut vim, mut composer) = (Vim::default(), Composer::default());
    press(&mut vim, &mut composer, "ab");
    assert!(vim.escape(&mut composer));
    assert_eq!((vim.mode(), composer.caret()), (VimMode::Normal, 1));
    vim.key(&mut composer, '2');
    vim.key(&mut composer, 'd');
    assert_eq!(vim.pending(), "2d");
    assert!(vim.escape(&mut composer));
    assert!(!vim.escape(&mut composer), "nothing is left to close");
}

proptest! {
    #[test]
    fn no_command_breaks_the_text(
        text in "([a-z ,.(){}\"]|漢|\n|\t|e\u{301}|👨\u{200d}👩){0,40}",
        keys in "[a-zA-Z0-9<.;,%$^{}()\"'~ 漢]{0,40}",
        at in 0usize..40,
    ) {
        let mut composer = Composer::default();
        composer.set_width(12);
        composer.set(text);
        composer.go(at);
        let mut vim = Vim { mode: VimMode::Normal, ..Vim::default() };
        for c in keys.chars() {
            press(&mut vim, &mut composer, &c.to_string());
            prop_assert!(composer.text().is_char_boundary(composer.caret()));
            if let Some(range) = vim.selection(&composer) {
                prop_assert!(composer.text().get(range).is_some());
            }
            prop_assert!(composer.text().len() < 1_000_000);
        }
    }
}

/// What keys outside of the vi commands, and other parts of the program, do with the text.
const ELSEWHERE: [fn(&mut Composer); 20] = [
    Composer::up,
    Composer::down,
    |composer| composer.paste("漢字\n👨\u{200d}👩 é"),
    |composer| composer.paste(&"e\u{301}漢\n".repeat(60)),
    |composer| composer.insert_text("\u{301}"),
    |composer| composer.put_back("漢"),
    |composer| composer.set("é"),
    |composer| {
        composer.set_history(vec![Draft::sent("e\u{301}漢\nx", None), Draft::sent("👨\u{200d}👩漢", None)]);
    },
    Composer::undo,
    Composer::redo,
    Composer::delete_left,
    Composer::delete_right,
    Composer::delete_word_left,
    Composer::delete_to_end,
    Composer::delete_to_start,
    Composer::yank,
    Composer::yank_pop,
    Composer::transpose,
    Composer::transpose_words,
    Composer::clear,
];

proptest! {
    #[test]
    fn no_key_breaks_a_selection(
        text in "([a-c ]|漢|\n|e\u{301}|👨\u{200d}👩){0,20}",
        keys in prop::collection::vec(
            prop_oneof![
                3 => prop::sample::select("vVovjkhlGg$0wbdpyPuiacxJ~<漢".chars().collect::<Vec<_>>()).prop_map(Ok),
                2 => (0..ELSEWHERE.len()).prop_map(Err),
            ],
            0..40,
        ),
        at in 0usize..60,
    ) {
        let mut composer = Composer::default();
        composer.set_width(12);
        composer.set_history(vec![Draft::sent("漢", None), Draft::sent("a\u{301}b\n漢漢漢", None)]);
        composer.set(text);
        composer.go(at);
        let mut vim = Vim { mode: VimMode::Normal, ..Vim::default() };
        for key in keys {
            match key {
                Ok(c) => press(&mut vim, &mut composer, &c.to_string()),
                Err(other) => {
                    ELSEWHERE[other](&mut composer);
                    vim.settle(&mut composer);
                }
            }
            let text = composer.text();
            for at in [composer.caret(), composer.anchor()] {
                prop_assert!(text.is_char_boundary(at), "{at} of {text:?}");
            }
            if let Some(range) = vim.selection(&composer) {
                prop_assert!(text.get(range.clone()).is_some(), "{range:?} of {text:?}");
            }
        }
    }
}

#[test]
fn a_selection_follows_its_text() {
    let mut composer = Composer::default();
    composer.set_width(80);
    composer.set("漢字 two");
    composer.text_start();
    let mut vim = Vim { mode: VimMode::Normal, ..Vim::default() };
    press(&mut vim, &mut composer, "wv");
    composer.text_start();
    composer.insert_text("é");
    let selected = vim.selection(&composer).expect("a selection");
    assert_eq!(&composer.text()[selected], "漢字 t", "from the caret to where it began");
    // Another text has none.
    composer.set_history(vec![Draft::sent("é", None)]);
    composer.text_start();
    composer.up();
    assert_eq!(composer.text(), "é");
    assert_eq!(vim.selection(&composer), Some(2..2));
    press(&mut vim, &mut composer, "d");
    assert_eq!(composer.text(), "é");
}
