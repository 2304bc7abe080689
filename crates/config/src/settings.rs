//! The effective settings as typed values.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use values::{Getter, to_u32};

use super::layer::{Key, Value, parse_duration};
use super::schema;
use super::tree::Tree;
use aye_core::contract::address::DomainPattern;
use aye_core::contract::executor::ToolExecutionMode;
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::mailbox::MailboxConfig;
pub use aye_core::contract::mode::Mode as PermissionMode;
use aye_core::contract::spec::Price;
use aye_core::contract::terms::{Expiry, Terms};

mod values;

/// The wire form that a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Adapter {
    /// Chat completions, which most servers speak.
    OpenAi,
    /// The responses form of OpenAI.
    OpenAiResponses,
    /// Anthropic messages.
    Anthropic,
    /// Google's generative language form.
    Gemini,
    /// Ollama's own form.
    Ollama,
    /// The scripted model that is built in; it cannot be configured.
    Demo,
}

/// The mode that a word of a file or flag means.
pub fn tool_execution(word: &str) -> Option<ToolExecutionMode> {
    match word {
        "sequential" => Some(ToolExecutionMode::Sequential),
        "parallel_batch_approval" => Some(ToolExecutionMode::ParallelBatchApproval),
        "parallel_streaming" => Some(ToolExecutionMode::ParallelStreaming),
        _ => None,
    }
}

/// The way images of a conversation are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Images {
    /// In pixels where the terminal draws them, else in half blocks.
    #[default]
    Auto,
    /// As files in iTerm2 sequences, whatever the terminal reports.
    Iterm2,
    /// As sixels, whatever the terminal reports.
    Sixel,
    /// In half blocks.
    Blocks,
    /// By name only.
    Off,
}

/// The part of the terminal that is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScreenMode {
    /// Below the shell's prompt, in the terminal's own scrollback.
    #[default]
    Inline,
    /// The whole screen.
    Full,
}

macro_rules! words {
    ($type:ident, $what:literal, $($variant:ident = $word:literal),+) => {
        impl $type {
            /// The word that files, flags and messages use.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl FromStr for $type {
            type Err = UnknownWord;
            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownWord { what: $what, word: text.to_owned() }),
                }
            }
        }
    };
}

/// A word that is not one of the choices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} `{}`", word.escape_debug())]
pub struct UnknownWord {
    what: &'static str,
    word: String,
}

words!(
    Adapter,
    "adapter",
    OpenAi = "openai",
    OpenAiResponses = "openai_responses",
    Anthropic = "anthropic",
    Gemini = "gemini",
    Ollama = "ollama",
    Demo = "demo"
);
words!(ScreenMode, "screen", Inline = "inline", Full = "full");
words!(
    Images,
    "image mode",
    Auto = "auto",
    Iterm2 = "iterm2",
    Sixel = "sixel",
    Blocks = "blocks",
    Off = "off"
);

/// The handling of a headless run's question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAsk {
    /// Suspends if the conversation is stored; otherwise waits.
    #[default]
    Auto,
    /// The run ends for now, and the question stays.
    Suspend,
    /// It is declined at once.
    Deny,
    /// The process waits for an answer, at most this long.
    Wait(Option<Duration>),
}

impl fmt::Display for OnAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Suspend => f.write_str("suspend"),
            Self::Deny => f.write_str("deny"),
            Self::Wait(None) => f.write_str("wait"),
            Self::Wait(Some(limit)) if limit.subsec_millis() == 0 => write!(f, "wait={}", limit.as_secs()),
            Self::Wait(Some(limit)) => write!(f, "wait={}ms", limit.as_millis()),
        }
    }
}

impl FromStr for OnAsk {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let unknown = || UnknownWord { what: "way to handle questions", word: text.to_owned() };
        match text {
            "auto" => Ok(Self::Auto),
            "suspend" => Ok(Self::Suspend),
            "deny" => Ok(Self::Deny),
            "wait" => Ok(Self::Wait(None)),
            _ => {
                let limit = text.strip_prefix("wait=").and_then(parse_duration).ok_or_else(unknown)?;
                Ok(Self::Wait(Some(limit)))
            }
        }
    }
}

