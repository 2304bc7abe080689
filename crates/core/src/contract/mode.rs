//! Permission modes: how much a run may do without a question.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The permission mode: how much a run may do without a question. No mode overrides a deny or ask rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The rules decide, and calls that no rule decides need approval.
    #[default]
    Ask,
    /// As [`Mode::Ask`], but files of the project may be changed without a question.
    AcceptEdits,
    /// As [`Mode::AcceptEdits`], and commands that no rule denies or asks about run in the sandbox without a question.
    Auto,
    /// Only looking; nothing is changed.
    Plan,
    /// Calls that no rule covers need no question.
    Yolo,
}

/// A word that is not a mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid permission mode `{}`; expected ask, accept-edits, auto, plan or yolo", .0.escape_debug())]
pub struct UnknownMode(String);

impl Mode {
    /// All modes, in the order in which a key cycles through them.
    pub const ALL: [Mode; 5] = [Mode::Ask, Mode::AcceptEdits, Mode::Auto, Mode::Plan, Mode::Yolo];

    /// The name in flags, settings and on the screen.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Ask => "ask",
            Mode::AcceptEdits => "accept-edits",
            Mode::Auto => "auto",
            Mode::Plan => "plan",
            Mode::Yolo => "yolo",
        }
    }

    /// The mode of that name.
    pub fn parse(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.as_str() == name)
    }

    /// The one that the cycling key goes to. Auto and yolo are left out: they are only entered by name.
    #[must_use]
    pub fn next(self) -> Mode {
        match self {
            Mode::Ask => Mode::AcceptEdits,
            Mode::AcceptEdits => Mode::Plan,
            Mode::Auto | Mode::Plan | Mode::Yolo => Mode::Ask,
        }
    }

    /// Returns whether the mode allows no more without a question than another one.
    pub fn is_within(self, most: Mode) -> bool {
        let rank = |mode| match mode {
            Mode::Plan => 0,
            Mode::Ask => 1,
            Mode::AcceptEdits => 2,
            Mode::Auto => 3,
            Mode::Yolo => 4,
        };
        rank(self) <= rank(most)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Mode, UnknownMode> {
        Mode::parse(text).ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.as_str());
        }
        assert!("YOLO".parse::<Mode>().is_err());
    }

    #[test]
    fn modes_are_ordered_by_what_they_allow() {
        let modes = [Mode::Plan, Mode::Ask, Mode::AcceptEdits, Mode::Auto, Mode::Yolo];
        for (n, most) in modes.into_iter().enumerate() {
            let within = modes.into_iter().filter(|mode| mode.is_within(most)).collect::<Vec<_>>();
            assert_eq!(within, modes[..=n]);
        }
    }

    #[test]
    fn no_key_leads_to_auto_or_yolo() {
        assert!(Mode::ALL.into_iter().all(|mode| !matches!(mode.next(), Mode::Auto | Mode::Yolo)));
    }
}
