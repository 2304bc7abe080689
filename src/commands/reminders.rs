//! `aye reminders check`: reads the reminder files and names their mistakes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;

use crate::commands::put_json;
use crate::contract::amount::counted;
use crate::contract::display::visible_line;
use crate::failure::Failure;
use crate::plugins::reminder::{ReminderConfigError, ReminderRule, load_rules};
use crate::program::foundation::Foundation;
use crate::program::put;
use crate::program::reminders::files;

/// `aye reminders ...`
#[derive(Clone, Debug, Subcommand)]
pub enum RemindersCommand {
    /// Check the reminders in force here, or those of one file
    #[command(after_help = "Example:\n  aye reminders check .aye/reminders.json")]
    Check {
        /// The file; without it, all reminders in force here
        file: Option<PathBuf>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(command: RemindersCommand, foundation: &Foundation) -> Result<u8, Failure> {
    let RemindersCommand::Check { file, json } = command;
    let files = match file {
        Some(file) => vec![foundation.workspace.cwd.join(file)],
        None => files(foundation),
    };
    let checked: Vec<_> = files.into_iter().map(|file| (load_rules(&file), file)).collect();
    if json {
        put_json(&json!(checked.iter().map(as_json).collect::<Vec<_>>()))?;
    } else if checked.is_empty() {
        let path = foundation.paths.display(&foundation.paths.reminders_file());
        put(&format!("no reminders; add them in {path} or .aye/reminders.json\n"))?;
    } else {
        put(&checked.iter().map(|(read, file)| lines(read, file)).collect::<String>())?;
    }
    Ok(u8::from(checked.iter().any(|(read, _)| read.is_err())))
}

type ReadFile = Result<Vec<ReminderRule>, ReminderConfigError>;

fn as_json((read, file): &(ReadFile, PathBuf)) -> serde_json::Value {
    match read {
        Ok(rules) => {
            let row = |rule: &ReminderRule| {
                json!({
                    "name": rule.name,
                    "line": rule.line,
                    "tool": rule.pattern.to_string(),
                    "target": rule.target.word(),
                    "cooldown_turns": rule.cooldown_turns,
                })
            };
            json!({"file": file, "rules": rules.iter().map(row).collect::<Vec<_>>()})
        }
        Err(error) => json!({"file": file, "error": error.to_string()}),
    }
}

fn lines(read: &ReadFile, file: &Path) -> String {
    let rules = match read {
        Ok(rules) => rules,
        Err(error) => return format!("error  {}\n", visible_line(&error.to_string())),
    };
    let count = counted(rules.len(), "rule");
    let mut text = format!("ok     {}: {count}\n", visible_line(&file.to_string_lossy()));
    for rule in rules {
        let cooldown = match rule.cooldown_turns {
            0 => String::new(),
            n => format!(", then paused for {n} steps"),
        };
        let name = if rule.is_named { format!("{}: ", rule.name) } else { String::new() };
        let line =
            format!("{name}after {} to {}{cooldown}: {}", rule.pattern, rule.target.word(), rule.content);
        let _ = writeln!(text, "       line {}: {}", rule.line.unwrap_or(0), visible_line(&line));
    }
    text
}
