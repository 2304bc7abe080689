//! Git commands that cannot succeed in the sandbox. Those that replace files of the work tree: git is asked what they
//! would change before they run, because the sandbox keeps protected files as they are, and a checkout that stops
//! halfway helps nobody. Those that sign: the sandbox hides the keys.

use super::evaluate::{AskKind, CallSubject, PreparedCall, Verdict, VerdictKind, excerpt};
use super::protected::protected_name;
use super::repository::NamesInHistory;
use async_trait::async_trait;
use aye_core::contract::judgement::Profile;
use aye_pattern::shell::{Simple, canonical};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files that a git command would change, as far as its words show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitChange {
    /// Words that may be revisions: files that differ between them and `HEAD`.
    pub revisions: Vec<String>,
    /// Files that differ from `HEAD`.
    pub dirty: bool,
    /// Whether the files are unknown: every tracked file may change.
    pub any: bool,
}

/// Answers questions about repositories by running git.
#[async_trait]
pub trait AskGit: Send + Sync {
    /// Names the files that a change affects, relative to the root of the workspace's repository. Files that
    /// git does not report are not named.
    async fn changed(&self, change: GitChange) -> Vec<String>;

    /// Names every file that a commit of the repository with this root contains: of all references, their logs and the
    /// stash, and of a commit that one of the words names although no reference leads to it. `None` when git does not
    /// say so soon, or when a word is the hash of another object: git prints it, but cannot say which file it was.
    async fn names_in_history(&self, root: &Path, words: &[String]) -> Option<Arc<NamesInHistory>>;

    /// Returns whether git signs by itself what it makes: whether its settings turn on this one, which is
    /// `commit.gpgsign` or `tag.gpgsign`.
    async fn signs(&self, _setting: &str) -> bool {
        false
    }
}

/// Whether a command signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signing {
    /// Its words say so.
    Asked,
    /// If this setting is on.
    If(&'static str),
}

/// Returns whether a command makes commits or tags that may be signed.
fn signing_of(command: &Simple) -> Option<Signing> {
    const COMMITS: &str = "commit.gpgsign";
    const TAGS: &str = "tag.gpgsign";
    let words = command.spellings().pop()?;
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let ["git", sub, rest @ ..] = texts.as_slice() else { return None };
    let setting = match *sub {
        "commit" | "merge" | "rebase" | "cherry-pick" | "revert" | "am" | "pull" => COMMITS,
        "tag" => TAGS,
        _ => return None,
    };
    let all: Vec<String> = command.texts().iter().map(|text| text.to_ascii_lowercase()).collect();
    let is_set = |value: &str| all.iter().any(|text| *text == format!("{setting}={value}"));
    // The letters after one that takes a value are that value.
    let is_short = |word: &str, sign: char, valued: &str| {
        let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
        letters.chars().take_while(|letter| !valued.contains(*letter)).find(|letter| *letter == sign)
    };
    let options = || rest.iter().take_while(|word| **word != "--");
    let has = |names: &[&str]| options().any(|word| names.contains(&word.split('=').next().unwrap_or(word)));
    if has(&["--no-gpg-sign", "--no-sign", "--abort", "--quit"]) || is_set("false") {
        return None;
    }
    let is_asked = match *sub {
        "tag" => {
            let lists = ["-l", "--list", "-d", "--delete", "-v", "--verify", "-n", "--contains"];
            if has(&lists) || !options().any(|word| !word.starts_with('-')) {
                return None;
            }
            has(&["--sign", "--local-user"])
                || options().any(|word| is_short(word, 's', "mFnu").is_some())
                || options().any(|word| is_short(word, 'u', "mFn").is_some())
        }
        _ => has(&["--gpg-sign"]) || options().any(|word| is_short(word, 'S', "mFCctuXs").is_some()),
    };
    Some(if is_asked || is_set("true") { Signing::Asked } else { Signing::If(setting) })
}

