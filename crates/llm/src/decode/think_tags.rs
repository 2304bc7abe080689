//! Thoughts that a server leaves in the text: `<think>…</think>` at the start of an answer.

use super::super::fold::Fold;
use aye_core::contract::executor::InferenceExecutionError;

const OPENS: &str = "<think>";
const CLOSES: &str = "</think>";

/// Separates such thoughts from the text. A tag anywhere but at the start is text: the model may speak of tags.
#[derive(Debug, Default)]
pub(super) struct ThinkTags {
    place: Place,
    /// Text that may be a part of a tag.
    held: String,
}

#[derive(Debug, Default, PartialEq)]
enum Place {
    /// Nothing but blanks so far.
    #[default]
    Start,
    Thoughts,
    /// Blanks between the thoughts and the text.
    Between,
    Text,
}

impl ThinkTags {
    /// Takes a piece of text in.
    pub(super) fn text(&mut self, piece: &str, fold: &mut Fold) -> Result<(), InferenceExecutionError> {
        if self.place == Place::Text {
            return fold.text(piece);
        }
        self.held.push_str(piece);
        loop {
            match self.place {
                Place::Start => {
                    let start = self.held.trim_start();
                    if let Some(thoughts) = start.strip_prefix(OPENS) {
                        self.held = thoughts.to_owned();
                        self.place = Place::Thoughts;
                    } else if OPENS.starts_with(start) {
                        return Ok(());
                    } else {
                        self.place = Place::Text;
                    }
                }
                Place::Thoughts => {
                    if let Some((thoughts, text)) = self.held.split_once(CLOSES) {
                        fold.reasoning(thoughts.trim_end())?;
                        self.held = text.to_owned();
                        self.place = Place::Between;
                    } else {
                        let keep = (1..CLOSES.len())
                            .rev()
                            .find(|length| self.held.ends_with(&CLOSES[..*length]))
                            .unwrap_or_default();
                        let settled = self.held.len() - keep;
                        fold.reasoning(&self.held[..settled])?;
                        self.held.drain(..settled);
                        return Ok(());
                    }
                }
                Place::Between => {
                    let text = self.held.trim_start();
                    if text.is_empty() {
                        self.held.clear();
                        return Ok(());
                    }
                    self.held = text.to_owned();
                    self.place = Place::Text;
                }
                Place::Text => return fold.text(&std::mem::take(&mut self.held)),
            }
        }
    }

    /// The answer is complete, or something other than text follows.
    pub(super) fn flush(&mut self, fold: &mut Fold) -> Result<(), InferenceExecutionError> {
        let held = std::mem::take(&mut self.held);
        match self.place {
            Place::Thoughts => fold.reasoning(&held),
            Place::Start | Place::Between | Place::Text => fold.text(&held),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use aye_core::contract::content::ContentBlock;
    use aye_core::contract::executor::LlmStreamEvent;

    use super::*;

    /// The thoughts and the text of an answer that comes in these pieces.
    fn read(pieces: &[&str]) -> (String, String) {
        let (mut tags, mut fold) = (ThinkTags::default(), Fold::new("m", Arc::default()));
        for piece in pieces {
            tags.text(piece, &mut fold).expect("within the limits");
        }
        tags.flush(&mut fold).expect("within the limits");
        fold.finish();
        let last = std::iter::from_fn(|| fold.next_event()).last();
        let Some(LlmStreamEvent::Finish { result, .. }) = last else { panic!("{last:?}") };
        let thoughts = result.content.iter().filter_map(|block| match block {
            ContentBlock::Thinking { thinking, .. } => Some(thinking.as_str()),
            _ => None,
        });
        (thoughts.collect(), result.text())
    }

    #[test]
    fn thoughts_at_the_start_are_separated_wherever_the_pieces_end() {
        let whole = "\n<think>\nLet me <b>see</b> </thin>.\n</think>\n\nIt is <think>4</think>.";
        let expected = ("\nLet me <b>see</b> </thin>.".to_owned(), "It is <think>4</think>.".to_owned());
        for size in 1..whole.len() {
            let chars: Vec<char> = whole.chars().collect();
            let pieces: Vec<String> = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let (thoughts, text) = read(&pieces);
            assert_eq!((thoughts.trim_end(), &text), (expected.0.as_str(), &expected.1), "pieces of {size}");
        }
    }

    #[test]
    fn other_text_stays_text() {
        for text in [
            "The tag <think>a</think> is one.",
            "<",
            "<thin",
            "<thinking>x",
            "",
            "  ",
            "\n\nhello",
            "< think>",
        ] {
            assert_eq!(read(&[text]), (String::new(), text.to_owned()), "{text:?}");
        }
        assert_eq!(read(&["<think>", "never closed </thi"]), ("never closed </thi".into(), String::new()));
        assert_eq!(read(&["<think></think>", "\n", "\n", "hi"]), (String::new(), "hi".into()));
    }
}
