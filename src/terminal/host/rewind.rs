//! Whole conversations: rewind, fork, titles, search, deletion.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;

use super::TerminalHost;
use crate::config::write_private;
use crate::contract::event_sink::NullEventSink;
use crate::contract::ids::ThreadId;
use crate::contract::record::NamedBy;
use crate::contract::snapshot::{Changes, RewindTarget};
use crate::failure::AppError;
use crate::program::export;
use crate::program::export::ExportEncoder;
use crate::program::git;
use crate::terminal::compare;
use crate::tui::host::ExportFormat;
use crate::tui::thread_actions::{PickPurpose, RewindCmd, RewindHost, RewindMsg};
use crate::tui::viewer::Document;

/// The maximum time of a search.
const SEARCH: Duration = Duration::from_secs(5);
/// The maximum number of conversations found.
const FOUND: usize = 200;

/// The number of the current search: older ones stop.
#[derive(Debug, Default)]
pub(super) struct Searching(AtomicU64);

/// Reports a failed action.
fn words<T>(result: Result<T, AppError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// Returns the changes, and the same as a document for the viewer. Comparing long texts takes time.
async fn bound(changes: Result<Changes, AppError>) -> Result<(Changes, Box<Document>), AppError> {
    let changes = changes?;
    let bind = move || {
        let document = Box::new(Document::of_changes(&changes));
        (changes, document)
    };
    Ok(tokio::task::spawn_blocking(bind).await?)
}

impl RewindHost for TerminalHost {
    fn back(&self, cmd: RewindCmd) -> BoxFuture<'_, RewindMsg> {
        Box::pin(async move {
            let app = &self.app;
            match cmd {
                RewindCmd::Points(thread, purpose) => {
                    let points = app.back_points(&thread).await.map(|mut points| {
                        if purpose == PickPurpose::Back {
                            points.points.retain(|point| point.is_message);
                        }
                        points
                    });
                    RewindMsg::Points(purpose, words(points))
                }
                RewindCmd::Preview(thread, keep) => {
                    RewindMsg::Preview(keep, words(app.back_preview(&thread, keep).await))
                }
                RewindCmd::Go(thread, keep, what) => {
                    RewindMsg::Went(words(self.go_back(&thread, keep, what).await))
                }
                RewindCmd::Fork(thread, keep) => RewindMsg::Forked(words(app.fork(&thread, keep).await)),
                RewindCmd::Search(number, words) => self.search(number, &words).await,
                RewindCmd::Rename(thread, title) => {
                    let renamed = app.store.rename_thread(&thread, &title, NamedBy::Person).await;
                    self.viewer.changed();
                    RewindMsg::Marked(
                        renamed.map(|_| format!("renamed to “{title}”")).map_err(|e| e.to_string()),
                    )
                }
                RewindCmd::Pin(thread, pin) => {
                    let now = pin.then(|| app.clock.now_ms());
                    let pinned = app.store.pin_thread(&thread, now).await;
                    let words = if pin { "pinned" } else { "unpinned" };
                    RewindMsg::Marked(pinned.map(|()| words.to_owned()).map_err(|e| e.to_string()))
                }
                RewindCmd::Delete(thread) => {
                    let deleted = self.delete(&thread).await;
                    RewindMsg::Deleted(thread, words(deleted))
                }
                RewindCmd::Export(thread, format) => {
                    RewindMsg::Exported(words(self.write_export(&thread, format).await))
                }
                RewindCmd::Changes(thread, wanted) => {
                    RewindMsg::Changes(words(bound(app.changes(&thread, &wanted).await).await))
                }
                RewindCmd::GitChanges(wanted) => RewindMsg::Changes(words(
                    bound(git::changes(&app.foundation, &wanted).await.map_err(AppError::from)).await,
                )),
                RewindCmd::Compare(one, other) => RewindMsg::Compared(words(
                    compare::compare_threads(&app.store, &one, &other).await.map(Box::new),
                )),
            }
        })
    }
}

impl TerminalHost {
    async fn go_back(
        &self,
        thread: &ThreadId,
        keep: Option<u64>,
        what: RewindTarget,
    ) -> Result<crate::tui::thread_actions::Rewound, AppError> {
        // Events of the conversation that is being left are no longer of interest.
        self.app.go_back(thread, keep, what, Arc::new(NullEventSink)).await
    }

    async fn delete(&self, thread: &ThreadId) -> Result<(), AppError> {
        let app = &self.app;
        if app.runtime.is_active(thread) {
            return Err("it has an active run; interrupt it first".into());
        }
        if !app.runtime.delete_thread(thread, app.actor("tui")).await? {
            return Err("it was already deleted".into());
        }
        Ok(self.app.store.shrink(false).await.map(drop)?)
    }

    async fn write_export(
        &self,
        thread: &ThreadId,
        format: ExportFormat,
    ) -> Result<std::path::PathBuf, AppError> {
        let opened = self.app.store.load_thread(thread).await?;
        let record = opened.ok_or("nothing to export yet")?;
        let (form, ending) = match format {
            ExportFormat::Markdown => (ExportEncoder::Markdown, "md"),
            ExportFormat::Json => (ExportEncoder::Json, "json"),
            ExportFormat::Html => (ExportEncoder::Html, "html"),
        };
        let text = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&text);
        let put = move |piece: &str| {
            written.lock().unwrap_or_else(PoisonError::into_inner).push_str(piece);
            Ok(true)
        };
        if format == ExportFormat::Json {
            export::write_all(&self.app.store, &record, put).await?;
        } else {
            export::write(&self.app.store, &record, form, put).await?;
        }
        let text = std::mem::take(&mut *text.lock().unwrap_or_else(PoisonError::into_inner));
        // A file in the project would be read by tools and end up in a commit.
        let path = self.app.foundation.paths.exports().join(format!("aye-{thread}.{ending}"));
        write_private(&path, text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(path)
    }

    /// Searches one conversation after the other, the latest first, until the time limit is reached or
    /// another search starts.
    async fn search(&self, number: u64, words: &str) -> RewindMsg {
        let wanted = &self.searching.0;
        wanted.fetch_max(number, Ordering::Relaxed);
        let start = Instant::now();
        let mut found = Vec::new();
        let threads = match self.app.store.threads_page(None, 0, None).await {
            Ok(threads) => threads,
            Err(error) => {
                tracing::warn!(%error, "the conversations could not be searched");
                return RewindMsg::Found(number, found, false);
            }
        };
        for summary in threads {
            let id = summary.thread.id;
            let mut from = Some(0);
            while let Some(place) = from {
                if wanted.load(Ordering::Relaxed) != number
                    || start.elapsed() > SEARCH
                    || found.len() >= FOUND
                {
                    return RewindMsg::Found(number, found, false);
                }
                match self.app.store.search_thread(&id, words, place).await {
                    Ok((Some(around), _)) => {
                        found.push((id.clone(), around));
                        from = None;
                    }
                    Ok((None, next)) => from = next,
                    Err(error) => {
                        tracing::warn!(%error, thread = %id, "a conversation could not be searched");
                        from = None;
                    }
                }
            }
        }
        RewindMsg::Found(number, found, true)
    }
}
