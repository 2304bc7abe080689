//! The command line: what can be typed, and nothing about what it does.

mod agents;
mod hooks;
mod mcp;
mod memory;
mod queue;
mod reminders;
mod stats;
mod tasks;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

pub use self::agents::AgentsCommand;
pub use self::hooks::HooksCommand;
pub use self::reminders::RemindersCommand;
pub use self::tasks::TasksCommand;
use crate::config::{Flags, PermissionMode};
pub use memory::{MemoryCommand, MemoryForm};
pub use stats::{StatsArgs, StatsBy};

pub use mcp::{McpAddArgs, McpCommand, McpLoginArgs, McpScope};
pub use queue::{QueueAddArgs, QueueCommand, QueueListArgs, WorkArgs};

const EXAMPLES: &str = "\
Examples:
  aye                                   chat in this folder
  aye \"why does the build fail?\"        the same, with a first message
  aye -c                                go on with the last conversation of this folder
  git diff | aye -p \"review this\"       headless; what is piped in is context
  aye -p --output-format json \"...\"     one JSON object on stdout
  aye --model ollama/qwen3              provider and model
  aye inbox                             what waits for an answer, over all conversations
  aye approve perm_0198c --resume       let a call run, and go on with its conversation here

Exit status: 0 done, 1 failed, 2 usage, 3 waiting for a decision, 4 blocked by a rule or plugin,
5 a limit was reached, 6 a question expired unanswered, 75 provider unavailable, 130 interrupted, 143 terminated.";

const WORK_EXAMPLE: &str = "Example:
  aye work --until-empty --json

Exit status: as with -p, of the job that went worst.";

/// A terminal agent whose questions outlive the process
#[derive(Clone, Debug, Parser)]
#[command(name = "aye", version, after_help = EXAMPLES, max_term_width = 100, subcommand_precedence_over_arg = false)]
pub struct Cli {
    /// What to do instead of chatting.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// First message; with -p the whole task
    ///
    /// Put it after `--` when it begins with a `-`.
    #[arg(value_name = "PROMPT")]
    pub prompt: Option<String>,

    /// Go on with the last conversation of this folder
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    pub continue_last: bool,

    /// Go on with a conversation; without ID, choose from a list
    #[arg(short = 'r', long, value_name = "ID", num_args = 0..=1, default_missing_value = "")]
    pub resume: Option<String>,

    /// Answer on stdout and exit; piped input is context
    ///
    /// Nothing that needs a decision runs by itself: the exit status is 3 then, and `aye inbox` lists the
    /// questions; --on-ask says otherwise.
    #[arg(short = 'p', long = "print", value_name = "PROMPT", num_args = 0..=1, default_missing_value = "")]
    pub print: Option<String>,

    /// Attach an image: PNG, JPEG, GIF or WebP, at most 3.75 MiB; `@FILE` in the prompt does the same
    #[arg(long, value_name = "FILE", requires = "print", action = clap::ArgAction::Append)]
    pub image: Vec<PathBuf>,

    /// Tools that the caller carries out: a JSON list of {name, description, parameters}
    ///
    /// A call of one is a question (exit status 3); `aye answer ID RESULT --resume` gives its result. Rules judge it as any
    /// call first: `--allowed-tools NAME` lets it come at once.
    #[arg(long, value_name = "FILE", requires = "print")]
    pub client_tools: Option<PathBuf>,
    /// Do not close open questions with a new message: it begins when they are answered
    ///
    /// With -p this needs -c or -r. When something waits, the message is queued behind it and the exit status is 3;
    /// whoever goes on with the conversation begins it, and `aye -r ID -p` does.
    #[arg(long)]
    pub keep_waiting: bool,
    /// Draw below the prompt and leave the scrollback to the terminal (inline), or on a screen of its own (full)
    #[arg(long, value_name = "inline|full")]
    pub screen: Option<String>,

    /// Form of what -p writes to stdout
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Text)]
    pub output_format: OutputFormat,

    /// What happens to a call that was interrupted and may have run, with -p
    #[arg(long, value_enum, value_name = "ACTION", default_value_t = OnUnknown::Report)]
    pub on_unknown: OnUnknown,

    /// What happens to questions, with -p: suspend, deny, wait or wait=SECONDS
    ///
    /// `suspend` ends the run for now with status 3. `deny` declines each at once and goes on. `wait` stays until
    /// somebody answers from another terminal; after SECONDS the question expires, and the status is 6. Default: suspend,
    /// or with --ephemeral, where nothing is kept to go on with, wait.
    #[arg(long, value_name = "ACTION")]
    pub on_ask: Option<String>,

    /// Settings of this start.
    #[command(flatten)]
    pub global: Global,
}

/// Flags that every command takes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Settings")]
pub struct Global {
    /// Work in this folder
    #[arg(short = 'C', long = "cd", value_name = "DIR", global = true, allow_hyphen_values = true)]
    pub cd: Option<PathBuf>,

