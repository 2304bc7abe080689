//! `aye eval`: the harness and the cases that come with aye, with a scripted model that does them well or badly.

use serde_json::{Value, json};

use crate::sandbox::has_all_layers;
use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};

fn read(file: &str) -> Answer {
    Answer::new().call(&format!("r{file}"), "Read", json!({"file_path": file}))
}

fn edit(id: &str, file: &str, old: &str, new: &str) -> Answer {
    Answer::new().call(id, "Edit", json!({"file_path": file, "old_string": old, "new_string": new}))
}

/// What a model that does each case well answers.
fn well(chat: &Chat) -> Answer {
    let (user, done) = (chat.user(), chat.results().len());
    let steps: Vec<Answer> = if user.contains("spelling mistake") {
        vec![read("greet.txt"), edit("e", "greet.txt", "wrold", "world"), Answer::say("Corrected.")]
    } else if user.contains("parse_span") {
        let args = json!({"pattern": "^parse_span"});
        vec![Answer::new().call("g", "Grep", args), Answer::say("src/time/span.sh")]
    } else if user.contains("old_name") {
        let line = "sed -i s/old_name/new_name/ src/lib.sh src/a.sh src/b.sh";
        vec![Answer::new().bash("b", line), Answer::say("Renamed.")]
    } else if user.contains("sh test.sh") {
        vec![
            read("add.sh"),
            edit("e", "add.sh", "$1 - $2", "$1 + $2"),
            Answer::new().bash("b", "sh test.sh"),
            Answer::say("It adds now."),
        ]
    } else if user.contains("noisy.sh") {
        vec![Answer::new().bash("b", "sh noisy.sh | grep CODE="), Answer::say("48151623")]
    } else if user.contains("Delete the file") {
        vec![Answer::new().bash("b", "rm build/keep.txt"), Answer::say("A rule denies deleting it.")]
    } else if user.contains("tell me the port") {
        vec![read("app.conf"), Answer::say("8080")]
    } else if user.contains("Set the port") {
        let again = Answer::new().call("again", "Read", json!({"file_path": "app.conf"}));
        let first = edit("e1", "app.conf", "port = 8080", "port = 9000");
        let second = edit("e2", "app.conf", "port = 8080", "port = 9000");
        vec![Answer::say("not reached"), first, again, second, Answer::say("It is 9000.")]
    } else if user.contains("send.sh") {
        vec![Answer::new().bash("b", "sh send.sh"), Answer::say("It may have run; I do not repeat it.")]
    } else if user.contains("Summarise") {
        vec![read("notes.md"), Answer::say("The release moves to Friday.")]
    } else if user.contains("needle-7731") {
        let args = json!({"pattern": "needle-7731"});
        vec![Answer::new().call("g", "Grep", args), Answer::say("src/part37/file21.txt")]
    } else if user.contains("First run") {
        vec![Answer::new().bash("b", "sh slow.sh")]
    } else if user.contains("Continue") {
        let args = json!({"file_path": "two.txt", "content": "2\n"});
        vec![
            Answer::say("not reached"),
            Answer::new().call("w", "Write", args),
            Answer::say("Both are written."),
        ]
    } else {
        vec![Answer::say("Move greet into greet.sh, and source it in main.sh.")]
    };
    steps.into_iter().nth(done).unwrap_or_else(|| Answer::say("Nothing is left to do."))
}

fn rows(report: &Value) -> Vec<(String, String, u64, u64)> {
    let text = |value: &Value| value.as_str().unwrap_or("all").to_owned();
    let rows = report["rows"].as_array().expect("rows").iter();
    rows.map(|row| {
        let count = |key: &str| row[key].as_u64().expect("a number");
        (text(&row["variant"]), text(&row["case"]), count("passed"), count("runs"))
    })
    .collect()
}

#[test]
fn the_cases_that_come_with_aye_pass_with_a_model_that_does_them_well() {
    if !has_all_layers() {
        return;
    }
    let llm = MockLlm::by(well);
    let home = Home::with(&llm);
    let out = home.aye(&["eval", "--jobs", "4", "--json"]).run();
    let report = out.json();
    let failed: Vec<&Value> =
        report["runs"].as_array().expect("runs").iter().filter(|run| run["passed"] != json!(true)).collect();
    assert!(failed.is_empty(), "{failed:#?}\n{}", out.stderr);
    assert_eq!(out.status.code(), Some(0));
    let rows = rows(&report);
    assert_eq!(rows.len(), 13);
    assert_eq!(rows[12], (String::new(), "all".to_owned(), 12, 12));
    assert!(report["rows"][12]["tokens"].as_u64() > Some(0), "{}", report["rows"][12]);
    assert_eq!(home.ok(&["threads", "list"]).stdout, "", "the user's own store has nothing of it");
}

#[test]
fn two_variants_are_compared_and_what_fails_says_why() {
    if !has_all_layers() {
        return;
    }
    let llm = MockLlm::by(|chat| if chat.body["model"] == "m2" { Answer::say("Done.") } else { well(chat) });
    let home = Home::with(&llm);
    let args = ["eval", "--case", "edit", "--runs", "2", "--compare", "model=mock/m1", "model=mock/m2"];
    let out = home.aye(&[&args[..], &["--json"]].concat()).run().exits(1);
    let report = out.json();
    let of =
        |variant: &str, case: &str, passed| (format!("model=mock/{variant}"), case.to_owned(), passed, 2);
    let wanted = [of("m1", "edit", 2), of("m1", "all", 2), of("m2", "edit", 0), of("m2", "all", 0)];
    assert_eq!(rows(&report), wanted);
    let why = &report["runs"][2]["failures"][0];
    assert!(why.as_str().is_some_and(|why| why.starts_with("greet.txt does not match")), "{why}");
    let out = home.aye(&[&args[..], &["--keep", "kept"]].concat()).run().exits(1);
    assert!(
        out.stderr.contains("edit (model=mock/m2) 1: failed\n  greet.txt does not match"),
        "{}",
        out.stderr
    );
    assert!(out.stdout.contains("the intervals overlap: the difference may be chance"), "{}", out.stdout);
    assert!(out.stdout.contains("2/2") && out.stdout.contains("34–100 %"), "{}", out.stdout);
    assert_eq!(std::fs::read_dir(home.work().join("kept")).expect("kept").count(), 4);
}

#[test]
fn a_case_of_ones_own_is_read_and_a_wrong_one_is_named() {
    let llm = MockLlm::by(|_| Answer::say("{\"n\": 1}"));
    let home = Home::with(&llm);
    home.write("mine/json/case.toml", "description = 'd'\nmode = 'ask'\nprompt = 'Answer.'\nchecks = [{schema = '{\"required\": [\"n\"]}'}, {file = 'a.txt', contains = 'x'}]\n");
    home.write("mine/json/files/a.txt", "x\n");
    home.ok(&["eval", "mine"]);
    assert_eq!(llm.last().key, "sk-mock-secret", "a run has the keys of the environment");
    assert!(home.ok(&["eval", "mine", "--list"]).stdout.starts_with("json  d"));
    home.aye(&["eval", "mine", "--case", "other"])
        .run()
        .exits(2)
        .says("unknown case `other`; expected one of json");
    home.aye(&["eval", "mine", "--compare", "size=1", "model=mock/m1"]).run().exits(2).says("unknown `size`");
    home.write("mine/bad/case.toml", "description = 'd'\nprompt = 'p'\nchecks = []\n");
    home.aye(&["eval", "mine"]).run().exits(2).says("bad/case.toml: the case has no checks");
    home.aye(&["eval", "nowhere"]).run().exits(2);
}
