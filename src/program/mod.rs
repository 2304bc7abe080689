//! The composition root: reads the environment, assembles the parts and hands them to a command or a front end.

pub(crate) mod agents;
pub(crate) mod app_context;
pub(crate) mod budget;
pub(crate) mod context;
pub(crate) mod deferred;
pub(crate) mod dialler;
pub(crate) mod environment;
pub(crate) mod folder_instructions;
pub(crate) mod foundation;
pub(crate) mod git;
pub(crate) mod git_index;
pub(crate) mod grants;
pub(crate) mod hooks;
pub(crate) mod keyring;
pub(crate) mod keys;
pub(crate) mod mcp;
pub(crate) mod memory;
pub(crate) mod models;
pub(crate) mod moved;
pub(crate) mod notify;
pub(crate) mod opener;
pub(crate) mod panics;
pub(crate) mod plugins;
pub(crate) mod programs;
pub(crate) mod prompt;
pub(crate) mod published;
pub(crate) mod reminders;
pub(crate) mod secrets;
pub(crate) mod sections;
pub(crate) mod telemetry;
pub(crate) mod webhook;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use crate::cli::{Cli, CliCommand, completion, version_only, whole_help};
use crate::commands;
use crate::commands::man::man_page;
use crate::config::Env;
use crate::failure::Failure;

pub use app_context::AppContext;

/// The zone that times are shown in.
pub(crate) fn zone() -> jiff::tz::TimeZone {
    crate::config::local_zone(std::env::var_os("TZ").is_some())
}

/// Writes a line to stderr. Foreign text in it is made visible first.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", crate::contract::display::visible(text));
}

/// Writes to stdout; fails if the text cannot be written, except if nobody reads the output any more.
pub(crate) fn put(text: &str) -> Result<(), Failure> {
    put_or_stop(text).map(drop)
}

/// Does the same; returns `false` if nobody reads the output any more, so that a long text can end there.
pub(crate) fn put_or_stop(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot write to stdout: {error}")))
        }
        written => Ok(written.is_ok()),
    }
}

/// The whole program.
pub fn main(args: Vec<OsString>) -> ExitCode {
    panics::contained(|| run(args))
}

fn run(args: Vec<OsString>) -> ExitCode {
    if let Some(version) = version_only(&args) {
        return exit_of(put(&format!("{version}\n")));
    }
    if let Some(help) = whole_help(&args) {
        return exit_of(put(&help));
    }
    let variables = secrets::variables(&args);
    let cli = match Cli::parse_args(args) {
        Ok(cli) => cli,
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            let printed = error.print().err().filter(|e| e.kind() != std::io::ErrorKind::BrokenPipe);
            return ExitCode::from(if code == 0 && printed.is_some() { 1 } else { code });
        }
    };
    if cli.global.debug {
        crate::logging::set_debug();
    }
    match &cli.command {
        Some(CliCommand::Completion { shell }) => {
            return exit_of(put(&String::from_utf8_lossy(&completion(*shell))));
        }
        Some(CliCommand::Man) => {
            return match man_page() {
                Ok(page) => exit_of(put(&String::from_utf8_lossy(&page))),
                Err(error) => exit_of(Err(Failure::failed(error))),
            };
        }
        Some(_) | None => {}
    }
    if let Ok(place) = std::env::var("AYE_FAILPOINT") {
        arm(&place);
    }
    let env = Env::new(variables, home(), std::env::current_dir().unwrap_or_default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return exit_of(Err(Failure::failed(format!("cannot start: {error}")))),
    };
    let code = runtime.block_on(dispatch(cli, env));
    // Threads that still read or walk something must not hold the exit.
    runtime.shutdown_timeout(std::time::Duration::from_millis(50));
    code
}

#[cfg(feature = "failpoints")]
fn arm(place: &str) {
    crate::store::failpoint::arm(place.to_owned());
}

#[cfg(not(feature = "failpoints"))]
fn arm(_place: &str) {}

fn home() -> Option<std::path::PathBuf> {
    directories::BaseDirs::new().map(|dirs| dirs.home_dir().to_path_buf())
}

fn exit_of(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                say(&format!("aye: {}", failure.message));
            }
            ExitCode::from(failure.exit)
        }
    }
}

/// The signal for a file at its size limit, handled so that the write fails with an error, as on a full disk,
/// instead of the signal killing the program. The number is the same on Linux and macOS.
const SIGXFSZ: i32 = 25;

async fn dispatch(cli: Cli, env: Env) -> ExitCode {
    let _ignored = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::from_raw(SIGXFSZ));
    let result = match &cli.command {
        Some(CliCommand::Docs(args)) => commands::docs::run(args, &env).map(|()| 0),
        Some(command) => Box::pin(commands::run(command.clone(), &cli, env)).await,
        None if cli.is_print() => commands::print::run(&cli, env).await,
        None => commands::chat::run(&cli, env).await,
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => exit_of(Err(failure)),
    }
}
