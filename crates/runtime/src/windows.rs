//! What is remembered of the windows of conversations between requests, while the program runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use aye_core::context::{Calibration, FitLimits, History, Marks, Sizes};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::inference::{ModelUsage, TokenUsage};
use aye_core::contract::prefix::PrefixRecord;
use aye_core::contract::spec::ContextWindowPolicy;
use aye_core::contract::storage::{Portion, StoreError, ThreadRunStore};
use aye_core::contract::summary::SummaryRecord;

/// As many bytes of messages are loaded at once.
const LOADED: std::ops::Range<usize> = 64 << 10..4 << 20;
/// Maximum number of conversations to remember.
const REMEMBERED: usize = 64;

/// A limit that may not be one.
#[derive(Clone, Debug)]
pub(super) struct SuspectedLimit {
    /// The limit before it, in estimated tokens.
    pub(super) before: Option<usize>,
    /// The start of the requests before it: what it left out comes back.
    pub(super) prefix: Option<Arc<PrefixRecord>>,
}

/// What was learned from the requests of a conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowMemory {
    pub(super) marks: Marks,
    /// By model: each counts in its own way.
    pub(super) calibration: Calibration,
    pub(super) model: String,
    /// The limit in estimated tokens, below the size of a request that was refused as too long.
    pub(super) ceiling: Option<usize>,
    /// Set when a refusal that may have another reason lowered the limit.
    pub(super) suspected: Option<SuspectedLimit>,
    /// The estimated size of the largest request that was answered.
    pub(super) accepted: usize,
    /// The tokens besides the messages in the last request: the system text, the tools, the plugins'
    /// messages.
    pub(super) beside: Option<usize>,
    /// A summary is being written.
    pub(super) compacting: bool,
    /// The number of tokens when a summary was last attempted in vain.
    pub(super) failed_at: Option<usize>,
    /// The requests beside runs, for summaries and titles, that no run has been charged for yet: the run that
    /// requested a summary may be done when the summary is written.
    pub(super) bill: Vec<ModelUsage>,
    /// A summary made in this process that no run has reported yet.
    pub(super) unreported: Option<SummaryRecord>,
}

impl WindowMemory {
    /// Discards what was learned about another model.
    pub(super) fn of_model(mut self, model: &str) -> Self {
        if self.model != model {
            (self.calibration, self.ceiling, self.failed_at) = (Calibration::default(), None, None);
            (self.suspected, self.accepted) = (None, 0);
            model.clone_into(&mut self.model);
        }
        self
    }
}

/// What a conversation's summaries came to since its last run ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettledSummaries {
    /// The cost that no run was charged for.
    pub usage: TokenUsage,
    /// The newest summary that no run reported.
    pub summary: Option<SummaryRecord>,
}

/// The messages that a run loaded, and their sizes.
pub(super) struct LoadedMessages {
    pub(super) history: History,
    pub(super) sizes: Sizes,
}

/// The [`WindowMemory`] of each conversation.
#[derive(Default)]
pub(super) struct Windows {
    known: Mutex<HashMap<ThreadId, WindowMemory>>,
    /// What the last run loaded: the next run is usually of the same conversation.
    kept: Mutex<Option<(ThreadId, LoadedMessages)>>,
    /// A summary is not being written any more.
    pub(super) settled: Notify,
}

impl Windows {
    pub(super) fn get(&self, thread: &ThreadId, model: &str) -> WindowMemory {
        let known = self.known.lock().expect("no panic while it is held");
        known.get(thread).cloned().unwrap_or_default().of_model(model)
    }

    pub(super) fn change<T>(&self, thread: &ThreadId, change: impl FnOnce(&mut WindowMemory) -> T) -> T {
        let mut known = self.known.lock().expect("no panic while it is held");
        if known.len() >= REMEMBERED && !known.contains_key(thread) {
            let is_spare = |memory: &WindowMemory| !memory.compacting && memory.bill.is_empty();
            let spare = known.iter().find(|(_, memory)| is_spare(memory)).map(|(thread, _)| thread.clone());
            spare.map(|spare| known.remove(&spare));
        }
        change(known.entry(thread.clone()).or_default())
    }

