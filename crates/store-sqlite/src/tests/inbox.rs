//! Lists over all threads, id prefixes, and read-only stores.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::{InboxFilter, OpenErrorKind, SuspensionLookup};
use aye_core::contract::judgement::Risk;

/// Two threads: `t1` with `perm_c1` and `perm_c10`, `t2` with a child's `ask_c2`.
async fn three(store: &Store) {
    store.create_thread(thread("t1")).await.unwrap();
    let fence = store.acquire(&"t1".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let one = run("r1", "t1", RunStatus::Waiting);
    let opened = vec![question("perm_c1", &one, "c1", None), question("perm_c10", &one, "c10", Some(90))];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &one) }).await.unwrap();
    store.create_thread(ThreadRecord { title: "other".into(), ..thread("t2") }).await.unwrap();
    let fence = store.acquire(&"t2".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let two = RunRecord { parent_run_id: Some("r0".into()), ..run("r2", "t2", RunStatus::Waiting) };
    let mut asked = question("ask_c2", &two, "c2", None);
    asked.created_at = 50;
    asked.ticket.pending.name = "Edit".into();
    asked.ticket.pending.arguments = json!({"file_path": "a\u{1b}[2J.rs"});
    asked.ticket.suspension.parameters = json!({"why": "no rule allows it", "risk": "edits"});
    store.checkpoint(Checkpoint { opened: vec![asked], ..checkpoint(&fence, &two) }).await.unwrap();
}

async fn ids(store: &Store, filter: InboxFilter) -> Vec<String> {
    store.inbox(filter).await.unwrap().into_iter().map(|row| row.id.to_string()).collect()
}

#[tokio::test]
async fn the_inbox_covers_all_threads_and_is_filtered() {
    let store = Store::in_memory().unwrap();
    three(&store).await;
    let any = InboxFilter::default();
    assert_eq!(ids(&store, any.clone()).await, ["perm_c1", "perm_c10", "ask_c2"]);
    assert_eq!(ids(&store, InboxFilter { thread: Some("t2".into()), ..any.clone() }).await, ["ask_c2"]);
    assert_eq!(ids(&store, InboxFilter { tool: Some("edit".into()), ..any.clone() }).await, ["ask_c2"]);
    assert_eq!(ids(&store, InboxFilter { tool: Some("edi".into()), ..any.clone() }).await, [""; 0]);
    let old = InboxFilter { asked_before: Some(50), ..any.clone() };
    assert_eq!(ids(&store, old).await, ["perm_c1", "perm_c10"]);
    let row = store.inbox(any).await.unwrap().remove(2);
    assert_eq!((row.thread_title.as_str(), row.tool.as_str()), ("other", "Edit"));
    assert_eq!(row.summary, "a^[[2J.rs");
    assert_eq!((row.why.as_str(), row.risk), ("no rule allows it", Some(Risk::Edits)));
    assert_eq!(row.parent_run_id.as_ref().map(aye_core::contract::ids::RunId::as_str), Some("r0"));

    assert_eq!(store.waiting_count(None, 30).await.unwrap(), 3);
    assert_eq!(store.waiting_count(Some(&"t1".into()), 30).await.unwrap(), 1);
    store.decide(&"perm_c1".into(), yes("d"), 30).await.unwrap();
    assert_eq!(store.waiting_count(None, 30).await.unwrap(), 2);
    assert_eq!(ids(&store, InboxFilter::default()).await, ["perm_c10", "ask_c2"]);
    assert_eq!(store.waiting_count(None, 90).await.unwrap(), 1, "one has ended, and is unmarked");
}

#[tokio::test]
async fn an_id_prefix_never_comes_to_mean_another_question() {
    let store = Store::in_memory().unwrap();
    three(&store).await;
    let one = async |prefix: &str| match store.find_suspension(prefix).await.unwrap() {
        SuspensionLookup::One(found) => found.id.to_string(),
        SuspensionLookup::None => "none".to_owned(),
        SuspensionLookup::Many(found) => found.iter().map(|q| q.id.as_str()).collect::<Vec<_>>().join(" "),
    };
    assert_eq!(one("perm_c1").await, "perm_c1", "a complete id is exact");
    assert_eq!(one("perm_c").await, "perm_c1 perm_c10");
    assert_eq!(one("a").await, "ask_c2");
    for nothing in ["", "b", "perm_c2", "PERM", "%", "perm\u{1b}", "ask_c2x", "\u{10ffff}"] {
        assert_eq!(one(nothing).await, "none", "{nothing:?}");
    }
    // The answered one still owns its prefixes: the remaining one is not answered in its place.
    store.decide(&"perm_c1".into(), yes("d"), 30).await.unwrap();
    assert_eq!(one("perm_c").await, "perm_c10 perm_c1", "pending ones first");
    assert_eq!(one("perm_c10").await, "perm_c10");

    let all: Vec<SuspensionId> = ["perm_c1", "perm_c10", "ask_c2"].map(SuspensionId::from).to_vec();
    assert_eq!(store.short_ids(all.clone(), 2).await.unwrap(), ["perm_c1", "perm_c10", "as"]);
    assert_eq!(store.short_ids(all, 99).await.unwrap(), ["perm_c1", "perm_c10", "ask_c2"]);
    for short in ["perm_c1", "perm_c10", "as"] {
        assert!(!one(short).await.contains(' '), "{short}");
    }
}

