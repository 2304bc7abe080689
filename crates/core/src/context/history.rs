//! As much of a conversation as is loaded: its end, and what of the rest goes into each request.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::contract::message::Message;
use crate::contract::outline::Outline;

/// The loaded part of a conversation. Places count from 0 over the whole conversation.
#[derive(Clone, Debug, Default)]
pub struct History {
    outline: Outline,
    /// The place of the first message of the tail.
    base: usize,
    tail: Vec<Arc<Message>>,
    /// Messages before the tail.
    apart: BTreeMap<usize, Arc<Message>>,
}

impl From<Vec<Message>> for History {
    fn from(messages: Vec<Message>) -> Self {
        let outline = Outline::of(&messages);
        Self::part(outline, 0, messages, BTreeMap::new())
    }
}

impl History {
    /// A part of a conversation: messages in order from a place on, and some from before it.
    pub fn part(outline: Outline, base: usize, tail: Vec<Message>, apart: BTreeMap<usize, Message>) -> Self {
        let tail = tail.into_iter().map(Arc::new).collect();
        let apart = apart.into_iter().map(|(at, message)| (at, Arc::new(message))).collect();
        Self { outline, base, tail, apart }
    }

    /// What the whole conversation amounts to.
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// How many messages the conversation has, loaded or not.
    pub fn len(&self) -> usize {
        self.outline.count
    }

    /// Whether the conversation has no message.
    pub fn is_empty(&self) -> bool {
        self.outline.count == 0
    }

    /// The place of the first message of the tail.
    pub fn base(&self) -> usize {
        self.base
    }

    /// The place after the last message of the tail.
    pub fn end(&self) -> usize {
        self.base + self.tail.len()
    }

    /// The messages that are loaded in order: the newest ones.
    pub fn tail(&self) -> &[Arc<Message>] {
        &self.tail
    }

    /// Those that are loaded from before the tail, with their places.
    pub fn apart(&self) -> impl Iterator<Item = (usize, &Arc<Message>)> {
        self.apart.range(..self.base).map(|(at, message)| (*at, message))
    }

    /// All that is loaded, in order.
    pub fn loaded(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.apart.range(..self.base).map(|(_, message)| message).chain(&self.tail).map(Arc::as_ref)
    }

    /// The same, to be kept beside this history: the messages are shared.
    pub fn shared(&self) -> Arc<[Arc<Message>]> {
        self.apart.range(..self.base).map(|(_, message)| message).chain(&self.tail).cloned().collect()
    }

    /// A message that is loaded.
    pub fn get(&self, at: usize) -> Option<&Arc<Message>> {
        match at.checked_sub(self.base) {
            Some(at) => self.tail.get(at),
            None => self.apart.get(&at),
        }
    }

    /// Appends a message.
    pub fn push(&mut self, message: impl Into<Arc<Message>>) {
        let message = message.into();
        self.outline.push(&message);
        self.tail.push(message);
    }

    /// Takes back what was appended since the conversation had this outline.
    pub fn back_to(&mut self, outline: Outline) {
        self.tail.truncate(outline.count.saturating_sub(self.base));
        self.outline = outline;
    }

    /// Puts messages before the tail that end where it begins.
    pub fn prepend(&mut self, messages: Vec<Message>) {
        self.base = self.base.saturating_sub(messages.len());
        self.tail.splice(..0, messages.into_iter().map(Arc::new));
        self.apart.split_off(&self.base);
    }

    /// Adds what was loaded later: a history whose tail contains the last message of this one. `None`: the two do not
    /// meet, because the conversation is not what it was or grew by more than was loaded.
    pub fn extended_by(mut self, newer: History) -> Option<History> {
        let last = self.end().checked_sub(1)?;
        let new = (last + 1).checked_sub(newer.base).filter(|count| *count > 0)?;
        if newer.get(last)?.id != self.tail.last()?.id {
            return None;
        }
        self.tail.extend(newer.tail.into_iter().skip(new));
        let mut apart = newer.apart;
        apart.split_off(&self.base);
        Some(Self { outline: newer.outline, base: self.base, tail: self.tail, apart })
    }

    /// Forgets what no request needs any more that is cut at this place.
    pub fn forget_before(&mut self, cut: usize) {
        let Some(count) = cut.checked_sub(self.base).filter(|count| *count > 0 && cut <= self.end()) else {
            return;
        };
        let needed = self.outline.needed();
        let base = self.base;
        for (at, message) in (base..).zip(self.tail.drain(..count)) {
            if needed.binary_search(&at).is_ok() {
                self.apart.insert(at, message);
            }
        }
        self.base = cut;
        self.apart.retain(|at, _| needed.binary_search(at).is_ok());
    }
}
