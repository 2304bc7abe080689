//! The plan of a conversation, as the model keeps it.

use serde::{Deserialize, Serialize};

use crate::state::{KeyScope, MergeStrategy, StateKey};

/// The status of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    #[default]
    Pending,
    InProgress,
    Completed,
}

/// One item of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoItem {
    pub content: String,
    /// The status of the task.
    pub status: TodoStatus,
    /// The same while it is being done: "running the tests".
    #[serde(default, rename = "activeForm", skip_serializing_if = "Option::is_none")]
    pub active_form: Option<String>,
}

impl TodoItem {
    /// Returns whether something is left to do.
    pub fn is_open(&self) -> bool {
        self.status != TodoStatus::Completed
    }
}

/// The thread's plan; an update replaces all of it.
pub struct Todos;

impl StateKey for Todos {
    const KEY: &'static str = "todos";
    const MERGE: MergeStrategy = MergeStrategy::Exclusive;
    const SCOPE: KeyScope = KeyScope::Thread;
    const SHARED: bool = true;
    type Value = Vec<TodoItem>;
    type Update = Vec<TodoItem>;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value = update;
    }
}
