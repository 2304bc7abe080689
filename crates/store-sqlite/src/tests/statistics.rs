//! Activity counts.

use super::*;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::statistics::{Tally, TallyKind};

fn said(model: &str, tokens: [i64; 3], duration_ms: u64) -> Message {
    let mut message = Message::assistant("Noon.");
    let [input, output, cached] = tokens;
    let usage = json!({"prompt_tokens": input, "completion_tokens": output, "cache_read_tokens": cached});
    message.metadata = Some(json!({"model": model, "usage": usage, "duration_ms": duration_ms}));
    message
}

/// An answer with a call, a question about it, its approval, its execution, a second answer.
async fn story(store: &Store) -> (Fence, RunRecord) {
    let (fence, run) = waiting(store, None).await;
    let messages = vec![said("m1", [100, 20, 60], 1500)];
    store.checkpoint(Checkpoint { messages, ..checkpoint(&fence, &run) }).await.unwrap();
    store.decide(&"q1".into(), yes("d1"), 35).await.unwrap();
    store.begin(begin(&fence, &run, "c1", 1, Some(("q1", "d1")))).await.unwrap();
    let ended = outcome(attempt("r1", "c1", 1), OutcomeKind::Returned);
    let mut none = said("m1", [0, 0, 0], 500);
    none.metadata = Some(json!({"model": "m1", "usage": null, "duration_ms": 500}));
    let messages = vec![Message::tool("c1", "noon"), none, said("m2", [i64::MAX, -5, 1], 7)];
    store
        .checkpoint(Checkpoint { messages, outcomes: vec![ended], ..checkpoint(&fence, &run) })
        .await
        .unwrap();
    (fence, run)
}

fn wanted() -> Vec<Tally> {
    let row = |kind, name: &str, numbers: [u64; 6]| {
        let [count, failed, input, output, cached, duration_ms] = numbers;
        let name = name.into();
        Tally { from: 0, kind, name, count, failed, input, output, cached, written: 0, duration_ms }
    };
    vec![
        row(TallyKind::Call, "Bash", [1, 0, 0, 0, 0, 10]),
        row(TallyKind::Inference, "m1", [2, 0, 100, 20, 60, 2000]),
        row(TallyKind::Inference, "m2", [1, 0, 2_147_483_647, 0, 1, 7]),
        row(TallyKind::Wait, "Bash", [1, 0, 0, 0, 0, 15]),
    ]
}

#[tokio::test]
async fn activity_is_counted_and_outlives_its_thread() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = story(&store).await;
    assert_eq!(store.tallies(None).await.unwrap(), wanted());
    // Repeating the decision is not a second one.
    store.decide(&"q1".into(), yes("d1"), 36).await.unwrap();
    // A failed run is counted once, for its model.
    let mut failed = RunRecord {
        status: RunStatus::Done,
        termination: Some(TerminationReason::Error("overloaded".into())),
        model: "mock/org/m9".into(),
        ..run
    };
    for _ in 0..2 {
        store.checkpoint(checkpoint(&fence, &failed)).await.unwrap();
        failed.updated_at = 21;
    }
    store.release(&fence).await.unwrap();
    store.delete_thread(&"t1".into(), &owner("me"), |_| Liveness::No, by()).await.unwrap();
    let tallies = store.tallies(None).await.unwrap();
    let failures: Vec<_> = tallies.iter().filter(|t| t.kind == TallyKind::FailedRun).collect();
    assert_eq!(failures.len(), 1);
    assert_eq!((failures[0].name.as_str(), failures[0].count), ("mock/org/m9", 1));
    assert_eq!(tallies.len(), wanted().len() + 1);
}

#[tokio::test]
async fn only_the_requested_time_slices_are_counted() {
    let store = Store::in_memory().unwrap();
    on_connection(&store, |conn| {
        for at in [0, 899_999, 900_000, 1_000_000] {
            conn.execute("INSERT INTO tally VALUES (NULL, ?1, 'call', 'List', 1, 0, 0, 0, 5)", (at,))
                .unwrap();
        }
        conn.execute("INSERT INTO tally VALUES (NULL, 0, 'of the future', 'x', 0, 0, 0, 0, 0)", ()).unwrap();
    })
    .await;
    let counts =
        |tallies: Vec<Tally>| tallies.iter().map(|t| (t.from, t.count, t.failed)).collect::<Vec<_>>();
    assert_eq!(counts(store.tallies(None).await.unwrap()), [(0, 2, 2), (900_000, 2, 2)]);
    assert_eq!(counts(store.tallies(Some(899_999)).await.unwrap()), [(0, 1, 1), (900_000, 2, 2)]);
    assert_eq!(counts(store.tallies(Some(2_000_000)).await.unwrap()), []);
}

