//! Which file a path means that does not exist.

use std::path::Path;
use std::time::Duration;

use aye_core::contract::near;
use aye_core::contract::tool::ToolCallContext;
use aye_files::opener;
use tokio_util::sync::CancellationToken;

use super::ToolEnv;
use super::paths::shown;
use super::walk::{self, Bounds, WalkGuard};

/// Entries that are looked at.
const MAX_ENTRIES: usize = 5000;
const MAX_TIME: Duration = Duration::from_millis(300);
/// With more candidates than this, none is meant.
const MAX_MEANT: usize = 3;

/// Returns the end of the sentence "the file does not exist": files of the same name elsewhere in the working directory, or of a
/// similar name in the same folder. Ignored and restricted files are never named.
pub(super) fn did_you_mean(env: &ToolEnv, ctx: &ToolCallContext, path: &Path) -> Option<String> {
    let wanted = path.file_name()?.to_str()?;
    let cwd = &env.workspace.cwd;
    let folder = env.open_folder(ctx, &opener::resolve(cwd).ok()?).ok()?;
    let (bounds, mut over) = (Bounds::within(MAX_TIME, CancellationToken::new()), false);
    let guard = WalkGuard::new(env, ctx, cwd);
    let mut meant: (usize, Vec<String>) = (usize::MAX, Vec::new());
    let walk = walk::walk(folder, cwd, false, None, &bounds, &guard);
    for entry in walk::entries(walk, &bounds, &mut over).take(MAX_ENTRIES) {
        let Some(name) = entry.path().file_name().and_then(|name| name.to_str()) else { continue };
        let is_beside = || entry.path().parent() == path.parent() && near::is_near(name, wanted);
        let rank = if name == wanted {
            0
        } else if name.eq_ignore_ascii_case(wanted) {
            1
        } else if is_beside() {
            2 + near::distance(name, wanted)
        } else {
            continue;
        };
        if rank > meant.0 || !entry.is_file() || !guard.admits(&entry) {
            continue;
        }
        if rank < meant.0 {
            meant = (rank, Vec::new());
        }
        meant.1.push(shown(&env.workspace, entry.path()));
    }
    let (_, mut names) = meant;
    names.sort();
    (1..=MAX_MEANT).contains(&names.len()).then(|| format!("did you mean {}?", names.join(" or ")))
}
