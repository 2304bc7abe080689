//! Mentions with `@` besides files: skills, and other conversations, whose text is attached to the message.

use crate::contract::content::ContentBlock;
use crate::contract::display::visible_line;
use crate::contract::message::Visibility;
use crate::contract::record::ThreadSummary;
use crate::failure::AppError;
use crate::plugins::skills::{invocation, list_rows};
use crate::program::app_context::AppContext;
use crate::program::export;
use crate::tui::host::MentionRow;

const THREAD: &str = "thread:";
const SKILL: &str = "skill:";
/// The maximum completions of each kind.
const OFFERED: usize = 20;
/// The number of characters from the end of an id that identify a conversation.
const SHORT: usize = 8;
/// The maximum number of messages read from the end of a conversation.
const MESSAGES: usize = 2_000;
/// The maximum text of a conversation attached to a message: its end is kept.
const MOST: usize = 24 << 10;

fn short(id: &str) -> &str {
    id.get(id.len().saturating_sub(SHORT)..).unwrap_or(id)
}

/// Returns the skills and conversations that match what was typed.
pub(crate) async fn complete(app: &AppContext, query: &str) -> Vec<MentionRow> {
    let mut rows = Vec::new();
    let kinds = [(SKILL, "a skill"), (THREAD, "another conversation")];
    for (kind, detail) in kinds.into_iter().filter(|(kind, _)| !query.is_empty() && kind.starts_with(query)) {
        if *kind != *query {
            rows.push(MentionRow { label: kind.to_owned(), detail: detail.to_owned() });
        }
    }
    if let Some(begun) = wanted(query, SKILL) {
        let skills = list_rows(&app.skills).into_iter();
        let skills = skills.filter(|row| row.user_invocable && fits(&row.name, begun));
        let row = |name: String, detail: String| MentionRow { label: format!("{SKILL}{name}"), detail };
        rows.extend(skills.take(OFFERED).map(|skill| row(skill.name.clone(), skill.summary())));
    }
    if let Some(begun) = wanted(query, THREAD) {
        let threads = app.store.threads_page(None, 0, None).await.unwrap_or_default();
        let fitting = threads.into_iter().filter(|row| {
            !row.thread.title.is_empty()
                && (fits(&row.thread.title, begun) || short(row.thread.id.as_str()).starts_with(begun))
        });
        rows.extend(fitting.take(OFFERED).map(|row| MentionRow {
            label: format!("{THREAD}{}", short(row.thread.id.as_str())),
            detail: row.thread.title,
        }));
    }
    rows
}

/// Returns what to search for among the items of a kind: everything after the kind's prefix, else the query
/// if it is specific enough.
fn wanted<'a>(query: &'a str, kind: &str) -> Option<&'a str> {
    query.strip_prefix(kind).or_else(|| (query.chars().count() >= 3 && !query.contains('/')).then_some(query))
}

fn fits(text: &str, query: &str) -> bool {
    text.to_lowercase().contains(&query.to_lowercase())
}

/// Returns the blocks to add for the skills and conversations that a text mentions.
pub(crate) async fn attached(app: &AppContext, text: &str) -> Result<Vec<ContentBlock>, AppError> {
    let mut blocks = Vec::new();
    for word in text.split_whitespace() {
        let Some(word) = word.strip_prefix('@') else { continue };
        let word = word.trim_end_matches([',', ';', '.', ')', '"', '\'', '?', '!']);
        if let Some(name) = word.strip_prefix(SKILL).filter(|name| !name.is_empty()) {
            let (registry, line) = (app.skills.registry(), format!("/{name}"));
            let skill = invocation(&registry, &line)?;
            blocks.push(ContentBlock::text(skill.ok_or_else(|| format!("unknown skill `{name}`"))?));
        } else if let Some(id) = word.strip_prefix(THREAD).filter(|id| !id.is_empty()) {
            blocks.push(ContentBlock::text(conversation(app, id).await?));
        }
    }
    Ok(blocks)
}

async fn conversation(app: &AppContext, id: &str) -> Result<String, AppError> {
    let threads = app.store.threads_page(None, 0, None).await?;
    let mut named = threads.into_iter().filter(|row| row.thread.id.as_str().ends_with(id));
    let thread = match (named.next(), named.next()) {
        (Some(ThreadSummary { thread, .. }), None) => thread,
        (Some(_), Some(_)) => {
            return Err(format!("several conversations end with `{id}`; write more of the id").into());
        }
        (None, _) => return Err(format!("no conversation has an id that ends with `{id}`").into()),
    };
    // No more of it is read than can be shown.
    let (count, mut messages) = app.store.messages_tail(&thread.id, MESSAGES).await?;
    let is_cut = count > messages.len() as u64;
    messages.retain(|stored| stored.message.visibility == Visibility::All);
    let text = export::as_markdown(&thread, &messages);
    let (note, end) = match text.len().checked_sub(MOST) {
        Some(over) if over > 0 => {
            let from = (over..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
            (" (end only)", &text[from..])
        }
        _ if is_cut => (" (end only)", text.as_str()),
        _ => ("", text.as_str()),
    };
    let title = visible_line(&thread.title).into_owned();
    Ok(format!("[copy of the conversation \u{201c}{title}\u{201d}{note}]\n\n{end}"))
}
