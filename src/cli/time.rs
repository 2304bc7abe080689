//! Times as they are typed.

use std::time::Duration;

use crate::contract::span::parse_span;

/// Reads a span of time such as `90s`, `30m`, `2h`, `1d`, `2w` or `1h30m`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    parse_span(text).ok_or_else(|| format!("invalid duration `{text}`; expected 30m, 2h or 1d"))
}

/// Reads whole seconds, such as `90s`, `10m` or `1h`.
pub(crate) fn whole_seconds(text: &str) -> Result<u64, String> {
    let bare = text.parse().ok().map(Duration::from_secs);
    bare.or_else(|| parse_span(text))
        .filter(|span| span.subsec_nanos() == 0)
        .map(|span| span.as_secs())
        .ok_or_else(|| "invalid time; expected for example 90s, 10m or 1h".to_owned())
}
