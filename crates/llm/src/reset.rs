//! When a provider answers again: every way in which an error says how long to wait.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;

/// Members of an error that contain a number of seconds.
const SECONDS: [&str; 5] =
    ["resets_in_seconds", "retry_after_seconds", "retry_after", "retryAfter", "resets_in"];
/// Members of an error that contain a point in time.
const TIMES: [&str; 3] = ["resets_at", "reset_at", "retry_at"];
/// What precedes a span of time in the sentence of an error, in lower case.
const PHRASES: [&str; 7] =
    ["try again in ", "try again after ", "retry in ", "retry after ", "wait ", "resets in ", "reset in "];
/// From here on a number is a point in time in seconds, and not a span.
const EPOCH_SECONDS: f64 = 1e9;
/// From here on it is one in milliseconds.
const EPOCH_MILLIS: f64 = 1e11;
/// A longer wait, about a century, is no wait that anybody means.
const LONGEST: Duration = Duration::from_hours(24 * 366 * 100);

/// Returns how long an error asks to wait: the longest of what its headers, its body and its sentence say. Where
/// none of them says it, the reset of the limit that is used up counts. An invalid value counts as none.
pub(super) fn wait_of(
    status: Option<StatusCode>,
    headers: Option<&HeaderMap>,
    error: &Value,
    sentence: &str,
    now: Timestamp,
) -> Option<Duration> {
    let named = headers.and_then(|headers| of_retry_after(headers, now));
    let asked = [named, of_body(error, now), of_sentence(sentence)].into_iter().flatten().max();
    if asked.is_some() || status != Some(StatusCode::TOO_MANY_REQUESTS) {
        return asked;
    }
    let headers = headers.into_iter().flatten();
    let of_answer = headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    // OpenRouter passes the headers of its provider on in the body.
    let passed_on = error.pointer("/metadata/headers").and_then(Value::as_object).into_iter().flatten();
    let passed_on = passed_on.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    of_limits(of_answer.chain(passed_on), now)
}

fn of_retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(number) {
        return duration(millis / 1000.0);
    }
    let value = text("retry-after")?;
    match number(value) {
        Some(number) => from_number(number, now),
        None => until_date(value, now),
    }
}

/// Reads the members of an error: `resets_in_seconds`, `resets_at`, `retry_after_ms`, and what Gemini says in
/// `{"@type": ".../google.rpc.RetryInfo", "retryDelay": "34.4s"}`.
fn of_body(error: &Value, now: Timestamp) -> Option<Duration> {
    let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let delays = details.filter_map(|detail| span(detail.get("retryDelay")?.as_str()?));
    let places = [Some(error), error.get("error"), error.get("metadata")];
    let members = places.into_iter().flatten().flat_map(|place| {
        let of = |names: &'static [&'static str]| names.iter().filter_map(move |name| place.get(*name));
        let seconds = of(&SECONDS).filter_map(number_of).filter_map(duration);
        let millis = place.get("retry_after_ms").and_then(number_of).and_then(|ms| duration(ms / 1000.0));
        let times = of(&TIMES).filter_map(move |time| match time.as_str() {
            Some(text) => until(text, now),
            None => from_number(number_of(time)?, now),
        });
        seconds.chain(millis).chain(times)
    });
    members.chain(delays).max()
}

/// Reads `Please try again in 3.2s` and its kin.
fn of_sentence(sentence: &str) -> Option<Duration> {
    let sentence = sentence.to_ascii_lowercase();
    let matches = PHRASES.iter().flat_map(|phrase| sentence.match_indices(phrase));
    let spans = matches.filter_map(|(at, phrase)| {
        let rest = sentence[at + phrase.len()..].trim_start();
        let mut hedges = ["about ", "approximately ", "at least "].iter();
        leading_span(hedges.find_map(|hedge| rest.strip_prefix(hedge)).unwrap_or(rest))
    });
    spans.max()
}

