//! Reads a file's values with their lines, so that every mistake can be reported with its line.

use std::collections::BTreeSet;
use std::fmt;

use aye_files::front_matter::yaml_error;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::Spanned;

/// A value and the line it starts on; 0 if unknown.
#[derive(Clone, Debug)]
pub(super) struct LocatedValue {
    pub(super) line: u64,
    pub(super) shape: Shape,
}

/// The kind and content of a value.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<LocatedValue>),
    /// The keys with their lines.
    Map(Vec<(String, u64, LocatedValue)>),
}

impl LocatedValue {
    /// Reads a JSON text, strictly.
    ///
    /// # Errors
    /// The line, and what is wrong there.
    pub(super) fn read(text: &str) -> Result<Self, (u64, String)> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // The reader that knows places takes YAML, which is more than JSON: strictness first.
        serde_json::from_str::<de::IgnoredAny>(text).map_err(|error| {
            (error.line() as u64, format!("not JSON (column {}): {}", error.column(), bare(&error)))
        })?;
        serde_saphyr::from_str::<Spanned<Shape>>(text).map(Self::from).map_err(|error| {
            let line = error.location().map_or(1, |location| location.line());
            (line, yaml_error(&error))
        })
    }

    /// A value that has no lines.
    pub(super) fn of(value: &Value) -> Self {
        let shape = match value {
            Value::Null => Shape::Null,
            Value::Bool(value) => Shape::Bool(*value),
            Value::Number(number) => Shape::Number(number.clone()),
            Value::String(text) => Shape::Text(text.clone()),
            Value::Array(items) => Shape::List(items.iter().map(Self::of).collect()),
            Value::Object(map) => {
                Shape::Map(map.iter().map(|(key, value)| (key.clone(), 0, Self::of(value))).collect())
            }
        };
        Self { line: 0, shape }
    }

    /// The value without lines.
    pub(super) fn value(&self) -> Value {
        match &self.shape {
            Shape::Null => Value::Null,
            Shape::Bool(value) => Value::Bool(*value),
            Shape::Number(number) => Value::Number(number.clone()),
            Shape::Text(text) => Value::String(text.clone()),
            Shape::List(items) => items.iter().map(Self::value).collect(),
            Shape::Map(map) => map.iter().map(|(key, _, node)| (key.clone(), node.value())).collect(),
        }
    }
}

/// serde_json's words without its place, which the caller shows in its own way.
fn bare(error: &serde_json::Error) -> String {
    let words = error.to_string();
    words.split(" at line ").next().unwrap_or(&words).to_owned()
}

impl From<Spanned<Shape>> for LocatedValue {
    fn from(spanned: Spanned<Shape>) -> Self {
        Self { line: spanned.referenced.line(), shape: spanned.value }
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        Shape::deserialize(deserializer)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Shape, E> {
        Ok(Shape::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Shape, E> {
        Ok(Shape::Number(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Shape, E> {
        Ok(Shape::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Shape, E> {
        Ok(Number::from_f64(value).map_or(Shape::Null, Shape::Number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Shape, E> {
        Ok(Shape::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<Shape>>()? {
            items.push(item.into());
        }
        Ok(Shape::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape, A::Error> {
        let mut entries = Vec::new();
        let mut known = BTreeSet::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            if !known.insert(key.value.clone()) {
                return Err(de::Error::custom(format!("duplicate key `{}`", key.value)));
            }
            let line = key.referenced.line();
            entries.push((key.value, line, map.next_value::<Spanned<Shape>>()?.into()));
        }
        Ok(Shape::Map(entries))
    }
}
