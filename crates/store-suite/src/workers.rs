//! Workers: claims, and what they wait for.

use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::mailbox::{MailboxJob, MailboxJobStatus};
use aye_core::contract::message::Message;
use aye_core::contract::presence::Announced;
use aye_core::contract::program_store::{JobFilter, JobLookup, NoWork, ProgramStore, WorkClaim};
use aye_core::contract::record::*;
use aye_core::contract::storage::StoreError;

use super::fixtures::*;

const LEASE: u64 = 1000;

async fn queue(store: &dyn ProgramStore, thread_id: &str, text: &str) -> MailboxJob {
    store.ensure_thread(thread(thread_id)).await.unwrap();
    store.submit(MailboxJob::new(thread_id, vec![Message::user(text)], 1)).await.unwrap()
}

async fn claim(store: &dyn ProgramStore, worker: &Announced) -> Result<MailboxJob, NoWork> {
    match store.claim_next(&worker.owner, 10, LEASE).await.unwrap() {
        WorkClaim::Claimed(job) => Ok(*job),
        WorkClaim::Nothing(no_work) => Err(no_work),
    }
}

fn token(job: &MailboxJob) -> &str {
    job.claim_token.as_deref().unwrap()
}

pub async fn the_first_job_of_a_free_thread_is_claimed(store: &dyn ProgramStore) {
    let (me, you) = (announced(store, "me"), announced(store, "you"));
    assert_eq!(claim(store, &me).await.unwrap_err(), NoWork::default());
    queue(store, "t1", "one").await;
    let two = queue(store, "t2", "two").await;
    let driven = acquired(store, "t1", &you.owner).await;
    let claimed = claim(store, &me).await.unwrap();
    assert_eq!((&claimed.job_id, claimed.status), (&two.job_id, MailboxJobStatus::Claimed), "t1 is not free");
    assert_eq!(claimed.lease_until, Some(10 + LEASE));
    let nothing = claim(store, &me).await.unwrap_err();
    assert_eq!(nothing.held.iter().map(|lease| lease.owner.token.as_str()).collect::<Vec<_>>(), ["you"]);
    assert_eq!((nothing.claimed, nothing.behind.len()), (1, 0), "nobody waits for itself");
    let behind = claim(store, &you).await.unwrap();
    assert_eq!(behind.messages[0].text(), "one", "its own lease keeps nobody out of its thread");
    let others = claim(store, &you).await.unwrap_err().behind;
    assert_eq!(others.iter().map(|lease| lease.owner.token.as_str()).collect::<Vec<_>>(), ["me"]);
    store.release(&driven).await.unwrap();
}

pub async fn of_several_workers_one_gets_a_job(store: &dyn ProgramStore) {
    queue(store, "t1", "one").await;
    queue(store, "t1", "two").await;
    let workers: Vec<_> = (0..4).map(|n| announced(store, &format!("w{n}"))).collect();
    let claims = futures::future::join_all(workers.iter().map(|worker| claim(store, worker))).await;
    let won: Vec<_> = claims.iter().flatten().collect();
    assert_eq!(won.len(), 1, "a thread has one claimed job");
    assert_eq!(won[0].messages[0].text(), "one");
}

pub async fn a_job_that_waits_for_an_answer_is_claimed_after_it(store: &dyn ProgramStore) {
    let me = announced(store, "me");
    queue(store, "t1", "ask").await;
    let job = claim(store, &me).await.unwrap();
    let fence = acquired(store, "t1", &me.owner).await;
    let run = run("r1", "t1", RunStatus::Waiting);
    let takes = Some(JobClaim { id: job.sequence, claim: job.claim_token.clone() });
    let opened = vec![question("q1", &run, "c1", None)];
    store.checkpoint(Checkpoint { takes, opened, ..checkpoint(&fence, &run) }).await.unwrap();
    store.release(&fence).await.unwrap();
    store.give_back_job(&job.job_id, token(&job), 11).await.unwrap();
    let nothing = claim(store, &me).await.unwrap_err();
    assert_eq!((nothing.held.len(), nothing.claimed), (0, 0));
    store.decide(&"q1".into(), yes("d1"), 12).await.unwrap();
    assert_eq!(claim(store, &me).await.unwrap().job_id, job.job_id);
}

pub async fn a_job_typed_in_a_living_process_is_left_to_it(store: &dyn ProgramStore) {
    let (me, tui) = (announced(store, "me"), announced(store, "tui"));
    store.ensure_thread(thread("t1")).await.unwrap();
    store.submit(MailboxJob::typed("t1", vec![Message::user("typed")], &tui.owner, 1)).await.unwrap();
    queue(store, "t1", "after it").await;
    queue(store, "t2", "elsewhere").await;
    assert_eq!(claim(store, &me).await.unwrap().messages[0].text(), "elsewhere");
    let behind = claim(store, &me).await.unwrap_err().behind;
    assert_eq!(behind.iter().map(|lease| lease.owner.token.as_str()).collect::<Vec<_>>(), ["tui"]);
    drop(tui);
    assert_eq!(claim(store, &me).await.unwrap().messages[0].text(), "typed");
}

