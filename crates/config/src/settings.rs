//! The settings: one struct for each table, one field for each key. A field is all that a setting needs.

use std::collections::BTreeMap;
use std::time::Duration;

use aye_core::contract::address::DomainPattern;
use aye_core::contract::executor::ToolExecutionMode;
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::mailbox::MailboxConfig;
pub use aye_core::contract::mode::Mode as PermissionMode;
use aye_core::contract::server::{LoginGrant, ProtocolRevision};
use aye_core::contract::spec::Price;
use aye_core::contract::terms::{Expiry, Notify, Terms};
use serde_json::Value as Json;

use super::kinds::{AtLeast, Between, EnvName, Limit, OnAsk, SecretText, Segments, Url, Variables, Words};
use super::schema::{Converted, table};

table! {
    /// All settings after the layers were joined.
    pub struct Settings {
        /// Model to use, as `name` or `provider/name`.
        #[project(Set)]
        pub model: Option<String>,
        /// Reasoning effort; the model's default if unset.
        #[project(Set)]
        pub effort: Option<ReasoningEffort>,
        /// Agent to use; `aye agents list` shows all.
        #[project(Set)]
        pub agent: Option<String>,
        /// What happens to calls that no rule decides.
        #[project(Tighten)]
        pub permission_mode: PermissionMode = "ask",
        /// Maximum inferences per run; 0 means no limit.
        #[project(Lower)]
        pub max_turns: Option<u32> as Limit<u32> = 100,
        /// Order in which the calls of one answer run.
        #[project(Set)]
        pub tool_execution: ToolExecutionMode = "parallel_streaming",
        /// Offer GPT-5 and later the tool `apply_patch`.
        #[project(Set)]
        pub apply_patch: bool = false,
        /// What a headless run does with questions.
        #[project(Set)]
        pub on_ask: OnAsk = "auto",
        /// Theme; `auto` is dark or light, like the background.
        #[project(Set)]
        pub theme: String = "auto",
        /// Draw inline below the prompt, or on the full screen.
        #[project(Set)]
        pub screen: ScreenMode = "inline",
        /// Time after which another process may take over a thread whose process stopped responding.
        pub lease: Duration as Between<100, 600_000> = "10s",
        /// Providers by name.
        pub providers: BTreeMap<String, ProviderSettings>,
        /// Models by name.
        pub models: BTreeMap<String, ModelSettings>,
        /// Retry of failed inferences.
        pub retry: RetrySettings,
        /// Limits of shell commands.
        pub bash: BashSettings,
        /// Limits of a run.
        pub stop: StopSettings,
        /// Jobs that are queued, and those who work on them.
        pub mailbox: MailboxConfig as Converted<MailboxSettings, MailboxConfig>,
        /// The ends of background tasks.
        pub background: BackgroundSettings,
        /// The use of the model's context window.
        pub context: ContextSettings,
        /// The terms of questions for which no rule sets terms.
        pub questions: Terms as Converted<QuestionSettings, Terms>,
        /// Webhooks by name.
        pub webhooks: BTreeMap<String, WebhookSettings>,
        /// Searching the web.
        pub web: WebSettings,
        /// An agent of your own, with the fields of an agent's file.
        #[project(Set)]
        pub agents: BTreeMap<String, Json>,
        /// Commands that check files after they were changed, by a glob of their names.
        #[project(Set)]
        pub checks: BTreeMap<String, String> = {},
        /// Configuration of a plugin, for the active agent.
        #[project(Set)]
        pub sections: BTreeMap<String, Json>,
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
        /// Newer versions.
        pub upgrade: UpgradeSettings,
    }
}

table! {
    /// `[providers.NAME]`: what the user says about a provider; absent parts come from the built-in one of that name.
    pub struct ProviderSettings {
        /// Wire format of the server.
        pub adapter: Option<Adapter>,
        /// URL of the server.
        pub base_url: Option<String> as Option<Url>,
        /// Environment variable with the key.
        pub api_key_env: Option<String> as Option<EnvName>,
    }
}

