use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use aye_core::contract::digest::hex;
use aye_core::phase::PhaseContext;
use aye_core::state::StateKey;

/// One settled call, as the policies remember it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledCall {
    pub call_id: String,
    pub tool: String,
    /// Equal for calls of one tool with the same arguments: see [`fingerprint`].
    pub fingerprint: String,
    /// Whether its result is an error.
    pub is_error: bool,
}

/// The state that the policies keep of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StopState {
    /// The latest settled calls, newest last.
    pub settled: Vec<SettledCall>,
    /// Answers in a row up to now of which every call failed to run or was refused.
    pub consecutive_errors: u32,
    /// The calls of this step that failed to run or were refused.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// The tools of this step whose calls succeeded.
    pub succeeded: Vec<String>,
    /// How the newest calls repeat.
    #[serde(skip_serializing_if = "CallRepeats::is_empty")]
    pub repeats: CallRepeats,
    /// Files changed, and nothing ran since that could show whether they work.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_unchecked_changes: bool,
    /// The run wrote a plan.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_planned: bool,
    /// The model was reminded once of what an answer left open that would have ended the run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub was_reminded: bool,
    /// The amount spent, in billionths of the currency of the prices; counted only under a budget.
    #[serde(skip_serializing_if = "is_zero")]
    pub spent: u64,
    /// How much of the run's ledger is contained in it. A run that an earlier version started has spent more.
    #[serde(skip_serializing_if = "is_zero")]
    pub ledger: u64,
    /// The figures from which the limits count, if the user let the run continue beyond one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_from: Option<CountedFrom>,
    /// The model that the user switched the run to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// How often the newest calls came back with the same results: one call, or two or three in turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallRepeats {
    /// A hash of each of the latest calls with its result, newest last.
    pub latest: Vec<String>,
    /// For one, two and three calls in turn: how many of the newest calls in a row are equal to the call that many before.
    pub equal: [u32; Self::LONGEST],
    /// [`times`](Self::times) at the end of the last step.
    pub noticed: u32,
}

impl CallRepeats {
    /// The longest circle that is detected, in calls.
    pub const LONGEST: usize = 3;

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, hash: String) {
        for (length, equal) in (1..).zip(&mut self.equal) {
            let before = self.latest.len().checked_sub(length).map(|at| &self.latest[at]);
            *equal = if before == Some(&hash) { equal.saturating_add(1) } else { 0 };
        }
        self.latest.push(hash);
        let surplus = self.latest.len().saturating_sub(Self::LONGEST);
        self.latest.drain(..surplus);
    }

    /// How often in a row the newest calls came back with the same results; 1 if they did not before.
    pub fn times(&self) -> u32 {
        let times = (1..).zip(self.equal).map(|(length, equal)| equal / length + 1);
        if self.latest.is_empty() { 0 } else { times.max().unwrap_or(1) }
    }
}

/// The figures of a run when the user let it continue: limits count from there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CountedFrom {
    /// Inferences.
    pub steps: u32,
    /// Tokens of prompts.
    pub input_tokens: u64,
    /// Tokens of answers.
    pub output_tokens: u64,
    /// Both, as the providers count.
    pub total_tokens: u64,
    /// The amount spent, in billionths.
    pub spent: u64,
}

impl CountedFrom {
    /// Returns what a run has used so far.
    pub(super) fn here(ctx: &PhaseContext) -> Self {
        let tokens = |count: Option<i32>| count.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        let input_tokens = tokens(ctx.progress.usage.prompt_tokens);
        let output_tokens = tokens(ctx.progress.usage.completion_tokens);
        Self {
            steps: ctx.progress.steps,
            input_tokens,
            output_tokens,
            // Of several providers only some report a sum, and then the sum of the sums is too small.
            total_tokens: ctx.progress.usage.total().max(input_tokens + output_tokens),
            spent: ctx.state::<StopStateKey>().map_or(0, |state| state.spent),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The run's [`StopState`]. It is part of a checkpoint, so that a resumed run continues the count.
pub struct StopStateKey;

/// A change of [`StopStateKey`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopStateUpdate {
    /// A call is settled; the number is how many calls to keep.
    Settled(SettledCall, usize),
    /// A hash of a settled call with its result.
    Returned(String),
    /// The step ends with this number of repeats.
    RepeatsNoticed(u32),
    FileChanged,
    /// Something ran that can show whether changed files work.
    Ran,
    /// The model wrote a plan.
    PlanWritten,
    /// The model is reminded before the run ends.
    Reminded,
    /// A call failed to run or was refused.
    CameToNothing,
    /// The step is over.
    StepEnded,
    /// The number of answers in a row of which every call came to nothing, at the end of a step.
    ErrorsInARow(u32),
    /// The ledger rose by so much, in billionths.
    Spent(u64),
    /// The user let the run continue: limits count from here, and this model answers, if any.
    Extended(CountedFrom, Option<String>),
}

impl StateKey for StopStateKey {
    const KEY: &'static str = "stop.state";
    type Value = StopState;
    type Update = StopStateUpdate;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        match update {
            StopStateUpdate::Settled(call, keep) => {
                if !call.is_error {
                    value.succeeded.push(call.tool.clone());
                }
                value.settled.push(call);
                let surplus = value.settled.len().saturating_sub(keep);
                value.settled.drain(..surplus);
            }
            StopStateUpdate::Returned(hash) => value.repeats.add(hash),
            StopStateUpdate::RepeatsNoticed(times) => value.repeats.noticed = times,
            StopStateUpdate::FileChanged => value.has_unchecked_changes = true,
            StopStateUpdate::Ran => value.has_unchecked_changes = false,
            StopStateUpdate::PlanWritten => value.has_planned = true,
            StopStateUpdate::Reminded => value.was_reminded = true,
            StopStateUpdate::CameToNothing => value.failed = value.failed.saturating_add(1),
            StopStateUpdate::StepEnded => value.succeeded.clear(),
            StopStateUpdate::ErrorsInARow(errors) => (value.consecutive_errors, value.failed) = (errors, 0),
            StopStateUpdate::Extended(from, model) => {
                value.counted_from = Some(from);
                value.model = model.or(value.model.take());
                value.settled.clear();
                value.consecutive_errors = 0;
                value.repeats = CallRepeats::default();
            }
            StopStateUpdate::Spent(more) => {
                value.spent = value.spent.saturating_add(more);
                value.ledger = value.ledger.saturating_add(more);
            }
        }
    }
}

/// A hash of a call with its result.
pub(super) fn returned(fingerprint: &str, result: &str) -> String {
    let hash = Sha256::new().chain_update(fingerprint).chain_update(result).finalize();
    hex(&hash[..8])
}

/// A hash of the tool and its arguments, the order of keys aside.
pub fn fingerprint(tool: &str, arguments: &Value) -> String {
    let mut text = String::new();
    write_canonical(&Value::String(tool.to_owned()), &mut text);
    write_canonical(arguments, &mut text);
    let hash = Sha256::digest(text.as_bytes());
    // 128 bits are enough: the hash is not a target of attacks, and checkpoints carry many of them.
    hex(&hash[..16])
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            text.push('{');
            for (key, value) in entries {
                write_canonical(&Value::String(key.clone()), text);
                text.push(':');
                write_canonical(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let _ = write!(text, "{value}");
        }
    }
}
