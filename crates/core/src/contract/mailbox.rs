//! The mailbox: requests for runs that wait until a worker can serve them. Times are Unix milliseconds.
//!
//! ```text
//! Queued --claim--> Claimed --ack--> Accepted
//!   |                  |--nack, attempts left--> Queued again, at the time of the next try
//!   |                  |--nack, none left; dead letter--> DeadLetter
//!   |                  +--supersede--> Superseded
//!   |-- cancel --> Cancelled
//!   +-- interrupt --> Superseded
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::{JobId, RunId, ThreadId};
use super::lifecycle::TerminationReason;
use super::message::Message;
use super::record::{Owner, RunRecord};
use super::schedule::Schedule;

/// The member of a job's extras that names the process it was typed into.
const TYPED_INTO: &str = "typed_into";
/// The member that says what a client calls it.
const CORRELATION_ID: &str = "correlation_id";
/// The key of the id that the first run gets.
const RUN_ID: &str = "run_id";
/// The key of the schedule.
const SCHEDULE: &str = "schedule";

/// The default priority of a job: 0 comes first, 255 last.
pub const DEFAULT_PRIORITY: u8 = 128;

/// The status of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MailboxJobStatus {
    /// Waits to be claimed.
    #[default]
    Queued,
    /// Claimed by a consumer, which works on it.
    Claimed,
    /// Done.
    Accepted,
    /// Cancelled before it was done.
    Cancelled,
    /// Replaced by a newer generation.
    Superseded,
    /// Given up.
    DeadLetter,
}

impl MailboxJobStatus {
    /// The status of a job whose run is done, and why it failed; `None` when a worker tries it again.
    pub fn after(termination: Option<&TerminationReason>) -> Option<(Self, Option<String>)> {
        match termination {
            Some(TerminationReason::Error(_)) => None,
            Some(TerminationReason::Cancelled) => Some((Self::Cancelled, None)),
            Some(TerminationReason::Blocked(why)) => {
                Some((Self::DeadLetter, Some(format!("its run was blocked: {why}"))))
            }
            Some(
                TerminationReason::NaturalEnd
                | TerminationReason::BehaviorRequested
                | TerminationReason::Stopped(_)
                | TerminationReason::Suspended,
            )
            | None => Some((Self::Accepted, None)),
        }
    }

    pub const ALL: [MailboxJobStatus; 6] =
        [Self::Queued, Self::Claimed, Self::Accepted, Self::Cancelled, Self::Superseded, Self::DeadLetter];

    /// Returns whether the job's status is final.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Queued | Self::Claimed => false,
            Self::Accepted | Self::Cancelled | Self::Superseded | Self::DeadLetter => true,
        }
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Claimed => "claimed",
            Self::Accepted => "accepted",
            Self::Cancelled => "cancelled",
            Self::Superseded => "superseded",
            Self::DeadLetter => "dead_letter",
        }
    }
}

/// The origin of a request for a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MailboxJobOrigin {
    /// A user, at a terminal or through a client.
    #[default]
    User,
    /// Another agent.
    #[serde(rename = "a2a")]
    A2A,
    /// The runtime itself: the news of a child, a handoff.
    Internal,
}

/// A request for a run, as the mailbox keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MailboxJob {
    /// Its id: a UUID v7.
    pub job_id: JobId,
    /// The conversation it is for.
    pub mailbox_id: ThreadId,
    /// Its number in the store, given when it is enqueued: smaller ones are older.
    #[serde(default)]
    pub sequence: u64,

    /// The agent that should answer; empty for the one that answers where the job is served.
    pub agent_id: String,
    /// The messages of the request.
    pub messages: Vec<Message>,
    /// The origin of the request.
    pub origin: MailboxJobOrigin,
    /// The name of the sender, if known.
    pub sender_id: Option<String>,
    /// The run that this one serves.
    pub parent_run_id: Option<RunId>,
    /// The other members of the request, kept unchanged.
    pub request_extras: Option<Value>,

    /// 0 comes first, 255 last.
    pub priority: u8,
    /// At most one job of a mailbox that is not terminal has this key.
    pub dedupe_key: Option<String>,
    /// The mailbox's generation when it was enqueued.
    pub generation: u64,

    /// The status of the job.
    pub status: MailboxJobStatus,
    /// Not claimed before.
    pub available_at: u64,
    /// Tries that failed.
    pub attempt_count: u32,
    /// The number of failed attempts after which the job is dead.
    pub max_attempts: u32,
    /// Why the last try failed.
    pub last_error: Option<String>,
    /// The run that the last attempt started; the next worker that claims the job resumes that run.
    #[serde(default)]
    pub run_id: Option<RunId>,

    /// The token that proves a claim.
    pub claim_token: Option<String>,
    /// The worker that claimed the job.
    pub claimed_by: Option<String>,
    /// When the claim is over, unless it is extended.
    pub lease_until: Option<u64>,

    /// Enqueued.
    pub created_at: u64,
    /// Last changed.
    pub updated_at: u64,
}

