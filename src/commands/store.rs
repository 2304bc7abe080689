//! `aye store`: the database of all conversations.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::shared::JsonFlag;
use crate::cli::time::span;
use crate::commands::{put_json, when};
use crate::contract::amount::{bytes_in_words, counted};
use crate::contract::display::visible_line;
use crate::contract::record::{Owner, SuspensionStatus};
use crate::contract::storage::{ProgramStore, PrunePlace, SharedStore, SuspensionFilter};
use crate::contract::suspension::ResumeDecisionAction;
use crate::contract::terms::Expiry;
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::{put, put_stderr};
use crate::runtime::mark_unknown;
use crate::store::{OpenError, Store};
use crate::tools::SandboxFolders;

/// `aye store ...`
#[derive(Clone, Debug, Subcommand)]
pub enum StoreCommand {
    /// Write a copy of the store to a new file; safe while aye runs
    ///
    /// The copy contains conversations, questions, grants, the queue and the audit; not settings, and not the
    /// files of snapshots.
    Backup {
        /// The file, which must not exist yet
        file: PathBuf,
    },
    /// Replace the store with a backup; the old store is kept beside it
    ///
    /// Calls that were approved or running when the backup was made may have run since: each has an unknown outcome,
    /// and does not run again unless you say so.
    Restore {
        /// The backup
        file: PathBuf,
    },
    /// Check the file, each conversation and the audit; exit 1 on errors
    Check(JsonFlag),
    /// Delete old conversations permanently, oldest first, and free their space
    ///
    /// Conversations stay if they are pinned or have a pending question, a queued job or an active run. The audit
    /// stays, with the arguments of calls.
    #[command(after_help = "Examples:\n  aye store prune --older-than 90d\n  aye store prune --keep 5GiB")]
    Prune(PruneArgs),
}

/// `aye store prune`
#[derive(Args, Clone, Copy, Debug)]
#[group(required = true, multiple = true)]
pub struct PruneArgs {
    /// Conversations last changed longer ago, for example 90d
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub older_than: Option<Duration>,
    /// Delete until the store is at most this large, for example 5GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub keep: Option<u64>,
}

/// Reads a number of bytes such as `500MiB`, `5GiB` or `2GB`.
fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("invalid size `{text}`; expected 500MiB or 5GiB");
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(wrong)
}

pub(crate) async fn run(command: StoreCommand, foundation: &Foundation) -> Result<u8, Failure> {
    if foundation.is_ephemeral {
        return Err(Failure::usage("--ephemeral has no store; leave it out"));
    }
    match command {
        StoreCommand::Backup { file } => backup(&file, foundation).await.map(|()| 0),
        StoreCommand::Restore { file } => restore(&file, foundation).await.map(|()| 0),
        StoreCommand::Check(JsonFlag { json }) => check(json, foundation).await,
        StoreCommand::Prune(args) => prune(args, foundation).await.map(|()| 0),
    }
}

async fn backup(file: &Path, foundation: &Foundation) -> Result<(), Failure> {
    let store = foundation.open_file_to_read()?;
    let file = foundation.workspace.cwd.join(file);
    store.backup(&file).await.map_err(Failure::failed)?;
    store.close().await;
    put(&format!("{}\n", visible_line(&file.to_string_lossy())))
}

/// Returns the faults of a store, one line each.
async fn faults(store: &dyn ProgramStore) -> Result<Vec<String>, Failure> {
    let mut found = store.check().await.map_err(Failure::failed)?;
    let audit = store.verify_audit().await.map_err(Failure::failed)?;
    let wrong = audit.faults.len() as u64 + audit.unlisted;
    if wrong > 0 {
        found.push(format!("the audit is damaged ({wrong} faults); `aye audit --verify` lists them"));
    }
    Ok(found)
}

async fn check(json: bool, foundation: &Foundation) -> Result<u8, Failure> {
    let store = foundation.open_store_to_read()?;
    let found = faults(&*store).await?;
    let bytes = store.used_bytes().await.map_err(Failure::failed)?;
    store.close().await;
    let path = foundation.paths.database();
    let code = u8::from(!found.is_empty());
    if json {
        put_json(&json!({"path": path.to_string_lossy(), "bytes": bytes, "faults": found}))?;
    } else if found.is_empty() {
        put(&format!("{}: whole; {}\n", foundation.paths.display(&path), bytes_in_words(bytes)))?;
    } else {
        for fault in &found {
            put(&format!("{}\n", visible_line(fault)))?;
        }
    }
    Ok(code)
}

