//! The page in the browser: three files that are part of the program.

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

use crate::hub::Hub;

/// What the page may do: nothing but talk to its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'";

pub(super) fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/", get(async || file(include_str!("../../web/index.html"), "text/html; charset=utf-8")))
        .route("/app.css", get(async || file(include_str!("../../web/app.css"), "text/css; charset=utf-8")))
        .route(
            "/app.js",
            get(async || file(include_str!("../../web/app.js"), "text/javascript; charset=utf-8")),
        )
}

fn file(text: &'static str, kind: &'static str) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text)
}
