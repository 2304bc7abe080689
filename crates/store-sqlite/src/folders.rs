//! Folders used with aye, by the first commit of their repository.

use std::path::{Path, PathBuf};

use super::rows::{all, path_bytes, path_from};
use super::{Store, StoreError};

impl Store {
    /// Whether the first commit of a folder's repository is known.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn knows_folder(&self, cwd: &Path) -> Result<bool, StoreError> {
        let cwd = path_bytes(cwd).to_vec();
        self.read(move |conn| {
            Ok(conn.prepare_cached("SELECT 1 FROM folder WHERE cwd = ?1")?.exists((cwd,))?)
        })
        .await
    }

    /// Notes the first commit of a folder's repository, and where below its root the folder is.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn note_folder(&self, cwd: &Path, first_commit: &str, below: &Path) -> Result<(), StoreError> {
        let (cwd, below) = (path_bytes(cwd).to_vec(), path_bytes(below).to_vec());
        let first_commit = first_commit.to_owned();
        self.write_relaxed(move |tx| {
            let sql = "INSERT INTO folder (cwd, first_commit, below) VALUES (?1, ?2, ?3) \
                       ON CONFLICT (cwd) DO UPDATE SET first_commit = excluded.first_commit, below = excluded.below";
            tx.prepare_cached(sql)?.execute((cwd, first_commit, below))?;
            Ok(())
        })
        .await
    }

    /// The folders at this place of a repository with this first commit that have conversations, the latest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn folders_of(&self, first_commit: &str, below: &Path) -> Result<Vec<PathBuf>, StoreError> {
        let (first_commit, below) = (first_commit.to_owned(), path_bytes(below).to_vec());
        self.read(move |conn| {
            let sql = "SELECT f.cwd FROM folder f WHERE f.first_commit = ?1 AND f.below = ?2 \
                       AND EXISTS (SELECT 1 FROM thread t WHERE t.cwd = f.cwd) \
                       ORDER BY (SELECT max(t.updated_at) FROM thread t WHERE t.cwd = f.cwd) DESC";
            all(conn, sql, (first_commit, below), |row| Ok(row.get(0).map(path_from)?))
        })
        .await
    }

    /// Gives the conversations of a folder to another one. Returns how many there were.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn move_folder(&self, from: &Path, to: &Path) -> Result<u64, StoreError> {
        let (from, to) = (path_bytes(from).to_vec(), path_bytes(to).to_vec());
        self.write(move |tx| {
            let moved =
                tx.prepare_cached("UPDATE thread SET cwd = ?2 WHERE cwd = ?1")?.execute((&from, &to))?;
            tx.prepare_cached("DELETE FROM folder WHERE cwd = ?1")?.execute((&from,))?;
            Ok(moved as u64)
        })
        .await
    }
}
