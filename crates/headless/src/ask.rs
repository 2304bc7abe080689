//! The ways a headless run handles its questions: leave them, deny them, or wait for an answer.
//!
//! Waiting needs only an open socket: the store reports the commits of other processes, and a timer ends the
//! wait if a limit was given. The store always has the truth, so a question that was answered, expired or
//! closed by anyone lets the run continue, and a run that another process resumed is followed to its end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::question::QuestionView;
use super::{Job, Options, Printer, note};
use aye_core::contract::clock::Clock;
use aye_core::contract::display::visible_line;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::EventSink as _;
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::record::{RunRecord, SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::{Actor, Answer, CHANNEL_POLICY};
use aye_runtime::{
    AgentRunResult, AgentRuntime, DecideError, ResumeOutcome, RunDocument, RunFollower, RuntimeError,
};

/// The handling of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskPolicy {
    /// The run ends for now; the questions stay in the store.
    Suspend,
    /// Each question is denied at once, and the run continues.
    Deny,
    /// The process waits for an answer, up to this long if a limit is given; then the questions expire.
    Wait(Option<Duration>),
}

/// The result of the waiting run, for the case that the process is interrupted.
#[derive(Debug, Default)]
pub(super) struct WaitingRun(Mutex<Option<AgentRunResult>>);

impl WaitingRun {
    fn set(&self, waiting: Option<AgentRunResult>) {
        *self.0.lock().expect("no panic while the standing is held") = waiting;
    }

    /// The run that waits, when that is what was broken off.
    pub(super) fn take(&self) -> Option<AgentRunResult> {
        self.0.lock().expect("no panic while the standing is held").take()
    }
}

/// The result of a job, including the outcomes of its questions.
pub(super) struct SessionResult {
    pub(super) result: AgentRunResult,
    /// Questions denied because no user is available.
    pub(super) denied: Vec<SuspensionId>,
    /// The answer as the requested JSON, or the errors in it; `None` if no JSON was requested or there is no
    /// answer.
    pub(super) output: Option<Result<Value, Vec<String>>>,
}

pub(super) struct HeadlessSession<'a> {
    pub(super) runtime: &'a AgentRuntime,
    pub(super) options: &'a Options,
    pub(super) printer: &'a Arc<Printer>,
    pub(super) clock: &'a Arc<dyn Clock>,
    pub(super) standing: &'a WaitingRun,
    pub(super) thread: ThreadId,
    /// The announced questions, each with the moment at which this process gives up on it.
    pub(super) told: BTreeMap<SuspensionId, Option<Instant>>,
}

