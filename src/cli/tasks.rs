//! `aye tasks`.

use clap::Subcommand;

/// `aye tasks ...`
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "Example:\n  aye tasks list && aye tasks stop 3f0c")]
pub enum TasksCommand {
    /// List subagents and background commands that are not done
    List {
        /// Include those that are done
        #[arg(long)]
        all: bool,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one: what it belongs to, its task, and its result or output
    Show {
        /// Id of the task, or its first characters
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop one; its conversation is notified, and questions of a subagent are closed
    Stop {
        /// Id of the task, or its first characters
        id: String,
    },
}
