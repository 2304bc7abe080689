//! Stores for threads and runs, and state by key.

use std::sync::Arc;

use aye::contract::MailboxStore;
use aye::contract::event_sink::VecEventSink;
use aye::contract::mailbox::MailboxJob;
use aye::contract::message::Message;
use aye::contract::storage::{ThreadRunStore, ThreadStore as _};
use aye::engine::MockLlmExecutor;
use aye::stores::{FileStore, InMemoryMailboxStore, InMemoryStore};
use aye::{
    AgentRuntimeBuilder, AgentSpec, KeyScope, MergeStrategy, ModelSpec, PersistedState, RunRequest, Snapshot,
    StateKey, StateKeyOptions, StateMap,
};

fn builder() -> AgentRuntimeBuilder {
    let model = ModelSpec { id: "m".into(), provider: "mock".into(), model: "m".into() };
    AgentRuntimeBuilder::new()
        .with_agent_spec(AgentSpec::new("assistant").with_model("m"))
        .with_provider("mock", Arc::new(MockLlmExecutor::new().with_responses(vec!["Noted.".into()])))
        .with_model("m", model)
}

async fn say<S: ThreadRunStore>(store: &Arc<S>, text: &str) {
    let runtime = builder().with_thread_run_store(Arc::clone(store)).build().expect("a runtime");
    let request = RunRequest::new("thread-1", vec![Message::user(text)]).with_agent_id("assistant");
    runtime.run(request, Arc::new(VecEventSink::new())).await.expect("a run");
}

async fn texts<S: ThreadRunStore>(store: &S) -> Vec<String> {
    let messages = store.load_messages(&"thread-1".into()).await.expect("messages");
    messages.iter().map(|stored| stored.message.text()).collect()
}

#[tokio::test]
async fn an_in_memory_store_is_shared_by_its_holders() {
    let store = Arc::new(InMemoryStore::new());
    say(&store, "one").await;
    say(&store, "two").await;
    assert_eq!(texts(&*store).await, ["one", "Noted.", "two", "Noted."]);
    assert_eq!(InMemoryStore::new().load_thread(&"thread-1".into()).await.expect("another"), None);
}

#[tokio::test]
async fn a_store_in_a_folder_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("data");
    let store = Arc::new(FileStore::new(&place));
    assert!(!place.exists(), "nothing is created before it is needed");
    say(&store, "one").await;
    store.store().expect("open").close().await;
    assert!(place.join(FileStore::FILE).is_file());
    let again = Arc::new(FileStore::new(&place));
    say(&again, "two").await;
    assert_eq!(texts(&*again).await, ["one", "Noted.", "two", "Noted."]);
    let store = again.store().expect("open");
    let run = store.latest_run(&"thread-1".into()).await.expect("a result").expect("a run");
    assert_eq!((run.agent_id.as_str(), run.steps), ("assistant", 1));
    store.close().await;
}

#[tokio::test]
async fn an_impossible_folder_is_reported_when_the_runtime_is_built() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let store = Arc::new(FileStore::new(file.path().join("below")));
    let error = builder().with_thread_run_store(store).build().expect_err("no runtime");
    assert!(error.to_string().contains("below"), "{error}");
}

struct Steps;

impl StateKey for Steps {
    const KEY: &'static str = "steps";
    const SCOPE: KeyScope = KeyScope::Thread;
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = usize;
    type Update = usize;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value += update;
    }
}

#[test]
fn a_state_map_is_read_and_written_by_key() {
    let mut map = StateMap::default();
    assert!(!map.contains::<Steps>());
    *map.get_or_insert_default::<Steps>() += 2;
    *map.get_mut::<Steps>().expect("a value") += 1;
    assert_eq!(map.get::<Steps>(), Some(&3));
    let snapshot = Snapshot::new(7, Arc::new(map.clone()));
    assert_eq!((snapshot.revision(), snapshot.get::<Steps>()), (7, Some(&3)));
    assert!(snapshot.ext().contains::<Steps>());
    assert_eq!(map.remove::<Steps>(), Some(3));
    map.insert::<Steps>(9);
    assert_eq!(snapshot.get::<Steps>(), Some(&3), "a snapshot does not change");
    let options = StateKeyOptions::default();
    assert!(options.persistent && options.scope == KeyScope::Run);
    let state = PersistedState { revision: 7, values: std::collections::BTreeMap::new() };
    assert_eq!(state.revision, 7);
}

#[tokio::test]
async fn an_in_memory_mailbox_works_with_any_store() {
    let store = Arc::new(InMemoryMailboxStore::new()) as Arc<dyn MailboxStore>;
    let job = MailboxJob::new("thread-1", vec![Message::user("later")], 1);
    let job = store.enqueue(job).await.expect("queued");
    let claimed = store.claim(&job.mailbox_id, "worker", 1, 2, 1000).await.expect("a claim");
    assert_eq!(claimed[0].messages[0].text(), "later");
}
