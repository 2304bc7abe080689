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
    let ((left, said_left), (right, said_right)) = (load(one).await?, load(other).await?);
    let made = move || Document::of_forks([&left.title, &right.title], [&said_left, &said_right]);
    Ok(tokio::task::spawn_blocking(made).await?)
}
