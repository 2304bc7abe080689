//! The composer in a terminal: messages during a run, user commands, and drafts that outlive the program.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::acp::Editor;
use crate::support::home::Home;
use crate::support::http::Server;
use crate::support::llm::{Answer, Chat, MockLlm, until};
use crate::support::pty::Pty;

fn open(llm: &MockLlm, env: &[(&str, &str)]) -> (Home, Pty) {
    let home = Home::with(llm);
    let tty = Pty::start_with(&home, &[], 100, 30, env);
    tty.ready();
    (home, tty)
}

/// All text of a request, joined.
fn all(chat: &Chat) -> String {
    Value::from(chat.messages().to_vec()).to_string()
}

#[test]
fn a_long_paste_stays_a_mark_once_sent_and_opens_in_the_viewer() {
    let llm = MockLlm::answers([Answer::say("I see."), Answer::say("Still.")]);
    let (home, mut tty) = open(&llm, &[]);
    let pasted = (0..40).map(|n| format!("row {n} of it\n")).collect::<Vec<_>>().concat();
    let mark = "❯ look at [paste 1: 40 lines]";
    tty.send("look at ");
    tty.paste(&pasted);
    tty.shows("[paste 1: 40 lines]");
    tty.send("\r");
    tty.shows("I see.");
    tty.wait("completion", |view| !view.is_active());
    let all = tty.look(crate::support::pty::View::all);
    assert!(all.contains(mark) && !all.contains("row 20 of it"), "{all}");
    tty.quit();
    assert_eq!(llm.last().user(), format!("look at {}", pasted.trim_end()));
    let mut tty = Pty::start(&home, &["-c"], 100, 30);
    tty.shows("I see.");
    let all = tty.look(crate::support::pty::View::all);
    assert!(all.contains(mark) && !all.contains("row 20 of it"), "{all}");
    tty.say("and now");
    tty.shows("Still.");
    assert!(self::all(&llm.last()).contains("row 39 of it"));
    tty.wait("completion", |view| !view.is_active());
    tty.send("\x0f");
    tty.shows("row 39 of it");
    tty.send("q");
    tty.quit();
}

#[test]
fn a_message_during_a_command_is_read_after_it() {
    let llm = MockLlm::answers([
        Answer::say("I will.").bash("c1", "echo begun >> log.txt; until [ -e go ]; do sleep 0.1; done"),
        Answer::say("So be it."),
        Answer::say("The next turn."),
    ]);
    let (home, mut tty) = open(&llm, &[]);
    tty.say("do it");
    tty.card("until");
    tty.send("y");
    until("the command", || home.read("log.txt") == "begun\n");
    tty.say("be quick about it");
    tty.shows("steers be quick about it");
    tty.send("and later that\t");
    tty.shows("queued and later that");
    home.write("go", "");
    tty.shows("The next turn.");
    let asked = llm.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[1].user(), "be quick about it");
    assert!(asked[1].result("c1").len() < 1000 && !all(&asked[1]).contains("later"), "{}", all(&asked[1]));
    assert_eq!(asked[2].user(), "and later that");
    tty.quit();
    // All of it is restored.
    let mut tty = Pty::start(&home, &["-c"], 100, 40);
    tty.shows("be quick about it");
    tty.quit();
}

#[test]
fn a_message_during_a_command_outlives_a_kill() {
    let llm = MockLlm::answers([
        Answer::new().bash("c1", "echo begun >> log.txt; sleep 1000"),
        Answer::say("Over."),
        Answer::say("So be it."),
    ]);
    let (home, tty) = open(&llm, &[]);
    tty.say("do it");
    tty.card("sleep 1000");
    tty.send("y");
    until("the command", || home.read("log.txt") == "begun\n");
    tty.say("be quick about it");
    tty.shows("steers be quick about it");
    tty.kill();
    let mut tty = Pty::start(&home, &["-c"], 100, 30);
    tty.shows("queued be quick about it");
    tty.card("sleep 1000");
    tty.send("s");
    until("the read", || llm.asked().iter().any(|chat| chat.user() == "be quick about it"));
    tty.quit();
}

#[test]
fn a_question_beside_the_conversation_does_not_enter_it() {
    let llm = MockLlm::by(|chat: &Chat| {
        let is_beside = chat.user().contains("The question beside it: which colour?");
        Answer::say(if is_beside { "It is blue." } else { "Hello." })
    });
    let (_home, mut tty) = open(&llm, &[]);
    tty.say("hi");
    tty.shows("Hello.");
    tty.say("/btw which colour?");
    tty.shows("Beside the conversation  which colour?");
    tty.shows("It is blue.");
    tty.say("go on");
    until("the next message", || llm.asked().iter().any(|chat| chat.user() == "go on"));
    let said = all(&llm.last());
    assert!(said.contains("Hello.") && !said.contains("blue") && !said.contains("colour"), "{said}");
    tty.quit();
}

