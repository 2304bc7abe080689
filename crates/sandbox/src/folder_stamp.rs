//! [`FolderStamp`]: shows that a folder has the same entries as when it was read.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

use rustix::fs::Stat;

use crate::folder::InodeId;

/// A folder that changed this shortly before it was read may change again without a new time.
const SETTLED: Duration = Duration::from_secs(2);

/// The state of a folder by its identity and the time of its last change, which the kernel sets: a program can choose the
/// time of modification, and so make a folder look as it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderStamp {
    id: InodeId,
    changed: (i64, i64),
}

impl FolderStamp {
    /// Returns the stamp of a folder that is read at `now`; `None` if it changed too recently to rely on its time.
    pub fn settled(metadata: &Metadata, now: SystemTime) -> Option<FolderStamp> {
        FolderStamp::of(metadata).settled_at(now)
    }

    /// Returns whether a folder is still the same and unchanged.
    pub fn is_of(&self, metadata: &Metadata) -> bool {
        *self == FolderStamp::of(metadata)
    }

    pub(crate) fn settled_at(self, now: SystemTime) -> Option<FolderStamp> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let (seconds, nanoseconds) = self.changed;
        let changed = Duration::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
        now.checked_sub(changed).filter(|age| *age > SETTLED).map(|_| self)
    }

    fn of(metadata: &Metadata) -> FolderStamp {
        FolderStamp {
            id: InodeId(metadata.dev(), metadata.ino()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    pub(crate) fn of_stat(stat: &Stat) -> FolderStamp {
        FolderStamp { id: InodeId::of(stat), changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64) }
    }
}
