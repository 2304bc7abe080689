//! Decision rows: answers that are repeated, late, misdirected, or in an unexpected form.

use aye::contract::display::is_unsafe;
use rusqlite::Connection;
use serde_json::json;

use super::{Found, each, ensure, of_area};
use crate::support::home::{Home, Out};
use crate::support::llm::{Answer, MockLlm};
use crate::support::pty::Pty;

type Check = fn() -> Found;

/// Rows about the store alone: their tests are there, under the same ids.
const IN_THE_STORE: &str = include_str!("../../../crates/store-sqlite/src/tests/hostile.rs");

pub fn check_of(id: &str) -> Option<Check> {
    Some(match id {
        "DE001" => unknown,
        "DE002" => once,
        "DE005" => expired,
        "DE007" => race,
        "DE009" => schema,
        "DE017" => other_ids,
        "DE019" => || ensure(IN_THE_STORE.contains("\"DE019\" => "), || "the store has no test".into()),
        "DE020" => enter_is_no_answer,
        "DE022" => reason,
        "DE023" => only_b,
        "DE101o" => after_a_new_message,
        "DE102o" => answers_that_are_no_json,
        "DE103o" => deny_is_told,
        _ => return None,
    })
}

#[test]
fn every_row() {
    let rows = of_area("decision").into_iter().filter(|row| check_of(&row.id).is_some()).collect();
    each(rows, |row| check_of(&row.id).expect("a check")());
}

const RUN: &str = "echo ran >> log.txt";

