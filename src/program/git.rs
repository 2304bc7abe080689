//! The differences between a folder and the last commit of its repository: staged, unstaged, untracked.
//!
//! A repository can make git run anything: hooks, filters, a file system monitor, helpers that fetch missing objects,
//! a diff program. So git only lists which files may differ and their committed content, with all of that disabled;
//! their current content is read here, without following links.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, readlinkat, statat};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use crate::contract::snapshot::{ChangedFile, Changes, FileChange, FileChangeKind};
use crate::contract::tool::FilePreview;
use crate::failure::AppError;
use crate::plugins::permission::{AskGit, GitChange, NamesInHistory};
use crate::program::foundation::Foundation;
use crate::tools::exec::{GIT_SETTINGS, GIT_VARIABLES, GitGuardError, harmless};

/// The maximum time for everything.
const LIMIT: Duration = Duration::from_secs(20);
/// The maximum time that git may delay the start of a command.
const QUICK_LIMIT: Duration = Duration::from_secs(3);
/// The maximum time for listing a repository's history.
const HISTORY_LIMIT: Duration = Duration::from_mins(10);
/// The maximum bytes of a list of files.
const MAX_LIST: usize = 16 << 20;
/// The maximum bytes of git's error output kept.
const MAX_WORDS: usize = 4 << 10;
/// The maximum size of a file that is shown.
const MAX_TEXT: usize = 1 << 20;
/// The maximum size of all texts together.
const MAX_ALL: usize = 48 << 20;
/// The maximum number of files shown.
const SHOWN: usize = 200;
/// The maximum number of candidates compared: a file whose time changed may be unchanged.
const MAX_COMPARED: usize = 5_000;

/// Git, in one folder.
#[derive(Clone)]
pub(crate) struct HarmlessGit {
    program: PathBuf,
    root: PathBuf,
    env: BTreeMap<OsString, OsString>,
    settings: Vec<(OsString, OsString)>,
}

/// Why git did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    /// No folder of PATH outside the project contains git.
    #[error("git is not in PATH")]
    NotFound,
    /// It cannot be started.
    #[error("git did not start: {0}")]
    NotStarted(std::io::Error),
    /// It took too long.
    #[error("git was stopped after {} s", LIMIT.as_secs())]
    Slow,
    /// It wrote more bytes than this.
    #[error("git wrote more than {} MiB", .0 >> 20)]
    TooMuch(usize),
    /// It reports another root folder.
    #[error("git reports another root folder")]
    OtherRoot,
    /// It failed with these words.
    #[error("{0}")]
    Failed(String),
    /// A hash is not that of a commit, or the beginning of several.
    #[error("git has no commit of that name: {0}")]
    NotACommit(String),
    /// Its settings cannot be made harmless.
    #[error(transparent)]
    Guard(#[from] GitGuardError),
    /// What it writes cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Panicked(#[from] tokio::task::JoinError),
}

impl From<GitError> for AppError {
    fn from(error: GitError) -> Self {
        Self::Git(error.into())
    }
}

/// The output of git, and whether it succeeded.
pub(crate) struct GitOutput {
    pub(crate) is_ok: bool,
    out: Vec<u8>,
    words: String,
}

impl HarmlessGit {
    pub(crate) fn of(foundation: &Foundation) -> Result<HarmlessGit, GitError> {
        let mut env = crate::program::parts::tool_env(foundation).child_env(None::<(&str, &str)>);
        let path = env.get(OsStr::new("PATH")).cloned().unwrap_or_default();
        // A project folder in PATH could run a program like a hook.
        let program = std::env::split_paths(&path)
            .filter(|dir| dir.is_absolute() && !dir.starts_with(&foundation.workspace.root))
            .map(|dir| dir.join("git"))
            .find(|path| path.is_file())
            .ok_or(GitError::NotFound)?;
        env.retain(|name, _| !name.as_bytes().starts_with(b"GIT_"));
        let own = [
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_PAGER", "cat"),
            ("LC_ALL", "C"),
        ];
        for (name, value) in GIT_VARIABLES.iter().chain(&own) {
            env.insert(name.into(), value.into());
        }
        let settings = GIT_SETTINGS.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Ok(HarmlessGit { program, root: foundation.workspace.root.clone(), env, settings })
    }

