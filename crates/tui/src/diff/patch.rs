//! A diff as hunks, made from two texts or parsed from a unified diff.

use aye_core::contract::diff::{DiffOp, MarkedLine, group_diff_ops, line_ops, marked_words};

use super::{CONTEXT, MAX_COMPARED, MAX_MARKED};

/// Lines that are in both texts, or that took each other's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DiffSpan {
    /// In both.
    Same(Vec<String>),
    /// Old ones, and what came instead.
    Change { old: Vec<String>, new: Vec<String> },
}

impl DiffSpan {
    /// Lines of the old text, and of the new one.
    fn counts(&self) -> (usize, usize) {
        match self {
            DiffSpan::Same(same) => (same.len(), same.len()),
            DiffSpan::Change { old, new } => (old.len(), new.len()),
        }
    }

    /// Splits the piece into pieces of at most `most` lines of each side.
    fn split(&self, most: usize) -> Vec<DiffSpan> {
        match self {
            DiffSpan::Same(same) => same.chunks(most).map(|lines| DiffSpan::Same(lines.to_vec())).collect(),
            DiffSpan::Change { old, new } => {
                let (mut old, mut new) = (old.chunks(most), new.chunks(most));
                std::iter::from_fn(|| match (old.next(), new.next()) {
                    (None, None) => None,
                    (old, new) => Some(DiffSpan::Change {
                        old: old.unwrap_or_default().to_vec(),
                        new: new.unwrap_or_default().to_vec(),
                    }),
                })
                .collect()
            }
        }
    }
}

/// A change with what is around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Lines of the old text before it.
    pub(super) old_at: usize,
    /// Lines of the new text before it.
    pub(super) new_at: usize,
    pub(super) pieces: Vec<DiffSpan>,
}

/// The changes between two texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    pub(super) stretches: Vec<Stretch>,
    /// The number of added lines.
    pub added: usize,
    /// The number of removed lines.
    pub removed: usize,
    /// Lines of the old text, when they are known.
    pub(super) old_lines: Option<usize>,
    /// Said above it, and below it.
    pub(super) above: Option<String>,
    pub(super) below: Option<String>,
    /// The largest line number.
    pub(super) last: usize,
    /// Carriage returns are part of what changed.
    pub(super) show_cr: bool,
    /// Whether it is one of several parts: then there is no note about the lines around it.
    pub(super) is_part: bool,
}

/// Lines without their `\n`.
fn split(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    lines
}

fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

impl Patch {
    pub fn between(old: &str, new: &str) -> Patch {
        let (old_lines, new_lines) = (split(old), split(new));
        let front = old_lines.iter().zip(&new_lines).take_while(|(a, b)| a == b).count();
        let (old_rest, new_rest) = (&old_lines[front..], &new_lines[front..]);
        let back = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
        let (old_changed, new_changed) = (old_rest.len() - back, new_rest.len() - back);
        let mut patch = Patch {
            last: old_lines.len().max(new_lines.len()),
            // A file that got other line ends would otherwise show pairs of lines that look the same.
            show_cr: old.contains("\r\n") != new.contains("\r\n"),
            ..Patch::default()
        };
        if old_changed + new_changed > MAX_COMPARED {
            (patch.removed, patch.added) = (old_changed, new_changed);
            patch.above = Some(format!(
                "too many lines differ to compare them: {old_changed} removed, {new_changed} added"
            ));
            let change = DiffSpan::Change {
                old: owned(&old_rest[..old_changed]),
                new: owned(&new_rest[..new_changed]),
            };
            patch.stretches.push(Stretch { old_at: front, new_at: front, pieces: vec![change] });
        } else {
            for hunk in group_diff_ops(line_ops(&old_lines, &new_lines), CONTEXT) {
                let first = hunk.first().map(|op| (op.old_range().start, op.new_range().start));
                let (old_at, new_at) = first.unwrap_or_default();
                let mut stretch = Stretch { old_at, new_at, pieces: Vec::new() };
                for op in &hunk {
                    let (old, new) = (&old_lines[op.old_range()], &new_lines[op.new_range()]);
                    if matches!(op, DiffOp::Equal { .. }) {
                        stretch.pieces.push(DiffSpan::Same(owned(old)));
                    } else {
                        patch.removed += old.len();
                        patch.added += new.len();
                        stretch.pieces.push(DiffSpan::Change { old: owned(old), new: owned(new) });
                    }
                }
                patch.stretches.push(stretch);
            }
            patch.old_lines = (!patch.stretches.is_empty()).then_some(old_lines.len());
        }
        if !old.is_empty() && !new.is_empty() && old.ends_with('\n') != new.ends_with('\n') {
            let which = if new.ends_with('\n') { "before" } else { "now" };
            patch.below = Some(format!("no newline at the end of the file {which}"));
        }
        patch
    }

