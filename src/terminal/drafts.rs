//! Drafts of the terminal: a file per conversation, so that a draft survives any end of the program. Nothing waits
//! for the disk: a power cut may lose the last words.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use aye_platform::{HeldLock, LockFolder, LockState};
use serde::{Deserialize, Serialize};

use crate::config::{create_private_dir, read_private};
use crate::contract::ids::{MessageId, ThreadId};
use crate::tui::composer::paste::Draft;
use crate::tui::host::KeepDraft;

/// The maximum size of a draft that is read.
const MAX: u64 = 16 << 20;

/// The files of a folder.
#[derive(Clone, Debug)]
pub(crate) struct Drafts {
    dir: Option<PathBuf>,
    cwd: PathBuf,
    /// The lock that shows other processes that the drafts of this one are being written; `None` if it cannot be taken.
    lock: Arc<OnceLock<Option<(String, HeldLock)>>>,
    /// The number of the last draft stored, by conversation.
    kept: Arc<Mutex<HashMap<ThreadId, u64>>>,
    /// The messages that this process has sent or is sending.
    sent_here: Arc<Mutex<HashSet<MessageId>>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    cwd: PathBuf,
    /// For older versions, which look no further.
    pid: i32,
    /// The lock of the process that writes the draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lock: Option<String>,
    is_new: bool,
    draft: Draft,
    /// The message that the draft was sent as. Once that is stored, the draft is obsolete, even if the process died
    /// before it could delete it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sent: Option<MessageId>,
}

impl Drafts {
    /// Creates the drafts of a folder. `dir` is where they are stored; without it nothing is stored.
    pub(crate) fn new(dir: Option<PathBuf>, cwd: PathBuf) -> Self {
        Self { dir, cwd, lock: Arc::default(), kept: Arc::default(), sent_here: Arc::default() }
    }

    fn locks(&self) -> Option<LockFolder> {
        Some(LockFolder::new(self.dir.as_ref()?.join("alive")))
    }

    /// Returns the name of the lock, which is taken with the first draft.
    fn lock(&self) -> Option<String> {
        let taken = self.lock.get_or_init(|| {
            let (name, locks) = (uuid::Uuid::now_v7().to_string(), self.locks()?);
            let held = locks.hold(&name).inspect_err(
                |error| tracing::warn!(%error, "other terminals may take the drafts of this one"),
            );
            Some((name, held.ok()?))
        });
        let (name, held) = taken.as_ref()?;
        let _ = held.keep();
        Some(name.clone())
    }

    /// Returns whether another process, which is still running, writes a draft. If that cannot be known, the draft counts
    /// as left: to see it twice is better than never.
    fn is_held(&self, kept: &Kept) -> bool {
        let own = self.lock.get().and_then(Option::as_ref).map(|(name, _)| name);
        let other = kept.lock.as_ref().filter(|name| Some(*name) != own);
        other.zip(self.locks()).is_some_and(|(name, locks)| locks.state(name) == LockState::Held)
    }

