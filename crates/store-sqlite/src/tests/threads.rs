//! Threads and their messages.

use super::*;
use crate::ThreadLookup;

#[tokio::test]
async fn a_thread_round_trips() {
    use std::os::unix::ffi::OsStringExt;
    let store = Store::in_memory().unwrap();
    let odd = PathBuf::from(std::ffi::OsString::from_vec(b"/w/\xff\n".to_vec()));
    let record = ThreadRecord { cwd: odd.clone(), title: "a\0b".into(), ..thread("t1") };
    store.create_thread(record.clone()).await.unwrap();
    assert_eq!(store.thread(&"t1".into()).await.unwrap(), Some(record.clone()));
    assert_eq!(store.latest_thread(&odd).await.unwrap(), Some(record));
    assert_eq!(store.thread(&"t2".into()).await.unwrap(), None);
    assert!(matches!(store.create_thread(thread("t1")).await, Err(StoreError::Exists { .. })));
}

#[tokio::test]
async fn lists_show_the_newest_first_with_pending_questions() {
    let store = Store::in_memory().unwrap();
    waiting(&store, None).await;
    let other = ThreadRecord { cwd: "/other".into(), title: "two".into(), ..thread("t2") };
    store.create_thread(other).await.unwrap();
    store.touch(&"t2".into(), 99).await.unwrap();
    store.touch(&"t2".into(), 5).await.unwrap();
    let all = store.threads(None).await.unwrap();
    let seen: Vec<_> = all.iter().map(|s| (s.thread.id.as_str(), s.messages, s.waiting, s.status)).collect();
    assert_eq!(seen, [("t2", 0, 0, None), ("t1", 1, 1, Some(RunStatus::Waiting))]);
    assert_eq!((all[0].thread.title.as_str(), all[0].thread.updated_at), ("two", 99));
    let here = store.threads(Some(Path::new("/work"))).await.unwrap();
    assert_eq!(here.iter().map(|s| s.thread.id.as_str()).collect::<Vec<_>>(), ["t1"]);
    assert!(matches!(store.touch(&"t9".into(), 1).await, Err(StoreError::NoThread(_))));
}

#[tokio::test]
async fn an_id_prefix_is_enough() {
    let store = Store::in_memory().unwrap();
    for id in ["abc", "abcd", "abx:"] {
        store.create_thread(thread(id)).await.unwrap();
    }
    let find = async |prefix: &str| match store.find_thread(prefix).await.unwrap() {
        ThreadLookup::One(found) => vec![found.id.to_string()],
        ThreadLookup::None => Vec::new(),
        ThreadLookup::Many(found) => found.into_iter().map(|t| t.id.to_string()).collect(),
    };
    assert_eq!(find("abc").await, ["abc"]);
    assert_eq!(find("abcd").await, ["abcd"]);
    assert_eq!(find("ab").await.len(), 3);
    assert_eq!(find("abx:").await, ["abx:"]);
    assert_eq!(find("%").await, Vec::<String>::new());
    assert_eq!(find("").await, Vec::<String>::new());
    assert_eq!(find("é").await, Vec::<String>::new());
}

