use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::ask::{self, OtherModels};
use super::budget::{Budget, RunCost};
use super::end::{self, EndCheck, EndReminder};
use super::policy::{
    ConsecutiveErrorsPolicy, MaxRoundsPolicy, RepeatedCallsPolicy, StopDecision, StopPoint, StopPolicy,
    StopPolicyStats,
};
use super::state::{CountedFrom, SettledCall, StopStateKey, StopStateUpdate, fingerprint, returned};
use super::{STOP_PLUGIN, StopConfigKey, config};
use aye_core::contract::activity::{Activity, ReportActivity};
use aye_core::contract::amount::counted;
use aye_core::contract::context_message::ContextMessage;
use aye_core::contract::display::shortened;
use aye_core::contract::lifecycle::{StoppedReason, TerminationReason};
use aye_core::contract::message::Role;
use aye_core::contract::spec::{AgentSpec, PluginConfigKey};
use aye_core::contract::tool::ToolResult;
use aye_core::phase::{
    AddContextMessage, AnotherStep, AskBeforeNext, PhaseContext, PhaseHook, StopRequest, TimeLimit,
};
use aye_core::state::{JsonValue, StateCommand, StateError};

/// Maximum characters of a reason shown to the user.
const DETAIL_LIMIT: usize = 200;

/// The key of the message that reminds the model.
const REMINDER: &str = "stop.reminder";

type Policies = Arc<[Arc<dyn StopPolicy>]>;

/// The conditions of the plugin and of the current agent.
pub(super) struct Conditions {
    own: Policies,
    budget: Option<Budget>,
    /// The section read last and the policies it contained, so that a section is read and its patterns
    /// compiled only once.
    section: Mutex<Option<(JsonValue, Policies)>>,
    /// Limits ask instead of stopping; the models to switch to.
    asks: Option<OtherModels>,
    /// Consecutive errors and repeated calls ask in any case.
    asks_about_circles: bool,
    /// The check before the end.
    end: Option<EndCheck>,
}

/// What the policies say.
#[derive(Default)]
struct Judged {
    /// The reason of the first condition that is met.
    stop: Option<TerminationReason>,
    /// The first reminder for the model, if the run continues.
    reminder: Option<String>,
}

/// What was spent since the last look, and whether the run can pay for more.
struct Payment {
    spent: u64,
    over: Option<ExceededBudget>,
}

enum ExceededBudget {
    /// More than the budget was spent.
    Limit(String),
    /// It is unknown how much was spent.
    Unknown(String),
}

impl Conditions {
    pub(super) fn new(own: Vec<Arc<dyn StopPolicy>>) -> Self {
        let section = Mutex::new(None);
        Self { own: own.into(), budget: None, section, asks: None, asks_about_circles: false, end: None }
    }

    /// The same conditions, whose section is read again.
    fn copy(&self) -> Self {
        Self {
            own: Arc::clone(&self.own),
            budget: self.budget.clone(),
            section: Mutex::new(None),
            asks: self.asks.clone(),
            asks_about_circles: self.asks_about_circles,
            end: self.end.clone(),
        }
    }

    pub(super) fn under(&self, budget: Budget) -> Self {
        Self { budget: Some(budget), ..self.copy() }
    }

    pub(super) fn asking(&self, models: OtherModels) -> Self {
        Self { asks: Some(models), ..self.copy() }
    }

    pub(super) fn asking_about_circles(&self) -> Self {
        Self { asks_about_circles: true, ..self.copy() }
    }

    pub(super) fn checking_ends(&self, check: EndCheck) -> Self {
        Self { end: Some(check), ..self.copy() }
    }

    /// Returns the models to switch to, if the limit asks; `None` if it ends the run.
    fn other_models(&self, reason: &TerminationReason) -> Option<OtherModels> {
        let TerminationReason::Stopped(StoppedReason { code, .. }) = reason else { return None };
        let by_default = || {
            let none: OtherModels = Arc::new(|_| Vec::new());
            let is_circle =
                [ConsecutiveErrorsPolicy::CODE, RepeatedCallsPolicy::CODE].contains(&code.as_str());
            (self.asks_about_circles && is_circle).then_some(none)
        };
        self.asks.clone().or_else(by_default).filter(|_| ask::can_be_extended(reason))
    }

