//! The way out of a network namespace, for a command that has one of its own.
//!
//! Inside, a thread of the command's parent is the relay ([`relay`]). For each connection the relay opens one to aye over the one socket that is mounted there, so that nothing else of the machine can be reached. Outside,
//! aye has a [`NetSession`] for each such command: it checks and dials what the command asks for ([`proxy`]), and
//! joins connections between commands of the same conversation ([`hub`]).
//!
//! The first line of a connection to aye says what it is:
//!
//! | line | then |
//! |---|---|
//! | `control` | lines both ways, once: `ports N…` and `open ID N` to the relay, `look` to it and `listening N…` back |
//! | `proxy` | an HTTP request: `CONNECT`, or one with a whole URL |
//! | `port N` | bytes for port N of another command of the conversation |
//! | `accept ID` | bytes of the port that `open ID` asked for |

mod hub;
mod proxy;
#[cfg(target_os = "linux")]
pub(crate) mod relay;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use hub::{NetHub, NetSession, Serving};
pub use proxy::{Dialler, SystemDialler};

/// The path of the socket to aye inside the namespaces.
pub(crate) const SOCKET: &str = "/run/aye/net";

/// The way to aye that a command gets, in a network namespace of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// The socket on which aye listens for this command.
    pub socket: PathBuf,
    /// Whether the command's programs are configured to use a proxy.
    pub proxies: bool,
    /// Whether other commands may have ports to reach when the command starts.
    pub joins: bool,
}
