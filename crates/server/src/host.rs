//! The interface between the server and the program that it is part of.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use aye_core::contract::audit::AuditRow;
use aye_core::contract::grant::GrantRequest;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::mailbox::MailboxJob;
use aye_core::contract::record::{
    GrantRecord, InboxRow, RunRecord, StoredMessage, SuspensionRecord, ThreadSummary,
};
use aye_core::contract::storage::{AuditFilter, SuspensionFilter, ThreadRunStore};
use aye_core::contract::suspension::Actor;
use aye_runtime::AgentRuntime;
use serde_json::Value;

use super::access::Access;
use super::config::ConfigHost;
use super::error::ApiError;
use super::routes::A2aPushConfig;

/// A part of a list: what to leave out first, and how many to give.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Entries to leave out.
    pub offset: usize,
    /// Maximum number of entries, 1 to 200.
    pub limit: usize,
}

/// The program that a server is part of: its store, and its agents by folder.
#[async_trait]
pub trait ServerHost: Send + Sync + 'static {
    /// A handle of the store that nothing else writes through, so that its change feed reports every commit.
    fn store(&self) -> &Arc<dyn ThreadRunStore>;

    /// Returns the access control.
    fn access(&self) -> &Access;

    /// The folders that conversations may work in, absolute; the first one is the default. Folders below them count.
    fn folders(&self) -> &[PathBuf];

    /// The agents of a folder, built when it is first asked for.
    ///
    /// # Errors
    /// [`ApiError`] when its settings or rules cannot be used.
    async fn workshop(&self, folder: &Path) -> Result<Arc<dyn AgentFolder>, ApiError>;

    /// Returns the key that this program shares with the owner of the webhook of that name.
    fn webhook_key(&self, name: &str) -> Option<Vec<u8>>;

    /// Returns the user that the audit names for decisions; `token` is the name of the token.
    fn actor(&self, token: &str) -> Actor;

    /// Conversations, pinned ones first, then newest change first.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn threads(&self, slice: Slice) -> Result<Vec<ThreadSummary>, ApiError>;

    /// Runs of a conversation or of all, in one status or in any, newest first.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn runs(
        &self,
        thread: Option<&ThreadId>,
        status: Option<RunStatus>,
        slice: Slice,
    ) -> Result<Vec<RunRecord>, ApiError>;

    /// The pending questions of all conversations, oldest first.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn inbox(&self) -> Result<Vec<InboxRow>, ApiError>;

    /// Messages of a conversation from a place on, from 0, in order.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn messages(&self, thread: &ThreadId, slice: Slice) -> Result<Vec<StoredMessage>, ApiError>;

    /// Questions that the filter leaves, oldest first; those that other agents answer are among them.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn questions(
        &self,
        filter: SuspensionFilter,
        slice: Slice,
    ) -> Result<Vec<SuspensionRecord>, ApiError>;

    /// Rows of the audit that the filter leaves, oldest first.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn audit(&self, filter: AuditFilter, slice: Slice) -> Result<Vec<AuditRow>, ApiError>;

    /// The jobs of a conversation or of all that are not over.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn jobs(&self, thread: Option<&ThreadId>, slice: Slice) -> Result<Vec<MailboxJob>, ApiError>;

    /// Names a conversation.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn rename(&self, thread: &ThreadId, title: &str) -> Result<(), ApiError>;

    /// Deletes a conversation. Returns `false` if there is none.
    ///
    /// # Errors
    /// [`ApiError`] while another process drives it.
    async fn delete(&self, thread: &ThreadId, actor: Actor) -> Result<bool, ApiError>;

    /// Whether push notifications may go to a URL: a public address, or one that the settings name.
    ///
    /// # Errors
    /// [`ApiError`]: why not.
    fn checked_push(&self, url: &str) -> Result<(), ApiError>;

    /// Keeps where a task's news are sent.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn keep_push(&self, thread: &ThreadId, run: &RunId, config: &A2aPushConfig)
    -> Result<(), ApiError>;

    /// Returns the push targets of a task.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn pushes_of_run(&self, run: &RunId) -> Result<Vec<A2aPushConfig>, ApiError>;

    /// Returns the push targets of a conversation, or of all if none is given, that have not been notified of
    /// the end of their task.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn pushes_that_wait(&self, thread: Option<&ThreadId>) -> Result<Vec<WaitingPush>, ApiError>;

    /// Forgets an address.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn remove_push(&self, run: &RunId, id: &str) -> Result<(), ApiError>;

    /// Notifies a push target of the state of its task, until the target accepts or the attempt is given up.
    /// `stop` names the point at which the task stopped, [`PUSH_DONE`](super::PUSH_DONE) at its end: each is
    /// sent once.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn push(&self, to: &WaitingPush, stop: &str, body: Value) -> Result<(), ApiError>;

    /// The configuration, if clients can read it and admins can change it.
    fn config(&self) -> Option<&dyn ConfigHost> {
        None
    }

    /// Returns the capabilities of this program, for `/v1/capabilities`.
    ///
    /// # Errors
    /// [`ApiError`].
    async fn capabilities(&self) -> Result<Value, ApiError>;
}

/// A push target that was not notified of the end of its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPush {
    /// The conversation.
    pub thread: ThreadId,
    /// The task.
    pub run: RunId,
    /// The address.
    pub config: A2aPushConfig,
}

/// The agents of one folder.
#[async_trait]
pub trait AgentFolder: Send + Sync {
    /// Their runtime.
    fn runtime(&self) -> &AgentRuntime;

    /// Waits for tools of servers, before a run starts or resumes.
    async fn prepare(&self);

    /// A grant as it is stored, when it may be given with a question of this folder.
    ///
    /// # Errors
    /// [`ApiError`]: why it cannot be granted.
    async fn checked_grant(&self, request: GrantRequest, actor: Actor) -> Result<GrantRecord, ApiError>;

    /// The folder of its project, which a grant for the project names.
    fn root(&self) -> &Path;

    /// The model that answers.
    fn model(&self) -> String;
}
