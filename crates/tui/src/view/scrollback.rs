//! Splits the lines into those that go to the terminal's scrollback for good and those that are redrawn.
//!
//! Entries are emitted in order, each once. A growing answer emits what no later text can change, so that the live
//! region stays small however long the answer is.

use std::collections::HashMap;

use ratatui::text::{Line, Span};

use super::super::app::{App, RunState};
use super::super::keymap::{Action, KeyContext};
use super::super::markdown::MarkdownStream;
use super::super::theme::{Role, Theme};
use super::super::transcript::{Entry, EntryKind, Level, ToolState, Transcript};
use super::RenderStyle;
use super::card::CardColours;
use super::entry::{self, Colours, EntryLayout};
use super::text::{INDENT, indented, text_width};
use aye_core::contract::image::ImageRef;

/// The maximum entries of a stored conversation printed when it is opened.
const SHOWN_AT_OPEN: usize = 200;
/// A change waits for its colours while fewer entries than this come after it.
const MOST_BEHIND: usize = 300;
/// How many entries ahead colours are requested.
const ASKED_AHEAD: usize = 16;

/// The words of an answer on their way into lines.
#[derive(Debug)]
struct Words {
    stream: MarkdownStream,
    /// The number of the entry's bytes already in the stream.
    taken: usize,
    /// The first lines were handed out.
    begun: bool,
}

#[derive(Debug)]
struct Kept {
    version: u32,
    width: u16,
    /// How its images are shown, and whether its colours are available.
    stage: usize,
    lines: Vec<Line<'static>>,
}

/// Hands out lines of a conversation.
#[derive(Debug, Default)]
pub struct ScrollbackWriter {
    epoch: u32,
    /// The first entry that is not handed out whole.
    next: usize,
    words: HashMap<u64, Words>,
    kept: HashMap<u64, Kept>,
    /// The colours that the kept lines have.
    theme: Option<Theme>,
    /// Of changes whose entries are not handed out yet.
    colours: HashMap<u64, Colours>,
    /// Of the code on the current card.
    pub(super) card_colours: CardColours,
}

