//! A realistic terminal: it keeps a scrollback, and reflows long rows when its width changes.
#![allow(unreachable_pub, reason = "crates include it for their own tests")]

use alacritty_terminal::event::VoidListener;
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::Flags;
use alacritty_terminal::term::{Config, Term};
use alacritty_terminal::vte::ansi::Processor;

/// Columns and rows.
struct Size(usize, usize);

impl Dimensions for Size {
    fn total_lines(&self) -> usize {
        self.1
    }

    fn screen_lines(&self) -> usize {
        self.1
    }

    fn columns(&self) -> usize {
        self.0
    }
}

/// The terminal.
pub struct Emulator {
    term: Term<VoidListener>,
    parser: Processor,
}

impl Emulator {
    /// An empty one of that size.
    pub fn new(columns: u16, rows: u16) -> Emulator {
        let config = Config { scrolling_history: 100_000, ..Config::default() };
        let size = Size(columns.into(), rows.into());
        Emulator { term: Term::new(config, &size, VoidListener), parser: Processor::new() }
    }

    /// Processes the output of a program.
    pub fn process(&mut self, bytes: &[u8]) {
        self.parser.advance(&mut self.term, bytes);
    }

    /// Resizes the window. One column becomes two: alacritty's terminal never finishes breaking a row with a
    /// wide character into single columns.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.term.resize(Size(columns.max(2).into(), rows.into()));
    }

    /// All lines, oldest first; rows broken only by the terminal are joined.
    pub fn lines(&self) -> Vec<String> {
        self.lines_from(-(self.term.grid().history_size() as i32))
    }

    /// The lines of the screen alone.
    pub fn screen(&self) -> Vec<String> {
        self.lines_from(0)
    }

    fn lines_from(&self, first: i32) -> Vec<String> {
        let grid = self.term.grid();
        let (columns, rows) = (grid.columns(), grid.screen_lines() as i32);
        let mut lines = Vec::new();
        let mut line = String::new();
        for y in first..rows {
            let row = &grid[Line(y)];
            for x in 0..columns {
                let cell = &row[Column(x)];
                if cell.flags.intersects(Flags::WIDE_CHAR_SPACER | Flags::LEADING_WIDE_CHAR_SPACER) {
                    continue;
                }
                line.push(cell.c);
                line.extend(cell.zerowidth().unwrap_or_default());
            }
            if !row[Column(columns - 1)].flags.contains(Flags::WRAPLINE) {
                lines.push(line.trim_end().to_owned());
                line.clear();
            }
        }
        if !line.is_empty() {
            lines.push(line.trim_end().to_owned());
        }
        lines
    }

    /// The row and column of the cursor on the screen.
    pub fn cursor(&self) -> (i32, usize) {
        let at = self.term.grid().cursor.point;
        (at.line.0, at.column.0)
    }
}