    /// Model, as NAME or PROVIDER/NAME; `aye models` lists them
    #[arg(long, value_name = "NAME", global = true)]
    pub model: Option<String>,

    /// Agent to talk to; `aye agents list` shows them
    #[arg(long, value_name = "NAME", global = true)]
    pub agent: Option<String>,

    /// What happens to calls that no rule decides
    #[arg(long, value_name = "MODE", global = true, value_parser = ["ask", "accept-edits", "plan", "yolo"])]
    pub permission_mode: Option<String>,

    /// Allow calls like these in this start, for example 'Bash(git diff *)'; never beats a deny or an ask
    #[arg(long, value_name = "PATTERN", global = true, num_args = 1.., action = clap::ArgAction::Append)]
    pub allowed_tools: Vec<String>,

    /// Deny calls like these in this start, for example WebFetch
    #[arg(long, value_name = "PATTERN", global = true, num_args = 1.., action = clap::ArgAction::Append)]
    pub disallowed_tools: Vec<String>,

    /// Stop after this many answers of the model; 0 is no limit
    #[arg(long, value_name = "N", global = true)]
    pub max_turns: Option<u32>,

    /// Stop after this many tokens, in and out, of one run; 0 is no limit
    #[arg(long, value_name = "N", global = true)]
    pub max_tokens_total: Option<u64>,

    /// Stop when one run cost more, at the prices of the settings; 0 is no limit
    #[arg(long, value_name = "USD", global = true, value_parser = amount)]
    pub max_budget_usd: Option<f64>,

    /// Stop after this time awake, such as 90s or 10m; waiting for you does not count, and 0 is no limit
    #[arg(long = "timeout", value_name = "TIME", global = true, value_parser = whole_seconds)]
    pub run_timeout: Option<u64>,

    /// Order in which the calls of one answer run
    #[arg(long, value_name = "MODE", global = true,
          value_parser = ["sequential", "parallel_batch_approval", "parallel_streaming"])]
    pub tool_execution: Option<String>,

    /// Nothing moves by itself on the screen but the seconds
    #[arg(long, global = true)]
    pub reduced_motion: bool,

    /// Write for a screen reader: lines one after another, nothing drawn again, questions answered in words
    #[arg(long, global = true)]
    pub screen_reader: bool,

    /// Set one key of the settings, for example --config retry.max_retries=2
    #[arg(long, value_name = "KEY=VALUE", global = true, action = clap::ArgAction::Append, allow_hyphen_values = true)]
    pub config: Vec<String>,

    /// Use this folder's own rules, settings and skills in this start, without asking
    #[arg(long, global = true)]
    pub trust: bool,

    /// Keep this conversation in memory only: it and its questions are gone at the end
    #[arg(long, global = true)]
    pub ephemeral: bool,
}

/// Form of the output of `-p`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// The answer as text
    #[default]
    Text,
    /// One object at the end
    Json,
    /// One event a line while it runs
    StreamJson,
}

/// What a headless run does about calls whose outcome is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnUnknown {
    /// Tell the model that the call may have run
    #[default]
    Report,
    /// Leave it as a question: run it again, it is done, or skip it
    Ask,
    /// End the run
    Stop,
    /// Run the call again
    Retry,
}

/// Everything but chatting.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Conversations that are kept
    #[command(subcommand)]
    Threads(ThreadsCommand),
    /// What waits for an answer, over all conversations and runs, oldest first
    #[command(
        after_help = "Examples:\n  aye inbox --tool Bash --older-than 2h\n  aye inbox --watch | while read -r row; do notify-send \"$row\"; done"
    )]
    Inbox(InboxArgs),
    /// Let calls run, as they are or changed: short for `aye approvals approve`
    #[command(after_help = APPROVE_EXAMPLES)]
    Approve(ApproveArgs),
    /// Tell the model no: short for `aye approvals deny`
    Deny(DenyArgs),
    /// Answer a question with data: short for `aye approvals answer`
    #[command(after_help = ANSWER_EXAMPLE)]
    Answer(AnswerArgs),
    /// Questions that wait for a decision, and decide them
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// What was allowed at questions from now on, and take it back
    #[command(subcommand)]
    Grants(GrantsCommand),
    /// What is remembered beyond a conversation, and change it
    #[command(subcommand)]
    Memory(MemoryCommand),
    /// Messages that wait for somebody to work on them
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Work on what is queued, without a terminal, until a signal comes
    ///
    /// Several may work on one store: each job is worked on by one of them, and the job of one that died is gone on with
    /// by another. Questions wait in the inbox; a job whose question was answered is gone on with. SIGINT or SIGTERM
    /// ends it behind the current job, a second one at once: the job is left to the next worker.
    #[command(after_help = WORK_EXAMPLE)]
    Work(WorkArgs),
    /// Agents: which there are, and what their files say
    #[command(subcommand)]
    Agents(AgentsCommand),
    /// Agents that other agents set to work: list, show, stop
    #[command(subcommand)]
    Tasks(TasksCommand),
    /// Skills: which there are, and whether their files are right
    #[command(subcommand)]
    Skills(SkillsCommand),
    /// Tool servers (MCP): which there are, add and remove them, try one, agree to its tools
    #[command(subcommand)]
    Mcp(McpCommand),
    /// Permission rules
    #[command(subcommand)]
    Permissions(PermissionsCommand),
    /// Commands at the boundaries of a run
    #[command(subcommand)]
    Hooks(HooksCommand),
    /// What the model is reminded of after tool calls
    #[command(subcommand)]
    Reminders(RemindersCommand),
    /// What was proposed, judged, asked, decided and done, call by call; and whether the record is whole
    Audit(AuditArgs),
    /// Answers, calls, tokens, cost and waiting, by model, tool and day
    Stats(StatsArgs),
    /// Models that can be used, and why the others cannot
    Models(JsonFlag),
    /// Settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look for what keeps aye from working here
    Doctor(JsonFlag),
    /// Write completions for a shell to stdout
    #[command(
        after_help = "Example:\n  aye completion bash > ~/.local/share/bash-completion/completions/aye"
    )]
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual page to stdout
    #[command(after_help = "Example:\n  aye man > ~/.local/share/man/man1/aye.1")]
    Man,
}

