//! What other rules would have done with the past.

use super::evaluate::Verdict;
use super::past::{Past, PastMade, ruling};
use super::rules::RuleSet;
use aye_core::contract::audit::PastAnswer;
use aye_core::contract::judgement::Ruling;
use aye_core::contract::mode::Mode;
use serde::Serialize;
use std::path::Path;

/// How many calls have which verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct VerdictCounts {
    /// They run.
    pub allowed: u64,
    /// A person is asked.
    pub asked: u64,
    /// They do not run.
    pub denied: u64,
    /// They make no sense.
    pub errors: u64,
}

impl VerdictCounts {
    fn count(&mut self, ruling: Ruling) {
        match ruling {
            Ruling::Allow => self.allowed += 1,
            Ruling::Ask => self.asked += 1,
            Ruling::Deny => self.denied += 1,
            Ruling::Error => self.errors += 1,
        }
    }
}

/// How rules would go against what was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// A person said no, and they would allow it.
    AllowsDeclined,
    /// A rule denied it, and they would allow it.
    AllowsDenied,
    /// A person changed it before it ran, and they would allow it as it was.
    AllowsUnchanged,
    /// Nobody answered, and they would allow it.
    AllowsExpired,
    /// A person said yes, and they would deny it.
    DeniesAllowed,
    /// A person said yes to a changed one, and they would deny it as it was.
    DeniesModified,
}

/// What came of a simulation.
#[derive(Debug)]
pub struct Simulation {
    verdicts: Vec<Verdict>,
    /// What the rules would have done.
    pub tally: VerdictCounts,
    /// What happened at the first gate then.
    pub then: VerdictCounts,
    /// Calls that go against what was decided, as places in [`Past::calls`], oldest first.
    pub differences: Vec<(Difference, usize)>,
    /// Calls that ran without a question then, and would be asked about.
    pub asked_more: u64,
    /// Calls that ran without a question then, and would be denied.
    pub denied_more: u64,
    /// Questions that a person answered with yes, and that would not be asked any more.
    pub saved: u64,
}

impl Simulation {
    /// What the rules say of a call.
    pub fn verdict(&self, call: &PastMade) -> &Verdict {
        &self.verdicts[call.question]
    }

    /// True when a call that a person declined would be allowed.
    pub fn allows_declined(&self) -> bool {
        self.differences.iter().any(|(difference, _)| *difference == Difference::AllowsDeclined)
    }
}

/// Asks the rules about every call of the past, in mode `ask`. Equal questions are asked once.
pub fn simulate(past: &Past, rules: &RuleSet, home: Option<&Path>) -> Simulation {
    let all: Vec<usize> = (0..past.questions.len()).collect();
    let mut simulation = Simulation {
        verdicts: past.judge(rules, &all, home),
        tally: VerdictCounts::default(),
        then: VerdictCounts::default(),
        differences: Vec::new(),
        asked_more: 0,
        denied_more: 0,
        saved: 0,
    };
    for (at, call) in past.calls.iter().enumerate() {
        let now = ruling(simulation.verdicts[call.question].decision);
        simulation.tally.count(now);
        simulation.then.count(call.ruling);
        match (call.ruling, now) {
            (Ruling::Allow, Ruling::Ask) => simulation.asked_more += 1,
            (Ruling::Allow, Ruling::Deny | Ruling::Error) => simulation.denied_more += 1,
            (Ruling::Ask, Ruling::Allow) if call.answer == Some(PastAnswer::Allowed) => simulation.saved += 1,
            _ => {}
        }
        if let Some(difference) = difference(call, now) {
            simulation.differences.push((difference, at));
        }
    }
    simulation
}

fn difference(call: &PastMade, now: Ruling) -> Option<Difference> {
    let is_denied = matches!(now, Ruling::Deny | Ruling::Error);
    match call.answer {
        Some(PastAnswer::Declined) if now == Ruling::Allow => Some(Difference::AllowsDeclined),
        Some(PastAnswer::Modified) if now == Ruling::Allow => Some(Difference::AllowsUnchanged),
        Some(PastAnswer::Expired) if now == Ruling::Allow => Some(Difference::AllowsExpired),
        Some(PastAnswer::Allowed) if is_denied => Some(Difference::DeniesAllowed),
        Some(PastAnswer::Modified) if is_denied => Some(Difference::DeniesModified),
        // Plan mode denies for reasons of its own.
        None if call.ruling == Ruling::Deny && now == Ruling::Allow && call.mode != Mode::Plan => {
            Some(Difference::AllowsDenied)
        }
        Some(_) | None => None,
    }
}
