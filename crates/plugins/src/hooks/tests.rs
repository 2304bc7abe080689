//! When and how often a command runs, and the effect of its response; `tests/it/hooks.rs` covers the whole
//! program.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use aye_core::contract::clock::SystemClock;
use aye_core::contract::judgement::Profile;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::message::ToolCall;
use aye_core::contract::terms::Terms;
use aye_core::contract::tool::ToolDescriptor;
use aye_core::contract::tool_intercept::ToolInterceptPayload;
use aye_core::phase::{
    ExecutionEnv, PhaseContext, PhaseHook, PhaseReport, PhaseRuntime, Plugin, PluginDescriptor,
    PluginRegistrar, ToolCallInfo,
};
use aye_core::state::{
    MergeStrategy, Phase, StateCommand, StateError, StateKey, StateKeyOptions, StateStore,
};

/// Answers each command by the hook's name as scripted, and records its input.
struct Scripted {
    seen: Mutex<Vec<Value>>,
    answer: fn(&str) -> Printed,
}

#[async_trait]
impl HookRunner for Scripted {
    async fn run(&self, request: HookRequest, _: &CancellationToken) -> Printed {
        let event: Value = serde_json::from_slice(&request.input).expect("an event");
        let name = event["hook"].as_str().expect("a name").to_owned();
        self.seen.lock().expect("not poisoned").push(event);
        (self.answer)(&name)
    }
}

type Printed = Result<HookOutput, HookNotRun>;

#[expect(clippy::unnecessary_wraps, reason = "an answer of a runner")]
fn printing(stdout: &str) -> Printed {
    Ok(HookOutput { stdout: stdout.to_owned(), exit_code: Some(0), ..HookOutput::default() })
}

/// Two hooks that write one exclusive key: the second one is always run again.
struct Quarrel;

struct Disputed;
impl StateKey for Disputed {
    const KEY: &'static str = "test.disputed";
    const MERGE: MergeStrategy = MergeStrategy::Exclusive;
    type Value = u32;
    type Update = u32;
    fn apply(value: &mut u32, update: u32) {
        *value = update;
    }
}

#[async_trait]
impl PhaseHook for Quarrel {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        command.update::<Disputed>(ctx.state::<Disputed>().copied().unwrap_or_default() + 1);
        Ok(command)
    }
}

impl Plugin for Quarrel {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new("quarrel", "")
    }
    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar
            .register_key::<Disputed>(StateKeyOptions { persistent: false, ..StateKeyOptions::default() })?;
        for phase in Phase::ALL {
            registrar.register_hook(phase, Self);
            registrar.register_hook(phase, Self);
        }
        Ok(())
    }
}

struct Bench {
    runner: Arc<Scripted>,
    runtime: PhaseRuntime,
    env: ExecutionEnv,
}

fn bench(file: &str, answer: fn(&str) -> Printed) -> Bench {
    let hooks = parse(Path::new("/h/hooks.toml"), file, HookLayer::User, None).expect("a hooks file");
    let runner = Arc::new(Scripted { seen: Mutex::default(), answer });
    let hook_context = HookContext {
        cwd: "/work".into(),
        home: "/home/ada".into(),
        clock: Arc::new(SystemClock),
        terms: Terms::default(),
    };
    let plugins: Vec<Arc<dyn Plugin>> = vec![
        Arc::new(Quarrel),
        Arc::new(HooksPlugin::new(hooks, Arc::clone(&runner) as Arc<dyn HookRunner>, hook_context)),
    ];
    let env = ExecutionEnv::from_plugins(&plugins).expect("plugins");
    let runtime = PhaseRuntime::new(StateStore::new()).expect("a runtime");
    runtime.install(&env).expect("keys");
    Bench { runner, runtime, env }
}

impl Bench {
    async fn at(&self, ctx: PhaseContext) -> PhaseReport {
        self.runtime.run_phase(&self.env, ctx).await.expect("a phase")
    }

    fn seen(&self) -> usize {
        self.runner.seen.lock().expect("not poisoned").len()
    }
}

fn entry(name: &str, phase: &str) -> String {
    format!("[[hooks]]\nname = \"{name}\"\nphase = \"{phase}\"\ncommand = [\"x\"]\n")
}

fn gate(command: &str) -> PhaseContext {
    let call = ToolCall::new("c1", "Bash", json!({ "command": command }));
    let tool = ToolDescriptor::new("Bash", "Bash", "").with_primary_argument("command");
    PhaseContext::test_default()
        .with_phase(Phase::BeforeToolExecute)
        .with_tool(ToolCallInfo::new(call, Some(tool)))
}

