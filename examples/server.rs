//! A program that serves its own agent over HTTP. Its tool asks before it acts, and the answer comes over HTTP as well;
//! the browser page at `/` shows both. It prints the token that requests need. An address may follow it on the command
//! line: `cargo run --example server -- 127.0.0.1:3001`.

#![expect(clippy::print_stdout, reason = "a program of its own")]

use std::sync::Arc;

use async_trait::async_trait;
use aye::contract::tool::{Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult};
use aye::engine::{ScriptedExecutor, ScriptedReply};
use aye::ext_permission::PermissionPlugin;
use aye::registry::ModelEntry;
use aye::server::app::{AppState, ServerConfig};
use aye::server::mailbox::{Mailbox, MailboxConfig};
use aye::server::routes::build_router;
use aye::stores::{InMemoryMailboxStore, InMemoryStore};
use aye::{AgentRuntimeBuilder, AgentSpec};
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

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A script instead of a model, so that the example needs no key.
    let model = ScriptedExecutor::from_fn(|request| {
        if request.messages.last().is_some_and(|message| message.tool_call_id.is_some()) {
            ScriptedReply::new().text("Version 1.2 is live.")
        } else {
            ScriptedReply::new().call("deploy", json!({"version": "1.2"}))
        }
    });
    let store = Arc::new(InMemoryStore::new());
    let runtime = AgentRuntimeBuilder::new()
        .with_thread_run_store(Arc::clone(&store))
        .with_plugin("permission", Arc::new(PermissionPlugin))
        .with_tool("deploy", Arc::new(Deploy))
        .with_agent_spec(AgentSpec::new("assistant").with_model("script"))
        .with_provider("script", Arc::new(model))
        .with_model("script", ModelEntry { provider: "script".into(), model_name: "script".into() })
        .build()?;
    let runtime = Arc::new(runtime);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    // With port 0 the system chooses one.
    let address = listener.local_addr()?.to_string();

    let mailbox_store = Arc::new(InMemoryMailboxStore::new());
    let mailbox =
        Mailbox::new(runtime.clone(), mailbox_store, "example".to_owned(), MailboxConfig::default());
    let config = ServerConfig { address: address.clone(), ..ServerConfig::default() };
    let resolver = runtime.resolver_arc();
    let state = AppState::new(runtime, Arc::new(mailbox), store, resolver, config);
    println!("http://{address}/#token={}", state.token());

    axum::serve(listener, build_router().with_state(state)).await?;
    Ok(())
}
