//! What earlier versions learned over several runs about the use of tools. Nothing writes it any more, and it
//! is still read where it is stored; decision 0066 says why.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use aye_core::contract::profile::ProfileKey;
use aye_core::state::{MergeStrategy, StateKey};

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

/// The profile key of the learned estimates, stored by the agent's id.
pub struct AgentToolPriors;

impl ProfileKey for AgentToolPriors {
    const KEY: &'static str = "deferred_tools.priors";
    type Value = AgentToolPriorsValue;
}

/// The number of calls of each tool in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunUsage {
    /// Inferences.
    pub turns: u32,
    /// Those in which a tool was called.
    pub called: BTreeMap<String, u32>,
}

/// The run's [`RunUsage`].
pub struct RunToolUsage;

impl StateKey for RunToolUsage {
    const KEY: &'static str = "deferred_tools.run_usage";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = RunUsage;
    /// The tools that an inference called, none twice.
    type Update = Vec<String>;

    fn apply(value: &mut Self::Value, called: Self::Update) {
        value.turns += 1;
        for tool in called {
            *value.called.entry(tool).or_default() += 1;
        }
    }
}