async fn prune(args: PruneArgs, foundation: &Foundation) -> Result<(), Failure> {
    let store = foundation.open_store()?;
    let now = store.clock().now_ms();
    let span = args.older_than.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    let before = span.map(|span| now.saturating_sub(span));
    let bytes = store.used_bytes().await.map_err(Failure::failed)?;
    let gone = prune_store(&store, before, args.keep, foundation).await?;
    // Even if nothing was deleted now: earlier deletions free space in the file.
    if !store.shrink(true).await.map_err(Failure::failed)? {
        put_stderr(
            "another process has the store open; its log contains the deleted data until that process ends",
        );
    }
    let left = store.used_bytes().await.map_err(Failure::failed)?;
    store.close().await;
    let room = if left < bytes {
        format!("the store shrank from {} to {}", bytes_in_words(bytes), bytes_in_words(left))
    } else {
        format!("the store has {}", bytes_in_words(left))
    };
    put(&format!("deleted {}; {room}\n", counted(gone, "conversation")))?;
    if let Some(keep) = args.keep.filter(|keep| left > *keep) {
        put_stderr(&format!(
            "the store is still larger than {}; pinned, waiting, queued and running conversations stay, and \
             so does the audit",
            bytes_in_words(keep)
        ));
    }
    Ok(())
}

/// Deletes conversations that were changed before a time, oldest first, as long as the store is larger than `keep`.
pub(crate) async fn prune_store(
    store: &SharedStore,
    before: Option<u64>,
    keep: Option<u64>,
    foundation: &Foundation,
) -> Result<u64, Failure> {
    let (mut gone, mut place) = (0, PrunePlace::default());
    loop {
        if let Some(keep) = keep
            && store.used_bytes().await.map_err(Failure::failed)? <= keep
        {
            return Ok(gone);
        }
        let actor = crate::program::app_context::actor(foundation, "cli");
        let pruned =
            store.prune(before, place, actor, store.clock().now_ms()).await.map_err(Failure::failed)?;
        gone += pruned.threads.len() as u64;
        match pruned.next {
            Some(next) => place = next,
            None => return Ok(gone),
        }
    }
}

async fn restore(file: &Path, foundation: &Foundation) -> Result<(), Failure> {
    let backup = foundation.workspace.cwd.join(file);
    let name = visible_line(&backup.to_string_lossy()).into_owned();
    let own = Owner::of_this_process();
    foundation.make_folders()?;
    let target = foundation.paths.database();
    let folder = target.parent().unwrap_or(Path::new(".")).to_owned();
    let io = |error: std::io::Error| Failure::failed(format!("cannot restore {name}: {error}"));
    let made = tempfile::Builder::new().prefix(".aye-restore-").tempdir_in(&folder).map_err(io)?;
    let copy = made.path().join("aye.db");
    {
        let source = Store::open_to_read(&backup).map_err(Failure::failed)?;
        let found = faults(&source).await?;
        if let Some(first) = found.first() {
            return Err(Failure::failed(format!("{name} is damaged ({first}); nothing changed")));
        }
        source.backup(&copy).await.map_err(Failure::failed)?;
        source.close().await;
    }
    let restored = Store::open(&copy).map_err(Failure::failed)?;
    let now = restored.clock().now_ms();
    let unknown = mark_unknown(&restored, &own, now).await.map_err(Failure::failed)?;
    let threads = restored.threads(None).await.map_err(Failure::failed)?.len();
    // As it was before the backup returns; read without a change, whatever its state is.
    let answered = match Store::open_to_read(&target) {
        Ok(current) => note_later_answers(&restored, &current).await?,
        Err(_) => 0,
    };
    restored.close().await;
    let kept = move_aside(&target, &own, now).await?;
    std::fs::rename(&copy, &target).map_err(io)?;
    std::fs::File::open(&folder).and_then(|folder| folder.sync_all()).map_err(io)?;
    foundation.remember_store();
    put(&format!("restored {} from {name}\n", counted(threads as u64, "conversation")))?;
    if let Some(kept) = kept {
        put_stderr(&format!("the previous store is {}", foundation.paths.display(&kept)));
    }
    if unknown > 0 {
        put_stderr(&may_have_run(unknown, "backup"));
    }
    match answered {
        0 => {}
        1 => put_stderr("1 pending question was answered after the backup; its card says so"),
        more => put_stderr(&format!(
            "{more} pending questions were answered after the backup; their cards say so"
        )),
    }
    Ok(())
}

