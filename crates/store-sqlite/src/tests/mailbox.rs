//! The guarantees of each mailbox operation.

use super::*;
use crate::{ChangeKind, JobFilter, JobLookup, Mailbox};
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::mailbox::{MailboxJob, MailboxJobStatus};
use aye_core::contract::record::LeaseRecord;

const LEASE: u64 = 1000;

/// A store with two threads, `t1` and `t2`.
async fn store() -> Store {
    let store = Store::in_memory().unwrap();
    for id in ["t1", "t2"] {
        store.create_thread(thread(id)).await.unwrap();
    }
    store
}

fn job(mailbox: &str, said: &str, now: u64) -> MailboxJob {
    MailboxJob::new(mailbox, vec![Message::user(said)], now)
}

async fn put(mailbox: &Mailbox, said: &str, now: u64) -> MailboxJob {
    mailbox.enqueue(job("t1", said, now)).await.unwrap()
}

async fn claim(mailbox: &Mailbox, now: u64) -> Option<MailboxJob> {
    mailbox.claim(&"t1".into(), "w", 1, now, LEASE).await.unwrap().pop()
}

fn token(job: &MailboxJob) -> &str {
    job.claim_token.as_deref().unwrap()
}

async fn load(mailbox: &Mailbox, job: &MailboxJob) -> MailboxJob {
    mailbox.load_job(&job.job_id).await.unwrap().unwrap()
}

async fn texts_of(mailbox: &Mailbox, status: MailboxJobStatus) -> Vec<String> {
    let filter = JobFilter { statuses: vec![status], ..JobFilter::default() };
    let jobs = mailbox.list_jobs(filter).await.unwrap();
    jobs.iter().map(|job| job.messages[0].text()).collect()
}

#[tokio::test]
async fn all_fields_of_a_job_round_trip() {
    let store = store().await;
    let mailbox = store.mailbox();
    let mut sent = job("t1", "hello", 7)
        .with_agent_id("critic")
        .with_priority(3)
        .with_dedupe_key("k")
        .with_available_at(9)
        .with_max_attempts(2);
    sent.sender_id = Some("ada".into());
    sent.parent_run_id = Some("r0".into());
    sent.request_extras = Some(json!({"deep": [0.1]}));
    let kept = mailbox.enqueue(sent.clone()).await.unwrap();
    assert_eq!(kept.sequence, 1);
    sent.sequence = 1;
    assert_eq!(kept, sent);
    assert_eq!(load(&mailbox, &kept).await, sent);
    sent.dedupe_key = None;
    assert!(matches!(mailbox.enqueue(sent).await, Err(StoreError::Exists { .. })));
    let nowhere = mailbox.enqueue(job("t9", "x", 1)).await;
    assert!(matches!(nowhere, Err(StoreError::NoThread(_))), "{nowhere:?}");
}

#[tokio::test]
async fn the_order_is_priority_time_creation_number() {
    let store = store().await;
    let mailbox = store.mailbox();
    for sent in [
        job("t1", "last", 10),
        job("t1", "urgent but later", 10).with_priority(0).with_available_at(20),
        job("t1", "urgent", 15).with_priority(0),
        job("t1", "due before", 9).with_available_at(5),
        job("t1", "born before", 8).with_available_at(10),
        job("t1", "not due", 1).with_priority(0).with_available_at(99),
    ] {
        mailbox.enqueue(sent).await.unwrap();
    }
    // Identical except for the number.
    mailbox.enqueue(job("t1", "really last", 10)).await.unwrap();
    let mut order = Vec::new();
    while let Some(job) = claim(&mailbox, 50).await {
        order.push(job.messages[0].text());
        mailbox.ack(&job.job_id, token(&job), 50).await.unwrap();
    }
    assert_eq!(order, ["urgent", "urgent but later", "due before", "born before", "last", "really last"]);
    assert_eq!(texts_of(&mailbox, MailboxJobStatus::Queued).await, ["not due"]);
}

