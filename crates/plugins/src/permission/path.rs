//! Paths as rules see them: absolute, `..` and links resolved, aliases of protected folders known.

use super::protected::{bare_repository, protected_name};
use aye_core::contract::display::unescape_path;
use aye_core::contract::spelling;
use aye_files::known::{FileId, KnownFiles};
use aye_files::names::{self, Volumes};
use aye_pattern::shell::suspicious;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// The folders of a question.
#[derive(Debug, Clone, Copy)]
pub struct PathRoots<'a> {
    pub cwd: &'a Path,
    /// The folder that a project's rules are about.
    pub workspace: &'a Path,
    pub home: Option<&'a Path>,
    /// Where the files are.
    pub volumes: &'static dyn Volumes,
}

/// A path, resolved in every way that matters.
#[derive(Debug, Clone)]
pub(super) struct ResolvedPath {
    /// The path as written and the one the system would open, with the names that folders store if these are others; more
    /// when `~` can be read in two ways.
    pub views: Vec<PathBuf>,
    /// The texts that rules are checked against, for each view.
    pub forms: Vec<Forms>,
    /// The texts of names under which rules knew the file or a folder above it before.
    pub known: Vec<Forms>,
    /// All views lie in the workspace.
    pub is_inside: bool,
    /// A link on the way leads to nothing.
    pub is_dangling: bool,
    /// The protected name it goes through, such as `.git`.
    pub protected: Option<String>,
    /// Whether the path contains characters that do not show what they are.
    pub is_strange: bool,
}

impl ResolvedPath {
    /// Returns the bare repository that contains the path.
    pub(super) fn bare_repository(&self, workspace: &Path) -> Option<String> {
        self.views.iter().find_map(|view| bare_repository(view, workspace))
    }
}

/// The longest path that a system call accepts, in bytes. Looking up a longer one takes time and finds nothing.
const MAX_PATH: usize = 4095;

/// Maximum links that are followed before the path counts as a loop.
const MAX_LINKS: usize = 40;

/// Why a text cannot be a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAPath {
    #[error("the path is empty")]
    Empty,
    /// It contains a NUL byte.
    #[error("the path contains a NUL byte")]
    Nul,
    /// It is longer than any that the system opens.
    #[error("the path is longer than {MAX_PATH} bytes")]
    TooLong,
}

/// Resolves a path in every way that matters.
///
/// # Errors
/// The text cannot be a path: it is empty, too long, or contains a NUL.
pub(super) fn resolve_path(text: &str, places: &PathRoots<'_>) -> Result<ResolvedPath, NotAPath> {
    if text.is_empty() {
        return Err(NotAPath::Empty);
    }
    if text.contains('\0') {
        return Err(NotAPath::Nul);
    }
    if text.len() > MAX_PATH {
        return Err(NotAPath::TooLong);
    }
    let mut written = vec![places.cwd.join(text)];
    // A tool may or may not read `~` as the home folder: both places count.
    if let Some(rest) = text.strip_prefix('~')
        && let Some(home) = places.home
    {
        written.push(home.join(rest.trim_start_matches('/')));
    }
    // Tools accept names that they printed themselves: a name that is not plain text, with its odd bytes
    // escaped.
    if text.contains('\\')
        && let Some(raw) = unescape_path(text)
    {
        written.push(places.cwd.join(raw));
    }
    // Looked up once: every rule about paths asks for it.
    let real = resolve(places.workspace).0;
    let mut seen = ResolvedPath {
        views: Vec::new(),
        forms: Vec::new(),
        known: Vec::new(),
        is_inside: true,
        is_dangling: false,
        protected: protected_name(Path::new(text)),
        is_strange: text.chars().any(|c| matches!(c, '\n' | '\t') || suspicious(c).is_some()),
    };
    // The links of the workspace were followed already.
    let resolve = |path: &Path| match path.strip_prefix(places.workspace) {
        Ok(rest) => resolve_below(real.clone(), rest),
        Err(_) => resolve(path),
    };
    for path in written {
        let lexical = normalise(&path);
        let (target, is_dangling) = resolve(&path);
        seen.is_dangling |= is_dangling;
        // Where `..` takes away a link, the file tools and the system differ.
        let by_letters = (lexical != path).then(|| resolve(&lexical).0);
        let targets: Vec<PathBuf> = [target].into_iter().chain(by_letters).collect();
        let stored: Vec<PathBuf> =
            targets.iter().filter_map(|target| names::stored(places.volumes, target, &real)).collect();
        for view in [lexical].into_iter().chain(targets).chain(stored) {
            if seen.protected.is_none() {
                seen.protected = protected_name(&relative_part(&view, places, &real));
            }
            seen.is_strange |=
                view.to_string_lossy().chars().any(|c| matches!(c, '\n' | '\t') || suspicious(c).is_some());
            if !seen.views.contains(&view) {
                seen.is_inside &= view.starts_with(places.workspace) || view.starts_with(&real);
                seen.forms.push(forms(&view, places, &real));
                seen.views.push(view);
            }
        }
    }
    Ok(seen)
}

