//! `aye work`: serves the mailbox without a terminal.
//!
//! A worker claims a job and drives its run until the run is done or waits for the user. Then it returns the job to
//! the queue, where any worker can claim it again once the question is answered. The result of the run is in its
//! conversation.
//!
//! Nothing here polls often. A worker without a job waits for the change feed of the store, for the next time at
//! which something becomes due, and for the end of the drivers of other jobs; every 30 seconds it checks anyway,
//! because a message of another process may have been lost.

mod report;
mod signals;
mod unit;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures::FutureExt as _;

use crate::cli::start::StartFlags;
use crate::commands::{print, queue};
use crate::config::Env;
use crate::contract::event_sink::NullEventSink;
use crate::contract::executor::CODE_PAUSED;
use crate::contract::lifecycle::TerminationReason;
use crate::contract::mailbox::{MailboxConfig, MailboxJob, MailboxJobStatus};
use crate::contract::record::Owner;
use crate::contract::storage::{ChangeFeed, ChangeKind, NoWork, StoreChange, StoreError, WorkClaim};
use crate::failure::{AppError, Failure};
use crate::headless::{end_commands, exit, exit_code};
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::runtime::{AgentRunResult, OwnerWatch, RuntimeError, UnknownPolicy};
use crate::session::Ended;
use crate::terminal::background::{app_in, for_other_folders};

/// `aye work`
#[derive(Args, Clone, Debug)]
pub struct WorkArgs {
    /// Run one job, if one is due, and exit
    #[arg(long, conflicts_with_all = ["until_empty", "max"])]
    pub once: bool,

    /// Exit when no job is due; jobs waiting for an answer or a time stay queued
    #[arg(long)]
    pub until_empty: bool,

    /// Exit after this many jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max: Option<u64>,

    /// Write one line of JSON per job
    #[arg(long)]
    pub json: bool,

    /// Print a file that keeps a worker running: a unit of systemd, or an agent of launchd
    #[arg(long, value_enum, value_name = "SYSTEM", num_args = 0..=1, default_missing_value = "native")]
    pub print_unit: Option<UnitKind>,
}

use report::WorkReport;
pub(crate) use unit::UnitKind;

pub(crate) use signals::Signals;

/// The maximum changes combined into one read of the store.
const BULK: usize = 64;

/// The maximum jobs of dead workers taken over at a time.
const SWEEP: usize = 100;

/// How long to wait before claiming a job again that another process was faster to start.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: WorkArgs, foundation: Foundation, cli: &StartFlags) -> Result<u8, Failure> {
    if let Some(kind) = args.print_unit {
        return unit::print(kind, &foundation);
    }
    queue::refuse_ephemeral(&foundation)?;
    print::notice_untrusted(&foundation);
    let _log = crate::logging::to_file(&foundation.paths.log_dir());
    let env = foundation.env.clone();
    let here = Arc::new(AppContext::build(foundation, cli).await?);
    here.warn_on_stderr();
    here.notifier.send_escalations();
    let mut worker = Worker::new(here, cli, env, &args)?;
    let done = worker.work().await;
    worker.leave().await;
    done?;
    Ok(worker.signals.status().unwrap_or_else(|| worker.report.exit()))
}

/// The result of working on a job.
enum Served {
    /// The worker did all it could.
    Done,
    /// Another process was faster: the job is unchanged.
    Busy,
    /// A second signal arrived.
    BrokenOff,
}

struct Worker {
    here: Arc<AppContext>,
    cli: StartFlags,
    env: Env,
    /// The apps of other folders.
    apps: HashMap<PathBuf, Arc<AppContext>>,
    config: MailboxConfig,
    me: Owner,
    changes: Box<dyn ChangeFeed>,
    signals: Signals,
    report: WorkReport,
    args: WorkArgs,
    served: u64,
    /// When old closed jobs were last removed.
    cleaned: Option<u64>,
}

impl Worker {
    fn new(here: Arc<AppContext>, cli: &StartFlags, env: Env, args: &WorkArgs) -> Result<Worker, Failure> {
        Ok(Worker {
            cli: for_other_folders(cli),
            env,
            apps: HashMap::new(),
            config: here.foundation.loaded.settings.mailbox.clone(),
            me: here.runtime.owner().clone(),
            // Before the first read, so that nothing is missed.
            changes: here.store.watch().map_err(Failure::failed)?,
            signals: Signals::new(),
            report: WorkReport::new(args.json),
            args: args.clone(),
            served: 0,
            cleaned: None,
            here,
        })
    }

    fn now(&self) -> u64 {
        self.here.clock.now_ms()
    }

    async fn work(&mut self) -> Result<(), Failure> {
        while !self.signals.has_come() && self.args.max.is_none_or(|max| self.served < max) {
            match self.claim().await.map_err(Failure::failed)? {
                WorkClaim::Claimed(job) => {
                    match self.serve(*job).await? {
                        Served::Done => self.served += 1,
                        // The job is first in the queue again.
                        Served::Busy if self.args.once => return Ok(()),
                        Served::Busy => self.wait(&NoWork::default(), Some(PAUSE)).await,
                        Served::BrokenOff => return Ok(()),
                    }
                    if self.args.once {
                        return Ok(());
                    }
                }
                WorkClaim::Nothing(no_work) => {
                    let is_empty = no_work.held.is_empty() && no_work.claimed == 0 && no_work.retrying == 0;
                    if self.args.once || (self.args.until_empty && is_empty) {
                        return Ok(());
                    }
                    self.wait(&no_work, None).await;
                }
            }
        }
        Ok(())
    }

