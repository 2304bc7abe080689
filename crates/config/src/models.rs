//! Selects the model that answers: from flag, settings, keys, a local server, or the demo model. This module
//! does no network access: probe results are passed in as data.

use serde::Serialize;

use super::endpoints::{
    OfferedModel, ProbeCandidate, ProbeHit, ResolvedProvider, is_loopback, resolve, resolve_providers,
};
use super::env::Env;
use super::layer::Origin;
use super::layers::Provenance;
use super::providers::{self, PROVIDERS, UNKNOWN_CONTEXT_WINDOW, UNKNOWN_MAX_OUTPUT};
use super::redact::without_password;
use super::settings::{Adapter, Settings};
use super::table::{self, ModelEfforts, can_chat, is_version_of, known_model, successor};
use aye_core::contract::display::visible_line;
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::near::nearest;
use aye_core::contract::spec::Price;

mod list;

pub use list::{ListedModel, list_models};

/// The window of a model on an Ollama server if neither the user nor the server states one: enough for work on code, and
/// little enough for an ordinary machine.
const OLLAMA_CONTEXT_WINDOW: u64 = 32_768;

/// Name of the built-in scripted model and of its provider.
pub const DEMO: &str = "demo";

/// The destination of a request, and the known properties of the model that answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelSelection {
    /// Name of the provider.
    pub provider: String,
    #[serde(serialize_with = "adapter_word")]
    pub adapter: Adapter,
    /// Address with the slash at its end; empty for the demo model.
    pub base_url: String,
    /// The variable that contains the key; `None` if no key is needed or no variable is set.
    pub api_key_env: Option<String>,
    /// Whether the key is the one stored by a login.
    pub is_key_stored: bool,
    /// The name that the provider knows.
    pub model: String,
    /// Tokens that fit in one request.
    pub context_window: u64,
    /// Tokens of one answer.
    pub max_output: u64,
    /// The limit that the user set for one answer: sent to every provider, unlike what is only known of the model.
    #[serde(skip)]
    pub own_max_output: Option<u64>,
    /// Prices of a million tokens, when they are known.
    pub price: Option<Price>,
    /// Whether the model can reason, if known.
    pub reasoning: Option<bool>,
    /// The efforts that the model accepts, if they are known.
    #[serde(skip)]
    pub efforts: Option<ModelEfforts>,
    /// Whether the context window is a guess: settings, table and server do not specify it.
    #[serde(skip)]
    pub is_guess: bool,
    /// Why it was chosen, for the status line and `aye doctor`.
    pub why: String,
    /// A sentence for the start when requests go to another server than the named provider, which has no key.
    #[serde(skip)]
    pub rerouted: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn adapter_word<S: serde::Serializer>(adapter: &Adapter, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(adapter.as_str())
}

impl ModelSelection {
    /// The address that requests go to, without a password in it.
    pub fn server(&self) -> String {
        without_password(&self.base_url)
    }

    /// `provider/model`, as `--model` takes it.
    pub fn full_name(&self) -> String {
        if self.is_demo() { DEMO.to_owned() } else { format!("{}/{}", self.provider, self.model) }
    }

    /// Returns the effort in force when the user wants this one, or none in particular; `None` leaves it to the model.
    pub fn effort(&self, wanted: Option<ReasoningEffort>) -> Option<ReasoningEffort> {
        match self.efforts {
            _ if self.reasoning == Some(false) => None,
            Some(efforts) => efforts.in_force(wanted),
            None => wanted,
        }
    }

    /// Returns whether this is the built-in scripted model.
    pub fn is_demo(&self) -> bool {
        self.adapter == Adapter::Demo
    }
}

