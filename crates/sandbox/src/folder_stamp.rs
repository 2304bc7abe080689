//! [`FolderStamp`]: shows that a folder has the same entries as when it was read.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

/// A folder that changed this shortly before it was read may change again without a new time.
const SETTLED: Duration = Duration::from_secs(2);

/// The state of a folder by its identity and the time of its last change, which the kernel sets: a program can choose the
/// time of modification, and so make a folder look as it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderStamp {
    id: (u64, u64),
    changed: (i64, i64),
}

impl FolderStamp {
    /// Returns the stamp of a folder that is read at `now`; `None` if it changed too recently to rely on its time.
    pub fn settled(metadata: &Metadata, now: SystemTime) -> Option<FolderStamp> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let changed =
            Duration::new(metadata.ctime().try_into().ok()?, metadata.ctime_nsec().try_into().ok()?);
        now.checked_sub(changed).filter(|age| *age > SETTLED).map(|_| FolderStamp::of(metadata))
    }

    /// Returns whether a folder is still the same and unchanged.
    pub fn is_of(&self, metadata: &Metadata) -> bool {
        *self == FolderStamp::of(metadata)
    }

    fn of(metadata: &Metadata) -> FolderStamp {
        FolderStamp {
            id: (metadata.dev(), metadata.ino()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
