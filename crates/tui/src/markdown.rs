//! Markdown as styled lines, also while it still streams in.
//!
//! A [`MarkdownStream`] cuts the text into units that later text cannot change: a block once another block has
//! started, an item of a list once the next one has started, a line of a code block once it is complete. A unit is
//! laid out once per width; only the text after the last unit is laid out again for each frame. Cuts are made at ends
//! of lines only, because an unfinished line can still turn out to be something else; so the units, and with them the
//! lines, do not depend on how the text arrived.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ratatui::text::{Line, Span};

use super::highlight::{CodeBlock, Highlighter, MAX_WAITING};
use super::theme::{Role, Theme};
use super::wrap::Wrap;

mod address;
mod formula;
mod layout;
mod split;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use layout::Coding;
use split::{CodeFence, MarkdownBlock, Next};

/// Definitions of links by their label.
type Definitions = Arc<HashMap<String, String>>;

/// A message in markdown that grows, and the lines that show it.
#[derive(Debug)]
pub struct MarkdownStream {
    highlighter: Highlighter,
    /// Text that is not cut into units yet.
    tail: String,
    /// How much of the tail was searched for cuts.
    scanned: usize,
    units: VecDeque<Unit>,
    /// The list that the tail continues.
    list: Option<split::ListBlock>,
    /// The code block that the tail continues.
    fence: Option<OpenFence>,
    definitions: Definitions,
    /// Whether anything precedes the tail, so that a blank line is due.
    begun: bool,
    /// Whether a blank line precedes the tail in the source.
    blank: bool,
    finished: bool,
    /// Blocks of code say their number.
    numbered: bool,
    tail_lines: Option<Laid>,
}

/// A part that no later text can change.
#[derive(Debug)]
struct Unit {
    gap: bool,
    body: Body,
    /// The number of code blocks before it, if they are numbered.
    before: Option<usize>,
    laid: Option<Laid>,
}

#[derive(Debug)]
enum Body {
    Block {
        piece: MarkdownBlock,
        definitions: Definitions,
        code: Vec<CodeBlock>,
    },
    /// `info`: what the block is written in, with its first line.
    CodeLine {
        text: String,
        number: usize,
        block: Arc<CodeBlock>,
        info: Option<String>,
    },
}

#[derive(Debug)]
struct OpenFence {
    fence: CodeFence,
    block: Arc<CodeBlock>,
}

/// Lines and what they were laid out for.
#[derive(Debug)]
struct Laid {
    width: u16,
    theme: Theme,
    /// Length of the text, or whether the colours were there.
    mark: usize,
    lines: Vec<Line<'static>>,
}

impl Laid {
    fn fits(&self, width: u16, theme: &Theme, mark: usize) -> bool {
        self.width == width && self.mark == mark && self.theme.is_same(theme)
    }
}

impl MarkdownStream {
    pub fn new(highlighter: &Highlighter) -> MarkdownStream {
        MarkdownStream {
            highlighter: highlighter.clone(),
            tail: String::new(),
            scanned: 0,
            units: VecDeque::new(),
            list: None,
            fence: None,
            definitions: Definitions::default(),
            begun: false,
            blank: false,
            finished: false,
            numbered: false,
            tail_lines: None,
        }
    }

    /// Adds text. Cheap: layout happens when lines are requested.
    pub fn push(&mut self, text: &str) {
        debug_assert!(!self.finished, "text after the end");
        self.tail.push_str(text);
    }

    /// No more text comes.
    pub fn finish(&mut self) {
        self.finished = true;
        self.scanned = 0;
    }

