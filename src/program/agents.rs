//! The agents a user can talk to: the built-in one, and those of files and settings, ready to run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock, RwLockReadGuard};

use serde_json::{Value, json};

use crate::agents::{
    AgentDialect, AgentIssue, AgentRoot, AgentScope, HitlMode, ParsedAgent, ParsedAgents, Severity,
    SourceLocator, discover_following, project_roots, read_fields, user_roots,
};
use crate::config::{MachinePolicy, ModelSelection, Origin, Settings, needs_probe, select_model};
use crate::contract::display::visible_line;
use crate::contract::near::or_these;
use crate::contract::spec::AgentSpec;
use crate::failure::{AppError, Failure};
use crate::pattern::Pattern;
use crate::plugins::handoff::HandoffPlugin;
use crate::plugins::skills::{Discovery, MayFollow};
use crate::program::budget::PriceList;
use crate::program::context::policy_of;
use crate::program::foundation::Foundation;
use crate::program::parts::{AGENT, entry_of};
use crate::program::prompt::Common;
use crate::program::published::Published;
use crate::program::{models, sections};
use crate::runtime::{AgentRuntime, ResolveError};

/// The backend of agents that speak A2A.
pub(crate) const A2A: &str = "a2a";

/// The description of the built-in agent.
pub(crate) const AYE_IS_FOR: &str = "reads, edits and runs things in your project";

/// The agents known at a start.
pub(crate) struct Agents {
    /// The usable agents of files and settings, and the problems of the others.
    pub(crate) written: ParsedAgents,
    /// The models of agents that name one.
    models: BTreeMap<String, ModelSelection>,
    /// Those that were defined over the server's API, and their models.
    pub(crate) published: RwLock<Published>,
    chosen: RwLock<Chosen>,
    /// Conversations are not kept, and no flag says what to do with questions.
    keeps_no_question: bool,
}

/// The agents and their descriptions, shared with the handoff tool.
pub(crate) type AgentDescriptions = Arc<RwLock<BTreeMap<String, Option<String>>>>;

/// The names of all agents.
pub(crate) fn names(known: &AgentDescriptions) -> Vec<String> {
    known.read().expect("no panic while names are held").keys().cloned().collect()
}

/// Registers the models that skills name and returns their ids, by the names that skills give them. Models
/// that no provider serves are left out; using such a skill reports that.
pub(crate) async fn skill_models(
    runtime: &AgentRuntime,
    foundation: &Foundation,
    skills: &Discovery,
    price_list: &PriceList,
) -> BTreeMap<String, String> {
    let names: Vec<String> =
        skills.found.iter().filter_map(|found| found.skill.meta().model.clone()).collect();
    let mut found = BTreeMap::new();
    for (name, choice) in choices(names, foundation).await {
        let Ok(choice) = choice else { continue };
        let id = choice.full_name();
        // Under a budget, a model without a known price must not end a run that can continue with another
        // one.
        if price_list.admit(&id, &choice).is_err() {
            continue;
        }
        runtime.set_model(&id, entry_of(&choice), models::executor(&choice, foundation));
        found.insert(name, id);
    }
    found
}

/// Creates the plugin for handoffs to known agents.
pub(crate) fn handoff(known: &AgentDescriptions) -> HandoffPlugin {
    let known = Arc::clone(known);
    HandoffPlugin::default()
        .with_roster(Arc::new(move || known.read().expect("no panic while names are held").clone()))
}

struct Chosen {
    agent: String,
    /// The model of the agents that name none.
    model: ModelSelection,
}

