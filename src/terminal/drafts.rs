//! Drafts of the terminal: a file per conversation, so that a draft survives any end of the program. Nothing waits
//! for the disk: a power cut may lose the last words.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::config::{create_private_dir, read_private};
use crate::contract::ids::ThreadId;
use crate::tui::composer::paste::Draft;
use crate::tui::host::KeepDraft;

/// The maximum size of a draft that is read.
const MAX: u64 = 16 << 20;

/// The files of a folder.
#[derive(Clone, Debug)]
pub(crate) struct Drafts {
    dir: Option<PathBuf>,
    cwd: PathBuf,
    /// The number of the last draft stored, by conversation.
    kept: Arc<Mutex<HashMap<ThreadId, u64>>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    cwd: PathBuf,
    pid: i32,
    is_new: bool,
    draft: Draft,
}

impl Kept {
    /// Returns whether the process that wrote the draft is another one and still running.
    fn is_held(&self) -> bool {
        let own = rustix::process::getpid();
        Pid::from_raw(self.pid).is_some_and(|pid| pid != own && test_kill_process(pid).is_ok())
    }
}

impl Drafts {
    /// Creates the drafts of a folder. `dir` is where they are stored; without it nothing is stored.
    pub(crate) fn new(dir: Option<PathBuf>, cwd: PathBuf) -> Self {
        Self { dir, cwd, kept: Arc::default() }
    }

    fn file(&self, thread: &ThreadId) -> Option<PathBuf> {
        // The name of a conversation may come from a command line.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let name = Some(thread.as_str()).filter(|name| !name.is_empty() && name.chars().all(is_plain))?;
        Some(self.dir.as_ref()?.join(format!("{name}.json")))
    }

    /// Stores a draft, or deletes it if it is empty. Blocks.
    pub(crate) fn keep(&self, keep: &KeepDraft) {
        let Some(file) = self.file(&keep.thread) else { return };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let last = kept.entry(keep.thread.clone()).or_default();
        if *last > keep.number {
            return;
        }
        *last = keep.number;
        let done = if keep.draft.text.is_empty() {
            forget(&file)
        } else {
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            let row = Kept { cwd: self.cwd.clone(), pid, is_new: keep.is_new, draft: keep.draft.clone() };
            write(&file, &row)
        };
        if let Err(error) = done {
            tracing::warn!(%error, "the draft could not be stored");
        }
    }

    /// Returns the draft that an exited process left for a conversation; for a new conversation also one that
    /// it left for another new one in this folder. Blocks.
    pub(crate) fn find(&self, thread: &ThreadId, is_new: bool) -> Option<Draft> {
        let own = self.file(thread)?;
        if let Some(kept) = read(&own).filter(|kept| !kept.is_held()) {
            return Some(kept.draft);
        }
        if !is_new {
            return None;
        }
        let own: Vec<PathBuf> = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.keys().filter_map(|thread| self.file(thread)).collect()
        };
        let mut files: Vec<_> = fs::read_dir(self.dir.as_ref()?)
            .ok()?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|ending| ending == "json") && !own.contains(path))
            .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
            .collect();
        files.sort();
        files.into_iter().rev().find_map(|(_, path)| {
            let kept = read(&path).filter(|kept| kept.is_new && kept.cwd == self.cwd && !kept.is_held())?;
            // If two processes try, only one gets it.
            fs::remove_file(&path).ok().map(|()| kept.draft)
        })
    }
}

fn read(path: &Path) -> Option<Kept> {
    let text = read_private(path, MAX).ok()??;
    serde_json::from_str(&text).ok()
}

fn forget(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Replaces the file atomically: readers see the old text or the new one.
fn write(path: &Path, kept: &Kept) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    create_private_dir(dir).map_err(io::Error::other)?;
    let temporary = path.with_extension("tmp");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(&serde_json::to_vec(kept)?)?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(number: u64, thread: &str, is_new: bool, text: &str) -> KeepDraft {
        let draft = Draft { text: text.into(), pastes: Vec::new() };
        KeepDraft { number, thread: thread.into(), is_new, draft }
    }

    fn text(draft: Option<Draft>) -> Option<String> {
        draft.map(|draft| draft.text)
    }

    #[test]
    fn a_draft_is_found_by_its_conversation_and_a_new_one_by_its_folder() {
        let home = tempfile::tempdir().unwrap();
        let drafts = |cwd: &str| Drafts::new(Some(home.path().join("drafts")), cwd.into());
        drafts("/a").keep(&keep(1, "t-1", true, "new text"));
        drafts("/a").keep(&keep(1, "t-2", false, "old text"));
        assert_eq!(text(drafts("/a").find(&"t-2".into(), false)).as_deref(), Some("old text"));
        assert_eq!(text(drafts("/b").find(&"t-9".into(), true)), None, "another folder");
        assert_eq!(text(drafts("/a").find(&"t-9".into(), false)), None, "something was said there");
        assert_eq!(text(drafts("/a").find(&"t-9".into(), true)).as_deref(), Some("new text"));
        assert_eq!(text(drafts("/a").find(&"t-8".into(), true)), None, "it was taken over");
    }

    #[test]
    fn an_older_draft_does_not_replace_a_newer_one_and_names_stay_in_the_folder() {
        let home = tempfile::tempdir().unwrap();
        let drafts = Drafts::new(Some(home.path().join("drafts")), "/a".into());
        drafts.keep(&keep(2, "t", true, "newer"));
        drafts.keep(&keep(1, "t", true, "older"));
        assert_eq!(text(drafts.find(&"t".into(), true)).as_deref(), Some("newer"));
        drafts.keep(&keep(3, "t", true, ""));
        assert_eq!(text(drafts.find(&"t".into(), true)), None);
        drafts.keep(&keep(1, "../x", true, "no"));
        assert!(!home.path().join("x.json").exists());
        Drafts::new(None, "/a".into()).keep(&keep(1, "t", true, "nothing is kept"));
    }
}
