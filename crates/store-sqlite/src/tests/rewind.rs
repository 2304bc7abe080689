use super::*;
use crate::ForkAt;
use aye_core::contract::message::ToolCall;
use aye_core::contract::prefix::PrefixRecord;
use aye_core::contract::snapshot::{SnapshotRecord, TreeId, WentBackRecord};

fn said(text: &str) -> Message {
    Message::user(text)
}

fn asked(call: &str) -> Message {
    Message::assistant_with(Vec::new(), vec![ToolCall::new(call, "Bash", json!({}))])
}

fn snapshot(run: &RunRecord, seq: u64, tree: &str) -> SnapshotRecord {
    SnapshotRecord {
        thread_id: run.thread_id.clone(),
        run_id: run.id.clone(),
        seq,
        root: "/w".into(),
        tree: Some(TreeId(tree.into())),
        note: String::new(),
        head: Some("main at 1111111".into()),
        created_at: 40,
    }
}

/// A conversation of two turns; the second one has a step that changes files.
async fn talked(store: &Store) -> (Fence, RunRecord) {
    store.create_thread(thread("t1")).await.unwrap();
    let fence = store.acquire(&"t1".into(), &owner("a"), None, |_| Liveness::Yes).await.unwrap();
    let run = run("r1", "t1", RunStatus::Running);
    let state = |n: u64| Some(std::collections::BTreeMap::from([("n".to_owned(), json!(n))]));
    let write = async |messages: Vec<Message>, n: u64| {
        let checkpoint = Checkpoint { messages, thread_state: state(n), ..checkpoint(&fence, &run) };
        store.checkpoint(checkpoint).await.unwrap();
    };
    write(vec![said("first"), Message::assistant("Grüße, ÄPFEL and \"quotes\"")], 2).await;
    write(vec![said("second"), asked("c1")], 4).await;
    let begin =
        ExecutionStart { snapshot: Some(snapshot(&run, 4, "aa")), ..begin(&fence, &run, "c1", 1, None) };
    store.begin(begin).await.unwrap();
    write(vec![Message::tool("c1", "ok"), Message::assistant("done")], 6).await;
    (fence, run)
}

fn fork(keep: u64, id: &str, is_rewind: bool) -> ForkAt {
    ForkAt { from: "t1".into(), keep, copy: thread(id), is_rewind }
}

fn went(thread: &str, from: Option<&str>) -> WentBackRecord {
    WentBackRecord {
        n: 0,
        thread_id: thread.into(),
        from_thread: from.map(Into::into),
        root: None,
        tree: None,
        created_at: 60,
        words: "the conversation".into(),
    }
}

#[tokio::test]
async fn a_fork_has_the_prefix_and_the_thread_stays_whole() {
    let home = Home::new();
    let store = home.open();
    let (fence, run) = talked(&store).await;
    // The start of its requests was frozen anew after its end.
    let frozen = |at_seq: u64| PrefixRecord { at_seq, cut: at_seq, ..PrefixRecord::default() };
    for at_seq in [1, 2, 5] {
        let prefix = Some(frozen(at_seq));
        store.checkpoint(Checkpoint { prefix, ..checkpoint(&fence, &run) }).await.unwrap();
    }
    let number = store.go_back(Some(fork(2, "t2", true)), Some(went("t2", Some("t1")))).await.unwrap();
    assert_eq!(store.prefix(&"t2".into()).await.unwrap(), Some(frozen(2)));
    assert_eq!(store.prefix(&"t1".into()).await.unwrap(), Some(frozen(5)));
    let left = |rows: Vec<ThreadSummary>| rows.iter().any(|row| row.marks.left_for.is_some());
    assert!(left(store.threads(None).await.unwrap()));
    // Acknowledged changes survive a crash.
    let store = home.copy().open();
    let copied = store.messages(&"t2".into()).await.unwrap();
    let whole = store.messages(&"t1".into()).await.unwrap();
    assert_eq!((copied.as_slice(), whole.len()), (&whole[..2], 6));
    assert_eq!(store.thread_state(&"t2".into()).await.unwrap()["n"], json!(2), "the state at that time");
    assert!(store.snapshots(&"t2".into()).await.unwrap().is_empty());
    let back = store.last_went_back(&"t2".into()).await.unwrap().unwrap();
    assert_eq!((Some(back.n), back.from_thread), (number, Some("t1".into())));

    let rows = store.threads(None).await.unwrap();
    let marks = |id: &str| rows.iter().find(|row| row.thread.id.as_str() == id).unwrap().marks.clone();
    assert_eq!(marks("t1").left_for, Some("t2".into()));
    assert_eq!(marks("t1").branch.as_deref(), Some("main"));
    assert!(marks("t2").fork.unwrap().is_rewind);
    assert_eq!(rows.iter().filter_map(|row| row.damaged.clone()).count(), 0);
    let latest = store.latest_thread(&thread("t1").cwd).await.unwrap().unwrap();
    assert_eq!(latest.id.as_str(), "t2", "the abandoned one does not resume by itself");
}

