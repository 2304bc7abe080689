//! What a refused call tells the model: with it, and with what the call itself says, it can try again without another Read.

use serde_json::{Value, json};

use crate::testing::Sandbox;

const RUST: &str = "fn a() {\n    if x {\n        one();\n        two();  \n    }\n}\n";
const GO: &str = "func a() {\n\tif x {\n\t\tone()\n\t}\n}\n";

/// What the model does next.
enum Next {
    /// The same edit with another quotation.
    Quote(&'static str),
    /// The same call with another argument, because of these words.
    With(&'static str, (&'static str, &'static str)),
    /// Something else, or nothing, because of these words.
    Nothing(&'static str),
    Read,
}
use Next::{Nothing, Quote, Read, With};

struct Refused {
    name: String,
    tool: &'static str,
    /// What the model read of the file `f`, if that is not what is in it.
    seen: Option<&'static str>,
    file: String,
    args: Value,
    next: Next,
}

fn edit(old: &str, new: &str) -> Value {
    json!({"file_path": "f", "old_string": old, "new_string": new})
}

fn quoted(file: &str, old: &str, next: Next) -> Refused {
    let (name, file, args) = (old.to_owned(), file.to_owned(), edit(old, "    other();\n"));
    Refused { name, tool: "Edit", seen: None, file, args, next }
}

/// The refused cases of `edits.jsonl`.
fn recorded() -> Vec<Refused> {
    let next = |name: &str| match name {
        "blank line missing in old" => Quote("    }\n\n    pub fn run(&self) -> io::Result<()> {\n"),
        "\"...\" for the middle, in old and new" => Quote(
            "    def parse(self, text):\n        if not text:\n            return None\n        m = \
             re.match(r\"(\\d+)\\s+(\\w+)\", text)\n        if m is None:\n            return None\n        count = \
             int(m.group(1))\n        name = m.group(2)\n",
        ),
        "three places, no replace_all" => Quote("        if m is None:\n            return None\n"),
        "stale: another version of two lines" => {
            Quote("        while tries < 3 {\n            tries += 1;\n            if self.attempt()? {\n")
        }
        "typographic quotes in old" => Quote("        Err(io::Error::other(\"gave up\"))\n"),
        "whole function, one comment word differs" => {
            Quote("        // keep going when one attempt fails\n        while tries < 3 {\n")
        }
        "one long line broken in two" => Quote("    pub fn new(id: u32, name: &str) -> Self {\n"),
        "diff marks \"-\" and \"+\"" => Quote("        while tries < 3 {\n"),
        other => panic!("{other}"),
    };
    let cases = include_str!("edits.jsonl")
        .lines()
        .map(|line| -> Value { serde_json::from_str(line).expect("JSON") });
    let refused = cases.filter(|case| case["want"] == "refused").map(|case| {
        let text = |member: &str| case[member].as_str().expect("text").to_owned();
        let args = edit(&text("old_string"), &text("new_string"));
        let (name, file) = (text("name"), text("file"));
        Refused { next: next(&name), name, tool: "Edit", seen: None, file, args }
    });
    refused.collect()
}

/// Others, as models make them.
fn own() -> Vec<Refused> {
    let mut all = vec![
        // In blanks only, but not certain, or in several places.
        quoted("a {\n  one\n}\nb {\n  one\n}\n", "    one\n", Quote("b {\n  one\n")),
        quoted("one \none\t\n", "one  \n", Quote("one\t\n")),
        quoted("and\u{a0}two and\u{2009}two", "and two", Quote("and\u{a0}two and\u{2009}two")),
        quoted("if x:\n    a\nb\n", "if x:\n    a\n    b\n", Quote("if x:\n    a\nb\n")),
        quoted("if x:\n    a\n    b\n", "if x:\n    a\nb\n", Quote("if x:\n    a\n    b\n")),
        quoted(RUST, "  two();\n  }\n", Quote("        two();  \n    }\n")),
        quoted(GO, "   one() \n }\n", Quote("\t\tone()\n\t}\n")),
        // With the numbers of lines, or of other ones.
        quoted(RUST, "3:         one();\n5:         two();\n", Quote("        one();\n        two();  \n")),
        quoted(RUST, "     3\t        once();\n", Quote("        one();\n")),
        // Similar.
        quoted("say \"hi\"\n", "say “hi”\n", Quote("say \"hi\"\n")),
        quoted("say “hi”\n", "say ”hi”\n", Quote("say “hi”\n")),
        quoted("wait…\n", "wait..", Quote("wait…\n")),
        quoted(RUST, "        one()\n", Quote("        one();\n")),
        quoted(RUST, "    if x {\n        two();\n", Quote("    if x {\n        one();\n        two();  \n")),
        quoted(RUST, "fn a(x: bool) {\n    if x {\n", Quote("fn a() {\n    if x {\n")),
        quoted(
            "let cafe\u{301} = 1;\nlet b = 2;\n",
            "let café = 1;\nlet b = 2;\n",
            Quote("= 1;\nlet b = 2;\n"),
        ),
        // Nothing is like it.
        quoted(RUST, "class Zebra extends Quux:\n", Read),
        // In several places.
        quoted(
            "fn a() {\n    run();\n}\nfn b() {\n    run();\n}\n",
            "    run();\n",
            Quote("fn b() {\n    run();\n"),
        ),
        quoted(
            "if a {\n    x();\n    return;\n}\nif b {\n    x();\n    return;\n}\n",
            "    return;\n",
            Quote("if b {\n    x();\n    return;\n"),
        ),
    ];
    let other = |name: &str, tool, file: &str, args, next| {
        let (name, file) = (name.to_owned(), file.to_owned());
        Refused { name, tool, seen: None, file, args, next }
    };
    all.extend([
        other(
            "it is there already",
            "Edit",
            "let x = compute();\n",
            edit("let x = 1;", "let x = compute();"),
            Nothing("the change may be there already"),
        ),
        other("the same text", "Edit", RUST, edit("one();", "one();"), Nothing("nothing would change")),
        other("an empty quotation", "Edit", RUST, edit("", "x"), Quote("one();")),
        other(
            "replace_all without a Read",
            "Edit",
            "a a\n",
            json!({"file_path": "f", "old_string": "a", "new_string": "b", "replace_all": true}),
            Read,
        ),
        other(
            "another folder",
            "Edit",
            "one\n",
            json!({"file_path": "lib/f", "old_string": "one", "new_string": "two"}),
            With("did you mean f?", ("file_path", "f")),
        ),
        other(
            "another name of an argument",
            "Edit",
            "one\n",
            json!({"file_path": "f", "oldString": "one", "new_string": "two"}),
            With("old_string", ("old_string", "one")),
        ),
        other(
            "a foreign name of an argument",
            "Edit",
            "one\n",
            json!({"file_path": "f", "search": "one", "new_string": "two"}),
            With("old_string", ("old_string", "one")),
        ),
        other(
            "a missing argument",
            "Edit",
            "one\n",
            json!({"file_path": "f", "old_string": "one"}),
            With("`new_string` is missing", ("new_string", "two")),
        ),
        other("a folder", "Read", "one\n", json!({"file_path": "."}), Nothing("use List")),
        other(
            "a missing file to read",
            "Read",
            "one\n",
            json!({"file_path": "src/f"}),
            With("did you mean f?", ("file_path", "f")),
        ),
        other(
            "a file that was not read",
            "Write",
            "one\n",
            json!({"file_path": "f", "content": "two\n"}),
            Read,
        ),
    ]);
    let stale = |name: &str, tool, args, next| Refused {
        name: name.to_owned(),
        tool,
        seen: Some("fn a() {\n    one();\n}\n"),
        file: "fn a() {\n    first();\n    second();\n}\n".to_owned(),
        args,
        next,
    };
    all.extend([
        stale(
            "it changed, where the text was",
            "Edit",
            edit("    one();\n", "    two();\n"),
            Quote("    first();\n    second();\n"),
        ),
        stale(
            "it changed, and the text never was there",
            "Edit",
            edit("    third();\n", "    two();\n"),
            Quote("    second();\n"),
        ),
        stale(
            "it changed, and has the text twice",
            "Edit",
            edit("();\n", "(1);\n"),
            Quote("    second();\n"),
        ),
        stale(
            "it changed, to be replaced",
            "Write",
            json!({"file_path": "f", "content": "fn a() {}\n"}),
            Read,
        ),
    ]);
    all
}

/// Whether the model knows all that its next call quotes, by the refusal or by its own call.
fn is_known(quote: &str, text: &str, args: &Value) -> bool {
    let known = text
        .replace('·', " ")
        .replace('→', "\t")
        .replace("<U+00A0>", "\u{a0}")
        .replace("<U+2009>", "\u{2009}");
    let own = args["old_string"].as_str().unwrap_or_default();
    quote.lines().all(|line| known.contains(line) || own.contains(line))
}

#[tokio::test]
async fn a_refusal_spares_the_model_another_read() {
    let (mut all, mut spared) = (0, 0);
    for case in recorded().into_iter().chain(own()) {
        let Refused { name, tool, seen, file, mut args, next } = case;
        let sandbox = Sandbox::new();
        if let Some(seen) = seen {
            sandbox.write("f", seen);
            sandbox.ok("Read", json!({"file_path": "f"})).await;
        }
        sandbox.write("f", &file);
        let text = sandbox.refused(tool, args.clone()).await;
        assert_eq!(sandbox.read("f"), file.as_bytes(), "{name}");
        all += 1;
        spared += usize::from(!matches!(next, Read));
        match next {
            Quote(quote) => {
                // An empty quotation says nothing, and what the file contains is known.
                assert!(args["old_string"] == "" || is_known(quote, &text, &args), "{name}: {text}");
                args["old_string"] = json!(quote);
            }
            With(words, (member, value)) => {
                assert!(text.contains(words), "{name}: {text}");
                args[member] = json!(value);
                let own = ["file_path", "old_string", "new_string"];
                args.as_object_mut().expect("arguments").retain(|member, _| own.contains(&member.as_str()));
            }
            Nothing(words) => {
                assert!(text.contains(words), "{name}: {text}");
                continue;
            }
            Read => {
                assert!(!text.contains("did you mean"), "{name}: {text}");
                continue;
            }
        }
        sandbox.ok(tool, args).await;
    }
    assert_eq!((spared, all), (38, 42), "refusals without another Read");
}
