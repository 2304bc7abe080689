//! Images as pixels: what a terminal is queried for, and terminals that place images by characters (the graphics
//! protocol of kitty with its Unicode placeholders).
//!
//! An image is sent once under a number. Ordinary cells represent it in the text: combining marks on a cell's
//! character select the part, its colour selects the image. So it scrolls, wraps and is erased like text. For
//! terminals that draw images at their cursor the same cells mark the position; they are not sent.

use std::fmt::Write as _;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use aye_core::contract::display::PLACEHOLDER;
use aye_core::contract::image::{Drawn, ImageRef, Packed};

/// The marks on a placeholder for its row or column: the first for 0, and so on.
const MARKS: [char; 120] = [
    '\u{305}', '\u{30d}', '\u{30e}', '\u{310}', '\u{312}', '\u{33d}', '\u{33e}', '\u{33f}', '\u{346}',
    '\u{34a}', '\u{34b}', '\u{34c}', '\u{350}', '\u{351}', '\u{352}', '\u{357}', '\u{35b}', '\u{363}',
    '\u{364}', '\u{365}', '\u{366}', '\u{367}', '\u{368}', '\u{369}', '\u{36a}', '\u{36b}', '\u{36c}',
    '\u{36d}', '\u{36e}', '\u{36f}', '\u{483}', '\u{484}', '\u{485}', '\u{486}', '\u{487}', '\u{592}',
    '\u{593}', '\u{594}', '\u{595}', '\u{597}', '\u{598}', '\u{599}', '\u{59c}', '\u{59d}', '\u{59e}',
    '\u{59f}', '\u{5a0}', '\u{5a1}', '\u{5a8}', '\u{5a9}', '\u{5ab}', '\u{5ac}', '\u{5af}', '\u{5c4}',
    '\u{610}', '\u{611}', '\u{612}', '\u{613}', '\u{614}', '\u{615}', '\u{616}', '\u{617}', '\u{657}',
    '\u{658}', '\u{659}', '\u{65a}', '\u{65b}', '\u{65d}', '\u{65e}', '\u{6d6}', '\u{6d7}', '\u{6d8}',
    '\u{6d9}', '\u{6da}', '\u{6db}', '\u{6dc}', '\u{6df}', '\u{6e0}', '\u{6e1}', '\u{6e2}', '\u{6e4}',
    '\u{6e7}', '\u{6e8}', '\u{6eb}', '\u{6ec}', '\u{730}', '\u{732}', '\u{733}', '\u{735}', '\u{736}',
    '\u{73a}', '\u{73d}', '\u{73f}', '\u{740}', '\u{741}', '\u{743}', '\u{745}', '\u{747}', '\u{749}',
    '\u{74a}', '\u{7eb}', '\u{7ec}', '\u{7ed}', '\u{7ee}', '\u{7ef}', '\u{7f0}', '\u{7f1}', '\u{7f3}',
    '\u{816}', '\u{817}', '\u{818}', '\u{819}', '\u{81b}', '\u{81c}', '\u{81d}', '\u{81e}', '\u{81f}',
    '\u{820}', '\u{821}', '\u{822}',
];
/// Maximum bytes of base64 in one sequence.
const CHUNK: usize = 4096;
/// Assumed size of a cell in pixels: an image that is smaller than its room stays small.
const CELL: (u32, u32) = (10, 20);

/// A query to a terminal. A terminal that does not know a query does not answer; all know the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalQuery {
    /// Its name.
    Name,
    /// The size of a cell in pixels.
    Cell,
    /// The number of colours for sixels.
    Colours,
    /// Its attributes, in the form of early terminals.
    Attributes,
}

impl TerminalQuery {
    /// Returns the sequence of the query.
    pub fn bytes(self) -> &'static [u8] {
        match self {
            TerminalQuery::Name => b"\x1b[>q",
            TerminalQuery::Cell => b"\x1b[16t",
            TerminalQuery::Colours => b"\x1b[?1;1;0S",
            TerminalQuery::Attributes => b"\x1b[c",
        }
    }
}

/// An answer of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalReply {
    /// The kind of terminal.
    Name(TerminalKind),
    /// Columns and rows of pixels of a cell.
    Cell(u16, u16),
    /// Colours for sixels.
    Colours(u16),
    /// The terminal's attributes.
    Attributes {
        /// It draws sixels.
        sixel: bool,
        /// The size of a cell by what the system knows of the terminal.
        cell: Option<(u16, u16)>,
    },
}

/// Terminals, by what they do with pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalKind {
    /// It places pictures by characters.
    Places,
    /// It draws files in sequences of iTerm2.
    Files,
    /// Another one, which may draw sixels.
    Other,
}

impl TerminalKind {
    /// The one of that name (`kitty(0.41.1)`, `ghostty 1.1.3`, `WezTerm 20240203-110809-5046fc22`).
    pub fn of(name: &str) -> TerminalKind {
        let word = name.split(' ').next().unwrap_or_default();
        if places_pictures(name) {
            TerminalKind::Places
        } else if ["iTerm2", "WezTerm", "mintty"].contains(&word) {
            TerminalKind::Files
        } else {
            TerminalKind::Other
        }
    }
}