    pub(crate) async fn ask(&self, args: &[&str], input: &[u8], most: usize) -> Result<GitOutput, GitError> {
        let mut command = Command::new(&self.program);
        command.arg("--no-pager").args(args).current_dir(&self.root);
        command.env_clear().envs(&self.env).env("GIT_CONFIG_COUNT", self.settings.len().to_string());
        for (at, (name, value)) in self.settings.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{at}"), name).env(format!("GIT_CONFIG_VALUE_{at}"), value);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(GitError::NotStarted)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let Some(mut stdin) = stdin {
                // Git may exit before it has read everything.
                let _ = stdin.write_all(input).await;
            }
        };
        let read = async {
            let mut out = Vec::new();
            if let Some(stdout) = stdout {
                stdout.take(most as u64 + 1).read_to_end(&mut out).await?;
            }
            Ok::<_, std::io::Error>(out)
        };
        let report_failure = async {
            let mut words = Vec::new();
            if let Some(stderr) = stderr {
                let _ = stderr.take(MAX_WORDS as u64).read_to_end(&mut words).await;
            }
            String::from_utf8_lossy(&words).into_owned()
        };
        let ((), out, words) = tokio::join!(write, read, report_failure);
        let out = out?;
        if out.len() > most {
            return Err(GitError::TooMuch(most));
        }
        let status = child.wait().await?;
        Ok(GitOutput { is_ok: status.success(), out, words })
    }

    /// Does the same, and treats anything but success as an error.
    pub(crate) async fn list(&self, args: &[&str], input: &[u8], most: usize) -> Result<Vec<u8>, GitError> {
        let output = self.ask(args, input, most).await?;
        if output.is_ok { Ok(output.out) } else { Err(GitError::Failed(why(&output.words))) }
    }

    /// Runs a command that changes the repository, with the same precautions.
    pub(crate) async fn change(&self, args: &[&str]) -> Result<(), GitError> {
        self.list(args, b"", MAX_LIST).await.map(drop)
    }

    /// Disables filters of any name.
    pub(crate) async fn without_filters(&mut self) -> Result<(), GitError> {
        let output = self.ask(&["config", "-z", "--name-only", "--list"], b"", MAX_LIST).await?;
        self.settings.extend(harmless(&output.out)?);
        Ok(())
    }
}

/// Answers what the permission plugin asks of git.
pub(crate) struct GitQuestions {
    git: Arc<HarmlessGit>,
    /// By the root of the repository.
    histories: Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<KnownHistory>>>>,
}

/// The files in the commits of a repository, as far as git has listed them.
#[derive(Default)]
struct KnownHistory {
    /// The commits that were listed together with their ancestors.
    tips: BTreeSet<String>,
    names: Arc<NamesInHistory>,
}

impl GitQuestions {
    /// Returns no files without git.
    pub(crate) fn of(foundation: &Foundation) -> Option<GitQuestions> {
        let git = Arc::new(HarmlessGit::of(foundation).ok()?);
        Some(GitQuestions { git, histories: Mutex::default() })
    }
}

#[async_trait]
impl AskGit for GitQuestions {
    async fn changed(&self, change: GitChange) -> Vec<String> {
        tokio::time::timeout(QUICK_LIMIT, self.git.changed(change)).await.unwrap_or_default()
    }

    async fn signs(&self, setting: &str) -> bool {
        let question = ["config", "--type=bool", "--get", setting];
        let asked = self.git.ask(&question, b"", MAX_WORDS);
        matches!(tokio::time::timeout(QUICK_LIMIT, asked).await, Ok(Ok(output)) if output.out.trim_ascii() == b"true")
    }

    async fn names_in_history(&self, root: &Path, words: &[String]) -> Option<Arc<NamesInHistory>> {
        let known = {
            let mut histories = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(histories.entry(root.to_owned()).or_default())
        };
        let git = self.git.in_folder(root);
        let named = objects_in(words);
        // The rest of a long history is listed for the next question.
        let listing = tokio::spawn(async move {
            let mut known = known.lock().await;
            tokio::time::timeout(HISTORY_LIMIT, git.list_history(&mut known, &named)).await.ok()?.ok()?;
            Some(Arc::clone(&known.names))
        });
        tokio::time::timeout(QUICK_LIMIT, listing).await.ok()?.ok()?
    }
}

