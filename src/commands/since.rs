//! Parses times as users type them.

use crate::contract::span::parse_span;
use crate::failure::Failure;

/// Returns the time given with `--since` in Unix milliseconds: an age, a day, or a point in time.
pub(crate) fn since(text: Option<&str>, now_ms: u64) -> Result<Option<u64>, Failure> {
    let Some(text) = text else { return Ok(None) };
    match ago(text).map(|ago| now_ms.saturating_sub(ago)).or_else(|| moment(text)) {
        Some(at) => Ok(Some(at)),
        None => Err(Failure::usage(format!(
            "invalid time `{}`; expected an age such as 30m, 2h, 3d or 1w, a day such as 2026-11-21, or a \
             time such as 2026-11-21T14:30:00Z",
            text.escape_debug()
        ))),
    }
}

/// Returns the time given with `--at` in Unix milliseconds: a delay, the next time the clock shows it, a day,
/// or a point in time.
pub(crate) fn at(text: &str, now_ms: u64) -> Result<u64, Failure> {
    let from_now = || ago(text).map(|time| now_ms.saturating_add(time));
    from_now().or_else(|| of_clock(text, now_ms)).or_else(|| moment(text)).ok_or_else(|| {
        Failure::usage(format!(
            "invalid time `{}`; expected 14:30, a delay such as 30m, 2h, 3d or 1w, a day such as 2026-11-21, \
             or a time such as 2026-11-21T14:30:00Z",
            text.escape_debug()
        ))
    })
}

/// `14:30`: today, or tomorrow when that is over.
fn of_clock(text: &str, now_ms: u64) -> Option<u64> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str| -> Option<i8> {
        (matches!(text.len(), 1 | 2) && text.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| text.parse().ok())
            .flatten()
    };
    let time = jiff::civil::Time::new(number(hour)?, number(minute)?, 0, 0).ok()?;
    let now = jiff::Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?;
    let today = now.to_zoned(crate::program::zone()).date();
    [today, today.tomorrow().ok()?].into_iter().find_map(|day| {
        let at = day.to_datetime(time).to_zoned(crate::program::zone()).ok()?.timestamp();
        (at >= now).then(|| u64::try_from(at.as_millisecond()).unwrap_or(0))
    })
}

/// `2h`, `3d`, ... in milliseconds.
fn ago(text: &str) -> Option<u64> {
    parse_span(text).map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

fn moment(text: &str) -> Option<u64> {
    let stamp = match text.parse::<jiff::Timestamp>() {
        Ok(stamp) => stamp,
        // A day starts in the local time zone. A time without a zone is rejected: it would be read as the day
        // alone.
        Err(_) if text.len() == "2026-11-21".len() => {
            text.parse::<jiff::civil::Date>().ok()?.to_zoned(crate::program::zone()).ok()?.timestamp()
        }
        Err(_) => return None,
    };
    Some(u64::try_from(stamp.as_millisecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_future_times_are_parsed() {
        let now = 1_800_000_000_000;
        let when = |text| at(text, now).map_err(|failure| (failure.exit, failure.message));
        assert_eq!(when("2h"), Ok(now + 7_200_000));
        assert_eq!(when("2027-11-21T14:30:00Z"), Ok(1_826_807_400_000));
        for clock in ["0:00", "07:05", "23:59"] {
            let at = when(clock).expect("a time");
            assert!((now..=now + 25 * 3_600_000).contains(&at) && at % 60_000 == 0, "{clock}: {at}");
        }
        for wrong in ["", "24:00", "12:60", "1:2:3", "a:b", "+1:00", "12:", "soon"] {
            assert_eq!(when(wrong).map_err(|(exit, _)| exit), Err(2), "{wrong}");
        }
    }

    #[test]
    fn human_times_are_parsed() {
        let now = 1_800_000_000_000;
        let at = |text| since(Some(text), now).map_err(|failure| (failure.exit, failure.message));
        assert_eq!(since(None, now).ok(), Some(None));
        assert_eq!(at("90s"), Ok(Some(now - 90_000)));
        assert_eq!(at("2h"), Ok(Some(now - 7_200_000)));
        assert_eq!(at("3d"), Ok(Some(now - 259_200_000)));
        assert_eq!(at("1w"), Ok(Some(now - 604_800_000)));
        assert_eq!(at("9000w"), Ok(Some(0)));
        assert_eq!(at("2026-11-21T14:30:00Z"), Ok(Some(1_795_271_400_000)));
        assert_eq!(at("2026-11-21T14:30:00+01:00"), Ok(Some(1_795_267_800_000)));
        let day = at("2026-11-21").expect("a day").expect("a day");
        assert!(day.abs_diff(1_795_219_200_000) <= 14 * 3_600_000, "midnight, wherever this is");
        assert_eq!(at("1960-01-01"), Ok(Some(0)));
        for wrong in ["", "h", "2", "2y", "-2h", "1.5h", "tomorrow", "2026-13-01", "2026-11-21 14", "é", "2é"]
        {
            assert_eq!(at(wrong).map_err(|(exit, _)| exit), Err(2), "{wrong}");
        }
    }
}
