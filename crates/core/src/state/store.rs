use std::any::{TypeId, type_name};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::batch::WrittenKey;
use super::{
    JsonValue, KeyRegistration, KeyScope, MutationBatch, Snapshot, StateCommand, StateError, StateKey,
    StateMap,
};

/// State as JSON: what a checkpoint carries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersistedState {
    /// The revision it was taken at.
    pub revision: u64,
    pub values: BTreeMap<String, JsonValue>,
}

/// The policy for stored keys that are not registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownKeyPolicy {
    /// Refuse the whole state.
    #[default]
    Error,
    /// Leave the key out.
    Skip,
}

/// The argument of a [`CommitHook`].
#[derive(Clone, Debug)]
pub struct CommitEvent {
    /// The state after the commit.
    pub snapshot: Snapshot,
    /// The keys that were written.
    pub touched: Vec<&'static str>,
}

/// Called after each commit that changed something.
pub trait CommitHook: Send + Sync {
    /// Called after the commit, outside any lock.
    fn committed(&self, event: &CommitEvent);
}

#[derive(Default)]
struct Inner {
    snapshot: Snapshot,
    keys: BTreeMap<&'static str, KeyRegistration>,
    hooks: Vec<Arc<dyn CommitHook>>,
    plugins: Vec<Installed>,
    /// Keys that outlived the plugin they came with.
    retained: BTreeSet<&'static str>,
}

/// A plugin whose keys are known.
struct Installed {
    name: String,
    type_id: TypeId,
    keys: Vec<&'static str>,
}

/// The one owner of a run's state. Clones share it.
#[derive(Clone, Default)]
pub struct StateStore {
    inner: Arc<Mutex<Inner>>,
}

impl StateStore {
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in a key's own code cannot leave a half-done state: every change is made on a copy that
        // replaces the snapshot in one assignment. A poisoned lock is therefore safe to use.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Makes keys known, all or none; those that are known with the same type and options stay as they are.
    ///
    /// # Errors
    /// [`StateError::KeyAlreadyRegistered`] when another key type, or other options, hold one of the names.
    pub fn ensure(&self, registrations: &[KeyRegistration]) -> Result<(), StateError> {
        let mut inner = self.lock();
        let taken = |r: &&KeyRegistration| inner.keys.get(r.key).is_some_and(|known| !known.is_same(r));
        if let Some(other) = registrations.iter().find(taken) {
            return Err(StateError::KeyAlreadyRegistered { key: other.key.into() });
        }
        inner.keys.extend(registrations.iter().map(|r| (r.key, *r)));
        Ok(())
    }

