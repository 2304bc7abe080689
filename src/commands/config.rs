//! `aye config`.

use std::path::Path;

use clap::Subcommand;
use serde_json::json;

use crate::cli::shared::JsonFlag;
use crate::commands::put_json;
use crate::config::ProvenanceRow;
use crate::contract::display::visible_line;
use crate::failure::Failure;
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::parts::mode_of;
use crate::program::{put, put_stderr};
use crate::tui::host::TextPage;

/// `aye config ...`
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show each setting and where it comes from
    Show(JsonFlag),
}

pub(crate) fn show(json: bool, foundation: &Foundation) -> Result<u8, Failure> {
    let rows = foundation.loaded.provenance.rows();
    if json {
        let row = |row: &ProvenanceRow| json!({"key": row.key, "value": row.value, "origin": row.origin.to_string()});
        put_json(&json!(rows.iter().map(row).collect::<Vec<_>>()))?;
    } else {
        put(&lines(&rows))?;
        if let Some(policy) = foundation.loaded.provenance.policy() {
            put(&format!("policy of this machine: {}\n", policy.summary()))?;
        }
        put(&format!("permission mode in force: {}\n", mode_of(foundation)))?;
    }
    for warning in &foundation.warnings {
        put_stderr(warning);
    }
    Ok(0)
}

fn lines(rows: &[ProvenanceRow]) -> String {
    let line = |row: &ProvenanceRow| {
        let (key, value) = (visible_line(&row.key), visible_line(&row.value));
        format!("{key} = {value}  # {}\n", visible_line(&row.origin.to_string()))
    };
    rows.iter().map(line).collect()
}

/// The page of `/config`.
pub(crate) fn page(app: &AppContext) -> TextPage {
    let row = |row: &ProvenanceRow| {
        let (key, value) = (visible_line(&row.key), visible_line(&row.value));
        let origin = app.foundation.paths.display(Path::new(&row.origin.to_string()));
        format!("{key}\t{value}\t{}\n", visible_line(&origin))
    };
    let text = app.foundation.loaded.provenance.rows().iter().map(row).collect();
    let file = app.foundation.paths.display(&app.foundation.paths.config_file());
    TextPage { title: format!("Settings · change them in {file}"), text, ..TextPage::default() }
}
