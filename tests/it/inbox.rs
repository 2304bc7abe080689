//! Pending questions of all conversations, and their answers: lists, refusals, immediate resumption.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::home::{Home, Out, id_of};
use crate::support::llm::{Answer, Chat, MockLlm, until};
use crate::support::pty::Pty;

const RUN: &str = "echo ran >> log.txt";

/// A model that runs the requested command, and then reports that it ended.
fn obedient() -> MockLlm {
    MockLlm::by(|chat: &Chat| {
        let said = chat.user();
        if chat.results().is_empty() {
            Answer::new().bash(&format!("call_{}", said.len()), &said)
        } else {
            Answer::say("End.")
        }
    })
}

/// A home in which a command waits for its decision.
fn waiting() -> (MockLlm, Home, String) {
    let llm = MockLlm::answers([Answer::new().bash("c1", RUN), Answer::say("It is done.")]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    let id = home.question();
    (llm, home, id)
}

/// A home in which the model asks for a colour.
fn asked() -> (MockLlm, Home, String) {
    let question = json!({"question": "Which?", "choices": ["red", "blue"]});
    let llm = MockLlm::answers([Answer::new().call("q1", "AskUser", question), Answer::say("So be it.")]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    let id = home.question();
    (llm, home, id)
}

fn sql(home: &Home, text: &str) -> usize {
    let conn = Connection::open(home.root().join("aye/data/aye.db")).expect("a database");
    conn.execute(text, ()).expect("changed")
}

/// Checks for this exit status and message; the question is unchanged and nothing ran.
#[track_caller]
fn refused(home: &Home, args: &[&str], code: i32, words: &[&str]) -> Out {
    let before = home.open();
    let out = home.aye(args).run().exits(code);
    for word in words {
        assert!(out.stderr.contains(word), "{args:?}: {word:?} is not in: {}", out.stderr);
    }
    assert!(!out.stderr.contains(['\u{1b}', '\u{202e}']), "{:?}", out.stderr);
    assert_eq!(out.stdout, "", "{args:?}");
    assert_eq!(home.open(), before, "{args:?}");
    assert_eq!(home.read("log.txt"), "", "{args:?}");
    out
}

#[test]
fn the_list_covers_all_threads_oldest_first_and_filtered() {
    let llm = obedient();
    let home = Home::with(&llm);
    let list = |args: &[&str]| {
        let rows = home.ok(&[&["inbox", "--json"], args].concat()).json();
        let summary = |row: &Value| row["summary"].as_str().expect("a summary").to_owned();
        rows.as_array().expect("a list").iter().map(summary).collect::<Vec<_>>()
    };
    assert_eq!(home.ok(&["inbox"]).stdout, "");
    assert_eq!(list(&[]), [""; 0]);
    for command in ["make one", "make three", "touch it"] {
        home.aye(&["-p", command]).run().exits(3);
    }
    assert_eq!(list(&[]), ["make one", "make three", "touch it"]);
    let rows = home.ok(&["inbox", "--json"]).json();
    assert_eq!(rows, home.ok(&["approvals", "list", "--json"]).json(), "the same rows");
    let row = &rows[1];
    assert_eq!(row["thread_title"], "make three");
    assert_eq!(
        (row["tool"].as_str(), row["action"].as_str()),
        (Some("Bash"), Some("tool:PermissionConfirm"))
    );
    assert!(row["why"].as_str().is_some_and(|why| !why.is_empty()), "{row:#}");
    for key in
        ["id", "thread_id", "cwd", "run_id", "parent_run_id", "call_id", "risk", "created_at", "expires_at"]
    {
        assert!(row.get(key).is_some(), "{key}: {row:#}");
    }

    let thread = row["thread_id"].as_str().expect("a thread");
    assert_eq!(list(&["--thread", thread]), ["make three"]);
    assert_eq!(list(&["--tool", "bash"]), ["make one", "make three", "touch it"]);
    assert_eq!(list(&["--tool", "Edit"]), [""; 0]);
    assert_eq!(list(&["--older-than", "1h"]), [""; 0]);
    let second = id_of(row);
    assert_eq!(
        sql(&home, &format!("UPDATE suspension SET created_at = created_at - 7200000 WHERE id = '{second}'")),
        1
    );
    assert_eq!(list(&["--older-than", "1h"]), ["make three"]);
    home.aye(&["inbox", "--thread", "nope"]).run().exits(2).says("unknown thread `nope`");
    home.aye(&["inbox", "--older-than", "soon"]).run().exits(2).says("30m, 2h or 1d");

    // For users: two lines each, with a sufficient id.
    let text = home.ok(&["inbox"]).stdout;
    // A second may have passed.
    let ageless =
        |text: &str| regex::Regex::new(r"\d+ s ").expect("a pattern").replace_all(text, "").into_owned();
    assert_eq!(ageless(&text), ageless(&home.ok(&["approvals", "list"]).stdout));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{text}");
    assert!(lines[2].contains("2 h") && lines[2].contains("$ make three"), "{text}");
    assert!(lines[3].contains("make three · "), "{text}");
    for (line, row) in lines.iter().step_by(2).zip(rows.as_array().expect("a list")) {
        let short = line.split(' ').next().expect("an id");
        assert_eq!(home.ok(&["approvals", "show", short, "--json"]).json()["id"], row["id"]);
    }
}

#[test]
fn the_list_fits_its_terminal() {
    let llm = obedient();
    let home = Home::with(&llm);
    home.aye(&["-p", &format!("make {}", "very-long-target ".repeat(20))]).run().exits(3);
    for columns in [80_u16, 120] {
        let mut tty = Pty::start(&home, &["inbox"], columns, 24);
        tty.end();
        let screen = tty.look(|view| view.screen());
        let lines: Vec<&str> = screen.lines().filter(|line| !line.trim().is_empty()).collect();
        assert_eq!(lines.len(), 2, "{columns}: {screen}");
        assert!(lines.iter().all(|line| line.trim_end().ends_with('…')), "{columns}: {screen}");
    }
}

#[test]
fn expired_questions_are_not_listed() {
    let (_llm, home, _id) = waiting();
    sql(&home, "UPDATE suspension SET expires_at = 1");
    assert_eq!(home.ok(&["inbox"]).stdout, "");
    assert!(home.open().is_empty());
}

#[test]
fn short_forms_decide_and_say_how_to_resume() {
    let (llm, home, id) = waiting();
    let out = home.ok(&["approve", &id]).says(&format!("approved: $ {RUN}"));
    let thread = home.thread();
    assert!(out.stderr.contains(&format!("resume with: aye -r {thread} -p")), "{}", out.stderr);
    assert_eq!(home.ok(&["-r", &thread, "-p"]).stdout, "It is done.\n");
    assert_eq!(home.read("log.txt"), "ran\n");
    assert_eq!(llm.asked().len(), 2);

    let (llm, home, id) = waiting();
    home.ok(&["deny", &id, "--reason", "not today"]).says("denied: $");
    home.ok(&["-c", "-p"]);
    assert!(llm.last().result("c1").contains("not today"));
    assert_eq!(home.read("log.txt"), "");

    let (llm, home, id) = asked();
    home.ok(&["answer", &id, "{\"answer\": \"blue\"}"]).says("answered: Which?");
    home.ok(&["-c", "-p"]);
    assert!(llm.last().result("q1").contains("blue"));
}

/// The resume command names the folder if it is another one.
#[test]
fn a_run_resumes_in_the_folder_of_its_question() {
    let (_llm, home, id) = waiting();
    home.write("it's far/x", "");
    let out = home.ok(&["-C", "it's far", "approve", &id]);
    let work = home.work().canonicalize().expect("a folder");
    let line =
        out.stderr.lines().find_map(|line| line.strip_prefix("resume with: ")).expect("a resume command");
    assert_eq!(line, format!("aye -C {} -r {} -p", work.display(), home.thread()));

    let (_llm, home, id) = waiting();
    home.write("sub/x", "");
    // Without -C the run resumes where it was asked, wherever the answer is given.
    let mut command = Command::new(env!("CARGO_BIN_EXE_aye"));
    command
        .args(["approve", &id, "--resume"])
        .env_clear()
        .envs(home.env())
        .current_dir(home.work().join("sub"));
    let out = command.stdin(Stdio::null()).output().expect("runs");
    assert!(out.status.success(), "{out:?}");
    assert_eq!((home.read("log.txt").as_str(), home.read("sub/log.txt").as_str()), ("ran\n", ""));
}

#[test]
fn several_are_answered_at_once_or_none() {
    let two = |id: &str| Answer::new().bash("a", "echo a >> log.txt").bash(id, "echo b >> log.txt");
    let llm = MockLlm::answers([two("b"), Answer::say("done")]);
    let home = Home::with(&llm);
    let parallel = ["--tool-execution", "parallel_batch_approval"];
    home.aye(&[&["-p", "go"], &parallel[..]].concat()).run().exits(3);
    let ids: Vec<String> = home.open().iter().map(id_of).collect();
    assert_eq!(ids.len(), 2);
    refused(&home, &["approve", &ids[0], "nope", &ids[1]], 2, &["unknown question `nope`"]);
    let out = home.ok(&["approve", &ids[0], &ids[1], &ids[0]]);
    assert_eq!(out.stderr.matches("approved: ").count(), 2, "{}", out.stderr);
    assert_eq!(out.stderr.matches("resume with: ").count(), 1, "{}", out.stderr);
    home.ok(&[&["-c", "-p"], &parallel[..]].concat());
    let mut log: Vec<String> = home.read("log.txt").lines().map(str::to_owned).collect();
    log.sort();
    assert_eq!(log, ["a", "b"]);

    // One question that is already answered prevents answering the others: nothing is half done.
    let llm = MockLlm::answers([two("b"), Answer::say("done")]);
    let home = Home::with(&llm);
    home.aye(&[&["-p", "go"], &parallel[..]].concat()).run().exits(3);
    let ids: Vec<String> = home.open().iter().map(id_of).collect();
    home.ok(&["deny", &ids[0]]);
    refused(&home, &["approve", &ids[1], &ids[0]], 1, &["already decided by tester", "denied"]);
}

#[test]
fn resume_continues_at_once_like_a_headless_run() {
    let (llm, home, id) = waiting();
    let out = home.ok(&["approve", &id, "--resume"]).says("approved: $");
    assert_eq!(out.stdout, "It is done.\n");
    assert_eq!(home.read("log.txt"), "ran\n");
    assert_eq!(llm.asked().len(), 2);

    let (_llm, home, id) = waiting();
    let out = home.ok(&["deny", &id, "--resume", "--output-format", "json"]);
    assert_eq!(
        (out.json()["status"].as_str(), out.json()["response"].as_str()),
        (Some("done"), Some("It is done."))
    );
    assert_eq!(home.read("log.txt"), "");

    // The next question of the run: exit status 3, as with -p.
    let llm = MockLlm::answers([
        Answer::new().bash("a", "echo a >> log.txt"),
        Answer::new().bash("b", "echo b >> log.txt"),
        Answer::say("End."),
    ]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    home.aye(&["approve", &home.question(), "--resume"]).run().exits(3).says("waiting for a decision");
    home.aye(&["approvals", "approve", &home.question(), "--resume"]).run().exits(0);
    assert_eq!(home.read("log.txt"), "a\nb\n");

    // An unreachable provider: 75, and the answer is kept.
    let llm = MockLlm::answers([Answer::new().bash("c1", RUN), Answer::error(503, "overloaded")]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    home.aye(&["approve", &home.question(), "--resume"]).run().exits(75);
    assert_eq!(home.read("log.txt"), "ran\n");

    // Two conversations are not resumed at once.
    let llm = obedient();
    let home = Home::with(&llm);
    home.aye(&["-p", "make one"]).run().exits(3);
    home.aye(&["-p", "make three"]).run().exits(3);
    let ids: Vec<String> = home.open().iter().map(id_of).collect();
    refused(&home, &["approve", &ids[0], &ids[1], "--resume"], 2, &["one at a time"]);
}

/// An active process keeps the run: the answer is stored, and the output names who resumes.
#[test]
fn a_run_driven_by_another_process_is_left_to_it() {
    let llm = MockLlm::answers([
        Answer::new().bash("a", "echo a >> log.txt").bash("b", "cat gate"),
        Answer::say("End."),
        Answer::say("End."),
    ]);
    let home = Home::with(&llm);
    let made = Command::new("mkfifo").arg(home.work().join("gate")).status();
    assert!(made.expect("mkfifo is installed").success());
    let parallel = ["--tool-execution", "parallel_streaming"];
    let running = home.aye(&[&["-p", "go"], &parallel[..]].concat()).spawn();
    until("a question, and the other command", || !home.open().is_empty() && home.works("cat gate"));
    let id = home.question();
    let out = home.aye(&["approve", &id, "--resume"]).run().exits(0).says("approved: $ echo a");
    assert!(out.stderr.contains("resumes the run"), "{}", out.stderr);
    assert_eq!((out.stdout.as_str(), home.open().len()), ("", 0));
    home.write("gate", "");
    drop(running.end());
    // Whether or not the other process was notified, the call runs once.
    let _ = home.aye(&[&["-c", "-p"], &parallel[..]].concat()).run();
    assert_eq!(home.read("log.txt"), "a\n");
}

#[test]
fn invalid_ids_are_refused_one_by_one() {
    let (_llm, home, id) = waiting();
    for command in ["approve", "deny"] {
        refused(&home, &[command, "nope"], 2, &["unknown question `nope`", "aye inbox"]);
        refused(&home, &[command, ""], 2, &["empty", "aye inbox"]);
        refused(&home, &[command, "perm\u{1b}[2J\u{202e}"], 2, &["control characters", "^[[2J", "aye inbox"]);
        refused(&home, &[command, &id.to_uppercase()], 2, &["unknown question"]);
        refused(&home, &[command, &home.thread()], 2, &["unknown question"]);
    }
    refused(&home, &["answer", "", "1"], 2, &["empty"]);
    refused(&home, &["approvals", "show", "nope"], 2, &["unknown question"]);
    refused(&home, &["approvals", "show", ""], 2, &["empty"]);
    refused(&home, &["approve"], 2, &["<ID>"]);

    // Two with a common prefix are both named, with their subjects.
    let llm = obedient();
    let home = Home::with(&llm);
    home.aye(&["-p", "make one"]).run().exits(3);
    home.aye(&["-p", "make three"]).run().exits(3);
    let ids: Vec<String> = home.open().iter().map(id_of).collect();
    refused(
        &home,
        &["approve", "perm_call"],
        2,
        &["several ids", &ids[0], &ids[1], "make one", "make three"],
    );
    // An answered one still counts: its earlier prefix names no other now.
    home.ok(&["approve", &ids[0]]);
    refused(&home, &["approve", "perm_call"], 2, &["several ids", &ids[1], "decided: $ make one"]);
}

#[test]
fn invalid_answers_are_refused_with_the_expected_form() {
    let (_llm, home, id) = asked();
    let right = format!(
        "expected: aye answer {id} '{{\"answer\":\"red\"}}' with {{\"answer\": \"red\" or \"blue\"}}"
    );
    refused(&home, &["answer", &id, "{\"answer\": 7}"], 2, &["/answer", &right]);
    refused(&home, &["answer", &id, "{\"answer\": \"green\"}"], 2, &[&right]);
    refused(&home, &["answer", &id, "{}"], 2, &[&right]);
    refused(&home, &["answer", &id], 2, &["the answer is missing", &right]);
    refused(&home, &["answer", &id, ""], 2, &["the answer is missing", &right]);
    refused(&home, &["answer", &id, "blue"], 2, &["not JSON"]);
    refused(&home, &["approve", &id], 2, &["needs data, not just approval", &right]);
    home.ok(&["answer", &id, "{\"answer\": \"red\"}"]);

    // A question that only needs approval takes no data: it would be an unintended approval.
    let (_llm, home, id) = waiting();
    for data in ["\"no\"", "false", "{\"approved\": false}", "0"] {
        refused(
            &home,
            &["answer", &id, data],
            2,
            &["takes no data", &format!("aye approve {id}, or aye deny {id}")],
        );
    }
}

#[test]
fn late_answers_are_refused_each_with_its_reason() {
    // Decided: who, how, when and what.
    let (_llm, home, id) = waiting();
    home.ok(&["deny", &id, "--reason", "not\u{1b}[2J today"]);
    let uid = format!("uid {}", rustix::process::getuid().as_raw());
    let words = ["already decided by tester (cli)", &uid, "process ", " at 20", ": denied", "not^[[2J today"];
    refused(&home, &["approve", &id], 1, &words);
    home.ok(&["-c", "-p"]);
    refused(&home, &["deny", &id], 1, &words);
    let shown = home.ok(&["approvals", "show", &id]).stdout;
    assert!(shown.contains("decided and applied") && shown.contains("by tester (cli)"), "{shown}");

    // In a terminal: its name.
    let (_llm, home, id) = waiting();
    let mut tty = Pty::start(&home, &["approve", &id], 100, 24);
    tty.end();
    refused(&home, &["deny", &id], 1, &["/dev/pts/", ": approved"]);

    // Expired: offered to ask again.
    let (_llm, home, id) = waiting();
    sql(&home, "UPDATE suspension SET expires_at = 1");
    let again = format!("to be asked again: aye -r {} -p", home.thread());
    refused(&home, &["approve", &id], 1, &["expired", &again]);

    // A new message arrived.
    let (_llm, home, id) = waiting();
    home.ok(&["-c", "-p", "something else"]);
    refused(&home, &["approve", &id], 1, &["closed", "a new message superseded it"]);

    // The run was cancelled, here in the terminal.
    let (_llm, home, id) = waiting();
    let mut tty = Pty::start(&home, &["-c"], 100, 30);
    tty.card(RUN);
    tty.send("\x1b");
    until("the end of the question", || home.open().is_empty());
    tty.quit();
    refused(&home, &["approve", &id], 1, &["closed", "its run was cancelled"]);
}

#[test]
fn a_read_only_store_is_listed_but_cannot_be_answered() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_llm, home, id) = waiting();
    let data = home.root().join("aye/data");
    let chmod = |mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&data, mode).expect("a mode");
    };
    chmod(0o555);
    let before = std::fs::read(data.join("aye.db")).expect("a database");
    let list = home.aye(&["inbox"]).run();
    let rows = home.aye(&["approvals", "list", "--json"]).run();
    let shown = home.aye(&["approvals", "show", &id]).run();
    let approve = home.aye(&["approve", &id]).run();
    let deny = home.aye(&["approvals", "deny", &id]).run();
    let watch = home.aye(&["inbox", "--watch"]).spawn();
    watch.signal(Signal::TERM);
    drop(watch.end());
    let after = std::fs::read(data.join("aye.db")).expect("a database");
    chmod(0o700);
    assert_eq!(before, after);
    for out in [list.exits(0).says("read-only"), shown.exits(0)] {
        assert!(out.stdout.contains("echo ran"), "{}", out.stdout);
    }
    assert_eq!(rows.exits(0).json()[0]["id"], id.as_str());
    for out in [approve, deny] {
        let out = out.exits(1).says("read-only; the decision cannot be stored; nothing changed");
        assert!(out.stderr.contains("aye.db"), "{}", out.stderr);
    }
    assert_eq!(home.question(), id);
}

