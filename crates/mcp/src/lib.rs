//! Tool servers over the Model Context Protocol: connections, and what they offer as tools of ours.
//!
//! What a server says is hostile until shown otherwise: nothing that it sends is believed, everything is bounded, and
//! whatever becomes of it stays its own problem. All connections live on one thread of their own ([`Manager`]), so that
//! a server that floods costs no frame of the terminal. A tool is offered only while its name, its description and its
//! schema are what a person agreed to (`pins.rs`); its annotations are shown and grant nothing.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

mod call_session;
mod client;
mod content;
mod elicitation;
mod error;
mod guidance;
mod handler;
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
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// Variables beside those that every program gets.
    pub env: BTreeMap<OsString, OsString>,
    /// The server's name.
    pub name: String,
    /// What the kernel keeps it to.
    pub profile: Profile,
    /// The domains that it may reach.
    pub domains: Vec<DomainPattern>,
}

/// A server's program, ready to be started.
pub struct ServerProgram {
    /// The command, with pipes for input, output and errors.
    pub command: Command,
    /// Whether the process sees to it by itself that nothing is left of it once its input ends.
    pub is_supervised: bool,
    /// What has to exist as long as the program runs.
    pub kept: Box<dyn Any + Send>,
}

/// Prepares a server's program. After an error nothing may be started.
pub type Spawn =
    Arc<dyn Fn(ServerLaunch) -> BoxFuture<'static, Result<ServerProgram, ForeignError>> + Send + Sync>;

/// What is to be done with the tools of a source, which replace those that it had.
pub type ToolSink = Arc<dyn Fn(&str, Vec<Arc<dyn Tool>>) + Send + Sync>;

/// A sentence for the person.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// What connections need of the rest of the program.
#[derive(Clone)]
pub struct Surroundings {
    /// How programs are started.
    pub spawn: Spawn,
    /// Who takes the tools.
    pub offer: ToolSink,
    /// Who tells the person.
    pub tell: Tell,
    /// What was agreed to.
    pub pins: Arc<dyn PinStore>,
    /// Where logins are kept.
    pub logins: Arc<dyn LoginStore>,
    /// Whether everything that servers offer is agreed to, for this start only.
    pub agrees_to_all: bool,
    /// Who is to know that the prompts are others.
    pub prompts_changed: Arc<dyn Fn() + Send + Sync>,
    /// The folder that servers are told of when they ask what is worked on.
    pub root: PathBuf,
    /// Calls that wait for a person's answer to their server.
    pub questions: Questions,
    /// Receives the instructions of servers for the model.
    pub guidance: Guidance,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}
