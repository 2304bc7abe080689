//! Questions as permission requests: what a client may choose, and what each choice decides.

use std::path::Path;

use agent_client_protocol::v1::schema as acp;
use serde_json::{Value, json};

use acp::{PermissionOption, PermissionOptionKind};
use aye_core::contract::display::{shortened, visible, visible_line};
use aye_core::contract::grant::{GrantEnd, GrantRequest};
use aye_core::contract::question::{GrantProposal, Question, QuestionDetails};
use aye_core::contract::record::{GrantScope, SuspensionRecord};
use aye_core::contract::schema::form;
use aye_core::contract::suspension::{ACTION_UNKNOWN_OUTCOME, Answer};

/// The id of the answer that denies.
pub(crate) const REJECT: &str = "reject";
/// Characters of the name of an option.
const MAX_NAME: usize = 120;
/// The maximum number of entries of an enumeration that is shown as options.
const MAX_OPTIONS: usize = 12;

/// An answer that a client may choose.
#[derive(Debug)]
pub(crate) struct OfferedAnswer {
    id: String,
    name: String,
    kind: PermissionOptionKind,
    choice: Answer,
}

impl OfferedAnswer {
    fn new(id: impl Into<String>, name: &str, kind: PermissionOptionKind, choice: Answer) -> Self {
        let name = shortened(&visible_line(name), MAX_NAME).into_owned();
        Self { id: id.into(), name, kind, choice }
    }

    /// As the client shows it.
    pub(crate) fn option(&self) -> PermissionOption {
        PermissionOption::new(self.id.clone(), self.name.clone(), self.kind)
    }
}

/// The answers that fit a question, the one that denies last.
pub(crate) fn offered(asked: &SuspensionRecord, project: &Path) -> Vec<OfferedAnswer> {
    use PermissionOptionKind::{AllowAlways, AllowOnce, RejectOnce};
    let suspension = &asked.ticket.suspension;
    if suspension.action == ACTION_UNKNOWN_OUTCOME {
        let choice = |choice: &str| Answer::yes(json!({ "choice": choice }));
        return vec![
            OfferedAnswer::new("rerun", "Run again", AllowOnce, choice("rerun")),
            OfferedAnswer::new("done", "Mark as done", AllowOnce, choice("done")),
            OfferedAnswer::new(REJECT, "Skip", RejectOnce, choice("skip")),
        ];
    }
    let none = json!({});
    let schema = suspension.response_schema.as_ref();
    let Some(schema) = schema.or_else(|| asked.ticket.approval().is_none().then_some(&none)) else {
        let mut offers = vec![OfferedAnswer::new("allow", "Allow", AllowOnce, Answer::yes(Value::Null))];
        if let Some(GrantProposal { pattern, .. }) = Question::of(suspension).proposals().first() {
            let scopes = [
                ("allow_thread", "in this conversation", GrantScope::Thread(asked.thread_id.clone())),
                ("allow_project", "in this project", GrantScope::Project(project.to_path_buf())),
            ];
            offers.extend(scopes.into_iter().map(|(id, place, scope)| {
                let pattern = pattern.clone();
                let name = format!("Always allow {pattern} {place}");
                let grant =
                    GrantRequest { suspension: asked.id.clone(), pattern, scope, end: GrantEnd::Never };
                let choice = Answer { grant: Some(grant), ..Answer::yes(Value::Null) };
                OfferedAnswer::new(id, &name, AllowAlways, choice)
            }));
        }
        offers.push(OfferedAnswer::new(REJECT, "Deny", RejectOnce, Answer::no(None)));
        return offers;
    };
    let mut offers: Vec<OfferedAnswer> = choices(asked, schema)
        .into_iter()
        .enumerate()
        .map(|(at, (label, result))| {
            OfferedAnswer::new(format!("answer_{at}"), &label, AllowOnce, Answer::yes(result))
        })
        .collect();
    offers.push(OfferedAnswer::new(REJECT, "Decline to answer", RejectOnce, Answer::no(None)));
    offers
}

/// Returns the answer for the option that the client chose; an id that was not offered denies.
pub(crate) fn chosen(offers: &[OfferedAnswer], id: Option<&str>) -> Answer {
    let offer = id.and_then(|id| offers.iter().find(|offer| offer.id == id));
    let reject = || offers.iter().find(|offer| offer.id == REJECT);
    offer.or_else(reject).map_or_else(|| Answer::no(None), |offer| offer.choice.clone())
}

