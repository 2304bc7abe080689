//! Pending questions and decisions: `aye inbox`, `aye approvals` and their short forms.
//!
//! All of them use three functions: [`waiting`] lists, [`find`] finds one by the first characters of its id, [`decide`]
//! decides it.

mod errors;
mod grant;
mod list;
mod resume;
mod show;
pub(crate) mod user_edit;
mod watch;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::cli::shared::PageArgs;
use crate::cli::start::{OnUnknown, OutputFormatArg, StartFlags};
use crate::cli::time::span;
use crate::commands::put_json;
use crate::contract::display::{call_summary, is_unsafe, visible_line};
use crate::contract::judgement::Profile;
use crate::contract::question::subject;
use crate::contract::record::{DecideOutcome, GrantRecord, InboxRow, SuspensionRecord};
use crate::contract::storage::{InboxFilter, SharedStore, StoreError, SuspensionLookup};
use crate::contract::suspension::{Actor, Answer};
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::{put, put_stderr};
use crate::runtime::DecideError;
use crate::session::{self, AnswerError, AnswerPlace, Reply};

pub(crate) const ANSWER_EXAMPLE: &str = "Example:\n  aye answer ask_0198c '{\"answer\": \"the second one\"}'";

pub(crate) const APPROVE_EXAMPLES: &str = "Examples:\n  aye approve perm_0198c --resume\n  aye approve perm_0198c --edit\n  aye approve perm_0198c --args '{\"command\": \"ls\"}' -m \"look first\"\n  aye approve --all-reads";

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
    /// Scope of the grant [default: project; for a dangerous call: thread]
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

/// The hint on how to list the pending questions.
const LIST: &str = "`aye inbox` lists pending questions";

/// What a command answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    Approve,
    ApproveEdited,
    Deny,
    RequestChanges,
    /// Data, for a question that asks for more than a yes or no.
    Data,
}

impl AnswerKind {
    /// What was done, for the user.
    fn done(self) -> &'static str {
        match self {
            Self::Approve => "approved",
            Self::ApproveEdited => "approved as edited",
            Self::Deny => "denied",
            Self::RequestChanges => "changes requested",
            Self::Data => "answered",
        }
    }
}

/// An answer of a command.
#[derive(Clone, Debug)]
pub(crate) struct CommandAnswer {
    pub(crate) answer: Answer,
    pub(crate) kind: AnswerKind,
    /// The rule granted with the decision, and the line that reports it.
    pub(crate) grant: Option<(GrantRecord, String)>,
}

impl CommandAnswer {
    fn new(answer: Answer, kind: AnswerKind) -> Self {
        Self { answer, kind, grant: None }
    }

    fn reply(&self) -> Reply {
        let answer = self.answer.clone();
        let reply = match self.kind {
            AnswerKind::Approve => Reply::approval(answer),
            AnswerKind::Data if !answer.result.is_null() => Reply::values(answer),
            AnswerKind::Data | AnswerKind::ApproveEdited | AnswerKind::Deny | AnswerKind::RequestChanges => {
                Reply::from(answer)
            }
        };
        Reply { grant: self.grant.as_ref().map(|(grant, _)| grant.clone()), ..reply }
    }
}

pub(crate) async fn run(
    command: ApprovalsCommand,
    cli: &StartFlags,
    foundation: &Foundation,
) -> Result<u8, Failure> {
    match command {
        ApprovalsCommand::List(args) => inbox(&args, foundation).await,
        ApprovalsCommand::Show { id, json } => {
            let store = foundation.open_store_to_read()?;
            let suspension = find(&store, &id).await?;
            if json {
                put_json(&serde_json::json!(suspension))?;
            } else {
                put(&show::shown(&suspension))?;
            }
            store.close().await;
            Ok(0)
        }
        ApprovalsCommand::Approve(args) => Box::pin(approve(args, cli, foundation)).await,
        ApprovalsCommand::Deny(args) => Box::pin(deny(args, cli, foundation)).await,
        ApprovalsCommand::Modify(ModifyArgs { id, feedback, then }) => {
            let answer = CommandAnswer::new(Answer::modify(feedback), AnswerKind::RequestChanges);
            let store = foundation.open_store_to_answer()?;
            answer_all(&store, &[id], &answer, then, cli, foundation).await
        }
        ApprovalsCommand::Answer(args) => Box::pin(answer(args, cli, foundation)).await,
    }
}

pub(crate) async fn inbox(args: &InboxArgs, foundation: &Foundation) -> Result<u8, Failure> {
    let store = foundation.open_store_to_read()?;
    let code =
        if args.watch { watch::run(args, &store).await } else { list::run(args, &store, foundation).await };
    store.close().await;
    code
}

