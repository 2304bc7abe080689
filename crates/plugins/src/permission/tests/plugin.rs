use crate::permission::*;
use aye_core::contract::clock::Clock;
use aye_core::contract::message::ToolCall;
use aye_core::contract::path_policy::{PathAccess, PathPolicies as _};
use aye_core::contract::record::{GrantRecord, GrantScope};
use aye_core::contract::spec::AgentSpec;
use aye_core::contract::suspension::{
    Actor, ResumeDecisionAction, SuspendTicket, ToolCallResume, ToolCallResumeMode,
};
use aye_core::contract::tool::{ToolDescriptor, ToolResult};
use aye_core::contract::tool_intercept::ToolInterceptPayload;
use aye_core::contract::workspace::Workspace;
use aye_core::phase::{
    ExecutionEnv, PhaseContext, PhaseReport, PhaseRuntime, Plugin, ToolCallInfo, inference_shape,
    validate_sections,
};
use aye_core::state::Phase;
use aye_sandbox::SandboxRefusal;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) struct Noon;

impl Clock for Noon {
    fn now_ms(&self) -> u64 {
        1_000
    }
}

pub(super) struct World {
    _dir: tempfile::TempDir,
    pub(super) permissions: Permissions,
    plugin: Arc<dyn Plugin>,
    runtime: PhaseRuntime,
    env: ExecutionEnv,
    spec: Arc<AgentSpec>,
}

pub(super) fn world(allow: &[&str], ask: &[&str], deny: &[&str]) -> World {
    world_of(allow, ask, deny, AgentSpec::new("agent"))
}

fn world_of(allow: &[&str], ask: &[&str], deny: &[&str], spec: AgentSpec) -> World {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let mut rules = RuleSet::from_flags(allow, deny).unwrap();
    rules.join(RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Ask, ask).unwrap());
    let workspace = Workspace { cwd: root.clone(), root, home: "/home/user".into() };
    let permissions = Permissions::new(workspace, Arc::new(Noon), rules, Mode::Ask);
    let granted: GrantedPatterns = Arc::new(|_| vec!["Bash(skill-tool *)".to_owned()]);
    let plugin: Arc<dyn Plugin> = Arc::new(PermissionPlugin::new(permissions.clone()).with_granted(granted));
    let (runtime, env) = engine(&plugin);
    World { _dir: dir, permissions, plugin, runtime, env, spec: Arc::new(spec) }
}

impl World {
    pub(super) fn info(command: &str) -> ToolCallInfo {
        let call = ToolCall::new("c1", "Bash", json!({ "command": command }));
        let tool = ToolDescriptor::new("Bash", "Bash", "").with_primary_argument("command");
        ToolCallInfo::new(call, Some(tool))
    }

    pub(super) async fn gate(&self, info: ToolCallInfo) -> Option<ToolInterceptPayload> {
        self.report(info).await.intercept
    }

    pub(super) async fn report(&self, info: ToolCallInfo) -> PhaseReport {
        let mut ctx = PhaseContext::test_default().with_phase(Phase::BeforeToolExecute).with_tool(info);
        ctx.agent_spec = Arc::clone(&self.spec);
        self.runtime.run_phase(&self.env, ctx).await.unwrap()
    }

    /// The call ran, and the sandbox refused it something.
    pub(super) async fn refused(&self, info: ToolCallInfo, refused: &[SandboxRefusal]) {
        let result = ToolResult::error("Bash", "no").with_details(json!({ "refused": refused }));
        let ctx = PhaseContext::test_default().with_phase(Phase::AfterToolExecute).with_tool(info);
        let ctx = PhaseContext { agent_spec: Arc::clone(&self.spec), ..ctx.with_tool_result(result) };
        self.runtime.run_phase(&self.env, ctx).await.unwrap();
    }

    pub(super) async fn asks(&self, command: &str) -> SuspendTicket {
        match self.gate(World::info(command)).await {
            Some(ToolInterceptPayload::Suspend(ticket)) => ticket,
            other => panic!("{command}: {other:?}"),
        }
    }

