//! The messages of a thread.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::content::{ContentBlock, text_of};
use super::goal::Goal;
use super::ids::MessageId;

/// Marks an answer to a request that was sent again because the provider refused thoughts in it.
pub const REFUSED_THOUGHTS: &str = "refused_thoughts";
/// Marks what steers a run.
const STEERS: &str = "steers";
/// Marks a message that asks the model to continue an answer that was cut.
const CONTINUATION: &str = "continuation";
/// The key of the user's own text, if the content contains more.
const WRITTEN: &str = "written";
/// The key of the user's own text with a mark in place of each long paste.
const SHOWN: &str = "shown";

/// The key of the goal of the run that the message starts.
const GOAL: &str = "goal";

/// The key of the id that a client gave to a message of the user.
const CLIENT_ID: &str = "client_id";
/// Maximum characters of such an id.
const MAX_CLIENT_ID: usize = 200;

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions.
    System,
    /// The user.
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
    /// The arguments: an object, or whatever else the model sent.
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

/// A block or a call of a message, in the order in which the model gave them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MessagePart<'a> {
    /// Text, thoughts, an image, or a piece of the provider's own.
    Block(&'a ContentBlock),
    Call(&'a ToolCall),
}

/// The audience of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// The user and the model.
    #[default]
    All,
    /// The model only: context that plugins add.
    Internal,
    /// The user only: their actions beside the conversation.
    Person,
}

/// One message of a thread. Messages are only ever appended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// The author of the message.
    pub role: Role,
    /// The content of the message.
    pub content: Vec<ContentBlock>,
    /// Calls an assistant asks for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The audience of the message.
    #[serde(default, skip_serializing_if = "is_all")]
    pub visibility: Visibility,
    /// Data for the front ends, but not the model: `tool_result`, `interrupted`, `model`, `usage`.
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

    /// Returns a message from the user.
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

    /// Returns a message for the model alone that stays in the conversation: what came or changed since its start.
    pub fn context(text: impl Into<String>) -> Self {
        let mut message = Self::system(text);
        message.visibility = Visibility::Internal;
        message
    }

    /// Returns whether the model or aye wrote the message: nothing that a user sent, and no result of a call.
    pub fn is_from_agent(&self) -> bool {
        self.role == Role::Assistant || self.role != Role::Tool && self.visibility == Visibility::Internal
    }

    /// Returns whether both the user and the model may see the message.
    pub fn is_for_all(&self) -> bool {
        self.visibility == Visibility::All
    }

    /// Returns whether this is a [`Message::continuation`].
    pub fn is_continuation(&self) -> bool {
        self.metadata.as_ref().is_some_and(|about| about.get(CONTINUATION).is_some())
    }

    /// Marks a message that the user sends into the active run: the model reads it as soon as the running
    /// calls have ended.
    #[must_use]
    pub fn steering(mut self) -> Self {
        self.note(STEERS, Value::Bool(true));
        self
    }

    /// Keeps the user's own text, if the model gets more than that.
    #[must_use]
    pub fn written_as(mut self, written: &str) -> Self {
        self.note(WRITTEN, Value::from(written));
        self
    }

    /// Keeps the form in which a front end shows the user's text: with a mark in place of each long paste.
    #[must_use]
    pub fn shown_as(mut self, shown: &str) -> Self {
        self.note(SHOWN, Value::from(shown));
        self
    }

    /// Keeps the id by which the client that sent the message knows it. An empty or overlong one is left out.
    #[must_use]
    pub fn known_as(mut self, id: &str) -> Self {
        if !id.is_empty() && id.chars().take(MAX_CLIENT_ID + 1).count() <= MAX_CLIENT_ID {
            self.note(CLIENT_ID, Value::from(id));
        }
        self
    }

    /// Returns the id by which the client that sent the message knows it.
    pub fn client_id(&self) -> Option<&str> {
        self.metadata.as_ref()?.get(CLIENT_ID)?.as_str()
    }

    /// Has the run that reads the message work until this holds.
    #[must_use]
    pub fn working_towards(mut self, goal: &Goal) -> Self {
        self.note(GOAL, serde_json::json!(goal));
        self
    }

    /// Returns what the run that reads the message works towards. A model cannot create such a message.
    pub fn goal(&self) -> Option<Goal> {
        Goal::deserialize(self.metadata.as_ref()?.get(GOAL)?).ok().filter(|goal| !goal.is_empty())
    }

    /// Returns the message without the command of its goal, if it has one: whoever writes the file of a conversation does
    /// not choose what runs here.
    #[must_use]
    pub fn without_goal_command(&self) -> Cow<'_, Self> {
        match self.goal() {
            Some(Goal { command: Some(_), condition }) => {
                Cow::Owned(self.clone().working_towards(&Goal { command: None, condition }))
            }
            _ => Cow::Borrowed(self),
        }
    }

    fn note(&mut self, key: &str, value: Value) {
        let about = self.metadata.get_or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Some(about) = about.as_object_mut() {
            about.insert(key.to_owned(), value);
        }
    }

    /// Returns the user's own text, without the additions for the model.
    pub fn written(&self) -> String {
        let written = self.metadata.as_ref().and_then(|about| about.get(WRITTEN)?.as_str());
        written.map_or_else(|| self.text(), str::to_owned)
    }

    /// Returns the text that the user typed, if a front end kept it beside what the model gets. A model
    /// cannot create such a message.
    pub fn typed(&self) -> Option<&str> {
        self.metadata.as_ref()?.get(WRITTEN)?.as_str()
    }

    /// Returns the user's text with a mark in place of each long paste; `None` means the text as written.
    pub fn shown(&self) -> Option<&str> {
        self.metadata.as_ref()?.get(SHOWN)?.as_str()
    }

    /// Returns whether the message was sent into the active run.
    pub fn steers(&self) -> bool {
        self.metadata.as_ref().and_then(|about| about.get(STEERS)).is_some_and(|is| *is == Value::Bool(true))
    }

    /// Returns a command line that the user runs directly: the user's text, and the resulting call. A run
    /// that starts with these messages executes the call and ends without asking a model.
    pub fn command(written: &str, call: ToolCall, visibility: Visibility) -> [Self; 2] {
        let mut first = Self::user(written);
        let mut asked = Self::assistant_with(Vec::new(), vec![call]);
        first.visibility = visibility;
        asked.visibility = visibility;
        [first, asked]
    }

    /// Returns a message from the user with images.
    pub fn user_with(content: Vec<ContentBlock>) -> Self {
        Self::of(Role::User, content)
    }

    pub fn system(text: impl Into<String>) -> Self {
        Self::of(Role::System, vec![ContentBlock::text(text)])
    }

    /// Returns a message from the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::of(Role::Assistant, vec![ContentBlock::text(text)])
    }

    /// Returns a message from the model, with the calls that it requests.
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

    /// Returns blocks and calls in the order in which the model gave them. Calls without a place come last: nothing came
    /// after them, or the message was stored before places were.
    pub fn parts(&self) -> Vec<MessagePart<'_>> {
        parts_of(&self.content, &self.tool_calls)
    }
}

