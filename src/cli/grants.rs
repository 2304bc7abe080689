//! `aye grants ...`

use clap::Subcommand;

/// `aye grants ...`
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "Example:\n  aye grants list && aye grants revoke 0198c")]
pub enum GrantsCommand {
    /// List the grants in force
    List {
        /// Include grants that expired, are used up or were revoked
        #[arg(long)]
        all: bool,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one grant: pattern, scope, expiry and who granted it
    Show {
        /// Id of the grant, or its first characters
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke grants; active runs stop using them at once
    Revoke {
        /// Ids of grants, or their first characters
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}
