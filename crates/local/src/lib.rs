//! A store in memory: what a runtime uses unless it is given another.

mod memory;

pub use memory::{InMemoryMailboxStore, InMemoryStore};
