//! `aye threads`: stored conversations.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use serde_json::json;

use crate::cli::shared::{ListArgs, PageArgs};
use crate::commands::columns::columns;
use crate::commands::pager::Pager;
use crate::commands::{JsonRows, put_json, thread_by_prefix, when};
use crate::contract::display::visible_line;
use crate::contract::ids::{CallId, RunId};
use crate::contract::lifecycle::RunStatus;
use crate::contract::record::{NamedBy, Owner, ThreadSummary};
use crate::contract::storage::{Match, SharedStore, StoreError, ThreadCopy, ThreadCopyFile};
use crate::failure::Failure;
use crate::program::export::{ExportEncoder, write, write_all};
use crate::program::foundation::Foundation;
use crate::program::{goal, put, put_or_stop, put_stderr};
use crate::runtime::adopt;

/// `aye threads ...`
#[derive(Clone, Debug, Subcommand)]
pub enum ThreadsCommand {
    /// List conversations, latest first
    List(ListArgs),
    /// Show one conversation
    Show {
        /// Id of the conversation, or its first characters
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete conversations permanently; their messages are overwritten in the store
    ///
    /// The audit keeps their questions, decisions and outcomes, with the arguments of the calls; `aye audit` shows it.
    Delete {
        /// Ids of conversations, or their first characters
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Rename a conversation
    Rename {
        /// Id of the conversation, or its first characters
        id: String,
        /// The new title
        title: String,
    },
    /// Pin a conversation: list it first
    Pin {
        /// Id of the conversation, or its first characters
        id: String,
        /// Remove the pin
        #[arg(long)]
        off: bool,
    },
    /// Fork a conversation into a new one and print its id
    Fork {
        /// Id of the conversation, or its first characters
        id: String,
        /// Number of messages to copy; all by default
        #[arg(long, value_name = "N")]
        messages: Option<u64>,
    },
    /// Search all conversations
    Search {
        /// Text to find, ignoring case
        words: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
        /// The page of the list.
        #[command(flatten)]
        page: PageArgs,
    },
    /// Import a conversation that `export --format json` wrote, and print its id
    ///
    /// Its messages, runs, images, summaries, state and pending questions are imported, and the conversations of its
    /// subagents.
    Import {
        /// The file; `-` is stdin
        file: PathBuf,
    },
    /// Write one conversation to stdout
    Export {
        /// Id of the conversation, or its first characters
        id: String,
        /// Output format
        #[arg(long, value_enum, default_value_t = ExportFormatArg::Md)]
        format: ExportFormatArg,
    },
}

/// Form of an exported conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormatArg {
    /// Markdown
    #[default]
    Md,
    /// One JSON object with everything that `import` reads
    Json,
    /// One file for a browser, without scripts
    Html,
}

/// The number of rows that are read first.
const PAGE: usize = 200;
/// Maximum number of rows read at a time.
const MAX_PAGE: usize = 12_800;
/// The number of messages from which indexing them is announced.
const MANY: u64 = 5_000;

pub(crate) async fn run(command: ThreadsCommand, foundation: &Foundation) -> Result<u8, Failure> {
    let only_reads = matches!(
        command,
        ThreadsCommand::List(_)
            | ThreadsCommand::Show { .. }
            | ThreadsCommand::Search { .. }
            | ThreadsCommand::Export { .. }
    );
    let store = if only_reads { foundation.open_store_to_read()? } else { foundation.open_store()? };
    match command {
        ThreadsCommand::List(ListArgs { json, page }) => list(&store, json, page, foundation).await?,
        ThreadsCommand::Search { words, json, page } => {
            search(&store, &words, json, page, foundation).await?;
        }
        ThreadsCommand::Show { id, json } => {
            export(&store, &id, if json { ExportEncoder::Json } else { ExportEncoder::Markdown }, false)
                .await?;
        }
        ThreadsCommand::Export { id, format } => {
            let form = match format {
                ExportFormatArg::Md => ExportEncoder::Markdown,
                ExportFormatArg::Json => ExportEncoder::Json,
                ExportFormatArg::Html => ExportEncoder::Html,
            };
            export(&store, &id, form, format == ExportFormatArg::Json).await?;
        }
        ThreadsCommand::Import { file } => import(&store, &file, foundation).await?,
        ThreadsCommand::Rename { id, title } => {
            let thread = thread_by_prefix(&store, &id).await?;
            store.rename_thread(&thread.id, &title, NamedBy::Person).await.map_err(Failure::failed)?;
        }
        ThreadsCommand::Pin { id, off } => {
            let thread = thread_by_prefix(&store, &id).await?;
            let pin = (!off).then(|| store.clock().now_ms());
            store.pin_thread(&thread.id, pin).await.map_err(Failure::failed)?;
        }
        ThreadsCommand::Fork { id, messages } => {
            let thread = thread_by_prefix(&store, &id).await?;
            let copy =
                crate::terminal::rewind::fork_stored(&store, &thread.id, messages, store.clock().now_ms())
                    .await?;
            put(&format!("{copy}\n"))?;
        }
        ThreadsCommand::Delete { ids } => delete(&store, ids, foundation).await?,
    }
    store.close().await;
    Ok(0)
}

/// A page as it was asked for, in pieces. Each is twice as long as the one before: the store goes through all rows
/// before a piece, so a long list must not have many.
struct Pieces {
    at: usize,
    left: Option<usize>,
    length: usize,
}

impl Pieces {
    fn of(page: PageArgs) -> Pieces {
        Pieces { at: page.offset, left: page.limit, length: PAGE }
    }