/// The flag for programs that read the output.
#[derive(Args, Clone, Copy, Debug)]
pub struct JsonFlag {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// `aye threads ...`
#[derive(Clone, Debug, Subcommand)]
pub enum ThreadsCommand {
    /// List conversations, the latest first
    List(JsonFlag),
    /// Show one conversation
    Show {
        /// Its id, or the beginning of it
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete conversations for good
    Delete {
        /// Their ids, or the beginnings of them
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Name a conversation
    Rename {
        /// Its id, or the beginning of it
        id: String,
        /// What it is called from now on
        title: String,
    },
    /// Put a conversation before all others in lists
    Pin {
        /// Its id, or the beginning of it
        id: String,
        /// Put it back among the others
        #[arg(long)]
        off: bool,
    },
    /// Make a new conversation of the beginning of one, and write its id
    Fork {
        /// Its id, or the beginning of it
        id: String,
        /// How many of its messages the new one has; all without this
        #[arg(long, value_name = "N")]
        messages: Option<u64>,
    },
    /// Find what was said, in all conversations
    Search {
        /// What was said, whatever the case of its letters
        words: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Write one conversation to stdout
    Export {
        /// Its id, or the beginning of it
        id: String,
        /// Form of the text
        #[arg(long, value_enum, default_value_t = ExportFormat::Md)]
        format: ExportFormat,
    },
}

/// Form of an exported conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Markdown
    #[default]
    Md,
    /// One JSON object
    Json,
    /// One file for a browser, without scripts
    Html,
}

const ANSWER_EXAMPLE: &str = "Example:\n  aye answer ask_0198c '{\"answer\": \"the second one\"}'";

/// `aye approvals ...`
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "Example:\n  aye approvals approve perm_0198c --resume")]
pub enum ApprovalsCommand {
    /// List what waits for a decision, as `aye inbox` does
    List(InboxArgs),
    /// Show one question with the exact call
    Show {
        /// Id of the question, or the beginning of it
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Let calls run, as they are or changed
    #[command(after_help = APPROVE_EXAMPLES)]
    Approve(ApproveArgs),
    /// Tell the model no
    Deny(DenyArgs),
    /// Do not run the call, and tell the model what to change
    Modify(ModifyArgs),
    /// Answer a question with data
    #[command(after_help = ANSWER_EXAMPLE)]
    Answer(AnswerArgs),
}

const APPROVE_EXAMPLES: &str = "Examples:\n  aye approve perm_0198c --resume\n  aye approve perm_0198c --edit\n  aye approve perm_0198c --args '{\"command\": \"ls\"}' -m \"look first\"\n  aye approve --all-reads";

/// Which of the questions that wait, and in which form.
#[derive(Args, Clone, Debug, Default)]
pub struct InboxArgs {
    /// Only those of this conversation: its id, or the beginning of it
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,
    /// Only those about this tool, for example Bash
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Only those that have waited for so long, for example 30m, 2h or 1d
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub older_than: Option<Duration>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// Go on: one JSON object a line for each that waits, then for each new one as it comes
    #[arg(long)]
    pub watch: bool,
}

/// What follows a decision.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ThenArgs {
    /// Go on with the run at once, here, as `aye -r ID -p` does
    ///
    /// Output and exit status are those of `aye -p`. A run that another process drives is left to it.
    #[arg(long)]
    pub resume: bool,
    /// Form of what --resume writes to stdout
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Text, requires = "resume")]
    pub output_format: OutputFormat,
    /// What happens to a call that was interrupted and may have run, with --resume
    #[arg(long, value_enum, value_name = "ACTION", default_value_t = OnUnknown::Report, requires = "resume")]
    pub on_unknown: OnUnknown,
}