/// Explains how to answer with text that no option contains; `None` if the options cover every answer.
pub(crate) fn other_way(asked: &SuspensionRecord) -> Option<String> {
    let command = || asked.ticket.answer_command();
    let Some(schema) = &asked.ticket.suspension.response_schema else {
        let is_data = asked.ticket.approval().is_none();
        return is_data.then(|| format!("To answer with data, run in a terminal: {}", command()));
    };
    let is_unknown = asked.ticket.suspension.action == ACTION_UNKNOWN_OUTCOME;
    if is_unknown || only_choices(schema).is_some() {
        return None;
    }
    Some(format!("To answer with {}, run in a terminal: {}", visible_line(&form(schema)), command()))
}

/// The form of a question that no option answers, if it is flat enough for the protocol.
pub(crate) fn form_of(asked: &SuspensionRecord) -> Option<(String, acp::ElicitationSchema)> {
    other_way(asked)?;
    let suspension = &asked.ticket.suspension;
    let schema = suspension.response_schema.as_ref()?;
    let is_flat = |property: &Value| {
        let kind = property.get("type").and_then(Value::as_str);
        let is_list = || property.pointer("/items/enum").is_some();
        matches!(kind, Some("string" | "number" | "integer" | "boolean"))
            || (kind == Some("array") && is_list())
    };
    let properties = schema.get("properties")?.as_object()?;
    if properties.is_empty() || !properties.values().all(is_flat) {
        return None;
    }
    let schema = serde_json::from_value(schema.clone()).ok()?;
    let mut message = visible(&suspension.message).into_owned();
    for (label, _) in choices(asked, suspension.response_schema.as_ref()?) {
        message.push_str("\n- ");
        message.push_str(&visible_line(&label));
    }
    Some((message, schema))
}

/// Returns the answer of a completed form; a form that was not filled in denies.
pub(crate) fn filled(action: acp::ElicitationAction) -> Answer {
    match action {
        acp::ElicitationAction::Accept(accepted) => {
            Answer::yes(serde_json::to_value(accepted.content.unwrap_or_default()).unwrap_or_default())
        }
        _ => Answer::no(None),
    }
}

/// The only member that an answer needs, and its schema.
fn only_member(schema: &Value) -> Option<(&str, &Value)> {
    let [name] = schema.get("required")?.as_array()?.as_slice() else { return None };
    let name = name.as_str()?;
    Some((name, schema.get("properties")?.get(name)?))
}

/// The values of the only member, if it takes no others.
fn only_choices(schema: &Value) -> Option<(&str, Vec<&str>)> {
    let (name, member) = only_member(schema)?;
    let values: Option<Vec<&str>> = member.get("enum")?.as_array()?.iter().map(Value::as_str).collect();
    values.filter(|values| values.len() <= MAX_OPTIONS).map(|values| (name, values))
}