async fn talk(store: &Store, id: &str, n: usize) -> Vec<Message> {
    store.create_thread(thread(id)).await.unwrap();
    let fence = store.acquire(&id.into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let messages: Vec<_> = (1..=n).map(|n| Message::user(format!("message {n}"))).collect();
    let run = run(&format!("run-{id}"), id, RunStatus::Running);
    store.checkpoint(Checkpoint { messages: messages.clone(), ..checkpoint(&fence, &run) }).await.unwrap();
    messages
}

/// Each way to damage a thread, and its error.
#[tokio::test]
async fn damage_closes_one_thread_and_no_other() {
    let ways = [
        ("DELETE FROM message WHERE thread_id = 't1' AND seq = 3", "3 is missing"),
        ("DELETE FROM message WHERE thread_id = 't1' AND seq = 1", "1 is missing"),
        ("DELETE FROM message WHERE thread_id = 't1' AND seq = 5", "1 of its 5 messages"),
        ("UPDATE message SET seq = 9 WHERE thread_id = 't1' AND seq = 5", "5 is missing"),
        ("UPDATE message SET seq = 0 WHERE thread_id = 't1' AND seq = 5", "are not numbered"),
        ("INSERT INTO message SELECT thread_id, 6, run_id, 0, body FROM message WHERE seq = 1", "but 5 were"),
        (
            "UPDATE message SET body = '{\"id\":1' WHERE thread_id = 't1' AND seq = 4",
            "message 4 cannot be read",
        ),
    ];
    for (way, said) in ways {
        let store = Store::in_memory().unwrap();
        talk(&store, "t1", 5).await;
        let other = talk(&store, "t2", 2).await;
        on_connection(&store, move |conn| {
            let way =
                way.replace("FROM message WHERE seq = 1", "FROM message WHERE seq = 1 AND thread_id = 't1'");
            assert_eq!(conn.execute(&way, ()).unwrap(), 1, "{way}");
        })
        .await;
        let error = store.messages(&"t1".into()).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Damaged { thread, .. } if thread.as_str() == "t1"),
            "{way}: {error:?}"
        );
        assert!(error.to_string().contains(said), "{way}: {error}");
        let tail = store.messages_tail(&"t1".into(), 2).await;
        // The last two are whole when one before them is missing: whoever reads all says so, and the check.
        let is_whole = way.starts_with("DELETE") && way.ends_with("= 3");
        assert_eq!(matches!(tail, Err(StoreError::Damaged { .. })), !is_whole, "{way}: {tail:?}");
        assert_eq!(store.messages(&"t2".into()).await.unwrap().len(), other.len());
        let listed = store.threads(None).await.unwrap();
        let damaged =
            |id: &str| listed.iter().find(|t| t.thread.id.as_str() == id).unwrap().damaged.is_some();
        // A list does not read bodies, and reads only the ends: its rows cost the same however long a thread is.
        assert_eq!(damaged("t1"), !way.contains("body =") && !is_whole, "{way}");
        assert!(!damaged("t2"));
        let faults = store.check().await.unwrap();
        let is_found = faults.iter().any(|fault| fault.starts_with("conversation t1: "));
        assert_eq!((is_found, faults.len()), (!way.contains("body ="), usize::from(is_found)), "{faults:?}");
    }
}

/// Without the unique index there can even be two messages at one position.
#[tokio::test]
async fn a_duplicate_position_is_damage() {
    let home = Home::new();
    let store = home.open();
    talk(&store, "t1", 3).await;
    store.close().await;
    home.raw()
        .execute_batch(
            "CREATE TABLE m2 (thread_id TEXT NOT NULL, seq INTEGER NOT NULL, run_id TEXT NOT NULL, \
             created_at INTEGER NOT NULL, body TEXT NOT NULL) STRICT; INSERT INTO m2 SELECT * FROM message; \
             DROP TABLE message; ALTER TABLE m2 RENAME TO message; UPDATE message SET seq = 2 WHERE seq = 3;",
        )
        .unwrap();
    let store = home.open();
    let error = store.messages(&"t1".into()).await.unwrap_err();
    assert!(error.to_string().contains("2 is duplicated"), "{error}");
    assert!(store.threads(None).await.unwrap()[0].damaged.is_some());
}

#[tokio::test]
async fn a_thread_is_deleted_with_everything_it_owns() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
    talk(&store, "t2", 2).await;
    let state = BTreeMap::from([("todo".to_owned(), json!([1]))]);
    store.checkpoint(Checkpoint { thread_state: Some(state), ..checkpoint(&fence, &run) }).await.unwrap();
    store.begin(begin(&fence, &run, "c2", 1, None)).await.unwrap();
    store.append_output(&fence, &attempt("r1", "c2", 1), "out".into()).await.unwrap();

    let refused =
        store.delete_thread(&"t1".into(), &owner("you"), |_| Liveness::Yes, by()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Owned { .. }), "{refused}");
    assert!(store.delete_thread(&"t1".into(), &owner("you"), |_| Liveness::No, by()).await.unwrap());
    assert!(!store.delete_thread(&"t1".into(), &owner("you"), |_| Liveness::No, by()).await.unwrap());
    for table in
        ["message", "thread_state", "lease", "run", "suspension", "intent", "output", "output_size", "thread"]
    {
        let left: i64 = on_connection(&store, move |conn| {
            conn.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get(0)).unwrap()
        })
        .await;
        let other = match table {
            "message" => 2,
            "lease" | "run" | "thread" => 1,
            _ => 0,
        };
        assert_eq!(left, other, "{table}");
    }
    let late = store.checkpoint(checkpoint(&fence, &run)).await.unwrap_err();
    assert!(matches!(late, StoreError::Fenced { .. }), "{late}");
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

