//! The plugin's state, and the actions that change it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::beta::Beta;
use super::config::ToolLoadMode;
use super::index::View;
use aye_core::scheduled_actions;
use aye_core::state::{KeyScope, MergeStrategy, StateKey};

/// The current mode of each tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeferralStateValue {
    /// Whether deferring is on.
    pub enabled: bool,
    /// The mode of each tool.
    pub modes: BTreeMap<String, ToolLoadMode>,
    /// The tools whose mode differs from the rules because a change was requested.
    pub moved: BTreeSet<String>,
    /// Those of them that are offered, in the order in which they were asked for: a request lists them last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
}

impl DeferralStateValue {
    /// Returns whether a tool is deferred now.
    pub fn is_deferred(&self, tool: &str) -> bool {
        self.enabled && self.modes.get(tool) == Some(&ToolLoadMode::Deferred)
    }

    /// The tools that are deferred now, by id.
    pub fn deferred(&self) -> impl Iterator<Item = &str> {
        self.in_mode(ToolLoadMode::Deferred)
    }

    /// Returns the tools that were deferred and are offered now because they were requested.
    pub fn promoted(&self) -> impl Iterator<Item = &str> {
        self.in_mode(ToolLoadMode::Eager).filter(|tool| self.moved.contains(*tool))
    }

    fn in_mode(&self, wanted: ToolLoadMode) -> impl Iterator<Item = &str> {
        self.modes
            .iter()
            .filter(move |(_, mode)| self.enabled && **mode == wanted)
            .map(|(tool, _)| tool.as_str())
    }
}

/// A change of [`DeferralState`].
#[derive(Clone, Debug, PartialEq)]
pub enum DeferralUpdate {
    /// These tools are requested in this mode.
    Move(Vec<String>, ToolLoadMode),
    /// The tools or the rules changed.
    Set(DeferralStateValue),
}

/// The thread's [`DeferralStateValue`].
pub struct DeferralState;

impl StateKey for DeferralState {
    const KEY: &'static str = "deferred_tools.state";
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = DeferralStateValue;
    type Update = DeferralUpdate;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        match update {
            DeferralUpdate::Move(tools, mode) => {
                for tool in tools {
                    let is_new = value.modes.insert(tool.clone(), mode) != Some(mode);
                    if is_new || mode == ToolLoadMode::Deferred {
                        value.order.retain(|known| *known != tool);
                    }
                    if is_new {
                        if mode == ToolLoadMode::Eager {
                            value.order.push(tool.clone());
                        }
                        value.moved.insert(tool);
                    }
                }
            }
            DeferralUpdate::Set(new) => *value = new,
        }
    }
}

/// The tools that can be searched. It is made of the agent's tools when it is not there, and never stored.
#[derive(Clone, Default)]
pub struct RegistryValue(pub(super) Option<View>);

impl fmt::Debug for RegistryValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools = self.0.as_ref().map_or(0, |view| view.index.deferrable.len());
        f.debug_struct("RegistryValue").field("tools", &tools).finish()
    }
}

impl Serialize for RegistryValue {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl<'de> Deserialize<'de> for RegistryValue {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <()>::deserialize(deserializer).map(|()| Self::default())
    }
}

/// The run's [`RegistryValue`].
pub struct DeferralRegistry;

impl StateKey for DeferralRegistry {
    const KEY: &'static str = "deferred_tools.registry";
    // It is a view of the agent's tools: two writers of one phase write the same.
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = RegistryValue;
    type Update = RegistryValue;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value = update;
    }
}

/// The estimates of how often tools are used. Tools that were never called are not included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiscBetaValue {
    /// The estimates from before the thread started, which earlier versions or the embedding program gave it.
    pub priors: BTreeMap<String, f64>,
    /// The estimates from the thread's own observations.
    pub tools: BTreeMap<String, Beta>,
}

/// A change of [`DiscBetaState`].
#[derive(Clone, Debug, PartialEq)]
pub enum DiscBetaUpdate {
    /// The estimates from before the thread.
    Priors(BTreeMap<String, f64>),
    /// The current estimates of some tools.
    Seen(Vec<(String, Beta)>),
}

/// The thread's [`DiscBetaValue`].
pub struct DiscBetaState;

impl StateKey for DiscBetaState {
    const KEY: &'static str = "deferred_tools.disc_beta";
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = DiscBetaValue;
    type Update = DiscBetaUpdate;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        match update {
            DiscBetaUpdate::Priors(priors) => value.priors = priors,
            DiscBetaUpdate::Seen(seen) => value.tools.extend(seen),
        }
    }
}

/// When tools were used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolUsage {
    /// Inferences so far.
    pub turn: u64,
    /// The inference in which a tool was called, or after which it was asked for, last.
    pub last: BTreeMap<String, u64>,
}

/// A change of [`ToolUsageStats`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageUpdate {
    /// An inference, and the tools it called.
    Inference(Vec<String>),
    /// These tools were requested.
    Promoted(Vec<String>),
}

/// The thread's [`ToolUsage`].
pub struct ToolUsageStats;

impl StateKey for ToolUsageStats {
    const KEY: &'static str = "deferred_tools.usage";
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = ToolUsage;
    type Update = UsageUpdate;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        let tools = match update {
            UsageUpdate::Inference(called) => {
                value.turn += 1;
                called
            }
            UsageUpdate::Promoted(tools) => tools,
        };
        let turn = value.turn;
        value.last.extend(tools.into_iter().map(|tool| (tool, turn)));
    }
}

scheduled_actions! {
    /// Moves tools from eager to deferred.
    pub DeferToolAction = "deferred_tools.defer" in BeforeInference: Vec<String>;
    /// Moves tools from deferred to eager, from the next step on.
    pub PromoteToolAction = "deferred_tools.promote" in BeforeInference: Vec<String>;
    /// Shapes the step's request, once all that others scheduled for it is done.
    pub(super) SettleAction = "deferred_tools.settle" in BeforeInference: Settle;
}

/// The stage of the shaping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Settle {
    /// Defers unused tools.
    Tidy,
    /// Removes the deferred tools from the request and lists their names.
    Offer,
}
