//! Queued messages, jobs, claims.

use aye_core::contract::ids::{JobId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::mailbox::{MailboxJob, MailboxJobStatus};
use aye_core::contract::message::Message;
use aye_core::contract::record::*;
use aye_core::contract::schedule::Schedule;
use aye_core::contract::storage::{MailboxStore, Slice, StorageError, StoreError, ThreadRunStore};
use aye_core::contract::suspension::ACTION_WAIT;

use super::fixtures::*;

const LEASE: u64 = 1000;

pub async fn a_claim_has_one_winner_and_its_token_ends_it(store: &dyn ThreadRunStore) {
    store.ensure_thread(thread("thread-1")).await.unwrap();
    let store = store.mailboxes().unwrap();
    let thread = ThreadId::from("thread-1");
    let job = |text: &str| MailboxJob::new("thread-1", vec![Message::user(text)], 10);
    assert!(matches!(store.interrupt(&"thread-9".into(), 11).await, Err(StorageError::NotFound(_))));

    let first = store.enqueue(job("one").with_dedupe_key("k")).await.unwrap();
    let twice = store.enqueue(job("again").with_dedupe_key("k")).await;
    assert!(matches!(twice, Err(StorageError::AlreadyExists(_))), "{twice:?}");
    let claimed = store.claim(&thread, "a", 5, 20, 1000).await.unwrap().remove(0);
    assert_eq!((&claimed.job_id, claimed.status), (&first.job_id, MailboxJobStatus::Claimed));
    assert!(store.claim(&thread, "b", 5, 20, 1000).await.unwrap().is_empty(), "a claim has one winner");
    let token = claimed.claim_token.unwrap();
    assert!(store.extend_lease(&first.job_id, &token, 30, 1000).await.unwrap());
    assert!(!store.extend_lease(&first.job_id, "other", 30, 1000).await.unwrap());
    assert!(store.ack(&first.job_id, "other", 30).await.is_err(), "the token is checked");
    let again = store.nack(&first.job_id, &token, 50, "busy", 31).await.unwrap();
    assert_eq!((again.status, again.attempt_count, again.available_at), (MailboxJobStatus::Queued, 1, 50));
    assert!(store.claim(&thread, "a", 1, 40, 1000).await.unwrap().is_empty(), "it is not due");
    let claimed = store.claim_job(&first.job_id, "a", 40, 1000).await.unwrap().unwrap();

    let second = store.enqueue(job("two")).await.unwrap();
    let interrupt = store.interrupt(&thread, 41).await.unwrap();
    assert_eq!(interrupt.superseded_count, 1);
    assert_eq!(interrupt.active_job.unwrap().job_id, first.job_id);
    let superseded = store.load_job(&second.job_id).await.unwrap().unwrap();
    assert_eq!(superseded.status, MailboxJobStatus::Superseded);
    let accepted = store.ack(&first.job_id, &claimed.claim_token.unwrap(), 42).await.unwrap();
    assert_eq!(accepted.status, MailboxJobStatus::Accepted);

    let third = store.enqueue(job("three")).await.unwrap();
    let cancelled = store.cancel(&third.job_id, 43).await.unwrap().unwrap();
    assert_eq!(cancelled.status, MailboxJobStatus::Cancelled);
    assert_eq!(store.cancel(&third.job_id, 44).await.unwrap(), None);
    let missing = store.cancel(&JobId::from("none"), 44).await;
    assert!(matches!(missing, Err(StorageError::NotFound(_))));
}

pub async fn a_schedule_passes_from_job_to_job(store: &dyn ThreadRunStore) {
    let first = ThreadRecord { title: "daily".into(), ..thread("t1") };
    store.ensure_thread(first.clone()).await.unwrap();
    let mailbox = store.mailboxes().unwrap();
    const MINUTE: u64 = 60_000;
    let schedule = Schedule::every("1m", "UTC").unwrap();
    let due = mailbox.enqueue(job("again", MINUTE).with_schedule(&schedule)).await.unwrap();
    assert_eq!(due.available_at, 2 * MINUTE, "a schedule begins at its first time");
    assert!(mailbox.claim_job(&due.job_id, "a", MINUTE, LEASE).await.unwrap().is_some());
    let next = store.open_jobs(None, Slice { offset: 0, limit: 10 }).await.unwrap();
    let next: Vec<_> = next.into_iter().filter(|job| job.schedule().is_some()).collect();
    assert_eq!(next.len(), 1, "one job at a time has the schedule");
    assert_eq!((next[0].available_at, next[0].messages[0].text()), (3 * MINUTE, "again".to_owned()));
    let thread = store.load_thread(&next[0].mailbox_id).await.unwrap().unwrap();
    assert!(thread.id != first.id && thread.cwd == first.cwd && thread.title == first.title, "{thread:?}");
    // The one that was claimed has none any more, so trying it again makes no second one.
    let claimed = load(&*mailbox, &due).await;
    assert_eq!(claimed.schedule(), None);
    let token = claimed.claim_token.unwrap();
    mailbox.nack(&due.job_id, &token, MINUTE, "busy", MINUTE).await.unwrap();
    assert!(mailbox.claim_job(&due.job_id, "a", MINUTE, LEASE).await.unwrap().is_some());
    let next = store.open_jobs(None, Slice { offset: 0, limit: 10 }).await.unwrap();
    assert_eq!(next.iter().filter(|job| job.schedule().is_some()).count(), 1);
}

fn job(text: &str, now: u64) -> MailboxJob {
    MailboxJob::new("t1", vec![Message::user(text)], now)
}

async fn load(mailbox: &dyn MailboxStore, job: &MailboxJob) -> MailboxJob {
    mailbox.load_job(&job.job_id).await.unwrap().unwrap()
}

async fn claim(mailbox: &dyn MailboxStore, now: u64) -> Option<MailboxJob> {
    mailbox.claim(&"t1".into(), "w", 1, now, LEASE).await.unwrap().pop()
}

pub async fn the_order_is_priority_time_creation_number(store: &dyn ThreadRunStore) {
    store.ensure_thread(thread("t1")).await.unwrap();
    let mailbox = store.mailboxes().unwrap();
    for sent in [
        job("last", 10),
        job("urgent but later", 10).with_priority(0).with_available_at(20),
        job("urgent", 15).with_priority(0),
        job("due before", 9).with_available_at(5),
        job("born before", 8).with_available_at(10),
        job("not due", 1).with_available_at(99),
        // Identical except for the number.
        job("really last", 10),
    ] {
        mailbox.enqueue(sent).await.unwrap();
    }
    let order = ["urgent", "urgent but later", "due before", "born before", "last", "really last", "not due"];
    let queued = store.queued(&"t1".into()).await.unwrap();
    assert_eq!(queued.iter().map(|queued| queued.messages[0].text()).collect::<Vec<_>>(), order);
    for text in &order[..6] {
        let job = claim(&*mailbox, 50).await.unwrap();
        assert_eq!(job.messages[0].text(), *text);
        mailbox.ack(&job.job_id, &job.claim_token.unwrap(), 50).await.unwrap();
    }
    assert_eq!(claim(&*mailbox, 50).await, None, "not due");
}

pub async fn a_failed_attempt_is_counted_and_the_last_one_is_final(store: &dyn ThreadRunStore) {
    store.ensure_thread(thread("t1")).await.unwrap();
    let mailbox = store.mailboxes().unwrap();
    mailbox.enqueue(job("x", 1).with_max_attempts(2)).await.unwrap();
    let held = claim(&*mailbox, 50).await.unwrap();
    let left = mailbox.nack(&held.job_id, &held.claim_token.unwrap(), 100, "try 1", 60).await.unwrap();
    assert_eq!((left.status, left.attempt_count, left.available_at), (MailboxJobStatus::Queued, 1, 100));
    assert_eq!((left.claim_token, left.claimed_by, left.lease_until), (None, None, None));
    assert_eq!(claim(&*mailbox, 99).await, None, "not before it is due");
    let held = claim(&*mailbox, 100).await.unwrap();
    let token = held.claim_token.clone().unwrap();
    let dead = mailbox.nack(&held.job_id, &token, 300, "try 2", 201).await.unwrap();
    assert_eq!((dead.status, dead.attempt_count), (MailboxJobStatus::DeadLetter, 2));
    assert_eq!((dead.last_error.as_deref(), dead.available_at), (Some("try 2"), 100));
    assert_eq!(load(&*mailbox, &dead).await, dead);
    assert!(mailbox.ack(&held.job_id, &token, 202).await.is_err(), "a terminal job never changes");
    assert_eq!(mailbox.cancel(&held.job_id, 203).await.unwrap(), None);
}

pub async fn a_queued_message_leaves_when_its_run_starts(store: &dyn ThreadRunStore) {
    store.ensure_thread(thread("t1")).await.unwrap();
    let mailbox = store.mailboxes().unwrap();
    let first = store.submit(job("one", 1)).await.unwrap();
    let second =
        store.enqueue_typed(&"t1".into(), vec![Message::user("two")], &owner("me"), 1).await.unwrap();
    assert_eq!(mailbox.load_job(&second.job_id).await.unwrap().unwrap().typed_into(), Some(owner("me")));
    let held = claim(&*mailbox, 1).await.unwrap();
    assert_eq!(held.job_id, first.job_id);
    let fence = store.acquire(&"t1".into(), &owner("me"), None).await.unwrap();
    let run = run("r1", "t1", RunStatus::Running);
    for (id, claim) in [
        (first.sequence, None),
        (first.sequence, Some("x".to_owned())),
        (second.id, held.claim_token.clone()),
    ] {
        let takes = Some(JobClaim { id, claim });
        let refused = store.checkpoint(Checkpoint { takes, ..checkpoint(&fence, &run) }).await;
        assert!(matches!(refused, Err(StoreError::NotQueued { .. })), "{refused:?}");
    }
    assert_eq!(store.list_runs(&"t1".into()).await.unwrap(), [], "nothing of it was written");
    let takes = Some(JobClaim { id: second.id, claim: None });
    store.checkpoint(Checkpoint { takes, ..checkpoint(&fence, &run) }).await.unwrap();
    let taken = mailbox.load_job(&second.job_id).await.unwrap().unwrap();
    assert_eq!((taken.status, taken.run_id), (MailboxJobStatus::Accepted, Some("r1".into())));
    assert!(!store.unqueue(second.id, 2).await.unwrap(), "gone");

    let empty = MailboxJob { messages: Vec::new(), ..job("x", 1) };
    assert!(matches!(store.submit(empty).await, Err(StoreError::NoMessage)));
    let nowhere = MailboxJob { mailbox_id: "t9".into(), ..job("x", 1) };
    assert!(matches!(store.submit(nowhere).await, Err(StoreError::NoThread(_))));
    assert!(matches!(store.submit(first).await, Err(StoreError::Exists { .. })));
    let third = store.submit(job("three", 1)).await.unwrap();
    assert!(store.unqueue(third.sequence, 2).await.unwrap());
    assert_eq!(load(&*mailbox, &third).await.status, MailboxJobStatus::Cancelled);
}

pub async fn a_job_ends_in_the_transaction_that_ends_its_run(store: &dyn ThreadRunStore) {
    use MailboxJobStatus::{Accepted, Cancelled, Claimed, DeadLetter};
    for (n, (why, status)) in [
        (TerminationReason::NaturalEnd, Accepted),
        (TerminationReason::Cancelled, Cancelled),
        (TerminationReason::Blocked("no".into()), DeadLetter),
        // A worker retries it, or marks it as dead.
        (TerminationReason::Error("down".into()), Claimed),
    ]
    .into_iter()
    .enumerate()
    {
        store.ensure_thread(thread("t1")).await.unwrap();
        let mailbox = store.mailboxes().unwrap();
        store.submit(job("x", 1)).await.unwrap();
        let held = claim(&*mailbox, 1).await.unwrap();
        let fence = store.acquire(&"t1".into(), &owner("me"), None).await.unwrap();
        let run = run(&format!("r{n}"), "t1", RunStatus::Running);
        let takes = Some(JobClaim { id: held.sequence, claim: held.claim_token.clone() });
        store.checkpoint(Checkpoint { takes, ..checkpoint(&fence, &run) }).await.unwrap();
        assert_eq!(load(&*mailbox, &held).await.run_id, Some(run.id.clone()));
        let over = RunRecord { status: RunStatus::Done, termination: Some(why.clone()), ..run };
        store.checkpoint(checkpoint(&fence, &over)).await.unwrap();
        let left = load(&*mailbox, &held).await;
        assert_eq!(left.status, status, "{why:?}");
        assert_eq!(left.claim_token.is_some(), status == Claimed);
    }
}

pub async fn a_run_that_waits_for_a_time_has_a_job(store: &dyn ThreadRunStore) {
    store.ensure_thread(thread("t1")).await.unwrap();
    let fence = store.acquire(&"t1".into(), &owner("me"), None).await.unwrap();
    let run = run("r1", "t1", RunStatus::Waiting);
    let wait = |id: &str, at: u64| {
        let mut question = question(id, &run, id, Some(at));
        question.ticket.suspension.action = ACTION_WAIT.into();
        question
    };
    let jobs = async || store.open_jobs(Some(&"t1".into()), Slice { offset: 0, limit: 9 }).await.unwrap();
    let opened = vec![wait("q1", 500)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    let [job] = &jobs().await[..] else { panic!("one job") };
    assert_eq!((job.available_at, &job.run_id, job.messages.len()), (500, &Some("r1".into()), 0));
    assert_eq!(store.queued(&"t1".into()).await.unwrap(), [], "its run has started");
    // A list of questions that is read later does not end the wait.
    assert_eq!(store.expire_due(9000).await.unwrap(), []);
    assert_eq!(status(store, "q1").await, SuspensionStatus::Open);
    // It waits again, for another time.
    let (opened, closed) = (vec![wait("q2", 700)], vec![("q1".into(), SuspensionStatus::Expired)]);
    store.checkpoint(Checkpoint { opened, closed, ..checkpoint(&fence, &run) }).await.unwrap();
    assert_eq!(jobs().await.iter().map(|job| job.available_at).collect::<Vec<_>>(), [700]);
    let closed = vec![("q2".into(), SuspensionStatus::Expired)];
    store.checkpoint(Checkpoint { closed, ..checkpoint(&fence, &run) }).await.unwrap();
    assert_eq!(jobs().await, [], "the wait is over");
}