    /// Whether there is nothing (left) to show.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty() && self.tail.trim().is_empty()
    }

    /// All lines that were not drained, for the live region.
    pub fn lines(&mut self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        self.advance();
        let mut lines = Vec::new();
        let mut seen = 0;
        for unit in &mut self.units {
            if !self.numbered {
                lines.extend_from_slice(unit.lines(width, theme, &self.highlighter));
                continue;
            }
            if let Body::CodeLine { info: Some(info), .. } = &unit.body {
                seen += 1;
                lines.extend(layout::code_head(info, Some(seen), width, theme, Vec::new()));
            }
            unit.before = Some(seen);
            lines.extend_from_slice(unit.lines(width, theme, &self.highlighter));
            if let Body::Block { code, .. } = &unit.body {
                seen += code.iter().filter(|block| !block.is_empty()).count();
            }
        }
        lines.extend_from_slice(self.tail_lines(width, theme));
        lines
    }

    /// Blocks of code that have text say which of the message's they are, at their head.
    #[must_use]
    pub fn with_numbers(mut self) -> MarkdownStream {
        self.numbered = true;
        self
    }

    /// Takes out the lines that no later text can change, to be printed for good. Code waits for its colours, unless
    /// too much of it waits; after [`MarkdownStream::finish`] and with colours there, this is all of the rest.
    pub fn drain_stable(&mut self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        self.advance();
        let mut drained = Vec::new();
        while let Some(unit) = self.units.front_mut() {
            if !unit.is_ready(&self.highlighter) && self.units.len() <= MAX_WAITING {
                break;
            }
            drained.extend(self.pop(width, theme));
        }
        drained
    }

    /// Takes out all the rest, plain where colours are not there yet. Finishes the message.
    pub fn drain_all(&mut self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        self.finish();
        self.advance();
        let mut drained = Vec::new();
        while !self.units.is_empty() {
            drained.extend(self.pop(width, theme));
        }
        drained
    }

    fn pop(&mut self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        let Some(mut unit) = self.units.pop_front() else {
            return Vec::new();
        };
        unit.lines(width, theme, &self.highlighter);
        if let Body::CodeLine { number, block, .. } = &unit.body {
            block.forget_before(*number + 1);
        }
        unit.laid.map(|laid| laid.lines).unwrap_or_default()
    }

    /// Cuts off all units that are complete.
    fn advance(&mut self) {
        loop {
            let complete =
                if self.finished { self.tail.len() } else { self.tail.rfind('\n').map_or(0, |i| i + 1) };
            if complete == self.scanned && !(self.finished && complete > 0) {
                return;
            }
            if self.fence.is_some() {
                if !self.code_lines(complete) {
                    self.scanned = 0;
                    return;
                }
                continue;
            }
            let text = &self.tail[..complete];
            let cut = split::split(text, self.list.clone(), &self.definitions, self.finished);
            for (piece, definitions) in cut.pieces {
                let gap = self.begun && (!piece.continues || self.blank);
                self.begun = true;
                self.blank = piece.ends_blank();
                let unit = Body::Block { piece, definitions, code: Vec::new() };
                self.units.push_back(Unit { gap, body: unit, before: None, laid: None });
            }
            self.definitions = cut.definitions;
            self.list = cut.list;
            self.tail.drain(..cut.taken);
            self.tail_lines = None;
            match cut.next {
                Next::Fence(fence, opening) => {
                    let gap = self.begun;
                    self.begun = true;
                    self.blank = false;
                    self.tail.drain(..opening);
                    let block = Arc::new(self.highlighter.block(&fence.info));
                    self.fence = Some(OpenFence { fence, block });
                    if gap {
                        let body = Body::Block {
                            piece: MarkdownBlock::empty(),
                            definitions: Arc::clone(&self.definitions),
                            code: Vec::new(),
                        };
                        self.units.push_back(Unit { gap: true, body, before: None, laid: None });
                    }
                    self.scanned = 0;
                }
                Next::Done => {
                    self.scanned = complete - cut.taken;
                    return;
                }
            }
        }
    }

    /// Takes complete lines of the open code block out of the tail. Returns whether the block ended.
    fn code_lines(&mut self, complete: usize) -> bool {
        let Some(open) = &mut self.fence else {
            return true;
        };
        let mut at = 0;
        let mut ended = false;
        let mut code = String::new();
        while at < complete {
            let line_end = self.tail[at..complete].find('\n').map_or(complete, |i| at + i + 1);
            let line = self.tail[at..line_end].trim_end_matches(['\n', '\r']);
            at = line_end;
            if open.fence.is_end(line) {
                ended = true;
                break;
            }
            let line = open.fence.content(line);
            let number = open.block.len() + code.matches('\n').count();
            code.push_str(line);
            code.push('\n');
            let info = (number == 0).then(|| open.fence.info.clone());
            let body = Body::CodeLine { text: line.to_owned(), number, block: Arc::clone(&open.block), info };
            self.units.push_back(Unit { gap: false, body, before: None, laid: None });
        }
        if !code.is_empty() {
            open.block.push(&code);
        }
        self.tail.drain(..at);
        self.tail_lines = None;
        if ended || self.finished {
            self.fence = None;
            self.scanned = usize::MAX;
        }
        ended
    }

    /// The lines of what is not cut off yet.
    fn tail_lines(&mut self, width: u16, theme: &Theme) -> &[Line<'static>] {
        let mark = self.tail.len();
        if !self.tail_lines.as_ref().is_some_and(|laid| laid.fits(width, theme, mark)) {
            let mut lines = Vec::new();
            if let Some(open) = &self.fence {
                let line = self.tail.trim_end_matches(['\n', '\r']);
                // A line that may become the closing fence is not shown as code.
                if !line.is_empty() && !open.fence.may_be_end(line) {
                    if open.block.is_empty() && !self.numbered {
                        lines.extend(layout::code_head(&open.fence.info, None, width, theme, Vec::new()));
                    }
                    lines.extend(layout::code_line(open.fence.content(line), None, width, theme, &[]));
                }
            } else if !split::may_be_fence(&self.tail) {
                let cut = split::split(&self.tail, self.list.clone(), &self.definitions, true);
                let (mut begun, mut blank) = (self.begun, self.blank);
                for (piece, definitions) in cut.pieces {
                    if begun && (!piece.continues || blank) {
                        lines.push(Line::default());
                    }
                    (begun, blank) = (true, piece.ends_blank());
                    let mut nothing = Vec::new();
                    layout::block(
                        &piece,
                        &definitions,
                        width,
                        theme,
                        Coding::default(),
                        &mut nothing,
                        &mut lines,
                    );
                }
                if let Next::Fence(fence, opening) = cut.next {
                    if begun {
                        lines.push(Line::default());
                    }
                    // A fence in the tail is at most its opening line: the next frame cuts it off.
                    for line in
                        self.tail[cut.taken + opening..].lines().filter(|line| !fence.may_be_end(line))
                    {
                        lines.extend(layout::code_line(fence.content(line), None, width, theme, &[]));
                    }
                }
            }
            self.tail_lines = Some(Laid { width, theme: theme.clone(), mark, lines });
        }
        self.tail_lines.as_ref().map_or(&[], |laid| &laid.lines)
    }
}

