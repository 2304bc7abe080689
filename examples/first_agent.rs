//! The book's "First Agent": nothing is changed but the crate's name. It wants `OPENAI_API_KEY`; `OPENAI_BASE_URL`
//! leads it to another server.

#![expect(clippy::print_stdout, reason = "a program of its own")]
#![expect(clippy::uninlined_format_args, reason = "the text is the book's")]

use async_trait::async_trait;
use aye::contract::event::AgentEvent;
use aye::contract::event_sink::VecEventSink;
use aye::contract::message::Message;
use aye::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};
use aye::engine::GenaiExecutor;
use aye::registry::ModelEntry;
use aye::registry_spec::AgentSpec;
use aye::{AgentRuntimeBuilder, RunRequest};
use serde_json::{Value, json};
use std::sync::Arc;

struct EchoTool;

#[async_trait]
impl Tool for EchoTool {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("echo", "Echo", "Echo input back to the caller").with_parameters(json!({
            "type": "object",
            "properties": { "text": { "type": "string" } },
            "required": ["text"]
        }))
    }

    async fn execute(&self, args: Value, _ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let text = args["text"].as_str().unwrap_or_default();
        Ok(ToolResult::success("echo", json!({ "echoed": text })).into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent_spec = AgentSpec::new("assistant")
        .with_model("gpt-4o-mini")
        .with_system_prompt("You are a helpful assistant. Use the echo tool when asked.")
        .with_max_rounds(5);

    let runtime = AgentRuntimeBuilder::new()
        .with_agent_spec(agent_spec)
        .with_tool("echo", Arc::new(EchoTool))
        .with_provider("openai", Arc::new(GenaiExecutor::new()))
        .with_model("gpt-4o-mini", ModelEntry { provider: "openai".into(), model_name: "gpt-4o-mini".into() })
        .build()?;

    let request = RunRequest::new("thread-1", vec![Message::user("Say hello using the echo tool")])
        .with_agent_id("assistant");

    let sink = Arc::new(VecEventSink::new());
    runtime.run(request, sink.clone()).await?;

    let events = sink.take();
    println!("events: {}", events.len());

    let finished = events.iter().any(|e| matches!(e, AgentEvent::RunFinish { .. }));
    println!("run_finish_seen: {}", finished);

    Ok(())
}
