//! Where a text is that an Edit quotes almost: with other blanks or indentation, with line numbers copied along, in a code
//! fence, or with plain characters where the file has typographic ones.
//!
//! Each step forgives one thing that says nothing about the text's meaning, and only a single place counts. What is only
//! similar is never taken.

use std::collections::BTreeMap;
use std::ops::Range;

/// The single place of a text in a file, and what comes there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LenientMatch {
    pub(super) range: Range<usize>,
    pub(super) new: String,
    pub(super) ignoring: String,
}

/// Files with more lines than this are matched exactly only: the search takes time.
const MAX_LINES: usize = 200_000;

/// Finds `old` in a text where it is not as it stands. All line ends are `\n`.
pub(super) fn find(text: &str, old: &str, new: &str) -> Option<LenientMatch> {
    // What has no word in it is everywhere.
    if !old.chars().any(char::is_alphanumeric) || text.bytes().filter(|b| *b == b'\n').count() > MAX_LINES {
        return None;
    }
    let file = Lines::of(text);
    let mut variants = vec![Variant { old: old.to_owned(), new: new.to_owned(), ignoring: None }];
    variants.extend([without_numbers(old, new), without_fence(old, new)].into_iter().flatten());
    variants.extend([without_escapes(old, new), without_outer_lines(old, new)].into_iter().flatten());
    for Variant { old, new, ignoring } in &variants {
        for (step, what) in &STEPS {
            match step(&file, old, new) {
                Found::Nowhere => {}
                Found::One(range, new) if text[range.clone()] != new => {
                    let ignored = ignoring.iter().chain(what).copied().collect::<Vec<_>>();
                    return Some(LenientMatch { range, new, ignoring: ignored.join(" and ") });
                }
                Found::One(..) | Found::Unclear => return None,
            }
        }
    }
    None
}

type Step = fn(&Lines<'_>, &str, &str) -> Found;

const STEPS: [(Step, Option<&str>); 4] = [
    (exactly, None),
    (but_blanks, Some("blanks at line ends")),
    (but_indentation, Some("indentation")),
    (but_typography, Some("typographic characters")),
];

enum Found {
    Nowhere,
    One(Range<usize>, String),
    /// More than one place, or no certain text for it.
    Unclear,
}

/// The text and its lines, without an empty one after the last line end.
struct Lines<'a> {
    text: &'a str,
    all: Vec<&'a str>,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let all: Vec<_> = text.split_terminator('\n').collect();
        let starts = all.iter().scan(0, |at, line| {
            let start = *at;
            *at += line.len() + 1;
            Some(start)
        });
        let starts = starts.collect();
        Self { text, all, starts }
    }

    /// The places where lines are these, by a comparison.
    fn places(&self, wanted: &[&str], is_same: impl Fn(&str, &str) -> bool) -> Vec<usize> {
        if wanted.is_empty() || wanted.len() > self.all.len() {
            return Vec::new();
        }
        let fits = |lines: &[&str]| lines.iter().zip(wanted).all(|(line, wanted)| is_same(line, wanted));
        let windows = self.all.windows(wanted.len()).enumerate();
        windows.filter(|(_, lines)| fits(lines)).map(|(at, _)| at).collect()
    }

    /// The bytes of lines, with the last line's end if `has_end` and there is one; and whether it is in it.
    fn range(&self, at: usize, count: usize, has_end: bool) -> (Range<usize>, bool) {
        let end = self.starts[at + count - 1] + self.all[at + count - 1].len();
        let has_end = has_end && self.text[end..].starts_with('\n');
        (self.starts[at]..end + usize::from(has_end), has_end)
    }
}

