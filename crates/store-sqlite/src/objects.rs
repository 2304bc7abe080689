//! Pieces of files by their SHA-256, in a separate database: the content of snapshots. A piece is written only once,
//! so a snapshot costs only what changed since the last one.
//!
//! Calls block, so callers run on a thread that may. A power cut can lose the latest snapshots, nothing else, so it
//! does not wait for the disk.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use sha2::{Digest as _, Sha256};

use super::rows::{int, path_bytes, uint};

/// The name of a piece: SHA-256 of its kind and its bytes.
pub type Hash = [u8; 32];

/// Maximum size of a piece when it is read back; no stored file is larger.
const MAX_PIECE: u64 = 256 << 20;
/// Smaller ones are not worth compressing.
const MIN_PACKED: usize = 128;
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS piece (
        id   INTEGER PRIMARY KEY,
        hash BLOB    NOT NULL UNIQUE,
        is_packed INTEGER NOT NULL,
        data BLOB    NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS kept (
        tree TEXT    NOT NULL PRIMARY KEY,
        root BLOB    NOT NULL,
        at   INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS kept_at ON kept (at);
    CREATE TABLE IF NOT EXISTS seen (
        root   BLOB    NOT NULL PRIMARY KEY,
        sweeps INTEGER NOT NULL,
        body   BLOB    NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS sweep (one INTEGER PRIMARY KEY CHECK (one = 1), n INTEGER NOT NULL) STRICT;
    INSERT OR IGNORE INTO sweep (one, n) VALUES (1, 0);
";

/// Why a piece could not be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The database said no.
    #[error("the snapshots' database: {0}")]
    Database(#[from] rusqlite::Error),
    /// Its folder or file cannot be used.
    #[error("the snapshots' database: {0}")]
    Io(#[from] std::io::Error),
    /// A piece is not there: it was dropped to make room.
    #[error("it was dropped to make room for newer snapshots")]
    Gone,
    /// A piece is not what its name says.
    #[error("it is damaged")]
    Damaged,
}

/// The pieces of all snapshots.
#[derive(Debug)]
pub struct Objects {
    path: PathBuf,
    open: Mutex<Option<Connection>>,
}

/// Takes a part of what is known of a folder's files.
pub type PutPart<'a> = dyn FnMut(&[u8]) -> Result<(), ObjectError> + 'a;

/// The first key of a folder's rows, and the one after the last: the folder itself, then the folder, NUL, a number. No
/// path has a NUL.
fn rows_of(root: &Path) -> [Vec<u8>; 2] {
    let first = path_bytes(root).to_vec();
    let after = [&first[..], &[1]].concat();
    [first, after]
}

/// The kind of an object. It is part of the object's name, so that a file cannot pass for a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// The bytes of a file, or where a link leads.
    Bytes,
    /// The rows of a folder.
    Folder,
}

/// The name of a piece.
pub fn hash_of(kind: ObjectKind, bytes: &[u8]) -> Hash {
    let mut digest = Sha256::new();
    digest.update(match kind {
        ObjectKind::Bytes => b"f",
        ObjectKind::Folder => b"d",
    });
    digest.update(bytes);
    digest.finalize().into()
}

impl Objects {
    /// Pieces in a file, which is made when something is first kept.
    pub fn at(path: PathBuf) -> Self {
        Self { path, open: Mutex::new(None) }
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn in_memory() -> Self {
        Self::at(PathBuf::from(":memory:"))
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        let mut open: MutexGuard<'_, Option<Connection>> =
            self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() {
            *open = Some(connect(&self.path)?);
        }
        match open.as_mut() {
            Some(conn) => work(conn),
            None => Err(ObjectError::Damaged),
        }
    }

    /// Counts the times that pieces were dropped: what was there at another count may be gone.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub fn sweeps(&self) -> Result<u64, ObjectError> {
        self.with(|conn| sweeps(conn))
    }

    /// Keeps pieces that are not there yet.
    ///
    /// # Errors
    /// [`ObjectError`]; then none of them was kept.
    pub fn put(&self, pieces: &[(Hash, Vec<u8>)]) -> Result<(), ObjectError> {
        if pieces.is_empty() {
            return Ok(());
        }
        // Packing takes long, and others wait for the database.
        let new = self.with(|conn| {
            let mut known = conn.prepare_cached("SELECT 1 FROM piece WHERE hash = ?1")?;
            let mut new = Vec::new();
            for (hash, bytes) in pieces {
                if !known.exists((&hash[..],))? {
                    new.push((hash, bytes));
                }
            }
            Ok(new)
        })?;
        if new.is_empty() {
            return Ok(());
        }
        let mut rows = Vec::with_capacity(new.len());
        for (hash, bytes) in new {
            rows.push((hash, bytes, packed(bytes)?));
        }
        self.with(|conn| {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut insert = tx.prepare_cached(
                    "INSERT OR IGNORE INTO piece (hash, is_packed, data) VALUES (?1, ?2, ?3)",
                )?;
                for (hash, bytes, packed) in rows {
                    match packed {
                        Some(packed) => insert.execute((&hash[..], 1, packed))?,
                        None => insert.execute((&hash[..], 0, bytes))?,
                    };
                }
            }
            tx.commit()?;
            Ok(())
        })
    }

    /// The bytes of a piece.
    ///
    /// # Errors
    /// [`ObjectError::Gone`], [`ObjectError::Damaged`].
    pub fn get(&self, kind: ObjectKind, hash: &Hash) -> Result<Vec<u8>, ObjectError> {
        self.with(|conn| get(conn, kind, hash))
    }

    /// Marks a tree to be kept as long as there is room. Returns `false` if pieces were dropped since that
    /// count; the tree then has to be created again.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub fn keep(&self, tree: &str, root: &Path, at: u64, sweeps_then: u64) -> Result<bool, ObjectError> {
        self.with(|conn| {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if sweeps(&tx)? != sweeps_then {
                return Ok(false);
            }
            tx.prepare_cached(
                "INSERT INTO kept (tree, root, at) VALUES (?1, ?2, ?3) \
                 ON CONFLICT (tree) DO UPDATE SET at = max(at, excluded.at)",
            )?
            .execute((tree, path_bytes(root), int(at)))?;
            tx.commit()?;
            Ok(true)
        })
    }

    /// Returns what was last recorded about a folder's files, part by part; empty if pieces were dropped
    /// since.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub fn seen(&self, root: &Path) -> Result<Vec<Vec<u8>>, ObjectError> {
        self.with(|conn| {
            let sql = "SELECT body FROM seen WHERE root >= ?1 AND root < ?2 AND sweeps = (SELECT n FROM sweep) \
                       ORDER BY root";
            let mut found = conn.prepare_cached(sql)?;
            Ok(found.query_map(rows_of(root), |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
    }

    /// Writes down what is known of a folder's files: `parts` calls what it is given for each part. A row that is as long
    /// as all of them would be in memory three times.
    ///
    /// # Errors
    /// [`ObjectError`]; then what was written down before stays.
    pub fn set_seen(
        &self,
        root: &Path,
        sweeps: u64,
        parts: impl FnOnce(&mut PutPart<'_>) -> Result<(), ObjectError>,
    ) -> Result<(), ObjectError> {
        self.with(|conn| {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            tx.prepare_cached("DELETE FROM seen WHERE root >= ?1 AND root < ?2")?.execute(rows_of(root))?;
            {
                let sql = "INSERT INTO seen (root, sweeps, body) VALUES (?1, ?2, ?3)";
                let mut insert = tx.prepare_cached(sql)?;
                let mut key = path_bytes(root).to_vec();
                let (length, mut number) = (key.len(), 0_u32);
                parts(&mut |part| {
                    insert.execute((&key, int(sweeps), part))?;
                    number += 1;
                    key.truncate(length);
                    key.push(0);
                    key.extend_from_slice(&number.to_be_bytes());
                    Ok(())
                })?;
            }
            tx.commit()?;
            Ok(())
        })
    }

    /// Drops the oldest half of the trees, and the pieces that only they use, until at most `most` bytes are
    /// used. `references` returns the pieces that a folder refers to, with their kinds.
    ///
    /// # Errors
    /// [`ObjectError`].
    pub fn make_room(
        &self,
        most: u64,
        references: impl Fn(&[u8]) -> Vec<(ObjectKind, Hash)>,
    ) -> Result<(), ObjectError> {
        self.with(|conn| {
            // One tree always stays, so that a user can still restore it.
            while used(conn)? > most {
                let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let count: i64 = tx.query_row("SELECT count(*) FROM kept", (), |row| row.get(0))?;
                if count < 2 {
                    return Ok(());
                }
                tx.execute(
                    "DELETE FROM kept WHERE tree IN (SELECT tree FROM kept ORDER BY at, tree LIMIT ?1)",
                    (count / 2,),
                )?;
                let live = live(&tx, &references)?;
                let mut gone = Vec::new();
                {
                    let mut all = tx.prepare("SELECT id, hash FROM piece")?;
                    let mut rows = all.query(())?;
                    while let Some(row) = rows.next()? {
                        let hash: Vec<u8> = row.get(1)?;
                        if !live.contains(hash.as_slice()) {
                            gone.push(row.get::<_, i64>(0)?);
                        }
                    }
                    let mut delete = tx.prepare_cached("DELETE FROM piece WHERE id = ?1")?;
                    for id in gone {
                        delete.execute((id,))?;
                    }
                }
                tx.execute("UPDATE sweep SET n = n + 1", ())?;
                tx.commit()?;
                conn.execute_batch("PRAGMA incremental_vacuum")?;
            }
            Ok(())
        })
    }
}

fn connect(path: &Path) -> Result<Connection, ObjectError> {
    if path != Path::new(":memory:") {
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
        if let Some(folder) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        // The file is private from its first moment, and we can write to it whatever the umask.
        match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => file.set_permissions(std::fs::Permissions::from_mode(0o600))?,
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
            // A link could lead anywhere.
            Err(error) if !path.symlink_metadata()?.is_file() => return Err(error.into()),
            Err(_) => {}
        }
    }
    let conn = Connection::open(path)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    super::open::harden(&conn)?;
    // The next program continues with the log of this one: folding the log at each end and creating it again
    // at each start would cost five fsyncs.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Only a new database takes it, and to say it again writes its first page.
    if conn.query_row("PRAGMA auto_vacuum", (), |row| row.get::<_, i64>(0))? == 0 {
        conn.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?;
    }
    let _: String = conn.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0))?;
    // A log that grew with a large folder is truncated when it restarts.
    conn.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 8388608")?;
    conn.execute_batch(SCHEMA)?;
    Ok(conn)
}

fn sweeps(conn: &Connection) -> Result<u64, ObjectError> {
    Ok(uint(conn.prepare_cached("SELECT n FROM sweep")?.query_row((), |row| row.get(0))?))
}

fn used(conn: &Connection) -> Result<u64, ObjectError> {
    let pragma = |name: &str| conn.query_row(&format!("PRAGMA {name}"), (), |row| row.get::<_, i64>(0));
    let pages = pragma("page_count")? - pragma("freelist_count")?;
    Ok(uint(pages.saturating_mul(pragma("page_size")?)))
}

fn get(conn: &Connection, kind: ObjectKind, hash: &Hash) -> Result<Vec<u8>, ObjectError> {
    let found: Option<(bool, Vec<u8>)> = conn
        .prepare_cached("SELECT is_packed, data FROM piece WHERE hash = ?1")?
        .query_row((&hash[..],), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (is_packed, data) = found.ok_or(ObjectError::Gone)?;
    let bytes = if is_packed {
        let mut bytes = Vec::new();
        let read = ZlibDecoder::new(data.as_slice()).take(MAX_PIECE).read_to_end(&mut bytes);
        read.map_err(|_| ObjectError::Damaged)?;
        bytes
    } else {
        data
    };
    if hash_of(kind, &bytes) == *hash { Ok(bytes) } else { Err(ObjectError::Damaged) }
}

/// The bytes compressed, when that makes them smaller.
fn packed(bytes: &[u8]) -> Result<Option<Vec<u8>>, ObjectError> {
    if bytes.len() < MIN_PACKED {
        return Ok(None);
    }
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::fast());
    encoder.write_all(bytes)?;
    let packed = encoder.finish()?;
    Ok((packed.len() < bytes.len()).then_some(packed))
}

/// All pieces that trees which stay are made of.
fn live(
    conn: &Connection,
    references: &impl Fn(&[u8]) -> Vec<(ObjectKind, Hash)>,
) -> Result<HashSet<Vec<u8>>, ObjectError> {
    let mut roots = conn.prepare("SELECT tree FROM kept")?;
    let names = roots.query_map((), |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    let mut live = HashSet::new();
    let mut open: Vec<Hash> = names.iter().filter_map(|name| parse_hash(name)).collect();
    while let Some(folder) = open.pop() {
        if !live.insert(folder.to_vec()) {
            continue;
        }
        let Ok(bytes) = get(conn, ObjectKind::Folder, &folder) else { continue };
        for (kind, hash) in references(&bytes) {
            match kind {
                ObjectKind::Folder => open.push(hash),
                ObjectKind::Bytes => drop(live.insert(hash.to_vec())),
            }
        }
    }
    Ok(live)
}

/// A hash from its hex digits.
pub fn parse_hash(hex: &str) -> Option<Hash> {
    let mut hash = [0; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).ok()?;
    }
    Some(hash)
}
