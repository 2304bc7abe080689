//! The text that is being written: editing, history, pastes. Where its rows break is in [`layout`].

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};

use crate::contract::display::visible;

pub mod layout;
#[cfg(test)]
mod tests;

/// How many steps can be undone.
const UNDO_STEPS: usize = 200;
/// A paste with more lines or characters than this is shown as one short mark.
const PASTE_LINES: usize = 12;
const PASTE_CHARS: usize = 1500;

/// What kind of change came last, so that typing a word is undone at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Typing,
    Deleting,
    Other,
}

/// The text, the caret, and what there is to go back to.
#[derive(Clone, Debug, Default)]
pub struct Composer {
    text: String,
    /// A byte offset, always between two graphemes.
    caret: usize,
    /// The column that moving up and down aims at.
    goal: Option<usize>,
    width: u16,
    undo: Vec<(String, usize)>,
    last: Option<Change>,
    killed: String,
    /// Long pastes: the mark that stands in the text, and what it stands for.
    pastes: Vec<(String, String)>,
    history: Vec<String>,
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

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The columns there are for the text.
    pub fn set_width(&mut self, width: u16) {
        self.width = width.max(1);
    }

    /// What was said before, oldest first.
    pub fn set_history(&mut self, history: Vec<String>) {
        self.history = history;
    }

    /// The text with each mark replaced by what was pasted; the composer is empty then.
    pub fn take(&mut self) -> String {
        let mut text = std::mem::take(&mut self.text);
        for (mark, pasted) in self.pastes.drain(..) {
            if let Some(at) = text.find(&mark) {
                text.replace_range(at..at + mark.len(), &pasted);
            }
        }
        let history = std::mem::take(&mut self.history);
        *self = Composer {
            history,
            width: self.width,
            killed: std::mem::take(&mut self.killed),
            ..Self::default()
        };
        text
    }

    /// Adds to what was said before.
    pub fn remember(&mut self, text: &str) {
        if self.history.last().is_none_or(|last| last != text) {
            self.history.push(text.to_owned());
        }
    }

    /// Empties the composer; undo brings the text back.
    pub fn clear(&mut self) {
        self.save(Change::Other);
        self.text.clear();
        self.caret = 0;
        self.browsing = None;
    }

    /// Replaces the text, with the caret at its end.
    pub fn set(&mut self, text: impl Into<String>) {
        self.save(Change::Other);
        self.text = text.into();
        self.caret = self.text.len();
    }

    /// Puts text before what is written, on lines of its own.
    pub fn put_back(&mut self, text: &str) {
        self.save(Change::Other);
        let gap = if self.text.is_empty() { "" } else { "\n\n" };
        self.text.insert_str(0, &format!("{text}{gap}"));
        self.caret = self.text.len();
    }

    /// Types a character.
    pub fn insert(&mut self, c: char) {
        self.save(if c.is_whitespace() { Change::Other } else { Change::Typing });
        self.text.insert(self.caret, c);
        self.caret += c.len_utf8();
        // The character may have joined the one after it.
        self.caret = boundary_at_or_after(&self.text, self.caret);
        self.browsing = None;
    }

    /// Puts text at the caret.
    pub fn insert_text(&mut self, text: &str) {
        self.save(Change::Other);
        self.text.insert_str(self.caret, text);
        self.caret = boundary_at_or_after(&self.text, self.caret + text.len());
        self.browsing = None;
    }

    /// Replaces a range of bytes by a text and leaves the caret behind it.
    pub fn replace(&mut self, range: std::ops::Range<usize>, text: &str) {
        self.save(Change::Other);
        let start = range.start;
        self.text.replace_range(range, text);
        self.caret = boundary_at_or_after(&self.text, start + text.len());
    }

    /// Takes a paste: line ends as `\n`, nothing that steers a terminal or hides, long ones behind a mark.
    pub fn paste(&mut self, pasted: &str) {
        let pasted = pasted.replace("\r\n", "\n").replace('\r', "\n");
        let pasted = visible(&pasted).into_owned();
        let lines = pasted.lines().count();
        if lines <= PASTE_LINES && pasted.len() <= PASTE_CHARS {
            self.insert_text(&pasted);
            return;
        }
        let number = self.pastes.len() + 1;
        let mark = if lines > 1 {
            format!("[paste {number}: {lines} lines]")
        } else {
            format!("[paste {number}: {} characters]", pasted.chars().count())
        };
        self.insert_text(&mark);
        self.pastes.push((mark, pasted));
    }

