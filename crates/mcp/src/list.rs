//! The lists that a server gives, page by page, each with an end; and a tool as it is offered.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ClientRequest, CustomResult, GetPromptRequest, GetPromptRequestParams, ListPromptsRequest,
    ListResourcesRequest, ListToolsRequest, PaginatedRequestParams, Prompt, ReadResourceRequest,
    ReadResourceRequestParams, Resource, ServerResult, Tool as Described,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::client::{CallError, Client, words_of};
use super::names::tool_ids;
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::tool::{ToolClass, ToolDescriptor};

const MAX_PAGES: usize = 100;
const MAX_ITEMS: usize = 2000;
/// The size limits of one tool, and of all tools of a server together.
const MAX_DESCRIPTION: usize = 64 << 10;
const MAX_SCHEMA: usize = 64 << 10;
const MAX_TOOLS_BYTES: usize = 8 << 20;
/// The maximum length of a description as shown to the model; a user sees all of it.
const SHOWN_DESCRIPTION: usize = 8 << 10;

/// A tool of a server, as it was found.
#[derive(Clone, Debug)]
pub(super) struct ServerTool {
    /// The name that the server gave it.
    pub(super) name: String,
    /// The tool's description of itself, apart from its schema.
    pub(super) description: String,
    pub(super) title: Option<String>,
    /// The tool's hints, for users only: they grant nothing.
    pub(super) hints: Option<String>,
    pub(super) schema: Value,
    /// SHA-256 of name, title, description and schema.
    pub(super) hash: String,
    pub(super) descriptor: ToolDescriptor,
}

/// The entries of one page, and the cursor of the next.
type ListPage<T> = (Vec<T>, Option<String>);

/// One of the lists of a server.
struct Listed<T> {
    /// Its member of the result.
    key: &'static str,
    /// Its entry in a message.
    noun: &'static str,
    request: fn(PaginatedRequestParams) -> ClientRequest,
    page: fn(ServerResult) -> Option<ListPage<T>>,
}

/// One page, and what to say about entries that were left out. The protocol's library reads a list as a whole or not at
/// all; here one entry that cannot be read costs that entry only.
fn page_of<T: DeserializeOwned>(
    list: &Listed<T>,
    answer: ServerResult,
    notes: &mut Vec<String>,
) -> Option<(Vec<T>, Option<String>)> {
    let ServerResult::CustomResult(CustomResult(answer)) = answer else { return (list.page)(answer) };
    let mut items = Vec::new();
    for entry in answer.get(list.key)?.as_array()? {
        match lenient(entry) {
            Ok(item) => items.push(item),
            Err(why) => {
                let name = entry.get("name").and_then(Value::as_str).map(words_of);
                let name = name.map_or_else(String::new, |name| format!(" `{name}`"));
                notes.push(format!("the {}{name} is left out: {why}", list.noun));
            }
        }
    }
    Some((items, answer.get("nextCursor").and_then(Value::as_str).map(str::to_owned)))
}

/// An entry, without its optional members if one of those is the problem.
fn lenient<T: DeserializeOwned>(entry: &Value) -> Result<T, String> {
    const NEEDED: [&str; 6] = ["name", "title", "description", "inputSchema", "uri", "arguments"];
    if entry.get("inputSchema").is_some_and(|schema| !schema.is_object()) {
        return Err("its `inputSchema` is not an object".to_owned());
    }
    serde_json::from_value(entry.clone()).or_else(|error| {
        let mut reduced = entry.clone();
        if let Some(members) = reduced.as_object_mut() {
            members.retain(|key, _| NEEDED.contains(&key.as_str()));
        }
        serde_json::from_value(reduced).map_err(|_| words_of(&error.to_string()))
    })
}

