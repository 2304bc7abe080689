//! The profile for `sandbox-exec`, which enforces a policy on macOS.
//!
//! Everything is denied that no rule allows, and of several rules that match the last one counts: what is masked or
//! protected comes at the end.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use aye_core::contract::judgement::Profile;

use crate::mounts::{MountKind, plan};
use crate::policy::Policy;

/// The program that reads the profile and becomes the command.
pub(crate) const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// The start of every profile: the command's own processes, and what the system's libraries read when a
/// program starts.
const BASE: &str = r#"(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow user-preference-read)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
(allow file-read* file-write-data file-ioctl (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty"))
(allow file-read* (literal "/dev/random") (literal "/dev/urandom") (subpath "/dev/fd"))
"#;

/// The system's programs, libraries and settings.
const SYSTEM: [&str; 9] = [
    "/System",
    "/Library",
    "/usr",
    "/bin",
    "/sbin",
    "/private/etc",
    "/private/var/select",
    "/private/var/db/timezone",
    "/private/var/db/dyld",
];

/// The profile of a policy.
pub(crate) fn profile(policy: &Policy) -> String {
    let mut text = BASE.to_owned();
    let system = SYSTEM.iter().map(Path::new);
    let writable = policy.writable_folders();
    let tmp = policy.tmp.as_deref();
    let readable: Vec<&Path> = system
        .chain(policy.visible())
        .chain([policy.workspace.as_path()])
        .chain(writable.iter().copied())
        .chain(tmp)
        .collect();
    // A path is looked up from the root: the folders above have to be seen, and not what else is in them.
    let above: Vec<&Path> = readable.iter().flat_map(|path| path.ancestors().skip(1)).collect();
    rule(&mut text, "allow", "file-read-metadata", "literal", above);
    rule(&mut text, "allow", "file-read*", "subpath", readable);
    rule(&mut text, "allow", "file-write*", "subpath", writable.iter().copied().chain(tmp));
    if policy.network && policy.profile == Profile::Workspace {
        text += "(allow network*)\n";
    }
    let mounts = plan(policy, &[], &|_| true);
    let of = |kind: MountKind| {
        mounts.iter().filter(move |mount| mount.kind == kind).map(|mount| mount.path.as_path())
    };
    // The folder itself cannot be moved away, and what is in it stays writable.
    rule(&mut text, "deny", "file-write*", "literal", of(MountKind::Fixed));
    rule(&mut text, "deny", "file-write*", "subpath", of(MountKind::ReadOnly));
    for folder in &policy.partial {
        let mut except = vec![format!("(require-not (literal {}))", quoted(&folder.path))];
        except.extend(folder.shown.iter().map(|path| format!("(require-not (subpath {}))", quoted(path))));
        let (path, except) = (quoted(&folder.path), except.join("\n  "));
        let _ = writeln!(text, "(deny file-read* file-write* (require-all (subpath {path})\n  {except}))");
    }
    let masks = policy.masks();
    rule(&mut text, "deny", "file-read* file-write*", "subpath", masks.iter().map(PathBuf::as_path));
    text
}

/// Adds a rule for paths, each of them once. Without paths no rule is added, because it would apply to all.
fn rule<'a>(
    text: &mut String,
    verdict: &str,
    what: &str,
    how: &str,
    paths: impl IntoIterator<Item = &'a Path>,
) {
    let mut lines: Vec<String> = Vec::new();
    for path in paths {
        let line = format!("\n  ({how} {})", quoted(path));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if !lines.is_empty() {
        let _ = writeln!(text, "({verdict} {what}{})", lines.concat());
    }
}

/// A path as a string of the profile. A policy has none that is not UTF-8.
fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PartialFolder;

    /// The part of a profile after the rules that all have, with `ROOT` for the folder.
    fn rest(policy: &Policy, root: &Path) -> String {
        let text = profile(policy);
        let text = text.strip_prefix(BASE).expect("it starts with them").to_owned();
        // Secrets of the system are those of this machine.
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("\"/etc/")).collect();
        let text = lines.join("\n") + "\n";
        text.replace(&root.display().to_string(), "ROOT")
    }

    fn project() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it exists");
        for folder in ["work/.git/hooks", "work/keys", "tools", "tmp"] {
            std::fs::create_dir_all(root.join(folder)).expect("written");
        }
        for file in ["work/.git/config", "work/.envrc", "work/.env"] {
            std::fs::write(root.join(file), "").expect("written");
        }
        (dir, root)
    }

    fn policy(profile: Profile, root: &Path) -> Policy {
        Policy {
            toolchains: vec![root.join("tools")],
            masked: vec![root.join("work/.env"), root.join("work/keys")],
            tmp: Some(root.join("tmp")),
            ..Policy::new(profile, root.join("work"))
        }
    }

    const READ: &str = r#"(allow file-read*
  (subpath "/System")
  (subpath "/Library")
  (subpath "/usr")
  (subpath "/bin")
  (subpath "/sbin")
  (subpath "/private/etc")
  (subpath "/private/var/select")
  (subpath "/private/var/db/timezone")
  (subpath "/private/var/db/dyld")
  (subpath "ROOT/tools")
  (subpath "ROOT/work")
  (subpath "ROOT/tmp"))
