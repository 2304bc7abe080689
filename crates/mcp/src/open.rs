//! A request in flight. Its events arrive step by step: between two steps the request may be left alone for
//! as long as a user thinks, and that time does not count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::RoleClient;
use rmcp::model::{CancelledNotificationParam, NumberOrString, ProgressToken, ServerResult};
use rmcp::service::{Peer, ServiceError};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::client::{CallError, call_error};
use super::elicitation::PendingElicitation;
use super::handler::{ConnectionState, ProgressReport};

/// However much progress a call makes, it has an end.
pub(super) const MAX_CALL: Duration = Duration::from_hours(1);

/// The next event of a request.
#[expect(clippy::large_enum_variant, reason = "one at a time, and taken apart at once")]
pub(super) enum CallEvent {
    Progress(ProgressReport),
    Asked(PendingElicitation),
    /// It is over: no step follows.
    Done(Result<ServerResult, CallError>),
}

/// A request in flight. Dropping it notifies the server that its answer is no longer needed.
pub(super) struct OpenCall {
    pub(super) rx: oneshot::Receiver<Result<ServerResult, ServiceError>>,
    pub(super) progress: mpsc::Receiver<ProgressReport>,
    pub(super) asked: mpsc::Receiver<PendingElicitation>,
    pub(super) ended: CancellationToken,
    pub(super) guard: CancelGuard,
    /// An answer that has arrived, kept until a report that arrived before it is returned.
    pub(super) answer: Option<Result<ServerResult, CallError>>,
    /// The longest time that the server may be silent.
    pub(super) limit: Duration,
    /// The time that the request may take in all.
    pub(super) left: Duration,
}

impl OpenCall {
    pub(super) async fn next(&mut self, cancelled: &CancellationToken) -> CallEvent {
        if let Some(answer) = self.answer.take() {
            return CallEvent::Done(answer);
        }
        let began = Instant::now();
        let step = tokio::select! {
            biased;
            answer = &mut self.rx => {
                self.guard.id = None;
                let answer = match answer {
                    Ok(answer) => answer.map_err(call_error),
                    Err(_) => Err(CallError::Gone),
                };
                // A report that arrived before the answer is returned before it.
                match self.progress.try_recv() {
                    Ok(report) => {
                        self.answer = Some(answer);
                        CallEvent::Progress(report)
                    }
                    Err(_) => CallEvent::Done(answer),
                }
            }
            () = self.ended.cancelled() => {
                self.guard.id = None;
                CallEvent::Done(Err(CallError::Gone))
            }
            () = cancelled.cancelled() => CallEvent::Done(Err(CallError::Cancelled)),
            () = tokio::time::sleep(self.left) => CallEvent::Done(Err(CallError::Timeout(MAX_CALL.max(self.limit)))),
            Some(asked) = self.asked.recv() => CallEvent::Asked(asked),
            Some(report) = self.progress.recv() => CallEvent::Progress(report),
            () = tokio::time::sleep(self.limit) => CallEvent::Done(Err(CallError::Timeout(self.limit))),
        };
        self.left = self.left.saturating_sub(began.elapsed());
        step
    }
}

/// Notifies the server that a request is no longer needed, unless it was answered.
pub(super) struct CancelGuard {
    pub(super) peer: Peer<RoleClient>,
    pub(super) shared: Arc<ConnectionState>,
    pub(super) id: Option<NumberOrString>,
    pub(super) token: ProgressToken,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.shared.stop_listening(&self.token);
        let Some(id) = self.id.take() else { return };
        let peer = self.peer.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let params = CancelledNotificationParam::new(Some(id), Some("no longer needed".to_owned()));
                let _ = tokio::time::timeout(Duration::from_secs(2), peer.notify_cancelled(params)).await;
            });
        }
    }
}
