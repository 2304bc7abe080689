//! `aye models`.

use serde_json::json;

use crate::commands::columns::columns;
use crate::commands::put_json;
use crate::config::{ListedModel, list_models};
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::{models, put, put_stderr};

pub(crate) async fn run(json: bool, foundation: &Foundation) -> Result<u8, Failure> {
    let current = models::choose(foundation).await.ok();
    let all = models::all_offers(foundation, false).await;
    for why in &all.refused {
        put_stderr(&format!("aye: {why}"));
    }
    let policy = foundation.loaded.provenance.policy();
    let rows = list_models(&foundation.loaded.settings, &foundation.env, &all.hits, current.as_ref(), policy);
    if json {
        put_json(&json!(rows))?;
    } else {
        put(&listing(&rows))?;
    }
    Ok(0)
}

/// Renders the lines of `aye models`: models that need a key are below the others.
fn listing(rows: &[ListedModel]) -> String {
    let (usable, rest): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.usable);
    let text = columns(usable.iter().chain(&rest).map(|row| {
        let state = match (row.current, row.usable) {
            (true, _) => "in use",
            (false, true) => "usable",
            (false, false) => "-",
        };
        [row.name.clone(), state.to_owned(), row.why.clone()]
    }));
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    if !rest.is_empty() {
        lines.insert(usable.len(), "\nNeeds a key or a server:\n");
    }
    lines.concat()
}
