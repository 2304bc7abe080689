//! The command line. The arguments of each subcommand are beside its code, in `commands/`.

pub(crate) mod global;
mod help;
pub(crate) mod shared;
pub(crate) mod start;
#[cfg(test)]
mod tests;
pub(crate) mod time;

use std::ffi::OsString;
use std::ops::Deref;

use clap::{CommandFactory, Parser, Subcommand};

pub use crate::commands::agents::AgentsCommand;
use crate::commands::approvals::{ANSWER_EXAMPLE, APPROVE_EXAMPLES};
pub use crate::commands::approvals::{
    AnswerArgs, ApprovalsCommand, ApproveArgs, DenyArgs, GrantFlags, InboxArgs, ModifyArgs, ThenArgs,
};
pub use crate::commands::audit::AuditArgs;
pub use crate::commands::config::ConfigCommand;
pub use crate::commands::docs::{DocsArgs, PAGES as DOCS_PAGES};
pub use crate::commands::doctor::DoctorArgs;
pub use crate::commands::eval::EvalArgs;
pub use crate::commands::gate::{GateArgs, GateCommand};
pub use crate::commands::grants::GrantsCommand;
pub use crate::commands::hooks::HooksCommand;
pub use crate::commands::import::ImportArgs;
pub use crate::commands::mcp::{McpAddArgs, McpCommand, McpLoginArgs, McpScope};
pub use crate::commands::memory::{MemoryCommand, MemoryForm};
pub use crate::commands::permissions::PermissionsCommand;
pub use crate::commands::queue::{QueueAddArgs, QueueCommand, QueueListArgs, QueueOutboxArgs};
pub use crate::commands::reminders::RemindersCommand;
pub use crate::commands::replay::ReplayArgs;
pub use crate::commands::serve::{ScopeArg, ServeArgs, ServeCommand, TokenCommand};
pub use crate::commands::skills::SkillsCommand;
pub use crate::commands::stats::{StatsArgs, StatsBy};
pub use crate::commands::store::{PruneArgs, StoreCommand};
pub use crate::commands::tasks::TasksCommand;
pub use crate::commands::threads::{ExportFormatArg, ThreadsCommand};
pub use crate::commands::upgrade::UpgradeArgs;
pub use crate::commands::work::WorkArgs;
pub use crate::commands::worktrees::WorktreesCommand;
pub use crate::import::ForeignAgent;
pub use global::Global;
pub use shared::{JsonFlag, ListArgs, PageArgs};
pub use start::{InputFormatArg, OnUnknown, OutputFormatArg, StartFlags, StartKind, ThreadChoice};

use crate::contract::near::nearest;

pub(crate) const EXAMPLES: &str = "\
Examples:
  aye                                   chat in this folder
  aye \"why does the build fail?\"        the same, with a first message
  aye -c                                resume this folder's latest conversation
  git diff | aye -p \"review this\"       headless; piped input is context
  aye -p --output-format json \"...\"     one JSON object on stdout
  aye --model ollama/qwen3              provider and model
  aye inbox                             pending questions of all conversations
  aye approve perm_0198c --resume       approve a call and resume its conversation here";

pub(crate) const EXIT_STATUS: &str = "\
0 done, 1 failed, 2 usage, 3 waiting for a decision, 4 the run was ended by a hook or plugin, refused by the \
model or filtered by its provider, 5 a limit was reached or the answer was cut off, 6 a question expired unanswered, \
75 provider unavailable, 130 interrupted, 143 terminated.";

const LOGIN_EXAMPLES: &str = "\
Examples:
  aye login anthropic
  pass show openai | aye login openai";

const SERVE_EXAMPLES: &str = "\
Examples:
  aye serve                             on this machine: http://127.0.0.1:7400/
  aye serve --bind unix:$XDG_RUNTIME_DIR/aye.sock
  aye serve --bind 0.0.0.0:7400 --tls-cert cert.pem --tls-key key.pem
  aye serve token add phone --scope read,decide";

const WORK_EXAMPLE: &str = "Example:
  aye work --until-empty --json

Exit status: as with -p, of the job that went worst.";

