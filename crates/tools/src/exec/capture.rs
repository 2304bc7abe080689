//! Output of a command as the model reads it: head and tail, the rest in a file.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use aye_files::opener::PrivateFolder;

/// A file that takes more is cut: a command that never stops talking must not fill the disk.
const MAX_FILE: u64 = 64 << 20;
/// Maximum length of a line; beyond it the line is kept as it is. A progress bar is far shorter.
const MAX_LINE: usize = 64 << 10;

/// A decoder of bytes to text, however the bytes are split into pieces. Bytes that are not UTF-8 become
/// `U+FFFD`.
#[derive(Debug, Default)]
pub(super) struct OutputDecoder {
    rest: Vec<u8>,
}

impl OutputDecoder {
    /// Takes a piece and gives the text that is complete.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut String) {
        let joined;
        let mut bytes = bytes;
        if !self.rest.is_empty() {
            joined = [std::mem::take(&mut self.rest).as_slice(), bytes].concat();
            bytes = &joined;
        }
        loop {
            match std::str::from_utf8(bytes) {
                Ok(text) => return out.push_str(text),
                Err(error) => {
                    let (good, bad) = bytes.split_at(error.valid_up_to());
                    out.push_str(&String::from_utf8_lossy(good));
                    let Some(len) = error.error_len() else {
                        self.rest = bad.to_vec();
                        return;
                    };
                    out.push(char::REPLACEMENT_CHARACTER);
                    bytes = &bad[len..];
                }
            }
        }
    }

    /// Gives what an incomplete character at the end leaves.
    pub(super) fn finish(&mut self, out: &mut String) {
        if !std::mem::take(&mut self.rest).is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// The file for output that is too long.
#[derive(Clone, Debug)]
pub(crate) struct Spill {
    /// The folder; it is made when it is needed.
    pub(crate) dir: PathBuf,
    pub(crate) name: String,
}

/// Makes a private file in a private folder.
pub(crate) fn private_file(spill: &Spill) -> std::io::Result<(PathBuf, File)> {
    let file = PrivateFolder::make(&spill.dir)?.create(&spill.name)?;
    Ok((spill.dir.join(&spill.name), file))
}

/// The output that was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Captured {
    pub(super) text: String,
    /// Bytes of text in all, progress bars collapsed.
    pub(super) total: u64,
    /// Bytes that `text` leaves out.
    pub(super) omitted: u64,
    pub(super) file: Option<PathBuf>,
}

/// Keeps head and tail of a text that comes in pieces, at most `limit` bytes, and writes the whole into a file once it
/// is longer. A line that is written over again and again (`\r`) counts as what it was at the end. What is only written
/// over in part is a line of its own: nothing else says that it is out of date.
pub(super) struct Capture {
    limit: usize,
    spill: Option<Spill>,
    file: Option<(PathBuf, BufWriter<File>)>,
    written: u64,
    line: String,
    /// What the line is written over.
    below: Option<String>,
    /// The next text starts at the line's beginning.
    returned: bool,
    /// That text is in an empty line.
    erased: bool,
    /// The line's first part is kept whatever is written over it.
    continues: bool,
    head: String,
    head_full: bool,
    tail: String,
    total: u64,
}

impl Capture {
    pub(super) fn new(limit: usize, spill: Option<Spill>) -> Self {
        Self {
            limit: limit.max(64),
            spill,
            file: None,
            written: 0,
            line: String::new(),
            below: None,
            returned: false,
            erased: false,
            continues: false,
            head: String::new(),
            head_full: false,
            tail: String::new(),
            total: 0,
        }
    }

    /// For text whose first line may have started before.
    pub(super) fn continued(limit: usize) -> Self {
        Self { continues: true, ..Self::new(limit, None) }
    }

    /// Decides about what the line was written over, once the line is complete.
    fn settle(&mut self, done: &mut String) {
        if let Some(below) = self.below.take()
            && self.line.chars().count() < below.trim_end().chars().count()
        {
            done.push_str(&below);
            done.push('\n');
        }
    }

