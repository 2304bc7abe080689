//! Vi keys: insert, normal and visual mode, operators with motions and text objects, counts, `.`.
//!
//! Input outside insert mode is a small language: `parse` reads it, `motion` and `object` select the bytes, and this
//! file changes the text. Chords with ctrl and alt are the keymap's, as everywhere.

use std::ops::Range;

use super::words::Case;
use super::{Composer, left_of, right_of};

mod motion;
mod object;
mod parse;
#[cfg(test)]
mod tests;

use motion::Find;
use parse::{InsertAt, Motion, Operator, OperatorTarget, ParseStep, ParsedKeys, VimCommand};

/// The meaning of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VimMode {
    /// They are text.
    #[default]
    Insert,
    /// They are commands.
    Normal,
    /// They move the end of a selection.
    Visual,
    /// The same, by whole lines.
    VisualLine,
}

impl VimMode {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            VimMode::Insert => "INSERT",
            VimMode::Normal => "NORMAL",
            VimMode::Visual => "VISUAL",
            VimMode::VisualLine => "V-LINE",
        }
    }
}

/// The change that started insert mode, and the text typed since.
#[derive(Clone, Debug)]
struct Session {
    began_by: Option<ParsedKeys>,
    /// `None`: something else than typing happened.
    typed: Option<String>,
}

/// A change that `.` does again.
#[derive(Clone, Debug)]
struct LastChange {
    parsed: ParsedKeys,
    typed: String,
}

/// The state of the vi keys.
#[derive(Clone, Debug, Default)]
pub struct Vim {
    mode: VimMode,
    pending: Vec<char>,
    register: String,
    register_is_lines: bool,
    find: Option<Find>,
    session: Option<Session>,
    last: Option<LastChange>,
}

impl Vim {
    /// Returns the current mode.
    pub fn mode(&self) -> VimMode {
        self.mode
    }

    /// The keys of a command that is not complete.
    pub fn pending(&self) -> String {
        self.pending.iter().collect()
    }

    /// Whether characters are inserted as text.
    pub fn inserts(&self) -> bool {
        self.mode == VimMode::Insert
    }

    /// Ready for a new text, in insert mode.
    pub fn begin(&mut self) {
        self.mode = VimMode::Insert;
        self.pending.clear();
        self.session = None;
    }

    /// The bytes that are selected.
    pub fn selection(&self, composer: &Composer) -> Option<Range<usize>> {
        let text = composer.text();
        let (anchor, caret) = (composer.anchor(), composer.caret());
        let (from, to) = (anchor.min(caret), anchor.max(caret));
        match self.mode {
            VimMode::Insert | VimMode::Normal => None,
            VimMode::Visual => Some(from..right_of(text, to)),
            VimMode::VisualLine => Some(motion::line_start(text, from)..motion::line_end(text, to)),
        }
    }

    /// Escape: out of insert and visual mode, or of a command that is not complete. `false`: there was nothing to leave.
    pub fn escape(&mut self, composer: &mut Composer) -> bool {
        let had_keys = !std::mem::take(&mut self.pending).is_empty();
        match self.mode {
            VimMode::Normal => had_keys,
            VimMode::Insert => {
                self.end_insert(composer);
                true
            }
            VimMode::Visual | VimMode::VisualLine => {
                self.mode = VimMode::Normal;
                self.settle(composer);
                true
            }
        }
    }

    /// A character was typed in insert mode.
    pub fn note_typed(&mut self, c: char) {
        if let Some(typed) = self.session.as_mut().and_then(|session| session.typed.as_mut()) {
            typed.push(c);
        }
    }

    /// Something else was done in insert mode: `.` knows only what was typed.
    pub fn note_edit(&mut self, deletes_left: bool) {
        if let Some(session) = &mut self.session {
            let is_simple = deletes_left && session.typed.as_mut().is_some_and(|typed| typed.pop().is_some());
            if !is_simple {
                session.typed = None;
            }
        }
    }

