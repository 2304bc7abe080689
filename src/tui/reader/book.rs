//! A document in the viewer other than the conversation: file changes, or two conversations side by side. It consists
//! of entries like the conversation, so that everything that works there works here.

use std::path::PathBuf;

use super::super::diff::Patch;
use super::super::transcript::{Entry, EntryKind, Level, Transcript};
use crate::contract::display::visible;
use crate::contract::record::StoredMessage;
use crate::contract::snapshot::{Change, Changes, FileChange};

/// Longer hunks are laid out in parts of so many lines, each when it is near.
const PART: usize = 200;

/// What a book is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Changes in files.
    Changes,
    /// Two conversations.
    Forks,
}

/// What is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Book {
    /// What it is about.
    pub subject: Subject,
    /// Tells its entries from those of other books and of the conversation.
    pub epoch: u32,
    /// Its pages.
    pub pages: Transcript,
    /// Entries that are one line at first.
    pub folded: Vec<u64>,
}

/// A page of a book that no conversation has.
#[derive(Clone, Debug, PartialEq)]
pub enum Leaf {
    /// A file; its hunks follow.
    File(FileLeaf),
    /// Lines that changed in the file above, with some around.
    Hunk(HunkLeaf),
    /// What two conversations begin with, both.
    Same {
        /// How many messages.
        messages: usize,
        /// What was said in them.
        entries: Vec<Entry>,
    },
    /// What was said in one conversation and in the other.
    Pair(Option<Box<Entry>>, Option<Box<Entry>>),
}

/// The head of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileLeaf {
    /// Its place in the folder.
    pub shown: String,
    /// Its place on the disk, when it is there.
    pub path: Option<PathBuf>,
    /// How it differs.
    pub change: Change,
    /// Lines that came, and those that went.
    pub counts: Option<(usize, usize)>,
}

/// Lines that changed.
#[derive(Clone, Debug, PartialEq)]
pub struct HunkLeaf {
    /// The file's place in the folder.
    pub shown: String,
    /// The lines.
    pub patch: Patch,
    /// Whether it goes on with the hunk above.
    pub goes_on: bool,
}

impl Book {
    fn new(subject: Subject) -> Book {
        Book { subject, epoch: 0, pages: Transcript::default(), folded: Vec::new() }
    }

    /// What was changed in files, file by file and hunk by hunk.
    pub fn of_changes(changes: &Changes) -> Book {
        let mut book = Book::new(Subject::Changes);
        let files = changes.files.len() + changes.more;
        let title = match files {
            0 => "no differences".to_owned(),
            1 => "1 file differs".to_owned(),
            n => format!("{n} files differ"),
        };
        book.pages.page(title, changes.notes.join("\n"));
        for file in &changes.files {
            book.take_file(file);
        }
        if changes.more > 0 {
            let text =
                format!("and {} more files; /diff PATH shows those whose path contains PATH", changes.more);
            book.pages.note(Level::Info, text);
        }
        book
    }

    fn take_file(&mut self, file: &FileChange) {
        let shown = file.about.path.clone();
        let text = |text: &Option<String>| visible(text.as_deref().unwrap_or_default()).into_owned();
        let patch =
            file.preview.as_ref().map(|file| Patch::between(&text(&file.old_text), &text(&file.new_text)));
        let there = file.preview.as_ref().filter(|_| file.about.change != Change::Deleted);
        self.pages.leaf(Leaf::File(FileLeaf {
            shown: shown.clone(),
            path: there.map(|file| file.path.clone()),
            change: file.about.change,
            counts: patch.as_ref().map(|patch| (patch.added, patch.removed)),
        }));
        for (patch, goes_on) in patch.into_iter().flat_map(|patch| patch.parts(PART)) {
            self.pages.leaf(Leaf::Hunk(HunkLeaf { shown: shown.clone(), patch, goes_on }));
        }
    }

    /// Two conversations, by their titles and what was said in them: what both begin with as one line, then side by
    /// side what was said at the same turn.
    pub fn of_forks(titles: [&str; 2], said: [&[StoredMessage]; 2]) -> Book {
        let mut book = Book::new(Subject::Forks);
        let [left, right] = said;
        let messages = left.iter().zip(right).take_while(|(a, b)| a.message == b.message).count();
        let title = |n: usize| if titles[n].is_empty() { "(no title)" } else { titles[n] };
        book.pages.page("two conversations", format!("one: {}\nother: {}", title(0), title(1)));
        if messages > 0 {
            let entries = Transcript::of_messages(&left[..messages]).into_entries();
            book.folded.extend(book.pages.leaf(Leaf::Same { messages, entries }));
        }
        let turns = |said: &[StoredMessage]| turns(Transcript::of_messages(&said[messages..]).into_entries());
        let (mut left, mut right) = (turns(left).into_iter(), turns(right).into_iter());
        loop {
            let (one, other) = (left.next(), right.next());
            if one.is_none() && other.is_none() {
                return book;
            }
            let mut one = one.unwrap_or_default().into_iter();
            let mut other = other.unwrap_or_default().into_iter();
            loop {
                let pair = (one.next().map(Box::new), other.next().map(Box::new));
                if pair == (None, None) {
                    break;
                }
                book.pages.leaf(Leaf::Pair(pair.0, pair.1));
            }
        }
    }

    /// How many files differ, or how many rows there are to compare.
    pub fn count(&self) -> usize {
        let is = |entry: &&Entry| match &entry.kind {
            EntryKind::Leaf(leaf) => matches!(**leaf, Leaf::File(_) | Leaf::Pair(..)),
            _ => false,
        };
        self.pages.entries().iter().filter(is).count()
    }

    /// The file that an entry stands in.
    pub fn file_at(&self, index: usize) -> Option<&FileLeaf> {
        let before = self.pages.entries().get(..=index)?;
        before.iter().rev().find_map(|entry| match &entry.kind {
            EntryKind::Leaf(leaf) => match &**leaf {
                Leaf::File(file) => Some(file),
                Leaf::Hunk(_) | Leaf::Same { .. } | Leaf::Pair(..) => None,
            },
            _ => None,
        })
    }
}

/// What was said from one message of the person to the next.
fn turns(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut turns: Vec<Vec<Entry>> = Vec::new();
    for entry in entries {
        let begins = matches!(entry.kind, EntryKind::User { .. });
        match turns.last_mut() {
            Some(turn) if !begins => turn.push(entry),
            Some(_) | None => turns.push(vec![entry]),
        }
    }
    turns
}
