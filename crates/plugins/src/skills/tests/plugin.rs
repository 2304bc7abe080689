use crate::skills::*;
use async_trait::async_trait;
use aye_core::contract::message::Message;
use aye_core::contract::suspension::{
    ACTION_CHILD_RUN, ResumeDecisionAction, ToolCallResume, ToolCallResumeMode,
};
use aye_core::contract::tool::{Tool, ToolCallContext, ToolError, ToolOutput};
use aye_core::phase::{ExecutionEnv, InferenceShape, PhaseContext, PhaseRuntime, Plugin, inference_shape};
use aye_core::state::{Phase, StateStore};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Records requests and answers as scripted.
struct Recorder {
    seen: Mutex<Vec<ScriptRequest>>,
    answer: ScriptOutput,
}

#[async_trait]
impl ScriptRunner for Recorder {
    async fn run(&self, request: ScriptRequest, _: &ToolCallContext) -> Result<ScriptOutput, ScriptNotRun> {
        self.seen.lock().expect("not poisoned").push(request);
        Ok(self.answer.clone())
    }
}

/// Skills in a folder, a state, and the plugins over both.
struct World {
    dir: tempfile::TempDir,
    runtime: PhaseRuntime,
    env: ExecutionEnv,
    runner: Arc<Recorder>,
    targets: SharedTargets,
    /// The messages of the conversation.
    messages: Mutex<Vec<Message>>,
}

const DEPLOY: &str = "---\nname: deploy\ndescription: Deploys.\nallowed-tools: Bash(git push *) Read\n---\nDo $ARGUMENTS with !`touch pwn`.\n";

impl World {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for (path, bytes) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("has a parent")).expect("a folder");
            fs::write(path, bytes).expect("writes");
        }
        let root = SkillRoot { dir: dir.path().into(), scope: SkillScope::User, boundary: None };
        let registry = Arc::new(discover(&[root], Vec::new()).registry());
        let answer =
            ScriptOutput { output: "done\u{1b}[2J\n".into(), exit_code: Some(0), ..ScriptOutput::default() };
        let runner = Arc::new(Recorder { seen: Mutex::default(), answer });
        let targets = SharedTargets::default();
        let subsystem = SkillSubsystem::new(registry)
            .with_targets(Arc::clone(&targets))
            .with_scripts(Arc::clone(&runner) as Arc<dyn ScriptRunner>, "/project");
        let plugins: Vec<Arc<dyn Plugin>> =
            vec![Arc::new(subsystem.discovery_plugin()), Arc::new(subsystem.active_instructions_plugin())];
        let env = ExecutionEnv::from_plugins(&plugins).expect("registers");
        let runtime = PhaseRuntime::new(StateStore::new()).expect("runtime");
        runtime.install(&env).expect("keys");
        Self { dir, runtime, env, runner, targets, messages: Mutex::default() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().canonicalize().expect("a real path").join(path)
    }

    fn tool(&self, id: &str) -> Arc<dyn Tool> {
        Arc::clone(&self.env.tools[id].tool)
    }

    /// Executes a call and commits its command.
    async fn call(
        &self,
        tool: &str,
        args: Value,
        resume: Option<ResumeDecisionAction>,
    ) -> Result<ToolOutput, ToolError> {
        let mut ctx = ToolCallContext::test_default();
        ctx.tool_name = tool.into();
        ctx.snapshot = self.runtime.store().snapshot();
        ctx.resume = resume.map(|action| ToolCallResume {
            decision_id: "d".into(),
            action,
            result: Value::Null,
            reason: None,
            arguments: None,
            profile: None,
            updated_at: 0,
        });
        self.tool(tool).validate_args(&args)?;
        let ToolOutput { result, command } = self.tool(tool).execute(args, &ctx).await?;
        self.runtime.submit_command(&self.env, command).await.expect("commits");
        Ok(result.into())
    }

    async fn text(&self, tool: &str, args: Value) -> String {
        match self.call(tool, args, None).await {
            Ok(output) => output.result.model_text(),
            Err(error) => format!("error: {error}"),
        }
    }

    /// The context messages of the model.
    async fn context(&self) -> Vec<(String, String)> {
        let ctx = PhaseContext::test_default().with_phase(Phase::StepStart);
        self.runtime.run_phase(&self.env, ctx).await.expect("phase");
        let mut ctx = PhaseContext::test_default().with_phase(Phase::BeforeInference);
        ctx = ctx.with_messages(self.messages.lock().expect("not poisoned").clone());
        self.runtime.run_phase(&self.env, ctx).await.expect("phase");
        let shape = self.shape();
        shape.context_messages.into_iter().map(|message| (message.key, message.content)).collect()
    }

    fn shape(&self) -> InferenceShape {
        inference_shape(&self.runtime.store().snapshot())
    }

    fn append(&self, message: Message) {
        self.messages.lock().expect("not poisoned").push(message);
    }

    fn granted(&self) -> Vec<String> {
        granted_patterns(&self.runtime.store().snapshot())
    }
}

