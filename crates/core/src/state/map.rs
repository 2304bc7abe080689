use std::collections::BTreeMap;
use std::sync::Arc;

use super::StateKey;
use super::key::ErasedValue;

/// The values of all keys that were ever written, by key.
#[derive(Clone, Default)]
pub struct StateMap {
    values: BTreeMap<&'static str, ErasedValue>,
}

impl StateMap {
    /// The value of `K`, or `None` when it was never written.
    pub fn get<K: StateKey>(&self) -> Option<&K::Value> {
        self.values.get(K::KEY)?.downcast_ref::<K::Value>()
    }

    /// Returns whether `K` was ever written.
    pub fn contains<K: StateKey>(&self) -> bool {
        self.values.contains_key(K::KEY)
    }

    /// Returns the value of `K` for modification. Snapshots are not affected: a shared value is copied first.
    pub fn get_mut<K: StateKey>(&mut self) -> Option<&mut K::Value> {
        if Arc::get_mut(self.values.get_mut(K::KEY)?).is_none() {
            let own = self.get::<K>()?.clone();
            self.insert::<K>(own);
        }
        self.unshared::<K>()
    }

    /// Sets the value of `K`.
    pub fn insert<K: StateKey>(&mut self, value: K::Value) {
        self.set_erased(K::KEY, Arc::new(value));
    }

    /// Takes the value of `K` out.
    pub fn remove<K: StateKey>(&mut self) -> Option<K::Value> {
        let value = self.get::<K>()?.clone();
        self.remove_erased(K::KEY);
        Some(value)
    }

    /// The value of `K`, to be changed; its default when it was never written.
    pub fn get_or_insert_default<K: StateKey>(&mut self) -> &mut K::Value {
        if self.get::<K>().is_none() {
            self.insert::<K>(K::Value::default());
        }
        self.get_mut::<K>().expect("it was just put there")
    }

    pub(super) fn unshared<K: StateKey>(&mut self) -> Option<&mut K::Value> {
        Arc::get_mut(self.values.get_mut(K::KEY)?)?.downcast_mut::<K::Value>()
    }

    pub(super) fn erased(&self, key: &str) -> Option<&ErasedValue> {
        self.values.get(key)
    }

    pub(super) fn set_erased(&mut self, key: &'static str, value: ErasedValue) {
        self.values.insert(key, value);
    }

    /// Returns whether the key has the very same value in both maps: nothing was written in between.
    pub(super) fn is_untouched(&self, key: &str, other: &Self) -> bool {
        match (self.values.get(key), other.values.get(key)) {
            (None, None) => true,
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    pub(super) fn remove_erased(&mut self, key: &str) -> bool {
        self.values.remove(key).is_some()
    }
}

impl std::fmt::Debug for StateMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

/// The state at one revision; never changes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Counts commits that changed something.
    pub revision: u64,
    pub ext: Arc<StateMap>,
}

impl Snapshot {
    /// A state at a revision, for tests of what reads it.
    pub fn new(revision: u64, ext: Arc<StateMap>) -> Self {
        Self { revision, ext }
    }

    /// Counts commits that changed something.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn ext(&self) -> &StateMap {
        &self.ext
    }

    /// The value of `K`, or `None` when it was never written.
    pub fn get<K: StateKey>(&self) -> Option<&K::Value> {
        self.ext.get::<K>()
    }

    /// The same as [`Snapshot::get`], under the name that contexts have for it.
    pub fn state<K: StateKey>(&self) -> Option<&K::Value> {
        self.get::<K>()
    }
}
