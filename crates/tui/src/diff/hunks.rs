//! Splits a change so that a user can keep some hunks and drop the rest.

use std::ops::Range;
use std::path::{Path, PathBuf};

use aye_core::contract::diff::{DiffOp, line_ops};

/// When more lines than this differ, they are one piece.
const MAX_COMPARED: usize = 6_000;

/// One piece of a change: these lines of the old text are replaced by these of the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// Lines of the old text, counted from 0.
    pub old: Range<usize>,
    /// Lines of the new text.
    pub new: Range<usize>,
    /// Whether the hunk is kept.
    pub is_kept: bool,
}

/// Two texts and the hunks between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunks {
    /// Lines with their ends.
    old: Vec<String>,
    new: Vec<String>,
    pieces: Vec<Hunk>,
    at: usize,
    /// The file that is changed.
    file: PathBuf,
    /// Lines of the file before the old text, for each place where it is replaced; empty when that is not known.
    places: Vec<usize>,
    /// The rest of the file's line before the old text, and after it.
    around: (String, String),
}

impl Hunks {
    /// Splits the change from one text to another into hunks; all of them are kept.
    pub fn between(old: &str, new: &str) -> Hunks {
        let lines = |text: &str| text.split_inclusive('\n').map(str::to_owned).collect::<Vec<_>>();
        let (old, new) = (lines(old), lines(new));
        let pieces =
            changes(&old, &new).into_iter().map(|(old, new)| Hunk { old, new, is_kept: true }).collect();
        Hunks {
            old,
            new,
            pieces,
            at: 0,
            file: PathBuf::new(),
            places: Vec::new(),
            around: Default::default(),
        }
    }

    /// Says where the change is made.
    #[must_use]
    pub fn in_file(self, file: PathBuf, places: Vec<usize>) -> Hunks {
        Hunks { file, places, ..self }
    }

    /// Says what stands on the file's first and last line around the old text, so that whole lines can be shown.
    #[must_use]
    pub fn within(self, before: &str, after: &str) -> Hunks {
        Hunks { around: (before.to_owned(), after.to_owned()), ..self }
    }

    /// The file that is changed.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Lines of the file before the old text, for each place where it is replaced; empty when that is not known.
    pub fn places(&self) -> &[usize] {
        &self.places
    }

    /// The pieces, in order.
    pub fn all(&self) -> &[Hunk] {
        &self.pieces
    }

    /// The lines that a piece takes away, and those that it brings, as whole lines of the file.
    pub fn lines(&self, hunk: &Hunk) -> (Vec<String>, Vec<String>) {
        let (before, after) = &self.around;
        let whole = |all: &[String], piece: &Range<usize>| {
            let mut lines = all[piece.clone()].to_vec();
            if let Some(first) = lines.first_mut().filter(|_| piece.start == 0) {
                first.insert_str(0, before);
            }
            let is_last = piece.end == all.len();
            if let Some(last) = lines.last_mut().filter(|last| is_last && !last.ends_with('\n')) {
                last.push_str(after);
            }
            lines
        };
        (whole(&self.old, &hunk.old), whole(&self.new, &hunk.new))
    }

    /// The piece that the arrows are at.
    pub fn cursor(&self) -> usize {
        self.at
    }

    pub(crate) fn step(&mut self, by: isize) {
        let last = self.pieces.len().saturating_sub(1);
        self.at = self.at.saturating_add_signed(by).min(last);
    }

    pub(crate) fn toggle(&mut self) {
        if let Some(hunk) = self.pieces.get_mut(self.at) {
            hunk.is_kept = !hunk.is_kept;
        }
    }

    /// Returns the number of hunks that are kept.
    pub fn kept(&self) -> usize {
        self.pieces.iter().filter(|hunk| hunk.is_kept).count()
    }

    /// The new text, whichever pieces stay.
    pub fn whole(&self) -> String {
        self.new.concat()
    }

