//! Assembles the parts: store, tools, plugins, model, runtime.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use futures::future::BoxFuture;

use crate::a2a::{A2aBackend, EndpointError};
use crate::cli::start::{StartFlags, StartKind};
use crate::config::{self, Instructions, ModelSelection, OnLimit, Origin, SandboxMissing, fill_variables};
use crate::contract::clock::Clock;
use crate::contract::ids::ThreadId;
use crate::contract::path_policy::PathPolicies as _;
use crate::contract::record::Owner;
use crate::contract::spec::{AgentSpec, ModelEntry};
use crate::contract::storage::{ArtifactStore, SharedStore, StoreError};
use crate::contract::suspension::Actor;
use crate::contract::tool::ToolCallContext;
use crate::failure::{AppError, Failure};
use crate::llm::{LlmRetryPolicy, RetryConfigKey};
use crate::plugins::context::CompactionPlugin;
use crate::plugins::deferred_tools::DEFERRED_TOOLS_PLUGIN;
use crate::plugins::generative_ui::{A2UI_PLUGIN, A2uiPlugin};
use crate::plugins::handoff::HANDOFF_PLUGIN_ID;
use crate::plugins::observe::OBSERVABILITY_PLUGIN;
use crate::plugins::permission::{Enforcement, PermissionPlugin, Permissions};
use crate::plugins::reminder::{REMINDER_PLUGIN, ReminderPlugin, ReminderRule};
use crate::plugins::skills::{
    Discovery, MayFollow, ScriptNotRun, ScriptOutput, ScriptRequest, ScriptRunner, Severity, SharedTargets,
    SkillRoot, SkillScope, SkillSubsystem, SkillTargets, bundled, discover_following, granted_patterns,
    project_roots, user_roots,
};
use crate::plugins::stop::{EndCheck, StopConditionSpec, StopPlugin};
use crate::program::agents::Agents;
use crate::program::budget::PriceList;
use crate::program::checkout::checkout_of;
use crate::program::checks::{CHECKS_PLUGIN, ChecksPlugin};
use crate::program::context::policy_of;
use crate::program::environment::{Audience, ENVIRONMENT_PLUGIN, EnvironmentPlugin, RunConditions};
use crate::program::folder_instructions::{FOLDER_INSTRUCTIONS_PLUGIN, FolderInstructionsPlugin};
use crate::program::foundation::Foundation;
use crate::program::goal::{GOAL_PLUGIN, GoalPlugin};
use crate::program::grants::GrantWatch;
use crate::program::hooks::HookCommands;
use crate::program::links::may_follow;
use crate::program::mcp::{ElicitationPlugin, MCP_PLUGIN, Mcp, McpLinks};
use crate::program::notify::Notifier;
use crate::program::own_commands::OwnCommands;
use crate::program::parts::{AGENT, entry_of, mode_of, output_dir, permissions_of, tool_env, web_search};
use crate::program::permit::{GateKind, PermitTool};
use crate::program::programs::ProjectPrograms;
use crate::program::telemetry::Telemetry;
use crate::program::webhook::Webhooks;
use crate::program::worktree_agents::{WorktreeAgents, WorktreeProgram};
use crate::program::{agents, context, deferred, grants, models, prompt, put_stderr, reminders, sections};
use crate::runtime::{AgentRuntime, AgentRuntimeBuilder, Workplaces};
use crate::snapshots::FolderSnapshots;
use crate::tools::{self, ToolEnv};

/// The assembled program, ready for a front end.
pub struct AppContext {
    pub(crate) foundation: Foundation,
    pub(crate) store: SharedStore,
    pub(crate) runtime: AgentRuntime,
    pub(crate) permission: Permissions,
    pub(crate) skills: Discovery,
    pub(crate) instructions: Instructions,
    pub(crate) agents: Agents,
    pub(crate) selection: RwLock<ModelSelection>,
    /// Agent and model of the settings and flags.
    initial_selection: (String, String),
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) notifier: Notifier,
    pub(crate) telemetry: Telemetry,
    /// Snapshots of the folder; `None` if they are off.
    pub(crate) snapshots: Option<FolderSnapshots>,
    /// The sandbox that restricts commands to their profile; `None` if it is turned off.
    pub(crate) sandbox: Option<Arc<tools::Sandbox>>,
    /// The permit to decode an image.
    pub(crate) decoding: Arc<tokio::sync::Semaphore>,
    price_list: PriceList,
    pub(crate) mcp: Mcp,
    /// Problems at the start that do not prevent it.
    pub(crate) warnings: Vec<String>,
    /// Problems of skills. They are no news at each start of a script or an editor.
    skill_warnings: Vec<String>,
    _grants: GrantWatch,
}

