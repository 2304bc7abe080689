//! Messages to other programs.

use super::*;
use crate::{OutboxOutcome, OutboxStatus, PushTarget, PushTargetsOf, push_key};

async fn put(store: &Store, key: &str) -> bool {
    store.put_into_outbox(&"t1".into(), key.into(), "webhook:x".into(), "{}".into(), 10).await.unwrap()
}

#[tokio::test]
async fn a_message_is_sent_once_by_one_process_and_again_after_its_death() {
    let home = Home::new();
    let (store, other) = (home.open(), home.open());
    store.create_thread(thread("t1")).await.unwrap();
    assert!(put(&store, "a").await);
    assert!(!put(&other, "a").await, "it already exists");
    let first = store.claim_from_outbox(10, 100).await.unwrap().unwrap();
    assert_eq!(other.claim_from_outbox(20, 100).await.unwrap(), Err(Some(110)), "one at a time");
    let again = other.claim_from_outbox(110, 100).await.unwrap().unwrap();
    assert_eq!(again.number, first.number);
    other.settle_in_outbox(first.number, OutboxOutcome::Accepted, 120).await.unwrap();
    assert_eq!(store.claim_from_outbox(999, 100).await.unwrap(), Err(None));
    assert_eq!(store.outbox(false).await.unwrap(), []);
    assert_eq!(store.outbox(true).await.unwrap()[0].status, OutboxStatus::Accepted);
    assert!(!put(&store, "a").await, "and is not sent again");
}

#[tokio::test]
async fn a_dead_letter_stays_until_it_is_retried() {
    let store = Store::in_memory().unwrap();
    store.create_thread(thread("t1")).await.unwrap();
    put(&store, "a").await;
    let row = store.claim_from_outbox(10, 100).await.unwrap().unwrap();
    let retry = OutboxOutcome::Retry { at: 50, error: "503".into() };
    store.settle_in_outbox(row.number, retry, 11).await.unwrap();
    assert_eq!(store.claim_from_outbox(20, 100).await.unwrap(), Err(Some(50)));
    store.claim_from_outbox(50, 100).await.unwrap().unwrap();
    let dead = OutboxOutcome::DeadLetter { error: "410".into() };
    store.settle_in_outbox(row.number, dead, 51).await.unwrap();
    let dead = store.outbox(false).await.unwrap().remove(0);
    assert_eq!((dead.status, dead.attempt_count), (OutboxStatus::DeadLetter, 2));
    assert_eq!(dead.last_error.as_deref(), Some("410"));
    assert!(store.retry_in_outbox(row.number, 60).await.unwrap());
    assert!(!store.retry_in_outbox(row.number, 60).await.unwrap());
    assert_eq!(store.claim_from_outbox(60, 100).await.unwrap().unwrap().attempt_count, 0);
    assert!(store.delete_thread(&"t1".into(), &owner("me"), |_| Liveness::No, by()).await.unwrap());
    assert_eq!(store.outbox(true).await.unwrap(), []);
}

#[tokio::test]
async fn an_older_store_has_sent_nothing() {
    let home = Home::new();
    home.make();
    let old = home.raw();
    old.execute_batch("DROP TABLE delivery; DROP TABLE push_target; DROP TABLE config_entry").unwrap();
    old.execute_batch(&super::before_lease_lengths()).unwrap();
    old.pragma_update(None, "user_version", 8).unwrap();
    drop(old);
    let store = home.open();
    assert_eq!(store.outbox(true).await.unwrap(), []);
    store.create_thread(thread("t1")).await.unwrap();
    assert!(put(&store, "a").await);
}

#[tokio::test]
async fn a_push_target_waits_for_its_run_and_is_deleted_with_its_conversation() {
    let store = Store::in_memory().unwrap();
    let target = |config: &str| PushTarget {
        run_id: "r1".into(),
        id: "a".into(),
        thread_id: "t1".into(),
        config: config.into(),
    };
    assert!(!store.put_push_target(target("0"), 1).await.unwrap(), "no such conversation");
    store.create_thread(thread("t1")).await.unwrap();
    assert!(store.put_push_target(target("1"), 1).await.unwrap());
    assert!(store.put_push_target(target("2"), 2).await.unwrap(), "in its place");
    let of = async |of: PushTargetsOf| store.push_targets(of).await.unwrap();
    assert_eq!(of(PushTargetsOf::Run("r1".into())).await, [target("2")]);
    assert_eq!(of(PushTargetsOf::Run("r2".into())).await, []);
    for stop in ["q1", "done"] {
        assert_eq!(of(PushTargetsOf::Waiting("t1".into())).await, [target("2")]);
        assert_eq!(of(PushTargetsOf::AllWaiting).await, [target("2")]);
        assert!(put(&store, &push_key(&"r1".into(), "a", stop)).await);
    }
    assert_eq!(of(PushTargetsOf::Waiting("t1".into())).await, []);
    assert_eq!(of(PushTargetsOf::AllWaiting).await, []);
    assert!(store.delete_push_target(&"r1".into(), "a".into()).await.unwrap());
    assert!(!store.delete_push_target(&"r1".into(), "a".into()).await.unwrap());
    store.put_push_target(target("3"), 3).await.unwrap();
    store.delete_thread(&"t1".into(), &owner("me"), |_| Liveness::No, by()).await.unwrap();
    assert_eq!(of(PushTargetsOf::Run("r1".into())).await, []);
}
