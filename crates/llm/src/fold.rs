//! Folds the facts of one streamed answer into events and the whole answer.
//!
//! Everything a provider can get wrong about a call is settled here, so later code can rely on it: ids are
//! unique in the thread, names contain no control characters, and arguments are an object or the call states
//! why not.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use serde_json::{Map, Value};

use aye_core::contract::content::ContentBlock;
use aye_core::contract::executor::{InferenceExecutionError, LlmStreamEvent};
use aye_core::contract::inference::{StopReason, StreamResult, TokenUsage};
use aye_core::contract::json::depth_of;
use aye_core::contract::message::{Message, ToolCall};

/// The most text, thoughts included, that one answer may have, in bytes.
pub const MAX_TEXT: usize = 8 << 20;
/// The most argument text that one call may have, in bytes.
pub const MAX_ARGUMENTS: usize = 4 << 20;
/// The deepest nesting of arguments.
pub const MAX_DEPTH: usize = 128;
/// The most calls in one answer.
pub const MAX_CALLS: usize = 256;
const MAX_ID: usize = 256;
/// Maximum characters of a provider's word on why it stopped.
const MAX_DETAIL: usize = 300;
const MAX_NAME: usize = 128;

/// The way a provider identifies the call that a piece belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallKey {
    /// By a number of its own.
    Index(u64),
    /// Not at all: the call that came last.
    Last,
}

#[derive(Debug, Default)]
struct CallDraft {
    /// The provider's id, only used to recognise the call's pieces.
    raw_id: String,
    id: String,
    name: String,
    name_problem: Option<String>,
    args: String,
    too_long: bool,
    started: bool,
    /// The provider said that the arguments are complete.
    closed: bool,
    signatures: Vec<String>,
}

/// A piece of the answer, in the order of arrival.
#[derive(Debug)]
enum FoldPart {
    Block(ContentBlock),
    /// The call with this place among the calls.
    Call(usize),
}

/// The answer so far.
#[derive(Debug)]
pub struct Fold {
    model: String,
    out: VecDeque<LlmStreamEvent>,
    parts: Vec<FoldPart>,
    calls: Vec<CallDraft>,
    by_index: HashMap<u64, usize>,
    ids: CallIds,
    text_bytes: usize,
    usage: Option<TokenUsage>,
    stop_reason: Option<StopReason>,
    finished: bool,
}

impl Fold {
    /// Creates an empty answer of `model` to these messages. Their call ids are not given again: with a provider
    /// that restarts its numbering in each answer, a call must not be bound to an old decision or result.
    pub fn new(model: impl Into<String>, messages: Arc<Vec<Arc<Message>>>) -> Self {
        Self {
            model: model.into(),
            out: VecDeque::new(),
            parts: Vec::new(),
            calls: Vec::new(),
            by_index: HashMap::new(),
            ids: CallIds { unread: Some(messages), used: HashSet::new() },
            text_bytes: 0,
            usage: None,
            stop_reason: None,
            finished: false,
        }
    }

    /// The next event that is ready.
    pub fn next_event(&mut self) -> Option<LlmStreamEvent> {
        self.out.pop_front()
    }

    /// Returns whether the answer is complete; anything that comes after that is ignored.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Returns whether the provider gave a reason for stopping.
    pub fn has_stop_reason(&self) -> bool {
        self.stop_reason.is_some()
    }

