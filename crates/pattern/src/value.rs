//! The values of a call's arguments that a condition checks, and their comparison text.

use serde_json::Value;
use std::fmt;

/// One step of a path into the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathSegment {
    /// The value of this key.
    Key(String),
    /// The values of all keys.
    AnyKey,
    /// The element with this index.
    Index(usize),
    AnyIndex,
}

/// A path into the arguments, such as `edits[*].file_path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgPath(pub Vec<PathSegment>);

impl ArgPath {
    /// The key, when the path is one key and nothing more.
    pub fn single_key(&self) -> Option<&str> {
        match self.0.as_slice() {
            [PathSegment::Key(key)] => Some(key),
            _ => None,
        }
    }

    /// All values the path leads to; none when it is absent.
    pub fn select<'a>(&self, args: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![args];
        for segment in &self.0 {
            found = found
                .into_iter()
                .flat_map(|value| -> Vec<&'a Value> {
                    match (segment, value) {
                        (PathSegment::Key(key), Value::Object(map)) => map.get(key).into_iter().collect(),
                        (PathSegment::AnyKey, Value::Object(map)) => map.values().collect(),
                        (PathSegment::Index(index), Value::Array(list)) => {
                            list.get(*index).into_iter().collect()
                        }
                        (PathSegment::AnyIndex, Value::Array(list)) => list.iter().collect(),
                        _ => Vec::new(),
                    }
                })
                .collect();
        }
        found
    }
}

impl fmt::Display for ArgPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().enumerate() {
            match segment {
                PathSegment::Key(_) | PathSegment::AnyKey if i > 0 => f.write_str(".")?,
                _ => {}
            }
            match segment {
                PathSegment::Key(key) => f.write_str(key)?,
                PathSegment::AnyKey => f.write_str("*")?,
                PathSegment::Index(index) => write!(f, "[{index}]")?,
                PathSegment::AnyIndex => f.write_str("[*]")?,
            }
        }
        Ok(())
    }
}

/// The text a value is compared by: a string as it is, null empty, bool and number as text, the rest compact JSON.
pub fn comparison_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The primary argument of a call: the declared one, else the only string argument, else all arguments as JSON.
///
/// A declared argument that is absent has no text, so nothing can match it.
pub fn primary_text(args: &Value, declared: Option<&str>) -> Option<String> {
    if let Some(name) = declared {
        return args.get(name).map(comparison_text);
    }
    let mut strings = args.as_object().into_iter().flat_map(|map| map.values()).filter_map(Value::as_str);
    match (strings.next(), strings.next()) {
        (Some(only), None) => Some(only.to_owned()),
        _ => Some(args.to_string()),
    }
}
