//! Checkpoints, intents, leases.

use std::collections::BTreeMap;

use serde_json::json;

use super::fixtures::*;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::message::Message;
use aye_core::contract::record::*;
use aye_core::contract::storage::{AcquireError, ChangeKind, StoreError, ThreadRunStore};

pub async fn a_checkpoint_is_all_or_nothing(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, None).await;
    let bad = Checkpoint {
        messages: vec![Message::assistant("half")],
        thread_state: Some(BTreeMap::from([("k".to_owned(), json!(1))])),
        opened: vec![question("q2", &run, "c2", None), question("q1", &run, "c1", None)],
        ..checkpoint(&fence, &RunRecord { steps: 9, ..run.clone() })
    };
    let error = store.checkpoint(bad).await.unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error}");
    assert_eq!(store.message_count(&"t1".into()).await.unwrap(), 1);
    assert_eq!(store.thread_state(&"t1".into()).await.unwrap(), BTreeMap::new());
    assert_eq!(store.suspension(&"q2".into()).await.unwrap(), None);
    assert_eq!(store.load_run(&"r1".into()).await.unwrap(), Some(run));
}

pub async fn runs_are_listed_in_creation_order(store: &dyn ThreadRunStore) {
    let (fence, first) = waiting(store, None).await;
    // The clock was set back between them.
    let second = RunRecord { created_at: 1, updated_at: 2, ..run("a-run", "t1", RunStatus::Running) };
    store.checkpoint(checkpoint(&fence, &second)).await.unwrap();
    assert_eq!(store.list_runs(&"t1".into()).await.unwrap(), [first.clone(), second.clone()]);
    assert_eq!(store.latest_run(&"t1".into()).await.unwrap(), Some(second.clone()));
    let done = RunRecord { status: RunStatus::Done, ..second };
    store.checkpoint(checkpoint(&fence, &done)).await.unwrap();
    assert_eq!(store.unfinished_runs().await.unwrap(), [first]);
    let again = RunRecord { status: RunStatus::Running, ..done };
    assert!(matches!(store.checkpoint(checkpoint(&fence, &again)).await, Err(StoreError::RunOver { .. })));
}

pub async fn no_question_outlives_its_run(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, None).await;
    let opened = ["q2", "q3"].map(|id| question(id, &run, id, None)).to_vec();
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    store.decide(&"q2".into(), yes("d2"), 1).await.unwrap();
    store.decide(&"q3".into(), yes("d3"), 1).await.unwrap();
    store.begin(begin(&fence, &run, "q3", 1, Some(("q3", "d3")))).await.unwrap();
    let done = RunRecord { status: RunStatus::Done, ..run };
    store.checkpoint(checkpoint(&fence, &done)).await.unwrap();
    assert_eq!(status(store, "q1").await, SuspensionStatus::Superseded);
    assert_eq!(status(store, "q2").await, SuspensionStatus::Superseded);
    assert_eq!(status(store, "q3").await, SuspensionStatus::Applied);
}

pub async fn a_decision_starts_one_execution_of_its_own_call(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, None).await;
    let refused = async |begin: ExecutionStart| {
        let error = store.begin(begin).await.unwrap_err();
        assert!(matches!(error, StoreError::NotDecided { .. }), "{error}");
        assert_eq!(store.intents(&"r1".into()).await.unwrap(), Vec::new());
    };
    refused(begin(&fence, &run, "c1", 1, Some(("q1", "d1")))).await;
    store.decide(&"q1".into(), yes("d1"), 1).await.unwrap();
    refused(begin(&fence, &run, "c1", 1, Some(("q1", "d2")))).await;
    refused(begin(&fence, &run, "c9", 1, Some(("q1", "d1")))).await;
    refused(begin(&fence, &run, "c1", 1, Some(("q9", "d1")))).await;
    assert_eq!(status(store, "q1").await, SuspensionStatus::Decided);
    let running = RunRecord { status: RunStatus::Running, ..run };
    store.begin(begin(&fence, &running, "c1", 1, Some(("q1", "d1")))).await.unwrap();
    assert_eq!(status(store, "q1").await, SuspensionStatus::Applied);
    assert_eq!(store.load_run(&"r1".into()).await.unwrap().unwrap().status, RunStatus::Running);
    let again = store.begin(begin(&fence, &running, "c1", 2, Some(("q1", "d1")))).await.unwrap_err();
    assert!(matches!(again, StoreError::NotDecided { .. }), "{again}");
    let same = store.begin(begin(&fence, &running, "c1", 1, None)).await.unwrap_err();
    assert!(matches!(same, StoreError::AlreadyStarted { .. }), "{same}");
}

