//! A transport that reads only as many requests as are worked on at once: what a client sends beyond that stays in its
//! pipe.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum requests without an answer. More than the calls that may run at once, since answers of the user to questions
/// of these calls come in the same way.
pub(super) const MAX_REQUESTS: usize = 1024;

type Unanswered = Arc<Mutex<HashMap<RequestId, Vec<OwnedSemaphorePermit>>>>;

/// Bounds the requests of another transport.
pub(super) struct BoundedTransport<T> {
    inner: T,
    room: Arc<Semaphore>,
    unanswered: Unanswered,
}

impl<T> BoundedTransport<T> {
    pub(super) fn new(inner: T, most: usize) -> Self {
        Self { inner, room: Arc::new(Semaphore::new(most)), unanswered: Arc::default() }
    }
}

/// Takes the place of one request with this id.
fn place_of(unanswered: &Unanswered, id: &RequestId) -> Option<OwnedSemaphorePermit> {
    let mut all = unanswered.lock().unwrap_or_else(PoisonError::into_inner);
    let places = all.get_mut(id)?;
    let place = places.pop();
    if places.is_empty() {
        all.remove(id);
    }
    place
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for BoundedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &item {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        // Free once the client has read the answer.
        let place = answered.and_then(|id| place_of(&self.unanswered, id));
        let sent = self.inner.send(item);
        async move {
            let sent = sent.await;
            drop(place);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let place = Arc::clone(&self.room).acquire_owned().await.ok()?;
        let message = self.inner.receive().await?;
        match &message {
            JsonRpcMessage::Request(request) => {
                let mut all = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
                all.entry(request.id.clone()).or_default().push(place);
            }
            // A cancelled request gets no answer.
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    drop(place_of(&self.unanswered, id));
                }
            }
            _ => {}
        }
        Some(message)
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use futures::FutureExt as _;
    use serde_json::{Value, json};

    use super::*;

    /// A client that sends these messages and reads what comes.
    struct Script(VecDeque<Value>);

    impl Transport<RoleServer> for Script {
        type Error = std::io::Error;

        fn send(
            &mut self,
            _: TxJsonRpcMessage<RoleServer>,
        ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
            std::future::ready(Ok(()))
        }

        async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
            self.0.pop_front().map(|message| serde_json::from_value(message).expect("a message"))
        }

        async fn close(&mut self) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    fn request(id: u32) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"})
    }

    fn answer(id: u32) -> TxJsonRpcMessage<RoleServer> {
        serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "result": {"tools": []}}))
            .expect("an answer")
    }

    #[tokio::test]
    async fn only_so_many_requests_are_read_at_once() {
        let cancelled =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
        let script = [request(1), request(2), request(3), cancelled, request(4), request(5), request(6)];
        let mut client = BoundedTransport::new(Script(script.into()), 3);
        for _ in 0..3 {
            assert!(client.receive().now_or_never().flatten().is_some());
        }
        assert!(client.receive().now_or_never().is_none(), "the rest stays in the pipe");
        client.send(answer(1)).await.expect("sent");
        assert!(client.receive().now_or_never().flatten().is_some(), "the cancellation takes no place");
        for _ in 0..2 {
            assert!(client.receive().now_or_never().flatten().is_some());
        }
        assert!(client.receive().now_or_never().is_none());
        client.send(answer(2)).await.expect("sent");
        assert!(
            client.receive().now_or_never().is_none(),
            "the answer to a cancelled request frees nothing twice"
        );
        client.send(answer(4)).await.expect("sent");
        assert!(client.receive().now_or_never().flatten().is_some());
        assert!(client.receive().now_or_never().is_none());
    }
}
