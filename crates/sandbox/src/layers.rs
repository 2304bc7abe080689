//! [`Layers`]: what this machine can enforce.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::namespaces::{CAN_MOUNT, SYSTEM, UNSHARE};
use aye_core::contract::judgement::Profile;

/// The oldest Landlock that is of use: before Linux 6.2 it does not know truncation.
pub const MIN_LANDLOCK: u8 = 3;

/// The layers that this machine can enforce. Detecting them starts one process: do this once, and not before
/// a command needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// The Landlock version as far as it matters here: 6 represents every later one, 0 none.
    pub landlock: u8,
    /// Filters for system calls.
    pub seccomp: bool,
    /// bubblewrap, where it works.
    pub bwrap: Option<PathBuf>,
    /// Whether bubblewrap lets the launcher make mounts by itself, each of the very file that was judged. Otherwise
    /// bubblewrap makes them by path, and the launcher compares them.
    pub can_mount: bool,
    /// Whether bubblewrap can limit the size of what it keeps in memory: since version 0.7 it can.
    pub can_limit: bool,
    /// Why bubblewrap is not used.
    pub no_bwrap: Option<String>,
    /// `sandbox-exec`, which macOS has.
    pub seatbelt: bool,
}

impl Layers {
    /// Detects which layers work. bubblewrap is searched for in the folders of `path`.
    pub fn detect(path: &OsStr) -> Layers {
        match bwrap(path) {
            Ok((bwrap, can_mount, can_limit)) => {
                Layers { bwrap: Some(bwrap), can_mount, can_limit, ..Layers::of_kernel() }
            }
            Err(why) => Layers { no_bwrap: Some(why), ..Layers::of_kernel() },
        }
    }

    /// The kernel's own layers, without bubblewrap.
    #[cfg(target_os = "linux")]
    pub fn of_kernel() -> Layers {
        let seccomp = Path::new("/proc/sys/kernel/seccomp/actions_avail");
        let seccomp = std::fs::read_to_string(seccomp).is_ok_and(|actions| actions.contains("errno"));
        Layers { landlock: crate::kernel::landlock_version(), seccomp, ..Layers::default() }
    }

    /// The kernel's own layers: of other systems, macOS has one.
    #[cfg(not(target_os = "linux"))]
    pub fn of_kernel() -> Layers {
        let seatbelt = cfg!(target_os = "macos") && Path::new(crate::seatbelt::PROGRAM).is_file();
        Layers { seatbelt, ..Layers::default() }
    }

    /// Whether a profile can be enforced; always true for [`Profile::Outside`].
    pub fn can_enforce(&self, profile: Profile) -> bool {
        profile == Profile::Outside
            || self.seatbelt
            || self.seccomp && (self.landlock >= MIN_LANDLOCK || self.bwrap.is_some())
    }

    /// The layer that is missing, the one that matters most, in two words.
    pub fn lack(&self) -> Option<&'static str> {
        if self.seatbelt {
            return None;
        }
        if !cfg!(target_os = "linux") {
            return Some("no sandbox");
        }
        let of = [
            (!self.seccomp, "no seccomp"),
            (self.bwrap.is_none(), "no bwrap"),
            (self.landlock < MIN_LANDLOCK, "no Landlock"),
        ];
        of.into_iter().find_map(|(is_missing, words)| is_missing.then_some(words))
    }

    /// The layers that are missing, as sentences.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if self.seatbelt {
            return self.no_bwrap.iter().map(|why| format!("no namespaces: {why}")).collect();
        }
        if !self.seccomp {
            missing.push("the kernel has no seccomp filters: nothing can be sandboxed".to_owned());
        }
        if self.landlock < MIN_LANDLOCK {
            missing.push(
                "the kernel has no Landlock (Linux 6.2 and later have it, unless it is turned off)"
                    .to_owned(),
            );
        }
        if let Some(why) = &self.no_bwrap {
            missing.push(format!("no namespaces: {why}"));
        }
        missing
    }

    /// Returns what a command in a profile can still do because a layer is missing: the probe's name, and a
    /// sentence.
    pub fn holes(&self, profile: Profile) -> Vec<(&'static str, &'static str)> {
        let mut holes = Vec::new();
        if profile == Profile::Outside || !self.can_enforce(profile) || self.bwrap.is_some() {
            return holes;
        }
        if self.seatbelt {
            holes.push(("process list", "see the names of other processes"));
            return holes;
        }
        if profile == Profile::Workspace {
            holes.extend([
                ("chmod", "change permissions of your files outside the workspace"),
                ("utimens", "change times of your files outside the workspace"),
                ("setxattr", "change extended attributes of your files outside the workspace"),
                ("masked secret", "read files of the workspace that rules deny"),
            ]);
        }
        holes.extend([
            ("file metadata", "see whether a file exists, its size and its times, anywhere"),
            ("process list", "see the command lines of other processes in /proc"),
        ]);
        if self.landlock < 6 {
            holes.push(("kill", "send signals to your other processes"));
        }
        holes
    }
}