/// Reads a span of time such as `90s`, `30m`, `2h`, `1d`, `2w` or `1h30m`.
fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no span of time; right would be 30m, 2h or 1d");
    let mut seconds: u64 = 0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = rest[digits..].trim_start();
        let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let unit = match &rest[..letters] {
            "s" => 1,
            "m" | "min" => 60,
            "h" => 3600,
            "d" => 86_400,
            "w" => 604_800,
            _ => return Err(wrong()),
        };
        rest = rest[letters..].trim_start();
        seconds = number.checked_mul(unit).and_then(|more| seconds.checked_add(more)).ok_or_else(wrong)?;
    }
    if text.trim().is_empty() { Err(wrong()) } else { Ok(Duration::from_secs(seconds)) }
}

/// `aye approve ...`
#[derive(Args, Clone, Debug)]
pub struct ApproveArgs {
    /// Ids of questions, or the beginnings of them
    #[arg(value_name = "ID", required_unless_present = "all_reads", conflicts_with = "all_reads")]
    pub ids: Vec<String>,
    /// Change the arguments of one call in $VISUAL or $EDITOR first
    #[arg(long, conflicts_with_all = ["args", "all_reads"])]
    pub edit: bool,
    /// Run one call with these arguments instead, as JSON
    #[arg(long, value_name = "JSON", allow_hyphen_values = true, conflicts_with = "all_reads")]
    pub args: Option<String>,
    /// What the model is told besides the result
    #[arg(short = 'm', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub comment: Option<String>,
    /// All calls that only read, instead of some
    #[arg(long)]
    pub all_reads: bool,
    /// Only those of this conversation
    #[arg(long, value_name = "ID", requires = "all_reads", conflicts_with = "ids")]
    pub thread: Option<String>,
    /// The rule that is granted besides.
    #[command(flatten)]
    pub granting: GrantFlags,
    /// And then.
    #[command(flatten)]
    pub then: ThenArgs,
}

/// A rule that is granted with an answer.
#[derive(Args, Clone, Debug, Default)]
pub struct GrantFlags {
    /// Allow such calls from now on too: a pattern, or the number of a proposal in `aye approvals show`
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["all_reads", "edit", "args"])]
    pub grant: Option<String>,
    /// How far it reaches [default: run]
    #[arg(long, requires = "grant", value_parser = ["run", "thread", "project", "all"])]
    pub scope: Option<String>,
    /// Until when: 1h, 7d, today, 2026-12-01, 5uses
    #[arg(long = "for", value_name = "END", requires = "grant")]
    pub until: Option<String>,
}

/// `aye deny ...`
#[derive(Args, Clone, Debug)]
pub struct DenyArgs {
    /// Ids of questions, or the beginnings of them
    #[arg(value_name = "ID", required_unless_present = "rest", conflicts_with = "rest")]
    pub ids: Vec<String>,
    /// What the model is told about it
    #[arg(short = 'm', long, visible_alias = "comment", value_name = "TEXT", allow_hyphen_values = true)]
    pub reason: Option<String>,
    /// All calls that do more than read, instead of some
    #[arg(long)]
    pub rest: bool,
    /// Only those of this conversation
    #[arg(long, value_name = "ID", requires = "rest", conflicts_with = "ids")]
    pub thread: Option<String>,
    /// And then.
    #[command(flatten)]
    pub then: ThenArgs,
}

/// `aye approvals modify ...`
#[derive(Args, Clone, Debug)]
pub struct ModifyArgs {
    /// Id of the question, or the beginning of it
    #[arg(value_name = "ID")]
    pub id: String,
    /// What to change
    #[arg(short = 'm', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub feedback: String,
    /// And then.
    #[command(flatten)]
    pub then: ThenArgs,
}

/// `aye answer ...`
#[derive(Args, Clone, Debug)]
pub struct AnswerArgs {
    /// Id of the question, or the beginning of it
    #[arg(value_name = "ID")]
    pub id: String,
    /// The answer as JSON; `aye approvals show ID` says which is wanted
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    pub answer: Option<String>,
    /// What the model is told besides
    #[arg(short = 'm', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub comment: Option<String>,
    /// And then.
    #[command(flatten)]
    pub then: ThenArgs,
}

