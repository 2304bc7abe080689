//! The audit: every change is recorded, the chain detects tampering, and the tables match it.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;
use crate::AuditFilter;
use aye_core::contract::audit::{
    AuditFault, AuditFaultKind, AuditKind, AuditReport, AuditRow, PastAnswer, PastCall, PastRow,
};
use aye_core::contract::hook::HookRan;
use aye_core::contract::ids::CallId;
use aye_core::contract::judgement::{JudgedCall, Judgement, Risk, Ruling, SandboxOpening, TriedRule};
use aye_core::contract::mode::Mode;
use aye_core::state::Phase;

fn judged(call: &str, command: &str, ruling: Ruling, at: u64) -> JudgedCall {
    let rule = |pattern: &str, behavior: &str, matched| TriedRule {
        pattern: pattern.into(),
        behavior: behavior.into(),
        origin: "rules.yaml:3".into(),
        matched,
    };
    JudgedCall {
        call_id: call.into(),
        tool: "Bash".into(),
        arguments: json!({"command": command}),
        cwd: "/work".into(),
        answered: false,
        judgement: Judgement {
            guards_git: false,
            profile: None,
            ruling,
            rule: Some("Bash(date)".into()),
            origin: Some("rules.yaml:3".into()),
            why: "because".into(),
            grant: None,
            other_grants: Vec::new(),
            opened: SandboxOpening::default(),
            paths: Vec::new(),
            mode: Mode::Ask,
            risk: Risk::Runs,
            tried: vec![rule("Bash(date)", "ask", true), rule("Bash(rm *)", "deny", false)],
        },
        at,
    }
}

fn grant(id: &str, expires_at: Option<u64>, max_uses: Option<u64>) -> GrantRecord {
    GrantRecord {
        id: id.into(),
        pattern: "Bash(git status)".into(),
        scope: GrantScope::Thread("t1".into()),
        created_at: 1,
        expires_at,
        sandbox: None,
        max_uses,
        uses: 0,
        revoked_at: None,
        suspension_id: None,
        actor: Actor { user: "ada".into(), channel: "tui".into(), pid: 1, ..Actor::default() },
    }
}

/// A scenario with every kind of event, in 24 rows.
async fn story(store: &Store) {
    let (fence, run) = waiting(store, None).await;
    let mut stage = checkpoint(&fence, &run);
    stage.judged = vec![
        judged("c2", "ls", Ruling::Ask, 21),
        judged("c3", "cat", Ruling::Ask, 22),
        judged("c4", "w", Ruling::Ask, 23),
    ];
    stage.opened = vec![
        question("q2", &run, "c2", Some(100)),
        question("q3", &run, "c3", None),
        question("q4", &run, "c4", None),
    ];
    store.checkpoint(stage).await.unwrap();
    store.decide(&"q1".into(), yes("d1"), 25).await.unwrap();
    store.begin(begin(&fence, &run, "c1", 1, Some(("q1", "d1")))).await.unwrap();
    let unknown = outcome(attempt("r1", "c1", 1), OutcomeKind::Unknown);
    store.checkpoint(Checkpoint { outcomes: vec![unknown], ..checkpoint(&fence, &run) }).await.unwrap();
    let known = outcome(attempt("r1", "c1", 1), OutcomeKind::Returned);
    store.checkpoint(Checkpoint { outcomes: vec![known], ..checkpoint(&fence, &run) }).await.unwrap();
    store.decide(&"q3".into(), no("d3"), 30).await.unwrap();
    let closed = vec![("q3".into(), SuspensionStatus::Applied)];
    store.checkpoint(Checkpoint { closed, ..checkpoint(&fence, &run) }).await.unwrap();
    assert_eq!(store.expire_due(100).await.unwrap().len(), 1);
    for (id, until, uses) in [("g1", None, Some(1)), ("g2", Some(200), None)] {
        store.add_grant(grant(id, until, uses)).await.unwrap();
    }
    assert_eq!(store.spend_grants(vec!["g1".into()], 110).await.unwrap(), None);
    assert_eq!(store.spend_grants(vec!["g1".into()], 111).await.unwrap(), Some("g1".into()));
    assert_eq!(store.grants(300).await.unwrap().len(), 0);
    assert!(store.revoke_grant("g1", 301).await.unwrap());
    let done = super::run("r1", "t1", RunStatus::Done);
    let commands = vec![HookRan {
        name: "tidy".into(),
        origin: "hooks.toml:1".into(),
        phase: Phase::RunEnd,
        call_id: None,
        exit: Some(0),
        duration_ms: 7,
        answer: "nothing".into(),
        at: 302,
    }];
    store.checkpoint(Checkpoint { commands, ..checkpoint(&fence, &done) }).await.unwrap();
    let entry = ("agents".to_owned(), "helper".to_owned());
    store
        .publish_entry(
            entry,
            Some(json!({})),
            aye_core::contract::config_entry::EntryExpectation::Absent,
            by(),
        )
        .await
        .unwrap()
        .unwrap();
    store.create_thread(thread("t2")).await.unwrap();
    let fence = store.acquire(&"t2".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let other = super::run("r2", "t2", RunStatus::Waiting);
    let opened = vec![question("q9", &other, "c1", None)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &other) }).await.unwrap();
    assert!(store.delete_thread(&"t2".into(), &owner("me"), |_| Liveness::Yes, by()).await.unwrap());
}

