//! Finds the commands that a shell command line would run.
//!
//! [`analyse`] reads the line with a real bash grammar and finds every simple command in it: in lists and
//! pipelines, in substitutions, subshells and functions, in the text passed to `sh -c`, after wrappers such
//! as `env` and `timeout`. The result has two uses. The *allow* side is strict: [`Analysis::plain`] returns
//! the commands only if the whole line is made of literal words in a simple shape. The *deny* side is broad:
//! it checks every command found anywhere, and anything that cannot be decided is reported in
//! [`Analysis::undecided`].

mod chars;
mod document;
mod effect;
mod git;
mod lexer;
mod named_options;
mod options;
mod risk;
mod script;
mod tables;
mod unwrap;
mod walk;
mod words;

#[cfg(test)]
mod tests;

pub use chars::{excerpt, suspicious, visible};
pub use effect::{danger, deletes_files, effect};
pub(crate) use named_options::options_of_regex;
pub use named_options::{LazyOptions, OptionFit};
pub use options::{ReadsMore, only_named};
pub use risk::{RiskyWord, globs_are_harmless, is_explained, is_stateful, only_reads, risks, runs_others};
pub use script::{code_words, is_awk, sed_only_prints};
pub use tables::{WordList, read_table};
pub use unwrap::{is_transparent, runner_program};

/// Longer command lines are not read.
pub const MAX_BYTES: usize = 10_000;

/// Maximum depth to which commands are searched in the text of other commands.
const MAX_DEPTH: usize = 8;

/// The placeholder for a part of a word that only the shell knows.
pub(super) const HOLE: char = '\u{fffc}';

/// One word of a command, its quotes removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Word {
    /// The text; each part that only the shell knows is U+FFFC.
    pub text: String,
    /// A part of it only the shell knows.
    pub has_holes: bool,
    /// Whether the word contains an unquoted `*`, `?` or `[`.
    pub is_glob: bool,
    /// It was written with quotes whose meaning depends on the shell (`$'…'`, `$"…"`) or in another odd way.
    pub is_odd: bool,
}

impl Word {
    /// True when the shell passes on exactly [`Word::text`].
    pub fn is_literal(&self) -> bool {
        !self.has_holes && !self.is_glob && !self.is_odd
    }

    /// True when the text is known, however it was written.
    pub fn is_known(&self) -> bool {
        !self.has_holes && !self.is_glob
    }

    fn literal(text: impl Into<String>) -> Word {
        Word { text: text.into(), ..Word::default() }
    }
}

/// A variable set before a command, or on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The variable, with its subscript or `+` if any.
    pub name: String,
    /// The value assigned to the variable.
    pub value: Word,
}

/// A simple command: a program and its words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Simple {
    /// Variables set for it.
    pub assignments: Vec<Assignment>,
    /// The program and its arguments; empty for assignments alone.
    pub words: Vec<Word>,
    /// The text it was read from.
    pub source: String,
    /// Found inside something: a substitution, a function, another command's text.
    pub is_inner: bool,
}

impl Simple {
    /// The program's name without its folder; nothing when it is not known.
    pub fn program(&self) -> Option<&str> {
        let word = self.words.first()?;
        word.is_known().then(|| base_name(&word.text))
    }

    /// The words as plain texts.
    pub fn texts(&self) -> Vec<&str> {
        self.words.iter().map(|word| word.text.as_str()).collect()
    }

    /// The words, if there are any.
    pub fn call(&self) -> Option<ProgramWords<'_>> {
        ProgramWords::of(&self.words)
    }

    /// Returns other spellings of the same command that deny rules are also checked against: the program
    /// without its folder, and git without its global flags.
    pub fn spellings(&self) -> Vec<Vec<Word>> {
        let mut all = vec![self.words.clone()];
        let Some(first) = self.words.first() else { return all };
        let base = base_name(&first.text);
        if base != first.text {
            let program = Word { text: base.to_owned(), ..first.clone() };
            all.push(std::iter::once(program).chain(self.words.iter().skip(1).cloned()).collect());
        }
        if base == "git" {
            let rest = git::skip_global_flags(&self.words);
            if rest > 1 {
                let mut words = vec![Word::literal("git")];
                words.extend_from_slice(tail(&self.words, rest));
                all.push(words);
            }
        }
        all
    }
}

/// Returns the part of a list from a position on; past its end there is none.
fn tail<T>(list: &[T], from: usize) -> &[T] {
    list.get(from..).unwrap_or_default()
}

/// The words of a command that starts a program: there is at least the program. A command that only sets variables
/// has none.
#[derive(Debug, Clone, Copy)]
pub struct ProgramWords<'a> {
    program: &'a Word,
    all: &'a [Word],
}

