//! aye's side: one session for each command that has a way out, and what joins the commands of a conversation.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use aye_core::contract::address::DomainPattern;
use aye_platform::Process;
use futures::future::join_all;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

use super::Relay;
use super::proxy::{Dialler, DomainProxy};
use crate::refusal::SandboxRefusal;

/// Maximum number of connections of one command at a time; further ones wait.
const MAX_CONNECTIONS: usize = 128;
/// Maximum number of ports of other commands that one command sees.
const MAX_PORTS: usize = 64;
/// Maximum number of refusals that are kept of one command.
const MAX_REFUSALS: usize = 8;
/// Maximum bytes of the first line of a connection.
const MAX_LINE: u64 = 64;
/// Time limit for a relay to report its listening ports.
const LISTENING_TIME: Duration = Duration::from_millis(300);
/// Time limit for a relay to open a connection to a server.
const OPEN_TIME: Duration = Duration::from_secs(5);
/// Time limit for a client's first line.
const LINE_TIME: Duration = Duration::from_secs(10);
/// Intervals between checks for servers: at first, and once a command has run for longer than [`EARLY`].
const GAPS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
const EARLY: Duration = Duration::from_secs(10);

/// Gives commands in network namespaces of their own a way to listed domains, and to each other's ports within a
/// conversation.
#[derive(Debug)]
pub struct NetHub {
    folder: PathBuf,
    domains: Vec<DomainPattern>,
    dialler: Arc<dyn Dialler>,
    sessions: Mutex<HashMap<String, Vec<Weak<SessionState>>>>,
    /// Changes whenever a command that may have servers comes or goes.
    changed: watch::Sender<()>,
    ids: AtomicU64,
}

/// Whether other commands of the conversation may reach the ports that a command listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    Never,
    /// After [`NetSession::serve`].
    Later,
    Now,
}

/// One command's way out. It ends when this is dropped.
#[derive(Debug)]
pub struct NetSession {
    hub: Arc<NetHub>,
    state: Arc<SessionState>,
    socket: PathBuf,
    task: AbortHandle,
}

struct SessionState {
    conversation: String,
    /// The proxy; `None` without domains.
    proxy: Option<DomainProxy>,
    /// Whether other commands had ports to reach when it started.
    joins: bool,
    /// Whether others may reach the ports that the command listens on.
    serves: AtomicBool,
    /// The sender of lines to the relay, once that is connected.
    relay: Mutex<Option<mpsc::UnboundedSender<String>>>,
    /// The ports that the relay last reported as listening.
    listening: watch::Sender<Vec<u16>>,
    /// Connections that its relay was asked to open.
    opening: Mutex<HashMap<u64, oneshot::Sender<Connection>>>,
    refusals: watch::Sender<Vec<(SandboxRefusal, String)>>,
}

impl fmt::Debug for SessionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionState").field("serves", &self.serves()).finish_non_exhaustive()
    }
}

