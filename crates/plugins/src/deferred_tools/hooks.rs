use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;

use super::beta::{Beta, PRIOR};
use super::config::ToolLoadMode;
use super::index::View;
use super::list::list;
use super::state::{
    DeferToolAction, DeferralRegistry, DeferralState, DeferralStateValue, DeferralUpdate, DiscBetaState,
    DiscBetaUpdate, PromoteToolAction, RegistryValue, Settle, SettleAction, ToolUsageStats, UsageUpdate,
};
use super::{TOOL_SEARCH, Views};
use aye_core::contract::context_message::ContextMessage;
use aye_core::phase::{
    AddContextMessage, ExcludeTool, ExcludeTools, ExcludedTools, OfferLast, PhaseContext, PhaseHook,
    StepShape, TypedScheduledActionHandler,
};
use aye_core::state::{Snapshot, StateCommand, StateError};

/// The key of the message with the names of the deferred tools.
pub const LIST_KEY: &str = "deferred_tools.list";

/// The message for a model that calls a deferred tool, after the tool's name.
const NOT_LOADED: &str = "was deferred: its parameters were not loaded and it did not run. They are loaded \
                          now; call it again with matching arguments. (ToolSearch loads tools before a call.)";

fn is_on(ctx: &PhaseContext) -> bool {
    ctx.state::<DeferralState>().is_some_and(|state| state.enabled)
}

/// The hook that starts shaping a step's request.
pub(super) struct ShapeHook(pub(super) Arc<Views>);

#[async_trait]
impl PhaseHook for ShapeHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        if self.0.view(ctx)?.is_on() {
            // Run after the actions that others scheduled for this phase, so that those count for this very
            // step.
            command.schedule_action::<SettleAction>(Settle::Tidy)?;
            return Ok(command);
        }
        command.schedule_action::<ExcludeTool>(TOOL_SEARCH.into())?;
        if is_on(ctx) {
            command.update::<DeferralState>(DeferralUpdate::Set(DeferralStateValue::default()));
        }
        Ok(command)
    }
}

/// Moves tools, and shapes the request.
pub(super) struct Handlers(pub(super) Arc<Views>);

/// Those of the ids that are tools of the agent.
fn known(ctx: &PhaseContext, ids: Vec<String>) -> Vec<String> {
    let tools: BTreeSet<&str> = ctx.tools.iter().map(|tool| tool.id.as_str()).collect();
    ids.into_iter()
        .filter(|id| id != TOOL_SEARCH && (tools.is_empty() || tools.contains(id.as_str())))
        .collect()
}

#[async_trait]
impl TypedScheduledActionHandler<DeferToolAction> for Handlers {
    async fn handle_typed(&self, ctx: &PhaseContext, ids: Vec<String>) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        command.update::<DeferralState>(DeferralUpdate::Move(known(ctx, ids), ToolLoadMode::Deferred));
        Ok(command)
    }
}

#[async_trait]
impl TypedScheduledActionHandler<PromoteToolAction> for Handlers {
    async fn handle_typed(&self, ctx: &PhaseContext, ids: Vec<String>) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let ids = known(ctx, ids);
        command.update::<ToolUsageStats>(UsageUpdate::Promoted(ids.clone()));
        command.update::<DeferralState>(DeferralUpdate::Move(ids, ToolLoadMode::Eager));
        Ok(command)
    }
}

#[async_trait]
impl TypedScheduledActionHandler<SettleAction> for Handlers {
    async fn handle_typed(&self, ctx: &PhaseContext, settle: Settle) -> Result<StateCommand, StateError> {
        let view = self.0.view(ctx)?;
        let mut command = StateCommand::new();
        match settle {
            Settle::Tidy => {
                let unused = unused(&ctx.snapshot, &view);
                if !unused.is_empty() {
                    tracing::debug!(tools = ?unused, "deferred again");
                    command.schedule_action::<DeferToolAction>(unused)?;
                }
                command.schedule_action::<SettleAction>(Settle::Offer)?;
            }
            Settle::Offer => offer(ctx, view, &mut command)?,
        }
        Ok(command)
    }
}

/// Returns the tools that are offered because they were requested, but are used too rarely to be worth it.
pub(super) fn unused(snapshot: &Snapshot, view: &View) -> Vec<String> {
    let Some(state) = snapshot.get::<DeferralState>() else { return Vec::new() };
    let usage = snapshot.get::<ToolUsageStats>().cloned().unwrap_or_default();
    let params = &view.policy.params;
    let is_unused = |tool: &str| {
        let Some(entry) = view.index.deferrable.get(tool) else { return false };
        let idle = usage.turn.saturating_sub(usage.last.get(tool).copied().unwrap_or(0));
        idle >= params.defer_after
            && beta(snapshot, view, tool, usage.turn).upper() < entry.cost.threshold(params)
    };
    state.promoted().filter(|tool| is_unused(tool)).map(str::to_owned).collect()
}

/// Returns the estimate for a tool after this many inferences.
fn beta(snapshot: &Snapshot, view: &View, tool: &str, turn: u64) -> Beta {
    let known = snapshot.get::<DiscBetaState>();
    let seen = known.and_then(|known| known.tools.get(tool)).copied();
    let prior = || known.and_then(|known| known.priors.get(tool)).copied().unwrap_or(PRIOR);
    let params = &view.policy.params;
    seen.unwrap_or_else(|| Beta::start(prior(), params)).idle_until(turn, params)
}

