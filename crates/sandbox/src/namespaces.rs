//! The arguments of bubblewrap: namespaces, and what the command finds in its file system.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::net::SOCKET;
use crate::policy::{PartialFolder, Policy};
use crate::protected;
use aye_core::contract::judgement::Profile;

/// The launcher's path inside the namespaces.
pub(crate) const LAUNCHER: &str = "/run/aye/launch";

/// The system's programs and libraries.
pub(crate) const SYSTEM: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"];

/// Namespaces of its own. A command that is root gets no right of root either.
pub(crate) const UNSHARE: &[&str] = &[
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
];

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(OsString::from));
    }

    fn bind(&mut self, how: &str, path: &Path) {
        self.0.extend([how.into(), path.into(), path.into()]);
    }

    /// An empty, read-only folder in place of this one, with the entries to show.
    fn show_part(&mut self, folder: &PartialFolder, how: &str) {
        self.0.extend(["--tmpfs".into(), (&folder.path).into()]);
        for path in &folder.shown {
            match path.read_link() {
                Ok(target) => self.0.extend(["--symlink".into(), target.into(), path.into()]),
                Err(_) if path.exists() => self.bind(how, path),
                Err(_) => {}
            }
        }
        self.0.extend(["--remount-ro".into(), (&folder.path).into()]);
    }
}

/// The arguments up to the program: `--` is the last one. `own` is the program that becomes the launcher.
pub(crate) fn arguments(policy: &Policy, own: &Path, cwd: &Path) -> Vec<OsString> {
    let mut all = Arguments::default();
    all.0.extend(UNSHARE.iter().map(OsString::from));
    let has_network = policy.network && policy.profile == Profile::Workspace;
    if !has_network {
        all.add(["--unshare-net"]);
    }
    for path in SYSTEM.iter().map(Path::new) {
        match path.read_link() {
            Ok(target) => all.0.extend(["--symlink".into(), target.into(), path.into()]),
            Err(_) if path.is_dir() => all.bind("--ro-bind", path),
            Err(_) => {}
        }
    }
    all.bind("--ro-bind", Path::new("/etc"));
    // Folders of the root, which is read-only in the end: each mount costs time.
    all.add(["--proc", "/proc", "--dev", "/dev", "--dir", "/run", "--dir", "/var/tmp"]);
    // The addresses of name servers are in a file that is often a link to one below /run.
    if has_network && let Ok(names) = Path::new("/etc/resolv.conf").canonicalize() {
        all.bind("--ro-bind", &names);
    }
    match &policy.tmp {
        Some(tmp) => all.0.extend(["--bind".into(), tmp.into(), "/tmp".into()]),
        None => all.add(["--tmpfs", "/tmp"]),
    }
    let visible = once(policy.visible().filter(|path| path.exists()).collect());
    for path in &visible {
        all.bind("--ro-bind", path);
    }
    let writable = policy.writable_folders();
    if policy.profile == Profile::Read {
        all.bind("--ro-bind", &policy.workspace);
    }
    for path in &writable {
        all.bind("--bind", path);
    }
    for cache in policy.linked_caches() {
        all.0.extend(["--ro-bind-try".into(), (&cache.path).into(), cache.source().into()]);
        all.0.extend(["--bind".into(), (&cache.own).into(), (&cache.path).into()]);
    }
    // What a partial folder does not show has no place in it.
    let is_left_out = |path: &Path| {
        policy.partial.iter().any(|folder| {
            path != folder.path
                && path.starts_with(&folder.path)
                && !folder.shown.iter().any(|shown| path.starts_with(shown))
        })
    };
    for folder in &policy.partial {
        let is_writable = writable.iter().any(|root| folder.path.starts_with(root));
        all.show_part(folder, if is_writable { "--bind" } else { "--ro-bind" });
        let inside = writable.iter().filter(|path| **path != folder.path && path.starts_with(&folder.path));
        for path in inside.filter(|path| !is_left_out(path)) {
            all.bind("--bind", path);
        }
    }
    for part in writable.iter().flat_map(|root| fixed_parts(root)) {
        match part {
            FixedPart::Between(path) | FixedPart::Protected(path) if is_left_out(&path) => {}
            FixedPart::Between(path) => all.bind("--bind", &path),
            FixedPart::Protected(path) => all.bind("--ro-bind", &path),
        }
    }
    let visible = visible.iter().map(PathBuf::as_path);
    let shown: Vec<&Path> = visible.chain(writable).chain([policy.workspace.as_path()]).collect();
    let is_shown = |path: &Path| {
        path.starts_with("/etc")
            || SYSTEM.iter().any(|system| path.starts_with(system))
            || shown.iter().any(|root| path.starts_with(root))
    };
    for path in policy.masks().into_iter().filter(|path| is_shown(path) && !is_left_out(path)) {
        if path.is_dir() {
            all.add(["--perms", "0000", "--tmpfs"]);
            all.0.push(path.into());
        } else {
            all.0.extend(["--ro-bind".into(), "/dev/null".into(), path.into()]);
        }
    }
    all.0.extend(["--ro-bind".into(), own.into(), LAUNCHER.into()]);
    if let Some(relay) = policy.way_out() {
        all.0.extend(["--ro-bind".into(), (&relay.socket).into(), SOCKET.into()]);
    }
    all.add(["--remount-ro", "/", "--setenv", "TMPDIR", "/tmp", "--chdir"]);
    all.0.push(cwd.into());
    all.add(["--"]);
    all.0
}