/// `[providers.NAME]`: what the user says about a provider; absent parts come from the built-in one of that name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderSettings {
    /// The wire format; chat completions unless set.
    pub adapter: Option<Adapter>,
    /// Address of the server.
    pub base_url: Option<String>,
    /// The variable that contains the key; absent for servers that need none.
    pub api_key_env: Option<String>,
}

/// `[webhooks.NAME]`: where questions are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The URL. It may be a secret itself, as those of Slack and Discord are.
    pub url: Option<String>,
    /// The body format that the receiver reads.
    pub format: WebhookFormat,
    /// Variable with the key of the signature; a key beside the store when absent.
    pub secret_env: Option<String>,
}

/// The body format that the receiver of a webhook reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WebhookFormat {
    /// Everything, for programs.
    #[default]
    Json,
    /// A message of Slack.
    Slack,
    /// A message of Discord.
    Discord,
    /// A notification of ntfy.
    Ntfy,
}

impl WebhookFormat {
    fn of(word: &str) -> Self {
        match word {
            "slack" => Self::Slack,
            "discord" => Self::Discord,
            "ntfy" => Self::Ntfy,
            _ => Self::Json,
        }
    }
}

/// `[models.NAME]`: a model under a name of the user's choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSettings {
    /// Provider that serves it; found by the usual rules when absent.
    pub provider: Option<String>,
    /// Name that the provider knows; the entry's own name when absent.
    pub model: Option<String>,
    /// Tokens that fit in one request.
    pub context_window: Option<u64>,
    /// Tokens of one answer.
    pub max_output: Option<u64>,
    /// The model's price.
    pub price: Option<Price>,
}

/// `[retry]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// Repeats of a failed inference.
    pub max_retries: u32,
    /// First delay; the next ones double.
    pub backoff_base: Duration,
    /// Models to try after that, in order.
    pub fallback_models: Vec<String>,
}

/// `[bash]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BashSettings {
    /// Time that one command may take when it does not say otherwise.
    pub timeout: Duration,
    /// Bytes of output that the model sees.
    pub max_output: usize,
}

/// `[stop]`; `None` is "no limit".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StopSettings {
    /// Tokens of one run.
    pub max_tokens_total: Option<u64>,
    /// Time of one run, waiting not counted.
    pub timeout: Option<Duration>,
    /// Tool calls that fail in a row.
    pub consecutive_errors: Option<u32>,
    /// Cost of one run.
    pub max_budget_usd: Option<f64>,
    /// Whether a limit asks before the run continues, instead of ending it.
    pub asks_on_limit: bool,
    /// Repetitions of the same calls.
    pub loop_detection: Option<u64>,
    /// Tools whose success ends a run.
    pub stop_on_tool: Vec<String>,
    /// An answer that matches ends a run.
    pub content_match: Option<String>,
}

/// `[telemetry]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// The collector.
    pub endpoint: Option<String>,
    /// Whether telemetry includes contents.
    pub content: bool,
}

/// `[context]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextSettings {
    /// Per cent of the model's window at which older messages are summarised; 0 is never.
    pub compact_at: u8,
}

/// `[mcp]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpSettings {
    /// The time a call may take without a message from the server.
    pub timeout: Duration,
    /// The time a server may take to become usable.
    pub start_timeout: Duration,
    /// The time a headless run waits for servers before it starts.
    pub wait: Duration,
}

/// `[mcp_servers.NAME]`: a tool server, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSettings {
    /// The program.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its variables.
    pub env: BTreeMap<String, String>,
    /// The working directory of the server.
    pub cwd: Option<String>,
    /// The address, instead of a program.
    pub url: Option<String>,
    /// Headers of each request.
    pub headers: BTreeMap<String, String>,
    /// The name under which aye is known to who gives out the tokens of this server.
    pub oauth_client_id: Option<String>,
    /// The word that goes with it.
    pub oauth_client_secret: Option<String>,
    /// The port of this machine that the browser comes back to.
    pub oauth_port: Option<u64>,
    /// The OAuth scopes to request.
    pub oauth_scopes: Vec<String>,
    /// The grant for obtaining tokens, in OAuth's terms.
    pub oauth_grant: Option<String>,
    /// See [`McpSettings::timeout`].
    pub timeout: Option<Duration>,
    /// See [`McpSettings::start_timeout`].
    pub start_timeout: Option<Duration>,
    /// Whether the server is used at all.
    pub enabled: bool,
}

