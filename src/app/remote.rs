//! Questions of conversations in memory, answered from other terminals.
//!
//! Such a store has no file that another process could open, so its process serves the pending questions on a Unix
//! socket, in a folder that only the user can enter, as long as there are any. One JSON line is the request, one the
//! response: `{"list":{}}`, `{"show":"perm_c1"}`, `{"decide":{"id":"perm_c1","decision":{…}}}`. A decision goes
//! through `AgentRuntime::decide` and the same compare-and-set as all others, so there is one truth here too.

mod client;
mod place;
mod server;

use serde::{Deserialize, Serialize};

use crate::contract::ids::SuspensionId;
use crate::contract::record::{DecideOutcome, Decision, InboxRow, SuspensionRecord};

pub(super) use client::Client;
pub(super) use place::Place;
pub(super) use server::{Counter, Hearing};

/// Bytes of one line: an answer may hold a file's new text, a question the arguments of a call.
const MAX_LINE: u64 = 16 << 20;

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    /// Everything that waits.
    List(Filter),
    /// The questions whose ids begin so.
    Show(String),
    /// Store an answer.
    Decide { id: SuspensionId, decision: Box<Decision> },
}

/// Which questions to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Filter {
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_before: Option<u64>,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Rows(Vec<InboxRow>),
    Questions(Vec<SuspensionRecord>),
    Outcome(Outcome),
    /// Nothing was done; a sentence says why.
    Refused(String),
}

/// [`DecideOutcome`] on the wire.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Accepted(Box<SuspensionRecord>),
    Repeated(Box<SuspensionRecord>),
    AlreadyDecided(Box<SuspensionRecord>),
    Closed(Box<SuspensionRecord>),
    Expired(Box<SuspensionRecord>),
    NotFound,
}

impl From<DecideOutcome> for Outcome {
    fn from(outcome: DecideOutcome) -> Self {
        match outcome {
            DecideOutcome::Accepted(record) => Self::Accepted(record),
            DecideOutcome::Repeated(record) => Self::Repeated(record),
            DecideOutcome::AlreadyDecided(record) => Self::AlreadyDecided(record),
            DecideOutcome::Closed(record) => Self::Closed(record),
            DecideOutcome::Expired(record) => Self::Expired(record),
            DecideOutcome::NotFound => Self::NotFound,
        }
    }
}

impl From<Outcome> for DecideOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Accepted(record) => Self::Accepted(record),
            Outcome::Repeated(record) => Self::Repeated(record),
            Outcome::AlreadyDecided(record) => Self::AlreadyDecided(record),
            Outcome::Closed(record) => Self::Closed(record),
            Outcome::Expired(record) => Self::Expired(record),
            Outcome::NotFound => Self::NotFound,
        }
    }
}

/// Reads one line of at most [`MAX_LINE`] bytes; `None` at the end.
async fn read_line(reader: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> std::io::Result<Option<Vec<u8>>> {
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _};
    let mut line = Vec::new();
    let read = reader.take(MAX_LINE + 1).read_until(b'\n', &mut line).await?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(std::io::Error::other("an unfinished or overlong line"));
    }
    Ok(Some(line))
}

async fn write_line(
    writer: &mut (impl tokio::io::AsyncWrite + Unpin),
    value: &impl Serialize,
) -> std::io::Result<()> {
    use tokio::io::AsyncWriteExt as _;
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    writer.write_all(&line).await
}