impl HarmlessGit {
    /// The same git in another folder.
    pub(crate) fn in_folder(&self, root: &Path) -> HarmlessGit {
        HarmlessGit { root: root.to_owned(), ..self.clone() }
    }

    /// Adds the files of commits that were not listed yet: of those that a reference leads to, and of those with these
    /// names.
    ///
    /// # Errors
    /// [`GitError::NotACommit`] when a name is that of another object.
    async fn list_history(&self, known: &mut KnownHistory, named: &BTreeSet<String>) -> Result<(), GitError> {
        let top = self.ask(&["rev-parse", "--show-toplevel"], b"", MAX_WORDS).await?;
        if !top.is_ok && top.words.contains("not a git repository") {
            return Ok(());
        }
        // The names are relative to the folder that git takes for the root.
        if Path::new(OsStr::from_bytes(top.out.trim_ascii_end())) != self.root {
            return Err(GitError::OtherRoot);
        }
        let all = ["rev-list", "--no-walk=unsorted", "--all", "--reflog"];
        let head = self.ask(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], b"", MAX_WORDS).await?;
        let listed = self.list(&all, b"", MAX_LIST).await?;
        let text = String::from_utf8_lossy(&listed).into_owned() + &String::from_utf8_lossy(&head.out);
        let mut tips: BTreeSet<String> =
            text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        tips.extend(self.commits_named(named).await?);
        if tips.is_subset(&known.tips) {
            return Ok(());
        }
        // A commit that is no longer a tip may no longer exist.
        let was_seen = |tip: &String| if known.tips.contains(tip) { "^" } else { "" };
        let input = tips.iter().map(|tip| format!("{}{tip}", was_seen(tip))).collect::<Vec<_>>().join("\n");
        // A file is added in the first commit that contains it.
        let added = ["log", "--stdin", "-c", "--root", "--no-renames", "--diff-filter=A", "--name-only"];
        let form = ["--format=", "-z", "--no-ext-diff", "--no-textconv"];
        let listed = self.list(&[&added[..], &form].concat(), input.as_bytes(), MAX_LIST).await?;
        let found = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let mut names: BTreeSet<Vec<u8>> = known.names.iter().cloned().collect();
        names.extend(found.map(<[u8]>::to_vec));
        *known = KnownHistory { tips, names: Arc::new(names.into_iter().collect()) };
        Ok(())
    }

    /// The commits among the objects with these names. A name without an object is not one.
    async fn commits_named(&self, named: &BTreeSet<String>) -> Result<Vec<String>, GitError> {
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let input: String = named.iter().flat_map(|name| [name.as_str(), "^{}\n"]).collect();
        let check = ["cat-file", "--batch-check=%(objecttype) %(objectname)"];
        let listed = self.list(&check, input.as_bytes(), MAX_LIST).await?;
        let text = String::from_utf8_lossy(&listed);
        let mut commits = Vec::new();
        for line in text.lines() {
            if let Some(commit) = line.strip_prefix("commit ") {
                commits.push(commit.to_owned());
            } else if !line.ends_with(" missing") {
                return Err(GitError::NotACommit(line.to_owned()));
            }
        }
        Ok(commits)
    }

    async fn changed(&self, change: GitChange) -> Vec<String> {
        let mut questions: Vec<Vec<&str>> = Vec::new();
        if change.any {
            questions.push(vec!["ls-files", "-z", "--full-name", ":/"]);
        }
        let differs =
            ["diff", "--no-ext-diff", "--no-textconv", "--name-only", "-z", "--end-of-options", "HEAD"];
        if change.dirty {
            questions.push([&differs[..], &["--"]].concat());
        }
        for revision in &change.revisions {
            questions.push([&differs[..], &[revision.as_str(), "--"]].concat());
        }
        let mut names = Vec::new();
        for question in questions {
            // A word that is not a revision is the name of a file, or of a branch that is being created.
            let Ok(output) = self.ask(&question, b"", MAX_LIST).await else { continue };
            let found = output.out.split(|byte| *byte == 0).filter(|name| output.is_ok && !name.is_empty());
            names.extend(found.map(|name| String::from_utf8_lossy(name).into_owned()));
        }
        names
    }
}

