//! The locations of aye's files, computed from an [`Env`], and the way private files are created.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use aye_files::opener::FilePlace;

use super::env::Env;
use super::layer::Origin;

/// The folders and files of one installation. Nothing is created until [`Paths::create`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// User settings: `config.toml`, `permissions.yaml`, `AGENTS.md`, `skills/`, `themes/`.
    pub config_dir: PathBuf,
    /// The folder for data that must not be lost: the database.
    pub data_dir: PathBuf,
    /// The folder for data that may be lost but is worth keeping: trust, history, logs.
    pub state_dir: PathBuf,
    /// The folder for data that can be recreated.
    pub cache_dir: PathBuf,
    /// The home directory that `~` means in messages and rules; absent when only `AYE_HOME` is known.
    pub home: Option<PathBuf>,
}

/// Why the folders could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum PathsError {
    /// Neither a home directory nor `AYE_HOME` is known.
    #[error("no home directory; set HOME, or AYE_HOME to a folder")]
    NoHome,
}

/// Why a private file or folder could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct PrivateFileError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl Paths {
    /// Computes all folders: `AYE_HOME` first, then the XDG variables, then the places under home.
    ///
    /// Relative XDG values are ignored, as their specification asks; a relative `AYE_HOME` starts at the working directory.
    pub fn from_env(env: &Env) -> Result<Self, PathsError> {
        let home = env.home().filter(|home| !home.as_os_str().is_empty()).map(|home| env.cwd().join(home));
        if let Some(root) = env.var("AYE_HOME") {
            let root = env.cwd().join(root);
            return Ok(Self {
                config_dir: root.join("config"),
                data_dir: root.join("data"),
                state_dir: root.join("state"),
                cache_dir: root.join("cache"),
                home,
            });
        }
        let dir = |variable: &str, below_home: &str| -> Result<PathBuf, PathsError> {
            let base = match env.var(variable).map(Path::new) {
                Some(given) if given.is_absolute() => given.to_path_buf(),
                _ => home.as_ref().ok_or(PathsError::NoHome)?.join(below_home),
            };
            Ok(base.join("aye"))
        };
        Ok(Self {
            config_dir: dir("XDG_CONFIG_HOME", ".config")?,
            data_dir: dir("XDG_DATA_HOME", ".local/share")?,
            state_dir: dir("XDG_STATE_HOME", ".local/state")?,
            cache_dir: dir("XDG_CACHE_HOME", ".cache")?,
            home: home.clone(),
        })
    }

    /// All folders in the order above, without links as far as they exist.
    pub fn own_folders(&self) -> [PathBuf; 4] {
        [&self.config_dir, &self.data_dir, &self.state_dir, &self.cache_dir].map(|dir| without_links(dir))
    }

    pub fn config_file(&self) -> PathBuf {
        self.config_dir.join("config.toml")
    }

    pub fn hooks_file(&self) -> PathBuf {
        self.config_dir.join("hooks.toml")
    }

    /// The user's permission rules.
    pub fn permissions_file(&self) -> PathBuf {
        self.config_dir.join("permissions.yaml")
    }

    /// Returns the file of reminders that the user's models get after tool calls.
    pub fn reminders_file(&self) -> PathBuf {
        self.config_dir.join("reminders.json")
    }

    /// The database of threads, runs and grants.
    pub fn database(&self) -> PathBuf {
        self.data_dir.join("aye.db")
    }

    /// Remembers in the settings' folder that there was a database: a copy of one without the other is noticed.
    pub fn store_marker(&self) -> PathBuf {
        self.config_dir.join("stores")
    }

    /// The database of what snapshots are made of.
    pub fn snapshots(&self) -> PathBuf {
        self.data_dir.join("snapshots.db")
    }

    /// Returns the folder of long tool output, kept for the model to read.
    pub fn output_dir(&self) -> PathBuf {
        self.data_dir.join("output")
    }

    /// Returns the folder of names under which running programs are started again after an upgrade, where the system needs
    /// one.
    pub fn programs_dir(&self) -> PathBuf {
        self.state_dir.join("programs")
    }

    /// Returns the folder of conversations that were exported in the terminal.
    pub fn exports(&self) -> PathBuf {
        self.data_dir.join("exports")
    }

    /// Returns the folder of drafts: text written in the terminal and not sent.
    pub fn drafts_dir(&self) -> PathBuf {
        self.state_dir.join("drafts")
    }

    /// The folder of the git worktrees that aye makes. It is beside the data folder: commands in a worktree may change it,
    /// and nothing of aye's own files.
    pub fn worktrees_dir(&self) -> PathBuf {
        let name =
            self.data_dir.file_name().filter(|name| *name == "aye").map_or("worktrees", |_| "aye-worktrees");
        self.data_dir.with_file_name(name)
    }

    /// The folder of the log files.
    pub fn log_dir(&self) -> PathBuf {
        self.state_dir.join("log")
    }

    /// Says that there was a first start.
    pub fn started_file(&self) -> PathBuf {
        self.state_dir.join("started")
    }

    /// Says for which projects an import was offered, by a file for each.
    pub fn import_offers_dir(&self) -> PathBuf {
        self.state_dir.join("import-offers")
    }

    /// The names under which rules knew files, one file for each project.
    pub fn known_files_dir(&self) -> PathBuf {
        self.state_dir.join("known-files")
    }

    /// The list of trusted folders.
    pub fn trust_file(&self) -> PathBuf {
        self.state_dir.join("trust.json")
    }

    /// Returns the file that lists the trusted tools of MCP servers.
    pub fn agreed_tools_file(&self) -> PathBuf {
        self.state_dir.join("mcp-tools.json")
    }

    /// The logins at tool servers.
    pub fn logins_dir(&self) -> PathBuf {
        self.state_dir.join("mcp-logins")
    }

    /// The keys of providers that a login stored, one file each.
    pub fn keys_dir(&self) -> PathBuf {
        self.state_dir.join("keys")
    }

    /// The token that the first `aye serve` made.
    pub fn serve_token_file(&self) -> PathBuf {
        self.data_dir.join("serve-token")
    }

    /// The key with which webhooks are signed that name no other one.
    pub fn webhook_key_file(&self) -> PathBuf {
        self.data_dir.join("webhook-key")
    }

    /// The hashes of further tokens of `aye serve`.
    pub fn serve_tokens_file(&self) -> PathBuf {
        self.data_dir.join("serve-tokens.json")
    }

    /// Returns the file of the models that servers last listed.
    pub fn offers_file(&self) -> PathBuf {
        self.cache_dir.join("models.json")
    }

    /// Returns the file of the newest version that was found.
    pub fn newest_file(&self) -> PathBuf {
        self.cache_dir.join("newest-version")
    }

    pub fn history_file(&self) -> PathBuf {
        self.state_dir.join("history.jsonl")
    }

    /// Creates the folders that aye writes to, each with mode 0700 whatever the umask.
    ///
    /// The settings folder is only read, so its mode is left as it is.
    pub fn create(&self) -> Result<(), PrivateFileError> {
        for dir in [&self.data_dir, &self.state_dir, &self.cache_dir] {
            create_private_dir(dir)?;
        }
        Ok(())
    }

    /// The path with the home directory written as `~`, for messages.
    pub fn display(&self, path: &Path) -> String {
        match self.home.as_deref().and_then(|home| path.strip_prefix(home).ok()) {
            Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
            Some(below) => format!("~/{}", below.display()),
            None => path.display().to_string(),
        }
    }

    /// A sentence that may name files, with each of them as [`Paths::display`] writes it.
    pub fn display_in(&self, words: &str) -> String {
        words.split(' ').map(|word| self.display(Path::new(word))).collect::<Vec<_>>().join(" ")
    }
}

