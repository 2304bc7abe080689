//! Makes the summary that replaces the older messages of a conversation in requests.

use std::sync::Arc;

use super::resolve::ResolvedAgent;
use super::windows::{SettledSummaries, answer_of};
use super::{AgentRuntime, RuntimeCore, RuntimeError};
use aye_core::context::{
    self, CompactionConfigKey, History, NoGain, Sizes, estimate, read_tokens, short_tokens,
};
use aye_core::contract::executor::InferenceExecutionError;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::inference::{InferenceOverride, ReasoningEffort, StopReason};
use aye_core::contract::message::Message;
use aye_core::contract::spec::ContextWindowPolicy;
use aye_core::contract::storage::{Portion, StoreError, ThreadStore, ThreadTail};
use aye_core::contract::summary::SummaryRecord;
use aye_core::state::StateError;

/// As many bytes of messages are loaded at once.
const CHUNK: usize = 1 << 20;
/// Extra messages to read after the room is filled, so that the results of calls are included.
const BEHIND: usize = 64;
/// Maximum tokens of the user's messages that stay word for word,
const KEPT_TOKENS: usize = 8000;
/// and the share of the window that they may take.
const KEPT_SHARE: usize = 16;
/// Minimum tokens of a conversation that a summariser must be able to read at once to be useful.
const LEAST_ROOM: usize = 2000;

