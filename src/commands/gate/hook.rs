//! `aye gate hook`: one question of another agent's permission hook.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::waiting;
use crate::cli::start::StartFlags;
use crate::config::PermissionMode;
use crate::failure::Failure;
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::gate::{CallGate, GateCall, GateEnd, deadline};
use crate::program::permit::{GateKind, PermitTool};
use crate::program::{put, put_stderr};

/// The largest question that is read, in bytes.
const MAX_QUESTION: u64 = 8 << 20;
/// The status at which each of these agents blocks the call, whatever is printed.
const BLOCKS: u8 = 2;

/// What a hook reads, as far as it matters here.
#[derive(Debug, Deserialize)]
struct HookInput {
    hook_event_name: String,
    tool_name: String,
    #[serde(default)]
    tool_input: Value,
    #[serde(default)]
    cwd: Option<PathBuf>,
}

/// The form in which an agent wants the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HookForm {
    /// Claude Code and Codex, before each call.
    PreToolUse,
    /// Claude Code and Codex, in place of their own question.
    PermissionRequest,
    /// Gemini CLI.
    BeforeTool,
    /// The plugin for opencode.
    Opencode,
}

impl HookForm {
    fn of(event: &str) -> Option<Self> {
        match event {
            "PreToolUse" => Some(Self::PreToolUse),
            "PermissionRequest" => Some(Self::PermissionRequest),
            "BeforeTool" => Some(Self::BeforeTool),
            "tool.execute.before" => Some(Self::Opencode),
            _ => None,
        }
    }

    /// The name of the agent, for titles and for the results that are kept for it.
    fn who(self) -> &'static str {
        match self {
            Self::PreToolUse | Self::PermissionRequest => "hook",
            Self::BeforeTool => "gemini",
            Self::Opencode => "opencode",
        }
    }

    fn decision(self, is_allowed: bool, why: &str) -> Value {
        let word = if is_allowed { "allow" } else { "deny" };
        match self {
            Self::PreToolUse => json!({"hookSpecificOutput": {
                "hookEventName": "PreToolUse", "permissionDecision": word, "permissionDecisionReason": why,
            }}),
            Self::PermissionRequest if is_allowed => json!({"hookSpecificOutput": {
                "hookEventName": "PermissionRequest", "decision": {"behavior": "allow"},
            }}),
            Self::PermissionRequest => json!({"hookSpecificOutput": {
                "hookEventName": "PermissionRequest", "decision": {"behavior": "deny", "message": why},
            }}),
            Self::BeforeTool | Self::Opencode => json!({"decision": word, "reason": why}),
        }
    }
}

/// The names of members that another agent gives to what aye's tools call otherwise.
const RENAMED: [(&str, &str); 5] = [
    ("filePath", "file_path"),
    ("absolute_path", "file_path"),
    ("oldString", "old_string"),
    ("newString", "new_string"),
    ("dir_path", "path"),
];

/// The call in the terms of aye's own tools, so that the same rules are about it. A tool that aye does not have keeps its
/// name.
///
/// # Errors
/// Two members would become one: which of them the other agent takes is not known.
fn in_our_terms(form: HookForm, tool: &str, input: Value) -> Result<GateCall, Failure> {
    let name = match (form, tool) {
        (HookForm::BeforeTool, "run_shell_command") | (HookForm::Opencode, "bash") => "Bash",
        (_, "shell" | "local_shell" | "exec_command") => "Bash",
        (HookForm::BeforeTool, "read_file") | (HookForm::Opencode, "read") => "Read",
        (HookForm::BeforeTool, "write_file") | (HookForm::Opencode, "write") => "Write",
        (HookForm::BeforeTool, "replace") | (HookForm::Opencode, "edit") | (_, "MultiEdit") => "Edit",
        (HookForm::BeforeTool, "list_directory") | (HookForm::Opencode, "list") | (_, "LS") => "List",
        (HookForm::BeforeTool | HookForm::Opencode, "glob") => "Glob",
        (HookForm::BeforeTool, "grep_search" | "search_file_content") | (HookForm::Opencode, "grep") => {
            "Grep"
        }
        (HookForm::Opencode, "webfetch") => "WebFetch",
        (_, own) => own,
    };
    let Value::Object(given) = input else {
        return Ok(GateCall { tool: name.to_owned(), arguments: json!({}) });
    };
    let mut arguments = Map::new();
    for (theirs, mut value) in given {
        let ours = match theirs.as_str() {
            "command" | "input" if name == "apply_patch" => "patch",
            key if name != tool || is_path(name) => {
                RENAMED.iter().find(|(theirs, _)| *theirs == key).map_or(key, |(_, ours)| ours)
            }
            key => key,
        };
        // What is no list of words stays as it is, and Bash takes no such command.
        if (name, ours) == ("Bash", "command")
            && let Some(line) = value.as_array().and_then(|words| command_line(words))
        {
            value = line.into();
        }
        if arguments.insert(ours.to_owned(), value).is_some() {
            return Err(Failure::usage(format!("{tool} has `{ours}` twice, by two names")));
        }
    }
    Ok(GateCall { tool: name.to_owned(), arguments: Value::Object(arguments) })
}