    /// The old text with the pieces that stay.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut from = 0;
        for hunk in &self.pieces {
            text.extend(self.old[from..hunk.old.start].iter().map(String::as_str));
            let lines = if hunk.is_kept { &self.new[hunk.new.clone()] } else { &self.old[hunk.old.clone()] };
            text.extend(lines.iter().map(String::as_str));
            from = hunk.old.end;
        }
        text.extend(self.old[from..].iter().map(String::as_str));
        text
    }
}

/// Returns the differences, as the longest runs without a common line.
fn changes(old: &[String], new: &[String]) -> Vec<(Range<usize>, Range<usize>)> {
    let front = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let back = old[front..].iter().rev().zip(new[front..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (old_end, new_end) = (old.len() - back, new.len() - back);
    if (old_end - front) + (new_end - front) > MAX_COMPARED {
        return vec![(front..old_end, front..new_end)];
    }
    let (a, b): (Vec<&str>, Vec<&str>) =
        (old.iter().map(String::as_str).collect(), new.iter().map(String::as_str).collect());
    let mut found: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    for op in line_ops(&a, &b) {
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        match found.last_mut() {
            Some((before, after))
                if before.end == op.old_range().start && after.end == op.new_range().start =>
            {
                before.end = op.old_range().end;
                after.end = op.new_range().end;
            }
            _ => found.push((op.old_range(), op.new_range())),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(hunks: &mut Hunks, kept: impl Fn(usize) -> bool) {
        for (at, hunk) in hunks.pieces.iter_mut().enumerate() {
            hunk.is_kept = kept(at);
        }
    }

    #[test]
    fn a_dropped_hunk_leaves_the_others() {
        let mut hunks = Hunks::between("a\nb\nc\nd\n", "a\nB\nc\nD\nE\n");
        assert_eq!(hunks.all().len(), 2);
        hunks.toggle();
        assert_eq!((hunks.text().as_str(), hunks.kept()), ("a\nb\nc\nD\nE\n", 1));
        hunks.toggle();
        hunks.step(5);
        hunks.toggle();
        assert_eq!(hunks.text(), "a\nB\nc\nd\n");
        hunks.step(-9);
        assert_eq!(hunks.cursor(), 0);
    }

    /// An edit may replace a part of a line; what is stored is that part only.
    #[test]
    fn lines_are_shown_as_the_file_has_them() {
        let hunks = Hunks::between("b\nx\nc", "B\nx\nc\nd").within("a ", " e");
        let shown: Vec<_> = hunks.all().iter().map(|hunk| hunks.lines(hunk)).collect();
        let lines = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            shown,
            [(lines(&["a b\n"]), lines(&["a B\n"])), (lines(&["c e"]), lines(&["c\n", "d e"]))]
        );
        assert_eq!(hunks.text(), "B\nx\nc\nd");
    }

    #[test]
    fn line_endings_are_kept() {
        let mut hunks = Hunks::between("a\r\nb", "a\r\nb\n");
        assert_eq!(hunks.text(), "a\r\nb\n");
        hunks.toggle();
        assert_eq!(hunks.text(), "a\r\nb");
        assert_eq!(Hunks::between("", "").all().len(), 0);
        let long: String = (0..9000).fold(String::new(), |text, n| text + &format!("{n}\n"));
        let mut hunks = Hunks::between("x\n", &long);
        assert_eq!(hunks.all().len(), 1);
        hunks.toggle();
        assert_eq!(hunks.text(), "x\n");
    }

    proptest! {
        #[test]
        fn all_hunks_give_the_new_text_and_none_the_old_one(
            old in "([abc]{0,2}\r?\n){0,12}[ab]?", new in "([abc]{0,2}\r?\n){0,12}[ab]?", picks in any::<u16>()
        ) {
            let mut hunks = Hunks::between(&old, &new);
            prop_assert_eq!(hunks.text(), new.clone());
            set(&mut hunks, |at| picks >> at & 1 == 1);
            // Whatever is kept, lines outside the hunks stay, and each line is from one of the two texts.
            let mixed = hunks.text();
            for line in mixed.split_inclusive('\n') {
                prop_assert!(hunks.old.iter().chain(&hunks.new).any(|known| known == line), "{line:?}");
            }
            set(&mut hunks, |_| false);
            prop_assert_eq!(hunks.text(), old);
        }
    }
}