/// Compares by whole lines. Lines that the edit leaves as they are stay as the file has them; `changed` gives the others.
fn by_lines(
    file: &Lines<'_>,
    (old, new): (&str, &str),
    is_same: impl Fn(&str, &str) -> bool,
    changed: impl FnOnce(&[&str], &[&str], &[&str]) -> Option<Vec<String>>,
) -> Found {
    let wanted: Vec<_> = old.split_terminator('\n').collect();
    let places = file.places(&wanted, is_same);
    let at = match places.as_slice() {
        [] => return Found::Nowhere,
        [at] => *at,
        _ => return Found::Unclear,
    };
    let own = &file.all[at..at + wanted.len()];
    let lines: Vec<_> = new.split_terminator('\n').collect();
    let stays = |(old, new): &(&&str, &&str)| old.trim_end() == new.trim_end();
    let first = wanted.iter().zip(&lines).take_while(stays).count();
    let rest = wanted.len().min(lines.len()) - first;
    let last = wanted.iter().rev().zip(lines.iter().rev()).take(rest).take_while(stays).count();
    let Some(middle) = changed(&wanted, own, &lines[first..lines.len() - last]) else {
        return Found::Unclear;
    };
    let (range, has_end) = file.range(at, wanted.len(), old.ends_with('\n'));
    let all = [owned(&own[..first]), middle, owned(&own[own.len() - last..])].concat();
    let mut text = all.join("\n");
    if new.ends_with('\n') && !all.is_empty() && (has_end || !old.ends_with('\n')) {
        text.push('\n');
    }
    Found::One(range, text)
}

fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

fn exactly(file: &Lines<'_>, old: &str, new: &str) -> Found {
    by_lines(file, (old, new), |line, wanted| line == wanted, |_, _, new| Some(owned(new)))
}

fn but_blanks(file: &Lines<'_>, old: &str, new: &str) -> Found {
    by_lines(
        file,
        (old, new),
        |line, wanted| line.trim_end() == wanted.trim_end(),
        |_, _, new| Some(owned(new)),
    )
}

fn but_indentation(file: &Lines<'_>, old: &str, new: &str) -> Found {
    by_lines(
        file,
        (old, new),
        |line, wanted| split_indent(line).1.trim_end() == split_indent(wanted).1.trim_end(),
        |old, own, new| {
            let indents = Indents::of(old, own, || indentation_unit(&file.all))?;
            new.iter().map(|line| indents.of_line(line)).collect()
        },
    )
}

fn split_indent(line: &str) -> (&str, &str) {
    line.split_at(line.len() - line.trim_start_matches([' ', '\t']).len())
}

/// How the indentation of a quoted text becomes that of the file.
enum Indents<'a> {
    /// By the same text before each line.
    More(&'a str, Unit<'a>),
    Less(&'a str, Unit<'a>),
    /// By so many units, each of which is another text.
    Scaled(&'a str, &'a str),
}

/// What lines may be indented by that are deeper or less deep than those quoted.
enum Unit<'a> {
    Any,
    /// Whole units of the file beyond this one.
    Of(&'a str, String),
}

impl<'a> Indents<'a> {
    fn of(old: &[&'a str], own: &[&'a str], unit: impl FnOnce() -> Option<String>) -> Option<Self> {
        let mut levels = BTreeMap::new();
        for (old, own) in old.iter().zip(own).filter(|(old, _)| !old.trim().is_empty()) {
            let (before, after) = (split_indent(old).0, split_indent(own).0);
            // One depth is one depth.
            if *levels.entry(before).or_insert(after) != after {
                return None;
            }
        }
        // A shorter indentation is the start of a longer one, in both, so this order is that of their depth.
        let levels: Vec<_> = levels.into_iter().collect();
        let is_deeper = |a: &str, b: &str| b.len() > a.len() && b.starts_with(a);
        let in_order =
            |pair: &[(&str, &str)]| is_deeper(pair[0].0, pair[1].0) && is_deeper(pair[0].1, pair[1].1);
        if !levels.windows(2).all(in_order) {
            return None;
        }
        let (before, after) = *levels.first()?;
        let limits = |unit: Option<String>| match levels.len() {
            1 => unit.map(|unit| Unit::Of(before, unit)),
            _ => Some(Unit::Any),
        };
        if let Some(more) = after.strip_suffix(before)
            && levels.iter().all(|(old, own)| own.strip_prefix(more) == Some(old))
        {
            return Some(Self::More(more, limits(unit())?));
        }
        if let Some(less) = before.strip_suffix(after)
            && levels.iter().all(|(old, own)| old.strip_prefix(less) == Some(own))
        {
            return Some(Self::Less(less, limits(unit())?));
        }
        let (from, to) = if levels.len() == 1 {
            single_units(before, after)?
        } else {
            let steps =
                levels.windows(2).map(|pair| (&pair[1].0[pair[0].0.len()..], &pair[1].1[pair[0].1.len()..]));
            steps.min_by_key(|(from, _)| from.len())?
        };
        let is_scaled = |(old, own): &(&str, &str)| count_of(old, from).is_some_and(|n| to.repeat(n) == *own);
        levels.iter().all(is_scaled).then_some(Self::Scaled(from, to))
    }

