//! Programs in the workspace that are another one under a new name: a link to it, or a copy.

use std::path::Path;

use aye_files::opener;
use aye_pattern::shell::Simple;

/// Where the system has its programs.
const FOLDERS: [&str; 5] = ["/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"];
/// A larger program is not compared.
const MAX_PROGRAM: u64 = 32 << 20;

/// Returns whether the file at `path` is a program of this name: a link leads to one, or its content is that of the one
/// that the system has.
pub(super) fn is_program(path: &Path, program: &str) -> bool {
    let Ok(real) = opener::resolve(path) else { return false };
    if real.file_name().is_some_and(|name| name == program) {
        return true;
    }
    FOLDERS.iter().any(|folder| {
        opener::resolve(&Path::new(folder).join(program))
            .is_ok_and(|system| system == real || is_copy(&real, &system))
    })
}

/// Returns whether a command gives files other names.
pub(super) fn makes_copies(command: &Simple) -> bool {
    matches!(command.program(), Some("ln" | "cp" | "mv" | "install" | "link"))
}

fn is_copy(file: &Path, of: &Path) -> bool {
    let size = |path: &Path| path.metadata().ok().filter(std::fs::Metadata::is_file).map(|it| it.len());
    let (Some(own), Some(other)) = (size(file), size(of)) else { return false };
    own == other
        && own > 0
        && own <= MAX_PROGRAM
        && opener::read_regular(file, MAX_PROGRAM)
            .is_some_and(|bytes| opener::read_regular(of, MAX_PROGRAM).is_some_and(|others| bytes == others))
}
