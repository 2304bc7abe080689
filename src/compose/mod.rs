//! From written text to a message, the same way for the terminal, `aye -p`, the queue, editors and HTTP: the skill, the
//! command or the prompt of a server that it names, else the text; and what it mentions.

pub(crate) mod command_files;
pub(crate) mod images;
pub(crate) mod mentions;
pub(crate) mod symbols;

use std::path::Path;
use std::sync::Arc;

use crate::compose::symbols::Symbols;
use crate::contract::content::ContentBlock;
use crate::contract::display::visible_line;
use crate::contract::message::Message;
use crate::failure::AppError;
use crate::plugins::skills::invocation;
use crate::program::app_context::AppContext;
use crate::program::{goal, init, mcp};

/// Returns a prompt with piped input as its context.
pub(crate) fn with_piped(prompt: Option<&str>, piped: Option<String>) -> Option<String> {
    match (prompt.filter(|prompt| !prompt.trim().is_empty()), piped) {
        (Some(prompt), Some(piped)) => Some(format!("{prompt}\n\n<stdin>\n{piped}\n</stdin>")),
        (Some(prompt), None) => Some(prompt.to_owned()),
        (None, piped) => piped,
    }
}

/// Expands `/name words`; returns `None` if the name is no prompt of a server, no skill and no command in a file.
async fn command(app: &AppContext, line: &str) -> Result<Option<Vec<ContentBlock>>, AppError> {
    let Some(named) = line.strip_prefix('/') else { return Ok(None) };
    let (name, words) = named.split_once(char::is_whitespace).unwrap_or((named, ""));
    if let Some(blocks) = mcp::prompt(app, name, words.trim()).await {
        return blocks.map(Some);
    }
    let skill = invocation(&app.skills.registry(), line.trim_end())?;
    let text = skill.or_else(|| command_files::prompt(app, line.trim_end()));
    Ok(text.map(|text| vec![ContentBlock::text(text)]))
}

/// Expands a command of aye's own that is a message to the model.
fn own_command(app: &AppContext, text: &str) -> Result<Option<Message>, AppError> {
    let (name, words) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    match (name, words.trim()) {
        ("/goal", "") => {
            Err("/goal needs a condition, such as: /goal every test of the parser passes".into())
        }
        ("/goal", condition) => Ok(Some(goal::message(condition))),
        ("/init", "") => Ok(Some(Message::user(init::task(&app.foundation)))),
        _ => Ok(None),
    }
}

/// Refuses a text that starts with a command that does not exist: a model would make something up. A path is text.
fn refuse_unknown_command(app: &AppContext, text: &str) -> Result<(), AppError> {
    let word = text.split(char::is_whitespace).next().unwrap_or_default();
    let Some(name) = word.strip_prefix('/').filter(|name| command_files::is_name(name)) else {
        return Ok(());
    };
    if Path::new(word).exists() {
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

/// What a user wrote, and what a front end adds to it.
#[derive(Default)]
pub(crate) struct WrittenMessage<'a> {
    pub(crate) text: &'a str,
    /// The part of the text that a person typed. Only this can mention something: a pipe or a long paste may contain
    /// anything.
    pub(crate) typed: &'a str,
    /// Images and texts that were attached beside the text.
    pub(crate) attached: Vec<ContentBlock>,
    /// The symbols that are known from earlier messages.
    pub(crate) symbols: Arc<Symbols>,
}

impl<'a> WrittenMessage<'a> {
    /// Text that was typed as a whole.
    pub(crate) fn typed(text: &'a str) -> WrittenMessage<'a> {
        WrittenMessage { text, typed: text, ..WrittenMessage::default() }
    }

    /// Whether the text may be a command or mention something, so that it is not only text.
    pub(crate) fn may_mention(&self) -> bool {
        self.text.starts_with('/') || self.typed.split_whitespace().any(|word| word.starts_with('@'))
    }
}

/// Composes the message of a user for the model. All front ends use it, so that the same text leads to the same request.
///
/// # Errors
/// A sentence: the text names a command, a skill or a conversation that does not exist, or something that may not be
/// read.
pub(crate) async fn message(app: &AppContext, written: WrittenMessage<'_>) -> Result<Message, AppError> {
    let WrittenMessage { text, typed, attached, symbols } = written;
    let command = match command(app, text).await? {
        Some(content) => Some(Message::user_with(content)),
        None => own_command(app, text)?,
    };
    if command.is_none() {
        refuse_unknown_command(app, text)?;
    }
    let is_command = command.is_some();
    let mut message = command.unwrap_or_else(|| Message::user_with(vec![ContentBlock::text(text)]));
    let content = &mut message.content;
    content.extend(mcp::resources(app, typed).await?);
    content.extend(attached);
    let mut mentioned = images::mentioned(app, typed).await?;
    mentioned.extend(mentions::attached(app, typed).await?);
    mentioned.extend(symbols::attached(app, &symbols, typed).await?);
    let is_more = mentioned.iter().any(|block| matches!(block, ContentBlock::Text { .. }));
    content.extend(mentioned);
    // A front end shows what was written, not what it stands for.
    Ok(if is_command || is_more { message.written_as(text) } else { message })
}
