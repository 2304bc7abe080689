//! The path, the author of the file, its modes and settings.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::OpenErrorKind;
use crate::open::PAGE_SIZE;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Creates the store's folder and writes these bytes as its file.
fn put(home: &Home, bytes: &[u8]) {
    fs::create_dir_all(home.path().parent().unwrap()).unwrap();
    fs::write(home.path(), bytes).unwrap();
}

fn refusal(home: &Home) -> OpenError {
    home.try_open().expect_err("it must be refused")
}

#[tokio::test]
async fn connection_settings_are_durable_and_safe() {
    let home = Home::new();
    let store = home.open();
    for (setting, wanted) in [
        ("synchronous", 2),
        ("foreign_keys", 1),
        ("trusted_schema", 0),
        ("busy_timeout", 5000),
        ("user_version", crate::open::our_version()),
    ] {
        let found: i64 = on_connection(&store, move |conn| {
            conn.query_row(&format!("PRAGMA {setting}"), (), |row| row.get(0)).unwrap()
        })
        .await;
        assert_eq!(found, wanted, "{setting}");
    }
    let journal: String =
        on_connection(&store, |conn| conn.query_row("PRAGMA journal_mode", (), |row| row.get(0)).unwrap())
            .await;
    assert_eq!(journal, "wal");
}

#[tokio::test]
async fn a_statement_is_planned_once_for_any_parameters() {
    let home = Home::new();
    let store = home.open();
    // The table has a partial index: whether the values match it would be checked on each use.
    let sql = "SELECT body FROM run WHERE thread_id = ?1 ORDER BY n DESC LIMIT 1";
    let planned = on_connection(&store, move |conn| {
        for thread in ["a", "b", "c"] {
            assert!(!conn.prepare_cached(sql).unwrap().exists((thread,)).unwrap());
        }
        conn.prepare_cached(sql).unwrap().get_status(rusqlite::StatementStatus::RePrepare)
    });
    assert_eq!(planned.await, 0);
}

#[tokio::test]
async fn new_files_are_private() {
    let home = Home::new();
    let store = home.open();
    waiting(&store, None).await;
    assert_eq!(mode(home.path().parent().unwrap()), 0o700);
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(&super::super::rows::with_suffix(&home.path(), suffix)), 0o600, "{suffix}");
    }
}

#[tokio::test]
async fn a_closed_store_is_one_file_and_refuses_requests() {
    let home = Home::new();
    let store = home.open();
    waiting(&store, None).await;
    let other = store.clone();
    store.close().await;
    store.close().await;
    assert!(!super::super::rows::with_suffix(&home.path(), "-wal").exists());
    assert!(matches!(other.threads(None).await, Err(StoreError::Closed)));
    assert_eq!(home.open().threads(None).await.unwrap().len(), 1);
}

#[test]
fn a_newer_store_is_refused_and_left_alone() {
    let home = Home::new();
    home.make();
    home.raw().pragma_update(None, "user_version", 99).unwrap();
    let before = fs::read(home.path()).unwrap();
    let error = refusal(&home);
    assert_eq!(error.kind(), OpenErrorKind::NewerVersion);
    let text = error.to_string();
    assert!(text.contains("99") && text.contains(&crate::open::our_version().to_string()), "{text}");
    assert_eq!(fs::read(home.path()).unwrap(), before);
}

#[test]
fn files_of_others_are_refused_and_left_alone() {
    let text = Home::new();
    put(&text, "dear diary, ".repeat(1000).as_bytes());
    assert_eq!(refusal(&text).kind(), OpenErrorKind::NotOurs);
    assert!(fs::read(text.path()).unwrap().starts_with(b"dear diary"));

    let foreign = Home::new();
    put(&foreign, b"");
    foreign.raw().execute_batch("CREATE TABLE moz_places (id INTEGER)").unwrap();
    let before = fs::read(foreign.path()).unwrap();
    let error = refusal(&foreign);
    assert_eq!(error.kind(), OpenErrorKind::NotOurs);
    assert!(error.to_string().contains("that aye did not create"), "{error}");
    assert_eq!(fs::read(foreign.path()).unwrap(), before);

    foreign.raw().pragma_update(None, "application_id", 0x42).unwrap();
    let error = refusal(&foreign).to_string();
    assert!(error.contains("0x42"), "{error}");
    assert!(!super::super::rows::with_suffix(&foreign.path(), "-wal").exists());
}

