//! Makes the requests of a conversation again from its rows, and compares each with what its answer keeps of the one that was
//! sent. No model is asked and no tool runs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::images;
use super::window::{Artifacts, marks_of, place_of, rest_hint};
use aye_core::context::{self, Fit, History, Sizes};
use aye_core::contract::content::ContentBlock;
use aye_core::contract::executor::InferenceRequest;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::message::{Message, Role, Visibility};
use aye_core::contract::prefix::PrefixRecord;
use aye_core::contract::sent_request::{RequestDigests, SentRequest};
use aye_core::contract::storage::{StoreError, ThreadRunStore};
use aye_core::contract::summary::{RequestStart, SummaryRecord};

/// A part of a request that can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPart {
    System,
    Tools,
    Messages,
}

/// How a request that is made again compares with the one that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestMatch {
    /// Every byte that the provider got is the same.
    Equal,
    /// These parts are not what they were.
    Differs(Vec<RequestPart>),
    /// The answer keeps nothing of its request: an earlier version of aye wrote it.
    NotKept,
    /// The conversation has no start of requests for it: an earlier version of aye wrote it, or it was imported.
    NoStart,
}

/// One request of a conversation, made again.
#[derive(Clone, Debug)]
pub struct ReplayedRequest {
    /// The place of its answer, from 0.
    pub place: usize,
    pub answer: Arc<Message>,
    /// What the answer keeps of the request that was sent.
    pub sent: Option<SentRequest>,
    /// `None` if the conversation has no start of requests for it.
    pub request: Option<InferenceRequest>,
    /// The start of the request, with the keys of its texts.
    pub start: Option<Arc<RequestStart>>,
    pub compared: RequestMatch,
}

/// A conversation whose requests are made again, in order.
pub struct Replay {
    store: Arc<dyn ThreadRunStore>,
    thread: ThreadId,
    artifacts: Option<Artifacts>,
    messages: Vec<Arc<Message>>,
    starts: Vec<Arc<RequestStart>>,
    /// The next message that may be an answer.
    next: usize,
    history: History,
    sizes: Sizes,
    previews: HashMap<usize, Arc<Message>>,
    digests: RequestDigests,
}

impl Replay {
    /// Reads a conversation. `artifacts`: says how a preview names the rest of its result, as in the runtime.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails or a row is unreadable.
    pub async fn read(
        store: Arc<dyn ThreadRunStore>,
        thread: &ThreadId,
        artifacts: Option<Artifacts>,
    ) -> Result<Replay, StoreError> {
        let messages = store.load_messages(thread).await?;
        let starts = store.request_starts(thread).await?.into_iter().map(Arc::new).collect();
        Ok(Replay {
            store,
            thread: thread.clone(),
            artifacts,
            messages: messages.into_iter().map(|stored| Arc::new(stored.message)).collect(),
            starts,
            next: 0,
            history: History::default(),
            sizes: Sizes::default(),
            previews: HashMap::new(),
            digests: RequestDigests::default(),
        })
    }

    /// Returns the messages of the conversation.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// Makes the next request; `None` after the last one.
    pub async fn next(&mut self) -> Option<ReplayedRequest> {
        let place = (self.next..self.messages.len()).find(|at| is_answer(&self.messages[*at]))?;
        self.next = place + 1;
        let answer = Arc::clone(&self.messages[place]);
        let sent = SentRequest::of_answer(&answer);
        // A row may say anything.
        let at = sent.as_ref().map_or(place, |sent| place_of(sent.at).min(place));
        let start = self.starts.iter().rev().find(|start| place_of(start.prefix.at_seq) <= at).cloned();
        let (request, compared) = match &start {
            None => (None, RequestMatch::NoStart),
            Some(start) => {
                let request = self.request(start, at, sent.as_ref()).await;
                let compared = self.compare(&request, sent.as_ref());
                (Some(request), compared)
            }
        };
        Some(ReplayedRequest { place, answer, sent, request, start, compared })
    }

