//! `aye tasks`.

use clap::Subcommand;

/// `aye tasks ...`
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "Example:\n  aye tasks list && aye tasks stop 3f0c")]
pub enum TasksCommand {
    /// List the agents that other agents set to work and that are not done
    List {
        /// List those too that are done
        #[arg(long)]
        all: bool,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one: who set it to work, at what, and what came of it
    Show {
        /// Id of the task, or the beginning of it
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// End one, with its questions; the agent that set it to work is told so
    Stop {
        /// Id of the task, or the beginning of it
        id: String,
    },
}
