//! The plugin: schedules an action at each boundary that a hook is about, and runs the commands in its handler.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use super::answer::{HookFailure, HookResponse};
use super::config::HookSpec;
use super::event::event;
use super::runner::{HookRunner, request};
use aye_core::contract::activity::{Activity, ReportActivity};
use aye_core::contract::clock::Clock;
use aye_core::contract::context_message::{ContextMessage, ContextTarget};
use aye_core::contract::hook::{HookRan, ReportHook};
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::message::Role;
use aye_core::contract::question::{Question, QuestionParameters};
use aye_core::contract::suspension::{
    ACTION_PERMISSION, PendingToolCall, ResumeDecisionAction, SuspendTicket, Suspension, ToolCallResumeMode,
};
use aye_core::contract::terms::Terms;
use aye_core::contract::tool::{SpawnContext, ToolResult};
use aye_core::contract::tool_intercept::{ToolInterceptAction, ToolInterceptPayload};
use aye_core::phase::{
    AddContextMessage, ExcludeTool, PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar,
    StopRequest, ToolCallInfo, TypedScheduledActionHandler,
};
use aye_core::state::{JsonValue, Phase, ScheduledAction, ScheduledActionSpec, StateCommand, StateError};
use aye_pattern::shell::{Simple, Word, analyse, canonical};
use aye_pattern::{Looked, Matcher, Quantifier};

pub const HOOKS_PLUGIN: &str = "hooks";

/// The working folder of a program's runs, and the other context that its hooks need.
#[derive(Clone)]
pub struct HookContext {
    /// The folder that runs work in.
    pub cwd: PathBuf,
    /// The folder that `~/` stands for.
    pub home: PathBuf,
    pub clock: Arc<dyn Clock>,
    /// The terms on which questions are asked.
    pub terms: Terms,
}

/// Runs the commands of hooks. Clones share them.
#[derive(Clone)]
pub struct HooksPlugin {
    shared: Arc<HookState>,
}

struct HookState {
    hooks: Vec<HookSpec>,
    runner: Arc<dyn HookRunner>,
    hook_context: HookContext,
}

impl HooksPlugin {
    /// These hooks, in the order in which their answers count.
    pub fn new(hooks: Vec<HookSpec>, runner: Arc<dyn HookRunner>, hook_context: HookContext) -> Self {
        Self { shared: Arc::new(HookState { hooks, runner, hook_context }) }
    }
}

impl Plugin for HooksPlugin {
    fn is_guard(&self) -> bool {
        true
    }

    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(HOOKS_PLUGIN, "runs commands at the boundaries of a run")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        if self.shared.hooks.is_empty() {
            return Ok(());
        }
        registrar.register_scheduled_action::<RunHooks, _>(Commands(Arc::clone(&self.shared)))?;
        for phase in Phase::ALL {
            if self.shared.hooks.iter().any(|hook| hook.phase == phase) {
                registrar.register_hook(phase, Boundary(Arc::clone(&self.shared)));
            }
        }
        Ok(())
    }
}

impl HookSpec {
    /// Returns whether the hook applies to a call. A shell line is checked part by part, and a line that may
    /// contain what the pattern names counts: a hook that runs once too often does no harm, but one that does
    /// not run may.
    pub fn is_about(&self, info: &ToolCallInfo) -> bool {
        let Some(pattern) = &self.tool else { return true };
        let primary = info.descriptor.as_ref().and_then(|tool| tool.primary_argument.as_deref());
        let is_shell = primary == Some("command");
        pattern.matches_by(
            &info.call.name,
            &info.call.arguments,
            primary,
            Quantifier::One,
            &mut |looked: Looked<'_>| {
                looked.holds() || (is_shell && looked.key == Some("command") && may_hold(&looked))
            },
        )
    }
}

/// Returns whether some command of a line matches, or may match.
fn may_hold(looked: &Looked<'_>) -> bool {
    let analysis = analyse(looked.text);
    if analysis.unreadable.is_some() || analysis.undecided.is_some() {
        return true;
    }
    analysis
        .commands
        .iter()
        .filter(|command| !command.words.is_empty())
        .any(|command| is_or_may_be(looked.matcher, command) != looked.negated)
}

