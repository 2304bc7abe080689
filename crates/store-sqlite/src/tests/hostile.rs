//! The hostile rows that concern the store: one check per id, none left out.

use super::*;
use crate::OpenErrorKind;

#[tokio::test]
async fn every_row_has_its_check() {
    let rows = include_str!("../../../../tests/fixtures/hostile/db.jsonl");
    for line in rows.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        match row["id"].as_str().unwrap() {
            "DB005" => newer().await,
            "DB007" => log_deleted().await,
            "DB010" => read_only(),
            "DB011" => no_plain_file(),
            "DB012" => wide_mode().await,
            "DB014" => gap_or_double().await,
            "DB020" => two_processes().await,
            "DE001" => unknown_id().await,
            "DE002" => same_again().await,
            "DE005" => after_expiry().await,
            "DE007" => race().await,
            "DE017" => other_id_space().await,
            "DE019" => clock_goes_back().await,
            "DE023" => only_b().await,
            other => panic!("no check for {other}: {line}"),
        }
    }
}

async fn newer() {
    let home = Home::new();
    home.open().close().await;
    let ours = crate::open::our_version();
    home.raw().pragma_update(None, "user_version", ours + 1).unwrap();
    let error = home.try_open().unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::NewerVersion);
    let text = error.to_string();
    assert!(
        text.contains(&format!("format {}", ours + 1)) && text.contains(&format!("supports {ours}")),
        "{text}"
    );
}

async fn log_deleted() {
    let home = Home::new();
    let store = home.open();
    let (fence, run) = waiting(&store, None).await;
    on_connection(&store, |conn| {
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).unwrap();
    })
    .await;
    let messages = vec![Message::user("after")];
    store.checkpoint(Checkpoint { messages, ..checkpoint(&fence, &run) }).await.unwrap();
    let copy = home.copy();
    std::fs::remove_file(super::super::rows::with_suffix(&copy.path(), "-wal")).unwrap();
    let store = copy.open();
    assert_eq!(store.messages(&"t1".into()).await.unwrap().len(), 1);
    assert_eq!(status(&store, "q1").await, SuspensionStatus::Open);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

fn read_only() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    home.make();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(home.try_open().unwrap_err().kind(), OpenErrorKind::ReadOnly);
}

fn no_plain_file() {
    let home = Home::new();
    std::fs::create_dir_all(home.path()).unwrap();
    assert_eq!(home.try_open().unwrap_err().kind(), OpenErrorKind::NotAFile);
}

async fn wide_mode() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    home.open().close().await;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let _store = home.open();
    assert_eq!(mode(&home.path()), 0o600);
}

async fn gap_or_double() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
    store.create_thread(thread("t2")).await.unwrap();
    let messages = vec![Message::user("two"), Message::user("three")];
    store.checkpoint(Checkpoint { messages, ..checkpoint(&fence, &run) }).await.unwrap();
    on_connection(&store, |conn| conn.execute("DELETE FROM message WHERE seq = 2", ()).unwrap()).await;
    assert!(matches!(store.messages(&"t1".into()).await, Err(StoreError::Damaged { .. })));
    assert_eq!(store.check().await.unwrap(), ["conversation t1: 1 of its 3 messages are missing"]);
    assert_eq!(store.messages(&"t2".into()).await.unwrap(), Vec::new());
}

async fn two_processes() {
    let home = Home::new();
    let (first, second) = (home.open(), home.open());
    waiting(&first, None).await;
    let refused = second.acquire(&"t1".into(), &owner("second"), None, |_| Liveness::Yes).await.unwrap_err();
    assert!(matches!(&refused, AcquireError::Busy { owner } if owner.token == "me" && owner.pid == 7));
    assert_eq!(second.messages(&"t1".into()).await.unwrap().len(), 1, "reading is fine");
}

async fn unknown_id() {
    let store = Store::in_memory().unwrap();
    let (_, run) = waiting(&store, None).await;
    assert_eq!(store.decide(&"nope".into(), yes("d"), 1).await.unwrap(), DecideOutcome::NotFound);
    assert_eq!(store.run(&"r1".into()).await.unwrap(), Some(run));
    assert_eq!(status(&store, "q1").await, SuspensionStatus::Open);
}

async fn same_again() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
    assert!(matches!(store.decide(&"q1".into(), yes("d"), 1).await.unwrap(), DecideOutcome::Accepted(_)));
    assert!(matches!(store.decide(&"q1".into(), yes("d"), 1).await.unwrap(), DecideOutcome::Repeated(_)));
    store.begin(begin(&fence, &run, "c1", 1, Some(("q1", "d")))).await.unwrap();
    assert!(matches!(store.decide(&"q1".into(), yes("d"), 1).await.unwrap(), DecideOutcome::Repeated(_)));
    assert!(store.begin(begin(&fence, &run, "c1", 2, Some(("q1", "d")))).await.is_err());
}

async fn after_expiry() {
    let store = Store::in_memory().unwrap();
    waiting(&store, Some(100)).await;
    assert!(matches!(store.decide(&"q1".into(), yes("d"), 100).await.unwrap(), DecideOutcome::Expired(_)));
}

async fn race() {
    // The thousand rounds are in `decisions`; this is the second process that comes too late.
    let home = Home::new();
    let (first, second) = (home.open(), home.open());
    waiting(&first, None).await;
    let id = SuspensionId::from("q1");
    let (y, n) = tokio::join!(first.decide(&id, yes("y"), 1), second.decide(&id, no("n"), 1));
    let won = [y.unwrap(), n.unwrap()].iter().filter(|o| matches!(o, DecideOutcome::Accepted(_))).count();
    assert_eq!(won, 1);
}

async fn other_id_space() {
    let store = Store::in_memory().unwrap();
    waiting(&store, None).await;
    store.create_thread(thread("t2")).await.unwrap();
    let fence = store.acquire(&"t2".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let theirs = run("r2", "t2", RunStatus::Running);
    store.checkpoint(checkpoint(&fence, &theirs)).await.unwrap();
    store.decide(&"q1".into(), yes("d"), 1).await.unwrap();
    let error = store.begin(begin(&fence, &theirs, "c1", 1, Some(("q1", "d")))).await.unwrap_err();
    assert!(matches!(error, StoreError::NotDecided { .. }), "{error}");
}

async fn clock_goes_back() {
    const HOUR: u64 = 3_600_000;
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, Some(HOUR)).await;
    store.expire_due(HOUR).await.unwrap();
    assert!(matches!(store.decide(&"q1".into(), yes("d"), 0).await.unwrap(), DecideOutcome::Expired(_)));
    let opened = vec![question("q2", &run, "c2", Some(1000))];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    assert!(matches!(store.decide(&"q2".into(), yes("d2"), 999).await.unwrap(), DecideOutcome::Accepted(_)));
}

async fn only_b() {
    let home = Home::new();
    let store = home.open();
    let (fence, run) = waiting(&store, None).await;
    let opened = ["a", "b", "c"].iter().map(|id| question(id, &run, id, None)).collect();
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    store.decide(&"b".into(), yes("d"), 1).await.unwrap();
    let killed = home.copy().open();
    for (id, wanted) in
        [("a", SuspensionStatus::Open), ("b", SuspensionStatus::Decided), ("c", SuspensionStatus::Open)]
    {
        assert_eq!(status(&killed, id).await, wanted);
    }
}
