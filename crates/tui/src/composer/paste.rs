//! Pastes. A long one is a short placeholder in the text that moves and is deleted as one; it can be expanded.

use std::ops::Range;

use super::Composer;
use aye_core::contract::display::visible;
use aye_core::contract::image::ImageRef;

/// A paste with more lines or characters than this is shown as one short mark.
const PASTE_LINES: usize = 12;
const PASTE_CHARS: usize = 1500;

/// A long paste.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Paste {
    /// What stands in the text.
    pub mark: String,
    /// What it stands for.
    pub text: String,
    /// It is a picture; the text is its mark then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageRef>,
}

/// What is written and not sent, as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Draft {
    /// The text with its marks.
    pub text: String,
    /// What the marks stand for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pastes: Vec<Paste>,
}

/// Line ends as `\n`, and nothing that steers a terminal or hides.
pub fn clean(text: &str) -> String {
    visible(&text.replace("\r\n", "\n").replace('\r', "\n")).into_owned()
}

impl Composer {
    /// Takes a paste: line ends as `\n`, nothing that steers a terminal or hides, long ones behind a mark.
    pub fn paste(&mut self, pasted: &str) {
        let text = clean(pasted);
        let lines = text.lines().count();
        if lines <= PASTE_LINES && text.len() <= PASTE_CHARS {
            self.insert_text(&text);
            return;
        }
        let mut number = self.pastes.len() + 1;
        let size =
            if lines > 1 { format!("{lines} lines") } else { format!("{} characters", text.chars().count()) };
        let mut mark = format!("[paste {number}: {size}]");
        while self.text.contains(&mark) || self.pastes.iter().any(|paste| paste.mark == mark) {
            number += 1;
            mark = format!("[paste {number}: {size}]");
        }
        self.insert_text(&mark);
        self.pastes.push(Paste { mark, text, image: None });
    }

    /// Where marks stand, in order, each with the number of its paste.
    pub(super) fn marks(&self) -> Vec<(Range<usize>, usize)> {
        let mut marks: Vec<(Range<usize>, usize)> = Vec::new();
        for (nth, paste) in self.pastes.iter().enumerate() {
            marks.extend(self.text.find(&paste.mark).map(|at| (at..at + paste.mark.len(), nth)));
        }
        marks.sort_by_key(|(range, _)| range.start);
        marks.dedup_by(|later, first| later.0.start < first.0.end);
        marks
    }

    /// The bytes of the marks, in order.
    pub fn mark_ranges(&self) -> Vec<Range<usize>> {
        self.marks().into_iter().map(|(range, _)| range).collect()
    }

    /// The place itself, or the end of the mark that it is in the middle of.
    pub(super) fn outside_marks(&self, at: usize, is_left: bool) -> usize {
        if self.pastes.is_empty() {
            return at;
        }
        let within = self.mark_ranges().into_iter().find(|range| range.start < at && at < range.end);
        within.map_or(at, |range| if is_left { range.start } else { range.end })
    }

    /// The text with each mark replaced by what was pasted.
    pub fn whole(&self) -> String {
        let mut whole = String::with_capacity(self.text.len());
        let mut from = 0;
        for (range, nth) in self.marks() {
            whole.push_str(&self.text[from..range.start]);
            whole.push_str(&self.pastes[nth].text);
            from = range.end;
        }
        whole.push_str(&self.text[from..]);
        whole
    }

    /// Puts what was pasted in the place of its mark: the one at the caret, else the last before it, else the first.
    /// `false`: there is none.
    pub fn open_paste(&mut self) -> bool {
        let mut marks = self.marks();
        marks.retain(|(_, nth)| self.pastes[*nth].image.is_none());
        let caret = self.caret();
        let before = marks.iter().rev().find(|(range, _)| range.start <= caret);
        let Some((range, nth)) = before.or(marks.first()).cloned() else { return false };
        let text = self.pastes[nth].text.clone();
        self.replace(range, &text);
        true
    }

    /// What is written, as it is kept over the end of the program.
    pub fn draft(&self) -> Draft {
        let kept = |paste: &&Paste| self.text.contains(&paste.mark);
        Draft { text: self.text.clone(), pastes: self.pastes.iter().filter(kept).cloned().collect() }
    }

    /// What is written, when long pastes are among it.
    pub fn pasted(&self) -> Option<Draft> {
        let Draft { text, pastes } = self.draft();
        let is_text = |paste: &Paste| paste.image.is_none();
        pastes.iter().any(is_text).then(|| Draft { text: text.trim().to_owned(), pastes })
    }

    /// Puts a kept draft before what is written.
    pub fn restore(&mut self, draft: Draft) {
        let Draft { text, pastes } = draft;
        // The two may call different pastes the same: what is there is opened then.
        let is_double = |own: &Paste| pastes.iter().any(|paste| paste.mark == own.mark);
        if self.pastes.iter().any(is_double) {
            while self.open_paste() {}
            self.pastes.retain(|paste| paste.image.is_some());
        }
        self.pastes.extend(pastes);
        self.put_back(&text);
    }
}
