//! [`PrivateFolder`]: a folder of aye's own, kept open.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

use super::{LISTED, Unresolved, make_folder_in_root, resolve_new};

/// A folder that no other user can enter, whatever the umask. Files are made and renamed in it by descriptor.
#[derive(Debug)]
pub struct PrivateFolder {
    path: PathBuf,
    folder: OwnedFd,
}

impl PrivateFolder {
    /// Makes the folder, and those above it that are missing, and takes it from others.
    ///
    /// # Errors
    /// It cannot be made, or is not the user's.
    pub fn make(path: &Path) -> io::Result<PrivateFolder> {
        // Each is as private as the last one, whatever the umask.
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty() && !above.exists()) {
            PrivateFolder::make(above)?;
        }
        let real = resolve_new(path).map_err(|why| match why {
            Unresolved::Dangling(link) => {
                let text = format!("{} is a link to nothing", link.display());
                io::Error::new(io::ErrorKind::NotFound, text)
            }
            Unresolved::Io(error) => error,
        })?;
        let mode = Mode::from_raw_mode(0o700);
        let passage = make_folder_in_root(&real, mode)?;
        // The umask takes bits away, even the owner's; then it cannot be opened before it has them.
        let open = || openat(&passage, ".", LISTED | OFlags::CLOEXEC, Mode::empty());
        let folder = match open() {
            Err(rustix::io::Errno::ACCESS) => {
                // `.` cannot be looked up in it, except by root.
                aye_platform::set_folder_mode(&passage, mode)?;
                open()?
            }
            other => other?,
        };
        if File::from(folder.try_clone()?).metadata()?.permissions().mode() & 0o777 != 0o700 {
            rustix::fs::fchmod(&folder, mode)?;
        }
        Ok(PrivateFolder { path: real, folder })
    }

    /// Its path, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that the folder is used now; see [`crate::unused::remove_unused`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn touch(&self) -> io::Result<()> {
        File::from(self.folder.try_clone()?).set_modified(std::time::SystemTime::now())
    }

    /// Makes a file that only the user can read and that does not exist yet.
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let file = openat(&self.folder, name.as_ref(), flags, mode)?;
        rustix::fs::fchmod(&file, mode)?;
        Ok(file.into())
    }

    /// Opens a file that only the user can read to append to it, and makes it if there is none.
    ///
    /// # Errors
    /// Those of the system.
    pub fn append(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.folder, name.as_ref(), flags, Mode::from_raw_mode(0o600))?.into())
    }

    /// Opens a regular file in it to read.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::InvalidInput`] for anything but a regular file.
    pub fn open(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.folder, name.as_ref(), flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Gives a file in it another name there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(renameat(&self.folder, from.as_ref(), &self.folder, to.as_ref())?)
    }

    /// Removes a file in it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(unlinkat(&self.folder, name.as_ref(), AtFlags::empty())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As after `umask 0777`. Root sees no difference.
    #[test]
    fn a_folder_without_rights_for_its_owner_gets_them() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("own");
        std::fs::create_dir(&path).expect("made");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).expect("set");
        let folder = PrivateFolder::make(&path).expect("opened");
        folder.create("file").expect("made");
        assert_eq!(path.metadata().expect("exists").permissions().mode() & 0o777, 0o700);
    }
}
