//! What the model and the runtime know of a tool.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The way to handle a call that was started without a recorded outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolClass {
    /// It only reads: run it again, no question.
    Pure,
    /// The call changes files that can be checked: [`Tool::preview`](super::tool::Tool::preview) returns them before and after.
    Verifiable,
    /// The other side honours an idempotency key: send it again with the same key.
    Keyed,
    /// The outcome cannot be determined: the call is never repeated automatically.
    #[default]
    Opaque,
}

/// The description of a tool, for the model and for the runtime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDescriptor {
    /// Unique; the name the model calls.
    pub id: String,
    /// The name for users.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// For grouping in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// The class, which decides what a crash means for a call.
    #[serde(default)]
    pub class: ToolClass,
    /// The argument that patterns such as `Tool(text)` match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary_argument: Option<String>,
    /// The other machine's host that each call sends its arguments to; `None` for a tool that works here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether the page of the user who sent the message runs the tool: no rule has to allow its calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_page: bool,
}

impl ToolDescriptor {
    /// A tool without arguments, opaque to crash recovery.
    pub fn new(id: impl Into<String>, name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            description: description.into(),
            parameters: json!({"type": "object", "properties": {}}),
            category: None,
            class: ToolClass::Opaque,
            primary_argument: None,
            host: None,
            on_page: false,
        }
    }

    /// Sets the JSON Schema of the arguments.
    #[must_use]
    pub fn with_parameters(mut self, schema: Value) -> Self {
        self.parameters = schema;
        self
    }

    #[must_use]
    pub fn with_category(mut self, category: impl Into<String>) -> Self {
        self.category = Some(category.into());
        self
    }

    /// Sets what a crash means for a call.
    #[must_use]
    pub fn with_class(mut self, class: ToolClass) -> Self {
        self.class = class;
        self
    }

    /// Sets the host that calls reach.
    #[must_use]
    pub fn with_host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Says that the page of the user who sent the message runs the tool.
    #[must_use]
    pub fn on_page(mut self) -> Self {
        self.on_page = true;
        self
    }

    /// Sets the argument that patterns match.
    #[must_use]
    pub fn with_primary_argument(mut self, name: impl Into<String>) -> Self {
        self.primary_argument = Some(name.into());
        self
    }
}
