//! Crashes: copies of the files at any moment, torn logs, and a real process that is killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::*;

/// The child's store, relative to its working directory; elsewhere the child does nothing.
const CHILD: &str = "data/aye.db";
/// The crash point of the child.
#[cfg(feature = "failpoints")]
const PLACE: &str = "place";

/// Every acknowledged step of a run is in a copy taken right after it.
#[tokio::test]
async fn acknowledged_writes_survive_a_crash() {
    let home = Home::new();
    let store = home.open();
    let (fence, run) = waiting(&store, None).await;

    let copy = home.copy().open();
    assert_eq!(copy.unfinished_runs().await.unwrap(), std::slice::from_ref(&run));
    assert_eq!(status(&copy, "q1").await, SuspensionStatus::Open);

    store.decide(&"q1".into(), yes("d1"), 1).await.unwrap();
    let crashed = home.copy();
    let copy = crashed.open();
    assert!(matches!(
        copy.decide(&"q1".into(), no("d2"), 1).await.unwrap(),
        DecideOutcome::AlreadyDecided(_)
    ));
    assert!(matches!(copy.decide(&"q1".into(), yes("d1"), 1).await.unwrap(), DecideOutcome::Repeated(_)));

    let begun = begin(&fence, &run, "c1", 1, Some(("q1", "d1")));
    store.begin(begun.clone()).await.unwrap();
    store.append_output(&fence, &begun.intent.id, "half".into()).await.unwrap();
    let crashed = home.copy();
    let copy = crashed.open();
    let open = copy.open_intents(&"r1".into()).await.unwrap();
    assert_eq!(open, [OpenIntent { intent: begun.intent.clone(), output: "half".into() }]);
    // The dead owner's lease is taken over, and the spent decision starts nothing again.
    let fence2 = copy.acquire(&"t1".into(), &owner("next"), None, |_| Liveness::No).await.unwrap();
    let again = copy.begin(begin(&fence2, &run, "c1", 2, Some(("q1", "d1")))).await.unwrap_err();
    assert!(matches!(again, StoreError::NotDecided { .. }), "{again}");

    let outcomes = vec![outcome(begun.intent.id.clone(), OutcomeKind::Returned)];
    let messages = vec![Message::tool("c1", "noon")];
    store.checkpoint(Checkpoint { messages, outcomes, ..checkpoint(&fence, &run) }).await.unwrap();
    let copy = home.copy().open();
    assert_eq!(copy.open_intents(&"r1".into()).await.unwrap(), Vec::new());
    assert_eq!(copy.message_count(&"t1".into()).await.unwrap(), 2);
    assert_eq!(copy.check().await.unwrap(), Vec::<String>::new());
}

/// A transaction cut before its commit leaves nothing.
#[tokio::test]
async fn half_a_transaction_is_nothing() {
    let home = Home::new();
    let store = home.open();
    let (fence, run) = waiting(&store, None).await;
    store.decide(&"q1".into(), yes("d1"), 1).await.unwrap();
    let copies = std::sync::Arc::new(std::sync::Mutex::new(None));
    let (slot, source) = (copies.clone(), home.path());
    let begun = begin(&fence, &run, "c1", 1, Some(("q1", "d1")));
    store
        .call(move |conn| {
            // A tiny cache writes unfinished pages to the log early.
            conn.execute_batch("PRAGMA cache_size = 1").unwrap();
            let tx = conn.transaction().unwrap();
            for n in 0..200 {
                let body = "x".repeat(3000);
                tx.execute("INSERT INTO message VALUES ('t1', ?1, 'r1', 1, ?2)", (n + 2, body)).unwrap();
            }
            tx.execute("UPDATE suspension SET status = 'applied'", ()).unwrap();
            let copy = Home::new();
            std::fs::create_dir_all(copy.path().parent().unwrap()).unwrap();
            for suffix in ["", "-wal"] {
                let name = |path: &Path| super::super::rows::with_suffix(path, suffix);
                std::fs::copy(name(&source), name(&copy.path())).unwrap();
            }
            *slot.lock().unwrap() = Some(copy);
            Ok(())
        })
        .await
        .unwrap();
    let copy = copies.lock().unwrap().take().unwrap();
    assert!(
        std::fs::metadata(super::super::rows::with_suffix(&copy.path(), "-wal")).unwrap().len() > 400_000
    );
    let copy = copy.open();
    assert_eq!(copy.messages(&"t1".into()).await.unwrap().len(), 1);
    assert_eq!(status(&copy, "q1").await, SuspensionStatus::Decided);
    let fence = copy.acquire(&"t1".into(), &owner("next"), None, |_| Liveness::No).await.unwrap();
    copy.begin(ExecutionStart { fence, ..begun }).await.unwrap();
}

