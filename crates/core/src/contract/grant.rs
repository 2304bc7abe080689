//! The options of a grant: which calls, scope, expiry.

use serde::{Deserialize, Serialize};

use super::ids::SuspensionId;
use super::record::GrantScope;

/// When a grant ends by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantEnd {
    /// It does not.
    #[default]
    Never,
    /// So many minutes after it was given.
    Minutes(u64),
    /// At midnight, where the person is.
    Today,
    /// At the end of a day (`2026-12-01`) or at a time (`2026-12-01T14:30`), where the person is.
    Until(String),
    /// After so many calls.
    Uses(u64),
}

/// No person means more calls than this, or a longer time.
const MOST_USES: u64 = 100_000;
/// Ten years.
const MOST_MINUTES: u64 = 10 * 366 * 24 * 60;

impl GrantEnd {
    /// The ends that one key goes through.
    pub const CYCLE: [GrantEnd; 6] = [
        GrantEnd::Never,
        GrantEnd::Minutes(60),
        GrantEnd::Today,
        GrantEnd::Uses(1),
        GrantEnd::Uses(5),
        GrantEnd::Uses(20),
    ];

    /// Reads what a person writes: `never`, `today`, `1h`, `30m`, `7d`, `5 uses`, `5`, `2026-12-01`,
    /// `2026-12-01T14:30`.
    ///
    /// # Errors
    /// [`GrantEndError`].
    pub fn parse(text: &str) -> Result<GrantEnd, GrantEndError> {
        let text = text.trim();
        let refused = || Err(GrantEndError::Form(text.to_owned()));
        match text {
            "never" | "none" => return Ok(GrantEnd::Never),
            "today" => return Ok(GrantEnd::Today),
            _ => {}
        }
        if is_date(text) {
            return Ok(GrantEnd::Until(text.replace(' ', "T")));
        }
        let digits = text.chars().take_while(char::is_ascii_digit).count();
        let Ok(number) = text[..digits].parse::<u64>() else { return refused() };
        let minutes = |each: u64| {
            let minutes = number.checked_mul(each).filter(|minutes| (1..=MOST_MINUTES).contains(minutes));
            minutes.map(GrantEnd::Minutes).ok_or_else(|| GrantEndError::Time(text.to_owned()))
        };
        match text[digits..].trim() {
            "m" | "min" => minutes(1),
            "h" => minutes(60),
            "d" | "day" | "days" => minutes(24 * 60),
            "" | "x" | "use" | "uses" | "call" | "calls" if (1..=MOST_USES).contains(&number) => {
                Ok(GrantEnd::Uses(number))
            }
            "" | "x" | "use" | "uses" | "call" | "calls" => Err(GrantEndError::Uses(text.to_owned())),
            _ => refused(),
        }
    }

    /// For the person, behind "allow …".
    pub fn words(&self) -> String {
        match self {
            GrantEnd::Never => "until revoked".to_owned(),
            GrantEnd::Minutes(minutes) if minutes % (24 * 60) == 0 => {
                format!("for {} d", minutes / (24 * 60))
            }
            GrantEnd::Minutes(minutes) if minutes % 60 == 0 => format!("for {} h", minutes / 60),
            GrantEnd::Minutes(minutes) => format!("for {minutes} min"),
            GrantEnd::Today => "until midnight".to_owned(),
            GrantEnd::Until(date) if date.contains('T') => format!("until {}", date.replace('T', " ")),
            GrantEnd::Until(date) => format!("until the end of {date}"),
            GrantEnd::Uses(1) => "for the next call".to_owned(),
            GrantEnd::Uses(uses) => format!("for the next {uses} calls"),
        }
    }
}

/// Why a text is not the end of a grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantEndError {
    /// It has no form that is known.
    #[error(
        "invalid expiry `{0}`; expected never, 1h, 30m, 7d, today, a date such as 2026-12-01 or 2026-12-01T14:30, or a \
         number of uses such as 5"
    )]
    Form(String),
    /// The time is too short or too long.
    #[error("invalid expiry `{0}`; expected between a minute and ten years")]
    Time(String),
    /// The uses are none or too many.
    #[error("invalid expiry `{0}`; expected between 1 and {MOST_USES} uses")]
    Uses(String),
}

/// `2026-12-01`, `2026-12-01T14:30` and the same with a blank: the form only, not whether there is such a day.
fn is_date(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    matches!(shape.as_str(), "0000-00-00" | "0000-00-00T00:00" | "0000-00-00 00:00")
}

/// A rule that a person grants at a question.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantRequest {
    /// The question.
    pub suspension: SuspensionId,
    /// The pattern, as it was shown.
    pub pattern: String,
    /// How far it reaches.
    pub scope: GrantScope,
    /// Until when.
    pub end: GrantEnd,
}

/// A call of the past that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PastMatch {
    /// What it was about, on one line.
    pub summary: String,
    /// How often it was made.
    pub times: u64,
    /// How often the person said no to it.
    pub declined: u64,
    /// When it was made last, in Unix milliseconds.
    pub last_at: u64,
}

/// What a pattern would have allowed of what was done in a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GrantPreview {
    /// Why the pattern cannot be granted here, when it cannot.
    pub problem: Option<String>,
    /// Different calls that it matches: those that were declined first, then newest first, and only so many.
    pub matches: Vec<PastMatch>,
    /// How many different calls it matches in all.
    pub total: usize,
    /// How many of them were declined at least once.
    pub declined: usize,
    /// How many different calls of the project were looked at.
    pub of: usize,
}

/// Why a grant of the ledger that matches a call did not answer it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedGrant {
    /// Its id.
    pub id: String,
    /// Its pattern.
    pub pattern: String,
    /// How far it reaches, in words: `this project`.
    pub scope: String,
    /// Why it did not answer, to be read behind its name: `ended`, `was taken back`.
    pub why: String,
    /// When that came to be, in Unix milliseconds, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_read_as_people_write_them() {
        for (text, end) in [
            ("never", GrantEnd::Never),
            ("today", GrantEnd::Today),
            ("1h", GrantEnd::Minutes(60)),
            ("30m", GrantEnd::Minutes(30)),
            ("7d", GrantEnd::Minutes(7 * 24 * 60)),
            ("5uses", GrantEnd::Uses(5)),
            ("1 use", GrantEnd::Uses(1)),
            (" 20 ", GrantEnd::Uses(20)),
            ("2026-12-01", GrantEnd::Until("2026-12-01".into())),
            ("2026-12-01 14:30", GrantEnd::Until("2026-12-01T14:30".into())),
        ] {
            assert_eq!(GrantEnd::parse(text), Ok(end), "{text}");
        }
        for text in [
            "",
            "soon",
            "0",
            "0h",
            "-1",
            "5 weeks",
            "99999999999999999999",
            "9999999d",
            "2026-1-1",
            "1ü",
            "٣",
        ] {
            assert!(GrantEnd::parse(text).is_err(), "{text}");
        }
    }
}