#[test]
fn the_log_of_a_foreign_file_is_not_folded_in() {
    let home = Home::new();
    put(&home, b"");
    let theirs = home.raw();
    theirs.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE x (y); INSERT INTO x VALUES (1)").unwrap();
    let copy = home.copy();
    let before = fs::read(copy.path()).unwrap();
    assert_eq!(refusal(&copy).kind(), OpenErrorKind::NotOurs);
    assert_eq!(fs::read(copy.path()).unwrap(), before);
    assert!(super::super::rows::with_suffix(&copy.path(), "-wal").exists());
}

#[test]
fn irregular_files_are_refused_by_name() {
    let folder = Home::new();
    fs::create_dir_all(folder.path()).unwrap();
    let link = Home::new();
    put(&link, b"");
    fs::rename(link.path(), link.path().with_extension("real")).unwrap();
    std::os::unix::fs::symlink(link.path().with_extension("real"), link.path()).unwrap();
    let dangling = Home::new();
    put(&dangling, b"");
    fs::remove_file(dangling.path()).unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", dangling.path()).unwrap();
    let pipe = Home::new();
    put(&pipe, b"");
    fs::remove_file(pipe.path()).unwrap();
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, pipe.path(), kind, rustix::fs::Mode::from(0o600), 0).unwrap();
    for (home, what) in [
        (&folder, "a directory"),
        (&link, "a symbolic link"),
        (&dangling, "a symbolic link"),
        (&pipe, "a pipe"),
    ] {
        let error = refusal(home);
        assert_eq!(error.kind(), OpenErrorKind::NotAFile);
        assert!(error.to_string().contains(what), "{error}");
    }
    assert_eq!(fs::read(link.path().with_extension("real")).unwrap(), b"");
    assert_eq!(Store::open(Path::new("/")).expect_err("no file").kind(), OpenErrorKind::NotAFile);
}

#[test]
fn a_linked_log_is_refused() {
    let home = Home::new();
    home.make();
    let wal = super::super::rows::with_suffix(&home.path(), "-wal");
    let _ = fs::remove_file(&wal);
    std::os::unix::fs::symlink("/etc/passwd", &wal).unwrap();
    assert_eq!(refusal(&home).kind(), OpenErrorKind::NotAFile);
}

#[test]
fn a_linked_folder_is_fine() {
    let home = Home::new();
    home.make();
    let link = home.folder.path().join("link");
    std::os::unix::fs::symlink(home.path().parent().unwrap(), &link).unwrap();
    let store = Store::open(&link.join("aye.db")).unwrap();
    assert_eq!(store.path(), Some(home.path().canonicalize().unwrap().as_path()));
}

#[tokio::test]
async fn wide_modes_of_an_older_version_are_tightened() {
    let home = Home::new();
    let store = home.open();
    waiting(&store, None).await;
    let copy = home.copy();
    chmod(copy.path().parent().unwrap(), 0o755);
    let wal = super::super::rows::with_suffix(&copy.path(), "-wal");
    chmod(&copy.path(), 0o644);
    chmod(&wal, 0o644);
    let store = copy.open();
    assert_eq!(store.threads(None).await.unwrap().len(), 1);
    assert_eq!(mode(copy.path().parent().unwrap()), 0o700);
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(&super::super::rows::with_suffix(&copy.path(), suffix)), 0o600, "{suffix}");
    }
}