pub(crate) async fn approve(
    args: ApproveArgs,
    cli: &StartFlags,
    foundation: &Foundation,
) -> Result<u8, Failure> {
    let ApproveArgs { ids, edit, args, comment, outside, all_reads, thread, granting, then } = args;
    let profile = outside.then_some(Profile::Outside);
    let yes = Answer { profile, reason: comment, ..Answer::yes(Value::Null) };
    let mut yes = CommandAnswer::new(yes, AnswerKind::Approve);
    let store = foundation.open_store_to_answer()?;
    if all_reads {
        let found = user_edit::open_permissions(&store, thread.as_deref(), true).await?;
        return answer_each(&store, found, &yes, "that only read", then, cli, foundation).await;
    }
    if granting.grant.is_some() {
        let [id] = ids.as_slice() else {
            return Err(Failure::usage(
                "a rule can be granted with one question at a time; nothing was decided",
            ));
        };
        let suspension = find(&store, id).await?;
        errors::all(errors::closed_error(&store, &suspension).await?.into_iter().collect())?;
        yes.grant = grant::give(granting, &suspension, &store, foundation, cli).await?;
    }
    if !edit && args.is_none() {
        return answer_all(&store, &ids, &yes, then, cli, foundation).await;
    }
    let [id] = ids.as_slice() else {
        return Err(Failure::usage("only one call at a time can be edited; nothing was decided"));
    };
    let suspension = find(&store, id).await?;
    errors::all(errors::closed_error(&store, &suspension).await?.into_iter().collect())?;
    let answer = user_edit::edited(&suspension, args, yes, &store, foundation, cli).await?;
    answer_all(&store, &[suspension.id.to_string()], &answer, then, cli, foundation).await
}

pub(crate) async fn deny(args: DenyArgs, cli: &StartFlags, foundation: &Foundation) -> Result<u8, Failure> {
    let DenyArgs { ids, reason, rest, thread, then } = args;
    let no = CommandAnswer::new(Answer::no(reason), AnswerKind::Deny);
    let store = foundation.open_store_to_answer()?;
    if rest {
        let found = user_edit::open_permissions(&store, thread.as_deref(), false).await?;
        return answer_each(&store, found, &no, "that do more than read", then, cli, foundation).await;
    }
    answer_all(&store, &ids, &no, then, cli, foundation).await
}

pub(crate) async fn answer(
    args: AnswerArgs,
    cli: &StartFlags,
    foundation: &Foundation,
) -> Result<u8, Failure> {
    let result = match args.answer.as_deref().map(str::trim) {
        None | Some("") => {
            let store = foundation.open_store_to_read()?;
            return Err(errors::no_answer(&find(&store, &args.id).await?));
        }
        Some(text) => {
            serde_json::from_str(text).map_err(|e| Failure::usage(format!("the answer is not JSON: {e}")))?
        }
    };
    let data = Answer { reason: args.comment, ..Answer::yes(result) };
    let data = CommandAnswer::new(data, AnswerKind::Data);
    let store = foundation.open_store_to_answer()?;
    answer_all(&store, std::slice::from_ref(&args.id), &data, args.then, cli, foundation).await
}

/// Returns the pending questions that match the filter, oldest first. Expired ones are not pending.
pub(crate) async fn waiting(
    store: &SharedStore,
    filter: InboxFilter,
    now: u64,
) -> Result<Vec<InboxRow>, Failure> {
    store.inbox(InboxFilter { valid_at: Some(now), ..filter }).await.map_err(Failure::failed)
}

/// Returns the question whose id starts with this prefix.
pub(crate) async fn find(store: &SharedStore, id: &str) -> Result<SuspensionRecord, Failure> {
    if id.is_empty() {
        return Err(Failure::usage(format!("the id of a question is empty; {LIST}")));
    }
    if id.chars().any(is_unsafe) {
        return Err(Failure::usage(format!(
            "`{id}` contains control characters and is not the id of a question; {LIST}"
        )));
    }
    match store.find_suspension(id).await.map_err(Failure::failed)? {
        SuspensionLookup::One(suspension) => Ok(*suspension),
        SuspensionLookup::None => Err(Failure::usage(format!("unknown question `{id}`; {LIST}"))),
        SuspensionLookup::Many(found) => Err(errors::ambiguous(id, &found)),
    }
}

/// Stores an answer that fits its question.
pub(crate) async fn decide(
    store: &SharedStore,
    suspension: &SuspensionRecord,
    answer: &CommandAnswer,
    actor: Actor,
    now: u64,
) -> Result<DecideOutcome, Failure> {
    let place = AnswerPlace::Store { store: &**store, now_ms: now };
    let answered = session::answer(place, &suspension.id, answer.reply(), actor).await;
    answered.map(|answered| answered.outcome).map_err(|error| match error {
        AnswerError::Refused(DecideError::Store(StoreError::ReadOnly)) => {
            Failure::failed("the store is read-only; the decision cannot be stored; nothing changed")
        }
        AnswerError::Refused(DecideError::Store(other)) => Failure::failed(other),
        other => errors::refused(suspension, &other),
    })
}

/// Checks that the answer is of the kind that the question expects.
fn check(suspension: &SuspensionRecord, answer: &CommandAnswer) -> Result<(), Failure> {
    let checked = session::check(suspension, &answer.reply());
    checked.map(drop).map_err(|error| errors::refused(suspension, &error))
}

