//! The kinds of values that settings have: what a file may contain, and what aye makes of it.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use aye_core::contract::address::DomainPattern;
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::span::parse_span;
use aye_core::contract::terms::{Expiry, Notify};
use serde_json::{Number, Value as Json};
use toml::Value;

use super::layer::Key;
use super::redact::{arguments, only_references, without_password};

/// A kind of value.
pub(crate) trait Kind {
    /// What aye makes of a value.
    type Value;

    /// What a file may contain: "must be ..." in messages, and a cell of the manual's table.
    fn expected() -> String;

    /// Reads a value.
    ///
    /// # Errors
    /// What was found instead, without what may be a secret.
    fn read(value: &Value) -> Result<Self::Value, OtherKind>;

    /// The value without what may be a secret in it.
    fn redacted(value: &Value) -> Value {
        without_secrets(value)
    }

    /// How much the value allows, if values of the kind can be compared: a project may go down, not up.
    fn rank(_: &Value) -> Option<u128> {
        None
    }
}

/// What stands in the place of a value of another kind: the end of "must be ..., not ...".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OtherKind {
    /// A whole value, as messages name it.
    #[error("{0}")]
    Value(String),
    /// A list with an entry that does not fit.
    #[error("a list that contains {0}")]
    Entry(String),
    /// A table with an entry that does not fit.
    #[error("a table {0}")]
    Table(String),
    /// A value that is not repeated, because it may be a secret.
    #[error("{0}")]
    Hidden(&'static str),
    /// A list whose entries have another form.
    #[error("this: an entry must be {0}")]
    Form(String),
}

impl OtherKind {
    pub(crate) fn of(value: &Value) -> Self {
        Self::Value(describe(value))
    }

    fn entry(text: &str) -> Self {
        Self::Entry(format!("\"{}\"", text.escape_debug()))
    }
}

/// A value as messages name it.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::String(text) => {
            format!("the string \"{}\"", text.chars().take(60).collect::<String>().escape_debug())
        }
        Value::Integer(_) | Value::Float(_) => format!("the number {value}"),
        Value::Boolean(flag) => format!("{flag}"),
        Value::Datetime(_) => "a date".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}

