//! Bytes to frames: server-sent events, cut anywhere, with any of the three line ends.
//!
//! Own code, because what genai's transport does here is not enough for servers one cannot trust: it has no limit on
//! the size of an event, loses the first event after a byte order mark, and takes a CR and LF that arrive in two
//! pieces for an empty line.

/// An event is longer than the limit of its parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTooLong;

/// Cuts a byte stream into the `data` of its events.
#[derive(Debug)]
pub struct SseParser {
    limit: usize,
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a CR, so that an LF right after it belongs to the same line end.
    after_cr: bool,
    started: bool,
    /// Whether anything that resembles server-sent events was seen.
    saw_field: bool,
}

impl SseParser {
    /// Creates a parser that accepts events of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            after_cr: false,
            started: false,
            saw_field: false,
        }
    }

    /// Takes more bytes and appends the data of each event they complete.
    ///
    /// # Errors
    /// [`EventTooLong`]; the rest of the stream cannot be read.
    pub fn push(&mut self, bytes: &[u8], frames: &mut Vec<String>) -> Result<(), EventTooLong> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.after_cr {
                self.after_cr = false;
                if rest[0] == b'\n' {
                    rest = &rest[1..];
                    continue;
                }
            }
            let end = rest.iter().position(|b| matches!(b, b'\n' | b'\r'));
            let (piece, ended) = match end {
                Some(at) => (&rest[..at], true),
                None => (rest, false),
            };
            if self.line.len() + self.data.len() + piece.len() > self.limit {
                return Err(EventTooLong);
            }
            self.line.extend_from_slice(piece);
            if ended {
                self.after_cr = rest[piece.len()] == b'\r';
                rest = &rest[piece.len() + 1..];
                self.end_line(frames);
            } else {
                rest = &[];
            }
        }
        Ok(())
    }

    fn end_line(&mut self, frames: &mut Vec<String>) {
        let line = std::mem::take(&mut self.line);
        let mut text = line.as_slice();
        if !self.started {
            self.started = true;
            text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        }
        if text.is_empty() {
            self.dispatch(frames);
        } else if text[0] == b':' {
            self.saw_field = true;
        } else {
            let (field, value) = match text.iter().position(|b| *b == b':') {
                Some(at) => (&text[..at], &text[at + 1..]),
                None => (text, &[][..]),
            };
            match field {
                b"data" => {
                    self.saw_field = true;
                    if self.has_data {
                        self.data.push(b'\n');
                    }
                    self.has_data = true;
                    self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
                }
                b"event" | b"id" | b"retry" => self.saw_field = true,
                _ => {}
            }
        }
        // Keeps the allocation for the next line.
        self.line = line;
        self.line.clear();
    }

    fn dispatch(&mut self, frames: &mut Vec<String>) {
        if !self.has_data {
            return;
        }
        self.has_data = false;
        frames.push(String::from_utf8_lossy(&self.data).into_owned());
        self.data.clear();
    }

    /// Returns the event left in the buffers when the stream ends. By the specification an event without its
    /// empty line is dropped; this method exists for servers that forget the line after their last word.
    pub fn unfinished(mut self) -> Option<String> {
        let mut frames = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut frames);
        }
        self.dispatch(&mut frames);
        frames.pop()
    }

    /// Returns whether anything resembled server-sent events.
    pub fn saw_field(&self) -> bool {
        self.saw_field
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(pieces: &[&[u8]]) -> Vec<String> {
        let mut parser = SseParser::new(10 << 20);
        let mut frames = Vec::new();
        for piece in pieces {
            parser.push(piece, &mut frames).expect("short");
        }
        frames
    }

    #[test]
    fn line_endings_may_be_mixed() {
        assert_eq!(parse(&[b"data: a\r\rdata: b\n\n"]), ["a", "b"]);
        assert_eq!(parse(&[b"data: a\r\n\r\ndata: b\r\r\n"]), ["a", "b"]);
        assert_eq!(parse(&[b"event: x\r", b"\ndata: a\r", b"\n\r", b"\n"]), ["a"]);
    }

    #[test]
    fn a_split_crlf_is_one_line_ending() {
        let text = b"data: a\r\ndata: b\r\n\r\n";
        for at in 0..text.len() {
            assert_eq!(parse(&[&text[..at], &text[at..]]), ["a\nb"], "cut at {at}");
        }
    }

    #[test]
    fn comments_and_keep_alives_are_not_frames() {
        assert_eq!(parse(&[b":\n\n:\n\n"]), [""; 0]);
        assert_eq!(parse(&[b": hi\ndata: a\n: ho\n\n"]), ["a"]);
    }

    #[test]
    fn data_lines_are_joined_and_the_byte_order_mark_is_skipped() {
        assert_eq!(parse(&[b"\xef\xbb\xbfdata: a\ndata:b\nid: 1\nretry: 5\n\n"]), ["a\nb"]);
    }

    #[test]
    fn invalid_utf8_does_not_end_the_stream() {
        assert_eq!(parse(&[b"data: a\xffb\n\n"]), ["a\u{fffd}b"]);
    }

    #[test]
    fn an_unterminated_event_is_returned_only_on_request() {
        let mut parser = SseParser::new(10 << 20);
        let mut frames = Vec::new();
        parser.push(b"data: {\"t\":1}", &mut frames).expect("short");
        assert!(frames.is_empty());
        assert_eq!(parser.unfinished().as_deref(), Some("{\"t\":1}"));
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut parser = SseParser::new(10 << 20);
        let mut frames = Vec::new();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..20).find(|_| parser.push(&piece, &mut frames) == Err(EventTooLong));
        assert_eq!(refused, Some(10));
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(
            lines in prop::collection::vec(("(data: |data:|: |event: |)[a-zäλ€🦀 ]{0,6}", 0..3_usize), 0..30),
            cuts in prop::collection::vec(1..9_usize, 1..60),
        ) {
            let parts: Vec<&str> = lines.iter().flat_map(|(line, end)| [line.as_str(), ["\n", "\r", "\r\n"][*end]]).collect();
            let text = parts.concat();
            let whole = parse(&[text.as_bytes()]);
            let mut pieces = Vec::new();
            let mut rest = text.as_bytes();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = tail;
            }
            prop_assert_eq!(parse(&pieces), whole);
        }
    }
}