impl AppContext {
    /// Puts the parts together.
    pub(crate) async fn build(foundation: Foundation, cli: &StartFlags) -> Result<Self, Failure> {
        let store = foundation.open_store()?;
        // On the heap: this future is part of those of most commands.
        Box::pin(Self::build_on(store, foundation, cli)).await
    }

    /// Returns all problems, for a user who looks at them.
    pub(crate) fn all_warnings(&self) -> Vec<String> {
        self.warnings.iter().chain(&self.skill_warnings).cloned().collect()
    }

    /// Writes to stderr what is wrong with the settings, and later which files a rewind cannot restore. A terminal
    /// shows both itself.
    pub(crate) fn warn_on_stderr(&self) {
        for warning in &self.warnings {
            put_stderr(&format!("aye: {warning}"));
        }
        if let Some(snapshots) = &self.snapshots {
            snapshots.on_trouble(|text| put_stderr(&format!("aye: {text}")));
        }
    }

    /// Builds the program again with what the folder grants now. Choices the user made in the meantime are
    /// preserved.
    pub(crate) async fn renewed(&self, cli: &StartFlags) -> Result<Self, Failure> {
        let foundation = self.foundation.renewed(cli)?;
        let mut next = Self::build_on(self.store.clone(), foundation, cli).await?;
        if self.permission.mode() != mode_of(&self.foundation) {
            next.permission.set_mode(self.permission.mode()).map_err(Failure::failed)?;
        }
        if self.foundation.effort.get() != self.foundation.loaded.settings.effort {
            next.foundation.effort.set(self.foundation.effort.get());
        }
        let (agent, model) = (self.agents.current(), self.selection().full_name());
        let lost = [
            if agent == self.initial_selection.0 { None } else { next.set_agent(&agent).err() },
            if model == self.initial_selection.1 { None } else { next.set_model(&model).await.err() },
        ];
        next.warnings.extend(lost.into_iter().flatten().map(|why| why.to_string()));
        Ok(next)
    }

