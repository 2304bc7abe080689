//! `aye skills`.

use std::fmt::{Display, Write as _};
use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use crate::cli::shared::JsonFlag;
use crate::commands::columns::columns;
use crate::commands::put_json;
use crate::contract::display::shortened;
use crate::failure::Failure;
use crate::plugins::skills::{ListedSkill, Severity, check_dir, check_discovery, list_rows};
use crate::program::app_context::skills_of;
use crate::program::foundation::Foundation;
use crate::program::{put, put_stderr};

/// `aye skills ...`
#[derive(Clone, Debug, Subcommand)]
pub enum SkillsCommand {
    /// List the skills available here, and which hide others
    List(JsonFlag),
    /// Check skill files: a skill's folder, or a folder of skills; without DIR, all in use here
    Check {
        /// Folder to check
        dir: Option<PathBuf>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
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

pub(crate) fn run(command: SkillsCommand, foundation: &Foundation) -> Result<u8, Failure> {
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
                    let hidden = hidden.unwrap_or_default();
                    let summary = row.summary();
                    let description = shortened(&summary, SHOWN);
                    let who = match (row.model_invocable, row.user_invocable) {
                        (true, true) => "",
                        (false, _) => "  (started by you only)",
                        (true, false) => "  (started by the model only)",
                    };
                    let text = format!("{description}{who}{unseen}{hidden}");
                    [row.name.clone(), row.scope.to_string(), text]
                };
                put(&columns(rows.iter().map(line)))?;
                for issue in found.issues.iter().filter(|issue| issue.severity > Severity::Note) {
                    put_stderr(&issue.to_string());
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