/// The help of `aye` itself; `aye help all` has every flag.
const OVERVIEW: &str = include_str!("cli/overview.txt");

/// The terminal agent that never loses a question
#[derive(Clone, Debug, Parser)]
#[command(
    name = "aye",
    version,
    after_help = format!("{EXAMPLES}\n\nExit status: {EXIT_STATUS}"),
    override_help = OVERVIEW,
    max_term_width = 100,
    subcommand_precedence_over_arg = false
)]
pub struct Cli {
    /// The subcommand; without one, chat.
    #[command(subcommand)]
    pub command: Option<CliCommand>,

    /// The flags that are about no command.
    #[command(flatten)]
    pub start: StartFlags,
}

impl Deref for Cli {
    type Target = StartFlags;

    fn deref(&self) -> &StartFlags {
        &self.start
    }
}

/// Everything but chatting.
#[derive(Clone, Debug, Subcommand)]
pub enum CliCommand {
    /// List, show, export and delete conversations
    #[command(subcommand)]
    Threads(ThreadsCommand),
    /// Back up, restore, check or prune the database of all conversations
    #[command(subcommand)]
    Store(StoreCommand),
    /// List the pending questions of all conversations, oldest first
    #[command(
        after_help = "Examples:\n  aye inbox --tool Bash --older-than 2h\n  aye inbox --watch | while read -r row; do notify-send \"$row\"; done"
    )]
    Inbox(InboxArgs),
    /// Approve calls, as they are or edited; short for `aye approvals approve`
    #[command(after_help = APPROVE_EXAMPLES)]
    Approve(ApproveArgs),
    /// Deny calls; short for `aye approvals deny`
    Deny(DenyArgs),
    /// Answer a question with data; short for `aye approvals answer`
    #[command(after_help = ANSWER_EXAMPLE)]
    Answer(AnswerArgs),
    /// List, show and decide pending questions
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// List and revoke grants
    #[command(subcommand)]
    Grants(GrantsCommand),
    /// List, merge and remove the git worktrees that `aye -w` made
    #[command(subcommand)]
    Worktrees(WorktreesCommand),
    /// List, add, edit and remove memory notes
    #[command(subcommand)]
    Memory(MemoryCommand),
    /// Queue messages; list, cancel and retry jobs
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Run queued jobs until interrupted
    ///
    /// Several workers may share a store: each job is claimed by one of them, and another one resumes the job of a
    /// worker that died. Questions stay in the inbox; a job resumes once its question is answered. SIGINT or SIGTERM
    /// stops after the current job; a second signal stops at once and leaves the job to the next worker.
    #[command(after_help = WORK_EXAMPLE)]
    Work(WorkArgs),
    /// Serve an editor over stdin and stdout (Agent Client Protocol)
    ///
    /// The editor starts this command; `aye docs editors` says how to set it up. Each session is a conversation of its
    /// folder. Flags of this command, such as --model, apply to all sessions.
    Acp,
    /// Open conversations and questions in a browser or on a phone
    ///
    /// The first start creates a token and prints a code to sign in with. Remote conversations work in this
    /// folder, or in those of `[serve] folders`, under the rules of each; rules, trust and the sandbox cannot
    /// be changed remotely.
    #[command(after_help = SERVE_EXAMPLES, args_conflicts_with_subcommands = true)]
    Serve(ServeArgs),
    /// List and show agents
    #[command(subcommand)]
    Agents(AgentsCommand),
    /// List, show and stop subagents and background commands
    #[command(subcommand)]
    Tasks(TasksCommand),
    /// List skills and check their files
    #[command(subcommand)]
    Skills(SkillsCommand),
    /// Put rules, questions and the audit between any agent and an MCP server
    ///
    /// Another agent starts this in place of the server. What your rules allow goes through at once, what they deny does
    /// not; all else becomes a question in the inbox, which you answer from anywhere. If the agent stops waiting before, the
    /// answer is there when it makes the same call again; a call runs at most once for an answer.
    Gate(GateArgs),
    /// List, add, remove, test and trust MCP servers
    #[command(subcommand)]
    Mcp(McpCommand),
    /// Check calls against the permission rules, simulate and suggest rules
    #[command(subcommand)]
    Permissions(PermissionsCommand),
    /// List and test hooks: commands at the boundaries of a run
    #[command(subcommand)]
    Hooks(HooksCommand),
    /// Check reminders: rules that remind the model after tool calls
    #[command(subcommand)]
    Reminders(RemindersCommand),
    /// Show or verify the audit: each call with its verdict, question, decision and outcome
    Audit(AuditArgs),
    /// Run cases that an agent should pass, and count how often it does
    ///
    /// Each run has a copy of the case's files and a store of its own, in mode `auto`; nobody answers its questions. The
    /// commands of a case run as you: run only cases that you trust.
    Eval(EvalArgs),
    /// Make a conversation's requests again, and compare them with what was sent
    ///
    /// Offline: the requests come from the rows of the store, no tool runs, and nothing is stored. Also shows what today's
    /// prompt, tools, rules and model would change. With --model, another model gets the same requests, and the record
    /// answers its calls as long as they are those of the record.
    Replay(ReplayArgs),
    /// Show answers, calls, tokens, cost and waiting by model, tool and day
    Stats(StatsArgs),
    /// List available models, and why the others are unavailable
    Models(JsonFlag),
    /// Log in to a model provider
    ///
    /// The key is typed or pasted unseen, or piped in, and checked. It is stored in a file that only you can read, or in
    /// the system keyring. A variable such as ANTHROPIC_API_KEY overrides it. To log in to an MCP server, run
    /// `aye mcp login`.
    #[command(after_help = LOGIN_EXAMPLES)]
    Login {
        /// The provider; without it, choose from a list
        provider: Option<String>,
        /// Give the key a name: it is used by models of `PROVIDER@NAME`, whatever variables are set
        #[arg(long = "as", value_name = "NAME", requires = "provider")]
        key_name: Option<String>,
        /// Store the key in the system keyring instead of a file; later logins of the provider do the same
        #[arg(long)]
        keyring: bool,
    },
    /// Remove the stored key of a provider
    Logout {
        /// The provider; without it, the only one whose key is stored
        provider: Option<String>,
        /// The name of the key, if it has one
        #[arg(long = "as", value_name = "NAME", requires = "provider")]
        key_name: Option<String>,
    },
    /// Show the settings and where each comes from
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check the installation and this folder
    Doctor(DoctorArgs),
    /// Take over rules, MCP servers, hooks and commands of another agent
    ///
    /// Shows what would be written, and writes it when you answer `y`. What cannot be translated without a change of
    /// meaning is listed with the reason. A second run changes nothing.
    Import(ImportArgs),
    /// Install the newest version, or say how
    ///
    /// A program from an archive is replaced after its sum was checked, from the address that `upgrade.url` sets. For one
    /// that a package manager installed, its command is printed. aye never looks for a newer version by itself.
    Upgrade(UpgradeArgs),
    /// Read the manual
    Docs(DocsArgs),
    /// Write completions for a shell to stdout
    #[command(
        after_help = "Example:\n  mkdir -p ~/.local/share/bash-completion/completions\n  aye completion bash > ~/.local/share/bash-completion/completions/aye"
    )]
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual page to stdout
    #[command(
        after_help = "Example:\n  mkdir -p ~/.local/share/man/man1\n  aye man > ~/.local/share/man/man1/aye.1"
    )]
    Man,
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
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        let is_after_dashes = args.iter().any(|arg| arg == "--");
        let mut cli = match Self::try_parse_from(&args) {
            Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
                return Err(command_with_help().try_get_matches_from(&args).err().unwrap_or(error));
            }
            parsed => parsed?,
        };
        let refuse =
            |message: &str| Err(Self::command().error(clap::error::ErrorKind::ArgumentConflict, message));
        // Commands such as `approve` have another -m, so this one cannot be a flag of all of them.
        if let Some(name) = cli.start.model_name.take() {
            cli.start.global.model = Some(name);
        }
        // An empty string means "no value": a flag with an optional value reports it that way.
        if cli.print.as_deref().is_some_and(|text| !text.is_empty()) {
            if cli.prompt.is_some() {
                return refuse("the prompt is given twice, once after -p and once on its own");
            }
            cli.start.prompt = cli.start.print.replace(String::new());
        }
        if cli.command.is_some()
            && (cli.print.is_some() || cli.prompt.is_some() || cli.continue_last || cli.resume.is_some())
        {
            return refuse("a command such as `threads` takes no prompt and none of -p, -c, -r");
        }
        if let (None, false, Some(word)) = (&cli.command, cli.is_print(), &cli.prompt)
            && let Some(near) = misspelt(word)
            && !is_after_dashes
        {
            return Err(Self::command().error(
                clap::error::ErrorKind::InvalidSubcommand,
                format!("unknown command `{word}`; did you mean `aye {near}`? To send the word to the model: aye -- {word}"),
            ));
        }
        if !cli.is_print() && cli.output_format != OutputFormatArg::Text {
            return refuse("--output-format is for headless runs; add -p");
        }
        if cli.input_format == InputFormatArg::StreamJson {
            if !cli.is_print() {
                return refuse("--input-format is for headless runs; add -p");
            }
            if cli.prompt.is_some() || !cli.image.is_empty() || cli.keep_waiting || cli.json_schema.is_some()
            {
                return refuse(
                    "with --input-format stream-json all messages come from stdin: no prompt, --image, --json-schema or \
                     --keep-waiting",
                );
            }
        }
        if !cli.is_print() && cli.on_ask.is_some() {
            return refuse("--on-ask is for headless runs; add -p");
        }
        if cli.is_print() && cli.resume.as_deref() == Some("") {
            return refuse(
                "-r needs the id of a conversation when -p is given; `aye threads list` shows them",
            );
        }
        if cli.fork_session && matches!(cli.thread(), ThreadChoice::New | ThreadChoice::Pick) {
            return refuse("--fork-session needs the conversation to copy; add -c or -r ID");
        }
        if (cli.fork_session || cli.session_id.is_some()) && cli.command.is_some() {
            return refuse(
                "--fork-session and --session-id are for conversations, not for commands such as `threads`",
            );
        }
        if cli.keep_waiting && cli.command.is_some() {
            return refuse("--keep-waiting is for conversations, not for commands such as `threads`");
        }
        if cli.keep_waiting && cli.is_print() && cli.thread() == ThreadChoice::New {
            return refuse(
                "--keep-waiting with -p needs the conversation of the pending questions; add -c or -r ID",
            );
        }
        cli.start.kind = cli.kind();
        Ok(cli)
    }

    fn kind(&self) -> StartKind {
        match &self.command {
            None if self.is_print() => StartKind::Print,
            None => StartKind::Chat,
            Some(CliCommand::Work(_)) => StartKind::Work,
            Some(CliCommand::Acp | CliCommand::Serve(_)) => StartKind::Attended,
            Some(_) => StartKind::Command,
        }
    }
}