    /// Returns whether the answer is still empty.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn last_block(&mut self) -> Option<&mut ContentBlock> {
        match self.parts.last_mut() {
            Some(FoldPart::Block(block)) => Some(block),
            Some(FoldPart::Call(_)) | None => None,
        }
    }

    fn push_block(&mut self, block: ContentBlock) {
        self.parts.push(FoldPart::Block(block));
    }

    fn grow(&mut self, bytes: usize) -> Result<(), InferenceExecutionError> {
        self.text_bytes = self.text_bytes.saturating_add(bytes);
        if self.text_bytes > MAX_TEXT {
            // Not an error that a repetition cures, so not one that is repeated.
            return Err(InferenceExecutionError::InvalidRequest(format!(
                "{} answered with more than {} MiB of text, the limit for one answer",
                self.model,
                MAX_TEXT >> 20
            )));
        }
        Ok(())
    }

    /// More text.
    ///
    /// # Errors
    /// [`InferenceExecutionError::InvalidRequest`] past [`MAX_TEXT`].
    pub fn text(&mut self, text: &str) -> Result<(), InferenceExecutionError> {
        if self.finished || text.is_empty() {
            return Ok(());
        }
        self.grow(text.len())?;
        if let Some(ContentBlock::Text { text: last }) = self.last_block() {
            last.push_str(text);
        } else {
            self.push_block(ContentBlock::text(text));
        }
        self.out.push_back(LlmStreamEvent::TextDelta(text.to_owned()));
        Ok(())
    }

    /// More thoughts.
    ///
    /// # Errors
    /// [`InferenceExecutionError::InvalidRequest`] past [`MAX_TEXT`].
    pub fn reasoning(&mut self, text: &str) -> Result<(), InferenceExecutionError> {
        if self.finished || text.is_empty() {
            return Ok(());
        }
        self.grow(text.len())?;
        // A signature closes its block: what follows it is another thought.
        if let Some(ContentBlock::Thinking { thinking, signature: None }) = self.last_block() {
            thinking.push_str(text);
        } else {
            self.push_block(ContentBlock::Thinking { thinking: text.to_owned(), signature: None });
        }
        self.out.push_back(LlmStreamEvent::ReasoningDelta(text.to_owned()));
        Ok(())
    }

    /// Starts a new thinking block, even if the last one was never signed.
    pub fn begin_thinking(&mut self) {
        if !self.finished {
            self.push_block(ContentBlock::Thinking { thinking: String::new(), signature: None });
        }
    }

    /// The proof of the thoughts so far, whole.
    ///
    /// # Errors
    /// [`InferenceExecutionError::InvalidRequest`] past [`MAX_TEXT`].
    pub fn sign_thinking(&mut self, proof: String) -> Result<(), InferenceExecutionError> {
        if self.finished || proof.is_empty() {
            return Ok(());
        }
        self.grow(proof.len())?;
        self.out.push_back(LlmStreamEvent::ReasoningEncrypted(proof.clone()));
        match self.last_block() {
            Some(ContentBlock::Thinking { signature: signature @ None, .. }) => *signature = Some(proof),
            _ => {
                self.push_block(ContentBlock::Thinking { thinking: String::new(), signature: Some(proof) });
            }
        }
        Ok(())
    }

    /// A piece that only its provider understands.
    ///
    /// # Errors
    /// [`InferenceExecutionError::InvalidRequest`] past [`MAX_TEXT`].
    pub fn opaque(&mut self, provider: &str, data: Value) -> Result<(), InferenceExecutionError> {
        if self.finished {
            return Ok(());
        }
        self.grow(data.to_string().len())?;
        self.push_block(ContentBlock::Opaque { provider: provider.to_owned(), data });
        Ok(())
    }

    /// Adds a piece of a call, with any of id, name and arguments.
    ///
    /// # Errors
    /// [`InferenceExecutionError::InvalidRequest`] past [`MAX_CALLS`].
    pub fn call(
        &mut self,
        key: CallKey,
        id: Option<&str>,
        name: Option<&str>,
        args: Option<&str>,
    ) -> Result<(), InferenceExecutionError> {
        if self.finished {
            return Ok(());
        }
        let id = id.filter(|id| !id.is_empty());
        let name = name.filter(|name| !name.is_empty());
        let at = match self.find(&key, id, name) {
            Some(at) => at,
            None => self.open(&key, id)?,
        };
        let draft = &mut self.calls[at];
        if draft.raw_id.is_empty()
            && !draft.started
            && let Some(id) = id
        {
            // The id arrived after the first piece; the placeholder id has not been emitted yet.
            id.clone_into(&mut draft.raw_id);
            draft.id = self.ids.take(id);
        }
        if draft.name.is_empty()
            && let Some(name) = name
        {
            (draft.name, draft.name_problem) = clean_name(name);
        }
        let mut fresh = String::new();
        if !draft.started && !draft.name.is_empty() {
            draft.started = true;
            self.out
                .push_back(LlmStreamEvent::ToolCallStart { id: draft.id.clone(), name: draft.name.clone() });
            // Arguments that came before the name.
            fresh.clone_from(&draft.args);
        }
        if let Some(args) = args {
            if draft.too_long || draft.args.len().saturating_add(args.len()) > MAX_ARGUMENTS {
                draft.too_long = true;
                draft.args = String::new();
            } else {
                draft.args.push_str(args);
                fresh.push_str(args);
            }
        }
        if draft.started && !draft.too_long && !fresh.is_empty() {
            self.out.push_back(LlmStreamEvent::ToolCallDelta { id: draft.id.clone(), args_delta: fresh });
        }
        Ok(())
    }

    /// Returns the draft that a piece belongs to; `None` means that the piece starts another one.
    fn find(&self, key: &CallKey, id: Option<&str>, name: Option<&str>) -> Option<usize> {
        let at = match key {
            CallKey::Index(index) => *self.by_index.get(index)?,
            CallKey::Last => self.calls.len().checked_sub(1)?,
        };
        let draft = &self.calls[at];
        // Some gateways number every call 0 or leave the number out: another id with a name is another call. An id
        // alone is not, since there are servers that make up a new one for each piece.
        let other_id = id.is_some_and(|id| !draft.raw_id.is_empty() && id != draft.raw_id);
        let named_again = name.is_some() && !draft.name.is_empty();
        let another = match key {
            CallKey::Index(_) => other_id && named_again,
            CallKey::Last => (other_id || id.is_none()) && named_again,
        };
        (!another).then_some(at)
    }

    fn open(&mut self, key: &CallKey, id: Option<&str>) -> Result<usize, InferenceExecutionError> {
        if self.calls.len() >= MAX_CALLS {
            return Err(InferenceExecutionError::InvalidRequest(format!(
                "{} requested more than {MAX_CALLS} tool calls in one answer",
                self.model
            )));
        }
        let at = self.calls.len();
        if let CallKey::Index(index) = key {
            self.by_index.insert(*index, at);
        }
        let raw_id = id.unwrap_or_default().to_owned();
        let id = if raw_id.is_empty() { fresh_id() } else { self.ids.take(&raw_id) };
        self.calls.push(CallDraft { raw_id, id, ..CallDraft::default() });
        self.parts.push(FoldPart::Call(at));
        Ok(at)
    }

    /// The whole argument text of a call, which wins over the pieces that came before.
    pub fn call_arguments_are(&mut self, key: &CallKey, whole: &str) {
        let at = match key {
            CallKey::Index(index) => self.by_index.get(index).copied(),
            CallKey::Last => self.calls.len().checked_sub(1),
        };
        let Some(draft) = at.and_then(|at| self.calls.get_mut(at)) else { return };
        if self.finished || whole.is_empty() {
            return;
        }
        draft.closed = true;
        if whole.len() > MAX_ARGUMENTS {
            draft.too_long = true;
        } else if draft.args != whole {
            if let Some(rest) = whole.strip_prefix(draft.args.as_str())
                && draft.started
            {
                self.out.push_back(LlmStreamEvent::ToolCallDelta {
                    id: draft.id.clone(),
                    args_delta: rest.to_owned(),
                });
            }
            whole.clone_into(&mut draft.args);
        }
    }

    /// The provider closed a call: its arguments are not cut off.
    pub fn close_call(&mut self, key: &CallKey) {
        if let CallKey::Index(index) = key
            && let Some(at) = self.by_index.get(index)
            && !self.finished
        {
            self.calls[*at].closed = true;
        }
    }

    /// A proof that belongs to the call that came last.
    pub fn sign_call(&mut self, proof: String) {
        if let Some(draft) = self.calls.last_mut()
            && !self.finished
        {
            draft.signatures.push(proof);
        }
    }

    /// Sets why the model stopped. A later reason replaces an earlier one, but never one by which something was
    /// withheld: some servers say `stop` after a refusal.
    pub fn stop(&mut self, reason: StopReason) {
        if !self.finished && !self.stop_reason.is_some_and(StopReason::is_withheld) {
            self.stop_reason = Some(reason);
        }
    }

    /// Ends the answer as withheld, with the provider's stated reason if it gave one.
    pub fn withhold(&mut self, reason: StopReason, detail: Option<&str>) {
        if self.finished {
            return;
        }
        self.stop(reason);
        if let Some(detail) = detail.map(str::trim).filter(|detail| !detail.is_empty()) {
            self.out.push_back(LlmStreamEvent::StopDetail(detail.chars().take(MAX_DETAIL).collect()));
        }
    }

    /// Records the token usage; a later report replaces the fields it has.
    pub fn usage(&mut self, usage: TokenUsage) {
        if self.finished || usage == TokenUsage::default() {
            return;
        }
        let all = self.usage.get_or_insert_default();
        all.prompt_tokens = usage.prompt_tokens.or(all.prompt_tokens);
        all.completion_tokens = usage.completion_tokens.or(all.completion_tokens);
        all.total_tokens = usage.total_tokens.or(all.total_tokens);
        all.cache_read_tokens = usage.cache_read_tokens.or(all.cache_read_tokens);
        all.cache_creation_tokens = usage.cache_creation_tokens.or(all.cache_creation_tokens);
        all.thinking_tokens = usage.thinking_tokens.or(all.thinking_tokens);
    }

    /// The answer is complete: its `Finish` is queued, once.
    pub fn finish(&mut self) {
        if self.finished {
            return;
        }
        self.finished = true;
        // The conversation can grow without copying its list only while nobody else has that.
        self.ids.unread = None;
        let cut = self.stop_reason == Some(StopReason::MaxTokens);
        let mut has_incomplete_tool_calls = false;
        let mut tool_calls = Vec::with_capacity(self.calls.len());
        let ids: Vec<String> = self.calls.iter().map(|draft| draft.id.clone()).collect();
        let count = self.calls.len();
        for (at, mut draft) in std::mem::take(&mut self.calls).into_iter().enumerate() {
            if !draft.started {
                if draft.name.is_empty() {
                    (draft.name, draft.name_problem) = clean_name("");
                }
                self.out.push_back(LlmStreamEvent::ToolCallStart {
                    id: draft.id.clone(),
                    name: draft.name.clone(),
                });
            }
            let parsed =
                if draft.too_long { Err(ArgumentsError::TooLong) } else { parse_arguments(&draft.args) };
            let is_last = at + 1 == count;
            if cut && is_last && !draft.closed && (parsed.is_err() || draft.args.trim().is_empty()) {
                has_incomplete_tool_calls = true;
                continue;
            }
            let (arguments, args_problem) = match parsed {
                Ok(arguments) => (arguments, None),
                Err(problem) => (Value::Object(Map::new()), Some(problem.to_string())),
            };
            tool_calls.push(ToolCall {
                id: draft.id,
                name: draft.name,
                arguments,
                invalid: draft.name_problem.or(args_problem),
                signatures: draft.signatures,
            });
        }
        // A stop reason of "tools" without calls is a normal end; taken literally, it would cause a loop.
        let stop_reason = match self.stop_reason {
            Some(StopReason::ToolUse) if tool_calls.is_empty() => Some(StopReason::EndTurn),
            Some(StopReason::EndTurn) | None if !tool_calls.is_empty() => Some(StopReason::ToolUse),
            other => other,
        };
        let mut content = Vec::with_capacity(self.parts.len());
        for part in std::mem::take(&mut self.parts) {
            match part {
                FoldPart::Block(ContentBlock::Thinking { thinking, signature: None })
                    if thinking.is_empty() => {}
                FoldPart::Block(block) => content.push(block),
                FoldPart::Call(at) if tool_calls.iter().any(|call: &ToolCall| call.id == ids[at]) => {
                    content.push(ContentBlock::ToolCall { id: ids[at].clone() });
                }
                FoldPart::Call(_) => {}
            }
        }
        // Calls with nothing after them need no place.
        while let Some(ContentBlock::ToolCall { .. }) = content.last() {
            content.pop();
        }
        let result = StreamResult {
            content,
            tool_calls,
            usage: self.usage.take(),
            stop_reason,
            has_incomplete_tool_calls,
        };
        self.out.push_back(LlmStreamEvent::Finish { result, model: self.model.clone() });
    }
}

