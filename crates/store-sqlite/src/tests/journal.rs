//! Checkpoints, starts, leases, output.

use std::sync::Arc;

use super::*;
use aye_core::contract::clock::Clock;
use aye_store_suite::{TestClock, TestTime as _};

/// A transaction reads first and writes later; another process writing in between must only delay it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_two_processes_wait_for_each_other() {
    let home = Home::new();
    let mut writers = Vec::new();
    for who in ["a", "b"] {
        let store = home.open();
        on_connection(&store, |conn| conn.execute_batch("PRAGMA synchronous = OFF").unwrap()).await;
        writers.push(tokio::spawn(async move {
            store.create_thread(thread(who)).await.unwrap();
            let fence = store.acquire(&who.into(), &owner(who), None, |_| Liveness::Yes).await.unwrap();
            let run = run(who, who, RunStatus::Running);
            for n in 0..300 {
                let messages = vec![Message::user(format!("{n}"))];
                store.checkpoint(Checkpoint { messages, ..checkpoint(&fence, &run) }).await.unwrap();
            }
            store.messages(&who.into()).await.unwrap().len()
        }));
    }
    for writer in writers {
        assert_eq!(writer.await.unwrap(), 300);
    }
}

#[tokio::test]
async fn an_unreadable_run_does_not_hide_the_others() {
    let store = Store::in_memory().unwrap();
    let (fence, first) = waiting(&store, None).await;
    store.checkpoint(checkpoint(&fence, &run("r2", "t1", RunStatus::Running))).await.unwrap();
    on_connection(&store, |conn| conn.execute("UPDATE run SET body = '[]' WHERE id = 'r2'", ()).unwrap())
        .await;
    assert_eq!(store.unfinished_runs().await.unwrap(), [first]);
    assert!(matches!(store.run(&"r2".into()).await, Err(StoreError::Damaged { .. })));
}

#[tokio::test]
async fn a_panicking_predicate_fails_only_its_own_request() {
    let store = Store::in_memory().unwrap();
    waiting(&store, None).await;
    let error = store.acquire(&"t1".into(), &owner("you"), None, |_| panic!("no /proc")).await.unwrap_err();
    assert!(matches!(error, AcquireError::Store(StoreError::Closed)), "{error}");
    store.acquire(&"t1".into(), &owner("you"), None, |_| Liveness::No).await.unwrap();
}

#[tokio::test]
async fn long_output_keeps_its_ends() {
    const HALF: usize = 128 * 1024;
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
    let missing = store.append_output(&fence, &attempt("r1", "c9", 1), "x".into()).await.unwrap_err();
    assert!(matches!(missing, StoreError::NotStarted { .. }));
    assert_eq!(store.output(&attempt("r1", "c9", 1)).await.unwrap(), "");
    let synchronous: i64 =
        on_connection(&store, |conn| conn.query_row("PRAGMA synchronous", (), |row| row.get(0)).unwrap())
            .await;
    assert_eq!(synchronous, 2, "all other requests wait for the disk, also after a failure");
    // Three bytes per character: no truncation may split one.
    for (n, sizes) in
        [vec![400_000], vec![1; 40], vec![70_000; 9], vec![10, 300_000, 10, 90_000, 7]].iter().enumerate()
    {
        let id = attempt("r1", "c2", n as u32 + 1);
        store.begin(begin(&fence, &run, "c2", n as u32 + 1, None)).await.unwrap();
        let mut whole = String::new();
        for (i, size) in sizes.iter().enumerate() {
            let chunk = char::from_u32(0x4E00 + i as u32).unwrap().to_string().repeat(*size);
            whole.push_str(&chunk);
            store.append_output(&fence, &id, chunk).await.unwrap();
        }
        let kept = store.output(&id).await.unwrap();
        if whole.len() <= 2 * HALF {
            assert_eq!(kept, whole);
            continue;
        }
        let (head, rest) = kept.split_once("\n[... ").unwrap();
        let (dropped, tail) = rest.split_once(" bytes left out ...]\n").unwrap();
        assert!(whole.starts_with(head) && whole.ends_with(tail));
        assert!(head.len() > HALF - 3 && head.len() <= HALF, "{}", head.len());
        assert!(tail.len() > HALF - 16 * 1024 && tail.len() <= HALF, "{}", tail.len());
        assert_eq!(head.len() + dropped.parse::<usize>().unwrap() + tail.len(), whole.len());
    }
}

