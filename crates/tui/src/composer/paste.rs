//! Pastes. A long one is a short placeholder in the text that moves and is deleted as one; it can be expanded.

use std::ops::Range;

use super::Composer;
use aye_core::contract::display::visible;
use aye_core::contract::image::ImageRef;

/// A paste with more lines or characters than this is shown as one short mark.
const PASTE_LINES: usize = 12;
const PASTE_CHARS: usize = 1500;
/// The start of a mark.
const MARK: &str = "[paste ";

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Paste {
    /// The mark in the text.
    pub mark: String,
    /// The text that the mark replaces.
    pub text: String,
    /// It is a picture; the text is its mark then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageRef>,
}

/// A draft in the form in which it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Draft {
    /// The text with its marks.
    pub text: String,
    /// The pastes that the marks replace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pastes: Vec<Paste>,
}

impl From<&str> for Draft {
    fn from(text: &str) -> Draft {
        Draft { text: text.to_owned(), pastes: Vec::new() }
    }
}

impl Draft {
    /// A text that was sent, with the marks that it is shown with. Without marks, or when they are not of this text, it
    /// is the text itself.
    pub fn sent(text: &str, shown: Option<&str>) -> Draft {
        shown.and_then(|shown| Draft::split(text, shown)).unwrap_or_else(|| Draft::from(text))
    }

    /// Returns the text with its marks replaced by the pasted text.
    pub fn whole(&self) -> String {
        let opened = |text: String, paste: &Paste| text.replacen(&paste.mark, &paste.text, 1);
        self.pastes.iter().fold(self.text.clone(), opened)
    }

    fn split(text: &str, shown: &str) -> Option<Draft> {
        let (mut text, mut rest, mut pastes) = (text, shown, Vec::new());
        while let Some((from, to)) = next_mark(rest) {
            text = text.strip_prefix(&rest[..from])?;
            let after = &rest[to..];
            let between = &after[..next_mark(after).map_or(after.len(), |(from, _)| from)];
            let is_last = between.len() == after.len();
            let end = if is_last {
                text.ends_with(between).then(|| text.len() - between.len())?
            } else {
                text.find(between).filter(|_| !between.is_empty())?
            };
            pastes.push(Paste { mark: rest[from..to].to_owned(), text: text[..end].to_owned(), image: None });
            (text, rest) = (&text[end..], after);
        }
        (text == rest && !pastes.is_empty()).then(|| Draft { text: shown.to_owned(), pastes })
    }
}

/// Finds the next mark of a long paste.
fn next_mark(text: &str) -> Option<(usize, usize)> {
    let from = text.find(MARK)?;
    let to = from + text[from..].find(']')? + 1;
    Some((from, to))
}

fn is_long(text: &str) -> bool {
    text.lines().count() > PASTE_LINES || text.len() > PASTE_CHARS
}

/// Line ends as `\n`, and nothing that steers a terminal or hides.
pub fn clean(text: &str) -> String {
    visible(&text.replace("\r\n", "\n").replace('\r', "\n")).into_owned()
}

impl Composer {
    /// Inserts a paste: line endings as `\n`, no control sequences or invisible characters, long pastes as a
    /// mark.
    pub fn paste(&mut self, pasted: &str) {
        let text = clean(pasted);
        if !is_long(&text) {
            self.insert_text(&text);
            return;
        }
        let mark = self.new_mark(&text, "");
        self.insert_text(&mark);
        self.pastes.push(Paste { mark, text, image: None });
    }

    /// Returns a mark for a paste that occurs neither here nor in the other text.
    fn new_mark(&self, pasted: &str, other: &str) -> String {
        let lines = pasted.lines().count();
        let size = if lines > 1 {
            format!("{lines} lines")
        } else {
            format!("{} characters", pasted.chars().count())
        };
        let mark = |number: usize| format!("{MARK}{number}: {size}]");
        let is_free = |mark: &String| {
            !self.text.contains(mark)
                && !other.contains(mark)
                && self.pastes.iter().all(|paste| paste.mark != *mark)
        };
        (self.pastes.len() + 1..usize::MAX)
            .map(mark)
            .find(is_free)
            .expect("there are more numbers than marks")
    }

    /// Returns the text of a previous message, with marks for its pastes.
    pub(super) fn with_marks_of(&mut self, draft: &Draft) -> String {
        let mut text = draft.text.clone();
        for paste in &draft.pastes {
            let known = self.pastes.iter().find(|own| own.image.is_none() && own.text == paste.text);
            let mark = match known {
                Some(known) => known.mark.clone(),
                None if self.pastes.iter().any(|own| own.mark == paste.mark) => {
                    self.new_mark(&paste.text, &text)
                }
                None => paste.mark.clone(),
            };
            text = text.replacen(&paste.mark, &mark, 1);
            if self.pastes.iter().all(|own| own.mark != mark) {
                self.pastes.push(Paste { mark, ..paste.clone() });
            }
        }
        text
    }

    /// Replaces the draft with a previous message. If it is long and its pastes are unknown, all of it
    /// becomes one mark.
    pub fn recall(&mut self, text: &str) {
        let known = self.history.iter().rev().find(|draft| draft.whole() == text);
        let draft = match known {
            Some(known) => known.clone(),
            None if is_long(text) => {
                let paste = Paste { mark: self.new_mark(text, ""), text: text.to_owned(), image: None };
                Draft { text: paste.mark.clone(), pastes: vec![paste] }
            }
            None => Draft::from(text),
        };
        let text = self.with_marks_of(&draft);
        self.set(text);
    }

    /// Returns the positions of the marks, in order, each with the index of its paste.
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

    /// Replaces a mark with its pasted text: the one at the caret, otherwise the last before it, otherwise
    /// the first. Returns `false` if there are no marks.
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

    /// Returns the draft, to be stored beyond the end of the program.
    pub fn draft(&self) -> Draft {
        let kept = |paste: &&Paste| self.text.contains(&paste.mark);
        Draft { text: self.text.clone(), pastes: self.pastes.iter().filter(kept).cloned().collect() }
    }

    /// Returns the draft, if it contains long pastes.
    pub fn pasted(&self) -> Option<Draft> {
        let Draft { text, pastes } = self.draft();
        let is_text = |paste: &Paste| paste.image.is_none();
        pastes.iter().any(is_text).then(|| Draft { text: text.trim().to_owned(), pastes })
    }

    /// Puts a kept draft before what is written.
    pub fn restore(&mut self, draft: Draft) {
        let Draft { text, pastes } = draft;
        // The two may use the same mark for different pastes: the existing ones are expanded then.
        let is_double = |own: &Paste| pastes.iter().any(|paste| paste.mark == own.mark);
        if self.pastes.iter().any(is_double) {
            while self.open_paste() {}
            self.pastes.retain(|paste| paste.image.is_some());
        }
        self.pastes.extend(pastes);
        self.put_back(&text);
    }
}
