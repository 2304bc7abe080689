//! Memory: short notes that outlive conversations, of the user and of the project.
//!
//! A note may contain text from a model, or from a web page that a model picked up, and it becomes part of
//! later prompts. Therefore a change by the model is a call like any other, which asks unless a rule allows
//! it; the prompt contains the notes as escaped elements that name their author; and a user sees, rewrites
//! and removes each of them.

mod book;
mod plugin;
#[cfg(test)]
mod tests;
mod tool;

pub use book::{Author, Authorship, MAX_NOTES, MAX_RENDERED, MAX_TEXT, Memory, MemoryError, Note, Scope};
pub use plugin::{MEMORY_PLUGIN, MemoryMarks, MemoryPlugin};
pub use tool::{MEMORY_TOOL, MemoryTool};

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aye_core::contract::digest::sha256_hex;
use aye_core::contract::profile::{
    ProfileAccess, ProfileKey, ProfileKeys, ProfileStore, StateScope, StorageError,
};

/// The namespace of all notes; the keys are those of [`NoteScopes::key`].
pub struct MemoryKey;

impl ProfileKey for MemoryKey {
    const KEY: &'static str = "memory";
    type Value = Memory;
}

/// A project's path that is longer is named by its hash.
const MAX_PATH: usize = 900;

/// The scopes of the notes that apply here.
#[derive(Clone, Debug)]
pub struct NoteScopes {
    project: PathBuf,
}

impl NoteScopes {
    /// Returns the scopes of the user's notes and of the project with this root.
    pub fn new(project: impl Into<PathBuf>) -> Self {
        Self { project: project.into() }
    }

    /// The root of the project.
    pub fn project(&self) -> &Path {
        &self.project
    }

    /// Under which key the notes of a scope are kept.
    pub fn key(&self, scope: Scope) -> StateScope {
        match scope {
            Scope::User => StateScope::new("user"),
            Scope::Project => match self.project.to_str() {
                Some(path) if path.len() <= MAX_PATH => StateScope::new(format!("project::{path}")),
                // Two roots must never share a key, so a root that is not valid text is not converted with
                // replacement characters.
                Some(_) | None => {
                    let hash = sha256_hex(self.project.as_os_str().as_bytes());
                    StateScope::new(format!("project-sha256::{hash}"))
                }
            },
        }
    }

    /// Access to the notes outside of a run.
    pub fn access(&self, store: Arc<dyn ProfileStore>) -> Notes {
        Notes {
            access: ProfileAccess::new(store, ProfileKeys::new().with::<MemoryKey>()),
            places: self.clone(),
        }
    }
}

/// The notes that hold in one place, for reading and changing.
#[derive(Clone, Debug)]
pub struct Notes {
    access: ProfileAccess,
    places: NoteScopes,
}

impl Notes {
    fn new(access: ProfileAccess, places: NoteScopes) -> Self {
        Self { access, places }
    }

    /// The notes of a scope.
    ///
    /// # Errors
    /// [`MemoryError::Store`].
    pub async fn read(&self, scope: Scope) -> Result<Memory, MemoryError> {
        Ok(self.access.read::<MemoryKey>(self.places.key(scope).as_str()).await?)
    }

    /// The notes of each scope, in the order of [`Scope::ALL`], asked for at once.
    pub(super) async fn of_all_scopes(&self) -> Vec<Result<Memory, MemoryError>> {
        futures::future::join_all(Scope::ALL.map(|scope| self.read(scope))).await
    }

    /// The notes of every place, by key.
    ///
    /// # Errors
    /// [`MemoryError::Store`].
    pub async fn all(&self) -> Result<Vec<(String, Memory)>, MemoryError> {
        Ok(self.access.list::<MemoryKey>().await?)
    }

    async fn change<T: Send>(
        &self,
        scope: Scope,
        change: impl FnMut(&mut Memory) -> Result<T, MemoryError> + Send,
    ) -> Result<T, MemoryError> {
        self.access.update::<MemoryKey, _, _>(self.places.key(scope).as_str(), change).await?
    }

    /// Keeps a note. `call`: the same one a second time gives the note of the first time.
    ///
    /// # Errors
    /// [`MemoryError`]: nothing was changed.
    pub async fn add(
        &self,
        scope: Scope,
        text: &str,
        stamp: &Authorship,
        call: Option<&str>,
    ) -> Result<Note, MemoryError> {
        self.change(scope, |memory| memory.add(scope, text, stamp.clone(), call)).await
    }

    /// Replaces the text of a note. Gives the note as it was and as it is.
    ///
    /// # Errors
    /// [`MemoryError`]: nothing was changed.
    pub async fn update(
        &self,
        id: &str,
        text: &str,
        stamp: &Authorship,
    ) -> Result<(Note, Note), MemoryError> {
        self.change(Scope::of(id)?, |memory| memory.update(id, text, stamp.clone())).await
    }

    /// Removes a note and gives it.
    ///
    /// # Errors
    /// [`MemoryError`]: nothing was changed.
    pub async fn remove(&self, id: &str) -> Result<Note, MemoryError> {
        self.change(Scope::of(id)?, |memory| memory.remove(id)).await
    }

    /// A note.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub async fn note(&self, id: &str) -> Result<Note, MemoryError> {
        self.read(Scope::of(id)?).await?.note(id).cloned()
    }
}

impl From<StorageError> for MemoryError {
    fn from(error: StorageError) -> Self {
        Self::Store(error.to_string())
    }
}
