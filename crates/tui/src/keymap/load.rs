//! Reads key files; every error names the file and the line.

use std::collections::HashMap;
use std::ops::Range;

use toml::de::DeTable;

use super::chord::{MAX_SEQUENCES, written};
use super::{Action, Chord, KeyContext, Keymap};

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
    /// The problem, and the expected form.
    pub what: String,
}

impl Keymap {
    /// The keys that the program comes with.
    pub fn embedded() -> Keymap {
        let mut keymap = Keymap { bindings: HashMap::new(), order: Vec::new(), sequences: Vec::new() };
        // A test ensures that none of its keys conflict, so that no start has to check this.
        keymap.read("keymap.toml", EMBEDDED).expect("the embedded keys are read by a test");
        keymap
    }

    /// Returns the embedded keys, overridden by the user's own. `file` is the name of the file in errors.
    ///
    /// # Errors
    /// The first mistake; nothing of the file is used then.
    pub fn with_file(file: &str, text: &str) -> Result<Keymap, KeymapError> {
        let mut keymap = Keymap::embedded();
        // Checked after the whole file was read: a conflicting key may be removed further down.
        for (place, chord, span) in keymap.read(file, text)? {
            if let Some(what) = keymap.conflict(place, chord) {
                return Err(error(file, text, &span, what));
            }
        }
        Ok(keymap)
    }

    /// Adds a file's keys to the known ones. Returns the keys that it binds, with their positions.
    fn read(
        &mut self,
        file: &str,
        text: &str,
    ) -> Result<Vec<(KeyContext, Chord, Range<usize>)>, KeymapError> {
        let error = |at: Range<usize>, what: String| error(file, text, &at, what);
        let parsed = DeTable::parse(text)
            .map_err(|problem| error(problem.span().unwrap_or(0..0), problem.message().replace('\n', " ")))?;
        let mut seen: HashMap<(KeyContext, Chord), String> = HashMap::new();
        let mut own: Vec<(KeyContext, Chord, Range<usize>)> = Vec::new();
        for (table, entries) in parsed.get_ref() {
            let Some(place) = KeyContext::from_name(table.get_ref()) else {
                let what = format!(
                    "unknown table '{}'; expected global, composer, empty, vim, card, list or viewer",
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
                let Some(chords) = Chord::parse_all(name) else {
                    let what = format!(
                        "invalid key '{name}'; expected for example ctrl-x, alt-enter, shift-tab, f5 or \
                         \"ctrl-x ctrl-e\""
                    );
                    return Err(error(key.span(), what));
                };
                let chord = match self.chord_for(&chords) {
                    Ok(chord) => chord,
                    Err(what) => return Err(error(key.span(), what)),
                };
                if chords.len() > 1
                    && chords[0].writes()
                    && place != KeyContext::Card
                    && place != KeyContext::Vim
                {
                    let what = format!(
                        "'{name}' starts with a character that is typed in [{}]; start with ctrl- or alt-",
                        place.name()
                    );
                    return Err(error(key.span(), what));
                }
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
                    let what = format!(
                        "action '{wanted}' has no effect in [{}]{}",
                        place.name(),
                        nearest(wanted, place)
                    );
                    return Err(error(value.span(), what));
                }
                let approves =
                    matches!(action, Action::Allow | Action::AllowOutside | Action::Grant | Action::RunAgain);
                if approves && chords.last().is_some_and(|last| last.is_reflex()) {
                    let what =
                        format!("'{name}' is too easy to press by accident for '{wanted}'; use a letter");
                    return Err(error(key.span(), what));
                }
                if self.bindings.insert((place, chord), action).is_none() {
                    self.order.push((place, chord));
                }
                own.push((place, chord, key.span()));
            }
        }
        Ok(own)
    }

    /// Returns the chord that represents these keys.
    fn chord_for(&mut self, chords: &[Chord]) -> Result<Chord, String> {
        if let [chord] = chords {
            return Ok(*chord);
        }
        let known = self.sequences.iter().position(|known| known == chords);
        let number = known.unwrap_or(self.sequences.len());
        if number >= MAX_SEQUENCES {
            return Err(format!("more than {MAX_SEQUENCES} key sequences"));
        }
        if known.is_none() {
            self.sequences.push(chords.to_vec());
        }
        Ok(Chord::of_sequence(number))
    }

    /// Returns why a key bound here cannot be distinguished from the start of a sequence, or why a sequence
    /// could never be completed.
    fn conflict(&self, place: KeyContext, chord: Chord) -> Option<String> {
        let keys = |chord: Chord| match chord.sequence() {
            Some(number) => self.sequences.get(number).cloned().unwrap_or_default(),
            None => vec![chord],
        };
        let action = *self.bindings.get(&(place, chord))?;
        let mine = keys(chord);
        let meets = |other: KeyContext| place.meets(other) || other.meets(place);
        let mut others: Vec<_> = self.order.iter().filter(|(other, _)| meets(*other)).collect();
        others.sort_by_key(|(other, _)| *other);
        for (other, bound) in others {
            let Some(theirs) = self.bindings.get(&(*other, *bound)) else { continue };
            let (their_keys, away) = (keys(*bound), "remove one of them with \"none\"");
            if their_keys.len() < mine.len() && mine.starts_with(&their_keys) {
                return Some(format!(
                    "'{}' starts with '{}', which is '{}' in [{}]; {away}",
                    written(&mine),
                    written(&their_keys),
                    theirs.name(),
                    other.name()
                ));
            }
            if mine.len() < their_keys.len() && their_keys.starts_with(&mine) {
                return Some(format!(
                    "'{}' is '{}' here, and '{}' in [{}] starts with it; {away}",
                    written(&mine),
                    action.name(),
                    written(&their_keys),
                    other.name()
                ));
            }
        }
        None
    }
}

fn error(file: &str, text: &str, at: &Range<usize>, what: String) -> KeymapError {
    let before = text.get(..at.start).unwrap_or(text);
    KeymapError { file: file.to_owned(), line: before.matches('\n').count() + 1, what }
}

/// Returns a hint: the action of that context that shares the longest prefix with the wrong name.
fn nearest(name: &str, place: KeyContext) -> String {
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
