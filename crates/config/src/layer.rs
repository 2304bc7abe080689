//! One source of settings, checked against the schema: values with their origin, and problems with their place.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Value};

use super::kinds::OtherKind;
use super::schema::{self, Fields, Leaf, Node, ProjectMay, SettingField};
use aye_core::contract::display::{shortened, visible_line};

/// A dotted key as its parts, such as `["models", "gpt-4.1", "price", "input"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Vec<String>);

impl Key {
    pub(crate) fn of(dotted: &str) -> Self {
        Self(dotted.split('.').map(str::to_owned).collect())
    }

    /// The key of a part of this one.
    pub(crate) fn with(&self, part: &str) -> Self {
        Self(self.0.iter().map(String::as_str).chain([part]).map(str::to_owned).collect())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.0.iter().enumerate() {
            let is_bare =
                !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
            let dot = if i == 0 { "" } else { "." };
            if is_bare {
                write!(f, "{dot}{part}")?;
            } else {
                write!(f, "{dot}\"{}\"", part.escape_debug())?;
            }
        }
        Ok(())
    }
}

/// The origin of a value or a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// A place in a file; line and column count from 1, and 0 means the file as a whole.
    File {
        path: PathBuf,
        line: usize,
        /// The column, in characters.
        column: usize,
    },
    Env(String),
    /// A flag of the command line, as it was typed.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line: 0, .. } => f.write_str(&visible_line(&path.to_string_lossy())),
            Self::File { path, line, column } => {
                write!(f, "{}:{line}:{column}", visible_line(&path.to_string_lossy()))
            }
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Flag(flag) => f.write_str(&visible_line(flag)),
        }
    }
}

/// Something wrong in one source of settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {message}")]
pub struct Problem {
    /// The location of the problem.
    pub origin: Origin,
    /// The problem and the expected value.
    pub message: String,
}

#[derive(Clone, Debug)]
pub(crate) struct LayerEntry {
    pub key: Key,
    pub value: Value,
    pub origin: Origin,
    pub project: ProjectMay,
    pub leaf: Leaf,
    /// The line and column of each part of the value in its file, by JSON pointer.
    places: BTreeMap<String, (usize, usize)>,
}

impl LayerEntry {
    /// An entry that is not from a file.
    pub(crate) fn new(key: Key, value: Value, origin: Origin, (field, leaf): (&SettingField, Leaf)) -> Self {
        Self { key, value, origin, project: field.project, leaf, places: BTreeMap::new() }
    }

    /// The origin of the part that a JSON pointer leads to, or of the nearest one above it.
    pub(crate) fn origin_of(&self, mut pointer: &str) -> Origin {
        loop {
            if let (Some((line, column)), Origin::File { path, .. }) =
                (self.places.get(pointer), &self.origin)
            {
                return Origin::File { path: path.clone(), line: *line, column: *column };
            }
            match pointer.rfind('/') {
                Some(end) => pointer = &pointer[..end],
                None => return self.origin.clone(),
            }
        }
    }
}

/// The joined values of all layers.
pub(crate) type Values = BTreeMap<Key, LayerEntry>;

/// All that one source says.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingsLayer {
    pub entries: Vec<LayerEntry>,
    pub problems: Vec<Problem>,
}

/// The line and column, counted from 1, of a byte offset.
pub(crate) fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// A settings file and its text.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
    /// The bytes of a byte order mark.
    skipped: usize,
}

