//! Values that outlive a thread.

use std::sync::Arc;

use serde_json::json;

use aye_core::contract::clock::Clock;
use aye_core::contract::profile::StorageError;
use aye_core::contract::storage::ThreadRunStore;

struct Noon;

impl Clock for Noon {
    fn now_ms(&self) -> u64 {
        12
    }
}

pub async fn invalid_names_and_large_values_are_refused(store: &dyn ThreadRunStore) {
    let raw = store.profile_store(Arc::new(Noon)).unwrap();
    for key in ["", "a\0b", &"k".repeat(1025)] {
        assert!(matches!(raw.put("ns", key, json!(1), None).await, Err(StorageError::Serialization(_))));
        assert!(raw.get("ns", key).await.is_err());
    }
    let large = json!("x".repeat(1024 * 1024));
    let refused = raw.put("ns", "k", large, None).await.unwrap_err().to_string();
    assert!(refused.contains("1048576"), "{refused}");
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    assert!(raw.put("ns", "k", deep, None).await.is_err());
    assert_eq!(raw.get("ns", "k").await.unwrap(), None);
}

pub async fn a_version_is_never_reused(store: &dyn ThreadRunStore) {
    let raw = store.profile_store(Arc::new(Noon)).unwrap();
    let first = raw.put("ns", "k", json!(1), Some(0)).await.unwrap();
    let refused = raw.put("ns", "k", json!(2), Some(0)).await.unwrap_err();
    assert_eq!(refused, StorageError::VersionConflict { expected: 0, actual: first });
    assert!(raw.remove("ns", "k").await.unwrap());
    let again = raw.put("ns", "k", json!(3), Some(0)).await.unwrap();
    assert!(again > first, "{again}");
    assert!(raw.put("ns", "k", json!(4), Some(first)).await.is_err());
    assert_eq!(raw.get("ns", "k").await.unwrap().unwrap().value, json!(3));
}

pub async fn values_are_listed_by_key(store: &dyn ThreadRunStore) {
    let raw = store.profile_store(Arc::new(Noon)).unwrap();
    for key in ["b", "a"] {
        raw.put("ns", key, json!(key), None).await.unwrap();
    }
    raw.put("other", "c", json!(0), None).await.unwrap();
    let listed = raw.list("ns").await.unwrap();
    assert_eq!(
        listed.iter().map(|e| (e.key.as_str(), e.updated_at)).collect::<Vec<_>>(),
        [("a", 12), ("b", 12)]
    );
    assert!(raw.remove("ns", "a").await.unwrap());
    assert!(!raw.remove("ns", "a").await.unwrap());
    assert_eq!(raw.get("ns", "b").await.unwrap().unwrap().value, json!("b"));
}