table! {
    /// `[models.NAME]`: a model under a name of the user's choice.
    pub struct ModelSettings {
        /// Provider that serves this model.
        pub provider: Option<String>,
        /// The provider's name for it, if different.
        pub model: Option<String>,
        /// Size of the context window in tokens.
        pub context_window: Option<u64> as Option<AtLeast<1024>>,
        /// Maximum tokens per answer.
        pub max_output: Option<u64> as Option<AtLeast<1>>,
        /// The model's price.
        pub price: Option<Price> as Converted<PriceSettings, Option<Price>>,
    }
}

table! {
    /// `[models.NAME.price]`.
    pub struct PriceSettings {
        /// Price per million prompt tokens.
        pub input: Option<f64>,
        /// Price per million answer tokens.
        pub output: Option<f64>,
        /// Price per million cached prompt tokens.
        pub cache_read: Option<f64>,
        /// Price per million prompt tokens written to a cache.
        pub cache_write: Option<f64>,
    }
}

impl From<PriceSettings> for Option<Price> {
    fn from(PriceSettings { input, output, cache_read, cache_write }: PriceSettings) -> Self {
        let price = || Price {
            input: input.unwrap_or_default(),
            output: output.unwrap_or_default(),
            cache_read,
            cache_write,
        };
        (input.is_some() || output.is_some()).then(price)
    }
}

table! {
    /// `[retry]`.
    pub struct RetrySettings {
        /// Maximum retries of a failed inference.
        #[project(Set)]
        pub max_retries: u32 = 6,
        /// First delay in milliseconds.
        #[project(Set)]
        pub backoff_base_ms: u64 as AtLeast<1> = 500,
        /// Models to try when the first one fails.
        #[project(Set)]
        pub fallback_models: Vec<String> = [],
    }
}

table! {
    /// `[bash]`.
    pub struct BashSettings {
        /// Maximum time of a command.
        #[project(Lower)]
        pub timeout: Duration = "2m",
        /// Maximum bytes of output for the model.
        #[project(Lower)]
        pub max_output: u64 as AtLeast<1024> = 32768,
    }
}

table! {
    /// `[stop]`; `None` is "no limit".
    pub struct StopSettings {
        /// Maximum tokens per run; 0 means no limit.
        #[project(Lower)]
        pub max_tokens_total: Option<u64> as Limit<u64> = 0,
        /// Maximum active seconds per run, interrupts running calls; 0 means no limit.
        #[project(Lower)]
        pub timeout_s: Option<u64> as Limit<u64> = 0,
        /// Maximum answers in a row whose every call failed to run or was refused; 0 means no limit.
        #[project(Lower)]
        pub consecutive_errors: Option<u64> as Limit<u64> = 8,
        /// Maximum times in a row that the same calls come back with the same results; 0 and 1 mean no limit.
        #[project(Lower)]
        pub repeated_calls: Option<u64> as Limit<u64> = 6,
        /// Remind the model once per run when its answer would end the run with unchecked or open work.
        #[project(Set)]
        pub check_before_end: bool = true,
        /// Maximum times that a run with a goal (`/goal`, `--until`) would end without it; 0 means no limit.
        #[project(Lower)]
        pub goal_rounds: Option<u64> as Limit<u64> = 25,
        /// Maximum cost per run in USD at the prices of its models; 0 means no limit.
        #[project(Lower)]
        pub max_budget_usd: Option<f64> as Limit<f64> = 0,
        /// Maximum repeats of the same calls in a row; 0 and 1 mean no limit.
        #[project(Set)]
        pub loop_detection: u64 = 0,
        /// Whether a limit of cost, inferences, tokens, errors or repeats ends the run or asks you.
        #[project(Set)]
        pub on_limit: OnLimit = "stop",
        /// Tools whose success ends a run.
        #[project(Set)]
        pub stop_on_tool: Vec<String> = [],
        /// Regular expression; an answer that matches ends a run.
        #[project(Set)]
        pub content_match: Option<String>,
    }
}

table! {
    /// `[background]`.
    pub struct BackgroundSettings {
        /// Whether the end of a background task starts a run in the terminal.
        pub wake: Wake = "idle",
    }
}

table! {
    /// `[mailbox]`.
    pub struct MailboxSettings {
        /// Time after which a queued job is taken from a worker that stopped responding.
        pub lease: Duration as Between<100, 3_600_000> = "30s",
        /// Attempts before a queued job is dead.
        pub max_attempts: u64 as AtLeast<1> = 5,
        /// Delay before the second attempt; doubles with each attempt.
        pub retry_delay: Duration = "250ms",
        /// Maximum delay between two attempts.
        pub max_retry_delay: Duration = "30s",
        /// How long closed jobs stay listed.
        pub keep: Duration = "24h",
    }
}