    async fn build_on(
        store: SharedStore,
        mut foundation: Foundation,
        cli: &StartFlags,
    ) -> Result<Self, Failure> {
        let rules = foundation.rules(cli)?;
        let reminders = reminders::in_force(&mut foundation);
        let selection = models::choose(&foundation).await?;
        let clock = store.clock();
        let permission = permissions_of(&foundation, rules, Arc::clone(&clock));
        permission.set_terms(foundation.loaded.settings.questions.clone());
        let file_rules = permission.policy(&AgentSpec::new(AGENT));
        let instructions = foundation.instructions(file_rules.as_ref());
        let may_follow: MayFollow = Arc::new(move |real: &Path| may_follow(file_rules.as_ref(), real));
        let skills = find_skills(&foundation, &may_follow);
        let webhooks = Webhooks::new(&foundation, store.clone());
        let webhook_problems = webhooks.problems();
        let notifier = Notifier::new(&foundation, webhooks);
        let telemetry = Telemetry::start(&mut foundation);
        let price_list = PriceList::new(&foundation);
        let mcp_links = McpLinks::default();
        let snapshots = crate::program::snapshots::snapshots_of(&foundation, &clock);
        let targets = SharedTargets::default();
        let common = prompt::Common::new(&foundation.workspace);
        let known = agents::AgentDescriptions::default();
        let parts = Parts {
            store: &store,
            permission: &permission,
            clock: &clock,
            notifier: &notifier,
            telemetry: &telemetry,
            price_list: &price_list,
            mcp_links: &mcp_links,
            targets: &targets,
            skills: &skills,
            instructions: &instructions,
            reminders,
            common: &common,
            known: &known,
            selection: &selection,
            snapshots: snapshots.as_ref(),
            // Without a user at the terminal, surfaces and forms are not offered.
            draws: cli.kind == StartKind::Chat,
            goal: cli.until.as_deref(),
            workplaces: worktree_agents(&foundation, cli, &store, &permission),
            audience: audience(cli, &foundation),
            is_unattended: matches!(cli.kind, StartKind::Print | StartKind::Work),
            // A worker has its queue, and what exists in memory only ends with its process.
            waits: match cli.kind {
                StartKind::Work => false,
                StartKind::Chat => true,
                StartKind::Print | StartKind::Attended | StartKind::Command => !foundation.is_ephemeral,
            },
        };
        let (runtime, programs) = runtime(&foundation, parts)?;
        let unclaimed = sections::check(&runtime, &foundation)?;
        let agents =
            Agents::register(&runtime, &foundation, &may_follow, &common, &known, &selection).await?;
        let selection = agents.model(&agents.current());
        let catalog = runtime.catalog();
        permission.set_tools(catalog.tool_ids().map(str::to_owned).collect());
        let mut warnings = std::mem::take(&mut foundation.warnings);
        warnings.extend(unclaimed);
        warnings.extend(webhook_problems);
        warnings.extend(
            web_search(&foundation).err().map(|why| format!("[web] search: {why}; there is no WebSearch")),
        );
        warnings.extend(selection.rerouted.clone());
        warnings.extend(agents.written.issues.iter().map(ToString::to_string));
        // Under a budget, a model without a known price ends its run.
        warnings.extend(
            agents
                .choices()
                .filter_map(|model| price_list.admit(&model.full_name(), model).err())
                .map(|why| why.to_string()),
        );
        let worth = skills.issues.iter().filter(|issue| issue.severity > Severity::Note);
        let skill_warnings = worth.map(ToString::to_string).collect();
        let models = agents::skill_models(&runtime, &foundation, &skills, &price_list).await;
        *targets.write().expect("no panic while the targets are held") =
            SkillTargets { agents: agents::names(&known), models };
        let (mcp, server_warnings) = Mcp::new(&foundation, cli, &runtime, &permission, &mcp_links, &programs);
        warnings.extend(server_warnings);
        let grants = GrantWatch::start(store.clone(), permission.clone(), Arc::clone(&clock));
        let mut app = Self {
            _grants: grants,
            foundation,
            store,
            runtime,
            permission,
            skills,
            instructions,
            initial_selection: (agents.current(), selection.full_name()),
            agents,
            selection: RwLock::new(selection),
            clock,
            notifier,
            mcp,
            snapshots,
            sandbox: programs.env.sandbox,
            decoding: Arc::new(tokio::sync::Semaphore::new(1)),
            price_list,
            telemetry,
            warnings,
            skill_warnings,
        };
        app.load_grants().await;
        let problems = app.load_published().await.map_err(Failure::failed)?;
        app.warnings.extend(problems);
        // One of the server's API is only known now.
        let wanted = app.foundation.loaded.settings.agent.as_ref();
        if wanted.is_some_and(|name| *name != app.agents.current()) {
            app.agents.choose_first(&app.runtime, &app.foundation)?;
            let selection = app.agents.model(&app.agents.current());
            app.initial_selection = (app.agents.current(), selection.full_name());
            app.selection = RwLock::new(selection);
        }
        Ok(app)
    }

    /// Checks that the budget knows a model's price.
    pub(crate) fn admit(&self, selection: &ModelSelection) -> Result<(), AppError> {
        self.price_list.admit(&selection.full_name(), selection)
    }

    /// Returns the current model.
    pub(crate) fn selection(&self) -> ModelSelection {
        self.selection.read().expect("no panic while the choice is held").clone()
    }

    /// Selects the model of later runs.
    pub(crate) async fn set_model(&self, name: &str) -> Result<(), AppError> {
        let selection = models::choose_named(&self.foundation, name).await?;
        let executor = models::executor(&selection, &self.foundation);
        let entry = entry_of(&selection);
        let id = selection.full_name();
        self.price_list.admit(&id, &selection)?;
        self.runtime.set_model(&id, entry, executor);
        self.agents.use_model(&self.runtime, &self.foundation, &selection);
        *self.selection.write().expect("no panic while the choice is held") = selection;
        Ok(())
    }

