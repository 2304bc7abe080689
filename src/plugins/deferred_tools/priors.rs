//! What is learned of tools over runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::state::RunUsage;
use crate::state::EffectSpec;

/// So many tools are remembered for an agent.
const MAX_TOOLS: usize = 1000;

/// How often a tool was used, over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolPrior {
    /// The part of the inferences that called it; later runs count for more.
    pub p: f64,
    /// The runs that it is made of.
    pub n: u32,
}

/// What is known of an agent's tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentToolPriors {
    /// By id.
    pub tools: BTreeMap<String, ToolPrior>,
}

impl AgentToolPriors {
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

/// Where what was learned is kept, by agent.
#[async_trait]
pub trait Priors: Send + Sync + 'static {
    /// What is known of an agent's tools; nothing when it is seen for the first time.
    ///
    /// # Errors
    /// A sentence; the run goes on without.
    async fn load(&self, agent: &str) -> Result<AgentToolPriors, String>;

    /// Takes a run of the agent in, as [`AgentToolPriors::learn`] does.
    ///
    /// # Errors
    /// A sentence; it is logged, and what the run taught is lost.
    async fn learn(&self, agent: &str, run: &RunUsage, offered: &BTreeSet<String>) -> Result<(), String>;
}

/// Keeps what was learned as long as the process lives.
#[derive(Debug, Default)]
pub struct InMemoryPriors(Mutex<BTreeMap<String, AgentToolPriors>>);

#[async_trait]
impl Priors for InMemoryPriors {
    async fn load(&self, agent: &str) -> Result<AgentToolPriors, String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(known.get(agent).cloned().unwrap_or_default())
    }

    async fn learn(&self, agent: &str, run: &RunUsage, offered: &BTreeSet<String>) -> Result<(), String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(agent.to_owned()).or_default().learn(run, offered);
        Ok(())
    }
}

/// A run to learn from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lesson {
    pub(super) agent: String,
    pub(super) run: RunUsage,
    pub(super) offered: BTreeSet<String>,
}

/// Has a run learned from, after its end.
pub(super) struct LearnEffect;

impl EffectSpec for LearnEffect {
    const KEY: &'static str = "deferred_tools.learn";
    type Payload = Lesson;
}
