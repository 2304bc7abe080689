//! A transport that reports its end, takes messages no faster than they can be handled, and makes an older server
//! recognizable.

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
}

impl<T> Guarded<T> {
    pub(super) fn new(inner: T, ended: CancellationToken) -> Self {
        Self { inner, ended, left: BURST, counted: Instant::now(), discovering: None }
    }

    fn wait(&mut self) -> Option<Duration> {
        let now = Instant::now();
        self.left = (self.left + (now - self.counted).as_secs_f64() * A_SECOND).min(BURST);
        self.counted = now;
        (self.left < 1.0).then(|| Duration::from_millis(20))
    }

    /// Some servers answer every method they do not know with an empty result. Such a response to `server/discover`
    /// becomes the error "method not found", after which the handshake of older revisions (`initialize`) follows.
    fn recognize(&mut self, message: RxJsonRpcMessage<RoleClient>) -> RxJsonRpcMessage<RoleClient> {
        let id = match &message {
            JsonRpcMessage::Response(JsonRpcResponse { id, .. }) => Some(id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        if id.is_none() || id != self.discovering.as_ref() {
            return message;
        }
        let asked = self.discovering.take();
        match message {
            JsonRpcMessage::Response(JsonRpcResponse { result, .. })
                if !matches!(result, ServerResult::DiscoverResult(_)) =>
            {
                JsonRpcMessage::error(ErrorData::method_not_found::<DiscoverRequestMethod>(), asked)
            }
            message => message,
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Guarded<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &item
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
        {
            self.discovering = Some(request.id.clone());
        }
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // Dropped half-way this loses nothing: a message is counted when it came.
        while let Some(wait) = self.wait() {
            tokio::time::sleep(wait).await;
        }
        let Some(message) = self.inner.receive().await else {
            self.ended.cancel();
            return None;
        };
        self.left -= 1.0;
        Some(self.recognize(message))
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.ended.cancel();
        self.inner.close().await
    }
}
