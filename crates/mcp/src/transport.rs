//! A transport that reports its end, takes messages no faster than they can be handled, and makes an older server
//! recognizable: one that is silent when it is probed, or answers with nothing.

use std::future::Future;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, DiscoverRequestMethod, ErrorData, JsonRpcMessage, JsonRpcResponse, RequestId, ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::handshake::ProbeState;

/// The number of messages that may arrive at once, and per second after that. A server that sends more has to
/// wait: its output stays in its pipe.
const BURST: f64 = 2000.0;
const A_SECOND: f64 = 1000.0;

pub(super) struct Guarded<T> {
    inner: T,
    ended: CancellationToken,
    left: f64,
    counted: Instant,
    /// The request `server/discover` that has no response yet.
    discovering: Option<RequestId>,
    /// The same after it was given up: a late response is for nobody.
    given_up: Option<RequestId>,
    limit: Option<ProbeLimit>,
    /// The end of the time that a probe has.
    deadline: Option<Instant>,
}

/// How long a probe may take, and what is done with a server that does not answer it.
pub(super) struct ProbeLimit {
    pub(super) patience: Duration,
    /// Whether the connection can be used for the handshake of older revisions; otherwise it ends.
    pub(super) can_continue: bool,
    pub(super) probe: ProbeState,
}

impl<T> Guarded<T> {
    pub(super) fn new(inner: T, ended: CancellationToken, limit: Option<ProbeLimit>) -> Self {
        let counted = Instant::now();
        Self { inner, ended, left: BURST, counted, discovering: None, given_up: None, limit, deadline: None }
    }

    fn wait(&mut self) -> Option<Duration> {
        let now = Instant::now();
        self.left = (self.left + (now - self.counted).as_secs_f64() * A_SECOND).min(BURST);
        self.counted = now;
        (self.left < 1.0).then(|| Duration::from_millis(20))
    }

    /// Some servers answer every method they do not know with an empty result. Such a response to `server/discover`
    /// becomes the error "method not found", after which the handshake of older revisions (`initialize`) follows.
    ///
    /// `None` is a message for nobody: the response to a probe that was given up.
    fn recognize(&mut self, message: RxJsonRpcMessage<RoleClient>) -> Option<RxJsonRpcMessage<RoleClient>> {
        let id = match &message {
            JsonRpcMessage::Response(JsonRpcResponse { id, .. }) => Some(id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        if id.is_some() && id == self.given_up.as_ref() {
            let is_modern = matches!(&message, JsonRpcMessage::Response(JsonRpcResponse { result, .. })
                if matches!(result, ServerResult::DiscoverResult(_)));
            if let Some(limit) = self.limit.as_ref().filter(|_| is_modern) {
                limit.probe.was_late();
            }
            return None;
        }
        if id.is_none() || id != self.discovering.as_ref() {
            return Some(message);
        }
        let asked = self.discovering.take();
        self.deadline = None;
        Some(match message {
            JsonRpcMessage::Response(JsonRpcResponse { result, .. })
                if !matches!(result, ServerResult::DiscoverResult(_)) =>
            {
                JsonRpcMessage::error(ErrorData::method_not_found::<DiscoverRequestMethod>(), asked)
            }
            message => message,
        })
    }

    /// Gives up a probe without a response. The reply in its place makes the handshake of older revisions follow; a
    /// connection that cannot be used for that ends.
    fn give_up(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.deadline = None;
        self.given_up = self.discovering.take();
        let limit = self.limit.as_ref()?;
        limit.probe.was_silent();
        limit.can_continue.then(|| {
            let error = ErrorData::method_not_found::<DiscoverRequestMethod>();
            JsonRpcMessage::error(error, self.given_up.clone())
        })
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Guarded<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let mut patience = None;
        if let JsonRpcMessage::Request(request) = &item
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
        {
            self.discovering = Some(request.id.clone());
            self.deadline = self.limit.as_ref().map(|limit| Instant::now() + limit.patience);
            // Over HTTP it is sent only when the server answers; `receive` gives up then. Half a message in a pipe would
            // spoil the next one.
            patience = self.limit.as_ref().filter(|limit| !limit.can_continue).map(|limit| limit.patience);
        }
        let sending = self.inner.send(item);
        async move {
            let Some(patience) = patience else { return sending.await };
            tokio::time::timeout(patience, sending).await.unwrap_or(Ok(()))
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            // Dropped half-way this loses nothing: a message is counted when it came.
            while let Some(wait) = self.wait() {
                tokio::time::sleep(wait).await;
            }
            let received = match self.deadline {
                None => self.inner.receive().await,
                Some(deadline) => {
                    let Ok(received) = tokio::time::timeout_at(deadline, self.inner.receive()).await else {
                        let reply = self.give_up();
                        if reply.is_none() {
                            self.ended.cancel();
                        }
                        return reply;
                    };
                    received
                }
            };
            let Some(message) = received else {
                self.ended.cancel();
                return None;
            };
            self.left -= 1.0;
            if let Some(message) = self.recognize(message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.ended.cancel();
        self.inner.close().await
    }
}
