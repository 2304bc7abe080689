//! The bytes of images. A message refers to them by hash (`ContentBlock::StoredImage`): storing a message with image
//! bytes (`ContentBlock::Image`) moves them here, so that lists of messages do not carry them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::{Connection, OptionalExtension as _};

use super::rows::int;
use super::{SqlFailure, Store, StoreError};
use aye_core::contract::content::ContentBlock;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::image::ImageRef;
use aye_core::contract::message::Message;

/// How long an attached image that was not sent is kept: drafts may refer to it.
const KEPT_MS: u64 = 30 * 24 * 60 * 60 * 1000;

impl Store {
    /// Keeps the bytes of a picture.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_image(&self, image: &ImageRef, bytes: Vec<u8>, now_ms: u64) -> Result<(), StoreError> {
        let hash = image.hash.clone();
        self.write(move |tx| {
            let sql = "DELETE FROM image WHERE created_at < ?1 \
                       AND NOT EXISTS (SELECT 1 FROM image_of o WHERE o.hash = image.hash)";
            tx.prepare_cached(sql)?.execute((int(now_ms.saturating_sub(KEPT_MS)),))?;
            put(tx, &hash, &bytes, now_ms)
        })
        .await
    }

    /// The bytes of a picture, when they are there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn image(&self, hash: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let hash = hash.to_owned();
        self.read(move |conn| {
            let sql = "SELECT data FROM image WHERE hash = ?1";
            Ok(conn.prepare_cached(sql)?.query_row((hash,), |row| row.get(0)).optional()?)
        })
        .await
    }
}

pub(super) fn put(conn: &Connection, hash: &str, bytes: &[u8], at: u64) -> Result<(), SqlFailure> {
    let sql = "INSERT INTO image (hash, created_at, data) VALUES (?1, ?2, ?3) \
               ON CONFLICT (hash) DO UPDATE SET created_at = max(created_at, excluded.created_at)";
    conn.prepare_cached(sql)?.execute((hash, int(at), bytes))?;
    Ok(())
}

/// A message as it goes into a row of a thread: its pictures are kept beside it.
pub(super) fn keep<'a>(
    conn: &Connection,
    thread: &ThreadId,
    at: u64,
    message: &'a Message,
) -> Result<Cow<'a, Message>, SqlFailure> {
    let has =
        |block: &ContentBlock| matches!(block, ContentBlock::Image { .. } | ContentBlock::StoredImage(_));
    if !message.content.iter().any(has) {
        return Ok(Cow::Borrowed(message));
    }
    let mut kept = message.clone();
    for block in &mut kept.content {
        if let ContentBlock::Image { data, .. } = block
            && let Ok(bytes) = STANDARD.decode(data.as_bytes())
            // Bytes that are not a displayable image are left unchanged: a provider may support their format.
            && let Ok(image) = ImageRef::of("image", &bytes)
        {
            put(conn, &image.hash, &bytes, at)?;
            *block = ContentBlock::StoredImage(image);
        }
        if let Some(image) = block.as_stored_image() {
            let sql = "INSERT INTO image_of (thread_id, hash) \
                       SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM thread WHERE id = ?1) ON CONFLICT DO NOTHING";
            conn.prepare_cached(sql)?.execute((thread.as_str(), &image.hash))?;
        }
    }
    Ok(Cow::Owned(kept))
}

/// Before a thread is deleted: pictures that are in no other one go with it.
pub(super) fn forget(conn: &Connection, thread: &ThreadId) -> Result<(), SqlFailure> {
    let sql = "DELETE FROM image WHERE hash IN (SELECT hash FROM image_of WHERE thread_id = ?1) \
               AND NOT EXISTS (SELECT 1 FROM image_of o WHERE o.hash = image.hash AND o.thread_id <> ?1)";
    conn.prepare_cached(sql)?.execute((thread.as_str(),))?;
    Ok(())
}
