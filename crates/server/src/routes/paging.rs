//! Lists in pages.

use axum::Json;
use aye_core::contract::storage::Slice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;

/// The default and the maximum number of entries in a list.
const PAGE: (u32, u32) = (50, 200);

/// `?offset=&limit=`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
pub(super) struct Paging {
    /// Entries to leave out.
    #[serde(default)]
    #[schemars(range(max = u32::MAX))]
    pub(super) offset: u32,
    /// At most this many: 50 when absent, 200 at most.
    #[schemars(range(max = u32::MAX))]
    pub(super) limit: Option<u32>,
}

/// A page of a list.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ListPage<T> {
    pub(super) items: Vec<T>,
    /// The offset of the next page; absent at the end.
    pub(super) next_offset: Option<usize>,
}

impl Paging {
    pub(super) fn slice(self) -> Slice {
        Slice { offset: self.offset as usize, limit: self.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1) as usize }
    }
}

/// Reads a page of a list.
pub(super) async fn page<T, U, E>(
    paging: Paging,
    read: impl AsyncFnOnce(Slice) -> Result<Vec<T>, E>,
    shown: impl FnMut(T) -> U,
) -> Result<Json<ListPage<U>>, ApiError>
where
    ApiError: From<E>,
{
    let slice = paging.slice();
    let items = read(one_more(slice)).await?;
    let next_offset = (items.len() > slice.limit).then(|| slice.offset + slice.limit);
    Ok(Json(ListPage { items: items.into_iter().take(slice.limit).map(shown).collect(), next_offset }))
}

/// Extends a slice by one entry, to find out whether there is another page.
pub(super) fn one_more(slice: Slice) -> Slice {
    Slice { limit: slice.limit + 1, ..slice }
}