/// Whether a terminal of that name places images by characters.
fn places_pictures(name: &str) -> bool {
    if let Some(version) = name.strip_prefix("kitty(") {
        let mut parts = version.trim_end_matches(')').split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        return (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (0, 28);
    }
    name == "ghostty" || name.starts_with("ghostty ")
}

/// The size at which an image is placed; all of it follows from the number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImagePlacement {
    /// The number that the terminal knows it by.
    pub id: u32,
    /// Columns of cells.
    pub columns: u16,
    /// Rows of cells.
    pub rows: u16,
}

impl ImagePlacement {
    /// Returns the placement of an image in at most this many columns and rows.
    pub fn within(image: &ImageRef, (columns, rows): (u16, u16)) -> Option<ImagePlacement> {
        let natural = u16::try_from(image.width.div_ceil(CELL.0)).unwrap_or(u16::MAX);
        let most = columns.min(natural).min(MARKS.len() as u16);
        (1..=most)
            .rev()
            .map(|columns| ImagePlacement::on(image, columns))
            .find(|place| place.rows <= rows)
            .or_else(|| {
                let narrow = ImagePlacement::on(image, 1);
                (most > 0 && rows > 0).then_some(ImagePlacement { rows: narrow.rows.min(rows), ..narrow })
            })
    }

    /// Returns the placement of an image on a number of columns, in its proportions: a cell is twice as high
    /// as it is wide.
    fn on(image: &ImageRef, columns: u16) -> ImagePlacement {
        let (wide, high) = (u64::from(image.width.max(1)), u64::from(image.height));
        let rows = (u64::from(columns) * high + wide) / (2 * wide);
        let rows = u16::try_from(rows.clamp(1, MARKS.len() as u64)).unwrap_or(1);
        ImagePlacement { id: number(&image.hash, columns), columns, rows }
    }

    /// The place with that number, when it is one of this picture.
    pub fn of(image: &ImageRef, id: u32) -> Option<ImagePlacement> {
        (1..=MARKS.len() as u16).find(|n| number(&image.hash, *n) == id).map(|n| ImagePlacement::on(image, n))
    }

    /// The place of one that is drawn.
    pub fn of_cursor_image(image: &ImageRef, drawn: &Drawn) -> ImagePlacement {
        ImagePlacement { id: number(&image.hash, drawn.columns), columns: drawn.columns, rows: drawn.rows }
    }

    /// Returns the text that represents the image, row by row.
    pub fn lines(self, indent: u16) -> Vec<Line<'static>> {
        let [_, red, green, blue] = self.id.to_be_bytes();
        let style = Style::new().fg(Color::Rgb(red, green, blue));
        let row = |row: &char| {
            let mut text = String::with_capacity(usize::from(self.columns) * 8);
            for column in MARKS.iter().take(usize::from(self.columns)) {
                text.extend([PLACEHOLDER, *row, *column]);
            }
            Line::from(vec![Span::raw(" ".repeat(usize::from(indent))), Span::styled(text, style)])
        };
        MARKS.iter().take(usize::from(self.rows)).map(row).collect()
    }

    /// Returns the sequence that sends the image and creates its placement. The terminal sends no answer, and
    /// shows nothing yet.
    pub fn bytes(self, packed: &Packed) -> Vec<u8> {
        let text = STANDARD.encode(&packed.zlib);
        let mut out = Vec::with_capacity(text.len() + text.len() / 256 + 128);
        let mut head = String::new();
        let format = if packed.has_alpha { 32 } else { 24 };
        let ImagePlacement { id, columns, rows } = self;
        let (width, height) = (packed.width, packed.height);
        let _ = write!(head, "a=T,U=1,q=2,f={format},o=z,s={width},v={height},i={id},c={columns},r={rows},");
        let mut chunks = text.as_bytes().chunks(CHUNK).peekable();
        while let Some(chunk) = chunks.next() {
            let more = u8::from(chunks.peek().is_some());
            let _ = write!(out, "\x1b_G{head}m={more};");
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\x1b\\");
            // kitty wants it in each.
            "q=2,".clone_into(&mut head);
        }
        out
    }
}

