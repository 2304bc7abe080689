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
use aye_core::contract::mode::Mode;

use super::content;
use super::ends::{internal, invalid, refusal};
use super::host::{EditorHost, FolderHost};
use super::session::AcpSession;

/// Sessions that one answer to `session/list` holds.
const PAGE: usize = 50;

/// Serves one client until it closes its stream or `stop` completes. Questions that are pending then stay pending.
///
/// # Errors
/// Why the connection broke.
pub async fn serve(
    host: Arc<dyn EditorHost>,
    version: &str,
    incoming: impl Stream<Item = std::io::Result<String>> + Send + 'static,
    outgoing: impl Sink<String, Error = std::io::Error> + Send + 'static,
    stop: impl Future<Output = ()>,
) -> Result<(), String> {
    let server = Arc::new(AcpServer {
        host,
        version: version.to_owned(),
        sessions: Mutex::default(),
        has_notices: Mutex::default(),
        closing: CancellationToken::new(),
        tasks: TaskTracker::new(),
    });
    let connection = Box::pin(connect(Arc::clone(&server), Lines::new(outgoing, incoming)));
    let ended = tokio::select! {
        ended = connection => ended.map_err(|error| error.message),
        () = stop => Ok(()),
    };
    server.close().await;
    ended
}

struct AcpServer {
    host: Arc<dyn EditorHost>,
    version: String,
    sessions: Mutex<HashMap<String, Arc<AcpSession>>>,
    has_notices: Mutex<bool>,
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
                // Nobody waits for the answer of a connection that is closed.
                let _ = responder.respond_with_result(result);
            });
            Ok(())
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
            answers!(server, acp::InitializeRequest, acp::InitializeResponse, initialize),
            on_receive_request!(),
        )
        .on_receive_request(
            answers!(server, acp::AuthenticateRequest, acp::AuthenticateResponse, authenticate),
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
                            server.introduce(&session);
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
            answers!(server, acp::SetSessionModeRequest, acp::SetSessionModeResponse, set_mode),
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

    async fn initialize(
        &self,
        request: acp::InitializeRequest,
        _client: ConnectionTo<Client>,
    ) -> Result<acp::InitializeResponse, Error> {
        let session = request.client_capabilities.session.as_ref();
        *self.has_notices.lock().unwrap_or_else(PoisonError::into_inner) =
            session.is_some_and(|session| session.notices.is_some());
        let prompts = acp::PromptCapabilities::new().image(true).embedded_context(true);
        let sessions = acp::SessionCapabilities::new()
            .list(acp::SessionListCapabilities::new())
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

    async fn authenticate(
        &self,
        _request: acp::AuthenticateRequest,
        _client: ConnectionTo<Client>,
    ) -> Result<acp::AuthenticateResponse, Error> {
        Err(invalid("aye has no login over the protocol; run `aye login` in a terminal"))
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
        let has_notices = *self.has_notices.lock().unwrap_or_else(PoisonError::into_inner);
        AcpSession::new(thread, host, client, has_notices, self.closing.clone())
    }

    /// Knows a session from now on. One of the same conversation that was open before is closed.
    async fn keep(&self, session: &Arc<AcpSession>) {
        let key = session.thread.to_string();
        let before = self.sessions(|sessions| sessions.insert(key, Arc::clone(session)));
        if let Some(before) = before {
            before.close().await;
        }
    }

    /// What a client may show of a session besides its messages.
    fn introduce(&self, session: &AcpSession) {
        let commands = session.host.commands().into_iter().map(|command| {
            let input = command.hint.map(|hint| {
                acp::AvailableCommandInput::Unstructured(acp::UnstructuredCommandInput::new(hint))
            });
            acp::AvailableCommand::new(command.name, command.description).input(input)
        });
        let commands: Vec<_> = commands.collect();
        if !commands.is_empty() {
            let update = acp::AvailableCommandsUpdate::new(commands);
            session.send(vec![SessionUpdate::AvailableCommandsUpdate(update)]);
        }
        let has_notices = *self.has_notices.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in session.host.warnings() {
            tracing::warn!("{warning}");
            if has_notices {
                let notice = acp::Notice::new(acp::NoticeSeverity::Warning, warning);
                session.send(vec![SessionUpdate::Notice(notice)]);
            }
        }
    }

    async fn new_session(
        &self,
        request: acp::NewSessionRequest,
        client: ConnectionTo<Client>,
    ) -> Result<(Arc<AcpSession>, acp::NewSessionResponse), Error> {
        let host = self.open(request.cwd, request.mcp_servers).await?;
        let modes = modes(host.mode());
        let session = self.begin(ThreadId::fresh(), host, client);
        self.keep(&session).await;
        let response = acp::NewSessionResponse::new(session.id.clone()).modes(modes);
        Ok((session, response))
    }

    async fn load_session(
        &self,
        request: acp::LoadSessionRequest,
        client: ConnectionTo<Client>,
    ) -> Result<acp::LoadSessionResponse, Error> {
        let id = request.session_id;
        let host = self.open(request.cwd, request.mcp_servers).await?;
        let thread = ThreadId::from(id.0.as_ref());
        let known = host.runtime().store().load_thread(&thread).await.map_err(|e| internal(e.to_string()))?;
        if known.is_none() {
            host.close().await;
            return Err(acp::Error::session_not_found(id).into());
        }
        let modes = modes(host.mode());
        let session = self.begin(thread, host, client);
        self.keep(&session).await;
        session.replay().await?;
        self.introduce(&session);
        Ok(acp::LoadSessionResponse::new().modes(modes))
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

    async fn set_mode(
        &self,
        request: acp::SetSessionModeRequest,
        _client: ConnectionTo<Client>,
    ) -> Result<acp::SetSessionModeResponse, Error> {
        let session = self.session(&request.session_id)?;
        let mode = mode(request.mode_id.0.as_ref(), session.host.mode())?;
        session.host.set_mode(mode).map_err(invalid)?;
        let update = acp::CurrentModeUpdate::new(acp::SessionModeId::new(mode.as_str()));
        session.send(vec![SessionUpdate::CurrentModeUpdate(update)]);
        Ok(acp::SetSessionModeResponse::new())
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

/// The modes that a client may enter: none in which aye stops asking.
const MODES: [(Mode, &str, &str); 3] = [
    (Mode::Ask, "Ask", "Asks before anything that your rules do not allow"),
    (Mode::AcceptEdits, "Accept edits", "Changes files of the project without asking"),
    (Mode::Plan, "Plan", "Reads and plans; changes nothing"),
];

fn modes(current: Mode) -> acp::SessionModeState {
    let mode = |(mode, name, description): (Mode, &str, &str)| {
        acp::SessionMode::new(acp::SessionModeId::new(mode.as_str()), name)
            .description(description.to_owned())
    };
    let mut modes: Vec<_> = MODES.map(mode).into();
    if !MODES.iter().any(|(mode, ..)| *mode == current) {
        modes.push(mode((current, current.as_str(), "Set by your settings")));
    }
    acp::SessionModeState::new(acp::SessionModeId::new(current.as_str()), modes)
}

/// The mode of that name, if a client may enter it.
fn mode(name: &str, current: Mode) -> Result<Mode, Error> {
    let named = Mode::parse(name);
    match named {
        Some(mode) if mode == current || MODES.iter().any(|(offered, ..)| *offered == mode) => Ok(mode),
        Some(mode) => Err(invalid(format!(
            "a client cannot enter the mode `{mode}`; set permission_mode in your settings"
        ))),
        None => Err(invalid(format!("unknown mode `{}`", name.escape_debug()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_enters_a_mode_that_stops_asking() {
        for name in ["yolo", "auto"] {
            let why = mode(name, Mode::Ask).expect_err("refused").message;
            assert!(why.contains(name) && why.contains("permission_mode"), "{why}");
        }
        assert_eq!(mode("plan", Mode::Ask).expect("a mode"), Mode::Plan);
        assert!(mode("YOLO", Mode::Yolo).is_err() && mode("", Mode::Ask).is_err());
        let ids = |current| {
            modes(current).available_modes.iter().map(|mode| mode.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(ids(Mode::Ask), ["ask", "accept-edits", "plan"]);
        assert_eq!(ids(Mode::Yolo).last().map(String::as_str), Some("yolo"), "the settings chose it");
    }
}
