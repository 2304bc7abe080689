//! JSON schemas for users: a matching value, and the expected form in words.

use serde_json::{Map, Value, json};

use super::display::{escape_json, visible_line};
use super::json::{depth_of, required};

/// Nested schemas deeper than this are not followed.
const MAX_DEPTH: usize = 8;
/// JSON in a string that is nested deeper than this stays a string.
const MAX_TEXT_DEPTH: usize = 64;
/// Nested schemas deeper than this are not spelled out in words.
const MAX_FORM_DEPTH: usize = 4;
/// Maximum choices that are listed.
const MAX_CHOICES: usize = 12;
/// Maximum characters of a schema that has no words of its own.
const MAX_OTHER: usize = 200;

/// Returns a value that fits a schema as well as an invented value can: values from the schema (`examples`,
/// `default`, the first choice) come before invented text.
pub fn example(schema: &Value) -> Value {
    example_at(schema, 0)
}

fn example_at(schema: &Value, depth: usize) -> Value {
    let first = |key: &str| schema.get(key).and_then(Value::as_array).and_then(|values| values.first());
    let offered = first("examples").or_else(|| schema.get("default")).or_else(|| schema.get("const"));
    if let Some(value) = offered.or_else(|| first("enum")) {
        return value.clone();
    }
    if depth > MAX_DEPTH {
        return Value::Null;
    }
    if let Some(one) = first("anyOf").or_else(|| first("oneOf")).or_else(|| first("allOf")) {
        let mut merged = schema.clone();
        for key in ["anyOf", "oneOf", "allOf"] {
            merged.as_object_mut().map(|members| members.shift_remove(key));
        }
        merge(&mut merged, one);
        return example_at(&merged, depth + 1);
    }
    let kind = schema.get("type").and_then(|kind| kind.as_str().or_else(|| kind.get(0)?.as_str()));
    match kind {
        Some("object") => object(schema, depth),
        None if schema.get("properties").is_some() => object(schema, depth),
        Some("array") => {
            let item = example_at(schema.get("items").unwrap_or(&Value::Null), depth + 1);
            let count = schema.get("minItems").and_then(Value::as_u64).unwrap_or(1).clamp(1, 10);
            Value::Array((0..count).map(|_| item.clone()).collect())
        }
        Some("number" | "integer") => number(schema),
        Some("boolean") => json!(true),
        Some("null") => Value::Null,
        Some(_) | None => text(schema),
    }
}

fn object(schema: &Value, depth: usize) -> Value {
    let needed = required(schema);
    let is_shown = |name: &str, property: &Value| {
        needed.is_empty() || needed.contains(&name) || property.get("examples").is_some()
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    let shown = properties.into_iter().flatten().filter(|(name, property)| is_shown(name, property));
    let mut made: Map<String, Value> =
        shown.map(|(name, property)| (name.clone(), example_at(property, depth + 1))).collect();
    for name in needed {
        made.entry(name).or_insert_with(|| json!("…"));
    }
    let made = Value::Object(made);
    let Some(condition) = schema.get("if") else { return made };
    let key = if is_fit(condition, &made) { "then" } else { "else" };
    let mut merged = schema.clone();
    for key in ["if", "then", "else"] {
        merged.as_object_mut().map(|members| members.shift_remove(key));
    }
    merge(&mut merged, schema.get(key).unwrap_or(&Value::Null));
    if depth > MAX_DEPTH { made } else { example_at(&merged, depth + 1) }
}

/// Joins a schema with another that must hold too; what is required of either is required.
fn merge(schema: &mut Value, other: &Value) {
    match (schema, other) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                match into.get_mut(key) {
                    Some(known) => merge(known, value),
                    None => drop(into.insert(key.clone(), value.clone())),
                }
            }
        }
        (Value::Array(into), Value::Array(from)) => {
            into.extend(from.iter().filter(|value| value.is_string()).cloned());
        }
        _ => {}
    }
}

fn number(schema: &Value) -> Value {
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let least = bound("minimum").or_else(|| bound("exclusiveMinimum").map(|above| above + 1.0));
    let most = bound("maximum").or_else(|| bound("exclusiveMaximum").map(|below| below - 1.0));
    let number = least.unwrap_or_else(|| most.map_or(1.0, |most| most.min(1.0)));
    if number.fract() == 0.0 && number.abs() < 1e15 { json!(number as i64) } else { json!(number) }
}