    /// Returns the number of rows to request next.
    fn next(&self) -> usize {
        self.left.map_or(self.length, |left| left.min(self.length))
    }

    /// Counts the rows received. Returns `false` if there are no more.
    fn count_rows(&mut self, rows: usize) -> bool {
        let wanted = self.next();
        self.at += rows;
        self.left = self.left.map(|left| left - rows);
        self.length = (2 * self.length).min(MAX_PAGE);
        rows == wanted && self.left != Some(0)
    }
}

async fn list(
    store: &SharedStore,
    json: bool,
    page: PageArgs,
    foundation: &Foundation,
) -> Result<(), Failure> {
    if json {
        let mut out = JsonRows::default();
        let mut feed = store.read_threads(page.offset, page.limit);
        'rows: while let Some(threads) = feed.next().await.map_err(Failure::failed)? {
            for thread in threads {
                if !out.add(&json!(thread))? {
                    break 'rows;
                }
            }
        }
        return out.finish();
    }
    let mut pager = Pager::new(&foundation.env);
    let mut pieces = Pieces::of(page);
    loop {
        let rows = store.threads_page(None, pieces.at, Some(pieces.next())).await.map_err(Failure::failed)?;
        let text = columns(rows.iter().map(cells));
        if !pager.write(&text)? || !pieces.count_rows(rows.len()) {
            return pager.finish();
        }
    }
}

fn cells(row: &ThreadSummary) -> [String; 4] {
    let note = match (&row.damaged, row.waiting) {
        (Some(why), _) => format!("  damaged: {why}"),
        (None, 0) => String::new(),
        (None, n) => format!("  {n} waiting"),
    };
    let (id, when) = (row.thread.id.to_string(), when(row.thread.updated_at));
    [id, when, format!("{:>4}", row.messages), format!("{}{note}", row.thread.title)]
}

async fn search(
    store: &SharedStore,
    words: &str,
    json: bool,
    page: PageArgs,
    foundation: &Foundation,
) -> Result<(), Failure> {
    update_index(store).await?;
    if json {
        let found = store.search(words, page.offset, page.limit).await.map_err(Failure::failed)?;
        let row = |found: &Match| json!({"thread": found.thread, "around": found.around});
        return put_json(&json!(found.iter().map(row).collect::<Vec<_>>()));
    }
    let mut pager = Pager::new(&foundation.env);
    if !pager.is_paged() {
        let found = store.search(words, page.offset, page.limit).await.map_err(Failure::failed)?;
        return put(&matches(&found));
    }
    let mut pieces = Pieces::of(page);
    loop {
        let found = store.search(words, pieces.at, Some(pieces.next())).await.map_err(Failure::failed)?;
        if !pager.write(&matches(&found))? || !pieces.count_rows(found.len()) {
            return pager.finish();
        }
    }
}

