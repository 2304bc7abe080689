use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::testing::Sandbox;
use aye_core::contract::suspension::{ResumeDecisionAction, ToolCallResume};
use aye_core::contract::tool::{FilePreview, ToolCallContext};

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({"file_path": path, "old_string": old, "new_string": new})
}

fn write(path: &str, content: &str) -> Value {
    json!({"file_path": path, "content": content})
}

fn decided() -> ToolCallContext {
    let mut ctx = ToolCallContext::test_default();
    ctx.resume = Some(ToolCallResume {
        decision_id: "d".into(),
        action: ResumeDecisionAction::Resume,
        result: Value::Null,
        reason: None,
        arguments: None,
        profile: None,
        updated_at: 0,
    });
    ctx
}

async fn preview(sandbox: &Sandbox, tool: &str, args: &Value, ctx: &ToolCallContext) -> FilePreview {
    sandbox.tool(tool).preview(args, ctx).await.expect("a preview").remove(0)
}

#[tokio::test]
async fn write_creates_files_and_folders() {
    let sandbox = Sandbox::new();
    let args = write("a/b/c.txt", "hello\n");
    let shown = preview(&sandbox, "Write", &args, &ToolCallContext::test_default()).await;
    assert!(!sandbox.path("a").exists(), "a preview changes nothing");
    let result = sandbox.call("Write", args).await.expect("written");
    assert_eq!(result.model_text(), "created a/b/c.txt (+1 -0)");
    assert_eq!(sandbox.read("a/b/c.txt"), b"hello\n");
    let details = result.details.expect("details");
    assert_eq!(details["diff"], "--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1 @@\n+hello\n");
    assert_eq!(details["path"], json!(sandbox.path("a/b/c.txt")));
    assert_eq!((shown.before, shown.new_text.as_deref()), (None, Some("hello\n")));
    assert_eq!(shown.after, crate::seen_files::hash(b"hello\n"));
    assert_eq!(shown.path, sandbox.path("a/b/c.txt"));
}

#[tokio::test]
async fn write_replaces_only_files_that_were_read() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "old\n");
    let text = sandbox.refused("Write", write("a", "new\n")).await;
    assert_eq!(text, "a exists; Read it before replacing it, or use Edit");
    sandbox.ok("Read", json!({"file_path": "a"})).await;
    assert_eq!(sandbox.ok("Write", write("a", "new\n")).await, "changed a (+1 -1)");
    // A written file is known as well.
    assert_eq!(sandbox.ok("Write", write("a", "newer\n")).await, "changed a (+1 -1)");
    sandbox.write("a", "by hand\n");
    let text = sandbox.refused("Write", write("a", "mine\n")).await;
    assert_eq!(
        text,
        "a changed since it was read; Read it again before replacing it, or use Edit; what changed:\n1\tby hand"
    );
    assert_eq!(sandbox.read("a"), b"by hand\n");
    let other = ToolCallContext {
        run_identity: aye_core::contract::identity::RunIdentity {
            thread_id: "thread-2".into(),
            ..ToolCallContext::test_default().run_identity
        },
        ..ToolCallContext::test_default()
    };
    assert!(
        sandbox.call_in("Write", write("a", "mine\n"), &other).await.is_err(),
        "another thread read nothing"
    );
}

#[tokio::test]
async fn an_approved_or_replayed_call_needs_no_read_after_a_restart() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "old\n");
    let ctx = decided();
    let shown = preview(&sandbox, "Write", &write("a", "new\n"), &ctx).await;
    assert_eq!(shown.old_text.as_deref(), Some("old\n"));
    assert!(sandbox.call_in("Write", write("a", "new\n"), &ctx).await.expect("written").is_success());
    sandbox.write("b", "old\n");
    let ctx = ToolCallContext { attempt: 2, ..ToolCallContext::test_default() };
    assert!(sandbox.call_in("Write", write("b", "new\n"), &ctx).await.expect("written").is_success());
    assert_eq!(sandbox.read("b"), b"new\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_edits_of_one_file_are_all_kept() {
    let sandbox = Sandbox::new();
    let lines: Vec<String> = (0..40).map(|n| format!("<{n}>")).collect();
    sandbox.write("a", lines.join("\n"));
    let edits = (0..40).map(|n| sandbox.call("Edit", edit("a", &format!("<{n}>"), &format!("[{n}]"))));
    for result in futures::future::join_all(edits).await {
        assert!(result.expect("edited").is_success());
    }
    let text = String::from_utf8(sandbox.read("a")).unwrap();
    assert!(!text.contains('<'), "{text}");
}