impl Unit {
    /// Whether its colours are known, or never will be.
    fn is_ready(&mut self, highlighter: &Highlighter) -> bool {
        match &mut self.body {
            Body::CodeLine { number, block, .. } => block.is_ready(*number),
            Body::Block { piece, definitions, code } => {
                if code.is_empty() && piece.may_have_code() {
                    // The width does not matter: this only finds the code and asks for its colours.
                    let mut lines = Vec::new();
                    layout::block(
                        piece,
                        definitions,
                        80,
                        &Theme::plain(),
                        Coding { highlighter: Some(highlighter), before: None },
                        code,
                        &mut lines,
                    );
                }
                code.iter().all(|block| block.is_ready(block.len().saturating_sub(1)))
            }
        }
    }

    fn lines(&mut self, width: u16, theme: &Theme, highlighter: &Highlighter) -> &[Line<'static>] {
        let mark = usize::from(self.is_ready(highlighter));
        if !self.laid.as_ref().is_some_and(|laid| laid.fits(width, theme, mark)) {
            let mut lines = Vec::new();
            if self.gap {
                lines.push(Line::default());
            }
            match &mut self.body {
                Body::Block { piece, definitions, code } => {
                    let coding = Coding { highlighter: Some(highlighter), before: self.before };
                    layout::block(piece, definitions, width, theme, coding, code, &mut lines);
                }
                Body::CodeLine { text, number, block, info } => {
                    if let Some(info) = info.as_ref().filter(|_| self.before.is_none()) {
                        lines.extend(layout::code_head(info, None, width, theme, Vec::new()));
                    }
                    let pieces = block.pieces(*number);
                    lines.extend(layout::code_line(text, pieces.as_deref(), width, theme, &[]));
                }
            }
            self.laid = Some(Laid { width, theme: theme.clone(), mark, lines });
        }
        self.laid.as_ref().map_or(&[], |laid| &laid.lines)
    }
}

/// Lays out a whole text at once.
pub fn render(text: &str, width: u16, theme: &Theme, highlighter: &Highlighter) -> Vec<Line<'static>> {
    let mut stream = MarkdownStream::new(highlighter);
    stream.push(text);
    stream.finish();
    stream.lines(width, theme)
}

/// Code with line breaks kept, without markdown around it: for files and commands.
pub fn code(text: &str, width: u16, theme: &Theme, block: Option<&CodeBlock>) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let pieces = block.and_then(|block| block.pieces(number));
        let spans: Vec<Span<'_>> = layout::code_spans(line, pieces.as_deref(), theme);
        Wrap::kept(width).spans_into(&spans, theme.style(Role::Text), &mut lines);
    }
    lines
}