/// Makes a folder and its missing parents with mode 0700, and takes group and others off an existing one. An existing
/// one is never opened wider: who made it read-only had a reason.
pub fn create_private_dir(dir: &Path) -> Result<(), PrivateFileError> {
    let fail = |action| {
        let path = dir.to_path_buf();
        move |source| PrivateFileError { action, path, source }
    };
    let was_there = dir.is_dir();
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail("create folder"))?;
    let mode = fs::metadata(dir).map_err(fail("read folder"))?.permissions().mode() & 0o777;
    // A umask can only take bits away, so an odd one may have left the owner of a new folder, or of its new parents,
    // without access.
    let wanted = if was_there && mode & 0o700 != 0 { mode & 0o700 } else { 0o700 };
    if mode != wanted {
        fs::set_permissions(dir, fs::Permissions::from_mode(wanted)).map_err(fail("protect folder"))?;
    }
    Ok(())
}

/// The reason why a file could not be read as text. The message continues a sentence that starts with the
/// file's name.
#[derive(Debug, thiserror::Error)]
pub enum ReadTextError {
    /// It is a folder, a pipe or another thing without a text.
    #[error("is not a file")]
    NotAFile,
    /// The system refused.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is larger than what is read of such a file.
    #[error("is larger than {} KiB", max / 1024)]
    TooLarge {
        /// The limit in bytes.
        max: u64,
    },
    /// It contains bytes that are not UTF-8.
    #[error("is not UTF-8 text")]
    NotText {
        /// The line of the first such byte.
        line: usize,
    },
}