    /// Lines that take each other's place, after that many lines of the old and of the new text.
    pub fn of_change(at: (usize, usize), old: &[String], new: &[String]) -> Patch {
        let (old_at, new_at) = at;
        let bare = |lines: &[String]| -> Vec<String> {
            lines.iter().map(|line| line.strip_suffix('\n').unwrap_or(line).to_owned()).collect()
        };
        let change = DiffSpan::Change { old: bare(old), new: bare(new) };
        Patch {
            stretches: vec![Stretch { old_at, new_at, pieces: vec![change] }],
            added: new.len(),
            removed: old.len(),
            last: (old_at + old.len()).max(new_at + new.len()),
            is_part: true,
            ..Patch::default()
        }
    }

    /// Parses a unified diff of one file; returns `None` if the text is not one.
    pub fn parse(text: &str) -> Option<Patch> {
        let mut patch = Patch::default();
        // Lines that the open stretch still has, and how far its numbers are.
        let (mut old_left, mut new_left) = (0usize, 0usize);
        for line in text.lines() {
            if old_left + new_left == 0 {
                if let Some((old, new)) = line.strip_prefix("@@ -").and_then(ranges) {
                    (old_left, new_left) = (old.1, new.1);
                    let at =
                        |(first, count): (usize, usize)| if count == 0 { first } else { first.max(1) - 1 };
                    patch.stretches.push(Stretch { old_at: at(old), new_at: at(new), pieces: Vec::new() });
                    patch.last = patch.last.max(at(old) + old.1).max(at(new) + new.1);
                } else if line.starts_with('[') && !patch.stretches.is_empty() {
                    patch.below = Some(line.trim_matches(['[', ']', '…', ' ']).to_owned());
                }
                continue;
            }
            let pieces = &mut patch.stretches.last_mut()?.pieces;
            let (sign, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
            match sign {
                "-" if old_left > 0 => {
                    old_left -= 1;
                    patch.removed += 1;
                    match pieces.last_mut() {
                        Some(DiffSpan::Change { old, new }) if new.is_empty() => old.push(rest.to_owned()),
                        _ => pieces.push(DiffSpan::Change { old: vec![rest.to_owned()], new: Vec::new() }),
                    }
                }
                "+" if new_left > 0 => {
                    new_left -= 1;
                    patch.added += 1;
                    match pieces.last_mut() {
                        Some(DiffSpan::Change { new, .. }) => new.push(rest.to_owned()),
                        _ => pieces.push(DiffSpan::Change { old: Vec::new(), new: vec![rest.to_owned()] }),
                    }
                }
                " " if old_left > 0 && new_left > 0 => {
                    old_left -= 1;
                    new_left -= 1;
                    match pieces.last_mut() {
                        Some(DiffSpan::Same(same)) => same.push(rest.to_owned()),
                        _ => pieces.push(DiffSpan::Same(vec![rest.to_owned()])),
                    }
                }
                "\\" => {}
                _ => {
                    // Cut off in the middle.
                    patch.below = Some(line.trim_matches(['[', ']', '…', ' ']).to_owned());
                    break;
                }
            }
        }
        (!patch.stretches.is_empty()).then_some(patch)
    }

    /// Returns one part for each hunk, or several of about `most` lines for a long one, each with whether it
    /// continues the part before it.
    pub fn parts(self, most: usize) -> Vec<(Patch, bool)> {
        let mut parts: Vec<(Patch, bool)> = Vec::new();
        let part = |old_at: usize, new_at: usize| Patch {
            stretches: vec![Stretch { old_at, new_at, pieces: Vec::new() }],
            last: self.last,
            show_cr: self.show_cr,
            is_part: true,
            ..Patch::default()
        };
        for stretch in &self.stretches {
            let (mut old_at, mut new_at) = (stretch.old_at, stretch.new_at);
            parts.push((part(old_at, new_at), false));
            for piece in stretch.pieces.iter().flat_map(|piece| piece.split(most.div_ceil(2).max(1))) {
                if parts.last().is_some_and(|(part, _)| part.len() >= most) {
                    parts.push((part(old_at, new_at), true));
                }
                let (old, new) = piece.counts();
                (old_at, new_at) = (old_at + old, new_at + new);
                if let Some((part, _)) = parts.last_mut() {
                    if matches!(piece, DiffSpan::Change { .. }) {
                        (part.removed, part.added) = (part.removed + old, part.added + new);
                    }
                    part.stretches[0].pieces.push(piece);
                }
            }
        }
        if parts.is_empty() && self.below.is_some() {
            parts.push((part(0, 0), false));
        }
        if let Some((first, _)) = parts.first_mut() {
            first.above.clone_from(&self.above);
        }
        if let Some((last, _)) = parts.last_mut() {
            last.below.clone_from(&self.below);
        }
        parts
    }

    /// `@@ -12,7 +12,9 @@` of the first hunk.
    pub fn place(&self) -> String {
        let Some(stretch) = self.stretches.first() else { return String::new() };
        let (old, new) =
            stretch.pieces.iter().map(DiffSpan::counts).fold((0, 0), |all, n| (all.0 + n.0, all.1 + n.1));
        let side = |at: usize, count: usize| format!("{},{count}", if count == 0 { at } else { at + 1 });
        format!("@@ -{} +{} @@", side(stretch.old_at, old), side(stretch.new_at, new))
    }

    /// All lines, those that are gone before those that came.
    pub fn all_lines(&self) -> impl Iterator<Item = &str> {
        self.stretches.iter().flat_map(|stretch| &stretch.pieces).flat_map(|piece| {
            let (first, second): (&[String], &[String]) = match piece {
                DiffSpan::Same(same) => (same, &[]),
                DiffSpan::Change { old, new } => (old, new),
            };
            first.iter().chain(second).map(String::as_str)
        })
    }

    /// Returns the first hunk as it appears in a patch.
    pub fn unified(&self) -> String {
        let mut text = self.place();
        let mut add = |sign: &str, lines: &[String]| {
            for line in lines {
                text.extend(["\n", sign, line]);
            }
        };
        for piece in self.stretches.iter().flat_map(|stretch| &stretch.pieces) {
            match piece {
                DiffSpan::Same(same) => add(" ", same),
                DiffSpan::Change { old, new } => {
                    add("-", old);
                    add("+", new);
                }
            }
        }
        text
    }

    /// Returns the number of lines, including context.
    pub fn len(&self) -> usize {
        let count = |piece: &DiffSpan| match piece {
            DiffSpan::Same(same) => same.len(),
            DiffSpan::Change { old, new } => old.len() + new.len(),
        };
        self.stretches.iter().flat_map(|stretch| &stretch.pieces).map(count).sum()
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// The lines of the old text that are shown, and those of the new one, for their colours.
    pub fn texts(&self) -> (String, String) {
        let (mut before, mut after) = (String::new(), String::new());
        let add = |text: &mut String, lines: &[String]| {
            for line in lines {
                text.push_str(line.trim_end_matches('\r'));
                text.push('\n');
            }
        };
        for piece in self.stretches.iter().flat_map(|stretch| &stretch.pieces) {
            match piece {
                DiffSpan::Same(same) => {
                    add(&mut before, same);
                    add(&mut after, same);
                }
                DiffSpan::Change { old, new } => {
                    add(&mut before, old);
                    add(&mut after, new);
                }
            }
        }
        (before, after)
    }
}

/// `12,3 +14,5 @@ …` as first line and count of both sides.
fn ranges(text: &str) -> Option<((usize, usize), (usize, usize))> {
    let (old, rest) = text.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let range = |text: &str| -> Option<(usize, usize)> {
        let (first, count) = text.split_once(',').unwrap_or((text, "1"));
        // A larger number is not a line number.
        let number = |text: &str| text.parse::<u32>().ok().map(|n| n as usize);
        Some((number(first)?, number(count)?))
    };
    Some((range(old)?, range(new)?))
}

/// The lines of a change, with the words marked that differ.
pub(super) fn marked(old: &[String], new: &[String], mark: bool) -> (Vec<MarkedLine>, Vec<MarkedLine>) {
    let plain = |lines: &[String]| lines.iter().map(|line| vec![(false, line.clone())]).collect();
    let bytes: usize = old.iter().chain(new).map(String::len).sum();
    if !mark || old.is_empty() || new.is_empty() || bytes > MAX_MARKED {
        return (plain(old), plain(new));
    }
    let (a, b): (Vec<&str>, Vec<&str>) =
        (old.iter().map(String::as_str).collect(), new.iter().map(String::as_str).collect());
    let (before, after) = marked_words(&a, &b);
    if before.len() == old.len() && after.len() == new.len() {
        (before, after)
    } else {
        (plain(old), plain(new))
    }
}