    /// A character outside of insert mode.
    pub fn key(&mut self, composer: &mut Composer, c: char) {
        self.pending.push(c);
        match parse::parse(&self.pending, self.selection(composer).is_some()) {
            ParseStep::More => {}
            ParseStep::No => self.pending.clear(),
            ParseStep::Done(parsed) => {
                self.pending.clear();
                self.run(composer, parsed);
            }
        }
        self.settle(composer);
    }

    /// Moves the caret onto a character in normal mode, not after the last one.
    pub fn settle(&self, composer: &mut Composer) {
        if self.mode == VimMode::Normal {
            let (text, at) = (composer.text(), composer.caret());
            if at > motion::line_start(text, at) && (at == text.len() || text[at..].starts_with('\n')) {
                let back = left_of(text, at);
                let goal = composer.goal;
                composer.go(back);
                composer.goal = goal;
            }
        }
    }

    fn begin_insert(&mut self, composer: &mut Composer, began_by: Option<ParsedKeys>) {
        composer.begin_group();
        self.mode = VimMode::Insert;
        self.session = Some(Session { began_by, typed: Some(String::new()) });
    }

    fn end_insert(&mut self, composer: &mut Composer) {
        if let Some(Session { began_by: Some(parsed), typed }) = self.session.take() {
            let typed = typed.unwrap_or_default();
            if matches!(parsed.command, VimCommand::Insert(_)) {
                for _ in 1..parsed.times() {
                    composer.insert_text(&typed);
                }
            }
            self.last = Some(LastChange { parsed, typed });
        }
        composer.end_group();
        self.mode = VimMode::Normal;
        let at = composer.caret();
        if at > motion::line_start(composer.text(), at) {
            composer.left();
        }
    }

    fn run(&mut self, composer: &mut Composer, parsed: ParsedKeys) {
        if let Some(selected) = self.selection(composer) {
            self.run_visual(composer, &parsed, selected);
            return;
        }
        if parsed.command == VimCommand::Repeat {
            if let Some(LastChange { parsed: mut again, typed }) = self.last.clone() {
                again.count = parsed.count.or(again.count);
                composer.begin_group();
                self.change(composer, &again);
                if self.mode == VimMode::Insert {
                    composer.insert_text(&typed);
                    self.session = Some(Session { began_by: Some(again), typed: Some(typed) });
                    self.end_insert(composer);
                }
                composer.end_group();
            }
            return;
        }
        self.change(composer, &parsed);
        let is_change = match parsed.command {
            VimCommand::Operate { operator, .. } => operator != Operator::Yank,
            VimCommand::DeleteChar { .. }
            | VimCommand::Replace(_)
            | VimCommand::ToggleCase
            | VimCommand::Put { .. }
            | VimCommand::Join => true,
            // Known when it ends.
            VimCommand::Insert(_) => false,
            VimCommand::Move(_) | VimCommand::Undo | VimCommand::Repeat | VimCommand::Visual { .. } => false,
            VimCommand::Select { .. } | VimCommand::OtherEnd => false,
        };
        if is_change && self.mode != VimMode::Insert {
            self.last = Some(LastChange { parsed, typed: String::new() });
        }
    }