fn text(schema: &Value) -> Value {
    let text = match schema.get("format").and_then(Value::as_str) {
        Some("email") => "me@example.com",
        Some("uri" | "url") => "https://example.com",
        Some("date") => "2027-01-31",
        Some("date-time") => "2027-01-31T12:00:00Z",
        Some("time") => "12:00:00Z",
        Some(_) | None => "…",
    };
    let least = schema.get("minLength").and_then(Value::as_u64).map_or(0, |least| least.min(200) as usize);
    let missing = least.saturating_sub(text.chars().count());
    json!(text.chars().chain(std::iter::repeat_n('…', missing)).collect::<String>())
}

/// Returns whether a value fits a schema; nothing fits an invalid one.
pub fn is_fit(schema: &Value, value: &Value) -> bool {
    jsonschema::validator_for(schema).is_ok_and(|validator| validator.is_valid(value))
}

/// Returns a value that fits a schema and has the members of `known`, completed from the [`example`] where they do not
/// suffice. If that does not fit either, it is the example.
pub fn example_with(schema: &Value, known: Value) -> Value {
    if is_fit(schema, &known) {
        return known;
    }
    let made = example(schema);
    let mut completed = known;
    complete(&mut completed, &made);
    if is_fit(schema, &completed) { completed } else { made }
}

/// Adds the members that a value lacks.
fn complete(value: &mut Value, from: &Value) {
    match (value, from) {
        (Value::Object(members), Value::Object(others)) => {
            for (name, other) in others {
                complete(members.entry(name).or_insert(Value::Null), other);
            }
        }
        (value @ Value::Null, other) => *value = other.clone(),
        _ => {}
    }
}

/// Turns strings into what a schema demands in their place, where it leaves no doubt: `"3"` where only a number fits,
/// `"true"` where only true or false does, a list or an object as JSON text. Everything else stays as it is.
pub fn coerce(schema: &Value, value: &mut Value) {
    coerce_at(schema, value, 0);
}

