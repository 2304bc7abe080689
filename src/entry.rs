//! The whole program: reads the command line and runs what it asks for. Only this names all commands.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::cli::shared::JsonFlag;
use crate::cli::start::StartFlags;
use crate::cli::{Cli, CliCommand, ConfigCommand, McpCommand, completion, version_only, whole_help};
use crate::commands;
use crate::commands::man::man_page;
use crate::config::Env;
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::{panics, put, put_stderr, secrets};

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
    aye_core::failpoint::arm(place.to_owned());
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
                put_stderr(&format!("aye: {}", failure.message));
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
        Some(command) => Box::pin(run_command(command.clone(), &cli.start, env)).await,
        None if cli.is_print() => commands::print::run(&cli.start, env).await,
        None => commands::chat::run(&cli.start, env).await,
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => exit_of(Err(failure)),
    }
}

async fn run_command(command: CliCommand, cli: &StartFlags, env: Env) -> Result<u8, Failure> {
    let mut foundation = Foundation::load(cli, env)?;
    match command {
        CliCommand::Threads(command) => commands::threads::run(command, &foundation).await,
        CliCommand::Store(command) => commands::store::run(command, &foundation).await,
        CliCommand::Inbox(args) => commands::approvals::inbox(&args, &foundation).await,
        CliCommand::Approve(args) => Box::pin(commands::approvals::approve(args, cli, &foundation)).await,
        CliCommand::Deny(args) => Box::pin(commands::approvals::deny(args, cli, &foundation)).await,
        CliCommand::Answer(args) => Box::pin(commands::approvals::answer(args, cli, &foundation)).await,
        CliCommand::Approvals(command) => Box::pin(commands::approvals::run(command, cli, &foundation)).await,
        CliCommand::Grants(command) => commands::grants::run(command, &foundation).await,
        CliCommand::Worktrees(command) => commands::worktrees::run(command, &foundation).await,
        CliCommand::Memory(command) => commands::memory::run(command, &foundation).await,
        CliCommand::Queue(command) => commands::queue::run(command, &foundation, cli).await,
        CliCommand::Acp => commands::acp::run(foundation, cli).await,
        CliCommand::Serve(args) => Box::pin(commands::serve::run(args, foundation, cli)).await,
        CliCommand::Work(args) => Box::pin(commands::work::run(args, foundation, cli)).await,
        CliCommand::Agents(command) => commands::agents::run(command, foundation, cli).await,
        CliCommand::Tasks(command) => Box::pin(commands::tasks::run(command, cli, foundation)).await,
        CliCommand::Skills(command) => commands::skills::run(command, &foundation),
        CliCommand::Mcp(McpCommand::Serve) => Box::pin(commands::serve::mcp(foundation, cli)).await,
        CliCommand::Mcp(command) => commands::mcp::run(command, &mut foundation, cli).await,
        CliCommand::Permissions(command) => commands::permissions::run(command, &mut foundation, cli).await,
        CliCommand::Hooks(command) => commands::hooks::run(command, &mut foundation, cli).await,
        CliCommand::Reminders(command) => commands::reminders::run(command, &foundation),
        CliCommand::Audit(args) => commands::audit::run(args, &foundation).await,
        CliCommand::Eval(args) => Box::pin(commands::eval::run(args, &foundation)).await,
        CliCommand::Gate(args) => Box::pin(commands::gate::run(args, foundation, cli)).await,
        CliCommand::Replay(args) => Box::pin(commands::replay::run(&args, foundation, cli)).await,
        CliCommand::Stats(args) => commands::stats::run(args, &foundation).await,
        CliCommand::Models(JsonFlag { json }) => commands::models::run(json, &foundation).await,
        CliCommand::Login { provider, key_name, keyring } => {
            commands::login::login(keyed(provider, key_name), keyring, &foundation).await
        }
        CliCommand::Logout { provider, key_name } => {
            commands::login::logout(keyed(provider, key_name).as_deref(), &foundation).await
        }
        CliCommand::Config(ConfigCommand::Show(JsonFlag { json })) => {
            commands::config::show(json, &foundation)
        }
        CliCommand::Import(args) => commands::import::run(&args, &foundation),
        CliCommand::Upgrade(args) => commands::upgrade::run(&args, &foundation).await,
        CliCommand::Doctor(args) => Box::pin(commands::doctor::run(&args, foundation, cli)).await,
        // Answered before anything is read.
        CliCommand::Completion { .. } | CliCommand::Man | CliCommand::Docs(_) => Ok(0),
    }
}

/// The provider under one of its keys: `provider@key`.
fn keyed(provider: Option<String>, key_name: Option<String>) -> Option<String> {
    let key = key_name.map(|key| format!("@{key}")).unwrap_or_default();
    provider.map(|provider| provider + &key)
}
