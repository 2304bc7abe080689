//! Subagents with the real program: their questions, crashes and display.

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};
use crate::support::pty::Pty;

const RUN: &str = "echo ran >> log.txt";

/// A home with the agents `lead` and `scout`; `lead` may delegate to `scout`.
fn family(llm: &MockLlm) -> Home {
    let home = Home::with(llm);
    let agent = |name: &str, text: &str| {
        let folder = home.root().join("aye/config/agents");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(format!("{name}.md")), text).expect("written");
    };
    agent("lead", "---\ndescription: Leads.\ndelegates: [scout]\n---\nYou lead.\n");
    agent("scout", "---\ndescription: Looks around.\n---\nYou scout.\n");
    home
}

fn is_scout(chat: &Chat) -> bool {
    chat.system().contains("You scout.")
}

/// `lead` delegates to `scout`, whose first answer is this; both end once they have their results.
fn sends(scout: impl Fn() -> Answer + Send + 'static, args: Value) -> MockLlm {
    MockLlm::by(move |chat: &Chat| match (is_scout(chat), chat.results().len()) {
        (false, _) if chat.user().contains("All clear") => Answer::say("I heard: all clear."),
        (false, 0) => Answer::new().call("c1", "agent_run_scout", args.clone()),
        (false, _) => Answer::say("The lead is done."),
        (true, 0) => scout(),
        (true, _) => Answer::say("All clear."),
    })
}

fn asks() -> MockLlm {
    sends(|| Answer::new().bash("c1", RUN), json!({"prompt": "look around"}))
}

fn tasks(home: &Home) -> Vec<Value> {
    let list = home.ok(&["tasks", "list", "--all", "--json"]).json();
    list.as_array().expect("a list").clone()
}

#[test]
fn a_childs_question_is_in_the_inbox_and_resumes_both() {
    let llm = asks();
    let home = family(&llm);
    let out = home.aye(&["-p", "go", "--agent", "lead"]).run().exits(3);
    let open = home.open();
    assert_eq!(open.len(), 1, "a call waiting for its child is not a question: {open:#?}");
    assert_eq!(open[0]["tool"], "Bash");
    assert_eq!(open[0]["child"]["agent"], "scout");
    assert_eq!(open[0]["thread_title"], "go");
    let root = home.thread();
    assert_eq!(open[0]["child"]["root"], json!(root), "{}", out.stderr);
    let task = tasks(&home).remove(0);
    assert_eq!((&task["task_status"], &task["depth"]), (&json!("waiting"), &json!(1)));
    let list = home.ok(&["tasks", "list"]).stdout;
    assert!(list.contains("scout · 1 pending question · 1 step"), "{list}");

    let out = home.ok(&["approve", &home.question(), "--resume"]);
    assert!(out.stdout.contains("The lead is done."), "{out:?}");
    assert_eq!(home.read("log.txt"), "ran\n");
    let last = llm.last();
    assert_eq!(last.result("c1"), "All clear.");
    assert!(last.tools().contains(&"agent_run_scout".to_owned()));
    let task = tasks(&home).remove(0);
    assert_eq!(task["task_status"], "completed");
    let id = task["task_id"].as_str().expect("an id");
    let shown = home.ok(&["tasks", "show", id]).stdout;
    assert!(shown.contains("> look around\n  All clear."), "{shown}");
    assert_eq!(home.ok(&["tasks", "list"]).stdout, "none\n");
    home.ok(&["audit", "--verify"]);
    // The top conversation is the only one listed, and the last one.
    assert_eq!(home.ok(&["threads", "list", "--json"]).json().as_array().map(Vec::len), Some(1));
    assert_eq!(home.thread(), root);
}

/// Nobody can answer for a child, but it can be stopped: its parent is notified.
#[test]
fn a_run_waiting_for_a_child_is_restored_with_it() {
    let llm = asks();
    let home = family(&llm);
    home.aye(&["-p", "go", "--agent", "lead"]).run().exits(3);
    let (root, open) = (home.thread(), home.open());
    let exported = home.ok(&["threads", "export", &root, "--format", "json"]);
    let children = exported.json()["children"].as_array().cloned().unwrap_or_default();
    assert_eq!(children.len(), 1, "{}", exported.stdout);
    assert_eq!(children[0]["child"]["parent_thread"], json!(root));
    home.write("export.json", &exported.stdout);

    // Without the child's conversation, nobody works on the call.
    let mut alone = exported.json();
    alone.as_object_mut().expect("has members").remove("children");
    home.write("alone.json", &alone.to_string());
    home.ok(&["threads", "delete", &root]);
    let out = home.ok(&["threads", "import", "alone.json"]);
    assert!(!out.stderr.contains("pending") && home.open().is_empty(), "{}", out.stderr);
    home.ok(&["threads", "delete", &root]);

    // A child is never attached to a conversation that is not in the file.
    let mut stray = exported.json();
    stray["children"][0]["child"]["parent_thread"] = json!("other");
    home.write("stray.json", &stray.to_string());
    let out = home.aye(&["threads", "import", "stray.json"]).run().exits(1);
    assert!(out.stderr.contains("is missing; nothing was imported"), "{}", out.stderr);
    assert_eq!(home.ok(&["threads", "list", "--json"]).json(), json!([]));

    let out = home.ok(&["threads", "import", "export.json"]);
    assert!(out.stderr.contains("1 question is pending"), "{}", out.stderr);
    assert_eq!(home.open(), open);
    assert_eq!(home.ok(&["threads", "export", &root, "--format", "json"]).stdout, exported.stdout);
    home.ok(&["store", "check"]);
    let question = home.question();
    home.ok(&["approve", &question, "--resume"]);
    assert_eq!(home.read("log.txt"), "ran\n");
    assert_eq!(home.ok(&["-r", &root, "-p"]).stdout, "The lead is done.\n");
    home.ok(&["audit", "--verify"]);
}

