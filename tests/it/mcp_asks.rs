//! Servers that ask the user during a call, in the real program.

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};
use crate::support::pty::Pty;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/mcp_server.sh");

fn world(tool: &'static str) -> (MockLlm, Home) {
    let name = format!("mcp__shed__{tool}");
    let llm = MockLlm::answers([
        Answer::say("I will.").call("c1", &name, json!({"a": 1})),
        Answer::say("It is done."),
    ]);
    let home = Home::with(&llm);
    let file = home.root().join("tools.json");
    let tools = json!([{"name": tool, "description": "asks", "inputSchema": {"type": "object"}}]);
    std::fs::write(&file, tools.to_string()).expect("written");
    home.ok(&["mcp", "add", "shed", "--", "sh", SCRIPT, &file.to_string_lossy(), "plain"]);
    home.rules("rules: [{tool: 'mcp__shed__*', behavior: allow}]");
    (llm, home)
}

fn log(home: &Home) -> String {
    std::fs::read_to_string(home.root().join("tools.json.log")).unwrap_or_default()
}

/// The answer that the server received.
fn answer(home: &Home) -> Value {
    let log = log(home);
    let line = log.lines().find_map(|line| line.strip_prefix("answer ")).expect("an answer");
    serde_json::from_str::<Value>(line).expect("JSON")["result"].clone()
}

/// The only pending question: its id, and that of its form.
fn form(home: &Home) -> (String, String) {
    let id = home.question();
    let shown = home.ok(&["approvals", "show", &id, "--json"]).json();
    let surface = shown.pointer("/ticket/suspension/parameters/surface/id").and_then(Value::as_str);
    (id, surface.expect("a form").to_owned())
}

/// A terminal in which the server's card is shown.
fn asked(home: &Home, columns: u16, rows: u16) -> Pty {
    let tty = Pty::start(home, &[], columns, rows);
    tty.ready();
    tty.connects("✓ shed  connected");
    tty.say("go");
    tty.card("Which shelf 1?");
    tty
}

#[test]
fn a_servers_form_is_filled_in_and_sent() {
    let (llm, home) = world("ask");
    let mut tty = asked(&home, 120, 40);
    tty.card("The server shed asks, during ask");
    tty.card("no passwords, no keys");
    tty.card("Shelf (needed: top, low)");
    // Missing required values are not sent, nor are invalid ones.
    tty.send("\x1b[A\x1b[A\x1b[A\r");
    tty.card("rejected: /dataModel: \"shelf\" is a required property");
    assert!(!log(&home).contains("answer"));
    tty.send("\x1b[B\x1b[B\x1b[B\r");
    tty.shows("Shelf (needed: top, low): ");
    // Entering a value moves to the next field.
    tty.send("top\r");
    tty.shows("▸ count: …");
    tty.send("\r7\r");
    tty.shows("count: 7");
    tty.shows("▸ [ ] gift");
    tty.send(" ");
    tty.shows("[x] gift");
    tty.send("\x1b[B\r");
    tty.shows("It is done.");
    assert_eq!(
        answer(&home),
        json!({"action": "accept", "content": {"shelf": "top", "count": 7, "gift": true}})
    );
    assert_eq!(llm.last().result("c1"), "thank you");
    assert_eq!(log(&home).matches("tools/call").count(), 1);
    tty.quit();
}

#[test]
fn a_servers_form_is_declined_on_a_small_screen() {
    let (llm, home) = world("ask");
    let mut tty = asked(&home, 60, 15);
    tty.send("\x1b[A");
    tty.shows("▸ skip this question");
    tty.send("\x1b[A");
    tty.shows("▸ [ Decline ]");
    tty.send("\r");
    tty.shows("It is done.");
    assert_eq!(answer(&home), json!({"action": "decline"}));
    assert_eq!(llm.last().result("c1"), "thank you");
    tty.quit();
}

#[test]
fn skipping_the_form_cancels_the_question_and_its_call() {
    let (llm, home) = world("ask");
    let mut tty = asked(&home, 100, 30);
    tty.send("\x1b[A\r");
    tty.shows("It is done.");
    tty.wait("the answer", |_| log(&home).contains("answer") && log(&home).contains("cancelled"));
    assert_eq!(answer(&home), json!({"action": "cancel"}));
    assert!(!llm.last().result("c1").contains("thank you"));
    tty.quit();
}

#[test]
fn a_headless_run_keeps_the_question_and_does_not_repeat_the_call() {
    let (llm, home) = world("ask");
    // A question ends a headless run; its call ends with the process.
    home.aye(&["-p", "go"]).run().exits(3);
    let (id, surface) = form(&home);
    let yes = json!({"userAction": {"name": "accept", "surfaceId": surface}, "dataModel": {"shelf": "top"}});
    home.ok(&["answer", &id, &yes.to_string(), "--resume"]);
    assert!(llm.last().result("c1").contains("the connection was lost"), "{}", llm.last().result("c1"));
    assert_eq!(log(&home).matches("tools/call").count(), 1);
}

#[test]
fn a_headless_run_that_denies_or_waits_tells_the_server() {
    let (llm, home) = world("ask");
    home.ok(&["-p", "--on-ask", "deny", "go"]);
    assert!(!llm.last().result("c1").contains("thank you"), "{}", llm.last().result("c1"));
    assert!(!log(&home).contains("accept"));

    let (llm, home) = world("ask");
    let run = home.aye(&["-p", "--on-ask", "wait", "go"]).spawn();
    crate::support::llm::until("the question", || !home.open().is_empty());
    let (id, surface) = form(&home);
    let yes = json!({"userAction": {"name": "accept", "surfaceId": surface}, "dataModel": {"shelf": "low"}});
    home.ok(&["answer", &id, &yes.to_string()]);
    run.end().exits(0);
    assert_eq!(llm.last().result("c1"), "thank you");
    assert_eq!(answer(&home)["content"]["shelf"], "low");
}

#[test]
fn the_printed_command_for_a_form_is_accepted() {
    let (_llm, home) = world("ask");
    let out = home.aye(&["-p", "go"]).run().exits(3);
    let line = out.stderr.lines().find_map(|line| line.trim().strip_prefix("answer: ")).expect("a command");
    let command =
        shlex::split(line.split("   or: ").next().expect("the approving command")).expect("a command");
    let [aye, args @ ..] = &command[..] else { panic!("{line}") };
    assert_eq!(aye, "aye");
    home.ok(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(home.open().is_empty(), "answered");
}

#[test]
fn a_form_is_shown_with_its_fields() {
    let (_llm, home) = world("ask");
    home.aye(&["-p", "go"]).run().exits(3);
    let shown = home.ok(&["approvals", "show", &home.question()]).stdout;
    let fields = "  Which shelf 1?\n  Your answers are sent to this server and stored here: no passwords, no keys.\n  \
                  Shelf (needed: top, low): …\n  count: …\n  [ ] gift\n  [ Send ]\n  [ Decline ]\n";
    assert!(shown.contains(fields) && !shown.contains("literalString"), "{shown}");
}
