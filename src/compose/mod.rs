//! From written text to a message, the same way for the terminal, `aye -p`, the queue and editors: the skill or the
//! prompt of a server that it names, else the text with what it mentions.

pub(crate) mod command_files;
pub(crate) mod images;
pub(crate) mod mentions;
pub(crate) mod symbols;

use std::path::Path;

use crate::contract::content::ContentBlock;
use crate::contract::display::visible_line;
use crate::contract::message::Message;
use crate::failure::AppError;
use crate::plugins::skills::invocation;
use crate::program::app_context::AppContext;
use crate::program::mcp;

/// Returns a prompt with piped input as its context.
pub(crate) fn with_piped(prompt: Option<&str>, piped: Option<String>) -> Option<String> {
    match (prompt.filter(|prompt| !prompt.trim().is_empty()), piped) {
        (Some(prompt), Some(piped)) => Some(format!("{prompt}\n\n<stdin>\n{piped}\n</stdin>")),
        (Some(prompt), None) => Some(prompt.to_owned()),
        (None, piped) => piped,
    }
}

/// Expands `/name words`; returns `None` if the name is no prompt of a server, no skill and no command in a file.
pub(crate) async fn command(app: &AppContext, line: &str) -> Result<Option<Vec<ContentBlock>>, AppError> {
    let Some(named) = line.strip_prefix('/') else { return Ok(None) };
    let (name, words) = named.split_once(char::is_whitespace).unwrap_or((named, ""));
    if let Some(blocks) = mcp::prompt(app, name, words.trim()).await {
        return blocks.map(Some);
    }
    let skill = invocation(&app.skills.registry(), line.trim_end())?;
    let text = skill.or_else(|| command_files::prompt(&app.foundation, line.trim_end()));
    Ok(text.map(|text| vec![ContentBlock::text(text)]))
}

/// Refuses a prompt that starts with a command that does not exist: a model would make something up. A path is text.
///
/// # Errors
/// A sentence that names it.
pub(crate) async fn check_command(app: &AppContext, typed: &str) -> Result<(), AppError> {
    let word = typed.split(char::is_whitespace).next().unwrap_or_default();
    let Some(name) = word.strip_prefix('/').filter(|name| command_files::is_name(name)) else {
        return Ok(());
    };
    if Path::new(word).exists() || command(app, typed).await?.is_some() {
        return Ok(());
    }
    let hint = if app.foundation.is_trusted {
        ""
    } else {
        " (this folder is not trusted: its skills and commands are not used)"
    };
    let name = visible_line(name);
    Err(format!("/{name} is not a command{hint}; put a space before it to send it as text").into())
}

/// Returns the message for a text and its attachments. Only typed text can mention something: piped input may contain
/// anything.
pub(crate) async fn message(
    app: &AppContext,
    text: &str,
    typed: &str,
    mut goes_with: Vec<ContentBlock>,
) -> Result<Message, AppError> {
    let command = command(app, text).await?;
    goes_with.extend(images::mentioned(app, typed).await?);
    goes_with.extend(mentions::attached(app, typed).await?);
    if let Some(content) = command {
        return Ok(joined(content, goes_with, Some(text)));
    }
    let is_more = goes_with.iter().any(|block| matches!(block, ContentBlock::Text { .. }));
    Ok(joined(mcp::with_resources(app, text).await?, goes_with, is_more.then_some(text)))
}

/// Joins everything for the model into one message; `written` is the user's text if it differs.
pub(crate) fn joined(
    mut content: Vec<ContentBlock>,
    goes_with: Vec<ContentBlock>,
    written: Option<&str>,
) -> Message {
    content.extend(goes_with);
    let message = Message::user_with(content);
    match written {
        Some(written) => message.written_as(written),
        None => message,
    }
}