/// What may name an object of git in the words of a command: hashes, also abbreviated and inside of code, and names
/// such as `FETCH_HEAD`, without what leads from there to another object.
fn objects_in(words: &[String]) -> BTreeSet<String> {
    let is_hash = |text: &str| text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hashes = words.iter().flat_map(|word| word.split(|c: char| !c.is_ascii_alphanumeric()));
    let ends = |c: char| matches!(c, '^' | '~' | ':' | '@') || c.is_whitespace() || c.is_control();
    let names = words.iter().filter(|word| !word.starts_with('-')).flat_map(|word| word.split(".."));
    let names = names.map(|name| name.trim_start_matches(['^', '.']).split(ends).next().unwrap_or_default());
    hashes
        .filter(|text| is_hash(text))
        .chain(names.filter(|name| !name.is_empty()))
        .map(str::to_owned)
        .collect()
}

/// Returns git's first error line.
fn why(words: &str) -> String {
    let line = words.lines().find(|line| !line.trim().is_empty()).unwrap_or("git failed");
    line.trim_start_matches("fatal: ").trim_start_matches("error: ").to_owned()
}

/// The files that may differ, with the id of their committed content if they have any.
type Candidates = BTreeMap<Vec<u8>, Option<String>>;

/// Reads the raw form of a difference: `:modes ids letter NUL path NUL`.
fn read_raw(raw: &[u8], into: &mut Candidates) {
    let mut fields = raw.split(|b| *b == 0);
    while let (Some(head), Some(path)) = (fields.next(), fields.next()) {
        let head = String::from_utf8_lossy(head);
        let mut words = head.trim_start_matches(':').split(' ');
        let (Some(mode), Some(id)) = (words.next(), words.nth(1)) else { continue };
        let was_there = id.bytes().any(|b| b != b'0') && mode != "000000";
        // A path with a conflict is listed twice.
        let known = into.entry(path.to_vec()).or_default();
        if was_there && known.is_none() {
            *known = Some(id.to_owned());
        }
    }
}

/// The first commit of the repository: the same wherever it is. `None` where git cannot say.
pub(crate) async fn first_commit(foundation: &Foundation) -> Option<String> {
    let git = HarmlessGit::of(foundation).ok()?;
    let args = ["rev-list", "--max-parents=0", "HEAD"];
    let roots = tokio::time::timeout(LIMIT, git.list(&args, b"", MAX_WORDS)).await.ok()?.ok()?;
    let roots = String::from_utf8_lossy(&roots).into_owned();
    // Merged histories have several.
    roots.lines().map(str::trim).filter(|line| !line.is_empty()).min().map(str::to_owned)
}

/// Returns the differences from the last commit, in files whose path contains `wanted`.
pub(crate) async fn changes(foundation: &Foundation, wanted: &str) -> Result<Changes, GitError> {
    let found = tokio::time::timeout(LIMIT, find(foundation, wanted)).await;
    found.map_err(|_| GitError::Slow)?
}

async fn find(foundation: &Foundation, wanted: &str) -> Result<Changes, GitError> {
    let mut git = HarmlessGit::of(foundation)?;
    git.list(&["rev-parse", "--show-prefix"], b"", MAX_WORDS).await?;
    git.without_filters().await?;
    let head = git.ask(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], b"", MAX_WORDS).await?;
    let mut notes = Vec::new();
    let commit = if head.is_ok {
        String::from_utf8_lossy(&head.out).trim().to_owned()
    } else {
        notes.push("no commit yet".to_owned());
        let none = git.list(&["hash-object", "-t", "tree", "--stdin"], b"", MAX_WORDS).await?;
        String::from_utf8_lossy(&none).trim().to_owned()
    };
    if head.is_ok {
        let at = crate::runtime::head_of(&git.root).unwrap_or_else(|| commit.chars().take(8).collect());
        notes.push(format!("compared with git: {at}; staged, unstaged and untracked files"));
    }
    let mut files = Candidates::new();
    let raw = ["diff-index", "--raw", "-z", "--no-renames", "--no-ext-diff", "--no-textconv"];
    let raw = [&raw[..], &["--no-abbrev", "--ignore-submodules=dirty", "--relative", &commit, "--"]].concat();
    read_raw(&git.list(&raw, b"", MAX_LIST).await?, &mut files);
    let unknown = git.list(&["ls-files", "-z", "--others", "--exclude-standard"], b"", MAX_LIST).await?;
    for path in unknown.split(|b| *b == 0).filter(|path| !path.is_empty()) {
        files.entry(path.to_vec()).or_default();
    }
    files.retain(|path, _| String::from_utf8_lossy(path).contains(wanted));
    let before = texts(&git, files.values().flatten().take(MAX_COMPARED)).await?;
    let root = git.root;
    Ok(tokio::task::spawn_blocking(move || compare(&root, files, &before, notes)).await?)
}

