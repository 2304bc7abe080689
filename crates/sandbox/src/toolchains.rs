//! Folders that programs outside `/usr` need, found through `PATH`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Below the home folder: where a version manager's programs are, and what they need beside their folder.
const MANAGERS: &[(&str, &[&str])] = &[
    (".cargo/bin", &[".cargo/bin", ".rustup"]),
    (".pyenv", &[".pyenv"]),
    (".rbenv", &[".rbenv"]),
    (".nodenv", &[".nodenv"]),
    (".asdf", &[".asdf"]),
    (".volta", &[".volta"]),
    (".sdkman", &[".sdkman"]),
    (".local/share/mise", &[".local/share/mise"]),
    (".local/share/fnm", &[".local/share/fnm"]),
    (".local/share/uv/python", &[".local/share/uv/python"]),
];

/// Folders that the sandbox shows anyway.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/nix/store", "/gnu/store"];

/// Folders that every program of the machine may write to. In the sandbox they are private ones.
const TEMPORARY: &[&str] = &["/tmp", "/var/tmp", "/dev/shm"];

fn is_temporary(path: &Path) -> bool {
    TEMPORARY.iter().any(|folder| path == Path::new(folder))
}

/// Returns the folders of `PATH` whose programs are not seen in the sandbox.
pub fn unseen_folders(path: &OsStr) -> Vec<&'static str> {
    let folders: Vec<_> = std::env::split_paths(path).filter_map(|dir| dir.canonicalize().ok()).collect();
    TEMPORARY.iter().copied().filter(|private| folders.iter().any(|dir| dir == Path::new(private))).collect()
}

/// The folders that the programs in `PATH` need: each folder itself, what its links point to, and a version manager's
/// own folders. Never the home folder or a folder that contains it, and no shared temporary folder.
///
/// A folder of PATH in the `project`, such as `.venv/bin`, is part of it: its links open nothing but version managers'.
pub fn toolchains(path: &OsStr, home: Option<&Path>, project: Option<&Path>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let contains_home = |path: &Path| home.is_some_and(|home| home.starts_with(path));
    let mut add = |path: PathBuf| {
        let is_system = SYSTEM.iter().any(|system| path.starts_with(system));
        let is_usable =
            !is_system && !is_temporary(&path) && !contains_home(&path) && path.parent().is_some();
        if is_usable && !found.contains(&path) {
            found.push(path);
        }
    };
    let package_of = |program: &Path| package_of(program, home).filter(|package| !contains_home(package));
    let is_projects = |path: &Path| project.is_some_and(|project| path.starts_with(project));
    let manager_of = |path: &Path| {
        let home = home?;
        let manager = MANAGERS.iter().find(|(at, _)| path.starts_with(home.join(at)))?;
        Some(manager.1.iter().map(|name| home.join(name)).filter(|path| path.exists()).collect::<Vec<_>>())
    };
    for written in path.as_bytes().split(|byte| *byte == b':') {
        let written = Path::new(OsStr::from_bytes(written));
        let Some(dir) = written.is_absolute().then(|| written.canonicalize().ok()).flatten() else {
            continue;
        };
        // Anybody may put a link into a temporary folder.
        if SYSTEM.iter().any(|system| dir.starts_with(system)) || is_temporary(&dir) {
            continue;
        }
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
        let targets = links.filter_map(|entry| entry.path().canonicalize().ok());
        if is_projects(written) || is_projects(&dir) {
            targets.filter_map(|target| manager_of(&target)).flatten().for_each(&mut add);
            continue;
        }
        if let Some(needed) = manager_of(&dir) {
            needed.into_iter().for_each(&mut add);
            continue;
        }
        for target in targets.filter(|target| !target.starts_with(&dir) && !is_projects(target)) {
            add(package_of(&target).unwrap_or(target));
        }
        add(package_of(&dir.join("x")).unwrap_or(dir));
    }
    found
}

