//! The message of an exchange: the task of a new conversation, or the user's answers to the agent's questions.

use std::sync::Arc;

use aye_core::contract::digest::sha256_hex;
use aye_core::contract::message::{Message, Role, ToolCall, Visibility};
use aye_encode::a2a::A2aPart;
use aye_runtime::CODE_ANSWERED_REMOTELY;
use serde_json::{Value, json};

use super::question::{RemoteAsk, SEND_AGAIN};

/// The message that one exchange sends.
pub(crate) struct Turn {
    /// Its id: always the same for the same position in the conversation.
    pub(crate) id: String,
    pub(crate) parts: Vec<A2aPart>,
    /// Whether it answers questions of the task.
    pub(crate) answers: bool,
    /// It may not have arrived, and the user chose not to send it again.
    pub(crate) is_given_up: bool,
    /// A question was answered on the other side, so there is nothing to send.
    pub(crate) is_superseded: bool,
}

impl Turn {
    /// Reads the end of a conversation. `salt` keeps the ids of different conversations apart.
    pub(crate) fn of(messages: &[Arc<Message>], salt: &str) -> Self {
        let sent: Vec<&Message> = messages
            .iter()
            .map(|message| &**message)
            .filter(|message| {
                message.role != Role::System
                    && (message.visibility == Visibility::All || message.role == Role::Tool)
            })
            .collect();
        let (mut end, mut position, mut is_given_up) = (sent.len(), None, false);
        loop {
            let asks = sent[..end].iter().rposition(|message| message.role == Role::Assistant);
            let behind = &sent[asks.map_or(0, |at| at + 1)..end];
            let calls = asks.map_or(&[][..], |at| sent[at].tool_calls.as_slice());
            let key = calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>().join(" ");
            let position =
                position.get_or_insert_with(|| if calls.is_empty() { "begin".to_owned() } else { key });
            // This answers the question about a lost message; the message itself is the one before.
            if let [call] = calls
                && RemoteAsk::of(call) == RemoteAsk::Lost
            {
                is_given_up |= answer_of(call, behind) != Some(json!(SEND_AGAIN));
                end = asks.unwrap_or_default();
                continue;
            }
            let mut parts: Vec<A2aPart> =
                calls.iter().map(|call| RemoteAsk::of(call).answer(answer_of(call, behind))).collect();
            let texts =
                behind.iter().filter(|message| message.role == Role::User).map(|message| message.text());
            parts.extend(texts.filter(|text| !text.trim().is_empty()).map(A2aPart::text));
            let digest = sha256_hex(format!("{salt}\n{position}"));
            return Self {
                id: format!("aye-{}", &digest[..32]),
                parts,
                answers: !calls.is_empty(),
                is_given_up,
                is_superseded: behind.iter().any(|message| is_superseded(message)),
            };
        }
    }
}

/// Whether a result says that its question was answered on the other side.
fn is_superseded(result: &Message) -> bool {
    let code = result.metadata.as_ref().and_then(|about| about.pointer("/tool_result/details/code"));
    code.is_some_and(|code| code == CODE_ANSWERED_REMOTELY)
}

/// The user's answer to a call, unless it was declined or expired.
fn answer_of(call: &ToolCall, behind: &[&Message]) -> Option<Value> {
    let result = behind.iter().find(|message| message.tool_call_id.as_deref() == Some(call.id.as_str()))?;
    let data = result.metadata.as_ref()?.pointer("/tool_result/data")?;
    data.get("answer").or_else(|| data.get("answers")).cloned()
}
