//! Models with the habits of their family, each through a whole run of the program to the file that was wanted: one that
//! loses indentation, one that copies line numbers, one that writes strings for numbers and lists, one that stops early,
//! one that repeats itself, one that writes patches.

use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};

const BEFORE: &str = "impl Job {\n    fn run(&self) {\n        while self.tries() < 3 {\n            self.attempt();\n        \
                      }\n    }\n}\n";
const AFTER: &str = "impl Job {\n    fn run(&self) {\n        while self.tries() < 5 {\n            self.attempt();\n            \
                     self.wait();\n        }\n    }\n}\n";

/// Runs a model that nobody watches, as the settings have it, and returns its requests. Each begins with the whole of the
/// one before.
fn finished(script: impl FnMut(&Chat) -> Answer + Send + 'static) -> Vec<Chat> {
    finished_with("mock/m1", script)
}

fn finished_with(model: &str, script: impl FnMut(&Chat) -> Answer + Send + 'static) -> Vec<Chat> {
    let llm = MockLlm::by(script);
    let home = Home::new();
    home.config(&format!(
        "model = \"{model}\"\napply_patch = true\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{}\"\napi_key_env = \"MOCK_KEY\"\n\
         [retry]\nmax_retries = 0\n[stop]\ncheck_before_end = true\n",
        llm.url
    ));
    home.write("job.rs", BEFORE);
    home.ok(&["-p", "try it five times, and wait after each", "--permission-mode", "accept-edits"]);
    assert_eq!(home.read("job.rs"), AFTER);
    let asked = llm.asked();
    for pair in asked.windows(2) {
        assert!(pair[1].messages().starts_with(pair[0].messages()), "{:#?}", pair[1].messages());
    }
    asked
}

fn edit(id: &str, old: &str, new: &str) -> Answer {
    Answer::new().call(id, "Edit", json!({"file_path": "job.rs", "old_string": old, "new_string": new}))
}

fn read(id: &str) -> Answer {
    Answer::new().call(id, "Read", json!({"file_path": "job.rs"}))
}

/// The edit that leads from one file to the other, as a model with good habits makes it.
const OLD: &str = "        while self.tries() < 3 {\n            self.attempt();\n";
const NEW: &str = "        while self.tries() < 5 {\n            self.attempt();\n            self.wait();\n";

/// Whether the model was asked to check its work, which it then says that it cannot.
fn is_asked_to_check(chat: &Chat) -> bool {
    chat.told().contains("nothing ran since")
}

#[test]
fn a_model_that_loses_indentation() {
    let asked = finished(|chat: &Chat| match chat.results().len() {
        0 => read("r"),
        1 => {
            // All depth is lost, then only what the lines share.
            let flat =
                |text: &str| text.lines().map(|line| line.trim().to_owned() + "\n").collect::<String>();
            edit("e", &flat(OLD), &flat(NEW))
        }
        2 if chat.result("e").contains("matched ignoring indentation") => Answer::say("It is done."),
        2 => {
            let shared =
                |text: &str| text.lines().map(|line| line[8..].to_owned() + "\n").collect::<String>();
            edit("e2", &shared(OLD), &shared(NEW))
        }
        _ => Answer::say("It is done."),
    });
    let last = asked.last().expect("requests");
    assert!(last.result("e").contains("in blanks only"), "no depth is guessed: {}", last.result("e"));
    assert!(last.result("e2").contains("matched ignoring indentation"), "{}", last.result("e2"));
}

#[test]
fn a_model_that_copies_line_numbers() {
    let asked = finished(|chat: &Chat| match chat.results().len() {
        0 => read("r"),
        1 => {
            let shown = chat.result("r");
            let lines: Vec<&str> = shown.lines().skip(2).take(2).collect();
            assert!(lines[0].starts_with("3\t"), "{shown}");
            let old = lines.join("\n");
            edit("e", &old, &(old.replace("< 3", "< 5") + "\n5\t            self.wait();"))
        }
        _ => Answer::say("It is done."),
    });
    let result = asked.last().expect("requests").result("e");
    assert!(result.contains("matched ignoring line numbers"), "{result}");
}