/// Updates the modes to the current tools and rules, removes the deferred tools from the request and lists
/// their names.
fn offer(ctx: &PhaseContext, view: View, command: &mut StateCommand) -> Result<(), StateError> {
    let known = ctx.state::<DeferralState>().cloned().unwrap_or_default();
    let state = synced(&known, &view);
    // Tools that others withhold from the model, for example by a deny rule, are not listed. Those that were loaded are: the
    // list is in the prompt, which changes as seldom as possible.
    let step = ctx.state::<StepShape>();
    let listed: BTreeSet<&str> =
        view.index.deferrable.keys().map(String::as_str).chain(state.deferred()).collect();
    if let Some(text) = list(listed.into_iter().filter(|tool| !step.is_some_and(|step| step.withholds(tool))))
    {
        command.schedule_action::<AddContextMessage>(ContextMessage::system(LIST_KEY, text))?;
    }
    let tools: BTreeSet<String> = state.deferred().map(str::to_owned).collect();
    if !tools.is_empty() {
        command.schedule_action::<ExcludeTools>(ExcludedTools { tools, why: Some(NOT_LOADED.into()) })?;
    }
    let promoted: Vec<String> = state.order.iter().filter(|tool| !state.is_deferred(tool)).cloned().collect();
    if !promoted.is_empty() {
        command.schedule_action::<OfferLast>(promoted)?;
    }
    if state != known {
        command.update::<DeferralState>(DeferralUpdate::Set(state));
    }
    register(ctx, view, command);
    Ok(())
}

/// The modes for the tools that are there now. Those that were moved stay so, also while their server is away.
fn synced(known: &DeferralStateValue, view: &View) -> DeferralStateValue {
    let mut state = DeferralStateValue { enabled: true, ..DeferralStateValue::default() };
    let deferrable = view.index.deferrable.keys().map(|tool| (tool, ToolLoadMode::Deferred));
    let eager = view.index.eager.keys().map(|tool| (tool, ToolLoadMode::Eager));
    for (tool, by_rule) in deferrable.chain(eager) {
        let mode = known.modes.get(tool).copied().filter(|_| known.moved.contains(tool)).unwrap_or(by_rule);
        if mode != by_rule {
            state.moved.insert(tool.clone());
        }
        state.modes.insert(tool.clone(), mode);
    }
    for tool in &known.moved {
        if let Some(mode) = known.modes.get(tool).filter(|_| !state.modes.contains_key(tool)) {
            state.modes.insert(tool.clone(), *mode);
            state.moved.insert(tool.clone());
        }
    }
    // A tool keeps its place while its server is away. Those that an older version promoted come first.
    let promoted: Vec<String> = state.promoted().map(str::to_owned).collect();
    let unplaced = promoted.iter().filter(|tool| !known.order.contains(tool));
    let placed = known.order.iter().filter(|tool| promoted.contains(tool));
    state.order = unplaced.chain(placed).cloned().collect();
    state
}

/// Makes the deferred tools available to the search tool.
fn register(ctx: &PhaseContext, view: View, command: &mut StateCommand) {
    let known = ctx.state::<DeferralRegistry>().and_then(|registry| registry.0.as_ref());
    if known.is_none_or(|known| !Arc::ptr_eq(&known.index, &view.index)) {
        command.update::<DeferralRegistry>(RegistryValue(Some(view)));
    }
}

/// A search may be the first thing that a run does after a restart: what is searched is not stored.
pub(super) struct RegisterHook(pub(super) Arc<Views>);

#[async_trait]
impl PhaseHook for RegisterHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        if ctx.tool.as_ref().is_some_and(|tool| tool.call.name == TOOL_SEARCH) {
            register(ctx, self.0.view(ctx)?, &mut command);
        }
        Ok(command)
    }
}

/// The hook that counts the tools called by an answer. A deferred tool that was called is wanted: it is
/// offered from the next step on.
pub(super) struct CountHook(pub(super) Arc<Views>);

#[async_trait]
impl PhaseHook for CountHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let Some(state) = ctx.state::<DeferralState>().filter(|state| state.enabled) else {
            return Ok(command);
        };
        let view = self.0.view(ctx)?;
        let calls = ctx.response.iter().flat_map(|response| &response.tool_calls);
        let called: BTreeSet<String> = calls
            .map(|call| call.name.clone())
            .filter(|name| view.index.deferrable.contains_key(name) || state.moved.contains(name))
            .collect();
        let turn = ctx.state::<ToolUsageStats>().map_or(0, |usage| usage.turn) + 1;
        let seen = called.iter().map(|tool| {
            let before = beta(&ctx.snapshot, &view, tool, turn - 1);
            (tool.clone(), before.called_in(turn, &view.policy.params))
        });
        let seen: Vec<_> = seen.collect();
        let wanted: Vec<_> = called.iter().filter(|tool| state.is_deferred(tool)).cloned().collect();
        if !wanted.is_empty() {
            command.schedule_action::<PromoteToolAction>(wanted)?;
        }
        if !seen.is_empty() {
            command.update::<DiscBetaState>(DiscBetaUpdate::Seen(seen));
        }
        command.update::<ToolUsageStats>(UsageUpdate::Inference(called.into_iter().collect()));
        Ok(command)
    }
}