    fn change(&mut self, composer: &mut Composer, parsed: &ParsedKeys) {
        let times = parsed.times();
        match &parsed.command {
            VimCommand::Move(motion) => self.go(composer, *motion, parsed.count),
            VimCommand::Operate { operator, target } => {
                if let Some((range, lines)) = self.meant(composer, *operator, target, parsed.count) {
                    self.operate(composer, *operator, range, lines, Some(parsed));
                }
            }
            VimCommand::Insert(entry) => self.enter(composer, *entry, parsed),
            VimCommand::DeleteChar { left } => {
                let (text, at) = (composer.text(), composer.caret());
                let (mut from, mut to) = (at, at);
                for _ in 0..times {
                    if *left && from > motion::line_start(text, at) {
                        from = left_of(text, from);
                    } else if !*left && to < motion::line_end(text, at) {
                        to = right_of(text, to);
                    }
                }
                self.operate(composer, Operator::Delete, from..to, false, None);
            }
            VimCommand::Replace(c) => {
                let (text, at) = (composer.text(), composer.caret());
                let end = motion::line_end(text, at);
                let (mut to, mut count) = (at, 0);
                while count < times && to < end {
                    to = right_of(text, to);
                    count += 1;
                }
                if count == times && !touches_mark(composer, at..to) {
                    composer.replace(at..to, &c.to_string().repeat(count));
                    composer.left();
                }
            }
            VimCommand::ToggleCase => {
                let (text, at) = (composer.text(), composer.caret());
                let end = motion::line_end(text, at);
                let to = (0..times).fold(at, |to, _| if to < end { right_of(text, to) } else { to });
                self.operate(composer, Operator::Toggle, at..to, false, None);
                composer.go(to);
            }
            VimCommand::Put { before } => self.put(composer, *before, times),
            VimCommand::Join => join(composer, times.max(2) - 1),
            VimCommand::Undo => (0..times).for_each(|_| composer.undo()),
            VimCommand::Visual { lines } => {
                composer.set_anchor();
                self.mode = if *lines { VimMode::VisualLine } else { VimMode::Visual };
            }
            VimCommand::Repeat | VimCommand::Select { .. } | VimCommand::OtherEnd => {}
        }
    }

    fn run_visual(&mut self, composer: &mut Composer, parsed: &ParsedKeys, selected: Range<usize>) {
        let lines = self.mode == VimMode::VisualLine;
        let whole =
            if lines { selected.start..after_newline(composer.text(), selected.end) } else { selected };
        match &parsed.command {
            VimCommand::Move(motion) => self.go(composer, *motion, parsed.count),
            VimCommand::Select { object, around } => {
                if let Some((range, by_line)) =
                    object::find(composer.text(), composer.caret(), *object, *around, 1)
                {
                    composer.go(range.start);
                    composer.set_anchor();
                    composer.go(left_of(composer.text(), range.end));
                    if by_line {
                        self.mode = VimMode::VisualLine;
                    }
                }
            }
            VimCommand::OtherEnd => composer.swap_anchor(),
            VimCommand::Visual { lines: wants_lines } => {
                self.mode = match (lines, wants_lines) {
                    (true, true) | (false, false) => VimMode::Normal,
                    (false, true) => VimMode::VisualLine,
                    (true, false) => VimMode::Visual,
                };
            }
            VimCommand::Operate { operator, .. } => {
                self.mode = VimMode::Normal;
                self.operate(composer, *operator, whole, lines, None);
            }
            VimCommand::Replace(c) => {
                self.mode = VimMode::Normal;
                if !touches_mark(composer, whole.clone()) {
                    let changed: String = composer.text()[whole.clone()]
                        .chars()
                        .map(|old| if old == '\n' { '\n' } else { *c })
                        .collect();
                    let start = whole.start;
                    composer.replace(whole, &changed);
                    composer.go(start);
                }
            }
            VimCommand::Put { .. } => {
                self.mode = VimMode::Normal;
                let (register, is_lines) = (self.register.clone(), self.register_is_lines);
                composer.begin_group();
                self.operate(composer, Operator::Delete, whole, lines, None);
                composer.insert_text(&register);
                composer.left();
                composer.end_group();
                if lines && !is_lines {
                    composer.line_end();
                }
            }
            VimCommand::Join => {
                self.mode = VimMode::Normal;
                let breaks = composer.text()[whole.clone()].trim_end_matches('\n').matches('\n').count();
                composer.go(whole.start);
                join(composer, breaks.max(1));
            }
            VimCommand::DeleteChar { .. } => {
                self.mode = VimMode::Normal;
                self.operate(composer, Operator::Delete, whole, lines, None);
            }
            VimCommand::ToggleCase => {
                self.mode = VimMode::Normal;
                self.operate(composer, Operator::Toggle, whole, lines, None);
            }
            VimCommand::Insert(_) | VimCommand::Undo | VimCommand::Repeat => {}
        }
    }

