//! Summaries that stand for older messages.

use super::*;
use aye_core::contract::summary::SummaryRecord;

async fn talk(store: &Store, n: u64) -> Vec<Message> {
    store.create_thread(thread("t1")).await.unwrap();
    let fence = store.acquire(&"t1".into(), &owner("me"), Term::ENDLESS, |_| true).await.unwrap();
    let messages: Vec<_> = (1..=n).map(|n| Message::user(format!("message {n}"))).collect();
    let run = run("r1", "t1", RunStatus::Running);
    store.checkpoint(Checkpoint { messages: messages.clone(), ..checkpoint(&fence, &run) }).await.unwrap();
    messages
}

fn summary(said: &[Message], upto: usize) -> SummaryRecord {
    SummaryRecord {
        thread_id: "t1".into(),
        upto: said[upto - 1].id.clone(),
        upto_seq: upto as u64,
        at_seq: said.len() as u64,
        messages: upto as u64,
        before_tokens: 5000,
        after_tokens: 400,
        hint: None,
        model: "m".into(),
        usage: None,
        created_at: 7,
        text: format!("of {upto}"),
    }
}

#[tokio::test]
async fn the_summary_that_reaches_farthest_counts() {
    let home = Home::new();
    let store = home.open();
    let said = talk(&store, 9).await;
    let id = ThreadId::from("t1");
    assert_eq!(store.summary(&id, 0).await.unwrap(), None);
    assert!(store.add_summary(summary(&said, 4)).await.unwrap());
    assert!(store.add_summary(summary(&said, 7)).await.unwrap());
    assert!(!store.add_summary(summary(&said, 7)).await.unwrap(), "somebody else was first");
    assert!(!store.add_summary(summary(&said, 5)).await.unwrap(), "one that came late");
    store.close().await;
    let store = home.open();
    assert_eq!(store.summary(&id, 0).await.unwrap(), Some(summary(&said, 7)));
    assert_eq!(store.summary(&id, 7).await.unwrap(), None);
    assert_eq!(store.messages(&id).await.unwrap().len(), 9, "the messages stay");
    let glance = store.glance(&id, None).await.unwrap().unwrap();
    assert_eq!(glance.summaries, [summary(&said, 4), summary(&said, 7)]);
}
