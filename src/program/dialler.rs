//! Connects sandboxed commands to domains. A test build can use made-up ones.

use crate::config::Env;
use crate::tools::Sandbox;

/// The sandbox with the machine's own network.
#[cfg(not(feature = "failpoints"))]
pub(crate) fn of(sandbox: Sandbox, _env: &Env) -> Sandbox {
    sandbox
}

/// The sandbox with the names of the variable `AYE_TEST_NAMES`, if it is set, and no others.
#[cfg(feature = "failpoints")]
pub(crate) fn of(sandbox: Sandbox, env: &Env) -> Sandbox {
    match env.var("AYE_TEST_NAMES") {
        Some(names) => sandbox.dialling(std::sync::Arc::new(fake_address::FakeAddresses::read(names))),
        None => sandbox,
    }
}

#[cfg(feature = "failpoints")]
mod fake_address {
    use std::collections::HashMap;
    use std::io;
    use std::net::{IpAddr, SocketAddr};

    use async_trait::async_trait;
    use tokio::net::TcpStream;

    use crate::tools::Dialler;

    /// Names with made-up addresses that are not looked up, and where a connection to such an address really
    /// goes.
    #[derive(Debug)]
    pub(crate) struct FakeAddresses {
        addresses: HashMap<String, IpAddr>,
        servers: HashMap<IpAddr, SocketAddr>,
    }

    impl FakeAddresses {
        /// Reads `NAME=IP` and `NAME=IP@IP:PORT`, with a comma between two.
        pub(crate) fn read(text: &str) -> FakeAddresses {
            let mut names = FakeAddresses { addresses: HashMap::new(), servers: HashMap::new() };
            for (name, rest) in text.split(',').filter_map(|entry| entry.split_once('=')) {
                let (ip, server) = rest.split_once('@').unwrap_or((rest, ""));
                let Ok(ip) = ip.parse() else { continue };
                names.addresses.insert(name.to_owned(), ip);
                names.servers.extend(server.parse().ok().map(|server| (ip, server)));
            }
            names
        }
    }

    #[async_trait]
    impl Dialler for FakeAddresses {
        async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            let ip = self.addresses.get(host).ok_or_else(|| io::Error::other("no such name"))?;
            Ok(vec![SocketAddr::new(*ip, port)])
        }

        async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
            let server = self.servers.get(&address.ip()).ok_or(io::ErrorKind::ConnectionRefused)?;
            TcpStream::connect(server).await
        }
    }
}
