//! Questions and their answers: `aye inbox`, `aye approvals ...` and the short forms of its commands.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::time::span;
use super::{OnUnknown, OutputFormat, PageArgs};

pub(super) const ANSWER_EXAMPLE: &str = "Example:\n  aye answer ask_0198c '{\"answer\": \"the second one\"}'";

pub(super) const APPROVE_EXAMPLES: &str = "Examples:\n  aye approve perm_0198c --resume\n  aye approve perm_0198c --edit\n  aye approve perm_0198c --args '{\"command\": \"ls\"}' -m \"look first\"\n  aye approve --all-reads";

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
    #[arg(long, conflicts_with_all = ["limit", "offset"])]
    pub watch: bool,
    /// Which of them.
    #[command(flatten)]
    pub page: PageArgs,
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
