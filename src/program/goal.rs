//! `--until 'COMMAND'`: a run works until the command succeeds. The command and how often it failed are state of the run, so
//! whoever resumes the run keeps to it.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::contract::activity::{Activity, ReportActivity};
use crate::contract::context_message::ContextMessage;
use crate::contract::lifecycle::TerminationReason;
use crate::contract::message::Role;
use crate::failure::AppError;
use crate::phase::{
    AddContextMessage, AnotherStep, PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar,
    StopRequest,
};
use crate::plugins::hooks::HookOutput;
use crate::program::own_commands::{OwnCommands, shown};
use crate::state::{KeyScope, MergeStrategy, Phase, StateCommand, StateError, StateKey, StateKeyOptions};

/// The plugin's name, and the code of the runs that it ends.
pub(crate) const GOAL_PLUGIN: &str = "goal";

/// The maximum number of times that the command may fail.
const MAX_FAILURES: u32 = 25;
/// The maximum number of answers in a row that call no tool although the command failed.
const MAX_IDLE: u32 = 2;
/// Characters of the command's output that the model reads: its end, where the failure is.
const MAX_OUTPUT: usize = 3000;

/// What a run works towards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct GoalState {
    /// The command that has to succeed; none once it did.
    command: Option<String>,
    failures: u32,
    /// Steps at the last failure.
    steps: u32,
    /// Answers in a row that called no tool.
    idle: u32,
}

impl StateKey for GoalState {
    const KEY: &'static str = "goal";
    const MERGE: MergeStrategy = MergeStrategy::Exclusive;
    const SCOPE: KeyScope = KeyScope::Run;
    type Value = Self;
    type Update = Self;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value = update;
    }
}

/// Has the model answer until a command succeeds.
#[derive(Clone)]
pub(crate) struct GoalPlugin {
    /// The command of this start, for its runs.
    pub(crate) given: Option<String>,
    pub(crate) commands: OwnCommands,
    pub(crate) timeout: Duration,
}

impl Plugin for GoalPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(GOAL_PLUGIN, "has the model continue until the command of --until succeeds")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<GoalState>(StateKeyOptions::default())?;
        registrar.register_hook(Phase::RunStart, SetGoal(self.given.clone()));
        registrar.register_hook(Phase::StepEnd, self.clone());
        registrar.register_hook(Phase::RunEnd, ReportMissing);
        Ok(())
    }
}

struct SetGoal(Option<String>);

#[async_trait]
impl PhaseHook for SetGoal {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let known = ctx.state::<GoalState>().and_then(|goal| goal.command.as_ref());
        // Subagents work towards what they were asked.
        if ctx.run_identity.depth == 0 && self.0.is_some() && self.0.as_ref() != known {
            command.update::<GoalState>(GoalState { command: self.0.clone(), ..GoalState::default() });
        }
        Ok(command)
    }
}

/// Says what is missing, whatever ended the run.
struct ReportMissing;

#[async_trait]
impl PhaseHook for ReportMissing {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let goal = ctx.state::<GoalState>();
        if let Some(missing) = goal.and_then(|goal| goal.command.as_ref()) {
            let text = format!("the goal is not reached: `{}` has not succeeded", shown(missing));
            command.emit::<ReportActivity>(Activity::warning(GOAL_PLUGIN, text))?;
        }
        Ok(command)
    }
}

#[async_trait]
impl PhaseHook for GoalPlugin {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let Some(goal) = ctx.state::<GoalState>() else { return Ok(command) };
        let Some(wanted) = goal.command.as_ref().filter(|_| !has_calls(ctx)) else { return Ok(command) };
        let stop = |command: &mut StateCommand, why: String| {
            command.update::<StopRequest>(TerminationReason::stopped(GOAL_PLUGIN, why));
        };
        let output = match self.succeeds(wanted, ctx).await {
            Ok(None) => {
                let text = format!("the goal is reached: `{}` succeeded", shown(wanted));
                command.update::<GoalState>(GoalState::default());
                command.emit::<ReportActivity>(Activity::notice(GOAL_PLUGIN, text))?;
                return Ok(command);
            }
            Ok(Some(output)) => output,
            Err(why) => {
                stop(&mut command, format!("the goal cannot be checked: {why}"));
                return Ok(command);
            }
        };
        let failures = goal.failures + 1;
        let steps = ctx.progress.steps;
        let idle = if goal.failures > 0 && steps <= goal.steps + 1 { goal.idle + 1 } else { 0 };
        if failures >= MAX_FAILURES {
            stop(
                &mut command,
                format!("`{}` failed {failures} times; its end: {}", shown(wanted), last_line(&output)),
            );
        } else if idle >= MAX_IDLE {
            let why = format!(
                "the model gave up although `{}` fails; its end: {}",
                shown(wanted),
                last_line(&output)
            );
            stop(&mut command, why);
        } else {
            let text = format!(
                "The run ends when this command succeeds, and it fails now ({failures} of at most {MAX_FAILURES} times):\n\
                 `{wanted}`\n\n{output}\n\nGo on until it succeeds. Do not weaken what it checks; if it cannot succeed, say \
                 why."
            );
            command.schedule_action::<AddContextMessage>(ContextMessage::conversation(GOAL_PLUGIN, text))?;
            command.emit::<AnotherStep>(())?;
            let text = format!("`{}` fails; the run goes on", shown(wanted));
            command.emit::<ReportActivity>(Activity::notice(GOAL_PLUGIN, text))?;
        }
        command.update::<GoalState>(GoalState { failures, steps, idle, command: Some(wanted.clone()) });
        Ok(command)
    }
}

impl GoalPlugin {
    /// Runs the command in the sandbox. Returns nothing if it succeeded, else what it printed.
    async fn succeeds(&self, wanted: &str, ctx: &PhaseContext) -> Result<Option<String>, AppError> {
        let run = ctx.run_identity.run_id.as_str();
        let output = self.commands.run(wanted, &[], run, self.timeout, &ctx.cancellation).await?;
        let HookOutput { stdout, stderr, exit_code, ended, .. } = output;
        if exit_code == Some(0) && ended.is_none() {
            return Ok(None);
        }
        let how = ended.or_else(|| exit_code.map(|code| format!("exit status {code}"))).unwrap_or_default();
        let all = [stdout.trim_end(), stderr.trim_end()].join("\n");
        let all = all.trim();
        let from = all.floor_char_boundary(all.len().saturating_sub(MAX_OUTPUT));
        let cut = if from > 0 { "[…] " } else { "" };
        Ok(Some(format!("{cut}{}\n[{how}]", &all[from..]).trim_start().to_owned()))
    }
}

/// Whether the latest answer called tools: then the run goes on anyway.
pub(crate) fn has_calls(ctx: &PhaseContext) -> bool {
    if let Some(response) = &ctx.response {
        return !response.tool_calls.is_empty();
    }
    let answer = ctx.messages.iter().rev().find(|message| message.role == Role::Assistant);
    answer.is_none_or(|message| !message.tool_calls.is_empty())
}

/// The end of an output, for users.
fn last_line(output: &str) -> String {
    let mut lines = output.lines().rev().filter(|line| !line.trim().is_empty());
    let status = lines.next().unwrap_or_default();
    let line = lines.next().map(|line| format!("{} ", line.trim())).unwrap_or_default();
    shown(&format!("{line}{status}"))
}
