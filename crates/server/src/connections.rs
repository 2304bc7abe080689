//! Bounds on connections, so that clients without a token cannot keep out those that have one.
//!
//! A connection is a stranger until a request with a valid token came over it. Strangers have a time limit, and there is
//! a limit on their number, for each address and in all: a new one takes the place of the oldest. So an address that
//! opens many connections ends only its own, and a client with a token always gets through.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Time in which a client has to show its token. The page, health and sign-in need none; a browser connects again.
const STRANGER: Duration = Duration::from_secs(30);
/// Maximum strangers of one address.
const MAX_PER_ADDRESS: usize = 64;
/// Maximum strangers in all.
const MAX_STRANGERS: usize = 256;
/// Time limit for telling a client that the server is full.
const FAREWELL: Duration = Duration::from_secs(1);

/// The answer to a connection that there is no place for.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";

#[derive(Debug)]
pub(super) struct Connection {
    from: IpAddr,
    /// Whether a request with a valid token came over it.
    is_known: AtomicBool,
    /// Cancelled when another stranger needs its place.
    cut: CancellationToken,
    all: Arc<Connections>,
}

impl Connection {
    /// Notes that a client with a valid token uses the connection.
    pub(super) fn recognise(self: &Arc<Self>) {
        if !self.is_known.swap(true, Ordering::Relaxed) {
            self.all.open().strangers.retain(|stranger| !Arc::ptr_eq(stranger, self));
        }
    }
}

/// The address that a request came from, and its connection where this server accepted it.
#[derive(Clone, Debug)]
pub(super) struct Peer(pub(super) SocketAddr, pub(super) Option<Arc<Connection>>);

#[derive(Debug, Default)]
struct Open {
    /// Oldest first.
    strangers: VecDeque<Arc<Connection>>,
    count: usize,
}

/// The connections of a server.
#[derive(Debug)]
pub(super) struct Connections {
    open: Mutex<Open>,
    /// Maximum connections in all: the store and commands need descriptors, too.
    most: usize,
}

impl Connections {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), most })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection; `None` if there is no place for it.
    fn admit(self: &Arc<Self>, from: IpAddr) -> Option<Arc<Connection>> {
        let mut open = self.open();
        let is_same = |stranger: &Arc<Connection>| stranger.from == from;
        let same = open.strangers.iter().filter(|stranger| is_same(stranger)).count();
        let leaves = if same >= MAX_PER_ADDRESS {
            open.strangers.iter().position(is_same)
        } else {
            let is_full = open.strangers.len() >= MAX_STRANGERS || open.count >= self.most;
            (is_full && !open.strangers.is_empty()).then_some(0)
        };
        if let Some(oldest) = leaves.and_then(|at| open.strangers.remove(at)) {
            oldest.cut.cancel();
        } else if open.count >= self.most {
            return None;
        }
        open.count += 1;
        let connection = Arc::new(Connection {
            from,
            is_known: AtomicBool::new(false),
            cut: CancellationToken::new(),
            all: Arc::clone(self),
        });
        open.strangers.push_back(Arc::clone(&connection));
        Some(connection)
    }

    fn left(&self, connection: &Arc<Connection>) {
        let mut open = self.open();
        open.count -= 1;
        open.strangers.retain(|stranger| !Arc::ptr_eq(stranger, connection));
    }
}

/// A listener with bounds.
pub(super) struct Bounded<L> {
    listener: L,
    connections: Arc<Connections>,
}

impl<L> Bounded<L> {
    pub(super) fn new(listener: L, connections: Arc<Connections>) -> Self {
        Self { listener, connections }
    }
}

impl<L: Listener<Addr = SocketAddr>> Listener for Bounded<L> {
    type Io = Watched<L::Io>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (mut io, from) = self.listener.accept().await;
            match self.connections.admit(from.ip()) {
                Some(connection) => return (Watched::new(io, connection), from),
                None => drop(tokio::spawn(tokio::time::timeout(FAREWELL, async move {
                    let _ = io.write_all(FULL).await;
                    let _ = io.shutdown().await;
                }))),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when its place is needed, or when no token came over it in time.
pub(super) struct Watched<S> {
    io: S,
    connection: Arc<Connection>,
    /// What ends it; `None` once its client is known.
    limits: Option<Limits>,
}

struct Limits {
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    late: Pin<Box<Sleep>>,
}

impl<S> Watched<S> {
    fn new(io: S, connection: Arc<Connection>) -> Self {
        let limits = Limits {
            cut: Box::pin(connection.cut.clone().cancelled_owned()),
            late: Box::pin(tokio::time::sleep(STRANGER)),
        };
        Self { io, connection, limits: Some(limits) }
    }

    pub(super) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    /// Returns an error when the connection is to end.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.connection.is_known.load(Ordering::Relaxed) {
            self.limits = None;
        }
        let Some(Limits { cut, late }) = &mut self.limits else { return Ok(()) };
        if cut.as_mut().poll(cx).is_ready() || late.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        self.connection.all.left(&self.connection);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn an_address_ends_only_its_own_connections() {
        let all = Connections::new(1000);
        let mine = all.admit(at(1)).expect("a place");
        let theirs: Vec<_> = (0..MAX_PER_ADDRESS + 3).filter_map(|_| all.admit(at(2))).collect();
        let cut = theirs.iter().filter(|one| one.cut.is_cancelled()).count();
        assert_eq!((cut, mine.cut.is_cancelled()), (3, false));
        assert!(theirs[..3].iter().all(|one| one.cut.is_cancelled()), "the oldest go first");
    }

    #[test]
    fn strangers_make_room_and_known_clients_do_not() {
        let all = Connections::new(4);
        let known = all.admit(at(1)).expect("a place");
        known.recognise();
        let strangers: Vec<_> = (2..6).filter_map(|last| all.admit(at(last))).collect();
        assert_eq!((strangers.len(), strangers[0].cut.is_cancelled()), (4, true));
        assert!(!known.cut.is_cancelled());
        for stranger in &strangers {
            stranger.recognise();
        }
        // The first one has not gone yet: there is no place, and nobody to leave.
        assert!(all.admit(at(9)).is_none());
        all.left(&strangers[0]);
        all.left(&strangers[1]);
        assert!(all.admit(at(9)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_ends_unless_its_client_is_known() {
        use tokio::io::AsyncReadExt as _;
        let all = Connections::new(4);
        let (_far, near) = tokio::io::duplex(64);
        let mut silent = Watched::new(near, all.admit(at(1)).expect("a place"));
        assert_eq!(silent.read_u8().await.expect_err("no byte").kind(), io::ErrorKind::ConnectionAborted);
        let (mut far, near) = tokio::io::duplex(64);
        let mut known = Watched::new(near, all.admit(at(1)).expect("a place"));
        known.connection().recognise();
        let reads = tokio::spawn(async move { known.read_u8().await });
        tokio::time::sleep(STRANGER * 3).await;
        far.write_all(b"x").await.expect("written");
        assert_eq!(reads.await.expect("no panic").expect("a byte"), b'x');
        drop(silent);
        assert_eq!(all.open().count, 0);
    }
}