#[tokio::test]
async fn edit_replaces_one_match_or_all() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "x = 1\ny = 1\n");
    let args = edit("a", "x = 1", "x = 2");
    let shown = preview(&sandbox, "Edit", &args, &ToolCallContext::test_default()).await;
    let result = sandbox.call("Edit", args).await.expect("edited");
    assert_eq!(sandbox.read("a"), b"x = 2\ny = 1\n");
    assert_eq!(shown.before, Some(crate::seen_files::hash(b"x = 1\ny = 1\n")));
    assert_eq!(shown.after, crate::seen_files::hash(b"x = 2\ny = 1\n"));
    let details = result.details.expect("details");
    assert_eq!((&details["added"], &details["removed"]), (&json!(1), &json!(1)));
    assert_eq!(details["diff"], "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n-x = 1\n+x = 2\n y = 1\n");
    sandbox.write("b", "1 1\n1\n");
    let text = sandbox.refused("Edit", edit("b", "1", "2")).await;
    assert!(text.contains("3 times in b, at lines 1, 1, 2;"), "{text}");
    let mut all = edit("b", "1", "2");
    all["replace_all"] = json!(true);
    let text = sandbox.refused("Edit", all.clone()).await;
    assert!(text.contains("Read it before"), "{text}");
    sandbox.ok("Read", json!({"file_path": "b"})).await;
    sandbox.ok("Edit", all).await;
    assert_eq!(sandbox.read("b"), b"2 2\n2\n");
}

#[tokio::test]
async fn edit_refuses_ambiguous_or_impossible_changes() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "let x = 1;\naaa\n");
    sandbox.write("bin", b"\xff\xfe\0");
    sandbox.write("ro", "x");
    std::fs::set_permissions(sandbox.path("ro"), PermissionsExt::from_mode(0o444)).expect("succeeds");
    std::fs::create_dir(sandbox.path("dir")).expect("created");
    sandbox.link("../../out", "dangling");
    sandbox.link("/etc", "etc");
    for (args, word) in [
        (
            edit("a", "let y = 1;", "z"),
            "`old_string` is not in a; the nearest place is at line 1:\n1\tlet x = 1;",
        ),
        (edit("a", "let  x = 1;", "z"), "differ from it in blanks only"),
        (edit("a", "aa", "b"), "2 times in a"),
        (edit("a", "x", "x"), "are the same"),
        (edit("a", "", "x"), "`old_string` is empty"),
        (edit("gone", "a", "x"), "gone does not exist"),
        (edit("bin", "\u{fffd}", "x"), "not UTF-8"),
        (edit("ro", "x", "y"), "read-only (mode 0444)"),
        (edit("dir", "x", "y"), "is a folder"),
        (edit("dangling", "x", "y"), "a link to a missing file"),
        (edit("etc/passwd", "root", "y"), "leads out of the workspace"),
        (edit("/dev/null", "x", "y"), "device or system file"),
        (
            json!({"file_path": "a", "old_string": 1, "new_string": ""}),
            "`old_string` must be a string, not 1",
        ),
        (json!({"path": "a"}), "unknown field \"path\""),
    ] {
        let text = sandbox.refused("Edit", args.clone()).await;
        assert!(text.contains(word), "{args}: {text}");
    }
    assert_eq!(sandbox.read("bin"), b"\xff\xfe\0");
    let text = sandbox.refused("Write", write("dangling", "x")).await;
    assert!(text.contains("link"), "{text}");
    assert!(!sandbox.workspace.cwd.join("../out").exists());
    let text =
        sandbox.call_in("Write", write("bin", "x"), &decided()).await.expect_err("refused").to_string();
    assert!(text.contains("not UTF-8"), "{text}");
}

