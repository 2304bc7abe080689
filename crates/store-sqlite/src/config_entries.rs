//! Agents and models that were defined over the server's API, with the versions that unfinished runs need.

use rusqlite::{OptionalExtension as _, Row, Transaction};
use serde_json::{Value, json};

use super::audit;
use super::rows::{all, body_or_null, encode, int, text, uint};
use super::{SqlFailure, Store, StoreError};
use aye_core::contract::audit::AuditKind;
use aye_core::contract::config_entry::{EntryConflict, EntryExpectation, EntryVersion};
use aye_core::contract::suspension::Actor;

/// Revisions that are kept whether a stored run needs them or not: a run that is just starting is not stored yet.
const KEPT: i64 = 100;

impl Store {
    /// Returns the versions of all entries, oldest first.
    ///
    /// # Errors
    /// [`StoreError`]. A version that cannot be read counts as a deleted one.
    pub async fn config_entries(&self) -> Result<Vec<EntryVersion>, StoreError> {
        self.read(|conn| {
            let sql = "SELECT revision, namespace, id, value, at FROM config_entry ORDER BY revision";
            all(conn, sql, (), |row| Ok(version_of(row)?))
        })
        .await
    }

    /// Publishes a version of an entry, or deletes the entry if there is no value, and returns the revision. Versions
    /// that no unfinished run needs any more are dropped; the audit keeps them all.
    ///
    /// # Errors
    /// [`StoreError`]; [`EntryConflict`] if the entry is not what the change expects: then nothing is written.
    pub async fn publish_entry(
        &self,
        (namespace, id): (String, String),
        value: Option<Value>,
        expected: EntryExpectation,
        (actor, now_ms): (Actor, u64),
    ) -> Result<Result<u64, EntryConflict>, StoreError> {
        self.write(move |tx| {
            let latest = "SELECT revision, value IS NULL FROM config_entry WHERE namespace = ?1 AND id = ?2 \
                          ORDER BY revision DESC LIMIT 1";
            let latest: Option<(i64, bool)> = tx
                .prepare_cached(latest)?
                .query_row((&namespace, &id), |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let found = latest.filter(|(_, is_deleted)| !is_deleted).map(|(revision, _)| uint(revision));
            if let Err(conflict) = expected.check(found) {
                return Ok(Err(conflict));
            }
            let written = value.as_ref().map(|value| encode("the entry", value)).transpose()?;
            let sql = "INSERT INTO config_entry (namespace, id, value, at) VALUES (?1, ?2, ?3, ?4)";
            tx.prepare_cached(sql)?.execute((&namespace, &id, written, int(now_ms)))?;
            let revision = tx.last_insert_rowid();
            let body = json!({
                "namespace": namespace, "id": id, "revision": revision, "replaces": found, "value": value,
                "actor": actor,
            });
            audit::append(tx, now_ms, AuditKind::Configured, audit::AuditSubject::default(), &body)?;
            drop_unneeded(tx, revision)?;
            Ok(Ok(uint(revision)))
        })
        .await
    }
}

/// Drops versions that were replaced before the oldest revision that an unfinished run started with.
fn drop_unneeded(tx: &Transaction<'_>, newest: i64) -> Result<(), SqlFailure> {
    let sql = "SELECT min(CASE WHEN json_valid(body) THEN json_extract(body, '$.machine.revision') END) \
               FROM run WHERE status <> 'done'";
    let oldest: Option<i64> = tx.prepare_cached(sql)?.query_row((), |row| row.get(0))?;
    let floor = oldest.unwrap_or(newest).min(newest - KEPT);
    let sql = "DELETE FROM config_entry AS old WHERE revision < ?1 AND EXISTS ( \
                   SELECT 1 FROM config_entry AS newer \
                   WHERE newer.namespace = old.namespace AND newer.id = old.id \
                     AND newer.revision > old.revision AND newer.revision <= ?1)";
    tx.prepare_cached(sql)?.execute((floor,))?;
    Ok(())
}

fn version_of(row: &Row<'_>) -> rusqlite::Result<EntryVersion> {
    let value = body_or_null(row, 3)?.and_then(|bytes| serde_json::from_slice(bytes).ok());
    Ok(EntryVersion {
        revision: uint(row.get(0)?),
        namespace: text(row, 1)?,
        id: text(row, 2)?,
        value,
        at: uint(row.get(4)?),
    })
}
