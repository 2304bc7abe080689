//! The active drivers of this process, at most one per thread.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{Notify, OwnedMutexGuard, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::change_listener::ChangeListener;
use aye_core::contract::ids::{CallId, SuspensionId, ThreadId};
use aye_core::contract::storage::ThreadRunStore;
use aye_core::contract::suspension::ToolCallResume;
use aye_core::run::Fact;

/// A stored decision on its way to the active driver.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) call: CallId,
    pub(super) suspension: SuspensionId,
    pub(super) resume: ToolCallResume,
}

impl From<Delivery> for Fact {
    fn from(Delivery { call, suspension, resume }: Delivery) -> Fact {
        Fact::Decided { call, suspension, decision: resume }
    }
}

/// How the rest of the process reaches a driver.
#[derive(Clone)]
pub(super) struct Handle {
    pub(super) cancel: CancellationToken,
    deliveries: mpsc::UnboundedSender<Delivery>,
    /// Notified when another party wrote something about a question, so that the driver reads the rows.
    pub(super) rows_changed: Arc<Notify>,
    /// Changes when the user moves the commands that run to the background.
    pub(super) moves: watch::Sender<u64>,
}

#[derive(Default)]
pub(super) struct ActiveDrivers {
    handles: Mutex<HashMap<ThreadId, Handle>>,
    slots: Mutex<HashMap<ThreadId, Arc<tokio::sync::Mutex<()>>>>,
    /// The listener shared by the active drivers, which own it.
    listener: Mutex<Weak<ChangeListener>>,
}

/// The right of one driver to be active on its thread; released when dropped.
pub(super) struct Slot {
    live: Arc<ActiveDrivers>,
    thread_id: ThreadId,
    pub(super) handle: Handle,
    pub(super) deliveries: mpsc::UnboundedReceiver<Delivery>,
    _guard: OwnedMutexGuard<()>,
    _listener: Arc<ChangeListener>,
}

impl ActiveDrivers {
    /// Waits until no driver of this process is active on the thread, then takes its place. `waits` is called if one is.
    pub(super) async fn enter(
        self: &Arc<Self>,
        thread_id: &ThreadId,
        store: &Arc<dyn ThreadRunStore>,
        waits: impl FnOnce(),
    ) -> Slot {
        let slot = {
            let mut slots = self.slots.lock().expect("no panic while slots are held");
            // A slot that no driver holds or waits for is referenced only by the map.
            slots.retain(|id, slot| id == thread_id || Arc::strong_count(slot) > 1);
            Arc::clone(slots.entry(thread_id.clone()).or_default())
        };
        let guard = if let Ok(guard) = Arc::clone(&slot).try_lock_owned() {
            guard
        } else {
            waits();
            slot.lock_owned().await
        };
        let (handle, deliveries) = self.announce(thread_id);
        Slot {
            live: Arc::clone(self),
            thread_id: thread_id.clone(),
            handle,
            deliveries,
            _guard: guard,
            _listener: self.listen(store),
        }
    }

    fn announce(&self, thread_id: &ThreadId) -> (Handle, mpsc::UnboundedReceiver<Delivery>) {
        let (sender, deliveries) = mpsc::unbounded_channel();
        let handle = Handle {
            cancel: CancellationToken::new(),
            deliveries: sender,
            rows_changed: Arc::new(Notify::new()),
            moves: watch::Sender::new(0),
        };
        let mut handles = self.handles.lock().expect("no panic while handles are held");
        handles.insert(thread_id.clone(), handle.clone());
        (handle, deliveries)
    }

    fn listen(self: &Arc<Self>, store: &Arc<dyn ThreadRunStore>) -> Arc<ChangeListener> {
        let mut listener = self.listener.lock().expect("no panic while the listener is held");
        if let Some(open) = listener.upgrade() {
            return open;
        }
        let opened = Arc::new(ChangeListener::open(store, self));
        *listener = Arc::downgrade(&opened);
        opened
    }

    /// Makes the drivers of these threads read the rows of their questions.
    pub(super) fn rows_changed(&self, of: impl Fn(&ThreadId) -> bool) {
        let handles = self.handles.lock().expect("no panic while handles are held");
        handles
            .iter()
            .filter(|(thread, _)| of(thread))
            .for_each(|(_, handle)| handle.rows_changed.notify_one());
    }

    /// Passes a stored decision to the active driver; `false` if there is none.
    pub(super) fn deliver(&self, thread_id: &ThreadId, delivery: Delivery) -> bool {
        let handles = self.handles.lock().expect("no panic while handles are held");
        handles.get(thread_id).is_some_and(|handle| handle.deliveries.send(delivery).is_ok())
    }

    /// Asks the active driver to stop; `false` if there is none.
    pub(super) fn cancel(&self, thread_id: &ThreadId) -> bool {
        let handles = self.handles.lock().expect("no panic while handles are held");
        handles.get(thread_id).is_some_and(|handle| {
            handle.cancel.cancel();
            true
        })
    }

    /// Moves the commands that run for the driver to the background; `false` when there are none.
    pub(super) fn move_to_background(&self, thread_id: &ThreadId) -> bool {
        let handles = self.handles.lock().expect("no panic while handles are held");
        // Only calls that can be moved subscribe.
        let moves =
            handles.get(thread_id).map(|handle| &handle.moves).filter(|moves| moves.receiver_count() > 0);
        moves.is_some_and(|moves| {
            moves.send_modify(|count| *count += 1);
            true
        })
    }

    /// Whether a driver is active on the thread.
    pub(super) fn is_active(&self, thread_id: &ThreadId) -> bool {
        self.handles.lock().expect("no panic while handles are held").contains_key(thread_id)
    }
}

impl Slot {
    pub(super) fn live(&self) -> &Arc<ActiveDrivers> {
        &self.live
    }

    /// Makes the slot ready for the thread's next run: what was asked of the last one is not asked of it.
    pub(super) fn renew(mut self) -> Self {
        (self.handle, self.deliveries) = self.live.announce(&self.thread_id);
        self
    }

    /// Makes the driver unreachable. Whoever asks it to stop or sends it a decision from now on learns that none is
    /// active, and writes to the store instead; what was sent before is in the handle.
    pub(super) fn close(&self) {
        self.live.handles.lock().expect("no panic while handles are held").remove(&self.thread_id);
    }

    /// Makes the driver reachable again. It reads the rows, because a decision may have been stored meanwhile.
    pub(super) fn reopen(&self) {
        let mut handles = self.live.handles.lock().expect("no panic while handles are held");
        handles.insert(self.thread_id.clone(), self.handle.clone());
        self.handle.rows_changed.notify_one();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.close();
    }
}