/// Returns the agents configured for a folder. Links of the project are followed to files that `may_follow` says yes to.
pub(crate) fn written(foundation: &Foundation, may_follow: &dyn Fn(&Path) -> bool) -> ParsedAgents {
    let mut agents = ParsedAgents::default();
    // Unless one is asked for.
    if foundation.is_bare && foundation.loaded.settings.agent.is_none() {
        return agents;
    }
    for (name, value) in &foundation.loaded.settings.agents {
        let provenance = foundation.loaded.provenance.clone();
        let own = name.clone();
        let places: SourceLocator = Arc::new(move |pointer| {
            let origin = provenance.origin_in("agents", &own, pointer);
            origin.as_ref().map_or_else(String::new, Origin::to_string)
        });
        let Some(map) = value.as_object() else {
            let message = format!("`agents.{name}` must be a table with the fields of an agent");
            agents.issues.push(AgentIssue { place: places(""), severity: Severity::Error, message });
            continue;
        };
        let (agent, issues) = read_fields(map, name, None, AgentDialect::Own, AgentScope::Settings, &places);
        agents.issues.extend(issues);
        if let Some(agent) = agent {
            agents.add(agent);
        }
    }
    let mut roots = Vec::new();
    if foundation.is_trusted {
        roots.extend(project_roots(&foundation.workspace.cwd, &foundation.workspace.root));
    }
    roots.extend(user_roots(&foundation.paths.config_dir, foundation.env.home()));
    roots.extend(foundation.plugins.iter().flat_map(|plugin| {
        let boundary = Some(plugin.dir.clone());
        let root = move |dir: &PathBuf| {
            let (dir, boundary) = (dir.clone(), boundary.clone());
            AgentRoot { dir, scope: AgentScope::User, form: AgentDialect::Shared, boundary }
        };
        plugin.agents.iter().map(root)
    }));
    discover_following(&roots, &mut agents, may_follow);
    agents
}

impl Agents {
    /// Registers all agents except the built-in one with the runtime. Agents that cannot run are left out.
    pub(crate) async fn register(
        runtime: &AgentRuntime,
        foundation: &Foundation,
        may_follow: &MayFollow,
        common: &Common,
        known: &AgentDescriptions,
        selection: &ModelSelection,
    ) -> Result<Self, Failure> {
        let mut written = written(foundation, may_follow.as_ref());
        let models = models_of(&mut written, foundation).await;
        for choice in models.values() {
            let executor = models::executor(choice, foundation);
            runtime.set_model(&choice.full_name(), entry_of(choice), executor);
        }
        let make = |agent: &ParsedAgent| {
            let model = models.get(&agent.spec.model).unwrap_or(selection);
            spec_of(agent, model, foundation, common, runtime)
        };
        for agent in written.used() {
            runtime.set_agent(make(agent));
        }
        // Leaving one out may reveal another one with its name, and affects agents that delegate to it.
        loop {
            let of_written =
                written.used().map(|agent| (agent.spec.id.clone(), agent.spec.description.clone()));
            let all = of_written.chain([(AGENT.to_owned(), Some(AYE_IS_FOR.to_owned()))]).collect();
            *known.write().expect("no panic while names are held") = all;
            let Some((id, issue)) = written.used().find_map(|agent| unusable(runtime, agent)) else { break };
            runtime.remove_agent(&id);
            written.refuse(&id, issue);
            if let Some(next) = written.get(&id) {
                runtime.set_agent(make(next));
            }
        }
        let warnings: Vec<AgentIssue> = written.used().flat_map(|agent| oddities(runtime, agent)).collect();
        written.issues.extend(warnings);
        let by_agent = written
            .used()
            .filter_map(|agent| Some((agent.spec.id.clone(), models.get(&agent.spec.model)?.clone())));
        let agents = Self {
            models: by_agent.collect(),
            written,
            published: RwLock::default(),
            chosen: RwLock::new(Chosen { agent: AGENT.to_owned(), model: selection.clone() }),
            keeps_no_question: foundation.is_ephemeral && !foundation.has_on_ask_flag(),
        };
        runtime.set_default_agent(AGENT);
        let wanted = foundation.loaded.settings.agent.as_deref();
        if wanted.is_some_and(|name| agents.written.get(name).is_some()) {
            agents.choose_first(runtime, foundation)?;
        }
        Ok(agents)
    }

    /// Selects the agent that the settings and flags name.
    pub(crate) fn choose_first(
        &self,
        runtime: &AgentRuntime,
        foundation: &Foundation,
    ) -> Result<(), Failure> {
        let Some(name) = &foundation.loaded.settings.agent else { return Ok(()) };
        let chosen = self.choose(runtime, name).map_err(|why| {
            let origin = foundation.loaded.provenance.origin("agent").map(Origin::to_string);
            Failure::usage(format!("{}: {why}", origin.unwrap_or_default()))
        });
        chosen.map(drop)
    }

