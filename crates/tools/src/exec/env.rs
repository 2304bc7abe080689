//! The environment of child processes: the user's, without what a command must not know. In the sandbox, a command gets
//! what builds need ([`BUILD`]) and what the user names; everything else is withheld.

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

/// What builds of the usual languages need, as names.
///
/// Values may contain secrets even so, such as the address of a package index: [`child_env`] has removed those with a
/// password, and [`names_a_user`] finds those with a name that may be a token.
const BUILD: &str = include_str!("build_variables.txt");

fn build_names() -> Vec<&'static str> {
    BUILD.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect()
}

/// Whether a list has the name of a variable.
fn is_listed<T: AsRef<str>>(list: &[T], name: &str) -> bool {
    list.iter().map(AsRef::as_ref).any(|listed| match listed.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None if listed.starts_with("npm_") => listed.eq_ignore_ascii_case(name),
        None => listed == name,
    })
}

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

/// Whether a value has an address with the name of a user, which is how some package indexes take a token. Git's own
/// addresses have one that is no secret.
fn names_a_user(value: &OsStr) -> bool {
    let value = value.to_string_lossy();
    value.match_indices("://").any(|(at, _)| {
        let rest = &value[at + 3..];
        rest[..rest.find(['/', '?', '#', ',', ' ']).unwrap_or(rest.len())].contains('@')
            && !value[..at].ends_with("ssh")
    })
}

/// Whether the variable is a key of aye's own: one that the configuration declares, or that belongs to a model provider.
pub(crate) fn is_own_key(name: &OsStr, secret: &[String]) -> bool {
    let name = name.to_string_lossy();
    let upper = name.to_uppercase();
    secret.iter().any(|s| *s == name)
        || upper.starts_with("AYE_")
        || PROVIDERS.iter().any(|provider| upper.starts_with(provider))
}

/// The variables of `base` that the user names for commands. Keys of aye's own are never among them.
pub(crate) fn named_env(base: &EnvVars, secret: &[String], named: &[String]) -> EnvVars {
    let is_named = |name: &OsString| {
        name.to_str().is_some_and(|text| is_listed(named, text)) && !is_own_key(name, secret)
    };
    base.iter().filter(|(name, _)| is_named(name)).map(|(n, v)| (n.clone(), v.clone())).collect()
}

/// Returns the environment for a command in the sandbox: of that of any command, what builds need.
pub fn confined_env(base: &EnvVars, secret: &[String]) -> EnvVars {
    let build = build_names();
    let mut env = child_env(base, secret);
    env.retain(|name, value| {
        name.to_str().is_some_and(|name| is_listed(&build, name)) && !names_a_user(value)
    });
    env
}

/// Words that a program uses when a variable is missing, in lower case.
const COMPLAINTS: &[&str] = &[
    "not set",
    "unset",
    "isn't set",
    "undefined",
    "not defined",
    "unbound",
    "missing",
    "require",
    "must ",
    "not found",
    "keyerror",
    "no such",
    "empty",
    "null",
    "none",
    "nil",
    "invalid",
    "expected",
    "need",
    "environ",
    "variable",
    "export",
    "not provided",
    "not specified",
    "no value",
    "fetch_env",
    "panic",
    "cannot",
    "could not",
    "unable",
];

/// Variables that are named to the model at most.
const MAX_MISSED: usize = 3;