async fn pages<T: DeserializeOwned>(
    client: &Client,
    limit: Duration,
    list: Listed<T>,
) -> Result<(Vec<T>, Vec<String>), CallError> {
    let (mut items, mut cursor, mut notes) = (Vec::new(), None::<String>, Vec::new());
    for number in 0.. {
        let mut params = PaginatedRequestParams::default();
        params.cursor.clone_from(&cursor);
        let answer = client.request((list.request)(params), limit).await?;
        let (found, next) = page_of(&list, answer, &mut notes)
            .ok_or_else(|| CallError::Nonsense(format!("not a list of {}", list.key)))?;
        items.extend(found);
        if items.len() > MAX_ITEMS {
            notes.push(format!("its list has more than {MAX_ITEMS} entries; the others are left out"));
            items.truncate(MAX_ITEMS);
            break;
        }
        if next.is_none() {
            break;
        }
        if next == cursor || number >= MAX_PAGES {
            notes.push("its list does not end; the entries so far are used".to_owned());
            break;
        }
        cursor = next;
    }
    Ok((items, notes))
}

/// Returns all tools, and messages about those that were left out.
pub(super) async fn tools(
    client: &Client,
    part: &str,
    limit: Duration,
) -> Result<(Vec<ServerTool>, Vec<String>), CallError> {
    let list = Listed {
        key: "tools",
        noun: "tool",
        request: |params| ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params)),
        page: |answer| match answer {
            ServerResult::ListToolsResult(list) => Some((list.tools, list.next_cursor)),
            _ => None,
        },
    };
    let (tools, mut notes) = pages(client, limit, list).await?;
    let found = take(part, tools, &mut notes);
    Ok((found, notes))
}

/// Why no provider takes a schema, if so: one that a provider refuses costs the whole request.
fn schema_problem(schema: &Value) -> Option<String> {
    const OLDER: [&str; 4] = ["draft-04", "draft-06", "draft-07", "2019-09"];
    let declared = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
    let checked = if OLDER.iter().any(|draft| declared.contains(draft)) {
        jsonschema::meta::validate(schema)
    } else {
        jsonschema::draft202012::meta::validate(schema)
    };
    let error = checked.err()?;
    let place = error.instance_path().to_string();
    Some(words_of(&format!("{}: {error}", if place.is_empty() { "/" } else { &place })))
}

fn take(part: &str, tools: Vec<Described>, notes: &mut Vec<String>) -> Vec<ServerTool> {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    let ids = tool_ids(part, &names);
    let (mut found, mut bytes, mut too_many) = (Vec::new(), 0, 0);
    for (tool, id) in tools.into_iter().zip(ids) {
        let name = words_of(&tool.name);
        let Some(id) = id else {
            notes.push(format!("duplicate tool `{name}`; the first one is used"));
            continue;
        };
        let schema = Value::Object(Map::clone(&tool.input_schema));
        let size = schema.to_string().len();
        let description = tool.description.as_deref().unwrap_or_default();
        if size > MAX_SCHEMA || description.len() > MAX_DESCRIPTION {
            notes.push(format!("the tool `{name}` is left out: its description or its schema is too long"));
            continue;
        }
        if !matches!(schema.get("type"), None | Some(Value::String(_))) || is_no_object(&schema) {
            notes.push(format!("the tool `{name}` is left out: its arguments are not an object"));
            continue;
        }
        if let Some(why) = schema_problem(&schema) {
            notes.push(format!(
                "the tool `{name}` is left out: its `inputSchema` is not a JSON schema: {why}"
            ));
            continue;
        }
        bytes += size + description.len();
        if bytes > MAX_TOOLS_BYTES {
            too_many += 1;
            continue;
        }
        found.push(found_of(id, part, &tool, schema));
    }
    if too_many > 0 {
        notes.push(format!("{too_many} tools are left out: together they are too long"));
    }
    notes.truncate(20);
    found
}

fn is_no_object(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind != "object")
}