    /// Takes jobs away from dead workers, and claims the next job.
    async fn claim(&mut self) -> Result<WorkClaim, StoreError> {
        let now = self.now();
        self.here.store.reclaim(now, SWEEP).await?;
        let is_time =
            |cleaned: u64| u128::from(now.saturating_sub(cleaned)) >= self.config.gc_interval.as_millis();
        if self.cleaned.is_none_or(is_time) {
            let ttl = u64::try_from(self.config.gc_ttl.as_millis()).unwrap_or(u64::MAX);
            self.here.store.purge_jobs(now.saturating_sub(ttl)).await?;
            crate::commands::store::prune_by_setting(&self.here.store, &self.here.foundation).await;
            self.cleaned = Some(now);
        }
        self.here.store.claim_next(&self.me, now, self.config.lease_ms).await
    }

    /// Waits until there is a reason to ask for work, at most this long.
    async fn wait(&mut self, no_work: &NoWork, longest: Option<Duration>) {
        let runtime = &self.here.runtime;
        let others = no_work.held.iter().chain(&no_work.behind);
        let mut guards: Vec<Option<OwnerWatch>> =
            others.map(|lease| Some(OwnerWatch::of(None, lease, runtime))).collect();
        let someone_ends = async {
            if guards.is_empty() {
                return std::future::pending().await;
            }
            futures::future::select_all(
                guards.iter_mut().map(|guard| Box::pin(OwnerWatch::ends_or_due(guard))),
            )
            .await;
        };
        let now = self.here.clock.now_ms();
        let until = no_work.wake_at.map(|at| Duration::from_millis(at.saturating_sub(now).max(1)));
        let until = until.into_iter().chain(longest).min();
        let time_comes = async {
            match until {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wait_for_change(&mut self.changes) => {}
            () = time_comes => {}
            () = someone_ends => {}
            () = self.signals.next() => {}
        }
    }

    /// The app of the folder that a conversation works in.
    async fn app_of(&mut self, job: &MailboxJob) -> Result<Arc<AppContext>, AppError> {
        let thread = self.here.store.load_thread(&job.mailbox_id).await?;
        let thread = thread.ok_or_else(|| format!("unknown conversation {}", job.mailbox_id))?;
        if thread.cwd == self.here.foundation.workspace.cwd {
            return Ok(Arc::clone(&self.here));
        }
        if let Some(app) = self.apps.get(&thread.cwd) {
            return Ok(Arc::clone(app));
        }
        let app = Arc::new(app_in(&self.cli, self.env.clone(), thread.cwd.clone()).await?);
        self.apps.insert(thread.cwd, Arc::clone(&app));
        Ok(app)
    }

    /// Runs a claimed job.
    async fn serve(&mut self, job: MailboxJob) -> Result<Served, Failure> {
        report::begins(&job);
        let result = match self.app_of(&job).await {
            Err(why) => Err(RuntimeError::Store(why.to_string())),
            Ok(app) => {
                let run = async {
                    app.mcp.ready().await;
                    app.runtime.run_job(&job, Arc::new(NullEventSink), UnknownPolicy::Report).await
                };
                let result = self.attend(&job, Box::pin(run)).await;
                end_commands(&app.runtime, &job.mailbox_id).await;
                let Some(result) = result else {
                    self.give_back(&job).await?;
                    report::broken_off(&job);
                    return Ok(Served::BrokenOff);
                };
                result
            }
        };
        self.settle(&job, result).await
    }

    /// Follows a run and renews the claim of its job. Returns `None` after a second signal.
    async fn attend<T>(&mut self, job: &MailboxJob, run: impl Future<Output = T> + Unpin) -> Option<T> {
        let mut run = run;
        let token = job.claim_token.clone().unwrap_or_default();
        loop {
            tokio::select! {
                biased;
                result = &mut run => return Some(result),
                () = self.signals.next() => {
                    if self.signals.is_urgent() {
                        return None;
                    }
                    report::ends_behind(job);
                }
                () = tokio::time::sleep(self.config.lease_renewal_interval) => {
                    let now = self.here.clock.now_ms();
                    let kept = self.here.store.extend_claim(&job.job_id, &token, now, self.config.lease_ms).await;
                    // A lost claim is no reason to stop: the lease of the thread determines who may continue,
                    // and the job ends with the run, whoever claims it.
                    if !matches!(kept, Ok(true)) {
                        tracing::warn!(job = %job.job_id, ?kept, "the claim of a job was not renewed");
                    }
                }
            }
        }
    }

    /// Records and reports the result of a job.
    async fn settle(
        &mut self,
        job: &MailboxJob,
        result: Result<AgentRunResult, RuntimeError>,
    ) -> Result<Served, Failure> {
        let (id, token) = (&job.job_id, job.claim_token.as_deref().unwrap_or_default());
        let now = self.now();
        let failed = match (&result, Ended::of(&result)) {
            (Ok(result), Ended::Waits) => {
                self.give_back(job).await?;
                self.report.ended(job, result, None);
                return Ok(Served::Done);
            }
            (Ok(result), _) => match &result.termination {
                TerminationReason::Error(why) => Some(JobFailure::of_run(why, result)),
                TerminationReason::NaturalEnd
                | TerminationReason::BehaviorRequested
                | TerminationReason::Suspended
                | TerminationReason::Stopped(_)
                | TerminationReason::Blocked(_)
                | TerminationReason::Cancelled => None,
            },
            // Nothing was started. The store will report the process that is in the way or was faster.
            (Err(_), ended) if ended.is_busy() => {
                self.give_back(job).await?;
                return Ok(Served::Busy);
            }
            (Err(_), Ended::Nothing) => {
                self.give_back(job).await?;
                return Ok(Served::Done);
            }
            // Another worker has claimed it.
            (Err(_), Ended::NotQueued | Ended::Fenced) => {
                report::lost(job);
                return Ok(Served::Done);
            }
            (Err(error), Ended::Unfit) => Some(JobFailure::of(error, Retry::Never)),
            (Err(error), _) => Some(JobFailure::of(error, Retry::Counted)),
        };
        let left = match &failed {
            // The run's last transaction has already done it.
            None => self.here.store.accept_job(id, token, now).await,
            Some(JobFailure { why, retry, not_before }) => {
                let pause = self.config.retry_delay_ms(job.attempt_count.saturating_add(1));
                let at = now.saturating_add(pause).max(not_before.unwrap_or_default());
                match retry {
                    Retry::Counted => self.here.store.retry_job(id, token, at, why, now).await,
                    Retry::Uncounted => self.here.store.postpone_job(id, token, at, why, now).await,
                    Retry::Never => self.here.store.dead_letter_job(id, token, why, now).await,
                }
            }
        };
        let left = match left {
            Ok(left) => Some(left),
            Err(StoreError::NotClaimed(_) | StoreError::NoJob(_)) => None,
            Err(error) => return Err(Failure::failed(error)),
        };
        match (&result, failed) {
            (Ok(result), _) => self.report.ended(job, result, left.as_ref()),
            (Err(_), Some(JobFailure { why, .. })) => self.report.failed(job, &why, left.as_ref()),
            (Err(_), None) => {}
        }
        Ok(Served::Done)
    }

    /// Returns a job to the queue unchanged. A job that ended with its run, or that another worker claimed, is left alone.
    async fn give_back(&self, job: &MailboxJob) -> Result<(), Failure> {
        let token = job.claim_token.as_deref().unwrap_or_default();
        match self.here.store.give_back_job(&job.job_id, token, self.now()).await {
            Ok(_) | Err(StoreError::NotClaimed(_) | StoreError::NoJob(_)) => Ok(()),
            Err(error) => Err(Failure::failed(error)),
        }
    }

    async fn leave(&mut self) {
        for app in self.apps.values() {
            app.mcp.manager.close().await;
            app.notifier.finish().await;
            app.store.leave().await;
        }
        self.here.mcp.manager.close().await;
        self.here.notifier.finish().await;
        self.here.store.leave().await;
    }
}

/// Why an attempt at a job failed, and what becomes of the job.
struct JobFailure {
    why: String,
    retry: Retry,
    /// The next attempt starts no earlier.
    not_before: Option<u64>,
}

/// The next attempt at a job.
enum Retry {
    /// It follows, if the job has attempts left.
    Counted,
    /// It follows, because this one sent nothing.
    Uncounted,
    /// It would fail in the same way.
    Never,
}

impl JobFailure {
    fn of(error: &RuntimeError, retry: Retry) -> JobFailure {
        JobFailure { why: error.to_string(), retry, not_before: None }
    }

    fn of_run(why: &str, result: &AgentRunResult) -> JobFailure {
        let retry = match (result.error_code.as_deref(), exit_code(result).0) {
            (Some(CODE_PAUSED), _) => Retry::Uncounted,
            (_, exit::UNAVAILABLE) => Retry::Counted,
            _ => Retry::Never,
        };
        JobFailure { why: why.to_owned(), retry, not_before: result.retry_at }
    }
}

/// Waits for a commit that may concern jobs.
async fn wait_for_change(changes: &mut Box<dyn ChangeFeed>) {
    let matters = |change: &StoreChange| change.kind != ChangeKind::Grant;
    loop {
        let mut is_new = matters(&changes.next_or_check().await);
        for _ in 0..BULK {
            let Some(change) = changes.next().now_or_never() else { break };
            is_new |= matters(&change);
        }
        if is_new {
            return;
        }
    }
}

/// Returns whether a job is dead.
fn is_dead(left: Option<&MailboxJob>) -> bool {
    left.is_some_and(|job| job.status == MailboxJobStatus::DeadLetter)
}
