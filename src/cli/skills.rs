//! `aye skills ...`

use std::path::PathBuf;

use clap::Subcommand;

use super::JsonFlag;

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