    /// A new line with the file's indentation; `None` if that is not certain.
    fn of_line(&self, line: &str) -> Option<String> {
        let (indent, text) = split_indent(line);
        if text.is_empty() {
            return Some(String::new());
        }
        let is_known = |unit: &Unit<'_>| match unit {
            Unit::Any => true,
            Unit::Of(before, unit) => {
                let beyond = indent.strip_prefix(before).or_else(|| before.strip_prefix(indent));
                beyond.is_some_and(|beyond| count_of(beyond, unit).is_some())
            }
        };
        match self {
            Self::More(more, unit) => is_known(unit).then(|| format!("{more}{line}")),
            Self::Less(less, unit) => {
                let rest = line.strip_prefix(less).filter(|_| is_known(unit))?;
                Some(rest.to_owned())
            }
            Self::Scaled(from, to) => Some(to.repeat(count_of(indent, from)?) + text),
        }
    }
}

/// How often a text is repeated in another, when it is that and nothing else.
fn count_of(text: &str, unit: &str) -> Option<usize> {
    let count = text.len().checked_div(unit.len())?;
    (unit.repeat(count) == text).then_some(count)
}

/// Spaces for each tab, from lines of one depth.
fn single_units<'a>(before: &'a str, after: &'a str) -> Option<(&'a str, &'a str)> {
    let is_all = |text: &str, c: char| !text.is_empty() && text.chars().all(|other| other == c);
    let units = |spaces: &'a str, tabs: &'a str| {
        let width = spaces.len() / tabs.len();
        let is_usual = spaces.len() == width * tabs.len() && matches!(width, 2 | 3 | 4 | 8);
        is_usual.then(|| (&spaces[..width], &tabs[..1]))
    };
    match () {
        () if is_all(before, ' ') && is_all(after, '\t') => units(before, after),
        () if is_all(before, '\t') && is_all(after, ' ') => {
            units(after, before).map(|(space, tab)| (tab, space))
        }
        () => None,
    }
}

/// The text by which lines of a file are indented deeper, most often.
fn indentation_unit(lines: &[&str]) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let filled = lines.iter().filter(|line| !line.trim().is_empty());
    let indents: Vec<_> = filled.map(|line| split_indent(line).0).collect();
    for pair in indents.windows(2) {
        if let Some(step) = pair[1].strip_prefix(pair[0]).filter(|step| !step.is_empty()) {
            *counts.entry(step).or_default() += 1;
        }
    }
    let most = counts.into_iter().max_by_key(|(step, count)| (*count, std::cmp::Reverse(step.len())));
    most.map(|(step, _)| step.to_owned())
}

/// The plain text for a typographic character or a special blank.
pub(super) fn plain(c: char) -> Option<&'static str> {
    Some(match c {
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => " ",
        '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}' => "'",
        '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{201f}' => "\"",
        '\u{2010}'..='\u{2015}' | '\u{2212}' => "-",
        '\u{2026}' => "...",
        _ => return None,
    })
}

