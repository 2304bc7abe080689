use proptest::prelude::*;

use super::*;

fn named(block: &CodeBlock, line: usize, text: &str) -> Vec<(String, Role)> {
    let mut at = 0;
    let piece = |(role, length): (Role, u32)| {
        let end = at + length as usize;
        let word = text[at..end].to_owned();
        at = end;
        (word, role)
    };
    block.pieces(line).expect("exists").into_iter().map(piece).collect()
}

#[test]
fn rust_gets_its_roles() {
    let line = "fn main() { let x = \"hi\"; } // done";
    let block = Highlighter::waiting().whole("rust,no_run", line);
    let pieces = named(&block, 0, line);
    let role = |word: &str| pieces.iter().find(|(text, _)| text.trim() == word).map(|(_, role)| *role);
    assert_eq!(role("fn"), Some(Role::CodeKeyword), "{pieces:?}");
    assert_eq!(role("main"), Some(Role::CodeFunction), "{pieces:?}");
    assert_eq!(role("\"hi\""), Some(Role::CodeString), "{pieces:?}");
    assert_eq!(role("// done"), Some(Role::CodeComment), "{pieces:?}");
}

#[test]
fn a_growing_block_keeps_its_state() {
    let highlighter = Highlighter::waiting();
    let block = highlighter.block("rust");
    block.push("/* a comment\n");
    block.push("still inside\nend */ fn x() {}\n");
    assert_eq!(block.len(), 3);
    assert_eq!(named(&block, 1, "still inside"), [("still inside".to_owned(), Role::CodeComment)]);
    assert_eq!(block.pieces(2), highlighter.whole("rs", "/* a\nb\nend */ fn x() {}").pieces(2));
    block.forget_before(2);
    assert_eq!(block.pieces(1), None);
    assert!(block.pieces(2).is_some() && block.is_ready(1));
}

#[test]
fn unknown_languages_and_long_lines_stay_plain() {
    let highlighter = Highlighter::waiting();
    for language in ["", "text", "klingon", "{.}"] {
        let block = highlighter.whole(language, "fn main() {}");
        assert!(block.is_ready(0), "{language}");
        assert_eq!(block.pieces(0), None, "{language}");
    }
    let block = highlighter.whole("rust", &"x".repeat(5000));
    assert_eq!(block.pieces(0), Some(Pieces::new()));
    assert!(Highlighter::off().whole("rust", "fn").is_ready(0));
}

#[test]
fn languages_are_recognised_by_their_usual_names() {
    let highlighter = Highlighter::waiting();
    for language in [
        "rust",
        "rs",
        "python",
        "py",
        "js",
        "javascript",
        "ts",
        "typescript",
        "tsx",
        "sh",
        "bash",
        "shell",
        "json",
        "yaml",
        "yml",
        "toml",
        "go",
        "golang",
        "c",
        "cpp",
        "c++",
        "java",
        "sql",
        "html",
        "css",
        "diff",
        "markdown",
        "dockerfile",
        "make",
        "ruby",
        "php",
        "{.python}",
        "Rust title=x",
    ] {
        assert!(highlighter.whole(language, "x").pieces(0).is_some(), "{language}");
    }
}

#[test]
fn the_thread_notifies_when_done_and_ends() {
    let (sender, done) = mpsc::channel();
    let sender = Mutex::new(sender);
    let highlighter = Highlighter::in_thread(move || {
        let _ = sender.lock().expect("not poisoned").send(());
    });
    let block = highlighter.whole("rust", "fn main() {}\nlet x = 1;");
    done.recv().expect("the worker reports");
    assert!(block.is_ready(1));
    assert_eq!(block.pieces(0), Highlighter::waiting().whole("rust", "fn main() {}").pieces(0));
    drop(block);
    drop(highlighter);
    assert!(done.recv().is_err(), "the thread dropped the callback");
}

#[test]
fn plain_text_starts_no_thread() {
    let highlighter = Highlighter::in_thread(|| {});
    assert!(highlighter.whole("text", "a").is_ready(0));
    assert!(matches!(&*highlighter.0, Engine::Thread { jobs, .. } if jobs.get().is_none()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn spans_cover_the_line_and_end_between_characters(
        lines in proptest::collection::vec("[a-z\"'/*{}()<>#漢é\\\\ \t=:;0-9]{0,30}", 1..6),
        language in prop_oneof![Just("rust"), Just("python"), Just("html"), Just("sh"), Just("markdown")],
    ) {
        let block = Highlighter::waiting().whole(language, &lines.join("\n"));
        for (n, line) in lines.iter().enumerate() {
            let Some(pieces) = block.pieces(n) else { continue };
            let mut at = 0;
            for (_, length) in pieces {
                at += length as usize;
                prop_assert!(line.is_char_boundary(at));
            }
            prop_assert_eq!(at, line.len());
        }
    }
}
