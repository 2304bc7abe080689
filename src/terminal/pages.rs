//! Terminal commands that show a page of text.

use std::fmt::Write as _;

use crate::config::Origin;
use crate::contract::display::visible_line;
use crate::contract::ids::ThreadId;
use crate::failure::AppError;
use crate::mcp::ServerState;
use crate::program::app_context::AppContext;
use crate::terminal::background::BackgroundRuns;
use crate::tui::host::TextPage;
use crate::tui::palette::HostPage;

/// Returns the page of a command with its arguments. Text from other sources is included unchanged: the
/// terminal makes it visible.
pub(crate) async fn page(
    app: &AppContext,
    elsewhere: &BackgroundRuns,
    thread: Option<&ThreadId>,
    page: HostPage,
    words: &str,
) -> Result<TextPage, AppError> {
    match page {
        HostPage::Doctor => Ok(crate::commands::doctor::page(app)),
        HostPage::Status => Ok(status(app, thread)),
        HostPage::Feedback => Ok(feedback(app, thread)),
        HostPage::Config => Ok(crate::commands::config::page(app)),
        HostPage::Hooks => crate::commands::hooks::page(app),
        HostPage::Memory => crate::commands::memory::page(app, words).await,
        HostPage::Stats => crate::commands::stats::page(app, words).await,
        HostPage::Queue => crate::commands::queue::page(&app.store).await,
        HostPage::Agent => crate::commands::agents::page(app, words),
        HostPage::Plugins => crate::program::plugins::page(app, words),
        HostPage::Tasks => crate::commands::tasks::page(app, thread, words).await,
        HostPage::Context => crate::program::context::page(app, thread, words).await,
        HostPage::Btw => beside(app, thread, words).await,
        HostPage::Goal => {
            let max_rounds = app.foundation.loaded.settings.stop.goal_rounds;
            crate::program::goal::page(&app.store, max_rounds, thread).await
        }
        HostPage::Compact => crate::program::context::compact(app, thread, words).await,
        HostPage::Mcp => crate::program::mcp::page(app, words).await,
        HostPage::Serve => elsewhere.serve(words.trim()).await,
    }
}

/// `/btw QUESTION`.
async fn beside(app: &AppContext, thread: Option<&ThreadId>, question: &str) -> Result<TextPage, AppError> {
    if question.trim().is_empty() {
        return Err("/btw needs a question, such as: /btw what does this error mean?".into());
    }
    let thread = thread.ok_or("no conversation is open yet")?;
    let text = app.runtime.answer_beside(thread, &app.agents.current(), question).await?;
    Ok(TextPage {
        title: format!("Beside the conversation · {question}"),
        text,
        is_markdown: true,
        ..TextPage::default()
    })
}

/// What this session works with.
fn status(app: &AppContext, thread: Option<&ThreadId>) -> TextPage {
    let foundation = &app.foundation;
    let selection = app.selection();
    let effort = foundation
        .effort
        .get()
        .map_or_else(|| "default of the model".to_owned(), |effort| effort.to_string());
    let sandbox = match &app.sandbox {
        None => "off (sandbox.enabled = false)".to_owned(),
        Some(sandbox) => sandbox.known_lack(&foundation.workspace.root).unwrap_or_else(|| "on".to_owned()),
    };
    let trust = if foundation.is_trusted { "the files of this folder are used" } else { "not trusted yet" };
    let key = match &selection.api_key_env {
        Some(variable) => format!("${variable}"),
        None if selection.is_key_stored => format!("stored by `aye login {}`", selection.provider),
        None => "none needed".to_owned(),
    };
    let why = foundation.paths.display_in(&selection.why);
    let mut rows = vec![
        ("version", format!("aye {}", env!("CARGO_PKG_VERSION"))),
        ("conversation", thread.map_or_else(|| "not started yet".to_owned(), ToString::to_string)),
        ("folder", foundation.paths.display(&foundation.workspace.cwd)),
        ("trust", trust.to_owned()),
        ("model", format!("{} ({why})", selection.full_name())),
        ("effort", effort),
        ("agent", app.agents.current()),
        ("mode", app.permission.mode().to_string()),
        ("sandbox", sandbox),
        ("instructions", app.instructions.status().unwrap_or_else(|| "none".to_owned())),
        ("MCP servers", servers(app)),
        ("settings", settings_files(app)),
        ("store", foundation.paths.display(&foundation.paths.database())),
        ("log", foundation.paths.display(&foundation.paths.log_dir().join("aye.log"))),
    ];
    if !selection.is_demo() {
        let at = rows.iter().position(|(name, _)| *name == "effort").unwrap_or(rows.len());
        rows.insert(at, ("server", selection.server()));
        rows.insert(at + 1, ("key", key));
    }
    TextPage {
        title: "Status".to_owned(),
        text: aligned(&rows) + "\n`/config`, `/permissions`, `/mcp` and `/context` show more.\n",
        ..TextPage::default()
    }
}

/// How many MCP servers there are, and what they do.
fn servers(app: &AppContext) -> String {
    let views = app.mcp.manager.views();
    let connected = views.iter().filter(|view| matches!(view.phase, ServerState::Connected)).count();
    match views.len() {
        0 => "none".to_owned(),
        count if count == connected => format!("{count}, connected"),
        count => format!("{count}, {connected} connected"),
    }
}

/// The files that set something, the weakest first; the user's own file also where it sets nothing.
fn settings_files(app: &AppContext) -> String {
    let foundation = &app.foundation;
    let mut files = vec![foundation.paths.config_file()];
    for row in foundation.loaded.provenance.rows() {
        if let Origin::File { path, .. } = row.origin
            && !files.contains(&path)
        {
            files.push(path);
        }
    }
    files.extend(foundation.loaded.provenance.policy().map(|policy| policy.path().to_path_buf()));
    let root = &foundation.workspace.root;
    let shown = files.iter().map(|file| match file.strip_prefix(root) {
        Ok(below) => below.display().to_string(),
        Err(_) => foundation.paths.display(file),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// What makes a report useful. Nothing is sent.
fn feedback(app: &AppContext, thread: Option<&ThreadId>) -> TextPage {
    let paths = &app.foundation.paths;
    let word = |name: &str| visible_line(app.foundation.env.var(name).unwrap_or("unknown")).into_owned();
    let rows = [
        ("version", format!("aye {}", env!("CARGO_PKG_VERSION"))),
        ("system", format!("{}, {}", std::env::consts::OS, std::env::consts::ARCH)),
        ("terminal", format!("{}, TERM={}", word("TERM_PROGRAM"), word("TERM"))),
        ("model", app.selection().full_name()),
        ("log", paths.display(&paths.log_dir().join("aye.log"))),
    ];
    let mut text = String::from("Nothing is sent. Attach to a report what you are willing to show:\n\n");
    text.push_str(&aligned(&rows));
    text.push_str("\nthis machine and folder\t`aye doctor`\n");
    if let Some(thread) = thread {
        let _ = writeln!(
            text,
            "this conversation\t`aye threads export {thread}`; read it first, it has your files and output in it"
        );
    }
    text.push_str("the same again\t`aye -r ID --debug` puts everything into the log\n");
    TextPage { title: "Feedback".to_owned(), text, ..TextPage::default() }
}

fn aligned(rows: &[(&str, String)]) -> String {
    rows.iter().fold(String::new(), |mut out, (name, value)| {
        let _ = writeln!(out, "{name}\t{}", visible_line(value));
        out
    })
}
