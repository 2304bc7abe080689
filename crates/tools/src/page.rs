//! A page of lines from a stream of bytes, in bounded memory and time whatever the bytes are.

use std::fmt::Write as _;
use std::io::{self, BufRead};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Characters of a line that are shown.
const MAX_LINE: usize = 2000;
/// Bytes of a page.
const MAX_PAGE: usize = 100_000;
/// How long to search for lines.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Lines of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FilePage {
    /// Numbered lines.
    pub(super) text: String,
    /// The number of lines.
    pub(super) shown: usize,
    /// The number of the first line that is not there, when `ended`.
    pub(super) first_missing: usize,
    /// The end was reached.
    pub(super) ended: bool,
    /// More lines follow.
    pub(super) more: bool,
    /// Lines in all, when they were counted.
    pub(super) total: Option<usize>,
    /// A line was cut.
    pub(super) cut: bool,
    /// Some bytes are no UTF-8.
    pub(super) lossy: bool,
}

enum Line {
    End,
    /// The first bytes of a line, and how many more it has.
    Some(Vec<u8>, u64),
    OutOfTime,
}

struct Lines<'a, R> {
    reader: &'a mut R,
    deadline: Instant,
    cancel: &'a CancellationToken,
}

impl<R: BufRead> Lines<'_, R> {
    /// Takes a line and keeps at most `keep` bytes of it.
    fn next(&mut self, keep: usize) -> io::Result<Line> {
        let mut line = Vec::new();
        let mut rest = 0_u64;
        let mut any = false;
        loop {
            let buf = match self.reader.fill_buf() {
                Ok(buf) => buf,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buf.is_empty() {
                return Ok(if any { Line::Some(line, rest) } else { Line::End });
            }
            any = true;
            let end = buf.iter().position(|b| *b == b'\n');
            let body = &buf[..end.unwrap_or(buf.len())];
            let room = keep.saturating_sub(line.len()).min(body.len());
            line.extend_from_slice(&body[..room]);
            rest += (body.len() - room) as u64;
            let used = end.map_or(buf.len(), |at| at + 1);
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Line::Some(line, rest));
            }
            if self.cancel.is_cancelled() || Instant::now() > self.deadline {
                return Ok(Line::OutOfTime);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || Instant::now() > self.deadline
    }
}

/// Reads `limit` lines from line `offset` on (1 is the first). With `count`, also counts the lines after
/// them.
pub(super) fn read(
    reader: &mut impl BufRead,
    offset: usize,
    limit: usize,
    count: bool,
    cancel: &CancellationToken,
) -> io::Result<FilePage> {
    let mut lines = Lines { reader, deadline: Instant::now() + MAX_TIME, cancel };
    let mut page = FilePage::default();
    let mut number = 0;
    loop {
        let wanted = number + 1 >= offset;
        let full = page.shown >= limit || page.text.len() >= MAX_PAGE;
        if wanted && full && !count {
            page.more = !lines.reader.fill_buf()?.is_empty();
            return Ok(page);
        }
        match lines.next(if wanted && !full { MAX_LINE * 4 } else { 0 })? {
            Line::End => {
                page.ended = true;
                page.first_missing = number + 1;
                page.total = Some(number);
                page.more = page.shown > 0 && offset + page.shown <= number;
                return Ok(page);
            }
            Line::OutOfTime => {
                page.more = true;
                return Ok(page);
            }
            Line::Some(bytes, rest) => {
                number += 1;
                if wanted && !full {
                    page.push(number, &bytes, rest);
                } else if number % 4096 == 0 && lines.is_over() {
                    page.more = true;
                    return Ok(page);
                }
            }
        }
    }
}

impl FilePage {
    fn push(&mut self, number: usize, bytes: &[u8], rest: u64) {
        let bytes = if rest == 0 { bytes.strip_suffix(b"\r").unwrap_or(bytes) } else { bytes };
        let mut valid = bytes;
        if let Err(error) = std::str::from_utf8(bytes) {
            if rest > 0 && error.error_len().is_none() {
                // Only cut in the middle of a character.
                valid = &bytes[..error.valid_up_to()];
            } else {
                self.lossy = true;
            }
        }
        let rest = rest + (bytes.len() - valid.len()) as u64;
        let line = String::from_utf8_lossy(valid);
        let line = if number == 1 { line.strip_prefix('\u{feff}').unwrap_or(&line) } else { &line };
        let _ = write!(self.text, "{number}\t");
        match line.char_indices().nth(MAX_LINE) {
            Some((at, _)) => {
                let more = (line.len() - at) as u64 + rest;
                let _ = writeln!(self.text, "{} [… {more} more bytes in this line]", &line[..at]);
                self.cut = true;
            }
            None if rest > 0 => {
                let _ = writeln!(self.text, "{line} [… {rest} more bytes in this line]");
                self.cut = true;
            }
            None => {
                let _ = writeln!(self.text, "{line}");
            }
        }
        self.shown += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(bytes: &[u8], offset: usize, limit: usize) -> FilePage {
        // A small buffer, so that lines span buffers.
        let mut reader = io::BufReader::with_capacity(7, bytes);
        read(&mut reader, offset, limit, true, &CancellationToken::new()).expect("no error in memory")
    }

    #[test]
    fn lines_are_numbered_and_paged() {
        let bytes = b"one\ntwo\r\nthree\nfour";
        let all = page(bytes, 1, 10);
        assert_eq!(all.text, "1\tone\n2\ttwo\n3\tthree\n4\tfour\n");
        assert!(!all.more && all.total == Some(4));
        let some = page(bytes, 2, 2);
        assert_eq!(some.text, "2\ttwo\n3\tthree\n");
        assert!(some.more && some.total == Some(4));
        let past = page(bytes, 9, 2);
        assert_eq!((past.shown, past.first_missing, past.ended, past.more), (0, 5, true, false));
        let empty = page(b"", 1, 2);
        assert_eq!((empty.shown, empty.first_missing, empty.ended), (0, 1, true));
    }

    #[test]
    fn a_long_line_is_truncated_between_characters() {
        let page = page(&"漢".repeat(5000).into_bytes(), 1, 10);
        assert!(page.cut && !page.lossy);
        assert!(page.text.ends_with("漢 [… 9000 more bytes in this line]\n"), "{}", page.text.len());
    }

    #[test]
    fn a_page_is_bounded() {
        let page = page(&"x".repeat(1000).replace('x', "0123456789\n").repeat(50).into_bytes(), 1, 1_000_000);
        assert!(page.more && page.text.len() < MAX_PAGE + 100, "{}", page.text.len());
        assert_eq!(page.total, Some(50_000));
    }

    #[test]
    fn invalid_utf8_is_marked() {
        let page = page(b"a\xffb\n", 1, 10);
        assert!(page.lossy);
        assert_eq!(page.text, "1\ta\u{fffd}b\n");
    }
}
