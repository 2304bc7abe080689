//! When a job comes again: after a span, or at times of the clock.

use std::time::Duration;

use cronexpr::{MakeTimestamp, parse_crontab};
use serde::{Deserialize, Serialize};

use super::span::parse_span;

/// The shortest span between two jobs.
const SHORTEST: Duration = Duration::from_mins(1);

/// When a job comes again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Schedule {
    /// As it was written, for lists.
    pub text: String,
    #[serde(flatten)]
    rule: ScheduleRule,
    /// Whether each job is for the same conversation; a new one by default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_thread: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ScheduleRule {
    EveryMs(u64),
    /// Five fields and the name of a time zone.
    Cron(String),
}

/// Why a text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// It is no span, and no time of a day.
    #[error(
        "invalid schedule `{0}`; expected a span of at least 1m such as 30m, 2h or 1d, or a time such as `1d at 7:30`, \
         `weekday at 7:30` or `mon at 7:30`"
    )]
    Every(String),
    /// It is no crontab expression, or never comes.
    #[error(
        "invalid schedule `{text}`; expected five fields: minute, hour, day of month, month, day of week: {why}"
    )]
    Cron {
        /// What was written.
        text: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Schedule {
    /// Reads `30m`, `2h`, `1d`, `1d at 7:30`, `weekday at 7:30` or `mon at 7:30`; the clock is that of a time zone, by its
    /// name in the IANA database.
    ///
    /// # Errors
    /// The text is none of these, or a span of less than a minute.
    pub fn every(text: &str, zone: &str) -> Result<Self, ScheduleError> {
        let wrong = || ScheduleError::Every(text.escape_debug().to_string());
        let Some((day, time)) = text.split_once(" at ") else {
            let span = parse_span(text).filter(|span| *span >= SHORTEST).ok_or_else(wrong)?;
            let ms = u64::try_from(span.as_millis()).map_err(|_| wrong())?;
            return Ok(Self {
                text: text.trim().to_owned(),
                rule: ScheduleRule::EveryMs(ms),
                same_thread: false,
            });
        };
        let days = match day.trim().to_lowercase().as_str() {
            "1d" | "day" => "*".to_owned(),
            "weekday" => "mon-fri".to_owned(),
            "1w" | "week" => "mon".to_owned(),
            name if matches!(name, "mon" | "tue" | "wed" | "thu" | "fri" | "sat" | "sun") => name.to_owned(),
            _ => return Err(wrong()),
        };
        let clock = time.trim().split_once(':').and_then(|(hour, minute)| {
            let number = |text: &str| text.parse::<u8>().ok().filter(|_| matches!(text.len(), 1 | 2));
            Some((number(hour).filter(|hour| *hour < 24)?, number(minute).filter(|minute| *minute < 60)?))
        });
        let (hour, minute) = clock.ok_or_else(wrong)?;
        let made = Self::cron(&format!("{minute} {hour} * * {days}"), zone)?;
        Ok(Self { text: text.trim().to_owned(), ..made })
    }

    /// Reads a crontab expression of five fields; the clock is that of a time zone.
    ///
    /// # Errors
    /// It is none, or no time ever matches it.
    pub fn cron(text: &str, zone: &str) -> Result<Self, ScheduleError> {
        let rule = ScheduleRule::Cron(format!("{} {zone}", text.trim()));
        let schedule = Self { text: text.trim().to_owned(), rule, same_thread: false };
        schedule
            .after(0, 0)
            .map_err(|why| ScheduleError::Cron { text: text.escape_debug().to_string(), why })?;
        Ok(schedule)
    }

    /// Makes each job one for the same conversation.
    #[must_use]
    pub fn in_same_thread(self) -> Self {
        Self { same_thread: true, ..self }
    }

    /// Returns the first time after `now` at which a job is due, in Unix milliseconds, if the last one was due at `last`;
    /// times that have passed are not made up for. `None` if there is none.
    pub fn next_after(&self, last: u64, now: u64) -> Option<u64> {
        self.after(last, now).ok()
    }

    fn after(&self, last: u64, now: u64) -> Result<u64, String> {
        match &self.rule {
            ScheduleRule::EveryMs(ms) => {
                let ms = (*ms).max(1);
                let passed = now.saturating_sub(last) / ms + 1;
                Ok(last.saturating_add(ms.saturating_mul(passed)))
            }
            ScheduleRule::Cron(text) => {
                let table = parse_crontab(text).map_err(|error| error.to_string())?;
                let now = i64::try_from(now).ok().and_then(|now| MakeTimestamp::from_millisecond(now).ok());
                let next =
                    table.find_next(now.ok_or("the clock is wrong")?).map_err(|error| error.to_string())?;
                u64::try_from(next.timestamp().as_millisecond()).map_err(|error| error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> u64 {
        u64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_millisecond()).unwrap()
    }

    #[test]
    fn spans_count_from_the_last_time_and_pass_over_missed_ones() {
        let schedule = Schedule::every("30m", "UTC").unwrap();
        let last = at("2026-11-28T07:00:00Z");
        assert_eq!(schedule.next_after(last, last), Some(at("2026-11-28T07:30:00Z")));
        assert_eq!(schedule.next_after(last, at("2026-11-28T07:29:59Z")), Some(at("2026-11-28T07:30:00Z")));
        assert_eq!(schedule.next_after(last, at("2026-11-28T09:30:00Z")), Some(at("2026-11-28T10:00:00Z")));
        assert_eq!(schedule.next_after(last, 0), Some(at("2026-11-28T07:30:00Z")), "a clock that went back");
    }

    #[test]
    fn times_are_those_of_the_zone_across_a_change_of_its_clock() {
        let schedule = Schedule::every("1d at 7:30", "Europe/Berlin").unwrap();
        let before = at("2026-10-24T05:30:00Z");
        assert_eq!(schedule.next_after(0, before), Some(at("2026-10-25T06:30:00Z")), "summer time ended");
        let weekdays = Schedule::every("weekday at 07:30", "UTC").unwrap();
        let friday = at("2026-11-27T08:00:00Z");
        assert_eq!(weekdays.next_after(0, friday), Some(at("2026-11-30T07:30:00Z")));
        assert_eq!(
            Schedule::every("sun at 0:00", "UTC").unwrap().next_after(0, friday),
            Some(at("2026-11-29T00:00:00Z"))
        );
        let cron = Schedule::cron("*/20 9-17 * * mon-fri", "UTC").unwrap();
        assert_eq!(cron.next_after(0, at("2026-11-27T17:40:00Z")), Some(at("2026-11-30T09:00:00Z")));
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in
            ["", "30s", "0m", "soon", "2d at 7:30", "1d at 25:00", "1d at 7", "1d at 7:300", "-1h", "1d at"]
        {
            let error = Schedule::every(text, "UTC").unwrap_err().to_string();
            assert!(error.contains("expected a span of at least 1m"), "{text}: {error}");
        }
        for text in ["", "* * * *", "60 * * * *", "* * * * * *", "* * * * UTC x", "0 0 30 2 *"] {
            let error = Schedule::cron(text, "UTC").unwrap_err().to_string();
            assert!(error.contains("expected five fields"), "{text}: {error}");
        }
        assert!(Schedule::cron("* * * * *", "Nowhere/Here").is_err());
    }

    #[test]
    fn a_schedule_is_stored_as_written() {
        let schedule = Schedule::every("1d at 7:30", "UTC").unwrap().in_same_thread();
        let json = serde_json::to_value(&schedule).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"text": "1d at 7:30", "cron": "30 7 * * * UTC", "same_thread": true})
        );
        assert_eq!(serde_json::from_value::<Schedule>(json).unwrap(), schedule);
    }
}
