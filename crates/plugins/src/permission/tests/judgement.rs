//! What the gate records for each call, and which grant it uses.

use super::plugin::{Noon, World, grant, world, yes};
use crate::permission::*;
use aye_core::contract::judgement::{Judgement, Risk, Ruling};
use aye_core::contract::record::{GrantRecord, GrantScope};
use aye_core::contract::workspace::Workspace;
use aye_core::phase::ToolCallInfo;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

impl World {
    async fn judged(&self, info: ToolCallInfo) -> Judgement {
        self.report(info).await.judgement.expect("every call is judged")
    }
}

fn granted(id: &str, pattern: &str, max_uses: Option<u64>) -> GrantRecord {
    GrantRecord { pattern: pattern.into(), max_uses, ..grant(id, GrantScope::Everywhere, None) }
}

fn matched(judgement: &Judgement) -> Vec<&str> {
    judgement.tried.iter().filter(|rule| rule.matched).map(|rule| rule.pattern.as_str()).collect()
}

#[tokio::test]
async fn every_call_is_judged_with_all_rules_tried() {
    let world = world(&["Bash(ls *)", "Read"], &["Bash(git push *)"], &["Bash(rm *)"]);
    for (command, ruling, rule, hits) in [
        ("ls -l", Ruling::Allow, Some("Bash(ls *)"), &["Bash(ls *)"][..]),
        ("touch x", Ruling::Ask, None, &[]),
        ("ls && git push", Ruling::Ask, Some("Bash(git push *)"), &["Bash(ls *)", "Bash(git push *)"]),
        ("echo $(rm x); ls", Ruling::Deny, Some("Bash(rm *)"), &["Bash(rm *)", "Bash(ls *)"]),
    ] {
        let judgement = world.judged(World::info(command)).await;
        assert_eq!(judgement.ruling, ruling, "{command}");
        assert_eq!(judgement.rule.as_deref(), rule, "{command}");
        let mut seen = matched(&judgement);
        seen.sort_unstable();
        let mut want = hits.to_vec();
        want.sort_unstable();
        assert_eq!(seen, want, "{command}");
        // The rule for another tool was not tried.
        assert_eq!(judgement.tried.len(), 4, "{command}: {:?}", judgement.tried);
        assert_eq!(judgement.mode, Mode::Ask);
    }
    let judgement = world.judged(World::info("ls\0")).await;
    assert_eq!((judgement.ruling, judgement.tried.len()), (Ruling::Error, 0));
}

#[tokio::test]
async fn a_card_describes_what_the_call_can_do() {
    let world = world(&[], &[], &[]);
    for (command, risk) in
        [("cat x", "reads"), ("cargo test", "runs"), ("rm x", "destroys"), ("git push", "network")]
    {
        let ticket = world.asks(command).await;
        assert_eq!(ticket.suspension.parameters["risk"], risk, "{command}");
    }
}

#[test]
fn the_risk_of_other_tools() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let risk = |tool: &str, args: Value| {
        let question =
            CallRequest { tool, args: &args, cwd: &root, workspace: &root, home: None, primary: None };
        PreparedCall::of(&question).unwrap().risk(None)
    };
    assert_eq!(risk("Read", json!({"file_path": "/etc/passwd"})), Risk::Reads);
    assert_eq!(risk("Edit", json!({"file_path": "src/a"})), Risk::Edits);
    assert_eq!(risk("Write", json!({"file_path": "../a"})), Risk::Destroys);
    assert_eq!(risk("Write", json!({"file_path": ".git/config"})), Risk::Destroys);
    assert_eq!(risk("WebFetch", json!({"url": "https://x"})), Risk::Network);
    assert_eq!(risk("mcp__a__b", json!({})), Risk::Runs);
    assert_eq!(risk("TodoWrite", json!({})), Risk::Reads);
}

#[tokio::test]
async fn a_grant_is_named_and_a_spent_one_is_omitted() {
    let world = world(&[], &[], &[]);
    world.permissions.set_grants(vec![granted("g1", "Bash(touch *)", Some(1))]);
    let judgement = world.judged(World::info("touch x")).await;
    assert_eq!((judgement.ruling, judgement.grant.as_deref()), (Ruling::Allow, Some("g1")));
    let mut info = World::info("touch x");
    info.spent_grants = vec!["g1".into()];
    let judgement = world.judged(info).await;
    assert_eq!((judgement.ruling, judgement.grant), (Ruling::Ask, None));
    // A skill's pattern has no row in the ledger.
    let judgement = world.judged(World::info("skill-tool x")).await;
    assert_eq!((judgement.ruling, judgement.grant), (Ruling::Allow, None));
}

