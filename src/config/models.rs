//! Which model answers: flag, settings, keys, a local server, or the demo model. No network here: what a probe found is
//! handed in as data.

use std::fmt;

use serde::Serialize;

use super::endpoints::{ProbeCandidate, ProbeHit, ResolvedProvider, is_loopback, resolve, resolve_providers};
use super::env::Env;
use super::layer::Origin;
use super::layers::Provenance;
use super::providers::{self, PROVIDERS, UNKNOWN_CONTEXT_WINDOW, UNKNOWN_MAX_OUTPUT};
use super::settings::{Adapter, Settings};
use crate::contract::display::visible_line;
use crate::contract::spec::Price;

/// Name of the built-in scripted model and of its provider.
pub const DEMO: &str = "demo";

/// Where a request goes, and what is known about who answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selection {
    /// Name of the provider.
    pub provider: String,
    /// Wire form.
    #[serde(serialize_with = "adapter_word")]
    pub adapter: Adapter,
    /// Address with the slash at its end; empty for the demo model.
    pub base_url: String,
    /// Variable that holds the key; `None` when none is needed or none is set.
    pub api_key_env: Option<String>,
    /// The name that the provider knows.
    pub model: String,
    /// Tokens that fit in one request.
    pub context_window: u64,
    /// Tokens of one answer.
    pub max_output: u64,
    /// Prices of a million tokens, when they are known.
    pub price: Option<Price>,
    /// Why it was chosen, for the status line and `aye doctor`.
    pub why: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn adapter_word<S: serde::Serializer>(adapter: &Adapter, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(adapter.as_str())
}

impl Selection {
    /// `provider/model`, as `--model` takes it.
    pub fn full_name(&self) -> String {
        if self.is_demo() { DEMO.to_owned() } else { format!("{}/{}", self.provider, self.model) }
    }

    /// Whether it is the built-in scripted model.
    pub fn is_demo(&self) -> bool {
        self.adapter == Adapter::Demo
    }
}

/// Why there is no model to ask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// The provider is known and has no key.
    #[error("model `{model}` ({origin}) needs a key: set {key_env}")]
    NoKey {
        /// What was asked for.
        model: String,
        /// Who asked.
        origin: String,
        /// The variable to set.
        key_env: String,
    },
    /// The provider has no address.
    #[error(
        "provider `{provider}` ({origin}) has no base_url; set providers.{provider}.base_url in your config.toml"
    )]
    NoBaseUrl {
        /// The provider.
        provider: String,
        /// Who asked.
        origin: String,
    },
    /// `[models.NAME]` names a provider that is not there.
    #[error(
        "model `{model}` ({origin}) names the provider `{provider}`, which is not known; add [providers.{provider}] or use one of {known}"
    )]
    NoSuchProvider {
        /// What was asked for.
        model: String,
        /// Who asked.
        origin: String,
        /// The unknown provider.
        provider: String,
        /// Those that are known.
        known: String,
    },
    /// Nobody serves it.
    #[error(
        "no provider is set up for model `{model}` ({origin}): set one of {key_envs}, or OPENAI_BASE_URL for a server of your own, or start Ollama; `aye models` lists what is usable"
    )]
    NoProvider {
        /// What was asked for.
        model: String,
        /// Who asked.
        origin: String,
        /// The variables.
        key_envs: String,
    },
    /// `provider/` without a model, and there is no default.
    #[error("no model is named; write {provider}/NAME, or set `model` in your config.toml")]
    NoModel {
        /// The provider.
        provider: String,
    },
}

/// Whether a probe could change the choice, so that the others need not wait for one.
pub fn needs_probe(settings: &Settings, env: &Env) -> bool {
    match &settings.model {
        None => !resolve_providers(settings, env).iter().any(ResolvedProvider::is_set_up),
        Some(name) => {
            let chooser = Chooser { settings, env, origin: String::new(), hits: &[] };
            name != DEMO && chooser.named(name).is_err()
        }
    }
}

/// Chooses the model: `settings.model` (flag, environment or file), else the first provider with a key, else a local
/// server that answered, else the demo model.
///
/// # Errors
/// When a model was asked for that nobody can serve. Without such a wish there is always an answer.
pub fn select_model(
    settings: &Settings,
    provenance: &Provenance,
    env: &Env,
    hits: &[ProbeHit],
) -> Result<Selection, SelectError> {
    let origin = match provenance.origin("model") {
        Some(Origin::Default) | None => "default".to_owned(),
        Some(origin) => origin.to_string(),
    };
    let chooser = Chooser { settings, env, origin, hits };
    match settings.model.as_deref() {
        Some(DEMO) => Ok(demo(format!("asked for by {}", chooser.origin))),
        Some(name) => chooser.named(name),
        None => Ok(chooser.unnamed()),
    }
}

