//! The options that a deny or ask rule names, found anywhere among the arguments of a command.
//!
//! `rm -rf *` means the options, not the letters in this order: `rm -fr x`, `rm -r -f x`, `rm x --recursive --force`
//! are the same command. Other spellings come from `spellings.toml`; where that does not know a program or an option,
//! the option counts as it is written, and [`OptionRules::undecided`] says so.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use super::tables::{SPELLINGS, SpellingRow};
use super::{Word, base_name};
use crate::glob::{self, Reading, alternatives, glob_words, literal_part};
use crate::lazy::LazyRegex;

/// Whether a command has the options of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionFit {
    /// It has them all.
    Yes,
    /// Only the shell knows.
    Maybe,
    No,
}

/// The options of a command glob, read when they are first asked about.
#[derive(Debug, Clone, Default)]
pub struct LazyOptions(Arc<OnceLock<Option<OptionRules>>>);

impl LazyOptions {
    pub(crate) fn of(&self, glob: &str) -> Option<&OptionRules> {
        // Most globs name none, and need no reading.
        if !glob.contains('-') {
            return None;
        }
        self.0.get_or_init(|| OptionRules::of(glob)).as_ref()
    }
}

/// Maximum number of commands that the braces of one glob may stand for.
const MAX_ALTERNATIVES: usize = 64;

/// The commands with options that a glob names, one for each choice in its braces.
#[derive(Debug)]
pub(crate) struct OptionRules {
    rules: Vec<OptionRule>,
    has_more: bool,
}

#[derive(Debug)]
struct OptionRule {
    /// The program, as a glob.
    program: LazyRegex,
    /// The program's name, if the glob contains one.
    name: Option<String>,
    operands: Vec<Operand>,
    options: Vec<NamedOption>,
    row: Option<&'static SpellingRow>,
}

/// A word of a rule that is no option.
#[derive(Debug)]
enum Operand {
    Any,
    Word(LazyRegex),
}

#[derive(Debug)]
struct NamedOption {
    /// As it is written.
    text: String,
    names: Names,
    /// More may follow in the same word.
    is_open: bool,
    value: Option<LazyRegex>,
}

#[derive(Debug)]
enum Names {
    /// Any option at all.
    Any,
    Long(String),
    /// Each of these letters.
    Letters(String),
    /// One of the two: of an unknown program nobody knows which.
    Unclear(String),
}

/// An option in a command.
struct Given<'a> {
    form: Form<'a>,
    /// The word after it, which may be its value.
    next: Option<&'a str>,
}

enum Form<'a> {
    Long(&'a str, Option<&'a str>),
    Short(&'a str),
}

/// A word of a command that is no option.
struct Plain<'a> {
    /// `None`: only the shell knows it.
    text: Option<&'a str>,
    may_be_value: bool,
}

impl OptionRules {
    fn of(glob: &str) -> Option<OptionRules> {
        let mut choices: Vec<Vec<String>> = vec![Vec::new()];
        let mut has_more = false;
        for word in glob_words(glob) {
            let Some(all) = alternatives(&word, MAX_ALTERNATIVES) else {
                has_more = true;
                continue;
            };
            if choices.len() * all.len() > MAX_ALTERNATIVES {
                has_more = true;
                break;
            }
            choices = choices
                .iter()
                .flat_map(|front| {
                    all.iter().map(|word| [front.as_slice(), std::slice::from_ref(word)].concat())
                })
                .collect();
        }
        let rules: Vec<OptionRule> = choices.iter().filter_map(|words| OptionRule::of(words)).collect();
        (!rules.is_empty()).then_some(OptionRules { rules, has_more })
    }

    pub(crate) fn fit(&self, words: &[Word]) -> OptionFit {
        let mut best = OptionFit::No;
        for rule in &self.rules {
            match rule.fit(words) {
                OptionFit::Yes => return OptionFit::Yes,
                OptionFit::Maybe => best = OptionFit::Maybe,
                OptionFit::No => {}
            }
        }
        best
    }

