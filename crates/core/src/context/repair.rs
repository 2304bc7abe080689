//! Repairs any history into one that every provider accepts: each call has exactly one result, directly after
//! it, in call order, and every result has a call.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::contract::message::{Message, Role};

/// The result shown to the model for a call whose result was lost.
pub const NO_RESULT: &str = "The result of this call is unknown. It may or may not have run.";

/// Repairs a history. A valid one is returned unchanged.
///
/// - A call without a result gets [`NO_RESULT`].
/// - A result moves directly after its call, and the messages between them come after it.
/// - A result without a call before it, and a second one for the same call, is dropped.
/// - Of two calls with the same id in one message, the second is dropped; one in a later message takes the
///   results that come after it.
pub fn repair(messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    // As nearly always: found without a table of calls.
    if ordered(&messages) == messages.len() {
        return messages;
    }
    // Each result, keyed by position, belongs to the nearest assistant message before it that made the call.
    let mut results: HashMap<usize, Vec<Option<Arc<Message>>>> = HashMap::new();
    let mut owner: HashMap<String, (usize, usize)> = HashMap::new();
    let mut kept = Vec::with_capacity(messages.len());
    for mut message in messages {
        match message.role {
            Role::Assistant => {
                let mut seen = HashSet::new();
                if !message.tool_calls.iter().all(|call| seen.insert(call.id.as_str())) {
                    let mut seen = HashSet::new();
                    Arc::make_mut(&mut message).tool_calls.retain(|call| seen.insert(call.id.clone()));
                }
                let at = kept.len();
                for (nth, call) in message.tool_calls.iter().enumerate() {
                    owner.insert(call.id.clone(), (at, nth));
                }
                results.insert(at, vec![None; message.tool_calls.len()]);
                kept.push(message);
            }
            Role::Tool => {
                let slot = message
                    .tool_call_id
                    .as_ref()
                    .and_then(|id| owner.get(id))
                    .and_then(|(at, nth)| results.get_mut(at)?.get_mut(*nth));
                if let Some(slot @ None) = slot {
                    *slot = Some(message);
                }
            }
            Role::System | Role::User => kept.push(message),
        }
    }
    let mut repaired = Vec::with_capacity(kept.len());
    for (at, mut message) in kept.into_iter().enumerate() {
        let calls: Vec<String> = message.tool_calls.iter().map(|call| call.id.clone()).collect();
        // Only an assistant can ask.
        if message.role != Role::Assistant {
            if !message.tool_calls.is_empty() {
                Arc::make_mut(&mut message).tool_calls.clear();
            }
            repaired.push(message);
            continue;
        }
        repaired.push(message);
        let results = results.remove(&at).unwrap_or_default();
        for (id, result) in calls.into_iter().zip(results) {
            repaired.push(result.unwrap_or_else(|| Arc::new(Message::tool(id, NO_RESULT))));
        }
    }
    repaired
}

/// Counts the messages at the start that need no repair, whatever comes after them: none of them is a call
/// whose results come later.
pub fn ordered(messages: &[Arc<Message>]) -> usize {
    let mut at = 0;
    while let Some(message) = messages.get(at) {
        let calls = &message.tool_calls;
        let results = messages.get(at + 1..at + 1 + calls.len());
        let is_ordered = match message.role {
            Role::Assistant => results.is_some_and(|results| {
                calls.iter().zip(results).enumerate().all(|(nth, (call, result))| {
                    let is_second = calls[..nth].iter().any(|other| other.id == call.id);
                    let answers = result.tool_call_id.as_deref() == Some(call.id.as_str());
                    !is_second && result.role == Role::Tool && answers
                })
            }),
            Role::System | Role::User => calls.is_empty(),
            Role::Tool => false,
        };
        if !is_ordered {
            break;
        }
        at += 1 + calls.len();
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::contract::content::ContentBlock;
    use crate::contract::message::ToolCall;

    fn repair(messages: Vec<Message>) -> Vec<Arc<Message>> {
        super::repair(messages.into_iter().map(Arc::new).collect())
    }

    fn asks(ids: &[&str]) -> Message {
        let calls = ids.iter().map(|id| ToolCall::new(*id, "Bash", json!({}))).collect();
        Message::assistant_with(vec![ContentBlock::text("so")], calls)
    }

    fn shape(messages: &[Arc<Message>]) -> Vec<String> {
        messages
            .iter()
            .map(|message| match message.role {
                Role::Tool => {
                    let lost = if message.text() == NO_RESULT { "?" } else { "" };
                    format!("={}{lost}", message.tool_call_id.as_deref().unwrap_or(""))
                }
                Role::Assistant => {
                    let ids: Vec<&str> = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
                    format!("a[{}]", ids.join(" "))
                }
                Role::User => "u".into(),
                Role::System => "s".into(),
            })
            .collect()
    }

    #[test]
    fn an_interrupted_call_gets_a_result() {
        let repaired = repair(vec![Message::user("go"), asks(&["1", "2"]), Message::tool("2", "two")]);
        assert_eq!(shape(&repaired), ["u", "a[1 2]", "=1?", "=2"]);
    }

    #[test]
    fn results_follow_their_calls_in_call_order() {
        let repaired = repair(vec![
            asks(&["1", "2"]),
            Message::user("by the way"),
            Message::tool("2", "two"),
            Message::tool("1", "one"),
            Message::tool("1", "one again"),
            Message::tool("9", "whose?"),
        ]);
        assert_eq!(shape(&repaired), ["a[1 2]", "=1", "=2", "u"]);
        assert_eq!(repaired[1].text(), "one");
    }

    #[test]
    fn a_reused_id_binds_to_the_later_call() {
        let repaired =
            repair(vec![asks(&["a"]), Message::tool("a", "old"), asks(&["a"]), Message::tool("a", "new")]);
        assert_eq!(shape(&repaired), ["a[a]", "=a", "a[a]", "=a"]);
        assert_eq!(repaired[3].text(), "new");
    }

    fn message() -> impl Strategy<Value = Message> {
        let id = prop::sample::select(vec!["1", "2", "3"]);
        prop_oneof![
            Just(Message::user("u")),
            Just(Message::system("s")),
            prop::collection::vec(id.clone(), 0..4).prop_map(|ids| asks(&ids)),
            id.prop_map(|id| Message::tool(id, "r")),
        ]
    }

    proptest! {
        #[test]
        fn every_call_has_one_result_and_no_result_is_orphaned(
            messages in prop::collection::vec(message(), 0..20),
        ) {
            let repaired = repair(messages.clone());
            let mut rest = repaired.iter();
            while let Some(message) = rest.next() {
                prop_assert_ne!(message.role, Role::Tool, "a result without its call");
                for call in &message.tool_calls {
                    let result = rest.next().expect("a result for each call");
                    prop_assert_eq!(result.tool_call_id.as_deref(), Some(call.id.as_str()));
                }
            }
            let spoken = messages.iter().filter(|m| m.role != Role::Tool).count();
            let kept = repaired.iter().filter(|m| m.role != Role::Tool).count();
            prop_assert_eq!(spoken, kept, "nothing that was said is lost");
            prop_assert_eq!(ordered(&repaired), repaired.len(), "once is enough");
        }
    }
}
