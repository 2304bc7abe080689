//! Exit statuses, settings and commands of the real binary.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm, Part};

const TOUCH: &str = "echo ran >> log.txt";

/// A model that makes one call, and then reports its result.
fn calls(name: &'static str, args: Value) -> MockLlm {
    MockLlm::by(move |chat: &Chat| {
        if chat.results().is_empty() {
            Answer::new().call("c1", name, args.clone())
        } else {
            Answer::say("End.")
        }
    })
}

#[test]
fn a_limit_exits_with_5() {
    let llm = MockLlm::by(|chat| Answer::new().call(&format!("c{}", chat.nth), "List", json!({"path": "."})));
    let home = Home::with(&llm);
    let out = home.aye(&["-p", "go", "--max-turns", "2", "--output-format", "json"]).run().exits(5);
    assert_eq!(out.json()["status"], "limit");
    assert_eq!(out.json()["steps"], 2);
    assert!(out.stderr.contains("limit of 2"), "{}", out.stderr);
    assert_eq!(llm.asked().len(), 2);
    // The calls of the last round were settled: the conversation can continue.
    home.aye(&["-c", "-p", "more", "--max-turns", "1"]).run().exits(5);
    assert_eq!(llm.last().results().len(), 2);
}

#[test]
fn an_unreachable_provider_exits_with_75() {
    let llm = MockLlm::by(|_| Answer::error(503, "overloaded"));
    let home = Home::with(&llm);
    let out = home.aye(&["-p", "hi", "--output-format", "json"]).run().exits(75);
    assert_eq!(out.json()["status"], "unavailable");
    assert!(out.stderr.contains("503") || out.stderr.contains("overloaded"), "{}", out.stderr);

    let limited = MockLlm::by(|_| Answer::error(429, "too many").header("retry-after", "1"));
    Home::with(&limited).aye(&["-p", "hi"]).run().exits(75);

    let gone = Home::new();
    gone.config("model = \"m/x\"\n[providers.m]\nadapter = \"openai\"\nbase_url = \"http://127.0.0.1:1/v1\"\napi_key_env = \"MOCK_KEY\"\n[retry]\nmax_retries = 0\n");
    gone.aye(&["-p", "hi"]).run().exits(75);
}

#[test]
fn a_transient_error_is_retried() {
    let llm = MockLlm::answers([
        Answer::error(500, "oops"),
        Answer::error(429, "slower").header("retry-after", "0"),
        Answer::say("Here."),
    ]);
    let home = Home::with(&llm);
    let out = home.ok(&["-p", "hi", "--config", "retry.max_retries=3"]);
    assert_eq!(out.stdout, "Here.\n");
    assert!(out.stderr.contains("retrying in"), "{}", out.stderr);
    assert_eq!(llm.asked().len(), 3);
}

#[test]
fn a_cut_stream_is_not_an_answer() {
    let llm = MockLlm::by(|chat| match chat.nth {
        0 => Answer::say("Half a sen").part(Part::Cut),
        1 => Answer::new().bash("c1", TOUCH).part(Part::Cut),
        _ => Answer::say("x").part(Part::Broken(json!({"message": "the model fell over", "code": 500}))),
    });
    let home = Home::with(&llm);
    for prompt in ["one", "two", "three"] {
        let out = home.aye(&["-p", prompt, "--output-format", "json"]).run();
        assert!(matches!(out.status.code(), Some(75 | 1)), "{prompt}: {out:?}");
        assert!(!out.stderr.trim().is_empty());
    }
    assert!(home.open().is_empty(), "an incomplete call does not count");
}

