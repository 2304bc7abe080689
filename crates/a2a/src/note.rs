//! What must outlive the process: what was sent, and which task it made.

use std::sync::{Arc, Mutex};

use aye_core::contract::ids::ThreadId;
use aye_core::contract::profile::ProfileStore;
use serde::{Deserialize, Serialize};

/// The namespace of the notes; their key is the thread of the child run.
const NAMESPACE: &str = "a2a-task";

/// What is known of the work of one agent elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TaskNote {
    /// The conversation there: one that was made up here, until the other side names its own.
    pub(crate) context: String,
    /// The address of the endpoint that it was sent to.
    pub(crate) endpoint: String,
    /// What the ids of its messages are made of.
    pub(crate) salt: String,
    /// The task, once it is known.
    pub(crate) task: Option<String>,
    /// The newest message.
    pub(crate) sent: Option<SentMessage>,
    /// Nothing more comes.
    pub(crate) is_over: bool,
}

/// A message that was sent, or that may have been.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SentMessage {
    /// Its id: the same for the same place in the conversation.
    pub(crate) id: String,
    /// Whether it is known to have arrived.
    pub(crate) arrived: bool,
    /// Whether the other side refused it, and why.
    pub(crate) refused: Option<String>,
    /// The results of the task that were there before it.
    pub(crate) before: Vec<String>,
    /// When the status of the task was written that it answers.
    pub(crate) status: Option<String>,
    /// The answer, when it was a message and no task.
    pub(crate) reply: Option<String>,
}

/// Where the note of one child run is kept.
pub(crate) struct TaskNotes {
    place: Place,
}

enum Place {
    Store(Arc<dyn ProfileStore>, String),
    Memory(Mutex<Option<TaskNote>>),
}

impl TaskNotes {
    /// Kept with the conversations.
    pub(crate) fn kept(store: Arc<dyn ProfileStore>, thread: &ThreadId) -> Self {
        Self { place: Place::Store(store, thread.to_string()) }
    }

    /// Kept as long as the value lives.
    pub(crate) fn passing() -> Self {
        Self { place: Place::Memory(Mutex::default()) }
    }

    pub(crate) async fn read(&self) -> Result<Option<TaskNote>, String> {
        match &self.place {
            Place::Store(store, key) => {
                let entry = store.get(NAMESPACE, key).await.map_err(|error| error.to_string())?;
                let note = entry.map(|entry| serde_json::from_value(entry.value)).transpose();
                note.map_err(|error| format!("what is kept of its task cannot be read: {error}"))
            }
            Place::Memory(note) => Ok(note.lock().expect("no panic while it is held").clone()),
        }
    }

    pub(crate) async fn write(&self, note: &TaskNote) -> Result<(), String> {
        match &self.place {
            Place::Store(store, key) => {
                let value = serde_json::to_value(note).map_err(|error| error.to_string())?;
                store.put(NAMESPACE, key, value, None).await.map_err(|error| error.to_string()).map(drop)
            }
            Place::Memory(kept) => {
                *kept.lock().expect("no panic while it is held") = Some(note.clone());
                Ok(())
            }
        }
    }

    pub(crate) async fn forget(&self) {
        if let Place::Store(store, key) = &self.place
            && let Err(error) = store.remove(NAMESPACE, key).await
        {
            tracing::warn!(%error, "the note of a remote task stays");
        }
    }
}
