//! The built-in model: offline, scripted, honest about it. It understands a handful of commands and drives the same
//! tools, rules and questions as any model, so that the product can be seen without a key.

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use serde_json::{Value, json};

use super::fold::{CallKey, Fold};
use super::scripted::whole;
use super::{estimate, repair};
use aye_core::contract::executor::{InferenceExecutionError, InferenceRequest, LlmExecutor, LlmStream};
use aye_core::contract::inference::{StopReason, StreamResult, TokenUsage};
use aye_core::contract::message::{Message, Role, ToolCall};

/// The longest piece of a tool's output that is shown again, in characters.
const MAX_SHOWN: usize = 2000;

const HELP: &str = "I understand:

| type | and I |
| --- | --- |
| `list files` | list the files of this \
                    folder |
| `read FILE` | read a file |
| `search WORD` | search the files for a word |
| \
                    `run COMMAND` | run a shell command after your approval |
| `edit FILE: OLD -> NEW` | \
                    replace text in a file |
| `write FILE: TEXT` | write a file |
| `ask me` | ask you a \
                    question |
| `help` | show this table |
";

#[derive(Clone, Copy, Debug, Default)]
pub struct DemoExecutor;

impl DemoExecutor {
    pub fn new() -> Self {
        Self
    }
}

/// The model's next reply.
#[derive(Debug, PartialEq)]
enum Reply {
    Text(String),
    Call { text: String, tool: &'static str, args: Value },
}

impl Reply {
    fn call(text: impl Into<String>, tool: &'static str, args: Value) -> Self {
        Self::Call { text: text.into(), tool, args }
    }
}

fn reply(request: &InferenceRequest) -> Reply {
    let messages = repair::repair(request.messages.to_vec());
    // The messages after the user's last one are its results. Messages that plugins add only for the model do
    // not come from the user.
    let last_user = messages.iter().rposition(|message| {
        message.role == Role::User && message.visibility == aye_core::contract::message::Visibility::All
    });
    let Some(at) = last_user else { return Reply::Text(greeting()) };
    let calls: Vec<&ToolCall> = messages[at..].iter().flat_map(|message| &message.tool_calls).collect();
    let results: Vec<&Message> =
        messages[at..].iter().map(Arc::as_ref).filter(|message| message.role == Role::Tool).collect();
    if results.is_empty() {
        return first(&messages[at].text(), request);
    }
    let text: Vec<String> = results.iter().map(|result| about(result, &calls)).collect();
    Reply::Text(text.join("\n\n"))
}

fn greeting() -> String {
    format!("Hello! I am the **demo model** that comes with aye: offline and scripted.\n\n{HELP}")
}

/// Returns the text after a command word, ignoring the case of the word.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let head = text.get(..word.len())?;
    let rest = &text[word.len()..];
    (head.eq_ignore_ascii_case(word) && rest.starts_with(char::is_whitespace)).then(|| rest.trim())
}

fn first(prompt_text: &str, request: &InferenceRequest) -> Reply {
    // Text piped in along with the prompt is context, not part of a file name or a command.
    let prompt_text = prompt_text.split_once("\n\n<stdin>").map_or(prompt_text, |(prompt, _)| prompt).trim();
    let reply = understand(prompt_text);
    // A tool that is not offered (plan mode, a rule) cannot be called.
    if let Reply::Call { tool, .. } = &reply
        && !request.tools.iter().any(|offered| offered.id == *tool)
    {
        return Reply::Text(format!("I would use the tool `{tool}` for that, but it is not available here."));
    }
    reply
}

fn understand(prompt_text: &str) -> Reply {
    let bare = prompt_text.trim_end_matches(['.', '!', '?']).to_ascii_lowercase();
    match bare.as_str() {
        "list files" | "list" | "ls" => {
            return Reply::call("Let me look at this folder.", "List", json!({"path": "."}));
        }
        "ask me" => {
            let args =
                json!({"question": "Which colour do you like best?", "choices": ["red", "green", "blue"]});
            return Reply::call("I have a question for you.", "AskUser", args);
        }
        "help" => return Reply::Text(format!("I am the **demo model**. {HELP}")),
        "hello" | "hi" | "hey" => return Reply::Text(greeting()),
        _ => {}
    }
    if let Some(path) = after(prompt_text, "list files in").or_else(|| after(prompt_text, "list")) {
        return Reply::call(format!("Let me look at {}.", code(path)), "List", json!({"path": path}));
    }
    if let Some(file) = after(prompt_text, "read") {
        return Reply::call(format!("Let me read {}.", code(file)), "Read", json!({"file_path": file}));
    }
    if let Some(word) = after(prompt_text, "search for").or_else(|| after(prompt_text, "search")) {
        // Search for a literal string, not a pattern: a user who types `a.b` means exactly that.
        let args = json!({"pattern": regex::escape(word), "output_mode": "content"});
        return Reply::call(format!("Let me search for {}.", code(word)), "Grep", args);
    }
    if let Some(command) = after(prompt_text, "run") {
        let args = json!({"command": command, "description": "Run the requested command"});
        return Reply::call(format!("I will run {}.", code(command)), "Bash", args);
    }
    if let Some(rest) = after(prompt_text, "edit") {
        return match rest.split_once(": ").and_then(|(file, change)| Some((file, change.split_once(" -> ")?)))
        {
            Some((file, (old, new))) => Reply::call(
                format!("I will change {}.", code(file.trim())),
                "Edit",
                json!({"file_path": file.trim(), "old_string": old, "new_string": new}),
            ),
            None => Reply::Text("An edit looks like this: `edit FILE: OLD -> NEW`.".into()),
        };
    }
    if let Some(rest) = after(prompt_text, "write") {
        return match rest.split_once(':') {
            Some((file, text)) if !file.trim().is_empty() => {
                let text = text.strip_prefix(' ').unwrap_or(text);
                let content = if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
                Reply::call(
                    format!("I will write {}.", code(file.trim())),
                    "Write",
                    json!({"file_path": file.trim(), "content": content}),
                )
            }
            _ => Reply::Text("Writing looks like this: `write FILE: TEXT`.".into()),
        };
    }
    Reply::Text(format!(
        "I am the **demo model** that comes with aye. I am scripted and offline, so I cannot answer that; a real model \
         can, once one is configured (see `aye models`).\n\n{HELP}"
    ))
}