const ROWS: i64 = 24;

async fn verify(store: &Store) -> AuditReport {
    store.verify_audit().await.unwrap()
}

/// The faults of the chain, without their consequences elsewhere.
fn of_chain(report: &AuditReport) -> Vec<&AuditFault> {
    let elsewhere = |kind| matches!(kind, AuditFaultKind::Tables | AuditFaultKind::Rules);
    report.faults.iter().filter(|fault| !elsewhere(fault.kind)).collect()
}

async fn sql(store: &Store, statement: &'static str) {
    on_connection(store, move |conn| conn.execute_batch(statement).unwrap()).await;
}

#[tokio::test]
async fn every_change_is_recorded_and_matches_the_tables() {
    let store = Store::in_memory().unwrap();
    assert_eq!(verify(&store).await, AuditReport::default());
    story(&store).await;
    let rows = store.audit(AuditFilter::default()).await.unwrap();
    let kinds: Vec<_> = rows.iter().map(|row| row.kind.as_str()).collect();
    assert_eq!(
        kinds.join(" "),
        "asked judged judged judged asked asked asked decided began ended ended decided applied expired granted \
         granted spent lapsed revoked hook superseded configured asked deleted"
    );
    assert_eq!(rows.len() as i64, ROWS);
    for kind in AuditKind::ALL {
        assert!(rows.iter().any(|row| row.kind == kind), "{kind:?} is in no row");
    }
    let report = verify(&store).await;
    assert_eq!(report.faults, []);
    assert_eq!((report.rows, report.rules, report.unlisted), (ROWS as u64, 1, 0));
    assert!(report.is_whole());
    let deleted = rows.last().unwrap();
    assert_eq!(
        (deleted.body["questions"].as_i64(), deleted.body["actor"]["user"].as_str()),
        (Some(1), Some("ada"))
    );
}

/// One way to tamper with the file.
#[derive(Clone, Debug)]
enum Harm {
    Change(i64, usize),
    Hash(i64),
    Number(i64, i64),
    Delete(i64),
    DeleteAndNumber(i64),
    Swap(i64, i64),
    Append(Option<i64>),
    Insert(i64, Option<i64>),
    Before(i64),
    DropHead,
    Head(i64),
    HeadHash,
    Truncate(i64),
}

fn harm() -> impl Strategy<Value = Harm> {
    let row = || 1..=ROWS;
    prop_oneof![
        4 => (row(), 0..6usize).prop_map(|(n, column)| Harm::Change(n, column)),
        2 => row().prop_map(Harm::Hash),
        2 => (row(), prop::sample::select(vec![0, -7, ROWS + 1, ROWS + 2, ROWS + 1000]))
            .prop_map(|(n, to)| Harm::Number(n, to)),
        2 => row().prop_map(Harm::Delete),
        2 => row().prop_map(Harm::DeleteAndNumber),
        4 => (row(), row()).prop_map(|(a, b)| Harm::Swap(a, b)),
        2 => prop::option::of(row()).prop_map(Harm::Append),
        3 => (row(), prop::option::of(row())).prop_map(|(n, of)| Harm::Insert(n, of)),
        1 => prop::sample::select(vec![0, -1, -50]).prop_map(Harm::Before),
        1 => Just(Harm::DropHead),
        1 => prop::sample::select(vec![1, 5, ROWS - 1, ROWS + 1, ROWS + 9, -4, i64::MAX]).prop_map(Harm::Head),
        1 => Just(Harm::HeadHash),
        1 => row().prop_map(Harm::Truncate),
    ]
}

