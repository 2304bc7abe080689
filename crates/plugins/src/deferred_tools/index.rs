//! The tools of an agent as this plugin sees them: which are deferred, what each costs, and the text that is
//! searched.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::config::{DeferralPolicy, ToolLoadMode};
use super::cost::ToolCost;
use aye_core::contract::tool::ToolDescriptor;

/// One tool that may be deferred.
#[derive(Clone, Debug)]
pub(super) struct IndexedTool {
    pub(super) descriptor: ToolDescriptor,
    pub(super) cost: ToolCost,
    /// Id, name and description in lower case, on lines of their own.
    pub(super) words: String,
}

impl IndexedTool {
    pub(super) fn of(descriptor: &ToolDescriptor) -> Self {
        let ToolDescriptor { id, name, description, .. } = descriptor;
        Self {
            descriptor: descriptor.clone(),
            cost: ToolCost::of(descriptor),
            words: format!("{id}\n{name}\n{description}").to_lowercase(),
        }
    }
}

/// The tools of an agent under a policy.
#[derive(Debug)]
pub(super) struct Index {
    /// The tools that are deferred until they are requested, by id.
    pub(super) deferrable: BTreeMap<String, IndexedTool>,
    /// The others.
    pub(super) eager: BTreeMap<String, ToolDescriptor>,
    /// The saving in each request if all of them are deferred.
    pub(super) saving: f64,
}

impl Index {
    /// Indexes all tools. The plugin's own tool is never deferred.
    pub(super) fn new(tools: &[ToolDescriptor], policy: &DeferralPolicy) -> Self {
        let (mut deferrable, mut eager) = (BTreeMap::new(), BTreeMap::new());
        for tool in tools.iter().filter(|tool| tool.id != super::TOOL_SEARCH) {
            match policy.mode(&tool.id) {
                ToolLoadMode::Deferred => {
                    deferrable.insert(tool.id.clone(), IndexedTool::of(tool));
                }
                ToolLoadMode::Eager => {
                    eager.insert(tool.id.clone(), tool.clone());
                }
            }
        }
        let saving = deferrable.values().map(|entry| entry.cost.saving()).sum();
        Self { deferrable, eager, saving }
    }

    /// Returns whether deferring is on.
    pub(super) fn is_on(&self, policy: &DeferralPolicy) -> bool {
        match policy.enabled {
            Some(enabled) => enabled,
            None => self.saving > policy.overhead,
        }
    }
}

/// The index and the policy of one agent, made once for the same tools and the same section.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) index: Arc<Index>,
    pub(super) policy: Arc<DeferralPolicy>,
    /// Whether the agent has the search tool: without it, deferred tools could not be found.
    pub(super) can_search: bool,
}

impl View {
    pub(super) fn is_on(&self) -> bool {
        self.can_search && self.index.is_on(&self.policy)
    }
}
