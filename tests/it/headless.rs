//! The program without a terminal, against a server on loopback.

use rustix::process::Signal;
use serde_json::json;

use crate::support::home::{Home, id_of};
use crate::support::llm::{Answer, Gate, MockLlm, Part, until};

const TOUCH: &str = "echo ran >> log.txt";

/// A model that runs a command and then reports its outcome.
fn asks_to_run(command: &str) -> MockLlm {
    MockLlm::answers([Answer::say("I will.").bash("c1", command), Answer::say("It is done.")])
}

fn stream(home: &Home, args: &[&str]) -> Vec<String> {
    let args: Vec<&str> = args.iter().copied().chain(["--output-format", "stream-json"]).collect();
    home.aye(&args).run().events()
}

#[test]
fn only_the_text_goes_to_stdout() {
    let llm = MockLlm::answers([Answer::say("Hello ").text("there.\n")]);
    let home = Home::with(&llm);
    let out = home.ok(&["-p", "hi"]);
    assert_eq!(out.stdout, "Hello there.\n");
    assert_eq!(out.stderr, "");
    let chat = llm.last();
    assert_eq!(chat.user(), "hi");
    assert_eq!(chat.body["model"], "m1");
    assert!(chat.tools().iter().any(|tool| tool == "Bash"));
    assert!(chat.system().contains(&home.work().display().to_string()));
}

#[test]
fn json_is_one_object() {
    let llm = MockLlm::answers([Answer::say("Hello.")]);
    let out = Home::with(&llm).ok(&["-p", "hi", "--output-format", "json"]);
    let object = out.json();
    for (key, value) in [
        ("type", json!("result")),
        ("status", json!("done")),
        ("response", json!("Hello.")),
        ("steps", json!(1)),
        ("exit", json!(0)),
        ("waiting", json!([])),
        ("termination", json!({"type": "natural_end"})),
    ] {
        assert_eq!(object[key], value, "{key}: {object:#}");
    }
    assert_eq!(object["usage"]["completion_tokens"], 7, "{object:#}");
}

#[test]
fn events_of_a_text() {
    let llm = MockLlm::answers([Answer::say("Hello ").text("there.")]);
    let home = Home::with(&llm);
    let out = home.ok(&["-p", "hi", "--output-format", "stream-json"]);
    assert_eq!(
        out.events(),
        [
            "run_start",
            "step_start",
            "text_delta",
            "inference_complete",
            "step_end",
            "run_finish(natural_end)"
        ]
    );
    let seqs: Vec<u64> = out.lines().iter().filter_map(|line| line["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert_eq!(seqs.len(), out.lines().len(), "the result is one of them");
}

#[test]
fn events_of_one_tool() {
    let llm = MockLlm::answers([
        Answer::say("Let me look.").call("c1", "Read", json!({"file_path": "a.txt"})),
        Answer::say("It holds five."),
    ]);
    let home = Home::with(&llm);
    home.write("a.txt", "five\n");
    assert_eq!(
        stream(&home, &["-p", "look"]),
        [
            "run_start",
            "step_start",
            "text_delta",
            "tool_call_start",
            "tool_call_delta",
            "tool_call_ready",
            "inference_complete",
            "tool_call_done(succeeded)",
            "step_end",
            "step_start",
            "text_delta",
            "inference_complete",
            "step_end",
            "run_finish(natural_end)",
        ]
    );
    assert!(llm.last().result("c1").contains("five"));
}

const ASKED: [&str; 9] = [
    "run_start",
    "step_start",
    "text_delta",
    "tool_call_start",
    "tool_call_delta",
    "tool_call_ready",
    "inference_complete",
    "tool_call_done(suspended)",
    "step_end",
];

#[test]
fn events_of_an_approved_call() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let first = stream(&home, &["-p", "do it"]);
    assert_eq!(first[..9], ASKED);
    assert_eq!(first[9..], ["run_finish(suspended)"]);
    assert_eq!(home.read("log.txt"), "");
    home.ok(&["approvals", "approve", &home.question()]);
    let out = home.ok(&["-c", "-p", "--output-format", "stream-json"]);
    assert_eq!(
        out.events(),
        [
            "run_start",
            "tool_call_resumed",
            "tool_call_done(succeeded)",
            "step_start",
            "text_delta",
            "inference_complete",
            "step_end",
            "run_finish(natural_end)",
        ]
    );
    assert_eq!(home.read("log.txt"), "ran\n");
}

#[test]
fn events_of_a_denied_call() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let run = home.aye(&["-p", "do it", "--output-format", "stream-json"]).run().exits(3);
    home.ok(&["approvals", "deny", &home.question()]);
    let out = home.ok(&["-c", "-p", "--output-format", "stream-json"]);
    assert_eq!(
        out.events(),
        [
            "run_start",
            "tool_call_resumed",
            "tool_call_done(cancelled)",
            "step_start",
            "text_delta",
            "inference_complete",
            "step_end",
            "run_finish(natural_end)",
        ]
    );
    assert_eq!(run.lines()[0]["run_id"], out.lines()[0]["run_id"], "the same run resumes");
    assert_eq!(home.read("log.txt"), "");
}

