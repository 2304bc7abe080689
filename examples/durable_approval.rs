//! A question that outlives its process: the first start asks and ends, the second one finds the question in the store,
//! answers it, and the call runs. A third one has nothing to do.
//!
//! ```sh
//! cargo run --example durable_approval -- /tmp/durable   # asks
//! cargo run --example durable_approval -- /tmp/durable   # says yes
//! ```

#![expect(clippy::print_stdout, reason = "a program of its own")]

use std::sync::Arc;

use async_trait::async_trait;
use aye::contract::event_sink::VecEventSink;
use aye::contract::ids::ThreadId;
use aye::contract::message::Message;
use aye::contract::suspension::{Actor, ToolCallResume};
use aye::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};
use aye::engine::{ScriptedExecutor, ScriptedReply};
use aye::ext_permission::PermissionPlugin;
use aye::runtime::{RuntimeError, UnknownPolicy};
use aye::stores::FileStore;
use aye::{AgentRuntimeBuilder, AgentSpec, ModelSpec, RunRequest};
use serde_json::{Value, json};

struct Deploy;

#[async_trait]
impl Tool for Deploy {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("deploy", "Deploy", "Brings a version to production").with_parameters(json!({
            "type": "object",
            "properties": {"version": {"type": "string"}},
            "required": ["version"]
        }))
    }

    async fn execute(&self, args: Value, _ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        Ok(ToolResult::success("deploy", json!({"deployed": args["version"]})).into())
    }
}

/// Creates a model that calls `deploy` on a message, and reports when that is done.
fn model() -> ScriptedExecutor {
    ScriptedExecutor::from_fn(|request| {
        let has_result = request.messages.iter().any(|message| message.tool_call_id.is_some());
        if has_result {
            ScriptedReply::new().text("Version 1.2 is live.")
        } else {
            ScriptedReply::new().call("deploy", json!({"version": "1.2"}))
        }
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder =
        std::env::args().nth(1).ok_or("say where to keep the conversation: durable_approval FOLDER")?;
    let runtime = AgentRuntimeBuilder::new()
        .with_thread_run_store(Arc::new(FileStore::new(folder)))
        .with_plugin("permission", Arc::new(PermissionPlugin))
        .with_tool("deploy", Arc::new(Deploy))
        .with_agent_spec(AgentSpec::new("assistant").with_model("script"))
        .with_provider("script", Arc::new(model()))
        .with_model(
            "script",
            ModelSpec { id: "script".into(), provider: "script".into(), model: "script".into() },
        )
        .build()?;
    let thread = ThreadId::from("release");
    let sink = Arc::new(VecEventSink::new());

    if let Some(question) = runtime.waiting(&thread).await?.first() {
        runtime
            .decide(&question.id, ToolCallResume::approve(), Actor { user: "me".into(), ..Actor::default() })
            .await?;
    }
    let is_known = runtime.store().load_thread(&thread).await?.is_some();
    let result = if is_known {
        match runtime.resume(&thread, sink, UnknownPolicy::Ask).await {
            Err(RuntimeError::NothingToResume { .. }) => {
                println!("nothing is left to do");
                return Ok(());
            }
            other => other?,
        }
    } else {
        let request = RunRequest::new(thread, vec![Message::user("Deploy version 1.2")]);
        runtime.run(request, sink).await?
    };
    for question in &result.waiting {
        println!("waiting: {}", question.ticket.suspension.message);
    }
    if !result.response.is_empty() {
        println!("answer: {}", result.response);
    }
    runtime.store().close().await;
    Ok(())
}