#[tokio::test]
async fn limited_grants_are_used_last() {
    let world = world(&["Bash(touch a)", "Bash(ls *)"], &[], &[]);
    let limited = granted("few", "Bash(touch *)", Some(3));
    let free = granted("free", "Bash(touch b)", None);
    world.permissions.set_grants(vec![limited, free, granted("mk", "Bash(mkdir *)", Some(3))]);
    for (command, grants) in [
        ("touch a", &[][..]),
        ("touch b", &["free"]),
        ("touch c", &["few"]),
        // The line needs both; the rule for `ls` costs nothing.
        ("ls && touch c && mkdir d", &["few", "mk"]),
        ("touch b && touch c", &["free", "few"]),
    ] {
        let judgement = world.judged(World::info(command)).await;
        assert_eq!(judgement.ruling, Ruling::Allow, "{command}");
        let used: Vec<&str> =
            judgement.grant.iter().chain(&judgement.other_grants).map(String::as_str).collect();
        assert_eq!(used, grants, "{command}");
        assert_eq!(
            judgement.origin.as_deref() == Some("granted at a prompt"),
            !grants.is_empty(),
            "{command}"
        );
    }
    // The user's approval is for this call, the uses for later ones.
    let ticket = {
        let mut info = World::info("touch c");
        info.spent_grants = vec!["few".into()];
        let Some(aye_core::contract::tool_intercept::ToolInterceptPayload::Suspend(ticket)) =
            world.gate(info).await
        else {
            panic!("asks")
        };
        ticket
    };
    let report = world.report(World::info("touch c").with_decision(yes(), Some(ticket))).await;
    assert_eq!((report.intercept, report.judgement.unwrap().grant), (None, None));
    // A mode does not waste uses either.
    world.permissions.set_mode(Mode::Yolo).expect("the mode is allowed");
    assert_eq!(world.judged(World::info("touch c")).await.grant, None);
    world.permissions.set_mode(Mode::Plan).expect("the mode is allowed");
    let judgement = world.judged(World::info("touch c")).await;
    assert_eq!((judgement.ruling, judgement.grant), (Ruling::Deny, None));
}

fn part() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "ls",
        "ls -l",
        "git push",
        "git status",
        "rm x",
        "touch a",
        "sudo rm x",
        "echo $X",
        "cd src",
        "nice ls",
    ])
}

proptest! {
    #![proptest_config(super::with_cases(150))]

    /// The recorded judgement agrees with the verdict.
    #[test]
    fn tried_rules_agree_with_the_verdict(
        parts in prop::collection::vec(part(), 1..4),
        allow in prop::collection::vec(part(), 0..4),
        ask in prop::collection::vec(part(), 0..2),
        deny in prop::collection::vec(part(), 0..2),
    ) {
        let patterns = |of: &[&str]| of.iter().map(|text| format!("Bash({} *)", text.replace("$X", "x"))).collect::<Vec<_>>();
        let mut rules = RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Allow, patterns(&allow)).unwrap();
        rules.join(RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Ask, patterns(&ask)).unwrap());
        rules.join(RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Deny, patterns(&deny)).unwrap());
        let args = json!({ "command": parts.join(" && ") });
        let place = Path::new("/");
        let question = CallRequest { tool: "Bash", args: &args, cwd: place, workspace: place, home: None, primary: None };
        let call = PreparedCall::of(&question).unwrap();
        let verdict = call.verdict(&rules);
        let tried = call.tried(&rules);
        prop_assert_eq!(tried.len(), rules.rules().len());
        let is = |behavior: &str| tried.iter().any(|rule| rule.matched && rule.behavior == behavior);
        if let Some(rule) = &verdict.rule {
            prop_assert!(tried.iter().any(|t| t.matched && t.pattern == *rule), "{verdict:?} {tried:?}");
        }
        match verdict.decision {
            VerdictKind::Allow => prop_assert!(is("allow") && !is("ask") && !is("deny"), "{verdict:?} {tried:?}"),
            VerdictKind::Deny => prop_assert!(is("deny"), "{tried:?}"),
            VerdictKind::Ask(AskKind::Rule) => prop_assert!(is("ask"), "{tried:?}"),
            VerdictKind::Ask(_) | VerdictKind::Error => {}
        }
    }
}

#[test]
fn a_worktree_has_the_mode_and_the_grants_of_its_checkout() {
    let at = |root: &str| {
        let root = std::path::PathBuf::from(root);
        let workspace = Workspace { cwd: root.clone(), root, home: "/home".into() };
        Permissions::new(workspace, Arc::new(Noon), RuleSet::new(), Mode::Yolo)
    };
    let (checkout, worktree) = (at("/main"), at("/trees/w"));
    let reaches = |permissions: &Permissions| {
        permissions.reaches(&GrantScope::Project("/main".into()), &"t".into(), &"r".into())
    };
    assert!(!reaches(&worktree));
    worktree.work_for(checkout.clone());
    assert!(reaches(&worktree));
    checkout.set_mode(Mode::Plan).expect("the mode is allowed");
    assert_eq!(worktree.mode(), Mode::Plan, "from the next call on");
    assert!(!checkout.reaches(&GrantScope::Project("/trees/w".into()), &"t".into(), &"r".into()));
}
