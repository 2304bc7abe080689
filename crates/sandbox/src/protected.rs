//! Names that a broad permission never reaches for writing: something runs them later without a question, or they
//! contain rules and instructions. One list serves the file tools, every permission mode and the sandbox.

use std::path::{Path, PathBuf};

use aye_core::contract::spelling;
use rustix::fs::FileType;

use crate::folder::{FolderEntry, OpenFolder, kind_of};

/// The folder at the root of a project for what aye sets aside. Commands cannot read it.
pub const SET_ASIDE: &str = ".aye-set-aside";

/// Names in lower case, of files and of whole folders; one `*` matches any characters.
pub const NAMES: &[&str] = &[
    // Version control, its hooks and what reads its attributes.
    ".git",
    ".hg",
    ".svn",
    ".jj",
    ".gitconfig",
    ".gitmodules",
    ".gitattributes",
    ".hgrc",
    ".husky",
    ".pre-commit-config.yaml",
    ".pre-commit-hooks.yaml",
    ".overcommit.yml",
    ".lintstagedrc*",
    ".huskyrc*",
    "lefthook*.yml",
    "lefthook*.yaml",
    "lefthook*.toml",
    "lefthook*.json",
    ".lefthook*",
    // A folder with a file of this name may be a bare repository, whose settings start programs.
    "head",
    // Agents: settings, rules, instructions.
    ".aye",
    // See SET_ASIDE.
    ".aye-set-aside*",
    ".agents",
    ".claude",
    ".codex",
    ".gemini",
    ".cursor",
    ".cursorrules",
    ".windsurf",
    ".windsurfrules",
    ".clinerules",
    ".roo",
    ".kiro",
    ".junie",
    ".opencode",
    ".continue",
    ".aider*",
    ".amazonq",
    ".augment",
    ".cline",
    ".crush.json",
    ".goosehints",
    ".kilocode",
    ".qwen",
    ".rules",
    ".mcp.json",
    "crush.json",
    "opencode.json*",
    "agent.md",
    "agents*.md",
    "claude*.md",
    "gemini*.md",
    // Editors.
    ".vscode",
    ".idea",
    ".zed",
    ".fleet",
    ".devcontainer",
    ".devcontainer.json",
    ".vim",
    ".vimrc",
    ".gvimrc",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".nvim",
    ".lvimrc",
    ".emacs",
    ".emacs.d",
    ".emacs.el",
    ".dir-locals*.el",
    ".projectile",
    ".sublime-project",
    // Debuggers and the start files of interpreters.
    ".gdbinit",
    ".gdbearlyinit",
    ".lldbinit*",
    ".pdbrc*",
    ".pythonrc*",
    ".ipython",
    ".jupyter",
    ".irbrc",
    ".pryrc",
    ".rspec",
    ".ghci",
    ".ocamlinit",
    ".octaverc",
    ".rprofile",
    ".renviron",
    ".psqlrc",
    ".sqliterc",
    ".duckdbrc",
    ".inputrc",
    ".editrc",
    // Terminals and shells.
    ".tmuxinator*",
    ".tmux.conf",
    ".tmux",
    ".screenrc",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".mkshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".pam_environment",
    ".envrc",
    ".direnvrc",
    ".autoenv*",
    // Version managers and build tools that choose the program which runs.
    ".python-version",
    ".ruby-version",
    ".node-version",
    ".nvmrc",
    ".java-version",
    ".php-version",
    ".swift-version",
    ".terraform-version",
    ".go-version",
    ".sdkmanrc",
    ".tool-versions",
    ".mise",
    ".mise*.toml",
    "mise",
    "mise*.toml",
    "rust-toolchain*",
    ".yarnrc*",
    ".npmrc",
    ".pnpmfile.cjs",
    "bunfig.toml",
    ".bazelrc",
    ".bazelversion",
    ".bundle",
    ".gemrc",
    ".mvn",
    ".jvmopts",
    ".sbtopts",
    ".pypirc",
    // Continuous integration.
    ".gitlab-ci*.yml",
    ".gitlab-ci*.yaml",
    ".gitlab-ci",
    ".circleci",
    ".forgejo",
    ".gitea",
    ".buildkite",
    ".woodpecker*",
    ".drone*",
    ".travis.yml",
    ".cirrus.yml",
    ".appveyor.yml",
    "appveyor.yml",
    "azure-pipelines*.yml",
    "bitbucket-pipelines.yml",
    "jenkinsfile*",
    // Credentials and the settings of programs that every script starts.
    ".ssh",
    ".gnupg",
    ".aws",
    ".kube",
    ".netrc",
    ".curlrc",
    ".wgetrc",
    ".ripgreprc",
    ".mailcap",
];

