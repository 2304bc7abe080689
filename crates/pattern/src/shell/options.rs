//! Options with which a program reads only the files named on its command line.
//!
//! The rules that come with aye allow programs by their names, so their options need a list of their own. The
//! list contains the safe options, not the dangerous ones: an option missing here, an abbreviated one and one
//! added by a later version of the program all ask. Options that are missing on purpose take names or text
//! from a file (`wc --files0-from`, `grep -f`, `git blame -S`), follow links out of the workspace (`grep -R`,
//! `rg -L`, `find -L`), or traverse whole folders (`diff -r`).

use super::Word;
use super::tables::{HarmlessOptions, OPTIONS};

const DIGITS: &str = "0123456789";

/// A program with an option by which it may read more than the files it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` may read more than the files it names")]
pub struct ReadsMore(String);

/// Checks that every option of a command keeps the program to the files it is named.
///
/// # Errors
/// [`ReadsMore`]: the option that may do more.
pub fn only_named(words: &[Word]) -> Result<(), ReadsMore> {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let Some(&program) = texts.first() else { return Ok(()) };
    let (name, first) = match texts.as_slice() {
        ["git", sub, ..] if !sub.starts_with('-') => (format!("git {sub}"), 2),
        _ => (program.to_owned(), 1),
    };
    let Some(options) = OPTIONS.of(&name).or_else(|| OPTIONS.of(program).filter(|_| first == 2)) else {
        return Ok(());
    };
    let long_names = OPTIONS.long(program, options);
    let mut i = first;
    while let Some(&text) = texts.get(i) {
        i += 1;
        let is_fine = if program == "find" {
            // `-mtime -7`: a number is a value.
            let name = text.strip_prefix('-').filter(|name| !name.starts_with(|c: char| c.is_ascii_digit()));
            name.is_none_or(|name| long_names.contains(name))
        } else if text == "--" {
            return Ok(());
        } else if let Some(long) = text.strip_prefix("--") {
            long_names.contains(long.split('=').next().unwrap_or(long))
        } else if let Some(letters) = text.strip_prefix('-') {
            match options.cluster(letters) {
                Some(true) => {
                    // A value that looks like an option may be one in another version of the program.
                    let is_value = texts.get(i).is_none_or(|value| !value.starts_with('-'));
                    i += 1;
                    is_value
                }
                Some(false) => true,
                None => false,
            }
        } else {
            true
        };
        if !is_fine {
            return Err(ReadsMore(format!("{name} {text}")));
        }
    }
    Ok(())
}

impl HarmlessOptions {
    /// Returns whether a cluster of letters takes the next word as a value; nothing if it contains an unknown
    /// letter.
    fn cluster(&self, letters: &str) -> Option<bool> {
        for (at, letter) in letters.char_indices() {
            if self.valued.contains(letter) {
                return Some(at + letter.len_utf8() == letters.len());
            }
            if self.glued.contains(letter) {
                return Some(false);
            }
            if !self.flags.contains(letter) && !DIGITS.contains(letter) {
                return None;
            }
        }
        Some(false)
    }
}
