//! Background commands.

use aye_core::contract::command::{CommandEnd, CommandReport};

use super::*;
use aye_store_suite::commands::{begun, running};

#[tokio::test]
async fn no_worker_starts_a_run_from_a_finished_command() {
    let store = Store::in_memory().unwrap();
    let number = begun(&store, &running(&store).await).await;
    assert!(store.end_command(number, CommandEnd::Exited(3), CommandReport::Queued, 9).await.unwrap());
    assert_eq!(store.queued(&"t1".into()).await.unwrap().len(), 1);
    // It waits for a run started by a user.
    let next_work = store.mailbox().next_work(1_000, |_| false).await.unwrap();
    assert_eq!(next_work.next, None);
}

#[tokio::test]
async fn a_deleted_conversation_takes_its_commands_along() {
    let store = Store::in_memory().unwrap();
    let number = begun(&store, &running(&store).await).await;
    assert_eq!(store.all_commands(true).await.unwrap().len(), 1);
    assert_eq!(store.thread_view(&"t1".into(), None).await.unwrap().unwrap().commands.len(), 1);
    assert!(store.delete_thread(&"t1".into(), &owner("me"), |_| Liveness::No, by()).await.unwrap());
    assert_eq!(store.all_commands(false).await.unwrap(), []);
    assert!(!store.append_command_output(number, "late".into()).await.unwrap());
}

#[tokio::test]
async fn an_older_store_has_no_commands() {
    let home = Home::new();
    home.make();
    let old = home.raw();
    old.execute_batch(
        "DROP TABLE command; DROP TABLE delivery; DROP TABLE push_target; DROP TABLE config_entry",
    )
    .unwrap();
    old.execute_batch(&super::before_lease_lengths()).unwrap();
    old.pragma_update(None, "user_version", 7).unwrap();
    drop(old);
    let store = home.open();
    assert_eq!(store.all_commands(false).await.unwrap(), []);
    begun(&store, &running(&store).await).await;
}
