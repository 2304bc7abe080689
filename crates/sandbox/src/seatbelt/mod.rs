//! The profile for `sandbox-exec`, which enforces a policy on macOS.
//!
//! Everything is denied that no rule allows, and of several rules that match the last one counts: what is masked or
//! protected comes at the end. The kernel compares real paths, below `/private` for `/etc`, `/tmp` and `/var`, and with
//! the names that folders store.

#[cfg(test)]
mod evaluator;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use aye_core::contract::judgement::Profile;

use crate::folder::OpenFolder;
use crate::mounts::{MountKind, plan};
use crate::policy::Policy;
use crate::protected::{self, Reserved};

/// The program that reads the profile and becomes the command.
pub(crate) const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// The start of every profile: what programs need to start at all.
const BASE: &str = include_str!("base.sb");
/// What a command with a network gets besides.
const NETWORK: &str = include_str!("network.sb");

const READ: &str = "file-read* file-map-executable";
const WRITE: &str = "file-write*";

/// The profile of a policy.
pub(crate) fn profile(policy: &Policy) -> String {
    let mut text = BASE.to_owned();
    let writable = policy.writable_folders();
    let tmp = policy.tmp.as_deref();
    let readable: Vec<&Path> = policy
        .visible()
        .chain([policy.workspace.as_path()])
        .chain(writable.iter().copied())
        .chain(tmp)
        .collect();
    // A path is looked up from the root: the folders above have to be seen, and not what else is in them.
    let above = readable.iter().flat_map(|path| path.ancestors().skip(1)).map(private).collect::<Vec<_>>();
    let above = above.iter().flat_map(|path| path.ancestors());
    text += &rule("allow", "file-read-metadata", &literals(above));
    text += &rule("allow", READ, &subpaths(readable.iter().copied()));
    text += &rule("allow", WRITE, &subpaths(writable.iter().copied().chain(tmp)));
    if policy.network && policy.profile == Profile::Workspace {
        text += NETWORK;
    }
    let mounts = plan(policy, &[], &|_| true);
    let of = |kind: MountKind| {
        mounts.iter().filter(move |mount| mount.kind == kind).map(|mount| mount.path.as_path())
    };
    // The folder itself cannot be moved away, and what is in it stays writable.
    text += &rule("deny", WRITE, &literals(of(MountKind::Fixed)));
    text += &rule("deny", WRITE, &everything(of(MountKind::ReadOnly)));
    for folder in &writable {
        text += &rule("deny", WRITE, &reserved(folder));
    }
    for folder in &policy.partial {
        let path = private(&folder.path);
        let mut except = vec![format!("(require-not (literal {}))", quoted(&path))];
        let shown = folder.shown.iter().map(|path| quoted(&private(path)));
        except.extend(shown.map(|path| format!("(require-not (subpath {path}))")));
        let (path, except) = (quoted(&path), except.join("\n    "));
        let filter = format!("(require-all (subpath {path})\n    {except})");
        text += &rule("deny", &format!("{READ} {WRITE}"), &[filter]);
    }
    let masks = policy.masks();
    text += &rule("deny", &format!("{READ} {WRITE}"), &everything(masks.iter().map(PathBuf::as_path)));
    text
}

/// The filters for what is protected in a folder although it need not exist. No file can be made under such a name, in
/// whatever case, because the volume may take it for the same.
fn reserved(folder: &Path) -> Vec<String> {
    let Ok(open) = OpenFolder::open(folder) else { return Vec::new() };
    let Reserved { paths, folders, names, pairs } = protected::reserved(&open);
    let folders: Vec<PathBuf> = folders.iter().map(|path| folder.join(path)).collect();
    let paths: Vec<PathBuf> = paths.iter().map(|path| folder.join(path)).collect();
    let mut filters = literals(folders.iter().map(PathBuf::as_path));
    filters.extend(everything(paths.iter().map(PathBuf::as_path)));
    let plain: Vec<PathBuf> =
        names.iter().filter(|name| !name.contains('*')).map(|name| folder.join(name)).collect();
    filters.extend(everything(plain.iter().map(PathBuf::as_path)));
    let start = expression(&private(folder).to_string_lossy(), false);
    let mut forms: Vec<String> = names.iter().map(|name| expression(name, true)).collect();
    forms.extend(
        pairs
            .iter()
            .map(|(first, second)| format!("{}/{}", expression(first, true), expression(second, true))),
    );
    if !forms.is_empty() {
        filters.push(format!("(regex {})", raw(&format!("^{start}/({})(/|$)", forms.join("|")))));
    }
    filters
}

/// A name as an expression that matches it, in any case or as it is. `*` stands for any characters.
fn expression(name: &str, any_case: bool) -> String {
    let mut text = String::new();
    for c in name.chars() {
        match c {
            '*' if any_case => text.push_str("[^/]*"),
            c if any_case && c.is_ascii_alphabetic() => {
                text.extend(['[', c.to_ascii_lowercase(), c.to_ascii_uppercase(), ']']);
            }
            c if "\\.^$|()[]{}*+?".contains(c) => text.extend(['\\', c]),
            c => text.push(c),
        }
    }
    text
}

/// A rule with these filters. Without any there is none, because it would apply to everything.
fn rule(verdict: &str, operations: &str, filters: &[String]) -> String {
    let mut lines: Vec<&String> = Vec::new();
    for filter in filters {
        if !lines.contains(&filter) {
            lines.push(filter);
        }
    }
    let mut text = String::new();
    if !lines.is_empty() {
        let _ = write!(text, "({verdict} {operations}");
        for line in lines {
            let _ = write!(text, "\n  {line}");
        }
        text.push_str(")\n");
    }
    text
}

fn filters<'a>(how: &str, paths: impl IntoIterator<Item = &'a Path>) -> Vec<String> {
    paths.into_iter().map(|path| format!("({how} {})", quoted(&private(path)))).collect()
}

fn literals<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Vec<String> {
    filters("literal", paths)
}

fn subpaths<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Vec<String> {
    filters("subpath", paths)
}

/// The filters for a path and what is in it, whether it exists or not.
fn everything<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Vec<String> {
    let both = |path: &'a Path| [literals([path]), subpaths([path])].concat();
    paths.into_iter().flat_map(both).collect()
}

/// A path as the kernel compares it: the system's own links are followed.
fn private(path: &Path) -> PathBuf {
    let is_linked = ["/etc", "/tmp", "/var"].iter().any(|link| path.starts_with(link));
    if is_linked {
        Path::new("/private").join(path.strip_prefix("/").unwrap_or(path))
    } else {
        path.to_owned()
    }
}

/// A path as a string of the profile. A policy has none that is not UTF-8.
fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\""))
}

/// An expression as a string of the profile.
fn raw(expression: &str) -> String {
    if expression.contains('"') {
        return quoted(Path::new(expression));
    }
    format!("#\"{expression}\"")
}
