//! The token of each request of a connection: the stored one, renewed before it expires or when the server
//! rejects it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use futures::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, ClientCredentialsConfig, CredentialStore as _, InMemoryCredentialStore,
    OAuthClientConfig,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use secrecy::{ExposeSecret as _, SecretString};
use sse_stream::Sse;
use tokio_util::sync::CancellationToken;

use super::flow::LoginServer;
use super::http::Http;
use super::kept::{LoginFile, Tokens};
use super::{LoginStore, address, flow, login_command};
use crate::client::words_of;
use crate::error::LoginError;
use aye_core::contract::clock::Clock;
use aye_core::contract::server::{LoginConfig, LoginGrant, ServerConfig, ServerTransport};

/// A token that ends so soon is renewed before it is sent.
const MARGIN_S: u64 = 30;

/// The login state of a connection.
pub(crate) struct Session {
    scope: String,
    name: String,
    url: SecretString,
    store: Arc<dyn LoginStore>,
    clock: Arc<dyn Clock>,
    /// One renewal at a time: a token for it is good for one only.
    renewing: tokio::sync::Mutex<()>,
    /// Signals that a user has to log in before anything can continue.
    refused: CancellationToken,
    /// The identity for an automatic login, if there is one.
    client: Option<LoginConfig>,
    /// The tokens of an automatic login. They are obtained again at each start and never stored.
    own: std::sync::Mutex<Option<Tokens>>,
}

fn store_error(error: &impl std::error::Error) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

/// The members of a token response that are used here.
#[derive(serde::Deserialize)]
pub(super) struct Given {
    pub(super) access_token: String,
    pub(super) refresh_token: Option<String>,
    expires_in: Option<u64>,
}

pub(super) fn given(tokens: &Tokens) -> Option<Given> {
    let response = serde_json::to_value(tokens.credentials.token_response.as_ref()?).ok()?;
    serde_json::from_value(response).ok()
}

fn access(tokens: &Tokens) -> Option<String> {
    Some(given(tokens)?.access_token)
}

impl Session {
    /// `None` for a server that there can be no login at.
    pub(crate) fn of(
        config: &ServerConfig,
        store: &Arc<dyn LoginStore>,
        clock: &Arc<dyn Clock>,
        refused: &CancellationToken,
    ) -> Option<Self> {
        let client = match &config.transport {
            ServerTransport::Http { login, .. } if login.grant == LoginGrant::ClientCredentials => {
                Some(login.clone())
            }
            ServerTransport::Http { .. } | ServerTransport::Stdio { .. } => None,
        };
        Some(Self {
            client,
            own: std::sync::Mutex::default(),
            scope: config.scope.key(),
            name: config.name.clone(),
            url: address(config)?.clone(),
            store: Arc::clone(store),
            clock: Arc::clone(clock),
            renewing: tokio::sync::Mutex::default(),
            refused: refused.clone(),
        })
    }

    fn kept(&self) -> Result<Option<LoginFile>, AuthError> {
        LoginFile::load(self.store.as_ref(), &self.scope, &self.name).map_err(|error| store_error(&error))
    }

    fn tokens(&self) -> Result<Option<Tokens>, AuthError> {
        if self.client.is_some() {
            return Ok(self.own.lock().expect("no panic while it is held").clone());
        }
        let kept = self.kept()?.filter(|kept| kept.is_for(&self.url));
        Ok(kept.and_then(|kept| kept.tokens))
    }

    /// Returns whether a request may first have to obtain or renew a token.
    pub(crate) fn may_renew(&self) -> bool {
        self.client.is_some() || !matches!(self.tokens(), Ok(None))
    }

    fn save(&self, kept: &LoginFile) -> Result<(), AuthError> {
        kept.save(self.store.as_ref(), &self.scope, &self.name).map_err(|error| store_error(&error))
    }

    fn is_ending(&self, tokens: &Tokens) -> bool {
        let Some(given) = given(tokens) else { return true };
        let lasts = given.expires_in.zip(tokens.credentials.token_received_at);
        let Some((lasts, since)) = lasts else { return false };
        since.saturating_add(lasts) < self.clock.now_ms() / 1000 + MARGIN_S
    }

    /// Returns the token to send; `None` if there is none.
    async fn token(&self) -> Result<Option<String>, AuthError> {
        match self.tokens()? {
            None if self.client.is_some() => self.renew(None).await,
            None => Ok(None),
            Some(tokens) if !self.is_ending(&tokens) => Ok(access(&tokens)),
            Some(tokens) => self.renew(access(&tokens)).await,
        }
    }

