//! Calls that the user edited before approving them, as the model sees them.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::driver::Driver;
use aye_core::contract::diff;
use aye_core::contract::ids::CallId;
use aye_core::contract::suspension::ToolCallResume;
use aye_core::contract::tool::{AgreedFile, FilePreview, UserEdit};

/// A value with more characters than this is reported as a diff.
const LONG: usize = 600;
/// Characters of all differences together.
const DIFF_ROOM: usize = 6_000;
/// Characters of all of it.
const MOST: usize = 12_000;
/// When more lines than this differ, they are counted instead of compared.
const MAX_COMPARED: usize = 4_000;

/// The progress of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallProgress {
    /// It ran, or may have.
    Ran,
    /// It was allowed and did not run.
    NotRun,
    /// The answer itself is its result.
    Answered,
}

impl Driver {
    /// Describes for the model what the user did to the call besides approving it; `said` is the comment on
    /// the answer that closes it.
    pub(super) fn touched(
        &self,
        id: &CallId,
        progress: CallProgress,
        remark: Option<&str>,
    ) -> Option<Box<UserEdit>> {
        let state = self.machine.call(id)?;
        let original = &self.tool_call(id).ok()?.arguments;
        let edited = state.edited.as_ref().filter(|edited| *edited != original);
        let mut words = String::new();
        if let Some(edited) = edited {
            let lead = match progress {
                CallProgress::Ran => "The user edited the call before approving it. It ran as: ",
                CallProgress::NotRun | CallProgress::Answered => "The user edited the call to: ",
            };
            words.push_str(lead);
            words.push_str(&change_words(original, edited));
        }
        for comment in &state.comments {
            let lead = match (words.is_empty(), progress) {
                (true, CallProgress::Ran | CallProgress::NotRun) => {
                    "The user approved this with the comment: "
                }
                (true, CallProgress::Answered) => "The user's comment: ",
                (false, _) => "\nComment: ",
            };
            words.push_str(lead);
            words.push_str(comment);
        }
        if let Some(remark) = remark {
            let lead = match (words.is_empty(), progress) {
                (true, CallProgress::Answered) => "The user answered with the comment: ",
                (true, CallProgress::Ran | CallProgress::NotRun) => "The user's comment: ",
                (false, _) => "\nComment: ",
            };
            words.push_str(lead);
            words.push_str(remark);
        }
        if words.is_empty() {
            return None;
        }
        let comments: Vec<&str> = state.comments.iter().map(String::as_str).chain(remark).collect();
        Some(Box::new(UserEdit {
            words,
            arguments: edited.cloned(),
            comment: (!comments.is_empty()).then(|| comments.join("\n")),
        }))
    }
}

/// Returns the files as they were when the user reviewed the edited version; `None` if there was no review.
pub(super) fn reviewed_files(decision: &ToolCallResume) -> Option<Vec<AgreedFile>> {
    decision.arguments.as_ref()?;
    let shown: Vec<ReviewedFile> = serde_json::from_value(decision.result.get("shown")?.clone()).ok()?;
    Some(shown.into_iter().map(|file| AgreedFile { path: file.path, before: file.before }).collect())
}

/// The payload beside edited arguments: the files as the review of them found them.
pub fn shown_payload(files: &[FilePreview]) -> Value {
    if files.is_empty() {
        return Value::Null;
    }
    let shown: Vec<ReviewedFile> = files
        .iter()
        .map(|file| ReviewedFile { path: file.path.clone(), before: file.before.clone() })
        .collect();
    json!({ "shown": shown })
}

/// A file as it was when reviewed.
#[derive(Serialize, Deserialize)]
struct ReviewedFile {
    path: PathBuf,
    before: Option<String>,
}

