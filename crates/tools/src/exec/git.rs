//! git without what a repository's own settings would start.
//!
//! `git status` only reads, but a repository can name programs that git starts meanwhile: a file system monitor, hooks,
//! filters, programs that show differences, check signatures or fetch what is missing. They are switched off through
//! the environment, so the command line stays as it was written.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use super::EnvVars;

/// Settings that name programs, whatever a repository contains. Settings with a variable name in the middle
/// are found by [`harmless`].
pub const GIT_SETTINGS: &[(&str, &str)] = &[
    ("safe.bareRepository", "explicit"),
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.sshCommand", "false"),
    ("core.alternateRefsCommand", "false"),
    ("gpg.program", "false"),
    ("gpg.openpgp.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.x509.program", "false"),
    ("log.showSignature", "false"),
    // A submodule is another repository, with settings that these do not reach.
    ("submodule.recurse", "false"),
    ("diff.ignoreSubmodules", "dirty"),
    ("diff.submodule", "short"),
    ("status.submoduleSummary", "false"),
];

/// Variables that keep git from fetching, and from writing the index by the way.
pub const GIT_VARIABLES: &[(&str, &str)] =
    &[("GIT_OPTIONAL_LOCKS", "0"), ("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none")];

/// Shows a diff in place of a program that the settings name: git has no way to unset such a program.
const PLAIN_DIFF: &str = r#"f() { diff -u -L "a/$1" -L "b/$1" -- "$2" "$5"; :; }; f"#;
/// More programs than this no repository names.
const MAX_NAMES: usize = 500;
/// A longer list of settings is not read.
const MAX_LIST: u64 = 4 << 20;
/// Maximum time to read the settings, whatever files they include.
const LIMIT: Duration = Duration::from_secs(5);

/// Why git cannot be made harmless.
#[derive(Debug, thiserror::Error)]
pub enum GitGuardError {
    /// There is no end of programs.
    #[error("the settings of git name too many programs")]
    TooManyPrograms,
    /// Reading the settings takes too long.
    #[error("git's settings were not read in {} s", LIMIT.as_secs())]
    Slow,
    /// They have too many bytes.
    #[error("git's settings are longer than 4 MiB")]
    TooLong,
    /// They cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
}

/// What makes filters, drivers for differences and submodules harmless, given the names of all settings, each followed
/// by a zero byte.
///
/// # Errors
/// [`GitGuardError::TooManyPrograms`].
pub fn harmless(names: &[u8]) -> Result<BTreeMap<OsString, OsString>, GitGuardError> {
    let mut found = BTreeMap::new();
    for name in names.split(|byte| *byte == 0) {
        let dot = |byte: &u8| *byte == b'.';
        let (Some(first), Some(last)) = (name.iter().position(dot), name.iter().rposition(dot)) else {
            continue;
        };
        let (section, middle, key) = (&name[..first], &name[..last], &name[last + 1..]);
        let is = |word: &[u8], want: &str| word.eq_ignore_ascii_case(want.as_bytes());
        let mut set = |part: &str, value: &str| {
            found.insert(OsString::from_vec([middle, b".", part.as_bytes()].concat()), value.into());
        };
        if is(section, "filter") {
            for part in ["clean", "smudge", "process"] {
                set(part, "");
            }
            set("required", "false");
        } else if is(section, "diff") && (is(key, "command") || is(key, "external")) {
            set(if first == last { "external" } else { "command" }, PLAIN_DIFF);
        } else if is(section, "diff") && is(key, "textconv") {
            set("textconv", "cat");
            set("cachetextconv", "false");
        } else if is(section, "merge") && first != last && is(key, "driver") {
            set("driver", "git merge-file --quiet %A %O %B");
        } else if is(section, "submodule") && first != last {
            set("ignore", "dirty");
        }
    }
    if found.len() > MAX_NAMES {
        return Err(GitGuardError::TooManyPrograms);
    }
    Ok(found)
}

/// Adds settings to those that an environment already hands to git.
fn add_settings(env: &mut EnvVars, settings: impl IntoIterator<Item = (OsString, OsString)>) {
    let count = env.get(OsStr::new("GIT_CONFIG_COUNT")).and_then(|text| text.to_str()?.parse::<usize>().ok());
    let mut at = count.unwrap_or(0);
    for (name, value) in settings {
        env.insert(format!("GIT_CONFIG_KEY_{at}").into(), name);
        env.insert(format!("GIT_CONFIG_VALUE_{at}").into(), value);
        at += 1;
    }
    env.insert("GIT_CONFIG_COUNT".into(), at.to_string().into());
}

