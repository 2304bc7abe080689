//! Whether the model showed that a condition in words holds: by a line of a tool's output, copied into its answer. What it
//! only claims does not count, and neither does an output that is older than its last change.

use std::collections::HashMap;
use std::sync::Arc;

use crate::contract::display::{shortened, visible_line};
use crate::contract::message::{Message, Role};
use crate::plugins::permission::is_file_edit;

/// The line by which the model ends its work.
const HOLDS: &str = "GOAL HOLDS:";
/// The line by which it says what is missing.
const MISSING: &str = "GOAL MISSING:";
/// The least letters and digits of a quotation: fewer are in any output.
const MIN_QUOTATION: usize = 5;
/// Characters of a condition or a quotation in a message.
const MAX_SHOWN: usize = 200;

/// How the model shows it.
const HOW: &str = "To end your work, check the condition with a tool, and end your answer with this line, which copies the words \
                   of that tool's output that show it:\nGOAL HOLDS: copied words\nIf it cannot be reached, end with:\nGOAL \
                   MISSING: what is missing";

/// What an answer says about the condition.
#[derive(Debug, PartialEq)]
pub(super) enum Claim {
    /// These words of a tool's output show it.
    Shown(String),
    /// It is not shown, and why: for users.
    NotShown(String),
}

/// The task of a message that names a condition.
pub(super) fn task(condition: &str) -> String {
    format!("Work until this condition holds:\n{condition}\n\n{HOW}")
}

/// What the model reads as long as the condition is not shown.
pub(super) fn reminder(condition: &str, why: &str) -> String {
    let condition = shortened(condition, MAX_SHOWN);
    format!("The run ends when this condition is shown to hold: {condition}\nSo far: {why}. Go on. {HOW}")
}

/// A condition in a message for users.
pub(super) fn shown(condition: &str) -> String {
    shortened(&visible_line(condition), MAX_SHOWN).into_owned()
}

/// Compares an answer with the results of the run's calls.
pub(super) fn judge(answer: &str, messages: &[Arc<Message>]) -> Claim {
    let after = |mark: &str| {
        let line = answer.lines().rev().map(|line| line.trim().trim_start_matches(['*', '`', '#', ' ']));
        line.filter_map(|line| line.strip_prefix(mark)).map(plain).next()
    };
    let Some(quotation) = after(HOLDS) else {
        let missing = after(MISSING).filter(|missing| !missing.is_empty());
        return Claim::NotShown(
            missing.map_or_else(|| "it is not shown yet".to_owned(), |text| shown(&text)),
        );
    };
    let quotation = quotation.trim_matches(['"', '`', '\'', '*', '“', '”', ' ']);
    if quotation.chars().filter(|c| c.is_alphanumeric()).count() < MIN_QUOTATION {
        return Claim::NotShown("the answer copies too little of an output".to_owned());
    }
    let names = messages.iter().flat_map(|message| &message.tool_calls);
    let names: HashMap<&str, &str> = names.map(|call| (call.id.as_str(), call.name.as_str())).collect();
    let results: Vec<&Message> =
        messages.iter().map(Arc::as_ref).filter(|message| message.role == Role::Tool).collect();
    let Some(at) = results.iter().rposition(|result| plain(&result.text()).contains(quotation)) else {
        return Claim::NotShown(format!("no output has the words `{}`", shown(quotation)));
    };
    let is_edit = |result: &&Message| {
        let name = result.tool_call_id.as_deref().and_then(|id| names.get(id));
        name.is_some_and(|name| is_file_edit(name))
    };
    if results[at + 1..].iter().any(is_edit) {
        return Claim::NotShown("files were changed after the output that is copied".to_owned());
    }
    Claim::Shown(shown(quotation))
}

/// A text with one space in place of each run of white space.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::message::ToolCall;
    use serde_json::json;

    /// A conversation of calls with their results.
    fn calls(results: &[(&str, &str)]) -> Vec<Arc<Message>> {
        let call = |(at, (name, output)): (usize, &(&str, &str))| {
            let id = format!("c{at}");
            let call = ToolCall::new(id.clone(), *name, json!({}));
            [Message::assistant_with(Vec::new(), vec![call]), Message::tool(id, *output)].map(Arc::new)
        };
        results.iter().enumerate().flat_map(call).collect()
    }

    #[test]
    fn a_condition_is_shown_by_words_of_an_output() {
        let ran = calls(&[("Bash", "running 3 tests\ntest result:  ok. 3 passed")]);
        let answer = "All is well.\n\n**GOAL HOLDS: `test result: ok.  3 passed`**";
        assert_eq!(judge(answer, &ran), Claim::Shown("test result: ok. 3 passed".into()));
    }

    #[test]
    fn a_claim_shows_nothing() {
        let ran = calls(&[("Bash", "1 failed, 2 passed")]);
        let why = |answer: &str| match judge(answer, &ran) {
            Claim::NotShown(why) => why,
            Claim::Shown(quotation) => panic!("{quotation}"),
        };
        assert_eq!(why("It is done."), "it is not shown yet");
        assert_eq!(why("GOAL HOLDS: 3 passed, 0 failed"), "no output has the words `3 passed, 0 failed`");
        assert_eq!(why("GOAL HOLDS: 1"), "the answer copies too little of an output");
        assert_eq!(why("GOAL HOLDS:"), "the answer copies too little of an output");
        assert_eq!(why("GOAL MISSING: a database\u{1b}[2J"), "a database^[[2J");
        assert!(matches!(judge("GOAL HOLDS: 2 passed", &[]), Claim::NotShown(_)), "nothing ran");
    }

    #[test]
    fn an_output_from_before_a_change_shows_nothing() {
        let ran = calls(&[("Bash", "3 passed, 0 failed"), ("Edit", "changed a.rs")]);
        let answer = "GOAL HOLDS: 3 passed, 0 failed";
        assert_eq!(
            judge(answer, &ran),
            Claim::NotShown("files were changed after the output that is copied".into())
        );
        let again = calls(&[("Edit", "changed a.rs"), ("Bash", "3 passed, 0 failed")]);
        assert_eq!(judge(answer, &again), Claim::Shown("3 passed, 0 failed".into()));
    }
}
