//! Titles of conversations, made by a model: once for each, in the background. On any failure the first line stays
//! the title.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::ids::ThreadId;
use crate::contract::message::Role;
use crate::contract::record::NamedBy;
use crate::failure::AppError;
use crate::program::app_context::AppContext;
use crate::program::models;
use crate::program::parts::entry_of;
use crate::tui::host::HostEvent;

/// The maximum time to wait for a title.
const WAIT: Duration = Duration::from_secs(30);

/// Requests a title for a conversation that has none. Returns at once.
pub(crate) fn begin(app: &Arc<AppContext>, thread: &ThreadId, emit: impl Fn(HostEvent) + Send + 'static) {
    if !app.foundation.loaded.settings.threads.titles || app.selection().is_demo() {
        return;
    }
    let (app, thread) = (Arc::clone(app), thread.clone());
    tokio::spawn(async move {
        match tokio::time::timeout(WAIT, name(&app, &thread)).await {
            Ok(Ok(true)) => emit(HostEvent::InboxChanged),
            Ok(Ok(false)) => {}
            Ok(Err(why)) => tracing::info!(%thread, %why, "the conversation was not named"),
            Err(_) => tracing::info!(%thread, "the conversation was not named in time"),
        }
    });
}

async fn name(app: &AppContext, thread: &ThreadId) -> Result<bool, AppError> {
    if app.store.named_by(thread).await? != NamedBy::FirstLine {
        return Ok(false);
    }
    let messages = app.store.messages_from(thread, 0, BEGINNING).await?;
    // A first line that is short and has nothing after it is a sufficient title.
    let of_person = messages.iter().filter(|message| message.role == Role::User).count();
    let answered = messages.iter().any(|message| message.role == Role::Assistant);
    let first = app.store.load_thread(thread).await?.map(|thread| thread.title).unwrap_or_default();
    if !answered || of_person < 2 && first.chars().count() <= ENOUGH {
        return Ok(false);
    }
    let model = match &app.foundation.loaded.settings.threads.title_model {
        None => None,
        Some(name) => {
            let selection = models::choose_named(&app.foundation, name).await?;
            let id = selection.full_name();
            app.runtime.set_model(&id, entry_of(&selection), models::executor(&selection, &app.foundation));
            Some(id)
        }
    };
    let agent = app.agents.current();
    let title = app.runtime.propose_title(thread, &agent, model.as_deref()).await?;
    // A model that returns no title is not asked again: the first line becomes the title.
    let title = title.unwrap_or(first);
    Ok(app.store.rename_thread(thread, &title, NamedBy::Model).await?)
}

/// The maximum bytes read from the start of a conversation, as they are stored.
const BEGINNING: usize = 1 << 20;
/// The maximum characters of a first line used as the title.
const ENOUGH: usize = 50;
