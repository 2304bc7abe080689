//! Wakes drivers when another process stores a decision.
//!
//! All drivers of a runtime share one subscription, which ends with the last of them: a program without active runs
//! is never woken.

use std::sync::{Arc, Weak};

use tokio::task::JoinHandle;

use super::active_drivers::ActiveDrivers;
use aye_core::contract::storage::{ChangeKind, ThreadRunStore};

/// The subscription, until dropped.
pub(super) struct ChangeListener {
    task: JoinHandle<()>,
}

impl Drop for ChangeListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ChangeListener {
    /// Opens the subscription in the background, so that a starting driver need not wait for it. Earlier
    /// commits are not reported, so every driver reads its rows once as soon as the subscription is open.
    pub(super) fn open(store: &Arc<dyn ThreadRunStore>, live: &Arc<ActiveDrivers>) -> ChangeListener {
        let (store, live) = (Arc::clone(store), Arc::downgrade(live));
        ChangeListener { task: tokio::spawn(listen(store, live)) }
    }
}

async fn listen(store: Arc<dyn ThreadRunStore>, live: Weak<ActiveDrivers>) {
    let mut watch = match store.watch() {
        Ok(watch) => watch,
        Err(error) => {
            tracing::warn!(%error, "decisions from other processes apply at the next wake-up");
            return;
        }
    };
    // The store ends with its last handle, which must not be this one.
    drop(store);
    if let Some(live) = live.upgrade() {
        live.rows_changed(|_| true);
    }
    loop {
        // A driver is active and may be waiting for a decision whose message was lost.
        let change = watch.next_or_check().await;
        let Some(live) = live.upgrade() else { return };
        match change.kind {
            ChangeKind::Decision | ChangeKind::Anything => {
                live.rows_changed(|thread| change.concerns(thread));
            }
            ChangeKind::Run | ChangeKind::Owner | ChangeKind::Queue | ChangeKind::Grant => {}
        }
    }
}
