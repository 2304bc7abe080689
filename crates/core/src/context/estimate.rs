//! Estimates numbers of tokens before any provider has counted them.

use std::sync::Arc;

use crate::contract::content::ContentBlock;
use crate::contract::executor::InferenceRequest;
use crate::contract::message::Message;
use crate::contract::tool::ToolDescriptor;

/// The tokens of a message beside its text.
const PER_MESSAGE: usize = 4;
/// The tokens of a block whose size says little about them: an image, a proof.
const PER_BLOCK: usize = 50;
/// The tokens of a tool beside its text.
const PER_TOOL: usize = 10;

fn block(block: &ContentBlock) -> usize {
    match block {
        ContentBlock::Text { text } => text.len() / 4,
        ContentBlock::StoredImage(image) => image.tokens(),
        ContentBlock::Image { .. } | ContentBlock::Thinking { .. } | ContentBlock::Opaque { .. } => PER_BLOCK,
        // Its call is counted.
        ContentBlock::ToolCall { .. } => 0,
    }
}

/// The tokens of one message: 4, a quarter of its text in bytes, 50 for each other block, and a quarter of its calls.
pub fn message_tokens(message: &Message) -> usize {
    let calls: usize =
        message.tool_calls.iter().map(|call| (call.name.len() + json_len(&call.arguments)) / 4).sum();
    PER_MESSAGE + message.content.iter().map(block).sum::<usize>() + calls
}

/// The tokens of messages.
pub fn messages_tokens<'a>(messages: impl IntoIterator<Item = &'a Message>) -> usize {
    messages.into_iter().map(message_tokens).sum()
}

/// The tokens of one tool: a quarter of its name, description and schema in bytes, and 10.
pub fn tool_tokens(tool: &ToolDescriptor) -> usize {
    (tool.id.len() + tool.description.len() + json_len(&tool.parameters)) / 4 + PER_TOOL
}

/// The tokens of a whole request.
pub fn request_tokens(request: &InferenceRequest) -> usize {
    let system: usize = request.system.iter().map(|text| PER_MESSAGE + block(text)).sum();
    system
        + messages_tokens(request.messages.iter().map(Arc::as_ref))
        + request.tools.iter().map(tool_tokens).sum::<usize>()
}

/// The bytes of a value as compact JSON, without writing them anywhere.
fn json_len(value: &serde_json::Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Writing into a counter cannot fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// An estimate that learns: what the provider reported for the last request against what was estimated for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    factor: f64,
}

impl Default for Calibration {
    fn default() -> Self {
        Self { factor: 1.0 }
    }
}

impl Calibration {
    /// Takes in what one request was estimated at and what the provider counted for it.
    pub fn learn(&mut self, estimated: usize, reported: i32) {
        if estimated < 100 || reported < 100 {
            // Too small to say anything about the rest.
            return;
        }
        // One odd report (a cache that is not counted, a picture) must not throw it off.
        let seen = (f64::from(reported) / estimated as f64).clamp(0.25, 4.0);
        self.factor = f64::midpoint(self.factor, seen);
    }

    /// The estimate whose correction is this many tokens.
    pub fn before(&self, tokens: usize) -> usize {
        (tokens as f64 / self.factor) as usize
    }

    /// The corrected estimate.
    pub fn apply(&self, estimated: usize) -> usize {
        (estimated as f64 * self.factor).round() as usize
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::contract::message::ToolCall;

    #[test]
    fn text_costs_a_quarter_of_its_bytes_plus_four() {
        assert_eq!(message_tokens(&Message::user("12345678")), 6);
        assert_eq!(message_tokens(&Message::user("")), 4);
        let picture =
            Message::user_with(vec![ContentBlock::text("1234"), ContentBlock::image("image/png", "x")]);
        assert_eq!(message_tokens(&picture), 4 + 1 + 50);
    }

    #[test]
    fn a_tool_costs_a_quarter_of_its_bytes_plus_ten() {
        let tool = ToolDescriptor::new("abcd", "shown", "12345678").with_parameters(json!({"a": 1}));
        assert_eq!(tool_tokens(&tool), (4 + 8 + 7) / 4 + 10);
    }

    #[test]
    fn calls_are_counted() {
        let calls = vec![ToolCall::new("1", "Bash", json!({"command": "ls"}))];
        assert_eq!(message_tokens(&Message::assistant_with(vec![], calls)), 4 + (4 + 16) / 4);
    }

    #[test]
    fn the_estimate_adapts_to_reported_usage() {
        let mut calibration = Calibration::default();
        for _ in 0..10 {
            calibration.learn(1000, 1500);
        }
        let corrected = calibration.apply(2000);
        assert!((2990..=3000).contains(&corrected), "{corrected}");
        calibration.learn(1000, i32::MAX);
        assert!(calibration.apply(1000) < 3000, "one odd report is bounded");
    }
}