pub async fn a_denial_starts_nothing(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, None).await;
    store.decide(&"q1".into(), no("d1"), 1).await.unwrap();
    let error = store.begin(begin(&fence, &run, "c1", 1, Some(("q1", "d1")))).await.unwrap_err();
    assert!(matches!(error, StoreError::NotDecided { .. }), "{error}");
    let closed = vec![("q1".into(), SuspensionStatus::Applied)];
    store.checkpoint(Checkpoint { closed, ..checkpoint(&fence, &run) }).await.unwrap();
    assert_eq!(status(store, "q1").await, SuspensionStatus::Applied);
}

pub async fn intents_stay_pending_until_their_outcome(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, None).await;
    let id = attempt("r1", "c2", 1);
    let ends = |kind| Checkpoint { outcomes: vec![outcome(id.clone(), kind)], ..checkpoint(&fence, &run) };
    assert!(matches!(
        store.checkpoint(ends(OutcomeKind::Returned)).await,
        Err(StoreError::NotStarted { .. })
    ));
    let begun = begin(&fence, &run, "c2", 1, None);
    store.begin(begun.clone()).await.unwrap();
    store.append_output(&fence, &id, "no".into()).await.unwrap();
    store.append_output(&fence, &id, "on".into()).await.unwrap();
    let open = store.open_intents(&"r1".into()).await.unwrap();
    assert_eq!(open, [OpenIntent { intent: begun.intent.clone(), output: "noon".into() }]);
    store.checkpoint(ends(OutcomeKind::Unknown)).await.unwrap();
    assert_eq!(store.open_intents(&"r1".into()).await.unwrap(), Vec::new());
    store.checkpoint(ends(OutcomeKind::Returned)).await.unwrap();
    assert!(matches!(
        store.checkpoint(ends(OutcomeKind::Unknown)).await,
        Err(StoreError::AlreadyEnded { .. })
    ));
    let all = store.intents(&"r1".into()).await.unwrap();
    assert_eq!(all, [(begun.intent, Some(outcome(id, OutcomeKind::Returned)))]);
}

pub async fn a_stage_and_the_next_start_are_one_transaction(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, None).await;
    store.begin(begin(&fence, &run, "c2", 1, None)).await.unwrap();
    let ended = Checkpoint {
        messages: vec![Message::assistant("next")],
        outcomes: vec![outcome(attempt("r1", "c2", 1), OutcomeKind::Returned)],
        ..checkpoint(&fence, &run)
    };
    let start = || begin(&fence, &run, "c1", 1, Some(("q1", "d1")));
    let open = async || {
        let open = store.open_intents(&"r1".into()).await.unwrap();
        open.into_iter().map(|open| open.intent.id.call_id.to_string()).collect::<Vec<_>>()
    };
    let refused = store.checkpoint_and_begin(ended.clone(), start()).await;
    assert!(matches!(refused, Err(StoreError::NotDecided { .. })), "{refused:?}");
    assert_eq!((open().await, store.message_count(&"t1".into()).await.unwrap()), (vec!["c2".to_owned()], 1));
    store.decide(&"q1".into(), yes("d1"), 1).await.unwrap();
    let stranger = Fence { epoch: fence.epoch + 1, ..fence.clone() };
    let refused = store.checkpoint_and_begin(Checkpoint { fence: stranger, ..ended.clone() }, start()).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    assert_eq!(status(store, "q1").await, SuspensionStatus::Decided);
    store.checkpoint_and_begin(ended, start()).await.unwrap();
    assert_eq!((open().await, store.message_count(&"t1".into()).await.unwrap()), (vec!["c1".to_owned()], 2));
    assert_eq!(status(store, "q1").await, SuspensionStatus::Applied);
}

