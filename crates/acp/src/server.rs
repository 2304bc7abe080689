//! The methods of the protocol, and the sessions of one client.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema as acp;
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Error, Lines, on_receive_notification, on_receive_request};
use futures::{Sink, Stream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use acp::SessionUpdate;
use aye_core::contract::ids::ThreadId;

use super::content;
use super::ends::{internal, invalid, refusal};
use super::host::{EditorHost, FolderHost};
use super::options::{MODE, MODEL, mode, modes, options};
use super::session::{AcpSession, ClientAbilities};

/// The maximum number of sessions in one answer to `session/list`.
const PAGE: usize = 50;

/// Why a client could not be served any longer.
#[derive(Debug)]
pub struct ConnectionBroke(Error);

impl std::fmt::Display for ConnectionBroke {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for ConnectionBroke {}

/// Serves one client until it closes its stream or `stop` completes. Questions that are pending then stay pending.
///
/// # Errors
/// [`ConnectionBroke`].
pub async fn serve(
    host: Arc<dyn EditorHost>,
    version: &str,
    incoming: impl Stream<Item = std::io::Result<String>> + Send + 'static,
    outgoing: impl Sink<String, Error = std::io::Error> + Send + 'static,
    stop: impl Future<Output = ()>,
) -> Result<(), ConnectionBroke> {
    let server = Arc::new(AcpServer {
        host,
        version: version.to_owned(),
        sessions: Mutex::default(),
        abilities: Mutex::default(),
        closing: CancellationToken::new(),
        tasks: TaskTracker::new(),
    });
    let connection = Box::pin(connect(Arc::clone(&server), Lines::new(outgoing, incoming)));
    let ended = tokio::select! {
        ended = connection => ended.map_err(ConnectionBroke),
        () = stop => Ok(()),
    };
    server.close().await;
    ended
}

struct AcpServer {
    host: Arc<dyn EditorHost>,
    version: String,
    sessions: Mutex<HashMap<String, Arc<AcpSession>>>,
    abilities: Mutex<ClientAbilities>,
    /// The client is gone.
    closing: CancellationToken,
    tasks: TaskTracker,
}

/// Answers each request of a kind from a task of its own: the connection dispatches one message at a time.
macro_rules! answers {
    ($server:expr, $request:ty, $response:ty, $method:ident) => {{
        let server = Arc::clone(&$server);
        async move |request: $request, responder: Responder<$response>, client: ConnectionTo<Client>| {
            let server = Arc::clone(&server);
            let tasks = server.tasks.clone();
            tasks.spawn(async move {
                let result = server.$method(request, client).await;
                // A closed connection no longer waits for its answer.
                let _ = responder.respond_with_result(result);
            });
            Ok(())
        }
    }};
}

/// Answers each request of a kind at once.
macro_rules! replies {
    ($server:expr, $request:ty, $response:ty, $method:ident) => {{
        let server = Arc::clone(&$server);
        async move |request: $request, responder: Responder<$response>, _client: ConnectionTo<Client>| {
            responder.respond_with_result(server.$method(request))
        }
    }};
}

async fn connect<O, I>(server: Arc<AcpServer>, transport: Lines<O, I>) -> Result<(), Error>
where
    O: Sink<String, Error = std::io::Error> + Send + 'static,
    I: Stream<Item = std::io::Result<String>> + Send + 'static,
{
    let opens = Arc::clone(&server);
    let prompts = Arc::clone(&server);
    let cancels = Arc::clone(&server);
    Agent
        .v1()
        .name("aye")
        .on_receive_request(
            replies!(server, acp::InitializeRequest, acp::InitializeResponse, initialize),
            on_receive_request!(),
        )
        .on_receive_request(
            replies!(server, acp::AuthenticateRequest, acp::AuthenticateResponse, authenticate),
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: acp::NewSessionRequest,
                        responder: Responder<acp::NewSessionResponse>,
                        client: ConnectionTo<Client>| {
                let server = Arc::clone(&opens);
                let tasks = server.tasks.clone();
                tasks.spawn(async move {
                    match server.new_session(request, client).await {
                        Ok((session, response)) => {
                            let _ = responder.respond(response);
                            // Only now the client knows the session.
                            introduce(&session);
                        }
                        Err(error) => drop(responder.respond_with_error(error)),
                    }
                });
                Ok(())
            },
            on_receive_request!(),
        )
        .on_receive_request(
            answers!(server, acp::LoadSessionRequest, acp::LoadSessionResponse, load_session),
            on_receive_request!(),
        )
        .on_receive_request(
            answers!(server, acp::ListSessionsRequest, acp::ListSessionsResponse, list_sessions),
            on_receive_request!(),
        )
        .on_receive_request(
            answers!(server, acp::CloseSessionRequest, acp::CloseSessionResponse, close_session),
            on_receive_request!(),
        )
        .on_receive_request(
            replies!(server, acp::SetSessionModeRequest, acp::SetSessionModeResponse, set_mode),
            on_receive_request!(),
        )
        .on_receive_request(
            answers!(
                server,
                acp::SetSessionConfigOptionRequest,
                acp::SetSessionConfigOptionResponse,
                set_option
            ),
            on_receive_request!(),
        )
        .on_receive_request(
            answers!(server, acp::ResumeSessionRequest, acp::ResumeSessionResponse, resume_session),
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: acp::PromptRequest, responder: Responder<acp::PromptResponse>, _client| {
                let server = Arc::clone(&prompts);
                let tasks = server.tasks.clone();
                tasks.spawn(async move {
                    let cancellation = responder.cancellation();
                    let session = request.session_id.clone();
                    let prompt = server.prompt(request);
                    tokio::pin!(prompt);
                    let result = tokio::select! {
                        result = &mut prompt => result,
                        () = cancellation.cancelled() => {
                            if let Ok(session) = server.session(&session) {
                                session.cancel();
                            }
                            prompt.await
                        }
                    };
                    let _ = responder.respond_with_result(result);
                });
                Ok(())
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |cancel: acp::CancelNotification, _client| {
                if let Ok(session) = cancels.session(&cancel.session_id) {
                    session.cancel();
                }
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_to(transport)
        .await
}

impl AcpServer {
    fn sessions<T>(&self, of: impl FnOnce(&mut HashMap<String, Arc<AcpSession>>) -> T) -> T {
        of(&mut self.sessions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn session(&self, id: &acp::SessionId) -> Result<Arc<AcpSession>, Error> {
        self.sessions(|sessions| sessions.get(id.0.as_ref()).cloned())
            .ok_or_else(|| acp::Error::session_not_found(id.clone()).into())
    }

    #[expect(clippy::unnecessary_wraps, reason = "it is called as the others are")]
    fn initialize(&self, request: acp::InitializeRequest) -> Result<acp::InitializeResponse, Error> {
        let capabilities = &request.client_capabilities;
        let abilities = ClientAbilities {
            has_notices: capabilities.session.as_ref().is_some_and(|session| session.notices.is_some()),
            has_forms: capabilities.elicitation.as_ref().is_some_and(|asking| asking.form.is_some()),
            reads_files: capabilities.fs.read_text_file,
            writes_files: capabilities.fs.write_text_file,
        };
        *self.abilities.lock().unwrap_or_else(PoisonError::into_inner) = abilities;
        let prompts = acp::PromptCapabilities::new().image(true).embedded_context(true);
        let sessions = acp::SessionCapabilities::new()
            .list(acp::SessionListCapabilities::new())
            .resume(acp::SessionResumeCapabilities::new())
            .close(acp::SessionCloseCapabilities::new());
        let capabilities = acp::AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(prompts)
            .mcp_capabilities(acp::McpCapabilities::new().http(true))
            .session_capabilities(sessions);
        Ok(acp::InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(capabilities)
            .agent_info(acp::Implementation::new("aye", self.version.clone()).title("aye".to_owned())))
    }

    #[expect(clippy::unused_self, reason = "it is called as the others are")]
    fn authenticate(&self, _request: acp::AuthenticateRequest) -> Result<acp::AuthenticateResponse, Error> {
        Err(invalid("aye does not support login over the protocol; run `aye login` in a terminal"))
    }

    async fn open(&self, cwd: PathBuf, servers: Vec<acp::McpServer>) -> Result<Arc<dyn FolderHost>, Error> {
        if !cwd.is_absolute() {
            return Err(invalid(format!("cwd must be an absolute path, not `{}`", cwd.display())));
        }
        let servers = content::servers(servers, &cwd)?;
        self.host.open(&cwd, servers).await.map_err(refusal)
    }

    fn begin(
        &self,
        thread: ThreadId,
        host: Arc<dyn FolderHost>,
        client: ConnectionTo<Client>,
    ) -> Arc<AcpSession> {
        let abilities = *self.abilities.lock().unwrap_or_else(PoisonError::into_inner);
        AcpSession::new(thread, host, client, abilities, self.closing.clone())
    }

    /// Knows a session from now on. One of the same conversation that was open before is closed.
    async fn keep(&self, session: &Arc<AcpSession>) {
        let key = session.thread.to_string();
        let before = self.sessions(|sessions| sessions.insert(key, Arc::clone(session)));
        if let Some(before) = before {
            before.close().await;
        }
    }

    async fn new_session(
        &self,
        request: acp::NewSessionRequest,
        client: ConnectionTo<Client>,
    ) -> Result<(Arc<AcpSession>, acp::NewSessionResponse), Error> {
        let host = self.open(request.cwd, request.mcp_servers).await?;
        let session = self.begin(ThreadId::fresh(), host, client);
        self.keep(&session).await;
        let response = acp::NewSessionResponse::new(session.id.clone())
            .modes(modes(session.host.mode()))
            .config_options(options(&*session.host));
        Ok((session, response))
    }

    /// Opens a session of a stored conversation.
    async fn reopen(
        &self,
        id: acp::SessionId,
        cwd: PathBuf,
        servers: Vec<acp::McpServer>,
        client: ConnectionTo<Client>,
    ) -> Result<Arc<AcpSession>, Error> {
        let host = self.open(cwd, servers).await?;
        let thread = ThreadId::from(id.0.as_ref());
        let known = host.runtime().store().load_thread(&thread).await.map_err(|e| internal(e.to_string()))?;
        if known.is_none() {
            host.close().await;
            return Err(acp::Error::session_not_found(id).into());
        }
        let session = self.begin(thread, host, client);
        self.keep(&session).await;
        Ok(session)
    }

    async fn load_session(
        &self,
        request: acp::LoadSessionRequest,
        client: ConnectionTo<Client>,
    ) -> Result<acp::LoadSessionResponse, Error> {
        let session = self.reopen(request.session_id, request.cwd, request.mcp_servers, client).await?;
        session.replay(true).await?;
        introduce(&session);
        Ok(acp::LoadSessionResponse::new()
            .modes(modes(session.host.mode()))
            .config_options(options(&*session.host)))
    }

    async fn resume_session(
        &self,
        request: acp::ResumeSessionRequest,
        client: ConnectionTo<Client>,
    ) -> Result<acp::ResumeSessionResponse, Error> {
        let session = self.reopen(request.session_id, request.cwd, request.mcp_servers, client).await?;
        session.replay(false).await?;
        introduce(&session);
        Ok(acp::ResumeSessionResponse::new()
            .modes(modes(session.host.mode()))
            .config_options(options(&*session.host)))
    }

    async fn list_sessions(
        &self,
        request: acp::ListSessionsRequest,
        _client: ConnectionTo<Client>,
    ) -> Result<acp::ListSessionsResponse, Error> {
        let from: usize = match &request.cursor {
            None => 0,
            Some(cursor) => cursor.parse().map_err(|_| invalid(format!("unknown cursor `{cursor}`")))?,
        };
        let threads = self.host.threads(request.cwd.as_deref()).await.map_err(refusal)?;
        let next = (threads.len() > from.saturating_add(PAGE)).then(|| (from + PAGE).to_string());
        let sessions = threads.into_iter().skip(from).take(PAGE).map(|thread| {
            let title = (!thread.title.is_empty()).then_some(thread.title);
            acp::SessionInfo::new(acp::SessionId::new(thread.id.as_str()), thread.cwd)
                .title(title)
                .updated_at(timestamp(thread.updated_at))
        });
        Ok(acp::ListSessionsResponse::new(sessions.collect()).next_cursor(next))
    }

    async fn close_session(
        &self,
        request: acp::CloseSessionRequest,
        _client: ConnectionTo<Client>,
    ) -> Result<acp::CloseSessionResponse, Error> {
        let session = self.session(&request.session_id)?;
        self.sessions(|sessions| sessions.remove(request.session_id.0.as_ref()));
        session.close().await;
        Ok(acp::CloseSessionResponse::new())
    }

    fn set_mode(&self, request: acp::SetSessionModeRequest) -> Result<acp::SetSessionModeResponse, Error> {
        let session = self.session(&request.session_id)?;
        enter(&session, request.mode_id.0.as_ref())?;
        let update = acp::ConfigOptionUpdate::new(options(&*session.host));
        session.send(vec![SessionUpdate::ConfigOptionUpdate(update)]);
        Ok(acp::SetSessionModeResponse::new())
    }

    async fn set_option(
        &self,
        request: acp::SetSessionConfigOptionRequest,
        _client: ConnectionTo<Client>,
    ) -> Result<acp::SetSessionConfigOptionResponse, Error> {
        let session = self.session(&request.session_id)?;
        let acp::SessionConfigOptionValue::ValueId { value } = request.value else {
            return Err(invalid("the value of this option is one of its list"));
        };
        match request.config_id.0.as_ref() {
            MODE => enter(&session, value.0.as_ref())?,
            MODEL => {
                let is_offered = session.host.models().iter().any(|model| *model.name == *value.0);
                if !is_offered {
                    return Err(invalid(format!("unknown model `{}`", value.0.escape_debug())));
                }
                session.host.set_model(value.0.as_ref()).await.map_err(refusal)?;
            }
            other => return Err(invalid(format!("unknown option `{}`", other.escape_debug()))),
        }
        Ok(acp::SetSessionConfigOptionResponse::new(options(&*session.host)))
    }

    async fn prompt(&self, request: acp::PromptRequest) -> Result<acp::PromptResponse, Error> {
        let session = self.session(&request.session_id)?;
        let parts = content::parts(request.prompt)?;
        session.prompt(parts).await.map(acp::PromptResponse::new)
    }

    /// Ends all sessions in order.
    async fn close(&self) {
        self.closing.cancel();
        let sessions: Vec<_> =
            self.sessions(|sessions| sessions.drain().map(|(_, session)| session).collect());
        futures::future::join_all(sessions.iter().map(|session| session.close())).await;
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// A time in RFC 3339.
fn timestamp(at_ms: u64) -> Option<String> {
    let at = i64::try_from(at_ms).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    at.map(|at| at.to_string())
}

/// Enters a mode that a client may enter, and notifies the client.
fn enter(session: &AcpSession, name: &str) -> Result<(), Error> {
    let mode = mode(name, session.host.mode())?;
    session.host.set_mode(mode).map_err(refusal)?;
    let update = acp::CurrentModeUpdate::new(acp::SessionModeId::new(mode.as_str()));
    session.send(vec![SessionUpdate::CurrentModeUpdate(update)]);
    Ok(())
}

/// Sends what a client may show of a session besides its messages.
fn introduce(session: &AcpSession) {
    let commands = session.host.commands().into_iter().map(|command| {
        let input = command
            .hint
            .map(|hint| acp::AvailableCommandInput::Unstructured(acp::UnstructuredCommandInput::new(hint)));
        acp::AvailableCommand::new(command.name, command.description).input(input)
    });
    let commands: Vec<_> = commands.collect();
    if !commands.is_empty() {
        let update = acp::AvailableCommandsUpdate::new(commands);
        session.send(vec![SessionUpdate::AvailableCommandsUpdate(update)]);
    }
    for warning in session.host.warnings() {
        tracing::warn!("{warning}");
        session.send_text(&warning);
    }
}