#[tokio::test]
async fn unknown_outcomes_are_failures_and_questions_are_not_calls() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
    for (call, kind, of_call) in [
        ("a", OutcomeKind::Returned, ToolCallOutcome::Failed),
        ("b", OutcomeKind::Unknown, ToolCallOutcome::Failed),
        ("c", OutcomeKind::Cancelled, ToolCallOutcome::Cancelled),
        ("d", OutcomeKind::Returned, ToolCallOutcome::Suspended),
    ] {
        store.begin(begin(&fence, &run, call, 1, None)).await.unwrap();
        let ended = OutcomeRecord { outcome: of_call, ..outcome(attempt("r1", call, 1), kind) };
        store.checkpoint(Checkpoint { outcomes: vec![ended], ..checkpoint(&fence, &run) }).await.unwrap();
    }
    // An unknown outcome is resolved: it stays one call.
    let known = outcome(attempt("r1", "b", 1), OutcomeKind::Returned);
    store.checkpoint(Checkpoint { outcomes: vec![known], ..checkpoint(&fence, &run) }).await.unwrap();
    let tallies = store.tallies(None).await.unwrap();
    assert_eq!(tallies.len(), 1, "{tallies:#?}");
    assert_eq!((tallies[0].count, tallies[0].failed), (3, 2));
}

/// A store of the previous version: the same scenario, with unreadable rows.
#[tokio::test]
async fn earlier_activity_is_counted_too() {
    let home = Home::new();
    let store = home.open();
    story(&store).await;
    store.close().await;
    let raw = home.raw();
    raw.execute_batch(
        "DELETE FROM tally; \
         INSERT INTO message VALUES ('t1', 90, 'r1', 20, 'no json'); \
         INSERT INTO message VALUES ('t1', 91, 'r1', 20, '{\"metadata\": {\"model\": \"m3\", \"usage\": 5}}'); \
         INSERT INTO message VALUES ('t1', 92, 'r1', 20, '{\"metadata\": [1]}'); \
         INSERT INTO intent VALUES (90, 'r1', 'x', 1, 't1', 'no json', 'returned', 'neither'); \
         INSERT INTO intent VALUES (91, 'r1', 'y', 1, 't1', '{\"tool\": \"T\", \"started_at\": -9e99}', 'returned', '{\"ended_at\": 9e99}');",
    )
    .unwrap();
    let sql = include_str!("../migrations/0003_runtime.sql");
    let (_, backfill) = sql.split_once("-- What was done before the table was").unwrap();
    let (_, backfill) = backfill.split_once('\n').unwrap();
    raw.execute_batch(backfill).unwrap();
    drop(raw);
    let tallies = home.open().tallies(None).await.unwrap();
    let (new, old): (Vec<_>, Vec<_>) = tallies.into_iter().partition(|tally| tally.name == "m3");
    assert_eq!(old, wanted());
    assert_eq!((new[0].count, new[0].input), (1, 0));
}

#[tokio::test]
async fn three_hundred_thousand_counts_are_read_quickly() {
    let store = Store::in_memory().unwrap();
    on_connection(&store, |conn| {
        conn.execute_batch(
            "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 299999) \
             INSERT INTO tally (at, kind, name, failed, input, output, cached, duration_ms) \
             SELECT 1700000000000 + i * 60000, iif(i % 3, 'call', 'inference'), 'n' || i % 7, 0, 9000, 200, 8000, 900 FROM n",
        )
        .unwrap();
    })
    .await;
    let begun = std::time::Instant::now();
    let tallies = store.tallies(None).await.unwrap();
    assert_eq!(tallies.iter().map(|tally| tally.count).sum::<u64>(), 300_000);
    // An idle machine with optimised code needs a tenth of this.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}
