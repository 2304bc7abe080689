//! Runs, executions, and the transactions of a driver.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::InMemoryStore;
use super::rows::{Execution, PrintedText, Rows};
use aye_core::contract::audit_entry::AuditEntry;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::ids::{RunId, ThreadId, check_given};
use aye_core::contract::image::ImageRef;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::message::Message;
use aye_core::contract::record::{
    AttemptId, Checkpoint, ExecutionStart, Fence, IntentRecord, OpenIntent, OutcomeKind, OutcomeRecord,
    RunRecord, StoredMessage,
};
use aye_core::contract::storage::{RunStore, Slice, StoreError};

impl Rows {
    pub(super) fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        let Checkpoint {
            fence,
            run,
            messages,
            thread_state,
            prefix,
            opened,
            closed,
            outcomes,
            judged,
            commands,
            takes,
            releases,
        } = checkpoint;
        self.write_run(fence, run)?;
        if let Some(claim) = takes {
            self.take_job(run, claim)?;
        }
        self.append(run, messages)?;
        if let Some(state) = thread_state {
            self.thread_mut(&run.thread_id)?.state.clone_from(state);
        }
        if let Some(prefix) = prefix {
            let known = &mut self.thread_mut(&run.thread_id)?.prefixes;
            known.retain(|known| known.at_seq != prefix.at_seq);
            known.push(Arc::new(prefix.clone()));
        }
        for call in judged {
            self.record_judged(run, call)?;
        }
        for command in commands {
            self.append_audit(AuditEntry::hook(run, command))?;
        }
        for outcome in outcomes {
            self.end(&run.thread_id, outcome)?;
            self.append_audit(AuditEntry::ended(fence, run, outcome))?;
        }
        for (id, status) in closed {
            self.close_question(run, id, *status)?;
        }
        if !closed.is_empty() {
            self.end_resume(run);
        }
        for question in opened {
            self.ask(run, question)?;
            if let Some(at) = question.ticket.suspension.resumes_at() {
                self.queue_resume(run, at)?;
            }
        }
        if run.status == RunStatus::Done {
            self.supersede_questions(run)?;
            self.settle_jobs(run);
        }
        if *releases {
            self.release(fence);
        }
        Ok(())
    }

    /// The files of [`ExecutionStart::snapshot`] are not kept: nothing here reads them again.
    pub(super) fn begin(&mut self, begin: &ExecutionStart) -> Result<(), StoreError> {
        let ExecutionStart { fence, run, intent, spends, judged, commands, snapshot: _ } = begin;
        if intent.thread_id != run.thread_id || intent.id.run_id != run.id {
            let what = format!("the intent for call {}", intent.id.call_id);
            return Err(StoreError::Misplaced { what, place: format!("run {}", run.id) });
        }
        self.write_run(fence, run)?;
        if let Some((question, decision)) = spends {
            self.spend_decision(question, decision, &intent.id)?;
        }
        if self.intents.iter().any(|known| known.intent.id == intent.id) {
            return Err(StoreError::AlreadyStarted { id: intent.id.clone() });
        }
        let intent = intent.clone();
        self.intents.push(Arc::new(Execution { intent, outcome: None, output: PrintedText::default() }));
        for call in judged {
            self.record_judged(run, call)?;
        }
        for command in commands {
            self.append_audit(AuditEntry::hook(run, command))?;
        }
        self.append_audit(AuditEntry::began(begin))
    }

    /// Does the common first part of both transactions: checks the right to write, and writes the run in its
    /// current state.
    fn write_run(&mut self, fence: &Fence, run: &RunRecord) -> Result<(), StoreError> {
        let misplaced = |place: &ThreadId| {
            let (what, place) = (format!("run {}", run.id), format!("thread {place}"));
            StoreError::Misplaced { what, place }
        };
        if fence.thread_id != run.thread_id {
            return Err(misplaced(&fence.thread_id));
        }
        self.check(fence)?;
        match self.runs.iter_mut().find(|known| known.id == run.id) {
            Some(known) if known.thread_id != run.thread_id => return Err(misplaced(&run.thread_id)),
            Some(known) if known.status == RunStatus::Done && run.status != RunStatus::Done => {
                return Err(StoreError::RunOver { run: run.id.clone() });
            }
            Some(known) => *known = Arc::new(run.clone()),
            None => {
                check_given("run", run.id.as_str())?;
                self.runs.push(Arc::new(run.clone()));
            }
        }
        let thread = &mut self.thread_mut(&run.thread_id)?.record;
        thread.updated_at = thread.updated_at.max(run.updated_at);
        Ok(())
    }

    fn append(&mut self, run: &RunRecord, messages: &[Message]) -> Result<(), StoreError> {
        for message in messages {
            let message = self.without_images(message.clone());
            let thread = self.thread_mut(&run.thread_id)?;
            let seq = thread.messages.len() as u64 + 1;
            let (run_id, created_at) = (run.id.clone(), run.updated_at);
            thread.messages.push(Arc::new(StoredMessage { seq, run_id, created_at, message }));
        }
        Ok(())
    }

    /// The same message, with the bytes of its images kept beside it.
    pub(super) fn without_images(&mut self, mut message: Message) -> Message {
        for block in &mut message.content {
            if let ContentBlock::Image { data, .. } = block
                && let Ok(bytes) = STANDARD.decode(data.as_bytes())
                // Bytes that are not a displayable image are left unchanged: a provider may support their
                // format.
                && let Ok(image) = ImageRef::of("image", &bytes)
            {
                self.images.insert(image.hash.clone(), Arc::new(bytes));
                *block = ContentBlock::StoredImage(image);
            }
        }
        message
    }

    /// An outcome is written once; only "unknown" may be replaced by what was found out.
    fn end(&mut self, thread: &ThreadId, outcome: &OutcomeRecord) -> Result<(), StoreError> {
        let started = self
            .intents
            .iter_mut()
            .find(|known| known.intent.id == outcome.id && known.intent.thread_id == *thread);
        let Some(started) = started.map(Arc::make_mut) else {
            return Err(StoreError::NotStarted { id: outcome.id.clone() });
        };
        if started.outcome.as_ref().is_some_and(|known| known.kind != OutcomeKind::Unknown) {
            return Err(StoreError::AlreadyEnded { id: outcome.id.clone() });
        }
        started.outcome = Some(outcome.clone());
        Ok(())
    }
}

