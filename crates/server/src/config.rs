//! The configuration as clients see it: agents and models, which an admin may define, and providers and MCP servers,
//! which they can only read. Nothing that a client defines can hold a rule, a mode, a hook, an address or a key.

use axum::http::StatusCode;
use aye_core::contract::config_entry::{EntryConflict, EntryExpectation};
use aye_core::contract::executor::ToolExecutionMode;
use futures::future::BoxFuture;
use jsonschema::error::ValidationErrorKind;
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::ApiError;

/// Maximum bytes of a definition.
const MAX_DEFINITION: usize = 256 << 10;

/// A kind of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigNamespace {
    Agents,
    Models,
    /// Services that offer models.
    Providers,
    McpServers,
}

impl ConfigNamespace {
    pub const ALL: [Self; 4] = [Self::Agents, Self::Models, Self::Providers, Self::McpServers];

    /// Its name in paths.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Models => "models",
            Self::Providers => "providers",
            Self::McpServers => "mcp-servers",
        }
    }

    /// The namespace of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|namespace| namespace.as_str() == name)
    }

    /// The name of one entry, in sentences.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Agents => "agent",
            Self::Models => "model",
            Self::Providers => "provider",
            Self::McpServers => "MCP server",
        }
    }

    /// Whether an admin may define entries.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Agents | Self::Models)
    }

    /// The schema of a definition; of what is shown if there are only local ones.
    pub(super) fn schema(self) -> Schema {
        match self {
            Self::Agents => schema_for!(AgentDefinition),
            Self::Models => schema_for!(ModelDefinition),
            Self::Providers => schema_for!(ProviderView),
            Self::McpServers => schema_for!(ServerEntry),
        }
    }

    /// Checks a definition against the schema.
    ///
    /// # Errors
    /// [`ApiError`] with the member that is missing, unknown or wrong.
    pub(super) fn check(self, definition: &Value) -> Result<(), ApiError> {
        if definition.to_string().len() > MAX_DEFINITION {
            let message = format!("a definition has at most {} KiB", MAX_DEFINITION >> 10);
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
        }
        let validator = jsonschema::draft202012::new(self.schema().as_value()).map_err(ApiError::internal)?;
        let Some(error) = validator.iter_errors(definition).next() else { return Ok(()) };
        let place = error.instance_path().as_str().trim_start_matches('/').replace('/', ".");
        Err(match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let name: String =
                    unexpected.first().map(|name| name.chars().take(80).collect()).unwrap_or_default();
                let message = format!("unknown member; see /v1/config/{}/$schema", self.as_str());
                ApiError::field(name, message)
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                ApiError::field(name, format!("`{name}` is missing"))
            }
            _ => {
                let message = format!("`{place}` does not fit: {}", error.masked_with(place.as_str()));
                ApiError::field(place, message)
            }
        })
    }
}

/// An agent, as an admin defines it. It runs with the rules, the permission mode, the hooks and the sandbox that the
/// local files give every agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentDefinition {
    /// Unique: letters, digits, `-` and `_`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,48}$"))]
    pub id: String,
    /// The purpose, in the words that other agents and users read when they choose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A model of `/v1/config/models`, or a name as `--model` takes it; the user's model when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The instructions; those of the built-in agent when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The maximum number of inferences per run; never more than the settings allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = u32::MAX))]
    pub max_rounds: Option<u32>,
    /// The order in which the calls of a step run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_execution: Option<ToolExecutionMode>,
    /// The tools that are offered, of those that are there; all when absent. Rules judge each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// The tools that are not offered, or calls that are denied: beats `allowed_tools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_tools: Option<Vec<String>>,
    /// Agents that it may delegate to; only those that run here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegates: Option<Vec<String>>,
}

/// A name for a model of a provider that the local files or the environment set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelDefinition {
    /// Unique: letters, digits, `.`, `-` and `_`.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,47}$"))]
    pub id: String,
    /// The provider, one of `/v1/config/providers`.
    #[schemars(length(min = 1, max = 100))]
    pub provider: String,
    /// The name that the provider knows.
    #[schemars(length(min = 1, max = 200))]
    pub model: String,
}

/// A provider, without its key and without the path and the query of its address.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ProviderView {
    /// Its name.
    pub id: String,
    /// Its wire format.
    pub adapter: String,
    /// Scheme, host and port.
    pub address: Option<String>,
    /// Whether there is a key.
    pub has_key: bool,
    /// Whether requests can be sent to it.
    pub is_usable: bool,
}

/// An MCP server, without its command line, address, headers and environment.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ServerEntry {
    /// Its name.
    pub id: String,
    /// Whose it is: `user` or `project`.
    pub scope: String,
    /// Whether aye is connected to the server.
    pub is_connected: bool,
    /// The tools of the server that agents can be offered.
    pub tools: Vec<String>,
}

/// Where an entry is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryOrigin {
    /// In a local file, in the environment, or in aye itself: no client can change it.
    Local,
    /// Over this API.
    Api,
}

