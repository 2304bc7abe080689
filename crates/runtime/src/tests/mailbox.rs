//! Mailbox jobs and the runs that serve them.

use super::*;
use aye_core::contract::mailbox::{MailboxJob, MailboxJobStatus};

const LEASE: u64 = 60_000;

async fn submit(runtime: &AgentRuntime, content: &str) -> MailboxJob {
    runtime.submit(MailboxJob::new("t", vec![Message::user(content)], 1)).await.unwrap()
}

async fn claim(house: &House, job: &MailboxJob) -> MailboxJob {
    house.store.mailbox().claim_job(&job.job_id, "w", u64::MAX / 2, LEASE).await.unwrap().unwrap()
}

async fn load(house: &House, job: &MailboxJob) -> MailboxJob {
    house.store.mailbox().load_job(&job.job_id).await.unwrap().unwrap()
}

async fn serve(runtime: &AgentRuntime, job: &MailboxJob) -> Result<AgentRunResult, RuntimeError> {
    runtime.run_job(job, Arc::new(VecEventSink::new()), UnknownPolicy::Ask).await
}

#[tokio::test]
async fn a_job_starts_one_run_and_ends_with_it() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("It is noon."), text("Behind it.")]);
    let runtime = house.runtime(&script);
    let (first, second) = (submit(&runtime, "go").await, submit(&runtime, "and then").await);
    let gone = RuntimeError::NotQueued { thread_id: "t".into(), id: first.sequence };
    assert_eq!(serve(&runtime, &first).await, Err(gone), "nobody has claimed it");

    let held = claim(&house, &first).await;
    let asked = serve(&runtime, &held).await.unwrap();
    assert_eq!(asked.termination, TerminationReason::Suspended);
    let waits = load(&house, &first).await;
    assert_eq!((waits.status, waits.run_id), (MailboxJobStatus::Claimed, Some(asked.run_id.clone())));
    let token = held.claim_token.as_deref().unwrap();
    house.store.mailbox().give_back(&held.job_id, token, 2).await.unwrap();

    // The job after it does not start, whoever claims it.
    let behind = claim(&house, &second).await;
    assert_eq!(serve(&runtime, &behind).await, Err(RuntimeError::NotFree { thread_id: "t".into() }));
    let token = behind.claim_token.as_deref().unwrap();
    house.store.mailbox().give_back(&behind.job_id, token, 2).await.unwrap();

    // Another worker claims it: the same run resumes.
    let id = asked.waiting[0].id.clone();
    runtime.decide(&id, answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
    let again = claim(&house, &first).await;
    let ended = serve(&runtime, &again).await.unwrap();
    assert_eq!((ended.run_id, ended.response.as_str()), (asked.run_id, "It is noon."));
    assert_eq!(load(&house, &first).await.status, MailboxJobStatus::Accepted);
    assert_eq!(house.executed(), 1);

    let behind = claim(&house, &second).await;
    assert_eq!(serve(&runtime, &behind).await.unwrap().response, "Behind it.");
    assert_eq!(house.store.runs(&"t".into()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn an_interrupt_clears_the_queue() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("As you like.")]);
    let runtime = house.runtime(&script);
    let (first, second) = (submit(&runtime, "go").await, submit(&runtime, "and then").await);
    let held = claim(&house, &first).await;
    serve(&runtime, &held).await.unwrap();
    let interrupt = runtime.interrupt(&"t".into()).await.unwrap();
    assert_eq!((interrupt.new_generation, interrupt.superseded_count), (1, 1));
    assert_eq!(interrupt.active_job.unwrap().job_id, first.job_id);
    assert_eq!(load(&house, &second).await.status, MailboxJobStatus::Superseded);
    // The new message closes the question, which ends the job of the run that asked.
    let (result, _) = send(&runtime, "leave it").await;
    assert_eq!(result.response, "As you like.");
    assert_eq!(load(&house, &first).await.status, MailboxJobStatus::Cancelled);
}