/// The reason why no model can be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// The provider is known and has no key.
    #[error("model `{model}` ({origin}) needs a key: {advice}")]
    NoKey {
        model: String,
        /// The origin of the request.
        origin: String,
        /// The variable to set, or the login to run.
        advice: String,
    },
    /// The provider has no address.
    #[error(
        "provider `{provider}` ({origin}) has no base_url; set providers.{provider}.base_url in your config.toml"
    )]
    NoBaseUrl {
        provider: String,
        /// The origin of the request.
        origin: String,
    },
    /// `[models.NAME]` names a provider that is not there.
    #[error(
        "model `{model}` ({origin}) names the unknown provider `{provider}`; {known}, add \
         [providers.{provider}] to your config.toml, or set OPENAI_BASE_URL for a gateway that knows \
         `{model}`"
    )]
    NoSuchProvider {
        model: String,
        /// The origin of the request.
        origin: String,
        provider: String,
        /// The near one, or those that are known.
        known: String,
    },
    /// No provider serves the model.
    #[error(
        "no provider for model `{model}` ({origin}); run `aye login`, set one of {key_envs}, set \
         OPENAI_BASE_URL for your own server, or start Ollama; `aye models` lists available models"
    )]
    NoProvider {
        model: String,
        /// The origin of the request.
        origin: String,
        key_envs: String,
    },
    /// The policy of the machine does not allow it.
    #[error("model `{model}` ({origin}) cannot be used: {why}")]
    Refused {
        /// The model, as `provider/model`.
        model: String,
        /// The origin of the request.
        origin: String,
        /// What the policy allows.
        why: String,
    },
    /// `provider/` without a model, and the provider has no default.
    #[error("no model given; write {provider}/NAME, or set `model` in your config.toml")]
    NoModel { provider: String },
}

/// Returns whether a probe could change the choice; otherwise the caller need not wait for one.
pub fn needs_probe(settings: &Settings, env: &Env) -> bool {
    match &settings.model {
        None => !resolve_providers(settings, env).iter().any(ResolvedProvider::is_set_up),
        Some(name) => {
            let chooser = Chooser { settings, env, origin: String::new(), hits: &[] };
            name != DEMO && chooser.named(name).is_err()
        }
    }
}

/// Returns the provider whose server must list its models, because no model is named and the server's URL is
/// not the usual one or the provider has no default model.
pub fn wants_list(settings: &Settings, env: &Env) -> Option<ResolvedProvider> {
    let provider = match settings.model.as_deref() {
        None => {
            let first = resolve_providers(settings, env).into_iter().find(ResolvedProvider::is_set_up)?;
            let is_named = settings.models.values().any(|own| own.provider.as_ref() == Some(&first.name));
            Some(first).filter(|_| !is_named)?
        }
        Some(name) => {
            let name = name.strip_suffix('/')?;
            let is_known = settings.providers.contains_key(name) || providers::provider(name).is_some();
            is_known.then(|| resolve(settings, env, name)).filter(ResolvedProvider::is_usable)?
        }
    };
    let has_default = provider.built_in.is_some_and(|built_in| !built_in.default_model.is_empty());
    (provider.is_elsewhere() || !has_default).then_some(provider)
}

/// Chooses the model: `settings.model` (flag, environment or file), else the first provider with a key, else
/// a local server that answered, else the demo model.
///
/// # Errors
/// If a model was requested that no provider can serve, or if the policy of the machine does not allow the model.
pub fn select_model(
    settings: &Settings,
    provenance: &Provenance,
    env: &Env,
    hits: &[ProbeHit],
) -> Result<ModelSelection, SelectError> {
    let origin = match provenance.origin("model") {
        Some(Origin::Default) | None => "default".to_owned(),
        Some(origin) => origin.to_string(),
    };
    let chooser = Chooser { settings, env, origin, hits };
    let selection = match settings.model.as_deref() {
        Some(DEMO) => demo(format!("set by {}", chooser.origin)),
        Some(name) => chooser.named(name)?,
        None => chooser.unnamed(),
    };
    match provenance.policy().and_then(|policy| policy.refuses_model(&selection.full_name())) {
        None => Ok(selection),
        Some(why) => Err(SelectError::Refused { model: selection.full_name(), origin: chooser.origin, why }),
    }
}

fn sent_to(base_url: &str) -> String {
    format!("sent to {}", without_password(base_url))
}

