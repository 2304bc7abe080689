//! Settings as users may see them: possible secrets are left out. A `${NAME}` in place of a secret is shown.

/// The placeholder for redacted text.
const REDACTED: &str = "(redacted)";

/// The references to variables in a text, without their defaults, which are written out.
pub(super) fn only_references(text: &str) -> String {
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
pub(crate) fn without_password(text: &str) -> String {
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
    use super::super::kinds::one_line;
    use super::super::layer::Key;
    use super::super::schema::lookup;

    #[test]
    fn possible_secrets_are_redacted() {
        for (key, value, want) in [
            (
                "mcp_servers.x.env",
                r#"{TOKEN = "s3cret", N = ""}"#,
                r#"{N = "(redacted)", TOKEN = "(redacted)"}"#,
            ),
            ("mcp_servers.x.env", r#"{T = "${MINE:-s3cret}"}"#, r#"{T = "${MINE}"}"#),
            (
                "mcp_servers.x.headers",
                r#"{Authorization = "Bearer ${T} s3cret"}"#,
                r#"{Authorization = "${T}"}"#,
            ),
            ("mcp_servers.x.oauth_client_secret", r#""s3cret""#, r#""(redacted)""#),
            (
                "mcp_servers.x.url",
                r#""https://u:s3cret@h:1/mcp?k=s3cret""#,
                r#""https://(redacted)@h:1/mcp?(redacted)""#,
            ),
            (
                "mcp_servers.x.args",
                r#"["--api-key", "s3cret", "-v", "--token=s3cret", "x"]"#,
                r#"["--api-key", "(redacted)", "-v", "--token=(redacted)", "x"]"#,
            ),
            (
                "tui.status_command",
                r#"["line", "--token", "s3cret"]"#,
                r#"["line", "--token", "(redacted)"]"#,
            ),
            (
                "questions.notify",
                r#"["bell", {command = ["tell", "--token", "s3cret"]}]"#,
                r#"["bell", {command = ["tell", "--token", "(redacted)"]}]"#,
            ),
            ("providers.x.api_key_env", r#""CORP_LLM""#, r#""CORP_LLM""#),
            ("theme", r#""dark""#, r#""dark""#),
        ] {
            let (_, leaf) = lookup(&Key::of(key)).expect("a key");
            let shown = one_line(&(leaf.redacted)(&value.parse().expect("a value")));
            assert_eq!(shown, want, "{key}");
            assert!(!shown.contains("s3cret"));
        }
    }
}
