//! Opens a store: checks the path and the file's origin, sets what the guarantees rest on, runs migrations.

use std::fs::{self, Permissions};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::error::{is_no_space, text_of};
use super::rows::with_suffix;
use super::{OpenError, log_mark};

/// "aye1" in ASCII, which distinguishes our file from any other SQLite file.
pub(super) const APPLICATION_ID: i64 = 0x6179_6531;
/// Numbered from 1; only ever added to.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_first.sql"),
    include_str!("migrations/0002_decisions.sql"),
    include_str!("migrations/0003_runtime.sql"),
    include_str!("migrations/0004_back.sql"),
    include_str!("migrations/0005_images.sql"),
    include_str!("migrations/0006_search.sql"),
    include_str!("migrations/0007_outline.sql"),
    include_str!("migrations/0008_command.sql"),
    include_str!("migrations/0009_delivery.sql"),
    include_str!("migrations/0010_push.sql"),
    include_str!("migrations/0011_config.sql"),
    include_str!("migrations/0012_lease.sql"),
    include_str!("migrations/0013_writes.sql"),
    include_str!("migrations/0014_waits.sql"),
    include_str!("migrations/0015_prefix.sql"),
];
/// Above this the write-ahead log is cut back after a checkpoint.
const JOURNAL_LIMIT: i64 = 8 * 1024 * 1024;
/// Between two tries while another process makes the same file.
const RETRY: Duration = Duration::from_millis(2);

/// The flags for an existing file: links are not followed, and one thread at a time uses a connection.
const OPEN_FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE
    .union(OpenFlags::SQLITE_OPEN_NO_MUTEX)
    .union(OpenFlags::SQLITE_OPEN_NOFOLLOW);

/// The format that this program writes.
pub(super) fn our_version() -> i64 {
    MIGRATIONS.len() as i64
}

/// Opens the file and gives its path with the folder resolved.
pub(super) fn open(path: &Path, busy: Duration) -> Result<(Connection, PathBuf), OpenError> {
    let path = prepare(path, aye_platform::network_kind)?;
    log_mark::check(&path)?;
    let start = Instant::now();
    loop {
        match attempt(&path, busy) {
            // Turning the log on wants the file for itself for a moment, and SQLite does not wait there.
            Err(OpenError::Locked { .. }) if start.elapsed() < busy => std::thread::sleep(RETRY),
            Err(error) => return Err(error),
            Ok(connection) => return Ok((connection, path)),
        }
    }
}

