//! Headless runs and their questions: left, denied, waited for, and answered from elsewhere.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::home::{Home, Out, Running};
use crate::support::llm::{Answer, Gate, MockLlm, Part, until};
use crate::support::pty::Pty;

const TOUCH: &str = "echo ran >> log.txt";

/// A model that runs a command and then reports its outcome.
fn asks_to_run(command: &str) -> MockLlm {
    MockLlm::answers([Answer::say("I will.").bash("c1", command), Answer::say("It is done.")])
}

fn waits(home: &Home, more: &[&str]) -> Running {
    let args: Vec<&str> =
        ["-p", "do it", "--on-ask", "wait"].into_iter().chain(more.iter().copied()).collect();
    let run = home.aye(&args).spawn();
    run.until_told("for an answer from another terminal");
    run
}

/// How often each thread of a process was suspended and woken so far.
fn switches(pid: u32) -> BTreeMap<String, u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("is alive");
    let count = |status: String| -> u64 {
        let is_count = |line: &&str| line.contains("ctxt_switches:");
        status
            .lines()
            .filter(is_count)
            .filter_map(|line| line.rsplit(char::is_whitespace).next()?.parse::<u64>().ok())
            .sum()
    };
    tasks
        .flatten()
        .filter_map(|task| {
            let status = std::fs::read_to_string(task.path().join("status")).ok()?;
            Some((task.file_name().to_string_lossy().into_owned(), count(status)))
        })
        .collect()
}

/// The last kinds of events after the question.
const GOES_ON: [&str; 5] =
    ["step_start", "text_delta", "inference_complete", "step_end", "run_finish(natural_end)"];

#[test]
fn suspending_leaves_the_question_to_other_processes() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let out = home.aye(&["-p", "do it", "--on-ask", "suspend", "--output-format", "json"]).run().exits(3);
    let waiting = &out.json()["waiting"][0];
    assert_eq!(waiting["tool"], "Bash");
    assert_eq!(waiting["summary"], TOUCH);
    assert_eq!(waiting["answers"], json!(["aye approve perm_c1", "aye deny perm_c1 --reason TEXT"]));
    for text in ["perm_c1", TOUCH, "aye approve perm_c1", "aye deny perm_c1"] {
        assert!(out.stderr.contains(text), "{text}: {}", out.stderr);
    }
    assert!(out.stderr.contains(waiting["why"].as_str().expect("a reason")), "{}", out.stderr);
    let thread = out.json()["thread_id"].as_str().expect("a thread").to_owned();
    home.ok(&["approvals", "approve", "perm_c1"]);
    home.ok(&["-r", &thread, "-p", "--on-ask", "suspend"]);
    home.ok(&["-r", &thread, "-p"]);
    assert_eq!(home.read("log.txt"), "ran\n");
}

/// Three output formats, one question.
#[test]
fn an_already_waiting_run_is_reported_in_each_format() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    home.aye(&["-p", "do it"]).run().exits(3);
    let text = home.aye(&["-c", "-p"]).run().exits(3);
    let json = home.aye(&["-c", "-p", "--output-format", "json"]).run().exits(3);
    let stream = home.aye(&["-c", "-p", "--output-format", "stream-json"]).run().exits(3);
    assert_eq!(stream.events(), ["run_start", "tool_call_done(suspended)", "run_finish(suspended)"]);
    assert_eq!((&text.stderr, &text.stderr), (&json.stderr, &stream.stderr));
    let told = &stream.lines()[1];
    let ticket = &told["result"]["suspension"];
    assert_eq!(ticket, &json.json()["waiting"][0]["ticket"], "{told:#}");
    assert_eq!(stream.lines()[0]["run_id"], json.json()["run_id"]);
}

