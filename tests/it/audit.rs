//! The audit through the real binary: shown, verified, tampered with, and simulated under other rules.

use serde_json::{Value, json};

use crate::support::home::{Home, id_of};
use crate::support::llm::{Answer, Chat, MockLlm};

/// A model that runs these commands in one turn, and then ends.
fn model(commands: &'static [&'static str]) -> MockLlm {
    MockLlm::by(move |chat: &Chat| {
        if !chat.results().is_empty() {
            return Answer::say("End.");
        }
        let call = |answer: Answer, (at, command): (usize, &&str)| answer.bash(&format!("c{at}"), command);
        commands.iter().enumerate().fold(Answer::new(), call)
    })
}

/// The question about the command.
fn about(home: &Home, command: &str) -> String {
    let open = home.open();
    let is_it = |row: &&Value| row.to_string().contains(command);
    id_of(open.iter().find(is_it).unwrap_or_else(|| panic!("{command} has no pending question: {open:#?}")))
}

/// Approves the first list, denies the second, and lets the run finish.
fn story(home: &Home, yes: &[&str], no: &[&str]) {
    home.aye(&["-p", "go"]).run().exits(3);
    for command in yes {
        home.ok(&["approvals", "approve", &about(home, command)]);
    }
    for command in no {
        home.ok(&["approvals", "deny", &about(home, command), "--reason", "not that\u{1b}[2J one"]);
    }
    home.aye(&["-r", &home.thread(), "-p"]).run().exits(0);
}

/// The store's file, opened by another program.
pub fn database(home: &Home) -> rusqlite::Connection {
    let mut folders = vec![home.root().join("aye")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("aye.db") {
                return rusqlite::Connection::open(path).expect("a store");
            }
        }
    }
    panic!("no store exists")
}

