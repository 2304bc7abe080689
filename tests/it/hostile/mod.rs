//! Hostile input: every row of the samples, and rows of our own, through the program or its public API.
//!
//! A row is `{id, area, input, expect: {verdict, why}}`. Rows that are data (a command, a path, a text, a
//! file) are checked by one rule for their area; rows that are a situation have their own check, found by id.
//! A row without any check fails [`every_row_has_a_check`].

mod config;
mod db;
mod decision;
mod exec;
mod files;
mod headless;
mod provider;
mod rules;
mod screen;
mod secret;
mod terminal;

use serde_json::Value;

/// A row of the samples.
#[derive(Clone, Debug)]
pub struct Row {
    pub id: String,
    pub area: String,
    pub input: Value,
    pub expect: Value,
}

impl Row {
    pub fn verdict(&self) -> &str {
        self.expect["verdict"].as_str().expect("a verdict")
    }
}

/// The fault found by the check of a row.
pub type Found = Result<(), String>;

/// Areas without checks here, each with its reason.
const LATER: &[(&str, &str)] = &[("http", "there is no server yet"), ("sandbox", "there is no sandbox yet")];

/// Rows that cannot be checked yet, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[(
    "EX009",
    "signals to the agent are stopped by the sandbox; until then see `exec`: nothing is gained by them",
)];

/// Rows about MCP servers, and the tests in `src/mcp/tests.rs` and `mcp.rs` here that check them.
const MCP_CHECKS: &[(&str, &str)] = &[
    ("MC002", "a_burst_of_changes_is_one_change"),
    ("MC003", "tools_are_called_by_their_own_names_and_return_results"),
    ("MC005", "changed_tools_wait_and_can_be_trusted"),
    ("MC006", "a_server_call_asks_whatever_it_says_about_itself"),
    ("MC016", "sampling_is_refused_however_often_it_is_requested"),
];

#[test]
fn mcp_server_checks_exist() {
    let tests = concat!(include_str!("../mcp.rs"), include_str!("../../../crates/mcp/src/tests.rs"));
    for (id, name) in MCP_CHECKS {
        assert!(tests.contains(&format!("fn {name}(")), "{id}: {name}");
    }
}

pub fn rows() -> Vec<Row> {
    let files = [
        include_str!("../../fixtures/hostile/sample.jsonl"),
        include_str!("../../fixtures/hostile/own.jsonl"),
    ];
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        Row {
            id: row["id"].as_str().expect("an id").to_owned(),
            area: row["area"].as_str().expect("has an area").to_owned(),
            input: row["input"].clone(),
            expect: row["expect"].clone(),
        }
    };
    files.iter().flat_map(|file| file.lines()).map(row).collect()
}

pub fn of_area(area: &str) -> Vec<Row> {
    rows().into_iter().filter(|row| row.area == area).collect()
}

/// Whether there is a check for the row.
fn is_checked(row: &Row) -> bool {
    match row.area.as_str() {
        "shell" => true,
        "path" => rules::is_about_rules(row) || files::check_of(&row.id).is_some(),
        "terminal" => screen::is_data(row) || terminal::CHECKS.contains(&row.id.as_str()),
        "config" => config::is_data(row) || config::CHECKS.contains(&row.id.as_str()),
        "db" => db::check_of(&row.id).is_some(),
        "provider" => provider::check_of(&row.id).is_some(),
        "decision" => decision::check_of(&row.id).is_some(),
        "exec" => exec::check_of(&row.id).is_some(),
        "secret" => secret::CHECKS.contains(&row.id.as_str()),
        "headless" => headless::CHECKS.contains(&row.id.as_str()),
        "mcp" => MCP_CHECKS.iter().any(|(id, _)| *id == row.id),
        _ => false,
    }
}

#[test]
fn every_row_has_a_check() {
    let rows = rows();
    let mut ids = std::collections::HashSet::new();
    let mut without = Vec::new();
    for row in &rows {
        assert!(ids.insert(row.id.clone()), "{} is a duplicate", row.id);
        let excused =
            LATER.iter().any(|(area, _)| *area == row.area) || EXCEPTIONS.iter().any(|(id, _)| *id == row.id);
        if !excused && !is_checked(row) {
            without.push(format!("{} ({}): {}", row.id, row.area, row.input));
        }
    }
    assert!(without.is_empty(), "no check for:\n{}", without.join("\n"));
    for (id, why) in EXCEPTIONS {
        assert!(ids.contains(*id) && !why.is_empty(), "{id} is not a row");
    }
}

/// Runs one check for each row, several at a time, and reports all failures.
pub fn each(rows: Vec<Row>, check: impl Fn(&Row) -> Found + Sync) {
    let next = std::sync::Mutex::new(rows.iter());
    let wrong = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(row) = next.lock().expect("not poisoned").next() else { break };
                    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(row)));
                    let found = caught.unwrap_or_else(|panic| {
                        let text = panic.downcast_ref::<String>().cloned();
                        Err(text
                            .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
                            .unwrap_or_default())
                    });
                    if let Err(what) = found {
                        wrong.lock().expect("not poisoned").push(format!("{}: {what}", row.id));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("not poisoned");
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns `Err` with the text if the condition is false.
pub fn ensure(is: bool, text: impl FnOnce() -> String) -> Found {
    if is { Ok(()) } else { Err(text()) }
}
