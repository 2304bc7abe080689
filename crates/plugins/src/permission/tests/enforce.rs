//! The profile of each command, and the behaviour where it cannot be enforced.

use super::plugin::{World, world, yes};
use crate::permission::enforce::{Enforcement, Need};
use crate::permission::evaluate::{
    AskKind, CallRequest, EnforcedProfiles, PreparedCall, Verdict, VerdictKind,
};
use crate::permission::file::RuleFormat;
use crate::permission::mode::{Mode, evaluate_in};
use crate::permission::rules::{Layer, RuleSet, ToolPermissionBehavior as Behavior};
use crate::permission::shipped_rules;
use aye_core::contract::judgement::Profile;
use aye_core::contract::suspension::{SuspendTicket, ToolCallResume};
use aye_core::contract::tool_intercept::ToolInterceptPayload;
use serde_json::{Value, json};
use std::path::Path;

fn judge_args(rules: &RuleSet, args: &Value, mode: Mode) -> Verdict {
    evaluate_in(rules, &question(args), mode)
}

fn judge(rules: &RuleSet, command: &str, mode: Mode) -> Verdict {
    judge_args(rules, &json!({ "command": command }), mode)
}

fn with_file(text: &str) -> RuleSet {
    let mut rules = shipped_rules();
    rules.join(RuleSet::read(text, RuleFormat::Yaml, Layer::User, "permissions.yaml").expect("valid"));
    rules
}

const FILE: &str = "rules:
  - {tool: 'Bash(git push *)', behavior: allow, sandbox: outside}
  - {tool: 'Bash(git *)', behavior: allow}
  - {tool: 'Bash(make look)', behavior: allow, sandbox: read}
  - {tool: 'Bash(deploy *)', behavior: ask, sandbox: outside}
";

#[test]
fn an_allowed_line_gets_the_profile_of_its_rules() {
    let profile = |allow: &[&str], command: &str| {
        let mut rules = with_file(FILE);
        rules.join(RuleSet::from_flags(allow, &[]).unwrap());
        let verdict = judge(&rules, command, Mode::Ask);
        assert_eq!(verdict.decision, VerdictKind::Allow, "{command}: {}", verdict.why);
        verdict.profile
    };
    for line in ["ls", "cat a | head -5", "cd src && ls", "find . -name x", "make look", "timeout 9 ls"] {
        assert_eq!(profile(&[], line), Some(Profile::Read), "{line}");
    }
    // The user's rule wins over a shipped one, and one command that may write makes the whole line writable.
    for line in ["git status", "ls && git commit -m x", "timeout 9 git commit -m x"] {
        assert_eq!(profile(&[], line), Some(Profile::Workspace), "{line}");
    }
    assert_eq!(profile(&["Bash(find *)"], "find . -name x"), Some(Profile::Workspace));
    assert_eq!(profile(&["Bash"], "ls"), Some(Profile::Workspace));
    // The more specific of two rules wins.
    assert_eq!(profile(&[], "git push origin main"), Some(Profile::Outside));
    assert_eq!(profile(&[], "timeout 60 git push"), Some(Profile::Outside));
}

#[test]
fn a_skill_script_has_a_profile() {
    let args = json!({"skill": "a", "script": "x.sh"});
    let script = |rules: &RuleSet, mode| {
        let verdict = evaluate_in(rules, &CallRequest { tool: "skill_script", ..question(&args) }, mode);
        (verdict.decision, verdict.profile)
    };
    let rules = |text: &str| with_file(&format!("rules:\n  - {text}\n"));
    let shipped = shipped_rules();
    let (workspace, outside) = (Some(Profile::Workspace), Some(Profile::Outside));
    assert_eq!(script(&shipped, Mode::Ask), (VerdictKind::Ask(AskKind::Default), workspace));
    assert_eq!(script(&shipped, Mode::Auto), (VerdictKind::Allow, workspace));
    assert_eq!(script(&shipped, Mode::Yolo), (VerdictKind::Allow, outside));
    assert_eq!(script(&shipped, Mode::Plan).0, VerdictKind::Deny);
    assert_eq!(
        script(&rules("{tool: skill_script, behavior: allow}"), Mode::Ask),
        (VerdictKind::Allow, workspace)
    );
    let out = rules("{tool: 'skill_script(x.sh)', behavior: allow, sandbox: outside}");
    let primary = CallRequest { tool: "skill_script", primary: Some("script"), ..question(&args) };
    assert_eq!(evaluate_in(&out, &primary, Mode::Ask).profile, outside);
    let asked = rules("{tool: skill_script, behavior: ask}");
    assert_eq!(script(&asked, Mode::Auto), (VerdictKind::Ask(AskKind::Rule), workspace));
}

