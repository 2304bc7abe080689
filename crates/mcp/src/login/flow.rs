//! One login from its start to its tokens.

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, AuthorizationMetadata, CredentialStore as _,
    InMemoryCredentialStore, OAuthClientConfig,
};
use secrecy::{ExposeSecret as _, SecretString};
use std::sync::Arc;
use std::time::Duration;

use super::http::{Challenge, Http};
use super::kept::{LoginFile, Tokens};
use super::{LoginStore, address};
use crate::client::words_of;
use crate::error::{LoginError, url_of};
use aye_core::contract::server::{LoginConfig, LoginGrant, ServerConfig, ServerTransport};

/// The time limit for everything that is looked up before a user can log in.
const PATIENCE: Duration = Duration::from_mins(1);

/// The reason a URL that the browser returned to is not a login.
#[derive(Debug, PartialEq, Eq)]
pub enum NotLoggedIn {
    /// It belongs to no login of ours: the right one may still come.
    NotThis(String),
    /// It was refused.
    Over(String),
}

/// A login that a user is asked to complete.
pub struct Login {
    manager: AuthorizationManager,
    given: InMemoryCredentialStore,
    config: ServerConfig,
    url: SecretString,
    client: OAuthClientConfig,
    issuer: String,
    state: String,
    /// The URL to open in the browser.
    pub authorization_url: Url,
}

/// Where and how to log in.
pub(super) struct LoginServer {
    pub(super) metadata: AuthorizationMetadata,
    pub(super) issuer: String,
    /// Nobody describes it: it has the default endpoints of revision 2025-03-26, at the MCP server's origin.
    pub(super) is_default: bool,
}

/// Returns the metadata of a server's login, if aye can use it. `challenge` is `None` if a login there worked before.
pub(super) async fn resolve(
    manager: &AuthorizationManager,
    http: &Http,
    challenge: Option<&Challenge>,
    grant: LoginGrant,
) -> Result<LoginServer, AuthError> {
    let fail = |why: String| AuthError::MetadataError(why);
    let header = challenge.and_then(|challenge| challenge.header.as_deref());
    let found = manager.resolve_metadata_from_challenge(header).await?;
    let is_default = !found.source.is_discovered();
    let mut metadata = found.metadata;
    if is_default {
        // Without a refusal, nothing says that there is a login at all.
        if challenge.is_some_and(|challenge| !challenge.is_refused) {
            return Err(fail("it does not describe how to log in (RFC 9728, RFC 8414)".to_owned()));
        }
        let origin = Url::parse(&metadata.authorization_endpoint).map(|url| url.origin());
        metadata.issuer = origin.ok().map(|origin| origin.ascii_serialization());
    }
    let issuer =
        metadata.issuer.clone().ok_or_else(|| fail("its login does not identify itself".to_owned()))?;
    let ends = [
        Some(&metadata.authorization_endpoint),
        Some(&metadata.token_endpoint),
        metadata.registration_endpoint.as_ref(),
    ];
    for end in ends.into_iter().flatten() {
        let url = Url::parse(end).map_err(|_| fail("its login contains an invalid URL".to_owned()))?;
        http.may(&url).map_err(|error| fail(error.to_string()))?;
    }
    // A missing member means that there is no PKCE (OAuth 2.1 as used by MCP). Without a code exchange, none
    // is needed; revision 2025-03-26 requires it of each server.
    if grant == LoginGrant::AuthorizationCode
        && !is_default
        && metadata.code_challenge_methods_supported.is_none()
    {
        return Err(AuthError::PkceUnsupported);
    }
    Ok(LoginServer { metadata, issuer, is_default })
}

impl Login {
    /// Finds out where to log in, and registers aye there. `back` is the URL that the browser returns to.
    ///
    /// # Errors
    /// The reason no login is possible.
    pub async fn begin(config: &ServerConfig, back: &str, scopes: &[String]) -> Result<Self, LoginError> {
        match tokio::time::timeout(PATIENCE, Self::found(config, back, scopes)).await {
            Ok(found) => found,
            Err(_) => Err(LoginError::NotFound(PATIENCE)),
        }
    }

