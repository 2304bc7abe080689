//! Long conversations in small windows: trimmed and kept messages, summaries, and what the user sees.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, Gate, MockLlm, until};
use crate::support::pty::Pty;

const SUMMARY: &str = "They count sheep. The next step is to count on.";

/// A home whose model has a window of this number of tokens.
fn home(llm: &MockLlm, window: u32, compact_at: u8) -> Home {
    let home = Home::new();
    home.config(&format!(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{}\"\napi_key_env = \"MOCK_KEY\"\n\
         [models.m1]\nprovider = \"mock\"\ncontext_window = {window}\nmax_output = 1000\n\
         [retry]\nmax_retries = 0\n[context]\ncompact_at = {compact_at}\n",
        llm.url
    ));
    home.write("AGENTS.md", "Always count aloud.\n");
    home
}

fn is_summariser(chat: &Chat) -> bool {
    chat.system().starts_with("You summarise a conversation")
}

fn sheep(n: usize, tokens: usize) -> String {
    format!("sheep-{n} {}", "baa ".repeat(tokens))
}

/// Answers with about this number of tokens, and writes summaries.
fn counts(tokens: usize) -> MockLlm {
    let mut n = 0;
    MockLlm::by(move |chat| {
        if is_summariser(chat) {
            return Answer::say(SUMMARY);
        }
        n += 1;
        Answer::say(&sheep(n, tokens))
    })
}

fn texts(chat: &Chat) -> String {
    chat.messages().iter().map(|message| message["content"].to_string()).collect::<Vec<_>>().join("\n")
}

/// The fixed cost of every request: about 2,500 tokens at four bytes each.
#[test]
fn the_first_request_with_all_built_in_tools_is_small() {
    let llm = MockLlm::answers([Answer::say("Hello.")]);
    let home = Home::new();
    home.config(&format!(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{}\"\napi_key_env = \"MOCK_KEY\"\n",
        llm.url
    ));
    home.ok(&["-p", "hi"]);
    let asked = llm.last();
    assert!(asked.tools().len() >= 10, "{:?}", asked.tools());
    let bytes = asked.system().len() + asked.body["tools"].to_string().len();
    assert!(bytes <= 10_000, "{bytes} bytes of system prompt and tools");
}

#[test]
fn the_model_knows_what_it_may_do_and_who_is_there() {
    let llm = MockLlm::by(|_| Answer::say("Hello."));
    let home = Home::with(&llm);
    home.git(&["init", "-q", "-b", "topic"]);
    home.ok(&["-p", "hi"]);
    let first = llm.last();
    let told = first.told();
    assert!(
        told.contains("Permission mode ask: calls that no rule allows need the user's approval."),
        "{told}"
    );
    assert!(told.contains("Nobody watches") && told.contains("Git branch: topic."), "{told}");
    assert!(first.tools().contains(&"AskUser".to_owned()), "{:?}", first.tools());
    // What changes is said at the end.
    home.git(&["checkout", "-q", "-b", "other"]);
    home.ok(&["-c", "-p", "again", "--permission-mode", "plan"]);
    let later = llm.last();
    assert!(later.messages().starts_with(first.messages()), "{:#?}", later.messages());
    assert_eq!(later.body["tools"], first.body["tools"]);
    let told = later.told();
    assert!(
        told.contains("Permission mode plan: only look") && told.contains("Git branch: other."),
        "{told}"
    );
    // So are changes that the user has not staged. The index must be newer than the file.
    home.write("a.txt", "one\n");
    let before = SystemTime::now() - Duration::from_mins(1);
    let file = std::fs::File::options().write(true).open(home.work().join("a.txt")).expect("opened");
    file.set_modified(before).expect("set");
    home.git(&["add", "a.txt"]);
    home.ok(&["-c", "-p", "staged"]);
    assert!(llm.last().told().contains("Git branch: other; no unstaged changes."), "{}", llm.last().told());
    home.write("a.txt", "one\ntwo\n");
    home.ok(&["-c", "-p", "changed"]);
    let told = llm.last().told();
    assert!(told.contains("Git branch: other; there are unstaged changes."), "{told}");
    // Who cannot be asked is not offered to be asked.
    home.ok(&["-p", "hi", "--on-ask", "deny"]);
    let alone = llm.last();
    assert!(alone.told().contains("Nobody is there: what needs approval does not run."), "{}", alone.told());
    assert!(!alone.tools().contains(&"AskUser".to_owned()), "{:?}", alone.tools());
}

