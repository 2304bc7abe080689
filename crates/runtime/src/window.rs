//! Chooses what part of a conversation goes into a request, and remembers it between requests.
//!
//! Each request begins with the whole of the one before: system text, tools and cuts are frozen with the first request
//! ([`PrefixRecord`], stored with the conversation), and what changes later is said in messages at the end. Only a
//! compaction starts anew: a summary, or messages left out or shortened because they do not fit.

mod summary;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::future::BoxFuture;

use super::carry;
use super::compact::place;
use super::driver::Driver;
use super::images;
use super::windows::{LoadedMessages, WindowMemory, answer_of, load, room};
use super::{AgentRuntime, RunRequest, RuntimeError, resolve};
use aye_core::context::{self, Fit, FitLimits, History, Marks, PromptNow, Sizes, estimate};
use aye_core::contract::activity::Activity;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::ids::{CallId, MessageId, ThreadId};
use aye_core::contract::inference::TokenUsage;
use aye_core::contract::message::{Message, Role, Visibility};
use aye_core::contract::prefix::{PrefixRecord, PromptChanges, PromptChangesKey, PromptPart};
use aye_core::contract::sent_request::RequestDigests;
use aye_core::contract::summary::SummaryRecord;
use aye_core::contract::tool::ToolDescriptor;
use aye_core::state::MutationBatch;

/// The number of unneeded messages from which they are dropped from memory.
const FORGOTTEN: usize = 256;
const GO_ON: &str = "Your last answer was cut off at the output limit inside a tool call. That call was \
                     dropped: it did not run. Continue, and split the work into several short calls instead \
                     of one long call.";

/// A tool result that becomes a preview, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    pub thread_id: ThreadId,
    pub call_id: CallId,
    pub text: String,
}

/// Keeps a result where the model can read it, and says how, in a sentence for the model. The same result may come
/// more than once, and then leads to the same sentence.
pub type Artifacts = Arc<dyn Fn(Artifact) -> BoxFuture<'static, Option<String>> + Send + Sync>;

/// The next request beside its messages.
pub(super) struct Prompt {
    pub(super) parts: Vec<PromptPart>,
    pub(super) tools: Vec<ToolDescriptor>,
    /// What happened: each becomes a message.
    pub(super) events: Vec<String>,
}

/// What fits into a request.
pub(super) struct Packed {
    pub(super) system: Vec<ContentBlock>,
    pub(super) tools: Vec<ToolDescriptor>,
    pub(super) messages: Arc<Vec<Arc<Message>>>,
}

/// What does not change with a start of requests.
#[derive(Default)]
struct Frozen {
    /// The record that it is about.
    of: Option<Arc<PrefixRecord>>,
    /// The tokens of its system text and tools.
    tokens: usize,
    /// Messages with thoughts that belong to another start.
    bound: HashSet<MessageId>,
    /// The messages before its cut that are in it all the same.
    pinned: Vec<(usize, Arc<Message>)>,
}

/// A driver's knowledge of its requests.
#[derive(Default)]
pub(super) struct Packing {
    sizes: Sizes,
    summary: Option<Arc<SummaryRecord>>,
    /// The newest summary when the run was loaded, if there was one.
    loaded: Option<SummaryRecord>,
    /// Whether the summary has not been read yet; the loaded one is then used without asking the store.
    is_fresh: bool,
    /// Whether the outline does not cover all messages of the conversation and its completion has not been
    /// started.
    is_assumed: bool,
    previews: HashMap<usize, Arc<Message>>,
    /// The start of the requests, once there was one.
    prefix: Option<Arc<PrefixRecord>>,
    /// Facts about that start.
    frozen: Frozen,
    /// Whether the thoughts of the conversation were refused, and this is the other try.
    is_without_thoughts: bool,
    /// The number of images that the last request left out.
    images_left_out: usize,
    /// What makes the digests of the requests.
    pub(super) digests: RequestDigests,
    /// The estimated size of the current request.
    estimated: usize,
    /// A request was refused as too long, and this is the other try.
    is_second: bool,
    /// The answer lost a call to the output limit, beside others that run.
    pub(super) was_cut: bool,
    /// Whether an answer was cut off and the model may not be asked to continue again.
    pub(super) is_exhausted: bool,
}

