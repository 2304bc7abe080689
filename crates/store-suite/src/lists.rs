//! Lists over all threads, in parts, and what users change in them.

use super::fixtures::*;
use super::threads::{child, talk};
use aye_core::contract::audit::AuditKind;
use aye_core::contract::child::ChildRecord;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::mailbox::{MailboxJob, MailboxJobStatus};
use aye_core::contract::message::Message;
use aye_core::contract::record::*;
use aye_core::contract::storage::{AuditFilter, Slice, StoreError, SuspensionFilter, ThreadRunStore};
use aye_core::contract::suspension::Actor;

const ALL: Slice = Slice { offset: 0, limit: 99 };

fn part(offset: usize, limit: usize) -> Slice {
    Slice { offset, limit }
}

async fn ids(store: &dyn ThreadRunStore, slice: Slice) -> Vec<String> {
    let found = store.summaries(slice).await.unwrap();
    found.into_iter().map(|summary| summary.thread.id.to_string()).collect()
}

pub async fn threads_are_listed_newest_change_first(store: &dyn ThreadRunStore) {
    store.ensure_thread(ThreadRecord { updated_at: 10, ..thread("t3") }).await.unwrap();
    let (fence, parent) = waiting(store, None).await;
    let row = ChildRecord { parent_run: parent.id.clone(), ..child("t1.a", "t1", false) };
    store.create_child(row, String::new(), "/work".into()).await.unwrap();
    let of_child = store.acquire(&"t1.a".into(), &owner("me"), None).await.unwrap();
    let asks = run("r2", "t1.a", RunStatus::Waiting);
    let opened = vec![question("q2", &asks, "c2", None)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&of_child, &asks) }).await.unwrap();
    store.ensure_thread(ThreadRecord { updated_at: 30, ..thread("t2") }).await.unwrap();
    assert_eq!(ids(store, ALL).await, ["t2", "t1", "t3"], "a child is listed with its parent");
    assert_eq!(ids(store, part(1, 1)).await, ["t1"]);
    assert_eq!(ids(store, part(3, 9)).await, [""; 0]);
    let found = store.summaries(part(1, 1)).await.unwrap().remove(0);
    assert_eq!((found.messages, found.waiting, found.status), (1, 2, Some(RunStatus::Waiting)));
    assert_eq!((found.damaged, found.marks), (None, ThreadMarks::default()));
    // Later by more than a store may leave the time of a change as it is while a run goes through its steps.
    store.checkpoint(checkpoint(&fence, &RunRecord { updated_at: 60_040, ..parent })).await.unwrap();
    assert_eq!(ids(store, ALL).await, ["t1", "t2", "t3"]);
}

pub async fn a_users_title_is_kept(store: &dyn ThreadRunStore) {
    store.ensure_thread(thread("t1")).await.unwrap();
    let id = ThreadId::from("t1");
    let rename = async |title, by| {
        let is_used = store.rename_thread(&id, title, by).await.unwrap();
        (is_used, store.load_thread(&id).await.unwrap().unwrap().title)
    };
    assert_eq!(rename("of a model", NamedBy::Model).await, (true, "of a model".into()));
    assert_eq!(rename("of another", NamedBy::Model).await, (false, "of a model".into()));
    assert_eq!(rename("of a user", NamedBy::Person).await, (true, "of a user".into()));
    assert_eq!(rename("of a model", NamedBy::Model).await, (false, "of a user".into()));
    assert_eq!(rename("another", NamedBy::Person).await, (true, "another".into()));
    let missing = store.rename_thread(&"t9".into(), "x", NamedBy::Person).await;
    assert!(matches!(missing, Err(StoreError::NoThread(_))));
}

pub async fn a_deleted_thread_leaves_its_audit(store: &dyn ThreadRunStore) {
    let owner_of_t1 = announced(store, "one");
    let (fence, parent) = waiting_of(store, &owner_of_t1.owner, None).await;
    let row = ChildRecord { parent_run: parent.id.clone(), ..child("t1.a", "t1", false) };
    store.create_child(row, String::new(), "/work".into()).await.unwrap();
    store.submit(MailboxJob::new("t1", vec![Message::user("next")], 1)).await.unwrap();
    talk(store, "t2", 1).await;
    let gone = announced(store, "gone");
    acquired(store, "t2", &gone.owner).await;
    let delete = async |id: &str, own: &str| {
        let actor = Actor { user: "ada".into(), ..Actor::default() };
        store.delete_thread(&id.into(), &owner(own), actor, 70).await
    };
    let used = delete("t1", "other").await;
    assert!(matches!(used, Err(StoreError::Owned { .. })), "{used:?}");
    assert_eq!(store.message_count(&"t1".into()).await.unwrap(), 1, "nothing was deleted");
    assert!(delete("t1", "one").await.unwrap(), "its owner may");
    assert!(!delete("t1", "one").await.unwrap());
    assert!(!delete("t9", "one").await.unwrap());
    assert_eq!(ids(store, ALL).await, ["t2"]);
    assert_eq!(store.load_messages(&"t1".into()).await.unwrap(), []);
    assert_eq!(store.load_run(&"r1".into()).await.unwrap(), None);
    assert_eq!(store.suspension(&"q1".into()).await.unwrap(), None);
    assert_eq!(store.load_thread(&"t1.a".into()).await.unwrap(), None);
    assert_eq!(store.open_jobs(None, ALL).await.unwrap(), []);
    let lost = store.checkpoint(checkpoint(&fence, &parent)).await;
    assert!(lost.is_err(), "{lost:?}");
    let audit =
        store.audit(AuditFilter { thread: Some("t1".into()), ..AuditFilter::default() }).await.unwrap();
    assert_eq!(audit.iter().map(|row| row.kind).collect::<Vec<_>>(), [AuditKind::Asked, AuditKind::Deleted]);
    assert_eq!((&audit[1].body["questions"], &audit[1].body["actor"]["user"]), (&1.into(), &"ada".into()));
    // A dead owner does not count, and the id is free again.
    let used = delete("t2", "other").await;
    assert!(matches!(used, Err(StoreError::Owned { .. })), "{used:?}");
    drop(gone);
    assert!(delete("t2", "other").await.unwrap());
    store.ensure_thread(thread("t1")).await.unwrap();
    let again = store.checkpoint(checkpoint(&fence, &parent)).await;
    assert!(matches!(again, Err(StoreError::Fenced { .. })), "{again:?}");
}

