//! Whether a rule can match any call at all, and what it would not find: a rule that protects nothing looks like one that
//! does.

use super::command_match::matchers;
use super::evaluate::{CallRequest, SHELL_TOOL, VerdictKind, evaluate, known_primary};
use super::names::BUILT_IN;
use super::rules::{InvalidRule, Layer, Rule, RuleSet, ToolPermissionBehavior as Behavior};
use super::shell::without_remedy;
use aye_pattern::{Args, Matcher, PathSegment, Pattern};
use serde::Serialize;
use serde_json::json;
use std::path::Path;

/// The arguments that the tools accept. A condition on any other matches no call.
pub const ARGUMENTS: &[(&str, &[&str])] = &[
    ("Bash", &["command", "timeout", "description", "run_in_background", "tty", "outside", "reason"]),
    ("BashInput", &["bash_id", "text"]),
    ("BashOutput", &["bash_id", "filter"]),
    ("KillShell", &["shell_id"]),
    ("Read", &["file_path", "offset", "limit"]),
    ("Write", &["file_path", "content"]),
    ("Edit", &["file_path", "old_string", "new_string", "replace_all", "patch"]),
    ("List", &["path", "depth"]),
    ("Glob", &["pattern", "path"]),
    (
        "Grep",
        &["pattern", "path", "glob", "output_mode", "-i", "-n", "-A", "-B", "-C", "head_limit", "multiline"],
    ),
    ("WebFetch", &["url", "prompt"]),
];

/// The arguments that are paths.
fn is_path(tool: &str, key: &str) -> bool {
    matches!((tool, key), ("Read" | "Write" | "Edit", "file_path") | ("List" | "Glob" | "Grep", "path"))
}

/// Says whether a rule can match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleReport {
    pub rule: String,
    pub behavior: Behavior,
    pub origin: String,
    /// Whether some call matches it; `None` if that is not known.
    pub can_match: Option<bool>,
    /// Why none does, or what it does not find.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Refuses a rule that denies or asks and matches no call.
///
/// # Errors
/// Why, with the form that would match.
pub(super) fn check_reach(pattern: &Pattern, behavior: Behavior) -> Result<(), InvalidRule> {
    match never(pattern).filter(|_| behavior != Behavior::Allow) {
        Some(why) => Err(InvalidRule(format!("this rule can never match: {why}"))),
        None => Ok(()),
    }
}

/// Why a pattern matches no call of its tool, if that is certain.
fn never(pattern: &Pattern) -> Option<String> {
    let tool = pattern.exact_tool()?;
    if tool == "mcp__" {
        return Some("it names no server; write `mcp__SERVER` or `mcp__SERVER__TOOL`".into());
    }
    match pattern.args() {
        Args::Any => None,
        Args::Primary(matcher) => of_value(tool, known_primary(tool)?, matcher),
        Args::All(conditions) => conditions.iter().find_map(|condition| {
            let Some(PathSegment::Key(key)) = condition.path.0.first() else { return None };
            let known = ARGUMENTS.iter().find(|(name, _)| *name == tool).map(|(_, known)| *known);
            if let Some(known) = known.filter(|known| !known.contains(&key.as_str())) {
                let list = known.join("`, `");
                return Some(format!("{tool} has no argument `{key}`; its arguments are `{list}`"));
            }
            let is_whole = condition.path.single_key().is_some() && !condition.negated;
            is_whole.then(|| of_value(tool, key, &condition.matcher)).flatten()
        }),
    }
}

fn of_value(tool: &str, key: &str, matcher: &Matcher) -> Option<String> {
    match matcher {
        Matcher::Regex(_) | Matcher::Host(_) => None,
        Matcher::Exact(text) | Matcher::Glob { text, .. } if is_path(tool, key) => of_path(text),
        Matcher::Glob { text, regex, .. } if (tool, key) == ("WebFetch", "url") => {
            let starts = ["http://", "https://", "HTTP://", "HTTPS://", "Http", "Https"];
            let host = text.trim_start_matches("*.").split(['/', '*', ':']).next().unwrap_or_default();
            let host = if host.is_empty() { "example.com" } else { host };
            (!starts.iter().any(|start| regex.could_match(start))).then(|| {
                format!("a URL starts with https:// or http://; write `WebFetch(domain:{host})` or `WebFetch(https://{host}/*)`")
            })
        }
        Matcher::Exact(text) if (tool, key) == ("WebFetch", "url") => {
            let is_url = text.trim().get(..4).is_some_and(|start| start.eq_ignore_ascii_case("http"));
            (!is_url).then(|| "a URL starts with https:// or http://; write `WebFetch(domain:HOST)`".into())
        }
        Matcher::Exact(_) | Matcher::Glob { .. } => None,
    }
}

