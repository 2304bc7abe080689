//! Every key that a settings file may hold, in one table: type, who may set it, what it is for.

use std::fmt;

use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::near::{distance, is_near};

/// The kind of value of a leaf of the settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ValueKind {
    /// Any text that is not blank.
    Text,
    /// A whole number from `min` up.
    Count { min: u64 },
    /// A number that is not negative.
    Number,
    /// `true` or `false`.
    Flag,
    /// A list of texts.
    TextList,
    /// A list of domains, with or without `*.` before them.
    DomainList,
    /// A list of some of these words.
    ListOf(&'static [&'static str]),
    /// A table of texts, such as variables by name.
    TextTable,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Seconds as a whole number, or text with a unit: `500ms`, `90s`, `2m`.
    Duration,
    /// The same, between two bounds in milliseconds.
    DurationIn { min_ms: u64, max_ms: u64 },
    /// An `http://` or `https://` address without a name or password in it.
    Url,
    /// The name of an environment variable, never its value.
    EnvName,
    /// The time until a question expires: `30m`, `2h`, `never`.
    Expiry,
    /// The recipients of notifications about pending questions: words, and tables with a command.
    NotifyList,
    /// The handling of questions when no user is available; `wait=` takes a duration.
    OnAsk,
    /// Any value: the code that reads the value checks it.
    Any,
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("a quoted string"),
            Self::Count { min: 0 } => f.write_str("a whole number"),
            Self::Count { min } => write!(f, "a whole number, at least {min}"),
            Self::Number => f.write_str("a non-negative number"),
            Self::Flag => f.write_str("true or false"),
            Self::TextList => f.write_str("a list of strings such as [\"a\", \"b\"]"),
            Self::DomainList => {
                f.write_str("a list of domains such as [\"docs.example.org\", \"*.example.com\"]")
            }
            Self::ListOf(words) => write!(f, "a list of some of {}", words.join(", ")),
            Self::TextTable => f.write_str("a table of strings such as {NAME = \"text\"}"),
            Self::OneOf(words) => {
                f.write_str("one of ")?;
                for (i, word) in words.iter().enumerate() {
                    write!(f, "{}\"{word}\"", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::Duration => {
                f.write_str("seconds as a whole number, or a string with a unit such as \"90s\" or \"2m\"")
            }
            Self::DurationIn { min_ms, max_ms } => {
                write!(f, "a time such as \"10s\", between {} and {}", time(*min_ms), time(*max_ms))
            }
            Self::Url => f.write_str(
                "a URL such as \"http://127.0.0.1:8080/v1/\", without a user name or password",
            ),
            Self::Expiry => f.write_str(
                "a time with a unit such as \"30m\" (s, m, h, d or w; 1 second to 365 days), or \"never\"",
            ),
            Self::NotifyList => f.write_str(
                "a list such as [\"bell\", \"desktop\", {command = [\"/path/program\", \"argument\"]}, {webhook = \"NAME\"}]",
            ),
            Self::OnAsk => f.write_str(
                "one of \"auto\", \"suspend\", \"deny\", \"wait\" or \"wait=TIME\" with seconds or a unit, such as \"wait=90\" or \"wait=2m\"",
            ),
            Self::Any => f.write_str("a TOML value"),
            Self::EnvName => f.write_str("the name of an environment variable such as \"OPENAI_API_KEY\""),
        }
    }
}

fn time(ms: u64) -> String {
    match ms {
        ms if ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

/// What a project's settings file may do with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProjectMay {
    /// Nothing, trusted or not: endpoints and keys are the user's alone (CVE-2026-21852).
    Never,
    /// Set it once the folder is trusted.
    Set,
    /// Lower it at any time, raise it once the folder is trusted; 0 counts as "no limit".
    Lower,
    /// Choose an earlier word of the list at any time, a later one never: the list starts with the strictest.
    Tighten,
}

/// One key with a value.
#[derive(Debug)]
pub(crate) struct SchemaLeaf {
    pub kind: ValueKind,
    pub project: ProjectMay,
    pub doc: &'static str,
}

/// A place in the tree of settings.
#[derive(Debug)]
pub(crate) enum SchemaNode {
    Leaf(SchemaLeaf),
    Table(Fields),
    /// A table whose keys are names that the user chooses.
    Named(Fields),
    /// A table with one value for each name that the user chooses.
    Each(SchemaLeaf),
}

pub(crate) type Fields = &'static [(&'static str, SchemaNode)];

