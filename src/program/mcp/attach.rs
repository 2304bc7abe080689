//! Messages with an MCP server's help: `/SERVER:PROMPT words`, and `@SERVER:URI` in a message.

use std::time::Duration;

use crate::contract::content::ContentBlock;
use crate::contract::display::visible_line;
use crate::failure::AppError;
use crate::program::app_context::AppContext;
use crate::tui::host::SkillRow;

/// The maximum completions of a resource.
const MAX_ROWS: usize = 50;
/// How long a user who is typing waits for a list.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the text of `SERVER:PROMPT`; `None` if the server is unknown or no such prompt exists.
pub(crate) async fn prompt(
    app: &AppContext,
    name: &str,
    words: &str,
) -> Option<Result<Vec<ContentBlock>, AppError>> {
    let (server, prompt) = name.split_once(':')?;
    if !app.mcp.manager.knows(server) {
        return None;
    }
    Some(app.mcp.manager.prompt(server, prompt, words).await.map_err(AppError::from))
}

/// Returns the resources that a text mentions with `@`.
///
/// # Errors
/// A sentence: nothing is sent.
pub(crate) async fn resources(app: &AppContext, text: &str) -> Result<Vec<ContentBlock>, AppError> {
    let mut blocks = Vec::new();
    for word in text.split_whitespace() {
        let Some((server, uri)) = word.strip_prefix('@').and_then(|word| word.split_once(':')) else {
            continue;
        };
        let uri = uri.trim_end_matches([',', ';', ')', '"', '\'']);
        if uri.is_empty() || !app.mcp.manager.knows(server) {
            continue;
        }
        blocks.push(ContentBlock::text(format!("[from the MCP server {}]", visible_line(server))));
        blocks.extend(app.mcp.manager.resource(server, uri).await?);
    }
    Ok(blocks)
}

/// The prompts of all servers as commands.
pub(crate) fn commands(app: &AppContext) -> Vec<SkillRow> {
    let prompts = app.mcp.manager.prompts().into_iter();
    // A name with a space could not be typed.
    let typable =
        prompts.filter(|prompt| !format!("{}{}", prompt.server, prompt.name).contains(char::is_whitespace));
    typable
        .map(|prompt| {
            let arguments: Vec<String> = prompt
                .arguments
                .iter()
                .map(
                    |(name, is_needed)| {
                        if *is_needed { name.to_uppercase() } else { format!("[{}]", name.to_uppercase()) }
                    },
                )
                .collect();
            let blank = if arguments.is_empty() { "" } else { "  " };
            SkillRow {
                name: format!("{}:{}", prompt.server, prompt.name),
                description: format!("{}{blank}{}", arguments.join(" "), prompt.description),
                origin: format!("MCP server {}", prompt.server),
            }
        })
        .collect()
}

/// Returns the resources that match the text typed after `@`, as `SERVER:URI`.
pub(crate) async fn complete(app: &AppContext, query: &str) -> Vec<String> {
    let Some((server, begun)) = query.split_once(':') else {
        let views = app.mcp.manager.views().into_iter();
        let with =
            views.filter(|view| view.has_resources && !query.is_empty() && view.name.starts_with(query));
        return with.map(|view| format!("{}:", view.name)).collect();
    };
    if !app.mcp.manager.knows(server) {
        return Vec::new();
    }
    let found = tokio::time::timeout(PATIENCE, app.mcp.manager.resources(Some(server))).await;
    let rows = found.ok().and_then(Result::ok).unwrap_or_default();
    let fits = rows.into_iter().filter(|[_, uri, name, _]| uri.contains(begun) || name.contains(begun));
    fits.take(MAX_ROWS).map(|[server, uri, _, _]| format!("{server}:{uri}")).collect()
}