/// Many ids are shortened by reading all of them, one by looking for its neighbours.
#[tokio::test]
async fn an_id_is_as_short_alone_as_among_all() {
    let store = Store::in_memory().unwrap();
    three(&store).await;
    let all = on_connection(&store, |conn| {
        conn.execute_batch(
            "WITH RECURSIVE many(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM many WHERE i < 40) \
             INSERT INTO suspension (id, thread_id, run_id, call_id, status, created_at, ticket) \
             SELECT 'ask_c' || (i * i), thread_id, run_id, call_id, 'expired', 1, ticket FROM suspension, many \
             WHERE id = 'perm_c1'",
        )
        .unwrap();
        let mut statement = conn.prepare("SELECT id FROM suspension ORDER BY n").unwrap();
        let ids = statement.query_map((), |row| row.get::<_, String>(0)).unwrap();
        ids.map(|id| SuspensionId::from(id.unwrap())).collect::<Vec<_>>()
    })
    .await;
    assert_eq!(all.len(), 43);
    let together = store.short_ids(all.clone(), 2).await.unwrap();
    for (id, short) in all.into_iter().zip(together) {
        assert_eq!(store.short_ids(vec![id], 2).await.unwrap(), [short]);
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Every file of the folder with bytes and mode. The log's index is shared memory: its bytes do not count.
fn files(home: &Home) -> BTreeMap<String, (Vec<u8>, u32)> {
    let folder = home.path().parent().unwrap().to_owned();
    let entry = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let bytes =
            if name.ends_with("-shm") { Vec::new() } else { fs::read(entry.path()).unwrap_or_default() };
        (name, (bytes, mode(&entry.path())))
    };
    fs::read_dir(folder).unwrap().flatten().map(entry).collect()
}

/// Opens a read-only folder and expects the three questions and no change.
async fn checks(home: &Home) {
    for entry in fs::read_dir(home.path().parent().unwrap()).unwrap().flatten() {
        chmod(&entry.path(), 0o400);
    }
    chmod(home.path().parent().unwrap(), 0o500);
    let before = files(home);
    assert_eq!(home.try_open().expect_err("it is read-only").kind(), OpenErrorKind::ReadOnly);
    let store = Store::open_to_read(&home.path()).unwrap();
    assert_eq!(ids(&store, InboxFilter::default()).await, ["perm_c1", "perm_c10", "ask_c2"]);
    assert!(matches!(store.find_suspension("ask").await.unwrap(), SuspensionLookup::One(_)));
    let refused = store.decide(&"perm_c1".into(), yes("d"), 30).await.unwrap_err();
    assert!(matches!(refused, StoreError::ReadOnly), "{refused}");
    assert!(matches!(store.create_thread(thread("t9")).await.unwrap_err(), StoreError::ReadOnly));
    store.close().await;
    assert_eq!(files(home), before);
    chmod(home.path().parent().unwrap(), 0o700);
}

#[tokio::test]
async fn a_read_only_store_can_be_viewed() {
    // Closed cleanly; left by a living process; left by a dead one, without the log's index.
    let closed = Home::new();
    let store = closed.open();
    three(&store).await;
    store.close().await;
    assert_eq!(files(&closed).len(), 1);
    checks(&closed).await;

    let open = Home::new();
    let store = open.open();
    three(&store).await;
    let crashed = open.copy();
    // With the log and its index.
    assert_eq!((files(&open).len(), files(&crashed).len()), (3, 2));
    checks(&crashed).await;
    checks(&open).await;
}

/// A reader sees the commits of a writing process.
#[tokio::test]
async fn a_reader_sees_what_a_writer_commits() {
    let home = Home::new();
    let writer = home.open();
    three(&writer).await;
    let reader = Store::open_to_read(&home.path()).unwrap();
    assert_eq!(reader.waiting_count(None, 30).await.unwrap(), 3);
    writer.decide(&"perm_c1".into(), yes("d"), 30).await.unwrap();
    assert_eq!(reader.waiting_count(None, 30).await.unwrap(), 2);
}

#[tokio::test]
async fn an_older_read_only_store_is_read_from_a_copy() {
    let home = Home::new();
    fs::create_dir_all(home.path().parent().unwrap()).unwrap();
    let raw = home.raw();
    raw.execute_batch(include_str!("../migrations/0001_first.sql")).unwrap();
    raw.execute_batch("PRAGMA application_id = 1635345713; PRAGMA user_version = 1").unwrap();
    raw.execute_batch(
        "INSERT INTO thread (id, title, cwd, created_at, updated_at) VALUES ('t1', 'x', x'2f', 1, 1)",
    )
    .unwrap();
    drop(raw);
    chmod(&home.path(), 0o400);
    let before = files(&home);
    let store = Store::open_to_read(&home.path()).unwrap();
    assert_eq!(store.threads(None).await.unwrap().len(), 1);
    assert_eq!(ids(&store, InboxFilter::default()).await, [""; 0]);
    assert!(matches!(store.create_thread(thread("t9")).await.unwrap_err(), StoreError::ReadOnly));
    store.close().await;
    assert_eq!(files(&home), before);
}

#[test]
fn only_our_own_file_is_read() {
    let home = Home::new();
    fs::create_dir_all(home.path().parent().unwrap()).unwrap();
    let kind = |home: &Home| Store::open_to_read(&home.path()).expect_err("refused").kind();
    assert_eq!(kind(&home), OpenErrorKind::Io, "it does not exist, and is not created");
    assert!(files(&home).is_empty());
    fs::write(home.path(), "dear diary, ".repeat(100)).unwrap();
    assert_eq!(kind(&home), OpenErrorKind::NotOurs);
    fs::remove_file(home.path()).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", home.path()).unwrap();
    assert_eq!(kind(&home), OpenErrorKind::NotAFile);
    // Characters that are special in a URL.
    let odd = home.folder.path().join("a ?b#c%41é").join("aye.db");
    futures::executor::block_on(Store::open(&odd).unwrap().close());
    Store::open_to_read(&odd).unwrap();
}
