//! A runtime for the same agents on another store, and another runtime on the same one.

use super::*;
use aye_local::InMemoryStore;

#[tokio::test]
async fn the_agents_are_shared_and_the_threads_are_not() {
    let house = House::new();
    let script = Script::of([text("One."), text("Two.")]);
    let runtime = house.runtime(&script);
    let other = runtime.on_store(Arc::new(InMemoryStore::new())).unwrap();
    send(&other, "go").await;
    assert_eq!(other.store().message_count(&"t".into()).await.unwrap(), 2);
    assert_eq!(runtime.store().message_count(&"t".into()).await.unwrap(), 0);
    runtime.set_agent(AgentSpec::new("late").with_model("m"));
    let request = RunRequest::new("t", vec![Message::user("go")]).with_agent_id("late");
    other.run(request, Arc::new(VecEventSink::new())).await.unwrap();
    other.profiles().put("n", "k", json!(1), None).await.unwrap();
    assert_eq!(runtime.profiles().get("n", "k").await.unwrap(), None);
}

#[tokio::test]
async fn two_runtimes_on_one_store_exclude_each_other() {
    let house = House::new();
    let script = Script::of([text("One.")]);
    let runtime = house.builder(&script).alive().build().unwrap();
    let other = runtime.on_store(runtime.store().handle().unwrap()).unwrap();
    send(&runtime, "go").await;
    let id = ThreadId::from("t");
    let kept = runtime.acquire(&id).await.unwrap();
    let request = RunRequest::new("t", vec![Message::user("go")]);
    let busy = other.run(request, Arc::new(VecEventSink::new())).await;
    assert!(matches!(busy, Err(RuntimeError::ThreadAlreadyRunning { .. })), "{busy:?}");
    for runtime in [&runtime, &other] {
        let used = runtime.delete_thread(&id, actor()).await;
        assert!(matches!(used, Err(StoreError::Owned { .. })), "{used:?}");
    }
    runtime.release(kept).await;
    assert!(other.delete_thread(&id, actor()).await.unwrap());
    assert!(!other.delete_thread(&id, actor()).await.unwrap());
}