/// Why no summary was made. Nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// It would not be worth it.
    #[error(transparent)]
    NoGain(#[from] NoGain),
    /// One is being made already.
    #[error("a summary of this conversation is already being written")]
    Busy,
    /// The conversation does not exist or is empty.
    #[error("nothing to summarise yet")]
    Empty,
    /// Another process made one that reaches farther.
    #[error("another process has just summarised this conversation")]
    Superseded,
    #[error("the model could not write a summary: {0}")]
    Model(#[from] InferenceExecutionError),
    /// The model gave nothing.
    #[error("the model wrote no summary")]
    NoText,
    /// The agent's section is wrong.
    #[error(transparent)]
    Config(#[from] StateError),
    /// The agent cannot run.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All that a summary is made from.
pub(super) struct Compaction {
    pub(super) shared: Arc<RuntimeCore>,
    pub(super) thread_id: ThreadId,
    pub(super) agent_id: String,
    pub(super) agent: ResolvedAgent,
    pub(super) policy: ContextWindowPolicy,
    /// The summary that counts now.
    pub(super) existing: Option<Arc<SummaryRecord>>,
}

impl Compaction {
    /// Has the summary written and keeps it.
    pub(super) async fn run(&self, hint: Option<&str>) -> Result<SummaryRecord, CompactError> {
        let memory = self.shared.windows.get(&self.thread_id, &self.agent.model_id);
        let before = self.existing.as_ref().map_or(0, |summary| summary_tokens(&summary.for_model()));
        let window = memory.calibration.before(self.policy.max_context_tokens - answer_of(&self.policy));
        // The prompts, the summary before, and the words between the messages.
        let mut room = (window.saturating_sub(before + 2000) / 10 * 9).max(LEAST_ROOM);
        loop {
            match self.portion(hint, room, memory.marks.previewed).await {
                // The estimate was wrong, or the summariser has a smaller window: it reads less at once.
                Err(CompactError::Model(InferenceExecutionError::ContextOverflow(_)))
                    if room > LEAST_ROOM =>
                {
                    room = (room / 2).max(LEAST_ROOM);
                }
                result => return result,
            }
        }
    }

    /// A summary of as many messages as the summariser reads at once.
    async fn portion(
        &self,
        hint: Option<&str>,
        room: usize,
        previewed: usize,
    ) -> Result<SummaryRecord, CompactError> {
        let config = self.agent.spec.config::<CompactionConfigKey>()?;
        let (from, before) =
            self.existing.as_ref().map_or((0, 0), |all| (place(all), summary_tokens(&all.for_model())));
        let history = load(&*self.shared.store, &self.thread_id, from, room).await?;
        if history.is_empty() {
            return Err(CompactError::Empty);
        }
        let sizes = Sizes::of(&history);
        let plan = context::plan(&sizes, (from, before, previewed), &self.policy, &config, room)?;
        let read = &history.tail()[plan.from - history.base()..plan.upto - history.base()];
        let upto = read.last().ok_or(NoGain::Nothing)?.id.clone();
        let earlier = self.existing.as_ref().map_or(&[][..], |summary| &summary.said);
        let said =
            context::said(earlier, read, (self.policy.max_context_tokens / KEPT_SHARE).min(KEPT_TOKENS));
        // What stays word for word is no gain; known before the model is paid.
        context::accept(&plan, said.iter().map(|text| text.len() / 4).sum(), &config)?;
        let existing = self.existing.as_ref().map(|summary| summary.text.as_str());
        let asked = context::prompt(read, existing, hint, &config, room);
        let agent = match &config.summary_model {
            None => self.agent.clone(),
            Some(model) => self.shared.resolve_at(self.agent.revision, &self.agent_id, Some(model))?,
        };
        let limits = InferenceOverride {
            max_tokens: config.summary_max_tokens,
            // The summary is read from the messages; thoughts about them are paid and lost.
            reasoning_effort: Some(ReasoningEffort::None),
            ..InferenceOverride::default()
        };
        // The usage is counted whatever the result, and before the summary is shown to anyone.
        let prompt = &config.summarizer_system_prompt;
        let result = self.shared.ask_aside(&self.thread_id, &agent, prompt, asked, limits).await?;
        let text = context::clean(&result.text());
        if text.is_empty() || result.stop_reason.is_some_and(StopReason::is_withheld) {
            return Err(CompactError::NoText);
        }
        let mut summary = SummaryRecord {
            thread_id: self.thread_id.clone(),
            upto,
            upto_seq: plan.upto as u64,
            at_seq: history.len() as u64,
            messages: (plan.upto - plan.from) as u64,
            before_tokens: plan.tokens as u64,
            after_tokens: 0,
            hint: hint.filter(|hint| !hint.trim().is_empty()).map(str::to_owned),
            model: agent.model_id,
            usage: result.usage,
            created_at: self.shared.clock.now_ms(),
            text,
            said,
        };
        let after = summary_tokens(&summary.for_model());
        context::accept(&plan, after, &config)?;
        summary.after_tokens = after as u64;
        // Before a run can find it in the store.
        let windows = &self.shared.windows;
        windows.change(&self.thread_id, |memory| memory.unreported = Some(summary.clone()));
        let added = self.shared.store.add_summary(summary.clone()).await;
        if !matches!(added, Ok(true)) {
            windows.take_unreported(&self.thread_id, |own| own.upto == summary.upto);
        }
        if added? { Ok(summary) } else { Err(CompactError::Superseded) }
    }
}

/// The tokens of a summary in a request.
fn summary_tokens(summary: &str) -> usize {
    estimate::message_tokens(&context::summary_message(summary))
}

/// As much of a conversation as a summariser can read, from a place on, and somewhat more.
async fn load(
    store: &(impl ThreadStore + ?Sized),
    thread: &ThreadId,
    from: usize,
    room: usize,
) -> Result<History, StoreError> {
    let nothing = Portion { floor: usize::MAX, bytes: 0, count: 0 };
    let ThreadTail { outline, mut apart, .. } = store.thread_tail(thread, nothing).await?;
    let from = from.max(outline.leading).min(outline.count);
    let messages = read(store, thread, from..outline.count, room).await?;
    apart.retain(|at, _| *at < from);
    Ok(History::part(outline, from, messages, apart))
}

/// Reads messages of a range until they fill the room or the range ends. Messages that a run adds after the
/// range in the meantime are not part of it.
pub(super) async fn read(
    store: &(impl ThreadStore + ?Sized),
    thread: &ThreadId,
    range: std::ops::Range<usize>,
    room: usize,
) -> Result<Vec<Message>, StoreError> {
    let mut messages = Vec::new();
    while messages.len() < range.len() {
        let at = range.start + messages.len();
        let more = store.messages_from(thread, at, room.saturating_mul(4).min(CHUNK)).await?;
        if more.is_empty() {
            break;
        }
        messages.extend(more);
        messages.truncate(range.len());
        let settled = messages[..messages.len().saturating_sub(BEHIND)].iter();
        if settled.map(|message| read_tokens(short_tokens(message), room)).sum::<usize>() > room {
            break;
        }
    }
    Ok(messages)
}

impl AgentRuntime {
    /// Waits until no summary of the conversation is being written in this process: for a program that is about to end,
    /// and would lose what was paid for. Returns what the next run would have reported; nothing reports it again.
    pub async fn settle(&self, thread_id: &ThreadId) -> SettledSummaries {
        self.inner.shared.windows.settle(thread_id).await
    }

    /// Has the older messages of a conversation summarised; requests from then on hold the summary in their place. The
    /// messages stay in the store. It needs no right to the thread and disturbs nothing that runs in it.
    ///
    /// What the summariser cannot read at once it reads in portions, each with the summary of those before it. The
    /// record that is returned counts all of them.
    ///
    /// # Errors
    /// [`CompactError`]: nothing changed.
    pub async fn compact(
        &self,
        thread_id: &ThreadId,
        agent_id: &str,
        hint: Option<String>,
    ) -> Result<SummaryRecord, CompactError> {
        let shared = &self.inner.shared;
        let agent = self.resolve(agent_id, None)?;
        let is_busy =
            shared.windows.change(thread_id, |memory| std::mem::replace(&mut memory.compacting, true));
        if is_busy {
            return Err(CompactError::Busy);
        }
        let _done = Compacting { shared: Arc::clone(shared), thread: thread_id.clone() };
        let existing = shared.store.summary(thread_id, 0).await?.map(Arc::new);
        let mut compaction = Compaction {
            shared: Arc::clone(shared),
            thread_id: thread_id.clone(),
            agent_id: agent_id.to_owned(),
            policy: agent.spec.context_policy.clone().unwrap_or_default(),
            agent,
            existing,
        };
        let mut all: Option<SummaryRecord> = None;
        loop {
            match compaction.run(hint.as_deref()).await {
                Ok(summary) => {
                    compaction.existing = Some(Arc::new(summary.clone()));
                    all = Some(match &all {
                        None => summary,
                        Some(earlier) => summary.after(earlier),
                    });
                }
                // Nothing is left, or what was made until now counts.
                Err(error) => return all.ok_or(error),
            }
        }
    }
}

/// Returns the number of messages that a summary replaces.
pub(super) fn place(summary: &SummaryRecord) -> usize {
    usize::try_from(summary.upto_seq).unwrap_or(usize::MAX).max(1)
}

/// The right to make the summary of a conversation, in this process.
pub(super) struct Compacting {
    pub(super) shared: Arc<RuntimeCore>,
    pub(super) thread: ThreadId,
}

impl Drop for Compacting {
    fn drop(&mut self) {
        self.shared.windows.change(&self.thread, |memory| memory.compacting = false);
        self.shared.windows.settled.notify_waiters();
    }
}