#[test]
fn events_of_a_provider_error() {
    let llm = MockLlm::answers([Answer::error(400, "that is no request"), Answer::say("Now it works.")]);
    let home = Home::with(&llm);
    let out = home.aye(&["-p", "hi", "--output-format", "stream-json"]).run().exits(1);
    assert_eq!(out.events(), ["run_start", "step_start", "error", "step_end", "run_finish(error)"]);
    home.ok(&["-c", "-p", "and now?"]);
    let user = llm.last().user();
    assert!(user.contains("hi") && user.contains("and now?"), "the first message is kept: {user}");
}

#[test]
fn events_of_a_cancellation_during_a_stream() {
    let gate = Gate::default();
    let llm = MockLlm::answers([
        Answer::say("Half a sen").wait(&gate).text("tence.").bash("c1", TOUCH),
        Answer::say("Going on."),
    ]);
    let home = Home::with(&llm);
    let mut run = home.aye(&["-p", "hi", "--output-format", "stream-json"]).spawn();
    run.until_line("Half a sen");
    run.signal(Signal::INT);
    let out = run.end().exits(130);
    gate.open();
    assert_eq!(out.events(), ["run_start", "step_start", "text_delta", "step_end", "run_finish(cancelled)"]);
    home.ok(&["-c", "-p", "go on"]);
    let text = llm.last().body["messages"].to_string();
    assert!(text.contains("Half a sen"), "the partial text is kept: {text}");
    assert!(home.open().is_empty());
}

#[test]
fn sigterm_exits_with_143_in_json_too() {
    let llm = MockLlm::by(|_| Answer::say("Half").part(Part::Hang));
    let home = Home::with(&llm);
    let mut run = home.aye(&["-p", "hi", "--output-format", "stream-json"]).spawn();
    run.until_line("Half");
    run.signal(Signal::TERM);
    let out = run.end().exits(143);
    assert_eq!(out.events().last().map(String::as_str), Some("run_finish(cancelled)"));
    let last = out.lines().pop().expect("a line");
    assert_eq!((&last["event_type"], &last["exit"]), (&json!("result"), &json!(143)));
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let asked = llm.asked().len();
        let run = home.aye(&["-p", "hi", "--output-format", "json"]).spawn();
        until("the request", || llm.asked().len() > asked);
        run.signal(signal);
        let object = run.end().exits(code).json();
        assert_eq!((&object["status"], &object["exit"]), (&json!("cancelled"), &json!(code)));
    }
}

