use super::*;

struct Count;
impl StateKey for Count {
    const KEY: &'static str = "test.count";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = u64;
    type Update = u64;
    fn apply(value: &mut u64, update: u64) {
        *value += update;
    }
}

#[test]
fn a_commit_is_one_revision_and_an_empty_one_is_none() {
    let store = StateStore::new();
    store.register(KeyRegistration::of::<Count>(StateKeyOptions::default())).unwrap();
    assert_eq!(store.commit_batch(MutationBatch::new()), Ok(0));
    let mut batch = MutationBatch::new();
    batch.update::<Count>(2);
    batch.update::<Count>(3);
    assert_eq!(store.commit_batch(batch), Ok(1));
    assert_eq!(store.read::<Count>(), Some(5));
}
