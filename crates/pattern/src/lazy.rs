//! Regular expressions that are compiled when they are first asked.
//!
//! The rules that come with aye hold about two hundred expressions; compiling them takes longer than everything else
//! at a start, and most calls ask a handful of them.

use aye_core::contract::spelling;
use regex::Regex;
use regex_automata::Input;
use regex_automata::hybrid::dfa::DFA;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A regular expression. Clones share what was compiled.
#[derive(Clone)]
pub struct LazyRegex(Arc<Inner>);

struct Inner {
    source: String,
    compiled: OnceLock<Regex>,
    /// For folded texts, if the source tells case. `None`: it cannot be compiled.
    folded: OnceLock<Option<Regex>>,
}

impl LazyRegex {
    /// Compiles now, so that a mistake is found now.
    pub(super) fn now(source: &str) -> Result<LazyRegex, regex::Error> {
        let compiled = OnceLock::from(Regex::new(source)?);
        Ok(LazyRegex(Arc::new(Inner { source: source.to_owned(), compiled, folded: OnceLock::new() })))
    }

    /// Compiles at the first use. The source must be known to be a regular expression of a sane size.
    pub(super) fn later(source: String) -> LazyRegex {
        LazyRegex(Arc::new(Inner { source, compiled: OnceLock::new(), folded: OnceLock::new() }))
    }

    fn regex(&self) -> &Regex {
        self.0.compiled.get_or_init(|| {
            Regex::new(&self.0.source).expect("the source was known to be a regular expression")
        })
    }

    /// True when it is found anywhere in `text`.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex().is_match(text)
    }

    /// True when some spelling of a folded text is matched ([`spelling::folded`]), as far as that is known.
    pub fn is_match_folded(&self, folded: &str) -> bool {
        if !self.is_case_sensitive() {
            return self.is_match(folded);
        }
        let regex = self.0.folded.get_or_init(|| Regex::new(&self.folded_source()).ok());
        regex.as_ref().is_none_or(|regex| regex.is_match(folded))
    }

    /// Returns whether the expression may match one spelling of a text and not another.
    pub fn is_case_sensitive(&self) -> bool {
        let mut is_escaped = false;
        self.0.source.chars().any(|c| {
            // An escaped letter is an anchor or a class.
            let is_letter = !c.is_ascii() || c.is_ascii_uppercase() && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_letter
        })
    }

    /// Returns the expression that matches folded texts.
    pub fn folded_source(&self) -> String {
        let source = self.0.source.as_str();
        if !self.is_case_sensitive() {
            return source.to_owned();
        }
        format!("(?i){}", spelling::folded_beyond_ascii(source))
    }

    /// Returns false if no text that starts with `start` can match.
    pub fn could_match(&self, start: &str) -> bool {
        // The automaton dies as soon as nothing can follow. One that cannot be built rules nothing out.
        let Ok(dfa) = DFA::new(&self.0.source) else { return true };
        let mut cache = dfa.create_cache();
        let Ok(mut state) = dfa.start_state_forward(&mut cache, &Input::new(start)) else { return true };
        for &byte in start.as_bytes() {
            if state.is_match() {
                return true;
            }
            match dfa.next_state(&mut cache, state, byte) {
                Ok(next) => state = next,
                Err(_) => return true,
            }
        }
        !state.is_dead()
    }

    pub fn as_str(&self) -> &str {
        &self.0.source
    }

    #[cfg(test)]
    pub(super) fn is_compiled(&self) -> bool {
        self.0.compiled.get().is_some()
    }
}

impl fmt::Debug for LazyRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyRegex").field(&self.0.source).finish()
    }
}
