//! `aye grants`: lists, shows and revokes grants.

use std::collections::HashSet;
use std::fmt::Write as _;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::commands::columns::columns;
use crate::commands::{put_json, when};
use crate::contract::display::visible_line;
use crate::contract::record::GrantRecord;
use crate::contract::storage::SharedStore;
use crate::failure::{AppError, Failure};
use crate::program::foundation::Foundation;
use crate::program::{put, put_stderr};
use crate::tui::host::GrantRow;

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

/// A grant and whether it is in effect.
pub(crate) struct GrantStatus {
    pub(crate) grant: GrantRecord,
    /// `in force`, `expired`, `used up`, `revoked`.
    pub(crate) state: &'static str,
}

const HOLDS: &str = "in force";

/// Returns the grants: those in effect first, then the others if `all` is set; newest first in each group.
pub(crate) async fn rows(store: &SharedStore, now_ms: u64, all: bool) -> Result<Vec<GrantStatus>, AppError> {
    let held = store.grants(now_ms).await?;
    let ids: HashSet<String> = held.iter().map(|grant| grant.id.clone()).collect();
    let mut rows: Vec<GrantStatus> =
        held.into_iter().rev().map(|grant| GrantStatus { grant, state: HOLDS }).collect();
    if all {
        let every = store.all_grants().await?;
        let rest = every.into_iter().rev().filter(|grant| !ids.contains(&grant.id));
        rows.extend(rest.map(|grant| GrantStatus { state: state(&grant), grant }));
    }
    Ok(rows)
}

fn state(grant: &GrantRecord) -> &'static str {
    if grant.revoked_at.is_some() {
        "revoked"
    } else if grant.max_uses.is_some_and(|most| grant.uses >= most) {
        "used up"
    } else {
        "expired"
    }
}

impl GrantStatus {
    fn end(&self) -> String {
        match (self.grant.expires_at, self.grant.max_uses) {
            (Some(at), _) => format!("until {}", when(at)),
            (None, Some(_)) => "after its uses".to_owned(),
            (None, None) => "no expiry".to_owned(),
        }
    }

    fn uses(&self) -> String {
        match self.grant.max_uses {
            Some(most) => format!("{} of {most}", self.grant.uses),
            None => self.grant.uses.to_string(),
        }
    }

    fn given(&self) -> String {
        let by = &self.grant.actor;
        let tty = by.tty.as_ref().map(|tty| format!(", {tty}")).unwrap_or_default();
        format!("{} by {}{tty}", when(self.grant.created_at), by.shown())
    }

    fn state_text(&self) -> String {
        match self.grant.revoked_at {
            Some(at) => format!("{} {}", self.state, when(at)),
            None => self.state.to_owned(),
        }
    }

    pub(crate) fn to_grant_row(&self) -> GrantRow {
        GrantRow {
            id: self.grant.id.clone(),
            pattern: self.grant.pattern.clone(),
            scope: self.grant.scope.to_string(),
            state: self.state_text(),
            holds: self.state == HOLDS,
            end: self.end(),
            uses: self.uses(),
            given: self.given(),
            question: self.grant.suspension_id.as_ref().map(ToString::to_string),
        }
    }

    fn to_json(&self) -> Value {
        let mut value = json!(self.grant);
        value["state"] = json!(self.state);
        value
    }

    /// The cells of a line of the list.
    fn cells(&self) -> [String; 3] {
        let state = if self.state == HOLDS { String::new() } else { format!("  {}", self.state_text()) };
        let reach = format!("{}, {}, used {}{state}", self.grant.scope, self.end(), self.uses());
        [self.grant.id.clone(), self.grant.pattern.clone(), reach]
    }

    fn details(&self) -> String {
        let mut out = format!("{}\n", self.grant.id);
        let question = self.grant.suspension_id.as_ref().map(ToString::to_string);
        for (name, text) in [
            ("pattern", Some(self.grant.pattern.clone())),
            ("scope", Some(self.grant.scope.to_string())),
            ("state", Some(self.state_text())),
            ("end", Some(self.end())),
            ("uses", Some(self.uses())),
            ("given", Some(self.given())),
            ("question", question),
        ] {
            if let Some(text) = text {
                let _ = writeln!(out, "{name:<9} {}", visible_line(&text));
            }
        }
        out
    }
}

pub(crate) async fn run(command: GrantsCommand, foundation: &Foundation) -> Result<u8, Failure> {
    let only_reads = matches!(command, GrantsCommand::List { .. } | GrantsCommand::Show { .. });
    let store = if only_reads { foundation.open_store_to_read()? } else { foundation.open_store()? };
    let now = store.clock().now_ms();
    match command {
        GrantsCommand::List { all, json } => {
            let rows = rows(&store, now, all).await.map_err(Failure::failed)?;
            if json {
                put_json(&rows.iter().map(GrantStatus::to_json).collect())?;
            } else {
                put(&columns(rows.iter().map(GrantStatus::cells)))?;
            }
        }
        GrantsCommand::Show { id, json } => {
            let rows = rows(&store, now, true).await.map_err(Failure::failed)?;
            let row = by_prefix(&rows, &id)?;
            if json {
                put_json(&row.to_json())?;
            } else {
                put(&row.details())?;
            }
        }
        GrantsCommand::Revoke { ids } => {
            let rows = rows(&store, now, true).await.map_err(Failure::failed)?;
            // All are looked up first, so that a typing error revokes nothing.
            let found: Vec<&GrantStatus> =
                ids.iter().map(|id| by_prefix(&rows, id)).collect::<Result<_, _>>()?;
            for row in found {
                let pattern = visible_line(&row.grant.pattern);
                if store.revoke_grant(&row.grant.id, now).await.map_err(Failure::failed)? {
                    put_stderr(&format!("revoked {pattern} ({})", row.grant.id));
                } else {
                    put_stderr(&format!("{pattern} ({}) was already revoked", row.grant.id));
                }
            }
        }
    }
    store.close().await;
    Ok(0)
}

/// Returns the grant whose id starts with this prefix.
fn by_prefix<'r>(rows: &'r [GrantStatus], id: &str) -> Result<&'r GrantStatus, Failure> {
    let shown = visible_line(id);
    let mut found = rows.iter().filter(|row| !id.is_empty() && row.grant.id.starts_with(id));
    match (found.next(), found.next()) {
        (Some(row), None) => Ok(row),
        (None, _) => {
            Err(Failure::usage(format!("unknown grant `{shown}`; `aye grants list --all` shows all")))
        }
        (Some(_), Some(_)) => {
            let ids: Vec<&str> = rows
                .iter()
                .filter(|row| row.grant.id.starts_with(id))
                .map(|row| row.grant.id.as_str())
                .collect();
            Err(Failure::usage(format!("`{shown}` is not unique: {}", ids.join(", "))))
        }
    }
}