/// Returns those of the variables that a command asked for: in its text, or when it failed by a complaint.
pub(crate) fn missed<'a>(
    withheld: &'a [String],
    command: &str,
    output: &str,
    has_failed: bool,
) -> Vec<&'a str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let names = |text: &str, name: &str| {
        text.match_indices(name)
            .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part))
    };
    let expands = |name: &str| {
        command.match_indices(name).any(|(at, _)| {
            let before = &command[..at];
            (before.ends_with('$') || before.ends_with("${") || before.ends_with("printenv "))
                && !command[at + name.len()..].starts_with(is_part)
        })
    };
    let complaints: Vec<&str> = if has_failed {
        let complains = |line: &&str| {
            let line = line.to_lowercase();
            COMPLAINTS.iter().any(|word| line.contains(word))
        };
        output.lines().filter(complains).collect()
    } else {
        Vec::new()
    };
    // One letter is a word in any text.
    let all = withheld.iter().map(String::as_str).filter(|name| name.len() > 2);
    let missed = all.filter(|name| expands(name) || complaints.iter().any(|line| names(line, name)));
    missed.take(MAX_MISSED).collect()
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

    fn env(pairs: &[(&str, &str)]) -> EnvVars {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn the_sandbox_passes_what_builds_need_and_nothing_else() {
        let kept = [
            ("PATH", "/usr/bin"),
            ("LC_ALL", "C.UTF-8"),
            ("CARGO_TARGET_DIR", "/srv/target"),
            ("RUSTFLAGS", "-Cdebuginfo=0"),
            ("NPM_CONFIG_REGISTRY", "https://mirror.example/npm"),
            ("npm_config_cache", "/srv/npm"),
            ("VIRTUAL_ENV", "/srv/venv"),
            ("PIP_INDEX_URL", "https://mirror.example/simple"),
            ("UV_CACHE_DIR", "/srv/uv"),
            ("GOPROXY", "https://proxy.example,direct"),
            ("GOFLAGS", "-mod=mod"),
            ("JAVA_HOME", "/usr/lib/jvm/x"),
            ("MAKEFLAGS", "-j2"),
            ("CC_x86_64_unknown_linux_musl", "musl-gcc"),
            ("GIT_AUTHOR_NAME", "me"),
        ];
        let withheld = [
            ("STRIPE", "rk_live_0123456789"),
            ("GH", "ghp_0123456789"),
            ("AWS", "AKIA0123456789"),
            ("SLACK", "xoxb-0123456789"),
            ("HEADER", "Authorization: Bearer x"),
            ("DOCKER_AUTH_CONFIG", "{}"),
            ("COOKIE", "x"),
            ("SESSION", "x"),
            ("WEBHOOK", "https://hooks.example/x"),
            ("SSH_AUTH_SOCK", "/run/agent"),
            ("CARGO_REGISTRY_TOKEN", "x"),
            ("npm_config__auth", "x"),
            ("npm_config_//registry.example/:_authToken", "x"),
            ("YARN_NPM_AUTH_IDENT", "me:x"),
            ("BUNDLE_GEMS__EXAMPLE__COM", "me:x"),
            ("PIP_EXTRA_INDEX_URL", "https://me:x@mirror.example/simple"),
            ("UV_INDEX_URL", "https://token@mirror.example/simple"),
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "http.extraHeader"),
            ("GIT_CONFIG_VALUE_0", "Authorization: x"),
            ("NIX_CONFIG", "access-tokens = example=x"),
            ("ANTHROPIC_API_KEY", "x"),
        ];
        let base = env(&[kept.as_slice(), withheld.as_slice()].concat());
        let given = confined_env(&base, &[]);
        for (name, value) in kept {
            assert_eq!(given.get(OsStr::new(name)).map(|it| it.to_str()), Some(Some(value)), "{name}");
        }
        for (name, _) in withheld {
            assert!(!given.contains_key(OsStr::new(name)), "{name}");
        }
        // What is made for every command is among it.
        assert_eq!(confined_env(&EnvVars::new(), &[]), child_env(&EnvVars::new(), &[]));
    }

    #[test]
    fn the_user_names_more_but_no_key_of_ayes_own() {
        let base = env(&[
            ("STRIPE", "a"),
            ("APP_A", "b"),
            ("APP_TOKEN", "c"),
            ("OPENAI_API_KEY", "d"),
            ("LLM", "e"),
        ]);
        let named = ["STRIPE", "APP_*", "OPENAI_API_KEY", "LLM"].map(str::to_owned);
        let given = named_env(&base, &["LLM".to_owned()], &named);
        assert_eq!(given, env(&[("STRIPE", "a"), ("APP_A", "b"), ("APP_TOKEN", "c")]));
    }

    #[test]
    fn a_missed_variable_is_found_in_the_command_and_in_complaints() {
        let withheld = ["STRIPE", "SESSION", "DB"].map(str::to_owned);
        for (command, output, has_failed, found) in [
            ("./pay", "bash: line 1: STRIPE: unbound variable", true, &["STRIPE"][..]),
            ("./pay", "KeyError: 'STRIPE'", true, &["STRIPE"]),
            ("./pay", "environment variable `SESSION` not defined", true, &["SESSION"]),
            ("./pay", "STRIPE_KEY is missing", true, &[]),
            ("./pay", "MY_STRIPE is missing", true, &[]),
            ("./pay", "test STRIPE ... ok", true, &[]),
            ("./pay", "STRIPE is missing", false, &[]),
            ("echo ${SESSION:-x}", "x", false, &["SESSION"]),
            ("curl -H \"a: $STRIPE\"", "", false, &["STRIPE"]),
            ("echo $STRIPES", "", false, &[]),
            ("printenv SESSION", "", true, &["SESSION"]),
            ("./db", "DB is not set", true, &[]),
        ] {
            assert_eq!(missed(&withheld, command, output, has_failed), found, "{command} {output}");
        }
    }

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