#[tokio::test]
async fn unreadable_values_are_not_written() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
    let nested = |depth| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    let mut refused = 0;
    for depth in 100..140 {
        let message = Message { metadata: Some(nested(depth)), ..Message::user("deep") };
        match store.checkpoint(Checkpoint { messages: vec![message], ..checkpoint(&fence, &run) }).await {
            Ok(()) => {}
            Err(StoreError::Unwritable { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        store.messages(&"t1".into()).await.expect("written rows are readable");
    }
    assert!(refused > 5);
}

#[tokio::test]
async fn a_lease_in_another_clock_ends_by_the_wall_clock() {
    // Where boots cannot be told apart, only the lock says that the owner of before has ended.
    if aye_platform::boot_id().is_empty() {
        return;
    }
    let home = Home::new();
    let store = home.open();
    waiting(&store, None).await;
    // The clock of the machine that it is read on started when its owner's clock was at an hour.
    let clock = Arc::new(TestClock::default());
    let there = home.open().with_clock(Arc::new(Later(clock.clone())));
    let store = store.with_clock(clock.clone());
    let elsewhere = Owner { boot_id: "elsewhere".into(), ..owner("them") };
    let acquire = async |store: &Store, who: &Owner, length| {
        store.acquire(&"t1".into(), who, Some(length), |_| Liveness::Unknown).await
    };
    let left = async || store.lease(&"t1".into()).await.unwrap().unwrap().left.unwrap();
    let [second, minute] = [1, 60].map(Duration::from_secs);
    let theirs = acquire(&there, &elsewhere, minute).await.unwrap();
    assert_eq!(left().await, minute);
    clock.pass(second * 59).await;
    assert_eq!(left().await, second);
    assert!(acquire(&store, &owner("me"), second).await.is_err());
    // A longer renewal and a shorter one.
    assert_eq!(there.renew(&theirs, 2 * minute).await.unwrap(), Some(2 * minute));
    assert_eq!(there.renew(&theirs, minute).await.unwrap(), Some(2 * minute));
    assert_eq!(left().await, 2 * minute);
    clock.pass(2 * minute).await;
    assert_eq!(left().await, Duration::ZERO);
    // As an earlier version wrote it: nobody knows when it was, and the machine was started again since.
    on_connection(&store, |conn| {
        conn.execute("UPDATE lease SET until = 1 << 60, renewed_at = NULL, length = NULL", ()).unwrap();
    })
    .await;
    let lease = store.lease(&"t1".into()).await.unwrap().unwrap();
    assert_eq!(lease.left, Some(Duration::ZERO));
}

/// The clock of a machine that started an hour before another one.
struct Later(Arc<TestClock>);

impl Clock for Later {
    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }

    fn uptime_ms(&self) -> u64 {
        self.0.uptime_ms() + 3_600_000
    }
}

/// Returns the number of pages that a request appends to the log.
async fn pages_of<T>(home: &Home, work: impl Future<Output = T>) -> u64 {
    let length = || std::fs::metadata(crate::rows::with_suffix(&home.path(), "-wal")).unwrap().len();
    let before = length();
    work.await;
    (length() - before) / (crate::open::PAGE_SIZE as u64 + 24)
}

/// What a step of a run has to write is in the pages that it changes; an index over what stays the same is not one of them.
#[tokio::test]
async fn a_step_writes_no_index_of_what_it_leaves() {
    let home = Home::new();
    let store = home.open();
    let (fence, run) = waiting(&store, None).await;
    let run = RunRecord { status: RunStatus::Running, ..run };
    store.checkpoint(checkpoint(&fence, &run)).await.unwrap();
    let later = RunRecord { updated_at: run.updated_at + 1, steps: 7, ..run.clone() };
    assert_eq!(pages_of(&home, store.checkpoint(checkpoint(&fence, &later))).await, 1, "the run");
    let mut said = 0;
    let mut send = async |run: &RunRecord| {
        said += 1;
        let messages = vec![Message::user(format!("{said}"))];
        pages_of(&home, store.checkpoint(Checkpoint { messages, ..checkpoint(&fence, run) })).await
    };
    send(&later).await;
    assert_eq!(send(&later).await, 3, "the thread, the message and its place");
    // The list shows when a thread was changed, to the minute while its run goes on.
    let minute = RunRecord { updated_at: later.updated_at + 60_000, ..later.clone() };
    assert_eq!(send(&minute).await, 6, "the run and the two orders of the list, too");
    let times = async || store.thread(&"t1".into()).await.unwrap().unwrap().updated_at;
    assert_eq!(times().await, minute.updated_at);
    // A new run makes its conversation the newest one; here it is.
    let next = |id: &str, later| RunRecord {
        id: id.into(),
        updated_at: minute.updated_at + later,
        ..minute.clone()
    };
    store.checkpoint(checkpoint(&fence, &next("r2", 1))).await.unwrap();
    assert_eq!(times().await, minute.updated_at);
    store.ensure_thread(ThreadRecord { updated_at: minute.updated_at + 2, ..thread("t2") }).await.unwrap();
    store.checkpoint(checkpoint(&fence, &next("r3", 3))).await.unwrap();
    assert_eq!(times().await, minute.updated_at + 3);
    // Whether it is does not take a walk through all conversations.
    let plan = on_connection(&store, |conn| {
        let sql = format!("EXPLAIN QUERY PLAN {}", crate::threads::touch_for_run_sql());
        let mut statement = conn.prepare(&sql).unwrap();
        let rows = statement.query_map((1, 2, 3), |row| row.get::<_, String>(3)).unwrap();
        rows.collect::<Result<Vec<_>, _>>().unwrap()
    });
    let plan = plan.await;
    let walks = plan.iter().filter(|line| line.starts_with("SCAN") && !line.starts_with("SCAN CONSTANT"));
    assert_eq!(walks.count(), 0, "{plan:#?}");
}
