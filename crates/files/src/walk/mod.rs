//! Walks a folder as ripgrep does, without trusting its contents.
//!
//! The ignore files are read here and not by the library that walks: it opens anything with the right name,
//! so a FIFO called `.gitignore` would block a search forever, and a device would fill the memory. Only
//! regular files are opened here, without blocking, and only their first [`MAX_IGNORE_FILE`] bytes count.

mod ignored;
#[cfg(test)]
mod tests;

use std::path::Path;

use ignore::overrides::Override;
use ignore::{DirEntry, Match, WalkBuilder};

use ignored::{IgnoreFiles, Ignored};

/// Bytes of an ignore file that count.
pub const MAX_IGNORE_FILE: u64 = 256 << 10;

/// The entries of a folder that a walk visits. Links are never followed.
#[derive(Clone, Debug)]
pub struct WalkFilter {
    /// Names that start with a dot are visited too.
    pub hidden: bool,
    /// Files named by `.ignore` are left out.
    pub dot_ignore: bool,
    /// Files named by `.gitignore` and `.git/info/exclude` are left out, inside and outside of repositories.
    pub git_ignore: bool,
    /// The ignore files of the folders above count too.
    pub parents: bool,
    /// The folders `.git` are entered.
    pub git_dirs: bool,
    /// Globs that decide before everything else.
    pub overrides: Override,
}

impl Default for WalkFilter {
    fn default() -> Self {
        Self {
            hidden: false,
            dot_ignore: true,
            git_ignore: true,
            parents: true,
            git_dirs: false,
            overrides: Override::empty(),
        }
    }
}

/// Returns a walk over `root`, which should be absolute. `visit` is called for each selected entry; a folder
/// for which it returns false is not entered.
pub fn builder(
    root: &Path,
    selection: WalkFilter,
    visit: impl Fn(&DirEntry) -> bool + Send + Sync + 'static,
) -> WalkBuilder {
    let files = IgnoreFiles::new(root, &selection);
    let mut builder = WalkBuilder::new(root);
    builder
        .standard_filters(false)
        .follow_links(false)
        .filter_entry(move |entry| is_selected(entry, &selection, &files) && visit(entry));
    builder
}

fn is_selected(entry: &DirEntry, selection: &WalkFilter, files: &IgnoreFiles) -> bool {
    if !selection.git_dirs && entry.file_name() == ".git" {
        return false;
    }
    let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
    match selection.overrides.matched(entry.path(), is_dir) {
        Match::Ignore(_) => return false,
        Match::Whitelist(_) => return true,
        Match::None => {}
    }
    let is_hidden = !selection.hidden && entry.file_name().as_encoded_bytes().starts_with(b".");
    match files.matched(entry.path(), is_dir) {
        Ignored::Yes => false,
        Ignored::Never => true,
        Ignored::No => !is_hidden,
    }
}

/// Reads the start of a regular file; anything else with its name is never waited for.
pub fn read_regular(path: &Path, most: u64) -> Option<Vec<u8>> {
    use std::io::Read as _;

    let mut bytes = Vec::new();
    open_regular(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Opens a regular file; anything else is refused without waiting for it.
///
/// # Errors
/// When it cannot be opened or is not a regular file.
pub fn open_regular(path: &Path) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt as _;

    let refused = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file");
    // Opening a device may already do something, so the type is checked first.
    if !path.metadata()?.is_file() {
        return Err(refused());
    }
    // The file may be replaced by a FIFO after that check: then opening must not wait for a writer.
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits().cast_signed();
    let file = std::fs::File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused()) }
}