impl HeadlessSession<'_> {
    /// Does the job, and sees to its questions until it is over or has to be left.
    pub(super) async fn attend(mut self, job: Job) -> Result<SessionResult, RuntimeError> {
        let unknown = self.options.unknown;
        let mut result = match job {
            Job::Run(request) | Job::Behind(request) => {
                self.runtime.run(request, self.printer.clone()).await?
            }
            Job::Resume(thread) | Job::Answered(thread) => {
                let result = self.runtime.resume(&thread, self.printer.clone(), unknown).await?;
                if self.printer.events() == 0 {
                    self.emit_pending(&result).await?;
                }
                result
            }
        };
        let mut expired = std::mem::take(&mut result.expired);
        let mut denied = Vec::new();
        while result.termination == TerminationReason::Suspended {
            match self.options.on_ask {
                AskPolicy::Suspend => break,
                AskPolicy::Wait(Some(limit)) if self.waits_longer(&result, limit) => break,
                AskPolicy::Deny => {
                    // There is nothing to deny in a limit.
                    let open = result.waiting.iter().filter(|question| !waits_for_time(question));
                    let open: Vec<SuspensionId> = open.map(|question| question.id.clone()).collect();
                    // A question that stays although it was declined would be declined for ever.
                    if open.is_empty() || open.iter().any(|id| denied.contains(id)) {
                        break;
                    }
                    self.deny(&open).await?;
                    denied.extend(open);
                }
                AskPolicy::Wait(limit) => {
                    self.standing.set(Some(result.clone()));
                    self.wait(&result, limit).await?;
                }
            }
            result = self.resume_or_follow(&result).await?;
            expired.append(&mut result.expired);
        }
        expired.sort_unstable();
        expired.dedup();
        result.expired = expired;
        Ok(SessionResult { result, denied, output: None })
    }

    /// Returns whether a run waits only for a time that is later than this process waits.
    fn waits_longer(&self, result: &AgentRunResult, limit: Duration) -> bool {
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let until = self.clock.now_ms().saturating_add(limit);
        let waits = |question: &SuspensionRecord| {
            question.ticket.suspension.resumes_at().is_some_and(|at| at > until)
        };
        !result.waiting.is_empty() && result.waiting.iter().all(waits)
    }

    /// Events for a run that waited already: without them a reader of the stream would not know what it waits for.
    async fn emit_pending(&self, result: &AgentRunResult) -> Result<(), RuntimeError> {
        if result.termination != TerminationReason::Suspended {
            return Ok(());
        }
        let run = self.runtime.store().load_run(&result.run_id).await?;
        let message_id = run
            .as_ref()
            .and_then(|run| RunDocument::from_value(&run.machine).ok())
            .map(|document| document.step.message_id.to_string())
            .unwrap_or_default();
        self.printer.emit(started(result, run.as_ref())).await;
        for question in &result.waiting {
            for event in AgentEvent::asked(&question.ticket, &message_id) {
                self.printer.emit(event).await;
            }
        }
        self.printer.emit(finished(result)).await;
        Ok(())
    }

    async fn deny(&self, questions: &[SuspensionId]) -> Result<(), RuntimeError> {
        for id in questions {
            let resume = Answer::no(None).resume(self.clock.now_ms());
            let actor = Actor { channel: CHANNEL_POLICY.to_owned(), ..self.options.actor.clone() };
            // The first decision wins: the stored one is carried out.
            self.runtime.decide(id, resume, actor).await.map_err(|e| RuntimeError::Store(e.to_string()))?;
        }
        Ok(())
    }

    /// Waits until one of the questions is no longer pending, whoever closed it.
    async fn wait(&mut self, result: &AgentRunResult, limit: Option<Duration>) -> Result<(), RuntimeError> {
        self.announce(result, limit);
        let moments = result.waiting.iter().filter_map(|question| {
            let end = self.told.get(&question.id).copied().flatten();
            end.map(|end| (question.id.clone(), end))
        });
        let give_up = moments.collect();
        tokio::select! {
            answered = self.runtime.until_answered(&self.thread, &result.waiting, &give_up) => {
                answered?.iter().for_each(report_answer);
                Ok(())
            }
            answered = self.typed_answer(&result.waiting[0]) => answered,
        }
    }

    /// Says what waits, each question once.
    fn announce(&mut self, result: &AgentRunResult, limit: Option<Duration>) {
        let mut any = false;
        for question in &result.waiting {
            if self.told.contains_key(&question.id) {
                continue;
            }
            // The run continues at its time, so the question about it does not expire before.
            let end = limit.filter(|_| !waits_for_time(question)).map(|limit| Instant::now() + limit);
            self.told.insert(question.id.clone(), end);
            if self.options.typed.is_none() {
                note(&QuestionView::of(question).lines(self.clock.now_ms()));
            }
            any = true;
        }
        if any {
            let time = limit.map_or_else(String::new, |limit| format!(" for {} s", limit.as_secs_f64()));
            let after = if self.options.is_kept {
                format!("Ctrl-C leaves the question pending; resume with: aye -r {} -p", result.thread_id)
            } else {
                "the question ends with this process".to_owned()
            };
            let place = if self.options.typed.is_some() { "in this" } else { "from another" };
            note(&format!("waiting{time} for an answer {place} terminal; {after}"));
        }
    }

    /// Asks in this process's terminal until an answer to the question is stored; never returns without a terminal.
    async fn typed_answer(&self, question: &SuspensionRecord) -> Result<(), RuntimeError> {
        let Some(typed) = &self.options.typed else { return std::future::pending().await };
        loop {
            let resume = typed.ask(question, self.clock.now_ms()).await;
            match self.runtime.decide(&question.id, resume, self.options.actor.clone()).await {
                Ok(_) => return Ok(()),
                Err(DecideError::Store(error)) => return Err(error.into()),
                Err(error) => note(&format!("  {}", visible_line(&error.to_string()))),
            }
        }
    }

    /// Resumes the run, or follows it to its end if another process resumes it.
    async fn resume_or_follow(&mut self, before: &AgentRunResult) -> Result<AgentRunResult, RuntimeError> {
        let events = self.printer.events();
        let follower = HeadlessFollower { standing: self.standing, before, is_told: AtomicBool::new(false) };
        let (sink, unknown) = (self.printer.clone(), self.options.unknown);
        match self.runtime.resume_or_follow(&self.thread, &before.run_id, sink, unknown, &follower).await? {
            ResumeOutcome::Elsewhere(run) => self.ended_elsewhere(before, &run).await,
            ResumeOutcome::Here(result) => {
                // Other processes resumed the run and left new questions.
                let is_new = result.waiting.iter().any(|question| !self.told.contains_key(&question.id));
                if is_new && self.printer.events() == events {
                    self.emit_pending(&result).await?;
                }
                Ok(result)
            }
        }
    }

    /// Returns the result of a run that another process drove to its end.
    async fn ended_elsewhere(
        &self,
        before: &AgentRunResult,
        run: &RunRecord,
    ) -> Result<AgentRunResult, RuntimeError> {
        let mut expired = Vec::new();
        for question in &before.waiting {
            let now = self.runtime.store().suspension(&question.id).await?;
            expired.extend(now.filter(|now| now.status == SuspensionStatus::Expired).map(|now| now.id));
        }
        note("another process finished this run; its result follows");
        self.show_ended(run, expired).await
    }

    /// The result of a run that is over, and its messages again.
    async fn show_ended(
        &self,
        run: &RunRecord,
        expired: Vec<SuspensionId>,
    ) -> Result<AgentRunResult, RuntimeError> {
        let (_, stored) = self.runtime.store().messages_of_run(&run.thread_id, &run.id).await?;
        let result = AgentRunResult { expired, ..self.runtime.result_of(run.clone()).await? };
        self.printer.emit(started(&result, Some(run))).await;
        let messages = stored.iter().map(|stored| json!(stored.message)).collect();
        self.printer.emit(AgentEvent::MessagesSnapshot { messages }).await;
        self.printer.emit(finished(&result)).await;
        Ok(result)
    }

    /// Returns the result of a run that was done before this process could resume it. Scripts that answer and
    /// resume cannot know whether another process was faster.
    pub(super) async fn result_if_done(
        &self,
        thread: &ThreadId,
    ) -> Result<Option<AgentRunResult>, RuntimeError> {
        let Some(run) = self.runtime.store().latest_run(thread).await? else { return Ok(None) };
        if run.status != RunStatus::Done {
            return Ok(None);
        }
        note("this run is already done; its result follows");
        self.show_ended(&run, Vec::new()).await.map(Some)
    }
}

