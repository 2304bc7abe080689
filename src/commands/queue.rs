//! `aye queue`: adds, lists, cancels and retries jobs.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::start::StartFlags;
use crate::commands;
use crate::commands::approvals::answer_commands;
use crate::commands::columns::columns;
use crate::commands::{print, since};
use crate::compose::{self, WrittenMessage};
use crate::contract::consumer::Consumer;
use crate::contract::display::{escape_json, shortened};
use crate::contract::goal::Goal;
use crate::contract::ids::ThreadId;
use crate::contract::lifecycle::RunStatus;
use crate::contract::mailbox::{MailboxJob, MailboxJobStatus};
use crate::contract::message::Message;
use crate::contract::record::{SuspensionStatus, ThreadRecord};
use crate::contract::schedule::Schedule;
use crate::contract::storage::{
    JobFilter, JobLookup, OutboxRow, OutboxStatus, SharedStore, StoreError, SuspensionFilter,
};
use crate::failure::{AppError, Failure};
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::webhook::Webhooks;
use crate::program::{app_context, put, put_stderr};
use crate::runtime::{RunRequest, RuntimeError};
use crate::tui::host::TextPage;

/// `aye queue ...`
#[derive(Clone, Debug, Subcommand)]
pub enum QueueCommand {
    /// Queue a message for `aye work`, or for a terminal that shows the conversation
    #[command(
        after_help = "Examples:\n  aye queue add \"bring the changelog up to date\"\n  aye queue add --thread 0198c --at 22:00 \"run the long tests\"\n  aye queue add --every \"weekday at 7:30\" \"update the dependencies\"\n  git diff | aye queue add --priority 10 \"review this\""
    )]
    Add(QueueAddArgs),
    /// List jobs: queued, running, waiting for an answer, or dead
    List(QueueListArgs),
    /// Cancel jobs that are not running
    Cancel {
        /// Job numbers, or the first characters of their ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// List undelivered messages to webhooks, or send them again
    Outbox(QueueOutboxArgs),
    /// Retry dead jobs
    Retry {
        /// Job numbers, or the first characters of their ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

/// `aye queue add`
#[derive(Args, Clone, Debug)]
pub struct QueueAddArgs {
    /// The message; piped input is attached
    #[arg(value_name = "PROMPT")]
    pub text: Option<String>,

    /// The conversation to send it to
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,

    /// Start a new conversation in this folder (the default)
    #[arg(long, conflicts_with = "thread")]
    pub new: bool,

    /// The agent that answers
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,

    /// Priority from 0 (first) to 255 (last)
    #[arg(long, value_name = "N", default_value_t = crate::contract::mailbox::DEFAULT_PRIORITY)]
    pub priority: u8,

    /// Start at this time at the earliest: 14:30, 2h (from now), a day, or a time such as 2026-11-21T14:30:00Z
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,

    /// Work until a command succeeds, such as 'cargo test', as `aye --until` does
    ///
    /// It runs in the sandbox of the worker whenever the model would end its answer, unless a rule denies it.
    #[arg(long, value_name = "COMMAND")]
    pub until: Option<String>,

    /// Come again: 30m, 2h, `1d at 7:30`, `weekday at 7:30` or `mon at 7:30`, each time in a new conversation
    ///
    /// With --thread, each time in that conversation. What was missed while no worker ran comes once. `aye queue cancel`
    /// ends it.
    #[arg(long, value_name = "WHEN", conflicts_with_all = ["at", "key", "cron"])]
    pub every: Option<String>,

    /// The same, by a crontab expression: minute, hour, day of month, month, day of week
    #[arg(long, value_name = "EXPR", conflicts_with_all = ["at", "key"])]
    pub cron: Option<String>,

    /// Refuse the message while the conversation has another open job with this key
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,

    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// `aye queue list`
#[derive(Args, Clone, Debug)]
pub struct QueueListArgs {
    /// Only jobs of this conversation
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,

    /// Include closed jobs
    #[arg(long)]
    pub all: bool,

    /// Maximum number of jobs; 0 for all
    #[arg(long, value_name = "N", default_value_t = LISTED)]
    pub limit: usize,

    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// The number of jobs that are listed.
const LISTED: usize = 200;

/// `aye queue outbox`
#[derive(Args, Clone, Debug)]
pub struct QueueOutboxArgs {
    /// Include delivered messages
    #[arg(long)]
    pub all: bool,

    /// Send the dead message with this number again
    #[arg(long, value_name = "N")]
    pub retry: Option<u64>,

    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// From this size in bytes on, a message may be larger than a model's context window.
const LARGE: usize = 16 << 10;

pub(crate) async fn run(
    command: QueueCommand,
    foundation: &Foundation,
    cli: &StartFlags,
) -> Result<u8, Failure> {
    refuse_ephemeral(foundation)?;
    let only_reads =
        matches!(command, QueueCommand::List(_) | QueueCommand::Outbox(QueueOutboxArgs { retry: None, .. }));
    let store = if only_reads { foundation.open_store_to_read()? } else { foundation.open_store()? };
    match command {
        QueueCommand::Add(args) => add(args, &store, foundation, cli).await?,
        QueueCommand::List(args) => list(&args, &store).await?,
        QueueCommand::Cancel { ids } => cancel(&ids, &store).await?,
        QueueCommand::Retry { ids } => retry(&ids, &store).await?,
        QueueCommand::Outbox(args) => outbox(&args, &store, foundation).await?,
    }
    store.leave().await;
    Ok(0)
}

/// Refuses a start without a store, which contains the queue.
pub(crate) fn refuse_ephemeral(foundation: &Foundation) -> Result<(), Failure> {
    if foundation.is_ephemeral {
        return Err(Failure::usage(
            "the queue needs the store, which --ephemeral does not have; leave it out",
        ));
    }
    Ok(())
}

async fn add(
    args: QueueAddArgs,
    store: &SharedStore,
    foundation: &Foundation,
    cli: &StartFlags,
) -> Result<(), Failure> {
    let now = store.clock().now_ms();
    let piped = print::piped()?;
    let prompt = args.text.as_deref().filter(|text| !text.trim().is_empty());
    let text = compose::with_piped(prompt, piped)
        .ok_or_else(|| Failure::usage("no prompt; use aye queue add \"...\" or pipe one in"))?;
    let typed = prompt.unwrap_or(&text);
    let at = args.at.as_deref().map(|at| since::at(at, now)).transpose()?;
    let schedule = schedule(&args)?;
    let mut message = message(&text, typed, args.agent.clone(), foundation, cli).await?;
    if let Some(until) = &args.until {
        let goal = message.goal().unwrap_or_default();
        message = message.working_towards(&Goal { command: Some(until.clone()), ..goal });
    }
    let thread = match &args.thread {
        Some(id) => commands::thread_by_prefix(store, id).await?.id,
        None => new_thread(store, foundation, &text, now).await?,
    };
    let mut job = MailboxJob::new(thread, vec![message], now)
        .with_priority(args.priority)
        .with_available_at(at.unwrap_or(now))
        .with_max_attempts(foundation.loaded.settings.mailbox.default_max_attempts);
    job.agent_id = args.agent.unwrap_or_default();
    job.dedupe_key = args.key;
    job.sender_id = Some(app_context::actor(foundation, "cli").user);
    if let Some(schedule) = &schedule {
        job = job.with_schedule(schedule);
    }
    let job = match store.submit(job).await {
        Ok(job) => job,
        Err(error @ StoreError::Duplicate { .. }) => {
            return Err(Failure::failed(format!("{error}; nothing was queued")));
        }
        Err(error) => return Err(Failure::failed(error)),
    };
    if args.json {
        return commands::put_json(&object(&job, &JobState::of(store, &job).await?));
    }
    let when = match &schedule {
        Some(schedule) => format!(", {}: first at {}", schedule.text, commands::when(job.available_at)),
        None => at.map(|at| format!(", not before {}", commands::when(at))).unwrap_or_default(),
    };
    put(&format!("{}  queued in conversation {}{when}\n", job.sequence, job.mailbox_id))
}

/// Reads when the message comes again, by the clock of this machine.
fn schedule(args: &QueueAddArgs) -> Result<Option<Schedule>, Failure> {
    let zone = crate::program::zone();
    // A zone without a name cannot be looked up later.
    let zone = zone.iana_name().unwrap_or("UTC");
    let schedule = match (&args.every, &args.cron) {
        (Some(text), _) => Schedule::every(text, zone),
        (None, Some(text)) => Schedule::cron(text, zone),
        (None, None) => return Ok(None),
    };
    let schedule = schedule.map_err(Failure::usage)?;
    Ok(Some(if args.thread.is_some() { schedule.in_same_thread() } else { schedule }))
}

/// Composes the message, and refuses one that the worker would refuse. Text that mentions nothing needs neither servers
/// nor a model; without a usable model, the worker decides about its size.
async fn message(
    text: &str,
    typed: &str,
    agent_id: Option<String>,
    foundation: &Foundation,
    cli: &StartFlags,
) -> Result<Message, Failure> {
    let written = WrittenMessage { text, typed, ..WrittenMessage::default() };
    let may_mention = written.may_mention();
    if !may_mention && text.len() <= LARGE {
        return Ok(Message::user(text));
    }
    let again = Foundation::load(cli, foundation.env.clone())?;
    let app = match AppContext::build(again, cli).await {
        Ok(app) => app,
        Err(_) if !may_mention => return Ok(Message::user(text)),
        Err(error) => return Err(error),
    };
    if may_mention {
        app.mcp.ready_quietly().await;
    }
    let message = compose::message(&app, written).await;
    let fits = message.as_ref().map(|message| {
        let request = RunRequest::new(ThreadId::fresh(), vec![message.clone()]);
        app.runtime.fits(&RunRequest { agent_id, ..request })
    });
    let refused = match fits {
        Ok(Err(error @ RuntimeError::TooLarge { .. })) => Some(Failure::usage(error.to_string())),
        Ok(_) | Err(_) => None,
    };
    app.mcp.manager.close().await;
    app.telemetry.end().await;
    app.store.leave().await;
    match refused {
        Some(refused) => Err(refused),
        None => message.map_err(Failure::usage),
    }
}

async fn new_thread(
    store: &SharedStore,
    foundation: &Foundation,
    text: &str,
    now: u64,
) -> Result<ThreadId, Failure> {
    let line = text.trim().lines().next().unwrap_or_default();
    let thread = ThreadRecord {
        id: ThreadId::fresh(),
        title: line.chars().take(80).collect(),
        cwd: foundation.workspace.cwd.clone(),
        created_at: now,
        updated_at: now,
    };
    store.create_thread(thread.clone()).await.map_err(Failure::failed)?;
    Ok(thread.id)
}

/// The state of a job as shown to the user, in addition to the job's own text.
pub(crate) struct JobState {
    word: &'static str,
    note: String,
    /// Questions of its run that wait.
    waiting: Vec<String>,
}

impl JobState {
    pub(crate) async fn of(store: &SharedStore, job: &MailboxJob) -> Result<JobState, Failure> {
        let (mut waiting, mut how) = (Vec::new(), String::new());
        let mut has_begun = false;
        if let (MailboxJobStatus::Queued, Some(run)) = (job.status, &job.run_id)
            && let Some(run) = store.load_run(run).await.map_err(Failure::failed)?
        {
            has_begun = run.status != RunStatus::Done;
            let filter = SuspensionFilter {
                run: Some(run.id),
                status: Some(SuspensionStatus::Open),
                ..SuspensionFilter::default()
            };
            let open = store.suspensions(filter).await.map_err(Failure::failed)?;
            how = answer_commands(&open);
            waiting = open.into_iter().map(|question| question.id.to_string()).collect();
        }
        let (word, note) = Self::words(job, has_begun, &how);
        Ok(JobState { word, note, waiting })
    }

    fn words(job: &MailboxJob, has_begun: bool, how: &str) -> (&'static str, String) {
        let error = job.last_error.as_deref().unwrap_or_default();
        let tries = || format!("attempt {} of {} failed: {error}", job.attempt_count, job.max_attempts);
        match job.status {
            MailboxJobStatus::Queued if !how.is_empty() => ("waiting", format!("for an answer: {how}")),
            MailboxJobStatus::Queued if has_begun => ("begun", "resumed by the next worker".to_owned()),
            MailboxJobStatus::Queued if job.attempt_count > 0 => {
                ("retry", format!("{}; again at {}", tries(), commands::when(job.available_at)))
            }
            MailboxJobStatus::Queued if job.available_at > job.created_at => {
                let at = commands::when(job.available_at);
                let again = job.schedule().map(|schedule| format!("{}, ", schedule.text)).unwrap_or_default();
                ("queued", format!("{again}not before {at}"))
            }
            MailboxJobStatus::Queued => ("queued", String::new()),
            MailboxJobStatus::Claimed => {
                let pid = claimant_pid(job);
                ("working", pid.map(|pid| format!("process {pid}")).unwrap_or_default())
            }
            MailboxJobStatus::Accepted => ("done", String::new()),
            MailboxJobStatus::Cancelled => ("cancelled", String::new()),
            MailboxJobStatus::Superseded => ("superseded", error.to_owned()),
            // A retry would not have helped.
            MailboxJobStatus::DeadLetter if job.attempt_count < job.max_attempts => {
                ("dead", error.to_owned())
            }
            MailboxJobStatus::DeadLetter => ("dead", tries()),
        }
    }
}

/// Returns a job for programs: as it is stored, without the secret of its claim.
fn object(job: &MailboxJob, state: &JobState) -> Value {
    let mut object = json!(job);
    if let Some(fields) = object.as_object_mut() {
        fields.remove("claim_token");
        fields.insert("state".to_owned(), json!(state.word));
        fields.insert("waiting".to_owned(), json!(state.waiting));
    }
    object
}

/// The jobs that are not done, and the dead ones.
const OPEN: [MailboxJobStatus; 3] =
    [MailboxJobStatus::Queued, MailboxJobStatus::Claimed, MailboxJobStatus::DeadLetter];

async fn list(args: &QueueListArgs, store: &SharedStore) -> Result<(), Failure> {
    let mailbox = match &args.thread {
        Some(id) => Some(commands::thread_by_prefix(store, id).await?.id),
        None => None,
    };
    let statuses = if args.all { Vec::new() } else { OPEN.to_vec() };
    let filter = JobFilter { mailbox, statuses, limit: (args.limit > 0).then_some(args.limit) };
    let jobs = store.list_jobs(filter.clone()).await.map_err(Failure::failed)?;
    if args.json {
        let mut rows = Vec::new();
        for job in &jobs {
            rows.push(object(job, &JobState::of(store, job).await?));
        }
        put(&format!("{}\n", escape_json(&json!(rows).to_string())))?;
    } else {
        put(&lines(&jobs, store).await?)?;
    }
    if let Some(left_out) = left_out(&jobs, filter, store).await.map_err(Failure::failed)? {
        put_stderr(&format!("{left_out} more; `--limit 0` lists all"));
    }
    Ok(())
}

/// Returns how many jobs a list left out, when it is as long as it may be.
async fn left_out(
    jobs: &[MailboxJob],
    filter: JobFilter,
    store: &SharedStore,
) -> Result<Option<u64>, StoreError> {
    if filter.limit.is_none_or(|limit| jobs.len() < limit) {
        return Ok(None);
    }
    let count = store.count_jobs(filter).await?;
    Ok(count.checked_sub(jobs.len() as u64).filter(|left_out| *left_out > 0))
}

/// The page `/queue`.
pub(crate) async fn page(store: &SharedStore) -> Result<TextPage, AppError> {
    let filter = JobFilter { statuses: OPEN.to_vec(), limit: Some(LISTED), ..JobFilter::default() };
    let jobs = store.list_jobs(filter.clone()).await?;
    let mut text = match jobs.as_slice() {
        [] => "the queue is empty; `aye queue add` queues a message".to_owned(),
        [..] => lines(&jobs, store).await.map_err(|e| e.message)?,
    };
    if let Some(left_out) = left_out(&jobs, filter, store).await? {
        let _ = write!(text, "\n{left_out} more: `aye queue list --limit 0`");
    }
    let waiting = store.outbox(false).await?.len();
    if waiting > 0 {
        let _ = write!(text, "\n{waiting} messages to webhooks are not delivered yet: `aye queue outbox`");
    }
    Ok(TextPage { title: "Queue".to_owned(), text, ..TextPage::default() })
}

/// A line for each job.
async fn lines(jobs: &[MailboxJob], store: &SharedStore) -> Result<String, Failure> {
    let mut rows = Vec::new();
    for job in jobs {
        let JobState { word, note, .. } = JobState::of(store, job).await?;
        let text = match job.messages.first() {
            Some(message) => message.text(),
            None => "(resumes a run that waits)".to_owned(),
        };
        let text = text.trim().lines().next().unwrap_or_default();
        let text = shortened(text, 60);
        let note = if note.is_empty() { String::new() } else { format!("  ({note})") };
        let thread = job.mailbox_id.to_string();
        rows.push([format!("{:>4}", job.sequence), word.to_owned(), thread, format!("{text}{note}")]);
    }
    Ok(columns(rows))
}

/// Returns the named jobs. All are looked up before anything is done, so that a typing error changes nothing.
async fn named(ids: &[String], store: &SharedStore) -> Result<Vec<MailboxJob>, Failure> {
    let mut found = Vec::new();
    for id in ids {
        match store.find_job(id).await.map_err(Failure::failed)? {
            JobLookup::One(job) => found.push(*job),
            JobLookup::None => {
                return Err(Failure::usage(format!(
                    "unknown job `{id}`; `aye queue list --all` shows all; nothing changed"
                )));
            }
            JobLookup::Many(ids) => {
                let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
                return Err(Failure::usage(format!(
                    "`{id}` is not unique: {}; nothing changed",
                    ids.join(", ")
                )));
            }
        }
    }
    Ok(found)
}

/// Messages to webhooks.
async fn outbox(args: &QueueOutboxArgs, store: &SharedStore, foundation: &Foundation) -> Result<(), Failure> {
    if let Some(number) = args.retry {
        if !store.retry_in_outbox(number, store.clock().now_ms()).await.map_err(Failure::failed)? {
            return Err(Failure::usage(format!(
                "no dead message has the number {number}; `aye queue outbox` lists messages"
            )));
        }
        Webhooks::new(foundation, store.clone()).send_due().await;
    }
    let rows = store.outbox(args.all || args.retry.is_some()).await.map_err(Failure::failed)?;
    let rows = rows.iter().filter(|row| args.retry.is_none_or(|number| row.number == number));
    if args.json {
        let object = |row: &OutboxRow| {
            json!({
                "number": row.number,
                "thread_id": row.thread_id,
                "target": row.target,
                "status": row.status.as_str(),
                "attempt_count": row.attempt_count,
                "available_at": row.available_at,
                "last_error": row.last_error,
                "created_at": row.created_at,
            })
        };
        return commands::put_json(&json!(rows.map(object).collect::<Vec<_>>()));
    }
    let cells = |row: &OutboxRow| {
        let word = match row.status {
            OutboxStatus::Queued => "queued",
            OutboxStatus::Accepted => "sent",
            OutboxStatus::Cancelled => "cancelled",
            OutboxStatus::DeadLetter => "dead",
        };
        // One that is sent again has its last error, and no attempt yet.
        let error = row.last_error.as_deref().unwrap_or_default();
        let tries = match row.attempt_count {
            0 => String::new(),
            1 => format!("  (1 attempt failed: {error})"),
            attempts => format!("  ({attempts} attempts failed: {error})"),
        };
        let target = format!("{}{tries}", row.target);
        [format!("{:>4}", row.number), word.to_owned(), row.thread_id.to_string(), target]
    };
    put(&columns(rows.map(cells)))
}

/// The process of the worker that has claimed a job.
fn claimant_pid(job: &MailboxJob) -> Option<u32> {
    Consumer::owner_of(job.claimed_by.as_deref()?).map(|owner| owner.pid)
}

async fn cancel(ids: &[String], store: &SharedStore) -> Result<(), Failure> {
    let jobs = named(ids, store).await?;
    for job in &jobs {
        let why = match job.status {
            MailboxJobStatus::Queued => continue,
            MailboxJobStatus::Claimed => {
                let pid = claimant_pid(job);
                let who = pid.map_or_else(|| "a worker".to_owned(), |pid| format!("process {pid}"));
                format!("{who} is running it")
            }
            MailboxJobStatus::Accepted
            | MailboxJobStatus::Cancelled
            | MailboxJobStatus::Superseded
            | MailboxJobStatus::DeadLetter => {
                format!("it is already {}", JobState::words(job, false, "").0)
            }
        };
        return Err(Failure::failed(format!(
            "job {} cannot be cancelled: {why}; nothing changed",
            job.sequence
        )));
    }
    for job in jobs {
        match store.cancel_job(&job.job_id, store.clock().now_ms()).await.map_err(Failure::failed)? {
            Some(job) => put(&format!("{}  cancelled\n", job.sequence))?,
            None => {
                return Err(Failure::failed(format!("job {} has just started", job.sequence)));
            }
        }
    }
    Ok(())
}

async fn retry(ids: &[String], store: &SharedStore) -> Result<(), Failure> {
    let jobs = named(ids, store).await?;
    if let Some(job) = jobs.iter().find(|job| job.status != MailboxJobStatus::DeadLetter) {
        return Err(Failure::failed(format!(
            "job {} is not dead but {}; nothing changed",
            job.sequence,
            JobState::words(job, false, "").0
        )));
    }
    for job in jobs {
        let again = store.requeue_dead(&job.job_id, store.clock().now_ms()).await.map_err(Failure::failed)?;
        match again {
            Some(again) => put(&format!("{}  queued again as {}\n", job.sequence, again.sequence))?,
            None => {
                return Err(Failure::failed(format!("job {} was queued again elsewhere", job.sequence)));
            }
        }
    }
    Ok(())
}