fn is_path(tool: &str) -> bool {
    matches!(tool, "Read" | "Write" | "Edit" | "List")
}

/// A command that was given as words, as one line; that of a shell's `-c` is the line itself.
fn command_line(words: &[Value]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(Value::as_str).collect::<Option<_>>()?;
    if let [shell, flag, line] = words.as_slice()
        && matches!(shell.rsplit('/').next(), Some("bash" | "sh" | "zsh"))
        && matches!(*flag, "-c" | "-lc")
    {
        return Some((*line).to_owned());
    }
    shlex::try_join(words.iter().copied()).ok().filter(|line| !line.is_empty())
}

/// Answers one question. What cannot be judged is blocked.
pub(super) async fn run(wait: Duration, foundation: Foundation, cli: &StartFlags) -> u8 {
    match decide(wait, foundation, cli).await {
        Ok(()) => 0,
        Err(failure) => {
            put_stderr(&format!("aye: the call is denied: {}", failure.message));
            BLOCKS
        }
    }
}

fn question() -> Result<(HookForm, HookInput), Failure> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MAX_QUESTION + 1).read_to_string(&mut text);
    read.map_err(|error| Failure::failed(format!("stdin cannot be read: {error}")))?;
    if text.len() as u64 > MAX_QUESTION {
        return Err(Failure::usage("stdin has more than 8 MiB"));
    }
    let input: HookInput = serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!(
            "stdin is not a hook's input ({error}); expected an object with hook_event_name, tool_name and tool_input"
        ))
    })?;
    let form = HookForm::of(&input.hook_event_name).ok_or_else(|| {
        Failure::usage(format!(
            "unknown hook event `{}`; expected PreToolUse, PermissionRequest, BeforeTool or tool.execute.before",
            input.hook_event_name
        ))
    })?;
    Ok((form, input))
}