#[tokio::test]
async fn the_model_sees_the_catalogue_and_then_the_instructions() {
    let world = World::new(&[
        ("hello/SKILL.md", b"---\nname: hello\ndescription: Greets.\n---\n# Be kind\n"),
        ("hello/references/a.md", b"x"),
    ]);
    let before = world.context().await;
    assert_eq!(before.len(), 1);
    assert!(before[0].1.contains("<name>hello</name><description>Greets.</description>"));
    let result_text = world.text("skill", json!({"skill": "hello"})).await;
    assert!(
        result_text.contains("Loaded skill `hello`") && result_text.contains("references/a.md"),
        "{result_text}"
    );
    let after = world.context().await;
    assert_eq!(after[1].0, "skills.active.hello");
    assert_eq!(after[1].1, "<skill_instructions name=\"hello\">\n# Be kind\n</skill_instructions>");
    world.runtime.store().clear_run_scope();
    assert_eq!(world.context().await.len(), 2, "the next run of the thread continues with it");
}

#[tokio::test]
async fn without_skills_there_are_no_tools_and_no_catalogue() {
    let world = World::new(&[]);
    assert!(world.env.tools.is_empty());
    assert!(world.context().await.is_empty());
}

#[tokio::test]
async fn tools_of_a_skill_are_granted_after_one_question_for_one_run() {
    let world = World::new(&[("deploy/SKILL.md", DEPLOY.as_bytes())]);
    let args = json!({"skill": "deploy", "args": "it"});
    let asked = world.call("skill", args.clone(), None).await.expect("asks for approval").result;
    assert!(asked.is_pending());
    let ticket = asked.suspension.expect("a ticket");
    assert_eq!(ticket.suspension.action, ACTION_SKILL_CONSENT);
    assert_eq!(ticket.suspension.parameters["allowed_tools"], json!(["Bash(git push *)", "Read"]));
    assert!(ticket.suspension.id.as_str().starts_with("skill_call-1_"));
    assert!(world.granted().is_empty());
    assert_eq!(world.context().await.len(), 1, "nothing is loaded before the answer");
    let done =
        world.call("skill", args.clone(), Some(ResumeDecisionAction::Resume)).await.expect("resumes").result;
    assert!(done.is_success());
    assert_eq!(world.granted(), ["Bash(git push *)", "Read"]);
    // Row CO041: the text is inserted literally; nothing in it is executed.
    assert!(world.context().await[1].1.contains("Do it with !`touch pwn`."));
    assert!(
        world.call("skill", args.clone(), None).await.expect("asks again").result.is_success(),
        "asked once per run"
    );
    world.runtime.store().clear_run_scope();
    assert!(world.granted().is_empty());
    assert!(world.call("skill", args, None).await.expect("asks for approval").result.is_pending());
}

