//! Routes that describe themselves: every route that answers requests is also in the document of
//! `/v1/openapi.json`, because both are made from the same handlers.

use std::any::type_name;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::extract::{ConnectInfo, Extension, Path, State};
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use axum::{Json, Router};
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::access::{Caller, TokenScope};
use super::connections::Peer;
use super::error::{ApiError, ErrorBody};
use super::hub::Hub;

/// The version of the specification that the document follows.
const OPENAPI: &str = "3.1.0";
/// The name of the scheme with which callers prove who they are.
const SCHEME: &str = "token";
/// The path of named schemas.
const SCHEMAS: &str = "/components/schemas";
/// The errors that any request may be answered with: an invalid form, host or path, or a failure.
const ANY: [u16; 6] = [400, 403, 404, 500, 503, 507];

/// One method of one path.
struct Described {
    method: &'static str,
    path: &'static str,
    about: &'static str,
    /// The handler by its full name, which gives the operation its id.
    handler: &'static str,
    /// Statuses besides those that its parts declare.
    fails: &'static [u16],
    describe: fn(&mut OperationBuilder<'_>),
}

/// Routes and what they are.
#[derive(Default)]
pub(super) struct Api {
    router: Router<Arc<Hub>>,
    described: Vec<Described>,
}

/// The callers that may use an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Anybody,
    Token,
    Scope(TokenScope),
}

/// A description in the making.
pub(super) struct OperationBuilder<'a> {
    inputs: &'a mut SchemaGenerator,
    outputs: &'a mut SchemaGenerator,
    parameters: Vec<Value>,
    body: Option<Value>,
    responses: BTreeMap<u16, Value>,
    entry: Entry,
}

/// A handler whose parts can be described.
pub(super) trait Describe<I> {
    fn describe(sketch: &mut OperationBuilder<'_>);
}

/// A part of a request that a handler takes.
pub(super) trait HandlerInput {
    fn describe(sketch: &mut OperationBuilder<'_>);
}

/// The response of a handler.
pub(super) trait HandlerOutput {
    fn describe(sketch: &mut OperationBuilder<'_>);
}

macro_rules! describe {
    ($($part:ident),*) => {
        impl<F, G, O, $($part),*> Describe<($($part,)*)> for F
        where
            F: Fn($($part),*) -> G,
            G: Future<Output = O>,
            O: HandlerOutput,
            $($part: HandlerInput,)*
        {
            fn describe(sketch: &mut OperationBuilder<'_>) {
                $($part::describe(sketch);)*
                O::describe(sketch);
            }
        }
    };
}

describe!();
describe!(A);
describe!(A, B);
describe!(A, B, C);
describe!(A, B, C, D);

impl Api {
    fn on<H, T, I>(
        mut self,
        filter: MethodFilter,
        method: &'static str,
        path: &'static str,
        about: &'static str,
        fails: &'static [u16],
        handler: H,
    ) -> Self
    where
        H: Handler<T, Arc<Hub>> + Describe<I>,
        T: 'static,
    {
        self.described.push(Described {
            method,
            path,
            about,
            handler: type_name::<H>(),
            fails,
            describe: H::describe,
        });
        self.router = self.router.route(path, on(filter, handler));
        self
    }

    /// Adds routes that cannot describe themselves: handlers of several methods and paths in one.
    #[must_use]
    pub(super) fn also(mut self, router: Router<Arc<Hub>>, operations: &[Operation]) -> Self {
        self.router = self.router.merge(router);
        self.described.extend(operations.iter().map(|operation| Described {
            method: operation.0,
            path: operation.1,
            about: operation.2,
            handler: operation.3,
            fails: &[405],
            describe: if operation.0 == "post" { with_body } else { without_body },
        }));
        self
    }