fn demo(why: String) -> Selection {
    Selection {
        provider: DEMO.to_owned(),
        adapter: Adapter::Demo,
        base_url: String::new(),
        api_key_env: None,
        model: DEMO.to_owned(),
        context_window: UNKNOWN_CONTEXT_WINDOW,
        max_output: UNKNOWN_MAX_OUTPUT,
        price: None,
        why,
    }
}

struct Chooser<'a> {
    settings: &'a Settings,
    env: &'a Env,
    origin: String,
    hits: &'a [ProbeHit],
}

impl Chooser<'_> {
    /// A model that somebody asked for.
    fn named(&self, name: &str) -> Result<Selection, SelectError> {
        let why = |how: &str| format!("{}: {how}", self.origin);
        if let Some(own) = self.settings.models.get(name) {
            let model = own.model.as_deref().unwrap_or(name);
            return match &own.provider {
                Some(provider) => self.at_provider(name, provider, model, why("a model of your settings")),
                None => self.bare(name, model),
            };
        }
        if let Some((provider, model)) = name.split_once('/')
            && self.knows_provider(provider)
        {
            return self.at_provider(name, provider, model, why("the provider is named"));
        }
        self.bare(name, name)
    }

    fn knows_provider(&self, provider: &str) -> bool {
        self.settings.providers.contains_key(provider)
            || providers::provider(provider).is_some()
            || self.hits.iter().any(|hit| hit.candidate.provider == provider)
    }

    fn at_provider(
        &self,
        asked: &str,
        provider: &str,
        model: &str,
        why: String,
    ) -> Result<Selection, SelectError> {
        let is_own = self.settings.providers.contains_key(provider);
        if let Some(hit) = self.hits.iter().find(|hit| hit.candidate.provider == provider && !is_own) {
            let model = if model.is_empty() { hit.models.first().map_or("", String::as_str) } else { model };
            return Ok(self.at_hit(asked, hit, model, why));
        }
        if !is_own && providers::provider(provider).is_none() {
            let known = resolve_providers(self.settings, self.env).into_iter().map(|provider| provider.name);
            return Err(SelectError::NoSuchProvider {
                model: shown(asked),
                origin: self.origin.clone(),
                provider: shown(provider),
                known: known.collect::<Vec<_>>().join(", "),
            });
        }
        let resolved = resolve(self.settings, self.env, provider);
        if resolved.base_url.is_empty() {
            return Err(SelectError::NoBaseUrl { provider: shown(provider), origin: self.origin.clone() });
        }
        if !resolved.is_usable() {
            let key_env = resolved.key_env.unwrap_or_default();
            return Err(SelectError::NoKey { model: shown(asked), origin: self.origin.clone(), key_env });
        }
        let model = match (model, resolved.built_in) {
            ("", Some(built_in)) if !built_in.default_model.is_empty() => built_in.default_model,
            ("", _) => return Err(SelectError::NoModel { provider: shown(provider) }),
            (model, _) => model,
        };
        Ok(self.selection(asked, &resolved, model, why))
    }

    /// A name without a provider: a family that we know, else whoever is set up, an address before a key.
    fn bare(&self, asked: &str, model: &str) -> Result<Selection, SelectError> {
        let all = resolve_providers(self.settings, self.env);
        let is_of_family = |provider: &ResolvedProvider| {
            provider
                .built_in
                .is_some_and(|built_in| built_in.prefixes.iter().any(|prefix| model.starts_with(prefix)))
        };
        let why = |how: String| format!("{}: {how}", self.origin);
        if let Some(provider) = all.iter().find(|provider| is_of_family(provider) && provider.is_set_up()) {
            return Ok(self.selection(asked, provider, model, why(format!("a model of {}", provider.name))));
        }
        if let Some(hit) =
            self.hits.iter().find(|hit| hit.models.iter().any(|known| same_model(known, model)))
        {
            return Ok(self.at_hit(asked, hit, model, why(format!("{} has it", hit.candidate.base_url))));
        }
        if let Some(provider) = all.iter().find(|provider| provider.is_set_up() && provider.is_base_url_set) {
            let how = format!("sent to {}, whose address is set", provider.name);
            return Ok(self.selection(asked, provider, model, why(how)));
        }
        // A key of a vendor's own service opens its own models only, where we know the family to be another's.
        if let Some(provider) = all.iter().find(|provider| is_of_family(provider)) {
            let gateway = all.iter().find(|other| other.is_set_up() && serves_all(other));
            return match gateway {
                Some(gateway) => {
                    let how = format!("sent to {}, whose key is set", gateway.name);
                    Ok(self.selection(asked, gateway, model, why(how)))
                }
                None => Err(SelectError::NoKey {
                    model: shown(asked),
                    origin: self.origin.clone(),
                    key_env: provider.key_env.clone().unwrap_or_default(),
                }),
            };
        }
        if let Some(provider) = all.iter().find(|provider| provider.is_set_up()) {
            let how = format!("sent to {}, whose key is set", provider.name);
            return Ok(self.selection(asked, provider, model, why(how)));
        }
        if let Some(hit) = self.hits.first() {
            return Ok(self.at_hit(asked, hit, model, why(format!("sent to {}", hit.candidate.base_url))));
        }
        let key_envs = PROVIDERS.iter().filter_map(|provider| provider.key_envs.first().copied());
        Err(SelectError::NoProvider {
            model: shown(asked),
            origin: self.origin.clone(),
            key_envs: key_envs.take(5).collect::<Vec<_>>().join(", "),
        })
    }

    /// Nobody asked for a model.
    fn unnamed(&self) -> Selection {
        for provider in
            resolve_providers(self.settings, self.env).iter().filter(|provider| provider.is_set_up())
        {
            let model = self.default_model(provider);
            if let Some(model) = model {
                let why = match &provider.key_env {
                    Some(key_env) if provider.has_key => format!("{key_env} is set"),
                    _ => format!("the address of {} is set", provider.name),
                };
                return self.selection(&model, provider, &model, why);
            }
        }
        for hit in self.hits {
            if let Some(model) = hit.models.first() {
                return self.at_hit(
                    model,
                    hit,
                    model,
                    format!("{} answers on this machine", hit.candidate.base_url),
                );
            }
        }
        demo("no key is set and no local server answers".to_owned())
    }

    /// The model of a provider that is chosen for its key alone.
    fn default_model(&self, provider: &ResolvedProvider) -> Option<String> {
        let of_settings =
            self.settings.models.iter().find(|(_, own)| own.provider.as_ref() == Some(&provider.name));
        let named = of_settings.map(|(name, own)| own.model.as_ref().unwrap_or(name).clone());
        // A server behind another address lists what it has; a vendor's default name would be a guess there.
        let listed = self
            .hits
            .iter()
            .find(|hit| hit.candidate.base_url == provider.base_url)
            .and_then(|hit| hit.models.first().cloned());
        let built_in = provider.built_in.map(|built_in| built_in.default_model.to_owned());
        named.or(listed).or(built_in).filter(|model| !model.is_empty())
    }

    fn selection(&self, asked: &str, provider: &ResolvedProvider, model: &str, why: String) -> Selection {
        let api_key_env = provider.key_env.clone().filter(|_| provider.has_key);
        self.describe(asked, &provider.name, provider.adapter, &provider.base_url, api_key_env, model, why)
    }

    fn at_hit(&self, asked: &str, hit: &ProbeHit, model: &str, why: String) -> Selection {
        let ProbeCandidate { provider, adapter, base_url, .. } = &hit.candidate;
        // Servers list `qwen3:latest` for what people call `qwen3`; their own spelling is the safe one.
        let exact = hit.models.iter().find(|known| same_model(known, model)).map_or(model, String::as_str);
        self.describe(asked, provider, *adapter, base_url, None, exact, why)
    }

    #[expect(clippy::too_many_arguments, reason = "the one place that puts a selection together")]
    fn describe(
        &self,
        asked: &str,
        provider: &str,
        adapter: Adapter,
        base_url: &str,
        api_key_env: Option<String>,
        model: &str,
        why: String,
    ) -> Selection {
        let full = format!("{provider}/{model}");
        let by_target = || {
            self.settings
                .models
                .values()
                .find(|own| own.model.as_deref() == Some(model) && own.provider.as_deref() == Some(provider))
        };
        let own = self
            .settings
            .models
            .get(asked)
            .or_else(|| self.settings.models.get(&full))
            .or_else(|| self.settings.models.get(model))
            .or_else(by_target);
        let known = providers::known_model(model);
        let is_free = adapter == Adapter::Ollama || is_loopback(base_url);
        Selection {
            provider: provider.to_owned(),
            adapter,
            base_url: base_url.to_owned(),
            api_key_env,
            model: model.to_owned(),
            context_window: own
                .and_then(|own| own.context_window)
                .or(known.map(|known| known.context_window))
                .unwrap_or(UNKNOWN_CONTEXT_WINDOW),
            max_output: own
                .and_then(|own| own.max_output)
                .or(known.map(|known| known.max_output))
                .unwrap_or(UNKNOWN_MAX_OUTPUT),
            // One's own machine sends no bill, whatever the model is called.
            price: own
                .and_then(|own| own.price)
                .or_else(|| providers::known_price(model).filter(|_| !is_free)),
            why,
        }
    }
}

