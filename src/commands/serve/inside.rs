//! `/serve`: the server of a terminal. Nothing of it exists until it is requested.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args as _, FromArgMatches as _};
use tokio::sync::Mutex;

use super::RunningServer;
use crate::cli::start::{StartFlags, StartKind};
use crate::commands::serve::ServeArgs;
use crate::config::Env;
use crate::contract::display::visible_line;
use crate::failure::AppError;
use crate::program::foundation::Foundation;
use crate::terminal::host::Events;
use crate::tui::host::{HostEvent, TextPage};
use crate::tui::update::SERVED_CARD;

/// How long requests and runs may take to end before the terminal reports that they are still active, or is
/// left.
const SHORT_WAIT: Duration = Duration::from_secs(2);
/// Columns and rows around a page: its indent, and the line of keys below it.
const AROUND: (u16, u16) = (2, 1);
/// The argument that stops the server.
const STOP: &str = "stop";

/// The server that a terminal started, if it did.
#[derive(Default)]
pub(crate) struct ServerInside(Mutex<Option<RunningServer>>);

impl ServerInside {
    /// `/serve [stop | FLAGS]`; `card ID` is asked for by the key of a card. `cli` and `env` are those of apps beside the terminal's own one.
    pub(crate) async fn page(
        &self,
        cli: &StartFlags,
        env: &Env,
        events: &Events,
        words: &str,
    ) -> Result<TextPage, AppError> {
        let mut running = self.0.lock().await;
        // A server that ended on its own is removed.
        if let Some(mut ended) = running.take_if(|server| server.task.is_finished())
            && let Err(error) = ended.ended().await
        {
            tracing::warn!(%error, "the terminal's server ended");
        }
        let page = |text: String| TextPage { title: "Server".to_owned(), text, ..TextPage::default() };
        if words == STOP {
            let Some(server) = running.take() else {
                return Err("not serving; /serve starts the server".into());
            };
            return Ok(page(stop(server, events).await));
        }
        if let Some(question) = words.strip_prefix(SERVED_CARD).map(str::trim).filter(|id| !id.is_empty()) {
            let server = match &mut *running {
                Some(server) => server,
                none => none.insert(start(arguments("")?, cli, env, events).await?),
            };
            return Ok(TextPage {
                title: "This question on a phone".to_owned(),
                text: format!(
                    "{}\n`/serve stop` or quitting aye stops the server.",
                    server.question_link_text(question, room())?
                ),
                ..TextPage::default()
            });
        }
        let args = arguments(words)?;
        let text = match (&*running, words.is_empty()) {
            (Some(server), true) => server.sign_in_text(room()),
            (Some(server), false) => {
                return Err(
                    format!("already serving on {}; stop that first with /serve stop", server.place).into()
                );
            }
            (None, _) => {
                let server = start(args, cli, env, events).await?;
                let text = server.sign_in_text(room());
                *running = Some(server);
                text
            }
        };
        Ok(page(format!(
            "{text}\n`/serve` shows a new code; `/serve stop` or quitting aye stops the server."
        )))
    }

    /// Stops the server with the terminal. A run that is still active is left as after a kill.
    pub(crate) async fn leave(&self) {
        let Some(mut server) = self.0.lock().await.take() else { return };
        server.closing.cancel();
        let _ = tokio::time::timeout(SHORT_WAIT, server.ended()).await;
    }
}

async fn start(
    args: ServeArgs,
    cli: &StartFlags,
    env: &Env,
    events: &Events,
) -> Result<RunningServer, AppError> {
    let mut cli = cli.clone();
    cli.global.cd = Some(env.cwd().to_path_buf());
    // The server gets an app of its own, as with `aye serve`: remote users see nothing drawn for this
    // terminal.
    cli.kind = StartKind::Attended;
    let (of_trouble, cwd) = (events.clone(), env.clone());
    let foundation = Foundation::load(&cli, cwd)?;
    let report_failure = Arc::new(move |text| drop(of_trouble.send(HostEvent::Warned(text))));
    let server =
        RunningServer::start(args, foundation, &cli, report_failure).await.map_err(|why| why.message)?;
    Ok(server)
}

async fn stop(mut server: RunningServer, events: &Events) -> String {
    server.closing.cancel();
    let place = server.place.clone();
    let mut ending = tokio::spawn(async move { server.ended().await });
    if tokio::time::timeout(SHORT_WAIT, &mut ending).await.is_ok() {
        return format!("stopped serving on {place}; pending questions stay in the inbox");
    }
    let (events, gone) = (events.clone(), place.clone());
    tokio::spawn(async move {
        let _ = ending.await;
        let _ = events.send(HostEvent::Note(format!("stopped serving on {gone}")));
    });
    format!(
        "{place} accepts no more requests; its runs have 30 seconds to finish, and pending questions stay in the \
             inbox"
    )
}

/// The flags of `aye serve`.
fn arguments(words: &str) -> Result<ServeArgs, AppError> {
    let words = shlex::split(words).ok_or("a quote is not closed")?;
    let command = ServeArgs::augment_args(clap::Command::new("/serve"))
        .no_binary_name(true)
        .disable_help_flag(true)
        .disable_help_subcommand(true);
    let parsed = command.try_get_matches_from(words).and_then(|found| ServeArgs::from_arg_matches(&found));
    let args = parsed.map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        visible_line(first.trim_start_matches("error: ")).into_owned()
    })?;
    if args.command.is_some() {
        return Err("create tokens in a shell: aye serve token add NAME".into());
    }
    Ok(args)
}

/// The columns and rows that a page can show at once.
fn room() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    let (columns, rows) = (size.ws_col.saturating_sub(AROUND.0), size.ws_row.saturating_sub(AROUND.1));
    std::io::stdout().is_terminal().then_some((columns.into(), rows.into()))
}
