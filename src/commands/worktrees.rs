//! `aye worktrees`: lists, shows, merges and removes the worktrees that `aye -w` made.

use clap::Subcommand;
use serde_json::json;

use crate::commands::columns::columns;
use crate::commands::put_json;
use crate::contract::amount::counted;
use crate::contract::display::visible;
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::worktrees::{Worktree, WorktreeChanges, Worktrees};
use crate::program::{ask, put};

/// `aye worktrees ...`
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "Example:\n  aye -w parser \"write the parser\" && aye worktrees merge parser")]
pub enum WorktreesCommand {
    /// List this project's worktrees with their changes and conversations
    List {
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a worktree's branch would bring
    Diff {
        /// Name of the worktree
        name: String,
    },
    /// Merge a worktree's branch into this checkout, after its diff was read; the commit is left to you
    Merge {
        /// Name of the worktree
        name: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Remove a worktree and its branch; asks if something in it is not merged
    Remove {
        /// Name of the worktree
        name: String,
        /// Do not ask; what is not merged is lost
        #[arg(long)]
        force: bool,
    },
}

pub(crate) async fn run(command: WorktreesCommand, foundation: &Foundation) -> Result<u8, Failure> {
    let worktrees = Worktrees::of(foundation).await?;
    match command {
        WorktreesCommand::List { json } => list(&worktrees, json, foundation).await?,
        WorktreesCommand::Diff { name } => {
            let worktree = worktrees.named(&name)?;
            put(&visible(&worktrees.diff(&worktree).await.map_err(Failure::failed)?))?;
        }
        WorktreesCommand::Merge { name, yes } => return merge(&worktrees, &name, yes).await,
        WorktreesCommand::Remove { name, force } => return remove(&worktrees, &name, force).await,
    }
    Ok(0)
}

async fn list(worktrees: &Worktrees, json: bool, foundation: &Foundation) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let store = foundation.open_store_to_read()?;
    for worktree in worktrees.all() {
        let state = worktrees.state(&worktree).await;
        let threads = store.threads_page(Some(&worktree.path), 0, None).await.map_err(Failure::failed)?;
        rows.push((worktree, state, threads.len()));
    }
    store.close().await;
    if json {
        let row = |(worktree, state, conversations): &(Worktree, Result<WorktreeChanges, _>, usize)| {
            let state = state.as_ref().ok();
            json!({
                "name": worktree.name, "path": worktree.path, "branch": worktree.branch(),
                "uncommitted": state.map(|state| state.uncommitted), "commits": state.map(|state| state.commits),
                "conversations": conversations,
            })
        };
        return put_json(&json!(rows.iter().map(row).collect::<Vec<_>>()));
    }
    if rows.is_empty() {
        return put("no worktrees of this project; `aye -w NAME` makes one\n");
    }
    put(&columns(rows.iter().map(|(worktree, state, conversations)| {
        let changes = match state {
            Ok(state) => state.to_string(),
            Err(error) => error.to_string(),
        };
        let conversations = counted(*conversations, "conversation");
        [
            worktree.name.clone(),
            worktree.branch(),
            changes,
            conversations,
            worktree.path.display().to_string(),
        ]
    })))
}

async fn merge(worktrees: &Worktrees, name: &str, yes: bool) -> Result<u8, Failure> {
    let worktree = worktrees.named(name)?;
    let state = worktrees.state(&worktree).await.map_err(Failure::failed)?;
    if state.uncommitted > 0 {
        return Err(Failure::failed(format!(
            "worktree {name} has {state}; commit first, for example with: aye -w {name} \"commit your changes\""
        )));
    }
    if state.commits == 0 {
        put(&format!("worktree {name} has no commit that is not here\n"))?;
        return Ok(0);
    }
    put(&visible(&worktrees.diff(&worktree).await.map_err(Failure::failed)?))?;
    if !yes && !ask(&format!("\nMerge {} ({state}) into this checkout? [y/N] ", worktree.branch()))? {
        put("nothing changed\n")?;
        return Ok(1);
    }
    worktrees.merge(&worktree).await?;
    put("merged, not committed yet: `git commit` completes it, `git merge --abort` takes it back\n")?;
    Ok(0)
}

async fn remove(worktrees: &Worktrees, name: &str, force: bool) -> Result<u8, Failure> {
    let worktree = worktrees.named(name)?;
    // What git cannot say may be anything.
    let state = worktrees.state(&worktree).await;
    let loses = match &state {
        Ok(state) if state.is_empty() => None,
        Ok(state) => Some(state.to_string()),
        Err(error) => Some(format!("what git cannot say ({error})")),
    };
    let is_agreed = force || loses.is_some();
    if let Some(loses) = loses.filter(|_| !force)
        && !ask(&format!("Worktree {name} has {loses}, which would be lost. Remove it? [y/N] "))?
    {
        put("nothing changed\n")?;
        return Ok(1);
    }
    worktrees.remove(&worktree, is_agreed).await.map_err(Failure::failed)?;
    put(&format!("removed worktree {name} and its branch\n"))?;
    Ok(0)
}
