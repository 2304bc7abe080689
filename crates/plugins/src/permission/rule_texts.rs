//! Rules given as texts, each checked as a rule of a file is.

use super::names::check_name;
use super::reachable::check_reach;
use super::rules::{Layer, Rule, RuleSet, RuleSource, ToolPermissionBehavior};
use aye_pattern::{Pattern, PatternError};

impl RuleSet {
    /// Rules given as pattern texts, as flags and the check protocol do.
    ///
    /// # Errors
    /// When a text is not a pattern, or would deny or ask under the misspelt name of a tool or in a form that never
    /// matches.
    pub fn from_patterns<S: AsRef<str>>(
        layer: Layer,
        behavior: ToolPermissionBehavior,
        patterns: impl IntoIterator<Item = S>,
    ) -> Result<RuleSet, PatternError> {
        let mut set = RuleSet::new();
        for pattern in patterns {
            let text = pattern.as_ref();
            let pattern = Pattern::parse(text)?;
            let checked = check_name(&pattern, behavior).and_then(|()| check_reach(&pattern, behavior));
            checked.map_err(|why| PatternError { position: 0, message: why.0, pattern: text.to_owned() })?;
            set.push(Rule::new(pattern, behavior, RuleSource::of(layer)));
        }
        Ok(set)
    }

    /// The run's own layer: `--allowed-tools` and `--disallowed-tools`.
    ///
    /// # Errors
    /// When a text is not a pattern.
    pub fn from_flags<S: AsRef<str>>(allowed: &[S], disallowed: &[S]) -> Result<RuleSet, PatternError> {
        let mut set = RuleSet::from_patterns(Layer::Run, ToolPermissionBehavior::Deny, disallowed)?;
        set.join(RuleSet::from_patterns(Layer::Run, ToolPermissionBehavior::Allow, allowed)?);
        Ok(set)
    }
}
