//! One connection: how it is made, and calls over it, each with an end.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::model::{ClientRequest, ProtocolVersion, ServerResult, SubscriptionFilter};
use rmcp::service::{
    ClientInitializeError, ClientServiceExt as _, Peer, PeerRequestOptions, RunningService, ServiceError,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::error::ConnectError;
use super::handler::{ConnectionState, Handler};
use super::handshake::{Handshake, PATIENCE, ProbeState};
use super::login::{Bearer, Session};
use super::open::{CallEvent, CancelGuard, MAX_CALL, OpenCall};
use super::transport::{Guarded, ProbeLimit};
use super::{ServerLaunch, ServerProgram, Surroundings};
use aye_core::contract::display::{shortened, visible_line};
use aye_core::contract::server::{ServerConfig, ServerTransport, streamable_url};

/// One message of a server.
pub(super) const MAX_MESSAGE: usize = 16 << 20;
/// Characters of an error of the other side.
const MAX_ERROR: usize = 400;
/// The time that a program's last output may take to arrive after the program has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Maximum bytes read from a server's standard error in one connection.
const MAX_STDERR: usize = 4 << 20;

/// A server's description of itself. Shown, never trusted.
#[derive(Clone, Debug, Default)]
pub(super) struct Info {
    pub(super) protocol: String,
    pub(super) name: String,
    pub(super) instructions: Option<String>,
    pub(super) has_tools: bool,
    pub(super) has_resources: bool,
    pub(super) has_prompts: bool,
    is_modern: bool,
}

/// One attempt to agree with a server.
struct Attempt {
    opening: Handshake,
    probe: ProbeState,
    handler: Handler,
}

/// Why an attempt failed; without the error of the protocol there is no other way.
struct NotOpened {
    error: Option<Box<ClientInitializeError>>,
    why: ConnectError,
}

impl From<ConnectError> for NotOpened {
    fn from(why: ConnectError) -> Self {
        Self { error: None, why }
    }
}

pub(super) struct Client {
    service: Mutex<Option<RunningService<RoleClient, Handler>>>,
    peer: Peer<RoleClient>,
    pub(super) shared: Arc<ConnectionState>,
    pub(super) ended: CancellationToken,
    pub(super) info: Info,
    /// Whether the server answers `initialize` only: the next start need not probe it.
    pub(super) needs_initialize: bool,
    child: Mutex<Option<tokio::process::Child>>,
    /// The program's standard error was read to the end.
    quiet: CancellationToken,
    /// Whether a supervisor ends the program.
    is_supervised: bool,
    /// A value that the program needs as long as it runs.
    kept: Mutex<Box<dyn Any + Send>>,
}

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The server refused it, in its words.
    #[error("{0}")]
    Refused(String),
    /// Nothing arrived for this long.
    #[error("no answer for {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The connection ended.
    #[error("the connection ended")]
    Gone,
    /// The answer is invalid.
    #[error("an invalid answer: {0}")]
    Nonsense(String),
    /// It was cancelled here.
    #[error("cancelled")]
    Cancelled,
}

/// Returns text of the other side for a user or a model: one line, bounded.
pub(super) fn words_of(text: &str) -> String {
    visible_line(&shortened(text.trim(), MAX_ERROR)).into_owned()
}

pub(super) fn call_error(error: ServiceError) -> CallError {
    match error {
        ServiceError::McpError(error) => {
            CallError::Refused(words_of(&format!("{} (code {})", error.message, error.code.0)))
        }
        ServiceError::TransportClosed => CallError::Gone,
        ServiceError::TransportSend(error) => CallError::Refused(plainly(error.error.as_ref())),
        ServiceError::Timeout { timeout } => CallError::Timeout(timeout),
        ServiceError::Cancelled { .. } => CallError::Cancelled,
        other => CallError::Nonsense(words_of(&other.to_string())),
    }
}

/// An error with its causes in one line, without addresses.
pub(super) fn plainly(error: &dyn std::error::Error) -> String {
    words_of(&with_causes(error))
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = next.source();
    }
    without_address(&text)
}

