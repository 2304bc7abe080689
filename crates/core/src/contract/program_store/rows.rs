//! Long lists, read as they are wanted.

use async_trait::async_trait;

use crate::contract::storage::StoreError;

/// Rows of a store as they are at one moment, in order, of which only some are in memory at a time.
///
/// Until the last row was read or the reader is dropped, other requests to the same handle of a store may wait: they must
/// not be awaited in between.
#[async_trait]
pub trait RowReader<T>: Send {
    /// The next rows, at least one; `None` after the last one.
    async fn next(&mut self) -> Result<Option<Vec<T>>, StoreError>;
}

/// Rows that are read as they are wanted.
pub type RowFeed<T> = Box<dyn RowReader<T>>;