/// Folders below `.config` and the like, and files in them.
pub const PAIRS: &[(&str, &str)] = &[
    (".config", "fish"),
    (".config", "git"),
    (".config", "aye"),
    (".config", "autostart"),
    (".config", "systemd"),
    (".config", "environment.d"),
    (".config", "nvim"),
    (".config", "tmux"),
    (".config", "mise"),
    (".config", "direnv"),
    (".config", "zed"),
    (".config", "gdb"),
    (".config", "husky"),
    (".github", "workflows"),
    (".github", "actions"),
    (".github", "copilot-instructions.md"),
    (".github", "instructions"),
    (".cargo", "config.toml"),
    (".cargo", "config"),
    (".local", "bin"),
    // The rest of the folder is what yarn installs.
    (".yarn", "releases"),
    (".yarn", "plugins"),
    (".yarn", "sdks"),
];

/// Folders of installed or built files: users do not work in them, and they contain files with such names.
pub const INSTALLED: &[&str] =
    &["node_modules", "target", ".venv", "venv", "site-packages", "__pycache__", ".tox"];

/// Whether a name in lower case matches the protected one; one `*` in the list matches any characters.
fn is_named(name: &str, part: &str) -> bool {
    match name.split_once('*') {
        Some((start, end)) => part.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
        None => name == part,
    }
}

/// Whether the name of a folder's entry is protected.
pub(crate) fn is_protected(part: &str) -> bool {
    let part = spelling::folded(part);
    NAMES.iter().any(|name| is_named(name, &part))
}

/// The parts of a version control folder that run programs; commits write the rest.
const CONTROL: &[(&str, &[&str])] = &[
    (".git", &["hooks", "config", "config.worktree", "info/attributes", "commondir"]),
    (".hg", &["hgrc"]),
    (".svn", &[]),
    (".jj", &["repo/config.toml", "repo/store/git_target"]),
];

/// What is protected at the root of a folder, whether it exists or not.
pub(crate) struct Reserved {
    /// What is there, and the parts of a version control folder that run programs.
    pub(crate) paths: Vec<PathBuf>,
    /// Folders that contain some of it and must keep their names; the rest of them is free.
    pub(crate) folders: Vec<PathBuf>,
    /// Names, as in [`NAMES`].
    pub(crate) names: Vec<&'static str>,
    /// Names and the folders that they are in, as in [`PAIRS`].
    pub(crate) pairs: &'static [(&'static str, &'static str)],
}

/// Returns what is protected at the root of a folder. A version control folder that exists is written by commits, and a
/// folder that is a repository itself has only its own parts.
pub(crate) fn reserved(root: &OpenFolder) -> Reserved {
    let paths = of_repository(root);
    let above = |path: &PathBuf| path.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>();
    let mut folders: Vec<PathBuf> = paths.iter().flat_map(above).collect();
    folders.retain(|folder| !folder.as_os_str().is_empty());
    if is_repository(root) {
        return Reserved { paths, folders, names: Vec::new(), pairs: &[] };
    }
    let mut entries = root.entries().unwrap_or_default();
    entries.retain(FolderEntry::is_folder);
    let used: Vec<String> = entries.iter().map(FolderEntry::folded).collect();
    let is_control = |name: &str| CONTROL.iter().any(|(control, _)| *control == name);
    let is_first = |name: &String| is_control(name) || PAIRS.iter().any(|(first, _)| first == name);
    folders.extend(
        entries.iter().filter(|entry| is_first(&entry.folded())).map(|entry| PathBuf::from(&entry.name)),
    );
    let is_in_use = |name: &str| is_control(name) && used.iter().any(|used| used == name);
    let names = NAMES.iter().copied().filter(|name| !is_in_use(name)).collect();
    Reserved { paths, folders, names, pairs: PAIRS }
}