fn demo(why: String) -> ModelSelection {
    ModelSelection {
        provider: DEMO.to_owned(),
        adapter: Adapter::Demo,
        base_url: String::new(),
        api_key_env: None,
        is_key_stored: false,
        model: DEMO.to_owned(),
        context_window: UNKNOWN_CONTEXT_WINDOW,
        max_output: UNKNOWN_MAX_OUTPUT,
        own_max_output: None,
        price: None,
        reasoning: None,
        efforts: None,
        is_guess: false,
        why,
        rerouted: None,
    }
}

/// Where requests for a model go.
struct Endpoint<'a> {
    provider: &'a str,
    adapter: Adapter,
    base_url: &'a str,
}

struct Chooser<'a> {
    settings: &'a Settings,
    env: &'a Env,
    origin: String,
    hits: &'a [ProbeHit],
}

impl Chooser<'_> {
    /// Selects a model by its requested name.
    fn named(&self, name: &str) -> Result<ModelSelection, SelectError> {
        let why = |how: &str| format!("{}: {how}", self.origin);
        // A table that only says how large `provider/model` is makes no other model of it.
        let own = self.settings.models.get(name);
        if let Some(own) = own.filter(|own| own.provider.is_some() || own.model.is_some()) {
            let model = own.model.as_deref().unwrap_or(name);
            return match &own.provider {
                Some(provider) => self.at_provider(name, provider, model, why("a model of your settings")),
                None => self.bare(name, model),
            };
        }
        if let Some((provider, model)) = name.split_once('/')
            && self.knows_provider(provider)
        {
            let at_provider = self.at_provider(name, provider, model, self.origin.clone());
            // Gateways name models `vendor/model`, and a vendor may be a provider that we know.
            return match (at_provider, self.gateway()) {
                // A key that is named is not replaced by another one.
                (Err(SelectError::NoKey { .. }), Some(gateway))
                    if providers::split_key_name(provider).1.is_none() =>
                {
                    let how = format!("sent to {}, which serves models of any vendor", gateway.name);
                    let rerouted = format!(
                        "requests for {name} go to {} ({}), because {provider} has no key here; `aye login {provider}` \
                         stores one",
                        gateway.name,
                        without_password(&gateway.base_url)
                    );
                    Ok(ModelSelection {
                        rerouted: Some(rerouted),
                        ..self.selection(name, &gateway, name, why(&how))
                    })
                }
                (chosen, _) => chosen,
            };
        }
        self.bare(name, name)
    }

    /// Returns a server that serves models of any vendor: one with a configured URL, or one that sells
    /// nothing else.
    fn gateway(&self) -> Option<ResolvedProvider> {
        let is_gateway = |provider: &ResolvedProvider| {
            provider.is_set_up()
                && (provider.is_elsewhere() && provider.adapter != Adapter::Ollama || serves_all(provider))
        };
        resolve_providers(self.settings, self.env).into_iter().find(is_gateway)
    }

    fn knows_provider(&self, provider: &str) -> bool {
        self.knows_by_name(provider) || self.hits.iter().any(|hit| hit.candidate.provider == provider)
    }

    fn at_provider(
        &self,
        asked: &str,
        provider: &str,
        model: &str,
        why: String,
    ) -> Result<ModelSelection, SelectError> {
        let is_own = self.is_own(provider);
        if let Some(hit) = self.hits.iter().find(|hit| hit.candidate.provider == provider && !is_own) {
            let named = Some(model).filter(|model| !model.is_empty());
            let Some(model) = named.or_else(|| first_to_chat(provider, &hit.models)) else {
                return Err(SelectError::NoModel { provider: shown(provider) });
            };
            return Ok(self.at_hit(asked, hit, model, why));
        }
        if !is_own && providers::provider(provider).is_none() {
            return Err(self.no_such_provider(asked, provider));
        }
        let resolved = resolve(self.settings, self.env, provider);
        if resolved.base_url.is_empty() {
            return Err(SelectError::NoBaseUrl { provider: shown(provider), origin: self.origin.clone() });
        }
        if !resolved.is_usable() {
            let advice = resolved.key_advice();
            return Err(SelectError::NoKey { model: shown(asked), origin: self.origin.clone(), advice });
        }
        let model = if model.is_empty() { self.first_of(&resolved) } else { Some(model.to_owned()) };
        let model = model.ok_or_else(|| SelectError::NoModel { provider: shown(provider) })?;
        Ok(self.selection(asked, &resolved, &model, why))
    }

    fn no_such_provider(&self, asked: &str, provider: &str) -> SelectError {
        let names: Vec<String> =
            resolve_providers(self.settings, self.env).into_iter().map(|provider| provider.name).collect();
        let near = match provider {
            "google" => Some("gemini"),
            other => nearest(other, names.iter().map(String::as_str)),
        };
        let known = near.map_or_else(
            || format!("use one of {}", names.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        SelectError::NoSuchProvider {
            model: shown(asked),
            origin: self.origin.clone(),
            provider: shown(provider),
            known,
        }
    }

    /// Resolves a name without a provider: to the provider of a known model or family, else to any provider
    /// that is set up, one with a URL before one with a key.
    fn bare(&self, asked: &str, model: &str) -> Result<ModelSelection, SelectError> {
        let all = resolve_providers(self.settings, self.env);
        let has_it = |provider: &&ResolvedProvider| {
            provider.is_set_up()
                && !provider.is_elsewhere()
                && table::models_of(&provider.name).any(|id| id == model)
        };
        let is_of_family = |provider: &ResolvedProvider| {
            provider
                .built_in
                .is_some_and(|built_in| built_in.prefixes.iter().any(|prefix| model.starts_with(prefix)))
        };
        let why = |how: String| format!("{}: {how}", self.origin);
        if let Some(provider) = all.iter().find(has_it) {
            return Ok(self.selection(asked, provider, model, why(format!("a model of {}", provider.name))));
        }
        if let Some(provider) = all.iter().find(|provider| is_of_family(provider) && provider.is_set_up()) {
            return Ok(self.selection(asked, provider, model, why(format!("a model of {}", provider.name))));
        }
        if let Some(hit) =
            self.hits.iter().find(|hit| hit.models.iter().any(|known| same_model(&known.id, model)))
        {
            return Ok(self.at_hit(asked, hit, model, why(format!("{} serves it", hit.candidate.base_url))));
        }
        if let Some(provider) = all.iter().find(|provider| provider.is_set_up() && provider.is_base_url_set) {
            let how = format!("sent to {}, whose URL is set", provider.name);
            return Ok(self.selection(asked, provider, model, why(how)));
        }
        // `vendor/model` is a name for gateways: a vendor's own service does not know it.
        if let Some((vendor, _)) = model.split_once('/') {
            return match self.gateway() {
                Some(gateway) => {
                    let how = format!("sent to {}, which serves models of any vendor", gateway.name);
                    Ok(self.selection(asked, &gateway, model, why(how)))
                }
                None => Err(self.no_such_provider(asked, vendor)),
            };
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
                    advice: provider.key_advice(),
                }),
            };
        }
        if let Some(provider) = all.iter().find(|provider| provider.is_set_up()) {
            let how = format!("sent to {}, whose key is set", provider.name);
            return Ok(self.selection(asked, provider, model, why(how)));
        }
        if let Some(hit) = self.hits.first() {
            return Ok(self.at_hit(asked, hit, model, why(sent_to(&hit.candidate.base_url))));
        }
        let key_envs = PROVIDERS.iter().filter_map(|provider| provider.key_envs.first().copied());
        Err(SelectError::NoProvider {
            model: shown(asked),
            origin: self.origin.clone(),
            key_envs: key_envs.take(5).collect::<Vec<_>>().join(", "),
        })
    }

    /// Selects a model when none was requested.
    fn unnamed(&self) -> ModelSelection {
        let mut silent = None;
        for provider in
            resolve_providers(self.settings, self.env).iter().filter(|provider| provider.is_set_up())
        {
            let model = self.default_model(provider);
            if let Some(model) = model {
                let why = match &provider.key_env {
                    _ if provider.is_elsewhere() => sent_to(&provider.base_url),
                    _ if provider.is_key_stored => format!("`aye login {}` stored a key", provider.name),
                    Some(key_env) if provider.has_key => format!("{key_env} is set"),
                    _ => sent_to(&provider.base_url),
                };
                return self.selection(&model, provider, &model, why);
            }
            silent.get_or_insert_with(|| provider.base_url.clone());
        }
        for hit in self.hits.iter().filter(|hit| is_loopback(&hit.candidate.base_url)) {
            if let Some(model) = first_to_chat(&hit.candidate.provider, &hit.models) {
                return self.at_hit(
                    model,
                    hit,
                    model,
                    format!("{} runs on this machine", hit.candidate.base_url),
                );
            }
        }
        demo(silent.map_or_else(
            || "no key is set and no local server responds".to_owned(),
            |url| format!("{} did not list its models; name one with --model", without_password(&url)),
        ))
    }

    /// The model of a provider that is chosen for its key alone.
    fn default_model(&self, provider: &ResolvedProvider) -> Option<String> {
        let of_settings =
            self.settings.models.iter().find(|(_, own)| own.provider.as_ref() == Some(&provider.name));
        let named = of_settings.map(|(name, own)| own.model.as_ref().unwrap_or(name).clone());
        named.or_else(|| self.first_of(provider))
    }

    /// The first model of a server at another address than usual, else the usual one of the provider.
    fn first_of(&self, provider: &ResolvedProvider) -> Option<String> {
        let hit = self.hits.iter().find(|hit| hit.candidate.base_url == provider.base_url);
        let built_in = provider.built_in.map_or("", |built_in| built_in.default_model);
        let listed = hit
            .filter(|_| provider.is_elsewhere() || built_in.is_empty())
            .and_then(|hit| first_to_chat(&provider.name, &hit.models));
        listed.or(Some(built_in)).filter(|model| !model.is_empty()).map(str::to_owned)
    }

    fn selection(
        &self,
        asked: &str,
        provider: &ResolvedProvider,
        model: &str,
        why: String,
    ) -> ModelSelection {
        let hit = self.hits.iter().find(|hit| hit.candidate.base_url == provider.base_url);
        let offered = hit.and_then(|hit| hit.models.iter().find(|offered| offered.id == model));
        ModelSelection {
            api_key_env: provider.key_env.clone().filter(|_| provider.has_key && !provider.is_key_stored),
            is_key_stored: provider.is_key_stored,
            ..self.describe(
                asked,
                Endpoint {
                    provider: &provider.name,
                    adapter: provider.adapter,
                    base_url: &provider.base_url,
                },
                model,
                offered,
                why,
            )
        }
    }

    fn at_hit(&self, asked: &str, hit: &ProbeHit, model: &str, why: String) -> ModelSelection {
        let ProbeCandidate { provider, adapter, base_url, .. } = &hit.candidate;
        // Servers list `qwen3:latest` where users write `qwen3`; the server's own spelling is the safe one.
        let offered = hit.models.iter().find(|known| same_model(&known.id, model));
        let exact = offered.map_or(model, |offered| offered.id.as_str());
        let resolved = resolve(self.settings, self.env, provider);
        if self.knows_by_name(provider) && resolved.base_url == *base_url {
            return self.selection(asked, &resolved, exact, why);
        }
        let endpoint = Endpoint { provider, adapter: *adapter, base_url };
        self.describe(asked, endpoint, exact, offered, why)
    }

    /// Whether the settings have a provider of this name, or the provider that this named key is for.
    fn is_own(&self, provider: &str) -> bool {
        let own = &self.settings.providers;
        own.contains_key(provider) || own.contains_key(providers::split_key_name(provider).0)
    }

    fn knows_by_name(&self, provider: &str) -> bool {
        self.is_own(provider) || providers::provider(provider).is_some()
    }

    fn describe(
        &self,
        asked: &str,
        endpoint: Endpoint<'_>,
        model: &str,
        offered: Option<&OfferedModel>,
        why: String,
    ) -> ModelSelection {
        let Endpoint { provider, adapter, base_url } = endpoint;
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
        let known = known_model(provider, model);
        let is_free = adapter == Adapter::Ollama || is_loopback(base_url);
        let own_window = own.and_then(|own| own.context_window);
        // The server reserves memory for the whole window that it is started with.
        let known_window = match adapter {
            Adapter::Ollama => known.context_window.min(OLLAMA_CONTEXT_WINDOW),
            _ => known.context_window,
        };
        let offered_window = offered.and_then(|offered| offered.context_window);
        ModelSelection {
            provider: provider.to_owned(),
            adapter,
            base_url: base_url.to_owned(),
            api_key_env: None,
            is_key_stored: false,
            model: model.to_owned(),
            context_window: own_window.or(offered_window).unwrap_or(known_window),
            max_output: own
                .and_then(|own| own.max_output)
                .or(offered.and_then(|offered| offered.max_output))
                .unwrap_or(known.max_output),
            own_max_output: own.and_then(|own| own.max_output),
            // The user's own machine sends no bill, whatever the model is called.
            price: own.and_then(|own| own.price).or(known.price.filter(|_| !is_free)),
            reasoning: known.reasoning,
            efforts: known.efforts,
            is_guess: own_window.is_none() && offered_window.is_none() && !known.is_exact,
            why,
            rerouted: None,
        }
    }
}