    /// Why some spelling of the options may not be found.
    pub(crate) fn undecided(&self) -> Option<String> {
        if self.has_more {
            return Some(
                "its braces stand for too many commands to find their options in every spelling".into(),
            );
        }
        let mut unknown: BTreeSet<String> = BTreeSet::new();
        for rule in &self.rules {
            let program = rule.name.as_deref().unwrap_or("any program");
            for option in rule.options.iter().filter(|option| !option.is_known(rule.row)) {
                unknown.insert(format!("`{}` of {program}", option.text));
            }
        }
        let list: Vec<String> = unknown.into_iter().collect();
        (!list.is_empty()).then(|| {
            format!(
                "no other spelling is known of {}, so it is found only as it is written; add a rule for each other \
                 spelling",
                list.join(", ")
            )
        })
    }
}

impl OptionRule {
    fn of(words: &[String]) -> Option<OptionRule> {
        let (first, mut rest) = words.split_first()?;
        let bare = first.trim_start_matches('*');
        let is_any = first.starts_with('*') && (bare.is_empty() || bare.starts_with('-'));
        let program = if is_any { "*" } else { first.as_str() };
        let joined: Vec<String>;
        if is_any && !bare.is_empty() {
            joined = [&[bare.to_owned()], rest].concat();
            rest = &joined;
        }
        let (name, _) = literal_part(if is_any { "" } else { bare });
        let name = (!name.is_empty()).then(|| base_name(&name).to_owned());
        let is_option = |word: &String| {
            let (text, is_open) = literal_part(word);
            text.starts_with('-') && (text.len() > 1 && text != "--" || is_open)
        };
        if !rest.iter().any(is_option) {
            return None;
        }
        let subcommands = rest.iter().filter(|word| !is_option(word)).map(|word| literal_part(word).0);
        let subcommands: Vec<String> = subcommands.collect();
        let row = name.as_deref().and_then(|name| row_of(name, subcommands.iter().map(String::as_str)));
        let (mut operands, mut options) = (Vec::new(), Vec::new());
        let mut words = rest.iter().peekable();
        while let Some(word) = words.next() {
            if is_option(word) {
                let mut option = NamedOption::of(word, row);
                let is_valued = option.value.is_none() && !option.is_open && option.is_valued(row);
                if is_valued && let Some(value) = words.next_if(|word| !is_option(word) && !is_stars(word)) {
                    option.value = glob::compile(value, Reading::Text).ok();
                }
                options.push(option);
            } else if is_stars(word) {
                operands.push(Operand::Any);
            } else {
                operands.push(Operand::Word(glob::compile(word, Reading::Text).ok()?));
                // A `*` at the end of a word is the rest of that word and more words.
                if word.ends_with('*') {
                    operands.push(Operand::Any);
                }
            }
        }
        let program = glob::compile(program, Reading::Text).ok()?;
        Some(OptionRule { program, name, operands, options, row })
    }

    fn fit(&self, words: &[Word]) -> OptionFit {
        let Some((first, rest)) = words.split_first().filter(|(first, _)| first.is_known()) else {
            return OptionFit::No;
        };
        let name = base_name(&first.text);
        if !self.program.is_match(name) && !self.program.is_match(&first.text) {
            return OptionFit::No;
        }
        // A rule for any program means the options of the one that runs.
        let own = || {
            let subcommands =
                rest.iter().map(|word| word.text.as_str()).filter(|text| !text.starts_with('-'));
            row_of(name, subcommands)
        };
        let row = self.row.or_else(own);
        let (given, plain, may_hide) = read(name, rest, row);
        let has_all = self.options.iter().all(|option| option.is_in(&given, row));
        if has_all && follows(&self.operands, &plain, false) {
            return OptionFit::Yes;
        }
        let has_unknown = may_hide || plain.iter().any(|word| word.text.is_none());
        if has_unknown && (has_all || may_hide) && follows(&self.operands, &plain, true) {
            return OptionFit::Maybe;
        }
        OptionFit::No
    }
}