impl Source<'_> {
    fn place(&self, offset: usize) -> (usize, usize) {
        line_column(self.text, offset + self.skipped)
    }

    fn at(&self, offset: usize) -> Origin {
        let (line, column) = self.place(offset);
        Origin::File { path: self.path.to_path_buf(), line, column }
    }

    /// Reads a rule of a policy.
    fn rule(&self, value: &Spanned<DeValue<'_>>) -> Option<PolicyRule> {
        let line = u64::try_from(self.place(value.span().start).0).ok()?;
        let rule = serde_json::to_value(owned(value).ok()?).ok()?;
        rule.is_object().then_some(PolicyRule { rule, line })
    }

    /// Notes the places of the parts of a value.
    fn note(&self, value: &DeValue<'_>, pointer: &str, places: &mut BTreeMap<String, (usize, usize)>) {
        let mut part = |name: &str, start: usize, value: &DeValue<'_>| {
            let pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
            self.note(value, &pointer, places);
            places.insert(pointer, self.place(start));
        };
        if let Some(table) = value.as_table() {
            table.iter().for_each(|(name, value)| part(name.get_ref(), name.span().start, value.get_ref()));
        }
        for (i, item) in value.as_array().into_iter().flatten().enumerate() {
            part(&i.to_string(), item.span().start, item.get_ref());
        }
    }
}

/// Converts a parsed value, or returns what was found instead of a value.
fn owned(value: &Spanned<DeValue<'_>>) -> Result<Value, OtherKind> {
    Value::deserialize(ValueDeserializer::from(value.clone())).map_err(|_| match value.get_ref() {
        DeValue::Integer(number) => OtherKind::Value(format!("the number {number}")),
        _ => OtherKind::Hidden("an invalid TOML value"),
    })
}

/// One rule of a policy, as a permissions file has it.
#[derive(Clone, Debug)]
pub(crate) struct PolicyRule {
    pub rule: serde_json::Value,
    pub line: u64,
}

/// The parts of a policy.
#[derive(Default)]
pub(crate) struct PolicyText {
    pub settings: SettingsLayer,
    pub models: Option<Vec<String>>,
    pub rules: Vec<PolicyRule>,
    pub problems: Vec<Problem>,
}

impl PolicyText {
    pub(crate) fn read(path: &Path, text: &str) -> Self {
        let mut policy = Self::default();
        let parsed = parsed(path, text, |table, source| {
            for (name, value) in table {
                let wrong = match (name.get_ref().as_ref(), value.get_ref()) {
                    ("settings", DeValue::Table(settings)) => {
                        policy.settings.table(settings, schema::ROOT, &Key::default(), source);
                        continue;
                    }
                    ("models", DeValue::Array(models)) => {
                        let names: Option<Vec<String>> = models
                            .iter()
                            .map(|name| {
                                name.get_ref().as_str().filter(|name| name.contains('/')).map(str::to_owned)
                            })
                            .collect();
                        if names.is_some() {
                            policy.models = names;
                            continue;
                        }
                        MODELS
                    }
                    ("rules", DeValue::Array(rules)) => {
                        let rules: Option<Vec<PolicyRule>> =
                            rules.iter().map(|rule| source.rule(rule)).collect();
                        if let Some(rules) = rules {
                            policy.rules = rules;
                            continue;
                        }
                        RULES
                    }
                    ("settings", _) => "`settings` must be a table, written [settings]",
                    ("models", _) => MODELS,
                    ("rules", _) => RULES,
                    _ => "unknown key; a policy has `models`, [settings] and [[rules]]",
                };
                let origin = source.at(name.span().start);
                policy.problems.push(Problem { origin, message: wrong.to_owned() });
            }
        });
        policy.problems.extend(parsed.err());
        policy
    }
}

const MODELS: &str =
    "`models` must be a list of PROVIDER/MODEL such as [\"anthropic/*\"], in which `*` is any text";
const RULES: &str = "`rules` must be tables, written [[rules]], each with `tool` and `behavior`";

/// Parses a file, and hands its table on.
fn parsed(path: &Path, text: &str, read: impl FnOnce(&DeTable<'_>, &Source<'_>)) -> Result<(), Problem> {
    // The parser takes a byte order mark for a part of the first key.
    let (skipped, body) = text.strip_prefix('\u{feff}').map_or((0, text), |rest| (3, rest));
    let source = Source { path, text, skipped };
    match DeTable::parse(body) {
        Ok(table) => {
            read(table.get_ref(), &source);
            Ok(())
        }
        Err(error) => {
            let origin = source.at(error.span().map_or(0, |span| span.start));
            Err(Problem { origin, message: syntax_message(error.message()) })
        }
    }
}