const ALL: &str = "at, kind, thread_id, run_id, call_id, body, hash";

/// Tampers with the file; returns the expected fault: a kind and a number.
fn inflict(conn: &Connection, harm: &Harm) -> Option<(AuditFaultKind, Option<i64>)> {
    use AuditFaultKind::{Added, Changed, Doubled, Hash, Head, Missing, Moved};
    let run = |sql: &str, parameters: &[i64]| {
        conn.execute(sql, rusqlite::params_from_iter(parameters)).unwrap();
    };
    let forged = |n: i64| {
        run(
            "INSERT INTO audit VALUES (?1, 5, 'decided', 't1', 'r1', 'c1', '{\"suspension\":\"x\"}', 'ab')",
            &[n],
        );
    };
    let copy = |n: i64, of: i64| {
        run(&format!("INSERT INTO audit (n, {ALL}) SELECT ?1, {ALL} FROM audit WHERE n = ?2"), &[n, of]);
    };
    let renumber = |from: i64, by: i64| {
        run("UPDATE audit SET n = -(n + ?2) WHERE n >= ?1", &[from, by]);
        run("UPDATE audit SET n = -n WHERE n < 0", &[]);
    };
    Some(match *harm {
        Harm::Change(n, column) => {
            let change = [
                "at = at + 1",
                "kind = CASE kind WHEN 'asked' THEN 'expired' ELSE 'asked' END",
                "thread_id = coalesce(thread_id, '') || 'x'",
                "run_id = coalesce(run_id, '') || 'x'",
                "call_id = CASE WHEN call_id IS NULL THEN '' END",
                "body = replace(body, '{', '{ ')",
            ][column];
            run(&format!("UPDATE audit SET {change} WHERE n = ?1"), &[n]);
            (Changed, Some(n))
        }
        Harm::Hash(n) => {
            run("UPDATE audit SET hash = 'f' || substr(hash, 2) || '0' WHERE n = ?1", &[n]);
            (Hash, Some(n))
        }
        Harm::Number(n, to) => {
            run("UPDATE audit SET n = ?2 WHERE n = ?1", &[n, to]);
            (Moved, Some(to))
        }
        Harm::Delete(n) => {
            run("DELETE FROM audit WHERE n = ?1", &[n]);
            (Missing, Some(n))
        }
        Harm::DeleteAndNumber(n) => {
            run("DELETE FROM audit WHERE n = ?1", &[n]);
            renumber(n + 1, -1);
            (Missing, Some(n))
        }
        Harm::Swap(a, b) if a == b => return None,
        Harm::Swap(a, b) => {
            run("UPDATE audit SET n = -1 WHERE n = ?1", &[a]);
            run("UPDATE audit SET n = ?1 WHERE n = ?2", &[a, b]);
            run("UPDATE audit SET n = ?1 WHERE n = -1", &[b]);
            (Moved, Some(a.max(b)))
        }
        Harm::Append(Some(of)) => {
            copy(ROWS + 1, of);
            (Doubled, Some(ROWS + 1))
        }
        Harm::Append(None) => {
            forged(ROWS + 1);
            (Added, Some(ROWS + 1))
        }
        Harm::Insert(n, of) => {
            renumber(n, 1);
            match of {
                Some(of) => copy(n, if of < n { of } else { of + 1 }),
                None => forged(n),
            }
            // Of two equal adjacent rows the second one is reported as the copy.
            let is_pair = of == Some(n);
            (if of.is_some() { Doubled } else { Added }, Some(if is_pair { n + 1 } else { n }))
        }
        Harm::Before(n) => {
            forged(n);
            (Added, Some(n))
        }
        Harm::DropHead => {
            run("DELETE FROM audit_head", &[]);
            (Head, None)
        }
        Harm::Head(n) => {
            run("UPDATE audit_head SET n = ?1", &[n]);
            if n > ROWS { (Missing, Some(ROWS + 1)) } else { (Head, Some(n + 1)) }
        }
        Harm::HeadHash => {
            run("UPDATE audit_head SET hash = 'x'", &[]);
            (Head, Some(ROWS))
        }
        Harm::Truncate(n) => {
            run("DELETE FROM audit WHERE n >= ?1", &[n]);
            (Missing, Some(n))
        }
    })
}

