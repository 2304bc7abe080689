//! Checks messages one after the other against the current surfaces: every error is reported to the model
//! with its location, and nothing of an invalid call is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Map, Value};

use aye_core::contract::surface::{Component, MAX_DEPTH, Surface};

/// The version of the messages.
const VERSION: &str = "v0.8";
/// Maximum components of a surface.
pub const MAX_COMPONENTS: usize = 500;
/// Maximum surfaces of a conversation.
const MAX_SURFACES: usize = 32;
/// Maximum bytes of the messages of one call.
const MAX_BYTES: usize = 256 * 1024;

/// Maximum errors that are reported; the others are counted.
const MAX_ERRORS: usize = 25;

/// The errors of a call: a sentence for the model, or one line for each of several errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct A2uiError(String);

impl A2uiError {
    /// Combines all errors of a call; returns `None` if there are none.
    fn of(mut errors: Vec<String>) -> Option<Self> {
        let count = errors.len();
        if count <= 1 {
            return errors.pop().map(Self);
        }
        errors.truncate(MAX_ERRORS);
        let mut text = format!("{count} errors:");
        for error in &errors {
            text.push_str("\n- ");
            text.push_str(error);
        }
        if count > MAX_ERRORS {
            let _ = write!(text, "\n- and {} more", count - MAX_ERRORS);
        }
        Some(Self(text))
    }
}

fn wrong<T>(text: impl Into<String>) -> Result<T, A2uiError> {
    Err(A2uiError(text.into()))
}

/// The kinds of messages: their key, and whether they are of the book's form, which names the version.
const KINDS: [(&str, bool); 7] = [
    ("createSurface", true),
    ("updateComponents", true),
    ("updateDataModel", true),
    ("deleteSurface", false),
    ("surfaceUpdate", false),
    ("dataModelUpdate", false),
    ("beginRendering", false),
];

/// Applies the messages of one call to these surfaces, and returns the ids of the changed ones, in order.
///
/// # Errors
/// All errors of the call; the surfaces keep the changes made up to then.
pub fn apply_messages(
    args: &Value,
    surfaces: &mut BTreeMap<String, Surface>,
) -> Result<Vec<String>, A2uiError> {
    let messages = match args.get("messages") {
        None | Some(Value::Null) => return wrong("missing required field \"messages\""),
        Some(Value::Array(messages)) => messages,
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            return wrong("\"messages\" must be an array of A2UI messages");
        }
    };
    if messages.is_empty() {
        return wrong("messages array must not be empty");
    }
    if args.to_string().len() > MAX_BYTES {
        return wrong(format!("the messages are larger than {} KiB; send less at once", MAX_BYTES / 1024));
    }
    let mut touched: Vec<String> = Vec::new();
    let mut errors = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let mut found = Vec::new();
        match one(message, surfaces, &mut found) {
            Ok(id) => {
                touched.retain(|known| *known != id);
                touched.push(id);
            }
            Err(A2uiError(error)) => found.push(error),
        }
        errors.extend(found.into_iter().map(|error| format!("messages[{place}]: {error}")));
    }
    if surfaces.len() > MAX_SURFACES {
        errors.push(format!("more than {MAX_SURFACES} surfaces; delete some with deleteSurface"));
    }
    // Gaps in a surface that follow from an error above are not errors of their own.
    if errors.is_empty() {
        for surface in touched.iter().filter_map(|id| surfaces.get(id)) {
            whole(surface, &mut errors);
        }
    }
    A2uiError::of(errors).map_or(Ok(touched), Err)
}

