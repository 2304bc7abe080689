//! Images stored apart from their messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::ForkAt;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::image::ImageRef;

fn gif(width: u8) -> Vec<u8> {
    [b"GIF89a".as_slice(), &[width, 0, 2, 0], &[7; 400]].concat()
}

async fn said(store: &Store, id: &str, content: Vec<ContentBlock>) {
    store.create_thread(thread(id)).await.unwrap();
    let fence = store.acquire(&id.into(), &owner("me"), None, |_| Liveness::Yes).await.unwrap();
    let run = run(&format!("run-{id}"), id, RunStatus::Running);
    let messages = vec![Message::user_with(content)];
    store.checkpoint(Checkpoint { messages, ..checkpoint(&fence, &run) }).await.unwrap();
}

async fn images(store: &Store, id: &str) -> Vec<ImageRef> {
    let messages = store.messages(&id.into()).await.unwrap();
    messages
        .iter()
        .flat_map(|m| &m.message.content)
        .filter_map(ContentBlock::as_stored_image)
        .cloned()
        .collect()
}

async fn delete(store: &Store, id: &str) {
    store.delete_thread(&id.into(), &owner("me"), |_| Liveness::No, by()).await.unwrap();
}

#[tokio::test]
async fn image_bytes_are_stored_apart_and_deleted_with_their_last_thread() {
    let home = Home::new();
    let store = home.open();
    let data = STANDARD.encode(gif(1));
    said(&store, "t1", vec![ContentBlock::text("see"), ContentBlock::image("image/gif", data.clone())]).await;
    let named = images(&store, "t1").await;
    assert_eq!((named[0].width, named[0].height, named[0].bytes), (1, 2, 410));
    let body: String = home.raw().query_row("SELECT body FROM message", (), |row| row.get(0)).unwrap();
    assert!(!body.contains(&data[..40]), "{body}");
    assert_eq!(store.image(&named[0].hash).await.unwrap(), Some(gif(1)));

    let copy = ForkAt { from: "t1".into(), keep: 1, copy: thread("t2"), is_rewind: false };
    store.go_back(Some(copy), None).await.unwrap();
    delete(&store, "t1").await;
    assert_eq!(store.image(&named[0].hash).await.unwrap(), Some(gif(1)), "the copy names it");
    delete(&store, "t2").await;
    assert_eq!(store.image(&named[0].hash).await.unwrap(), None);
}

#[tokio::test]
async fn unsent_attachments_are_deleted_after_a_month() {
    let store = Store::in_memory().unwrap();
    let day = 24 * 60 * 60 * 1000;
    let put = async |width: u8, at: u64| {
        let image = ImageRef::of("a.gif", &gif(width)).unwrap();
        store.put_image(&image, gif(width), at).await.unwrap();
        image
    };
    let (sent, left) = (put(1, 0).await, put(2, 0).await);
    said(&store, "t1", vec![ContentBlock::StoredImage(sent.clone())]).await;
    put(3, 20 * day).await;
    assert!(store.image(&left.hash).await.unwrap().is_some());
    put(3, 31 * day).await;
    assert!(store.image(&left.hash).await.unwrap().is_none());
    assert!(store.image(&sent.hash).await.unwrap().is_some());
    let queued = store
        .enqueue(
            &"t1".into(),
            vec![Message::user_with(vec![ContentBlock::image("image/gif", STANDARD.encode(gif(4)))])],
            1,
        )
        .await
        .unwrap();
    assert!(queued.messages[0].content[0].as_stored_image().is_some());
}
