//! The content of messages.

use serde::{Deserialize, Serialize};

use super::image::ImageRef;

/// One piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// Plain text or markdown.
    Text {
        /// The text.
        text: String,
    },
    /// A picture, for models that take them.
    Image {
        /// For example `image/png`.
        media_type: String,
        /// The bytes as base64, standard alphabet.
        data: String,
    },
    /// A picture whose bytes the store keeps. They are put in its place right before a request goes out.
    StoredImage(ImageRef),
    /// The model's reasoning before its answer.
    Thinking {
        /// Readable thoughts; may be empty when only a signature came.
        thinking: String,
        /// Opaque proof that some providers want back unchanged with the next tool turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A piece of one provider's own, handed back to it unchanged.
    Opaque {
        /// The name of the adapter that the block belongs to.
        provider: String,
        /// The piece.
        data: serde_json::Value,
    },
    /// The place of one of the message's calls among its text and thoughts. A call without a place comes after
    /// everything else.
    ToolCall {
        /// The call's id.
        id: String,
    },
}

impl ContentBlock {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// An image block from base64 data.
    pub fn image(media_type: impl Into<String>, data: impl Into<String>) -> Self {
        Self::Image { media_type: media_type.into(), data: data.into() }
    }

    /// The picture of a block whose bytes the store keeps.
    pub fn as_stored_image(&self) -> Option<&ImageRef> {
        match self {
            Self::StoredImage(image) => Some(image),
            Self::Text { .. }
            | Self::Image { .. }
            | Self::Thinking { .. }
            | Self::Opaque { .. }
            | Self::ToolCall { .. } => None,
        }
    }

    /// Returns whether the block is a thought that its provider only takes back after exactly the request that it answered.
    pub fn is_bound(&self) -> bool {
        /// Adapters whose proofs are not bound.
        const FREE: [&str; 4] = ["openai", "openai_responses", "gemini", "ollama"];
        match self {
            Self::Thinking { signature: Some(proof), .. } => {
                !proof.split_once(':').is_some_and(|(owner, _)| FREE.contains(&owner))
            }
            Self::Opaque { provider, .. } => !FREE.contains(&provider.as_str()),
            Self::Thinking { signature: None, .. }
            | Self::Text { .. }
            | Self::Image { .. }
            | Self::StoredImage(_)
            | Self::ToolCall { .. } => false,
        }
    }

    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Image { .. }
            | Self::StoredImage(_)
            | Self::Thinking { .. }
            | Self::Opaque { .. }
            | Self::ToolCall { .. } => None,
        }
    }
}

/// The text blocks, joined without a separator.
pub fn text_of(blocks: &[ContentBlock]) -> String {
    blocks.iter().filter_map(ContentBlock::as_text).collect()
}
