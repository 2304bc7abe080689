//! Turns committed messages into the events that a reader of the run saw.
//!
//! A stream that resumes from the store sends these before it follows the live run.

use std::collections::HashSet;

use aye_core::contract::content::ContentBlock;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::message::{Message, MessagePart, Role, Visibility};
use aye_core::contract::record::{StoredMessage, SuspensionRecord};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::outcome;

/// The events of one or more committed messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// Place of the last message that the events cover: the cursor of a reader that has received them.
    pub after: u64,
    /// The events, in the order of a live run; empty for messages that no event shows, such as those of the user.
    pub events: Vec<AgentEvent>,
}

/// Turns committed messages into events: one group for each assistant message with its tool results, and one without
/// events for each other message.
///
/// The messages may be any consecutive part of a thread, so that a reader can resume between an answer and its results.
/// Then the results form a group of their own, in which `ToolCallDone` has no message id. A step whose calls lack results
/// at the end of the messages stays open: its events end without `StepEnd`, which the rest of the run sends.
pub fn replay(messages: &[StoredMessage]) -> Vec<Replayed> {
    let mut groups = Vec::new();
    let mut rest = messages;
    while let Some((first, after_first)) = rest.split_first() {
        if first.message.visibility == Visibility::Internal {
            groups.push(Replayed { after: first.seq, events: Vec::new() });
            rest = after_first;
            continue;
        }
        let (answer, after_answer) = match first.message.role {
            Role::Assistant => (Some(&first.message), after_first),
            Role::Tool => (None, rest),
            Role::System | Role::User => {
                groups.push(Replayed { after: first.seq, events: Vec::new() });
                rest = after_first;
                continue;
            }
        };
        let is_result = |stored: &StoredMessage| stored.message.role == Role::Tool;
        let count = after_answer.iter().take_while(|stored| is_result(stored)).count();
        let (results, after_results) = after_answer.split_at(count);
        groups.push(Replayed {
            after: results.last().unwrap_or(first).seq,
            events: step(answer, results, after_results.is_empty()),
        });
        rest = after_results;
    }
    groups
}

/// Returns the events of the questions that wait at the end of a stored conversation: what the run said last before it
/// suspended. `message_id` names the answer that asked for the calls.
pub fn questions(message_id: &str, open: &[SuspensionRecord]) -> Vec<AgentEvent> {
    open.iter()
        .filter(|record| !record.ticket.is_served())
        .flat_map(|record| AgentEvent::asked(&record.ticket, message_id))
        .collect()
}

/// The events of an answer and its results; `is_last`: nothing is known to follow them.
fn step(answer: Option<&Message>, results: &[StoredMessage], is_last: bool) -> Vec<AgentEvent> {
    let mut events = Vec::new();
    let mut names = Vec::new();
    if let Some(answer) = answer {
        events.push(AgentEvent::StepStart { message_id: answer.id.to_string() });
        for part in answer.parts() {
            let call = match part {
                MessagePart::Block(block) => {
                    events.extend(event_of(block));
                    continue;
                }
                MessagePart::Call(call) => call,
            };
            names.push((call.id.as_str(), call.name.as_str()));
            events.push(AgentEvent::ToolCallStart { id: call.id.clone(), name: call.name.clone() });
            events.push(AgentEvent::ToolCallReady {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
            });
        }
        events.extend(completed(answer));
    }
    let mut answered = HashSet::new();
    let message_id = answer.map_or("", |answer| answer.id.as_str());
    for message in results.iter().map(|stored| &stored.message) {
        let Some(id) = &message.tool_call_id else { continue };
        answered.insert(id.as_str());
        let name = names.iter().find(|(call, _)| call == id).map_or("", |(_, name)| *name);
        events.push(done(id, message, name, message_id));
    }
    let is_open = is_last && names.iter().any(|(id, _)| !answered.contains(id));
    if !is_open {
        events.push(AgentEvent::StepEnd);
    }
    events
}

/// Returns the events of results whose step is still open, which are no messages of the conversation yet.
pub fn results(messages: &[Message]) -> Vec<AgentEvent> {
    let done = |message: &Message| Some(done(message.tool_call_id.as_ref()?, message, "", ""));
    messages.iter().filter_map(done).collect()
}

/// The event of a result.
fn done(id: &str, message: &Message, tool: &str, message_id: &str) -> AgentEvent {
    let (mut result, outcome) = outcome::of_message(message, tool);
    let is_image =
        |block: &&ContentBlock| matches!(block, ContentBlock::Image { .. } | ContentBlock::StoredImage(_));
    result.images.extend(message.content.iter().filter(is_image).cloned());
    AgentEvent::ToolCallDone { id: id.to_owned(), message_id: message_id.to_owned(), result, outcome }
}

