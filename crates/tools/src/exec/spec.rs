//! The specification of a supervisor's work: one word of its command line, so that other processes can read
//! it too.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use aye_core::contract::tool::SpawnContext;

/// The word in place of an input if the command has a terminal.
const TERMINAL: &str = "terminal";

/// The command that a supervisor watches. As text: `grace[+input|+terminal]:[start_before][+lease_end]:run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SupervisorSpec {
    /// Between TERM and KILL.
    pub(super) grace: Duration,
    /// The number of bytes of the lifeline that are the command's input; its stdout is then sent in a report.
    /// `None`: it has neither an input nor a separate stdout.
    pub(super) input: Option<usize>,
    /// Its standard error is a terminal, which is all of the command's input and output. The command makes a session for
    /// itself.
    pub(super) terminal: bool,
    /// When it is too late to start, in milliseconds since the boot.
    pub(super) start_before: Option<u64>,
    /// When it must end, in the same clock, unless the lifeline brings a later moment before.
    pub(super) lease_end: Option<u64>,
    /// The run it works for.
    pub(super) run: String,
}

impl SupervisorSpec {
    pub(super) fn of(grace: Duration, input: Option<usize>, on_behalf: &SpawnContext) -> SupervisorSpec {
        let SpawnContext { start_before, run, lease_end } = on_behalf.clone();
        let lease_end = lease_end.map(|mut end| end.now());
        SupervisorSpec { grace, input, terminal: false, start_before, lease_end, run }
    }
}

impl fmt::Display for SupervisorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.grace.as_millis())?;
        if let Some(input) = self.input {
            write!(f, "+{input}")?;
        } else if self.terminal {
            write!(f, "+{TERMINAL}")?;
        }
        f.write_str(":")?;
        if let Some(end) = self.start_before {
            write!(f, "{end}")?;
        }
        if let Some(end) = self.lease_end {
            write!(f, "+{end}")?;
        }
        write!(f, ":{}", self.run)
    }
}

impl FromStr for SupervisorSpec {
    type Err = ();

    fn from_str(text: &str) -> Result<SupervisorSpec, ()> {
        let mut parts = text.splitn(3, ':');
        let first = parts.next().ok_or(())?;
        let (grace, input, terminal) = match first.split_once('+') {
            Some((grace, TERMINAL)) => (grace, None, true),
            Some((grace, input)) => (grace, Some(input.parse().map_err(|_| ())?), false),
            None => (first, None, false),
        };
        let grace = grace.parse().map(Duration::from_millis).map_err(|_| ())?;
        // An unreadable deadline is not a permission to start at any time.
        let moment = |text: &str| -> Result<Option<u64>, ()> {
            if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(drop) }
        };
        let moments = parts.next().unwrap_or_default();
        let (start_before, lease_end) = match moments.split_once('+') {
            Some((start_before, end)) => (moment(start_before)?, Some(moment(end)?.ok_or(())?)),
            None => (moment(moments)?, None),
        };
        let run = parts.next().unwrap_or_default().to_owned();
        Ok(SupervisorSpec { grace, input, terminal, start_before, lease_end, run })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_round_trips() {
        let moments = [(None, None), (Some(17), None), (None, Some(9)), (Some(0), Some(0))];
        for ((start_before, lease_end), run) in moments.into_iter().zip(["", "r:1", "run", ""]) {
            for (input, terminal) in [(None, false), (None, true), (Some(0), false), (Some(4096), false)] {
                let duty = SupervisorSpec {
                    grace: Duration::from_millis(200),
                    input,
                    terminal,
                    start_before,
                    lease_end,
                    run: run.into(),
                };
                assert_eq!(duty.to_string().parse(), Ok(duty));
            }
        }
        assert_eq!("2000".parse().map(|duty: SupervisorSpec| duty.start_before), Ok(None));
        for wrong in ["", "x", "2000:soon:r", "-1::", "2000+:1:r", "2000+x::", "2000:1+:r", "2000:+x:r"] {
            assert_eq!(wrong.parse::<SupervisorSpec>(), Err(()), "{wrong}");
        }
    }
}