/// `[snapshots]`. Sizes are in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// Whether files are saved before a step changes them.
    pub enabled: bool,
    /// Larger files are left out.
    pub max_file: u64,
    /// A folder with more is not kept.
    pub max_folder: u64,
    /// Above that the oldest ones go.
    pub max_kept: u64,
}

/// `[sandbox]`. Paths are as they were written: `~/` is the home folder, and relative ones start at the project's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSettings {
    /// Whether the kernel enforces profiles.
    pub enabled: bool,
    /// The paths that commands may read besides the project.
    pub readable: Vec<String>,
    /// The paths that commands may change besides the project.
    pub writable: Vec<String>,
    /// The domains that commands may reach over the network.
    pub domains: Vec<DomainPattern>,
    /// Whether calls that the rules allow run without a question if the machine cannot enforce their profile.
    pub allows_missing: bool,
}

/// `[serve]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeSettings {
    /// The address under which other devices reach the server, such as `https://aye.example.com/`.
    pub public_url: Option<String>,
    /// Further names of the server.
    pub hosts: Vec<String>,
    /// Origins of other pages that may use it.
    pub origins: Vec<String>,
    /// Folders that remote conversations may work in; the folder in which it starts when empty.
    pub folders: Vec<String>,
    /// Hosts that push notifications may go to although they are not public: `localhost`, or with a port
    /// `127.0.0.1:8080`.
    pub push_hosts: Vec<String>,
}

/// `[threads]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSettings {
    /// Whether a model generates the titles of conversations.
    pub titles: bool,
    /// The model for titles; the one that answers if `None`.
    pub title_model: Option<String>,
    /// The time that conversations are kept after their last change; for ever if `None`.
    pub keep: Option<Duration>,
}

/// `[tui]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TuiSettings {
    /// Whether aye captures the terminal's mouse events.
    pub mouse: bool,
    /// Whether a pending question rings the terminal bell.
    pub bell: bool,
    /// Whether the model's reasoning is shown.
    pub show_reasoning: bool,
    /// Whether text is edited with vi keys.
    pub vim: bool,
    /// The status line's items, if the user chose them.
    pub status: Option<Vec<String>>,
    /// A program that writes the status line.
    pub status_command: Vec<String>,
    /// Whether the window title shows the current activity.
    pub title: bool,
    /// Whether progress is shown beside the window title.
    pub progress: bool,
    /// Whether animations are off.
    pub reduced_motion: bool,
    /// Whether output is written for a screen reader.
    pub screen_reader: bool,
    /// The way images are shown.
    pub images: Images,
}

/// All settings after the layers were joined.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The model that was asked for, as `name` or `provider/name`.
    pub model: Option<String>,
    /// The models' reasoning effort; the model's own default unless set.
    pub effort: Option<ReasoningEffort>,
    /// The agent that users talk to; the built-in one unless set.
    pub agent: Option<String>,
    /// The handling of calls that no rule decides.
    pub permission_mode: PermissionMode,
    /// Inferences in one run; `None` is "no limit".
    pub max_turns: Option<u32>,
    /// Order of the calls of one answer.
    pub tool_execution: ToolExecutionMode,
    /// The handling of a headless run's question.
    pub on_ask: OnAsk,
    /// Name of the theme.
    pub theme: String,
    /// The part of the terminal that is used.
    pub screen: ScreenMode,
    /// The time a process may stay silent before another one may take over its thread.
    pub lease: Duration,
    /// Providers by name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// Webhooks by name.
    pub webhooks: BTreeMap<String, WebhookSettings>,
    /// Models by name.
    pub models: BTreeMap<String, ModelSettings>,
    /// Retry of failed inferences.
    pub retry: RetrySettings,
    /// Limits of shell commands.
    pub bash: BashSettings,
    /// Limits of a run.
    pub stop: StopSettings,
    /// Jobs that are queued, and those who work on them.
    pub mailbox: MailboxConfig,
    /// The use of the model's context window.
    pub context: ContextSettings,
    /// The terms of questions for which no rule sets terms.
    pub questions: Terms,
    /// The destination of telemetry.
    pub telemetry: TelemetrySettings,
    /// Tool servers in general.
    pub mcp: McpSettings,
    /// Tool servers by name.
    pub mcp_servers: BTreeMap<String, ServerSettings>,
    /// The snapshots of files, for rewinding.
    pub snapshots: SnapshotSettings,
    /// The limits that the kernel enforces on commands.
    pub sandbox: SandboxSettings,
    /// The server.
    pub serve: ServeSettings,
    /// Conversations.
    pub threads: ThreadSettings,
    /// The terminal.
    pub tui: TuiSettings,
    /// Agents by name; who reads them checks them.
    pub agents: BTreeMap<String, Tree>,
    /// The configuration of plugins, for the agent that users talk to.
    pub sections: BTreeMap<String, Tree>,
}

