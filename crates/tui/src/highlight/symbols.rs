//! Definitions in a file (functions, types and the like), found with the same grammars that highlight it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use syntect::parsing::{ParseState, Scope, ScopeStack};

use super::SYNTAXES;

/// Longer lines are data, not code.
const MAX_LINE: usize = 500;
/// Of one file no more are found.
const MOST: usize = 2_000;
/// No definition is longer.
const MAX_LINES: usize = 200;
/// Words that precede the name of a type in its definition, but not in its uses.
const DEFINES: [&str; 14] = [
    "class",
    "struct",
    "enum",
    "interface",
    "type",
    "trait",
    "union",
    "typedef",
    "record",
    "object",
    "protocol",
    "data",
    "newtype",
    "module",
];

/// Something that a file defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    /// Its line, from one on.
    pub line: usize,
}

/// The scopes that contain names.
struct Scopes {
    functions: Scope,
    names: Vec<Scope>,
    types: Scope,
    calls: Scope,
}

static SCOPES: LazyLock<Scopes> = LazyLock::new(Scopes::new);

/// Returns the definitions in the text of a file of this name; the search ends once `should_continue` returns
/// `false`. Returns `None` if the language is unknown.
pub fn find(file: &str, text: &str, should_continue: impl Fn() -> bool) -> Option<Vec<Symbol>> {
    // A description that makes the parser panic costs the symbols of this file, nothing more.
    catch_unwind(AssertUnwindSafe(|| SCOPES.find(file, text, should_continue))).ok().flatten()
}

impl Scopes {
    fn new() -> Scopes {
        let scope = |name: &str| Scope::new(name).expect("it is short");
        let names = [
            "class",
            "struct",
            "enum",
            "union",
            "trait",
            "interface",
            "macro",
            "constant",
            "namespace",
            "module",
        ];
        Scopes {
            functions: scope("entity.name.function"),
            names: names.map(|kind| scope(&format!("entity.name.{kind}"))).to_vec(),
            types: scope("entity.name.type"),
            calls: scope("meta.function-call"),
        }
    }

    fn find(&self, file: &str, text: &str, should_continue: impl Fn() -> bool) -> Option<Vec<Symbol>> {
        let ending = file.rsplit_once('.').map_or(file, |(_, ending)| ending);
        let syntax = SYNTAXES.find_syntax_by_extension(ending)?;
        let (mut state, mut stack) = (ParseState::new(syntax), ScopeStack::new());
        let mut found = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            if found.len() >= MOST || !should_continue() {
                break;
            }
            if line.len() > MAX_LINE {
                continue;
            }
            let with_end = format!("{line}\n");
            let ops = state.parse_line(&with_end, &SYNTAXES).ok()?;
            let (mut start, mut name) = (0, String::new());
            let end = [(line.len(), None)];
            for (at, op) in ops.into_iter().map(|(at, op)| (at.min(line.len()), Some(op))).chain(end) {
                let piece = line.get(start..at.max(start)).unwrap_or_default();
                if !piece.is_empty() {
                    if self.defines(&stack, line.get(..start).unwrap_or_default()) {
                        name.push_str(piece);
                    } else {
                        take(&mut name, number, &mut found);
                    }
                }
                start = start.max(at);
                if let Some(op) = op {
                    stack.apply(&op).ok()?;
                }
            }
            take(&mut name, number, &mut found);
        }
        Some(found)
    }

    /// Whether text in these scopes is the name of something defined here.
    fn defines(&self, stack: &ScopeStack, before: &str) -> bool {
        let scopes = stack.as_slice();
        let has = |prefix: Scope| scopes.iter().any(|scope| prefix.is_prefix_of(*scope));
        if has(self.functions) {
            return !has(self.calls);
        }
        let last = || before.rsplit(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty());
        let is_defined = || last().is_some_and(|word| DEFINES.contains(&word));
        self.names.iter().any(|name| has(*name)) || (has(self.types) && is_defined())
    }
}

fn take(name: &mut String, line: usize, found: &mut Vec<Symbol>) {
    let name = std::mem::take(name);
    let name = name.trim();
    if !name.is_empty() && name.len() <= 100 && !name.contains(char::is_whitespace) {
        found.push(Symbol { name: name.to_owned(), line });
    }
}

/// Returns the first and the last line, both from 1, of a definition that starts in a line: it ends before a
/// line that is not indented further and closes nothing.
pub fn extent(text: &str, line: usize) -> (usize, usize) {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut rest = text.lines().skip(line.saturating_sub(1));
    let own = rest.next().map_or(0, indent);
    let mut last = line;
    for (next, number) in rest.take(MAX_LINES - 1).zip(line + 1..) {
        let trimmed = next.trim();
        if trimmed.is_empty() || indent(next) > own {
            if !trimmed.is_empty() {
                last = number;
            }
            continue;
        }
        if indent(next) < own {
            break;
        }
        if trimmed.starts_with('}') || trimmed == "end" {
            return (line, number);
        }
        if !trimmed.starts_with([')', ']', '{']) && !trimmed.starts_with("where") {
            break;
        }
        last = number;
    }
    (line, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(file: &str, text: &str) -> Vec<(String, usize)> {
        let found = find(file, text, || true).unwrap_or_default();
        found.into_iter().map(|symbol| (symbol.name, symbol.line)).collect()
    }

    fn are(file: &str, text: &str, expected: &[(&str, usize)]) {
        let expected: Vec<(String, usize)> =
            expected.iter().map(|(name, line)| ((*name).to_owned(), *line)).collect();
        assert_eq!(names(file, text), expected, "{file}");
    }

    #[test]
    fn definitions_are_found_and_uses_are_not() {
        let rust = "use a::B;\n\npub struct Größe<T> {\n    a: Vec<T>,\n}\n\nfn main() {\n    other(B::new());\n}\n\nmacro_rules! m { () => {} }\n";
        are("a.rs", rust, &[("Größe", 3), ("main", 7), ("m", 11)]);
        are("b.py", "class A(B):\n    def run(self):\n        go(1)\n", &[("A", 1), ("run", 2)]);
        are("c.go", "package x\n\nfunc (s *S) Do(n int) {\n\tcall(n)\n}\n", &[("Do", 3)]);
        are(
            "d.ts",
            "interface I { a: T }\nfunction f(x: I): T {\n  return g(x);\n}\nclass K {}\n",
            &[("I", 1), ("f", 2), ("K", 5)],
        );
        are("e.c", "struct s { int a; };\nint f(int a)\n{\n\treturn g(a);\n}\n", &[("s", 1), ("f", 2)]);
        are("f.txt", "fn main\n", &[]);
        assert_eq!(find("x.nonsense", "fn a() {}", || true), None);
        assert_eq!(find("x.rs", "fn a() {}", || false), Some(Vec::new()));
    }

    #[test]
    fn a_definition_ends_where_the_next_item_starts() {
        let text = "fn a(\n    x: u8,\n) -> u8\nwhere\n    u8: Copy,\n{\n    x\n}\n\nfn b() {}\n";
        assert_eq!(extent(text, 1), (1, 8));
        assert_eq!(extent(text, 10), (10, 10));
        let python = "class A:\n    def one(self):\n        x\n\n        y\n\n    def two(self):\n        z\n\nrun()\n";
        assert_eq!((extent(python, 1), extent(python, 2)), ((1, 8), (2, 5)));
        let long = format!("fn a() {{\n{}}}\n", "    x();\n".repeat(1000));
        assert_eq!(extent(&long, 1), (1, MAX_LINES));
        assert_eq!(extent("", 5), (5, 5));
    }
}
