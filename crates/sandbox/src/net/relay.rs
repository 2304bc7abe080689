//! The relay: a thread beside the command, in a process inside the command's namespaces and as restricted as the command.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines, copy_bidirectional};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinSet;

use super::{Relay, SOCKET};

/// Time limit for aye to report the ports of other commands, before the command starts without them.
const PATIENCE: Duration = Duration::from_secs(2);

/// Variables that name the proxy. Programs disagree about the case, and yarn reads only its own.
const PROXIES: [&str; 8] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
];

/// Loopback is the sandbox's own.
const NO_PROXY: &str = "localhost,127.0.0.1,::1";

/// The variables that lead a command to the proxy.
pub(crate) type ProxyVariables = Vec<(&'static str, String)>;

/// Calls `spawn` with the command's variables and passes its result to `started`; then relays for as long as the process
/// lives. Returns only if nothing was started.
pub(crate) fn run<T>(
    relay: &Relay,
    spawn: impl FnOnce(ProxyVariables) -> io::Result<T>,
    started: impl Fn(io::Result<T>),
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return started(Err(error)),
    };
    runtime.block_on(async {
        let mut mirrors = Mirrors::default();
        let mut control = None;
        let mut variables = Ok(Vec::new());
        // With nothing to reach, the command need not wait for aye.
        if relay.proxies || relay.joins {
            control = Control::connect().await;
            if let Some(control) = &mut control {
                if let Ok(Ok(Some(line))) = tokio::time::timeout(PATIENCE, control.lines.next_line()).await {
                    control.execute(&line, &mut mirrors).await;
                }
                if relay.proxies {
                    variables = mirrors.proxy().await;
                }
            }
        }
        match variables.and_then(spawn) {
            Ok(child) => started(Ok(child)),
            Err(error) => return started(Err(error)),
        }
        if !(relay.proxies || relay.joins) {
            control = Control::connect().await;
        }
        loop {
            tokio::select! {
                line = next_line(&mut control) => match (line, &mut control) {
                    (Some(line), Some(control)) => control.execute(&line, &mut mirrors).await,
                    // aye is gone, and its supervisor ends the command.
                    _ => control = None,
                },
                // The ends of connections need no one; their tasks are let go.
                Some(_) = mirrors.tasks.join_next() => {}
            }
        }
    });
}

/// The lines between aye and the relay.
struct Control {
    lines: Lines<BufReader<OwnedReadHalf>>,
    write: OwnedWriteHalf,
}

async fn next_line(control: &mut Option<Control>) -> Option<String> {
    match control {
        Some(control) => control.lines.next_line().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

impl Control {
    /// `None`: aye does not listen, and the command has nothing but itself.
    async fn connect() -> Option<Control> {
        let (read, mut write) = UnixStream::connect(SOCKET).await.ok()?.into_split();
        write.write_all(b"control\n").await.ok()?;
        Some(Control { lines: BufReader::new(read).lines(), write })
    }

    async fn execute(&mut self, line: &str, mirrors: &mut Mirrors) {
        let mut words = line.split(' ');
        match words.next() {
            Some("ports") => mirrors.set(words.filter_map(|word| word.parse().ok()).collect()),
            Some("look") => {
                let ports = listening().into_iter().filter(|port| !mirrors.has(*port));
                let line = ports.fold("listening".to_owned(), |line, port| format!("{line} {port}"));
                let _ = self.write.write_all(format!("{line}\n").as_bytes()).await;
            }
            Some("open") => {
                if let (Some(id), Some(Ok(port))) = (words.next(), words.next().map(str::parse)) {
                    mirrors.tasks.spawn(accept(id.to_owned(), port));
                }
            }
            _ => {}
        }
    }
}

/// Ports of this namespace that forward to ports of other commands.
#[derive(Default)]
struct Mirrors {
    ports: BTreeMap<u16, JoinSet<()>>,
    /// The proxy's port.
    own: Option<u16>,
    tasks: JoinSet<()>,
}

impl Mirrors {
    /// Listens for connections to the proxy.
    async fn proxy(&mut self) -> io::Result<ProxyVariables> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        self.own = Some(port);
        self.tasks.spawn(forward(listener, "proxy\n".to_owned()));
        let proxies = PROXIES.map(|name| (name, format!("http://127.0.0.1:{port}")));
        let others = ["NO_PROXY", "no_proxy"].map(|name| (name, NO_PROXY.to_owned()));
        // Node's own client reads the variables only if this one is set.
        let node = [("NODE_USE_ENV_PROXY", "1".to_owned())];
        Ok(proxies.into_iter().chain(others).chain(node).collect())
    }

    fn has(&self, port: u16) -> bool {
        self.own == Some(port) || self.ports.contains_key(&port)
    }

    /// Listens on these and no others. A port that the command uses itself stays its own.
    fn set(&mut self, ports: Vec<u16>) {
        self.ports.retain(|port, _| ports.contains(port));
        for port in ports {
            if self.has(port) {
                continue;
            }
            let hosts: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            let mut listeners = hosts.into_iter().filter_map(|host| listen(SocketAddr::new(host, port)).ok());
            if let Some(first) = listeners.next() {
                let mut tasks = JoinSet::new();
                for listener in std::iter::once(first).chain(listeners) {
                    tasks.spawn(forward(listener, format!("port {port}\n")));
                }
                self.ports.insert(port, tasks);
            }
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Takes connections, and opens one to aye for each.
async fn forward(listener: TcpListener, first_line: String) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(join(stream, first_line.clone()))),
                // Too many open files: some end.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn join(mut stream: TcpStream, first_line: String) {
    let Ok(mut aye) = UnixStream::connect(SOCKET).await else { return };
    if aye.write_all(first_line.as_bytes()).await.is_ok() {
        let _ = copy_bidirectional(&mut stream, &mut aye).await;
    }
}

/// Opens a connection to a server in this namespace, for another command. Without a server it ends at once.
async fn accept(id: String, port: u16) {
    let stream = match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        Ok(stream) => Ok(stream),
        Err(_) => TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await,
    };
    let Ok(mut aye) = UnixStream::connect(SOCKET).await else { return };
    if aye.write_all(format!("accept {id}\n").as_bytes()).await.is_ok()
        && let Ok(mut stream) = stream
    {
        let _ = copy_bidirectional(&mut stream, &mut aye).await;
    }
}

/// The ports on which something in this network namespace listens.
fn listening() -> Vec<u16> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(std::fs::read_to_string);
    let mut ports: Vec<u16> = tables.into_iter().flatten().flat_map(|table| listening_in(&table)).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// The ports of a table of the kernel: the local address is in the second column, the state in the fourth.
fn listening_in(table: &str) -> Vec<u16> {
    let rows = table.lines().skip(1).filter_map(|row| {
        let mut columns = row.split_ascii_whitespace().skip(1);
        let (local, state) = (columns.next()?, columns.nth(1)?);
        let (_, port) = local.rsplit_once(':')?;
        if state == "0A" { u16::from_str_radix(port, 16).ok() } else { None }
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_the_listener() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n   \
            1: 0100007F:0BB8 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 2 1\n";
        assert_eq!(listening_in(table), [3000]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        assert!(listening().contains(&listener.local_addr().expect("bound").port()));
    }
}