#[test]
fn old_messages_leave_and_pinned_ones_stay() {
    let llm = counts(700);
    let home = home(&llm, 16_000, 0);
    home.ok(&["-p", "remember the red barn"]);
    for n in 1..20 {
        home.ok(&["-c", "-p", &format!("count to {n}")]);
    }
    let asked = llm.asked();
    assert_eq!(asked.len(), 20, "nothing is summarised");
    let last = texts(asked.last().expect("a request"));
    assert!(texts(&asked[1]).contains("red barn") && !last.contains("red barn"), "{last}");
    assert!(last.contains("older messages of this conversation were left out here"));
    assert!(last.contains("count to 19") && last.contains("sheep-18") && last.contains("sheep-15"));
    for chat in &asked {
        assert_eq!(chat.system(), asked[0].system());
        assert!(chat.system().contains("Always count aloud."));
        let size = chat.body.to_string().len() / 4;
        assert!(size < 16_000, "about {size} tokens");
    }
    let thread = home.thread();
    let shown = home.ok(&["threads", "show", &thread]).stdout;
    assert!(shown.contains("red barn") && shown.contains("sheep-1 "), "the conversation has everything");
}

#[test]
fn older_messages_are_summarised_alongside_the_run() {
    let llm = counts(700);
    let home = home(&llm, 16_000, 30);
    home.ok(&["-p", "remember the red barn"]);
    let mut told = 0;
    for n in 1..10 {
        let out = home.ok(&["-c", "-p", &format!("count to {n}")]);
        told += out.stderr.matches("compacted ").count();
    }
    let asked = llm.asked();
    let summaries: Vec<&Chat> = asked.iter().filter(|chat| is_summariser(chat)).collect();
    assert!((1..=3).contains(&summaries.len()), "{}", summaries.len());
    assert_eq!(told, summaries.len(), "the run that made a summary reports it");
    let first = texts(summaries[0]);
    assert!(first.contains("User: remember the red barn") && summaries[0].tools().is_empty());
    let last = asked.iter().rfind(|chat| !is_summariser(chat)).expect("a request");
    // What the user said stays word for word.
    assert!(
        texts(last).contains(SUMMARY)
            && !texts(last).contains("sheep-1 ")
            && texts(last).contains("red barn")
    );
    assert_eq!(last.system(), asked[0].system(), "the instructions keep their bytes");
    assert_eq!(last.body["tools"], asked[0].body["tools"]);
    let thread = home.thread();
    let shown = home.ok(&["threads", "show", &thread]).stdout;
    assert!(
        shown.contains("red barn") && !shown.contains(SUMMARY),
        "a summary is not part of the conversation"
    );
}

#[test]
fn the_last_object_has_the_cost_of_a_summary() {
    let llm = counts(700);
    let home = home(&llm, 16_000, 30);
    home.ok(&["-p", "remember the red barn"]);
    let mut told = 0;
    for n in 1..10 {
        let before = llm.asked().len();
        let out = home.ok(&["-c", "-p", &format!("count to {n}"), "--output-format", "stream-json"]);
        let requests = llm.asked().len() - before;
        let lines: Vec<serde_json::Value> =
            out.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        told += out.stdout.matches("conversation-compacted").count();
        let result = lines.last().expect("a result");
        assert_eq!(result["type"], "result");
        assert_eq!(result["usage"]["total_tokens"], requests * 18, "{out:?}");
    }
    let summaries = llm.asked().iter().filter(|chat| is_summariser(chat)).count();
    assert_eq!((told, summaries > 0), (summaries, true));
}

