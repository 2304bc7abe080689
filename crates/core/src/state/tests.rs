use std::collections::BTreeMap;
use std::sync::Mutex;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Commutative, kept across runs of a thread.
struct Count;
impl StateKey for Count {
    const KEY: &'static str = "test.count";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = u64;
    type Update = u64;
    fn apply(value: &mut u64, update: u64) {
        *value += update;
    }
}

/// Commutative, kept for the run and across restarts.
struct Tags;
impl StateKey for Tags {
    const KEY: &'static str = "test.tags";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = BTreeMap<String, u64>;
    type Update = String;
    fn apply(value: &mut Self::Value, update: String) {
        *value.entry(update).or_default() += 1;
    }
}

/// Exclusive, in memory only.
struct Text;
impl StateKey for Text {
    const KEY: &'static str = "test.text";
    type Value = String;
    type Update = String;
    fn apply(value: &mut String, update: String) {
        value.push_str(&update);
    }
}

/// Has the name of another key and was never registered.
struct Impostor;
impl StateKey for Impostor {
    const KEY: &'static str = "test.count";
    type Value = String;
    type Update = String;
    fn apply(value: &mut String, update: String) {
        *value = update;
    }
}

struct Fragile;
impl StateKey for Fragile {
    const KEY: &'static str = "test.fragile";
    type Value = u8;
    type Update = u8;
    fn apply(_: &mut u8, update: u8) {
        assert_ne!(update, 13, "unlucky");
    }
}

fn store() -> StateStore {
    let store = StateStore::new();
    let passing = StateKeyOptions { persistent: false, ..StateKeyOptions::default() };
    store.register(KeyRegistration::of::<Count>(passing)).unwrap();
    store.register(KeyRegistration::of::<Tags>(StateKeyOptions::default())).unwrap();
    store.register(KeyRegistration::of::<Text>(passing)).unwrap();
    store
}

fn batch(make: impl FnOnce(&mut MutationBatch)) -> MutationBatch {
    let mut batch = MutationBatch::new();
    make(&mut batch);
    batch
}

#[test]
fn a_commit_is_one_revision_and_an_empty_one_is_none() {
    let store = store();
    assert_eq!(store.commit_batch(MutationBatch::new()), Ok(0));
    let two = batch(|b| {
        b.update::<Count>(2);
        b.update::<Count>(3);
    });
    assert_eq!(store.commit_batch(two), Ok(1));
    assert_eq!(store.read::<Count>(), Some(5));
}

#[test]
fn a_snapshot_never_changes() {
    let store = store();
    store.commit_batch(batch(|b| b.update::<Text>("a".into()))).unwrap();
    let before = store.snapshot();
    let more = batch(|b| {
        b.update::<Text>("b".into());
        b.update::<Text>("c".into());
    });
    store.commit_batch(more).unwrap();
    assert_eq!((before.get::<Text>().unwrap().as_str(), before.revision), ("a", 1));
    assert_eq!(store.read::<Text>().as_deref(), Some("abc"));
}

#[test]
fn a_stale_or_unknown_batch_is_refused_as_a_whole() {
    let store = store();
    store.commit_batch(batch(|b| b.update::<Count>(1))).unwrap();
    let mut stale = MutationBatch::with_base_revision(0);
    stale.update::<Text>("lost".into());
    assert_eq!(store.commit_batch(stale), Err(StateError::RevisionConflict { expected: 0, actual: 1 }));
    // An empty batch with a base revision is refused as well: its maker saw an old state.
    let empty = MutationBatch::with_base_revision(0);
    assert!(store.commit_batch(empty).is_err());
    let unknown = batch(|b| {
        b.update::<Count>(1);
        b.update::<Fragile>(1);
    });
    assert_eq!(store.commit_batch(unknown), Err(StateError::UnknownKey { key: "test.fragile".into() }));
    let mixed = batch(|b| {
        b.update::<Count>(1);
        b.update::<Impostor>("x".into());
    });
    assert_eq!(store.commit_batch(mixed), Err(StateError::UnknownKey { key: "test.count".into() }));
    assert_eq!((store.read::<Count>(), store.read::<Text>(), store.snapshot().revision), (Some(1), None, 1));
}

