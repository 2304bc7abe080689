//! Random mailbox requests against a model in a plain map, with crashes and clock jumps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{JobFilter, Mailbox};
use aye_core::contract::ids::JobId;
use aye_core::contract::mailbox::{MailboxJob, MailboxJobStatus};

#[derive(Clone, Copy, Debug)]
enum End {
    Ack,
    Nack(u64),
    DeadLetter,
    Supersede,
    GiveBack,
    Extend(u64),
}

#[derive(Clone, Debug)]
enum Op {
    Enqueue {
        mailbox: u8,
        priority: u8,
        delay: u64,
        key: Option<u8>,
        tries: u32,
    },
    Claim {
        mailbox: u8,
        who: u8,
    },
    ClaimJob {
        job: usize,
        who: u8,
    },
    End {
        job: usize,
        with: Token,
        how: End,
    },
    Cancel(usize),
    Interrupt(u8),
    Reclaim {
        gone: Option<u8>,
        limit: usize,
    },
    Purge(u64),
    /// The clock advances, or is set back.
    Time(i64),
    /// Reopens the files left by a crash.
    Crash,
}

#[derive(Clone, Copy, Debug)]
enum Token {
    Right,
    /// The token of an expired claim, or of another job.
    Old(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let how = prop_oneof![
        3 => Just(End::Ack),
        4 => (0..60u64).prop_map(End::Nack),
        1 => Just(End::DeadLetter),
        1 => Just(End::Supersede),
        2 => Just(End::GiveBack),
        3 => (0..80u64).prop_map(End::Extend),
    ];
    let with = prop_oneof![4 => Just(Token::Right), 1 => (0..20usize).prop_map(Token::Old)];
    prop_oneof![
        8 => (0..2u8, 0..3u8, 0..40u64, prop::option::weighted(0.4, 0..2u8), 0..4u32).prop_map(
            |(mailbox, priority, delay, key, tries)| Op::Enqueue { mailbox, priority, delay, key, tries }
        ),
        8 => (0..2u8, 0..3u8).prop_map(|(mailbox, who)| Op::Claim { mailbox, who }),
        4 => (0..20usize, 0..3u8).prop_map(|(job, who)| Op::ClaimJob { job, who }),
        10 => (0..20usize, with, how).prop_map(|(job, with, how)| Op::End { job, with, how }),
        2 => (0..20usize).prop_map(Op::Cancel),
        1 => (0..2u8).prop_map(Op::Interrupt),
        3 => (prop::option::of(0..3u8), 0..3usize).prop_map(|(gone, limit)| Op::Reclaim { gone, limit }),
        1 => (0..40u64).prop_map(Op::Purge),
        4 => (-30..60i64).prop_map(Op::Time),
        1 => Just(Op::Crash),
    ]
}

const LEASE: u64 = 50;

/// The expected content of the table.
#[derive(Debug, Default)]
struct Model {
    now: u64,
    jobs: BTreeMap<u64, MailboxJob>,
    generations: BTreeMap<String, u64>,
    tokens: Vec<String>,
}

impl Model {
    /// A job by a small number, so that requests collide: pending ones first.
    fn pick(&self, n: usize) -> Option<MailboxJob> {
        let (open, over): (Vec<_>, Vec<_>) = self.jobs.values().partition(|job| !job.status.is_terminal());
        let all: Vec<_> = open.into_iter().chain(over).collect();
        (!all.is_empty()).then(|| all[n % all.len()].clone())
    }

    fn claimed(&self, mailbox: &ThreadId) -> Option<&MailboxJob> {
        let is = |job: &&MailboxJob| job.status == MailboxJobStatus::Claimed && job.mailbox_id == *mailbox;
        self.jobs.values().find(is)
    }

    fn claim(&mut self, n: u64, who: u8, token: Option<String>) -> MailboxJob {
        let now = self.now;
        let job = self.jobs.get_mut(&n).unwrap();
        job.status = MailboxJobStatus::Claimed;
        job.claim_token = token.clone();
        job.claimed_by = Some(name("w", who));
        job.lease_until = Some(now + LEASE);
        job.updated_at = job.updated_at.max(now);
        self.tokens.extend(token);
        job.clone()
    }

    fn leave(&mut self, n: u64, status: MailboxJobStatus) -> &mut MailboxJob {
        let now = self.now;
        let job = self.jobs.get_mut(&n).unwrap();
        job.status = status;
        job.updated_at = job.updated_at.max(now);
        (job.claim_token, job.claimed_by, job.lease_until) = (None, None, None);
        job
    }