impl MailboxJob {
    /// A fresh one that can be claimed at once.
    pub fn new(mailbox_id: impl Into<ThreadId>, messages: Vec<Message>, now: u64) -> Self {
        Self {
            job_id: JobId::fresh(),
            mailbox_id: mailbox_id.into(),
            sequence: 0,
            agent_id: String::new(),
            messages,
            origin: MailboxJobOrigin::default(),
            sender_id: None,
            parent_run_id: None,
            request_extras: None,
            priority: DEFAULT_PRIORITY,
            dedupe_key: None,
            generation: 0,
            status: MailboxJobStatus::Queued,
            available_at: now,
            attempt_count: 0,
            max_attempts: MailboxConfig::default().default_max_attempts,
            last_error: None,
            run_id: None,
            claim_token: None,
            claimed_by: None,
            lease_until: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// One that was typed into a process: no worker takes it while the process lives.
    pub fn typed(
        mailbox_id: impl Into<ThreadId>,
        messages: Vec<Message>,
        typed_into: &Owner,
        now: u64,
    ) -> Self {
        let extras = serde_json::json!({ TYPED_INTO: typed_into });
        Self { request_extras: Some(extras), ..Self::new(mailbox_id, messages, now) }
    }

    /// The one by which any process resumes a run that waits for a time.
    pub fn resuming(run: &RunRecord, at: u64, now: u64) -> Self {
        Self {
            agent_id: run.agent_id.clone(),
            origin: MailboxJobOrigin::Internal,
            dedupe_key: Some(Self::resume_key(&run.id)),
            available_at: at,
            run_id: Some(run.id.clone()),
            ..Self::new(run.thread_id.clone(), Vec::new(), now)
        }
    }

    /// The key of [`MailboxJob::resuming`].
    pub fn resume_key(run: &RunId) -> String {
        format!("resume {run}")
    }

    /// Says what a client calls it: the runs that serve it are called the same.
    #[must_use]
    pub fn with_correlation_id(mut self, id: Option<String>) -> Self {
        if let Some(id) = id {
            let extras = self.request_extras.get_or_insert_with(|| Value::Object(serde_json::Map::new()));
            if let Value::Object(extras) = extras {
                extras.insert(CORRELATION_ID.to_owned(), Value::String(id));
            }
        }
        self
    }

    /// Returns the client's id for the job.
    pub fn correlation_id(&self) -> Option<&str> {
        self.request_extras.as_ref()?.get(CORRELATION_ID)?.as_str()
    }

    /// Says which id the run gets that serves it first, so that the sender knows it at once.
    #[must_use]
    pub fn with_run_id(mut self, id: &RunId) -> Self {
        let extras = self.request_extras.get_or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Value::Object(extras) = extras {
            extras.insert(RUN_ID.to_owned(), Value::from(id.as_str()));
        }
        self
    }

    /// Makes the job come again. It is due at the first time of the schedule, counted from when it was made.
    #[must_use]
    pub fn with_schedule(mut self, schedule: &Schedule) -> Self {
        self.available_at =
            schedule.next_after(self.created_at, self.created_at).unwrap_or(self.available_at);
        let extras = self.request_extras.get_or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let (Value::Object(extras), Ok(schedule)) = (extras, serde_json::to_value(schedule)) {
            extras.insert(SCHEDULE.to_owned(), schedule);
        }
        self
    }

    /// Returns when the job comes again. Whoever claims it passes the schedule on to the next job, so that one job at a
    /// time has it.
    pub fn schedule(&self) -> Option<Schedule> {
        let schedule = self.request_extras.as_ref()?.get(SCHEDULE)?;
        serde_json::from_value(schedule.clone()).ok()
    }

    /// Takes the schedule out. Returns the job that has it from now on: the same request, at the next time.
    pub fn pass_on_schedule(&mut self, now: u64) -> Option<Self> {
        let schedule = self.schedule()?;
        let mut next = Self {
            job_id: JobId::fresh(),
            mailbox_id: if schedule.same_thread { self.mailbox_id.clone() } else { ThreadId::fresh() },
            dedupe_key: None,
            last_error: None,
            run_id: None,
            created_at: now,
            updated_at: now,
            ..self.clone()
        };
        if let Some(Value::Object(extras)) = &mut next.request_extras {
            extras.remove(RUN_ID);
        }
        if let Some(Value::Object(extras)) = &mut self.request_extras {
            extras.remove(SCHEDULE);
        }
        next.available_at = schedule.next_after(self.available_at, now)?;
        Some(next)
    }

    /// Returns the id of the run that serves the job first, if the sender chose one.
    pub fn wanted_run_id(&self) -> Option<RunId> {
        self.request_extras.as_ref()?.get(RUN_ID)?.as_str().map(RunId::from)
    }

    /// The process that it was typed into.
    pub fn typed_into(&self) -> Option<Owner> {
        let owner = self.request_extras.as_ref()?.get(TYPED_INTO)?;
        serde_json::from_value(owner.clone()).ok()
    }

    #[must_use]
    pub fn with_agent_id(mut self, agent_id: impl Into<String>) -> Self {
        self.agent_id = agent_id.into();
        self
    }

    #[must_use]
    pub fn with_origin(mut self, origin: MailboxJobOrigin) -> Self {
        self.origin = origin;
        self
    }

    /// Sets the priority, to put the job before others or after them.
    #[must_use]
    pub fn with_priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Keeps a second one with the same key out of the mailbox until this one is over.
    #[must_use]
    pub fn with_dedupe_key(mut self, key: impl Into<String>) -> Self {
        self.dedupe_key = Some(key.into());
        self
    }

    /// Not before this time.
    #[must_use]
    pub fn with_available_at(mut self, at: u64) -> Self {
        self.available_at = at;
        self
    }

    /// Sets the number of failed attempts after which the job is dead.
    #[must_use]
    pub fn with_max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Returns whether the job's claim has expired.
    pub fn is_lease_over(&self, now: u64) -> bool {
        self.status == MailboxJobStatus::Claimed && self.lease_until.is_none_or(|until| until < now)
    }
}

/// The result of an interrupt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MailboxInterrupt {
    /// The mailbox's generation from now on.
    pub new_generation: u64,
    /// The job in progress; the caller cancels its run.
    pub active_job: Option<MailboxJob>,
    /// The number of queued jobs that were superseded.
    pub superseded_count: usize,
}

/// The times of a mailbox, and how often something is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailboxConfig {
    /// The duration of a claim, in milliseconds, unless extended.
    pub lease_ms: u64,
    /// The duration of a claim whose run waits for the user, in milliseconds, if such a run keeps its claim.
    /// The workers of this program release the claim instead.
    pub suspended_lease_ms: u64,
    /// The interval at which a worker extends its claim.
    pub lease_renewal_interval: Duration,
    /// The interval between checks for expired claims, where nothing else determines the time.
    pub sweep_interval: Duration,
    /// The minimum interval between removals of old finished jobs.
    pub gc_interval: Duration,
    /// The time a job is kept after it finished.
    pub gc_ttl: Duration,
    /// Tries before a job is given up.
    pub default_max_attempts: u32,
    /// The pause before the second try, in milliseconds.
    pub default_retry_delay_ms: u64,
    /// The longest pause between two tries, in milliseconds.
    pub max_retry_delay_ms: u64,
}

