//! `aye config ...`

use clap::Subcommand;

use super::JsonFlag;

/// `aye config ...`
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show each setting and where it comes from
    Show(JsonFlag),
}