/// Returns the committed contents of files by id; `None` for one that is not text or too long to show.
async fn texts(
    git: &HarmlessGit,
    ids: impl Iterator<Item = &String>,
) -> Result<BTreeMap<String, Option<Vec<u8>>>, GitError> {
    let mut list: Vec<&str> = ids.map(String::as_str).collect();
    list.sort_unstable();
    list.dedup();
    if list.is_empty() {
        return Ok(BTreeMap::new());
    }
    let sizes = git.list(&["cat-file", "--batch-check"], list.join("\n").as_bytes(), MAX_LIST).await?;
    let (mut found, mut short, mut all) = (BTreeMap::new(), Vec::new(), 0);
    for line in String::from_utf8_lossy(&sizes).lines() {
        let mut words = line.split(' ');
        let (Some(id), kind, size) = (words.next(), words.next(), words.next()) else { continue };
        let size = size.and_then(|size| size.parse::<usize>().ok()).unwrap_or(usize::MAX);
        if kind == Some("blob") && size <= MAX_TEXT && all + size <= MAX_ALL {
            all += size;
            short.push(id.to_owned());
        } else {
            found.insert(id.to_owned(), None);
        }
    }
    let most = MAX_ALL + MAX_LIST;
    let mut rest = &git.list(&["cat-file", "--batch"], short.join("\n").as_bytes(), most).await?[..];
    while let Some(end) = rest.iter().position(|b| *b == b'\n') {
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        let mut words = head.split(' ');
        let (Some(id), Some(size)) = (words.next(), words.nth(1)) else { break };
        let Some(size) = size.parse::<usize>().ok() else { break };
        let Some(bytes) = rest.get(end + 1..end + 1 + size) else { break };
        found.insert(id.to_owned(), Some(bytes.to_vec()));
        rest = rest.get(end + 2 + size..).unwrap_or_default();
    }
    Ok(found)
}

/// The content of a file.
#[derive(Debug, PartialEq)]
enum Found {
    /// The file does not exist.
    Nothing,
    Bytes(Vec<u8>),
    /// Something else, or too long.
    Other,
}

/// Reads a file below a folder, or the target of a link. Links in its path are not followed.
fn read(root: &Path, path: &[u8]) -> Found {
    let path = Path::new(OsStr::from_bytes(path));
    let mut parts: Vec<&OsStr> = Vec::new();
    for part in path.components() {
        let Component::Normal(part) = part else { return Found::Other };
        parts.push(part);
    }
    let Some(name) = parts.pop() else { return Found::Other };
    let folder = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    let open = || {
        let mut at = rustix::fs::open(root, folder, Mode::empty())?;
        for part in parts {
            at = openat(&at, part, folder | OFlags::NOFOLLOW, Mode::empty())?;
        }
        Ok::<_, rustix::io::Errno>(at)
    };
    let Ok(at) = open() else { return Found::Nothing };
    let Ok(about) = statat(&at, name, AtFlags::SYMLINK_NOFOLLOW) else { return Found::Nothing };
    match FileType::from_raw_mode(about.st_mode) {
        FileType::Symlink => match readlinkat(&at, name, Vec::new()) {
            Ok(to) => Found::Bytes(to.into_bytes()),
            Err(_) => Found::Other,
        },
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let Ok(file) = openat(&at, name, flags, Mode::empty()) else { return Found::Other };
            let file = std::fs::File::from(file);
            if !file.metadata().is_ok_and(|about| about.is_file()) {
                return Found::Other;
            }
            let mut bytes = Vec::new();
            match file.take(MAX_TEXT as u64 + 1).read_to_end(&mut bytes) {
                Ok(read) if read <= MAX_TEXT => Found::Bytes(bytes),
                Ok(_) | Err(_) => Found::Other,
            }
        }
        _ => Found::Other,
    }
}

