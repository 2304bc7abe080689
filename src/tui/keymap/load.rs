//! Reads key files; every complaint names the file and the line.

use std::collections::HashMap;
use std::ops::Range;

use toml::de::DeTable;

use super::{Action, Chord, Keymap, Place};

/// The keys that the program comes with.
const EMBEDDED: &str = include_str!("../keymap.toml");

/// Why a key file was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct KeymapError {
    /// The file as the caller named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong and what would be right.
    pub what: String,
}

impl Keymap {
    /// The keys that the program comes with.
    pub fn embedded() -> Keymap {
        let mut keymap = Keymap { bindings: HashMap::new(), order: Vec::new() };
        keymap.lay_over("keymap.toml", EMBEDDED).expect("the embedded keys are read by a test");
        keymap
    }

    /// The keys that the program comes with, and a person's own over them. `file` is what errors call it.
    ///
    /// # Errors
    /// The first mistake; nothing of the file is used then.
    pub fn with_file(file: &str, text: &str) -> Result<Keymap, KeymapError> {
        let mut keymap = Keymap::embedded();
        keymap.lay_over(file, text)?;
        Ok(keymap)
    }

    fn lay_over(&mut self, file: &str, text: &str) -> Result<(), KeymapError> {
        let error = |at: Range<usize>, what: String| {
            let before = text.get(..at.start).unwrap_or(text);
            KeymapError { file: file.to_owned(), line: before.matches('\n').count() + 1, what }
        };
        let parsed = DeTable::parse(text)
            .map_err(|problem| error(problem.span().unwrap_or(0..0), problem.message().replace('\n', " ")))?;
        let mut seen: HashMap<(Place, Chord), String> = HashMap::new();
        for (table, entries) in parsed.get_ref() {
            let Some(place) = Place::from_name(table.get_ref()) else {
                let what = format!(
                    "unknown table '{}'; there are global, composer, vim, card, list and viewer",
                    table.get_ref()
                );
                return Err(error(table.span(), what));
            };
            let Some(entries) = entries.get_ref().as_table() else {
                return Err(error(table.span(), format!("'{}' must be a table of keys", place.name())));
            };
            // Key files are read in the order they are written, so that the help lists keys in that order.
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| key.span().start);
            for (key, value) in entries {
                let name = key.get_ref().as_ref();
                let Some(chord) = Chord::parse(name) else {
                    let what = format!(
                        "'{name}' is not a key; write for example ctrl-x, alt-enter, shift-tab or f5"
                    );
                    return Err(error(key.span(), what));
                };
                if let Some(first) = seen.insert((place, chord), name.to_owned()) {
                    let what = format!("'{name}' is the same key as '{first}' in [{}]", place.name());
                    return Err(error(key.span(), what));
                }
                let Some(wanted) = value.get_ref().as_str() else {
                    return Err(error(value.span(), format!("'{name}' must name an action in quotes")));
                };
                if wanted == "none" {
                    self.bindings.remove(&(place, chord));
                    continue;
                }
                let Some(action) = Action::from_name(wanted) else {
                    let what = format!("unknown action '{wanted}'{}", nearest(wanted, place));
                    return Err(error(value.span(), what));
                };
                if !action.belongs_to(place) {
                    let what =
                        format!("'{wanted}' means nothing in [{}]{}", place.name(), nearest(wanted, place));
                    return Err(error(value.span(), what));
                }
                let says_yes = matches!(action, Action::Allow | Action::Grant | Action::RunAgain);
                if says_yes && chord.is_reflex() {
                    let what =
                        format!("'{name}' is pressed without looking and cannot be '{wanted}'; use a letter");
                    return Err(error(key.span(), what));
                }
                if self.bindings.insert((place, chord), action).is_none() {
                    self.order.push((place, chord));
                }
            }
        }
        Ok(())
    }
}

/// A hint: the action of that place whose name begins most like the wrong one.
fn nearest(name: &str, place: Place) -> String {
    let common = |other: &str| name.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let near = Action::ALL
        .iter()
        .filter(|action| action.belongs_to(place) && action.name() != name)
        .map(|action| action.name())
        .max_by_key(|known| common(known));
    near.filter(|known| common(known) > 2)
        .map(|known| format!("; did you mean '{known}'?"))
        .unwrap_or_default()
}
