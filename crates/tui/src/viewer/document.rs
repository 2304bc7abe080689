//! A document in the viewer other than the conversation: file changes, or what differs between two conversations. It
//! consists of entries like the conversation, so that everything that works there works here.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::diff::Patch;
use super::super::host::TextPage;
use super::super::status::short_path;
use super::super::transcript::{Entry, EntryKind, Level, Transcript};
use super::source;
use aye_core::contract::display::{call_text, visible};
use aye_core::contract::record::StoredMessage;
use aye_core::contract::snapshot::{Changes, FileChange, FileChangeKind};
use aye_core::contract::tool::FilePreview;

/// Longer hunks are laid out in parts of this many lines, each when it is near.
const PART: usize = 200;

/// A document shown in the viewer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// Distinguishes its entries from those of other documents and of the conversation.
    pub epoch: u32,
    pub pages: Transcript,
}

/// An entry of a document that is not a text page.
#[derive(Clone, Debug, PartialEq)]
pub enum DocEntry {
    /// A file; its hunks follow.
    File(DocFile),
    /// Lines that changed in the file above, with some around.
    Hunk(DocHunk),
}

/// The head of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct DocFile {
    /// Its place in the folder.
    pub shown: String,
    /// Its path, if the file exists.
    pub path: Option<PathBuf>,
    /// The kind of change.
    pub change: FileChangeKind,
    /// Lines that came, and those that went.
    pub counts: Option<(usize, usize)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DocHunk {
    /// The file's place in the folder.
    pub shown: String,
    pub patch: Patch,
    /// Whether this part continues the hunk above.
    pub continues_hunk: bool,
}

impl Document {
    /// Creates a document of one text.
    pub fn of_page(page: TextPage) -> Document {
        let mut document = Document::default();
        document.pages.add_page(page);
        document
    }

    /// Creates a document of the call that a card asks about: the files that it would change, else the whole call.
    pub fn of_call(title: String, arguments: &Value, files: &[FilePreview], home: Option<&Path>) -> Document {
        let mut document = Document::default();
        // What cannot be shown as a change is shown as it was asked for.
        if files.is_empty() || files.iter().any(|file| file.new_text.is_none()) {
            document.pages.page(title, call_text(arguments));
            return document;
        }
        document.pages.page(title, "");
        for file in files {
            let text = |text: &Option<String>| visible(text.as_deref().unwrap_or_default()).into_owned();
            let patch = Patch::between(&text(&file.old_text), &text(&file.new_text));
            let change =
                if file.before.is_none() { FileChangeKind::Created } else { FileChangeKind::Changed };
            let shown = short_path(&file.path, home);
            document.take(shown, Some(file.path.clone()), change, Some(patch));
        }
        document
    }

    /// Creates a document of file changes, file by file and hunk by hunk.
    pub fn of_changes(changes: &Changes) -> Document {
        let mut document = Document::default();
        let files = changes.files.len() + changes.more;
        let title = match files {
            0 => "no differences".to_owned(),
            1 => "1 file differs".to_owned(),
            n => format!("{n} files differ"),
        };
        document.pages.page(title, changes.notes.join("\n"));
        for file in &changes.files {
            document.take_file(file);
        }
        if changes.more > 0 {
            let text =
                format!("and {} more files; /diff PATH shows those whose path contains PATH", changes.more);
            document.pages.note(Level::Info, text);
        }
        document
    }

    fn take_file(&mut self, file: &FileChange) {
        let shown = file.about.path.clone();
        let text = |text: &Option<String>| visible(text.as_deref().unwrap_or_default()).into_owned();
        let patch =
            file.preview.as_ref().map(|file| Patch::between(&text(&file.old_text), &text(&file.new_text)));
        let there = file.preview.as_ref().filter(|_| file.about.change != FileChangeKind::Deleted);
        let path = there.map(|file| file.path.clone());
        self.take(shown, path, file.about.change, patch);
    }

    fn take(&mut self, shown: String, path: Option<PathBuf>, change: FileChangeKind, patch: Option<Patch>) {
        let counts = patch.as_ref().map(|patch| (patch.added, patch.removed));
        self.pages.add_doc_entry(DocEntry::File(DocFile { shown: shown.clone(), path, change, counts }));
        for (patch, continues_hunk) in patch.into_iter().flat_map(|patch| patch.parts(PART)) {
            self.pages.add_doc_entry(DocEntry::Hunk(DocHunk { shown: shown.clone(), patch, continues_hunk }));
        }
    }

    /// Creates a document of the differences between two conversations, named by their titles.
    pub fn of_forks(titles: [&str; 2], conversations: [&[StoredMessage]; 2]) -> Document {
        let mut document = Document::default();
        let shared =
            conversations[0].iter().zip(conversations[1]).take_while(|(a, b)| a.message == b.message).count();
        let same = match shared {
            0 => "no message is the same".to_owned(),
            1 => "the first message is the same in both".to_owned(),
            n => format!("the first {n} messages are the same in both"),
        };
        document.pages.page("two conversations", same);
        let [one, other] = conversations
            .map(|messages| visible(&source::conversation(&Transcript::of_messages(messages))).into_owned());
        let [left, right] = titles.map(|title| if title.is_empty() { "(no title)" } else { title });
        let patch = Patch::between(&one, &other);
        document.take(format!("{left} → {right}"), None, FileChangeKind::Changed, Some(patch));
        document
    }

    /// Returns the number of files that differ.
    pub fn count(&self) -> usize {
        let is = |entry: &&Entry| match &entry.kind {
            EntryKind::Document(doc_entry) => matches!(**doc_entry, DocEntry::File(_)),
            _ => false,
        };
        self.pages.entries().iter().filter(is).count()
    }

    /// Returns the file that an entry belongs to.
    pub fn file_at(&self, index: usize) -> Option<&DocFile> {
        let before = self.pages.entries().get(..=index)?;
        before.iter().rev().find_map(|entry| match &entry.kind {
            EntryKind::Document(doc_entry) => match &**doc_entry {
                DocEntry::File(file) => Some(file),
                DocEntry::Hunk(_) => None,
            },
            _ => None,
        })
    }
}