impl Packing {
    /// Of a conversation whose newest summary is this one, whose requests start like this; `is_assumed`: whose outline is
    /// not known of all its messages.
    pub(super) fn of(
        summary: Option<SummaryRecord>,
        prefix: Option<PrefixRecord>,
        sizes: Sizes,
        is_assumed: bool,
    ) -> Packing {
        let prefix = prefix.map(Arc::new);
        Packing { loaded: summary, is_fresh: true, sizes, prefix, is_assumed, ..Packing::default() }
    }

    /// Returns whether the thoughts of the conversation were refused, and this is the other try.
    pub(super) fn is_without_thoughts(&self) -> bool {
        self.is_without_thoughts
    }

    /// Returns whether the model was told of a tool since its conversation started, and not that it cannot be used.
    pub(super) fn was_offered(&self, changes: PromptChanges, tool: &str) -> bool {
        self.prefix.as_ref().is_some_and(|prefix| changes.since(prefix).offers(prefix, tool))
    }
}

/// Returns the sentence in a preview that says where the rest is.
pub(super) async fn rest_hint(artifacts: Option<&Artifacts>, thread: &ThreadId, message: &Message) -> String {
    let kept = match artifacts {
        Some(keep) => {
            keep(Artifact {
                thread_id: thread.clone(),
                call_id: CallId::from(message.tool_call_id.as_deref().unwrap_or_default()),
                text: message.text(),
            })
            .await
        }
        None => None,
    };
    kept.unwrap_or_else(|| "The rest was not saved; call again with a smaller range.".into())
}

impl AgentRuntime {
    /// Checks that the messages fit into the window of the model that will read them, by the estimate.
    ///
    /// # Errors
    /// [`RuntimeError::TooLarge`], [`RuntimeError::AgentNotFound`].
    pub fn fits(&self, request: &RunRequest) -> Result<(), RuntimeError> {
        let agent_id = self.agent_of(request)?;
        let shared = &self.inner.shared;
        let catalog = shared.catalog();
        let Some(spec) = catalog.agents.get(&agent_id) else { return Ok(()) };
        let Some(policy) = &spec.context_policy else { return Ok(()) };
        let model = request.overrides.model.as_ref().unwrap_or(&spec.model);
        let seen = request.messages.iter().filter(|message| message.visibility != Visibility::Person);
        let tokens = estimate::messages_tokens(seen);
        let WindowMemory { calibration, beside, .. } = shared.windows.get(&request.thread_id, model);
        let beside = beside
            .unwrap_or_else(|| spec.system_prompt.len() / 4 + resolve::own_tools_tokens(&catalog, spec));
        if tokens <= room(Some(policy), &WindowMemory { calibration, ..WindowMemory::default() }, beside) {
            return Ok(());
        }
        let window =
            (policy.max_context_tokens - answer_of(policy)).saturating_sub(calibration.apply(beside));
        Err(RuntimeError::TooLarge { tokens: calibration.apply(tokens), window, model: model.clone() })
    }
}

impl Driver {
    /// Fits the next request into the window. It begins with the whole of the one before, unless a compaction is due.
    pub(super) async fn pack(&mut self, prompt: Prompt) -> Result<Packed, RuntimeError> {
        self.load_new_summary().await;
        self.emit_all(&prompt.events);
        let upto = self.packing.summary.as_ref().map_or(0, |summary| summary.upto_seq);
        let known = self.packing.prefix.clone().filter(|prefix| prefix.summary_upto == upto);
        if let Some(prefix) = known.filter(|_| self.remote.is_none()) {
            self.report_changes(&prefix, &prompt)?;
            self.freeze_facts(&prefix).await?;
            let fit = self.grown(&prefix);
            let next = self.next_marks(&prefix, &fit);
            if next.is_none_or(|marks| marks == fit.marks)
                && let Some(messages) = self.assembled(&prefix, &fit).await
            {
                return Ok(self.packed(&prefix, &fit, messages).await);
            }
        }
        self.start_anew(prompt).await
    }

