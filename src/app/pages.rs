//! Terminal commands that show a page of text.

use super::app_context::AppContext;
use crate::app::AppError;
use crate::contract::ids::ThreadId;
use crate::tui::host::TextPage;

/// Returns the page of a command with its arguments. Text from other sources is included unchanged: the
/// terminal makes it visible.
pub(super) async fn page(
    app: &AppContext,
    thread: Option<&ThreadId>,
    name: &str,
    words: &str,
) -> Result<TextPage, AppError> {
    match name {
        "doctor" => Ok(super::doctor::page(app)),
        "memory" => super::memory::page(app, words).await,
        "stats" => super::stats::page(app, words).await,
        "queue" => super::queue::page(&app.store).await,
        "agent" => super::agent_list::page(app, words),
        "plugins" => super::plugins::page(app, words),
        "tasks" => super::tasks::page(app, thread, words).await,
        "context" => super::context::page(app, thread).await,
        "compact" => super::context::compact(app, thread, words).await,
        "mcp" => super::mcp::page(app, words).await,
        _ => Err(format!("unknown command /{name}").into()),
    }
}
