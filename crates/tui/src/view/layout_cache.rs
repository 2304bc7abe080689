//! Caches entries as lines for a conversation shown at any position: laid out where they are shown, kept for a while.
//!
//! Lines that the inline terminal prints for good go through [`super::scrollback`]; here an entry may be redrawn at any
//! time.

use std::collections::HashMap;

use ratatui::text::{Line, Span};

use super::super::app::App;
use super::super::diff::DiffLayout;
use super::super::host::HostInfo;
use super::super::image_cache::ImageCache;
use super::super::markdown::MarkdownStream;
use super::super::theme::Role;
use super::super::transcript::{Entry, EntryKind, Moment, Transcript};
use super::super::viewer::DocEntry;
use super::RenderStyle;
use super::card::CardColours;
use super::document;
use super::entry::{self, Colours, EntryLayout};
use super::scrollback;
use super::text::{self, indented};

/// The number of entries whose layout is cached.
const KEPT: usize = 256;

/// The context that entries are laid out for.
#[derive(Clone, Copy, Debug)]
pub struct LayoutContext<'a> {
    /// Columns.
    pub width: u16,
    /// The host info used to shorten paths.
    pub info: &'a HostInfo,
    /// The time, for what runs.
    pub now: Moment,
    /// Nothing is left out, as the viewer has it; else as the inline terminal prints it.
    pub whole: bool,
    /// Pictures that are here.
    pub image_cache: &'a ImageCache,
    /// The number of the conversation: entry ids start over in each.
    pub epoch: u32,
    /// The layout of changes.
    pub layout: DiffLayout,
}

/// The parts reused from an earlier layout of an entry: its text with the length taken in so far, and its
/// colours.
type Known = (Option<(MarkdownStream, usize)>, Option<Colours>);

/// The version of an entry, the width, whether all of it is shown, whether it is folded, how its pictures are shown, how
/// changes are laid out, and whether a blank line precedes it.
type Key = (u32, u16, bool, bool, usize, DiffLayout, bool);

fn key_of(entry: &Entry, folded: bool, gap: bool, layout_context: &LayoutContext<'_>) -> Key {
    let pictures = layout_context.image_cache.ready(entry.images());
    let LayoutContext { width, whole, layout, .. } = *layout_context;
    (entry.version, width, whole, folded, pictures, layout, gap)
}

#[derive(Debug)]
struct Sheet {
    key: Key,
    turn: u64,
    lines: Vec<Line<'static>>,
    /// An answer, which may grow until it is done, and how much of its text was taken in.
    words: Option<(MarkdownStream, usize)>,
    is_done: bool,
    /// Of a change, and whether they were there when it was laid out.
    colours: Option<Colours>,
    is_coloured: bool,
}

/// Entries that were laid out lately.
#[derive(Debug)]
pub struct Sheets {
    render_style: RenderStyle,
    kept: HashMap<u64, Sheet>,
    turn: u64,
    epoch: u32,
    card: CardColours,
}

impl Sheets {
    /// None yet; they will have these colours.
    pub fn new(render_style: RenderStyle) -> Sheets {
        Sheets { render_style, kept: HashMap::new(), turn: 0, epoch: 0, card: CardColours::default() }
    }

    pub fn render_style(&self) -> &RenderStyle {
        &self.render_style
    }

    /// Those of the code on the current card.
    pub(super) fn card_colours(&mut self, app: &App) -> &[Option<Colours>] {
        self.card.of(app, &self.render_style.highlighter)
    }

    /// Starts a frame: colours of code that arrived since the last one are used.
    pub fn begin(&mut self) {
        self.turn += 1;
        if self.kept.len() > KEPT {
            let turn = self.turn;
            self.kept.retain(|_, sheet| sheet.turn + 1 >= turn);
        }
    }

    /// The lines of an entry, with the empty one before it. Folded it is one line.
    pub fn lines(
        &mut self,
        transcript: &Transcript,
        index: usize,
        folded: bool,
        layout_context: &LayoutContext<'_>,
    ) -> &[Line<'static>] {
        let Some(entry) = transcript.entries().get(index) else { return &[] };
        if self.epoch != layout_context.epoch {
            self.epoch = layout_context.epoch;
            self.kept.clear();
        }
        let gap = scrollback::has_gap(transcript, index, layout_context.whole);
        let key = key_of(entry, folded, gap, layout_context);
        let is_timed = matches!(&entry.kind, EntryKind::Tool(_)) && !entry.is_done;
        let is_words = matches!(&entry.kind, EntryKind::Assistant { .. });
        let turn = self.turn;
        let fits = self
            .kept
            .get(&entry.id)
            .filter(|sheet| sheet.is_coloured || !sheet.colours.as_ref().is_some_and(Colours::are_ready))
            .is_some_and(|sheet| sheet.key == key && (sheet.turn == turn || !(is_timed || is_words)));
        if !fits {
            if self.kept.len() > 2 * KEPT {
                self.kept.clear();
            }
            let grows = |sheet: &Sheet| !sheet.is_done || sheet.key.0 == entry.version;
            let known = self.kept.remove(&entry.id).filter(grows);
            let known = known.map(|sheet| (sheet.words, sheet.colours)).unwrap_or_default();
            let sheet = self.lay(entry, index == 0, key, layout_context, known);
            self.kept.insert(entry.id, sheet);
        }
        let Some(sheet) = self.kept.get_mut(&entry.id) else { return &[] };
        sheet.turn = turn;
        &sheet.lines
    }