impl ScrollbackWriter {
    /// Lines that go to the scrollback now.
    pub fn finished(&mut self, app: &App, render_style: &RenderStyle) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        let transcript = &app.conversation.transcript;
        if self.epoch != app.conversation.epoch {
            self.begin(app, render_style, &mut lines);
        }
        self.pass_over(app, render_style, &mut lines);
        while let Some(entry) = transcript.entries().get(self.at(transcript)) {
            let at = self.at(transcript);
            let quiet = quiet_run(transcript, at);
            if quiet > 0 && waits_for_more(app, at + quiet) {
                break;
            }
            if quiet > 1 {
                if has_gap(transcript, at, false) {
                    lines.push(Line::default());
                }
                let entries = &transcript.entries()[at..at + quiet];
                lines.extend(entry::group(entries, page(app, render_style)));
                for entry in entries {
                    self.kept.remove(&entry.id);
                }
                self.next += quiet;
                continue;
            }
            let is_over = match &entry.kind {
                EntryKind::Assistant { .. } => self.drain_words(entry, app, render_style, &mut lines),
                _ if entry.is_done && self.waits_for_colours(entry, app, render_style) => false,
                _ if entry.is_done && waits_for_pictures(entry.images(), at, app) => false,
                _ if entry.is_done => {
                    if has_gap(transcript, at, false) {
                        lines.push(Line::default());
                    }
                    let colours = self.colours.get(&entry.id);
                    lines.extend(draw(entry, EntryLayout { colours, ..page(app, render_style) }));
                    true
                }
                _ => false,
            };
            if !is_over {
                break;
            }
            self.kept.remove(&entry.id);
            self.colours.remove(&entry.id);
            self.next += 1;
        }
        lines
    }

    /// Returns the index of the first entry that is not fully printed. Entries fetched for display elsewhere
    /// are not printed.
    fn at(&self, transcript: &Transcript) -> usize {
        (self.next + transcript.fetched()).saturating_sub(transcript.trimmed())
    }

    /// Skips entries that were trimmed while another screen was shown: they are not printed any more.
    fn pass_over(&mut self, app: &App, render_style: &RenderStyle, lines: &mut Vec<Line<'static>>) {
        let gone = app.conversation.transcript.trimmed().saturating_sub(self.next);
        if gone > 0 {
            self.next += gone;
            ScrollbackWriter::push_earlier_notice(gone, app, render_style, lines);
        }
    }

    fn push_earlier_notice(
        count: usize,
        app: &App,
        render_style: &RenderStyle,
        lines: &mut Vec<Line<'static>>,
    ) {
        let keys = app.keymap.chord_of(KeyContext::Global, Action::Viewer);
        let text = format!("  … {count} earlier entries ({keys})");
        lines.push(Line::styled(
            super::truncate(&text, app.display.size.0),
            render_style.theme.style(Role::Dim),
        ));
    }

    /// Another conversation: its last entries only, with a word about those above.
    fn begin(&mut self, app: &App, render_style: &RenderStyle, lines: &mut Vec<Line<'static>>) {
        let is_first = self.epoch == 0;
        let printed = self.next;
        *self = ScrollbackWriter { epoch: app.conversation.epoch, ..ScrollbackWriter::default() };
        let Some(thread) = &app.conversation.thread else { return };
        let entries = app.conversation.transcript.entries().len();
        // Nothing was said in it but what was typed while it was opened.
        let is_new = is_first && thread.title.is_empty();
        if is_new && printed > 0 {
            // What was printed before is already on the screen.
            self.next = printed.min(entries);
            return;
        }
        if !is_new && (!is_first || entries > 0) {
            let title = if thread.title.is_empty() { "new conversation" } else { &thread.title };
            let text = format!("  ── {} ", aye_core::contract::display::visible_line(title));
            let width = usize::from(app.display.size.0);
            let text = super::truncate(&text, app.display.size.0);
            let rest = "─".repeat(width.saturating_sub(super::width(&text)));
            lines.push(Line::default());
            lines.push(Line::styled(format!("{text}{rest}"), render_style.theme.style(Role::Dim)));
        }
        let left_out = entries.saturating_sub(SHOWN_AT_OPEN).min(app.conversation.transcript.settled());
        self.next = left_out + app.conversation.transcript.trimmed();
        if self.next > 0 {
            let stored = app.conversation.transcript.starts_at().map_or(0, |seq| seq as usize - 1);
            ScrollbackWriter::push_earlier_notice(left_out + stored, app, render_style, lines);
        }
    }

    /// Renders the unfinished entries, redrawn with each frame.
    pub fn growing(&mut self, app: &App, render_style: &RenderStyle) -> Vec<Line<'static>> {
        if self.theme.as_ref().is_none_or(|theme| !theme.is_same(&render_style.theme)) {
            self.kept.clear();
            self.theme = Some(render_style.theme.clone());
        }
        let mut lines = Vec::new();
        let transcript = &app.conversation.transcript;
        let mut grouped = 0;
        let first = self.at(transcript);
        for (index, entry) in transcript.entries().iter().enumerate().skip(first) {
            if index < grouped || is_on_card(entry, app) {
                continue;
            }
            let begun = self.words.get(&entry.id).is_some_and(|words| words.begun);
            if has_gap(transcript, index, false) && !begun {
                lines.push(Line::default());
            }
            let quiet = quiet_run(transcript, index);
            if quiet > 1 {
                grouped = index + quiet;
                lines.extend(entry::group(&transcript.entries()[index..grouped], page(app, render_style)));
                continue;
            }
            if matches!(entry.kind, EntryKind::Assistant { .. }) {
                let words = self.words_of(entry, render_style);
                let width = text_width(app.display.size.0);
                lines.extend(
                    words
                        .stream
                        .lines(width, &render_style.theme)
                        .into_iter()
                        .map(|line| indented(line, INDENT)),
                );
                continue;
            }
            let is_timed =
                matches!(&entry.kind, EntryKind::Tool(tool) if tool.started.is_some() && !entry.is_done);
            self.ask_for_colours(entry, render_style);
            let colours = self.colours.get(&entry.id);
            let colourful = usize::from(colours.is_some_and(Colours::are_ready));
            let stage = app.display.image_cache.ready(entry.images()) * 2 + colourful;
            let kept = self.kept.get(&entry.id);
            if let Some(kept) =
                kept.filter(|kept| kept.version == entry.version && kept.width == app.display.size.0)
                && kept.stage == stage
                && !is_timed
            {
                lines.extend_from_slice(&kept.lines);
                continue;
            }
            let drawn = draw(entry, EntryLayout { colours, ..page(app, render_style) });
            lines.extend_from_slice(&drawn);
            let kept = Kept { version: entry.version, width: app.display.size.0, stage, lines: drawn };
            self.kept.insert(entry.id, kept);
        }
        lines
    }

    /// An entry once more, with nothing folded.
    pub fn whole(app: &App, render_style: &RenderStyle, id: u64) -> Vec<Line<'static>> {
        let page = page(app, render_style);
        let entry = app.conversation.transcript.entries().iter().find(|entry| entry.id == id);
        let mut lines = match entry.map(|entry| &entry.kind) {
            Some(EntryKind::Tool(tool)) => entry::whole_tool(tool, page),
            Some(EntryKind::Thinking { text }) => entry::thinking(text, true, true, page),
            Some(EntryKind::User { text, images, .. }) => entry::user(text, images, page),
            _ => return Vec::new(),
        };
        lines.insert(0, Line::default());
        lines
    }

    /// Returns whether the colours of a call's change are still being computed. Those of the next entries are
    /// requested along with them.
    fn waits_for_colours(&mut self, entry: &Entry, app: &App, render_style: &RenderStyle) -> bool {
        let entries = app.conversation.transcript.entries();
        let at = self.at(&app.conversation.transcript);
        if !matches!(entry.kind, EntryKind::Tool(_)) || entries.len().saturating_sub(at) > MOST_BEHIND {
            return false;
        }
        for next in entries.iter().skip(at).take(ASKED_AHEAD) {
            self.ask_for_colours(next, render_style);
        }
        self.colours.get(&entry.id).is_some_and(|colours| !colours.are_ready())
    }

    fn ask_for_colours(&mut self, entry: &Entry, render_style: &RenderStyle) {
        if let EntryKind::Tool(tool) = &entry.kind
            && !self.colours.contains_key(&entry.id)
            && let Some(colours) = entry::colours(tool, &render_style.highlighter)
        {
            self.colours.insert(entry.id, colours);
        }
    }

    fn words_of(&mut self, entry: &Entry, render_style: &RenderStyle) -> &mut Words {
        let words = self.words.entry(entry.id).or_insert_with(|| Words {
            stream: MarkdownStream::new(&render_style.highlighter),
            taken: 0,
            begun: false,
        });
        if let EntryKind::Assistant { text, .. } = &entry.kind
            && text.len() > words.taken
        {
            words.stream.push(&text[words.taken..]);
            words.taken = text.len();
        }
        if entry.is_done {
            words.stream.finish();
        }
        words
    }

    /// Prints the text that later text can no longer change. Returns whether that was all of it.
    fn drain_words(
        &mut self,
        entry: &Entry,
        app: &App,
        render_style: &RenderStyle,
        lines: &mut Vec<Line<'static>>,
    ) -> bool {
        let gap = has_gap(&app.conversation.transcript, self.at(&app.conversation.transcript), false);
        let words = self.words_of(entry, render_style);
        let drained = words.stream.drain_stable(text_width(app.display.size.0), &render_style.theme);
        if !drained.is_empty() {
            if gap && !words.begun {
                lines.push(Line::default());
            }
            words.begun = true;
            lines.extend(drained.into_iter().map(|line| indented(line, INDENT)));
        }
        if !entry.is_done || !words.stream.is_empty() {
            return false;
        }
        if matches!(entry.kind, EntryKind::Assistant { interrupted: true, .. }) {
            lines.push(entry::cut_off(page(app, render_style)));
        }
        self.words.remove(&entry.id);
        true
    }
}

