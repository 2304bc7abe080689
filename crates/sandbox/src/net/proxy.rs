//! aye's side of a proxy: which names a command may reach, and the connections to them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aye_core::contract::address::{DomainPattern, domain_name, is_public};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::refusal::SandboxRefusal;

/// Maximum bytes of a request's head.
const MAX_HEAD: usize = 16 << 10;
/// Maximum number of its header lines.
const MAX_HEADERS: usize = 100;
/// Time limit for the head of a client's request, and for the answer of a name server.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Time limit for one address to accept a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Maximum number of addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;
/// Time limit for a server's first byte.
const FIRST_BYTE_TIME: Duration = Duration::from_mins(2);

/// Resolves addresses and opens connections. The caller decides in between what may be reached.
#[async_trait]
pub trait Dialler: fmt::Debug + Send + Sync {
    /// The addresses of a name.
    ///
    /// # Errors
    /// The name does not exist, or no name server answers.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;

    /// A connection to exactly this address.
    ///
    /// # Errors
    /// Nothing answers there.
    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream>;
}

/// The machine's own name servers and network.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDialler;

#[async_trait]
impl Dialler for SystemDialler {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }
}

/// Passes requests on to the names that the user listed.
#[derive(Debug)]
pub(super) struct DomainProxy {
    pub(super) domains: Vec<DomainPattern>,
    pub(super) dialler: Arc<dyn Dialler>,
}

/// Why a request is not passed on.
#[derive(Debug)]
enum Rejection {
    /// It is not one for a proxy.
    Bad(&'static str),
    /// It may not go where it wants to.
    Refused(SandboxRefusal, String),
    Failed(String),
}

/// The destination of a request, and what is sent there first.
#[derive(Debug, PartialEq, Eq)]
struct ProxyRequest {
    host: String,
    port: u16,
    /// `None` for a tunnel.
    head: Option<Vec<u8>>,
}

impl DomainProxy {
    /// Serves one connection of a command. `refused` is called with what it may not reach, and a sentence.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) async fn serve(
        &self,
        mut client: impl AsyncRead + AsyncWrite + Unpin,
        refused: impl FnOnce(SandboxRefusal, String),
    ) -> io::Result<()> {
        let connected = async {
            let (request, rest) = timeout(HEAD_TIME, read_head(&mut client))
                .await
                .unwrap_or(Err(Rejection::Bad("the request did not arrive in time")))?;
            let server = self.dial(&request).await?;
            Ok::<_, Rejection>((request, rest, server))
        };
        match connected.await {
            Ok((request, rest, mut server)) => {
                match &request.head {
                    Some(head) => server.write_all(head).await?,
                    None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
                }
                server.write_all(&rest).await?;
                join(client, server).await
            }
            Err(rejection) => {
                let answer = answer_to(&rejection);
                if let Rejection::Refused(refusal, sentence) = rejection {
                    refused(refusal, sentence);
                }
                client.write_all(answer.as_bytes()).await?;
                client.shutdown().await
            }
        }
    }

    /// Connects to an address that was checked, and to no other.
    async fn dial(&self, request: &ProxyRequest) -> Result<TcpStream, Rejection> {
        let ProxyRequest { host, port, .. } = request;
        let Some(name) = domain_name(host) else {
            let sentence =
                format!("{host} is not a name; commands can reach only names listed in sandbox.domains");
            return Err(Rejection::Refused(SandboxRefusal::Other(sentence.clone()), sentence));
        };
        if !self.domains.iter().any(|domain| domain.matches(&name)) {
            let sentence = format!("{name} is not listed in sandbox.domains");
            return Err(Rejection::Refused(SandboxRefusal::Domain(name), sentence));
        }
        let failed = |why: &dyn fmt::Display| Rejection::Failed(format!("cannot connect to {name}: {why}"));
        let found = timeout(HEAD_TIME, self.dialler.resolve(&name, *port)).await;
        let found = found.map_err(|_| failed(&"no name server answered"))?.map_err(|error| failed(&error))?;
        let public: Vec<_> = found.into_iter().filter(|address| is_public(address.ip())).collect();
        if public.is_empty() {
            let sentence = format!("{name} has no public address; sandboxed commands can reach only those");
            return Err(Rejection::Refused(SandboxRefusal::Other(sentence.clone()), sentence));
        }
        let mut last = failed(&"nothing listens there");
        for address in public.into_iter().take(MAX_ADDRESSES) {
            match timeout(CONNECT_TIME, self.dialler.connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = failed(&error),
                Err(_) => last = failed(&"no answer in time"),
            }
        }
        Err(last)
    }
}

/// The answer to a request that is not passed on. Its reason is the sentence: many programs show nothing else.
fn answer_to(rejection: &Rejection) -> String {
    let (code, reason) = match rejection {
        Rejection::Bad(why) => (400, *why),
        Rejection::Refused(_, sentence) => (403, sentence.as_str()),
        Rejection::Failed(sentence) => (502, sentence.as_str()),
    };
    let reason: String = reason.chars().filter(|c| c.is_ascii() && !c.is_ascii_control()).collect();
    let length = reason.len() + 1;
    format!(
        "HTTP/1.1 {code} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{reason}\n"
    )
}