/// An error of the HTTP client repeats the whole address, and that may hold a key.
fn without_address(text: &str) -> String {
    match text.split_once(" for url (") {
        Some((before, behind)) => format!("{before}{}", behind.rsplit_once(')').map_or("", |(_, rest)| rest)),
        None => text.to_owned(),
    }
}

impl Client {
    /// Starts or reaches the server and agrees with it on a protocol, in more than one way if needed.
    ///
    /// # Errors
    /// Why that is not possible.
    pub(super) async fn connect(
        config: &ServerConfig,
        around: &Surroundings,
        shared: Arc<ConnectionState>,
        is_known_to_initialize: bool,
    ) -> Result<Client, ConnectError> {
        let mut opening = Handshake::first(config.revision, is_known_to_initialize);
        loop {
            let probe = ProbeState::default();
            let attempt = Self::open_by(config, around, &shared, opening.clone(), probe.clone()).await;
            let NotOpened { error, why } = match attempt {
                Ok(client) => return Ok(client),
                Err(failed) => failed,
            };
            let Some(next) = error.and_then(|error| opening.after(&error, &probe)) else { return Err(why) };
            tracing::info!(server = %config.name, ?opening, ?next, "{why}");
            opening = next;
            shared.forget_lines();
        }
    }

    async fn open_by(
        config: &ServerConfig,
        around: &Surroundings,
        shared: &Arc<ConnectionState>,
        opening: Handshake,
        probe: ProbeState,
    ) -> Result<Client, NotOpened> {
        let attempt = |root| {
            let handler = Handler { shared: Arc::clone(shared), root, offered: opening.offered() };
            Attempt { opening: opening.clone(), probe: probe.clone(), handler }
        };
        match &config.transport {
            ServerTransport::Stdio { command, args, env, cwd, domains } => {
                let launch = ServerLaunch {
                    program: command.clone(),
                    args: args.iter().map(|arg| arg.expose_secret().into()).collect(),
                    cwd: cwd.clone(),
                    env: env.iter().map(|(k, v)| (k.into(), v.expose_secret().into())).collect(),
                    name: config.name.clone(),
                    profile: config.scope.profile(),
                    domains: domains.clone(),
                };
                let Started { reader, writer, mut child, is_supervised, kept, quiet } =
                    start(around, launch, shared).await?;
                let root = Some(format!("file://{}", around.root.display()));
                match Self::over_pipes(reader, writer, attempt(root)).await {
                    Ok(mut client) => {
                        client.child = Mutex::new(Some(child));
                        client.is_supervised = is_supervised;
                        client.kept = Mutex::new(kept);
                        client.quiet = quiet;
                        Ok(client)
                    }
                    Err(error) => {
                        let (text, can_be_started) = why_ended(&error, &mut child, &quiet).await;
                        let why = ConnectError::NotAgreed(with_lines(text, shared));
                        Err(NotOpened { error: can_be_started.then_some(error), why })
                    }
                }
            }
            ServerTransport::Http { url, headers, .. } => {
                let url = url.expose_secret();
                let settings = StreamableHttpClientTransportConfig::with_uri(url)
                    .custom_headers(header_map(headers)?)
                    .max_sse_event_size(MAX_MESSAGE);
                let client = http_client(url).map_err(ConnectError::HttpClient)?;
                let session = Session::of(config, &around.logins, &around.clock, &shared.wants_login);
                let agreed = if let Some(session) = session.map(Arc::new) {
                    // A token that is being renewed is not given up: it may be good for one renewal only.
                    let patience = if session.may_renew() { None } else { Some(PATIENCE) };
                    let bearer = Bearer { inner: client, session: Arc::clone(&session) };
                    let transport = StreamableHttpClientTransport::with_client(bearer, settings);
                    Self::agree(attempt(None), transport, patience, false).await.inspect(|_| session.works())
                } else {
                    let transport = StreamableHttpClientTransport::with_client(client, settings);
                    Self::agree(attempt(None), transport, Some(PATIENCE), false).await
                };
                agreed.map_err(|error| {
                    let text = with_lines(why_not(&error), shared) + &sse_hint(url);
                    NotOpened { error: Some(error), why: ConnectError::NotAgreed(text) }
                })
            }
        }
    }

