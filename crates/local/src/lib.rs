//! A store in memory and the system's clock: what a runtime uses unless it is given others.

mod clock;
mod memory;

pub use clock::SystemClock;
pub use memory::{InMemoryMailboxStore, InMemoryStore};