const fn leaf(kind: ValueKind, project: ProjectMay, doc: &'static str) -> SchemaNode {
    SchemaNode::Leaf(SchemaLeaf { kind, project, doc })
}

const fn each(kind: ValueKind, project: ProjectMay, doc: &'static str) -> SchemaNode {
    SchemaNode::Each(SchemaLeaf { kind, project, doc })
}

/// The grants for obtaining tokens of MCP servers, in OAuth's terms.
const LOGIN_GRANTS: &[&str] = &["authorization_code", "client_credentials"];
pub(crate) const PERMISSION_MODES: &[&str] = &["plan", "ask", "accept-edits", "auto", "yolo"];
pub(crate) const SANDBOX_MISSING: &[&str] = &["ask", "allow"];
/// The actions at a limit.
pub(crate) const ON_LIMIT: &[&str] = &["stop", "ask"];
pub(crate) const TOOL_EXECUTIONS: &[&str] = &["sequential", "parallel_batch_approval", "parallel_streaming"];
/// Bodies that receivers of webhooks read.
pub(crate) const WEBHOOK_FORMATS: &[&str] = &["json", "slack", "discord", "ntfy"];
pub(crate) const ADAPTERS: &[&str] = &["openai", "openai_responses", "anthropic", "gemini", "ollama"];
/// The parts of the status line.
pub const STATUS_SEGMENTS: &[&str] = &[
    "model",
    "effort",
    "mode",
    "agent",
    "folder",
    "branch",
    "context",
    "tokens",
    "cost",
    "elapsed",
    "queued",
    "tasks",
    "waiting",
    "instructions",
];
pub(crate) const EFFORTS: &[&str] = &ReasoningEffort::WORDS;
pub(crate) const SCREENS: &[&str] = &["inline", "full"];

use ProjectMay::{Lower, Never, Set, Tighten};
use ValueKind::{
    Any, Count, DomainList, Duration, DurationIn, EnvName, Expiry, Flag, ListOf, NotifyList, Number, OnAsk,
    OneOf, Text, TextList, TextTable, Url,
};

