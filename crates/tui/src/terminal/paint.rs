//! Turns cells into bytes: moves, styles, texts.

use std::io::Write as _;

use ratatui::buffer::{Cell, CellDiffOption, CellWidth};
use ratatui::style::{Color, Modifier};
use ratatui::text::Line;

use crate::links::{self, Links};
use crate::wrap::clean;
use aye_core::contract::display::is_unsafe;

/// Writes cells into one buffer of bytes, and knows which style and column the terminal has.
#[derive(Debug, Default)]
pub(super) struct Painter {
    bytes: Vec<u8>,
    pen: Pen,
    /// The cursor's column, unless a full row or a character of doubtful width left it unknown.
    column: Option<u16>,
    pub(super) links: Links,
}

/// The style the terminal writes with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Pen {
    fg: Color,
    bg: Color,
    underline: Color,
    modifier: Modifier,
    link: Option<u32>,
}

/// SGR codes that switch a modifier on.
const MODIFIERS: [(Modifier, u8); 9] = [
    (Modifier::BOLD, b'1'),
    (Modifier::DIM, b'2'),
    (Modifier::ITALIC, b'3'),
    (Modifier::UNDERLINED, b'4'),
    (Modifier::SLOW_BLINK, b'5'),
    (Modifier::RAPID_BLINK, b'6'),
    (Modifier::REVERSED, b'7'),
    (Modifier::HIDDEN, b'8'),
    (Modifier::CROSSED_OUT, b'9'),
];

