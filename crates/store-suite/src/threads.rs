//! Conversations: messages, summaries, images, children.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::fixtures::*;
use aye_core::contract::child::ChildRecord;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::image::ImageRef;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::message::{Message, ToolCall};
use aye_core::contract::prefix::{PrefixRecord, PromptPart};
use aye_core::contract::record::*;
use aye_core::contract::storage::{Portion, StoreError, ThreadRunStore};
use aye_core::contract::summary::SummaryRecord;

async fn append(store: &dyn ThreadRunStore, id: &str, messages: &[Message]) {
    store.ensure_thread(thread(id)).await.unwrap();
    let fence = store.acquire(&id.into(), &owner("me"), None).await.unwrap();
    let run = run(&format!("run-{id}"), id, RunStatus::Running);
    store.checkpoint(Checkpoint { messages: messages.to_vec(), ..checkpoint(&fence, &run) }).await.unwrap();
}

pub async fn talk(store: &dyn ThreadRunStore, id: &str, n: usize) -> Vec<Message> {
    let messages: Vec<_> = (1..=n).map(|n| Message::user(format!("message {n}"))).collect();
    append(store, id, &messages).await;
    messages
}

pub fn summary(all: &[Message], upto: usize) -> SummaryRecord {
    SummaryRecord {
        thread_id: "t1".into(),
        upto: all[upto - 1].id.clone(),
        upto_seq: upto as u64,
        at_seq: all.len() as u64,
        messages: upto as u64,
        before_tokens: 5000,
        after_tokens: 400,
        hint: None,
        model: "m".into(),
        usage: None,
        created_at: 7,
        text: format!("of {upto}"),
        said: vec!["message 1".into()],
    }
}

pub async fn a_summary_ends_at_an_existing_message(store: &dyn ThreadRunStore) {
    let written = talk(store, "t1", 3).await;
    let elsewhere = SummaryRecord { thread_id: "t9".into(), ..summary(&written, 2) };
    assert!(matches!(store.add_summary(elsewhere).await, Err(StoreError::NoThread(_))));
    for wrong in [
        SummaryRecord { upto_seq: 4, ..summary(&written, 2) },
        SummaryRecord { upto_seq: 3, ..summary(&written, 2) },
        SummaryRecord { upto: written[2].id.clone(), ..summary(&written, 2) },
    ] {
        assert!(matches!(store.add_summary(wrong).await, Err(StoreError::Damaged { .. })));
    }
    assert_eq!(store.summary(&"t1".into(), 0).await.unwrap(), None);
}