/// Says on the pending questions of a restored store which of them the current store has answered since. Returns their
/// number.
async fn note_later_answers(restored: &Store, current: &Store) -> Result<u64, Failure> {
    let open = SuspensionFilter { status: Some(SuspensionStatus::Open), ..SuspensionFilter::default() };
    let mut noted = 0;
    for question in restored.suspensions(open).await.map_err(Failure::failed)? {
        let Ok(Some(later)) = current.suspension(&question.id).await else { continue };
        let (Some(decision), Some(actor)) = (&later.decision, &later.decided_by) else { continue };
        let (answer, then) = match decision.action {
            ResumeDecisionAction::Resume => ("answered", ", and its call may have run"),
            ResumeDecisionAction::Cancel => ("denied", ""),
        };
        let (user, at) = (&actor.user, when(decision.updated_at));
        let why = question.ticket.suspension.why();
        let why = format!("{user} {answer} this after the backup, on {at}{then}; asked because: {why}");
        noted += u64::from(restored.replace_reason(&question.id, &why).await.map_err(Failure::failed)?);
    }
    Ok(noted)
}

/// Returns the note that calls of a copy may have run since the copy was made.
pub(crate) fn may_have_run(calls: u64, copy: &str) -> String {
    let (calls, outcome) = match calls {
        1 => ("1 call".to_owned(), "its outcome is unknown, and it does not run"),
        calls => (format!("{calls} calls"), "their outcomes are unknown, and they do not run"),
    };
    format!("{calls} may have run since the {copy}: {outcome} again unless you say so")
}

/// Moves the current store and its log out of the way, unless another process has it open.
async fn move_aside(target: &Path, own: &Owner, now: u64) -> Result<Option<PathBuf>, Failure> {
    if target.symlink_metadata().is_err() {
        return Ok(None);
    }
    // A store that cannot be opened is moved too: that may be why a backup is restored.
    if let Ok(store) = Store::open(target) {
        for run in store.unfinished_runs().await.unwrap_or_default() {
            if let Ok(Some(lease)) = store.lease(&run.thread_id).await
                && lease.is_in_use(store.presence().liveness(&lease.owner))
            {
                let (process, thread) = (lease.owner.name_for(own), run.thread_id);
                store.close().await;
                return Err(Failure::failed(format!(
                    "{process} runs conversation {thread}; stop it first; nothing changed"
                )));
            }
        }
        store.close().await;
    }
    // Held until all files are moved. What is not a database at all cannot be locked.
    let _lock = match Store::lock(target) {
        Err(error @ OpenError::Locked { .. }) => {
            return Err(Failure::failed(format!(
                "another process has the store open; stop it first; nothing changed ({error})"
            )));
        }
        lock => lock,
    };
    let with = |suffix: &str, end: &str| {
        let mut name: OsString = target.as_os_str().to_owned();
        name.push(suffix);
        name.push(end);
        PathBuf::from(name)
    };
    let aside = format!(".before-restore-{now}");
    for end in ["", "-wal", "-shm", "-mark"] {
        match std::fs::rename(with("", end), with(&aside, end)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::failed(format!("cannot move the current store: {error}")));
            }
            _ => {}
        }
    }
    Ok(Some(with(&aside, "")))
}

/// Temporary files and downloads of sandboxed commands are removed when nothing has used them for this time.
const UNUSED: Duration = Duration::from_hours(30 * 24);

/// Deletes what is older than the setting `threads.keep` allows, and old files of sandboxed commands.
pub(crate) async fn prune_by_setting(store: &SharedStore, foundation: &Foundation) {
    let caches = foundation.paths.cache_dir.clone();
    let _ = tokio::task::spawn_blocking(move || SandboxFolders::remove_unused(&caches, UNUSED)).await;
    let Expiry::After(keep) = foundation.loaded.settings.threads.keep else { return };
    let now = store.clock().now_ms();
    let before = now.saturating_sub(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
    match prune_store(store, Some(before), None, foundation).await {
        Ok(0) => {}
        Ok(gone) => {
            tracing::info!(gone, before = when(before), "old conversations were deleted (threads.keep)");
            if let Err(error) = store.shrink(false).await {
                tracing::warn!(%error, "the store could not shrink");
            }
        }
        Err(failure) => tracing::warn!("old conversations could not be deleted: {}", failure.message),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_round_trip() {
        assert_eq!(parse_size("5GiB"), Ok(5 << 30));
        assert_eq!(parse_size(" 500 mib"), Ok(500 << 20));
        assert_eq!(
            (parse_size("2GB"), parse_size("0"), parse_size("10")),
            (Ok(2_000_000_000), Ok(0), Ok(10))
        );
        for wrong in ["", "GiB", "1.5G", "-1G", "5 apples", "99999999999999999999"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
