//! Trims a long conversation: entries far above stay in the store and are fetched from there when shown.

use super::{FIRST_ID, Transcript};
use aye_core::contract::message::Role;
use aye_core::contract::record::StoredMessage;

/// When there are more entries than this, the first ones go.
const MOST: usize = 2500;
/// The minimum number of entries kept.
const KEPT: usize = 1000;
/// The minimum number of entries between two places to trim at.
const APART: u64 = 64;

/// The position in the store of the first content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePosition {
    Seq(u64),
    /// In the message of that id, as soon as it is written down.
    Message(String),
}

/// The entry of this id, and all entries after it, are at this position in the store or after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreMark {
    entry: u64,
    place: StorePosition,
}

impl Transcript {
    /// Marks this position in the store as the start of the next entry.
    pub(super) fn mark(&mut self, place: impl FnOnce() -> StorePosition) {
        if self.marks.back().is_none_or(|last| last.entry + APART <= FIRST_ID + self.next_id) {
            self.marks.push_back(StoreMark { entry: FIRST_ID + self.next_id, place: place() });
        }
    }

    /// A stored message comes next.
    pub(super) fn mark_stored(&mut self, stored: &StoredMessage) {
        match stored.message.role {
            // The result of a call belongs to the entry of the call.
            Role::Tool | Role::System => {}
            Role::User | Role::Assistant => self.mark(|| StorePosition::Seq(stored.seq)),
        }
    }

    /// Returns where to trim a transcript that has grown too long: the entries before that position are left
    /// to the store.
    pub fn cut(&self) -> Option<StorePosition> {
        if self.fetched > 0 || self.entries.len() <= MOST {
            return None;
        }
        let last = self.entries.get(self.settled.min(self.entries.len() - KEPT))?.id;
        let first = self.entries.first()?.id;
        let fits = |mark: &&StoreMark| mark.entry > first && mark.entry <= last;
        self.marks.iter().rev().find(fits).map(|mark| mark.place.clone())
    }

    /// Removes the entries before that position, which the store has before `seq`.
    pub fn cut_at(&mut self, place: &StorePosition, seq: u64) {
        let Some(mark) = self.marks.iter().position(|mark| mark.place == *place) else { return };
        if self.fetched > 0 {
            return;
        }
        let entry = self.marks[mark].entry;
        let count = self.entries.partition_point(|known| known.id < entry).min(self.settled);
        self.entries.drain(..count);
        self.entries.shrink_to(2 * MOST);
        self.marks.drain(..=mark);
        self.step = self.step.saturating_sub(count);
        self.settled -= count;
        self.trimmed += count;
        self.before = seq;
    }

    /// The store does not know that place: it is not cut there.
    pub fn no_cut_at(&mut self, place: &StorePosition) {
        self.marks.retain(|mark| mark.place != *place);
    }

    /// Returns how many of the first entries were trimmed since the conversation was opened.
    pub fn trimmed(&self) -> usize {
        self.trimmed
    }
}
