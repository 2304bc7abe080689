//! The side that has the questions.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::BufReader;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::AbortHandle;

use super::place::Place;
use super::{Reply, Request, read_line, write_line};
use crate::contract::clock::{Clock as _, SystemClock};
use crate::contract::event::AgentEvent;
use crate::contract::event_sink::EventSink;
use crate::contract::record::{DecideOutcome, InboxRow, SuspensionRecord};
use crate::runtime::AgentRuntime;
use crate::store::{InboxFilter, SuspensionLookup};

/// So long may somebody who called say nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many are spoken with at once.
const CALLERS: usize = 16;

/// What happens after an answer from elsewhere was stored.
type Answered = Box<dyn Fn(&SuspensionRecord) + Send + Sync>;

/// Where the questions of a store in memory are answered: open as long as there are any. It hears the events of the
/// runs, to know when that is.
pub(in crate::app) struct Counter {
    runtime: AgentRuntime,
    place: Arc<Place>,
    answered: Answered,
    served: Mutex<Option<Served>>,
    callers: Arc<Semaphore>,
}

/// A socket that is open; gone when dropped.
struct Served {
    place: Arc<Place>,
    name: String,
    task: AbortHandle,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
        self.place.remove(&self.name);
    }
}

impl Counter {
    pub(in crate::app) fn new(
        runtime: AgentRuntime,
        place: Place,
        answered: impl Fn(&SuspensionRecord) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            runtime,
            place: Arc::new(place),
            answered: Box::new(answered),
            served: Mutex::default(),
            callers: Arc::new(Semaphore::new(CALLERS)),
        })
    }

    /// Ends it: the program is about to end.
    pub(in crate::app) async fn close(&self) {
        *self.served.lock().await = None;
    }

    /// Opens when something waits, and closes when nothing does.
    pub(in crate::app) async fn look(self: &Arc<Self>) {
        // Held over the look, so that an older one does not win.
        let mut served = self.served.lock().await;
        let waiting = match self.runtime.store().waiting_count(None, SystemClock.now_ms()).await {
            Ok(count) => count > 0,
            Err(error) => {
                tracing::error!(%error, "the questions cannot be counted");
                return;
            }
        };
        match (waiting, served.is_some()) {
            (true, false) => match self.serve() {
                Ok(new) => *served = Some(new),
                Err(error) => super::super::say(&format!(
                    "aye: no other terminal can answer: cannot create a socket in {}: {error}",
                    self.place.folder().display()
                )),
            },
            (false, true) => *served = None,
            (true, true) | (false, false) => {}
        }
    }

    fn serve(self: &Arc<Self>) -> std::io::Result<Served> {
        let name = format!("{}-{}.sock", std::process::id(), &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let listener = std::os::unix::net::UnixListener::bind(self.place.address(&name))?;
        let place = Arc::clone(&self.place);
        let ready = self.place.protect(&name).and_then(|()| {
            listener.set_nonblocking(true)?;
            UnixListener::from_std(listener)
        });
        let listener = ready.inspect_err(|_| place.remove(&name))?;
        // It must not keep alive what ends it.
        let counter = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            loop {
                let stream = match listener.accept().await {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        // Out of descriptors, say: whoever called tries again, and this must not spin.
                        tracing::warn!(%error, "a connection failed");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                };
                let Some(counter) = counter.upgrade() else { return };
                let Ok(permit) = Arc::clone(&counter.callers).try_acquire_owned() else { continue };
                tokio::spawn(async move {
                    if let Err(error) = counter.converse(stream).await {
                        tracing::info!(%error, "a client disconnected");
                    }
                    drop(permit);
                });
            }
        });
        Ok(Served { place, name, task: task.abort_handle() })
    }

    async fn converse(self: &Arc<Self>, mut stream: UnixStream) -> std::io::Result<()> {
        let peer = stream.peer_cred()?;
        if peer.uid() != rustix::process::getuid().as_raw() {
            tracing::warn!(uid = peer.uid(), "refused a connection from another user");
            return Ok(());
        }
        let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        let (reader, mut writer) = stream.split();
        let mut reader = BufReader::new(reader);
        while let Some(line) =
            tokio::time::timeout(PATIENCE, read_line(&mut reader)).await.map_err(late)??
        {
            let reply = match serde_json::from_slice(&line) {
                Ok(request) => self.answer(request, peer).await,
                Err(error) => Reply::Refused(format!("invalid request: {error}")),
            };
            tokio::time::timeout(PATIENCE, write_line(&mut writer, &reply)).await.map_err(late)??;
            self.look().await;
        }
        Ok(())
    }

    async fn answer(&self, request: Request, peer: tokio::net::unix::UCred) -> Reply {
        let refused = |error: &dyn std::fmt::Display| Reply::Refused(error.to_string());
        let store = self.runtime.store();
        match request {
            Request::List(filter) => {
                let filter = InboxFilter {
                    thread: filter.thread.map(Into::into),
                    tool: filter.tool,
                    asked_before: filter.asked_before,
                    ..InboxFilter::default()
                };
                let own = |row| InboxRow { ephemeral: Some(std::process::id()), ..row };
                match store.inbox(filter).await {
                    Ok(rows) => Reply::Rows(rows.into_iter().map(own).collect()),
                    Err(error) => refused(&error),
                }
            }
            Request::Show(prefix) => match store.find_suspension(&prefix).await {
                Ok(SuspensionLookup::One(question)) => Reply::Questions(vec![*question]),
                Ok(SuspensionLookup::None) => Reply::Questions(Vec::new()),
                Ok(SuspensionLookup::Many(questions)) => Reply::Questions(questions),
                Err(error) => refused(&error),
            },
            Request::Decide { id, decision } => {
                let mut actor = decision.actor;
                // What the kernel says of the caller, not what the caller says.
                actor.uid = Some(peer.uid());
                actor.pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(actor.pid);
                match self.runtime.decide(&id, decision.resume, actor).await {
                    Ok(outcome) => {
                        match &outcome {
                            DecideOutcome::Accepted(record) | DecideOutcome::Expired(record) => {
                                (self.answered)(record);
                            }
                            DecideOutcome::Repeated(_)
                            | DecideOutcome::AlreadyDecided(_)
                            | DecideOutcome::Closed(_)
                            | DecideOutcome::NotFound => {}
                        }
                        Reply::Outcome(outcome.into())
                    }
                    Err(error) => refused(&error),
                }
            }
        }
    }

    /// Whether something may wait after this event that did not before, or the other way round. The row is written
    /// before the event is sent.
    pub(in crate::app) fn concerns(event: &AgentEvent) -> bool {
        matches!(event, AgentEvent::ToolCallDone { .. } | AgentEvent::RunFinish { .. })
    }
}

/// Hears the events of runs for a [`Counter`].
pub(in crate::app) struct Hearing(pub(in crate::app) Arc<Counter>);

#[async_trait]
impl EventSink for Hearing {
    async fn emit(&self, event: AgentEvent) {
        if Counter::concerns(&event) {
            self.0.look().await;
        }
    }
}
