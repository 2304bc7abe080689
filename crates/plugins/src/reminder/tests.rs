use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use aye_core::contract::activity::Activity;
use aye_core::contract::context_message::{ContextMessage, ContextTarget};
use aye_core::contract::message::ToolCall;
use aye_core::contract::spec::AgentSpec;
use aye_core::contract::tool::{ToolDescriptor, ToolResult};
use aye_core::phase::{ExecutionEnv, PhaseContext, PhaseReport, PhaseRuntime, RunProgress, ToolCallInfo};
use aye_core::state::StateStore;

fn call(tool: &str, args: Value) -> ToolCallInfo {
    let primary = match tool {
        "Bash" => Some("command"),
        "Edit" => Some("file_path"),
        _ => None,
    };
    let mut descriptor = ToolDescriptor::new(tool, tool, "");
    descriptor.primary_argument = primary.map(str::to_owned);
    ToolCallInfo::new(ToolCall::new("c1", tool, args), Some(descriptor))
}

fn rules(rules: Value) -> Vec<ReminderRule> {
    let text = json!({ "rules": rules }).to_string();
    ReminderRulesConfig::from_str(&text, Some("json")).expect("rules").into_rules().expect("rules")
}

fn rule_with(tool: &str, output: Value) -> Value {
    json!({"tool": tool, "output": output, "message": {"target": "suffix_system", "content": "Mind it."}})
}

/// A run whose steps are driven by hand.
struct Steps {
    env: ExecutionEnv,
    phases: PhaseRuntime,
    spec: Arc<AgentSpec>,
}

impl Steps {
    fn with(rules: Vec<ReminderRule>, spec: AgentSpec) -> Self {
        let plugins: Vec<Arc<dyn aye_core::phase::Plugin>> = vec![Arc::new(ReminderPlugin::new(rules))];
        let env = ExecutionEnv::from_plugins(&plugins).expect("an environment");
        let phases = PhaseRuntime::new(StateStore::new()).expect("an engine");
        phases.install(&env).expect("keys");
        Self { env, phases, spec: Arc::new(spec) }
    }

    fn new(rules: Vec<ReminderRule>) -> Self {
        Self::with(rules, AgentSpec::new("agent"))
    }

    async fn phase(
        &self,
        phase: Phase,
        step: u32,
        of: impl FnOnce(PhaseContext) -> PhaseContext,
    ) -> PhaseReport {
        let ctx = PhaseContext::test_default()
            .with_phase(phase)
            .with_agent_spec(Arc::clone(&self.spec))
            .with_progress(RunProgress { steps: step, ..RunProgress::default() });
        self.phases.run_phase(&self.env, of(ctx)).await.expect("the phase")
    }

    /// The notice to the user when a call is settled in a step.
    async fn settled(&self, step: u32, tool: ToolCallInfo, result: ToolResult) -> Vec<Activity> {
        self.phase(Phase::AfterToolExecute, step, |ctx| ctx.with_tool(tool).with_tool_result(result))
            .await
            .activities
    }

    /// The context messages in the request after a step.
    async fn request(&self, step: u32) -> Vec<ContextMessage> {
        self.phase(Phase::StepStart, step, |ctx| ctx).await;
        self.phase(Phase::BeforeInference, step, |ctx| ctx).await.inference.context_messages
    }
}

#[test]
fn the_books_rules_load() {
    let all = rules(json!([
        {"tool": "Bash(command ~ 'rm *')", "output": {"status": "success"},
         "message": {"target": "suffix_system", "content": "A deletion command just succeeded. Verify the result."}},
        {"name": "toml-edit-reminder", "tool": "Edit(file_path ~ '*.toml')", "output": "any",
         "message": {"target": "system", "content": "You edited a TOML file.", "cooldown_turns": 3}},
        {"tool": "*", "output": {"status": "error", "content": {
            "fields": [{"path": "error.code", "op": "exact", "value": "403"}]}},
         "message": {"target": "session", "content": "HTTP 403 Forbidden."}},
        {"tool": "*", "message": {"target": "conversation", "content": "Be careful."}},
    ]));
    let names: Vec<_> = all.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["rule-0-Bash(command ~ 'rm *')", "toml-edit-reminder", "rule-2-*", "rule-3-*"]);
    let targets: Vec<_> = all.iter().map(|rule| rule.target.word()).collect();
    assert_eq!(targets, ["suffix_system", "system", "session", "conversation"]);
    assert_eq!(all[1].cooldown_turns, 3);
    assert_eq!(all[3].output, OutputMatcher::default());
    assert_eq!(ReminderRulesConfig::from_str("{}", None).expect("nothing").rules, []);
}