    pub(super) fn push(&mut self, text: &str) {
        let mut done = String::new();
        for part in text.split_inclusive(['\n', '\r']) {
            let (body, end) = match part.as_bytes().last() {
                Some(b'\n') => (&part[..part.len() - 1], Some('\n')),
                Some(b'\r') => (&part[..part.len() - 1], Some('\r')),
                _ => (part, None),
            };
            if !body.is_empty() {
                if std::mem::take(&mut self.returned) {
                    self.settle(&mut done);
                    let below = std::mem::take(&mut self.line);
                    if std::mem::take(&mut self.continues) {
                        done.push_str(&below);
                        done.push('\n');
                    } else if !std::mem::take(&mut self.erased) {
                        self.below = Some(below);
                    }
                }
                self.line.push_str(body);
            }
            match end {
                Some('\r') => {
                    self.erased |= self.returned;
                    self.returned = true;
                }
                Some(_) => {
                    (self.returned, self.erased, self.continues) = (false, false, false);
                    self.settle(&mut done);
                    done.push_str(&self.line);
                    done.push('\n');
                    self.line.clear();
                }
                None if self.line.len() > MAX_LINE => {
                    self.settle(&mut done);
                    done.push_str(&self.line);
                    self.line.clear();
                }
                None => {}
            }
        }
        self.keep(&done);
    }

    fn keep(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.total += text.len() as u64;
        let mut rest = text;
        if !self.head_full {
            let room = self.limit / 2 - self.head.len();
            let cut = text.floor_char_boundary(room);
            self.head_full = cut < text.len();
            self.head.push_str(&text[..cut]);
            rest = &text[cut..];
        }
        self.tail.push_str(rest);
        if self.total > self.limit as u64 {
            self.write_file(text);
        }
        let keep = self.limit - self.limit / 2;
        if self.tail.len() > keep * 2 + MAX_LINE {
            let cut = self.tail.ceil_char_boundary(self.tail.len() - keep);
            self.tail.drain(..cut);
        }
    }

    /// Writes `new`, and before the first time all that was kept so far, `new` included.
    fn write_file(&mut self, new: &str) {
        let result = if let Some((_, file)) = &mut self.file {
            if self.written >= MAX_FILE {
                return;
            }
            self.written += new.len() as u64;
            file.write_all(new.as_bytes())
        } else {
            let Some(spill) = self.spill.take() else { return };
            private_file(&spill).and_then(|(path, file)| {
                let mut file = BufWriter::new(file);
                file.write_all(self.head.as_bytes())?;
                file.write_all(self.tail.as_bytes())?;
                self.written = self.total;
                self.file = Some((path, file));
                Ok(())
            })
        };
        if let Err(error) = result {
            // A full disk costs the middle of the output, not the call.
            tracing::warn!(%error, "the whole output of a command was not written");
            self.discard_file();
        }
    }

    #[expect(clippy::disallowed_methods, reason = "no command can write in the folder for output")]
    fn discard_file(&mut self) {
        if let Some((path, file)) = self.file.take() {
            drop(file);
            let _ = std::fs::remove_file(path);
        }
    }

    pub(super) fn finish(mut self) -> Captured {
        let mut last = String::new();
        self.settle(&mut last);
        last.push_str(&self.line);
        self.keep(&last);
        let room = self.limit - self.head.len();
        if self.head.len() as u64 + self.tail.len() as u64 == self.total && self.tail.len() <= room {
            return Captured { text: self.head + &self.tail, total: self.total, omitted: 0, file: None };
        }
        if let Some((_, file)) = &mut self.file
            && file.flush().is_err()
        {
            self.discard_file();
        }
        let tail = &self.tail[self.tail.ceil_char_boundary(self.tail.len().saturating_sub(room))..];
        // Whole lines read better, when they cost little.
        let head = match self.head.rfind('\n') {
            Some(at) if self.head.len() - at < 400 => &self.head[..=at],
            _ => &self.head,
        };
        let tail = match tail.find('\n') {
            Some(at) if at < 400 => &tail[at + 1..],
            _ => tail,
        };
        let omitted = self.total - head.len() as u64 - tail.len() as u64;
        let file = self.file.map(|(path, _)| path);
        let text = format!("{head}{}{tail}", omission(head, omitted, file.as_deref()));
        Captured { text, total: self.total, omitted, file }
    }
}

