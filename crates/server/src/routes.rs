//! The routes, one file for each kind of thing.

mod a2a;
mod ag_ui;
mod ai_sdk;
pub(crate) mod approvals;
mod config;
mod extract;
mod health;
mod me;
mod new_messages;
mod others;
mod page;
mod paging;
pub(crate) mod router;
mod run_view;
mod runs;
pub(crate) mod threads;

pub use crate::push_config::{A2aAuthentication, A2aPushConfig, PUSH_DONE};

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::handler::Handler;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any_service;

use super::app::AppState;
use super::connections::Peer;

/// The routes for a program that serves its own runtime: `build_router().with_state(AppState::new(…))`.
///
/// Requests need a token: [`ServerConfig::token`](super::app::HttpServerConfig::token), or the one that
/// [`AppState::token`] returns.
///
/// Served with `into_make_service_with_connect_info::<SocketAddr>()`, wrong tokens are counted for each address;
/// otherwise those of all clients together slow each other down.
pub fn build_router() -> Router<AppState> {
    Router::new().fallback(embedded)
}

async fn embedded(State(state): State<AppState>, mut request: Request) -> Response {
    let router = match state.router() {
        Ok(router) => router,
        Err(error) => return error.into_response(),
    };
    if let Some(ConnectInfo(from)) = request.extensions().get::<ConnectInfo<SocketAddr>>().copied() {
        request.extensions_mut().insert(ConnectInfo(Peer(from, None)));
    }
    Handler::<(), ()>::call(any_service(router), request, ()).await
}