    /// Selects the agent of later runs, and with it its model.
    pub(crate) fn set_agent(&self, name: &str) -> Result<(), AppError> {
        let selection = self.agents.choose(&self.runtime, name)?;
        *self.selection.write().expect("no panic while the choice is held") = selection;
        Ok(())
    }

    /// Switches to the agent of a conversation's last run, unless the user named one for this process.
    /// Returns a notice if that agent no longer exists.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn continue_with_its_agent(
        &self,
        thread: &ThreadId,
    ) -> Result<Option<String>, StoreError> {
        if matches!(self.foundation.loaded.provenance.origin("agent"), Some(Origin::Flag(_))) {
            return Ok(None);
        }
        let run = self.store.latest_run(thread).await?;
        let Some(run) = run.filter(|run| run.agent_id != self.agents.current()) else { return Ok(None) };
        let lost = self.set_agent(&run.agent_id).err();
        Ok(lost.map(|why| format!("{why}; {} continues this conversation", self.agents.current())))
    }

    /// Returns the user of this process, as recorded in a decision.
    pub(crate) fn actor(&self, channel: &str) -> Actor {
        actor(&self.foundation, channel)
    }
}

/// Returns the user of this process, as recorded in a decision.
pub(crate) fn actor(foundation: &Foundation, channel: &str) -> Actor {
    let named = ["USER", "LOGNAME"].into_iter().filter_map(|name| foundation.env.var(name));
    let user = named.filter(|name| !name.is_empty()).map(str::to_owned).next();
    let uid = rustix::process::getuid().as_raw();
    // Any of the three that is still a terminal: stdin or stdout may be a pipe.
    let stdio = [rustix::stdio::stdin(), rustix::stdio::stderr(), rustix::stdio::stdout()];
    let tty = stdio.into_iter().find_map(|fd| rustix::termios::ttyname(fd, Vec::new()).ok());
    Actor {
        user: user
            .unwrap_or_else(|| user_of(uid, &std::fs::read_to_string("/etc/passwd").unwrap_or_default())),
        channel: channel.to_owned(),
        pid: std::process::id(),
        uid: Some(uid),
        tty: tty.map(|name| name.to_string_lossy().into_owned()),
    }
}

/// The name of a user where the environment has none, as in a service or a container: from `/etc/passwd`, else the number.
fn user_of(uid: u32, passwd: &str) -> String {
    let number = uid.to_string();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1) == Some(&number)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("uid {uid}"))
}

fn find_skills(foundation: &Foundation, may_follow: &MayFollow) -> Discovery {
    if foundation.is_bare {
        return Discovery::default();
    }
    let mut roots = Vec::new();
    if foundation.is_trusted {
        roots.extend(project_roots(&foundation.workspace.cwd, &foundation.workspace.root));
    }
    roots.extend(user_roots(&foundation.paths.config_dir, foundation.env.home()));
    roots.extend(foundation.plugins.iter().flat_map(|plugin| {
        let boundary = Some(plugin.dir.clone());
        let root = move |dir: &PathBuf| SkillRoot {
            dir: dir.clone(),
            scope: SkillScope::User,
            boundary: boundary.clone(),
        };
        plugin.skills.iter().map(root)
    }));
    discover_following(&roots, bundled(), may_follow)
}

/// The skills that are here, for commands that only list and check them.
pub(crate) fn skills_of(foundation: &Foundation) -> Discovery {
    let may_follow: MayFollow = Arc::new(|_| true);
    find_skills(foundation, &may_follow)
}

struct Parts<'a> {
    store: &'a SharedStore,
    permission: &'a Permissions,
    clock: &'a Arc<dyn Clock>,
    notifier: &'a Notifier,
    telemetry: &'a Telemetry,
    price_list: &'a PriceList,
    mcp_links: &'a McpLinks,
    /// The targets that skills can name.
    targets: &'a SharedTargets,
    skills: &'a Discovery,
    instructions: &'a Instructions,
    reminders: Vec<ReminderRule>,
    /// The start of each agent's system prompt.
    common: &'a prompt::Common,
    /// The agents that tasks can be delegated to.
    known: &'a agents::AgentDescriptions,
    selection: &'a ModelSelection,
    snapshots: Option<&'a FolderSnapshots>,
    /// Whether surfaces can be shown to a user.
    draws: bool,
    /// The command until whose success runs work.
    goal: Option<&'a str>,
    /// Where subagents work that have a folder of their own.
    workplaces: Option<Arc<dyn Workplaces>>,
    /// Whether nobody is there to tell the model to continue.
    is_unattended: bool,
    /// Whether somebody answers questions.
    audience: Audience,
    /// Whether a run waits for a limit of a provider that resets later than a request waits.
    waits: bool,
}

