//! Messages, checked one after the other on the surfaces as they are: what is wrong is said with its place, for the
//! model, and nothing of a call that is wrong is kept.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::contract::surface::{Component, MAX_DEPTH, Surface};

/// The version of the messages.
const VERSION: &str = "v0.8";
/// How many components a surface may have.
pub const MAX_COMPONENTS: usize = 500;
/// How many surfaces a conversation may have.
const MAX_SURFACES: usize = 32;
/// How many bytes the messages of one call may have.
const MAX_BYTES: usize = 256 * 1024;

/// What is wrong with a call; a sentence for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct A2uiError(String);

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

/// Carries out the messages of one call on these surfaces, and gives the ids of those that it touched, in order.
///
/// # Errors
/// The first thing that is wrong; the surfaces are as far as they came.
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
    for (place, message) in messages.iter().enumerate() {
        let at = |error: A2uiError| A2uiError(format!("messages[{place}]: {error}"));
        let id = one(message, surfaces).map_err(at)?;
        touched.retain(|known| *known != id);
        touched.push(id);
    }
    if surfaces.len() > MAX_SURFACES {
        return wrong(format!("more than {MAX_SURFACES} surfaces; delete some with deleteSurface"));
    }
    for id in &touched {
        if let Some(surface) = surfaces.get(id) {
            whole(surface)?;
        }
    }
    Ok(touched)
}

/// One message; gives the surface that it is about.
fn one(message: &Value, surfaces: &mut BTreeMap<String, Surface>) -> Result<String, A2uiError> {
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
        Some(_) => return wrong(format!("{key}.surfaceId must be a text of at most 200 bytes")),
        None => return wrong(format!("{key}.surfaceId is required")),
    };
    let catalog_id = body.get("catalogId").and_then(Value::as_str).map(str::to_owned);
    let created = |surfaces: &mut BTreeMap<String, Surface>| -> Result<(), A2uiError> {
        if surfaces.contains_key(&id) {
            return Ok(());
        }
        wrong(format!("{key}: there is no surface `{id}`; send createSurface first"))
    };
    match key {
        "createSurface" => {
            let root = "root".to_owned();
            surfaces.insert(id.clone(), Surface { id: id.clone(), catalog_id, root, ..Surface::default() });
        }
        "updateComponents" => {
            created(surfaces)?;
            components(body, &id, surfaces)?;
            if !surfaces[&id].components.contains_key("root") {
                return wrong("one component must have \"id\": \"root\": it is where the tree begins");
            }
        }
        "surfaceUpdate" => {
            surfaces.entry(id.clone()).or_insert_with(|| Surface { id: id.clone(), ..Surface::default() });
            components(body, &id, surfaces)?;
        }
        "beginRendering" => {
            created(surfaces)
                .map_err(|_| A2uiError(format!("beginRendering: send surfaceUpdate for `{id}` first")))?;
            let Some(root) = body.get("root").and_then(Value::as_str) else {
                return wrong(
                    "beginRendering.root is required: the id of the component where the tree begins",
                );
            };
            let surface = surfaces.get_mut(&id).expect("it was just looked up");
            if !surface.components.contains_key(root) {
                return wrong(format!("beginRendering.root: there is no component `{root}` in `{id}`"));
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
                let (key, value) = entry_of(entry, &at, 0)?;
                let key = key.replace('~', "~0").replace('/', "~1");
                surface.put(&format!("{path}/{key}"), value);
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
        Some(Value::String(path)) => wrong(format!("{key}.path `{path}` must begin with a slash")),
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
) -> Result<(), A2uiError> {
    let Some(list) = body.get("components").and_then(Value::as_array) else {
        return wrong("components must be an array");
    };
    let surface = surfaces.get_mut(id).expect("the caller looked it up");
    let mut seen = BTreeSet::new();
    for (place, entry) in list.iter().enumerate() {
        let Some(name) = entry.get("id").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
            return wrong(format!("components[{place}].id is required"));
        };
        if !seen.insert(name) {
            return wrong(format!("components[{place}].id: `{name}` is there twice"));
        }
        surface.components.insert(name.to_owned(), component_of(entry, place)?);
    }
    if surface.components.len() > MAX_COMPONENTS {
        return wrong(format!("more than {MAX_COMPONENTS} components in `{id}`"));
    }
    Ok(())
}

/// `{"component": "Text", "text": ...}`, or `{"component": {"Text": {"text": ...}}}`.
fn component_of(entry: &Value, place: usize) -> Result<Component, A2uiError> {
    match entry.get("component") {
        Some(Value::String(kind)) if !kind.is_empty() => {
            let mut props = entry.as_object().cloned().unwrap_or_default();
            props.shift_remove("id");
            props.shift_remove("component");
            Ok(Component { kind: kind.clone(), props })
        }
        Some(Value::Object(kinds)) => match kinds.iter().next() {
            Some((kind, props)) if kinds.len() == 1 => {
                Ok(Component { kind: kind.clone(), props: props.as_object().cloned().unwrap_or_default() })
            }
            Some(_) => wrong(format!("components[{place}].component must name exactly one kind")),
            None => wrong(format!("components[{place}].component is required")),
        },
        None | Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::String(_)) => {
            wrong(format!("components[{place}].component is required"))
        }
    }
}

/// What all the messages of a call came to: every component that is named is there, and none lies in itself.
fn whole(surface: &Surface) -> Result<(), A2uiError> {
    for (id, component) in &surface.components {
        for named in component.references() {
            if !surface.components.contains_key(named) {
                return wrong(format!(
                    "component `{id}` of `{}` names `{named}`, which is not there",
                    surface.id
                ));
            }
        }
    }
    // Depth first, with the way that led to each component.
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for start in surface.components.keys() {
        let mut way: Vec<(&str, Vec<&str>)> = vec![(start, surface.components[start].references())];
        while let Some((id, left)) = way.last_mut() {
            let id = *id;
            let Some(next) = left.pop() else {
                done.insert(id);
                way.pop();
                continue;
            };
            if way.iter().any(|(above, _)| *above == next) {
                return wrong(format!("component `{next}` of `{}` lies in itself", surface.id));
            }
            if way.len() > MAX_DEPTH {
                return wrong(format!("the components of `{}` lie more than {MAX_DEPTH} deep", surface.id));
            }
            if !done.contains(next) {
                way.push((next, surface.components[next].references()));
            }
        }
    }
    Ok(())
}
