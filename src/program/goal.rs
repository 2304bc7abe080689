//! Goals: a run works until a command succeeds (`--until 'COMMAND'`) or the model shows that a condition holds (`/goal
//! CONDITION`). The goal and the rounds that it took are state of the run, so whoever resumes the run keeps to it.

mod condition;
mod page;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use self::page::page;
use crate::contract::activity::{Activity, ReportActivity};
use crate::contract::context_message::ContextMessage;
use crate::contract::goal::Goal;
use crate::contract::lifecycle::TerminationReason;
use crate::contract::message::{Message, Role};
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

/// The maximum number of answers in a row that call no tool although the goal is not reached.
const MAX_IDLE: u32 = 2;
/// Characters of the command's output that the model reads: its end, where the failure is.
const MAX_OUTPUT: usize = 3000;

/// What a run works towards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct GoalState {
    /// Empty if there is none, or it was reached.
    #[serde(flatten)]
    goal: Goal,
    /// The number of times that the run would have ended without it.
    #[serde(rename = "failures")]
    rounds: u32,
    /// What was missing the last time.
    missing: String,
    /// Steps at that time.
    steps: u32,
    /// Answers in a row that called no tool.
    idle: u32,
    /// The message that it comes from.
    message: String,
    /// The run ends for it, which says what is missing.
    has_ended: bool,
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

impl GoalState {
    /// What is missing, for users.
    fn missing(&self) -> String {
        if !self.missing.is_empty() {
            return self.missing.clone();
        }
        match (&self.goal.command, &self.goal.condition) {
            (Some(command), _) => format!("`{}` has not succeeded", shown(command)),
            (None, Some(text)) => format!("{} is not shown yet", condition::shown(text)),
            (None, None) => String::new(),
        }
    }
}

/// The goal of the last run of a conversation, if it ended without it: a user who says "continue" means it.
struct OpenGoal;

impl StateKey for OpenGoal {
    const KEY: &'static str = "goal.open";
    const MERGE: MergeStrategy = MergeStrategy::Exclusive;
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = Goal;
    type Update = Goal;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value = update;
    }
}

/// Takes the commands of goals out of the state of a run or a conversation that was written elsewhere. Returns whether there
/// was one.
pub(crate) fn remove_commands(state: &mut BTreeMap<String, Value>) -> bool {
    let goals =
        [GoalState::KEY, OpenGoal::KEY].map(|key| state.get_mut(key)?.as_object_mut()?.remove("command"));
    goals.iter().any(Option::is_some)
}

/// Has the model answer until the goal is reached.
#[derive(Clone)]
pub(crate) struct GoalPlugin {
    /// The command of this start, for its runs.
    pub(crate) given: Option<String>,
    pub(crate) commands: OwnCommands,
    pub(crate) timeout: Duration,
    /// Maximum rounds; none is no limit.
    pub(crate) max_rounds: Option<u64>,
}

impl Plugin for GoalPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(GOAL_PLUGIN, "has the model continue until the goal of the run is reached")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<GoalState>(StateKeyOptions::default())?;
        registrar.register_key::<OpenGoal>(StateKeyOptions::default())?;
        registrar.register_hook(Phase::RunStart, SetGoal(self.given.clone()));
        registrar.register_hook(Phase::BeforeInference, ReadGoal);
        registrar.register_hook(Phase::StepEnd, self.clone());
        registrar.register_hook(Phase::RunEnd, ReportMissing);
        Ok(())
    }
}

/// Sets the goal that a run starts with: of its message, of this start, or of the run that the user continues.
struct SetGoal(Option<String>);

#[async_trait]
impl PhaseHook for SetGoal {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        // Subagents work towards what they were asked.
        if ctx.run_identity.depth > 0 {
            return Ok(command);
        }
        let open = ctx.state::<OpenGoal>().cloned().unwrap_or_default();
        let (mut goal, message) = goal_of_messages(&ctx.messages).unwrap_or_default();
        if goal.is_empty() && is_continued(&ctx.messages) {
            goal = open.clone();
        }
        if self.0.is_some() {
            goal.command.clone_from(&self.0);
        }
        if !open.is_empty() {
            command.update::<OpenGoal>(Goal::default());
        }
        if !goal.is_empty() {
            command.update::<GoalState>(GoalState { goal, message, ..GoalState::default() });
        }
        Ok(command)
    }
}

/// Takes over the goal of a message that was sent into the active run.
struct ReadGoal;

#[async_trait]
impl PhaseHook for ReadGoal {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        if ctx.run_identity.depth == 0
            && let Some((goal, message)) = goal_of_messages(&ctx.messages)
            && ctx.state::<GoalState>().is_none_or(|known| known.message != message)
        {
            command.update::<GoalState>(GoalState { goal, message, ..GoalState::default() });
        }
        Ok(command)
    }
}

/// The newest goal among the messages that no answer follows yet, and the id of its message.
fn goal_of_messages(messages: &[Arc<Message>]) -> Option<(Goal, String)> {
    let unanswered = messages.iter().rev().take_while(|message| message.role != Role::Assistant);
    unanswered.into_iter().find_map(|message| Some((message.goal()?, message.id.to_string())))
}

/// Whether the user only wants the work to continue.
fn is_continued(messages: &[Arc<Message>]) -> bool {
    let last = messages.iter().rev().find(|message| message.role == Role::User && message.is_for_all());
    last.is_some_and(|message| {
        message.written().trim().trim_end_matches('.').eq_ignore_ascii_case("continue")
    })
}