    /// Speaks over a pair of pipes, as if nothing were known of the server.
    #[cfg(test)]
    pub(super) async fn over<R, W>(
        reader: R,
        writer: W,
        shared: Arc<ConnectionState>,
    ) -> Result<Client, Box<ClientInitializeError>>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let handler = Handler { shared, root: None, offered: Handshake::Probe.offered() };
        let attempt = Attempt { opening: Handshake::Probe, probe: ProbeState::default(), handler };
        Self::over_pipes(reader, writer, attempt).await
    }

    async fn over_pipes<R, W>(
        reader: R,
        writer: W,
        attempt: Attempt,
    ) -> Result<Client, Box<ClientInitializeError>>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let transport = AsyncRwTransport::new_client(reader, writer).with_max_line_length(MAX_MESSAGE);
        Self::agree(attempt, transport, Some(PATIENCE), true).await
    }

    /// Agrees over a transport. `patience` limits a probe; `can_continue` says whether the connection can be used after
    /// a probe without an answer.
    async fn agree<T: Transport<RoleClient> + 'static>(
        attempt: Attempt,
        transport: T,
        patience: Option<Duration>,
        can_continue: bool,
    ) -> Result<Client, Box<ClientInitializeError>> {
        let Attempt { opening, probe, handler } = attempt;
        let limit = patience.filter(|_| opening == Handshake::Probe).map(|patience| ProbeLimit {
            patience,
            can_continue,
            probe: probe.clone(),
        });
        let ended = CancellationToken::new();
        let shared = Arc::clone(&handler.shared);
        let transport = Guarded::new(transport, ended.clone(), limit);
        let service = handler.serve_with_lifecycle(transport, opening.lifecycle()).await?;
        let peer = service.peer().clone();
        let info = peer.peer_info().map(|info| {
            let about = info.server_info.as_ref();
            let name = about.map(|about| format!("{} {}", about.name, about.version)).unwrap_or_default();
            Info {
                protocol: info.protocol_version.to_string(),
                name: words_of(&name),
                instructions: info.instructions.clone(),
                has_tools: info.capabilities.tools.is_some(),
                has_resources: info.capabilities.resources.is_some(),
                has_prompts: info.capabilities.prompts.is_some(),
                is_modern: info.protocol_version == ProtocolVersion::V_2026_07_28,
            }
        });
        let info = info.unwrap_or_default();
        Ok(Client {
            service: Mutex::new(Some(service)),
            peer,
            shared,
            ended,
            needs_initialize: opening.needs_initialize(&probe, info.is_modern),
            info,
            child: Mutex::default(),
            quiet: CancellationToken::new(),
            is_supervised: false,
            kept: Mutex::new(Box::new(())),
        })
    }

    /// Asks for one thing.
    pub(super) async fn request(
        &self,
        request: ClientRequest,
        limit: Duration,
    ) -> Result<ServerResult, CallError> {
        let mut open = self.open(request, limit, false).await?;
        let never = CancellationToken::new();
        loop {
            match open.next(&never).await {
                CallEvent::Done(Ok(ServerResult::InputRequiredResult(_))) => {
                    return Err(CallError::Refused(
                        "it asks for input first; only tools may ask here".to_owned(),
                    ));
                }
                CallEvent::Done(result) => return result,
                CallEvent::Progress(_) | CallEvent::Asked(_) => {}
            }
        }
    }

    /// Sends a request that may take long: it may continue as long as the server reports progress.
    pub(super) async fn open(
        &self,
        request: ClientRequest,
        limit: Duration,
        takes_questions: bool,
    ) -> Result<OpenCall, CallError> {
        let opening = takes_questions.then(|| self.shared.opens());
        let sending = self.peer.send_request_with_option(request, PeerRequestOptions::no_options());
        let handle = match tokio::time::timeout(limit, sending).await {
            Ok(handle) => handle.map_err(call_error)?,
            Err(_) => return Err(CallError::Timeout(limit)),
        };
        let (progress, asked) = self.shared.listen(handle.progress_token.clone(), takes_questions);
        drop(opening);
        let guard = CancelGuard {
            peer: self.peer.clone(),
            shared: Arc::clone(&self.shared),
            id: Some(handle.id),
            token: handle.progress_token,
        };
        let ended = self.ended.clone();
        Ok(OpenCall {
            rx: handle.rx,
            progress,
            asked,
            ended,
            guard,
            answer: None,
            limit,
            left: MAX_CALL.max(limit),
        })
    }

    /// Subscribes to list changes on servers that report them to subscribers only: the revision of
    /// 2026-07-28. Ends with the connection.
    pub(super) async fn subscribe_to_list_changes(&self) {
        if !self.info.is_modern {
            return self.ended.cancelled().await;
        }
        let mut pause = Duration::from_secs(1);
        loop {
            let mut filter = SubscriptionFilter::new();
            filter.tools_list_changed = Some(true);
            filter.prompts_list_changed = Some(true);
            let heard = async {
                let mut subscription = self.peer.listen(filter).await?;
                while subscription.next().await?.is_some() {
                    self.shared.note_change();
                }
                Ok::<_, ServiceError>(())
            };
            tokio::select! {
                () = self.ended.cancelled() => return,
                heard = heard => match heard {
                    // It does not know this request: then its lists stay as they are.
                    Err(ServiceError::McpError(_)) => return self.ended.cancelled().await,
                    // Something may have been missed meanwhile.
                    Ok(()) | Err(_) => self.shared.note_change(),
                },
            }
            tokio::select! {
                () = self.ended.cancelled() => return,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_mins(5)),
            }
        }
    }

    /// Ends the connection; a program is given the time that its supervisor grants.
    pub(super) async fn close(&self) {
        let service = self.service.lock().expect("no panic while it is held").take();
        if let Some(mut service) = service {
            let _ = service.close_with_timeout(Duration::from_secs(1)).await;
        }
        self.ended.cancel();
        let child = self.child.lock().expect("no panic while it is held").take();
        if let Some(mut child) = child
            && !self.is_supervised
        {
            // The child is killed when dropped, so let it exit on its own first.
            let _ = tokio::time::timeout(Duration::from_secs(1), child.wait()).await;
        }
    }

    /// Describes how the program ended, if it did.
    pub(super) async fn how_it_ended(&self) -> String {
        let child = self.child.lock().expect("no panic while it is held").take();
        let text = match child {
            None => "the connection ended".to_owned(),
            Some(mut child) => match tokio::time::timeout(Duration::from_secs(1), child.wait()).await {
                Ok(Ok(status)) => {
                    let _ = tokio::time::timeout(LAST_WORDS, self.quiet.cancelled()).await;
                    format!("the program ended ({status})")
                }
                Ok(Err(_)) | Err(_) => "the program closed its output".to_owned(),
            },
        };
        with_lines(text, &self.shared)
    }
}

