//! The command line: what can be typed, and nothing about what it does.

mod agents;
mod approvals;
mod audit;
mod config;
mod docs;
mod global;
mod grants;
mod hooks;
mod mcp;
mod memory;
mod permissions;
mod queue;
mod reminders;
mod skills;
mod stats;
mod store;
mod tasks;
#[cfg(test)]
mod tests;
mod threads;
mod time;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

pub use agents::AgentsCommand;
use approvals::{ANSWER_EXAMPLE, APPROVE_EXAMPLES};
pub use approvals::{
    AnswerArgs, ApprovalsCommand, ApproveArgs, DenyArgs, GrantFlags, InboxArgs, ModifyArgs, ThenArgs,
};
pub use audit::AuditArgs;
pub use config::ConfigCommand;
pub use docs::{DocsArgs, PAGES as DOCS_PAGES};
pub use global::Global;
pub use grants::GrantsCommand;
pub use hooks::HooksCommand;
pub use mcp::{McpAddArgs, McpCommand, McpLoginArgs, McpScope};
pub use memory::{MemoryCommand, MemoryForm};
pub use permissions::PermissionsCommand;
pub use queue::{QueueAddArgs, QueueCommand, QueueListArgs, WorkArgs};
pub use reminders::RemindersCommand;
pub use skills::SkillsCommand;
pub use stats::{StatsArgs, StatsBy};
pub use store::{PruneArgs, StoreCommand};
pub use tasks::TasksCommand;
pub use threads::{ExportFormat, ThreadsCommand};

use crate::config::Flags;

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

Exit status: 0 done, 1 failed, 2 usage, 3 waiting for a decision, 4 blocked by a rule or plugin, refused by the
model or filtered by its provider, 5 a limit was reached or the answer was cut off, 6 a question expired unanswered,
75 provider unavailable, 130 interrupted, 143 terminated.";

const LOGIN_EXAMPLES: &str = "\
Examples:
  aye login anthropic
  pass show openai | aye login openai";

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

    /// JSON Schema that the answer of -p must match; the model may repair it twice, then the exit status is 1
    ///
    /// On stdout is the JSON value alone, with --output-format json as `structured_output`.
    #[arg(long, value_name = "FILE", requires = "print")]
    pub json_schema: Option<PathBuf>,

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

/// Form of the output of `-p`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// The answer as text
    #[default]
    Text,
    /// One object at the end
    Json,
    /// One event a line while it runs, and the object of `json` as the last line
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
    /// The file that holds all conversations: back it up, restore it, check it, make it smaller
    #[command(subcommand)]
    Store(StoreCommand),
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
    /// Models that can be used, as their servers list them, and why the others cannot
    Models(JsonFlag),
    /// Store the key of a provider, after trying it; it is typed or pasted unseen, or piped in
    ///
    /// The key is kept in a file that only you can read. A variable such as ANTHROPIC_API_KEY wins over it. To log in to
    /// an MCP server, run `aye mcp login`.
    #[command(after_help = LOGIN_EXAMPLES)]
    Login {
        /// The provider; without it, choose from a list
        provider: Option<String>,
    },
    /// Remove the stored key of a provider
    Logout {
        /// The provider; without it, the only one whose key is stored
        provider: Option<String>,
    },
    /// Settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look for what keeps aye from working here
    Doctor(JsonFlag),
    /// Read the manual
    Docs(DocsArgs),
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

/// Which rows of a list.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct PageArgs {
    /// At most this many
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Leave out this many first
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub offset: usize,
}

/// A list, and in which form.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ListArgs {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// Which rows.
    #[command(flatten)]
    pub page: PageArgs,
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
