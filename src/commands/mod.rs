//! One file for each subcommand, with its arguments and what it does.

pub(crate) mod acp;
pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod chat;
pub(crate) mod docs;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod grants;
pub(crate) mod pager;
pub(crate) mod print;
pub(crate) mod queue;
pub(crate) mod serve;
pub(crate) mod simulate;
pub(crate) mod since;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod tasks;
pub(crate) mod threads;
pub(crate) mod work;

use std::fmt::{Display, Write as _};
use std::io::BufRead as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::cli::{Cli, CliCommand, ConfigCommand, JsonFlag, McpCommand, PermissionsCommand, SkillsCommand};
use crate::commands::{agents, approvals, audit, doctor, grants, queue, simulate, stats, threads, work};
use crate::config::{Env, list_models};
use crate::contract::display::{escape_json, shortened, visible_line};
use crate::contract::record::ThreadRecord;
use crate::failure::Failure;
use crate::plugins::permission::{AskGit, CheckContext, Layer, Mode, RuleSet, check_line};
use crate::plugins::skills::{ListedSkill, Severity, check_dir, check_discovery, list_rows};
use crate::program::app_context::{enforcement, mode_of, skills_of, tool_env};
use crate::program::foundation::Foundation;
use crate::program::{hooks, keys, memory, models, put, reminders, say};
use crate::store::{Store, ThreadLookup};

pub(crate) async fn run(command: CliCommand, cli: &Cli, env: Env) -> Result<u8, Failure> {
    let mut foundation = Foundation::load(cli, env)?;
    match command {
        CliCommand::Threads(command) => threads::run(command, &foundation).await,
        CliCommand::Store(command) => crate::commands::store::run(command, &foundation).await,
        CliCommand::Inbox(args) => approvals::inbox(&args, &foundation).await,
        CliCommand::Approve(args) => Box::pin(approvals::approve(args, cli, &foundation)).await,
        CliCommand::Deny(args) => Box::pin(approvals::deny(args, cli, &foundation)).await,
        CliCommand::Answer(args) => Box::pin(approvals::answer(args, cli, &foundation)).await,
        CliCommand::Approvals(command) => Box::pin(approvals::run(command, cli, &foundation)).await,
        CliCommand::Grants(command) => grants::run(command, &foundation).await,
        CliCommand::Memory(command) => memory::run(command, &foundation).await,
        CliCommand::Queue(command) => queue::run(command, &foundation, cli).await,
        CliCommand::Acp => crate::commands::acp::run(foundation, cli).await,
        CliCommand::Serve(args) => Box::pin(crate::commands::serve::run(args, foundation, cli)).await,
        CliCommand::Work(args) => Box::pin(work::run(args, foundation, cli)).await,
        CliCommand::Agents(command) => agents::run(command, foundation, cli).await,
        CliCommand::Tasks(command) => Box::pin(crate::commands::tasks::run(command, cli, foundation)).await,
        CliCommand::Skills(command) => skills(command, &foundation),
        CliCommand::Mcp(McpCommand::Serve) => Box::pin(crate::commands::serve::mcp(foundation, cli)).await,
        CliCommand::Mcp(command) => crate::program::mcp::run(command, &mut foundation, cli).await,
        CliCommand::Permissions(PermissionsCommand::Check { rules }) => {
            permissions(rules.as_deref(), &mut foundation, cli).await
        }
        CliCommand::Permissions(PermissionsCommand::Simulate { rules, since, json }) => {
            simulate::simulate(&rules, since.as_deref(), json, &foundation).await
        }
        CliCommand::Permissions(PermissionsCommand::Suggest { since, json }) => {
            simulate::suggestions(since.as_deref(), json, &mut foundation, cli).await
        }
        CliCommand::Hooks(command) => hooks::run(command, &mut foundation, cli).await,
        CliCommand::Reminders(command) => reminders::run(command, &foundation),
        CliCommand::Audit(args) => audit::run(args, &foundation).await,
        CliCommand::Stats(args) => stats::run(args, &foundation).await,
        CliCommand::Models(JsonFlag { json }) => {
            let current = models::choose(&foundation).await.ok();
            let all = models::all_offers(&foundation, false).await;
            for why in &all.refused {
                say(&format!("aye: {why}"));
            }
            let rows = list_models(&foundation.loaded.settings, &foundation.env, &all.hits, current.as_ref());
            if json {
                put_json(&json!(rows))?;
            } else {
                put(&models::listing(&rows))?;
            }
            Ok(0)
        }
        CliCommand::Login { provider, keyring } => keys::login_command(provider, keyring, &foundation).await,
        CliCommand::Logout { provider } => keys::logout_command(provider.as_deref(), &foundation).await,
        CliCommand::Config(ConfigCommand::Show(JsonFlag { json })) => config(json, &foundation),
        CliCommand::Doctor(JsonFlag { json }) => Box::pin(doctor::run(json, foundation, cli)).await,
        // Answered before anything is read.
        CliCommand::Completion { .. } | CliCommand::Man | CliCommand::Docs(_) => Ok(0),
    }
}

pub(crate) fn put_json(value: &Value) -> Result<(), Failure> {
    put(&format!("{}\n", escape_json(&serde_json::to_string_pretty(value).unwrap_or_default())))
}

