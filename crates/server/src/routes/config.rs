//! The configuration: agents and models, which an admin may define; providers and MCP servers, which can be read.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use aye_core::contract::config_entry::{EntryConflict, EntryExpectation};
use serde_json::{Map, Value, json};

use super::extract::{AdminScope, Asked, Authorized, JsonBody, ReadScope, RequiredScope};
use super::paging::{ListPage, Paging, page};
use crate::access::Caller;
use crate::api::{Api, Created, HandlerInput, HandlerOutput, Nothing, OperationBuilder};
use crate::config::{ConfigChange, ConfigEntry, ConfigHost, ConfigNamespace};
use crate::error::ApiError;
use crate::hub::Hub;

pub(super) fn routes(api: Api) -> Api {
    let (all, one) = ("/v1/config/{namespace}", "/v1/config/{namespace}/{id}");
    api.get(all, "List the entries of a namespace", &[], list)
        .post(all, "Define an agent or a model", &[409], create)
        .get("/v1/config/{namespace}/$schema", "Show the JSON schema of a namespace", &[], schema)
        .get(one, "Show an entry", &[], show)
        .put(one, "Replace an agent or a model", &[409, 412], replace)
        .delete(one, "Delete an agent or a model", &[409, 412], remove)
}

/// A caller that may do what the route needs, in the namespace of the path; in that of the agents if the path has none.
pub(super) struct InNamespace<N> {
    hub: Arc<Hub>,
    caller: Caller,
    namespace: ConfigNamespace,
    /// The entry that the path names.
    id: String,
    need: PhantomData<N>,
}

impl<N: RequiredScope> FromRequestParts<Arc<Hub>> for InNamespace<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, hub: &Arc<Hub>) -> Result<Self, ApiError> {
        let Authorized { hub, caller, need } = Authorized::<N>::from_request_parts(parts, hub).await?;
        let names = Path::<HashMap<String, String>>::from_request_parts(parts, &hub).await;
        let Path(mut names) =
            names.map_err(|error| ApiError::new(error.status(), "invalid_path", error.body_text()))?;
        let name = names.remove("namespace").unwrap_or_else(|| ConfigNamespace::Agents.as_str().to_owned());
        let namespace =
            ConfigNamespace::parse(&name).ok_or_else(|| ApiError::not_found("namespace", &name))?;
        Ok(Self { hub, caller, namespace, id: names.remove("id").unwrap_or_default(), need })
    }
}

impl<N: RequiredScope> HandlerInput for InNamespace<N> {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.needs(N::SCOPE);
    }
}

impl<N> InNamespace<N> {
    fn config(&self) -> Result<&dyn ConfigHost, ApiError> {
        self.hub.program.config().ok_or_else(|| {
            ApiError::new(StatusCode::BAD_REQUEST, "config_disabled", "config management API not enabled")
        })
    }

    async fn entry(&self, id: &str) -> Result<ConfigEntry, ApiError> {
        let entries = self.config()?.entries(self.namespace).await?;
        let found = entries.into_iter().find(|entry| entry.id == id);
        found.ok_or_else(|| ApiError::not_found(self.namespace.noun(), id))
    }
}

impl InNamespace<AdminScope> {
    /// Refuses changes of what only local files define.
    fn check_open(&self) -> Result<(), ApiError> {
        if self.namespace.is_open() {
            return Ok(());
        }
        let message = format!(
            "the entries of `{}` come only from local files; no client can change them",
            self.namespace.as_str()
        );
        Err(ApiError::new(StatusCode::FORBIDDEN, "local_only", message))
    }