    fn go(&mut self, composer: &mut Composer, motion: Motion, count: Option<usize>) {
        let times = count.unwrap_or(1);
        match motion {
            Motion::Up => (0..times).for_each(|_| composer.up()),
            Motion::Down => (0..times).for_each(|_| composer.down()),
            _ => {
                if let Some(at) = self.reach(composer, motion, count) {
                    composer.go(at);
                }
            }
        }
    }

    /// Returns the target of a motion.
    fn reach(&mut self, composer: &Composer, motion: Motion, count: Option<usize>) -> Option<usize> {
        match motion {
            Motion::Find(find) => self.find = Some(find),
            Motion::FindAgain { reverse } => {
                let last = self.find?;
                let find = if reverse { last.reversed() } else { last };
                return motion::reach(composer.text(), composer.caret(), Motion::Find(find), count, true);
            }
            _ => {}
        }
        motion::reach(composer.text(), composer.caret(), motion, count, false)
    }

    /// The bytes that an operator is for, and whether they are whole lines.
    fn meant(
        &mut self,
        composer: &Composer,
        operator: Operator,
        target: &OperatorTarget,
        count: Option<usize>,
    ) -> Option<(Range<usize>, bool)> {
        let (text, at) = (composer.text(), composer.caret());
        match target {
            OperatorTarget::Lines => {
                let start = motion::line_start(text, at);
                let end = motion::lines_down(text, at, count.unwrap_or(1) - 1);
                Some((start..after_newline(text, motion::line_end(text, end)), true))
            }
            OperatorTarget::Object { object, around } => {
                object::find(text, at, *object, *around, count.unwrap_or(1))
            }
            // `cw` on a word leaves the space after it.
            OperatorTarget::Motion(Motion::WordForward { big })
                if operator == Operator::Change && !motion::is_blank_at(text, at) =>
            {
                let end = motion::word_end_of(text, at, *big, count.unwrap_or(1));
                Some((at..right_of(text, end), false))
            }
            OperatorTarget::Motion(motion) => {
                let to = self.reach(composer, *motion, count)?;
                if motion.is_by_line() {
                    let (from, to) = (at.min(to), at.max(to));
                    let start = motion::line_start(text, from);
                    return Some((start..after_newline(text, motion::line_end(text, to)), true));
                }
                let (from, mut end) = (at.min(to), at.max(to));
                let is_inclusive =
                    motion.is_inclusive() || matches!(motion, Motion::FindAgain { .. }) && to > at;
                if is_inclusive && end < text.len() && !text[end..].starts_with('\n') {
                    end = right_of(text, end);
                }
                // A word at the end of a line does not take the line end with it.
                if matches!(motion, Motion::WordForward { .. }) && text[from..end].contains('\n') {
                    let kept = text[from..end].trim_end_matches(|c: char| c.is_whitespace());
                    let first_end = motion::line_end(text, from);
                    end = if kept.contains('\n') { from + kept.len() } else { first_end.max(from) };
                }
                (from < end).then_some((from..end, false))
            }
        }
    }

    fn operate(
        &mut self,
        composer: &mut Composer,
        operator: Operator,
        range: Range<usize>,
        lines: bool,
        parsed: Option<&ParsedKeys>,
    ) {
        let range = composer.outside_marks(range.start, true)..composer.outside_marks(range.end, false);
        match operator {
            Operator::Yank | Operator::Delete | Operator::Change
                if range.is_empty() && operator != Operator::Change => {}
            Operator::Yank => {
                self.keep(composer, &range, lines);
                composer.go(range.start);
            }
            Operator::Delete => {
                self.keep(composer, &range, lines);
                let text = composer.text();
                // The last line takes the line end before it.
                let is_last = lines && range.end == text.len() && !text[range.clone()].ends_with('\n');
                let from = if is_last && range.start > 0 { range.start - 1 } else { range.start };
                composer.replace(from..range.end, "");
                if lines {
                    let at = motion::line_start(composer.text(), composer.caret());
                    composer.go(motion::first_non_blank(composer.text(), at));
                }
            }
            Operator::Change => {
                self.keep(composer, &range, lines);
                let end = if lines && composer.text()[range.clone()].ends_with('\n') {
                    range.end - 1
                } else {
                    range.end
                };
                composer.begin_group();
                composer.replace(range.start..end, "");
                self.begin_insert(composer, parsed.cloned());
            }
            Operator::Upper | Operator::Lower | Operator::Toggle => {
                if !touches_mark(composer, range.clone()) {
                    let old = &composer.text()[range.clone()];
                    let changed = match operator {
                        Operator::Upper => Case::Upper.of(old),
                        Operator::Lower => Case::Lower.of(old),
                        _ => toggled(old),
                    };
                    composer.replace(range.clone(), &changed);
                }
                composer.go(range.start);
            }
        }
    }

