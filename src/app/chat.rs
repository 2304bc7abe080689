//! `aye`: the terminal.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::Arc;

use super::agent::App;
use super::foundation::Foundation;
use super::host::TerminalHost;
use super::{Failure, commands, say};
use crate::cli::{Cli, ThreadChoice};
use crate::config::Env;
use crate::contract::display::{visible, visible_line};
use crate::tui::{self, StartThread, TuiOptions};

pub(super) async fn run(cli: &Cli, env: Env) -> Result<u8, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "the chat needs a terminal on stdin and stdout; for a pipe or a script use aye -p \"...\"",
        ));
    }
    let mut foundation = super::foundation(cli, env).await?;
    if !foundation.untrusted.is_empty() && ask_for_trust(&foundation)? {
        foundation.trust(cli)?;
    }
    let _log = crate::logging::to_file(&foundation.paths.log_dir());
    let options_of = |foundation: &Foundation, thread| {
        let settings = &foundation.loaded.settings;
        TuiOptions {
            initial_prompt: cli.prompt.clone(),
            thread,
            theme: if foundation.env.has("NO_COLOR") { "plain".to_owned() } else { settings.theme.clone() },
            themes_dir: Some(foundation.paths.config_dir.join("themes")),
            keymap: commands::read_optional(&foundation.paths.config_dir.join("keymap.toml")),
            show_reasoning: settings.tui.show_reasoning,
            ..TuiOptions::default()
        }
    };
    let app = App::build(foundation, cli).await?;
    let thread = match cli.thread() {
        ThreadChoice::New => StartThread::New,
        ThreadChoice::Pick => StartThread::Pick,
        ThreadChoice::Last => {
            let cwd = &app.foundation.workspace.cwd;
            match app.store.latest_thread(cwd).await.map_err(Failure::failed)? {
                Some(thread) => StartThread::Open(thread.id),
                None => StartThread::New,
            }
        }
        ThreadChoice::Id(id) => StartThread::Open(commands::thread_by_prefix(&app.store, &id).await?.id),
    };
    let options = options_of(&app.foundation, thread);
    let (sender, events) = tokio::sync::mpsc::unbounded_channel();
    let app = Arc::new(app);
    let host = Arc::new(TerminalHost::new(Arc::clone(&app), sender));
    let status = tui::run(options, host, events).await;
    app.store.close().await;
    match status {
        Ok(status) => Ok(status.code()),
        Err(error) => Err(Failure::failed(error)),
    }
}

/// Shows what the folder would grant or run, and asks. Enter alone, or the end of input, is no.
fn ask_for_trust(foundation: &Foundation) -> Result<bool, Failure> {
    let mut text = format!(
        "This folder has files that would grant or run something:\n  {}\n\n",
        visible_line(&foundation.assessment.folder.to_string_lossy())
    );
    for item in &foundation.untrusted {
        text.push_str(&format!(
            "  {}\n    {}\n",
            visible_line(&item.path.to_string_lossy()),
            visible(&item.summary).replace('\n', "\n    ")
        ));
    }
    text.push_str("\nTrust them? They are not used otherwise. [y/N] ");
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::failed)?;
    drop(out);
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(Failure::failed)?;
    let yes = matches!(line.trim().to_lowercase().as_str(), "y" | "yes");
    if !yes {
        say("Not trusted: these files are not used in this start.");
    }
    Ok(yes)
}