/// Applies one message and returns the id of its surface. Errors in single components are added to `errors`.
fn one(
    message: &Value,
    surfaces: &mut BTreeMap<String, Surface>,
    errors: &mut Vec<String>,
) -> Result<String, A2uiError> {
    let Some(object) = message.as_object() else { return wrong("a message must be an object") };
    let found: Vec<&(&str, bool)> = KINDS.iter().filter(|(key, _)| object.contains_key(*key)).collect();
    let names = || KINDS.map(|(key, _)| key).join(", ");
    let (key, names_version) = match found[..] {
        [] => return wrong(format!("no message type; a message has exactly one of {}", names())),
        [kind] => *kind,
        [..] => {
            return wrong(format!("multiple message types in one object; send one of {} in each", names()));
        }
    };
    match object.get("version") {
        Some(version) if version != VERSION => {
            return wrong(format!("unsupported version {version}; use \"version\": \"{VERSION}\""));
        }
        None if names_version => {
            return wrong(format!("unsupported version: none is given; use \"version\": \"{VERSION}\""));
        }
        Some(_) | None => {}
    }
    let Some(body) = object[key].as_object() else { return wrong(format!("{key} must be an object")) };
    let id = match body.get("surfaceId").and_then(Value::as_str) {
        Some(id) if !id.trim().is_empty() && id.len() <= 200 => id.to_owned(),
        Some(_) => return wrong(format!("{key}.surfaceId must be a string of at most 200 bytes")),
        None => return wrong(format!("{key}.surfaceId is required")),
    };
    let catalog_id = body.get("catalogId").and_then(Value::as_str).map(str::to_owned);
    let created = |surfaces: &mut BTreeMap<String, Surface>| -> Result<(), A2uiError> {
        if surfaces.contains_key(&id) {
            return Ok(());
        }
        wrong(format!("{key}: unknown surface `{id}`; send createSurface first"))
    };
    match key {
        "createSurface" => {
            let root = "root".to_owned();
            surfaces.insert(id.clone(), Surface { id: id.clone(), catalog_id, root, ..Surface::default() });
        }
        "updateComponents" => {
            created(surfaces)?;
            components(body, &id, surfaces, errors)?;
            if errors.is_empty() && !surfaces[&id].components.contains_key("root") {
                return wrong("one component must have \"id\": \"root\", the start of the tree");
            }
        }
        "surfaceUpdate" => {
            surfaces.entry(id.clone()).or_insert_with(|| Surface { id: id.clone(), ..Surface::default() });
            components(body, &id, surfaces, errors)?;
        }
        "beginRendering" => {
            created(surfaces)
                .map_err(|_| A2uiError(format!("beginRendering: send surfaceUpdate for `{id}` first")))?;
            let Some(root) = body.get("root").and_then(Value::as_str) else {
                return wrong(
                    "beginRendering.root is required: the id of the component at the start of the tree",
                );
            };
            let surface = surfaces.get_mut(&id).expect("it was just looked up");
            if !surface.components.contains_key(root) {
                return wrong(format!("beginRendering.root: unknown component `{root}` in `{id}`"));
            }
            root.clone_into(&mut surface.root);
            surface.catalog_id = catalog_id.or(surface.catalog_id.take());
        }
        "updateDataModel" => {
            created(surfaces)?;
            let path = path_of(body, key)?;
            let value = body.get("value").cloned().unwrap_or(Value::Null);
            surfaces.get_mut(&id).expect("it was just looked up").put(&path, value);
        }
        "dataModelUpdate" => {
            let surface = surfaces
                .entry(id.clone())
                .or_insert_with(|| Surface { id: id.clone(), ..Surface::default() });
            let path = path_of(body, key)?;
            let Some(contents) = body.get("contents").and_then(Value::as_array) else {
                return wrong("dataModelUpdate.contents must be an array of {key, value...}");
            };
            for (place, entry) in contents.iter().enumerate() {
                let at = format!("dataModelUpdate.contents[{place}]");
                match entry_of(entry, &at, 0) {
                    Ok((key, value)) => {
                        let key = key.replace('~', "~0").replace('/', "~1");
                        surface.put(&format!("{path}/{key}"), value);
                    }
                    Err(A2uiError(error)) => errors.push(error),
                }
            }
        }
        _ => {
            created(surfaces)?;
            surfaces.remove(&id);
        }
    }
    Ok(id)
}

fn path_of(body: &Map<String, Value>, key: &str) -> Result<String, A2uiError> {
    match body.get("path") {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(path)) if path.is_empty() || path == "/" => Ok(String::new()),
        Some(Value::String(path)) if path.starts_with('/') => Ok(path.trim_end_matches('/').to_owned()),
        Some(Value::String(path)) => wrong(format!("{key}.path `{path}` must start with a slash")),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            wrong(format!("{key}.path must be a JSON pointer such as \"/customer/name\""))
        }
    }
}