impl From<MailboxSettings> for MailboxConfig {
    fn from(settings: MailboxSettings) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            lease_ms: ms(settings.lease),
            lease_renewal_interval: settings.lease / 3,
            gc_ttl: settings.keep,
            default_max_attempts: u32::try_from(settings.max_attempts).unwrap_or(u32::MAX),
            default_retry_delay_ms: ms(settings.retry_delay),
            max_retry_delay_ms: ms(settings.max_retry_delay),
            ..Self::default()
        }
    }
}

table! {
    /// `[context]`.
    pub struct ContextSettings {
        /// Per cent of the window at which older messages are summarised; 0 means never.
        #[project(Set)]
        pub compact_at: u64 = 80,
    }
}

table! {
    /// `[questions]`.
    pub struct QuestionSettings {
        /// Time after which a pending question expires; never by default.
        #[project(Set)]
        pub expires_in: Option<Expiry>,
        /// How you are notified of a new question.
        pub notify: Option<Vec<Notify>>,
    }
}

impl From<QuestionSettings> for Terms {
    fn from(QuestionSettings { expires_in, notify }: QuestionSettings) -> Self {
        Self { expires_in, notify }
    }
}

table! {
    /// `[web]`.
    pub struct WebSettings {
        /// The provider of web searches: a URL with {query} in it, or an MCP tool such as `mcp__brave__search`.
        pub search: Option<String>,
        /// Headers of the requests of a search; `${NAME}` inserts an environment variable.
        pub search_headers: BTreeMap<String, String> = {},
    }
}

table! {
    /// `[webhooks.NAME]`: where questions are sent. The URL may be a secret itself, as those of Slack and Discord are.
    pub struct WebhookSettings {
        /// URL that new questions are sent to.
        pub url: Option<String> as Option<Url>,
        /// Body that the receiver reads.
        pub format: WebhookFormat = "json",
        /// Time after which a question that is still pending is sent there, whoever was notified first.
        pub escalate_after: Option<Duration>,
        /// Environment variable with the key of the signature.
        pub secret_env: Option<String> as Option<EnvName>,
    }
}

table! {
    /// `[upgrade]`.
    pub struct UpgradeSettings {
        /// Address of the packages that `aye upgrade` installs from.
        pub url: Option<String> as Option<Url>,
        /// Look once a day, at a start of the terminal, whether there is a newer version.
        pub check: bool = false,
    }
}

table! {
    /// `[telemetry]`.
    pub struct TelemetrySettings {
        /// Telemetry collector, by OTLP as JSON over HTTP.
        pub endpoint: Option<String> as Option<Url>,
        /// Include prompts, answers and arguments.
        pub content: bool = false,
    }
}

table! {
    /// `[mcp]`.
    pub struct McpSettings {
        /// Maximum time of an MCP call without progress from the server.
        #[project(Set)]
        pub timeout: Duration = "2m",
        /// Maximum start time of an MCP server.
        #[project(Set)]
        pub start_timeout: Duration = "30s",
        /// How long the first run waits for MCP servers before it starts.
        #[project(Set)]
        pub wait: Duration = "5s",
    }
}

