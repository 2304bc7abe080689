//! When a question expires and who is notified.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::span::parse_span;

/// The shortest and the longest time that a question may have.
const SHORTEST: u64 = 1;
const LONGEST: u64 = 365 * 24 * 3600;
/// The maximum number of entries; no user writes a longer list.
const MAX_NOTIFY: usize = 8;

/// When a question ends unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expiry {
    /// This long after the question was asked.
    After(Duration),
    /// It stays open.
    Never,
}

impl FromStr for Expiry {
    type Err = TermsError;

    fn from_str(text: &str) -> Result<Self, TermsError> {
        let wrong = || TermsError::Expiry(text.chars().take(40).collect());
        if text == "never" {
            return Ok(Self::Never);
        }
        parse_span(text)
            .filter(|span| span.subsec_nanos() == 0 && (SHORTEST..=LONGEST).contains(&span.as_secs()))
            .map(Self::After)
            .ok_or_else(wrong)
    }
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::After(time) = self else { return f.write_str("never") };
        let seconds = time.as_secs();
        let units = [(24 * 3600, "d"), (3600, "h"), (60, "m"), (1, "s")];
        let (size, unit) = units.into_iter().find(|(size, _)| seconds % size == 0).unwrap_or((1, "s"));
        write!(f, "{}{unit}", seconds / size)
    }
}

/// A way to notify the user of a pending question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notify {
    Bell,
    /// The terminal shows a notification of the desktop, when it is not the one in front.
    Desktop,
    /// A program is started, with the question as JSON on its standard input.
    Command(Vec<String>),
    /// A signed message is sent to the webhook that the user's settings have under this name.
    Webhook(String),
}

impl Notify {
    /// Reads one entry: `"bell"`, `"desktop"`, `{"command": ["program", "argument"]}` or `{"webhook": "NAME"}`.
    ///
    /// # Errors
    /// [`TermsError`].
    pub fn read(value: &Value) -> Result<Self, TermsError> {
        let wrong = || TermsError::Notify(value.to_string().chars().take(60).collect());
        match value {
            Value::String(word) if word == "bell" => Ok(Self::Bell),
            Value::String(word) if word == "desktop" => Ok(Self::Desktop),
            Value::Object(map) if map.len() == 1 && map.contains_key("webhook") => {
                let name = map.get("webhook").and_then(Value::as_str).filter(|name| !name.trim().is_empty());
                name.map(|name| Self::Webhook(name.to_owned())).ok_or_else(wrong)
            }
            Value::Object(map) if map.len() == 1 => {
                let words = map.get("command").and_then(Value::as_array).ok_or_else(wrong)?;
                let words: Option<Vec<String>> =
                    words.iter().map(|word| word.as_str().map(str::to_owned)).collect();
                let words = words.ok_or_else(wrong)?;
                let program = words.first().map(String::as_str).unwrap_or_default();
                if program.trim().is_empty() || words.iter().any(|word| word.contains('\0')) {
                    return Err(wrong());
                }
                if program.contains('/') && !program.starts_with('/') && !program.starts_with("~/") {
                    return Err(TermsError::RelativeProgram(program.to_owned()));
                }
                Ok(Self::Command(words))
            }
            _ => Err(wrong()),
        }
    }

    /// Reads a list of entries.
    ///
    /// # Errors
    /// What is wrong with the first that is wrong.
    pub fn read_all(value: &Value) -> Result<Vec<Self>, TermsError> {
        let Value::Array(entries) = value else { return Err(TermsError::NotAList(value.to_string())) };
        if entries.len() > MAX_NOTIFY {
            return Err(TermsError::TooMany(entries.len()));
        }
        entries.iter().map(Self::read).collect()
    }
}

/// What is wrong with terms: what is expected, and what is there instead, as the rest of a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    /// This is no expiry.
    #[error(
        "a time with a unit such as \"30m\" (s, m, h, d or w; 1 second to 365 days) or \"never\", not \"{}\"",
        .0.escape_debug()
    )]
    Expiry(String),
    /// This is no entry of `notify`.
    #[error(
        "\"bell\", \"desktop\", {{\"command\": [\"program\", \"argument\"]}} or {{\"webhook\": \"NAME\"}}, not {}",
        .0.escape_debug().to_string().replace("\\\"", "\"")
    )]
    Notify(String),
    /// A program has a relative path.
    #[error(
        "a program by its name, by an absolute path or by one that starts with ~/, not \"{}\"; a relative path is a \
         different program in each folder",
        .0.escape_debug()
    )]
    RelativeProgram(String),
    /// `notify` is not a list.
    #[error("a list such as [bell, desktop], not {}", .0.escape_debug())]
    NotAList(String),
    /// `notify` has too many entries.
    #[error("a list of at most {MAX_NOTIFY}, not of {0}")]
    TooMany(usize),
}