    fn lay(
        &self,
        entry: &Entry,
        is_first: bool,
        key: Key,
        layout_context: &LayoutContext<'_>,
        (words, colours): Known,
    ) -> Sheet {
        let (.., folded, _, _, gap) = key;
        let theme = &self.render_style.theme;
        let asked = || match &entry.kind {
            EntryKind::Tool(tool) => entry::colours(tool, &self.render_style.highlighter),
            EntryKind::Document(doc_entry) => match &**doc_entry {
                DocEntry::Hunk(hunk) => {
                    Some(entry::colours_of(&hunk.patch, &hunk.shown, &self.render_style.highlighter))
                }
                DocEntry::File(_) => None,
            },
            _ => None,
        };
        let colours = colours.or_else(asked);
        let is_coloured = colours.as_ref().is_some_and(Colours::are_ready);
        let (mut body, kept) = self.body(entry, layout_context, words, colours.as_ref());
        if folded && body.len() > 1 {
            let first = body.iter().position(|line| !is_blank(line)).unwrap_or(0);
            let more = body.len() - first - 1;
            let mut line = body.swap_remove(first);
            let more = format!("  … {more} more");
            let room = usize::from(layout_context.width).saturating_sub(more.chars().count());
            line.spans = super::fit(std::mem::take(&mut line.spans), room);
            line.spans.push(Span::styled(more, theme.style(Role::Dim)));
            body = vec![line];
        }
        if gap && !is_first && !body.is_empty() {
            body.insert(0, Line::default());
        }
        Sheet { key, turn: self.turn, lines: body, words: kept, is_done: entry.is_done, colours, is_coloured }
    }

    /// Renders all lines of an entry, and returns the text state to cache.
    fn body(
        &self,
        entry: &Entry,
        layout_context: &LayoutContext<'_>,
        words: Option<(MarkdownStream, usize)>,
        colours: Option<&Colours>,
    ) -> (Vec<Line<'static>>, Option<(MarkdownStream, usize)>) {
        let theme = &self.render_style.theme;
        let page = EntryLayout {
            width: layout_context.width,
            theme,
            info: layout_context.info,
            now: layout_context.now,
            expanded: layout_context.whole,
            image_cache: layout_context.image_cache,
            colours,
            layout: layout_context.layout,
            pins_plan: !layout_context.whole,
        };
        let mut kept = None;
        let lines = match &entry.kind {
            EntryKind::User { text, shown, images } => {
                let shown = shown.as_ref().filter(|_| !layout_context.whole).unwrap_or(text);
                entry::user(shown, images, page)
            }
            EntryKind::Assistant { text, interrupted } => {
                let (mut stream, mut taken) = words
                    .filter(|(_, taken)| *taken <= text.len() && text.is_char_boundary(*taken))
                    .unwrap_or_else(|| (self.stream(layout_context), 0));
                if text.len() > taken {
                    stream.push(&text[taken..]);
                    taken = text.len();
                }
                if entry.is_done {
                    stream.finish();
                }
                let lines = stream.lines(text::text_width(layout_context.width), theme);
                let mut lines: Vec<Line<'static>> =
                    lines.into_iter().map(|line| indented(line, text::INDENT)).collect();
                if *interrupted {
                    lines.push(entry::cut_off(page));
                }
                kept = Some((stream, taken));
                lines
            }
            EntryKind::Thinking { .. } if entry.is_done && !layout_context.whole => {
                entry::thought(entry, page)
            }
            EntryKind::Thinking { text } => entry::thinking(text, entry.is_done, layout_context.whole, page),
            EntryKind::Tool(tool) if layout_context.whole => entry::everything(tool, page),
            EntryKind::Tool(tool) => entry::tool(tool, page),
            EntryKind::Notice { level, text } => entry::notice(*level, text, layout_context.width, theme),
            EntryKind::Page(text) => entry::page(text, page.width, page.theme),
            EntryKind::Changes(changes) => super::changes::changes(changes, page),
            EntryKind::Document(doc_entry) => match &**doc_entry {
                DocEntry::File(file) => vec![document::file(file, page)],
                DocEntry::Hunk(hunk) => document::hunk(hunk, page),
            },
        };
        (lines, kept)
    }

    /// Creates a stream for the text of an answer. Where users can refer to a block of code by its number,
    /// the number is shown.
    fn stream(&self, layout_context: &LayoutContext<'_>) -> MarkdownStream {
        let stream = MarkdownStream::new(&self.render_style.highlighter);
        if layout_context.whole { stream.with_numbers() } else { stream }
    }
}

fn is_blank(line: &Line<'_>) -> bool {
    line.spans.iter().all(|span| span.content.trim().is_empty())
}

/// The text of a line.
pub fn text_of(line: &Line<'_>) -> String {
    line.spans.iter().map(|span| span.content.as_ref()).collect()
}
