//! Permanent deletion, pruning, backups, and conversations moved between stores.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::{CopyPart, ExportPart, PrunePlace, SuspensionFilter, ThreadCopy, ThreadCopyFile, ThreadRest};
use aye_core::contract::content::ContentBlock;
use aye_core::contract::message::ToolCall;

/// Text that must not be in the file once deleted.
const SECRET: &str = "xyzzy-plugh-9174";

/// A finished conversation, last changed at `updated_at`.
async fn over(store: &Store, id: &str, said: &str, updated_at: u64) -> (Fence, RunRecord) {
    store.create_thread(thread(id)).await.unwrap();
    let fence = store.acquire(&id.into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let run = RunRecord { updated_at, ..run(&format!("run-{id}"), id, RunStatus::Done) };
    let messages = vec![Message::user(said), Message::assistant(format!("about {said}"))];
    store.checkpoint(Checkpoint { messages, ..checkpoint(&fence, &run) }).await.unwrap();
    (fence, run)
}

fn bytes_of(home: &Home) -> Vec<u8> {
    let mut all = Vec::new();
    for suffix in ["", "-wal"] {
        all.extend(std::fs::read(crate::rows::with_suffix(&home.path(), suffix)).unwrap_or_default());
    }
    all
}

fn holds(home: &Home, words: &str) -> bool {
    bytes_of(home).windows(words.len()).any(|window| window == words.as_bytes())
}

#[tokio::test]
async fn deleted_text_leaves_the_file_and_the_file_shrinks() {
    let home = Home::new();
    let store = home.open();
    let long = format!("{SECRET} {}", "much more of it ".repeat(20_000));
    over(&store, "gone", &long, 10).await;
    over(&store, "kept", "something else", 10).await;
    store.remember_prompt(Path::new("/work"), &long).await.unwrap();
    while store.index_messages().await.unwrap() {}
    assert!(store.shrink(false).await.unwrap());
    let before = std::fs::metadata(home.path()).unwrap().len();
    assert!(holds(&home, SECRET) && before > 500_000);
    assert!(store.delete_thread(&"gone".into(), &owner("me"), |_| Liveness::Yes, by()).await.unwrap());
    assert!(store.shrink(false).await.unwrap());
    let after = std::fs::metadata(home.path()).unwrap().len();
    assert!(!holds(&home, SECRET), "it still exists");
    assert!(!holds(&home, "ugh-9174"), "a part of it still exists");
    assert!(after < before / 2, "{before} -> {after}");
    assert!(holds(&home, "something else"));
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    assert!(store.verify_audit().await.unwrap().is_whole());
}

#[tokio::test]
async fn an_older_store_learns_to_shrink() {
    let home = Home::new();
    home.make();
    // As created by an older version.
    let conn = home.raw();
    conn.execute_batch("PRAGMA auto_vacuum = NONE; VACUUM;").unwrap();
    drop(conn);
    let store = home.open();
    over(&store, "gone", &SECRET.repeat(50_000), 10).await;
    store.delete_thread(&"gone".into(), &owner("me"), |_| Liveness::Yes, by()).await.unwrap();
    assert!(store.shrink(true).await.unwrap());
    assert!(!holds(&home, SECRET));
    assert!(std::fs::metadata(home.path()).unwrap().len() < 500_000);
    let mode: i64 = home.raw().query_row("PRAGMA auto_vacuum", (), |row| row.get(0)).unwrap();
    assert_eq!(mode, 2);
}

#[tokio::test]
async fn pruning_keeps_pinned_waiting_queued_running_and_owned_threads() {
    let store = Store::in_memory().unwrap();
    for (id, at) in [
        ("old", 200_000),
        ("older", 100_000),
        ("new", 900_000),
        ("pinned", 100_000),
        ("queued", 100_000),
        ("parent", 100_000),
    ] {
        over(&store, id, id, at).await;
    }
    store.pin_thread(&"pinned".into(), Some(1)).await.unwrap();
    store.enqueue(&"queued".into(), vec![Message::user("later")], 5).await.unwrap();
    waiting(&store, None).await;
    store.create_thread(thread("running")).await.unwrap();
    let fence = store.acquire(&"running".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    store.checkpoint(checkpoint(&fence, &run("r-running", "running", RunStatus::Running))).await.unwrap();
    let dead = |_: &Owner| Liveness::No;
    let mut gone = Vec::new();
    let mut place = PrunePlace::default();
    loop {
        let step = store.prune(Some(800_000), place, &owner("pruner"), dead, by()).await.unwrap();
        gone.extend(step.threads.into_iter().map(|id| id.to_string()));
        match step.next {
            Some(next) => place = next,
            None => break,
        }
    }
    assert_eq!(gone, ["older", "parent", "old"], "the oldest first");
    let mut left: Vec<_> =
        store.threads(None).await.unwrap().into_iter().map(|row| row.thread.id.to_string()).collect();
    left.sort();
    assert_eq!(left, ["new", "pinned", "queued", "running", "t1"]);
    // The owner of this one is alive.
    over(&store, "owned", "owned", 5).await;
    let step = store
        .prune(Some(800), PrunePlace::default(), &owner("pruner"), |_| Liveness::Yes, by())
        .await
        .unwrap();
    assert_eq!(step.threads, []);
    assert!(store.verify_audit().await.unwrap().is_whole(), "the audit stays");
}

#[tokio::test]
async fn a_backup_is_the_whole_store_at_one_moment() {
    let home = Home::new();
    let store = home.open();
    waiting(&store, None).await;
    over(&store, "other", "something", 10).await;
    let to = home.folder.path().join("copy.db");
    store.backup(&to).await.unwrap();
    assert_eq!(mode(&to), 0o600);
    assert!(matches!(store.backup(&to).await, Err(StoreError::Exists { .. })), "nothing is overwritten");
    over(&store, "later", "after the backup", 10).await;
    let copy = Store::open_to_read(&to).unwrap();
    assert_eq!(copy.threads(None).await.unwrap().len(), 2);
    assert_eq!(copy.inbox(crate::InboxFilter::default()).await.unwrap().len(), 1);
    assert_eq!(copy.check().await.unwrap(), Vec::<String>::new());
    assert!(copy.verify_audit().await.unwrap().is_whole());
    // No temporary file is left beside it.
    let names = std::fs::read_dir(home.folder.path()).unwrap().count();
    assert_eq!(names, 2);
}

async fn rest_of(store: &Store, thread: &str) -> ThreadRest {
    store.export_threads(&thread.into()).await.unwrap().remove(0).rest
}

#[tokio::test]
async fn a_conversation_is_restored_in_another_store() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
    let call = ToolCall::new("c1", "Bash", json!({"command": "date"}));
    let state = Some(BTreeMap::from([("k".to_owned(), json!([1, 2]))]));
    let messages = vec![Message::assistant_with(Vec::new(), vec![call])];
    store.checkpoint(Checkpoint { messages, thread_state: state, ..checkpoint(&fence, &run) }).await.unwrap();
    store.rename_thread(&"t1".into(), "mine", NamedBy::Person).await.unwrap();
    let copy = async || ThreadCopy {
        thread: store.thread(&"t1".into()).await.unwrap().unwrap(),
        messages: store.messages(&"t1".into()).await.unwrap(),
        rest: rest_of(&store, "t1").await,
        child: None,
        children: Vec::new(),
        adopted: HashMap::new(),
    };
    let other = Store::in_memory().unwrap();
    other.import_thread(copy().await).await.unwrap();
    let (there, here) = (copy().await, other.messages(&"t1".into()).await.unwrap());
    assert_eq!(here[..2], there.messages[..]);
    assert_eq!(here.len(), 3, "the call that waited has a result that says so");
    assert_eq!(here[2].message.tool_call_id.as_deref(), Some("c1"));
    assert_eq!(other.thread_state(&"t1".into()).await.unwrap(), there.rest.state);
    assert_eq!(other.named_by(&"t1".into()).await.unwrap(), NamedBy::Person);
    let runs = other.runs(&"t1".into()).await.unwrap();
    assert_eq!((runs.len(), runs[0].status), (1, RunStatus::Done));
    assert_eq!(other.threads(None).await.unwrap()[0].damaged, None);
    assert!(other.verify_audit().await.unwrap().is_whole());
    assert!(matches!(other.import_thread(copy().await).await, Err(StoreError::Exists { .. })));
    let mut gap = copy().await;
    gap.thread.id = "t2".into();
    gap.messages.remove(0);
    assert!(matches!(other.import_thread(gap).await, Err(StoreError::Unwritable { .. })));
    assert_eq!(other.threads(None).await.unwrap().len(), 1, "nothing of it");
}

#[tokio::test]
async fn an_adopted_run_keeps_its_question_and_possible_executions_are_unknown() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
    let calls = ["c1", "c2"].map(|id| ToolCall::new(id, "Bash", json!({"command": "date"}))).to_vec();
    let messages = vec![Message::assistant_with(Vec::new(), calls)];
    store.checkpoint(Checkpoint { messages, ..checkpoint(&fence, &run) }).await.unwrap();
    store.begin(begin(&fence, &run, "c2", 1, None)).await.unwrap();
    let rest = rest_of(&store, "t1").await;
    assert_eq!((rest.suspensions.len(), rest.intents.len(), rest.message_count), (1, 1, 2));
    let text = serde_json::to_string(&rest).unwrap();
    assert_eq!(
        serde_json::from_str::<ThreadRest>(&text).unwrap(),
        ThreadRest { message_count: 0, ..rest.clone() }
    );
    let outcome = outcome(rest.intents[0].intent.id.clone(), OutcomeKind::Unknown);
    let copy = ThreadCopy {
        thread: store.thread(&"t1".into()).await.unwrap().unwrap(),
        messages: store.messages(&"t1".into()).await.unwrap(),
        adopted: HashMap::from([(
            run.id.clone(),
            vec![(begin(&fence, &run, "c2", 1, None), outcome.clone())],
        )]),
        rest: rest.clone(),
        child: None,
        children: Vec::new(),
    };
    let other = Store::in_memory().unwrap();
    other.import_thread(copy).await.unwrap();
    assert_eq!(other.messages(&"t1".into()).await.unwrap().len(), 2, "no call is closed");
    assert_eq!(other.runs(&"t1".into()).await.unwrap(), rest.runs);
    let asked = other.suspensions(SuspensionFilter::default()).await.unwrap();
    assert_eq!(asked, rest.suspensions);
    let intents = other.intents(&run.id).await.unwrap();
    assert_eq!(intents, [(rest.intents[0].intent.clone(), Some(outcome))]);
    assert!(other.verify_audit().await.unwrap().is_whole());
    assert_eq!(other.check().await.unwrap(), Vec::<String>::new());
    // An unknown outcome stays unknown in the next copy.
    assert_eq!(rest_of(&other, "t1").await.intents, rest.intents);
}

