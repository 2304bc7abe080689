//! The second reader: a small lexer that knows the simple shape and refuses everything else.
//!
//! It shares no code with the grammar, so that a quirk of either shows as a difference. It only has to be right about
//! what it accepts: blanks, newlines, comments, quotes, backslashes, the list operators, parens and braces around
//! lists, `if`, loops over words that the line spells out, and redirects to `/dev/null` or between the standard streams.

use super::document;

/// What this reader does not accept.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsupported {
    #[error("an unclosed {0}")]
    Unclosed(&'static str),
    #[error("a loop {0}")]
    Loop(&'static str),
    #[error("`{0}`")]
    Word(String),
    #[error("an expansion")]
    Expansion,
    #[error("an expansion in quotes")]
    QuotedExpansion,
    #[error("a redirect (`{0}`)")]
    Redirect(String),
    #[error("{0}")]
    Other(&'static str),
}

/// The commands of `command`, each as its words with assignments in front and redirects taken away.
pub(super) fn read(command: &str) -> Result<Vec<Vec<String>>, Unsupported> {
    let mut lexer = Lexer {
        chars: command.chars().collect(),
        at: 0,
        commands: Vec::new(),
        words: Vec::new(),
        pending: None,
        loops: Vec::new(),
    };
    lexer.run()?;
    Ok(lexer.commands)
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    /// The delimiter of a here-document whose body starts at the next newline.
    pending: Option<String>,
    loops: Vec<Loop>,
}

/// A loop around the current place.
enum Loop {
    /// `while` or `until`: its body is read once.
    While,
    /// `for`: its body is read once for each value.
    For { name: String, values: Vec<String>, turn: usize, body: usize },
}

/// A line whose loops would be read longer is not read.
const MAX_COMMANDS: usize = 2_000;

/// Words that mean something else than a program where a command starts.
const RESERVED: [&str; 8] = ["case", "esac", "select", "function", "coproc", "time", "[[", "in"];

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn flush(&mut self) {
        if !self.words.is_empty() {
            self.commands.push(std::mem::take(&mut self.words));
        }
    }

    fn run(&mut self) -> Result<(), Unsupported> {
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' => self.at += 1,
                '\n' => {
                    self.at += 1;
                    self.flush();
                    self.skip_heredoc()?;
                }
                '\\' if self.peek(1) == Some('\n') => self.at += 2,
                '#' => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                '&' if self.peek(1) == Some('>') => self.redirect()?,
                ';' | '&' | '|' => {
                    let double = self.peek(1) == Some(c) || (c == '|' && self.peek(1) == Some('&'));
                    if c == ';' && double {
                        return Err(Unsupported::Other("`;;` outside a case"));
                    }
                    self.at += if double { 2 } else { 1 };
                    self.flush();
                }
                '(' if self.words.is_empty() => self.at += 1,
                ')' => {
                    self.flush();
                    self.at += 1;
                }
                '>' | '<' => self.redirect()?,
                c if c.is_ascii_digit() && matches!(self.peek(1), Some('>' | '<')) => {
                    self.at += 1;
                    self.redirect()?;
                }
                _ => self.command_word()?,
            }
        }
        self.flush();
        if self.pending.is_some() {
            return Err(Unsupported::Unclosed("here-document"));
        }
        if self.loops.is_empty() { Ok(()) } else { Err(Unsupported::Unclosed("loop")) }
    }

    /// Reads `NAME in VALUES` and what separates it from `do`.
    fn for_loop(&mut self) -> Result<(), Unsupported> {
        let blanks = |lexer: &mut Lexer| {
            while matches!(lexer.peek(0), Some(' ' | '\t')) {
                lexer.at += 1;
            }
        };
        blanks(self);
        let name = self.word()?;
        blanks(self);
        if self.word()? != "in" {
            return Err(Unsupported::Loop("without values"));
        }
        let mut values = Vec::new();
        blanks(self);
        while !matches!(self.peek(0), None | Some(';' | '\n')) {
            if matches!(self.peek(0), Some('&' | '|' | ')' | '<' | '>' | '#')) {
                return Err(Unsupported::Loop("over more than words"));
            }
            values.push(self.word()?);
            blanks(self);
        }
        if values.is_empty() {
            return Err(Unsupported::Loop("without values"));
        }
        self.loops.push(Loop::For { name, values, turn: 0, body: 0 });
        Ok(())
    }

    /// At the end of a loop's body: back to its start, until each value had its turn.
    fn done(&mut self) -> Result<(), Unsupported> {
        match self.loops.last_mut() {
            Some(Loop::For { values, turn, body, .. }) if *turn + 1 < values.len() => {
                *turn += 1;
                self.at = *body;
            }
            Some(_) => {
                self.loops.pop();
            }
            None => return Err(Unsupported::Word("done".to_owned())),
        }
        if self.commands.len() > MAX_COMMANDS {
            Err(Unsupported::Loop("with too many turns"))
        } else {
            Ok(())
        }
    }

    /// The value of a loop's variable, after its `$`.
    fn variable(&mut self) -> Result<String, Unsupported> {
        self.at += 1;
        let is_braced = self.peek(0) == Some('{');
        self.at += usize::from(is_braced);
        let mut wanted = String::new();
        while let Some(c) = self.peek(0).filter(|c| c.is_ascii_alphanumeric() || *c == '_') {
            wanted.push(c);
            self.at += 1;
        }
        if is_braced {
            if self.peek(0) != Some('}') {
                return Err(Unsupported::Expansion);
            }
            self.at += 1;
        }
        let value = self.loops.iter().rev().find_map(|one| match one {
            Loop::For { name, values, turn, .. } if *name == wanted => values.get(*turn).cloned(),
            Loop::For { .. } | Loop::While => None,
        });
        value.ok_or_else(|| Unsupported::Word(format!("${wanted}")))
    }

    /// The characters from a position up to the current one.
    fn since(&self, start: usize) -> String {
        self.chars.get(start..self.at).unwrap_or_default().iter().collect()
    }

    fn command_word(&mut self) -> Result<(), Unsupported> {
        let start = self.at;
        let word = self.word()?;
        let raw: String = self.since(start);
        if self.words.is_empty() && raw == word {
            match word.as_str() {
                "{" | "}" | "!" | "if" | "then" | "elif" | "else" | "fi" => return Ok(()),
                "while" | "until" => {
                    self.loops.push(Loop::While);
                    return Ok(());
                }
                "for" => return self.for_loop(),
                "do" => {
                    let at = self.at;
                    match self.loops.last_mut() {
                        Some(Loop::For { body, .. }) => *body = at,
                        Some(Loop::While) => {}
                        None => return Err(Unsupported::Word("do".to_owned())),
                    }
                    return Ok(());
                }
                "done" => return self.done(),
                _ => {}
            }
            if RESERVED.contains(&word.as_str()) {
                return Err(Unsupported::Word(word));
            }
        }
        self.words.push(word);
        Ok(())
    }

    fn word(&mut self) -> Result<String, Unsupported> {
        let mut word = String::new();
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | ')' | '<' | '>' => break,
                '$' => {
                    let value = self.variable()?;
                    word.push_str(&value);
                }
                '(' | '`' => return Err(Unsupported::Word(c.to_string())),
                '\\' => {
                    match self.peek(1) {
                        None => return Err(Unsupported::Other("a backslash at the end")),
                        Some('\n') => {}
                        Some(c) => word.push(c),
                    }
                    self.at += 2;
                }
                '\'' => {
                    self.at += 1;
                    loop {
                        match self.peek(0) {
                            None => return Err(Unsupported::Unclosed("quote")),
                            Some('\'') => break,
                            Some(c) => word.push(c),
                        }
                        self.at += 1;
                    }
                    self.at += 1;
                }
                '"' => self.double_quoted(&mut word)?,
                c => {
                    word.push(c);
                    self.at += 1;
                }
            }
        }
        Ok(word)
    }

    fn double_quoted(&mut self, word: &mut String) -> Result<(), Unsupported> {
        self.at += 1;
        loop {
            match self.peek(0) {
                None => return Err(Unsupported::Unclosed("quote")),
                Some('"') => break,
                Some('$') if self.peek(1) == Some('(') => {
                    let rest: String = self.chars.get(self.at + 2..).unwrap_or_default().iter().collect();
                    let (text, left) = document::read(&rest).ok_or(Unsupported::QuotedExpansion)?;
                    let left = left.trim_start_matches([' ', '\t', '\n']);
                    if !left.starts_with(')') {
                        return Err(Unsupported::QuotedExpansion);
                    }
                    word.push_str(&text);
                    self.at = self.chars.len() - left.chars().count() + 1;
                    continue;
                }
                Some('$') => {
                    let value = self.variable()?;
                    word.push_str(&value);
                    continue;
                }
                Some('`') => return Err(Unsupported::QuotedExpansion),
                Some('\\') => {
                    match self.peek(1) {
                        None => return Err(Unsupported::Unclosed("quote")),
                        Some('\n') => {}
                        Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                        Some(c) => {
                            word.push('\\');
                            word.push(c);
                        }
                    }
                    self.at += 1;
                }
                Some(c) => word.push(c),
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(())
    }

    fn redirect(&mut self) -> Result<(), Unsupported> {
        let start = self.at;
        while matches!(self.peek(0), Some('&' | '>' | '<' | '|')) {
            self.at += 1;
        }
        let operator: String = self.since(start);
        if operator == "<<" {
            return self.heredoc();
        }
        while matches!(self.peek(0), Some(' ' | '\t')) {
            self.at += 1;
        }
        let target = self.word()?;
        let harmless = match operator.as_str() {
            ">" | ">>" | "&>" | "&>>" | "<" | ">|" => target == "/dev/null",
            ">&" => matches!(target.as_str(), "1" | "2" | "/dev/null"),
            _ => false,
        };
        if harmless { Ok(()) } else { Err(Unsupported::Redirect(operator)) }
    }

    fn heredoc(&mut self) -> Result<(), Unsupported> {
        if self.pending.is_some() {
            return Err(Unsupported::Other("two here-documents"));
        }
        let delimiter = self.word()?;
        if delimiter.is_empty() || !delimiter.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(Unsupported::Other("an odd here-document"));
        }
        self.pending = Some(delimiter);
        Ok(())
    }

    /// Skips a here-document. Only its end counts here; the other reader decides whether its body is literal.
    fn skip_heredoc(&mut self) -> Result<(), Unsupported> {
        let Some(delimiter) = self.pending.take() else { return Ok(()) };
        while self.at < self.chars.len() {
            let start = self.at;
            while self.peek(0).is_some_and(|c| c != '\n') {
                self.at += 1;
            }
            let line: String = self.since(start);
            self.at += 1;
            if line == delimiter {
                return Ok(());
            }
        }
        Err(Unsupported::Unclosed("here-document"))
    }
}
