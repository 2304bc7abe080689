//! The model's task list.

use serde_json::Value;

use super::Transcript;

/// The state of a to-do item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TodoState {
    Open,
    /// Being done.
    Current,
    Done,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Todo {
    pub text: String,
    pub state: TodoState,
}

impl Todo {
    /// The list in the arguments of a call of TodoWrite.
    pub fn all(arguments: &Value) -> Vec<Todo> {
        let list = arguments.get("todos").and_then(Value::as_array);
        let todo = |todo: &Value| {
            let text = |key: &str| todo.get(key).and_then(Value::as_str).unwrap_or_default();
            let state = match text("status") {
                "completed" => TodoState::Done,
                "in_progress" => TodoState::Current,
                _ => TodoState::Open,
            };
            Todo { text: text("content").to_owned(), state }
        };
        list.into_iter().flatten().map(todo).collect()
    }
}

impl Transcript {
    /// The plan of the current run, while something in it is open; else nothing.
    pub fn plan(&self) -> &[Todo] {
        let is_open = !self.is_plan_over && self.todos.iter().any(|todo| todo.state != TodoState::Done);
        if is_open { &self.todos } else { &[] }
    }

    /// A new run starts: it has no plan until it makes one.
    pub(crate) fn end_plan(&mut self) {
        self.is_plan_over = true;
    }
}
