//! `aye permissions`.

pub(crate) mod simulate;

use std::io::BufRead as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::cli::start::StartFlags;
use crate::commands::doctor::known_tools;
use crate::contract::display::escape_json;
use crate::failure::Failure;
use crate::plugins::permission::{AskGit, CheckContext, Layer, Mode, RuleSet, check_line};
use crate::program::app_context::enforcement;
use crate::program::foundation::Foundation;
use crate::program::parts::tool_env;
use crate::program::put;

/// `aye permissions ...`
#[derive(Clone, Debug, Subcommand)]
pub enum PermissionsCommand {
    /// Check calls against the rules: one JSON object per line on stdin, one verdict per line on stdout
    #[command(
        after_help = "Example:\n  echo '{\"tool\":\"Bash\",\"args\":{\"command\":\"git push\"}}' | aye permissions check"
    )]
    Check {
        /// Use the rules of this file instead of those in force
        #[arg(long, value_name = "FILE")]
        rules: Option<PathBuf>,
        /// Check each rule instead of calls: can it ever match, and what does it not find? Exit 1 if one never matches
        #[arg(long)]
        each_rule: bool,
    },
    /// Simulate rules on past calls and show where they contradict your decisions
    ///
    /// The file replaces your rules and the project's; the shipped rules stay in force. Every call of
    /// the audit is evaluated as first proposed, in its own folder, in mode `ask`. Folders and links are read
    /// as they are today; in a deleted folder, paths are compared by their text alone. The exit status is 1
    /// if a call that you denied would be allowed.
    Simulate {
        /// The rules to simulate
        #[arg(long, value_name = "FILE")]
        rules: PathBuf,
        /// Only calls since then: 2h, 3d, 2026-11-21 or an RFC 3339 time
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Suggest the fewest rules that match the questions you always answered the same way
    ///
    /// No suggested rule would have allowed a call that you denied or edited, and none is broader than what a question
    /// offers to grant; each would have saved at least two questions. Calls that the rules in force already cover are
    /// left out. The output is a file of rules; nothing is stored.
    #[command(
        after_help = "Example:\n  aye permissions suggest --since 2w > new.yaml && aye permissions simulate --rules new.yaml"
    )]
    Suggest {
        /// Only calls since then: 2h, 3d, 2026-11-21 or an RFC 3339 time
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) async fn run(
    command: PermissionsCommand,
    foundation: &mut Foundation,
    cli: &StartFlags,
) -> Result<u8, Failure> {
    match command {
        PermissionsCommand::Check { rules, each_rule } => {
            let rules = rules_to_check(rules.as_deref(), foundation, cli)?;
            if each_rule { check_rules(&rules, foundation) } else { check(&rules, foundation, cli).await }
        }
        PermissionsCommand::Simulate { rules, since, json } => {
            simulate::simulate(&rules, since.as_deref(), json, foundation).await
        }
        PermissionsCommand::Suggest { since, json } => {
            simulate::suggestions(since.as_deref(), json, foundation, cli).await
        }
    }
}

fn rules_to_check(
    rules: Option<&Path>,
    foundation: &mut Foundation,
    cli: &StartFlags,
) -> Result<RuleSet, Failure> {
    if let Some(file) = rules {
        return RuleSet::load(&foundation.workspace.cwd.join(file), Layer::Run).map_err(Failure::usage);
    }
    let rules = foundation.rules(cli)?;
    match rules.refused() {
        Some(why) => Err(Failure::usage(why)),
        None => Ok(rules),
    }
}

fn check_rules(rules: &RuleSet, foundation: &Foundation) -> Result<u8, Failure> {
    let reports = rules.reports(known_tools(foundation));
    for report in &reports {
        let line = serde_json::to_string(report).unwrap_or_default();
        put(&format!("{}\n", escape_json(&line)))?;
    }
    Ok(u8::from(reports.iter().any(|report| report.can_match == Some(false))))
}

async fn check(rules: &RuleSet, foundation: &mut Foundation, cli: &StartFlags) -> Result<u8, Failure> {
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
            put(&format!("{}\n", escape_json(&check_line(&line, rules, ctx).await)))?;
        }
    }
    Ok(0)
}