    async fn request(
        &mut self,
        start: &RequestStart,
        at: usize,
        sent: Option<&SentRequest>,
    ) -> InferenceRequest {
        if self.history.len() > at {
            (self.history, self.sizes) = (History::default(), Sizes::default());
        }
        for message in &self.messages[self.history.len()..at] {
            self.history.push(Arc::clone(message));
        }
        self.sizes.take_in(&self.history);
        let prefix = &start.prefix;
        let pinned = prefix.pinned.iter().map(|at| place_of(*at));
        let pinned: Vec<_> = pinned.filter_map(|at| Some((at, Arc::clone(self.history.get(at)?)))).collect();
        let Self { history, sizes, previews, artifacts, thread, .. } = self;
        let marks = marks_of(prefix);
        for at in pinned.iter().map(|(at, _)| *at).chain(marks.cut..marks.previewed) {
            let Some(message) = history.get(at).filter(|_| sizes.has_preview(at)) else { continue };
            if let Entry::Vacant(place) = previews.entry(at) {
                let rest = rest_hint(artifacts.as_ref(), thread, message).await;
                place.insert(Arc::new(context::preview(message, &rest)));
            }
        }
        let preview = |at: usize| previews.get(&at).cloned();
        let mut messages = messages_since(prefix, start.summary.as_ref(), history, sizes, &pinned, preview);
        images::fill(&*self.store, &mut messages).await;
        InferenceRequest {
            model: sent.map(|sent| sent.model.clone()).unwrap_or_default(),
            system: prefix.system.iter().map(|part| ContentBlock::text(part.text.clone())).collect(),
            messages: Arc::new(messages),
            tools: prefix.tools.clone(),
            overrides: sent.map(SentRequest::parameters).unwrap_or_default(),
            enable_prompt_cache: sent.is_none_or(|sent| !sent.uncached),
            ..InferenceRequest::default()
        }
    }

    fn compare(&mut self, request: &InferenceRequest, sent: Option<&SentRequest>) -> RequestMatch {
        let Some(sent) = sent else { return RequestMatch::NotKept };
        let made = self.digests.sent(request, sent.at);
        let parts = [
            (RequestPart::System, made.system != sent.system),
            (RequestPart::Tools, made.tools != sent.tools),
            (RequestPart::Messages, made.messages != sent.messages),
        ];
        let parts: Vec<_> = parts.into_iter().filter(|(_, differs)| *differs).map(|(part, _)| part).collect();
        if parts.is_empty() { RequestMatch::Equal } else { RequestMatch::Differs(parts) }
    }
}

/// Returns whether a message is what a model answered to a request.
fn is_answer(message: &Message) -> bool {
    let about = |key: &str| message.metadata.as_ref().is_some_and(|about| about.get(key).is_some());
    message.role == Role::Assistant && (about("model") || about("interrupted"))
}

/// Returns the messages without the thoughts that only the model that had them takes back.
pub fn messages_without_thoughts(messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let is_thought =
        |block: &ContentBlock| matches!(block, ContentBlock::Thinking { .. } | ContentBlock::Opaque { .. });
    let without = |message: &Arc<Message>| {
        if !message.content.iter().any(is_thought)
            && message.tool_calls.iter().all(|call| call.signatures.is_empty())
        {
            return Arc::clone(message);
        }
        let mut message = Message::clone(message);
        message.content.retain(|block| !is_thought(block));
        message.tool_calls.iter_mut().for_each(|call| call.signatures.clear());
        Arc::new(message)
    };
    messages.iter().map(without).collect()
}

/// Returns the messages of a request with this start, without the bytes of images.
pub(super) fn messages_since(
    prefix: &PrefixRecord,
    summary: Option<&SummaryRecord>,
    history: &History,
    sizes: &Sizes,
    pinned: &[(usize, Arc<Message>)],
    preview: impl FnMut(usize) -> Option<Arc<Message>>,
) -> Vec<Arc<Message>> {
    let fit = Fit {
        marks: marks_of(prefix),
        pinned: pinned.iter().map(|(at, _)| *at).collect(),
        left_out: place_of(prefix.left_out),
        tokens: 0,
        is_over: false,
    };
    let summary = summary.map(SummaryRecord::for_model);
    let messages = context::assemble(history, sizes, &fit, summary.as_deref(), pinned, preview);
    // Thoughts of another start are not sent.
    let from = place_of(prefix.thoughts_from);
    let old = (history.base()..from).filter_map(|at| history.get(at));
    let old: Vec<_> =
        old.chain(pinned.iter().filter(|(at, _)| *at < from).map(|(_, message)| message)).collect();
    let sent = messages.iter().filter(|message| message.visibility != Visibility::Person).map(|message| {
        let is_old = || old.iter().any(|old| old.id == message.id);
        if !message.content.iter().any(ContentBlock::is_bound) || !is_old() {
            return Arc::clone(message);
        }
        let mut message = Message::clone(message);
        message.content.retain(|block| !block.is_bound());
        Arc::new(message)
    });
    sent.collect()
}
