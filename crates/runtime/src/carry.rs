//! What the model needs after a compaction and what no summary has to remember: the program knows it.

use std::fmt::Write as _;

use aye_core::contract::child::{ChildRecord, ChildStatus, TaskRecord};
use aye_core::contract::command::CommandRecord;
use aye_core::contract::display::shortened;
use aye_core::contract::message::ToolCall;
use aye_core::contract::todo::{TodoItem, TodoStatus, Todos};
use aye_core::contract::tool::{ToolClass, ToolDescriptor};
use aye_core::state::{KeyScope, MergeStrategy, StateKey, StateStore};

/// Maximum number of changed files that are remembered.
const FILES: usize = 50;
/// Maximum characters of a command or a task.
const SHOWN: usize = 120;

/// The files that the conversation's calls changed, the latest last.
pub(super) struct ChangedFiles;

impl StateKey for ChangedFiles {
    const KEY: &'static str = "runtime.changed_files";
    const SCOPE: KeyScope = KeyScope::Thread;
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = Vec<String>;
    type Update = String;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        value.retain(|known| *known != update);
        value.push(update);
        let surplus = value.len().saturating_sub(FILES);
        value.drain(..surplus);
    }
}

/// The file that a call changes, as the call names it.
pub(super) fn changed_file(descriptor: &ToolDescriptor, call: &ToolCall) -> Option<String> {
    let name = descriptor.primary_argument.as_ref().filter(|_| descriptor.class == ToolClass::Verifiable)?;
    call.arguments.get(name)?.as_str().map(str::to_owned)
}

/// Says what is known of the todo list, changed files and what runs in the background; `None` if there is nothing.
pub(super) fn known(state: &StateStore, commands: &[CommandRecord], tasks: &[TaskRecord]) -> Option<String> {
    let mut text = String::new();
    let todos = state.read::<Todos>().unwrap_or_default();
    if todos.iter().any(TodoItem::is_open) {
        text.push_str("\nThe todo list:");
        for todo in todos {
            let mark = match todo.status {
                TodoStatus::Pending => "[ ]",
                TodoStatus::InProgress => "[in progress]",
                TodoStatus::Completed => "[x]",
            };
            let _ = write!(text, "\n- {mark} {}", todo.content);
        }
    }
    let files = state.read::<ChangedFiles>().unwrap_or_default();
    if !files.is_empty() {
        let _ = write!(text, "\nFiles changed in this conversation: {}", files.join(", "));
    }
    let commands = commands.iter().filter(|record| record.end.is_none());
    let commands = commands.map(|record| format!("{}: {}", record.id(), shortened(&record.command, SHOWN)));
    let tasks = tasks.iter().filter(|task| {
        let end = task.run.as_ref().and_then(|run| run.termination.as_ref());
        task.child.background && !end.is_some_and(|end| ChildStatus::of_end(end).is_over())
    });
    let tasks = tasks.map(|task| {
        let ChildRecord { agent, prompt, .. } = &task.child;
        format!("{} ({agent}): {}", task.child.task_id(), shortened(prompt, SHOWN))
    });
    let running: Vec<String> = commands.chain(tasks).collect();
    if !running.is_empty() {
        let _ = write!(text, "\nRunning in the background: {}", running.join("; "));
    }
    (!text.is_empty())
        .then(|| format!("The messages before were summarised. Beside the summary, this is known:{text}"))
}
