//! The source of an entry: the text as it was sent or received, before rendering.

use std::borrow::Cow;

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use serde_json::Value;

use super::super::host::TextPage;
use super::super::links::sole_address;
use super::super::transcript::{EntryKind, ToolEntry, Transcript};
use super::{DocEntry, Document};
use aye_core::contract::diff::unified;
use aye_core::contract::snapshot::Changes;

/// The texts of an entry, for a search.
pub fn pieces(kind: &EntryKind) -> Vec<Cow<'_, str>> {
    match kind {
        EntryKind::User { text, .. } | EntryKind::Assistant { text, .. } | EntryKind::Thinking { text } => {
            vec![text.into()]
        }
        EntryKind::Notice { text, .. } => vec![text.into()],
        EntryKind::Page(page) => vec![page.title.as_str().into(), page.text.as_str().into()],
        EntryKind::Changes(changes) => vec![changes_of(changes).into()],
        EntryKind::Document(doc_entry) => doc_entry_pieces(doc_entry),
        EntryKind::Tool(tool) => {
            let mut found = vec![Cow::Borrowed(tool.name.as_str())];
            strings(&tool.arguments, &mut found);
            if let Some(result) = &tool.result {
                match (&result.message, &result.data) {
                    (Some(message), _) => found.push(message.into()),
                    (None, data) => strings(data, &mut found),
                }
            }
            found.extend(tool.tail.last(usize::MAX).into_iter().map(Cow::Borrowed));
            found
        }
    }
}

fn strings<'a>(value: &'a Value, out: &mut Vec<Cow<'a, str>>) {
    match value {
        Value::String(text) => out.push(text.into()),
        Value::Array(list) => list.iter().for_each(|value| strings(value, out)),
        Value::Object(map) => map.values().for_each(|value| strings(value, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push(value.to_string().into()),
    }
}

/// Returns the text to copy to the clipboard for an entry.
pub fn text(kind: &EntryKind) -> String {
    match kind {
        EntryKind::User { text, .. } | EntryKind::Assistant { text, .. } | EntryKind::Thinking { text } => {
            text.clone()
        }
        EntryKind::Notice { text, .. } => text.clone(),
        EntryKind::Page(TextPage { title, text, is_literal, is_markdown }) => match sole_address(text) {
            Some(address) => address.to_owned(),
            None if *is_literal || *is_markdown => format!("{title}\n{text}"),
            None => format!("{title}\n{}", text.replace('\t', "  ")),
        },
        EntryKind::Changes(changes) => changes_of(changes),
        EntryKind::Document(doc_entry) => doc_entry_text(doc_entry),
        EntryKind::Tool(tool) => call(tool),
    }
}

fn doc_entry_pieces(doc_entry: &DocEntry) -> Vec<Cow<'_, str>> {
    match doc_entry {
        DocEntry::File(file) => vec![file.shown.as_str().into()],
        DocEntry::Hunk(hunk) => hunk.patch.all_lines().map(Cow::Borrowed).collect(),
    }
}

fn doc_entry_text(doc_entry: &DocEntry) -> String {
    match doc_entry {
        DocEntry::File(file) => file.shown.clone(),
        DocEntry::Hunk(hunk) => hunk.patch.unified(),
    }
}

/// Renders a document as a patch.
pub fn document_patch(document: &Document) -> String {
    let mut all = String::new();
    for entry in document.pages.entries() {
        if let EntryKind::Document(doc_entry) = &entry.kind
            && let DocEntry::File(file) = &**doc_entry
        {
            all.extend(["--- a/", &file.shown, "\n+++ b/", &file.shown, "\n"]);
            continue;
        }
        all.push_str(text(&entry.kind).trim_end());
        all.push('\n');
    }
    all
}

/// Renders file changes as a patch.
fn changes_of(changes: &Changes) -> String {
    let mut all = changes.notes.join("\n");
    for file in &changes.files {
        let path = &file.about.path;
        let Some(preview) = &file.preview else {
            all.extend(["\n", path, ": binary, or too long to show"]);
            continue;
        };
        let before = preview.old_text.as_deref().unwrap_or_default();
        let after = preview.new_text.as_deref().unwrap_or_default();
        all.extend(["\n".to_owned(), unified(before, after, Some((path, path)), 3)]);
    }
    all.trim().to_owned()
}

/// Renders a call: its request and its result.
fn call(tool: &ToolEntry) -> String {
    let asked = match tool.arguments.get("command").and_then(Value::as_str) {
        Some(command) if tool.name == "Bash" => format!("$ {command}"),
        _ if tool.arguments.is_null() => tool.name.clone(),
        _ => {
            let arguments = serde_json::to_string_pretty(&tool.arguments).unwrap_or_default();
            format!("{} {arguments}", tool.name)
        }
    };
    let mut output = tool.output();
    if output.is_empty() {
        output = tool.tail.last(usize::MAX).join("\n");
    }
    format!("{asked}\n{output}").trim_end().to_owned()
}

/// The whole conversation as Markdown, for an editor.
pub fn conversation(transcript: &Transcript) -> String {
    let mut all = String::new();
    for entry in transcript.entries() {
        let (heading, fenced) = match &entry.kind {
            EntryKind::User { .. } => ("# You", false),
            EntryKind::Assistant { .. } => ("# Answer", false),
            EntryKind::Thinking { .. } => ("# Thoughts", false),
            EntryKind::Tool(_) => ("# Call", true),
            EntryKind::Changes(_) => ("# Changes", true),
            EntryKind::Notice { .. } | EntryKind::Page(_) | EntryKind::Document(_) => ("# Note", true),
        };
        let text = text(&entry.kind);
        let text = text.trim_end();
        all.push_str(heading);
        if fenced {
            let mut mark = "```".to_owned();
            while text.contains(&mark) {
                mark.push('`');
            }
            all.extend(["\n\n", &mark, "\n", text, "\n", &mark, "\n\n"]);
        } else {
            all.extend(["\n\n", text, "\n\n"]);
        }
    }
    all
}

/// A block of code in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The language as given in the message.
    pub language: String,
    pub text: String,
}

/// The blocks of code in a text that have text, in order.
pub fn code_blocks(text: &str) -> Vec<Code> {
    let mut blocks = Vec::new();
    let mut open: Option<Code> = None;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = match kind {
                    CodeBlockKind::Fenced(info) => {
                        info.split([' ', ',']).next().unwrap_or_default().to_owned()
                    }
                    CodeBlockKind::Indented => String::new(),
                };
                open = Some(Code { language, text: String::new() });
            }
            Event::Text(part) => {
                if let Some(code) = &mut open {
                    code.text.push_str(&part);
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(open.take().filter(|code| !code.text.is_empty())),
            _ => {}
        }
    }
    blocks
}