/// The answers that one choice gives, with their labels.
fn choices(asked: &SuspensionRecord, schema: &Value) -> Vec<(String, Value)> {
    if let Some((name, values)) = only_choices(schema) {
        return values.into_iter().map(|value| (value.to_owned(), json!({ name: value }))).collect();
    }
    // Suggestions beside free text.
    let Some(("answer", _)) = only_member(schema) else { return Vec::new() };
    let QuestionDetails::Choice(choice) = Question::of(&asked.ticket.suspension).details else {
        return Vec::new();
    };
    let labels = choice.choices.into_iter().map(|choice| choice.label).take(MAX_OPTIONS);
    labels.map(|label| (label.clone(), json!({ "answer": label }))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aye_core::contract::record::SuspensionStatus;
    use aye_core::contract::suspension::{
        ACTION_ASK_USER, ACTION_PERMISSION, PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode,
    };

    fn asked(action: &str, parameters: Value, schema: Option<Value>) -> SuspensionRecord {
        SuspensionRecord {
            id: "q".into(),
            thread_id: "t".into(),
            run_id: "r".into(),
            call_id: "c".into(),
            ticket: SuspendTicket {
                suspension: Suspension {
                    id: "q".into(),
                    action: action.into(),
                    message: "?".into(),
                    parameters,
                    response_schema: schema,
                    expires_at: None,
                },
                pending: PendingToolCall { id: "c".into(), name: "Bash".into(), arguments: json!({}) },
                resume_mode: ToolCallResumeMode::ReplayToolCall,
            },
            status: SuspensionStatus::Open,
            created_at: 1,
            decision: None,
            decided_by: None,
        }
    }

    fn shown(asked: &SuspensionRecord) -> Vec<(String, String, PermissionOptionKind)> {
        let project = Path::new("/p");
        offered(asked, project).into_iter().map(|offer| (offer.id, offer.name, offer.kind)).collect()
    }

    #[test]
    fn a_call_can_be_allowed_granted_and_denied() {
        use PermissionOptionKind::{AllowAlways, AllowOnce, RejectOnce};
        let plain = asked(ACTION_PERMISSION, json!({"proposals": []}), None);
        let kinds =
            |asked: &SuspensionRecord| shown(asked).into_iter().map(|(_, _, kind)| kind).collect::<Vec<_>>();
        assert_eq!(
            kinds(&plain),
            [AllowOnce, RejectOnce],
            "no rule can be stored for this call, so `always` is not available"
        );
        let granting = asked(ACTION_PERMISSION, json!({"proposals": [{"pattern": "Bash(ls)"}]}), None);
        assert_eq!(kinds(&granting), [AllowOnce, AllowAlways, AllowAlways, RejectOnce]);
        let offers = offered(&granting, Path::new("/p"));
        let grant = |id: &str| chosen(&offers, Some(id)).grant.expect("a grant");
        assert_eq!(grant("allow_thread").scope, GrantScope::Thread("t".into()));
        assert_eq!(grant("allow_project").scope, GrantScope::Project("/p".into()));
        assert_eq!(grant("allow_project").pattern, "Bash(ls)");
        assert_eq!(chosen(&offers, Some("allow")), Answer::yes(Value::Null));
    }

    #[test]
    fn an_option_that_was_not_offered_denies() {
        for parameters in [json!({}), json!({"proposals": [{"pattern": "Bash(ls)"}]})] {
            let offers = offered(&asked(ACTION_PERMISSION, parameters, None), Path::new("/p"));
            for id in [None, Some(""), Some("allow_always"), Some("ALLOW"), Some(REJECT)] {
                assert_eq!(chosen(&offers, id), Answer::no(None), "{id:?}");
            }
        }
        assert_eq!(chosen(&[], Some("allow")), Answer::no(None));
    }

    #[test]
    fn an_unknown_outcome_is_retried_only_on_request() {
        let offers = offered(&asked(ACTION_UNKNOWN_OUTCOME, json!({}), Some(json!({}))), Path::new("/p"));
        let choice = |id: &str| chosen(&offers, Some(id)).result["choice"].clone();
        assert_eq!(
            [choice("rerun"), choice("done"), choice(REJECT), choice("x")],
            ["rerun", "done", "skip", "skip"]
        );
    }

    #[test]
    fn choices_become_options_and_free_text_names_the_command() {
        let schema = |member: Value| {
            Some(json!({"type": "object", "properties": {"answer": member}, "required": ["answer"]}))
        };
        let closed =
            asked(ACTION_ASK_USER, json!({}), schema(json!({"type": "string", "enum": ["red", "blue"]})));
        let offers = offered(&closed, Path::new("/p"));
        assert_eq!(chosen(&offers, Some("answer_1")).result, json!({"answer": "blue"}));
        assert_eq!(chosen(&offers, Some("answer_2")), Answer::no(None));
        assert_eq!(other_way(&closed), None);
        let parameters = json!({"choices": [{"label": "red"}]});
        let free = asked(ACTION_ASK_USER, parameters, schema(json!({"type": "string"})));
        let offers = offered(&free, Path::new("/p"));
        assert_eq!(chosen(&offers, Some("answer_0")).result, json!({"answer": "red"}));
        assert!(other_way(&free).expect("a command").contains("aye answer q"));
        let form = asked(ACTION_ASK_USER, json!({}), Some(json!({"type": "object", "required": ["a", "b"]})));
        assert_eq!(shown(&form).len(), 1, "only declining");
        assert!(other_way(&form).is_some());
    }

    #[test]
    fn a_flat_question_becomes_a_form_and_a_nested_one_does_not() {
        let schema = |member: Value| {
            Some(json!({"type": "object", "properties": {"answer": member}, "required": ["answer"]}))
        };
        let parameters = json!({"choices": [{"label": "red"}]});
        let free = asked(ACTION_ASK_USER, parameters, schema(json!({"type": "string"})));
        let (message, form) = form_of(&free).expect("a form");
        assert_eq!(message, "?\n- red");
        assert_eq!(form.required, Some(vec!["answer".to_owned()]));
        let nested = asked(ACTION_ASK_USER, json!({}), schema(json!({"type": "object"})));
        assert!(form_of(&nested).is_none());
        assert!(form_of(&asked(ACTION_PERMISSION, json!({}), None)).is_none());
        let action = |value| filled(serde_json::from_value(value).expect("the shape of the protocol"));
        let accepted = action(json!({"action": "accept", "content": {"answer": "blue"}}));
        assert_eq!(accepted, Answer::yes(json!({"answer": "blue"})));
        for other in ["decline", "cancel", "later"] {
            assert_eq!(action(json!({"action": other})), Answer::no(None), "{other}");
        }
    }
}
