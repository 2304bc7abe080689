//! The conditions a result must meet for a reminder to fire.

use std::cell::OnceCell;

use serde_json::{Value, json};

use aye_core::contract::tool::{ToolResult, ToolStatus};
use aye_pattern::{Matcher, comparison_text};

/// The condition on a result's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusMatcher {
    #[default]
    Any,
    /// The call did what it should.
    Success,
    Error,
    Pending,
}

impl StatusMatcher {
    /// The names used in files.
    pub const WORDS: [(&'static str, Self); 4] =
        [("success", Self::Success), ("error", Self::Error), ("pending", Self::Pending), ("any", Self::Any)];

    /// Whether a status matches.
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
    /// Whether the comparison is negated. A missing field does not match even then.
    pub negated: bool,
    /// The matcher for the field's text.
    pub matcher: Matcher,
}

impl FieldMatcher {
    /// Whether the field exists and meets the condition.
    pub fn matches(&self, data: &Value) -> bool {
        let field = self.path.iter().try_fold(data, |value, name| value.as_object()?.get(name));
        field.is_some_and(|value| self.matcher.is_match(&comparison_text(value)) != self.negated)
    }
}

/// The condition on a result's content.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentMatcher {
    /// The text that the model reads, whole.
    Text(Matcher),
    /// All of these fields.
    Fields(Vec<FieldMatcher>),
}

/// The conditions on a result, status and content together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputMatcher {
    pub status: StatusMatcher,
    /// The content; `None` is any.
    pub content: Option<ContentMatcher>,
}

impl OutputMatcher {
    /// Whether a result matches.
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

/// A result shared by several rules: its text and its data are computed once, and only when a rule needs
/// them.
pub struct ResultView<'a> {
    result: &'a ToolResult,
    text: OnceCell<String>,
    data: OnceCell<Vec<Value>>,
}

impl<'a> ResultView<'a> {
    /// Creates a view of a result, with nothing computed yet.
    pub fn new(result: &'a ToolResult) -> Self {
        Self { result, text: OnceCell::new(), data: OnceCell::new() }
    }

    fn text(&self) -> &str {
        self.text.get_or_init(|| self.result.model_text())
    }

    /// Returns the structured results: what the tool returned as data, and its text if that is a JSON object.
    /// An error with a code is also `{"error": {"code", "message"}}`, as the book writes it, whichever tool
    /// returned the error.
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