#[cfg(feature = "failpoints")]
#[test]
fn a_kill_around_the_summary_loses_nothing() {
    for place in ["context.summary", "context.summarised"] {
        let llm = counts(700);
        let home = home(&llm, 16_000, 30);
        home.ok(&["-p", "remember the red barn"]);
        let mut died = 0;
        for n in 1..10 {
            let out = home.aye(&["-c", "-p", &format!("count to {n}")]).env("AYE_FAILPOINT", place).run();
            if out.was_killed() {
                died += 1;
                break;
            }
            out.exits(0);
        }
        assert_eq!(died, 1, "{place}");
        home.ok(&["-c", "-p", "and now"]);
        let last = llm.asked().into_iter().rfind(|chat| !is_summariser(chat)).expect("a request");
        let stored = place == "context.summarised";
        assert_eq!(texts(&last).contains(SUMMARY), stored, "{place}");
        assert_eq!(texts(&last).contains("sheep-1 "), !stored, "{place}");
        assert!(texts(&last).contains("red barn"), "{place}");
        assert!(texts(&last).contains("and now"));
        assert!(home.ok(&["doctor"]).status.success());
    }
}

#[test]
fn the_terminal_compacts_shows_it_and_restores_it_after_a_kill() {
    let llm = counts(700);
    let home = home(&llm, 32_000, 0);
    let tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("/compact");
    tty.shows("nothing to summarise yet");
    for n in 1..7 {
        tty.say(&format!("count to {n}"));
        tty.shows(&format!("sheep-{n} "));
        tty.wait("completion", |view| !view.is_active());
    }
    tty.say("/context");
    tty.shows("Context  mock/m1 · ");
    tty.shows("system prompt");
    tty.shows("12 messages in the conversation.");
    tty.say("/compact the sheep");
    tty.shows("They count sheep. The next step is to count on.");
    tty.shows("compacted 10 messages, ");
    let writer = llm.last();
    assert!(is_summariser(&writer) && texts(&writer).contains("Pay special attention to this: the sheep"));
    tty.kill();
    let mut tty = Pty::start(&home, &["-c"], 100, 30);
    tty.ready();
    tty.shows("compacted 10 messages, ");
    tty.shows("sheep-6");
    tty.say("go on");
    tty.shows("sheep-7 ");
    let last = texts(&llm.last());
    assert!(last.contains(SUMMARY) && last.contains("sheep-6") && !last.contains("sheep-5"), "{last}");
    tty.wait("completion", |view| !view.is_active());
    let told = tty.look(crate::support::pty::View::all).matches("compacted 10 messages").count();
    assert_eq!(told, 1, "it is reported once");
    tty.say("/context");
    tty.shows("A summary replaces the first 10; /compact writes a new one.");
    tty.quit();
}

#[test]
fn another_terminal_sees_the_summary_and_uses_it() {
    let llm = counts(700);
    let home = home(&llm, 32_000, 0);
    let mut one = Pty::start(&home, &[], 100, 30);
    one.ready();
    for n in 1..5 {
        one.say(&format!("count to {n}"));
        one.shows(&format!("sheep-{n} "));
        one.wait("completion", |view| !view.is_active());
    }
    let mut two = Pty::start(&home, &["-c"], 100, 30);
    two.ready();
    two.shows("sheep-4 ");
    one.say("/compact");
    one.shows("compacted 6 messages, ");
    two.shows("compacted 6 messages, ");
    two.say("go on");
    two.shows("sheep-5 ");
    assert!(texts(&llm.last()).contains(SUMMARY));
    one.quit();
    two.quit();
}

