//! `aye replay`: the requests of a conversation, made again.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};

/// How often the lead is asked.
const STEPS: usize = 200;

fn is_summariser(chat: &Chat) -> bool {
    chat.system().starts_with("You summarise a conversation")
}

fn is_scout(chat: &Chat) -> bool {
    chat.system().contains("You scout.")
}

fn agent(home: &Home, name: &str, text: &str) {
    let folder = home.root().join("aye/config/agents");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(format!("{name}.md")), text).expect("written");
}

fn read(nth: usize) -> Answer {
    let args = json!({"file_path": "long.txt", "offset": nth, "limit": 12});
    Answer::new().call(&format!("c{nth}"), "Read", args)
}

/// What the lead answers to its request of this number, from 1.
fn lead(nth: usize) -> Answer {
    match nth {
        40 => Answer::new().call("c40", "agent_run_scout", json!({"prompt": "look around"})),
        80 | 120 => Answer::say("That is half of it."),
        100 => Answer::new().call("c100", "handoff", json!({"agent": "writer", "message": "Write it."})),
        STEPS => Answer::say("All is read."),
        nth => read(nth),
    }
}

#[test]
fn two_hundred_steps_with_summaries_a_subagent_and_a_handoff_replay_byte_for_byte() {
    let given: Arc<Mutex<Vec<(Value, Answer)>>> = Arc::default();
    let mut count = 0;
    let known = Arc::clone(&given);
    let llm = MockLlm::by(move |chat| {
        let mut known = known.lock().expect("not poisoned");
        if let Some((_, answer)) = known.iter().find(|(body, _)| *body == chat.body) {
            return answer.clone();
        }
        let answer = match (is_summariser(chat), is_scout(chat)) {
            (true, _) => return Answer::say("The file is being read."),
            (_, true) => Answer::say("All clear."),
            (false, false) => {
                count += 1;
                lead(count)
            }
        };
        known.push((chat.body.clone(), answer.clone()));
        answer
    });
    let home = Home::new();
    home.config(&format!(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{}\"\napi_key_env = \"MOCK_KEY\"\n\
         [models.m1]\nprovider = \"mock\"\ncontext_window = 24000\nmax_output = 1000\n\
         [retry]\nmax_retries = 0\n[context]\ncompact_at = 60\n",
        llm.url
    ));
    agent(
        &home,
        "planner",
        "---\ndescription: Plans.\ndelegates: [scout]\nhandoff: [writer]\n---\nYou plan.\n",
    );
    agent(&home, "writer", "---\ndescription: Writes.\n---\nYou write.\n");
    agent(&home, "scout", "---\ndescription: Looks around.\n---\nYou scout.\n");
    let line = "A line that is as long as many a line of a program is, and then some.\n";
    home.write("long.txt", &line.repeat(600));
    home.ok(&["--agent", "planner", "-p", "read it"]);
    home.ok(&["-c", "-p", "and on"]);
    home.ok(&["-c", "-p", "to the end"]);
    let thread = home.thread();
    let asked = given.lock().expect("not poisoned").len();
    assert_eq!(asked, STEPS + 1);
    assert!(llm.asked().iter().any(is_summariser), "the window is too large for this test");

    let out = home.ok(&["replay", &thread, "--json"]).json();
    assert_eq!(
        (&out["equal"], &out["differ"], &out["not_comparable"]),
        (&json!(asked), &json!(0), &json!(0)),
        "{out:#}"
    );
    assert_eq!(out["today"]["changes"], json!([]), "{:#}", out["today"]);
    let text = home.ok(&["replay", &thread]).stdout;
    assert!(text.contains("201 requests, with 1 subagent: 201 equal byte for byte"), "{text}");
    let stored = llm.asked().len();

    // The same model gets the same bytes.
    let out = home.ok(&["replay", &thread, "--model", "mock/m1", "--json"]).json();
    assert_eq!((&out["parted"], out["steps"].as_array().map(Vec::len)), (&json!(false), Some(STEPS)));
    let again: Vec<Value> = llm.asked().split_off(stored).into_iter().map(|chat| chat.body).collect();
    let given = given.lock().expect("not poisoned");
    assert_eq!(given.len(), asked, "a request was new to the model");
    let lead: Vec<Value> = given
        .iter()
        .map(|(body, _)| body.clone())
        .filter(|body| !body.to_string().contains("You scout."))
        .collect();
    assert_eq!(again, lead);
}