/// Keeps every other process out of a store's file until it is dropped.
#[derive(Debug)]
pub struct StoreLock(#[expect(dead_code, reason = "its lock counts")] Connection);

/// Locks the file of a store against every process, for one that moves it.
pub(super) fn lock(path: &Path) -> Result<StoreLock, OpenError> {
    let fail = |error| from_sqlite(path, Duration::ZERO, error);
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let real = folder.canonicalize().map_err(|error| from_io(path, error))?;
    let file = path.file_name().map_or_else(|| path.to_owned(), |name| real.join(name));
    let conn = Connection::open_with_flags(file, OPEN_FLAGS).map_err(fail)?;
    // Nothing is written, also not at its end.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(fail)?;
    harden(&conn).map_err(fail)?;
    conn.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; ROLLBACK").map_err(fail)?;
    Ok(StoreLock(conn))
}

pub(super) fn in_memory() -> Result<Connection, OpenError> {
    let path = Path::new(":memory:");
    let fail = |error| from_sqlite(path, Duration::ZERO, error);
    let mut conn = Connection::open_in_memory().map_err(fail)?;
    harden(&conn).map_err(fail)?;
    configure(&conn, path, "memory").map_err(|e| e.into_open(path, Duration::ZERO))?;
    migrate(&mut conn, path)?;
    Ok(conn)
}

/// Checks the path without opening it: closing a second descriptor of a file that SQLite has open in this
/// process would drop SQLite's locks. A missing file is created here, so that it is private from its first
/// moment. `network_kind` names the network file system that a folder is on.
pub(super) fn prepare(
    path: &Path,
    network_kind: impl FnOnce(&Path) -> Option<String>,
) -> Result<PathBuf, OpenError> {
    let io = |error| from_io(path, error);
    let not_a_file = |what| OpenError::NotAFile { path: path.to_owned(), what };
    let Some(name) = path.file_name() else { return Err(not_a_file("not a file name")) };
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
    // SQLite refuses links anywhere in a path; a linked folder is fine, a linked file is not.
    let folder = folder.canonicalize().map_err(io)?;
    let file = folder.join(name);
    if let Some(kind) = network_kind(&folder) {
        return Err(OpenError::NetworkFileSystem { path: file, kind });
    }
    let there = header_of(&file)?;
    let writable = |path: &Path| {
        rustix::fs::access(path, rustix::fs::Access::WRITE_OK)
            .map_err(|_| OpenError::ReadOnly { path: path.to_owned() })
    };
    let of_folder = fs::metadata(&folder).map_err(io)?;
    if of_folder.mode() & 0o200 == 0 {
        return Err(OpenError::ReadOnly { path: folder });
    }
    writable(&folder)?;
    let own = of_folder.uid() == rustix::process::geteuid().as_raw();
    // A shared folder (sticky, such as /tmp) or one that belongs to another user is not ours to restrict.
    if own && of_folder.mode() & 0o1000 == 0 && folder.parent().is_some() {
        tighten(&folder, of_folder.mode(), 0o700)?;
    }
    match there {
        Some(meta) => {
            // Root may write to anything, but a file that was made read-only was made so for a reason.
            if meta.mode() & 0o200 == 0 {
                return Err(OpenError::ReadOnly { path: file });
            }
            writable(&file)?;
            tighten(&file, meta.mode(), 0o600)?;
            // SQLite takes less than a header for an empty file and would write over it.
            if (1..100).contains(&meta.len()) {
                let why = "it is too short to be a database".to_owned();
                return Err(OpenError::NotOurs { path: file, why });
            }
            if meta.len() == 0 && fs::metadata(with_suffix(&file, "-wal")).is_ok_and(|wal| wal.len() > 0) {
                let why = "it is empty but its write-ahead log is not".to_owned();
                return Err(OpenError::Corrupt { path: file, why });
            }
        }
        None => create(&file)?,
    }
    for suffix in ["-wal", "-shm", "-journal"] {
        let beside = with_suffix(&file, suffix);
        if let Some(meta) = header_of(&beside)? {
            tighten(&beside, meta.mode(), 0o600)?;
        }
    }
    Ok(file)
}

/// Returns the metadata of the plain file at the path, or `None` if nothing exists there.
pub(super) fn header_of(path: &Path) -> Result<Option<fs::Metadata>, OpenError> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(from_io(path, error)),
    };
    let kind = meta.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(Some(meta)),
        () if kind.is_symlink() => "a symbolic link",
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(OpenError::NotAFile { path: path.to_owned(), what })
}

/// Makes a store that is complete, and private, from the moment it has its name. Another process that is faster is fine.
///
/// Built in place it would wait for the disk some ten times, each a moment at which a crash or a full disk leaves a
/// half-made store; built aside it waits once.
fn create(file: &Path) -> Result<(), OpenError> {
    let io = |error| from_io(file, error);
    let folder = file.parent().unwrap_or(Path::new("."));
    let made = tempfile::Builder::new().prefix(".aye-").tempfile_in(folder).map_err(io)?;
    // The mode it was made with went through the umask, which may even take our own right to write.
    fs::set_permissions(made.path(), Permissions::from_mode(0o600)).map_err(io)?;
    let filled = fill(made.path(), file).and_then(|()| made.as_file().sync_all().map_err(io));
    // What SQLite leaves beside a file that it could not finish.
    for suffix in ["-journal", "-wal", "-shm"] {
        let _ = fs::remove_file(with_suffix(made.path(), suffix));
    }
    filled?;
    // Closed before it has its name: another thread may open it then, and a second descriptor that goes away takes
    // SQLite's locks with it.
    match made.into_temp_path().persist_noclobber(file) {
        Err(error) if error.error.kind() != std::io::ErrorKind::AlreadyExists => Err(io(error.error)),
        _ => Ok(()),
    }
}

/// The bytes of a page of a new store. A commit writes each page that it touches whole, and a step touches about ten for
/// a few hundred bytes, so a small page halves what a turn writes. Stores keep the size that they were made with.
pub(crate) const PAGE_SIZE: usize = 2048;

/// Fills a new file, named after the store that it becomes. Every write goes to the file itself, so that each failure is
/// one of a statement: those of a log would be one of closing it, which SQLite does not report.
fn fill(made: &Path, file: &Path) -> Result<(), OpenError> {
    let sqlite = |error| from_sqlite(file, Duration::ZERO, error);
    let mut conn = Connection::open_with_flags(made, OPEN_FLAGS).map_err(sqlite)?;
    conn.execute_batch(&format!(
        "PRAGMA page_size = {PAGE_SIZE}; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA synchronous = OFF; \
         PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = MEMORY;"
    ))
    .map_err(sqlite)?;
    migrate(&mut conn, file)?;
    let found: String = conn.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0)).map_err(sqlite)?;
    if found != "wal" {
        let path = file.to_owned();
        return Err(OpenError::Setting { path, setting: "journal_mode", found, wanted: "wal" });
    }
    conn.close().map_err(|(_, error)| sqlite(error))
}

