//! Diffs of two texts by lines.
//!
//! They are computed here alone: each has the same time limit, whoever wrote the texts, and the program contains the
//! algorithms once.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

pub use similar::{DiffOp, group_diff_ops};

/// The time after which the rest is compared roughly: the diff stays right, but may be longer than necessary.
const TIME_LIMIT: Duration = Duration::from_millis(300);

/// A line in pieces: those that are marked were changed.
pub type MarkedLine = Vec<(bool, String)>;

/// Compares two lists of lines. The operations cover both lists, in order.
pub fn line_ops(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    TextDiff::configure().timeout(TIME_LIMIT).diff_slices(old, new).ops().to_vec()
}

/// Counts the added and the removed lines.
pub fn changed_lines(old: &str, new: &str) -> (usize, usize) {
    let diff = between(old, new);
    let changed = diff.ops().iter().filter(|op| !matches!(op, DiffOp::Equal { .. }));
    changed
        .fold((0, 0), |(added, removed), op| (added + op.new_range().len(), removed + op.old_range().len()))
}

/// Renders a diff in the form of `diff -u`, with `context` lines around each change. `names` are those of the two files
/// in the header; without them there is none. Equal texts give an empty diff.
pub fn unified(old: &str, new: &str, names: Option<(&str, &str)>, context: usize) -> String {
    let diff = between(old, new);
    let mut diff = diff.unified_diff();
    diff.context_radius(context);
    if let Some((from, to)) = names {
        diff.header(from, to);
    }
    diff.to_string()
}

/// Marks the words in which the lines of a replaced block differ: the old lines, then the new ones.
pub fn marked_words(old: &[&str], new: &[&str]) -> (Vec<MarkedLine>, Vec<MarkedLine>) {
    let diff = TextDiff::configure().timeout(TIME_LIMIT).diff_slices(old, new);
    let block = DiffOp::Replace { old_index: 0, old_len: old.len(), new_index: 0, new_len: new.len() };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for change in diff.iter_inline_changes(&block) {
        let line = change.values().iter().map(|(mark, text)| (*mark, text.replace('\n', ""))).collect();
        match change.tag() {
            ChangeTag::Insert => after.push(line),
            ChangeTag::Delete | ChangeTag::Equal => before.push(line),
        }
    }
    (before, after)
}

fn between<'a>(old: &'a str, new: &'a str) -> TextDiff<'a, 'a, str> {
    TextDiff::configure().timeout(TIME_LIMIT).diff_lines(old, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_has_a_header_only_with_names() {
        let (old, new) = ("one\ntwo\nthree\n", "one\n2\nthree\n");
        assert_eq!(unified(old, new, None, 0), "@@ -2 +2 @@\n-two\n+2\n");
        let named = unified(old, new, Some(("a/f", "b/f")), 1);
        assert_eq!(named, "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n");
        assert_eq!(unified(old, old, Some(("a/f", "b/f")), 3), "");
    }

    #[test]
    fn changed_lines_are_counted_by_side() {
        assert_eq!(changed_lines("a\nb\nc\n", "a\nx\ny\nc\n"), (2, 1));
        assert_eq!(changed_lines("", "a\nb"), (2, 0));
        assert_eq!(changed_lines("a\nb\n", ""), (0, 2));
        assert_eq!(changed_lines("a\n", "a\n"), (0, 0));
    }

    #[test]
    fn the_words_that_differ_are_marked() {
        let (before, after) = marked_words(&["let a = 1;"], &["let a = 2;"]);
        let marks = |line: &MarkedLine| -> Vec<String> {
            line.iter().filter(|(mark, _)| *mark).map(|(_, text)| text.clone()).collect()
        };
        assert_eq!((before.len(), after.len()), (1, 1));
        assert!(marks(&before[0]).concat().contains('1'), "{before:?}");
        assert!(marks(&after[0]).concat().contains('2'), "{after:?}");
        assert!(!marks(&before[0]).concat().contains("let"), "{before:?}");
    }
}