#[test]
fn usage_errors_exit_with_2() {
    let home = Home::new();
    home.aye(&["--nope"]).run().exits(2);
    home.aye(&["-p", "x", "--model", "no-such/model"]).run().exits(2);
    home.aye(&["-p", "x", "--config", "no_such_key=1"]).run().exits(2).says("no_such_key");
    home.aye(&["-c", "-p", "x"]).run().exits(2).says("no conversation");
    home.aye(&[]).run().exits(2).says("terminal");
    home.config("modle = \"x\"\n");
    home.aye(&["-p", "x"]).run().exits(2).says("modle");
    home.config("model = \n");
    home.aye(&["-p", "x"]).run().exits(2).says("config.toml");
}

#[test]
fn broken_rules_ask_about_everything() {
    let llm = calls("Read", json!({"file_path": "a.txt"}));
    let home = Home::with(&llm);
    home.write("a.txt", "five");
    home.rules("rules:\n  - {tool: 'Bash(', behavior: allow}\n");
    home.aye(&["-p", "x"]).run().exits(3).says("permissions.yaml");
}

#[test]
fn flags_allow_and_deny() {
    let llm = calls("Bash", json!({"command": "touch made.txt"}));
    let home = Home::with(&llm);
    home.ok(&["-p", "x", "--allowed-tools", "Bash(touch *)"]);
    assert!(home.work().join("made.txt").exists());

    let home = Home::with(&llm);
    home.aye(&["-p", "x", "--allowed-tools", "Bash(mkdir *),Read"]).run().exits(3);

    let home = Home::with(&llm);
    home.ok(&["-p", "x", "--allowed-tools", "Bash", "--disallowed-tools", "Bash(touch *)"]);
    assert!(!home.work().join("made.txt").exists());
    assert!(llm.last().result("c1").contains("touch"), "{}", llm.last().result("c1"));

    let home = Home::with(&llm);
    home.ok(&["-p", "x", "--disallowed-tools", "Bash,WebFetch"]);
    assert!(!home.work().join("made.txt").exists());
    let tools = llm.last().tools();
    assert!(tools.iter().all(|tool| tool != "Bash" && tool != "WebFetch"), "{tools:?}");
    assert!(tools.iter().any(|tool| tool == "Read"));
    home.aye(&["-p", "x", "--allowed-tools", "Bash("]).run().exits(2);
}

#[test]
fn permission_modes() {
    let write = |llm: &MockLlm, mode: &str| {
        let home = Home::with(llm);
        let code = home.aye(&["-p", "x", "--permission-mode", mode]).run().status.code();
        (code, home.work().join("made.txt").exists())
    };
    let llm = calls("Write", json!({"file_path": "made.txt", "content": "x"}));
    assert_eq!(write(&llm, "ask"), (Some(3), false));
    assert_eq!(write(&llm, "accept-edits"), (Some(0), true));
    assert_eq!(write(&llm, "yolo"), (Some(0), true));
    assert_eq!(write(&llm, "plan"), (Some(0), false));
    assert!(llm.last().result("c1").contains("plan mode"), "{}", llm.last().result("c1"));
    let llm = calls("Bash", json!({"command": "touch made.txt"}));
    assert_eq!(write(&llm, "accept-edits"), (Some(3), false));
    assert_eq!(write(&llm, "yolo"), (Some(0), true));
    assert_eq!(write(&llm, "plan"), (Some(0), false));
    let llm = calls("Bash", json!({"command": "rm -rf /"}));
    assert_eq!(write(&llm, "yolo"), (Some(0), false), "a deny holds in every mode");
}

#[test]
fn a_changed_file_asks_again() {
    let llm = calls("Edit", json!({"file_path": "a.txt", "old_string": "one", "new_string": "two"}));
    let home = Home::with(&llm);
    home.write("a.txt", "one\n");
    // Read first, as Edit requires.
    let llm2 = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("r1", "Read", json!({"file_path": "a.txt"})),
        1 => Answer::new().call(
            "c1",
            "Edit",
            json!({"file_path": "a.txt", "old_string": "one", "new_string": "two"}),
        ),
        _ => Answer::say("End."),
    });
    drop((llm, home));
    let home = Home::with(&llm2);
    home.write("a.txt", "one\n");
    home.aye(&["-p", "x"]).run().exits(3);
    let id = home.question();
    let shown = home.ok(&["approvals", "show", &id, "--json"]).json();
    assert!(shown.to_string().contains("two"), "{shown:#}");
    home.ok(&["approvals", "approve", &id]);
    home.ok(&["-c", "-p"]);
    assert_eq!(home.read("a.txt"), "two\n");
}

