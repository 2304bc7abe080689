//! The three tools of skills.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::arguments::{ArgumentValues, expanded};
use super::front_matter::SkillMeta;
use super::plugin::SharedTargets;
use super::registry::SkillRegistry;
use super::runner::{SCRIPT_MAX_OUTPUT, SCRIPT_TIMEOUT, ScriptRequest, ScriptRunner};
use super::skill::{ScriptSource, Skill, SkillError, inner_path};
use super::state::{
    ActiveSkill, ActiveSkills, ConsentUpdate, Invocation, InvocationUpdate, SkillConsent, SkillGrant,
    SkillInvocations, SkillModel,
};
use aye_core::contract::child::DELEGATION_DEPTH;
use aye_core::contract::display::{visible, visible_line};
use aye_core::contract::ids::CallId;
use aye_core::contract::question::QuestionParameters;
use aye_core::contract::suspension::{
    ACTION_CHILD_RUN, PendingToolCall, ResumeDecisionAction, SuspendTicket, Suspension, ToolCallResumeMode,
};
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};
use aye_core::state::StateCommand;

/// Id of the tool that takes a skill up.
pub const SKILL_TOOL: &str = "skill";
/// Id of the tool that reads a file of a skill.
pub const RESOURCE_TOOL: &str = "load_skill_resource";
/// Id of the tool that runs a script of a skill.
pub const SCRIPT_TOOL: &str = "skill_script";
/// The action of the question whether a skill may have the tools it asks for.
pub const ACTION_SKILL_CONSENT: &str = "tool:SkillConsent";

const MAX_REFERENCE: u64 = 256 * 1024;
const MAX_ASSET: u64 = 512 * 1024;
const MAX_SCRIPT_ARGS: usize = 64;

fn text_argument<'a>(args: &'a Value, name: &str) -> Result<&'a str, ToolError> {
    let text = args.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    text.ok_or_else(|| ToolError::InvalidArguments(format!("`{name}` must be a string")))
}

fn optional_text<'a>(args: &'a Value, name: &str) -> Result<Option<&'a str>, ToolError> {
    match args.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(ToolError::InvalidArguments(format!("`{name}` must be a string"))),
    }
}

fn find(registry: &dyn SkillRegistry, name: &str) -> Result<Arc<dyn Skill>, ToolError> {
    let name = name.trim().trim_start_matches('/');
    registry.get(name).ok_or_else(|| {
        let offered = registry.skills().into_iter().filter(|skill| !skill.meta().disable_model_invocation);
        let mut known: Vec<_> = offered.map(|skill| skill.meta().name.clone()).collect();
        known.truncate(50);
        let known =
            if known.is_empty() { "none exist".to_owned() } else { format!("known: {}", known.join(", ")) };
        ToolError::NotFound(format!("unknown skill `{}`; {known}", visible_line(name)))
    })
}

fn tool_error(error: &SkillError) -> ToolError {
    // The cause is only in the error's source, and the model sees only this text.
    let cause = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    let text = format!("{error}{cause}");
    match error {
        SkillError::NotFound { .. } => ToolError::NotFound(text),
        SkillError::Escapes { .. }
        | SkillError::NotAScript { .. }
        | SkillError::IsAScript { .. }
        | SkillError::NoInterpreter { .. } => ToolError::InvalidArguments(text),
        SkillError::Broken { .. } | SkillError::TooLarge | SkillError::Read { .. } => {
            ToolError::ExecutionFailed(text)
        }
    }
}

/// Files are read off the threads that drive the run.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SkillError> + Send + 'static,
) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ToolError::Internal(error.to_string()))?.map_err(|error| tool_error(&error))
}

/// Loads a skill: its instructions are in the model's context from the next inference on.
pub struct SkillTool {
    registry: Arc<dyn SkillRegistry>,
    targets: SharedTargets,
}

impl SkillTool {
    /// The tool over a registry.
    pub fn new(registry: Arc<dyn SkillRegistry>) -> Self {
        Self { registry, targets: SharedTargets::default() }
    }

