//! A reader of profiles that says what the kernel of macOS would: there is none here to ask.

use regex::Regex;

/// A profile as it was read.
#[derive(Debug)]
pub(super) struct Evaluator {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    allows: bool,
    operations: Vec<String>,
    filters: Vec<Filter>,
}

#[derive(Debug)]
enum Filter {
    Literal(String),
    Subpath(String),
    Regex(Regex),
    All(Vec<Filter>),
    Not(Box<Filter>),
    /// About something else than a path, such as a service; the name of the filter, and its value.
    Other(String, Vec<String>),
}

#[derive(Debug)]
enum Expression {
    Word(String),
    Text(String),
    List(Vec<Expression>),
}

impl Evaluator {
    /// Reads a profile. Panics with what it does not know: a mistake in a profile stops each command.
    pub(super) fn of(profile: &str) -> Evaluator {
        let chars: Vec<char> = profile.chars().collect();
        let mut at = 0;
        let forms = expressions(&chars, &mut at);
        assert_eq!(at, chars.len(), "a parenthesis too many");
        let mut forms = forms.into_iter();
        let version = forms.next().map(|form| format!("{form:?}")).unwrap_or_default();
        assert_eq!(version, r#"List([Word("version"), Word("1")])"#);
        Evaluator { rules: forms.map(Rule::of).collect() }
    }

    /// Whether an operation is allowed on a real path, or on a service, setting or object of this name: the last rule that
    /// matches says it.
    pub(super) fn may(&self, operation: &str, path: &str) -> bool {
        let matching = self.rules.iter().rev().find(|rule| rule.is_about(operation, path));
        matching.is_some_and(|rule| rule.allows)
    }
}

impl Rule {
    fn of(form: Expression) -> Rule {
        let Expression::List(parts) = form else { panic!("no rule: {form:?}") };
        let (mut words, mut filters) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Expression::Word(word) => words.push(word),
                list => filters.push(Filter::of(list)),
            }
        }
        let verdict = words.remove(0);
        assert!(matches!(verdict.as_str(), "allow" | "deny") && !words.is_empty(), "{verdict} {words:?}");
        Rule { allows: verdict == "allow", operations: words, filters }
    }

    fn is_about(&self, operation: &str, path: &str) -> bool {
        let is_operation = |name: &String| match name.strip_suffix('*') {
            Some(start) => operation.starts_with(start),
            None => name == operation || name == "default",
        };
        let is_path = |filter: &Filter| filter.matches(path);
        self.operations.iter().any(is_operation)
            && (self.filters.is_empty() || self.filters.iter().any(is_path))
    }
}

impl Filter {
    fn of(form: Expression) -> Filter {
        let Expression::List(parts) = form else { panic!("no filter: {form:?}") };
        let mut parts = parts.into_iter();
        let Some(Expression::Word(name)) = parts.next() else { panic!("a filter without a name") };
        let rest: Vec<Expression> = parts.collect();
        let text = |rest: &[Expression]| match rest {
            [Expression::Text(text)] => text.clone(),
            other => panic!("{name} {other:?}"),
        };
        match name.as_str() {
            "literal" => Filter::Literal(text(&rest)),
            "subpath" => {
                let path = text(&rest);
                assert!(path.len() == 1 || !path.ends_with('/'), "nothing is below {path}");
                Filter::Subpath(path)
            }
            "regex" => Filter::Regex(Regex::new(&text(&rest)).expect("an expression")),
            "require-all" => Filter::All(rest.into_iter().map(Filter::of).collect()),
            "require-not" => Filter::Not(Box::new(Filter::of(rest.into_iter().next().expect("a filter")))),
            "global-name"
            | "local-name"
            | "target"
            | "extension"
            | "sysctl-name"
            | "sysctl-name-prefix"
            | "ipc-posix-name"
            | "ipc-posix-name-prefix"
            | "ipc-posix-name-regex"
            | "iokit-registry-entry-class"
            | "socket-domain"
            | "socket-protocol" => {
                let values = rest.into_iter().map(|value| match value {
                    Expression::Word(text) | Expression::Text(text) => text,
                    list @ Expression::List(_) => panic!("{name} {list:?}"),
                });
                let values = values.collect();
                Filter::Other(name, values)
            }
            _ => panic!("the filter {name}"),
        }
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Filter::Literal(text) => path == text,
            Filter::Subpath(text) => path
                .strip_prefix(text.trim_end_matches('/'))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            Filter::Regex(regex) => regex.is_match(path),
            Filter::All(filters) => filters.iter().all(|filter| filter.matches(path)),
            Filter::Not(filter) => !filter.matches(path),
            Filter::Other(name, values) => values.iter().any(|value| match name.as_str() {
                "global-name" | "local-name" | "sysctl-name" | "ipc-posix-name" => path == value,
                "sysctl-name-prefix" | "ipc-posix-name-prefix" => path.starts_with(value),
                // A process gets an extension only by what it does, and no test has another process.
                _ => false,
            }),
        }
    }
}

fn expressions(chars: &[char], at: &mut usize) -> Vec<Expression> {
    let mut found = Vec::new();
    while let Some(&c) = chars.get(*at) {
        match c {
            ';' => *at += chars[*at..].iter().position(|c| *c == '\n').unwrap_or(chars.len() - *at),
            '(' => {
                *at += 1;
                found.push(Expression::List(expressions(chars, at)));
                assert_eq!(chars.get(*at), Some(&')'), "a parenthesis is missing");
                *at += 1;
            }
            ')' => break,
            '"' => found.push(Expression::Text(text(chars, at, false))),
            '#' if chars.get(*at + 1) == Some(&'"') => {
                *at += 1;
                found.push(Expression::Text(text(chars, at, true)));
            }
            c if c.is_whitespace() => *at += 1,
            _ => {
                let end = chars[*at..].iter().position(|c| c.is_whitespace() || "()\";".contains(*c));
                let end = *at + end.unwrap_or(chars.len() - *at);
                found.push(Expression::Word(chars[*at..end].iter().collect()));
                *at = end;
            }
        }
    }
    found
}

fn text(chars: &[char], at: &mut usize, is_raw: bool) -> String {
    let mut found = String::new();
    loop {
        *at += 1;
        match chars[*at] {
            '"' => break,
            '\\' if !is_raw => {
                *at += 1;
                found.push(chars[*at]);
            }
            c => found.push(c),
        }
    }
    *at += 1;
    found
}
