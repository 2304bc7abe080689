//! One source of settings, checked against the schema: values with their origin, and problems with their place.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::schema::{self, Fields, SchemaLeaf, SchemaNode, ValueKind};
use super::settings::OnAsk;
use super::tree::{Tree, json_of};
use aye_core::contract::address::DomainPattern;
use aye_core::contract::display::{shortened, visible_line};
use aye_core::contract::span::parse_span;
use aye_core::contract::terms::{Expiry, Notify};

/// A dotted key as its parts, such as `["models", "gpt-4.1", "price", "input"]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Vec<String>);

impl Key {
    pub(crate) fn of(dotted: &str) -> Self {
        Self(dotted.split('.').map(str::to_owned).collect())
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

/// A checked value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text, also durations, addresses and words of a list of choices.
    Text(String),
    /// A whole number.
    Count(u64),
    /// Any other number.
    Number(f64),
    /// `true` or `false`.
    Flag(bool),
    /// A list of texts.
    List(Vec<String>),
    /// Anything, with the places of its parts.
    Tree(Tree),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "\"{}\"", text.escape_debug()),
            Self::Count(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Tree(tree) => write!(f, "{tree}"),
            Self::List(texts) => {
                f.write_str("[")?;
                for (i, text) in texts.iter().enumerate() {
                    write!(f, "{}\"{}\"", if i == 0 { "" } else { ", " }, text.escape_debug())?;
                }
                f.write_str("]")
            }
        }
    }
}

/// The origin of a value or a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// A place in a file; line and column count from 1, and 0 means the file as a whole.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
    },
    /// An environment variable.
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

/// One checked key.
#[derive(Clone, Debug)]
pub(crate) struct LayerEntry {
    pub key: Key,
    pub value: Value,
    pub origin: Origin,
    pub leaf: &'static SchemaLeaf,
}

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

impl SettingsLayer {
    /// Reads the text of a settings file.
    pub(crate) fn from_toml(path: &Path, text: &str) -> Self {
        let at = |offset: usize| {
            let (line, column) = line_column(text, offset);
            Origin::File { path: path.to_path_buf(), line, column }
        };
        let mut layer = Self::default();
        // The parser takes a byte order mark for a part of the first key.
        let (skipped, body) = text.strip_prefix('\u{feff}').map_or((0, text), |rest| (3, rest));
        match DeTable::parse(body) {
            Ok(table) => layer.table(table.get_ref(), schema::ROOT, &[], &|offset| at(offset + skipped)),
            Err(error) => {
                let origin = at(error.span().map_or(0, |span| span.start) + skipped);
                layer.problems.push(Problem { origin, message: syntax_message(error.message()) });
            }
        }
        layer
    }

