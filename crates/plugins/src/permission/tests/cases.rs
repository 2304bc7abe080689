//! Cases from public reports about other agents, and whole rule lists of public repositories.

use crate::permission::*;
use serde_json::{Value, json};
use std::path::Path;

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The verdict that a front end would show, by the protocol of `aye permissions check`.
fn check(line: &Value, base: &RuleSet, mode: Mode) -> (String, String) {
    let place = Path::new("/nowhere/at/all");
    let ctx = CheckContext {
        cwd: place,
        workspace: place,
        home: Some(Path::new("/nowhere/home")),
        domains: &[],
        enforced: EnforcedProfiles::default(),
        mode,
        git: None,
    };
    let answer = futures::executor::block_on(check_line(&line.to_string(), base, ctx));
    let answer: Value = serde_json::from_str(&answer).unwrap();
    (answer["verdict"].as_str().unwrap().to_owned(), answer["why"].as_str().unwrap().to_owned())
}

#[test]
fn every_reported_case_is_judged_as_it_should_be() {
    let shipped = shipped_rules();
    let mut wrong = Vec::new();
    for row in rows(include_str!("../../../../../tests/fixtures/cases/permissions.jsonl")) {
        let input = &row["input"];
        let text = |key: &str| input[key].as_str();
        let (tool, args) = if let Some(command) = text("cmd") {
            ("Bash", json!({ "command": command }))
        } else if let Some(path) = text("edit") {
            ("Edit", json!({ "file_path": path, "old_string": "a", "new_string": "b" }))
        } else if let Some(path) = text("read") {
            ("Read", json!({ "file_path": path }))
        } else {
            (text("call").unwrap(), json!({}))
        };
        let mut line = json!({ "tool": tool, "args": args });
        if input["rules"].is_object() {
            line["rules"] = input["rules"].clone();
            if !input["default"].is_null() {
                line["rules"]["default"] = input["default"].clone();
            }
        }
        let mode = if text("mode") == Some("plan") { Mode::Plan } else { Mode::Ask };
        let (verdict, why) = check(&line, &shipped, mode);
        let want = row["expected"].as_str().unwrap();
        let want = want.split([',', ' ']).next().unwrap();
        if verdict != want {
            wrong.push(format!("{}: {line} -> {verdict}: {why}", row["id"]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn whole_public_rule_lists_do_what_their_readers_expect() {
    let mut wrong = Vec::new();
    for list in rows(include_str!("../../../../../tests/fixtures/cases/rule_lists.jsonl")) {
        let texts = |key: &str| list[key].as_array().unwrap().iter().map(|text| text.as_str().unwrap());
        let mut set =
            RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Allow, texts("allow")).unwrap();
        set.join(RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Deny, texts("deny")).unwrap());
        let dead: Vec<&str> = texts("dead").collect();
        for report in set.reports(|_| false) {
            let is_dead = dead.contains(&report.rule.replace(" *)", "*)").as_str())
                || dead.contains(&report.rule.as_str());
            if (report.can_match == Some(false)) != is_dead || is_dead && report.why.is_none() {
                wrong.push(format!("{}: {report:?}", list["id"]));
            }
        }
        for call in list["calls"].as_array().unwrap() {
            let line = json!({ "tool": "Bash", "args": { "command": call[0] } });
            let (verdict, why) = check(&line, &set, Mode::Ask);
            if verdict != call[1].as_str().unwrap() {
                wrong.push(format!("{}: {} -> {verdict}: {why}", list["id"], call[0]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
