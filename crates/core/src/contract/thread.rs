//! A conversation without its messages, for programs that embed aye. The stored form is [`ThreadRecord`].

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::ThreadId;
use super::record::ThreadRecord;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    pub id: String,
    /// The metadata of the conversation.
    pub metadata: ThreadMetadata,
}

/// The metadata of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadMetadata {
    /// Born, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<u64>,
    /// Last changed, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The data that a program adds to the metadata.
    #[serde(skip_serializing_if = "HashMap::is_empty")]
    pub custom: HashMap<String, Value>,
}

impl Thread {
    /// A new one: its id is a UUID v7.
    pub fn new() -> Self {
        Self::with_id(ThreadId::fresh().as_str())
    }

    /// One with this id.
    pub fn with_id(id: impl Into<String>) -> Self {
        Self { id: id.into(), metadata: ThreadMetadata::default() }
    }

    /// Says what it is called.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.metadata.title = Some(title.into());
        self
    }
}

impl Default for Thread {
    fn default() -> Self {
        Self::new()
    }
}

impl From<ThreadRecord> for Thread {
    fn from(record: ThreadRecord) -> Self {
        let ThreadRecord { id, title, cwd, created_at, updated_at } = record;
        let custom = match cwd.to_str() {
            None | Some("") => HashMap::new(),
            Some(cwd) => HashMap::from([("cwd".to_owned(), Value::from(cwd))]),
        };
        Self {
            id: id.as_str().to_owned(),
            metadata: ThreadMetadata {
                created_at: Some(created_at),
                updated_at: Some(updated_at),
                title: (!title.is_empty()).then_some(title),
                custom,
            },
        }
    }
}