/// The summaries of the rows that the watch writes, one by one.
struct Watching {
    child: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Watching {
    fn start(home: &Home, args: &[&str]) -> Watching {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aye"));
        command.args(["inbox", "--watch"]).args(args).current_dir(home.work()).env_clear().envs(home.env());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
        Watching { child, lines }
    }

    fn next(&mut self) -> String {
        let line = self.lines.next().expect("continues").expect("stdout");
        let row: Value = serde_json::from_str(&line).expect("one line of JSON");
        row["summary"].as_str().expect("a summary").to_owned()
    }

    fn ends(mut self, signal: Option<Signal>) -> Option<i32> {
        if let Some(signal) = signal {
            let pid = rustix::process::Pid::from_child(&self.child);
            rustix::process::kill_process(pid, signal).expect("is alive");
            assert!(self.lines.next().is_none(), "nothing is written twice, or late");
        }
        drop(self.lines);
        let mut code = None;
        until("the end of the watch", || {
            code = self.child.try_wait().expect("a child").map(|status| status.code());
            code.is_some()
        });
        code.flatten()
    }
}

#[test]
fn watch_reports_each_question_once_as_it_arrives() {
    let llm = obedient();
    let home = Home::with(&llm);
    home.aye(&["-p", "make one"]).run().exits(3);
    let mut watch = Watching::start(&home, &[]);
    let mut edits = Watching::start(&home, &["--tool", "Edit"]);
    let mut old = Watching::start(&home, &["--older-than", "1s"]);
    assert_eq!(watch.next(), "make one");
    for command in ["make three", "touch it"] {
        home.aye(&["-p", command]).run().exits(3);
        assert_eq!(watch.next(), command);
    }
    // Answers, resumed runs and ends are not reported.
    home.ok(&["approve", &id_of(&home.open()[0]), "--resume"]);
    home.aye(&["-p", "make seventeen"]).run().exits(3);
    assert_eq!(watch.next(), "make seventeen");
    // The first one may have been answered before it was old enough.
    let first = old.next();
    assert!(["make one", "make three"].contains(&first.as_str()), "{first}");
    assert_eq!(watch.ends(Some(Signal::INT)), Some(130));
    assert_eq!(old.ends(None), Some(0), "nobody reads");
    assert!(edits.child.try_wait().expect("a child").is_none(), "it keeps waiting");
    assert_eq!(edits.ends(Some(Signal::TERM)), Some(143));
    let bells = home.root().join("aye/data/bells");
    assert_eq!(std::fs::read_dir(bells).expect("a folder").count(), 0, "nothing is left behind");
}

#[test]
fn show_contains_everything() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("r1", "Read", json!({"file_path": "a.txt"})),
        1 => Answer::new().call(
            "c1",
            "Edit",
            json!({"file_path": "a.txt", "old_string": "one", "new_string": "two"}),
        ),
        _ => Answer::say("End."),
    });
    let home = Home::with(&llm);
    home.write("a.txt", "one\n");
    home.aye(&["-p", "x"]).run().exits(3);
    let id = home.question();
    let conn = Connection::open(home.root().join("aye/data/aye.db")).expect("a database");
    // Kinds added by a later version are shown without this one knowing them.
    let changed = conn
        .execute(
            "UPDATE suspension SET ticket = json_set(ticket, '$.suspension.parameters.risk', 'edits', \
             '$.suspension.parameters.later', json('{\"head\":\"abc\"}'))",
            (),
        )
        .expect("changed");
    assert_eq!(changed, 1);
    drop(conn);
    let shown = home.ok(&["approvals", "show", &id]).stdout;
    let work = home.work().canonicalize().expect("a folder").display().to_string();
    for text in [
        id.as_str(),
        &home.thread(),
        "open",
        "Edit",
        "why",
        &work,
        "-one",
        "+two",
        "risk        edits",
        "abc",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(shown.contains(&format!("answer with: aye approve {id}")), "{shown}");
    home.ok(&["approve", &id]);
    let shown = home.ok(&["approvals", "show", &id]).stdout;
    assert!(shown.contains("allowed at") && shown.contains("decided by tester (cli), uid "), "{shown}");
}

