//! Text files: what a file's bytes are, and how its lines end.

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

/// A file that is UTF-8, without its byte order mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextFile {
    pub(super) text: String,
    pub(super) bom: bool,
    pub(super) ending: LineEnding,
}

const BOM: &str = "\u{feff}";

impl TextFile {
    /// Reads a file's bytes; `None` when they are not UTF-8.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (bom, text) = text.strip_prefix(BOM).map_or((false, text), |rest| (true, rest));
        Some(Self { text: text.to_owned(), bom, ending: ending(text) })
    }

    /// The bytes of a file like this one with another text.
    pub(super) fn encode(&self, text: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(text.len() + 3);
        if self.bom && !text.starts_with(BOM) {
            bytes.extend_from_slice(BOM.as_bytes());
        }
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }
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
    !std::str::from_utf8(bytes).is_ok_and(|saved| saved == text || plain(saved) == plain(text))
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
        assert_eq!(file.encode("b"), b"\xef\xbb\xbfb");
        assert_eq!(TextFile::decode(b"\xff\xfe\0"), None);
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