fn coerce_at(schema: &Value, value: &mut Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    if let Value::String(text) = value
        && let Some(meant) = meant_by(text, schema)
    {
        *value = meant;
    }
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if let Some(property) = schema.get("properties").and_then(|properties| properties.get(name)) {
                    coerce_at(property, member, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            if let Some(of_each) = schema.get("items").filter(|items| items.is_object()) {
                for item in items {
                    coerce_at(of_each, item, depth + 1);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the only value that a string can stand for under a schema that allows no string.
fn meant_by(text: &str, schema: &Value) -> Option<Value> {
    let kinds = kinds_of(schema, 0)?;
    if kinds.contains(&"string") {
        return None;
    }
    let text = text.trim();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let meant = match text {
        _ if text.eq_ignore_ascii_case("true") => Value::Bool(true),
        _ if text.eq_ignore_ascii_case("false") => Value::Bool(false),
        _ if text.starts_with(['[', '{']) && depth_of(text) <= MAX_TEXT_DEPTH => {
            serde_json::from_str(text).ok()?
        }
        // Not JSON in the case of a leading zero, which says that it is no number.
        _ if is_plain => serde_json::from_str(text).ok()?,
        _ => return None,
    };
    let is_allowed = match &meant {
        Value::Bool(_) => kinds.contains(&"boolean"),
        Value::Number(number) => kinds.contains(&"number") || !number.is_f64() && kinds.contains(&"integer"),
        Value::Array(_) => kinds.contains(&"array"),
        Value::Object(_) => kinds.contains(&"object"),
        Value::Null | Value::String(_) => false,
    };
    is_allowed.then_some(meant)
}

/// The kinds of values that a schema allows; `None` if it does not say.
fn kinds_of(schema: &Value, depth: usize) -> Option<Vec<&str>> {
    if depth > MAX_DEPTH || schema.get("$ref").is_some() {
        return None;
    }
    match schema.get("type") {
        Some(Value::String(kind)) => return Some(vec![kind]),
        Some(Value::Array(kinds)) => return kinds.iter().map(Value::as_str).collect(),
        _ => {}
    }
    let choices = schema.get("anyOf").or_else(|| schema.get("oneOf"))?.as_array()?;
    let kinds: Option<Vec<Vec<&str>>> = choices.iter().map(|choice| kinds_of(choice, depth + 1)).collect();
    kinds.map(|kinds| kinds.concat())
}

/// Returns the form that a schema expects, as JSON with words where a choice remains.
pub fn form(schema: &Value) -> String {
    form_at(schema, 0)
}

fn form_at(schema: &Value, depth: usize) -> String {
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        let mut words: Vec<String> = choices.iter().map(Value::to_string).take(MAX_CHOICES).collect();
        if choices.len() > words.len() {
            words.push("…".to_owned());
        }
        return words.join(" or ");
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") if depth < MAX_FORM_DEPTH => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let part = |name: &str| {
                let of = properties.and_then(|properties| properties.get(name)).unwrap_or(&Value::Null);
                format!("{}: {}", Value::from(name), form_at(of, depth + 1))
            };
            let mut names = required(schema);
            if names.is_empty() || schema.get("if").is_some() {
                let all = properties.into_iter().flatten().map(|(name, _)| name.as_str());
                names = all.collect();
            }
            format!("{{{}}}", names.into_iter().map(part).collect::<Vec<_>>().join(", "))
        }
        Some("array") if depth < MAX_FORM_DEPTH => {
            format!("[{}, …]", form_at(schema.get("items").unwrap_or(&Value::Null), depth + 1))
        }
        Some("string") => "\"text\"".to_owned(),
        Some("integer" | "number") => "number".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("null") => "null".to_owned(),
        Some(_) | None if schema.is_null() => "JSON".to_owned(),
        Some(_) | None => schema.to_string().chars().take(MAX_OTHER).collect(),
    }
}

/// Returns the command that answers a question with this value. Whatever the id and the answer contain, a
/// shell runs this command and no other.
pub fn answer_command(id: &str, answer: &Value) -> String {
    let quoted = |text: &str, else_: &str| {
        shlex::try_quote(text).map_or_else(|_| else_.to_owned(), std::borrow::Cow::into_owned)
    };
    format!(
        "aye answer {} {}",
        quoted(&visible_line(id), "ID"),
        quoted(&escape_json(&answer.to_string()), "JSON")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(schema: &Value) -> Value {
        let made = example(schema);
        let validator = jsonschema::options().should_validate_formats(true).build(schema).expect("a schema");
        let problems: Vec<String> = validator.iter_errors(&made).map(|error| error.to_string()).collect();
        assert!(problems.is_empty(), "{made} of {schema}: {problems:?}");
        made
    }

    #[test]
    fn an_example_matches_its_schema() {
        let button = json!({"type": "object", "required": ["userAction"], "properties": {
            "userAction": {"type": "object", "required": ["name", "surfaceId"], "properties": {
                "name": {"enum": ["accept", "decline"]}, "surfaceId": {"const": "mcp:1"}}},
            "dataModel": {"type": "object", "properties": {
                "shelf": {"enum": ["top", "low"]}, "count": {"type": ["number", "string"]}}}},
            "if": {"properties": {"userAction": {"properties": {"name": {"const": "accept"}}}}},
            "then": {"required": ["dataModel"], "properties": {"dataModel": {"required": ["shelf"]}}}});
        let made = fits(&button);
        assert_eq!(made["userAction"], json!({"name": "accept", "surfaceId": "mcp:1"}));
        assert_eq!(made["dataModel"], json!({"shelf": "top"}));
        let text = |more: Value| {
            let mut schema = json!({"type": "string"});
            merge(&mut schema, &more);
            fits(&json!({"type": "object", "properties": {"a": schema}, "required": ["a"]}))
        };
        for more in [
            json!({}),
            json!({"format": "email"}),
            json!({"format": "date"}),
            json!({"minLength": 9}),
            json!({"format": "uri"}),
            json!({"format": "date-time"}),
            json!({"enum": ["x"]}),
        ] {
            text(more);
        }
        for schema in [
            json!({"type": "integer", "minimum": 4}),
            json!({"type": "number", "exclusiveMinimum": 2.5}),
            json!({"type": "integer", "maximum": -3}),
            json!({"type": "boolean"}),
            json!({"type": "null"}),
            json!({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1}),
            json!({}),
            json!({"const": 7}),
            json!({"type": "object", "required": ["free"]}),
            json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
            json!({"type": "object", "properties": {"choice": {"enum": ["rerun", "done"]}}, "required": ["choice"]}),
        ] {
            fits(&schema);
        }
        let mut deep = json!({"type": "object", "properties": {}});
        for _ in 0..60 {
            deep = json!({"type": "object", "properties": {"a": deep}, "if": true, "then": {"minProperties": 0}});
        }
        assert!(example(&deep).to_string().len() < 4000, "it ends");
    }

    #[test]
    fn known_values_are_kept_and_completed() {
        let schema = json!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "string"}, "b": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}});
        let whole = json!({"a": "x", "b": {"n": 3, "more": true}});
        assert_eq!(example_with(&schema, whole.clone()), whole);
        assert_eq!(
            example_with(&schema, json!({"b": {"more": true}})),
            json!({"b": {"more": true, "n": 1}, "a": "…"})
        );
        assert_eq!(example_with(&schema, json!({"a": 1})), example(&schema));
    }

    #[test]
    fn strings_become_what_the_schema_demands() {
        let schema = json!({"type": "object", "properties": {
            "offset": {"type": "integer"}, "ratio": {"type": ["number", "null"]}, "all": {"type": "boolean"},
            "text": {"type": "string"}, "both": {"type": ["string", "integer"]}, "any": {},
            "choice": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "open": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/x"}]},
            "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            "object": {"type": "object", "properties": {"n": {"type": "integer"}}}}});
        let coerced = |name: &str, value: Value| {
            let mut args = json!({ name: value });
            coerce(&schema, &mut args);
            args[name].take()
        };
        for (name, given, expected) in [
            ("offset", json!("1"), json!(1)),
            ("offset", json!(" -12 "), json!(-12)),
            ("ratio", json!("0.5"), json!(0.5)),
            ("ratio", json!("3"), json!(3)),
            ("all", json!("true"), json!(true)),
            ("all", json!("False"), json!(false)),
            ("choice", json!("7"), json!(7)),
            ("list", json!("[]"), json!([])),
            ("list", json!("[{\"n\": \"1\"}]"), json!([{"n": 1}])),
            ("list", json!([{"n": "1"}]), json!([{"n": 1}])),
            ("object", json!("{\"n\": 1}"), json!({"n": 1})),
        ] {
            assert_eq!(coerced(name, given.clone()), expected, "{name}: {given}");
        }
        for (name, given) in [
            ("offset", json!("1.5")),
            ("offset", json!("01")),
            ("offset", json!("1e3")),
            ("offset", json!("")),
            ("offset", json!("one")),
            ("offset", json!("true")),
            ("offset", json!("0x10")),
            ("all", json!("yes")),
            ("all", json!("1")),
            ("text", json!("true")),
            ("both", json!("1")),
            ("any", json!("1")),
            ("open", json!("1")),
            ("list", json!("{}")),
            ("object", json!("{\"n\"")),
            ("unknown", json!("1")),
        ] {
            assert_eq!(coerced(name, given.clone()), given, "{name}: no doubt is left only elsewhere");
        }
    }

    #[test]
    fn the_form_lists_the_choices() {
        let choice = json!({"type": "object", "properties": {"answer": {"type": "string", "enum": ["a", "b"]}}, "required": ["answer"]});
        assert_eq!(form(&choice), "{\"answer\": \"a\" or \"b\"}");
        let several = json!({"type": "object", "properties": {"answers": {"type": "array", "items": {"type": "string"}}}, "required": ["answers"]});
        assert_eq!(form(&several), "{\"answers\": [\"text\", …]}");
        let unknown =
            json!({"type": "object", "properties": {"n": {"type": "integer"}, "x": {"type": "boolean"}}});
        assert_eq!(form(&unknown), "{\"n\": number, \"x\": true or false}");
        assert_eq!(form(&json!({})), "{}");
        assert_eq!(form(&Value::Null), "JSON");
        assert_eq!(form(&json!({"const": 7})), "7");
        // A schema nested without end, and one with a million choices, end.
        let mut deep = json!({"type": "array"});
        for _ in 0..60 {
            deep = json!({"type": "array", "items": deep});
        }
        assert!(form(&deep).len() < 400);
        let many: Vec<usize> = (0..1000).collect();
        assert!(form(&json!({ "enum": many })).ends_with("11 or …"));
    }

    #[test]
    fn an_answer_is_one_command_with_the_same_json() {
        let answer = json!({"a": "it's $(reboot)\u{1b}]0;\u{202e}"});
        let command = answer_command("q $(x)", &answer);
        assert!(!command.chars().any(crate::contract::display::is_unsafe));
        let words = shlex::split(&command).expect("a command");
        assert_eq!(words[..3], ["aye", "answer", "q $(x)"]);
        assert_eq!(serde_json::from_str::<Value>(&words[3]).expect("JSON"), answer);
    }
}
