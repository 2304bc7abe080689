//! `aye hooks`: lists the hooks in force, and runs one for an event from stdin.

use std::fmt::Write as _;
use std::io::Read as _;
use std::time::Instant;

use clap::Subcommand;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cli::shared::JsonFlag;
use crate::cli::start::StartFlags;
use crate::commands::put_json;
use crate::contract::display::{shell_word, visible_line};
use crate::contract::message::ToolCall;
use crate::contract::tool::SpawnContext;
use crate::failure::{AppError, Failure};
use crate::phase::{PhaseContext, ToolCallInfo};
use crate::plugins::hooks::{HookOutput, HookRunner, HookSpec, event, phase_name, request};
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::hooks::{HookCommands, in_force, projects};
use crate::program::programs::ProjectPrograms;
use crate::program::put;
use crate::tools;
use crate::tui::host::TextPage;

/// `aye hooks ...`
#[derive(Clone, Debug, Subcommand)]
pub enum HooksCommand {
    /// List the hooks of this folder, including those unused until it is trusted
    List(JsonFlag),
    /// Run a hook on an event from stdin and show what its answer would do; nothing else runs
    #[command(
        after_help = "Example:\n  echo '{\"call\":{\"name\":\"Bash\",\"arguments\":{\"command\":\"git push\"}}}' | aye hooks test no-push"
    )]
    Test {
        /// Name of the hook; `aye hooks list` shows it
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}

/// The maximum size of an event, in bytes.
const MAX_EVENT: u64 = 10 << 20;

pub(crate) async fn run(
    command: HooksCommand,
    foundation: &mut Foundation,
    cli: &StartFlags,
) -> Result<u8, Failure> {
    match command {
        HooksCommand::List(JsonFlag { json }) => list(json, foundation),
        HooksCommand::Test { name, json } => {
            let programs = ProjectPrograms::alone(foundation, cli)?;
            test(&name, json, foundation, programs).await
        }
    }
}

fn list(json: bool, foundation: &Foundation) -> Result<u8, Failure> {
    let mut rows: Vec<(HookSpec, bool)> =
        in_force(foundation)?.into_iter().map(|hook| (hook, true)).collect();
    if !foundation.is_trusted {
        // These hooks are not used, so errors in them do not matter yet.
        rows.extend(projects(foundation).unwrap_or_default().into_iter().map(|hook| (hook, false)));
    }
    if json {
        let row = |(hook, is_used): &(HookSpec, bool)| {
            json!({
                "name": hook.name,
                "phase": phase_name(hook.phase),
                "tool": hook.tool.as_ref().map(ToString::to_string),
                "command": hook.command,
                "timeout_ms": u64::try_from(hook.timeout.as_millis()).unwrap_or(u64::MAX),
                "layer": hook.layer.as_str(),
                "profile": hook.layer.profile(),
                "domains": domains(hook),
                "origin": hook.origin,
                "used": is_used,
            })
        };
        put_json(&rows.iter().map(row).collect())?;
        return Ok(0);
    }
    if rows.is_empty() {
        crate::program::put_stderr(&no_hooks(foundation));
    }
    put(&lines(&rows))?;
    Ok(0)
}

/// The page of `/hooks`.
pub(crate) fn page(app: &AppContext) -> Result<TextPage, AppError> {
    let rows: Vec<(HookSpec, bool)> =
        in_force(&app.foundation)?.into_iter().map(|hook| (hook, true)).collect();
    let text = if rows.is_empty() { format!("{}\n", no_hooks(&app.foundation)) } else { lines(&rows) };
    Ok(TextPage { title: "Hooks in force".to_owned(), text, ..TextPage::default() })
}

fn no_hooks(foundation: &Foundation) -> String {
    let file = foundation.paths.display(&foundation.paths.hooks_file());
    format!("no hooks; add them in {file} or in a project's .aye/hooks.toml")
}

fn lines(rows: &[(HookSpec, bool)]) -> String {
    let mut out = String::new();
    for (hook, is_used) in rows {
        let tool = hook.tool.as_ref().map(|tool| format!(" {tool}")).unwrap_or_default();
        let unused = if *is_used { "" } else { "  (not used: this folder is not trusted)" };
        let (name, phase) = (&hook.name, phase_name(hook.phase));
        let _ = writeln!(out, "{name}  {phase}{}{unused}", visible_line(&tool));
        let _ = writeln!(out, "    {}", visible_line(&words(&hook.command)));
        let _ = write!(out, "    at most {} s, {}", hook.timeout.as_secs_f64(), hook.layer.profile());
        if !hook.domains.is_empty() {
            let _ = write!(out, " with {}", domains(hook).join(", "));
        }
        let _ = writeln!(out, ", {}", hook.origin);
    }
    out
}

