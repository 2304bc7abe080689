//! Files and folders that a broad allow never covers for writing: something runs them later without asking,
//! or they contain rules and instructions.
//!
//! Shells, editors, debuggers, version managers, hooks of version control, tasks of continuous integration
//! and other agents all run what such files contain, often as soon as somebody enters the folder. One list
//! serves every mode, every tool and every command.

use super::rules::Rule;
use aye_core::contract::spelling;
use aye_pattern::shell::suspicious;
use aye_sandbox::protected::{NAMES, PAIRS};
use std::path::Path;

/// Returns the protected name among a path's parts, however it is spelt; without the part that its `*` stands
/// for.
pub(super) fn protected_name(path: &Path) -> Option<String> {
    let text = path.to_string_lossy();
    let parts: Vec<String> = text.split(['/', '\\']).map(plain_name).collect();
    for (i, part) in parts.iter().enumerate() {
        if let Some(name) = NAMES.iter().find_map(|name| named(name, part)) {
            return Some(name.to_owned());
        }
        if let Some((a, b)) =
            PAIRS.iter().find(|(a, b)| a == part && parts.get(i + 1).is_some_and(|next| next == b))
        {
            return Some(format!("{a}/{b}"));
        }
    }
    None
}

/// Returns the text that a name of the list shares with a part of a path, if the name matches the part.
fn named<'n>(name: &'n str, part: &str) -> Option<&'n str> {
    if let Some((start, end)) = name.split_once('*') {
        let rest = part.strip_prefix(start)?;
        return rest.ends_with(end).then_some(start);
    }
    (name == part || is_short_name(name, part)).then_some(name)
}

/// A short name that Windows made of a hidden one: `GIT~1`, `GITHUB~1`, `AYE~2`.
fn is_short_name(name: &str, part: &str) -> bool {
    let Some((stem, _)) = part.split_once('~').filter(|(_, n)| n.starts_with(|c: char| c.is_ascii_digit()))
    else {
        return false;
    };
    let Some(bare) = name.strip_prefix('.') else { return false };
    let bare = bare.replace('.', "");
    !stem.is_empty()
        && (bare.starts_with(stem)
            || (stem.get(..2).is_some_and(|start| bare.starts_with(start)) && stem.len() == 6))
}

/// A name as a forgiving file system reads it: no case, no trailing dots or blanks, no stream, nothing invisible.
fn plain_name(part: &str) -> String {
    let part = part.split(':').next().unwrap_or(part);
    let visible: String = part.chars().filter(|c| suspicious(*c).is_none()).collect();
    let trimmed =
        if visible.chars().all(|c| c == '.') { &visible } else { visible.trim_end_matches(['.', ' ']) };
    spelling::folded(trimmed).into_owned()
}

/// Returns whether a rule names a protected file: the rule then covers the file on purpose.
pub(super) fn is_named_by(name: &str, rule: &Rule) -> bool {
    rule.pattern.to_string().to_lowercase().contains(name)
}

/// Returns the bare repository that contains a path, as its folder's name. Git recognises one in every folder
/// that contains `HEAD`, `objects` and `refs`, or that points to another repository.
pub(super) fn bare_repository(path: &Path, workspace: &Path) -> Option<String> {
    let is_repository = |folder: &Path| {
        let has = |name: &str| folder.join(name).symlink_metadata().is_ok();
        has("HEAD") && (has("objects") || has("refs") || has("commondir"))
    };
    let folders = path.ancestors().skip(1).take_while(|folder| folder.starts_with(workspace));
    folders.into_iter().find(|folder| is_repository(folder)).map(|folder| {
        folder.file_name().map_or_else(|| "HEAD".to_owned(), |name| name.to_string_lossy().into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_run_later_are_protected() {
        for path in [
            ".lldbinit",
            ".gdbinit",
            "a/.exrc",
            ".nvimrc",
            ".nvim.lua",
            ".dir-locals.el",
            ".tmuxinator.yml",
            ".cursor/rules/x.mdc",
            ".zed/tasks.json",
            ".fleet/run.json",
            "lefthook.yml",
            "lefthook-local.yml",
            ".yarnrc",
            ".yarnrc.yml",
            ".yarn/releases/yarn.cjs",
            ".bazelrc",
            ".gitattributes",
            "sub/.gitattributes",
            ".python-version",
            ".tool-versions",
            "mise.toml",
            ".mise.local.toml",
            "rust-toolchain",
            "rust-toolchain.toml",
            "AGENTS.md",
            "AGENTS.override.md",
            "docs/agents.md",
            "CLAUDE.md",
            "CLAUDE.local.md",
            ".gitlab-ci.yml",
            ".circleci/config.yml",
            ".github/workflows/x.yml",
            "HEAD",
            "x/HEAD",
            ".config/nvim/init.lua",
            "Jenkinsfile",
            ".GDBINIT",
            ".nvim.lua.",
            "RUST-TOOLCHAIN.toml",
            ".ba\u{17f}hrc",
        ] {
            assert!(protected_name(Path::new(path)).is_some(), "{path}");
        }
        for path in [
            "src/main.rs",
            "README.md",
            "agents.rs",
            "src/header.h",
            "heads",
            "HEAD.md",
            "mise.rs",
            ".gitignore",
            ".github/CODEOWNERS",
            "rust.toolchain",
            "gitattributes",
            "yarnrc.md",
            ".yarn/install-state.gz",
            ".pnp.cjs",
            "x~/y",
            "package.json",
            "Makefile",
            "management.md",
        ] {
            assert_eq!(protected_name(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn a_bare_repository_is_found_above_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("fix/repo/objects")).unwrap();
        let config = root.join("fix/repo/config");
        assert_eq!(bare_repository(&config, root), None);
        std::fs::write(root.join("fix/repo/HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(bare_repository(&config, root).as_deref(), Some("repo"));
        assert_eq!(
            bare_repository(&root.join("fix/repo/hooks/post-checkout"), root).as_deref(),
            Some("repo")
        );
        assert_eq!(bare_repository(&root.join("fix/other"), root), None);
        assert_eq!(bare_repository(&config, &root.join("fix/repo/x")), None);
    }
}