fn with_lines(mut text: String, shared: &ConnectionState) -> String {
    let lines: Vec<String> =
        shared.lines(3).iter().map(|line| words_of(line)).filter(|line| !line.is_empty()).collect();
    if !lines.is_empty() {
        text.push_str("; its output: ");
        text.push_str(&lines.join(" | "));
    }
    text
}

/// An address of the older transport is refused by its server in ways that do not say so.
fn sse_hint(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    if !path.rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case("sse")) {
        return String::new();
    }
    format!(
        "; its URL looks like the HTTP+SSE transport, which aye does not support; the streamable HTTP URL is \
         probably {}",
        visible_line(&streamable_url(url))
    )
}

fn why_not(error: &ClientInitializeError) -> String {
    match error {
        error if error.is_authorization_required() => {
            "it rejects the `Authorization` configured in its `headers`".to_owned()
        }
        ClientInitializeError::ConnectionClosed(_) => {
            "it closed the connection before it was ready".to_owned()
        }
        ClientInitializeError::TransportError { error, .. } => plainly(error.error.as_ref()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => plainly(fallback.as_ref()),
        other => plainly(other),
    }
}

/// Describes why a program is no server, and returns whether it could be started at all.
async fn why_ended(
    error: &ClientInitializeError,
    child: &mut tokio::process::Child,
    quiet: &CancellationToken,
) -> (String, bool) {
    let Ok(Ok(status)) = tokio::time::timeout(LAST_WORDS, child.wait()).await else {
        return (why_not(error), true);
    };
    let _ = tokio::time::timeout(LAST_WORDS, quiet.cancelled()).await;
    if matches!(status.code(), Some(126 | 127)) {
        ("it cannot be started".to_owned(), false)
    } else {
        (format!("the program ended ({status})"), true)
    }
}

/// A program that runs, and the ends of its pipes.
struct Started {
    reader: tokio::process::ChildStdout,
    writer: tokio::process::ChildStdin,
    child: tokio::process::Child,
    is_supervised: bool,
    kept: Box<dyn Any + Send>,
    /// Its standard error was read to the end.
    quiet: CancellationToken,
}

async fn start(
    around: &Surroundings,
    launch: ServerLaunch,
    shared: &Arc<ConnectionState>,
) -> Result<Started, ConnectError> {
    let (program, cwd) = (launch.program.clone(), launch.cwd.clone());
    let ServerProgram { command, is_supervised, kept } =
        (around.spawn)(launch).await.map_err(ConnectError::NotPrepared)?;
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(!is_supervised);
    let mut child = command.spawn().map_err(|error| {
        if cwd.is_dir() { ConnectError::NotStarted { program, error } } else { ConnectError::NoFolder(cwd) }
    })?;
    let (Some(reader), Some(writer), Some(stderr)) =
        (child.stdout.take(), child.stdin.take(), child.stderr.take())
    else {
        return Err(ConnectError::NoPipes);
    };
    let (shared, quiet) = (Arc::clone(shared), CancellationToken::new());
    let read = quiet.clone().drop_guard();
    tokio::spawn(async move {
        read_stderr(stderr, &shared).await;
        drop(read);
    });
    Ok(Started { reader, writer, child, is_supervised, kept, quiet })
}

/// Keeps what a server complains about, and never lets it wait for that.
async fn read_stderr(mut stderr: tokio::process::ChildStderr, shared: &ConnectionState) {
    let (mut line, mut buffer, mut kept) = (Vec::new(), vec![0; 8 << 10], 0);
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        if kept > MAX_STDERR {
            continue;
        }
        kept += count;
        for byte in &buffer[..count] {
            match byte {
                b'\n' => {
                    shared.line(&String::from_utf8_lossy(&line));
                    line.clear();
                }
                byte if line.len() < 2048 => line.push(*byte),
                _ => {}
            }
        }
    }
    if !line.is_empty() {
        shared.line(&String::from_utf8_lossy(&line));
    }
}