fn found_of(id: String, part: &str, tool: &Described, schema: Value) -> ServerTool {
    let description = tool.description.as_deref().unwrap_or_default().to_owned();
    let title = tool.title.clone().or_else(|| tool.annotations.as_ref().and_then(|a| a.title.clone()));
    let hash = sha256_hex(canonical(&json!([tool.name, tool.title, description, schema])));
    let mut offered = schema.clone();
    if let Some(object) = offered.as_object_mut() {
        // Some providers refuse a schema without them.
        object.entry("type").or_insert_with(|| "object".into());
        object.entry("properties").or_insert_with(|| json!({}));
    }
    let mut words = description.clone();
    super::content::bound(&mut words, SHOWN_DESCRIPTION);
    if words.trim().is_empty() {
        words = format!("The tool {} of the server {part}.", words_of(&tool.name));
    }
    let descriptor = ToolDescriptor::new(id, format!("{part}: {}", words_of(&tool.name)), words)
        .with_parameters(offered)
        .with_category("mcp")
        .with_class(ToolClass::Opaque);
    let hints = tool.annotations.as_ref().map(|hints| {
        let flag = |name: &str, value: Option<bool>| value.map(|value| format!("{name}: {value}"));
        [
            flag("read only", hints.read_only_hint),
            flag("destructive", hints.destructive_hint),
            flag("idempotent", hints.idempotent_hint),
            flag("open world", hints.open_world_hint),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
    });
    ServerTool {
        name: tool.name.to_string(),
        description,
        title,
        hints: hints.filter(|hints| !hints.is_empty()),
        schema,
        hash,
        descriptor,
    }
}

/// Returns the same text for the same value, whatever the order of its keys.
fn canonical(value: &Value) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(object) => {
                let mut pairs: Vec<_> = object.iter().collect();
                pairs.sort_by_key(|(key, _)| *key);
                Value::Object(pairs.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
            }
            Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }
    sorted(value).to_string()
}

pub(super) async fn prompts(client: &Client, limit: Duration) -> Result<Vec<Prompt>, CallError> {
    let list = Listed {
        key: "prompts",
        noun: "prompt",
        request: |params| ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(params)),
        page: |answer| match answer {
            ServerResult::ListPromptsResult(list) => Some((list.prompts, list.next_cursor)),
            _ => None,
        },
    };
    Ok(pages(client, limit, list).await?.0)
}

pub(super) async fn resources(client: &Client, limit: Duration) -> Result<Vec<Resource>, CallError> {
    let list = Listed {
        key: "resources",
        noun: "resource",
        request: |params| ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params)),
        page: |answer| match answer {
            ServerResult::ListResourcesResult(list) => Some((list.resources, list.next_cursor)),
            _ => None,
        },
    };
    Ok(pages(client, limit, list).await?.0)
}

/// Reads the content of a resource.
pub(super) async fn read_resource(
    client: &Arc<Client>,
    uri: &str,
    limit: Duration,
) -> Result<super::content::Content, CallError> {
    let request =
        ClientRequest::ReadResourceRequest(ReadResourceRequest::new(ReadResourceRequestParams::new(uri)));
    match client.request(request, limit).await? {
        ServerResult::ReadResourceResult(result) => {
            let mut content = super::content::Content::default();
            for resource in result.contents {
                content.resource(resource);
            }
            content.bounded();
            Ok(content)
        }
        _ => Err(CallError::Nonsense("no resource".to_owned())),
    }
}

