//! The walk over the grammar's tree.

use super::{Analysis, Assignment, Simple, Word};
use tree_sitter::{Node, Parser};

/// Reads `command` and adds its content to the analysis. `inner` marks text from inside another command.
pub(super) fn read(command: &str, inner: bool, out: &mut Analysis) {
    read_text(command, inner, out);
    // The grammar takes a continued line for a blank even inside a word: `r\⏎m`.
    let joined = command.replace("\\\n", "");
    if joined != command {
        let mut broad = Analysis::default();
        read_text(&joined, true, &mut broad);
        out.commands.append(&mut broad.commands);
        out.overwrites |= broad.overwrites;
    }
}

fn read_text(command: &str, inner: bool, out: &mut Analysis) {
    let mut parser = Parser::new();
    if parser.set_language(&tree_sitter_bash::LANGUAGE.into()).is_err() {
        out.cannot_read("the shell grammar cannot be used");
        return;
    }
    // The grammar wants a newline at the end of comments and here-documents.
    let mut text = command.to_owned();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    if text.matches("<<").count() > MAX_HEREDOCS {
        out.cannot_read("the command has too many here-documents");
        return;
    }
    let Some(tree) = parser.parse(plain_ascii(&text), None) else {
        out.cannot_read("the command cannot be parsed");
        return;
    };
    let mut walker = Walker {
        source: &text,
        inner: usize::from(inner),
        depth: 0,
        heredocs: 0,
        messages: 0,
        bindings: Vec::new(),
        turns: 0,
    };
    let root = tree.root_node();
    if root.has_error() {
        out.cannot_read("the command has a syntax error");
    }
    walker.children(root, out);
    if walker.heredocs > walker.messages {
        out.bar("a here-document, which only `cat` and a message such as `git commit -F -` may have");
    }
    out.starts_with_cd |= !inner && walker.starts_with_cd(root);
    if let Some(lost) = lost_text(root, &text) {
        out.cannot_read(format!("`{lost}` is not understood here"));
    }
}

/// More `<<` than this are not handed to the grammar, whose scanner keeps them in a small buffer.
const MAX_HEREDOCS: usize = 16;

/// The text with every foreign or control character as letters, byte for byte as long.
///
/// To a shell they are letters too, so the tree is the same; the grammar's scanner looks them up in a table for ASCII
/// and reads beyond its end.
fn plain_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' || c == '\t' || (' '..='~').contains(&c) {
            out.push(c);
        } else {
            out.extend(std::iter::repeat_n('z', c.len_utf8()));
        }
    }
    // The grammar loses a `-` in front of a here-document (`git commit -F - <<'EOF'`), and keeps a letter.
    for (at, _) in out.clone().match_indices(" - ") {
        if out[at + 3..].trim_start_matches(' ').starts_with("<<") {
            out.replace_range(at + 1..at + 2, "z");
        }
    }
    out
}

/// Returns the first text that no leaf of the tree covers, except for spaces and continued lines: the grammar
/// drops words in a few places, and a dropped word must not count as read.
fn lost_text<'t>(root: Node<'_>, text: &'t str) -> Option<&'t str> {
    let mut cursor = root.walk();
    let mut at = 0;
    loop {
        let node = cursor.node();
        let is_terminal =
            node.child_count() == 0 || matches!(node.kind(), "string" | "heredoc_body" | "expansion");
        if is_terminal {
            let gap = text.get(at..node.start_byte()).unwrap_or_default();
            if let Some(lost) = gap.split_whitespace().find(|part| *part != "\\") {
                return Some(lost);
            }
            at = at.max(node.end_byte());
        }
        if !is_terminal && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return text.get(at..).unwrap_or_default().split_whitespace().find(|part| *part != "\\");
            }
        }
    }
}

/// The tree's source and how deep inside other things the walk is.
pub(super) struct Walker<'a> {
    source: &'a str,
    inner: usize,
    depth: usize,
    heredocs: usize,
    /// Those that are a commit message. Any other is input that no rule saw: `git apply`, `sh` and many more act on it.
    messages: usize,
    /// The variables of the loops around the walk, with their values in this turn.
    bindings: Vec<(String, Word)>,
    /// The turns of all loops so far.
    turns: usize,
}

/// Turns of loops that are looked at one by one.
const MAX_TURNS: usize = 64;

