//! Values of any shape with the locations of their parts, for settings that other code reads.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Number, Value as Json};
use toml::Spanned;
use toml::de::DeValue;

use super::layer::{Origin, describe, whole};

/// A value of any shape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// The value as JSON; a date is its text.
    pub json: Json,
    /// The line and column of each part in the file, by JSON pointer; empty if the value is not from a file.
    places: BTreeMap<String, (usize, usize)>,
}

impl Tree {
    /// Returns a value that is not from a file.
    pub fn of(json: Json) -> Self {
        Self { json, places: BTreeMap::new() }
    }

    /// Reads a parsed value.
    pub(super) fn read(value: &Spanned<DeValue<'_>>, at: &dyn Fn(usize) -> Origin) -> Result<Self, String> {
        let mut tree = Self::of(json_of(value.get_ref())?);
        tree.note(value, "", at);
        Ok(tree)
    }

    fn note(&mut self, value: &Spanned<DeValue<'_>>, pointer: &str, at: &dyn Fn(usize) -> Origin) {
        match value.get_ref() {
            DeValue::Table(table) => {
                for (name, value) in table {
                    let part = name.get_ref().replace('~', "~0").replace('/', "~1");
                    let below = format!("{pointer}/{part}");
                    self.note_at(&below, at(name.span().start));
                    self.note(value, &below, at);
                }
            }
            DeValue::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    let below = format!("{pointer}/{i}");
                    self.note_at(&below, at(item.span().start));
                    self.note(item, &below, at);
                }
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => {}
        }
    }

    fn note_at(&mut self, pointer: &str, origin: Origin) {
        if let Origin::File { line, column, .. } = origin {
            self.places.insert(pointer.to_owned(), (line, column));
        }
    }

    /// Line and column of a part, or of the nearest one above it.
    pub fn place(&self, pointer: &str) -> Option<(usize, usize)> {
        let mut pointer = pointer;
        loop {
            if let Some(place) = self.places.get(pointer) {
                return Some(*place);
            }
            pointer = &pointer[..pointer.rfind('/')?];
        }
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_toml(&self.json, f)
    }
}

/// A value on one line, as TOML has it.
fn write_toml(json: &Json, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match json {
        Json::Null => f.write_str("\"\""),
        Json::Bool(_) | Json::Number(_) | Json::String(_) => write!(f, "{json}"),
        Json::Array(items) => {
            f.write_str("[")?;
            for (i, item) in items.iter().enumerate() {
                f.write_str(if i == 0 { "" } else { ", " })?;
                write_toml(item, f)?;
            }
            f.write_str("]")
        }
        Json::Object(fields) => {
            f.write_str("{")?;
            for (i, (name, value)) in fields.iter().enumerate() {
                let is_bare = !name.is_empty()
                    && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
                f.write_str(if i == 0 { "" } else { ", " })?;
                if is_bare {
                    write!(f, "{name} = ")?;
                } else {
                    write!(f, "{} = ", Json::from(name.as_str()))?;
                }
                write_toml(value, f)?;
            }
            f.write_str("}")
        }
    }
}

/// Converts a value to JSON, or returns the part that JSON cannot represent.
pub(super) fn json_of(value: &DeValue<'_>) -> Result<Json, String> {
    let wrong = || describe(value);
    Ok(match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(date) => date.to_string().into(),
        DeValue::Integer(integer) => match whole(value) {
            Some(number) => number.into(),
            None => integer.as_str().replace('_', "").parse::<i64>().map_err(|_| wrong())?.into(),
        },
        DeValue::Float(float) => {
            let number = float.as_str().replace('_', "").parse::<f64>().map_err(|_| wrong())?;
            Json::Number(Number::from_f64(number).ok_or_else(wrong)?)
        }
        DeValue::Array(items) => {
            Json::Array(items.iter().map(|item| json_of(item.get_ref())).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => {
            let field = |(name, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
                Ok((name.get_ref().to_string(), json_of(value.get_ref())?))
            };
            Json::Object(table.iter().map(field).collect::<Result<Map<_, _>, String>>()?)
        }
    })
}