/// Paths are compared after `.`, `..` and doubled slashes are resolved, so none of them is left to match.
fn of_path(text: &str) -> Option<String> {
    let (root, rest) = match text.trim_start_matches('/') {
        rest if rest.len() < text.len() => ("/", rest),
        rest => ("", rest),
    };
    let parts: Vec<&str> = rest.trim_end_matches('/').split('/').collect();
    let leading = parts.iter().take_while(|part| **part == ".").count();
    let mut kept: Vec<&str> = Vec::new();
    let (mut is_above, mut is_changed) = (false, false);
    for part in parts.iter().skip(leading) {
        match *part {
            "" | "." if parts.len() > 1 => is_changed = true,
            ".." => {
                is_changed = true;
                is_above |= kept.pop().is_none();
            }
            part => kept.push(part),
        }
    }
    let plain = format!("{root}{}", kept.join("/"));
    if is_above && root.is_empty() {
        return Some("paths are compared after `..` is resolved; write the absolute path, or one that starts with `~/`".into());
    }
    is_changed.then(|| format!("paths are compared after `.` and `..` are resolved; write `{plain}`"))
}

impl RuleSet {
    /// Says of each rule that does not come with aye whether it can match. `knows`: a tool that does not come with aye
    /// exists.
    pub fn reports(&self, knows: impl Fn(&str) -> bool) -> Vec<RuleReport> {
        let own = self.rules().iter().filter(|rule| rule.origin.layer != Layer::Shipped);
        own.map(|rule| report(rule, &knows)).collect()
    }
}

impl RuleSet {
    /// Returns a warning for each rule of the user's or the project's that can match nothing, or does not find each
    /// spelling of what it denies. Rules about unknown tools are left to [`RuleSet::unknown_tools`].
    pub fn gaps(&self, knows: impl Fn(&str) -> bool) -> Vec<String> {
        let own = self.rules().iter().filter(|rule| rule.origin.layer != Layer::Shipped);
        let is_known = |rule: &&std::sync::Arc<Rule>| {
            rule.pattern.exact_tool().is_none_or(|name| BUILT_IN.contains(&name) || knows(name))
        };
        let gap = |rule: &std::sync::Arc<Rule>| {
            let RuleReport { can_match, why, .. } = report(rule, &knows);
            let is_gap = can_match == Some(false) || rule.behavior != Behavior::Allow;
            let why = why.filter(|_| is_gap)?;
            Some(format!("{}: rule `{}`: {why}", rule.origin, rule.pattern))
        };
        own.filter(is_known).filter_map(gap).collect()
    }
}

fn report(rule: &Rule, knows: &dyn Fn(&str) -> bool) -> RuleReport {
    let (can_match, why) = reach(rule, knows);
    RuleReport {
        rule: rule.pattern.to_string(),
        behavior: rule.behavior,
        origin: rule.origin.to_string(),
        can_match,
        why,
    }
}

