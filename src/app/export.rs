//! A conversation as text for people or for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::contract::display::visible;
use crate::contract::message::{Message, Role};
use crate::contract::record::{StoredMessage, ThreadRecord};

/// For programs: everything that is stored.
pub(super) fn as_json(thread: &ThreadRecord, messages: &[StoredMessage]) -> Value {
    json!({"thread": thread, "messages": messages})
}

/// For people.
pub(super) fn as_markdown(thread: &ThreadRecord, messages: &[StoredMessage]) -> String {
    let title = if thread.title.is_empty() { "Conversation" } else { &thread.title };
    let mut out = format!("# {}\n\n{} · {}\n", visible(title), thread.id, thread.cwd.display());
    for stored in messages {
        let message = &stored.message;
        match message.role {
            Role::System => {}
            Role::User => section(&mut out, "You", &message.text()),
            Role::Assistant => {
                if !message.text().trim().is_empty() {
                    section(&mut out, "aye", &message.text());
                }
                for call in &message.tool_calls {
                    let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
                    let _ = write!(out, "\n### {}\n\n{}\n", visible(&call.name), fenced("json", &arguments));
                }
            }
            Role::Tool => {
                let _ = write!(
                    out,
                    "\n{}: {}\n\n{}\n",
                    outcome(message),
                    tool(message),
                    fenced("", &message.text())
                );
            }
        }
    }
    out
}

fn section(out: &mut String, who: &str, text: &str) {
    let _ = write!(out, "\n## {who}\n\n{}\n", visible(text.trim_end()));
}

fn tool(message: &Message) -> String {
    let name = message.metadata.as_ref().and_then(|m| m.pointer("/tool_result/tool_name")?.as_str());
    visible(name.unwrap_or("result")).into_owned()
}

fn outcome(message: &Message) -> &str {
    message.metadata.as_ref().and_then(|m| m.get("outcome")?.as_str()).unwrap_or("result")
}

/// A fence that is longer than any in the text.
fn fenced(language: &str, text: &str) -> String {
    let longest = text
        .lines()
        .map(|line| line.trim_start().chars().take_while(|c| *c == '`').count())
        .max()
        .unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", visible(text.trim_end()))
}
