//! The end of a login: the stored login is forgotten, and its issuer is asked to revoke the tokens (RFC
//! 7009).

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use rmcp::transport::auth::AuthorizationManager;
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::bearer::given;
use super::flow::LoginServer;
use super::http::Http;
use super::kept::{LoginFile, Tokens};
use super::{LoginStore, address, flow};
use crate::error::{LoginError, RevokeError, url_of};
use aye_core::contract::server::{LoginGrant, ServerConfig, ServerScope};

/// The time limit for all lookups and requests.
const PATIENCE: Duration = Duration::from_secs(20);

/// The outcome of a logout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedOut {
    /// There was none.
    Nobody,
    /// The login is forgotten here, and the tokens are revoked.
    TakenBack,
    /// The login is forgotten here. Contains the reason the tokens were not revoked; they expire on their
    /// own.
    Forgotten(String),
}

/// Forgets a login, and notifies its server. `config`: the server as it is configured, if it still is.
///
/// # Errors
/// The reason the login is still stored here.
pub async fn log_out(
    scope: &ServerScope,
    name: &str,
    config: Option<&ServerConfig>,
    store: &dyn LoginStore,
) -> Result<LoggedOut, LoginError> {
    let kept = {
        let _held = store.lock(&scope.key(), name)?;
        // Data that cannot be read can still be forgotten.
        let kept = LoginFile::load(store, &scope.key(), name);
        if !store.forget(&scope.key(), name)? {
            return Ok(LoggedOut::Nobody);
        }
        kept
    };
    let revoked = async {
        let Some(config) = config else { return Err(RevokeError::NotConfigured) };
        let url = address(config).ok_or(RevokeError::NoLogin)?;
        let kept = kept?.ok_or(RevokeError::NothingStored)?;
        let Some(tokens) = kept.tokens.as_ref() else { return Err(RevokeError::NoToken) };
        if !kept.is_for(url) {
            return Err(RevokeError::OtherUrl);
        }
        let server = url_of(url.expose_secret(), LoginError::InvalidUrl)?;
        take_back(server, tokens).await
    };
    Ok(match tokio::time::timeout(PATIENCE, revoked).await {
        Ok(Ok(())) => LoggedOut::TakenBack,
        Ok(Err(why)) => LoggedOut::Forgotten(why.to_string()),
        Err(_) => LoggedOut::Forgotten(LoginError::Timeout(PATIENCE).to_string()),
    })
}

/// Asks who gave the tokens out to take them back.
async fn take_back(server: Url, tokens: &Tokens) -> Result<(), RevokeError> {
    let given = given(tokens).ok_or(RevokeError::Unreadable)?;
    let http = Arc::new(Http::of(&server).map_err(LoginError::from)?);
    let manager = AuthorizationManager::new_with_oauth_http_client(server, Arc::clone(&http) as Arc<_>)
        .await
        .map_err(LoginError::from)?;
    let LoginServer { metadata, issuer, .. } =
        flow::resolve(&manager, &http, None, LoginGrant::AuthorizationCode)
            .await
            .map_err(LoginError::from)?;
    if issuer != tokens.issuer {
        return Err(RevokeError::OtherIssuer);
    }
    let end = metadata.additional_fields.get("revocation_endpoint").and_then(Value::as_str);
    let end = end.ok_or(RevokeError::NoRevocation)?;
    let end = url_of(end, LoginError::InvalidLoginUrl)?;
    let methods = metadata.additional_fields.get("revocation_endpoint_auth_methods_supported");
    let has = |name: &str| {
        methods.and_then(Value::as_array).is_some_and(|all| all.iter().any(|method| method == name))
    };
    let is_posted = has("client_secret_post") && !has("client_secret_basic");
    // The one that gets others goes first: with it the others may end too.
    let all = given.refresh_token.iter().map(|token| (token, "refresh_token"));
    for (token, kind) in all.chain([(&given.access_token, "access_token")]) {
        let mut form = vec![("token", token.as_str()), ("token_type_hint", kind)];
        let secret = tokens.client_secret.as_deref();
        if secret.is_none() || is_posted {
            form.push(("client_id", &tokens.client_id));
        }
        form.extend(secret.filter(|_| is_posted).map(|secret| ("client_secret", secret)));
        let basic = secret.filter(|_| !is_posted).map(|secret| (tokens.client_id.as_str(), secret));
        let status = http.post(&end, &form, basic).await?;
        if status != 200 {
            return Err(RevokeError::Answered(status));
        }
    }
    Ok(())
}
