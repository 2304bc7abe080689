//! Words: quotes removed, what is literal and what only the shell knows.

use super::{Analysis, HOLE, Simple, Word, document, walk::Walker};
use tree_sitter::Node;

/// A word under construction: each character with whether it was quoted.
#[derive(Default)]
pub(super) struct Builder {
    chars: Vec<(char, bool)>,
    has_holes: bool,
    is_odd: bool,
    /// It contains a loop's variable whose values are a pattern.
    is_glob: bool,
    is_quoted: bool,
}

impl Builder {
    fn quoted(&mut self, text: &str) {
        self.chars.extend(text.chars().map(|c| (c, true)));
    }

    /// The value of a loop's variable. Unquoted, the shell would take it apart again.
    fn bound(&mut self, value: &Word) {
        let is_whole = !value.text.is_empty() && !value.text.contains([' ', '\t', '\n', '*', '?', '[', '\\']);
        if value.is_glob {
            self.is_glob = true;
            self.is_odd |= !self.is_quoted;
        } else if !self.is_quoted && !is_whole {
            self.has_holes = true;
        }
        self.quoted(&value.text);
    }

    fn hole(&mut self) {
        self.has_holes = true;
        self.chars.push((HOLE, true));
    }

    /// Unquoted text: backslashes quote the next character, a backslash before a newline is nothing.
    fn unquoted(&mut self, text: &str) {
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some('\n') => {}
                    Some(c) => {
                        self.chars.push((c, true));
                    }
                    None => self.is_odd = true,
                },
                '$' | '`' => {
                    self.is_odd = true;
                    self.chars.push((c, false));
                }
                c => self.chars.push((c, false)),
            }
        }
    }

    /// Text between double quotes.
    fn double_quoted(&mut self, text: &str) {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\\' if matches!(chars.peek(), Some('$' | '`' | '"' | '\\')) => {
                    self.chars.extend(chars.next().map(|c| (c, true)));
                }
                '\\' if chars.peek() == Some(&'\n') => {
                    chars.next();
                }
                '$' | '`' => {
                    self.is_odd = true;
                    self.chars.push((c, true));
                }
                c => self.chars.push((c, true)),
            }
        }
    }

    /// The words in it: more than one when the grammar glued some together.
    pub(super) fn finish_all(mut self) -> Vec<Word> {
        let is_loose = |(c, quoted): &(char, bool)| !quoted && c.is_ascii_whitespace();
        if !self.chars.iter().any(is_loose) {
            return vec![self.finish()];
        }
        let chars = std::mem::take(&mut self.chars);
        let parts = chars.split(is_loose).filter(|part| !part.is_empty());
        parts.map(|part| Builder { chars: part.to_vec(), is_odd: true, ..self }.finish()).collect()
    }

    fn finish(self) -> Word {
        let unquoted = |i: usize, c: char| self.chars.get(i) == Some(&(c, false));
        let mut word = Word {
            text: self.chars.iter().map(|(c, _)| *c).collect(),
            has_holes: self.has_holes,
            is_glob: self.is_glob
                || self.chars.iter().any(|(c, quoted)| !quoted && matches!(c, '*' | '?' | '[')),
            is_odd: self.is_odd,
        };
        // `~` and `~/x` are the home folder for every reader; `~user`, `~+` and the like are not literal.
        if unquoted(0, '~') && self.chars.len() > 1 && !unquoted(1, '/') {
            word.has_holes = true;
        }
        let open = self.chars.iter().position(|(c, quoted)| *c == '{' && !quoted);
        if let Some(open) = open {
            let rest = super::tail(&self.chars, open);
            let closes = rest.iter().any(|(c, quoted)| *c == '}' && !quoted);
            let parts = rest.iter().any(|(c, quoted)| *c == ',' && !quoted)
                || rest.windows(2).any(|pair| pair == [('.', false), ('.', false)]);
            if closes && parts {
                word.has_holes = true;
            }
        }
        // Extended globs, and `(` that slipped into a word.
        if self
            .chars
            .iter()
            .any(|(c, quoted)| !quoted && matches!(c, '(' | ')' | '<' | '>' | ';' | '&' | '|'))
        {
            word.is_odd = true;
        }
        word
    }
}

