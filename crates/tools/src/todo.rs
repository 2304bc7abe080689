//! TodoWrite: the model's plan, kept with the thread.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::args::{CallArgs, invalid};
pub use aye_core::contract::todo::{TodoItem, TodoStatus, Todos};
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};
use aye_core::state::{KeyRegistration, KeyScope, StateCommand, StateKeyOptions};

const NAME: &str = "TodoWrite";
const MAX_TODOS: usize = 100;

/// The registration of [`Todos`].
pub(super) fn registration() -> KeyRegistration {
    KeyRegistration::of::<Todos>(StateKeyOptions { scope: KeyScope::Thread, ..StateKeyOptions::default() })
}

/// Replaces the thread's plan.
pub(super) struct TodoWrite;

fn parse(args: &Value) -> Result<Vec<TodoItem>, ToolError> {
    let args = CallArgs::new(NAME, args, &["todos"])?;
    let list = args.opt_list("todos")?.ok_or_else(|| invalid("`todos` is missing; it must be a list"))?;
    if list.len() > MAX_TODOS {
        return Err(invalid(format!("`todos` has {} items; the maximum is {MAX_TODOS}", list.len())));
    }
    let item = |value| -> Result<TodoItem, ToolError> {
        // Other programs give items an id and a priority; both are dropped.
        let item = CallArgs::new("an item", value, &["content", "status", "activeForm", "id", "priority"])?;
        let status = match item.opt_text("status")? {
            None | Some("pending") => TodoStatus::Pending,
            Some("in_progress") => TodoStatus::InProgress,
            Some("completed") => TodoStatus::Completed,
            Some(other) => {
                return Err(invalid(format!(
                    "`status` must be pending, in_progress or completed, not {other:?}"
                )));
            }
        };
        let active_form = item.opt_text("activeForm")?.map(Into::into);
        Ok(TodoItem { content: item.filled("content")?.into(), status, active_form })
    };
    let at = |(at, value)| {
        item(value).map_err(|error| {
            let text = error.to_string();
            let text = text.strip_prefix("invalid arguments: ").unwrap_or(&text);
            invalid(format!("`todos[{at}]`: {text}"))
        })
    };
    list.iter().enumerate().map(at).collect()
}

#[async_trait]
impl Tool for TodoWrite {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(NAME, include_str!("todo.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {
                    "todos": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "content": {"type": "string"},
                                "status": {"enum": ["pending", "in_progress", "completed"]},
                                "activeForm": {"type": "string"}
                            },
                            "required": ["content", "status"]
                        }
                    }
                },
                "required": ["todos"]
            }))
            .with_category("plan")
            .with_class(ToolClass::Pure)
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        parse(args).map(|_| ())
    }

    async fn execute(&self, args: Value, _ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let todos = parse(&args)?;
        let done = todos.iter().filter(|todo| todo.status == TodoStatus::Completed).count();
        let result = ToolResult::text(NAME, format!("{done} of {} done", todos.len()))
            .with_details(json!({"todos": todos}));
        let mut command = StateCommand::new();
        command.update::<Todos>(todos);
        Ok(ToolOutput::with_command(result, command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sandbox;
    use aye_core::state::StateStore;

    #[tokio::test]
    async fn the_plan_is_stored_with_the_thread() {
        let sandbox = Sandbox::new();
        let args = json!({"todos": [
            {"content": "look", "status": "completed"},
            {"content": "build", "status": "in_progress", "activeForm": "building"},
        ]});
        let output = sandbox
            .tool("TodoWrite")
            .execute(args.clone(), &ToolCallContext::test_default())
            .await
            .expect("fine");
        assert_eq!(output.result.model_text(), "1 of 2 done");
        assert_eq!(output.result.details, Some(args));
        let store = StateStore::new();
        for key in crate::state_keys() {
            store.register(key).expect("each key once");
        }
        store.commit(output.command).expect("the key is known");
        let saved = store.export(Some(KeyScope::Thread)).expect("JSON");
        store.clear_run_scope();
        let again = StateStore::new();
        again.register(registration()).expect("once");
        again.restore(saved, aye_core::state::UnknownKeyPolicy::Error).expect("restored");
        let todos = again.read::<Todos>().expect("it is there");
        assert_eq!((todos.len(), todos[1].active_form.as_deref()), (2, Some("building")));
    }

    #[tokio::test]
    async fn an_invalid_item_is_named() {
        let sandbox = Sandbox::new();
        for (args, word) in [
            (json!({}), "`todos` is missing"),
            (
                json!({"todos": [{"content": "a"}, {"content": "b", "status": "done"}]}),
                "`todos[1]`: `status` must be",
            ),
            (json!({"todos": [{"status": "pending"}]}), "`todos[0]`: `content` is missing"),
        ] {
            let text = sandbox.refused("TodoWrite", args).await;
            assert!(text.contains(word), "{text}");
        }
    }
}