#[test]
fn the_last_line_of_a_stream_reports_the_outcome() {
    let llm = MockLlm::by(|chat| match chat.user().as_str() {
        "run it" => Answer::say("I will.").bash("c1", TOUCH),
        "fail" => Answer::error(400, "that is no request"),
        _ => Answer::say("Hello."),
    });
    let home = Home::with(&llm);
    for (prompt, status, code) in [("hi", "done", 0), ("run it", "waiting", 3), ("fail", "error", 1)] {
        let out = home.aye(&["-p", prompt, "--output-format", "stream-json"]).run().exits(code);
        let lines = out.lines();
        let last = lines.last().expect("a line");
        assert_eq!((&last["event_type"], &last["type"]), (&json!("result"), &json!("result")), "{last:#}");
        assert_eq!((&last["status"], &last["exit"]), (&json!(status), &json!(code)), "{last:#}");
        assert_eq!(last["seq"], lines.len(), "it is one of the stream's: {last:#}");
        assert_eq!(last["waiting"].as_array().map(Vec::len), Some(usize::from(code == 3)), "{last:#}");
        if code != 1 {
            assert_eq!(last["usage"]["completion_tokens"], 7, "{last:#}");
        }
    }
    let out = home.aye(&["-r", "nosuch", "-p", "--output-format", "stream-json"]).run();
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn a_run_ends_when_nobody_reads_its_output() {
    for format in ["stream-json", "json", "text"] {
        let llm = MockLlm::by(|_| Answer::say("Half").part(Part::Hang));
        let home = Home::with(&llm);
        let mut run = home.aye(&["-p", "hi", "--output-format", format]).spawn();
        until("the request", || !llm.asked().is_empty());
        run.close_stdout();
        run.end().exits(1).says("stdout was closed");
        // The started call is recorded, and no process works on it.
        home.ok(&["threads", "list"]);
        assert!(home.open().is_empty());
    }
}

#[test]
fn an_answer_matches_the_schema_or_is_an_error() {
    let llm = MockLlm::by(|chat| match chat.nth {
        0 => Answer::say("Here it is: {\"name\": \"Ada\"}"),
        1 => Answer::say("```json\n{\"name\": 7}\n```"),
        2 => Answer::say("{\"name\": \"Ada\"}"),
        _ => Answer::say("I would rather not."),
    });
    let home = Home::with(&llm);
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": false,
    });
    home.write("schema.json", &schema.to_string());
    let out = home.ok(&["-p", "who?", "--json-schema", "schema.json", "--output-format", "json"]);
    let object = out.json();
    assert_eq!(object["structured_output"], json!({"name": "Ada"}), "{object:#}");
    assert_eq!(
        (&object["steps"], &object["usage"]["completion_tokens"]),
        (&json!(3), &json!(21)),
        "{object:#}"
    );
    let asked = llm.asked();
    assert!(asked[0].told().contains("matches the JSON Schema below"), "{}", asked[0].told());
    assert!(asked[1].told().contains("not a single JSON value"), "{}", asked[1].told());
    assert!(asked[2].told().contains("/name: 7 is not of type"), "{}", asked[2].told());

    // An answer that stays invalid, and its errors.
    let out = home.aye(&["-p", "who?", "--json-schema", "schema.json"]).run().exits(1);
    assert_eq!(out.stdout, "");
    let out = out.says("does not match the schema of --json-schema").says("not a single JSON value");
    assert_eq!(llm.asked().len(), 6, "{}", out.stderr);
    let out = home.aye(&["-p", "who?", "--json-schema", "schema.json", "--output-format", "json"]).run();
    let object = out.exits(1).json();
    assert_eq!((&object["status"], &object["error_code"]), (&json!("error"), &json!("json_schema")));
    assert_eq!(object["errors"].as_array().map(Vec::len), Some(1), "{object:#}");

    home.write("broken.json", "{\"type\": 7}");
    home.aye(&["-p", "who?", "--json-schema", "broken.json"]).run().exits(2).says("invalid JSON Schema");
    home.aye(&["-p", "who?", "--json-schema", "nosuch.json"]).run().exits(2).says("nosuch.json");
    home.aye(&["--json-schema", "schema.json"]).run().exits(2);
}