impl SettingsLayer {
    /// Reads the text of a settings file.
    pub(crate) fn from_toml(path: &Path, text: &str) -> Self {
        let mut layer = Self::default();
        let parsed =
            parsed(path, text, |table, source| layer.table(table, schema::ROOT, &Key::default(), source));
        layer.problems.extend(parsed.err());
        layer
    }

    fn table(&mut self, table: &DeTable<'_>, fields: Fields, path: &Key, source: &Source<'_>) {
        for (name, value) in table {
            let key = path.with(name.get_ref());
            let Some(field) = fields.iter().find(|field| field.name == name.get_ref()) else {
                let message = schema::unknown_key(&key, fields, name.get_ref());
                self.problems.push(Problem { origin: source.at(name.span().start), message });
                continue;
            };
            match (field.node, value.get_ref().as_table()) {
                (Node::Leaf(leaf), _) => self.leaf(key, value, field, leaf, name.span().start, source),
                (_, None) => self.not_a_table(&key, value, source),
                (Node::Table(fields), Some(table)) => self.table(table, fields, &key, source),
                (Node::Named(fields), Some(names)) => self.named(names, fields, &key, source),
                (Node::Each(leaf), Some(names)) => {
                    for (name, value) in names {
                        let key = key.with(name.get_ref());
                        self.leaf(key, value, field, leaf, name.span().start, source);
                    }
                }
            }
        }
    }

    fn leaf(
        &mut self,
        key: Key,
        value: &Spanned<DeValue<'_>>,
        field: &SettingField,
        leaf: Leaf,
        start: usize,
        source: &Source<'_>,
    ) {
        match owned(value).and_then(|value| (leaf.check)(&value).map(|()| value)) {
            Ok(found) => {
                let mut entry = LayerEntry::new(key, found, source.at(start), (field, leaf));
                // Other code reads these, and reports problems by the place of a part.
                if let Node::Each(_) = field.node {
                    source.note(value.get_ref(), "", &mut entry.places);
                }
                self.entries.push(entry);
            }
            Err(found) => {
                let message = format!("`{key}` must be {}, not {found}", (leaf.expected)());
                self.problems.push(Problem { origin: source.at(value.span().start), message });
            }
        }
    }

    fn named(&mut self, names: &DeTable<'_>, fields: Fields, path: &Key, source: &Source<'_>) {
        for (name, value) in names {
            let key = path.with(name.get_ref());
            let mut problem = |message| {
                self.problems.push(Problem { origin: source.at(name.span().start), message });
            };
            match value.get_ref().as_table() {
                _ if name.get_ref().trim().is_empty() || name.get_ref().chars().any(char::is_control) => {
                    problem(format!("`{key}` has an empty name or one with control characters"));
                }
                Some(table) => self.table(table, fields, &key, source),
                // `[providers] base_url = "..."`: the name between is missing, which is worth its own words.
                None if fields.iter().any(|field| field.name == name.get_ref()) => problem(format!(
                    "`{key}` needs a name; write [{path}.NAME] and put `{}` below it",
                    name.get_ref()
                )),
                None => self.not_a_table(&key, value, source),
            }
        }
    }

    fn not_a_table(&mut self, key: &Key, found: &Spanned<DeValue<'_>>, source: &Source<'_>) {
        let origin = source.at(found.span().start);
        let found = owned(found).map_or_else(|found| found, |value| OtherKind::of(&value));
        let message = format!("`{key}` must be a table, written [{key}], not {found}");
        self.problems.push(Problem { origin, message });
    }

