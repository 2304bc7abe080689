//! `--input-format stream-json`: messages on stdin, one JSON object a line.

use std::io::{BufRead as _, Read as _};

use serde::Deserialize;
use tokio::sync::mpsc;

/// The maximum bytes read from a pipe, or of one line.
pub(super) const MAX_STDIN: u64 = 10 << 20;

/// A line of the input. Members that other programs add are ignored.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    message: Written,
}

#[derive(Deserialize)]
struct Written {
    content: Content,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

/// The messages on stdin, as they arrive.
pub(super) struct MessageLines {
    lines: mpsc::Receiver<Result<String, String>>,
    number: usize,
}

impl MessageLines {
    /// Starts to read. A caller may wait for an answer before it writes the next line, so nothing is read ahead of need
    /// but one line.
    pub(super) fn of_stdin() -> std::io::Result<Self> {
        let (send, lines) = mpsc::channel(1);
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            let mut stdin = std::io::stdin().lock();
            loop {
                let mut line = Vec::new();
                let read = stdin.by_ref().take(MAX_STDIN + 1).read_until(b'\n', &mut line);
                let line = match read {
                    Ok(0) => return,
                    Ok(read) if read as u64 > MAX_STDIN => {
                        Err("a line of stdin has more than 10 MiB".to_owned())
                    }
                    Ok(_) => String::from_utf8(line).map_err(|_| "a line of stdin is not UTF-8".to_owned()),
                    Err(error) => Err(format!("cannot read stdin: {error}")),
                };
                let is_last = line.is_err();
                // The receiver is gone once a run ended the session.
                if send.blocking_send(line).is_err() || is_last {
                    return;
                }
            }
        })?;
        Ok(Self { lines, number: 0 })
    }

    /// Returns the text of the next message; `None` at the end of stdin.
    pub(super) async fn next(&mut self) -> Result<Option<String>, String> {
        loop {
            let Some(line) = self.lines.recv().await.transpose()? else { return Ok(None) };
            self.number += 1;
            if !line.trim().is_empty() {
                let text = text_of(&line);
                return text.map(Some).map_err(|why| format!("line {} of stdin: {why}", self.number));
            }
        }
    }
}

fn text_of(line: &str) -> Result<String, String> {
    const EXPECTED: &str = r#"expected {"type": "user", "message": {"role": "user", "content": "TEXT"}}"#;
    let line: Line = serde_json::from_str(line).map_err(|error| format!("{error}; {EXPECTED}"))?;
    if line.kind != "user" {
        return Err(format!("a message of type `{}`; {EXPECTED}", line.kind));
    }
    let text = match line.message.content {
        Content::Text(text) => text,
        Content::Blocks(blocks) => {
            let text = |block: Block| match (block.kind.as_str(), block.text) {
                ("text", Some(text)) => Ok(text),
                (kind, _) => Err(format!(
                    "a block of type `{kind}`; only `text` is read, and `@FILE` attaches an image"
                )),
            };
            blocks.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n")
        }
    };
    if text.trim().is_empty() { Err("the message is empty".to_owned()) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_message_or_says_what_is_wrong() {
        let text = text_of(r#"{"type":"user","message":{"role":"user","content":"hi"},"session_id":"x"}"#);
        assert_eq!(text.as_deref(), Ok("hi"));
        let blocks = r#"{"type":"user","message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}"#;
        assert_eq!(text_of(blocks).as_deref(), Ok("a\nb"));
        for (line, why) in [
            ("hi", "expected {\"type\""),
            (r#"{"type":"control_request","message":{"content":"x"}}"#, "`control_request`"),
            (r#"{"type":"user","message":{"content":[{"type":"image","source":{}}]}}"#, "`image`"),
            (r#"{"type":"user","message":{"content":" "}}"#, "is empty"),
        ] {
            assert!(text_of(line).expect_err(line).contains(why), "{line}");
        }
    }
}
