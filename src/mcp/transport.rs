//! A transport that tells when it ended, and takes messages no faster than they can be dealt with.

use std::future::Future;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// So many messages may come at once, and so many in a second after that. A server that says more waits: what it
/// writes stays in its pipe.
const BURST: f64 = 2000.0;
const A_SECOND: f64 = 1000.0;

/// See the module's text.
pub(super) struct Guarded<T> {
    inner: T,
    ended: CancellationToken,
    left: f64,
    counted: Instant,
}

impl<T> Guarded<T> {
    pub(super) fn new(inner: T, ended: CancellationToken) -> Self {
        Self { inner, ended, left: BURST, counted: Instant::now() }
    }

    fn wait(&mut self) -> Option<Duration> {
        let now = Instant::now();
        self.left = (self.left + (now - self.counted).as_secs_f64() * A_SECOND).min(BURST);
        self.counted = now;
        (self.left < 1.0).then(|| Duration::from_millis(20))
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Guarded<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // Dropped half-way this loses nothing: a message is counted when it came.
        while let Some(wait) = self.wait() {
            tokio::time::sleep(wait).await;
        }
        let message = self.inner.receive().await;
        match &message {
            Some(_) => self.left -= 1.0,
            None => self.ended.cancel(),
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.ended.cancel();
        self.inner.close().await
    }
}
