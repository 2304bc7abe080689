//! The interface between the server and the program that it is part of.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aye_core::contract::content::ContentBlock;
use aye_core::contract::grant::GrantRequest;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::message::Message;
use aye_core::contract::record::GrantRecord;
use aye_core::contract::storage::ThreadRunStore;
use aye_core::contract::suspension::Actor;
use aye_runtime::AgentRuntime;
use futures::future::BoxFuture;
use serde_json::Value;

use super::access::Access;
use super::config::ConfigHost;
use super::error::ApiError;
use super::push_config::A2aPushConfig;

/// The program that a server is part of: its store, and its agents by folder.
pub trait ServerHost: Send + Sync + 'static {
    /// A handle of the store that nothing else writes through, so that its change feed reports every commit.
    fn store(&self) -> &Arc<dyn ThreadRunStore>;

    /// Returns the access control.
    fn access(&self) -> &Access;

    /// The folders that conversations may work in, absolute; the first one is the default. Folders below them count.
    fn folders(&self) -> &[PathBuf];

    /// Returns whether conversations may work in a folder.
    fn serves(&self, folder: &Path) -> bool {
        self.folders().iter().any(|served| folder.starts_with(served))
    }

    /// The agents of a folder, built when it is first asked for.
    ///
    /// # Errors
    /// [`ApiError`] when its settings or rules cannot be used.
    fn workshop<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, Result<Arc<dyn AgentFolder>, ApiError>>;

    /// Returns the key that this program shares with the owner of the webhook of that name.
    fn webhook_key(&self, name: &str) -> Option<Vec<u8>>;

    /// Returns the user that the audit names for decisions; `token` is the name of the token.
    fn actor(&self, token: &str) -> Actor;

    /// Returns what errors and cards say about this server.
    fn texts(&self) -> &'static ServerTexts {
        &ServerTexts::PROGRAM
    }

    /// How many events a reader may be behind before its stream ends.
    fn backlog(&self) -> usize {
        1024
    }

    /// Maximum connections in all, so that there are descriptors left for the store and for commands.
    fn connections(&self) -> usize {
        512
    }

    /// The push notifications of A2A, if this server sends some.
    fn pushes(&self) -> Option<&dyn PushHost> {
        None
    }

    /// The configuration, if clients can read it and admins can change it.
    fn config(&self) -> Option<&dyn ConfigHost> {
        None
    }

    /// Returns the capabilities of this program, for `/v1/capabilities`.
    ///
    /// # Errors
    /// [`ApiError`].
    fn capabilities(&self) -> BoxFuture<'_, Result<Value, ApiError>>;
}

/// What errors and cards say about a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerTexts {
    /// Where a token comes from.
    pub token: &'static str,
    /// Where a host name is allowed.
    pub host: &'static str,
    /// Where an origin is allowed.
    pub origin: &'static str,
    /// Where a folder is allowed.
    pub folder: &'static str,
    /// Where a code to sign in with comes from.
    pub code: &'static str,
    /// What the agents are, in the card for other agents.
    pub about: &'static str,
    /// The id, the name and the description of what they do, in the card for other agents.
    pub skill: [&'static str; 3],
}

impl ServerTexts {
    /// Those of `aye serve`.
    pub const PROGRAM: ServerTexts = ServerTexts {
        token: "`aye serve token add NAME` creates one",
        host: "add it to [serve] hosts or set public_url",
        origin: "add it to [serve] origins",
        folder: "see [serve] folders",
        code: "create a new one where `aye serve` runs",
        about: "A coding agent that asks before it does anything its rules do not allow",
        skill: [
            "work",
            "Work in a project",
            "Reads, changes and runs what is in a folder; questions come back as input-required",
        ],
    };
}

/// Sends push notifications of A2A.
pub trait PushHost: Send + Sync {
    /// Whether push notifications may go to a URL: a public address, or one that the settings name.
    ///
    /// # Errors
    /// [`ApiError`]: why not.
    fn checked_push(&self, url: &str) -> Result<(), ApiError>;

    /// Keeps where a task's news are sent.
    ///
    /// # Errors
    /// [`ApiError`].
    fn keep_push<'a>(
        &'a self,
        thread: &'a ThreadId,
        run: &'a RunId,
        config: &'a A2aPushConfig,
    ) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Returns the push targets of a task.
    ///
    /// # Errors
    /// [`ApiError`].
    fn pushes_of_run<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<A2aPushConfig>, ApiError>>;

    /// Returns the push targets of a conversation, or of all if none is given, that have not been notified of
    /// the end of their task.
    ///
    /// # Errors
    /// [`ApiError`].
    fn pushes_that_wait<'a>(
        &'a self,
        thread: Option<&'a ThreadId>,
    ) -> BoxFuture<'a, Result<Vec<WaitingPush>, ApiError>>;

    /// Forgets an address.
    ///
    /// # Errors
    /// [`ApiError`].
    fn remove_push<'a>(&'a self, run: &'a RunId, id: &'a str) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Notifies a push target of the state of its task, until the target accepts or the attempt is given up.
    /// `stop` names the point at which the task stopped, [`PUSH_DONE`](super::PUSH_DONE) at its end: each is
    /// sent once.
    ///
    /// # Errors
    /// [`ApiError`].
    fn push<'a>(
        &'a self,
        to: &'a WaitingPush,
        stop: &'a str,
        body: Value,
    ) -> BoxFuture<'a, Result<(), ApiError>>;
}

/// A push target that was not notified of the end of its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPush {
    pub thread: ThreadId,
    pub run: RunId,
    pub config: A2aPushConfig,
}

/// The agents of one folder.
pub trait AgentFolder: Send + Sync {
    fn runtime(&self) -> &AgentRuntime;

    /// Waits for tools of servers, before a run starts or resumes.
    fn prepare(&self) -> BoxFuture<'_, ()>;

    /// A grant as it is stored, when it may be given with a question of this folder.
    ///
    /// # Errors
    /// [`ApiError`]: why it cannot be granted.
    fn checked_grant(
        &self,
        request: GrantRequest,
        actor: Actor,
    ) -> BoxFuture<'_, Result<GrantRecord, ApiError>>;

    /// The folder of its project, which a grant for the project names.
    fn root(&self) -> &Path;

    /// The model that answers.
    fn model(&self) -> String;

    /// Composes the message of what a person wrote: the first text of the content may be a command, and mention something
    /// if it is allowed to. A mention reads files and conversations without a question, like an answer to one.
    ///
    /// # Errors
    /// [`ApiError`]: it names something that does not exist or may not be read.
    fn message(
        &self,
        content: Vec<ContentBlock>,
        _may_mention: bool,
    ) -> BoxFuture<'_, Result<Message, ApiError>> {
        Box::pin(async move { Ok(Message::user_with(content)) })
    }
}
