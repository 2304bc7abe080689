//! Configuration entries: revisions, stale writes, and retained versions.

use super::*;
use aye_core::contract::config_entry::EntryConflict::{Exists, Missing, Stale};
use aye_core::contract::config_entry::EntryExpectation::{Absent, Present, Revision};
use aye_core::contract::config_entry::{EntryConflict, EntryExpectation};
use aye_core::contract::storage::AuditFilter;

async fn put(
    store: &Store,
    id: &str,
    value: Option<Value>,
    expected: EntryExpectation,
) -> Result<u64, EntryConflict> {
    store.publish_entry(("agents".into(), id.into()), value, expected, by()).await.unwrap()
}

async fn versions(store: &Store) -> Vec<(u64, String, Option<Value>)> {
    let all = store.config_entries().await.unwrap();
    all.into_iter().map(|version| (version.revision, version.id, version.value)).collect()
}

#[tokio::test]
async fn a_change_has_a_revision_and_a_stale_one_changes_nothing() {
    let home = Home::new();
    let store = home.open();
    assert_eq!(put(&store, "a", Some(json!(1)), Present).await, Err(Missing));
    assert_eq!(put(&store, "a", Some(json!(1)), Revision(1)).await, Err(Missing));
    assert_eq!(put(&store, "a", Some(json!(1)), Absent).await, Ok(1));
    assert_eq!(put(&store, "a", Some(json!(2)), Absent).await, Err(Exists));
    assert_eq!(put(&store, "b", Some(json!(2)), Absent).await, Ok(2));
    assert_eq!(put(&store, "a", Some(json!(3)), Revision(1)).await, Ok(3));
    assert_eq!(put(&store, "a", Some(json!(4)), Revision(1)).await, Err(Stale(3)));
    assert_eq!(put(&store, "a", None, Present).await, Ok(4));
    assert_eq!(put(&store, "a", None, Present).await, Err(Missing), "it is deleted");
    assert_eq!(put(&store, "a", Some(json!(5)), Absent).await, Ok(5));
    store.close().await;
    let store = home.open();
    let all = versions(&store).await;
    let numbers: Vec<_> = all.iter().map(|(revision, id, _)| (*revision, id.as_str())).collect();
    assert_eq!(numbers, [(1, "a"), (2, "b"), (3, "a"), (4, "a"), (5, "a")]);
    assert_eq!((&all[3].2, &all[4].2), (&None, &Some(json!(5))));
    let told = store.audit(AuditFilter::default()).await.unwrap();
    assert_eq!(told.len(), 5, "refused changes have no effect");
    let body = &told[2].body;
    assert_eq!(
        (&body["id"], &body["replaces"], &body["actor"]["user"]),
        (&json!("a"), &json!(1), &json!("ada"))
    );
    assert!(store.verify_audit().await.unwrap().is_whole());
}

#[tokio::test]
async fn versions_stay_while_a_run_needs_them() {
    let store = Store::in_memory().unwrap();
    assert_eq!(put(&store, "a", Some(json!(0)), Absent).await, Ok(1));
    assert_eq!(put(&store, "a", Some(json!(1)), Present).await, Ok(2));
    store.create_thread(thread("t1")).await.unwrap();
    let fence = store.acquire(&"t1".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let mut waits = super::run("r1", "t1", RunStatus::Waiting);
    waits.machine = json!({ "revision": 2 });
    store.checkpoint(checkpoint(&fence, &waits)).await.unwrap();
    for n in 3..=150 {
        assert_eq!(put(&store, "a", Some(json!(n)), Present).await, Ok(n));
    }
    let kept = versions(&store).await;
    assert_eq!((kept[0].0, kept.len()), (2, 149), "the run waits on revision 2");
    waits.status = RunStatus::Done;
    store.checkpoint(checkpoint(&fence, &waits)).await.unwrap();
    assert_eq!(put(&store, "a", Some(json!(151)), Present).await, Ok(151));
    assert_eq!(versions(&store).await.len(), 101);
}

#[tokio::test]
async fn an_older_store_has_no_entries() {
    let home = Home::new();
    home.make();
    let old = home.raw();
    old.execute_batch("DROP TABLE config_entry").unwrap();
    old.execute_batch(&super::before_lease_lengths()).unwrap();
    old.pragma_update(None, "user_version", 10).unwrap();
    drop(old);
    let store = home.open();
    assert_eq!(versions(&store).await, []);
    assert_eq!(put(&store, "a", Some(json!(1)), Absent).await, Ok(1));
}