/// Makes every git that is started in a folder with this environment read only.
///
/// # Errors
/// [`GitGuardError`]: git must not be started then.
pub async fn guard_git(env: &mut EnvVars, cwd: &Path) -> Result<(), GitGuardError> {
    let own = GIT_SETTINGS.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    add_settings(env, own);
    env.extend(GIT_VARIABLES.iter().map(|(name, value)| ((*name).into(), (*value).into())));
    let names = tokio::time::timeout(LIMIT, names_in(env, cwd)).await;
    let names = names.map_err(|_| GitGuardError::Slow)??;
    add_settings(env, harmless(&names)?);
    Ok(())
}

/// The names of all settings that git would use in a folder, submodules' included.
async fn names_in(env: &EnvVars, cwd: &Path) -> Result<Vec<u8>, GitGuardError> {
    let list = ["config", "-z", "--name-only", "--list"];
    let mut names = ask(env, cwd, &list).await?;
    let top = ask(env, cwd, &["rev-parse", "--show-toplevel"]).await?;
    let Some(top) = top.strip_suffix(b"\n") else { return Ok(names) };
    let file = Path::new(OsStr::from_bytes(top)).join(".gitmodules");
    // If the file is missing, git uses the one it has recorded.
    let source: [&OsStr; 2] = if file.symlink_metadata().is_ok() {
        ["--file".as_ref(), file.as_ref()]
    } else {
        ["--blob".as_ref(), ":.gitmodules".as_ref()]
    };
    names.append(&mut ask(env, cwd, &[list.map(OsStr::new).as_slice(), &source].concat()).await?);
    Ok(names)
}