#[tokio::test]
async fn a_refused_edit_leads_on() {
    let sandbox = Sandbox::new();
    sandbox.write("src/job.rs", "fn a() {\n    run();\n}\nfn b() {\n    run();\n}\n");
    for (args, text) in [
        (
            edit("src/job.rs", "    run();\n", "    stop();\n"),
            "`old_string` occurs 2 times in src/job.rs, at lines 2, 5; add surrounding lines to make it unique, or set \
             replace_all\n1\tfn a() {\n2\t    run();\n--\n4\tfn b() {\n5\t    run();",
        ),
        (
            edit("src/job.rs", "fn c() {", "fn b() {"),
            "`old_string` is not in src/job.rs, but `new_string` is, at line 4: the change may be there already",
        ),
        (edit("src/jobs.rs", "a", "b"), "src/jobs.rs does not exist; did you mean src/job.rs?"),
        (edit("job.rs", "a", "b"), "job.rs does not exist; did you mean src/job.rs?"),
        (edit("other.rs", "a", "b"), "other.rs does not exist; use Write to create it"),
    ] {
        assert_eq!(sandbox.refused("Edit", args).await, text);
    }
    let text = sandbox.refused("Read", json!({"file_path": "lib/Job.rs"})).await;
    assert_eq!(text, "not found: lib/Job.rs does not exist; did you mean src/job.rs?");
    // Ignored and hidden files are not named, and a name that is everywhere means none.
    for folder in ["a", "b", "c", "d"] {
        sandbox.write(format!("{folder}/mod.rs"), "");
    }
    sandbox.write(".hidden/secret.rs", "");
    for name in ["mod.rs", "secret.rs"] {
        let text = sandbox.refused("Read", json!({"file_path": name})).await;
        assert_eq!(text, format!("not found: {name} does not exist"));
    }
}

#[tokio::test]
async fn arguments_with_other_names_have_one_meaning() {
    let sandbox = Sandbox::new();
    let cwd = sandbox.workspace.cwd.to_str().expect("UTF-8").to_owned();
    for (tool, sent, settled) in [
        ("Read", json!({"path": "a", "limit": 3}), json!({"limit": 3, "file_path": "a"})),
        ("Write", json!({"file": "a", "content": ""}), json!({"content": "", "file_path": "a"})),
        (
            "Edit",
            json!({"path": "a", "old_str": "b", "new_str": "c"}),
            json!({"file_path": "a", "old_string": "b", "new_string": "c"}),
        ),
        ("Bash", json!({"cmd": "ls"}), json!({"command": "ls"})),
        ("Bash", json!({"command": ["bash", "-lc", "ls | wc"]}), json!({"command": "ls | wc"})),
        ("Bash", json!({"command": ["ls", "a b", "$x"]}), json!({"command": "ls 'a b' '$x'"})),
        ("Bash", json!({"command": "ls", "workdir": cwd}), json!({"command": "ls"})),
        ("Bash", json!({"command": "ls", "workdir": "."}), json!({"command": "ls"})),
        ("Bash", json!({"cmd": ["ls"], "workdir": "a b"}), json!({"command": "cd 'a b' && ls"})),
        (
            "Bash",
            json!({"command": "a && b | c", "workdir": "/x"}),
            json!({"command": "cd /x && a && b | c"}),
        ),
    ] {
        let mut args = sent.clone();
        sandbox.tool(tool).settle_args(&mut args);
        assert_eq!(args, settled, "{sent}");
        sandbox.tool(tool).validate_args(&args).expect("valid");
    }
    // Two values for one argument, another folder for a part of the line, a list with something else in it.
    for (tool, args, word) in [
        ("Read", json!({"path": "a", "file_path": "b"}), "unknown field \"path\""),
        ("Bash", json!({"command": "a; b", "workdir": "/x"}), "put `cd FOLDER &&` before"),
        ("Bash", json!({"command": "a || b", "workdir": "/x"}), "put `cd FOLDER &&` before"),
        ("Bash", json!({"command": "a & b", "workdir": "/x"}), "put `cd FOLDER &&` before"),
        ("Bash", json!({"command": ["ls", 1]}), "`command` must be a string, not a list"),
        ("Bash", json!({"command": []}), "`command` must be a string, not a list"),
    ] {
        let mut settled = args.clone();
        sandbox.tool(tool).settle_args(&mut settled);
        assert_eq!(settled, args);
        let text = sandbox.tool(tool).validate_args(&settled).expect_err("refused").to_string();
        assert!(text.contains(word), "{args}: {text}");
    }
}

