//! The stored data of a login, and the server that it is valid for.

use rmcp::transport::auth::StoredCredentials;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::LoginStore;
use crate::error::LoginError;
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::server::ServerConfig;

const FORMAT: u32 = 1;

/// The login state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginState {
    /// Nobody is logged in, and the server has not required a login so far.
    None,
    /// It asked for a login the last time.
    Needed,
    /// A login exists for another URL: it is not valid for this one.
    OtherAddress,
    /// There are tokens for it.
    LoggedIn,
}

impl LoginState {
    /// Returns whether the server cannot be used before a user logs in.
    pub fn needs_login(self) -> bool {
        match self {
            Self::Needed | Self::OtherAddress => true,
            Self::None | Self::LoggedIn => false,
        }
    }
}

/// The text of a [`LoginStore`].
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoginFile {
    format: u32,
    /// SHA-256 of the address: the address itself may hold a key.
    address: String,
    /// The server did not take what there was.
    pub(super) is_wanted: bool,
    pub(super) tokens: Option<Tokens>,
}

/// Issued tokens, with their issuer and their client.
#[derive(Clone, Deserialize, Serialize)]
pub(super) struct Tokens {
    pub(super) issuer: String,
    pub(super) client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_secret: Option<String>,
    pub(super) credentials: StoredCredentials,
}

impl LoginFile {
    pub(super) fn new(url: &SecretString, tokens: Option<Tokens>) -> Self {
        Self { format: FORMAT, address: sha256_hex(url.expose_secret()), is_wanted: tokens.is_none(), tokens }
    }

    pub(super) fn is_for(&self, url: &SecretString) -> bool {
        self.address == sha256_hex(url.expose_secret())
    }

    pub(super) fn load(
        store: &dyn LoginStore,
        scope: &str,
        server: &str,
    ) -> Result<Option<Self>, LoginError> {
        let Some(text) = store.load(scope, server)? else { return Ok(None) };
        // The error of the parser would quote what it read.
        let kept: Self = serde_json::from_str(text.expose_secret()).map_err(|_| LoginError::Unreadable)?;
        if kept.format == FORMAT { Ok(Some(kept)) } else { Err(LoginError::OtherVersion) }
    }

    pub(super) fn save(&self, store: &dyn LoginStore, scope: &str, server: &str) -> Result<(), LoginError> {
        let text = serde_json::to_string(self).map_err(|_| LoginError::NotStorable)?;
        Ok(store.save(scope, server, &text.into())?)
    }
}

pub(super) fn state(
    config: &ServerConfig,
    url: &SecretString,
    store: &dyn LoginStore,
) -> Result<LoginState, LoginError> {
    let kept = LoginFile::load(store, &config.scope.key(), &config.name)?;
    Ok(match kept {
        None => LoginState::None,
        Some(kept) if !kept.is_for(url) && kept.tokens.is_some() => LoginState::OtherAddress,
        Some(kept) if !kept.is_for(url) => LoginState::None,
        Some(kept) if kept.is_wanted => LoginState::Needed,
        Some(kept) if kept.tokens.is_some() => LoginState::LoggedIn,
        Some(_) => LoginState::None,
    })
}