/// The folder of a package whose program is in its `bin`, when it is one: `~/.local` is not.
fn package_of(program: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let bin = program.parent()?;
    let package = bin.parent().filter(|_| bin.ends_with("bin"))?;
    let depth = match home.and_then(|home| package.strip_prefix(home).ok()) {
        Some(below) => below.components().count().checked_sub(1)?,
        None => package.components().count().checked_sub(2)?,
    };
    (depth > 0).then(|| package.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_what_they_need_without_the_home_folder() {
        let dir = tempfile::tempdir().expect("a folder");
        let home = dir.path().canonicalize().expect("it exists");
        for name in [
            ".cargo/bin",
            ".rustup/toolchains/stable",
            ".local/bin",
            ".local/pipx/venvs/tool/bin",
            ".nvm/versions/node/v20/bin",
            "scripts",
        ] {
            std::fs::create_dir_all(home.join(name)).expect("written");
        }
        std::fs::write(home.join(".local/pipx/venvs/tool/bin/tool"), "").expect("written");
        std::fs::write(home.join("scripts/do"), "").expect("written");
        std::os::unix::fs::symlink("../pipx/venvs/tool/bin/tool", home.join(".local/bin/tool"))
            .expect("written");
        std::os::unix::fs::symlink(home.join("scripts/do"), home.join(".local/bin/do")).expect("written");
        let of = |names: &[&str]| {
            let path: Vec<_> = names.iter().map(|name| home.join(name).display().to_string()).collect();
            let mut found = toolchains(OsStr::new(&path.join(":")), Some(&home), None);
            found.sort();
            let relative =
                |path: &PathBuf| path.strip_prefix(&home).expect("below home").display().to_string();
            found.iter().map(relative).collect::<Vec<_>>()
        };
        assert_eq!(of(&[".cargo/bin"]), [".cargo/bin", ".rustup"]);
        assert_eq!(of(&[".local/bin"]), [".local/bin", ".local/pipx/venvs/tool", "scripts/do"]);
        assert_eq!(of(&[".nvm/versions/node/v20/bin"]), [".nvm/versions/node/v20"]);
        assert!(of(&["", "missing"]).is_empty(), "the home folder itself is never one");
        // A package would be the folder that contains the home folder, too.
        std::fs::create_dir_all(home.join("me")).expect("written");
        std::fs::create_dir_all(home.join("bin")).expect("written");
        let path = home.join("bin").into_os_string();
        assert_eq!(toolchains(&path, Some(&home.join("me")), None), [home.join("bin")]);
    }

    #[test]
    fn links_of_a_project_lead_to_version_managers_only() {
        let dir = tempfile::tempdir().expect("a folder");
        let home = dir.path().canonicalize().expect("it exists");
        for name in [".local/share/uv/python/3/bin", "private/keys/bin", "work/.venv/bin"] {
            std::fs::create_dir_all(home.join(name)).expect("made");
        }
        let python = home.join(".local/share/uv/python/3/bin/python");
        for program in [&python, &home.join("private/keys/bin/x")] {
            std::fs::write(program, "").expect("written");
        }
        let work = home.join("work");
        let link = |to: &str, at: &str| {
            std::os::unix::fs::symlink(home.join(to), work.join(at)).expect("linked");
        };
        link("private/keys/bin/x", ".venv/bin/x");
        link(".local/share/uv/python/3/bin/python", ".venv/bin/python");
        link("private/keys", "node_modules");
        let path = [".venv/bin", "node_modules/bin"].map(|name| work.join(name).display().to_string());
        let found = toolchains(OsStr::new(&path.join(":")), Some(&home), Some(&work));
        assert_eq!(found, [home.join(".local/share/uv/python")]);
    }

    #[test]
    fn system_and_relative_folders_are_omitted() {
        assert!(toolchains(OsStr::new("/usr/bin:/bin:.:relative:"), None, None).is_empty());
        let temporary = OsStr::new("/usr/bin:/tmp:/var/tmp");
        assert!(toolchains(temporary, None, None).is_empty(), "it is private to each conversation");
        assert_eq!(unseen_folders(temporary), ["/tmp", "/var/tmp"]);
    }
}
