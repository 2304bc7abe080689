//! JSON text before it is parsed, and JSON schemas.

use serde_json::Value;

/// Returns how deep arrays and objects are nested in JSON text. Readers recurse, so the depth is checked
/// before reading.
pub fn depth_of(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The names that a schema of an object says must be there.
pub fn required(schema: &Value) -> Vec<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{depth_of, required};

    #[test]
    fn required_members_are_a_list_of_names() {
        assert_eq!(required(&json!({"required": ["a", 1, "b"]})), ["a", "b"]);
        assert!(required(&json!({"required": "a"})).is_empty() && required(&json!({})).is_empty());
    }

    #[test]
    fn brackets_in_strings_do_not_count() {
        assert_eq!(depth_of("1"), 0);
        assert_eq!(depth_of(r#"{"a": [1, {"b": "[[[\"[["}]}"#), 3);
        assert_eq!(depth_of("[],[],[]"), 1);
    }
}
