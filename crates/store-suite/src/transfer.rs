//! Conversations that move to another store.

use std::io::Cursor;

use serde_json::{Value, json};

use aye_core::contract::child::ChildRecord;
use aye_core::contract::program_store::{CopyPart, ExportPart, ProgramStore, ThreadCopyFile};
use aye_core::contract::storage::StoreError;

use super::fixtures::*;
use super::program_lists::read;
use super::threads::{child, talk};

/// One conversation with its children, as `aye threads export` writes it.
fn file_of(parts: Vec<ExportPart>) -> Value {
    let mut threads: Vec<Value> = Vec::new();
    for part in parts {
        if let ExportPart::Start { child, thread } = &part {
            threads
                .push(json!({"child": child, "thread": thread, "messages": [], "runs": [], "summaries": [],
                                "images": {}}));
            continue;
        }
        let open = threads.last_mut().unwrap();
        let mut add = |list: &str, value: Value| open[list].as_array_mut().unwrap().push(value);
        match part {
            ExportPart::Part(CopyPart::Message(message)) => add("messages", json!(message)),
            ExportPart::Part(CopyPart::Run(run)) => add("runs", json!(run)),
            ExportPart::Part(CopyPart::Summary(summary)) => add("summaries", json!(summary)),
            ExportPart::Part(CopyPart::Image { hash, data }) => open["images"][hash] = data.into(),
            ExportPart::Start { .. } => {}
            ExportPart::End(rest) => {
                for (name, value) in json!(rest).as_object().unwrap() {
                    if !matches!(name.as_str(), "runs" | "summaries" | "images") {
                        open[name] = value.clone();
                    }
                }
            }
        }
    }
    let mut whole = threads.remove(0);
    whole["children"] = threads.into();
    whole
}

pub async fn a_conversation_comes_back_as_it_left(store: &dyn ProgramStore) {
    talk(store, "t1", 300).await;
    let row = ChildRecord { parent_run: "run-t1".into(), ..child("t1.a", "t1", false) };
    store.create_child(row, "a child".into(), "/work".into()).await.unwrap();
    let parts = read(store.export_thread(&"t1".into())).await;
    assert_eq!(
        parts.iter().filter(|part| matches!(part, ExportPart::Start { .. })).count(),
        2,
        "the child comes after its parent"
    );
    assert!(matches!(parts.last(), Some(ExportPart::End(_))));
    let nobody = store.export_thread(&"t9".into()).next().await;
    assert!(matches!(nobody, Err(StoreError::NoThread(_))), "{nobody:?}");

    let file = file_of(parts);
    let import = async |file: &Value| {
        let mut file = ThreadCopyFile::new(Cursor::new(file.to_string().into_bytes()));
        let outline = file.outline().unwrap();
        store.import_thread_file(outline, file).await
    };
    let taken = import(&file).await;
    assert!(matches!(taken, Err(StoreError::Exists { .. })), "{taken:?}");
    let before = store.load_messages(&"t1".into()).await.unwrap();
    assert!(
        store
            .delete_thread(&"t1".into(), &owner("me"), aye_core::contract::suspension::Actor::default(), 1)
            .await
            .unwrap()
    );
    let mut incomplete = file.clone();
    incomplete["messages"].as_array_mut().unwrap().remove(3);
    let refused = import(&incomplete).await;
    assert!(matches!(refused, Err(StoreError::Unwritable { .. })), "{refused:?}");
    assert_eq!(store.load_thread(&"t1".into()).await.unwrap(), None, "nothing was written");
    import(&file).await.unwrap();
    assert_eq!(store.load_messages(&"t1".into()).await.unwrap(), before);
    assert_eq!(store.children(&"t1".into()).await.unwrap().len(), 1);
}