/// Returns the blocks and calls of an answer in the order in which the model gave them.
pub fn parts_of<'a>(content: &'a [ContentBlock], calls: &'a [ToolCall]) -> Vec<MessagePart<'a>> {
    let mut parts = Vec::with_capacity(content.len() + calls.len());
    let mut is_placed = vec![false; calls.len()];
    for block in content {
        let ContentBlock::ToolCall { id } = block else {
            parts.push(MessagePart::Block(block));
            continue;
        };
        let at = calls.iter().zip(&is_placed).position(|(call, is_placed)| call.id == *id && !is_placed);
        if let Some(at) = at {
            is_placed[at] = true;
            parts.push(MessagePart::Call(&calls[at]));
        }
    }
    let rest = calls.iter().zip(is_placed).filter(|(_, is_placed)| !is_placed);
    parts.extend(rest.map(|(call, _)| MessagePart::Call(call)));
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_stand_where_the_model_made_them() {
        let place = |id: &str| ContentBlock::ToolCall { id: id.to_owned() };
        let calls = ["a", "b", "c"].map(|id| ToolCall::new(id, "Read", json!({}))).to_vec();
        let order = |content: Vec<ContentBlock>| {
            let message = Message::assistant_with(content, calls.clone());
            let name = |part: &MessagePart<'_>| match part {
                MessagePart::Block(block) => block.as_text().unwrap_or_default().to_owned(),
                MessagePart::Call(call) => format!("={}", call.id),
            };
            message.parts().iter().map(name).collect::<Vec<_>>().join(" ")
        };
        let text = ContentBlock::text;
        assert_eq!(order(vec![text("x"), place("a"), text("y"), place("b"), text("z")]), "x =a y =b z =c");
        assert_eq!(order(vec![text("x"), text("y")]), "x y =a =b =c", "as earlier versions stored them");
        assert_eq!(order(vec![place("gone"), text("x"), place("b"), place("b")]), "x =b =a =c");
        let old = json!({"id": "m", "role": "assistant", "content": [{"type": "text", "text": "x"}],
            "tool_calls": [{"id": "a", "name": "Read", "arguments": {}}]});
        let old: Message = serde_json::from_value(old).expect("a message of an earlier version");
        assert_eq!(old.parts().len(), 2);
        let stored = serde_json::to_value(place("a")).expect("JSON");
        assert_eq!(stored, json!({"type": "tool_call", "id": "a"}));
    }
}
