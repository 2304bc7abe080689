//! The environment of child processes: the user's, without what a command must not know.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Environment variables by name.
pub type EnvVars = BTreeMap<OsString, OsString>;

/// Variables of model providers, whatever their value is.
const PROVIDERS: &[&str] = &[
    "ANTHROPIC_",
    "OPENAI_",
    "AZURE_OPENAI_",
    "GEMINI_",
    "GOOGLE_API_",
    "GROQ_",
    "MISTRAL_",
    "DEEPSEEK_",
    "XAI_",
    "COHERE_",
    "OPENROUTER_",
    "TOGETHER_",
    "FIREWORKS_",
    "NEBIUS_",
    "ZAI_",
    "OLLAMA_",
    "CLAUDE_",
];
/// Words that make a variable a secret.
const SECRET_WORDS: &[&str] = &[
    "KEY",
    "KEYS",
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "PASS",
    "PASSPHRASE",
    "CREDENTIAL",
    "CREDENTIALS",
    "CREDS",
    "JWT",
    "PAT",
];
/// The same at the end of a longer name: `MYSQL_PWD`, `NPM_AUTH`. `PWD` alone is the working directory.
const SECRET_ENDS: &[&str] = &["_PWD", "_AUTH", "_COOKIE"];
/// Parameters of a URL or of a connection string that are secrets.
const SECRET_PARAMETERS: &[&str] = &["password", "passwd", "pwd", "token", "secret", "apikey", "sig"];
/// The same, inside of a word.
const SECRET_PARTS: &[&str] = &["PASSWORD", "CREDENTIAL", "APIKEY", "AUTHTOKEN", "ACCESSKEY", "SECRETKEY"];

/// Whether the variable must be hidden from commands.
///
/// `secret` are the names that the configuration declares as keys; they count whatever their form.
pub fn is_secret(name: &OsStr, secret: &[String]) -> bool {
    let name = name.to_string_lossy();
    let upper = name.to_uppercase();
    // The name of a setting that is handed to git, which does not start without it.
    if upper.starts_with("GIT_CONFIG_KEY_") {
        return false;
    }
    secret.iter().any(|s| *s == name)
        || upper.starts_with("AYE_")
        || PROVIDERS.iter().any(|p| upper.starts_with(p))
        || upper.split(|c: char| !c.is_alphanumeric()).any(|word| SECRET_WORDS.contains(&word))
        || SECRET_PARTS.iter().any(|part| upper.contains(part))
        || SECRET_ENDS.iter().any(|end| upper.ends_with(end))
}

/// Whether a value contains a password: in a URL, as in `postgres://user:password@host/name`, as a parameter of a URL
/// or a connection string, or as a private key.
pub fn holds_password(value: &OsStr) -> bool {
    let value = value.to_string_lossy();
    value.match_indices("://").any(|(at, _)| {
        let rest = &value[at + 3..];
        let rest = &rest[..rest.find(char::is_whitespace).unwrap_or(rest.len())];
        // A password may contain any of these characters itself, but the host and the port of a URL without one do not.
        let Some((before, _)) = rest.rsplit_once('@') else { return false };
        let Some((user, password)) = before.split_once(':') else { return false };
        let is_port = password
            .find(['/', '?', '#'])
            .is_some_and(|end| password[..end].chars().all(|c| c.is_ascii_digit()));
        !user.contains(['/', '?', '#', '@']) && !password.is_empty() && !password.starts_with('@') && !is_port
    }) || has_secret_parameter(&value)
        || value.contains("-----BEGIN") && value.contains("PRIVATE KEY-----")
}

/// Whether a value has a parameter such as `?password=x`, `&access_token=x` or `;Pwd=x`.
fn has_secret_parameter(value: &str) -> bool {
    value.split(['?', '&', ';', ' ', '\n']).any(|part| {
        let Some((name, value)) = part.split_once('=') else { return false };
        let name = name.to_lowercase().replace(['_', '-'], "");
        // The value of a variable is no secret itself: a shell function may be exported.
        !value.is_empty()
            && !value.starts_with(['$', '"', '\''])
            && SECRET_PARAMETERS.iter().any(|secret| name.ends_with(secret))
    })
}

