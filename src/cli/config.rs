//! `aye config ...`

use clap::Subcommand;

use super::JsonFlag;

/// `aye config ...`
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show each setting with the place it comes from
    Show(JsonFlag),
}
