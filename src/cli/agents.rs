//! `aye agents ...`

use clap::Subcommand;

use super::JsonFlag;

/// `aye agents ...`
#[derive(Clone, Debug, Subcommand)]
#[command(
    after_help = "Example:\n  aye agents show reviewer\n  aye --agent reviewer -p \"look at the last commit\""
)]
pub enum AgentsCommand {
    /// List agents, those in use first
    List(JsonFlag),
    /// Show one agent: its file and the resulting settings
    Show {
        /// Name of the agent
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}