#[tokio::test]
async fn one_job_of_a_mailbox_is_claimed_at_a_time() {
    let store = store().await;
    let mailbox = store.mailbox();
    let (one, two) = (put(&mailbox, "one", 1).await, put(&mailbox, "two", 1).await);
    let other = mailbox.enqueue(job("t2", "other", 1)).await.unwrap();
    let claimed = mailbox.claim(&"t1".into(), "w", 9, 1, LEASE).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!((&claimed[0].job_id, claimed[0].lease_until), (&one.job_id, Some(1 + LEASE)));
    assert_eq!(claimed[0].claimed_by.as_deref(), Some("w"));
    assert_eq!(claim(&mailbox, 1).await, None);
    assert_eq!(mailbox.claim_job(&two.job_id, "w", 1, LEASE).await.unwrap(), None);
    assert_eq!(mailbox.claim_job(&one.job_id, "w", 1, LEASE).await.unwrap(), None, "claimed already");
    // The same after the claim has expired, until it is reclaimed.
    assert_eq!(claim(&mailbox, 9 * LEASE).await, None);
    assert!(mailbox.claim_job(&other.job_id, "w", 1, LEASE).await.unwrap().is_some(), "another mailbox");
    assert!(mailbox.claim(&"t1".into(), "w", 0, 1, LEASE).await.unwrap().is_empty());
    let missing = mailbox.claim_job(&"nothing".into(), "w", 1, LEASE).await;
    assert!(matches!(missing, Err(StoreError::NoJob(_))), "{missing:?}");
}

#[tokio::test]
async fn a_job_can_be_claimed_by_id_before_it_is_due() {
    let store = store().await;
    let mailbox = store.mailbox();
    let later = mailbox.enqueue(job("t1", "later", 1).with_available_at(99)).await.unwrap();
    assert_eq!(claim(&mailbox, 98).await, None);
    let claimed = mailbox.claim_job(&later.job_id, "w", 2, LEASE).await.unwrap().unwrap();
    assert_eq!((claimed.status, claimed.lease_until), (MailboxJobStatus::Claimed, Some(2 + LEASE)));
    mailbox.give_back(&claimed.job_id, token(&claimed), 3).await.unwrap();
    assert!(claim(&mailbox, 99).await.is_some(), "due exactly at its time");
}

#[tokio::test]
async fn the_outcome_of_a_job_needs_its_token() {
    let store = store().await;
    let mailbox = store.mailbox();
    put(&mailbox, "one", 1).await;
    let first = claim(&mailbox, 1).await.unwrap();
    mailbox.give_back(&first.job_id, token(&first), 1).await.unwrap();
    let held = claim(&mailbox, 1).await.unwrap();
    assert_ne!(token(&held), token(&first));
    for wrong in [token(&first), "", "x"] {
        let id = &held.job_id;
        let refused = [
            mailbox.ack(id, wrong, 2).await,
            mailbox.nack(id, wrong, 3, "no", 2).await,
            mailbox.dead_letter(id, wrong, "no", 2).await,
            mailbox.supersede(id, wrong, "no", 2).await,
            mailbox.give_back(id, wrong, 2).await,
        ];
        for result in refused {
            assert!(matches!(result, Err(StoreError::NotClaimed(_))), "{result:?}");
        }
        assert!(!mailbox.extend_lease(id, wrong, 2, 9999).await.unwrap());
    }
    assert_eq!(load(&mailbox, &held).await, held, "nothing changed");
}

#[tokio::test]
async fn a_terminal_job_never_changes() {
    let store = store().await;
    let mailbox = store.mailbox();
    let mut over = Vec::new();
    for n in 0..5 {
        let queued = put(&mailbox, "x", 1).await;
        if n == 4 {
            over.push((mailbox.cancel(&queued.job_id, 2).await.unwrap().unwrap(), String::new()));
            continue;
        }
        let held = claim(&mailbox, 1).await.unwrap();
        let (id, token) = (&held.job_id, token(&held));
        let ended = match n {
            0 => mailbox.ack(id, token, 2).await,
            1 => mailbox.dead_letter(id, token, "broken", 2).await,
            2 => mailbox.supersede(id, token, "replaced", 2).await,
            _ => mailbox.nack(&id.clone(), token, 3, "tired", 2).await,
        };
        let mut ended = ended.unwrap();
        if n == 3 {
            ended = mailbox.cancel(id, 2).await.unwrap().unwrap();
        }
        over.push((ended, token.to_owned()));
    }
    use MailboxJobStatus::{Accepted, Cancelled, DeadLetter, Superseded};
    let statuses: Vec<_> = over.iter().map(|(job, _)| job.status).collect();
    assert_eq!(statuses, [Accepted, DeadLetter, Superseded, Cancelled, Cancelled]);
    assert_eq!(over[1].0.last_error.as_deref(), Some("broken"));
    mailbox.interrupt(&"t1".into(), 3).await.unwrap();
    assert!(mailbox.reclaim(u64::MAX, 99, |_| true).await.unwrap().is_empty());
    for (job, token) in &over {
        let id = &job.job_id;
        assert!(mailbox.ack(id, token, 9).await.is_err());
        assert!(mailbox.nack(id, token, 9, "no", 9).await.is_err());
        assert!(mailbox.dead_letter(id, token, "no", 9).await.is_err());
        assert!(!mailbox.extend_lease(id, token, 9, 9).await.unwrap());
        assert_eq!(mailbox.cancel(id, 9).await.unwrap(), None);
        assert_eq!(mailbox.claim_job(id, "w", 9, 9).await.unwrap(), None);
        assert_eq!(load(&mailbox, job).await, *job);
    }
}