/// Returns the protected files and folders at the root of a repository, even if they do not exist, as far as
/// their names are known. Paths start at the folder.
pub(crate) fn at_root(root: &OpenFolder) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in root.entries().unwrap_or_default() {
        let (part, inner) = (entry.folded(), PathBuf::from(&entry.name));
        // A link may lead anywhere: the link itself is protected, not its target.
        if entry.is_folder()
            && let Some((_, names)) = CONTROL.iter().find(|(name, _)| *name == part)
        {
            let folders = if part == ".git" { git_folders(root, inner) } else { vec![inner] };
            found.extend(folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name))));
        } else if is_protected(&part) {
            found.push(inner);
        } else if PAIRS.iter().any(|(folder, _)| *folder == part) {
            if entry.is_link() {
                found.push(inner);
                continue;
            }
            let names = PAIRS.iter().filter(|(folder, _)| *folder == part);
            found.extend(names.map(|(_, name)| inner.join(name)));
        }
    }
    found
}

/// The protected files of a folder that is a repository itself, such as the main one of a linked worktree. Paths start
/// at the folder.
pub(crate) fn of_repository(folder: &OpenFolder) -> Vec<PathBuf> {
    if is_repository(folder) {
        let folders = git_folders(folder, PathBuf::new());
        return folders.iter().flat_map(|folder| CONTROL[0].1.iter().map(|name| folder.join(name))).collect();
    }
    at_root(folder)
}

fn is_repository(folder: &OpenFolder) -> bool {
    let kind = |name: &str| folder.stat(name).map(|stat| kind_of(&stat)).ok();
    // Each may be a link.
    kind("HEAD").is_some_and(|kind| kind != FileType::Directory)
        && kind("objects").is_some_and(|kind| matches!(kind, FileType::Directory | FileType::Symlink))
}

/// Folders in a repository that contain no other repository.
const CONTENTS: &[&str] = &["objects", "refs", "logs", "hooks", "info", "lfs", "worktrees"];

/// A repository's own folder, those of its submodules and those of its worktrees. A submodule's name may be a path, and a
/// submodule may have its own; a file that is missing does not end the search, because a command may have removed it.
fn git_folders(root: &OpenFolder, git: PathBuf) -> Vec<PathBuf> {
    let mut open = vec![git.join("modules")];
    let mut found = vec![git];
    while let Some(folder) = open.pop() {
        for (name, path) in real_folders(root, &folder) {
            if !CONTENTS.contains(&name.as_str()) {
                found.push(path.clone());
                open.push(path);
            }
        }
    }
    let trees = found.iter().flat_map(|folder| real_folders(root, &folder.join("worktrees")));
    let trees: Vec<PathBuf> = trees.map(|(_, tree)| tree).collect();
    found.extend(trees);
    found
}

/// The folders in a folder, with their names in lower case. None if there is a link on the way.
fn real_folders(root: &OpenFolder, folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = root.folder(folder).and_then(|folder| folder.entries()).unwrap_or_default();
    let folders = entries.into_iter().filter(FolderEntry::is_folder);
    folders.map(|entry| (entry.folded(), folder.join(&entry.name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_run_programs_are_found_at_the_root() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path();
        for name in
            [".git/hooks", ".git/modules/libs/a/modules/b", ".git/worktrees/t", ".github/workflows", "src"]
        {
            std::fs::create_dir_all(root.join(name)).expect("written");
        }
        for name in [".envrc", "CLAUDE.local.md", "README.md"] {
            std::fs::write(root.join(name), "").expect("written");
        }
        let found = at_root(&OpenFolder::open(root).expect("opened"));
        for name in [
            ".envrc",
            "CLAUDE.local.md",
            ".git/hooks",
            ".git/config",
            ".git/modules/libs/a/config",
            ".git/modules/libs/a/commondir",
            ".git/modules/libs/a/modules/b/hooks",
            ".git/worktrees/t/config.worktree",
            ".git/worktrees/t/commondir",
            ".github/workflows",
            ".github/actions",
        ] {
            assert!(found.contains(&name.into()), "{name}: {found:?}");
        }
        for name in [".git", ".github", "README.md", "src"] {
            assert!(!found.contains(&name.into()), "{name}");
        }
        // The repository of a linked worktree is a folder of its own.
        let git = root.join(".git");
        std::fs::create_dir(git.join("objects")).expect("written");
        std::fs::write(git.join("HEAD"), "").expect("written");
        let of_git = of_repository(&OpenFolder::open(&git).expect("opened"));
        for name in ["config", "modules/libs/a/config", "worktrees/t/commondir"] {
            assert!(of_git.contains(&name.into()), "{name}: {of_git:?}");
        }
    }
}