/// The event of a block that a reader sees.
fn event_of(block: &ContentBlock) -> Option<AgentEvent> {
    match block {
        ContentBlock::Text { text } if !text.is_empty() => {
            Some(AgentEvent::TextDelta { delta: text.clone() })
        }
        ContentBlock::Thinking { thinking, .. } if !thinking.is_empty() => {
            Some(AgentEvent::ReasoningDelta { delta: thinking.clone() })
        }
        ContentBlock::Text { .. }
        | ContentBlock::Thinking { .. }
        | ContentBlock::Image { .. }
        | ContentBlock::StoredImage(_)
        | ContentBlock::Opaque { .. }
        | ContentBlock::ToolCall { .. } => None,
    }
}

/// The end of the inference, from what is noted beside a complete answer; an interrupted one has no such note.
fn completed(answer: &Message) -> Option<AgentEvent> {
    let about = answer.metadata.as_ref()?;
    Some(AgentEvent::InferenceComplete {
        model: about.get("model")?.as_str()?.to_owned(),
        usage: member(about, "usage"),
        duration_ms: member(about, "duration_ms").unwrap_or_default(),
        stop_reason: member(about, "stop_reason"),
    })
}

fn member<T: DeserializeOwned>(about: &serde_json::Value, name: &str) -> Option<T> {
    Option::deserialize(about.get(name)?).ok()?
}

#[cfg(test)]
mod tests {
    use aye_core::contract::lifecycle::ToolCallOutcome;
    use aye_core::contract::tool::ToolResult;

    use aye_core::contract::inference::StopReason;
    use aye_core::contract::message::ToolCall;
    use aye_core::contract::record::SuspensionStatus;
    use aye_core::contract::suspension::{
        ACTION_CHILD_RUN, ACTION_PERMISSION, PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode,
    };
    use serde_json::{Value, json};

    use super::*;

    fn stored(seq: u64, message: Message) -> StoredMessage {
        StoredMessage { seq, run_id: "run".into(), created_at: 0, message }
    }

    fn asks(id: &str, calls: &[&str]) -> Message {
        let content = vec![
            ContentBlock::Thinking { thinking: "hm".into(), signature: Some("secret".into()) },
            ContentBlock::text("I look."),
        ];
        let calls = calls.iter().map(|id| ToolCall::new(*id, "Read", json!({"path": *id}))).collect();
        let mut message = Message::assistant_with(content, calls);
        message.id = id.into();
        message.metadata =
            Some(json!({"model": "m", "usage": null, "duration_ms": 5, "stop_reason": "tool_use"}));
        message
    }

    fn result(call: &str) -> Message {
        let mut message = Message::tool_with(
            call,
            vec![ContentBlock::text("for the model"), ContentBlock::image("image/png", "AA==")],
        );
        let result = ToolResult::text("Read", "found");
        message.metadata = Some(json!({"tool_result": result, "outcome": "succeeded"}));
        message
    }

    fn done(call: &str, message_id: &str) -> AgentEvent {
        let mut result = ToolResult::text("Read", "found");
        result.images.push(ContentBlock::image("image/png", "AA=="));
        AgentEvent::ToolCallDone {
            id: call.into(),
            message_id: message_id.into(),
            result,
            outcome: ToolCallOutcome::Succeeded,
        }
    }

    fn start(id: &str, calls: &[&str]) -> Vec<AgentEvent> {
        let mut events = vec![
            AgentEvent::StepStart { message_id: id.into() },
            AgentEvent::ReasoningDelta { delta: "hm".into() },
            AgentEvent::TextDelta { delta: "I look.".into() },
        ];
        for call in calls {
            events.push(AgentEvent::ToolCallStart { id: (*call).into(), name: "Read".into() });
            events.push(AgentEvent::ToolCallReady {
                id: (*call).into(),
                name: "Read".into(),
                arguments: json!({"path": *call}),
            });
        }
        events.push(AgentEvent::InferenceComplete {
            model: "m".into(),
            usage: None,
            duration_ms: 5,
            stop_reason: Some(StopReason::ToolUse),
        });
        events
    }

    #[test]
    fn an_answer_and_its_results_are_one_group() {
        let messages = [
            stored(1, Message::user("read a and b")),
            stored(2, asks("m1", &["a", "b"])),
            stored(3, result("a")),
            stored(4, result("b")),
            stored(5, Message::continuation("go on")),
            stored(6, Message::assistant("Done.")),
        ];
        let groups = replay(&messages);
        let mut first = start("m1", &["a", "b"]);
        first.extend([done("a", "m1"), done("b", "m1"), AgentEvent::StepEnd]);
        let last = vec![
            AgentEvent::StepStart { message_id: messages[5].message.id.to_string() },
            AgentEvent::TextDelta { delta: "Done.".into() },
            AgentEvent::StepEnd,
        ];
        assert_eq!(
            groups,
            [
                Replayed { after: 1, events: vec![] },
                Replayed { after: 4, events: first },
                Replayed { after: 5, events: vec![] },
                Replayed { after: 6, events: last },
            ]
        );
    }

