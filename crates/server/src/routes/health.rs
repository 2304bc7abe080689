//! Health checks for monitoring.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use aye_core::contract::ids::ThreadId;
use schemars::JsonSchema;
use serde::Serialize;

use super::extract::HubState;
use crate::access::{Caller, TokenScope};
use crate::api::{Api, HandlerOutput, KINDS, OperationBuilder, Text};
use crate::clock::now_ms;
use crate::error::ApiError;
use crate::guard::demand;

pub(super) fn routes(api: Api) -> Api {
    api.get("/health", "Report whether the server accepts requests", &[], health)
        .get("/health/ready", "The same", &[], ready)
        .get("/health/live", "Report whether the process is alive", &[], live)
        .get("/metrics", "Numbers for Prometheus", &[], metrics)
}

/// The health of the server.
#[derive(Serialize, JsonSchema)]
struct HealthReport {
    status: &'static str,
}

async fn live() -> Json<HealthReport> {
    Json(HealthReport { status: "ok" })
}

/// The report with its status.
struct Health(StatusCode, HealthReport);

impl IntoResponse for Health {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}

impl HandlerOutput for Health {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.gives::<HealthReport>(200, "Requests are taken");
        sketch.gives::<HealthReport>(503, "The store cannot be read, or the server is closing");
    }
}

async fn health(hub: HubState) -> Health {
    ready(hub).await
}

/// 200 while the store can be read and requests are taken, else 503.
async fn ready(State(hub): HubState) -> Health {
    let is_open = !hub.closing.is_cancelled();
    // A conversation that cannot exist: the store only has to answer.
    let reads = hub.store().load_thread(&ThreadId::from(" ")).await.is_ok();
    let (status, word) = match (is_open, reads) {
        (true, true) => (StatusCode::OK, "ok"),
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "closing"),
        (true, false) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
    };
    Health(status, HealthReport { status: word })
}

async fn metrics(State(hub): HubState, caller: Caller) -> Result<Text<0>, ApiError> {
    demand(&caller, TokenScope::Read)?;
    let waiting = hub.store().pending_count(now_ms()).await?;
    Ok(Text(([(header::CONTENT_TYPE, KINDS[0])], hub.metrics.text(waiting)).into_response()))
}
