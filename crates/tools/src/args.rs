//! Arguments of a call, read with clear sentences for what is wrong with them.

use serde_json::{Map, Value};

use aye_core::contract::near;
use aye_core::contract::tool::ToolError;

/// The arguments of one call, known to be an object without unknown fields.
pub(super) struct CallArgs<'a> {
    map: &'a Map<String, Value>,
}

/// A word about a value for an error sentence; long values are not repeated.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) | Value::Number(_) => format!("{value}"),
        Value::String(text) if text.len() <= 40 => format!("the string {text:?}"),
        Value::String(_) => "a string".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// An error that says to a user what happened, and to the model what to do next, too.
pub(super) fn advised(what: impl Into<String>, advice: &str) -> ToolError {
    let shown = what.into();
    ToolError::Advised { text: format!("{shown}; {advice}"), shown }
}

pub(super) fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::InvalidArguments(message.into())
}

/// The names that models give to the path of a file.
pub(super) const FILE_PATH: [(&str, &str); 2] = [("path", "file_path"), ("file", "file_path")];

/// Gives members the tool's own names, where the call has none of that name.
pub(super) fn rename(args: &mut Value, names: &[(&str, &str)]) {
    let Value::Object(map) = args else { return };
    for (other, own) in names {
        if !map.contains_key(*own)
            && let Some(value) = map.shift_remove(*other)
        {
            map.insert((*own).to_owned(), value);
        }
    }
}

impl<'a> CallArgs<'a> {
    /// Takes the arguments of a tool that knows the fields of `known`.
    pub(super) fn new(tool: &str, value: &'a Value, known: &[&str]) -> Result<Self, ToolError> {
        let Value::Object(map) = value else {
            return Err(invalid(format!("the arguments must be an object, not {}", describe(value))));
        };
        if let Some(name) = map.keys().find(|name| !known.contains(&name.as_str())) {
            let meant = near::nearest(name, known.iter().copied());
            let meant = meant.map(|own| format!(" did you mean `{own}`?")).unwrap_or_default();
            return Err(invalid(format!("unknown field {name:?};{meant} {tool} takes {}", known.join(", "))));
        }
        Ok(Self { map })
    }

    /// The value of a field; null is the same as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// A string that must be there; it may be empty.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, ToolError> {
        self.opt_text(name)?.ok_or_else(|| invalid(format!("`{name}` is missing; it must be a string")))
    }

    /// A string that must be there and hold more than blanks.
    pub(super) fn filled(&self, name: &str) -> Result<&'a str, ToolError> {
        let text = self.text(name)?;
        if text.trim().is_empty() { Err(invalid(format!("`{name}` is empty"))) } else { Ok(text) }
    }

    /// A string that may be absent.
    pub(super) fn opt_text(&self, name: &str) -> Result<Option<&'a str>, ToolError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(invalid(format!("`{name}` must be a string, not {}", describe(other)))),
        }
    }

    /// A whole number that may be absent.
    pub(super) fn opt_count(&self, name: &str, min: u64) -> Result<Option<u64>, ToolError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_u64().or_else(|| whole(value)) {
            Some(number) if number >= min => Ok(Some(number)),
            _ => Err(invalid(format!(
                "`{name}` must be a whole number of at least {min}, not {}",
                describe(value)
            ))),
        }
    }

    /// A yes or no; absent is `default`.
    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, ToolError> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(invalid(format!("`{name}` must be true or false, not {}", describe(other)))),
        }
    }

    /// A list that may be absent.
    pub(super) fn opt_list(&self, name: &str) -> Result<Option<&'a [Value]>, ToolError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(invalid(format!("`{name}` must be a list, not {}", describe(other)))),
        }
    }
}

/// Some models write `10.0` for 10.
fn whole(value: &Value) -> Option<u64> {
    let number = value.as_f64()?;
    (number >= 0.0 && number.fract() == 0.0 && number < 9e15).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message<T>(result: Result<T, ToolError>) -> String {
        result.err().map(|e| e.to_string()).expect("it is refused")
    }

    #[test]
    fn each_fault_has_its_message() {
        let not_object = json!([1]);
        assert_eq!(
            message(CallArgs::new("Read", &not_object, &["file_path"])),
            "invalid arguments: the arguments must be an object, not a list"
        );
        let unknown = json!({"path": "x"});
        assert_eq!(
            message(CallArgs::new("Read", &unknown, &["file_path", "limit"])),
            "invalid arguments: unknown field \"path\"; Read takes file_path, limit"
        );
        let misspelt = json!({"ofset": 3});
        assert_eq!(
            message(CallArgs::new("Read", &misspelt, &["file_path", "offset"])),
            "invalid arguments: unknown field \"ofset\"; did you mean `offset`? Read takes file_path, offset"
        );
        let value = json!({"file_path": 3, "limit": "x", "all": "yes", "gone": null, "list": {}});
        let args = CallArgs::new("T", &value, &["file_path", "limit", "all", "gone", "list"]).expect("known");
        assert_eq!(message(args.text("file_path")), "invalid arguments: `file_path` must be a string, not 3");
        assert_eq!(
            message(args.opt_count("limit", 1)),
            "invalid arguments: `limit` must be a whole number of at least 1, not the string \"x\""
        );
        assert_eq!(
            message(args.flag("all", false)),
            "invalid arguments: `all` must be true or false, not the string \"yes\""
        );
        assert_eq!(message(args.text("gone")), "invalid arguments: `gone` is missing; it must be a string");
        assert_eq!(message(args.opt_list("list")), "invalid arguments: `list` must be a list, not an object");
    }

    #[test]
    fn numbers_may_be_written_as_decimals() {
        let value = json!({"a": 10.0, "b": 0, "c": -1, "d": 1.5});
        let args = CallArgs::new("T", &value, &["a", "b", "c", "d"]).expect("known");
        assert_eq!(args.opt_count("a", 1).expect("fine"), Some(10));
        assert!(args.opt_count("b", 1).is_err());
        assert!(args.opt_count("c", 0).is_err());
        assert!(args.opt_count("d", 0).is_err());
    }
}
