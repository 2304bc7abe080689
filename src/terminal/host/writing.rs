//! What helps to write a message.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::TerminalHost;
use crate::compose::{command_files, mentions};
use crate::contract::ids::{MessageId, ThreadId};
use crate::contract::storage::StoreError;
use crate::plugins::skills::list_rows;
use crate::program::app_context::AppContext;
use crate::terminal::editor;
use crate::tui::composer::paste::Draft;
use crate::tui::host::{HostFuture, KeepDraft, MentionRow, SkillRow, WritingHost};

/// The maximum number of earlier messages that can be searched.
const HISTORY: usize = 10_000;

impl WritingHost for TerminalHost {
    fn keep_draft(&self, keep: KeepDraft) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let drafts = self.drafts.clone();
            let _ = tokio::task::spawn_blocking(move || drafts.keep(&keep)).await;
        })
    }

    fn draft<'a>(&'a self, thread: &'a ThreadId, is_new: bool) -> BoxFuture<'a, Option<Draft>> {
        Box::pin(async move {
            let (drafts, thread, app) = (self.drafts.clone(), thread.clone(), Arc::clone(&self.app));
            let here = tokio::runtime::Handle::current();
            let is_stored = move |thread: &ThreadId, message: &MessageId| {
                here.block_on(is_stored(&app, thread, message)).unwrap_or(false)
            };
            tokio::task::spawn_blocking(move || drafts.find(&thread, is_new, is_stored)).await.ok().flatten()
        })
    }

    fn history(&self) -> HostFuture<'_, Vec<String>> {
        Box::pin(async move { Ok(self.app.store.all_prompts(HISTORY).await?) })
    }

    fn remember<'a>(&'a self, prompt: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Err(error) =
                self.app.store.remember_prompt(&self.app.foundation.workspace.cwd, prompt).await
            {
                tracing::warn!(%error, "the prompt could not be added to the history");
            }
        })
    }

    fn complete_files<'a>(&'a self, query: &'a str) -> BoxFuture<'a, Vec<MentionRow>> {
        Box::pin(async move {
            let (files, cwd, wanted) =
                (Arc::clone(&self.files), self.app.foundation.workspace.cwd.clone(), query.to_owned());
            let named = |label: String| MentionRow { label, detail: String::new() };
            let mut rows: Vec<_> =
                crate::program::mcp::complete(&self.app, query).await.into_iter().map(named).collect();
            let others = mentions::complete(&self.app, query).await;
            let (kinds, others): (Vec<_>, Vec<_>) =
                others.into_iter().partition(|row| row.label.ends_with(':'));
            rows.extend(kinds);
            let symbols = Arc::clone(&self.symbols);
            let found = tokio::task::spawn_blocking(move || {
                if wanted.contains('#') {
                    let all = if wanted.starts_with('#') { files.all(&cwd) } else { Vec::new() };
                    let found = symbols.complete(&cwd, &all, &wanted);
                    if !found.is_empty() {
                        return found;
                    }
                }
                files.complete(&cwd, &wanted).into_iter().map(named).collect()
            });
            rows.extend(found.await.unwrap_or_default());
            rows.extend(others);
            rows
        })
    }

    fn skills(&self) -> Vec<SkillRow> {
        skill_rows(&self.app)
    }

    fn edit<'a>(&'a self, text: &'a str, name: &'a str) -> HostFuture<'a, String> {
        Box::pin(async move { Ok(editor::edit(&self.app.foundation.env, text, name).await?.text) })
    }
}

/// Returns whether a message is in a conversation or in its queue.
async fn is_stored(app: &AppContext, thread: &ThreadId, message: &MessageId) -> Result<bool, StoreError> {
    if app.store.place_of_message(thread, message.as_str()).await?.is_some() {
        return Ok(true);
    }
    let queued = app.runtime.queued(thread).await?;
    Ok(queued.iter().flat_map(|queued| &queued.messages).any(|queued| queued.id == *message))
}

/// Returns what can be called by name: skills, commands in files, and the prompts of MCP servers.
pub(super) fn skill_rows(app: &AppContext) -> Vec<SkillRow> {
    let skills = list_rows(&app.skills).into_iter().filter(|row| row.user_invocable).map(|row| {
        let hint = row.argument_hint.as_deref().map(|hint| format!("{hint}  ")).unwrap_or_default();
        SkillRow {
            description: format!("{hint}{}", row.summary()),
            name: row.name,
            origin: row.scope.to_string(),
        }
    });
    let mut rows: Vec<SkillRow> = skills.collect();
    // A skill of the same name is used instead of the command.
    let commands = command_files::all(app).into_iter();
    let commands: Vec<SkillRow> = commands
        .filter(|command| !rows.iter().any(|row| row.name == command.name))
        .map(|command| SkillRow {
            description: format!(
                "{}{}",
                command.hint.map(|hint| format!("{hint}  ")).unwrap_or_default(),
                command.description
            ),
            name: command.name,
            origin: command.origin.to_owned(),
        })
        .collect();
    rows.extend(commands);
    rows.extend(crate::program::mcp::commands(app));
    rows
}