pub async fn foreign_rows_are_refused(store: &dyn ThreadRunStore) {
    let (fence, mine) = waiting(store, None).await;
    store.ensure_thread(thread("t2")).await.unwrap();
    let fence2 = store.acquire(&"t2".into(), &owner("me"), None).await.unwrap();
    let theirs = run("r2", "t2", RunStatus::Running);
    let misplaced = [
        store.checkpoint(checkpoint(&fence, &theirs)).await,
        store.checkpoint(checkpoint(&fence2, &RunRecord { thread_id: "t2".into(), ..mine.clone() })).await,
        store
            .checkpoint(Checkpoint {
                opened: vec![question("q2", &mine, "c", None)],
                ..checkpoint(&fence2, &theirs)
            })
            .await,
        store.begin(ExecutionStart { run: theirs.clone(), ..begin(&fence2, &mine, "c1", 1, None) }).await,
    ];
    for refused in misplaced {
        assert!(matches!(refused, Err(StoreError::Misplaced { .. })), "{refused:?}");
    }
    let closed = vec![("q1".into(), SuspensionStatus::Superseded)];
    let error = store.checkpoint(Checkpoint { closed, ..checkpoint(&fence2, &theirs) }).await.unwrap_err();
    assert!(matches!(error, StoreError::NoSuspension(_)), "{error}");
    assert_eq!(status(store, "q1").await, SuspensionStatus::Open);
}

pub async fn a_paused_owner_writes_nothing_after_losing_its_lease(store: &dyn ThreadRunStore) {
    let me = announced(store, "me");
    let (old, run) = waiting_of(store, &me.owner, None).await;
    let busy = store.acquire(&"t1".into(), &owner("you"), None).await.unwrap_err();
    assert!(matches!(&busy, AcquireError::Busy { owner } if owner.token == "me"), "{busy}");
    drop(me);
    let new = store.acquire(&"t1".into(), &owner("you"), None).await.unwrap();
    assert!(new.epoch > old.epoch);
    assert_eq!(store.lease(&"t1".into()).await.unwrap().map(|lease| lease.owner), Some(owner("you")));
    let late = Checkpoint { messages: vec![Message::user("late")], ..checkpoint(&old, &run) };
    assert!(matches!(store.checkpoint(late).await, Err(StoreError::Fenced { .. })));
    assert!(matches!(store.begin(begin(&old, &run, "c2", 1, None)).await, Err(StoreError::Fenced { .. })));
    store.release(&old).await.unwrap();
    store.checkpoint(checkpoint(&new, &run)).await.unwrap();
    assert_eq!(store.message_count(&"t1".into()).await.unwrap(), 1);

    store.release(&new).await.unwrap();
    assert!(matches!(store.checkpoint(checkpoint(&new, &run)).await, Err(StoreError::Fenced { .. })));
    let third = store.acquire(&"t1".into(), &owner("me"), None).await.unwrap();
    let fourth = store.acquire(&"t1".into(), &owner("me"), None).await.unwrap();
    assert!(fourth.epoch > third.epoch && third.epoch > new.epoch);
    assert!(matches!(store.checkpoint(checkpoint(&third, &run)).await, Err(StoreError::Fenced { .. })));
    let none = store.acquire(&"t9".into(), &owner("me"), None).await.unwrap_err();
    assert!(matches!(none, AcquireError::Store(StoreError::NoThread(_))), "{none}");
}

pub async fn the_last_write_of_a_run_releases_the_lease(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, None).await;
    let mut watch = store.another().unwrap().watch().unwrap();
    let end =
        Checkpoint { releases: true, ..checkpoint(&fence, &RunRecord { status: RunStatus::Done, ..run }) };
    let stranger = Fence { epoch: fence.epoch + 1, ..fence.clone() };
    let refused = store.checkpoint(Checkpoint { fence: stranger, ..end.clone() }).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })));
    assert!(store.lease(&"t1".into()).await.unwrap().is_some(), "a refused write releases nothing");
    store.checkpoint(end.clone()).await.unwrap();
    assert_eq!(store.lease(&"t1".into()).await.unwrap(), None);
    assert!(matches!(store.checkpoint(end).await, Err(StoreError::Fenced { .. })));
    // Those who wait for the thread are notified.
    while watch.next().await.kind != ChangeKind::Owner {}
    let next = store.acquire(&"t1".into(), &owner("you"), None).await.unwrap();
    assert!(next.epoch > fence.epoch);
}