    /// Adds messages about what happened to the end of the conversation, unless the model has just read them.
    fn emit_all(&mut self, events: &[String]) {
        if self.remote.is_some() {
            return;
        }
        // A request has to end with something to answer; what is sent stays.
        let last = self.history.tail().iter().rev().find(|message| message.visibility != Visibility::Person);
        if last.is_some_and(|last| last.role == Role::Assistant && !last.text().trim().is_empty()) {
            let mut message = Message::user("Continue.");
            message.visibility = Visibility::Internal;
            self.append_message(message);
        }
        for event in events {
            if !is_just_read(&self.history, event) {
                self.append_message(Message::context(event.as_str()));
            }
        }
    }

    /// Adds messages about what changed since the start of the requests was frozen.
    fn report_changes(&mut self, prefix: &PrefixRecord, prompt: &Prompt) -> Result<(), RuntimeError> {
        let known = self.prompt_changes();
        let mut changes = known.clone().since(prefix);
        let (shape, tools) = (&self.inference.shape, &self.agent.tools);
        let now = PromptNow {
            parts: &prompt.parts,
            tools: &prompt.tools,
            is_callable: &|tool| tools.contains_key(tool) && !shape.withholds(tool),
            is_shown: &|text| is_just_read(&self.history, text),
        };
        let texts = changes.tell(prefix, &now);
        if changes.parts != known.parts || changes.tools != known.tools {
            self.set_prompt_changes(changes)?;
        }
        for text in texts {
            self.append_message(Message::context(text));
        }
        Ok(())
    }

    /// The changes of the prompt that the model was told of.
    pub(super) fn prompt_changes(&self) -> PromptChanges {
        self.phases.store().read::<PromptChangesKey>().unwrap_or_default()
    }

    fn set_prompt_changes(&self, changes: PromptChanges) -> Result<(), RuntimeError> {
        let mut batch = MutationBatch::new();
        batch.update::<PromptChangesKey>(changes);
        self.phases.store().commit_batch(batch)?;
        Ok(())
    }