fn text(bytes: Option<&[u8]>) -> Option<String> {
    let bytes = bytes.unwrap_or_default();
    if bytes.contains(&0) { None } else { String::from_utf8(bytes.to_vec()).ok() }
}

/// Returns the files that actually differ.
fn compare(
    root: &Path,
    files: Candidates,
    before: &BTreeMap<String, Option<Vec<u8>>>,
    notes: Vec<String>,
) -> Changes {
    let mut changes = Changes { notes, ..Changes::default() };
    let (mut compared, mut all) = (0, 0);
    for (path, id) in files {
        compared += 1;
        if changes.files.len() >= SHOWN || compared > MAX_COMPARED || all > MAX_ALL {
            changes.more += 1;
            continue;
        }
        let old = id.as_ref().map(|id| before.get(id).and_then(Option::as_deref));
        let now = read(root, &path);
        let new = match &now {
            Found::Bytes(bytes) => Some(bytes.as_slice()),
            Found::Nothing | Found::Other => None,
        };
        let is_same = match (&old, &now) {
            (None, Found::Nothing) => true,
            (Some(Some(old)), Found::Bytes(new)) => {
                without_returns(old).eq(without_returns(new)) && {
                    // A file checked out with other line endings than it was committed with is the same.
                    old == new || old.contains(&b'\r') != new.contains(&b'\r')
                }
            }
            _ => false,
        };
        if is_same {
            continue;
        }
        let change = match (&old, &now) {
            (None, _) => FileChangeKind::Created,
            (Some(_), Found::Nothing) => FileChangeKind::Deleted,
            (Some(_), Found::Bytes(_) | Found::Other) => FileChangeKind::Changed,
        };
        // If one side is too long, neither is shown.
        let is_short = old != Some(None) && now != Found::Other;
        let texts = is_short.then(|| text(old.flatten()).zip(text(new))).flatten();
        all += texts.as_ref().map_or(0, |(old, new)| old.len() + new.len());
        let preview = texts.map(|(old_text, new_text)| FilePreview {
            path: root.join(Path::new(OsStr::from_bytes(&path))),
            before: None,
            after: String::new(),
            old_text: Some(old_text),
            new_text: Some(new_text),
        });
        let shown = String::from_utf8_lossy(&path).into_owned();
        changes.files.push(FileChange {
            about: ChangedFile { path: shown, change, added: None, removed: None },
            preview,
        });
    }
    changes
}