fn domains(hook: &HookSpec) -> Vec<String> {
    hook.domains.iter().map(ToString::to_string).collect()
}

/// Returns the words of a command, quoted where needed.
fn words(command: &[String]) -> String {
    command.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

async fn test(
    name: &str,
    json: bool,
    foundation: &Foundation,
    programs: ProjectPrograms,
) -> Result<u8, Failure> {
    let hooks = in_force(foundation)?;
    let hook = hooks.iter().find(|hook| hook.name == name).ok_or_else(|| {
        Failure::usage(format!(
            "unknown hook `{}`; `aye hooks list` shows those in force",
            visible_line(name)
        ))
    })?;
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(MAX_EVENT)
        .read_to_string(&mut text)
        .map_err(|e| Failure::failed(format!("cannot read the event from stdin: {e}")))?;
    let given: Value = match text.trim() {
        "" => json!({}),
        text => serde_json::from_str(text)
            .map_err(|e| Failure::usage(format!("the event on stdin is not valid JSON: {e}")))?,
    };
    let Value::Object(given) = given else {
        return Err(Failure::usage("the event on stdin must be a JSON object, such as {\"call\": {…}}"));
    };
    let call = given.get("call").map(|call| {
        let text = |key: &str| call[key].as_str().unwrap_or_default().to_owned();
        let call = ToolCall::new(
            text("id"),
            text("name"),
            call.get("arguments").cloned().unwrap_or_else(|| json!({})),
        );
        let tool = tools::builtin(crate::program::parts::tool_env(foundation))
            .into_iter()
            .find(|t| t.descriptor().id == call.name);
        ToolCallInfo::new(call, tool.map(|tool| tool.descriptor()))
    });
    let is_about = call.as_ref().is_none_or(|call| hook.is_about(call));
    let mut ctx = PhaseContext::test_default().with_phase(hook.phase);
    ctx.tool = call;
    let cwd = &foundation.workspace.cwd;
    // Missing members are taken from an example event of this phase.
    let mut input = event(hook, &ctx, &cwd.to_string_lossy());
    if let Some(object) = input.as_object_mut() {
        object.extend(given);
    }
    let asked = request(
        hook,
        cwd,
        &foundation.workspace.home,
        input.to_string().into_bytes(),
        SpawnContext::default(),
    );
    let runner = HookCommands { programs };
    let began = Instant::now();
    let output = runner.run(asked, &CancellationToken::new()).await;
    let took = began.elapsed();
    let (answer, output) = match output {
        Ok(output) => (hook.answer_of(&output), output),
        Err(why) => (Err(why.into()), HookOutput::default()),
    };
    if json {
        put_json(&json!({
            "hook": hook.name,
            "origin": hook.origin,
            "phase": phase_name(hook.phase),
            "about_this_call": is_about,
            "exit": output.exit_code,
            "duration_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "stderr": output.stderr,
            "answer": answer.as_ref().ok(),
            "failed": answer.as_ref().err().map(ToString::to_string),
        }))?;
    } else {
        let mut out = String::new();
        let exit =
            output.exit_code.map_or_else(|| "no exit status".to_owned(), |code| format!("exit {code}"));
        let _ = writeln!(
            out,
            "{} at {}: {exit} after {:.2} s",
            hook.name,
            phase_name(hook.phase),
            took.as_secs_f64()
        );
        if !is_about {
            let _ = writeln!(out, "its pattern does not match this call; it would not run");
        }
        match &answer {
            Ok(answer) => {
                let _ = writeln!(out, "answers {}", visible_line(&answer.summary()));
            }
            Err(why) => {
                let then = if hook.phase == crate::state::Phase::BeforeToolExecute {
                    "the call would not run"
                } else {
                    "a warning; the run would continue"
                };
                let _ = writeln!(out, "failed: it {}; {then}", visible_line(&why.to_string()));
            }
        }
        for line in output.stderr.lines() {
            let _ = writeln!(out, "  stderr: {}", visible_line(line));
        }
        put(&out)?;
    }
    Ok(u8::from(answer.is_err()))
}
