//! Encodes values as JSON that can be read again.

use serde::Serialize;

use super::error::StoreError;
use crate::contract::json::depth_of;

/// `serde_json` refuses to read what is nested deeper than 128 levels but writes it: such a row would close its thread
/// for ever, so it is refused before it is written.
const MAX_DEPTH: usize = 127;

/// The JSON of a value that a store is going to keep.
///
/// # Errors
/// [`StoreError::Unwritable`] when it could not be read again.
pub fn encode<T: Serialize + ?Sized>(what: &'static str, value: &T) -> Result<String, StoreError> {
    let text = serde_json::to_string(value)
        .map_err(|error| StoreError::Unwritable { what, why: error.to_string() })?;
    let depth = depth_of(&text);
    if depth > MAX_DEPTH {
        let why = format!("it is nested {depth} levels deep; the maximum is {MAX_DEPTH}");
        return Err(StoreError::Unwritable { what, why });
    }
    Ok(text)
}
