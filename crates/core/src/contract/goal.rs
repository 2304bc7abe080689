//! What a run works towards: a message of the user names it.

use serde::{Deserialize, Serialize};

/// What has to hold before a run ends by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Goal {
    /// A command that has to succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A condition in words, which the model has to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}

impl Goal {
    /// The goal that a command succeeds.
    pub fn command(line: impl Into<String>) -> Self {
        Self { command: Some(line.into()), condition: None }
    }

    /// The goal that a condition holds.
    pub fn condition(text: impl Into<String>) -> Self {
        Self { command: None, condition: Some(text.into()) }
    }

    /// Returns whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.command.is_none() && self.condition.is_none()
    }
}