#[tokio::test]
async fn a_failed_attempt_is_counted_and_the_last_one_is_final() {
    let store = store().await;
    let mailbox = store.mailbox();
    mailbox.enqueue(job("t1", "x", 1).with_max_attempts(3)).await.unwrap();
    for (tries, retry_at) in [(1, 100), (2, 200)] {
        let held = claim(&mailbox, retry_at - 50).await.unwrap();
        let why = format!("try {tries}");
        let left = mailbox.nack(&held.job_id, token(&held), retry_at, &why, 60).await.unwrap();
        assert_eq!((left.status, left.attempt_count), (MailboxJobStatus::Queued, tries));
        assert_eq!((left.available_at, left.last_error), (retry_at, Some(why)));
        assert_eq!((left.claim_token, left.claimed_by, left.lease_until), (None, None, None));
        assert_eq!(claim(&mailbox, retry_at - 1).await, None, "not before it is due");
    }
    let held = claim(&mailbox, 200).await.unwrap();
    let dead = mailbox.nack(&held.job_id, token(&held), 300, "try 3", 201).await.unwrap();
    assert_eq!((dead.status, dead.attempt_count), (MailboxJobStatus::DeadLetter, 3));
    assert_eq!(dead.last_error.as_deref(), Some("try 3"));
    assert_eq!(claim(&mailbox, 999).await, None);
    assert_eq!(load(&mailbox, &dead).await, dead);
}

#[tokio::test]
async fn a_lease_ends_after_its_last_millisecond_and_is_never_shortened() {
    let store = store().await;
    let mailbox = store.mailbox();
    put(&mailbox, "x", 1).await;
    let held = claim(&mailbox, 10).await.unwrap();
    let until = 10 + LEASE;
    assert!(mailbox.extend_lease(&held.job_id, token(&held), 11, 5).await.unwrap());
    assert_eq!(load(&mailbox, &held).await.lease_until, Some(until), "not shorter");
    assert!(mailbox.reclaim(until, 9, |_| false).await.unwrap().is_empty(), "not finished yet");
    assert!(mailbox.extend_lease(&held.job_id, token(&held), 12, LEASE).await.unwrap());
    assert!(mailbox.reclaim(until + 1, 9, |_| false).await.unwrap().is_empty(), "extended");
    let back = mailbox.reclaim(12 + LEASE + 1, 9, |_| false).await.unwrap().pop().unwrap();
    assert_eq!((back.status, back.attempt_count), (MailboxJobStatus::Queued, 1));
    assert!(back.last_error.as_deref().unwrap().contains("stopped responding"));
    assert!(!mailbox.extend_lease(&held.job_id, token(&held), 13, LEASE).await.unwrap());
    assert!(mailbox.ack(&held.job_id, token(&held), 13).await.is_err(), "the old claim is invalid");
}

#[tokio::test]
async fn jobs_of_dead_workers_are_reclaimed_at_once_and_finally_dead() {
    let store = store().await;
    let mailbox = store.mailbox();
    mailbox.enqueue(job("t1", "x", 1).with_max_attempts(2)).await.unwrap();
    mailbox.enqueue(job("t2", "y", 1)).await.unwrap();
    mailbox.claim(&"t2".into(), "living", 1, 1, LEASE).await.unwrap();
    for status in [MailboxJobStatus::Queued, MailboxJobStatus::DeadLetter] {
        mailbox.claim(&"t1".into(), "dead", 1, 6, LEASE).await.unwrap().pop().unwrap();
        let back = mailbox.reclaim(6, 9, |who| who == "dead").await.unwrap();
        assert_eq!(back.iter().map(|job| job.status).collect::<Vec<_>>(), [status]);
    }
    assert_eq!(texts_of(&mailbox, MailboxJobStatus::Claimed).await, ["y"]);
}