fn runtime(
    foundation: &Foundation,
    Parts {
        store,
        permission,
        clock,
        notifier,
        telemetry,
        price_list,
        mcp_links,
        targets,
        skills,
        instructions,
        reminders,
        common,
        known,
        selection,
        snapshots,
        draws,
        goal,
        workplaces,
        is_unattended,
        audience,
        waits,
    }: Parts<'_>,
) -> Result<(AgentRuntime, ProjectPrograms), Failure> {
    let settings = &foundation.loaded.settings;
    let max_turns = settings.max_turns.map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let mut spec = AgentSpec::new(AGENT)
        .with_model(selection.full_name())
        .with_system_prompt(match settings.agent {
            None => common.prompt_of_choice("", &foundation.given_prompt),
            Some(_) => common.prompt(""),
        })
        .with_max_rounds(max_turns)
        .with_tool_execution(settings.tool_execution)
        .with_config::<RetryConfigKey>(LlmRetryPolicy {
            max_retries: settings.retry.max_retries,
            fallback_models: settings.retry.fallback_models.clone(),
            backoff_base_ms: settings.retry.backoff_base_ms,
        })
        .map_err(Failure::failed)?;
    spec.context_policy = Some(policy_of(selection, settings));
    let spec = sections::with_sections(spec, foundation);
    let mut tool_env = tool_env(foundation);
    tool_env.policies = Some(Arc::new(permission.clone()));
    tool_env.known = Arc::clone(permission.known_files());
    permission.set_enforcement(enforcement(foundation, tool_env.sandbox.as_ref()));
    permission.set_mode(permission.mode()).map_err(Failure::usage)?;
    let output_dir = output_dir(foundation);
    let artifacts: Arc<dyn ArtifactStore> = Arc::new(tools::FileArtifacts::new(&output_dir));
    tool_env.artifacts = Arc::clone(&artifacts);
    let subsystem = SkillSubsystem::new(Arc::new(skills.registry()))
        .with_scripts(Arc::new(Scripts { env: tool_env.clone() }), foundation.workspace.cwd.clone())
        .with_targets(Arc::clone(targets));
    let mut builder = AgentRuntimeBuilder::new()
        .with_thread_run_store(store.clone())
        .with_owner(Owner::of_this_process())
        .with_lease(settings.lease)
        .with_leftover_handler(Arc::new(|left| {
            Box::pin(tools::exec::end_of_run(left.may_kill.then_some(left.pid), left.run.to_string()))
        }))
        .with_cwd(foundation.workspace.cwd.clone())
        .with_grant_loader({
            let (store, permission, clock) = (store.clone(), permission.clone(), Arc::clone(clock));
            Arc::new(move || {
                let (store, permission, now) = (store.clone(), permission.clone(), clock.now_ms());
                Box::pin(async move { grants::load(&store, &permission, now).await })
            })
        })
        .with_renderer(Arc::new(notifier.clone()))
        .with_question_terms(settings.questions.clone())
        .with_waits_for_limits(waits)
        .with_artifacts(context::artifacts(artifacts))
        .with_agent_spec(spec)
        .with_agent_backend(agents::A2A, Arc::new(remote_agents(foundation)))
        .with_model(selection.full_name(), entry_of(selection))
        .with_provider(selection.full_name(), models::executor(selection, foundation));
    if let Some(workplaces) = workplaces {
        builder = builder.with_workplaces(workplaces);
    }
    if let Some(snapshots) = snapshots {
        builder = builder.with_snapshots(Arc::new(snapshots.clone()));
    }
    price_list.admit(&selection.full_name(), selection).map_err(Failure::usage)?;
    for id in &settings.retry.fallback_models {
        let mut named = settings.clone();
        named.model = Some(id.clone());
        let choice = crate::config::select_model(&named, &foundation.loaded.provenance, &foundation.env, &[])
            .map_err(|e| Failure::usage(format!("retry.fallback_models: {e}")))?;
        price_list.admit(id, &choice).map_err(Failure::usage)?;
        let provider = format!("fallback {}", choice.full_name());
        let entry = ModelEntry { provider: provider.clone(), model_name: choice.model.clone() };
        builder =
            builder.with_model(id, entry).with_provider(provider, models::executor(&choice, foundation));
    }
    for key in tools::state_keys() {
        builder = builder.with_state_key(key);
    }
    let programs = ProjectPrograms::new(foundation, tool_env.clone());
    let is_hook = foundation.gate == GateKind::Hook;
    for tool in tools::builtin(tool_env) {
        let tool = if is_hook { PermitTool::like(&tool) } else { tool };
        builder = builder.with_tool(tool.descriptor().id, tool);
    }
    if let Some(plugin) = telemetry.plugin() {
        builder = builder.with_plugin(OBSERVABILITY_PLUGIN, plugin);
    }
    let mut stop = StopPlugin::new(stop_conditions(foundation)).map_err(Failure::usage)?;
    let chosen = foundation.loaded.provenance.origin("stop.on_limit");
    if draws && matches!(chosen, None | Some(Origin::Default)) {
        stop = stop.asking_about_circles();
    }
    if settings.stop.check_before_end {
        // The demo model is scripted: a reminder tells it nothing.
        stop = stop.checking_ends(EndCheck {
            is_unattended,
            applies_to: Arc::new(|model| model != crate::config::DEMO),
        });
    }
    if draws {
        builder = builder.with_plugin(A2UI_PLUGIN, Arc::new(A2uiPlugin::new()));
    }
    let here = RunConditions {
        permission: permission.clone(),
        audience,
        sandbox: sandbox_words(foundation),
        root: foundation.workspace.root.clone(),
        is_worktree: is_worktree(foundation),
    };
    let own_commands = OwnCommands {
        runner: Arc::new(HookCommands { programs: programs.clone() }),
        rules: permission.clone(),
        cwd: foundation.workspace.cwd.clone(),
    };
    let checks = ChecksPlugin::new(&settings.checks, own_commands.clone()).map_err(|why| {
        let origin = foundation.loaded.provenance.origin("checks").map(|origin| format!("{origin}: "));
        Failure::usage(format!("{}{why}", origin.unwrap_or_default()))
    })?;
    // The skills plugin's grants are allow rules of the run; neither plugin knows the other.
    let readable = context::readable(&output_dir);
    let gatekeeper = PermissionPlugin::new(permission.clone()).with_granted(Arc::new(move |snapshot| {
        granted_patterns(snapshot).into_iter().chain(readable.iter().cloned()).collect()
    }));
    builder
        .with_plugin(
            ENVIRONMENT_PLUGIN,
            Arc::new(EnvironmentPlugin::new(&instructions.prompt(), crate::program::zone, here)),
        )
        .with_plugin("permission", Arc::new(gatekeeper))
        .with_plugin("hooks", Arc::new(crate::program::hooks::plugin(foundation, programs.clone(), clock)?))
        .with_plugin("skills-discovery", Arc::new(subsystem.discovery_plugin()))
        .with_plugin("skills-active-instructions", Arc::new(subsystem.active_instructions_plugin()))
        .with_plugin(
            FOLDER_INSTRUCTIONS_PLUGIN,
            Arc::new(
                FolderInstructionsPlugin::new(
                    (&foundation.workspace, &foundation.paths.config_dir),
                    instructions,
                    permission.clone(),
                )
                .silent_if(foundation.is_bare),
            ),
        )
        .with_plugin(
            GOAL_PLUGIN,
            Arc::new(GoalPlugin {
                given: goal.map(str::to_owned),
                commands: own_commands,
                timeout: settings.bash.timeout,
                max_rounds: settings.stop.goal_rounds,
            }),
        )
        .with_plugin(CHECKS_PLUGIN, Arc::new(checks))
        .with_plugin("memory", crate::program::memory::plugin(foundation, clock))
        .with_plugin(HANDOFF_PLUGIN_ID, Arc::new(agents::handoff(known)))
        .with_plugin("compaction", Arc::new(CompactionPlugin))
        .with_plugin(REMINDER_PLUGIN, Arc::new(ReminderPlugin::new(reminders)))
        .with_plugin(DEFERRED_TOOLS_PLUGIN, Arc::new(deferred::plugin()))
        .with_plugin(MCP_PLUGIN, Arc::new(ElicitationPlugin(mcp_links.clone())))
        .with_plugin(
            "stop",
            Arc::new(price_list.over(stop, foundation.loaded.settings.stop.on_limit == OnLimit::Ask)),
        )
        .build_unchecked()
        .map(|runtime| (runtime, programs))
        .map_err(Failure::usage)
}

