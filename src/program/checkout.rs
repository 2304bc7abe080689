//! A worktree that aye made and the checkout that it was made from: whose rules hold, and whose dependencies are read.

use std::path::{Path, PathBuf};

use aye_sandbox::common_git_folder;

/// Folders of dependencies that a worktree has from the checkout. Builds write into theirs (`target`), so those are not
/// among them.
pub(crate) const DEPENDENCIES: [&str; 4] = ["node_modules", ".venv", "venv", "vendor"];
/// The maximum entries of such a folder.
const MAX_ENTRIES: usize = 10_000;

/// The checkout that a worktree of aye was made from; `None` for any other folder.
pub(crate) fn checkout_of(root: &Path, worktrees: &Path) -> Option<PathBuf> {
    let worktrees = worktrees.canonicalize().ok()?;
    let common = if root.starts_with(worktrees) { common_git_folder(root)? } else { return None };
    common.parent().map(Path::to_path_buf)
}

/// The folders of dependencies that commands in a worktree may read in its checkout, and not write.
pub(crate) fn readable_dependencies(root: &Path, worktrees: &Path) -> Vec<PathBuf> {
    let Some(checkout) = checkout_of(root, worktrees) else { return Vec::new() };
    DEPENDENCIES.iter().map(|name| checkout.join(name)).filter(|folder| is_real_dir(folder)).collect()
}

pub(crate) fn is_real_dir(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

/// Removes the links to dependencies, where commands could write through them.
pub(crate) fn unlink_dependencies(checkout: &Path, worktree: &Path) {
    let folders = DEPENDENCIES.iter().map(|name| worktree.join(name)).filter(|folder| is_real_dir(folder));
    for entry in folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_symlink())
            && entry.path().read_link().is_ok_and(|to| to.starts_with(checkout))
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Links each entry of a folder into another one.
pub(crate) fn link_entries(from: &Path, to: &Path) -> std::io::Result<()> {
    for (nth, entry) in std::fs::read_dir(from)?.enumerate() {
        if nth >= MAX_ENTRIES {
            return Err(std::io::Error::other("too many entries"));
        }
        let name = entry?.file_name();
        std::os::unix::fs::symlink(from.join(&name), to.join(&name))?;
    }
    Ok(())
}
