//! Servers that ask the user during a call.

use super::*;
use aye_core::contract::surface::{ACTION_SURFACE, Surface, SurfaceNode};
use aye_core::contract::suspension::{
    ResumeDecisionAction, SuspendTicket, ToolCallResume, ToolCallResumeMode,
};

const TOOL: &str = "mcp__s__ask";

async fn world(name: &str) -> (World, Manager) {
    let world = World::new(&[tool(name)]);
    let manager = world.user("plain").await;
    (world, manager)
}

pub(super) fn ticket(result: ToolResult) -> SuspendTicket {
    assert!(result.is_pending(), "{result:?}");
    *result.suspension.expect("a ticket")
}

fn surface(ticket: &SuspendTicket) -> Surface {
    serde_json::from_value(ticket.suspension.parameters["surface"].clone()).expect("a surface")
}

/// The answer of a form that is filled in and sent, or not.
pub(super) fn payload(ticket: &SuspendTicket, button: &str, put: &[(&str, Value)]) -> Value {
    let mut surface = surface(ticket);
    for (path, value) in put {
        surface.put(path, value.clone());
    }
    surface.pressed(button)
}

fn fits(ticket: &SuspendTicket, payload: &Value) -> bool {
    let schema = ticket.suspension.response_schema.as_ref().expect("a schema");
    jsonschema::validator_for(schema).expect("a valid schema").is_valid(payload)
}

pub(super) fn words(ticket: &SuspendTicket) -> String {
    fn walk(piece: &SurfaceNode, found: &mut String) {
        match piece {
            SurfaceNode::Column(inner) => inner.iter().for_each(|piece| walk(piece, found)),
            SurfaceNode::Text { text, .. } => found.extend([text.as_str(), "\n"]),
            SurfaceNode::Field(field) | SurfaceNode::Check(field) => {
                found.extend(["[", field.label.as_str(), "]\n"]);
            }
            SurfaceNode::Button(button) => found.extend(["<", button.label.as_str(), ">\n"]),
            other => panic!("{other:?}"),
        }
    }
    let mut found = String::new();
    walk(&surface(ticket).picture(), &mut found);
    found
}

impl World {
    pub(super) async fn answered(&self, id: &str, result: Value) -> ToolResult {
        let resume = ToolCallResume {
            decision_id: "d".into(),
            action: ResumeDecisionAction::Resume,
            result,
            reason: None,
            arguments: None,
            profile: None,
            updated_at: 0,
        };
        let ctx = ToolCallContext { resume: Some(resume), attempt: 2, ..ToolCallContext::test_default() };
        self.tool(id).execute(json!({"a": 1}), &ctx).await.expect("a result").result
    }

    fn answers(&self, words: &str) -> usize {
        self.log().iter().filter(|line| line.starts_with("answer") && line.contains(words)).count()
    }
}

#[tokio::test]
async fn a_question_becomes_a_form_and_its_answer_continues_the_call() {
    let (world, manager) = world("ask").await;
    let ticket = ticket(world.call(TOOL).await.expect("a result"));
    assert_eq!(ticket.suspension.action, ACTION_SURFACE);
    assert_eq!(ticket.resume_mode, ToolCallResumeMode::ReplayToolCall);
    assert_eq!(ticket.suspension.message, "the server s asks: Which shelf 1?");
    assert!(ticket.suspension.expires_at.is_some());
    assert_eq!(
        words(&ticket),
        "The server s asks, during ask:\nWhich shelf 1?\nYour answers are sent to this server and \
         stored here: no passwords, no keys.\n[Shelf (needed: top, \
         low)]\n[count]\n[gift]\n<Send>\n<Decline>\n"
    );
    let shelf = |name: &str| ("/shelf", json!(name));
    assert!(!fits(&ticket, &payload(&ticket, "send", &[])), "a needed field");
    assert!(!fits(&ticket, &payload(&ticket, "send", &[shelf("under")])), "none of the choices");
    assert!(fits(&ticket, &payload(&ticket, "decline", &[])));
    let filled = payload(&ticket, "send", &[shelf("top"), ("/count", json!("7"))]);
    assert!(fits(&ticket, &filled));
    let result = world.answered(TOOL, filled).await;
    assert_eq!(result.model_text(), "thank you");
    let line = world.log().into_iter().find(|line| line.starts_with("answer")).expect("an answer");
    let sent: Value = serde_json::from_str(line.trim_start_matches("answer ")).expect("JSON");
    assert_eq!(
        sent["result"],
        json!({"action": "accept", "content": {"shelf": "top", "count": 7, "gift": false}})
    );
    assert_eq!(world.log().iter().filter(|line| line.contains("tools/call")).count(), 1);
    assert_eq!(world.questions.count(), 0);
    manager.close().await;
}

