//! Limits of a run, and failing models: the whole program against a server on loopback.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::home::Home;
use crate::support::http::Server;
use crate::support::llm::{Answer, Chat, MockLlm, Part, until};
use crate::support::pty::Pty;

/// A model that calls the same tool until the user asks it to continue.
fn circles() -> MockLlm {
    MockLlm::by(|chat: &Chat| match chat.user().as_str() {
        "Continue." => Answer::say("Now it is done."),
        _ => Answer::new().call(&format!("c{}", chat.nth), "List", json!({"path": "."})),
    })
}

fn settings(home: &Home, llm: &MockLlm, more: &str) {
    home.config(&format!(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{}\"\n\
         api_key_env = \"MOCK_KEY\"\n{more}",
        llm.url
    ));
}

const NO_RETRY: &str = "[retry]\nmax_retries = 0\n";
/// Each answer of the server is 11 tokens in and 7 out: 18 dollars at a price of one per token.
const PRICE: &str = "[models.m1]\nprovider = \"mock\"\nprice = { input = 1000000, output = 1000000 }\n";

#[test]
fn every_limit_ends_a_run_with_its_reason_and_status_5() {
    for (more, args, says, asked) in [
        ("", &["--max-turns", "2"][..], "limit of 2 inferences", 2),
        ("", &["--max-tokens-total", "30"], "36 tokens used; the limit is 30", 2),
        (PRICE, &["--max-budget-usd", "40"], "$54.00 spent; the budget is $40.00", 3),
        ("[stop]\nloop_detection = 3\n", &[], "the same call, 3 times in a row: List", 3),
        ("[stop]\nstop_on_tool = [\"List\"]\n", &[], "List was called", 1),
    ] {
        let llm = circles();
        let home = Home::new();
        settings(&home, &llm, &format!("{more}{NO_RETRY}"));
        let all = [&["-p", "go", "--output-format", "json"], args].concat();
        let out = home.aye(&all).run().exits(5).says(says);
        let object = out.json();
        assert_eq!(object["status"], "limit", "{object:#}");
        assert_eq!(llm.asked().len(), asked, "{says}");
        // It continues with fresh limits.
        home.ok(&["-c", "-p", "Continue."]);
    }
    let llm =
        MockLlm::answers([Answer::say("All tests pass: DONE").call("c1", "List", json!({"path": "."}))]);
    let home = Home::new();
    settings(&home, &llm, &format!("[stop]\ncontent_match = \"DONE$\"\n{NO_RETRY}"));
    home.aye(&["-p", "go"]).run().exits(5).says("the answer matches `DONE$`");
}

#[test]
fn a_time_limit_interrupts_a_model_and_a_command() {
    let llm = MockLlm::answers([Answer::say("Half a sen").part(Part::Hang)]);
    let home = Home::with(&llm);
    let before = Instant::now();
    let out = home.aye(&["-p", "go", "--timeout", "1s", "--output-format", "json"]).run().exits(5);
    let out = out.says("the limit is 1 s").json();
    assert!(before.elapsed() < Duration::from_secs(15), "{:?}", before.elapsed());
    assert_eq!((&out["status"], &out["termination"]["value"]["code"]), (&json!("limit"), &json!("timeout")));
    assert_eq!(out["response"], "Half a sen", "the text is kept: {out:#}");

    let llm = MockLlm::by(|chat: &Chat| match chat.nth {
        0 => Answer::new().bash("c1", "echo begun; sleep 600"),
        _ => Answer::say("I see."),
    });
    let home = Home::with(&llm);
    let before = Instant::now();
    let args = ["-p", "go", "--timeout", "2s", "--allowed-tools", "Bash"];
    home.aye(&args).run().exits(5).says("the limit is 2 s");
    assert!(before.elapsed() < Duration::from_secs(20), "{:?}", before.elapsed());
    assert!(!home.works("sleep 600"), "the command is gone");
    home.ok(&["-c", "-p", "and?"]);
    let said = llm.last().result("c1");
    assert!(said.contains("the limit is 2 s") && said.contains("begun"), "{said}");
    home.aye(&["-p", "go", "--timeout", "soon"]).run().exits(2).says("for example 90s");
}

