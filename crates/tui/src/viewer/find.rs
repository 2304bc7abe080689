//! Text search, ignoring case, from the current position and wrapping around.

use regex::{Regex, RegexBuilder};

use super::{RowPosition, Scene, Viewer, source};

/// A search, with its last match.
#[derive(Clone, Debug)]
pub struct Search {
    pub query: String,
    pattern: Regex,
    /// The row that was gone to.
    pub here: Option<RowPosition>,
}

impl Search {
    /// Creates a search; returns `None` if the query is empty, or too large to search for.
    pub fn new(query: &str) -> Option<Search> {
        let text = regex::escape(query.trim());
        let pattern = RegexBuilder::new(&text).case_insensitive(true).build().ok()?;
        (!text.is_empty()).then(|| Search { query: query.trim().to_owned(), pattern, here: None })
    }

    /// Returns the byte ranges of the matches in a row.
    pub fn hits(&self, row: &str) -> Vec<std::ops::Range<usize>> {
        self.pattern.find_iter(row).map(|hit| hit.range()).collect()
    }
}

/// The result of a step of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchStep {
    /// Further on.
    Here,
    /// Round the end.
    Wrapped,
    Nowhere,
}

impl Viewer {
    /// Moves to the next row that contains the search text.
    pub fn find(&mut self, scene: &Scene<'_>, forward: bool) -> SearchStep {
        let Some(search) = self.search.clone() else { return SearchStep::Nowhere };
        let count = scene.transcript.entries().len();
        let from = match search.here {
            Some(row_position) => (scene.index(row_position.id), Some(row_position.row)),
            None => (self.arrive(scene).0, None),
        };
        // The entry of the current match comes twice: the rows after the match first, those before it last.
        for step in 0..=count {
            let index = if forward {
                (from.0 + step) % count.max(1)
            } else {
                (from.0 + count * 2 - step) % count.max(1)
            };
            let Some(entry) = scene.transcript.entries().get(index) else { continue };
            if !source::pieces(&entry.kind).iter().any(|piece| search.pattern.is_match(piece)) {
                continue;
            }
            let id = entry.id;
            if self.is_folded(id) {
                self.folds.insert(id, false);
            }
            let rows = self.texts(scene, index);
            let mut hits: Vec<usize> =
                (0..rows.len()).filter(|row| search.pattern.is_match(&rows[*row])).collect();
            if hits.is_empty() {
                // The match spans a line break: the entry contains it, none of its rows does.
                hits.push(0);
            }
            let is_first = step == 0;
            let is_again = step == count && count > 0;
            let row = match (from.1, forward) {
                (Some(here), true) if is_first => hits.iter().find(|row| **row > here),
                (Some(here), false) if is_first => hits.iter().rev().find(|row| **row < here),
                (Some(_) | None, true) => hits.first(),
                (Some(_) | None, false) => hits.last(),
            };
            let Some(row) = row.copied() else { continue };
            self.show(scene, index, row);
            if let Some(search) = &mut self.search {
                search.here = Some(RowPosition { id, row });
            }
            let has_wrapped = is_again || (forward && index < from.0) || (!forward && index > from.0);
            return if has_wrapped { SearchStep::Wrapped } else { SearchStep::Here };
        }
        SearchStep::Nowhere
    }
}
