//! Questions that a server asks the user during a call. A question is read, bounded and made into a form, and
//! its answer is checked against the server's schema before it is sent.

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::client::words_of;
use aye_core::contract::schema::example;
use aye_core::contract::suspension::ToolCallResume;

/// The names of the buttons in the form's answer.
const SEND: &str = "accept";
const DECLINE: &str = "decline";
/// A form with more is refused.
const MAX_FIELDS: usize = 20;
const MAX_CHOICES: usize = 50;
/// Maximum characters of choices that are shown beside the name of their field.
const MAX_BESIDE: usize = 40;
const MAX_MESSAGE: usize = 4000;
const MAX_NAME: usize = 64;
const MAX_FORM: usize = 32 * 1024;
const MAX_ANSWER: usize = 64 * 1024;
/// The prefix of surface ids.
const SURFACE: &str = "mcp:";

/// A question of a server, and where its answer goes.
pub(super) struct PendingElicitation {
    pub(super) question: Elicitation,
    pub(super) reply: oneshot::Sender<ElicitResult>,
}

/// A question that can be shown to a user.
#[derive(Clone, Debug)]
pub(super) struct Elicitation {
    message: String,
    fields: Vec<Field>,
    schema: Value,
}

#[derive(Clone, Debug)]
struct Field {
    name: String,
    label: String,
    about: String,
    kind: FieldKind,
    is_required: bool,
    default: Value,
}

#[derive(Clone, Debug, PartialEq)]
enum FieldKind {
    Text,
    Number,
    Flag,
    /// Values and what they are called.
    One(Vec<(String, String)>),
    Several(Vec<(String, String)>),
}

pub(super) fn declined() -> ElicitResult {
    ElicitResult::new(ElicitationAction::Decline)
}

/// The surface that a decision answers, when it answers a question of a server.
pub(super) fn surface_of(resume: Option<&ToolCallResume>) -> Option<&str> {
    let id = resume?.result.pointer("/userAction/surfaceId")?.as_str()?;
    id.starts_with(SURFACE).then_some(id)
}

/// A name for a new form, that no other has.
pub(super) fn surface_id() -> String {
    format!("{SURFACE}{}", uuid::Uuid::now_v7().simple())
}

