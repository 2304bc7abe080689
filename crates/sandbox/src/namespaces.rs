//! The arguments of bubblewrap: namespaces, and what the command finds in its file system.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::mounts::{self, Mount, MountKind};
use crate::net::SOCKET;
use crate::policy::{PartialFolder, Policy};
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

/// Leaves the launcher the right to make mounts, until it has made them.
pub(crate) const CAN_MOUNT: [&str; 2] = ["--cap-add", "CAP_SYS_ADMIN"];

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(OsString::from));
    }

    fn bind(&mut self, how: &str, path: &Path) {
        self.0.extend([how.into(), path.into(), path.into()]);
    }

    /// Makes a mount by its path.
    fn mount(&mut self, mount: &Mount) {
        let path = &mount.path;
        match mount.kind {
            MountKind::Seen => {}
            MountKind::Fixed => self.bind("--bind", path),
            MountKind::ReadOnly => self.bind("--ro-bind", path),
            MountKind::Hidden if mount.is_folder => {
                self.add(["--perms", "0000", "--tmpfs"]);
                self.0.push(path.into());
            }
            MountKind::Hidden => self.0.extend(["--ro-bind".into(), "/dev/null".into(), path.into()]),
        }
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
pub(crate) fn arguments(
    policy: &Policy,
    own: &Path,
    cwd: &Path,
    (can_mount, can_limit): (bool, bool),
) -> (Vec<OsString>, Vec<Mount>) {
    let mut all = Arguments::default();
    all.0.extend(UNSHARE.iter().map(OsString::from));
    if can_mount {
        all.add(CAN_MOUNT);
    }
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
    // Files of both are memory. In the folder of the devices nothing else is written.
    if let Some(bytes) = policy.shared_memory.filter(|_| can_limit) {
        all.add([
            "--perms",
            "1777",
            "--size",
            &bytes.to_string(),
            "--tmpfs",
            "/dev/shm",
            "--remount-ro",
            "/dev",
        ]);
    }
    // The addresses of name servers are in a file that is often a link to one below /run.
    if has_network && let Ok(names) = Path::new("/etc/resolv.conf").canonicalize() {
        all.bind("--ro-bind", &names);
    }
    match &policy.tmp {
        Some(tmp) => all.0.extend(["--bind".into(), tmp.into(), "/tmp".into()]),
        None => all.add(["--tmpfs", "/tmp"]),
    }
    let writable = policy.writable_folders();
    let is_changed = |path: &Path| writable.iter().any(|root| path.starts_with(root));
    let visible = once(policy.visible().filter(|path| path.exists() && !is_changed(path)).collect());
    let is_system = |path: &Path| SYSTEM.iter().chain(&["/etc"]).any(|system| path.starts_with(system));
    // What is mounted where, and where it comes from, as far as it may become another one.
    let mut sources: Vec<(PathBuf, PathBuf)> = Vec::new();
    let same = |path: &Path| (path.to_owned(), path.to_owned());
    for path in &visible {
        all.bind("--ro-bind", path);
        if !is_system(path) {
            sources.push(same(path));
        }
    }
    if policy.profile == Profile::Read {
        all.bind("--ro-bind", &policy.workspace);
        sources.push(same(&policy.workspace));
    }
    for path in &writable {
        let mut others = writable.iter().filter(|root| path.starts_with(root));
        // A folder in another one comes with it: a command could make it a link to anywhere.
        if others.all(|root| root == path) {
            all.bind("--bind", path);
            sources.push(same(path));
        }
    }
    for cache in policy.linked_caches() {
        all.0.extend(["--ro-bind-try".into(), (&cache.path).into(), cache.source().into()]);
        all.0.extend(["--bind".into(), (&cache.own).into(), (&cache.path).into()]);
        sources.push((cache.path.clone(), cache.own.clone()));
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
        // The folder is an empty one now.
        sources.retain(|(path, _)| *path != folder.path);
        sources.extend(folder.shown.iter().filter(|path| !path.is_symlink()).map(|path| same(path)));
        let inside = writable.iter().filter(|path| **path != folder.path && path.starts_with(&folder.path));
        for path in inside.filter(|path| !is_left_out(path)) {
            all.bind("--bind", path);
        }
    }
    let visible = visible.iter().map(PathBuf::as_path);
    let shown: Vec<&Path> = visible.chain(writable).chain([policy.workspace.as_path()]).collect();
    let is_shown = |path: &Path| {
        !is_left_out(path) && (is_system(path) || shown.iter().any(|root| path.starts_with(root)))
    };
    let mounts = mounts::plan(policy, &sources, &is_shown);
    if can_mount {
        all.add(["--perms", "0000", "--dir", mounts::EMPTY_FOLDER]);
        all.add(["--ro-bind", "/dev/null", mounts::EMPTY_FILE]);
    } else {
        // A place that is missing would be made in the project.
        let exists = |mount: &&Mount| mount.path.symlink_metadata().is_ok();
        mounts.iter().filter(exists).for_each(|mount| all.mount(mount));
    }
    all.0.extend(["--ro-bind".into(), own.into(), LAUNCHER.into()]);
    if let Some(relay) = policy.way_out() {
        all.0.extend(["--ro-bind".into(), (&relay.socket).into(), SOCKET.into()]);
    }
    all.add(["--remount-ro", "/", "--setenv", "TMPDIR", "/tmp", "--chdir"]);
    all.0.push(cwd.into());
    all.add(["--"]);
    (all.0, mounts)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn line(policy: &Policy) -> String {
        let (words, _) = arguments(policy, Path::new("/opt/aye"), &policy.workspace, (false, true));
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
                    --remount-ro ROOT ";
        let (_, rest) = line.split_once(part).unwrap_or_else(|| panic!("{line}"));
        assert!(rest.contains("--ro-bind ROOT/.mcp.json ROOT/.mcp.json "), "{line}");
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
    fn shared_memory_has_a_size_where_bubblewrap_knows_it() {
        let policy = Policy { shared_memory: Some(1 << 20), ..Policy::new(Profile::Read, "/srv") };
        let words = "--perms 1777 --size 1048576 --tmpfs /dev/shm --remount-ro /dev ";
        assert!(line(&policy).contains(words));
        assert!(!line(&Policy { shared_memory: None, ..policy.clone() }).contains("/dev/shm"));
        let (without, _) = arguments(&policy, Path::new("/opt/aye"), &policy.workspace, (false, false));
        assert!(!without.contains(&"--size".into()));
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
