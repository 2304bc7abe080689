//! Signing in, and who one is.

use std::sync::Arc;

use axum::extract::{ConnectInfo, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AppState, Body, now_ms};
use crate::access::Caller;
use crate::error::ApiError;
use crate::hub::Hub;
use crate::listen::Peer;

pub(super) fn routes() -> Router<Arc<Hub>> {
    Router::new().route("/v1/sign-in", post(sign_in)).route("/v1/me", get(me))
}

#[derive(Deserialize)]
struct SignIn {
    code: String,
}

/// Spends a code for a token.
async fn sign_in(
    State(hub): AppState,
    from: Option<Extension<ConnectInfo<Peer>>>,
    Body(SignIn { code }): Body<SignIn>,
) -> Result<Json<Value>, ApiError> {
    let access = hub.program.access();
    if let Some((token, record)) = access.sign_in(&code, now_ms()).map_err(ApiError::internal)? {
        return Ok(Json(json!({ "token": token, "name": record.name, "scopes": record.scopes })));
    }
    tokio::time::sleep(access.mistake(from.map(|Extension(info)| info.0.0.ip()))).await;
    Err(ApiError::new(
        StatusCode::UNAUTHORIZED,
        "invalid_code",
        "the code was used or its five minutes are over; start a new one where aye serves",
    ))
}

async fn me(State(hub): AppState, caller: Caller) -> Result<Json<Value>, ApiError> {
    let folders = hub.program.folders();
    let model = match folders.first() {
        Some(folder) => hub.workshop(folder).await?.model(),
        None => String::new(),
    };
    Ok(Json(json!({
        "name": caller.token,
        "scopes": caller.scopes,
        "folders": folders,
        "default_folder": folders.first(),
        "model": model,
        "version": env!("CARGO_PKG_VERSION"),
    })))
}