    /// Returns the current agent.
    pub(crate) fn current(&self) -> String {
        self.chosen.read().expect("no panic while the choice is held").agent.clone()
    }

    /// The same, unless it is the built-in one.
    pub(crate) fn named(&self) -> Option<String> {
        Some(self.current()).filter(|agent| agent != AGENT)
    }

    /// The model that an agent uses.
    pub(crate) fn model(&self, agent: &str) -> ModelSelection {
        let published = || self.published().model_of(agent).cloned();
        self.models.get(agent).cloned().or_else(published).unwrap_or_else(|| self.default_model())
    }

    /// The model of the agents that name none.
    pub(crate) fn default_model(&self) -> ModelSelection {
        self.chosen.read().expect("no panic while the choice is held").model.clone()
    }

    /// What was defined over the server's API.
    pub(crate) fn published(&self) -> RwLockReadGuard<'_, Published> {
        self.published.read().expect("no panic while it is held")
    }

    /// An agent of a file, of the settings, or of the server's API.
    pub(crate) fn get(&self, name: &str) -> Option<ParsedAgent> {
        self.written.get(name).cloned().or_else(|| self.published().agent(name).cloned())
    }

    /// Returns whether the current agent names its model.
    pub(crate) fn has_own_model(&self) -> bool {
        self.models.contains_key(&self.current())
    }

    /// The names of all agents, the built-in one first.
    pub(crate) fn names(&self) -> Vec<String> {
        let written = self.written.used().map(|agent| agent.spec.id.clone());
        let published = self.published();
        let published = published.used().map(|agent| agent.spec.id.clone());
        std::iter::once(AGENT.to_owned()).chain(written).chain(published).collect()
    }

    /// Selects the agent for the next messages, and returns its model.
    pub(crate) fn choose(&self, runtime: &AgentRuntime, name: &str) -> Result<ModelSelection, AppError> {
        let runs_elsewhere = self.written.get(name).is_some_and(|agent| agent.spec.endpoint.is_some());
        if runs_elsewhere {
            return Err(ResolveError::RemoteAgentNotDirectlyRunnable(name.to_owned()).to_string().into());
        }
        if !self.names().iter().any(|known| known == name) {
            return Err(self.no_such(name).into());
        }
        if self.keeps_no_question && self.hitl(name) == Some(HitlMode::Async) {
            return Err(format!(
                "{} does not work with --ephemeral, which keeps no question; leave out --ephemeral, or use `auto` or \
                 `blocking`",
                self.hitl_place(name, "async")
            )
            .into());
        }
        runtime.set_default_agent(name);
        name.clone_into(&mut self.chosen.write().expect("no panic while the choice is held").agent);
        Ok(self.model(name))
    }

    /// Returns who is available to answer an agent's questions, if the agent's file says so.
    pub(crate) fn hitl(&self, agent: &str) -> Option<HitlMode> {
        self.written.get(agent)?.hitl
    }

    /// Names the line of an agent's file that says so, for errors.
    pub(crate) fn hitl_place(&self, agent: &str, mode: &str) -> String {
        let place = self.written.get(agent).map(|agent| agent.place("/hitl")).unwrap_or_default();
        format!("{}: `hitl: {mode}` of the agent `{}`", visible_line(&place), visible_line(agent))
    }

    /// The models that agents name, by their registered ids.
    pub(crate) fn choices(&self) -> impl Iterator<Item = &ModelSelection> {
        self.models.values()
    }

    /// Returns the error that an agent is unknown, with similar names.
    pub(crate) fn no_such(&self, name: &str) -> String {
        let names = self.names();
        let known = or_these(name, names.iter().map(String::as_str));
        let wrong = self.written.issues.iter().find(|issue| {
            issue.severity == Severity::Error
                && Path::new(&issue.place).file_stem().is_some_and(|stem| stem == name)
        });
        let wrong = wrong.map(|issue| format!("; {issue}")).unwrap_or_default();
        format!("unknown agent `{}`{known}{wrong}", visible_line(name))
    }

    /// Switches the model: for the current agent, and if that agent names no model, for all agents that name none.
    pub(crate) fn use_model(
        &self,
        runtime: &AgentRuntime,
        foundation: &Foundation,
        selection: &ModelSelection,
    ) {
        let mut chosen = self.chosen.write().expect("no panic while the choice is held");
        let pinned = self.models.contains_key(&chosen.agent);
        let catalog = runtime.catalog();
        for (id, spec) in &catalog.agents {
            if *id == chosen.agent || !pinned && !self.models.contains_key(id) {
                let mut spec = AgentSpec::clone(spec).with_model(selection.full_name());
                if !self.written.get(id).is_some_and(|agent| agent.sets("context_policy")) {
                    spec.context_policy = Some(policy_of(selection, &foundation.loaded.settings));
                }
                runtime.set_agent(spec);
            }
        }
        if !pinned {
            chosen.model = selection.clone();
        }
    }
}

