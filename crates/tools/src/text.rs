//! Text files: what a file's bytes are, and how its lines end.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8};

/// The line endings of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnding {
    /// `\n`, or no line end at all.
    Lf,
    /// `\r\n` everywhere.
    Crlf,
    /// Both.
    Mixed,
}

/// A text file, without its byte order mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextFile {
    pub(super) text: String,
    pub(super) encoding: &'static Encoding,
    pub(super) bom: bool,
    pub(super) ending: LineEnding,
}

/// Why the bytes of a file are no text that can be changed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotText {
    #[error("it is {0}")]
    Binary(&'static str),
    #[error("line {0} has bytes that are not UTF-8, unlike the rest of it")]
    Damaged(usize),
    #[error("its encoding is unknown")]
    Unknown,
}

const BOM: &str = "\u{feff}";

impl TextFile {
    /// Reads a file's bytes: UTF-8, or an older encoding that gives the same bytes again.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, NotText> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            let (bom, text) = text.strip_prefix(BOM).map_or((false, text), |rest| (true, rest));
            return Ok(Self { text: text.to_owned(), encoding: UTF_8, bom, ending: ending(text) });
        }
        let encoding = guess(bytes)?;
        let text = decoded(bytes, encoding).ok_or(NotText::Unknown)?;
        let ending = ending(&text);
        let file = Self { text, encoding, bom: false, ending };
        if file.encode(&file.text).is_ok_and(|again| again == bytes) {
            Ok(file)
        } else {
            Err(NotText::Unknown)
        }
    }

    /// The bytes of a file like this one with another text, or the first character that its encoding does not have.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u8>, char> {
        if self.encoding != UTF_8 {
            let (bytes, _, has_others) = self.encoding.encode(text);
            let is_other = |c: &char| self.encoding.encode(c.encode_utf8(&mut [0; 4])).2;
            return match text.chars().find(|c| has_others && is_other(c)) {
                Some(c) => Err(c),
                None => Ok(bytes.into_owned()),
            };
        }
        let mut bytes = Vec::with_capacity(text.len() + 3);
        if self.bom && !text.starts_with(BOM) {
            bytes.extend_from_slice(BOM.as_bytes());
        }
        bytes.extend_from_slice(text.as_bytes());
        Ok(bytes)
    }

    /// The encoding's name, unless it is UTF-8.
    pub(super) fn other_encoding(&self) -> Option<&'static str> {
        (self.encoding != UTF_8).then(|| self.encoding.name())
    }
}

/// Bytes in this encoding, if all of them are.
pub(super) fn decoded(bytes: &[u8], encoding: &'static Encoding) -> Option<String> {
    let text = encoding.decode_without_bom_handling_and_without_replacement(bytes);
    text.map(std::borrow::Cow::into_owned)
}

/// Guesses the encoding of bytes that are not UTF-8.
fn guess(bytes: &[u8]) -> Result<&'static Encoding, NotText> {
    if let Some(kind) = binary_kind(&bytes[..bytes.len().min(8192)]) {
        return Err(NotText::Binary(kind));
    }
    // Text has line ends, tabs and form feeds, and perhaps escape sequences.
    if bytes.iter().any(|byte| matches!(byte, 0..=8 | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f)) {
        return Err(NotText::Binary("binary data"));
    }
    let (mut good, mut bad, mut lines, mut first_bad) = (0, 0, 1, None);
    for chunk in bytes.utf8_chunks() {
        good += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        lines += chunk.valid().matches('\n').count();
        if !chunk.invalid().is_empty() {
            bad += 1;
            first_bad.get_or_insert(lines);
        }
    }
    // Text in an older encoding looks like UTF-8 in single places at most.
    if good > bad {
        return Err(NotText::Damaged(first_bad.unwrap_or(lines)));
    }
    Ok(likely_encoding(bytes))
}

