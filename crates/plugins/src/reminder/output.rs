//! What a result must be for a reminder to fire.

use std::cell::OnceCell;

use serde_json::{Value, json};

use aye_core::contract::tool::{ToolResult, ToolStatus};
use aye_pattern::{Matcher, comparison_text};

/// What a result's status must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusMatcher {
    /// Whatever it is.
    #[default]
    Any,
    /// The call did what it should.
    Success,
    /// The call failed.
    Error,
    /// The call waits.
    Pending,
}

impl StatusMatcher {
    /// The words, as they stand in files.
    pub const WORDS: [(&'static str, Self); 4] =
        [("success", Self::Success), ("error", Self::Error), ("pending", Self::Pending), ("any", Self::Any)];

    /// Whether a status is matched.
    pub fn matches(self, status: ToolStatus) -> bool {
        match self {
            Self::Any => true,
            Self::Success => status == ToolStatus::Success,
            Self::Error => status == ToolStatus::Error,
            Self::Pending => status == ToolStatus::Pending,
        }
    }
}

/// One field of a structured result, and what it must be.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldMatcher {
    /// The names that lead to it.
    pub path: Vec<String>,
    /// Turns the answer round. A field that is not there is not matched all the same.
    pub negated: bool,
    /// What its text is compared with.
    pub matcher: Matcher,
}

impl FieldMatcher {
    /// Whether the field is there and as it must be.
    pub fn matches(&self, data: &Value) -> bool {
        let field = self.path.iter().try_fold(data, |value, name| value.as_object()?.get(name));
        field.is_some_and(|value| self.matcher.is_match(&comparison_text(value)) != self.negated)
    }
}

/// What a result's content must be.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentMatcher {
    /// The text that the model reads, whole.
    Text(Matcher),
    /// All of these fields.
    Fields(Vec<FieldMatcher>),
}

/// What a result must be, status and content together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputMatcher {
    /// The status.
    pub status: StatusMatcher,
    /// The content; `None` is any.
    pub content: Option<ContentMatcher>,
}

impl OutputMatcher {
    /// Whether a result is matched.
    pub fn matches(&self, seen: &ResultView<'_>) -> bool {
        self.status.matches(seen.result.status)
            && match &self.content {
                None => true,
                Some(ContentMatcher::Text(matcher)) => matcher.is_match(seen.text()),
                Some(ContentMatcher::Fields(fields)) => {
                    seen.data().iter().any(|data| fields.iter().all(|field| field.matches(data)))
                }
            }
    }
}

/// A result as several rules look at it: its text and its data are made once, and only when one asks.
pub struct ResultView<'a> {
    result: &'a ToolResult,
    text: OnceCell<String>,
    data: OnceCell<Vec<Value>>,
}

impl<'a> ResultView<'a> {
    /// A result that nobody looked at yet.
    pub fn new(result: &'a ToolResult) -> Self {
        Self { result, text: OnceCell::new(), data: OnceCell::new() }
    }

    fn text(&self) -> &str {
        self.text.get_or_init(|| self.result.model_text())
    }

    /// The structured results: what the tool gave as data, and its text when that is a JSON object. An error with a code
    /// is also `{"error": {"code", "message"}}`, as the book writes it, whoever made it.
    fn data(&self) -> &[Value] {
        self.data.get_or_init(|| {
            let parse = |text: &str| {
                let is_object = text.trim_start().starts_with('{');
                is_object.then(|| serde_json::from_str::<Value>(text).ok()).flatten()
            };
            let data = Some(&self.result.data).filter(|data| data.is_object()).cloned();
            let message = self.result.message.as_deref().and_then(parse);
            let text = if data.is_none() && message.is_none() { parse(self.text()) } else { None };
            let mut found: Vec<Value> = data.into_iter().chain(message).chain(text).collect();
            if self.result.status == ToolStatus::Error {
                let (message, details) = (self.result.message.as_deref(), self.result.details.as_ref());
                // Of a tool that only has words for the model, what it says to front ends counts: the status of HTTP.
                if found.is_empty() && details.is_some_and(Value::is_object) {
                    found.push(json!({}));
                }
                for data in &mut found {
                    with_error(data, details, message);
                }
            }
            found
        })
    }
}

fn with_error(data: &mut Value, details: Option<&Value>, message: Option<&str>) {
    let code = data.get("code").or_else(|| details?.get("status")).cloned();
    let (Some(code), Some(members)) = (code, data.as_object_mut()) else { return };
    members.entry("error").or_insert_with(|| json!({"code": code, "message": message}));
}