/// Jobs of a dead worker are served before those queued after them.
#[tokio::test]
async fn a_reclaimed_job_keeps_its_place_in_the_queue() {
    let store = store().await;
    let mailbox = store.mailbox();
    mailbox.enqueue(job("t1", "first", 1)).await.unwrap();
    mailbox.enqueue(job("t1", "second", 2)).await.unwrap();
    let held = claim(&mailbox, 3).await.unwrap();
    let back = mailbox.reclaim(u64::MAX / 4, 9, |_| true).await.unwrap().pop().unwrap();
    assert_eq!((back.available_at, back.sequence), (held.available_at, held.sequence));
    assert_eq!((back.status, back.attempt_count), (MailboxJobStatus::Queued, 1));
    assert_eq!(texts_of(&mailbox, MailboxJobStatus::Queued).await, ["first", "second"]);
    assert_eq!(claim(&mailbox, 4).await.unwrap().job_id, held.job_id);
}

#[tokio::test]
async fn an_interrupt_supersedes_queued_jobs_and_names_claimed_ones() {
    let store = store().await;
    let mailbox = store.mailbox();
    let active = put(&mailbox, "active", 1).await;
    let held = claim(&mailbox, 1).await.unwrap();
    put(&mailbox, "old", 1).await;
    put(&mailbox, "older", 1).await;
    mailbox.enqueue(job("t2", "elsewhere", 1)).await.unwrap();
    let interrupt = mailbox.interrupt(&"t1".into(), 5).await.unwrap();
    assert_eq!((interrupt.new_generation, interrupt.superseded_count), (1, 2));
    assert_eq!(interrupt.active_job, Some(held.clone()));
    let newer = put(&mailbox, "new", 6).await;
    assert_eq!((active.generation, newer.generation), (0, 1));
    // The claimed one still belongs to its worker, and is requeued or ends as the worker reports.
    assert_eq!(claim(&mailbox, 6).await, None);
    mailbox.supersede(&held.job_id, token(&held), "interrupted", 7).await.unwrap();
    assert_eq!(claim(&mailbox, 7).await.unwrap().job_id, newer.job_id);
    assert_eq!(texts_of(&mailbox, MailboxJobStatus::Superseded).await.len(), 3);
    assert_eq!(texts_of(&mailbox, MailboxJobStatus::Queued).await, ["elsewhere"]);
    let again = mailbox.interrupt(&"t1".into(), 8).await.unwrap();
    assert_eq!((again.new_generation, again.superseded_count), (2, 0));
    let nowhere = mailbox.interrupt(&"t9".into(), 8).await;
    assert!(matches!(nowhere, Err(StoreError::NoThread(_))), "{nowhere:?}");
}

#[tokio::test]
async fn a_key_prevents_a_second_pending_job_in_its_mailbox() {
    let store = store().await;
    let mailbox = store.mailbox();
    let keyed = |mailbox: &str| job(mailbox, "x", 1).with_dedupe_key("k");
    let first = mailbox.enqueue(keyed("t1")).await.unwrap();
    let refused = |result: Result<MailboxJob, StoreError>| match result {
        Err(StoreError::Duplicate { job, .. }) => assert_eq!(job, first.job_id),
        other => panic!("{other:?}"),
    };
    refused(mailbox.enqueue(keyed("t1")).await);
    mailbox.enqueue(keyed("t2")).await.unwrap();
    let held = claim(&mailbox, 1).await.unwrap();
    refused(mailbox.enqueue(keyed("t1")).await);
    mailbox.ack(&held.job_id, token(&held), 2).await.unwrap();
    mailbox.enqueue(keyed("t1")).await.unwrap();
}

#[tokio::test]
async fn old_finished_jobs_are_removed() {
    let store = store().await;
    let mailbox = store.mailbox();
    let old = put(&mailbox, "old", 1).await;
    let new = put(&mailbox, "new", 1).await;
    put(&mailbox, "open", 1).await;
    mailbox.cancel(&old.job_id, 10).await.unwrap();
    mailbox.cancel(&new.job_id, 20).await.unwrap();
    assert_eq!(mailbox.purge_terminal(20).await.unwrap(), 1);
    assert_eq!(mailbox.load_job(&old.job_id).await.unwrap(), None);
    assert_eq!(mailbox.purge_terminal(u64::MAX).await.unwrap(), 1);
    assert_eq!(texts_of(&mailbox, MailboxJobStatus::Queued).await, ["open"]);
    assert_eq!(put(&mailbox, "next", 30).await.sequence, 4, "a number is never reused");
}