#[test]
fn a_tool_list_does_not_swallow_the_prompt() {
    let llm = MockLlm::by(|_| Answer::say("Hello."));
    let home = Home::with(&llm);
    for args in [
        ["-p", "--allowed-tools", "Read", "say hello"],
        ["--allowed-tools", "Read,Bash(git *)", "-p", "say hello"],
        ["-p", "--disallowed-tools", "WebFetch", "say hello"],
    ] {
        assert_eq!(home.ok(&args).stdout, "Hello.\n");
        assert_eq!(llm.last().user(), "say hello");
    }
}

#[test]
fn waiting_for_an_open_pipe_is_announced() {
    let llm = MockLlm::by(|_| Answer::say("Read."));
    let home = Home::with(&llm);
    let mut run = home.aye(&["-p", "review"]).open_stdin().spawn();
    run.until_told("waiting for the end of stdin");
    run.write_stdin("the diff");
    run.close_stdin();
    assert_eq!(run.end().exits(0).stdout, "Read.\n");
    assert!(llm.last().user().contains("the diff"));
}

/// Whatever a command waits for, SIGTERM ends it.
#[test]
fn every_waiting_command_ends_on_sigterm() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let run = home.aye(&["-p", "review"]).open_stdin().spawn();
    run.until_told("waiting for the end of stdin");
    run.signal(Signal::TERM);
    run.end().ends_by(Signal::TERM);

    let run = home.aye(&["-p", "do it", "--on-ask", "wait"]).spawn();
    run.until_told("waiting for an answer");
    run.signal(Signal::TERM);
    run.end().ends_by(Signal::TERM);

    let mut run = home.aye(&["inbox", "--watch"]).spawn();
    run.until_line("perm_");
    run.signal(Signal::TERM);
    run.end().ends_by(Signal::TERM);
}

#[test]
fn piped_input_is_context() {
    let llm = MockLlm::by(|_| Answer::say("Read."));
    let home = Home::with(&llm);
    home.aye(&["-p", "review this"]).stdin("diff --git a b\n").run().exits(0);
    let user = llm.last().user();
    assert!(user.starts_with("review this") && user.contains("diff --git a b"), "{user}");
    home.aye(&["-p"]).stdin("only this").run().exits(0);
    assert_eq!(llm.last().user(), "only this");
    home.aye(&["-p"]).stdin("").run().exits(2).says("no prompt;");
    home.aye(&["-p"]).run().exits(2);
}

