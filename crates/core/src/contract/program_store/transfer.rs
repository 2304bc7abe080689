//! Export and import of whole conversations.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rows::RowFeed;
use super::transfer_file::ThreadCopyFile;
use crate::contract::child::ChildRecord;
use crate::contract::ids::{RunId, ThreadId};
use crate::contract::record::{
    ExecutionStart, OpenIntent, OutcomeRecord, RunRecord, StoredMessage, SuspensionRecord, ThreadRecord,
};
use crate::contract::storage::StoreError;
use crate::contract::summary::SummaryRecord;

/// The parts of a conversation besides its messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadRest {
    /// Its runs, oldest first.
    #[serde(default)]
    pub runs: Vec<RunRecord>,
    /// Its state by key.
    #[serde(default)]
    pub state: BTreeMap<String, Value>,
    #[serde(default)]
    pub summaries: Vec<SummaryRecord>,
    /// The images that its messages name: base64 by SHA-256.
    #[serde(default)]
    pub images: BTreeMap<String, String>,
    /// The source of its title, unless that is its first line: `model` or `person`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named_by: Option<String>,
    /// The time since when it is pinned, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_at: Option<i64>,
    /// The branch it worked on last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The questions of its unfinished runs that are open, or decided and not carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspensions: Vec<SuspensionRecord>,
    /// The executions of its unfinished runs whose outcome is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intents: Vec<OpenIntent>,
    /// The number of its messages when the rest was read.
    #[serde(skip)]
    pub message_count: u64,
}

/// A conversation without its messages.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadExport {
    /// The call that it serves, when it is below the exported conversation.
    pub child: Option<ChildRecord>,
    pub thread: ThreadRecord,
    pub rest: ThreadRest,
}

/// A whole conversation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ThreadCopy {
    /// The call that it serves, when it is below the copied conversation.
    #[serde(default)]
    pub child: Option<ChildRecord>,
    pub thread: ThreadRecord,
    pub messages: Vec<StoredMessage>,
    #[serde(flatten)]
    pub rest: ThreadRest,
    /// The conversations of the subagents below it, each after its parent.
    #[serde(default)]
    pub children: Vec<ThreadCopy>,
    /// The unfinished runs that continue here, and their calls that may have run elsewhere.
    #[serde(skip)]
    pub adopted: HashMap<RunId, Vec<(ExecutionStart, OutcomeRecord)>>,
}

/// A part of a conversation whose number grows with its length.
#[derive(Clone, Debug, PartialEq)]
pub enum CopyPart {
    Message(StoredMessage),
    Run(Box<RunRecord>),
    Summary(SummaryRecord),
    /// An image that a message names.
    Image {
        /// Its SHA-256.
        hash: String,
        /// Base64.
        data: String,
    },
}

/// A part of an export.
#[derive(Clone, Debug, PartialEq)]
pub enum ExportPart {
    /// A conversation starts.
    Start {
        /// The call that it serves, when it is below the exported conversation.
        child: Option<ChildRecord>,
        thread: ThreadRecord,
    },
    /// A part of it: messages, then runs, summaries and images.
    Part(CopyPart),
    /// It ends: the rest, without what came as parts.
    End(Box<ThreadRest>),
}

/// Moves whole conversations between stores.
#[async_trait]
pub trait TransferStore: Send + Sync {
    /// A thread and those of the subagents below it, each after its parent, as they are at one moment. Missing messages
    /// are found before any part of their thread is returned.
    fn export_thread(&self, thread: &ThreadId) -> RowFeed<ExportPart>;

    /// Adds a thread that was written elsewhere, with all its parts and the threads below it. Of the file, only a part is
    /// in memory at a time. `outline` is what [`ThreadCopyFile::outline`] read from it, with `adopted`.
    ///
    /// The runs in `adopted` stay as they are, and their pending questions are pending again. Other runs are closed: their
    /// unfinished work is cancelled, and a call without a result gets one that states this.
    ///
    /// # Errors
    /// [`StoreError::Exists`] when a thread or a run of the same id exists; [`StoreError::Unwritable`] when the file is
    /// incomplete, unreadable, or changed since `outline` was read. Nothing was written.
    async fn import_thread_file(&self, outline: ThreadCopy, file: ThreadCopyFile) -> Result<(), StoreError>;
}