/// bubblewrap in a folder of `path`, if it can make all namespaces here, whether the launcher can make mounts in them, and
/// whether bubblewrap can limit the size of one.
fn bwrap(path: &OsStr) -> Result<(PathBuf, bool, bool), String> {
    if !cfg!(target_os = "linux") {
        return Err("supported on Linux only".into());
    }
    let bwrap = find(path)?;
    // Some systems take all rights from what bubblewrap starts.
    const LIMIT: [&str; 4] = ["--size", "1048576", "--tmpfs", "/dev/shm"];
    let mounts = [&CAN_MOUNT[..], &["--", "unshare", "--mount", "true"]].concat();
    if has_mount_calls() {
        // One process nearly everywhere.
        for can_limit in [true, false] {
            let limit = if can_limit { &LIMIT[..] } else { &[] };
            if works(&bwrap, &[limit, &mounts].concat()).is_ok() {
                return Ok((bwrap, true, can_limit));
            }
        }
    }
    if works(&bwrap, &[&LIMIT[..], &["--", "true"]].concat()).is_ok() {
        return Ok((bwrap, false, true));
    }
    works(&bwrap, &["--", "true"]).map(|()| (bwrap, false, false))
}

/// Whether the kernel has the calls that make a mount by descriptor: Linux 5.2 and later do.
#[cfg(target_os = "linux")]
fn has_mount_calls() -> bool {
    use rustix::mount::{OpenTreeFlags, open_tree};
    open_tree(rustix::fs::CWD, "/", OpenTreeFlags::OPEN_TREE_CLOEXEC).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn has_mount_calls() -> bool {
    false
}

/// Only in the system's folders: a command may have put a program of that name where it can write.
fn find(path: &OsStr) -> Result<PathBuf, String> {
    let folders = path.as_bytes().split(|byte| *byte == b':').map(|dir| Path::new(OsStr::from_bytes(dir)));
    let all = folders.filter_map(|dir| dir.join("bwrap").canonicalize().ok());
    let found = all.into_iter().find(|it| it.is_file() && SYSTEM.iter().any(|system| it.starts_with(system)));
    found.ok_or_else(|| "bwrap was not found in a system folder of PATH; install bubblewrap".into())
}

fn works(bwrap: &Path, end: &[&str]) -> Result<(), String> {
    let tried = Command::new(bwrap)
        .args(UNSHARE)
        .args(["--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"])
        .args(end)
        .stdin(Stdio::null())
        .output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).trim().chars().take(200).collect::<String>();
            Err(format!("{} fails: {why}", bwrap.display()))
        }
        Err(error) => Err(format!("{} cannot be started: {error}", bwrap.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_needs_seccomp_and_one_of_the_other_two() {
        let of = |landlock, seccomp, bwrap: bool| Layers {
            landlock,
            seccomp,
            bwrap: bwrap.then(|| "/usr/bin/bwrap".into()),
            can_mount: bwrap,
            can_limit: bwrap,
            no_bwrap: (!bwrap).then(|| "not installed".into()),
            seatbelt: false,
        };
        assert!(of(6, true, false).can_enforce(Profile::Read));
        assert!(of(0, true, true).can_enforce(Profile::Workspace));
        assert!(!of(2, true, false).can_enforce(Profile::Read));
        assert!(!of(6, false, true).can_enforce(Profile::Read));
        assert!(of(0, false, false).can_enforce(Profile::Outside));
        assert!(of(6, true, true).missing().is_empty() && of(6, true, true).holes(Profile::Read).is_empty());
        assert_eq!(of(0, false, false).missing().len(), 3);
        let lacks = [of(6, true, true), of(6, true, false), of(2, true, true), of(6, false, true)];
        let words = [None, Some("no bwrap"), Some("no Landlock"), Some("no seccomp")];
        assert_eq!(lacks.map(|layers| layers.lack()), words);
        let mac = Layers { seatbelt: true, ..of(0, false, false) };
        assert!(mac.can_enforce(Profile::Workspace) && mac.lack().is_none());
        assert_eq!(mac.missing(), ["no namespaces: not installed"]);
        let holes = |landlock| of(landlock, true, false).holes(Profile::Read).len();
        assert_eq!(holes(5), holes(6) + 1);
    }

    #[test]
    fn a_bwrap_in_an_untrusted_folder_is_not_used() {
        let dir = tempfile::tempdir().expect("a folder");
        let script = dir.path().join("bwrap");
        std::fs::write(&script, "#!/bin/sh\necho no rights >&2; exit 1\n").expect("written");
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("changed");
        let layers = Layers::detect(dir.path().as_os_str());
        assert_eq!(layers.bwrap, None);
        assert!(layers.missing().iter().any(|line| line.contains("install bubblewrap")), "{layers:?}");
        // One that fails says why.
        assert!(works(&script, &[]).is_err_and(|why| why.contains("no rights")));
    }
}
