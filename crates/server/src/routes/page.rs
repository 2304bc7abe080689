//! The page in the browser: its files are part of the program.

use axum::http::header;
use axum::response::IntoResponse as _;

use crate::api::{Api, KINDS, Text};

/// The page's content security policy: it may only communicate with its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'";

pub(super) fn routes(api: Api) -> Api {
    let api = api.get("/", "The page in the browser", &[], html).get("/app.css", "Its colours", &[], css);
    modules(api.get("/app.js", "Its program", &[], script))
}

/// The modules that the page's program imports.
macro_rules! modules {
    ($($name:ident $file:literal)*) => {
        $(async fn $name() -> Text<3> {
            file(include_str!(concat!("../../web/", $file)))
        })*

        fn modules(api: Api) -> Api {
            api$(.get(concat!("/", $file), "A module of its program", &[], $name))*
        }
    };
}

modules! {
    call "call.js"
    card "card.js"
    code "code.js"
    connection "connection.js"
    diff "diff.js"
    forms "forms.js"
    go "go.js"
    inbox "inbox.js"
    list "list.js"
    markdown "markdown.js"
    page "page.js"
    route "route.js"
    server "server.js"
    sign_in "sign-in.js"
    start "start.js"
    state "state.js"
    storage "storage.js"
    talk "talk.js"
    text "text.js"
    words "words.js"
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

#[cfg(test)]
mod tests {
    use aye_core::contract::display::is_unsafe;

    /// The characters that the page spells out, from the regular expression in `text.js`.
    fn spelled_out() -> Vec<(u32, u32)> {
        let source = include_str!("../../web/text.js");
        let (_, table) = source.split_once("\\\\r\\\\n|[").expect("the table's start");
        let (table, _) = table.split_once("]|").expect("the table's end");
        let table: String = table.split("\" +").map(|line| line.trim().trim_start_matches('"')).collect();
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let mut is_range = false;
        for entry in table.replace("\\\\u", " ").split_whitespace() {
            let digits = entry.trim_end_matches('-').trim_matches(['{', '}']);
            let code = u32::from_str_radix(digits, 16).expect("a code point");
            match ranges.last_mut() {
                Some(last) if is_range => last.1 = code,
                Some(_) | None => ranges.push((code, code)),
            }
            is_range = entry.ends_with('-');
        }
        ranges
    }

    #[test]
    fn the_page_spells_out_what_the_terminal_does() {
        let ranges = spelled_out();
        let is_spelled_out = |c: char| ranges.iter().any(|(from, to)| (*from..=*to).contains(&u32::from(c)));
        let differs: Vec<char> = ('\0'..=char::MAX).filter(|c| is_unsafe(*c) != is_spelled_out(*c)).collect();
        assert!(differs.is_empty(), "{differs:?}");
    }
}