/// Whether aye made the folder as a worktree.
fn is_worktree(foundation: &Foundation) -> bool {
    checkout_of(&foundation.workspace.root, &foundation.paths.worktrees_dir()).is_some()
}

impl WorktreeProgram for AppContext {
    fn runtime(&self) -> &AgentRuntime {
        &self.runtime
    }

    fn permission(&self) -> &Permissions {
        &self.permission
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.mcp.ready_quietly())
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.mcp.manager.close().await;
            self.notifier.finish().await;
        })
    }
}

fn assemble_worktree(
    store: SharedStore,
    foundation: Foundation,
    cli: StartFlags,
) -> BoxFuture<'static, Result<Arc<dyn WorktreeProgram>, Failure>> {
    Box::pin(async move {
        Ok(Arc::new(AppContext::build_on(store, foundation, &cli).await?) as Arc<dyn WorktreeProgram>)
    })
}

/// The worktrees of subagents; in a worktree they work where their caller does.
fn worktree_agents(
    foundation: &Foundation,
    cli: &StartFlags,
    store: &SharedStore,
    permission: &Permissions,
) -> Option<Arc<dyn Workplaces>> {
    (!is_worktree(foundation))
        .then(|| Arc::new(WorktreeAgents::new(foundation, cli, store, permission, assemble_worktree)) as _)
}

