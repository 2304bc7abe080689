//! A word about why a text was not found.

use std::fmt::Write as _;

use aye_core::contract::display::shortened;
use unicode_normalization::UnicodeNormalization as _;

/// Files with more lines than this get no nearest line: the search takes time.
const MAX_LINES: usize = 20_000;
/// Maximum lines shown verbatim.
const MAX_SHOWN: usize = 12;
/// Characters of such a line.
const MAX_LINE: usize = 200;

/// The text without differences in white space.
fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Continues the sentence "the text is not there".
pub(super) fn nearest(text: &str, old: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let wanted: Vec<&str> = old.lines().collect();
    if let Some(at) = same_but_blanks(&lines, &wanted) {
        let mut out = format!(
            "; lines {}-{} differ from it in blanks only (a space at either end is shown as ·, a tab as →):",
            at + 1,
            at + wanted.len()
        );
        for line in lines[at..at + wanted.len()].iter().take(MAX_SHOWN) {
            let _ = write!(out, "\n{}", with_visible_blanks(line));
        }
        return out;
    }
    if in_another_form(text, old) {
        return "; it is there in another Unicode form, such as `é` as `e` and an accent; leave such characters out of \
                `old_string`"
            .into();
    }
    if wanted.iter().any(|line| is_numbered(line)) {
        return "; leave out the line numbers that Read shows".into();
    }
    let Some(first) = wanted.iter().map(|line| line.trim()).find(|line| !line.is_empty()) else {
        return String::new();
    };
    if let Some(at) = lines.iter().position(|line| line.trim() == first) {
        let block = numbered(lines.iter().copied().enumerate().skip(at).take(wanted.len().min(MAX_SHOWN)));
        return format!("; its first line is at line {}, but what follows differs:{block}", at + 1);
    }
    match closest(&lines, first) {
        Some((at, line)) if wanted.len() < 2 => format!("; the nearest line is {}: {}", at + 1, cut(line)),
        Some((at, _)) => {
            let block =
                numbered(lines.iter().copied().enumerate().skip(at).take(wanted.len().min(MAX_SHOWN)));
            format!("; the nearest place is at line {}:{block}", at + 1)
        }
        None => String::new(),
    }
}

/// Lines as Read shows them, each after a line end.
pub(super) fn numbered<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> String {
    lines.fold(String::new(), |mut text, (at, line)| {
        let _ = write!(text, "\n{}\t{}", at + 1, shortened(line, MAX_LINE));
        text
    })
}

/// A line whose outer blanks can be told apart.
fn with_visible_blanks(line: &str) -> String {
    let visible = |blanks: &str| blanks.replace(' ', "·").replace('\t', "→");
    let body = line.trim_start_matches([' ', '\t']);
    let (start, body) = (&line[..line.len() - body.len()], body.trim_end_matches([' ', '\t']));
    format!("{}{body}{}", visible(start), visible(&line[start.len() + body.len()..]))
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

/// Returns the place where all lines are equal except for white space.
fn same_but_blanks(lines: &[&str], wanted: &[&str]) -> Option<usize> {
    if lines.len() > MAX_LINES || wanted.is_empty() {
        return None;
    }
    let wanted: Vec<_> = wanted.iter().map(|line| squeezed(line)).collect();
    if wanted.iter().all(String::is_empty) {
        return None;
    }
    let lines: Vec<_> = lines.iter().map(|line| squeezed(line)).collect();
    lines.windows(wanted.len()).position(|window| window == wanted)
}

/// `12<tab>text`.
fn is_numbered(line: &str) -> bool {
    line.trim_start()
        .split_once('\t')
        .is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The line that shares most pairs of characters, when it shares most of them.
fn closest<'a>(lines: &[&'a str], wanted: &str) -> Option<(usize, &'a str)> {
    if lines.len() > MAX_LINES || wanted.len() > 1000 {
        return None;
    }
    let pairs = |line: &str| -> Vec<(char, char)> {
        let mut pairs: Vec<_> = line.chars().zip(line.chars().skip(1)).collect();
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
        .map(|(at, line)| (score(line.trim()), at, *line))
        .filter(|(score, ..)| *score >= 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))
        .map(|(_, at, line)| (at, line))
}

fn cut(line: &str) -> String {
    line.trim().chars().take(200).collect()
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
    fn line_numbers_are_pointed_out() {
        assert!(nearest(TEXT, "     2\t    let value = other();").contains("line numbers"));
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
            "; the nearest line is 2: let value = compute();"
        );
        assert_eq!(
            nearest(TEXT, "fn main() {\nother"),
            "; its first line is at line 1, but what follows differs:\n1\tfn main() {\n2\t    let value = compute();"
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