#[test]
fn calls_and_decisions_are_audited_and_verified() {
    let llm = model(&["touch one", "touch two"]);
    let home = Home::with(&llm);
    home.ok(&["audit", "--verify"]);
    home.ok(&["audit"]).says("has no matching calls");
    story(&home, &["touch one"], &["touch two"]);

    let calls = home.ok(&["audit", "--json"]).lines();
    assert_eq!(calls.len(), 2, "{calls:#?}");
    let call = |command: &str| {
        let found = calls.iter().find(|call| call["arguments"]["command"] == command);
        found.unwrap_or_else(|| panic!("{command}: {calls:#?}"))
    };
    let (one, two) = (call("touch one"), call("touch two"));
    assert_eq!(one["judged"][0]["ruling"], "ask", "{one:#}");
    assert_eq!(one["judged"][0]["answered"], false);
    assert!(
        one["judged"][0]["tried"].as_array().is_some_and(|all| all.len() > 20),
        "the shipped rules were tried"
    );
    assert_eq!(one["decided"][0]["action"], "resume");
    assert_eq!(one["decided"][0]["actor"]["user"], "tester");
    assert_eq!(one["decided"][0]["actor"]["channel"], "cli");
    assert!(one["decided"][0]["actor"]["uid"].is_u64() && one["decided"][0]["delay_ms"].is_u64(), "{one:#}");
    assert_eq!(one["ended"][0]["outcome"], "succeeded");
    assert_eq!(one["began"][0]["suspension"], one["asked"][0]["suspension"]);
    assert_eq!(two["decided"][0]["reason"], "not that\u{1b}[2J one");
    assert_eq!(
        (two["began"].as_array().map(Vec::len), two["closed"][0]["kind"].as_str()),
        (Some(0), Some("applied"))
    );

    let text = home.ok(&["audit"]).stdout;
    for part in [
        "Bash  touch one",
        "answer   approved by tester (uid ",
        "answer   denied by tester",
        "not that^[[2J one",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let rows = home.ok(&["audit", "--rows"]).lines();
    assert!(rows.iter().enumerate().all(|(at, row)| row["n"] == at + 1), "{rows:#?}");
    assert_eq!(home.ok(&["audit", "--since", "1h", "--json", "--tool", "Bash"]).lines().len(), 2);
    assert_eq!(home.ok(&["audit", "--since", "2030-01-01", "--json"]).stdout, "");
    assert_eq!(home.ok(&["audit", "--tool", "Read", "--json"]).stdout, "");
    let thread = home.thread();
    assert_eq!(home.ok(&["audit", "--thread", &thread[..30], "--json"]).lines().len(), 2);
    home.aye(&["audit", "--thread", "nope"]).run().exits(2).says("has no thread `nope`");
    home.aye(&["audit", "--since", "yesterday"]).run().exits(2).says("invalid time `yesterday`");
    let whole = home.ok(&["audit", "--verify"]).stdout;
    assert!(whole.starts_with("intact: ") && whole.contains("the tables match"), "{whole}");

    // A deleted conversation stays in the audit.
    home.ok(&["threads", "delete", &thread]);
    home.ok(&["audit", "--verify"]);
    let told = home.ok(&["audit"]).stdout;
    assert!(told.contains("Bash  touch two") && told.contains(" deleted  thread "), "{told}");
    assert_eq!(home.ok(&["audit", "--thread", &thread, "--json"]).lines().len(), 3);
}

#[test]
fn tampering_with_the_file_is_named() {
    let llm = model(&["touch one", "touch two"]);
    let home = Home::with(&llm);
    story(&home, &["touch one"], &["touch two"]);
    let rows = home.ok(&["audit", "--rows"]).lines();
    let of = |kind: &str| rows.iter().find(|row| row["kind"] == kind).expect("a row")["n"].to_string();
    let (decided, ended) = (of("decided"), of("ended"));
    let undone = |harm: &str, undo: &str, wanted: &str| {
        database(&home).execute_batch(harm).expect("the tampering succeeds");
        let out = home.aye(&["audit", "--verify"]).run().exits(1);
        assert!(out.stdout.contains(wanted), "{harm}: {wanted}: {}", out.stdout);
        assert!(out.stdout.contains("broken: "), "{}", out.stdout);
        let json = home.aye(&["audit", "--verify", "--json"]).run().exits(1).json();
        assert_eq!(json["whole"], false);
        database(&home).execute_batch(undo).expect("the undo succeeds");
        home.ok(&["audit", "--verify"]);
    };
    undone(
        &format!("UPDATE audit SET body = replace(body, 'tester', 'nobody') WHERE n = {decided}"),
        &format!("UPDATE audit SET body = replace(body, 'nobody', 'tester') WHERE n = {decided}"),
        &format!("row {decided} (of "),
    );
    undone(
        &format!(
            "CREATE TABLE kept AS SELECT * FROM audit WHERE n = {ended}; DELETE FROM audit WHERE n = {ended};"
        ),
        "INSERT INTO audit SELECT * FROM kept; DROP TABLE kept;",
        &format!("row {ended} (after "),
    );
    undone(
        "UPDATE suspension SET decided_by = replace(decided_by, 'tester', 'nobody')",
        "UPDATE suspension SET decided_by = replace(decided_by, 'nobody', 'tester')",
        "the answer to question ",
    );
    // Work continues alongside the damage, which stays visible.
    database(&home)
        .execute_batch(&format!("DELETE FROM audit WHERE n = {ended}"))
        .expect("the tampering succeeds");
    home.aye(&["-c", "-p", "again"]).run().exits(0);
    home.aye(&["audit", "--verify"]).run().exits(1);
}

#[test]
fn other_rules_are_simulated_on_past_calls() {
    let llm = model(&["touch a", "touch b", "git push"]);
    let home = Home::with(&llm);
    story(&home, &["touch a", "touch b"], &["git push"]);

    home.write(
        "wide.yaml",
        "rules:\n- {tool: Bash(git *), behavior: allow}\n- {tool: Bash(touch *), behavior: deny}\n",
    );
    let out = home.aye(&["permissions", "simulate", "--rules", "wide.yaml"]).run().exits(1);
    for part in [
        "3 calls, 3 distinct",
        "you denied it; these rules would allow it: 1",
        "Bash  git push",
        "allowed by rule `Bash(git *)` (",
        "wide.yaml:2)",
        "you approved it; these rules would deny it: 2",
    ] {
        assert!(out.stdout.contains(part), "{part}: {}", out.stdout);
    }
    let json = home.aye(&["permissions", "simulate", "--rules", "wide.yaml", "--json"]).run().exits(1).json();
    assert_eq!(json["these"], json!({"allowed": 1, "asked": 0, "denied": 2, "errors": 0}));
    assert_eq!(json["then"]["asked"], 3);
    let differences = json["differences"].as_array().expect("a list");
    let told: Vec<_> = differences.iter().map(|d| (d["decided"].as_str(), d["rule"].as_str())).collect();
    let (git, touch) = ((Some("declined"), Some("Bash(git *)")), (Some("allowed"), Some("Bash(touch *)")));
    assert_eq!(told, [touch, touch, git], "{json:#}");
    home.aye(&["permissions", "simulate", "--rules", "wide.yaml", "--since", "2030-01-01"]).run().exits(0);

    let yaml = home.ok(&["permissions", "suggest"]).stdout;
    assert!(
        yaml.contains("- {tool: \"Bash(touch *)\", behavior: allow, match: [\"touch a\", \"touch b\"]}"),
        "{yaml}"
    );
    assert!(!yaml.contains("push"), "once is not a pattern: {yaml}");
    home.write("new.yaml", &yaml);
    let out = home.ok(&["permissions", "simulate", "--rules", "new.yaml"]).stdout;
    assert!(out.contains("2 questions that you approved would not be asked"), "{out}");
    assert!(out.contains("nothing contradicts your decisions"), "{out}");
    let json = home.ok(&["permissions", "suggest", "--json"]).json();
    assert_eq!(
        (&json["asked"], &json["saved"], &json["rules"][0]["saves"]),
        (&json!(3), &json!(2), &json!(2))
    );

    // Existing rules no longer count as differences.
    home.rules(&yaml);
    assert!(home.ok(&["permissions", "suggest"]).stdout.contains("rules: []"));

    // Invalid rules are not accepted, and a missing folder is reported.
    home.write("bad.yaml", "rules:\n- {tool: 'Bash(', behavior: allow}\n");
    home.aye(&["permissions", "simulate", "--rules", "bad.yaml"]).run().exits(2).says("bad.yaml:2");
    home.aye(&["permissions", "simulate", "--rules", "none.yaml"]).run().exits(2).says("none.yaml");
}