/// Returns the thread whose id starts with this prefix.
pub(crate) async fn thread_by_prefix(store: &Store, id: &str) -> Result<ThreadRecord, Failure> {
    match store.find_thread(id).await.map_err(Failure::failed)? {
        ThreadLookup::One(thread) => Ok(thread),
        ThreadLookup::None => {
            Err(Failure::usage(format!("unknown thread `{id}`; `aye threads list` shows all")))
        }
        ThreadLookup::Many(threads) => {
            let ids: Vec<_> = threads.iter().map(|t| t.id.to_string()).collect();
            Err(Failure::usage(format!("`{id}` is not unique: {}", ids.join(", "))))
        }
    }
}

/// Formats a Unix time in milliseconds in the local time zone.
pub(crate) fn when(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map(|t| t.to_zoned(crate::program::zone()).strftime("%Y-%m-%d %H:%M").to_string()).unwrap_or_default()
}

/// Each on a line of its own.
fn lines<T: Display>(rows: &[T]) -> String {
    rows.iter().fold(String::new(), |mut out, row| {
        let _ = writeln!(out, "{row}");
        out
    })
}

/// The maximum characters of a description in a list: what the skill specification allows.
const SHOWN: usize = 1024;

fn skills(command: SkillsCommand, foundation: &Foundation) -> Result<u8, Failure> {
    match command {
        SkillsCommand::List(JsonFlag { json }) => {
            let found = skills_of(foundation);
            let rows = list_rows(&found);
            if json {
                put_json(&json!(rows))?;
            } else {
                let line = |row: &ListedSkill| {
                    let hidden = row.hidden_by.as_ref().map(|by| format!("  (hidden by {by})"));
                    let unseen = match row.invisible_characters {
                        0 => String::new(),
                        n => format!("  ({n} invisible characters)"),
                    };
                    let (name, scope) = (visible_line(&row.name), row.scope);
                    let hidden = hidden.unwrap_or_default();
                    let summary = row.summary();
                    let description = shortened(&summary, SHOWN);
                    let who = match (row.model_invocable, row.user_invocable) {
                        (true, true) => "",
                        (false, _) => "  (started by you only)",
                        (true, false) => "  (started by the model only)",
                    };
                    format!("{name:<24} {scope:<8} {description}{who}{unseen}{hidden}\n")
                };
                put(&rows.iter().map(line).collect::<String>())?;
                for issue in found.issues.iter().filter(|issue| issue.severity > Severity::Note) {
                    say(&issue.to_string());
                }
            }
            Ok(0)
        }
        SkillsCommand::Check { dir, json } => {
            let report = match dir {
                Some(dir) => check_dir(&foundation.workspace.cwd.join(dir)).map_err(Failure::usage)?,
                None => check_discovery(&skills_of(foundation)),
            };
            if json {
                put_json(&json!(report))?;
            } else {
                put(&lines(&report.lines()))?;
            }
            Ok(u8::try_from(report.exit_code()).unwrap_or(1))
        }
    }
}

async fn permissions(rules: Option<&Path>, foundation: &mut Foundation, cli: &Cli) -> Result<u8, Failure> {
    let rules = if let Some(file) = rules {
        RuleSet::load(&foundation.workspace.cwd.join(file), Layer::Run).map_err(Failure::usage)?
    } else {
        let rules = foundation.rules(cli)?;
        if let Some(why) = rules.refused() {
            return Err(Failure::usage(why));
        }
        rules
    };
    let git = crate::program::git::GitQuestions::of(foundation);
    let ctx = CheckContext {
        cwd: &foundation.workspace.cwd,
        workspace: &foundation.workspace.root,
        home: foundation.env.home(),
        domains: &foundation.loaded.settings.sandbox.domains,
        enforced: enforcement(foundation, tool_env(foundation).sandbox.as_ref()).enforced_profiles(),
        // Only the requested one: a mode can change the verdict of the rules.
        mode: cli.global.permission_mode().unwrap_or(Mode::Ask),
        git: git.as_ref().map(|git| git as &dyn AskGit),
    };
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.map_err(|e| Failure::failed(format!("cannot read stdin: {e}")))?;
        let line = String::from_utf8_lossy(&line);
        if !line.trim().is_empty() {
            put(&format!("{}\n", escape_json(&check_line(&line, &rules, ctx).await)))?;
        }
    }
    Ok(0)
}

fn config(json: bool, foundation: &Foundation) -> Result<u8, Failure> {
    let rows = foundation.loaded.provenance.rows();
    if json {
        let row = |row: &crate::config::ProvenanceRow| json!({"key": row.key, "value": row.value, "origin": row.origin.to_string()});
        put_json(&json!(rows.iter().map(row).collect::<Vec<_>>()))?;
    } else {
        let line = |row: &crate::config::ProvenanceRow| {
            let (key, value) = (visible_line(&row.key), visible_line(&row.value));
            format!("{key} = {value}  # {}\n", visible_line(&row.origin.to_string()))
        };
        put(&rows.iter().map(line).collect::<String>())?;
        put(&format!("permission mode in force: {}\n", mode_of(foundation)))?;
    }
    for warning in &foundation.warnings {
        say(warning);
    }
    Ok(0)
}