/// Wherever the log is torn, the rest is a prefix of the steps, each of them complete.
#[tokio::test]
async fn a_torn_log_loses_only_whole_steps_from_the_end() {
    let home = Home::new();
    let store = home.open();
    let (fence, run) = waiting(&store, None).await;
    for n in 0..12 {
        let (call, question_id, decision) = (format!("call{n}"), format!("ask{n}"), format!("d{n}"));
        let opened = vec![question(&question_id, &run, &call, None)];
        let messages = vec![Message::user(format!("{n}")), Message::assistant("ok")];
        store.checkpoint(Checkpoint { messages, opened, ..checkpoint(&fence, &run) }).await.unwrap();
        store.decide(&question_id.clone().into(), yes(&decision), 1).await.unwrap();
        store.begin(begin(&fence, &run, &call, 1, Some((&question_id, &decision)))).await.unwrap();
    }
    let wal = super::super::rows::with_suffix(&home.path(), "-wal");
    let log = std::fs::read(&wal).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for cut in (0..=log.len()).step_by(1999).chain([log.len()]) {
        let copy = home.copy();
        // Truncated, and with the rest as a disk may leave it: missing, or old bytes.
        let mut torn = log[..cut].to_vec();
        if cut % 2 == 1 {
            torn.resize(log.len(), 0x5A);
        }
        std::fs::write(super::super::rows::with_suffix(&copy.path(), "-wal"), torn).unwrap();
        // Without any log the file is an empty shell, and a new store is created in it.
        let store = copy.try_open().unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new(), "cut at {cut}");
        assert_eq!(store.verify_audit().await.unwrap().faults, [], "cut at {cut}");
        let messages = store.messages(&"t1".into()).await.unwrap().len();
        assert!(messages <= 1 || messages % 2 == 1, "cut at {cut}: half a step");
        let intents = store.intents(&"r1".into()).await.unwrap();
        for n in 0..12 {
            let Some(asked) = store.suspension(&format!("ask{n}").into()).await.unwrap() else { continue };
            let started = intents.iter().any(|(intent, _)| intent.id.call_id == asked.call_id);
            assert_eq!(
                started,
                asked.status == SuspensionStatus::Applied,
                "cut at {cut}: a decision is either spent or not"
            );
        }
        seen.insert((messages, intents.len()));
    }
    assert!(seen.len() > 20, "{seen:?}");
    assert_eq!(seen.last(), Some(&(25, 12)));
}

/// The child of the test below: decides and starts forever, and reports each acknowledgement.
#[tokio::test]
#[ignore = "a process to be killed, started by a test"]
async fn child() {
    if !Path::new(CHILD).exists() {
        return;
    }
    let store = Store::open(Path::new(CHILD)).unwrap();
    let fence = store
        .acquire(&"t1".into(), &owner(&format!("{}", std::process::id())), None, |_| Liveness::No)
        .await
        .unwrap();
    let run = run("r1", "t1", RunStatus::Waiting);
    let start = store.message_count(&"t1".into()).await.unwrap();
    for n in start.. {
        let (call, question_id, decision) = (format!("call{n}"), format!("ask{n}"), format!("d{n}"));
        let opened = vec![question(&question_id, &run, &call, None)];
        let messages = vec![Message::user(format!("{n}"))];
        store.checkpoint(Checkpoint { messages, opened, ..checkpoint(&fence, &run) }).await.unwrap();
        println!("\nACK asked {n}");
        store.decide(&question_id.clone().into(), yes(&decision), 1).await.unwrap();
        println!("\nACK decided {n}");
        store.begin(begin(&fence, &run, &call, 1, Some((&question_id, &decision)))).await.unwrap();
        println!("\nACK begun {n}");
    }
}