#[tokio::test]
async fn a_changed_skill_asks_again_and_a_foreign_decision_is_no_consent() {
    let world = World::new(&[("deploy/SKILL.md", DEPLOY.as_bytes())]);
    let args = json!({"skill": "deploy"});
    let resume = Some(ResumeDecisionAction::Resume);
    let first = world.call("skill", args.clone(), resume).await.expect("asks for approval").result;
    assert!(first.is_pending(), "the decision answered another question");
    fs::write(world.path("deploy/evil.sh"), "x").expect("writes");
    let second = world.call("skill", args.clone(), resume).await.expect("asks for approval").result;
    assert!(second.is_pending(), "the shown content is outdated");
    let id = |result: &aye_core::contract::tool::ToolResult| {
        result.suspension.as_ref().map(|ticket| ticket.suspension.id.clone())
    };
    assert_ne!(id(&first), id(&second));
    assert!(world.granted().is_empty());
    assert!(world.call("skill", args, resume).await.expect("resumes").result.is_success());
}

#[tokio::test]
async fn resources_are_text_or_base64_and_truncated() {
    let long = "ä".repeat(200_000);
    let world = World::new(&[
        ("r/SKILL.md", b"---\nname: r\ndescription: d\n---\nx"),
        ("r/references/a.md", b"hello"),
        ("r/references/long.md", format!("x{long}").as_bytes()),
        ("r/references/bytes", b"\xff\xfe"),
        ("r/assets/p.png", b"\x89PNG"),
        ("r/assets/big", &vec![0; 600_000]),
        ("r/data/deep/notes.txt", b"any file"),
        ("r/.hidden", b"hidden too"),
        ("r/scripts/run.sh", b"echo"),
    ]);
    let load = |path: &'static str| world.text("load_skill_resource", json!({"skill": "r", "path": path}));
    assert_eq!(load("references/a.md").await, "hello");
    assert_eq!(load("data/deep/notes.txt").await, "any file");
    assert_eq!(load(".hidden").await, "hidden too");
    assert!(load("SKILL.md").await.starts_with("---\nname: r"));
    for script in ["scripts/run.sh", "./scripts//run.sh"] {
        let refused = load(script).await;
        assert!(refused.contains("is a script; run it with the tool skill_script"), "{refused}");
    }
    std::os::unix::fs::symlink(world.path("r/scripts/run.sh"), world.path("r/linked.txt")).expect("linked");
    assert!(load("linked.txt").await.contains("is a script"), "by another name too");
    let cut = load("references/long.md").await;
    assert!(cut.ends_with("[cut here: 262143 of 400001 bytes are shown]"), "{}", &cut[cut.len() - 60..]);
    assert!(
        load("references/bytes").await.starts_with("error: `references/bytes` is not UTF-8 text (2 bytes)")
    );
    let asset: Value = serde_json::from_str(&load("assets/p.png").await).expect("JSON");
    assert_eq!((asset["encoding"].as_str(), asset["content"].as_str()), (Some("base64"), Some("iVBORw==")));
    let big: Value = serde_json::from_str(&load("assets/big").await).expect("JSON");
    assert_eq!((big["truncated"].as_bool(), big["size"].as_u64()), (Some(true), Some(600_000)));
    assert!(
        load("../x").await.starts_with("error: invalid arguments: `../x` leads out of the skill's folder")
    );
    assert!(load("nope.md").await.contains("it has: assets/big"));
    assert!(
        world
            .text("load_skill_resource", json!({"skill": "q", "path": "a"}))
            .await
            .contains("unknown skill `q`; known: r")
    );
}