/// The line between head and tail.
fn omission(head: &str, omitted: u64, file: Option<&Path>) -> String {
    let start = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
    match file {
        Some(path) => format!("{start}[… {omitted} bytes left out; Read {} for all …]\n", path.display()),
        None => format!("{start}[… {omitted} bytes left out …]\n"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn captured(limit: usize, pieces: &[&str]) -> Captured {
        let mut capture = Capture::new(limit, None);
        for piece in pieces {
            capture.push(piece);
        }
        capture.finish()
    }

    #[test]
    fn a_progress_bar_is_shown_in_its_final_state() {
        assert_eq!(captured(1000, &["1%\r2%", "\r", "100%\ndone"]).text, "100%\ndone");
        assert_eq!(captured(1000, &["a\r\nb\r", "\nc"]).text, "a\nb\nc");
        assert_eq!(captured(1000, &["99%\r"]).text, "99%");
        assert_eq!(captured(1000, &["12 of 20\r\r3 of 4\r\rok"]).text, "ok");
        assert_eq!(captured(1000, &["12 of 20\rdone    \n"]).text, "done    \n");
    }

    #[test]
    fn what_is_written_over_in_part_is_not_lost() {
        assert_eq!(captured(1000, &["a\nb", "c\rD\n"]).text, "a\nbc\nD\n");
        assert_eq!(captured(1000, &["error: broken\r", "ok\r", "1%\r100%"]).text, "error: broken\n100%");
        let read = |text| {
            let mut capture = Capture::continued(1000);
            capture.push(text);
            capture.finish().text
        };
        assert_eq!(read("c\rDefg\rDefgh\n1%\r2%\n"), "c\nDefgh\n2%\n", "after the `b` that was read before");
        assert_eq!(read("c\r\nd\r\n"), "c\nd\n");
    }

    #[test]
    fn long_output_is_complete_in_its_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let spill = Spill { dir: dir.path().join("out"), name: "x.txt".into() };
        let mut capture = Capture::new(100, Some(spill));
        let all = (0..100).fold(String::new(), |all, n| all + &format!("line {n}\n"));
        for piece in all.as_bytes().chunks(7) {
            capture.push(std::str::from_utf8(piece).expect("ascii"));
        }
        let captured = capture.finish();
        let path = captured.file.expect("it is written");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), all);
        assert!(captured.text.starts_with("line 0\n"), "{}", captured.text);
        assert!(captured.text.ends_with("line 99\n"), "{}", captured.text);
        assert!(captured.text.contains(&format!("Read {}", path.display())), "{}", captured.text);
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |p: &Path| std::fs::metadata(p).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().expect("a folder"))), (0o600, 0o700));
    }

    #[test]
    fn a_split_character_is_joined_again() {
        let mut decoder = OutputDecoder::default();
        let mut out = String::new();
        for byte in "a漢é\u{1f600}".as_bytes() {
            decoder.push(&[*byte], &mut out);
        }
        decoder.push(b"\xff\xe6\xbc", &mut out);
        decoder.finish(&mut out);
        assert_eq!(out, "a漢é\u{1f600}\u{fffd}\u{fffd}");
    }

    proptest! {
        #[test]
        fn head_tail_and_omitted_add_up(limit in 64_usize..400, pieces in prop::collection::vec("[a-zé漢\n]{0,60}", 0..30)) {
            let mut capture = Capture::new(limit, None);
            for piece in &pieces {
                capture.push(piece);
            }
            let all = pieces.concat();
            let captured = capture.finish();
            prop_assert_eq!(captured.total, all.len() as u64);
            if captured.omitted == 0 {
                prop_assert_eq!(captured.text, all);
            } else {
                let mark = format!("[… {} bytes left out …]\n", captured.omitted);
                let (head, tail) = captured.text.split_once(&mark).expect("the mark");
                // A line that was cut is ended before the mark. What was left out may start with the end of that line.
                let kept = captured.total - captured.omitted - tail.len() as u64;
                let (head, ended) = head.split_at(usize::try_from(kept).expect("short"));
                prop_assert!(all.starts_with(head) && all.ends_with(tail) && ["", "\n"].contains(&ended));
                prop_assert!(head.len() + tail.len() <= limit);
            }
        }

        #[test]
        fn chunk_boundaries_do_not_matter(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..200) {
            let cut = cut.min(bytes.len());
            let mut decoder = OutputDecoder::default();
            let mut out = String::new();
            decoder.push(&bytes[..cut], &mut out);
            decoder.push(&bytes[cut..], &mut out);
            decoder.finish(&mut out);
            prop_assert_eq!(out, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}