    /// Returns what was spent since the last look, and the reason to stop if it was too much.
    fn pay(&self, ctx: &PhaseContext) -> Option<Payment> {
        let budget = self.budget.as_ref()?;
        let state = ctx.state::<StopStateKey>();
        let before = state.and_then(|state| state.counted_from.as_ref()).map_or(0, |from| from.spent);
        let known = state.map_or(0, |state| state.spent).saturating_sub(before);
        Some(match budget.cost(ctx) {
            RunCost::Known(all) => {
                let spent = all.saturating_sub(state.map_or(0, |state| state.ledger));
                Payment {
                    spent,
                    over: budget.exceeded(known.saturating_add(spent)).map(ExceededBudget::Limit),
                }
            }
            RunCost::Unknown(why) => {
                let over = ExceededBudget::Unknown(format!("{why}, so the budget cannot be enforced"));
                Payment { spent: 0, over: Some(over) }
            }
        })
    }

    /// Ends the run, or asks whether to continue, if limits ask, the reason is such a limit and work is left.
    fn stop(
        &self,
        ctx: &PhaseContext,
        reason: TerminationReason,
        command: &mut StateCommand,
    ) -> Result<(), StateError> {
        let Some(models) = self.other_models(&reason) else {
            command.update::<StopRequest>(reason);
            return Ok(());
        };
        if latest_answer(ctx).1.is_empty() {
            // The run ends on its own.
            return Ok(());
        }
        let TerminationReason::Stopped(StoppedReason { code, .. }) = &reason else { return Ok(()) };
        let (more, models) = match (code.as_str(), &self.budget) {
            ("budget", Some(budget)) => (Some(budget.more()), models(&latest_model(ctx))),
            ("max_rounds", _) => (Some(counted(ctx.agent_spec.max_rounds, "more inference")), Vec::new()),
            _ => (None, Vec::new()),
        };
        command.emit::<AskBeforeNext>(ask::question(reason, more, models))
    }

    /// Has the model answer again, if its answer would end the run too early.
    fn check_end(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let reminder =
            self.end.as_ref().and_then(|end| end.reminder(ctx, &latest_model(ctx), &latest_answer(ctx).0));
        if let Some(EndReminder { text, notice }) = reminder {
            command.update::<StopStateKey>(StopStateUpdate::Reminded);
            command.schedule_action::<AddContextMessage>(ContextMessage::conversation(REMINDER, text))?;
            command.emit::<ReportActivity>(Activity::notice(STOP_PLUGIN, notice))?;
            command.emit::<AnotherStep>(())?;
        }
        Ok(command)
    }

    fn of_section(&self, spec: &AgentSpec) -> Result<Policies, StateError> {
        let Some(section) = spec.sections.get(StopConfigKey::KEY) else { return Ok(Arc::from([])) };
        let mut known = self.section.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((text, policies)) = known.as_ref()
            && text == section
        {
            return Ok(Arc::clone(policies));
        }
        let policies: Policies = config::parse(section)
            .map_err(|message| StateError::KeyDecode { key: StopConfigKey::KEY.into(), message })?
            .into();
        *known = Some((section.clone(), Arc::clone(&policies)));
        Ok(policies)
    }

    /// Returns the number of settled calls that the policies need; `None` if no policy needs calls.
    fn history(&self, spec: &AgentSpec) -> Result<Option<usize>, StateError> {
        let section = self.of_section(spec)?;
        Ok(self.own.iter().chain(section.iter()).filter_map(|policy| policy.history()).max())
    }

