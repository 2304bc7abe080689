//! The plugin: the verdict at the gate of each call, and denied tools kept from the model.

use super::call_description::{call_danger, call_description};
use super::editing::check_grant_in;
use super::evaluate::{AskKind, EnforcedProfiles, PreparedCall, SHELL_TOOL, Verdict, VerdictKind};
use super::file::PermissionRulesConfig;
use super::git_changes::with_protected;
use super::grant::propose_grants;
use super::handle::Permissions;
use super::mode::judge_in;
use super::opening::{self, Refusals, refusals_of, wants_out};
use super::rules::{RuleSet, ToolPermissionBehavior};
use super::tried::judgement;
use super::typing::{self, TerminalProfiles, typed};
use async_trait::async_trait;
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::judgement::{JudgedPath, Judgement, JudgementAction, Profile, Risk};
use aye_core::contract::question::{GrantProposal, QuestionParameters};
use aye_core::contract::spec::PluginConfigKey;
use aye_core::contract::suspension::{
    ACTION_PERMISSION, PendingToolCall, ResumeDecisionAction, SuspendTicket, Suspension, ToolCallResumeMode,
};
use aye_core::contract::tool::ToolResult;
use aye_core::contract::tool_intercept::{ToolInterceptAction, ToolInterceptPayload};
use aye_core::phase::{
    ConfigSchema, ExcludeTool, PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar,
    ToolCallInfo,
};
use aye_core::state::{JsonValue, Phase, Snapshot, StateCommand, StateError, StateKeyOptions};
use aye_pattern::shell::visible;
use aye_sandbox::SandboxRefusal;
use serde_json::json;
use std::sync::Arc;

pub const PERMISSION_PLUGIN: &str = "permission";

/// A callback that returns the patterns that others granted for the run, such as the tools of a skill that a
/// user trusts.
pub type GrantedPatterns = Arc<dyn Fn(&Snapshot) -> Vec<String> + Send + Sync>;

/// The section `permission` of an agent: rules that hold for its runs besides all others.
pub struct PermissionSection;

impl PluginConfigKey for PermissionSection {
    const KEY: &'static str = "permission";
    type Config = PermissionRulesConfig;
}

/// Judges each tool call before it runs.
#[derive(Clone)]
pub struct PermissionPlugin {
    permissions: Permissions,
    granted: Option<GrantedPatterns>,
}

impl PermissionPlugin {
    pub fn new(permissions: Permissions) -> PermissionPlugin {
        PermissionPlugin { permissions, granted: None }
    }

    /// Adds a source of patterns that are granted for the run. They beat neither a deny nor an ask.
    #[must_use]
    pub fn with_granted(mut self, granted: GrantedPatterns) -> PermissionPlugin {
        self.granted = Some(granted);
        self
    }

    /// Returns all rules that apply at this point of a run. Rules that cannot be read grant nothing and make
    /// everything ask.
    fn rules(&self, ctx: &PhaseContext) -> RuleSet {
        let run = &ctx.run_identity;
        let spent = ctx.tool.as_ref().map_or(&[][..], |info| &info.spent_grants);
        let mut rules = self.permissions.rules_for(&run.thread_id, &run.run_id, spent);
        if let Some(section) = ctx.agent_spec.sections.get(PermissionSection::KEY) {
            match read_section(section) {
                Ok(own) => rules.join(own),
                Err(why) => {
                    rules.refuse(format!("section `permission` of agent `{}`: {why}", ctx.agent_spec.id));
                }
            }
        }
        for pattern in self.granted.iter().flat_map(|granted| granted(&ctx.snapshot)) {
            if let Err(error) = rules.grant(&pattern) {
                tracing::warn!(%error, "a granted pattern cannot be read");
            }
        }
        rules
    }

