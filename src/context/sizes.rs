//! What the messages of a conversation cost, and where it can be cut. Messages are only ever appended, so each is
//! measured once.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::estimate::message_tokens;
use super::preview::{is_oversized, preview_tokens};
use crate::contract::message::{Message, Role, Visibility};

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// Each message as it is.
    whole: Vec<u32>,
    /// Each message with a preview where it may have one.
    short: Vec<u32>,
    /// Whether a cut before the message would part a call from its result.
    parts: Vec<bool>,
    /// The latest message that asked for a call which has no result yet, and where the result belongs.
    asked: HashMap<String, (usize, usize)>,
    /// Messages with calls that have no result, and how many.
    open: BTreeMap<usize, usize>,
    /// Of each result, the message that asked for it.
    asker: HashMap<usize, usize>,
    /// Messages that instruct, at the very start.
    leading: usize,
    /// The last thing the person said.
    request: Option<usize>,
    /// Results that answer nothing or do not stand in their place, or calls that are there twice.
    is_untidy: bool,
}

fn tokens(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Sizes {
    /// The sizes of a conversation.
    pub fn of(messages: &[Message]) -> Self {
        let mut sizes = Self::default();
        sizes.take_in(messages);
        sizes
    }

    /// Measures what came since the last time; `messages` is the whole conversation.
    pub fn take_in(&mut self, messages: &[Message]) {
        for message in messages.iter().skip(self.len()) {
            self.push(message);
        }
    }

    fn push(&mut self, message: &Message) {
        let at = self.len();
        let whole = message_tokens(message);
        let short = if is_oversized(message) { preview_tokens(message) + 16 } else { whole };
        self.whole.push(tokens(whole));
        self.short.push(tokens(short.min(whole)));
        self.parts.push(false);
        match message.role {
            Role::System if self.leading == at => self.leading += 1,
            Role::User if message.visibility == Visibility::All => self.request = Some(at),
            Role::Assistant => {
                let mut seen = HashSet::new();
                for call in &message.tool_calls {
                    if seen.insert(call.id.as_str()) {
                        self.asked.insert(call.id.clone(), (at, at + seen.len()));
                    } else {
                        self.is_untidy = true;
                    }
                }
                if !seen.is_empty() {
                    self.open.insert(at, seen.len());
                }
            }
            Role::Tool => self.settle(at, message.tool_call_id.as_deref().unwrap_or_default()),
            Role::System | Role::User => {}
        }
    }

    fn settle(&mut self, at: usize, id: &str) {
        let Some((asker, place)) = self.asked.remove(id) else {
            self.is_untidy = true;
            return;
        };
        self.is_untidy |= place != at;
        self.asker.insert(at, asker);
        self.parts[asker + 1..=at].fill(true);
        if let Some(left) = self.open.get_mut(&asker) {
            *left -= 1;
            if *left == 0 {
                self.open.remove(&asker);
            }
        }
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.whole.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// The tokens of a message; those before `previewed` as a preview where they may have one.
    pub fn at(&self, index: usize, previewed: usize) -> usize {
        let sizes = if index < previewed { &self.short } else { &self.whole };
        sizes.get(index).map_or(0, |size| *size as usize)
    }

    /// The tokens of a range of messages.
    pub fn sum(&self, range: std::ops::Range<usize>, previewed: usize) -> usize {
        range.map(|index| self.at(index, previewed)).sum()
    }

    /// Whether a message becomes smaller as a preview.
    pub fn has_preview(&self, index: usize) -> bool {
        self.short[index] < self.whole[index]
    }

    /// Whether a cut before this message parts no call from its result.
    pub fn is_safe(&self, cut: usize) -> bool {
        !self.parts.get(cut).copied().unwrap_or(false)
    }

    /// The nearest safe cut that is not behind this one.
    pub fn safe_before(&self, cut: usize) -> usize {
        (0..=cut.min(self.len())).rev().find(|cut| self.is_safe(*cut)).unwrap_or(0)
    }

    /// The nearest safe cut that is not before this one.
    pub fn safe_behind(&self, cut: usize) -> usize {
        (cut..=self.len()).find(|cut| self.is_safe(*cut)).unwrap_or(self.len())
    }

    /// How many messages at the very start instruct.
    pub fn leading(&self) -> usize {
        self.leading
    }

    /// The last thing the person said.
    pub fn request(&self) -> Option<usize> {
        self.request
    }

    /// The first message with a call that has no result.
    pub fn first_open(&self) -> Option<usize> {
        self.open.keys().next().copied()
    }

    /// Whether each call has its one result.
    pub fn is_tidy(&self) -> bool {
        self.open.is_empty() && !self.is_untidy
    }

    /// What must be in a request although it stands before its messages, in order: the last thing the person said, and
    /// calls without a result, with the results of their neighbours.
    pub fn pinned(&self, before: usize) -> Vec<usize> {
        let mut pinned: Vec<usize> = self.request.into_iter().filter(|at| *at < before).collect();
        if !self.open.is_empty() {
            pinned.extend(self.open.keys().filter(|at| **at < before));
            pinned.extend(
                self.asker
                    .iter()
                    .filter(|(at, asker)| **at < before && self.open.contains_key(asker))
                    .map(|(at, _)| *at),
            );
        }
        pinned.retain(|at| *at >= self.leading);
        pinned.sort_unstable();
        pinned.dedup();
        pinned
    }
}
