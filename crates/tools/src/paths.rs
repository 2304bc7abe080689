//! Paths as models write them, and names as models can write them.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use super::args::invalid;
pub(super) use aye_core::contract::display::escape_path as escape;
use aye_core::contract::display::{unescape_path as unescape, visible_line};
use aye_core::contract::tool::ToolError;
use aye_core::contract::workspace::Workspace;
use aye_files::opener::{self, Unresolved};

/// Makes a path absolute, as text only: `~`, then the working directory, then `.` and `..`.
///
/// # Errors
/// [`ToolError::InvalidArguments`] for an empty path or one with a NUL.
pub(super) fn absolute(workspace: &Workspace, field: &str, text: &str) -> Result<PathBuf, ToolError> {
    if text.is_empty() {
        return Err(invalid(format!("`{field}` is empty")));
    }
    if text.contains('\0') {
        return Err(invalid(format!("`{field}` contains a NUL byte: {}", visible_line(text))));
    }
    let join = |text: &OsStr| -> PathBuf {
        let path = Path::new(text);
        if let Ok(rest) = path.strip_prefix("~") {
            return normal(&workspace.home.join(rest));
        }
        normal(&workspace.cwd.join(path))
    };
    let path = join(OsStr::new(text));
    if text.contains('\\')
        && path.symlink_metadata().is_err()
        && let Some(name) = unescape(text)
    {
        let raw = join(&name);
        if raw.symlink_metadata().is_ok() {
            return Ok(raw);
        }
    }
    Ok(path)
}

/// Removes `.` and `..` without reading the disk.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}

/// A path as the model reads it: relative inside the working directory, with [`escape`]d names.
pub(super) fn shown(workspace: &Workspace, path: &Path) -> String {
    match path.strip_prefix(&workspace.cwd) {
        Ok(rest) if rest.as_os_str().is_empty() => ".".into(),
        Ok(rest) => escape(rest),
        Err(_) => escape(path),
    }
}

/// An error while resolving the links of a path.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum PathError {
    #[error("{0} is a link to a missing file")]
    Dangling(String),
    #[error("{link} leads out of the workspace, to {real}; use that path if it is intended")]
    Leaves { link: String, real: String },
    #[error("cannot read {path}: {reason}")]
    Io { path: String, reason: String },
}

impl From<PathError> for ToolError {
    fn from(error: PathError) -> Self {
        Self::ExecutionFailed(error.to_string())
    }
}

/// Returns whether a path inside the workspace leads out of it.
pub(super) fn leaves(workspace: &Workspace, path: &Path, real: &Path) -> bool {
    let inside = |path: &Path| path.starts_with(&workspace.root) || path.starts_with(&workspace.cwd);
    inside(path) && !inside(real)
}

/// Returns where a write to `path` goes: all links resolved, the part that does not exist yet appended.
///
/// A path inside the workspace must stay inside when its links are resolved: a user who allowed `src/x` did
/// not allow the target to which `src` was linked afterwards.
pub(super) fn resolve(workspace: &Workspace, path: &Path) -> Result<PathBuf, PathError> {
    let real = opener::resolve_new(path).map_err(|why| match why {
        Unresolved::Dangling(link) => PathError::Dangling(escape(&link)),
        Unresolved::Io(error) => PathError::Io { path: escape(path), reason: error.to_string() },
    })?;
    if leaves(workspace, path, &real) {
        return Err(PathError::Leaves { link: escape(path), real: escape(&real) });
    }
    Ok(real)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;
    use crate::testing::Sandbox;

    fn abs(text: &str) -> Result<PathBuf, ToolError> {
        let workspace = Workspace { cwd: "/w/p".into(), root: "/w".into(), home: "/h".into() };
        absolute(&workspace, "file_path", text)
    }

    #[test]
    fn paths_are_made_absolute() {
        for (text, path) in [
            ("src/main.rs", "/w/p/src/main.rs"),
            ("./src//a/../main.rs", "/w/p/src/main.rs"),
            ("/etc/x", "/etc/x"),
            ("../../../..", "/"),
            ("~", "/h"),
            ("~/x", "/h/x"),
            ("~x", "/w/p/~x"),
        ] {
            assert_eq!(abs(text).expect(text), Path::new(path));
        }
        assert_eq!(abs("").expect_err("empty").to_string(), "invalid arguments: `file_path` is empty");
        let nul = abs("src/\0../x").expect_err("NUL").to_string();
        assert!(nul.contains("NUL byte") && !nul.contains('\0'), "{nul}");
    }

    #[test]
    fn an_odd_name_is_addressed_by_its_displayed_form() {
        let sandbox = Sandbox::new();
        let raw = sandbox.path(OsStr::from_bytes(b"src/\xff.rs"));
        sandbox.write(OsStr::from_bytes(b"src/\xff.rs"), "x");
        let name = shown(&sandbox.workspace, &raw);
        assert_eq!(name, "src/\\xff.rs");
        assert_eq!(absolute(&sandbox.workspace, "p", &name).expect("fine"), raw);
        sandbox.write("a\nb.rs", "x");
        assert_eq!(absolute(&sandbox.workspace, "p", "a\\x0ab.rs").expect("fine"), sandbox.path("a\nb.rs"));
    }

    #[test]
    fn an_ordinary_name_has_only_one_spelling() {
        let sandbox = Sandbox::new();
        sandbox.write(".env", "x");
        for text in ["\\x2eenv", "\\u{2e}env", ".en\\x76"] {
            assert_ne!(
                absolute(&sandbox.workspace, "p", text).expect("fine"),
                sandbox.path(".env"),
                "{text}"
            );
        }
    }

    #[test]
    fn links_may_not_lead_outside_or_nowhere() {
        let sandbox = Sandbox::new();
        sandbox.write("in/x", "x");
        sandbox.link("in", "ok");
        sandbox.link("/etc", "out");
        sandbox.link("../../gone", "dangling");
        let resolve = |path: &str| resolve(&sandbox.workspace, &sandbox.path(path));
        assert_eq!(resolve("ok/x").expect("inside"), sandbox.path("in/x"));
        assert_eq!(resolve("ok/new/file").expect("inside"), sandbox.path("in/new/file"));
        assert!(matches!(resolve("out/passwd"), Err(PathError::Leaves { .. })));
        assert!(matches!(resolve("out/new"), Err(PathError::Leaves { .. })));
        assert!(matches!(resolve("dangling"), Err(PathError::Dangling(_))));
        assert!(matches!(resolve("dangling/x"), Err(PathError::Dangling(_))));
    }
}