#[test]
fn the_first_difference_and_what_todays_settings_change_are_shown() {
    let llm = MockLlm::answers([
        Answer::new().bash("c1", "echo hi"),
        Answer::say("Done."),
        Answer::say("Again."),
        // What another model says.
        Answer::new().bash("x", "echo hi"),
        Answer::new().bash("y", "rm -rf build"),
    ]);
    let home = Home::with(&llm);
    home.write("AGENTS.md", "Be careful.\n");
    home.ok(&["-p", "go", "--allowed-tools", "Bash(echo *)"]);
    home.ok(&["-c", "-p", "more"]);
    let thread = home.thread();
    let text = home.ok(&["replay", &thread]).stdout;
    assert!(
        text.contains("3 requests: 3 equal byte for byte\ntoday's settings would change nothing\n"),
        "{text}"
    );
    let text = home.ok(&["replay", &thread, "--at", "2"]).stdout;
    assert!(text.starts_with("request 2: equal byte for byte to what was sent\n"), "{text}");
    assert!(text.contains("── system · environment.instructions") && text.contains("call Bash"), "{text}");
    let shown = home.ok(&["replay", &thread, "--at", "2", "--json"]).json();
    assert_eq!(shown["request"]["messages"].as_array().map(Vec::len), Some(3));
    home.aye(&["replay", &thread, "--at", "9"])
        .run()
        .exits(2)
        .says("--at 9: the conversation has 3 requests");

    // Another model: the record answers its calls until it asks for another one.
    let out = home.aye(&["replay", &thread, "--model", "mock/m2"]).run().exits(1);
    let last = llm.last();
    assert_eq!((&last.body["model"], last.result("c1").trim()), (&json!("m2"), "hi"), "the record answered");
    assert!(
        out.stdout.contains("1  agrees: Bash {\"command\":\"echo hi\"}\n2  parts\n   recorded: no call\n"),
        "{}",
        out.stdout
    );
    assert!(out.stdout.contains("   mock/m2: Bash {\"command\":\"rm -rf build\"}"), "{}", out.stdout);

    // Today's settings, and a row that somebody changed.
    home.write("AGENTS.md", "Be quick.\n");
    home.rules("rules:\n  - {tool: 'Bash(echo *)', behavior: deny}\n");
    let out = home.ok(&["replay", &thread, "--json"]).json();
    let causes: Vec<&str> = out["today"]["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|change| change["cause"].as_str())
        .collect();
    assert_eq!((causes, &out["equal"]), (vec!["prompt", "rule"], &json!(3)), "{out:#}");
    let store = rusqlite::Connection::open(home.root().join("aye/data/aye.db")).expect("the store");
    let changed = "UPDATE message SET body = replace(body, '\"more\"', '\"less\"')";
    assert!(store.execute(changed, ()).expect("changed") > 0);
    drop(store);
    let out = home.aye(&["replay", &thread]).run().exits(1);
    let first = "request 3 is not what was sent: one of messages 4 to 5 changed, or how they are shortened";
    assert!(out.stdout.contains(first) && out.stdout.contains("3 requests: 2 equal"), "{}", out.stdout);
}

/// The migrations that come with aye, by their number.
fn migrations() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/store-sqlite/src/migrations");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("migrations").map(|entry| entry.expect("read").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).expect("SQL")).collect()
}

#[test]
fn stores_of_all_earlier_versions_replay_and_say_what_cannot_be_compared() {
    let all = migrations();
    assert!(all.len() >= 15);
    for version in 1..=all.len() {
        let home = Home::new();
        home.config("");
        let data = home.root().join("aye/data");
        std::fs::create_dir_all(&data).expect("a folder");
        let store = rusqlite::Connection::open(data.join("aye.db")).expect("a store");
        store.execute_batch(&all[..version].concat()).unwrap_or_else(|error| panic!("{version}: {error}"));
        store.pragma_update(None, "application_id", 0x6179_6531).expect("set");
        store.pragma_update(None, "user_version", version as i64).expect("set");
        let cwd = home.work().display().to_string();
        let thread = "INSERT INTO thread (id, title, cwd, created_at, updated_at, messages) VALUES ('old', 'go', CAST(?1 AS BLOB), 1, 1, 2)";
        store.execute(thread, (&cwd,)).unwrap_or_else(|error| panic!("{version}: {error}"));
        let text = |text: &str| json!([{"type": "text", "text": text}]);
        let messages = [
            json!({"id": "m1", "role": "user", "content": text("go")}),
            json!({"id": "m2", "role": "assistant", "content": text("Done."), "metadata": {"model": "mock/m1"}}),
        ];
        let row =
            "INSERT INTO message (thread_id, seq, run_id, created_at, body) VALUES ('old', ?1, 'r', 1, ?2)";
        for (at, message) in messages.iter().enumerate() {
            store
                .execute(row, (at as i64 + 1, message.to_string()))
                .unwrap_or_else(|error| panic!("{version}: {error}"));
        }
        let has_start = version >= 15;
        if has_start {
            let start = json!({"at_seq": 1, "system": [{"key": "agent:default", "text": "Be brief."}]});
            let row = "INSERT INTO prefix (thread_id, seq, body) VALUES ('old', 1, ?1)";
            store.execute(row, (start.to_string(),)).expect("stored");
        }
        drop(store);
        let out = home.ok(&["replay", "old", "--json"]).json();
        let word = if has_start { "not_kept" } else { "no_start" };
        let row = &out["requests"][0];
        assert_eq!(
            (&row["compared"], &out["not_comparable"]),
            (&json!(word), &json!(1)),
            "{version}: {out:#}"
        );
        let out = home.aye(&["replay", "old", "--at", "1"]).run();
        if has_start {
            assert!(
                out.stdout.contains("request 1: cannot be compared") && out.stdout.contains("Be brief."),
                "{}",
                out.stdout
            );
        } else {
            out.exits(1).says("request 1 cannot be made again: its system text and tools are not stored");
        }
    }
}