    /// Says which agents and models skills can name.
    #[must_use]
    pub fn with_targets(mut self, targets: SharedTargets) -> Self {
        self.targets = targets;
        self
    }

    /// The registered id of the model that a skill names, or what to say about it.
    fn model(&self, meta: &SkillMeta) -> Result<Option<String>, String> {
        let Some(name) = &meta.model else { return Ok(None) };
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        targets.models.get(name).cloned().map(Some).ok_or_else(|| {
            format!("It requests the model `{}`, which is not available here.", visible_line(name))
        })
    }

    /// Has a subagent carry the skill out in a conversation of its own.
    fn fork(&self, meta: &SkillMeta, prompt: &str, args: &Value, ctx: &ToolCallContext) -> ToolOutput {
        let identity = &ctx.run_identity;
        if identity.depth >= DELEGATION_DEPTH {
            let text = format!(
                "Not started: subagents nest at most {DELEGATION_DEPTH} deep, and the skill `{}` needs one \
                 more level. Do the task yourself.",
                meta.name
            );
            return ToolResult::error_with_code(SKILL_TOOL, "depth_limit", text).into();
        }
        let known = self.targets.read().unwrap_or_else(PoisonError::into_inner).agents.clone();
        let wanted = meta.agent.as_ref().filter(|agent| known.contains(agent));
        let agent = wanted.unwrap_or(&identity.agent_id);
        let call = CallId::from(ctx.call_id.as_str());
        let parameters = QuestionParameters {
            agent: Some(agent.clone()),
            prompt: Some(prompt.to_owned()),
            thread: Some(identity.thread_id.of_child(&identity.run_id, &call)),
            skill: Some(meta.name.clone()),
            model: self.model(meta).ok().flatten(),
            ..QuestionParameters::default()
        };
        let message = format!("the subagent {agent} works on the skill {}", meta.name);
        let ticket = SuspendTicket {
            suspension: Suspension {
                id: format!("child_{call}").into(),
                action: ACTION_CHILD_RUN.into(),
                message: message.clone(),
                parameters: parameters.into(),
                response_schema: None,
                expires_at: None,
            },
            pending: PendingToolCall { id: call, name: SKILL_TOOL.into(), arguments: args.clone() },
            resume_mode: ToolCallResumeMode::UseDecisionAsToolResult,
        };
        ToolResult::suspended_with(SKILL_TOOL, message, ticket).into()
    }
}

/// Returns the user's invocation of the skill, with the text typed after its name; `None` if the user did not
/// start the skill in this run.
fn invoked<'a>(meta: &SkillMeta, ctx: &'a ToolCallContext) -> Option<&'a Invocation> {
    ctx.state::<SkillInvocations>()?.get(&meta.name)
}

