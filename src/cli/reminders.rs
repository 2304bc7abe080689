//! `aye reminders ...`

use std::path::PathBuf;

use clap::Subcommand;

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