/// Maximum depth of a tree that is walked: real commands are never deeper, and the stack is finite.
const MAX_TREE_DEPTH: usize = 200;

impl<'a> Walker<'a> {
    pub(super) fn text(&self, node: Node<'_>) -> &'a str {
        self.slice(node.start_byte(), node.end_byte())
    }

    pub(super) fn slice(&self, from: usize, to: usize) -> &'a str {
        self.source.get(from..to).unwrap_or_default()
    }

    /// Returns whether the program is one list of `cd FOLDER` and the commands that follow it after `&&`.
    fn starts_with_cd(&self, root: Node<'_>) -> bool {
        let mut cursor = root.walk();
        let mut parts = root.children(&mut cursor).filter(|node| node.kind() != "comment");
        let Some(mut node) = parts.next() else { return false };
        // A newline or `;` may end the line; `&` and a second statement may not.
        if parts.any(|node| !matches!(node.kind(), "\n" | ";")) {
            return false;
        }
        loop {
            match node.kind() {
                "list" if (1..node.child_count()).all(|i| is_and_or_statement(node, i)) => {}
                "redirected_statement" if node.child(0).is_some_and(|body| body.kind() == "list") => {}
                "command" => return self.text(node).split_whitespace().next() == Some("cd"),
                _ => return false,
            }
            let Some(first) = node.child(0) else { return false };
            node = first;
        }
    }