fn now<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any tampering is found and named, and little else is blamed.
    #[test]
    fn any_tampering_with_rows_is_detected_and_named(harm in harm()) {
        now(async {
            let store = Store::in_memory().unwrap();
            story(&store).await;
            let done = harm.clone();
            let Some((kind, n)) = on_connection(&store, move |conn| inflict(conn, &done)).await else { return };
            let report = verify(&store).await;
            assert!(!report.is_whole(), "{harm:?}");
            let found = of_chain(&report);
            assert!(found.iter().any(|f| f.kind == kind && f.n == n), "{harm:?}: {report:#?}");
            assert!(found.len() <= 2, "{harm:?}: {report:#?}");
        });
    }

    /// Two changes at once never hide all faults or each other.
    #[test]
    fn two_faults_at_once_are_found(first in harm(), second in harm()) {
        now(async {
            let store = Store::in_memory().unwrap();
            story(&store).await;
            let harms = [first, second];
            let done = harms.clone();
            let before = digest(&store).await;
            on_connection(&store, move |conn| {
                for harm in &done {
                    // The second change may be impossible: its number may be taken.
                    let inflicted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| inflict(conn, harm)));
                    if inflicted.is_err() {
                        return;
                    }
                }
            })
            .await;
            if digest(&store).await != before {
                let report = verify(&store).await;
                assert!(!report.is_whole(), "{harms:?}");
            }
        });
    }
}

/// All content of the audit tables.
async fn digest(store: &Store) -> String {
    on_connection(store, |conn| {
        let sql = "SELECT group_concat(n || quote(at) || quote(kind) || quote(thread_id) || quote(run_id) || \
                   quote(call_id) || quote(body) || quote(hash), x'0a') FROM (SELECT * FROM audit ORDER BY n)";
        let rows: String = conn.query_row(sql, (), |row| row.get(0)).unwrap_or_default();
        let head: String = conn
            .query_row("SELECT group_concat(n || hash) FROM audit_head", (), |row| row.get(0))
            .unwrap_or_default();
        rows + &head
    })
    .await
}

#[tokio::test]
async fn tables_that_contradict_the_audit_are_detected() {
    for (harm, wanted) in [
        (
            "UPDATE suspension SET status = 'open' WHERE id = 'q1'",
            "question q1 is open in its table, but applied",
        ),
        (
            "UPDATE suspension SET decided_by = replace(decided_by, 'ada', 'bob') WHERE id = 'q1'",
            "the answer to question q1",
        ),
        (
            "UPDATE suspension SET decision = replace(decision, 'cancel', 'resume') WHERE id = 'q3'",
            "the answer to question q3",
        ),
        (
            "UPDATE suspension SET ticket = replace(ticket, 'date', 'rm x') WHERE id = 'q4'",
            "question q4 belongs to another",
        ),
        ("DELETE FROM suspension WHERE id = 'q2'", "question q2 is missing from its table"),
        (
            "INSERT INTO suspension (id, thread_id, run_id, call_id, status, created_at, ticket) \
             VALUES ('q7', 't1', 'r1', 'c7', 'open', 1, '{}')",
            "question q7 is in its table, but no row records",
        ),
        ("UPDATE intent SET body = replace(body, 'date', 'rm x')", "attempt 1 of call c1 belongs to another"),
        (
            "UPDATE intent SET outcome = replace(outcome, 'returned', 'cancelled')",
            "the outcome of attempt 1 of call c1",
        ),
        ("UPDATE intent SET outcome = NULL, kind = NULL", "the outcome of attempt 1 of call c1"),
        ("DELETE FROM intent", "attempt 1 of call c1 is missing from its table"),
        (
            "INSERT INTO intent SELECT n + 1, run_id, call_id, 2, thread_id, body, NULL, NULL FROM intent",
            "no row records",
        ),
        ("UPDATE grant_row SET body = replace(body, 'status', 'push *') WHERE id = 'g1'", "grant g1 differs"),
        ("UPDATE grant_row SET expires_at = 9000 WHERE id = 'g2'", "grant g2 differs"),
        ("UPDATE grant_row SET over = 0 WHERE id = 'g2'", "grant g2 is expired in only one"),
        ("UPDATE grant_row SET revoked_at = NULL WHERE id = 'g1'", "grant g1 is revoked in only one"),
        (
            "UPDATE grant_row SET uses = 0 WHERE id = 'g1'",
            "grant g1 was used 0 times according to its table, 1",
        ),
        ("DELETE FROM grant_row WHERE id = 'g1'", "grant g1 is missing from its table"),
        ("DELETE FROM thread WHERE id = 't1'", "thread t1 is missing from its table"),
        ("UPDATE audit_rules SET body = replace(body, 'rm', 'ls')", "its list of rules was changed"),
        ("DELETE FROM audit_rules", "is missing"),
        ("INSERT INTO audit_rules VALUES ('00', '[]')", "no row refers to it"),
    ] {
        let store = Store::in_memory().unwrap();
        story(&store).await;
        sql(&store, harm).await;
        let report = verify(&store).await;
        assert_eq!(of_chain(&report), Vec::<&AuditFault>::new(), "{harm}");
        let [fault] = report.faults.as_slice() else { panic!("{harm}: {report:#?}") };
        assert!(fault.what.contains(wanted), "{harm}: {}", fault.what);
    }
}

