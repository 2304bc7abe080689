//! Grants and the history of prompts.

use super::*;

fn grant(id: &str, expires_at: Option<u64>) -> GrantRecord {
    GrantRecord {
        id: id.into(),
        pattern: "Bash(git status)".into(),
        scope: GrantScope::Thread("t1".into()),
        created_at: 1,
        expires_at,
        max_uses: None,
        uses: 0,
        revoked_at: None,
        suspension_id: None,
        actor: Actor { user: "ada".into(), channel: "tui".into(), pid: 1, ..Actor::default() },
    }
}

#[tokio::test]
async fn grants_hold_until_their_time_or_their_revocation() {
    let store = Store::in_memory().unwrap();
    let active = async |at| {
        let held = store.grants(at).await.unwrap();
        held.into_iter().map(|g| g.id).collect::<Vec<_>>()
    };
    for (id, expires_at) in [("a", None), ("b", Some(100)), ("c", Some(200))] {
        store.add_grant(grant(id, expires_at)).await.unwrap();
    }
    assert!(matches!(store.add_grant(grant("a", None)).await, Err(StoreError::Exists { .. })));
    assert_eq!(active(99).await, ["a", "b", "c"]);
    assert_eq!(active(100).await, ["a", "c"]);
    assert_eq!(active(1).await, ["a", "c"], "a clock that goes back revives nothing");
    assert!(store.revoke_grant("a", 150).await.unwrap());
    assert!(!store.revoke_grant("a", 160).await.unwrap());
    assert!(!store.revoke_grant("z", 160).await.unwrap());
    assert_eq!(active(140).await, ["c"], "taken back is taken back at once");
    let all = store.all_grants().await.unwrap();
    assert_eq!(
        all,
        [
            GrantRecord { revoked_at: Some(150), ..grant("a", None) },
            grant("b", Some(100)),
            grant("c", Some(200))
        ]
    );
}

#[tokio::test]
async fn an_unreadable_grant_allows_nothing() {
    let store = Store::in_memory().unwrap();
    store.add_grant(grant("a", None)).await.unwrap();
    store.add_grant(grant("b", None)).await.unwrap();
    on_connection(&store, |conn| {
        conn.execute("UPDATE grant_row SET body = '{}' WHERE id = 'a'", ()).unwrap()
    })
    .await;
    assert_eq!(store.grants(5).await.unwrap(), [grant("b", None)]);
}

#[tokio::test]
async fn prompts_are_remembered_once_and_by_folder() {
    let store = Store::in_memory().unwrap();
    let (here, there) = (Path::new("/here"), Path::new("/there"));
    for text in ["one", "two", " \n", "one"] {
        store.remember_prompt(here, text).await.unwrap();
    }
    store.remember_prompt(there, "three").await.unwrap();
    assert_eq!(store.prompts(here, 10).await.unwrap(), ["one", "two"]);
    assert_eq!(store.prompts(here, 1).await.unwrap(), ["one"]);
    assert_eq!(store.prompts(there, 10).await.unwrap(), ["three"]);
    for n in 0..1100 {
        store.remember_prompt(here, &format!("prompt {n}")).await.unwrap();
    }
    let kept = store.prompts(here, usize::MAX).await.unwrap();
    assert_eq!((kept.len(), kept[0].as_str()), (1000, "prompt 1099"));
    assert_eq!(store.prompts(there, 10).await.unwrap(), ["three"]);
}
