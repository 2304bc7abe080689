//! Agents and models that were defined over the server's API, as they run here.
//!
//! A definition chooses among what is here: it has no member for rules, modes, hooks, addresses or keys, and an agent of
//! the local files with the same name is used instead.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::agents::{AgentDialect, AgentScope, ParsedAgent, Severity, SourceLocator, read_fields};
use crate::config::{ModelSelection, Origin};
use crate::contract::config_entry::EntryVersion;
use crate::contract::display::visible_line;
use crate::contract::spec::AgentSpec;
use crate::contract::storage::StoreError;
use crate::program::agents::{choices, pointer_of, spec_of, unavailable};
use crate::program::app_context::AppContext;
use crate::program::parts::{AGENT, entry_of};
use crate::program::{models, prompt};
use crate::runtime::PublishedAgents;
use crate::server::{AgentDefinition, ConfigNamespace, ModelDefinition};

/// What is wrong with a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DefinitionProblem {
    /// The member that is wrong.
    pub(crate) field: String,
    /// A sentence for the user.
    pub(crate) message: String,
}

/// An entry in its current version.
#[derive(Clone, Debug)]
pub(crate) struct Defined<T> {
    pub(crate) revision: u64,
    pub(crate) definition: Value,
    /// The entry as it can be used here.
    pub(crate) usable: Result<T, DefinitionProblem>,
}

/// An agent that can run here.
#[derive(Clone, Debug)]
pub(crate) struct RunnableAgent {
    written: ParsedAgent,
    spec: Arc<AgentSpec>,
    /// The model that the definition names.
    model: Option<ModelSelection>,
}

/// The entries that are there now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    pub(crate) agents: BTreeMap<String, Defined<RunnableAgent>>,
    pub(crate) models: BTreeMap<String, Defined<ModelSelection>>,
}

impl Published {
    /// The agents that can be used.
    pub(crate) fn used(&self) -> impl Iterator<Item = &ParsedAgent> {
        self.agents.values().filter_map(|agent| Some(&agent.usable.as_ref().ok()?.written))
    }

    /// The one of a name.
    pub(crate) fn agent(&self, id: &str) -> Option<&ParsedAgent> {
        Some(&self.agents.get(id)?.usable.as_ref().ok()?.written)
    }

    /// The model that an agent names.
    pub(crate) fn model_of(&self, id: &str) -> Option<&ModelSelection> {
        self.agents.get(id)?.usable.as_ref().ok()?.model.as_ref()
    }
}

/// All versions of all entries, for one program.
pub(crate) struct PublishedVersions {
    revision: u64,
    agents: PublishedAgents,
    /// The models of all versions.
    models: Vec<ModelSelection>,
    pub(crate) current: Published,
}

/// Models by their full names, or why there is none.
type FoundModels = BTreeMap<String, Result<ModelSelection, String>>;

fn problem(field: &str, message: impl Into<String>) -> DefinitionProblem {
    DefinitionProblem { field: field.to_owned(), message: message.into() }
}

/// Reads a stored definition, which an older or newer version may have written.
fn parsed<T: serde::de::DeserializeOwned>(definition: &Value) -> Result<T, DefinitionProblem> {
    serde_json::from_value(definition.clone()).map_err(|error| problem("", error.to_string()))
}

fn full_name(definition: &ModelDefinition) -> String {
    format!("{}/{}", definition.provider, definition.model)
}