#[tokio::test]
async fn work_continues_after_a_damaged_end_and_the_damage_stays_visible() {
    for harm in [
        "DELETE FROM audit_head",
        "UPDATE audit_head SET n = 40, hash = 'x'",
        "DELETE FROM audit WHERE n > 20",
        "DELETE FROM audit WHERE n > 20; DELETE FROM audit_head",
        "INSERT INTO audit SELECT 90, at, kind, thread_id, run_id, call_id, body, hash FROM audit WHERE n = 2",
    ] {
        let store = Store::in_memory().unwrap();
        story(&store).await;
        sql(&store, harm).await;
        store.add_grant(grant("g7", None, None)).await.unwrap();
        store.add_grant(grant("g8", None, None)).await.unwrap();
        let report = verify(&store).await;
        assert!(!of_chain(&report).is_empty(), "{harm}");
    }
    let store = Store::in_memory().unwrap();
    story(&store).await;
    let last = "INSERT INTO audit VALUES (9223372036854775807, 1, 'x', NULL, NULL, NULL, '', '')";
    sql(&store, last).await;
    let refused = store.add_grant(grant("g7", None, None)).await.unwrap_err();
    assert!(refused.to_string().contains("aye audit --verify"), "{refused}");
    let report = verify(&store).await;
    assert_eq!(report.faults[0].n, Some(i64::MAX), "{report:#?}");
}