    /// Installs the keys of the plugin `P` under its name, all or none. A key retained from an uninstalled
    /// plugin may be registered again in the same way, and keeps its value.
    ///
    /// # Errors
    /// [`StateError::PluginAlreadyInstalled`], [`StateError::KeyAlreadyRegistered`].
    pub fn install<P: 'static>(
        &self,
        plugin: &str,
        registrations: &[KeyRegistration],
    ) -> Result<(), StateError> {
        let mut inner = self.lock();
        if inner.plugins.iter().any(|installed| installed.name == plugin) {
            return Err(StateError::PluginAlreadyInstalled { name: plugin.into() });
        }
        let is_taken = |r: &&KeyRegistration| {
            let is_left = |known: &KeyRegistration| inner.retained.contains(r.key) && known.is_same(r);
            inner.keys.get(r.key).is_some_and(|known| !is_left(known))
        };
        if let Some(taken) = registrations.iter().find(is_taken) {
            return Err(StateError::KeyAlreadyRegistered { key: taken.key.into() });
        }
        let keys: Vec<_> = registrations.iter().map(|r| r.key).collect();
        for registration in registrations {
            inner.retained.remove(registration.key);
            inner.keys.insert(registration.key, *registration);
        }
        inner.plugins.push(Installed { name: plugin.into(), type_id: TypeId::of::<P>(), keys });
        Ok(())
    }

    /// Removes the keys that came with the plugin `P`, and their values, except those that are retained.
    ///
    /// # Errors
    /// [`StateError::PluginNotInstalled`].
    pub fn uninstall<P: 'static>(&self) -> Result<(), StateError> {
        let mut inner = self.lock();
        let Some(at) = inner.plugins.iter().position(|installed| installed.type_id == TypeId::of::<P>())
        else {
            return Err(StateError::PluginNotInstalled { type_name: type_name::<P>() });
        };
        let installed = inner.plugins.remove(at);
        let mut map = StateMap::clone(&inner.snapshot.ext);
        let mut has_changed = false;
        for key in installed.keys {
            if inner.keys.get(key).is_some_and(|known| known.retain_on_uninstall) {
                inner.retained.insert(key);
            } else {
                inner.keys.remove(key);
                has_changed |= map.remove_erased(key);
            }
        }
        if has_changed {
            inner.snapshot = Snapshot { revision: inner.snapshot.revision + 1, ext: Arc::new(map) };
        }
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

    /// Applies a batch as a whole or not at all, and returns the revision after it. An empty batch changes
    /// nothing.
    ///
    /// # Errors
    /// [`StateError::RevisionConflict`] if the batch requires another revision, [`StateError::UnknownKey`] if
    /// it writes a key that is not registered, [`StateError::Panicked`] if a key's own code panics.
    pub fn commit_batch(&self, batch: MutationBatch) -> Result<u64, StateError> {
        Ok(self.apply(batch, None)?.revision)
    }

    /// As [`StateStore::commit_batch`], and gives the state after it.
    ///
    /// # Errors
    /// As [`StateStore::commit_batch`].
    pub fn commit_snapshot(&self, batch: MutationBatch) -> Result<Snapshot, StateError> {
        self.apply(batch, None)
    }

    /// Applies a batch that was made from this snapshot, and returns the state after it.
    ///
    /// Commutative updates are accepted at any later revision; an exclusive key must still have the value
    /// seen by the writer of the batch, otherwise the update would undo another writer's change.
    ///
    /// # Errors
    /// [`StateError::ParallelMergeConflict`] if an exclusive key was written in the meantime; otherwise as
    /// [`StateStore::commit_batch`].
    pub fn commit_since(&self, batch: MutationBatch, seen: &Snapshot) -> Result<Snapshot, StateError> {
        self.apply(batch, Some(seen))
    }

    fn apply(&self, batch: MutationBatch, seen: Option<&Snapshot>) -> Result<Snapshot, StateError> {
        let (event, hooks) = {
            let mut inner = self.lock();
            let actual = inner.snapshot.revision;
            if let Some(expected) = batch.base_revision()
                && expected != actual
            {
                return Err(StateError::RevisionConflict { expected, actual });
            }
            let known =
                |t: &&WrittenKey| inner.keys.get(t.key).is_some_and(|known| known.type_id == t.type_id);
            if let Some(unknown) = batch.touched().iter().find(|touched| !known(touched)) {
                return Err(StateError::UnknownKey { key: unknown.key.into() });
            }
            if let Some(seen) = seen
                && let Some(key) =
                    batch.exclusive_keys().find(|key| !seen.ext.is_untouched(key, &inner.snapshot.ext))
            {
                return Err(StateError::ParallelMergeConflict { key: key.into() });
            }
            if batch.is_empty() {
                return Ok(inner.snapshot.clone());
            }
            let touched: Vec<_> = batch.touched_keys().collect();
            let mut map = StateMap::clone(&inner.snapshot.ext);
            catch_unwind(AssertUnwindSafe(|| batch.apply(&mut map))).map_err(|panic| {
                StateError::panicked(format!("an update of state key `{}`", touched.join("` or `")), &*panic)
            })?;
            inner.snapshot = Snapshot { revision: actual + 1, ext: Arc::new(map) };
            (CommitEvent { snapshot: inner.snapshot.clone(), touched }, inner.hooks.clone())
        };
        for hook in hooks {
            hook.committed(&event);
        }
        Ok(event.snapshot)
    }

    /// Resets all run-scoped keys to unset at the start of a new run.
    pub fn clear_run_scope(&self) {
        let mut inner = self.lock();
        let written = |key: &&KeyRegistration| inner.snapshot.ext.erased(key.key).is_some();
        let run_keys: Vec<_> =
            inner.keys.values().filter(|k| k.scope == KeyScope::Run).filter(written).map(|k| k.key).collect();
        if run_keys.is_empty() {
            return;
        }
        let mut map = StateMap::clone(&inner.snapshot.ext);
        for key in run_keys {
            map.remove_erased(key);
        }
        inner.snapshot = Snapshot { revision: inner.snapshot.revision + 1, ext: Arc::new(map) };
    }

    /// Writes all persistent keys (of one scope, when given) as JSON.
    ///
    /// # Errors
    /// [`StateError::KeyEncode`].
    pub fn export(&self, scope: Option<KeyScope>) -> Result<PersistedState, StateError> {
        self.export_where(|key| key.persistent && scope.is_none_or(|scope| scope == key.scope))
    }

    /// Writes the values that front ends may see: those of the keys that declare themselves [shared](StateKey::SHARED).
    ///
    /// # Errors
    /// [`StateError::KeyEncode`].
    pub fn export_shared(&self) -> Result<PersistedState, StateError> {
        self.export_where(|key| key.shared)
    }

    fn export_where(
        &self,
        is_wanted: impl Fn(&KeyRegistration) -> bool,
    ) -> Result<PersistedState, StateError> {
        let inner = self.lock();
        let mut values = BTreeMap::new();
        for registration in inner.keys.values().filter(|key| is_wanted(key)) {
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