fn is_or_may_be(matcher: &Matcher, command: &Simple) -> bool {
    matcher.is_match(&command.source)
        || command.spellings().iter().any(|words| {
            let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
            matcher.is_match_words(&texts, &canonical(&texts)) || could_be(matcher, words)
        })
}

/// Returns whether some substitution of the words that only the shell knows would match.
fn could_be(matcher: &Matcher, words: &[Word]) -> bool {
    if words.iter().all(Word::is_known) {
        return false;
    }
    let (literal, _) = matcher.literal_words();
    let first = literal.iter().zip(words).find(|(want, word)| !word.is_known() || **want != word.text);
    first.is_none_or(|(_, word)| !word.is_known())
}

/// The action that runs the commands of the current phase; it is scheduled for whichever phase that is.
struct RunHooks;

impl ScheduledActionSpec for RunHooks {
    const KEY: &'static str = "hooks.run";
    const PHASE: Phase = Phase::BeforeToolExecute;
    type Payload = ();
}

/// Pure, as a phase hook must be: it may be asked twice, and asks for one action.
struct Boundary(Arc<HookState>);

impl HookState {
    fn due<'a>(&'a self, ctx: &'a PhaseContext) -> impl Iterator<Item = &'a HookSpec> {
        let is_about = |hook: &HookSpec| ctx.tool.as_ref().is_none_or(|info| hook.is_about(info));
        self.hooks.iter().filter(move |hook| hook.phase == ctx.phase && is_about(hook))
    }
}

#[async_trait]
impl PhaseHook for Boundary {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        // Commands are about calls that ran; those that did not are theirs before the call.
        if ctx.was_executed && self.0.due(ctx).next().is_some() {
            command.scheduled_actions.push(ScheduledAction {
                key: RunHooks::KEY.into(),
                phase: ctx.phase,
                payload: JsonValue::Null,
            });
        }
        Ok(command)
    }
}

/// The outcome of one command.
struct Outcome<'a> {
    hook: &'a HookSpec,
    answer: Result<HookResponse, HookFailure>,
    ran: HookRan,
}

struct Commands(Arc<HookState>);

#[async_trait]
impl TypedScheduledActionHandler<RunHooks> for Commands {
    async fn handle_typed(&self, ctx: &PhaseContext, (): ()) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let is_decided = |intercept: &ToolInterceptPayload| match intercept {
            ToolInterceptPayload::Block { .. }
            | ToolInterceptPayload::Deny(_)
            | ToolInterceptPayload::SetResult(_) => true,
            ToolInterceptPayload::Suspend(_) => false,
        };
        if ctx.intercept.as_ref().is_some_and(is_decided) {
            // It does not run anyway.
            return Ok(command);
        }
        let outcomes = join_all(self.0.due(ctx).map(|hook| self.0.run_hook_command(hook, ctx))).await;
        for outcome in &outcomes {
            command.emit::<ReportHook>(outcome.ran.clone())?;
            report_outcome(&mut command, ctx, outcome)?;
        }
        if let Some(intercept) = ctx.tool.as_ref().and_then(|info| self.0.intercept(ctx, info, &outcomes)) {
            command.schedule_action::<ToolInterceptAction>(intercept)?;
        }
        Ok(command)
    }
}

