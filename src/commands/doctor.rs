//! `aye doctor`: checks the installation and this folder.

use std::fmt::Write as _;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use crate::cli::start::StartFlags;
use crate::config::{Images, POLICY_FILE, SandboxMissing, SandboxSettings};
use crate::contract::clock::SystemClock;
use crate::contract::display::visible_line;
use crate::contract::judgement::Profile;
use crate::contract::path_policy::PathPolicies as _;
use crate::contract::spec::AgentSpec;
use crate::failure::Failure;
use crate::plugins::permission::shipped_rules;
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::mcp::ServerRow;
use crate::program::parts::{AGENT, permissions_of};
use crate::program::plugins::PluginRow;
use crate::program::{keys, mcp, models, plugins, put};
use crate::tools::Sandbox;
use crate::tui::host::TextPage;

mod selftest;
mod terminal;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckStatus {
    Ok,
    Warning,
    Error,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: CheckStatus,
    text: String,
    /// The plugins, for programs that read the report.
    #[serde(skip_serializing_if = "Option::is_none")]
    plugins: Option<Vec<PluginRow>>,
    /// The same of tool servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<Vec<ServerRow>>,
}

impl Check {
    fn new(name: &'static str, state: CheckStatus, text: String) -> Self {
        Self { name, state, text, plugins: None, servers: None }
    }
}

