//! `aye gate`: rules, questions and the audit between any agent and any MCP server, and as the permission hook of another
//! agent.

mod hook;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use clap::{Args, Subcommand};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cli::start::StartFlags;
use crate::cli::time::span;
use crate::config::ServerSettings;
use crate::contract::ids::ThreadId;
use crate::contract::tool::ToolResult;
use crate::failure::Failure;
use crate::mcp::ServerState;
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::gate::{CallGate, DoneCall, GateCall, GateEnd};
use crate::program::permit::GateKind;
use crate::program::put_stderr;
use crate::server::{GateHost, GatedTool, serve_gate};

/// `aye gate`
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  aye gate -- npx -y @modelcontextprotocol/server-filesystem .\n  aye gate --name tickets \
                  --url https://example.org/mcp\n  aye gate hook"
)]
pub struct GateArgs {
    /// The subcommand; without one, stand before an MCP server
    #[command(subcommand)]
    pub command: Option<GateCommand>,
    /// Name of the server in rules and questions: its tools are mcp__NAME__TOOL; by default that of its program or host
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// URL of a server over HTTP
    #[arg(long, value_name = "URL", conflicts_with = "program")]
    pub url: Option<String>,
    /// A header of each request, such as 'Authorization=Bearer ${TOKEN}'
    #[arg(long, value_name = "NAME=VALUE", requires = "url")]
    pub header: Vec<String>,
    /// A variable that the program gets
    #[arg(long, value_name = "NAME=VALUE", requires = "program")]
    pub env: Vec<String>,
    /// Program of a server over stdin and stdout, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub program: Vec<String>,
}

/// `aye gate ...`
#[derive(Clone, Debug, Subcommand)]
pub enum GateCommand {
    /// Answer the permission hook of Claude Code, Codex, Gemini CLI or opencode
    ///
    /// Reads one call from stdin and writes the decision to stdout. Your rules decide; what they ask about becomes a
    /// question in the inbox. Without an answer in time, the call is denied, and the answer is there when the agent asks
    /// again with the same call. Exit status 2 denies a call that cannot be judged.
    Hook {
        /// How long to wait for an answer; the agent's own limit should be longer
        #[arg(long, value_name = "TIME", default_value = "50s", value_parser = span)]
        wait: Duration,
    },
}

pub(crate) async fn run(args: GateArgs, foundation: Foundation, cli: &StartFlags) -> Result<u8, Failure> {
    match args.command {
        Some(GateCommand::Hook { wait }) => Ok(hook::run(wait, foundation, cli).await),
        None => stand(args, foundation, cli).await,
    }
}

fn pairs(flag: &str, given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err(Failure::usage(format!("{flag}: expected NAME=VALUE"))),
    };
    given.iter().map(pair).collect()
}

/// The name of a server that was given none.
fn name_of(args: &GateArgs) -> Option<String> {
    if let Some(url) = &args.url {
        let host = url.split("://").nth(1)?.split(['/', ':', '?']).next()?;
        return Some(host.to_owned()).filter(|host| !host.is_empty());
    }
    // What a runner such as npx starts says more than the runner.
    let package = args.program.iter().skip(1).find(|word| !word.starts_with('-'));
    let is_runner =
        matches!(args.program.first()?.as_str(), "npx" | "uvx" | "bunx" | "pnpx" | "node" | "python3" | "sh");
    let named = package.filter(|_| is_runner).or(args.program.first())?;
    let file = Path::new(named).file_stem()?.to_string_lossy().into_owned();
    Some(file.split('@').next().filter(|name| !name.is_empty()).unwrap_or(&file).to_owned())
}

/// Stands before an MCP server until the client goes.
async fn stand(args: GateArgs, mut foundation: Foundation, cli: &StartFlags) -> Result<u8, Failure> {
    if args.url.is_none() && args.program.is_empty() {
        return Err(Failure::usage(
            "no server; name a program after --, as in aye gate -- PROGRAM, or --url URL",
        ));
    }
    let name = args
        .name
        .clone()
        .or_else(|| name_of(&args))
        .ok_or_else(|| Failure::usage("the server has no name; give it one with --name"))?;
    let settings = ServerSettings {
        command: args.program.first().cloned(),
        args: args.program.iter().skip(1).cloned().collect(),
        env: pairs("--env", &args.env)?,
        headers: pairs("--header", &args.header)?,
        url: args.url,
        ..ServerSettings::default()
    };
    foundation.loaded.settings.mcp_servers = BTreeMap::from([(name.clone(), settings)]);
    foundation.gate = GateKind::Server;
    let _log = crate::logging::to_file(&foundation.paths.log_dir());
    let app = Arc::new(AppContext::build(foundation, cli).await?);
    app.warn_on_stderr();
    app.mcp.ready().await;
    let view = app.mcp.manager.look(&name).map_err(Failure::failed)?;
    if let ServerState::Failed { why, .. } = &view.phase {
        app.mcp.manager.close().await;
        return Err(Failure::failed(format!("the server {name} cannot be used: {why}")));
    }
    let gate = Arc::new(CallGate::new(Arc::clone(&app), &name)?);
    let host = Arc::new(ServerGate { app: Arc::clone(&app), gate, server: name, active: Mutex::default() });
    let served = serve_gate(host).await.map_err(Failure::failed);
    app.mcp.manager.close().await;
    app.notifier.finish().await;
    app.telemetry.end().await;
    app.store.leave().await;
    served.map(|()| 0)
}

