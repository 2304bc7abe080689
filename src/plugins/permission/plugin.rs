//! The plugin: the rules at the gate of each call.

use std::path::Path;
use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use serde_json::json;

use super::evaluate::{Decision, Question, Verdict, known_primary};
use super::grant::propose_grants;
use super::mode::{Mode, evaluate_in};
use super::rules::RuleSet;
use crate::contract::ids::CallId;
use crate::contract::record::{GrantRecord, GrantScope};
use crate::contract::suspension::{
    ACTION_PERMISSION, PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode,
};
use crate::contract::tool::ToolResult;
use crate::contract::tool_intercept::{ToolInterceptAction, ToolInterceptPayload};
use crate::contract::workspace::Workspace;
use crate::phase::{ExcludeTool, PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar, ToolCallInfo};
use crate::state::{Phase, Snapshot, StateCommand, StateError};

/// The plugin's name.
pub const PERMISSION_PLUGIN: &str = "permission";

/// Allow patterns that another part of the program keeps in the state of a run.
pub type RunAllows = Arc<dyn Fn(&Snapshot) -> Vec<String> + Send + Sync>;

/// What the plugin judges by. Front ends change the mode and the grants through it while runs go on.
pub struct PermissionState {
    rules: RuleSet,
    mode: RwLock<Mode>,
    grants: RwLock<Vec<GrantRecord>>,
    workspace: Workspace,
    run_allows: Option<RunAllows>,
    tools: RwLock<Vec<String>>,
}

impl PermissionState {
    /// Rules and mode for a workspace, without grants.
    pub fn new(rules: RuleSet, mode: Mode, workspace: Workspace) -> Self {
        Self { rules, mode: RwLock::new(mode), grants: RwLock::default(), workspace, run_allows: None, tools: RwLock::default() }
    }

    /// Takes allow patterns of the run from here too. They beat no deny and no ask.
    #[must_use]
    pub fn with_run_allows(mut self, allows: RunAllows) -> Self {
        self.run_allows = Some(allows);
        self
    }

    /// Says which tools there are, so that those which are always denied are not offered.
    pub fn set_tools(&self, names: Vec<String>) {
        *self.tools.write().expect("no panic while names are held") = names;
    }

    /// The mode in force.
    pub fn mode(&self) -> Mode {
        *self.mode.read().expect("no panic while the mode is held")
    }

    /// Changes the mode, for calls that are judged from now on.
    pub fn set_mode(&self, mode: Mode) {
        *self.mode.write().expect("no panic while the mode is held") = mode;
    }

    /// The grants in force.
    pub fn grants(&self) -> Vec<GrantRecord> {
        self.grants.read().expect("no panic while grants are held").clone()
    }

    /// Replaces the grants.
    pub fn set_grants(&self, grants: Vec<GrantRecord>) {
        *self.grants.write().expect("no panic while grants are held") = grants;
    }

    /// The rules of files and flags.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// The rules with the grants that reach this run.
    fn rules_for(&self, ctx: &PhaseContext) -> RuleSet {
        let mut rules = self.rules.clone();
        for grant in self.grants() {
            if self.reaches(&grant.scope, ctx)
                && let Err(error) = rules.grant(&grant.pattern)
            {
                // A grant that no longer parses allows nothing.
                tracing::warn!(grant = grant.id, %error, "a grant is not in force");
            }
        }
        for pattern in self.run_allows.iter().flat_map(|allows| allows(&ctx.snapshot)) {
            if let Err(error) = rules.grant(&pattern) {
                tracing::warn!(pattern, %error, "an allow pattern of the run is not in force");
            }
        }
        rules
    }

    fn reaches(&self, scope: &GrantScope, ctx: &PhaseContext) -> bool {
        match scope {
            GrantScope::Run(run) => *run == ctx.run_identity.run_id,
            GrantScope::Thread(thread) => *thread == ctx.run_identity.thread_id,
            GrantScope::Project(root) => *root == self.workspace.root,
            GrantScope::Everywhere => true,
        }
    }