#[tokio::test]
async fn an_answer_that_violates_the_schema_is_asked_for_again() {
    let (world, manager) = world("ask").await;
    let first = ticket(world.call(TOOL).await.expect("a result"));
    let wrong = payload(&first, "send", &[("/shelf", json!("low")), ("/count", json!("70"))]);
    let second = ticket(world.answered(TOOL, wrong).await);
    assert!(
        words(&second).contains("Not sent: count: 70 is greater than the maximum of 9"),
        "{}",
        words(&second)
    );
    assert_eq!(surface(&second).data["shelf"], "low", "the input is kept");
    assert_eq!(world.answers(""), 0);
    // The first form is closed.
    let lost = world.answered(TOOL, payload(&first, "send", &[("/shelf", json!("low"))])).await;
    assert!(lost.is_error(), "{lost:?}");
    let result = world.answered(TOOL, payload(&second, "send", &[("/count", json!("3"))])).await;
    assert_eq!(result.model_text(), "thank you");
    manager.close().await;
}

#[tokio::test]
async fn declining_is_an_answer_and_the_call_continues() {
    let (world, manager) = world("ask").await;
    let ticket = ticket(world.call(TOOL).await.expect("a result"));
    let result = world.answered(TOOL, payload(&ticket, "decline", &[])).await;
    assert_eq!(result.model_text(), "thank you");
    assert_eq!(world.answers(r#""action":"decline""#), 1);
    assert_eq!(world.answers("content"), 0);
    manager.close().await;
}

#[tokio::test]
async fn a_stopped_run_cancels_the_question_and_the_call() {
    let (world, manager) = world("ask").await;
    let _ = ticket(world.call(TOOL).await.expect("a result"));
    world.questions.forget("another run");
    assert_eq!(world.questions.count(), 1);
    world.questions.forget("run-1");
    until("the server's notification", || {
        world.count("cancelled") == 1 && world.answers(r#""action":"cancel""#) == 1
    })
    .await;
    manager.close().await;
}

#[tokio::test]
async fn an_answer_without_a_question_calls_nothing() {
    let (world, manager) = world("ask").await;
    let ticket = ticket(world.call(TOOL).await.expect("a result"));
    manager.close().await;
    // Another process: the same server, without the pending state.
    let other = World::new(&[tool("ask")]);
    let manager = other.user("plain").await;
    let result = other.answered(TOOL, payload(&ticket, "send", &[("/shelf", json!("low"))])).await;
    assert!(result.is_error() && result.model_text().contains("the connection was lost"), "{result:?}");
    assert!(!other.log().iter().any(|line| line.contains("tools/call")));
    manager.close().await;
    // The process survives, the server does not.
    let result = world.answered(TOOL, payload(&ticket, "send", &[("/shelf", json!("low"))])).await;
    assert!(result.is_error() && result.model_text().contains("the connection ended"), "{result:?}");
}

#[tokio::test]
async fn successive_questions_are_limited() {
    let (world, manager) = world("again").await;
    let mut result = world.call("mcp__s__again").await.expect("a result");
    let mut asked = 0;
    while result.is_pending() {
        asked += 1;
        let ticket = ticket(result);
        result = world.answered("mcp__s__again", payload(&ticket, "send", &[("/shelf", json!("top"))])).await;
    }
    assert_eq!((asked, result.model_text().as_ref()), (10, "asked enough"));
    assert_eq!(world.answers(r#""action":"decline""#), 5);
    manager.close().await;
}

#[tokio::test]
async fn a_thousand_concurrent_questions_are_limited_to_two() {
    let (world, manager) = world("askflood").await;
    let mut result = world.call("mcp__s__askflood").await.expect("a result");
    until("the others' denial", || world.answers(r#""action":"decline""#) == 998).await;
    let mut asked = 0;
    while result.is_pending() {
        asked += 1;
        let ticket = ticket(result);
        let filled = payload(&ticket, "send", &[("/shelf", json!("top"))]);
        result = world.answered("mcp__s__askflood", filled).await;
    }
    assert_eq!((asked, result.model_text().as_ref()), (2, "asked enough"));
    manager.close().await;
}

/// The printed command for a form is accepted by the form and the server.
#[tokio::test]
async fn the_example_of_a_form_is_a_valid_answer() {
    let (world, manager) = world("ask").await;
    let ticket = ticket(world.call(TOOL).await.expect("a result"));
    let made =
        aye_core::contract::schema::example(ticket.suspension.response_schema.as_ref().expect("a schema"));
    assert!(fits(&ticket, &made), "{made}");
    assert_eq!(made["dataModel"], json!({"shelf": "top"}));
    assert_eq!(world.answered(TOOL, made).await.model_text(), "thank you");
    assert_eq!(world.answers(r#""action":"accept""#), 1, "{:?}", world.log());
    manager.close().await;
}