#[test]
fn the_models_stop_reason_sets_the_status_and_is_shown() {
    let empty = || Answer::new();
    let say = |text: &str, reason| Answer::say(text).part(Part::Stop(reason));
    for (answers, code, status, reason, says) in [
        (
            vec![say("No.", "content_filter")],
            4,
            "blocked",
            json!("content_filter"),
            "content filter withheld",
        ),
        (vec![say("No.", "refusal")], 4, "blocked", json!("refusal"), "m1 refused to answer"),
        (
            vec![say("Half a", "length")],
            5,
            "limit",
            json!("max_tokens"),
            "cut off at the model's output limit",
        ),
        (vec![empty()], 1, "error", json!("end_turn"), "m1 gave an empty answer"),
        (
            vec![Answer::new().call("c1", "List", json!({"path": "."})), empty()],
            0,
            "done",
            json!("end_turn"),
            "m1 ended without a closing message",
        ),
    ] {
        let llm = MockLlm::answers(answers.clone());
        let home = Home::with(&llm);
        let out = home.aye(&["-p", "go", "--output-format", "json"]).run().exits(code).says(says).json();
        assert_eq!(
            (&out["status"], &out["exit"], &out["stop_reason"]),
            (&json!(status), &json!(code), &reason)
        );

        let llm = MockLlm::answers(answers.clone());
        let home = Home::with(&llm);
        let out = home.aye(&["-p", "go", "--output-format", "stream-json"]).run().exits(code);
        let lines = out.lines();
        let mut ends = lines.iter().filter(|line| line["event_type"] == "inference_complete");
        assert_eq!(ends.next_back().map(|line| &line["stop_reason"]), Some(&reason), "{lines:#?}");
        assert_eq!(
            lines.last().map(|line| (&line["status"], &line["exit"])),
            Some((&json!(status), &json!(code)))
        );

        // A partial answer is shown, a withheld one is not.
        let llm = MockLlm::answers(answers);
        let out = Home::with(&llm).aye(&["-p", "go"]).run().exits(code).says(says);
        assert_eq!(out.stdout.trim(), if code == 5 { "Half a" } else { "" });
    }
}

#[test]
fn calls_that_come_back_the_same_remind_the_model_and_then_end_the_run() {
    let llm = circles();
    let home = Home::new();
    settings(&home, &llm, NO_RETRY);
    let what = "the same calls came back with the same results 6 times in a row (List)";
    home.aye(&["-p", "go"]).run().exits(5).says(what);
    let reminds = |chat: &Chat| chat.told().contains("You made the same calls 3 times in a row (List)");
    let reminded: Vec<bool> = llm.asked().iter().map(reminds).collect();
    assert_eq!(reminded, [false, false, false, true, true, true], "half-way, and it stays");

    let llm = circles();
    let home = Home::new();
    settings(&home, &llm, NO_RETRY);
    let mut tty = Pty::start(&home, &[], 160, 30);
    tty.ready();
    tty.say("look around");
    tty.card("6 times in a row (List)");
    tty.card_takes_keys();
    tty.send("2\r");
    tty.shows("stopped: the same calls came back");
    assert_eq!(llm.asked().len(), 6);
    tty.quit();
}

/// Each request begins with the whole of the one before.
fn only_grows(asked: &[Chat]) {
    for pair in asked.windows(2) {
        assert!(pair[1].messages().starts_with(pair[0].messages()), "{:#?}", pair[1].messages());
    }
}