/// Reads a request's head. Returns what came after it as well.
async fn read_head(client: &mut (impl AsyncRead + Unpin)) -> Result<(ProxyRequest, Vec<u8>), Rejection> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        let mut piece = [0; 4096];
        match client.read(&mut piece).await {
            Ok(0) | Err(_) => return Err(Rejection::Bad("the request ended early")),
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
        }
        if let Some((request, length)) = parse(&bytes).map_err(Rejection::Bad)? {
            return Ok((request, bytes.split_off(length)));
        }
        if bytes.len() > MAX_HEAD {
            return Err(Rejection::Bad("the head of the request is too long"));
        }
    }
}

/// The request and the length of its head. `None`: more bytes are needed.
fn parse(bytes: &[u8]) -> Result<Option<(ProxyRequest, usize)>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("this is not an HTTP request"),
    };
    let (Some(method), Some(target)) = (request.method, request.path) else { return Err("no request line") };
    if method == "CONNECT" {
        let (host, port) = host_and_port(target, None).ok_or("CONNECT needs a host and a port")?;
        return Ok(Some((ProxyRequest { host, port, head: None }, length)));
    }
    let rest = match target.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case("http://") => &target[7..],
        _ => return Err("a proxy needs CONNECT or a URL that starts with http://"),
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (host, port) = host_and_port(authority, Some(80)).ok_or("the URL has no valid host")?;
    // One request for each connection: the next one may be for another host.
    let mut head = format!("{method} {}{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n", {
        if path.starts_with('/') { "" } else { "/" }
    })
    .into_bytes();
    for header in request.headers.iter().filter(|header| !is_for_proxy(header.name)) {
        head.extend_from_slice(header.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(header.value);
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    Ok(Some((ProxyRequest { host, port, head: Some(head) }, length)))
}

/// Header lines that end here, and `Host`, which follows from the URL.
fn is_for_proxy(name: &str) -> bool {
    const NAMES: [&str; 7] =
        ["host", "connection", "proxy-connection", "keep-alive", "proxy-authorization", "te", "upgrade"];
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Takes `example.org:443` apart; an IPv6 address is in brackets.
fn host_and_port(authority: &str, default: Option<u16>) -> Option<(String, u16)> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port.parse().ok()?)),
        _ => (authority, None),
    };
    let is_host = |c: char| c.is_ascii_graphic() && !matches!(c, '@' | '/' | '\\' | '%');
    let is_valid = !host.is_empty() && host.len() <= 255 && host.chars().all(is_host);
    Some((host.to_owned(), port.or(default)?)).filter(|_| is_valid)
}