/// An id that no other call has.
pub fn fresh_id() -> String {
    format!("call_{}", uuid::Uuid::new_v4().simple())
}

/// The call ids that are taken.
#[derive(Debug)]
struct CallIds {
    /// The messages before the answer, until its first call: reading all of them costs more with each turn.
    unread: Option<Arc<Vec<Arc<Message>>>>,
    used: HashSet<String>,
}

impl CallIds {
    /// Returns the id of a call: the given one, if it is usable and free.
    fn take(&mut self, raw: &str) -> String {
        if let Some(messages) = self.unread.take() {
            self.used
                .extend(messages.iter().flat_map(|message| &message.tool_calls).map(|call| call.id.clone()));
        }
        let usable = raw.len() <= MAX_ID && !raw.chars().any(|c| c.is_control() || c.is_whitespace());
        if usable && self.used.insert(raw.to_owned()) {
            return raw.to_owned();
        }
        let id = fresh_id();
        self.used.insert(id.clone());
        id
    }
}

/// A name that can be shown, stored and sent back, and what was wrong with the one that came.
fn clean_name(raw: &str) -> (String, Option<String>) {
    let name = raw.trim_matches(' ');
    if name.is_empty() {
        return ("unnamed_tool".into(), Some("the tool name is empty".into()));
    }
    if name.len() > MAX_NAME {
        let short: String = name.chars().filter(|c| !is_hidden(*c)).take(MAX_NAME / 4).collect();
        return (short, Some(format!("the tool name is longer than {MAX_NAME} bytes")));
    }
    if let Some(bad) = name.chars().find(|c| is_hidden(*c)) {
        // The placeholder can never be the name of a real tool: no tool is called "..._".
        let shown: String = name.chars().map(|c| if is_hidden(c) { '_' } else { c }).collect();
        let problem = format!("the tool name contains the invisible character U+{:04X}", u32::from(bad));
        return (format!("invalid_{shown}"), Some(problem));
    }
    (name.to_owned(), None)
}

