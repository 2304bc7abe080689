//! Why something with an MCP server was not done, and the words for it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use rmcp::transport::auth::AuthError;

use super::client::{CallError, plainly, words_of};
use super::login_command;
use aye_core::contract::display::visible_line;
pub use aye_core::contract::foreign::ForeignError;

/// Why a server did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum McpServerError {
    /// No server has this name.
    #[error("unknown MCP server `{}`; {}", visible_line(name), there_are(known))]
    UnknownServer {
        name: String,
        /// The names of those that are configured.
        known: Vec<String>,
    },
    /// The server failed and is not retried automatically.
    #[error("the server {server} is unavailable: {why}")]
    Unavailable {
        server: String,
        /// The reason for the failure.
        why: String,
    },
    /// It takes nothing before a user logs in.
    #[error("the server {server} {}", needs_login(name))]
    NeedsLogin {
        /// The server, for a message.
        server: String,
        /// Its name in the configuration.
        name: String,
    },
    #[error("the server {server} was stopped")]
    Stopped { server: String },
    /// It was not connected in time.
    #[error("the server {server} is not connected: {state}")]
    NotConnected { server: String, state: String },
    #[error("aye is exiting")]
    Exiting,
    /// The request to the server has no result.
    #[error("the server {server}: {error}")]
    Call { server: String, error: CallError },
    /// It has no prompt of this name.
    #[error("the server {server} has no prompt `{}`", visible_line(prompt))]
    UnknownPrompt { server: String, prompt: String },
    /// A prompt lacks these arguments.
    #[error("it needs: {}", .0.join(", "))]
    MissingArguments(Vec<String>),
    /// The prompt or the resource has no content.
    #[error("it is empty")]
    Empty,
    /// There is nothing to trust.
    #[error("the server {server} offers no tools: {state}")]
    NoTools { server: String, state: String },
    /// Its tools were not shown to the user yet.
    #[error("review the tools of {server} first: /mcp {typed}")]
    NotReviewed {
        server: String,
        /// Its name as it can be typed.
        typed: String,
    },
    /// What the user trusts is unknown.
    #[error(transparent)]
    Store(#[from] KeepError),
}

fn there_are(known: &[String]) -> String {
    if known.is_empty() {
        "none are configured".to_owned()
    } else {
        format!("there are {}", known.join(", "))
    }
}

/// Returns a message that a login is needed, and how to log in.
pub(super) fn needs_login(name: &str) -> String {
    format!("needs login: {}", login_command(name))
}