fn reach(rule: &Rule, knows: &dyn Fn(&str) -> bool) -> (Option<bool>, Option<String>) {
    let pattern = &rule.pattern;
    if let Some(why) = never(pattern) {
        return (Some(false), Some(why));
    }
    let is_known = |name: &str| BUILT_IN.contains(&name) || knows(name);
    if let Some(name) = pattern.exact_tool()
        && !is_known(name)
    {
        return (Some(false), Some(format!("there is no tool `{name}`")));
    }
    if !pattern.matches_tool(SHELL_TOOL) {
        return (Some(true), None);
    }
    let matchers = matchers(rule);
    let undecided = || matchers.iter().find_map(|matcher| matcher.undecided_options());
    let Some(matcher) = matchers.first() else { return (Some(true), None) };
    if matches!(matcher, Matcher::Regex(_)) || matchers.len() > 1 {
        let unknown = "its calls cannot be listed; examples under `match` show what it matches".to_owned();
        let why = undecided().filter(|_| rule.behavior != Behavior::Allow).unwrap_or(unknown);
        return (None, Some(why));
    }
    if rule.behavior != Behavior::Allow {
        return (Some(true), undecided());
    }
    let mut refused = None;
    for line in matcher.example_commands() {
        match try_alone(rule, &line) {
            Ok(()) => return (Some(true), None),
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    let why =
        refused.map(|why| format!("no command that it matches is allowed by it: {}", without_remedy(&why)));
    (Some(false), why)
}

/// Judges a command by one rule alone.
fn try_alone(rule: &Rule, line: &str) -> Result<(), String> {
    let mut alone = RuleSet::new();
    alone.push(rule.clone());
    let args = json!({ "command": line });
    let place = Path::new("/workspace");
    let question = CallRequest {
        tool: SHELL_TOOL,
        args: &args,
        cwd: place,
        workspace: place,
        home: None,
        primary: None,
    };
    let verdict = evaluate(&alone, &question);
    if verdict.decision == VerdictKind::Allow { Ok(()) } else { Err(verdict.why) }
}

#[cfg(test)]
mod tests {
    use super::super::file::RuleFormat;
    use super::*;

    fn read(behavior: &str, rule: &str) -> Result<RuleSet, String> {
        let text = format!("rules:\n  - {{tool: '{rule}', behavior: {behavior}}}\n");
        RuleSet::read(&text, RuleFormat::Yaml, Layer::User, "p.yaml").map_err(|error| error.to_string())
    }

    #[test]
    fn a_deny_that_protects_nothing_is_refused_with_the_form_that_does() {
        for (rule, remedy) in [
            ("Read(../secret/**)", "write the absolute path"),
            ("Read(a/../secret)", "write `secret`"),
            ("Read(a/./secret)", "write `a/secret`"),
            ("Read(a//secret/)", "write `a/secret`"),
            ("Edit(file_path ~ \"/etc/../root\")", "write `/root`"),
            ("Read(file_path = \"./a/../b\")", "write `b`"),
            ("Grep(path ~ \"../x\")", "write the absolute path"),
            ("Read(path ~ \"secret/**\")", "its arguments are `file_path`"),
            ("Bash(cmd ~ \"rm *\")", "Bash has no argument `cmd`"),
            ("WebFetch(evil.example)", "`WebFetch(domain:evil.example)`"),
            ("WebFetch(*.evil.example/*)", ""),
            ("WebFetch(url = \"evil.example\")", "domain:"),
            ("WebFetch(domain:https://evil.example)", "write only the host"),
            ("mcp__", "names no server"),
        ] {
            for behavior in ["deny", "ask"] {
                let refused = read(behavior, rule);
                if rule.starts_with("WebFetch(*") {
                    // A `*` in front may well be `https://`.
                    refused.unwrap();
                    continue;
                }
                let why = refused.expect_err(rule);
                assert!(why.starts_with("p.yaml:2: ") && why.contains(remedy), "{rule}: {why}");
            }
            if !rule.contains("https:") {
                read("allow", rule).unwrap();
            }
        }
        for rule in [
            "Read(secret)",
            "Read(secret/)",
            "Read(./secret/)",
            "Read(**/secret/)",
            "Read(//etc/x)",
            "Read(/)",
            "Read(.)",
            "Read(~/.ssh/**)",
            "Read(./.env)",
            "Read(.env.*)",
            "Read(file_path !~ \"../x\")",
            "Read(file_path =~ \"x\")",
            "WebFetch(domain:evil.example)",
            "WebFetch(https://x/*)",
            "WebFetch(http*)",
            "WebFetch(*evil*)",
            "mcp__github",
            "mcp__github__*",
            "Bash(a | b)",
            "Bash(> /dev/*)",
            "Bash(curl * | sh)",
            "Glob(../*)",
            "List(..x)",
            "Edit(new_string ~ \"*x*\")",
            "mcp__x__y(anything = \"1\")",
        ] {
            read("deny", rule).unwrap_or_else(|why| panic!("{rule}: {why}"));
        }
        assert!(
            RuleSet::from_flags(&[] as &[&str], &["Read(../x)"])
                .unwrap_err()
                .to_string()
                .contains("absolute")
        );
    }

    #[test]
    fn each_rule_is_reported() {
        let mut set = RuleSet::new();
        for (behavior, rule) in [
            ("allow", "Bash(npx eslint *)"),
            ("allow", "Bash(npx *)"),
            ("allow", "Bash(git *)"),
            ("allow", "Bash(a && b)"),
            ("allow", "Bash(docker compose *)"),
            ("allow", "Bash(docker exec *)"),
            ("allow", "Bash(command =~ \"^x\")"),
            ("allow", "Read(../x)"),
            ("allow", "Deploy"),
            ("allow", "mcp__here"),
            ("deny", "Bash(rm -rf *)"),
            ("deny", "Bash(foo -x *)"),
            ("deny", "Bash(command =~ \"^rm -r\")"),
            ("deny", "Read(secret/)"),
        ] {
            set.join(read(behavior, rule).unwrap());
        }
        let shown: Vec<_> = set
            .reports(|name| name == "mcp__here")
            .into_iter()
            .map(|report| (report.rule, report.can_match, report.why.is_some()))
            .collect();
        let want = [
            ("Bash(npx eslint *)", Some(true), false),
            ("Bash(npx *)", Some(false), true),
            ("Bash(git *)", Some(true), false),
            ("Bash(a && b)", Some(false), true),
            ("Bash(docker compose *)", Some(true), false),
            ("Bash(docker exec *)", Some(false), true),
            ("Bash(command =~ \"^x\")", None, true),
            ("Read(../x)", Some(false), true),
            ("Deploy", Some(false), true),
            ("mcp__here", Some(true), false),
            ("Bash(rm -rf *)", Some(true), false),
            ("Bash(foo -x *)", Some(true), true),
            ("Bash(command =~ \"^rm -r\")", None, true),
            ("Read(secret/)", Some(true), false),
        ];
        let want: Vec<_> = want.map(|(rule, can, why)| (rule.to_owned(), can, why)).into();
        assert_eq!(shown, want);
    }
}
