//! The ways a headless run handles its questions: leave them, deny them, or wait for an answer.
//!
//! Waiting needs only an open socket: the store reports the commits of other processes, and a timer ends the
//! wait if a limit was given. The store always has the truth, so a question that was answered, expired or
//! closed by anyone lets the run continue, and a run that another process resumed is followed to its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::question::QuestionView;
use super::{Job, Options, Printer, answer, note};
use aye_core::contract::clock::Clock;
use aye_core::contract::display::visible_line;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::record::{RunRecord, SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::{Actor, Answer, CHANNEL_POLICY};
use aye_runtime::{
    AgentRunResult, AgentRuntime, DecideError, RunDocument, RunRequest, RuntimeError, UnknownPolicy,
};
use aye_session::{
    AnswerError, AnswerPlace, Attender, Elsewhere, Ended, FrontEnd, Leaving, Manner, Queue, Reply, Rest,
    SessionFact,
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
        *self.0.lock().expect("no panic while it is held") = waiting;
    }

    /// The run that waits, when that is what was broken off.
    pub(super) fn take(&self) -> Option<AgentRunResult> {
        self.0.lock().expect("no panic while it is held").take()
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
    runtime: &'a AgentRuntime,
    options: &'a Options,
    printer: &'a Arc<Printer>,
    clock: &'a Arc<dyn Clock>,
    waiting_run: &'a WaitingRun,
    thread: ThreadId,
    /// The announced questions, each with the moment at which this process gives up on it.
    announced: BTreeMap<SuspensionId, Option<Instant>>,
    denied: Vec<SuspensionId>,
    expired: Vec<SuspensionId>,
    /// The number of events before the last attempt; `None` before the first one.
    events: Option<u64>,
    /// The result of the run that waits.
    waiting: Option<AgentRunResult>,
    /// The result of the last run that is done. Its answer is printed when a queued message follows it, or by the caller.
    done: Option<AgentRunResult>,
    /// The user knows that another process drives the run.
    is_followed: bool,
}

impl<'a> HeadlessSession<'a> {
    pub(super) fn new(
        runtime: &'a AgentRuntime,
        options: &'a Options,
        printer: &'a Arc<Printer>,
        clock: &'a Arc<dyn Clock>,
        waiting_run: &'a WaitingRun,
        thread: ThreadId,
    ) -> Self {
        Self {
            runtime,
            options,
            printer,
            clock,
            waiting_run,
            thread,
            announced: BTreeMap::new(),
            denied: Vec::new(),
            expired: Vec::new(),
            events: None,
            waiting: None,
            done: None,
            is_followed: false,
        }
    }

    /// Does the job and then what is queued, and sees to the questions until all is over or has to be left.
    pub(super) async fn attend(mut self, job: Job, queue: Queue) -> Result<SessionResult, RuntimeError> {
        let waits = self.options.on_ask != AskPolicy::Suspend;
        // What it was not started for is left to the process that drives it.
        let elsewhere = if waits { Elsewhere::FollowOwn } else { Elsewhere::Leave };
        let manner = Manner { waits, elsewhere, queue, after_failure: false, stays: false };
        let attender = match job {
            Job::Run(request) | Job::Behind(request) => Attender::request(manner, request),
            Job::Resume(_) | Job::Answered(_) => Attender::resume(manner),
        };
        let (runtime, thread) = (self.runtime, self.thread.clone());
        let end = attender.attend(runtime, &thread, &mut self).await;
        let nothing = RuntimeError::NothingToResume { thread_id: thread.clone() };
        let result = end.result.unwrap_or(Err(nothing));
        if end.why == Leaving::Done && queue != Queue::Nothing {
            self.report_tasks(&result).await?;
        }
        let mut result = match result {
            Ok(result) => result,
            Err(error) => {
                if let Some(before) = &self.done {
                    answer(self.printer, before, self.options);
                }
                return Err(error);
            }
        };
        self.expired.sort_unstable();
        self.expired.dedup();
        result.expired = self.expired;
        Ok(SessionResult { result, denied: self.denied, output: None })
    }

    /// Reports background tasks that wait for a decision when nothing else is left to do.
    async fn report_tasks(&self, result: &Result<AgentRunResult, RuntimeError>) -> Result<(), RuntimeError> {
        if !matches!(Ended::of(result), Ended::Well | Ended::Nothing) {
            return Ok(());
        }
        for task in self.runtime.tasks(&self.thread).await? {
            if task.child.background && task.waiting > 0 {
                let (id, agent) = (task.child.task_id(), visible_line(&task.child.agent));
                note(&format!("task {id} ({agent}) waits for a decision: aye inbox"));
            }
        }
        Ok(())
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
            let actor = Actor { channel: CHANNEL_POLICY.to_owned(), ..self.options.actor.clone() };
            // The first decision wins: the stored one is carried out.
            let no = Answer::no(None).into();
            let answered = aye_session::answer(AnswerPlace::Runtime(self.runtime), id, no, actor).await;
            answered.map_err(|error| RuntimeError::Store(error.to_string()))?;
        }
        Ok(())
    }

    /// Waits until one of the questions is no longer pending, whoever closed it.
    async fn wait_for_answer(
        &mut self,
        result: &AgentRunResult,
        limit: Option<Duration>,
    ) -> Result<(), RuntimeError> {
        self.announce(result, limit);
        let moments = result.waiting.iter().filter_map(|question| {
            let end = self.announced.get(&question.id).copied().flatten();
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
            if self.announced.contains_key(&question.id) {
                continue;
            }
            // The run continues at its time, so the question about it does not expire before.
            let end = limit.filter(|_| !waits_for_time(question)).map(|limit| Instant::now() + limit);
            self.announced.insert(question.id.clone(), end);
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
            let reply = Reply::literal(typed.ask(question, self.clock.now_ms()).await);
            let (place, actor) = (AnswerPlace::Runtime(self.runtime), self.options.actor.clone());
            match aye_session::answer(place, &question.id, reply, actor).await {
                Ok(_) => return Ok(()),
                Err(AnswerError::Refused(DecideError::Store(error))) => return Err(error.into()),
                Err(error) => note(&format!("  {}", visible_line(&error.to_string()))),
            }
        }
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

impl FrontEnd for HeadlessSession<'_> {
    fn sink(&self) -> Arc<dyn EventSink> {
        self.printer.clone()
    }

    fn unknown(&self) -> UnknownPolicy {
        self.options.unknown
    }

    async fn prepare(&mut self, _request: Option<&RunRequest>) {
        // From here on a signal is the run's matter.
        self.waiting_run.set(None);
    }

    async fn ended(
        &mut self,
        result: Option<&Result<AgentRunResult, RuntimeError>>,
    ) -> Result<(), RuntimeError> {
        let events = self.events.replace(self.printer.events());
        let Some(Ok(result)) = result else { return Ok(()) };
        self.is_followed = false;
        self.expired.extend(result.expired.iter().cloned());
        if let Some(before) = self.done.take() {
            answer(self.printer, &before, self.options);
        }
        self.waiting = None;
        if result.termination != TerminationReason::Suspended {
            self.done = Some(result.clone());
            return Ok(());
        }
        // It waited already, or other processes resumed it and left new questions.
        let is_new = result.waiting.iter().any(|question| !self.announced.contains_key(&question.id));
        let is_silent = events.unwrap_or(0) == self.printer.events();
        if is_silent && (is_new || events.is_none()) {
            self.emit_pending(result).await?;
        }
        self.events = Some(self.printer.events());
        self.waiting = Some(result.clone());
        Ok(())
    }

    async fn before_queue(&mut self) -> Result<bool, RuntimeError> {
        // Background tasks send a message when they are done.
        self.runtime.supervise_tasks(&self.thread).await?;
        self.runtime.finish_tasks(&self.thread).await;
        Ok(true)
    }

    async fn wait(&mut self, rest: &mut Rest<'_>) -> Result<SessionFact, RuntimeError> {
        let Some(result) = rest.waiting.cloned() else {
            rest.changed().await;
            return Ok(SessionFact::Changed);
        };
        match self.options.on_ask {
            AskPolicy::Suspend => return Ok(SessionFact::Closed),
            AskPolicy::Wait(Some(limit)) if self.waits_longer(&result, limit) => {
                return Ok(SessionFact::Closed);
            }
            AskPolicy::Deny => {
                // There is nothing to deny in a limit.
                let open = result.waiting.iter().filter(|question| !waits_for_time(question));
                let open: Vec<SuspensionId> = open.map(|question| question.id.clone()).collect();
                // A question that stays although it was declined would be declined for ever.
                if open.is_empty() || open.iter().any(|id| self.denied.contains(id)) {
                    return Ok(SessionFact::Closed);
                }
                self.deny(&open).await?;
                self.denied.extend(open);
            }
            AskPolicy::Wait(limit) => {
                self.waiting_run.set(Some(result.clone()));
                self.wait_for_answer(&result, limit).await?;
            }
        }
        Ok(SessionFact::Changed)
    }

    async fn follows(&mut self, pid: u32) {
        if !std::mem::replace(&mut self.is_followed, true) {
            note(&format!("process {pid} resumed this run; waiting for its result"));
        }
        if let Some(before) = &self.waiting {
            self.waiting_run.set(Some(AgentRunResult { waiting: Vec::new(), ..before.clone() }));
        }
    }

    async fn ended_elsewhere(
        &mut self,
        runtime: &AgentRuntime,
        run: RunRecord,
    ) -> Result<AgentRunResult, RuntimeError> {
        let mut expired = Vec::new();
        for question in self.waiting.take().into_iter().flat_map(|before| before.waiting) {
            let now = runtime.store().suspension(&question.id).await?;
            expired.extend(now.filter(|now| now.status == SuspensionStatus::Expired).map(|now| now.id));
        }
        note("another process finished this run; its result follows");
        let result = self.show_ended(&run, expired).await?;
        self.expired.extend(result.expired.iter().cloned());
        self.done = Some(result.clone());
        Ok(result)
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