#[test]
fn a_run_that_cannot_start_is_an_object_with_a_code() {
    let llm = MockLlm::by(|_| Answer::say("Read."));
    let (home, without_model) = (Home::with(&llm), Home::new());
    for (home, args, code) in [
        (&home, vec!["-p"], "usage"),
        (&without_model, vec!["-p", "hi", "--model", "anthropic/claude-x"], "no_model"),
    ] {
        for format in ["json", "stream-json"] {
            let args: Vec<&str> = args.iter().copied().chain(["--output-format", format]).collect();
            let out = home.aye(&args).stdin("").run().exits(2);
            let object = out.json();
            assert_eq!(object["type"], "result", "{object:#}");
            assert_eq!(object["code"], code, "{object:#}");
            assert_eq!(object["exit"], 2, "{object:#}");
            out.says(object["error"].as_str().expect("a sentence"));
        }
    }
    // Each message of the input has one result, and no failure after it is another.
    let line = json!({"type": "user", "message": {"role": "user", "content": "hi"}}).to_string();
    let args = ["-p", "--input-format", "stream-json", "--output-format", "stream-json"];
    let out = home.aye(&args).stdin(format!("{line}\nno JSON\n")).run().exits(2);
    let lines = out.lines();
    let results: Vec<_> = lines.iter().filter(|line| line["event_type"] == "result").collect();
    assert_eq!(results.iter().map(|result| &result["exit"]).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn a_question_ends_the_run_with_3_and_says_how_to_answer() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let out = home.aye(&["-p", "do it", "--output-format", "json"]).run().exits(3);
    let object = out.json();
    assert_eq!(object["status"], "waiting");
    let waiting = &object["waiting"][0];
    assert_eq!(waiting["id"], "perm_c1", "{waiting:#}");
    assert!(waiting.to_string().contains("echo ran >> log.txt"), "the whole suspension: {waiting:#}");
    let id = id_of(waiting);
    assert!(out.stderr.contains(&id), "{}", out.stderr);
    assert_eq!(home.read("log.txt"), "", "nothing is run");

    let list = home.ok(&["approvals", "list"]).stdout;
    assert!(list.contains(&id) && list.contains("$ echo ran"), "{list}");
    let shown = home.ok(&["approvals", "show", &id]).stdout;
    assert!(shown.contains(TOUCH) && shown.contains(&home.work().display().to_string()), "{shown}");
    assert_eq!(home.ok(&["approvals", "show", &id, "--json"]).json()["id"], id.as_str());

    // Still pending: nothing changes, and the status is the same.
    let thread = object["thread_id"].as_str().expect("a thread").to_owned();
    home.aye(&["-r", &thread, "-p"]).run().exits(3).says(&id);
    assert_eq!(llm.asked().len(), 1);

    home.ok(&["approvals", "approve", &id]).says("approved");
    assert!(home.open().is_empty());
    let out = home.ok(&["-r", &thread, "-p"]);
    assert_eq!(out.stdout, "It is done.\n");
    assert_eq!(home.read("log.txt"), "ran\n");
    assert_eq!(llm.asked().len(), 2);
    // A finished run is only printed again.
    assert_eq!(home.ok(&["-r", &thread, "-p"]).stdout, "It is done.\n");
    assert_eq!(llm.asked().len(), 2);
    assert_eq!(home.read("log.txt"), "ran\n");
}

#[test]
fn deciding_twice_says_who_was_first() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    home.aye(&["-p", "do it"]).run().exits(3);
    let id = home.question();
    home.ok(&["approvals", "deny", &id]);
    let second = home.aye(&["approvals", "approve", &id]).env("USER", "other").run().exits(1);
    second.says("already decided by tester (cli)");
    home.ok(&["-c", "-p"]);
    assert_eq!(home.read("log.txt"), "", "the first answer counts");
    home.aye(&["approvals", "approve", &id]).run().exits(1).says("already decided by tester");
}

#[test]
fn an_unknown_question_is_a_usage_error() {
    let home = Home::new();
    for args in [
        &["approvals", "show", "nope"][..],
        &["approvals", "approve", "nope"],
        &["approvals", "deny", "nope", "--reason", "x"],
        &["approvals", "answer", "nope", "{}"],
        &["threads", "show", "nope"],
        &["threads", "delete", "nope"],
        &["-r", "nope", "-p", "hi"],
    ] {
        home.aye(args).run().exits(2).says("nope");
    }
}

/// The model reads a different result for each reason why a call did not run.
#[test]
fn the_model_reads_the_outcome_of_a_call() {
    let llm = MockLlm::by(|chat| match chat.user().as_str() {
        "do it" if chat.results().is_empty() => Answer::new().bash("c1", TOUCH),
        _ => Answer::say("Fine."),
    });
    let declined = Home::with(&llm);
    declined.aye(&["-p", "do it"]).run().exits(3);
    declined.ok(&["approvals", "deny", &declined.question(), "--reason", "use make instead"]);
    declined.ok(&["-c", "-p"]);
    let text = llm.last().result("c1");
    assert!(text.contains("denied") && text.contains("not run"), "{text}");
    assert!(text.contains("use make instead"), "{text}");
    assert!(!text.contains("may have run"), "{text}");

    let plain = Home::with(&llm);
    plain.aye(&["-p", "do it"]).run().exits(3);
    plain.ok(&["approvals", "deny", &plain.question()]);
    plain.ok(&["-c", "-p"]);
    let text = llm.last().result("c1");
    assert!(text.contains("user denied") && !text.contains("Reason:"), "{text}");

    let superseded = Home::with(&llm);
    superseded.aye(&["-p", "do it"]).run().exits(3);
    let id = superseded.question();
    superseded.ok(&["-c", "-p", "something else"]);
    let text = llm.last().result("c1");
    assert!(text.to_lowercase().contains("not run") && text.contains("new message"), "{text}");
    assert!(!text.contains("user denied") && !text.contains("may have run"), "{text}");
    superseded.aye(&["approvals", "approve", &id]).run().exits(1).says("closed");
    assert!(superseded.open().is_empty());
    for home in [declined, plain, superseded] {
        assert_eq!(home.read("log.txt"), "");
    }
}

