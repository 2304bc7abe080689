//! `aye grants ...`

use clap::Subcommand;

/// `aye grants ...`
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "Example:\n  aye grants list && aye grants revoke 0198c")]
pub enum GrantsCommand {
    /// List the grants that hold
    List {
        /// List those too that ended, are used up or were taken back
        #[arg(long)]
        all: bool,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one grant: what it allows, how far, until when, who gave it
    Show {
        /// Id of the grant, or the beginning of it
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Take grants back; what runs now stops using them at once
    Revoke {
        /// Ids of grants, or the beginnings of them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}