    async fn found(config: &ServerConfig, back: &str, scopes: &[String]) -> Result<Self, LoginError> {
        let url = address(config).ok_or_else(|| match &config.transport {
            ServerTransport::Http { .. } => LoginError::HasHeader,
            ServerTransport::Stdio { .. } => LoginError::IsProgram,
        })?;
        let ServerTransport::Http { login, .. } = &config.transport else {
            return Err(LoginError::IsProgram);
        };
        if login.grant == LoginGrant::ClientCredentials {
            return Err(LoginError::Automatic);
        }
        let server = url_of(url.expose_secret(), LoginError::InvalidUrl)?;
        let http = Arc::new(Http::of(&server)?);
        let challenge = http.challenge(&server).await?;
        let mut manager =
            AuthorizationManager::new_with_oauth_http_client(server, Arc::clone(&http) as Arc<_>).await?;
        let LoginServer { metadata, issuer, .. } =
            resolve(&manager, &http, Some(&challenge), login.grant).await?;
        let registers = metadata.registration_endpoint.is_some();
        manager.set_metadata(metadata);
        let given = InMemoryCredentialStore::new();
        manager.set_credential_store(given.clone());
        let scopes = match (scopes, login.scopes.as_slice()) {
            ([], []) => manager.select_initial_scopes(&[]).await,
            ([], written) => written.to_vec(),
            (wanted, _) => wanted.to_vec(),
        };
        let client = client(&mut manager, login, back, &scopes, registers).await?;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let authorization_url = manager.get_authorization_url(&scopes).await?;
        let authorization_url = url_of(&authorization_url, LoginError::NoUrl)?;
        let state = authorization_url.query_pairs().find(|(name, _)| name == "state");
        let state = state.map(|(_, value)| value.into_owned()).unwrap_or_default();
        Ok(Self {
            manager,
            given,
            config: config.clone(),
            url: url.clone(),
            client,
            issuer,
            state,
            authorization_url,
        })
    }

    /// Returns the issuer of the tokens.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Returns whether the URL that the browser returned to belongs to this login.
    ///
    /// # Errors
    /// The reason it does not.
    pub fn is_this(&self, redirect_url: &str) -> Result<(), NotLoggedIn> {
        let not_this = |why: &str| NotLoggedIn::NotThis(why.to_owned());
        let url = Url::parse(redirect_url.trim())
            .map_err(|_| not_this("invalid URL; paste all of it, from http:// on"))?;
        let mut states = url.query_pairs().filter(|(name, _)| name == "state");
        match (states.next(), states.next()) {
            (Some((_, state)), None) if !self.state.is_empty() && state == self.state.as_str() => Ok(()),
            _ => Err(not_this("not the login started here: its `state` differs")),
        }
    }

    /// Accepts the URL that the browser returned to, and stores the tokens obtained with it.
    ///
    /// # Errors
    /// The reason the login failed.
    pub async fn finish(&self, redirect_url: &str, store: &dyn LoginStore) -> Result<(), NotLoggedIn> {
        self.is_this(redirect_url)?;
        let over = |why: String| NotLoggedIn::Over(why);
        let failed = |error: AuthError| over(LoginError::from(error).to_string());
        let url = Url::parse(redirect_url.trim()).map_err(|error| over(error.to_string()))?;
        let value = |wanted: &str| {
            let found = url.query_pairs().find(|(name, _)| name == wanted);
            found.map(|(_, value)| words_of(&value))
        };
        if let Some(error) = value("error") {
            let more = value("error_description").map(|more| format!(": {more}")).unwrap_or_default();
            return Err(over(format!("the login was refused ({error}{more})")));
        }
        let back = AuthorizationCallback::from_redirect_url(url.as_str()).map_err(failed)?;
        self.manager
            .exchange_code_for_token_with_issuer(&back.code, &back.csrf_token, back.issuer.as_deref())
            .await
            .map_err(failed)?;
        let credentials = self.given.load().await.map_err(failed)?;
        let tokens = Tokens {
            issuer: self.issuer.clone(),
            client_id: self.client.client_id.clone(),
            client_secret: self.client.client_secret.clone(),
            credentials: credentials.ok_or_else(|| over("no token was given".to_owned()))?,
        };
        let (scope, name) = (self.config.scope.key(), &self.config.name);
        let _held = store.lock(&scope, name).map_err(|error| over(error.to_string()))?;
        let kept = LoginFile::new(&self.url, Some(tokens)).save(store, &scope, name);
        kept.map_err(|error| over(error.to_string()))
    }
}

/// As whom aye asks: as who was written down, or as who it registers itself.
async fn client(
    manager: &mut AuthorizationManager,
    login: &LoginConfig,
    back: &str,
    scopes: &[String],
    registers: bool,
) -> Result<OAuthClientConfig, LoginError> {
    let Some(id) = &login.client_id else {
        if !registers {
            return Err(LoginError::RegisteredOnly);
        }
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        return Ok(manager.register_client("aye", back, &scopes).await?);
    };
    let mut client = OAuthClientConfig::new(id.clone(), back).with_scopes(scopes.to_vec());
    if let Some(secret) = &login.client_secret {
        client = client.with_client_secret(secret.expose_secret());
    }
    manager.configure_client(client.clone())?;
    Ok(client)
}
