//! Parts of conversations.

use aye_core::contract::message::{Message, Role};
use aye_core::contract::record::StoredMessage;
use aye_core::contract::storage::Portion;

pub(super) fn plain(messages: Vec<StoredMessage>) -> Vec<Message> {
    messages.into_iter().map(|stored| stored.message).collect()
}

/// The bytes of a message as JSON.
pub(super) fn size_of(message: &Message) -> usize {
    serde_json::to_string(message).map_or(0, |text| text.len())
}

/// A portion of the messages before a place. A tool's result comes with the message that asked for it.
pub(super) fn last_of(messages: &[Message], before: usize, portion: Portion) -> Vec<Message> {
    let end = before.min(messages.len());
    let (mut first, mut bytes) = (end, 0);
    while first > portion.floor {
        let is_whole = first == end || messages[first].role != Role::Tool;
        if bytes >= portion.bytes && end - first >= portion.count && is_whole {
            break;
        }
        first -= 1;
        bytes += size_of(&messages[first]);
    }
    messages[first..end].to_vec()
}