    fn row(&self, is_new: bool, draft: Draft, sent: Option<MessageId>) -> Kept {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Kept { cwd: self.cwd.clone(), pid, lock: self.lock(), is_new, draft, sent }
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
            write(&file, &self.row(keep.is_new, keep.draft.clone(), None))
        };
        if let Err(error) = done {
            tracing::warn!(%error, "the draft could not be stored");
        }
    }

    /// Stores the text of a message that is about to be sent: until the message is stored, only the draft has it.
    /// Blocks.
    pub(crate) fn send(&self, thread: &ThreadId, is_new: bool, draft: Draft, message: &MessageId) {
        let Some(file) = self.file(thread) else { return };
        let _kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let row = self.row(is_new, draft, Some(message.clone()));
        self.sent_here.lock().unwrap_or_else(PoisonError::into_inner).insert(message.clone());
        if let Err(error) = write(&file, &row) {
            tracing::warn!(%error, "the draft could not be stored");
        }
    }

    /// Deletes the draft of a message that is stored, unless there is another one by now. Blocks.
    pub(crate) fn stored(&self, thread: &ThreadId, message: &MessageId) {
        let Some(file) = self.file(thread) else { return };
        let _kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if read(&file).is_some_and(|kept| kept.sent.as_ref() == Some(message)) {
            let _ = forget(&file);
        }
    }

    /// Returns the draft that an exited process left for a conversation; for a new conversation also one that
    /// it left for another new one in this folder. `is_stored` says whether a message is in a conversation or its queue.
    /// Blocks.
    pub(crate) fn find(
        &self,
        thread: &ThreadId,
        is_new: bool,
        is_stored: impl Fn(&ThreadId, &MessageId) -> bool,
    ) -> Option<Draft> {
        let own = self.file(thread)?;
        // A composer that opens late would otherwise get what this process is sending.
        // Looked up after the file was read: a message is noted before its draft is written.
        let is_being_sent = |kept: &Kept| {
            let sent_here = self.sent_here.lock().unwrap_or_else(PoisonError::into_inner);
            kept.sent.as_ref().is_some_and(|sent| sent_here.contains(sent))
        };
        let is_obsolete = |path: &Path, thread: &ThreadId, kept: &Kept| {
            let is =
                !self.is_held(kept) && kept.sent.as_ref().is_some_and(|message| is_stored(thread, message));
            is && forget(path).is_ok()
        };
        if let Some(kept) = read(&own)
            .filter(|kept| !self.is_held(kept) && !is_being_sent(kept) && !is_obsolete(&own, thread, kept))
        {
            return Some(kept.draft);
        }
        if !is_new {
            return None;
        }
        if let Some(locks) = self.locks() {
            locks.remove_released();
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
            let kept =
                read(&path).filter(|kept| kept.is_new && kept.cwd == self.cwd && !self.is_held(kept))?;
            if is_being_sent(&kept) {
                return None;
            }
            let thread = ThreadId::from(path.file_stem()?.to_str()?);
            if is_obsolete(&path, &thread, &kept) {
                return None;
            }
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
        assert_eq!(text(drafts("/a").find(&"t-2".into(), false, |_, _| false)).as_deref(), Some("old text"));
        assert_eq!(text(drafts("/b").find(&"t-9".into(), true, |_, _| false)), None, "another folder");
        assert_eq!(
            text(drafts("/a").find(&"t-9".into(), false, |_, _| false)),
            None,
            "something was said there"
        );
        assert_eq!(text(drafts("/a").find(&"t-9".into(), true, |_, _| false)).as_deref(), Some("new text"));
        assert_eq!(text(drafts("/a").find(&"t-8".into(), true, |_, _| false)), None, "it was taken over");
    }

    /// Another process is one in another container, too, whose pid means nothing here.
    #[test]
    fn a_draft_belongs_to_a_living_process_until_that_ends() {
        let home = tempfile::tempdir().unwrap();
        let drafts = || Drafts::new(Some(home.path().join("drafts")), "/a".into());
        let find = |thread: &str, is_new| text(drafts().find(&thread.into(), is_new, |_, _| false));
        let writer = drafts();
        writer.keep(&keep(1, "t-1", true, "half a sentence"));
        assert_eq!((find("t-1", false), find("t-9", true)), (None, None));
        assert_eq!(text(writer.find(&"t-1".into(), false, |_, _| false)).as_deref(), Some("half a sentence"));
        drop(writer);
        assert_eq!(find("t-1", false).as_deref(), Some("half a sentence"));
        // As an older version leaves it; a process with its pid is no sign of it.
        let row = serde_json::json!({"cwd": "/a", "pid": 1, "is_new": false, "draft": Draft::from("older")});
        fs::write(home.path().join("drafts/t-2.json"), row.to_string()).unwrap();
        assert_eq!(find("t-2", false).as_deref(), Some("older"));
    }

    #[test]
    fn an_older_draft_does_not_replace_a_newer_one_and_names_stay_in_the_folder() {
        let home = tempfile::tempdir().unwrap();
        let drafts = Drafts::new(Some(home.path().join("drafts")), "/a".into());
        drafts.keep(&keep(2, "t", true, "newer"));
        drafts.keep(&keep(1, "t", true, "older"));
        assert_eq!(text(drafts.find(&"t".into(), true, |_, _| false)).as_deref(), Some("newer"));
        drafts.keep(&keep(3, "t", true, ""));
        assert_eq!(text(drafts.find(&"t".into(), true, |_, _| false)), None);
        drafts.keep(&keep(1, "../x", true, "no"));
        assert!(!home.path().join("x.json").exists());
        Drafts::new(None, "/a".into()).keep(&keep(1, "t", true, "nothing is kept"));
    }

    #[test]
    fn a_draft_whose_message_is_stored_does_not_come_back() {
        let home = tempfile::tempdir().unwrap();
        let drafts = || Drafts::new(Some(home.path().join("drafts")), "/a".into());
        let (first, second) = (MessageId::from("m-1"), MessageId::from("m-2"));
        for (is_new, from) in [(false, "t-1"), (true, "t-2")] {
            let sent = || {
                drafts().keep(&keep(1, "t-1", is_new, "half a sen"));
                drafts().send(&"t-1".into(), is_new, Draft::from("half a sentence"), &first);
            };
            let find = |is_stored: bool| {
                text(drafts().find(&from.into(), is_new, |thread, message| {
                    assert_eq!((thread, message), (&"t-1".into(), &first));
                    is_stored
                }))
            };
            sent();
            assert_eq!(find(false).as_deref(), Some("half a sentence"), "only the draft has it");
            sent();
            assert_eq!(find(true), None);
            assert_eq!(find(false), None, "it is gone");
        }
        let sender = drafts();
        sender.send(&"t-4".into(), true, Draft::from("on its way"), &first);
        assert_eq!(text(sender.find(&"t-4".into(), true, |_, _| false)), None, "this process is sending it");
        sender.stored(&"t-4".into(), &first);
        drafts().send(&"t-3".into(), false, Draft::from("one"), &first);
        drafts().stored(&"t-3".into(), &second);
        assert!(drafts().find(&"t-3".into(), false, |_, _| false).is_some(), "another message");
        drafts().stored(&"t-3".into(), &first);
        assert_eq!(drafts().find(&"t-3".into(), false, |_, _| false), None);
    }

    /// A composer that looks for drafts while a message is sent does not get that message.
    #[test]
    fn a_message_sent_during_the_search_does_not_come_back() {
        let home = tempfile::tempdir().unwrap();
        let drafts = || Drafts::new(Some(home.path().join("drafts")), "/a".into());
        let (left, sent) = (MessageId::from("m-1"), MessageId::from("m-2"));
        drafts().send(&"t-1".into(), true, Draft::from("left by another process"), &left);
        let own = drafts();
        let found = own.find(&"t-1".into(), true, |_, message| {
            // The search has begun, and has not seen the other files yet.
            if *message == left {
                own.send(&"t-2".into(), true, Draft::from("on its way"), &sent);
            }
            *message == left
        });
        assert_eq!(text(found), None);
        own.stored(&"t-2".into(), &sent);
    }
}
