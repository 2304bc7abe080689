//! The page in the browser: three files that are part of the program.

use axum::http::header;
use axum::response::IntoResponse as _;

use crate::api::{Api, KINDS, Text};

/// The page's content security policy: it may only communicate with its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'";

pub(super) fn routes(api: Api) -> Api {
    api.get("/", "The page in the browser", &[], html).get("/app.css", "Its colours", &[], css).get(
        "/app.js",
        "Its program",
        &[],
        script,
    )
}

async fn html() -> Text<1> {
    file(include_str!("../../web/index.html"))
}

async fn css() -> Text<2> {
    file(include_str!("../../web/app.css"))
}

async fn script() -> Text<3> {
    file(include_str!("../../web/app.js"))
}

fn file<const KIND: usize>(text: &'static str) -> Text<KIND> {
    let headers = [
        (header::CONTENT_TYPE, KINDS[KIND]),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Text((headers, text).into_response())
}
