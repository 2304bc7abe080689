//! Patterns over tool calls, and the parsing of shell commands.
//!
//! A [`Pattern`] names a tool and, optionally, conditions on the call's arguments: `Read`, `mcp__*`,
//! `Bash(git status *)`, `Edit(file_path ~ "src/**")`, `/mcp__(gh|gl)__.*/`. [`shell`] finds every simple
//! command of a command line, so that a rule is checked against its parts and never against one string.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, reason = "the judge must not panic on any line"))]

mod glob;
mod host;
mod lazy;
mod parse;
pub mod shell;
mod value;

#[cfg(test)]
mod tests;

use aye_core::contract::spelling;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

pub use glob::{escape as escape_glob, is_glob};
pub use host::HostMatcher;
pub use lazy::LazyRegex;
pub use parse::PatternError;
pub use shell::LazyOptions;
pub use value::{ArgPath, PathSegment, comparison_text, primary_text};

/// A pattern over the name and the arguments of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    name: Name,
    args: Args,
}

#[derive(Debug, Clone)]
enum Name {
    Exact(String),
    Glob { text: String, regex: LazyRegex },
    Regex { text: String, regex: LazyRegex },
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Name::Exact(a), Name::Exact(b)) => a == b,
            (Name::Glob { text: a, .. }, Name::Glob { text: b, .. }) => a == b,
            (Name::Regex { text: a, .. }, Name::Regex { text: b, .. }) => a == b,
            _ => false,
        }
    }
}

/// A pattern's conditions on the arguments.
#[derive(Debug, Clone, PartialEq)]
pub enum Args {
    Any,
    /// This glob on the primary argument.
    Primary(Matcher),
    All(Vec<Condition>),
}

/// One condition on the arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The values to check.
    pub path: ArgPath,
    /// Turns the answer round (`!=`, `!~`, `!=~`).
    pub negated: bool,
    /// The matcher that they are compared with.
    pub matcher: Matcher,
}

/// A comparison of a value.
#[derive(Debug, Clone)]
pub enum Matcher {
    Exact(String),
    /// A glob, anchored at both ends.
    Glob {
        /// The glob as written.
        text: String,
        /// On a text.
        regex: LazyRegex,
        /// On the words of a command joined by U+001F.
        words: LazyRegex,
        /// The words at its front that hold no wildcard, and whether they are all of it.
        front: (Arc<[String]>, bool),
        /// On a path, for a rule that denies or asks.
        covering: LazyRegex,
        /// The options that it names, for a rule that denies or asks.
        options: LazyOptions,
    },
    /// The host of a URL: `domain:example.com`.
    Host(HostMatcher),
    /// A regular expression found anywhere.
    Regex(LazyRegex),
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Matcher::Exact(a), Matcher::Exact(b)) => a == b,
            (Matcher::Glob { text: a, .. }, Matcher::Glob { text: b, .. }) => a == b,
            (Matcher::Regex(a), Matcher::Regex(b)) => a.as_str() == b.as_str(),
            (Matcher::Host(a), Matcher::Host(b)) => a.text() == b.text(),
            _ => false,
        }
    }
}

impl Matcher {
    /// Creates a matcher for a glob, anchored at both ends.
    ///
    /// # Errors
    /// The text is not a glob; the error reports where and what was expected.
    pub fn glob(text: &str) -> Result<Matcher, PatternError> {
        parse::glob(text)
    }

    /// Creates a matcher for a regular expression, which may match anywhere.
    ///
    /// # Errors
    /// The text is not a regular expression, or is empty and would match everything.
    pub fn regex(text: &str) -> Result<Matcher, PatternError> {
        parse::regex(text)
    }

    /// True when `text` is matched.
    pub fn is_match(&self, text: &str) -> bool {
        match self {
            Matcher::Exact(want) => want == text,
            Matcher::Glob { regex, .. } => regex.is_match(text),
            Matcher::Regex(regex) => regex.is_match(text),
            Matcher::Host(host) => host.is_match(text),
        }
    }

    /// True when a path is matched as it is: `./` in front of the pattern, a slash at its end and a second slash at
    /// its start mean nothing.
    pub fn is_match_path(&self, path: &str) -> bool {
        match self {
            Matcher::Exact(want) => glob::path_text(want) == path || want == path,
            Matcher::Glob { text, regex, .. } => {
                regex.is_match(path)
                    || match glob::path_text(text) {
                        Cow::Borrowed(plain) if plain == text => false,
                        plain => Matcher::glob(&plain).is_ok_and(|matcher| matcher.is_match(path)),
                    }
            }
            Matcher::Regex(_) | Matcher::Host(_) => self.is_match(path),
        }
    }

