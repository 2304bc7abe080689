//! The book's "First Tool": the tool of its second step, registered and run as in its third and fourth, checked as in
//! its fifth. Changed are the crate's name and the model's entry, which the book's snippets leave out and its own
//! `build` asks for. It wants `OPENAI_API_KEY`; `OPENAI_BASE_URL` leads it to another server.

#![expect(clippy::print_stdout, reason = "a program of its own")]
#![expect(clippy::uninlined_format_args, reason = "the text is the book's")]

use aye::{KeyScope, MergeStrategy, StateKey};
struct GreetCount;
impl StateKey for GreetCount {
    const KEY: &'static str = "greet_count";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    const SCOPE: KeyScope = KeyScope::Run;
    type Value = u32;
    type Update = u32;
    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value += update;
    }
}
use async_trait::async_trait;
use aye::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};
use serde_json::{Value, json};
use std::sync::Arc;

struct GreetTool;

#[async_trait]
impl Tool for GreetTool {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("greet", "Greet", "Greet a user by name").with_parameters(json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "Name to greet" }
            },
            "required": ["name"]
        }))
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        args["name"]
            .as_str()
            .filter(|s| !s.is_empty())
            .ok_or_else(|| ToolError::InvalidArguments("name is required".into()))?;
        Ok(())
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let name = args["name"].as_str().unwrap_or("world");

        // Read state -- returns None if the key has not been set yet.
        let count = ctx.state::<GreetCount>().copied().unwrap_or(0);

        Ok(ToolResult::success(
            "greet",
            json!({
                "greeting": format!("Hello, {}!", name),
                "times_greeted": count,
            }),
        )
        .into())
    }
}

use aye::AgentRuntimeBuilder;
use aye::RunRequest;
use aye::contract::event::AgentEvent;
use aye::contract::event_sink::VecEventSink;
use aye::contract::message::Message;
use aye::engine::GenaiExecutor;
use aye::registry::ModelEntry;
use aye::registry_spec::AgentSpec;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent_spec = AgentSpec::new("assistant")
        .with_model("gpt-4o-mini")
        .with_system_prompt("You are a helpful assistant. Use the greet tool when asked.")
        .with_max_rounds(5);

    let runtime = AgentRuntimeBuilder::new()
        .with_agent_spec(agent_spec)
        .with_tool("greet", Arc::new(GreetTool))
        .with_provider("openai", Arc::new(GenaiExecutor::new()))
        .with_model("gpt-4o-mini", ModelEntry { provider: "openai".into(), model_name: "gpt-4o-mini".into() })
        .build()?;
    let request = RunRequest::new("thread-1", vec![Message::user("Greet Alice")]).with_agent_id("assistant");

    let sink = Arc::new(VecEventSink::new());
    runtime.run(request, sink.clone()).await?;

    let events = sink.take();
    let tool_done = events
        .iter()
        .any(|e| matches!(e, AgentEvent::ToolCallDone { id: _, message_id: _, result: _, outcome: _ }));
    println!("tool_call_done_seen: {}", tool_done);
    Ok(())
}