fn is_hidden(c: char) -> bool {
    c.is_control()
        || c.is_whitespace()
        || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Reads argument text. No text and `null` are no arguments.
///
/// # Errors
/// [`ArgumentsError`].
pub fn parse_arguments(text: &str) -> Result<Value, ArgumentsError> {
    let text = text.trim();
    if text.is_empty() || text == "null" {
        return Ok(Value::Object(Map::new()));
    }
    match parse_unique(text)? {
        // The object as a text: some servers encode it twice.
        Value::String(inner) if inner.trim_start().starts_with('{') => match parse_unique(&inner) {
            Ok(value @ Value::Object(_)) => Ok(value),
            Ok(_) | Err(_) => Err(ArgumentsError::NoObject("a text")),
        },
        value @ Value::Object(_) => Ok(value),
        value => Err(ArgumentsError::NoObject(kind_of(&value))),
    }
}

fn parse_unique(text: &str) -> Result<Value, ArgumentsError> {
    // Check this before parsing, so that no parser's recursion has to be trusted.
    if depth_of(text) > MAX_DEPTH {
        return Err(ArgumentsError::TooDeep);
    }
    match serde_json::from_str::<Unique>(text) {
        Ok(Unique(value)) => Ok(value),
        Err(error) if error.is_eof() => Err(ArgumentsError::CutOff(text.len())),
        Err(error) => Err(ArgumentsError::Json(error)),
    }
}

/// What is wrong with the arguments of a call; the model reads it.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentsError {
    /// They have too many bytes.
    #[error("the arguments are longer than {} MiB", MAX_ARGUMENTS >> 20)]
    TooLong,
    /// They are nested too deeply.
    #[error("the arguments are nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// They are something else.
    #[error("the arguments are {0}, not an object")]
    NoObject(&'static str),
    /// They end after so many bytes.
    #[error("the arguments are cut off after {0} bytes")]
    CutOff(usize),
    /// They are no JSON, or name a key twice.
    #[error("the arguments are not valid JSON: {0}")]
    Json(serde_json::Error),
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A JSON value in which no object has a duplicate key: it would be chance which of the two values a tool
/// uses and which one the user was shown.
struct Unique(Value);

impl<'de> serde::Deserialize<'de> for Unique {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> serde::de::Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Unique(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let Unique(value) = map.next_value()?;
            if object.contains_key(&key) {
                return Err(serde::de::Error::custom(format_args!("duplicate key {key:?}")));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests;
