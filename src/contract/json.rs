//! JSON text, before it is read.

/// How deep arrays and objects are nested in JSON text. Readers recurse, so what is too deep is refused first.
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

#[cfg(test)]
mod tests {
    use super::depth_of;

    #[test]
    fn brackets_in_texts_do_not_count() {
        assert_eq!(depth_of("1"), 0);
        assert_eq!(depth_of(r#"{"a": [1, {"b": "[[[\"[["}]}"#), 3);
        assert_eq!(depth_of("[],[],[]"), 1);
    }
}
