//! Values that outlive a thread: a model in a map, versions, refusals, two processes on one file.

use std::sync::Arc;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;
use aye_core::contract::clock::Clock;
use aye_core::contract::profile::{
    ProfileAccess, ProfileKey, ProfileKeys, ProfileOwner, StateScope, StorageError,
};

struct Noon;

impl Clock for Noon {
    fn now_ms(&self) -> u64 {
        12
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Team {
    goal: String,
    constraints: Vec<String>,
}

struct TeamKey;
impl ProfileKey for TeamKey {
    const KEY: &'static str = "team_context";
    type Value = Team;
}

struct Count;
impl ProfileKey for Count {
    const KEY: &'static str = "count";
    type Value = u64;
}

fn access(store: &Store) -> ProfileAccess {
    let keys = ProfileKeys::new().with::<TeamKey>().with::<Count>();
    ProfileAccess::new(store.profiles(Arc::new(Noon)), keys)
}

#[test]
fn scope_names_match_the_book() {
    assert_eq!(StateScope::global().as_str(), "global");
    assert_eq!(StateScope::parent_thread(ThreadId::from("t")).as_str(), "parent_thread::t");
    assert_eq!(StateScope::agent_type("planner").as_str(), "agent_type::planner");
    assert_eq!(StateScope::thread("t").as_str(), "thread::t");
    assert_eq!(StateScope::new("tenant/7").to_string(), "tenant/7");
    assert_eq!(ProfileOwner::System.as_str(), "system");
    assert_eq!(ProfileOwner::Agent("alice".into()).as_str(), "alice");
}

#[tokio::test]
async fn a_value_outlives_the_process_and_a_missing_one_is_the_default() {
    let home = Home::new();
    let store = home.open();
    let team = Team { goal: "ship".into(), constraints: vec!["soon".into()] };
    let scope = StateScope::global();
    access(&store).write::<TeamKey>(scope.as_str(), &team).await.unwrap();
    store.close().await;

    let store = home.open();
    let profile = access(&store);
    assert_eq!(profile.read::<TeamKey>(scope.as_str()).await.unwrap(), team);
    assert_eq!(profile.read::<TeamKey>("alice").await.unwrap(), Team::default());
    // The other namespace has the same keys with other values.
    assert_eq!(profile.read::<Count>(scope.as_str()).await.unwrap(), 0);
    assert_eq!(profile.list::<TeamKey>().await.unwrap(), [("global".to_owned(), team)]);
    profile.delete::<TeamKey>(scope.as_str()).await.unwrap();
    profile.delete::<TeamKey>(scope.as_str()).await.unwrap();
    assert_eq!(profile.read::<TeamKey>(scope.as_str()).await.unwrap(), Team::default());
    let entry = store.profiles(Arc::new(Noon));
    assert_eq!(entry.get("team_context", "global").await.unwrap(), None);
}

#[tokio::test]
async fn an_unregistered_namespace_is_refused_by_name() {
    let store = Store::in_memory().unwrap();
    let profile = ProfileAccess::new(store.profiles(Arc::new(Noon)), ProfileKeys::new().with::<Count>());
    let refused = profile.write::<TeamKey>("global", &Team::default()).await.unwrap_err();
    assert_eq!(refused, StorageError::NotFound("profile key not registered: team_context".into()));
    assert!(profile.read::<TeamKey>("global").await.is_err());
    assert!(profile.delete::<TeamKey>("global").await.is_err());
    assert!(profile.list::<TeamKey>().await.is_err());
}

#[tokio::test]
async fn two_types_cannot_share_a_namespace() {
    struct Other;
    impl ProfileKey for Other {
        const KEY: &'static str = "count";
        type Value = String;
    }
    let mut keys = ProfileKeys::new();
    keys.register::<Count>().unwrap();
    keys.register::<Count>().unwrap();
    let refused = keys.register::<Other>().unwrap_err();
    assert_eq!(refused.to_string(), "profile key `count` is registered with two types");
    assert!(keys.knows::<Count>() && !keys.knows::<Other>());
    // A foreign value is an error, not a default that the next write would store in its place.
    let store = Store::in_memory().unwrap();
    let raw = store.profiles(Arc::new(Noon));
    raw.put("count", "k", json!("seven"), None).await.unwrap();
    assert!(matches!(access(&store).read::<Count>("k").await, Err(StorageError::Serialization(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_of_two_processes_are_all_kept() {
    let home = Home::new();
    let stores = [home.open(), home.open()];
    let mut tasks = Vec::new();
    for store in &stores {
        for _ in 0..4 {
            let profile = access(store);
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let count = |n: &mut u64| {
                        *n += 1;
                        Ok::<_, ()>(())
                    };
                    profile.update::<Count, _, _>("all", count).await.unwrap().unwrap();
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(access(&stores[0]).read::<Count>("all").await.unwrap(), 40);
    let refused = access(&stores[0])
        .update::<Count, (), _>("all", |n| {
            *n = 0;
            Err("no")
        })
        .await;
    assert_eq!(refused, Ok(Err("no")));
    assert_eq!(access(&stores[1]).read::<Count>("all").await.unwrap(), 40);
}

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u8, i64, Option<bool>),
    Remove(u8, u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..2u8, 0..3u8, any::<i64>(), prop::option::of(any::<bool>())).prop_map(|(n, k, v, e)| Op::Put(n, k, v, e)),
        1 => (0..2u8, 0..3u8).prop_map(|(n, k)| Op::Remove(n, k)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn the_table_is_a_map(ops in prop::collection::vec(op(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = Store::in_memory().unwrap();
            let raw = store.profiles(Arc::new(Noon));
            let mut model: BTreeMap<(String, String), (u64, i64)> = BTreeMap::new();
            let mut newest = 0;
            for op in ops {
                match op {
                    Op::Put(n, k, value, expect) => {
                        let name = (format!("n{n}"), format!("k{k}"));
                        let there = model.get(&name).map_or(0, |(version, _)| *version);
                        // Either the current version, or one that does not exist.
                        let expected = expect.map(|right| if right { there } else { newest + 1 });
                        match raw.put(&name.0, &name.1, json!(value), expected).await {
                            Ok(version) => {
                                prop_assert!(expect != Some(false) && version > newest);
                                newest = version;
                                model.insert(name, (version, value));
                            }
                            Err(error) => {
                                let refused = StorageError::VersionConflict { expected: newest + 1, actual: there };
                                prop_assert_eq!(error, refused);
                                prop_assert_eq!(expect, Some(false));
                            }
                        }
                    }
                    Op::Remove(n, k) => {
                        let name = (format!("n{n}"), format!("k{k}"));
                        let was = raw.remove(&name.0, &name.1).await.unwrap();
                        prop_assert_eq!(was, model.remove(&name).is_some());
                    }
                }
                for n in ["n0", "n1"] {
                    let listed = raw.list(n).await.unwrap();
                    let found: Vec<_> = listed.iter().map(|e| (e.key.as_str(), e.version, e.value.clone(), e.updated_at)).collect();
                    let wanted: Vec<_> = model
                        .iter()
                        .filter(|((ns, _), _)| ns == n)
                        .map(|((_, k), (version, value))| (k.as_str(), *version, json!(value), 12))
                        .collect();
                    prop_assert_eq!(found, wanted);
                }
            }
            Ok(())
        })?;
    }
}