/// The paths without those that come with another one: the time for a mount grows with their number. A link that comes
/// with its folder leads to its target, which may be elsewhere.
fn once(paths: Vec<&Path>) -> Vec<PathBuf> {
    let comes_along = |path: &Path| paths.iter().any(|folder| path != *folder && path.starts_with(folder));
    let shown = |path: &&Path| match path.canonicalize() {
        Ok(real) if comes_along(path) && !comes_along(&real) => Some(real),
        Ok(_) if comes_along(path) => None,
        Ok(_) | Err(_) => Some((*path).to_owned()),
    };
    let mut shown: Vec<PathBuf> = paths.iter().filter_map(shown).collect();
    shown.sort_unstable();
    shown.dedup();
    shown
}

/// A measure that keeps a protected file unchanged, such as a mount.
pub(crate) enum FixedPart {
    /// A folder between the root and the file: as a mount it cannot be renamed, and what is in it stays writable.
    Between(PathBuf),
    /// The file or folder itself.
    Protected(PathBuf),
}

impl FixedPart {
    pub(crate) fn between(&self) -> Option<&PathBuf> {
        match self {
            FixedPart::Between(path) => Some(path),
            FixedPart::Protected(_) => None,
        }
    }

    pub(crate) fn protected(&self) -> Option<&PathBuf> {
        match self {
            FixedPart::Between(_) => None,
            FixedPart::Protected(path) => Some(path),
        }
    }
}

