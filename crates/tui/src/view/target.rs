//! Targets of a click below the transcript: a key, a row of a list, or a position in the text.

use std::ops::Range;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Line;

use super::super::wrap::width;
use super::layout_cache::text_of;

/// The effect of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Press {
    /// The same as this key.
    Key(KeyEvent),
    /// Chooses this row of the list that is open; a chosen one is taken.
    Row(usize),
    /// Puts the caret into this row of the text that is written.
    Text(usize),
    /// Selects this one of the queued messages; one that is selected, or is the only one, is taken out of the
    /// queue.
    Queued(usize),
}

/// A part of a picture that can be clicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClickTarget {
    /// The row, from the first of the picture.
    pub row: u16,
    pub columns: Range<u16>,
    pub press: Press,
}

/// A key as it is written on the screen, and what is pressed by a click on it.
#[derive(Clone, Debug)]
pub struct Hint {
    /// The text as it appears on one row.
    pub text: String,
    /// The key; two for a pair of arrows, the first of which has the first cell. Empty for a hint that
    /// only informs.
    pub keys: Vec<KeyEvent>,
}

impl Hint {
    /// A key that may be bound to an action.
    pub fn new(text: impl Into<String>, key: Option<KeyEvent>) -> Hint {
        Hint { text: text.into(), keys: key.into_iter().collect() }
    }

    /// One that is not bound to an action.
    pub fn plain(text: impl Into<String>, keys: &[KeyCode]) -> Hint {
        let keys = keys.iter().map(|code| KeyEvent::new(*code, KeyModifiers::NONE)).collect();
        Hint { text: text.into(), keys }
    }
}

/// Returns the click targets of hints in rows that contain them one after another.
pub(super) fn of_hints(lines: &[Line<'_>], hints: &[Hint]) -> Vec<ClickTarget> {
    let texts: Vec<String> = lines.iter().map(text_of).collect();
    let mut targets = Vec::new();
    let (mut row, mut from) = (0, 0);
    for hint in hints {
        let found = (row..texts.len()).find_map(|at| {
            let start = if at == row { from } else { 0 };
            texts[at].get(start..)?.find(&hint.text).map(|found| (at, start + found))
        });
        let Some((at, start)) = found else { continue };
        (row, from) = (at, start + hint.text.len());
        let (left, right) = (width(&texts[at][..start]) as u16, width(&texts[at][..from]) as u16);
        let mut add = |columns, key| {
            targets.push(ClickTarget { row: at as u16, columns, press: Press::Key(key) });
        };
        match hint.keys[..] {
            [] => {}
            [key] => add(left..right, key),
            // `↑↓ which`: each arrow has a cell.
            [first, second, ..] => {
                add(left..left + 1, first);
                add(left + 1..right, second);
            }
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_hint_is_clickable() {
        let lines = [Line::from("  [y] allow  [n]"), Line::from("no  ↑↓ which")];
        let key = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE);
        let hints = [
            Hint::new("[y] allow", Some(key('y'))),
            Hint::new("[n]", Some(key('n'))),
            Hint::new("told only", None),
            Hint::plain("↑↓ which", &[KeyCode::Up, KeyCode::Down]),
        ];
        let found: Vec<_> = of_hints(&lines, &hints)
            .into_iter()
            .map(|target| {
                let Press::Key(key) = target.press else { panic!("{target:?}") };
                (target.row, target.columns, key.code)
            })
            .collect();
        assert_eq!(
            found,
            [
                (0, 2..11, KeyCode::Char('y')),
                (0, 13..16, KeyCode::Char('n')),
                (1, 4..5, KeyCode::Up),
                (1, 5..12, KeyCode::Down),
            ]
        );
    }
}
