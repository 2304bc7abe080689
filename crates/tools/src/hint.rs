//! A word about why a text was not found.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

use aye_core::contract::diff::{group_diff_ops, line_ops};
use aye_core::contract::display::shortened;
use unicode_normalization::UnicodeNormalization as _;

use super::lenient;

/// Files with more lines than this get no nearest line: the search takes time.
const MAX_LINES: usize = 20_000;
/// Maximum lines shown verbatim.
const MAX_SHOWN: usize = 20;
const MAX_PLACES: usize = 3;
/// Maximum lines shown of what changed in a file.
const MAX_CHANGED: usize = 40;
/// Characters of such a line.
const MAX_LINE: usize = 200;

/// Continues the sentence "the text is not there", with the lines that were probably meant: they spare the model another Read.
pub(super) fn nearest(text: &str, old: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > MAX_LINES {
        return String::new();
    }
    let places = same_but_blanks(&lines, old);
    if !places.is_empty() {
        let names =
            places.iter().map(|place| format!("{}-{}", place.start + 1, place.end)).collect::<Vec<_>>();
        let mut out = format!(
            "; lines {} differ from it in blanks only (a space at either end is shown as ·, a tab as →):",
            names.join(" and ")
        );
        for (nth, place) in places.iter().enumerate() {
            // The line before tells one place from another.
            let start = place.start.saturating_sub(usize::from(places.len() > 1));
            out.push_str(if nth == 0 { "" } else { "\n--" });
            for line in lines[start..place.end].iter().take(MAX_SHOWN) {
                let _ = write!(out, "\n{}", with_visible_blanks(&shortened(line, MAX_LINE)));
            }
        }
        return out;
    }
    if in_another_form(text, old) {
        return "; it is there in another Unicode form, such as `é` as `e` and an accent; leave such characters out of \
                `old_string`"
            .into();
    }
    let text_of = |line| lenient::numbered(line).map_or(line, |(_, text)| text);
    let mut filled = old.lines().filter(|line| !line.trim().is_empty()).peekable();
    let is_numbered = filled.peek().is_some() && filled.all(|line| lenient::numbered(line).is_some());
    let wanted: Vec<&str> = old.lines().map(|line| if is_numbered { text_of(line) } else { line }).collect();
    let advice = if is_numbered { "; leave out the line numbers that Read shows" } else { "" };
    match nearest_lines(&lines, &wanted) {
        Some(place) => {
            let block = numbered(lines.iter().copied().enumerate().skip(place.start).take(place.len()));
            format!("{advice}; the nearest place is at line {}:{block}", place.start + 1)
        }
        None => advice.to_owned(),
    }
}

/// The lines of a text that differ from what was seen of it, and one before and after, as Read shows them. `None` if they
/// are too many to be shown.
pub(super) fn changed(seen: &str, text: &str) -> Option<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (seen.lines().collect(), text.lines().collect());
    if old.len().max(new.len()) > MAX_LINES {
        return None;
    }
    let groups = group_diff_ops(line_ops(&old, &new), 1);
    let places =
        groups.iter().filter_map(|ops| Some(ops.first()?.new_range().start..ops.last()?.new_range().end));
    let places: Vec<Range<usize>> = places.collect();
    if places.iter().map(Range::len).sum::<usize>() > MAX_CHANGED {
        return None;
    }
    let block =
        |place: &Range<usize>| numbered(new.iter().copied().enumerate().skip(place.start).take(place.len()));
    let shown = places.iter().map(block).collect::<Vec<_>>().join("\n--");
    (!shown.is_empty()).then_some(shown)
}

/// Lines as Read shows them, each after a line end.
pub(super) fn numbered<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> String {
    lines.fold(String::new(), |mut text, (at, line)| {
        let _ = write!(text, "\n{}\t{}", at + 1, shortened(line, MAX_LINE));
        text
    })
}

