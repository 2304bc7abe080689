//! Deleted text that can be pasted again: the last piece first, then older ones.

use super::{Composer, EditKind};

/// Maximum pieces to keep.
const KEPT: usize = 60;

/// The pieces, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct KillRing {
    pieces: Vec<String>,
    /// The piece that was yanked last, counted from the newest, and the byte range where it is.
    yanked: Option<(usize, std::ops::Range<usize>)>,
}

impl KillRing {
    /// Keeps a piece; one that was deleted in the same breath joins the last.
    pub(super) fn add(&mut self, piece: String, joins: bool, is_left: bool) {
        match self.pieces.last_mut().filter(|_| joins) {
            Some(last) if is_left => last.insert_str(0, &piece),
            Some(last) => last.push_str(&piece),
            None => {
                self.pieces.push(piece);
                if self.pieces.len() > KEPT {
                    self.pieces.remove(0);
                }
            }
        }
    }

    fn newest(&self, nth: usize) -> Option<&String> {
        self.pieces.iter().rev().nth(nth)
    }
}

impl Composer {
    /// Something that was thrown away elsewhere can be put back here.
    pub fn keep_killed(&mut self, text: String) {
        if !text.is_empty() {
            self.killed.add(text, false, false);
        }
    }

    /// Puts back what was deleted last.
    pub fn yank(&mut self) {
        let Some(piece) = self.killed.newest(0).cloned() else { return };
        let start = self.caret();
        self.insert_text(&piece);
        self.last = Some(EditKind::Yanking);
        self.killed.yanked = Some((0, start..start + piece.len()));
    }

    /// Right after putting something back: exchanges it for what was deleted before that.
    pub fn yank_pop(&mut self) {
        if self.last != Some(EditKind::Yanking) {
            return;
        }
        let Some((nth, range)) = self.killed.yanked.take() else { return };
        let next = if nth + 1 < self.killed.pieces.len() { nth + 1 } else { 0 };
        let Some(piece) = self.killed.newest(next).cloned() else { return };
        let start = range.start;
        self.replace(range, &piece);
        self.last = Some(EditKind::Yanking);
        self.killed.yanked = Some((next, start..start + piece.len()));
    }

    /// Keeps a piece as if it had been deleted.
    pub fn keep_piece(&mut self, piece: String) {
        self.killed.add(piece, false, false);
    }
}