#[test]
fn a_shared_sticky_folder_is_not_closed_to_others() {
    let home = Home::new();
    fs::create_dir_all(home.path().parent().unwrap()).unwrap();
    chmod(home.path().parent().unwrap(), 0o1777);
    home.make();
    assert_eq!(mode(home.path().parent().unwrap()), 0o777);
}

#[test]
fn a_read_only_file_or_folder_is_named() {
    let file = Home::new();
    drop(file.open());
    chmod(&file.path(), 0o400);
    let error = refusal(&file);
    assert_eq!(error.kind(), OpenErrorKind::ReadOnly);
    assert!(error.to_string().contains("aye.db"), "{error}");
    assert_eq!(mode(&file.path()), 0o400);

    let folder = Home::new();
    drop(folder.open());
    chmod(folder.path().parent().unwrap(), 0o500);
    let error = refusal(&folder);
    chmod(folder.path().parent().unwrap(), 0o700);
    assert_eq!(error.kind(), OpenErrorKind::ReadOnly);
    assert!(error.to_string().contains("data"), "{error}");
}

#[test]
fn a_store_locked_by_another_process_is_named() {
    let home = Home::new();
    home.make();
    let other = home.raw();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let error = refusal(&home);
    assert_eq!(error.kind(), OpenErrorKind::Locked);
    assert!(error.to_string().contains("locked"), "{error}");
}

#[tokio::test]
async fn a_writer_that_waits_too_long_fails_and_nothing_is_written() {
    let home = Home::new();
    let store = home.try_open().unwrap();
    let other = home.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.create_thread(thread("t1")).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    assert_eq!(store.threads(None).await.unwrap(), Vec::new());
    other.execute_batch("ROLLBACK").unwrap();
    store.create_thread(thread("t1")).await.unwrap();
}

#[tokio::test]
async fn a_full_disk_acknowledges_nothing_and_breaks_nothing() {
    let home = Home::new();
    let store = home.open();
    let (fence, run) = waiting(&store, None).await;
    on_connection(&store, |conn| {
        let pages: i64 = conn.query_row("PRAGMA page_count", (), |row| row.get(0)).unwrap();
        let _: i64 =
            conn.query_row(&format!("PRAGMA max_page_count = {pages}"), (), |row| row.get(0)).unwrap();
    })
    .await;
    let long =
        Checkpoint { messages: vec![Message::user("x".repeat(1_000_000))], ..checkpoint(&fence, &run) };
    let error = store.checkpoint(long.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::Full), "{error}");
    assert!(error.to_string().contains("disk is full"));
    assert_eq!(store.message_count(&"t1".into()).await.unwrap(), 1);
    on_connection(&store, |conn| {
        let _: i64 = conn.query_row("PRAGMA max_page_count = 1000000", (), |row| row.get(0)).unwrap();
    })
    .await;
    store.checkpoint(long).await.unwrap();
    assert_eq!(store.messages(&"t1".into()).await.unwrap().len(), 2);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_truncated_file_is_reported_as_damaged() {
    let home = Home::new();
    let store = home.open();
    waiting(&store, None).await;
    store.close().await;
    let bytes = fs::read(home.path()).unwrap();
    fs::write(home.path(), &bytes[..bytes.len() / 2]).unwrap();
    let error = refusal(&home);
    assert_eq!(error.kind(), OpenErrorKind::Corrupt, "{error}");

    fs::write(home.path(), [b"garbage!".repeat(512), bytes[4096..].to_vec()].concat()).unwrap();
    assert_eq!(refusal(&home).kind(), OpenErrorKind::NotOurs);
}

#[test]
fn a_network_file_system_is_refused_with_the_settings_that_move_the_store() {
    let home = Home::new();
    let error = crate::open::prepare(&home.path(), |folder| {
        assert_eq!(folder, home.path().parent().unwrap().canonicalize().unwrap());
        Some("nfs".to_owned())
    })
    .unwrap_err();
    let text = error.to_string();
    assert!(
        ["(nfs)", "AYE_HOME", "XDG_DATA_HOME", "--ephemeral"].iter().all(|it| text.contains(it)),
        "{text}"
    );
    assert!(!home.path().exists(), "no store was made there");
}