    /// Without a time the job keeps its place.
    fn fail(&mut self, n: u64, retry_at: Option<u64>, why: &str) -> MailboxJob {
        let job = self.leave(n, MailboxJobStatus::Queued);
        job.attempt_count += 1;
        job.last_error = Some(why.into());
        if job.attempt_count >= job.max_attempts {
            job.status = MailboxJobStatus::DeadLetter;
        } else {
            job.available_at = retry_at.unwrap_or(job.available_at);
        }
        job.clone()
    }
}

fn name(kind: &str, n: u8) -> String {
    format!("{kind}{n}")
}

async fn claims(mailbox: &Mailbox, model: &mut Model, op: Op) {
    match op {
        Op::Enqueue { mailbox: of, priority, delay, key, tries } => {
            let mut sent = MailboxJob::new(name("t", of), vec![Message::user("x")], model.now)
                .with_priority(priority)
                .with_available_at(model.now + delay)
                .with_max_attempts(tries);
            sent.dedupe_key = key.map(|key| name("k", key));
            let is_taken = sent.dedupe_key.is_some()
                && model.jobs.values().any(|job| {
                    !job.status.is_terminal()
                        && job.mailbox_id == sent.mailbox_id
                        && job.dedupe_key == sent.dedupe_key
                });
            match mailbox.enqueue(sent.clone()).await {
                Ok(kept) => {
                    assert!(!is_taken);
                    sent.generation = model.generations.get(sent.mailbox_id.as_str()).copied().unwrap_or(0);
                    sent.sequence = kept.sequence;
                    assert!(model.jobs.keys().all(|known| *known < kept.sequence));
                    assert_eq!(kept, sent);
                    model.jobs.insert(kept.sequence, kept);
                }
                Err(StoreError::Duplicate { .. }) => assert!(is_taken),
                Err(error) => panic!("{error}"),
            }
        }
        Op::Claim { mailbox: of, who } => {
            let of = ThreadId::from(name("t", of));
            let got = mailbox.claim(&of, &name("w", who), 1, model.now, LEASE).await.unwrap().pop();
            let due = |job: &&MailboxJob| {
                job.mailbox_id == of
                    && job.status == MailboxJobStatus::Queued
                    && job.available_at <= model.now
            };
            let first = match model.claimed(&of) {
                Some(_) => None,
                None => model
                    .jobs
                    .values()
                    .filter(due)
                    .min_by_key(|job| (job.priority, job.available_at, job.created_at, job.sequence)),
            };
            let first = first.map(|job| job.sequence);
            let token = got.as_ref().and_then(|job| job.claim_token.clone());
            let wanted = first.map(|n| model.claim(n, who, token));
            assert_eq!(got, wanted);
        }
        Op::ClaimJob { job, who } => {
            let Some(job) = model.pick(job) else { return };
            let got = mailbox.claim_job(&job.job_id, &name("w", who), model.now, LEASE).await.unwrap();
            let may = job.status == MailboxJobStatus::Queued && model.claimed(&job.mailbox_id).is_none();
            let token = got.as_ref().and_then(|job| job.claim_token.clone());
            let wanted = may.then(|| model.claim(job.sequence, who, token));
            assert_eq!(got, wanted);
        }
        _ => unreachable!("only those"),
    }
}

async fn ends(mailbox: &Mailbox, model: &mut Model, job: MailboxJob, token: &str, how: End) {
    let (id, n, now) = (&job.job_id, job.sequence, model.now);
    let is_right = job.claim_token.as_deref() == Some(token);
    let (got, wanted) = match how {
        End::Extend(ms) => {
            assert_eq!(mailbox.extend_lease(id, token, now, ms).await.unwrap(), is_right);
            if is_right {
                let job = model.jobs.get_mut(&n).unwrap();
                job.lease_until = job.lease_until.max(Some(now + ms));
                job.updated_at = job.updated_at.max(now);
            }
            return;
        }
        End::Ack => (
            mailbox.ack(id, token, now).await,
            is_right.then(|| model.leave(n, MailboxJobStatus::Accepted).clone()),
        ),
        End::Nack(delay) => (
            mailbox.nack(id, token, now + delay, "no", now).await,
            is_right.then(|| model.fail(n, Some(now + delay), "no")),
        ),
        End::DeadLetter => (
            mailbox.dead_letter(id, token, "end", now).await,
            is_right.then(|| {
                let job = model.leave(n, MailboxJobStatus::DeadLetter);
                job.attempt_count += 1;
                job.last_error = Some("end".into());
                job.clone()
            }),
        ),
        End::Supersede => (
            mailbox.supersede(id, token, "newer", now).await,
            is_right.then(|| {
                let job = model.leave(n, MailboxJobStatus::Superseded);
                job.last_error = Some("newer".into());
                job.clone()
            }),
        ),
        End::GiveBack => (
            mailbox.give_back(id, token, now).await,
            is_right.then(|| model.leave(n, MailboxJobStatus::Queued).clone()),
        ),
    };
    match got {
        Ok(got) => assert_eq!(Some(got), wanted),
        Err(StoreError::NotClaimed(_)) => assert_eq!(wanted, None),
        Err(error) => panic!("{error}"),
    }
}

/// Applies the same operation to both, and compares the results.
async fn step(home: &mut Home, store: &mut Store, model: &mut Model, op: Op) {
    let mailbox = store.mailbox();
    match op {
        Op::Enqueue { .. } | Op::Claim { .. } | Op::ClaimJob { .. } => claims(&mailbox, model, op).await,
        Op::End { job, with, how } => {
            let Some(job) = model.pick(job) else { return };
            let token = match with {
                Token::Right => job.claim_token.clone().unwrap_or_default(),
                Token::Old(n) if model.tokens.is_empty() => format!("token {n}"),
                Token::Old(n) => model.tokens[n % model.tokens.len()].clone(),
            };
            ends(&mailbox, model, job, &token, how).await;
        }
        Op::Cancel(n) => {
            let Some(job) = model.pick(n) else { return };
            let got = mailbox.cancel(&job.job_id, model.now).await.unwrap();
            let may = job.status == MailboxJobStatus::Queued;
            let wanted = may.then(|| model.leave(job.sequence, MailboxJobStatus::Cancelled).clone());
            assert_eq!(got, wanted);
        }
        Op::Interrupt(n) => {
            let of = ThreadId::from(name("t", n));
            let got = mailbox.interrupt(&of, model.now).await.unwrap();
            let generation = model.generations.entry(of.to_string()).or_default();
            *generation += 1;
            assert_eq!(got.new_generation, *generation);
            assert_eq!(got.active_job.as_ref(), model.claimed(&of));
            let queued = |job: &&MailboxJob| job.mailbox_id == of && job.status == MailboxJobStatus::Queued;
            let old: Vec<u64> = model.jobs.values().filter(queued).map(|job| job.sequence).collect();
            assert_eq!(got.superseded_count, old.len());
            for n in old {
                model.leave(n, MailboxJobStatus::Superseded);
            }
        }
        Op::Reclaim { gone, limit } => {
            let gone = gone.map(|who| name("w", who));
            let is_gone = gone.clone();
            let got =
                mailbox.reclaim(model.now, limit, move |who| Some(who) == is_gone.as_deref()).await.unwrap();
            let is = |job: &&MailboxJob| {
                job.status == MailboxJobStatus::Claimed
                    && (job.lease_until.unwrap() < model.now || job.claimed_by == gone)
            };
            let mut over: Vec<_> =
                model.jobs.values().filter(is).map(|job| (job.lease_until, job.sequence)).collect();
            over.sort_unstable();
            over.truncate(limit);
            let wanted: Vec<_> =
                over.into_iter().map(|(_, n)| model.fail(n, None, "its worker stopped responding")).collect();
            assert_eq!(got, wanted);
        }
        Op::Purge(age) => {
            let before = model.now.saturating_sub(age);
            let count = model.jobs.len();
            model.jobs.retain(|_, job| !job.status.is_terminal() || job.updated_at >= before);
            assert_eq!(mailbox.purge_terminal(before).await.unwrap(), count - model.jobs.len());
        }
        Op::Time(ms) => model.now = model.now.saturating_add_signed(ms),
        Op::Crash => {
            let left = home.copy();
            *store = left.open();
            *home = left;
        }
    }
}

/// Everything readable matches the model, in serving order.
async fn compare(store: &Store, model: &Model) {
    let mailbox = store.mailbox();
    let listed = mailbox.list_jobs(JobFilter::default()).await.unwrap();
    let by_number: BTreeMap<u64, MailboxJob> = listed.iter().map(|job| (job.sequence, job.clone())).collect();
    assert_eq!(by_number, model.jobs);
    let open: Vec<JobId> =
        listed.iter().filter(|job| !job.status.is_terminal()).map(|job| job.job_id.clone()).collect();
    let mut wanted: Vec<&MailboxJob> = model.jobs.values().filter(|job| !job.status.is_terminal()).collect();
    wanted.sort_by_key(|job| (job.priority, job.available_at, job.created_at, job.sequence));
    assert_eq!(open, wanted.iter().map(|job| job.job_id.clone()).collect::<Vec<_>>());
    // No thread is locked and nothing has started: a worker would claim the first due job that it may.
    let first = wanted.iter().find(|job| {
        job.status == MailboxJobStatus::Queued
            && job.available_at <= model.now
            && model.claimed(&job.mailbox_id).is_none()
            && wanted.iter().all(|other| {
                let waits = other.status == MailboxJobStatus::Queued && other.attempt_count > 0;
                let is_before = (other.priority, other.sequence) < (job.priority, job.sequence);
                !(waits && is_before && other.mailbox_id == job.mailbox_id)
            })
    });
    let seen = mailbox.next_work(model.now, |_| false).await.unwrap();
    assert_eq!(seen.next.as_ref(), first.copied());
    let claimed = wanted.iter().filter(|job| job.status == MailboxJobStatus::Claimed);
    assert_eq!(seen.claimed.len(), claimed.count());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_mailbox_matches_the_model(ops in prop::collection::vec(op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut home = Home::new();
            let mut store = home.open();
            for n in 0..2 {
                store.create_thread(thread(&name("t", n))).await.unwrap();
            }
            // The threads become durable with the first job.
            let mut model = Model { now: 1000, ..Model::default() };
            for op in ops {
                step(&mut home, &mut store, &mut model, op).await;
                compare(&store, &model).await;
            }
            store.close().await;
        });
    }
}