/// An entry of the published form: a key, and one of `valueString`, `valueNumber`, `valueBoolean`, `valueMap`.
fn entry_of(entry: &Value, at: &str, depth: usize) -> Result<(String, Value), A2uiError> {
    if depth > MAX_DEPTH {
        return wrong(format!("{at}: the maps are nested too deeply"));
    }
    let Some(key) = entry.get("key").and_then(Value::as_str) else {
        return wrong(format!("{at}.key is required"));
    };
    for name in ["valueString", "valueNumber", "valueBoolean", "valueBool"] {
        if let Some(value) = entry.get(name) {
            return Ok((key.to_owned(), value.clone()));
        }
    }
    match entry.get("valueMap").and_then(Value::as_array) {
        Some(entries) => {
            let mut map = Map::new();
            for (place, entry) in entries.iter().enumerate() {
                let (key, value) = entry_of(entry, &format!("{at}.valueMap[{place}]"), depth + 1)?;
                map.insert(key, value);
            }
            Ok((key.to_owned(), Value::Object(map)))
        }
        None => wrong(format!("{at} needs one of valueString, valueNumber, valueBoolean, valueMap")),
    }
}

fn components(
    body: &Map<String, Value>,
    id: &str,
    surfaces: &mut BTreeMap<String, Surface>,
    errors: &mut Vec<String>,
) -> Result<(), A2uiError> {
    let Some(list) = body.get("components").and_then(Value::as_array) else {
        return wrong("components must be an array");
    };
    let surface = surfaces.get_mut(id).expect("the caller looked it up");
    let mut seen = BTreeSet::new();
    for (place, entry) in list.iter().enumerate() {
        let at = format!("components[{place}]");
        if !entry.is_object() {
            errors.push(format!("{at} must be an object"));
            continue;
        }
        let name = match entry.get("id") {
            Some(Value::String(name)) if !name.trim().is_empty() => Some(name),
            Some(Value::String(_) | Value::Null) | None => {
                errors.push(format!("{at}.id is required"));
                None
            }
            Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                errors.push(format!("{at}.id must be a string"));
                None
            }
        };
        if let Some(name) = name.filter(|name| !seen.insert(name.as_str())) {
            errors.push(format!("{at}.id: duplicate `{name}`"));
        }
        match component_of(entry, &at) {
            Ok(component) => {
                if entry["component"].is_object() {
                    check_required(&component, &at, errors);
                }
                check_props(&component, &at, errors);
                if let Some(name) = name {
                    surface.components.insert(name.clone(), component);
                }
            }
            Err(A2uiError(error)) => errors.push(error),
        }
    }
    if surface.components.len() > MAX_COMPONENTS {
        return wrong(format!("more than {MAX_COMPONENTS} components in `{id}`"));
    }
    Ok(())
}

/// `{"component": "Text", "text": ...}`, or `{"component": {"Text": {"text": ...}}}`.
fn component_of(entry: &Value, at: &str) -> Result<Component, A2uiError> {
    match entry.get("component") {
        Some(Value::String(kind)) if !kind.trim().is_empty() => {
            let mut props = entry.as_object().cloned().unwrap_or_default();
            props.shift_remove("id");
            props.shift_remove("component");
            Ok(Component { kind: kind.clone(), props })
        }
        Some(Value::Object(kinds)) => match kinds.iter().next() {
            Some((kind, Value::Object(props))) if kinds.len() == 1 => {
                Ok(Component { kind: kind.clone(), props: props.clone() })
            }
            Some((kind, _)) if kinds.len() == 1 => {
                wrong(format!("{at}.component.{kind} must be an object with the component's properties"))
            }
            Some(_) => wrong(format!("{at}.component must name exactly one kind")),
            None => wrong(format!("{at}.component is required")),
        },
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_)) => {
            wrong(format!("{at}.component must be the name of a kind"))
        }
        None | Some(Value::Null | Value::String(_)) => wrong(format!("{at}.component is required")),
    }
}

/// The properties required by the kinds of the standard catalog of A2UI v0.8. Other catalogs may have kinds
/// of their own.
const REQUIRED: &[(&str, &[&str])] = &[
    ("Text", &["text"]),
    ("Image", &["url"]),
    ("Icon", &["name"]),
    ("Video", &["url"]),
    ("AudioPlayer", &["url"]),
    ("Row", &["children"]),
    ("Column", &["children"]),
    ("List", &["children"]),
    ("Card", &["child"]),
    ("Tabs", &["tabItems"]),
    ("Modal", &["entryPointChild", "contentChild"]),
    ("Button", &["child", "action"]),
    ("CheckBox", &["label", "value"]),
    ("TextField", &["label"]),
    ("DateTimeInput", &["value"]),
    ("MultipleChoice", &["selections", "options"]),
    ("Slider", &["value"]),
];

