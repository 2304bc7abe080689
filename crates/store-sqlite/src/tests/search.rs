//! The search across all threads.

use super::*;
use aye_core::contract::message::Message;

/// Creates a thread with these texts as turns.
async fn said(store: &Store, id: &str, texts: &[&str]) {
    store.create_thread(thread(id)).await.unwrap();
    let fence = store.acquire(&id.into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let messages = texts.iter().enumerate().map(|(at, text)| match at % 2 {
        0 => Message::user(*text),
        _ => Message::assistant(*text),
    });
    let run = run(&format!("run-{id}"), id, RunStatus::Done);
    store
        .checkpoint(Checkpoint { messages: messages.collect(), ..Checkpoint::new(fence, run) })
        .await
        .unwrap();
}

async fn index(store: &Store) {
    while store.index_messages().await.unwrap() {}
}

async fn found(store: &Store, words: &str) -> Vec<String> {
    let found = store.search(words, 0, None).await.unwrap();
    found.into_iter().map(|row| format!("{}: {}", row.thread.id, row.around)).collect()
}

async fn three(store: &Store) {
    said(store, "a", &["Grüße, ÄPFEL", "nothing here", "more äpfel"]).await;
    said(store, "b", &["a \"quoted\" word; it's OR NOT AND *", "the İstanbul trip"]).await;
    said(store, "c", &["", "x\0y after a NUL", "日本語の文章"]).await;
    for (at, id) in ["a", "b", "c"].into_iter().enumerate() {
        store.touch(&id.into(), 100 + at as u64).await.unwrap();
    }
}

/// Checks the expected results, with the index and without it.
async fn finds_all(store: &Store) {
    assert_eq!(found(store, "äpfel").await, ["a: Grüße, ÄPFEL"], "once per thread, at its first match");
    assert_eq!(found(store, "\"QUOTED\" word").await.len(), 1);
    assert_eq!(found(store, "OR NOT AND *").await.len(), 1, "no syntax");
    assert_eq!(found(store, "i̇stanbul").await.len(), 1);
    assert_eq!(found(store, "日本語").await.len(), 1);
    assert_eq!(found(store, "本").await.len(), 1, "shorter than an entry");
    assert_eq!(found(store, "after a nul").await.len(), 1);
    assert_eq!(found(store, "y after a").await.len(), 1);
    assert_eq!(found(store, "\0y after").await.len(), 1);
    assert_eq!(found(store, "pfel more").await.len(), 0);
    assert_eq!(found(store, "role").await.len(), 0, "only messages");
    let both = found(store, "re").await;
    assert_eq!(both.iter().map(|row| &row[..1]).collect::<Vec<_>>(), ["c", "a"][1..], "{both:?}");
}

#[tokio::test]
async fn a_search_finds_the_same_with_and_without_an_index() {
    let store = Store::in_memory().unwrap();
    three(&store).await;
    assert_eq!(store.unindexed_messages().await.unwrap(), 8);
    finds_all(&store).await;
    index(&store).await;
    assert_eq!(store.unindexed_messages().await.unwrap(), 0);
    finds_all(&store).await;
    // A later text is found before it is indexed, and after.
    said(&store, "d", &["äpfel again"]).await;
    for _ in 0..2 {
        assert_eq!(found(&store, "äpfel").await, ["a: Grüße, ÄPFEL", "d: äpfel again"]);
        index(&store).await;
    }
    let page = |offset, limit| store.search("äpfel", offset, Some(limit));
    assert_eq!(page(1, 1).await.unwrap()[0].thread.id.as_str(), "d");
    assert_eq!(page(2, 1).await.unwrap(), []);
}

#[tokio::test]
async fn deleted_text_leaves_the_index_too() {
    let home = Home::new();
    let store = home.open();
    three(&store).await;
    index(&store).await;
    let entries = || {
        let sql = "SELECT count(*) FROM said WHERE said MATCH '\"pfe\"'";
        home.raw().query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(entries(), 2);
    store.delete_thread(&"a".into(), &owner("me"), |_| Liveness::No, by()).await.unwrap();
    assert_eq!(entries(), 0);
    assert_eq!(found(&store, "äpfel").await, Vec::<String>::new());
    assert_eq!(found(&store, "quoted").await.len(), 1, "the others stay");
    // A long thread drops the whole index: the next search rebuilds it.
    let many: Vec<String> = (0..300).map(|n| format!("many {n}")).collect();
    said(&store, "long", &many.iter().map(String::as_str).collect::<Vec<_>>()).await;
    index(&store).await;
    store.delete_thread(&"long".into(), &owner("me"), |_| Liveness::No, by()).await.unwrap();
    assert!(store.unindexed_messages().await.unwrap() > 0);
    index(&store).await;
    assert_eq!((found(&store, "quoted").await.len(), found(&store, "many").await.len()), (1, 0));
}

#[tokio::test]
async fn the_first_page_of_a_frequent_text_does_not_read_the_whole_index() {
    let store = Store::in_memory().unwrap();
    for n in 0..100 {
        said(&store, &format!("t{n:03}"), &["a frequent word", "and one of its own: number", "x"]).await;
    }
    said(&store, "rare", &["something seldom"]).await;
    index(&store).await;
    let ids = async |words: &str, offset, limit| {
        let found = store.search(words, offset, limit).await.unwrap();
        found.into_iter().map(|found| found.thread.id).collect::<Vec<_>>()
    };
    let reads = async || {
        on_connection(&store, |conn| {
            let statement = conn.prepare_cached(crate::search::ENTRIES).unwrap();
            statement.get_status(rusqlite::StatementStatus::Run)
        })
        .await
    };
    let first = ids("frequent word", 0, Some(20)).await;
    assert_eq!((first.len(), reads().await), (20, 0));
    let all = ids("frequent word", 0, None).await;
    assert_eq!((all.len(), reads().await), (100, 1));
    assert_eq!((first, ids("frequent word", 60, Some(20)).await), (all[..20].to_vec(), all[60..80].to_vec()));
    assert_eq!(ids("seldom", 0, Some(1)).await, ["rare".into()]);
    assert_eq!(ids("nowhere at all", 0, Some(1)).await, []);
}
