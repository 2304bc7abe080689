//! The conversation on a full screen: position, folds, search and selection. The viewer (everything in full) and the
//! full screen (as the inline terminal prints it) are both built on this.
//!
//! However long the conversation is, only the part around the position is laid out: a position is an entry and a row
//! in it, and moving goes from entry to entry.

use std::collections::HashMap;
use std::sync::Arc;

use super::highlight::Highlighter;
use super::theme::Theme;
use super::transcript::{Entry, EntryKind, ToolState, Transcript};
use super::view::RenderStyle;
use super::view::layout_cache::{LayoutContext, Sheets};

mod document;
mod find;
mod mark;
pub mod source;
#[cfg(test)]
mod tests;

pub use document::{DocEntry, DocFile, DocHunk, Document};
pub use find::{Search, SearchStep};
pub use mark::{Point, TextSelection};

/// An entry and a row in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPosition {
    pub id: u64,
    /// The row in it.
    pub row: usize,
}

/// A kind of entry to jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landmark {
    /// A message of the user or the model; in changes: a file.
    Message,
    /// A call; of changes: a hunk.
    Tool,
    /// A call that the user was asked about.
    Question,
}

/// The purpose of the input line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputPurpose {
    /// A text to search for.
    Search,
    /// The number of a block of code.
    Code,
}

/// The content that a viewer shows, and the room for it.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    pub transcript: &'a Transcript,
    pub layout_context: LayoutContext<'a>,
    /// Rows of the screen for it.
    pub rows: usize,
}

impl Scene<'_> {
    fn len(&self) -> usize {
        self.transcript.entries().len()
    }

    fn id(&self, index: usize) -> u64 {
        self.transcript.entries().get(index).map_or(0, |entry| entry.id)
    }

    /// The hunks of a file, when an entry is one.
    fn hunks_of(&self, index: usize) -> Vec<u64> {
        let entries = self.transcript.entries().get(index..).unwrap_or_default();
        let is_file = entries
            .first()
            .is_some_and(|entry| is_doc_entry(entry, |doc_entry| matches!(doc_entry, DocEntry::File(_))));
        let hunks = entries.iter().skip(1).take(if is_file { entries.len() } else { 0 });
        hunks
            .take_while(|entry| is_doc_entry(entry, |doc_entry| matches!(doc_entry, DocEntry::Hunk(_))))
            .map(|entry| entry.id)
            .collect()
    }

    /// The place of an entry, or of the one that follows when it is gone.
    pub fn index(&self, id: u64) -> usize {
        let entries = self.transcript.entries();
        entries.partition_point(|entry| entry.id < id).min(entries.len().saturating_sub(1))
    }
}

/// A position in the conversation or in a document, with its folds, search and selection.
#[derive(Debug)]
pub struct Viewer {
    /// Nothing is left out.
    pub whole: bool,
    /// The document shown, if it is not the conversation.
    pub document: Option<Arc<Document>>,
    /// The first row on the screen, unless it follows the end.
    at: RowPosition,
    follows: bool,
    /// The entry that keys are about.
    chosen: u64,
    all_folded: bool,
    folds: HashMap<u64, bool>,
    pub search: Option<Search>,
    /// A line of text that is being written.
    pub input: Option<(InputPurpose, String)>,
    /// The text selected with the mouse.
    pub mark: Option<TextSelection>,
    /// The layouts used only to find where rows start and end: without colours.
    sheets: Sheets,
}

impl Viewer {
    /// At the end of a conversation.
    pub fn new(whole: bool, transcript: &Transcript) -> Viewer {
        Viewer {
            whole,
            document: None,
            at: RowPosition::default(),
            follows: true,
            chosen: transcript.entries().last().map_or(0, |entry| entry.id),
            all_folded: false,
            folds: HashMap::new(),
            search: None,
            input: None,
            mark: None,
            sheets: Sheets::new(RenderStyle { theme: Theme::plain(), highlighter: Highlighter::off() }),
        }
    }

    /// Creates a viewer at the start of a document.
    pub fn of_document(document: Document) -> Viewer {
        let mut reader = Viewer::new(true, &document.pages);
        reader.follows = false;
        reader.chosen = document.pages.entries().first().map_or(0, |entry| entry.id);
        reader.document = Some(Arc::new(document));
        reader
    }

    /// Returns whether new entries scroll the view.
    pub fn follows(&self) -> bool {
        self.follows
    }

