//! The composer's text: editing, undo, history. Row breaks are in [`layout`], words and cases in [`words`], deleted
//! text in [`kill`], long pastes in [`paste`], vi keys in [`vim`].

use std::ops::Range;

use unicode_segmentation::GraphemeCursor;

pub mod dropped;
mod image;
pub mod kill;
pub mod layout;
pub mod paste;
#[cfg(test)]
mod tests;
pub mod vim;
pub mod words;

use kill::KillRing;
use paste::{Draft, Paste};

/// Maximum steps that can be undone.
const UNDO_STEPS: usize = 200;

/// The kind of the last change, so that typing a word is undone in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EditKind {
    Typing,
    Deleting,
    /// Deleted to be put back; more of it in the same breath joins.
    Killing,
    /// Yanked: the text there can be replaced with what was deleted before.
    Yanking,
    Other,
}

/// A text with its caret.
type State = (String, usize);

/// The text, the caret, and the undo history.
#[derive(Clone, Debug, Default)]
pub struct Composer {
    text: String,
    /// A byte offset, always between two graphemes.
    caret: usize,
    /// The other end of a selection, between two graphemes too. It follows the text that it stands in; a text that is
    /// exchanged as a whole has none.
    anchor: Option<usize>,
    /// The column that moving up and down aims at.
    goal: Option<usize>,
    width: u16,
    undo: Vec<State>,
    redo: Vec<State>,
    /// While changes are undone as one: whether there was one yet.
    group: Option<bool>,
    last: Option<EditKind>,
    killed: KillRing,
    pastes: Vec<Paste>,
    /// The number of the last picture that was attached.
    images: usize,
    history: Vec<Draft>,
    /// The place in the history that is shown, and the text that was written before.
    browsing: Option<(usize, String)>,
}

impl Composer {
    /// The text as it is shown.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The caret as a byte offset into the text.
    pub fn caret(&self) -> usize {
        self.caret
    }

    /// The other end of a selection: the caret's place when it was set, or the caret, when there is none.
    pub fn anchor(&self) -> usize {
        self.anchor.unwrap_or(self.caret)
    }

    /// Sets the other end of a selection to the caret.
    pub fn set_anchor(&mut self) {
        self.anchor = Some(self.caret);
    }