/// The table of tool patterns.
#[test]
fn tools_are_matched_by_pattern() {
    let ok = ToolResult::text("x", "done");
    for (pattern, tool, args, wanted) in [
        ("Bash", "Bash", json!({"command": "ls"}), true),
        ("Bash", "Bash2", json!({}), false),
        ("*", "anything", json!({}), true),
        ("mcp__*", "mcp__github__create", json!({}), true),
        ("mcp__*", "Bash", json!({}), false),
        ("Bash(command ~ 'rm *')", "Bash", json!({"command": "rm -r x"}), true),
        ("Bash(command ~ 'rm *')", "Bash", json!({"command": "ls; rm x"}), false),
        ("Bash(rm *)", "Bash", json!({"command": "rm -r x"}), true),
        ("Edit(file_path ~ '*.toml')", "Edit", json!({"file_path": "/w/Cargo.toml"}), true),
        ("Edit(file_path ~ '*.toml')", "Edit", json!({"file_path": "/w/main.rs"}), false),
        ("Edit(file_path ~ '*.toml')", "Edit", json!({}), false),
    ] {
        let rule = &rules(json!([rule_with(pattern, json!("any"))]))[0];
        assert_eq!(rule.matches(&call(tool, args), &ResultView::new(&ok)), wanted, "{pattern} on {tool}");
    }
}

