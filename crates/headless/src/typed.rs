//! Answers typed in the terminal of a headless run: only this process can see the questions of an in-memory
//! conversation. Nothing is read from the terminal before there is a question, so that text typed for the
//! shell stays there and the kernel does not stop a background job.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};

use rustix::termios::{QueueSelector, tcflush};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::question::QuestionView;
use aye_core::contract::display::{call_text, visible, visible_line};
use aye_core::contract::record::SuspensionRecord;
use aye_core::contract::schema::form;
use aye_core::contract::suspension::{Answer, ResumeDecisionAction, ToolCallResume};

/// The terminal that started this process, whatever stdin is.
#[derive(Debug)]
pub struct TypedAnswers {
    terminal: File,
    /// The lines of the terminal, from the first question on.
    lines: Mutex<Option<UnboundedReceiver<String>>>,
}

impl TypedAnswers {
    /// Opens the controlling terminal.
    pub fn open() -> std::io::Result<Self> {
        let terminal = File::options().read(true).write(true).open("/dev/tty")?;
        Ok(Self { terminal, lines: Mutex::default() })
    }

    fn lines(&self) -> UnboundedReceiver<String> {
        let (sender, lines) = unbounded_channel();
        let reader = self.terminal.try_clone().map(BufReader::new);
        // A thread of its own: nothing waits for its read when the program ends.
        std::thread::spawn(move || {
            for line in reader.into_iter().flat_map(|reader| reader.lines().map_while(Result::ok)) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        lines
    }

    /// Asks until a line is an answer.
    pub(super) async fn ask(&self, question: &SuspensionRecord, now: u64) -> ToolCallResume {
        // A client's tool takes any data as its result, but a yes is none.
        let any = json!({});
        let schema = question.ticket.suspension.response_schema.as_ref();
        let schema = schema.or_else(|| question.ticket.approval().is_none().then_some(&any));
        let prompt = match schema {
            None => "approve? [y/n] ".to_owned(),
            Some(schema) => format!("answer, {} (Ctrl-D denies): ", visible_line(&form(schema))),
        };
        let mut lines = self.lines.lock().await;
        // Text typed before the question was shown is not an answer to it.
        let _ = tcflush(&self.terminal, QueueSelector::IFlush);
        let lines = lines.get_or_insert_with(|| self.lines());
        while lines.try_recv().is_ok() {}
        let mut text = format!("{}\n{}{prompt}", QuestionView::of(question).about(), whole(question));
        let (action, result) = loop {
            let _ = (&self.terminal).write_all(text.as_bytes());
            // No more input follows Ctrl-D.
            let Some(line) = lines.recv().await else { break (ResumeDecisionAction::Cancel, Value::Null) };
            match answer(&line, schema) {
                Some(answer) => break answer,
                None => text.clone_from(&prompt),
            }
        };
        Answer { action, ..Answer::yes(result) }.resume(now)
    }
}

/// The call of an approval request to its end, because what is approved must have been seen: each line is indented, so
/// that none can pass for a prompt. Empty for other questions.
fn whole(question: &SuspensionRecord) -> String {
    if question.ticket.suspension.response_schema.is_some() {
        return String::new();
    }
    let call = call_text(&question.ticket.pending.arguments);
    visible(&call).lines().map(|line| format!("    {line}\n")).collect::<Vec<_>>().concat()
}

/// Parses a line into an answer; `None` if the line is not one.
fn answer(line: &str, schema: Option<&Value>) -> Option<(ResumeDecisionAction, Value)> {
    let line = line.trim();
    let Some(schema) = schema else {
        return match line.to_lowercase().as_str() {
            "y" | "yes" => Some((ResumeDecisionAction::Resume, Value::Null)),
            "n" | "no" => Some((ResumeDecisionAction::Cancel, Value::Null)),
            _ => None,
        };
    };
    if line.is_empty() {
        return None;
    }
    let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let result = match (serde_json::from_str(line), required) {
        (Ok(value @ Value::Object(_)), _) => value,
        // The question asks for a single string, which needs no braces.
        (_, [Value::String(name)]) => json!({name: line}),
        (Ok(value), _) => value,
        (Err(_), _) => json!(line),
    };
    Some((ResumeDecisionAction::Resume, result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_explicit_yes_approves() {
        let yes = Some((ResumeDecisionAction::Resume, Value::Null));
        assert_eq!(answer(" Y ", None), yes);
        assert_eq!(answer("yes", None), yes);
        assert_eq!(answer("n", None), Some((ResumeDecisionAction::Cancel, Value::Null)));
        for unclear in ["", "ye", "yes please", "{}", "1"] {
            assert_eq!(answer(unclear, None), None, "{unclear}");
        }
    }

    #[test]
    fn text_fills_the_only_field_and_json_is_taken_verbatim() {
        let one = json!({"type": "object", "required": ["answer"]});
        let two = json!({"type": "object", "required": ["a", "b"]});
        let given = |line, schema| answer(line, Some(schema)).map(|(_, value)| value);
        assert_eq!(given("the second", &one), Some(json!({"answer": "the second"})));
        assert_eq!(given("2", &one), Some(json!({"answer": "2"})));
        assert_eq!(given("{\"answer\": \"x\"}", &one), Some(json!({"answer": "x"})));
        assert_eq!(given("[1]", &two), Some(json!([1])));
        assert_eq!(given("words", &two), Some(json!("words")));
        assert_eq!(given("  ", &one), None);
    }
}