(allow file-write*
  (subpath "ROOT/tmp"))
"#;

    #[test]
    fn read_only_writes_nothing_but_tmp() {
        let (_dir, root) = project();
        let text = rest(&policy(Profile::Read, &root), &root);
        let (before, masks) = text.split_once("(deny file-read* file-write*\n").expect("it masks");
        assert!(before.ends_with(READ), "{before}");
        assert!(masks.contains("(subpath \"ROOT/work/.env\")"), "{masks}");
        assert!(masks.contains("(subpath \"ROOT/work/keys\")"), "{masks}");
    }

    #[test]
    fn a_workspace_is_writable_except_protected_files() {
        let (_dir, root) = project();
        let text = rest(&policy(Profile::Workspace, &root), &root);
        let expected = r#"(allow file-write*
  (subpath "ROOT/work")
  (subpath "ROOT/tmp"))
(deny file-write*
  (literal "ROOT/work/.git"))
(deny file-write*
"#;
        let at = text.find(expected).unwrap_or_else(|| panic!("{expected} in {text}"));
        let rest = &text[at + expected.len()..];
        let (protected, _) = rest.split_once("(deny file-read* file-write*\n").expect("masks come last");
        let mut protected: Vec<&str> = protected.lines().map(|line| line.trim_end_matches(')')).collect();
        protected.sort_unstable();
        assert_eq!(
            protected,
            [
                "  (subpath \"ROOT/work/.envrc\"",
                "  (subpath \"ROOT/work/.git/config\"",
                "  (subpath \"ROOT/work/.git/hooks\""
            ]
        );
        assert!(text.contains("(literal \"/\")") && text.contains("(literal \"ROOT\")"), "{text}");
        assert!(!text.contains("network"), "{text}");
    }

    #[test]
    fn of_a_partial_folder_only_some_entries_are_reached() {
        let folder = PartialFolder { path: "/srv/w".into(), shown: vec!["/srv/w/src".into()] };
        let policy = Policy { partial: vec![folder], ..Policy::new(Profile::Read, "/srv/w") };
        let expected = r#"(deny file-read* file-write* (require-all (subpath "/srv/w")
  (require-not (literal "/srv/w"))
  (require-not (subpath "/srv/w/src"))))
"#;
        assert!(profile(&policy).contains(expected), "{}", profile(&policy));
    }

    #[test]
    fn the_network_is_open_only_for_a_workspace() {
        let of = |profile| Policy { network: true, ..Policy::new(profile, "/srv/w") };
        assert!(profile(&of(Profile::Workspace)).contains("(allow network*)"));
        assert!(!profile(&of(Profile::Read)).contains("network"));
    }

    #[test]
    fn any_path_is_one_string() {
        assert_eq!(quoted(Path::new(r#"/w/a" (b) \c"#)), r#""/w/a\" (b) \\c""#);
    }
}
