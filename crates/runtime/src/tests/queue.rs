//! Messages that wait until their thread is free.

use super::*;
use aye_core::contract::record::QueuedMessage;

async fn queue(runtime: &AgentRuntime, content: &str) -> QueuedMessage {
    runtime.enqueue(&"t".into(), vec![Message::user(content)]).await.unwrap()
}

async fn begin(
    runtime: &AgentRuntime,
    message: &QueuedMessage,
) -> (Result<AgentRunResult, RuntimeError>, Vec<AgentEvent>) {
    let sink = Arc::new(VecEventSink::new());
    let result = runtime.run_queued(message.clone(), sink.clone()).await;
    (result, sink.take())
}

async fn content(house: &House) -> Vec<String> {
    let stored = house.store.messages(&"t".into()).await.unwrap();
    stored.iter().filter(|m| m.message.role == Role::User).map(|m| m.message.text()).collect()
}

#[tokio::test]
async fn a_queued_message_starts_once_whoever_tries() {
    let house = House::new();
    let script = Script::of([text("One."), text("Two.")]);
    // Two living processes: neither takes the other's lease.
    let runtime = || house.builder(&script).alive().build().unwrap();
    let (one, two) = (runtime(), runtime());
    // It is the very first message: the thread is created for it.
    let message = queue(&one, "hello").await;
    let ((first, _), (second, _)) = tokio::join!(begin(&one, &message), begin(&two, &message));
    let (won, lost) = if first.is_ok() { (first, second) } else { (second, first) };
    assert_eq!(won.unwrap().response, "One.");
    let gone = RuntimeError::NotQueued { thread_id: "t".into(), id: message.id };
    match lost.unwrap_err() {
        RuntimeError::ThreadAlreadyRunning { .. } => {}
        error => assert_eq!(error, gone),
    }
    // Afterwards it is gone for everybody.
    assert_eq!(begin(&two, &message).await, (Err(gone), Vec::new()));
    assert_eq!(content(&house).await, ["hello"]);
    assert!(one.queued(&"t".into()).await.unwrap().is_empty());
    assert_eq!(house.store.runs(&"t".into()).await.unwrap().len(), 1, "the loser left no run");
}

#[tokio::test]
async fn a_queued_message_closes_no_question_and_can_be_withdrawn() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("It is noon."), text("Behind it.")]);
    let runtime = house.runtime(&script);
    let (result, _) = send(&runtime, "go").await;
    let (kept, back) = (queue(&runtime, "and then").await, queue(&runtime, "never mind").await);
    assert_eq!((kept.id < back.id, runtime.queued(&"t".into()).await.unwrap().len()), (true, 2));
    let (refused, events) = begin(&runtime, &kept).await;
    assert_eq!(refused, Err(RuntimeError::NotFree { thread_id: "t".into() }));
    assert!(events.is_empty());
    assert_eq!(runtime.waiting(&"t".into()).await.unwrap().len(), 1, "the question stays pending");
    assert!(runtime.unqueue(back.id).await.unwrap());
    assert!(!runtime.unqueue(back.id).await.unwrap(), "gone");

    let id = result.waiting[0].id.clone();
    runtime.decide(&id, answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
    let (woken, _) = wake(&runtime, UnknownPolicy::Ask).await;
    assert_eq!(woken.response, "It is noon.");
    assert_eq!(woken.messages, house.store.message_count(&"t".into()).await.unwrap());
    let (begun, events) = begin(&runtime, &kept).await;
    let begun = begun.unwrap();
    assert_eq!((begun.response.as_str(), names(&events)[0].as_str()), ("Behind it.", "run_start"));
    assert_eq!(begun.messages, house.store.message_count(&"t".into()).await.unwrap());
    assert_eq!(content(&house).await, ["go", "and then"]);
    assert_eq!(house.executed(), 1);
}

/// An immediate message closes the questions, and its run continues the one that asked.
#[tokio::test]
async fn an_immediate_message_continues_the_run_it_closed() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("As you like.")]);
    let runtime = house.runtime(&script);
    let (asked, _) = send(&runtime, "go").await;
    let (result, _) = send(&runtime, "leave it").await;
    let run = house.store.run(&result.run_id).await.unwrap().unwrap();
    assert_eq!(run.parent_run_id, Some(asked.run_id));
    assert!(runtime.waiting(&"t".into()).await.unwrap().is_empty());
    assert!(script.result_of("c1").to_lowercase().contains("not run"), "{}", script.result_of("c1"));
}

#[tokio::test]
async fn a_message_removed_before_it_starts_does_not_stop_the_queue() {
    let house = House::new();
    let script = Script::of([text("One."), text("Two.")]);
    let runtime = house.runtime(&script);
    let (gone, kept) = (queue(&runtime, "never mind").await, queue(&runtime, "hello").await);
    let tried = std::sync::Mutex::new(Vec::new());
    let (runtime_of, tried_ids) = (&runtime, &tried);
    let start = |message: QueuedMessage| async move {
        tried_ids.lock().unwrap().push(message.id);
        if message.id == gone.id {
            // Another process removes it between the look and the start.
            assert!(runtime_of.unqueue(gone.id).await.unwrap());
        }
        runtime_of.run_queued(message, Arc::new(VecEventSink::new())).await
    };
    let result = runtime.start_next(&"t".into(), false, start).await.unwrap();
    assert_eq!(result.unwrap().response, "One.");
    assert_eq!(*tried.lock().unwrap(), [gone.id, kept.id]);
    assert_eq!(content(&house).await, ["hello"]);
    assert_eq!(runtime.start_next(&"t".into(), false, start).await, Ok(None), "the queue is empty");
}
