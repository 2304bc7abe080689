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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Passes on numbers from another thread, and then how it ends.
    fn numbers(count: usize, end: Result<(), StoreError>) -> (RowFeed<usize>, Arc<AtomicUsize>) {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let rows = feed(move |mut rows: RowSender<usize>| async move {
            let work = move || {
                for n in 0..count {
                    counted.store(n + 1, Ordering::Relaxed);
                    if !rows.send(n, 1) {
                        return;
                    }
                }
            };
            tokio::task::spawn_blocking(work).await.unwrap();
            end
        });
        (rows, sent)
    }

    async fn rest(feed: &mut RowFeed<usize>) -> (Vec<usize>, Option<StoreError>) {
        let mut found = Vec::new();
        loop {
            match feed.next().await {
                Ok(Some(rows)) => found.extend(rows),
                Ok(None) => return (found, None),
                Err(error) => return (found, Some(error)),
            }
        }
    }

    #[tokio::test]
    async fn rows_come_in_order_and_before_the_error_that_ends_them() {
        for count in [0, 1, FULL, FULL + 1, 10 * FULL + 7] {
            let all: Vec<usize> = (0..count).collect();
            assert!(matches!(rest(&mut numbers(count, Ok(())).0).await, (found, None) if found == all));
            let (mut feed, _) = numbers(count, Err(StoreError::Full));
            let (found, error) = rest(&mut feed).await;
            assert_eq!(found, all);
            assert!(matches!(error, Some(StoreError::Full)), "{error:?}");
            assert!(matches!(feed.next().await, Ok(None)), "an error is reported once");
        }
    }

    #[tokio::test]
    async fn only_a_few_rows_wait_to_be_read() {
        let (mut feed, sent) = numbers(100 * FULL, Ok(()));
        assert_eq!(feed.next().await.unwrap().unwrap().len(), FULL);
        // Whatever the other thread did in the meantime: what it passed on waits in the channel, or is being passed on.
        for _ in 0..100 {
            assert!(sent.load(Ordering::Relaxed) <= (WAITING + 2) * FULL);
            tokio::task::yield_now().await;
        }
        drop(feed);
    }

    #[tokio::test]
    async fn a_large_row_does_not_wait_for_others() {
        let mut feed = feed(|mut rows: RowSender<usize>| async move {
            let work = move || [(1, 1), (2, FULL), (3, 1)].map(|(row, weight)| rows.send(row, weight));
            tokio::task::spawn_blocking(work).await.unwrap();
            Ok(())
        });
        assert_eq!(feed.next().await.unwrap(), Some(vec![1, 2]));
        assert_eq!(feed.next().await.unwrap(), Some(vec![3]));
        assert_eq!(feed.next().await.unwrap(), None);
    }
}
