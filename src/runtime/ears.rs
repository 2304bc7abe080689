//! Hears of answers that were given elsewhere, while a driver is awake, and says so to it.
//!
//! One watch serves all drivers of a runtime, and is gone with the last of them: a program in which nothing runs is
//! never woken.

use std::sync::{Arc, Weak};

use tokio::task::JoinHandle;

use super::live::Live;
use crate::store::{ChangeKind, Store, Watch};

/// See the module's text. It listens until it is dropped.
pub(super) struct Ears {
    task: JoinHandle<()>,
}

impl Drop for Ears {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Ears {
    /// Hears from now on. What was committed before is not told: a driver looks once by itself.
    pub(super) fn open(store: &Store, live: &Arc<Live>) -> Option<Ears> {
        match store.watch() {
            Ok(watch) => {
                let live = Arc::downgrade(live);
                Some(Ears { task: tokio::spawn(listen(watch, live)) })
            }
            Err(error) => {
                tracing::warn!(%error, "answers from elsewhere are carried out at the next wake-up");
                None
            }
        }
    }
}

async fn listen(mut watch: Watch, live: Weak<Live>) {
    loop {
        let change = watch.next().await;
        let Some(live) = live.upgrade() else { return };
        match change.kind {
            ChangeKind::Decision | ChangeKind::Anything => live.nudge(|thread| change.concerns(thread)),
            ChangeKind::Run | ChangeKind::Owner | ChangeKind::Queue | ChangeKind::Grant => {}
        }
    }
}