/// The whole tree.
pub(crate) const ROOT: Fields = &[
    ("model", leaf(Text, Set, "model to use, as `name` or `provider/name`")),
    ("effort", leaf(OneOf(EFFORTS), Set, "reasoning effort; the model's default if unset")),
    ("agent", leaf(Text, Set, "agent to use; `aye agents list` shows all")),
    ("permission_mode", leaf(OneOf(PERMISSION_MODES), Tighten, "what happens to calls that no rule decides")),
    ("max_turns", leaf(Count { min: 0 }, Lower, "maximum inferences per run; 0 means no limit")),
    ("tool_execution", leaf(OneOf(TOOL_EXECUTIONS), Set, "order in which the calls of one answer run")),
    ("on_ask", leaf(OnAsk, Set, "what a headless run does with questions")),
    ("theme", leaf(Text, Set, "theme; `auto` is dark or light, like the background")),
    ("screen", leaf(OneOf(SCREENS), Set, "draw inline below the prompt, or on the full screen")),
    (
        "lease",
        leaf(
            DurationIn { min_ms: 100, max_ms: 600_000 },
            Never,
            "time after which another process may take over a thread whose process stopped responding",
        ),
    ),
    (
        "providers",
        SchemaNode::Named(&[
            ("adapter", leaf(OneOf(ADAPTERS), Never, "wire format of the server")),
            ("base_url", leaf(Url, Never, "URL of the server")),
            ("api_key_env", leaf(EnvName, Never, "environment variable with the key")),
        ]),
    ),
    (
        "models",
        SchemaNode::Named(&[
            ("provider", leaf(Text, Never, "provider that serves this model")),
            ("model", leaf(Text, Never, "the provider's name for it, if different")),
            ("context_window", leaf(Count { min: 1024 }, Never, "size of the context window in tokens")),
            ("max_output", leaf(Count { min: 1 }, Never, "maximum tokens per answer")),
            (
                "price",
                SchemaNode::Table(&[
                    ("input", leaf(Number, Never, "price per million prompt tokens")),
                    ("output", leaf(Number, Never, "price per million answer tokens")),
                    ("cache_read", leaf(Number, Never, "price per million cached prompt tokens")),
                ]),
            ),
        ]),
    ),
    (
        "retry",
        SchemaNode::Table(&[
            ("max_retries", leaf(Count { min: 0 }, Set, "maximum retries of a failed inference")),
            ("backoff_base_ms", leaf(Count { min: 1 }, Set, "first delay in milliseconds")),
            ("fallback_models", leaf(TextList, Set, "models to try when the first one fails")),
        ]),
    ),
    (
        "bash",
        SchemaNode::Table(&[
            ("timeout", leaf(Duration, Lower, "maximum time of a command")),
            ("max_output", leaf(Count { min: 1024 }, Lower, "maximum bytes of output for the model")),
        ]),
    ),
    (
        "stop",
        SchemaNode::Table(&[
            ("max_tokens_total", leaf(Count { min: 0 }, Lower, "maximum tokens per run; 0 means no limit")),
            (
                "timeout_s",
                leaf(
                    Count { min: 0 },
                    Lower,
                    "maximum active seconds per run, interrupts running calls; 0 means no limit",
                ),
            ),
            (
                "consecutive_errors",
                leaf(
                    Count { min: 0 },
                    Lower,
                    "maximum failed calls in a row; 0 means no \
                              limit",
                ),
            ),
            (
                "max_budget_usd",
                leaf(
                    Number,
                    Lower,
                    "maximum cost per run in USD at the prices of its models; 0 means no \
                              limit",
                ),
            ),
            (
                "loop_detection",
                leaf(
                    Count { min: 0 },
                    Set,
                    "maximum repeats of the same calls in a row; 0 and 1 mean no \
                              limit",
                ),
            ),
            (
                "on_limit",
                leaf(
                    OneOf(ON_LIMIT),
                    Set,
                    "whether a limit of cost, inferences, tokens, errors or repeats ends the run or asks you",
                ),
            ),
            ("stop_on_tool", leaf(TextList, Set, "tools whose success ends a run")),
            ("content_match", leaf(Text, Set, "regular expression; an answer that matches ends a run")),
        ]),
    ),
    (
        "mailbox",
        SchemaNode::Table(&[
            (
                "lease",
                leaf(
                    DurationIn { min_ms: 100, max_ms: 3_600_000 },
                    Never,
                    "time after which a queued job is taken from a worker that stopped responding",
                ),
            ),
            ("max_attempts", leaf(Count { min: 1 }, Never, "attempts before a queued job is dead")),
            (
                "retry_delay",
                leaf(Duration, Never, "delay before the second attempt; doubles with each attempt"),
            ),
            ("max_retry_delay", leaf(Duration, Never, "maximum delay between two attempts")),
            ("keep", leaf(Duration, Never, "how long closed jobs stay listed")),
        ]),
    ),
    (
        "context",
        SchemaNode::Table(&[(
            "compact_at",
            leaf(
                Count { min: 0 },
                Set,
                "per cent of the window at which older messages are summarised; 0 means never",
            ),
        )]),
    ),
    (
        "questions",
        SchemaNode::Table(&[
            (
                "expires_in",
                leaf(Expiry, Set, "time after which a pending question expires; never by default"),
            ),
            ("notify", leaf(NotifyList, Never, "how you are notified of a new question")),
        ]),
    ),
    (
        "webhooks",
        SchemaNode::Named(&[
            ("url", leaf(Url, Never, "URL that new questions are sent to")),
            (
                "format",
                leaf(OneOf(WEBHOOK_FORMATS), Never, "body that the receiver reads; `json` by default"),
            ),
            ("secret_env", leaf(EnvName, Never, "environment variable with the key of the signature")),
        ]),
    ),
    ("agents", each(Any, Set, "an agent of your own, with the fields of an agent's file")),
    ("sections", each(Any, Set, "configuration of a plugin, for the active agent")),
    (
        "telemetry",
        SchemaNode::Table(&[
            ("endpoint", leaf(Url, Never, "telemetry collector, by OTLP as JSON over HTTP")),
            ("content", leaf(Flag, Never, "include prompts, answers and arguments")),
        ]),
    ),
    (
        "mcp",
        SchemaNode::Table(&[
            ("timeout", leaf(Duration, Set, "maximum time of an MCP call without progress from the server")),
            ("start_timeout", leaf(Duration, Set, "maximum start time of an MCP server")),
            ("wait", leaf(Duration, Set, "how long a headless run waits for MCP servers before it starts")),
        ]),
    ),
    (
        "mcp_servers",
        SchemaNode::Named(&[
            ("command", leaf(Text, Set, "program to start")),
            ("args", leaf(TextList, Set, "its arguments")),
            ("env", leaf(TextTable, Set, "its environment variables; ${NAME} inserts one of yours")),
            ("cwd", leaf(Text, Set, "its working folder")),
            ("url", leaf(Text, Set, "URL of a running server")),
            (
                "headers",
                leaf(
                    TextTable,
                    Set,
                    "headers of each request; ${NAME} inserts an environment \
                              variable",
                ),
            ),
            ("oauth_client_id", leaf(Text, Set, "client id for the login; without one aye registers itself")),
            (
                "oauth_client_secret",
                leaf(Text, Set, "secret of that client; ${NAME} inserts an environment variable"),
            ),
            ("oauth_port", leaf(Count { min: 1 }, Set, "port of 127.0.0.1 that the browser returns to")),
            ("oauth_scopes", leaf(TextList, Set, "requested scopes instead of the server's proposal")),
            (
                "oauth_grant",
                leaf(
                    OneOf(LOGIN_GRANTS),
                    Set,
                    "client_credentials: log in with client id and secret, as in CI",
                ),
            ),
            ("timeout", leaf(Duration, Set, "maximum time of a call without progress from the server")),
            ("start_timeout", leaf(Duration, Set, "maximum start time")),
            ("enabled", leaf(Flag, Set, "whether the server is used")),
        ]),
    ),
    (
        "snapshots",
        SchemaNode::Table(&[
            ("enabled", leaf(Flag, Never, "take a snapshot of the folder before a step changes it")),
            ("max_file_mib", leaf(Count { min: 1 }, Never, "maximum size of a file in a snapshot")),
            ("max_folder_mib", leaf(Count { min: 1 }, Never, "maximum size of a folder with snapshots")),
            (
                "max_kept_mib",
                leaf(Count { min: 1 }, Never, "size above which the oldest snapshots are dropped"),
            ),
        ]),
    ),
    (
        "sandbox",
        SchemaNode::Table(&[
            ("enabled", leaf(Flag, Never, "let the kernel enforce the profile of each command")),
            ("readable", leaf(TextList, Never, "more files and folders that sandboxed commands may read")),
            (
                "writable",
                leaf(TextList, Never, "folders that sandboxed commands may change besides the project"),
            ),
            (
                "domains",
                leaf(DomainList, Never, "domains that sandboxed commands may reach; needs bubblewrap"),
            ),
            (
                "missing",
                leaf(
                    OneOf(SANDBOX_MISSING),
                    Never,
                    "what happens to allowed commands where this machine has no sandbox",
                ),
            ),
        ]),
    ),
    (
        "serve",
        SchemaNode::Table(&[
            ("public_url", leaf(Url, Never, "address under which other devices reach `aye serve`")),
            ("hosts", leaf(TextList, Never, "other host names of the server")),
            ("origins", leaf(TextList, Never, "other web origins that may use the server")),
            ("folders", leaf(TextList, Never, "folders that remote conversations may work in")),
            ("push_hosts", leaf(TextList, Never, "private hosts that push notifications may be sent to")),
        ]),
    ),
    (
        "threads",
        SchemaNode::Table(&[
            ("titles", leaf(Flag, Never, "let a model title new conversations in the background")),
            ("title_model", leaf(Text, Never, "the model for titles; the active model by default")),
            ("keep", leaf(Expiry, Never, "delete conversations last changed longer ago, such as \"180d\"")),
        ]),
    ),
    (
        "tui",
        SchemaNode::Table(&[
            ("mouse", leaf(Flag, Set, "use the mouse on the full screen")),
            ("bell", leaf(Flag, Set, "ring the bell for a new question")),
            ("show_reasoning", leaf(Flag, Set, "show the model's reasoning")),
            (
                "status",
                leaf(ListOf(STATUS_SEGMENTS), Set, "segments of the status line, most important first"),
            ),
            (
                "status_command",
                leaf(TextList, Never, "program that writes the status line; it gets JSON on stdin"),
            ),
            ("title", leaf(Flag, Set, "show current activity in the window title")),
            ("progress", leaf(Flag, Set, "show progress beside the window title, where supported")),
            ("reduced_motion", leaf(Flag, Set, "no animation; only elapsed seconds change")),
            (
                "screen_reader",
                leaf(Flag, Set, "screen reader mode: plain lines, no redrawing, questions in words"),
            ),
            (
                "images",
                leaf(
                    OneOf(&["auto", "iterm2", "sixel", "blocks", "off"]),
                    Set,
                    "how images are shown: in pixels where supported, in half blocks, or by name",
                ),
            ),
            ("editing", leaf(OneOf(&["emacs", "vim"]), Set, "editing keys of the composer")),
        ]),
    ),
];

