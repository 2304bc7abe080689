//! Entries of the configuration that are defined while the program runs, in versions.

use serde_json::Value;

/// One version of an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryVersion {
    /// The revision that it was published with; they count all changes of all entries.
    pub revision: u64,
    /// The kind of the entry, such as `agents`.
    pub namespace: String,
    /// Unique in its namespace.
    pub id: String,
    /// The definition; `None` from the revision on that deleted the entry.
    pub value: Option<Value>,
    /// When, in Unix milliseconds.
    pub at: u64,
}

/// What a change expects of the entry as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryExpectation {
    Absent,
    /// There is one, in any version.
    Present,
    /// There is one, in the version of this revision.
    Revision(u64),
}

/// The entry is not what a change expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryConflict {
    /// There is one already.
    Exists,
    Missing,
    /// The entry was changed in the meantime; this is its revision.
    Stale(u64),
}

impl EntryExpectation {
    /// Compares it with the revision of the stored entry; `None` if there is none.
    ///
    /// # Errors
    /// [`EntryConflict`].
    pub fn check(self, found: Option<u64>) -> Result<(), EntryConflict> {
        match (self, found) {
            (Self::Absent, None) | (Self::Present, Some(_)) => Ok(()),
            (Self::Absent, Some(_)) => Err(EntryConflict::Exists),
            (Self::Present | Self::Revision(_), None) => Err(EntryConflict::Missing),
            (Self::Revision(wanted), Some(found)) if wanted == found => Ok(()),
            (Self::Revision(_), Some(found)) => Err(EntryConflict::Stale(found)),
        }
    }
}
