//! Output that does not fit into a result.

use std::path::Path;

use aye_core::contract::ids::ThreadId;
use aye_core::contract::storage::{ArtifactStore, MAX_ARTIFACT, StoreError};

pub async fn what_was_kept_is_found_by_its_path(store: &dyn ArtifactStore) {
    let (t1, t2): (ThreadId, ThreadId) = ("t1".into(), "../t2".into());
    let all = b"all of it\n\0\xff".to_vec();
    let path = store.keep_artifact(&t1, "result-1.txt", all.clone()).await.unwrap();
    assert!(path.is_absolute() && path.ends_with("result-1.txt"), "{}", path.display());
    assert_eq!(store.artifact(&t1, &path).await.unwrap(), Some(all.clone()));
    assert_eq!(store.keep_artifact(&t1, "result-1.txt", all.clone()).await.unwrap(), path, "once is enough");
    assert_eq!(store.artifact(&t1, Path::new("/elsewhere/result-1.txt")).await.unwrap(), Some(all.clone()));
    assert_eq!(store.artifact(&t2, &path).await.unwrap(), None, "it is another conversation's");
    let other = store.keep_artifact(&t2, "result-1.txt", b"other".to_vec()).await.unwrap();
    assert_ne!(other, path);
    assert_eq!(store.artifact(&t2, &path).await.unwrap(), Some(b"other".to_vec()), "only the name counts");
    assert_eq!(store.artifact(&t1, &path).await.unwrap(), Some(all));
    let empty = store.keep_artifact(&t1, "web-2.txt", Vec::new()).await.unwrap();
    assert_eq!(store.artifact(&t1, &empty).await.unwrap(), Some(Vec::new()));
}

pub async fn what_is_no_name_is_neither_kept_nor_found(store: &dyn ArtifactStore) {
    let thread: ThreadId = "t1".into();
    store.keep_artifact(&thread, "result-1.txt", b"text".to_vec()).await.unwrap();
    let long = "n".repeat(101);
    for name in
        ["", ".", "..", ".hidden", "a/b", "/result-1.txt", "../result-1.txt", "a\0b", "a\nb", "ä", &long]
    {
        let refused = store.keep_artifact(&thread, name, b"text".to_vec()).await;
        assert!(matches!(refused, Err(StoreError::Unwritable { .. })), "{name:?}: {refused:?}");
    }
    for path in ["", "/", "..", "/x/..", "result-2.txt", "/x/result-1.txt/..", "/etc/passwd", "a\0b", &long] {
        assert_eq!(store.artifact(&thread, Path::new(path)).await.unwrap(), None, "{path:?}");
    }
}

pub async fn what_is_too_long_is_refused_and_not_cut(store: &dyn ArtifactStore) {
    let thread: ThreadId = "t1".into();
    let refused = store.keep_artifact(&thread, "result-1.txt", vec![b'x'; MAX_ARTIFACT + 1]).await;
    assert!(matches!(refused, Err(StoreError::Unwritable { .. })), "{refused:?}");
    assert_eq!(store.artifact(&thread, Path::new("/result-1.txt")).await.unwrap(), None);
    let path = store.keep_artifact(&thread, "result-1.txt", vec![b'x'; MAX_ARTIFACT]).await.unwrap();
    assert_eq!(store.artifact(&thread, &path).await.unwrap().map(|all| all.len()), Some(MAX_ARTIFACT));
}