    fn judge(&self, ctx: &PhaseContext, tool: &ToolCallInfo) -> Verdict {
        let rules = self.rules_for(ctx);
        evaluate_in(&rules, &self.question(tool), self.mode())
    }

    fn question<'a>(&'a self, tool: &'a ToolCallInfo) -> Question<'a> {
        let declared = tool.descriptor.as_ref().and_then(|d| d.primary_argument.as_deref());
        Question {
            tool: &tool.call.name,
            args: &tool.call.arguments,
            cwd: &self.workspace.cwd,
            workspace: &self.workspace.root,
            home: Some(&self.workspace.home).map(AsRef::<Path>::as_ref),
            primary: declared.or_else(|| known_primary(&tool.call.name)),
        }
    }

    fn ticket(&self, tool: &ToolCallInfo, verdict: &Verdict) -> SuspendTicket {
        let proposals: Vec<_> = propose_grants(&self.question(tool))
            .into_iter()
            .map(|proposal| json!({"pattern": proposal.pattern, "text": proposal.text}))
            .collect();
        SuspendTicket {
            suspension: Suspension {
                id: format!("perm_{}", tool.call.id).into(),
                action: ACTION_PERMISSION.into(),
                message: format!("Allow {}? {}", tool.call.name, verdict.why),
                parameters: json!({
                    "tool": tool.call.name,
                    "args": tool.call.arguments,
                    "rule": verdict.rule,
                    "origin": verdict.origin,
                    "why": verdict.why,
                    "mode": self.mode().name(),
                    "cwd": self.workspace.cwd.to_string_lossy(),
                    "proposals": proposals,
                }),
                response_schema: None,
                expires_at: None,
            },
            pending: PendingToolCall {
                id: CallId::from(tool.call.id.as_str()),
                name: tool.call.name.clone(),
                arguments: tool.call.arguments.clone(),
            },
            resume_mode: ToolCallResumeMode::ReplayToolCall,
        }
    }
}

/// Judges each call before it runs, and takes tools that are always denied out of the model's list.
pub struct PermissionPlugin {
    state: Arc<PermissionState>,
}

impl PermissionPlugin {
    /// Judges by this.
    pub fn new(state: Arc<PermissionState>) -> Self {
        Self { state }
    }
}

impl Plugin for PermissionPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: PERMISSION_PLUGIN }
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_phase_hook(PERMISSION_PLUGIN, Phase::BeforeToolExecute, Gate(Arc::clone(&self.state)))?;
        registrar.register_phase_hook(PERMISSION_PLUGIN, Phase::BeforeInference, Offer(Arc::clone(&self.state)))
    }
}

struct Gate(Arc<PermissionState>);

#[async_trait]
impl PhaseHook for Gate {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let Some(tool) = &ctx.tool else { return Ok(command) };
        let verdict = self.0.judge(ctx, tool);
        let intercept = match verdict.decision {
            Decision::Allow => return Ok(command),
            // A person said yes to this call, and no rule denies it now.
            Decision::Ask(_) if tool.resume.is_some() => return Ok(command),
            Decision::Ask(_) => ToolInterceptPayload::Suspend(self.0.ticket(tool, &verdict)),
            Decision::Deny => {
                let text = format!(
                    "Denied; it was not run: {}. Do not try to get the same effect another way.",
                    verdict.why
                );
                let mut result = ToolResult::error(&tool.call.name, text);
                result.details = Some(json!({"code": "denied", "rule": verdict.rule}));
                ToolInterceptPayload::SetResult(result)
            }
            Decision::Error => {
                ToolInterceptPayload::SetResult(ToolResult::error(&tool.call.name, format!("not run: {}", verdict.why)))
            }
        };
        command.schedule_action::<ToolInterceptAction>(intercept)?;
        Ok(command)
    }
}

struct Offer(Arc<PermissionState>);

#[async_trait]
impl PhaseHook for Offer {
    async fn run(&self, _ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let tools = self.0.tools.read().expect("no panic while names are held").clone();
        for tool in self.0.rules.hidden_tools(&tools) {
            command.schedule_action::<ExcludeTool>(tool)?;
        }
        Ok(command)
    }
}