    /// Obtains a token other than this one; `None` if only a user can get one.
    async fn renew(&self, old: Option<String>) -> Result<Option<String>, AuthError> {
        let _first = self.renewing.lock().await;
        if let Some(client) = &self.client {
            let known = self.tokens()?.filter(|tokens| !self.is_ending(tokens));
            let known = known.as_ref().and_then(access).filter(|token| Some(token) != old.as_ref());
            if known.is_some() {
                return Ok(known);
            }
            let tokens = self.obtained(client).await?;
            let token = access(&tokens);
            *self.own.lock().expect("no panic while it is held") = Some(tokens);
            return Ok(token);
        }
        let store = Arc::clone(&self.store);
        let (scope, name) = (self.scope.clone(), self.name.clone());
        let held = tokio::task::spawn_blocking(move || store.lock(&scope, &name)).await;
        let _held = held.map_err(|error| store_error(&error))?.map_err(|error| store_error(&error))?;
        // Someone else may have renewed the token in the meantime.
        let Some(tokens) = self.tokens()? else { return Ok(None) };
        let now = access(&tokens);
        if now != old && !self.is_ending(&tokens) {
            return Ok(now);
        }
        if given(&tokens).and_then(|given| given.refresh_token).is_none() {
            return Ok(None);
        }
        match self.renewed(&tokens).await {
            Ok(new) => {
                let token = access(&new);
                let mut kept = LoginFile::new(&self.url, Some(new));
                kept.is_wanted = false;
                self.save(&kept)?;
                Ok(token)
            }
            Err(AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_)) => {
                // It will not be taken the next time either.
                self.save(&LoginFile::new(&self.url, None))?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Tokens for the client itself (`client_credentials`).
    async fn obtained(&self, client: &LoginConfig) -> Result<Tokens, AuthError> {
        let (server, http, mut manager) = self.manager().await?;
        let challenge = http.challenge(&server).await.map_err(|e| AuthError::MetadataError(e.to_string()))?;
        let LoginServer { metadata, issuer, .. } =
            flow::resolve(&manager, &http, Some(&challenge), LoginGrant::ClientCredentials).await?;
        manager.set_metadata(metadata);
        let scopes = if client.scopes.is_empty() {
            manager.select_initial_scopes(&[]).await
        } else {
            client.scopes.clone()
        };
        let client_id = client.client_id.clone().unwrap_or_default();
        let secret = client.client_secret.as_ref().map(|secret| secret.expose_secret().to_owned());
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: client_id.clone(),
            client_secret: secret.unwrap_or_default(),
            scopes,
            resource: Some(self.url.expose_secret().to_owned()),
        };
        manager.validate_client_credentials_metadata(&config)?;
        manager.configure_client_credentials(&config)?;
        let given = InMemoryCredentialStore::new();
        manager.set_credential_store(given.clone());
        manager.exchange_client_credentials(&config).await?;
        let credentials = given.load().await?.ok_or(AuthError::AuthorizationRequired)?;
        Ok(Tokens { issuer, client_id, client_secret: None, credentials })
    }

    async fn manager(&self) -> Result<(reqwest::Url, Arc<Http>, AuthorizationManager), AuthError> {
        let server = reqwest::Url::parse(self.url.expose_secret())?;
        let http = Arc::new(Http::of(&server).map_err(|e| AuthError::MetadataError(e.to_string()))?);
        let manager =
            AuthorizationManager::new_with_oauth_http_client(server.clone(), Arc::clone(&http) as Arc<_>);
        Ok((server, http, manager.await?))
    }

    async fn renewed(&self, tokens: &Tokens) -> Result<Tokens, AuthError> {
        let (_, http, mut manager) = self.manager().await?;
        let LoginServer { metadata, issuer, is_default } =
            flow::resolve(&manager, &http, None, LoginGrant::AuthorizationCode).await?;
        if issuer != tokens.issuer && is_default {
            // It described its login before, and may again: the tokens are kept.
            return Err(AuthError::MetadataError("it no longer describes how to log in".to_owned()));
        }
        if issuer != tokens.issuer {
            // A token from one issuer is never shown to another.
            return Err(AuthError::AuthorizationRequired);
        }
        manager.set_metadata(metadata);
        let mut client = OAuthClientConfig::new(tokens.client_id.clone(), "http://127.0.0.1/callback");
        if let Some(secret) = &tokens.client_secret {
            client = client.with_client_secret(secret);
        }
        manager.configure_client(client)?;
        let given = InMemoryCredentialStore::new();
        given.save(tokens.credentials.clone()).await?;
        manager.set_credential_store(given.clone());
        manager.refresh_token().await?;
        let credentials = given.load().await?.ok_or(AuthError::AuthorizationRequired)?;
        Ok(Tokens { credentials, ..tokens.clone() })
    }

    /// Records that the server accepted the request, with or without a token.
    pub(crate) fn works(&self) {
        if self.client.is_some() {
            return;
        }
        let cleared = match self.kept() {
            Ok(Some(mut kept)) if kept.is_wanted && kept.is_for(&self.url) => {
                kept.is_wanted = false;
                if kept.tokens.is_some() {
                    kept.save(self.store.as_ref(), &self.scope, &self.name)
                } else {
                    self.store.forget(&self.scope, &self.name).map(drop).map_err(LoginError::from)
                }
            }
            Ok(_) | Err(_) => Ok(()),
        };
        if let Err(why) = cleared {
            tracing::warn!(server = %self.name, "{why}");
        }
    }

    /// Records that the server requires a login, so that this can be reported without asking the server.
    fn is_refused(&self) {
        let mark = match self.kept() {
            Ok(None) => Some(LoginFile::new(&self.url, None)),
            Ok(Some(mut kept)) if kept.is_for(&self.url) || kept.tokens.is_none() => {
                if kept.is_for(&self.url) {
                    kept.is_wanted = true;
                    Some(kept)
                } else {
                    Some(LoginFile::new(&self.url, None))
                }
            }
            // Tokens for another address stay: it may be the address again.
            Ok(Some(_)) | Err(_) => None,
        };
        if let Some(Err(why)) = mark.map(|mark| self.save(&mark)) {
            tracing::warn!(server = %self.name, "{why}");
        }
        self.refused.cancel();
    }
}

/// A client that sends the token of its session with each request.
#[derive(Clone)]
pub(crate) struct Bearer {
    pub(crate) inner: reqwest::Client,
    pub(crate) session: Arc<Session>,
}

type Failure = StreamableHttpError<reqwest::Error>;

fn wants_login(error: &Failure) -> bool {
    match error {
        StreamableHttpError::AuthRequired(_) => true,
        // An answer without the challenge that belongs to it.
        StreamableHttpError::UnexpectedServerResponse(text) => text.starts_with("HTTP 401"),
        StreamableHttpError::Client(error) => error.status() == Some(reqwest::StatusCode::UNAUTHORIZED),
        _ => false,
    }
}

impl Bearer {
    async fn call<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        call: impl Fn(Option<String>) -> F,
    ) -> Result<T, Failure> {
        let token = self.session.token().await?;
        let mut answer = call(token.clone()).await;
        if token.is_some()
            && answer.as_ref().is_err_and(wants_login)
            && let Some(new) = self.session.renew(token).await?
        {
            answer = call(Some(new)).await;
        }
        match answer {
            Err(error) if wants_login(&error) && self.session.client.is_some() => {
                Err(StreamableHttpError::Auth(AuthError::AuthorizationFailed(
                    "it rejects the token that its login issued for the client id".to_owned(),
                )))
            }
            Err(error) if wants_login(&error) => {
                self.session.is_refused();
                Err(StreamableHttpError::Auth(AuthError::AuthorizationRequired))
            }
            Err(StreamableHttpError::InsufficientScope(wanted)) => {
                let scope = wanted.required_scope.unwrap_or_default();
                let flag = match words_of(&scope) {
                    words if words.is_empty() || words.contains('\'') => String::new(),
                    words => format!(" --scope '{words}'"),
                };
                Err(StreamableHttpError::Auth(AuthError::AuthorizationFailed(format!(
                    "it needs more scopes than granted: {}{flag}",
                    login_command(&self.session.name)
                ))))
            }
            answer => answer,
        }
    }
}

type Headers = HashMap<HeaderName, HeaderValue>;

impl StreamableHttpClient for Bearer {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let max = crate::client::MAX_MESSAGE;
        self.post_message_with_max_sse_event_size(uri, message, session_id, auth_header, custom_headers, max)
            .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
        max: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.call(|token| {
            let (uri, id, headers, message) =
                (uri.clone(), session_id.clone(), headers.clone(), message.clone());
            self.inner.post_message_with_max_sse_event_size(uri, message, id, token, headers, max)
        })
        .await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        // The end of a connection renews nothing.
        let token = self.session.tokens()?.as_ref().and_then(access);
        self.inner.delete_session(uri, session_id, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let max = crate::client::MAX_MESSAGE;
        self.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            max,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: Headers,
        max: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        self.call(|token| {
            let (uri, id, last, headers) =
                (uri.clone(), session_id.clone(), last_event_id.clone(), headers.clone());
            self.inner.get_stream_with_max_sse_event_size(uri, id, last, token, headers, max)
        })
        .await
    }
}
