//! `aye config`.

use clap::Subcommand;
use serde_json::json;

use crate::cli::JsonFlag;
use crate::commands::put_json;
use crate::contract::display::visible_line;
use crate::failure::Failure;
use crate::program::app_context::mode_of;
use crate::program::foundation::Foundation;
use crate::program::{put, say};

/// `aye config ...`
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show each setting and where it comes from
    Show(JsonFlag),
}

pub(crate) fn show(json: bool, foundation: &Foundation) -> Result<u8, Failure> {
    let rows = foundation.loaded.provenance.rows();
    if json {
        let row = |row: &crate::config::ProvenanceRow| json!({"key": row.key, "value": row.value, "origin": row.origin.to_string()});
        put_json(&json!(rows.iter().map(row).collect::<Vec<_>>()))?;
    } else {
        let line = |row: &crate::config::ProvenanceRow| {
            let (key, value) = (visible_line(&row.key), visible_line(&row.value));
            format!("{key} = {value}  # {}\n", visible_line(&row.origin.to_string()))
        };
        put(&rows.iter().map(line).collect::<String>())?;
        put(&format!("permission mode in force: {}\n", mode_of(foundation)))?;
    }
    for warning in &foundation.warnings {
        say(warning);
    }
    Ok(0)
}