/// Typographic characters in the file only: what the model spells out, it means.
fn but_typography(file: &Lines<'_>, old: &str, new: &str) -> Found {
    let has_special = |text: &str| text.chars().any(|c| plain(c).is_some());
    if has_special(old) || !has_special(file.text) {
        return Found::Nowhere;
    }
    let mut text = String::with_capacity(file.text.len());
    // Where each byte comes from, and the end.
    let mut from = Vec::with_capacity(file.text.len() + 1);
    for (at, c) in file.text.char_indices() {
        let mut buffer = [0; 4];
        let piece = plain(c).unwrap_or_else(|| c.encode_utf8(&mut buffer));
        text.push_str(piece);
        from.extend(std::iter::repeat_n(at, piece.len()));
    }
    from.push(file.text.len());
    let mut places = text.match_indices(old).map(|(at, _)| at);
    let (Some(at), None) = (places.next(), places.next()) else {
        return if text.contains(old) { Found::Unclear } else { Found::Nowhere };
    };
    let end = at + old.len();
    let splits = |at: usize| at > 0 && from[at - 1] == from[at];
    if splits(at) || splits(end) {
        return Found::Unclear;
    }
    let range = from[at]..from[end];
    // Lines that stay are the file's.
    let (own, was): (Vec<_>, Vec<_>) =
        (file.text[range.clone()].split('\n').collect(), old.split('\n').collect());
    let lines: Vec<_> = new.split('\n').collect();
    let stays = |(old, new): &(&&str, &&str)| old == new;
    let first = was.iter().zip(&lines).take_while(stays).count();
    let rest = was.len().min(lines.len()) - first;
    let last = was.iter().rev().zip(lines.iter().rev()).take(rest).take_while(stays).count();
    let all = [&own[..first], &lines[first..lines.len() - last], &own[own.len() - last..]].concat();
    Found::One(range, all.join("\n"))
}

/// A quoted text without what was put around it.
struct Variant {
    old: String,
    new: String,
    ignoring: Option<&'static str>,
}

/// Without the numbers that Read or Grep shows: `    16<tab>text`, `16: text`, `16→text`.
fn without_numbers(old: &str, new: &str) -> Option<Variant> {
    let mut next = None;
    let mut stripped = Vec::new();
    for line in old.split('\n') {
        match numbered(line) {
            Some((number, rest)) if next.is_none_or(|next| next == number) => {
                next = Some(number + 1);
                stripped.push(rest);
            }
            None if line.trim().is_empty() => {
                next = next.map(|next| next + 1);
                stripped.push(line);
            }
            _ => return None,
        }
    }
    next?;
    let lines: Vec<_> = new.split('\n').collect();
    let filled = lines.iter().filter(|line| !line.trim().is_empty());
    let (filled, with) =
        filled.fold((0, 0), |(all, with), line| (all + 1, with + usize::from(numbered(line).is_some())));
    let new = match with {
        0 => new.to_owned(),
        _ if with == filled => {
            let rest = |line: &&str| numbered(line).map_or("", |(_, rest)| rest).to_owned();
            lines.iter().map(rest).collect::<Vec<_>>().join("\n")
        }
        _ => return None,
    };
    Some(Variant { old: stripped.join("\n"), new, ignoring: Some("line numbers") })
}

/// A line's number, as Read or Grep shows it, and its text.
pub(super) fn numbered(line: &str) -> Option<(u64, &str)> {
    let line = line.trim_start_matches(' ');
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let number = line[..digits].parse().ok()?;
    let rest = &line[digits..];
    let rest = rest.strip_prefix('\t').or_else(|| rest.strip_prefix(": ")).or_else(|| rest.strip_prefix('→'));
    // An empty line has no blank after its colon.
    rest.or_else(|| (line[digits..] == *":").then_some("")).map(|rest| (number, rest))
}

/// Without a code fence around it.
fn without_fence(old: &str, new: &str) -> Option<Variant> {
    fn inside(text: &str) -> Option<&str> {
        let (first, rest) = text.split_once('\n')?;
        let language = first.strip_prefix("```")?;
        let rest = rest.strip_suffix('\n').unwrap_or(rest).strip_suffix("```")?;
        let is_fence = !language.contains(['`', ' ']) && (rest.is_empty() || rest.ends_with('\n'));
        is_fence.then_some(rest)
    }
    let old = inside(old)?;
    let new = inside(new).map_or_else(|| with_end_of(old, new), str::to_owned);
    Some(Variant { old: old.to_owned(), new, ignoring: Some("a code fence") })
}

/// A text with a line end if another has one.
fn with_end_of(other: &str, text: &str) -> String {
    let needs_end = other.ends_with('\n') && !text.is_empty() && !text.ends_with('\n');
    format!("{text}{}", if needs_end { "\n" } else { "" })
}

