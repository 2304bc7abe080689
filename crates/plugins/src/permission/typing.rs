//! Judges the text typed into a command that runs in a terminal: the kernel confines the text to what
//! confines the command.

use serde_json::Value;

use super::evaluate::{AskKind, CallRequest, SHELL_TOOL, Verdict, VerdictKind};
use super::mode::Mode;
use super::rules::RuleSet;
use aye_core::contract::display::visible_line;
use aye_core::contract::judgement::Profile;
use aye_core::contract::tool::ToolResult;
use aye_core::phase::ToolCallInfo;
use aye_core::state::{KeyScope, MergeStrategy, StateKey};

/// The tool that types.
pub(super) const INPUT_TOOL: &str = "BashInput";

/// Commands that a conversation remembers.
const MAX_REMEMBERED: usize = 100;

/// The profiles of the conversation's commands that run in a terminal, by id, latest last.
pub(super) struct TerminalProfiles;

impl StateKey for TerminalProfiles {
    const KEY: &'static str = "permission.terminals";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = Vec<(String, Profile)>;
    type Update = (String, Profile);

    fn apply(value: &mut Self::Value, update: Self::Update) {
        value.retain(|(id, _)| *id != update.0);
        value.push(update);
        value.drain(..value.len().saturating_sub(MAX_REMEMBERED));
    }
}

/// The command in a terminal that a call started, and its profile.
pub(super) fn started(info: &ToolCallInfo, result: &ToolResult) -> Option<(String, Profile)> {
    let is_in_terminal =
        info.call.name == SHELL_TOOL && info.call.arguments.get("tty") == Some(&Value::Bool(true));
    let id = result.details.as_ref()?.get("background")?.as_str()?;
    Some((id.to_owned(), result.profile()?)).filter(|_| is_in_terminal)
}

/// The verdict about what is typed, with the profile of the command that reads it. Mode `auto` covers a command in the
/// sandbox, unless rules of the user's own deny commands or ask about some: what is typed may be one.
pub(super) fn typed(
    verdict: Verdict,
    question: &CallRequest<'_>,
    known: &[(String, Profile)],
    rules: &RuleSet,
    mode: Mode,
) -> Verdict {
    if question.tool != INPUT_TOOL {
        return verdict;
    }
    let kind = match verdict.decision {
        VerdictKind::Ask(kind) => kind,
        VerdictKind::Allow
            if mode == Mode::Yolo && verdict.rule.is_none() && rules.restricts_own(SHELL_TOOL) =>
        {
            let why = "the input may be a command that a rule denies or asks about";
            return Verdict::new(VerdictKind::Ask(AskKind::Undecided), why);
        }
        VerdictKind::Allow | VerdictKind::Deny | VerdictKind::Error => return verdict,
    };
    let id = question.args.get("bash_id").and_then(Value::as_str).unwrap_or_default();
    let profile = known.iter().find(|(known, _)| known == id).map(|(_, profile)| *profile);
    let id = visible_line(id);
    let place = match profile {
        Some(Profile::Outside) => format!("{id} runs outside the sandbox"),
        Some(profile) => format!("{id} runs in the sandbox ({profile})"),
        None => format!("it is unknown whether {id} runs in the sandbox"),
    };
    let is_kept = matches!(profile, Some(Profile::Read | Profile::Workspace));
    if mode == Mode::Auto && kind == AskKind::Default && is_kept && !rules.restricts_own(SHELL_TOOL) {
        return Verdict::new(VerdictKind::Allow, format!("auto mode: {place}"));
    }
    Verdict { why: format!("{}; {place}", verdict.why), ..verdict }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::super::file::RuleFormat;
    use super::super::mode::evaluate_in;
    use super::super::rules::Layer;
    use super::super::shipped::shipped_rules;
    use super::*;

    fn judge(text: &str, mode: Mode, id: &str) -> Verdict {
        let mut rules = shipped_rules();
        rules.join(
            RuleSet::read(text, RuleFormat::Yaml, Layer::User, "permissions.yaml").expect("it is valid"),
        );
        let args = json!({"bash_id": id, "text": "y\n"});
        let (cwd, workspace) = (Path::new("/w"), Path::new("/w"));
        let question =
            CallRequest { tool: INPUT_TOOL, args: &args, cwd, workspace, home: None, primary: Some("text") };
        let known = [("b1".to_owned(), Profile::Workspace), ("b2".to_owned(), Profile::Outside)];
        typed(evaluate_in(&rules, &question, mode), &question, &known, &rules, mode)
    }

    #[test]
    fn typing_asks_and_names_the_commands_profile() {
        for (id, place) in [
            ("b1", "b1 runs in the sandbox (workspace)"),
            ("b2", "b2 runs outside the sandbox"),
            ("b3", "it is unknown whether b3 runs in the sandbox"),
        ] {
            let verdict = judge("rules: []", Mode::Ask, id);
            assert_eq!(verdict.decision, VerdictKind::Ask(AskKind::Default));
            assert!(verdict.why.ends_with(place), "{}", verdict.why);
        }
        assert_eq!(
            judge("rules: [{tool: BashInput, behavior: allow}]", Mode::Ask, "b2").decision,
            VerdictKind::Allow
        );
        assert_eq!(
            judge("rules: [{tool: BashInput, behavior: deny}]", Mode::Auto, "b1").decision,
            VerdictKind::Deny
        );
    }

    #[test]
    fn auto_covers_only_typing_into_the_sandbox() {
        let auto = |rules: &str, id: &str| judge(rules, Mode::Auto, id).decision;
        assert_eq!(auto("rules: []", "b1"), VerdictKind::Allow);
        for id in ["b2", "b3"] {
            assert_eq!(auto("rules: []", id), VerdictKind::Ask(AskKind::Default), "{id}");
        }
        for behavior in ["ask", "deny"] {
            let rules = format!("rules: [{{tool: 'Bash(git push *)', behavior: {behavior}}}]");
            assert_eq!(auto(&rules, "b1"), VerdictKind::Ask(AskKind::Default), "{behavior}");
        }
        assert_eq!(auto("rules: [{tool: BashInput, behavior: ask}]", "b1"), VerdictKind::Ask(AskKind::Rule));
    }

    #[test]
    fn yolo_asks_before_typing_if_rules_restrict_commands() {
        let yolo = |rules: &str| judge(rules, Mode::Yolo, "b2").decision;
        assert_eq!(yolo("rules: []"), VerdictKind::Allow);
        for behavior in ["ask", "deny"] {
            let rules = format!("rules: [{{tool: 'Bash(rm *)', behavior: {behavior}}}]");
            assert_eq!(yolo(&rules), VerdictKind::Ask(AskKind::Undecided), "{behavior}");
            let rules = rules.replace("rules: [", "rules: [{tool: BashInput, behavior: allow}, ");
            assert_eq!(yolo(&rules), VerdictKind::Allow, "a rule says so");
        }
    }
}
