//! The tool that keeps notes.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::book::{Author, Authorship, MAX_TEXT, MemoryError, Note, Scope};
use super::{NoteScopes, Notes};
use aye_core::contract::clock::Clock;
use aye_core::contract::display::visible_line;
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};

/// Id of the tool.
pub const MEMORY_TOOL: &str = "Memory";

/// Views, adds, updates and removes notes.
pub struct MemoryTool {
    places: NoteScopes,
    clock: Arc<dyn Clock>,
}

impl MemoryTool {
    /// The tool over the notes of these places.
    pub fn new(places: NoteScopes, clock: Arc<dyn Clock>) -> Self {
        Self { places, clock }
    }
}

enum Action<'a> {
    View,
    Add { scope: Scope, text: &'a str },
    Update { id: &'a str, text: &'a str },
    Remove { id: &'a str },
}

fn wrong(message: impl Into<String>) -> ToolError {
    ToolError::InvalidArguments(message.into())
}

fn text_of<'a>(args: &'a Value, name: &str) -> Result<Option<&'a str>, ToolError> {
    match args.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong(format!("`{name}` must be a string"))),
    }
}

fn action(args: &Value) -> Result<Action<'_>, ToolError> {
    let fields = args.as_object().ok_or_else(|| wrong("the arguments must be an object"))?;
    let known = ["action", "scope", "id", "text"];
    if let Some(field) = fields.keys().find(|field| !known.contains(&field.as_str())) {
        return Err(wrong(format!("unknown argument `{}`: {}", visible_line(field), known.join(", "))));
    }
    let word = text_of(args, "action")?.unwrap_or_default();
    let need = |name: &str| {
        text_of(args, name)?
            .filter(|text| !text.trim().is_empty())
            .ok_or_else(|| wrong(format!("`{word}` needs `{name}`")))
    };
    let refuse = |name: &str| match text_of(args, name)? {
        Some(_) => Err(wrong(format!("`{word}` takes no `{name}`"))),
        None => Ok(()),
    };
    match word {
        "view" => {
            refuse("text")?;
            refuse("id")?;
            Ok(Action::View)
        }
        "add" => {
            refuse("id")?;
            let scope = match text_of(args, "scope")? {
                None | Some("project") => Scope::Project,
                Some("user") => Scope::User,
                Some(_) => return Err(wrong("`scope` must be `user` or `project`")),
            };
            let text = need("text")?;
            if text.len() > MAX_TEXT {
                return Err(wrong(MemoryError::TooLong { size: text.len() }.to_string()));
            }
            Ok(Action::Add { scope, text })
        }
        "update" => Ok(Action::Update { id: need("id")?, text: need("text")? }),
        "remove" => {
            refuse("text")?;
            Ok(Action::Remove { id: need("id")? })
        }
        _ => Err(wrong("`action` must be `view`, `add`, `update` or `remove`")),
    }
}

fn failed(error: MemoryError) -> ToolError {
    match error {
        MemoryError::Store(_) => ToolError::ExecutionFailed(error.to_string()),
        MemoryError::NoSuchNote { .. } => ToolError::NotFound(error.to_string()),
        MemoryError::Empty | MemoryError::TooLong { .. } | MemoryError::Full { .. } => {
            ToolError::InvalidArguments(error.to_string())
        }
    }
}

fn confirmation(words: &str, note: &Note) -> ToolResult {
    ToolResult::text(MEMORY_TOOL, format!("{words} {}", note.id)).with_details(json!({ "note": note }))
}

#[async_trait]
impl Tool for MemoryTool {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new(MEMORY_TOOL, "Memory", include_str!("memory.md").trim_end())
            .with_parameters(json!({
                "type": "object",
                "properties": {
                    "action": {"type": "string", "enum": ["view", "add", "update", "remove"]},
                    "scope": {"type": "string", "enum": ["user", "project"], "description": "for `add`"},
                    "id": {"type": "string", "description": "id of the note, for `update` and `remove`"},
                    "text": {"type": "string", "description": "text of the note, for `add` and `update`"}
                },
                "required": ["action"],
                "additionalProperties": false
            }))
            .with_category("memory")
            .with_primary_argument("action")
            // The same call a second time finds what the first one did.
            .with_class(ToolClass::Keyed)
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        action(args).map(drop)
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let action = action(&args)?;
        let profile = ctx
            .profile()
            .ok_or_else(|| ToolError::ExecutionFailed("memory is not available in this run".to_owned()))?;
        let notes = Notes::new(profile.clone(), self.places.clone());
        let stamp = Authorship {
            at: self.clock.now_ms(),
            by: Author::Agent { name: ctx.run_identity.agent_id.clone() },
            thread: Some(ctx.run_identity.thread_id.to_string()),
        };
        let result = match action {
            Action::View => {
                let mut text = String::new();
                for scope in Scope::ALL {
                    text.push_str(&notes.read(scope).await.map_err(failed)?.elements(scope, u64::MAX));
                }
                let text = if text.is_empty() { "no notes".to_owned() } else { text };
                ToolResult::text(MEMORY_TOOL, text)
            }
            Action::Add { scope, text } => {
                let call = format!("{}/{}", ctx.run_identity.run_id, ctx.call_id);
                confirmation("added as", &notes.add(scope, text, &stamp, Some(&call)).await.map_err(failed)?)
            }
            Action::Update { id, text } => {
                confirmation("changed", &notes.update(id, text, &stamp).await.map_err(failed)?.1)
            }
            Action::Remove { id } => match notes.remove(id).await {
                Ok(note) => confirmation("removed", &note),
                // The first attempt may have done it before the process died.
                Err(MemoryError::NoSuchNote { .. }) if ctx.attempt > 1 => {
                    ToolResult::text(MEMORY_TOOL, "it no longer exists")
                }
                Err(error) => return Err(failed(error)),
            },
        };
        Ok(result.into())
    }
}
