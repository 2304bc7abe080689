//! `/mcp login` and `/mcp logout`: a login while the program continues.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use super::login::ended;
use super::login::logins;
use super::servers;
use crate::contract::display::visible_line;
use crate::contract::server::{ServerConfig, ServerTransport};
use crate::failure::AppError;
use crate::mcp::{CallbackServer, Login, LoginError, NotLoggedIn, log_out};
use crate::program::app_context::AppContext;
use crate::tui::host::TextPage;

/// How long to wait for a user with a browser.
const WAIT: Duration = Duration::from_mins(10);

/// The logins in progress, by server. A login continues while its sender exists; the sender takes the URL
/// that the browser ended at.
pub(super) type Begun = Mutex<HashMap<String, mpsc::UnboundedSender<String>>>;

fn begun(app: &AppContext) -> std::sync::MutexGuard<'_, HashMap<String, mpsc::UnboundedSender<String>>> {
    app.mcp.begun.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the usable server with that name.
fn find(app: &AppContext, name: &str) -> Result<ServerConfig, AppError> {
    // The name known to the manager, which a user can type.
    let name = app.mcp.manager.look(name)?.name;
    let all = servers(&app.foundation, app.foundation.is_trusted).usable;
    let found = all.into_iter().find(|server| server.name == name);
    found.ok_or_else(|| format!("the server {} is no longer configured", visible_line(&name)).into())
}

/// Starts a login, or finishes the one in progress if the URL that the browser ended at is given.
pub(super) async fn login(app: &AppContext, words: &str) -> Result<TextPage, AppError> {
    let (name, pasted) = match words.rsplit_once(char::is_whitespace) {
        Some((name, last)) if last.starts_with("http://127.0.0.1") => (name.trim(), Some(last)),
        Some(_) | None => (words, None),
    };
    let server = find(app, name)?;
    let shown = visible_line(&server.name).into_owned();
    let title = format!("Log in to {shown}");
    if let Some(address) = pasted {
        let text = match begun(app).get(&server.name) {
            Some(waits) if waits.send(address.to_owned()).is_ok() => "Checking that URL.\n".to_owned(),
            Some(_) | None => {
                return Err(format!(
                    "no login to {shown} in progress; start one with /mcp login \
                              {shown}"
                )
                .into());
            }
        };
        return Ok(TextPage { title, text, ..TextPage::default() });
    }
    let fail = |error: LoginError| format!("{shown}: {error}");
    let port = match &server.transport {
        ServerTransport::Http { login, .. } => login.port,
        ServerTransport::Stdio { .. } => None,
    };
    // The previous login may still use the port.
    begun(app).remove(&server.name);
    let landing = CallbackServer::open(port).await.map_err(fail)?;
    let login = Login::begin(&server, &landing.address(), &[]).await.map_err(fail)?;
    let text = format!(
        "Open this URL in a browser; it is at {}, the login belongs to {}. /copy copies it.\n\n{}\n\naye \
         waits {} minutes for the browser in the background; /mcp cancel {shown} cancels.\nIf the browser \
         runs on another machine: /mcp login {shown} and the URL it ends at.\n",
        visible_line(login.authorization_url.host_str().unwrap_or_default()),
        visible_line(login.issuer()),
        login.authorization_url.as_str(),
        WAIT.as_secs() / 60,
    );
    let (sender, pasted) = mpsc::unbounded_channel();
    begun(app).insert(server.name.clone(), sender);
    let (notices, manager) = (Arc::clone(&app.mcp.notices), Arc::downgrade(&app.mcp.manager));
    let logins = logins(&app.foundation);
    tokio::spawn(async move {
        let wait_for_redirect = tokio::time::timeout(
            WAIT,
            wait_for_redirect(&login, &landing, pasted, |why| notices.report(why)),
        );
        let wait_for_redirect = match wait_for_redirect.await {
            Ok(Some(address)) => address,
            // The login was cancelled, or another one was started.
            Ok(None) => return,
            Err(_) => {
                notices.report(format!("the login to {shown} timed out; nothing is stored"));
                return;
            }
        };
        match login.finish(&wait_for_redirect, &logins).await {
            Ok(()) => {
                notices.report(format!("logged in to {shown}"));
                if let Some(manager) = manager.upgrade() {
                    let _ = manager.restart(&server.name);
                }
            }
            Err(NotLoggedIn::NotThis(why) | NotLoggedIn::Over(why)) => {
                notices.report(format!("{shown}: {why}"));
            }
        }
    });
    Ok(TextPage { title, text, ..TextPage::default() })
}

/// Waits for the URL that ends this login, from the browser or typed. Returns `None` if the login was cancelled.
async fn wait_for_redirect(
    login: &Login,
    landing: &CallbackServer,
    mut pasted: mpsc::UnboundedReceiver<String>,
    report: impl Fn(String),
) -> Option<String> {
    let is_wanted = |address: &str| match login.is_this(address) {
        Ok(()) => true,
        Err(NotLoggedIn::NotThis(why) | NotLoggedIn::Over(why)) => {
            report(format!("{why}; still waiting"));
            false
        }
    };
    let pasted = async {
        loop {
            match pasted.recv().await {
                Some(address) if is_wanted(&address) => break Some(address),
                Some(_) => {}
                None => break None,
            }
        }
    };
    tokio::select! {
        address = landing.wait_for_redirect(is_wanted) => Some(address),
        address = pasted => address,
    }
}

/// Cancels a login in progress.
pub(super) fn cancel(app: &AppContext, name: &str) -> Result<TextPage, AppError> {
    let name = find(app, name)?.name;
    let shown = visible_line(&name);
    let was = begun(app).remove(&name).is_some_and(|waits| !waits.is_closed());
    let text = if was {
        format!("Cancelled the login to {shown}; nothing is stored.\n")
    } else {
        format!("No login to {shown} in progress.\n")
    };
    Ok(TextPage { title: "MCP servers".to_owned(), text, ..TextPage::default() })
}

/// Logs out: removes the login here and revokes its tokens at their issuer.
pub(super) async fn logout(app: &AppContext, name: &str) -> Result<TextPage, AppError> {
    let server = find(app, name)?;
    begun(app).remove(&server.name);
    let logins = logins(&app.foundation);
    let out = log_out(&server.scope, &server.name, Some(&server), &logins)
        .await
        .map_err(|error| error.to_string())?;
    app.mcp.manager.restart(&server.name)?;
    Ok(TextPage {
        title: "MCP servers".to_owned(),
        text: ended(&visible_line(&server.name), &out),
        ..TextPage::default()
    })
}
