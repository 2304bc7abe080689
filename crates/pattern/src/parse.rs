//! The reader of patterns.

use super::glob::{self, Reading};
use super::host::{self, HostMatcher};
use super::value::{ArgPath, PathSegment};
use super::{Args, Condition, LazyOptions, LazyRegex, Matcher, Name, Pattern};

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pattern `{pattern}`, character {}: {message}", position + 1)]
pub struct PatternError {
    /// The position of the error, counted in characters from 0.
    pub position: usize,
    /// The problem and what was expected instead.
    pub message: String,
    /// The text that was read.
    pub pattern: String,
}

/// The author of a pattern's regular expressions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RegexSource {
    /// Someone else: they are compiled now, so that a mistake is found now.
    Foreign,
    /// We, and a test compiles them.
    Own,
}

struct Parser<'a> {
    text: &'a str,
    chars: Vec<char>,
    at: usize,
    sources: RegexSource,
}

type Parsed<T> = Result<T, PatternError>;

pub(super) fn parse(text: &str, sources: RegexSource) -> Parsed<Pattern> {
    let mut parser = Parser { text, chars: text.chars().collect(), at: 0, sources };
    parser.blanks();
    let name = parser.name()?;
    parser.blanks();
    let args = if parser.eat('(') { parser.args(&name)? } else { Args::Any };
    parser.blanks();
    if parser.at < parser.chars.len() {
        return Err(parser.error(parser.at, "unexpected text (a pattern is `Tool` or `Tool(arguments)`)"));
    }
    Ok(Pattern { name, args })
}

/// Parses a standalone glob.
pub(super) fn glob(text: &str) -> Parsed<Matcher> {
    Parser { text, chars: Vec::new(), at: 0, sources: RegexSource::Foreign }.glob_matcher(text, 0)
}

/// Parses a standalone regular expression.
pub(super) fn regex(text: &str) -> Parsed<Matcher> {
    let parser = Parser { text, chars: Vec::new(), at: 0, sources: RegexSource::Foreign };
    if text.is_empty() {
        return Err(parser.error(0, "an empty regular expression matches everything"));
    }
    let wrong = |e| parser.error(0, format!("invalid regular expression: {}", glob::regex_message(&e)));
    parser.regex(text).map(Matcher::Regex).map_err(wrong)
}