/// Rows from before the audit are not reported as missing; later changes to them are recorded.
#[tokio::test]
async fn rows_of_an_older_version_are_exempt() {
    let home = Home::new();
    std::fs::create_dir_all(home.path().parent().unwrap()).unwrap();
    let old = home.raw();
    old.execute_batch(include_str!("../migrations/0001_first.sql")).unwrap();
    let record = super::run("r1", "t1", RunStatus::Waiting);
    let ticket = |id: &str| serde_json::to_string(&question(id, &record, "c1", None).ticket).unwrap();
    let answered = yes("d0");
    old.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; \
         INSERT INTO thread VALUES (1, 't1', 't', x'2f', 1, 1, 0); \
         INSERT INTO run VALUES (1, 'r1', 't1', 'waiting', '{run}'); \
         INSERT INTO suspension VALUES (1, 'q1', 't1', 'r1', 'c1', 'open', 20, NULL, '{q1}', NULL, NULL, NULL); \
         INSERT INTO suspension VALUES (2, 'q2', 't1', 'r1', 'c1', 'applied', 20, NULL, '{q2}', 'd0', '{d}', '{by}'); \
         INSERT INTO intent VALUES (1, 'r1', 'c0', 1, 't1', '{intent}', NULL, NULL); \
         INSERT INTO grant_row VALUES (1, 'g1', 200, NULL, 0, '{grant}'); \
         PRAGMA application_id = {mark}; PRAGMA user_version = 1;",
        run = serde_json::to_string(&record).unwrap(),
        q1 = ticket("q1"),
        q2 = ticket("q2"),
        d = serde_json::to_string(&answered.resume).unwrap(),
        by = serde_json::to_string(&answered.actor).unwrap(),
        intent = serde_json::to_string(
            &begin(&Fence { thread_id: "t1".into(), epoch: 1, token: String::new() }, &record, "c0", 1, None).intent
        )
        .unwrap(),
        grant = serde_json::to_string(&grant("g1", Some(200), None)).unwrap(),
        mark = 0x6179_6531,
    ))
    .unwrap();
    drop(old);
    let store = home.open();
    assert_eq!(verify(&store).await.faults, []);
    store.decide(&"q1".into(), yes("d1"), 30).await.unwrap();
    let fence = store.acquire(&"t1".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let outcomes = vec![outcome(attempt("r1", "c0", 1), OutcomeKind::Unknown)];
    let opened = vec![question("q3", &record, "c3", None)];
    store.checkpoint(Checkpoint { opened, outcomes, ..checkpoint(&fence, &record) }).await.unwrap();
    assert_eq!(store.spend_grants(vec!["g1".into()], 100).await.unwrap(), None);
    assert_eq!(store.grants(300).await.unwrap().len(), 0);
    assert_eq!(verify(&store).await.faults, []);
    sql(&store, "UPDATE suspension SET status = 'open' WHERE id IN ('q1', 'q2')").await;
    let report = verify(&store).await;
    assert_eq!(report.faults.len(), 1, "{report:#?}");
    assert!(report.faults[0].what.contains("question q1 is open"), "{report:#?}");
}

async fn calls(store: &Store, filter: AuditFilter) -> Vec<Vec<AuditRow>> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&found);
    store
        .audit_calls(filter, move |rows| {
            sink.lock().unwrap().push(rows);
            true
        })
        .await
        .unwrap();
    std::mem::take(&mut *found.lock().unwrap())
}

#[tokio::test]
async fn the_rows_of_a_call_are_grouped() {
    let store = Store::in_memory().unwrap();
    story(&store).await;
    let told = |blocks: Vec<Vec<AuditRow>>| -> Vec<String> {
        let line = |rows: &Vec<AuditRow>| {
            let call = rows[0].call_id.as_ref().map_or("-", CallId::as_str);
            let kinds: Vec<_> = rows.iter().map(|row| row.kind.as_str()).collect();
            format!("{call}: {}", kinds.join(" "))
        };
        blocks.iter().map(line).collect()
    };
    let all = told(calls(&store, AuditFilter::default()).await);
    assert_eq!(
        all,
        [
            "c1: asked decided began ended ended",
            "c2: judged asked expired",
            "c3: judged asked decided applied",
            "c4: judged asked superseded",
            "-: granted",
            "-: granted",
            "-: spent",
            "-: lapsed",
            "-: revoked",
            "-: hook",
            "-: configured",
            "c1: asked",
            "-: deleted",
        ]
    );
    let since = AuditFilter { since: Some(90), ..AuditFilter::default() };
    assert_eq!(
        told(calls(&store, since).await),
        ["c2: judged asked expired", "-: spent", "-: lapsed", "-: revoked", "-: hook"],
        "a call arrives complete, without its earlier deltas"
    );
    let thread = AuditFilter { thread: Some("t2".into()), ..AuditFilter::default() };
    assert_eq!(told(calls(&store, thread).await), ["c1: asked", "-: deleted"]);
    let ids = async |prefix: &str| store.audit_threads(prefix).await.unwrap().len();
    assert_eq!(
        (ids("t").await, ids("t2").await, ids("x").await),
        (2, 1, 0),
        "a deleted thread is still known"
    );
}