#[tokio::test]
async fn a_command_runs_once_per_boundary_whatever_other_hooks_do() {
    for (name, phase) in PHASES {
        let bench = bench(&entry("h", name), |_| printing("{\"notice\": \"here\"}"));
        let mut ctx = gate("ls").with_phase(phase);
        ctx.tool = ctx.tool.filter(|_| matches!(phase, Phase::BeforeToolExecute | Phase::AfterToolExecute));
        let report = bench.at(ctx).await;
        assert!(report.deferred_hooks > 0, "{name}");
        assert_eq!((bench.seen(), report.commands.len(), report.activities.len()), (1, 1, 1), "{name}");
        assert_eq!((report.commands[0].phase, report.commands[0].answer.as_str()), (phase, "notice: here"));
    }
}

#[tokio::test]
async fn concurrently_gated_calls_run_it_once_each() {
    let bench = bench(&entry("h", "before_tool_execute"), |_| printing(""));
    let reports = futures::future::join_all((0..20).map(|n| bench.at(gate(&format!("echo {n}"))))).await;
    assert_eq!(bench.seen(), 20);
    assert!(reports.iter().all(|report| report.intercept.is_none() && report.commands.len() == 1));
}

#[tokio::test]
async fn the_strictest_response_wins() {
    let file: String =
        ["result", "ask", "deny", "block"].iter().map(|name| entry(name, "before_tool_execute")).collect();
    let all = |name: &str| match name {
        "result" => printing("{\"set_result\": {\"text\": \"r\"}}"),
        "ask" => printing("{\"ask\": {\"question\": \"q\"}}"),
        "deny" => printing("{\"deny\": \"d\"}"),
        _ => printing("{\"block\": \"b\"}"),
    };
    let report = bench(&file, all).at(gate("ls")).await;
    assert!(matches!(report.intercept, Some(ToolInterceptPayload::Block { .. })), "{report:?}");
    let without_block = file.split("[[hooks]]\nname = \"block\"").next().expect("a string");
    let report = bench(without_block, all).at(gate("ls")).await;
    assert!(matches!(report.intercept, Some(ToolInterceptPayload::Deny(_))), "{report:?}");
    let two = file.split("[[hooks]]\nname = \"deny\"").next().expect("a string");
    let report = bench(two, all).at(gate("ls")).await;
    assert!(matches!(report.intercept, Some(ToolInterceptPayload::Suspend(_))), "{report:?}");
    let report = bench(&entry("result", "before_tool_execute"), all).at(gate("ls")).await;
    assert!(matches!(report.intercept, Some(ToolInterceptPayload::SetResult(_))), "{report:?}");
}

#[tokio::test]
async fn a_failing_or_panicking_runner_keeps_the_gate_closed() {
    let broken: [fn(&str) -> Printed; 3] = [
        |_| Err(HookNotRun::NotStarted("no such program".into())),
        |_| panic!("a bug"),
        |_| Ok(HookOutput::default()),
    ];
    for answer in broken {
        let bench = bench(&entry("h", "before_tool_execute"), answer);
        let report = bench.at(gate("ls")).await;
        assert!(matches!(report.intercept, Some(ToolInterceptPayload::Deny(_))), "{report:?}");
        assert_eq!(report.failed_actions, 0);
        assert!(report.commands[0].answer.starts_with("failed: it "), "{report:?}");
    }
    let bench = bench(&entry("h", "step_start"), |_| panic!("a bug"));
    let report = bench.at(PhaseContext::test_default().with_phase(Phase::StepStart)).await;
    assert_eq!((report.stop, report.activities.len()), (None, 1));
}

#[tokio::test]
async fn a_response_is_limited_to_its_phase() {
    let output =
        |stdout: &str| HookOutput { stdout: stdout.into(), exit_code: Some(0), ..HookOutput::default() };
    for (name, phase) in PHASES {
        let gate = phase == Phase::BeforeToolExecute;
        let end = phase == Phase::RunEnd;
        for (answer, is_right) in [
            ("{\"block\": \"x\"}", !end),
            ("{\"deny\": \"x\"}", gate),
            ("{\"set_result\": {\"text\": \"x\"}}", gate),
            ("{\"ask\": {\"question\": \"x\"}}", gate),
            ("{\"context\": [{\"content\": \"x\"}]}", !end),
            ("{\"exclude_tools\": [\"x\"]}", !end),
            ("{\"stop\": \"x\"}", !end),
            ("{\"notice\": \"x\"}", true),
            ("{}", true),
            (" \n", true),
            ("[]", false),
            ("{\"allow\": \"x\"}", false),
            ("{\"arguments\": {}}", false),
        ] {
            assert_eq!(read(phase, &output(answer)).is_ok(), is_right, "{name}: {answer}");
        }
        let no = HookOutput { stderr: "why\n".into(), exit_code: Some(2), ..HookOutput::default() };
        let wanted = match phase {
            Phase::BeforeToolExecute => Some("deny: why"),
            Phase::AfterToolExecute => Some("context: why"),
            Phase::RunEnd => None,
            Phase::RunStart
            | Phase::StepStart
            | Phase::BeforeInference
            | Phase::AfterInference
            | Phase::StepEnd => Some("block: why"),
        };
        assert_eq!(read(phase, &no).ok().map(|answer| answer.summary()).as_deref(), wanted, "{name}");
    }
}