/// A line whose blanks can be told apart: spaces at its ends, and any others everywhere.
fn with_visible_blanks(line: &str) -> String {
    let body = line.trim_matches([' ', '\t']);
    let start = line.len() - line.trim_start_matches([' ', '\t']).len();
    let mut out = String::with_capacity(line.len());
    for (at, c) in line.char_indices() {
        match c {
            ' ' if at < start || at >= start + body.len() => out.push('·'),
            '\t' => out.push('→'),
            ' ' => out.push(' '),
            c if c.is_whitespace() => {
                let _ = write!(out, "<U+{:04X}>", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// The line at which a text is already, if it is there once and says enough to be no accident.
pub(super) fn already(text: &str, new: &str) -> Option<usize> {
    const LEAST: usize = 8;
    let new = new.trim();
    let mut places = text.match_indices(new).filter(|_| new.len() >= LEAST);
    let (at, _) = places.next()?;
    places.next().is_none().then(|| text[..at].matches('\n').count() + 1)
}

/// Whether the texts differ in nothing but how their characters are composed.
fn in_another_form(text: &str, old: &str) -> bool {
    if text.is_ascii() || old.is_ascii() {
        return false;
    }
    let composed = |text: &str| text.nfc().collect::<String>();
    composed(text).contains(&composed(old))
}

/// Returns the places where lines contain a text but for its white space.
fn same_but_blanks(lines: &[&str], old: &str) -> Vec<Range<usize>> {
    let wanted: String = old.split_whitespace().collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut all = String::new();
    let starts = lines.iter().map(|line| {
        let start = all.len();
        all.extend(line.split_whitespace());
        start
    });
    let starts: Vec<usize> = starts.collect();
    // An empty line starts where the next one does, which is the one that counts.
    let line_of = |at: usize| starts.partition_point(|start| *start <= at) - 1;
    let places = all.match_indices(&wanted).map(|(at, _)| line_of(at)..line_of(at + wanted.len() - 1) + 1);
    let mut places: Vec<_> = places.take(MAX_PLACES).collect();
    places.dedup();
    places
}

/// Returns the lines that are most probably meant.
fn nearest_lines(lines: &[&str], wanted: &[&str]) -> Option<Range<usize>> {
    let filled = wanted.iter().map(|line| line.trim()).enumerate().filter(|(_, line)| !line.is_empty());
    let filled: Vec<(usize, &str)> = filled.collect();
    // The first place of each line, and whether it is the only one.
    let mut known: HashMap<&str, (usize, bool)> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        known.entry(line.trim()).and_modify(|(_, is_only)| *is_only = false).or_insert((at, true));
    }
    // Lines that occur once show where the others belong.
    let mut fixed: Vec<(usize, usize)> = Vec::new();
    for (nth, line) in &filled {
        if let Some((at, true)) = known.get(line)
            && fixed.last().is_none_or(|(_, last)| at > last)
        {
            fixed.push((*nth, *at));
        }
    }
    let (first, last) = if let (Some(first), Some(last)) = (fixed.first(), fixed.last()) {
        (*first, *last)
    } else {
        let (nth, longest) = *filled.iter().max_by_key(|(_, line)| line.len())?;
        let similar = closest(lines, longest).map(|at| (nth, at));
        let any = || filled.iter().find_map(|(nth, line)| Some((*nth, known.get(line)?.0)));
        let one = similar.or_else(any)?;
        (one, one)
    };
    let start = first.1.saturating_sub(first.0);
    let end = (last.1 + wanted.len() - last.0).min(lines.len());
    let end = if end - start > MAX_SHOWN { start + wanted.len().min(MAX_SHOWN) } else { end };
    Some(start..end.min(lines.len()))
}

/// The line that shares most pairs of characters, when it shares most of them.
fn closest(lines: &[&str], wanted: &str) -> Option<usize> {
    if wanted.len() > 1000 {
        return None;
    }
    // Typographic characters are like the plain ones.
    let plain = |c: char| lenient::plain(c).and_then(|plain| plain.chars().next()).unwrap_or(c);
    let pairs = |line: &str| -> Vec<(char, char)> {
        let chars = || line.chars().map(plain);
        let mut pairs: Vec<_> = chars().zip(chars().skip(1)).collect();
        pairs.sort_unstable();
        pairs
    };
    let wanted = pairs(wanted);
    let score = |line: &str| -> f32 {
        let line = pairs(line);
        let (mut a, mut b, mut common) = (wanted.iter().peekable(), line.iter().peekable(), 0_usize);
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            match x.cmp(y) {
                std::cmp::Ordering::Less => drop(a.next()),
                std::cmp::Ordering::Greater => drop(b.next()),
                std::cmp::Ordering::Equal => {
                    common += 1;
                    a.next();
                    b.next();
                }
            }
        }
        2.0 * common as f32 / (wanted.len() + line.len()).max(1) as f32
    };
    lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.len() <= 2000)
        .map(|(at, line)| (score(line.trim()), at))
        .filter(|(score, _)| *score >= 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))
        .map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fn main() {\n    let value = compute();\n\tprintln!(\"{value}\");\n}\n";

    #[test]
    fn whitespace_differences_are_pointed_out() {
        let hint = nearest(TEXT, "let value = compute();\nprintln!(\"{value}\");");
        assert_eq!(
            hint,
            "; lines 2-3 differ from it in blanks only (a space at either end is shown as ·, a tab as →):\n\
             ····let value = compute();\n→println!(\"{value}\");"
        );
    }

    #[test]
    fn other_line_breaks_are_pointed_out() {
        let text = "a\n\nfn f(x: u8,\ty: u8) {\n}\n\n";
        for (old, place) in [
            (
                "fn f(x: u8,\n     y: u8) {\n",
                "3-3 differ from it in blanks only (a space at either end is shown as ·, a tab as →):\nfn f(x: u8,→y: u8) {",
            ),
            ("a\nfn f(x: u8, y: u8) {\n", "1-3 differ"),
            ("y: u8) {\n\n}\n", "3-4 differ"),
        ] {
            assert!(
                nearest(text, old).starts_with(&format!("; lines {place}")),
                "{old:?}: {}",
                nearest(text, old)
            );
        }
        assert_eq!(
            nearest("a {\n  one\u{a0}1\n}\nb {\n\tone 1\n}\n", "    one 1\n"),
            "; lines 2-2 and 5-5 differ from it in blanks only (a space at either end is shown as ·, a tab as →):\n\
             a {\n··one<U+00A0>1\n--\nb {\n→one 1"
        );
        assert_eq!(nearest(text, " \n"), "");
    }

    #[test]
    fn line_numbers_are_pointed_out() {
        assert_eq!(
            nearest(TEXT, "     2\t    let value = computed();"),
            "; leave out the line numbers that Read shows; the nearest place is at line 2:\n2\t    let value = compute();"
        );
    }

    #[test]
    fn lines_that_occur_once_show_where_the_others_belong() {
        let text = "}\nfn a() {\n    one();\n    two();\n    three();\n}\nfn b() {\n}\n";
        for (old, place) in [
            ("}\nfn a() {\n    once();\n", 0..3),
            ("fn a() {\n...\n    three();\n}\n", 1..6),
            ("    many();\n    more();\n    three();\n}\n", 2..6),
            ("}\nelse();\n", 0..2),
        ] {
            let (lines, wanted): (Vec<_>, Vec<_>) = (text.lines().collect(), old.lines().collect());
            assert_eq!(nearest_lines(&lines, &wanted), Some(place), "{old:?}");
        }
    }

    #[test]
    fn changed_lines_are_shown_as_they_are_now() {
        let old: Vec<String> = (1..=60).map(|n| format!("line {n}\n")).collect();
        let mut new = old.clone();
        new[9] = "line ten\n".into();
        new.remove(29);
        assert_eq!(
            changed(&old.concat(), &new.concat()).as_deref(),
            Some("\n9\tline 9\n10\tline ten\n11\tline 11\n--\n29\tline 29\n30\tline 31")
        );
        assert_eq!(changed(&old.concat(), &"other\n".repeat(60)), None, "too many");
        assert_eq!(changed("a\n", ""), None);
        assert_eq!(changed("a\n", "a"), None, "no line differs");
    }

    #[test]
    fn another_unicode_form_is_pointed_out() {
        let hint = nearest("let a = 1;\nlet cafe\u{301} = 1;\n", "let café = 1;");
        assert!(hint.contains("another Unicode form"), "{hint}");
        let hint = nearest("let café = 1;\n", "let cafe\u{301} = 1;");
        assert!(hint.contains("another Unicode form"), "{hint}");
        assert!(!nearest("let café = 1;\n", "let cafè = 1;").contains("Unicode"));
    }

    #[test]
    fn the_nearest_line_is_named() {
        assert_eq!(
            nearest(TEXT, "let value = computed();"),
            "; the nearest place is at line 2:\n2\t    let value = compute();"
        );
        assert_eq!(
            nearest(TEXT, "fn main() {\nother"),
            "; the nearest place is at line 1:\n1\tfn main() {\n2\t    let value = compute();"
        );
        assert_eq!(nearest(TEXT, "zzzzzz"), "");
        assert_eq!(
            nearest(TEXT, "let value = computed();\nother();"),
            "; the nearest place is at line 2:\n2\t    let value = compute();\n3\t\tprintln!(\"{value}\");"
        );
    }

    #[test]
    fn a_change_that_is_there_already_is_seen() {
        assert_eq!(already(TEXT, "    let value = compute();\n"), Some(2));
        assert_eq!(already(TEXT, "value"), None, "short, and there twice");
        assert_eq!(already(TEXT, "}"), None);
    }
}