#[async_trait]
impl Tool for SkillTool {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new(
            SKILL_TOOL,
            "Skill",
            "Loads a skill by name. Its instructions are added to your context; follow them.",
        )
        .with_parameters(json!({
            "type": "object",
            "properties": {
                "skill": {"type": "string", "description": "name of the skill"},
                "args": {"type": "string", "description": "arguments for the skill"}
            },
            "required": ["skill"],
            "additionalProperties": false
        }))
        .with_category("skills")
        .with_class(ToolClass::Pure)
        .with_primary_argument("skill")
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        text_argument(args, "skill")?;
        optional_text(args, "args").map(|_| ())
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let skill = find(self.registry.as_ref(), text_argument(&args, "skill")?)?;
        let meta = skill.meta();
        let invocation = invoked(meta, ctx);
        if meta.disable_model_invocation && invocation.is_none() {
            let text = format!(
                "only the user can start the skill `{0}`, with /{0}; continue without it, or suggest it",
                meta.name
            );
            return Ok(ToolResult::error_with_code(SKILL_TOOL, "user_only", text).into());
        }
        let reader = Arc::clone(&skill);
        let (instructions, hash, files) =
            blocking(move || Ok((reader.instructions()?, reader.content_hash(), reader.files()))).await?;
        // The arguments that the user typed win, however the model repeats them.
        let typed = invocation.and_then(|invocation| invocation.arguments.as_deref());
        let written = optional_text(&args, "args")?;
        let text = expanded(
            &instructions,
            ArgumentValues {
                typed: typed.or(written).unwrap_or_default(),
                names: &meta.arguments,
                dir: skill.folder(),
                session: ctx.run_identity.thread_id.as_str(),
            },
        );
        if meta.is_forked {
            return Ok(self.fork(meta, &text, &args, ctx));
        }
        let mut command = StateCommand::new();
        let mut notes = Vec::new();
        // Without a hash nothing can be agreed to, and the skill works without the tools it asks for.
        if let (Err(error), false) = (&hash, meta.allowed_tools.is_empty()) {
            notes.push(format!("Its `allowed-tools` are not allowed: {error}."));
        }
        let hash = hash.unwrap_or_default();
        if !meta.allowed_tools.is_empty() && !hash.is_empty() {
            let grant = SkillGrant {
                skill: meta.name.clone(),
                hash: hash.clone(),
                patterns: meta.allowed_tools.clone(),
            };
            match consent(ctx, &grant) {
                Agreement::Given => {}
                Agreement::GivenNow => command.update::<SkillConsent>(ConsentUpdate::Granted(grant)),
                Agreement::Needed => return Ok(ask(skill.as_ref(), &args, &grant, ctx)),
            }
        }
        if typed.is_some() {
            command.update::<SkillInvocations>(InvocationUpdate::Taken(meta.name.clone()));
        }
        match self.model(meta) {
            Ok(Some(model)) => command.update::<SkillModel>(model),
            Ok(None) => {}
            Err(why) => notes.push(why),
        }
        command.update::<ActiveSkills>(ActiveSkill { name: meta.name.clone(), hash, instructions: text });
        let mut message = format!("Loaded skill `{}`; follow its instructions, now in context.", meta.name);
        if !files.is_empty() {
            notes.push(format!("Its files: {}", visible_line(&files.join(", "))));
        }
        for note in notes {
            message.push('\n');
            message.push_str(&note);
        }
        Ok(ToolOutput::with_command(ToolResult::text(SKILL_TOOL, message), command))
    }
}

enum Agreement {
    Given,
    GivenNow,
    Needed,
}

/// Whether the user agreed to exactly this list for exactly this content.
fn consent(ctx: &ToolCallContext, grant: &SkillGrant) -> Agreement {
    let consent = ctx.state::<SkillConsent>();
    if consent.is_some_and(|consent| consent.grants.get(&grant.skill) == Some(grant)) {
        return Agreement::Given;
    }
    // A decision alone proves nothing: it may have answered another question about this call.
    let was_asked = consent.is_some_and(|consent| consent.asked.get(&ctx.call_id) == Some(&grant.hash));
    match &ctx.resume {
        Some(resume) if was_asked && resume.action == ResumeDecisionAction::Resume => Agreement::GivenNow,
        _ => Agreement::Needed,
    }
}

