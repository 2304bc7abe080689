//! The front end without a terminal: one task, its answer on stdout, everything else on stderr.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

mod ask;
mod question;
mod queue;
mod schema;
mod signals;
mod typed;

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use aye_core::contract::activity::{Activity, InferenceRetry, KnownActivity, NoticeActivity};
use aye_core::contract::clock::{Clock, SystemClock};
use aye_core::contract::display::{call_subject, escape_json, visible, visible_line};
use aye_core::contract::error_code::ErrorCode;
use aye_core::contract::event::{AgentEvent, StreamEvent};
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::lifecycle::{TerminationReason, ToolCallOutcome};
use aye_core::contract::question::subject;
use aye_core::contract::suspension::Actor;
use aye_runtime::{AgentRunResult, AgentRuntime, RunRequest, RuntimeError, SettledSummaries, UnknownPolicy};
use aye_session::{Ended, Queue};
use serde_json::json;

pub use ask::AskPolicy;
pub use schema::{AnswerSchema, AnswerSchemaError};
pub use typed::TypedAnswers;

use ask::{HeadlessSession, SessionResult, WaitingRun};
use question::QuestionView;

/// Exit statuses: part of what scripts rely on.
pub mod exit {
    pub const DONE: u8 = 0;
    pub const FAILED: u8 = 1;
    pub const USAGE: u8 = 2;
    /// Waiting for a decision.
    pub const WAITING: u8 = 3;
    /// Blocked by a rule or a plugin.
    pub const BLOCKED: u8 = 4;
    /// A limit was reached.
    pub const LIMIT: u8 = 5;
    /// Over, but a question ended unanswered because its time ran out.
    pub const EXPIRED: u8 = 6;
    /// The provider is unavailable; try again later (`EX_TEMPFAIL` of sysexits.h).
    pub const UNAVAILABLE: u8 = 75;
    /// Hung up (128 + SIGHUP).
    pub const HUNG_UP: u8 = 129;
    /// Interrupted (128 + SIGINT).
    pub const INTERRUPTED: u8 = 130;
    /// Terminated (128 + SIGTERM).
    pub const TERMINATED: u8 = 143;
}

/// Form of what goes to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// The answer.
    Text,
    /// One object at the end.
    Json,
    /// One [`StreamEvent`] a line, and the object of [`OutputFormat::Json`] as the last one.
    StreamJson,
}

/// The work of a headless session.
#[derive(Debug)]
pub enum Job {
    Run(RunRequest),
    /// Resume what is waiting or was interrupted, then start the messages queued after it.
    Resume(ThreadId),
    /// Resume after an answer was stored; a run that another process drives is left to that process.
    Answered(ThreadId),
    /// Send a message without closing questions: while some are pending, the message is queued after them.
    Behind(RunRequest),
}

impl Job {
    pub fn thread(&self) -> &ThreadId {
        match self {
            Self::Run(request) | Self::Behind(request) => &request.thread_id,
            Self::Resume(thread) | Self::Answered(thread) => thread,
        }
    }
}

/// The options of a headless session.
#[derive(Clone)]
pub struct Options {
    /// Form of stdout.
    pub format: OutputFormat,
    /// The policy for calls that may have run.
    pub unknown: UnknownPolicy,
    /// The policy for questions.
    pub on_ask: AskPolicy,
    /// Whether the store outlives the process.
    pub is_kept: bool,
    /// The actor of automatic denials; its channel becomes `policy`.
    pub actor: Actor,
    /// The terminal in which answers are typed; without it, they come from other terminals.
    pub typed: Option<Arc<TypedAnswers>>,
    /// Whether stdout is a terminal, so that foreign control characters are also made visible in text.
    pub clean: bool,
    /// The schema that the answer must match.
    pub schema: Option<Arc<AnswerSchema>>,
}

/// The time that the process waits for an unfinished summary after the run.
const LAST_SUMMARY: Duration = Duration::from_mins(1);

/// Writes events as they come: lines of JSON to stdout, or progress to stderr.
struct Printer {
    format: OutputFormat,
    clock: Arc<dyn Clock>,
    seq: AtomicU64,
    broken: AtomicBool,
    problem: Mutex<Option<std::io::Error>>,
    /// Calls that a rule, a hook or a plugin denied, without a question.
    denied: Mutex<Vec<String>>,
}