/// The tables of statuses, of content and of operations.
#[test]
fn results_are_matched_by_status_and_content() {
    let success = || ToolResult::text("x", "all is well");
    let error = || ToolResult::error("x", "open /etc/shadow: permission denied (13)");
    let http = || ToolResult::error_with_code("x", "forbidden", "no");
    let data = || {
        ToolResult::success(
            "x",
            json!({"error": {"code": 403, "tags": ["a"], "none": null}, "ok": true, "a.b": 1}),
        )
    };
    let field = |path: &str, op: &str, value: Value| json!({"content": {"fields": [{"path": path, "op": op, "value": value}]}});
    let pending = || ToolResult::suspended("x", "waits");
    for (output, result, wanted) in [
        (json!("any"), success(), true),
        (json!("any"), error(), true),
        (json!({}), pending(), true),
        (json!({"status": "any"}), error(), true),
        (json!({"status": "success"}), success(), true),
        (json!({"status": "success"}), error(), false),
        (json!({"status": "error"}), error(), true),
        (json!({"status": "error"}), success(), false),
        (json!({"status": "pending"}), pending(), true),
        (json!({"status": "pending"}), success(), false),
        (json!({"status": "error"}), pending(), false),
        // A glob on the text is anchored at both ends.
        (json!({"content": "*permission denied*"}), error(), true),
        (json!({"content": "permission denied"}), error(), false),
        (json!({"content": "*Permission*"}), error(), false),
        (json!({"content": "all is well"}), success(), true),
        // Both conditions must match.
        (json!({"status": "error", "content": "*permission denied*"}), error(), true),
        (json!({"status": "success", "content": "*permission denied*"}), error(), false),
        (json!({"status": "error", "content": "*well*"}), error(), false),
        // The model sees this text: message and data.
        (json!({"content": "no\n*\"code\":\"forbidden\"*"}), http(), true),
        (field("code", "exact", json!("forbidden")), http(), true),
        // The book's path, for errors from any source.
        (field("error.code", "exact", json!("forbidden")), http(), true),
        (field("error.message", "exact", json!("no")), http(), true),
        (
            field("error.code", "exact", json!("403")),
            ToolResult::error("WebFetch", "https://h answered 403 Forbidden")
                .with_details(json!({"status": 403})),
            true,
        ),
        (
            field("error.code", "exact", json!("403")),
            ToolResult::error("x", r#"{"error": {"code": 403}}"#),
            true,
        ),
        (
            field("error.code", "exact", json!("200")),
            ToolResult::text("WebFetch", "all is well").with_details(json!({"status": 200})),
            false,
        ),
        // Operations, on the text of the value.
        (field("error.code", "exact", json!("403")), data(), true),
        (field("error.code", "exact", json!(403)), data(), true),
        (field("error.code", "exact", json!("40")), data(), false),
        (field("error.code", "glob", json!("4*")), data(), true),
        (field("error.code", "glob", json!("5*")), data(), false),
        (field("error.code", "regex", json!("0")), data(), true),
        (field("error.code", "regex", json!("^0")), data(), false),
        (field("error.code", "not_exact", json!("404")), data(), true),
        (field("error.code", "not_exact", json!("403")), data(), false),
        (field("error.code", "not_glob", json!("5*")), data(), true),
        (field("error.code", "not_glob", json!("4*")), data(), false),
        (field("error.code", "not_regex", json!("9")), data(), true),
        (field("error.code", "not_regex", json!("3$")), data(), false),
        (field("error.none", "exact", json!("")), data(), true),
        (field("ok", "exact", json!(true)), data(), true),
        // A missing path never matches, negated or not; only dots separate, and lists have no names.
        (field("error.missing", "not_exact", json!("x")), data(), false),
        (field("error.code.more", "not_glob", json!("x")), data(), false),
        (field("error.tags.0", "exact", json!("a")), data(), false),
        (field("a.b", "exact", json!("1")), data(), false),
        (field("error", "not_exact", json!("x")), success(), false),
        // A text-only tool may return JSON as text.
        (
            field("error.code", "exact", json!("403")),
            ToolResult::text("x", r#" {"error": {"code": 403}}"#),
            true,
        ),
        (
            field("error.code", "exact", json!("403")),
            ToolResult::text("x", r#"{"error": {"code": 403}"#),
            false,
        ),
    ] {
        let rule = &rules(json!([rule_with("*", output.clone())]))[0];
        let tool = call("x", json!({}));
        assert_eq!(rule.matches(&tool, &ResultView::new(&result)), wanted, "{output} on {result:?}");
    }
    let both = |value: &str| {
        json!({"content": {"fields": [
            {"path": "error.code", "value": "403"}, {"path": "ok", "op": "exact", "value": value}]}})
    };
    for (value, wanted) in [("true", true), ("false", false)] {
        let rule = &rules(json!([rule_with("*", both(value))]))[0];
        assert_eq!(
            rule.matches(&call("x", json!({})), &ResultView::new(&data())),
            wanted,
            "all fields must match"
        );
    }
}

#[tokio::test]
async fn every_target_is_a_message_at_the_end() {
    let rule = |target: &str| json!({"tool": "*", "message": {"target": target, "content": target}});
    let all = ["system", "suffix_system", "session", "conversation"];
    let steps = Steps::new(rules(all.iter().map(|target| rule(target)).collect()));
    steps.settled(1, call("Bash", json!({})), ToolResult::text("Bash", "ok")).await;
    let place = |message: &ContextMessage| (message.content.clone(), message.target);
    let first: Vec<_> = steps.request(1).await.iter().map(place).collect();
    assert_eq!(first, all.map(|target| (target.to_owned(), ContextTarget::Conversation)));
    assert_eq!(steps.request(2).await, [], "once: the message stays in the conversation");
}

#[tokio::test]
async fn all_matching_rules_fire_in_order_and_are_shown() {
    let rule = |name: &str, tool: &str, content: &str| json!({"name": name, "tool": tool, "message": {"target": "suffix_system", "content": content}});
    let steps = Steps::new(rules(json!([
        rule("b", "Bash", "one\ntwo"),
        rule("a", "*", "three"),
        rule("never", "Edit", "four"),
        rule("a", "Bash", "five"),
        {"tool": "Bash", "message": {"target": "suffix_system", "content": "x".repeat(300)}},
    ])));
    let reminded = steps.settled(1, call("Bash", json!({})), ToolResult::text("Bash", "ok")).await;
    let long = format!("{}…", "x".repeat(199));
    let notice = |text: &str| Activity::notice("reminder", text);
    assert_eq!(reminded, [notice("b: one two"), notice("a: three"), notice("a: five"), notice(&long)]);
    let words: Vec<_> = steps.request(1).await.into_iter().map(|message| message.content).collect();
    assert_eq!(words, ["one\ntwo".to_owned(), "three".into(), "five".into(), "x".repeat(300)]);
    assert_eq!(steps.request(2).await, [], "it was for one step");
}

#[tokio::test]
async fn the_cooldown_counts_steps_per_rule_and_run() {
    let rule = |tool: &str, cooldown: u32| json!({"tool": tool, "message": {"target": "suffix_system", "content": tool, "cooldown_turns": cooldown}});
    let steps = Steps::new(rules(json!([rule("Bash", 3), rule("*", 0)])));
    let mut fired = Vec::new();
    for step in 1..=9 {
        let mut reminded = 0;
        // Two calls of one step are one occasion.
        for _ in 0..2 {
            reminded +=
                steps.settled(step, call("Bash", json!({})), ToolResult::text("Bash", "ok")).await.len();
        }
        fired.push(reminded);
        assert_eq!(steps.request(step).await.len(), reminded, "the model reads the shown text");
    }
    assert_eq!(fired, [2, 1, 1, 1, 2, 1, 1, 1, 2]);
}

#[tokio::test]
async fn the_agents_section_adds_rules_and_is_validated() {
    let section = json!({"rules": [rule_with("Bash", json!("any"))]});
    let spec = AgentSpec::new("agent").with_section("reminder", section.clone());
    let own = rules(json!([{"tool": "Bash", "message": {"target": "system", "content": "mine"}}]));
    let steps = Steps::with(own, spec);
    let reminded = steps.settled(1, call("Bash", json!({})), ToolResult::text("Bash", "ok")).await;
    assert_eq!(reminded, [Activity::notice("reminder", "mine"), Activity::notice("reminder", "Mind it.")]);

    let plugins: Vec<Arc<dyn Plugin>> = vec![Arc::new(ReminderPlugin::new(Vec::new()))];
    let check = |section: Value| {
        let spec = AgentSpec::new("agent").with_section("reminder", section);
        aye_core::phase::validate_sections(&plugins, &spec).map_err(|error| error.message)
    };
    assert_eq!(check(section), Ok(vec![]));
    let wrong = check(json!({"rules": [rule_with("Bash", json!("any")), rule_with("Bash(", json!("any"))]}));
    let wrong = wrong.expect_err("a broken pattern");
    assert!(wrong.starts_with("rules[1]: pattern `Bash(`, character 5"), "{wrong}");
    assert!(check(json!([])).is_err() && check(json!({"rule": []})).is_err());
}

/// The table of common errors: each reports its line and the expected value.
#[test]
fn mistakes_are_reported_with_their_place() {
    let file = |rule: &str| format!("{{\n  \"rules\": [\n    {rule}\n  ]\n}}\n");
    let message = r#""message": {"target": "system", "content": "x"}"#;
    for (rule, line, words) in [
        (
            "{\"tool\": \"Bash\",\n \"message\": {\"target\": \"sytem\", \"content\": \"x\"}}",
            4,
            "unknown target `sytem`; expected one of system, suffix_system, session, conversation",
        ),
        (&*format!("{{\"tool\":\n \"Bash(\", {message}}}"), 4, "pattern `Bash(`, character 5: "),
        (
            &format!("{{\"tool\": \"*\", {message},\n\"output\": \"all\"}}"),
            4,
            "unknown output `all`; expected \"any\", or an object with `status` and `content`",
        ),
        (
            &format!("{{\"tool\": \"*\", {message}, \"output\": {{\n\"status\": \"failed\"}}}}"),
            4,
            "unknown status `failed`; expected one of success, error, pending, any",
        ),
        (
            &format!(
                "{{\"tool\": \"*\", {message}, \"output\": {{\n\"content\": {{\"fields\": [\n{{\"path\": \"a\", \"value\": \"1\",\n\"op\": \"equals\"}}]}}}}}}"
            ),
            6,
            "unknown operation `equals`; expected one of glob, exact, regex, not_glob, not_exact, not_regex",
        ),
        (
            &format!(
                "{{\"tool\": \"*\", {message}, \"output\": {{\"content\": {{\"fields\": [{{\n\"path\": \"a[0]\", \"value\": 1}}]}}}}}}"
            ),
            4,
            "`path` must be names separated by dots",
        ),
        (
            &format!(
                "{{\"tool\": \"*\", {message}, \"output\": {{\"content\": {{\"fields\": [{{\"path\": \"a\", \"op\": \"regex\",\n\"value\": \"(\"}}]}}}}}}"
            ),
            4,
            "invalid regular expression",
        ),
        (
            &format!("{{\"tool\": \"*\", {message}, \"output\": {{\"content\":\n\"[z-a]\"}}}}"),
            4,
            "pattern `[z-a]`",
        ),
        (
            &format!("{{\"tool\": \"*\", {message},\n\"cooldown\": 3}}"),
            4,
            "a rule has no key `cooldown`; its keys are name, tool, output, message",
        ),
        (&format!("{{\n{message}}}"), 3, "the rule's `tool`, a tool pattern such as `Edit`, is missing"),
        (
            "{\"tool\": \"*\",\n\"message\": {\"target\": \"system\"}}",
            4,
            "the message's `content` is missing",
        ),
        (
            "{\"tool\": \"*\",\n\"message\": {\"target\": \"system\", \"content\": \" \"}}",
            4,
            "`content` is empty",
        ),
        (
            "{\"tool\": \"*\", \"message\": {\"target\": \"system\", \"content\": \"x\",\n\"cooldown_turns\": -1}}",
            4,
            "`cooldown_turns` must be a number of steps, 0 or more",
        ),
        (
            "{\"tool\": \"*\", \"message\": {\"target\": \"system\", \"content\": \"x\",\n\"cooldown_turns\": 1.5}}",
            4,
            "`cooldown_turns` must be a number",
        ),
        (&format!("{{\"tool\": \"*\", {message},\n\"tool\": \"Bash\"}}"), 4, "tool"),
        ("7", 3, "a rule must be an object with the keys name, tool, output, message"),
        ("{\"tool\": \"*\",\n}", 4, "not JSON (column 1): "),
    ] {
        let error = ReminderRulesConfig::from_str(&file(rule), Some("json")).expect_err(rule).to_string();
        assert!(error.starts_with(&format!("reminders:{line}: ")), "{rule}: {error}");
        assert!(error.contains(words), "{rule}: {error}");
    }
    let error = ReminderRulesConfig::from_str("", None).expect_err("no JSON").to_string();
    assert!(error.starts_with("reminders:1: not JSON"), "{error}");
    assert!(ReminderRulesConfig::from_str("rules: []", None).is_err(), "YAML is not JSON");
    assert!(
        ReminderRulesConfig::from_str("{}", Some("toml")).expect_err("toml").to_string().contains("json")
    );
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(ReminderRulesConfig::from_str(&deep, None).is_err(), "deep nesting is refused");
}

#[test]
fn files_are_read_with_line_numbers() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("reminders.json");
    let one = json!({"tool": "Bash", "message": {"target": "system", "content": "x"}});
    std::fs::write(&path, format!("\u{feff}{{\"rules\": [\n{one},\n\n{one}]}}")).expect("a file");
    let lines: Vec<_> = load_rules(&path).expect("rules").iter().map(|rule| rule.line).collect();
    assert_eq!(lines, [Some(2), Some(4)]);
    assert_eq!(ReminderRulesConfig::from_file(&path).expect("rules").into_rules().expect("rules").len(), 2);
    std::fs::write(&path, "{\"rules\": [\n{\"tool\": \"\"}]}").expect("a file");
    let error = load_rules(&path).expect_err("an empty pattern").to_string();
    assert_eq!(error, format!("{}:2: `tool` is empty", path.display()));
    let error = load_rules(dir.path()).expect_err("a folder").to_string();
    assert!(error.contains("not a plain file"), "{error}");
}