#[test]
fn an_exclusive_write_over_an_unseen_value_is_refused() {
    let store = store();
    let seen = store.snapshot();
    store.commit_batch(batch(|b| b.update::<Count>(1))).unwrap();
    let after = store.commit_since(batch(|b| b.update::<Text>("a".into())), &seen).unwrap();
    assert_eq!(after.revision, 2, "another key was written meanwhile, which is fine");
    let late = batch(|b| {
        b.update::<Text>("b".into());
        b.update::<Count>(1);
    });
    let conflict = StateError::ParallelMergeConflict { key: "test.text".into() };
    assert_eq!(store.commit_since(late, &seen).unwrap_err(), conflict);
    store.commit_since(batch(|b| b.update::<Count>(1)), &seen).unwrap();
    assert_eq!((store.read::<Count>(), store.read::<Text>()), (Some(2), Some("a".into())));
}

#[test]
fn a_panicking_update_changes_and_breaks_nothing() {
    let store = store();
    store.register(KeyRegistration::of::<Fragile>(StateKeyOptions::default())).unwrap();
    let bad = batch(|b| {
        b.update::<Count>(1);
        b.update::<Fragile>(13);
    });
    let error = store.commit_batch(bad).unwrap_err();
    assert!(error.to_string().starts_with("an update of state key `test.count` or `test.fragile` panicked"));
    assert_eq!((store.read::<Count>(), store.snapshot().revision), (None, 0));
    assert_eq!(store.commit_batch(batch(|b| b.update::<Count>(1))), Ok(1));
}

#[test]
fn batches_writing_one_exclusive_key_cannot_merge() {
    let text = || batch(|b| b.update::<Text>("a".into()));
    let conflict = StateError::ParallelMergeConflict { key: "test.text".into() };
    assert_eq!(text().merge(text()).unwrap_err(), conflict);
    let mut left = MutationBatch::with_base_revision(1);
    left.update::<Count>(1);
    let right = MutationBatch::with_base_revision(2);
    let mismatch = StateError::MutationBaseRevisionMismatch { left: 1, right: 2 };
    assert_eq!(left.merge(right).unwrap_err(), mismatch);
    let mut based = MutationBatch::with_base_revision(1);
    based.update::<Count>(1);
    assert_eq!(text().merge(based).unwrap().base_revision(), Some(1));
}

#[test]
fn a_new_run_keeps_thread_state() {
    let store = store();
    let all = batch(|b| {
        b.update::<Count>(1);
        b.update::<Tags>("t".into());
        b.update::<Text>("x".into());
    });
    store.commit_batch(all).unwrap();
    store.clear_run_scope();
    assert_eq!((store.read::<Count>(), store.read::<Tags>(), store.read::<Text>()), (Some(1), None, None));
}

#[test]
fn unknown_stored_keys_are_refused_or_dropped() {
    let store = store();
    let stored =
        |values: JsonValue| PersistedState { revision: 7, values: serde_json::from_value(values).unwrap() };
    let state = stored(json!({"test.count": 3, "gone": 1}));
    let unknown = StateError::UnknownKey { key: "gone".into() };
    assert_eq!(store.restore(state.clone(), UnknownKeyPolicy::Error), Err(unknown));
    assert_eq!(store.read::<Count>(), None);
    store.restore(state, UnknownKeyPolicy::Skip).unwrap();
    assert_eq!((store.read::<Count>(), store.snapshot().revision), (Some(3), 8));
    let bad = stored(json!({"test.count": "three", "test.tags": {"a": 1}}));
    assert!(matches!(store.restore(bad, UnknownKeyPolicy::Skip), Err(StateError::KeyDecode { .. })));
    assert_eq!((store.read::<Count>(), store.read::<Tags>()), (Some(3), None));
}

