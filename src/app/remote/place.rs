//! The folder of the sockets: one that only this user can enter, or none.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::config::Env;

/// An opened folder whose owner and mode were looked at. What is done in it is done through the descriptor, so that
/// nobody can put another folder in its place in between.
#[derive(Debug)]
pub(in crate::app) struct Place {
    folder: PathBuf,
    dir: OwnedFd,
}

impl Place {
    /// The folder in which this process serves; it is made when it is not there.
    ///
    /// # Errors
    /// A sentence: nothing is served then.
    pub(in crate::app) fn make(env: &Env) -> Result<Place, String> {
        let folder = folders(env).into_iter().next().ok_or("no folder for sockets")?;
        match std::fs::create_dir_all(folder.parent().unwrap_or(&folder)) {
            Ok(()) => {}
            Err(error) => return Err(format!("cannot make {}: {error}", folder.display())),
        }
        match rustix::fs::mkdir(&folder, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(format!("cannot make {}: {error}", folder.display())),
        }
        Self::open(folder).map_err(|(_, message)| message)
    }

    /// The folders in which processes of this user may serve. One that is not right is left out and logged: what is in
    /// it may be anybody's.
    pub(super) fn all(env: &Env) -> Vec<Place> {
        let mut places = Vec::new();
        for folder in folders(env) {
            match Self::open(folder) {
                Ok(place) => places.push(place),
                Err((Errno::NOENT, _)) => {}
                Err((_, message)) => tracing::warn!("{message}"),
            }
        }
        places
    }

    fn open(folder: PathBuf) -> Result<Place, (Errno, String)> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let refuse = |error: Errno| (error, format!("cannot open {}: {error}", folder.display()));
        let dir = rustix::fs::open(&folder, flags, Mode::empty()).map_err(refuse)?;
        let stat = rustix::fs::fstat(&dir).map_err(refuse)?;
        if !is_own(stat.st_uid, stat.st_mode) {
            let message =
                format!("{} is not safe: it must belong to you and have mode 0700", folder.display());
            return Err((Errno::PERM, message));
        }
        Ok(Place { folder, dir })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The address of a socket in it. Through the descriptor, so that a long path has a short address too.
    pub(super) fn address(&self, name: &str) -> PathBuf {
        if cfg!(target_os = "linux") {
            PathBuf::from(format!("/proc/self/fd/{}", self.dir.as_raw_fd())).join(name)
        } else {
            self.folder.join(name)
        }
    }

    /// Takes the socket's file from everybody but the user; the folder did so already.
    pub(super) fn protect(&self, name: &str) -> std::io::Result<()> {
        Ok(rustix::fs::chmodat(&self.dir, name, Mode::RUSR | Mode::WUSR, AtFlags::empty())?)
    }

    pub(super) fn remove(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.dir, name, AtFlags::empty());
    }

    /// The names of the sockets in it, sorted.
    pub(super) fn sockets(&self) -> Vec<String> {
        let Ok(entries) = Dir::read_from(&self.dir) else { return Vec::new() };
        let name = |entry: rustix::fs::DirEntry| {
            let name = String::from_utf8_lossy(entry.file_name().to_bytes()).into_owned();
            Path::new(&name).extension().is_some_and(|ending| ending == "sock").then_some(name)
        };
        let mut names: Vec<String> = entries.flatten().filter_map(name).collect();
        names.sort();
        names
    }
}

/// Whether a folder is this user's and nobody else can enter it.
fn is_own(uid: u32, mode: u32) -> bool {
    const OTHERS: u32 = 0o077;
    uid == rustix::process::getuid().as_raw() && mode & OTHERS == 0
}

/// Where sockets may be, the place for one's own first.
fn folders(env: &Env) -> Vec<PathBuf> {
    if let Some(root) = env.var("AYE_HOME") {
        return vec![env.cwd().join(root).join("run")];
    }
    let uid = rustix::process::getuid().as_raw();
    let runtime = env.var("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| {
        dir.is_absolute()
            && rustix::fs::stat(dir.as_path()).is_ok_and(|stat| is_own(stat.st_uid, stat.st_mode))
    });
    let temporary = env.var("TMPDIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let temporary = temporary.unwrap_or_else(|| "/tmp".into());
    runtime.map(|dir| dir.join("aye")).into_iter().chain([temporary.join(format!("aye-{uid}"))]).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn env(vars: &[(&str, &Path)]) -> Env {
        let vars: Vec<(&str, &str)> =
            vars.iter().map(|(name, value)| (*name, value.to_str().expect("text"))).collect();
        Env::of(&vars, "/h", "/w")
    }

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("mode");
    }

    #[test]
    fn the_folder_is_the_users_alone() {
        let root = tempfile::tempdir().expect("temp");
        mode(root.path(), 0o700);
        let uid = rustix::process::getuid().as_raw();
        let own = |vars: &[(&str, &Path)]| Place::make(&env(vars)).map(|place| place.folder);

        let runtime = root.path().join("run");
        std::fs::create_dir(&runtime).expect("dir");
        mode(&runtime, 0o700);
        let vars = [("XDG_RUNTIME_DIR", runtime.as_path()), ("TMPDIR", root.path())];
        assert_eq!(own(&vars).expect("made"), runtime.join("aye"));
        let made = std::fs::metadata(runtime.join("aye")).expect("there").permissions().mode() & 0o777;
        assert_eq!(made, 0o700);

        // One that others can enter is none.
        mode(&runtime, 0o755);
        let temporary = root.path().join(format!("aye-{uid}"));
        assert_eq!(own(&vars).expect("made"), temporary);
        assert_eq!(own(&[("TMPDIR", root.path())]).expect("made"), temporary);

        // Somebody was faster: refused, never repaired.
        mode(&temporary, 0o777);
        let refused = own(&vars).expect_err("refused");
        assert!(refused.contains("mode 0700"), "{refused}");
        std::fs::remove_dir(&temporary).expect("empty");
        std::os::unix::fs::symlink(&runtime, &temporary).expect("link");
        assert!(own(&vars).is_err(), "a link is not followed");
        assert!(Place::all(&env(&vars)).is_empty());

        let home = root.path().join("home");
        assert_eq!(
            own(&[("AYE_HOME", &home), ("XDG_RUNTIME_DIR", &runtime)]).expect("made"),
            home.join("run")
        );
    }
}