table! {
    /// `[mcp_servers.NAME]`: a tool server, as it is written.
    pub struct ServerSettings {
        /// Program to start.
        #[project(Set)]
        pub command: Option<String>,
        /// Its arguments.
        #[project(Set)]
        pub args: Vec<String> = [],
        /// Its environment variables; ${NAME} inserts one of yours.
        #[project(Set)]
        pub env: BTreeMap<String, String> = {},
        /// Its working folder.
        #[project(Set)]
        pub cwd: Option<String>,
        /// URL of a running server.
        #[project(Set)]
        pub url: Option<String>,
        /// Headers of each request; ${NAME} inserts an environment variable.
        #[project(Set)]
        pub headers: BTreeMap<String, String> = {},
        /// Client id for the login; without one aye registers itself.
        #[project(Set)]
        pub oauth_client_id: Option<String>,
        /// Secret of that client; ${NAME} inserts an environment variable.
        #[project(Set)]
        pub oauth_client_secret: Option<String> as Option<SecretText>,
        /// Port of 127.0.0.1 that the browser returns to.
        #[project(Set)]
        pub oauth_port: Option<u64> as Option<AtLeast<1>>,
        /// Requested scopes instead of the server's proposal.
        #[project(Set)]
        pub oauth_scopes: Vec<String> = [],
        /// client_credentials: log in with client id and secret, as in CI.
        #[project(Set)]
        pub oauth_grant: LoginGrant = "authorization_code",
        /// Maximum time of a call without progress from the server.
        #[project(Set)]
        pub timeout: Option<Duration>,
        /// Maximum start time.
        #[project(Set)]
        pub start_timeout: Option<Duration>,
        /// Revision of the protocol to offer instead of the newest.
        #[project(Set)]
        pub protocol_version: Option<ProtocolRevision>,
        /// Tools to use, by the server's names; without a list all.
        #[project(Set)]
        pub enabled_tools: Option<Vec<String>>,
        /// Tools not to use.
        #[project(Set)]
        pub disabled_tools: Vec<String> = [],
        /// Whether the server is used.
        #[project(Set)]
        pub enabled: bool = true,
    }
}

table! {
    /// `[snapshots]`.
    pub struct SnapshotSettings {
        /// Take a snapshot of the folder before a step changes it.
        pub enabled: bool = true,
        /// Maximum size of a file in a snapshot.
        pub max_file_mib: u64 as AtLeast<1> = 10,
        /// Maximum size of a folder with snapshots.
        pub max_folder_mib: u64 as AtLeast<1> = 1024,
        /// Size above which the oldest snapshots are dropped.
        pub max_kept_mib: u64 as AtLeast<1> = 2048,
    }
}

table! {
    /// `[sandbox]`. Paths are as they were written: `~/` is the home folder, and relative ones start at the project's
    /// root.
    pub struct SandboxSettings {
        /// Let the kernel enforce the profile of each command.
        pub enabled: bool = true,
        /// More files and folders that sandboxed commands may read.
        pub readable: Vec<String> = [],
        /// Folders that sandboxed commands may change besides the project.
        pub writable: Vec<String> = [],
        /// Domains that sandboxed commands may reach; needs bubblewrap.
        pub domains: Vec<DomainPattern> = [],
        /// More variables that commands get, such as "DATABASE_*".
        pub env: Vec<String> as Variables = [],
        /// Processes and threads that one command may have at once, in proportion on more than 16 cores; 0: no limit.
        pub max_processes: Option<u64> as Limit<u64> = 2048,
        /// Memory that one command may use, in percent of the machine's; 0: no limit.
        pub max_memory_percent: Option<u64> as Limit<u64> = 80,
        /// Size of a conversation's temporary files; 0: no limit.
        pub max_tmp_mib: Option<u64> as Limit<u64> = 8192,
        /// Sockets of the project that sandboxed commands may connect to; other Unix sockets that exist at the start are hidden.
        pub sockets: Vec<String> = [],
        /// What happens to allowed commands where this machine has no sandbox.
        pub missing: SandboxMissing = "ask",
    }
}

table! {
    /// `[serve]`.
    pub struct ServeSettings {
        /// Address under which other devices reach `aye serve`.
        pub public_url: Option<String> as Option<Url>,
        /// Other host names of the server.
        pub hosts: Vec<String> = [],
        /// Other web origins that may use the server.
        pub origins: Vec<String> = [],
        /// Folders that remote conversations may work in.
        pub folders: Vec<String> = [],
        /// Private hosts that push notifications may be sent to.
        pub push_hosts: Vec<String> = [],
    }
}

table! {
    /// `[threads]`.
    pub struct ThreadSettings {
        /// Let a model title new conversations in the background.
        pub titles: bool = true,
        /// The model for titles; the active model by default.
        pub title_model: Option<String>,
        /// Delete conversations last changed longer ago, such as "180d".
        pub keep: Expiry = "never",
    }
}

