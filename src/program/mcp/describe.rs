//! What the page, the doctor and `aye mcp` say of servers and logins.

use super::AgreedTools;
use super::servers;
use crate::contract::display::visible_line;
use crate::contract::server::{ServerConfig, ServerScope};
use crate::failure::Failure;
use crate::mcp::LoginState;
use crate::program::foundation::Foundation;

pub(crate) fn agreed(foundation: &Foundation) -> AgreedTools {
    AgreedTools { path: foundation.paths.agreed_tools_file(), is_kept: true }
}

/// Describes the state of a login, if there is anything to report.
pub(crate) fn login_words(login: Result<&Option<LoginState>, &String>) -> String {
    match login {
        Ok(Some(LoginState::LoggedIn)) => "logged in".to_owned(),
        Ok(Some(LoginState::OtherAddress)) => "the stored login is for another URL".to_owned(),
        Ok(Some(LoginState::None | LoginState::Needed) | None) => String::new(),
        Err(why) => why.clone(),
    }
}

/// Returns the same for programs.
pub(crate) fn login_name(login: LoginState) -> &'static str {
    match login {
        LoginState::None => "none",
        LoginState::Needed => "needed",
        LoginState::OtherAddress => "other_address",
        LoginState::LoggedIn => "logged_in",
    }
}

/// Returns the server with this name that may be started here.
pub(crate) fn find(name: &str, foundation: &Foundation) -> Result<ServerConfig, Failure> {
    let all = servers(foundation, true);
    let named = |problem: &&String| problem.contains(&format!("`{}`", visible_line(name)));
    let Some(server) = all.usable.into_iter().find(|server| server.name == name) else {
        return Err(match all.problems.iter().find(named) {
            Some(problem) => Failure::usage(problem.as_str()),
            None => {
                Failure::usage(format!("unknown server `{}`; `aye mcp list` shows all", visible_line(name)))
            }
        });
    };
    if matches!(server.scope, ServerScope::Project(_)) && !foundation.is_trusted {
        return Err(Failure::usage(format!(
            "the server `{}` belongs to the project, and this folder is not trusted; it would run {}; start \
             aye here to review it, or use --trust",
            visible_line(name),
            server.shown
        )));
    }
    Ok(server)
}