/// Reports how a call that is served ended.
type CallEnd = watch::Receiver<Option<Result<DoneCall, String>>>;

/// A call that this process serves.
struct ActiveCall {
    call: GateCall,
    place: Arc<OnceLock<ThreadId>>,
    end: CallEnd,
}

struct ServerGate {
    app: Arc<AppContext>,
    gate: Arc<CallGate>,
    server: String,
    active: Mutex<Vec<ActiveCall>>,
}

impl ServerGate {
    /// Starts to serve a call, unless the same one is being served: its result is for both.
    fn begin(&self, call: GateCall) -> (CallEnd, Arc<OnceLock<ThreadId>>) {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        active.retain(|known| known.end.borrow().is_none() && known.end.has_changed().is_ok());
        if let Some(known) = active.iter().find(|known| known.call == call) {
            return (known.end.clone(), Arc::clone(&known.place));
        }
        let (report, end) = watch::channel(None);
        let (gate, place) = (Arc::clone(&self.gate), Arc::<OnceLock<ThreadId>>::default());
        active.push(ActiveCall { call: call.clone(), place: Arc::clone(&place), end: end.clone() });
        let at = Arc::clone(&place);
        // It goes on when the client gives up: the answer to its question is not lost.
        tokio::spawn(async move {
            let ended = match gate.serve(&call, None, &at).await {
                Ok(GateEnd::Done(done)) => Ok(*done),
                Ok(GateEnd::Waiting(questions)) => Err(waiting(&questions)),
                Err(error) => Err(error.to_string()),
            };
            report.send_replace(Some(ended));
        });
        (end, place)
    }
}

/// Says that a call waits, to the agent that made it.
fn waiting(questions: &[crate::contract::record::SuspensionRecord]) -> String {
    let commands: Vec<String> =
        questions.iter().map(|question| format!("`{}`", question.ticket.answer_command())).collect();
    let how = if commands.is_empty() { "`aye inbox` lists it".to_owned() } else { commands.join(" or ") };
    format!(
        "The call did not run: it waits for the user, who can answer with {how}. Make the same call again later; the \
         answer is kept for it."
    )
}

impl GateHost for ServerGate {
    fn name(&self) -> String {
        self.server.clone()
    }

    fn tools(&self) -> Vec<GatedTool> {
        let view = self.app.mcp.manager.look(&self.server);
        let tools = view.map(|view| view.tools).unwrap_or_default();
        let offered = tools.into_iter().filter(|tool| tool.is_offered);
        offered
            .map(|tool| GatedTool { name: tool.name, description: tool.description, schema: tool.schema })
            .collect()
    }

    fn call(
        &self,
        tool: String,
        arguments: Value,
        given_up: CancellationToken,
    ) -> BoxFuture<'_, Result<ToolResult, String>> {
        Box::pin(async move {
            let view = self.app.mcp.manager.look(&self.server).map_err(|error| error.to_string())?;
            let known = view.tools.into_iter().find(|known| known.name == tool && known.is_offered);
            let Some(known) = known else { return Err(format!("unknown tool `{tool}`")) };
            let (mut end, place) = self.begin(GateCall { tool: known.id, arguments });
            let ended = tokio::select! {
                ended = end.wait_for(Option::is_some) => match ended {
                    Ok(ended) => ended.clone().unwrap_or_else(|| Err("the call ended without a result".to_owned())),
                    Err(_) => Err("the gate is closing".to_owned()),
                },
                () = given_up.cancelled() => {
                    // A question that is pending stays pending.
                    if let Some(thread) = place.get() {
                        self.app.runtime.cancel(thread);
                    }
                    return Err("cancelled".to_owned());
                }
            };
            let done = ended?;
            if let Err(error) = self.gate.hand_over(&done).await {
                put_stderr(&format!("aye: {error}"));
            }
            Ok(done.result)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(words: &[&str]) -> Option<String> {
        let args = GateArgs {
            command: None,
            name: None,
            url: words.first().filter(|word| word.contains("://")).map(|word| (*word).to_owned()),
            header: Vec::new(),
            env: Vec::new(),
            program: words.iter().map(|word| (*word).to_owned()).collect(),
        };
        name_of(&args)
    }

    #[test]
    fn a_server_without_a_name_is_called_like_its_program_or_host() {
        for (words, name) in [
            (&["npx", "-y", "@modelcontextprotocol/server-filesystem", "."][..], "server-filesystem"),
            (&["uvx", "mcp-server-git@1.2"], "mcp-server-git"),
            (&["/usr/bin/tickets", "serve"], "tickets"),
            (&["python3", "tools/shed.py"], "shed"),
            (&["https://example.org:8443/mcp"], "example.org"),
        ] {
            assert_eq!(named(words).as_deref(), Some(name), "{words:?}");
        }
    }
}