#[tokio::test]
async fn nothing_is_written_to_a_file_that_nobody_would_find() {
    let aside = |home: &Home| crate::rows::with_suffix(&home.path(), ".aside");
    for how in ["deleted", "moved", "replaced"] {
        let home = Home::new();
        let store = home.open();
        let (fence, run) = waiting(&store, Some(10)).await;
        store.add_grant(super::ledger::grant("g1", Some(10))).await.unwrap();
        match how {
            "deleted" => std::fs::remove_file(home.path()).unwrap(),
            "moved" => std::fs::rename(home.path(), aside(&home)).unwrap(),
            _ => {
                std::fs::rename(home.path(), aside(&home)).unwrap();
                std::fs::write(home.path(), "").unwrap();
            }
        }
        let asks = Checkpoint { opened: vec![question("q2", &run, "c2", None)], ..checkpoint(&fence, &run) };
        for refused in [
            store.checkpoint(asks).await,
            store.begin(begin(&fence, &run, "c1", 1, None)).await,
            store.create_thread(thread("t2")).await,
            store.enqueue(&"t1".into(), vec![Message::user("x")], 5).await.map(drop),
            store.touch(&"t1".into(), 5).await,
            // These write only when something is missing or due.
            store.ensure_thread(thread("t2")).await,
            store.expire_due(20).await.map(drop),
            store.grants(20).await.map(drop),
        ] {
            let error = refused.unwrap_err();
            assert!(matches!(error, StoreError::Gone { .. }), "{how}: {error}");
        }
    }
}