impl HookState {
    /// Runs one command. Never fails: an error is part of the outcome.
    async fn run_hook_command<'a>(&self, hook: &'a HookSpec, ctx: &PhaseContext) -> Outcome<'a> {
        let HookContext { cwd, home, clock, .. } = &self.hook_context;
        let began = clock.now_ms();
        let input = event(hook, ctx, &cwd.to_string_lossy()).to_string().into_bytes();
        let on_behalf = SpawnContext { run: ctx.run_identity.run_id.to_string(), ..SpawnContext::default() };
        let request = request(hook, cwd, home, input, on_behalf);
        // Work after the end of a run is not cancelled with the run.
        let cancel =
            if ctx.phase == Phase::RunEnd { CancellationToken::new() } else { ctx.cancellation.clone() };
        let ended = AssertUnwindSafe(self.runner.run(request, &cancel)).catch_unwind().await;
        let (exit, answer) = match ended {
            Ok(Ok(output)) => (output.exit_code, hook.answer_of(&output)),
            Ok(Err(why)) => (None, Err(why.into())),
            Err(_) => (None, Err(HookFailure::Panicked)),
        };
        let at = clock.now_ms();
        let ran = HookRan {
            name: hook.name.clone(),
            origin: hook.origin.clone(),
            phase: hook.phase,
            call_id: ctx.tool.as_ref().map(|info| info.call.id.as_str().into()),
            exit,
            duration_ms: at.saturating_sub(began),
            answer: match &answer {
                Ok(answer) => answer.summary(),
                Err(why) => format!("failed: it {why}"),
            },
            at,
        };
        Outcome { hook, answer, ran }
    }

    /// Returns what the commands at the gate request instead of executing the call; the strictest request
    /// wins.
    fn intercept(
        &self,
        ctx: &PhaseContext,
        info: &ToolCallInfo,
        outcomes: &[Outcome<'_>],
    ) -> Option<ToolInterceptPayload> {
        if ctx.phase != Phase::BeforeToolExecute {
            return None;
        }
        let tool = &info.call.name;
        let outcome_text =
            || outcomes.iter().filter_map(|outcome| Some((outcome.hook, outcome.answer.as_ref().ok()?)));
        if let Some((hook, reason)) =
            outcome_text().find_map(|(hook, answer)| Some((hook, answer.block.as_ref()?)))
        {
            return Some(ToolInterceptPayload::Block { reason: format!("{}: {reason}", named(hook)) });
        }
        for Outcome { hook, answer, .. } in outcomes {
            let (code, text, shown) = match answer {
                // A gate that cannot judge does not open.
                Err(why) => (
                    "hook_failed",
                    format!(
                        "not run: {} {why}. A call does not run when one of its hooks fails; the call itself \
                         may be fine",
                        named(hook)
                    ),
                    format!("{} {why}; it did not run", named(hook)),
                ),
                Ok(HookResponse { deny: Some(reason), .. }) => (
                    "hook_denied",
                    format!(
                        "denied by {}: {reason}\nIt did not run; do not try to get the same effect another \
                         way",
                        named(hook)
                    ),
                    format!("denied by {}: {reason}", named(hook)),
                ),
                Ok(_) => continue,
            };
            return Some(ToolInterceptPayload::Deny(
                ToolResult::error_with_code(tool, code, text).with_shown(shown),
            ));
        }
        let asks: Vec<(&HookSpec, &str)> = outcome_text()
            .filter_map(|(hook, answer)| Some((hook, answer.ask.as_ref()?.question.as_str())))
            .filter(|(hook, _)| !is_answered(info, hook))
            .collect();
        if !asks.is_empty() {
            return Some(ToolInterceptPayload::Suspend(self.ticket(ctx, info, &asks)));
        }
        let (_, result) =
            outcome_text().find_map(|(hook, answer)| Some((hook, answer.set_result.as_ref()?)))?;
        Some(ToolInterceptPayload::SetResult(if result.error {
            ToolResult::error(tool, &result.text)
        } else {
            ToolResult::text(tool, &result.text)
        }))
    }

    /// Returns the question of hooks: their text added to a question that is asked anyway, or a question of
    /// their own.
    fn ticket(&self, ctx: &PhaseContext, info: &ToolCallInfo, asks: &[(&HookSpec, &str)]) -> SuspendTicket {
        let words: Vec<String> =
            asks.iter().map(|(hook, question)| format!("{} asks: {question}", named(hook))).collect();
        let words = words.join("; ");
        let hooks = Some(asks.iter().map(|(hook, _)| hook.name.clone()).collect());
        if let Some(ToolInterceptPayload::Suspend(known)) = &ctx.intercept {
            let mut ticket = known.clone();
            let before = Question::of(&ticket.suspension).why;
            let why = Some(before.map(|before| format!("{before}; {words}")).unwrap_or(words));
            ticket.suspension.add(QuestionParameters { why, hooks, ..QuestionParameters::default() });
            return ticket;
        }
        let call = &info.call;
        let HookContext { cwd, clock, terms, .. } = &self.hook_context;
        let parameters = QuestionParameters {
            tool: Some(call.name.clone()),
            args: Some(call.arguments.clone()),
            origin: Some(Some(asks[0].0.origin.clone())),
            why: Some(words.clone()),
            cwd: Some(cwd.to_string_lossy().into_owned()),
            proposals: Some(Vec::new()),
            hooks,
            notify: terms.notify_value(),
            ..QuestionParameters::default()
        };
        SuspendTicket {
            suspension: Suspension {
                id: format!("hook_{}", call.id).into(),
                action: ACTION_PERMISSION.to_owned(),
                message: format!("{} needs approval to run: {words}", call.name),
                parameters: parameters.into(),
                response_schema: None,
                expires_at: terms.ends_at(clock.now_ms()),
            },
            pending: PendingToolCall {
                id: call.id.as_str().into(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
            },
            resume_mode: ToolCallResumeMode::ReplayToolCall,
        }
    }
}

/// Describes a hook, for users and for the model.
fn named(hook: &HookSpec) -> String {
    format!("the hook `{}` ({})", hook.name, hook.origin)
}

/// Returns whether the user approved a question that contained this hook's.
fn is_answered(info: &ToolCallInfo, hook: &HookSpec) -> bool {
    let yes = info.resume.as_ref().is_some_and(|resume| resume.action == ResumeDecisionAction::Resume);
    yes && info.suspension.as_ref().is_some_and(|ticket| ticket.suspension.hooks().contains(&hook.name))
}

/// Whether the model has read a text since the user's last message.
fn is_read(ctx: &PhaseContext, text: &str) -> bool {
    let since = ctx
        .messages
        .iter()
        .rev()
        .take_while(|outcome_text| outcome_text.role != Role::User || !outcome_text.is_for_all());
    since
        .filter(|outcome_text| outcome_text.role == Role::System)
        .any(|outcome_text| outcome_text.text() == text)
}

/// Carries out a command's requests other than stopping a call.
fn report_outcome(
    command: &mut StateCommand,
    ctx: &PhaseContext,
    outcome: &Outcome<'_>,
) -> Result<(), StateError> {
    let Outcome { hook, answer, .. } = outcome;
    let source = format!("hook {}", hook.name);
    let answer = match answer {
        Ok(answer) => answer,
        Err(why) if ctx.phase == Phase::BeforeToolExecute => {
            let text = format!("{} {why}; the call does not run", named(hook));
            return command.emit::<ReportActivity>(Activity::warning("", text));
        }
        Err(why) => {
            let text = format!("{} {why}; the run continues without it", named(hook));
            return command.emit::<ReportActivity>(Activity::warning("", text));
        }
    };
    if let Some(text) = &answer.notice {
        command.emit::<ReportActivity>(Activity::notice(&source, text))?;
    }
    for (place, message) in answer.context.iter().enumerate() {
        // What is for one step stays in the conversation; the same text is not repeated for one request of the user.
        if !message.persistent && is_read(ctx, &message.content) {
            continue;
        }
        command.schedule_action::<AddContextMessage>(ContextMessage {
            key: format!("hook.{}.{place}", hook.name),
            content: message.content.clone(),
            target: if message.persistent { message.target } else { ContextTarget::Conversation },
            persistent: message.persistent,
            cooldown_turns: 0,
        })?;
    }
    for tool in &answer.exclude_tools {
        command.schedule_action::<ExcludeTool>(tool.clone())?;
    }
    if let Some(reason) = answer.block.as_ref().filter(|_| ctx.phase != Phase::BeforeToolExecute) {
        command.update::<StopRequest>(TerminationReason::Blocked(format!("{}: {reason}", named(hook))));
    }
    if let Some(reason) = &answer.stop {
        command
            .update::<StopRequest>(TerminationReason::stopped("hook", format!("{}: {reason}", named(hook))));
    }
    Ok(())
}