#[test]
fn a_user_command_follows_the_rules_and_its_output_reaches_the_model() {
    let llm = MockLlm::answers([Answer::say("I see.")]);
    let (home, mut tty) = open(&llm, &[]);
    tty.say("!echo made-by-me > made.txt; cat made.txt");
    tty.card("made-by-me");
    assert_eq!(home.read("made.txt"), "");
    tty.send("y");
    tty.wait("the output", |view| {
        view.all().contains("✓ Ran echo made-by-me") && view.all().contains("  made-by-me")
    });
    tty.say("!!echo between-us >> made.txt; echo nobody-else");
    tty.card("between-us");
    tty.send("y");
    until("the command", || home.read("made.txt").contains("between-us"));
    tty.shows("  nobody-else");
    assert!(llm.asked().is_empty(), "no model was asked");
    tty.say("what do you see?");
    tty.shows("I see.");
    let said = all(&llm.last());
    assert!(said.contains("!echo made-by-me") && said.contains("cat made.txt"), "{said}");
    assert!(!said.contains("between-us") && !said.contains("nobody-else"), "{said}");
    tty.quit();
    let mut tty = Pty::start(&home, &["-c"], 100, 40);
    tty.shows("nobody-else");
    tty.quit();
}

#[test]
fn a_draft_is_restored_after_a_kill_and_after_an_exit() {
    let llm = MockLlm::answers([Answer::say("Hello.")]);
    let (home, tty) = open(&llm, &[]);
    tty.send("half a thought");
    until("the stored draft", || kept(&home).contains("half a thought"));
    tty.kill();
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.shows("half a thought");
    tty.send(", and more");
    tty.shows("half a thought, and more");
    tty.signal(Signal::TERM);
    tty.end();
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.shows("half a thought, and more");
    tty.send("\r");
    tty.shows("Hello.");
    assert_eq!(llm.last().user(), "half a thought, and more");
    tty.quit();
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.send("next");
    tty.shows("❯ next");
    tty.quit();
}

/// All stored drafts.
fn kept(home: &Home) -> String {
    fn walk(dir: &std::path::Path, out: &mut String) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, out);
            } else if path.parent().is_some_and(|dir| dir.ends_with("drafts")) {
                out.push_str(&std::fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }
    let mut out = String::new();
    walk(home.root(), &mut out);
    out
}

#[test]
fn the_editor_has_the_terminal_and_gives_it_back() {
    let llm = MockLlm::answers([Answer::say("Hello.")]);
    let editor = "echo IN-THE-EDITOR; sed -i s/two/2/";
    let (_home, mut tty) = open(&llm, &[("EDITOR", editor)]);
    tty.send("one two");
    tty.shows("one two");
    tty.send("\x07");
    tty.shows("IN-THE-EDITOR");
    tty.shows("one 2");
    tty.send(" three\r");
    tty.shows("Hello.");
    assert_eq!(llm.last().user(), "one 2 three");
    tty.quit();
    tty.is_restored();
}

#[test]
fn definitions_are_completed_and_their_lines_go_with_the_message() {
    let llm = MockLlm::by(|_| Answer::say("Seen."));
    let home = Home::with(&llm);
    home.write(
        "src/größe.rs",
        "fn other() {}\n\nfn greet(name: &str) {\n    println!(\"漢字 {name}\");\n}\n",
    );
    home.write("b.py", "def regreet():\n    pass\n");
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.send("see @src/größe.rs#gre");
    tty.wait("the list", |view| view.has("src/größe.rs#greet") && view.has("line 3"));
    tty.send("\t");
    tty.wait("the name", |view| view.screen().lines().any(|line| line.ends_with("@src/größe.rs#greet")));
    tty.send("and @#regr");
    tty.wait("the list", |view| view.has("b.py#regreet"));
    tty.send("\t\r");
    tty.shows("Seen.");
    let user = llm.last().user();
    assert!(user.contains("see @src/größe.rs#greet and @b.py#regreet"), "{user}");
    for text in [
        "[`greet` of src/größe.rs, lines 3 to 5]\n\nfn greet(name: &str) {\n    println!(\"漢字 {name}\");\n}",
        "[`regreet` of b.py, lines 1 to 2]\n\ndef regreet():\n    pass",
    ] {
        assert!(user.contains(text), "{text} in {user}");
    }
    assert!(!user.contains("fn other"), "{user}");
    // A file hidden from the model by a rule is not attached either, and an unknown name stays text.
    tty.wait("the end of the turn", |view| !view.is_active());
    home.rules("rules:\n  - {tool: 'Read(b.py)', behavior: deny}\n");
    tty.quit();
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    let say = |text: &str| {
        tty.send(&format!("{text} "));
        tty.wait("the typed text", |view| view.has(text));
        tty.send("\r");
    };
    say("see issue @org#7 and @b.py#nothing");
    tty.shows("Seen.");
    say("and @b.py#regreet");
    tty.shows("b.py is not attached: blocked by rule");
    assert_eq!(llm.asked().len(), 2);
    tty.quit();
}

