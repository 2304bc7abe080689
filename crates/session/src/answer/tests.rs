use aye_core::contract::record::SuspensionStatus;
use aye_core::contract::suspension::{
    ACTION_FRONTEND_TOOL, ACTION_PERMISSION, PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode,
};
use serde_json::Value;

use super::*;

fn question(action: &str, response_schema: Option<Value>) -> SuspensionRecord {
    let resume_mode = if action == ACTION_PERMISSION {
        ToolCallResumeMode::ReplayToolCall
    } else {
        ToolCallResumeMode::UseDecisionAsToolResult
    };
    let ticket = SuspendTicket {
        suspension: Suspension {
            id: "q1".into(),
            action: action.into(),
            message: "run it?".into(),
            parameters: json!({}),
            response_schema,
            expires_at: None,
        },
        pending: PendingToolCall {
            id: "c1".into(),
            name: "Bash".into(),
            arguments: json!({"command": "ls"}),
        },
        resume_mode,
    };
    SuspensionRecord {
        id: "q1".into(),
        thread_id: "t".into(),
        run_id: "r1".into(),
        call_id: "c1".into(),
        ticket,
        status: SuspensionStatus::Open,
        decision: None,
        decided_by: None,
        created_at: 1,
    }
}

fn yes() -> Answer {
    Answer::yes(Value::Null)
}

#[test]
fn a_yes_is_enough_only_where_nothing_else_is_asked() {
    let call = question(ACTION_PERMISSION, None);
    assert_eq!(check(&call, &Reply::approval(yes())).unwrap().result, Value::Null);
    // A client's tool needs its result.
    let tool = question(ACTION_FRONTEND_TOOL, None);
    assert!(matches!(check(&tool, &Reply::approval(yes())), Err(AnswerError::NeedsData)));
    assert!(check(&tool, &Reply::values(Answer::yes(json!("noon")))).is_ok());
    // A form with one way to accept is accepted as it stands.
    let one = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}});
    let form = question(ACTION_FRONTEND_TOOL, Some(one));
    assert!(matches!(check(&form, &Reply::approval(yes())), Err(AnswerError::NeedsData)));
    let unfit = check(&form, &Reply::values(Answer::yes(json!({"a": 1}))));
    assert!(matches!(unfit, Err(AnswerError::Refused(DecideError::Schema { .. }))));
}

#[test]
fn values_are_no_yes_that_nobody_intended() {
    let call = question(ACTION_PERMISSION, None);
    let values = Reply::values(Answer::yes(json!({"answer": "no!"})));
    assert!(matches!(check(&call, &values), Err(AnswerError::TakesNoData)));
}

#[test]
fn edited_arguments_take_the_place_of_a_payload() {
    let call = question(ACTION_PERMISSION, None);
    let edited = Answer { arguments: Some(json!({"command": "ls -l"})), ..yes() };
    assert!(check(&call, &Reply::approval(edited.clone())).is_ok());
    let form = question(ACTION_FRONTEND_TOOL, None);
    assert!(matches!(
        check(&form, &Reply::approval(edited)),
        Err(AnswerError::Refused(DecideError::Unfit { .. }))
    ));
}

#[test]
fn an_answer_to_what_was_shown_is_none_to_something_else() {
    let call = question(ACTION_PERMISSION, None);
    let shown = Some(shown_hash(&call));
    let reply = Reply { shown, ..Reply::approval(yes()) };
    assert!(check(&call, &reply).is_ok());
    let mut other = call;
    other.ticket.pending.arguments = json!({"command": "rm -r ."});
    assert!(matches!(check(&other, &reply), Err(AnswerError::Changed)));
}
