//! Simulates what other rules would have decided about past calls.

use super::evaluate::Verdict;
use super::past::{Past, PastMade};
use super::rules::RuleSet;
use aye_core::contract::audit::PastAnswer;
use aye_core::contract::judgement::Ruling;
use aye_core::contract::mode::Mode;
use serde::Serialize;
use std::path::Path;

/// The number of calls per verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct VerdictCounts {
    pub allowed: u64,
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

/// A way in which rules would contradict a past decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// The user denied the call, and the rules would allow it.
    AllowsDeclined,
    /// A rule denied it, and they would allow it.
    AllowsDenied,
    /// The user edited the call before it ran, and the rules would allow it unedited.
    AllowsUnchanged,
    /// The question expired without a decision, and the rules would allow the call.
    AllowsExpired,
    /// The user approved the call, and the rules would deny it.
    DeniesAllowed,
    /// The user approved an edited version of the call, and the rules would deny the original.
    DeniesModified,
}

/// The result of a simulation.
#[derive(Debug)]
pub struct Simulation {
    verdicts: Vec<Verdict>,
    /// The verdicts that the rules would have reached.
    pub tally: VerdictCounts,
    /// The verdicts that were reached at the time, at the first gate.
    pub then: VerdictCounts,
    /// Calls that go against what was decided, as places in [`Past::calls`], oldest first.
    pub differences: Vec<(Difference, usize)>,
    /// Calls that ran without a question then, and would be asked about.
    pub asked_more: u64,
    /// Calls that ran without a question then, and would be denied.
    pub denied_more: u64,
    /// Questions that the user approved and that would no longer be asked.
    pub saved: u64,
}

impl Simulation {
    /// Returns the verdict of the rules on a call.
    pub fn verdict(&self, call: &PastMade) -> &Verdict {
        &self.verdicts[call.question]
    }

    /// Whether a call that the user denied would be allowed.
    pub fn allows_declined(&self) -> bool {
        self.differences.iter().any(|(difference, _)| *difference == Difference::AllowsDeclined)
    }
}

/// Evaluates the rules for every past call, in mode `ask`. Equal questions are evaluated once.
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
        let now = simulation.verdicts[call.question].decision.into();
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