    fn children(&mut self, node: Node<'_>, out: &mut Analysis) {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            self.statement(child, out);
        }
    }

    /// Finds commands inside a construct that may not be allowed automatically.
    pub(super) fn scan(&mut self, node: Node<'_>, out: &mut Analysis) {
        out.bar(barred(node.kind(), self.text(node)));
        self.scan_children(node, out);
    }

    pub(super) fn scan_children(&mut self, node: Node<'_>, out: &mut Analysis) {
        self.inner += 1;
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            self.statement(child, out);
        }
        self.inner -= 1;
    }

    fn statement(&mut self, node: Node<'_>, out: &mut Analysis) {
        if self.depth > MAX_TREE_DEPTH {
            out.cannot_read("the command is nested too deeply");
            return;
        }
        self.depth += 1;
        self.statement_at(node, out);
        self.depth -= 1;
    }

    fn statement_at(&mut self, node: Node<'_>, out: &mut Analysis) {
        if node.is_missing() {
            out.cannot_read("the command has a syntax error");
            return;
        }
        match node.kind() {
            "comment" => {}
            "program" | "list" | "pipeline" | "subshell" | "negated_command" => self.children(node, out),
            "compound_statement" => {
                if self.text(node).starts_with("((") {
                    self.scan(node, out);
                } else {
                    self.children(node, out);
                }
            }
            "command" => self.command(node, out),
            "redirected_statement" => self.redirected(node, out),
            "variable_assignment" | "variable_assignments" => self.bare_assignments(node, out),
            "declaration_command" | "unset_command" => self.declaration(node, out),
            "test_command" => self.test(node, out),
            "file_redirect" | "heredoc_redirect" | "herestring_redirect" => {
                self.redirect(node, None, out);
            }
            "function_definition" => {
                out.undecide("a function is defined");
                // A rule may be about the definition itself: a fork bomb is one.
                out.commands.push(Simple {
                    source: self.text(node).to_owned(),
                    is_inner: true,
                    ..Simple::default()
                });
                self.scan(node, out);
            }
            "if_statement" | "elif_clause" | "else_clause" | "while_statement" | "do_group" => {
                out.is_compound = true;
                self.children(node, out);
            }
            "for_statement" => self.each_turn(node, out),
            // Constructs and expressions that are understood, but not allowed by themselves.
            "c_style_for_statement"
            | "case_statement"
            | "case_item"
            | "command_substitution"
            | "process_substitution"
            | "arithmetic_expansion"
            | "expansion"
            | "simple_expansion"
            | "subscript"
            | "array"
            | "binary_expression"
            | "unary_expression"
            | "postfix_expression"
            | "ternary_expression"
            | "parenthesized_expression"
            | "brace_expression" => self.scan(node, out),
            "string" | "concatenation" | "translated_string" | "heredoc_body" => {
                self.scan_children(node, out);
            }
            "word"
            | "number"
            | "raw_string"
            | "ansi_c_string"
            | "string_content"
            | "variable_name"
            | "special_variable_name"
            | "test_operator"
            | "regex"
            | "extglob_pattern"
            | "file_descriptor"
            | "heredoc_start"
            | "heredoc_content"
            | "heredoc_end" => {
                if self.inner == 0 {
                    out.cannot_read("the command has a stray word");
                }
                self.scan_children(node, out);
            }
            "ERROR" => {
                out.cannot_read("the command has a syntax error");
                self.scan_children(node, out);
            }
            _ if !node.is_named() => self.token(node, out),
            other => {
                out.cannot_read(format!("`{other}` is not understood"));
                self.scan_children(node, out);
            }
        }
    }

    /// Reports a token as unreadable unless it is an operator between commands: all others are handled by the
    /// node that contains them.
    fn token(&self, node: Node<'_>, out: &mut Analysis) {
        let known = [
            ";", "&&", "||", "|", "|&", "&", "\n", "(", ")", "{", "}", "!", "if", "then", "elif", "else",
            "fi", "while", "until", "do", "done",
        ];
        if self.inner == 0 && !known.contains(&node.kind()) {
            out.cannot_read(format!("`{}` is not understood here", node.kind()));
        }
    }

    /// Walks through the body of `for NAME in VALUES` once for each value. A deny rule also sees the body with an unknown
    /// value, because the body may change the variable.
    fn each_turn(&mut self, node: Node<'_>, out: &mut Analysis) {
        let mut broad = Analysis::default();
        let bindings = std::mem::take(&mut self.bindings);
        self.scan_children(node, &mut broad);
        self.bindings = bindings;
        out.commands.append(&mut broad.commands);
        out.redirects.append(&mut broad.redirects);
        out.overwrites |= broad.overwrites;
        out.unreadable = out.unreadable.take().or(broad.unreadable);
        out.undecided = out.undecided.take().or(broad.undecided);
        if self.inner > 0 {
            out.bar(barred(node.kind(), self.text(node)));
            return;
        }
        // A loop over the variable of one around it changes that one's value.
        let header =
            self.header(node, out).filter(|(name, ..)| self.bindings.iter().all(|(bound, _)| bound != name));
        let Some((name, values, body)) = header else {
            out.bar(barred(node.kind(), self.text(node)));
            return;
        };
        out.is_compound = true;
        for value in values {
            self.turns += 1;
            if self.turns > MAX_TURNS {
                out.bar("a loop with too many turns");
                return;
            }
            self.bindings.push((name.clone(), value));
            self.children(body, out);
            self.bindings.pop();
        }
    }

    /// The variable, the values and the body of a loop whose values the line spells out.
    fn header<'n>(&mut self, node: Node<'n>, out: &mut Analysis) -> Option<(String, Vec<Word>, Node<'n>)> {
        let (mut name, mut values, mut body, mut has_values) = (None, Vec::new(), None, false);
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "for" | ";" | "\n" => {}
                "variable_name" if name.is_none() => name = Some(self.text(child).to_owned()),
                "in" => has_values = true,
                "do_group" => body = Some(child),
                _ if has_values && body.is_none() => values.push(self.word(child, out)),
                _ => return None,
            }
        }
        // Names in capitals are those of variables that programs read.
        let is_plain = |name: &String| {
            name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        let is_known = |word: &Word| !word.has_holes && !word.is_odd;
        let name = name.filter(is_plain)?;
        (!values.is_empty() && values.iter().all(is_known)).then_some((name, values, body?))
    }

    /// The value of a loop's variable in this turn, for `$NAME` or `${NAME}`.
    pub(super) fn value_of(&self, expansion: &str) -> Option<&Word> {
        let name = expansion.strip_prefix('$')?;
        let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
        self.bindings.iter().rev().find(|(bound, _)| bound == name).map(|(_, value)| value)
    }

    fn simple(&self, node: Node<'_>) -> Simple {
        Simple {
            source: self.text(node).trim_end().to_owned(),
            is_inner: self.inner > 0,
            ..Simple::default()
        }
    }

    fn command(&mut self, node: Node<'_>, out: &mut Analysis) {
        let mut simple = self.simple(node);
        let mut cursor = node.walk();
        let mut has_document = false;
        for child in node.children(&mut cursor) {
            match child.kind() {
                "variable_assignment" => simple.assignments.push(self.assignment(child, out)),
                "file_redirect" | "heredoc_redirect" | "herestring_redirect" => {
                    self.redirect(child, Some(&mut simple), out);
                }
                "subshell" => {
                    out.cannot_read("a subshell stands where a word is expected");
                    self.scan(child, out);
                }
                "comment" => {}
                _ => {
                    let mut words = self.words(child, out);
                    simple.words.append(&mut words);
                }
            }
            has_document |= child.kind() == "heredoc_redirect";
        }
        self.messages += usize::from(has_document && takes_message(&simple));
        out.commands.push(simple);
    }

    fn assignment(&mut self, node: Node<'_>, out: &mut Analysis) -> Assignment {
        let value_node = node.child_by_field_name("value");
        let name_node = node.child_by_field_name("name");
        if let Some(name) = name_node
            && name.kind() == "subscript"
        {
            self.scan(name, out);
        }
        // The text between the name and the value is `=` or `+=`.
        let end = value_node.map_or(node.end_byte(), |value| value.start_byte());
        let head = self.slice(node.start_byte(), end);
        let name = head.strip_suffix('=').unwrap_or(head).to_owned();
        let plain = name.split(['[', '+']).next().unwrap_or_default();
        if self.bindings.iter().any(|(bound, _)| bound == plain) {
            out.bar(format!("`{plain}` changes in the loop"));
        }
        let value = match value_node {
            Some(value) if value.kind() == "variable_assignment" => {
                out.bar("an assignment in an assignment");
                Word { has_holes: true, ..Word::default() }
            }
            Some(value) => self.word(value, out),
            None => Word::default(),
        };
        Assignment { name, value }
    }

    fn bare_assignments(&mut self, node: Node<'_>, out: &mut Analysis) {
        let mut simple = self.simple(node);
        if node.kind() == "variable_assignment" {
            simple.assignments.push(self.assignment(node, out));
        } else {
            let mut cursor = node.walk();
            for child in node.named_children(&mut cursor) {
                simple.assignments.push(self.assignment(child, out));
            }
        }
        out.commands.push(simple);
    }

    /// `export`, `declare`, `unset` and their like change what later words mean.
    fn declaration(&mut self, node: Node<'_>, out: &mut Analysis) {
        let mut simple = self.simple(node);
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            let word = match child.kind() {
                "variable_assignment" => {
                    let assignment = self.assignment(child, out);
                    let mut value = assignment.value;
                    value.text = format!("{}={}", assignment.name, value.text);
                    value
                }
                _ => self.word(child, out),
            };
            simple.words.push(word);
        }
        let name = simple.words.first().map_or("a declaration", |word| &word.text).to_owned();
        out.bar(format!("`{name}` changes what the rest of the line means"));
        out.commands.push(simple);
    }

    fn test(&mut self, node: Node<'_>, out: &mut Analysis) {
        let mut simple = self.simple(node);
        if !simple.source.starts_with("[[") && simple.source.starts_with('[') {
            let mut words = Some(Vec::new());
            self.operands(node, &mut words, out);
            if let Some(words) = words {
                simple.words = words;
                out.commands.push(simple);
                return;
            }
        }
        simple.words = simple.source.split_whitespace().map(Word::literal).collect();
        for word in &mut simple.words {
            word.is_odd = true;
            word.has_holes = word.text.contains(['$', '`']);
        }
        out.bar("a test in brackets");
        out.commands.push(simple);
        self.scan_children(node, out);
    }

    /// The words of a test in single brackets, which is a command like any other; none if it has an operator of its own.
    fn operands(&mut self, node: Node<'_>, words: &mut Option<Vec<Word>>, out: &mut Analysis) {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "binary_expression" | "unary_expression" => self.operands(child, words, out),
                "word" | "number" | "string" | "raw_string" | "concatenation" | "simple_expansion"
                | "expansion" | "test_operator" => {
                    let word = self.word(child, out);
                    if let Some(words) = words {
                        words.push(word);
                    }
                }
                token @ ("[" | "]" | "=" | "==" | "!=" | "!") => {
                    if let Some(words) = words {
                        words.push(Word::literal(token));
                    }
                }
                _ => *words = None,
            }
        }
    }

    fn redirected(&mut self, node: Node<'_>, out: &mut Analysis) {
        let mut cursor = node.walk();
        let (mut last, mut ends_plainly) = (None, false);
        let mut has_document = false;
        for child in node.children(&mut cursor) {
            has_document |= child.kind() == "heredoc_redirect";
            match child.kind() {
                "file_redirect" | "heredoc_redirect" | "herestring_redirect" => {
                    // Words may follow a redirect; they belong to the command in front of it.
                    let mut extra = Simple::default();
                    self.redirect(child, Some(&mut extra), out);
                    if !extra.words.is_empty() {
                        out.bar("words after a redirect");
                        if let Some(index) = last
                            && let Some(command) = out.commands.get_mut(index)
                        {
                            let command: &mut Simple = command;
                            command.words.append(&mut extra.words);
                        } else {
                            extra.is_inner = self.inner > 0;
                            out.commands.push(extra);
                        }
                    }
                }
                _ => {
                    self.statement(child, out);
                    last = out.commands.len().checked_sub(1);
                    ends_plainly = ends_in_command(child);
                }
            }
        }
        let owner = last.and_then(|index| out.commands.get(index)).filter(|_| ends_plainly);
        self.messages += usize::from(has_document && owner.is_some_and(takes_message));
    }

    /// Only `/dev/null` and merging the two standard streams need no question.
    fn redirect(&mut self, node: Node<'_>, owner: Option<&mut Simple>, out: &mut Analysis) {
        match node.kind() {
            "file_redirect" => self.file_redirect(node, owner, out),
            "herestring_redirect" => self.scan(node, out),
            _ => self.heredoc(node, owner, out),
        }
    }

    fn file_redirect(&mut self, node: Node<'_>, owner: Option<&mut Simple>, out: &mut Analysis) {
        let mut cursor = node.walk();
        let mut operator = "";
        let mut targets = Vec::new();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "file_descriptor" => {}
                _ if !child.is_named() && operator.is_empty() => operator = child.kind(),
                _ => {
                    let word = self.word(child, out);
                    targets.push(word);
                }
            }
        }
        let mut targets = targets.into_iter();
        let target = targets.next().unwrap_or_default();
        let rest: Vec<Word> = targets.collect();
        let harmless = target.is_literal()
            && match operator {
                ">" | ">>" | "&>" | "&>>" | "<" | ">|" => target.text == "/dev/null",
                ">&" => matches!(target.text.as_str(), "1" | "2" | "/dev/null"),
                _ => false,
            };
        if !harmless {
            out.bar(format!("`{}` is a redirect", self.text(node).trim()));
            let is_stream = operator == ">&" && target.text.chars().all(|c| c.is_ascii_digit() || c == '-');
            out.overwrites |= matches!(operator, ">" | ">|" | "&>" | ">&") && !is_stream;
            if !is_stream {
                out.redirects.push((target, operator.contains('>')));
            }
        }
        if let Some(owner) = owner {
            owner.words.extend(rest);
        } else if !rest.is_empty() {
            out.commands.push(Simple { words: rest, is_inner: self.inner > 0, ..Simple::default() });
        }
    }

    /// Reads a here-document, which is literal if its delimiter is quoted in one of the simple ways. Its end
    /// is searched again by hand, because two readers of bash disagree there most easily.
    fn heredoc(&mut self, node: Node<'_>, owner: Option<&mut Simple>, out: &mut Analysis) {
        self.heredocs += 1;
        let (mut start, mut body, mut end) = ("", "", "");
        let mut simple_shape = true;
        let mut words = Vec::new();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "heredoc_start" => start = self.text(child),
                "heredoc_body" => {
                    body = self.text(child);
                    self.scan_children(child, out);
                }
                "heredoc_end" => end = self.text(child).trim(),
                "<<" | "<<-" => simple_shape &= child.kind() == "<<",
                "\n" => {}
                "file_redirect" | "herestring_redirect" => {
                    simple_shape = false;
                    self.redirect(child, None, out);
                }
                "word"
                | "string"
                | "raw_string"
                | "concatenation"
                | "number"
                | "simple_expansion"
                | "expansion"
                | "ansi_c_string"
                | "command_substitution"
                | "translated_string"
                | "process_substitution"
                | "arithmetic_expansion"
                | "brace_expression" => {
                    simple_shape = false;
                    let word = self.word(child, out);
                    words.push(word);
                }
                // `cat <<'EOF' | wc`: the rest of the line is inside the redirect.
                "pipeline" => self.statement(child, out),
                _ => {
                    simple_shape = false;
                    self.statement(child, out);
                }
            }
        }
        if !words.is_empty() {
            match owner {
                Some(owner) => owner.words.append(&mut words),
                None => {
                    out.commands.push(Simple { words, is_inner: self.inner > 0, ..Simple::default() });
                }
            }
        }
        let bare = unquoted_delimiter(start);
        let is_plain =
            |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let closed = bare.is_some_and(|(word, _)| is_plain(word) && word == end);
        let literal = matches!(bare, Some((_, true)));
        let ends_early = bare.is_some_and(|(word, _)| body.lines().any(|line| line == word));
        if !(simple_shape && closed && literal && !ends_early && self.heredocs == 1) {
            out.bar("a here-document that is not plainly literal");
        }
        if bare.is_none_or(|(word, _)| !is_plain(word)) {
            out.cannot_read("the end of the here-document is not certain");
        }
    }
}

