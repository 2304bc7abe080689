//! The check before the end: what the model reads, once in a run, when an answer would end the run too early.

use std::fmt::Write as _;
use std::sync::Arc;

use super::state::{StopState, StopStateKey, StopStateUpdate};
use aye_core::contract::todo::Todos;
use aye_core::contract::tool::{ToolClass, ToolResult};
use aye_core::phase::{PhaseContext, ToolCallInfo};
use aye_core::state::StateCommand;

/// The category of tools that run programs.
const RUNS: &str = "exec";
/// The category of tools that fetch pages.
const FETCHES: &str = "web";
/// The category of the tool that keeps the plan.
const PLANS: &str = "plan";
/// Files of these kinds are read, not run.
const PROSE: [&str; 6] = ["md", "markdown", "txt", "rst", "adoc", "org"];
/// Maximum number of open todos that are named.
const NAMED: usize = 5;

/// When an answer without calls is not taken for the end of a run yet.
#[derive(Clone)]
pub struct EndCheck {
    /// Nobody is there to tell the model to continue: an answer that only announces the next step is no end.
    pub is_unattended: bool,
    /// Whether a model, by its registered id, can make use of a reminder.
    pub applies_to: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

/// What the model and the user read.
pub(super) struct EndReminder {
    pub(super) text: String,
    pub(super) notice: &'static str,
}

impl EndCheck {
    /// Returns the reminder for an answer that would end the run.
    pub(super) fn reminder(&self, ctx: &PhaseContext, model: &str, answer: &str) -> Option<EndReminder> {
        let state = ctx.state::<StopStateKey>().cloned().unwrap_or_default();
        let is_elsewhere = ctx.agent_spec.endpoint.is_some();
        if state.was_reminded || is_elsewhere || asks(answer) || !(self.applies_to)(model) {
            return None;
        }
        if let Some(text) = unfinished(ctx, &state) {
            return Some(EndReminder { text, notice: "asked the model to check its work before it ends" });
        }
        (self.is_unattended && announces(answer)).then(|| EndReminder {
            text: "Your answer announces a step, but calls no tool, and nobody is here to tell you to continue. Take \
                   the step now. If the work is done, or something is missing, say which."
                .into(),
            notice: "the answer announced a step; asked the model to take it",
        })
    }
}

/// What an answer that would end the run leaves open.
fn unfinished(ctx: &PhaseContext, state: &StopState) -> Option<String> {
    let can_run = ctx.tools.iter().any(|tool| tool.category.as_deref() == Some(RUNS));
    let is_unchecked = state.has_unchecked_changes && can_run;
    let todos = ctx.state::<Todos>().filter(|_| state.has_planned);
    let open: Vec<&str> =
        todos.into_iter().flatten().filter(|todo| todo.is_open()).map(|todo| todo.content.as_str()).collect();
    if !is_unchecked && open.is_empty() {
        return None;
    }
    let mut text = String::from("Before this counts as the end:");
    if is_unchecked {
        text.push_str(
            " you changed files, and nothing ran since that could show whether they work. Run what shows it, such as \
             the tests, or say why that is not possible.",
        );
    }
    if !open.is_empty() {
        let more = open.len().saturating_sub(NAMED);
        let named = open[..open.len() - more].join("; ");
        let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
        let _ = write!(
            text,
            " Your list has open items: {named}{rest}. Finish them, or update the list and say what stays open."
        );
    }
    text.push_str(" Then give your whole answer again: only the last one counts.");
    Some(text)
}

/// Notes what a settled call means for the end of its run.
pub(super) fn record(tool: &ToolCallInfo, result: &ToolResult, command: &mut StateCommand) {
    let Some(descriptor) = &tool.descriptor else { return };
    let update = match descriptor.class {
        ToolClass::Opaque if descriptor.category.as_deref() == Some(FETCHES) => return,
        // It has run, whatever came of it.
        ToolClass::Opaque => StopStateUpdate::Ran,
        ToolClass::Verifiable if !result.is_error() && !is_prose(tool) => StopStateUpdate::FileChanged,
        ToolClass::Pure if !result.is_error() && descriptor.category.as_deref() == Some(PLANS) => {
            StopStateUpdate::PlanWritten
        }
        ToolClass::Pure | ToolClass::Verifiable | ToolClass::Keyed => return,
    };
    command.update::<StopStateKey>(update);
}

/// Whether the file that a call changed is a text for readers.
fn is_prose(tool: &ToolCallInfo) -> bool {
    let name = tool.descriptor.as_ref().and_then(|descriptor| descriptor.primary_argument.as_deref());
    let path = name.and_then(|name| tool.call.arguments.get(name)?.as_str()).unwrap_or_default();
    let extension = path.rsplit('/').next().and_then(|file| Some(file.rsplit_once('.')?.1));
    extension.is_some_and(|extension| PROSE.iter().any(|prose| prose.eq_ignore_ascii_case(extension)))
}

/// Whether an answer ends with a question: then the user is next.
fn asks(answer: &str) -> bool {
    let end = answer.trim_end_matches(|c: char| c.is_whitespace() || "*_`\"')]”’»".contains(c));
    end.ends_with(['?', '？', '؟'])
}

/// Whether an answer only announces what the model is about to do. Only sure signs count: a colon that nothing follows,
/// or a last sentence such as "Now I'll run the tests."
fn announces(answer: &str) -> bool {
    const FILLERS: [&str; 12] =
        ["now", "next", "then", "first", "so", "ok", "okay", "great", "good", "perfect", "alright", "and"];
    const STARTS: [&str; 7] =
        ["let me ", "let's ", "i'll ", "i will ", "i'm going to ", "i am going to ", "i'm now going to "];
    // An end, an offer, or something that the user has to do first.
    const ENDS: [&str; 12] = [
        "know", "wait", "be", "not", "never", "stop", "leave", "need", "keep", "assume", "happily", "gladly",
    ];
    let answer = answer.trim_end();
    if answer.ends_with([':', '：']) {
        return true;
    }
    let line = answer.lines().next_back().unwrap_or_default().to_lowercase().replace('’', "'");
    let line = line.trim_matches(|c: char| c.is_whitespace() || "*_`#>-".contains(c));
    let body = line.trim_end_matches(['.', '!', '…']);
    let start = [". ", "! ", "? ", "… "].iter().filter_map(|end| Some(body.rfind(end)? + end.len())).max();
    let mut sentence = body[start.unwrap_or(0)..].trim_start();
    while let Some(rest) =
        FILLERS.iter().find_map(|filler| sentence.strip_prefix(filler)?.strip_prefix([' ', ',', ':', ';']))
    {
        sentence = rest.trim_start();
    }
    let Some(step) = STARTS.iter().find_map(|start| sentence.strip_prefix(start)) else { return false };
    let first = step.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty()).unwrap_or_default();
    let is_conditional =
        [" you ", " your ", " unless "].iter().any(|word| format!(" {step} ").contains(word));
    !first.is_empty() && !ENDS.contains(&first) && !is_conditional
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_that_announces_a_step_is_no_end() {
        for text in [
            "I'll look at the code first.",
            "The file is changed. Now let me run the tests.",
            "Found it.\n\n**Next, I’ll fix the parser**",
            "Let me check the logs…",
            "Here is what I found:",
            "Great! I'm going to add the flag now.",
        ] {
            assert!(announces(text), "{text}");
        }
        for text in [
            "",
            "Done. All 12 tests pass.",
            "Let me know if anything is missing.",
            "I'll be glad to help.",
            "I will not touch the other files.",
            "I'll wait for the answer.",
            "I'll run it once you have set the key.",
            "I'll need your key.",
            "I let me down.",
            "The parser lets me skip it: `let me = 1`",
            "Ich habe die Datei geändert.",
        ] {
            assert!(!announces(text), "{text}");
        }
        assert!(asks("Which one do you want?") && asks("Shall I? **") && !asks("Why? Because."));
    }
}