fn without_returns(bytes: &[u8]) -> impl Iterator<Item = &u8> {
    bytes.iter().filter(|byte| **byte != b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_raw_format_is_parsed_with_any_names() {
        let mut files = Candidates::new();
        let raw = b":100644 100644 1111 0000 M\0a\nb \xff.txt\0:000000 100644 0000 0000 A\0new\0\
                    :100644 000000 2222 0000 U\0c\0:100644 100644 3333 0000 M\0c\0:bad\0";
        read_raw(raw, &mut files);
        assert_eq!(files.get(&b"a\nb \xff.txt"[..]), Some(&Some("1111".to_owned())));
        assert_eq!(files.get(&b"new"[..]), Some(&None));
        assert_eq!(files.get(&b"c"[..]), Some(&Some("2222".to_owned())));
    }

    #[tokio::test]
    async fn files_of_older_commits_are_cached_and_only_new_commits_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let env = BTreeMap::from([
            ("PATH".into(), std::env::var_os("PATH").unwrap()),
            ("HOME".into(), dir.path().into()),
        ]);
        let identity = [("user.name", "a"), ("user.email", "a@b")];
        let settings = identity.map(|(name, value)| (name.into(), value.into())).into();
        let root = dir.path().canonicalize().unwrap();
        let git = HarmlessGit { program: "git".into(), root, env, settings };
        let run = async |words: &str| {
            let words: Vec<&str> = words.split(' ').collect();
            git.list(&words, b"", MAX_LIST).await.unwrap();
        };
        let mut known = KnownHistory::default();
        let names = async |known: &mut KnownHistory| {
            git.list_history(known, &BTreeSet::new()).await.unwrap();
            let names = known.names.iter().map(|name| String::from_utf8_lossy(name).into_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        std::fs::create_dir(dir.path().join(".git")).unwrap();
        assert_eq!(names(&mut known).await, "", "no repository");
        run("init -q -b main").await;
        assert_eq!(names(&mut known).await, "", "no commit");
        let below = HarmlessGit { root: git.root.join("below"), ..git.clone() };
        std::fs::create_dir_all(below.root.join(".git")).unwrap();
        assert!(
            below.list_history(&mut KnownHistory::default(), &BTreeSet::new()).await.is_err(),
            "git looks above"
        );
        std::fs::remove_dir_all(&below.root).unwrap();
        for (name, then) in [(".env", "commit -qm secret"), ("a", "commit -qm a"), ("merged", "stash")] {
            std::fs::write(dir.path().join(name), name).unwrap();
            run("add -f .").await;
            run(then).await;
        }
        run("rm -q .env").await;
        run("commit -qm gone").await;
        run("mv a b").await;
        run("commit -q --amend -m renamed").await;
        assert_eq!(names(&mut known).await, ".env a b merged");
        let tips = known.tips.len();
        std::fs::write(dir.path().join("new"), "").unwrap();
        run("add new").await;
        run("commit -qm new").await;
        // Commits listed before are not listed again.
        known.names = Arc::default();
        assert_eq!((names(&mut known).await.as_str(), known.tips.len()), ("new", tips + 1));
        // No reference leads to it any more.
        std::fs::write(dir.path().join("lost"), "").unwrap();
        run("add lost").await;
        run("commit -qm lost").await;
        let lost = git.list(&["rev-parse", "HEAD"], b"", MAX_LIST).await.unwrap();
        let lost = String::from_utf8(lost).unwrap().trim().to_owned();
        run("reset -q --hard HEAD~1").await;
        run("reflog expire --expire=now --all").await;
        run("update-ref -d ORIG_HEAD").await;
        assert_eq!(names(&mut known).await, "new");
        let asked = async |line: &str| {
            let mut known = KnownHistory::default();
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            git.list_history(&mut known, &objects_in(&words)).await?;
            Ok::<_, GitError>(known.names.contains(&b"lost".to_vec()))
        };
        let short = &lost[..7];
        for line in [
            format!("git show {lost}"),
            format!("git log -p main..{short}"),
            format!("git diff {short}^ main"),
            format!("git grep KEY {short}~0"),
            format!("awk BEGIN{{system(\"git show {short}\")}}"),
        ] {
            assert!(asked(&line).await.unwrap(), "{line}");
        }
        assert!(!asked("git log -p main -- src deadbeef").await.unwrap(), "no such object");
        std::fs::write(dir.path().join(".git/FETCH_HEAD"), format!("{lost}\t\tbranch 'x' of .\n")).unwrap();
        assert!(asked("git show FETCH_HEAD").await.unwrap());
        let blob = git.list(&["hash-object", "-w", "--stdin"], b"KEY=1", MAX_LIST).await.unwrap();
        let blob = String::from_utf8(blob).unwrap();
        assert!(matches!(asked(&format!("git show {}", blob.trim())).await, Err(GitError::NotACommit(_))));
    }

    #[test]
    fn nothing_outside_the_folder_is_read_and_nothing_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(dir.path(), root.join("out")).unwrap();
        std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
        std::fs::write(root.join("sub/a"), "a").unwrap();
        assert!(std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
        assert_eq!(read(&root, b"sub/a"), Found::Bytes(b"a".to_vec()));
        assert_eq!(read(&root, b"link"), Found::Bytes(b"../secret".to_vec()));
        assert_eq!(read(&root, b"out/secret"), Found::Nothing);
        assert_eq!(read(&root, b"../secret"), Found::Other);
        assert_eq!(read(&root, b"pipe"), Found::Other);
        assert_eq!(read(&root, b"sub"), Found::Other);
    }
}