pub(super) fn tighten(path: &Path, mode: u32, wanted: u32) -> Result<(), OpenError> {
    if mode & 0o777 == wanted {
        return Ok(());
    }
    match fs::set_permissions(path, Permissions::from_mode(wanted)) {
        // `-wal` and `-shm` go away when another process closes the store.
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(from_io(path, error)),
        _ => Ok(()),
    }
}

fn attempt(path: &Path, busy: Duration) -> Result<Connection, OpenError> {
    let fail = |error| from_sqlite(path, busy, error);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut conn = Connection::open_with_flags(path, flags).map_err(fail)?;
    conn.busy_timeout(busy).map_err(fail)?;
    // Until the file is known to be ours, closing must not fold another program's write-ahead log into it.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(fail)?;
    harden(&conn).map_err(fail)?;
    if conn.is_readonly("main").map_err(fail)? {
        return Err(OpenError::ReadOnly { path: path.to_owned() });
    }
    identify(&conn, path, busy)?;
    configure(&conn, path, "wal").map_err(|e| e.into_open(path, busy))?;
    migrate(&mut conn, path)?;
    inspect(&conn, path, busy)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(fail)?;
    Ok(conn)
}

/// A file may have been edited by others: what is in its schema is not trusted to run anything.
pub(super) fn harden(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    // Without this, a plan that depends on bound values is prepared again for each use of its statement.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Checks whose file it is, before anything is written.
pub(super) fn identify(conn: &Connection, path: &Path, busy: Duration) -> Result<(), OpenError> {
    let fail = |error| from_sqlite(path, busy, error);
    // In one transaction: another process may be making the store at this moment.
    let tx = conn.unchecked_transaction().map_err(fail)?;
    let found = pragma(&tx, "user_version").map_err(fail)?;
    let application = pragma(&tx, "application_id").map_err(fail)?;
    let tables: i64 =
        tx.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0)).map_err(fail)?;
    drop(tx);
    let ours = our_version();
    let is_ours = application == APPLICATION_ID;
    let is_empty = application == 0 && tables == 0;
    if (is_ours || is_empty) && found > ours {
        return Err(OpenError::NewerVersion { path: path.to_owned(), found, ours });
    }
    if is_ours && found < 1 || is_empty && found < 0 {
        let why = format!("its format number is {found}");
        return Err(OpenError::Corrupt { path: path.to_owned(), why });
    }
    if !is_ours && !is_empty {
        let why = if application == 0 {
            "it is a SQLite database that aye did not create".to_owned()
        } else {
            format!("it is a SQLite database of another program (application id {application:#x})")
        };
        return Err(OpenError::NotOurs { path: path.to_owned(), why });
    }
    Ok(())
}

enum SettingError {
    Sqlite(rusqlite::Error),
    Setting { setting: &'static str, found: String, wanted: &'static str },
}

impl From<rusqlite::Error> for SettingError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl SettingError {
    fn into_open(self, path: &Path, busy: Duration) -> OpenError {
        match self {
            Self::Sqlite(error) => from_sqlite(path, busy, error),
            Self::Setting { setting, found, wanted } => {
                OpenError::Setting { path: path.to_owned(), setting, found, wanted }
            }
        }
    }
}

/// Sets what the promises rest on, and looks whether it was taken.
fn configure(conn: &Connection, path: &Path, journal: &'static str) -> Result<(), SettingError> {
    let mut mode: String = conn.query_row("PRAGMA journal_mode", (), |row| row.get(0))?;
    if mode != journal {
        mode = conn.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0))?;
    }
    if mode != journal {
        return Err(SettingError::Setting { setting: "journal_mode", found: mode, wanted: journal });
    }
    conn.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; \
         PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY; PRAGMA secure_delete = FAST;",
    )?;
    let _: i64 =
        conn.query_row(&format!("PRAGMA journal_size_limit = {JOURNAL_LIMIT}"), (), |row| row.get(0))?;
    for (setting, wanted, number) in
        [("synchronous", "2", 2), ("foreign_keys", "1", 1), ("trusted_schema", "0", 0)]
    {
        let found = pragma(conn, setting)?;
        if found != number {
            tracing::error!("{setting} of {} is {found}", path.display());
            return Err(SettingError::Setting { setting, found: found.to_string(), wanted });
        }
    }
    Ok(())
}

