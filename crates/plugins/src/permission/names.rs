//! Names of tools in rules: a deny under a misspelt name would protect nothing.

use super::rules::{InvalidRule, Rule, RuleSet, ToolPermissionBehavior as Behavior};
use aye_core::contract::near::distance;
use aye_pattern::Pattern;

/// Every tool that comes with aye, enabled or not.
pub const BUILT_IN: &[&str] = &[
    "Read",
    "Write",
    "Edit",
    "List",
    "Glob",
    "Grep",
    "Bash",
    "BashOutput",
    "BashInput",
    "KillShell",
    "WebFetch",
    "AskUser",
    "TodoWrite",
    "Memory",
    "ToolSearch",
    "skill",
    "load_skill_resource",
    "skill_script",
    "handoff",
    "render_a2ui",
];

/// A name with more differing letters is another name.
const MAX_DIFFERING: usize = 2;

/// Refuses a rule that denies or asks under a name which is nearly that of a tool.
///
/// # Errors
/// What is wrong, with the name that was probably meant.
pub(super) fn check_name(pattern: &Pattern, behavior: Behavior) -> Result<(), InvalidRule> {
    match pattern.exact_tool().filter(|_| behavior != Behavior::Allow).map(|name| (name, meant(name))) {
        Some((name, Some(meant))) => {
            let why = format!("unknown tool `{name}`; did you mean `{meant}`? Tool names are case-sensitive");
            Err(InvalidRule(why))
        }
        _ => Ok(()),
    }
}

/// Returns the tool that a wrong name probably means.
fn meant(name: &str) -> Option<&'static str> {
    if BUILT_IN.contains(&name) || name.starts_with("mcp__") || name.starts_with("agent_run_") {
        return None;
    }
    let near = BUILT_IN.iter().copied().filter(|tool| distance(tool, name) <= MAX_DIFFERING);
    near.min_by_key(|tool| distance(tool, name))
}

impl RuleSet {
    /// Returns a warning for each rule whose tool does not come with aye and is unknown. `knows` is called
    /// for tools that do not come with aye.
    pub fn unknown_tools(&self, knows: impl Fn(&str) -> bool) -> Vec<String> {
        let warning = |rule: &Rule| {
            let Some(name) = rule.pattern.exact_tool() else { return misspelt_case(rule) };
            if BUILT_IN.contains(&name) || knows(name) {
                return None;
            }
            let near = meant(name).map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
            Some(format!("{}: rule `{}` names an unknown tool{near}", rule.origin, rule.pattern))
        };
        self.rules().iter().filter_map(|rule| warning(rule)).collect()
    }
}

/// Returns a warning for a glob or regular expression that matches a tool only in lower case: `b*sh`.
fn misspelt_case(rule: &Rule) -> Option<String> {
    let matches = |name: &str| rule.pattern.matches_tool(name);
    if BUILT_IN.iter().any(|name| matches(name)) {
        return None;
    }
    let meant = BUILT_IN.iter().find(|name| matches(&name.to_lowercase()))?;
    Some(format!(
        "{}: rule `{}` matches no tool; did you mean `{meant}`? Tool names are case-sensitive",
        rule.origin, rule.pattern
    ))
}