impl Painter {
    pub(super) fn begin(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.pen = Pen::default();
        self.column = None;
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn shrink(&mut self, most: usize) {
        if self.bytes.capacity() > most {
            self.bytes = Vec::new();
        }
    }

    /// Writes control sequences unchanged; the caller knows their effect on the column.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if bytes.first() == Some(&b'\r') {
            self.column = Some(0);
        }
    }

    pub(super) fn lost_column(&mut self) {
        self.column = None;
    }

    pub(super) fn up(&mut self, rows: u16) {
        match rows {
            0 => {}
            1 => self.bytes.extend_from_slice(b"\x1b[A"),
            _ => self.number(b"\x1b[", rows, b'A'),
        }
    }

    /// Moves the cursor from `at` to a cell of the region, `(row, column)`.
    pub(super) fn move_to(&mut self, at: &mut (u16, u16), to: (u16, u16)) {
        if to.0 < at.0 {
            self.up(at.0 - to.0);
        } else {
            // Not `CSI B`, which ends at the last row: in a terminal that got lower meanwhile the way back would lead
            // above the region.
            self.bytes.extend(std::iter::repeat_n(b'\n', usize::from(to.0 - at.0)));
        }
        self.column_to(to.1);
        *at = to;
    }

    fn column_to(&mut self, column: u16) {
        if self.column == Some(column) {
            return;
        }
        if column == 0 {
            self.bytes.push(b'\r');
        } else {
            self.number(b"\x1b[", column + 1, b'G');
        }
        self.column = Some(column);
    }

    fn number(&mut self, before: &[u8], n: u16, after: u8) {
        self.bytes.extend_from_slice(before);
        write!(self.bytes, "{n}").expect("a vector takes everything");
        self.bytes.push(after);
    }

    /// Paints a whole row from column 0 and erases what is right of it. `before`: how far the row was filled.
    pub(super) fn row(&mut self, cells: &[Cell], before: usize) {
        self.column = Some(0);
        let end = end_of(cells);
        // tmux counts cells erased after a text as part of the row, and reflows them with the row when it
        // gets narrower. A row that is erased from its start is empty.
        let is_shorter = end < before.min(cells.len());
        if is_shorter {
            self.erase_from(0, cells.len());
        }
        let mut x = 0;
        while x < end {
            x += self.cell(x, cells);
        }
        if is_shorter {
            self.style(&Cell::EMPTY);
        } else {
            self.erase_from(end, cells.len());
        }
    }

    /// Writes the cells of a row of the region that differ from what is shown. Only the row of `at` is kept
    /// up to date: a frame that wrote something ends with a cursor move.
    pub(super) fn changes(&mut self, at: &mut (u16, u16), y: u16, old: &[Cell], new: &[Cell]) {
        let (old_end, new_end) = (end_of(old), end_of(new));
        if new_end < old_end {
            self.move_to(at, (y, 0));
            self.row(new, old_end);
            return;
        }
        // Cells that a wide character covered before, or covers now, are as good as changed.
        let mut stale = 0usize;
        let mut x = 0;
        while x < new_end {
            let wide = width_of(&new[x]).max(1);
            let always = matches!(new[x].diff_option, CellDiffOption::AlwaysUpdate);
            let skip = matches!(new[x].diff_option, CellDiffOption::Skip);
            let covered = old[x..(x + wide).min(old.len())]
                .iter()
                .enumerate()
                .map(|(i, cell)| (i + width_of(cell)).saturating_sub(wide))
                .max()
                .unwrap_or(0);
            if !skip && (always || stale > 0 || old[x] != new[x]) {
                if at.0 != y {
                    self.move_to(at, (y, x as u16));
                }
                self.column_to(x as u16);
                self.cell(x, new);
                stale = covered.max(stale.saturating_sub(wide));
            } else {
                stale = stale.saturating_sub(wide);
            }
            x += wide;
        }
        self.style(&Cell::EMPTY);
    }

    fn erase_from(&mut self, column: usize, width: usize) {
        self.style(&Cell::EMPTY);
        // In a full row the cursor is still on the last cell, which an erase would remove.
        if column < width {
            self.column_to(column as u16);
            self.bytes.extend_from_slice(b"\x1b[K");
        }
    }

    /// Writes one cell and returns how many columns it takes.
    fn cell(&mut self, x: usize, cells: &[Cell]) -> usize {
        let cell = &cells[x];
        self.style(cell);
        let symbol = cell.symbol();
        let wide = width_of(cell);
        self.column_to(x as u16);
        if matches!(cell.diff_option, CellDiffOption::Skip) {
            self.bytes.push(b' ');
        } else if let [byte @ 0x20..0x7f] = symbol.as_bytes() {
            self.bytes.push(*byte);
        } else if wide == 0 || x + wide > cells.len() || is_foreign_text(symbol) {
            // Last line of defence: views clean their texts before.
            let columns = wide.clamp(1, cells.len() - x);
            self.bytes.extend(std::iter::repeat_n(b'?', columns));
            self.column = (x + columns < cells.len()).then_some((x + columns) as u16);
            return columns;
        } else {
            self.bytes.extend_from_slice(symbol.as_bytes());
            let next = x + wide;
            self.column = (is_certain(symbol) && next < cells.len()).then_some(next as u16);
            return wide;
        }
        self.column = (x + 1 < cells.len()).then_some(x as u16 + 1);
        1
    }

    /// Switches to the style of a cell with as few codes as possible.
    fn style(&mut self, cell: &Cell) {
        let (mut modifier, mut underline) = (cell.modifier, cell.underline_color);
        let link = links::take(&mut modifier, &mut underline);
        if link != self.pen.link {
            self.link(link);
        }
        let want = Pen { fg: cell.fg, bg: cell.bg, underline, modifier, link };
        if want == self.pen {
            return;
        }
        self.bytes.extend_from_slice(b"\x1b[");
        let start = self.bytes.len();
        if want == (Pen { link, ..Pen::default() }) {
            self.bytes.push(b'm');
            self.pen = want;
            return;
        }
        if !(self.pen.modifier - want.modifier).is_empty() {
            self.bytes.extend_from_slice(b"0;");
            self.pen = Pen { link, ..Pen::default() };
        }
        for (modifier, code) in MODIFIERS {
            if (want.modifier - self.pen.modifier).contains(modifier) {
                self.bytes.extend_from_slice(&[code, b';']);
            }
        }
        if want.fg != self.pen.fg {
            self.colour(want.fg, 30);
        }
        if want.bg != self.pen.bg {
            self.colour(want.bg, 40);
        }
        if want.underline != self.pen.underline {
            self.underline(want.underline);
        }
        if self.bytes.len() > start {
            self.bytes.pop();
        }
        self.bytes.push(b'm');
        self.pen = want;
    }

    /// Starts or ends linked text. The link's number joins rows that belong to the same link.
    fn link(&mut self, link: Option<u32>) {
        self.pen.link = link;
        let address = link.and_then(|number| self.links.address(number));
        match (link, address) {
            (Some(number), Some(address)) => {
                write!(self.bytes, "\x1b]8;id=aye{number};{address}\x1b\\")
                    .expect("a vector takes everything");
            }
            _ => self.bytes.extend_from_slice(b"\x1b]8;;\x1b\\"),
        }
    }

    fn colour(&mut self, colour: Color, base: u16) {
        let named = |n: u16| if n < 8 { base + n } else { base + 60 + n - 8 };
        let written = match (colour, index_of(colour)) {
            (_, Some(n)) => write!(self.bytes, "{};", named(n)),
            (Color::Indexed(n), None) => write!(self.bytes, "{};5;{n};", base + 8),
            (Color::Rgb(r, g, b), None) => write!(self.bytes, "{};2;{r};{g};{b};", base + 8),
            _ => write!(self.bytes, "{};", base + 9),
        };
        written.expect("a vector takes everything");
    }

    /// The colon form: a terminal that does not know it drops it whole instead of reading its parts.
    fn underline(&mut self, colour: Color) {
        let written = match (colour, index_of(colour)) {
            (_, Some(n)) => write!(self.bytes, "58:5:{n};"),
            (Color::Indexed(n), None) => write!(self.bytes, "58:5:{n};"),
            (Color::Rgb(r, g, b), None) => write!(self.bytes, "58:2::{r}:{g}:{b};"),
            _ => write!(self.bytes, "59;"),
        };
        written.expect("a vector takes everything");
    }
}