    /// True when a path is what the pattern names, or lies in it: as a rule that denies or asks reads it.
    pub fn covers_path(&self, path: &str) -> bool {
        match self {
            Matcher::Exact(want) => covers(want, path),
            Matcher::Glob { covering, .. } => covering.is_match(path),
            Matcher::Regex(_) | Matcher::Host(_) => self.is_match(path),
        }
    }

    /// True when the pattern names some spelling of a folded path ([`spelling::folded`]), or a folder that it lies in.
    pub fn covers_folded(&self, folded: &str) -> bool {
        match self {
            Matcher::Exact(want) => {
                let want = spelling::folded(want);
                want == folded || covers(&want, folded)
            }
            Matcher::Glob { regex, covering, .. } => {
                regex.is_match_folded(folded) || covering.is_match_folded(folded)
            }
            Matcher::Regex(regex) => regex.is_match_folded(folded),
            Matcher::Host(_) => false,
        }
    }

    /// Returns whether the pattern may match one spelling of a path and not another.
    pub fn is_case_sensitive(&self) -> bool {
        match self {
            Matcher::Exact(text) | Matcher::Glob { text, .. } => !spelling::is_folded(text),
            Matcher::Regex(regex) => regex.is_case_sensitive(),
            Matcher::Host(_) => false,
        }
    }

    /// True when the pattern is a path from the root or the home folder, not one from the workspace.
    pub fn is_rooted(&self) -> bool {
        let text = self.text();
        match self {
            Matcher::Regex(_) => {
                text.trim_start_matches("(?i)").trim_start_matches('^').starts_with(['/', '~'])
            }
            _ => text.starts_with(['/', '~']),
        }
    }

    /// Regular expressions that find every path which [`Matcher::covers_path`] does and, as a folded text, every one which
    /// [`Matcher::covers_folded`] does.
    pub fn covering_sources(&self) -> Vec<String> {
        let both = |regex: &LazyRegex| {
            let folded = regex.is_case_sensitive().then(|| regex.folded_source());
            [regex.as_str().to_owned()].into_iter().chain(folded).collect()
        };
        match self {
            Matcher::Exact(want) => {
                let want = glob::path_text(want);
                let source = format!(r"\A(?:{})(?:/(?s:.)*)?\z", regex::escape(want.trim_end_matches('/')));
                both(&LazyRegex::later(source))
            }
            Matcher::Glob { covering, .. } => both(covering),
            Matcher::Regex(regex) => both(regex),
            // It matches no path.
            Matcher::Host(_) => Vec::new(),
        }
    }

    /// Checks the words of a command against the options that a deny or ask rule names: they count anywhere among the
    /// arguments, in clusters, one by one, and in their short and long forms.
    pub fn options_fit(&self, words: &[shell::Word]) -> shell::OptionFit {
        match self {
            Matcher::Glob { text, options, .. } => {
                options.of(text).map_or(shell::OptionFit::No, |options| options.fit(words))
            }
            _ => shell::OptionFit::No,
        }
    }

    /// Returns whether the pattern names options of a command.
    pub fn names_options(&self) -> bool {
        matches!(self, Matcher::Glob { text, options, .. } if options.of(text).is_some())
    }

    /// Returns command lines that a glob matches: its own words, and others in place of its wildcards. None of a regular
    /// expression.
    pub fn example_commands(&self) -> Vec<String> {
        match self {
            Matcher::Exact(text) => vec![text.clone()],
            Matcher::Glob { text, .. } => glob::example_commands(text),
            Matcher::Regex(_) | Matcher::Host(_) => Vec::new(),
        }
    }

    /// Returns the options of a rule for a command whose other spellings are not known, with the reason.
    pub fn undecided_options(&self) -> Option<String> {
        match self {
            Matcher::Glob { text, options, .. } => options.of(text)?.undecided(),
            Matcher::Regex(regex) => shell::options_of_regex(regex.as_str()),
            Matcher::Exact(_) | Matcher::Host(_) => None,
        }
    }