/// Returns the command that a first message of one word was probably meant to be.
fn misspelt(word: &str) -> Option<String> {
    let is_name = word.len() >= 4 && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let aye = Cli::command();
    let names: Vec<&str> = aye.get_subcommands().map(clap::Command::get_name).collect();
    let near = is_name.then(|| nearest(word, names)).flatten()?;
    Some(near.to_owned())
}

/// Returns the commands as `--help` and the manual page show them.
pub(crate) fn command_with_help() -> clap::Command {
    help::dressed_commands(Cli::command())
}

/// Answers `aye --version` and `aye -V` without building anything else.
pub fn version_only(args: &[OsString]) -> Option<&'static str> {
    match args {
        [_, flag] if flag == "--version" || flag == "-V" => Some(concat!("aye ", env!("CARGO_PKG_VERSION"))),
        _ => None,
    }
}

/// Answers `aye help all`: every flag of `aye` itself.
pub fn whole_help(args: &[OsString]) -> Option<String> {
    match args {
        [_, help, all] if help == "help" && all == "all" => {
            let mut aye = Cli::command().override_help(clap::builder::Resettable::Reset);
            Some(aye.render_long_help().to_string())
        }
        _ => None,
    }
}

/// The completion script of a shell.
pub fn completion(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "aye", &mut script);
    script
}
