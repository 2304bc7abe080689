//! What a command may not change: compared when it has ended, and set aside where no mount keeps it as it is.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aye_core::contract::display::visible_line;
use aye_core::contract::path_policy::{PathAccess, PathCheck, PathPolicy, PathRestriction};
use aye_files::known::KnownFiles;
use aye_sandbox::protected::{INSTALLED, SET_ASIDE};
use aye_sandbox::{InodeId, ProtectedBefore, ProtectedFiles, SetAside};

use crate::exec::Freezer;
use crate::masks::{Masked, Masks};

/// The protected files as they were before a command, to be compared when it ended.
pub(crate) struct Unchanged {
    pub(super) protected: Arc<ProtectedFiles>,
    pub(super) freezer: Arc<Freezer>,
    pub(super) before: ProtectedBefore,
    pub(super) missing: Option<MissingFiles>,
    pub(super) workspace: PathBuf,
}

/// What was there before a command of what rules deny to change: a mount keeps that as it is, but nothing keeps a command
/// from making what is missing.
pub(super) struct MissingFiles {
    pub(super) rules: Arc<dyn PathPolicy>,
    pub(super) cache: Arc<Masks>,
    pub(super) known: Arc<KnownFiles>,
    pub(super) roots: Vec<PathBuf>,
    pub(super) before: HashSet<PathBuf>,
}

impl MissingFiles {
    /// What was made since. Nothing that a package manager or a compiler made, and nothing in a folder in which nothing may
    /// change, where a command could not be run at all.
    fn made(&self) -> Vec<(PathBuf, InodeId)> {
        let roots: Vec<&Path> = self.roots.iter().map(PathBuf::as_path).collect();
        let rules = Unchangeable(self.rules.as_ref());
        let found = self.cache.below(&roots, &[], &rules, &self.known).into_iter();
        let is_new = |it: &Masked| !self.before.contains(&it.path);
        let is_watched = |it: &Masked| {
            let root = roots.iter().find(|root| it.path.starts_with(root));
            root.is_some_and(|root| {
                let is_aside = it.path.starts_with(root.join(SET_ASIDE));
                !is_aside && !is_installed(&roots, &it.path) && rules.below(root)(root, true).is_none()
            })
        };
        let made = found.filter(|it| is_new(it) && is_watched(it)).filter_map(|it| {
            let (device, inode) = it.id?.device_and_inode();
            Some((it.path, InodeId(device, inode)))
        });
        made.collect()
    }
}

/// Whether a path is in a folder of installed packages or of builds, below one of these folders.
pub(super) fn is_installed(roots: &[&Path], path: &Path) -> bool {
    let below = roots.iter().filter_map(|root| path.strip_prefix(root).ok()?.parent());
    let mut folders = below.flat_map(Path::components).map(std::path::Component::as_os_str);
    folders.any(|folder| INSTALLED.iter().any(|name| folder == *name))
}

impl Unchanged {
    /// Sets changed files aside, and reports this. If the program runs `beside` others, it may not be the one
    /// that changed them: then the changes are only reported.
    pub(crate) fn settle(&self, beside: bool) -> Vec<String> {
        let shown = |path: &Path| {
            let path = path.strip_prefix(&self.workspace).unwrap_or(path);
            visible_line(&path.to_string_lossy()).into_owned()
        };
        // This program itself has ended.
        let _frozen = self.freezer.freeze(1);
        if beside {
            let changed = self.before.changed(&self.protected);
            let describe =
                |path: &PathBuf| format!("protected, but changed during the command: {}", shown(path));
            let made = self.missing.iter().flat_map(MissingFiles::made);
            let made = made.map(|(path, _)| {
                format!("rules deny changing it, but it was made during the command: {}", shown(&path))
            });
            return changed.iter().map(describe).chain(made).collect();
        }
        let describe = |it: SetAside| match it.to {
            Some(to) => {
                let back = match it.restored {
                    Some(true) => "; the original is restored",
                    Some(false) => "; the original could not be restored",
                    None => "",
                };
                let (path, to) = (shown(&it.path), shown(&to));
                format!("{path} is protected: the command's version is in {to}{back}")
            }
            None => format!("{} is protected, and the command changed it", shown(&it.path)),
        };
        let mut notes: Vec<String> =
            self.before.set_aside(&self.protected).into_iter().map(describe).collect();
        let made = self.missing.as_ref().map(MissingFiles::made).unwrap_or_default();
        notes.extend(self.before.set_aside_made(made).into_iter().map(|it| match it.to {
            Some(to) => {
                format!("rules deny creating {}: what the command made is in {}", shown(&it.path), shown(&to))
            }
            None => format!("rules deny creating {}, and the command made it", shown(&it.path)),
        }));
        notes
    }
}

/// The rules against changing files, in place of those against reading them.
pub(super) struct Unchangeable<'a>(pub(super) &'a dyn PathPolicy);

impl PathPolicy for Unchangeable<'_> {
    fn restriction(&self, path: &Path, _access: PathAccess) -> Option<PathRestriction> {
        self.0.restriction(path, PathAccess::Write).filter(|rule| rule.is_denied)
    }

    fn below(&self, folder: &Path) -> PathCheck {
        self.0.unchangeable_below(folder).unwrap_or_else(|| Arc::new(|_, _| None))
    }

    fn fingerprint(&self) -> u64 {
        self.0.fingerprint()
    }
}
