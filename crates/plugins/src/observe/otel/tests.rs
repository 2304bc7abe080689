//! Tests against a loopback collector that records what it receives.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use serde_json::Value;

use super::*;

struct Collector {
    url: String,
    requests: mpsc::Receiver<(String, Value)>,
}

fn serve(stream: TcpStream, requests: &mpsc::Sender<(String, Value)>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let path = line.split_whitespace().nth(1)?.to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            if header.trim().is_empty() {
                break;
            }
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        requests.send((path, serde_json::from_slice(&body).expect("JSON"))).ok()?;
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

impl Collector {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (send, requests) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let send = send.clone();
                std::thread::spawn(move || serve(stream, &send));
            }
        });
        Self { url, requests }
    }

    /// All requests to each path, once the sender is done.
    fn all(&self) -> (Vec<Value>, Vec<Value>) {
        let (traces, metrics): (Vec<_>, Vec<_>) =
            self.requests.try_iter().partition(|(path, _)| path == "/v1/traces");
        assert!(metrics.iter().all(|(path, _)| path == "/v1/metrics"), "{metrics:?}");
        let bodies = |of: Vec<(String, Value)>| of.into_iter().map(|(_, body)| body).collect();
        (bodies(traces), bodies(metrics))
    }
}

fn spans(traces: &[Value]) -> Vec<Value> {
    let of = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    traces
        .iter()
        .flat_map(|body| of(body, "resourceSpans"))
        .flat_map(|resource| of(&resource, "scopeSpans"))
        .flat_map(|scope| of(&scope, "spans"))
        .collect()
}

fn attribute<'a>(span: &'a Value, name: &str) -> Option<&'a Value> {
    let found = span["attributes"].as_array()?.iter().find(|attribute| attribute["key"] == name)?;
    found["value"].as_object()?.values().next()
}

fn run() -> RunRef {
    RunRef {
        thread_id: "t1".into(),
        run_id: "r1".into(),
        parent_run_id: None,
        agent_id: "aye".into(),
        correlation_id: Some("order-7".into()),
    }
}

fn inference() -> GenAISpan {
    GenAISpan {
        run: run(),
        model: "gpt-x".into(),
        provider: "openai".into(),
        operation: "chat".into(),
        finish_reasons: vec!["tool_use".into()],
        input_tokens: Some(1200),
        output_tokens: Some(34),
        started_at_ms: 1_700_000_000_000,
        duration_ms: 1500,
        ..GenAISpan::default()
    }
}

fn tool() -> ToolSpan {
    ToolSpan {
        run: run(),
        name: "Bash".into(),
        operation: "execute_tool".into(),
        call_id: "c1".into(),
        tool_type: "function".into(),
        error_type: Some("tool_error".into()),
        started_at_ms: 1_700_000_001_500,
        duration_ms: 20,
        ..ToolSpan::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_gets_spans_and_metrics_by_convention() {
    let collector = Collector::new();
    let otlp = Otlp::start(&collector.url, "1.2.3").unwrap();
    otlp.on_run_start(&run());
    otlp.on_inference(&inference());
    otlp.on_tool(&tool());
    let metrics = AgentMetrics { run: run(), inferences: vec![inference()], ..AgentMetrics::default() };
    otlp.on_run_end(&metrics);
    otlp.end().await;
    let (traces, metrics) = collector.all();
    let spans = spans(&traces);
    let named =
        |name: &str| spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("{spans:#?}"));
    let (root, chat, bash) = (named("invoke_agent aye"), named("chat gpt-x"), named("execute_tool Bash"));
    assert_eq!(spans.len(), 3);
    for child in [chat, bash] {
        assert_eq!((&child["traceId"], &child["parentSpanId"]), (&root["traceId"], &root["spanId"]));
    }
    assert_eq!(chat["startTimeUnixNano"], "1700000000000000000");
    assert_eq!(chat["endTimeUnixNano"], "1700000001500000000");
    assert_eq!(attribute(chat, "gen_ai.system").unwrap(), "openai");
    assert_eq!(attribute(chat, "gen_ai.request.model").unwrap(), "gpt-x");
    assert_eq!(attribute(chat, "gen_ai.usage.input_tokens").unwrap(), "1200");
    assert_eq!(attribute(chat, "gen_ai.usage.output_tokens").unwrap(), "34");
    assert_eq!(attribute(chat, "gen_ai.conversation.id").unwrap(), "t1");
    assert_eq!(attribute(bash, "gen_ai.tool.name").unwrap(), "Bash");
    assert_eq!(attribute(bash, "error.type").unwrap(), "tool_error");
    assert_eq!(attribute(root, "gen_ai.usage.input_tokens").unwrap(), "1200");
    for span in &spans {
        for name in ["gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments"] {
            assert_eq!(attribute(span, name), None, "contents were not asked for");
        }
    }
    let text = serde_json::to_string(&metrics).unwrap();
    assert!(
        text.contains("gen_ai.client.token.usage") && text.contains("gen_ai.client.operation.duration"),
        "{text}"
    );
    assert!(text.contains("\"service.name\"") && text.contains("1.2.3"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_is_truncated_and_a_waiting_run_ends_its_span_at_exit() {
    let collector = Collector::new();
    let otlp = Otlp::start(&format!("{}/", collector.url), "1").unwrap();
    otlp.on_inference(&GenAISpan {
        input: Some("ä".repeat(100_000)),
        error_type: Some("error".into()),
        ..inference()
    });
    otlp.end().await;
    let spans = spans(&collector.all().0);
    assert_eq!(spans.len(), 2, "{spans:#?}");
    let chat = spans.iter().find(|span| span["name"] == "chat gpt-x").unwrap();
    assert_eq!(attribute(chat, "gen_ai.input.messages").unwrap().as_str().unwrap().len(), 64 * 1024);
    assert_eq!(attribute(chat, "error.type").unwrap(), "error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_collector_delays_nobody() {
    let otlp = Otlp::start("http://127.0.0.1:1", "1").unwrap();
    otlp.on_inference(&inference());
    let begun = std::time::Instant::now();
    otlp.end().await;
    assert!(begun.elapsed() < Duration::from_secs(10));
}
