//! The text of calls and faults.

use serde_json::json;

use super::*;
use crate::contract::audit::AuditKind;
use crate::contract::record::GrantScope;
use crate::contract::suspension::Actor;

fn row(n: u64, at: u64, kind: AuditKind, body: serde_json::Value) -> AuditRow {
    let is_alone = matches!(kind, AuditKind::Granted | AuditKind::Deleted);
    AuditRow {
        chain: String::new(),
        n,
        at,
        kind,
        thread_id: Some("t1".into()),
        run_id: Some("r1".into()),
        call_id: (!is_alone).then(|| "c1".into()),
        body,
        hash: "00".into(),
    }
}

fn known(all_rules: bool) -> Names {
    let rule = |pattern: &str, behavior: &str| TriedRule {
        pattern: pattern.into(),
        behavior: behavior.into(),
        origin: "rules.yaml:3".into(),
        matched: false,
    };
    let rules = vec![rule("Bash(rm *)", "ask"), rule("Bash(ls *)", "allow")];
    let grant = GrantRecord {
        id: "g1".into(),
        pattern: "Bash(rm x)".into(),
        scope: GrantScope::Thread("t1".into()),
        created_at: 0,
        expires_at: None,
        sandbox: None,
        max_uses: Some(3),
        uses: 0,
        revoked_at: None,
        suspension_id: Some("perm_c1".into()),
        actor: Actor::default(),
    };
    Names { rules: HashMap::from([("ab".to_owned(), rules)]), grants: vec![grant], all_rules }
}

fn story() -> Vec<AuditRow> {
    let ada = json!({"user": "ada", "channel": "tui", "pid": 1, "uid": 1000, "tty": "/dev/pts/3"});
    let command = json!({"command": "rm -rf build\u{1b}[2J"});
    let edited = json!({"command": "rm -rf build/tmp"});
    vec![
        row(
            1,
            0,
            AuditKind::Judged,
            json!({"tool": "Bash", "arguments": command, "cwd": "/work", "answered": false,
            "judgement": {"ruling": "ask", "why": "ask by rule `Bash(rm *)`", "mode": "ask", "risk": "destroys",
                          "tried": "ab", "matched": [0]}}),
        ),
        row(
            2,
            0,
            AuditKind::Asked,
            json!({"suspension": "perm_c1", "action": "tool:PermissionConfirm",
            "tool": "Bash", "arguments": command, "why": "a rule says so", "rule": "Bash(rm *)"}),
        ),
        row(
            3,
            4200,
            AuditKind::Decided,
            json!({"suspension": "perm_c1", "decision": "d1", "action": "resume",
            "reason": "only this\nfolder", "result": null, "arguments": edited, "actor": ada, "delay_ms": 4200}),
        ),
        row(
            5,
            4300,
            AuditKind::Began,
            json!({"attempt": 1, "tool": "Bash", "arguments": edited, "class": "opaque",
            "pid": 42, "suspension": "perm_c1", "decision": "d1"}),
        ),
        row(
            6,
            9300,
            AuditKind::Ended,
            json!({"attempt": 1, "kind": "returned", "outcome": "succeeded",
            "summary": "gone \u{202e}x"}),
        ),
    ]
}