    /// The shortest time limit, and the reason of its policy. A section that cannot be read limits nothing here: the
    /// hooks report it.
    pub(super) fn time_limit(&self, spec: &AgentSpec) -> Option<TimeLimit> {
        let section = self.of_section(spec).unwrap_or_default();
        let limits = self.own.iter().chain(section.iter()).filter_map(|policy| {
            let active = policy.time_limit()?;
            // Evaluate the policy for a run that took a moment longer than the limit.
            let elapsed_ms = u64::try_from(active.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
            match policy.evaluate(&StopPolicyStats { elapsed_ms, ..StopPolicyStats::default() }) {
                StopDecision::Continue => None,
                StopDecision::Stop { code, detail } => Some(TimeLimit {
                    active,
                    reason: TerminationReason::stopped(code, shortened(&detail, DETAIL_LIMIT)),
                }),
            }
        });
        limits.min_by_key(|limit| limit.active)
    }

    /// Asks the policies of one point.
    fn judge(&self, ctx: &PhaseContext, point: StopPoint) -> Result<Judged, StateError> {
        let section = self.of_section(&ctx.agent_spec)?;
        let rounds = MaxRoundsPolicy::new(ctx.agent_spec.max_rounds);
        let policies = self
            .own
            .iter()
            .chain(section.iter())
            .map(|policy| policy.as_ref() as &dyn StopPolicy)
            .chain([&rounds as &dyn StopPolicy]);
        let mut stats = None;
        let mut judged = Judged::default();
        for policy in policies.filter(|policy| policy.point() == point) {
            let stats = stats.get_or_insert_with(|| stats_of(ctx, point));
            match policy.evaluate(stats) {
                StopDecision::Continue => {
                    judged.reminder = judged.reminder.or_else(|| policy.reminder(stats));
                }
                StopDecision::Stop { code, detail } => {
                    let stop = TerminationReason::stopped(code, shortened(&detail, DETAIL_LIMIT));
                    return Ok(Judged { stop: Some(stop), reminder: None });
                }
            }
        }
        Ok(judged)
    }
}

/// The text and the tools of the latest answer; from the conversation when the process was restarted since.
fn latest_answer(ctx: &PhaseContext) -> (String, Vec<String>) {
    if let Some(response) = &ctx.response {
        let tools = response.tool_calls.iter().map(|call| call.name.clone()).collect();
        return (response.text(), tools);
    }
    match ctx.messages.iter().rev().find(|message| message.role == Role::Assistant) {
        Some(message) => (message.text(), message.tool_calls.iter().map(|call| call.name.clone()).collect()),
        None => (String::new(), Vec::new()),
    }
}

/// The model that answered last.
fn latest_model(ctx: &PhaseContext) -> String {
    let answer = ctx.messages.iter().rev().find(|message| message.role == Role::Assistant);
    let model = answer.and_then(|message| message.metadata.as_ref()?.get("model")?.as_str());
    model.unwrap_or_default().to_owned()
}

/// The number of answers in a row, the current one included, of which every call came to nothing.
fn errors_in_a_row(ctx: &PhaseContext, calls: usize) -> u32 {
    let Some(state) = ctx.state::<StopStateKey>().filter(|state| state.failed >= calls as u64) else {
        return 0;
    };
    if calls == 0 { 0 } else { state.consecutive_errors.saturating_add(1) }
}

fn stats_of(ctx: &PhaseContext, point: StopPoint) -> StopPolicyStats {
    let (last_response_text, last_tool_names) = latest_answer(ctx);
    let state = ctx.state::<StopStateKey>().cloned().unwrap_or_default();
    let (used, from) = (CountedFrom::here(ctx), state.counted_from.unwrap_or_default());
    StopPolicyStats {
        step_count: used.steps.saturating_sub(from.steps),
        total_input_tokens: used.input_tokens.saturating_sub(from.input_tokens),
        total_output_tokens: used.output_tokens.saturating_sub(from.output_tokens),
        total_tokens: used.total_tokens.saturating_sub(from.total_tokens),
        elapsed_ms: u64::try_from(ctx.progress.active.as_millis()).unwrap_or(u64::MAX),
        consecutive_errors: match point {
            StopPoint::AfterInference => state.consecutive_errors,
            StopPoint::StepEnd => errors_in_a_row(ctx, last_tool_names.len()),
        },
        repeats: state.repeats.times(),
        repeats_before: state.repeats.noticed,
        last_tool_names,
        last_response_text,
        succeeded_tools: state.succeeded,
        settled: state.settled,
    }
}

/// Asks the policies of one point.
pub(super) struct JudgeHook {
    pub(super) conditions: Arc<Conditions>,
    pub(super) point: StopPoint,
}

#[async_trait]
impl PhaseHook for JudgeHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        if self.point == StopPoint::StepEnd {
            // A step without calls is the natural end of the run, which is a better reason than any of ours.
            let cut = ctx.response.as_ref().is_some_and(|response| response.has_incomplete_tool_calls);
            let calls = latest_answer(ctx).1.len();
            if !cut && calls == 0 {
                return self.conditions.check_end(ctx);
            }
            let state = ctx.state::<StopStateKey>();
            if let Some(repeats) = state.map(|state| &state.repeats).filter(|all| all.noticed != all.times())
            {
                command.update::<StopStateKey>(StopStateUpdate::RepeatsNoticed(repeats.times()));
            }
            if state.is_some_and(|state| !state.succeeded.is_empty()) {
                command.update::<StopStateKey>(StopStateUpdate::StepEnded);
            }
            if state.is_some_and(|state| (state.consecutive_errors, state.failed) != (0, 0)) {
                let errors = errors_in_a_row(ctx, calls);
                command.update::<StopStateKey>(StopStateUpdate::ErrorsInARow(errors));
            }
        }
        let Judged { stop, reminder } = self.conditions.judge(ctx, self.point)?;
        if let Some(reason) = stop {
            self.conditions.stop(ctx, reason, &mut command)?;
        }
        if let Some(text) = reminder {
            command.schedule_action::<AddContextMessage>(ContextMessage::conversation(REMINDER, text))?;
        }
        if self.point == StopPoint::AfterInference
            && let Some(Payment { spent, over }) = self.conditions.pay(ctx)
        {
            if spent > 0 {
                command.update::<StopStateKey>(StopStateUpdate::Spent(spent));
            }
            let spent = |why: &str| TerminationReason::stopped("budget", shortened(why, DETAIL_LIMIT));
            match over {
                Some(ExceededBudget::Limit(why)) => self.conditions.stop(ctx, spent(&why), &mut command)?,
                Some(ExceededBudget::Unknown(why)) => command.update::<StopRequest>(spent(&why)),
                None => {}
            }
        }
        Ok(command)
    }
}