table! {
    /// `[tui]`.
    pub struct TuiSettings {
        /// Use the mouse on the full screen.
        #[project(Set)]
        pub mouse: bool = true,
        /// Ring the bell for a new question.
        #[project(Set)]
        pub bell: bool = true,
        /// Show the model's reasoning.
        #[project(Set)]
        pub show_reasoning: bool = false,
        /// Segments of the status line, most important first.
        #[project(Set)]
        pub status: Option<Vec<String>> as Option<Segments>,
        /// Program that writes the status line; it gets JSON on stdin.
        pub status_command: Vec<String> = [],
        /// Show current activity in the window title.
        #[project(Set)]
        pub title: bool = true,
        /// Show progress beside the window title, where supported.
        #[project(Set)]
        pub progress: bool = true,
        /// No animation; only elapsed seconds change.
        #[project(Set)]
        pub reduced_motion: bool = false,
        /// Screen reader mode: plain lines, no redrawing, questions in words.
        #[project(Set)]
        pub screen_reader: bool = false,
        /// How images are shown: in half blocks (auto and blocks) or by name (off); the others mean auto.
        #[project(Set)]
        pub images: Images = "auto",
        /// Editing keys of the composer.
        #[project(Set)]
        pub editing: Editing = "emacs",
    }
}

/// Declares an enum whose variants are the words of a setting.
macro_rules! words {
    ($(#[$about:meta])* pub enum $type:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type { $($(#[$doc])* $variant),+ }

        impl Words for $type {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        }
    };
}

words! {
    /// The part of the terminal that is used.
    pub enum ScreenMode {
        /// Below the shell's prompt, in the terminal's own scrollback.
        Inline = "inline",
        /// The whole screen.
        Full = "full",
    }
}

words! {
    /// The way images of a conversation are shown.
    pub enum Images {
        /// In half blocks.
        Auto = "auto",
        /// As `auto`, with a warning.
        Iterm2 = "iterm2",
        /// As `auto`, with a warning.
        Sixel = "sixel",
        /// In half blocks.
        Blocks = "blocks",
        /// By name only.
        Off = "off",
    }
}

words! {
    /// Whether the end of a background task starts a run.
    pub enum Wake {
        /// It does when nothing else runs.
        Idle = "idle",
        /// The next run reads about it.
        Never = "never",
    }
}

words! {
    /// The editing keys of the composer.
    pub enum Editing {
        /// Those of Emacs and of shells.
        Emacs = "emacs",
        /// Those of vi.
        Vim = "vim",
    }
}

words! {
    /// The action at a limit of a run.
    pub enum OnLimit {
        /// The run ends.
        Stop = "stop",
        /// The user is asked whether it continues.
        Ask = "ask",
    }
}

words! {
    /// The handling of calls that the rules allow if the machine cannot enforce their profile.
    pub enum SandboxMissing {
        /// They need approval.
        Ask = "ask",
        /// They run without a question.
        Allow = "allow",
    }
}

words! {
    /// The body format that the receiver of a webhook reads.
    pub enum WebhookFormat {
        /// Everything, for programs.
        Json = "json",
        /// A message of Slack.
        Slack = "slack",
        /// A message of Discord.
        Discord = "discord",
        /// A notification of ntfy.
        Ntfy = "ntfy",
    }
}

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

impl Adapter {
    /// The word that files and messages use.
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, adapter)| *adapter == self).map_or("demo", |(word, _)| word)
    }
}

impl Words for Adapter {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("openai", Self::OpenAi),
        ("openai_responses", Self::OpenAiResponses),
        ("anthropic", Self::Anthropic),
        ("gemini", Self::Gemini),
        ("ollama", Self::Ollama),
    ];
}

impl Words for PermissionMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("plan", Self::Plan),
        ("ask", Self::Ask),
        ("accept-edits", Self::AcceptEdits),
        ("auto", Self::Auto),
        ("yolo", Self::Yolo),
    ];
}

impl Words for ToolExecutionMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("sequential", Self::Sequential),
        ("parallel_batch_approval", Self::ParallelBatchApproval),
        ("parallel_streaming", Self::ParallelStreaming),
    ];
}

impl Words for ProtocolRevision {
    const WORDS: &'static [(&'static str, Self)] = &Self::WORDS;
}

impl Words for LoginGrant {
    const WORDS: &'static [(&'static str, Self)] = &Self::WORDS;
}