    /// Returns the routes, one of which serves the document about all of them.
    pub(super) fn into_router(self) -> Router<Arc<Hub>> {
        let document = Arc::new(ApiDocument { described: self.described, text: OnceLock::new() });
        self.router.layer(Extension(document))
    }
}

/// A method, its path, what it does and its name, for handlers that cannot describe themselves.
pub(super) type Operation = (&'static str, &'static str, &'static str, &'static str);

fn without_body(sketch: &mut OperationBuilder<'_>) {
    sketch.entry = Entry::Token;
    for status in [200, 400, 401, 403, 404, 409, 500] {
        // Errors, too, are those of the protocol.
        sketch.responses.insert(status, json!({ "description": "What the protocol says" }));
    }
}

fn with_body(sketch: &mut OperationBuilder<'_>) {
    without_body(sketch);
    sketch.body = Some(json!({ "application/json": { "schema": { "type": "object" } } }));
}

macro_rules! methods {
    ($($name:ident $filter:ident $word:literal),*) => {
        impl Api {
            $(
                pub(super) fn $name<H, T, I>(
                    self,
                    path: &'static str,
                    about: &'static str,
                    fails: &'static [u16],
                    handler: H,
                ) -> Self
                where
                    H: Handler<T, Arc<Hub>> + Describe<I>,
                    T: 'static,
                {
                    self.on(MethodFilter::$filter, $word, path, about, fails, handler)
                }
            )*
        }
    };
}

methods!(get GET "get", post POST "post", put PUT "put", patch PATCH "patch", delete DELETE "delete");

/// The document, written when it is first asked for.
pub(super) struct ApiDocument {
    described: Vec<Described>,
    text: OnceLock<String>,
}

impl ApiDocument {
    fn text(&self) -> &str {
        self.text.get_or_init(|| self.write().to_string())
    }

    fn write(&self) -> Value {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = SCHEMAS.into();
                settings.meta_schema = None;
            })
        };
        let mut inputs = settings().for_deserialize().into_generator();
        let mut outputs = settings().for_serialize().into_generator();
        let error = outputs.subschema_for::<ErrorBody>();
        let mut paths = Map::new();
        for described in &self.described {
            let mut sketch = OperationBuilder {
                inputs: &mut inputs,
                outputs: &mut outputs,
                parameters: named(described.path),
                body: None,
                responses: BTreeMap::new(),
                entry: Entry::Anybody,
            };
            (described.describe)(&mut sketch);
            sketch.fail(&ANY, &error);
            sketch.fail(described.fails, &error);
            if sketch.entry != Entry::Anybody {
                sketch.fail(&[401], &error);
            }
            if sketch.body.is_some() {
                sketch.fail(&[413, 415], &error);
            }
            let methods = paths.entry(described.path).or_insert_with(|| json!({}));
            methods[described.method] = sketch.written(described);
        }
        let mut schemas = inputs.take_definitions(true);
        schemas.extend(outputs.take_definitions(true));
        json!({
            "openapi": OPENAPI,
            "info": {
                "title": "aye",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Conversations, questions and their answers. Every decision takes the path that a \
                                keypress takes.",
            },
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": { SCHEME: { "type": "http", "scheme": "bearer" } },
            },
        })
    }
}

/// The parameters that a path names.
fn named(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| Some(part.strip_prefix('{')?.split_once('}')?.0));
    names
        .map(|name| {
            json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } })
        })
        .collect()
}

impl OperationBuilder<'_> {
    pub(super) fn gives<T: JsonSchema>(&mut self, status: u16, what: &str) {
        let schema = self.outputs.subschema_for::<T>();
        self.answers(status, what, "application/json", &json!(schema));
    }

    pub(super) fn answers(&mut self, status: u16, what: &str, kind: &str, schema: &Value) {
        let content = json!({ kind: { "schema": schema } });
        self.responses.insert(status, json!({ "description": what, "content": content }));
    }

    fn fail(&mut self, statuses: &[u16], error: &schemars::Schema) {
        for status in statuses {
            let reason = StatusCode::from_u16(*status).ok().and_then(|status| status.canonical_reason());
            let content = json!({ "application/json": { "schema": error } });
            let response = json!({ "description": reason.unwrap_or("Refused"), "content": content });
            self.responses.entry(*status).or_insert(response);
        }
    }

    fn written(self, described: &Described) -> Value {
        // `aye_server::routes::threads::create` is the operation `threads_create`.
        let mut names = described.handler.rsplit("::");
        let (own, module) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
        let mut about = json!({
            "operationId": format!("{module}_{own}"),
            "tags": [module],
            "summary": described.about,
            "responses": self.responses.iter().map(|(status, of)| (status.to_string(), of.clone())).collect::<Map<_, _>>(),
        });
        if !self.parameters.is_empty() {
            about["parameters"] = Value::Array(self.parameters);
        }
        if let Some(content) = self.body {
            about["requestBody"] = json!({ "content": content });
        }
        about["security"] = match self.entry {
            Entry::Anybody => json!([]),
            Entry::Token => json!([{ SCHEME: [] }]),
            Entry::Scope(scope) => json!([{ SCHEME: [scope.as_str()] }]),
        };
        about
    }

    /// It is for callers with a token, and with that scope.
    pub(super) fn needs(&mut self, scope: TokenScope) {
        self.entry = Entry::Scope(scope);
    }

    pub(super) fn takes_body<T: JsonSchema>(&mut self) {
        let schema = self.inputs.subschema_for::<T>();
        self.body = Some(json!({ "application/json": { "schema": schema } }));
    }

    pub(super) fn takes_query<T: JsonSchema>(&mut self) {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let schema = settings.for_deserialize().into_generator().into_root_schema_for::<T>();
        let schema = json!(schema);
        for (name, about) in schema["properties"].as_object().into_iter().flatten() {
            self.parameters.push(json!({ "name": name, "in": "query", "schema": about }));
        }
    }

    pub(super) fn takes_header<T: JsonSchema>(&mut self, name: &str) {
        let schema = self.inputs.subschema_for::<T>();
        self.parameters.push(json!({ "name": name, "in": "header", "schema": schema }));
    }
}