/// One text leads to one request, wherever it was written: in the terminal, with `-p`, in the queue, in an editor or over
/// HTTP.
#[test]
fn a_text_leads_to_the_same_request_from_every_front_end() {
    let llm = MockLlm::by(|_| Answer::say("Seen."));
    let home = Home::with(&llm);
    let skills = home.root().join("aye/config/skills/ship");
    std::fs::create_dir_all(&skills).expect("a folder");
    let skill = "---\nname: ship\ndescription: Ships.\n---\nShip it to $ARGUMENTS.\n";
    std::fs::write(skills.join("SKILL.md"), skill).expect("written");
    let commands = home.root().join("aye/config/commands");
    std::fs::create_dir_all(&commands).expect("a folder");
    std::fs::write(commands.join("inspect.md"), "Inspect $ARGUMENTS with care.\n").expect("written");
    home.write("a.rs", "fn other() {}\n\nfn marked() {\n    other();\n}\n");
    let texts = [
        "plain words, and an address: me@example.org",
        "please @skill:ship now, see @a.rs#marked",
        "/ship the moon",
        "/inspect the rules of @skill:ship",
        "/inspect @a.rs#marked",
        "/usr/bin: what is there?",
    ];
    // What the model reads of a message is the last one of the request's user.
    let asked = |count: usize| -> Value {
        until("the request", || llm.asked().len() > count);
        let chat = llm.last();
        let last = chat.messages().iter().rev().find(|message| message["role"] == "user");
        last.map(|message| message["content"].clone()).unwrap_or_default()
    };
    let mut expected = Vec::new();
    for text in texts {
        let count = llm.asked().len();
        home.ok(&["-p", text]);
        expected.push(asked(count));
    }
    let all = Value::from(expected.clone()).to_string();
    for part in [
        "Use the skill `ship`",
        "Inspect the rules of @skill:ship with care.",
        "lines 3 to 5",
        "/usr/bin: what",
    ] {
        assert!(all.contains(part), "{part} in {all}");
    }
    let mut differing = Vec::new();
    let mut compare = |front_end: &str, text: &str, expected: &Value, found: Value| {
        if *expected != found {
            differing.push(format!("{front_end}: {text}\n{expected:#}\n{found:#}"));
        }
    };
    for (text, expected) in texts.iter().zip(&expected) {
        let count = llm.asked().len();
        home.ok(&["queue", "add", text]);
        home.ok(&["work", "--until-empty"]);
        compare("queue", text, expected, asked(count));
        let mut tty = Pty::start(&home, &[], 100, 30);
        tty.ready();
        let count = llm.asked().len();
        // A space ends the list of completions.
        tty.send(&format!("{text} "));
        tty.shows(text);
        tty.send("\r");
        tty.shows("Seen.");
        compare("terminal", text, expected, asked(count));
        tty.wait("the end of the turn", |view| !view.is_active());
        tty.quit();
    }
    let (mut editor, session) = Editor::open(&home);
    for (text, expected) in texts.iter().zip(&expected) {
        let count = llm.asked().len();
        let prompt = editor.prompt(&session, text);
        assert_eq!(editor.stops(prompt), "end_turn", "{text}");
        compare("editor", text, expected, asked(count));
    }
    editor.leave();
    let mut server = Server::start(&home, &[]);
    for (text, expected) in texts.iter().zip(&expected) {
        let count = llm.asked().len();
        let reply = server.post("/v1/runs", &json!({ "text": text }));
        assert_eq!(reply.status, 200, "{reply:?}");
        compare("HTTP", text, expected, asked(count));
    }
    // A command that does not exist is refused before a conversation is created.
    let threads = |server: &Server| {
        server.get("/v1/threads/summaries").json()["items"].as_array().expect("a list").len()
    };
    let before = threads(&server);
    let refused = server.post("/v1/runs", &json!({ "text": "/shipp it" }));
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.body.contains("/shipp is not a command"), "{}", refused.body);
    assert_eq!(threads(&server), before);
    // A mention reads without a question: not for a token that may answer none.
    let bot = home.ok(&["serve", "token", "add", "bot", "--scope", "chat"]).stdout.trim().to_owned();
    let own = std::mem::replace(&mut server.token, bot);
    let count = llm.asked().len();
    let reply = server.post("/v1/runs", &json!({ "text": texts[1] }));
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(asked(count), json!(texts[1]));
    server.token = own;
    server.stop();
    home.aye(&["queue", "add", "/shipp it"]).run().exits(2).says("/shipp is not a command");
    assert!(differing.is_empty(), "{}", differing.join("\n\n"));
}
