//! The grant ledger: allow rules that people gave at prompts.

use rusqlite::{Connection, Row};

use super::rows::{body, encode, int, text, uint};
use super::{Store, StoreError};
use crate::contract::record::GrantRecord;

impl Store {
    /// Adds a grant.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when the id is taken.
    pub async fn add_grant(&self, grant: GrantRecord) -> Result<(), StoreError> {
        self.write(move |tx| {
            let added = tx
                .prepare_cached(
                    "INSERT INTO grant_row (id, expires_at, revoked_at, body) VALUES (?1, ?2, ?3, ?4) \
                     ON CONFLICT DO NOTHING",
                )?
                .execute((
                    &grant.id,
                    grant.expires_at.map(int),
                    grant.revoked_at.map(int),
                    encode("the grant", &grant)?,
                ))?;
            if added == 0 { Err(StoreError::Exists { what: format!("grant {}", grant.id) }) } else { Ok(()) }
        })
        .await
    }

    /// The grants that hold at a time, oldest first. One that was seen as expired once stays so, whatever the clock
    /// says later; one that cannot be read does not hold.
    pub async fn grants(&self, active_at: u64) -> Result<Vec<GrantRecord>, StoreError> {
        self.call(move |conn| {
            let due: i64 = conn
                .prepare_cached(
                    "SELECT count(*) FROM grant_row WHERE over = 0 AND expires_at IS NOT NULL AND expires_at <= ?1",
                )?
                .query_row((int(active_at),), |row| row.get(0))?;
            if due > 0 {
                super::transact(conn, "", "", |tx| {
                    let sql = "UPDATE grant_row SET over = 1 WHERE expires_at IS NOT NULL AND expires_at <= ?1";
                    tx.prepare_cached(sql)?.execute((int(active_at),))?;
                    Ok(())
                })?;
            }
            let sql = "SELECT id, revoked_at, body FROM grant_row \
                       WHERE over = 0 AND revoked_at IS NULL ORDER BY n";
            list(conn, sql)
        })
        .await
    }

    /// Every grant that was ever given, oldest first.
    pub async fn all_grants(&self) -> Result<Vec<GrantRecord>, StoreError> {
        self.read(|conn| list(conn, "SELECT id, revoked_at, body FROM grant_row ORDER BY n")).await
    }

    /// Takes a grant back. `false` when there is none, or it was taken back before.
    pub async fn revoke_grant(&self, id: &str, now_ms: u64) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.write(move |tx| {
            let sql = "UPDATE grant_row SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
            Ok(tx.prepare_cached(sql)?.execute((id, int(now_ms)))? > 0)
        })
        .await
    }
}

fn list(conn: &Connection, sql: &str) -> Result<Vec<GrantRecord>, StoreError> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(())?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if let Some(grant) = grant_of(row)? {
            found.push(grant);
        }
    }
    Ok(found)
}

/// An unreadable grant is left out and logged: it allows nothing, and the others still hold.
fn grant_of(row: &Row<'_>) -> Result<Option<GrantRecord>, StoreError> {
    let (id, revoked_at): (_, Option<i64>) = (text(row, 0)?, row.get(1)?);
    match serde_json::from_slice::<GrantRecord>(body(row, 2)?) {
        Ok(grant) => Ok(Some(GrantRecord { revoked_at: revoked_at.map(uint), ..grant })),
        Err(error) => {
            tracing::error!("grant {id} cannot be read ({error})");
            Ok(None)
        }
    }
}
