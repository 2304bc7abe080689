//! What is known of programs: the files in `tables/`, each read when a command first needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A list of words of a table, where spaces and line ends separate them.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "String")]
pub struct WordList(Vec<String>);

impl From<String> for WordList {
    fn from(text: String) -> WordList {
        WordList(text.split_whitespace().map(str::to_owned).collect())
    }
}

impl WordList {
    /// Whether the word is in the list.
    pub fn contains(&self, word: &str) -> bool {
        self.iter().any(|known| known == word)
    }

    /// Returns the words, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns a word that is in the list twice.
    pub fn repeated(&self) -> Option<&str> {
        let mut seen = BTreeSet::new();
        self.iter().find(|word| !seen.insert(*word))
    }

    /// The first word that starts like that.
    pub(super) fn starting_with(&self, start: &str) -> Option<&str> {
        self.iter().find(|word| word.starts_with(start))
    }

    /// Whether the list has no words.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// `programs.toml`; the comments there say what each list means.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Programs {
    pub(super) shells: WordList,
    pub(super) stateful: WordList,
    pub(super) programmable: WordList,
    pub(super) plain: WordList,
    pub(super) cargo: WordList,
    pub(super) shell_by_default: WordList,
    pub(super) globs_are_harmless: WordList,
    pub(super) readers: WordList,
    pub(super) lookers: WordList,
    pub(super) network: WordList,
    pub(super) destroyers: WordList,
    pub(super) deleters: WordList,
    pub(super) as_root: WordList,
    pub(super) disks: WordList,
    pub(super) deleting: BTreeMap<String, WordList>,
    pub(super) destroying: BTreeMap<String, WordList>,
}

/// `git.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Git {
    pub(super) valued: WordList,
    pub(super) harmless: WordList,
    pub(super) commands: WordList,
    pub(super) runners: WordList,
    pub(super) long: WordList,
    pub(super) long_writes: WordList,
    pub(super) exact: WordList,
    pub(super) network: WordList,
    pub(super) reads: WordList,
}

/// `flags.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlagTable {
    programs: Vec<ProgramFlags>,
    interpreters: Vec<InterpreterFlags>,
}

/// Flags of a program: which run something, which write, which short ones take a value.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ProgramFlags {
    names: WordList,
    #[serde(default)]
    pub(super) runs_short: String,
    #[serde(default)]
    pub(super) writes_short: String,
    #[serde(default)]
    pub(super) valued_short: String,
    #[serde(default)]
    pub(super) runs: WordList,
    #[serde(default)]
    pub(super) writes: WordList,
    #[serde(default)]
    pub(super) harmless: WordList,
}

/// An interpreter, with the flags that take code instead of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InterpreterFlags {
    name: String,
    #[serde(default)]
    pub(super) short: String,
    #[serde(default)]
    pub(super) long: WordList,
}

impl FlagTable {
    pub(super) fn of(&self, program: &str) -> Option<&ProgramFlags> {
        self.programs.iter().find(|flags| flags.names.contains(program))
    }

    /// The interpreter of that name, with or without the number of its version.
    pub(super) fn interpreter(&self, program: &str) -> Option<&InterpreterFlags> {
        let name = without_version(program);
        self.interpreters.iter().find(|known| known.name == name || known.name == program)
    }
}

/// `python3.12` is a `python`.
pub(super) fn without_version(program: &str) -> &str {
    program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

/// `options.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AllOptions {
    git_long: WordList,
    programs: Vec<HarmlessOptions>,
}

/// The harmless options of a program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HarmlessOptions {
    /// The program, or the program and its subcommand.
    names: Vec<String>,
    /// Letters that take no value, and so can be followed by others.
    #[serde(default)]
    pub(super) flags: String,
    /// Letters that take the rest of the word as their value, or the next word.
    #[serde(default)]
    pub(super) valued: String,
    /// Letters that take the rest of the word, if any, as their value.
    #[serde(default)]
    pub(super) glued: String,
    /// Complete names after `--` (`find`: after `-`), with or without `=value`; for git those of all its commands.
    #[serde(default)]
    long: WordList,
}