/// The default values, in the form of a settings file.
pub(crate) const DEFAULTS: &str = r#"
permission_mode = "ask"
max_turns = 100
tool_execution = "parallel_streaming"
on_ask = "auto"
theme = "auto"
screen = "inline"
lease = "10s"
[retry]
max_retries = 6
backoff_base_ms = 500
fallback_models = []
[bash]
timeout = "2m"
max_output = 32768
[stop]
max_tokens_total = 0
timeout_s = 0
consecutive_errors = 8
[telemetry]
content = false
[mailbox]
lease = "30s"
max_attempts = 5
retry_delay = "250ms"
max_retry_delay = "30s"
keep = "24h"
[context]
compact_at = 80
[mcp]
timeout = "2m"
start_timeout = "30s"
wait = "5s"
[snapshots]
enabled = true
max_file_mib = 10
max_folder_mib = 1024
max_kept_mib = 2048
[sandbox]
enabled = true
readable = []
writable = []
domains = []
missing = "ask"
[serve]
hosts = []
origins = []
folders = []
[threads]
titles = true
keep = "never"
[tui]
mouse = true
bell = true
show_reasoning = false
title = true
progress = true
reduced_motion = false
screen_reader = false
images = "auto"
editing = "emacs"
"#;

/// Returns the node at a path, if one exists.
pub(crate) fn find<S: AsRef<str>>(path: &[S]) -> Option<&'static SchemaNode> {
    let (first, rest) = path.split_first()?;
    let mut node = &ROOT.iter().find(|(name, _)| *name == first.as_ref())?.1;
    let mut inside_named = false;
    for part in rest {
        node = match node {
            SchemaNode::Leaf(_) | SchemaNode::Each(_) => return None,
            SchemaNode::Named(_) if !inside_named => {
                inside_named = true;
                continue;
            }
            SchemaNode::Table(fields) | SchemaNode::Named(fields) => {
                &fields.iter().find(|(name, _)| *name == part.as_ref())?.1
            }
        };
    }
    Some(node)
}