/// Returns the model's comment on a result.
fn about(result: &Message, calls: &[&ToolCall]) -> String {
    let id = result.tool_call_id.as_deref().unwrap_or_default();
    let call = calls.iter().find(|call| call.id == id);
    let name = call.map_or("the tool", |call| call.name.as_str());
    let text = result.text();
    let status = result
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.pointer("/tool_result/status"))
        .and_then(Value::as_str)
        .unwrap_or_default();
    let lower = text.to_ascii_lowercase();
    let start = lower.get(..lower.floor_char_boundary(200)).unwrap_or_default();
    if start.contains("user denied this call") || start.contains("cancelled") {
        return format!("You denied the call, so `{name}` did not run. I stop here.");
    }
    if start.contains("user requested changes") {
        return format!("You requested changes, so `{name}` did not run.");
    }
    if start.contains("denied") || start.contains("not allowed by") {
        return format!("A rule does not allow this, so `{name}` did not run.");
    }
    if name == "AskUser"
        && let Ok(answer) = serde_json::from_str::<Value>(&text)
        && let Some(answer) = answer.get("answer").and_then(Value::as_str)
    {
        return format!("Thank you. Your answer was {}.", code(answer));
    }
    if status == "error" || start.starts_with("error") || text == repair::NO_RESULT {
        return format!("`{name}` did not succeed:\n\n{}", block(&text));
    }
    // What follows is for a model to read.
    if text.starts_with("The user edited the call") {
        return "The call ran as you edited it.".to_owned();
    }
    let done = match name {
        "List" => "Here is what is in the folder:",
        "Read" => "Here is the file:",
        "Grep" => "Here is what I found:",
        "Bash" => "The command ran. Its output:",
        "Edit" => "The file is changed:",
        "Write" => "The file is written:",
        "AskUser" => "Thank you. Your answer was:",
        _ => "Done:",
    };
    if text.trim().is_empty() {
        return format!("`{name}` is done. There was no output.");
    }
    format!("{done}\n\n{}", block(&text))
}

/// Text as an inline piece of code that it cannot break out of.
fn code(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.contains('`') { format!("`` {line} ``") } else { format!("`{line}`") }
}

/// Text as a block of code that it cannot break out of.
fn block(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_SHOWN).collect();
    if shown.len() < text.len() {
        shown.push_str("\n…");
    }
    let longest = shown.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{}\n{fence}", shown.trim_end_matches('\n'))
}

/// Cuts a text into pieces of a few words, as a real model streams.
fn pieces(text: &str) -> Vec<&str> {
    const WORDS: usize = 3;
    let mut pieces = Vec::new();
    let (mut start, mut words, mut in_blank) = (0, 0, true);
    for (at, c) in text.char_indices() {
        let blank = c.is_whitespace();
        if in_blank && !blank {
            if words == WORDS {
                pieces.push(&text[start..at]);
                (start, words) = (at, 0);
            }
            words += 1;
        }
        in_blank = blank;
    }
    if start < text.len() {
        pieces.push(&text[start..]);
    }
    pieces
}

fn stream(request: &InferenceRequest) -> Result<Fold, InferenceExecutionError> {
    let mut fold = Fold::new(request.model.clone(), Arc::clone(&request.messages));
    let reply = reply(request);
    let (text, call) = match &reply {
        Reply::Text(text) => (text, None),
        Reply::Call { text, tool, args } => (text, Some((*tool, args.to_string()))),
    };
    for piece in pieces(text) {
        fold.text(piece)?;
    }
    if let Some((tool, args)) = &call {
        let key = CallKey::Index(0);
        fold.call(key.clone(), Some(&super::fold::fresh_id()), Some(tool), None)?;
        for piece in pieces(args) {
            fold.call(key.clone(), None, None, Some(piece))?;
        }
    }
    let prompt = i32::try_from(estimate::request_tokens(request)).unwrap_or(i32::MAX);
    let completion = i32::try_from(text.len() / 4 + 4).unwrap_or(i32::MAX);
    fold.usage(TokenUsage {
        prompt_tokens: Some(prompt),
        completion_tokens: Some(completion),
        total_tokens: Some(prompt.saturating_add(completion)),
        ..TokenUsage::default()
    });
    fold.stop(StopReason::EndTurn);
    fold.finish();
    Ok(fold)
}

#[async_trait]
impl LlmExecutor for DemoExecutor {
    async fn execute(&self, request: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        whole(self.execute_stream(request).await?).await
    }

    async fn execute_stream(&self, request: InferenceRequest) -> Result<LlmStream, InferenceExecutionError> {
        let fold = stream(&request)?;
        Ok(futures::stream::unfold(fold, |mut fold| async move {
            let event = fold.next_event()?;
            // Yield after each piece, so that readers receive the pieces one at a time, as from a remote
            // model.
            tokio::task::yield_now().await;
            Some((Ok(event), fold))
        })
        .boxed())
    }

    fn name(&self) -> &'static str {
        "demo"
    }
}

#[cfg(test)]
mod tests;
