//! Converts content from servers to results for the model: bounded, with a note about anything left out.

use std::fmt::Write as _;

use rmcp::model::{CallToolResult, ContentBlock as Block, ResourceContents};
use serde_json::json;

use aye_core::contract::content::ContentBlock;
use aye_core::contract::tool::ToolResult;

/// The text of one result that the model may read.
const MAX_TEXT: usize = 128 << 10;
/// Pictures of one result, and the size of each as base64.
const MAX_IMAGES: usize = 8;
const MAX_IMAGE: usize = 5 << 20;
/// Types that providers take.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The parts taken from a list of content.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) text: String,
    pub(super) images: Vec<ContentBlock>,
}

impl Content {
    fn line(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    fn image(&mut self, media_type: &str, data: String) {
        if !IMAGE_TYPES.contains(&media_type) {
            self.line(&format!("[image of type {media_type}, not supported]"));
        } else if data.len() > MAX_IMAGE {
            self.line(&format!("[image of {} KiB, too large]", data.len() * 3 / 4 / 1024));
        } else if self.images.len() >= MAX_IMAGES {
            self.line("[one more image, left out]");
        } else if !is_base64(&data) {
            self.line("[unreadable image]");
        } else {
            self.images.push(ContentBlock::image(media_type, data));
        }
    }

    pub(super) fn resource(&mut self, resource: ResourceContents) {
        match resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                self.line(&format!("[resource {uri}]\n{text}"));
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let media_type = mime_type.unwrap_or_default();
                if IMAGE_TYPES.contains(&media_type.as_str()) {
                    self.line(&format!("[resource {uri}]"));
                    self.image(&media_type, blob);
                } else {
                    let size = blob.len() * 3 / 4;
                    self.line(&format!("[resource {uri}: {size} bytes of {media_type}, not text]"));
                }
            }
            _ => self.line("[resource of unknown kind]"),
        }
    }

    pub(super) fn block(&mut self, block: Block) {
        match block {
            Block::Text(text) => self.line(&text.text),
            Block::Image(image) => self.image(&image.mime_type, image.data),
            Block::Audio(audio) => self.line(&format!(
                "[audio of type {}, {} KiB, not supported]",
                audio.mime_type,
                audio.data.len() * 3 / 4 / 1024
            )),
            Block::Resource(resource) => self.resource(resource.resource),
            Block::ResourceLink(link) => {
                let mut line = format!("[resource {} ({})", link.uri, link.name);
                if let Some(description) = &link.description {
                    let _ = write!(line, ": {description}");
                }
                line.push(']');
                self.line(&line);
            }
            _ => self.line("[content of unknown kind]"),
        }
    }

    /// The text, its middle left out when it is too long.
    pub(super) fn bounded(&mut self) {
        bound(&mut self.text, MAX_TEXT);
    }
}

/// Leaves out the middle of a text that is longer than `max` bytes.
pub(super) fn bound(text: &mut String, max: usize) {
    if text.len() <= max {
        return;
    }
    let (mut head, mut tail) = (max * 2 / 3, text.len() - max / 3);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    let left = tail - head;
    text.replace_range(head..tail, &format!("\n[{left} bytes left out]\n"));
}

fn is_base64(data: &str) -> bool {
    !data.is_empty()
        && data.len().is_multiple_of(4)
        && data.trim_end_matches('=').bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

/// The result of a call as the model reads it.
pub(super) fn tool_result(id: &str, server: &str, tool: &str, result: CallToolResult) -> ToolResult {
    let mut content = Content::default();
    let is_error = result.is_error == Some(true);
    for block in result.content {
        content.block(block);
        // Text far beyond the limit need not be kept until the end.
        if content.text.len() > 4 * MAX_TEXT {
            content.bounded();
        }
    }
    if content.text.trim().is_empty() && content.images.is_empty() {
        content.text = match &result.structured_content {
            Some(value) => value.to_string(),
            None if is_error => "the tool failed without a message".to_owned(),
            None => "(no output)".to_owned(),
        };
    }
    content.bounded();
    let mut out =
        if is_error { ToolResult::error(id, content.text) } else { ToolResult::text(id, content.text) };
    out.images = content.images;
    out.with_details(json!({"mcp.server": server, "mcp.tool": tool}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(value: serde_json::Value) -> ToolResult {
        tool_result("mcp__s__t", "s", "t", serde_json::from_value(value).expect("a result"))
    }

    #[test]
    fn each_content_kind_is_handled() {
        let got = result(json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "mimeType": "image/png", "data": "aGk="},
            {"type": "image", "mimeType": "image/svg+xml", "data": "aGk="},
            {"type": "image", "mimeType": "image/png", "data": "not base64!"},
            {"type": "audio", "mimeType": "audio/wav", "data": "aGk="},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "application/zip", "blob": "aGk="}},
            {"type": "resource_link", "uri": "file:///c", "name": "c", "description": "d"},
        ]}));
        assert!(got.is_success());
        assert_eq!(got.images, [ContentBlock::image("image/png", "aGk=")]);
        let text = got.model_text();
        for piece in [
            "one\n",
            "svg+xml, not supported",
            "[unreadable image]",
            "audio of type audio/wav",
            "[resource file:///a]\ninside",
            "[resource file:///b: 3 bytes of application/zip",
            "[resource file:///c (c): d]",
        ] {
            assert!(text.contains(piece), "{piece} in {text}");
        }
        assert_eq!(got.details, Some(json!({"mcp.server": "s", "mcp.tool": "t"})));
    }

    #[test]
    fn errors_and_empty_results_have_text() {
        let got = result(json!({"content": [{"type": "text", "text": "no"}], "isError": true}));
        assert!(got.is_error() && got.model_text() == "no");
        assert_eq!(result(json!({"content": []})).model_text(), "(no output)");
        assert_eq!(result(json!({"content": [], "structuredContent": {"a": 1}})).model_text(), "{\"a\":1}");
        assert!(result(json!({"content": [], "isError": true})).is_error());
    }

    #[test]
    fn a_flood_is_truncated_in_the_middle() {
        let long = "é".repeat(1 << 20);
        let got =
            result(json!({"content": [{"type": "text", "text": long}, {"type": "text", "text": "the end"}]}));
        let text = got.model_text();
        assert!(text.len() < MAX_TEXT + 100, "{}", text.len());
        assert!(text.ends_with("the end") && text.contains("bytes left out]"));
        let many: Vec<_> =
            (0..20).map(|_| json!({"type": "image", "mimeType": "image/png", "data": "aGk="})).collect();
        assert_eq!(result(json!({"content": many})).images.len(), MAX_IMAGES);
    }
}
