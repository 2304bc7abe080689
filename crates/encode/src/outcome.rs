//! Results of calls, as clients show them.

use aye_core::contract::lifecycle::ToolCallOutcome;
use aye_core::contract::message::Message;
use aye_core::contract::tool::ToolResult;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The codes of calls that a user denied.
const DENIED: [&str; 2] = ["declined", "change_wanted"];

/// Returns the result and outcome that a tool message stores; its text, when it stores none.
pub(crate) fn of_message(message: &Message, tool: &str) -> (ToolResult, ToolCallOutcome) {
    let about = |name: &str| message.metadata.as_ref().and_then(|about| about.get(name));
    let result = about("tool_result").and_then(|result| ToolResult::deserialize(result).ok());
    let result = result.unwrap_or_else(|| ToolResult::text(tool, message.text()));
    let fallback = if result.is_error() { ToolCallOutcome::Failed } else { ToolCallOutcome::Succeeded };
    let outcome = about("outcome").and_then(|outcome| ToolCallOutcome::deserialize(outcome).ok());
    (result, outcome.unwrap_or(fallback))
}

/// Returns whether a user denied the call.
pub(crate) fn is_denied(result: &ToolResult) -> bool {
    let code = |value: Option<&Value>| {
        value.and_then(|value| value.get("code")?.as_str()).is_some_and(|code| DENIED.contains(&code))
    };
    code(Some(&result.data)) || code(result.details.as_ref())
}

/// Returns what a user reads of a result.
pub(crate) fn words(result: &ToolResult) -> String {
    let shown = result.shown().filter(|text| !text.is_empty()).or(result.message.as_deref());
    match (shown, &result.data) {
        (Some(text), _) => text.to_owned(),
        (None, Value::Null) => String::new(),
        (None, Value::String(text)) => text.clone(),
        (None, data) => data.to_string(),
    }
}

/// Returns a result as a JSON value: the text or the data where it has only one of them, otherwise an object with
/// `message`, `data` and `details`.
pub(crate) fn value(result: &ToolResult) -> Value {
    let text = result.shown().or(result.message.as_deref()).map(Value::from);
    let data = Some(&result.data).filter(|data| !data.is_null()).cloned();
    let mut details = result.details.clone();
    if let Some(Value::Object(members)) = &mut details {
        members.remove("shown");
    }
    let details = details.filter(|details| details.as_object().is_none_or(|members| !members.is_empty()));
    match (text, data, details) {
        (Some(only), None, None) | (None, Some(only), None) => only,
        (text, data, details) => {
            let members = [("message", text), ("data", data), ("details", details)];
            let members: Map<_, _> =
                members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
            if members.is_empty() { Value::Null } else { Value::Object(members) }
        }
    }
}
