//! Long lists: the store's thread passes rows on while somebody else reads them.

use std::mem;
use std::pin::Pin;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::StoreError;
use aye_core::contract::program_store::{RowFeed, RowReader};

/// The weight of the rows that are passed on together.
const FULL: usize = 64;
/// The groups of rows that may wait to be read.
const WAITING: usize = 2;

/// The receiving end of a request for rows.
pub(super) struct RowSender<T> {
    rows: Vec<T>,
    weight: usize,
    sender: mpsc::Sender<Vec<T>>,
}

impl<T> RowSender<T> {
    /// Passes a row on, which weighs 1 if it is small and [`FULL`] if it may be as large as an image. Returns `false` if
    /// nobody reads on. Blocks while nobody reads.
    pub(super) fn send(&mut self, row: T, weight: usize) -> bool {
        self.rows.push(row);
        self.weight += weight;
        if self.weight < FULL { !self.sender.is_closed() } else { self.flush() }
    }

    fn flush(&mut self) -> bool {
        self.weight = 0;
        self.sender.blocking_send(mem::take(&mut self.rows)).is_ok()
    }
}

impl<T> Drop for RowSender<T> {
    fn drop(&mut self) {
        if !self.rows.is_empty() {
            self.flush();
        }
    }
}

type RowRequest = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

struct Reader<T> {
    /// `None`: it has ended.
    request: Option<RowRequest>,
    failed: Option<StoreError>,
    rows: mpsc::Receiver<Vec<T>>,
}

/// Makes rows readable that a request passes on.
pub(super) fn feed<T, F>(request: impl FnOnce(RowSender<T>) -> F) -> RowFeed<T>
where
    T: Send + 'static,
    F: Future<Output = Result<(), StoreError>> + Send + 'static,
{
    let (sender, rows) = mpsc::channel(WAITING);
    let request = request(RowSender { rows: Vec::new(), weight: 0, sender });
    Box::new(Reader { request: Some(Box::pin(request)), failed: None, rows })
}

#[async_trait]
impl<T: Send> RowReader<T> for Reader<T> {
    async fn next(&mut self) -> Result<Option<Vec<T>>, StoreError> {
        while let Some(request) = &mut self.request {
            tokio::select! {
                biased;
                Some(rows) = self.rows.recv() => return Ok(Some(rows)),
                ended = request => {
                    self.request = None;
                    self.failed = ended.err();
                }
            }
        }
        match self.rows.recv().await {
            Some(rows) => Ok(Some(rows)),
            None => self.failed.take().map_or(Ok(None), Err),
        }
    }
}