/// An entry of a namespace.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ConfigEntry {
    /// Its id.
    pub id: String,
    /// Where it is defined.
    pub origin: EntryOrigin,
    /// The revision that published it; for `If-Match`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The definition, as a client may send it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<Value>,
    /// Why the entry is not in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What the entry comes to here.
    #[serde(flatten)]
    pub shown: Map<String, Value>,
}

/// A change of an entry.
#[derive(Clone, Debug)]
pub struct ConfigChange {
    /// The namespace; it is open.
    pub namespace: ConfigNamespace,
    /// The id, which is that of the definition.
    pub id: String,
    /// The definition, which fits the schema; `None` deletes the entry.
    pub definition: Option<Value>,
    /// What the entry must be at present.
    pub expected: EntryExpectation,
    /// The name of the token that wants it.
    pub token: String,
}

/// The configuration of a program.
pub trait ConfigHost: Send + Sync {
    /// The entries of a namespace. If two have one id, the first is in use.
    ///
    /// # Errors
    /// [`ApiError`].
    fn entries(&self, namespace: ConfigNamespace) -> BoxFuture<'_, Result<Vec<ConfigEntry>, ApiError>>;

    /// Checks and stores a change, and publishes it with a new revision for the runs that start from now on.
    ///
    /// # Errors
    /// [`ApiError`]: the change cannot be used; [`EntryConflict`]: the entry is not what the change expects. Nothing was
    /// changed.
    fn publish(&self, change: ConfigChange) -> BoxFuture<'_, Result<Result<u64, EntryConflict>, ApiError>>;
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use serde_json::json;

    use super::*;

    /// The member that is refused.
    async fn refused(namespace: ConfigNamespace, definition: Value) -> String {
        let Err(error) = namespace.check(&definition) else { return String::new() };
        let body = axum::body::to_bytes(error.into_response().into_body(), 1 << 20).await.expect("a body");
        assert!(body.len() < 500, "what was sent is not repeated");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        body["error"]["field"].as_str().unwrap_or("none").to_owned()
    }

    #[tokio::test]
    async fn a_definition_matches_the_schema_or_its_invalid_member_is_named() {
        use ConfigNamespace::{Agents, Models};
        let good = json!({
            "id": "helper", "description": "Helps.", "model": "fast", "system_prompt": "Help.", "max_rounds": 3,
            "tool_execution": "sequential", "allowed_tools": ["Read"], "excluded_tools": [], "delegates": ["aye"],
        });
        assert_eq!(refused(Agents, good).await, "");
        assert_eq!(refused(Agents, json!({ "id": "a", "model": null })).await, "");
        for name in [
            "permission",
            "sections",
            "hooks",
            "plugin_ids",
            "active_hook_filter",
            "endpoint",
            "hitl",
            "sandbox",
            "permission_mode",
            "mcp_servers",
            "registry",
            "name",
            "tools",
            "handoff",
            "context_policy",
            "__proto__",
        ] {
            assert_eq!(refused(Agents, json!({ "id": "a", name: {} })).await, name);
        }
        let long = "x".repeat(10_000);
        for id in ["", " ", "..", "a/b", "a\u{0}", "a\n", "é", "a.b", long.as_str()] {
            assert_eq!(refused(Agents, json!({ "id": id })).await, "id", "{id:?}");
        }
        assert_eq!(refused(Agents, json!({})).await, "id");
        assert_eq!(refused(Agents, json!({ "id": "a", "max_rounds": 0 })).await, "max_rounds");
        assert_eq!(
            refused(Agents, json!({ "id": "a", "allowed_tools": ["Read", 5] })).await,
            "allowed_tools.1"
        );
        assert_eq!(refused(Agents, json!({ "id": "a", "tool_execution": "fast" })).await, "tool_execution");
        assert_eq!(
            refused(Agents, json!({ "id": "a", "system_prompt": "x".repeat(300 << 10) })).await,
            "none"
        );
        assert_eq!(refused(Models, json!({ "id": "fast.1", "provider": "p", "model": "org/m" })).await, "");
        assert_eq!(refused(Models, json!({ "id": ".", "provider": "p", "model": "m" })).await, "id");
        assert_eq!(refused(Models, json!({ "id": "a", "provider": "p" })).await, "model");
        for name in ["base_url", "api_key_env", "price", "headers"] {
            assert_eq!(
                refused(Models, json!({ "id": "a", "provider": "p", "model": "m", name: "x" })).await,
                name
            );
        }
    }

    #[test]
    fn any_definition_matching_the_schema_can_be_read() {
        for (namespace, definition) in [
            (ConfigNamespace::Agents, json!({ "id": "a", "max_rounds": u32::MAX, "delegates": null })),
            (ConfigNamespace::Models, json!({ "id": "a", "provider": "p", "model": "m" })),
        ] {
            assert!(namespace.check(&definition).is_ok());
            let is_read = match namespace {
                ConfigNamespace::Agents => serde_json::from_value::<AgentDefinition>(definition).is_ok(),
                _ => serde_json::from_value::<ModelDefinition>(definition).is_ok(),
            };
            assert!(is_read, "{namespace:?}");
        }
        let too_many = json!({ "id": "a", "max_rounds": 1_u64 << 40 });
        assert!(ConfigNamespace::Agents.check(&too_many).is_err());
    }
}