/// Copies both ways until both ended.
async fn join(client: impl AsyncRead + AsyncWrite, server: TcpStream) -> io::Result<()> {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = server.into_split();
    let up = async {
        copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    let down = async {
        let mut first = [0; 4096];
        let n = timeout(FIRST_BYTE_TIME, from_server.read(&mut first)).await??;
        to_client.write_all(&first[..n]).await?;
        copy(&mut from_server, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::try_join!(up, down).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::duplex;
    use tokio::net::TcpListener;

    use super::*;

    /// A dialler with made-up addresses for names, and one server for every connection.
    #[derive(Debug)]
    struct FakeDialler {
        server: SocketAddr,
        dialled: Mutex<Vec<SocketAddr>>,
    }

    #[async_trait]
    impl Dialler for FakeDialler {
        async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            let addresses: &[&str] = match host {
                "docs.example.org" => &["10.0.0.1", "93.184.216.34"],
                "a.example.com" => &["2606:4700:4700::1111"],
                "inside.example.org" => &["10.0.0.1", "::1", "169.254.169.254"],
                _ => return Err(io::Error::other("no such name")),
            };
            Ok(addresses.iter().map(|ip| SocketAddr::new(ip.parse().expect("an address"), port)).collect())
        }

        async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
            self.dialled.lock().expect("held").push(address);
            TcpStream::connect(self.server).await
        }
    }

    /// What the client read, what the server read, what was refused and which addresses were dialled.
    #[derive(Debug, Default)]
    struct Outcome {
        client: String,
        server: String,
        refused: Option<SandboxRefusal>,
        dialled: Vec<String>,
    }

    /// Sends `request` through a proxy; the server says `hello` and ends once its input ends.
    async fn through(request: &str) -> Outcome {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = listener.local_addr().expect("bound");
        let dialler = Arc::new(FakeDialler { server, dialled: Mutex::default() });
        let domains = ["docs.example.org", "*.example.com", "inside.example.org", "gone.example.org"];
        let domains = domains.map(|domain| domain.parse().expect("valid")).into();
        let proxy = DomainProxy { domains, dialler: dialler.clone() };
        let (mut near, far) = duplex(1 << 16);
        let mut outcome = Outcome::default();
        let served = proxy.serve(far, |refusal, _| outcome.refused = Some(refusal));
        let client = async {
            near.write_all(request.as_bytes()).await.expect("written");
            near.shutdown().await.expect("closed");
            let mut text = String::new();
            near.read_to_string(&mut text).await.expect("read");
            text
        };
        let answering = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut text = String::new();
            stream.read_to_string(&mut text).await.expect("read");
            stream.write_all(b"hello").await.expect("written");
            text
        });
        let (done, text) = tokio::join!(served, client);
        done.expect("it is served");
        outcome.client = text;
        if dialler.dialled.lock().expect("held").is_empty() {
            answering.abort();
        } else {
            outcome.server = answering.await.expect("no panic");
        }
        let dialled = dialler.dialled.lock().expect("held");
        outcome.dialled = dialled.iter().map(ToString::to_string).collect();
        drop(dialled);
        outcome
    }

    #[tokio::test]
    async fn a_listed_name_is_dialled_at_the_checked_public_address() {
        let outcome = through("CONNECT docs.example.org:443 HTTP/1.1\r\nHost: x\r\n\r\nbytes").await;
        assert_eq!(outcome.client, "HTTP/1.1 200 Connection established\r\n\r\nhello");
        assert_eq!((outcome.server.as_str(), outcome.refused), ("bytes", None));
        assert_eq!(outcome.dialled, ["93.184.216.34:443"]);
        let outcome = through("CONNECT A.example.com.:8443 HTTP/1.1\r\n\r\n").await;
        assert_eq!(outcome.dialled, ["[2606:4700:4700::1111]:8443"]);
    }

    #[tokio::test]
    async fn a_plain_request_goes_to_the_host_of_its_url() {
        let outcome = through(
            "POST http://docs.example.org/a?b HTTP/1.1\r\nHost: evil.example.net\r\nProxy-Connection: keep-alive\r\n\
             Proxy-Authorization: secret\r\nContent-Length: 4\r\n\r\nbody",
        )
        .await;
        assert_eq!(
            outcome.server,
            "POST /a?b HTTP/1.1\r\nHost: docs.example.org\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody"
        );
        assert_eq!((outcome.client.as_str(), outcome.dialled.len()), ("hello", 1));
        let outcome = through("GET http://docs.example.org:81?x HTTP/1.1\r\n\r\n").await;
        assert!(
            outcome.server.starts_with("GET /?x HTTP/1.1\r\nHost: docs.example.org:81\r\n"),
            "{outcome:?}"
        );
        assert_eq!(outcome.dialled, ["93.184.216.34:81"]);
    }

    #[tokio::test]
    async fn an_unlisted_name_is_refused() {
        for line in ["CONNECT evil.example.net:443", "GET http://evil.example.net/x"] {
            let outcome = through(&format!("{line} HTTP/1.1\r\n\r\n")).await;
            let start = "HTTP/1.1 403 evil.example.net is not listed in sandbox.domains\r\n";
            assert!(outcome.client.starts_with(start), "{outcome:?}");
            assert_eq!(outcome.refused, Some(SandboxRefusal::Domain("evil.example.net".into())));
            assert!(outcome.dialled.is_empty());
        }
    }

    #[tokio::test]
    async fn only_names_with_public_addresses_are_dialled() {
        for host in ["93.184.216.34", "10.0.0.1", "[::1]", "2130706433", "0x7f.1", "localhost"] {
            let outcome = through(&format!("CONNECT {host}:80 HTTP/1.1\r\n\r\n")).await;
            assert!(outcome.client.starts_with(&format!("HTTP/1.1 403 {host} is not a name")), "{outcome:?}");
            assert!(matches!(outcome.refused, Some(SandboxRefusal::Other(_))) && outcome.dialled.is_empty());
        }
        let outcome = through("CONNECT inside.example.org:443 HTTP/1.1\r\n\r\n").await;
        let start = "HTTP/1.1 403 inside.example.org has no public address";
        assert!(outcome.client.starts_with(start) && outcome.dialled.is_empty(), "{outcome:?}");
    }

    #[tokio::test]
    async fn invalid_and_unroutable_requests_are_answered() {
        let long = format!("GET http://docs.example.org/{} HTTP/1.1\r\n\r\n", "x".repeat(2 * MAX_HEAD));
        for (request, start) in [
            ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
            ("GET https://docs.example.org/ HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
            ("CONNECT docs.example.org HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
            ("CONNECT a@docs.example.org:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
            ("\x16\x03\x01\r\n\r\n", "HTTP/1.1 400 "),
            ("GET http://docs.ex", "HTTP/1.1 400 the request ended early"),
            (long.as_str(), "HTTP/1.1 400 the head of the request is too long"),
            (
                "CONNECT gone.example.org:443 HTTP/1.1\r\n\r\n",
                "HTTP/1.1 502 cannot connect to gone.example.org",
            ),
        ] {
            let outcome = through(request).await;
            assert!(outcome.client.starts_with(start) && outcome.refused.is_none(), "{outcome:?}");
        }
    }
}
