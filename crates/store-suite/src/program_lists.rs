//! Lists of questions, conversations and the audit.

use serde_json::json;

use aye_core::contract::audit::{AuditKind, AuditRow, PastAnswer, PastRow};
use aye_core::contract::child::ChildRecord;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::judgement::{JudgedCall, Judgement};
use aye_core::contract::program_store::{
    InboxFilter, MessageSelection, ProgramStore, RowFeed, SuspensionLookup, ThreadLookup, verify_sealed,
};
use aye_core::contract::record::*;
use aye_core::contract::storage::{AuditFilter, StoreError};

use super::fixtures::*;
use super::threads::{child, talk};

pub async fn read<T>(mut feed: RowFeed<T>) -> Vec<T> {
    let mut found = Vec::new();
    while let Some(rows) = feed.next().await.unwrap() {
        assert!(!rows.is_empty(), "the end is no row");
        found.extend(rows);
    }
    assert!(feed.next().await.unwrap().is_none(), "the end stays the end");
    found
}

pub async fn the_inbox_has_what_waits_for_a_user(store: &dyn ProgramStore) {
    let (fence, run) = waiting(store, Some(50)).await;
    let opened = vec![question("q2", &run, "c2", None), question("q3", &run, "c3", None)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    store.decide(&"q3".into(), no("d"), 30).await.unwrap();
    let ids = async |filter: InboxFilter| {
        let rows = store.inbox(filter).await.unwrap();
        rows.into_iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(InboxFilter::default()).await, ["q1", "q2"]);
    assert_eq!(ids(InboxFilter { valid_at: Some(50), ..InboxFilter::default() }).await, ["q2"]);
    assert_eq!(
        ids(InboxFilter { tool: Some("bash".into()), limit: Some(1), ..InboxFilter::default() }).await,
        ["q1"]
    );
    assert_eq!(ids(InboxFilter { offset: 1, ..InboxFilter::default() }).await, ["q2"]);
    assert_eq!(ids(InboxFilter { tool: Some("Read".into()), ..InboxFilter::default() }).await, [""; 0]);
    assert_eq!(ids(InboxFilter { thread: Some("t9".into()), ..InboxFilter::default() }).await, [""; 0]);
    assert_eq!(ids(InboxFilter { asked_before: Some(20), ..InboxFilter::default() }).await, [""; 0]);
    assert_eq!(store.waiting_count(None, 49).await.unwrap(), 2);
    assert_eq!(store.waiting_count(None, 50).await.unwrap(), 1, "it has expired");
    assert_eq!(store.waiting_count(Some(&"t1".into()), 49).await.unwrap(), 0);
}

pub async fn a_prefix_names_one_question_for_good(store: &dyn ProgramStore) {
    let (fence, run) = waiting(store, None).await;
    let opened = vec![question("long-a", &run, "c2", None), question("long-b", &run, "c3", None)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    store.decide(&"long-b".into(), no("d"), 30).await.unwrap();
    let found = store.find_suspension("q").await.unwrap();
    assert!(matches!(&found, SuspensionLookup::One(one) if one.id.as_str() == "q1"), "{found:?}");
    let many = store.find_suspension("long").await.unwrap();
    assert!(
        matches!(&many, SuspensionLookup::Many(many) if many.len() == 2 && many[0].id.as_str() == "long-a"),
        "open ones first, and closed ones count: {many:?}"
    );
    assert_eq!(store.find_suspension("").await.unwrap(), SuspensionLookup::None);
    assert_eq!(store.find_suspension("x").await.unwrap(), SuspensionLookup::None);
    let short = store.short_ids(vec!["q1".into(), "long-a".into()], 1).await.unwrap();
    assert_eq!(short, ["q", "long-a"]);
}

pub async fn conversations_are_listed_and_found(store: &dyn ProgramStore) {
    for (id, at) in [("one", 1), ("two", 2), ("twelve", 3)] {
        store.create_thread(ThreadRecord { updated_at: at, ..thread(id) }).await.unwrap();
    }
    let again = store.create_thread(thread("one")).await;
    assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");
    store.create_child(child("one.a", "one", false), "a child".into(), "/work".into()).await.unwrap();
    let ids = |threads: Vec<ThreadSummary>| {
        threads.into_iter().map(|row| row.thread.id.to_string()).collect::<Vec<_>>()
    };
    store.pin_thread(&"one".into(), Some(9)).await.unwrap();
    let all = ids(store.threads_page(None, 0, None).await.unwrap());
    assert_eq!(all, ["one", "twelve", "two"]);
    assert_eq!(ids(read(store.read_threads(0, None)).await), all);
    assert_eq!(ids(read(store.read_threads(1, Some(1))).await), ["twelve"]);
    assert_eq!(ids(store.threads_page(Some("/work".as_ref()), 2, Some(5)).await.unwrap()), ["two"]);
    assert_eq!(ids(store.threads_page(Some("/other".as_ref()), 0, None).await.unwrap()), [""; 0]);
    store.pin_thread(&"one".into(), None).await.unwrap();
    store.touch(&"two".into(), 10).await.unwrap();
    store.touch(&"two".into(), 4).await.unwrap();
    let nowhere = store.touch(&"t9".into(), 10).await;
    assert!(matches!(nowhere, Err(StoreError::NoThread(_))), "{nowhere:?}");
    assert_eq!(ids(store.threads_page(None, 0, None).await.unwrap()), ["two", "twelve", "one"]);
    assert_eq!(store.latest_thread("/work".as_ref()).await.unwrap().unwrap().id.as_str(), "two");
    assert_eq!(store.latest_thread("/other".as_ref()).await.unwrap(), None);
    let found = store.find_thread("on").await.unwrap();
    assert!(matches!(&found, ThreadLookup::One(one) if one.id.as_str() == "one"), "{found:?}");
    let found = store.find_thread("tw").await.unwrap();
    assert!(matches!(&found, ThreadLookup::Many(many) if many.len() == 2), "{found:?}");
    assert_eq!(store.find_thread("").await.unwrap(), ThreadLookup::None);
    assert_eq!(store.named_by(&"one".into()).await.unwrap(), NamedBy::FirstLine);
    store.rename_thread(&"one".into(), "mine", NamedBy::Person).await.unwrap();
    assert_eq!(store.named_by(&"one".into()).await.unwrap(), NamedBy::Person);
}

pub async fn a_part_of_a_conversation_is_shown(store: &dyn ProgramStore) {
    let written = talk(store, "t1", 5).await;
    let places = |messages: &[StoredMessage]| messages.iter().map(|stored| stored.seq).collect::<Vec<_>>();
    for (part, seen) in [
        (MessageSelection::All, vec![1, 2, 3, 4, 5]),
        (MessageSelection::Last(2), vec![4, 5]),
        (MessageSelection::Behind(3), vec![4, 5]),
        (MessageSelection::Behind(5), vec![]),
    ] {
        let view = store.thread_view_at(&"t1".into(), part).await.unwrap().unwrap();
        assert_eq!((places(&view.messages), view.total), (seen, 5), "{part:?}");
        assert_eq!(view.run.unwrap().id.as_str(), "run-t1");
        assert_eq!(view.lease.unwrap().owner.token, "me");
    }
    assert_eq!(store.thread_view_at(&"t9".into(), MessageSelection::All).await.unwrap(), None);
    assert_eq!(places(&store.messages_before(&"t1".into(), 4, 2).await.unwrap()), [2, 3]);
    assert_eq!(places(&store.messages_before(&"t1".into(), 2, 9).await.unwrap()), [1]);
    assert_eq!(store.place_of_message(&"t1".into(), written[2].id.as_str()).await.unwrap(), Some(3));
    assert_eq!(store.place_of_message(&"t1".into(), "none").await.unwrap(), None);
}

pub async fn a_text_is_found_with_or_without_an_index(store: &dyn ProgramStore) {
    talk(store, "t1", 3).await;
    talk(store, "t2", 1).await;
    let found = async |wanted: &str| {
        let found = store.search(wanted, 0, None).await.unwrap();
        found.into_iter().map(|found| found.thread.id.to_string()).collect::<Vec<_>>()
    };
    let before = found("MESSAGE 3").await;
    while store.index_messages().await.unwrap() {}
    assert_eq!(store.unindexed_messages().await.unwrap(), 0);
    assert_eq!(found("MESSAGE 3").await, before);
    assert_eq!(before, ["t1"]);
    assert_eq!(found("nowhere").await, [""; 0]);
    assert_eq!(store.search("message", 1, Some(1)).await.unwrap().len(), 1);
    let (around, next) = store.search_thread(&"t1".into(), "message 2", 0).await.unwrap();
    assert!(around.is_some_and(|around| around.contains("message 2")));
    assert_eq!(next, None);
    assert_eq!(store.search_thread(&"t1".into(), "nowhere", 0).await.unwrap(), (None, None));
}

pub async fn tasks_of_all_conversations_are_listed(store: &dyn ProgramStore) {
    let (_, parent) = waiting(store, None).await;
    let row = ChildRecord { parent_run: parent.id.clone(), ..child("t1.a", "t1", false) };
    store.create_child(row, "a child".into(), "/work".into()).await.unwrap();
    let tasks = store.all_tasks(false).await.unwrap();
    assert_eq!(tasks.iter().map(|task| task.child.thread_id.as_str()).collect::<Vec<_>>(), ["t1.a"]);
    assert_eq!(store.all_tasks(true).await.unwrap(), tasks);
    assert_eq!(store.all_commands(false).await.unwrap(), []);
    assert_eq!(store.command_output(7).await.unwrap(), "");
}

pub async fn the_audit_is_read_row_by_row_and_call_by_call(store: &dyn ProgramStore) {
    let (fence, run) = waiting(store, None).await;
    for n in 0..200 {
        let opened = vec![question(&format!("more-{n}"), &run, &format!("d{n}"), None)];
        store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    }
    store.decide(&"q1".into(), yes("d1"), 30).await.unwrap();
    let all = store.audit(AuditFilter::default()).await.unwrap();
    assert_eq!(all.len(), 202);
    assert_eq!(read(store.read_audit(AuditFilter::default())).await, all);
    let decided = AuditFilter { kinds: vec![AuditKind::Decided], ..AuditFilter::default() };
    assert_eq!(read(store.read_audit(decided)).await, all[201..]);
    let calls = read(store.read_audit_calls(AuditFilter::default())).await;
    assert_eq!(calls.len(), 201);
    let kinds = |rows: &[AuditRow]| rows.iter().map(|row| row.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&calls[0]), [AuditKind::Asked, AuditKind::Decided], "a call comes whole, in its place");
    let nothing = AuditFilter { thread: Some("t9".into()), ..AuditFilter::default() };
    assert_eq!(read(store.read_audit_calls(nothing)).await, [] as [Vec<AuditRow>; 0]);
    let report = verify_sealed(store).await.unwrap();
    assert!(report.is_whole(), "{report:?}");
    assert_eq!((report.rows, report.chains), (202, 1), "all rows are about one conversation");
    let rows: Vec<_> =
        all.iter().map(|row| (row.chain.clone(), row.n)).chain([("no such chain".into(), 1)]).collect();
    let hashes: Vec<_> = all.iter().map(|row| Some(row.hash.clone())).chain([None]).collect();
    assert_eq!(store.audit_hashes(rows).await.unwrap(), hashes);
    assert_eq!(
        store.audit_hashes(vec![(all[0].chain.clone(), 203), (all[0].chain.clone(), 0)]).await.unwrap(),
        [None, None]
    );
    assert_eq!(store.audit_threads("t").await.unwrap(), [ThreadId::from("t1")]);
    assert_eq!(store.audit_threads("x").await.unwrap(), []);
    let report = store.verify_audit().await.unwrap();
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(report.rows, 202);
}

pub async fn a_reader_that_is_dropped_keeps_nobody_waiting(store: &dyn ProgramStore) {
    let (fence, run) = waiting(store, None).await;
    for n in 0..500 {
        let opened = vec![question(&format!("more-{n}"), &run, &format!("d{n}"), None)];
        store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    }
    drop(store.read_audit(AuditFilter::default()));
    let mut feed = store.read_audit(AuditFilter::default());
    assert!(feed.next().await.unwrap().is_some());
    drop(feed);
    store.checkpoint(checkpoint(&fence, &run)).await.unwrap();
    store.close().await;
    let mut closed = store.read_audit(AuditFilter::default());
    assert!(matches!(closed.next().await, Err(StoreError::Closed)));
}

fn judgement() -> Judgement {
    let json = json!({"ruling": "ask", "why": "no rule allows it", "mode": "ask", "risk": "runs", "tried": [
        {"pattern": "Read", "behavior": "allow", "origin": "shipped", "matched": false}
    ]});
    serde_json::from_value(json).unwrap()
}

pub async fn past_calls_have_the_answers_of_users(store: &dyn ProgramStore) {
    let (fence, run) = waiting(store, None).await;
    let judged = vec![JudgedCall {
        call_id: "c9".into(),
        tool: "Bash".into(),
        arguments: json!({"command": "date"}),
        cwd: "/work".into(),
        answered: false,
        judgement: judgement(),
        at: 25,
    }];
    let opened = vec![question("q9", &run, "c9", None)];
    store.checkpoint(Checkpoint { judged, opened, ..checkpoint(&fence, &run) }).await.unwrap();
    store.decide(&"q9".into(), no("d1"), 30).await.unwrap();
    let past = read(store.read_past_calls(None)).await;
    let [PastRow::Call(call), PastRow::Answer(0, PastAnswer::Declined)] = &past[..] else {
        panic!("{past:?}")
    };
    assert_eq!((call.tool.as_str(), call.cwd.as_str()), ("Bash", "/work"));
    assert_eq!(read(store.read_past_calls(Some(u64::MAX / 4))).await, []);
    let recent = store.recent_calls("Bash", "/work".as_ref(), 100).await.unwrap();
    assert_eq!(recent.iter().map(|call| call.declined).collect::<Vec<_>>(), [true]);
    assert_eq!(store.recent_calls("Bash", "/other".as_ref(), 100).await.unwrap(), []);
    assert_eq!(store.recent_calls("Bash", "/work".as_ref(), 0).await.unwrap(), []);
    assert_eq!(store.audit_rules().await.unwrap().len(), 1);
}