/// `aye doctor`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  aye doctor --json")]
pub struct DoctorArgs {
    /// Try what aye relies on: commands, files, clocks, the store, the sandbox. Prints a report to paste into an issue
    #[arg(long)]
    pub selftest: bool,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) async fn run(
    args: &DoctorArgs,
    mut foundation: Foundation,
    cli: &StartFlags,
) -> Result<u8, Failure> {
    if args.selftest {
        return selftest::run(args.json, foundation, cli).await;
    }
    let json = args.json;
    let mut checks = Vec::new();
    let mut add = |name, state, text: String| checks.push(Check::new(name, state, text));
    add("version", CheckStatus::Ok, format!("aye {}", env!("CARGO_PKG_VERSION")));
    if aye_platform::SYSTEM != aye_platform::System::Linux {
        let text = "an untested preview on this system; `aye doctor --selftest` tries what aye relies on";
        add("system", CheckStatus::Warning, text.into());
    }
    add("folder", CheckStatus::Ok, foundation.workspace.cwd.display().to_string());
    let settings = foundation.paths.config_file();
    let exists = if settings.exists() { "" } else { " (not found; defaults apply)" };
    add("settings", CheckStatus::Ok, format!("{}{exists}", settings.display()));
    let rules = foundation.rules(cli);
    match &rules {
        Err(failure) => add("rules", CheckStatus::Error, failure.message.clone()),
        Ok(rules) => {
            if let Some(why) = rules.refused() {
                add("rules", CheckStatus::Error, format!("{why}; until this is fixed, every call asks"));
            } else {
                add("rules", CheckStatus::Ok, format!("{} rules", rules.rules().len()));
                let knows = known_tools(&foundation);
                let unknown = rules.unknown_tools(&knows);
                if !unknown.is_empty() {
                    add("rule tools", CheckStatus::Warning, unknown.join("; "));
                }
                let gaps = rules.gaps(&knows);
                if !gaps.is_empty() {
                    add("rule matches", CheckStatus::Warning, gaps.join("; "));
                }
            }
        }
    }
    match foundation.loaded.provenance.policy() {
        Some(policy) => add("policy", CheckStatus::Ok, policy.summary()),
        None => add("policy", CheckStatus::Ok, format!("none ({POLICY_FILE})")),
    }
    if foundation.untrusted.is_empty() {
        add("trust", CheckStatus::Ok, "nothing here needs trust".into());
    } else {
        let files: Vec<_> = foundation.untrusted.iter().map(|i| i.path.display().to_string()).collect();
        add(
            "trust",
            CheckStatus::Warning,
            format!("not used until this folder is trusted: {}", files.join(", ")),
        );
    }
    let rules = rules.unwrap_or_else(|_| shipped_rules());
    let permissions = permissions_of(&foundation, rules, Arc::new(SystemClock));
    let instructions = foundation.instructions(permissions.policy(&AgentSpec::new(AGENT)).as_ref());
    add("instructions", CheckStatus::Ok, instructions.status().unwrap_or_else(|| "none".into()));
    match models::choose(&foundation).await {
        Ok(selection) => {
            let key = match &selection.api_key_env {
                Some(name) => format!(", key from {name}"),
                None if selection.is_key_stored => ", key from `aye login`".to_owned(),
                None => String::new(),
            };
            let words = format!("{} ({}{key})", selection.full_name(), selection.why);
            match crate::config::gone(&selection, &models::kept_offers(&foundation)) {
                Some(gone) => add("model", CheckStatus::Warning, format!("{words}; {gone}")),
                None => add("model", CheckStatus::Ok, words),
            }
            if let Some((is_fine, words)) = models::server_report(&selection).await {
                add("model server", if is_fine { CheckStatus::Ok } else { CheckStatus::Warning }, words);
            }
        }
        Err(failure) => add("model", CheckStatus::Error, failure.message),
    }
    let (state, words) = keys::report(&foundation).await;
    add("keys", if state { CheckStatus::Ok } else { CheckStatus::Warning }, words);
    match foundation.open_store() {
        Err(failure) => add("store", CheckStatus::Error, failure.message),
        Ok(store) => {
            let path = foundation.paths.database().display().to_string();
            match store.check().await {
                Ok(problems) if problems.is_empty() => add("store", CheckStatus::Ok, path),
                Ok(problems) => add("store", CheckStatus::Error, format!("{path}: {}", problems.join("; "))),
                Err(error) => add("store", CheckStatus::Error, error.to_string()),
            }
            store.close().await;
        }
    }
    add("log", CheckStatus::Ok, foundation.paths.log_dir().join("aye.log").display().to_string());
    for program in ["bash", "git"] {
        let found = foundation
            .env
            .var("PATH")
            .unwrap_or_default()
            .split(':')
            .map(|dir| std::path::Path::new(dir).join(program))
            .find(|path| path.is_file());
        match found {
            Some(path) => add(program, CheckStatus::Ok, path.display().to_string()),
            None => add(program, CheckStatus::Warning, format!("{program} is not in PATH")),
        }
    }
    let path = foundation.env.var("PATH").unwrap_or_default();
    checks.push(sandbox(&foundation.loaded.settings.sandbox, path.as_ref()));
    checks.push(servers(&foundation));
    let mut add = |name, state, text: String| checks.push(Check::new(name, state, text));
    for (name, state, text) in
        terminal::checks(&foundation.env, foundation.loaded.settings.tui.images != Images::Off)
    {
        add(name, state, text);
    }
    let mut warnings = foundation.warnings.clone();
    let mut described = String::new();
    // As the terminal would start; what keeps it from starting is a check that failed.
    match AppContext::build(foundation, cli).await {
        Err(failure) => {
            if !checks.iter().any(|check| failure.message.contains(&check.text)) {
                let text = failure.message;
                checks.push(Check::new("start", CheckStatus::Error, text));
            }
        }
        Ok(app) => {
            warnings = app.all_warnings();
            let agent = app.agents.current();
            if let Ok(resolved) = app.runtime.resolved(&agent) {
                let rows = plugins::rows(&app, &resolved);
                described = plugins::lines(&rows);
                let text = format!("{} of agent {agent}", rows.len());
                checks.push(Check { plugins: Some(rows), ..Check::new("plugins", CheckStatus::Ok, text) });
            }
            app.store.leave().await;
        }
    }
    warnings.dedup();
    checks.extend(warnings.into_iter().map(|text| Check::new("warning", CheckStatus::Warning, text)));
    let failed = checks.iter().any(|check| check.state == CheckStatus::Error);
    if json {
        let text = serde_json::to_string_pretty(&checks).unwrap_or_default();
        put(&format!("{text}\n"))?;
    } else {
        let line = |check: &Check| {
            let mark = mark(check.state);
            let more = match (&check.plugins, &check.servers) {
                (Some(_), _) => indented(&described),
                (None, Some(rows)) => indented(&mcp::lines(rows)),
                (None, None) => String::new(),
            };
            format!("{mark}  {:<13} {}\n{more}", check.name, visible_line(&check.text))
        };
        put(&checks.iter().map(line).collect::<String>())?;
    }
    Ok(u8::from(failed))
}

