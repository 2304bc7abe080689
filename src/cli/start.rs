//! The flags of a start that are about no command.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::global::Global;
use crate::config::Flags;

/// The flags of a start that are about no command: what each command is given.
#[derive(Args, Clone, Debug)]
pub struct StartFlags {
    /// What is started.
    #[arg(skip)]
    pub(crate) kind: StartKind,

    /// First message; with -p the whole task
    ///
    /// Put it after `--` when it starts with a `-`.
    #[arg(value_name = "PROMPT")]
    pub prompt: Option<String>,

    /// Resume this folder's latest conversation
    #[arg(short = 'c', long = "continue", conflicts_with = "resume")]
    pub continue_last: bool,

    /// Resume a conversation; without ID, choose from a list
    #[arg(short = 'r', long, value_name = "ID", num_args = 0..=1, default_missing_value = "")]
    pub resume: Option<String>,

    /// Work in a git worktree of its own, on the branch aye/NAME; it is made if there is none
    ///
    /// `aye worktrees` lists, merges and removes them. Changes that are not committed stay in this checkout.
    #[arg(short = 'w', long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub worktree: Option<String>,

    /// Short for --model
    #[arg(short = 'm', value_name = "NAME", conflicts_with = "model")]
    pub model_name: Option<String>,

    /// Continue in a copy of the conversation of -c or -r, which stays as it is
    #[arg(long)]
    pub fork_session: bool,

    /// Give the new conversation this id, a UUID
    #[arg(long, value_name = "UUID", conflicts_with_all = ["continue_last", "resume"])]
    pub session_id: Option<uuid::Uuid>,

    /// Answer on stdout and exit; piped input is context
    ///
    /// A call that needs a decision does not run: the exit status is 3 and `aye inbox` lists the
    /// questions. --on-ask changes this.
    #[arg(short = 'p', long = "print", value_name = "PROMPT", num_args = 0..=1, default_missing_value = "")]
    pub print: Option<String>,

    /// Work until a command succeeds, such as 'cargo test'
    ///
    /// It runs in the sandbox whenever the model would end its answer. While it fails, the model reads its output and goes
    /// on: at most stop.goal_rounds (25) times, within --max-turns, --max-budget-usd and --timeout.
    #[arg(long, value_name = "COMMAND")]
    pub until: Option<String>,

    /// Attach an image: PNG, JPEG, GIF or WebP, at most 3.75 MiB; `@FILE` in the prompt does the same
    #[arg(long, value_name = "FILE", requires = "print", action = clap::ArgAction::Append)]
    pub image: Vec<PathBuf>,

    /// Tools that the caller runs: a JSON list of {name, description, parameters}
    ///
    /// A call of one is a question (exit status 3); `aye answer ID RESULT --resume` gives its result. The rules apply
    /// to it as to any call; `--allowed-tools NAME` allows it.
    #[arg(long, value_name = "FILE", requires = "print")]
    pub client_tools: Option<PathBuf>,
    /// Keep pending questions open; a new message starts after they are answered
    ///
    /// With -p this needs -c or -r. While a question is pending, the message is queued after it and the exit status is
    /// 3; `aye -r ID -p` or any later run of the conversation starts it.
    #[arg(long)]
    pub keep_waiting: bool,
    /// Draw below the prompt with the terminal's scrollback (inline), or on a separate screen (full)
    #[arg(long, value_name = "inline|full")]
    pub screen: Option<String>,

    /// Output format of -p
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = OutputFormatArg::Text)]
    pub output_format: OutputFormatArg,

    /// Form of the messages on stdin: text, or one JSON object a line, each a message of one conversation
    ///
    /// A line is `{"type": "user", "message": {"role": "user", "content": "TEXT"}}`; `content` may be a list of text
    /// blocks. aye answers one after the other, and each answer ends with a result.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = InputFormatArg::Text)]
    pub input_format: InputFormatArg,

    /// Write the answer of -p to a file, too
    #[arg(short = 'o', long, value_name = "FILE", requires = "print")]
    pub output_last_message: Option<PathBuf>,

    /// Accepted for scripts of other agents: stream-json always has the parts of messages
    #[arg(long, requires = "print", hide = true)]
    pub include_partial_messages: bool,

    /// Accepted for scripts of other agents: stream-json is always complete
    #[arg(long, requires = "print", hide = true)]
    pub verbose: bool,

    /// JSON Schema that the answer of -p must match; after two failed repairs the exit status is 1
    ///
    /// Stdout gets only the JSON value; with --output-format json it is `structured_output`.
    #[arg(long, value_name = "FILE", requires = "print")]
    pub json_schema: Option<PathBuf>,

    /// How -p handles an interrupted call that may have run
    #[arg(long, value_enum, value_name = "ACTION", default_value_t = OnUnknown::Report)]
    pub on_unknown: OnUnknown,

    /// How -p handles questions: suspend, deny, wait or wait=SECONDS
    ///
    /// `suspend` leaves them pending and exits with status 3. `deny` denies each at once and continues. `wait` waits
    /// until you answer from another terminal; after SECONDS the question expires, and the status is 6. Default:
    /// suspend. With --ephemeral, which keeps nothing to resume, the default is deny, and wait asks in this terminal.
    #[arg(long, value_name = "ACTION")]
    pub on_ask: Option<String>,

    /// Settings of this start.
    #[command(flatten)]
    pub global: Global,
}

/// What is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartKind {
    /// A conversation in the terminal.
    #[default]
    Chat,
    /// A task without a terminal.
    Print,
    /// A worker.
    Work,
    /// A front end with users of its own, such as an editor.
    Attended,
    /// Any other command.
    Command,
}

/// Form of the output of `-p`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormatArg {
    /// The answer as text
    #[default]
    Text,
    /// One object at the end
    Json,
    /// One event per line during the run, then the object of `json` as the last line
    StreamJson,
}

/// Form of the input of `-p`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum InputFormatArg {
    /// All of it is context of the prompt
    #[default]
    Text,
    /// One message a line
    StreamJson,
}

/// The handling of calls with an unknown outcome in a headless run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnUnknown {
    /// Report to the model that the call may have run
    #[default]
    Report,
    /// Leave it as a question: run again, mark as done or skip
    Ask,
    /// End the run
    Stop,
    /// Run the call again
    Retry,
}

/// The conversation that a start is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadChoice {
    /// A new one.
    New,
    /// The last one of this folder.
    Last,
    /// One that the user selects from a list.
    Pick,
    /// This one, by its id or the start of its id.
    Id(String),
}

impl StartFlags {
    /// Returns whether the run is headless.
    pub fn is_print(&self) -> bool {
        self.print.is_some()
    }

    /// Returns the conversation that was requested.
    pub fn thread(&self) -> ThreadChoice {
        match self.resume.as_deref() {
            Some("") => ThreadChoice::Pick,
            Some(id) => ThreadChoice::Id(id.to_owned()),
            None if self.continue_last => ThreadChoice::Last,
            None => ThreadChoice::New,
        }
    }

    /// Returns the settings given on the command line, as their last layer.
    pub fn flags(&self, config_dir: &Path, cwd: &Path) -> Flags {
        let mut flags = self.global.flags(config_dir, cwd);
        if let Some(on_ask) = &self.on_ask {
            flags.set("--on-ask", "on_ask", on_ask);
        }
        if let Some(screen) = &self.screen {
            flags.set("--screen", "screen", screen);
        }
        flags
    }
}