#[test]
fn a_question_of_the_model_is_answered_with_data() {
    let llm = MockLlm::answers([
        Answer::new().call("q1", "AskUser", json!({"question": "Which one?", "choices": ["red", "blue"]})),
        Answer::say("Blue it is."),
    ]);
    let home = Home::with(&llm);
    home.aye(&["-p", "ask me"]).run().exits(3);
    let id = home.question();
    home.aye(&["approvals", "answer", &id, "not json"]).run().exits(2);
    home.aye(&["approvals", "answer", &id, "{\"wrong\": 1}"]).run().exits(2);
    let shown = home.ok(&["approvals", "show", &id, "--json"]).json();
    let schema = &shown["ticket"]["suspension"]["response_schema"];
    home.ok(&["approvals", "answer", &id, "{\"answer\": \"blue\"}"]).says("answered");
    assert_eq!(home.ok(&["-c", "-p"]).stdout, "Blue it is.\n", "{schema}");
    assert!(llm.last().result("q1").contains("blue"), "{}", llm.last().result("q1"));
}

#[test]
fn a_call_that_a_rule_denies_is_listed() {
    let home = Home::new();
    home.rules("rules:\n  - {tool: \"Bash(touch *)\", behavior: deny}\n");
    let out = home.aye(&["-p", "--output-format", "json", "run touch x"]).run().exits(0).json();
    let denied = out["denied"].as_array().expect("a list");
    assert!(denied.len() == 1 && denied[0].as_str().is_some_and(|id| id.starts_with("call_")), "{out}");
    let out = home.aye(&["-p", "--output-format", "json", "list files"]).run().exits(0).json();
    assert_eq!(out["denied"], json!([]));
}

#[test]
fn messages_on_stdin_are_answered_one_after_the_other() {
    let llm = MockLlm::answers([Answer::say("One."), Answer::say("Two.")]);
    let home = Home::with(&llm);
    let line =
        |text: &str| format!("{}\n", json!({"type": "user", "message": {"role": "user", "content": text}}));
    let args = ["-p", "--input-format", "stream-json", "--output-format", "json"];
    let out = home.aye(&args).stdin(format!("{}\n{}", line("first"), line("second"))).run().exits(0).lines();
    let responses: Vec<&str> = out.iter().filter_map(|result| result["response"].as_str()).collect();
    assert_eq!((responses.as_slice(), &out[0]["thread_id"]), (&["One.", "Two."][..], &out[1]["thread_id"]));
    assert_eq!(llm.last().user(), "second");
    assert!(llm.last().messages().iter().any(|message| message["content"] == "first"));

    // A question ends the session: the rest is not read, and nothing closes the question.
    let home = Home::new();
    let input = format!("{}{}", line("run touch x"), line("list files"));
    assert_eq!(home.aye(&args).stdin(input).run().exits(3).lines().len(), 1);
    assert_eq!(home.open().len(), 1);
    home.aye(&args).stdin(format!("{}oops\n", line("list files"))).run().exits(2).says("line 2 of stdin: ");
    home.aye(&args).stdin("\n").run().exits(2).says("stdin has no message");
    home.aye(&["--input-format", "stream-json"]).run().exits(2).says("add -p");
}
