//! Deferred tools: which ones.

use crate::plugins::deferred_tools::{DeferralRule, DeferredToolsPlugin, ToolLoadMode};

/// What servers bring may be deferred; the tools of aye itself only where somebody's rule says so.
pub(super) fn plugin() -> DeferredToolsPlugin {
    let servers = DeferralRule { tool: "mcp__*".to_owned(), mode: ToolLoadMode::Deferred };
    DeferredToolsPlugin::new(Vec::new()).with_default_rules(vec![servers])
}