#[tokio::test]
async fn a_script_runs_in_its_skill_with_arguments_and_limits() {
    let world = World::new(&[
        ("s/SKILL.md", b"---\nname: s\ndescription: d\n---\nx"),
        ("s/scripts/go.py", b"print(1)"),
        ("s/other.sh", b"x"),
    ]);
    let result_text =
        world.text("skill_script", json!({"skill": "s", "script": "go.py", "args": ["-a", "b c"]})).await;
    assert_eq!(result_text, "done^[[2J\n[scripts/go.py: exit status 0]");
    let request = world.runner.seen.lock().expect("not poisoned").pop().expect("ran");
    assert_eq!(request.program, "python3");
    assert_eq!(
        request.args,
        [world.path("s/scripts/go.py").display().to_string(), "-a".into(), "b c".into()]
    );
    assert_eq!(request.cwd, world.path("s"));
    assert_eq!(request.env[0], ("AYE_PROJECT_DIR".into(), "/project".into()));
    assert_eq!((request.timeout.as_secs(), request.max_output), (60, 32 * 1024));
    for (args, expected) in [
        (json!({"skill": "s", "script": "../s/other.sh"}), "leads out of the skill's folder"),
        (json!({"skill": "s", "script": "none.sh"}), "has no `scripts/none.sh`"),
        (json!({"skill": "s", "script": "go.py", "args": "x"}), "`args` must be a list"),
        (json!({"skill": "s", "script": "go.py", "args": ["a\0"]}), "`args` must be a list"),
        (json!({"skill": "s"}), "`script` must be a string"),
        (json!({"skill": 4, "script": "go.py"}), "`skill` must be a string"),
    ] {
        let result_text = world.text("skill_script", args).await;
        assert!(result_text.starts_with("error: ") && result_text.contains(expected), "{result_text}");
    }
    assert!(world.runner.seen.lock().expect("not poisoned").is_empty());
    world.text("skill", json!({"skill": "s"})).await;
    fs::write(world.path("s/scripts/go.py"), "print(2)").expect("writes");
    let result_text = world.text("skill_script", json!({"skill": "s", "script": "go.py"})).await;
    assert!(result_text.contains("changed since it was loaded"), "{result_text}");
}

#[tokio::test]
async fn a_failing_script_is_an_error_result() {
    let mut world =
        World::new(&[("s/SKILL.md", b"---\nname: s\ndescription: d\n---\nx"), ("s/scripts/go.sh", b"x")]);
    for (answer, expected) in [
        (
            ScriptOutput { output: "bad".into(), exit_code: Some(3), ..ScriptOutput::default() },
            "bad\n[scripts/go.sh: exit status 3]",
        ),
        (
            ScriptOutput { ended: Some("killed after 60 s".into()), ..ScriptOutput::default() },
            "scripts/go.sh: killed after 60 s, no output",
        ),
    ] {
        let runner: Arc<dyn ScriptRunner> = Arc::new(Recorder { seen: Mutex::default(), answer });
        let root = SkillRoot { dir: world.path(""), scope: SkillScope::User, boundary: None };
        let registry = Arc::new(discover(&[root], Vec::new()).registry());
        let plugin = SkillSubsystem::new(registry).with_scripts(runner, "/p").discovery_plugin();
        world.env = ExecutionEnv::from_plugins(&[Arc::new(plugin) as Arc<dyn Plugin>]).expect("registers");
        let output =
            world.call("skill_script", json!({"skill": "s", "script": "go.sh"}), None).await.expect("ran");
        assert!(output.result.is_error());
        assert_eq!(output.result.model_text(), expected);
    }
}

const USER_ONLY: &[u8] =
    b"---\nname: ship it\ndescription: Ships.\ndisable-model-invocation: true\n---\nShip $0 from ${CLAUDE_SKILL_DIR}.\n";

#[tokio::test]
async fn a_user_only_skill_is_hidden_from_the_model_until_started() {
    let world = World::new(&[("ship/SKILL.md", USER_ONLY)]);
    assert!(world.context().await.is_empty(), "it is in no catalogue");
    let call = || world.call("skill", json!({"skill": "ship it", "args": "made up"}), None);
    let refused = call().await.expect("a result").result;
    assert!(refused.is_error() && refused.model_text().contains("with /ship it"), "{refused:?}");
    // Similar text from a model or an MCP server starts nothing.
    let words = invocation(&registry_of(&world), "/ship it v1 now").unwrap().expect("a message");
    world.append(Message::user(words.clone()));
    world.context().await;
    assert!(call().await.expect("a result").result.is_error());
    world.append(Message::user(words).written_as("/ship it v1 now"));
    world.context().await;
    assert!(call().await.expect("a result").result.is_success());
    let text = &world.context().await[0].1;
    assert!(
        text.contains(&format!("Ship v1 from {}.", world.path("ship").display())),
        "as it was typed: {text}"
    );
    world.runtime.store().clear_run_scope();
    world.append(Message::assistant("Shipped."));
    world.context().await;
    assert!(call().await.expect("a result").result.is_error(), "it counts for one run");
}