#[tokio::test]
async fn a_locked_store_cannot_be_opened_and_an_open_one_cannot_be_locked() {
    let home = Home::new();
    let store = home.open();
    waiting(&store, None).await;
    let refused = Store::lock(&home.path()).unwrap_err();
    assert_eq!(refused.kind(), OpenErrorKind::Locked, "{refused}");
    store.leave().await;
    let lock = Store::lock(&home.path()).unwrap();
    assert_eq!(home.try_open().unwrap_err().kind(), OpenErrorKind::Locked);
    drop(lock);
    assert_eq!(home.open().threads(None).await.unwrap().len(), 1, "the log is as it was");
}

#[tokio::test]
async fn warming_creates_the_log_and_changes_nothing() {
    let home = Home::new();
    let log = super::super::rows::with_suffix(&home.path(), "-wal");
    home.open().close().await;
    let before = fs::read(home.path()).unwrap();
    let store = home.open();
    store.warm().await;
    assert!(fs::metadata(&log).unwrap().len() > 0);
    store.close().await;
    let after = fs::read(home.path()).unwrap();
    // The file's change counters are at 24 and 92.
    let counters = [24..28, 92..96];
    let differs = |at: &usize| before[*at] != after[*at] && !counters.iter().any(|c| c.contains(at));
    assert_eq!(before.len(), after.len());
    assert_eq!((0..before.len()).find(differs), None);
}

#[tokio::test]
async fn a_first_message_finds_its_statements_planned_and_no_rehearsal_data() {
    let home = Home::new();
    let store = home.open();
    store.warm().await;
    assert!(store.threads(None).await.unwrap().is_empty());
    assert!(store.all_prompts(10).await.unwrap().is_empty());
    assert!(store.audit(crate::AuditFilter::default()).await.unwrap().is_empty());
    // SQLite counts the runs of planned statements only.
    let of_message = on_connection(&store, |conn| {
        let sql = "SELECT thread_id, id, body FROM run WHERE thread_id = ?1 ORDER BY n DESC LIMIT 1";
        conn.prepare_cached(sql).unwrap().get_status(rusqlite::StatementStatus::Run)
    });
    assert_eq!(of_message.await, 2, "once for the run, once for the reader");
}

#[tokio::test]
async fn leaving_a_store_keeps_a_short_log_and_loses_nothing() {
    let home = Home::new();
    let log = super::super::rows::with_suffix(&home.path(), "-wal");
    let store = home.open();
    waiting(&store, None).await;
    store.leave().await;
    assert!(log.exists(), "the next start creates a new one");
    assert_eq!(mode(&log), 0o600);
    let store = home.open();
    assert_eq!(status(&store, "q1").await, SuspensionStatus::Open);
    let fence = store.acquire(&"t1".into(), &owner("you"), None, |_| Liveness::No).await.unwrap();
    let run = run("r1", "t1", RunStatus::Waiting);
    let messages = vec![Message::user("x".repeat(600 * 1024))];
    store.checkpoint(Checkpoint { messages, ..checkpoint(&fence, &run) }).await.unwrap();
    store.leave().await;
    assert!(!log.exists(), "a long log is checkpointed into the file");
    assert_eq!(home.open().message_count(&"t1".into()).await.unwrap(), 2);
}