/// A home in which a command waits for its decision.
fn waiting() -> (MockLlm, Home, String) {
    let llm = MockLlm::answers([Answer::new().bash("a", RUN), Answer::say("done")]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    let id = home.question();
    (llm, home, id)
}

fn is(out: &Out, code: i32) -> Found {
    let all = format!("{}{}", out.stdout, out.stderr);
    ensure(out.status.code() == Some(code), || format!("{}: {all}", out.status))?;
    ensure(!all.chars().any(is_unsafe), || format!("raw: {all:?}"))
}

fn go_on(home: &Home) -> Out {
    home.aye(&["-c", "-p"]).run()
}

fn unknown() -> Found {
    let (_llm, home, id) = waiting();
    for bad in ["nope", "", "%", "_", "\u{1b}[2J", "perm_", "' OR 1=1 --", "a"] {
        let out = home.aye(&["approvals", "approve", bad]).run();
        // `perm_` is a prefix of the only question.
        if bad == "perm_" || id == bad {
            continue;
        }
        is(&out, 2).map_err(|e| format!("{bad:?}: {e}"))?;
    }
    Ok(())
}

fn once() -> Found {
    let (_llm, home, id) = waiting();
    is(&home.aye(&["approvals", "approve", &id]).run(), 0)?;
    let out = home.aye(&["approvals", "approve", &id]).run();
    is(&out, 1)?;
    ensure(out.stderr.contains("already decided by tester"), || out.stderr.clone())?;
    is(&home.aye(&["approvals", "deny", &id]).run(), 1)?;
    is(&go_on(&home), 0)?;
    is(&go_on(&home), 2).or(Ok::<(), String>(()))?;
    let out = home.aye(&["approvals", "approve", &id]).run();
    ensure(out.status.code() != Some(0), || "decided again".into())?;
    ensure(home.read("log.txt") == "ran\n", || home.read("log.txt"))
}

fn expired() -> Found {
    let (_llm, home, id) = waiting();
    let conn = Connection::open(home.root().join("aye/data/aye.db")).expect("a database");
    let changed = conn.execute("UPDATE suspension SET expires_at = 1", ()).expect("changed");
    drop(conn);
    ensure(changed == 1, || "no row".into())?;
    let out = home.aye(&["approvals", "approve", &id]).run();
    is(&out, 1)?;
    ensure(out.stderr.contains("expired"), || out.stderr.clone())?;
    go_on(&home);
    ensure(home.read("log.txt").is_empty(), || "it ran".into())
}

fn race() -> Found {
    for _ in 0..3 {
        let (_llm, home, id) = waiting();
        let yes = home.aye(&["approvals", "approve", &id]).spawn();
        let no = home.aye(&["approvals", "deny", &id]).spawn();
        let (yes, no) = (yes.end(), no.end());
        let won = [&yes, &no].iter().filter(|out| out.status.code() == Some(0)).count();
        ensure(won == 1, || format!("{won} won: {} {}", yes.stderr, no.stderr))?;
        let lost = if yes.status.code() == Some(0) { &no } else { &yes };
        ensure(lost.stderr.contains("already decided by"), || lost.stderr.clone())?;
        is(&go_on(&home), 0)?;
        let wanted = if yes.status.code() == Some(0) { "ran\n" } else { "" };
        ensure(home.read("log.txt") == wanted, || "the other one counted".into())?;
    }
    Ok(())
}

fn asked() -> (MockLlm, Home, String) {
    let question = json!({"question": "Which?", "choices": ["a", "b"]});
    let llm = MockLlm::answers([Answer::new().call("q", "AskUser", question), Answer::say("done")]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    let id = home.question();
    (llm, home, id)
}

fn schema() -> Found {
    let (_llm, home, id) = asked();
    for bad in ["{\"approved\":\"yes\"}", "7", "[]", "{\"answer\": {\"x\": 1}}", "null", "true"] {
        let out = home.aye(&["approvals", "answer", &id, bad]).run();
        is(&out, 2).map_err(|e| format!("{bad}: {e}"))?;
    }
    ensure(home.question() == id, || "it is no longer pending".into())
}

fn answers_that_are_no_json() -> Found {
    let (_llm, home, id) = asked();
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    for bad in ["", "{", "yes", "{'a':1}", "NaN", "\u{1b}[2J", &deep] {
        is(&home.aye(&["approvals", "answer", &id, bad]).run(), 2)?;
    }
    ensure(home.question() == id, || "it is no longer pending".into())
}

fn other_ids() -> Found {
    let (_llm, home, id) = waiting();
    let thread = home.thread();
    for other in [thread.as_str(), "a", &format!("{id}x"), &id.to_uppercase()] {
        is(&home.aye(&["approvals", "approve", other]).run(), 2).map_err(|e| format!("{other}: {e}"))?;
    }
    is(&home.aye(&["-r", &id, "-p"]).run(), 2)?;
    ensure(home.question() == id && home.read("log.txt").is_empty(), || "something happened".into())
}

/// Enter, a paste, Ctrl-C and the terminal's end do not approve.
fn enter_is_no_answer() -> Found {
    // On a call that can do no harm the first answer is marked, and Enter takes it; nowhere else.
    let run = "rm -f x; echo ran >> log.txt";
    let llm = MockLlm::answers([Answer::new().bash("a", run), Answer::say("done")]);
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &[], 90, 24);
    tty.ready();
    tty.say("go");
    tty.card(run);
    tty.send("\r\r\n");
    tty.paste("y\r");
    tty.send("\x03");
    tty.signal(rustix::process::Signal::HUP);
    tty.end();
    ensure(home.read("log.txt").is_empty(), || "it ran".into())?;
    ensure(home.open().len() == 1, || "the question is gone".into())?;
    // The trust question: only its digit, or an arrow key before Enter, is an answer.
    let home = Home::new();
    home.write(".aye/permissions.yaml", "rules:\n  - {tool: Bash, behavior: allow}\n");
    let mut tty = Pty::start(&home, &[], 90, 24);
    tty.card(".aye/permissions.yaml");
    tty.send("\r");
    tty.paste("1\r");
    tty.shows("❯ 1");
    tty.quit();
    let out = home
        .aye(&["permissions", "check"])
        .stdin("{\"tool\":\"Bash\",\"args\":{\"command\":\"touch x\"}}")
        .run();
    ensure(out.json()["verdict"] == "ask", || out.stdout.clone())
}

fn reason() -> Found {
    let (llm, home, id) = waiting();
    let out = home.aye(&["approvals", "deny", &id, "--reason", "\u{1b}[2Jok\u{202e}"]).run();
    is(&out, 0)?;
    is(&home.aye(&["approvals", "show", &id]).run(), 0)?;
    let out = home.aye(&["-c", "-p", "--output-format", "stream-json"]).run();
    is(&out, 0)?;
    ensure(llm.last().result("a").contains("ok"), || llm.last().result("a"))?;
    is(&home.aye(&["threads", "show", &home.thread()]).run(), 0)
}

fn only_b() -> Found {
    let calls = |answer: Answer, id: &str| answer.bash(id, &format!("echo {id} >> log.txt"));
    let first = ["a", "b", "c"].iter().fold(Answer::new(), |answer, id| calls(answer, id));
    let llm = MockLlm::answers([first, Answer::say("done")]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go", "--tool-execution", "parallel_streaming"]).run().exits(3);
    let open = home.open();
    ensure(open.len() == 3, || format!("{} open", open.len()))?;
    let b = open.iter().find(|q| q.to_string().contains("echo b")).expect("`b` exists");
    is(&home.aye(&["approvals", "approve", b["id"].as_str().expect("an id")]).run(), 0)?;
    is(&home.aye(&["-c", "-p", "--tool-execution", "parallel_streaming"]).run(), 3)?;
    ensure(home.read("log.txt") == "b\n", || home.read("log.txt"))?;
    ensure(home.open().len() == 2 && llm.asked().len() == 1, || "a or c is gone".into())
}

fn after_a_new_message() -> Found {
    let (_llm, home, id) = waiting();
    is(&home.aye(&["-c", "-p", "something else"]).run(), 0)?;
    let out = home.aye(&["approvals", "approve", &id]).run();
    is(&out, 1)?;
    ensure(out.stderr.contains("closed"), || out.stderr.clone())?;
    ensure(home.read("log.txt").is_empty(), || "it ran".into())
}

fn deny_is_told() -> Found {
    let (llm, home, id) = waiting();
    is(&home.aye(&["approvals", "deny", &id, "--reason", "--not-a-flag"]).run(), 0)?;
    is(&go_on(&home), 0)?;
    ensure(llm.last().result("a").contains("--not-a-flag"), || llm.last().result("a"))?;
    ensure(home.read("log.txt").is_empty(), || "it ran".into())
}
