//! What a program keeps for others: messages to other programs, definitions, prompts, folders; and upkeep.

use std::path::{Path, PathBuf};

use serde_json::json;

use aye_core::contract::config_entry::{EntryConflict, EntryExpectation};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::inference::{ModelUsage, TokenUsage};
use aye_core::contract::message::Message;
use aye_core::contract::program_store::{
    ForkAt, OutboxOutcome, OutboxStatus, ProgramStore, PrunePlace, PushTarget, PushTargetsOf,
};
use aye_core::contract::record::*;
use aye_core::contract::snapshot::WentBackRecord;
use aye_core::contract::suspension::Actor;

use super::fixtures::*;
use super::threads::talk;

fn actor() -> Actor {
    Actor { user: "ada".into(), ..Actor::default() }
}

pub async fn a_message_to_another_program_is_sent_until_it_is_taken(store: &dyn ProgramStore) {
    store.create_thread(thread("t1")).await.unwrap();
    let put = async |key: &str| {
        store.put_into_outbox(&"t1".into(), key.into(), "webhook:x".into(), "{}".into(), 10).await.unwrap()
    };
    assert!(put("a").await);
    assert!(!put("a").await, "it already exists");
    let first = store.claim_from_outbox(10, 100).await.unwrap().unwrap();
    assert_eq!((first.target.as_str(), first.status), ("webhook:x", OutboxStatus::Queued));
    assert_eq!(store.claim_from_outbox(20, 100).await.unwrap(), Err(Some(110)), "one at a time");
    assert!(store.claim_from_outbox(110, 100).await.unwrap().is_ok(), "its sender is silent");
    let retry = OutboxOutcome::Retry { at: 300, error: "503".into() };
    store.settle_in_outbox(first.number, retry, 120).await.unwrap();
    assert_eq!(store.claim_from_outbox(299, 100).await.unwrap(), Err(Some(300)));
    let dead = OutboxOutcome::DeadLetter { error: "410".into() };
    store.settle_in_outbox(first.number, dead, 301).await.unwrap();
    assert_eq!(store.outbox(false).await.unwrap()[0].attempt_count, 2);
    assert!(store.retry_in_outbox(first.number, 302).await.unwrap());
    assert!(!store.retry_in_outbox(first.number, 302).await.unwrap(), "it is due");
    store.settle_in_outbox(first.number, OutboxOutcome::Accepted, 303).await.unwrap();
    assert_eq!(store.outbox(false).await.unwrap(), []);
    assert_eq!(store.outbox(true).await.unwrap()[0].status, OutboxStatus::Accepted);
    // One for later is not due before, and may be of no use by then.
    store.put_into_outbox(&"t1".into(), "b".into(), "webhook:x".into(), "{}".into(), 900).await.unwrap();
    assert_eq!(store.claim_from_outbox(899, 100).await.unwrap(), Err(Some(900)));
    let later = store.claim_from_outbox(900, 100).await.unwrap().unwrap();
    store.settle_in_outbox(later.number, OutboxOutcome::Obsolete, 901).await.unwrap();
    assert_eq!(store.outbox(false).await.unwrap(), []);
    assert_eq!(store.outbox(true).await.unwrap()[1].status, OutboxStatus::Cancelled);
}

pub async fn urls_of_a_run_are_kept_with_its_thread(store: &dyn ProgramStore) {
    waiting(store, None).await;
    let target = |id: &str, config: &str| PushTarget {
        run_id: "r1".into(),
        id: id.into(),
        thread_id: "t1".into(),
        config: config.into(),
    };
    assert!(store.put_push_target(target("a", "{}"), 1).await.unwrap());
    assert!(store.put_push_target(target("a", "{\"x\": 1}"), 2).await.unwrap());
    let nowhere = PushTarget { thread_id: "t9".into(), ..target("b", "{}") };
    assert!(!store.put_push_target(nowhere, 1).await.unwrap());
    assert_eq!(
        store.push_targets(PushTargetsOf::Run("r1".into())).await.unwrap(),
        [target("a", "{\"x\": 1}")]
    );
    assert_eq!(store.push_targets(PushTargetsOf::Waiting("t1".into())).await.unwrap().len(), 1);
    assert_eq!(store.push_targets(PushTargetsOf::AllWaiting).await.unwrap().len(), 1);
    assert!(store.delete_push_target(&"r1".into(), "a".into()).await.unwrap());
    assert!(!store.delete_push_target(&"r1".into(), "a".into()).await.unwrap());
}

pub async fn a_definition_changes_only_as_expected(store: &dyn ProgramStore) {
    let publish = async |value: Option<u32>, expected| {
        let name = ("agents".to_owned(), "a".to_owned());
        store.publish_entry(name, value.map(|n| json!(n)), expected, (actor(), 10)).await.unwrap()
    };
    assert_eq!(publish(Some(1), EntryExpectation::Present).await, Err(EntryConflict::Missing));
    let first = publish(Some(1), EntryExpectation::Absent).await.unwrap();
    assert_eq!(publish(Some(2), EntryExpectation::Absent).await, Err(EntryConflict::Exists));
    let second = publish(Some(2), EntryExpectation::Revision(first)).await.unwrap();
    assert_eq!(publish(Some(3), EntryExpectation::Revision(first)).await, Err(EntryConflict::Stale(second)));
    publish(None, EntryExpectation::Present).await.unwrap();
    let values: Vec<_> =
        store.config_entries().await.unwrap().into_iter().map(|version| version.value).collect();
    assert_eq!(values.last(), Some(&None), "deleted");
}