/// SQLite stores any bytes as text. Invalid UTF-8 closes its own thread, and nothing else.
#[tokio::test]
async fn text_that_is_not_utf8_is_damage_of_one_thread() {
    let store = Store::in_memory().unwrap();
    let (fence, _) = waiting(&store, None).await;
    talk(&store, "t2", 2).await;
    store.remember_prompt(Path::new("/w"), "a").await.unwrap();
    on_connection(&store, |conn| {
        conn.execute_batch(
            "UPDATE thread SET title = CAST(X'41FF' AS TEXT) WHERE id = 't1'; \
             UPDATE message SET body = CAST(X'22FF22' AS TEXT) WHERE thread_id = 't1'; \
             UPDATE run SET body = CAST(X'FF' AS TEXT) WHERE id = 'r1'; UPDATE prompt SET text = CAST(X'FF' AS TEXT); \
             UPDATE suspension SET ticket = CAST(X'FF' AS TEXT) WHERE id = 'q1'; \
             INSERT INTO thread_state VALUES ('t1', CAST(X'FF' AS TEXT))",
        )
        .unwrap();
    })
    .await;
    assert_eq!(store.threads(None).await.unwrap().len(), 2);
    assert_eq!(store.thread(&"t1".into()).await.unwrap().unwrap().title, "A\u{fffd}");
    let errors = [
        store.messages(&"t1".into()).await.unwrap_err(),
        store.run(&"r1".into()).await.unwrap_err(),
        store.suspension(&"q1".into()).await.unwrap_err(),
        store.thread_state(&"t1".into()).await.unwrap_err(),
        store.decide(&"q1".into(), yes("d1"), 1).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(&error, StoreError::Damaged { thread, .. } if thread.as_str() == "t1"), "{error:?}");
    }
    assert_eq!(store.messages(&"t2".into()).await.unwrap().len(), 2);
    assert_eq!(store.unfinished_runs().await.unwrap().len(), 1);
    assert_eq!(store.suspensions(crate::SuspensionFilter::default()).await.unwrap(), Vec::new());
    assert_eq!(store.prompts(Path::new("/w"), 9).await.unwrap(), ["\u{fffd}"]);
    store.release(&fence).await.unwrap();
    assert!(store.delete_thread(&"t1".into(), &owner("me"), |_| Liveness::No, by()).await.unwrap());
}

#[tokio::test]
async fn a_list_is_paged_without_sorting_and_counts_only_what_it_shows() {
    let home = Home::new();
    let store = home.open();
    for n in 0..30_u64 {
        store.create_thread(ThreadRecord { updated_at: n, ..thread(&format!("t{n:02}")) }).await.unwrap();
    }
    store.pin_thread(&"t03".into(), Some(1)).await.unwrap();
    let ids = async |offset, limit| -> Vec<String> {
        let page = store.threads_page(None, offset, limit).await.unwrap();
        page.into_iter().map(|row| row.thread.id.to_string()).collect()
    };
    assert_eq!(ids(0, Some(3)).await, ["t03", "t29", "t28"]);
    assert_eq!(ids(3, Some(2)).await, ["t27", "t26"]);
    assert_eq!(ids(28, Some(9)).await, ["t01", "t00"]);
    let all = ids(0, None).await;
    assert_eq!(
        all,
        store.threads(None).await.unwrap().iter().map(|t| t.thread.id.to_string()).collect::<Vec<_>>()
    );
    assert_eq!(store.threads_page(Some(Path::new("/work")), 29, None).await.unwrap().len(), 1);
    assert_eq!(ids(0, Some(0)).await, Vec::<String>::new());

    // This keeps it fast with a hundred thousand threads.
    let conn = home.raw();
    let plan = |sql: &str| -> String {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        rows.collect::<Result<Vec<_>, _>>().unwrap().join("\n")
    };
    let listed = plan(
        &crate::threads::list_sql(false)
            .replace("?1", "NULL")
            .replace("?2", "'x'")
            .replace("?3", "5")
            .replace("?4", "0"),
    );
    assert!(listed.contains("thread_order"), "{listed}");
    assert!(
        !listed.contains("TEMP B-TREE") && !listed.contains("SCAN s") && !listed.contains("SCAN m"),
        "{listed}"
    );
    assert!(!listed.contains("suspension_open"), "every question is checked for each row: {listed}");
    let inbox = (1..5).fold(crate::inbox::INBOX.to_owned(), |sql, n| sql.replace(&format!("?{n}"), "NULL"));
    let waiting = plan(&inbox);
    assert!(waiting.contains("suspension_waiting") && !waiting.contains("TEMP B-TREE"), "{waiting}");
}