/// Returns the models that agents name. A model that no provider serves is an error of the agent, or a
/// warning if other programs read the agent's file too.
async fn models_of(written: &mut ParsedAgents, foundation: &Foundation) -> BTreeMap<String, ModelSelection> {
    let mut found = BTreeMap::new();
    let names: Vec<String> = written.used().map(|agent| agent.spec.model.clone()).collect();
    for (name, choice) in choices(names, foundation).await {
        match choice {
            Ok(choice) => {
                found.insert(name, choice);
            }
            Err(why) => no_model(&mut *written, &name, &why.to_string()),
        }
    }
    found
}

/// Resolves each model name here, to a model or to the reason why there is none.
pub(crate) async fn choices(
    mut names: Vec<String>,
    foundation: &Foundation,
) -> Vec<(String, Result<ModelSelection, AppError>)> {
    names.sort();
    names.dedup();
    names.retain(|name| !name.is_empty());
    let with = |name: &str| Settings { model: Some(name.to_owned()), ..foundation.loaded.settings.clone() };
    let wants_probe = names.iter().any(|name| needs_probe(&with(name), &foundation.env));
    let hits = if wants_probe { models::probe(&foundation.env).await } else { Vec::new() };
    let choose = |name: String| {
        let choice = select_model(&with(&name), &foundation.loaded.provenance, &foundation.env, &hits);
        (name, choice.map_err(AppError::from))
    };
    names.into_iter().map(choose).collect()
}

/// Says why a model cannot be used. An error of choosing starts with the origin of the user's own model, not of this one.
pub(crate) fn unavailable(model: &str, why: &str) -> String {
    let why = why.split_once(": ").map_or(why, |(_, rest)| rest);
    format!("the model `{}` is unavailable: {why}", visible_line(model))
}

fn no_model(written: &mut ParsedAgents, model: &str, why: &str) {
    let why = unavailable(model, why);
    loop {
        let Some(agent) = written.used().find(|agent| agent.spec.model == model).cloned() else { break };
        let id = agent.spec.id.clone();
        if agent.insists_on_model {
            let issue = agent.issue(Severity::Error, "/model", why.clone());
            written.refuse(&id, issue);
            continue;
        }
        let message = format!("{why}; `{id}` uses your model");
        let issue = agent.issue(Severity::Warning, "/model", message);
        written.issues.push(issue);
        for agent in written.found.iter_mut().filter(|agent| agent.spec.id == id) {
            agent.spec.model.clear();
        }
    }
}

