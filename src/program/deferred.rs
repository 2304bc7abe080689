//! Deferred tools: which ones, and how many tokens that saves.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::contract::amount::{counted, short_number};
use crate::failure::AppError;
use crate::plugins::deferred_tools::{
    DeferralRule, DeferralState, DeferralStateValue, DeferredToolsPlugin, Savings, TOOL_SEARCH, ToolLoadMode,
    savings,
};
use crate::program::app_context::AppContext;
use crate::program::parts::AGENT;
use crate::state::StateKey as _;

/// Creates the plugin. Tools of servers may be deferred; those of aye itself only if a rule says so.
pub(crate) fn plugin() -> DeferredToolsPlugin {
    let servers = DeferralRule { tool: "mcp__*".to_owned(), mode: ToolLoadMode::Deferred };
    DeferredToolsPlugin::new(Vec::new())
        .with_default_rules(vec![servers])
        .with_default_mode(ToolLoadMode::Eager)
}

/// Returns how the tools were offered in the last step of a conversation.
pub(crate) fn state_in(thread_state: &BTreeMap<String, Value>) -> DeferralStateValue {
    let state = thread_state.get(DeferralState::KEY).cloned();
    state.and_then(|state| serde_json::from_value(state).ok()).unwrap_or_default()
}

/// Returns whether a tool is left out of the requests of a conversation.
pub(crate) fn is_hidden(state: &DeferralStateValue, tool: &str) -> bool {
    state.is_deferred(tool) || (tool == TOOL_SEARCH && !state.enabled)
}

/// Returns the tokens saved; `None` if no tool is deferred.
pub(crate) fn saved(app: &AppContext, state: &DeferralStateValue) -> Result<Option<Savings>, AppError> {
    if !state.enabled {
        return Ok(None);
    }
    let agent = app.runtime.resolved(AGENT)?;
    Ok(savings(&agent.descriptors, state))
}

/// The sentence of `/context`.
pub(crate) fn note(saved: &Savings) -> String {
    let are = if saved.deferred == 1 { "is" } else { "are" };
    let mut text = format!(
        "{} {are} deferred: {} tokens less in each request.",
        counted(saved.deferred, "tool"),
        short_number(saved.saved() as u64)
    );
    if saved.promoted > 0 {
        let were = if saved.promoted == 1 { "was" } else { "were" };
        let _ = write!(text, " {} more {were} loaded on demand.", saved.promoted);
    }
    text
}
