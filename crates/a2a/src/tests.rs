use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aye_core::contract::executor::{InferenceExecutionError, InferenceRequest, LlmStreamEvent};
use aye_core::contract::inference::StreamResult;
use aye_core::contract::message::{Message, ToolCall};
use aye_core::contract::spec::{AgentSpec, RemoteEndpoint};
use aye_runtime::{AgentBackend as _, RemoteConversation as _};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::address::{EndpointAddress, EndpointError};
use crate::note::{SentMessage, TaskNote};
use crate::turn::Turn;

/// The peer's response to one request.
enum Response {
    Json(u16, Value),
    Stream(Vec<Value>),
    To(String),
    Bytes(String),
    /// Closes the connection without a response.
    Nothing,
}

type Asked = (String, Value);

/// A remote agent that responds as scripted by a test.
struct MockAgent {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl MockAgent {
    async fn new(mut replies: impl FnMut(&str, &Value, usize) -> Response + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, heads) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (kept, own) = (Arc::clone(&asked), url.clone());
        let kept_heads = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = Vec::new();
                let (head, body) = loop {
                    let mut chunk = [0; 4096];
                    let read = stream.read(&mut chunk).await.unwrap_or_default();
                    bytes.extend_from_slice(&chunk[..read]);
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    if let Some((head, body)) = text.split_once("\r\n\r\n") {
                        let length = head.lines().find_map(|line| {
                            line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
                        });
                        if body.len() >= length.unwrap_or_default() {
                            break (head.to_owned(), body.to_owned());
                        }
                    }
                    if read == 0 {
                        break (text, String::new());
                    }
                };
                let mut words = head.split(' ');
                let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                let what = format!("{method} {path}");
                let body: Value = serde_json::from_str(&body).unwrap_or_default();
                let nth = {
                    let mut asked = kept.lock().unwrap();
                    asked.push((what.clone(), body.clone()));
                    asked.iter().filter(|(known, _)| *known == what).count()
                };
                kept_heads.lock().unwrap().push(head.to_ascii_lowercase());
                let plain = |status: u16, kind: &str, more: &str, body: &str| {
                    format!(
                        "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{more}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                        body.len()
                    )
                };
                let answer = if what.ends_with("agent-card.json")
                    && !matches!(replies(&what, &body, nth), Response::To(_))
                {
                    match replies(&what, &body, nth) {
                        Response::Json(status, card) => {
                            plain(status, "application/json", "", &card.to_string())
                        }
                        _ => plain(200, "application/json", "", &card(&own).to_string()),
                    }
                } else {
                    match replies(&what, &body, nth) {
                        Response::Json(status, body) => {
                            plain(status, "application/json", "", &body.to_string())
                        }
                        Response::To(to) => plain(302, "text/plain", &format!("Location: {to}\r\n"), ""),
                        Response::Bytes(body) => plain(200, "application/json", "", &body),
                        Response::Stream(events) => {
                            let events: Vec<_> =
                                events.iter().map(|event| format!("data: {event}\n\n")).collect();
                            let events = events.concat();
                            plain(200, "text/event-stream", "", &events)
                        }
                        Response::Nothing => String::new(),
                    }
                };
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { url, asked, heads }
    }

    fn count(&self, what: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|(asked, _)| asked.contains(what)).count()
    }

    fn sent(&self) -> Vec<Value> {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .filter(|(what, _)| what.contains("message:"))
            .map(|(_, body)| body["message"].clone())
            .collect()
    }

    fn exchanges(&self) -> Exchanges {
        self.with(|_| {})
    }

    fn with(&self, change: impl FnOnce(&mut RemoteEndpoint)) -> Exchanges {
        let mut endpoint = RemoteEndpoint::a2a(&self.url);
        endpoint.options = BTreeMap::from([("poll_interval_ms".to_owned(), json!(50))]);
        endpoint.timeout_ms = 20_000;
        change(&mut endpoint);
        let spec = AgentSpec::new("far").with_endpoint(endpoint);
        let mut backend = A2aBackend::new();
        backend.delay = RetryDelay { first: Duration::from_millis(1), max: Duration::from_millis(5) };
        backend.exchanges(&spec, TaskNotes::in_memory()).unwrap()
    }
}