#[test]
fn a_line_is_never_partly_outside() {
    let verdict = judge(&with_file(FILE), "git commit -m x && git push", Mode::Ask);
    assert_eq!(verdict.decision, VerdictKind::Ask(AskKind::Default));
    assert!(verdict.why.contains("run them as two calls"), "{}", verdict.why);
    assert_eq!(verdict.profile, Some(Profile::Workspace), "after an approval");
}

#[test]
fn modes_and_defaults_have_profiles() {
    let rules = with_file(FILE);
    let of = |command, mode| judge(&rules, command, mode).profile;
    assert_eq!(of("deploy now", Mode::Ask), Some(Profile::Outside), "as the asking rule says");
    assert_eq!(of("touch x", Mode::Ask), Some(Profile::Workspace), "after an approval");
    assert_eq!(of("touch x", Mode::Yolo), Some(Profile::Outside));
    assert_eq!(of("ls", Mode::Yolo), Some(Profile::Outside));
    assert_eq!(of("git status", Mode::Plan), Some(Profile::Read), "rules of the user do not count");
    let mut open = shipped_rules();
    open.set_default(Behavior::Allow);
    let verdict = judge(&open, "touch x", Mode::Ask);
    assert_eq!((verdict.decision, verdict.profile), (VerdictKind::Allow, Some(Profile::Workspace)));
    let args = json!({"file_path": "a"});
    let read = CallRequest { tool: "Read", ..question(&args) };
    assert_eq!(evaluate_in(&rules, &read, Mode::Ask).profile, None, "no command");
}

#[test]
fn auto_runs_unmatched_commands_in_the_sandbox() {
    let rules = with_file(FILE);
    let auto = |command: &str| judge(&rules, command, Mode::Auto);
    let shipped = shipped_rules();
    for line in
        ["touch x", "npm test > log", "for f in *; do echo $f; done", "make $TARGET", "python3 -m venv .v"]
    {
        let verdict = judge(&shipped, line, Mode::Auto);
        let both = (verdict.decision, verdict.profile);
        assert_eq!(both, (VerdictKind::Allow, Some(Profile::Workspace)), "{line}: {}", verdict.why);
        let out = json!({"command": line, "outside": true, "reason": "it needs the network"});
        let verdict = judge_args(&shipped, &out, Mode::Auto);
        let is_asked = matches!(verdict.decision, VerdictKind::Ask(_));
        assert!(is_asked && verdict.profile == Some(Profile::Outside), "{line}: {}", verdict.why);
    }
    assert_eq!(auto("ls").profile, Some(Profile::Read));
    assert!(matches!(auto("deploy now").decision, VerdictKind::Ask(AskKind::Rule)));
    assert!(matches!(auto("echo 'open").decision, VerdictKind::Ask(_)), "it does not parse");
    let url = json!({"url": "https://example.org"});
    let fetch = CallRequest { tool: "WebFetch", ..question(&url) };
    assert!(matches!(evaluate_in(&rules, &fetch, Mode::Auto).decision, VerdictKind::Ask(_)));
    let mut strict = shipped_rules();
    strict.join(RuleSet::from_flags(&[], &["Bash(rm *)"]).unwrap());
    assert_eq!(judge(&strict, "rm -rf x", Mode::Auto).decision, VerdictKind::Deny);
    assert!(matches!(judge(&strict, "$X -rf x", Mode::Auto).decision, VerdictKind::Ask(_)), "it may be rm");
}

