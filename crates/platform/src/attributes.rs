//! What the system says of a file, in types that are the same on every system.

use rustix::fs::{Mode, Stat};

/// The attributes of a file. Times are in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAttributes {
    /// The device that it is on.
    pub device: u64,
    pub inode: u64,
    /// Its kind and its permission bits.
    pub mode: u32,
    /// Its bytes.
    pub size: u64,
    /// When its content was changed.
    pub modified: i64,
    /// When anything about it was changed.
    pub changed: i64,
}

#[allow(
    clippy::unnecessary_cast,
    clippy::cast_lossless,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "the types of the fields differ between systems"
)]
impl From<&Stat> for FileAttributes {
    fn from(about: &Stat) -> FileAttributes {
        let ns = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        FileAttributes {
            device: about.st_dev as u64,
            inode: about.st_ino as u64,
            mode: about.st_mode as u32,
            size: about.st_size as u64,
            modified: ns(about.st_mtime as i64, about.st_mtime_nsec as i64),
            changed: ns(about.st_ctime as i64, about.st_ctime_nsec as i64),
        }
    }
}

/// Returns the permission bits of a file, without its kind.
pub fn permissions(mode: u32) -> Mode {
    // A mode has 16 bits on some systems.
    Mode::from_bits_truncate((mode & 0o7777) as _)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn they_are_those_of_the_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "four").expect("written");
        let about = rustix::fs::stat(file.path()).expect("is there");
        let (found, meta) = (FileAttributes::from(&about), file.path().metadata().expect("is there"));
        assert_eq!((found.device, found.inode, found.size), (meta.dev(), meta.ino(), 4));
        assert_eq!(found.mode, meta.mode());
        assert_eq!(found.modified, meta.mtime() * 1_000_000_000 + meta.mtime_nsec());
        assert_eq!(permissions(meta.mode()), Mode::RUSR | Mode::WUSR);
    }
}