fn card(url: &str) -> Value {
    json!({
        "name": "far", "description": "Looks\u{1b}[31m around.",
        "supportedInterfaces": [{"url": format!("{url}/v1/a2a"), "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": false},
    })
}

fn task(state: &str, answer: &str) -> Value {
    let artifacts = if answer.is_empty() {
        json!([])
    } else {
        json!([{"artifactId": "a1", "parts": [{"text": answer}]}])
    };
    json!({
        "id": "t1", "contextId": "c1", "artifacts": artifacts,
        "status": {"state": state, "timestamp": "2026-01-01T00:00:00Z", "message": {"messageId": "m", "parts": [{"text": "which one?"}]}},
    })
}

fn prompt() -> Vec<Message> {
    vec![Message::user("look around")]
}

fn answered(messages: &mut Vec<Message>, calls: &[ToolCall], answer: Option<&str>) {
    messages.push(Message::assistant_with(Vec::new(), calls.to_vec()));
    for call in calls {
        let mut message = Message::tool(&call.id, "{}");
        let data = answer.map_or(json!({"code": "declined"}), |answer| json!({"answer": answer}));
        message.metadata = Some(json!({"tool_result": {"data": data}}));
        messages.push(message);
    }
}

async fn exchange(
    exchanges: &Exchanges,
    messages: &[Message],
) -> (Vec<LlmStreamEvent>, Result<StreamResult, InferenceExecutionError>) {
    let messages = Arc::new(messages.iter().cloned().map(Arc::new).collect());
    let request = InferenceRequest { messages, ..InferenceRequest::default() };
    let mut stream = exchanges.executor().execute_stream(request).await.unwrap();
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(LlmStreamEvent::Finish { result, .. }) => return (events, Ok(result)),
            Ok(event) => events.push(event),
            Err(error) => return (events, Err(error)),
        }
    }
    panic!("no end: {events:?}");
}

async fn answer(exchanges: &Exchanges, messages: &[Message]) -> String {
    exchange(exchanges, messages).await.1.unwrap().text()
}

async fn wrong(exchanges: &Exchanges) -> String {
    exchange(exchanges, &prompt()).await.1.unwrap_err().to_string()
}

#[tokio::test]
async fn a_task_is_sent_once_and_polled_to_completion() {
    let far = MockAgent::new(|what, _, nth| match what {
        "POST /v1/a2a/message:send" => Response::Json(200, json!({"task": task("TASK_STATE_WORKING", "")})),
        "GET /v1/a2a/tasks/t1" if nth < 3 => Response::Json(503, json!({})),
        "GET /v1/a2a/tasks/t1" => {
            Response::Json(200, task("TASK_STATE_COMPLETED", "All\u{1b}[2J clear.\u{202e}"))
        }
        _ => Response::Nothing,
    })
    .await;
    let exchanges = far.with(|endpoint| endpoint.auth = Some(json!({"type": "bearer", "token": "k3y"})));
    // Terminal control sequences are removed.
    assert_eq!(answer(&exchanges, &prompt()).await, "All[2J clear.");
    assert_eq!(far.sent().len(), 1);
    assert_eq!(far.sent()[0]["parts"], json!([{"text": "look around"}]));
    let heads = far.heads.lock().unwrap().clone();
    assert!(
        heads.iter().all(|head| head.contains("a2a-version: 1.0") && head.contains("bearer k3y")),
        "{heads:?}"
    );
    // The run asks again after a crash: known answers are not sent again.
    assert_eq!(answer(&exchanges, &prompt()).await, "All[2J clear.");
    assert_eq!(far.sent().len(), 1);
    // The task is over, so no cancellation is sent.
    exchanges.cancel().await;
    assert_eq!(far.count("cancel"), 0);
}

