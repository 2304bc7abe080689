//! What an answer keeps of the request that it answers: enough to tell whether the rows of a conversation still give the same
//! request, and which part of it differs.

use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::content::ContentBlock;
use super::digest::hex;
use super::executor::InferenceRequest;
use super::inference::InferenceOverride;
use super::message::{Message, Role, ToolCall};

/// The member of an answer's [`metadata`](Message::metadata) that has its [`SentRequest`].
pub const SENT_REQUEST: &str = "request";
/// The bytes of a digest that are kept: what has to be told apart is a change, not a forgery.
const KEPT: usize = 16;

/// A request as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentRequest {
    /// The messages of the conversation when it was sent.
    pub at: u64,
    /// The model that was asked, by its registered id.
    pub model: String,
    /// Changes to the model's parameters, without those that are not set.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub overrides: serde_json::Map<String, serde_json::Value>,
    /// Whether no marks for the provider's cache were set.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uncached: bool,
    /// A digest of the system text.
    pub system: String,
    /// A digest of the tools.
    pub tools: String,
    /// A digest of the messages.
    pub messages: String,
}

impl SentRequest {
    /// Returns what the answer keeps of its request; `None` if an earlier version of aye wrote it, or no model.
    pub fn of_answer(answer: &Message) -> Option<SentRequest> {
        let kept = answer.metadata.as_ref()?.get(SENT_REQUEST)?;
        serde_json::from_value(kept.clone()).ok()
    }

    /// Returns the parameters that the request changed.
    pub fn parameters(&self) -> InferenceOverride {
        serde_json::from_value(serde_json::Value::Object(self.overrides.clone())).unwrap_or_default()
    }
}

/// A message as a provider gets it.
#[derive(Serialize)]
struct SentMessage<'a> {
    role: Role,
    content: &'a [ContentBlock],
    calls: &'a [ToolCall],
    call: Option<&'a str>,
}

/// Makes the digests of requests. Messages that were in the request before are not read again.
#[derive(Debug, Default)]
pub struct RequestDigests(Vec<(Weak<Message>, [u8; 32])>);

impl RequestDigests {
    /// Returns what an answer keeps of a request that is sent when its conversation has `at` messages.
    pub fn sent(&mut self, request: &InferenceRequest, at: u64) -> SentRequest {
        let overrides = match serde_json::to_value(&request.overrides) {
            Ok(serde_json::Value::Object(set)) => {
                set.into_iter().filter(|(_, value)| !value.is_null()).collect()
            }
            _ => serde_json::Map::new(),
        };
        SentRequest {
            at,
            model: request.model.clone(),
            overrides,
            uncached: !request.enable_prompt_cache,
            system: kept(digest(&request.system)),
            tools: kept(digest(&request.tools)),
            messages: kept(self.of_messages(&request.messages)),
        }
    }

    fn of_messages(&mut self, messages: &[Arc<Message>]) -> [u8; 32] {
        let known = std::mem::take(&mut self.0);
        let mut whole = Sha256::new();
        for (at, message) in messages.iter().enumerate() {
            let before = known.get(at).filter(|(same, _)| std::ptr::eq(same.as_ptr(), Arc::as_ptr(message)));
            // A message that is gone leaves its place to no other one as long as it is referred to.
            let digest = before.map_or_else(|| of_message(message), |(_, digest)| *digest);
            whole.update(digest);
            self.0.push((Arc::downgrade(message), digest));
        }
        whole.finalize().into()
    }
}

fn of_message(message: &Message) -> [u8; 32] {
    digest(&SentMessage {
        role: message.role,
        content: &message.content,
        calls: &message.tool_calls,
        call: message.tool_call_id.as_deref(),
    })
}

fn digest(part: &impl Serialize) -> [u8; 32] {
    let mut hasher = Sha256::new();
    // Neither the hasher nor any part of a request can fail.
    let _ = serde_json::to_writer(&mut hasher, part);
    hasher.finalize().into()
}

fn kept(digest: [u8; 32]) -> String {
    hex(&digest[..KEPT])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::tool_descriptor::ToolDescriptor;

    fn request(texts: &[&str]) -> InferenceRequest {
        InferenceRequest {
            model: "m".into(),
            system: vec![ContentBlock::text("Be brief.")],
            messages: Arc::new(texts.iter().map(|text| Arc::new(Message::user(*text))).collect()),
            enable_prompt_cache: true,
            ..InferenceRequest::default()
        }
    }

    #[test]
    fn each_part_has_a_digest_of_what_a_provider_gets() {
        let mut digests = RequestDigests::default();
        let first = digests.sent(&request(&["a", "b"]), 2);
        // Ids and what front ends keep beside a message are not sent.
        assert_eq!(digests.sent(&request(&["a", "b"]), 2), first);
        assert_eq!(RequestDigests::default().sent(&request(&["a", "b"]), 2), first);
        let other = digests.sent(&request(&["a", "c"]), 2);
        assert_eq!((&other.system, &other.tools), (&first.system, &first.tools));
        assert_ne!(other.messages, first.messages);
        let mut prompted = request(&["a", "b"]);
        prompted.system.push(ContentBlock::text("Be kind."));
        prompted.tools.push(ToolDescriptor::new("t", "t", "t"));
        let prompted = digests.sent(&prompted, 2);
        assert_eq!(prompted.messages, first.messages);
        assert!(prompted.system != first.system && prompted.tools != first.tools);
    }

    #[test]
    fn a_message_that_changed_in_its_place_is_read_again() {
        let mut digests = RequestDigests::default();
        let mut request = request(&["a", "b"]);
        let before = digests.sent(&request, 2);
        Arc::make_mut(&mut Arc::make_mut(&mut request.messages)[0]).content = vec![ContentBlock::text("c")];
        let after = digests.sent(&request, 2);
        assert_ne!(after.messages, before.messages);
        assert_eq!(after, RequestDigests::default().sent(&request, 2));
    }

    #[test]
    fn it_is_kept_with_an_answer_and_read_back() {
        let mut asked = request(&["a"]);
        asked.overrides.temperature = Some(0.5);
        let sent = RequestDigests::default().sent(&asked, 1);
        let mut answer = Message::assistant("b");
        assert_eq!(SentRequest::of_answer(&answer), None);
        answer.metadata = Some(serde_json::json!({"model": "m", SENT_REQUEST: &sent}));
        let read = SentRequest::of_answer(&answer).expect("kept");
        assert_eq!(read, sent);
        assert_eq!(read.parameters(), asked.overrides);
        assert!(answer.metadata.expect("set").to_string().len() < 260, "a step's row hardly grows");
    }
}