/// Renders the model's plan in at most `most` rows, with a blank one between the plan and what is next to it.
pub(super) fn plan(app: &App, theme: &Theme, most: usize) -> Vec<Line<'static>> {
    let page = page_of(app, theme);
    // It is over with its run.
    let plan = if app.conversation.run == RunState::Idle { &[] } else { app.conversation.transcript.plan() };
    let mut lines = entry::pinned(plan, most.saturating_sub(1), page);
    if !lines.is_empty() {
        // A card has an empty line above it.
        let at = if app.cards.open.is_empty() { 0 } else { lines.len() };
        lines.insert(at, Line::default());
    }
    lines
}

/// Returns whether images of an entry are still loading; gives up once many entries come after it.
fn waits_for_pictures(images: &[ImageRef], at: usize, app: &App) -> bool {
    let behind = app.conversation.transcript.entries().len().saturating_sub(at);
    behind <= MOST_BEHIND && app.display.image_cache.ready(images) < images.len()
}

/// Returns whether the call of an entry is on a card: then it is not shown twice.
fn is_on_card(entry: &Entry, app: &App) -> bool {
    let EntryKind::Tool(tool) = &entry.kind else { return false };
    let is_asked = matches!(tool.state, ToolState::Waiting | ToolState::Unknown);
    is_asked
        && app.is_card_whole()
        && app.cards.open.iter().any(|card| {
            card.elsewhere.is_none()
                && card.child.is_none()
                && card.ticket.pending.id.as_str() == tool.call_id
        })
}

