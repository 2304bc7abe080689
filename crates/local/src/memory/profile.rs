//! Values that outlive a thread.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::InMemoryStore;
use aye_core::contract::clock::Clock;
use aye_core::contract::profile::{ProfileEntry, ProfileStore, check_names, encode_value};
use aye_core::contract::storage::StorageError;

pub(super) struct Profiles {
    pub(super) store: InMemoryStore,
    pub(super) clock: Arc<dyn Clock>,
}

#[async_trait]
impl ProfileStore for Profiles {
    async fn get(&self, namespace: &str, key: &str) -> Result<Option<ProfileEntry>, StorageError> {
        let names = check_names(namespace, key)?;
        Ok(self.store.read(|rows| rows.profiles.get(&names).map(|entry| ProfileEntry::clone(entry)))?)
    }

    async fn put(
        &self,
        namespace: &str,
        key: &str,
        value: Value,
        expected: Option<u64>,
    ) -> Result<u64, StorageError> {
        let names = check_names(namespace, key)?;
        encode_value(&value)?;
        let updated_at = self.clock.now_ms();
        let written = self.store.write(|rows| {
            let actual = rows.profiles.get(&names).map_or(0, |entry| entry.version);
            if let Some(expected) = expected.filter(|expected| *expected != actual) {
                return Ok(Err(StorageError::VersionConflict { expected, actual }));
            }
            rows.version += 1;
            let entry = ProfileEntry { key: names.1.clone(), version: rows.version, updated_at, value };
            rows.profiles.insert(names, Arc::new(entry));
            Ok(Ok(rows.version))
        });
        written?
    }

    async fn remove(&self, namespace: &str, key: &str) -> Result<bool, StorageError> {
        let names = check_names(namespace, key)?;
        Ok(self.store.write(|rows| Ok(rows.profiles.remove(&names).is_some()))?)
    }

    async fn list(&self, namespace: &str) -> Result<Vec<ProfileEntry>, StorageError> {
        let (namespace, _) = check_names(namespace, "all")?;
        let found = self.store.read(|rows| {
            let of_it = rows.profiles.iter().filter(|((known, _), _)| *known == namespace);
            of_it.map(|(_, entry)| ProfileEntry::clone(entry)).collect()
        })?;
        Ok(found)
    }
}