#[tokio::test]
async fn a_long_conversation_is_copied_in_parts() {
    let store = Store::in_memory().unwrap();
    store.create_thread(thread("t1")).await.unwrap();
    let fence = store.acquire(&"t1".into(), &owner("a"), None, |_| Liveness::Yes).await.unwrap();
    let run = run("r1", "t1", RunStatus::Running);
    let all: Vec<Message> = (0..1300).map(|n| said(&n.to_string())).collect();
    for part in all.chunks(100) {
        let checkpoint = Checkpoint { messages: part.to_vec(), ..checkpoint(&fence, &run) };
        store.checkpoint(checkpoint).await.unwrap();
    }
    for keep in [0, 1, 255, 256, 257, 512, 1300] {
        let copy = format!("copy{keep}");
        store.go_back(Some(fork(keep as u64, &copy, false)), None).await.unwrap();
        let copied = store.messages(&copy.as_str().into()).await.unwrap();
        assert!(copied.iter().map(|row| &row.message).eq(&all[..keep]), "{keep}: {}", copied.len());
    }
}

#[tokio::test]
async fn snapshots_are_found_by_the_messages_that_stay() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = talked(&store).await;
    for (keep, there) in [(0, true), (2, true), (3, true), (4, false), (6, false)] {
        let found = store.snapshot_behind(&"t1".into(), keep).await.unwrap();
        assert_eq!(found.is_some(), there, "{keep}");
    }
    // The first snapshot before a step counts, however often the step starts.
    let again =
        ExecutionStart { snapshot: Some(snapshot(&run, 4, "bb")), ..begin(&fence, &run, "c1", 2, None) };
    store.begin(again).await.unwrap();
    let all = store.snapshots(&"t1".into()).await.unwrap();
    assert_eq!(all.iter().map(|one| one.tree.clone().unwrap().0).collect::<Vec<_>>(), ["aa"]);
    // A fork of everything can be rewound further.
    store.go_back(Some(fork(6, "t3", false)), None).await.unwrap();
    let of_copy = store.snapshot_behind(&"t3".into(), 2).await.unwrap().unwrap();
    assert_eq!(of_copy.thread_id.as_str(), "t3");
}

#[tokio::test]
async fn a_step_without_its_results_is_not_forked() {
    let store = Store::in_memory().unwrap();
    talked(&store).await;
    let refused = store.go_back(Some(fork(4, "t2", false)), None).await.unwrap_err();
    assert!(refused.to_string().contains("c1"), "{refused}");
    assert!(store.thread(&"t2".into()).await.unwrap().is_none(), "nothing was written");
    assert!(store.go_back(Some(fork(7, "t2", false)), None).await.is_err());
    store.go_back(Some(fork(5, "t2", false)), None).await.unwrap();
    store.go_back(Some(fork(0, "t4", true)), None).await.unwrap();
    assert_eq!(store.message_count(&"t4".into()).await.unwrap(), 0);
    assert_eq!(store.thread(&"t4".into()).await.unwrap().unwrap().title, thread("t4").title);
}

#[tokio::test]
async fn a_title_set_by_the_user_is_kept() {
    let store = Store::in_memory().unwrap();
    store.create_thread(thread("t1")).await.unwrap();
    let id = "t1".into();
    assert!(store.rename_thread(&id, "a model's", NamedBy::Model).await.unwrap());
    assert!(!store.rename_thread(&id, "another", NamedBy::Model).await.unwrap(), "once");
    assert!(store.rename_thread(&id, "mine", NamedBy::Person).await.unwrap());
    assert!(!store.rename_thread(&id, "theirs", NamedBy::Model).await.unwrap());
    assert_eq!(store.named_by(&id).await.unwrap(), NamedBy::Person);
    assert_eq!(store.thread(&id).await.unwrap().unwrap().title, "mine");
    store.create_thread(ThreadRecord { updated_at: 99, ..thread("t2") }).await.unwrap();
    store.pin_thread(&id, Some(5)).await.unwrap();
    let order: Vec<_> = store.threads(None).await.unwrap().into_iter().map(|row| row.thread.id).collect();
    assert_eq!(order, ["t1".into(), ThreadId::from("t2")]);
    assert!(store.pin_thread(&"none".into(), None).await.is_err());
}

#[tokio::test]
async fn text_search_ignores_case() {
    let store = Store::in_memory().unwrap();
    talked(&store).await;
    let search = async |words: &str| store.search_thread(&"t1".into(), words, 0).await.unwrap();
    assert_eq!(search("äpfel AND").await.0.as_deref(), Some("Grüße, ÄPFEL and \"quotes\""));
    assert_eq!(search("\"QUOTES").await.0.as_deref(), Some("Grüße, ÄPFEL and \"quotes\""));
    assert_eq!(search("grüße").await.0.as_deref(), Some("Grüße, ÄPFEL and \"quotes\""));
    assert_eq!(search("%").await, (None, None));
    assert_eq!(search("tool_call_id").await, (None, None), "only words are checked");
    assert_eq!(search("ok").await, (None, None), "results are not messages");
}