#[test]
fn an_answer_that_leaves_work_unchecked_is_followed_by_one_reminder() {
    let llm = MockLlm::by(|chat: &Chat| match chat.nth {
        0 => Answer::new().call("c1", "Write", json!({"file_path": "a.rs", "content": "fn main() {}\n"})),
        1 => Answer::say("It is written."),
        2 => Answer::new().bash("c2", "true"),
        3 => Answer::say("It is written, and it runs."),
        _ => Answer::say("Bye."),
    });
    let home = Home::new();
    settings(&home, &llm, &format!("[stop]\ncheck_before_end = true\n{NO_RETRY}"));
    let args = ["-p", "go", "--allowed-tools", "Write,Bash", "--output-format", "json"];
    let out = home.aye(&args).run().exits(0).json();
    assert_eq!(out["response"], "It is written, and it runs.", "{out:#}");
    let asked = llm.asked();
    assert!(!asked[1].told().contains("nothing ran since") && asked[2].told().contains("nothing ran since"));
    assert_eq!(asked.len(), 4);
    only_grows(&asked);
    // The next run has done nothing that it could check.
    home.ok(&["-c", "-p", "bye"]);
    assert_eq!(llm.asked().len(), 5);
}

#[test]
fn an_answer_that_only_announces_a_step_is_no_end_of_a_run_that_nobody_watches() {
    let llm = MockLlm::by(|chat: &Chat| match chat.nth % 3 {
        0 => Answer::say("I'll look at the folder first."),
        1 => Answer::new().call("c1", "List", json!({"path": "."})),
        _ => Answer::say("It is empty. Now let me look again."),
    });
    let home = Home::new();
    settings(&home, &llm, &format!("[stop]\ncheck_before_end = true\n{NO_RETRY}"));
    home.aye(&["-p", "go"]).run().exits(0).prints("Now let me look again.");
    let asked = llm.asked();
    assert_eq!(asked.len(), 3, "at most one reminder in a run");
    assert!(asked[1].told().contains("announces a step"));
    only_grows(&asked);
    // The queue, too.
    home.ok(&["queue", "add", "go"]);
    home.aye(&["work", "--until-empty"]).run().exits(0);
    assert_eq!(llm.asked().len(), 6);
}

#[test]
fn a_budget_needs_a_price() {
    let llm = circles();
    let home = Home::new();
    settings(&home, &llm, NO_RETRY);
    home.aye(&["-p", "go", "--max-budget-usd", "1"])
        .run()
        .exits(2)
        .says("mock/m1 has no price")
        .says("[models.\"m1\"]")
        .says("--max-budget-usd");
    settings(&home, &llm, &format!("{PRICE}[retry]\nmax_retries = 0\nfallback_models = [\"mock/m2\"]\n"));
    home.aye(&["-p", "go", "--max-budget-usd", "1"]).run().exits(2).says("mock/m2 has no price");
    assert_eq!(llm.asked().len(), 0);
}

#[test]
fn enter_continues_after_a_stop_in_the_terminal() {
    let llm = circles();
    let home = Home::new();
    settings(&home, &llm, &format!("[stop]\nloop_detection = 2\n{NO_RETRY}"));
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("look around");
    tty.shows("stopped: the same call, 2 times in a row: List; /continue keeps going");
    tty.shows("Enter: continue, or type a message");
    tty.send("\r");
    tty.shows("Now it is done.");
    assert_eq!(llm.asked().len(), 3);
    tty.quit();
}

#[test]
fn a_terminal_counts_down_to_a_retry_and_names_who_answered() {
    let busy = || Answer::error(429, "too many at once").header("retry-after", "3");
    let llm = MockLlm::by(move |chat: &Chat| match chat.nth {
        0 => busy(),
        1 => Answer::error(503, "down"),
        _ => Answer::say(&format!("This is {}.", chat.body["model"].as_str().unwrap_or_default())),
    });
    let home = Home::new();
    settings(
        &home,
        &llm,
        "[retry]\nmax_retries = 1\nbackoff_base_ms = 10\nfallback_models = [\"mock/m2\"]\n",
    );
    let mut tty = Pty::start(&home, &[], 120, 30);
    tty.ready();
    tty.say("hi");
    tty.shows("This is m2.");
    // On a busy machine a second may pass between two reads of the screen, so all frames are searched.
    let mut seconds: Vec<u64> = tty
        .look(|view| view.frames())
        .iter()
        .filter_map(|frame| frame.split_once("retry 1 of 3 in ")?.1.split_once(" s")?.0.parse().ok())
        .collect();
    seconds.dedup();
    assert!(seconds.len() > 1 && seconds.is_sorted_by(|before, after| before > after), "{seconds:?}");
    tty.shows("mock/m2 answered instead");
    tty.shows("mock/m2 (for m1)");
    tty.quit();
}