/// The most likely one of the encodings that are older than UTF-8.
pub(super) fn likely_encoding(bytes: &[u8]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(bytes, true);
    detector.guess(None, Utf8Detection::Deny)
}

pub(super) fn ending(text: &str) -> LineEnding {
    let (lines, crlf) = (text.matches('\n').count(), text.matches("\r\n").count());
    match (lines, crlf) {
        (_, 0) => LineEnding::Lf,
        (lines, crlf) if lines == crlf => LineEnding::Crlf,
        _ => LineEnding::Mixed,
    }
}

/// The text with `\r\n` at each line's end.
pub(super) fn to_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// Returns the kind of a file that is not text, by its first bytes; `None` for what may be text.
pub(super) fn binary_kind(head: &[u8]) -> Option<&'static str> {
    const MAGIC: &[(&[u8], &str)] = &[
        (b"%PDF-", "a PDF document; `pdftotext FILE -` in Bash shows its text"),
        (b"\x7fELF", "an ELF program or library"),
        (b"MZ", "a Windows program"),
        (b"\xca\xfe\xba\xbe", "a Java class or a Mach-O program"),
        (b"\xcf\xfa\xed\xfe", "a Mach-O program"),
        (b"\0asm", "a WebAssembly module"),
        (b"PK\x03\x04", "a ZIP archive (or an office document, a JAR, a wheel)"),
        (b"PK\x05\x06", "an empty ZIP archive"),
        (b"\x1f\x8b", "gzip-compressed data"),
        (b"BZh", "bzip2-compressed data"),
        (b"\xfd7zXZ\0", "xz-compressed data"),
        (b"\x28\xb5\x2f\xfd", "zstd-compressed data"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"Rar!\x1a\x07", "a RAR archive"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"OggS", "an Ogg file"),
        (b"ID3", "an MP3 file"),
        (b"fLaC", "a FLAC file"),
        (b"\x1aE\xdf\xa3", "a Matroska or WebM video"),
        (b"\0\0\x01\0", "a Windows icon"),
        (b"BM", "a BMP image"),
        (b"II*\0", "a TIFF image"),
        (b"MM\0*", "a TIFF image"),
        (b"wOFF", "a web font"),
        (b"wOF2", "a web font"),
        (b"\0\x01\0\0", "a TrueType font"),
        (b"\xff\xfe", "UTF-16 text or binary data; `iconv -f UTF-16 -t UTF-8 FILE` in Bash shows text"),
        (b"\xfe\xff", "UTF-16 text or binary data; `iconv -f UTF-16 -t UTF-8 FILE` in Bash shows text"),
    ];
    if !head.contains(&0) && !head.iter().any(|b| *b >= 0x80) && !head.starts_with(b"%PDF-") {
        // `BM` and `MZ` also start ordinary words.
        return None;
    }
    if head.get(4..8) == Some(b"ftyp") {
        return Some("an MP4 or HEIF file");
    }
    if head.get(257..262) == Some(b"ustar") {
        return Some("a tar archive");
    }
    if let Some((_, kind)) = MAGIC.iter().find(|(magic, _)| {
        // Two letters alone prove little: text in another encoding may start with them as well.
        head.starts_with(magic)
            && (magic.len() > 2 || magic[0] >= 0x80 || magic[0] < 0x20 || head.contains(&0))
    }) {
        return Some(kind);
    }
    head.contains(&0).then_some("binary data")
}