/// Returns whether a child of a list is `&&`, or no operator at all.
fn is_and_or_statement(list: Node<'_>, index: usize) -> bool {
    list.child(index).is_some_and(|child| child.is_named() || matches!(child.kind(), "&&" | "\n"))
}

/// Returns whether a redirect after this statement belongs to its last simple command alone.
fn ends_in_command(statement: Node<'_>) -> bool {
    match statement.kind() {
        "command" => true,
        "list" => statement.child(statement.child_count().saturating_sub(1)).is_some_and(ends_in_command),
        _ => false,
    }
}

/// True for the commands that may read a here-document: one that prints it, and those that write a message down.
fn takes_message(command: &Simple) -> bool {
    let texts = command.texts();
    if matches!(texts.as_slice(), ["cat"] | ["cat", "-"]) {
        return true;
    }
    let [program, sub, rest @ ..] = texts.as_slice() else { return false };
    let names_stdin = |pair: &[&str]| matches!(pair, ["-F" | "--file" | "--body-file" | "--notes-file", "-"]);
    let is_glued = |word: &&str| matches!(*word, "-F-" | "--file=-" | "--body-file=-" | "--notes-file=-");
    matches!((*program, *sub), ("git", "commit" | "tag") | ("gh", "pr" | "issue" | "release"))
        && (rest.iter().any(is_glued) || rest.windows(2).any(names_stdin))
}