pub(super) fn migrate(conn: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let mut from = pragma(conn, "user_version").map_err(|e| from_sqlite(path, Duration::ZERO, e))?;
    while from < our_version() {
        let to = from + 1;
        from = step(conn).map_err(|source| match from_sqlite(path, Duration::ZERO, source) {
            OpenError::Io { source, .. } => match source.downcast::<rusqlite::Error>() {
                Ok(source) => OpenError::Migration { path: path.to_owned(), from, to, source: *source },
                Err(source) => OpenError::Io { path: path.to_owned(), source },
            },
            named => named,
        })?;
    }
    Ok(())
}

/// One migration in one transaction. The version is read again inside it: another process may have been faster.
fn step(conn: &mut Connection) -> rusqlite::Result<i64> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let from = pragma(&tx, "user_version")?;
    let Some(sql) = usize::try_from(from).ok().and_then(|n| MIGRATIONS.get(n)) else { return Ok(from) };
    tx.execute_batch(sql)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", from + 1)?;
    tx.commit()?;
    Ok(from + 1)
}

/// Reads the root of every table, and refuses code in the schema that runs automatically, which we never
/// create.
pub(super) fn inspect(conn: &Connection, path: &Path, busy: Duration) -> Result<(), OpenError> {
    let corrupt = |why| OpenError::Corrupt { path: path.to_owned(), why };
    let foreign = "SELECT type || ' ' || name FROM sqlite_schema WHERE type IN ('trigger', 'view') LIMIT 1";
    let found = conn.query_row(foreign, (), |row| row.get::<_, String>(0));
    match found {
        Ok(name) => return Err(corrupt(format!("it has a {name} that aye did not create"))),
        Err(rusqlite::Error::QueryReturnedNoRows) => {}
        Err(error) => return Err(from_sqlite(path, busy, error)),
    }
    let roots = "SELECT (SELECT 1 FROM thread), (SELECT 1 FROM message), (SELECT 1 FROM thread_state), \
         (SELECT 1 FROM lease), (SELECT 1 FROM run), (SELECT 1 FROM suspension), (SELECT 1 FROM intent), \
         (SELECT 1 FROM output), (SELECT 1 FROM output_size), (SELECT 1 FROM grant_row), (SELECT 1 FROM prompt), (SELECT 1 FROM mailbox), \
         (SELECT 1 FROM mailbox_generation), \
         (SELECT 1 FROM audit), (SELECT 1 FROM audit_head), (SELECT 1 FROM audit_rules), \
         (SELECT 1 FROM audit_start), (SELECT 1 FROM profile), (SELECT 1 FROM tally), (SELECT 1 FROM summary), \
         (SELECT 1 FROM snapshot), (SELECT 1 FROM went_back), (SELECT 1 FROM thread_state_at), \
         (SELECT 1 FROM command), (SELECT 1 FROM delivery), (SELECT 1 FROM prefix)";
    conn.query_row(roots, (), |_| Ok(())).map_err(|error| match from_sqlite(path, busy, error) {
        OpenError::Io { source, .. } => corrupt(source.to_string()),
        named => named,
    })
}

pub(super) fn pragma(conn: &Connection, name: &str) -> rusqlite::Result<i64> {
    conn.query_row(&format!("PRAGMA {name}"), (), |row| row.get(0))
}

pub(super) fn from_io(path: &Path, error: std::io::Error) -> OpenError {
    let path = path.to_owned();
    match error.kind() {
        std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
            OpenError::ReadOnly { path }
        }
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => OpenError::Full { path },
        _ => OpenError::Io { path, source: Box::new(error) },
    }
}

pub(super) fn from_sqlite(path: &Path, busy: Duration, error: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotOurs {
            path,
            why: "it is not a SQLite database, or its first page is damaged".to_owned(),
        },
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Corrupt { path, why: text_of(&error) },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            let pid = super::place::locked_by(&path);
            OpenError::Locked { path, pid, waited_ms: busy.as_millis() as u64 }
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => OpenError::ReadOnly { path },
        Some(ErrorCode::DiskFull) => OpenError::Full { path },
        Some(ErrorCode::SystemIoFailure) if is_no_space(&error) => OpenError::Full { path },
        _ => OpenError::Io { path, source: Box::new(error) },
    }
}
