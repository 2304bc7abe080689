//! Background commands.

use super::fixtures::*;
use aye_core::contract::command::{CommandEnd, CommandReport};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::record::{AttemptId, Owner};
use aye_core::contract::storage::{StoreError, ThreadRunStore};

/// A store with a run whose call `c1` runs.
pub async fn running(store: &dyn ThreadRunStore) -> AttemptId {
    store.ensure_thread(thread("t1")).await.unwrap();
    let fence = store.acquire(&"t1".into(), &owner("me"), None).await.unwrap();
    let run = run("r1", "t1", RunStatus::Running);
    store.begin(begin(&fence, &run, "c1", 1, None)).await.unwrap();
    attempt("r1", "c1", 1)
}

/// The number of a background command of that call.
pub async fn begun(store: &dyn ThreadRunStore, id: &AttemptId) -> u64 {
    begun_by(store, id, &owner("me")).await
}

async fn begun_by(store: &dyn ThreadRunStore, id: &AttemptId, owner: &Owner) -> u64 {
    let made = store.begin_command(id, "main".into(), "sleep 9".into(), owner.clone(), 5).await.unwrap();
    assert_eq!((made.thread_id.as_str(), made.call_id.as_str(), made.word()), ("t1", "c1", "running"));
    made.number
}

pub async fn each_read_returns_only_new_output(store: &dyn ThreadRunStore) {
    let number = begun(store, &running(store).await).await;
    let thread = ThreadId::from("t1");
    let new_output = async || store.read_command_output(&thread, number).await.unwrap().unwrap().output;
    assert_eq!(new_output().await, "");
    for chunk in ["on", "e é\n"] {
        assert!(store.append_command_output(number, chunk.into()).await.unwrap());
    }
    assert_eq!(new_output().await, "one é\n");
    store.append_command_output(number, "two\n".into()).await.unwrap();
    assert_eq!((new_output().await, new_output().await), ("two\n".to_owned(), String::new()));
    assert!(
        store.read_command_output(&"t2".into(), number).await.unwrap().is_none(),
        "another conversation's"
    );
    // A flood between two reads: output already read is not returned again, and lost output is counted.
    let line = format!("{}\n", "x".repeat(1023));
    for _ in 0..400 {
        store.append_command_output(number, line.clone()).await.unwrap();
    }
    let new = new_output().await;
    let gone: usize = new.split("[... ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let kept = new.len() - format!("\n[... {gone} bytes left out ...]\n").len();
    assert_eq!(gone + kept, 400 * 1024);
    assert!(kept <= 256 * 1024, "{kept}");
    assert!(!new.contains("one"), "it was seen");
    // A flood that removes only the middle of the new output.
    for _ in 0..400 {
        store.append_command_output(number, line.clone()).await.unwrap();
    }
    let new = new_output().await;
    assert!(new.starts_with("\n[... ") && new.len() < 140 * 1024, "{}", new.len());
}

pub async fn an_exit_is_recorded_once_and_queued(store: &dyn ThreadRunStore) {
    let number = begun(store, &running(store).await).await;
    store.append_command_output(number, "the last line\n".into()).await.unwrap();
    assert!(store.stop_command(number).await.unwrap());
    assert!(store.command(number).await.unwrap().unwrap().stop);
    assert!(store.end_command(number, CommandEnd::Exited(3), CommandReport::Queued, 9).await.unwrap());
    assert!(!store.end_command(number, CommandEnd::Stopped, CommandReport::Queued, 9).await.unwrap());
    assert!(!store.append_command_output(number, "late".into()).await.unwrap());
    assert!(!store.stop_command(number).await.unwrap());
    let queued = store.queued(&"t1".into()).await.unwrap();
    assert_eq!(queued.len(), 1);
    assert!(queued[0].reports_command());
    let queued_text = queued[0].messages[0].text();
    assert_eq!(
        queued_text,
        format!(
            "[task b{number}] The background command `sleep 9` ended with exit status 3.\n\nthe last line"
        )
    );
}

pub async fn commands_of_a_conversation_are_listed_oldest_first(store: &dyn ThreadRunStore) {
    let id = running(store).await;
    let first = begun(store, &id).await;
    let begin_command =
        async |id: &AttemptId| store.begin_command(id, "main".into(), "sleep 8".into(), owner("me"), 6).await;
    let again = begin_command(&id).await;
    assert!(matches!(again, Err(StoreError::Exists { .. })), "a call has one: {again:?}");
    let other = attempt("r1", "c2", 1);
    assert!(matches!(begin_command(&other).await, Err(StoreError::NotStarted { .. })));
    let fence = acquired(store, "t1", &owner("me")).await;
    store.begin(begin(&fence, &run("r1", "t1", RunStatus::Running), "c2", 1, None)).await.unwrap();
    let second = begin_command(&other).await.unwrap().number;
    let listed = async |thread: &str| {
        let commands = store.commands(&thread.into()).await.unwrap();
        commands.into_iter().map(|command| (command.number, command.end.is_some())).collect::<Vec<_>>()
    };
    assert_eq!(listed("t1").await, [(first, false), (second, false)]);
    assert_eq!(listed("t9").await, []);
    let end = CommandEnd::Exited(3);
    store.end_command(first, end, CommandReport::Known, 9).await.unwrap();
    assert_eq!(listed("t1").await, [(first, true), (second, false)], "an ended one stays");
}

pub async fn the_next_run_is_notified_of_commands_that_died_with_their_process(store: &dyn ThreadRunStore) {
    let id = running(store).await;
    let me = announced(store, "me");
    let number = begun_by(store, &id, &me.owner).await;
    let thread = ThreadId::from("t1");
    store.report_commands(&thread, 9).await.unwrap();
    assert!(store.queued(&thread).await.unwrap().is_empty(), "it runs");
    drop(me);
    for _ in 0..2 {
        store.report_commands(&thread, 9).await.unwrap();
        let queued = store.queued(&thread).await.unwrap();
        assert_eq!(queued.len(), 1, "once");
        assert!(queued[0].messages[0].text().contains("its outcome is unknown"), "{queued:?}");
    }
    let ended = store.command(number).await.unwrap().unwrap();
    assert_eq!((ended.end, ended.told), (Some(CommandEnd::Unknown), true));
    // A command that ended together with its process.
    let again = store.begin_command(&id, "main".into(), "x".into(), owner("me"), 5).await;
    assert!(again.is_err(), "one command for each execution");
}

pub async fn a_command_of_another_boot_has_ended(store: &dyn ThreadRunStore) {
    let id = running(store).await;
    let thread = ThreadId::from("t1");
    // Nobody could tell that from the process alone.
    begun_by(store, &id, &Owner { boot_id: "an earlier one".into(), ..owner("me") }).await;
    store.report_commands(&thread, 9).await.unwrap();
    assert_eq!(store.queued(&thread).await.unwrap().len(), 1);
}
