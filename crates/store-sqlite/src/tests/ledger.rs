//! Grants and the prompt history.

use super::*;
use aye_core::contract::judgement::{JudgedCall, Judgement, Risk, Ruling, SandboxOpening};
use aye_core::contract::mode::Mode;

pub(super) fn grant(id: &str, expires_at: Option<u64>) -> GrantRecord {
    GrantRecord {
        id: id.into(),
        pattern: "Bash(git status)".into(),
        scope: GrantScope::Thread("t1".into()),
        created_at: 1,
        expires_at,
        sandbox: None,
        max_uses: None,
        uses: 0,
        revoked_at: None,
        suspension_id: None,
        actor: Actor { user: "ada".into(), channel: "tui".into(), pid: 1, ..Actor::default() },
    }
}

#[tokio::test]
async fn grants_hold_until_expiry_or_revocation() {
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
    assert_eq!(active(1).await, ["a", "c"], "setting the clock back revives nothing");
    assert!(store.revoke_grant("a", 150).await.unwrap());
    assert!(!store.revoke_grant("a", 160).await.unwrap());
    assert!(!store.revoke_grant("z", 160).await.unwrap());
    assert_eq!(active(140).await, ["c"], "a revocation takes effect at once");
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

/// Uses are counted for all grants of a call or for none.
#[tokio::test]
async fn uses_are_counted_until_exhausted() {
    let store = Store::in_memory().unwrap();
    let few = |id: &str, uses| GrantRecord { max_uses: Some(uses), ..grant(id, None) };
    for grant in [few("one", 1), few("two", 2), grant("late", Some(100)), grant("free", None)] {
        store.add_grant(grant).await.unwrap();
    }
    let spend = async |ids: &[&str], at| {
        store.spend_grants(ids.iter().map(|id| (*id).to_owned()).collect(), at).await.unwrap()
    };
    assert_eq!(spend(&["one", "two"], 50).await, None);
    assert_eq!(spend(&["two", "one"], 50).await.as_deref(), Some("one"));
    let uses = async |id: &str| {
        let all = store.all_grants().await.unwrap();
        all.into_iter().find(|grant| grant.id == id).unwrap().uses
    };
    assert_eq!((uses("one").await, uses("two").await), (1, 1), "none of them was counted");
    assert_eq!(spend(&["two", "free"], 50).await, None);
    assert_eq!(spend(&["two"], 50).await.as_deref(), Some("two"));
    assert_eq!(spend(&["late"], 99).await, None);
    assert_eq!(spend(&["late"], 100).await.as_deref(), Some("late"));
    assert_eq!(spend(&["no such"], 1).await.as_deref(), Some("no such"));
    store.revoke_grant("free", 60).await.unwrap();
    assert_eq!(spend(&["free"], 70).await.as_deref(), Some("free"));
    assert!(store.grants(200).await.unwrap().is_empty());
    let ended: Vec<String> = store.ended_grants(10).await.unwrap().into_iter().map(|g| g.id).collect();
    assert_eq!(ended, ["free", "late", "two", "one"]);
    assert_eq!(store.ended_grants(1).await.unwrap().len(), 1);
}

fn judged(call: &str, tool: &str, command: &str, cwd: &str, at: u64) -> JudgedCall {
    let judgement = Judgement {
        guards_git: false,
        profile: None,
        ruling: Ruling::Ask,
        rule: None,
        origin: None,
        why: String::new(),
        grant: None,
        other_grants: Vec::new(),
        opened: SandboxOpening::default(),
        paths: Vec::new(),
        mode: Mode::Ask,
        risk: Risk::Runs,
        tried: Vec::new(),
    };
    let arguments = json!({ "command": command });
    let (call_id, tool, cwd) = (call.into(), tool.to_owned(), cwd.to_owned());
    JudgedCall { call_id, tool, arguments, cwd, answered: false, judgement, at }
}

#[tokio::test]
async fn past_calls_are_listed_newest_first_with_denials() {
    let store = Store::in_memory().unwrap();
    let (fence, run) = waiting(&store, None).await;
    let judged = vec![
        judged("c0", "Bash", "ls", "/work", 10),
        judged("c1", "Bash", "date", "/work/sub", 11),
        judged("c2", "Read", "x", "/work", 12),
        judged("c3", "Bash", "date", "/elsewhere", 13),
        judged("c4", "Bash", "date", "/workshop", 14),
        // Judged again when the answer arrived.
        judged("c1", "Bash", "date", "/work/sub", 15),
    ];
    let opened = vec![question("q0", &run, "c0", None)];
    store.checkpoint(Checkpoint { judged, opened, ..checkpoint(&fence, &run) }).await.unwrap();
    store.decide(&"q1".into(), no("d1"), 30).await.unwrap();
    // A setting denies it: no user did.
    let mut by_policy = no("d0");
    by_policy.actor.channel = aye_core::contract::suspension::CHANNEL_POLICY.into();
    store.decide(&"q0".into(), by_policy, 31).await.unwrap();
    let calls = store.recent_calls("Bash", Path::new("/work"), 100).await.unwrap();
    let told: Vec<_> = calls.iter().map(|c| (c.id.1.as_str(), c.at, c.declined)).collect();
    assert_eq!(told, [("c1", 11, true), ("c0", 10, false)]);
    assert_eq!(calls[1].arguments, json!({"command": "ls"}));
    assert!(
        store.recent_calls("Bash", Path::new("/work"), 1).await.unwrap().is_empty(),
        "only the newest rows"
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
async fn prompts_are_remembered_once_per_folder() {
    let store = Store::in_memory().unwrap();
    let (here, there) = (Path::new("/here"), Path::new("/there"));
    for text in ["one", "two", " \n", "one"] {
        store.remember_prompt(here, text).await.unwrap();
    }
    store.remember_prompt(there, "three").await.unwrap();
    assert_eq!(store.prompts(here, 10).await.unwrap(), ["one", "two"]);
    assert_eq!(store.prompts(here, 1).await.unwrap(), ["one"]);
    assert_eq!(store.prompts(there, 10).await.unwrap(), ["three"]);
    for n in 0..1099 {
        store.remember_prompt(here, &format!("prompt {n}")).await.unwrap();
    }
    let kept = store.prompts(here, usize::MAX).await.unwrap();
    assert_eq!((kept.len(), kept[0].as_str()), (1000, "prompt 1098"));
    assert_eq!(store.prompts(there, 10).await.unwrap(), ["three"]);
}