/// `aye grants ...`
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "Example:\n  aye grants list && aye grants revoke 0198c")]
pub enum GrantsCommand {
    /// List the grants that hold
    List {
        /// List those too that ended, are used up or were taken back
        #[arg(long)]
        all: bool,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one grant: what it allows, how far, until when, who gave it
    Show {
        /// Id of the grant, or the beginning of it
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Take grants back; what runs now stops using them at once
    Revoke {
        /// Ids of grants, or the beginnings of them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

/// `aye skills ...`
#[derive(Clone, Debug, Subcommand)]
pub enum SkillsCommand {
    /// List the skills that can be used here, with what hides what
    List(JsonFlag),
    /// Check skill files: a skill's folder, or a folder of skills; without DIR, all that are used here
    Check {
        /// Folder to check
        dir: Option<PathBuf>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}

/// `aye permissions ...`
#[derive(Clone, Debug, Subcommand)]
pub enum PermissionsCommand {
    /// Say what the rules make of calls: one JSON object a line on stdin, one on stdout
    #[command(
        after_help = "Example:\n  echo '{\"tool\":\"Bash\",\"args\":{\"command\":\"git push\"}}' | aye permissions check"
    )]
    Check {
        /// Use the rules of this file instead of those that hold here
        #[arg(long, value_name = "FILE")]
        rules: Option<PathBuf>,
    },
    /// Say what rules would have done with the calls of the past, and where that goes against what you decided
    ///
    /// The file stands in the place of your rules and the project's; the shipped ones hold besides it. Every call of
    /// the audit is judged as it first met the rules, in its own folder, in mode `ask`. Folders and links are looked
    /// at as they are today; in a folder that is gone, paths are judged by their letters alone. The exit status is 1
    /// when a call that you declined would be allowed.
    Simulate {
        /// The rules to try
        #[arg(long, value_name = "FILE")]
        rules: PathBuf,
        /// Calls since then only: 2h, 3d, 2026-11-21 or an RFC 3339 time
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Suggest the fewest rules that would have answered what you always answered in the same way
    ///
    /// None of them would have allowed a call that you declined or changed, none is broader than what a question offers
    /// to grant, and each would have saved at least two questions. What the rules that hold here answer already is left
    /// out. The output is a file of rules; nothing is stored.
    #[command(
        after_help = "Example:\n  aye permissions suggest --since 2w > new.yaml && aye permissions simulate --rules new.yaml"
    )]
    Suggest {
        /// Calls since then only: 2h, 3d, 2026-11-21 or an RFC 3339 time
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}

/// `aye audit`
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Whoever can write the file can write the whole chain anew: keep the last hash of `aye audit --rows` \
                  elsewhere to find that too.\n\nExamples:\n  aye audit --since 1d --tool Bash\n  aye audit --verify"
)]
pub struct AuditArgs {
    /// Calls of which something was written since then: 2h, 3d, 2026-11-21 or an RFC 3339 time
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// Of this conversation, by id or the beginning of it; it may be deleted
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,
    /// Of this tool
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Show every rule that was tried, not only those that matched
    #[arg(long)]
    pub rules: bool,
    /// Write one JSON object for each call, a line each
    #[arg(long)]
    pub json: bool,
    /// Write the rows as they are in the chain, as JSON, a line each
    #[arg(long, conflicts_with_all = ["rules", "json"])]
    pub rows: bool,
    /// Look whether every row is there and as it was written, and whether the tables agree; exit status 1 if not
    #[arg(long, conflicts_with_all = ["since", "thread", "tool", "rules", "rows"])]
    pub verify: bool,
}

/// `aye config ...`
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show each setting with the place it comes from
    Show(JsonFlag),
}

/// Which conversation a start is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadChoice {
    /// A new one.
    New,
    /// The last one of this folder.
    Last,
    /// One that the person chooses from a list.
    Pick,
    /// This one, by id or the beginning of it.
    Id(String),
}