/// Says how the sandbox of commands differs from one without network.
fn sandbox_words(foundation: &Foundation) -> String {
    let sandbox = &foundation.loaded.settings.sandbox;
    if !sandbox.enabled {
        return "Commands run without a sandbox.".to_owned();
    }
    match sandbox.domains.as_slice() {
        [] => String::new(),
        domains => {
            let names: Vec<String> = domains.iter().map(ToString::to_string).collect();
            format!("Commands in the sandbox reach only {}.", names.join(", "))
        }
    }
}

/// Returns who answers the questions of the runs that a command line starts.
fn audience(cli: &StartFlags, foundation: &Foundation) -> Audience {
    let is_denied = match foundation.loaded.settings.on_ask {
        config::OnAsk::Deny => true,
        config::OnAsk::Auto => foundation.is_ephemeral,
        config::OnAsk::Suspend | config::OnAsk::Wait(_) => false,
    };
    match cli.kind {
        StartKind::Chat | StartKind::Attended => Audience::Present,
        StartKind::Print if is_denied => Audience::Nobody,
        StartKind::Print | StartKind::Work | StartKind::Command => Audience::Later,
    }
}

fn stop_conditions(foundation: &Foundation) -> Vec<StopConditionSpec> {
    let stop = &foundation.loaded.settings.stop;
    let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
    let mut conditions = Vec::new();
    if let Some(max_total) = stop.max_tokens_total {
        conditions.push(StopConditionSpec::TokenBudget { max_total: count(max_total) });
    }
    if let Some(seconds) = stop.timeout_s {
        conditions.push(StopConditionSpec::Timeout { seconds });
    }
    if let Some(max) = stop.consecutive_errors {
        conditions.push(StopConditionSpec::ConsecutiveErrors { max: count(max) });
    }
    if let Some(max) = stop.repeated_calls {
        conditions.push(StopConditionSpec::RepeatedCalls { max: count(max) });
    }
    if stop.loop_detection > 1 {
        conditions.push(StopConditionSpec::LoopDetection { window: count(stop.loop_detection) });
    }
    conditions.extend(
        stop.stop_on_tool.iter().map(|name| StopConditionSpec::StopOnTool { tool_name: name.clone() }),
    );
    if let Some(pattern) = &stop.content_match {
        conditions.push(StopConditionSpec::ContentMatch { pattern: pattern.clone() });
    }
    conditions
}