type Connection = BufReader<UnixStream>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NetHub {
    /// Creates a hub whose sockets are in `folder`, which must be closed to other users. All commands may
    /// reach `domains`.
    pub fn new(folder: PathBuf, domains: Vec<DomainPattern>, dialler: Arc<dyn Dialler>) -> NetHub {
        remove_stale(&folder, SystemTime::now());
        NetHub {
            folder,
            domains,
            dialler,
            sessions: Mutex::default(),
            changed: watch::Sender::new(()),
            ids: AtomicU64::new(0),
        }
    }

    /// Opens a way out for a command of a conversation, if there is anything to reach: a domain, also one
    /// `granted` to this command, or a port, its own or that of another command. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn open(
        self: &Arc<Self>,
        conversation: &str,
        serving: Serving,
        granted: &[DomainPattern],
    ) -> io::Result<Option<NetSession>> {
        let domains = [self.domains.as_slice(), granted].concat();
        let joins = !self.servers(conversation, None).is_empty();
        if domains.is_empty() && serving == Serving::Never && !joins {
            return Ok(None);
        }
        let (socket, listener) = self.bind()?;
        let state = Arc::new(SessionState {
            conversation: conversation.to_owned(),
            proxy: (!domains.is_empty()).then(|| DomainProxy { domains, dialler: Arc::clone(&self.dialler) }),
            joins,
            serves: AtomicBool::new(serving == Serving::Now),
            relay: Mutex::default(),
            listening: watch::Sender::new(Vec::new()),
            opening: Mutex::default(),
            refusals: watch::Sender::default(),
        });
        let mut sessions = lock(&self.sessions);
        sessions.entry(conversation.to_owned()).or_default().push(Arc::downgrade(&state));
        drop(sessions);
        let task = tokio::spawn(listen(Arc::clone(self), Arc::clone(&state), listener)).abort_handle();
        if serving == Serving::Now {
            self.changed.send_replace(());
        }
        Ok(Some(NetSession { hub: Arc::clone(self), state, socket, task }))
    }

    fn bind(&self) -> io::Result<(PathBuf, UnixListener)> {
        let folder = File::open(&self.folder)?;
        loop {
            let name = format!("{}{}", own_prefix(), self.ids.fetch_add(1, Ordering::Relaxed));
            // The path of a socket has at most 107 bytes: through the open folder, its own does not count.
            match UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => return Ok((self.folder.join(name), bound?)),
            }
        }
    }

    /// The commands of a conversation whose ports others may reach.
    fn servers(&self, conversation: &str, except: Option<&Arc<SessionState>>) -> Vec<Arc<SessionState>> {
        let sessions = lock(&self.sessions);
        let all = sessions.get(conversation).into_iter().flatten().filter_map(Weak::upgrade);
        all.filter(|it| it.serves() && except.is_none_or(|except| !Arc::ptr_eq(it, except))).collect()
    }

    /// Joins a connection with a port of another command.
    async fn reach(&self, client: &mut Connection, state: &Arc<SessionState>, port: u16) {
        let servers = self.servers(&state.conversation, Some(state));
        let Some(server) = servers.into_iter().find(|it| it.listening.borrow().contains(&port)) else {
            return;
        };
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        lock(&server.opening).insert(id, sender);
        server.send_line(format!("open {id} {port}\n"));
        let opened = timeout(OPEN_TIME, receiver).await;
        lock(&server.opening).remove(&id);
        if let Ok(Ok(mut opened)) = opened {
            let _ = copy_bidirectional(client, &mut opened).await;
        }
    }

    /// Keeps a command's relay up to date about the ports of the others. The first line comes at once.
    async fn watch(&self, state: &Arc<SessionState>) {
        let (began, mut last) = (Instant::now(), None);
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let servers = self.servers(&state.conversation, Some(state));
            let found = join_all(servers.iter().map(|server| server.listening_ports())).await;
            let mut ports: Vec<u16> = found.into_iter().flatten().collect();
            ports.sort_unstable();
            ports.dedup();
            ports.truncate(MAX_PORTS);
            if last.as_ref() != Some(&ports) {
                let line = ports.iter().fold("ports".to_owned(), |line, port| format!("{line} {port}"));
                state.send_line(line + "\n");
                last = Some(ports);
            }
            if servers.is_empty() {
                let _ = changed.changed().await;
            } else {
                let gap = GAPS[usize::from(began.elapsed() > EARLY)];
                let _ = timeout(gap, changed.changed()).await;
            }
        }
    }
}

impl NetSession {
    /// Returns the relay for the command's policy.
    pub fn relay(&self) -> Relay {
        Relay { socket: self.socket.clone(), proxies: self.state.proxy.is_some(), joins: self.state.joins }
    }

    /// Lets others reach what the command listens on from now on.
    pub fn serve(&self) {
        self.state.serves.store(true, Ordering::Relaxed);
        self.hub.changed.send_replace(());
    }

    /// Returns what the command was refused so far, each with a sentence.
    pub fn refusals(&self) -> Vec<(SandboxRefusal, String)> {
        self.state.refusals.borrow().clone()
    }