#[test]
fn the_run_continues_while_its_summary_is_written() {
    let gate = Gate::default();
    let (held, log) = (gate.clone(), Arc::new(Mutex::new(Vec::new())));
    let (seen, mut n) = (Arc::clone(&log), 0);
    let llm = MockLlm::by(move |chat| {
        if is_summariser(chat) {
            seen.lock().expect("not poisoned").push("summary asked");
            return Answer::new().wait(&held).text(SUMMARY);
        }
        n += 1;
        match n {
            1..=12 => Answer::say(&sheep(n, 700)).call(&format!("c{n}"), "List", json!({"depth": n})),
            _ => Answer::say("All are counted."),
        }
    });
    let home = home(&llm, 24_000, 20);
    let run = home.aye(&["-p", "count them all"]).spawn();
    // The run finishes; the process only waits for the paid summary.
    until("the end of the run", || {
        llm.asked().iter().filter(|chat| !is_summariser(chat)).count() == 13
            && !log.lock().expect("not poisoned").is_empty()
    });
    gate.open();
    let out = run.end().exits(0);
    assert!(out.stdout.contains("All are counted."), "{out:?}");
    home.ok(&["-c", "-p", "and again"]);
    assert!(texts(&llm.last()).contains(SUMMARY));
}

#[test]
fn a_request_too_long_for_the_server_is_shortened_once() {
    let refused = Arc::new(Mutex::new(0));
    let count = Arc::clone(&refused);
    // The configured window is larger than the real one.
    let llm = MockLlm::by(move |chat| {
        if is_summariser(chat) {
            return Answer::say(SUMMARY);
        }
        if chat.messages().iter().map(|m| m.to_string().len()).sum::<usize>() > 20_000 {
            *count.lock().expect("not poisoned") += 1;
            return Answer::error(400, "This model's maximum context length is 8192 tokens.");
        }
        Answer::say(&sheep(chat.nth, 900))
    });
    let home = home(&llm, 200_000, 0);
    home.ok(&["-p", "remember the red barn"]);
    for n in 1..8 {
        home.ok(&["-c", "-p", &format!("count to {n}")]);
    }
    assert!((1..=4).contains(&*refused.lock().expect("not poisoned")));
    assert!(texts(&llm.last()).contains(SUMMARY));
    // A request that cannot be shortened is an error that says so.
    let out = home.aye(&["-c", "-p", &"far too long ".repeat(4000)]).run().exits(1);
    assert!(out.stderr.contains("it is still too long"), "{out:?}");
}

#[test]
fn the_rest_of_a_large_result_can_be_read_unasked() {
    let path = Arc::new(Mutex::new(String::new()));
    let found = Arc::clone(&path);
    let llm = MockLlm::by(move |chat| match (chat.user().as_str(), chat.results().len()) {
        ("list the numbers", 0) => Answer::new().bash("big", "seq 100000 102500"),
        ("look again", 1) => {
            let preview = chat.result("big");
            let start =
                preview.find("The full result is in ").unwrap_or_else(|| panic!("no path in {preview}"));
            let path = preview[start + 22..].split(": use Read").next().expect("a path").to_owned();
            found.lock().expect("not poisoned").clone_from(&path);
            Answer::new().call("again", "Read", json!({"file_path": path, "offset": 2401, "limit": 2}))
        }
        _ => Answer::say(&"Well. ".repeat(2750)),
    });
    let home = home(&llm, 32_000, 0);
    home.rules("rules:\n  - {tool: 'Bash(seq *)', behavior: allow}\n");
    home.ok(&["-p", "list the numbers"]);
    assert!(llm.last().result("big").contains("102400"), "it is complete while it fits");
    for _ in 0..5 {
        home.ok(&["-c", "-p", "and?"]);
    }
    home.ok(&["-c", "-p", "look again"]);
    let preview = llm.last().result("big");
    assert!(preview.len() < 2000 && preview.contains("100005") && !preview.contains("102400"), "{preview}");
    assert!(llm.last().result("again").contains("102400"), "{}", llm.last().result("again"));
    assert!(home.open().is_empty());
    let other = path.lock().expect("not poisoned").replace("result-", "other-");
    assert!(other.contains("/output/") && other.contains("/other-"), "{other}");
}