impl AllOptions {
    /// The options of a program, or of a program and its subcommand.
    pub(super) fn of(&self, name: &str) -> Option<&HarmlessOptions> {
        self.programs.iter().find(|options| options.names.iter().any(|known| known == name))
    }

    /// The complete names of long options.
    pub(super) fn long<'a>(&'a self, program: &str, options: &'a HarmlessOptions) -> &'a WordList {
        if program == "git" { &self.git_long } else { &options.long }
    }
}

/// `wrappers.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the fields are the tables of the file")]
pub(super) struct Wrappers {
    wrappers: Vec<Wrapper>,
    loose: BTreeMap<String, WordList>,
    runners: Vec<Runner>,
}

/// Where the program of a runner stands.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Runner {
    names: WordList,
    #[serde(default)]
    pub(super) subcommands: WordList,
    /// Options without a value.
    #[serde(default)]
    pub(super) flags: WordList,
    /// Options whose value may be the next word.
    #[serde(default)]
    pub(super) valued: WordList,
    #[serde(default)]
    pub(super) own_words: usize,
    #[serde(default)]
    pub(super) after: WordList,
    #[serde(default)]
    pub(super) itself: bool,
}

/// A program whose first plain word (after its own options) is another program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Wrapper {
    names: WordList,
    /// One-letter options that take a value.
    #[serde(default)]
    pub(super) short: String,
    /// Long options that take a value as the next word.
    #[serde(default)]
    pub(super) long: WordList,
    /// Plain words of its own in front of the inner program.
    #[serde(default)]
    pub(super) own_words: usize,
}

impl Wrappers {
    pub(super) fn of(&self, program: &str) -> Option<&Wrapper> {
        self.wrappers.iter().find(|wrapper| wrapper.names.contains(program))
    }

    /// The rows of a runner.
    pub(super) fn runners(&self, program: &str) -> impl Iterator<Item = &Runner> {
        self.runners.iter().filter(move |runner| runner.names.contains(program))
    }

    /// The subcommands after which every word may be a program; with an empty list it always may.
    pub(super) fn loose(&self, program: &str) -> Option<&WordList> {
        self.loose.get(program)
    }
}

/// `spellings.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spellings {
    rows: Vec<SpellingRow>,
}

/// The options of a program, by their other spellings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SpellingRow {
    /// The programs, or the programs with a subcommand.
    of: Vec<String>,
    same: String,
    #[serde(default)]
    pub(super) valued: WordList,
    #[serde(default)]
    combined: String,
    #[serde(default)]
    pub(super) named_by_value: WordList,
    #[serde(default)]
    pub(super) one_dash: bool,
}

impl Spellings {
    pub(super) fn of(&self, program: &str) -> Option<&SpellingRow> {
        self.rows.iter().find(|row| row.of.iter().any(|of| of == program))
    }
}

impl SpellingRow {
    fn groups(&self) -> impl Iterator<Item = Vec<&str>> {
        self.same.split(';').map(|group| group.split_whitespace().collect())
    }

    /// The spellings of an option, itself among them; none if it is not listed.
    pub(super) fn spellings(&self, name: &str) -> Vec<&str> {
        self.groups().find(|group| group.contains(&name)).unwrap_or_default()
    }

    pub(super) fn is_listed(&self, name: &str) -> bool {
        self.groups().any(|group| group.contains(&name))
    }

    /// The options that a short one stands for.
    pub(super) fn parts(&self, name: &str) -> Option<Vec<&str>> {
        let mut groups = self.combined.split(';').map(str::split_whitespace);
        let mut parts =
            groups.find_map(|mut words| (words.next() == Some(name)).then_some(words))?.peekable();
        parts.peek()?;
        Some(parts.collect())
    }
}

pub(super) static PROGRAMS: LazyLock<Programs> =
    LazyLock::new(|| read_table(include_str!("tables/programs.toml")));
pub(super) static GIT: LazyLock<Git> = LazyLock::new(|| read_table(include_str!("tables/git.toml")));
pub(super) static FLAGS: LazyLock<FlagTable> =
    LazyLock::new(|| read_table(include_str!("tables/flags.toml")));
