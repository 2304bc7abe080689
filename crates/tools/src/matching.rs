//! Where the text that an Edit names is in a file, and what comes in its place. Models write `\n` whatever a file uses, so
//! line ends match any line end, and each line keeps its own.

use std::borrow::Cow;
use std::ops::Range;

use super::lenient;

/// Bytes of a file, and the text to put there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replacement {
    pub(super) range: Range<usize>,
    pub(super) new: String,
}

/// A text with `\n` for each `\r\n`.
struct Folded<'a> {
    text: Cow<'a, str>,
    /// Where a `\r` is left out, ascending.
    gaps: Vec<usize>,
    /// Every line of the original ends in `\r\n`.
    is_crlf: bool,
}

impl<'a> Folded<'a> {
    fn of(original: &'a str) -> Self {
        let mut gaps: Vec<_> = original.match_indices("\r\n").map(|(at, _)| at).collect();
        if gaps.is_empty() {
            return Self { text: original.into(), gaps, is_crlf: false };
        }
        for (before, gap) in gaps.iter_mut().enumerate() {
            *gap -= before;
        }
        let text = original.replace("\r\n", "\n");
        let is_crlf = text.matches('\n').count() == gaps.len();
        Self { text: text.into(), gaps, is_crlf }
    }

    /// The place in the original of a place in the text.
    fn original(&self, at: usize) -> usize {
        at + self.gaps.partition_point(|gap| *gap < at)
    }

    /// What comes in the place of a range of the text, with the line ends that are there in the original.
    fn replacement(&self, original: &str, range: Range<usize>, new: &str) -> Replacement {
        let range = self.original(range.start)..self.original(range.end);
        let new = match self.gaps.as_slice() {
            [] => new.to_owned(),
            _ if self.is_crlf => new.replace('\n', "\r\n"),
            _ => with_ends(original, &range, new),
        };
        Replacement { range, new }
    }
}

/// Returns the places of `old` in a text, with what replaces each; also those that overlap, because `aa` occurs twice in
/// `aaa`.
pub(super) fn find(text: &str, old: &str, new: &str) -> Vec<Replacement> {
    let folded = Folded::of(text);
    // Line ends that are spelled out are meant, where a file has both.
    if old.contains('\r') && !folded.is_crlf {
        let found = places(text, old);
        if !found.is_empty() {
            let replacement = |at| Replacement { range: at..at + old.len(), new: new.to_owned() };
            return found.into_iter().map(replacement).collect();
        }
    }
    let (old, is_new_raw) = (Folded::of(old).text, folded.gaps.is_empty() && !old.contains('\r'));
    let new = if is_new_raw { new.into() } else { Folded::of(new).text };
    let replacement = |at| folded.replacement(text, at..at + old.len(), &new);
    places(&folded.text, &old).into_iter().map(replacement).collect()
}

/// Returns the single place of a text that is quoted almost, and what was ignored: see [`lenient`].
pub(super) fn find_lenient(text: &str, old: &str, new: &str) -> Option<(Replacement, String)> {
    let (folded, old, new) = (Folded::of(text), Folded::of(old).text, Folded::of(new).text);
    let found = lenient::find(&folded.text, &old, &new)?;
    Some((folded.replacement(text, found.range, &found.new), found.ignoring))
}

/// Returns a text with others in their places, in the order of the places. Where they overlap, the first counts.
pub(super) fn replaced(text: &str, places: &[Replacement]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = 0;
    for Replacement { range, new } in places {
        if range.start >= rest {
            out.push_str(&text[rest..range.start]);
            out.push_str(new);
            rest = range.end;
        }
    }
    out.push_str(&text[rest..]);
    out
}

/// Returns where a text starts.
fn places(text: &str, old: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(old) {
        found.push(from + at);
        let step = text[from + at..].chars().next().map_or(1, char::len_utf8);
        from += at + step;
    }
    found
}