/// Lines as text with the codes of their styles and no other sequence, for a pager.
pub fn styled(lines: &[Line<'_>]) -> String {
    let mut painter = Painter::default();
    for line in lines {
        for span in &line.spans {
            let mut cell = Cell::EMPTY;
            cell.set_style(line.style.patch(span.style));
            painter.style(&cell);
            painter.bytes.extend_from_slice(clean(&span.content).as_bytes());
        }
        painter.style(&Cell::EMPTY);
        painter.bytes.push(b'\n');
    }
    String::from_utf8_lossy(&painter.bytes).into_owned()
}

/// The number of one of the sixteen named colours.
fn index_of(colour: Color) -> Option<u16> {
    Some(match colour {
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 8,
        Color::LightRed => 9,
        Color::LightGreen => 10,
        Color::LightYellow => 11,
        Color::LightBlue => 12,
        Color::LightMagenta => 13,
        Color::LightCyan => 14,
        Color::White => 15,
        Color::Reset | Color::Rgb(..) | Color::Indexed(_) => return None,
    })
}

/// Characters that no cell may hold.
fn is_foreign(c: char) -> bool {
    matches!(c, '\n' | '\t') || is_unsafe(c)
}

fn is_foreign_text(symbol: &str) -> bool {
    symbol.chars().any(is_foreign)
}

/// Columns a cell's text takes on the screen.
fn width_of(cell: &Cell) -> usize {
    match cell.symbol().as_bytes() {
        [_] => 1,
        _ if cell.symbol().chars().any(char::is_control) => 1,
        _ => usize::from(cell.symbol().cell_width()),
    }
}

/// Returns whether all terminals agree on the width; they do not for emoji and for joined or combined
/// characters.
fn is_certain(symbol: &str) -> bool {
    let mut chars = symbol.chars();
    let first = chars.next();
    chars.next().is_none() && first.is_some_and(|c| !matches!(c, '\u{2600}'..='\u{27bf}' | '\u{1f000}'..))
}

/// The column after the last cell that is not plain blank.
pub(super) fn end_of(cells: &[Cell]) -> usize {
    let mut x = cells.len();
    while x > 0 && is_blank(&cells[x - 1]) {
        x -= 1;
    }
    // A wide character covers the blank cell after it.
    if x > 0 { (x - 1 + width_of(&cells[x - 1]).max(1)).min(cells.len()) } else { 0 }
}

fn is_blank(cell: &Cell) -> bool {
    const VISIBLE: Modifier = Modifier::UNDERLINED.union(Modifier::REVERSED).union(Modifier::CROSSED_OUT);
    cell.bg == Color::Reset && !cell.modifier.intersects(VISIBLE) && cell.symbol() == " "
}

/// Rows that a row of cells takes when the terminal breaks it at `width`, and the column where its text ends.
pub(super) fn reflowed(cells: &[Cell], width: u16) -> (usize, usize) {
    let end = end_of(cells);
    (rows_before(&cells[..end], width) + usize::from(end == 0 || !ends_full(&cells[..end], width)), end)
}

/// Returns the number of full rows before the cursor if it is right after these cells.
pub(super) fn rows_before(cells: &[Cell], width: u16) -> usize {
    walk(cells, width).0
}

fn ends_full(cells: &[Cell], width: u16) -> bool {
    walk(cells, width).1 == 0
}

/// Full rows and the columns used in the last one.
fn walk(cells: &[Cell], width: u16) -> (usize, usize) {
    let width = usize::from(width.max(1));
    let (mut rows, mut used, mut x) = (0, 0, 0);
    while x < cells.len() {
        let wide = width_of(&cells[x]).max(1);
        if used + wide > width {
            rows += usize::from(used > 0);
            used = 0;
        }
        used += wide;
        if used >= width {
            rows += 1;
            used = 0;
        }
        x += wide;
    }
    (rows, used)
}