/// A value as TOML on one line, whatever is in it.
pub(crate) fn one_line(value: &Value) -> String {
    match value {
        // The strings of JSON are strings of TOML, and never several lines.
        Value::String(text) => Json::from(text.as_str()).to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(one_line).collect::<Vec<_>>().join(", ")),
        Value::Table(table) => {
            let pair = |(name, value): (&String, &Value)| {
                format!("{} = {}", Key(vec![name.clone()]), one_line(value))
            };
            format!("{{{}}}", table.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => value.to_string(),
    }
}

/// A value of any kind without passwords in URLs and without the keys among the arguments of programs.
fn without_secrets(value: &Value) -> Value {
    match value {
        Value::String(text) => without_password(text).into(),
        Value::Array(items) => match Vec::<String>::read(value) {
            Ok(texts) => arguments(&texts).into(),
            Err(_) => items.iter().map(without_secrets).collect::<Vec<_>>().into(),
        },
        Value::Table(table) => {
            Value::Table(table.iter().map(|(name, value)| (name.clone(), without_secrets(value))).collect())
        }
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => value.clone(),
    }
}

fn read_text<T>(value: &Value, read: impl FnOnce(&str) -> Option<T>) -> Result<T, OtherKind> {
    let text = value.as_str().filter(|text| !text.chars().any(char::is_control));
    text.and_then(read).ok_or_else(|| OtherKind::of(value))
}

fn quoted(words: impl Iterator<Item = &'static str>) -> String {
    words.map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

impl Kind for String {
    type Value = Self;
    fn expected() -> String {
        "a quoted string".to_owned()
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        read_text(value, |text| (!text.trim().is_empty()).then(|| text.to_owned()))
    }
}

impl Kind for ReasoningEffort {
    type Value = Self;
    fn expected() -> String {
        format!("one of {}", quoted(Self::WORDS.into_iter()))
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        value.as_str().and_then(Self::parse).ok_or_else(|| OtherKind::of(value))
    }
}

/// One of some words, with what each means; if a project may choose, the strictest comes first.
pub(crate) trait Words: Copy + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

impl<W: Words> Kind for W {
    type Value = Self;
    fn expected() -> String {
        format!("one of {}", quoted(W::WORDS.iter().map(|(word, _)| *word)))
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        let found = W::WORDS.iter().find(|(word, _)| value.as_str() == Some(word));
        found.map(|(_, meaning)| *meaning).ok_or_else(|| OtherKind::of(value))
    }
    fn rank(value: &Value) -> Option<u128> {
        W::WORDS.iter().zip(0..).find(|((word, _), _)| value.as_str() == Some(word)).map(|(_, rank)| rank)
    }
}

impl Kind for bool {
    type Value = Self;
    fn expected() -> String {
        "true or false".to_owned()
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        value.as_bool().ok_or_else(|| OtherKind::of(value))
    }
}

/// A whole number from `MIN` up.
pub(crate) struct AtLeast<const MIN: u64>;

impl<const MIN: u64> Kind for AtLeast<MIN> {
    type Value = u64;
    fn expected() -> String {
        match MIN {
            0 => "a whole number".to_owned(),
            min => format!("a whole number, at least {min}"),
        }
    }
    fn read(value: &Value) -> Result<u64, OtherKind> {
        let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
        number.filter(|number| *number >= MIN).ok_or_else(|| OtherKind::of(value))
    }
    fn rank(value: &Value) -> Option<u128> {
        Self::read(value).ok().map(u128::from)
    }
}

impl Kind for u64 {
    type Value = Self;
    fn expected() -> String {
        AtLeast::<0>::expected()
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        AtLeast::<0>::read(value)
    }
    fn rank(value: &Value) -> Option<u128> {
        AtLeast::<0>::rank(value)
    }
}

impl Kind for u32 {
    type Value = Self;
    fn expected() -> String {
        u64::expected()
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        Ok(Self::try_from(u64::read(value)?).unwrap_or(Self::MAX))
    }
    fn rank(value: &Value) -> Option<u128> {
        u64::rank(value)
    }
}

impl Kind for f64 {
    type Value = Self;
    fn expected() -> String {
        "a non-negative number".to_owned()
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        let number = value.as_float().or_else(|| value.as_integer().map(|number| number as Self));
        number.filter(|number| number.is_finite() && *number >= 0.0).ok_or_else(|| OtherKind::of(value))
    }
    fn rank(value: &Value) -> Option<u128> {
        Self::read(value).ok().map(|number| (number * 1e6) as u128)
    }
}

/// A number; 0 means "no limit".
pub(crate) struct Limit<T>(PhantomData<T>);

impl<T: Kind<Value = T> + Default + PartialOrd> Kind for Limit<T> {
    type Value = Option<T>;
    fn expected() -> String {
        T::expected()
    }
    fn read(value: &Value) -> Result<Option<T>, OtherKind> {
        Ok(Some(T::read(value)?).filter(|limit| *limit > T::default()))
    }
    fn rank(value: &Value) -> Option<u128> {
        T::rank(value).map(|rank| if rank == 0 { u128::MAX } else { rank })
    }
}

const MAX_SECONDS: u64 = 7 * 24 * 3600;

/// Reads `500ms`, `90s`, `2m` or `1h`; bare digits are seconds.
fn parse_duration(text: &str) -> Option<Duration> {
    let bare = text.trim().parse().ok().map(Duration::from_secs);
    bare.or_else(|| parse_span(text))
        .filter(|span| !span.is_zero() && *span <= Duration::from_secs(MAX_SECONDS))
}

impl Kind for Duration {
    type Value = Self;
    fn expected() -> String {
        "seconds as a whole number, or a string with a unit such as \"90s\" or \"2m\"".to_owned()
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        match value {
            Value::Integer(seconds) => {
                parse_duration(&seconds.to_string()).ok_or_else(|| OtherKind::of(value))
            }
            _ => read_text(value, parse_duration),
        }
    }
    fn rank(value: &Value) -> Option<u128> {
        Self::read(value).ok().map(|time| time.as_millis())
    }
}

/// A duration between two bounds in milliseconds.
pub(crate) struct Between<const MIN_MS: u64, const MAX_MS: u64>;

impl<const MIN_MS: u64, const MAX_MS: u64> Kind for Between<MIN_MS, MAX_MS> {
    type Value = Duration;
    fn expected() -> String {
        let time = |ms: u64| match ms {
            ms if ms % 60_000 == 0 => format!("{}m", ms / 60_000),
            ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
            ms => format!("{ms}ms"),
        };
        format!("a time such as \"10s\", between {} and {}", time(MIN_MS), time(MAX_MS))
    }
    fn read(value: &Value) -> Result<Duration, OtherKind> {
        let bounds = Duration::from_millis(MIN_MS)..=Duration::from_millis(MAX_MS);
        Some(Duration::read(value)?).filter(|time| bounds.contains(time)).ok_or_else(|| OtherKind::of(value))
    }
}

/// An `http://` or `https://` address without a name or password in it.
pub(crate) struct Url;

impl Kind for Url {
    type Value = String;
    fn expected() -> String {
        "a URL such as \"http://127.0.0.1:8080/v1/\", without a user name or password".to_owned()
    }
    fn read(value: &Value) -> Result<String, OtherKind> {
        let plain = |text: &str| {
            let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let is_plain = !host.is_empty() && !host.contains('@') && !text.contains(char::is_whitespace);
            is_plain.then(|| text.to_owned())
        };
        // The text may hold a password, so it is not repeated in the message.
        read_text(value, plain)
            .map_err(|found| if value.is_str() { OtherKind::Hidden("this string") } else { found })
    }
}

/// The name of an environment variable, never its value.
pub(crate) struct EnvName;

impl Kind for EnvName {
    type Value = String;
    fn expected() -> String {
        "the name of an environment variable such as \"OPENAI_API_KEY\"".to_owned()
    }
    fn read(value: &Value) -> Result<String, OtherKind> {
        // A long run of mixed letters is a key, not a name; a variable name is in upper snake case.
        let name = |text: &str| {
            let is_name = text.len() <= 64
                && text.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
                && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
            is_name.then(|| text.to_owned())
        };
        // If the user put the key itself here, the message must not show it.
        read_text(value, name)
            .map_err(|found| if value.is_str() { OtherKind::Hidden("the value itself") } else { found })
    }
}

/// A text that may be a secret.
pub(crate) struct SecretText;

impl Kind for SecretText {
    type Value = String;
    fn expected() -> String {
        String::expected()
    }
    fn read(value: &Value) -> Result<String, OtherKind> {
        String::read(value)
    }
    fn redacted(value: &Value) -> Value {
        only_references(value.as_str().unwrap_or_default()).into()
    }
}

impl Kind for Expiry {
    type Value = Self;
    fn expected() -> String {
        "a time with a unit such as \"30m\" (s, m, h, d or w; 1 second to 365 days), or \"never\"".to_owned()
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        read_text(value, |text| text.parse().ok())
    }
    fn rank(value: &Value) -> Option<u128> {
        Some(match Self::read(value).ok()? {
            Self::After(time) => time.as_millis(),
            Self::Never => u128::MAX,
        })
    }
}

impl Kind for Vec<String> {
    type Value = Self;
    fn expected() -> String {
        "a list of strings such as [\"a\", \"b\"]".to_owned()
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        let text = |item: &Value| match item.as_str().filter(|text| !text.trim().is_empty()) {
            Some(text) => Ok(text.to_owned()),
            None => Err(OtherKind::Entry(describe(item))),
        };
        value.as_array().ok_or_else(|| OtherKind::of(value))?.iter().map(text).collect()
    }
}

impl Kind for Vec<DomainPattern> {
    type Value = Self;
    fn expected() -> String {
        "a list of domains such as [\"docs.example.org\", \"*.example.com\"]".to_owned()
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        let domain = |text: String| {
            text.parse().map_err(|why| OtherKind::Entry(format!("\"{}\"; {why}", text.escape_debug())))
        };
        Vec::<String>::read(value)?.into_iter().map(domain).collect()
    }
}

/// Names of environment variables, each with a `*` at its end for all that start so.
pub(crate) struct Variables;

impl Kind for Variables {
    type Value = Vec<String>;
    fn expected() -> String {
        "a list of names of variables such as [\"DATABASE_URL\", \"APP_*\"]".to_owned()
    }
    fn read(value: &Value) -> Result<Vec<String>, OtherKind> {
        let is_name = |text: &String| {
            let start = text.strip_suffix('*').unwrap_or(text);
            let first = start.chars().next();
            first.is_some_and(|first| first == '_' || first.is_ascii_alphabetic())
                && start.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
        };
        let names = Vec::<String>::read(value)?;
        match names.iter().find(|name| !is_name(name)) {
            Some(other) => Err(OtherKind::entry(other)),
            None => Ok(names),
        }
    }
}

/// The parts of the status line.
pub const STATUS_SEGMENTS: &[&str] = &[
    "model",
    "effort",
    "mode",
    "agent",
    "folder",
    "branch",
    "context",
    "tokens",
    "cost",
    "elapsed",
    "queued",
    "tasks",
    "waiting",
    "instructions",
];

/// A list of some of [`STATUS_SEGMENTS`].
pub(crate) struct Segments;

impl Kind for Segments {
    type Value = Vec<String>;
    fn expected() -> String {
        format!("a list of some of {}", STATUS_SEGMENTS.join(", "))
    }
    fn read(value: &Value) -> Result<Vec<String>, OtherKind> {
        let names = Vec::<String>::read(value)?;
        match names.iter().find(|name| !STATUS_SEGMENTS.contains(&name.as_str())) {
            Some(other) => Err(OtherKind::entry(other)),
            None => Ok(names),
        }
    }
}

impl Kind for Vec<Notify> {
    type Value = Self;
    fn expected() -> String {
        "a list such as [\"bell\", \"desktop\", {command = [\"/path/program\", \"argument\"]}, {webhook = \"NAME\"}]"
            .to_owned()
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        Notify::read_all(&Json::read(value)?).map_err(|wanted| OtherKind::Form(wanted.to_string()))
    }
}

/// Strings by name, such as variables.
impl Kind for BTreeMap<String, String> {
    type Value = Self;
    fn expected() -> String {
        "a table of strings such as {NAME = \"text\"}".to_owned()
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        let pair = |(name, text): (&String, &Value)| match text.as_str() {
            Some(_) if name.contains('=') => Err(OtherKind::Table("with `=` in a name".to_owned())),
            Some(text) => Ok((name.clone(), text.to_owned())),
            None => Err(OtherKind::Table(format!("that contains {}", describe(text)))),
        };
        value.as_table().ok_or_else(|| OtherKind::of(value))?.iter().map(pair).collect()
    }
    fn redacted(value: &Value) -> Value {
        let pairs = Self::read(value).unwrap_or_default().into_iter();
        pairs.map(|(name, text)| (name, only_references(&text))).collect::<Self>().into()
    }
}

/// Any value; a date is its text. The code that uses the value checks it.
impl Kind for Json {
    type Value = Self;
    fn expected() -> String {
        "a TOML value".to_owned()
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        Ok(match value {
            Value::String(text) => text.as_str().into(),
            Value::Boolean(flag) => (*flag).into(),
            Value::Datetime(date) => date.to_string().into(),
            Value::Integer(number) => (*number).into(),
            Value::Float(number) => {
                Self::Number(Number::from_f64(*number).ok_or_else(|| OtherKind::of(value))?)
            }
            Value::Array(items) => items.iter().map(Self::read).collect::<Result<_, _>>()?,
            Value::Table(table) => {
                let field = |(name, value): (&String, &Value)| Ok((name.clone(), Self::read(value)?));
                Self::Object(table.iter().map(field).collect::<Result<_, OtherKind>>()?)
            }
        })
    }
}

/// The handling of a headless run's question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAsk {
    /// Suspends if the conversation is stored; otherwise waits.
    #[default]
    Auto,
    /// The run ends for now, and the question stays.
    Suspend,
    /// It is declined at once.
    Deny,
    /// The process waits for an answer, at most this long.
    Wait(Option<Duration>),
}

impl Kind for OnAsk {
    type Value = Self;
    fn expected() -> String {
        "one of \"auto\", \"suspend\", \"deny\", \"wait\" or \"wait=TIME\" with seconds or a unit, such as \"wait=90\" or \"wait=2m\"".to_owned()
    }
    fn read(value: &Value) -> Result<Self, OtherKind> {
        read_text(value, |text| match text {
            "auto" => Some(Self::Auto),
            "suspend" => Some(Self::Suspend),
            "deny" => Some(Self::Deny),
            "wait" => Some(Self::Wait(None)),
            _ => Some(Self::Wait(Some(parse_duration(text.strip_prefix("wait=")?)?))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aye_core::contract::mode::Mode;
    use aye_core::contract::server::LoginGrant;

    fn toml(text: &str) -> Value {
        text.parse().expect("TOML")
    }

    #[test]
    fn each_permission_mode_has_a_place_in_the_order() {
        for mode in Mode::ALL {
            assert_eq!(Mode::read(&mode.as_str().into()), Ok(mode));
        }
        assert!(Mode::rank(&toml("'plan'")) < Mode::rank(&toml("'ask'")));
        assert!(Mode::rank(&toml("'auto'")) < Mode::rank(&toml("'yolo'")));
    }

    #[test]
    fn a_value_is_one_line_that_can_be_read_again() {
        let text = r#"{"a b" = ["x\ny", "q\"'", -2.5], c = 2026-01-02, d = {e = true}}"#;
        assert_eq!(one_line(&toml(text)), text);
    }

    #[test]
    fn no_limit_is_more_than_any_limit() {
        assert_eq!(Limit::<u64>::read(&toml("0")), Ok(None));
        assert_eq!(Limit::<f64>::read(&toml("0.5")), Ok(Some(0.5)));
        assert_eq!(Limit::<u32>::read(&toml("9999999999")), Ok(Some(u32::MAX)));
        assert!(Limit::<u64>::rank(&toml("0")) > Limit::<u64>::rank(&toml("9_000_000_000")));
        assert!(Limit::<f64>::rank(&toml("0.25")) < Limit::<f64>::rank(&toml("1")));
    }

    #[test]
    fn a_value_without_an_order_is_never_lower() {
        assert_eq!(String::rank(&toml("'a'")), None);
        assert_eq!(Vec::<String>::rank(&toml("[]")), None);
        assert_eq!(LoginGrant::rank(&toml("'other'")), None);
    }
}