/// A new text for a range of a text, with the line ends that the lines have there.
fn with_ends(text: &str, range: &Range<usize>, new: &str) -> String {
    let fallback = end_near(text, range);
    let old: Vec<_> = text[range.clone()].split('\n').collect();
    let ends: Vec<_> = old.iter().map(|line| if line.ends_with('\r') { "\r\n" } else { "\n" }).collect();
    let same = |old: &str, new: &str| old.strip_suffix('\r').unwrap_or(old) == new;
    let new: Vec<_> = new.split('\n').collect();
    let first = old.iter().zip(&new).take_while(|(old, new)| same(old, new)).count();
    let rest = old.len().min(new.len()) - first;
    let last = old.iter().rev().zip(new.iter().rev()).take(rest);
    let last = last.take_while(|(old, new)| same(old, new)).count();
    let mut out = String::new();
    let mut end = None;
    for (at, line) in new.iter().enumerate() {
        out.push_str(line);
        if at + 1 == new.len() {
            break;
        }
        // The last piece of the old text has no end of its own.
        let was = match at.checked_sub(new.len() - last) {
            Some(from_last) => Some(old.len() - last + from_last),
            None if at + last < old.len() => Some(at),
            None => None,
        };
        let own = was.filter(|was| was + 1 < old.len()).map(|was| ends[was]);
        end = own.or(end);
        out.push_str(end.unwrap_or(fallback));
    }
    out
}

/// The line end of the line that a range ends in, or of the line before it.
fn end_near(text: &str, range: &Range<usize>) -> &'static str {
    let after = text[range.end..].find('\n').map(|at| range.end + at);
    match after.or_else(|| text[..range.end].rfind('\n')) {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with(text: &str, old: &str, new: &str) -> String {
        let found = find(text, old, new);
        assert_eq!(found.len(), 1, "{text:?} {old:?}: {found:?}");
        let Replacement { range, new } = &found[0];
        format!("{}{new}{}", &text[..range.start], &text[range.end..])
    }

    #[test]
    fn each_line_keeps_its_end() {
        let mixed = "a\r\nb\nc\r\nd\n";
        for (old, new, after) in [
            ("a\nb\nc", "a\nB\nc", "a\r\nB\nc\r\nd\n"),
            ("b\nc\nd", "b\nx\ny\nd", "a\r\nb\nx\r\ny\r\nd\n"),
            ("a\nb", "a\nnew\nb", "a\r\nnew\r\nb\nc\r\nd\n"),
            ("c", "c\nc2", "a\r\nb\nc\r\nc2\r\nd\n"),
            ("\nb\n", "\n", "a\r\nc\r\nd\n"),
            ("a\nb\n", "", "c\r\nd\n"),
            ("d\n", "d\ne\n", "a\r\nb\nc\r\nd\ne\n"),
            // Spelled out.
            ("a\r\nb\n", "a\nb\r\n", "a\nb\r\nc\r\nd\n"),
            ("b\nc\n", "b\r\nc\r\n", "a\r\nb\nc\r\nd\n"),
        ] {
            assert_eq!(with(mixed, old, new), after, "{old:?} {new:?}");
        }
        assert_eq!(with("a\r\nb", "b", "b\nc"), "a\r\nb\r\nc");
        assert_eq!(with("a\r\nb\r\n", "a\r\nb", "a\nc\nb"), "a\r\nc\r\nb\r\n");
        assert_eq!(with("a\nb", "a\r\nb", "a\r\nc"), "a\nc");
        assert_eq!(with("a\nb", "a\n", "a\r\n"), "a\r\nb", "a change of the line end");
        assert_eq!(find("a\nb a\r\nb", "a\nb", "x").len(), 2, "a reader sees no difference");
        assert_eq!(find("aaa", "aa", "b").len(), 2);
    }

    proptest! {
        #[test]
        fn only_the_match_changes(
            lines in prop::collection::vec(("[ab]{0,2}", any::<bool>()), 1..8),
            from in 0_usize..8,
            count in 1_usize..8,
            new in "[ab\n]{0,6}",
        ) {
            let end = |crlf: &bool| if *crlf { "\r\n" } else { "\n" };
            let text = lines.iter().flat_map(|(line, crlf)| [line.as_str(), end(crlf)]).collect::<String>();
            let from = from.min(lines.len() - 1);
            let quoted = &lines[from..(from + count).min(lines.len())];
            let old = quoted.iter().flat_map(|(line, _)| [line.as_str(), "\n"]).collect::<String>();
            let folded = text.replace("\r\n", "\n");
            let found = find(&text, &old, &new);
            prop_assert_eq!(found.len(), places(&folded, &old).len());
            for Replacement { range, new: put } in found {
                prop_assert_eq!(text[range.clone()].replace("\r\n", "\n"), &*old);
                prop_assert_eq!(put.replace("\r\n", "\n"), &*new);
                // What is put back unchanged is unchanged.
                let same = find(&text, &old, &old).into_iter().find(|same| same.range == range).expect("is there");
                prop_assert_eq!(&same.new, &text[range]);
            }
        }
    }
}