fn ask(skill: &dyn Skill, args: &Value, grant: &SkillGrant, ctx: &ToolCallContext) -> ToolOutput {
    let patterns: Vec<String> =
        grant.patterns.iter().map(|pattern| visible_line(pattern).into_owned()).collect();
    let name = &grant.skill;
    let message = format!(
        "The skill `{name}` requests to run these calls without asking until this run ends: {}. Deny and ask \
         rules still apply.",
        patterns.join("  ")
    );
    let short_hash: String = grant.hash.chars().take(12).collect();
    let ticket = SuspendTicket {
        suspension: Suspension {
            // A changed skill is a new question with a name of its own.
            id: format!("skill_{}_{short_hash}", ctx.call_id).into(),
            action: ACTION_SKILL_CONSENT.to_owned(),
            message: message.clone(),
            parameters: QuestionParameters {
                skill: Some(name.clone()),
                location: Some(visible_line(&skill.location()).into_owned()),
                hash: Some(grant.hash.clone()),
                allowed_tools: Some(patterns),
                ..QuestionParameters::default()
            }
            .into(),
            response_schema: None,
            expires_at: None,
        },
        pending: PendingToolCall {
            id: ctx.call_id.as_str().into(),
            name: ctx.tool_name.clone(),
            arguments: args.clone(),
        },
        resume_mode: ToolCallResumeMode::ReplayToolCall,
    };
    let mut command = StateCommand::new();
    command.update::<SkillConsent>(ConsentUpdate::Asked {
        call_id: ctx.call_id.clone(),
        hash: grant.hash.clone(),
    });
    ToolOutput::with_command(ToolResult::suspended_with(SKILL_TOOL, message, ticket), command)
}

/// Reads a file of a skill.
pub struct LoadSkillResourceTool {
    registry: Arc<dyn SkillRegistry>,
}

impl LoadSkillResourceTool {
    /// The tool over a registry.
    pub fn new(registry: Arc<dyn SkillRegistry>) -> Self {
        Self { registry }
    }
}

