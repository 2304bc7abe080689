//! `aye mcp login` and `aye mcp logout`.

use std::io::{BufRead as _, IsTerminal as _};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::sync::mpsc;

use super::find;
use super::logins::FileLogins;
use super::servers;
use crate::config::Env;
use crate::contract::display::visible_line;
use crate::contract::server::{ServerConfig, ServerScope, ServerTransport};
use crate::failure::Failure;
use crate::mcp::{CallbackServer, LoggedOut, Login, LoginError, LoginStore as _, NotLoggedIn, log_out};
use crate::program::foundation::Foundation;
use crate::program::{opener, put, put_stderr};

/// The maximum length of a typed or pasted line.
const MAX_LINE: usize = 16 << 10;

/// `aye mcp login ...`
#[derive(Args, Clone, Debug)]
pub struct McpLoginArgs {
    /// Name of the server
    pub name: String,
    /// Request this scope instead of the server's proposal; repeatable
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// Show the URL without opening a browser
    #[arg(long)]
    pub no_browser: bool,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub wait: u64,
}

pub(crate) fn logins(foundation: &Foundation) -> FileLogins {
    FileLogins::at(foundation.paths.logins_dir())
}

pub(crate) async fn login(args: McpLoginArgs, foundation: &Foundation) -> Result<u8, Failure> {
    let server = find(&args.name, foundation)?;
    let shown = visible_line(&args.name).into_owned();
    let fail = |why: String| Failure::failed(format!("{shown}: {why}"));
    let failed = |error: LoginError| fail(error.to_string());
    let port = match &server.transport {
        ServerTransport::Http { login, .. } => login.port,
        ServerTransport::Stdio { .. } => None,
    };
    let landing = CallbackServer::open(port).await.map_err(failed)?;
    let scopes: Vec<String> =
        args.scopes.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect();
    let login = Login::begin(&server, &landing.address(), &scopes).await.map_err(failed)?;
    invite(&foundation.env, &shown, &login, &landing, args.no_browser)?;
    let wait_for_redirect = wait_for_redirect(&login, &landing);
    let Ok(wait_for_redirect) = tokio::time::timeout(Duration::from_secs(args.wait), wait_for_redirect).await
    else {
        return Err(fail(format!("no login within {} s; nothing is stored", args.wait)));
    };
    match login.finish(&wait_for_redirect, &logins(foundation)).await {
        Ok(()) => {
            put(&format!("logged in to {shown}; `aye mcp test {shown}` shows what it offers\n"))?;
            Ok(0)
        }
        Err(NotLoggedIn::NotThis(why) | NotLoggedIn::Over(why)) => Err(fail(why)),
    }
}

/// Prints the URL to open, and opens it if the user has a screen on this machine.
fn invite(
    env: &Env,
    shown: &str,
    login: &Login,
    landing: &CallbackServer,
    no_browser: bool,
) -> Result<(), Failure> {
    let host = visible_line(login.authorization_url.host_str().unwrap_or_default()).into_owned();
    put(&format!(
        "To log in to {shown}, open this URL in a browser; it is at {host}, the login belongs to {}:\n\n  \
         {}\n\nThe browser returns to {}. If it runs on another machine, paste the URL\nit ends at here.\n",
        visible_line(login.issuer()),
        visible_line(login.authorization_url.as_str()),
        landing.address()
    ))?;
    if !no_browser && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        // If that fails, the user opens the URL.
        let _ = opener::open(env, login.authorization_url.as_str().as_ref());
    }
    Ok(())
}

/// Waits for the URL that ends this login, from the browser or pasted, whichever comes first.
async fn wait_for_redirect(login: &Login, landing: &CallbackServer) -> String {
    let is_wanted = |address: &str| match login.is_this(address) {
        Ok(()) => true,
        Err(NotLoggedIn::NotThis(why) | NotLoggedIn::Over(why)) => {
            put_stderr(&format!("aye: {why}; still waiting"));
            false
        }
    };
    let mut pasted = lines();
    let pasted = async {
        while let Some(line) = pasted.recv().await {
            if !line.trim().is_empty() && is_wanted(&line) {
                return line;
            }
        }
        // Nobody can paste a URL, but the browser may still return.
        std::future::pending().await
    };
    tokio::select! {
        address = landing.wait_for_redirect(is_wanted) => address,
        address = pasted => address,
    }
}

/// Returns the lines of standard input, read on a thread that nobody waits for.
fn lines() -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = std::io::Read::take(&mut input, MAX_LINE as u64).read_until(b'\n', &mut line);
            if !matches!(read, Ok(1..))
                || send.blocking_send(String::from_utf8_lossy(&line).into_owned()).is_err()
            {
                return;
            }
        }
    });
    lines
}

/// Ends a login, even at a server that is no longer configured.
pub(crate) async fn logout(name: &str, foundation: &Foundation) -> Result<u8, Failure> {
    let all = servers(foundation, true).usable;
    let server: Option<&ServerConfig> = all.iter().find(|server| server.name == name);
    let scope = server.map_or(ServerScope::User, |server| server.scope.clone());
    let out = log_out(&scope, name, server, &logins(foundation)).await.map_err(Failure::failed)?;
    put(&ended(&visible_line(name), &out))?;
    Ok(0)
}

/// Describes the result of a logout on one line.
pub(crate) fn ended(shown: &str, out: &LoggedOut) -> String {
    match out {
        LoggedOut::Nobody => format!("not logged in to {shown}\n"),
        LoggedOut::TakenBack => {
            format!("logged out of {shown}; its tokens are revoked\n")
        }
        LoggedOut::Forgotten(why) => {
            format!("logged out of {shown}; its tokens could not be revoked: {}\n", visible_line(why))
        }
    }
}

pub(crate) fn forget_of(scope: &ServerScope, name: &str, foundation: &Foundation) -> Result<bool, Failure> {
    let logins = Arc::new(logins(foundation));
    let _held = logins.lock(&scope.key(), name).map_err(Failure::failed)?;
    logins.forget(&scope.key(), name).map_err(Failure::failed)
}