impl ReadTextError {
    /// Returns the location of the problem in that file: a line, or the file as a whole.
    pub(crate) fn origin(&self, path: &Path) -> Origin {
        let line = match self {
            Self::NotText { line } => *line,
            Self::NotAFile | Self::Unreadable(_) | Self::TooLarge { .. } => 0,
        };
        Origin::File { path: path.to_path_buf(), line, column: usize::from(line > 0) }
    }
}

/// Reads a regular UTF-8 file up to a size; `None` if the file does not exist.
///
/// # Errors
/// The problem with the file.
pub fn read_private(path: &Path, max: u64) -> Result<Option<String>, ReadTextError> {
    let is_missing =
        |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    // The file's type is checked before opening: opening a pipe would wait for its other end.
    match path.metadata() {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => return Err(ReadTextError::NotAFile),
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    read_text(fs::File::open(path)?, max).map(Some)
}

/// Reads the same from a path whose links were resolved and judged: none is followed.
///
/// # Errors
/// The problem with the file.
pub fn read_resolved(real: &Path, max: u64) -> Result<Option<String>, ReadTextError> {
    let opened = FilePlace::of(real).map_err(io::Error::from).and_then(|place| place.open_regular());
    match opened {
        Ok(file) => read_text(file, max).map(Some),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => Err(ReadTextError::NotAFile),
            _ => Err(error.into()),
        },
    }
}

pub(crate) fn read_text(file: fs::File, max: u64) -> Result<String, ReadTextError> {
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(ReadTextError::TooLarge { max });
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        ReadTextError::NotText { line: error.as_bytes()[..valid].split(|byte| *byte == b'\n').count() }
    })
}

/// Writes a file with mode 0600 in one step: readers see the old content or the new one, also after a power cut.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), PrivateFileError> {
    let fail = |action| {
        let path = path.to_path_buf();
        move |source| PrivateFileError { action, path, source }
    };
    let dir = path.parent().unwrap_or(Path::new("."));
    create_private_dir(dir)?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (mut file, temporary) = temporary_file(dir, &name).map_err(fail("write"))?;
    let mut write = || -> io::Result<()> {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        fs::File::open(dir)?.sync_all()
    };
    write().map_err(|source| {
        // The rename did not happen, so only the temporary file needs to be removed.
        let _ = fs::remove_file(&temporary);
        fail("write")(source)
    })
}

/// The length of a name's part that makes it unique.
const UNIQUE: usize = 32;

