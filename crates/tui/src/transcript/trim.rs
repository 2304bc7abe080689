//! Trims a long conversation: entries far above stay in the store and are fetched from there when shown.

use super::{FIRST_ID, Transcript};
use aye_core::contract::message::Role;
use aye_core::contract::record::StoredMessage;

/// When there are more entries than this, the first ones go.
const MOST: usize = 2500;
/// So many stay at least.
const KEPT: usize = 1000;
/// So many entries are between two places where it can be cut.
const APART: u64 = 64;

/// Where the store has what an entry shows first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePosition {
    /// At that place.
    Seq(u64),
    /// In the message of that id, as soon as it is written down.
    Message(String),
}

/// The entry of that id, and all behind it, stand at that place or behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreMark {
    entry: u64,
    place: StorePosition,
}

impl Transcript {
    /// What comes next begins there.
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

    /// Where it is to be cut, when it has become long: what stands before is left to the store.
    pub fn cut(&self) -> Option<StorePosition> {
        if self.fetched > 0 || self.entries.len() <= MOST {
            return None;
        }
        let last = self.entries.get(self.settled.min(self.entries.len() - KEPT))?.id;
        let first = self.entries.first()?.id;
        let fits = |mark: &&StoreMark| mark.entry > first && mark.entry <= last;
        self.marks.iter().rev().find(fits).map(|mark| mark.place.clone())
    }

    /// Leaves what stands before that place to the store, which has it before `seq`.
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

    /// How many of the first entries were left to the store since it was opened.
    pub fn trimmed(&self) -> usize {
        self.trimmed
    }
}
