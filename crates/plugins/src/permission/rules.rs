//! Rules and where they come from.

use aye_core::contract::judgement::Profile;
use aye_core::contract::record::GrantRecord;
use aye_core::contract::terms::Terms;
use aye_pattern::{Pattern, PatternError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The effect of a rule on a call.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ToolPermissionBehavior {
    /// It runs.
    Allow,
    /// The user is asked, every time.
    Ask,
    /// It does not run.
    Deny,
}

impl fmt::Display for ToolPermissionBehavior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ToolPermissionBehavior::Allow => "allow",
            ToolPermissionBehavior::Ask => "ask",
            ToolPermissionBehavior::Deny => "deny",
        })
    }
}

impl ToolPermissionBehavior {
    /// Returns the start of the sentence that names a rule: `blocked by rule …`.
    pub(super) fn verb(self) -> &'static str {
        match self {
            ToolPermissionBehavior::Allow => "allowed",
            ToolPermissionBehavior::Ask => "asked about",
            ToolPermissionBehavior::Deny => "blocked",
        }
    }
}

/// The layer that a rule belongs to. All layers are joined; none of them undoes another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layer {
    /// Comes with aye. Its allow rules cover only files that are inside the workspace and not secret.
    Shipped,
    /// Set by the administrator of the machine.
    Policy,
    /// The user's file.
    User,
    /// The project's file, used in a trusted folder only.
    Project,
    /// Given for this run: flags, the agent's spec, a check's line.
    Run,
    /// Granted by a user at a prompt.
    Grant,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Shipped => "shipped with aye",
            Layer::Policy => "this machine's policy",
            Layer::User => "user's rules",
            Layer::Project => "project's rules",
            Layer::Run => "given for this run",
            Layer::Grant => "granted at a prompt",
        })
    }
}

/// The origin of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSource {
    pub layer: Layer,
    /// The file, when it came from one.
    pub file: Option<String>,
    /// The line in it, counted from 1.
    pub line: Option<u64>,
    /// The grant of the ledger it was made from.
    pub grant: Option<GrantMark>,
}

/// The grant that a rule was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantMark {
    /// Its id in the ledger.
    pub id: String,
    /// Its uses are counted down: it is taken only when nothing else would do.
    pub is_limited: bool,
}

impl RuleSource {
    /// Returns the origin of a rule that is not in a file.
    pub fn of(layer: Layer) -> RuleSource {
        RuleSource { layer, file: None, line: None, grant: None }
    }

    /// Returns the order in which rules are preferred: files and flags first, then grants, then grants whose
    /// uses are counted down.
    pub(super) fn tier(&self) -> u8 {
        match &self.grant {
            Some(grant) if grant.is_limited => 2,
            Some(_) => 1,
            None => 0,
        }
    }
}

impl fmt::Display for RuleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}"),
            (Some(file), None) => f.write_str(file),
            _ => write!(f, "{}", self.layer),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The calls it is about.
    pub pattern: Pattern,
    /// The effect on those calls.
    pub behavior: ToolPermissionBehavior,
    /// The origin of the rule.
    pub origin: RuleSource,
    /// On which terms it asks.
    pub terms: Terms,
    /// The profile that the kernel enforces on a command that the rule allows or asks about;
    /// [`Rule::profile`] has the default.
    pub sandbox: Option<Profile>,
    /// Variables that a command gets which the rule allows or asks about, beside those that every command gets.
    pub env: Vec<String>,
}

impl Rule {
    /// A rule without terms of its own.
    pub fn new(pattern: Pattern, behavior: ToolPermissionBehavior, origin: RuleSource) -> Rule {
        Rule { pattern, behavior, origin, terms: Terms::default(), sandbox: None, env: Vec::new() }
    }

    /// Returns the profile that the kernel enforces on a command that the rule allows. By default, a rule
    /// that comes with aye lets a command read, and any other rule lets it change the workspace.
    pub fn profile(&self) -> Profile {
        let default = if self.origin.layer == Layer::Shipped { Profile::Read } else { Profile::Workspace };
        self.sandbox.unwrap_or(default)
    }

    /// Creates a rule that a user grants at a prompt.
    ///
    /// # Errors
    /// The text is not a pattern.
    pub fn granted(pattern: &str) -> Result<Rule, PatternError> {
        let pattern = Pattern::parse(pattern)?;
        Ok(Rule::new(pattern, ToolPermissionBehavior::Allow, RuleSource::of(Layer::Grant)))
    }
}

/// All rules that hold, of every layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuleSet {
    /// Shared: the set is copied for every step and call.
    rules: Vec<Arc<Rule>>,
    default: Option<ToolPermissionBehavior>,
    refused: Option<String>,
}