#[test]
fn a_model_that_writes_strings_for_numbers_and_lists() {
    let asked = finished(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call(
            "t",
            "TodoWrite",
            json!({"todos": json!([{"content": "try more often", "status": "completed"}]).to_string()}),
        ),
        1 => Answer::new().call("r", "Read", json!({"path": "job.rs", "offset": "3", "limit": "2"})),
        2 => Answer::new().call(
            "e",
            "edit",
            json!({"path": "job.rs", "old_str": OLD, "new_str": NEW, "replace_all": "false"}),
        ),
        _ => Answer::say("It is done."),
    });
    let last = asked.last().expect("requests");
    assert_eq!(last.result("r").lines().count(), 3, "{}", last.result("r"));
    assert!(
        last.results().iter().all(|(_, text)| !text.contains("invalid arguments")),
        "{:#?}",
        last.results()
    );
}

#[test]
fn a_model_that_stops_early() {
    let mut said = 0;
    let asked = finished(move |chat: &Chat| {
        if chat.results().is_empty() && said < 2 {
            said += 1;
            return match said {
                1 => Answer::say("I'll read the file and then change the loop."),
                _ => read("r"),
            };
        }
        match chat.results().len() {
            1 => edit("e", OLD, NEW),
            _ => Answer::say("It tries five times now. I could not compile it here."),
        }
    });
    assert!(asked[1].told().contains("announces a step"), "{:#?}", asked[1].messages());
    assert_eq!(asked.len(), 4, "one reminder in a run");
}

#[test]
fn a_model_that_repeats_itself() {
    let asked = finished(|chat: &Chat| {
        let reads = chat.results().iter().filter(|(id, _)| id.starts_with('r')).count();
        let is_reminded = chat.told().contains("You made the same calls 3 times in a row (Read)");
        match chat.results().iter().any(|(id, _)| id == "e") {
            true if is_asked_to_check(chat) => Answer::say("Nothing here can compile it."),
            true => Answer::say("It is done."),
            false if is_reminded => edit("e", OLD, NEW),
            false => read(&format!("r{reads}")),
        }
    });
    let last = asked.last().expect("requests");
    assert_eq!(last.results().len(), 4, "three Reads and the edit");
    assert!(is_asked_to_check(last));
}

#[test]
fn a_model_that_writes_patches() {
    let patch = |hunk: &str| {
        let patch = format!(
            "*** Begin Patch\n*** Update File: job.rs\n{hunk}*** Add File: notes.txt\n+five times\n*** End Patch\n"
        );
        json!({"input": patch})
    };
    let hunk = "@@ impl Job {\n     fn run(&self) {\n-        while self.tries() < 3 {\n+        while self.tries() < 5 {\n             \
                self.attempt();\n+            self.wait();\n         }\n";
    let asked = finished_with("mock/gpt-5.5", move |chat: &Chat| match chat.results().len() {
        0 => Answer::new().call(
            "p0",
            "apply_patch",
            patch("@@\n-        while self.tries() < 4 {\n+        while true {\n"),
        ),
        2 => Answer::new().call(
            "p1",
            "apply_patch",
            json!({"input": "*** Begin Patch\n*** Delete File: job.rs\n*** End Patch"}),
        ),
        3 => Answer::new().call("p2", "apply_patch", patch(hunk)),
        _ => Answer::say("It is done."),
    });
    let results = asked.last().expect("requests").results();
    let texts: Vec<&str> = results.iter().map(|(_, text)| text.as_str()).collect();
    assert!(asked[0].knows("apply_patch") && asked[0].knows("Edit"));
    // Each file has a result of its own: one may fail where the other does not.
    assert!(
        texts[0].starts_with("hunk 1 is not in job.rs") && texts[1] == "created notes.txt (+1 -0)",
        "{texts:#?}"
    );
    assert!(texts[2].contains("it deletes job.rs; delete it by Bash with `rm`"), "{texts:#?}");
    assert_eq!(texts[3], "changed job.rs (+2 -1)", "{texts:#?}");
    assert!(texts[4].starts_with("already has this content: notes.txt"), "{texts:#?}");
    // The setting is for this family only.
    let others = finished(|chat: &Chat| match chat.results().len() {
        0 => edit("e", OLD, NEW),
        _ => Answer::say("It is done."),
    });
    assert!(!others[0].knows("apply_patch"));
}
