//! The places where a program that embeds aye stores threads and runs.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{OpenError, Store};

/// Opens a store once.
#[derive(Debug, Default)]
struct Opened(Mutex<Option<Store>>);

impl Opened {
    fn get(&self, open: impl FnOnce() -> Result<Store, OpenError>) -> Result<Store, OpenError> {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*opened {
            Some(store) => Ok(store.clone()),
            None => Ok(opened.insert(open()?).clone()),
        }
    }
}

/// The SQLite store of `aye` itself, in a folder of your program: one database, `aye.db`, for all threads and runs. Folder
/// and database are made when they are first needed; any number of processes may use them at once.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    opened: Opened,
}

impl FileStore {
    /// The name of the database in the folder.
    pub const FILE: &'static str = "aye.db";

    /// A store in this folder. Nothing is opened or made yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), opened: Opened::default() }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The store, which is opened the first time; the same one each time.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn store(&self) -> Result<Store, OpenError> {
        self.opened.get(|| Store::open(&self.folder.join(Self::FILE)))
    }
}
