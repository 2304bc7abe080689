//! Listens for connections and shuts the server down.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::connections::{Bounded, Connections, Peer, Watched};
use super::guard::{Guard, Names};
use super::hub::{Hub, LAST_WAIT};
use super::routes::router::router;

/// Connections whose handshake is done and that wait to be served.
const ACCEPTED: usize = 64;
/// Time limit for a client's handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and a port; port 0 is any free one.
    Tcp(SocketAddr),
    /// A socket that only its owner may open.
    Unix(PathBuf),
}

/// A certificate chain and its key.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be used.
    #[error("cannot listen on {0}: {1}")]
    Bind(String, #[source] std::io::Error),
    /// A file of the certificate cannot be used.
    #[error("cannot use {}: {why}", file.display())]
    Certificate { file: PathBuf, why: String },
}

impl Tls {
    /// Reads a chain and its key, both PEM.
    ///
    /// # Errors
    /// [`ListenError::Certificate`] names the file.
    pub fn from_files(cert: &Path, key: &Path) -> Result<Self, ListenError> {
        let wrong = |file: &Path| {
            let file = file.to_path_buf();
            move |why: String| ListenError::Certificate { file, why }
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect)
            .map_err(|error| wrong(cert)(unreadable(error, "certificate")))?;
        if chain.is_empty() {
            return Err(wrong(cert)("it contains no certificate".to_owned()));
        }
        let key_der = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| wrong(key)(unreadable(error, "private key")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key_der))
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => {
                    wrong(key)(format!("it is not the key of {}", cert.display()))
                }
                other => wrong(cert)(other.to_string()),
            })?;
        Ok(Self(Arc::new(config)))
    }
}

/// Returns why a PEM file does not contain something.
fn unreadable(error: pem::Error, what: &str) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => format!("it contains no {what}"),
        other => other.to_string(),
    }
}

/// A server that listens and does not serve yet.
pub struct Listening {
    listener: Bound,
    /// The address that it really has.
    pub address: Address,
}

enum Bound {
    Tcp(TcpListener),
    Tls(TcpListener, Tls, SocketAddr),
    Unix(UnixListener, PathBuf),
}

/// Starts listening.
///
/// # Errors
/// [`ListenError::Bind`].
pub async fn bind(address: &Address, tls: Option<Tls>) -> Result<Listening, ListenError> {
    match address {
        Address::Tcp(wanted) => {
            let failed = |error| ListenError::Bind(wanted.to_string(), error);
            let listener = TcpListener::bind(wanted).await.map_err(failed)?;
            let own = listener.local_addr().map_err(failed)?;
            let listener = match tls {
                Some(tls) => Bound::Tls(listener, tls, own),
                None => Bound::Tcp(listener),
            };
            Ok(Listening { listener, address: Address::Tcp(own) })
        }
        Address::Unix(path) => {
            let failed = |error| ListenError::Bind(path.display().to_string(), error);
            // The socket of a dead server is replaced; that of a live one is not.
            if path.exists() {
                if tokio::net::UnixStream::connect(path).await.is_ok() {
                    return Err(failed(std::io::ErrorKind::AddrInUse.into()));
                }
                use std::os::unix::fs::FileTypeExt as _;
                let is_socket =
                    std::fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
                if !is_socket {
                    return Err(failed(std::io::ErrorKind::AlreadyExists.into()));
                }
                std::fs::remove_file(path).map_err(failed)?;
            }
            let listener = UnixListener::bind(path).map_err(failed)?;
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
            Ok(Listening { listener: Bound::Unix(listener, path.clone()), address: address.clone() })
        }
    }
}

impl Listening {
    /// Serves until the hub closes; then requests and runs have 30 seconds to end.
    ///
    /// # Errors
    /// An error of the listener.
    pub async fn serve(self, hub: Arc<Hub>, names: Names) -> std::io::Result<()> {
        let connections = Connections::new(hub.program.connections());
        let closing = hub.closing.clone();
        let router: Router = router(Guard { hub: Arc::clone(&hub), names: Arc::new(names) });
        let stop = closing.clone().cancelled_owned();
        let served = async move {
            match self.listener {
                Bound::Tcp(listener) => {
                    let make = router.into_make_service_with_connect_info::<Peer>();
                    axum::serve(Bounded::new(listener, connections), make).with_graceful_shutdown(stop).await
                }
                Bound::Tls(listener, tls, own) => {
                    let listener = TlsListener::start(Bounded::new(listener, connections), tls, own);
                    let make = router.into_make_service_with_connect_info::<Peer>();
                    axum::serve(listener, make).with_graceful_shutdown(stop).await
                }
                Bound::Unix(listener, path) => {
                    let done = axum::serve(listener, router).with_graceful_shutdown(stop).await;
                    let _ = std::fs::remove_file(path);
                    done
                }
            }
        };
        tokio::pin!(served);
        tokio::select! {
            done = &mut served => return done,
            () = closing.cancelled() => {}
        }
        let (_, ()) = tokio::join!(tokio::time::timeout(LAST_WAIT, served), hub.close());
        Ok(())
    }
}

impl Connected<IncomingStream<'_, Bounded<TcpListener>>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Bounded<TcpListener>>) -> Self {
        Self(*stream.remote_addr(), Some(stream.io().connection()))
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        Self(*stream.remote_addr(), Some(stream.io().get_ref().0.connection()))
    }
}

/// Accepts TLS connections; a client with a slow handshake does not delay others.
struct TlsListener {
    accepted: mpsc::Receiver<(TlsStream<Watched<TcpStream>>, SocketAddr)>,
    own: SocketAddr,
}

impl TlsListener {
    fn start(mut listener: Bounded<TcpListener>, tls: Tls, own: SocketAddr) -> Self {
        let (sender, accepted) = mpsc::channel(ACCEPTED);
        let acceptor = TlsAcceptor::from(tls.0);
        tokio::spawn(async move {
            loop {
                let (stream, peer) = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = sender.closed() => return,
                };
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move {
                    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => {
                            let _ = sender.send((stream, peer)).await;
                        }
                        Ok(Err(error)) => tracing::debug!(%error, "a client did not finish its handshake"),
                        Err(_) => tracing::debug!("a client took too long for its handshake"),
                    }
                });
            }
        });
        Self { accepted, own }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<Watched<TcpStream>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.own)
    }
}
