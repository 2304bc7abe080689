//! Messages that a client sends.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;

/// The new messages: `{"text": "..."}` or `{"messages": [{"role": "user", "content": "..."}]}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "Said")]
pub(super) struct NewMessages {
    text: Option<String>,
    messages: Option<Vec<NewMessage>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "SaidMessage")]
struct NewMessage {
    #[serde(default)]
    role: Option<String>,
    content: NewContent,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "SaidContent")]
enum NewContent {
    Text(String),
    Parts(Vec<NewPart>),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "SaidPart")]
struct NewPart {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    text: Option<String>,
}

impl NewMessages {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_none() && self.messages.is_none()
    }

    /// Returns the texts of the user. A client cannot speak in any other role.
    pub(super) fn texts(self) -> Result<Vec<String>, ApiError> {
        let mut found = Vec::new();
        if let Some(text) = self.text {
            found.push(text);
        }
        for (at, message) in self.messages.unwrap_or_default().into_iter().enumerate() {
            if message.role.as_deref().is_some_and(|role| role != "user") {
                return Err(ApiError::field(
                    format!("messages[{at}].role"),
                    "a client can only send messages as `user`",
                ));
            }
            found.push(match message.content {
                NewContent::Text(text) => text,
                NewContent::Parts(parts) => {
                    let mut text = String::new();
                    for part in parts {
                        let words =
                            part.text.filter(|_| part.kind.as_deref().is_none_or(|kind| kind == "text"));
                        text.push_str(&words.ok_or_else(|| {
                            ApiError::field(
                                format!("messages[{at}].content"),
                                "only parts of type `text` are accepted",
                            )
                        })?);
                    }
                    text
                }
            });
        }
        if found.is_empty() || found.iter().any(|text| text.trim().is_empty()) {
            return Err(ApiError::field("text", "send `text`, or `messages` with content"));
        }
        Ok(found)
    }
}