/// Whether a call looked at something that still runs: it waits, and does not go in circles.
fn waits(result: &ToolResult) -> bool {
    result.details.as_ref().is_some_and(|details| details["state"] == "running")
}

/// Records settled calls, if a policy needs them.
pub(super) struct RecordHook {
    pub(super) conditions: Arc<Conditions>,
}

#[async_trait]
impl PhaseHook for RecordHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let (Some(tool), Some(result)) = (&ctx.tool, &ctx.tool_result) else { return Ok(command) };
        let is_settled = ctx.was_executed && !result.is_pending();
        if is_settled && self.conditions.end.is_some() {
            end::record(tool, result, &mut command);
        }
        let Some(keep) = self.conditions.history(&ctx.agent_spec)? else { return Ok(command) };
        if ctx.came_to_nothing {
            command.update::<StopStateKey>(StopStateUpdate::CameToNothing);
        }
        if is_settled {
            let call = SettledCall {
                call_id: tool.call.id.clone(),
                tool: tool.call.name.clone(),
                fingerprint: fingerprint(&tool.call.name, &tool.call.arguments),
                is_error: result.is_error(),
            };
            if !waits(result) {
                let hash = returned(&call.fingerprint, &result.model_text());
                command.update::<StopStateKey>(StopStateUpdate::Returned(hash));
            }
            command.update::<StopStateKey>(StopStateUpdate::Settled(call, keep));
        }
        Ok(command)
    }
}