/// The options and the other words of a command, and whether a word that only the shell knows may be an option.
fn read<'a>(
    program: &str,
    words: &'a [Word],
    row: Option<&SpellingRow>,
) -> (Vec<Given<'a>>, Vec<Plain<'a>>, bool) {
    let (mut given, mut plain, mut may_hide) = (Vec::new(), Vec::new(), false);
    let (mut after_option, mut is_value) = (false, false);
    for (i, word) in words.iter().enumerate() {
        let text = word.text.as_str();
        let next = words.get(i + 1).filter(|word| word.is_known()).map(|word| word.text.as_str());
        if std::mem::take(&mut is_value) && word.is_known() {
            after_option = false;
            continue;
        }
        let is_bundle = i == 0 && program.ends_with("tar") && !text.starts_with('-');
        if !word.is_known() {
            // What the shell puts in may contain blanks, and so several words.
            may_hide |= word.has_holes || text.starts_with(['-', '*', '?', '[']);
            plain.push(Plain { text: None, may_be_value: true });
            after_option = false;
        } else if text == "--" {
            after_option = false;
        } else if let Some(long) = text.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            is_value = value.is_none() && row.is_some_and(|row| row.valued.contains(name));
            after_option = value.is_none();
            given.push(Given { form: Form::Long(name, value), next });
        } else if let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            is_value = row.is_some_and(|row| ends_in_valued(letters, row));
            after_option = true;
            given.push(Given { form: Form::Short(letters), next });
        } else if is_bundle {
            given.push(Given { form: Form::Short(text), next });
            after_option = true;
        } else {
            plain.push(Plain { text: Some(text), may_be_value: after_option });
            after_option = false;
        }
    }
    (given, plain, may_hide)
}

/// Returns whether a cluster ends in a letter whose value is the next word.
fn ends_in_valued(letters: &str, row: &SpellingRow) -> bool {
    if row.one_dash {
        return row.valued.contains(letters);
    }
    let first =
        letters.char_indices().find(|(_, letter)| row.valued.contains(letter.encode_utf8(&mut [0; 4])));
    first.is_some_and(|(at, letter)| at + letter.len_utf8() == letters.len())
}