/// The forms of the names under which rules knew these files, or folders above them.
pub(super) fn known_forms(views: &[PathBuf], known: &KnownFiles, places: &PathRoots<'_>) -> Vec<Forms> {
    if known.is_empty() {
        return Vec::new();
    }
    let real = resolve(places.workspace).0;
    let mut names: Vec<PathBuf> = Vec::new();
    for view in views {
        for above in view.ancestors() {
            let Ok(metadata) = above.symlink_metadata() else { continue };
            let Some(name) = known.name(&FileId::of(&metadata)) else { continue };
            let name = name.join(view.strip_prefix(above).unwrap_or(Path::new("")));
            if !names.contains(&name) && !views.contains(&name) {
                names.push(name);
            }
        }
    }
    names.iter().map(|name| forms(name, places, &real)).collect()
}

/// Takes `.` and `..` away by the letters alone.
pub(super) fn normalise(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// Returns the path that the system would open: links are followed one by one, and `..` is applied after
/// them. Parts that do not exist yet are kept.
///
/// The second value is true if a link on the way leads to nothing.
pub(super) fn resolve(path: &Path) -> (PathBuf, bool) {
    resolve_below(PathBuf::new(), path)
}

/// The same for a path below a folder of which the links were followed.
fn resolve_below(folder: PathBuf, path: &Path) -> (PathBuf, bool) {
    let parts = |path: &Path, of_link: bool| -> Vec<(OsString, bool)> {
        path.components().rev().map(|c| (c.as_os_str().to_owned(), of_link)).collect()
    };
    let mut rest = parts(path, false);
    let mut at = folder;
    let (mut links, mut dangling) = (0, false);
    while let Some((next, of_link)) = rest.pop() {
        match Path::new(&next).components().next() {
            Some(Component::ParentDir) => {
                at.pop();
                continue;
            }
            Some(Component::CurDir) | None => continue,
            _ => {}
        }
        let step = at.join(&next);
        let metadata = std::fs::symlink_metadata(&step);
        match metadata {
            Ok(metadata) if metadata.file_type().is_symlink() => {
                links += 1;
                let Ok(target) = std::fs::read_link(&step) else {
                    return (step, true);
                };
                if links > MAX_LINKS {
                    return (step, true);
                }
                rest.extend(parts(&target, true));
                if target.is_absolute() {
                    at = PathBuf::new();
                }
            }
            Ok(_) => at = step,
            Err(_) => {
                // Nothing exists there. If the name is a link's target, writing would create it.
                dangling |= of_link;
                at = step;
            }
        }
    }
    (at, dangling)
}

/// The part of a path below the workspace, for names that count only there: a workspace may well lie in `~/.config`.
fn relative_part(path: &Path, places: &PathRoots<'_>, real: &Path) -> PathBuf {
    let below = path.strip_prefix(places.workspace).or_else(|_| path.strip_prefix(real));
    below.map_or_else(|_| path.to_owned(), Path::to_owned)
}

/// The texts that a rule is checked against for one view of a path.
#[derive(Debug, Clone)]
pub(super) struct Forms {
    /// Relative to the workspace, when it is inside; the workspace itself is `.`.
    pub relative: Option<String>,
    pub absolute: String,
    /// With `~` for the home folder, when it is below it.
    pub home: Option<String>,
    /// Where the file is.
    volumes: &'static dyn Volumes,
}

/// All ways to write a path in a rule; `real` is where the workspace really is.
pub(super) fn forms(view: &Path, places: &PathRoots<'_>, real: &Path) -> Forms {
    let below = view.strip_prefix(places.workspace).or_else(|_| view.strip_prefix(real)).ok();
    let relative = below.map(|path| {
        if path.as_os_str().is_empty() { ".".to_owned() } else { path.to_string_lossy().into_owned() }
    });
    let home = places.home.and_then(|home| view.strip_prefix(home).ok());
    Forms {
        relative,
        absolute: view.to_string_lossy().into_owned(),
        home: home.map(|path| format!("~/{}", path.to_string_lossy())),
        volumes: places.volumes,
    }
}

impl Forms {
    /// Returns the forms for the content of the folder: the texts end in a slash.
    pub(super) fn inside(&self) -> Forms {
        self.map(|text| format!("{}/", text.trim_end_matches('/')))
    }

    /// Returns the forms in which all spellings of the path are the same; `None` if these are.
    pub(super) fn folded(&self) -> Option<Forms> {
        let is_folded = spelling::is_folded(&self.absolute);
        (!is_folded).then(|| self.map(|text| spelling::folded(text).into_owned()))
    }

    /// Whether the path may name the same file as another spelling of it.
    pub(super) fn ignores_spelling(&self) -> bool {
        // A path that is not text cannot be asked about.
        self.absolute.contains(char::REPLACEMENT_CHARACTER)
            || names::ignores_spelling(self.volumes, Path::new(&self.absolute))
    }

    fn map(&self, change: impl Fn(&str) -> String) -> Forms {
        Forms {
            relative: self.relative.as_deref().map(&change),
            absolute: change(&self.absolute),
            home: self.home.as_deref().map(change),
            volumes: self.volumes,
        }
    }
}