    /// Returns the judgement of the call, and what to do instead of running it; nothing if it may run.
    async fn gate(
        &self,
        ctx: &PhaseContext,
        info: &ToolCallInfo,
    ) -> (Judgement, Option<ToolInterceptPayload>) {
        let call = &info.call;
        let descriptor = info.descriptor.as_ref();
        let primary = descriptor.and_then(|tool| tool.primary_argument.as_deref());
        let question = self.permissions.question(&call.name, &call.arguments, primary);
        let prepared = PreparedCall::of(&question).map(|call| call.known_as(self.permissions.known_files()));
        let is_answered =
            info.resume.as_ref().is_some_and(|resume| resume.action == ResumeDecisionAction::Resume)
                && is_about_the_same(info, prepared.as_ref().ok());
        let mut rules = self.rules(ctx);
        if is_answered {
            // The user approved this call: that is not a use of a grant, which was given for later calls.
            rules = rules.without_grants();
        }
        let mode = self.permissions.mode();
        let enforced = if call.name == SHELL_TOOL {
            self.permissions.enforced_profiles()
        } else {
            EnforcedProfiles::default()
        };
        let git = self.permissions.ask_git();
        let prepared = match prepared {
            Ok(prepared) => {
                let host = descriptor.and_then(|tool| tool.host.clone());
                Ok(prepared.enforced_by(enforced).sent_to(host).with_history(git.as_deref()).await)
            }
            Err(why) => Err(why),
        };
        let judged = match &prepared {
            Ok(prepared) => judge_in(&rules, prepared, mode),
            Err(why) => Verdict::error(&why.to_string()),
        };
        let on_page = descriptor.is_some_and(|tool| tool.on_page);
        let judged = if on_page { allowed_on_page(judged) } else { judged };
        let asked = info.suspension.as_ref().filter(|_| is_answered).map(|ticket| &ticket.suspension.id);
        let (opened, is_opened) = self.permissions.opened(ctx, asked);
        let known = ctx.snapshot.get::<TerminalProfiles>().map(Vec::as_slice).unwrap_or_default();
        let judged = typed(judged, &question, known, &rules, mode);
        let judged = in_chosen_profile(judged, info, is_answered, is_opened);
        let profile = judged.profile;
        let mut verdict = self.permissions.enforced(judged, mode);
        if let Ok(prepared) = &prepared
            && !is_answered
        {
            verdict = with_protected(git.as_deref(), prepared, verdict).await;
        }
        // The profile that the user approved can no longer be enforced.
        let is_wider = verdict.profile > profile;
        let class = descriptor.map(|tool| tool.class);
        let mut judgement = judgement(&question, prepared.as_ref().ok(), &rules, &verdict, mode, class);
        if verdict.profile == Some(Profile::Workspace) {
            judgement.opened = opened;
        }
        judgement.opened.env.clone_from(&verdict.env);
        let intercept = match (verdict.decision, &prepared) {
            (VerdictKind::Allow, _) => None,
            // A call is asked about only once, and the user approved it. Denials were judged again above.
            (VerdictKind::Ask(_), _) if is_answered && !is_wider => None,
            (VerdictKind::Ask(kind), Ok(prepared)) => {
                let refusals = ctx.snapshot.get::<Refusals>().map(Vec::as_slice).unwrap_or_default();
                let refused = if wants_out(&question) {
                    refusals_of(refusals, command_of(&call.arguments).unwrap_or_default())
                } else {
                    &[]
                };
                let ticket = ticket(prepared, info, &verdict, kind, refused, &rules, judgement.risk);
                let mut ticket = self.permissions.on_terms(ticket, prepared.terms(&rules));
                let run = (&ctx.run_identity.thread_id, &ctx.run_identity.run_id);
                ticket.suspension.add(QuestionParameters {
                    paths: (!judgement.paths.is_empty()).then(|| json!(judgement.paths)),
                    domains: self.permissions.reaches_domains(verdict.profile).then_some(true),
                    grant: self.permissions.missed_grant(prepared, run, kind, &rules, &info.spent_grants),
                    ..QuestionParameters::default()
                });
                Some(ToolInterceptPayload::Suspend(ticket))
            }
            (VerdictKind::Deny, _) => Some(refusal(&call.name, "permission_denied", &verdict, "denied")),
            (VerdictKind::Error | VerdictKind::Ask(_), _) => {
                Some(refusal(&call.name, "invalid_arguments", &verdict, "not run"))
            }
        };
        (judgement, intercept)
    }
}

/// Returns whether the path of an answered call leads where it led when the user was asked.
fn is_about_the_same(info: &ToolCallInfo, call: Option<&PreparedCall<'_>>) -> bool {
    let asked = info.suspension.as_ref().and_then(|ticket| ticket.suspension.paths::<JudgedPath>());
    let is_edited = info.suspension.as_ref().is_none_or(|it| it.pending.arguments != info.call.arguments);
    let (Some(asked), Some(call), false) = (asked, call, is_edited) else { return true };
    call.paths().iter().all(|path| asked.contains(path))
}

