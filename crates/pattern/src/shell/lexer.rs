//! The second reader: a small lexer that knows the simple shape and refuses everything else.
//!
//! It shares no code with the grammar, so that a quirk of either shows as a difference. It only has to be right about
//! what it accepts: blanks, newlines, comments, quotes, backslashes, the list operators, parens and braces around
//! lists, and redirects to `/dev/null` or between the standard streams.

/// The commands of `command`, each as its words with assignments in front and redirects taken away.
pub(super) fn read(command: &str) -> Result<Vec<Vec<String>>, String> {
    let mut lexer = Lexer {
        chars: command.chars().collect(),
        at: 0,
        commands: Vec::new(),
        words: Vec::new(),
        pending: None,
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
}

/// Words that mean something else than a program where a command starts.
const RESERVED: [&str; 18] = [
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "select",
    "function", "coproc", "time", "[[", "in",
];

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn flush(&mut self) {
        if !self.words.is_empty() {
            self.commands.push(std::mem::take(&mut self.words));
        }
    }

    fn run(&mut self) -> Result<(), String> {
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
                        return Err("`;;` outside a case".into());
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
            return Err("an unclosed here-document".into());
        }
        Ok(())
    }

    fn command_word(&mut self) -> Result<(), String> {
        let start = self.at;
        let word = self.word()?;
        let raw: String = self.chars[start..self.at].iter().collect();
        if self.words.is_empty() && raw == word {
            if matches!(word.as_str(), "{" | "}" | "!") {
                return Ok(());
            }
            if RESERVED.contains(&word.as_str()) {
                return Err(format!("`{word}`"));
            }
        }
        self.words.push(word);
        Ok(())
    }

    fn word(&mut self) -> Result<String, String> {
        let mut word = String::new();
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | ')' | '<' | '>' => break,
                '(' | '$' | '`' => return Err(format!("`{c}`")),
                '\\' => {
                    match self.peek(1) {
                        None => return Err("a backslash at the end".into()),
                        Some('\n') => {}
                        Some(c) => word.push(c),
                    }
                    self.at += 2;
                }
                '\'' => {
                    self.at += 1;
                    loop {
                        match self.peek(0) {
                            None => return Err("an unclosed quote".into()),
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

    fn double_quoted(&mut self, word: &mut String) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.peek(0) {
                None => return Err("an unclosed quote".into()),
                Some('"') => break,
                Some('$' | '`') => return Err("an expansion in quotes".into()),
                Some('\\') => {
                    match self.peek(1) {
                        None => return Err("an unclosed quote".into()),
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

    fn redirect(&mut self) -> Result<(), String> {
        let start = self.at;
        while matches!(self.peek(0), Some('&' | '>' | '<' | '|')) {
            self.at += 1;
        }
        let operator: String = self.chars[start..self.at].iter().collect();
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
        if harmless { Ok(()) } else { Err(format!("a redirect (`{operator}`)")) }
    }

    fn heredoc(&mut self) -> Result<(), String> {
        if self.pending.is_some() {
            return Err("two here-documents".into());
        }
        let delimiter = self.word()?;
        if delimiter.is_empty() || !delimiter.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err("an odd here-document".into());
        }
        self.pending = Some(delimiter);
        Ok(())
    }

    /// Skips a here-document. Only its end counts here; the other reader decides whether its body is literal.
    fn skip_heredoc(&mut self) -> Result<(), String> {
        let Some(delimiter) = self.pending.take() else { return Ok(()) };
        while self.at < self.chars.len() {
            let start = self.at;
            while self.peek(0).is_some_and(|c| c != '\n') {
                self.at += 1;
            }
            let line: String = self.chars[start..self.at].iter().collect();
            self.at += 1;
            if line == delimiter {
                return Ok(());
            }
        }
        Err("an unclosed here-document".into())
    }
}
