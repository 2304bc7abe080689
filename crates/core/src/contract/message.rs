//! The messages of a thread.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::content::{ContentBlock, text_of};
use super::ids::MessageId;

/// Marks what steers a run.
const STEERS: &str = "steers";
/// Marks a message that asks the model to continue an answer that was cut.
const CONTINUATION: &str = "continuation";
/// Holds what was written, where the content holds more.
const WRITTEN: &str = "written";
/// Holds what was written with a mark in the place of each long paste.
const SHOWN: &str = "shown";

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of one tool call.
    Tool,
}

/// A call that the model asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ToolCall {
    /// The call's id within its thread; a doubled one is replaced before it gets here.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments; an object, or whatever the model sent instead.
    pub arguments: Value,
    /// Why the arguments cannot be used (not JSON, cut off), when they cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// Opaque proofs that some providers want back with the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<String>,
}

impl ToolCall {
    /// A call with usable arguments.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Self {
        Self { id: id.into(), name: name.into(), arguments, invalid: None, signatures: Vec::new() }
    }
}

/// Who may see a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// The person and the model.
    #[default]
    All,
    /// The model only: context that plugins add.
    Internal,
    /// The person only: what they did beside the conversation.
    Person,
}

/// One message of a thread. Messages are only ever appended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: Vec<ContentBlock>,
    /// Calls an assistant asks for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Who may see it.
    #[serde(default, skip_serializing_if = "is_all")]
    pub visibility: Visibility,
    /// What the front ends want to know and the model does not: `tool_result`, `interrupted`, `model`, `usage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_all(visibility: &Visibility) -> bool {
    *visibility == Visibility::All
}

impl Message {
    fn of(role: Role, content: Vec<ContentBlock>) -> Self {
        Self {
            id: MessageId::fresh(),
            role,
            content,
            tool_calls: Vec::new(),
            tool_call_id: None,
            visibility: Visibility::All,
            metadata: None,
        }
    }

    /// What the person says.
    pub fn user(text: impl Into<String>) -> Self {
        Self::of(Role::User, vec![ContentBlock::text(text)])
    }

    /// Asks the model to continue an answer that was cut off.
    pub fn continuation(text: impl Into<String>) -> Self {
        let mut message = Self::user(text);
        message.visibility = Visibility::Internal;
        message.note(CONTINUATION, Value::Bool(true));
        message
    }

    /// Whether both the person and the model may see it.
    pub fn is_for_all(&self) -> bool {
        self.visibility == Visibility::All
    }

    /// Whether it is a [`Message::continuation`].
    pub fn is_continuation(&self) -> bool {
        self.metadata.as_ref().is_some_and(|about| about.get(CONTINUATION).is_some())
    }

    /// What the person says while the model works, to be read as soon as the calls that run are over.
    #[must_use]
    pub fn steering(mut self) -> Self {
        self.note(STEERS, Value::Bool(true));
        self
    }

    /// Keeps what the person wrote, where more than that goes to the model.
    #[must_use]
    pub fn written_as(mut self, written: &str) -> Self {
        self.note(WRITTEN, Value::from(written));
        self
    }

    /// Keeps how a front end shows what the person wrote: with a mark in the place of each long paste.
    #[must_use]
    pub fn shown_as(mut self, shown: &str) -> Self {
        self.note(SHOWN, Value::from(shown));
        self
    }

    fn note(&mut self, key: &str, value: Value) {
        let about = self.metadata.get_or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Some(about) = about.as_object_mut() {
            about.insert(key.to_owned(), value);
        }
    }

    /// What the person wrote, without what goes with it to the model.
    pub fn written(&self) -> String {
        let written = self.metadata.as_ref().and_then(|about| about.get(WRITTEN)?.as_str());
        written.map_or_else(|| self.text(), str::to_owned)
    }

    /// What the person typed, where a front end kept it beside what goes to the model. A model cannot make such a message.
    pub fn typed(&self) -> Option<&str> {
        self.metadata.as_ref()?.get(WRITTEN)?.as_str()
    }

    /// What the person wrote, with a mark in the place of each long paste; `None`: as it was written.
    pub fn shown(&self) -> Option<&str> {
        self.metadata.as_ref()?.get(SHOWN)?.as_str()
    }

    /// Whether it was said to be read while the model works.
    pub fn steers(&self) -> bool {
        self.metadata.as_ref().and_then(|about| about.get(STEERS)).is_some_and(|is| *is == Value::Bool(true))
    }

    /// A command line that the person runs themselves: what they wrote, and the call that it is. A run that begins with
    /// these carries the call out and ends without asking a model.
    pub fn command(written: &str, call: ToolCall, visibility: Visibility) -> [Self; 2] {
        let mut said = Self::user(written);
        let mut asked = Self::assistant_with(Vec::new(), vec![call]);
        said.visibility = visibility;
        asked.visibility = visibility;
        [said, asked]
    }

    /// What the person says, with pictures.
    pub fn user_with(content: Vec<ContentBlock>) -> Self {
        Self::of(Role::User, content)
    }

    /// Instructions.
    pub fn system(text: impl Into<String>) -> Self {
        Self::of(Role::System, vec![ContentBlock::text(text)])
    }

    /// What the model says.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::of(Role::Assistant, vec![ContentBlock::text(text)])
    }

    /// What the model says, with the calls it asks for.
    pub fn assistant_with(content: Vec<ContentBlock>, tool_calls: Vec<ToolCall>) -> Self {
        Self { tool_calls, ..Self::of(Role::Assistant, content) }
    }

    /// The result of one call, as the model reads it.
    pub fn tool(call_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self::tool_with(call_id, vec![ContentBlock::text(text)])
    }

    /// The result of one call, with pictures.
    pub fn tool_with(call_id: impl Into<String>, content: Vec<ContentBlock>) -> Self {
        Self { tool_call_id: Some(call_id.into()), ..Self::of(Role::Tool, content) }
    }

    /// The text blocks, joined.
    pub fn text(&self) -> String {
        text_of(&self.content)
    }
}
