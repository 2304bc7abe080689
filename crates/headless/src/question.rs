//! A pending question as shown to the user of this process: its subject, and how to answer it from anywhere.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use aye_core::contract::display::{call_summary, visible_line};
use aye_core::contract::question::{Question, subject};
use aye_core::contract::record::SuspensionRecord;
use aye_core::contract::schema::form;

/// The data shown for a question.
pub(super) struct QuestionView<'a> {
    record: &'a SuspensionRecord,
    tool: Cow<'a, str>,
    summary: String,
    why: Option<String>,
}

impl<'a> QuestionView<'a> {
    pub(super) fn of(record: &'a SuspensionRecord) -> Self {
        let (suspension, pending) = (&record.ticket.suspension, &record.ticket.pending);
        let why = suspension.why();
        let summary = call_summary(&pending.name, &pending.arguments);
        let why = visible_line(&why).into_owned();
        Self {
            record,
            tool: visible_line(&pending.name),
            // A tool's own question is its summary already.
            why: (why != summary.as_str() && !why.is_empty()).then_some(why),
            summary,
        }
    }

    /// The commands that answer it: yes with its words, and no. The id came from a model's server, so it is quoted as
    /// a shell needs it.
    fn answers(&self) -> [String; 2] {
        let id = visible_line(self.record.id.as_str());
        let id = shlex::try_quote(&id).unwrap_or(Cow::Borrowed("ID"));
        [self.record.ticket.answer_command(), format!("aye deny {id} --reason TEXT")]
    }

    /// Returns the subject of the question and the reason for it.
    pub(super) fn about(&self) -> String {
        let action = &self.record.ticket.suspension.action;
        let subject = subject(action, &self.record.ticket.pending.name, &self.summary);
        let mut text =
            format!("waiting for a decision: {}\n  {subject}", visible_line(self.record.id.as_str()));
        if let Some(why) = &self.why {
            text.push_str("\n  why: ");
            text.push_str(why);
        }
        if let Some(reach) = self.record.ticket.suspension.reach() {
            text.push_str("\n  ");
            text.push_str(reach);
        }
        for words in Question::of(&self.record.ticket.suspension).stale.moved {
            text.push_str("\n  asked again: ");
            text.push_str(&visible_line(&words));
        }
        text
    }

    /// The same, and the commands that answer it from another terminal.
    pub(super) fn lines(&self, now_ms: u64) -> String {
        let mut text = self.about();
        if let Some(left) = self.record.ticket.suspension.resumes_in(now_ms) {
            let _ = write!(text, "\n  resumes in {left} when the limit resets");
        }
        let [yes, no] = self.answers();
        let _ = write!(text, "\n  answer: {yes}   or: {no}");
        if let Some(schema) = &self.record.ticket.suspension.response_schema {
            let form = form(schema);
            if form.contains(" or ") {
                let _ = write!(text, "\n  expected answer: {}", visible_line(&form));
            }
        }
        text
    }

    /// For a program: the whole record, what a list shows of it, and the commands.
    pub(super) fn object(&self) -> Value {
        let mut object = match json!(self.record) {
            Value::Object(map) => map,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Map::new()
            }
        };
        let suspension = &self.record.ticket.suspension;
        object.insert("action".into(), json!(suspension.action));
        object.insert("tool".into(), json!(self.tool));
        object.insert("summary".into(), json!(self.summary));
        object.insert("why".into(), json!(self.why));
        object.insert("risk".into(), json!(suspension.risk()));
        object.insert("expires_at".into(), json!(suspension.expires_at));
        object.insert("response_schema".into(), json!(suspension.response_schema));
        object.insert("answers".into(), json!(self.answers()));
        Value::Object(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aye_core::contract::record::SuspensionStatus;
    use aye_core::contract::suspension::{PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode};

    fn record(id: &str, arguments: Value, schema: Option<Value>) -> SuspensionRecord {
        SuspensionRecord {
            id: id.into(),
            thread_id: "t".into(),
            run_id: "r".into(),
            call_id: "c".into(),
            ticket: SuspendTicket {
                suspension: Suspension {
                    id: id.into(),
                    action: "tool:PermissionConfirm".into(),
                    message: "Bash wants to run".into(),
                    parameters: json!({"why": "no rule allows\u{1b}[2J it"}),
                    response_schema: schema,
                    expires_at: None,
                },
                pending: PendingToolCall { id: "c".into(), name: "Bash".into(), arguments },
                resume_mode: ToolCallResumeMode::ReplayToolCall,
            },
            status: SuspensionStatus::Open,
            created_at: 1,
            decision: None,
            decided_by: None,
        }
    }

    #[test]
    fn a_question_contains_all_that_an_answer_needs() {
        let record = record("perm_c1", json!({"command": "ls\nrm x"}), None);
        let question = QuestionView::of(&record);
        assert_eq!(
            question.lines(0),
            "waiting for a decision: perm_c1\n  $ ls⏎rm x\n  why: no rule allows^[[2J it\n  \
             answer: aye approve perm_c1   or: aye deny perm_c1 --reason TEXT"
        );
        let object = question.object();
        assert_eq!(object["id"], "perm_c1");
        assert_eq!(object["summary"], "ls⏎rm x");
        assert_eq!(object["answers"][0], "aye approve perm_c1");
        assert_eq!(object["ticket"]["pending"]["arguments"]["command"], "ls\nrm x");
    }

    /// The id of a call is the server's choice.
    #[test]
    fn an_id_cannot_become_a_command() {
        let record = record("perm_$(reboot) \u{1b}]0;", json!({}), None);
        let [yes, _] = QuestionView::of(&record).answers();
        assert_eq!(shlex::split(&yes).expect("a command"), ["aye", "approve", "perm_$(reboot) ^[]0;"]);
    }

    #[test]
    fn a_schema_becomes_an_example() {
        let schema = json!({
            "type": "object",
            "properties": {"choice": {"enum": ["rerun", "done"]}, "note": {"type": "string"}},
            "required": ["choice"],
        });
        let record = record("q1", json!({}), Some(schema));
        let [yes, _] = QuestionView::of(&record).answers();
        assert_eq!(yes, r#"aye answer q1 '{"choice":"rerun"}'"#);
        let lines = QuestionView::of(&record).lines(0);
        assert!(lines.starts_with("waiting for a decision: q1\n  Bash\n"), "the name alone: {lines}");
        assert!(lines.ends_with("\n  expected answer: {\"choice\": \"rerun\" or \"done\"}"), "{lines}");
    }
}