fn matches(found: &[Match]) -> String {
    let mut out = String::new();
    for Match { thread, around } in found {
        let (title, around) = (visible_line(&thread.title), visible_line(around));
        let _ = writeln!(out, "{}  {}  {title}\n    {around}", thread.id, when(thread.updated_at));
    }
    out
}

/// Adds messages written since the last search to the index. If the index cannot be written, the search reads
/// these messages instead.
async fn update_index(store: &SharedStore) -> Result<(), Failure> {
    let missing = store.unindexed_messages().await.map_err(Failure::failed)?;
    if missing > MANY {
        put_stderr(&format!("indexing {missing} messages for search, once"));
    }
    loop {
        match store.index_messages().await {
            Ok(true) => {}
            Ok(false) | Err(StoreError::ReadOnly | StoreError::Busy { .. } | StoreError::Full) => {
                return Ok(());
            }
            Err(error) => return Err(Failure::failed(error)),
        }
    }
}

async fn export(store: &SharedStore, id: &str, form: ExportEncoder, with_rest: bool) -> Result<(), Failure> {
    let thread = thread_by_prefix(store, id).await?;
    let put = |text: &str| put_or_stop(text).map_err(|failure| std::io::Error::other(failure.message));
    let written =
        if with_rest { write_all(store, &thread, put).await } else { write(store, &thread, form, put).await };
    written.map_err(Failure::failed)
}

/// Opens an exported conversation. What can be read only once is copied into a file without a name, on the disk of the
/// store: the folder for temporary files may be in memory.
fn open_copy(file: &Path, folder: Option<&Path>) -> std::io::Result<std::fs::File> {
    let opened = if file.as_os_str() == "-" { None } else { Some(std::fs::File::open(file)?) };
    let spool = |mut from: &mut dyn std::io::Read| {
        let mut spooled = folder.map_or_else(tempfile::tempfile, tempfile::tempfile_in)?;
        std::io::copy(&mut from, &mut spooled)?;
        Ok(spooled)
    };
    match opened {
        Some(file) if file.metadata()?.is_file() => Ok(file),
        Some(mut file) => spool(&mut file),
        None => spool(&mut std::io::stdin().lock()),
    }
}

/// Imports the output of `export --format json`.
async fn import(store: &SharedStore, file: &Path, foundation: &Foundation) -> Result<(), Failure> {
    let name = visible_line(&file.to_string_lossy()).into_owned();
    let database = foundation.paths.database();
    let folder = database.parent().filter(|_| !foundation.is_ephemeral);
    let opened =
        open_copy(file, folder).map_err(|error| Failure::failed(format!("cannot read {name}: {error}")))?;
    let mut file = ThreadCopyFile::new(opened);
    let mut copy = file.outline().map_err(|error| {
        Failure::failed(if error.is_io() {
            format!("cannot read {name}: {error}")
        } else {
            format!("{name} is not an exported conversation: {error}")
        })
    })?;
    let id = copy.thread.id.clone();
    let had_command = remove_goal_commands(&mut copy);
    let (questions, unknown) = adopt_all(&mut copy, store.clock().now_ms());
    store.import_thread_file(copy, file).await.map_err(|error| {
        Failure::failed(format!("{name} cannot be imported: {error}; nothing was imported"))
    })?;
    put(&format!("{id}\n"))?;
    match questions {
        0 => {}
        1 => put_stderr("1 question is pending; see aye inbox"),
        count => put_stderr(&format!("{count} questions are pending; see aye inbox")),
    }
    if had_command {
        put_stderr("the command of its goal is not taken over; --until sets one again");
    }
    if unknown > 0 {
        put_stderr(&crate::commands::store::may_have_run(unknown, "export"));
    }
    Ok(())
}

/// Takes the commands of goals out of a copy and of its subagents. Returns whether there was one.
fn remove_goal_commands(copy: &mut ThreadCopy) -> bool {
    let mut had_command = goal::remove_commands(&mut copy.rest.state);
    for run in &mut copy.rest.runs {
        had_command |= goal::remove_commands(&mut run.state);
    }
    for child in &mut copy.children {
        had_command |= remove_goal_commands(child);
    }
    had_command
}