/// The joined values of all layers, by key.
pub(crate) type SettingValues = BTreeMap<Key, Value>;

impl Default for Settings {
    fn default() -> Self {
        Self::from_values(
            &super::layers::defaults().into_iter().map(|entry| (entry.key, entry.value)).collect(),
        )
    }
}

impl Settings {
    /// Builds the typed form. Values were checked against the schema, so what is absent has no default there either.
    pub(crate) fn from_values(values: &SettingValues) -> Self {
        let get = Getter(values);
        let names = |table: &str| {
            let of_table = values.keys().filter(|key| key.0.len() > 2 && key.0[0] == table);
            let mut names: Vec<String> = of_table.map(|key| key.0[1].clone()).collect();
            names.dedup();
            names
        };
        Self {
            model: get.text("model"),
            effort: get.text("effort").and_then(|word| ReasoningEffort::parse(&word)),
            agent: get.text("agent"),
            permission_mode: get.word("permission_mode").unwrap_or_default(),
            max_turns: get.limit("max_turns").map(to_u32),
            tool_execution: get
                .text("tool_execution")
                .and_then(|word| tool_execution(&word))
                .unwrap_or_default(),
            on_ask: get.word("on_ask").unwrap_or_default(),
            theme: get.text("theme").unwrap_or_default(),
            screen: get.word("screen").unwrap_or_default(),
            lease: get
                .text("lease")
                .and_then(|text| parse_duration(&text))
                .unwrap_or(Duration::from_secs(10)),
            webhooks: names("webhooks").into_iter().map(|name| (name.clone(), get.webhook(&name))).collect(),
            providers: names("providers")
                .into_iter()
                .map(|name| (name.clone(), get.provider(&name)))
                .collect(),
            models: names("models").into_iter().map(|name| (name.clone(), get.model(&name))).collect(),
            retry: RetrySettings {
                max_retries: get.count("retry.max_retries").map_or(0, to_u32),
                backoff_base: Duration::from_millis(get.count("retry.backoff_base_ms").unwrap_or(500)),
                fallback_models: get.list("retry.fallback_models"),
            },
            bash: BashSettings {
                timeout: get
                    .text("bash.timeout")
                    .and_then(|text| parse_duration(&text))
                    .unwrap_or(Duration::from_mins(2)),
                max_output: get
                    .count("bash.max_output")
                    .map_or(32 * 1024, |n| usize::try_from(n).unwrap_or(usize::MAX)),
            },
            mailbox: get.mailbox(),
            stop: StopSettings {
                max_tokens_total: get.limit("stop.max_tokens_total"),
                timeout: get.limit("stop.timeout_s").map(Duration::from_secs),
                consecutive_errors: get.limit("stop.consecutive_errors").map(to_u32),
                max_budget_usd: get.number("stop.max_budget_usd").filter(|most| *most > 0.0),
                asks_on_limit: get.text("stop.on_limit").as_deref() == Some("ask"),
                loop_detection: get.limit("stop.loop_detection").filter(|window| *window > 1),
                stop_on_tool: get.list("stop.stop_on_tool"),
                content_match: get.text("stop.content_match"),
            },
            context: ContextSettings {
                // Nothing would be left for the summary above this.
                compact_at: get.count("context.compact_at").map_or(0, |n| n.min(95) as u8),
            },
            questions: Terms {
                expires_in: get.word("questions.expires_in"),
                notify: get.notify("questions.notify"),
            },
            telemetry: TelemetrySettings {
                endpoint: get.text("telemetry.endpoint"),
                content: get.flag("telemetry.content"),
            },
            mcp: McpSettings {
                timeout: get.time("mcp.timeout").unwrap_or(Duration::from_mins(2)),
                start_timeout: get.time("mcp.start_timeout").unwrap_or(Duration::from_secs(30)),
                wait: get.time("mcp.wait").unwrap_or(Duration::from_secs(5)),
            },
            mcp_servers: names("mcp_servers")
                .into_iter()
                .map(|name| (name.clone(), get.server(&name)))
                .collect(),
            snapshots: SnapshotSettings {
                enabled: get.flag("snapshots.enabled"),
                max_file: get.count("snapshots.max_file_mib").unwrap_or(10),
                max_folder: get.count("snapshots.max_folder_mib").unwrap_or(1024),
                max_kept: get.count("snapshots.max_kept_mib").unwrap_or(2048),
            },
            sandbox: SandboxSettings {
                enabled: get.flag("sandbox.enabled"),
                readable: get.list("sandbox.readable"),
                writable: get.list("sandbox.writable"),
                // Checked when they were read.
                domains: get.list("sandbox.domains").iter().filter_map(|name| name.parse().ok()).collect(),
                allows_missing: get.text("sandbox.missing").as_deref() == Some("allow"),
            },
            serve: ServeSettings {
                public_url: get.text("serve.public_url"),
                hosts: get.list("serve.hosts"),
                origins: get.list("serve.origins"),
                folders: get.list("serve.folders"),
                push_hosts: get.list("serve.push_hosts"),
            },
            threads: ThreadSettings {
                titles: get.flag("threads.titles"),
                title_model: get.text("threads.title_model"),
                keep: match get.word("threads.keep") {
                    Some(Expiry::After(time)) => Some(time),
                    Some(Expiry::Never) | None => None,
                },
            },
            tui: TuiSettings {
                mouse: get.flag("tui.mouse"),
                bell: get.flag("tui.bell"),
                show_reasoning: get.flag("tui.show_reasoning"),
                vim: get.text("tui.editing").as_deref() == Some("vim"),
                status: get.get("tui.status").map(|_| get.list("tui.status")),
                status_command: get.list("tui.status_command"),
                title: get.flag("tui.title"),
                progress: get.flag("tui.progress"),
                reduced_motion: get.flag("tui.reduced_motion"),
                screen_reader: get.flag("tui.screen_reader"),
                images: get.text("tui.images").and_then(|word| word.parse().ok()).unwrap_or_default(),
            },
            agents: get.trees("agents"),
            sections: get.trees("sections"),
        }
    }
}

