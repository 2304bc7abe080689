//! Settings as users may see them: possible secrets are left out. A `${NAME}` in place of a secret is shown.

use super::layer::{Key, Value};

/// The placeholder for redacted text.
const REDACTED: &str = "(redacted)";

/// A value without the secrets in it.
pub(super) fn redacted(key: &Key, value: &Value) -> Value {
    let of_server = match key.0.as_slice() {
        [table, _, name] if table == "mcp_servers" => name.as_str(),
        _ => "",
    };
    match (of_server, value) {
        ("env" | "headers", Value::List(entries)) => {
            Value::List(entries.iter().map(|entry| named(entry)).collect())
        }
        ("oauth_client_secret", Value::Text(text)) => Value::Text(only_references(text)),
        ("args", Value::List(args)) => Value::List(arguments(args)),
        (_, Value::Text(text)) => Value::Text(without_password(text)),
        (_, other) => other.clone(),
    }
}

/// The name of `NAME=value`.
fn named(entry: &str) -> String {
    let (name, value) = entry.split_once('=').unwrap_or(("", entry));
    format!("{name}={}", only_references(value))
}

/// The references to variables in a text, without their defaults, which are written out.
fn only_references(text: &str) -> String {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once("${").and_then(|(_, after)| after.split_once('}')) {
        found.push(format!("${{{}}}", name.split(':').next().unwrap_or_default()));
        rest = after;
    }
    if found.is_empty() { REDACTED.to_owned() } else { found.join(" ") }
}

/// Arguments of a program: the values of options that are called keys, and passwords in URLs.
pub(super) fn arguments(args: &[String]) -> Vec<String> {
    let is_key = |text: &str| {
        let lower = text.to_lowercase();
        text.starts_with('-')
            && ["key", "token", "secret", "password", "auth", "header"]
                .iter()
                .any(|word| lower.contains(word))
    };
    let mut follows_key = false;
    let mut shown = Vec::new();
    for arg in args {
        let value_of_key = std::mem::replace(&mut follows_key, is_key(arg) && !arg.contains('='));
        shown.push(match arg.split_once('=') {
            _ if value_of_key => only_references(arg),
            Some((name, value)) if is_key(name) => format!("{name}={}", only_references(value)),
            _ => without_password(arg),
        });
    }
    shown
}

/// A URL without the user, the password and the query in it; any other text as it is.
pub(super) fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = match host.rsplit_once('@') {
        Some((_, host)) => format!("{REDACTED}@{host}"),
        None => host.to_owned(),
    };
    match path.split_once('?') {
        Some((path, query)) => format!("{scheme}://{host}{path}?{}", only_references(query)),
        None => format!("{scheme}://{host}{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(key: &str, value: Value) -> String {
        redacted(&Key::of(key), &value).to_string()
    }

    #[test]
    fn what_may_be_a_secret_is_left_out() {
        let list = |texts: &[&str]| Value::List(texts.iter().map(|text| (*text).to_owned()).collect());
        let text = |text: &str| Value::Text(text.to_owned());
        for (key, value, want) in [
            ("mcp_servers.x.env", list(&["TOKEN=s3cret", "N="]), r#"["TOKEN=(redacted)", "N=(redacted)"]"#),
            ("mcp_servers.x.env", list(&["T=${MINE:-s3cret}"]), r#"["T=${MINE}"]"#),
            (
                "mcp_servers.x.headers",
                list(&["Authorization=Bearer ${T} s3cret"]),
                r#"["Authorization=${T}"]"#,
            ),
            ("mcp_servers.x.oauth_client_secret", text("s3cret"), r#""(redacted)""#),
            (
                "mcp_servers.x.url",
                text("https://u:s3cret@h:1/mcp?k=s3cret"),
                r#""https://(redacted)@h:1/mcp?(redacted)""#,
            ),
            (
                "mcp_servers.x.args",
                list(&["--api-key", "s3cret", "-v", "--token=s3cret", "x"]),
                r#"["--api-key", "(redacted)", "-v", "--token=(redacted)", "x"]"#,
            ),
            ("providers.x.base_url", text("http://u:s3cret@h/v1"), r#""http://(redacted)@h/v1""#),
            ("providers.x.api_key_env", text("CORP_LLM"), r#""CORP_LLM""#),
            ("theme", text("dark"), r#""dark""#),
        ] {
            let shown = shown(key, value);
            assert_eq!(shown, want, "{key}");
            assert!(!shown.contains("s3cret"));
        }
    }
}