/// Prepares the unfinished runs of a copy to continue here, with those of its subagents. Returns the number of pending
/// questions, and of calls that may have run since the export.
fn adopt_all(copy: &mut ThreadCopy, now: u64) -> (usize, u64) {
    let mut below = std::mem::take(&mut copy.children);
    let served: Vec<_> = below
        .iter()
        .filter_map(|copy| copy.child.as_ref())
        .map(|child| (child.parent_run.clone(), child.parent_call.clone()))
        .collect();
    let (mut open, mut unknown) = (0, 0);
    for copy in std::iter::once(&mut *copy).chain(&mut below) {
        let (questions, marked) = adopt_runs(copy, &served, now);
        (open, unknown) = (open + questions, unknown + marked);
    }
    copy.children = below;
    (open, unknown)
}

/// Does the same for one conversation. `served`: the calls that subagents work on whose conversations are in the copy.
fn adopt_runs(copy: &mut ThreadCopy, served: &[(RunId, CallId)], now: u64) -> (usize, u64) {
    let own = Owner::of_this_process();
    let (mut open, mut unknown) = (0, 0);
    let rest = &mut copy.rest;
    for run in rest.runs.iter_mut().filter(|run| run.status != RunStatus::Done) {
        run.thread_id = copy.thread.id.clone();
        let asked: Vec<_> = rest.suspensions.iter().filter(|asked| asked.run_id == run.id).cloned().collect();
        let started: Vec<_> =
            rest.intents.iter().filter(|started| started.intent.id.run_id == run.id).cloned().collect();
        let id = run.id.clone();
        let is_served = |call: &CallId| served.iter().any(|(run, known)| *run == id && known == call);
        let Some(marked) = adopt(run, &asked, &started, is_served, &own, now) else { continue };
        open += asked.iter().filter(|asked| asked.decision.is_none() && !asked.ticket.is_served()).count();
        unknown += marked.len() as u64;
        copy.adopted.insert(run.id.clone(), marked);
    }
    (open, unknown)
}

async fn delete(store: &SharedStore, ids: Vec<String>, foundation: &Foundation) -> Result<(), Failure> {
    // All are looked up first, so that a typing error deletes nothing.
    let mut found = Vec::new();
    for id in ids {
        found.push(thread_by_prefix(store, &id).await?);
    }
    for thread in found {
        let (actor, now) = (crate::program::app_context::actor(foundation, "cli"), store.clock().now_ms());
        store.delete_thread(&thread.id, &Owner::default(), actor, now).await.map_err(Failure::failed)?;
        put_stderr(&format!("deleted {}", thread.id));
    }
    if !store.shrink(false).await.map_err(Failure::failed)? {
        put_stderr(
            "another process has the store open; its log contains the deleted data until that process ends",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::contract::storage::ThreadRest;

    #[test]
    fn no_goal_of_a_copy_or_of_a_subagent_keeps_its_command() {
        let goal = json!({"command": "touch x", "condition": "it is there"});
        let state = ["goal", "goal.open"].map(|key| (key.to_owned(), goal.clone()));
        let thread = json!({"id": "t", "title": "", "cwd": "/", "created_at": 0, "updated_at": 0});
        let copy = |children| ThreadCopy {
            child: None,
            thread: serde_json::from_value(thread.clone()).expect("a thread"),
            messages: Vec::new(),
            rest: ThreadRest { state: state.clone().into(), ..ThreadRest::default() },
            children,
            adopted: HashMap::new(),
        };
        let mut with_child = copy(vec![copy(Vec::new())]);
        assert!(remove_goal_commands(&mut with_child));
        for left in [&with_child.rest.state, &with_child.children[0].rest.state] {
            assert!(left.values().all(|goal| *goal == json!({"condition": "it is there"})), "{left:?}");
        }
        assert!(!remove_goal_commands(&mut with_child));
    }

    #[test]
    fn a_long_list_is_read_in_few_pieces() {
        let mut pieces = Pieces::of(PageArgs { offset: 7, limit: None });
        let (mut left, mut count) = (100_000, 0);
        loop {
            count += 1;
            let rows = pieces.next().min(left);
            left -= rows;
            if !pieces.count_rows(rows) {
                break;
            }
        }
        assert_eq!((left, pieces.at), (0, 100_007));
        assert!(count < 20, "{count}");
    }
}