#[test]
fn cancelling_ends_a_retry_wait_at_once() {
    let llm = MockLlm::by(|_| Answer::error(429, "too many at once").header("retry-after", "200"));
    let home = Home::new();
    settings(&home, &llm, "");
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("hi");
    tty.wait("the countdown", |view| view.all().contains("retry 1 of 6 in "));
    tty.send("\x1b");
    tty.shows("interrupted");
    assert_eq!(llm.asked().len(), 1);
    tty.quit();
}

#[test]
fn a_terminal_waits_for_a_limit_that_resets_later() {
    let llm = MockLlm::by(|chat: &Chat| match chat.nth {
        0 | 1 => Answer::error(429, "used up").header("retry-after", "3600"),
        _ => Answer::say("Here I am."),
    });
    let home = Home::new();
    settings(&home, &llm, "");
    let tty = Pty::start(&home, &[], 110, 30);
    tty.ready();
    tty.say("hi");
    tty.shows("when the limit resets");
    tty.shows("used up");
    tty.kill();
    assert_eq!(llm.asked().len(), 1);
    // A worker leaves it alone until its time, and the run is the one that waits.
    home.aye(&["work", "--until-empty"]).run().exits(0);
    assert_eq!(home.ok(&["queue", "list", "--json"]).json().as_array().map(Vec::len), Some(1));
    let mut tty = Pty::start(&home, &["-c"], 110, 30);
    tty.shows("when the limit resets");
    tty.card_takes_keys();
    tty.send("1\r");
    until("another request", || llm.asked().len() == 2 && home.open().len() == 1);
    tty.card("when the limit resets");
    tty.card_takes_keys();
    tty.send("\x1b");
    until("the end of the wait", || home.open().is_empty());
    tty.say("again");
    tty.shows("Here I am.");
    assert_eq!(home.ok(&["queue", "list", "--json"]).json().as_array().map(Vec::len), Some(0));
    tty.quit();
}

/// Limited for an hour, and then not.
fn limited_once() -> MockLlm {
    MockLlm::by(|chat: &Chat| match chat.nth {
        0 => Answer::error(429, "used up").header("retry-after", "3600"),
        _ => Answer::say("Here I am."),
    })
}