#[test]
fn denying_continues_without_the_call() {
    let llm = MockLlm::answers([
        Answer::new().bash("c1", TOUCH).call("q1", "AskUser", json!({"question": "Which?"})),
        Answer::say("It was not possible."),
    ]);
    let home = Home::with(&llm);
    let out = home.ok(&["-p", "do it", "--on-ask", "deny", "--output-format", "json"]);
    assert_eq!(out.json()["status"], "done");
    assert_eq!(out.json()["waiting"], json!([]));
    // The tool that asks is not offered, so its call is no question.
    assert_eq!(out.json()["denied"].as_array().map(Vec::len), Some(1), "{:#}", out.json());
    assert_eq!(home.read("log.txt"), "");
    assert!(home.open().is_empty());
    for call in ["c1", "q1"] {
        let text = llm.last().result(call);
        assert!(text.contains("nobody is available") && text.contains("not run"), "{text}");
        assert!(!text.contains("The user"), "nothing was said: {text}");
    }
    let shown = home.ok(&["approvals", "show", "perm_c1", "--json"]).json();
    assert_eq!(shown["decided_by"]["channel"], "policy", "{shown:#}");
    let late = home.aye(&["approvals", "approve", "perm_c1"]).run().exits(1);
    late.says("already decided by tester (policy)");
}

#[test]
fn the_setting_matches_the_flag() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    home.ok(&["-p", "do it", "--config", "on_ask=deny"]);
    assert_eq!(home.read("log.txt"), "");
    for wrong in ["wait=0", "wait=soon", "hope"] {
        home.aye(&["-p", "do it", "--on-ask", wrong]).run().exits(2).says("--on-ask");
    }
    let shown = home.ok(&["config", "show", "--config", "on_ask=wait=2m"]).stdout;
    assert!(shown.contains("on_ask = \"wait=2m\""), "{shown}");
}

#[test]
fn an_answer_from_another_process_takes_effect_at_once() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let run = waits(&home, &["--output-format", "stream-json"]);
    assert_eq!(home.read("log.txt"), "");
    home.ok(&["approvals", "approve", "perm_c1"]);
    let answered = Instant::now();
    let out = run.end().exits(0);
    assert!(answered.elapsed() < Duration::from_secs(5), "{:?}", answered.elapsed());
    let events = out.events();
    let at = events.iter().position(|kind| kind == "run_finish(suspended)").expect("waits");
    assert_eq!(events[at + 1..at + 4], ["run_start", "tool_call_resumed", "tool_call_done(succeeded)"]);
    assert_eq!(events[at + 4..], GOES_ON);
    let starts: Vec<Value> =
        out.lines().into_iter().filter(|line| line["event_type"] == "run_start").collect();
    assert_eq!(starts[0]["run_id"], starts[1]["run_id"], "the same run resumes");
    assert_eq!(home.read("log.txt"), "ran\n");
    out.says("perm_c1: approved by tester (cli)");
}

#[test]
fn questions_of_one_step_are_answered_one_by_one() {
    let llm = MockLlm::answers([
        Answer::new().bash("c1", "echo one >> log.txt").bash("c2", "echo two >> log.txt"),
        Answer::say("Both."),
    ]);
    let home = Home::with(&llm);
    let run = waits(&home, &[]);
    home.ok(&["approvals", "approve", "perm_c2"]);
    run.until_told("perm_c2: approved");
    home.ok(&["approvals", "deny", "perm_c1"]);
    let out = run.end().exits(0);
    assert_eq!(home.read("log.txt"), "two\n");
    assert!(llm.last().result("c1").contains("The user denied"));
    assert_eq!(out.stderr.matches("waiting for a decision: perm_c1").count(), 1, "{}", out.stderr);
}

#[test]
fn waiting_costs_nothing() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let run = waits(&home, &[]);
    // Another process lists meanwhile, which takes a while and changes nothing. Startup threads may take some
    // time to become idle; then the remaining ones sleep.
    let sleeps = (0..20).any(|_| {
        let before = switches(run.pid());
        for _ in 0..5 {
            home.open();
        }
        switches(run.pid()).iter().all(|(thread, count)| before.get(thread) == Some(count))
    });
    assert!(sleeps, "{:?}", switches(run.pid()));
    home.ok(&["approvals", "deny", "perm_c1"]);
    run.end().exits(0);
}

#[test]
fn an_unanswered_question_expires() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let out = home.aye(&["-p", "do it", "--on-ask", "wait=1", "--output-format", "json"]).run().exits(6);
    let object = out.json();
    assert_eq!(object["status"], "expired");
    assert_eq!(object["expired"], json!(["perm_c1"]));
    assert_eq!(object["exit"], 6);
    assert_eq!(object["response"], "It is done.");
    let text = llm.last().result("c1");
    assert!(text.contains("expired") && text.contains("not run"), "{text}");
    assert!(!text.contains("user denied"), "{text}");
    let late = home.aye(&["approvals", "approve", "perm_c1"]).run().exits(1);
    late.says("expired");
    assert_eq!(home.read("log.txt"), "");
    home.ok(&["-c", "-p", "and now?"]);
    assert_eq!(home.ok(&["approvals", "show", "perm_c1", "--json"]).json()["status"], "expired");
}