/// The agent as it runs here.
pub(crate) fn spec_of(
    agent: &ParsedAgent,
    model: &ModelSelection,
    foundation: &Foundation,
    common: &Common,
    runtime: &AgentRuntime,
) -> AgentSpec {
    let settings = &foundation.loaded.settings;
    let mut spec = agent.spec.clone();
    spec.system_prompt = if settings.agent.as_ref() == Some(&spec.id) {
        common.prompt_of_choice(&spec.system_prompt, &foundation.given_prompt)
    } else {
        common.prompt(&spec.system_prompt)
    };
    spec.model = model.full_name();
    if !agent.sets("tool_execution") {
        spec.tool_execution = settings.tool_execution;
    }
    if !agent.sets("context_policy") {
        spec.context_policy = Some(policy_of(model, settings));
    }
    let limit = settings.max_turns.map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let is_set = !matches!(foundation.loaded.provenance.origin("max_turns"), Some(Origin::Default) | None);
    spec.max_rounds = match (agent.sets("max_rounds"), is_set && limit > 0) {
        (false, _) => limit,
        (true, false) => spec.max_rounds,
        // An agent must not raise a limit that the user set.
        (true, true) if spec.max_rounds == 0 => limit,
        (true, true) => spec.max_rounds.min(limit),
    };
    // Nor one of the machine, even where what aye does by itself is below it.
    let most = foundation.loaded.provenance.policy().and_then(MachinePolicy::max_turns);
    if let Some(most) = most.filter(|most| spec.max_rounds == 0 || spec.max_rounds > *most) {
        spec.max_rounds = most;
    }
    let catalog = runtime.catalog();
    for (id, guard) in catalog.plugins.iter().filter(|(_, plugin)| plugin.is_guard()) {
        if !spec.plugin_ids.is_empty() && !spec.plugin_ids.contains(id) {
            spec.plugin_ids.push(id.clone());
        }
        if !spec.active_hook_filter.is_empty() {
            spec.active_hook_filter.insert(guard.descriptor().name.to_owned());
        }
    }
    for (key, list) in sections::FOR_ALL {
        if let Some(everyones) = settings.sections.get(key) {
            let own = spec.sections.remove(key);
            spec.sections.insert(key.to_owned(), joined(everyones, own, list));
        }
    }
    deny_excluded_calls(&mut spec);
    if !spec.sections.contains_key("retry")
        && let Some(retry) = catalog.agents.get(AGENT).and_then(|aye| aye.sections.get("retry"))
    {
        spec.sections.insert("retry".to_owned(), retry.clone());
    }
    // An agent that names other agents also needs the tools that reach them.
    if let Some(allowed) = &mut spec.allowed_tools {
        if spec.sections.contains_key("handoff") {
            allowed.push("handoff".to_owned());
        }
        allowed.extend(spec.delegates.iter().map(|id| format!("agent_run_{id}")));
    }
    spec
}

/// Patterns with arguments among the excluded tools remove no tool: they are rules that deny such calls.
fn deny_excluded_calls(spec: &mut AgentSpec) {
    let is_of_calls = |pattern: &&String| Pattern::parse(pattern).is_ok_and(|p| !p.is_unconditional());
    let rules: Vec<Value> = spec
        .excluded_tools
        .iter()
        .flatten()
        .filter(is_of_calls)
        .map(|pattern| json!({"tool": pattern, "behavior": "deny"}))
        .collect();
    if !rules.is_empty() {
        let own = spec.sections.remove("permission");
        let section = joined(&json!({ "rules": rules }), own, "rules");
        spec.sections.insert("permission".to_owned(), section);
    }
}