#[derive(Default)]
struct Listener(Mutex<Vec<(u64, Vec<&'static str>)>>);
impl CommitHook for Listener {
    fn committed(&self, event: &CommitEvent) {
        self.0.lock().unwrap().push((event.snapshot.revision, event.touched.clone()));
    }
}

#[test]
fn listeners_receive_each_effective_commit() {
    let store = store();
    let listener = std::sync::Arc::new(Listener::default());
    store.on_commit(listener.clone());
    store.commit_batch(MutationBatch::new()).unwrap();
    let two = batch(|b| {
        b.update::<Text>("a".into());
        b.update::<Count>(1);
        b.update::<Text>("b".into());
    });
    store.commit_batch(two).unwrap();
    assert_eq!(*listener.0.lock().unwrap(), [(1, vec!["test.text", "test.count"])]);
}

/// One update of a random batch.
#[derive(Clone, Debug)]
enum Op {
    Count(u64),
    Tag(String),
    Text(String),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![(0..9_u64).prop_map(Op::Count), "[a-c]".prop_map(Op::Tag), "[a-z]{0,2}".prop_map(Op::Text),]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(), 0..6)
}

fn batch_of(ops: &[Op]) -> MutationBatch {
    batch(|b| {
        for op in ops {
            match op {
                Op::Count(n) => b.update::<Count>(*n),
                Op::Tag(tag) => b.update::<Tags>(tag.clone()),
                Op::Text(text) => b.update::<Text>(text.clone()),
            }
        }
    })
}

type Values = (Option<u64>, Option<BTreeMap<String, u64>>, Option<String>);

fn values(store: &StateStore) -> Values {
    (store.read::<Count>(), store.read::<Tags>(), store.read::<Text>())
}

fn has_text(ops: &[Op]) -> bool {
    ops.iter().any(|op| matches!(op, Op::Text(_)))
}

proptest! {
    #[test]
    fn merging_equals_committing_in_sequence(left in ops(), right in ops()) {
        let merged = batch_of(&left).merge(batch_of(&right));
        prop_assert_eq!(merged.is_err(), has_text(&left) && has_text(&right));
        if let Ok(merged) = merged {
            let (once, twice) = (store(), store());
            once.commit_batch(merged).unwrap();
            twice.commit_batch(batch_of(&left)).unwrap();
            twice.commit_batch(batch_of(&right)).unwrap();
            prop_assert_eq!(values(&once), values(&twice));
        }
    }

    #[test]
    fn mergeable_batches_merge_in_any_order(left in ops(), right in ops()) {
        if let Ok(forth) = batch_of(&left).merge(batch_of(&right)) {
            let back = batch_of(&right).merge(batch_of(&left)).unwrap();
            let (one, other) = (store(), store());
            one.commit_batch(forth).unwrap();
            other.commit_batch(back).unwrap();
            prop_assert_eq!(values(&one), values(&other));
        }
    }

    #[test]
    fn each_effective_batch_is_one_revision(batches in proptest::collection::vec(ops(), 0..6)) {
        let store = store();
        for ops in &batches {
            store.commit_batch(batch_of(ops)).unwrap();
        }
        let changing = batches.iter().filter(|ops| !ops.is_empty()).count();
        prop_assert_eq!(store.snapshot().revision, changing as u64);
    }

    /// Exactly one of several writers of a snapshot keeps the exclusive key; all keep the others.
    #[test]
    fn no_exclusive_write_overwrites_an_unseen_one(writers in proptest::collection::vec(ops(), 1..6)) {
        let store = store();
        let seen = store.snapshot();
        let mut kept = Vec::new();
        for ops in writers {
            match store.commit_since(batch_of(&ops), &seen) {
                Ok(_) => kept.push(ops),
                Err(error) => {
                    let conflict = StateError::ParallelMergeConflict { key: "test.text".into() };
                    prop_assert_eq!(error, conflict);
                    prop_assert!(has_text(&ops));
                    prop_assert!(kept.iter().any(|ops| has_text(ops)));
                }
            }
        }
        prop_assert!(kept.iter().filter(|ops| has_text(ops)).count() <= 1);
        let replay = self::store();
        for ops in &kept {
            replay.commit_batch(batch_of(ops)).unwrap();
        }
        prop_assert_eq!(values(&store), values(&replay));
    }

    #[test]
    fn a_refused_batch_changes_nothing(before in ops(), ops in ops()) {
        let store = store();
        store.commit_batch(batch_of(&before)).unwrap();
        let state = (values(&store), store.snapshot().revision);
        let mut stale = MutationBatch::with_base_revision(state.1 + 1);
        stale = stale.merge(batch_of(&ops)).unwrap();
        prop_assert!(store.commit_batch(stale).is_err());
        let mut unknown = batch_of(&ops);
        unknown.update::<Fragile>(1);
        prop_assert!(store.commit_batch(unknown).is_err());
        prop_assert_eq!((values(&store), store.snapshot().revision), state);
    }

    #[test]
    fn exported_state_restores_unchanged(batches in proptest::collection::vec(ops(), 0..6)) {
        let store = store();
        for ops in &batches {
            store.commit_batch(batch_of(ops)).unwrap();
        }
        let exported = store.export(None).unwrap();
        let text = serde_json::to_string(&exported).unwrap();
        let again = self::store();
        again.restore(serde_json::from_str(&text).unwrap(), UnknownKeyPolicy::Error).unwrap();
        // `Text` is not persistent.
        prop_assert_eq!(values(&again), (store.read::<Count>(), store.read::<Tags>(), None));
        prop_assert_eq!(again.export(None).unwrap().values, exported.values.clone());
        let mut scopes = store.export(Some(KeyScope::Run)).unwrap().values;
        prop_assert!(!scopes.contains_key("test.count"));
        scopes.extend(store.export(Some(KeyScope::Thread)).unwrap().values);
        prop_assert_eq!(scopes, exported.values);
    }
}