    /// The entry that keys are about.
    pub fn chosen(&self, scene: &Scene<'_>) -> usize {
        scene.index(self.chosen)
    }

    /// Returns whether the view is within `entries` entries of the start.
    pub fn is_within(&self, transcript: &Transcript, entries: usize) -> bool {
        let near = transcript.entries().get(entries).map_or(u64::MAX, |entry| entry.id);
        !self.follows && self.at.id < near || transcript.entries().len() <= entries
    }

    /// Returns whether an entry is folded to one line.
    pub fn is_folded(&self, id: u64) -> bool {
        self.folds.get(&id).copied().unwrap_or(self.all_folded)
    }

    fn height(&mut self, scene: &Scene<'_>, index: usize) -> usize {
        let folded = self.is_folded(scene.id(index));
        self.sheets.lines(scene.transcript, index, folded, &scene.layout_context).len()
    }

    /// The text of the rows of an entry.
    fn texts(&mut self, scene: &Scene<'_>, index: usize) -> Vec<String> {
        let folded = self.is_folded(scene.id(index));
        let lines = self.sheets.lines(scene.transcript, index, folded, &scene.layout_context);
        lines.iter().map(super::view::layout_cache::text_of).collect()
    }

    /// The first row on the screen.
    pub fn top(&self, scene: &Scene<'_>, sheets: &mut Sheets) -> (usize, usize) {
        let height = |index: usize, sheets: &mut Sheets| {
            let folded = self.is_folded(scene.id(index));
            sheets.lines(scene.transcript, index, folded, &scene.layout_context).len()
        };
        let last = last_top(scene, |index| height(index, sheets));
        if self.follows {
            return last;
        }
        let index = scene.index(self.at.id);
        let row = self.at.row.min(height(index, sheets).saturating_sub(1));
        (index, row).min(last)
    }

    /// Starts a move: returns the position that the screen shows.
    fn arrive(&mut self, scene: &Scene<'_>) -> (usize, usize) {
        self.sheets.begin();
        let mut sheets = std::mem::replace(
            &mut self.sheets,
            Sheets::new(RenderStyle { theme: Theme::plain(), highlighter: Highlighter::off() }),
        );
        let top = self.top(scene, &mut sheets);
        self.sheets = sheets;
        top
    }

    fn go(&mut self, scene: &Scene<'_>, to: (usize, usize)) {
        let last = last_top(scene, |index| self.height(scene, index));
        self.follows = to >= last;
        let (index, row) = to.min(last);
        self.at = RowPosition { id: scene.id(index), row };
    }

    pub fn scroll(&mut self, scene: &Scene<'_>, by: isize) {
        if scene.len() == 0 {
            return;
        }
        let (mut index, row) = self.arrive(scene);
        let mut row = row as isize + by;
        loop {
            if row < 0 {
                let Some(before) = index.checked_sub(1) else {
                    row = 0;
                    break;
                };
                index = before;
                row += self.height(scene, index) as isize;
            } else {
                let height = self.height(scene, index) as isize;
                if row < height || index + 1 >= scene.len() {
                    row = row.min((height - 1).max(0));
                    break;
                }
                row -= height;
                index += 1;
            }
        }
        self.go(scene, (index, row as usize));
        self.choose_near(scene);
    }

    /// The chosen entry stays in sight.
    fn choose_near(&mut self, scene: &Scene<'_>) {
        let (first, row) = self.arrive(scene);
        let mut left = scene.rows as isize + row as isize;
        let mut last = first;
        while last + 1 < scene.len() {
            left -= self.height(scene, last) as isize;
            if left <= 0 {
                break;
            }
            last += 1;
        }
        let begins = if row > 0 && first < last { first + 1 } else { first };
        let chosen = self.chosen(scene).clamp(begins, last.max(begins));
        let chosen = if self.follows { last } else { chosen };
        self.chosen = scene.id(chosen);
    }

    /// Moves to the start or the end.
    pub fn end(&mut self, scene: &Scene<'_>, is_last: bool) {
        if is_last {
            self.follows = true;
            self.chosen = scene.id(scene.len().saturating_sub(1));
        } else {
            self.go(scene, (0, 0));
            self.chosen = scene.id(0);
        }
    }