impl Parser<'_> {
    fn error(&self, position: usize, message: impl Into<String>) -> PatternError {
        PatternError { position, message: message.into(), pattern: self.text.to_owned() }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn eat(&mut self, c: char) -> bool {
        let hit = self.peek() == Some(c);
        if hit {
            self.at += 1;
        }
        hit
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    fn slice(&self, from: usize, to: usize) -> String {
        self.chars.get(from..to).unwrap_or_default().iter().collect()
    }

    fn name(&mut self) -> Parsed<Name> {
        let start = self.at;
        if self.eat('/') {
            return self.regex_name(start);
        }
        // A comma separates alternatives: `{Bash,Read}`.
        let mut braces = 0_usize;
        while let Some(c) = self.peek().filter(|c| *c != '(' && !c.is_whitespace()) {
            match c {
                '{' => braces += 1,
                '}' => braces = braces.saturating_sub(1),
                ')' | '"' | '\'' => return Err(self.error(self.at, "invalid character in a tool's name")),
                ',' if braces == 0 => {
                    return Err(self.error(
                        self.at,
                        "invalid character in a tool's name (write `{A,B}` for several tools)",
                    ));
                }
                _ => {}
            }
            self.at += 1;
        }
        let text = self.slice(start, self.at);
        if text.is_empty() {
            return Err(self.error(start, "missing tool name (`*` is any tool)"));
        }
        if let Some(bad) = text.chars().position(char::is_control) {
            return Err(self.error(start + bad, "a tool's name cannot contain control characters"));
        }
        if !glob::is_glob(&text) {
            return Ok(Name::Exact(text));
        }
        let regex =
            glob::compile(&text, Reading::Text).map_err(|e| self.error(start + e.position, e.message))?;
        Ok(Name::Glob { text, regex })
    }

    /// The expression ends at the first `/` that is neither escaped nor in parens.
    fn regex_name(&mut self, start: usize) -> Parsed<Name> {
        let (mut depth, mut in_class) = (0_usize, false);
        let from = self.at;
        while let Some(c) = self.peek() {
            match c {
                '\\' => self.at += 1,
                '[' if !in_class => in_class = true,
                ']' => in_class = false,
                '(' if !in_class => depth += 1,
                ')' if !in_class => depth = depth.saturating_sub(1),
                '/' if depth == 0 && !in_class => {
                    let text = self.slice(from, self.at);
                    self.at += 1;
                    if text.is_empty() {
                        return Err(self.error(start, "the regular expression is empty (`*` is any tool)"));
                    }
                    let regex = self.regex(&text).map_err(|e| self.error(from, glob::regex_message(&e)))?;
                    return Ok(Name::Regex { text, regex });
                }
                _ => {}
            }
            self.at += 1;
        }
        Err(self.error(start, "the regular expression is not closed by `/`"))
    }

    /// Everything after the opening paren, with the closing one.
    fn args(&mut self, name: &Name) -> Parsed<Args> {
        let open = self.at - 1;
        self.blanks();
        let start = self.at;
        if let Some(first) = self.condition()? {
            return self.conditions(first);
        }
        self.at = start;
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                None => return Err(self.error(open, "unclosed `(`")),
                Some('\\') => self.at += 1,
                Some('(') => depth += 1,
                Some(')') if depth == 0 => break,
                Some(')') => depth -= 1,
                Some(_) => {}
            }
            self.at += 1;
        }
        let mut end = self.at;
        self.at += 1;
        // Blanks at the end do not count, unless they are escaped.
        let before = |end: usize, back: usize| self.chars.get(end.checked_sub(back)?).copied();
        while end > start
            && before(end, 1).is_some_and(char::is_whitespace)
            && (end < start + 2 || before(end, 2) != Some('\\'))
        {
            end -= 1;
        }
        let mut text = self.slice(start, end);
        if text.is_empty() {
            return Err(
                self.error(open, "empty parentheses (write the name alone, or `(*)`, for any arguments)")
            );
        }
        if text == "*" || text == "**" {
            return Ok(Args::Any);
        }
        if matches!(name, Name::Exact(tool) if tool == "Bash")
            && let Some(prefix) = text.strip_suffix(":*")
        {
            text = format!("{prefix} *");
        }
        if matches!(name, Name::Exact(tool) if tool == "WebFetch") && text.starts_with(host::PREFIX) {
            let matcher = HostMatcher::parse(&text).map_err(|message| self.error(start, message))?;
            return Ok(Args::Primary(Matcher::Host(matcher)));
        }
        Ok(Args::Primary(self.glob_matcher(&text, start)?))
    }

    fn conditions(&mut self, first: Condition) -> Parsed<Args> {
        let mut all = vec![first];
        loop {
            self.blanks();
            if self.eat(')') {
                return Ok(Args::All(all));
            }
            if !self.eat(',') {
                return Err(
                    self.error(self.at.min(self.chars.len()), "expected `,` or `)` after the condition")
                );
            }
            self.blanks();
            let at = self.at;
            match self.condition()? {
                Some(condition) => all.push(condition),
                None => return Err(self.error(at, "expected another condition, such as `name = \"value\"`")),
            }
        }
    }

    /// Parses a condition; returns nothing if the text here does not have the form `path op quoted`.
    fn condition(&mut self) -> Parsed<Option<Condition>> {
        let Some(path) = self.path() else { return Ok(None) };
        self.blanks();
        let op_at = self.at;
        let negated = self.eat('!');
        let op = match (self.peek(), self.chars.get(self.at + 1)) {
            (Some('='), Some('~')) => "=~",
            (Some('='), _) => "=",
            (Some('~'), _) => "~",
            _ => return Ok(None),
        };
        self.at += op.len();
        self.blanks();
        let Some(quote @ ('"' | '\'')) = self.peek() else { return Ok(None) };
        let value_at = self.at + 1;
        let value = self.quoted(quote)?;
        let matcher = match op {
            "=" => Matcher::Exact(value),
            "~" => self.glob_matcher(&value, value_at)?,
            _ if value.is_empty() => {
                return Err(self.error(op_at, "an empty regular expression matches everything"));
            }
            _ => Matcher::Regex(self.regex(&value).map_err(|e| {
                self.error(value_at, format!("invalid regular expression: {}", glob::regex_message(&e)))
            })?),
        };
        Ok(Some(Condition { path, negated, matcher }))
    }

    fn quoted(&mut self, quote: char) -> Parsed<String> {
        let open = self.at;
        self.at += 1;
        let mut value = String::new();
        loop {
            match self.peek() {
                None => return Err(self.error(open, "unclosed quote")),
                Some(c) if c == quote => break,
                Some('\\') if self.chars.get(self.at + 1).is_some_and(|c| *c == quote || *c == '\\') => {
                    self.at += 1;
                    value.extend(self.peek());
                }
                Some(c) => value.push(c),
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(value)
    }

    fn path(&mut self) -> Option<ArgPath> {
        let mut segments = vec![self.key()?];
        loop {
            if self.eat('.') {
                segments.push(self.key()?);
            } else if self.eat('[') {
                let start = self.at;
                while self.peek().is_some_and(|c| c.is_ascii_digit()) {
                    self.at += 1;
                }
                let digits = self.slice(start, self.at);
                let segment = if digits.is_empty() && self.eat('*') {
                    PathSegment::AnyIndex
                } else {
                    PathSegment::Index(digits.parse().ok()?)
                };
                if !self.eat(']') {
                    return None;
                }
                segments.push(segment);
            } else {
                return Some(ArgPath(segments));
            }
        }
    }

    fn key(&mut self) -> Option<PathSegment> {
        if self.eat('*') {
            return Some(PathSegment::AnyKey);
        }
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-') {
            self.at += 1;
        }
        (self.at > start).then(|| PathSegment::Key(self.slice(start, self.at)))
    }

    fn regex(&self, source: &str) -> Result<LazyRegex, regex::Error> {
        match self.sources {
            RegexSource::Foreign => LazyRegex::now(source),
            RegexSource::Own => Ok(LazyRegex::later(source.to_owned())),
        }
    }

    fn glob_matcher(&self, text: &str, at: usize) -> Parsed<Matcher> {
        let wrap = |e: glob::GlobError| self.error(at + e.position, e.message);
        let regex = glob::compile(text, Reading::Text).map_err(wrap)?;
        let words = glob::compile(text.trim(), Reading::Words).map_err(wrap)?;
        let (front, all) = glob::literal_words(text);
        let covering = glob::covering(text).map_err(wrap)?;
        Ok(Matcher::Glob {
            text: text.to_owned(),
            regex,
            words,
            front: (front.into(), all),
            covering,
            options: LazyOptions::default(),
        })
    }
}
