//! The effect of a call in plain words: the sentence that follows the tool's name on a card and in lists.

use serde_json::Value;

use super::evaluate::{CallRequest, CallSubject, PreparedCall, is_file_edit};
use super::opening::wants_out;
use super::path::ResolvedPath;
use aye_core::contract::judgement::Risk;
use aye_core::contract::question::{Danger, server_tool};
use aye_pattern::shell::{Analysis, danger, deletes_files, visible};

/// The description of a call.
pub(super) struct CallDescription {
    /// The rest of a sentence that starts with the tool's name.
    pub(super) words: String,
    /// Whether a path that the call opens is outside the project.
    pub(super) is_outside: bool,
}

pub(super) fn call_description(call: &PreparedCall<'_>, risk: Risk) -> CallDescription {
    let question = &call.question;
    match &call.subject {
        CallSubject::Shell(analysis) => {
            CallDescription { words: of_command(analysis, risk).to_owned(), is_outside: false }
        }
        CallSubject::File { seen, .. } => {
            let outside = if seen.is_inside { "" } else { ", outside this project" };
            let verb = match question.tool {
                "Read" => "opens",
                "List" => "lists",
                "Glob" => "finds files in",
                "Grep" => "searches",
                "Write" => "writes",
                _ => "changes",
            };
            let words = format!("{verb} {}{outside}", place(seen));
            CallDescription { words, is_outside: !seen.is_inside }
        }
        CallSubject::Other => {
            CallDescription { words: of_tool(question, call.host.as_deref(), risk), is_outside: false }
        }
    }
}

/// Returns what is dangerous about a call.
pub(super) fn call_danger(call: &PreparedCall<'_>) -> Danger {
    let mut danger = match &call.subject {
        CallSubject::Shell(analysis) => danger(analysis),
        CallSubject::File { seen, .. } if is_file_edit(call.question.tool) && !seen.is_inside => {
            let mut danger = Danger::default();
            danger.add("changes a file outside this project", []);
            danger
        }
        CallSubject::File { .. } | CallSubject::Other => Danger::default(),
    };
    if wants_out(&call.question) {
        danger.add("leaves the sandbox", []);
    }
    danger
}

fn of_command(analysis: &Analysis, risk: Risk) -> &'static str {
    match risk {
        _ if deletes_files(analysis) => "runs a command that deletes files",
        Risk::Destroys => "runs a command that can delete, overwrite or stop something",
        Risk::Network => "runs a command that uses the network",
        Risk::Reads => "runs a command that only reads",
        Risk::Edits | Risk::Runs => "runs a command",
    }
}

fn of_tool(question: &CallRequest<'_>, host: Option<&str>, risk: Risk) -> String {
    let text = |key: &str| question.args.get(key).and_then(Value::as_str).map(visible);
    let (tool, action) = (question.tool, text("action").unwrap_or_default());
    if let (Some(agent), Some(host)) = (tool.strip_prefix("agent_run_"), host) {
        return format!("sends the task to the remote agent {} at {}", visible(agent), visible(host));
    }
    if let Some(agent) = tool.strip_prefix("agent_run_") {
        return format!("starts the subagent {}", visible(agent));
    }
    if let Some((server, name)) = server_tool(tool) {
        return format!("calls {} of the MCP server {}", visible(name), visible(server));
    }
    match tool {
        "WebFetch" => format!("fetches {}", text("url").unwrap_or_default()),
        "Memory" if action == "add" => "adds a note for later conversations".to_owned(),
        "Memory" if action == "update" => "changes a note for later conversations".to_owned(),
        "Memory" if action == "remove" => "removes a note".to_owned(),
        "skill" => format!("loads the skill {}", text("skill").unwrap_or_default()),
        "skill_script" => format!("runs a script of the skill {}", text("skill").unwrap_or_default()),
        "BashInput" => "sends input to a running command".to_owned(),
        "KillShell" => "stops a running command".to_owned(),
        _ => match risk {
            Risk::Reads => "only reads",
            Risk::Network => "uses the network",
            Risk::Edits | Risk::Runs | Risk::Destroys => "needs approval",
        }
        .to_owned(),
    }
}

/// The path as it was written, and where a link leads.
fn place(seen: &ResolvedPath) -> String {
    let mut places = seen.forms.iter().map(|forms| match (forms.relative.as_deref(), &forms.home) {
        (Some("."), _) => "this folder".to_owned(),
        (Some(relative), _) => visible(relative),
        (None, Some(home)) => visible(home),
        (None, None) => visible(&forms.absolute),
    });
    let Some(first) = places.next() else { return "a file".to_owned() };
    match places.next_back().filter(|last| *last != first) {
        Some(target) => format!("{first} (a link to {target})"),
        None => first,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn words(tool: &str, args: &Value, folder: &Path) -> String {
        let question = CallRequest {
            tool,
            args,
            cwd: folder,
            workspace: folder,
            home: Some(Path::new("/home/me")),
            primary: None,
        };
        let call = PreparedCall::of(&question).expect("a call");
        let risk = call.risk(None);
        call_description(&call, risk).words
    }

    #[test]
    fn a_task_for_another_machine_names_it() {
        let (args, here) = (json!({"prompt": "look"}), Path::new("/"));
        let tool = "agent_run_far";
        let question =
            CallRequest { tool, args: &args, cwd: here, workspace: here, home: None, primary: None };
        let call =
            PreparedCall::of(&question).expect("a call").sent_to(Some("agents.example\u{202e}:8443".into()));
        let risk = call.risk(Some(aye_core::contract::tool::ToolClass::Pure));
        assert_eq!(risk, Risk::Network);
        let words = call_description(&call, risk).words;
        assert_eq!(words, "sends the task to the remote agent far at agents.example\\u{202e}:8443");
    }

    #[test]
    fn a_sentence_describes_the_call() {
        let dir = tempfile::tempdir().expect("a folder");
        let here = dir.path();
        std::os::unix::fs::symlink("/etc/shadow", here.join("notes")).expect("a link");
        let bash = |command: &str| words("Bash", &json!({ "command": command }), here);
        let file = |tool: &str, path: &str| words(tool, &json!({ "file_path": path }), here);
        let described = [
            (bash("make"), "runs a command"),
            (bash("make && rm -r target"), "runs a command that deletes files"),
            (bash("(cd x; git clean -fd)"), "runs a command that deletes files"),
            (bash("find . -name '*.o' -delete"), "runs a command that deletes files"),
            (bash("git clean -n"), "runs a command"),
            (bash("mv a b"), "runs a command that can delete, overwrite or stop something"),
            (bash("curl https://example.com"), "runs a command that uses the network"),
            (bash("git log"), "runs a command that only reads"),
            (file("Read", "/etc/shadow"), "opens /etc/shadow, outside this project"),
            (file("Read", "src/../.env"), "opens .env"),
            (file("Read", "notes"), "opens notes (a link to /etc/shadow), outside this project"),
            (file("Edit", "/home/me/.bashrc"), "changes ~/.bashrc, outside this project"),
            (words("Grep", &json!({"pattern": "x"}), here), "searches this folder"),
            (words("Memory", &json!({"action": "add"}), here), "adds a note for later conversations"),
            (words("mcp__files__drop", &json!({}), here), "calls drop of the MCP server files"),
            (words("Unheard", &json!({}), here), "needs approval"),
            (words("WebFetch", &json!({"url": "http://a\u{202e}b"}), here), "fetches http://a\\u{202e}b"),
        ];
        for (words, expected) in described {
            assert_eq!(words, expected);
        }
    }
}
