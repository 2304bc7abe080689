//! Checkpoints, begins, leases, output.

use super::*;

#[tokio::test]
async fn a_checkpoint_is_all_or_nothing() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
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
    assert_eq!(store.run(&"r1".into()).await.unwrap(), Some(run));
}

#[tokio::test]
async fn runs_come_back_in_order_of_birth() {
    let store = Store::in_memory().unwrap();
    let (fence, first) = waiting(&store, None).await;
    // The clock went back between them.
    let second = RunRecord { created_at: 1, updated_at: 2, ..run("a-run", "t1", RunStatus::Running) };
    store.checkpoint(checkpoint(&fence, &second)).await.unwrap();
    assert_eq!(store.runs(&"t1".into()).await.unwrap(), [first.clone(), second.clone()]);
    assert_eq!(store.latest_run(&"t1".into()).await.unwrap(), Some(second.clone()));
    let done = RunRecord { status: RunStatus::Done, ..second };
    store.checkpoint(checkpoint(&fence, &done)).await.unwrap();
    assert_eq!(store.unfinished_runs().await.unwrap(), [first]);
    let again = RunRecord { status: RunStatus::Running, ..done };
    assert!(matches!(store.checkpoint(checkpoint(&fence, &again)).await, Err(StoreError::RunOver { .. })));
}

#[tokio::test]
async fn no_question_outlives_its_run() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
    let opened = ["q2", "q3"].map(|id| question(id, &run, id, None)).to_vec();
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    store.decide(&"q2".into(), yes("d2"), 1).await.unwrap();
    store.decide(&"q3".into(), yes("d3"), 1).await.unwrap();
    store.begin(begin(&fence, &run, "q3", 1, Some(("q3", "d3")))).await.unwrap();
    let done = RunRecord { status: RunStatus::Done, ..run };
    store.checkpoint(checkpoint(&fence, &done)).await.unwrap();
    assert_eq!(status(&store, "q1").await, SuspensionStatus::Superseded);
    assert_eq!(status(&store, "q2").await, SuspensionStatus::Superseded);
    assert_eq!(status(&store, "q3").await, SuspensionStatus::Applied);
}

