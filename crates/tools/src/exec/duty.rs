//! What a supervisor is told about its work: one word of its command line, so that others can read it too.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use aye_core::contract::tool::SpawnContext;

/// What a supervisor watches. As text: `grace[+input]:start_before:run`, the second empty when there is no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SupervisorSpec {
    /// Between TERM and KILL.
    pub(super) grace: Duration,
    /// How many bytes of the lifeline are the command's input; then its stdout is told in a report. `None`: it has
    /// neither input nor a stdout of its own.
    pub(super) input: Option<usize>,
    /// When it is too late to start, in milliseconds of the monotonic clock.
    pub(super) start_before: Option<u64>,
    /// The run it works for.
    pub(super) run: String,
}

impl SupervisorSpec {
    pub(super) fn of(grace: Duration, input: Option<usize>, on_behalf: &SpawnContext) -> SupervisorSpec {
        SupervisorSpec { grace, input, start_before: on_behalf.start_before, run: on_behalf.run.clone() }
    }
}

impl fmt::Display for SupervisorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.grace.as_millis())?;
        if let Some(input) = self.input {
            write!(f, "+{input}")?;
        }
        f.write_str(":")?;
        if let Some(end) = self.start_before {
            write!(f, "{end}")?;
        }
        write!(f, ":{}", self.run)
    }
}

impl FromStr for SupervisorSpec {
    type Err = ();

    fn from_str(text: &str) -> Result<SupervisorSpec, ()> {
        let mut parts = text.splitn(3, ':');
        let first = parts.next().ok_or(())?;
        let (grace, input) = match first.split_once('+') {
            Some((grace, input)) => (grace, Some(input.parse().map_err(|_| ())?)),
            None => (first, None),
        };
        let grace = grace.parse().map(Duration::from_millis).map_err(|_| ())?;
        let start_before = match parts.next() {
            None | Some("") => None,
            // An end that cannot be read is no leave to start at any time.
            Some(part) => Some(part.parse().map_err(|_| ())?),
        };
        Ok(SupervisorSpec { grace, input, start_before, run: parts.next().unwrap_or_default().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_back() {
        for (start_before, run) in [(None, ""), (Some(17), "r:1"), (None, "run"), (Some(0), "")] {
            for input in [None, Some(0), Some(4096)] {
                let duty = SupervisorSpec {
                    grace: Duration::from_millis(200),
                    input,
                    start_before,
                    run: run.into(),
                };
                assert_eq!(duty.to_string().parse(), Ok(duty));
            }
        }
        assert_eq!("2000".parse().map(|duty: SupervisorSpec| duty.start_before), Ok(None));
        for wrong in ["", "x", "2000:soon:r", "-1::", "2000+:1:r", "2000+x::"] {
            assert_eq!(wrong.parse::<SupervisorSpec>(), Err(()), "{wrong}");
        }
    }
}