/// Works out what each version comes to here. Changes nothing.
pub(crate) async fn compile(app: &AppContext, rows: &[EntryVersion]) -> PublishedVersions {
    let found = find_models(app, rows).await;
    let common = prompt::Common::new(&app.foundation.workspace);
    let mut current = Published::default();
    let mut agents = PublishedAgents::new();
    for row in rows {
        let (revision, id) = (row.revision, &row.id);
        let mut touched: Vec<(String, u64, Value)> = Vec::new();
        match (ConfigNamespace::parse(&row.namespace), &row.value) {
            (Some(ConfigNamespace::Agents), Some(value)) => {
                touched.push((id.clone(), revision, value.clone()));
            }
            (Some(ConfigNamespace::Agents), None) => {
                current.agents.remove(id);
                agents.entry(id.clone()).or_default().insert(revision, None);
            }
            (Some(ConfigNamespace::Models), value) => {
                if let Some(definition) = value.clone() {
                    let usable = parsed(&definition).and_then(|model| usable_model(app, &model, &found));
                    current.models.insert(id.clone(), Defined { revision, definition, usable });
                } else {
                    current.models.remove(id);
                }
                // An agent that names the model changes with it.
                let naming =
                    current.agents.iter().filter(|(_, agent)| agent.definition["model"] == id.as_str());
                touched
                    .extend(naming.map(|(id, agent)| (id.clone(), agent.revision, agent.definition.clone())));
            }
            (Some(ConfigNamespace::Providers | ConfigNamespace::McpServers) | None, _) => {}
        }
        for (id, own_revision, definition) in touched {
            let usable = parsed(&definition)
                .and_then(|agent| usable_agent(app, &common, agent, &current.models, &found));
            let spec = usable.as_ref().ok().map(|agent| Arc::clone(&agent.spec));
            agents.entry(id.clone()).or_default().insert(revision, spec);
            current.agents.insert(id, Defined { revision: own_revision, definition, usable });
        }
    }
    agents.retain(|id, _| local_agent(app, id).is_none());
    PublishedVersions {
        revision: rows.last().map_or(0, |row| row.revision),
        agents,
        models: found.into_values().filter_map(Result::ok).collect(),
        current,
    }
}

/// Finds the models that definitions name.
async fn find_models(app: &AppContext, rows: &[EntryVersion]) -> FoundModels {
    let names = rows.iter().filter_map(|row| {
        let value = row.value.as_ref()?;
        match ConfigNamespace::parse(&row.namespace)? {
            ConfigNamespace::Agents => value["model"].as_str().map(str::to_owned),
            ConfigNamespace::Models => parsed(value).ok().map(|model| full_name(&model)),
            ConfigNamespace::Providers | ConfigNamespace::McpServers => None,
        }
    });
    let chosen = choices(names.collect(), &app.foundation).await;
    chosen.into_iter().map(|(name, choice)| (name, choice.map_err(|why| why.to_string()))).collect()
}

fn usable_model(
    app: &AppContext,
    definition: &ModelDefinition,
    found: &FoundModels,
) -> Result<ModelSelection, DefinitionProblem> {
    if let Some(place) = local_model(app, &definition.id) {
        return Err(problem("id", format!("{place} defines a model of this name, which is used instead")));
    }
    let selection = found_model(app, &full_name(definition), found)?;
    if selection.provider != definition.provider {
        let shown = visible_line(&definition.provider);
        return Err(problem("provider", format!("no local file or variable sets up the provider `{shown}`")));
    }
    Ok(selection)
}

fn found_model(
    app: &AppContext,
    name: &str,
    found: &FoundModels,
) -> Result<ModelSelection, DefinitionProblem> {
    let selection = match found.get(name) {
        Some(Ok(selection)) => selection.clone(),
        Some(Err(why)) => return Err(problem("model", unavailable(name, why))),
        None => return Err(problem("model", unavailable(name, "unknown"))),
    };
    app.admit(&selection).map_err(|why| problem("model", why.to_string()))?;
    Ok(selection)
}