#[test]
fn conversations_are_listed_shown_exported_and_deleted() {
    let llm = MockLlm::by(|chat| Answer::say(&format!("Answer {}.", chat.nth)));
    let home = Home::with(&llm);
    home.ok(&["-p", "first words"]);
    home.ok(&["-c", "-p", "second words"]);
    home.ok(&["-p", "another thread"]);
    let list = home.ok(&["threads", "list"]).stdout;
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.lines().next().is_some_and(|line| line.contains("another thread")), "latest first: {list}");
    assert!(list.contains("first words"), "{list}");
    let id = list.lines().nth(1).and_then(|line| line.split(' ').next()).expect("an id").to_owned();
    let shown = home.ok(&["threads", "show", &id]).stdout;
    for text in ["first words", "Answer 0.", "second words", "Answer 1."] {
        assert!(shown.contains(text), "{shown}");
    }
    let json = home.ok(&["threads", "export", &id, "--format", "json"]).json();
    assert_eq!(json["messages"].as_array().map(Vec::len), Some(4), "{json:#}");
    assert_eq!(home.ok(&["threads", "show", &id, "--json"]).json()["thread"]["id"], id.as_str());
    assert!(home.ok(&["threads", "export", &id]).stdout.starts_with("# first words"));
    assert!(llm.asked()[1].messages().len() > llm.asked()[0].messages().len(), "-c continues");
    home.aye(&["threads", "delete", &id]).run().exits(0).says("deleted");
    home.aye(&["threads", "show", &id]).run().exits(2);
    assert_eq!(home.ok(&["threads", "list"]).stdout.lines().count(), 1);
}

#[test]
fn a_folders_name_cannot_write_to_the_terminal() {
    let llm = MockLlm::by(|_| Answer::say("Yes."));
    let home = Home::with(&llm);
    let folder = "a\u{1b}]52;c;eA==\u{7}\u{202e}b";
    home.write(&format!("{folder}/x"), "");
    home.ok(&["-p", "there", "-C", folder]);
    let id = home.thread();
    for args in [
        &["threads", "show", &id][..],
        &["threads", "export", &id],
        &["threads", "export", &id, "--format", "html"],
    ] {
        let out = home.ok(args).stdout;
        assert!(!out.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{out:?}");
        assert!(out.contains("52;c;eA=="), "{out:?}");
    }
}

#[test]
fn continue_uses_the_threads_of_its_folder() {
    let llm = MockLlm::by(|_| Answer::say("Yes."));
    let home = Home::with(&llm);
    home.ok(&["-p", "here"]);
    home.write("sub/x", "");
    home.aye(&["-c", "-p", "there", "-C", "sub"]).run().exits(2);
    let thread = home.thread();
    home.ok(&["-r", &thread[..23], "-p", "by a part of the id"]);
    assert!(llm.last().messages().len() >= 4);
}

#[test]
fn settings_models_and_doctor() {
    let llm = MockLlm::by(|_| Answer::say("Yes."));
    let home = Home::with(&llm);
    let shown = home.ok(&["config", "show", "--max-turns", "7"]).stdout;
    assert!(shown.contains("max_turns = 7") && shown.contains("--max-turns"), "{shown}");
    assert!(shown.contains("config.toml"), "{shown}");
    let rows = home.ok(&["config", "show", "--json"]).json();
    assert!(rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["key"] == "model")), "{rows:#}");
    let models = home.ok(&["models"]).stdout;
    assert!(models.contains("mock") && models.contains("demo"), "{models}");
    assert!(home.ok(&["models", "--json"]).json().is_array());
    let doctor = home.ok(&["doctor", "--json"]).json();
    assert!(doctor.to_string().contains("\"ok\""), "{doctor:#}");
    assert!(!home.ok(&["doctor"]).stdout.is_empty());
    for command in [&["config", "show"][..], &["doctor"], &["models"]] {
        let out = home.ok(command);
        assert!(
            !out.stdout.contains("sk-mock-secret") && !out.stderr.contains("sk-mock-secret"),
            "{command:?}"
        );
    }
}

