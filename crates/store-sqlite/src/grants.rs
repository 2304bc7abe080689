//! The grant ledger: allow rules that users granted with questions.

use rusqlite::{Connection, Row, Rows, Transaction};

use super::audit;
use super::rows::{body, encode, int, text, uint};
use super::{ChangeKind, SqlFailure, Store, StoreChange, StoreError};
use aye_core::contract::audit::AuditKind;
use aye_core::contract::audit_entry::AuditEntry;
use aye_core::contract::record::GrantRecord;

/// The change that makes every process reload the grants.
pub(super) const CHANGED: StoreChange = StoreChange { kind: ChangeKind::Grant, thread: None };

pub(super) fn add(tx: &Transaction<'_>, grant: &GrantRecord) -> Result<(), SqlFailure> {
    let added = tx
        .prepare_cached(
            "INSERT INTO grant_row (id, expires_at, revoked_at, max_uses, uses, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
        )?
        .execute((
            &grant.id,
            grant.expires_at.map(int),
            grant.revoked_at.map(int),
            grant.max_uses.map(int),
            int(grant.uses),
            encode("the grant", grant)?,
        ))?;
    if added == 0 {
        return Err(StoreError::Exists { what: format!("grant {}", grant.id) }.into());
    }
    audit::append_entry(tx, &AuditEntry::granted(grant))
}

impl Store {
    /// Adds a grant.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when the id is taken.
    pub async fn add_grant(&self, grant: GrantRecord) -> Result<(), StoreError> {
        self.write_and_publish(true, ("", ""), move |tx| add(tx, &grant), |()| Some(CHANGED)).await
    }

    /// Returns the grants in force at a time, oldest first. A grant once seen as expired stays so, whatever
    /// the clock says later; an unreadable one is not in force.
    pub async fn grants(&self, active_at: u64) -> Result<Vec<GrantRecord>, StoreError> {
        let in_force = "SELECT id, revoked_at, body, uses FROM grant_row \
                        WHERE over = 0 AND revoked_at IS NULL AND (max_uses IS NULL OR uses < max_uses) ORDER BY n";
        // Read without the write lock first: grants seldom expire.
        let read = self.read(move |conn| {
            let due =
                "SELECT 1 FROM grant_row WHERE over = 0 AND expires_at IS NOT NULL AND expires_at <= ?1";
            let is_due = conn.prepare_cached(due)?.exists((int(active_at),))?;
            if is_due { Ok(None) } else { list(conn, in_force).map(Some) }
        });
        if let Some(grants) = read.await? {
            return Ok(grants);
        }
        self.write(move |tx| {
            let sql = "UPDATE grant_row SET over = 1 \
                       WHERE over = 0 AND expires_at IS NOT NULL AND expires_at <= ?1 RETURNING n, id";
            let mut statement = tx.prepare_cached(sql)?;
            let rows =
                statement.query_map((int(active_at),), |row| Ok((row.get::<_, i64>(0)?, text(row, 1)?)))?;
            let mut lapsed = rows.collect::<Result<Vec<_>, _>>()?;
            lapsed.sort_unstable();
            for (_, id) in lapsed {
                audit::append_entry(tx, &AuditEntry::grant_changed(active_at, AuditKind::Lapsed, &id))?;
            }
            list(tx, in_force)
        })
        .await
    }

    /// The newest grants that do not hold any more, newest first.
    pub async fn ended_grants(&self, most: u64) -> Result<Vec<GrantRecord>, StoreError> {
        self.read(move |conn| {
            let sql = "SELECT id, revoked_at, body, uses FROM grant_row \
                       WHERE over = 1 OR revoked_at IS NOT NULL OR uses >= max_uses ORDER BY n DESC LIMIT ?1";
            collect(conn.prepare_cached(sql)?.query((int(most),))?)
        })
        .await
    }

    /// Every grant that was ever given, oldest first.
    pub async fn all_grants(&self) -> Result<Vec<GrantRecord>, StoreError> {
        self.read(|conn| list(conn, "SELECT id, revoked_at, body, uses FROM grant_row ORDER BY n")).await
    }

    /// Revokes a grant. Returns `false` if there is none, or it was already revoked.
    pub async fn revoke_grant(&self, id: &str, now_ms: u64) -> Result<bool, StoreError> {
        let id = id.to_owned();
        let work = move |tx: &Transaction<'_>| {
            let sql = "UPDATE grant_row SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
            if tx.prepare_cached(sql)?.execute((&id, int(now_ms)))? == 0 {
                return Ok(false);
            }
            audit::append_entry(tx, &AuditEntry::grant_changed(now_ms, AuditKind::Revoked, &id))?;
            Ok(true)
        };
        self.write_and_publish(true, ("", ""), work, |revoked| revoked.then_some(CHANGED)).await
    }

    /// Counts one use of each of these grants, or of none: then this returns the first that is no longer in
    /// force, so that the grant does not allow the call. Because uses are counted before the call starts, a
    /// crash can lose a use, but never allow one twice.
    ///
    /// The write does not wait for the disk: the intent of the call that the grants allow does.
    pub async fn spend_grants(&self, ids: Vec<String>, now_ms: u64) -> Result<Option<String>, StoreError> {
        self.write_relaxed(move |tx| {
            let holds = "SELECT count(*) FROM grant_row \
                         WHERE id = ?1 AND over = 0 AND revoked_at IS NULL \
                           AND (expires_at IS NULL OR expires_at > ?2) AND (max_uses IS NULL OR uses < max_uses)";
            for id in &ids {
                let held: i64 = tx.prepare_cached(holds)?.query_row((id, int(now_ms)), |row| row.get(0))?;
                if held == 0 {
                    return Ok(Some(id.clone()));
                }
            }
            for id in &ids {
                tx.prepare_cached("UPDATE grant_row SET uses = uses + 1 WHERE id = ?1")?.execute((id,))?;
                audit::append_entry(tx, &AuditEntry::grant_changed(now_ms, AuditKind::Spent, id))?;
            }
            Ok(None)
        })
        .await
    }
}

fn list(conn: &Connection, sql: &str) -> Result<Vec<GrantRecord>, SqlFailure> {
    collect(conn.prepare_cached(sql)?.query(())?)
}

fn collect(mut rows: Rows<'_>) -> Result<Vec<GrantRecord>, SqlFailure> {
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if let Some(grant) = grant_of(row)? {
            found.push(grant);
        }
    }
    Ok(found)
}

/// An unreadable grant is left out and logged: it allows nothing, and the others still hold.
fn grant_of(row: &Row<'_>) -> Result<Option<GrantRecord>, SqlFailure> {
    let (id, revoked_at): (_, Option<i64>) = (text(row, 0)?, row.get(1)?);
    match serde_json::from_slice::<GrantRecord>(body(row, 2)?) {
        Ok(grant) => {
            Ok(Some(GrantRecord { revoked_at: revoked_at.map(uint), uses: uint(row.get(3)?), ..grant }))
        }
        Err(error) => {
            tracing::error!("grant {id} cannot be read ({error})");
            Ok(None)
        }
    }
}