/// Returns the number of consecutive quiet calls from an entry on.
fn quiet_run(transcript: &Transcript, from: usize) -> usize {
    transcript.entries()[from.min(transcript.entries().len())..]
        .iter()
        .take_while(|entry| entry::is_quiet(entry))
        .count()
}

/// Returns whether more quiet calls may follow, so that one line can represent them all.
fn waits_for_more(app: &App, behind: usize) -> bool {
    match app.conversation.transcript.entries().get(behind) {
        Some(next) => entry::may_be_quiet(next),
        None => app.conversation.run.active_since().is_some(),
    }
}

fn page<'a>(app: &'a App, render_style: &'a RenderStyle) -> EntryLayout<'a> {
    page_of(app, &render_style.theme)
}

fn page_of<'a>(app: &'a App, theme: &'a Theme) -> EntryLayout<'a> {
    EntryLayout {
        width: app.display.size.0,
        theme,
        info: &app.info,
        now: app.now,
        expanded: app.display.expanded,
        image_cache: &app.display.image_cache,
        colours: None,
        layout: app.display.layout,
        pins_plan: !app.display.is_linear,
    }
}

/// Returns whether a blank line precedes an entry: there is none between notices, nor between calls and thoughts of one
/// line each. `whole`: calls and thoughts are shown in full.
pub(super) fn has_gap(transcript: &Transcript, index: usize, whole: bool) -> bool {
    let kind = |index: usize| transcript.entries().get(index).map(|entry| &entry.kind);
    let (before, this) = (index.checked_sub(1).and_then(kind), kind(index));
    let is_row = |kind: Option<&EntryKind>| match kind {
        Some(EntryKind::Tool(tool)) => !whole && !entry::has_body(tool),
        Some(EntryKind::Thinking { .. }) => !whole,
        _ => false,
    };
    let are_notices = |kind: Option<&EntryKind>| matches!(kind, Some(EntryKind::Notice { .. }));
    let is_close = is_row(before) && is_row(this) || are_notices(before) && are_notices(this);
    !is_close && !this.is_some_and(super::document::stands_close)
}

fn draw(entry: &Entry, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    match &entry.kind {
        EntryKind::User { text, shown, images } => entry::user(shown.as_ref().unwrap_or(text), images, page),
        EntryKind::Thinking { .. } if entry.is_done => entry::thought(entry, page),
        EntryKind::Thinking { text } => entry::thinking(text, false, false, page),
        EntryKind::Tool(tool) => entry::tool(tool, page),
        EntryKind::Notice { level, text } => {
            let level: Level = *level;
            entry::notice(level, text, page.width, page.theme)
        }
        // Answers go through their stream; entries of a document are in no conversation.
        EntryKind::Page(text) => entry::page(text, page.width, page.theme),
        EntryKind::Changes(changes) => super::changes::changes(changes, page),
        EntryKind::Document(_) => Vec::new(),
        EntryKind::Assistant { text, .. } => vec![Line::from(Span::raw(text.clone()))],
    }
}
