//! Summaries that replace older messages.

use super::*;
use aye_store_suite::threads::{summary, talk};

#[tokio::test]
async fn the_summary_with_the_furthest_range_wins() {
    let home = Home::new();
    let store = home.open();
    let said = talk(&store, "t1", 9).await;
    let id = ThreadId::from("t1");
    assert_eq!(store.summary(&id, 0).await.unwrap(), None);
    assert!(store.add_summary(summary(&said, 4)).await.unwrap());
    assert!(store.add_summary(summary(&said, 7)).await.unwrap());
    assert!(!store.add_summary(summary(&said, 7)).await.unwrap(), "another process was first");
    assert!(!store.add_summary(summary(&said, 5)).await.unwrap(), "a late one");
    store.close().await;
    let store = home.open();
    assert_eq!(store.summary(&id, 0).await.unwrap(), Some(summary(&said, 7)));
    assert_eq!(store.summary(&id, 7).await.unwrap(), None);
    assert_eq!(store.messages(&id).await.unwrap().len(), 9, "the messages are kept");
    let thread_view = store.thread_view(&id, None).await.unwrap().unwrap();
    assert_eq!(thread_view.summaries, [summary(&said, 4), summary(&said, 7)]);
}