    /// Adds one key from outside a file; `raw` is TOML, or a bare string where a string is expected.
    pub(crate) fn add(&mut self, key: Key, raw: &str, origin: Origin) {
        match Self::entry(key, raw, &origin) {
            Ok(entry) => self.entries.push(entry),
            Err(message) => self.problems.push(Problem { origin, message }),
        }
    }

    fn entry(key: Key, raw: &str, origin: &Origin) -> Result<LayerEntry, String> {
        let (field, leaf) = schema::lookup(&key)?;
        let raw = raw.trim();
        if raw.is_empty() {
            return Err(format!("`{key}` has no value; it must be {}", (leaf.expected)()));
        }
        let check = |value: Value| (leaf.check)(&value).map(|()| value);
        let is_quoted = raw.starts_with(['"', '\'']);
        let value = match raw.parse::<Value>() {
            // `--config model=4` means the text.
            Ok(value) if !is_quoted => check(value).or_else(|found| check(raw.into()).map_err(|_| found)),
            Ok(value) => check(value),
            Err(_) if is_quoted => Err(OtherKind::Value(format!("`{}`", shown(raw)))),
            Err(_) => check(raw.into()),
        };
        let value = value.map_err(|found| format!("`{key}` must be {}, not {found}", (leaf.expected)()))?;
        Ok(LayerEntry::new(key, value, origin.clone(), (field, leaf)))
    }

    /// Adds `KEY=VALUE` as given to `--config`.
    pub(crate) fn add_assignment(&mut self, text: &str) {
        let origin = Origin::Flag(format!("--config {}", shown(text)));
        match split_assignment(text) {
            Ok((key, raw)) => self.add(key, raw, origin),
            Err(message) => self.problems.push(Problem { origin, message }),
        }
    }
}

/// At most 80 characters of what was typed, without control characters.
fn shown(text: &str) -> String {
    shortened(text, 80).escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

/// Takes `models."gpt-4.1".max_output=5` apart at the first `=` outside of quotes.
fn split_assignment(text: &str) -> Result<(Key, &str), String> {
    let mut quote = None;
    let at = text.char_indices().find_map(|(at, c)| match (quote, c) {
        (None, '=') => Some(at),
        (None, '"' | '\'') => {
            quote = Some(c);
            None
        }
        (Some(open), c) if open == c => {
            quote = None;
            None
        }
        _ => None,
    });
    let Some(at) = at else {
        return Err("missing `=`; expected KEY=VALUE, for example max_turns=20".to_owned());
    };
    let (key, raw) = (text[..at].trim(), &text[at + 1..]);
    let not_a_key = || {
        format!(
            "invalid key `{}`; write it as a.b, with quotes around a part that contains a dot",
            shown(key)
        )
    };
    if key.contains(['\n', '\r', '#', '[']) {
        return Err(not_a_key());
    }
    let assignment = format!("{key} = 0");
    let table = DeTable::parse(&assignment).map_err(|_| not_a_key())?;
    let mut parts = Vec::new();
    let mut here = table.get_ref();
    loop {
        let mut entries = here.iter();
        let (Some((part, value)), None) = (entries.next(), entries.next()) else { return Err(not_a_key()) };
        parts.push(part.get_ref().as_ref().to_owned());
        match value.get_ref().as_table() {
            Some(table) => here = table,
            None => return Ok((Key(parts), raw)),
        }
    }
}

/// The parser's words, with a hint for the mistake that is made most often.
fn syntax_message(message: &str) -> String {
    let message: String = message
        .trim()
        .escape_debug()
        .to_string()
        .replace("\\n", ", ")
        .replace("\\\"", "\"")
        .replace("\\'", "'");
    let hint = if message.contains("duplicate key") {
        "; each key may occur once per table"
    } else if message.contains("string values must be quoted")
        || message.contains("missing value")
        || message.contains("missing `=`")
    {
        "; write key = \"text\", key = 1 or key = true"
    } else {
        "; invalid TOML"
    };
    format!("{message}{hint}")
}
