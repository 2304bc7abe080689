//! Messages that plugins and tools add for the model, not written by the user.

use serde::{Deserialize, Serialize};

/// The position of a context message in the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextTarget {
    /// After the agent's system prompt.
    #[default]
    System,
    /// Before the agent's system prompt. A message here changes the start of a request, and with it
    /// everything in the prompt cache.
    SystemFront,
    /// After the last message of the conversation.
    Conversation,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextMessage {
    /// Names the message; a persistent one replaces the one of the same key.
    pub key: String,
    pub content: String,
    /// The position in the request.
    #[serde(default)]
    pub target: ContextTarget,
    /// Offered in each later step too, until replaced.
    #[serde(default)]
    pub persistent: bool,
    /// The number of steps that must pass before the message is offered again; 0 is no limit.
    #[serde(default)]
    pub cooldown_turns: u32,
}

impl ContextMessage {
    /// Returns whether the message says what happened, and stays in the conversation. The others say what holds: they are
    /// offered again in each step, and only their changes are said.
    pub fn is_event(&self) -> bool {
        !self.persistent && (self.target == ContextTarget::Conversation || self.cooldown_turns > 0)
    }

    /// Returns a message for this step only, after the system prompt.
    pub fn system(key: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            content: content.into(),
            target: ContextTarget::System,
            persistent: false,
            cooldown_turns: 0,
        }
    }

    /// For this step only, before the system prompt.
    pub fn system_front(key: impl Into<String>, content: impl Into<String>) -> Self {
        Self { target: ContextTarget::SystemFront, ..Self::system(key, content) }
    }

    /// For this and all later steps of the run.
    pub fn system_persistent(key: impl Into<String>, content: impl Into<String>) -> Self {
        Self { persistent: true, ..Self::system(key, content) }
    }

    /// For this step, and not again before `cooldown_turns` steps have passed.
    pub fn system_throttled(key: impl Into<String>, content: impl Into<String>, cooldown_turns: u32) -> Self {
        Self { cooldown_turns, ..Self::system(key, content) }
    }

    /// Returns a message for this step only, after the last message.
    pub fn conversation(key: impl Into<String>, content: impl Into<String>) -> Self {
        Self { target: ContextTarget::Conversation, ..Self::system(key, content) }
    }
}
