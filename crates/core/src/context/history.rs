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
    /// The places of the messages before the tail, in order.
    apart: Vec<usize>,
    /// All messages in order: those apart, then the tail. Copies kept beside the history share them;
    /// appending a message meanwhile costs a copy.
    loaded: Arc<Vec<Arc<Message>>>,
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
        let before = apart.into_iter().filter(|(at, _)| *at < base);
        let (apart, mut loaded): (Vec<usize>, Vec<Arc<Message>>) =
            before.map(|(at, message)| (at, Arc::new(message))).unzip();
        loaded.extend(tail.into_iter().map(Arc::new));
        Self { outline, base, apart, loaded: Arc::new(loaded) }
    }

    /// Returns the outline of the whole conversation.
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Returns the number of messages in the conversation, loaded or not.
    pub fn len(&self) -> usize {
        self.outline.count
    }

    /// Returns whether the conversation has no messages.
    pub fn is_empty(&self) -> bool {
        self.outline.count == 0
    }

    /// The place of the first message of the tail.
    pub fn base(&self) -> usize {
        self.base
    }

    /// The place after the last message of the tail.
    pub fn end(&self) -> usize {
        self.base + self.tail().len()
    }

    /// The messages that are loaded in order: the newest ones.
    pub fn tail(&self) -> &[Arc<Message>] {
        &self.loaded[self.apart.len()..]
    }

    /// Those that are loaded from before the tail, with their places.
    pub fn apart(&self) -> impl Iterator<Item = (usize, &Arc<Message>)> {
        self.apart.iter().copied().zip(self.loaded.iter())
    }

    /// All that is loaded, in order.
    pub fn loaded(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.loaded.iter().map(Arc::as_ref)
    }

    /// The same, to be kept beside this history: the messages are shared.
    pub fn shared(&self) -> Arc<Vec<Arc<Message>>> {
        Arc::clone(&self.loaded)
    }

    /// A message that is loaded.
    pub fn get(&self, at: usize) -> Option<&Arc<Message>> {
        match at.checked_sub(self.base) {
            Some(at) => self.tail().get(at),
            None => self.apart.binary_search(&at).ok().map(|nth| &self.loaded[nth]),
        }
    }

    pub fn push(&mut self, message: impl Into<Arc<Message>>) {
        let message = message.into();
        self.outline.push(&message);
        Arc::make_mut(&mut self.loaded).push(message);
    }

    /// Removes the messages appended since the conversation had this outline.
    pub fn back_to(&mut self, outline: Outline) {
        let left = self.apart.len() + outline.count.saturating_sub(self.base);
        Arc::make_mut(&mut self.loaded).truncate(left);
        self.outline = outline;
    }

    /// Inserts messages before the tail; they must end where the tail starts.
    pub fn prepend(&mut self, messages: Vec<Message>) {
        self.base = self.base.saturating_sub(messages.len());
        let kept = self.apart.partition_point(|at| *at < self.base);
        let messages = messages.into_iter().map(Arc::new);
        Arc::make_mut(&mut self.loaded).splice(kept..self.apart.len(), messages);
        self.apart.truncate(kept);
    }

    /// Adds what was loaded later: a history whose tail contains the last message of this one. `None`: the two do not
    /// meet, because the conversation is not what it was or grew by more than was loaded.
    pub fn extended_by(mut self, newer: History) -> Option<History> {
        let last = self.end().checked_sub(1)?;
        let new = (last + 1).checked_sub(newer.base).filter(|count| *count > 0)?;
        if newer.get(last)?.id != self.tail().last()?.id {
            return None;
        }
        let kept = newer.apart.partition_point(|at| *at < self.base);
        let loaded = Arc::make_mut(&mut self.loaded);
        loaded.extend(newer.tail().iter().skip(new).cloned());
        loaded.splice(..self.apart.len(), newer.loaded[..kept].iter().cloned());
        self.apart = newer.apart;
        self.apart.truncate(kept);
        self.outline = newer.outline;
        Some(self)
    }

    /// Forgets what no request needs any more that is cut at this place.
    pub fn forget_before(&mut self, cut: usize) {
        let Some(count) = cut.checked_sub(self.base).filter(|count| *count > 0 && cut <= self.end()) else {
            return;
        };
        let needed = self.outline.needed();
        let places = self.apart.iter().copied().chain(self.base..cut).enumerate();
        let kept: Vec<(usize, usize)> = places.filter(|(_, at)| needed.binary_search(at).is_ok()).collect();
        let messages: Vec<_> = kept.iter().map(|(nth, _)| Arc::clone(&self.loaded[*nth])).collect();
        Arc::make_mut(&mut self.loaded).splice(..self.apart.len() + count, messages);
        self.apart = kept.into_iter().map(|(_, at)| at).collect();
        self.base = cut;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_messages_are_not_copied_or_changed() {
        let mut history = History::from(vec![Message::user("one"), Message::user("two")]);
        let before = history.outline().clone();
        let at = Arc::as_ptr(&history.shared());
        history.push(Message::user("one more"));
        assert_eq!(at, Arc::as_ptr(&history.shared()), "nobody has it any more: nothing is copied");
        history.back_to(before.clone());
        let shared = history.shared();
        history.push(Message::user("three"));
        assert_eq!((shared.len(), history.shared().len()), (2, 3));
        history.back_to(before);
        assert_eq!(history.shared().len(), 2);
        history.forget_before(1);
        assert_eq!(history.shared().len(), 1);
        history.prepend(vec![Message::user("one")]);
        assert_eq!(history.shared().len(), 2);
    }
}