/// The reason a server's stored data was not read or changed. The message is that of the store.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// It cannot be read: then it counts as nothing.
    #[error("{0}")]
    Unreadable(#[source] ForeignError),
    /// It is not kept.
    #[error("{0}")]
    NotWritten(#[source] ForeignError),
    /// It is still there.
    #[error("{0}")]
    NotRemoved(#[source] ForeignError),
    /// Another process may be changing it.
    #[error("{0}")]
    NotLocked(#[source] ForeignError),
}

/// The reason there is no connection to a server.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("{0}")]
    NotPrepared(#[source] ForeignError),
    #[error("cannot start {}: {error}", visible_line(program))]
    NotStarted { program: String, error: io::Error },
    #[error("its folder {} does not exist", visible_line(&.0.to_string_lossy()))]
    NoFolder(PathBuf),
    #[error("it has no pipes")]
    NoPipes,
    #[error("invalid header name `{0}`")]
    HeaderName(String),
    #[error("the value of the header `{0}` cannot be sent")]
    HeaderValue(String),
    #[error("cannot create an HTTP client: {0}")]
    HttpClient(reqwest::Error),
    /// Both sides did not agree on a protocol; how that went, in one line.
    #[error("{0}")]
    NotAgreed(String),
    #[error("its tools cannot be listed: {0}")]
    NoTools(#[from] CallError),
}

/// The reason a URL cannot be part of a login.
#[derive(Debug, thiserror::Error)]
pub enum LoginUrlError {
    /// It has no host, or a name and a password.
    #[error("a login URL needs a host and no password")]
    NoHost,
    /// A server elsewhere leads to this machine.
    #[error("a remote server cannot redirect to {0}, which is this machine")]
    ThisMachine(String),
    /// It would be readable on its way.
    #[error("a login needs https, not {scheme}, to {host}")]
    NotEncrypted {
        /// The scheme of the URL.
        scheme: String,
        host: String,
    },
}

/// The reason a login or logout failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The configuration contains a header that takes the place of a login.
    #[error("it has an `Authorization` in its `headers`, which is sent instead of a login")]
    HasHeader,
    /// The server is a program of this machine.
    #[error("it is a local program without a login")]
    IsProgram,
    /// The login is automatic and needs no user.
    #[error("aye logs in automatically with its client id and secret; `aye mcp test` checks it")]
    Automatic,
    /// The URL of the server is not one.
    #[error("its URL is invalid")]
    InvalidUrl,
    /// A URL of the login is not one.
    #[error("its login contains an invalid URL")]
    InvalidLoginUrl,
    /// The login has no page to go to.
    #[error("its login has no URL")]
    NoUrl,
    /// A URL that a login may not use.
    #[error(transparent)]
    Url(#[from] LoginUrlError),
    /// Only clients that the provider knows may log in.
    #[error(
        "its login accepts registered clients only: register one with the provider and configure its client id \
         (`oauth_client_id`, in .mcp.json `oauth.clientId`)"
    )]
    RegisteredOnly,
    /// The login was not found in time.
    #[error("its login could not be found within {} s", .0.as_secs())]
    NotFound(Duration),
    /// Nothing arrived for this long.
    #[error("no answer for {} s", .0.as_secs())]
    Timeout(Duration),
    /// No request can be made.
    #[error("cannot create an HTTP client")]
    HttpClient,
    #[error("{}", plainly(.0))]
    Request(#[source] reqwest::Error),
    /// The protocol was not followed, or something was refused.
    #[error("{}", refusal(.0))]
    Protocol(#[from] AuthError),
    /// The port that the browser returns to is taken.
    #[error("cannot listen on port {port} of 127.0.0.1: {error}")]
    Port {
        /// The port; 0 means any.
        port: u16,
        error: io::Error,
    },
    /// The stored data is not a login.
    #[error("its stored login cannot be read; log in again")]
    Unreadable,
    /// The stored login was written by another version.
    #[error("its stored login was written by another version of aye; log in again")]
    OtherVersion,
    /// The login has no stored form.
    #[error("the login cannot be stored")]
    NotStorable,
    /// The store did not do what it should.
    #[error(transparent)]
    Store(#[from] KeepError),
}

/// The reason tokens were not revoked.
#[derive(Debug, thiserror::Error)]
pub(super) enum RevokeError {
    #[error("it is no longer configured")]
    NotConfigured,
    #[error("it has no login now")]
    NoLogin,
    #[error("nothing was stored")]
    NothingStored,
    #[error("there was no token")]
    NoToken,
    #[error("the login belonged to another URL")]
    OtherUrl,
    #[error("the stored login cannot be read")]
    Unreadable,
    #[error("its login has changed")]
    OtherIssuer,
    #[error("its login has no revocation URL")]
    NoRevocation,
    #[error("its login answered HTTP {0}")]
    Answered(u16),
    #[error(transparent)]
    Login(#[from] LoginError),
}

/// An error of a login in words of ours, on one line.
fn refusal(error: &AuthError) -> String {
    match error {
        AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => format!(
            "refused: its login identifies as {}, not {}",
            words_of(received_issuer),
            words_of(expected_issuer)
        ),
        AuthError::AuthorizationServerMissingIssuer { .. } => "its login does not identify itself".to_owned(),
        AuthError::PkceUnsupported => {
            "its login does not support PKCE with S256, which is required".to_owned()
        }
        other => plainly(other),
    }
}

/// Reads a URL that the configuration or a login names.
pub(super) fn url_of(text: &str, otherwise: LoginError) -> Result<Url, LoginError> {
    Url::parse(text).map_err(|_| otherwise)
}