impl Default for MailboxConfig {
    fn default() -> Self {
        Self {
            lease_ms: 30_000,
            suspended_lease_ms: 600_000,
            lease_renewal_interval: Duration::from_secs(10),
            sweep_interval: Duration::from_secs(30),
            gc_interval: Duration::from_mins(1),
            gc_ttl: Duration::from_hours(24),
            default_max_attempts: 5,
            default_retry_delay_ms: 250,
            max_retry_delay_ms: 30_000,
        }
    }
}

impl MailboxConfig {
    /// Returns the delay before the next attempt, in milliseconds, after this number of failed attempts: the
    /// delay doubles with each failure.
    pub fn retry_delay_ms(&self, failed: u32) -> u64 {
        let factor = 1u64.checked_shl(failed.saturating_sub(1)).unwrap_or(u64::MAX);
        self.default_retry_delay_ms.saturating_mul(factor).min(self.max_retry_delay_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_match_the_book() {
        let config = MailboxConfig::default();
        assert_eq!((config.lease_ms, config.suspended_lease_ms), (30_000, 600_000));
        assert_eq!(config.lease_renewal_interval, Duration::from_secs(10));
        assert_eq!(config.sweep_interval, Duration::from_secs(30));
        assert_eq!(config.gc_interval, Duration::from_mins(1));
        assert_eq!(config.gc_ttl, Duration::from_hours(24));
        assert_eq!(config.default_max_attempts, 5);
        assert_eq!((config.default_retry_delay_ms, config.max_retry_delay_ms), (250, 30_000));
    }

    #[test]
    fn the_retry_delay_doubles_up_to_its_maximum() {
        let config = MailboxConfig::default();
        let pauses: Vec<u64> = [0, 1, 2, 3, 7, 8, 9, 64, u32::MAX].map(|n| config.retry_delay_ms(n)).into();
        assert_eq!(pauses, [250, 250, 500, 1000, 16_000, 30_000, 30_000, 30_000, 30_000]);
    }

    #[test]
    fn terminal_states_and_their_names() {
        for status in MailboxJobStatus::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        let open = MailboxJobStatus::ALL.into_iter().filter(|status| !status.is_terminal());
        assert_eq!(open.collect::<Vec<_>>(), [MailboxJobStatus::Queued, MailboxJobStatus::Claimed]);
        assert_eq!(serde_json::to_value(MailboxJobOrigin::A2A).unwrap(), "a2a");
    }
}
