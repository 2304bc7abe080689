//! The typed state engine: keys, snapshots, mutation batches, and the store that commits them.
//!
//! Plain data code: no async, no clock, no file. Hooks and tools read an immutable [`Snapshot`] and hand back a
//! [`StateCommand`]; only [`StateStore::commit`] changes anything, one [`MutationBatch`] at a time.

mod batch;
mod command;
mod error;
mod key;
mod map;
pub mod model;
mod store;
#[cfg(test)]
mod tests;

pub use batch::MutationBatch;
pub use command::{ScheduledAction, StateCommand};
pub use error::StateError;
pub use key::{KeyRegistration, KeyScope, MergeStrategy, StateKey, StateKeyOptions};
pub use map::{Snapshot, StateMap};
pub use model::{EffectSpec, JsonValue, Phase, ScheduledActionSpec, TypedEffect};
pub use store::{CommitEvent, CommitHook, PersistedState, StateStore, UnknownKeyPolicy};