    /// True when the words of a command are matched: a glob by words, the others on `canonical`, the words as text.
    pub fn is_match_words(&self, words: &[&str], canonical: &str) -> bool {
        match self {
            Matcher::Glob { words: regex, front: (front, _), .. } => {
                // Cheap, and nearly always the answer: most rules are about another program.
                front.iter().zip(words).all(|(want, word)| want == word)
                    && regex.is_match(&words.join("\u{1f}"))
            }
            Matcher::Exact(want) => want == canonical,
            Matcher::Regex(regex) => regex.is_match(canonical),
            Matcher::Host(_) => false,
        }
    }

    /// The text that was written: of the glob, the regular expression or the exact value.
    pub fn text(&self) -> &str {
        match self {
            Matcher::Exact(text) | Matcher::Glob { text, .. } => text,
            Matcher::Regex(regex) => regex.as_str(),
            Matcher::Host(host) => host.text(),
        }
    }

    /// Returns the leading words that contain no wildcard, and whether they are the whole pattern.
    pub fn literal_words(&self) -> (Cow<'_, [String]>, bool) {
        match self {
            Matcher::Glob { front: (words, all), .. } => (Cow::Borrowed(words), *all),
            Matcher::Exact(text) => match shlex::split(text) {
                Some(words) => (Cow::Owned(words), true),
                None => (Cow::Borrowed(&[]), false),
            },
            Matcher::Regex(_) | Matcher::Host(_) => (Cow::Borrowed(&[]), false),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Matcher::Exact(_) => 3,
            Matcher::Glob { .. } | Matcher::Host(_) => 2,
            Matcher::Regex(_) => 1,
        }
    }
}

/// True when a path is the wanted one, or lies in it.
fn covers(want: &str, path: &str) -> bool {
    let want = glob::path_text(want);
    path.strip_prefix(want.as_ref())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || want == "/")
}

/// The number of values that must match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantifier {
    /// One is enough: for deny and ask.
    One,
    /// All must: for allow.
    Every,
}

/// The narrowness of a pattern. It decides which of several matching rules is reported, never which one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Specificity {
    /// 3 exact name, 2 glob, 1 regular expression.
    pub name: u8,
    /// Whether the pattern has conditions on the arguments.
    pub has_args: bool,
    /// The number of conditions.
    pub conditions: usize,
    /// The best operator: 3 exact, 2 glob, 1 regular expression, 0 none.
    pub operator: u8,
}

/// One value that a pattern checks, passed to the test of [`Pattern::matches_by`].
#[derive(Debug, Clone, Copy)]
pub struct Looked<'a> {
    /// The argument's name, when it is a top-level one.
    pub key: Option<&'a str>,
    /// Its comparison text.
    pub text: &'a str,
    /// The matcher that the value is compared with.
    pub matcher: &'a Matcher,
    /// Whether the condition is negated.
    pub negated: bool,
}