    /// Makes `\` and Enter a new line: whether a backslash stood before the caret.
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
        if let Some((text, caret)) = self.undo.pop() {
            (self.text, self.caret) = (text, caret);
            self.last = None;
            self.goal = None;
        }
    }

    /// Puts back what was deleted last.
    pub fn yank(&mut self) {
        let killed = self.killed.clone();
        self.insert_text(&killed);
    }

    fn save(&mut self, change: Change) {
        let joined = change != Change::Other && self.last == Some(change);
        if !joined {
            self.undo.push((self.text.clone(), self.caret));
            if self.undo.len() > UNDO_STEPS {
                self.undo.remove(0);
            }
        }
        self.last = Some(change);
        self.goal = None;
    }

    fn remove(&mut self, from: usize, to: usize, kill: bool) {
        if from == to {
            return;
        }
        self.save(if kill { Change::Other } else { Change::Deleting });
        let removed: String = self.text.drain(from..to).collect();
        if kill {
            self.killed = removed;
        }
        self.caret = boundary_at_or_after(&self.text, from);
        self.browsing = None;
    }

    /// Deletes what is left of the caret: a mark of a paste at once, else a character.
    pub fn delete_left(&mut self) {
        let before = &self.text[..self.caret];
        let mark = self.pastes.iter().find(|(mark, _)| before.ends_with(mark.as_str()));
        let from = mark.map_or_else(|| left_of(&self.text, self.caret), |(mark, _)| self.caret - mark.len());
        self.remove(from, self.caret, false);
    }

    /// Deletes the character right of the caret.
    pub fn delete_right(&mut self) {
        let to = right_of(&self.text, self.caret);
        self.remove(self.caret, to, false);
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
        let from = if start == self.caret { left_of(&self.text, self.caret) } else { start };
        self.remove(from, self.caret, true);
    }

    /// Deletes to the end of the line, or the line end itself.
    pub fn delete_to_end(&mut self) {
        let end = self.line_end_of_caret();
        let to = if end == self.caret { right_of(&self.text, self.caret) } else { end };
        self.remove(self.caret, to, true);
    }

    /// Moves a character to the left.
    pub fn left(&mut self) {
        self.go(left_of(&self.text, self.caret));
    }

    /// Moves a character to the right.
    pub fn right(&mut self) {
        self.go(right_of(&self.text, self.caret));
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

    fn go(&mut self, to: usize) {
        self.caret = to;
        self.goal = None;
        self.last = None;
    }

    fn move_row(&mut self, by: isize) -> bool {
        let rows = layout::rows(&self.text, self.width);
        let (row, column) = layout::position(&self.text, &rows, self.caret);
        let Some(target) = row.checked_add_signed(by).filter(|row| *row < rows.len()) else { return false };
        let goal = self.goal.unwrap_or(column);
        self.caret = layout::offset(&self.text, &rows, target, goal);
        self.goal = Some(goal);
        self.last = None;
        true
    }

    fn browse_back(&mut self) {
        let at = self.browsing.as_ref().map_or(self.history.len(), |(at, _)| *at);
        let Some(before) = at.checked_sub(1) else { return };
        let draft = self.browsing.take().map_or_else(|| self.text.clone(), |(_, draft)| draft);
        self.text.clone_from(&self.history[before]);
        self.caret = self.text.len();
        self.browsing = Some((before, draft));
        self.goal = None;
    }

    fn browse_on(&mut self) {
        let Some((at, draft)) = self.browsing.take() else { return };
        if at + 1 < self.history.len() {
            self.text.clone_from(&self.history[at + 1]);
            self.browsing = Some((at + 1, draft));
        } else {
            self.text = draft;
        }
        self.caret = self.text.len();
        self.goal = None;
    }

    fn line_start_of_caret(&self) -> usize {
        self.text[..self.caret].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end_of_caret(&self) -> usize {
        self.text[self.caret..].find('\n').map_or(self.text.len(), |at| self.caret + at)
    }

    fn word_left_of_caret(&self) -> usize {
        let words = self.text[..self.caret].split_word_bound_indices();
        words.rev().find(|(_, word)| is_word(word)).map_or(0, |(at, _)| at)
    }

    fn word_right_of_caret(&self) -> usize {
        let mut words = self.text[self.caret..].split_word_bound_indices();
        let found = words.find(|(_, word)| is_word(word));
        found.map_or(self.text.len(), |(at, word)| self.caret + at + word.len())
    }
}

fn is_word(piece: &str) -> bool {
    piece.chars().any(|c| c.is_alphanumeric() || c == '_')
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