/// A transaction reads first and writes later; another process that writes in between must only make it wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_two_processes_wait_for_each_other() {
    let home = Home::new();
    let mut writers = Vec::new();
    for who in ["a", "b"] {
        let store = home.open();
        on_connection(&store, |conn| conn.execute_batch("PRAGMA synchronous = OFF").unwrap()).await;
        writers.push(tokio::spawn(async move {
            store.create_thread(thread(who)).await.unwrap();
            let fence = store.acquire(&who.into(), &owner(who), Term::ENDLESS, |_| true).await.unwrap();
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
async fn a_decision_starts_one_execution_of_its_own_call() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
    let refused = async |begin: Begin| {
        let error = store.begin(begin).await.unwrap_err();
        assert!(matches!(error, StoreError::NotDecided { .. }), "{error}");
        assert_eq!(store.intents(&"r1".into()).await.unwrap(), Vec::new());
    };
    refused(begin(&fence, &run, "c1", 1, Some(("q1", "d1")))).await;
    store.decide(&"q1".into(), yes("d1"), 1).await.unwrap();
    refused(begin(&fence, &run, "c1", 1, Some(("q1", "d2")))).await;
    refused(begin(&fence, &run, "c9", 1, Some(("q1", "d1")))).await;
    refused(begin(&fence, &run, "c1", 1, Some(("q9", "d1")))).await;
    assert_eq!(status(&store, "q1").await, SuspensionStatus::Decided);
    let running = RunRecord { status: RunStatus::Running, ..run };
    store.begin(begin(&fence, &running, "c1", 1, Some(("q1", "d1")))).await.unwrap();
    assert_eq!(status(&store, "q1").await, SuspensionStatus::Applied);
    assert_eq!(store.run(&"r1".into()).await.unwrap().unwrap().status, RunStatus::Running);
    let again = store.begin(begin(&fence, &running, "c1", 2, Some(("q1", "d1")))).await.unwrap_err();
    assert!(matches!(again, StoreError::NotDecided { .. }), "{again}");
    let same = store.begin(begin(&fence, &running, "c1", 1, None)).await.unwrap_err();
    assert!(matches!(same, StoreError::AlreadyStarted { .. }), "{same}");
}

#[tokio::test]
async fn a_no_starts_nothing() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
    store.decide(&"q1".into(), no("d1"), 1).await.unwrap();
    let error = store.begin(begin(&fence, &run, "c1", 1, Some(("q1", "d1")))).await.unwrap_err();
    assert!(matches!(error, StoreError::NotDecided { .. }), "{error}");
    let closed = vec![("q1".into(), SuspensionStatus::Applied)];
    store.checkpoint(Checkpoint { closed, ..checkpoint(&fence, &run) }).await.unwrap();
    assert_eq!(status(&store, "q1").await, SuspensionStatus::Applied);
}

#[tokio::test]
async fn intents_stay_open_until_their_outcome() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
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

#[tokio::test]
async fn what_belongs_elsewhere_is_refused() {
    let store = Store::in_memory().unwrap();
    let (fence, mine) = waiting(&store, None).await;
    store.create_thread(thread("t2")).await.unwrap();
    let fence2 = store.acquire(&"t2".into(), &owner("me"), Term::ENDLESS, |_| true).await.unwrap();
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
        store.begin(Begin { run: theirs.clone(), ..begin(&fence2, &mine, "c1", 1, None) }).await,
    ];
    for refused in misplaced {
        assert!(matches!(refused, Err(StoreError::Misplaced { .. })), "{refused:?}");
    }
    let closed = vec![("q1".into(), SuspensionStatus::Superseded)];
    let error = store.checkpoint(Checkpoint { closed, ..checkpoint(&fence2, &theirs) }).await.unwrap_err();
    assert!(matches!(error, StoreError::NoSuspension(_)), "{error}");
    assert_eq!(status(&store, "q1").await, SuspensionStatus::Open);
}

#[tokio::test]
async fn a_paused_owner_writes_nothing_any_more() {
    let store = Store::in_memory().unwrap();
    let (old, run) = waiting(&store, None).await;
    let busy = store.acquire(&"t1".into(), &owner("you"), Term::ENDLESS, |_| true).await.unwrap_err();
    assert!(matches!(&busy, AcquireError::Busy { owner } if owner.token == "me"), "{busy}");
    let new =
        store.acquire(&"t1".into(), &owner("you"), Term::ENDLESS, |them| them.token != "me").await.unwrap();
    assert!(new.epoch > old.epoch);
    assert_eq!(store.owner(&"t1".into()).await.unwrap(), Some(owner("you")));
    let late = Checkpoint { messages: vec![Message::user("late")], ..checkpoint(&old, &run) };
    assert!(matches!(store.checkpoint(late).await, Err(StoreError::Fenced { .. })));
    assert!(matches!(store.begin(begin(&old, &run, "c2", 1, None)).await, Err(StoreError::Fenced { .. })));
    store.release(&old).await.unwrap();
    store.checkpoint(checkpoint(&new, &run)).await.unwrap();
    assert_eq!(store.message_count(&"t1".into()).await.unwrap(), 1);

    store.release(&new).await.unwrap();
    assert!(matches!(store.checkpoint(checkpoint(&new, &run)).await, Err(StoreError::Fenced { .. })));
    let third = store.acquire(&"t1".into(), &owner("me"), Term::ENDLESS, |_| true).await.unwrap();
    let fourth = store.acquire(&"t1".into(), &owner("me"), Term::ENDLESS, |_| true).await.unwrap();
    assert!(fourth.epoch > third.epoch && third.epoch > new.epoch);
    assert!(matches!(store.checkpoint(checkpoint(&third, &run)).await, Err(StoreError::Fenced { .. })));
    let none = store.acquire(&"t9".into(), &owner("me"), Term::ENDLESS, |_| true).await.unwrap_err();
    assert!(matches!(none, AcquireError::Store(StoreError::NoThread(_))), "{none}");
}

#[tokio::test]
async fn a_panicking_predicate_takes_only_its_own_request_down() {
    let store = Store::in_memory().unwrap();
    waiting(&store, None).await;
    let error =
        store.acquire(&"t1".into(), &owner("you"), Term::ENDLESS, |_| panic!("no /proc")).await.unwrap_err();
    assert!(matches!(error, AcquireError::Store(StoreError::Closed)), "{error}");
    store.acquire(&"t1".into(), &owner("you"), Term::ENDLESS, |_| false).await.unwrap();
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
    // Three bytes a character: no cut may fall inside one.
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
async fn what_could_not_be_read_again_is_not_written() {
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
        store.messages(&"t1".into()).await.expect("what was written can be read");
    }
    assert!(refused > 5);
}

#[tokio::test]
async fn a_lease_that_is_over_is_taken_from_an_owner_that_lives() {
    let store = Store::in_memory().unwrap();
    let (_, run) = waiting(&store, None).await;
    let t1 = || "t1".into();
    let until = |now, until| Term { now, until: Some(until) };
    let mine = store.acquire(&t1(), &owner("me"), until(0, 100), |_| true).await.unwrap();
    store.begin(begin(&mine, &run, "c2", 1, None)).await.unwrap();
    let busy = store.acquire(&t1(), &owner("you"), until(99, 199), |_| true).await.unwrap_err();
    assert!(matches!(busy, AcquireError::Busy { .. }), "{busy}");
    assert!(store.renew(&mine, 200).await.unwrap());
    assert!(store.renew(&mine, 150).await.unwrap());
    assert_eq!(store.lease(&t1()).await.unwrap().unwrap().until, Some(200), "it gets no shorter");
    assert!(store.acquire(&t1(), &owner("you"), until(199, 299), |_| true).await.is_err());
    let yours = store.acquire(&t1(), &owner("you"), until(200, 300), |_| true).await.unwrap();
    let held = LeaseRecord { owner: owner("you"), epoch: yours.epoch, until: Some(300) };
    assert_eq!(store.lease(&t1()).await.unwrap(), Some(held.clone()));

    assert!(!store.renew(&mine, 900).await.unwrap());
    assert!(matches!(store.checkpoint(checkpoint(&mine, &run)).await, Err(StoreError::Fenced { .. })));
    let late = store.append_output(&mine, &attempt("r1", "c2", 1), "late".into()).await;
    assert!(matches!(late, Err(StoreError::Fenced { .. })));
    assert_eq!(store.lease(&t1()).await.unwrap(), Some(held));
    // A dead owner's time does not matter, and who says nothing of time keeps it as long as the process lives.
    let mine = store.acquire(&t1(), &owner("me"), Term::ENDLESS, |_| false).await.unwrap();
    assert!(store.renew(&mine, 10).await.unwrap());
    assert!(store.acquire(&t1(), &owner("you"), until(u64::MAX, u64::MAX), |_| true).await.is_err());
    store.release(&mine).await.unwrap();
    assert_eq!(store.lease(&t1()).await.unwrap(), None);
}
