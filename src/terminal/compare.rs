//! The differences between two conversations.

use crate::contract::ids::ThreadId;
use crate::contract::storage::SharedStore;
use crate::failure::AppError;
use crate::tui::viewer::Document;

/// Returns both as a document for the viewer.
pub(crate) async fn compare_threads(
    store: &SharedStore,
    one: &ThreadId,
    other: &ThreadId,
) -> Result<Document, AppError> {
    let load = async |id: &ThreadId| {
        let record = store.load_thread(id).await?;
        let record = record.ok_or_else(|| format!("unknown thread {id}"))?;
        Ok::<_, AppError>((record, store.load_messages(id).await?))
    };
    let ((left, left_messages), (right, right_messages)) = (load(one).await?, load(other).await?);
    let made = move || Document::of_forks([&left.title, &right.title], [&left_messages, &right_messages]);
    Ok(tokio::task::spawn_blocking(made).await?)
}
