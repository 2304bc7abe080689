//! `aye skills ...`

use std::path::PathBuf;

use clap::Subcommand;

use super::JsonFlag;

/// `aye skills ...`
#[derive(Clone, Debug, Subcommand)]
pub enum SkillsCommand {
    /// List the skills that can be used here, with what hides what
    List(JsonFlag),
    /// Check skill files: a skill's folder, or a folder of skills; without DIR, all that are used here
    Check {
        /// Folder to check
        dir: Option<PathBuf>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}