/// Without the backslashes that JSON needs before quotes, in both.
fn without_escapes(old: &str, new: &str) -> Option<Variant> {
    let is_escaped = |text: &str| text.matches('"').count() == text.matches("\\\"").count();
    if !old.contains("\\\"") || !is_escaped(old) || !is_escaped(new) {
        return None;
    }
    let plain = |text: &str| text.replace("\\\"", "\"");
    Some(Variant { old: plain(old), new: plain(new), ignoring: Some("escaped quotes") })
}

/// Without empty lines around it, as many in both.
fn without_outer_lines(old: &str, new: &str) -> Option<Variant> {
    let before = |text: &str| text.len() - text.trim_start_matches('\n').len();
    let after = |text: &str| (text.len() - text.trim_end_matches('\n').len()).saturating_sub(1);
    let (first, last) = (before(old), after(old));
    if first + last == 0 || (first, last) != (before(new), after(new)) {
        return None;
    }
    let inside = |text: &str| text[first..text.len() - last].to_owned();
    Some(Variant { old: inside(old), new: inside(new), ignoring: Some("empty lines around it") })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text after the edit, and what was ignored.
    fn edited(text: &str, old: &str, new: &str) -> Option<(String, String)> {
        let LenientMatch { range, new, ignoring } = find(text, old, new)?;
        Some((format!("{}{new}{}", &text[..range.start], &text[range.end..]), ignoring))
    }

    const RUST: &str = "fn a() {\n    if x {\n        one();\n        two();  \n    }\n}\n";
    const GO: &str = "func a() {\n\tif x {\n\t\tone()\n\t}\n}\n";

    #[test]
    fn what_says_nothing_is_ignored() {
        for (text, old, new, after, ignoring) in [
            // Unchanged lines stay as the file has them.
            (
                RUST,
                "        one();  \n        two();\n",
                "        one();\n        two();\n        three();\n",
                "fn a() {\n    if x {\n        one();\n        two();  \n        three();\n    }\n}\n",
                "blanks at line ends",
            ),
            (
                RUST,
                "if x {\n    one();\n",
                "if y {\n    one();\n    if z {\n        more();\n    }\n",
                "fn a() {\n    if y {\n        one();\n        if z {\n            more();\n        }\n        two();  \n    }\n}\n",
                "indentation",
            ),
            (
                RUST,
                "            one();\n            two();\n",
                "            one();\n\n            if two() {\n                three();\n            }\n",
                "fn a() {\n    if x {\n        one();\n\n        if two() {\n            three();\n        }\n    }\n}\n",
                "indentation",
            ),
            (
                GO,
                "  if x {\n    one()\n  }\n",
                "  if x {\n    one()\n    for y {\n      two()\n    }\n  }\n",
                "func a() {\n\tif x {\n\t\tone()\n\t\tfor y {\n\t\t\ttwo()\n\t\t}\n\t}\n}\n",
                "indentation",
            ),
            (
                GO,
                "        one()\n",
                "        one(1)\n",
                "func a() {\n\tif x {\n\t\tone(1)\n\t}\n}\n",
                "indentation",
            ),
            (
                RUST,
                "     2\t    if x {\n     3\t        one();\n",
                "     2\t    if y {\n     3\t        one();\n",
                "fn a() {\n    if y {\n        one();\n        two();  \n    }\n}\n",
                "line numbers",
            ),
            (
                RUST,
                "3:         one();\n4:         two();\n",
                "        one();\n",
                "fn a() {\n    if x {\n        one();\n    }\n}\n",
                "line numbers and blanks at line ends",
            ),
            (
                RUST,
                "```rust\n        one();\n```",
                "```\n        1();\n```\n",
                "fn a() {\n    if x {\n        1();\n        two();  \n    }\n}\n",
                "a code fence",
            ),
            (
                "say(\"hi\");\n",
                "say(\\\"hi\\\");\n",
                "say(\\\"ho\\\");\n",
                "say(\"ho\");\n",
                "escaped quotes",
            ),
            ("a\nword\nb\n", "\nword\n", "\nworld\n", "a\nworld\nb\n", "empty lines around it"),
            (
                "it’s “one”…\nand\u{a0}two\n",
                "it's \"one\"...\nand two\n",
                "it's \"one\"...\nand three\n",
                "it’s “one”…\nand three\n",
                "typographic characters",
            ),
            ("x and\u{a0}two\n", "and two", "or two", "x or two\n", "typographic characters"),
            ("a\n  last", "last\t\n", "least\n", "a\n  least", "indentation"),
        ] {
            assert_eq!(edited(text, old, new), Some((after.to_owned(), ignoring.to_owned())), "{old:?}");
        }
    }

    #[test]
    fn what_is_not_certain_is_refused() {
        for (text, old, new) in [
            // Twice.
            ("a {\n  one\n}\nb {\n  one\n}\n", "    one\n", "    two\n"),
            ("one \none\t\n", "one  \n", "two\n"),
            ("and\u{a0}two and\u{2009}two", "and two", "or two"),
            // Two depths that are one in the file, or the other way round.
            ("if x:\n    a\nb\n", "if x:\n    a\n    b\n", "if x:\n    c\n    b\n"),
            ("if x:\n    a\n    b\n", "if x:\n    a\nb\n", "if x:\n    c\nb\n"),
            // The depth of new lines is unknown: by two in a file by four.
            (RUST, "  two();\n  }\n", "  two();\n  }\n"),
            (RUST, "      two();\n", "      if x {\n        two();\n      }\n"),
            (GO, "   one()\n", "   if one() {\n    two()\n   }\n"),
            // Numbers that are not those of lines, or of some lines only.
            (RUST, "3:         one();\n5:         two();\n", "        one();\n"),
            (RUST, "3:         one();\n", "3:         one();\n        more();\n"),
            // What the model spells out, it means.
            ("say \"hi\"\n", "say “hi”\n", "say “ho”\n"),
            ("say “hi”\n", "say ”hi”\n", "say ”ho”\n"),
            ("wait…\n", "wait..", "stop.."),
            // Escapes in one of the two.
            ("say(\"hi\");\n", "say(\\\"hi\\\");\n", "say(\"ho\");\n"),
            // Similar.
            (RUST, "        one()\n", "        1()\n"),
            (RUST, "    if x {\n        two();\n", "    if y {\n        two();\n"),
            (RUST, "    }\n  }\n", "    }\n  }}\n"),
            // Nothing would change.
            (RUST, "        two();\n", "        two(); \n"),
            ("", "a", "b"),
        ] {
            assert_eq!(edited(text, old, new), None, "{old:?}");
        }
    }

    proptest! {
        /// Whatever is taken away from a quotation, the text outside of it stays, and the edit is the one that was meant.
        #[test]
        fn a_forgiven_edit_is_the_exact_one(
            lines in prop::collection::vec((0_usize..4, "[a-c]{1,2}", prop::bool::weighted(0.2)), 2..9),
            from in 0_usize..9,
            count in 1_usize..4,
            by_tabs: bool,
            trim_ends: bool,
            deeper in 0_usize..3,
        ) {
            let unit = if by_tabs { "\t" } else { "    " };
            let line = |(depth, word, has_blank): &(usize, String, bool)| {
                format!("{}{word}{}\n", unit.repeat(*depth), if *has_blank { " " } else { "" })
            };
            let text: String = lines.iter().map(line).collect();
            let from = from.min(lines.len() - 1);
            let quoted = &lines[from..(from + count).min(lines.len())];
            let exact: String = quoted.iter().map(line).collect();
            let meant: String = exact.clone() + &unit.repeat(quoted[0].0) + "new\n";
            let put = |text: &str, extra: usize| -> String {
                let line = |line: &str| {
                    let line = if trim_ends { line.trim_end() } else { line };
                    format!("{}{line}\n", unit.repeat(extra))
                };
                text.split_terminator('\n').map(line).collect::<Vec<_>>().concat()
            };
            let words = |lines: &[(usize, String, bool)]| lines.iter().map(|line| line.1.clone()).collect::<Vec<_>>();
            let alike = lines.windows(quoted.len()).filter(|window| words(window) == words(quoted)).count();
            if alike == 1 && let Some((after, _)) = edited(&text, &put(&exact, deeper), &put(&meant, deeper)) {
                let at: usize = lines[..from].iter().map(|quoted| line(quoted).len()).sum();
                let expected = format!("{}{meant}{}", &text[..at], &text[at + exact.len()..]);
                prop_assert_eq!(after, expected);
            }
        }
    }
}