#[test]
fn a_message_larger_than_the_window_is_refused_with_its_size() {
    let llm = counts(10);
    let home = home(&llm, 16_000, 0);
    let why = "and mock/m1 takes ";
    let big = "baa ".repeat(20_000);
    home.aye(&["-p"]).stdin(big.clone()).run().exits(2).says("the message is about 20k tokens").says(why);
    home.aye(&["queue", "add"])
        .stdin(big.clone())
        .run()
        .exits(2)
        .says("the message is about 20k tokens")
        .says(why);
    assert_eq!(home.ok(&["threads", "list", "--json"]).json(), json!([]), "nothing was stored");
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.send("what is this? ");
    tty.paste(&big);
    tty.shows("[paste 1: 80000 characters]");
    tty.send("\r");
    tty.shows("the message is about 20k tokens");
    tty.wait("the draft", |view| view.screen().contains("❯ what is this? [paste 1: 80000 characters]"));
    assert!(llm.asked().is_empty(), "nothing was sent");
    assert_eq!(home.ok(&["threads", "list", "--json"]).json(), json!([]));
    tty.send("\x15");
    tty.say("count");
    tty.shows("sheep-1 ");
    tty.quit();
}

#[test]
fn messages_that_cannot_be_summarised_are_named_with_the_remedies() {
    let llm = counts(10);
    let home = home(&llm, 64_000, 0);
    home.ok(&["-p", "count"]);
    home.aye(&["-c", "-p"]).stdin("baa ".repeat(30_000)).run().exits(0);
    // The same conversation with a smaller model: the message is the last request.
    let config = std::fs::read_to_string(home.root().join("aye/config/config.toml")).expect("settings");
    home.config(&config.replace("context_window = 64000", "context_window = 16000"));
    let mut tty = Pty::start(&home, &["-c"], 100, 30);
    tty.shows("sheep-2 ");
    tty.say("/compact");
    tty.shows("the newest messages alone are about 30k tokens");
    tty.shows("/rewind or /fork");
    tty.quit();
}

/// What the summariser cannot read at once it reads in portions: they are one line. The tokens of the last request are those
/// of the messages that the summary replaces.
#[test]
fn a_summary_in_portions_is_one_line_and_the_old_size_of_the_context_is_gone() {
    let llm = counts(2000);
    let home = home(&llm, 128_000, 0);
    home.ok(&["-p", "count"]);
    for _ in 0..12 {
        home.ok(&["-c", "-p", "count on"]);
    }
    let config = std::fs::read_to_string(home.root().join("aye/config/config.toml")).expect("settings");
    home.config(&config.replace("context_window = 128000", "context_window = 16000"));
    let asked = llm.asked().len();
    let mut tty = Pty::start(&home, &["-c"], 100, 30);
    tty.shows("sheep-13 ");
    tty.say("count on");
    tty.shows("sheep-14 ");
    tty.shows("% context");
    tty.say("/compact");
    tty.shows("It saves ");
    // One of them says which tools there are in a terminal.
    tty.shows("compacted 28 messages, 26k → ");
    tty.wait("the end", |view| !view.screen().contains("% context"));
    let writers = llm.asked()[asked..].iter().filter(|chat| is_summariser(chat)).count();
    assert!(writers > 1, "{writers} portions");
    let told = |tty: &Pty| tty.look(crate::support::pty::View::all).matches("compacted ").count();
    assert_eq!(told(&tty), 1);
    tty.quit();
    let mut tty = Pty::start(&home, &["-c"], 100, 30);
    tty.shows("compacted 28 messages, ");
    assert_eq!(told(&tty), 1);
    tty.quit();
}