async fn past(store: &Store, since: Option<u64>) -> (Vec<PastCall>, Vec<(usize, PastAnswer)>) {
    let found = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let sink = Arc::clone(&found);
    store
        .past_calls(since, move |row| {
            let mut found = sink.lock().unwrap();
            match row {
                PastRow::Call(call) => found.0.push(*call),
                PastRow::Answer(call, answer) => found.1.push((call, answer)),
            }
            true
        })
        .await
        .unwrap();
    std::mem::take(&mut *found.lock().unwrap())
}

#[tokio::test]
async fn the_history_lists_calls_and_user_answers() {
    let store = Store::in_memory().unwrap();
    story(&store).await;
    let (calls, answers) = past(&store, None).await;
    let names: Vec<_> = calls.iter().map(|call| (call.call_id.as_str(), call.arguments.as_str())).collect();
    assert_eq!(
        names,
        [("c2", r#"{"command":"ls"}"#), ("c3", r#"{"command":"cat"}"#), ("c4", r#"{"command":"w"}"#)]
    );
    assert_eq!(answers, [(1, PastAnswer::Declined), (0, PastAnswer::Expired)]);
    assert_eq!(past(&store, Some(23)).await.0.len(), 1);

    // A second gate of the same call is not another call; an edited approval is distinguished; a policy is
    // not a user.
    let fence = store.acquire(&"t1".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let other = super::run("r5", "t1", RunStatus::Waiting);
    let mut stage = checkpoint(&fence, &other);
    stage.judged = vec![judged("c2", "again", Ruling::Allow, 400), judged("c8", "x", Ruling::Ask, 401)];
    stage.judged.push(JudgedCall { answered: true, ..judged("c2", "again", Ruling::Allow, 402) });
    stage.judged.push(judged("c8", "x", Ruling::Ask, 403));
    stage.opened = vec![question("q11", &other, "c2", None), question("q12", &other, "c8", None)];
    store.checkpoint(stage).await.unwrap();
    let mut edited = yes("d11");
    edited.resume.arguments = Some(json!({"command": "less"}));
    store.decide(&"q11".into(), edited, 405).await.unwrap();
    let mut policy = no("d12");
    policy.actor.channel = "policy".into();
    store.decide(&"q12".into(), policy, 405).await.unwrap();
    let (calls, answers) = past(&store, None).await;
    assert_eq!(
        (calls.len(), answers.last()),
        (5, Some(&(3, PastAnswer::Modified))),
        "the same id in another run"
    );
    assert_eq!(answers.len(), 3);
    assert_eq!(past(&store, Some(403)).await.0, [], "its first gate was earlier");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every change of a grant is recorded. Questions and executions: see `model.rs`.
    #[test]
    fn the_audit_agrees_after_any_grant_requests(
        requests in prop::collection::vec((0..4u8, 0..4u8, 0..4u8, 0..100u64, 0..4u64), 1..40)
    ) {
        now(async {
            let store = Store::in_memory().unwrap();
            let id = |n: u8| format!("g{n}");
            for (what, first, second, at, many) in requests {
                match what {
                    0 => {
                        let uses = (many > 0).then_some(many);
                        let _ = store.add_grant(grant(&id(first), (at > 30).then_some(at), uses)).await;
                    }
                    1 => drop(store.spend_grants(vec![id(first), id(second)], at).await.unwrap()),
                    2 => drop(store.grants(at).await.unwrap()),
                    _ => drop(store.revoke_grant(&id(first), at).await.unwrap()),
                }
                assert_eq!(verify(&store).await.faults, []);
            }
        });
    }
}

#[tokio::test]
async fn what_is_closed_is_not_kept_to_compare_it_with_the_tables() {
    let store = Store::in_memory().unwrap();
    story(&store).await;
    let after = async |change: &'static str| {
        on_connection(&store, move |conn| {
            let tx = conn.unchecked_transaction().unwrap();
            tx.execute_batch(change).unwrap();
            crate::audit::is_quick(&tx).unwrap()
        })
        .await
    };
    assert_eq!(after("").await, (true, 0), "everything is closed");
    for change in [
        "UPDATE suspension SET status = 'expired' WHERE id = 'q1'",
        "UPDATE suspension SET ticket = replace(ticket, 'date', 'rm x') WHERE id = 'q1'",
        "UPDATE suspension SET decided_by = replace(decided_by, 'ada', 'eve') WHERE id = 'q1'",
        "UPDATE suspension SET decision = NULL, status = 'expired' WHERE id = 'q3'",
        "UPDATE suspension SET id = 'q8' WHERE id = 'q4'",
        "UPDATE suspension SET ticket = '{' WHERE id = 'q4'",
        "DELETE FROM suspension WHERE id = 'q2'",
        "UPDATE intent SET body = replace(body, 'date', 'rm x')",
        "UPDATE intent SET outcome = replace(outcome, 'succeeded', 'failed')",
        "UPDATE intent SET outcome = NULL, kind = NULL",
        "DELETE FROM intent",
        "DELETE FROM audit WHERE kind = 'applied'",
        "DELETE FROM audit WHERE kind = 'deleted'",
    ] {
        assert!(!after(change).await.0, "{change}");
    }
    // A question that is open, and a call that runs, are kept until they are closed.
    let fence = store.acquire(&"t1".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let next = super::run("r5", "t1", RunStatus::Running);
    let opened = vec![question("q5", &next, "c5", None)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &next) }).await.unwrap();
    store.begin(begin(&fence, &next, "c6", 1, None)).await.unwrap();
    assert_eq!(after("").await, (true, 2));
}

/// The cost of a row within its transaction, and of verifying many.
#[tokio::test]
#[ignore = "it measures"]
async fn measure() {
    let home = Home::new();
    let store = home.open();
    story(&store).await;
    let told = json!({"attempt": 1, "tool": "Bash", "arguments": {"command": "cargo test -p x"}, "hash": "ab".repeat(32)});
    let times = on_connection(&store, move |conn| {
        let mut times = [std::time::Duration::ZERO; 3];
        for round in 0..600 {
            let rows = round % 3;
            let start = std::time::Instant::now();
            let tx = conn.unchecked_transaction().unwrap();
            tx.execute("UPDATE thread SET updated_at = updated_at + 1", ()).unwrap();
            for _ in 0..rows {
                let about = crate::audit::AuditSubject { thread: Some(&"t1".into()), ..Default::default() };
                crate::audit::append(&tx, 5, AuditKind::Began, about, &told).unwrap();
            }
            tx.commit().unwrap();
            times[rows] += start.elapsed();
        }
        times.map(|time| time / 200)
    })
    .await;
    println!("a commit with 0, 1, 2 rows: {times:?}");
    let told =
        json!({"tool": "Bash", "arguments": {"command": "x".repeat(300)}, "judgement": {"tried": "00"}});
    on_connection(&store, move |conn| {
        let tx = conn.unchecked_transaction().unwrap();
        for n in 0..100_000 {
            let call = CallId::from(format!("c{n}"));
            let about =
                crate::audit::AuditSubject { thread: Some(&"t1".into()), run: None, call: Some(&call) };
            crate::audit::append(&tx, 5, AuditKind::Judged, about, &told).unwrap();
        }
        tx.commit().unwrap();
    })
    .await;
    let start = std::time::Instant::now();
    let report = verify(&store).await;
    println!("{} rows verified in {:?}", report.rows, start.elapsed());
    on_connection(&store, |conn| {
        conn.execute_batch("DELETE FROM audit WHERE kind = 'judged'; PRAGMA synchronous = OFF").unwrap();
    })
    .await;
    let fence = store.acquire(&"t1".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let run = super::run("r7", "t1", RunStatus::Running);
    for n in 0..10_000 {
        let call = format!("call-{n}");
        store.begin(begin(&fence, &run, &call, 1, None)).await.unwrap();
        let outcomes = vec![outcome(attempt("r7", &call, 1), OutcomeKind::Returned)];
        store.checkpoint(Checkpoint { outcomes, ..checkpoint(&fence, &run) }).await.unwrap();
    }
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        status.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned()
    };
    on_connection(&store, move |conn| {
        for _ in 0..2 {
            let (start, before) = (std::time::Instant::now(), peak());
            println!("added up: {:?}", crate::audit::is_quick(conn).unwrap());
            println!("{:?}, {before} -> {}", start.elapsed(), peak());
            let start = std::time::Instant::now();
            println!("one by one: {:?}", crate::audit::differences(conn).unwrap().0.len());
            println!("{:?}, {}", start.elapsed(), peak());
        }
    })
    .await;
}