fn usable_agent(
    app: &AppContext,
    common: &prompt::Common,
    definition: AgentDefinition,
    models: &BTreeMap<String, Defined<ModelSelection>>,
    found: &FoundModels,
) -> Result<RunnableAgent, DefinitionProblem> {
    let id = definition.id.clone();
    if let Some(place) = local_agent(app, &id) {
        return Err(problem("id", format!("{place} defines an agent of this name, which is used instead")));
    }
    let name = definition.model.clone().unwrap_or_default();
    let model = match models.get(&name).filter(|_| local_model(app, &name).is_none()) {
        Some(model) => Some(model.usable.clone().map_err(|why| problem("model", why.message))?),
        None if name.is_empty() => None,
        None => Some(found_model(app, &name, found)?),
    };
    let mut written = read(definition)?;
    let default = app.agents.default_model();
    let spec = spec_of(&written, model.as_ref().unwrap_or(&default), &app.foundation, common, &app.runtime);
    let catalog = app.runtime.catalog();
    let far = |id: &&String| catalog.agents.get(*id).is_some_and(|agent| agent.endpoint.is_some());
    if let Some(far) = spec.delegates.iter().find(far) {
        let message = format!("`{far}` runs elsewhere; only local files say who delegates to it");
        return Err(problem("delegates", message));
    }
    // Any registered model will do: the agent's own is known to be there.
    let any = catalog.models.keys().next().cloned().unwrap_or_default();
    let spec = Arc::new(spec);
    if let Err(error) = app.runtime.try_resolve_spec(&spec, &any) {
        let field = pointer_of(&error, &written).trim_matches('/').to_owned();
        return Err(problem(&field, format!("the agent `{id}` cannot run: {}", catalog.advice(&error))));
    }
    written.places = Arc::new(|_| "defined over the server's API".to_owned());
    Ok(RunnableAgent { written, spec, model })
}

/// Reads a definition as the same fields of an agent file are read.
fn read(definition: AgentDefinition) -> Result<ParsedAgent, DefinitionProblem> {
    let id = definition.id.clone();
    let Ok(Value::Object(mut fields)) = serde_json::to_value(definition) else {
        return Err(problem("", "the definition cannot be read"));
    };
    fields.remove("id");
    let places: SourceLocator = Arc::new(|pointer| pointer.trim_matches('/').to_owned());
    let (agent, issues) = read_fields(&fields, &id, None, AgentDialect::Own, AgentScope::Api, &places);
    agent.ok_or_else(|| {
        let wrong = issues.into_iter().find(|issue| issue.severity == Severity::Error);
        let (field, message) = wrong.map_or_else(Default::default, |issue| (issue.place, issue.message));
        problem(if field == "name" { "id" } else { &field }, message)
    })
}

/// The place of the local definition of an agent.
pub(crate) fn local_agent(app: &AppContext, id: &str) -> Option<String> {
    if id == AGENT {
        return Some("aye itself".to_owned());
    }
    let place = app.agents.written.get(id)?.place("");
    Some(if place.is_empty() { "a local file".to_owned() } else { place })
}

/// The place of the local definition of a model.
pub(crate) fn local_model(app: &AppContext, id: &str) -> Option<String> {
    if !app.foundation.loaded.settings.models.contains_key(id) {
        return None;
    }
    let origin =
        app.foundation.loaded.provenance.origin_in("models", id, "").map(|origin: Origin| origin.to_string());
    Some(origin.filter(|origin| !origin.is_empty()).unwrap_or_else(|| "a local file".to_owned()))
}

impl AppContext {
    /// Brings what was defined over the server's API into force, for the runs that start from now on. Returns what is
    /// wrong with definitions that cannot be used here.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn load_published(&self) -> Result<Vec<String>, StoreError> {
        let rows = self.store.config_entries().await?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let PublishedVersions { revision, agents, models: named, current } = compile(self, &rows).await;
        for model in &named {
            let executor = models::executor(model, &self.foundation);
            self.runtime.set_model(&model.full_name(), entry_of(model), executor);
        }
        self.runtime.publish(revision, agents);
        let wrong = current.agents.iter().filter_map(|(id, agent)| {
            let why = &agent.usable.as_ref().err()?.message;
            Some(format!("the agent `{id}` of the server's API is not used: {}", visible_line(why)))
        });
        let wrong = wrong.collect();
        *self.agents.published.write().expect("no panic while it is held") = current;
        Ok(wrong)
    }
}
