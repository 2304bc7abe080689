//! Reports what fills the context window of a conversation.

use super::stored_thread::StoredThread;
use super::window::{answer_of, load, marks_of, place, room};
use super::{AgentRuntime, RuntimeError};
use aye_core::context::{self, FitLimits, History, Sizes, estimate};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::message::Role;
use aye_core::contract::summary::SummaryRecord;

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
    /// Each tool.
    pub tools: Vec<(String, usize)>,
    /// Messages of the user and the model.
    pub messages: usize,
    /// Tool results.
    pub results: usize,
    /// The summary.
    pub summary_tokens: usize,
    /// The summary's record.
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

impl AgentRuntime {
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
        let mut memory = super::window::WindowMemory::default();
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
        let told = summary
            .as_ref()
            .map_or(0, |s| estimate::message_tokens(&context::summary_message(&s.for_model())));
        let fixed = beside + system + told + tools.iter().map(|(_, tokens)| tokens).sum::<usize>();
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
        let (mut said, mut results, mut previews) = (0, 0, 0);
        let shown =
            (0..sizes.leading()).chain(fit.pinned.iter().copied()).chain(fit.marks.cut..history.end());
        for at in shown {
            let tokens = sizes.at(at, fit.marks.previewed);
            previews += usize::from(at < fit.marks.previewed && sizes.has_preview(at));
            let is_result = history.get(at).is_some_and(|message| message.role == Role::Tool);
            *(if is_result { &mut results } else { &mut said }) += tokens;
        }
        Ok(ContextReport {
            window: policy.map(|policy| policy.max_context_tokens),
            answer: policy.map_or(0, answer_of),
            threshold: policy.and_then(|policy| policy.autocompact_threshold),
            system: real(system),
            tools: tools.into_iter().map(|(id, tokens)| (id, real(tokens))).collect(),
            messages: real(said),
            results: real(results),
            summary_tokens: real(told),
            summary,
            count: history.len(),
            left_out: fit.left_out,
            previews,
            factor: memory.calibration.apply(100_000) as f64 / 100_000.0,
        })
    }
}