/// A setting, as the manual describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingDoc {
    /// The key; `NAME` is a placeholder for a name that the user chooses.
    pub key: String,
    /// The values it takes.
    pub values: String,
    /// Its default, as TOML; without one, nothing is set.
    pub default: Option<String>,
    /// What a project's settings file may do with the key.
    pub project: &'static str,
    /// The purpose of the key.
    pub doc: &'static str,
}

/// Describes every key of the settings, for `docs/configuration.md`.
pub fn documented_settings() -> Vec<SettingDoc> {
    fn row(key: String, leaf: &schema::SchemaLeaf, defaults: &toml::Table) -> SettingDoc {
        let mut parts = key.split('.');
        let first = parts.next().and_then(|part| defaults.get(part));
        let default = parts.fold(first, |value, part| value?.as_table()?.get(part)).map(ToString::to_string);
        let project = match leaf.project {
            schema::ProjectMay::Never => "no",
            schema::ProjectMay::Set => "if trusted",
            schema::ProjectMay::Lower => "lower; raise if trusted",
            schema::ProjectMay::Tighten => "make stricter",
        };
        SettingDoc { key, values: leaf.kind.to_string(), default, project, doc: leaf.doc }
    }
    fn collect(fields: schema::Fields, prefix: &str, defaults: &toml::Table, rows: &mut Vec<SettingDoc>) {
        for (name, node) in fields {
            let key = format!("{prefix}{name}");
            match node {
                schema::SchemaNode::Leaf(leaf) => rows.push(row(key, leaf, defaults)),
                schema::SchemaNode::Each(leaf) => rows.push(row(format!("{key}.NAME"), leaf, defaults)),
                schema::SchemaNode::Table(fields) => collect(fields, &format!("{key}."), defaults, rows),
                schema::SchemaNode::Named(fields) => collect(fields, &format!("{key}.NAME."), defaults, rows),
            }
        }
    }
    let defaults = schema::DEFAULTS.parse().expect("the defaults are read at each start");
    let mut rows = Vec::new();
    collect(schema::ROOT, "", &defaults, &mut rows);
    rows
}
