//! All routes in one router, and their document.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware;

use super::{a2a, ag_ui, ai_sdk, approvals, config, health, me, others, page, runs, threads};
use crate::api::{Api, Operation, document};
use crate::error::ApiError;
use crate::guard::{Guard, MAX_BODY, guard};
use crate::hub::Hub;

pub(crate) fn router(guarding: Guard) -> Router {
    let hub = Arc::clone(&guarding.hub);
    api(&hub)
        .into_router()
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "not_found", "no endpoint has this path"))
        .method_not_allowed_fallback(async || {
            ApiError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "this path does not support this method",
            )
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(guarding, guard))
        .with_state(hub)
}

/// Builds all routes, with their descriptions.
fn api(hub: &Arc<Hub>) -> Api {
    let groups = [
        page::routes,
        health::routes,
        me::routes,
        threads::routes,
        runs::routes,
        approvals::routes,
        config::routes,
        ai_sdk::routes,
        ag_ui::routes,
        a2a::routes,
        others::routes,
    ];
    let mcp = Router::new().nest_service("/v1/mcp", crate::mcp::http(hub));
    let api = groups.into_iter().fold(Api::default(), |api, group| group(api));
    api.also(mcp, &MCP).get("/v1/openapi.json", "This document", &[], document)
}

/// The operations of MCP, which has its own service.
const MCP: [Operation; 3] = [
    ("post", "/v1/mcp", "Send a message of MCP", "mcp::post"),
    ("get", "/v1/mcp", "Listen to an MCP session", "mcp::get"),
    ("delete", "/v1/mcp", "End a session of MCP", "mcp::delete"),
];
