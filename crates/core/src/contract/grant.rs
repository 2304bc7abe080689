//! The options of a grant: which calls, scope, expiry.

use serde::{Deserialize, Serialize};

use super::ids::SuspensionId;
use super::record::GrantScope;

/// The expiry of a grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantEnd {
    #[default]
    Never,
    /// This many minutes after the grant was made.
    Minutes(u64),
    /// At midnight, in the user's time zone.
    Today,
    /// At the end of a day (`2026-12-01`) or at a time (`2026-12-01T14:30`), in the user's time zone.
    Until(String),
    /// After this many calls.
    Uses(u64),
}

/// The maximum number of calls of a grant: no user means more, or a longer time than the limit below.
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

    /// Returns the words for the user after "allow …".
    pub fn words(&self) -> String {
        match self {
            GrantEnd::Never => "never expires".to_owned(),
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

/// Returns whether a text has the form `2026-12-01`, `2026-12-01T14:30`, or the latter with a space; does not
/// check that the date exists.
fn is_date(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    matches!(shape.as_str(), "0000-00-00" | "0000-00-00T00:00" | "0000-00-00 00:00")
}

/// A rule that the user grants at a question.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantRequest {
    pub suspension: SuspensionId,
    /// The pattern, as it was shown.
    pub pattern: String,
    /// The scope of the rule.
    pub scope: GrantScope,
    pub end: GrantEnd,
}

/// A call of the past that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PastMatch {
    /// The subject of the call, on one line.
    pub summary: String,
    /// The number of times the call was made.
    pub times: u64,
    /// The number of times the user denied the call.
    pub declined: u64,
    /// When it was made last, in Unix milliseconds.
    pub last_at: u64,
}

/// The past calls of a project that a pattern would have allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GrantPreview {
    /// Why the pattern cannot be granted here, when it cannot.
    pub problem: Option<String>,
    /// Different calls that the pattern matches, limited in number: denied calls first, then the newest.
    pub matches: Vec<PastMatch>,
    /// The number of different calls that the pattern matches in all.
    pub total: usize,
    /// The number of those calls that were denied at least once.
    pub declined: usize,
    /// The number of different calls of the project that were checked.
    pub of: usize,
}

/// Why a grant of the ledger that matches a call did not answer it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedGrant {
    pub id: String,
    pub pattern: String,
    /// The scope of the grant in words: `this project`.
    pub scope: String,
    /// The reason why the grant did not apply, as it reads after the grant's name: `ended`, `was taken back`.
    pub why: String,
    /// When that came to be, in Unix milliseconds, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_expiries_are_parsed() {
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