/// Returns the verdict for a tool that the user's own page runs: it reaches nothing here, and the user sees it there, so
/// it needs no rule. Rules that deny or ask still count.
fn allowed_on_page(verdict: Verdict) -> Verdict {
    match verdict.decision {
        VerdictKind::Ask(AskKind::Default) => {
            Verdict::new(VerdictKind::Allow, "the user's own page runs it, and no rule is against it")
        }
        _ => verdict,
    }
}

/// Returns the verdict with the profile that the user chose. Without a choice, an answered call runs in the
/// profile that the question showed, or in the sandbox if that was `opened` for it.
fn in_chosen_profile(verdict: Verdict, info: &ToolCallInfo, is_answered: bool, opened: bool) -> Verdict {
    let asked = info.suspension.as_ref().filter(|_| is_answered);
    let shown = asked.and_then(|ticket| ticket.suspension.profile());
    let shown = if opened { Some(Profile::Workspace) } else { shown };
    let profile = verdict.profile.map(|profile| info.chosen.or(shown).unwrap_or(profile));
    Verdict { profile, ..verdict }
}

pub(super) fn read_section(section: &JsonValue) -> Result<RuleSet, String> {
    let config: PermissionRulesConfig =
        serde_json::from_value(section.clone()).map_err(|error| error.to_string())?;
    config.into_ruleset().map_err(|error| error.to_string())
}

/// The command line of a call of the shell.
fn command_of(arguments: &JsonValue) -> Option<&str> {
    arguments.get("command")?.as_str()
}

fn refusal(tool: &str, code: &str, verdict: &Verdict, word: &str) -> ToolInterceptPayload {
    let text = match &verdict.rule {
        // The verdict's reason already names the rule and its location.
        Some(_) => {
            format!("{word}: {}. It did not run; do not try to get the same effect another way", verdict.why)
        }
        None => format!("{word}: {}. It did not run", verdict.why),
    };
    ToolInterceptPayload::SetResult(
        ToolResult::error_with_code(tool, code, text).with_shown(verdict.why.as_str()),
    )
}