    /// Calls `each` with the sentence of each refusal from now on, for ever.
    pub async fn each_refusal(&self, mut each: impl FnMut(&str)) {
        let mut refusals = self.state.refusals.subscribe();
        let mut reported = 0;
        loop {
            let sentences: Vec<_> = refusals
                .borrow_and_update()
                .iter()
                .skip(reported)
                .map(|(_, sentence)| sentence.clone())
                .collect();
            reported += sentences.len();
            for sentence in sentences {
                each(&sentence);
            }
            let _ = refusals.changed().await;
        }
    }
}

impl Drop for NetSession {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.socket);
        let mut sessions = lock(&self.hub.sessions);
        if let Some(all) = sessions.get_mut(&self.state.conversation) {
            all.retain(|it| !std::ptr::eq(it.as_ptr(), Arc::as_ptr(&self.state)));
            if all.is_empty() {
                sessions.remove(&self.state.conversation);
            }
        }
        drop(sessions);
        if self.state.serves() {
            self.hub.changed.send_replace(());
        }
    }
}

impl SessionState {
    fn serves(&self) -> bool {
        self.serves.load(Ordering::Relaxed)
    }

    fn send_line(&self, line: String) {
        if let Some(relay) = &*lock(&self.relay) {
            // Its end is seen where it is read from.
            let _ = relay.send(line);
        }
    }

    /// Returns the ports that the command listens on now, or those that its relay reported last.
    async fn listening_ports(&self) -> Vec<u16> {
        let mut listening = self.listening.subscribe();
        if lock(&self.relay).is_some() {
            self.send_line("look\n".to_owned());
            let _ = timeout(LISTENING_TIME, listening.changed()).await;
        }
        listening.borrow().clone()
    }

    fn refuse(&self, refusal: SandboxRefusal, sentence: String) {
        self.refusals.send_if_modified(|all| {
            let is_new = all.len() < MAX_REFUSALS && !all.iter().any(|(known, _)| *known == refusal);
            if is_new {
                all.push((refusal, sentence));
            }
            is_new
        });
    }
}

/// Takes the connections of one command until the session ends.
async fn listen(hub: Arc<NetHub>, state: Arc<SessionState>, listener: UnixListener) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (hub, state) = (Arc::clone(&hub), Arc::clone(&state));
                    connections.spawn(async move {
                        serve(&hub, &state, BufReader::new(stream)).await;
                        drop(slot);
                    });
                }
                // Too many open files: some end.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(hub: &Arc<NetHub>, state: &Arc<SessionState>, mut stream: Connection) {
    let mut line = String::new();
    let read = timeout(LINE_TIME, (&mut stream).take(MAX_LINE).read_line(&mut line)).await;
    let (true, Some(line)) = (matches!(read, Ok(Ok(_))), line.strip_suffix('\n')) else { return };
    let number = |prefix: &str| line.strip_prefix(prefix)?.parse::<u64>().ok();
    if line == "control" {
        control(hub, state, stream).await;
    } else if line == "proxy" {
        if let Some(proxy) = &state.proxy {
            let _ = proxy.serve(stream, |refusal, sentence| state.refuse(refusal, sentence)).await;
        }
    } else if let Some(port) = number("port ").and_then(|port| u16::try_from(port).ok()) {
        hub.reach(&mut stream, state, port).await;
    } else if let Some(id) = number("accept ")
        && let Some(waiting) = lock(&state.opening).remove(&id)
    {
        let _ = waiting.send(stream);
    }
}