#[test]
fn a_child_is_stopped_but_cannot_be_answered_for() {
    let llm = asks();
    let home = family(&llm);
    home.aye(&["-p", "go", "--agent", "lead"]).run().exits(3);
    let out = home.aye(&["approve", "child_c1"]).run().exits(2);
    assert!(out.stderr.contains("a subagent works on this call"), "{}", out.stderr);
    let task = tasks(&home).remove(0);
    let id = task["task_id"].as_str().expect("an id").to_owned();
    let stopped = home.ok(&["tasks", "stop", &id]).stdout;
    assert!(stopped.contains("(scout)"), "{stopped}");
    assert!(home.open().is_empty());
    home.aye(&["tasks", "stop", &id]).run().exits(1);
    assert_eq!(home.ok(&["-c", "-p"]).stdout, "The lead is done.\n");
    assert!(llm.last().result("c1").contains("stopped before it finished"), "{}", llm.last().result("c1"));
    assert_eq!(home.read("log.txt"), "");
}

#[test]
fn a_background_child_reports_its_end() {
    let args = json!({"prompt": "look around", "background": true});
    let llm = sends(|| Answer::new().call("c1", "List", json!({"path": "."})), args);
    let home = family(&llm);
    let out = home.ok(&["-p", "go", "--agent", "lead"]);
    assert_eq!(out.stdout, "The lead is done.\nI heard: all clear.\n");
    let task = tasks(&home).remove(0);
    assert_eq!((&task["task_status"], &task["background"]), (&json!("completed"), &json!(true)));
}

#[cfg(feature = "failpoints")]
#[test]
fn wherever_it_dies_a_child_starts_once_and_reports_once() {
    let places = [
        "store.child.before",
        "store.child.after",
        "child.ended",
        "child.decided",
        "store.decide.before",
        "store.decide.after",
        "store.checkpoint.before",
        "store.checkpoint.after",
        "store.begin.before",
        "store.begin.after",
    ];
    for place in places {
        for count in 1.. {
            assert!(count < 40, "{place} is reached endlessly");
            let llm = sends(
                || Answer::new().call("c1", "Read", json!({"file_path": "a.txt"})),
                json!({"prompt": "look"}),
            );
            let home = family(&llm);
            home.write("a.txt", "one\n");
            let args = ["-p", "go", "--agent", "lead"];
            let out = home.aye(&args).env("AYE_FAILPOINT", &format!("{place}:{count}")).run();
            let died = out.was_killed();
            if died {
                let again = home.aye(&["-c", "-p"]).run();
                if again.status.code() == Some(2) && llm.asked().is_empty() {
                    // It died before the message was stored.
                    home.ok(&args);
                } else if again.status.code() == Some(2) {
                    assert!(again.stderr.contains("nothing to resume"), "{place}:{count} {again:?}");
                } else {
                    assert_eq!(again.stdout, "The lead is done.\n", "{place}:{count} {again:?}");
                }
            } else {
                out.exits(0);
            }
            let tasks = tasks(&home);
            assert_eq!(tasks.len(), 1, "{place}:{count}");
            assert_eq!(tasks[0]["task_status"], "completed", "{place}:{count}");
            let thread = tasks[0]["thread_id"].as_str().expect("an id").to_owned();
            let told = home.ok(&["threads", "show", &thread, "--json"]).stdout;
            assert_eq!(told.matches("All clear.").count(), 1, "{place}:{count} {told}");
            assert_eq!(llm.last().result("c1"), "All clear.", "{place}:{count}");
            home.ok(&["audit", "--verify"]);
            if !died {
                break;
            }
        }
    }
}

#[test]
fn a_terminal_shows_a_child_below_its_call_and_asks_for_it() {
    for (columns, rows) in [(120, 40), (60, 15)] {
        let llm = asks();
        let home = family(&llm);
        let mut tty = Pty::start(&home, &["--agent", "lead"], columns, rows);
        tty.ready();
        tty.say("go");
        tty.card("scout › Run this command?");
        tty.send("y");
        tty.shows("The lead is done.");
        assert_eq!(home.read("log.txt"), "ran\n");
        let all = tty.look(crate::support::pty::View::all);
        assert!(all.contains("└ scout · completed"), "{all}");
        tty.quit();
        // So does a terminal that reopens it.
        let mut tty = Pty::start(&home, &["-c"], columns, rows);
        tty.shows("The lead is done.");
        let all = tty.look(crate::support::pty::View::all);
        assert!(all.contains("└ scout · completed"), "{all}");
        tty.quit();
    }
}

/// The terminal is killed while a child asks; another one opens the conversation, and a third process
/// answers.
#[test]
fn a_child_outlives_its_terminal() {
    let llm = asks();
    let home = family(&llm);
    let tty = Pty::start(&home, &["--agent", "lead"], 100, 30);
    tty.ready();
    tty.say("go");
    tty.card("scout › ");
    tty.kill();
    let mut tty = Pty::start(&home, &["-c"], 100, 30);
    tty.shows("scout › ");
    tty.shows("waiting for you");
    home.ok(&["approve", &home.question()]);
    tty.shows("The lead is done.");
    assert_eq!(home.read("log.txt"), "ran\n");
    tty.quit();
}