impl Looked<'_> {
    /// The plain comparison of texts.
    pub fn holds(&self) -> bool {
        self.matcher.is_match(self.text) != self.negated
    }
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When the text is not a pattern; the error says where and what would be right.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        parse::parse(text, parse::RegexSource::Foreign)
    }

    /// Reads a built-in pattern: a test has compiled its regular expressions, so they are compiled only when
    /// they are first used.
    ///
    /// # Errors
    /// As [`Pattern::parse`], but a wrong regular expression panics at its first use.
    pub fn parse_own(text: &str) -> Result<Pattern, PatternError> {
        parse::parse(text, parse::RegexSource::Own)
    }

    /// Returns the pattern for exactly this tool, whatever its arguments.
    pub fn tool(name: &str) -> Pattern {
        Pattern { name: Name::literal(name), args: Args::Any }
    }

    /// The pattern for exactly this tool and exactly this value of one argument.
    pub fn literal(tool: &str, key: &str, value: &str) -> Pattern {
        let condition = Condition {
            path: ArgPath(vec![PathSegment::Key(key.to_owned())]),
            negated: false,
            matcher: Matcher::Exact(value.to_owned()),
        };
        Pattern { name: Name::literal(tool), args: Args::All(vec![condition]) }
    }

    /// True when the tool's name is matched.
    pub fn matches_tool(&self, tool: &str) -> bool {
        match &self.name {
            Name::Exact(name) => name == tool || is_server(name) && is_tool_of(tool, name),
            // The literal start rejects most names, and costs no compiling.
            Name::Glob { text, regex } => tool.starts_with(glob::literal_start(text)) && regex.is_match(tool),
            Name::Regex { regex, .. } => regex.is_match(tool),
        }
    }

    /// The tool's name, when the pattern is about one tool only.
    pub fn exact_tool(&self) -> Option<&str> {
        match &self.name {
            Name::Exact(name) => Some(name),
            Name::Glob { .. } | Name::Regex { .. } => None,
        }
    }

    /// True when the arguments do not matter.
    pub fn is_unconditional(&self) -> bool {
        matches!(self.args, Args::Any)
    }

    /// Returns the conditions on the arguments.
    pub fn args(&self) -> &Args {
        &self.args
    }

    /// True when the call is matched. `primary` is the name of the tool's primary argument, when it declares one.
    pub fn matches(&self, tool: &str, args: &Value, primary: Option<&str>, quantifier: Quantifier) -> bool {
        self.matches_by(tool, args, primary, quantifier, &mut |looked| looked.holds())
    }

    /// As [`Pattern::matches`], with the caller's own comparison of one value.
    pub fn matches_by(
        &self,
        tool: &str,
        args: &Value,
        primary: Option<&str>,
        quantifier: Quantifier,
        test: &mut dyn FnMut(Looked<'_>) -> bool,
    ) -> bool {
        if !self.matches_tool(tool) {
            return false;
        }
        match &self.args {
            Args::Any => true,
            Args::Primary(matcher) => primary_text(args, primary)
                .is_some_and(|text| test(Looked { key: primary, text: &text, matcher, negated: false })),
            Args::All(conditions) => {
                conditions.iter().all(|condition| condition.holds(args, quantifier, &mut *test))
            }
        }
    }

    /// Returns the narrowness of the pattern.
    pub fn specificity(&self) -> Specificity {
        let name = match self.name {
            Name::Exact(_) => 3,
            Name::Glob { .. } => 2,
            Name::Regex { .. } => 1,
        };
        let (conditions, operator) = match &self.args {
            Args::Any => (0, 0),
            Args::Primary(matcher) => (1, matcher.rank()),
            Args::All(all) => (all.len(), all.iter().map(|c| c.matcher.rank()).max().unwrap_or(0)),
        };
        Specificity { name, has_args: conditions > 0, conditions, operator }
    }
}

/// True for `mcp__SERVER`: all tools of that server. The names of servers contain no `__`.
fn is_server(name: &str) -> bool {
    name.strip_prefix("mcp__").is_some_and(|server| !server.is_empty() && !server.contains("__"))
}

fn is_tool_of(tool: &str, server: &str) -> bool {
    tool.strip_prefix(server).is_some_and(|rest| rest.starts_with("__"))
}

impl Condition {
    fn holds(&self, args: &Value, quantifier: Quantifier, test: &mut dyn FnMut(Looked<'_>) -> bool) -> bool {
        let values = self.path.select(args);
        let mut one = |value: &&Value| {
            let text = comparison_text(value);
            let (matcher, negated) = (&self.matcher, self.negated);
            test(Looked { key: self.path.single_key(), text: &text, matcher, negated })
        };
        match quantifier {
            Quantifier::One => values.iter().any(&mut one),
            Quantifier::Every => !values.is_empty() && values.iter().all(&mut one),
        }
    }
}

impl Name {
    fn literal(name: &str) -> Name {
        if is_glob(name) {
            let text = escape_glob(name);
            let regex = LazyRegex::later(format!(r"\A{}\z", regex::escape(name)));
            return Name::Glob { text, regex };
        }
        Name::Exact(name.to_owned())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Exact(name) => f.write_str(name)?,
            Name::Glob { text, .. } => f.write_str(text)?,
            Name::Regex { text, .. } => write!(f, "/{text}/")?,
        }
        match &self.args {
            Args::Any => Ok(()),
            Args::Primary(matcher) => write!(f, "({})", matcher.text()),
            Args::All(conditions) => {
                f.write_str("(")?;
                for (i, condition) in conditions.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{condition}")?;
                }
                f.write_str(")")
            }
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match &self.matcher {
            Matcher::Exact(_) => "=",
            Matcher::Glob { .. } | Matcher::Host(_) => "~",
            Matcher::Regex(_) => "=~",
        };
        let not = if self.negated { "!" } else { "" };
        write!(f, "{} {not}{sign} \"", self.path)?;
        for c in self.matcher.text().chars() {
            if matches!(c, '"' | '\\') {
                f.write_str("\\")?;
            }
            write!(f, "{c}")?;
        }
        f.write_str("\"")
    }
}