/// A model that runs the requested command, and the commands that wait in their own conversations.
fn elsewhere(commands: &[&str]) -> (MockLlm, Home) {
    let llm = obedient();
    let home = Home::with(&llm);
    for command in commands {
        home.aye(&["-p", command]).run().exits(3);
    }
    (llm, home)
}

const INBOX: &str = "\x14";

#[test]
fn the_terminal_answers_questions_of_other_conversations_in_place() {
    for (columns, rows) in [(100, 30), (60, 15)] {
        let (_llm, home) = elsewhere(&["echo one >> log.txt", "echo three >> log.txt"]);
        let mut tty = Pty::start(&home, &[], columns, rows);
        tty.ready();
        tty.wait("the badge", |view| view.has("2 waiting elsewhere"));
        tty.send(INBOX);
        tty.wait("the list", |view| view.has("$ echo one") && view.has("$ echo three"));
        tty.send("three");
        tty.wait("the filter", |view| view.has("1/1") && !view.has("$ echo one"));
        tty.send("\r");
        tty.card("echo three >> log.txt");
        tty.wait("its conversation", |view| view.has(" › Run this command?"));
        assert_eq!(home.read("log.txt"), "");
        tty.send("y");
        until("the run in the background", || home.read("log.txt") == "three\n");
        tty.wait("the badge", |view| view.has("1 waiting elsewhere") && !view.has("Run this command?"));
        tty.shows("resumed and done");
        // The conversation on the screen is untouched.
        assert_eq!(home.open().len(), 1);
        tty.say("echo fourteen >> log.txt");
        tty.card("echo fourteen");
        tty.quit();
    }
}