/// The change that a command makes to the work tree.
fn change_of(command: &Simple) -> Option<GitChange> {
    let words = command.spellings().pop()?;
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let ["git", sub, rest @ ..] = texts.as_slice() else { return None };
    let named = |rest: &[&str]| {
        let before = rest.iter().take_while(|word| **word != "--");
        let words = before.filter_map(|word| match *word {
            "-" => Some("@{-1}"),
            option if option.starts_with('-') => option.split_once('=').map(|(_, value)| value),
            word => Some(word),
        });
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let has = |wanted: &[&str]| rest.iter().any(|word| wanted.contains(word));
    Some(match *sub {
        "pull" => GitChange { any: true, ..GitChange::default() },
        "stash" => match rest.first().copied() {
            Some("pop" | "apply" | "branch") => {
                let stash =
                    rest.iter().skip(1).find(|word| word.contains("stash@") || word.parse::<u8>().is_ok());
                let revision = match stash {
                    Some(number) if number.parse::<u8>().is_ok() => format!("stash@{{{number}}}"),
                    Some(stash) => (*stash).to_owned(),
                    None => "stash@{0}".to_owned(),
                };
                GitChange { revisions: vec![revision], ..GitChange::default() }
            }
            Some("list" | "show" | "drop" | "clear" | "create" | "store") => return None,
            _ => GitChange { dirty: true, ..GitChange::default() },
        },
        "checkout" => {
            GitChange { revisions: named(rest), dirty: has(&["--", ".", "-f", "--force"]), any: false }
        }
        "restore" => GitChange { revisions: named(rest), dirty: true, any: false },
        "reset" => GitChange { revisions: named(rest), dirty: has(&["--hard", "--merge"]), any: false },
        // What is left of the commits is between here and where it started.
        "rebase" | "merge" if has(&["--continue", "--skip", "--abort", "--quit"]) => {
            GitChange { revisions: vec!["ORIG_HEAD".to_owned()], dirty: true, any: false }
        }
        // Without another name, the branch that this one follows. The word after an option may not be a name.
        "rebase" | "merge" => {
            let mut revisions = named(rest);
            if revisions.is_empty() || has(&["-X", "-s", "-m", "-x", "--exec"]) {
                revisions.push("@{upstream}".to_owned());
            }
            GitChange { revisions, dirty: false, any: false }
        }
        "switch" | "cherry-pick" | "revert" => GitChange {
            revisions: named(rest),
            dirty: has(&["-f", "--force", "--discard-changes"]),
            any: false,
        },
        _ => return None,
    })
}

/// The verdict when git says that the line would change a protected file, or would sign with keys that are hidden.
pub(super) async fn with_protected(
    git: Option<&dyn AskGit>,
    call: &PreparedCall<'_>,
    verdict: Verdict,
) -> Verdict {
    let asks = matches!(verdict.decision, VerdictKind::Allow | VerdictKind::Ask(_));
    let (Some(git), CallSubject::Shell(analysis)) = (git, &call.subject) else { return verdict };
    if !asks || verdict.profile != Some(Profile::Workspace) {
        return verdict;
    }
    for command in &analysis.commands {
        let Some(why) = why_outside(git, command).await else { continue };
        let kind = match verdict.decision {
            VerdictKind::Ask(kind) if kind != AskKind::Default => kind,
            _ => AskKind::Protected,
        };
        let why = format!("`{}` {why}, so it has to run outside", excerpt(&canonical(&command.texts())));
        let decision = VerdictKind::Ask(kind);
        return Verdict { decision, why, profile: Some(Profile::Outside), grants: Vec::new(), ..verdict };
    }
    verdict
}

/// Returns why a command fails in the sandbox, if git says so.
async fn why_outside(git: &dyn AskGit, command: &Simple) -> Option<String> {
    let signs = match signing_of(command) {
        Some(Signing::Asked) => Some("signs".to_owned()),
        Some(Signing::If(setting)) if git.signs(setting).await => Some(format!("signs ({setting})")),
        Some(Signing::If(_)) | None => None,
    };
    if let Some(signs) = signs {
        return Some(format!("{signs}, and the sandbox hides the keys"));
    }
    let names = git.changed(change_of(command)?).await;
    let name = names.iter().find(|name| protected_name(Path::new(name)).is_some())?;
    let name = excerpt(&PathBuf::from(name).to_string_lossy());
    Some(format!("would change {name}, which the sandbox protects"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aye_pattern::shell::analyse;

    #[test]
    fn commands_that_may_sign_are_recognised() {
        let commits = Some(Signing::If("commit.gpgsign"));
        let tags = Some(Signing::If("tag.gpgsign"));
        for (line, signing) in [
            ("git commit -m x", commits),
            ("git -C . commit -am 'Sign it'", commits),
            ("git commit -mS", commits),
            ("git commit -S -m x", Some(Signing::Asked)),
            ("git commit -aSm x", Some(Signing::Asked)),
            ("git commit --gpg-sign=key -m x", Some(Signing::Asked)),
            ("git -c commit.gpgSign=true commit -m x", Some(Signing::Asked)),
            ("git commit --no-gpg-sign -m x", None),
            ("git -c commit.gpgsign=false commit -m x", None),
            ("git commit -m x -- -S", commits),
            ("git rebase main", commits),
            ("git rebase --abort", None),
            ("git tag v1", tags),
            ("git tag -s v1 -m x", Some(Signing::Asked)),
            ("git tag -u key v1", Some(Signing::Asked)),
            ("git tag", None),
            ("git tag -l 'v*'", None),
            ("git log -S x", None),
            ("git status", None),
        ] {
            assert_eq!(signing_of(&analyse(line).commands[0]), signing, "{line}");
        }
    }

    #[test]
    fn commands_that_change_the_work_tree_are_recognised() {
        let of = |line: &str| change_of(&analyse(line).commands[0]);
        let change = |revisions: &[&str], dirty: bool| {
            let revisions = revisions.iter().map(|text| (*text).to_owned()).collect();
            Some(GitChange { revisions, dirty, any: false })
        };
        assert_eq!(of("git checkout dev"), change(&["dev"], false));
        assert_eq!(of("git -C . checkout -q dev"), change(&["dev"], false));
        assert_eq!(of("git checkout -"), change(&["@{-1}"], false));
        assert_eq!(of("git checkout HEAD~1 -- AGENTS.md"), change(&["HEAD~1"], true));
        assert_eq!(of("git restore --source=v1 ."), change(&["v1", "."], true));
        assert_eq!(of("git rebase --onto main a b"), change(&["main", "a", "b"], false));
        assert_eq!(of("git rebase -q"), change(&["@{upstream}"], false));
        assert_eq!(of("git merge"), change(&["@{upstream}"], false));
        assert_eq!(of("git rebase -X theirs"), change(&["theirs", "@{upstream}"], false));
        assert_eq!(of("git rebase --continue"), change(&["ORIG_HEAD"], true));
        assert_eq!(of("git stash"), change(&[], true));
        assert_eq!(of("git stash pop"), change(&["stash@{0}"], false));
        assert_eq!(of("git stash apply 2"), change(&["stash@{2}"], false));
        assert_eq!(of("git reset --hard v1"), change(&["v1"], true));
        assert_eq!(of("git pull --rebase").map(|change| change.any), Some(true));
        for line in ["git stash list", "git status", "git commit -m checkout", "ls checkout"] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