impl Elicitation {
    /// Reads a server's question.
    ///
    /// # Errors
    /// A sentence that explains why the user is not asked.
    pub(super) fn read(asked: ElicitRequestParams) -> Result<Self, String> {
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = asked else {
            return Err("this client supports forms only".to_owned());
        };
        let order = requested_schema.property_order.clone();
        let asked = serde_json::to_value(&requested_schema).map_err(|error| error.to_string())?;
        if message.chars().count() > MAX_MESSAGE || asked.to_string().len() > MAX_FORM {
            return Err("the form is too large".to_owned());
        }
        let none = Map::new();
        let properties = asked.get("properties").and_then(Value::as_object).unwrap_or(&none);
        if properties.len() > MAX_FIELDS {
            return Err(format!("the form has more than {MAX_FIELDS} fields"));
        }
        let required: Vec<&str> =
            asked["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let order = order.unwrap_or_else(|| properties.keys().cloned().collect());
        let mut fields = Vec::new();
        for name in order {
            let Some(property) = properties.get(&name) else { continue };
            fields.push(Field::read(&name, property, required.contains(&name.as_str()))?);
        }
        let known: Vec<&str> = required.into_iter().filter(|name| properties.contains_key(*name)).collect();
        let schema = json!({
            "type": "object",
            "properties": properties,
            "required": known,
            "additionalProperties": false,
        });
        Ok(Self { message, fields, schema })
    }

    /// The form, with what was put in before and what was wrong with that.
    pub(super) fn form(&self, id: &str, server: &str, tool: &str, before: Option<(&Value, &str)>) -> Value {
        let mut components = Map::new();
        let mut order: Vec<String> = Vec::new();
        let mut add = |id: String, kind: &str, props: Value| {
            components.insert(id.clone(), json!({"kind": kind, "props": props}));
            order.push(id);
        };
        let text = |text: &str, hint: &str| json!({"text": {"literalString": text}, "usageHint": hint});
        let title = format!("The server {} asks, during {tool}:", words_of(server));
        add("from".into(), "Text", text(&title, "h3"));
        add("message".into(), "Text", text(&self.message, "body"));
        add(
            "warning".into(),
            "Text",
            text("Your answers are sent to this server and stored here: no passwords, no keys.", "caption"),
        );
        if let Some((_, problem)) = before {
            add("problem".into(), "Text", text(&format!("Not sent: {problem}"), "body"));
        }
        let mut data = json!({});
        for (at, field) in self.fields.iter().enumerate() {
            field.add(at, &mut add, &mut data);
        }
        if let Some((before, _)) = before {
            data = before.clone();
        }
        let button = |label: &str, name: &str| json!({"label": label, "action": {"name": name}});
        add("send".into(), "Button", button("Send", SEND));
        add("decline".into(), "Button", button("Decline", DECLINE));
        components.insert("root".into(), json!({"kind": "Column", "props": {"children": order}}));
        json!({"id": id, "root": "root", "components": components, "data": data})
    }

    /// The question as one line.
    pub(super) fn words(&self, server: &str) -> String {
        format!("the server {} asks: {}", words_of(server), words_of(&self.message))
    }

    /// Returns the schema of the form's answer. Answers that match it are checked again.
    pub(super) fn response_schema(&self, id: &str) -> Value {
        let properties: Map<String, Value> =
            self.fields.iter().map(|field| (field.name.clone(), field.loose(&self.schema))).collect();
        // A box that was not touched is not ticked, a list may have a default.
        let required: Vec<&str> = self
            .fields
            .iter()
            .filter(|field| {
                field.is_required && !matches!(field.kind, FieldKind::Flag | FieldKind::Several(_))
            })
            .map(|field| field.name.as_str())
            .collect();
        json!({
            "type": "object",
            "properties": {
                "userAction": {
                    "type": "object",
                    "properties": {"name": {"enum": [SEND, DECLINE]}, "surfaceId": {"const": id}},
                    "required": ["name", "surfaceId"]
                },
                "dataModel": {"type": "object", "properties": properties}
            },
            "required": ["userAction"],
            "if": {"properties": {"userAction": {"properties": {"name": {"const": SEND}}}}},
            "then": {"required": ["dataModel"], "properties": {"dataModel": {"required": required}}}
        })
    }

    /// Returns the answer to send to the server.
    ///
    /// # Errors
    /// A sentence that explains what is wrong with the answer. No part of it may be sent.
    pub(super) fn answer(&self, payload: &Value) -> Result<ElicitResult, String> {
        if payload.pointer("/userAction/name").and_then(Value::as_str) != Some(SEND) {
            return Ok(declined());
        }
        let data = payload.get("dataModel").unwrap_or(&Value::Null);
        if data.to_string().len() > MAX_ANSWER {
            return Err("the answer is too long".to_owned());
        }
        let mut content = Map::new();
        for field in &self.fields {
            if let Some(value) = field.value(data.get(&field.name).unwrap_or(&Value::Null)) {
                content.insert(field.name.clone(), value);
            }
        }
        let content = Value::Object(content);
        let validator = jsonschema::options()
            .should_validate_formats(true)
            .build(&self.schema)
            .map_err(|error| format!("the form cannot be checked: {error}"))?;
        if let Some(error) = validator.iter_errors(&content).next() {
            let path = error.instance_path().to_string();
            let place = path.trim_start_matches('/');
            return Err(if place.is_empty() { error.to_string() } else { format!("{place}: {error}") });
        }
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }
}

impl Field {
    fn read(name: &str, property: &Value, is_required: bool) -> Result<Self, String> {
        if name.is_empty() || name.chars().count() > MAX_NAME {
            return Err("the name of a field is empty or too long".to_owned());
        }
        let kind = match property["type"].as_str() {
            Some("string") => choices(property, "oneOf")?.map_or(FieldKind::Text, FieldKind::One),
            Some("number" | "integer") => FieldKind::Number,
            Some("boolean") => FieldKind::Flag,
            Some("array") => match choices(&property["items"], "anyOf")? {
                Some(choices) => FieldKind::Several(choices),
                None => return Err(format!("the field `{}` is a list of unknown items", words_of(name))),
            },
            Some(_) | None => return Err(format!("the field `{}` has an unknown kind", words_of(name))),
        };
        let text = |key: &str| words_of(property[key].as_str().unwrap_or_default());
        let title = text("title");
        let mut label = if title.is_empty() { words_of(name) } else { title };
        let needed = if is_required && kind != FieldKind::Flag { "needed" } else { "" };
        let names = match &kind {
            FieldKind::One(choices) => {
                choices.iter().map(|(_, title)| words_of(title)).collect::<Vec<_>>().join(", ")
            }
            FieldKind::Text | FieldKind::Number | FieldKind::Flag | FieldKind::Several(_) => String::new(),
        };
        let mut about = text("description");
        // Short choices beside the name stay visible while one of them is typed.
        let beside = if names.chars().count() <= MAX_BESIDE { names.as_str() } else { "" };
        if beside.is_empty() && !names.is_empty() {
            let gap = if about.is_empty() { "" } else { " " };
            about = format!("{about}{gap}One of: {names}");
        }
        label = match (needed, beside) {
            ("", "") => label,
            (one, "") | ("", one) => format!("{label} ({one})"),
            (needed, beside) => format!("{label} ({needed}: {beside})"),
        };
        Ok(Self {
            name: name.to_owned(),
            label,
            about,
            kind,
            is_required,
            default: property["default"].clone(),
        })
    }

