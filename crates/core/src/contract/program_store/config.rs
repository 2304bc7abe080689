//! Agents and models that were defined over the API.

use async_trait::async_trait;
use serde_json::Value;

use crate::contract::config_entry::{EntryConflict, EntryExpectation, EntryVersion};
use crate::contract::storage::StoreError;
use crate::contract::suspension::Actor;

/// Keeps agents and models that were defined over the server's API, with the versions that unfinished runs need.
#[async_trait]
pub trait ConfigStore: Send + Sync {
    /// The versions of all entries, oldest first. A version that cannot be read counts as a deleted one.
    async fn config_entries(&self) -> Result<Vec<EntryVersion>, StoreError>;

    /// Publishes a version of the entry with this namespace and id, or deletes the entry if there is no value, and returns
    /// the revision. The audit names the actor.
    ///
    /// # Errors
    /// [`StoreError`]; [`EntryConflict`] if the entry is not what the change expects: then nothing is written.
    async fn publish_entry(
        &self,
        name: (String, String),
        value: Option<Value>,
        expected: EntryExpectation,
        by: (Actor, u64),
    ) -> Result<Result<u64, EntryConflict>, StoreError>;
}