    fn table(&mut self, table: &DeTable<'_>, fields: Fields, path: &[String], at: &dyn Fn(usize) -> Origin) {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let origin = at(key.span().start);
            let mut full = path.to_vec();
            full.push(name.to_owned());
            let full = Key(full);
            match fields.iter().find(|(known, _)| *known == name) {
                None => self.problems.push(Problem { origin, message: unknown_key(&full, fields, name) }),
                Some((_, SchemaNode::Leaf(leaf))) => self.leaf(full, value, leaf, origin, at),
                Some((_, SchemaNode::Each(leaf))) => match value.get_ref().as_table() {
                    Some(names) => {
                        for (name, value) in names {
                            let mut full = full.0.clone();
                            full.push(name.get_ref().as_ref().to_owned());
                            self.leaf(Key(full), value, leaf, at(name.span().start), at);
                        }
                    }
                    None => self.not_a_table(&full, value.get_ref(), at(value.span().start)),
                },
                Some((_, SchemaNode::Table(fields))) => match value.get_ref().as_table() {
                    Some(table) => self.table(table, fields, &full.0, at),
                    None => self.not_a_table(&full, value.get_ref(), at(value.span().start)),
                },
                Some((_, SchemaNode::Named(fields))) => match value.get_ref().as_table() {
                    Some(names) => self.named(names, fields, &full, at),
                    None => self.not_a_table(&full, value.get_ref(), at(value.span().start)),
                },
            }
        }
    }

    fn leaf(
        &mut self,
        key: Key,
        value: &toml::Spanned<DeValue<'_>>,
        leaf: &'static SchemaLeaf,
        origin: Origin,
        at: &dyn Fn(usize) -> Origin,
    ) {
        match check_at(value, leaf.kind, at) {
            Ok(value) => self.entries.push(LayerEntry { key, value, origin, leaf }),
            Err(found) => {
                let message = format!("`{key}` must be {}, not {found}", leaf.kind);
                self.problems.push(Problem { origin: at(value.span().start), message });
            }
        }
    }

    fn named(&mut self, names: &DeTable<'_>, fields: Fields, path: &Key, at: &dyn Fn(usize) -> Origin) {
        for (name, value) in names {
            let mut full = path.0.clone();
            full.push(name.get_ref().as_ref().to_owned());
            let full = Key(full);
            if name.get_ref().trim().is_empty() || name.get_ref().chars().any(char::is_control) {
                let message = format!("`{full}` has an empty name or one with control characters");
                self.problems.push(Problem { origin: at(name.span().start), message });
                continue;
            }
            match value.get_ref().as_table() {
                Some(table) => self.table(table, fields, &full.0, at),
                // `[providers] base_url = "..."`: the name between is missing, which is worth its own words.
                None if fields.iter().any(|(field, _)| *field == name.get_ref().as_ref()) => {
                    let message = format!(
                        "`{full}` needs a name; write [{path}.NAME] and put `{}` below it",
                        name.get_ref()
                    );
                    self.problems.push(Problem { origin: at(name.span().start), message });
                }
                None => self.not_a_table(&full, value.get_ref(), at(value.span().start)),
            }
        }
    }

    fn not_a_table(&mut self, key: &Key, found: &DeValue<'_>, origin: Origin) {
        let message = format!("`{key}` must be a table, written [{key}], not {}", describe(found));
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
        let Some(leaf) = schema::find_leaf(&key.0) else { return Err(no_such_key(&key)) };
        let wants_text = matches!(
            leaf.kind,
            ValueKind::Text
                | ValueKind::OneOf(_)
                | ValueKind::Duration
                | ValueKind::DurationIn { .. }
                | ValueKind::Url
                | ValueKind::EnvName
                | ValueKind::OnAsk
                | ValueKind::Expiry
        );
        let trimmed = raw.trim();
        let is_quoted = trimmed.starts_with(['"', '\'']);
        let as_text = || check(&DeValue::String(trimmed.into()), leaf.kind);
        let parsed = DeValue::parse(trimmed);
        let value = match &parsed {
            // `--config model=4o` and `--config theme=true` mean the text.
            _ if wants_text && !is_quoted && as_text().is_ok() => as_text(),
            Ok(value) => check_at(value, leaf.kind, &|_| Origin::Default),
            Err(_) if is_quoted || trimmed.is_empty() => Err("an invalid TOML value".to_owned()),
            Err(_) => as_text(),
        };
        match value {
            Ok(value) => Ok(LayerEntry { key, value, origin: origin.clone(), leaf }),
            Err(found) => Err(format!("`{key}` must be {}, not {found}", leaf.kind)),
        }
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

fn unknown_key(full: &Key, siblings: Fields, name: &str) -> String {
    if full.0.len() == 1 && name == "hooks" {
        return "unknown key `hooks`; put hooks into hooks.toml beside this file".to_owned();
    }
    match schema::suggest(siblings, name) {
        Some(near) => format!("unknown key `{full}`; did you mean `{near}`?"),
        None => format!("unknown key `{full}`; expected one of {}", schema::names(siblings)),
    }
}

/// Why a dotted key leads nowhere: the first part that is unknown, or that it stops too early.
fn no_such_key(key: &Key) -> String {
    let mut fields = schema::ROOT;
    let mut parts = key.0.iter().enumerate();
    while let Some((i, part)) = parts.next() {
        let upto = Key(key.0[..=i].to_vec());
        match fields.iter().find(|(name, _)| name == part) {
            None => return unknown_key(&upto, fields, part),
            Some((_, SchemaNode::Leaf(_))) => {
                return format!("`{upto}` is a value and cannot contain keys");
            }
            Some((table, SchemaNode::Each(_))) => {
                return format!("`{key}` is not one of [{table}]; write {table}.NAME = VALUE");
            }
            Some((_, SchemaNode::Table(inner))) => fields = inner,
            Some((_, SchemaNode::Named(inner))) => {
                fields = inner;
                if parts.next().is_none() {
                    return format!(
                        "`{key}` is a table; write {key}.NAME.KEY with one of {}",
                        schema::names(inner)
                    );
                }
            }
        }
    }
    format!("`{key}` is a table; write {key}.KEY with one of {}", schema::names(fields))
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

pub(super) fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => {
            format!("the string \"{}\"", text.chars().take(60).collect::<String>().escape_debug())
        }
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(flag) => format!("{flag}"),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// The same for a value with a place, of which any value keeps the places of its parts.
fn check_at(
    value: &toml::Spanned<DeValue<'_>>,
    kind: ValueKind,
    at: &dyn Fn(usize) -> Origin,
) -> Result<Value, String> {
    match kind {
        ValueKind::Any => Tree::read(value, at).map(Value::Tree),
        ValueKind::Text
        | ValueKind::Count { .. }
        | ValueKind::Number
        | ValueKind::Flag
        | ValueKind::TextList
        | ValueKind::DomainList
        | ValueKind::ListOf(_)
        | ValueKind::TextTable
        | ValueKind::OneOf(_)
        | ValueKind::Duration
        | ValueKind::DurationIn { .. }
        | ValueKind::Url
        | ValueKind::EnvName
        | ValueKind::Expiry
        | ValueKind::NotifyList
        | ValueKind::OnAsk => check(value.get_ref(), kind),
    }
}

/// Turns a parsed value into a checked one, or says what was found instead.
fn check(value: &DeValue<'_>, kind: ValueKind) -> Result<Value, String> {
    let wrong = || Err(describe(value));
    let text = |holds: &dyn Fn(&str) -> bool| match value.as_str() {
        Some(text) if !text.chars().any(char::is_control) && holds(text) => Ok(Value::Text(text.to_owned())),
        _ => Err(describe(value)),
    };
    match kind {
        ValueKind::Text => text(&|text| !text.trim().is_empty()),
        ValueKind::OneOf(words) => text(&|text| words.contains(&text)),
        ValueKind::Expiry => text(&|text| text.parse::<Expiry>().is_ok()),
        ValueKind::NotifyList => {
            let list = json_of(value)?;
            let entries =
                Notify::read_all(&list).map_err(|wanted| format!("this: an entry must be {wanted}"))?;
            // A word as it is, a command as JSON: the form that is read back.
            let text = |entry: &Notify| match serde_json::to_value(entry) {
                Ok(serde_json::Value::String(word)) => word,
                other => other.map(|value| value.to_string()).unwrap_or_default(),
            };
            Ok(Value::List(entries.iter().map(text).collect()))
        }
        ValueKind::OnAsk => text(&|text| text.parse::<OnAsk>().is_ok()),
        ValueKind::Any => Ok(Value::Tree(Tree::of(json_of(value)?))),
        ValueKind::Url => {
            // The text may hold a password, so it is not repeated in the message.
            text(&is_plain_url).map_err(|found| if value.is_str() { "this string".to_owned() } else { found })
        }
        // If the user put the key itself here, the message must not show it.
        ValueKind::EnvName => text(&is_env_name)
            .map_err(|found| if value.is_str() { "the value itself".to_owned() } else { found }),
        ValueKind::Duration => match value {
            DeValue::Integer(_) => match whole(value) {
                Some(seconds) if (1..=MAX_SECONDS).contains(&seconds) => {
                    Ok(Value::Text(format!("{seconds}s")))
                }
                _ => wrong(),
            },
            _ => text(&|text| parse_duration(text).is_some()),
        },
        ValueKind::DurationIn { min_ms, max_ms } => {
            let checked = check(value, ValueKind::Duration)?;
            let millis = match &checked {
                Value::Text(text) => parse_duration(text).map_or(0, |time| time.as_millis()),
                Value::Count(_) | Value::Number(_) | Value::Flag(_) | Value::List(_) | Value::Tree(_) => 0,
            };
            if (u128::from(min_ms)..=u128::from(max_ms)).contains(&millis) { Ok(checked) } else { wrong() }
        }
        ValueKind::Count { min } => match whole(value) {
            Some(number) if number >= min => Ok(Value::Count(number)),
            _ => wrong(),
        },
        ValueKind::Number => {
            let number = match value {
                DeValue::Float(float) => float.as_str().replace('_', "").parse::<f64>().ok(),
                _ => whole(value).map(|number| number as f64),
            };
            number
                .filter(|number| number.is_finite() && *number >= 0.0)
                .map(Value::Number)
                .map_or_else(wrong, Ok)
        }
        ValueKind::Flag => value.as_bool().map(Value::Flag).map_or_else(wrong, Ok),
        ValueKind::TextTable => {
            let Some(table) = value.as_table() else { return wrong() };
            let mut texts = Vec::new();
            for (name, text) in table {
                match text.get_ref().as_str() {
                    Some(text) if !name.get_ref().contains('=') => {
                        texts.push(format!("{}={text}", name.get_ref()));
                    }
                    Some(_) => return Err("a table with `=` in a name".to_owned()),
                    None => return Err(format!("a table that contains {}", describe(text.get_ref()))),
                }
            }
            Ok(Value::List(texts))
        }
        ValueKind::DomainList => {
            let Value::List(texts) = check(value, ValueKind::TextList)? else { return wrong() };
            for text in &texts {
                if let Err(why) = text.parse::<DomainPattern>() {
                    return Err(format!("a list that contains \"{}\"; {why}", text.escape_debug()));
                }
            }
            Ok(Value::List(texts))
        }
        ValueKind::ListOf(words) => {
            let Value::List(texts) = check(value, ValueKind::TextList)? else { return wrong() };
            match texts.iter().find(|text| !words.contains(&text.as_str())) {
                Some(other) => Err(format!("a list that contains \"{}\"", other.escape_debug())),
                None => Ok(Value::List(texts)),
            }
        }
        ValueKind::TextList => {
            let Some(items) = value.as_array() else { return wrong() };
            let mut texts = Vec::new();
            for item in items {
                match item.get_ref().as_str().filter(|text| !text.trim().is_empty()) {
                    Some(text) => texts.push(text.to_owned()),
                    None => return Err(format!("a list that contains {}", describe(item.get_ref()))),
                }
            }
            Ok(Value::List(texts))
        }
    }
}

pub(super) fn whole(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str().trim_start_matches('+'), integer.radix())
        .ok()
        .filter(|n| i64::try_from(*n).is_ok())
}

const MAX_SECONDS: u64 = 7 * 24 * 3600;

/// Reads `500ms`, `90s`, `2m` or `1h`; bare digits are seconds.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let bare = text.trim().parse().ok().map(Duration::from_secs);
    bare.or_else(|| parse_span(text))
        .filter(|span| !span.is_zero() && *span <= Duration::from_secs(MAX_SECONDS))
}

fn is_plain_url(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else {
        return false;
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    !host.is_empty() && !host.contains('@') && !text.contains(char::is_whitespace)
}

fn is_env_name(text: &str) -> bool {
    // A long run of mixed letters is a key, not a name; a variable name is in upper snake case.
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
        && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}