#[tokio::test]
async fn a_killed_process_loses_nothing_it_acknowledged() {
    let home = Home::new();
    let store = home.open();
    waiting(&store, None).await;
    store.close().await;
    for round in 0..8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::crash::child", "--ignored", "--nocapture"])
            .current_dir(home.folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = Vec::new();
        let mut left: i32 = 3 + round * 2;
        while let Some(Ok(line)) = lines.next() {
            if let Some(ack) = line.strip_prefix("ACK ") {
                acknowledged.push(ack.to_owned());
                left -= 1;
                if left == 0 {
                    child.kill().unwrap();
                }
            }
        }
        child.wait().unwrap();
        assert!(left <= 0, "the child ended before it was killed");
        let store = home.open();
        for ack in acknowledged {
            let (what, n) = ack.split_once(' ').unwrap();
            let status = status(&store, &format!("ask{n}")).await;
            let wanted: &[SuspensionStatus] = match what {
                "asked" => &[SuspensionStatus::Open, SuspensionStatus::Decided, SuspensionStatus::Applied],
                "decided" => &[SuspensionStatus::Decided, SuspensionStatus::Applied],
                _ => &[SuspensionStatus::Applied],
            };
            assert!(wanted.contains(&status), "{ack}: {status:?}");
        }
        let (count, _) = store.messages_tail(&"t1".into(), 0).await.unwrap();
        let intents = store.intents(&"r1".into()).await.unwrap().len() as u64;
        // Killed between question and start at most once per round; message 1 asks q1.
        assert!(intents < count && count - 1 - intents <= round as u64 + 1, "{count} {intents}");
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
        assert_eq!(store.verify_audit().await.unwrap().faults, []);
        store.close().await;
    }
}

/// The child of the test below: one step of each kind, with the armed failpoint among them.
#[cfg(feature = "failpoints")]
#[tokio::test]
#[ignore = "a process to be killed, started by a test"]
async fn failing_child() {
    let Ok(place) = std::fs::read_to_string(PLACE) else { return };
    let store = Store::open(Path::new(CHILD)).unwrap();
    crate::failpoint::arm(place);
    let fence = store.acquire(&"t1".into(), &owner("child"), None, |_| Liveness::No).await.unwrap();
    let run = run("r1", "t1", RunStatus::Waiting);
    let messages = vec![Message::user("again")];
    store.checkpoint(Checkpoint { messages, ..checkpoint(&fence, &run) }).await.unwrap();
    store.decide(&"q1".into(), yes("d1"), 1).await.unwrap();
    store.begin(begin(&fence, &run, "c1", 1, Some(("q1", "d1")))).await.unwrap();
    store.checkpoint(checkpoint(&fence, &run)).await.unwrap();
}

#[cfg(feature = "failpoints")]
#[tokio::test]
async fn each_crash_point_leaves_what_was_committed_before_it() {
    use std::os::unix::process::ExitStatusExt;
    for (place, messages, wanted, intents) in [
        ("store.checkpoint.before", 1, SuspensionStatus::Open, 0),
        ("store.checkpoint.after", 2, SuspensionStatus::Open, 0),
        ("store.decide.before", 2, SuspensionStatus::Open, 0),
        ("store.decide.after", 2, SuspensionStatus::Decided, 0),
        ("store.begin.before", 2, SuspensionStatus::Decided, 0),
        ("store.begin.after", 2, SuspensionStatus::Applied, 1),
        ("store.checkpoint.before:2", 2, SuspensionStatus::Applied, 1),
    ] {
        let home = Home::new();
        let store = home.open();
        waiting(&store, None).await;
        store.close().await;
        std::fs::write(home.folder.path().join(PLACE), place).unwrap();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::crash::failing_child", "--ignored"])
            .current_dir(home.folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(ended.signal(), Some(9), "{place}");
        let store = home.open();
        assert_eq!(store.messages(&"t1".into()).await.unwrap().len(), messages, "{place}");
        assert_eq!(status(&store, "q1").await, wanted, "{place}");
        assert_eq!(store.open_intents(&"r1".into()).await.unwrap().len(), intents, "{place}");
        assert_eq!(store.verify_audit().await.unwrap().faults, [], "{place}");
    }
}
