//! Recognises a moved project by the first commit of its repository.

use std::path::{Path, PathBuf};

use crate::contract::display::visible_line;
use crate::contract::record::ThreadRecord;
use crate::failure::Failure;
use crate::program::app_context::AppContext;
use crate::program::{git, put_stderr};

/// Records the first commit of this folder's repository, once for each folder.
pub(crate) async fn note(app: &AppContext) {
    let cwd = &app.foundation.workspace.cwd;
    if app.foundation.is_ephemeral || !matches!(app.store.knows_folder(cwd).await, Ok(false)) {
        return;
    }
    let Some((commit, below)) = identity(app).await else { return };
    if let Err(error) = app.store.note_folder(cwd, &commit, &below).await {
        tracing::debug!(%error, "a moved project will not be found");
    }
}

/// The first commit of this folder's repository, and where in it the folder is.
async fn identity(app: &AppContext) -> Option<(String, PathBuf)> {
    let workspace = &app.foundation.workspace;
    let below = workspace.cwd.strip_prefix(&workspace.root).ok()?.to_owned();
    workspace.root.join(".git").symlink_metadata().ok()?;
    let commit = git::first_commit(&app.foundation).await?;
    Some((commit, below))
}

/// Returns the latest conversation of this folder; else of its path before a move, which must no longer exist. Trust and
/// grants stay with the old path.
pub(crate) async fn latest_thread(app: &AppContext) -> Result<Option<ThreadRecord>, Failure> {
    let cwd = &app.foundation.workspace.cwd;
    let latest = app.store.latest_thread(cwd).await.map_err(Failure::failed)?;
    if latest.is_some() || app.foundation.is_ephemeral {
        return Ok(latest);
    }
    let Some((commit, below)) = identity(app).await else { return Ok(None) };
    let known = app.store.folders_of(&commit, &below).await.map_err(Failure::failed)?;
    let Some(before) = known.into_iter().find(|known| is_gone(known)) else { return Ok(None) };
    app.store.move_folder(&before, cwd).await.map_err(Failure::failed)?;
    let note =
        "this project was moved: its conversations now belong to this folder; trust and grants did not move";
    put_stderr(&format!("aye: {} no longer exists; {note}", visible_line(&before.to_string_lossy())));
    app.store.latest_thread(cwd).await.map_err(Failure::failed)
}

fn is_gone(folder: &Path) -> bool {
    folder.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}