fn question(args: &Value) -> CallRequest<'_> {
    CallRequest {
        tool: "Bash",
        args,
        cwd: Path::new("/workspace"),
        workspace: Path::new("/workspace"),
        home: None,
        primary: None,
    }
}

#[test]
fn a_command_leaves_the_sandbox_only_by_rule_or_user() {
    let rules = with_file(FILE);
    let out = |command: &str| json!({"command": command, "outside": true, "reason": "it fetches\npackages"});
    for (command, mode) in [("ls", Mode::Ask), ("touch x", Mode::Auto), ("git fetch", Mode::AcceptEdits)] {
        let verdict = judge_args(&rules, &out(command), mode);
        assert_eq!(verdict.decision, VerdictKind::Ask(AskKind::Outside), "{command}: {}", verdict.why);
        assert_eq!(verdict.profile, Some(Profile::Outside));
        assert!(
            verdict.why.starts_with("it wants to run outside the sandbox: it fetches"),
            "{}",
            verdict.why
        );
        assert!(!verdict.why.contains('\n'), "{}", verdict.why);
    }
    assert_eq!(
        judge_args(&rules, &out("git push"), Mode::Ask).decision,
        VerdictKind::Allow,
        "its rule says so"
    );
    assert_eq!(judge_args(&rules, &out("touch x"), Mode::Yolo).decision, VerdictKind::Allow);
    let mut strict = shipped_rules();
    strict.join(RuleSet::from_flags(&[], &["Bash(rm *)"]).unwrap());
    assert_eq!(judge_args(&strict, &out("rm x"), Mode::Ask).decision, VerdictKind::Deny);
}

#[test]
fn sandbox_is_valid_only_in_rules_that_allow_bash() {
    let refusal = |layer, text: &str| {
        let text = format!("rules:\n  - {text}\n");
        RuleSet::read(&text, RuleFormat::Yaml, layer, "permissions.yaml").unwrap_err().to_string()
    };
    for rule in
        ["{tool: Read, behavior: allow, sandbox: read}", "{tool: Bash, behavior: deny, sandbox: read}"]
    {
        let why = refusal(Layer::User, rule);
        assert!(why.starts_with("permissions.yaml:2: `sandbox` is for rules that allow Bash"), "{why}");
    }
    let why = refusal(Layer::Project, "{tool: Bash, behavior: allow, sandbox: outside}");
    assert!(why.contains("put the rule into your own permissions.yaml"), "{why}");
    let why = refusal(Layer::User, "{tool: Bash, behavior: allow, sandbox: inside}");
    assert!(why.contains("inside") && why.contains("workspace"), "{why}");
}

#[test]
fn a_line_gets_the_variables_that_the_rules_of_all_its_commands_name() {
    let rules = with_file(
        "rules:
  - {tool: 'Bash(cargo test *)', behavior: allow, env: [DATABASE_URL, 'APP_*']}
  - {tool: 'Bash(diesel *)', behavior: allow, env: [DATABASE_URL]}
  - {tool: 'Bash(deploy *)', behavior: ask, env: [DEPLOY_HOST]}
  - {tool: 'Bash(make *)', behavior: allow}
",
    );
    let env = |command: &str, mode| judge(&rules, command, mode).env.join(" ");
    for (command, names) in [
        ("cargo test --lib", "DATABASE_URL APP_*"),
        ("timeout 60 cargo test", "DATABASE_URL APP_*"),
        ("cd . && cargo test", "DATABASE_URL APP_*"),
        ("cargo test && diesel print-schema", "DATABASE_URL"),
        // What is printed is not the rule's command.
        ("cargo test && cat x", ""),
        ("cargo test && printenv", ""),
        ("make all", ""),
        ("deploy now", "DEPLOY_HOST"),
    ] {
        for mode in [Mode::Ask, Mode::Auto, Mode::Yolo] {
            assert_eq!(env(command, mode), names, "{command} {mode}");
        }
    }
}