    #[test]
    fn a_step_with_waiting_calls_stays_open_and_results_may_come_alone() {
        let asked = stored(2, asks("m1", &["a", "b"]));
        let open = replay(std::slice::from_ref(&asked));
        assert_eq!(open, [Replayed { after: 2, events: start("m1", &["a", "b"]) }]);

        let rest =
            replay(&[stored(3, result("a")), stored(4, result("b")), stored(5, Message::user("next"))]);
        assert_eq!(
            rest,
            [
                Replayed { after: 4, events: vec![done("a", ""), done("b", ""), AgentEvent::StepEnd] },
                Replayed { after: 5, events: vec![] },
            ]
        );

        // The store lost a result: the step is over all the same.
        let lost = replay(&[asked, stored(3, result("a")), stored(4, Message::user("next"))]);
        assert_eq!(lost[0].events.last(), Some(&AgentEvent::StepEnd));
    }

    #[test]
    fn a_pending_question_ends_its_call_for_now() {
        let ticket = SuspendTicket {
            suspension: Suspension {
                id: "s1".into(),
                action: ACTION_PERMISSION.into(),
                message: "Read a?".into(),
                parameters: Value::Null,
                response_schema: None,
                expires_at: None,
            },
            pending: PendingToolCall { id: "a".into(), name: "Read".into(), arguments: json!({}) },
            resume_mode: ToolCallResumeMode::ReplayToolCall,
        };
        let record = SuspensionRecord {
            id: "s1".into(),
            thread_id: "t".into(),
            run_id: "run".into(),
            call_id: "a".into(),
            ticket: ticket.clone(),
            status: SuspensionStatus::Open,
            created_at: 0,
            decision: None,
            decided_by: None,
        };
        let mut served = record.clone();
        served.ticket.suspension.action = ACTION_CHILD_RUN.into();
        let asked = AgentEvent::ToolCallDone {
            id: "a".into(),
            message_id: "m1".into(),
            result: ToolResult::suspended_with("Read", "Read a?", ticket),
            outcome: ToolCallOutcome::Suspended,
        };
        assert_eq!(questions("m1", &[record, served]), [asked]);
    }

    #[test]
    fn a_result_without_a_note_is_its_text() {
        let mut failed = Message::tool("a", "no such file");
        let groups = replay(&[stored(1, asks("m1", &["a"])), stored(2, failed.clone())]);
        let done = AgentEvent::ToolCallDone {
            id: "a".into(),
            message_id: "m1".into(),
            result: ToolResult::text("Read", "no such file"),
            outcome: ToolCallOutcome::Succeeded,
        };
        assert!(groups[0].events.contains(&done), "{groups:?}");

        failed.metadata =
            Some(json!({"tool_result": ToolResult::error("Read", "no"), "outcome": Value::Null}));
        let groups = replay(&[stored(1, asks("m1", &["a"])), stored(2, failed)]);
        let done = AgentEvent::ToolCallDone {
            id: "a".into(),
            message_id: "m1".into(),
            result: ToolResult::error("Read", "no"),
            outcome: ToolCallOutcome::Failed,
        };
        assert!(groups[0].events.contains(&done), "{groups:?}");
    }

    #[test]
    fn an_interrupted_answer_ends_without_a_completed_inference() {
        let mut cut = Message::assistant("I was ab");
        cut.metadata = Some(json!({"interrupted": true}));
        let events = &replay(&[stored(1, cut)])[0].events;
        assert_eq!(events.len(), 3);
        assert!(!events.iter().any(|event| matches!(event, AgentEvent::InferenceComplete { .. })));
    }

    #[test]
    fn a_user_command_is_replayed_and_model_context_is_not() {
        let mut context = Message::assistant("notes");
        context.visibility = Visibility::Internal;
        let [written, asked] =
            Message::command("ls", ToolCall::new("c", "Bash", json!({"command": "ls"})), Visibility::Person);
        let groups =
            replay(&[stored(1, context), stored(2, written), stored(3, asked), stored(4, result("c"))]);
        assert_eq!(groups.iter().map(|group| group.after).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(groups.iter().map(|group| group.events.len()).collect::<Vec<_>>(), [0, 0, 5]);
    }
}
