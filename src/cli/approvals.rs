//! Questions and their answers: `aye inbox`, `aye approvals ...` and the short forms of its commands.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::time::span;
use super::{OnUnknown, OutputFormatArg, PageArgs};

pub(super) const ANSWER_EXAMPLE: &str = "Example:\n  aye answer ask_0198c '{\"answer\": \"the second one\"}'";

pub(super) const APPROVE_EXAMPLES: &str = "Examples:\n  aye approve perm_0198c --resume\n  aye approve perm_0198c --edit\n  aye approve perm_0198c --args '{\"command\": \"ls\"}' -m \"look first\"\n  aye approve --all-reads";

/// `aye approvals ...`
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "Example:\n  aye approvals approve perm_0198c --resume")]
pub enum ApprovalsCommand {
    /// List pending questions, as `aye inbox` does
    List(InboxArgs),
    /// Show one question with the exact call
    Show {
        /// Id of the question, or its first characters
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Approve calls, as they are or edited
    #[command(after_help = APPROVE_EXAMPLES)]
    Approve(ApproveArgs),
    /// Deny calls
    Deny(DenyArgs),
    /// Request changes: the call does not run and the model gets your feedback
    Modify(ModifyArgs),
    /// Answer a question with data
    #[command(after_help = ANSWER_EXAMPLE)]
    Answer(AnswerArgs),
}

/// Filter and output format of pending questions.
#[derive(Args, Clone, Debug, Default)]
pub struct InboxArgs {
    /// Only questions of this conversation: its id, or its first characters
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,
    /// Only questions about this tool, for example Bash
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Only questions pending for at least this long, for example 30m, 2h or 1d
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub older_than: Option<Duration>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// Keep running: one line of JSON per pending question, then one per new question
    #[arg(long, conflicts_with_all = ["limit", "offset"])]
    pub watch: bool,
    /// The page of the list.
    #[command(flatten)]
    pub page: PageArgs,
}

/// The options for resuming after a decision.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ThenArgs {
    /// Resume the run here at once, as `aye -r ID -p` does
    ///
    /// Output and exit status are those of `aye -p`. If another process drives the run, that process resumes it.
    #[arg(long)]
    pub resume: bool,
    /// Output format of --resume
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = OutputFormatArg::Text, requires = "resume")]
    pub output_format: OutputFormatArg,
    /// How --resume handles an interrupted call that may have run
    #[arg(long, value_enum, value_name = "ACTION", default_value_t = OnUnknown::Report, requires = "resume")]
    pub on_unknown: OnUnknown,
}

/// `aye approve ...`
#[derive(Args, Clone, Debug)]
pub struct ApproveArgs {
    /// Ids of questions, or their first characters
    #[arg(value_name = "ID", required_unless_present = "all_reads", conflicts_with = "all_reads")]
    pub ids: Vec<String>,
    /// Edit the arguments of one call in $VISUAL or $EDITOR first
    #[arg(long, conflicts_with_all = ["args", "all_reads"])]
    pub edit: bool,
    /// Run one call with these arguments instead, as JSON
    #[arg(long, value_name = "JSON", allow_hyphen_values = true, conflicts_with = "all_reads")]
    pub args: Option<String>,
    /// Comment for the model, added to the result
    #[arg(short = 'm', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub comment: Option<String>,
    /// Run the command outside the sandbox, with all your rights
    #[arg(long, conflicts_with_all = ["all_reads", "grant"])]
    pub outside: bool,
    /// All pending read-only calls
    #[arg(long)]
    pub all_reads: bool,
    /// Only calls of this conversation
    #[arg(long, value_name = "ID", requires = "all_reads", conflicts_with = "ids")]
    pub thread: Option<String>,
    /// The rule to grant as well.
    #[command(flatten)]
    pub granting: GrantFlags,
    /// The options for resuming after the decision.
    #[command(flatten)]
    pub then: ThenArgs,
}

/// A rule granted with a decision.
#[derive(Args, Clone, Debug, Default)]
pub struct GrantFlags {
    /// Grant a rule for such calls: a pattern, or the number of a proposal in `aye approvals show`
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["all_reads", "edit", "args"])]
    pub grant: Option<String>,
    /// Scope of the grant [default: run]
    #[arg(long, requires = "grant", value_parser = ["run", "thread", "project", "all"])]
    pub scope: Option<String>,
    /// Expiry of the grant: 1h, 7d, today, 2026-12-01, 5uses
    #[arg(long = "for", value_name = "END", requires = "grant")]
    pub until: Option<String>,
}

/// `aye deny ...`
#[derive(Args, Clone, Debug)]
pub struct DenyArgs {
    /// Ids of questions, or their first characters
    #[arg(value_name = "ID", required_unless_present = "rest", conflicts_with = "rest")]
    pub ids: Vec<String>,
    /// Reason for the model
    #[arg(short = 'm', long, visible_alias = "comment", value_name = "TEXT", allow_hyphen_values = true)]
    pub reason: Option<String>,
    /// All pending calls that do more than read
    #[arg(long)]
    pub rest: bool,
    /// Only calls of this conversation
    #[arg(long, value_name = "ID", requires = "rest", conflicts_with = "ids")]
    pub thread: Option<String>,
    /// The options for resuming after the decision.
    #[command(flatten)]
    pub then: ThenArgs,
}

/// `aye approvals modify ...`
#[derive(Args, Clone, Debug)]
pub struct ModifyArgs {
    /// Id of the question, or its first characters
    #[arg(value_name = "ID")]
    pub id: String,
    /// Feedback for the model: what to change
    #[arg(short = 'm', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub feedback: String,
    /// The options for resuming after the decision.
    #[command(flatten)]
    pub then: ThenArgs,
}

/// `aye answer ...`
#[derive(Args, Clone, Debug)]
pub struct AnswerArgs {
    /// Id of the question, or its first characters
    #[arg(value_name = "ID")]
    pub id: String,
    /// The answer as JSON; `aye approvals show ID` shows the expected form
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    pub answer: Option<String>,
    /// Comment for the model
    #[arg(short = 'm', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub comment: Option<String>,
    /// The options for resuming after the decision.
    #[command(flatten)]
    pub then: ThenArgs,
}