#[test]
fn env_is_valid_only_in_the_users_rules_that_allow_bash() {
    let refusal = |layer, text: &str| {
        let text = format!("rules:\n  - {text}\n");
        RuleSet::read(&text, RuleFormat::Yaml, layer, "permissions.yaml").unwrap_err().to_string()
    };
    for (layer, rule, why) in [
        (Layer::User, "{tool: Read, behavior: allow, env: [A]}", "`env` is for rules that allow Bash"),
        (Layer::User, "{tool: Bash, behavior: deny, env: [A]}", "`env` is for rules that allow Bash"),
        (
            Layer::User,
            "{tool: Bash, behavior: allow, env: ['A=b']}",
            "`env` contains \"A=b\"; expected names",
        ),
        (Layer::User, "{tool: Bash, behavior: allow, env: ['*']}", "`env` contains \"*\"; expected names"),
        (
            Layer::Project,
            "{tool: Bash, behavior: allow, env: [A]}",
            "put the rule into your own permissions.yaml",
        ),
    ] {
        let text = refusal(layer, rule);
        assert!(text.starts_with("permissions.yaml:2: ") && text.contains(why), "{rule}: {text}");
    }
}

#[test]
fn where_the_kernel_enforces_the_rest_reading_needs_no_question() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for (name, text) in [("a.txt", "x"), (".env", "KEY"), ("b.txt", "x")] {
        std::fs::write(root.join(name), text).unwrap();
    }
    let mut rules = shipped_rules();
    rules
        .join(RuleSet::from_flags(&["Bash(npm *)", "Bash(grep *)"], &["Bash(rm *)", "Read(b.txt)"]).unwrap());
    let judge = |command: &str, enforced: EnforcedProfiles| {
        let args = json!({ "command": command });
        let question = CallRequest { cwd: &root, workspace: &root, ..question(&args) };
        PreparedCall::of(&question).unwrap().enforced_by(enforced).verdict(&rules)
    };
    for line in [
        "sed -n 1,5p a.txt",
        "sed -n '/[a-z]/{p;q}' a.txt",
        "head -n 5 a.txt | cut -d: -f1",
        "tail -c 20 a.txt && wc -l a.txt",
        "awk '{print $1}' a.txt",
        "awk -F/ 'BEGIN{system(\"ls\")} /x/ {print > \"out\"}' a.txt",
        "cat *.txt",
        "rg x *.txt",
        "rg -uu x",
        "timeout 9 awk '/x/' a.txt",
        "wc --files0-from=list",
    ] {
        let verdict = judge(line, EnforcedProfiles::ALL);
        let both = (verdict.decision, verdict.profile);
        assert_eq!(both, (VerdictKind::Allow, Some(Profile::Read)), "{line}: {}", verdict.why);
    }
    // A user's rule about a file applies to commands that name it; the kernel masks the file from those that
    // find it.
    for (line, enforced, expected) in [
        ("sed -n 1p b.txt", EnforcedProfiles::ALL, VerdictKind::Deny),
        ("awk '{print}' .env", EnforcedProfiles::ALL, VerdictKind::Ask(AskKind::Rule)),
        ("sed -n 1p ../x", EnforcedProfiles::ALL, VerdictKind::Ask(AskKind::Default)),
        ("sed -i s/a/b/ a.txt", EnforcedProfiles::ALL, VerdictKind::Ask(AskKind::Default)),
        ("grep -r x .", EnforcedProfiles::ALL, VerdictKind::Allow),
        (
            "grep -r x .",
            EnforcedProfiles { workspace: false, ..EnforcedProfiles::ALL },
            VerdictKind::Ask(AskKind::Rule),
        ),
        (
            "rg -uu x",
            EnforcedProfiles { read: false, ..EnforcedProfiles::ALL },
            VerdictKind::Ask(AskKind::Rule),
        ),
        ("awk '{print $1}' a.txt", EnforcedProfiles::default(), VerdictKind::Ask(AskKind::Default)),
        // Code may write too if another command of the line may.
        (
            "awk 'BEGIN{system(\"touch x\")}' && npm test",
            EnforcedProfiles::ALL,
            VerdictKind::Ask(AskKind::Undecided),
        ),
        ("sed -n 1p a.txt && npm test", EnforcedProfiles::ALL, VerdictKind::Allow),
        ("timeout 60 npm test", EnforcedProfiles::ALL, VerdictKind::Allow),
    ] {
        assert_eq!(judge(line, enforced).decision, expected, "{line}: {}", judge(line, enforced).why);
    }
}

