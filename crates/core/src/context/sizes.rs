//! The token costs of a conversation's messages, and the positions where it can be cut. Messages are only
//! ever appended, so each is measured once. Unloaded messages have no size: the facts that are needed about
//! them are in the [`Outline`].

use std::collections::{BTreeMap, HashMap, HashSet};

use super::estimate::message_tokens;
use super::fit::FitLimits;
use super::history::History;
use super::preview::{is_oversized, preview_tokens};
use crate::contract::message::{Message, Role, Visibility};
use crate::contract::outline::Outline;

/// Sizes of messages in tokens.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    outline: Outline,
    /// The place of the first message that is measured in order.
    base: usize,
    /// Each message as it is.
    whole: Vec<u32>,
    /// Each message with a preview where it may have one.
    short: Vec<u32>,
    /// Whether a cut before the message would separate a call from its result.
    parts: Vec<bool>,
    /// The latest message that asked for a call which has no result yet.
    asked: HashMap<String, usize>,
    /// The first result whose call is not among what is measured.
    stray: Option<usize>,
    /// The sizes of individual messages before those that are measured in order.
    apart: BTreeMap<usize, (u32, u32)>,
    /// Whether a measured message is only for the user.
    has_user_only: bool,
    /// Whether a measured message has an image whose bytes are in the store.
    has_images: bool,
}

fn tokens(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The tokens of a message, as a preview where it may have one.
pub fn short_tokens(message: &Message) -> usize {
    measure(message).1 as usize
}

/// A message as it is, and with a preview where it may have one.
fn measure(message: &Message) -> (u32, u32) {
    let whole = message_tokens(message);
    let short = if is_oversized(message) { preview_tokens(message) + 16 } else { whole };
    (tokens(whole), tokens(short.min(whole)))
}

impl Sizes {
    /// The sizes of a conversation.
    pub fn of(history: &History) -> Self {
        let mut sizes = Self::default();
        sizes.take_in(history);
        sizes
    }

    /// Measures what came since the last time, at either end.
    pub fn take_in(&mut self, history: &History) {
        if self.base != history.base() || self.end() > history.end() {
            *self = Self { base: history.base(), ..Self::default() };
        }
        for message in &history.tail()[self.whole.len()..] {
            self.push(message);
        }
        history.apart().for_each(|(_, message)| self.note_content(message));
        self.apart = history.apart().map(|(at, message)| (at, measure(message))).collect();
        self.outline.clone_from(history.outline());
    }

    fn note_content(&mut self, message: &Message) {
        self.has_user_only |= message.visibility == Visibility::Person;
        self.has_images |= message.content.iter().any(|block| block.as_stored_image().is_some());
    }

    fn push(&mut self, message: &Message) {
        let at = self.end();
        self.note_content(message);
        let (whole, short) = measure(message);
        self.whole.push(whole);
        self.short.push(short);
        self.parts.push(false);
        match message.role {
            Role::Assistant => {
                let mut seen = HashSet::new();
                for call in message.tool_calls.iter().filter(|call| seen.insert(call.id.as_str())) {
                    self.asked.insert(call.id.clone(), at);
                }
            }
            Role::Tool => match self.asked.remove(message.tool_call_id.as_deref().unwrap_or_default()) {
                Some(asker) => self.parts[asker + 1 - self.base..=at - self.base].fill(true),
                None => self.stray = self.stray.or(Some(at)),
            },
            Role::System | Role::User => {}
        }
    }

    /// Returns the number of messages, measured or not.
    pub fn len(&self) -> usize {
        self.outline.count
    }

    /// Returns whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.outline.count == 0
    }

    /// The place of the first message that is measured in order.
    pub fn base(&self) -> usize {
        self.base
    }

    /// The place after the last message that is measured.
    pub fn end(&self) -> usize {
        self.base + self.whole.len()
    }

    /// The tokens of a message; those before `previewed` as a preview where they may have one.
    pub fn at(&self, index: usize, previewed: usize) -> usize {
        let is_short = index < previewed;
        let size = match index.checked_sub(self.base) {
            Some(at) => (if is_short { &self.short } else { &self.whole }).get(at).copied(),
            None => self.apart.get(&index).map(|(whole, short)| if is_short { *short } else { *whole }),
        };
        size.map_or(0, |size| size as usize)
    }

    /// Returns the tokens of the measured messages in a range.
    pub fn sum(&self, range: std::ops::Range<usize>, previewed: usize) -> usize {
        let apart = self.apart.keys().filter(|at| range.contains(*at)).map(|at| self.at(*at, previewed));
        let measured = (range.start.max(self.base)..range.end).map(|at| self.at(at, previewed));
        apart.chain(measured).sum()
    }

    /// Returns whether a message becomes smaller as a preview.
    pub fn has_preview(&self, index: usize) -> bool {
        self.at(index, usize::MAX) < self.at(index, 0)
    }

    /// Returns whether a cut before this message separates no call from its result. Before the measured
    /// messages, a cut is only ever made where one was made already.
    pub fn is_safe(&self, cut: usize) -> bool {
        !cut.checked_sub(self.base).and_then(|at| self.parts.get(at)).copied().unwrap_or(false)
    }

    /// Returns the nearest safe cut at or before this one.
    pub fn safe_before(&self, cut: usize) -> usize {
        (0..=cut.min(self.len())).rev().find(|cut| self.is_safe(*cut)).unwrap_or(0)
    }

    /// The nearest safe cut that is not before this one.
    pub fn safe_behind(&self, cut: usize) -> usize {
        (cut..=self.len()).find(|cut| self.is_safe(*cut)).unwrap_or(self.len())
    }

    /// Returns the number of instructions at the very start.
    pub fn leading(&self) -> usize {
        self.outline.leading
    }

    /// Returns the position of the user's last request.
    pub fn request(&self) -> Option<usize> {
        self.outline.request
    }

    /// The first message with a call that has no result.
    pub fn first_open(&self) -> Option<usize> {
        self.outline.open.keys().next().copied()
    }

    /// Returns whether a measured message may be one that the model never reads.
    pub fn has_user_only(&self) -> bool {
        self.has_user_only
    }

    /// Returns whether a measured message may have an image whose bytes are in the store.
    pub fn has_images(&self) -> bool {
        self.has_images
    }

    /// Returns whether each call has exactly one result.
    pub fn is_tidy(&self) -> bool {
        self.outline.is_tidy()
    }

    /// Returns the messages that a request must include although they come before its other messages, in
    /// order: the user's last request, and calls without a result, with the results of their neighbours.
    pub fn pinned(&self, before: usize) -> Vec<usize> {
        let mut pinned = self.outline.needed();
        pinned.retain(|at| (self.leading()..before).contains(at));
        pinned
    }

    /// Returns whether the measured messages make the same request that all messages would make. `floor`: the
    /// position where the conversation is cut in any case.
    ///
    /// That is so if everything after the floor is measured, or so much that it does not fit: a request is
    /// filled from its end.
    pub fn suffices(&self, floor: usize, limits: FitLimits) -> bool {
        if self.base <= self.leading() {
            return true;
        }
        let measured = self.base..self.end();
        // The call of a result without one may be anywhere before.
        self.stray.is_none()
            && (self.base <= floor
                || measured.len() >= limits.recent && self.sum(measured, usize::MAX) > limits.room)
    }
}
