//! Snapshots: the files of a folder before a step changed them, and how to restore them.

use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::ids::{RunId, ThreadId};
use super::tool::FilePreview;

/// Names files of a folder as they were: the SHA-256 of them all, hex, and after a `+` each that of a few files which were
/// kept before that, the earliest first. Without the first part nothing is known of other files. Equal names are equal
/// files.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TreeId(pub String);

impl TreeId {
    /// All files, by their hash.
    pub fn of_all(hash: &str) -> TreeId {
        TreeId(hash.to_owned())
    }

    /// A few files, by their hash.
    pub fn of_some(hash: &str) -> TreeId {
        TreeId(format!("+{hash}"))
    }

    /// The hash of all files, and those of the few that were kept before them.
    pub fn parts(&self) -> (Option<&str>, impl Iterator<Item = &str>) {
        let mut parts = self.0.split('+');
        (parts.next().filter(|all| !all.is_empty()), parts)
    }

    /// Whether it names all files.
    pub fn is_whole(&self) -> bool {
        self.parts().0.is_some()
    }

    /// The files as they were at this moment, as far as it and a later one tell: what both know counts as it was here.
    #[must_use]
    pub fn then(&self, later: &TreeId) -> TreeId {
        if self.is_whole() {
            return self.clone();
        }
        let (all, few) = later.parts();
        let mut known: Vec<&str> = self.parts().1.collect();
        for part in few {
            if !known.contains(&part) {
                known.push(part);
            }
        }
        let mut name = all.unwrap_or_default().to_owned();
        for part in known {
            name.push('+');
            name.push_str(part);
        }
        TreeId(name)
    }
}

/// What was kept of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The files; `None` when they were not kept.
    pub tree: Option<TreeId>,
    /// Why not; or what of them was left out. Empty when nothing was.
    pub note: String,
}

impl SnapshotRecord {
    /// The files before a step of which more was kept later on.
    #[must_use]
    pub fn then(mut self, later: &SnapshotRecord) -> SnapshotRecord {
        self.tree = match (self.tree, &later.tree) {
            (Some(tree), Some(later)) => Some(tree.then(later)),
            (tree, later) => tree.or_else(|| later.clone()),
        };
        if !later.note.is_empty() && !self.note.contains(&later.note) {
            let between = if self.note.is_empty() { "" } else { "; " };
            self.note = format!("{}{between}{}", self.note, later.note);
        }
        self
    }
}

/// The files of one folder before a step, as a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// The conversation.
    pub thread_id: ThreadId,
    /// The run.
    pub run_id: RunId,
    /// How many messages the conversation had, those included that asked for the calls of the step.
    pub seq: u64,
    /// The folder.
    pub root: PathBuf,
    /// The files; `None` when they could not be kept.
    pub tree: Option<TreeId>,
    /// Why not, or what was left out.
    pub note: String,
    /// What was checked out, in words: git's history is left as it is by going back.
    pub head: Option<String>,
    /// When.
    pub created_at: u64,
}

/// Keeps the files of one folder. What `.gitignore` names is no part of it, nor are the folders `.git`.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// The folder.
    fn root(&self) -> PathBuf;

    /// Something may be changed soon: reads what was not read yet, beside everything else, so that [`Snapshots::take`] is
    /// quick. Returns at once.
    fn prepare(&self);

    /// Keeps the files as they are now. It never fails: what could not be kept is said.
    async fn take(&self, cancel: &CancellationToken) -> Taken;

    /// Keeps these files only, and does not look at others; `None`: none of them is a file of the folder.
    async fn take_files(&self, files: Vec<PathBuf>) -> Option<Taken>;
}

/// How a file differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    /// It comes.
    Created,
    /// It is another one.
    Changed,
    /// It goes.
    Deleted,
}

impl FileChangeKind {
    /// A letter, as git writes it.
    pub fn letter(self) -> char {
        match self {
            FileChangeKind::Created => 'A',
            FileChangeKind::Changed => 'M',
            FileChangeKind::Deleted => 'D',
        }
    }
}

/// A file that is different in two trees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// Its place below the folder, as shown.
    pub path: String,
    /// How it differs.
    pub change: FileChangeKind,
    /// Lines that come; `None` when it is no text or too long to count.
    pub added: Option<usize>,
    /// Lines that go.
    pub removed: Option<usize>,
}

/// The difference of two trees with the texts, for a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The files that are shown.
    pub files: Vec<FileChange>,
    /// How many more differ.
    pub more: usize,
    /// What was not compared, and against what was.
    pub notes: Vec<String>,
}

/// One file of a [`Changes`].
#[derive(Clone, Debug, PartialEq)]
pub struct FileChange {
    /// Its place, and how many lines differ.
    pub about: ChangedFile,
    /// The texts, when it is text that is not too long; as tools show them.
    pub preview: Option<FilePreview>,
}

/// What goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewindTarget {
    /// The conversation and the files.
    Both,
    /// The conversation; files stay as they are.
    Conversation,
    /// The files; nothing that was said goes away.
    Files,
}

impl RewindTarget {
    /// Whether the conversation goes back.
    pub fn takes_conversation(self) -> bool {
        matches!(self, RewindTarget::Both | RewindTarget::Conversation)
    }

    /// Whether the files do.
    pub fn takes_files(self) -> bool {
        matches!(self, RewindTarget::Both | RewindTarget::Files)
    }

    /// The word in lists and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            RewindTarget::Both => "both",
            RewindTarget::Conversation => "conversation",
            RewindTarget::Files => "files",
        }
    }

    /// What is called so.
    pub fn parse(word: &str) -> Option<RewindTarget> {
        [RewindTarget::Both, RewindTarget::Conversation, RewindTarget::Files]
            .into_iter()
            .find(|w| w.as_str() == word)
    }
}

/// Somebody went back, as a row: what it takes to take that back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WentBackRecord {
    /// Its number.
    pub n: u64,
    /// The conversation that was gone on with.
    pub thread_id: ThreadId,
    /// The conversation that was left, when it is another one.
    pub from_thread: Option<ThreadId>,
    /// The folder whose files went back.
    pub root: Option<PathBuf>,
    /// The files as they were before.
    pub tree: Option<TreeId>,
    /// When.
    pub created_at: u64,
    /// What was done, in words.
    pub words: String,
}

/// How a conversation came to be, when it began as a copy of another one's beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ForkRecord {
    /// The other one; it may be deleted by now.
    pub from: ThreadId,
    /// How many messages they share.
    pub keep: u64,
    /// Whether the other one was left for it by going back.
    pub is_rewind: bool,
}

#[cfg(test)]
mod tests {
    use super::TreeId;

    #[test]
    fn what_was_kept_first_counts() {
        let (one, two, all) = (TreeId::of_some("1"), TreeId::of_some("2"), TreeId::of_all("a"));
        assert_eq!(one.then(&two), TreeId("+1+2".into()));
        assert_eq!(one.then(&two).then(&all), TreeId("a+1+2".into()));
        assert_eq!(one.then(&two.then(&all)), TreeId("a+1+2".into()));
        assert_eq!(all.then(&one), all, "a whole one knows everything");
        assert_eq!(one.then(&one), one);
        assert!(all.is_whole() && one.then(&all).is_whole() && !one.is_whole());
        let (whole, few) = (TreeId("a+1+2".into()), ["1", "2"]);
        assert_eq!((whole.parts().0, whole.parts().1.collect::<Vec<_>>()), (Some("a"), few.to_vec()));
    }
}
