//! The worker thread that parses.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use syntect::parsing::{ParseState, ScopeStack};

use super::scopes::Roles;
use super::{HighlightState, Pieces, SYNTAXES};

/// Longer lines are data, not code; parsing them can take seconds.
const MAX_LINE: usize = 2_000;
/// Longer blocks stay plain from here on.
const MAX_LINES: usize = 20_000;

/// A request to the worker.
pub(super) enum HighlightJob {
    /// Complete lines of a block; `open` names its language.
    Lines { id: u64, open: Option<String>, text: String, found: Arc<Mutex<HighlightState>> },
    /// The block is gone.
    Close { id: u64 },
}

/// The state of the open blocks.
#[derive(Default)]
pub(super) struct Worker {
    roles: Roles,
    open: HashMap<u64, Open>,
}

struct Open {
    state: ParseState,
    stack: ScopeStack,
    lines: usize,
}

impl Worker {
    /// Runs a job and returns whether there is something new to display.
    pub(super) fn work(&mut self, job: HighlightJob) -> bool {
        match job {
            HighlightJob::Close { id } => {
                self.open.remove(&id);
                false
            }
            HighlightJob::Lines { id, open, text, found } => {
                // A syntax definition that makes the parser panic costs the colours of this block, nothing more.
                let lines = catch_unwind(AssertUnwindSafe(|| self.lines(id, open.as_deref(), &text)));
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                if let Ok(Some(lines)) = lines {
                    found.lines.extend(lines);
                } else {
                    found.given_up = true;
                    self.open.remove(&id);
                }
                true
            }
        }
    }

    fn lines(&mut self, id: u64, language: Option<&str>, text: &str) -> Option<Vec<Pieces>> {
        let open = match self.open.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let syntax = SYNTAXES.find_syntax_by_token(language?)?;
                let (state, stack) = (ParseState::new(syntax), ScopeStack::new());
                place.insert(Open { state, stack, lines: 0 })
            }
        };
        let mut all = Vec::new();
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            open.lines += 1;
            if open.lines > MAX_LINES {
                return None;
            }
            if line.len() > MAX_LINE {
                all.push(Pieces::new());
                continue;
            }
            let with_end = format!("{line}\n");
            let ops = open.state.parse_line(&with_end, &SYNTAXES).ok()?;
            let mut pieces = Pieces::new();
            let mut start = 0;
            for (at, op) in ops {
                let at = at.min(line.len());
                add(&mut pieces, self.roles.of(open.stack.as_slice()), at - start.min(at));
                start = start.max(at);
                open.stack.apply(&op).ok()?;
            }
            add(&mut pieces, self.roles.of(open.stack.as_slice()), line.len() - start);
            all.push(pieces);
        }
        Some(all)
    }
}

/// Adds a number of bytes of a role; text without one is plain.
fn add(pieces: &mut Pieces, role: Option<crate::theme::Role>, bytes: usize) {
    let role = role.unwrap_or(crate::theme::Role::Text);
    match pieces.last_mut() {
        _ if bytes == 0 => {}
        Some((last, length)) if *last == role => *length += bytes as u32,
        _ => pieces.push((role, bytes as u32)),
    }
}
