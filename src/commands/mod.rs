//! One file for each subcommand, with its arguments and what it does.

pub(crate) mod acp;
pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod chat;
pub(crate) mod columns;
pub(crate) mod config;
pub(crate) mod docs;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod gate;
pub(crate) mod grants;
pub(crate) mod hooks;
pub(crate) mod import;
pub(crate) mod login;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod memory;
pub(crate) mod models;
pub(crate) mod pager;
pub(crate) mod permissions;
pub(crate) mod print;
pub(crate) mod queue;
pub(crate) mod reminders;
pub(crate) mod replay;
pub(crate) mod serve;
pub(crate) mod since;
pub(crate) mod skills;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod tasks;
pub(crate) mod threads;
pub(crate) mod upgrade;
pub(crate) mod work;
pub(crate) mod worktrees;

use serde_json::Value;

use crate::cli::start::{StartFlags, ThreadChoice};
use crate::contract::display::escape_json;
use crate::contract::ids::ThreadId;
use crate::contract::record::ThreadRecord;
use crate::contract::storage::{SharedStore, ThreadLookup};
use crate::failure::Failure;
use crate::program::app_context::AppContext;
use crate::program::moved;
use crate::program::{put, put_or_stop};

pub(crate) fn put_json(value: &Value) -> Result<(), Failure> {
    put(&format!("{}\n", escape_json(&serde_json::to_string_pretty(value).unwrap_or_default())))
}

/// Writes a list as [`put_json`] does, row by row.
#[derive(Default)]
pub(crate) struct JsonRows {
    text: String,
    has_rows: bool,
}

impl JsonRows {
    /// Rows are written when they have this many bytes.
    const LENGTH: usize = 64 << 10;

    /// Adds a row; `false` if nobody reads the output any more.
    pub(crate) fn add(&mut self, row: &Value) -> Result<bool, Failure> {
        self.text.push_str(if self.has_rows { ",\n  " } else { "[\n  " });
        self.has_rows = true;
        // A string of JSON has no line ends of its own.
        let row = serde_json::to_string_pretty(row).unwrap_or_default().replace('\n', "\n  ");
        self.text.push_str(&escape_json(&row));
        if self.text.len() < Self::LENGTH {
            return Ok(true);
        }
        put_or_stop(&std::mem::take(&mut self.text))
    }

    /// Writes the rest.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        put(&(self.text + if self.has_rows { "\n]\n" } else { "[]\n" }))
    }
}

/// Returns the thread whose id starts with this prefix.
pub(crate) async fn thread_by_prefix(store: &SharedStore, id: &str) -> Result<ThreadRecord, Failure> {
    match store.find_thread(id).await.map_err(Failure::failed)? {
        ThreadLookup::One(thread) => Ok(thread),
        ThreadLookup::None => {
            Err(Failure::usage(format!("unknown thread `{id}`; `aye threads list` shows all")))
        }
        ThreadLookup::Many(threads) => {
            let ids: Vec<_> = threads.iter().map(|t| t.id.to_string()).collect();
            Err(Failure::usage(format!("`{id}` is not unique: {}", ids.join(", "))))
        }
    }
}

/// Returns the conversation that the command line asks for, or the copy of it that `--fork-session` wants. Without one
/// yet, `-c` returns none.
///
/// # Errors
/// An unknown id, and an id for a new conversation that one has already.
pub(crate) async fn chosen_thread(app: &AppContext, cli: &StartFlags) -> Result<Option<ThreadId>, Failure> {
    if let Some(id) = &cli.session_id
        && app.store.load_thread(&ThreadId::from(id.to_string())).await.map_err(Failure::failed)?.is_some()
    {
        return Err(Failure::usage(format!(
            "--session-id {id}: there is a conversation of this id; open it with -r {id}"
        )));
    }
    let thread = match cli.thread() {
        ThreadChoice::New | ThreadChoice::Pick => None,
        ThreadChoice::Last => moved::latest_thread(app).await?.map(|thread| thread.id),
        ThreadChoice::Id(id) => Some(thread_by_prefix(&app.store, &id).await?.id),
    };
    match thread {
        Some(thread) if cli.fork_session => {
            crate::terminal::rewind::fork_stored(&app.store, &thread, None, app.clock.now_ms())
                .await
                .map(Some)
        }
        thread => Ok(thread),
    }
}

/// Formats a Unix time in milliseconds in the local time zone.
pub(crate) fn when(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map(|t| t.to_zoned(crate::program::zone()).strftime("%Y-%m-%d %H:%M").to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_written_as_the_whole_list_would_be() {
        let row = json!({"id": "a\u{202e}b", "note": "two\nlines", "parts": [1, {"x": []}], "none": {}});
        let mut rows = JsonRows::default();
        for count in 1..4 {
            assert!(rows.add(&row).expect("nothing is written yet"));
            let all = json!(vec![&row; count]);
            let whole = escape_json(&serde_json::to_string_pretty(&all).expect("JSON"));
            assert_eq!(format!("{}\n]", rows.text), whole);
        }
    }
}