#[tokio::test]
async fn advice_for_the_model_is_not_shown() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "let x = 1;\naaa\n");
    for (tool, args, shown) in [
        ("Edit", edit("a", "let  x = 1;", "z"), "the text to replace is not in a"),
        ("Edit", edit("a", "aa", "b"), "the text to replace occurs 2 times in a, at lines 2, 2"),
        ("Edit", edit("gone", "a", "x"), "gone does not exist"),
        ("Write", write("a", "x"), "a exists and was not read"),
        ("Read", json!({"file_path": "."}), ". is a folder"),
    ] {
        let error = sandbox.call(tool, args).await.expect_err("refused");
        let text = error.to_string();
        let result = error.into_result(tool);
        assert_eq!((result.headline(), result.model_text()), (shown, text));
        assert_ne!(result.model_text(), shown);
    }
}

#[tokio::test]
async fn a_file_changed_since_it_was_read_is_edited_where_the_text_is_certain() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "one two\n");
    sandbox.ok("Read", json!({"file_path": "a"})).await;
    sandbox.write("a", "one two three\none\n");
    let changed = "what changed:\n1\tone two three\n2\tone";
    for (old, found) in [
        // What is there now spares another Read.
        (
            "one",
            "occurs 2 times in it now, at lines 1, 2; add surrounding lines to make it unique\n1\tone two three\n--\n\
             1\tone two three\n2\tone",
        ),
        ("one two\n", "is not in it now"),
        ("four", "is not in it now"),
        (
            "one two threes\nand\n",
            "is not in it now; the nearest place is at line 1:\n1\tone two three\n2\tone",
        ),
    ] {
        assert_eq!(
            sandbox.refused("Edit", edit("a", old, "1\n")).await,
            format!("a changed since it was read: `old_string` {found}\n{changed}")
        );
    }
    let mut all = edit("a", "one", "1");
    all["replace_all"] = json!(true);
    let text = sandbox.refused("Edit", all).await;
    assert_eq!(text, "a changed since it was read; Read it again before using replace_all");
    assert_eq!(
        sandbox.ok("Edit", edit("a", "two", "2")).await,
        "changed a (+1 -1); the file had changed since it was read:\n1\tone 2 three\n2\tone"
    );
    // What else changed is still unknown.
    assert_eq!(
        sandbox.refused("Write", write("a", "all\n")).await,
        "a changed since it was read; Read it again before replacing it, or use Edit; what changed:\n1\tone 2 three\n\
         2\tone"
    );
    sandbox.ok("Read", json!({"file_path": "./x/../a"})).await;
    assert_eq!(sandbox.ok("Edit", edit("a", "2 three", "2")).await, "changed a (+1 -1)");
    sandbox.ok("Write", write("a", "all\n")).await;
    // A file that was not read since the start: the text itself is the proof.
    sandbox.write("b", "one two\n");
    sandbox.ok("Edit", edit("b", "one", "1")).await;
}

#[tokio::test]
async fn a_folder_swapped_for_a_link_is_not_written_through() {
    let sandbox = Sandbox::new();
    sandbox.write("src/main.rs", "fn main() {}\n");
    let outside = tempfile::tempdir().expect("a folder");
    std::fs::write(outside.path().join("main.rs"), "fn main() {}\n").expect("written");
    let args = edit("src/main.rs", "main", "other");
    preview(&sandbox, "Edit", &args, &decided()).await;
    // After the approval:
    std::fs::rename(sandbox.path("src"), sandbox.path("moved")).expect("renamed");
    sandbox.link(outside.path(), "src");
    let error = sandbox.call_in("Edit", args, &decided()).await.expect_err("refused");
    assert!(error.to_string().contains("leads out of the workspace"), "{error}");
    assert!(sandbox.call_in("Write", write("src/new.rs", "x"), &decided()).await.is_err());
    assert_eq!(std::fs::read(outside.path().join("main.rs")).expect("exists"), b"fn main() {}\n");
    assert!(!outside.path().join("new.rs").exists());
}