    fn add(&self, at: usize, add: &mut impl FnMut(String, &str, Value), data: &mut Value) {
        let path = format!("/{}", self.name.replace('~', "~0").replace('/', "~1"));
        let about = self.about.clone();
        if !about.is_empty() || matches!(self.kind, FieldKind::Several(_)) {
            let words = if about.is_empty() { self.label.clone() } else { about };
            add(format!("a{at}"), "Text", json!({"text": {"literalString": words}, "usageHint": "caption"}));
        }
        let props =
            |label: &str, path: &str| json!({"label": {"literalString": label}, "value": {"path": path}});
        match &self.kind {
            FieldKind::Text | FieldKind::Number | FieldKind::One(_) => {
                add(format!("f{at}"), "TextField", props(&self.label, &path));
            }
            FieldKind::Flag => add(format!("f{at}"), "CheckBox", props(&self.label, &path)),
            FieldKind::Several(choices) => {
                for (number, (_, title)) in choices.iter().enumerate() {
                    let path = format!("{path}/{number}");
                    add(format!("f{at}_{number}"), "CheckBox", props(&words_of(title), &path));
                }
            }
        }
        let default = match &self.kind {
            FieldKind::Several(choices) => {
                let chosen = self.default.as_array().into_iter().flatten();
                let at = |value: &Value| choices.iter().position(|(known, _)| value == known);
                Value::Object(chosen.filter_map(at).map(|at| (at.to_string(), json!(true))).collect())
            }
            FieldKind::Text | FieldKind::Number | FieldKind::Flag | FieldKind::One(_) => self.default.clone(),
        };
        if !default.is_null() {
            data[&self.name] = default;
        }
    }

    /// Returns the schema of the field's value in the form, with an example that the server would accept.
    fn loose(&self, schema: &Value) -> Value {
        let mut loose = self.kind_of_value();
        if self.is_required
            && let Some(property) = schema.pointer("/properties").and_then(|all| all.get(&self.name))
        {
            loose["examples"] = json!([example(property)]);
        }
        loose
    }

    fn kind_of_value(&self) -> Value {
        match &self.kind {
            FieldKind::Text => json!({"type": "string"}),
            FieldKind::Number => json!({"type": ["number", "string"]}),
            FieldKind::Flag => json!({"type": "boolean"}),
            FieldKind::One(choices) => {
                let mut known: Vec<&str> = Vec::new();
                for word in choices.iter().flat_map(|(value, title)| [value.as_str(), title.as_str()]) {
                    if !known.contains(&word) {
                        known.push(word);
                    }
                }
                if !self.is_required {
                    known.push("");
                }
                json!({"enum": known})
            }
            FieldKind::Several(_) => json!({"type": ["object", "array"]}),
        }
    }

    /// Converts a value of the form to the server's value; nothing if nothing was entered.
    fn value(&self, put: &Value) -> Option<Value> {
        match (&self.kind, put) {
            (FieldKind::Flag, put) => Some(if put.is_null() { json!(false) } else { put.clone() }),
            (FieldKind::Several(choices), Value::Object(ticks)) => {
                let is_ticked = |at: usize| ticks.get(&at.to_string()) == Some(&json!(true));
                let ticked = choices.iter().enumerate().filter(|(at, _)| is_ticked(*at));
                Some(ticked.map(|(_, (value, _))| json!(value)).collect())
            }
            (FieldKind::Several(_), Value::Null) => Some(json!([])),
            (_, Value::Null) => None,
            (FieldKind::Text | FieldKind::One(_), Value::String(text))
                if text.is_empty() && !self.is_required =>
            {
                None
            }
            (FieldKind::Number, Value::String(text)) => match text.trim() {
                "" if !self.is_required => None,
                text => Some(text.parse::<serde_json::Number>().map_or_else(|_| put.clone(), Value::Number)),
            },
            (FieldKind::One(choices), Value::String(text)) => {
                let is_value = choices.iter().any(|(value, _)| value == text);
                let named = choices.iter().find(|(_, title)| !is_value && title == text);
                Some(named.map_or_else(|| put.clone(), |(value, _)| json!(value)))
            }
            (FieldKind::Text | FieldKind::Number | FieldKind::One(_) | FieldKind::Several(_), put) => {
                Some(put.clone())
            }
        }
    }
}

/// The values of an enumeration in each form that it has, with their titles.
fn choices(schema: &Value, titled: &str) -> Result<Option<Vec<(String, String)>>, String> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found: Vec<(String, String)> = match (schema["enum"].as_array(), schema[titled].as_array()) {
        (Some(values), _) => {
            let title =
                |at: usize, value: &Value| schema["enumNames"].get(at).map_or_else(|| word(value), word);
            values.iter().enumerate().map(|(at, value)| (word(value), title(at, value))).collect()
        }
        (None, Some(values)) => {
            values.iter().map(|each| (word(&each["const"]), word(&each["title"]))).collect()
        }
        (None, None) => return Ok(None),
    };
    if found.len() > MAX_CHOICES {
        return Err(format!("a field has more than {MAX_CHOICES} choices"));
    }
    Ok(Some(found))
}