fn registry_of(world: &World) -> InMemorySkillRegistry {
    let root = SkillRoot { dir: world.dir.path().into(), scope: SkillScope::User, boundary: None };
    discover(&[root], Vec::new()).registry()
}

#[test]
fn a_hidden_skill_is_available_only_to_the_model() {
    let world = World::new(&[
        (
            "a/SKILL.md",
            b"---\nname: a\ndescription: Knows.\nuser-invocable: false\nwhen_to_use: On & on\n---\nx",
        ),
        ("b/SKILL.md", b"---\nname: b\ndescription: |\n  One.\n  Two.\n---\nx"),
    ]);
    let registry = registry_of(&world);
    for line in ["/a", "/a now"] {
        let refused = invocation(&registry, line).expect_err(line);
        assert!(refused.to_string().contains("only the model can use the skill `a`"), "{refused}");
    }
    assert!(matches!((invocation(&registry, "/b"), invocation(&registry, "/ab")), (Ok(Some(_)), Ok(None))));
    let text = catalogue(&registry).expect("a catalogue");
    assert!(text.contains("<description>Knows.\nOn &amp; on</description>"), "{text}");
    assert!(text.contains("<description>One.\nTwo.</description>"), "line breaks are kept: {text}");
}

#[tokio::test]
async fn a_forked_skill_is_its_own_run() {
    let world = World::new(&[
        ("f/SKILL.md", b"---\nname: f\ndescription: d\ncontext: fork\nagent: critic\nmodel: small\nallowed-tools: Read\n---\nLook at $ARGUMENTS."),
    ]);
    let ticket = || async {
        let result = world
            .call("skill", json!({"skill": "f", "args": "it all"}), None)
            .await
            .expect("a result")
            .result;
        assert!(result.is_pending(), "{result:?}");
        *result.suspension.expect("a ticket")
    };
    let unknown = ticket().await;
    assert_eq!(unknown.suspension.action, ACTION_CHILD_RUN);
    assert_eq!(unknown.resume_mode, ToolCallResumeMode::UseDecisionAsToolResult);
    let agent = ToolCallContext::test_default().run_identity.agent_id;
    assert_eq!(unknown.suspension.parameters["agent"], json!(agent), "a remote agent asks");
    assert_eq!(unknown.suspension.parameters["prompt"], json!("Look at it all."));
    assert_eq!(unknown.suspension.parameters["model"], Value::Null);
    *world.targets.write().expect("not poisoned") = SkillTargets {
        agents: vec!["critic".to_owned()],
        models: [("small".to_owned(), "mock/small".to_owned())].into(),
    };
    let known = ticket().await.suspension.parameters;
    assert_eq!((&known["agent"], &known["model"]), (&json!("critic"), &json!("mock/small")));
    assert!(world.granted().is_empty() && world.context().await.len() == 1, "nothing of it arrives here");
}

#[tokio::test]
async fn a_skill_sets_the_model_for_the_rest_of_the_run() {
    let world = World::new(&[("m/SKILL.md", b"---\nname: m\ndescription: d\nmodel: small\n---\nx")]);
    let result_text = world.text("skill", json!({"skill": "m"})).await;
    assert!(result_text.contains("requests the model `small`, which is not available here"), "{result_text}");
    world.context().await;
    assert_eq!(world.shape().overrides.model, None);
    world.targets.write().expect("not poisoned").models.insert("small".to_owned(), "mock/small".to_owned());
    world.text("skill", json!({"skill": "m"})).await;
    world.context().await;
    assert_eq!(world.shape().overrides.model.as_deref(), Some("mock/small"));
    world.runtime.store().clear_run_scope();
    world.context().await;
    assert_eq!(world.shape().overrides.model, None);
}