#[tokio::test]
async fn a_broken_stream_is_resumed_without_duplicates() {
    let far = MockAgent::new(|what, _, nth| match what {
        "GET /.well-known/agent-card.json" => Response::Json(200, {
            json!({"capabilities": {"streaming": true}})
        }),
        "POST /x/message:stream" => Response::Stream(vec![
            json!({"task": task("TASK_STATE_WORKING", "")}),
            json!({"artifactUpdate": {"taskId": "t1", "contextId": "c1", "artifact": {"artifactId": "a1", "parts": [{"text": "One "}]}}}),
        ]),
        "GET /x/tasks/t1" => Response::Json(200, task("TASK_STATE_WORKING", "One ")),
        "POST /x/tasks/t1:subscribe" if nth == 1 => Response::Json(500, json!({})),
        "POST /x/tasks/t1:subscribe" => Response::Stream(vec![
            json!({"task": task("TASK_STATE_WORKING", "One ")}),
            json!({"artifactUpdate": {"taskId": "t1", "artifact": {"artifactId": "a1", "parts": [{"text": "two."}]}, "append": true}}),
            json!({"statusUpdate": {"taskId": "t1", "status": {"state": "TASK_STATE_COMPLETED"}}}),
        ]),
        _ => Response::Json(404, json!({})),
    })
    .await;
    let (events, result) = exchange(&far.with(|endpoint| endpoint.base_url.push_str("/x")), &prompt()).await;
    assert_eq!(result.unwrap().text(), "One two.");
    let deltas: Vec<_> = events
        .iter()
        .map(|event| match event {
            LlmStreamEvent::TextDelta(delta) => delta.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(deltas, ["One ", "two."]);
    assert_eq!(far.sent().len(), 1);
}

#[tokio::test]
async fn a_question_of_the_task_is_asked_and_answered_in_the_same_task() {
    let far = MockAgent::new(|what, _, nth| match (what, nth) {
        ("POST /v1/a2a/message:send", 1) => {
            Response::Json(200, json!({"task": task("TASK_STATE_INPUT_REQUIRED", "First.")}))
        }
        ("POST /v1/a2a/message:send", _) => {
            let mut done = task("TASK_STATE_COMPLETED", "First.");
            let more = json!({"artifactId": "a2", "parts": [{"text": "Second."}]});
            done["artifacts"].as_array_mut().unwrap().push(more);
            Response::Json(200, json!({"task": done}))
        }
        ("GET /v1/a2a/tasks/t1", _) => Response::Json(200, task("TASK_STATE_INPUT_REQUIRED", "First.")),
        _ => Response::Nothing,
    })
    .await;
    let exchanges = far.exchanges();
    let mut messages = prompt();
    let asks = exchange(&exchanges, &messages).await.1.unwrap();
    assert_eq!(asks.text(), "First.");
    let [call] = asks.tool_calls.as_slice() else { panic!("{asks:?}") };
    assert_eq!(call.name, "AskUser");
    let question = call.arguments["question"].as_str().unwrap();
    assert!(
        question.starts_with("The remote agent `far` at 127.0.0.1") && question.ends_with("which one?"),
        "{question}"
    );
    answered(&mut messages, &asks.tool_calls, Some("the blue one"));
    // Only new text is returned.
    assert_eq!(answer(&exchanges, &messages).await, "Second.");
    let sent = far.sent();
    assert_eq!(sent.len(), 2);
    assert_eq!((&sent[1]["taskId"], &sent[1]["contextId"]), (&json!("t1"), &json!("c1")));
    assert_eq!(sent[1]["parts"], json!([{"text": "the blue one"}]));
    assert_ne!(sent[0]["messageId"], sent[1]["messageId"]);
}

/// The task asks something else by now: what the user says to the first question is not an answer to the second.
#[tokio::test]
async fn a_question_that_is_answered_on_the_other_side_is_noticed_and_its_answer_is_not_sent() {
    let far = MockAgent::new(|what, _, nth| match (what, nth) {
        ("POST /v1/a2a/message:send", _) => {
            Response::Json(200, json!({"task": task("TASK_STATE_INPUT_REQUIRED", "First.")}))
        }
        ("GET /v1/a2a/tasks/t1", 1) => Response::Json(503, json!({})),
        ("GET /v1/a2a/tasks/t1", 2) => Response::Json(200, task("TASK_STATE_INPUT_REQUIRED", "First.")),
        ("GET /v1/a2a/tasks/t1", _) => {
            let mut next = task("TASK_STATE_INPUT_REQUIRED", "First.");
            next["status"].as_object_mut().unwrap().remove("timestamp");
            next["status"]["message"]["parts"] = json!([{"text": "and how many?"}]);
            Response::Json(200, next)
        }
        _ => Response::Nothing,
    })
    .await;
    let exchanges = far.exchanges();
    let mut messages = prompt();
    let asks = exchange(&exchanges, &messages).await.1.unwrap();
    let mut still_asks = Vec::new();
    for checks in 0..3 {
        still_asks.push(exchanges.still_asks(checks).await);
    }
    assert_eq!(still_asks, [true, true, false]);
    answered(&mut messages, &asks.tool_calls, Some("the blue one"));
    let next = exchange(&exchanges, &messages).await.1.unwrap();
    let question = next.tool_calls[0].arguments["question"].as_str().unwrap();
    assert!(question.ends_with("and how many?"), "{question}");
    assert_ne!(next.tool_calls[0].id, asks.tool_calls[0].id);
    assert_eq!(far.sent().len(), 1);
}

/// The task may ask the same again: only the result of the call says that nobody here answered it.
#[tokio::test]
async fn nothing_is_sent_for_a_superseded_question() {
    let far = MockAgent::new(|what, _, _| match what {
        "POST /v1/a2a/message:send" => {
            Response::Json(200, json!({"task": task("TASK_STATE_INPUT_REQUIRED", "First.")}))
        }
        "GET /v1/a2a/tasks/t1" => Response::Json(200, task("TASK_STATE_INPUT_REQUIRED", "First.")),
        _ => Response::Nothing,
    })
    .await;
    let exchanges = far.exchanges();
    let mut messages = prompt();
    let asks = exchange(&exchanges, &messages).await.1.unwrap();
    answered(&mut messages, &asks.tool_calls, None);
    let result = messages.last_mut().unwrap().metadata.as_mut().unwrap();
    result["tool_result"] = json!({"details": {"code": aye_runtime::CODE_ANSWERED_REMOTELY}});
    let next = exchange(&exchanges, &messages).await.1.unwrap();
    assert!(next.tool_calls[0].arguments["question"].as_str().unwrap().ends_with("which one?"));
    assert_ne!(next.tool_calls[0].id, asks.tool_calls[0].id);
    assert_eq!(far.sent().len(), 1);
}

/// All that the task said after its question is new, although it was said before the question was closed here.
#[tokio::test]
async fn what_a_task_says_after_an_answer_on_the_other_side_is_returned() {
    let far = MockAgent::new(|what, _, _| match what {
        "POST /v1/a2a/message:send" => {
            Response::Json(200, json!({"task": task("TASK_STATE_INPUT_REQUIRED", "First.")}))
        }
        "GET /v1/a2a/tasks/t1" => {
            let mut done = task("TASK_STATE_COMPLETED", "First.");
            let more = json!({"artifactId": "a2", "parts": [{"text": "Second."}]});
            done["artifacts"].as_array_mut().unwrap().push(more);
            Response::Json(200, done)
        }
        _ => Response::Nothing,
    })
    .await;
    let exchanges = far.exchanges();
    let mut messages = prompt();
    let asks = exchange(&exchanges, &messages).await.1.unwrap();
    assert!(!exchanges.still_asks(0).await);
    answered(&mut messages, &asks.tool_calls, None);
    assert_eq!(answer(&exchanges, &messages).await, "Second.");
    assert_eq!(far.sent().len(), 1);
}

#[tokio::test]
async fn only_an_undelivered_message_is_resent_without_asking() {
    for (status, times) in [(429, 2), (500, 1), (503, 1)] {
        let far = MockAgent::new(move |what, _, nth| match what {
            "POST /v1/a2a/message:send" if nth < 2 => Response::Json(status, json!({})),
            "POST /v1/a2a/message:send" => {
                Response::Json(200, json!({"task": task("TASK_STATE_COMPLETED", "Done.")}))
            }
            "GET /v1/a2a/tasks" => Response::Json(200, json!({"tasks": []})),
            _ => Response::Nothing,
        })
        .await;
        let _ = exchange(&far.exchanges(), &prompt()).await;
        assert_eq!(far.sent().len(), times, "{status}");
    }
}

#[tokio::test]
async fn an_invalid_answer_is_asked_for_again() {
    let far = MockAgent::new(|what, _, nth| match (what, nth) {
        ("POST /v1/a2a/message:send", 2) => Response::Json(400, json!({"error": {"message": "one of a, b"}})),
        ("POST /v1/a2a/message:send", _) => {
            Response::Json(200, json!({"task": task("TASK_STATE_INPUT_REQUIRED", "")}))
        }
        ("GET /v1/a2a/tasks/t1", _) => Response::Json(200, task("TASK_STATE_AUTH_REQUIRED", "")),
        _ => Response::Nothing,
    })
    .await;
    let exchanges = far.exchanges();
    let mut messages = prompt();
    let asks = exchange(&exchanges, &messages).await.1.unwrap();
    answered(&mut messages, &asks.tool_calls, Some("c"));
    let again = exchange(&exchanges, &messages).await.1.unwrap();
    let question = again.tool_calls[0].arguments["question"].as_str().unwrap().to_owned();
    assert!(question.contains("The answer was refused: one of a, b"), "{question}");
    assert_ne!(again.tool_calls[0].id, asks.tool_calls[0].id);
    // A waiting task is cancelled once nobody waits for it.
    exchanges.cancel().await;
    assert_eq!(far.count("tasks/t1:cancel"), 1);
}

#[tokio::test]
async fn a_lost_message_is_looked_up_and_resent_only_after_approval() {
    let far = MockAgent::new(|what, _, nth| match (what, nth) {
        ("POST /v1/a2a/message:send", 1) => Response::Nothing,
        ("POST /v1/a2a/message:send", _) => {
            Response::Json(200, json!({"task": task("TASK_STATE_COMPLETED", "Here.")}))
        }
        (what, _) if what.starts_with("GET /v1/a2a/tasks?") => Response::Json(200, json!({"tasks": []})),
        _ => Response::Nothing,
    })
    .await;
    let exchanges = far.exchanges();
    let mut messages = prompt();
    let asks = exchange(&exchanges, &messages).await.1.unwrap();
    let [call] = asks.tool_calls.as_slice() else { panic!("{asks:?}") };
    assert_eq!(call.arguments["choices"], json!(["send it again", "stop"]));
    let mut stopped = messages.clone();
    answered(&mut stopped, &asks.tool_calls, Some("stop"));
    assert!(exchange(&exchanges, &stopped).await.1.is_err());
    assert_eq!(far.sent().len(), 1);
    answered(&mut messages, &asks.tool_calls, Some("send it again"));
    assert_eq!(answer(&exchanges, &messages).await, "Here.");
    assert_eq!(far.sent()[1]["parts"], json!([{"text": "look around"}]));
}

#[tokio::test]
async fn a_delivered_message_with_a_lost_reply_is_not_resent() {
    let context = Arc::new(Mutex::new(Value::Null));
    let known = Arc::clone(&context);
    let far = MockAgent::new(move |what, body, _| match what {
        "POST /v1/a2a/message:send" => {
            *known.lock().unwrap() = body["message"]["contextId"].clone();
            Response::Nothing
        }
        what if what.starts_with("GET /v1/a2a/tasks?") => {
            let mut found = task("TASK_STATE_WORKING", "");
            found["contextId"] = known.lock().unwrap().clone();
            Response::Json(200, json!({"tasks": [found]}))
        }
        "GET /v1/a2a/tasks/t1" => Response::Json(200, task("TASK_STATE_COMPLETED", "Here.")),
        _ => Response::Nothing,
    })
    .await;
    assert_eq!(answer(&far.exchanges(), &prompt()).await, "Here.");
    assert_eq!(far.sent().len(), 1);
    assert!(context.lock().unwrap().is_string());
}

#[tokio::test]
async fn peer_errors_are_named_and_bounded() {
    let sends = |reply: fn() -> Response| {
        MockAgent::new(move |what, _, _| if what.contains("message:") { reply() } else { Response::Nothing })
    };
    let there = sends(|| Response::To("https://evil.example/x".into())).await;
    let refusal = wrong(&there.exchanges()).await;
    assert!(refusal.contains("redirects to https://evil.example/"), "{refusal}");
    let long = sends(|| Response::Bytes("x".repeat(5 << 20))).await;
    let refusal = exchange(&long.exchanges(), &prompt()).await.1.unwrap();
    assert_eq!(refusal.tool_calls[0].arguments["kind"], "lost", "its outcome is unknown");
    let long = sends(|| Response::Stream(vec![json!("x".repeat(1 << 20))])).await;
    let refusal = exchange(&long.exchanges(), &prompt()).await.1.unwrap();
    assert_eq!(refusal.tool_calls[0].arguments["kind"], "lost", "its outcome is unknown");
    let endless = MockAgent::new(|what, _, _| match what {
        "GET /.well-known/agent-card.json" => Response::Json(200, json!({"capabilities": {"streaming": true}})),
        "POST /x/message:stream" => Response::Stream(vec![
            json!({"task": task("TASK_STATE_WORKING", "")}),
            json!({"artifactUpdate": {"taskId": "t1", "artifact": {"artifactId": "a1", "parts": [{"text": "x".repeat(1 << 20)}]}}}),
        ]),
        _ => Response::Json(404, json!({})),
    })
    .await;
    let refusal = wrong(&endless.with(|endpoint| endpoint.base_url.push_str("/x"))).await;
    assert!(refusal.contains("an event is longer than 1048576 bytes"), "{refusal}");
    let strange = sends(|| Response::Json(200, json!({"task": {"id": "..", "contextId": "c"}}))).await;
    let refusal = wrong(&strange.exchanges()).await;
    assert!(refusal.contains("gave its task an id that cannot be used"), "{refusal}");
    let refused = sends(|| Response::Json(403, json!({"error": {"message": "no\u{1b}]0;x\u{7} way"}}))).await;
    let refusal = wrong(&refused.exchanges()).await;
    assert!(refusal.contains("refused it (403): no]0;x way"), "{refusal}");
    let failed = sends(|| Response::Json(200, json!({"task": task("TASK_STATE_FAILED", "")}))).await;
    let refusal = wrong(&failed.exchanges()).await;
    assert!(refusal.contains("its task failed: which one?"), "{refusal}");
    let slow = sends(|| Response::Json(200, json!({"task": task("TASK_STATE_WORKING", "")}))).await;
    let exchanges = slow.with(|endpoint| endpoint.timeout_ms = 1);
    let refusal = wrong(&exchanges).await;
    assert!(refusal.contains("did not finish within 1 s"), "{refusal}");
    exchanges.cancel().await;
    assert_eq!(slow.count("tasks/t1:cancel"), 1);
}

#[tokio::test]
async fn a_card_is_read_and_cannot_point_to_another_host() {
    let far = MockAgent::new(|_, _, _| Response::Nothing).await;
    let backend = A2aBackend::new();
    let endpoint = RemoteEndpoint::a2a(&far.url);
    let spec = backend.discover("far", &endpoint).await.unwrap();
    let about = spec.description.unwrap();
    assert!(about.ends_with("in its own words: \"Looks[31m around.\""), "{about}");
    let away = MockAgent::new(|_, _, _| Response::Json(200, card("https://evil.example"))).await;
    let error = backend.discover("far", &RemoteEndpoint::a2a(&away.url)).await.unwrap_err().to_string();
    assert!(error.contains(&away.url) && error.contains("evil.example"), "{error}");
    let other = MockAgent::new(|_, _, _| {
        Response::Json(200, json!({"supportedInterfaces": [{"protocolBinding": "GRPC"}]}))
    })
    .await;
    let error = backend.discover("far", &RemoteEndpoint::a2a(&other.url)).await.unwrap_err().to_string();
    assert!(error.contains("names no interface for HTTP+JSON"), "{error}");
}

#[test]
fn an_endpoint_is_validated_before_any_request() {
    let fill: FillVariables = Arc::new(|text| {
        if text.contains("NOPE") {
            Err(EndpointError::NoVariable("NOPE is not set".into()))
        } else {
            Ok(text.replace("${KEY}", "k3y"))
        }
    });
    let of = |url: &str, auth: Value| {
        let auth = Some(auth).filter(|auth| !auth.is_null());
        EndpointAddress::of(&RemoteEndpoint { auth, ..RemoteEndpoint::a2a(url) }, &fill)
            .map(|address| address.headers)
    };
    for url in ["https://agents.example/x/", "http://localhost:7400", "http://127.0.0.1"] {
        assert!(of(url, Value::Null).is_ok(), "{url}");
    }
    let plain = "http://localhost.evil.example/";
    assert_eq!(of(plain, Value::Null), Err(EndpointError::NotEncrypted(plain.into())));
    for url in ["https://me@h/", "https://h/?key=1", "https://h/#x"] {
        assert_eq!(of(url, Value::Null), Err(EndpointError::ContainsKey), "{url}");
    }
    let headers = of("https://h", json!({"type": "header", "name": "X-Key", "value": "${KEY}"})).unwrap();
    assert_eq!(headers["x-key"], "k3y");
    assert!(headers["x-key"].is_sensitive());
    let missing = of("https://h", json!({"type": "bearer", "token": "${NOPE}"}));
    assert_eq!(missing, Err(EndpointError::NoVariable("NOPE is not set".into())));
    for auth in [json!({}), json!({"type": "bearer"}), json!({"type": "header", "name": "a b", "value": "x"})]
    {
        assert_eq!(of("https://h", auth), Err(EndpointError::BadAuth));
    }
    for target in ["..", "a/b", ""] {
        let endpoint = RemoteEndpoint { target: Some(target.into()), ..RemoteEndpoint::a2a("https://h") };
        assert_eq!(check_endpoint(&endpoint), Err(EndpointError::BadTarget));
    }
    let with = |name: &str, value: Value| {
        let options = BTreeMap::from([(name.to_owned(), value)]);
        check_endpoint(&RemoteEndpoint { options, ..RemoteEndpoint::a2a("https://h") })
    };
    assert_eq!(with("poll_interval_ms", json!(500)), Ok(()));
    assert_eq!(with("poll_interval_ms", json!("soon")), Err(EndpointError::BadPollInterval));
    assert_eq!(with("poll", json!(500)), Err(EndpointError::UnknownOption("poll".into())));
}

#[test]
fn the_id_depends_only_on_the_endpoint() {
    let of = |messages: &[Message], salt: &str| {
        Turn::of(&messages.iter().cloned().map(Arc::new).collect::<Vec<_>>(), salt)
    };
    let mut messages = prompt();
    let first = of(&messages, "s");
    assert_eq!(first.id, of(&messages, "s").id);
    assert_ne!(first.id, of(&messages, "other").id);
    let call = ToolCall::new("q", "AskUser", json!({"kind": "approval", "id": "perm_1"}));
    answered(&mut messages, std::slice::from_ref(&call), Some("approve"));
    let second = of(&messages, "s");
    assert_ne!(first.id, second.id);
    assert_eq!(second.parts[0].data, Some(json!({"id": "perm_1", "approved": true})));
    // An unanswered question counts as a denial.
    messages.truncate(1);
    answered(&mut messages, &[call], None);
    assert_eq!(of(&messages, "s").parts[0].data.as_ref().unwrap()["approved"], false);
}

#[test]
fn notes_of_another_version_are_still_read() {
    let note: TaskNote =
        serde_json::from_value(json!({"task": "t", "later": 1, "sent": {"id": "m"}})).unwrap();
    assert_eq!(note.sent, Some(SentMessage { id: "m".into(), ..SentMessage::default() }));
}