/// Checks that a component has the properties that its kind requires.
fn check_required(component: &Component, at: &str, errors: &mut Vec<String>) {
    let kind = component.kind.as_str();
    let needed = REQUIRED.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, needed)| *needed);
    let missing = needed.iter().filter(|name| component.props.get(**name).is_none_or(Value::is_null));
    errors.extend(missing.map(|name| format!("{at}.component.{kind}.{name} is required")));
}

/// Checks the values of properties that are the same for every kind. Other properties are passed on to the
/// renderer of the surface.
fn check_props(component: &Component, at: &str, errors: &mut Vec<String>) {
    let is_id = |value: &Value| value.as_str().is_some_and(|id| !id.is_empty());
    let are_ids = |value: &Value| value.as_array().is_some_and(|ids| ids.iter().all(is_id));
    for (key, value) in &component.props {
        let wanted = match key.as_str() {
            "child" if !is_id(value) => "the id of a component",
            "children"
                if !are_ids(value)
                    && !value.get("explicitList").is_some_and(are_ids)
                    && !is_template(value) =>
            {
                "a list of ids of components, {\"explicitList\": [...]} or {\"template\": {\"componentId\": ..., \"dataBinding\": ...}}"
            }
            "action" if !is_action(value) => "{\"name\": ...} or {\"event\": {\"name\": ...}}",
            "text" | "label" if !is_value(value) => {
                "a string, {\"path\": \"/...\"} or {\"literalString\": ...}"
            }
            _ if value.get("path").is_some_and(|path| !path.is_string()) => {
                "bound to a path string, such as {\"path\": \"/customer/name\"}"
            }
            _ => continue,
        };
        errors.push(format!("{at}.{key} must be {wanted}"));
    }
}

fn is_template(value: &Value) -> bool {
    let template = value.get("template").unwrap_or(value);
    template.get("componentId").is_some_and(Value::is_string)
        && ["dataBinding", "path"].iter().any(|key| template.get(key).is_some_and(Value::is_string))
}

fn is_action(value: &Value) -> bool {
    let named = value.pointer("/event/name").or_else(|| value.get("name")).unwrap_or(value);
    named.as_str().is_some_and(|name| !name.is_empty())
        || value.get("functionCall").is_some_and(Value::is_object)
}

/// A literal, a path into the data, or one of the published literals.
fn is_value(value: &Value) -> bool {
    let Some(object) = value.as_object() else { return true };
    let is_literal = |(key, value): (&String, &Value)| match key.as_str() {
        "literalString" => value.is_string(),
        "literalNumber" => value.is_number(),
        "literalBoolean" | "literalBool" => value.is_boolean(),
        "literalArray" => value.is_array(),
        name => matches!(name, "call" | "returnType" | "args"),
    };
    match object.get("path") {
        Some(path) => path.is_string(),
        None => !object.is_empty() && object.iter().all(is_literal),
    }
}

/// Checks the result of all messages of a call: every referenced component exists, and none contains itself.
fn whole(surface: &Surface, errors: &mut Vec<String>) {
    for (id, component) in &surface.components {
        for named in component.references() {
            if !surface.components.contains_key(named) {
                errors.push(format!(
                    "component `{id}` of `{}` refers to the missing component `{named}`",
                    surface.id
                ));
            }
        }
    }
    // Depth first, with the way that led to each component.
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for start in surface.components.keys() {
        let mut way: Vec<(&str, Vec<&str>)> = vec![(start, inner(surface, start))];
        while let Some((id, left)) = way.last_mut() {
            let id = *id;
            let Some(next) = left.pop() else {
                done.insert(id);
                way.pop();
                continue;
            };
            if way.iter().any(|(above, _)| *above == next) {
                errors.push(format!("component `{next}` of `{}` contains itself", surface.id));
                return;
            }
            if way.len() > MAX_DEPTH {
                errors.push(format!("the components of `{}` nest more than {MAX_DEPTH} deep", surface.id));
                return;
            }
            if !done.contains(next) {
                way.push((next, inner(surface, next)));
            }
        }
    }
}

/// Returns the components that a component references; returns nothing if it is missing, so that a path to it
/// ends there.
fn inner<'a>(surface: &'a Surface, id: &str) -> Vec<&'a str> {
    surface.components.get(id).map(Component::references).unwrap_or_default()
}