impl<'a> ProgramWords<'a> {
    /// The words of a command; `None` without a program.
    pub fn of(words: &'a [Word]) -> Option<ProgramWords<'a>> {
        words.first().map(|program| ProgramWords { program, all: words })
    }

    /// The word that names the program.
    pub fn program(self) -> &'a Word {
        self.program
    }

    /// The program's name as it is written.
    pub fn name(self) -> &'a str {
        &self.program.text
    }

    /// The program and its arguments.
    pub fn all(self) -> &'a [Word] {
        self.all
    }

    /// The words after the program.
    pub fn arguments(self) -> impl Iterator<Item = &'a Word> {
        self.all.iter().skip(1)
    }

    /// The words as plain texts.
    pub fn texts(self) -> Vec<&'a str> {
        self.all.iter().map(|word| word.text.as_str()).collect()
    }

    /// The part from a word on, if there is one and the shell leaves the words before it as they are: of a pattern it
    /// may make two, and then another word is the program.
    pub fn skip_to(self, index: usize) -> Option<ProgramWords<'a>> {
        let (before, part) = self.all.split_at_checked(index)?;
        before.iter().all(Word::is_literal).then(|| ProgramWords::of(part)).flatten()
    }
}

/// Returns whether a user sees what a command line says: it is neither too long nor written with misleading characters.
pub fn is_legible(command: &str) -> bool {
    chars::unreadable(command).is_none()
}

/// The result of analysing a command line.
#[derive(Debug, Clone, Default)]
pub struct Analysis {
    /// Every simple command found anywhere.
    pub commands: Vec<Simple>,
    /// The reasons why nothing here may be allowed automatically: expansions, redirects, constructs,
    /// assignments.
    pub barred: Vec<String>,
    /// Why the line could not be read with certainty. It always asks.
    pub unreadable: Option<String>,
    /// Why it is not certain what would run. It asks when any deny rule exists.
    pub undecided: Option<String>,
    /// Whether a redirect in the line replaces the content of a file.
    pub overwrites: bool,
    /// The line is `cd FOLDER && …` with nothing but `&&` between its parts: if `cd` fails, nothing else runs.
    pub starts_with_cd: bool,
    /// The line has a loop or an `if`: its commands may run more than once, or not at all.
    pub is_compound: bool,
    /// The files that redirects name, and whether they write to them.
    pub redirects: Vec<(Word, bool)>,
}

impl Analysis {
    /// Returns the commands if the line is made of literal words in a simple shape; otherwise the reason it
    /// is not.
    ///
    /// # Errors
    /// The first reason why the line cannot be allowed automatically.
    pub fn plain(&self) -> Result<Vec<&Simple>, &str> {
        if let Some(why) = self.unreadable.as_deref().or(self.barred.first().map(String::as_str)) {
            return Err(why);
        }
        Ok(self.commands.iter().filter(|command| !command.is_inner).collect())
    }

    fn bar(&mut self, why: impl Into<String>) {
        let why = why.into();
        if !self.barred.contains(&why) {
            self.barred.push(why);
        }
    }

    fn undecide(&mut self, why: impl Into<String>) {
        if self.undecided.is_none() {
            self.undecided = Some(why.into());
        }
    }

    fn cannot_read(&mut self, why: impl Into<String>) {
        if self.unreadable.is_none() {
            self.unreadable = Some(why.into());
        }
    }
}

/// Takes a command line apart.
pub fn analyse(command: &str) -> Analysis {
    let mut analysis = Analysis::default();
    if let Some(why) = chars::unreadable(command) {
        analysis.cannot_read(why);
    }
    if command.len() > MAX_BYTES {
        return analysis;
    }
    walk::read(command, false, &mut analysis);
    unwrap::unwrap_all(&mut analysis, 0, 0);
    if analysis.unreadable.is_none() && analysis.barred.is_empty() {
        // The strict side does not trust one reader: a second, much simpler one must find the same words.
        let plain: Vec<Vec<String>> =
            analysis.commands.iter().filter(|command| !command.is_inner).map(as_lexed).collect();
        match lexer::read(command) {
            Ok(lexed) if lexed == plain => {}
            Ok(_) => analysis.bar("the command can be read in two ways"),
            Err(why) => analysis.bar(why.to_string()),
        }
    }
    analysis
}

/// A text quoted for a shell when it needs it.
pub fn quote(text: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !text.is_empty() && !text.starts_with('=') && text.chars().all(is_safe) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Words as one text, each quoted when it needs it.
pub fn canonical(words: &[&str]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

fn as_lexed(command: &Simple) -> Vec<String> {
    let assignments = command.assignments.iter().map(|a| format!("{}={}", a.name, a.value.text));
    assignments.chain(command.words.iter().map(|word| word.text.clone())).collect()
}

/// The last component of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