impl Walker<'_> {
    /// Reads a word; commands inside it are found on the way.
    pub(super) fn word(&mut self, node: Node<'_>, out: &mut Analysis) -> Word {
        let mut builder = Builder::default();
        self.piece(node, &mut builder, out);
        builder.finish()
    }

    /// Reads what the grammar calls a word and may be several.
    pub(super) fn words(&mut self, node: Node<'_>, out: &mut Analysis) -> Vec<Word> {
        let mut builder = Builder::default();
        self.piece(node, &mut builder, out);
        let words = builder.finish_all();
        if words.len() != 1 {
            out.bar("the command can be read in two ways");
        }
        words
    }

    fn piece(&mut self, node: Node<'_>, builder: &mut Builder, out: &mut Analysis) {
        let text = self.text(node);
        match node.kind() {
            "word"
            | "number"
            | "variable_name"
            | "special_variable_name"
            | "file_descriptor"
            | "test_operator" => {
                if node.named_child_count() > 0 {
                    builder.hole();
                    self.scan_children(node, out);
                } else {
                    builder.unquoted(text);
                }
            }
            "command_name" | "concatenation" => {
                let mut cursor = node.walk();
                let mut end = node.start_byte();
                for child in node.children(&mut cursor) {
                    if child.start_byte() != end {
                        builder.is_odd = true;
                    }
                    end = child.end_byte();
                    self.piece(child, builder, out);
                }
            }
            "raw_string" => builder.quoted(text.get(1..text.len().saturating_sub(1)).unwrap_or_default()),
            "string" => self.string(node, builder, out),
            "translated_string" => {
                builder.is_odd = true;
                let mut cursor = node.walk();
                for child in node.named_children(&mut cursor) {
                    self.piece(child, builder, out);
                }
            }
            "ansi_c_string" => {
                builder.is_odd = true;
                match ansi_c(text.get(2..text.len().saturating_sub(1)).unwrap_or_default()) {
                    Some(decoded) => builder.quoted(&decoded),
                    None => builder.hole(),
                }
            }
            "extglob_pattern" | "regex" => {
                builder.is_odd = true;
                builder.hole();
                builder.unquoted(text);
            }
            "simple_expansion" | "expansion" if self.value_of(text).is_some() => {
                if let Some(value) = self.value_of(text) {
                    builder.bound(value);
                }
            }
            "simple_expansion"
            | "expansion"
            | "command_substitution"
            | "process_substitution"
            | "arithmetic_expansion"
            | "brace_expression"
            | "array"
            | "subscript" => {
                builder.hole();
                self.scan(node, out);
            }
            _ if !node.is_named() => {
                builder.is_odd = true;
                builder.unquoted(text);
            }
            other => {
                out.cannot_read(format!("`{other}` is not understood inside a word"));
                builder.hole();
                self.scan(node, out);
            }
        }
    }

    fn string(&mut self, node: Node<'_>, builder: &mut Builder, out: &mut Analysis) {
        let (mut at, end) = (node.start_byte() + 1, node.end_byte().saturating_sub(1));
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            if child.kind() == "string_content" {
                continue; // read with the gaps, as one text
            }
            builder.double_quoted(self.slice(at, child.start_byte()));
            if let Some(text) = document::inert(self.text(child)) {
                builder.quoted(&text);
                // A rule about `cat` is asked all the same.
                out.commands.push(Simple {
                    words: vec![Word::literal("cat")],
                    source: "cat".to_owned(),
                    is_inner: true,
                    ..Simple::default()
                });
            } else {
                let outside = std::mem::replace(&mut builder.is_quoted, true);
                self.piece(child, builder, out);
                builder.is_quoted = outside;
            }
            at = child.end_byte();
        }
        builder.double_quoted(self.slice(at, end));
    }
}

/// Decodes the text between `$'` and `'`.
fn ansi_c(text: &str) -> Option<String> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            bytes.extend(c.to_string().as_bytes());
            continue;
        }
        let next = chars.next()?;
        let mut digits = |radix: u32, max: usize, first: Option<char>| {
            let mut text: String = first.into_iter().collect();
            while text.len() < max && chars.peek().is_some_and(|c| c.is_digit(radix)) {
                text.extend(chars.next());
            }
            u32::from_str_radix(&text, radix).ok()
        };
        match next {
            'a' => bytes.push(7),
            'b' => bytes.push(8),
            'e' | 'E' => bytes.push(27),
            'f' => bytes.push(12),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'v' => bytes.push(11),
            c @ ('\\' | '\'' | '"' | '?') => bytes.push(c as u8),
            'x' => bytes.push(digits(16, 2, None)? as u8),
            'u' => bytes.extend(char::from_u32(digits(16, 4, None)?)?.to_string().as_bytes()),
            'U' => bytes.extend(char::from_u32(digits(16, 8, None)?)?.to_string().as_bytes()),
            c @ '0'..='7' => bytes.push(digits(8, 3, Some(c))? as u8),
            // `\cX` and what bash does not know: not worth a guess.
            _ => return None,
        }
    }
    // The shell ends the word at a zero byte.
    if let Some(zero) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(zero);
    }
    String::from_utf8(bytes).ok()
}