/// Whether the text that an editor has of a file differs from the file. Editors may keep line ends and the byte order
/// mark elsewhere.
pub(super) fn is_unsaved(text: &str, bytes: &[u8]) -> bool {
    let plain = |text: &str| text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    if std::str::from_utf8(bytes) == Ok(text) {
        return false;
    }
    !TextFile::decode(bytes).is_ok_and(|saved| plain(&saved.text) == plain(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_endings_are_distinguished() {
        assert_eq!(ending("a\nb"), LineEnding::Lf);
        assert_eq!(ending("a"), LineEnding::Lf);
        assert_eq!(ending("a\r\nb\r\n"), LineEnding::Crlf);
        assert_eq!(ending("a\r\nb\n"), LineEnding::Mixed);
        assert_eq!(to_crlf("a\nb\r\nc"), "a\r\nb\r\nc");
    }

    #[test]
    fn a_byte_order_mark_is_kept_and_not_shown() {
        let file = TextFile::decode(b"\xef\xbb\xbfa\r\n").expect("text");
        assert_eq!((file.text.as_str(), file.bom, file.ending), ("a\r\n", true, LineEnding::Crlf));
        assert_eq!(file.encode("b").expect("UTF-8"), b"\xef\xbb\xbfb");
    }

    #[test]
    fn older_encodings_are_read_and_written() {
        for (bytes, encoding, text) in [
            (
                &b"Gr\xfc\xdfe aus M\xfcnchen, caf\xe9 \x80 5\r\n"[..],
                "windows-1252",
                "Grüße aus München, café € 5\r\n",
            ),
            (
                b"\xcf\xf0\xe8\xe2\xe5\xf2, \xea\xe0\xea \xe4\xe5\xeb\xe0?\n",
                "windows-1251",
                "Привет, как дела?\n",
            ),
            (b"\x93\xfa\x96{\x8c\xea\x82\xcc\x83e\x83L\x83X\x83g\n", "Shift_JIS", "日本語のテキスト\n"),
        ] {
            let file = TextFile::decode(bytes).expect("text");
            assert_eq!((file.other_encoding(), file.text.as_str()), (Some(encoding), text));
            assert_eq!(file.encode(text).expect("its own text"), bytes);
            assert_eq!(
                file.encode(&format!("a{text}→🦀")),
                Err(if encoding == "Shift_JIS" { '🦀' } else { '→' })
            );
        }
        for (bytes, why) in [
            (&b"\xff\xfea\0"[..], NotText::Binary(binary_kind(b"\xff\xfe").expect("a kind"))),
            (b"caf\xe9\0", NotText::Binary("binary data")),
            (b"caf\xe9\x01", NotText::Binary("binary data")),
            (b"\xc3\xa9\n\xc3\xa8\xc3\xa0\n\xe9\n", NotText::Damaged(3)),
        ] {
            assert_eq!(TextFile::decode(bytes), Err(why), "{bytes:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_read_is_written_again(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60)) {
            if let Ok(file) = TextFile::decode(&bytes) {
                proptest::prop_assert_eq!(file.encode(&file.text), Ok(bytes));
            }
        }
    }

    #[test]
    fn binary_formats_have_a_name() {
        for (head, word) in [
            (&b"%PDF-1.7"[..], "PDF"),
            (b"\x7fELF\x02\x01\x01\0", "ELF"),
            (b"MZ\x90\0", "Windows program"),
            (b"\xff\xfe\0", "UTF-16"),
            (b"ab\0c", "binary data"),
            (b"\0\0\0\x18ftypmp42", "MP4"),
        ] {
            assert!(binary_kind(head).is_some_and(|k| k.contains(word)), "{head:?}");
        }
        for text in ["BM is a word", "MZ", "héllo", "BMé", "漢字", ""] {
            assert_eq!(binary_kind(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn an_editor_may_normalise_line_endings_and_the_byte_order_mark() {
        for (text, bytes) in
            [("a\nb\n", "a\nb\n"), ("a\nb\n", "a\r\nb\r\n"), ("a", "\u{feff}a"), ("\u{feff}a\r\n", "a\n")]
        {
            assert!(!is_unsaved(text, bytes.as_bytes()), "{text:?} {bytes:?}");
        }
        for (text, bytes) in [("a\n", &b"a"[..]), ("", b"a"), ("a", b"b"), ("\u{fffd}", b"\xff")] {
            assert!(is_unsaved(text, bytes), "{text:?} {bytes:?}");
        }
    }
}