impl Printer {
    fn new(format: OutputFormat, clock: Arc<dyn Clock>) -> Self {
        Self {
            format,
            clock,
            seq: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            problem: Mutex::new(None),
            denied: Mutex::default(),
        }
    }

    /// Returns the number of events so far.
    fn events(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    /// Writes the one object that says how it all came out.
    fn put_result(&self, mut object: serde_json::Value) {
        match self.format {
            OutputFormat::Text => return,
            OutputFormat::Json => {}
            OutputFormat::StreamJson => {
                object["event_type"] = "result".into();
                object["seq"] = (self.seq.fetch_add(1, Ordering::Relaxed) + 1).into();
                object["timestamp"] = self.timestamp().into();
            }
        }
        self.put(&format!("{}\n", escape_json(&object.to_string())));
    }

    fn timestamp(&self) -> String {
        let at = i64::try_from(self.clock.now_ms()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_millisecond(at).map(|t| t.to_string()).unwrap_or_default()
    }

    /// Writes to stdout. After the first failure nothing more is written; a closed reader is not a failure.
    #[expect(clippy::disallowed_methods, reason = "this front end prints")]
    fn put(&self, text: &str) {
        if self.broken.load(Ordering::Relaxed) {
            return;
        }
        let mut out = std::io::stdout().lock();
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            self.broken.store(true, Ordering::Relaxed);
            if error.kind() != std::io::ErrorKind::BrokenPipe {
                *self.problem.lock().expect("no panic while the problem is held") = Some(error);
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this front end prints")]
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[async_trait]
impl EventSink for Printer {
    async fn emit(&self, event: AgentEvent) {
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        if let AgentEvent::ToolCallDone { id, result, .. } = &event
            && matches!(result.data["code"].as_str(), Some("permission_denied" | "hook_denied" | "denied"))
        {
            self.denied.lock().expect("no panic while the calls are held").push(id.clone());
        }
        match self.format {
            OutputFormat::StreamJson => {
                let line = serde_json::to_string(&StreamEvent::new(seq, self.timestamp(), event));
                self.put(&format!("{}\n", escape_json(&line.unwrap_or_default())));
            }
            OutputFormat::Text | OutputFormat::Json => progress(&event),
        }
    }
}

fn progress(event: &AgentEvent) {
    match event {
        AgentEvent::ToolCallReady { name, arguments, .. } => {
            let about = call_subject(arguments).unwrap_or_else(|| name.clone());
            note(&format!("· {}", subject("", name, &about)));
        }
        AgentEvent::ToolCallDone { result, outcome, .. } => {
            let word = match outcome {
                ToolCallOutcome::Succeeded | ToolCallOutcome::Suspended => return,
                ToolCallOutcome::Failed => "failed",
                ToolCallOutcome::Cancelled => "cancelled",
            };
            note(&format!("  {word}: {}", visible_line(result.headline())));
        }
        AgentEvent::ActivitySnapshot { activity_type, content, .. } => {
            match KnownActivity::of(activity_type, content) {
                Some(KnownActivity::Retry(InferenceRetry { reason, model, instead, delay_ms, .. })) => {
                    let reason = visible_line(&reason);
                    if instead && delay_ms == 0 {
                        note(&format!("  {reason}; asking {} instead", visible_line(&model)));
                    } else {
                        note(&format!("  {reason}; retrying in {:.1} s", delay_ms as f64 / 1000.0));
                    }
                }
                Some(KnownActivity::Notice(NoticeActivity { source, text, .. })) => {
                    let source = if source.is_empty() { source } else { format!("{source}: ") };
                    note(&visible(&format!("  {source}{text}")));
                }
                Some(KnownActivity::Compacted(history)) => note(&visible(&format!("  {}", history.text))),
                Some(KnownActivity::Progress(_) | KnownActivity::Child(_) | KnownActivity::Steered(_))
                | None => {}
            }
        }
        AgentEvent::Error { message, .. } => note(&format!("aye: {}", visible(message))),
        AgentEvent::RunStart { .. }
        | AgentEvent::RunFinish { .. }
        | AgentEvent::TextDelta { .. }
        | AgentEvent::ReasoningDelta { .. }
        | AgentEvent::ReasoningEncryptedValue { .. }
        | AgentEvent::ToolCallStart { .. }
        | AgentEvent::ToolCallDelta { .. }
        | AgentEvent::ToolCallStreamDelta { .. }
        | AgentEvent::ToolCallResumed { .. }
        | AgentEvent::MessagesSnapshot { .. }
        | AgentEvent::ActivityDelta { .. }
        | AgentEvent::StepStart { .. }
        | AgentEvent::StepEnd
        | AgentEvent::InferenceComplete { .. }
        | AgentEvent::StateSnapshot { .. }
        | AgentEvent::StateDelta { .. } => {}
    }
}

/// Does the job and gives the exit status.
pub async fn run(runtime: &AgentRuntime, job: Job, options: &Options, clock: &Arc<dyn Clock>) -> u8 {
    let printer = Arc::new(Printer::new(options.format, Arc::clone(clock)));
    let thread = job.thread().clone();
    let is_answered = matches!(job, Job::Answered(_));
    let job = match job {
        Job::Behind(request) => match queue::enqueue_message(runtime, request).await {
            Ok(Some(behind)) => return queue::report_queued(&printer, &behind),
            Ok(None) => Job::Resume(thread.clone()),
            Err(error) => return refuse(&printer, &error),
        },
        Job::Answered(thread) => Job::Resume(thread),
        other @ (Job::Run(_) | Job::Resume(_)) => other,
    };
    let waiting_run = WaitingRun::default();
    let desk = || HeadlessSession::new(runtime, options, &printer, clock, &waiting_run, thread.clone());
    let work = async {
        // On the heap, because a run's future is large.
        let done = Box::pin(desk().attend(job, Queue::Messages)).await?;
        match &options.schema {
            None => Ok(done),
            Some(schema) => schema.enforce(&thread, desk, done).await,
        }
    };
    let (result, signal) = signals::guard(work, signals::reader_gone(), || runtime.cancel(&thread)).await;
    Box::pin(end_commands(runtime, &thread)).await;
    let mut settled = SettledSummaries::default();
    if options.format != OutputFormat::Text && signal.is_none() {
        // The last object has the cost of a summary.
        settled = settle(runtime, &thread, &printer).await;
    }
    let code = match result {
        None => {
            break_off(&printer, &thread, waiting_run.take(), options, signal.unwrap_or(exit::INTERRUPTED))
        }
        Some(Ok(mut attended)) => {
            attended.result.usage.add(&settled.usage);
            finish(&printer, &attended, options, signal)
        }
        Some(Err(error)) => match left_to_others(&error).filter(|_| is_answered) {
            Some(who) => {
                note(&who);
                exit::DONE
            }
            None if matches!(error, RuntimeError::NothingToResume { .. }) => {
                match desk().result_if_done(&thread).await {
                    Ok(Some(result)) => finish(
                        &printer,
                        &SessionResult { result, denied: Vec::new(), output: None },
                        options,
                        signal,
                    ),
                    Ok(None) => refuse(&printer, &error),
                    Err(error) => refuse(&printer, &error),
                }
            }
            None => refuse(&printer, &error),
        },
    };
    if options.format == OutputFormat::Text && signal.is_none() {
        settle(runtime, &thread, &printer).await;
    }
    let problem = printer.problem.lock().expect("no panic while the problem is held").take();
    if let Some(error) = problem {
        note(&format!("aye: cannot write to stdout: {error}"));
        return exit::FAILED;
    }
    signal.unwrap_or(code)
}

/// Waits for a summary that is still being written, which would be lost with the process and paid again next time, and
/// reports it. Returns the cost that no run was charged for.
async fn settle(runtime: &AgentRuntime, thread: &ThreadId, printer: &Printer) -> SettledSummaries {
    let settled = tokio::time::timeout(LAST_SUMMARY, runtime.settle(thread));
    let (settled, _) = signals::guard(settled, std::future::pending(), || false).await;
    let settled = settled.and_then(Result::ok).unwrap_or_default();
    if let Some(summary) = &settled.summary {
        let Activity { activity_type, content } = summary.activity();
        let message_id = summary.upto.to_string();
        printer
            .emit(AgentEvent::ActivitySnapshot { message_id, activity_type, content, replace: Some(false) })
            .await;
    }
    settled
}

/// Stops this process's background commands of a conversation, and reports them.
pub async fn end_commands(runtime: &AgentRuntime, thread: &ThreadId) {
    match runtime.end_commands(thread).await {
        Ok(ended) => {
            for command in ended {
                let line = visible_line(&command.command).into_owned();
                note(&format!("stopped background command {} ({line})", command.id()));
            }
        }
        Err(error) => note(&format!("aye: background commands: {}", visible(&error.to_string()))),
    }
}

/// Returns a note on who resumes or finished a run that another process took up first.
fn left_to_others(error: &RuntimeError) -> Option<String> {
    if let Some(process) = Ended::driver_of(error) {
        return Some(format!("{process} resumes it"));
    }
    (Ended::of_error(error) == Ended::Nothing).then(|| "another process finished it".to_owned())
}

fn refuse(printer: &Printer, error: &RuntimeError) -> u8 {
    let is_usage = matches!(
        error,
        RuntimeError::NothingToResume { .. }
            | RuntimeError::NoMessage { .. }
            | RuntimeError::TooLarge { .. }
            | RuntimeError::AgentNotFound { .. }
    );
    let code = if is_usage { exit::USAGE } else { exit::FAILED };
    let message = error.to_string();
    note(&format!("aye: {}", visible(&message)));
    let unstarted = Unstarted { error: &message, exit: code, code: error.code(), hints: &[] };
    printer.put_result(unstarted.object());
    code
}

/// A run that could not start.
#[derive(Clone, Copy, Debug)]
pub struct Unstarted<'a> {
    /// The sentence for the user.
    pub error: &'a str,
    pub exit: u8,
    /// The name for programs.
    pub code: ErrorCode,
    /// What the user can do about it.
    pub hints: &'a [String],
}

impl Unstarted<'_> {
    fn object(&self) -> serde_json::Value {
        let Self { error, exit, code, hints } = self;
        let mut object =
            json!({"type": "result", "status": "error", "error": error, "exit": exit, "code": code.as_str()});
        if !hints.is_empty() {
            object["hints"] = json!(hints);
        }
        object
    }
}

/// Writes the object of a run that could not start, where programs read one.
pub fn put_unstarted(format: OutputFormat, unstarted: &Unstarted<'_>) {
    Printer::new(format, Arc::new(SystemClock)).put_result(unstarted.object());
}

/// The one object of [`OutputFormat::Json`].
fn object(result: &AgentRunResult, denied: &[SuspensionId], status: &str, code: u8) -> serde_json::Value {
    json!({
        "type": "result",
        "status": status,
        "thread_id": result.thread_id,
        "run_id": result.run_id,
        "response": result.response,
        "termination": result.termination,
        "error_code": result.error_code,
        "stop_reason": result.stop_reason,
        "steps": result.steps,
        "usage": result.usage,
        "waiting": result.waiting.iter().map(|question| QuestionView::of(question).object()).collect::<Vec<_>>(),
        "expired": result.expired,
        "denied": denied,
        "exit": code,
    })
}

fn finish(printer: &Printer, attended: &SessionResult, options: &Options, signal: Option<u8>) -> u8 {
    let now_ms = printer.clock.now_ms();
    let SessionResult { result, denied, output } = attended;
    let (mut code, mut status) = exit_code(result);
    if matches!(output, Some(Err(_))) {
        (code, status) = (exit::FAILED, "error");
    }
    // The object and the process say the same.
    let code = signal.unwrap_or(code);
    let mut object = object(result, denied, status, code);
    let calls = printer.denied.lock().expect("no panic while the calls are held");
    if let Some(denied) = object["denied"].as_array_mut() {
        denied.extend(calls.iter().map(|id| json!(id)));
    }
    drop(calls);
    match output {
        None if options.format == OutputFormat::Text => answer(printer, result, options),
        None => {}
        Some(Ok(output)) => {
            if options.format == OutputFormat::Text {
                let text = serde_json::to_string_pretty(output).unwrap_or_default();
                printer.put(&format!("{}\n", escape_json(&text)));
            }
            object["structured_output"] = output.clone();
        }
        Some(Err(errors)) => {
            object["error_code"] = ErrorCode::JsonSchema.as_str().into();
            object["errors"] = json!(errors);
            note("aye: the answer does not match the schema of --json-schema:");
            for error in errors {
                note(&visible(&format!("  {error}")));
            }
        }
    }
    printer.put_result(object);
    if !result.waiting.is_empty() && signal.is_none() {
        for question in &result.waiting {
            note(&QuestionView::of(question).lines(now_ms));
        }
        if code == exit::WAITING {
            note(&format!("then resume with: aye -r {} -p", result.thread_id));
        } else {
            note(&format!("`aye work` resumes it then; or resume with: aye -r {} -p", result.thread_id));
        }
    } else if let TerminationReason::Stopped(reason) = &result.termination {
        note(&format!("stopped: {}", visible(reason.detail.as_deref().unwrap_or(&reason.code))));
    } else if let TerminationReason::Blocked(reason) = &result.termination {
        if options.format == OutputFormat::Text && !result.response.trim().is_empty() {
            // Text produced before the run ended is not an answer, but may explain the end.
            note(&visible(result.response.trim_end()));
        }
        note(&format!("blocked: {}", visible(reason)));
    }
    for id in &result.expired {
        note(&format!("expired without an answer: {}", visible_line(id.as_str())));
    }
    code
}

/// A signal came while this process waited, or a second one: nothing more is done to the run.
fn break_off(
    printer: &Printer,
    thread: &ThreadId,
    waiting: Option<AgentRunResult>,
    options: &Options,
    code: u8,
) -> u8 {
    let Some(result) = waiting else {
        printer
            .put_result(json!({"type": "result", "status": "cancelled", "thread_id": thread, "exit": code}));
        return code;
    };
    printer.put_result(object(&result, &[], "waiting", code));
    if options.is_kept {
        let what = if result.waiting.is_empty() {
            "the run continues without this process"
        } else {
            "pending questions stay"
        };
        note(&format!("{what}; resume with: aye -r {} -p", result.thread_id));
    } else {
        note("nothing was kept; the questions ended with the conversation");
    }
    code
}

/// Prints the answer of a run as text. Text produced before a run was interrupted or started to wait is not
/// its answer.
fn answer(printer: &Printer, result: &AgentRunResult, options: &Options) {
    let is_answer = matches!(exit_code(result).0, exit::DONE | exit::LIMIT | exit::EXPIRED);
    let text = result.response.trim_end();
    if options.format == OutputFormat::Text && is_answer && !text.is_empty() {
        let text = if options.clean { visible(text) } else { text.into() };
        printer.put(&format!("{text}\n"));
    }
}

/// The exit status, and a word for it.
pub fn exit_code(result: &AgentRunResult) -> (u8, &'static str) {
    match &result.termination {
        TerminationReason::NaturalEnd | TerminationReason::BehaviorRequested
            if !result.expired.is_empty() =>
        {
            (exit::EXPIRED, "expired")
        }
        TerminationReason::NaturalEnd | TerminationReason::BehaviorRequested => (exit::DONE, "done"),
        // Nobody has to decide anything: the run continues when the limit of the provider resets.
        TerminationReason::Suspended
            if !result.waiting.is_empty() && result.waiting.iter().all(ask::waits_for_time) =>
        {
            (exit::UNAVAILABLE, "unavailable")
        }
        TerminationReason::Suspended => (exit::WAITING, "waiting"),
        TerminationReason::Blocked(_) => (exit::BLOCKED, "blocked"),
        TerminationReason::Stopped(_) => (exit::LIMIT, "limit"),
        TerminationReason::Cancelled => (exit::INTERRUPTED, "cancelled"),
        TerminationReason::Error(_) => match result.error_code.as_deref().and_then(ErrorCode::parse) {
            Some(code) if code.is_unavailable() => (exit::UNAVAILABLE, "unavailable"),
            Some(_) | None => (exit::FAILED, "error"),
        },
    }
}