/// Creates a file beside another one, to replace it. It is locked while this process has it open; files that dead
/// processes left, which may contain secrets, are removed.
fn temporary_file(dir: &Path, name: &str) -> io::Result<(fs::File, PathBuf)> {
    let (start, end) = (format!(".{name}."), ".tmp");
    let is_left = |entry: &fs::DirEntry| {
        let found = entry.file_name();
        let unique = found.to_str().and_then(|found| found.strip_prefix(&start)?.strip_suffix(end));
        unique.is_some_and(|unique| unique.len() == UNIQUE && unique.bytes().all(|b| b.is_ascii_hexdigit()))
            && entry.file_type().is_ok_and(|kind| kind.is_file())
    };
    for entry in fs::read_dir(dir)?.flatten().filter(is_left) {
        if fs::File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    loop {
        let path = dir.join(format!("{start}{}{end}", uuid::Uuid::new_v4().simple()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        // Without locks, as on some file systems, none is removed.
        let _ = file.lock();
        // Another process may have found it before it was locked.
        if file.metadata()?.nlink() > 0 {
            return Ok((file, path));
        }
    }
}

/// A path without links as far as it exists.
fn without_links(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|above| Some((above.canonicalize().ok()?, above)));
    let Some((real, above)) = existing else { return path.to_owned() };
    let rest = path.strip_prefix(above).map(Path::components).into_iter().flatten();
    rest.fold(real, |path, part| path.join(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_follow_home_xdg_and_aye_home() {
        let paths = |vars: &[(&str, &str)]| Paths::from_env(&Env::of(vars, "/h", "/w")).expect("home is set");
        let plain = paths(&[]);
        assert_eq!(plain.config_file(), Path::new("/h/.config/aye/config.toml"));
        assert_eq!(plain.database(), Path::new("/h/.local/share/aye/aye.db"));
        assert_eq!(plain.log_dir(), Path::new("/h/.local/state/aye/log"));
        let xdg = paths(&[("XDG_CONFIG_HOME", "/c"), ("XDG_DATA_HOME", "relative"), ("XDG_STATE_HOME", "")]);
        assert_eq!(xdg.config_dir, Path::new("/c/aye"));
        assert_eq!(xdg.data_dir, Path::new("/h/.local/share/aye"));
        let own = paths(&[("AYE_HOME", "t"), ("XDG_CONFIG_HOME", "/c")]);
        assert_eq!(own.config_dir, Path::new("/w/t/config"));
        assert_eq!(own.trust_file(), Path::new("/w/t/state/trust.json"));
        assert!(Paths::from_env(&Env::default()).is_err());
        assert_eq!(
            plain.display_in("/h/c.toml:3:1: a model of /hx, set in /h"),
            "~/c.toml:3:1: a model of /hx, set in ~"
        );
    }

    #[test]
    fn private_files_and_folders_have_private_modes() {
        let root = tempfile::tempdir().expect("temp");
        let file = root.path().join("a/b/secret.json");
        fs::create_dir_all(root.path().join("a")).expect("dir");
        fs::set_permissions(root.path().join("a"), fs::Permissions::from_mode(0o755)).expect("mode");
        write_private(&file, b"one").expect("write");
        write_private(&file, b"two").expect("write");
        assert_eq!(fs::read(&file).expect("read"), b"two");
        let mode = |path: &Path| fs::metadata(path).expect("meta").permissions().mode() & 0o777;
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(&root.path().join("a/b")), 0o700);
        assert_eq!(mode(&root.path().join("a")), 0o755, "parents that were there are not ours");
        assert_eq!(
            fs::read_dir(root.path().join("a/b")).expect("list").count(),
            1,
            "no temporary file stays"
        );
    }

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let left = |name: &str| root.path().join(format!(".{name}.{}.tmp", "0".repeat(UNIQUE)));
        let (dead, other) = (left("key"), left("token"));
        fs::write(&dead, "a secret").unwrap();
        let (living, path) = temporary_file(root.path(), "key").unwrap();
        assert!(!dead.exists());
        fs::write(&other, "another file's").unwrap();
        write_private(&root.path().join("key"), b"one").unwrap();
        assert!(path.exists() && other.exists(), "a living process writes it, or it belongs to another file");
        drop(living);
        write_private(&root.path().join("key"), b"two").unwrap();
        assert!(!path.exists() && other.exists());
    }

    #[test]
    fn debug_output_of_an_environment_hides_values() {
        let env = Env::of(&[("OPENAI_API_KEY", "canary-key")], "/h", "/w");
        let text = format!("{env:?}");
        assert!(text.contains("OPENAI_API_KEY") && !text.contains("canary"));
    }

    #[test]
    fn own_folders_have_no_links_as_far_as_they_exist() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        fs::create_dir_all(real.join("real/config")).unwrap();
        std::os::unix::fs::symlink("real", real.join("link")).unwrap();
        let env = Env::of(&[("AYE_HOME", real.join("link").to_str().unwrap())], "/h", "/w");
        let own = Paths::from_env(&env).unwrap().own_folders();
        assert_eq!(own, ["config", "data", "state", "cache"].map(|name| real.join("real").join(name)));
    }
}