/// Merges the section of all agents with an agent's own: lists are joined, and for anything else the agent's value
/// wins, except that it never loosens a default.
fn joined(everyones: &Value, own: Option<Value>, list: &str) -> Value {
    let (Value::Object(everyones), Some(Value::Object(mut own))) = (everyones, own.clone()) else {
        // A value that is not a map is rejected when the agent is resolved.
        return own.unwrap_or_else(|| everyones.clone());
    };
    for (key, value) in everyones {
        match (own.get_mut(key), value) {
            (Some(Value::Array(own)), Value::Array(all)) if key == list => {
                own.splice(0..0, all.iter().cloned());
            }
            (Some(own), all) if key == "default_behavior" => {
                let rank = |value: &Value| match value.as_str() {
                    Some("deny") => 2,
                    Some("allow") => 0,
                    _ => 1,
                };
                if rank(all) > rank(own) {
                    *own = all.clone();
                }
            }
            (Some(_), _) => {}
            (None, _) => {
                own.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(own)
}

/// Why an agent cannot run, with the place of what is wrong.
fn unusable(runtime: &AgentRuntime, agent: &ParsedAgent) -> Option<(String, AgentIssue)> {
    let id = &agent.spec.id;
    let error = match runtime.try_resolve(id) {
        // Other agents can delegate to a remote agent.
        Err(ResolveError::RemoteAgentNotDirectlyRunnable(_)) => {
            let endpoint = agent.spec.endpoint.as_ref().filter(|endpoint| endpoint.backend == A2A)?;
            let error = crate::a2a::check_endpoint(endpoint).err()?;
            let message = format!("the agent `{id}` cannot be reached: {error}");
            return Some((id.clone(), agent.issue(Severity::Error, "/endpoint", message)));
        }
        Ok(_) => return None,
        Err(error) => error,
    };
    let message = format!("the agent `{id}` cannot run: {}", runtime.catalog().advice(&error));
    Some((id.clone(), agent.issue(Severity::Error, pointer_of(&error, agent).trim_end_matches('/'), message)))
}

/// The part of an agent that an error of resolving it is about.
pub(crate) fn pointer_of(error: &ResolveError, agent: &ParsedAgent) -> String {
    match error {
        ResolveError::InvalidPluginConfig { key, message, .. } => {
            let field = if agent.sets(key) { format!("/{key}") } else { format!("/sections/{key}") };
            format!("{field}{}", sections::pointer_of(message))
        }
        ResolveError::ModelNotFound(_) | ResolveError::ProviderNotFound(_) => "/model".to_owned(),
        ResolveError::PluginNotFound(_) => "/plugin_ids".to_owned(),
        ResolveError::InvalidToolPattern { pattern, .. } => {
            let in_allowed = agent.spec.allowed_tools.iter().flatten().any(|known| known == pattern);
            if in_allowed { "/allowed_tools".to_owned() } else { "/excluded_tools".to_owned() }
        }
        ResolveError::InvalidDelegate { .. } => "/delegates".to_owned(),
        ResolveError::AgentNotFound(_)
        | ResolveError::RemoteAgentNotDirectlyRunnable(_)
        | ResolveError::ToolIdConflict { .. }
        | ResolveError::EnvBuild(_) => String::new(),
    }
}

/// Returns warnings about an agent: things that are valid but most likely not intended.
fn oddities(runtime: &AgentRuntime, agent: &ParsedAgent) -> Vec<AgentIssue> {
    let catalog = runtime.catalog();
    let mut odd = Vec::new();
    let mut add_warning =
        |pointer: &str, message: String| odd.push(agent.issue(Severity::Warning, pointer, message));
    let known = || catalog.agents.keys().map(String::as_str);
    let handoff = agent.spec.sections.get("handoff").and_then(|section| section["agents"].as_array());
    let handoff: Vec<&str> = handoff.into_iter().flatten().filter_map(Value::as_str).collect();
    let delegates = agent.spec.delegates.iter().map(String::as_str);
    let named = delegates.map(|id| ("/delegates", id)).chain(handoff.into_iter().map(|id| ("/handoff", id)));
    for (pointer, id) in named.filter(|(_, id)| !catalog.agents.contains_key(*id)) {
        add_warning(pointer, format!("unknown agent `{}`{}", visible_line(id), or_these(id, known())));
    }
    let Ok(resolved) = runtime.try_resolve(&agent.spec.id) else { return odd };
    for name in &resolved.warnings {
        add_warning(
            &format!("/sections/{name}"),
            format!("no plugin uses the section `{}`", visible_line(name)),
        );
    }
    let tools: Vec<&str> = catalog.tool_ids().chain(resolved.env.tools.keys().map(String::as_str)).collect();
    let lists =
        [("/allowed_tools", &agent.spec.allowed_tools), ("/excluded_tools", &agent.spec.excluded_tools)];
    for (pointer, patterns) in lists {
        for pattern in patterns.iter().flatten() {
            let limits = Pattern::parse(pattern).is_ok_and(|p| !p.is_unconditional());
            if limits && pointer == "/allowed_tools" && agent.insists_on_model {
                let message = format!(
                    "`{}` offers the whole tool; to limit its calls, use rules under `permission`",
                    visible_line(pattern)
                );
                add_warning(pointer, message);
            }
            let name = pattern.split(['(', ' ']).next().unwrap_or_default();
            let is_plain =
                !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
            // Tools of servers come later, and files of other programs name their tools.
            let is_own =
                agent.insists_on_model && !name.starts_with("mcp__") && !name.starts_with("agent_run_");
            if is_plain && is_own && !tools.contains(&name) {
                add_warning(
                    pointer,
                    format!("unknown tool `{name}`{}", or_these(name, tools.iter().copied())),
                );
            }
        }
    }
    odd
}