fn serves_all(provider: &ResolvedProvider) -> bool {
    provider.built_in.is_none() || provider.name == "openrouter"
}

fn same_model(listed: &str, asked: &str) -> bool {
    listed == asked || listed.strip_suffix(":latest") == Some(asked)
}

fn shown(text: &str) -> String {
    visible_line(text).chars().take(120).collect()
}

/// One line of `aye models`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelRow {
    /// What `--model` takes.
    pub name: String,
    /// The provider.
    pub provider: String,
    /// Whether it can be used now.
    pub usable: bool,
    /// Why it can, or why not and what to do.
    pub why: String,
    /// Tokens that fit in one request.
    pub context_window: u64,
    /// Prices, when they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

impl fmt::Display for ModelRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.usable { "usable" } else { "-" };
        write!(f, "{:<36} {mark:<7} {}", visible_line(&self.name), visible_line(&self.why))
    }
}

/// What `aye models` lists: the models of the settings, those of local servers, the default of each provider, and demo.
pub fn list_models(settings: &Settings, env: &Env, hits: &[ProbeHit]) -> Vec<ModelRow> {
    let chooser = Chooser { settings, env, origin: "settings".to_owned(), hits };
    let row = |name: String,
               result: Result<Selection, SelectError>,
               fallback: &str,
               usable_because: String| match result {
        Ok(selection) => ModelRow {
            name,
            provider: selection.provider,
            usable: true,
            why: usable_because,
            context_window: selection.context_window,
            price: selection.price,
        },
        Err(error) => ModelRow {
            name,
            provider: fallback.to_owned(),
            usable: false,
            why: error.to_string(),
            context_window: UNKNOWN_CONTEXT_WINDOW,
            price: None,
        },
    };
    let mut rows: Vec<ModelRow> = Vec::new();
    for (name, own) in &settings.models {
        let provider = own.provider.as_deref().unwrap_or("");
        rows.push(row(name.clone(), chooser.named(name), provider, "in your settings".to_owned()));
    }
    for hit in hits {
        for model in &hit.models {
            let name = format!("{}/{model}", hit.candidate.provider);
            let selection = chooser.at_hit(&name, hit, model, String::new());
            rows.push(row(name, Ok(selection), "", format!("{} has it", hit.candidate.base_url)));
        }
    }
    for provider in resolve_providers(settings, env) {
        if hits.iter().any(|hit| hit.candidate.provider == provider.name) {
            continue;
        }
        let Some(model) =
            provider.built_in.map(|built_in| built_in.default_model).filter(|model| !model.is_empty())
        else {
            let why = if provider.name == "ollama" && !provider.is_base_url_set {
                format!("no server answers at {}; start it with `ollama serve`", provider.base_url)
            } else if provider.is_usable() {
                format!("write {}/NAME for any model of {}", provider.name, visible_line(&provider.base_url))
            } else {
                let missing = provider.key_env.as_deref().filter(|_| !provider.base_url.is_empty());
                missing.map_or_else(|| "it has no base_url".to_owned(), |key_env| format!("set {key_env}"))
            };
            let usable = provider.is_set_up();
            let name = format!("{}/NAME", provider.name);
            rows.push(ModelRow {
                name,
                provider: provider.name,
                usable,
                why,
                context_window: UNKNOWN_CONTEXT_WINDOW,
                price: None,
            });
            continue;
        };
        let name = format!("{}/{model}", provider.name);
        let usable_because = match &provider.key_env {
            Some(key_env) if provider.has_key => format!("{key_env} is set"),
            _ => "its address is set".to_owned(),
        };
        let mut entry = row(name.clone(), chooser.named(&name), &provider.name, usable_because);
        if let (false, Some(key_env)) = (entry.usable, &provider.key_env) {
            entry.why = format!("set {key_env}");
        }
        rows.push(entry);
    }
    rows.push(row(DEMO.to_owned(), Ok(demo(String::new())), DEMO, "built in, needs no network".to_owned()));
    rows
}

#[cfg(test)]
#[path = "models_tests.rs"]
mod tests;
