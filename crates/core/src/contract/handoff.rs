//! Handoff: the active agent of a run, and the agent that was asked to take over.

use serde::{Deserialize, Serialize};

use crate::state::{KeyScope, MergeStrategy, StateKey};

/// The settings of an agent's variant that replace the agent's own; `None` keeps the agent's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentOverlay {
    pub system_prompt: Option<String>,
    /// The registered model it uses.
    pub model: Option<String>,
    /// The tools it may use.
    pub allowed_tools: Option<Vec<String>>,
    /// The tools it may not use.
    pub excluded_tools: Option<Vec<String>>,
}

/// The agent that drives the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandoffState {
    /// The agent or variant that the run continues as; `None` is the agent that started the run.
    pub active_agent: Option<String>,
    /// The agent that takes over at the next step boundary.
    pub requested_agent: Option<String>,
}

/// A change of [`ActiveAgentKey`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoffAction {
    /// Lets an agent take over at the next boundary of a step.
    Request {
        /// The agent or variant.
        agent: String,
    },
    /// Makes an agent the active one; a request is done with.
    Activate {
        /// The agent or variant.
        agent: String,
    },
    /// Returns to the agent that started the run, and clears any request.
    Clear,
}

/// The agent that drives the conversation: a value of the thread, so it survives a restart, and the next run
/// continues with the same agent.
pub struct ActiveAgentKey;

impl StateKey for ActiveAgentKey {
    const KEY: &'static str = "agent_handoff.active_agent";
    const MERGE: MergeStrategy = MergeStrategy::Exclusive;
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = HandoffState;
    type Update = HandoffAction;

    fn apply(value: &mut HandoffState, update: HandoffAction) {
        match update {
            HandoffAction::Request { agent } => value.requested_agent = Some(agent),
            HandoffAction::Activate { agent } => {
                *value = HandoffState { active_agent: Some(agent), requested_agent: None };
            }
            HandoffAction::Clear => *value = HandoffState::default(),
        }
    }
}

/// The agent that the thread's runs start with, while a handoff applies: a run that starts with another
/// agent, because a user chose it, is no longer handed over.
pub struct HandoffBase;

impl StateKey for HandoffBase {
    const KEY: &'static str = "agent_handoff.base";
    const MERGE: MergeStrategy = MergeStrategy::Exclusive;
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = Option<String>;
    type Update = Option<String>;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value = update;
    }
}
