//! Snapshots: the files of a folder before a step changed them, and how to restore them.

use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::file_preview::FilePreview;
use super::ids::{RunId, ThreadId};

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

    /// Returns whether the id names all files.
    pub fn is_whole(&self) -> bool {
        self.parts().0.is_some()
    }

    /// Returns the files as they were at this moment, as far as this id and a later one record them: for
    /// files that both record, this one counts.
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

/// The saved files of a folder.
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
    pub thread_id: ThreadId,
    pub run_id: RunId,
    /// The number of messages in the conversation, including those that made the calls of the step.
    pub seq: u64,
    pub root: PathBuf,
    /// The files; `None` when they could not be kept.
    pub tree: Option<TreeId>,
    /// Why not, or what was left out.
    pub note: String,
    /// The checked-out revision, in words: a rewind leaves git's history as it is.
    pub head: Option<String>,
    pub created_at: u64,
}

/// Saves the files of one folder, except those that `.gitignore` names and the folders `.git`.
#[async_trait]
pub trait Snapshots: Send + Sync {
    fn root(&self) -> PathBuf;

    /// Something may be changed soon: reads what was not read yet, beside everything else, so that [`Snapshots::take`] is
    /// quick. Returns at once.
    fn prepare(&self);

    /// Saves the current files. This never fails: files that could not be saved are reported.
    async fn take(&self, cancel: &CancellationToken) -> Taken;

    /// Saves only these files, without checking others; `None` if none of them is a file of the folder.
    async fn take_files(&self, files: Vec<PathBuf>) -> Option<Taken>;
}

/// The kind of difference of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    Created,
    /// It is another one.
    Changed,
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
    /// The kind of difference.
    pub change: FileChangeKind,
    /// The number of added lines; `None` if the file is not text or is too long to count.
    pub added: Option<usize>,
    pub removed: Option<usize>,
}

/// The difference of two trees with the texts, for a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The files that are shown.
    pub files: Vec<FileChange>,
    /// The number of further files that differ.
    pub more: usize,
    /// The files that were not compared, and the versions that the others were compared with.
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

/// The parts that a rewind affects.
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
    /// Returns whether the conversation is rewound.
    pub fn takes_conversation(self) -> bool {
        matches!(self, RewindTarget::Both | RewindTarget::Conversation)
    }

    /// Returns whether the files are restored.
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

    /// Returns the variant with this name.
    pub fn parse(word: &str) -> Option<RewindTarget> {
        [RewindTarget::Both, RewindTarget::Conversation, RewindTarget::Files]
            .into_iter()
            .find(|w| w.as_str() == word)
    }
}

/// A rewind, as a row: the data needed to undo it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WentBackRecord {
    pub n: u64,
    /// The conversation that was gone on with.
    pub thread_id: ThreadId,
    /// The conversation that was left, when it is another one.
    pub from_thread: Option<ThreadId>,
    /// The folder whose files went back.
    pub root: Option<PathBuf>,
    /// The files as they were before.
    pub tree: Option<TreeId>,
    pub created_at: u64,
    /// The description of the rewind.
    pub words: String,
}

/// The origin of a conversation that was forked from another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ForkRecord {
    /// The other one; it may be deleted by now.
    pub from: ThreadId,
    /// The number of messages that both conversations share.
    pub keep: u64,
    /// Whether the other conversation was left for this one by a rewind.
    pub is_rewind: bool,
}

#[cfg(test)]
mod tests {
    use super::TreeId;

    #[test]
    fn the_earliest_snapshot_wins() {
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