/// Returns the number of an image on a number of columns: the same in each run, so that the scrollback stays
/// valid when the image is sent again. The number fits into a colour.
fn number(hash: &str, columns: u16) -> u32 {
    let bytes = hash.bytes().chain(columns.to_be_bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    ((hash >> 24) ^ (hash & 0x00ff_ffff)).max(1)
}

/// Returns the number of the image that the text represents.
fn id_of(span: &Span<'_>) -> Option<u32> {
    match span.style.fg {
        Some(Color::Rgb(red, green, blue)) if span.content.starts_with(PLACEHOLDER) => {
            Some(u32::from_be_bytes([0, red, green, blue]))
        }
        _ => None,
    }
}

/// Returns the numbers of the images in lines.
pub fn ids<'a>(lines: &'a [Line<'static>]) -> impl Iterator<Item = u32> + 'a {
    lines.iter().flat_map(|line| &line.spans).filter_map(id_of)
}

/// Whether text is exactly a row of an image as created by [`ImagePlacement::lines`].
pub fn is_row(text: &str) -> bool {
    text.starts_with(PLACEHOLDER) && text.chars().all(|c| c == PLACEHOLDER || MARKS.binary_search(&c).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(width: u16, height: u16) -> ImageRef {
        let [w, h] = [width.to_le_bytes(), height.to_le_bytes()];
        ImageRef::of("a.gif", &[b"GIF89a".as_slice(), &w, &h].concat()).unwrap()
    }

    #[test]
    fn terminals_are_known_by_name_and_version() {
        for (name, want) in [
            ("kitty(0.41.1)", TerminalKind::Places),
            ("kitty(0.28.0)", TerminalKind::Places),
            ("kitty(1.0)", TerminalKind::Places),
            ("kitty(0.26.5)", TerminalKind::Other),
            ("ghostty 1.1.3", TerminalKind::Places),
            ("ghostty", TerminalKind::Places),
            ("ghostty-like 9", TerminalKind::Other),
            ("WezTerm 20240203-110809-5046fc22", TerminalKind::Files),
            ("iTerm2 3.5.10", TerminalKind::Files),
            ("mintty 3.6.1", TerminalKind::Files),
            ("Konsole 23.08.1", TerminalKind::Other),
            ("XTerm(388)", TerminalKind::Other),
            ("tmux 3.5a", TerminalKind::Other),
            ("", TerminalKind::Other),
        ] {
            assert_eq!(TerminalKind::of(name), want, "{name}");
        }
    }

    #[test]
    fn a_place_keeps_the_shape_and_is_never_larger_than_the_picture() {
        let of =
            |w, h, most| ImagePlacement::within(&image(w, h), most).map(|place| (place.columns, place.rows));
        assert_eq!(of(640, 480, (48, 12)), Some((33, 12)));
        assert_eq!(of(640, 480, (20, 12)), Some((20, 8)));
        assert_eq!(of(640, 480, (120, 40)), Some((64, 24)));
        assert_eq!(of(16, 16, (48, 12)), Some((2, 1)));
        assert_eq!(of(8000, 10, (48, 12)), Some((48, 1)));
        assert_eq!(of(10, 8000, (48, 12)), Some((1, 12)));
        assert_eq!(of(640, 480, (0, 12)), None);
        let place = ImagePlacement::within(&image(640, 480), (48, 12)).unwrap();
        assert_eq!(ImagePlacement::of(&image(640, 480), place.id), Some(place));
        assert!((1..1 << 24).contains(&place.id));
        let other = ImagePlacement::within(&image(640, 480), (20, 12)).unwrap();
        assert_ne!(place.id, other.id);
    }

    #[test]
    fn each_cell_says_its_row_and_column() {
        assert!(MARKS.is_sorted());
        let place = ImagePlacement { id: 0x01_02_03, columns: 3, rows: 2 };
        let lines = place.lines(2);
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(text[1], "  \u{10eeee}\u{30d}\u{305}\u{10eeee}\u{30d}\u{30d}\u{10eeee}\u{30d}\u{30e}");
        assert_eq!((lines.len(), lines[0].width()), (2, 5));
        assert_eq!(lines[0].spans[1].style.fg, Some(Color::Rgb(1, 2, 3)));
        assert_eq!(ids(&lines).collect::<Vec<_>>(), [0x01_02_03; 2]);
        assert!(is_row(&lines[0].spans[1].content));
        assert!(!is_row("\u{10eeee}a") && !is_row("a") && !is_row(""));
        let theirs = aye_core::contract::display::visible(&lines[0].spans[1].content).into_owned();
        assert!(!theirs.contains(PLACEHOLDER), "what others say stands for no picture: {theirs:?}");
    }

    #[test]
    fn a_picture_goes_in_pieces_of_base64() {
        let packed = Packed { width: 70, height: 50, has_alpha: false, zlib: vec![7; 4000] };
        let bytes = ImagePlacement { id: 9, columns: 7, rows: 3 }.bytes(&packed);
        let text = String::from_utf8(bytes).unwrap();
        let pieces: Vec<&str> = text.split_terminator("\u{1b}\\").collect();
        assert_eq!(pieces.len(), 2);
        let (head, first) = pieces[0].split_once(';').unwrap();
        assert_eq!(head, "\u{1b}_Ga=T,U=1,q=2,f=24,o=z,s=70,v=50,i=9,c=7,r=3,m=1");
        assert_eq!(first.len(), CHUNK);
        let last = pieces[1].strip_prefix("\u{1b}_Gq=2,m=0;").unwrap();
        assert_eq!(STANDARD.decode(format!("{first}{last}")).unwrap(), packed.zlib);
        let small = Packed { has_alpha: true, zlib: vec![1, 2, 3], ..packed };
        let text = String::from_utf8(ImagePlacement { id: 9, columns: 7, rows: 3 }.bytes(&small)).unwrap();
        assert_eq!(text, "\u{1b}_Ga=T,U=1,q=2,f=32,o=z,s=70,v=50,i=9,c=7,r=3,m=0;AQID\u{1b}\\");
    }
}
