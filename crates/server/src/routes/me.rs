//! Signing in, and who one is.

use std::path::PathBuf;

use axum::extract::{ConnectInfo, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{HubState, JsonBody};
use crate::access::{Caller, TokenScope};
use crate::api::Api;
use crate::clock::now_ms;
use crate::connections::Peer;
use crate::error::ApiError;

pub(super) fn routes(api: Api) -> Api {
    api.post("/v1/sign-in", "Spend a code for a token", &[401], sign_in).get(
        "/v1/me",
        "Describe the caller and what this server offers",
        &[],
        me,
    )
}

#[derive(Deserialize, JsonSchema)]
struct SignIn {
    code: String,
}

/// A device that is signed in.
#[derive(Serialize, JsonSchema)]
struct SignedIn {
    token: String,
    name: String,
    scopes: Vec<TokenScope>,
}

/// The caller, and what is available here.
#[derive(Serialize, JsonSchema)]
struct Myself {
    name: String,
    scopes: Vec<TokenScope>,
    folders: Vec<PathBuf>,
    default_folder: Option<PathBuf>,
    model: String,
    version: &'static str,
}

/// Spends a code for a token.
async fn sign_in(
    State(hub): HubState,
    from: Option<Extension<ConnectInfo<Peer>>>,
    JsonBody(SignIn { code }): JsonBody<SignIn>,
) -> Result<Json<SignedIn>, ApiError> {
    let access = hub.program.access();
    if let Some((token, record)) = access.sign_in(&code, now_ms()).map_err(ApiError::internal)? {
        return Ok(Json(SignedIn { token, name: record.name, scopes: record.scopes }));
    }
    tokio::time::sleep(access.mistake(from.map(|Extension(info)| info.0.0.ip()))).await;
    Err(ApiError::new(
        StatusCode::UNAUTHORIZED,
        "invalid_code",
        format!("the code was already used or has expired; {}", hub.program.texts().code),
    ))
}

async fn me(State(hub): HubState, caller: Caller) -> Result<Json<Myself>, ApiError> {
    let folders = hub.program.folders();
    let model = match folders.first() {
        Some(folder) => hub.agent_folder(folder).await?.model(),
        None => String::new(),
    };
    Ok(Json(Myself {
        name: caller.token,
        scopes: caller.scopes,
        folders: folders.to_vec(),
        default_folder: folders.first().cloned(),
        model,
        version: env!("CARGO_PKG_VERSION"),
    }))
}
