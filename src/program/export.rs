//! Exports a conversation as text for users or for programs.

use std::fmt::Write as _;

use serde::Serialize;

use crate::contract::child::ChildRecord;
use crate::contract::display::{escape_json, escape_markup, escape_path, visible};
use crate::contract::message::{Message, Role};
use crate::contract::record::{StoredMessage, ThreadRecord};
use crate::contract::storage::{CopyPart, ExportPart, SharedStore, ThreadRest};
use crate::failure::AppError;

/// The number of messages that are read at a time.
const MESSAGES: u64 = 500;

/// A format for conversations, written message by message: a long conversation is never in memory as a whole.
#[derive(Clone, Copy)]
pub(crate) enum ExportEncoder {
    Json,
    Markdown,
    /// For a browser: one file, without scripts and without anything that is fetched.
    Html,
}

impl ExportEncoder {
    /// Returns the text before the first message.
    fn start(self, thread: &ThreadRecord, child: Option<&ChildRecord>) -> String {
        let title = if thread.title.is_empty() { "Conversation" } else { &thread.title };
        match self {
            ExportEncoder::Json => {
                let child = child.map(|child| format!("\"child\": {},\n", json_of(child)));
                let child = child.unwrap_or_default();
                format!("{{\n{child}\"thread\": {},\n\"messages\": [", json_of(thread))
            }
            ExportEncoder::Markdown => {
                let id = visible(thread.id.as_str());
                format!("# {}\n\n{id} · {}\n", visible(title), escape_path(&thread.cwd))
            }
            ExportEncoder::Html => format!(
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
                 <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
                 <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
                 <title>{title}</title>\n<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n<p class=\"place\">{} · {}</p>\n",
                escaped(thread.id.as_str()),
                escaped(&escape_path(&thread.cwd)),
                title = escaped(title),
            ),
        }
    }

    fn message(self, stored: &StoredMessage) -> String {
        match self {
            ExportEncoder::Json => {
                format!("{}\n{}", if stored.seq > 1 { "," } else { "" }, json_of(stored))
            }
            ExportEncoder::Markdown => markdown(&stored.message),
            ExportEncoder::Html => html(&stored.message),
        }
    }

    /// Returns the end of the text.
    fn end(self) -> &'static str {
        match self {
            ExportEncoder::Json => "\n}\n",
            ExportEncoder::Markdown => "",
            ExportEncoder::Html => "</body></html>\n",
        }
    }
}

/// Renders messages of a conversation for a model.
pub(crate) fn as_markdown(thread: &ThreadRecord, messages: &[StoredMessage]) -> String {
    let body: String = messages.iter().map(|stored| markdown(&stored.message)).collect();
    ExportEncoder::Markdown.start(thread, None) + &body
}

/// Writes a conversation message by message. `put` returns whether to go on.
pub(crate) async fn write(
    store: &SharedStore,
    thread: &ThreadRecord,
    form: ExportEncoder,
    mut put: impl FnMut(&str) -> std::io::Result<bool>,
) -> Result<(), AppError> {
    // All positions are checked before anything is written.
    let (count, _) = store.messages_tail(&thread.id, 0).await?;
    let goes_on =
        put(&form.start(thread, None))? && write_messages(store, thread, form, count, &mut put).await?;
    if goes_on {
        let close = if matches!(form, ExportEncoder::Json) { "\n]" } else { "" };
        put(&(close.to_owned() + form.end()))?;
    }
    Ok(())
}

/// Writes everything that `import` reads: the conversation and those of its subagents, as JSON. All of it is from one
/// moment, although a run may write in the meantime.
pub(crate) async fn write_all(
    store: &SharedStore,
    thread: &ThreadRecord,
    put: impl FnMut(&str) -> std::io::Result<bool>,
) -> Result<(), AppError> {
    let mut writer = JsonWriter::new(put);
    let mut feed = store.export_thread(&thread.id);
    'parts: while let Some(parts) = feed.next().await? {
        for part in &parts {
            if !writer.write(part) {
                break 'parts;
            }
        }
    }
    writer.finish()
}

/// The lists of a conversation in their order: what opens and closes them.
const LISTS: [(&str, &str); 4] = [
    ("\"messages\": [", "\n]"),
    ("\"runs\": [", "\n]"),
    ("\"summaries\": [", "\n]"),
    ("\"images\": {", "\n}"),
];
/// The bytes that are collected before they are written.
const CHUNK: usize = 64 * 1024;

/// Writes the parts of conversations as they come.
struct JsonWriter<F> {
    put: F,
    /// What was not written yet.
    text: String,
    /// The number of conversations that have started.
    threads: usize,
    /// The position of the open list in [`LISTS`].
    list: usize,
    /// Whether the open list has an entry.
    has_entry: bool,
    /// Set when nobody reads on.
    is_left: bool,
    failed: Option<std::io::Error>,
}

impl<F: FnMut(&str) -> std::io::Result<bool>> JsonWriter<F> {
    fn new(put: F) -> Self {
        Self { put, text: String::new(), threads: 0, list: 0, has_entry: false, is_left: false, failed: None }
    }

    /// Returns whether to go on.
    fn write(&mut self, part: &ExportPart) -> bool {
        match part {
            ExportPart::Start { child, thread } => self.start(thread, child.as_ref()),
            ExportPart::Part(CopyPart::Message(stored)) => self.entry(0, &json_of(stored)),
            ExportPart::Part(CopyPart::Run(run)) => self.entry(1, &json_of(run)),
            ExportPart::Part(CopyPart::Summary(summary)) => self.entry(2, &json_of(summary)),
            ExportPart::Part(CopyPart::Image { hash, data }) => {
                self.entry(3, &format!("{}: {}", json_of(hash), json_of(data)));
            }
            ExportPart::End(rest) => self.end(rest),
        }
        self.text.len() < CHUNK || self.flush()
    }