/// The answers that Claude Code's documentation lists.
#[test]
fn answers_in_the_form_of_claude_code_are_understood() {
    let output =
        |stdout: &str| HookOutput { stdout: stdout.into(), exit_code: Some(0), ..HookOutput::default() };
    let permission = |decision: &str| {
        json!({"hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": "why",
        }})
    };
    let gate = Phase::BeforeToolExecute;
    for (phase, answer, summary) in [
        (gate, permission("allow"), Some("nothing")),
        (gate, permission("deny"), Some("deny: why")),
        (gate, permission("ask"), Some("ask: why")),
        (gate, permission("defer"), None),
        (Phase::AfterToolExecute, permission("deny"), None),
        (
            gate,
            json!({"hookSpecificOutput": {"permissionDecision": "allow", "updatedInput": {"command": "ls"}}}),
            None,
        ),
        (gate, json!({"hookSpecificOutput": {"permissionDecison": "deny"}}), None),
        (gate, json!({"hookSpecificOutput": {"permissionDecision": "deny"}, "deny": "x"}), None),
        (gate, json!({"decision": "block", "reason": "no"}), Some("deny: no")),
        (gate, json!({"decision": "approve", "reason": "fine"}), Some("nothing")),
        (Phase::AfterToolExecute, json!({"decision": "block", "reason": "no"}), Some("context: no")),
        (
            Phase::AfterToolExecute,
            json!({"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "lint"}}),
            Some("context: lint"),
        ),
        (Phase::RunStart, json!({"decision": "block"}), Some("block: no reason given")),
        (Phase::RunStart, json!({"hookSpecificOutput": {"additionalContext": "now"}}), Some("context: now")),
        (Phase::RunEnd, json!({"decision": "block", "reason": "go on"}), None),
        (
            gate,
            json!({"continue": false, "stopReason": "enough", "suppressOutput": true, "systemMessage": "hi"}),
            Some("stop: enough; notice: hi"),
        ),
        (gate, json!({"continue": true}), Some("nothing")),
    ] {
        let read = read(phase, &output(&answer.to_string())).map(|answer| answer.summary());
        assert_eq!(read.as_ref().ok().map(String::as_str), summary, "{answer}: {read:?}");
    }
}

#[tokio::test]
async fn an_event_has_the_names_that_claude_code_uses() {
    let bench = bench(&entry("h", "before_tool_execute"), |_| printing(""));
    bench.at(gate("ls")).await;
    let event = bench.runner.seen.lock().expect("not poisoned").pop().expect("an event");
    assert_eq!(
        (&event["hook_event_name"], &event["tool_name"], &event["tool_input"]["command"]),
        (&json!("PreToolUse"), &json!("Bash"), &json!("ls"))
    );
    assert_eq!(event["session_id"], event["thread_id"]);
}

#[tokio::test]
async fn a_block_and_a_stop_end_the_run_with_different_reasons() {
    let start = || PhaseContext::test_default().with_phase(Phase::StepStart);
    let report = bench(&entry("h", "step_start"), |_| printing("{\"block\": \"no\"}")).at(start()).await;
    assert!(
        matches!(&report.stop, Some(TerminationReason::Blocked(why)) if why.contains("no")),
        "{report:?}"
    );
    let report = bench(&entry("h", "step_start"), |_| printing("{\"stop\": \"enough\"}")).at(start()).await;
    assert!(
        matches!(&report.stop, Some(TerminationReason::Stopped(why)) if why.code == "hook"),
        "{report:?}"
    );
}

#[test]
fn a_file_is_read_with_its_defaults() {
    let text = "# ours\n[[hooks]]\nphase = \"run_end\"\ncommand = [\"notify-send\", \"done\"]\n\n\
                [[hooks]]\nphase = \"run_end\"\ncommand = [\"~/bin/x\"]\ntimeout = 3\nname = \"a.b-c_1\"\n";
    let hooks = parse(Path::new("/h/hooks.toml"), text, HookLayer::User, None).unwrap();
    assert_eq!((hooks[0].name.as_str(), hooks[0].timeout), ("user-run_end-1", DEFAULT_TIMEOUT));
    assert_eq!((hooks[0].origin.as_str(), hooks[1].origin.as_str()), ("/h/hooks.toml:2", "/h/hooks.toml:6"));
    assert_eq!((hooks[1].name.as_str(), hooks[1].timeout), ("a.b-c_1", Duration::from_secs(3)));
    let asked = request(&hooks[1], Path::new("/w"), Path::new("/home/ada"), Vec::new(), <_>::default());
    assert_eq!(
        (asked.program.as_path(), asked.cwd.as_path()),
        (Path::new("/home/ada/bin/x"), Path::new("/w"))
    );
    let project = entry("h", "run_end").replace("\"x\"", "\".aye/x\", \"y\"");
    let hooks =
        parse(Path::new("/p/.aye/hooks.toml"), &project, HookLayer::Project, Some(Path::new("/p"))).unwrap();
    let asked = request(&hooks[0], Path::new("/p/sub"), Path::new("/home/ada"), Vec::new(), <_>::default());
    assert_eq!((asked.program.as_path(), asked.cwd.as_path()), (Path::new("/p/.aye/x"), Path::new("/p")));
    assert_eq!((asked.profile, asked.domains.len()), (Profile::Workspace, 0));
    let reaching = format!("{project}domains = [\"*.example.org\"]\n");
    let read = |layer| parse(Path::new("/p/.aye/hooks.toml"), &reaching, layer, Some(Path::new("/p")));
    let asked = &read(HookLayer::Project).unwrap()[0];
    let asked = request(asked, Path::new("/p"), Path::new("/home/ada"), Vec::new(), <_>::default());
    assert!(asked.domains[0].matches("a.example.org"));
    let error = read(HookLayer::User).unwrap_err().to_string();
    assert!(error.contains("yours run outside the sandbox"), "{error}");
    let twice = entry("h", "run_end") + &entry("h", "run_start");
    let error = parse(Path::new("/h/hooks.toml"), &twice, HookLayer::User, None).unwrap_err();
    assert!(error.to_string().contains("hooks.toml:5: duplicate hook `h`"), "{error}");
}

#[test]
fn undecidable_shell_words_count_as_possible_matches() {
    let file =
        entry("h", "before_tool_execute").replace("command =", "tool = \"Bash(git push *)\"\ncommand =");
    let hook = &parse(Path::new("h"), &file, HookLayer::User, None).unwrap()[0];
    for (line, is_about) in [
        ("git push", true),
        ("git  push  --force", true),
        ("a && b | git push x", true),
        ("git $what", true),
        ("$what push", true),
        ("eval \"$x\"", true),
        ("git log $x", false),
        ("ls $x", false),
        ("git pull", false),
        ("if then", true),
    ] {
        let ctx = gate(line);
        assert_eq!(hook.is_about(ctx.tool.as_ref().unwrap()), is_about, "{line}");
    }
}

#[test]
fn plain_output_is_an_answer_only_where_it_is_one() {
    let hook = |phase: &str, more: &str| {
        let text = format!("[[hooks]]\nphase = \"{phase}\"\ncommand = [\"sh\"]\n{more}");
        let path = Path::new("hooks.toml");
        super::config::parse(path, &text, HookLayer::User, None).expect("usable").remove(0)
    };
    let plain = |phase: &str| hook(phase, "plain_output = true\n");
    let printed = |text: &str| printing(text).expect("ran");
    for phase in ["before_tool_execute", "after_tool_execute", "run_end"] {
        assert_eq!(
            plain(phase).answer_of(&printed("src/a.rs 12ms\n")).expect("no answer"),
            HookResponse::default()
        );
        assert!(
            hook(phase, "").answer_of(&printed("src/a.rs 12ms\n")).is_err(),
            "a mistake of a hook of aye's"
        );
    }
    let context = plain("run_start").answer_of(&printed("It is late.\n")).expect("context").context;
    assert_eq!(context[0].content, "It is late.");
    let denied = plain("before_tool_execute").answer_of(&printed(r#"{"deny": "no"}"#)).expect("an answer");
    assert_eq!(denied.deny.as_deref(), Some("no"));
    assert!(
        plain("before_tool_execute").answer_of(&printed("{\"den")).is_err(),
        "half an object is a failure"
    );
    let refused = HookOutput { exit_code: Some(2), stderr: "no".into(), ..printed("text") };
    assert_eq!(
        plain("before_tool_execute").answer_of(&refused).expect("a denial").deny.as_deref(),
        Some("no")
    );
    let failed = HookOutput { exit_code: Some(1), ..printed("text") };
    assert!(plain("before_tool_execute").answer_of(&failed).is_err());
}