/// Returns the environment for a command: `base` without secrets, and with variables that keep programs from
/// paging, prompting and colouring when no user is at their terminal.
pub fn child_env(base: &EnvVars, secret: &[String]) -> EnvVars {
    let mut env: EnvVars = base
        .iter()
        .filter(|(name, value)| !is_secret(name, secret) && !holds_password(value))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect();
    // `cd src` would otherwise lead to a different folder than the one shown to the user who was asked.
    env.remove(OsStr::new("CDPATH"));
    for (name, value) in [
        ("TERM", "dumb"),
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_EDITOR", "true"),
    ] {
        env.insert(name.into(), value.into());
    }
    if !["FORCE_COLOR", "CLICOLOR_FORCE"].iter().any(|name| env.contains_key(OsStr::new(name))) {
        env.insert("NO_COLOR".into(), "1".into());
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_inside_urls_are_removed() {
        for (value, has) in [
            ("postgres://me:s3cret@db.example/x", true),
            ("HTTP://u:p@h", true),
            ("jdbc:mysql://u:p@ss@h:3306/db?x=1", true),
            ("first=1 url=amqp://guest:guest@mq//", true),
            ("https://:token@host/", true),
            ("https://user@host/", false),
            ("https://user:@host/", false),
            ("https://host/a:b@c", false),
            ("https://host:8080/a@b", false),
            ("https://host:8080/a:b@c", false),
            ("postgres://me:s3/cr?e#t@db/x", true),
            ("https://a/,https://u:p@b", true),
            ("jdbc:mysql://h/db?user=me&password=s3cret", true),
            ("https://h/x?access_token=s3cret", true),
            ("https://h/x?api-key=s3cret&y=1", true),
            ("Server=db;User Id=me;Password=s3cret;", true),
            ("Server=db;Pwd=;", false),
            ("host=db user=me password=s3cret", true),
            ("() {  local token=$1; echo \"$token\"\n}", false),
            ("https://h/x?page_token=&y=1", false),
            ("a=b", false),
            ("-----BEGIN EC PRIVATE KEY-----\nx", true),
            ("-----BEGIN CERTIFICATE-----\nx", false),
            ("ssh://git@host:22/x", false),
            ("a:b@c", false),
            ("", false),
        ] {
            assert_eq!(holds_password(OsStr::new(value)), has, "{value}");
        }
        let base = EnvVars::from([
            ("DATABASE_URL".into(), "postgres://me:s3cret@db/x".into()),
            ("HOMEPAGE".into(), "https://example.com".into()),
        ]);
        let env = child_env(&base, &[]);
        assert!(!env.contains_key(OsStr::new("DATABASE_URL")) && env.contains_key(OsStr::new("HOMEPAGE")));
    }

    #[test]
    fn secrets_and_internals_are_removed() {
        let base: EnvVars = [
            "ANTHROPIC_API_KEY",
            "OPENAI_BASE_URL",
            "GH_TOKEN",
            "my_secret",
            "AWS_ACCESS_KEY_ID",
            "DB_PASSWORD_FILE",
            "npm_config_authToken",
            "AYE_FAILPOINT",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "MYPASSWORD1",
            "MYSQL_PWD",
            "NPM_AUTH",
            "GPG_PASSPHRASE",
            "OLDPWD",
            "PWD",
            "CORP_LLM",
            "PATH",
            "HOME",
            "SSH_AUTH_SOCK",
            "LANG",
            "GNOME_KEYRING_CONTROL",
            "CDPATH",
            "GIT_CONFIG_KEY_0",
            "CARGO_HOME",
            "TERM",
            "XDG_RUNTIME_DIR",
        ]
        .into_iter()
        .map(|name| (name.into(), "canary".into()))
        .collect();
        let env = child_env(&base, &["CORP_LLM".into()]);
        let kept: Vec<_> = env
            .iter()
            .filter(|(_, v)| *v == "canary")
            .map(|(n, _)| n.to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            kept,
            [
                "CARGO_HOME",
                "GIT_CONFIG_KEY_0",
                "GNOME_KEYRING_CONTROL",
                "HOME",
                "LANG",
                "OLDPWD",
                "PATH",
                "PWD",
                "SSH_AUTH_SOCK",
                "XDG_RUNTIME_DIR"
            ]
        );
        assert_eq!(env[OsStr::new("GIT_TERMINAL_PROMPT")], "0");
        assert_eq!(env[OsStr::new("NO_COLOR")], "1");
        let coloured = child_env(&EnvVars::from([("FORCE_COLOR".into(), "1".into())]), &[]);
        assert!(!coloured.contains_key(OsStr::new("NO_COLOR")));
    }
}
