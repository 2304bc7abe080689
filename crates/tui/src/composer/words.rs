//! Words: their start and end, and changes of whole ones.

use unicode_segmentation::UnicodeSegmentation;

use super::{Composer, EditKind, left_of, right_of};

/// A change of the case of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Upper,
    Lower,
    /// The first one large, the rest small.
    Capital,
}

impl Case {
    /// The text in this case.
    pub fn of(self, text: &str) -> String {
        match self {
            Case::Upper => text.to_uppercase(),
            Case::Lower => text.to_lowercase(),
            Case::Capital => {
                let mut is_first = true;
                let mut out = String::with_capacity(text.len());
                for c in text.chars() {
                    if is_first && c.is_alphabetic() {
                        out.extend(c.to_uppercase());
                        is_first = false;
                    } else {
                        out.extend(c.to_lowercase());
                    }
                }
                out
            }
        }
    }
}

fn is_word(piece: &str) -> bool {
    piece.chars().any(|c| c.is_alphanumeric() || c == '_')
}

/// The start of the word left of a place.
pub fn left(text: &str, at: usize) -> usize {
    let words = text[..at].split_word_bound_indices();
    words.rev().find(|(_, word)| is_word(word)).map_or(0, |(at, _)| at)
}

/// The end of the word right of a place.
pub fn right(text: &str, at: usize) -> usize {
    let mut words = text[at..].split_word_bound_indices();
    words.find(|(_, word)| is_word(word)).map_or(text.len(), |(start, word)| at + start + word.len())
}

impl Composer {
    /// Changes the case of the word right of the caret, and moves after it.
    pub fn change_case(&mut self, case: Case) {
        let (from, to) = (self.caret, right(&self.text, self.caret));
        let within = self.mark_ranges().into_iter().any(|mark| mark.start < to && from < mark.end);
        if within {
            self.go(to);
        } else if from < to {
            let changed = case.of(&self.text[from..to]);
            self.replace(from..to, &changed);
        }
    }

    /// Exchanges the character left of the caret with the one right of it; at the end of a line the two before it.
    pub fn transpose(&mut self) {
        let at_end = self.caret == self.text.len() || self.text[self.caret..].starts_with('\n');
        let middle = if at_end { left_of(&self.text, self.caret) } else { self.caret };
        let (from, to) = (left_of(&self.text, middle), right_of(&self.text, middle));
        let (first, second) = (&self.text[from..middle], &self.text[middle..to]);
        if first.is_empty() || second.is_empty() || first == "\n" || second == "\n" {
            return;
        }
        if self.mark_ranges().into_iter().any(|mark| mark.start < to && from < mark.end) {
            return;
        }
        let exchanged = format!("{second}{first}");
        self.replace(from..to, &exchanged);
    }

    /// Swaps the word left of the caret with the one right of it; after the last word, swaps the two before
    /// it.
    pub fn transpose_words(&mut self) {
        let mut second_end = right(&self.text, self.caret);
        if !is_word(&self.text[self.caret..second_end]) {
            second_end = right(&self.text, left(&self.text, self.caret));
        }
        let second = left(&self.text, second_end);
        let first = left(&self.text, second);
        let first_end = right(&self.text, first);
        if first_end > second || first == second {
            return;
        }
        if self.mark_ranges().into_iter().any(|mark| mark.start < second_end && first < mark.end) {
            return;
        }
        let (one, gap, two) =
            (&self.text[first..first_end], &self.text[first_end..second], &self.text[second..second_end]);
        let exchanged = format!("{two}{gap}{one}");
        self.replace(first..second_end, &exchanged);
        self.last = Some(EditKind::Other);
    }
}
