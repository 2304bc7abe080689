//! Times as they are typed.

use std::time::Duration;

/// Reads a span of time such as `90s`, `30m`, `2h`, `1d`, `2w` or `1h30m`.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("invalid duration `{text}`; expected 30m, 2h or 1d");
    let mut seconds: u64 = 0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = rest[digits..].trim_start();
        let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let unit = match &rest[..letters] {
            "s" => 1,
            "m" | "min" => 60,
            "h" => 3600,
            "d" => 86_400,
            "w" => 604_800,
            _ => return Err(wrong()),
        };
        rest = rest[letters..].trim_start();
        seconds = number.checked_mul(unit).and_then(|more| seconds.checked_add(more)).ok_or_else(wrong)?;
    }
    if text.trim().is_empty() { Err(wrong()) } else { Ok(Duration::from_secs(seconds)) }
}

/// Reads whole seconds, such as `90s`, `10m` or `1h`.
pub(super) fn whole_seconds(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => 0,
    };
    number
        .parse::<u64>()
        .ok()
        .filter(|_| factor > 0)
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| "invalid time; expected for example 90s, 10m or 1h".to_owned())
}
