use std::any::TypeId;

use super::key::update;
use super::{MergeStrategy, StateError, StateKey, StateMap};

type Op = Box<dyn FnOnce(&mut StateMap) + Send>;

/// Updates that are applied together or not at all.
#[derive(Default)]
pub struct MutationBatch {
    base_revision: Option<u64>,
    ops: Vec<Op>,
    touched: Vec<WrittenKey>,
}

/// A key written by a batch, listed once. The type distinguishes two key types that share a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrittenKey {
    pub(super) key: &'static str,
    pub(super) merge: MergeStrategy,
    pub(super) type_id: TypeId,
}

impl MutationBatch {
    /// An empty batch that fits any revision.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch that is refused unless the state still has this revision.
    pub fn with_base_revision(revision: u64) -> Self {
        Self { base_revision: Some(revision), ..Self::default() }
    }

    /// The revision the batch insists on, if any.
    pub fn base_revision(&self) -> Option<u64> {
        self.base_revision
    }

    pub fn update<K: StateKey>(&mut self, change: K::Update) {
        self.ops.push(Box::new(move |map| update::<K>(map, change)));
        self.touch(WrittenKey { key: K::KEY, merge: K::MERGE, type_id: TypeId::of::<K>() });
    }

    fn touch(&mut self, touched: WrittenKey) {
        if !self.touched.contains(&touched) {
            self.touched.push(touched);
        }
    }

    /// Returns whether the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The keys that would be written, each once.
    pub fn touched_keys(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.touched.iter().map(|touched| touched.key)
    }

    /// The exclusive keys that would be written, each once.
    pub fn exclusive_keys(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.touched.iter().filter(|t| t.merge == MergeStrategy::Exclusive).map(|touched| touched.key)
    }

    pub(super) fn touched(&self) -> &[WrittenKey] {
        &self.touched
    }

    /// The first exclusive key that both batches write.
    pub fn conflict(&self, other: &Self) -> Option<&'static str> {
        self.exclusive_keys().find(|key| other.touched.iter().any(|touched| touched.key == *key))
    }

    /// Appends the other batch's updates.
    ///
    /// # Errors
    /// [`StateError::ParallelMergeConflict`] when both write one exclusive key,
    /// [`StateError::MutationBaseRevisionMismatch`] when they insist on different revisions.
    pub fn merge(mut self, other: Self) -> Result<Self, StateError> {
        if let (Some(left), Some(right)) = (self.base_revision, other.base_revision)
            && left != right
        {
            return Err(StateError::MutationBaseRevisionMismatch { left, right });
        }
        if let Some(key) = self.conflict(&other) {
            return Err(StateError::ParallelMergeConflict { key: key.into() });
        }
        self.append(other);
        Ok(self)
    }

    /// Appends the other batch's updates after this batch's own, without checking for conflicts: for parts of
    /// a single writer.
    pub(super) fn append(&mut self, other: Self) {
        self.base_revision = self.base_revision.or(other.base_revision);
        self.ops.extend(other.ops);
        for touched in other.touched {
            self.touch(touched);
        }
    }

    pub(super) fn apply(self, map: &mut StateMap) {
        for op in self.ops {
            op(map);
        }
    }
}

impl std::fmt::Debug for MutationBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MutationBatch")
            .field("base_revision", &self.base_revision)
            .field("ops", &self.ops.len())
            .field("touched", &self.touched)
            .finish()
    }
}
