//! `aye`: the terminal.

use std::io::IsTerminal as _;
use std::sync::Arc;

use crate::cli::start::{StartFlags, ThreadChoice};
use crate::commands;
use crate::config::{Editing, Env, Images, ScreenMode};
use crate::contract::display::visible_line;
use crate::failure::Failure;
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::{ask, moved, put_stderr, worktrees};
use crate::terminal::background::BackgroundRuns;
use crate::terminal::host::TerminalHost;
use crate::terminal::{statusline, themes};
use crate::tui::keymap::Keymap;
use crate::tui::links::Links;
use crate::tui::terminal::{Abilities, Clipboard, Desktop, reflows};
use crate::tui::{self, Cause, TuiOptions};

pub(crate) async fn run(cli: &StartFlags, env: Env) -> Result<u8, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "the chat needs a terminal on stdin and stdout; for a pipe or a script use aye -p \"...\"",
        ));
    }
    let (foundation, cli) = worktrees::load(cli, env).await?;
    let cli = &cli;
    if foundation.store_is_gone() {
        if !ask_for_empty_store(&foundation)? {
            return Err(Failure::failed("nothing changed"));
        }
        foundation.forget_store()?;
    }
    let _log = crate::logging::to_file(&foundation.paths.log_dir());
    let theme = themes::chosen(&foundation)?;
    let background = themes::background(&foundation);
    let keymap = keymap_of(&foundation)?;
    let env = foundation.env.clone();
    let app = AppContext::build(foundation, cli).await?;
    let thread = commands::chosen_thread(&app, cli).await?;
    let options = TuiOptions {
        thread,
        choose_thread: cli.thread() == ThreadChoice::Pick,
        initial_prompt: cli.prompt.clone(),
        keep_waiting: cli.keep_waiting,
        theme,
        background,
        abilities: Abilities::of(|name| env.var(name).map(str::to_owned)),
        keymap,
        segments: statusline::segments(&app.foundation),
        status_command: !app.foundation.loaded.settings.tui.status_command.is_empty(),
        title: app.foundation.loaded.settings.tui.title,
        progress: app.foundation.loaded.settings.tui.progress,
        reduced_motion: app.foundation.loaded.settings.tui.reduced_motion,
        screen_reader: app.foundation.loaded.settings.tui.screen_reader,
        images: app.foundation.loaded.settings.tui.images != Images::Off,
        first_start: first_start(&app.foundation, cli),
        utc_offset: crate::program::zone().to_offset(jiff::Timestamp::now()).seconds(),
        reflow: reflows(|name| env.var(name).map(str::to_owned)),
        vim: app.foundation.loaded.settings.tui.editing == Editing::Vim,
        full: app.foundation.loaded.settings.screen == ScreenMode::Full,
        mouse: app.foundation.loaded.settings.tui.mouse,
        clipboard: Clipboard::of(|name| env.var(name).map(str::to_owned)),
        rings: app.foundation.loaded.settings.tui.bell,
        desktop: Desktop::of(|name| env.var(name).map(str::to_owned)),
        links: Links::of(|name| env.var(name).map(str::to_owned)),
    };
    let (sender, events) = tokio::sync::mpsc::unbounded_channel();
    let app = Arc::new(app);
    let elsewhere = Arc::new(BackgroundRuns::new(cli, env, sender.clone()));
    let host = Arc::new(TerminalHost::new(Arc::clone(&app), sender, elsewhere, cli.clone()));
    {
        let app = Arc::clone(&app);
        // Runs after the first frame, and in short transactions.
        tokio::spawn(async move {
            crate::commands::store::prune_by_setting(&app.store, &app.foundation).await;
            moved::note(&app).await;
        });
    }
    let status = Box::pin(tui::run(options, Arc::<TerminalHost>::clone(&host), events)).await;
    host.leave().await;
    app.store.close().await;
    let status = status.map_err(|e| {
        let cause = std::error::Error::source(&e).map(|s| format!(": {s}")).unwrap_or_default();
        Failure::failed(format!("{e}{cause}"))
    })?;
    let has_begun = !status.title.is_empty() || status.waiting > 0;
    if let (Some(thread), Cause::Quit, true) = (&status.thread, status.cause, has_begun) {
        let waiting = match status.waiting {
            0 => None,
            1 => Some("1 pending question".to_owned()),
            n => Some(format!("{n} pending questions")),
        };
        let about: Vec<String> = status.spent.into_iter().chain(waiting).collect();
        let title = visible_line(&status.title).into_owned();
        put_stderr(&goodbye(&title, &about, thread.as_str()));
    }
    Ok(match status.cause {
        Cause::Quit => 0,
        Cause::Hangup => 129,
        Cause::Terminated => 143,
    })
}

/// The last lines: the conversation's title, what it took, and how to resume it.
fn goodbye(title: &str, about: &[String], thread: &str) -> String {
    let title = if title.is_empty() { String::new() } else { format!("  {title}\n") };
    format!("\n{title}  {}\n  aye -r {thread}  resumes it", about.join(" · "))
}

/// Returns whether this is the first start of a user who has not set anything up.
fn first_start(foundation: &Foundation, cli: &StartFlags) -> bool {
    let paths = &foundation.paths;
    let marker = paths.started_file();
    let is_plain = cli.prompt.is_none() && cli.thread() == ThreadChoice::New && !foundation.is_ephemeral;
    if !is_plain || paths.config_file().exists() || marker.exists() {
        return false;
    }
    // Shown once; never if that cannot be recorded.
    crate::config::write_private(&marker, b"").is_ok()
}

/// Returns the built-in keys, overridden by the user's `keymap.toml`.
fn keymap_of(foundation: &Foundation) -> Result<Keymap, Failure> {
    let file = foundation.paths.config_dir.join("keymap.toml");
    if file.metadata().is_ok_and(|about| !about.is_file()) {
        return Err(Failure::usage(format!("cannot read {}: it is not a plain file", file.display())));
    }
    match std::fs::read_to_string(&file) {
        Ok(text) => Keymap::with_file(&file.to_string_lossy(), &text).map_err(Failure::usage),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Keymap::default()),
        Err(error) => Err(Failure::usage(format!("cannot read {}: {error}", file.display()))),
    }
}

/// Asks whether to start with an empty store: a missing store is not replaced unless the user agrees.
fn ask_for_empty_store(foundation: &Foundation) -> Result<bool, Failure> {
    ask(&format!(
        "The store {} is missing or empty, although aye used it before.\nTo restore a backup, answer no and run: aye \
         store restore FILE\n\nStart with an empty store? [y/N] ",
        visible_line(&foundation.paths.display(&foundation.paths.database()))
    ))
}
