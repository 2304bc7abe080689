//! The configuration over HTTP: what is there, and changes that admins make.

use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::program::Served;
use crate::commands::agents;
use crate::config::resolve_providers;
use crate::contract::config_entry::{EntryConflict, EntryVersion};
use crate::mcp::ServerState;
use crate::program::app_context::AppContext;
use crate::program::published::{Defined, compile, local_agent, local_model};
use crate::server::{
    ApiError, ConfigChange, ConfigEntry, ConfigHost, ConfigNamespace, EntryOrigin, ProviderView, ServerEntry,
};

/// A local entry, with what is shown of it.
fn local(id: &str, shown: Map<String, Value>) -> ConfigEntry {
    let id = id.to_owned();
    ConfigEntry { id, origin: EntryOrigin::Local, revision: None, definition: None, problem: None, shown }
}

/// An entry that was defined over the API.
fn defined<T>(id: &str, entry: &Defined<T>, shown: Map<String, Value>) -> ConfigEntry {
    ConfigEntry {
        origin: EntryOrigin::Api,
        revision: Some(entry.revision),
        definition: Some(entry.definition.clone()),
        problem: entry.usable.as_ref().err().map(|problem| problem.message.clone()),
        ..local(id, shown)
    }
}

fn members(value: impl Serialize) -> Map<String, Value> {
    let Ok(Value::Object(mut members)) = serde_json::to_value(value) else { return Map::new() };
    members.remove("id");
    members
}

fn agents(app: &AppContext) -> Vec<ConfigEntry> {
    let published = app.agents.published();
    let rows = agents::rows(app).into_iter().map(|row| {
        let id = row["name"].as_str().unwrap_or_default().to_owned();
        let entry = published.agents.get(&id).filter(|_| row["scope"] == "api");
        let shown = members(row);
        entry.map_or_else(|| local(&id, shown.clone()), |entry| defined(&id, entry, shown.clone()))
    });
    let unused = published.agents.iter().filter(|(_, agent)| agent.usable.is_err());
    rows.chain(unused.map(|(id, agent)| defined(id, agent, Map::new()))).collect()
}

fn models(app: &AppContext) -> Vec<ConfigEntry> {
    let settings = app.foundation.loaded.settings.models.iter().map(|(id, model)| {
        let shown = json!({ "provider": model.provider, "model": model.model.as_ref().unwrap_or(id) });
        local(id, members(shown))
    });
    let published = app.agents.published();
    let published = published.models.iter().map(|(id, model)| {
        let shown = members(json!({
            "provider": model.definition["provider"],
            "model": model.definition["model"],
        }));
        defined(id, model, shown)
    });
    settings.chain(published.collect::<Vec<_>>()).collect()
}

pub(super) fn providers(app: &AppContext) -> Vec<ConfigEntry> {
    let all = resolve_providers(&app.foundation.loaded.settings, &app.foundation.env);
    let shown = all.into_iter().map(|provider| {
        // Paths and queries of addresses may be secret too.
        let address =
            reqwest::Url::parse(&provider.base_url).ok().map(|url| url.origin().ascii_serialization());
        let view = ProviderView {
            adapter: provider.adapter.as_str().to_owned(),
            address,
            has_key: provider.has_key,
            is_usable: provider.is_usable(),
            id: provider.name.clone(),
        };
        local(&provider.name, members(view))
    });
    shown.collect()
}

fn servers(app: &AppContext) -> Vec<ConfigEntry> {
    let shown = app.mcp.manager.views().into_iter().map(|view| {
        let offered = view.tools.iter().filter(|tool| tool.is_offered);
        let entry = ServerEntry {
            id: view.name.clone(),
            scope: view.scope.to_string(),
            is_connected: view.phase == ServerState::Connected,
            tools: offered.map(|tool| tool.name.clone()).collect(),
        };
        local(&view.name, members(entry))
    });
    shown.collect()
}