/// Gives one answer to all of these questions, or to none if one of them cannot take it.
async fn answer_all(
    store: &SharedStore,
    ids: &[String],
    answer: &CommandAnswer,
    then: ThenArgs,
    cli: &StartFlags,
    foundation: &Foundation,
) -> Result<u8, Failure> {
    let now = store.clock().now_ms();
    let _expired = store.expire_due(now).await.map_err(Failure::failed)?;
    let mut found: Vec<SuspensionRecord> = Vec::new();
    let mut refused = Vec::new();
    for id in ids {
        match find(store, id).await {
            Ok(suspension) if found.iter().all(|known| known.id != suspension.id) => found.push(suspension),
            Ok(_) => {}
            Err(failure) => refused.push(failure),
        }
    }
    for suspension in &found {
        let is_over = errors::closed_error(store, suspension).await?;
        refused.extend(is_over.or_else(|| check(suspension, answer).err()));
    }
    refused.extend(several_conversations(&found, then).err());
    errors::all(refused)?;
    let (code, lost) = settle(store, found, answer, then, cli, foundation).await?;
    errors::all(lost)?;
    Ok(code)
}

/// Answers each of these questions separately: decisions that others make in the meantime stay.
async fn answer_each(
    store: &SharedStore,
    found: Vec<SuspensionRecord>,
    answer: &CommandAnswer,
    which: &str,
    then: ThenArgs,
    cli: &StartFlags,
    foundation: &Foundation,
) -> Result<u8, Failure> {
    several_conversations(&found, then)?;
    let count = found.len();
    let now = store.clock().now_ms();
    let _expired = store.expire_due(now).await.map_err(Failure::failed)?;
    let (fits, unfit): (Vec<_>, Vec<_>) =
        found.into_iter().map(|one| (check(&one, answer), one)).partition(|(check, _)| check.is_ok());
    let fits: Vec<_> = fits.into_iter().map(|(_, one)| one).collect();
    let could = fits.len();
    let (code, lost) = settle(store, fits, answer, then, cli, foundation).await?;
    let done = could - lost.len();
    let unfit = unfit.into_iter().filter_map(|(check, _)| check.err());
    for failure in unfit.chain(lost) {
        put_stderr(&failure.message);
    }
    put(&format!("{} {done} of {count} pending calls {which}\n", answer.kind.done()))?;
    if done == count { Ok(code) } else { Err(Failure::reported()) }
}

fn several_conversations(found: &[SuspensionRecord], then: ThenArgs) -> Result<(), Failure> {
    if then.resume && found.iter().any(|other| other.thread_id != found[0].thread_id) {
        return Err(Failure::usage(
            "--resume resumes one conversation, but these questions belong to several; answer those of one at \
             a time",
        ));
    }
    Ok(())
}

/// Stores the answers and resumes their runs. Returns the exit status, and why some answers were not accepted.
async fn settle(
    store: &SharedStore,
    found: Vec<SuspensionRecord>,
    answer: &CommandAnswer,
    then: ThenArgs,
    cli: &StartFlags,
    foundation: &Foundation,
) -> Result<(u8, Vec<Failure>), Failure> {
    let now = store.clock().now_ms();
    let mut follow = resume::Follow::new(store);
    let mut lost = Vec::new();
    let mut answered = Vec::new();
    for suspension in found {
        let actor = crate::program::app_context::actor(foundation, "cli");
        match decide(store, &suspension, answer, actor, now).await? {
            DecideOutcome::Accepted(record) | DecideOutcome::Repeated(record) => {
                if let Some((_, granted)) = &answer.grant {
                    put_stderr(granted);
                }
                put_stderr(&format!("{}: {}", answer.kind.done(), summary(&record)));
                answered.push(*record);
            }
            // Another user or process decided first.
            DecideOutcome::AlreadyDecided(record)
            | DecideOutcome::Closed(record)
            | DecideOutcome::Expired(record) => lost.extend(errors::closed_error(store, &record).await?),
            DecideOutcome::NotFound => {
                lost.push(Failure::failed(format!("question {} was just deleted", suspension.id)));
            }
        }
    }
    let code = Box::pin(follow.on(store, answered, then, cli, foundation)).await;
    store.close().await;
    Ok((code?, lost))
}

/// Returns the commands that answer these questions: one for all that a yes answers, and one for each other.
pub(crate) fn answer_commands(questions: &[SuspensionRecord]) -> String {
    let asked = questions.iter().filter(|question| !question.ticket.is_served());
    let (plain, others): (Vec<_>, Vec<_>) = asked.partition(|question| question.ticket.approval().is_some());
    let ids: Vec<_> = plain.iter().map(|question| visible_line(question.id.as_str())).collect();
    let approve = (!ids.is_empty()).then(|| format!("aye approve {}", ids.join(" ")));
    let answers = others.iter().map(|question| question.ticket.answer_command());
    approve.into_iter().chain(answers).collect::<Vec<_>>().join("; ")
}

/// Returns what the question is about, on one line.
fn summary(record: &SuspensionRecord) -> String {
    let pending = &record.ticket.pending;
    let summary = call_summary(&pending.name, &pending.arguments);
    subject(&record.ticket.suspension.action, &pending.name, &summary)
}