#[test]
fn the_key_appears_nowhere() {
    let llm = MockLlm::by(|chat| match chat.results().len() {
        0 => Answer::new().bash("c1", "env; echo $MOCK_KEY"),
        _ => Answer::say("End."),
    });
    let home = Home::with(&llm);
    home.aye(&["-p", "x", "--permission-mode", "yolo"]).run();
    for question in home.open() {
        home.ok(&["approvals", "approve", question["id"].as_str().expect("an id")]);
        home.ok(&["-c", "-p"]);
    }
    assert!(!llm.last().result("c1").contains("sk-mock-secret"), "{}", llm.last().result("c1"));
    fn files(dir: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() { files(&path, found) } else { found.push(path) }
        }
    }
    let mut found = Vec::new();
    files(&home.root().join("aye"), &mut found);
    assert!(found.iter().any(|path| path.ends_with("aye.db")), "{found:?}");
    for path in found {
        let bytes = std::fs::read(&path).expect("readable");
        assert!(!bytes.windows(14).any(|w| w == b"sk-mock-secret"), "the key is in {}", path.display());
    }
}

#[test]
fn skills_rules_completions_and_the_manual() {
    let home = Home::new();
    let skills = home.ok(&["skills", "list"]).stdout;
    assert!(skills.lines().count() >= 3, "{skills}");
    assert!(home.ok(&["skills", "list", "--json"]).json().is_array());
    home.ok(&["skills", "check"]);
    home.write("mine/good/SKILL.md", "---\nname: good\ndescription: does good things\n---\nDo good.\n");
    assert!(home.ok(&["skills", "check", "mine"]).stdout.contains("ok"));
    home.write("mine/bad/SKILL.md", "---\nname: bad\n---\nNothing.\n");
    let out = home.aye(&["skills", "check", "mine"]).run().exits(1);
    assert!(out.stdout.contains("bad/SKILL.md") && out.stdout.contains("description"), "{}", out.stdout);
    home.aye(&["skills", "check", "nowhere"]).run().exits(2);

    let lines = "{\"tool\":\"Bash\",\"args\":{\"command\":\"rm -rf /\"}}\n\
                 {\"tool\":\"Bash\",\"args\":{\"command\":\"ls\"}}\n\
                 {\"tool\":\"Bash\",\"args\":{\"command\":\"make\"}}\n\
                 {\"tool\":\"X\",\"args\":{},\"rules\":{\"deny\":[\"X\"]}}\nnot json\n";
    let out = home.aye(&["permissions", "check"]).stdin(lines).run().exits(0);
    let verdicts: Vec<Value> = out.lines().iter().map(|line| line["verdict"].clone()).collect();
    assert_eq!(verdicts, ["deny", "allow", "ask", "deny", "error"]);
    home.write(".env", "KEY=1\n");
    home.git(&["init", "-q"]);
    for args in [
        &["add", "-f", ".env"][..],
        &["commit", "-qm", "secret"],
        &["rm", "-q", ".env"],
        &["commit", "-qm", "gone"],
    ] {
        home.git(args);
    }
    let show = "{\"tool\":\"Bash\",\"args\":{\"command\":\"git show HEAD~1\"}}\n";
    let out = home.aye(&["permissions", "check"]).stdin(show).run().exits(0);
    assert!(out.stdout.contains(".env from an older commit"), "{}", out.stdout);
    home.write("own.yaml", "default_behavior: allow\nrules:\n  - {tool: Bash(make *), behavior: ask}\n");
    let out = home.aye(&["permissions", "check", "--rules", "own.yaml"]).stdin(lines).run().exits(0);
    assert_eq!(out.lines()[2]["verdict"], "ask");
    home.write("broken.yaml", "rules:\n  - {tool: 'Bash(', behavior: ask}\n");
    home.aye(&["permissions", "check", "--rules", "broken.yaml"])
        .stdin(lines)
        .run()
        .exits(2)
        .says("broken.yaml");

    for shell in ["bash", "zsh", "fish"] {
        assert!(home.ok(&["completion", shell]).stdout.contains("approvals"), "{shell}");
    }
    assert!(home.ok(&["man"]).stdout.contains(".TH aye"));
    assert!(home.ok(&["--version"]).stdout.starts_with("aye "));
    assert!(home.ok(&["--help"]).stdout.contains("inbox"));
}