#[test]
fn a_signal_leaves_the_questions_pending() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let llm = asks_to_run(TOUCH);
        let home = Home::with(&llm);
        let run = waits(&home, &["--output-format", "json"]);
        run.signal(signal);
        let out = run.end().exits(code);
        assert_eq!(out.json()["waiting"][0]["id"], "perm_c1");
        assert_eq!(out.json()["exit"], code);
        assert_eq!(home.question(), "perm_c1");
        home.ok(&["approvals", "approve", "perm_c1"]);
        home.ok(&["-c", "-p"]);
        assert_eq!(home.read("log.txt"), "ran\n");
    }
}

#[test]
fn a_kill_while_waiting_keeps_the_question() {
    let llm = MockLlm::answers([
        Answer::new().bash("c1", "echo one >> log.txt").bash("c2", "echo two >> log.txt"),
        Answer::say("Both."),
    ]);
    let home = Home::with(&llm);
    let run = waits(&home, &[]);
    run.signal(Signal::KILL);
    assert!(run.end().was_killed());
    let ids: Vec<Value> = home.open().into_iter().map(|question| question["id"].clone()).collect();
    assert_eq!(ids, ["perm_c1", "perm_c2"]);
    let again = home.aye(&["-c", "-p", "--on-ask", "wait"]).spawn();
    again.until_told("perm_c2");
    home.ok(&["approvals", "approve", "perm_c2"]);
    home.ok(&["approvals", "approve", "perm_c1"]);
    again.end().exits(0);
    let log = home.read("log.txt");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["one", "two"], "each ran once");
}

/// It sleeps through the answer and the end of the run in another process, and still reports the outcome.
#[test]
fn a_run_ended_by_another_process_is_reported() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let run = waits(&home, &["--output-format", "stream-json"]);
    run.signal(Signal::STOP);
    home.ok(&["approvals", "approve", "perm_c1"]);
    home.ok(&["-c", "-p"]);
    run.signal(Signal::CONT);
    let out: Out = run.end().exits(0);
    out.clone().says("another process finished");
    let events = out.events();
    assert_eq!(events[events.len() - 3..], ["run_start", "messages_snapshot", "run_finish(natural_end)"]);
    let last = out.lines().pop().expect("lines");
    assert_eq!((&last["event_type"], &last["response"]), (&json!("result"), &json!("It is done.")));
    assert_eq!(home.read("log.txt"), "ran\n");
    assert_eq!(llm.asked().len(), 2);
}

/// Another process is driving the run: this one waits for it and reports the outcome.
#[test]
fn a_run_driven_by_another_process_is_followed() {
    let gate = Gate::default();
    let llm = MockLlm::answers([
        Answer::say("I will.").bash("c1", TOUCH),
        Answer::say("It is ").wait(&gate).text("done."),
    ]);
    let home = Home::with(&llm);
    let run = waits(&home, &[]);
    run.signal(Signal::STOP);
    home.ok(&["approvals", "approve", "perm_c1"]);
    let mut other = home.aye(&["-c", "-p", "--output-format", "stream-json"]).spawn();
    other.until_line("It is ");
    run.signal(Signal::CONT);
    run.until_told("resumed this run");
    gate.open();
    other.end().exits(0);
    assert_eq!(run.end().exits(0).stdout, "It is done.\n");
    assert_eq!(home.read("log.txt"), "ran\n");
}

/// The process that resumed it dies: then this one resumes.
#[test]
fn a_run_whose_other_process_dies_is_taken_over() {
    let llm = MockLlm::answers([
        Answer::say("I will.").bash("c1", TOUCH),
        Answer::say("It is").part(Part::Hang),
        Answer::say("It is done."),
    ]);
    let home = Home::with(&llm);
    let run = waits(&home, &[]);
    run.signal(Signal::STOP);
    home.ok(&["approvals", "approve", "perm_c1"]);
    let mut other = home.aye(&["-c", "-p", "--output-format", "stream-json"]).spawn();
    other.until_line("It is");
    run.signal(Signal::CONT);
    run.until_told("resumed this run");
    other.signal(Signal::KILL);
    assert!(other.end().was_killed());
    assert_eq!(run.end().exits(0).stdout, "It is done.\n");
    assert_eq!(home.read("log.txt"), "ran\n");
}