/// The first model of a list that answers messages.
fn first_to_chat<'a>(provider: &str, models: &'a [OfferedModel]) -> Option<&'a str> {
    models.iter().map(|offered| offered.id.as_str()).find(|id| can_chat(provider, id))
}

fn serves_all(provider: &ResolvedProvider) -> bool {
    provider.built_in.is_none_or(|built_in| built_in.name == "openrouter")
}

fn same_model(listed: &str, asked: &str) -> bool {
    listed == asked || listed.strip_suffix(":latest") == Some(asked)
}

fn shown(text: &str) -> String {
    visible_line(text).chars().take(120).collect()
}

/// Returns a note that a model's provider no longer lists it, with the closest successor. Returns nothing if
/// the provider lists the model, or is not known to list any.
pub fn gone(current: &ModelSelection, hits: &[ProbeHit]) -> Option<String> {
    let hit = hits.iter().find(|hit| hit.candidate.base_url == current.base_url && !hit.models.is_empty())?;
    // Names such as `-latest`, and those without the date that a list has, are not in every list.
    let is_same = |listed: &str| {
        same_model(listed, &current.model)
            || is_version_of(listed, &current.model)
            || is_version_of(&current.model, listed)
    };
    if current.model.ends_with("-latest") || hit.models.iter().any(|offered| is_same(&offered.id)) {
        return None;
    }
    let ids =
        hit.models.iter().map(|offered| offered.id.as_str()).filter(|id| can_chat(&current.provider, id));
    let next = successor(&current.model, ids);
    let next =
        next.map(|id| format!("; its closest successor is {}/{id}", current.provider)).unwrap_or_default();
    Some(format!("{} does not list it{next}", current.provider))
}

/// The origin of a provider's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySource {
    pub provider: String,
    /// The variable that contains the key, or would if it were set.
    pub variable: Option<String>,
    /// Whether that variable is set; it overrides a stored key.
    pub is_set: bool,
    /// Whether a key is stored.
    pub is_stored: bool,
}

/// Returns the origin of the key of each provider that has one.
pub fn key_sources(settings: &Settings, env: &Env) -> Vec<KeySource> {
    let source = |provider: ResolvedProvider| KeySource {
        is_set: provider.has_key && !provider.is_key_stored,
        is_stored: env.has_stored_key(&provider.name),
        provider: provider.name,
        variable: provider.key_env,
    };
    let all = resolve_providers(settings, env).into_iter().map(source);
    all.filter(|source| source.is_set || source.is_stored).collect()
}

#[cfg(test)]
mod tests;