/// Returns how the profiles of verdicts are enforced.
pub(crate) fn enforcement(foundation: &Foundation, sandbox: Option<&Arc<tools::Sandbox>>) -> Enforcement {
    let Some(sandbox) = sandbox.cloned() else { return Enforcement::off() };
    let workspace = foundation.workspace.root.clone();
    let allows_missing = foundation.loaded.settings.sandbox.missing == SandboxMissing::Allow;
    let enforcement = Enforcement::by_kernel(
        move |need| sandbox.problem(need.profile, need.namespaces, &workspace),
        allows_missing,
    )
    .with_domains(!foundation.loaded.settings.sandbox.domains.is_empty());
    match crate::program::git::GitQuestions::of(foundation) {
        Some(git) => enforcement.with_git(Arc::new(git)),
        None => enforcement,
    }
}

/// Runs scripts of skills as the Bash tool runs commands.
struct Scripts {
    env: ToolEnv,
}

#[async_trait]
impl ScriptRunner for Scripts {
    async fn run(&self, request: ScriptRequest, ctx: &ToolCallContext) -> Result<ScriptOutput, ScriptNotRun> {
        let mut exec = tools::exec::ExecRequest {
            program: request.program.into(),
            args: request.args.into_iter().map(Into::into).collect(),
            cwd: request.cwd,
            env: self.env.env_of_call(ctx.sandbox, ctx, request.env),
            timeout: request.timeout,
            max_output: request.max_output,
            output_dir: None,
            on_behalf: ctx.on_behalf(),
            launcher: None,
            limits: None,
            frozen: None,
        };
        let mut confinement = tools::Confinement::default();
        if let Some(profile) = ctx.sandbox {
            let what = tools::Confined {
                profile,
                thread: ctx.run_identity.thread_id.clone(),
                opened: ctx.opened.clone(),
                // The skill's own files may be in the home folder.
                readable: vec![exec.cwd.clone()],
                serving: tools::Serving::Never,
                terminal: false,
            };
            let confined = self.env.confine(exec, what, &ctx.agent_spec).await;
            (exec, confinement) = confined.map_err(|why| ScriptNotRun::NotConfined(why.into()))?;
        }
        let result = tools::exec::run(&self.env.exec, exec, |_| {}, &ctx.cancellation).await;
        let result = result.map_err(|error| ScriptNotRun::NotStarted(error.into()))?;
        let withheld = confinement.take_withheld();
        let mut notes = confinement.settle().await;
        notes.extend(withheld.missed("", &result.output, !result.is_success()));
        if let Some(profile) = ctx.sandbox
            && notes.is_empty()
            && !result.is_success()
        {
            notes.extend(tools::refused_line(profile, &result.output, &self.env.workspace.root));
        }
        let ended = if result.timed_out {
            Some(format!("killed after {} s", result.duration.as_secs()))
        } else if result.cancelled {
            Some("cancelled".to_owned())
        } else {
            result.signal.map(|signal| format!("signal {}", tools::exec::signal_name(signal)))
        };
        Ok(ScriptOutput { output: result.output, exit_code: result.exit_code, ended, notes })
    }
}

/// Connects to remote agents; as with MCP servers, variables can provide their keys.
fn remote_agents(foundation: &Foundation) -> A2aBackend {
    let env = foundation.env.clone();
    A2aBackend::new().with_variables(Arc::new(move |text| {
        fill_variables(text, &env).map_err(|error| EndpointError::NoVariable(error.to_string()))
    }))
}

#[cfg(test)]
mod tests {
    use super::user_of;

    #[test]
    fn the_user_name_is_looked_up_by_uid() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n:x:7::/:\nme:x:1000:100::/home/me:/bin/sh\n";
        assert_eq!([0, 1000, 7, 100].map(|uid| user_of(uid, passwd)), ["root", "me", "uid 7", "uid 100"]);
        assert_eq!(user_of(0, ""), "uid 0");
    }
}