/// Reads the content of a prompt, its messages one after the other.
pub(super) async fn get_prompt(
    client: &Arc<Client>,
    name: &str,
    arguments: Map<String, Value>,
    limit: Duration,
) -> Result<super::content::Content, CallError> {
    let mut params = GetPromptRequestParams::new(name);
    params.arguments = (!arguments.is_empty()).then_some(arguments);
    let request = ClientRequest::GetPromptRequest(GetPromptRequest::new(params));
    match client.request(request, limit).await? {
        ServerResult::GetPromptResult(result) => {
            let mut content = super::content::Content::default();
            for message in result.messages {
                content.block(message.content);
            }
            content.bounded();
            Ok(content)
        }
        _ => Err(CallError::Nonsense("no prompt".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(value: Value) -> Described {
        serde_json::from_value(value).expect("a tool")
    }

    #[test]
    fn the_hash_covers_name_description_and_schema_but_not_key_order() {
        let tool = |name: &str, description: &str, schema: Value| {
            let mut notes = Vec::new();
            take(
                "s",
                vec![described(json!({"name": name, "description": description, "inputSchema": schema}))],
                &mut notes,
            )
            .remove(0)
            .hash
        };
        let base = tool("t", "d", json!({"type": "object", "properties": {"a": {}, "b": {}}}));
        assert_eq!(base, tool("t", "d", json!({"properties": {"b": {}, "a": {}}, "type": "object"})));
        for other in [
            tool("u", "d", json!({"type": "object", "properties": {"a": {}, "b": {}}})),
            tool("t", "d ", json!({"type": "object", "properties": {"a": {}, "b": {}}})),
            tool("t", "d", json!({"type": "object", "properties": {"a": {}}})),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn unusable_tools_are_dropped_with_a_warning() {
        let mut notes = Vec::new();
        let tools = vec![
            described(json!({"name": "ok", "inputSchema": {}})),
            described(json!({"name": "ok", "inputSchema": {}, "description": "<IMPORTANT>another"})),
            described(
                json!({"name": "long", "inputSchema": {}, "description": "x".repeat(MAX_DESCRIPTION + 1)}),
            ),
            described(
                json!({"name": "deep", "inputSchema": {"type": "object", "x": "y".repeat(MAX_SCHEMA)}}),
            ),
            described(json!({"name": "list", "inputSchema": {"type": "array"}})),
            described(
                json!({"name": "odd", "inputSchema": {"type": "object", "properties": {"a": {"type": 5}}}}),
            ),
            described(
                json!({"name": "old", "inputSchema": {"$schema": "http://json-schema.org/draft-04/schema#",
                "type": "object", "properties": {"a": {"minimum": 1, "exclusiveMinimum": true}}}}),
            ),
        ];
        let found = take("s", tools, &mut notes);
        assert_eq!(found.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["ok", "old"]);
        assert_eq!(found[0].descriptor.parameters, json!({"type": "object", "properties": {}}));
        assert_eq!(found[0].descriptor.class, ToolClass::Opaque);
        assert_eq!(notes.len(), 5, "{notes:?}");
        assert!(notes[4].starts_with("the tool `odd` is left out: its `inputSchema` is not a JSON schema: "));
    }

    #[test]
    fn an_entry_keeps_its_readable_parts() {
        let entry = json!({"name": "t", "inputSchema": {"type": "object"}, "annotations": 5, "icons": {}});
        let read: Described = lenient(&entry).expect("a tool");
        assert_eq!((read.name.as_ref(), read.annotations), ("t", None));
        for (schema, why) in [(json!("x"), "`inputSchema` is not an object"), (Value::Null, "`inputSchema`")]
        {
            let refused = lenient::<Described>(&json!({"name": "t", "inputSchema": schema}));
            assert!(refused.is_err_and(|error| error.contains(why)));
        }
        assert!(lenient::<Described>(&json!({"name": "t"})).is_err());
    }

    #[test]
    fn five_hundred_tools_are_processed_quickly() {
        let tools: Vec<_> = (0..500)
            .map(|n| {
                described(json!({"name": format!("tool_{n}"), "description": "does something ".repeat(20), "inputSchema":
                    {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}}))
            })
            .collect();
        let began = std::time::Instant::now();
        assert_eq!(take("s", tools, &mut Vec::new()).len(), 500);
        // Unoptimized, on a machine that does other things.
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
}