/// A machine that can enforce these profiles.
fn machine(can: &'static [Profile], allows_missing: bool) -> Enforcement {
    let problem =
        move |need: Need| (!can.contains(&need.profile)).then(|| "the kernel has no Landlock".to_owned());
    Enforcement::by_kernel(problem, allows_missing)
}

async fn asked(world: &World, command: &str) -> Option<SuspendTicket> {
    match world.gate(World::info(command)).await {
        None => None,
        Some(ToolInterceptPayload::Suspend(ticket)) => Some(ticket),
        other => panic!("{command}: {other:?}"),
    }
}

#[tokio::test]
async fn unsandboxable_commands_ask() {
    let world = world(&["Bash(ls *)"], &[], &[]);
    world.permissions.set_enforcement(machine(&[], false));
    let ticket = asked(&world, "ls -la").await.expect("asks for approval");
    let parameters = &ticket.suspension.parameters;
    assert_eq!(parameters["profile"], "outside");
    assert_eq!(parameters["why"], "it cannot be sandboxed: the kernel has no Landlock");
    assert_eq!(parameters["proposals"], json!([]), "no grant would change that");
    let answered = World::info("ls -la").with_decision(yes(), Some(ticket));
    let report = world.report(answered).await;
    assert_eq!(report.intercept, None);
    assert_eq!(report.judgement.and_then(|judgement| judgement.profile), Some(Profile::Outside));
    world.permissions.set_enforcement(machine(&[], true));
    assert_eq!(asked(&world, "ls -la").await, None, "as the user's settings say");
    world.permissions.set_enforcement(Enforcement::off());
    assert_eq!(asked(&world, "ls -la").await, None);
    assert!(
        world
            .permissions
            .set_mode(Mode::Auto)
            .is_err_and(|why| why.to_string().contains("the sandbox is off"))
    );
}

#[tokio::test]
async fn an_approved_call_runs_in_the_profile_shown_or_chosen() {
    let world = world(&[], &[], &[]);
    world.permissions.set_enforcement(machine(&[Profile::Read, Profile::Workspace], false));
    let ticket = world.asks("touch x").await;
    assert_eq!(ticket.suspension.parameters["profile"], "workspace");
    let info = |chosen| {
        let resume = ToolCallResume { profile: chosen, ..yes() };
        let mut info = World::info("touch x").with_decision(resume, Some(ticket.clone()));
        info.chosen = chosen;
        info
    };
    let profile = |report: aye_core::phase::PhaseReport| {
        assert_eq!(report.intercept, None);
        report.judgement.and_then(|judgement| judgement.profile)
    };
    assert_eq!(profile(world.report(info(None)).await), Some(Profile::Workspace));
    assert_eq!(profile(world.report(info(Some(Profile::Outside))).await), Some(Profile::Outside));
    // Meanwhile the machine lost its layers: an approval for the sandbox does not cover running outside.
    world.permissions.set_enforcement(machine(&[], false));
    let again = world.gate(info(None)).await;
    let Some(ToolInterceptPayload::Suspend(again)) = again else { panic!("{again:?}") };
    assert_eq!(again.suspension.parameters["profile"], "outside");
    assert_eq!(world.gate(info(Some(Profile::Outside))).await, None);
}