/// Returns the parts of a folder that must stay unchanged, as far as they exist.
pub(crate) fn fixed_parts(root: &Path) -> Vec<FixedPart> {
    let mut fixed_parts = Vec::new();
    let mut between: Vec<PathBuf> = Vec::new();
    // The target of a link that leads outside is not writable anyway.
    let existing = protected::of_repository(root).into_iter().filter_map(|path| path.canonicalize().ok());
    for path in existing.filter(|path| path.starts_with(root) && path != root) {
        let above = path.ancestors().skip(1).take_while(|above| *above != root).collect::<Vec<_>>();
        for folder in above.into_iter().rev() {
            if !between.iter().any(|known| known == folder) {
                between.push(folder.to_owned());
                fixed_parts.push(FixedPart::Between(folder.to_owned()));
            }
        }
        fixed_parts.push(FixedPart::Protected(path));
    }
    // A folder is mounted again only before what is below it.
    fixed_parts.sort_by_key(|fixed_parts| matches!(fixed_parts, FixedPart::Protected(_)));
    fixed_parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(policy: &Policy) -> String {
        let words = arguments(policy, Path::new("/opt/aye"), &policy.workspace);
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_folder_is_mounted_before_its_protected_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it exists");
        std::fs::create_dir_all(root.join(".git/hooks")).expect("written");
        std::fs::write(root.join(".git/config"), "").expect("written");
        let line = line(&Policy::new(Profile::Workspace, &root));
        let at = |what: &str| {
            let what = what.replace("ROOT", &root.display().to_string());
            line.find(&what).unwrap_or_else(|| panic!("{what} in {line}"))
        };
        let order = [
            at("--bind ROOT ROOT "),
            at("--bind ROOT/.git ROOT/.git "),
            at("--ro-bind ROOT/.git/config ROOT/.git/config "),
            at("--remount-ro / "),
        ];
        assert!(order.is_sorted(), "{order:?} in {line}");
        at("--ro-bind ROOT/.git/hooks ROOT/.git/hooks ");
    }

    #[test]
    fn a_partial_folder_has_its_shown_entries_and_no_others() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it exists");
        std::fs::create_dir(root.join("src")).expect("written");
        // Both are protected, and one is hidden.
        for name in ["key.pem", ".envrc", ".mcp.json"] {
            std::fs::write(root.join(name), "").expect("written");
        }
        let shown = vec![root.join("src"), root.join(".mcp.json")];
        let partial = vec![PartialFolder { path: root.clone(), shown }];
        let line = line(&Policy { partial, ..Policy::new(Profile::Workspace, &root) });
        let line = line.replace(&root.display().to_string(), "ROOT");
        let part = "--bind ROOT ROOT --tmpfs ROOT --bind ROOT/src ROOT/src --bind ROOT/.mcp.json ROOT/.mcp.json \
                    --remount-ro ROOT --ro-bind ROOT/.mcp.json ROOT/.mcp.json ";
        assert!(line.contains(part), "{line}");
        assert!(!line.contains(".envrc") && !line.contains("key.pem"), "{line}");
    }

    #[test]
    fn only_visible_paths_are_masked() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it exists");
        for name in ["w", "elsewhere"] {
            std::fs::create_dir(root.join(name)).expect("written");
            std::fs::write(root.join(name).join(".env"), "").expect("written");
        }
        let masked = vec![root.join("w/.env"), root.join("elsewhere/.env")];
        let line = line(&Policy { masked, ..Policy::new(Profile::Read, root.join("w")) });
        assert!(line.contains(&format!("/dev/null {}/w/.env", root.display())), "{line}");
        assert!(!line.contains("elsewhere"), "{line}");
    }

    #[test]
    fn a_folder_is_bound_once_and_a_link_in_it_by_its_target() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it exists");
        for name in ["tools/a/bin", "beside", "elsewhere"] {
            std::fs::create_dir_all(root.join(name)).expect("written");
        }
        for (link, target) in [("tools/link", "elsewhere"), ("tools/near", "tools/a"), ("alone", "beside")] {
            std::os::unix::fs::symlink(root.join(target), root.join(link)).expect("written");
        }
        let names = ["tools/link", "tools/near", "tools/a/bin", "tools", "alone", "tools", "elsewhere"];
        let paths = names.map(|name| root.join(name));
        let shown = once(paths.iter().map(PathBuf::as_path).collect());
        assert_eq!(shown, ["alone", "elsewhere", "tools"].map(|name| root.join(name)));
    }

    #[test]
    fn the_network_is_shared_only_by_policy() {
        for (profile, network, is_shared) in [
            (Profile::Read, true, false),
            (Profile::Workspace, false, false),
            (Profile::Workspace, true, true),
        ] {
            let policy = Policy { network, ..Policy::new(profile, "/srv") };
            assert_eq!(!line(&policy).contains("--unshare-net"), is_shared, "{profile} {network}");
        }
    }
}