#[async_trait]
impl RunStore for InMemoryStore {
    async fn load_run(&self, id: &RunId) -> Result<Option<RunRecord>, StoreError> {
        self.read(|rows| rows.run(id).cloned())
    }

    async fn latest_run(&self, thread: &ThreadId) -> Result<Option<RunRecord>, StoreError> {
        self.read(|rows| rows.latest_run(thread).cloned())
    }

    async fn list_runs(&self, thread: &ThreadId) -> Result<Vec<RunRecord>, StoreError> {
        self.runs(|run| run.thread_id == *thread)
    }

    async fn latest_runs(
        &self,
        thread: Option<&ThreadId>,
        status: Option<RunStatus>,
        slice: Slice,
    ) -> Result<Vec<RunRecord>, StoreError> {
        self.read(|rows| {
            let is_wanted = |run: &&Arc<RunRecord>| {
                thread.is_none_or(|thread| run.thread_id == *thread)
                    && status.is_none_or(|status| run.status == status)
            };
            slice.of(rows.runs.iter().rev().filter(is_wanted).map(|run| RunRecord::clone(run)))
        })
    }

    async fn unfinished_runs(&self) -> Result<Vec<RunRecord>, StoreError> {
        self.runs(|run| run.status != RunStatus::Done)
    }

    async fn intents(&self, run: &RunId) -> Result<Vec<(IntentRecord, Option<OutcomeRecord>)>, StoreError> {
        self.read(|rows| {
            let started = rows.intents.iter().filter(|known| known.intent.id.run_id == *run);
            started.map(|known| (known.intent.clone(), known.outcome.clone())).collect()
        })
    }

    async fn open_intents(&self, run: &RunId) -> Result<Vec<OpenIntent>, StoreError> {
        self.read(|rows| {
            let of_run = rows.intents.iter().filter(|known| known.intent.id.run_id == *run);
            let open = of_run.filter(|known| known.outcome.is_none());
            open.map(|known| OpenIntent { intent: known.intent.clone(), output: known.output.text() })
                .collect()
        })
    }

    async fn append_output(&self, fence: &Fence, id: &AttemptId, chunk: String) -> Result<(), StoreError> {
        self.write(|rows| {
            rows.check(fence)?;
            let started = rows.intents.iter_mut().find(|known| known.intent.id == *id);
            let started = started.ok_or_else(|| StoreError::NotStarted { id: id.clone() })?;
            Arc::make_mut(started).output.push(&chunk);
            Ok(())
        })
    }
}

impl InMemoryStore {
    fn runs(&self, is_wanted: impl Fn(&RunRecord) -> bool) -> Result<Vec<RunRecord>, StoreError> {
        self.read(|rows| {
            let wanted = rows.runs.iter().filter(|run| is_wanted(run));
            wanted.map(|run| RunRecord::clone(run)).collect()
        })
    }
}
