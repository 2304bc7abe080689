//! `aye agents ...`

use clap::Subcommand;

use super::JsonFlag;

/// `aye agents ...`
#[derive(Clone, Debug, Subcommand)]
#[command(
    after_help = "Example:\n  aye agents show reviewer\n  aye --agent reviewer -p \"look at the last commit\""
)]
pub enum AgentsCommand {
    /// List agents, those first that are used
    List(JsonFlag),
    /// Show one agent: what its file says, and what it comes to here
    Show {
        /// Its name
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}
