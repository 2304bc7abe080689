//! Terminal commands that show a page of text.

use crate::contract::ids::ThreadId;
use crate::failure::AppError;
use crate::program::app_context::AppContext;
use crate::tui::host::TextPage;

/// Returns the page of a command with its arguments. Text from other sources is included unchanged: the
/// terminal makes it visible.
pub(crate) async fn page(
    app: &AppContext,
    thread: Option<&ThreadId>,
    name: &str,
    words: &str,
) -> Result<TextPage, AppError> {
    match name {
        "doctor" => Ok(crate::commands::doctor::page(app)),
        "status" => Ok(crate::commands::doctor::status_page(app, thread)),
        "feedback" => Ok(crate::commands::doctor::feedback_page(app, thread)),
        "config" => Ok(crate::commands::config::page(app)),
        "hooks" => crate::commands::hooks::page(app),
        "memory" => crate::commands::memory::page(app, words).await,
        "stats" => crate::commands::stats::page(app, words).await,
        "queue" => crate::commands::queue::page(&app.store).await,
        "agent" => crate::commands::agents::page(app, words),
        "plugins" => crate::program::plugins::page(app, words),
        "tasks" => crate::commands::tasks::page(app, thread, words).await,
        "context" => crate::program::context::page(app, thread).await,
        "compact" => crate::program::context::compact(app, thread, words).await,
        "mcp" => crate::program::mcp::page(app, words).await,
        _ => Err(format!("unknown command /{name}").into()),
    }
}