pub async fn messages_keep_their_order_and_the_tail_is_cheap(store: &dyn ThreadRunStore) {
    let written = talk(store, "t1", 5).await;
    let all = store.load_messages(&"t1".into()).await.unwrap();
    assert_eq!(all.iter().map(|m| m.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(all.iter().map(|m| m.message.clone()).collect::<Vec<_>>(), written);
    assert_eq!(store.messages_tail(&"t1".into(), 2).await.unwrap(), (5, all[3..].to_vec()));
    assert_eq!(store.messages_tail(&"t1".into(), 0).await.unwrap(), (5, Vec::new()));
    assert_eq!(store.messages_tail(&"t1".into(), usize::MAX).await.unwrap(), (5, all));
    assert_eq!(store.messages_tail(&"t9".into(), 3).await.unwrap(), (0, Vec::new()));
    assert_eq!(store.message_count(&"t1".into()).await.unwrap(), 5);
    store.complete_outline(&"t1".into()).await.unwrap();
    let portion = Portion { floor: 0, bytes: usize::MAX, count: 0 };
    let tail = store.thread_tail(&"t1".into(), portion).await.unwrap();
    assert_eq!((tail.is_assumed, tail.outline.count), (false, 5));
    store.complete_outline(&"t9".into()).await.unwrap();
}

pub async fn a_thread_keeps_its_first_title(store: &dyn ThreadRunStore) {
    let titled = |title: &str| ThreadRecord { title: title.into(), ..thread("t1") };
    for title in ["", "first", "second"] {
        store.ensure_thread(titled(title)).await.unwrap();
    }
    assert_eq!(store.load_thread(&"t1".into()).await.unwrap(), Some(titled("first")));
    assert_eq!(store.load_thread(&"t2".into()).await.unwrap(), None);
    let bad = store.ensure_thread(thread("no/name")).await.unwrap_err();
    assert!(matches!(bad, StoreError::InvalidId(_)), "{bad}");
}

pub async fn the_summary_with_the_furthest_range_wins(store: &dyn ThreadRunStore) {
    let written = talk(store, "t1", 9).await;
    let id = ThreadId::from("t1");
    assert_eq!(store.summary(&id, 0).await.unwrap(), None);
    assert!(store.add_summary(summary(&written, 4)).await.unwrap());
    assert!(store.add_summary(summary(&written, 7)).await.unwrap());
    assert!(!store.add_summary(summary(&written, 7)).await.unwrap(), "another process was first");
    assert!(!store.add_summary(summary(&written, 5)).await.unwrap(), "a late one");
    assert_eq!(store.summary(&id, 0).await.unwrap(), Some(summary(&written, 7)));
    assert_eq!(store.summary(&id, 7).await.unwrap(), None);
    // The last message that it replaces is still read: it names the owner.
    let all = Portion { floor: 0, bytes: usize::MAX, count: usize::MAX };
    let tail = store.thread_tail(&id, all).await.unwrap();
    assert_eq!((tail.base, tail.messages.as_slice(), tail.outline.count), (6, &written[6..], 9));
}

/// A conversation with an unanswered call, compared with every partial read.
pub async fn parts_of_a_thread_match_the_whole(store: &dyn ThreadRunStore) {
    let call = |id: &str| Message::assistant_with(Vec::new(), vec![ToolCall::new(id, "Bash", json!({}))]);
    let whole = [
        Message::user("go"),
        call("c1"),
        Message::tool("c1", "1"),
        Message::assistant("an answer"),
        call("c2"),
        Message::user("more"),
        call("c3"),
        Message::tool("c3", "3"),
    ];
    append(store, "t1", &whole).await;
    let id = ThreadId::from("t1");
    let portion = |count| Portion { floor: 0, bytes: 0, count };
    // A result is never read without the message that requested it.
    for (count, base) in [(0, 8), (1, 6), (2, 6), (3, 5), (6, 1), (7, 1), (8, 0), (99, 0)] {
        let tail = store.thread_tail(&id, portion(count)).await.unwrap();
        assert_eq!((tail.base, &*tail.messages), (base, &whole[base..]), "{count}");
        let needed = tail.outline.needed().into_iter().filter(|at| *at < base);
        assert_eq!(tail.apart, needed.map(|at| (at, whole[at].clone())).collect(), "{count}");
        assert!(!tail.outline.is_tidy(), "c2 has no result");
    }
    assert_eq!(store.thread_tail(&"t9".into(), portion(9)).await.unwrap().outline.count, 0);
    assert_eq!(store.messages_back(&id, 3, portion(1)).await.unwrap(), whole[1..3]);
    assert_eq!(store.messages_back(&id, 6, Portion { floor: 4, ..portion(9) }).await.unwrap(), whole[4..6]);
    let first = serde_json::to_string(&whole[2]).unwrap().len();
    assert_eq!(store.messages_from(&id, 2, first).await.unwrap(), whole[2..3]);
    assert_eq!(store.messages_from(&id, 2, first + 1).await.unwrap(), whole[2..4]);
    assert_eq!(store.messages_from(&id, 0, 0).await.unwrap(), []);
    assert_eq!(store.messages_from(&id, 9, 99).await.unwrap(), []);
    let run = "run-t1".into();
    assert_eq!(store.last_answer(&id, Some(&run)).await.unwrap(), Some(whole[6].clone()));
    assert_eq!(store.last_answer(&id, Some(&"r9".into())).await.unwrap(), None);
    assert_eq!(store.last_answer(&id, None).await.unwrap(), Some(whole[6].clone()));
    let ids = ["c1", "c9", "c3"].map(str::to_owned).to_vec();
    let used = HashSet::from(["c1", "c3"].map(str::to_owned));
    assert_eq!(store.used_call_ids(&id, ids).await.unwrap(), used);
    let (count, of_run) = store.messages_of_run(&id, &run).await.unwrap();
    assert_eq!((count, of_run.len()), (8, 8));
    assert_eq!(store.messages_of_run(&id, &"r9".into()).await.unwrap().0, 8);
}

pub async fn the_start_of_requests_that_was_frozen_last_counts(store: &dyn ThreadRunStore) {
    assert_eq!(store.prefix(&"t1".into()).await.unwrap(), None);
    store.ensure_thread(thread("t1")).await.unwrap();
    assert_eq!(store.prefix(&"t1".into()).await.unwrap(), None);
    let fence = store.acquire(&"t1".into(), &owner("me"), None).await.unwrap();
    let run = run("r1", "t1", RunStatus::Running);
    let part = |text: &str| PromptPart { key: "a".into(), text: text.into(), ends_silently: false };
    for (at_seq, text) in [(1, "one"), (1, "one again"), (7, "seven")] {
        let frozen =
            PrefixRecord { at_seq, pinned: vec![3], system: vec![part(text)], ..PrefixRecord::default() };
        let prefix = Some(frozen.clone());
        store.checkpoint(Checkpoint { prefix, ..checkpoint(&fence, &run) }).await.unwrap();
        assert_eq!(store.prefix(&"t1".into()).await.unwrap(), Some(frozen));
        store.checkpoint(checkpoint(&fence, &run)).await.unwrap();
        assert_eq!(store.prefix(&"t1".into()).await.unwrap().unwrap().system, [part(text)]);
    }
    let starts = store.request_starts(&"t1".into()).await.unwrap();
    let texts: Vec<_> = starts.iter().map(|start| start.prefix.system[0].text.as_str()).collect();
    assert_eq!(texts, ["one again", "seven"]);
    assert!(starts.iter().all(|start| start.summary.is_none()));
}

pub async fn images_are_stored_apart_from_their_messages(store: &dyn ThreadRunStore) {
    let gif = [b"GIF89a".as_slice(), &[1, 0, 2, 0], &[7; 400]].concat();
    let image = ContentBlock::image("image/gif", STANDARD.encode(&gif));
    let odd = ContentBlock::image("image/odd", "AAAA");
    append(store, "t1", &[Message::user_with(vec![image, odd.clone()])]).await;
    let content = store.load_messages(&"t1".into()).await.unwrap().remove(0).message.content;
    let stored = content[0].as_stored_image().expect("a reference");
    assert_eq!((stored.width, stored.height, stored.bytes), (1, 2, 410));
    assert_eq!(store.image(&stored.hash).await.unwrap(), Some(gif.clone()));
    assert_eq!(content[1], odd, "text that is not an image is unchanged");
    assert_eq!(store.image("nothing").await.unwrap(), None);
    let attached = ImageRef::of("a.gif", &gif).unwrap();
    store.put_image(&attached, gif.clone(), 1).await.unwrap();
    assert_eq!(store.image(&attached.hash).await.unwrap(), Some(gif));
}

pub fn child(id: &str, parent: &str, background: bool) -> ChildRecord {
    ChildRecord {
        thread_id: id.into(),
        parent_thread: parent.into(),
        root_thread: "t1".into(),
        parent_run: "r1".into(),
        parent_call: format!("call-{id}").into(),
        agent: "helper".into(),
        prompt: "look".into(),
        model: None,
        depth: 1,
        background,
        told: false,
        created_at: 30,
        stop: false,
    }
}

pub async fn a_child_is_created_once_and_reported_once(store: &dyn ThreadRunStore) {
    waiting(store, None).await;
    let create = |row: ChildRecord| store.create_child(row, "helper".into(), "/work".into());
    let (kid, far) = (child("t1.a", "t1", false), child("t1.a.b", "t1.a", true));
    assert_eq!(create(kid.clone()).await.unwrap(), kid);
    assert_eq!(create(kid.clone()).await.unwrap(), kid, "the same call again");
    let other = ChildRecord { parent_call: "c9".into(), ..kid.clone() };
    assert!(matches!(create(other).await, Err(StoreError::Exists { .. })));
    assert!(matches!(create(child("x", "t9", false)).await, Err(StoreError::NoThread(_))));
    create(far.clone()).await.unwrap();
    let twin = ChildRecord { parent_call: kid.parent_call.clone(), ..child("t1.c", "t1", false) };
    assert!(create(twin).await.is_err(), "a call has one child");
    assert_eq!(store.children(&"t1".into()).await.unwrap(), [kid.clone(), far.clone()]);
    assert_eq!(store.child(&"t1".into()).await.unwrap(), None);
    assert_eq!(store.driven_with(&"t1.a".into()).await.unwrap(), ThreadId::from("t1"));
    assert_eq!(
        store.driven_with(&"t1.a.b".into()).await.unwrap(),
        ThreadId::from("t1.a.b"),
        "in the background"
    );

    assert!(store.stop_child(&"t1.a".into()).await.unwrap());
    assert!(!store.stop_child(&"t9".into()).await.unwrap());
    assert!(store.child(&"t1.a".into()).await.unwrap().unwrap().stop);
    let report = async |id: &str| {
        let end = vec![Message::user("done")];
        store.queue_child_end(&id.into(), "main".into(), end, 50).await.unwrap()
    };
    assert!(!report("t1.a").await, "its call waits for it");
    assert!(report("t1.a.b").await);
    assert!(!report("t1.a.b").await);
    let queued = store.queued(&"t1.a".into()).await.unwrap();
    assert_eq!((queued.len(), queued[0].agent_id.as_deref()), (1, Some("main")));
}

pub async fn child_questions_are_pending_with_their_parent(store: &dyn ThreadRunStore) {
    let (_, parent) = waiting(store, None).await;
    for (id, background) in [("t1.a", false), ("t1.b", true)] {
        let row = ChildRecord { parent_run: parent.id.clone(), ..child(id, "t1", background) };
        store.create_child(row, String::new(), "/work".into()).await.unwrap();
        let fence = store.acquire(&id.into(), &owner("me"), None).await.unwrap();
        let run = run(&format!("run-{id}"), id, RunStatus::Waiting);
        let opened = vec![question(&format!("q-{id}"), &run, "c1", None)];
        store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    }
    let below = async |id: &str| {
        let found = store.waiting_below(&id.into()).await.unwrap();
        found.into_iter().map(|q| q.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(below("t1").await, ["q1", "q-t1.a"]);
    assert_eq!(below("t1.b").await, ["q-t1.b"]);
    let tasks = store.tasks(&"t1".into()).await.unwrap();
    let seen: Vec<_> =
        tasks.iter().map(|t| (t.child.thread_id.as_str(), t.run.is_some(), t.waiting)).collect();
    assert_eq!(seen, [("t1.a", true, 1), ("t1.b", true, 1)]);
    assert!(!store.has_answers(&"t1".into()).await.unwrap());
    store.decide(&"q-t1.b".into(), yes("d1"), 1).await.unwrap();
    assert!(!store.has_answers(&"t1".into()).await.unwrap(), "nobody waits for that one");
    store.decide(&"q-t1.a".into(), yes("d2"), 1).await.unwrap();
    assert!(store.has_answers(&"t1".into()).await.unwrap());
}