/// Exchanges lines with a relay. Only the first connection that identifies itself as the relay is accepted,
/// because the command can connect too.
async fn control(hub: &Arc<NetHub>, state: &Arc<SessionState>, stream: Connection) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<String>();
    {
        let mut relay = lock(&state.relay);
        if relay.is_some() {
            return;
        }
        *relay = Some(sender);
    }
    let (read, mut write) = tokio::io::split(stream);
    let write = async {
        while let Some(line) = receiver.recv().await {
            if write.write_all(line.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    let read = async {
        let mut read = BufReader::new(read);
        loop {
            let mut line = String::new();
            // A port and its blank are at most six bytes.
            let most = 16 + 6 * 65536;
            match (&mut read).take(most).read_line(&mut line).await {
                Ok(n) if n > 0 && line.ends_with('\n') => {}
                _ => return,
            }
            let mut words = line.trim_end().split(' ');
            if words.next() == Some("listening") {
                let ports = words.filter_map(|word| word.parse().ok()).take(MAX_PORTS).collect();
                state.listening.send_replace(ports);
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write => {}
        () = hub.watch(state) => {}
    }
}

/// How the names of this process's sockets start: `PID-NAMESPACE-`. A pid means nothing in another pid namespace.
fn own_prefix() -> String {
    let this = Process::this();
    format!("{}-{}-", this.pid, this.pid_namespace)
}

/// A socket refuses connections for a moment before its process listens. So younger ones stay.
const MIN_STALE: Duration = Duration::from_mins(1);

/// Removes sockets of processes that ended without removing them: they refuse connections. Whether a process has such a
/// number is not asked, because the number may count elsewhere, and not every system tells.
fn remove_stale(folder: &Path, now: SystemTime) {
    use std::os::unix::fs::FileTypeExt as _;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_old = |about: std::fs::Metadata| {
            let age = about.modified().ok().and_then(|made| now.duration_since(made).ok());
            about.file_type().is_socket() && age.is_some_and(|age| age >= MIN_STALE)
        };
        let refuses = || {
            std::os::unix::net::UnixStream::connect(entry.path())
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if entry.metadata().is_ok_and(is_old) && refuses() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::SystemDialler;

    fn hub(domains: &[&str]) -> (tempfile::TempDir, Arc<NetHub>) {
        let folder = tempfile::tempdir().expect("a folder");
        let domains = domains.iter().map(|domain| domain.parse().expect("valid")).collect();
        let hub = NetHub::new(folder.path().to_owned(), domains, Arc::new(SystemDialler));
        (folder, Arc::new(hub))
    }

    async fn connect(session: &NetSession, line: &str) -> Connection {
        let mut stream = UnixStream::connect(session.relay().socket).await.expect("it listens");
        stream.write_all(line.as_bytes()).await.expect("written");
        BufReader::new(stream)
    }

    async fn line(stream: &mut Connection) -> String {
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("read");
        line
    }

    /// A relay of a command that listens on one port, where it answers with `words`.
    async fn relay(session: &NetSession, port: u16, words: &'static str) {
        let mut control = connect(session, "control\n").await;
        loop {
            let line = line(&mut control).await;
            if line == "look\n" {
                let line = format!("listening {port}\n");
                control.write_all(line.as_bytes()).await.expect("written");
            } else if let Some((id, wanted)) =
                line.strip_prefix("open ").and_then(|it| it.trim().split_once(' '))
            {
                assert_eq!(wanted, port.to_string());
                let mut stream = connect(session, &format!("accept {id}\n{words}")).await;
                stream.shutdown().await.expect("closed");
                let mut rest = String::new();
                let _ = stream.read_to_string(&mut rest).await;
            } else {
                assert_eq!(line, "ports\n", "nothing else runs in this conversation");
            }
        }
    }

    #[tokio::test]
    async fn nothing_is_opened_when_nothing_can_be_reached() {
        let (folder, hub) = hub(&[]);
        assert!(hub.open("a", Serving::Never, &[]).expect("possible").is_none());
        let server = hub.open("a", Serving::Now, &[]).expect("possible").expect("it serves");
        assert!(!server.relay().proxies);
        assert!(hub.open("b", Serving::Never, &[]).expect("possible").is_none(), "another conversation");
        let granted = hub.open("b", Serving::Never, &["docs.example.org".parse().expect("valid")]);
        assert!(granted.expect("possible").is_some_and(|session| session.relay().proxies));
        assert!(hub.open("a", Serving::Never, &[]).expect("possible").is_some());
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 1);
        drop(server);
        assert!(hub.open("a", Serving::Never, &[]).expect("possible").is_none());
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
        assert!(lock(&hub.sessions).is_empty());
    }

    #[tokio::test]
    async fn a_background_command_is_reachable_from_then_on() {
        let (_folder, hub) = hub(&["docs.example.org"]);
        let open = || hub.open("a", Serving::Never, &[]).expect("possible").expect("there is a domain");
        let (moved, other) = (open(), open());
        let test = async {
            let mut control = connect(&other, "control\n").await;
            assert_eq!(line(&mut control).await, "ports\n");
            moved.serve();
            while line(&mut control).await != "ports 3000\n" {}
            let mut stream = connect(&other, "port 3000\n").await;
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text).await;
            assert_eq!(text, "hello");
        };
        tokio::select! {
            () = test => {}
            () = relay(&moved, 3000, "hello") => {}
        }
    }

    #[tokio::test]
    async fn a_port_is_reachable_only_from_its_own_conversation() {
        let (_folder, hub) = hub(&["docs.example.org"]);
        let open =
            |name, serving| hub.open(name, serving, &[]).expect("possible").expect("there is something");
        let server = open("a", Serving::Now);
        let (near, far) = (open("a", Serving::Never), open("b", Serving::Never));
        let test = async {
            let mut control = connect(&near, "control\n").await;
            // Its relay may come a moment later.
            while line(&mut control).await != "ports 3000\n" {}
            let mut control = connect(&far, "control\n").await;
            assert_eq!(line(&mut control).await, "ports\n");
            for (session, port, expected) in [(&near, 3000, "hello"), (&near, 3001, ""), (&far, 3000, "")] {
                let mut stream = connect(session, &format!("port {port}\n")).await;
                let mut text = String::new();
                let _ = stream.read_to_string(&mut text).await;
                assert_eq!(text, expected, "{port}");
            }
        };
        tokio::select! {
            () = test => {}
            () = relay(&server, 3000, "hello") => {}
        }
    }

    #[tokio::test]
    async fn a_command_is_not_mistaken_for_its_relay() {
        let (_folder, hub) = hub(&["docs.example.org"]);
        let session = hub.open("a", Serving::Now, &[]).expect("possible").expect("it serves");
        let mut first = connect(&session, "control\n").await;
        assert_eq!(line(&mut first).await, "ports\n");
        for words in ["control\n", "nonsense\n", "accept 7\n", "port 99999\n", &"x".repeat(100)] {
            let mut other = connect(&session, words).await;
            let mut text = String::new();
            let _ = other.read_to_string(&mut text).await;
            assert_eq!(text, "", "{words}");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_stored_once_and_reported() {
        let (_folder, hub) = hub(&["docs.example.org"]);
        let session = hub.open("a", Serving::Never, &[]).expect("possible").expect("there is a domain");
        for _ in 0..2 {
            let mut stream = connect(&session, "proxy\nCONNECT evil.example.net:443 HTTP/1.1\r\n\r\n").await;
            let mut text = String::new();
            stream.read_to_string(&mut text).await.expect("read");
            assert!(text.starts_with("HTTP/1.1 403 evil.example.net"), "{text}");
        }
        let refusals = session.refusals();
        assert_eq!(refusals.len(), 1);
        assert_eq!(refusals[0].0, SandboxRefusal::Domain("evil.example.net".into()));
        let mut reported = Vec::new();
        let each = session.each_refusal(|sentence| reported.push(sentence.to_owned()));
        assert!(futures::FutureExt::now_or_never(each).is_none());
        assert_eq!(reported, ["evil.example.net is not listed in sandbox.domains"]);
    }

    #[test]
    fn sockets_of_ended_processes_are_removed() {
        use std::os::unix::net::UnixListener;
        let folder = tempfile::tempdir().expect("a folder");
        let bind = |name: &str| UnixListener::bind(folder.path().join(name)).expect("bound");
        let _alive = bind("1-1-0");
        drop(bind("2-1-0"));
        std::fs::write(folder.path().join("file"), "").expect("written");
        let left = |now| {
            remove_stale(folder.path(), now);
            let left = std::fs::read_dir(folder.path()).expect("readable").flatten();
            let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
            left.sort();
            left
        };
        assert_eq!(left(SystemTime::now()), ["1-1-0", "2-1-0", "file"], "its process may be about to listen");
        assert_eq!(left(SystemTime::now() + 2 * MIN_STALE), ["1-1-0", "file"]);
    }
}
