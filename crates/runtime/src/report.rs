//! Reports what fills the context window of a conversation.

use std::collections::HashMap;
use std::sync::Arc;

use super::compact::place;
use super::replay;
use super::stored_thread::StoredThread;
use super::window::{marks_of, place_of, rest_hint};
use super::windows::{WindowMemory, answer_of, load, room};
use super::{AgentRuntime, RuntimeError};
use aye_core::context::{self, FitLimits, History, Sizes, estimate};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::message::{Message, Role};
use aye_core::contract::prefix::PromptPart;
use aye_core::contract::summary::SummaryRecord;
use aye_core::contract::tool::ToolDescriptor;

/// The content of a conversation's next request, in tokens: estimates, corrected by the provider's counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContextReport {
    /// The model's window; `None` when the agent knows none.
    pub window: Option<usize>,
    /// Kept free for the answer.
    pub answer: usize,
    /// The size at which a summary is made automatically.
    pub threshold: Option<usize>,
    /// The agent's own instructions.
    pub system: usize,
    pub tools: Vec<(String, usize)>,
    /// Messages of the user and the model.
    pub messages: usize,
    pub results: usize,
    pub summary_tokens: usize,
    pub summary: Option<SummaryRecord>,
    /// The number of messages in the conversation.
    pub count: usize,
    /// The number of messages left out because they do not fit.
    pub left_out: usize,
    /// The number of large results shown as previews.
    pub previews: usize,
    /// The provider's tokens for one of the estimate.
    pub factor: f64,
}

/// The next request of a conversation, as far as it is known: what is written next is added at its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestParts {
    pub system: Vec<PromptPart>,
    pub tools: Vec<ToolDescriptor>,
    /// The messages, without the bytes of images.
    pub messages: Vec<Arc<Message>>,
}

impl AgentRuntime {
    /// Returns the parts of the next request of a conversation: each request begins with the whole of the one before.
    /// `None` before the first request, and after a compaction until the next one.
    ///
    /// # Errors
    /// [`RuntimeError`] when the store fails.
    pub async fn next_request(&self, thread: &ThreadId) -> Result<Option<RequestParts>, RuntimeError> {
        let shared = &self.inner.shared;
        let held = StoredThread::read(&*shared.store, thread, shared.windows.cut(thread), None).await?;
        let upto = held.summary.as_ref().map_or(0, |summary| summary.upto_seq);
        let Some(prefix) = held.prefix.filter(|prefix| prefix.summary_upto == upto) else { return Ok(None) };
        let mut history = held.history;
        let mut sizes = Sizes::of(&history);
        let all = FitLimits { room: usize::MAX, recent: 0 };
        load(&*shared.store, thread, (&mut history, &mut sizes), place_of(prefix.cut), all).await?;
        let mut pinned = Vec::new();
        for at in prefix.pinned.iter().map(|at| place_of(*at)) {
            let message = match history.get(at) {
                Some(message) => Some(Arc::clone(message)),
                None => shared.store.messages_from(thread, at, 1).await?.into_iter().next().map(Arc::new),
            };
            pinned.extend(message.map(|message| (at, message)));
        }
        let marks = marks_of(&prefix);
        let mut previews = HashMap::new();
        for at in pinned.iter().map(|(at, _)| *at).chain(marks.cut..marks.previewed) {
            let Some(message) = history.get(at).filter(|_| sizes.has_preview(at)) else { continue };
            let rest = rest_hint(shared.artifacts.as_ref(), thread, message).await;
            previews.insert(at, Arc::new(context::preview(message, &rest)));
        }
        let preview = |at: usize| previews.get(&at).cloned();
        let summary = held.summary.as_ref();
        let messages = replay::messages_since(&prefix, summary, &history, &sizes, &pinned, preview);
        Ok(Some(RequestParts { system: prefix.system, tools: prefix.tools, messages }))
    }

    /// Reports what the next request of a conversation would contain. `beside`: the estimated tokens that
    /// plugins add to it; `hidden`: the tools that they remove from it.
    ///
    /// # Errors
    /// [`RuntimeError`] when the agent cannot run or the store fails.
    pub async fn context_report(
        &self,
        thread: Option<&ThreadId>,
        agent_id: &str,
        beside: usize,
        hidden: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<ContextReport, RuntimeError> {
        let shared = &self.inner.shared;
        let agent = self.resolve(agent_id, None)?;
        let policy = agent.spec.context_policy.as_ref();
        let (mut history, mut summary, mut prefix) = (History::default(), None, None);
        let mut memory = WindowMemory::default();
        if let Some(thread) = thread {
            let held = StoredThread::read(&*shared.store, thread, shared.windows.cut(thread), None).await?;
            (history, summary, prefix) = (held.history, held.summary, held.prefix);
            memory = shared.windows.get(thread, &agent.model_id);
        }
        let real = |tokens: usize| memory.calibration.apply(tokens);
        let system = agent.spec.system_prompt.len() / 4 + 4;
        let offered = agent.descriptors.iter().filter(|tool| !hidden(&tool.id));
        let tools: Vec<(String, usize)> =
            offered.map(|tool| (tool.id.clone(), estimate::tool_tokens(tool))).collect();
        let summarised = summary
            .as_ref()
            .map_or(0, |s| estimate::message_tokens(&context::summary_message(&s.for_model())));
        let fixed = beside + system + summarised + tools.iter().map(|(_, tokens)| tokens).sum::<usize>();
        let limits = FitLimits {
            room: room(policy, &memory, fixed),
            recent: policy.map_or(usize::MAX, |policy| policy.min_recent_messages),
        };
        let from = summary.as_ref().map_or(0, place);
        let mut sizes = Sizes::of(&history);
        if let Some(thread) = thread {
            let loaded = (&mut history, &mut sizes);
            load(&*shared.store, thread, loaded, from.max(memory.marks.cut), limits).await?;
        }
        let upto = summary.as_ref().map_or(0, |summary| summary.upto_seq);
        let marks = prefix
            .filter(|prefix| prefix.summary_upto == upto)
            .map_or(memory.marks, |prefix| marks_of(&prefix));
        let fit = context::fit(&sizes, from, marks, limits);
        let (mut message_tokens, mut results, mut previews) = (0, 0, 0);
        let shown =
            (0..sizes.leading()).chain(fit.pinned.iter().copied()).chain(fit.marks.cut..history.end());
        for at in shown {
            let tokens = sizes.at(at, fit.marks.previewed);
            previews += usize::from(at < fit.marks.previewed && sizes.has_preview(at));
            let is_result = history.get(at).is_some_and(|message| message.role == Role::Tool);
            *(if is_result { &mut results } else { &mut message_tokens }) += tokens;
        }
        Ok(ContextReport {
            window: policy.map(|policy| policy.max_context_tokens),
            answer: policy.map_or(0, answer_of),
            threshold: policy.and_then(|policy| policy.autocompact_threshold),
            system: real(system),
            tools: tools.into_iter().map(|(id, tokens)| (id, real(tokens))).collect(),
            messages: real(message_tokens),
            results: real(results),
            summary_tokens: real(summarised),
            summary,
            count: history.len(),
            left_out: fit.left_out,
            previews,
            factor: memory.calibration.apply(100_000) as f64 / 100_000.0,
        })
    }
}