/// Returns git's output; empty if git fails, as the command then will too.
async fn ask(env: &EnvVars, cwd: &Path, args: &[impl AsRef<OsStr>]) -> Result<Vec<u8>, GitGuardError> {
    let mut command = Command::new("git");
    command.args(args).current_dir(cwd).env_clear().envs(env);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.process_group(0).kill_on_drop(true);
    let Ok(mut child) = command.spawn() else { return Ok(Vec::new()) };
    let mut out = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_LIST + 1).read_to_end(&mut out).await?;
    }
    if out.len() as u64 > MAX_LIST {
        return Err(GitGuardError::TooLong);
    }
    child.wait().await?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository whose settings name a program in every way that a reading command would start it.
    fn hostile(dir: &Path) -> EnvVars {
        let env: EnvVars = [("PATH", std::env::var("PATH").unwrap()), ("HOME", dir.display().to_string())]
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let git = |at: &Path, args: &[&str]| {
            let status = std::process::Command::new("git")
                .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"])
                .args(args)
                .current_dir(at)
                .env_clear()
                .envs(&env)
                .stderr(Stdio::null())
                .stdout(Stdio::null())
                .status();
            assert!(status.unwrap().success(), "{args:?}");
        };
        let (sub, root) = (dir.join("sub"), dir.join("root"));
        for folder in [&sub, &root] {
            std::fs::create_dir(folder).unwrap();
            git(folder, &["init", "-q"]);
            std::fs::write(folder.join("a.txt"), "one\n").unwrap();
            std::fs::write(folder.join(".gitattributes"), "*.txt diff=odd filter=odd\n*.x diff=conv\n")
                .unwrap();
            std::fs::write(folder.join("b.x"), "one\n").unwrap();
            git(folder, &["add", "."]);
            git(folder, &["commit", "-qm", "first"]);
        }
        git(&root, &["submodule", "--quiet", "add", "../sub", "module"]);
        git(&root, &["commit", "-qm", "second"]);
        let pwn = |name: &str| format!("touch '{}/pwn-{name}'; cat", dir.display());
        for folder in [root.join("module"), root.clone()] {
            for (name, value) in [
                ("core.fsmonitor", pwn("fsmonitor")),
                ("core.hooksPath", dir.join("hooks").display().to_string()),
                ("diff.odd.command", pwn("command")),
                ("diff.conv.textconv", pwn("textconv")),
                ("diff.external", pwn("external")),
                ("filter.odd.clean", pwn("clean")),
                ("filter.odd.process", pwn("process")),
                ("gpg.program", dir.join("hooks/gpg").display().to_string()),
                ("submodule.module.ignore", "none".to_owned()),
            ] {
                git(&folder, &["config", name, &value]);
            }
            std::fs::write(folder.join("a.txt"), "two\n").unwrap();
            std::fs::write(folder.join("b.x"), "two\n").unwrap();
        }
        std::fs::create_dir(dir.join("hooks")).unwrap();
        for hook in ["post-index-change", "gpg"] {
            let file = dir.join("hooks").join(hook);
            std::fs::write(&file, format!("#!/bin/sh\n{}\n", pwn(hook))).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&file, mode).unwrap();
        }
        env
    }

    fn pwned(dir: &Path) -> Vec<String> {
        let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.starts_with("pwn")).collect()
    }

    fn run(env: &EnvVars, cwd: &Path, line: &str) -> String {
        let output = std::process::Command::new("sh")
            .args(["-c", line])
            .current_dir(cwd)
            .env_clear()
            .envs(env)
            .output()
            .unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    #[tokio::test]
    async fn repository_settings_start_nothing_and_git_still_works() {
        let dir = tempfile::tempdir().unwrap();
        let plain = hostile(dir.path());
        let root = dir.path().join("root");
        let lines =
            ["git status", "git diff", "git log -p --format='%h %G?'", "git blame a.txt", "git show HEAD~1"];
        for line in lines {
            run(&plain, &root, line);
        }
        assert!(!pwned(dir.path()).is_empty(), "the repository does what it should not");
        for name in pwned(dir.path()) {
            std::fs::remove_file(dir.path().join(name)).unwrap();
        }
        let mut env = plain.clone();
        guard_git(&mut env, &root).await.unwrap();
        let output: Vec<String> = lines.iter().map(|line| run(&env, &root, line)).collect();
        assert_eq!(pwned(dir.path()), Vec::<String>::new());
        assert!(output[0].contains("modified:   a.txt") && output[0].contains("b.x"), "{}", output[0]);
        assert!(output[1].matches("+two").count() == 2, "{}", output[1]);
        assert!(output[2].contains("+one"), "{}", output[2]);
        assert!(output[3].contains("two"), "{}", output[3]);
        // Without the file, git takes the recorded one.
        std::fs::remove_file(root.join(".gitmodules")).unwrap();
        let mut env = plain.clone();
        guard_git(&mut env, &root).await.unwrap();
        run(&env, &root, "git status && git diff");
        assert_eq!(pwned(dir.path()), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_nested_bare_repository_is_not_used_and_given_settings_stay() {
        let dir = tempfile::tempdir().unwrap();
        let env: EnvVars = [
            ("PATH", std::env::var("PATH").unwrap()),
            ("HOME", dir.path().display().to_string()),
            ("GIT_CONFIG_COUNT", "1".into()),
            ("GIT_CONFIG_KEY_0", "user.name".into()),
            ("GIT_CONFIG_VALUE_0", "Ada".into()),
        ]
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
        run(&env, dir.path(), "git init -q --bare .");
        assert!(run(&env, dir.path(), "git log 2>&1").contains("does not have any commits"));
        let mut guarded = env;
        guard_git(&mut guarded, dir.path()).await.unwrap();
        let output = run(&guarded, dir.path(), "git log 2>&1; git config user.name");
        assert!(output.contains("bareRepository") && output.contains("Ada"), "{output}");
    }

    #[test]
    fn names_with_any_bytes_are_read() {
        let names = b"filter.a.b.clean\0FILTER.x.required\0diff.external\0diff.\xff.command\0submodule.s.url\0core.bare\0odd\0";
        let found = harmless(names).unwrap();
        let keys: Vec<String> = found.keys().map(|key| key.to_string_lossy().into_owned()).collect();
        assert!(
            keys.contains(&"filter.a.b.clean".to_owned()) && keys.contains(&"FILTER.x.process".to_owned())
        );
        assert!(
            keys.contains(&"submodule.s.ignore".to_owned()) && keys.contains(&"diff.external".to_owned())
        );
        assert!(found.contains_key(OsStr::from_bytes(b"diff.\xff.command")));
        let many: Vec<u8> = (0..200).flat_map(|i| format!("filter.f{i}.clean\0").into_bytes()).collect();
        assert!(harmless(&many).is_err());
    }
}
