//! Stored logins at MCP servers: a folder that only the user can open, with one private file per server.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aye_platform::lock_private_file;
use secrecy::{ExposeSecret as _, SecretString};

use crate::config::{ReadTextError, create_private_dir, read_private, write_private};
use crate::contract::digest::sha256_hex;
use crate::mcp::{KeepError, LoginStore};

const MAX_FILE: u64 = 1 << 20;

pub(crate) struct FileLogins {
    folder: PathBuf,
}

impl FileLogins {
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Names of servers may contain anything.
    fn file(&self, scope: &str, server: &str, kind: &str) -> PathBuf {
        let name = sha256_hex(serde_json::json!([scope, server]).to_string());
        self.folder.join(format!("{}.{kind}", &name[..32]))
    }
}

/// Returns whether the path is the user's own file that others cannot read; `false` if it does not exist.
fn is_private(path: &Path) -> Result<bool, LoginFileFault> {
    let about = match path.symlink_metadata() {
        Ok(about) => about,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(LoginFileFault::Unreadable(error.into())),
    };
    if !about.is_file() {
        return Err(LoginFileFault::NotAFile);
    }
    if about.mode() & 0o077 != 0 || about.uid() != rustix::process::geteuid().as_raw() {
        return Err(LoginFileFault::ReadByOthers);
    }
    Ok(true)
}

/// An error about the file of a login.
#[derive(Debug, thiserror::Error)]
#[error("{} {what}", path.display())]
struct LoginFileError {
    path: PathBuf,
    what: LoginFileFault,
}

#[derive(Debug, thiserror::Error)]
enum LoginFileFault {
    #[error("{0}")]
    Unreadable(#[from] ReadTextError),
    #[error("is not a file; it is not used")]
    NotAFile,
    #[error("can be read by others and is not used; log in again, and end the old login at its server")]
    ReadByOthers,
    #[error("cannot be removed: {0}")]
    NotRemoved(std::io::Error),
    #[error("cannot be locked: {0}")]
    NotLocked(std::io::Error),
}

impl LoginStore for FileLogins {
    fn load(&self, scope: &str, server: &str) -> Result<Option<SecretString>, KeepError> {
        let path = self.file(scope, server, "json");
        let read = || if is_private(&path)? { Ok(read_private(&path, MAX_FILE)?) } else { Ok(None) };
        match read() {
            Ok(text) => Ok(text.map(SecretString::from)),
            Err(what) => Err(KeepError::Unreadable(LoginFileError { path, what }.into())),
        }
    }

    fn save(&self, scope: &str, server: &str, text: &SecretString) -> Result<(), KeepError> {
        let path = self.file(scope, server, "json");
        // A new file replaces whatever is there: nothing is written through a link.
        let written = write_private(&path, text.expose_secret().as_bytes());
        written.map_err(|error| KeepError::NotWritten(error.into()))
    }

    fn forget(&self, scope: &str, server: &str) -> Result<bool, KeepError> {
        let path = self.file(scope, server, "json");
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => {
                let what = LoginFileFault::NotRemoved(error);
                Err(KeepError::NotRemoved(LoginFileError { path, what }.into()))
            }
        }
    }

    fn lock(&self, scope: &str, server: &str) -> Result<Box<dyn Send>, KeepError> {
        create_private_dir(&self.folder).map_err(|error| KeepError::NotLocked(error.into()))?;
        let path = self.file(scope, server, "lock");
        let fail = |error: std::io::Error| {
            let what = LoginFileFault::NotLocked(error);
            KeepError::NotLocked(LoginFileError { path: path.clone(), what }.into())
        };
        Ok(Box::new(lock_private_file(&path).map_err(fail)?))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_login_is_stored_privately_and_read_only_from_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("logins");
        let logins = FileLogins::at(folder.clone());
        assert!(logins.load("user", "a/../b").expect("nothing").is_none());
        logins.save("user", "a/../b", &"t0ken".to_owned().into()).expect("kept");
        let text =
            |server: &str| logins.load("user", server).map(|t| t.map(|t| t.expose_secret().to_owned()));
        assert_eq!(text("a/../b").expect("read").as_deref(), Some("t0ken"));
        assert_eq!(text("another").expect("read"), None);
        let path = logins.file("user", "a/../b", "json");
        assert_eq!(path.parent(), Some(folder.as_path()));
        let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&path)), (0o700, 0o600));

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("set");
        assert!(text("a/../b").expect_err("refused").to_string().contains("can be read by others"));
        // A link is not followed when read, and is replaced when written.
        let elsewhere = dir.path().join("elsewhere");
        std::fs::rename(&path, &elsewhere).expect("moved");
        std::os::unix::fs::symlink(&elsewhere, &path).expect("a link");
        assert!(text("a/../b").expect_err("refused").to_string().contains("is not a file"));
        logins.save("user", "a/../b", &"new".to_owned().into()).expect("kept");
        assert_eq!(std::fs::read_to_string(&elsewhere).expect("read"), "t0ken");
        assert_eq!(text("a/../b").expect("read").as_deref(), Some("new"));

        assert!(logins.forget("user", "a/../b").expect("forgotten"));
        assert!(!logins.forget("user", "a/../b").expect("nothing"));
        let held = logins.lock("user", "x").expect("locked");
        let other = OpenOptions::new().write(true).open(logins.file("user", "x", "lock")).expect("there");
        assert!(other.try_lock().is_err(), "it is held");
        drop(held);
        assert!(other.try_lock().is_ok());
    }
}