#[tokio::test]
async fn jobs_are_found_by_number_or_id_prefix() {
    let store = store().await;
    let mailbox = store.mailbox();
    let mut named = job("t1", "x", 1);
    named.job_id = "abc-1".into();
    let one = mailbox.enqueue(named.clone()).await.unwrap();
    named.job_id = "abc-2".into();
    mailbox.enqueue(named).await.unwrap();
    assert_eq!(mailbox.find_job("1").await.unwrap(), JobLookup::One(Box::new(one.clone())));
    assert_eq!(mailbox.find_job("abc-1").await.unwrap(), JobLookup::One(Box::new(one)));
    let both = JobLookup::Many(vec!["abc-1".into(), "abc-2".into()]);
    assert_eq!(mailbox.find_job("abc").await.unwrap(), both);
    for nothing in ["", "3", "abd", "%"] {
        assert_eq!(mailbox.find_job(nothing).await.unwrap(), JobLookup::None, "{nothing:?}");
    }
}

#[tokio::test]
async fn an_attempt_that_sent_nothing_is_none_and_keeps_its_place() {
    let store = store().await;
    let mailbox = store.mailbox();
    let first = put(&mailbox, "first", 1).await;
    let held = claim(&mailbox, 1).await.unwrap();
    let (fence, run) = begun(&store, &held, RunStatus::Running).await;
    store
        .checkpoint(checkpoint(&fence, &over(&run, TerminationReason::Error("paused".into()))))
        .await
        .unwrap();
    put(&mailbox, "second", 1).await;
    let token = held.claim_token.as_deref().unwrap();
    let left = mailbox.postpone(&held.job_id, token, 900, "paused", 70).await.unwrap();
    assert_eq!((left.status, left.attempt_count, left.available_at), (MailboxJobStatus::Queued, 0, 900));
    assert_eq!(left.last_error.as_deref(), Some("paused"));
    store.release(&fence).await.unwrap();
    let before = mailbox.next_work(899, |_| false).await.unwrap();
    assert_eq!((before.next, before.retrying, before.wake_at), (None, 1, Some(900)), "the second one waits");
    let due = mailbox.next_work(900, |_| false).await.unwrap().next.unwrap();
    assert_eq!(due.job_id, first.job_id);
    // One that is far away does not keep a worker waiting that ends with the last job.
    let held = mailbox.claim_job(&due.job_id, "w", 900, LEASE).await.unwrap().unwrap();
    let token = held.claim_token.as_deref().unwrap();
    mailbox.nack(&held.job_id, token, 3_600_000, "limit", 900).await.unwrap();
    assert_eq!(mailbox.next_work(901, |_| false).await.unwrap().retrying, 0);
}

#[tokio::test]
async fn a_damaged_job_does_not_hide_the_others() {
    let store = store().await;
    let mailbox = store.mailbox();
    let broken = put(&mailbox, "broken", 1).await;
    mailbox.enqueue(job("t2", "whole", 2)).await.unwrap();
    on_connection(&store, |conn| conn.execute("UPDATE mailbox SET body = '{' WHERE n = 1", ()).unwrap())
        .await;
    assert_eq!(texts_of(&mailbox, MailboxJobStatus::Queued).await, ["whole"]);
    assert_eq!(mailbox.next_work(5, |_| false).await.unwrap().next.unwrap().messages[0].text(), "whole");
    let error = mailbox.load_job(&broken.job_id).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
}