/// Returns the leaf at a path, if one exists.
pub(crate) fn find_leaf<S: AsRef<str>>(path: &[S]) -> Option<&'static SchemaLeaf> {
    if let [table, _] = path
        && let Some(SchemaNode::Each(leaf)) = find(std::slice::from_ref(table))
    {
        return Some(leaf);
    }
    match find(path)? {
        // A path that ends in a user-chosen name is a table, whatever the table contains.
        SchemaNode::Leaf(leaf) => Some(leaf),
        SchemaNode::Table(_) | SchemaNode::Named(_) | SchemaNode::Each(_) => None,
    }
}

/// Suggests a replacement for an unknown key: a neighbour with a similar spelling, else the same word
/// elsewhere.
pub(crate) fn suggest(siblings: Fields, key: &str) -> Option<String> {
    let close = |name: &&'static str| is_near(name, key);
    let neighbour =
        siblings.iter().map(|(name, _)| *name).filter(close).min_by_key(|name| distance(name, key));
    neighbour.map(str::to_owned).or_else(|| {
        ROOT.iter().find_map(|(table, node)| match node {
            SchemaNode::Table(fields) => {
                fields.iter().find(|(name, _)| *name == key).map(|(name, _)| format!("{table}.{name}"))
            }
            SchemaNode::Named(fields) => {
                fields.iter().find(|(name, _)| *name == key).map(|(name, _)| format!("{table}.NAME.{name}"))
            }
            SchemaNode::Leaf(_) | SchemaNode::Each(_) => (*table == key)
                .then(|| format!("{key}` at the top of the file, outside of any table; `{key}")),
        })
    })
}