#[test]
fn a_script_leaves_a_run_that_waits_for_a_limit() {
    for asks in ["suspend", "deny", "wait=1"] {
        let llm = limited_once();
        let home = Home::new();
        settings(&home, &llm, "");
        let out = home.aye(&["-p", "hi", "--on-ask", asks, "--output-format", "json"]).run().exits(75);
        let result = out.json();
        assert_eq!(
            (&result["status"], &result["exit"], &result["waiting"][0]["action"]),
            (&"unavailable".into(), &75.into(), &"run:Wait".into()),
            "{asks}: {result:#}"
        );
        out.says("resumes in 60 min when the limit resets").says("`aye work` resumes it then");
        // A worker leaves it alone until its time, and so does whoever looks.
        home.aye(&["work", "--until-empty"]).run().exits(0);
        home.aye(&["-c", "-p"]).run().exits(75);
        assert_eq!(llm.asked().len(), 1);
        let out =
            home.aye(&["answer", &home.question(), r#"{"answer":"Try now"}"#, "--resume"]).run().exits(0);
        out.prints("Here I am.");
        assert_eq!((llm.asked().len(), home.open().len()), (2, 0));
    }
}

#[test]
fn a_run_that_is_not_kept_does_not_wait_for_a_limit() {
    let llm = limited_once();
    let home = Home::new();
    settings(&home, &llm, "");
    let out = home.aye(&["-p", "hi", "--ephemeral", "--output-format", "json"]).run().exits(75);
    assert_eq!(out.json()["waiting"], serde_json::json!([]));
}

/// A provider that limits the rate for a moment is asked again, and whoever waits sees that.
#[test]
fn a_limit_that_resets_at_once_is_retried_and_shown() {
    let llm = MockLlm::by(|chat: &Chat| match chat.nth {
        0 => Answer::error(429, "slow down").header("retry-after", "0"),
        _ => Answer::say("Here I am."),
    });
    let home = Home::new();
    settings(&home, &llm, "");
    let out = home.aye(&["-p", "hi"]).run().exits(0).prints("Here I am.");
    assert!(out.stderr.contains("slow down") && out.stderr.contains("retrying"), "{}", out.stderr);
    assert_eq!(llm.asked().len(), 2);
}

const ASKS: &str = "[stop]\non_limit = \"ask\"\nrepeated_calls = 0\n";
/// A model that costs next to nothing.
const SMALL: &str = "[models.m2]\nprovider = \"mock\"\nprice = { input = 1, output = 1 }\n";
const MORE: &str = r#"{"answer": "Continue with $40.00 more"}"#;

#[test]
fn a_spent_budget_asks_and_its_answer_counts_once() {
    let llm = circles();
    let home = Home::new();
    settings(
        &home,
        &llm,
        &format!(
            "{ASKS}max_budget_usd = 40\n{PRICE}{SMALL}[retry]\nmax_retries = 0\nfallback_models = [\"mock/m2\"]\n"
        ),
    );
    let out = home.aye(&["-p", "go", "--output-format", "json"]).run().exits(3);
    assert_eq!(llm.asked().len(), 3);
    let waiting = &out.json()["waiting"][0];
    assert_eq!((&waiting["tool"], &waiting["summary"]), (&json!("Limit"), &json!(ASKED)));
    let id = home.question();
    // An approval without a choice, or with an unknown choice, is not an answer.
    home.aye(&["approve", &id]).run().exits(2);
    home.aye(&["answer", &id, r#"{"answer": "Continue with $900 more"}"#]).run().exits(2);
    assert_eq!(home.question(), id);
    // A repeated run shows the same question, as events too.
    let again = home.aye(&["-c", "-p", "--output-format", "stream-json"]).run().exits(3);
    assert_eq!(
        again.events(),
        [
            "run_start",
            "tool_call_start",
            "tool_call_ready",
            "tool_call_done(suspended)",
            "run_finish(suspended)"
        ]
    );
    assert_eq!(llm.asked().len(), 3);
    home.ok(&["answer", &id, MORE]).says("the budget is $40.00");
    home.aye(&["answer", &id, r#"{"answer": "Stop"}"#]).run().exits(1).says("already");
    // The answer allows three more inferences, and then it asks again.
    let out = home.aye(&["-c", "-p", "--output-format", "json"]).run().exits(3);
    assert_eq!(llm.asked().len(), 6, "{:#}", out.json());
    let second = home.question();
    assert_ne!(second, id);
    home.ok(&["answer", &second, r#"{"answer": "Switch to mock/m2 and continue with $40.00 more"}"#]);
    home.aye(&["-c", "-p", "--max-turns", "8"]).run().exits(3);
    assert_eq!(llm.last().body["model"], "m2");
    assert_eq!(llm.asked().len(), 14, "the rounds restart as well");
    home.ok(&["answer", &home.question(), r#"{"answer": "Stop"}"#]);
    home.aye(&["-c", "-p"]).run().exits(5).says("limit of 8 inferences");
    // The model's conversation contains nothing about the questions.
    assert!(!llm.last().body.to_string().contains("budget"), "{:#}", llm.last().body);
    home.ok(&["-c", "-p", "Continue."]);
}

const ASKED: &str = "$54.00 spent; the budget is $40.00. Continue?";

#[test]
fn denying_a_limit_or_sending_a_message_ends_the_run() {
    let llm = circles();
    let home = Home::new();
    settings(&home, &llm, &format!("{ASKS}{NO_RETRY}"));
    home.aye(&["-p", "go", "--max-turns", "2"])
        .run()
        .exits(3)
        .says("The limit of 2 inferences is reached. Continue?");
    home.ok(&["deny", &home.question()]);
    home.aye(&["-c", "-p", "--max-turns", "2"]).run().exits(5);
    assert_eq!(llm.asked().len(), 2);
    // Nobody to ask: as without the setting.
    home.aye(&["-p", "go", "--max-turns", "2", "--on-ask", "deny"])
        .run()
        .exits(5)
        .says("limit of 2 inferences");
    home.aye(&["-p", "go", "--max-turns", "2"]).run().exits(3);
    home.ok(&["-c", "-p", "Continue."]);
    assert!(home.open().is_empty(), "the message replaced it");
}

#[test]
fn a_limit_asks_in_the_terminal_across_a_kill_and_over_http() {
    let llm = circles();
    let home = Home::new();
    settings(&home, &llm, &format!("{ASKS}max_budget_usd = 40\n{PRICE}{NO_RETRY}"));
    let tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("look around");
    tty.shows(ASKED);
    tty.card("Continue with $40.00 more");
    tty.kill();
    let mut tty = Pty::start(&home, &["-c"], 100, 30);
    tty.card("Continue with $40.00 more");
    tty.card_takes_keys();
    tty.send("1\r");
    until("the next question", || llm.asked().len() == 6 && home.open().len() == 1);
    let server = Server::start(&home, &[]);
    let card = server.card();
    assert_eq!((&card["tool"], &card["why"]), (&json!("Limit"), &json!(ASKED)));
    let path = format!("/v1/approvals/{}/answer", card["id"].as_str().expect("an id"));
    let body = json!({"result": {"answer": "Stop"}});
    assert_eq!(server.post(&path, &body).json()["outcome"], "accepted");
    tty.shows("stopped: $54.00 spent; the budget is $40.00");
    assert_eq!(llm.asked().len(), 6);
    tty.quit();
    server.stop();
}

#[test]
fn a_run_works_until_its_command_succeeds() {
    let write = || Answer::new().call("w", "Write", json!({"file_path": "done.txt", "content": "x\n"}));
    // The model ends too early, and then does what is missing.
    let llm =
        MockLlm::by(move |chat: &Chat| match (chat.told().contains("it fails now"), chat.results().len()) {
            (true, 0) => write(),
            _ => Answer::say("It is done."),
        });
    let home = Home::new();
    settings(
        &home,
        &llm,
        &format!("[stop]\ncheck_before_end = false\n[sandbox]\nmissing = \"allow\"\n{NO_RETRY}"),
    );
    let goal = ["--until", "echo missing; test -e done.txt", "--permission-mode", "accept-edits"];
    let out = home.aye(&[&["-p", "go"][..], &goal].concat()).run().exits(0);
    assert!(out.stderr.contains("the goal is reached: `echo missing; test -e done.txt`"), "{}", out.stderr);
    let told = llm.asked()[1].told();
    assert!(told.contains("missing\n[exit status 1]"), "{told}");
    assert_eq!(llm.asked().len(), 3);
    // A model that gives up is not asked for ever, and what is missing is said.
    let idle = MockLlm::by(|_| Answer::say("I cannot."));
    settings(
        &home,
        &idle,
        &format!("[stop]\ncheck_before_end = false\n[sandbox]\nmissing = \"allow\"\n{NO_RETRY}"),
    );
    let out = home.aye(&["-p", "go", "--until", "echo no; exit 3", "--output-format", "json"]).run().exits(5);
    assert!(out.stderr.contains("the goal is not reached: `echo no; exit 3`"), "{}", out.stderr);
    let object = out.json();
    assert_eq!(object["status"], "limit", "{object:#}");
    assert!(
        object.to_string().contains(
            "the goal is not reached: `echo no; exit 3` fails: no [exit status 3]; the model gave up"
        ),
        "{object:#}"
    );
    assert_eq!(idle.asked().len(), 3);
    // A rule that denies the command ends the run.
    home.rules("rules:\n  - {tool: \"Bash(make *)\", behavior: deny}\n");
    home.aye(&["-p", "go", "--until", "make test"]).run().exits(5).says("a rule denies `make test`");
    assert_eq!(idle.asked().len(), 4);
}

#[test]
fn whoever_resumes_a_run_keeps_to_its_goal() {
    let bash = |id: &str| Answer::new().bash(id, "touch done.txt");
    let llm =
        MockLlm::by(move |chat: &Chat| match (chat.results().len(), chat.told().contains("it fails now")) {
            (0, _) => Answer::new().bash("a", "touch other.txt"),
            (1, true) => bash("b"),
            _ => Answer::say("It is done."),
        });
    let home = Home::new();
    settings(
        &home,
        &llm,
        &format!("[stop]\ncheck_before_end = false\n[sandbox]\nmissing = \"allow\"\n{NO_RETRY}"),
    );
    home.aye(&["-p", "go", "--until", "test -e done.txt"]).run().exits(3);
    home.ok(&["approvals", "approve", &home.question()]);
    // Another process, without the flag.
    home.aye(&["-c", "-p"]).run().exits(3);
    home.ok(&["approvals", "approve", &home.question()]);
    let out = home.ok(&["-c", "-p"]);
    assert!(out.stderr.contains("the goal is reached"), "{}", out.stderr);
    // The next message has no goal.
    let out = home.ok(&["-c", "-p", "thanks"]);
    assert!(!out.stderr.contains("the goal"), "{}", out.stderr);
}

#[test]
fn checks_say_once_what_is_wrong_with_changed_files() {
    let write = |id: &str, text: &str| {
        Answer::new().call(id, "Write", json!({"file_path": "a.txt", "content": text}))
    };
    let llm = MockLlm::by(move |chat: &Chat| match chat.results().len() {
        0 => write("w1", "bad one\n"),
        1 => write("w2", "first\nbad one\nbad two\n"),
        _ => Answer::say("It is done."),
    });
    let home = Home::new();
    home.write("b.txt", "bad, but nobody changed it\n");
    settings(
        &home,
        &llm,
        &format!(
            "[stop]\ncheck_before_end = false\n[sandbox]\nmissing = \"allow\"\n{NO_RETRY}\
             [checks]\n\"*.txt\" = \"grep -Hn bad \\\"$@\\\" b.txt\"\n\"*.rs\" = \"echo a.txt: zebra\"\n"
        ),
    );
    home.ok(&["-p", "go", "--permission-mode", "accept-edits"]);
    let told = llm.last().told();
    assert_eq!(told.matches(":bad one").count(), 1, "{told}");
    assert_eq!(told.matches("a.txt:3:bad two").count(), 1, "{told}");
    assert!(!told.contains("nobody changed") && !told.contains("zebra"), "{told}");
    // A rule that denies the command.
    home.rules("rules:\n  - {tool: \"Bash(grep *)\", behavior: deny}\n");
    let out = home.ok(&["-p", "go", "--permission-mode", "accept-edits"]);
    assert!(out.stderr.contains("did not run to its end: a rule denies `grep"), "{}", out.stderr);
}

#[test]
fn checks_add_little_to_the_requests_of_a_session() {
    // Ten edits; the third and the sixth have an error, which the next one mends.
    let session = |checks: &str| {
        let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
            done @ 0..10 => {
                let text = if done == 2 || done == 5 { "bad line\n" } else { "good line\n" };
                let file =
                    json!({"file_path": "a.txt", "content": format!("{}{text}", "kept\n".repeat(done))});
                Answer::new().call(&format!("w{done}"), "Write", file)
            }
            _ => Answer::say("It is done."),
        });
        let home = Home::new();
        settings(&home, &llm, &format!("[sandbox]\nmissing = \"allow\"\n{NO_RETRY}{checks}"));
        home.ok(&["-p", "go", "--permission-mode", "accept-edits"]);
        let asked = llm.asked();
        assert_eq!(asked.len(), 11);
        asked.iter().map(|chat| chat.body.to_string().len()).sum::<usize>()
    };
    let without = session("");
    let with = session("[checks]\n\"*.txt\" = \"grep -Hn bad \\\"$@\\\"\"\n");
    println!("{without} bytes without checks, {with} with: {} more", with - without);
    // Each of the two messages is sent with every later request: 13 times in all.
    assert!((100..13 * 250).contains(&(with - without)), "{without} without, {with} with");
}