    /// Moves the caret to the other end of a selection, and that to the caret.
    pub fn swap_anchor(&mut self) {
        let (caret, anchor) = (self.caret, self.anchor());
        self.go(anchor);
        self.anchor = Some(caret);
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The columns there are for the text.
    pub fn set_width(&mut self, width: u16) {
        self.width = width.max(1);
    }

    /// Sets the previous messages, oldest first. If one of the current ones is being shown, the draft
    /// replaces it.
    pub fn set_history(&mut self, history: Vec<Draft>) {
        self.history = history;
        if let Some((_, draft)) = self.browsing.take() {
            self.exchange(draft);
            self.goal = None;
        }
    }

    /// The text with each mark replaced by what was pasted; the composer is empty then.
    pub fn take(&mut self) -> String {
        let text = self.whole();
        *self = Composer {
            history: std::mem::take(&mut self.history),
            width: self.width,
            killed: std::mem::take(&mut self.killed),
            images: self.images,
            ..Self::default()
        };
        text
    }

    /// Adds to what was said before.
    pub fn remember(&mut self, draft: Draft) {
        if self.history.last() != Some(&draft) {
            self.history.push(draft);
        }
    }

    /// Empties the composer; undo brings the text back.
    pub fn clear(&mut self) {
        self.save(EditKind::Other);
        self.exchange(String::new());
    }

    /// Replaces the text, with the caret at its end.
    pub fn set(&mut self, text: impl Into<String>) {
        self.save(EditKind::Other);
        self.exchange(text.into());
    }

    /// Another text, with the caret at its end.
    fn exchange(&mut self, text: String) -> State {
        let caret = text.len();
        let before = std::mem::replace(&mut self.text, text);
        self.anchor = None;
        (before, std::mem::replace(&mut self.caret, caret))
    }

    /// Puts a text in the place of a range of bytes: the one way in which part of the text changes. The caret comes
    /// after it; the anchor stays with the text that it stood in.
    fn splice(&mut self, range: Range<usize>, text: &str) -> String {
        let removed = self.text[range.clone()].to_owned();
        self.text.replace_range(range.clone(), text);
        let end = range.start + text.len();
        self.caret = boundary_at_or_after(&self.text, end);
        if let Some(anchor) = self.anchor {
            let at = match anchor {
                _ if anchor <= range.start => anchor,
                _ if anchor < range.end => range.start,
                _ => anchor - range.len() + text.len(),
            };
            // What stands there now may have joined its neighbours.
            self.anchor = Some(boundary_at_or_after(&self.text, at));
        }
        removed
    }

    /// Puts text before what is written, on lines of its own.
    pub fn put_back(&mut self, text: &str) {
        self.save(EditKind::Other);
        let gap = if self.text.is_empty() { "" } else { "\n\n" };
        self.splice(0..0, &format!("{text}{gap}"));
        self.caret = self.text.len();
    }

    pub fn insert(&mut self, c: char) {
        self.save(if c.is_whitespace() { EditKind::Other } else { EditKind::Typing });
        // The character may join the one after it.
        self.splice(self.caret..self.caret, c.encode_utf8(&mut [0; 4]));
    }

    /// Puts text at the caret.
    pub fn insert_text(&mut self, text: &str) {
        self.save(EditKind::Other);
        self.splice(self.caret..self.caret, text);
    }

    /// Replaces a range of bytes with a text and puts the caret after it.
    pub fn replace(&mut self, range: Range<usize>, text: &str) {
        self.save(EditKind::Other);
        self.splice(range, text);
    }

    /// Turns `\` and Enter into a new line. Returns whether there was a backslash before the caret.
    pub fn newline_after_backslash(&mut self) -> bool {
        if !self.text[..self.caret].ends_with('\\') {
            return false;
        }
        let start = self.caret - 1;
        self.replace(start..self.caret, "\n");
        true
    }

    /// Undoes the last change.
    pub fn undo(&mut self) {
        if let Some(before) = self.undo.pop() {
            let after = self.put_state(before);
            self.redo.push(after);
        }
    }

    /// Does again what was undone last.
    pub fn redo(&mut self) {
        if let Some(after) = self.redo.pop() {
            let before = self.put_state(after);
            self.undo.push(before);
        }
    }

    fn put_state(&mut self, (text, caret): State) -> State {
        let was = self.exchange(text);
        self.caret = caret;
        self.last = None;
        self.goal = None;
        self.browsing = None;
        was
    }

    /// From now on all changes are undone as one, until [`Composer::end_group`].
    pub fn begin_group(&mut self) {
        self.group.get_or_insert(false);
    }

    /// See [`Composer::begin_group`].
    pub fn end_group(&mut self) {
        self.group = None;
        self.last = None;
    }

    fn save(&mut self, change: EditKind) {
        let joined = matches!(change, EditKind::Typing | EditKind::Deleting) && self.last == Some(change);
        if !joined && self.group != Some(true) {
            self.undo.push((self.text.clone(), self.caret));
            if self.undo.len() > UNDO_STEPS {
                self.undo.remove(0);
            }
        }
        self.redo.clear();
        self.group = self.group.map(|_| true);
        self.last = Some(change);
        self.goal = None;
        // The changed text is the draft from now on.
        self.browsing = None;
    }

    fn remove(&mut self, from: usize, to: usize, kill: bool) {
        if from >= to {
            return;
        }
        let continues = self.last == Some(EditKind::Killing);
        let is_left = to == self.caret;
        self.save(if kill { EditKind::Killing } else { EditKind::Deleting });
        let removed = self.splice(from..to, "");
        if kill {
            self.killed.add(removed, continues, is_left);
        }
    }

    /// Deletes what is left of the caret: a mark of a paste at once, else a character.
    pub fn delete_left(&mut self) {
        self.remove(self.left_of_caret(), self.caret, false);
    }

    /// Deletes the character right of the caret.
    pub fn delete_right(&mut self) {
        self.remove(self.caret, self.right_of_caret(), false);
    }

    /// Deletes the word left of the caret.
    pub fn delete_word_left(&mut self) {
        let from = self.word_left_of_caret();
        self.remove(from, self.caret, true);
    }

    /// Deletes the word right of the caret.
    pub fn delete_word_right(&mut self) {
        let to = self.word_right_of_caret();
        self.remove(self.caret, to, true);
    }

    /// Deletes to the start of the line, or the line end before it.
    pub fn delete_to_start(&mut self) {
        let start = self.line_start_of_caret();
        let from = if start == self.caret { self.left_of_caret() } else { start };
        self.remove(from, self.caret, true);
    }

    /// Deletes to the end of the line, or the line end itself.
    pub fn delete_to_end(&mut self) {
        let end = self.line_end_of_caret();
        let to = if end == self.caret { self.right_of_caret() } else { end };
        self.remove(self.caret, to, true);
    }

    /// Moves a character to the left.
    pub fn left(&mut self) {
        self.go(self.left_of_caret());
    }

    /// Moves a character to the right.
    pub fn right(&mut self) {
        self.go(self.right_of_caret());
    }

    /// Moves a word to the left.
    pub fn word_left(&mut self) {
        self.go(self.word_left_of_caret());
    }

    /// Moves a word to the right.
    pub fn word_right(&mut self) {
        self.go(self.word_right_of_caret());
    }

    /// Moves to the start of the line.
    pub fn line_start(&mut self) {
        self.go(self.line_start_of_caret());
    }

    /// Moves to the end of the line.
    pub fn line_end(&mut self) {
        self.go(self.line_end_of_caret());
    }

    /// Moves to the start of the text.
    pub fn text_start(&mut self) {
        self.go(0);
    }

    /// Moves to the end of the text.
    pub fn text_end(&mut self) {
        self.go(self.text.len());
    }

    /// Moves a row up; in the first row to what was said before.
    pub fn up(&mut self) {
        if !self.move_row(-1) {
            self.browse_back();
        }
    }

    /// Moves a row down; in the last row to what was said after what is shown.
    pub fn down(&mut self) {
        if !self.move_row(1) {
            self.browse_on();
        }
    }

    /// Moves the caret to a byte offset, or to the nearest valid position.
    pub fn go(&mut self, to: usize) {
        let is_left = to < self.caret;
        let at = boundary_at_or_after(&self.text, floor_char(&self.text, to));
        self.caret = self.outside_marks(at, is_left);
        self.goal = None;
        self.last = None;
    }

    /// Moves the caret to a cell: a row, and a column in it, as they are shown.
    pub fn go_to_cell(&mut self, row: usize, column: usize) {
        let rows = layout::rows(&self.text, self.width);
        self.go(layout::offset(&self.text, &rows, row, column));
    }

    fn move_row(&mut self, by: isize) -> bool {
        let rows = layout::rows(&self.text, self.width);
        let (row, column) = layout::position(&self.text, &rows, self.caret);
        let Some(target) = row.checked_add_signed(by).filter(|row| *row < rows.len()) else { return false };
        let goal = self.goal.unwrap_or(column);
        self.caret = self.outside_marks(layout::offset(&self.text, &rows, target, goal), false);
        self.goal = Some(goal);
        self.last = None;
        true
    }

    fn browse_back(&mut self) {
        let at = self.browsing.as_ref().map_or(self.history.len(), |(at, _)| *at);
        let Some(before) = at.checked_sub(1) else { return };
        let is_kept = self.text.is_empty() || self.undo.last().is_some_and(|(text, _)| *text == self.text);
        if self.browsing.is_none() && !is_kept {
            // After a change to a previous message, undoing restores the draft.
            self.save(EditKind::Other);
        }
        let draft = self.browsing.take().map_or_else(|| self.text.clone(), |(_, draft)| draft);
        let shown = self.with_marks_of(&self.history[before].clone());
        self.exchange(shown);
        self.browsing = Some((before, draft));
        self.goal = None;
    }

    fn browse_on(&mut self) {
        let Some((at, draft)) = self.browsing.take() else { return };
        if at + 1 < self.history.len() {
            let shown = self.with_marks_of(&self.history[at + 1].clone());
            self.exchange(shown);
            self.browsing = Some((at + 1, draft));
        } else {
            self.exchange(draft);
        }
        self.goal = None;
    }

    fn left_of_caret(&self) -> usize {
        self.outside_marks(left_of(&self.text, self.caret), true)
    }

    fn right_of_caret(&self) -> usize {
        self.outside_marks(right_of(&self.text, self.caret), false)
    }

    fn line_start_of_caret(&self) -> usize {
        self.text[..self.caret].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end_of_caret(&self) -> usize {
        self.text[self.caret..].find('\n').map_or(self.text.len(), |at| self.caret + at)
    }

    fn word_left_of_caret(&self) -> usize {
        self.outside_marks(words::left(&self.text, self.caret), true)
    }

    fn word_right_of_caret(&self) -> usize {
        self.outside_marks(words::right(&self.text, self.caret), false)
    }
}

fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn left_of(text: &str, at: usize) -> usize {
    let mut cursor = GraphemeCursor::new(at, text.len(), true);
    cursor.prev_boundary(text, 0).ok().flatten().unwrap_or(0)
}

fn right_of(text: &str, at: usize) -> usize {
    let mut cursor = GraphemeCursor::new(at, text.len(), true);
    cursor.next_boundary(text, 0).ok().flatten().unwrap_or(text.len())
}

fn boundary_at_or_after(text: &str, at: usize) -> usize {
    let mut cursor = GraphemeCursor::new(at, text.len(), true);
    match cursor.is_boundary(text, 0) {
        Ok(false) => right_of(text, at),
        Ok(true) | Err(_) => at,
    }
}