/// The known names for messages that have no near miss to offer.
pub(crate) fn names(fields: Fields) -> String {
    fields.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_their_leaf() {
        assert!(find_leaf(&["model"]).is_some());
        assert!(find_leaf(&["models", "my.model", "price", "input"]).is_some());
        assert!(find_leaf(&["providers", "x", "base_url"]).is_some());
        assert!(find_leaf(&["providers", "base_url"]).is_none(), "that is a provider named base_url");
        assert!(find_leaf(&["model", "x"]).is_none());
        assert!(find_leaf(&["bash"]).is_none());
        assert!(find_leaf(&["sections", "stop"]).is_some());
        assert!(find_leaf(&["sections"]).is_none());
        assert!(find_leaf(&["sections", "stop", "policies"]).is_none());
        assert!(find_leaf::<&str>(&[]).is_none());
    }

    #[test]
    fn a_misspelled_key_gets_a_suggestion() {
        let at_root = |key| suggest(ROOT, key);
        assert_eq!(at_root("modle").as_deref(), Some("model"));
        assert_eq!(at_root("permission-mode").as_deref(), Some("permission_mode"));
        assert_eq!(at_root("provider").as_deref(), Some("providers"));
        assert_eq!(at_root("timeout_s").as_deref(), Some("stop.timeout_s"));
        assert_eq!(at_root("base_url").as_deref(), Some("providers.NAME.base_url"));
        assert_eq!(at_root("completely_else"), None);
    }

    #[test]
    fn every_table_documents_its_keys() {
        fn check(fields: Fields) {
            for (name, node) in fields {
                match node {
                    SchemaNode::Leaf(leaf) | SchemaNode::Each(leaf) => {
                        assert!(!leaf.doc.is_empty(), "{name}");
                    }
                    SchemaNode::Table(fields) | SchemaNode::Named(fields) => check(fields),
                }
            }
        }
        check(ROOT);
    }
}