/// The terms of a rule, of a question, or of the settings. Absent terms are not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// When it ends unanswered.
    pub expires_in: Option<Expiry>,
    /// The notifications to send.
    pub notify: Option<Vec<Notify>>,
}

impl Terms {
    /// Returns whether no terms are set.
    pub fn is_empty(&self) -> bool {
        self.expires_in.is_none() && self.notify.is_none()
    }

    /// Adds other terms of the same question: the shorter time applies, and all notifications are sent.
    pub fn join(&mut self, other: &Terms) {
        self.expires_in = match (self.expires_in, other.expires_in) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        if let Some(more) = &other.notify {
            let all = self.notify.get_or_insert_default();
            for notify in more {
                if !all.contains(notify) {
                    all.push(notify.clone());
                }
            }
        }
    }

    /// Fills in terms that are not set from others.
    #[must_use]
    pub fn or(self, other: &Terms) -> Terms {
        Terms {
            expires_in: self.expires_in.or(other.expires_in),
            notify: self.notify.or_else(|| other.notify.clone()),
        }
    }

    /// The end of a question asked at that time, both in Unix milliseconds.
    pub fn ends_at(&self, asked_at: u64) -> Option<u64> {
        match self.expires_in? {
            Expiry::After(time) => {
                Some(asked_at.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
            }
            Expiry::Never => None,
        }
    }

    /// Returns the notifications as the `notify` of a question's parameters; `None` if there are none.
    pub fn notify_value(&self) -> Option<Value> {
        let notify = self.notify.as_ref().filter(|list| !list.is_empty())?;
        serde_json::to_value(notify).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_round_trip() {
        for (text, seconds) in [("1s", 1), ("30m", 1800), ("2h", 7200), ("365d", 365 * 86_400), ("90s", 90)] {
            let expiry: Expiry = text.parse().expect(text);
            assert_eq!(expiry, Expiry::After(Duration::from_secs(seconds)));
            assert_eq!(expiry.to_string(), text);
        }
        assert_eq!("never".parse(), Ok(Expiry::Never));
        for text in
            ["", "s", "0s", "30", "1.5h", "-1h", "366d", "8761h", "m30", "99999999999999999999d", "é", "1é"]
        {
            let error = text.parse::<Expiry>().expect_err(text);
            assert!(error.to_string().contains("such as \"30m\""), "{error}");
        }
    }

    #[test]
    fn notify_targets_are_parsed() {
        let list = json!(["bell", {"command": ["~/bin/tell", "-x"]}, "desktop", {"webhook": "phone"}]);
        let read = Notify::read_all(&list).expect("right");
        assert_eq!(read.len(), 4);
        assert_eq!(serde_json::to_value(&read).unwrap(), list, "as it is written into a question");
        for wrong in [
            json!("bell"),
            json!(["horn"]),
            json!([{"command": []}]),
            json!([{"command": "x"}]),
            json!([{"command": [1]}]),
            json!([{"command": ["x"], "more": 1}]),
            json!([{"command": ["./x"]}]),
            json!([{"command": ["a\0b"]}]),
            json!([{"webhook": ""}]),
            json!([{"webhook": ["x"]}]),
            json!([{"webhook": "x", "command": ["x"]}]),
            json!(vec!["bell"; 9]),
        ] {
            assert!(Notify::read_all(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_shorter_time_wins_and_all_are_notified() {
        let after = |text: &str| Some(text.parse().unwrap());
        let mut terms = Terms::default();
        assert_eq!(terms.ends_at(5), None);
        terms.join(&Terms { expires_in: after("never"), notify: Some(vec![Notify::Bell]) });
        terms.join(&Terms { expires_in: after("2h"), notify: None });
        terms.join(&Terms { expires_in: after("1h"), notify: Some(vec![Notify::Desktop, Notify::Bell]) });
        assert_eq!(terms.expires_in, after("1h"));
        assert_eq!(terms.notify, Some(vec![Notify::Bell, Notify::Desktop]));
        assert_eq!(terms.ends_at(5), Some(3_600_005));
        let never = Terms { expires_in: after("never"), notify: Some(Vec::new()) };
        let own = never.or(&terms);
        assert_eq!(own.ends_at(5), None, "a rule's own word counts before the settings");
        assert_eq!(own.notify_value(), None);
    }
}
