//! The audit and the change feed.

use std::collections::HashMap;

use super::fixtures::*;
use aye_core::contract::audit::AuditKind;
use aye_core::contract::audit_entry::AuditEntry;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::record::*;
use aye_core::contract::storage::{AuditFilter, ChangeKind, StoreChange, StoreError, ThreadRunStore};

/// Question, decision, start and end are each written in their own transaction, and each row is chained to
/// the one before it.
pub async fn a_calls_events_are_chained(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, None).await;
    store.decide(&"q1".into(), yes("d1"), 60).await.unwrap();
    store.begin(begin(&fence, &run, "c1", 1, Some(("q1", "d1")))).await.unwrap();
    let outcomes = vec![outcome(attempt("r1", "c1", 1), OutcomeKind::Returned)];
    let opened = vec![question("q2", &run, "c2", None)];
    let again = vec![question("q1", &run, "c1", None)];
    let refused = Checkpoint { outcomes: outcomes.clone(), opened: again, ..checkpoint(&fence, &run) };
    assert!(store.checkpoint(refused).await.is_err(), "events that did not happen are not emitted");
    store.checkpoint(Checkpoint { outcomes, opened, ..checkpoint(&fence, &run) }).await.unwrap();
    let done = RunRecord { status: RunStatus::Done, ..run };
    store.checkpoint(checkpoint(&fence, &done)).await.unwrap();

    use AuditKind::{Asked, Began, Decided, Ended, Superseded};
    let rows = store.audit(AuditFilter::default()).await.unwrap();
    assert_eq!(
        rows.iter().map(|row| row.kind).collect::<Vec<_>>(),
        [Asked, Decided, Began, Ended, Asked, Superseded]
    );
    // The rows of each chain count up from 1; what the hash of a chain with a name covers is its store's matter.
    let mut chains: HashMap<&str, (u64, &str)> = HashMap::new();
    for row in &rows {
        let (n, previous) = chains.entry(row.chain.as_str()).or_default();
        *n += 1;
        assert_eq!(row.n, *n, "{row:?}");
        let before = std::mem::replace(previous, &row.hash);
        assert_ne!(row.hash, before);
        if !row.chain.is_empty() {
            continue;
        }
        let entry = AuditEntry {
            at: row.at,
            kind: row.kind,
            thread_id: row.thread_id.clone(),
            run_id: row.run_id.clone(),
            call_id: row.call_id.clone(),
            body: row.body.clone(),
        };
        assert_eq!(entry.chained(*n, before).unwrap(), *row);
    }
    assert_eq!((&rows[1].body["decision"], &rows[1].body["delay_ms"]), (&"d1".into(), &40.into()));
    assert_eq!((&rows[2].body["suspension"], &rows[3].body["summary"]), (&"q1".into(), &"noon".into()));
    let kinds = vec![Decided, Ended];
    let some = store.audit(AuditFilter { kinds, ..AuditFilter::default() }).await.unwrap();
    assert_eq!(some, [rows[1].clone(), rows[3].clone()]);
    let late = AuditFilter { since: Some(60), thread: Some("t1".into()), ..AuditFilter::default() };
    assert_eq!(store.audit(late).await.unwrap().len(), 1);
    let elsewhere = AuditFilter { thread: Some("t9".into()), ..AuditFilter::default() };
    assert_eq!(store.audit(elsewhere).await.unwrap(), []);
}

pub async fn a_closed_store_does_nothing(store: &dyn ThreadRunStore) {
    waiting(store, None).await;
    let handle = store.handle().unwrap();
    store.close().await;
    store.close().await;
    for closed in [store, &*handle] {
        assert!(matches!(closed.suspension(&"q1".into()).await, Err(StoreError::Closed)));
        assert!(matches!(closed.decide(&"q1".into(), yes("d1"), 1).await, Err(StoreError::Closed)));
    }
}

/// Checks two handles: each receives what the other one commits, but not its own commits.
pub async fn commits_are_published_to_other_handles(store: &dyn ThreadRunStore) {
    let other = store.another().unwrap();
    let (mut own, mut heard) = (store.watch().unwrap(), other.watch().unwrap());
    waiting(store, None).await;
    assert_eq!(other.message_count(&"t1".into()).await.unwrap(), 1, "both have the same rows");
    let mut changes = Vec::new();
    while changes.last() != Some(&StoreChange::of(ChangeKind::Run, &"t1".into())) {
        changes.push(heard.next().await);
    }
    assert!(changes.contains(&StoreChange::of(ChangeKind::Owner, &"t1".into())), "{changes:?}");
    other.decide(&"q1".into(), yes("d1"), 1).await.unwrap();
    // The first change received is the other handle's: its own commits were never sent to it.
    assert_eq!(own.next().await, StoreChange::of(ChangeKind::Decision, &"t1".into()));
    assert_eq!(status(store, "q1").await, SuspensionStatus::Decided);
}

pub async fn changes_of_other_conversations_wake_nobody(store: &dyn ThreadRunStore) {
    let other = store.another().unwrap();
    let mut feed = other.watch().unwrap();
    store.ensure_thread(thread("t2")).await.unwrap();
    waiting(store, None).await;
    let t2 = "t2".into();
    let mut waits = feed.next_about(&t2);
    assert!(futures::poll!(&mut waits).is_pending());
    store.decide(&"q1".into(), yes("d1"), 1).await.unwrap();
    assert!(futures::poll!(&mut waits).is_pending());
    acquired(store, "t2", &owner("me")).await;
    waits.await;
}