pub async fn runs_are_listed_newest_first(store: &dyn ThreadRunStore) {
    for (thread_id, runs) in [("t1", ["r1", "r2"]), ("t2", ["r3", "r4"])] {
        store.ensure_thread(thread(thread_id)).await.unwrap();
        let (id, me) = (ThreadId::from(thread_id), owner("me"));
        let fence = store.acquire(&id, &me, None).await.unwrap();
        for (id, status) in runs.into_iter().zip([RunStatus::Done, RunStatus::Running]) {
            store.checkpoint(checkpoint(&fence, &run(id, thread_id, status))).await.unwrap();
        }
    }
    let listed = async |thread: Option<&str>, status, slice| {
        let thread = thread.map(ThreadId::from);
        let found = store.latest_runs(thread.as_ref(), status, slice).await.unwrap();
        found.into_iter().map(|run| run.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, None, ALL).await, ["r4", "r3", "r2", "r1"]);
    assert_eq!(listed(None, None, part(1, 2)).await, ["r3", "r2"]);
    assert_eq!(listed(None, Some(RunStatus::Done), ALL).await, ["r3", "r1"]);
    assert_eq!(listed(Some("t1"), None, ALL).await, ["r2", "r1"]);
    assert_eq!(listed(Some("t1"), Some(RunStatus::Running), part(0, 1)).await, ["r2"]);
    assert_eq!(listed(Some("t9"), None, ALL).await, [""; 0]);
}

pub async fn parts_of_lists_match_the_whole(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, Some(50)).await;
    let opened = vec![question("q2", &run, "c2", None), question("q3", &run, "c3", None)];
    let messages = (2..=5).map(|n| Message::user(format!("message {n}"))).collect();
    store.checkpoint(Checkpoint { opened, messages, ..checkpoint(&fence, &run) }).await.unwrap();
    store.decide(&"q3".into(), yes("d1"), 30).await.unwrap();
    let filter = || SuspensionFilter { thread: Some("t1".into()), ..SuspensionFilter::default() };
    let questions = store.suspensions(filter()).await.unwrap();
    let messages = store.load_messages(&"t1".into()).await.unwrap();
    let audit = store.audit(AuditFilter::default()).await.unwrap();
    assert_eq!((questions.len(), messages.len(), audit.len()), (3, 5, 4));
    for slice in [ALL, part(0, 1), part(1, 1), part(2, 9), part(3, 1), part(9, 9), part(1, 0)] {
        let found = store.messages_page(&"t1".into(), slice).await.unwrap();
        assert_eq!(found, slice.of(messages.clone()), "{slice:?}");
        assert_eq!(store.suspensions_page(filter(), slice).await.unwrap(), slice.of(questions.clone()));
        assert_eq!(store.audit_page(AuditFilter::default(), slice).await.unwrap(), slice.of(audit.clone()));
        let asked = || AuditFilter { kinds: vec![AuditKind::Asked], ..AuditFilter::default() };
        let questions = store.audit(asked()).await.unwrap();
        assert_eq!(questions.len(), 3);
        assert_eq!(store.audit_page(asked(), slice).await.unwrap(), slice.of(questions), "{slice:?}");
    }
    assert_eq!(store.messages_page(&"t9".into(), ALL).await.unwrap(), []);
    assert_eq!(store.pending_count(49).await.unwrap(), 2, "one was answered");
    assert_eq!(store.pending_count(50).await.unwrap(), 1, "one has expired, though nothing marked it yet");
}

pub async fn open_jobs_are_listed_in_their_turn(store: &dyn ThreadRunStore) {
    let mut queued = Vec::new();
    for (thread_id, priority) in [("t1", 9), ("t2", 1), ("t1", 5)] {
        store.ensure_thread(thread(thread_id)).await.unwrap();
        let job = MailboxJob { priority, ..MailboxJob::new(thread_id, vec![Message::user("go")], 1) };
        queued.push(store.submit(job).await.unwrap().job_id);
    }
    let listed = async |thread: Option<&str>, slice| {
        let thread = thread.map(ThreadId::from);
        let found = store.open_jobs(thread.as_ref(), slice).await.unwrap();
        found.into_iter().map(|job| (job.job_id, job.status)).collect::<Vec<_>>()
    };
    let open = |n: usize| (queued[n].clone(), MailboxJobStatus::Queued);
    assert_eq!(listed(None, ALL).await, [open(1), open(2), open(0)]);
    assert_eq!(listed(None, part(1, 1)).await, [open(2)]);
    assert_eq!(listed(Some("t1"), ALL).await, [open(2), open(0)]);
    let mailbox = store.mailboxes().unwrap();
    mailbox.cancel(&queued[2], 3).await.unwrap().unwrap();
    mailbox.claim_job(&queued[0], "me", 4, 100).await.unwrap().unwrap();
    assert_eq!(listed(Some("t1"), ALL).await, [(queued[0].clone(), MailboxJobStatus::Claimed)]);
}