    fn start(&mut self, thread: &ThreadRecord, child: Option<&ChildRecord>) {
        self.text.push_str(match self.threads {
            0 => "",
            1 => ",\n\"children\": [\n",
            _ => ",\n",
        });
        self.text.push_str(&ExportEncoder::Json.start(thread, child));
        (self.threads, self.list, self.has_entry) = (self.threads + 1, 0, false);
    }

    fn entry(&mut self, list: usize, json: &str) {
        self.open(list);
        self.text.push_str(if self.has_entry { ",\n" } else { "\n" });
        self.text.push_str(json);
        self.has_entry = true;
    }

    /// Closes the open list and those between, and opens this one.
    fn open(&mut self, list: usize) {
        while self.list < list {
            let (closes, opens) = (LISTS[self.list].1, LISTS[self.list + 1].0);
            self.text.extend([closes, ",\n", opens]);
            (self.list, self.has_entry) = (self.list + 1, false);
        }
    }

    fn end(&mut self, rest: &ThreadRest) {
        self.open(LISTS.len() - 1);
        self.text.push_str(LISTS[self.list].1);
        let mut members = serde_json::to_value(rest).unwrap_or_default();
        if let Some(members) = members.as_object_mut() {
            members.retain(|name, _| !matches!(name.as_str(), "runs" | "summaries" | "images"));
        }
        // The members go into the object that is open.
        let object = json_of(&members);
        let members = object.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
        if !members.is_empty() {
            self.text.extend([",\n", members]);
        }
        if self.threads > 1 {
            self.text.push_str("\n}");
        }
    }

    fn flush(&mut self) -> bool {
        match (self.put)(&std::mem::take(&mut self.text)) {
            Ok(goes_on) => self.is_left = !goes_on,
            Err(error) => self.failed = Some(error),
        }
        !self.is_left && self.failed.is_none()
    }

    fn finish(&mut self) -> Result<(), AppError> {
        if !self.is_left && self.failed.is_none() {
            self.text.push_str(if self.threads > 1 { "\n]" } else { "" });
            self.text.push_str(ExportEncoder::Json.end());
            self.flush();
        }
        self.failed.take().map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Writes this many messages from the first one on. Returns whether to go on.
async fn write_messages(
    store: &SharedStore,
    thread: &ThreadRecord,
    form: ExportEncoder,
    count: u64,
    put: &mut impl FnMut(&str) -> std::io::Result<bool>,
) -> Result<bool, AppError> {
    let mut at = 1;
    while at <= count {
        let next = (at + MESSAGES).min(count + 1);
        let length = usize::try_from(next - at).unwrap_or(usize::MAX);
        let stored = store.messages_before(&thread.id, next, length).await?;
        if !put(&stored.iter().map(|stored| form.message(stored)).collect::<String>())? {
            return Ok(false);
        }
        at = next;
    }
    Ok(true)
}

/// Returns one line of JSON without anything that a terminal would interpret.
fn json_of<T: Serialize>(value: &T) -> String {
    escape_json(&serde_json::to_string(value).unwrap_or_default())
}

fn markdown(message: &Message) -> String {
    let mut out = String::new();
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
            let (outcome, tool) = (outcome(message), tool(message));
            let _ = write!(out, "\n{outcome}: {tool}\n\n{}\n", fenced("", &message.text()));
        }
    }
    out
}

fn html(message: &Message) -> String {
    let mut out = String::new();
    match message.role {
        Role::System => {}
        Role::User => block(&mut out, "user", "You", &message.text()),
        Role::Assistant => {
            if !message.text().trim().is_empty() {
                block(&mut out, "model", "aye", &message.text());
            }
            for call in &message.tool_calls {
                let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
                folded(&mut out, &format!("→ {}", call.name), &arguments);
            }
        }
        Role::Tool => {
            folded(&mut out, &format!("{}: {}", outcome(message), tool(message)), &message.text());
        }
    }
    out
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;\
    color-scheme:light dark}h1{font-size:1.4rem}.place{opacity:.6}section{margin:1rem 0;padding:.6rem 1rem;\
    border-left:3px solid #8884}.user{border-color:#48f}h2{font-size:.8rem;margin:0;opacity:.6}\
    pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0;font:inherit}\
    details pre{font:13px/1.4 ui-monospace,monospace}details{margin:.4rem 1rem;opacity:.85}";

fn block(out: &mut String, class: &str, who: &str, text: &str) {
    let _ = writeln!(
        out,
        "<section class=\"{class}\"><h2>{who}</h2><pre>{}</pre></section>",
        escaped(text.trim_end())
    );
}

fn folded(out: &mut String, head: &str, text: &str) {
    let _ = writeln!(
        out,
        "<details><summary>{}</summary><pre>{}</pre></details>",
        escaped(head),
        escaped(text.trim_end())
    );
}

/// Escapes text so that it has no special meaning.
fn escaped(text: &str) -> String {
    escape_markup(&visible(text))
}

fn section(out: &mut String, who: &str, text: &str) {
    let _ = write!(out, "\n## {who}\n\n{}\n", visible(text.trim_end()));
}

/// Names the tool, and the profile that the kernel enforced.
fn tool(message: &Message) -> String {
    let about = |place: &str| message.metadata.as_ref().and_then(|m| m.pointer(place)?.as_str());
    let mut text = visible(about("/tool_result/tool_name").unwrap_or("result")).into_owned();
    if let Some(profile) = about("/tool_result/details/profile") {
        let _ = write!(text, " ({})", visible(profile));
    }
    text
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