    async fn refuses(&self, info: ToolCallInfo) -> String {
        match self.gate(info).await {
            Some(ToolInterceptPayload::SetResult(result)) if result.is_error() => result.model_text(),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn yes() -> ToolCallResume {
    let action = ResumeDecisionAction::Resume;
    ToolCallResume {
        decision_id: "d".into(),
        action,
        result: Value::Null,
        reason: None,
        arguments: None,
        profile: None,
        updated_at: 0,
    }
}

#[tokio::test]
async fn an_allowed_call_passes() {
    let world = world(&["Bash(ls *)"], &[], &[]);
    assert_eq!(world.gate(World::info("ls -la")).await, None);
    assert_eq!(world.gate(World::info("skill-tool x")).await, None, "granted by another plugin");
}

#[tokio::test]
async fn a_question_contains_all_that_a_card_needs() {
    let world = world(&[], &["Bash(git push *)"], &[]);
    let ticket = world.asks("git status -sb").await;
    assert_eq!(ticket.suspension.id.as_str(), "perm_c1");
    assert_eq!(ticket.suspension.action, "tool:PermissionConfirm");
    assert_eq!(ticket.resume_mode, ToolCallResumeMode::ReplayToolCall);
    assert_eq!(ticket.pending.arguments, json!({"command": "git status -sb"}));
    let parameters = &ticket.suspension.parameters;
    let names = parameters.as_object().expect("an object").keys().map(String::as_str);
    assert_eq!(
        names.take(12).collect::<Vec<_>>().join(" "),
        "tool args rule origin why cwd risk danger does outside profile proposals",
        "rows keep their members and the order of them"
    );
    assert_eq!(parameters["tool"], "Bash");
    assert_eq!(parameters["cwd"], world.permissions.workspace().cwd.to_string_lossy().as_ref());
    assert_eq!(parameters["proposals"][1]["pattern"], "Bash(git status *)");
    let ticket = world.asks("git push origin").await;
    assert_eq!(ticket.suspension.parameters["rule"], "Bash(git push *)");
    assert_eq!(ticket.suspension.parameters["proposals"], json!([]), "a grant would not override the rule");
}

#[tokio::test]
async fn an_approval_overrides_ask_but_not_deny() {
    let world = world(&[], &["Bash(git push *)"], &[]);
    let ticket = world.asks("git push").await;
    let answered = || World::info("git push").with_decision(yes(), Some(ticket.clone()));
    assert_eq!(world.gate(answered()).await, None);
    // The rules changed while the question was pending.
    world.permissions.set_rules(RuleSet::from_flags(&[], &["Bash(git push *)"]).unwrap());
    let text = world.refuses(answered()).await;
    assert!(text.contains("Bash(git push *)"), "{text}");
    world.permissions.set_rules(RuleSet::new());
    world.permissions.set_mode(Mode::Plan).expect("the mode is allowed");
    assert!(world.refuses(answered()).await.contains("plan mode"));
}

#[tokio::test]
async fn a_denied_call_gets_a_result_naming_the_rule() {
    let world = world(&["Bash"], &[], &["Bash(rm *)"]);
    let text = world.refuses(World::info("echo $(rm x)")).await;
    assert!(text.contains("`Bash(rm *)`") && text.contains("did not run"), "{text}");
    assert!(world.refuses(World::info("ls\0")).await.contains("NUL"));
}

#[tokio::test]
async fn the_mode_can_change_during_a_run() {
    let world = world(&[], &[], &[]);
    world.asks("touch x").await;
    world.permissions.set_mode(Mode::Yolo).expect("the mode is allowed");
    assert_eq!(world.gate(World::info("touch x")).await, None);
}

fn engine(plugin: &Arc<dyn Plugin>) -> (PhaseRuntime, ExecutionEnv) {
    let env = ExecutionEnv::from_plugins(std::slice::from_ref(plugin)).unwrap();
    let runtime = PhaseRuntime::new(aye_core::state::StateStore::new()).unwrap();
    runtime.install(&env).unwrap();
    (runtime, env)
}

pub(super) fn grant(id: &str, scope: GrantScope, expires_at: Option<u64>) -> GrantRecord {
    GrantRecord {
        id: id.into(),
        pattern: "Bash(touch *)".into(),
        scope,
        created_at: 0,
        expires_at,
        sandbox: None,
        max_uses: None,
        uses: 0,
        revoked_at: None,
        suspension_id: None,
        actor: Actor { user: "me".into(), channel: "tui".into(), pid: 1, ..Actor::default() },
    }
}

#[tokio::test]
async fn a_grant_reaches_as_far_as_its_scope() {
    let world = world(&[], &[], &[]);
    let root = world.permissions.workspace().root.clone();
    for (scope, expires_at, reaches) in [
        (GrantScope::Run("run-1".into()), None, true),
        (GrantScope::Run("run-2".into()), None, false),
        (GrantScope::Thread("thread-1".into()), None, true),
        (GrantScope::Thread("thread-2".into()), None, false),
        (GrantScope::Project(root), None, true),
        (GrantScope::Project("/elsewhere".into()), None, false),
        (GrantScope::Everywhere, None, true),
        (GrantScope::Everywhere, Some(1_001), true),
        (GrantScope::Everywhere, Some(1_000), false),
    ] {
        world.permissions.set_grants(vec![grant("g", scope.clone(), expires_at)]);
        assert_eq!(world.gate(World::info("touch x")).await.is_none(), reaches, "{scope:?} {expires_at:?}");
    }
    world.permissions.set_grants(vec![grant("g", GrantScope::Everywhere, None)]);
    assert!(world.permissions.revoke("g") && !world.permissions.revoke("g"));
    world.asks("touch x").await;
    let broken = GrantRecord { pattern: "Bash(".into(), ..grant("b", GrantScope::Everywhere, None) };
    assert!(world.permissions.add_grant(broken).is_err());
}

#[tokio::test]
async fn denied_tools_are_hidden_from_the_model() {
    let world = world(&[], &[], &["WebFetch", "mcp__*", "Bash(rm *)"]);
    world.permissions.set_tools(vec!["Bash".into(), "mcp__a__b".into()]);
    let ctx = PhaseContext::test_default().with_phase(Phase::BeforeInference);
    world.runtime.run_phase(&world.env, ctx).await.unwrap();
    let shape = inference_shape(&world.runtime.store().snapshot());
    assert!(!shape.offers("WebFetch") && !shape.offers("mcp__a__b"));
    assert!(shape.offers("Bash") && shape.offers("Read"));
}

#[tokio::test]
async fn an_agent_brings_its_own_rules() {
    let section = json!({"rules": [{"tool": "Bash(ls *)", "behavior": "deny"}]});
    let mut spec = AgentSpec::new("agent");
    spec.sections.insert("permission".into(), section);
    let world = world_of(&["Bash"], &[], &[], spec);
    assert!(world.refuses(World::info("ls")).await.contains("Bash(ls *)"));
    let plugins = [Arc::clone(&world.plugin)];
    assert!(validate_sections(&plugins, &world.spec).unwrap().is_empty());
    for bad in [
        json!({"rules": [{"tool": "Bash(", "behavior": "deny"}]}),
        json!({"rule": []}),
        json!({"rules": [{"tool": 3, "behavior": "deny"}]}),
    ] {
        let mut spec = AgentSpec::new("agent");
        spec.sections.insert("permission".into(), bad.clone());
        assert!(validate_sections(&plugins, &spec).is_err(), "{bad}");
        let world = world_of(&["Bash"], &[], &[], spec);
        let ticket = world.asks("ls").await;
        assert!(ticket.suspension.message.contains("could not be loaded"), "{}", ticket.suspension.message);
    }
}

#[test]
fn a_handoff_grants_nothing_and_keeps_stricter_rules() {
    let plugin = world(&[], &[], &[]).plugin;
    let rule = |tool: &str, behavior: &str| json!({"tool": tool, "behavior": behavior});
    let from = json!({"default_behavior": "ask", "rules": [rule("Read", "allow")]});
    let to = json!({
        "default_behavior": "allow",
        "rules": [rule("Bash", "allow"), rule("Write", "deny"), rule("Edit", "ask")],
    });
    let after =
        |from: Option<&Value>, to: Option<&Value>| plugin.section_after_handoff("permission", from, to);
    let joined = after(Some(&from), Some(&to)).expect("a section");
    assert_eq!(joined["default_behavior"], "ask");
    let tools: Vec<&str> =
        joined["rules"].as_array().expect("rules").iter().filter_map(|rule| rule["tool"].as_str()).collect();
    assert_eq!(tools, ["Read", "Write", "Edit"]);
    assert_eq!(after(Some(&from), None), Some(from.clone()), "the rules in force stay");
    let alone = after(None, Some(&to)).expect("a section");
    assert!(alone["default_behavior"].is_null(), "{alone}");
    assert_eq!(alone["rules"].as_array().map(Vec::len), Some(2));
    assert_eq!(after(None, None), None);
}

fn reads(path: &str) -> ToolCallInfo {
    let call = ToolCall::new("c1", "Read", json!({ "file_path": path }));
    ToolCallInfo::new(call, Some(ToolDescriptor::new("Read", "Read", "").with_primary_argument("file_path")))
}

#[tokio::test]
async fn an_answer_is_about_the_file_that_the_path_led_to() {
    let world = world(&[], &[], &[]);
    let root = world.permissions.workspace().cwd.clone();
    std::fs::create_dir(root.join("d")).unwrap();
    std::fs::write(root.join("d/f"), "x").unwrap();
    let Some(ToolInterceptPayload::Suspend(ticket)) = world.gate(reads("d/f")).await else {
        panic!("not asked");
    };
    let answered = || reads("d/f").with_decision(yes(), Some(ticket.clone()));
    let report = world.report(answered()).await;
    assert!(report.intercept.is_none());
    let paths: Vec<_> = report.judgement.unwrap().paths.into_iter().map(|path| path.0).collect();
    assert_eq!(paths, [root.join("d/f")]);
    std::fs::rename(root.join("d"), root.join("e")).unwrap();
    std::os::unix::fs::symlink("/etc", root.join("d")).unwrap();
    assert!(matches!(world.gate(answered()).await, Some(ToolInterceptPayload::Suspend(_))), "asked again");
}

#[tokio::test]
async fn a_file_that_rules_know_is_judged_by_that_name_too() {
    use aye_files::known::FileId;

    let world = world(&["Read", "Bash(cat *)"], &["Read(asked/**)"], &["Read(secrets/*.txt)"]);
    let root = world.permissions.workspace().cwd.clone();
    for name in ["secrets/a.txt", "asked/b"] {
        std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        std::fs::write(root.join(name), "x").unwrap();
    }
    for name in ["secrets/a.txt", "asked"] {
        let path = root.join(name);
        world.permissions.known_files().remember(FileId::of(&path.symlink_metadata().unwrap()), &path);
    }
    std::fs::rename(root.join("secrets"), root.join("pub")).unwrap();
    std::fs::rename(root.join("asked"), root.join("open")).unwrap();
    std::fs::write(root.join("pub/b.txt"), "x").unwrap();
    for info in [reads("pub/a.txt"), World::info("cat pub/a.txt")] {
        let text = world.refuses(info).await;
        assert!(text.contains("Read(secrets/*.txt)"), "{text}");
    }
    assert!(matches!(world.gate(reads("open/b")).await, Some(ToolInterceptPayload::Suspend(_))));
    assert!(world.gate(reads("pub/b.txt")).await.is_none());
    let policy = world.permissions.policy(&AgentSpec::new("agent"));
    let found =
        |name: &str| policy.restriction(&root.join(name), PathAccess::Read).map(|rule| rule.is_denied);
    assert_eq!((found("pub/a.txt"), found("open/b"), found("pub/b.txt")), (Some(true), Some(false), None));
}

#[tokio::test]
async fn a_denied_program_under_another_name_asks() {
    let world = world(&["Bash"], &[], &["Bash(rm *)"]);
    let root = world.permissions.workspace().cwd.clone();
    std::os::unix::fs::symlink("/bin/rm", root.join("link")).unwrap();
    std::fs::copy("/bin/rm", root.join("copy")).unwrap();
    std::fs::create_dir(root.join("sub")).unwrap();
    std::fs::hard_link(root.join("copy"), root.join("sub/copy")).unwrap();
    std::fs::write(root.join("run"), "#!/bin/sh\n").unwrap();
    for line in [
        "./link x",
        "./copy x",
        "cd sub && ./copy x",
        "sub/copy x",
        "ln -s /bin/rm y; ./y x",
        "cp /bin/rm run && ./run x",
    ] {
        let asked = world.asks(line).await.suspension.message;
        assert!(asked.contains("Bash(rm *)"), "{line}: {asked}");
    }
    for line in ["./run x", "ls sub; ./run x"] {
        assert!(world.gate(World::info(line)).await.is_none(), "{line}");
    }
}
