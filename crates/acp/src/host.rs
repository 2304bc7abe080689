//! The parts that only the program can provide: building itself for a folder, and listing what it has stored.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

use aye_core::contract::editor::EditorFiles;
use aye_core::contract::ids::SuspensionId;
use aye_core::contract::message::Message;
use aye_core::contract::mode::Mode;
use aye_core::contract::record::{DecideOutcome, ThreadRecord};
use aye_core::contract::server::ServerTransport;
use aye_core::contract::suspension::Answer;
use aye_runtime::AgentRuntime;
use aye_session::AnswerError;

/// Why the program refuses a request, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No model can be used before the user logs in.
    NoModel(String),
    /// The request is wrong.
    Invalid(String),
    Failed(String),
}

/// An MCP server that a client brings along.
#[derive(Clone, Debug)]
pub struct ClientServer {
    pub name: String,
    /// The transport of the server.
    pub transport: ServerTransport,
}

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrittenPart {
    /// Text that the user wrote.
    Text(String),
    /// Something that the model may read itself.
    Link { name: String, uri: String },
    /// The text of something that the user attached.
    Resource { uri: String, text: String },
    /// An image, in base64.
    Image(String),
}

/// A command that the user may start a prompt with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptCommand {
    /// Its name, without the slash.
    pub name: String,
    /// The description of the command.
    pub description: String,
    /// A hint for the text after the command's name.
    pub hint: Option<String>,
}

/// A model that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelOption {
    /// `provider/model`, or a name of the settings.
    pub name: String,
    /// Whether this is the model in use.
    pub is_current: bool,
}

/// The program, as clients of the protocol reach it.
pub trait EditorHost: Send + Sync {
    /// Builds the program for a folder, with servers of the client beside its own.
    ///
    /// # Errors
    /// [`Refusal`].
    fn open<'a>(
        &'a self,
        cwd: &'a Path,
        servers: Vec<ClientServer>,
    ) -> BoxFuture<'a, Result<Arc<dyn FolderHost>, Refusal>>;

    /// The conversations of a folder, or all of them, latest first.
    ///
    /// # Errors
    /// [`Refusal`].
    fn threads<'a>(&'a self, cwd: Option<&'a Path>) -> BoxFuture<'a, Result<Vec<ThreadRecord>, Refusal>>;
}

/// The program in one folder, for one session.
pub trait FolderHost: Send + Sync {
    /// Returns the runtime of the folder's agents.
    fn runtime(&self) -> &AgentRuntime;

    /// Takes in the editor's own view of its files.
    fn attach_editor(&self, files: Arc<dyn EditorFiles>);

    fn cwd(&self) -> PathBuf;

    /// The project that the folder belongs to.
    fn project(&self) -> PathBuf;

    fn mode(&self) -> Mode;

    /// Changes it for this session.
    ///
    /// # Errors
    /// [`Refusal`]: the mode cannot be entered.
    fn set_mode(&self, mode: Mode) -> Result<(), Refusal>;

    /// Commands that a prompt may start with.
    fn commands(&self) -> Vec<PromptCommand>;

    /// Returns warnings for the user to read before the first prompt.
    fn warnings(&self) -> Vec<String>;

    /// The models that can be used here, the current one among them.
    fn models(&self) -> Vec<ModelOption>;

    /// Chooses another model for this session.
    ///
    /// # Errors
    /// [`Refusal`]: it cannot be used.
    fn set_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Refusal>>;

    /// Waits a moment for MCP servers, before a run. Returns what the user should know.
    fn prepare(&self) -> BoxFuture<'_, Vec<String>>;

    /// The message that a prompt is.
    ///
    /// # Errors
    /// [`Refusal`]: something is wrong with a part.
    fn message(&self, parts: Vec<WrittenPart>) -> BoxFuture<'_, Result<Message, Refusal>>;

    /// Stores an answer, and the rule that is granted with it; a rule that cannot be granted is left out.
    ///
    /// # Errors
    /// [`AnswerError`]: nothing was written.
    fn decide<'a>(
        &'a self,
        id: &'a SuspensionId,
        answer: Answer,
    ) -> BoxFuture<'a, Result<DecideOutcome, AnswerError>>;

    /// Ends what runs beside the conversation.
    fn close(&self) -> BoxFuture<'_, ()>;
}
