//! Long-term knowledge about the use of tools, learned over several runs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::state::RunUsage;
use aye_core::contract::profile::ProfileKey;
use aye_core::scheduled_actions;

/// Maximum tools remembered for an agent.
const MAX_TOOLS: usize = 1000;

/// The frequency of a tool's use, over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolPrior {
    /// The part of the inferences that called it; later runs count for more.
    pub p: f64,
    /// The runs that it is made of.
    pub n: u32,
}

/// The learned estimates of an agent's tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentToolPriorsValue {
    /// By id.
    pub tools: BTreeMap<String, ToolPrior>,
}

impl AgentToolPriorsValue {
    /// Takes a run in. A tool that is seen for the first time takes the run's own frequency; one that was on offer and
    /// was not called is used less often than was thought; one that was not there stays as it was.
    pub fn learn(&mut self, run: &RunUsage, offered: &BTreeSet<String>) {
        if run.turns == 0 {
            return;
        }
        let known: Vec<String> = self.tools.keys().filter(|tool| offered.contains(*tool)).cloned().collect();
        let called = run.called.keys().filter(|tool| offered.contains(*tool)).cloned();
        for tool in known.into_iter().chain(called).collect::<BTreeSet<_>>() {
            let calls = run.called.get(&tool).copied().unwrap_or(0);
            let frequency = (f64::from(calls) / f64::from(run.turns)).min(1.0);
            let prior = self.tools.entry(tool).or_default();
            let lambda = (1.0 / (f64::from(prior.n) + 1.0)).max(0.1);
            prior.p = (1.0 - lambda) * prior.p + lambda * frequency;
            prior.n = prior.n.saturating_add(1);
        }
        while self.tools.len() > MAX_TOOLS {
            let least = self.tools.iter().min_by(|(_, a), (_, b)| a.p.total_cmp(&b.p));
            let Some(tool) = least.map(|(tool, _)| tool.clone()) else { break };
            self.tools.remove(&tool);
        }
    }

    /// The frequencies, by tool.
    pub fn frequencies(&self) -> BTreeMap<String, f64> {
        self.tools.iter().map(|(tool, prior)| (tool.clone(), prior.p)).collect()
    }
}

/// The profile key of the learned estimates, stored by the agent's id.
pub struct AgentToolPriors;

impl ProfileKey for AgentToolPriors {
    const KEY: &'static str = "deferred_tools.priors";
    type Value = AgentToolPriorsValue;
}

/// A run to learn from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunSample {
    pub(super) run: RunUsage,
    pub(super) offered: BTreeSet<String>,
}

scheduled_actions! {
    /// Has a run learned from at its end. An action, and not done by the hook: a hook may run twice.
    pub(super) LearnAction = "deferred_tools.learn" in RunEnd: RunSample;
}