#[tokio::test]
async fn destroyed_pages_are_named_and_do_not_panic() {
    let home = Home::new();
    let store = home.open();
    let (fence, run) = waiting(&store, None).await;
    let messages = (0..200).map(|n| Message::user(format!("{n} {}", "x".repeat(500)))).collect();
    store.checkpoint(Checkpoint { messages, ..checkpoint(&fence, &run) }).await.unwrap();
    store.close().await;
    let whole = fs::read(home.path()).unwrap();
    for page in 1..whole.len() / PAGE_SIZE {
        let mut bytes = whole.clone();
        bytes[page * PAGE_SIZE..(page + 1) * PAGE_SIZE].fill(0xA5);
        fs::write(home.path(), bytes).unwrap();
        let Ok(store) = home.try_open() else { continue };
        let read = store.messages(&"t1".into()).await;
        let listed = store.threads(None).await;
        let found = store.check().await;
        assert!(found.is_err() || !found.unwrap().is_empty(), "damage of page {page} is not detected");
        for error in [read.err(), listed.err()].into_iter().flatten() {
            assert!(
                matches!(error, StoreError::Corrupt(_) | StoreError::Damaged { .. }),
                "page {page}: {error:?}"
            );
        }
        store.close().await;
    }
}

#[tokio::test]
async fn an_empty_file_with_a_log_is_damaged_and_an_empty_one_is_new() {
    let home = Home::new();
    let store = home.open();
    waiting(&store, None).await;
    let copy = home.copy();
    fs::write(copy.path(), b"").unwrap();
    assert_eq!(refusal(&copy).kind(), OpenErrorKind::Corrupt);
    fs::remove_file(super::super::rows::with_suffix(&copy.path(), "-wal")).unwrap();
    assert_eq!(copy.open().threads(None).await.unwrap(), Vec::new());
}

#[tokio::test]
async fn missing_or_corrupt_shared_memory_is_rebuilt() {
    let home = Home::new();
    let store = home.open();
    waiting(&store, None).await;
    for garbage in [None, Some(vec![0xA5; 32 * 1024]), Some(Vec::new())] {
        let copy = home.copy();
        if let Some(bytes) = garbage {
            fs::write(super::super::rows::with_suffix(&copy.path(), "-shm"), bytes).unwrap();
        }
        let store = copy.open();
        assert_eq!(store.messages(&"t1".into()).await.unwrap().len(), 1);
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    }
}

#[test]
fn a_failed_creation_leaves_no_files() {
    let home = Home::new();
    fs::create_dir_all(home.path().parent().unwrap()).unwrap();
    chmod(home.path().parent().unwrap(), 0o500);
    assert_eq!(refusal(&home).kind(), OpenErrorKind::ReadOnly);
    chmod(home.path().parent().unwrap(), 0o700);
    assert_eq!(fs::read_dir(home.path().parent().unwrap()).unwrap().count(), 0);
    fs::remove_dir(home.path().parent().unwrap()).unwrap();
    fs::write(home.path().parent().unwrap(), "a file where the folder should be").unwrap();
    assert_eq!(refusal(&home).kind(), OpenErrorKind::Io);
}

#[test]
fn code_in_the_schema_is_refused() {
    let home = Home::new();
    home.make();
    home.raw()
        .execute_batch("CREATE TRIGGER evil AFTER INSERT ON message BEGIN DELETE FROM thread; END")
        .unwrap();
    let error = refusal(&home);
    assert_eq!(error.kind(), OpenErrorKind::Corrupt);
    assert!(error.to_string().contains("trigger evil"), "{error}");
}

#[test]
fn a_missing_table_is_named() {
    let home = Home::new();
    home.make();
    home.raw().execute_batch("DROP TABLE grant_row").unwrap();
    let error = refusal(&home);
    assert_eq!(error.kind(), OpenErrorKind::Corrupt);
    assert!(error.to_string().contains("grant_row"), "{error}");
}

#[test]
fn many_processes_may_create_the_same_store_at_once() {
    for _ in 0..20 {
        let home = Home::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| home.open());
            }
        });
        assert_eq!(
            home.raw().query_row("PRAGMA quick_check", (), |row| row.get::<_, String>(0)).unwrap(),
            "ok"
        );
        let names = std::fs::read_dir(home.path().parent().unwrap()).unwrap();
        assert!(
            names.into_iter().all(|name| name.unwrap().file_name().to_string_lossy().starts_with("aye.db"))
        );
    }
}
