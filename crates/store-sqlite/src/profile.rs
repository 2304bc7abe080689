//! Values that outlive a thread.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row};
use serde_json::Value;

use super::rows::{all, body, first, int, text, uint};
use super::{SqlFailure, Store, StoreError};
use aye_core::contract::clock::Clock;
use aye_core::contract::profile::{ProfileEntry, ProfileStore, StorageError, check_names, encode_value};

/// The values of a [`Store`], with the clock that says when they were written.
struct Profiles {
    store: Store,
    clock: Arc<dyn Clock>,
}

impl Store {
    /// The values that outlive a thread.
    pub fn profiles(&self, clock: Arc<dyn Clock>) -> Arc<dyn ProfileStore> {
        Arc::new(Profiles { store: self.clone(), clock })
    }
}

fn entry(row: &Row<'_>) -> Result<ProfileEntry, SqlFailure> {
    let key = text(row, 1)?;
    let value = serde_json::from_slice(body(row, 3)?).map_err(|error| {
        StoreError::Corrupt(format!("the profile value {} cannot be read: {error}", quoted(&key)))
    })?;
    Ok(ProfileEntry { key, version: uint(row.get(0)?), updated_at: uint(row.get(2)?), value })
}

fn quoted(key: &str) -> String {
    Value::from(key).to_string()
}

fn version(conn: &Connection, namespace: &str, key: &str) -> Result<u64, SqlFailure> {
    let sql = "SELECT n FROM profile WHERE namespace = ?1 AND key = ?2";
    let found = conn.prepare_cached(sql)?.query_row((namespace, key), |row| row.get(0)).optional()?;
    Ok(found.map_or(0, uint))
}

#[async_trait]
impl ProfileStore for Profiles {
    async fn get(&self, namespace: &str, key: &str) -> Result<Option<ProfileEntry>, StorageError> {
        let names = check_names(namespace, key)?;
        let found = self.store.read(move |conn| {
            let sql = "SELECT n, key, updated_at, value FROM profile WHERE namespace = ?1 AND key = ?2";
            first(conn, sql, names, entry)
        });
        Ok(found.await?)
    }

    async fn put(
        &self,
        namespace: &str,
        key: &str,
        value: Value,
        expected: Option<u64>,
    ) -> Result<u64, StorageError> {
        let (namespace, key) = check_names(namespace, key)?;
        let now = self.clock.now_ms();
        let value = encode_value(&value)?;
        let written = self.store.write(move |tx| {
            if let Some(expected) = expected {
                let actual = version(tx, &namespace, &key)?;
                if actual != expected {
                    return Ok(Err(StorageError::VersionConflict { expected, actual }));
                }
            }
            // A new row each time: its number is a version that was never there before.
            tx.prepare_cached("DELETE FROM profile WHERE namespace = ?1 AND key = ?2")?
                .execute((&namespace, &key))?;
            tx.prepare_cached(
                "INSERT INTO profile (namespace, key, updated_at, value) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute((&namespace, &key, int(now), &value))?;
            Ok(Ok(uint(tx.last_insert_rowid())))
        });
        written.await?
    }

    async fn remove(&self, namespace: &str, key: &str) -> Result<bool, StorageError> {
        let names = check_names(namespace, key)?;
        let removed = self.store.write(move |tx| {
            let sql = "DELETE FROM profile WHERE namespace = ?1 AND key = ?2";
            Ok(tx.prepare_cached(sql)?.execute(names)? > 0)
        });
        Ok(removed.await?)
    }

    async fn list(&self, namespace: &str) -> Result<Vec<ProfileEntry>, StorageError> {
        let (namespace, _) = check_names(namespace, "all")?;
        let found = self.store.read(move |conn| {
            let sql = "SELECT n, key, updated_at, value FROM profile WHERE namespace = ?1 ORDER BY key";
            all(conn, sql, (namespace,), entry)
        });
        Ok(found.await?)
    }
}