#[test]
fn files_of_an_untrusted_folder_are_not_used() {
    let llm = calls("Bash", json!({"command": "touch made.txt"}));
    let home = Home::with(&llm);
    home.write(".aye/permissions.yaml", "rules:\n  - {tool: Bash(touch *), behavior: allow}\n");
    home.aye(&["-p", "x"]).run().exits(3).says("not trusted");
    assert!(!home.work().join("made.txt").exists());
    home.aye(&["-p", "x", "--trust"]).run().exits(0);
    assert!(home.work().join("made.txt").exists());
    // One-time trust: the next start is unchanged.
    home.aye(&["-p", "x"]).run().exits(3).says("not trusted");

    // A folder with nothing to trust is not mentioned.
    let plain = Home::with(&MockLlm::by(|_| Answer::say("Yes.")));
    plain.write("AGENTS.md", "Say yes.\n");
    assert_eq!(plain.ok(&["-p", "x"]).stderr, "");
}

#[test]
fn the_demo_needs_nothing() {
    let home = Home::new();
    home.write("notes.txt", "hello\n");
    let out = home.ok(&["-p", "list files"]);
    assert!(out.stdout.contains("notes.txt"), "{}", out.stdout);
    home.aye(&["-p", "run echo hi > out.txt"]).run().exits(3);
    assert_eq!(home.read("out.txt"), "");
    home.ok(&["approvals", "approve", &home.question()]);
    home.ok(&["-c", "-p"]);
    assert_eq!(home.read("out.txt"), "hi\n");
}

/// No text from a model or tool reaches a terminal raw, nor do progress lines.
#[test]
fn progress_contains_no_foreign_control_characters() {
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[31m\u{202e}\u{200b}";
    let llm = calls("Bash", json!({"command": format!("echo {evil}")}));
    let home = Home::with(&llm);
    let out = home.aye(&["-p", "x"]).run().exits(3);
    let shown = home.ok(&["approvals", "show", &home.question()]).stdout;
    let list = home.ok(&["approvals", "list"]).stdout;
    for text in [&out.stderr, &shown, &list] {
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{200b}']), "{text:?}");
    }
    let json = home.ok(&["approvals", "list", "--json"]).stdout;
    assert!(!json.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{200b}']), "{json:?}");
}

#[test]
fn what_aye_relies_on_holds_on_this_machine() {
    let home = Home::new();
    home.config("model = \"demo\"\n");
    let report = home.aye(&["doctor", "--selftest"]).run().exits(0).stdout;
    assert!(report.contains(" 0 failed"), "{report}");
    assert!(report.contains("ok        store      a commit of another process is noticed"), "{report}");
    let rows = home.aye(&["doctor", "--selftest", "--json"]).run().exits(0).json();
    assert!(rows.as_array().is_some_and(|rows| rows.len() >= 25), "{rows}");
}