/// A new message from elsewhere closes the questions.
#[test]
fn a_new_message_elsewhere_ends_the_wait() {
    let llm = MockLlm::by(|chat| match chat.user().as_str() {
        "do it" => Answer::new().bash("c1", TOUCH),
        _ => Answer::say("Fine."),
    });
    let home = Home::with(&llm);
    let run = waits(&home, &["--output-format", "json"]);
    home.ok(&["-c", "-p", "something else"]);
    let out = run.end().exits(130);
    assert_eq!(out.json()["status"], "cancelled");
    out.says("perm_c1: closed without an answer");
    assert_eq!(home.read("log.txt"), "");
}

/// A question expired, and the process died before it could resume: the next one ends with the same status.
#[cfg(feature = "failpoints")]
#[test]
fn a_question_that_expired_meanwhile_counts_at_the_next_start() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let out =
        home.aye(&["-p", "do it", "--on-ask", "wait=1"]).env("AYE_FAILPOINT", "store.expire.after").run();
    assert!(out.was_killed(), "{out:?}");
    assert!(home.open().is_empty());
    let out = home.aye(&["-c", "-p", "--output-format", "json"]).run().exits(6);
    assert_eq!(out.json()["expired"], json!(["perm_c1"]));
    assert!(llm.last().result("c1").contains("expired"));
    assert_eq!(home.read("log.txt"), "");
}

/// The storage mode and the flag decide what a headless run does about its questions.
#[test]
fn the_on_ask_matrix_of_an_ephemeral_conversation() {
    let llm = MockLlm::by(|chat| {
        if chat.results().is_empty() { Answer::new().bash("c1", TOUCH) } else { Answer::say("It is done.") }
    });
    let home = Home::with(&llm);
    let refused = home.aye(&["-p", "do it", "--ephemeral", "--on-ask", "suspend"]).run().exits(2);
    refused.says("which keeps nothing to resume");
    home.aye(&["-p", "do it", "--ephemeral", "--config", "on_ask=suspend"]).run().exits(2);
    // Without a terminal nobody could answer.
    home.aye(&["-p", "do it", "--ephemeral", "--on-ask", "wait"]).run().exits(1).says("there is none");
    assert_eq!(llm.asked().len(), 0, "refused before anything is asked");

    for more in [&[][..], &["--on-ask", "deny"]] {
        home.ok(&[&["-p", "do it", "--ephemeral"], more].concat());
        assert!(llm.last().result("c1").contains("nobody is available"));
    }
    assert_eq!(home.read("log.txt"), "");
    assert!(home.open().is_empty() && home.ok(&["threads", "list"]).stdout.is_empty(), "nothing was stored");
}

/// Text typed before a question was shown is not an answer, and neither is an unclear word.
#[test]
fn an_in_memory_conversation_asks_in_its_own_terminal() {
    let gate = Gate::default();
    let llm = MockLlm::answers([
        Answer::say("I will.").wait(&gate).bash("c1", TOUCH),
        Answer::new().call("q1", "AskUser", json!({"question": "Which?"})),
        Answer::new().bash("c2", TOUCH),
        Answer::say("It is done."),
    ]);
    let home = Home::with(&llm);
    let mut terminal = Pty::start(&home, &["-p", "do it", "--ephemeral", "--on-ask", "wait"], 100, 30);
    until("the request", || llm.asked().len() == 1);
    terminal.send("y\n");
    terminal.shows("y");
    gate.open();
    terminal.shows("approve? [y/n]");
    assert!(home.open().is_empty(), "nobody else sees it");
    assert_eq!(home.read("log.txt"), "");
    terminal.send("maybe\n");
    terminal.shows("maybe");
    terminal.send("y\n");
    terminal.shows("Ctrl-D denies");
    assert_eq!(home.read("log.txt"), "ran\n");
    terminal.send("the second\n");
    terminal.wait("the next question", |view| view.screen().matches("[y/n]").count() == 3);
    assert!(llm.last().result("q1").contains("the second"));
    terminal.send("n\n");
    terminal.shows("It is done.");
    assert!(terminal.end().success());
    assert_eq!(home.read("log.txt"), "ran\n");
    assert!(llm.last().result("c2").contains("The user"), "{}", llm.last().result("c2"));
    assert!(home.ok(&["threads", "list"]).stdout.is_empty(), "nothing was stored");
}

