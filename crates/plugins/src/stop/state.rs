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
    /// The call.
    pub call_id: String,
    /// The tool.
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
            StopStateUpdate::CameToNothing => value.failed = value.failed.saturating_add(1),
            StopStateUpdate::StepEnded => value.succeeded.clear(),
            StopStateUpdate::ErrorsInARow(errors) => (value.consecutive_errors, value.failed) = (errors, 0),
            StopStateUpdate::Extended(from, model) => {
                value.counted_from = Some(from);
                value.model = model.or(value.model.take());
                value.settled.clear();
                value.consecutive_errors = 0;
            }
            StopStateUpdate::Spent(more) => {
                value.spent = value.spent.saturating_add(more);
                value.ledger = value.ledger.saturating_add(more);
            }
        }
    }
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