    /// Moves to the next landmark of that kind. Returns `false` if none is found.
    pub fn jump(&mut self, scene: &Scene<'_>, to: Landmark, forward: bool) -> bool {
        let from = self.chosen(scene);
        let is =
            |index: &usize| scene.transcript.entries().get(*index).is_some_and(|entry| fits(&entry.kind, to));
        let found = if forward {
            (from + 1..scene.len()).find(is)
        } else {
            (0..from.min(scene.len())).rev().find(is)
        };
        let Some(index) = found else { return false };
        self.show(scene, index, 0);
        true
    }

    /// Chooses an entry and has a row of it on the screen.
    fn show(&mut self, scene: &Scene<'_>, index: usize, row: usize) {
        self.chosen = scene.id(index);
        // The line above it shows what comes before it.
        let above = row.saturating_sub(1);
        self.go(scene, (index, above));
    }

    /// Folds or unfolds the chosen entry; with a file all of its hunks.
    pub fn fold(&mut self, scene: &Scene<'_>) {
        let (index, id) = (self.chosen(scene), scene.id(self.chosen(scene)));
        let top = self.arrive(scene);
        let hunks = scene.hunks_of(index);
        match hunks.first() {
            Some(first) => {
                let fold = !self.is_folded(*first);
                self.folds.extend(hunks.into_iter().map(|id| (id, fold)));
            }
            None => drop(self.folds.insert(id, !self.is_folded(id))),
        }
        let row = if top.0 == index { 0 } else { top.1 };
        self.go(scene, (top.0, row));
    }

    /// Folds or unfolds all.
    pub fn fold_all(&mut self, scene: &Scene<'_>) {
        let index = self.chosen(scene);
        self.all_folded = !self.all_folded;
        self.folds.clear();
        self.show(scene, index, 0);
    }

    /// Returns the entry and its row that are in a row of the screen.
    pub fn under(&mut self, scene: &Scene<'_>, screen_row: usize) -> Option<RowPosition> {
        let (mut index, row) = self.arrive(scene);
        let mut row = row + screen_row;
        loop {
            let height = self.height(scene, index);
            if row < height {
                return Some(RowPosition { id: scene.id(index), row });
            }
            row -= height;
            index += 1;
            if index >= scene.len() {
                return None;
            }
        }
    }

    /// Chooses the entry in a row of the screen.
    pub fn choose(&mut self, scene: &Scene<'_>, screen_row: usize) -> Option<RowPosition> {
        let row_position = self.under(scene, screen_row)?;
        self.chosen = row_position.id;
        Some(row_position)
    }
}

/// The first row of the last screen.
fn last_top(scene: &Scene<'_>, mut height: impl FnMut(usize) -> usize) -> (usize, usize) {
    let mut left = scene.rows.max(1);
    for index in (0..scene.len()).rev() {
        let rows = height(index);
        if rows >= left {
            return (index, rows - left);
        }
        left -= rows;
    }
    (0, 0)
}

/// Returns whether an entry is a document page that satisfies `is`.
fn is_doc_entry(entry: &Entry, is: impl Fn(&DocEntry) -> bool) -> bool {
    matches!(&entry.kind, EntryKind::Document(doc_entry) if is(doc_entry))
}

/// Returns whether an entry is a landmark of that kind.
fn fits(kind: &EntryKind, to: Landmark) -> bool {
    match (kind, to) {
        (EntryKind::User { .. } | EntryKind::Assistant { .. }, Landmark::Message) => true,
        (EntryKind::Tool(_), Landmark::Tool) => true,
        (EntryKind::Tool(tool), Landmark::Question) => {
            let is_asked = matches!(
                tool.state,
                ToolState::Waiting | ToolState::Declined | ToolState::Expired | ToolState::Unknown
            );
            is_asked || tool.result.as_ref().is_some_and(|result| result.touched.is_some())
        }
        (EntryKind::Document(doc_entry), to) => match (&**doc_entry, to) {
            (DocEntry::File(_), Landmark::Message) => true,
            // A part that continues the hunk above is not a hunk of its own.
            (DocEntry::Hunk(hunk), Landmark::Tool) => !hunk.continues_hunk,
            (DocEntry::File(_) | DocEntry::Hunk(_), _) => false,
        },
        (
            EntryKind::User { .. }
            | EntryKind::Assistant { .. }
            | EntryKind::Tool(_)
            | EntryKind::Thinking { .. }
            | EntryKind::Notice { .. }
            | EntryKind::Changes(_)
            | EntryKind::Page(_),
            Landmark::Message | Landmark::Tool | Landmark::Question,
        ) => false,
    }
}