/// Reads `x-ratelimit-reset-requests` and other such headers: of a limit that has nothing remaining the reset has
/// to be waited for; where none is said to be used up, the first reset may be enough.
fn of_limits<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>, now: Timestamp) -> Option<Duration> {
    let headers: Vec<(String, &str)> =
        headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim())).collect();
    let resets = headers.iter().filter(|(name, _)| name.contains("ratelimit") && name.contains("reset"));
    let waits: Vec<(Duration, bool)> = resets
        .filter_map(|(name, value)| {
            let remaining = name.replace("reset", "remaining");
            let remaining = headers.iter().find(|(name, _)| *name == remaining);
            let is_used_up = remaining.and_then(|(_, value)| number(value)) == Some(0.0);
            Some((until(value, now)?, is_used_up))
        })
        .collect();
    let used_up = waits.iter().filter(|(_, is_used_up)| *is_used_up).map(|(wait, _)| *wait).max();
    used_up.or_else(|| waits.iter().map(|(wait, _)| *wait).min())
}

/// Reads a span, a point in time, or a number that is one of the two.
fn until(text: &str, now: Timestamp) -> Option<Duration> {
    if let Some(number) = number(text) {
        return from_number(number, now);
    }
    span(text).or_else(|| Duration::try_from(text.parse::<Timestamp>().ok()?.duration_since(now)).ok())
}

/// An HTTP date; one that is over says nothing.
fn until_date(text: &str, now: Timestamp) -> Option<Duration> {
    let then = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text).ok()?;
    Duration::try_from(then.duration_since(now)).ok()
}

fn from_number(number: f64, now: Timestamp) -> Option<Duration> {
    let now = now.as_millisecond() as f64 / 1000.0;
    match number {
        EPOCH_MILLIS.. => duration(number / 1000.0 - now),
        EPOCH_SECONDS.. => duration(number - now),
        _ => duration(number),
    }
}

fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|span| *span <= LONGEST)
}

fn number_of(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| number(value.as_str()?))
}

/// Digits with at most one point: no sign, no exponent, no `NaN`.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_plain = text.len() <= 24
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    is_plain.then(|| text.parse().ok()).flatten()
}

/// The whole text as a span: `20ms`, `3.2s`, `6m0s`.
fn span(text: &str) -> Option<Duration> {
    let text = text.to_ascii_lowercase();
    let (span, rest) = pieces(&text)?;
    rest.is_empty().then_some(span)
}

/// The span that a text starts with: `1 hour and 5 minutes, then …`.
fn leading_span(text: &str) -> Option<Duration> {
    pieces(text).map(|(span, _)| span)
}

/// Adds up the numbers with units that a text starts with, and returns the sum and what follows.
fn pieces(text: &str) -> Option<(Duration, &str)> {
    let mut rest = text.trim_start();
    let mut sum: Option<Duration> = None;
    loop {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let Some(count) = number(&rest[..digits]) else { break };
        let after = rest[digits..].trim_start();
        let letters = after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let Some(unit) = unit(&after[..letters]) else { break };
        sum = Some(sum.unwrap_or_default().saturating_add(duration(count * unit)?));
        let next = after[letters..].trim_start_matches([' ', ',']);
        rest = next.strip_prefix("and ").unwrap_or(next).trim_start();
    }
    sum.map(|sum| (sum, rest))
}

