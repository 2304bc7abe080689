//! The names of a mailbox beside a server.
//!
//! A conversation's queue is stored with the conversation, so that a message leaves it in the transaction that starts
//! its run. `POST /v1/threads/{id}/mailbox` queues there, and the server starts what is queued. It needs no other
//! mailbox; [`Mailbox`] only lets programs compile that pass one.

use std::sync::Arc;

use aye_core::contract::storage::MailboxStore;
use aye_runtime::AgentRuntime;

pub use ServerMailbox as Mailbox;
pub use aye_core::contract::mailbox::MailboxConfig;

/// A mailbox beside a server, which the server does not use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerMailbox {}

impl ServerMailbox {
    /// `runtime` is the runtime that the server gets, too. Jobs in `store` are not served: a program that has some
    /// claims them, as the `consumer` of that name and with the times of a [`MailboxConfig`], and passes them to
    /// [`AgentRuntime::run_job`].
    pub fn new(
        _runtime: Arc<AgentRuntime>,
        _store: Arc<dyn MailboxStore>,
        _consumer: String,
        _config: MailboxConfig,
    ) -> Self {
        Self {}
    }
}
