//! Time spans as users type them.

use std::time::Duration;

/// Reads `500ms`, `90s`, `30m`, `2h`, `1d`, `2w` or `1h30m`: whole numbers with their units, a day being 24 hours.
pub fn parse_span(text: &str) -> Option<Duration> {
    // The library accepts more than users should rely on: fractions, signs, ISO 8601.
    let is_plain = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase() || c == ' ';
    let span: jiff::Span = text.trim().parse().ok().filter(|_| text.trim().chars().all(is_plain))?;
    Duration::try_from(span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_durations_are_parsed() {
        let seconds =
            [("90s", 90), ("30m", 1800), ("5 min", 300), ("2h", 7200), ("1d", 86_400), ("2w", 1_209_600)];
        for (text, seconds) in seconds.into_iter().chain([("1h30m", 5400), (" 1h 30m ", 5400), ("0s", 0)]) {
            assert_eq!(parse_span(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_span("500ms"), Some(Duration::from_millis(500)));
        for wrong in [
            "",
            "30",
            "h",
            "1.5h",
            "-2h",
            "2h ago",
            "PT1H",
            "2y",
            "1mo",
            "soon",
            "é",
            "99999999999999999999w",
        ] {
            assert_eq!(parse_span(wrong), None, "{wrong}");
        }
    }
}