pub async fn what_was_typed_is_remembered_once(store: &dyn ProgramStore) {
    for (cwd, text) in [("/a", "one"), ("/b", "two"), ("/a", "one"), ("/a", " ")] {
        store.remember_prompt(Path::new(cwd), text).await.unwrap();
    }
    assert_eq!(store.all_prompts(9).await.unwrap(), ["one", "two"]);
    assert_eq!(store.all_prompts(1).await.unwrap(), ["one"]);
}

pub async fn a_moved_folder_keeps_its_conversations(store: &dyn ProgramStore) {
    let (old, new) = (Path::new("/work"), Path::new("/moved"));
    store.create_thread(thread("t1")).await.unwrap();
    assert!(!store.knows_folder(old).await.unwrap());
    store.note_folder(old, "c0ffee", Path::new("sub")).await.unwrap();
    assert!(store.knows_folder(old).await.unwrap());
    assert_eq!(store.folders_of("c0ffee", Path::new("sub")).await.unwrap(), [PathBuf::from("/work")]);
    assert_eq!(store.folders_of("c0ffee", Path::new("")).await.unwrap(), [] as [PathBuf; 0]);
    assert_eq!(store.move_folder(old, new).await.unwrap(), 1);
    assert_eq!(store.load_thread(&"t1".into()).await.unwrap().unwrap().cwd, new);
    assert_eq!(store.folders_of("c0ffee", Path::new("sub")).await.unwrap(), [] as [PathBuf; 0]);
}

pub async fn a_rewind_continues_in_a_copy(store: &dyn ProgramStore) {
    talk(store, "t1", 3).await;
    let fork = ForkAt { from: "t1".into(), keep: 2, copy: thread("t2"), is_rewind: true };
    let went = WentBackRecord {
        n: 0,
        thread_id: "t2".into(),
        from_thread: Some("t1".into()),
        root: None,
        tree: None,
        created_at: 9,
        words: "back".into(),
    };
    let n = store.go_back(Some(fork), Some(went.clone())).await.unwrap().unwrap();
    assert_eq!(store.message_count(&"t2".into()).await.unwrap(), 2);
    assert_eq!(store.message_count(&"t1".into()).await.unwrap(), 3, "nothing is deleted");
    assert_eq!(store.last_went_back(&"t2".into()).await.unwrap(), Some(WentBackRecord { n, ..went }));
    assert_eq!(store.latest_thread("/work".as_ref()).await.unwrap().unwrap().id.as_str(), "t2");
    store.set_left(&"t1".into(), None).await.unwrap();
    assert_eq!(store.snapshots(&"t1".into()).await.unwrap(), []);
    assert_eq!(store.snapshot_behind(&"t1".into(), 1).await.unwrap(), None);
}

pub async fn old_conversations_are_pruned_unless_something_needs_them(store: &dyn ProgramStore) {
    let me = announced(store, "me");
    for id in ["old", "pinned", "queued", "driven"] {
        store.create_thread(thread(id)).await.unwrap();
    }
    store.create_thread(ThreadRecord { updated_at: 1_000, ..thread("new") }).await.unwrap();
    store.pin_thread(&"pinned".into(), Some(1)).await.unwrap();
    store.enqueue_typed(&"queued".into(), vec![Message::user("x")], &me.owner, 1).await.unwrap();
    acquired(store, "driven", &me.owner).await;
    let (mut gone, mut place) = (Vec::new(), PrunePlace::default());
    loop {
        let step = store.prune(Some(500), place, actor(), 60).await.unwrap();
        gone.extend(step.threads);
        match step.next {
            Some(next) => place = next,
            None => break,
        }
    }
    assert_eq!(gone, [ThreadId::from("old")]);
    assert_eq!(store.check().await.unwrap(), [""; 0]);
    assert!(store.used_bytes().await.unwrap() > 0);
    store.shrink(false).await.unwrap();
    store.warm().await;
    assert_eq!(store.threads_page(None, 0, None).await.unwrap().len(), 4);
    store.leave().await;
}

#[allow(clippy::unused_async, reason = "each test of the suite is awaited")]
pub async fn whoever_listens_is_known(store: &dyn ProgramStore) {
    let _feed = store.another().unwrap().watch().unwrap();
    assert!(store.has_listener());
}

pub async fn counts_outlive_their_threads(store: &dyn ProgramStore) {
    talk(store, "t1", 1).await;
    assert_eq!(store.usage_by_model(&"t1".into()).await.unwrap().1, []);
    let usage = TokenUsage { prompt_tokens: Some(7), completion_tokens: Some(2), ..TokenUsage::default() };
    store.count_request(&ModelUsage { model: "m".into(), usage }, 1000).await.unwrap();
    let counted = store.tallies(None).await.unwrap();
    let of_model =
        counted.iter().find(|tally| tally.name == "m").map(|tally| (tally.count, tally.input, tally.output));
    assert_eq!(of_model, Some((1, 7, 2)));
    assert!(store.delete_thread(&"t1".into(), &owner("me"), actor(), 60).await.unwrap());
    assert_eq!(store.tallies(None).await.unwrap(), counted);
    assert_eq!(store.tallies(None).await.unwrap(), store.tallies(Some(0)).await.unwrap());
    assert_eq!(store.tallies(Some(u64::MAX / 4)).await.unwrap(), []);
    assert_eq!(store.all_grants().await.unwrap(), []);
    assert_eq!(store.ended_grants(9).await.unwrap(), []);
}