#[async_trait]
impl Tool for LoadSkillResourceTool {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new(
            RESOURCE_TOOL,
            "Load skill resource",
            "Reads a file of a skill, such as references/guide.md. Run scripts with skill_script.",
        )
        .with_parameters(json!({
            "type": "object",
            "properties": {
                "skill": {"type": "string"},
                "path": {"type": "string", "description": "path inside the skill"}
            },
            "required": ["skill", "path"],
            "additionalProperties": false
        }))
        .with_category("skills")
        .with_class(ToolClass::Pure)
        .with_primary_argument("path")
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        text_argument(args, "skill")?;
        text_argument(args, "path").map(|_| ())
    }

    async fn execute(&self, args: Value, _ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let skill = find(self.registry.as_ref(), text_argument(&args, "skill")?)?;
        let path = text_argument(&args, "path")?.to_owned();
        let inner = inner_path(&path).map_err(|error| tool_error(&error))?;
        let is_asset = inner.starts_with("assets/");
        let max = if is_asset { MAX_ASSET } else { MAX_REFERENCE };
        let resource = blocking(move || skill.resource(&path, max)).await?;
        let is_cut = resource.size > resource.bytes.len() as u64;
        let details = json!({"path": resource.path, "size": resource.size, "truncated": is_cut});
        if is_asset {
            let data = json!({
                "path": resource.path,
                "encoding": "base64",
                "size": resource.size,
                "truncated": is_cut,
                "content": BASE64.encode(&resource.bytes),
            });
            return Ok(ToolResult::success(RESOURCE_TOOL, data).with_details(details).into());
        }
        let text = match std::str::from_utf8(&resource.bytes) {
            Ok(text) => text,
            // Truncation may split a character; any other invalid byte means that the file is not text.
            Err(error) if is_cut && error.error_len().is_none() => {
                std::str::from_utf8(&resource.bytes[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(_) => {
                let message = format!(
                    "`{}` is not UTF-8 text ({} bytes); only files in assets/ are returned as bytes",
                    resource.path, resource.size
                );
                return Err(ToolError::ExecutionFailed(message));
            }
        };
        let mut text = text.to_owned();
        if is_cut {
            let shown = text.len();
            let _ = write!(text, "\n[cut here: {shown} of {} bytes are shown]", resource.size);
        }
        Ok(ToolResult::text(RESOURCE_TOOL, text).with_details(details).into())
    }
}

/// Runs a script of a skill.
pub struct SkillScriptTool {
    registry: Arc<dyn SkillRegistry>,
    runner: Arc<dyn ScriptRunner>,
    project_dir: PathBuf,
}

impl SkillScriptTool {
    /// The tool over a registry; compiled-in scripts run in the project's folder.
    pub fn new(
        registry: Arc<dyn SkillRegistry>,
        runner: Arc<dyn ScriptRunner>,
        project_dir: PathBuf,
    ) -> Self {
        Self { registry, runner, project_dir }
    }
}

fn script_arguments(args: &Value) -> Result<Vec<String>, ToolError> {
    let refuse = || {
        ToolError::InvalidArguments(format!(
            "`args` must be a list of at most {MAX_SCRIPT_ARGS} strings without NUL"
        ))
    };
    let list = match args.get("args") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= MAX_SCRIPT_ARGS => list,
        Some(_) => return Err(refuse()),
    };
    let text = |value: &Value| value.as_str().filter(|text| !text.contains('\0')).map(str::to_owned);
    list.iter().map(|value| text(value).ok_or_else(refuse)).collect()
}

#[async_trait]
impl Tool for SkillScriptTool {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new(
            SCRIPT_TOOL,
            "Skill script",
            "Runs a script of a skill (scripts/*.sh, .py, .js) and returns its output.",
        )
        .with_parameters(json!({
            "type": "object",
            "properties": {
                "skill": {"type": "string"},
                "script": {"type": "string", "description": "path in scripts/"},
                "args": {"type": "array", "items": {"type": "string"}}
            },
            "required": ["skill", "script"],
            "additionalProperties": false
        }))
        .with_category("skills")
        .with_primary_argument("script")
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        text_argument(args, "skill")?;
        text_argument(args, "script")?;
        script_arguments(args).map(|_| ())
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let skill = find(self.registry.as_ref(), text_argument(&args, "skill")?)?;
        let path = text_argument(&args, "script")?.to_owned();
        let arguments = script_arguments(&args)?;
        let name = skill.meta().name.clone();
        let (script, hash) =
            blocking(move || Ok((skill.script(&path)?, skill.content_hash().unwrap_or_default()))).await?;
        let taken_up = ctx.state::<ActiveSkills>().and_then(|active| active.get(&name));
        if taken_up.is_some_and(|active| active.hash != hash) {
            let message = format!(
                "the files of the skill `{name}` changed since it was loaded; load it again with the tool \
                 `skill` first"
            );
            return Err(ToolError::ExecutionFailed(message));
        }
        let mut env = vec![("AYE_PROJECT_DIR".to_owned(), self.project_dir.to_string_lossy().into_owned())];
        let cwd = match &script.source {
            ScriptSource::File { dir, .. } => {
                env.push(("AYE_SKILL_DIR".to_owned(), dir.to_string_lossy().into_owned()));
                dir.clone()
            }
            ScriptSource::Text(_) => self.project_dir.clone(),
        };
        let mut all = script.arguments();
        all.extend(arguments);
        let request = ScriptRequest {
            program: script.interpreter.program().to_owned(),
            args: all,
            cwd,
            env,
            timeout: SCRIPT_TIMEOUT,
            max_output: SCRIPT_MAX_OUTPUT,
        };
        let done = self.runner.run(request, ctx).await;
        let done = done.map_err(|error| ToolError::ExecutionFailed(error.to_string()))?;
        let how = match (&done.ended, done.exit_code) {
            (Some(ended), _) => ended.clone(),
            (None, Some(code)) => format!("exit status {code}"),
            (None, None) => "ended without a status".to_owned(),
        };
        let mut text = match done.output.trim_end() {
            "" => format!("{}: {how}, no output", script.path),
            output => format!("{output}\n[{}: {how}]", script.path),
        };
        for note in &done.notes {
            let _ = write!(text, "\n[{note}]");
        }
        let is_success = done.exit_code == Some(0) && done.ended.is_none();
        let text = visible(&text).into_owned();
        let result = if is_success {
            ToolResult::text(SCRIPT_TOOL, text)
        } else {
            ToolResult::error(SCRIPT_TOOL, text)
        };
        Ok(result.with_details(json!({"exit_code": done.exit_code})).into())
    }
}