pub async fn jobs_of_dead_workers_are_reclaimed(store: &dyn ProgramStore) {
    let (me, other) = (announced(store, "me"), announced(store, "other"));
    queue(store, "t1", "one").await;
    queue(store, "t1", "two").await;
    let job = claim(store, &other).await.unwrap();
    assert_eq!(store.reclaim(11, 9).await.unwrap(), [], "it lives");
    drop(other);
    assert_eq!(store.reclaim(12, 0).await.unwrap(), []);
    let back = store.reclaim(12, 9).await.unwrap();
    assert_eq!(
        back.iter().map(|job| (job.status, job.attempt_count)).collect::<Vec<_>>(),
        [(MailboxJobStatus::Queued, 1)]
    );
    let again = claim(store, &me).await.unwrap();
    assert_eq!(again.job_id, job.job_id, "it keeps its place");
    let late = store.accept_job(&job.job_id, token(&job), 13).await;
    assert!(matches!(late, Err(StoreError::NotClaimed(_))), "{late:?}");
    assert!(!store.extend_claim(&job.job_id, token(&job), 13, LEASE).await.unwrap());
    // A claim that nobody extends ends, whoever lives.
    assert_eq!(store.reclaim(10 + LEASE, 9).await.unwrap(), []);
    assert!(store.extend_claim(&again.job_id, token(&again), 500, LEASE).await.unwrap());
    assert_eq!(store.reclaim(11 + LEASE, 9).await.unwrap(), []);
    assert_eq!(store.reclaim(501 + LEASE, 9).await.unwrap().len(), 1);
}

pub async fn a_claimed_job_ends_or_returns(store: &dyn ProgramStore) {
    let me = announced(store, "me");
    queue(store, "t1", "x").await;
    let job = claim(store, &me).await.unwrap();
    let later = store.postpone_job(&job.job_id, token(&job), 90, "paused", 11).await.unwrap();
    assert_eq!((later.status, later.available_at, later.attempt_count), (MailboxJobStatus::Queued, 90, 0));
    assert_eq!(claim(store, &me).await.unwrap_err().wake_at, Some(90));
    let claim_at = async |at: u64| match store.claim_next(&me.owner, at, LEASE).await.unwrap() {
        WorkClaim::Claimed(job) => *job,
        WorkClaim::Nothing(no_work) => panic!("{no_work:?}"),
    };
    let job = claim_at(90).await;
    let retried = store.retry_job(&job.job_id, token(&job), 200, "503", 91).await.unwrap();
    assert_eq!((retried.attempt_count, retried.last_error.as_deref()), (1, Some("503")));
    assert_eq!(claim(store, &me).await.unwrap_err().retrying, 1);
    let job = claim_at(200).await;
    let dead = store.dead_letter_job(&job.job_id, token(&job), "no", 201).await.unwrap();
    assert_eq!(dead.status, MailboxJobStatus::DeadLetter);
    let fresh = store.requeue_dead(&job.job_id, 300).await.unwrap().unwrap();
    assert_eq!((fresh.attempt_count, fresh.status), (0, MailboxJobStatus::Queued));
    assert_eq!(store.requeue_dead(&job.job_id, 301).await.unwrap(), None);
    let job = claim_at(300).await;
    store.accept_job(&job.job_id, token(&job), 310).await.unwrap();
    let queued = queue(store, "t1", "y").await;
    assert_eq!(
        store.cancel_job(&queued.job_id, 311).await.unwrap().unwrap().status,
        MailboxJobStatus::Cancelled
    );
    assert_eq!(store.cancel_job(&queued.job_id, 312).await.unwrap(), None);
    let unknown = store.cancel_job(&"none".into(), 312).await;
    assert!(matches!(unknown, Err(StoreError::NoJob(_))), "{unknown:?}");
    assert_eq!(store.purge_jobs(311).await.unwrap(), 1, "what was over before");
    assert_eq!(store.count_jobs(JobFilter::default()).await.unwrap(), 1);
}

pub async fn jobs_are_listed_and_found(store: &dyn ProgramStore) {
    let (one, two) = (queue(store, "t1", "one").await, queue(store, "t2", "two").await);
    let texts = async |filter: JobFilter| {
        let jobs = store.list_jobs(filter).await.unwrap();
        jobs.into_iter().map(|job| job.messages[0].text()).collect::<Vec<_>>()
    };
    assert_eq!(texts(JobFilter::default()).await, ["one", "two"]);
    let of_two = JobFilter { mailbox: Some("t2".into()), ..JobFilter::default() };
    assert_eq!(texts(of_two.clone()).await, ["two"]);
    assert_eq!(store.count_jobs(of_two).await.unwrap(), 1);
    let dead = JobFilter { statuses: vec![MailboxJobStatus::DeadLetter], ..JobFilter::default() };
    assert_eq!(texts(dead).await, [""; 0]);
    let limited = JobFilter { limit: Some(1), ..JobFilter::default() };
    assert_eq!(texts(limited.clone()).await, ["one"]);
    assert_eq!(store.count_jobs(limited).await.unwrap(), 2);
    let by_number = store.find_job(&one.sequence.to_string()).await.unwrap();
    assert!(matches!(&by_number, JobLookup::One(job) if job.job_id == one.job_id), "{by_number:?}");
    let by_id = store.find_job(two.job_id.as_str()).await.unwrap();
    assert!(matches!(&by_id, JobLookup::One(job) if job.job_id == two.job_id), "{by_id:?}");
    assert_eq!(store.find_job("").await.unwrap(), JobLookup::None);
    assert_eq!(store.find_job("nothing").await.unwrap(), JobLookup::None);
}
