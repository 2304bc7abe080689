//! The notes about a remote task, which outlive the process: what was sent, and which task it started.

use std::sync::{Arc, Mutex};

use aye_core::contract::ids::ThreadId;
use aye_core::contract::profile::{ProfileStore, StorageError};
use serde::{Deserialize, Serialize};

/// The namespace of the notes; their key is the thread of the child run.
const NAMESPACE: &str = "a2a-task";

/// What is known about the task of one remote agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TaskNote {
    /// The id of the conversation there: chosen here, until the other side names its own.
    pub(crate) context: String,
    /// The URL of the endpoint that the task was sent to.
    pub(crate) endpoint: String,
    /// Keeps the ids of its messages apart from those of other conversations.
    pub(crate) salt: String,
    /// The task, once it is known.
    pub(crate) task: Option<String>,
    pub(crate) sent: Option<SentMessage>,
    /// The questions that the user is asked.
    pub(crate) asked: Option<AskedStatus>,
    /// The task is over.
    pub(crate) is_over: bool,
}

/// A status of the task that asks something.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AskedStatus {
    /// Tells its questions from the next ones.
    pub(crate) digest: String,
    /// The artifacts that the task had when it asked.
    pub(crate) before: Vec<String>,
}

/// A message that was or may have been sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SentMessage {
    /// Its id: the same for the same place in the conversation.
    pub(crate) id: String,
    /// Whether it is known to have arrived.
    pub(crate) arrived: bool,
    /// Whether the other side refused it, and why.
    pub(crate) refused: Option<String>,
    /// The artifacts that the task had before it.
    pub(crate) before: Vec<String>,
    /// The timestamp of the status that it answers.
    pub(crate) status: Option<String>,
    /// The answer, if it was a message and not a task.
    pub(crate) reply: Option<String>,
}

/// Why a note cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoteError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("unreadable: {0}")]
    Unreadable(#[source] serde_json::Error),
    #[error("not valid JSON: {0}")]
    Unwritable(#[source] serde_json::Error),
}

/// The storage for the note of one child run.
pub(crate) struct TaskNotes {
    storage: NoteStorage,
}

enum NoteStorage {
    Store(Arc<dyn ProfileStore>, String),
    Memory(Box<Mutex<Option<TaskNote>>>),
}

impl TaskNotes {
    /// Stores the note with the conversations.
    pub(crate) fn stored(store: Arc<dyn ProfileStore>, thread: &ThreadId) -> Self {
        Self { storage: NoteStorage::Store(store, thread.to_string()) }
    }

    /// Keeps the note in memory, until the value is dropped.
    pub(crate) fn in_memory() -> Self {
        Self { storage: NoteStorage::Memory(Box::default()) }
    }

    pub(crate) async fn read(&self) -> Result<Option<TaskNote>, NoteError> {
        match &self.storage {
            NoteStorage::Store(store, key) => {
                let entry = store.get(NAMESPACE, key).await?;
                let note = entry.map(|entry| serde_json::from_value(entry.value)).transpose();
                note.map_err(NoteError::Unreadable)
            }
            NoteStorage::Memory(note) => Ok(note.lock().expect("no panic while it is locked").clone()),
        }
    }

    pub(crate) async fn write(&self, note: &TaskNote) -> Result<(), NoteError> {
        match &self.storage {
            NoteStorage::Store(store, key) => {
                let value = serde_json::to_value(note).map_err(NoteError::Unwritable)?;
                Ok(store.put(NAMESPACE, key, value, None).await.map(drop)?)
            }
            NoteStorage::Memory(kept) => {
                *kept.lock().expect("no panic while it is locked") = Some(note.clone());
                Ok(())
            }
        }
    }

    pub(crate) async fn forget(&self) {
        if let NoteStorage::Store(store, key) = &self.storage
            && let Err(error) = store.remove(NAMESPACE, key).await
        {
            tracing::warn!(%error, "the note about a remote task was not deleted");
        }
    }
}
