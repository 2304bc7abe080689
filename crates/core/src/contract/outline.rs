//! The facts about a whole conversation that are needed to send its end: they are stored beside its messages,
//! so that a long conversation need not be read again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::message::{Message, Role, Visibility};

/// A summary of the facts about a conversation's messages. Positions count from 0. The outline is updated one
/// message at a time, and stays small however many there were: only calls that wait for their results take
/// space in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outline {
    /// The number of messages.
    pub count: usize,
    /// The number of instructions at the very start.
    #[serde(skip_serializing_if = "is_zero")]
    pub leading: usize,
    /// The last message of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<usize>,
    /// The number of times a truncated answer was continued since then.
    #[serde(skip_serializing_if = "is_zero")]
    pub continued: usize,
    /// Messages whose calls do not all have a result.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub open: BTreeMap<usize, OpenStep>,
    /// A result answers nothing or is not in its place, or a call id occurs twice in one message.
    #[serde(skip_serializing_if = "is_false")]
    pub is_untidy: bool,
}

/// A message with calls of which at least one has no result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenStep {
    /// The number of calls without a result.
    pub left: usize,
    /// The calls that a result can still belong to, and the place it belongs at. An id that a later message uses again
    /// belongs to that one.
    pub waiting: BTreeMap<String, usize>,
    /// The positions of the results so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<usize>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Outline {
    /// The outline of a conversation.
    pub fn of<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Self {
        let mut outline = Self::default();
        messages.into_iter().for_each(|message| outline.push(message));
        outline
    }

    /// Takes in the next message.
    pub fn push(&mut self, message: &Message) {
        let at = self.count;
        self.count += 1;
        match message.role {
            Role::System if self.leading == at => self.leading += 1,
            Role::User if message.visibility == Visibility::All => {
                (self.request, self.continued) = (Some(at), 0);
            }
            Role::User if message.is_continuation() => self.continued += 1,
            Role::Assistant => self.ask(at, message),
            Role::Tool => self.settle(at, message.tool_call_id.as_deref().unwrap_or_default()),
            Role::System | Role::User => {}
        }
    }

    fn ask(&mut self, at: usize, message: &Message) {
        let mut step = OpenStep::default();
        for call in &message.tool_calls {
            if step.waiting.contains_key(&call.id) {
                self.is_untidy = true;
                continue;
            }
            step.left += 1;
            step.waiting.insert(call.id.clone(), at + step.left);
            for earlier in self.open.values_mut() {
                earlier.waiting.remove(&call.id);
            }
        }
        if step.left > 0 {
            self.open.insert(at, step);
        }
    }

    fn settle(&mut self, at: usize, id: &str) {
        let asker = self.open.iter().find(|(_, step)| step.waiting.contains_key(id)).map(|(at, _)| *at);
        let Some((asker, step)) = asker.and_then(|asker| Some((asker, self.open.get_mut(&asker)?))) else {
            self.is_untidy = true;
            return;
        };
        self.is_untidy |= step.waiting.remove(id) != Some(at);
        step.left -= 1;
        step.results.push(at);
        if step.left == 0 {
            self.open.remove(&asker);
        }
    }

    /// Returns the messages that every request must include wherever they are in the conversation, in order:
    /// the instructions at the start, the user's last message, and calls without a result with the results of
    /// their neighbours.
    pub fn needed(&self) -> Vec<usize> {
        let mut needed: Vec<usize> = (0..self.leading).chain(self.request).collect();
        for (asker, step) in &self.open {
            needed.push(*asker);
            needed.extend(&step.results);
        }
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    /// Returns whether each call has exactly one result.
    pub fn is_tidy(&self) -> bool {
        self.open.is_empty() && !self.is_untidy
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::contract::message::ToolCall;

    fn asks(ids: &[&str]) -> Message {
        let calls = ids.iter().map(|id| ToolCall::new(*id, "Bash", json!({}))).collect();
        Message::assistant_with(Vec::new(), calls)
    }

    #[test]
    fn a_long_conversation_has_a_short_outline() {
        let mut outline = Outline::default();
        outline.push(&Message::system("be kind"));
        for n in 0..500 {
            outline.push(&Message::user("go"));
            outline.push(&asks(&[&format!("a{n}"), &format!("b{n}")]));
            outline.push(&Message::tool(format!("a{n}"), "1"));
            outline.push(&Message::tool(format!("b{n}"), "2"));
        }
        assert_eq!(outline, Outline { count: 2001, leading: 1, request: Some(1997), ..Outline::default() });
        let text = serde_json::to_string(&outline).unwrap();
        assert_eq!(text, r#"{"count":2001,"leading":1,"request":1997}"#);
        assert_eq!(serde_json::from_str::<Outline>(&text).unwrap(), outline);
    }

    #[test]
    fn pending_calls_are_included_with_their_neighbours() {
        let outline =
            Outline::of(&[Message::user("go"), asks(&["a", "b"]), Message::tool("b", "2"), asks(&["b"])]);
        assert_eq!(outline.needed(), [0, 1, 2, 3]);
        let back: Outline = serde_json::from_str(&serde_json::to_string(&outline).unwrap()).unwrap();
        assert_eq!(back, outline);
        assert!(outline.is_untidy, "b came where a belongs");
    }

    #[test]
    fn continuations_count_since_the_last_request() {
        let mut outline =
            Outline::of(&[Message::user("go"), Message::continuation("on"), Message::continuation("on")]);
        assert_eq!(outline.continued, 2);
        outline.push(&Message::user("next"));
        assert_eq!(outline.continued, 0);
    }
}