/// Says what is missing, whatever ended the run.
struct ReportMissing;

#[async_trait]
impl PhaseHook for ReportMissing {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        if let Some(state) = ctx.state::<GoalState>().filter(|state| !state.goal.is_empty()) {
            if !state.has_ended {
                let text = format!("the goal is not reached: {}", state.missing());
                command.emit::<ReportActivity>(Activity::warning(GOAL_PLUGIN, text))?;
            }
            command.update::<OpenGoal>(state.goal.clone());
        }
        Ok(command)
    }
}

/// Whether a goal is reached.
enum Progress {
    /// With what shows it.
    Reached(String),
    Missing {
        /// For the model.
        text: String,
        /// For users.
        shown: String,
    },
}

#[async_trait]
impl PhaseHook for GoalPlugin {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let Some(state) = ctx.state::<GoalState>() else { return Ok(command) };
        if state.goal.is_empty() || has_calls(ctx) {
            return Ok(command);
        }
        let (text, missing) = match self.judge(state, ctx).await {
            Ok(Progress::Reached(how)) => {
                let message = state.message.clone();
                command.update::<GoalState>(GoalState { message, ..GoalState::default() });
                command.emit::<ReportActivity>(Activity::notice(
                    GOAL_PLUGIN,
                    format!("the goal is reached: {how}"),
                ))?;
                return Ok(command);
            }
            Ok(Progress::Missing { text, shown }) => (text, shown),
            Err(why) => {
                let why = format!("the goal cannot be checked: {why}");
                command.update::<StopRequest>(TerminationReason::stopped(GOAL_PLUGIN, why));
                command.update::<GoalState>(GoalState { has_ended: true, ..state.clone() });
                return Ok(command);
            }
        };
        let rounds = state.rounds + 1;
        let steps = ctx.progress.steps;
        let idle = if state.rounds > 0 && steps <= state.steps + 1 { state.idle + 1 } else { 0 };
        let stop = if self.max_rounds.is_some_and(|most| u64::from(rounds) >= most) {
            Some(format!("the goal is not reached after {rounds} rounds: {missing}"))
        } else {
            (idle >= MAX_IDLE).then(|| format!("the goal is not reached: {missing}; the model gave up"))
        };
        let has_ended = stop.is_some();
        if let Some(why) = stop {
            command.update::<StopRequest>(TerminationReason::stopped(GOAL_PLUGIN, why));
        } else {
            let round = match self.max_rounds {
                Some(most) => format!("round {rounds} of at most {most}"),
                None => format!("round {rounds}"),
            };
            let text = format!("{text}\n\n[{round}]");
            command.schedule_action::<AddContextMessage>(ContextMessage::conversation(GOAL_PLUGIN, text))?;
            command.emit::<AnotherStep>(())?;
            let text = format!("{round}: {missing}");
            command.emit::<ReportActivity>(Activity::notice(GOAL_PLUGIN, text))?;
        }
        command.update::<GoalState>(GoalState { rounds, missing, steps, idle, has_ended, ..state.clone() });
        Ok(command)
    }
}

impl GoalPlugin {
    /// Runs the command, then reads what the model shows.
    ///
    /// # Errors
    /// Why the command was not started.
    async fn judge(&self, state: &GoalState, ctx: &PhaseContext) -> Result<Progress, AppError> {
        let mut shown_by = Vec::new();
        if let Some(wanted) = &state.goal.command {
            if let Some(output) = self.succeeds(wanted, ctx).await? {
                let text = format!(
                    "The run ends when this command succeeds, and it fails now:\n`{wanted}`\n\n{output}\n\nGo on until it \
                     succeeds. Do not weaken what it checks; if it cannot succeed, say why."
                );
                let shown = format!("`{}` fails: {}", shown(wanted), last_line(&output));
                return Ok(Progress::Missing { text, shown });
            }
            shown_by.push(format!("`{}` succeeded", shown(wanted)));
        }
        if let Some(wanted) = &state.goal.condition {
            let from = ctx.messages.iter().position(|message| message.id.as_str() == state.message);
            match condition::judge(&answer(ctx), &ctx.messages[from.unwrap_or_default()..]) {
                condition::Claim::Shown(words) => {
                    shown_by.push(format!("{}, shown by `{words}`", condition::shown(wanted)));
                }
                condition::Claim::NotShown(why) => {
                    let text = condition::reminder(wanted, &why);
                    let shown = format!("{}: {why}", condition::shown(wanted));
                    return Ok(Progress::Missing { text, shown });
                }
            }
        }
        Ok(Progress::Reached(shown_by.join("; ")))
    }

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

/// The text of the latest answer.
fn answer(ctx: &PhaseContext) -> String {
    if let Some(response) = &ctx.response {
        return response.text();
    }
    let answer = ctx.messages.iter().rev().find(|message| message.role == Role::Assistant);
    answer.map(|message| message.text()).unwrap_or_default()
}

/// The message of a user who wants a run to work until a condition holds.
pub(crate) fn message(words: &str) -> Message {
    Message::user(condition::task(words)).working_towards(&Goal::condition(words))
}

/// The end of an output, for users.
fn last_line(output: &str) -> String {
    let mut lines = output.lines().rev().filter(|line| !line.trim().is_empty());
    let status = lines.next().unwrap_or_default();
    let line = lines.next().map(|line| format!("{} ", line.trim())).unwrap_or_default();
    shown(&format!("{line}{status}"))
}