pub(super) static OPTIONS: LazyLock<AllOptions> =
    LazyLock::new(|| read_table(include_str!("tables/options.toml")));
pub(super) static WRAPPERS: LazyLock<Wrappers> =
    LazyLock::new(|| read_table(include_str!("tables/wrappers.toml")));
pub(super) static SPELLINGS: LazyLock<Spellings> =
    LazyLock::new(|| read_table(include_str!("tables/spellings.toml")));

/// Reads a table in TOML that is part of the program.
///
/// # Panics
/// If the table does not have the form of `T`: a test reads each table.
pub fn read_table<T: DeserializeOwned>(text: &str) -> T {
    toml::from_str(text).expect("a test reads each table")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns words of a list that has one twice.
    fn repeated<'a>(words: impl IntoIterator<Item = &'a String>) -> Vec<&'a String> {
        let mut seen = BTreeSet::new();
        words.into_iter().filter(|word| !seen.insert(word.as_str())).collect()
    }

    #[test]
    fn the_tables_are_read_and_name_nothing_twice() {
        let lists = [
            &PROGRAMS.shells,
            &PROGRAMS.stateful,
            &PROGRAMS.programmable,
            &PROGRAMS.plain,
            &PROGRAMS.cargo,
            &PROGRAMS.shell_by_default,
            &PROGRAMS.globs_are_harmless,
            &PROGRAMS.readers,
            &PROGRAMS.lookers,
            &PROGRAMS.network,
            &PROGRAMS.destroyers,
            &PROGRAMS.deleters,
            &PROGRAMS.as_root,
            &PROGRAMS.disks,
            &GIT.valued,
            &GIT.harmless,
            &GIT.commands,
            &GIT.runners,
            &GIT.long,
            &GIT.exact,
            &GIT.network,
            &GIT.reads,
            &OPTIONS.git_long,
        ];
        for list in lists {
            assert!(!list.is_empty() && list.repeated().is_none(), "{list:?}");
        }
        // The first row that names a program counts: a second one would be dead.
        let none: Vec<&String> = Vec::new();
        assert_eq!(repeated(FLAGS.programs.iter().flat_map(|flags| &flags.names.0)), none);
        assert_eq!(repeated(FLAGS.interpreters.iter().map(|known| &known.name)), none);
        assert_eq!(repeated(OPTIONS.programs.iter().flat_map(|options| &options.names)), none);
        assert_eq!(repeated(WRAPPERS.wrappers.iter().flat_map(|wrapper| &wrapper.names.0)), none);
        assert_eq!(repeated(SPELLINGS.rows.iter().flat_map(|row| &row.of)), none);
        for row in &SPELLINGS.rows {
            let all: Vec<String> = row.groups().flatten().map(str::to_owned).collect();
            assert_eq!(repeated(&all), none, "{:?}", row.of);
            assert!(row.valued.iter().all(|name| row.is_listed(name) || row.named_by_value.contains(name)));
        }
        assert!(GIT.long_writes.0.iter().all(|word| GIT.long.contains(word)));
        assert!(GIT.commands.0.iter().all(|word| !GIT.runners.contains(word)));
    }

    #[test]
    fn an_option_has_one_meaning() {
        for ProgramFlags { names, runs_short, writes_short, valued_short, runs, writes, harmless } in
            &FLAGS.programs
        {
            let letters = format!("{runs_short}{writes_short}{valued_short}");
            let words: Vec<&String> = runs.0.iter().chain(&writes.0).chain(&harmless.0).collect();
            assert_eq!(letters.chars().collect::<BTreeSet<_>>().len(), letters.len(), "{names:?}: {letters}");
            assert!(repeated(words.iter().copied()).is_empty(), "{names:?}: {words:?}");
            assert!(words.iter().all(|word| !word.starts_with('-')), "{names:?}: {words:?}");
        }
        for HarmlessOptions { names, flags, valued, glued, .. } in &OPTIONS.programs {
            let letters = format!("{flags}{valued}{glued}");
            assert_eq!(letters.chars().collect::<BTreeSet<_>>().len(), letters.len(), "{names:?}: {letters}");
        }
    }
}