impl Cli {
    /// Reads the arguments, the program's name first.
    ///
    /// # Errors
    /// Usage errors (exit status 2), and also the texts of `--help` and `--version` (exit status 0): see
    /// [`clap::Error::exit_code`].
    pub fn parse_args<I>(args: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator,
        I::Item: Into<OsString> + Clone,
    {
        let mut cli = Self::try_parse_from(args)?;
        let refuse =
            |message: &str| Err(Self::command().error(clap::error::ErrorKind::ArgumentConflict, message));
        // An empty text stands for "no value", because a flag with an optional value says it that way.
        if cli.print.as_deref().is_some_and(|text| !text.is_empty()) {
            if cli.prompt.is_some() {
                return refuse("the prompt was given twice, once after -p and once by itself");
            }
            cli.prompt = cli.print.replace(String::new());
        }
        if cli.command.is_some()
            && (cli.print.is_some() || cli.prompt.is_some() || cli.continue_last || cli.resume.is_some())
        {
            return refuse("a command such as `threads` takes no prompt and none of -p, -c, -r");
        }
        if !cli.is_print() && cli.output_format != OutputFormat::Text {
            return refuse("--output-format is for headless runs; add -p");
        }
        if !cli.is_print() && cli.on_ask.is_some() {
            return refuse("--on-ask is for headless runs; add -p");
        }
        if cli.is_print() && cli.resume.as_deref() == Some("") {
            return refuse(
                "-r needs the id of a conversation when -p is given; `aye threads list` shows them",
            );
        }
        if cli.keep_waiting && cli.command.is_some() {
            return refuse("--keep-waiting is for conversations, not for commands such as `threads`");
        }
        if cli.keep_waiting && cli.is_print() && cli.thread() == ThreadChoice::New {
            return refuse(
                "--keep-waiting with -p needs the conversation whose questions stay: add -c or -r ID",
            );
        }
        Ok(cli)
    }

    /// Whether the run is headless.
    pub fn is_print(&self) -> bool {
        self.print.is_some()
    }

    /// Which conversation is meant.
    pub fn thread(&self) -> ThreadChoice {
        match self.resume.as_deref() {
            Some("") => ThreadChoice::Pick,
            Some(id) => ThreadChoice::Id(id.to_owned()),
            None if self.continue_last => ThreadChoice::Last,
            None => ThreadChoice::New,
        }
    }

    /// What the command line says about settings, as their last layer.
    pub fn flags(&self) -> Flags {
        let mut flags = self.global.flags();
        if let Some(on_ask) = &self.on_ask {
            flags.set("--on-ask", "on_ask", on_ask);
        }
        if let Some(screen) = &self.screen {
            flags.set("--screen", "screen", screen);
        }
        flags
    }
}

impl Global {
    /// The settings that these flags stand for; own flags beat `--config`.
    pub fn flags(&self) -> Flags {
        let mut flags = Flags::default();
        for assignment in &self.config {
            flags.config(assignment);
        }
        let own = [
            ("--model", "model", self.model.clone()),
            ("--agent", "agent", self.agent.clone()),
            ("--permission-mode", "permission_mode", self.permission_mode.clone()),
            ("--max-turns", "max_turns", self.max_turns.map(|turns| turns.to_string())),
            ("--max-tokens-total", "stop.max_tokens_total", self.max_tokens_total.map(|n| n.to_string())),
            ("--max-budget-usd", "stop.max_budget_usd", self.max_budget_usd.map(|most| format!("{most:?}"))),
            ("--timeout", "stop.timeout_s", self.run_timeout.map(|seconds| seconds.to_string())),
            ("--tool-execution", "tool_execution", self.tool_execution.clone()),
            ("--reduced-motion", "tui.reduced_motion", self.reduced_motion.then(|| "true".to_owned())),
            ("--screen-reader", "tui.screen_reader", self.screen_reader.then(|| "true".to_owned())),
        ];
        for (flag, key, value) in own {
            if let Some(value) = value {
                flags.set(flag, key, &value);
            }
        }
        flags
    }

    /// The patterns of `--allowed-tools`, one each: a value may hold several, with blanks or commas between them.
    pub fn allowed_patterns(&self) -> Vec<String> {
        split_patterns(&self.allowed_tools)
    }

    /// The patterns of `--disallowed-tools`, one each.
    pub fn disallowed_patterns(&self) -> Vec<String> {
        split_patterns(&self.disallowed_tools)
    }

    /// The permission mode of `--permission-mode`, when it was given.
    pub fn permission_mode(&self) -> Option<PermissionMode> {
        self.permission_mode.as_deref().and_then(|word| word.parse().ok())
    }
}

fn amount(text: &str) -> Result<f64, String> {
    text.trim_start_matches('$')
        .parse::<f64>()
        .ok()
        .filter(|amount| amount.is_finite() && *amount >= 0.0)
        .ok_or_else(|| "it must be an amount such as 0.50".to_owned())
}

fn whole_seconds(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => 0,
    };
    number
        .parse::<u64>()
        .ok()
        .filter(|_| factor > 0)
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| "it must be a time such as 90s, 10m or 1h".to_owned())
}

/// Takes lists of patterns apart at blanks and commas outside of parentheses, slashes and quotes left alone.
fn split_patterns(values: &[String]) -> Vec<String> {
    let mut patterns: Vec<String> = Vec::new();
    for value in values {
        // A regex may hold blanks and commas, and what is one pattern by itself is not looked into.
        if value.trim_start().starts_with('/') {
            patterns.push(value.trim().to_owned());
            continue;
        }
        let (mut part, mut depth) = (String::new(), 0_usize);
        let mut rest = value.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            let is_between = depth == 0 && (c == ',' || c.is_whitespace());
            if !is_between {
                part.push(c);
                continue;
            }
            while c != ',' && rest.next_if(|next| next.is_whitespace()).is_some() {}
            // `Bash (git *)` is one pattern.
            if c != ',' && rest.peek() == Some(&'(') {
                continue;
            }
            patterns.extend(Some(std::mem::take(&mut part)).filter(|part| !part.is_empty()));
        }
        patterns.extend(Some(part).filter(|part| !part.is_empty()));
    }
    patterns
}