/// Records the result to return after a signal, and reports once that another process drives the run.
struct HeadlessFollower<'a> {
    standing: &'a WaitingRun,
    before: &'a AgentRunResult,
    is_told: AtomicBool,
}

#[async_trait]
impl RunFollower for HeadlessFollower<'_> {
    async fn drives_here(&self) {
        // From here on a signal is the run's matter.
        self.standing.set(None);
    }

    async fn drives_elsewhere(&self, pid: u32) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            note(&format!("process {pid} resumed this run; waiting for its result"));
        }
        self.standing.set(Some(AgentRunResult { waiting: Vec::new(), ..self.before.clone() }));
    }
}

/// Returns whether the run of a question continues by itself at a time.
pub(super) fn waits_for_time(question: &SuspensionRecord) -> bool {
    question.ticket.suspension.resumes_at().is_some()
}

fn started(result: &AgentRunResult, run: Option<&RunRecord>) -> AgentEvent {
    AgentEvent::RunStart {
        thread_id: result.thread_id.to_string(),
        run_id: result.run_id.to_string(),
        parent_run_id: run.and_then(|run| run.parent_run_id.as_ref()).map(ToString::to_string),
    }
}

fn finished(result: &AgentRunResult) -> AgentEvent {
    AgentEvent::RunFinish {
        thread_id: result.thread_id.to_string(),
        run_id: result.run_id.to_string(),
        result: Some(json!({"response": result.response})),
        termination: result.termination.clone(),
    }
}

/// Reports the outcome of a question that this process waited for.
fn report_answer(question: &SuspensionRecord) {
    let id = visible_line(question.id.as_str());
    match question.status {
        SuspensionStatus::Expired => note(&format!("  {id}: expired without an answer")),
        SuspensionStatus::Superseded => note(&format!("  {id}: closed without an answer")),
        SuspensionStatus::Open | SuspensionStatus::Decided | SuspensionStatus::Applied => {
            if let Some(answered) = question.answered() {
                note(&format!("  {id}: {}", visible_line(&answered)));
            }
        }
    }
}
