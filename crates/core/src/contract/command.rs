//! Commands in the background of a conversation: they outlive the call that started them, and end with the program.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::ids::{CallId, RunId, ThreadId};
use super::mailbox::{MailboxJob, MailboxJobOrigin};
use super::message::Message;
use super::record::Owner;
use super::tool_result::ToolError;

/// The member of a message's metadata that names the command whose end it reports.
const FROM_COMMAND: &str = "from_command";
/// The same for a subagent.
pub const FROM_CHILD: &str = "from_child";
/// Characters of output, counted from the end, that the message about a finished command quotes.
const REPORTED: usize = 2000;

/// The end of a background command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandEnd {
    /// The command exited with this status.
    Exited(i32),
    /// A signal ended it.
    Signal(i32),
    /// It was stopped: by the model, by the user, or at the end of the program.
    Stopped,
    /// It was not started; why.
    Failed(String),
    /// The program that watched it died, and the command was stopped with it.
    Unknown,
}

impl CommandEnd {
    /// The word for users and for the model.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Exited(0) => "completed",
            Self::Exited(_) | Self::Signal(_) | Self::Failed(_) => "failed",
            Self::Stopped => "stopped",
            Self::Unknown => "unknown",
        }
    }

    /// The same as a sentence without its subject.
    pub fn words(&self) -> String {
        match self {
            Self::Exited(status) => format!("ended with exit status {status}"),
            Self::Signal(signal) => format!("was ended by signal {signal}"),
            Self::Stopped => "was stopped".to_owned(),
            Self::Failed(why) => format!("could not run: {why}"),
            Self::Unknown => "ended when aye did; its outcome is unknown".to_owned(),
        }
    }
}

/// The destination of the report about a finished command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandReport {
    /// The conversation, by a message that is queued.
    Queued,
    /// The conversation, at the start of its next run.
    NextRun,
    /// None: the end is known already.
    Known,
}

/// A snapshot of a background command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// Its number, unique in the store.
    pub number: u64,
    /// The conversation that it belongs to.
    pub thread_id: ThreadId,
    /// The run that started it.
    pub run_id: RunId,
    /// The call that started it.
    pub call_id: CallId,
    /// The agent of that run.
    pub agent: String,
    pub command: String,
    /// The process that watches it.
    pub owner: Owner,
    /// Started, in Unix milliseconds.
    pub started_at: u64,
    /// Whether a stop was requested.
    pub stop: bool,
    /// Its end is known to the conversation.
    pub told: bool,
    /// Ended, in Unix milliseconds.
    pub ended_at: Option<u64>,
    /// The end of the command, once it has ended.
    pub end: Option<CommandEnd>,
}

impl CommandRecord {
    /// Its id, as the model and `/tasks` name it.
    pub fn id(&self) -> String {
        format!("b{}", self.number)
    }

    /// Returns the number in an id.
    pub fn number_of(id: &str) -> Option<u64> {
        let digits = id.strip_prefix('b').unwrap_or(id);
        (digits.len() < 19 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
    }

    /// Returns the word for the command's status.
    pub fn word(&self) -> &'static str {
        self.end.as_ref().map_or("running", CommandEnd::word)
    }

    /// The message about its end, queued for the process that watched it: no worker starts a run with it while the
    /// process lives.
    pub fn job(&self, end: &CommandEnd, printed: &str, now_ms: u64) -> MailboxJob {
        let last = &printed[printed.ceil_char_boundary(printed.len().saturating_sub(REPORTED))..];
        let report = vec![self.report(end, last)];
        let mut job = MailboxJob::typed(self.thread_id.clone(), report, &self.owner, now_ms);
        job.origin = MailboxJobOrigin::Internal;
        job.agent_id.clone_from(&self.agent);
        job.sender_id = Some(self.id());
        job
    }

    /// Returns the message that reports the command's end to the conversation, with the last of its output.
    pub fn report(&self, end: &CommandEnd, output: &str) -> Message {
        let id = self.id();
        let mut text = format!("[task {id}] The background command `{}` {}.", self.command, end.words());
        if !output.trim().is_empty() {
            text.push_str("\n\n");
            text.push_str(output.trim_end());
        }
        let mut message = Message::user(text);
        message.metadata =
            Some(json!({ FROM_COMMAND: {"task": id, "command": self.command, "status": end.word()} }));
        message
    }
}

impl Message {
    /// Returns whether the message reports the end of a background command.
    pub fn reports_command(&self) -> bool {
        self.metadata.as_ref().is_some_and(|about| about.get(FROM_COMMAND).is_some())
    }

    /// Returns whether the message reports the end of a background task, a command or a subagent: no user wrote it.
    pub fn reports_task(&self) -> bool {
        self.reports_command() || self.metadata.as_ref().is_some_and(|about| about.get(FROM_CHILD).is_some())
    }
}

/// A command that continues after its call. Nothing starts before `end` is polled.
pub struct BackgroundCommand {
    pub command: String,
    /// The output, until the command ends.
    pub output: BoxStream<'static, String>,
    /// Runs it to its end.
    pub end: BoxFuture<'static, CommandEnd>,
    /// Asks it to end.
    pub stop: CancellationToken,
    /// The terminal that it runs in, if it does.
    pub terminal: Option<Arc<dyn CommandTerminal>>,
}

/// The terminal of a command.
#[async_trait]
pub trait CommandTerminal: Send + Sync {
    /// Types. `false`: the command reads nothing, and it was not typed.
    fn write(&self, keys: &[u8]) -> bool;

    fn resize(&self, columns: u16, rows: u16);

    /// Returns the sequences that draw the command's screen: all are generated by aye, and none come from the
    /// command. Draws only the changes since the last time, unless `whole`.
    fn draw(&self, whole: bool) -> String;

    /// Waits until the screen changed. `false`: the command ended.
    async fn changed(&self) -> bool;
}

/// The news about a command.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandNews {
    pub record: CommandRecord,
    /// The output since the last check.
    pub output: String,
}

/// Keeps the commands of a conversation that outlive their calls.
#[async_trait]
pub trait BackgroundHost: Send + Sync {
    /// Takes charge of a command, and gives its id.
    async fn adopt(&self, command: BackgroundCommand) -> Result<String, ToolError>;

    /// Completes when the user moves the running call to the background.
    async fn moved(&self);

    /// Returns the output of a command of this conversation since the last check.
    async fn read_new_output(&self, id: &str) -> Result<CommandNews, ToolError>;

    /// Types into the terminal of a command of this conversation.
    async fn write(&self, id: &str, keys: &[u8]) -> Result<CommandRecord, ToolError>;

    /// Ends a command of this conversation.
    async fn stop(&self, id: &str) -> Result<CommandRecord, ToolError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_contains_its_number() {
        for (id, number) in
            [("b1", Some(1)), ("17", Some(17)), ("b", None), ("", None), ("b1x", None), ("-1", None)]
        {
            assert_eq!(CommandRecord::number_of(id), number, "{id}");
        }
    }
}
