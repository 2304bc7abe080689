use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use super::{
    JsonValue, KeyRegistration, KeyScope, MutationBatch, Snapshot, StateCommand, StateError, StateKey,
    StateMap,
};

/// State as JSON: what a checkpoint carries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersistedState {
    /// The revision it was taken at.
    pub revision: u64,
    /// Values by key.
    pub values: BTreeMap<String, JsonValue>,
}

/// What to do with a stored key that nobody registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownKeyPolicy {
    /// Refuse the whole state.
    #[default]
    Error,
    /// Leave the key out.
    Skip,
}

/// What a [`CommitHook`] is told.
#[derive(Clone, Debug)]
pub struct CommitEvent {
    /// The state after the commit.
    pub snapshot: Snapshot,
    /// The keys that were written.
    pub touched: Vec<&'static str>,
}

/// Told of each commit that changed something.
pub trait CommitHook: Send + Sync {
    /// Called after the commit, outside any lock.
    fn committed(&self, event: &CommitEvent);
}

#[derive(Default)]
struct Inner {
    snapshot: Snapshot,
    keys: BTreeMap<&'static str, KeyRegistration>,
    hooks: Vec<Arc<dyn CommitHook>>,
    plugins: Vec<String>,
}

/// The one owner of a run's state. Clones share it.
#[derive(Clone, Default)]
pub struct StateStore {
    inner: Arc<Mutex<Inner>>,
}

impl StateStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while the state is held")
    }

    /// Makes a key known.
    ///
    /// # Errors
    /// [`StateError::KeyAlreadyRegistered`].
    pub fn register(&self, registration: KeyRegistration) -> Result<(), StateError> {
        let mut inner = self.lock();
        if inner.keys.contains_key(registration.key) {
            return Err(StateError::KeyAlreadyRegistered { key: registration.key.into() });
        }
        inner.keys.insert(registration.key, registration);
        Ok(())
    }

    /// Notes that a plugin is installed.
    ///
    /// # Errors
    /// [`StateError::PluginAlreadyInstalled`].
    pub fn note_plugin(&self, name: &str) -> Result<(), StateError> {
        let mut inner = self.lock();
        if inner.plugins.iter().any(|p| p == name) {
            return Err(StateError::PluginAlreadyInstalled { name: name.into() });
        }
        inner.plugins.push(name.into());
        Ok(())
    }

    /// Adds a listener for commits.
    pub fn on_commit(&self, hook: Arc<dyn CommitHook>) {
        self.lock().hooks.push(hook);
    }

    /// The state as it is now.
    pub fn snapshot(&self) -> Snapshot {
        self.lock().snapshot.clone()
    }

    /// The value of `K`, or `None` when it was never written.
    pub fn read<K: StateKey>(&self) -> Option<K::Value> {
        self.lock().snapshot.get::<K>().cloned()
    }

    /// Commits the updates of a command; its actions and effects are the phase engine's business.
    ///
    /// # Errors
    /// As [`StateStore::commit_batch`].
    pub fn commit(&self, command: StateCommand) -> Result<u64, StateError> {
        self.commit_batch(command.batch)
    }

    /// Applies a batch whole or not at all and gives the revision after it. An empty batch changes nothing.
    ///
    /// # Errors
    /// [`StateError::RevisionConflict`] when the batch insists on another revision,
    /// [`StateError::UnknownKey`] when it writes a key that nobody registered.
    pub fn commit_batch(&self, batch: MutationBatch) -> Result<u64, StateError> {
        let (event, hooks, revision) = {
            let mut inner = self.lock();
            let actual = inner.snapshot.revision;
            if let Some(expected) = batch.base_revision()
                && expected != actual
            {
                return Err(StateError::RevisionConflict { expected, actual });
            }
            if let Some(key) = batch.touched_keys().find(|key| !inner.keys.contains_key(key)) {
                return Err(StateError::UnknownKey { key: key.into() });
            }
            if batch.is_empty() {
                return Ok(actual);
            }
            let touched: Vec<_> = batch.touched_keys().collect();
            let mut map = StateMap::clone(&inner.snapshot.ext);
            batch.apply(&mut map);
            inner.snapshot = Snapshot { revision: actual + 1, ext: Arc::new(map) };
            let event = CommitEvent { snapshot: inner.snapshot.clone(), touched };
            (event, inner.hooks.clone(), actual + 1)
        };
        for hook in hooks {
            hook.committed(&event);
        }
        Ok(revision)
    }

    /// Puts all run-scoped keys back to unset: a new run begins.
    pub fn clear_run_scope(&self) {
        let mut inner = self.lock();
        let run_keys: Vec<_> =
            inner.keys.values().filter(|k| k.scope == KeyScope::Run).map(|k| k.key).collect();
        let mut map = StateMap::clone(&inner.snapshot.ext);
        for key in run_keys {
            map.remove(key);
        }
        inner.snapshot = Snapshot { revision: inner.snapshot.revision + 1, ext: Arc::new(map) };
    }

    /// Writes all persistent keys (of one scope, when given) as JSON.
    ///
    /// # Errors
    /// [`StateError::KeyEncode`].
    pub fn export(&self, scope: Option<KeyScope>) -> Result<PersistedState, StateError> {
        let inner = self.lock();
        let mut values = BTreeMap::new();
        for registration in inner.keys.values() {
            if !registration.persistent || scope.is_some_and(|s| s != registration.scope) {
                continue;
            }
            if let Some(value) = inner.snapshot.ext.erased(registration.key) {
                values.insert(registration.key.to_owned(), (registration.encode)(value.as_ref())?);
            }
        }
        Ok(PersistedState { revision: inner.snapshot.revision, values })
    }

    /// Reads values from JSON into the state, whole or not at all.
    ///
    /// # Errors
    /// [`StateError::UnknownKey`] (under [`UnknownKeyPolicy::Error`]), [`StateError::KeyDecode`].
    pub fn restore(&self, state: PersistedState, unknown: UnknownKeyPolicy) -> Result<(), StateError> {
        let mut inner = self.lock();
        let mut map = StateMap::clone(&inner.snapshot.ext);
        for (key, json) in state.values {
            match inner.keys.get(key.as_str()) {
                Some(registration) => map.set_erased(registration.key, (registration.decode)(json)?),
                None if unknown == UnknownKeyPolicy::Skip => {}
                None => return Err(StateError::UnknownKey { key }),
            }
        }
        let revision = inner.snapshot.revision.max(state.revision) + 1;
        inner.snapshot = Snapshot { revision, ext: Arc::new(map) };
        Ok(())
    }
}

impl std::fmt::Debug for StateStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateStore").field("revision", &self.lock().snapshot.revision).finish_non_exhaustive()
    }
}