#[tokio::test]
async fn mode_line_endings_mark_and_missing_newline_are_kept() {
    let sandbox = Sandbox::new();
    let path = sandbox.write("x.sh", "\u{feff}a\r\nb\r\nc");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("succeeds");
    sandbox.ok("Edit", edit("x.sh", "a\nb", "a\nnew\nb")).await;
    assert_eq!(sandbox.read("x.sh"), "\u{feff}a\r\nnew\r\nb\r\nc".as_bytes());
    sandbox.ok("Write", write("x.sh", "all\nnew\n")).await;
    assert_eq!(sandbox.read("x.sh"), "\u{feff}all\r\nnew\r\n".as_bytes());
    assert_eq!(std::fs::metadata(&path).expect("exists").permissions().mode() & 0o7777, 0o755);
    sandbox.write("mixed", "a\r\nb\r\nc\nd\n");
    sandbox.ok("Edit", edit("mixed", "a\nb", "x\ny")).await;
    sandbox.ok("Edit", edit("mixed", "c\nd", "c\ne")).await;
    assert_eq!(sandbox.read("mixed"), b"x\r\ny\r\nc\ne\n");
    sandbox.ok("Edit", edit("mixed", "x\ny\nc\ne\n", "x\nY\nc\nE\n")).await;
    assert_eq!(sandbox.read("mixed"), b"x\r\nY\r\nc\nE\n");
    let mut all = edit("mixed", "\n", "\n\n");
    all["replace_all"] = json!(true);
    sandbox.ok("Edit", all).await;
    assert_eq!(sandbox.read("mixed"), b"x\r\n\r\nY\r\n\r\nc\n\nE\n\n");
}

#[tokio::test]
async fn an_edit_that_is_quoted_almost_says_so() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "fn a() {\r\n    if x {\r\n        one();\r\n    }\r\n}\r\n");
    let args = edit("a", "if x {\n    one();\n}\n", "if x {\n    one();\n    two();\n}\n");
    let shown = preview(&sandbox, "Edit", &args, &ToolCallContext::test_default()).await;
    let after = "fn a() {\r\n    if x {\r\n        one();\r\n        two();\r\n    }\r\n}\r\n";
    assert_eq!(shown.new_text.as_deref(), Some(after));
    let result = sandbox.call("Edit", args).await.expect("edited");
    assert_eq!(
        result.model_text(),
        "changed a (+1 -0); matched ignoring indentation:\n2\t    if x {\n3\t        one();\n4\t        two();"
    );
    assert_eq!(result.headline(), "changed a (+1 -0); matched ignoring indentation");
    assert_eq!(sandbox.read("a"), after.as_bytes());
}

/// Wrong edits as models made them. None may be applied in another way than it was meant.
#[tokio::test]
async fn wrong_edits_are_applied_as_meant_or_not_at_all() {
    for line in include_str!("edits.jsonl").lines() {
        let case: Value = serde_json::from_str(line).expect("JSON");
        let text = |member: &str| case[member].as_str().unwrap_or_default();
        let sandbox = Sandbox::new();
        sandbox.write("f", text("file"));
        let result = sandbox.call("Edit", edit("f", text("old_string"), text("new_string"))).await;
        let after = String::from_utf8(sandbox.read("f")).expect("UTF-8");
        let is_wanted = text("want") == "applied";
        assert_eq!(result.is_ok(), is_wanted, "{}: {result:?}", text("name"));
        assert_eq!(after, text(if is_wanted { "result" } else { "file" }), "{}", text("name"));
    }
}

#[tokio::test]
async fn a_file_keeps_an_older_encoding() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", b"Gr\xfc\xdfe aus M\xfcnchen, caf\xe9\r\nsecond line\r\n");
    let text = sandbox.ok("Read", json!({"file_path": "a.txt"})).await;
    assert_eq!(
        text,
        "1\tGrüße aus München, café\n2\tsecond line\n\
         [windows-1252, not UTF-8; Edit and Write keep this encoding]"
    );
    let args = edit("a.txt", "second line", "die zweite Zeile");
    let shown = preview(&sandbox, "Edit", &args, &ToolCallContext::test_default()).await;
    assert!(shown.old_text.is_some_and(|text| text.starts_with("Grüße")));
    assert_eq!(sandbox.ok("Edit", args).await, "changed a.txt (+1 -1); it is still windows-1252");
    sandbox.ok("Edit", edit("a.txt", "café", "Café für 2 €")).await;
    let after = b"Gr\xfc\xdfe aus M\xfcnchen, Caf\xe9 f\xfcr 2 \x80\r\ndie zweite Zeile\r\n";
    assert_eq!(sandbox.read("a.txt"), after);
    let text = sandbox.refused("Edit", edit("a.txt", "zweite", "→")).await;
    assert!(
        text.contains("a.txt is windows-1252, which does not have `→` (U+2192); nothing was written"),
        "{text}"
    );
    assert_eq!(sandbox.read("a.txt"), after);
    sandbox.ok("Write", write("a.txt", "Öl\n")).await;
    assert_eq!(sandbox.read("a.txt"), b"\xd6l\r\n");
    // UTF-8 that was damaged is not something else.
    sandbox.write("b.txt", "é\nè\nà".bytes().chain(*b"\n\xff\n").collect::<Vec<_>>());
    let text = sandbox.refused("Edit", edit("b.txt", "é", "e")).await;
    assert!(text.contains("line 4 has bytes that are not UTF-8"), "{text}");
}