#[test]
fn a_call_is_a_block_of_eighty_columns() {
    let text = block::of(&story(), &known(false));
    let lines: Vec<&str> = text.lines().collect();
    let body = |line: &str| line.get(18..).unwrap_or_default().to_owned();
    assert_eq!(body(lines[0]), "Bash  rm -rf build^[[2J", "{text}");
    assert_eq!(
        lines[1..],
        [
            "  of       thread t1, run r1, call c1, in /work",
            "  rules    ask: ask by rule `Bash(rm *)` (destroys, mode ask, 2 rules tried)",
            "             + ask Bash(rm *) (rules.yaml:3)",
            "  asked    perm_c1: a rule says so",
            "  answer   approved as edited by ada (uid 1000, /dev/pts/3, tui) after 4.2 s",
            "           \"only this⏎folder\"",
            "           to run instead {\"command\":\"rm -rf build/tmp\"}",
            "           and granted `Bash(rm x)` for the thread at most 3 times (grant g1)",
            "  started  attempt 1, process 42 (opaque)",
            "           with {\"command\":\"rm -rf build/tmp\"}",
            "  ended    succeeded after 5.0 s: gone <U+202E>x",
            "",
        ],
        "{text}"
    );
    let all = block::of(&story(), &known(true));
    assert!(all.contains("             - allow Bash(ls *) (rules.yaml:3)\n"), "{all}");

    let mut long = story();
    long[2].body["reason"] = json!("word ".repeat(60) + &"x".repeat(200) + "漢".repeat(90).as_str());
    let text = block::of(&long, &known(false));
    let widest = text.lines().map(unicode_width::UnicodeWidthStr::width).max();
    assert!(widest <= Some(80), "{widest:?}: {text}");
    assert!(
        text.matches('x').count() >= 200 && text.matches('漢').count() == 90,
        "nothing is truncated: {text}"
    );
}

#[test]
fn a_call_is_an_object_for_programs() {
    let value = object::of(&story(), &known(false));
    assert_eq!(value["tool"], "Bash");
    assert_eq!(value["judged"][0]["ruling"], "ask");
    assert_eq!(value["judged"][0]["tried"][0]["matched"], true);
    assert_eq!(value["judged"][0]["tried"][1]["matched"], false);
    assert_eq!(value["decided"][0]["actor"]["tty"], "/dev/pts/3");
    assert_eq!(value["decided"][0]["delay_ms"], 4200);
    assert_eq!(value["granted"][0]["id"], "g1");
    assert_eq!(value["began"][0]["arguments"]["command"], "rm -rf build/tmp");
    assert_eq!(value["ended"][0]["outcome"], "succeeded");
    assert_eq!(value["rows"].as_array().map(Vec::len), Some(5));
    let written = line(&value);
    assert!(written.ends_with('\n') && written.lines().count() == 1);
    assert!(!written.contains(['\u{1b}', '\u{202e}']), "{written}");
}

#[test]
fn broken_rows_are_still_shown() {
    for kind in AuditKind::ALL {
        for body in [json!(null), json!("text"), json!([1]), json!({"judgement": 5, "actor": "x"})] {
            let rows = [row(1, 5, kind, body)];
            assert!(!block::of(&rows, &known(true)).is_empty(), "{kind:?}");
            assert!(object::of(&rows, &known(true)).is_object(), "{kind:?}");
        }
    }
}

#[test]
fn a_fault_names_its_rows_and_their_time() {
    let mut fault = AuditFault {
        kind: AuditFaultKind::Missing,
        chain: String::new(),
        n: Some(3),
        last: Some(9),
        at: None,
        what: "7 rows are missing\u{1b}".into(),
    };
    assert_eq!(fault_text(&fault), "rows 3 to 9: 7 rows are missing^[");
    fault = AuditFault { kind: AuditFaultKind::Tables, n: None, last: None, ..fault };
    assert!(fault_text(&fault).starts_with("audit: "), "{}", fault_text(&fault));
    fault = AuditFault { chain: "t\u{1b}1".into(), n: Some(4), ..fault };
    assert!(fault_text(&fault).starts_with("row 4 of chain t^[1: "), "{}", fault_text(&fault));
    fault = AuditFault { kind: AuditFaultKind::Seal, chain: String::new(), n: None, ..fault };
    assert!(fault_text(&fault).starts_with("seals: "), "{}", fault_text(&fault));
}

#[test]
fn a_report_names_chains_and_seals_where_there_are_several() {
    let one = AuditReport { rows: 7, chains: 1, rules: 1, ..AuditReport::default() };
    assert_eq!(shown(&one), "intact: 7 rows; 1 list of rules; the tables match\n");
    let several = AuditReport { chains: 3, seals: 1, ..one };
    assert_eq!(shown(&several), "intact: 7 rows in 3 chains; 1 seal; 1 list of rules; the tables match\n");
    let broken = AuditReport { unlisted: 2, ..several };
    assert_eq!(shown(&broken), "broken: 2 faults, 2 of them not listed; 7 rows in 3 chains; 1 seal\n");
}