#[test]
fn the_badge_and_the_list_follow_other_processes() {
    let (_llm, home) = elsewhere(&[]);
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    home.aye(&["-p", "echo one >> log.txt"]).run().exits(3);
    tty.wait("the badge", |view| view.has("1 waiting elsewhere"));
    tty.send(INBOX);
    tty.wait("the list", |view| view.has("$ echo one"));
    home.aye(&["-p", "echo three >> log.txt"]).run().exits(3);
    tty.wait("the second one", |view| view.has("$ echo three") && view.has("1/2"));
    // A card shown here and answered there disappears, with a notice of who answered.
    tty.send("\r");
    tty.card("echo one");
    home.ok(&["deny", &id_of(&home.open()[0])]);
    tty.wait("who answered", |view| view.has("was denied by tester") && !view.has("Run this command?"));
    home.ok(&["deny", &home.question()]);
    tty.wait("no badge", |view| !view.has("elsewhere"));
    tty.quit();
    assert_eq!(home.read("log.txt"), "");
}

/// A background run works where it was asked, under that folder's rules and no flag given here.
#[test]
fn a_question_of_another_folder_resumes_there() {
    let llm = obedient();
    let home = Home::with(&llm);
    home.write("sub/x", "");
    home.aye(&["-C", "sub", "-p", "echo one >> log.txt"]).run().exits(3);
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.send(INBOX);
    tty.wait("the list", |view| view.has("$ echo one"));
    tty.send("\r");
    tty.card("echo one");
    tty.shows("/sub");
    tty.send("y");
    until("the run in the background", || home.read("sub/log.txt") == "one\n");
    assert_eq!(home.read("log.txt"), "");
    tty.shows("resumed and done");
    tty.quit();
}

#[test]
fn right_opens_the_conversation_of_a_question() {
    let (_llm, home) = elsewhere(&["echo one >> log.txt"]);
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("/inbox");
    tty.wait("the list", |view| view.has("→ open") && view.has("$ echo one"));
    tty.send("\x1b[C");
    tty.wait("its conversation", |view| view.has("❯ echo one >> log.txt") && view.has("1 waiting"));
    tty.card("echo one");
    tty.send("y");
    tty.shows("End.");
    assert_eq!(home.read("log.txt"), "one\n");
    tty.quit();
}
