//! Models, effort, and the keys of providers.

use std::sync::Arc;

use super::TerminalHost;
use crate::config::{ProbeHit, key_sources, list_models};
use crate::contract::foreign::ForeignError;
use crate::contract::inference::ReasoningEffort;
use crate::program::app_context::AppContext;
use crate::program::keys::{self, KeyLogin};
use crate::program::models;
use crate::terminal::themes;
use crate::tui::host::{HostEvent, HostFuture, ModelHost, ModelRow, Secret};

impl TerminalHost {
    /// Saves a choice in the user's settings, and returns the message about it.
    fn chosen(&self, key: &str, value: Option<&str>, what: &str) -> Result<String, ForeignError> {
        let foundation = &self.app.foundation;
        if foundation.is_ephemeral {
            return Ok(format!("{what}, in this session"));
        }
        match themes::keep(foundation, key, value) {
            Ok(file) => Ok(format!("{what}; saved in {}", foundation.paths.display(&file))),
            Err(why) => Err(format!("{what}, but it was not saved: {why}").into()),
        }
    }
}

impl ModelHost for TerminalHost {
    fn models(&self) -> Vec<ModelRow> {
        keys::refresh_stored_keys(&self.app.foundation);
        let rows = self.app.model_rows(&models::kept_offers(&self.app.foundation));
        let (app, events) = (Arc::clone(&self.app), self.events.clone());
        tokio::spawn(async move {
            let all = models::all_offers(&app.foundation, true).await;
            let _ = events.send(HostEvent::Models(app.model_rows(&all.hits)));
            for why in all.refused {
                let _ = events.send(HostEvent::Warned(why));
            }
        });
        rows
    }

    fn set_model<'a>(&'a self, name: &'a str) -> HostFuture<'a, String> {
        Box::pin(async move {
            self.app.set_model(name).await?;
            let model = self.app.selection().full_name();
            let answers = format!("now using {model}");
            if self.app.agents.has_own_model() {
                // The setting is for agents that name none.
                return Ok(format!("{answers}, in this session"));
            }
            // Saved as it was written: a name from the settings represents more than its model.
            self.chosen("model", Some(name), &answers)
        })
    }

    fn try_model<'a>(&'a self, name: &'a str) -> HostFuture<'a, String> {
        Box::pin(async move {
            self.app.set_model(name).await?;
            Ok(format!("now using {}, in this session", self.app.selection().full_name()))
        })
    }

    fn set_effort(&self, effort: Option<ReasoningEffort>) -> HostFuture<'_, String> {
        Box::pin(async move {
            self.app.foundation.effort.set(effort);
            let word = effort.map(|effort| effort.to_string());
            let what = format!("effort: {}", word.as_deref().unwrap_or("the model's default"));
            self.chosen("effort", word.as_deref(), &what)
        })
    }

    fn logins(&self) -> Vec<ModelRow> {
        let foundation = &self.app.foundation;
        keys::refresh_stored_keys(foundation);
        let sources = key_sources(&foundation.loaded.settings, &foundation.env);
        let row = |name: String| {
            let source = sources.iter().find(|source| source.provider == name);
            let note = match source {
                Some(source) if source.is_set => {
                    format!("{} is set", source.variable.as_deref().unwrap_or_default())
                }
                Some(_) => "has a stored key".to_owned(),
                None => String::new(),
            };
            ModelRow { login: Some(name.clone()), name, note, ..ModelRow::default() }
        };
        keys::takers(foundation).into_iter().map(|provider| row(provider.name)).collect()
    }

    fn log_in<'a>(&'a self, provider: &'a str, key: Secret) -> HostFuture<'a, String> {
        Box::pin(async move {
            let foundation = &self.app.foundation;
            let KeyLogin { words, is_checked } = keys::log_in(foundation, provider, &key.0, false).await?;
            if !is_checked || !self.app.selection().is_demo() {
                return Ok(words);
            }
            // A user who connects a provider wants to use it.
            let name = keys::provider(foundation, provider)?.name;
            match self.app.set_model(&format!("{name}/")).await {
                Ok(()) => Ok(format!("{words}; now using {}", self.app.selection().full_name())),
                Err(why) => Ok(format!("{words}; choose a model with /model ({why})")),
            }
        })
    }

    fn log_out<'a>(&'a self, provider: Option<&'a str>) -> HostFuture<'a, String> {
        Box::pin(async move { Ok(keys::log_out(&self.app.foundation, provider).await?) })
    }
}

impl AppContext {
    /// Returns the models that can be selected, given what servers list.
    pub(crate) fn model_rows(&self, hits: &[ProbeHit]) -> Vec<ModelRow> {
        let (settings, env) = (&self.foundation.loaded.settings, &self.foundation.env);
        let policy = self.foundation.loaded.provenance.policy();
        let rows = list_models(settings, env, hits, Some(&self.selection()), policy);
        rows.into_iter()
            .map(|row| ModelRow {
                name: row.name,
                note: row.why.clone(),
                unusable: (!row.usable).then_some(row.why),
                is_current: row.current,
                login: row.login,
            })
            .collect()
    }
}
