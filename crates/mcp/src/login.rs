//! Login to servers elsewhere (OAuth 2.1), and staying logged in.
//!
//! Discovery, registration and token exchange are the protocol library's work. This module decides what the
//! library may be given and may reach (`http.rs`), how a user completes a login (`flow.rs` and the callback
//! server), what is stored (`kept.rs`), how a login ends (`revoke.rs`), and how each request of a connection
//! gets its token (`bearer.rs`). Tokens are valid for one URL and one issuer only; they leave this folder in
//! requests to that URL and in the text stored by a [`LoginStore`], and nowhere else.

mod bearer;
mod callback;
mod flow;
mod http;
mod kept;
mod revoke;

use secrecy::SecretString;

pub(super) use bearer::{Bearer, Session};
pub use callback::CallbackServer;
pub use flow::{Login, NotLoggedIn};
pub use kept::LoginState;
pub use revoke::{LoggedOut, log_out};

use super::error::{KeepError, LoginError};
use aye_core::contract::display::{shell_word, visible_line};
use aye_core::contract::server::{LoginGrant, ServerConfig, ServerTransport};

/// The storage of logins: one text for each server, which nothing else reads.
pub trait LoginStore: Send + Sync {
    /// Returns the stored text; `None` if there is none.
    ///
    /// # Errors
    /// The reason the text cannot be read: the text then counts as missing, and is not overwritten.
    fn load(&self, scope: &str, server: &str) -> Result<Option<SecretString>, KeepError>;

    /// Keeps a text instead of the one before.
    ///
    /// # Errors
    /// Why it is not kept.
    fn save(&self, scope: &str, server: &str, text: &SecretString) -> Result<(), KeepError>;

    /// Forgets the text; `false` when there was none.
    ///
    /// # Errors
    /// Why it is still there.
    fn forget(&self, scope: &str, server: &str) -> Result<bool, KeepError>;

    /// Waits until no other process changes this text. It is free again when the value is dropped.
    ///
    /// # Errors
    /// Why that cannot be known.
    fn lock(&self, scope: &str, server: &str) -> Result<Box<dyn Send>, KeepError>;
}

pub struct NoLogins;

impl LoginStore for NoLogins {
    fn load(&self, _: &str, _: &str) -> Result<Option<SecretString>, KeepError> {
        Ok(None)
    }

    fn save(&self, _: &str, _: &str, _: &SecretString) -> Result<(), KeepError> {
        Ok(())
    }

    fn forget(&self, _: &str, _: &str) -> Result<bool, KeepError> {
        Ok(false)
    }

    fn lock(&self, _: &str, _: &str) -> Result<Box<dyn Send>, KeepError> {
        Ok(Box::new(()))
    }
}

/// Returns the URL of a server for which tokens can be obtained: one elsewhere, without a configured
/// `Authorization` header.
fn address(config: &ServerConfig) -> Option<&SecretString> {
    match &config.transport {
        ServerTransport::Http { url, headers, .. }
            if !headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) =>
        {
            Some(url)
        }
        ServerTransport::Http { .. } | ServerTransport::Stdio { .. } => None,
    }
}

/// Returns whether aye logs in automatically, with the client id and its secret.
fn is_unattended(config: &ServerConfig) -> bool {
    matches!(&config.transport, ServerTransport::Http { login, .. }
        if login.grant == LoginGrant::ClientCredentials)
}

/// Returns a server's login state, as far as it is known without asking the server; `None` if the server
/// cannot have a login.
///
/// # Errors
/// The stored login cannot be read.
pub fn login_state(config: &ServerConfig, store: &dyn LoginStore) -> Result<Option<LoginState>, LoginError> {
    match address(config) {
        Some(url) if !is_unattended(config) => kept::state(config, url, store).map(Some),
        Some(_) | None => Ok(None),
    }
}

/// The command that logs in, as it is typed.
pub fn login_command(name: &str) -> String {
    format!("aye mcp login {}", shell_word(&visible_line(name)))
}