    /// Loads all messages that a start of requests and what grew from it contain.
    async fn freeze_facts(&mut self, prefix: &Arc<PrefixRecord>) -> Result<(), RuntimeError> {
        let (thread, floor) = (self.record.thread_id.clone(), place_of(prefix.cut));
        let loaded = (&mut self.history, &mut self.packing.sizes);
        let all = FitLimits { room: usize::MAX, recent: 0 };
        load(&*self.shared.store, &thread, loaded, floor, all).await?;
        if self.packing.frozen.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, prefix)) {
            return Ok(());
        }
        let system: usize = prefix.system.iter().map(|part| part.text.len() / 4 + 4).sum();
        let tokens = system + prefix.tools.iter().map(estimate::tool_tokens).sum::<usize>();
        let mut pinned = Vec::new();
        for at in prefix.pinned.iter().map(|at| place_of(*at)) {
            let message = match self.history.get(at) {
                Some(message) => Some(Arc::clone(message)),
                None => {
                    self.shared.store.messages_from(&thread, at, 1).await?.into_iter().next().map(Arc::new)
                }
            };
            pinned.extend(message.map(|message| (at, message)));
        }
        let from = place_of(prefix.thoughts_from);
        let is_bound = |message: &Message| message.content.iter().any(ContentBlock::is_bound);
        let apart = pinned.iter().filter(|(at, _)| *at < from).map(|(_, message)| message);
        let bound = (floor..from).filter_map(|at| self.history.get(at)).chain(apart);
        let bound = bound.filter(|message| is_bound(message)).map(|message| message.id.clone()).collect();
        self.packing.frozen = Frozen { of: Some(Arc::clone(prefix)), tokens, bound, pinned };
        Ok(())
    }

    /// The messages of a request that begins with the one before.
    fn grown(&self, prefix: &PrefixRecord) -> Fit {
        let marks = marks_of(prefix);
        let sizes = &self.packing.sizes;
        let cost = |(at, message): &(usize, Arc<Message>)| {
            if *at < marks.previewed {
                context::short_tokens(message)
            } else {
                estimate::message_tokens(message)
            }
        };
        let tokens = sizes.sum(0..sizes.leading(), 0)
            + self.packing.frozen.pinned.iter().map(cost).sum::<usize>()
            + sizes.sum(marks.cut.max(sizes.leading())..sizes.len(), marks.previewed);
        let room = self.room_beside(self.packing.frozen.tokens);
        Fit {
            marks,
            pinned: self.packing.frozen.pinned.iter().map(|(at, _)| *at).collect(),
            left_out: place_of(prefix.left_out),
            tokens,
            is_over: tokens > room,
        }
    }

    /// The tokens of the summary.
    fn summary_tokens(&self) -> usize {
        let summary = self.packing.summary.as_ref();
        summary.map_or(0, |s| estimate::message_tokens(&context::summary_message(&s.for_model())))
    }

    fn room_beside(&self, fixed: usize) -> usize {
        let memory = self.shared.windows.get(&self.record.thread_id, &self.agent.model_id);
        room(self.agent.spec.context_policy.as_ref(), &memory, fixed + self.summary_tokens())
    }

    fn limits_beside(&self, fixed: usize) -> FitLimits {
        let recent = if self.packing.is_second {
            1
        } else {
            self.agent.spec.context_policy.as_ref().map_or(usize::MAX, |policy| policy.min_recent_messages)
        };
        FitLimits { room: self.room_beside(fixed), recent }
    }

    /// Where the conversation is cut if its requests start anew. `None`: they need not.
    fn next_marks(&self, prefix: &PrefixRecord, fit: &Fit) -> Option<Marks> {
        let memory = self.shared.windows.get(&self.record.thread_id, &self.agent.model_id);
        let threshold =
            self.agent.spec.context_policy.as_ref().and_then(|policy| policy.autocompact_threshold);
        let is_due = threshold.is_some_and(|threshold| memory.calibration.apply(fit.tokens) >= threshold);
        if !fit.is_over && !is_due {
            return None;
        }
        let from = place_of(prefix.summary_upto);
        let limits = self.limits_beside(self.packing.frozen.tokens);
        Some(context::fit(&self.packing.sizes, from, fit.marks, limits).marks)
    }

    /// Adds a message about what a summary may have lost.
    async fn carry_over(&mut self) {
        if self.remote.is_some() {
            return;
        }
        let (shared, thread) = (Arc::clone(&self.shared), self.record.thread_id.clone());
        let commands = shared.store.commands(&thread).await.unwrap_or_else(|error| {
            tracing::warn!(%thread, %error, "background commands cannot be read");
            Vec::new()
        });
        let tasks = shared.store.tasks(&thread).await.unwrap_or_else(|error| {
            tracing::warn!(%thread, %error, "background tasks cannot be read");
            Vec::new()
        });
        let commands: Vec<_> = commands.into_iter().map(|record| shared.as_it_stands(record)).collect();
        if let Some(text) = carry::known(self.phases.store(), &commands, &tasks) {
            self.append_message(Message::context(text));
        }
    }

    /// Freezes the start of the requests anew, with all that is known now.
    async fn start_anew(&mut self, prompt: Prompt) -> Result<Packed, RuntimeError> {
        let Prompt { parts: system, tools, events: _ } = prompt;
        let thread = self.record.thread_id.clone();
        let known = self.packing.prefix.take();
        let upto = self.packing.summary.as_ref().map_or(0, |summary| summary.upto_seq);
        if known.as_ref().is_some_and(|prefix| prefix.summary_upto != upto) {
            self.carry_over().await;
        }
        let before = known.as_ref().map_or_else(
            || self.shared.windows.get(&thread, &self.agent.model_id).marks,
            |prefix| marks_of(prefix),
        );
        let from = self.packing.summary.as_ref().map_or(0, |summary| place(summary));
        let tokens = system.iter().map(|part| part.text.len() / 4 + 4).sum::<usize>()
            + tools.iter().map(estimate::tool_tokens).sum::<usize>();
        let limits = self.limits_beside(tokens);
        let loaded = (&mut self.history, &mut self.packing.sizes);
        load(&*self.shared.store, &thread, loaded, from.max(before.cut), limits).await?;
        let fit = context::fit(&self.packing.sizes, from, before, limits);
        let at_seq = self.history.len() as u64;
        let mut prefix = Arc::new(PrefixRecord {
            at_seq,
            thoughts_from: at_seq,
            summary_upto: upto,
            cut: fit.marks.cut as u64,
            previewed: fit.marks.previewed as u64,
            pinned: fit.pinned.iter().map(|at| *at as u64).collect(),
            left_out: fit.left_out as u64,
            images_left_out: 0,
            system,
            tools,
            created_at: self.shared.clock.now_ms(),
        });
        self.freeze_facts(&prefix).await?;
        let mut messages = self.put_together(&fit).await;
        if self.packing.sizes.has_images() {
            let left_out =
                images::fill(&*self.shared.store, Arc::make_mut(&mut messages).as_mut_slice()).await;
            Arc::make_mut(&mut prefix).images_left_out = left_out as u64;
        }
        self.packing.frozen.of = Some(Arc::clone(&prefix));
        let changes = self.prompt_changes();
        if !changes.parts.is_empty() || !changes.tools.is_empty() {
            self.set_prompt_changes(PromptChanges { at_seq, ..PromptChanges::default() })?;
        }
        self.keep_prefix(&prefix);
        Ok(self.packed(&prefix, &fit, messages).await)
    }

    /// Uses a start of requests from now on, and has it stored with the next checkpoint.
    fn keep_prefix(&mut self, prefix: &Arc<PrefixRecord>) {
        if self.remote.is_none() {
            self.unsaved.prefix = Some(PrefixRecord::clone(prefix));
            self.packing.prefix = Some(Arc::clone(prefix));
        }
    }

    /// Puts the messages of a request together, without the bytes of images.
    async fn put_together(&mut self, fit: &Fit) -> Arc<Vec<Arc<Message>>> {
        self.shorten(fit).await;
        let Packing { sizes, summary, previews, frozen, .. } = &self.packing;
        let summary = summary.as_ref().map(|summary| summary.for_model());
        let mut messages =
            context::assemble(&self.history, sizes, fit, summary.as_deref(), &frozen.pinned, |at| {
                previews.get(&at).cloned()
            });
        // Reading all messages again would cost more with each turn.
        if sizes.has_user_only() {
            Arc::make_mut(&mut messages).retain(|message| message.visibility != Visibility::Person);
        }
        if !frozen.bound.is_empty() {
            let is_bound = |message: &&mut Arc<Message>| frozen.bound.contains(&message.id);
            for message in Arc::make_mut(&mut messages).iter_mut().filter(is_bound) {
                Arc::make_mut(message).content.retain(|block| !block.is_bound());
            }
        }
        messages
    }

    /// The messages of a request; `None` if other images than before have to be left out.
    async fn assembled(&mut self, prefix: &PrefixRecord, fit: &Fit) -> Option<Arc<Vec<Arc<Message>>>> {
        let mut messages = self.put_together(fit).await;
        if self.packing.sizes.has_images() {
            if images::left_out(&messages) as u64 != prefix.images_left_out {
                return None;
            }
            images::fill(&*self.shared.store, Arc::make_mut(&mut messages).as_mut_slice()).await;
        }
        Some(messages)
    }

    /// Notes a request that is about to be sent.
    async fn packed(&mut self, prefix: &PrefixRecord, fit: &Fit, messages: Arc<Vec<Arc<Message>>>) -> Packed {
        let (fixed, summary) = (self.packing.frozen.tokens, self.summary_tokens());
        self.packing.estimated = fixed + summary + fit.tokens;
        let (thread, model) = (self.record.thread_id.clone(), self.agent.model_id.clone());
        let memory = self.shared.windows.change(&thread, |known| {
            *known = std::mem::take(known).of_model(&model);
            known.marks = fit.marks;
            known.beside = Some(fixed);
            known.clone()
        });
        self.report_images(place_of(prefix.images_left_out)).await;
        if fit.marks.cut > self.history.base() + FORGOTTEN {
            self.history.forget_before(fit.marks.cut);
        }
        self.complete_outline();
        if let Some(policy) = self.agent.spec.context_policy.clone() {
            self.compact_if_due(&policy, &memory, summary + fit.tokens, fit.left_out > 0);
        }
        Packed {
            system: prefix.system.iter().map(|part| ContentBlock::text(part.text.clone())).collect(),
            tools: prefix.tools.clone(),
            messages,
        }
    }

    /// Drops the thoughts so far from the requests, because the provider refuses them. Returns `false` if they were
    /// dropped already.
    pub(super) fn drop_thoughts(&mut self) -> Result<bool, RuntimeError> {
        let Some(known) = self.packing.prefix.clone() else { return Ok(false) };
        if std::mem::replace(&mut self.packing.is_without_thoughts, true) {
            return Ok(false);
        }
        self.restart_at_end(&known, self.history.len() as u64)?;
        Ok(true)
    }

    /// Has the requests start like `prefix` from here on, with thoughts from this place on.
    fn restart_at_end(&mut self, prefix: &PrefixRecord, thoughts_from: u64) -> Result<(), RuntimeError> {
        let at_seq = self.history.len() as u64;
        let changes = PromptChanges { at_seq, ..self.prompt_changes().since(prefix) };
        self.set_prompt_changes(changes)?;
        self.keep_prefix(&Arc::new(PrefixRecord { at_seq, thoughts_from, ..prefix.clone() }));
        Ok(())
    }

    /// Reports that images are left out of the request, when it is more than in the request before.
    async fn report_images(&mut self, left_out: usize) {
        let before = std::mem::replace(&mut self.packing.images_left_out, left_out);
        if left_out > before {
            let (images, are) = if left_out == 1 { ("image", "is") } else { ("images", "are") };
            let words = format!(
                "{left_out} older {images} of this conversation {are} no longer sent to the model: a request may \
                 have {} images above {} pixels, and some 30 MB, at most",
                images::MANY,
                images::LARGE
            );
            self.emit_activities(vec![Activity::notice("", words)]).await;
        }
    }

    /// Has the rest of a conversation read, once and beside the request, of which only the end is known.
    fn complete_outline(&mut self) {
        if std::mem::take(&mut self.packing.is_assumed) {
            let (store, thread) = (Arc::clone(&self.shared.store), self.record.thread_id.clone());
            tokio::spawn(async move {
                if let Err(error) = store.complete_outline(&thread).await {
                    tracing::warn!(%thread, %error, "the outline of the conversation is not complete");
                }
            });
        }
    }

    /// Makes the previews that are needed and not there yet, off the runtime's threads.
    async fn shorten(&mut self, fit: &Fit) {
        let (sizes, known) = (&self.packing.sizes, &self.packing.previews);
        let wanted: Vec<(usize, Arc<Message>)> = (fit.pinned.iter().copied())
            .chain(fit.marks.cut..fit.marks.previewed)
            .filter(|at| sizes.has_preview(*at) && !known.contains_key(at))
            .filter_map(|at| Some((at, self.history.get(at)?.clone())))
            .collect();
        if wanted.is_empty() {
            return;
        }
        let mut kept = Vec::new();
        for (at, message) in wanted {
            let how = rest_hint(self.shared.artifacts.as_ref(), &self.record.thread_id, &message).await;
            kept.push((at, message, how));
        }
        let make = |(at, message, how): (usize, Arc<Message>, String)| {
            (at, Arc::new(context::preview(&message, &how)))
        };
        match tokio::task::spawn_blocking(move || kept.into_iter().map(make).collect::<Vec<_>>()).await {
            Ok(made) => self.packing.previews.extend(made),
            Err(error) => tracing::error!(%error, "large results stay whole"),
        }
    }

    /// Leaves the messages that are loaded to the next run of the conversation.
    pub(super) fn keep_window(self) {
        let Self { shared, record, history, packing, .. } = self;
        shared.windows.keep(record.thread_id, LoadedMessages { history, sizes: packing.sizes });
    }

    /// Takes in what the provider counted for the request.
    pub(super) fn calibrate(&mut self, usage: Option<&TokenUsage>) {
        (self.packing.is_second, self.packing.is_without_thoughts) = (false, false);
        self.charge_bill();
        let estimated = self.packing.estimated;
        let reported = usage.and_then(|usage| usage.prompt_tokens);
        self.shared.windows.change(&self.record.thread_id, |memory| {
            memory.accepted = memory.accepted.max(estimated);
            memory.suspected = None;
            if let Some(reported) = reported {
                memory.calibration.learn(estimated, reported);
            }
        });
    }

    /// Returns whether the request is larger than any that the model answered in this conversation, and fills more than
    /// half of its window.
    pub(super) fn is_larger_than_any_accepted(&self) -> bool {
        let Some(policy) = &self.agent.spec.context_policy else { return false };
        let memory = self.shared.windows.get(&self.record.thread_id, &self.agent.model_id);
        let estimated = self.packing.estimated;
        estimated > memory.accepted && memory.calibration.apply(estimated) > policy.max_context_tokens / 2
    }

    /// Restores the limit that a refusal lowered, once a shorter request was refused as well: the length was not the
    /// reason.
    pub(super) fn forget_suspected_limit(&mut self) -> Result<(), RuntimeError> {
        let suspected = self.shared.windows.change(&self.record.thread_id, |memory| {
            let suspected = memory.suspected.take()?;
            memory.ceiling = suspected.before;
            Some(suspected)
        });
        match suspected.and_then(|suspected| suspected.prefix) {
            Some(prefix) => self.restart_at_end(&prefix, prefix.thoughts_from),
            None => Ok(()),
        }
    }

    /// Whether the model may be asked once more to continue a cut-off answer: the limit applies to a run
    /// across all its restarts.
    pub(super) fn may_continue_answer(&self) -> bool {
        self.history.outline().continued < self.agent.spec.max_continuation_retries
    }

    /// Asks the model to continue an answer that lost a call to the output limit.
    pub(super) fn ask_to_continue_answer(&mut self) {
        self.append_message(Message::continuation(GO_ON));
    }
}

/// Whether the model is about to read a text for another reason: it is in a message since its last answer.
fn is_just_read(history: &History, text: &str) -> bool {
    let since = history.tail().iter().rev().take_while(|message| message.role != Role::Assistant);
    since
        .filter(|message| message.visibility != Visibility::Person)
        .any(|message| message.text().contains(text))
}

/// Where a start of requests cuts the conversation.
pub(super) fn marks_of(prefix: &PrefixRecord) -> Marks {
    Marks { cut: place_of(prefix.cut), previewed: place_of(prefix.previewed) }
}

/// A place in a conversation.
pub(super) fn place_of(seq: u64) -> usize {
    usize::try_from(seq).unwrap_or(usize::MAX)
}