/// An approved call was seen: it is shown to its end, with invisible characters made visible.
#[test]
fn a_question_in_its_own_terminal_shows_the_whole_call() {
    let command = format!("echo {} > log.txt\necho hidden\u{202e} >> log.txt", "a ".repeat(200));
    let llm = asks_to_run(&command);
    let home = Home::with(&llm);
    let mut terminal = Pty::start(&home, &["-p", "do it", "--ephemeral", "--on-ask", "wait"], 100, 30);
    terminal.shows("approve? [y/n]");
    terminal.shows("    echo hidden<U+202E> >> log.txt");
    terminal.send("n\n");
    assert!(terminal.end().success());
    assert_eq!(home.read("log.txt"), "");
}

#[test]
fn timeouts_and_signals_end_the_questions_of_an_in_memory_conversation() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let mut terminal = Pty::start(&home, &["-p", "do it", "--ephemeral", "--on-ask", "wait=1"], 100, 30);
    terminal.shows("It is done.");
    assert_eq!(terminal.end().code(), Some(6));
    assert!(llm.last().result("c1").contains("expired"));

    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let mut terminal = Pty::start(&home, &["-p", "do it", "--ephemeral", "--on-ask", "wait"], 100, 30);
    terminal.shows("approve? [y/n]");
    terminal.send("\u{3}");
    assert_eq!(terminal.end().code(), Some(130));
    terminal.shows("nothing was kept");
    assert_eq!(home.read("log.txt"), "");
}

#[test]
fn an_agents_hitl_setting_decides_who_waits() {
    let llm = MockLlm::by(|chat| {
        if chat.results().is_empty() { Answer::new().bash("c1", TOUCH) } else { Answer::say("It is done.") }
    });
    let home = Home::with(&llm);
    let agents = home.root().join("aye/config/agents");
    std::fs::create_dir_all(&agents).expect("a folder");
    for mode in ["auto", "blocking", "async"] {
        let text = format!("---\ndescription: helps\nhitl: {mode}\n---\nYou help.\n");
        std::fs::write(agents.join(format!("{mode}.md")), text).expect("written");
    }
    // The settings would deny.
    let config = std::fs::read_to_string(home.root().join("aye/config/config.toml")).expect("settings");
    home.config(&format!("on_ask = \"deny\"\n{config}"));
    for agent in ["auto", "async"] {
        home.aye(&["-p", "do it", "--agent", agent]).run().exits(3);
        // A continued conversation keeps its agent, and with it the setting.
        home.aye(&["-c", "-p"]).run().exits(3);
        home.ok(&["deny", &home.question()]);
    }
    home.ok(&["-p", "do it", "--agent", "async", "--on-ask", "deny"]);
    let run = home.aye(&["-p", "do it", "--agent", "blocking"]).spawn();
    run.until_told("for an answer from another terminal");
    home.ok(&["approve", &home.question()]);
    run.end().exits(0);
    assert_eq!(home.read("log.txt"), "ran\n");
    let out = home.aye(&["-p", "do it", "--agent", "async", "--ephemeral"]).run().exits(2);
    out.says("async.md:3").says("`hitl: async` of the agent `async` does not work with --ephemeral");
    home.ok(&["-p", "do it", "--agent", "async", "--ephemeral", "--on-ask", "deny"]);
    let remedy = "; use --on-ask deny, or leave out --ephemeral";
    let out = home.aye(&["-p", "do it", "--agent", "blocking", "--ephemeral"]).run().exits(1);
    out.says("blocking.md:3: `hitl: blocking` of the agent `blocking` with --ephemeral").says(remedy);
    let out = home.aye(&["-p", "do it", "--on-ask", "wait", "--ephemeral"]).run().exits(1);
    out.says("--on-ask: `wait` with --ephemeral asks in this terminal, and there is none").says(remedy);
    // No user is at a terminal here: nobody to wait for.
    home.ok(&["-p", "do it", "--agent", "auto", "--ephemeral"]);
}