/// Returns which tools exist here besides the built-in ones: those of the configured servers and agents. A rule may name
/// a server alone.
pub(crate) fn known_tools(foundation: &Foundation) -> impl Fn(&str) -> bool + use<> {
    let servers: Vec<String> = mcp::rows(foundation).into_iter().map(|row| row.name).collect();
    let agents = crate::program::agents::written(foundation, &|_| true);
    move |name| match (name.strip_prefix("mcp__"), name.strip_prefix("agent_run_")) {
        (Some(tool), _) => {
            servers.iter().any(|server| tool == server || tool.starts_with(&format!("{server}__")))
        }
        (None, Some(id)) => agents.used().any(|agent| agent.spec.id == id),
        (None, None) => false,
    }
}

/// Checks which restrictions on commands the kernel can enforce.
fn sandbox(settings: &SandboxSettings, path: &std::ffi::OsStr) -> Check {
    if !settings.enabled {
        let text = "off (sandbox.enabled): commands run with all your rights";
        return Check::new("sandbox", CheckStatus::Warning, text.into());
    }
    let (can_enforce, gaps) = Sandbox::gaps(path, Profile::Workspace, !settings.domains.is_empty());
    let reached = match settings.domains.iter().map(ToString::to_string).collect::<Vec<_>>() {
        none if none.is_empty() => String::new(),
        domains => format!("; commands can reach {}", domains.join(", ")),
    };
    match (can_enforce, gaps.is_empty()) {
        (false, _) => {
            let then = if settings.missing == SandboxMissing::Allow {
                "allowed commands and the project's hooks and servers run outside it"
            } else {
                "allowed commands ask, and hooks and servers of the project do not start"
            };
            let text = format!("none: {}; {then}", gaps.join("; "));
            Check::new("sandbox", CheckStatus::Warning, text)
        }
        (true, false) => Check::new("sandbox", CheckStatus::Warning, format!("partial: {}", gaps.join("; "))),
        (true, true) => {
            Check::new("sandbox", CheckStatus::Ok, format!("bubblewrap, Landlock and seccomp{reached}"))
        }
    }
}

/// Lists the configured MCP servers; none of them is started or contacted.
fn servers(foundation: &Foundation) -> Check {
    let rows = mcp::rows(foundation);
    let needs = rows.iter().filter(|row| row.needs_somebody()).count();
    let (state, text) = match (rows.len(), needs) {
        (0, _) => (CheckStatus::Ok, "none".to_owned()),
        (all, 0) => (CheckStatus::Ok, format!("{all} configured")),
        (all, needs) => (CheckStatus::Warning, format!("{all} configured, {needs} of them need your action")),
    };
    Check { servers: Some(rows), ..Check::new("mcp servers", state, text) }
}

/// `/doctor`: what the terminal can do, and what would make it better.
pub(crate) fn page(app: &AppContext) -> TextPage {
    let mut rows = vec![("version", CheckStatus::Ok, format!("aye {}", env!("CARGO_PKG_VERSION")))];
    let settings = app.foundation.paths.display(&app.foundation.paths.config_file());
    rows.push(("settings", CheckStatus::Ok, settings));
    rows.extend(terminal::checks(
        &app.foundation.env,
        app.foundation.loaded.settings.tui.images != Images::Off,
    ));
    rows.extend(app.all_warnings().into_iter().map(|text| ("warning", CheckStatus::Warning, text)));
    let sign = |state, text: &str| match state {
        CheckStatus::Ok if text.starts_with("unknown") => '?',
        CheckStatus::Ok => '✓',
        CheckStatus::Warning => '!',
        CheckStatus::Error => '✗',
    };
    let text = rows
        .iter()
        .map(|(name, state, text)| format!("{} {name}\t{}\n", sign(*state, text), visible_line(text)));
    let more = "\n`aye doctor` in a shell also checks the model, the store, the rules and the plugins.\n";
    TextPage { title: "Terminal".to_owned(), text: text.collect::<String>() + more, ..TextPage::default() }
}

fn mark(state: CheckStatus) -> &'static str {
    match state {
        CheckStatus::Ok => "ok     ",
        CheckStatus::Warning => "warning",
        CheckStatus::Error => "error  ",
    }
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut out, line| {
        let _ = writeln!(out, "           {line}");
        out
    })
}