    /// Returns the position at which requests of a conversation are cut.
    pub(super) fn cut(&self, thread: &ThreadId) -> usize {
        let known = self.known.lock().expect("no panic while it is held");
        known.get(thread).map_or(0, |memory| memory.marks.cut)
    }

    /// Keeps what a run loaded that is over or waits.
    pub(super) fn keep(&self, thread: ThreadId, kept: LoadedMessages) {
        *self.kept.lock().expect("no panic while it is held") = Some((thread, kept));
    }

    /// Takes out what the last run loaded, when it was of this conversation.
    pub(super) fn take_kept(&self, thread: &ThreadId) -> Option<LoadedMessages> {
        let mut kept = self.kept.lock().expect("no panic while it is held");
        kept.take_if(|(known, _)| known == thread).map(|(_, kept)| kept)
    }

    /// Takes the summary that was made in this process and not reported yet, if it is one that `is_meant`.
    pub(super) fn take_unreported(
        &self,
        thread: &ThreadId,
        is_meant: impl FnOnce(&SummaryRecord) -> bool,
    ) -> Option<SummaryRecord> {
        let mut known = self.known.lock().expect("no panic while it is held");
        known.get_mut(thread)?.unreported.take_if(|summary| is_meant(summary))
    }

    /// Adds a request beside runs to what the conversation's next run, or the current one, is charged for.
    pub(super) fn bill(&self, thread: &ThreadId, spent: &ModelUsage) {
        self.change(thread, |memory| ModelUsage::add_to(&mut memory.bill, &spent.model, &spent.usage));
    }

    /// Takes the requests beside runs that no run was charged for yet.
    pub(super) fn take_bill(&self, thread: &ThreadId) -> Vec<ModelUsage> {
        let mut known = self.known.lock().expect("no panic while it is held");
        known.get_mut(thread).map(|memory| std::mem::take(&mut memory.bill)).unwrap_or_default()
    }

    /// Waits until no summary of the conversation is being written, and takes what is not reported yet.
    pub(super) async fn settle(&self, thread: &ThreadId) -> SettledSummaries {
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            // Enabled before the check, so that an end after the check is noticed.
            settled.as_mut().enable();
            let is_busy = self
                .known
                .lock()
                .expect("no panic while it is held")
                .get(thread)
                .is_some_and(|m| m.compacting);
            if !is_busy {
                let mut usage = TokenUsage::default();
                for spent in self.take_bill(thread) {
                    usage.add(&spent.usage);
                }
                return SettledSummaries { usage, summary: self.take_unreported(thread, |_| true) };
            }
            settled.await;
        }
    }
}

/// Returns the tokens reserved for the answer. If the answer could fill the window, no room would be left for
/// a question.
pub(super) fn answer_of(policy: &ContextWindowPolicy) -> usize {
    policy.max_output_tokens.min(policy.max_context_tokens / 2)
}

/// The room for messages in the terms of the estimate: the window without the answer and what else is sent.
pub(super) fn room(policy: Option<&ContextWindowPolicy>, memory: &WindowMemory, fixed: usize) -> usize {
    let room = policy.map_or(usize::MAX, |policy| {
        memory.calibration.before(policy.max_context_tokens - answer_of(policy))
    });
    room.min(memory.ceiling.unwrap_or(usize::MAX)).saturating_sub(fixed)
}

/// Loads as much of a conversation as a request takes, and measures it. `floor`: the messages before it are
/// not sent.
pub(super) async fn load(
    store: &dyn ThreadRunStore,
    thread: &ThreadId,
    (history, sizes): (&mut History, &mut Sizes),
    floor: usize,
    limits: FitLimits,
) -> Result<(), StoreError> {
    sizes.take_in(history);
    while !sizes.suffices(floor, limits) {
        let base = history.base();
        let loaded = base..history.end();
        let missing = limits.room.saturating_sub(sizes.sum(loaded.clone(), usize::MAX));
        let portion = Portion {
            // The message that asked for a result may be before the cut.
            floor: if base > floor { floor } else { 0 },
            bytes: missing.saturating_mul(4).clamp(LOADED.start, LOADED.end),
            count: limits.recent.saturating_sub(loaded.len()),
        };
        history.prepend(store.messages_back(thread, base, portion).await?);
        sizes.take_in(history);
    }
    Ok(())
}