#[tokio::test]
async fn imported_names_are_validated() {
    let store = Store::in_memory().unwrap();
    for wrong in ["", " ", "a b", "a\0b", "a\nb", ".", "..", "a/b", "é", &"x".repeat(129)] {
        let error = store.create_thread(thread(wrong)).await.unwrap_err();
        assert!(matches!(error, StoreError::InvalidId(_)), "{wrong:?}: {error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let id = format!("{}a-Z_0.9:", "x".repeat(120));
    store.create_thread(thread(&id)).await.unwrap();
    let job = aye_core::contract::mailbox::MailboxJob::new(id.as_str(), Vec::new(), 5);
    assert!(matches!(store.mailbox().enqueue(job.clone()).await, Err(StoreError::NoMessage)));
    let named = aye_core::contract::mailbox::MailboxJob {
        job_id: "a b".into(),
        messages: vec![Message::user("x")],
        ..job
    };
    assert!(matches!(store.mailbox().enqueue(named).await, Err(StoreError::InvalidId(_))));
    let fence = store.acquire(&id.as_str().into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let odd = run("r\n1", &id, RunStatus::Running);
    assert!(matches!(store.checkpoint(checkpoint(&fence, &odd)).await, Err(StoreError::InvalidId(_))));
}

#[tokio::test]
async fn a_worker_leaves_typed_messages_to_their_live_process() {
    let store = Store::in_memory().unwrap();
    for id in ["t1", "t2"] {
        store.create_thread(thread(id)).await.unwrap();
    }
    let terminal = owner("terminal");
    store.enqueue_typed(&"t1".into(), vec![Message::user("typed")], &terminal, 1).await.unwrap();
    store.enqueue(&"t1".into(), vec![Message::user("behind it")], 2).await.unwrap();
    store.enqueue(&"t2".into(), vec![Message::user("added")], 3).await.unwrap();
    let next = async |is_alive: bool| store.mailbox().next_work(10, move |_| is_alive).await.unwrap();
    let next_work = next(true).await;
    assert_eq!(next_work.next.unwrap().mailbox_id.as_str(), "t2");
    assert_eq!(next_work.typed.len(), 1, "its end is waited for");
    let next_work = next(false).await;
    assert_eq!(next_work.next.unwrap().messages[0].text(), "typed");
}

/// What `export --format json` writes.
async fn exported(store: &Store, thread: &str) -> serde_json::Value {
    let (send, parts) = std::sync::mpsc::channel();
    store.export_parts(&thread.into(), move |part| send.send(part).is_ok()).await.unwrap();
    let mut all: Vec<serde_json::Value> = Vec::new();
    for part in parts {
        let object = all.last_mut();
        match (part, object) {
            (ExportPart::Start { child, thread }, _) => all.push(json!({
                "child": child, "thread": thread, "messages": [], "runs": [], "summaries": [], "images": {},
            })),
            (ExportPart::Part(part), Some(object)) => match part {
                CopyPart::Message(stored) => object["messages"].as_array_mut().unwrap().push(json!(stored)),
                CopyPart::Run(run) => object["runs"].as_array_mut().unwrap().push(json!(run)),
                CopyPart::Summary(summary) => {
                    object["summaries"].as_array_mut().unwrap().push(json!(summary));
                }
                CopyPart::Image { hash, data } => object["images"][hash] = data.into(),
            },
            (ExportPart::End(rest), Some(object)) => {
                for (name, value) in json!(rest).as_object().unwrap() {
                    if !["runs", "summaries", "images"].contains(&name.as_str()) {
                        object[name] = value.clone();
                    }
                }
            }
            (part, None) => panic!("{part:?} before a conversation"),
        }
    }
    let mut root = all.remove(0);
    root["children"] = all.into();
    root
}

fn file_of(value: &serde_json::Value) -> ThreadCopyFile {
    let mut file = tempfile::tempfile().unwrap();
    serde_json::to_writer(&mut file, value).unwrap();
    ThreadCopyFile::new(file)
}

#[tokio::test]
async fn a_conversation_in_a_file_is_imported_part_by_part() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
    let done = super::run("r0", "t1", RunStatus::Done);
    let calls = ["c1", "c2"].map(|id| ToolCall::new(id, "Bash", json!({"command": "date"}))).to_vec();
    let gif = [b"GIF89a".as_slice(), &[1, 0, 2, 0], &[7; 400]].concat();
    let image = Message::user_with(vec![ContentBlock::image("image/gif", STANDARD.encode(gif))]);
    let messages = vec![image, Message::assistant_with(Vec::new(), calls), Message::tool("c2", "x")];
    store.checkpoint(checkpoint(&fence, &done)).await.unwrap();
    let state = Some(BTreeMap::from([("k".to_owned(), json!([1, 2]))]));
    store.checkpoint(Checkpoint { messages, thread_state: state, ..checkpoint(&fence, &run) }).await.unwrap();
    let written = exported(&store, "t1").await;
    assert_eq!(rest_of(&store, "t1").await.runs.len(), written["runs"].as_array().unwrap().len());
    let (send, first) = std::sync::mpsc::channel();
    store.export_parts(&"t1".into(), move |part| send.send(part).is_err()).await.unwrap();
    assert_eq!(first.iter().count(), 1, "it stops when nobody wants more");

    let mut file = file_of(&written);
    let outline = file.outline().unwrap();
    assert_eq!(outline.messages, []);
    let unfinished: Vec<_> = outline.rest.runs.iter().map(|run| run.id.as_str()).collect();
    assert_eq!((unfinished, outline.rest.images.len()), (vec![run.id.as_str()], 0), "only what is needed");
    // Its open run is continued.
    let other = Store::in_memory().unwrap();
    let mut adopted = outline.clone();
    adopted.adopted = HashMap::from([(run.id.clone(), Vec::new())]);
    other.import_thread_file(adopted, file).await.unwrap();
    assert_eq!(exported(&other, "t1").await, written);
    // Its open run is closed.
    let other = Store::in_memory().unwrap();
    other.import_thread_file(outline, file_of(&written)).await.unwrap();
    let said = other.messages(&"t1".into()).await.unwrap();
    assert_eq!(said.last().unwrap().message.tool_call_id.as_deref(), Some("c1"));
    assert!(other.runs(&"t1".into()).await.unwrap().iter().all(|run| run.status == RunStatus::Done));

    // The same as a whole.
    let whole = Store::in_memory().unwrap();
    whole.import_thread(serde_json::from_value(written.clone()).unwrap()).await.unwrap();
    let (mut one, mut two) = (exported(&whole, "t1").await, exported(&other, "t1").await);
    for copy in [&mut one, &mut two] {
        let made = copy["messages"].as_array_mut().unwrap().pop().unwrap();
        assert_eq!(made["message"]["tool_call_id"], "c1");
    }
    assert_eq!(one, two);

    // Nothing stays of a file that changes, or that holds a wrong part.
    let other = Store::in_memory().unwrap();
    let outline = file_of(&written).outline().unwrap();
    let changed = |key: &str, value| {
        let mut changed = written.clone();
        changed[key] = value;
        file_of(&changed)
    };
    for (file, why) in [
        (changed("runs", json!([])), "changed"),
        (changed("messages", json!([written["messages"][1]])), "message 1 is missing"),
        (changed("messages", json!([{"seq": 1}])), "missing field"),
        (changed("images", json!({"00": "AAAA"})), "does not match its hash"),
        (changed("children", json!([{"messages": written["messages"]}])), "changed"),
    ] {
        let error = other.import_thread_file(outline.clone(), file).await.unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
        assert_eq!(other.threads(None).await.unwrap(), []);
    }
    let mut nothing = file_of(&json!({"thread": written["thread"]}));
    assert!(nothing.outline().unwrap_err().to_string().contains("messages"));
}