/// The seconds of a unit.
fn unit(word: &str) -> Option<f64> {
    Some(match word {
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => 0.001,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_795_000_000;

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).expect("a time")
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().expect("a name"), HeaderValue::from_str(value).expect("a value"))
        };
        pairs.iter().map(pair).collect()
    }

    fn of_headers(status: u16, pairs: &[(&str, &str)]) -> Option<f64> {
        let status = StatusCode::from_u16(status).ok();
        wait_of(status, Some(&headers(pairs)), &Value::Null, "", now()).map(|wait| wait.as_secs_f64())
    }

    fn of_error(error: &Value) -> Option<f64> {
        let sentence = error["message"].as_str().unwrap_or_default();
        wait_of(Some(StatusCode::TOO_MANY_REQUESTS), None, error, sentence, now())
            .map(|wait| wait.as_secs_f64())
    }

    #[test]
    fn the_header_may_contain_seconds_milliseconds_or_a_date() {
        assert_eq!(of_headers(429, &[("retry-after", "3600")]), Some(3600.0));
        assert_eq!(of_headers(529, &[("retry-after", "1.5")]), Some(1.5));
        assert_eq!(of_headers(429, &[("retry-after-ms", "1500"), ("retry-after", "2")]), Some(1.5));
        let at = jiff::fmt::rfc2822::DateTimePrinter::new()
            .timestamp_to_rfc9110_string(&Timestamp::from_second(NOW + 90).expect("a time"))
            .expect("a date");
        assert_eq!(of_headers(503, &[("retry-after", &at)]), Some(90.0));
        for nonsense in ["-5", "NaN", "1e9", "soon", "", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(of_headers(429, &[("retry-after", nonsense)]), None, "{nonsense}");
        }
    }

    #[test]
    fn the_body_names_seconds_or_a_time() {
        for (error, expected) in [
            (json!({"type": "usage_limit_reached", "resets_in_seconds": 5400}), 5400.0),
            (json!({"resets_at": NOW + 60}), 60.0),
            (json!({"resets_at": (NOW + 60) * 1000}), 60.0),
            (json!({"reset_at": "2026-11-18T11:08:20Z"}), 100.0),
            (json!({"retry_after_ms": "250"}), 0.25),
            (json!({"error": {"retry_after": 12.5}}), 12.5),
            (
                json!({"details": [{"@type": "type.googleapis.com/google.rpc.Help"}, {"retryDelay": "34.074824224s"}]}),
                34.074_824_224,
            ),
            (
                json!({"metadata": {"headers": {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": format!("{}", (NOW + 7) * 1000)}}}),
                7.0,
            ),
        ] {
            let wait = of_error(&error).unwrap_or(f64::NAN);
            assert!((wait - expected).abs() < 1e-6, "{error}: {wait}");
        }
    }

    #[test]
    fn the_sentence_may_be_all_that_says_it() {
        for (sentence, expected) in [
            ("Rate limit reached for gpt-5 on tokens per min. Please try again in 3.2s. Visit …", Some(3.2)),
            ("Please try again in 20ms.", Some(0.02)),
            ("Please try again in 6m0s", Some(360.0)),
            ("Please try again in 1h2m3.5s.", Some(3723.5)),
            ("Try again in 2 hours and 5 minutes, or upgrade", Some(7500.0)),
            ("Your requests exceeded the rate limit. Please retry after 27 seconds.", Some(27.0)),
            ("You exceeded your current quota. Please retry in 34.4s.", Some(34.4)),
            ("please wait about 1 minute before you retry", Some(60.0)),
            ("try again in a moment", None),
            ("please wait 5 or more", None),
            ("try again later", None),
        ] {
            assert_eq!(of_error(&json!({"message": sentence})), expected, "{sentence}");
        }
    }

    #[test]
    fn a_limit_that_is_used_up_is_waited_for() {
        let both = [
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "6m0s"),
            ("x-ratelimit-remaining-tokens", "120"),
            ("x-ratelimit-reset-tokens", "1h0m0s"),
        ];
        assert_eq!(of_headers(429, &both), Some(360.0));
        assert_eq!(of_headers(529, &both), None, "an overloaded server is no limit");
        let unknown = [("x-ratelimit-reset-requests", "7.5"), ("x-ratelimit-reset-tokens", "20ms")];
        assert_eq!(of_headers(429, &unknown), Some(0.02));
        let anthropic = [
            ("anthropic-ratelimit-tokens-remaining", "0"),
            ("anthropic-ratelimit-tokens-reset", "2026-11-18T11:08:20Z"),
        ];
        assert_eq!(of_headers(429, &anthropic), Some(100.0));
        assert_eq!(of_headers(429, &[("x-ratelimit-reset", "soon")]), None);
        let named = [("retry-after", "3"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "60")];
        assert_eq!(of_headers(429, &named), Some(3.0), "what is asked for beats what can be derived");
    }

    #[test]
    fn the_longest_of_several_counts() {
        let wait = wait_of(
            Some(StatusCode::TOO_MANY_REQUESTS),
            Some(&headers(&[("retry-after", "1")])),
            &json!({"resets_in_seconds": 90}),
            "try again in 20s",
            now(),
        );
        assert_eq!(wait, Some(Duration::from_secs(90)));
    }
}