/// Text of two bytes a character is not changed, and the answer says how to read it.
#[tokio::test]
async fn utf16_text_is_left_as_it_is() {
    let sandbox = Sandbox::new();
    let text: Vec<u8> = "\u{feff}one word\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    sandbox.write("a.txt", &text);
    for (tool, args, why) in [
        ("Edit", edit("a.txt", "word", "other"), "UTF-16"),
        ("Write", write("a.txt", "x"), "a.txt exists; Read it before replacing it"),
        ("Read", json!({"file_path": "a.txt"}), "UTF-16"),
    ] {
        let refused = sandbox.refused(tool, args).await;
        assert!(refused.contains(why), "{tool}: {refused}");
        assert_eq!(sandbox.read("a.txt"), text, "{tool}");
    }
}

#[tokio::test]
async fn a_replaced_file_grants_no_more() {
    let sandbox = Sandbox::new();
    let path = sandbox.write("a", "old\n");
    let file = std::fs::File::open(&path).expect("is there");
    if rustix::fs::fsetxattr(&file, "user.note", b"mine", rustix::fs::XattrFlags::empty()).is_err() {
        return;
    }
    sandbox.ok("Edit", edit("a", "old", "new")).await;
    let mut value = [0; 8];
    let size = rustix::fs::getxattr(&path, "user.note", &mut value).expect("is kept");
    assert_eq!((&value[..size], sandbox.read("a")), (&b"mine"[..], b"new\n".to_vec()));
}

#[tokio::test]
async fn a_link_inside_the_workspace_stays_a_link() {
    let sandbox = Sandbox::new();
    sandbox.write("real", "one\n");
    sandbox.link("real", "link");
    sandbox.ok("Edit", edit("link", "one", "two")).await;
    assert_eq!(sandbox.read("real"), b"two\n");
    assert!(sandbox.path("link").symlink_metadata().expect("exists").is_symlink());
}

#[tokio::test]
async fn a_newline_in_a_name_is_escaped_in_the_diff() {
    let sandbox = Sandbox::new();
    sandbox.write("a\nb.rs", "x\n");
    let result = sandbox.call("Edit", edit("a\nb.rs", "x", "y")).await.expect("edited");
    let diff = result.details.expect("details")["diff"].as_str().expect("text").to_owned();
    assert!(diff.starts_with("--- a/a\\x0ab.rs\n+++ b/a\\x0ab.rs\n@@"), "{diff}");
    assert_eq!(result.message.as_deref(), Some("changed a\\x0ab.rs (+1 -1)"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn an_edit_changes_nothing_but_its_match(
        before in prop::collection::vec("[a-z \\t]{0,12}", 0..8),
        after in prop::collection::vec("[a-z \\t]{0,12}", 0..8),
        new in prop::collection::vec("[A-Z]{0,5}", 1..4),
        crlf in any::<bool>(),
        bom in any::<bool>(),
        newline in any::<bool>(),
        mode in prop::sample::select(vec![0o644_u32, 0o600, 0o755, 0o4755, 0o664]),
    ) {
        let eol = if crlf { "\r\n" } else { "\n" };
        let mark = if bom { "\u{feff}" } else { "" };
        let end = if newline { eol } else { "" };
        let lines = |lines: &[String]| lines.join(eol);
        let (head, tail) = (lines(&before), lines(&after));
        let file = |middle: &str| format!("{mark}{head}{eol}{middle}{eol}{tail}{end}");
        let sandbox = Sandbox::new();
        let path = sandbox.write("f", file(&format!("OLD{eol}TEXT#")));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("succeeds");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(sandbox.ok("Edit", edit("f", "OLD\nTEXT#", &(new.join("\n") + "!"))));
        prop_assert_eq!(sandbox.read("f"), file(&(lines(&new) + "!")).into_bytes());
        prop_assert_eq!(std::fs::metadata(&path).expect("exists").permissions().mode() & 0o7777, mode);
    }
}