/// Returns whether the words of a rule are found among those of a command, in order and from the first one on; more
/// may follow. `leniently`: a word that only the shell knows may be any.
fn follows(rule: &[Operand], words: &[Plain<'_>], leniently: bool) -> bool {
    let Some((operand, rest)) = rule.split_first() else { return true };
    if matches!(operand, Operand::Any) {
        return (0..=words.len())
            .any(|at| words.get(at..).is_some_and(|tail| follows(rest, tail, leniently)));
    }
    let Some((word, tail)) = words.split_first() else { return false };
    let is_match = match (operand, word.text) {
        (Operand::Word(regex), Some(text)) => regex.is_match(text),
        (_, None) => leniently,
        (Operand::Any, _) => true,
    };
    is_match && follows(rest, tail, leniently)
        || leniently && word.text.is_none() && follows(rest, words, leniently)
        || word.may_be_value && follows(rule, tail, leniently)
}

impl NamedOption {
    fn of(word: &str, row: Option<&SpellingRow>) -> NamedOption {
        let (literal, has_wildcard) = literal_part(word);
        let (name, glued) =
            literal.split_once('=').map_or((literal.as_str(), false), |(name, _)| (name, true));
        let value = glued.then(|| word.split_once('=')).flatten().map(|(_, value)| value);
        let bare = name.trim_start_matches('-');
        let names = match (bare, row) {
            ("", _) => Names::Any,
            (_, _) if name.starts_with("--") => Names::Long(bare.to_owned()),
            (_, Some(row)) if row.one_dash => Names::Long(bare.to_owned()),
            (_, None) if bare.chars().count() > 1 => Names::Unclear(bare.to_owned()),
            _ => Names::Letters(bare.to_owned()),
        };
        NamedOption {
            text: word.to_owned(),
            names,
            is_open: has_wildcard && !glued,
            value: value.and_then(|value| glob::compile(value, Reading::Text).ok()),
        }
    }

    /// Whether every spelling of the option is in the table.
    fn is_known(&self, row: Option<&SpellingRow>) -> bool {
        let Some(row) = row else { return false };
        match &self.names {
            Names::Any => true,
            Names::Long(name) | Names::Unclear(name) => row.is_listed(name),
            Names::Letters(letters) => {
                letters.chars().all(|letter| row.is_listed(letter.encode_utf8(&mut [0; 4])))
            }
        }
    }

    fn is_valued(&self, row: Option<&SpellingRow>) -> bool {
        let Some(row) = row else { return false };
        match &self.names {
            Names::Any => false,
            Names::Long(name) | Names::Unclear(name) => row.valued.contains(name),
            Names::Letters(letters) => ends_in_valued(letters, row),
        }
    }

    fn is_in(&self, given: &[Given<'_>], row: Option<&SpellingRow>) -> bool {
        let each = |letters: &str| {
            let last = letters.chars().count().saturating_sub(1);
            letters.chars().enumerate().all(|(at, letter)| {
                // The value is that of the last letter.
                let value = self.value.as_ref().filter(|_| at == last);
                self.is_one_in(letter.encode_utf8(&mut [0; 4]), value, given, row)
            })
        };
        match &self.names {
            Names::Any => !given.is_empty(),
            Names::Long(name) => self.is_one_in(name, self.value.as_ref(), given, row),
            Names::Letters(letters) => each(letters),
            Names::Unclear(name) => self.is_one_in(name, self.value.as_ref(), given, row) || each(name),
        }
    }

    fn is_one_in(
        &self,
        name: &str,
        value: Option<&LazyRegex>,
        given: &[Given<'_>],
        row: Option<&SpellingRow>,
    ) -> bool {
        let names = row
            .map(|row| row.spellings(name))
            .filter(|names| !names.is_empty())
            .unwrap_or_else(|| vec![name]);
        let is_found = |names: &[&str]| {
            given.iter().any(|given| {
                given.values_of(names, name, self.is_open, row).is_some_and(|values| {
                    value
                        .is_none_or(|wanted| values.into_iter().flatten().any(|value| wanted.is_match(value)))
                })
            })
        };
        let parts = row.and_then(|row| row.parts(name));
        is_found(&names)
            || parts.is_some_and(|parts| {
                parts.iter().all(|part| is_found(&row.map(|row| row.spellings(part)).unwrap_or_default()))
            })
    }
}

impl<'a> Given<'a> {
    /// Returns what may be the value of an option, if this is one of its spellings.
    fn values_of(
        &self,
        names: &[&str],
        written: &str,
        is_open: bool,
        row: Option<&SpellingRow>,
    ) -> Option<[Option<&'a str>; 2]> {
        // Many programs accept the start of a long option's name.
        let is_long = |given: &str| {
            let is_other = || row.is_some_and(|row| row.is_listed(given));
            names.iter().any(|name| {
                name.chars().count() > 1
                    && (*name == given || !given.is_empty() && name.starts_with(given) && !is_other())
            }) || is_open && written.len() > 1 && given.starts_with(written)
        };
        let is_by_value = |option: &str, value: Option<&str>| {
            row.is_some_and(|row| row.named_by_value.contains(option))
                && value.is_some_and(|value| names.contains(&value))
        };
        match self.form {
            Form::Long(given, value) => {
                let is_one = is_long(given) || is_by_value(given, value.or(self.next));
                is_one.then_some([value, self.next.filter(|_| value.is_none())])
            }
            Form::Short(letters) => {
                let (whole, value) =
                    letters.split_once('=').map_or((letters, None), |(name, value)| (name, Some(value)));
                let is_word = names.contains(&whole)
                    || row.is_none_or(|row| row.one_dash) && whole.chars().count() > 1 && is_long(whole);
                if is_word || is_by_value(whole, self.next) {
                    return Some([value, self.next.filter(|_| value.is_none())]);
                }
                if row.is_some_and(|row| row.one_dash) {
                    return None;
                }
                for (at, letter) in letters.char_indices() {
                    let rest = &letters[at + letter.len_utf8()..];
                    let mut bytes = [0; 4];
                    let letter: &str = letter.encode_utf8(&mut bytes);
                    let parts = row.and_then(|row| row.parts(letter)).unwrap_or_default();
                    if names.contains(&letter) || parts.iter().any(|part| names.contains(part)) {
                        let glued = rest.strip_prefix('=').unwrap_or(rest);
                        let glued = (!glued.is_empty()).then_some(glued);
                        return Some([glued, self.next.filter(|_| glued.is_none())]);
                    }
                    if row.is_some_and(|row| row.valued.contains(letter)) {
                        break;
                    }
                }
                None
            }
        }
    }
}

/// The row of a program, or of a program and the first of its words that has one.
fn row_of<'w>(program: &str, words: impl Iterator<Item = &'w str>) -> Option<&'static SpellingRow> {
    for word in words.take(4) {
        if let Some(row) = SPELLINGS.of(&format!("{program} {word}")) {
            return Some(row);
        }
    }
    SPELLINGS.of(program)
}

fn is_stars(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c == '*')
}

/// Why a regular expression that names options does not find each spelling.
pub(crate) fn options_of_regex(source: &str) -> Option<String> {
    let names_options =
        [" -", r"\s-", r"\s+-", r"\s*-", "(-", "(?:-"].iter().any(|start| source.contains(start));
    names_options.then(|| "a regular expression finds options only as they are written".to_owned())
}