fn header_map(
    headers: &std::collections::BTreeMap<String, secrecy::SecretString>,
) -> Result<HashMap<HeaderName, HeaderValue>, ConnectError> {
    headers
        .iter()
        .map(|(name, value)| {
            let shown = visible_line(name).into_owned();
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| ConnectError::HeaderName(shown.clone()))?;
            let mut value =
                HeaderValue::from_str(value.expose_secret()).map_err(|_| ConnectError::HeaderValue(shown))?;
            value.set_sensitive(true);
            Ok((name, value))
        })
        .collect()
}

/// Builds a client for one host. It unpacks nothing, and follows no redirect: no header goes to another host than the
/// one it was written for.
///
/// # Errors
/// Its TLS cannot be set up.
pub fn http_client(url: &str) -> reqwest::Result<reqwest::Client> {
    aye_http::client_builder(reqwest::Url::parse(url).ok().as_ref())
        .no_gzip()
        .connect_timeout(Duration::from_secs(10))
        // A connection whose last answer was not read to its end stalls the next request.
        .pool_max_idle_per_host(0)
        .redirect(reqwest::redirect::Policy::none())
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_the_older_transport_is_named_without_its_key() {
        for url in ["https://h/v1/sse?key=s3cret", "https://h/v1/sse/"] {
            assert!(sse_hint(url).ends_with("probably https://h/v1/mcp"), "{}", sse_hint(url));
        }
        assert_eq!(sse_hint("https://h/mcp") + &sse_hint("https://h/passe"), "");
    }

    #[test]
    fn a_url_is_not_repeated() {
        for (text, left) in [
            (
                "error sending request for url (https://h/mcp?key=s3cret): refused",
                "error sending request: refused",
            ),
            ("error for url (https://h/a)b?k=s3cret)", "error"),
            ("plain", "plain"),
        ] {
            assert_eq!(without_address(text), left);
        }
    }
}