/// Answers `aye --version` and `aye -V` without building anything else.
pub fn version_only(args: &[OsString]) -> Option<&'static str> {
    match args {
        [_, flag] if flag == "--version" || flag == "-V" => Some(concat!("aye ", env!("CARGO_PKG_VERSION"))),
        _ => None,
    }
}

/// The completion script of a shell.
pub fn completion(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "aye", &mut script);
    script
}

/// The manual page: the one of `aye` with a section for each command.
pub fn man_page() -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::parse_args(std::iter::once("aye").chain(args.iter().copied()))
    }

    fn ok(args: &[&str]) -> Cli {
        parse(args).unwrap_or_else(|error| panic!("{args:?}: {error}"))
    }

    #[test]
    fn the_tree_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_prompt_comes_by_itself_or_after_print() {
        assert_eq!(ok(&["hello there"]).prompt.as_deref(), Some("hello there"));
        for args in [
            &["-p", "hello"][..],
            &["--print=hello"],
            &["-p", "--output-format", "json", "hello"],
            &["hello", "-p"],
            &["-c", "-p", "hello"],
            &["-r", "abc", "-p", "hello"],
            &["--permission-mode", "yolo", "--model", "mock", "-p", "hello"],
        ] {
            let cli = ok(args);
            assert!(cli.is_print(), "{args:?}");
            assert_eq!(cli.prompt.as_deref(), Some("hello"), "{args:?}");
        }
        assert!(ok(&["-p"]).is_print() && ok(&["-p"]).prompt.is_none());
        assert!(!ok(&[]).is_print());
        assert_eq!(parse(&["-p", "a", "b"]).expect_err("two prompts").exit_code(), 2);
    }

    #[test]
    fn a_thread_is_chosen() {
        assert_eq!(ok(&[]).thread(), ThreadChoice::New);
        assert_eq!(ok(&["-c"]).thread(), ThreadChoice::Last);
        assert_eq!(ok(&["--continue", "go on"]).thread(), ThreadChoice::Last);
        assert_eq!(ok(&["-r"]).thread(), ThreadChoice::Pick);
        assert_eq!(ok(&["-r", "0198", "-p"]).thread(), ThreadChoice::Id("0198".into()));
        assert!(parse(&["-c", "-r", "x"]).is_err());
        assert!(parse(&["-p", "-r"]).is_err());
    }

    /// Row HL005: what begins with a `-` inside a value stays a value.
    #[test]
    fn no_flag_is_read_from_inside_a_value() {
        let cli = ok(&["--print=--config=model=evil"]);
        assert_eq!(cli.prompt.as_deref(), Some("--config=model=evil"));
        assert!(cli.global.config.is_empty());
        assert_eq!(ok(&["-p", "--", "--trust"]).prompt.as_deref(), Some("--trust"));
        assert_eq!(ok(&["--", "--permission-mode=yolo"]).prompt.as_deref(), Some("--permission-mode=yolo"));
        assert_eq!(ok(&["--model=--trust"]).global.model.as_deref(), Some("--trust"));
        assert!(!ok(&["--model=--trust"]).global.trust);
        assert!(!ok(&["--config", "--trust"]).global.trust);
        assert!(parse(&["--model", "--trust"]).is_err(), "a missing value is an error, not the next flag");
        assert_eq!(parse(&["--prompt=--settings=/tmp/evil"]).expect_err("unknown").exit_code(), 2);
        let cli = ok(&["approvals", "deny", "id", "--reason", "--trust me"]);
        assert!(!cli.global.trust);
        let Some(Command::Approvals(ApprovalsCommand::Deny(DenyArgs { reason, .. }))) = cli.command else {
            panic!("deny")
        };
        assert_eq!(reason.as_deref(), Some("--trust me"));
        let Some(Command::Answer(AnswerArgs { answer, .. })) = ok(&["answer", "id", "-1"]).command else {
            panic!("answer")
        };
        assert_eq!(answer.as_deref(), Some("-1"));
    }

    #[test]
    fn patterns_and_settings_are_collected() {
        let cli = ok(&[
            "-p",
            "x",
            "--allowed-tools",
            "Bash(git *)",
            "Read",
            "--disallowed-tools",
            "WebFetch",
            "--allowed-tools",
            "Edit",
            "--max-turns",
            "3",
            "--trust",
        ]);
        assert_eq!(cli.global.allowed_tools, ["Bash(git *)", "Read", "Edit"]);
        assert_eq!(cli.global.disallowed_tools, ["WebFetch"]);
        assert_eq!(cli.global.max_turns, Some(3));
        assert!(cli.global.trust);
        let cli = ok(&["config", "show", "--json", "--config", "theme=dark", "--model", "m", "-C", "/tmp"]);
        assert_eq!(cli.global.config, ["theme=dark"]);
        assert_eq!(cli.global.cd.as_deref(), Some(std::path::Path::new("/tmp")));
        assert!(matches!(cli.command, Some(Command::Config(ConfigCommand::Show(JsonFlag { json: true })))));
        assert!(matches!(ok(&["--model", "m", "models"]).command, Some(Command::Models(_))));
    }

    #[test]
    fn a_value_may_hold_several_patterns() {
        for (value, expected) in [
            ("Read,Bash(git add *), Edit", &["Read", "Bash(git add *)", "Edit"][..]),
            ("Read Bash(echo, x)  Edit ", &["Read", "Bash(echo, x)", "Edit"]),
            ("Bash (git *)", &["Bash(git *)"]),
            ("/Read|List, x/", &["/Read|List, x/"]),
            ("Bash(a (b) *)", &["Bash(a (b) *)"]),
            ("", &[]),
        ] {
            assert_eq!(split_patterns(&[value.to_owned()]), expected, "{value}");
        }
        assert_eq!(
            ok(&["-p", "x", "--allowed-tools", "A,B", "C"]).global.allowed_patterns(),
            ["A", "B", "C"]
        );
    }

    #[test]
    fn every_command_is_there() {
        for args in [
            "threads list --json",
            "threads show a",
            "threads delete a b",
            "threads export a --format json",
            "threads export a --format html",
            "threads rename a b",
            "threads pin a --off",
            "threads fork a --messages 2",
            "threads search words --json",
            "approvals list --json",
            "approvals show a --json",
            "approvals list --thread a --tool Bash --older-than 2h",
            "approvals approve a b",
            "approvals approve a --edit -m b",
            "approvals approve a --grant 2 --scope project --for 5uses",
            "approvals approve a --args {}",
            "approvals approve --all-reads --thread t",
            "approvals deny a b",
            "approvals deny a --comment b",
            "approvals deny --rest",
            "approvals modify a --feedback b",
            "approvals answer a {}",
            "grants list --all --json",
            "grants show a --json",
            "grants revoke a b",
            "inbox",
            "inbox --watch",
            "approve a b --resume --output-format stream-json",
            "deny a --reason no --resume",
            "answer a",
            "skills list",
            "skills check",
            "skills check dir --json",
            "permissions check",
            "permissions check --rules f",
            "permissions simulate --rules f --since 2h --json",
            "permissions suggest --since 2026-11-21",
            "reminders check",
            "reminders check f --json",
            "audit",
            "audit --since 2h --thread a --tool Bash --rules --json",
            "audit --rows",
            "audit --verify --json",
            "models",
            "models --json",
            "config show",
            "doctor --json",
            "completion bash",
            "man",
        ] {
            let args: Vec<_> = args.split(' ').collect();
            assert!(ok(&args).command.is_some(), "{args:?}");
        }
        assert!(ok(&["threads of execution"]).command.is_none(), "a sentence is a prompt");
    }

    #[test]
    fn usage_errors_end_with_status_two() {
        for args in [
            &["--nope"][..],
            &["--permission-mode", "auto", "x"],
            &["--max-turns", "many"],
            &["threads"],
            &["completion", "tcsh"],
            &["--output-format", "xml", "-p"],
            &["--output-format", "json", "x"],
            &["--on-ask", "deny", "x"],
            &["-p", "x", "threads", "list"],
            &["--on-unknown", "hope"],
            &["permissions", "simulate"],
            &["audit", "--verify", "--since", "2h"],
            &["-c", "models"],
            &["approve"],
            &["approve", "a", "--output-format", "json"],
            &["inbox", "--older-than", "soon"],
            &["inbox", "--older-than", ""],
            &["inbox", "--older-than", "9999999999999999999w"],
            &["approvals", "approve"],
            &["approvals", "approve", "a", "--all-reads"],
            &["approvals", "approve", "a", "--edit", "--args", "{}"],
            &["approvals", "approve", "a", "--thread", "t"],
            &["approvals", "deny"],
            &["approvals", "modify", "a"],
        ] {
            assert_eq!(parse(args).expect_err("refused").exit_code(), 2, "{args:?}");
        }
        assert_eq!(parse(&["--help"]).expect_err("help").exit_code(), 0);
    }

    #[test]
    fn spans_of_time_are_read() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86_400), ("1h 30min", 5400)]
        {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", " ", "2", "h", "-2h", "2 hours", "2h3", "1.5h", "２h"] {
            assert!(span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn version_needs_no_parser() {
        let args = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
        let version = version_only(&args(&["aye", "--version"])).expect("version");
        assert!(version.starts_with("aye ") && version.ends_with(env!("CARGO_PKG_VERSION")));
        assert!(version_only(&args(&["aye", "--version", "x"])).is_none());
        assert!(version_only(&args(&["aye"])).is_none());
    }

    #[test]
    fn completions_and_the_manual_are_written() {
        use clap_complete::Shell;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(String::from_utf8_lossy(&completion(shell)).contains("approvals"), "{shell}");
        }
        let page = man_page().expect("page");
        assert!(String::from_utf8_lossy(&page).contains("Exit status"));
    }
}
