//! Model Context Protocol servers: connections, and the tools that they offer, as tools of ours.
//!
//! What a server sends is hostile until shown otherwise: none of it is trusted, everything is bounded, and
//! any consequence stays the server's own problem. All connections live on a dedicated thread ([`Manager`]),
//! so that a server that floods costs no frame of the terminal. A tool is offered only while its name, its
//! description and its schema are those that a user trusted (`pins.rs`); its annotations are shown and grant
//! nothing.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

mod call_session;
mod client;
mod content;
mod elicitation;
mod error;
mod guidance;
mod handler;
mod handshake;
mod list;
mod login;
mod manager;
mod names;
mod open;
mod pins;
mod questions;
mod resource_tools;
mod server;
#[cfg(test)]
mod tests;
mod tool;
mod transport;

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use futures::future::BoxFuture;

pub use client::{CallError, http_client};
pub use error::{ForeignError, KeepError, LoginError, LoginUrlError, McpServerError};
pub use guidance::Guidance;
pub use login::{
    CallbackServer, LoggedOut, Login, LoginState, LoginStore, NoLogins, NotLoggedIn, log_out, login_command,
    login_state,
};
pub use manager::Manager;
pub use names::{PREFIX, server_part};
pub use pins::{PinStatus, PinStore, Pinned};
pub use questions::Questions;
pub use server::{PromptView, ServerState, ServerView, ToolView};

use aye_core::contract::address::DomainPattern;
use aye_core::contract::clock::Clock;
use aye_core::contract::judgement::Profile;
use aye_core::contract::tool::Tool;

/// A program to start as a server.
#[derive(Debug)]
pub struct ServerLaunch {
    pub program: String,
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    /// Variables beside those that every program gets.
    pub env: BTreeMap<OsString, OsString>,
    pub name: String,
    /// The restrictions that the kernel enforces.
    pub profile: Profile,
    /// The domains that it may reach.
    pub domains: Vec<DomainPattern>,
}

/// A server's program, ready to be started.
pub struct ServerProgram {
    /// The command, with pipes for input, output and errors.
    pub command: Command,
    /// Whether the process itself ensures that nothing of it is left once its input ends.
    pub is_supervised: bool,
    /// A value that must exist as long as the program runs.
    pub kept: Box<dyn Any + Send>,
}

/// Prepares a server's program. After an error nothing may be started.
pub type Spawn =
    Arc<dyn Fn(ServerLaunch) -> BoxFuture<'static, Result<ServerProgram, ForeignError>> + Send + Sync>;

/// A callback that receives the tools of a source, which replace its previous ones.
pub type ToolSink = Arc<dyn Fn(&str, Vec<Arc<dyn Tool>>) + Send + Sync>;

/// A callback that shows a sentence to the user.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// The parts of the program that connections need.
#[derive(Clone)]
pub struct Surroundings {
    /// The function that prepares a server's program.
    pub spawn: Spawn,
    /// The receiver of the tools.
    pub offer: ToolSink,
    /// The function that notifies the user.
    pub tell: Tell,
    pub pins: Arc<dyn PinStore>,
    /// The storage of logins.
    pub logins: Arc<dyn LoginStore>,
    /// Whether everything that servers offer is trusted, for this start only.
    pub agrees_to_all: bool,
    /// The function to call when the prompts have changed.
    pub prompts_changed: Arc<dyn Fn() + Send + Sync>,
    /// The folder reported to servers that ask for the working folder.
    pub root: PathBuf,
    /// Calls that wait for a user's answer to their server.
    pub questions: Questions,
    /// Receives the instructions of servers for the model.
    pub guidance: Guidance,
    pub clock: Arc<dyn Clock>,
}