    fn keep(&mut self, composer: &mut Composer, range: &Range<usize>, lines: bool) {
        let piece = composer.text()[range.clone()].to_owned();
        composer.keep_piece(piece.clone());
        self.register = piece;
        self.register_is_lines = lines;
        if lines && !self.register.ends_with('\n') {
            self.register.push('\n');
        }
    }

    fn put(&self, composer: &mut Composer, before: bool, times: usize) {
        if self.register.is_empty() {
            return;
        }
        let (text, at) = (composer.text(), composer.caret());
        let piece = self.register.repeat(times.min(1000));
        if self.register_is_lines {
            let (place, piece) = if before {
                (motion::line_start(text, at), piece)
            } else {
                let end = motion::line_end(text, at);
                match after_newline(text, end) {
                    next if next > end => (next, piece),
                    _ => (end, format!("\n{}", piece.trim_end_matches('\n'))),
                }
            };
            let first = place + usize::from(piece.starts_with('\n'));
            composer.replace(place..place, &piece);
            composer.go(motion::first_non_blank(composer.text(), first));
        } else {
            let place = if before || at == motion::line_end(text, at) { at } else { right_of(text, at) };
            composer.replace(place..place, &piece);
            composer.left();
        }
    }

    fn enter(&mut self, composer: &mut Composer, entry: InsertAt, parsed: &ParsedKeys) {
        composer.begin_group();
        let (text, at) = (composer.text(), composer.caret());
        match entry {
            InsertAt::Before => {}
            InsertAt::Behind if at < motion::line_end(text, at) => composer.right(),
            InsertAt::Behind => {}
            InsertAt::LineStart => composer.go(motion::first_non_blank(text, motion::line_start(text, at))),
            InsertAt::LineEnd => composer.line_end(),
            InsertAt::LineBelow => {
                composer.line_end();
                composer.insert('\n');
            }
            InsertAt::LineAbove => {
                composer.line_start();
                composer.insert('\n');
                composer.left();
            }
        }
        self.begin_insert(composer, Some(parsed.clone()));
    }
}

fn touches_mark(composer: &Composer, range: Range<usize>) -> bool {
    composer.mark_ranges().into_iter().any(|mark| mark.start < range.end && range.start < mark.end)
}

/// Returns the position after the line ending at `at`, if there is one.
fn after_newline(text: &str, at: usize) -> usize {
    if text[at..].starts_with('\n') { at + 1 } else { at }
}

fn toggled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
    }
    out
}

/// Joins the next `breaks` lines to the caret's line, each with one space.
fn join(composer: &mut Composer, breaks: usize) {
    composer.begin_group();
    for _ in 0..breaks {
        let text = composer.text();
        let end = motion::line_end(text, composer.caret());
        if end == text.len() {
            break;
        }
        let rest = text[end + 1..].trim_start_matches([' ', '\t']);
        let next = text.len() - rest.len();
        let needs_blank = !rest.is_empty()
            && !rest.starts_with(['\n', ')'])
            && !text[..end].ends_with([' ', '\n'])
            && end > 0;
        composer.replace(end..next, if needs_blank { " " } else { "" });
        composer.go(end);
    }
    composer.end_group();
}
