//! Questions and answers: the table of decisions, as far as rows are concerned.

use super::*;
use crate::{SuspensionFilter, SuspensionLookup};

#[tokio::test]
async fn lists_are_oldest_first_and_filtered() {
    let store = Store::in_memory().unwrap();
    let (fence, run1) = waiting(&store, None).await;
    let opened = vec![question("q0", &run1, "c2", None)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run1) }).await.unwrap();
    store.create_thread(thread("t2")).await.unwrap();
    let fence2 = store.acquire(&"t2".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let run2 = run("r2", "t2", RunStatus::Waiting);
    let opened = vec![question("z", &run2, "c1", None)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence2, &run2) }).await.unwrap();
    store.decide(&"q1".into(), yes("d1"), 1).await.unwrap();
    let list = async |filter| {
        let found = store.suspensions(filter).await.unwrap();
        found.into_iter().map(|q| q.id.to_string()).collect::<Vec<_>>()
    };
    let any = SuspensionFilter::default();
    assert_eq!(list(any.clone()).await, ["q1", "q0", "z"]);
    assert_eq!(list(SuspensionFilter { thread: Some("t1".into()), ..any.clone() }).await, ["q1", "q0"]);
    assert_eq!(list(SuspensionFilter { run: Some("r2".into()), ..any.clone() }).await, ["z"]);
    let open = SuspensionFilter { status: Some(SuspensionStatus::Open), ..any };
    assert_eq!(list(open).await, ["q0", "z"]);
    assert!(
        matches!(store.find_suspension("q").await.unwrap(), SuspensionLookup::Many(found) if found.len() == 2)
    );
    assert!(matches!(store.find_suspension("q0").await.unwrap(), SuspensionLookup::One(_)));
    assert!(matches!(store.find_suspension("z").await.unwrap(), SuspensionLookup::One(_)));
    assert!(matches!(store.find_suspension("").await.unwrap(), SuspensionLookup::None));
    assert_eq!(store.threads(None).await.unwrap().iter().map(|t| t.waiting).sum::<u64>(), 2);
}

/// The whole table of transitions that a checkpoint may make.
#[tokio::test]
async fn closing_follows_the_table() {
    use SuspensionStatus::{Applied, Decided, Expired, Open, Superseded};
    for from in [Open, Decided, Applied, Superseded, Expired] {
        for to in [Open, Decided, Applied, Superseded, Expired] {
            let store = Store::in_memory().unwrap();
            let (fence, run) = waiting(&store, Some(1000)).await;
            let close = |to| Checkpoint { closed: vec![("q1".into(), to)], ..checkpoint(&fence, &run) };
            match from {
                Open => {}
                Decided => drop(store.decide(&"q1".into(), no("d"), 1).await.unwrap()),
                Applied => {
                    store.decide(&"q1".into(), no("d"), 1).await.unwrap();
                    store.checkpoint(close(Applied)).await.unwrap();
                }
                Superseded => store.checkpoint(close(Superseded)).await.unwrap(),
                Expired => drop(store.expire_due(1000).await.unwrap()),
            }
            let after = match (from, to) {
                (Open, Superseded | Expired) | (Decided, Applied | Superseded) => Some(to),
                (Applied | Superseded | Expired, Superseded | Expired) | (Applied, Applied) => Some(from),
                _ => None,
            };
            let done = store.checkpoint(close(to)).await;
            assert_eq!(done.is_ok(), after.is_some(), "{from:?} -> {to:?}: {done:?}");
            assert_eq!(status(&store, "q1").await, after.unwrap_or(from), "{from:?} -> {to:?}");
        }
    }
}

/// Two handles with separate connections, like two processes, and two tasks on each: one winner, the same for
/// all.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_one_of_two_deciders_wins() {
    const ROUNDS: usize = 1000;
    let home = Home::new();
    let first = home.open();
    let (fence, run) = waiting(&first, None).await;
    let opened =
        (0..ROUNDS).map(|n| question(&format!("race{n}"), &run, &format!("call{n}"), None)).collect();
    first.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    let second = home.open();
    // This is about who wins, not about power cuts: without fsync the race is tighter.
    for store in [&first, &second] {
        on_connection(store, |conn| conn.execute_batch("PRAGMA synchronous = OFF").unwrap()).await;
    }
    let racer = |store: Store, name: &'static str, decision: fn(&str) -> Decision| {
        tokio::spawn(async move {
            let mut won = Vec::new();
            for n in 0..ROUNDS {
                match store.decide(&format!("race{n}").into(), decision(name), 1).await.unwrap() {
                    DecideOutcome::Accepted(record) => won.push((n, record.decision.unwrap().decision_id)),
                    DecideOutcome::AlreadyDecided(record) => {
                        assert_ne!(record.decision.unwrap().decision_id.as_str(), name);
                    }
                    other => panic!("{other:?}"),
                }
            }
            won
        })
    };
    let racers = [
        racer(first.clone(), "y1", yes),
        racer(first.clone(), "n1", no),
        racer(second.clone(), "y2", yes),
        racer(second.clone(), "n2", no),
    ];
    let mut winners = vec![Vec::new(); ROUNDS];
    for racer in racers {
        for (round, id) in racer.await.unwrap() {
            winners[round].push(id);
        }
    }
    for (round, winners) in winners.iter().enumerate() {
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        for store in [&first, &second] {
            let stored = store.suspension(&format!("race{round}").into()).await.unwrap().unwrap();
            assert_eq!(stored.decision.unwrap().decision_id, winners[0]);
        }
    }
}

/// What waits for the disk waits together, also with reads and a lease in between, and a refused request takes
/// nobody else down.
#[tokio::test]
async fn answers_that_are_queued_share_one_commit() {
    let home = Home::new();
    let store = home.open();
    let (fence, run) = waiting(&store, None).await;
    let ids: Vec<SuspensionId> = (0..20).map(|n| format!("many{n}").as_str().into()).collect();
    let opened = ids.iter().map(|id| question(id.as_str(), &run, "c2", None)).collect();
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    store.create_thread(thread("other")).await.unwrap();
    let commits = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&commits);
    let count = move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        false
    };
    store.call(move |conn| Ok(conn.commit_hook(Some(count))?)).await.unwrap();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let lost = Fence { epoch: fence.epoch + 1, ..fence.clone() };
    let (other, me) = (ThreadId::from("other"), owner("me"));
    // Polled in order, so that everything is queued when the first one ends.
    let ((), lease, answers, refused, ()) = tokio::join!(
        biased;
        on_connection(&store, move |_| held.recv().unwrap()),
        store.acquire(&other, &me, None, |_| Liveness::Yes),
        futures::future::join_all(ids.iter().map(async |id| {
            tokio::join!(biased; store.suspension(id), store.decide(id, yes(id.as_str()), 1))
        })),
        store.checkpoint(checkpoint(&lost, &run)),
        async { release.send(()).unwrap() },
    );
    lease.unwrap();
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    for (read, decided) in answers {
        assert!(read.unwrap().is_some());
        assert!(matches!(decided.unwrap(), DecideOutcome::Accepted(_)));
    }
    assert_eq!(commits.load(std::sync::atomic::Ordering::SeqCst), 1);
    store.close().await;
    let store = home.open();
    for id in &ids {
        let stored = store.suspension(id).await.unwrap().unwrap();
        assert_eq!(stored.status, SuspensionStatus::Decided);
    }
}