async fn decide(wait: Duration, foundation: Foundation, cli: &StartFlags) -> Result<(), Failure> {
    let until = deadline(wait);
    let (form, input) = question()?;
    let mut cli = cli.clone();
    let mut foundation = match input.cwd.filter(|cwd| *cwd != foundation.workspace.cwd) {
        Some(cwd) => {
            cli.global.cd = Some(cwd);
            Foundation::load(&cli, foundation.env)?
        }
        None => foundation,
    };
    foundation.gate = GateKind::Hook;
    let settings = &mut foundation.loaded.settings;
    // The other agent runs its calls outside of aye's sandbox.
    settings.sandbox.enabled = false;
    if settings.permission_mode == PermissionMode::Auto {
        settings.permission_mode = PermissionMode::Ask;
    }
    settings.mcp_servers.clear();
    let _log = crate::logging::to_file(&foundation.paths.log_dir());
    let call = in_our_terms(form, &input.tool_name, input.tool_input)?;
    let app = Arc::new(AppContext::build(foundation, &cli).await?);
    if app.runtime.catalog().tool(&call.tool).is_none() {
        app.runtime.set_tools("gate", vec![PermitTool::named(&call.tool)]);
        app.permission.set_tools(app.runtime.catalog().tool_ids().map(str::to_owned).collect());
    }
    let gate = CallGate::new(Arc::clone(&app), form.who())?;
    let end = gate.serve(&call, until, &OnceLock::new()).await.map_err(Failure::failed)?;
    let decision = match end {
        GateEnd::Waiting(questions) => form.decision(false, &waiting(&questions)),
        GateEnd::Done(done) => {
            // Before the agent knows: a call is allowed once at most.
            gate.hand_over(&done).await.map_err(Failure::failed)?;
            form.decision(done.is_allowed(), &done.result.model_text())
        }
    };
    app.notifier.finish().await;
    app.telemetry.end().await;
    app.store.leave().await;
    put(&format!("{decision}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(form: HookForm, tool: &str, input: Value) -> (String, Value) {
        let call = in_our_terms(form, tool, input).expect("no member is there twice");
        (call.tool, call.arguments)
    }

    #[test]
    fn calls_of_other_agents_are_in_the_terms_of_our_rules() {
        use HookForm::{BeforeTool, Opencode, PermissionRequest, PreToolUse};
        for (form, tool, input, name, arguments) in [
            (PreToolUse, "Bash", json!({"command": "ls"}), "Bash", json!({"command": "ls"})),
            (
                PermissionRequest,
                "shell",
                json!({"command": ["bash", "-lc", "git push"]}),
                "Bash",
                json!({"command": "git push"}),
            ),
            (
                PermissionRequest,
                "shell",
                json!({"command": ["rm", "a b"]}),
                "Bash",
                json!({"command": "rm 'a b'"}),
            ),
            (
                PreToolUse,
                "apply_patch",
                json!({"command": "*** Begin Patch"}),
                "apply_patch",
                json!({"patch": "*** Begin Patch"}),
            ),
            (BeforeTool, "run_shell_command", json!({"command": "ls"}), "Bash", json!({"command": "ls"})),
            (BeforeTool, "read_file", json!({"absolute_path": "/a"}), "Read", json!({"file_path": "/a"})),
            (
                BeforeTool,
                "replace",
                json!({"file_path": "/a", "old_string": "x", "new_string": "y"}),
                "Edit",
                json!({"file_path": "/a", "old_string": "x", "new_string": "y"}),
            ),
            (
                Opencode,
                "edit",
                json!({"filePath": "/a", "oldString": "x", "newString": "y"}),
                "Edit",
                json!({"file_path": "/a", "old_string": "x", "new_string": "y"}),
            ),
            (PreToolUse, "mcp__x__y", json!({"filePath": 1}), "mcp__x__y", json!({"filePath": 1})),
        ] {
            assert_eq!(terms(form, tool, input), (name.to_owned(), arguments), "{tool}");
        }
    }

    #[test]
    fn a_call_that_could_be_two_is_not_judged() {
        use HookForm::{BeforeTool, PreToolUse};
        for (form, tool, input) in [
            (BeforeTool, "read_file", json!({"file_path": "a.rs", "absolute_path": "/etc/shadow"})),
            (BeforeTool, "read_file", json!({"absolute_path": "/etc/shadow", "file_path": "a.rs"})),
            (PreToolUse, "apply_patch", json!({"command": "*** A", "patch": "*** B"})),
        ] {
            let why = in_our_terms(form, tool, input).expect_err("it is refused").message;
            assert!(why.contains("twice, by two names"), "{why}");
        }
        for command in [json!(["rm", 5]), json!([]), json!(["a\0b"])] {
            let (_, arguments) = terms(PreToolUse, "shell", json!({"command": command}));
            assert_eq!(arguments["command"], command, "Bash takes no list");
        }
    }

    #[test]
    fn each_agent_reads_the_decision_in_its_own_form() {
        let of = |event: &str, is_allowed| HookForm::of(event).expect("known").decision(is_allowed, "why");
        assert_eq!(of("PreToolUse", true)["hookSpecificOutput"]["permissionDecision"], "allow");
        let denied = &of("PreToolUse", false)["hookSpecificOutput"];
        assert_eq!(
            (&denied["permissionDecision"], &denied["permissionDecisionReason"]),
            (&json!("deny"), &json!("why"))
        );
        let asked = &of("PermissionRequest", false)["hookSpecificOutput"]["decision"];
        assert_eq!(*asked, json!({"behavior": "deny", "message": "why"}));
        let asked = &of("PermissionRequest", true)["hookSpecificOutput"]["decision"];
        assert_eq!(*asked, json!({"behavior": "allow"}), "Codex refuses members that it does not know");
        assert_eq!(of("BeforeTool", false), json!({"decision": "deny", "reason": "why"}));
        assert_eq!(of("tool.execute.before", true)["decision"], "allow");
        assert!(HookForm::of("Stop").is_none());
    }
}