impl HandlerInput for Caller {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        if sketch.entry == Entry::Anybody {
            sketch.entry = Entry::Token;
        }
    }
}

impl<T> HandlerInput for State<T> {
    fn describe(_: &mut OperationBuilder<'_>) {}
}

impl<T> HandlerInput for Path<T> {
    /// The path names its parameters itself.
    fn describe(_: &mut OperationBuilder<'_>) {}
}

impl HandlerInput for Option<Extension<ConnectInfo<Peer>>> {
    fn describe(_: &mut OperationBuilder<'_>) {}
}

impl HandlerInput for Extension<Arc<ApiDocument>> {
    fn describe(_: &mut OperationBuilder<'_>) {}
}

impl<T: JsonSchema> HandlerOutput for Json<T> {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.gives::<T>(200, "Done");
    }
}

impl<T: HandlerOutput> HandlerOutput for Result<T, ApiError> {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        T::describe(sketch);
    }
}

macro_rules! with_status {
    ($($(#[$doc:meta])* $name:ident = $status:ident, $word:literal;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name<T>(pub(super) T);

        impl<T: Serialize> IntoResponse for $name<T> {
            fn into_response(self) -> Response {
                (StatusCode::$status, Json(self.0)).into_response()
            }
        }

        impl<T: JsonSchema> HandlerOutput for $name<T> {
            fn describe(sketch: &mut OperationBuilder<'_>) {
                sketch.gives::<T>(StatusCode::$status.as_u16(), $word);
            }
        }
    )*};
}

with_status!(
    /// Something that was made: 201.
    Created = CREATED, "Made";
    /// Work that continues after the response: 202.
    Accepted = ACCEPTED, "Accepted";
);

/// Nothing to say: 204.
pub(super) struct Nothing;

impl IntoResponse for Nothing {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

impl HandlerOutput for Nothing {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.responses.insert(204, json!({ "description": "Nothing to say" }));
    }
}

/// A stream of server-sent events.
pub(super) struct EventStream(pub(super) Response);

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        self.0
    }
}

impl HandlerOutput for EventStream {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        let events = json!({ "description": "Server-sent events", "content": { "text/event-stream": {} } });
        sketch.responses.insert(200, events);
    }
}

/// A stream, or nothing to stream.
pub(super) struct StreamOrNothing(pub(super) Option<EventStream>);

impl IntoResponse for StreamOrNothing {
    fn into_response(self) -> Response {
        self.0.map_or_else(|| Nothing.into_response(), IntoResponse::into_response)
    }
}

impl HandlerOutput for StreamOrNothing {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        EventStream::describe(sketch);
        Nothing::describe(sketch);
    }
}

/// A text of another kind than JSON.
pub(super) struct Text<const KIND: usize>(pub(super) Response);

/// Kinds of texts.
pub(super) const KINDS: [&str; 4] = [
    "text/plain; version=0.0.4; charset=utf-8",
    "text/html; charset=utf-8",
    "text/css; charset=utf-8",
    "text/javascript; charset=utf-8",
];

impl<const KIND: usize> IntoResponse for Text<KIND> {
    fn into_response(self) -> Response {
        self.0
    }
}

impl<const KIND: usize> HandlerOutput for Text<KIND> {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        let kind = KINDS[KIND].split(';').next().unwrap_or_default();
        sketch.answers(200, "The text", kind, &json!({ "type": "string" }));
    }
}

/// `/v1/openapi.json`
pub(super) async fn document(
    _: Caller,
    Extension(document): Extension<Arc<ApiDocument>>,
) -> Result<Json<Value>, ApiError> {
    serde_json::from_str(document.text()).map(Json).map_err(ApiError::internal)
}
