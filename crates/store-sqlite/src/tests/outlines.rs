//! Thread outlines, which are read without the messages.

use super::*;
use crate::Portion;
use aye_core::contract::inference::{ModelUsage, TokenUsage};
use aye_core::contract::message::ToolCall;
use aye_core::contract::outline::Outline;

const LITTLE: Portion = Portion { floor: 0, bytes: 1, count: 3 };

/// A long run after one request, with an unfinished last step.
fn work(steps: usize) -> Vec<Message> {
    let mut messages = vec![Message::system("be kind"), Message::user("build it")];
    for n in 0..steps {
        let ids = [format!("a{n}"), format!("b{n}")];
        let calls = ids.iter().map(|id| ToolCall::new(id, "Bash", json!({}))).collect();
        messages.push(Message::assistant_with(Vec::new(), calls));
        messages.extend(ids.iter().map(|id| Message::tool(id, "done")));
    }
    messages.pop();
    messages
}

async fn write(store: &Store, id: &str, messages: &[Message], at_once: usize) {
    let fence = store.acquire(&id.into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    for (n, messages) in messages.chunks(at_once).enumerate() {
        let mut run = run(&format!("{id}-{n}"), id, RunStatus::Done);
        run.usage = TokenUsage { total_tokens: Some(10), ..TokenUsage::default() };
        let model = if n % 2 == 0 { "even" } else { "odd" };
        run.spent = vec![ModelUsage { model: model.into(), usage: run.usage }];
        let said = Checkpoint { messages: messages.to_vec(), ..checkpoint(&fence, &run) };
        store.checkpoint(said).await.unwrap();
    }
}

/// Removes outlines, as an older version would have written the rows.
async fn forget(store: &Store) {
    on_connection(store, |conn| {
        conn.execute_batch("UPDATE thread SET outline = NULL, usage = NULL; DELETE FROM called").unwrap();
    })
    .await;
}

async fn known(store: &Store, id: &str) -> Option<Outline> {
    let id = id.to_owned();
    on_connection(store, move |conn| {
        let text: Option<String> =
            conn.query_row("SELECT outline FROM thread WHERE id = ?1", (id,), |row| row.get(0)).unwrap();
        text.map(|text| serde_json::from_str(&text).unwrap())
    })
    .await
}

#[tokio::test]
async fn an_outline_is_written_with_its_messages() {
    let store = Store::in_memory().unwrap();
    let id = ThreadId::from("t1");
    store.create_thread(thread("t1")).await.unwrap();
    let said = work(200);
    write(&store, "t1", &said, 7).await;
    assert_eq!(known(&store, "t1").await, Some(Outline::of(&said)));
    let tail = store.thread_tail(&id, LITTLE).await.unwrap();
    assert!(!tail.is_assumed);
    assert_eq!(tail.outline, Outline::of(&said));
    assert_eq!(tail.messages, said[tail.base..]);
    assert!(tail.messages.len() <= 5, "{}", tail.messages.len());
    assert_eq!(tail.apart.keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(tail.apart[&1], said[1]);
    let ids = ["a0", "b199", "c7"].map(str::to_owned).to_vec();
    let mut used: Vec<_> = store.used_call_ids(&id, ids).await.unwrap().into_iter().collect();
    used.sort();
    assert_eq!(used, ["a0", "b199"]);
    assert_eq!(store.usage_of_thread(&id).await.unwrap().total_tokens, Some(10 * 86));
    let by_model = async || {
        let (_, spent) = store.usage_by_model(&id).await.unwrap();
        spent.iter().map(|one| (one.model.clone(), one.usage.total_tokens)).collect::<Vec<_>>()
    };
    let expected = [("even".to_owned(), Some(430)), ("odd".to_owned(), Some(430))];
    assert_eq!(by_model().await, expected);
    // A sum of an older version has no models.
    on_connection(&store, |conn| {
        conn.execute_batch("UPDATE thread SET usage = json_remove(usage, '$.spent')").unwrap();
    })
    .await;
    assert_eq!(by_model().await, expected);
    assert_eq!(store.usage_of_thread(&id).await.unwrap().total_tokens, Some(10 * 86));
}

#[tokio::test]
async fn outlines_of_an_older_version_are_completed() {
    let store = Store::in_memory().unwrap();
    let id = ThreadId::from("t1");
    store.create_thread(thread("t1")).await.unwrap();
    let said = work(1000);
    write(&store, "t1", &said, 100).await;
    forget(&store).await;
    let tail = store.thread_tail(&id, LITTLE).await.unwrap();
    assert!(tail.is_assumed);
    assert_eq!((tail.outline.count, tail.outline.request, tail.outline.leading), (said.len(), Some(1), 1));
    assert_eq!(tail.outline, Outline::of(&said), "all steps but the last are finished");
    // Adding a message does not wait for it.
    write(&store, "t1", &[Message::assistant("so")], 1).await;
    assert_eq!(known(&store, "t1").await, None);
    store.complete_outline(&id).await.unwrap();
    let all: Vec<_> = store.messages(&id).await.unwrap().into_iter().map(|stored| stored.message).collect();
    assert_eq!(known(&store, "t1").await, Some(Outline::of(&all)));
    assert_eq!(store.used_call_ids(&id, vec!["a0".into()]).await.unwrap().len(), 1);
    assert_eq!(store.usage_of_thread(&id).await.unwrap().total_tokens, Some(10 * 31));
    // A short thread is completed at once.
    store.create_thread(thread("t2")).await.unwrap();
    let short = work(20);
    write(&store, "t2", &short, 50).await;
    forget(&store).await;
    let tail = store.thread_tail(&"t2".into(), LITTLE).await.unwrap();
    assert!(!tail.is_assumed);
    assert_eq!(tail.outline, Outline::of(&short));
    write(&store, "t2", &[Message::user("next")], 1).await;
    let all = short.iter().chain(&[Message::user("next")]).cloned().collect::<Vec<_>>();
    assert_eq!(known(&store, "t2").await, Some(Outline::of(&all)));
}

#[tokio::test]
async fn a_fork_has_the_outline_of_its_prefix() {
    let store = Store::in_memory().unwrap();
    store.create_thread(thread("t1")).await.unwrap();
    let said = work(4);
    let said = [&said[..], &[Message::tool("b3", "done"), Message::user("more")]].concat();
    write(&store, "t1", &said, 5).await;
    for (copy, keep) in [("whole", said.len()), ("half", 8)] {
        let fork =
            crate::ForkAt { from: "t1".into(), keep: keep as u64, copy: thread(copy), is_rewind: false };
        store.go_back(Some(fork), None).await.unwrap();
        assert_eq!(known(&store, copy).await, Some(Outline::of(&said[..keep])), "{copy}");
        assert_eq!(store.used_call_ids(&copy.into(), vec!["a1".into()]).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn only_damage_in_rows_being_read_is_reported() {
    let store = Store::in_memory().unwrap();
    let id = ThreadId::from("t1");
    store.create_thread(thread("t1")).await.unwrap();
    let said = work(300);
    write(&store, "t1", &said, 50).await;
    let damage =
        |sql: &'static str| on_connection(&store, move |conn| assert_eq!(conn.execute(sql, ()).unwrap(), 1));
    damage("UPDATE message SET body = 'x' WHERE seq = 40").await;
    assert!(store.messages(&id).await.is_err());
    assert_eq!(store.thread_tail(&id, LITTLE).await.unwrap().outline, Outline::of(&said));
    let back = store.messages_back(&id, 100, LITTLE).await.unwrap();
    assert_eq!(back, said[100 - back.len()..100]);
    assert!(store.messages_back(&id, 41, LITTLE).await.is_err());
    damage("DELETE FROM message WHERE seq = 899").await;
    assert!(store.thread_tail(&id, LITTLE).await.unwrap_err().to_string().contains("899 is missing"));
    damage("DELETE FROM message WHERE seq = 901").await;
    let gone = store.thread_tail(&id, Portion { floor: usize::MAX, bytes: 0, count: 0 }).await;
    assert!(gone.unwrap_err().to_string().contains("missing"));
}

#[tokio::test]
async fn the_messages_of_a_run_are_read_without_earlier_ones() {
    let store = Store::in_memory().unwrap();
    let id = ThreadId::from("t1");
    store.create_thread(thread("t1")).await.unwrap();
    let said: Vec<_> = (0..9).map(|n| Message::user(format!("message {n}"))).collect();
    write(&store, "t1", &said, 3).await;
    store.tamper("UPDATE message SET body = 'x' WHERE seq < 3").await;
    let texts = |found: (u64, Vec<StoredMessage>)| {
        (found.0, found.1.iter().map(|stored| stored.message.text()).collect::<Vec<_>>())
    };
    let found = store.messages_of_run(&id, &"t1-2".into()).await.unwrap();
    assert_eq!(texts(found), (9, ["message 6", "message 7", "message 8"].map(str::to_owned).to_vec()));
    let found = store.messages_of_run(&id, &"t1-1".into()).await.unwrap();
    assert_eq!(texts(found), (9, ["message 3", "message 4", "message 5"].map(str::to_owned).to_vec()));
    assert!(store.messages_of_run(&id, &"t1-0".into()).await.is_err(), "two of them are damaged");
}