/// The delimiter's text and whether it was quoted; nothing when it is built from parts.
fn unquoted_delimiter(start: &str) -> Option<(&str, bool)> {
    let inside = |quote: char| {
        let inner = start.strip_prefix(quote)?.strip_suffix(quote)?;
        Some((inner, true))
    };
    if let Some(found) = inside('\'').or_else(|| inside('"')) {
        return Some(found);
    }
    if start.contains(['\'', '"', '\\', '$']) {
        return None;
    }
    Some((start, false))
}

/// Describes the part of a line that keeps it from being allowed automatically.
fn barred(kind: &str, text: &str) -> String {
    let what = match kind {
        "command_substitution" => "a command substitution",
        "process_substitution" => "a process substitution",
        "arithmetic_expansion" => "an arithmetic expansion",
        "simple_expansion" | "expansion" => "a variable",
        "brace_expression" => "a brace expansion",
        "herestring_redirect" => "a here-string",
        "function_definition" => "a function definition",
        "compound_statement" => "an arithmetic command",
        "for_statement" | "c_style_for_statement" | "while_statement" => "a loop",
        "if_statement" => "a condition",
        "case_statement" => "a choice",
        _ => "not a plain command",
    };
    const MAX_CHARS: usize = 40;
    let line = super::visible(text.lines().next().unwrap_or_default().trim());
    let is_cut = text.trim().contains('\n') || line.chars().count() > MAX_CHARS;
    let end = line.char_indices().nth(MAX_CHARS).map_or(line.len(), |(end, _)| end);
    format!("`{}{}` is {what}", &line[..end], if is_cut { "…" } else { "" })
}