/// The edited arguments as JSON; a long text as its difference from the proposed one, in the form of `diff -u`.
pub fn change_words(original: &Value, edited: &Value) -> String {
    let none = Map::new();
    let before = original.as_object().unwrap_or(&none);
    let Some(after) = edited.as_object() else { return edited.to_string() };
    let mut short = Map::new();
    let mut diffs = String::new();
    let mut room = DIFF_ROOM;
    for (key, value) in after {
        let text = text_of(value);
        let size = text.chars().count();
        if size <= LONG {
            short.insert(key.clone(), value.clone());
            continue;
        }
        if before.get(key) == Some(value) {
            short.insert(key.clone(), format!("({size} characters, as proposed)").into());
            continue;
        }
        short.insert(key.clone(), format!("({size} characters, diff below)").into());
        let diff = unified(&before.get(key).map(text_of).unwrap_or_default(), &text, &mut room);
        let _ = write!(diffs, "\nDiff of `{key}` (- proposed, + edited):\n{diff}");
    }
    let words = format!("{}{}", Value::Object(short), diffs.trim_end_matches('\n'));
    match words.char_indices().nth(MOST) {
        Some((at, _)) => format!("{} … ({} more bytes)", &words[..at], words.len() - at),
        None => words,
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            serde_json::to_string_pretty(value).unwrap_or_default()
        }
    }
}

/// Returns the diff of two texts in the form of `diff -u`, with at most `room` characters.
fn unified(old: &str, new: &str, room: &mut usize) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let front = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let back = a[front..].iter().rev().zip(b[front..].iter().rev()).take_while(|(x, y)| x == y).count();
    let (gone, come) = (a.len() - front - back, b.len() - front - back);
    if gone + come > MAX_COMPARED {
        return format!("from line {}: {gone} lines replaced by {come} lines\n", front + 1);
    }
    let whole = diff::unified(old, new, None, 2);
    let count = whole.chars().count();
    if count <= *room {
        *room -= count;
        return whole;
    }
    let mut shown = String::new();
    let mut left = whole.lines().count();
    for line in whole.lines() {
        let size = line.chars().count() + 1;
        if size > *room {
            break;
        }
        *room -= size;
        left -= 1;
        shown.push_str(line);
        shown.push('\n');
    }
    format!("{shown}… {left} more lines\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_arguments_are_quoted_and_long_ones_shown_as_a_diff() {
        let notice = change_words(&json!({"command": "rm -r build"}), &json!({"command": "ls build"}));
        assert_eq!(notice, r#"{"command":"ls build"}"#);
        let old: String = (0..200).fold(String::new(), |text, n| text + &format!("line {n}\n"));
        let new = old.replace("line 77\n", "line seventy-seven\n");
        let notice = change_words(
            &json!({"file_path": "a.rs", "content": old}),
            &json!({"file_path": "a.rs", "content": new}),
        );
        assert!(notice.contains(r#""file_path":"a.rs""#), "{notice}");
        assert!(notice.contains("-line 77\n+line seventy-seven\n") && notice.contains("@@"), "{notice}");
        assert!(notice.len() < 500, "{notice}");
        let notice =
            change_words(&json!({"content": old, "mode": "a"}), &json!({"content": old, "mode": "b"}));
        assert!(notice.contains("as proposed") && !notice.contains("line 7"), "{notice}");
        let notice = change_words(&json!({"content": ""}), &json!({"content": "x\n".repeat(9000)}));
        assert!(notice.contains("by 9000 lines"), "{notice}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// However large the edit is, what the model reads of it is bounded.
        #[test]
        fn the_text_is_bounded(old in "[a-z \n]{0,400}", new in "[a-z \n]{0,9000}") {
            let notice = change_words(&json!({"t": old}), &json!({"t": new}));
            prop_assert!(notice.chars().count() <= DIFF_ROOM + 2 * LONG + 300, "{}", notice.len());
            let value = Value::from(new.chars().take(500).collect::<String>());
            let many = Value::Object((0..100).map(|n| (n.to_string(), value.clone())).collect());
            let count = change_words(&json!({}), &many).chars().count();
            prop_assert!(count <= MOST + 50);
        }
    }
}