/// A thread whose latest run is `status`, started with this job under its claim.
async fn begun(store: &Store, held: &MailboxJob, status: RunStatus) -> (Fence, RunRecord) {
    let fence = store.acquire(&"t1".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let run = run("r1", "t1", status);
    let takes = Some(JobClaim { id: held.sequence, claim: held.claim_token.clone() });
    store.checkpoint(Checkpoint { takes, ..checkpoint(&fence, &run) }).await.unwrap();
    (fence, run)
}

fn over(run: &RunRecord, why: TerminationReason) -> RunRecord {
    RunRecord { status: RunStatus::Done, termination: Some(why), updated_at: 70, ..run.clone() }
}

#[tokio::test]
async fn a_job_ends_in_the_transaction_that_ends_its_run() {
    use MailboxJobStatus::{Accepted, Cancelled, Claimed, DeadLetter};
    for (why, status) in [
        (TerminationReason::NaturalEnd, Accepted),
        (TerminationReason::Cancelled, Cancelled),
        (TerminationReason::Blocked("no".into()), DeadLetter),
        // A worker retries it, or marks it as dead.
        (TerminationReason::Error("down".into()), Claimed),
    ] {
        let store = store().await;
        let mailbox = store.mailbox();
        put(&mailbox, "x", 1).await;
        let held = claim(&mailbox, 1).await.unwrap();
        let (fence, run) = begun(&store, &held, RunStatus::Running).await;
        assert_eq!(load(&mailbox, &held).await.run_id, Some("r1".into()));
        store.checkpoint(checkpoint(&fence, &over(&run, why.clone()))).await.unwrap();
        let left = load(&mailbox, &held).await;
        assert_eq!(left.status, status, "{why:?}");
        assert_eq!(left.claim_token.is_some(), status == Claimed);
    }
}

#[tokio::test]
async fn a_run_starts_with_a_job_only_under_its_claim_or_from_the_queue() {
    let store = store().await;
    let mailbox = store.mailbox();
    let (first, second) = (put(&mailbox, "one", 1).await, put(&mailbox, "two", 1).await);
    let held = claim(&mailbox, 1).await.unwrap();
    let fence = store.acquire(&"t1".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let run = run("r1", "t1", RunStatus::Running);
    for (id, claim) in [
        (first.sequence, None),
        (first.sequence, Some("x".to_owned())),
        (second.sequence, held.claim_token.clone()),
    ] {
        let takes = Some(JobClaim { id, claim });
        let refused = store.checkpoint(Checkpoint { takes, ..checkpoint(&fence, &run) }).await;
        assert!(matches!(refused, Err(StoreError::NotQueued { .. })), "{refused:?}");
    }
    assert_eq!(store.runs(&"t1".into()).await.unwrap(), [], "nothing of it was written");
    let takes = Some(JobClaim { id: second.sequence, claim: None });
    store.checkpoint(Checkpoint { takes, ..checkpoint(&fence, &run) }).await.unwrap();
    let taken = load(&mailbox, &second).await;
    assert_eq!((taken.status, taken.run_id), (MailboxJobStatus::Accepted, Some("r1".into())));
}

#[tokio::test]
async fn a_worker_sees_what_it_may_start_and_what_it_waits_for() {
    let store = store().await;
    let mailbox = store.mailbox();
    assert_eq!(mailbox.next_work(5, |_| false).await.unwrap(), crate::NextWork::default());
    put(&mailbox, "one", 1).await;
    mailbox.enqueue(job("t2", "scheduled", 1).with_available_at(50)).await.unwrap();
    let seen = mailbox.next_work(5, |_| false).await.unwrap();
    assert_eq!((seen.next.unwrap().messages[0].text(), seen.wake_at), ("one".into(), Some(50)));
    // Claimed: nobody else may claim it, and its end is waited for.
    let held = claim(&mailbox, 1).await.unwrap();
    let seen = mailbox.next_work(5, |_| false).await.unwrap();
    assert_eq!((seen.next, seen.claimed, seen.wake_at), (None, vec!["w".to_owned()], Some(50)));
    assert_eq!(mailbox.next_work(60, |_| false).await.unwrap().wake_at, Some(1 + LEASE + 1));
    // Its run waits for a user: the job is released, and nothing can be done about it.
    let (fence, run) = begun(&store, &held, RunStatus::Waiting).await;
    let asked = vec![question("q1", &run, "c1", Some(900))];
    store.checkpoint(Checkpoint { opened: asked, ..checkpoint(&fence, &run) }).await.unwrap();
    mailbox.give_back(&held.job_id, token(&held), 20).await.unwrap();
    put(&mailbox, "behind it", 1).await;
    store.release(&fence).await.unwrap();
    let seen = mailbox.next_work(60, |_| false).await.unwrap();
    assert_eq!(seen.next.unwrap().messages[0].text(), "scheduled");
    assert_eq!((seen.claimed.len(), seen.wake_at), (0, Some(900)), "the end of the question");
    // Once expired or answered it resumes, before the jobs after it.
    assert_eq!(mailbox.next_work(900, |_| false).await.unwrap().next.unwrap().messages[0].text(), "one");
    store.decide(&"q1".into(), yes("d1"), 61).await.unwrap();
    assert_eq!(mailbox.next_work(62, |_| false).await.unwrap().next.unwrap().messages[0].text(), "one");
    // Unless another process drives the thread.
    store.acquire(&"t1".into(), &owner("tui"), None, |_| Liveness::Yes).await.unwrap();
    let seen = mailbox.next_work(62, |lease| lease.owner.token == "tui").await.unwrap();
    assert_eq!(seen.next.unwrap().messages[0].text(), "scheduled");
    assert_eq!(seen.held.len(), 1, "its end is waited for too");
}

#[tokio::test]
async fn a_driver_dying_during_a_check_lets_nothing_overtake() {
    let store = store().await;
    let mailbox = store.mailbox();
    for (at, said) in ["one", "two", "three"].into_iter().enumerate() {
        put(&mailbox, said, at as u64).await;
    }
    store.acquire(&"t1".into(), &owner("worker"), None, |_| Liveness::Yes).await.unwrap();
    // The driver looks alive once, and is gone at the next check.
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let lives = move |_: &LeaseRecord| asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
    let seen = mailbox.next_work(5, lives).await.unwrap();
    assert_eq!((seen.next, seen.held.len()), (None, 1), "the next check sees that it is free");
    assert_eq!(mailbox.next_work(5, |_| false).await.unwrap().next.unwrap().messages[0].text(), "one");
}

#[tokio::test]
async fn concurrent_requests_share_a_transaction_but_not_their_fate() {
    let home = Home::new();
    let (store, other) = (home.open(), home.open());
    store.create_thread(thread("t1")).await.unwrap();
    let mut watch = other.watch().unwrap();
    let mailbox = store.mailbox();
    let known = put(&mailbox, "known", 1).await;
    assert_eq!(watch.next().await.kind, ChangeKind::Queue);
    let requests = (0..50).map(|n| {
        let mut sent = job("t1", &format!("{n}"), 1);
        if n % 5 == 0 {
            sent.job_id = known.job_id.clone();
        }
        mailbox.enqueue(sent)
    });
    let results = futures::future::join_all(requests).await;
    let refused = results.iter().filter(|result| matches!(result, Err(StoreError::Exists { .. }))).count();
    assert_eq!((refused, results.len()), (10, 50));
    // Acknowledged jobs are visible to everybody and durable.
    let crashed = home.copy();
    for store in [&other, &crashed.open()] {
        assert_eq!(store.mailbox().list_jobs(JobFilter::default()).await.unwrap().len(), 41);
    }
}

#[tokio::test]
async fn messages_queued_before_the_mailbox_existed_are_in_it() {
    let home = Home::new();
    std::fs::create_dir_all(home.path().parent().unwrap()).unwrap();
    let old = home.raw();
    old.execute_batch(include_str!("../migrations/0001_first.sql")).unwrap();
    old.execute_batch(include_str!("../migrations/0002_decisions.sql")).unwrap();
    old.pragma_update(None, "application_id", 0x6179_6531).unwrap();
    old.pragma_update(None, "user_version", 2).unwrap();
    old.execute(
        "INSERT INTO thread (id, title, cwd, created_at, updated_at) VALUES ('t1', 't', x'2f', 1, 1)",
        (),
    )
    .unwrap();
    let said = serde_json::to_string(&vec![Message::user("don't \"lose\" this")]).unwrap();
    old.execute("INSERT INTO queued (n, thread_id, created_at, body) VALUES (7, 't1', 9, ?1)", [&said])
        .unwrap();
    drop(old);
    let store = home.open();
    let queued = store.queued(&"t1".into()).await.unwrap();
    assert_eq!((queued.len(), queued[0].id, queued[0].created_at), (1, 7, 9));
    assert_eq!(queued[0].messages[0].text(), "don't \"lose\" this");
    assert!(queued[0].begins(10));
    assert!(store.unqueue(7, 10).await.unwrap());
    assert!(!store.unqueue(7, 10).await.unwrap());
}

/// Queues jobs in conversations of their own, whose runs wait for an answer.
async fn put_waiting(store: &Store, count: usize, expires_at: Option<u64>) {
    let mailbox = store.mailbox();
    for n in 0..count {
        let id = ThreadId::from(format!("w{n}"));
        store.create_thread(thread(id.as_str())).await.unwrap();
        let sent = mailbox.enqueue(job(id.as_str(), "asks", 1)).await.unwrap();
        let held = mailbox.claim_job(&sent.job_id, "w", 2, LEASE).await.unwrap().unwrap();
        let fence = store.acquire(&id, &owner("me"), None, |_| Liveness::Yes).await.unwrap();
        let run = run(&format!("r{n}"), id.as_str(), RunStatus::Waiting);
        let takes = Some(JobClaim { id: held.sequence, claim: held.claim_token.clone() });
        let opened = vec![question(&format!("q{n}"), &run, "c1", expires_at)];
        store.checkpoint(Checkpoint { takes, opened, ..checkpoint(&fence, &run) }).await.unwrap();
        mailbox.give_back(&held.job_id, token(&held), 3).await.unwrap();
        store.release(&fence).await.unwrap();
    }
}

async fn next_of(store: &Store, now: u64) -> Option<String> {
    let seen = store.mailbox().next_work(now, |_| false).await.unwrap();
    seen.next.map(|job| job.mailbox_id.to_string())
}

#[tokio::test]
async fn a_look_for_work_does_not_pass_the_jobs_that_wait_for_an_answer() {
    use crate::mailbox::{OVERDUE, READY};
    let mut steps = Vec::new();
    for count in [5, 200] {
        let store = store().await;
        put_waiting(&store, count, Some(900)).await;
        assert_eq!(next_of(&store, 60).await, None);
        let of_both = on_connection(&store, |conn| {
            [READY, OVERDUE].map(|sql| {
                let mut statement = conn.prepare(sql).unwrap();
                assert!(!statement.exists((60,)).unwrap());
                statement.get_status(rusqlite::StatementStatus::VmStep)
            })
        });
        steps.push(of_both.await);
    }
    assert_eq!(steps[0], steps[1], "of 5 jobs and of 200");
}

#[tokio::test]
async fn a_job_returns_with_the_answer_or_the_expiry_that_its_run_waits_for() {
    let store = store().await;
    put_waiting(&store, 3, Some(900)).await;
    store.decide(&"q1".into(), yes("d1"), 10).await.unwrap();
    assert_eq!(next_of(&store, 60).await.as_deref(), Some("w1"));
    // The run takes note of the answer and asks something else.
    let fence = store.acquire(&"w1".into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let running = run("r1", "w1", RunStatus::Running);
    store.begin(begin(&fence, &running, "c1", 1, Some(("q1", "d1")))).await.unwrap();
    assert_eq!(next_of(&store, 60).await.as_deref(), Some("w1"), "its process may die here");
    let waiting = run("r1", "w1", RunStatus::Waiting);
    let opened = vec![question("q9", &waiting, "c2", None)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &waiting) }).await.unwrap();
    assert_eq!(next_of(&store, 60).await, None);
    // An answer that comes before the run has written that it waits is not lost.
    store.decide(&"q9".into(), yes("d9"), 10).await.unwrap();
    store.checkpoint(checkpoint(&fence, &waiting)).await.unwrap();
    assert_eq!(next_of(&store, 60).await.as_deref(), Some("w1"));
    store.begin(begin(&fence, &running, "c2", 1, Some(("q9", "d9")))).await.unwrap();
    store.checkpoint(checkpoint(&fence, &over(&running, TerminationReason::NaturalEnd))).await.unwrap();
    assert_eq!(next_of(&store, 60).await, None);
    // Time is over: whoever notes it, the run does not know yet.
    assert_eq!(next_of(&store, 900).await.as_deref(), Some("w0"));
    assert_eq!(store.expire(vec!["q2".into()], 100).await.unwrap().len(), 1);
    assert_eq!(next_of(&store, 101).await.as_deref(), Some("w2"));
    assert_eq!(store.expire_due(900).await.unwrap().len(), 1);
    assert_eq!(next_of(&store, 60).await.as_deref(), Some("w0"), "also after a clock was put back");
}

#[tokio::test]
async fn jobs_of_an_older_store_wait_for_their_answers() {
    let home = Home::new();
    let store = home.open();
    put_waiting(&store, 2, None).await;
    store.decide(&"q1".into(), yes("d1"), 10).await.unwrap();
    store.close().await;
    let old = home.raw();
    old.execute_batch(super::BEFORE_GROWTH).unwrap();
    old.pragma_update(None, "user_version", 12).unwrap();
    drop(old);
    let store = home.open();
    assert_eq!(next_of(&store, 60).await.as_deref(), Some("w1"));
    store.decide(&"q0".into(), yes("d0"), 10).await.unwrap();
    assert_eq!(next_of(&store, 60).await.as_deref(), Some("w0"));
}
