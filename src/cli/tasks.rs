//! `aye tasks`.

use clap::Subcommand;

/// `aye tasks ...`
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "Example:\n  aye tasks list && aye tasks stop 3f0c")]
pub enum TasksCommand {
    /// List subagents that are not done
    List {
        /// Include subagents that are done
        #[arg(long)]
        all: bool,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one: its parent, its task and its result
    Show {
        /// Id of the task, or its first characters
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop one and close its questions; its parent agent is notified
    Stop {
        /// Id of the task, or its first characters
        id: String,
    },
}