    /// Publishes an entry, or deletes it if there is no definition.
    async fn publish(
        &self,
        id: &str,
        definition: Option<Value>,
        expected: EntryExpectation,
    ) -> Result<(), ApiError> {
        let (config, namespace) = (self.config()?, self.namespace);
        if let Some(definition) = &definition {
            namespace.check(definition)?;
        }
        let (id, token) = (id.to_owned(), self.caller.token.clone());
        let change = ConfigChange { namespace, id: id.clone(), definition, expected, token };
        let Err(conflict) = config.publish(change).await? else { return Ok(()) };
        Err(match conflict {
            EntryConflict::Exists => {
                let message = format!("the {} `{id}` is already there; PUT replaces it", namespace.noun());
                ApiError::conflict("exists", message)
            }
            EntryConflict::Missing => ApiError::not_found(namespace.noun(), &id),
            EntryConflict::Stale(revision) => {
                let message = format!("`{id}` has changed and is now at revision {revision}; read it again");
                let refused = ApiError::new(StatusCode::PRECONDITION_FAILED, "stale", message);
                refused.with("revision", json!(revision))
            }
        })
    }
}

/// `If-Match: "7"`: the revision that the caller has read.
struct IfMatch(EntryExpectation);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Some(value) = parts.headers.get(header::IF_MATCH) else {
            return Ok(Self(EntryExpectation::Present));
        };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(Self(EntryExpectation::Present));
        }
        let number = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')?.parse().ok());
        let number = number.ok_or_else(|| {
            let message = "If-Match is the revision of the entry in quotes, such as \"7\", or *";
            ApiError::new(StatusCode::BAD_REQUEST, "invalid_if_match", message)
        })?;
        Ok(Self(EntryExpectation::Revision(number)))
    }
}

impl HandlerInput for IfMatch {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.takes_header::<String>("If-Match");
    }
}

/// An entry, with its revision as the ETag.
pub(super) struct Tagged(ConfigEntry);

impl IntoResponse for Tagged {
    fn into_response(self) -> Response {
        let tag = self.0.revision.map(|revision| [(header::ETAG, format!("\"{revision}\""))]);
        (tag, Json(self.0)).into_response()
    }
}

impl HandlerOutput for Tagged {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        Json::<ConfigEntry>::describe(sketch);
    }
}

pub(super) async fn list(
    place: InNamespace<ReadScope>,
    Asked(paging): Asked<Paging>,
) -> Result<Json<ListPage<ConfigEntry>>, ApiError> {
    let entries = place.config()?.entries(place.namespace).await?;
    page(paging, async |slice| Ok::<_, ApiError>(slice.of(entries)), |entry| entry).await
}

pub(super) async fn show(place: InNamespace<ReadScope>) -> Result<Tagged, ApiError> {
    Ok(Tagged(place.entry(&place.id).await?))
}

async fn schema(place: InNamespace<ReadScope>) -> Result<Json<Value>, ApiError> {
    place.config()?;
    Ok(Json(place.namespace.schema().to_value()))
}

async fn create(
    place: InNamespace<AdminScope>,
    JsonBody(definition): JsonBody<Map<String, Value>>,
) -> Result<Created<ConfigEntry>, ApiError> {
    place.check_open()?;
    let id = definition.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    place.publish(&id, Some(Value::Object(definition)), EntryExpectation::Absent).await?;
    Ok(Created(place.entry(&id).await?))
}

async fn replace(
    place: InNamespace<AdminScope>,
    IfMatch(expected): IfMatch,
    JsonBody(mut definition): JsonBody<Map<String, Value>>,
) -> Result<Tagged, ApiError> {
    place.check_open()?;
    let id = definition.entry("id").or_insert_with(|| Value::from(place.id.as_str()));
    if *id != place.id.as_str() {
        return Err(ApiError::field("id", "the id in the body must be the one in the path"));
    }
    place.publish(&place.id, Some(Value::Object(definition)), expected).await?;
    Ok(Tagged(place.entry(&place.id).await?))
}

async fn remove(place: InNamespace<AdminScope>, IfMatch(expected): IfMatch) -> Result<Nothing, ApiError> {
    place.check_open()?;
    place.publish(&place.id, None, expected).await?;
    Ok(Nothing)
}