impl ConfigHost for Served {
    fn entries(&self, namespace: ConfigNamespace) -> BoxFuture<'_, Result<Vec<ConfigEntry>, ApiError>> {
        Box::pin(async move {
            Ok(match namespace {
                ConfigNamespace::Agents => agents(&self.here),
                ConfigNamespace::Models => models(&self.here),
                ConfigNamespace::Providers => providers(&self.here),
                ConfigNamespace::McpServers => servers(&self.here),
            })
        })
    }

    fn publish(&self, change: ConfigChange) -> BoxFuture<'_, Result<Result<u64, EntryConflict>, ApiError>> {
        Box::pin(async move {
            let _alone = self.publishing.lock().await;
            let mut rows = self.store.config_entries().await?;
            let ConfigChange { namespace, id, definition, expected, token } = change;
            let of_entry = |row: &&EntryVersion| row.namespace == namespace.as_str() && row.id == id;
            let latest = rows.iter().rfind(of_entry).filter(|row| row.value.is_some());
            let found = latest.map(|row| row.revision);
            let local = match namespace {
                ConfigNamespace::Agents => local_agent(&self.here, &id),
                _ => local_model(&self.here, &id),
            };
            // One that a local file hides since can still be deleted.
            if let Some(place) = local.filter(|_| definition.is_some() || found.is_none()) {
                return Err(ApiError::conflict(
                    "local",
                    format!(
                        "the {} `{id}` is defined by {place}, which no client can change",
                        namespace.noun()
                    ),
                ));
            }
            if let Err(conflict) = expected.check(found) {
                return Ok(Err(conflict));
            }
            let now = self.here.clock.now_ms();
            rows.push(EntryVersion {
                revision: rows.last().map_or(0, |row| row.revision) + 1,
                namespace: namespace.as_str().to_owned(),
                id: id.clone(),
                value: definition.clone(),
                at: now,
            });
            self.check(namespace, &id, &rows).await?;
            let actor = crate::server::ServerHost::actor(self, &token);
            let name = (namespace.as_str().to_owned(), id);
            let revision = self.store.publish_entry(name, definition, expected, (actor, now)).await?;
            if revision.is_ok() {
                for app in self.apps.lock().await.values().chain([&self.here]) {
                    for problem in app.load_published().await? {
                        tracing::warn!("{problem}");
                    }
                }
            }
            Ok(revision)
        })
    }
}

impl Served {
    /// Checks that an entry can be used after a change, and that nothing else stops working.
    async fn check(
        &self,
        namespace: ConfigNamespace,
        id: &str,
        rows: &[EntryVersion],
    ) -> Result<(), ApiError> {
        let after = compile(&self.here, rows).await.current;
        let problem = match namespace {
            ConfigNamespace::Agents => after.agents.get(id).and_then(|agent| agent.usable.as_ref().err()),
            _ => after.models.get(id).and_then(|model| model.usable.as_ref().err()),
        };
        if let Some(problem) = problem {
            return Err(ApiError::field(problem.field.as_str(), problem.message.as_str()));
        }
        // Without its name the model would be looked for elsewhere.
        if namespace == ConfigNamespace::Models && !after.models.contains_key(id) {
            let naming = after.agents.iter().find(|(_, agent)| agent.definition["model"] == id);
            if let Some((agent, _)) = naming {
                let message =
                    format!("the agent `{agent}` names the model `{id}`; change or delete the agent first");
                return Err(ApiError::conflict("in_use", message));
            }
        }
        let known = self.here.runtime.catalog();
        let delegates = after.agents.get(id).filter(|_| namespace == ConfigNamespace::Agents);
        let delegates = delegates.and_then(|agent| agent.definition["delegates"].as_array());
        let unknown =
            delegates.into_iter().flatten().filter_map(Value::as_str).find(|delegate| {
                !known.agents.contains_key(*delegate) && !after.agents.contains_key(*delegate)
            });
        match unknown {
            Some(unknown) => Err(ApiError::field("delegates", format!("there is no agent `{unknown}`"))),
            None => Ok(()),
        }
    }
}