fn ticket(
    prepared: &PreparedCall<'_>,
    info: &ToolCallInfo,
    verdict: &Verdict,
    kind: AskKind,
    refused: &[SandboxRefusal],
    rules: &RuleSet,
    risk: Risk,
) -> SuspendTicket {
    let (call, question) = (&info.call, &prepared.question);
    let does = call_description(prepared, risk);
    let refusals = opening::summary_of(refused).map(|summary| format!("; {summary}"));
    let why = format!("{}{}", verdict.why, refusals.unwrap_or_default());
    let message = format!("{} {}: {}", visible(&call.name), does.words, visible(&why));
    SuspendTicket {
        suspension: Suspension {
            id: format!("perm_{}", call.id).into(),
            action: ACTION_PERMISSION.to_owned(),
            message,
            parameters: QuestionParameters {
                tool: Some(call.name.clone()),
                args: Some(call.arguments.clone()),
                rule: Some(verdict.rule.clone()),
                origin: Some(verdict.origin.clone()),
                why: Some(why),
                cwd: Some(question.cwd.to_string_lossy().into_owned()),
                risk: Some(risk),
                danger: Some(call_danger(prepared)),
                does: Some(does.words),
                outside: Some(does.is_outside),
                profile: Some(verdict.profile),
                proposals: Some(proposals(prepared, kind, refused, rules)),
                ..QuestionParameters::default()
            }
            .into(),
            response_schema: None,
            expires_at: None,
        },
        pending: PendingToolCall {
            id: call.id.as_str().into(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        },
        resume_mode: ToolCallResumeMode::ReplayToolCall,
    }
}

/// The grants that would answer the question for good. None when a rule says to ask: a grant does not beat it.
fn proposals(
    call: &PreparedCall<'_>,
    kind: AskKind,
    refused: &[SandboxRefusal],
    rules: &RuleSet,
) -> Vec<GrantProposal> {
    let is_out = wants_out(&call.question);
    let is_kept = kind == AskKind::Protected && call.question.tool == SHELL_TOOL;
    if matches!(kind, AskKind::Rule | AskKind::BrokenRules) || is_kept || kind == AskKind::Outside && !is_out
    {
        return Vec::new();
    }
    let sandbox = is_out.then_some(Profile::Outside);
    let mut narrow = if is_out { opening::proposals(&call.question, refused) } else { Vec::new() };
    let by_words = propose_grants(&call.question)
        .into_iter()
        .filter(|proposal| check_grant_in(call, rules, &proposal.pattern, sandbox).is_ok())
        .map(|proposal| match sandbox {
            Some(_) => GrantProposal { text: format!("{}, outside the sandbox", proposal.text), ..proposal },
            None => proposal,
        });
    narrow.extend(by_words);
    narrow
}

/// The rules of an agent that hands over, and of the other one those that deny or ask: a handoff grants nothing.
fn after_handoff(from: Option<&JsonValue>, to: Option<&JsonValue>) -> Option<JsonValue> {
    let Some(to) = to else { return from.cloned() };
    // A section that cannot be read is refused when the agent is resolved.
    let Ok(to_config) = serde_json::from_value::<PermissionRulesConfig>(to.clone()) else {
        return Some(to.clone());
    };
    let mut config: PermissionRulesConfig = match from.map(|from| serde_json::from_value(from.clone())) {
        None => PermissionRulesConfig::default(),
        Some(Ok(config)) => config,
        Some(Err(_)) => return from.cloned(),
    };
    let is_strict = |behavior: &ToolPermissionBehavior| *behavior != ToolPermissionBehavior::Allow;
    config.rules.extend(to_config.rules.into_iter().filter(|rule| is_strict(&rule.behavior)));
    config.default_behavior = config.default_behavior.max(to_config.default_behavior.filter(is_strict));
    serde_json::to_value(config).ok()
}

impl Plugin for PermissionPlugin {
    fn is_guard(&self) -> bool {
        true
    }

    fn section_after_handoff(
        &self,
        _key: &str,
        from: Option<&JsonValue>,
        to: Option<&JsonValue>,
    ) -> Option<JsonValue> {
        after_handoff(from, to)
    }

    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(PERMISSION_PLUGIN, "allows, asks about and denies tool calls by rules")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_hook(Phase::BeforeToolExecute, Gate(self.clone()));
        registrar.register_hook(Phase::BeforeInference, Hide(self.clone()));
        registrar.register_key::<Refusals>(StateKeyOptions::default())?;
        registrar.register_key::<TerminalProfiles>(StateKeyOptions::default())?;
        registrar.register_hook(Phase::AfterToolExecute, Remember);
        Ok(())
    }

    fn config_schemas(&self) -> Vec<ConfigSchema> {
        vec![ConfigSchema {
            key: PermissionSection::KEY,
            json_schema: schemars::schema_for!(PermissionRulesConfig),
        }]
    }

    fn check_section(&self, key: &str, section: &JsonValue) -> Result<(), ForeignError> {
        if key == PermissionSection::KEY {
            read_section(section)?;
        }
        Ok(())
    }
}

struct Gate(PermissionPlugin);

#[async_trait]
impl PhaseHook for Gate {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let Some(info) = &ctx.tool else { return Ok(command) };
        let (judgement, intercept) = self.0.gate(ctx, info).await;
        command.schedule_action::<JudgementAction>(judgement)?;
        if let Some(intercept) = intercept {
            command.schedule_action::<ToolInterceptAction>(intercept)?;
        }
        Ok(command)
    }
}

/// Remembers what the sandbox refused, because the model may ask to run the same command outside, and the profiles of
/// commands that the model may type into.
struct Remember;

#[async_trait]
impl PhaseHook for Remember {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let details = ctx.tool_result.as_ref().and_then(|result| result.details.as_ref());
        let refused = details.and_then(|details| details.get("refused"));
        let refused = refused.and_then(|refused| serde_json::from_value(refused.clone()).ok());
        if let (Some(info), Some(refused)) = (&ctx.tool, refused)
            && info.call.name == SHELL_TOOL
            && let Some(line) = command_of(&info.call.arguments)
        {
            command.update::<Refusals>((line.to_owned(), refused));
        }
        if let (Some(info), Some(result)) = (&ctx.tool, &ctx.tool_result)
            && let Some(started) = typing::started(info, result)
        {
            command.update::<TerminalProfiles>(started);
        }
        Ok(command)
    }
}

struct Hide(PermissionPlugin);

#[async_trait]
impl PhaseHook for Hide {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        for tool in self.0.permissions.hidden_tools(&self.0.rules(ctx)) {
            command.schedule_action::<ExcludeTool>(tool)?;
        }
        Ok(command)
    }
}