impl RuleSet {
    /// No rules: everything asks.
    pub fn new() -> RuleSet {
        RuleSet::default()
    }

    /// Adds a rule. Two rules with the same pattern are both kept.
    pub fn push(&mut self, rule: Rule) {
        self.rules.push(Arc::new(rule));
    }

    /// Adds a rule that a user granted at a prompt. It never beats a deny or an ask.
    ///
    /// # Errors
    /// The text is not a pattern.
    pub fn grant(&mut self, pattern: &str) -> Result<(), PatternError> {
        self.push(Rule::granted(pattern)?);
        Ok(())
    }

    /// Adds a grant of the ledger; verdicts name it by its id.
    ///
    /// # Errors
    /// The grant's pattern is invalid.
    pub fn grant_of(&mut self, grant: &GrantRecord) -> Result<(), PatternError> {
        let mut rule = Rule::granted(&grant.pattern)?;
        rule.origin.grant = Some(GrantMark { id: grant.id.clone(), is_limited: grant.max_uses.is_some() });
        rule.sandbox = grant.sandbox;
        self.push(rule);
        Ok(())
    }

    /// The same rules without the grants of the ledger.
    #[must_use]
    pub fn without_grants(&self) -> RuleSet {
        let mut set = self.clone();
        set.rules.retain(|rule| rule.origin.grant.is_none());
        set
    }

    /// The same rules without the grants whose uses are counted down.
    #[must_use]
    pub fn without_limited(&self) -> RuleSet {
        let mut set = self.clone();
        set.rules.retain(|rule| rule.origin.tier() < 2);
        set
    }

    /// The same rules with only those allows that are shipped, all of which only read in a shell, and no default.
    #[must_use]
    pub fn with_shipped_allows(&self) -> RuleSet {
        let mut set = self.clone();
        set.default = None;
        set.rules.retain(|rule| {
            rule.behavior != ToolPermissionBehavior::Allow || rule.origin.layer == Layer::Shipped
        });
        set
    }

    /// The rules of one behaviour.
    #[must_use]
    pub fn only(&self, behavior: ToolPermissionBehavior) -> RuleSet {
        let rules = self.rules.iter().filter(|rule| rule.behavior == behavior).cloned().collect();
        RuleSet { rules, ..RuleSet::default() }
    }

    /// Adds all rules of another set. Of two defaults the stricter one applies.
    pub fn join(&mut self, other: RuleSet) {
        self.rules.extend(other.rules);
        self.default = self.default.max(other.default);
        if self.refused.is_none() {
            self.refused = other.refused;
        }
    }

    /// Sets what happens to calls that no rule matches.
    pub fn set_default(&mut self, behavior: ToolPermissionBehavior) {
        self.default = Some(behavior);
    }

    /// Returns the behaviour for calls that no rule matches: ask, unless set otherwise.
    pub fn default_behavior(&self) -> ToolPermissionBehavior {
        self.default.unwrap_or(ToolPermissionBehavior::Ask)
    }

    /// Marks that a file of rules could not be read: from now on everything that is not denied asks.
    pub fn refuse(&mut self, why: impl Into<String>) {
        if self.refused.is_none() {
            self.refused = Some(why.into());
        }
    }

    /// Why everything asks, when a file of rules could not be read.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// The rules, in the order they were added.
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// The tools of `names` that a deny without conditions takes away from the model.
    pub fn hidden_tools<S: AsRef<str>>(&self, names: &[S]) -> Vec<String> {
        let is_hidden = |name: &str| {
            self.rules.iter().any(|rule| {
                rule.behavior == ToolPermissionBehavior::Deny
                    && rule.pattern.is_unconditional()
                    && rule.pattern.matches_tool(name)
            })
        };
        names.iter().map(AsRef::as_ref).filter(|name| is_hidden(name)).map(str::to_owned).collect()
    }

    /// Returns true if a rule of this behaviour applies to a tool, either as a whole or with conditions on
    /// its arguments.
    pub fn has(&self, behavior: ToolPermissionBehavior, tool: &str) -> bool {
        self.rules.iter().any(|rule| rule.behavior == behavior && rule.pattern.matches_tool(tool))
    }

    /// Returns whether a rule that does not come with aye denies calls of a tool or asks about them.
    pub(super) fn restricts_own(&self, tool: &str) -> bool {
        self.rules.iter().any(|rule| {
            rule.behavior != ToolPermissionBehavior::Allow
                && rule.origin.layer != Layer::Shipped
                && rule.pattern.matches_tool(tool)
        })
    }
}

/// What is wrong with a rule, and what was expected instead.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct InvalidRule(pub(super) String);

impl From<&str> for InvalidRule {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}
