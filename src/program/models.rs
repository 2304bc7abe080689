//! The active model, the models that servers offer, and the executor that reaches a model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::config::{
    Adapter as Wire, Env, ModelSelection, OfferedModel, ProbeCandidate, ProbeHit, ResolvedProvider,
    SelectError, Settings, can_chat, needs_probe, probe_candidates, read_private, resolve_providers,
    select_model, successor, wants_list, write_private,
};
use crate::contract::clock::{Clock as _, SystemClock};
use crate::contract::digest::sha256_hex;
use crate::contract::executor::{InferenceExecutionError, InferenceRequest, LlmExecutor, LlmStream};
use crate::contract::inference::{InferenceOverride, ReasoningEffort, StreamResult};
use crate::failure::{AppError, Failure};
use crate::llm::{
    DemoExecutor, GenaiExecutor, HAS_NO_MODEL, OffersError, ProviderConfig, ProviderModel, WireFormat,
    check_key, offers, offers_in, running_context,
};
use crate::program::foundation::{Effort, Foundation};
use crate::program::keyring::Keyring;
use crate::program::keys;

/// How long a local server may take to answer.
const PROBE: Duration = Duration::from_millis(200);

/// How long a start waits for a server's list if no model was named.
const START: Duration = Duration::from_secs(3);

/// How long a list may take in the background.
pub(crate) const PATIENT: Duration = Duration::from_secs(8);

/// The maximum bytes read of a local server's answer.
const MAX_LIST: usize = 1 << 20;

/// The age up to which a list is not fetched again in the background.
const FRESH_MS: u64 = 10 * 60_000;

/// The age up to which a start uses a cached list.
const START_FRESH_MS: u64 = 24 * 3_600_000;

/// The maximum size of the file of cached lists.
const MAX_KEPT: u64 = 16 << 20;

/// Selects the model; queries servers only if that could change the selection.
pub(crate) async fn choose(foundation: &Foundation) -> Result<ModelSelection, Failure> {
    choose_by(foundation, &foundation.loaded.settings).await.map_err(Failure::usage)
}

/// Returns why no model can answer until the user logs in; `None` if there is a model, or if the problem is
/// another one.
pub(crate) async fn needs_login(foundation: &Foundation) -> Option<String> {
    let settings = &foundation.loaded.settings;
    match choose_by(foundation, settings).await {
        Err(error @ SelectError::NoKey { .. }) => Some(error.to_string()),
        Ok(selection) if selection.is_demo() && settings.model.is_none() => {
            Some(format!("no model can be used: {}; run `aye login` in a terminal", selection.why))
        }
        Ok(_) | Err(_) => None,
    }
}

/// Selects a model by name, as `--model` does.
pub(crate) async fn choose_named(foundation: &Foundation, name: &str) -> Result<ModelSelection, AppError> {
    let mut settings = foundation.loaded.settings.clone();
    settings.model = Some(name.to_owned());
    Ok(choose_by(foundation, &settings).await?)
}

async fn choose_by(foundation: &Foundation, settings: &Settings) -> Result<ModelSelection, SelectError> {
    let (env, provenance) = (&foundation.env, &foundation.loaded.provenance);
    let hits = match wants_list(settings, env) {
        Some(provider) => listed_for_start(foundation, &provider).await.into_iter().collect(),
        None if needs_probe(settings, env) => probe(env).await,
        None => Vec::new(),
    };
    let selection = select_model(settings, provenance, env, &hits)?;
    if !selection.is_guess || selection.is_demo() {
        return Ok(selection);
    }
    // Its server may have reported its context window before.
    let kept = Kept::load(foundation).hit(&candidate_of(&selection));
    match kept.map(|(_, hit)| hit) {
        Some(hit) => select_model(settings, provenance, env, &[hit]),
        None => Ok(selection),
    }
}

/// Returns the server of a model as one that can list its models.
fn candidate_of(selection: &ModelSelection) -> ProbeCandidate {
    ProbeCandidate {
        provider: selection.provider.clone(),
        adapter: selection.adapter,
        base_url: selection.base_url.clone(),
        models_url: String::new(),
    }
}

async fn listed_for_start(foundation: &Foundation, provider: &ResolvedProvider) -> Option<ProbeHit> {
    let candidate = provider.candidate();
    let mut kept = Kept::load(foundation);
    let is_local = candidate.base_url.starts_with("http://");
    let known = kept.hit(&candidate);
    // The user's own server may serve another model today.
    if let Some((_, hit)) = known.clone().filter(|(age, _)| !is_local && *age < START_FRESH_MS) {
        return Some(hit);
    }
    match list(foundation, provider, START).await {
        Ok(models) => {
            kept.put(&candidate, &models);
            kept.save(foundation);
            Some(ProbeHit { candidate, models })
        }
        Err(error) => {
            tracing::info!(%error, "no list of models");
            known.map(|(_, hit)| hit)
        }
    }
}

/// Queries a provider for its models, with its key.
async fn list(
    foundation: &Foundation,
    provider: &ResolvedProvider,
    limit: Duration,
) -> Result<Vec<OfferedModel>, OffersError> {
    let mut config = ProviderConfig::new(&provider.name, adapter_of(provider.adapter))
        .with_base_url(provider.base_url.clone());
    let key = match &provider.key_env {
        _ if provider.is_key_stored => keys::read(foundation, &provider.name, &provider.base_url)
            .await
            .map_err(|why| OffersError::Failed(why.to_string()))?,
        Some(name) => foundation.env.var(name).map(str::to_owned),
        None => None,
    };
    if let Some(key) = key {
        config = config.with_api_key(key);
    }
    offers(&config, limit).await.map(|found| found.into_iter().map(offered).collect())
}

fn offered(offer: ProviderModel) -> OfferedModel {
    OfferedModel { id: offer.id, context_window: offer.context_window, max_output: offer.max_output }
}

fn adapter_of(wire: Wire) -> WireFormat {
    match wire {
        // The demo model is never queried over HTTP.
        Wire::OpenAi | Wire::Demo => WireFormat::OpenAi,
        Wire::OpenAiResponses => WireFormat::OpenAiResponses,
        Wire::Anthropic => WireFormat::Anthropic,
        Wire::Gemini => WireFormat::Gemini,
        Wire::Ollama => WireFormat::Ollama,
    }
}

/// The models offered by all servers that can be queried.
#[derive(Default)]
pub(crate) struct AllOffers {
    pub(crate) hits: Vec<ProbeHit>,
    /// The rejected keys, with the reasons.
    pub(crate) refused: Vec<String>,
}

/// Returns the models from cached lists, without a query.
pub(crate) fn kept_offers(foundation: &Foundation) -> Vec<ProbeHit> {
    let kept = Kept::load(foundation);
    let all = resolve_providers(&foundation.loaded.settings, &foundation.env);
    let usable = all.iter().filter(|provider| provider.is_set_up());
    usable.filter_map(|provider| Some(kept.hit(&provider.candidate())?.1)).collect()
}

/// Queries all servers at once: those on this machine, and each usable provider. With `is_patient`, fresh cached lists
/// are enough.
pub(crate) async fn all_offers(foundation: &Foundation, is_patient: bool) -> AllOffers {
    let mut kept = Kept::load(foundation);
    let providers = resolve_providers(&foundation.loaded.settings, &foundation.env);
    let usable: Vec<&ResolvedProvider> = providers.iter().filter(|provider| provider.is_set_up()).collect();
    let asked = usable.iter().map(|provider| {
        // The user's own server may serve another model by now, and answers at once.
        let is_local = provider.base_url.starts_with("http://");
        let known =
            kept.hit(&provider.candidate()).filter(|(age, _)| is_patient && !is_local && *age < FRESH_MS);
        async move {
            match known {
                Some(_) => None,
                None => Some(list(foundation, provider, PATIENT).await),
            }
        }
    });
    let (local, answers) = tokio::join!(probe(&foundation.env), futures::future::join_all(asked));
    let mut all = AllOffers::default();
    for (provider, answer) in usable.iter().zip(answers) {
        let candidate = provider.candidate();
        match answer {
            None => {}
            Some(Ok(models)) => kept.put(&candidate, &models),
            Some(Err(OffersError::Refused(why))) => {
                kept.forget(&candidate);
                all.refused.push(why);
            }
            Some(Err(error)) => tracing::info!(%error, "no list of models"),
        }
        all.hits.extend(kept.hit(&candidate).map(|(_, hit)| hit));
    }
    kept.save(foundation);
    let is_new =
        |hit: &ProbeHit| all.hits.iter().all(|known| known.candidate.base_url != hit.candidate.base_url);
    let local: Vec<ProbeHit> = local.into_iter().filter(is_new).collect();
    all.hits.extend(local);
    all
}

/// Lists of models, by the hash of the server's address: an address may contain a key.
#[derive(Default, Deserialize, Serialize)]
struct Kept {
    #[serde(flatten)]
    lists: BTreeMap<String, KeptList>,
    #[serde(skip)]
    is_changed: bool,
}

#[derive(Deserialize, Serialize)]
struct KeptList {
    at: u64,
    models: Vec<OfferedModel>,
}

impl Kept {
    fn load(foundation: &Foundation) -> Self {
        let text = read_private(&foundation.paths.offers_file(), MAX_KEPT).ok().flatten();
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Returns the list of a server, and its age in milliseconds.
    fn hit(&self, candidate: &ProbeCandidate) -> Option<(u64, ProbeHit)> {
        let list = self.lists.get(&sha256_hex(&candidate.base_url))?;
        let hit = ProbeHit { candidate: candidate.clone(), models: list.models.clone() };
        Some((SystemClock.now_ms().saturating_sub(list.at), hit))
    }

    fn put(&mut self, candidate: &ProbeCandidate, models: &[OfferedModel]) {
        let list = KeptList { at: SystemClock.now_ms(), models: models.to_vec() };
        self.lists.insert(sha256_hex(&candidate.base_url), list);
        self.is_changed = true;
    }

    fn forget(&mut self, candidate: &ProbeCandidate) {
        self.is_changed |= self.lists.remove(&sha256_hex(&candidate.base_url)).is_some();
    }

    /// Saves the cache: lists that cannot be written are fetched again.
    fn save(&self, foundation: &Foundation) {
        if self.is_changed && !foundation.is_ephemeral {
            let text = serde_json::to_vec(self).unwrap_or_default();
            if let Err(error) = write_private(&foundation.paths.offers_file(), &text) {
                tracing::info!(%error, "model lists are not cached");
            }
        }
    }
}

/// Asks all local candidates at once.
pub(crate) async fn probe(env: &Env) -> Vec<ProbeHit> {
    let asked = probe_candidates(env).into_iter().map(|candidate| async move {
        let models = tokio::time::timeout(PROBE, models_of(&candidate)).await.ok()??;
        Some(ProbeHit { candidate, models })
    });
    futures::future::join_all(asked).await.into_iter().flatten().collect()
}

/// Sends one small HTTP request by hand: creating a TLS client takes longer than the request.
async fn models_of(candidate: &ProbeCandidate) -> Option<Vec<OfferedModel>> {
    let url = reqwest::Url::parse(&candidate.models_url).ok()?;
    let host = url.host_str()?;
    let port = url.port_or_known_default()?;
    let mut stream = tokio::net::TcpStream::connect((host.trim_matches(['[', ']']), port)).await.ok()?;
    let request =
        format!("GET {} HTTP/1.0\r\nHost: {host}:{port}\r\nAccept: application/json\r\n\r\n", url.path());
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.take(MAX_LIST as u64).read_to_end(&mut answer).await.ok()?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    if head.split_whitespace().nth(1) != Some("200") {
        return None;
    }
    // A server that answers an HTTP/1.0 request with 1.1 may send a chunked body: the JSON is between its
    // braces all the same.
    let body = &body[body.find('{')?..=body.rfind('}')?];
    let list: serde_json::Value = serde_json::from_str(body).ok()?;
    offers_in(&list).map(|found| found.into_iter().map(offered).collect())
}

/// The executor for a choice.
pub(crate) fn executor(selection: &ModelSelection, foundation: &Foundation) -> Arc<dyn LlmExecutor> {
    if selection.is_demo() {
        return Arc::new(DemoExecutor::new());
    }
    let mut config = ProviderConfig::new(&selection.provider, adapter_of(selection.adapter))
        .with_base_url(selection.base_url.clone());
    if selection.adapter == Wire::Ollama {
        config = config.with_context_window(selection.context_window);
    }
    let key = match &selection.api_key_env {
        Some(name) => KeyPlace::Given(foundation.env.var(name).unwrap_or_default().to_owned()),
        None if selection.is_key_stored => {
            KeyPlace::Stored(keys::file(&foundation.paths, &selection.provider), foundation.keyring.clone())
        }
        None => KeyPlace::Nowhere,
    };
    Arc::new(ModelExecutor {
        provider: Arc::new(KeyedProvider { config, key }),
        selection: selection.clone(),
        effort: foundation.effort.clone(),
        ready: Mutex::default(),
    })
}

/// The limit on an answer that requests state: what the user set, and what is known of the model where the wire format
/// requires a limit. Elsewhere, the provider knows better.
fn output_limit(selection: &ModelSelection) -> Option<u32> {
    let required = (selection.adapter == Wire::Anthropic).then_some(selection.max_output);
    selection.own_max_output.or(required).map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX))
}

/// What an Ollama server runs a model with, in words, and whether that is what requests need; `None` for other servers.
pub(crate) async fn server_report(selection: &ModelSelection) -> Option<(bool, String)> {
    if selection.adapter != Wire::Ollama {
        return None;
    }
    let config = ProviderConfig::new(&selection.provider, WireFormat::Ollama)
        .with_base_url(selection.base_url.clone());
    let wanted = selection.context_window;
    let name = &selection.model;
    let plan = format!("aye's requests set {wanted} (models.NAME.context_window)");
    Some(match running_context(&config, name, START).await {
        Ok(Some(running)) if running < wanted => (
            false,
            format!(
                "{name} runs with a context of {running} tokens; {plan}, for which the server loads it again; if it runs \
                 with {running} after the next request, it has no more: set models.NAME.context_window to {running}"
            ),
        ),
        Ok(Some(running)) => (true, format!("{name} runs with a context of {running} tokens; {plan}")),
        Ok(None) => (true, format!("{name} is not loaded; {plan}")),
        // A service that is not the user's own machine.
        Err(OffersError::Refused(_)) => return None,
        Err(OffersError::Failed(why) | OffersError::Unreachable(why)) => (false, why),
    })
}

/// The place where the key of a model is stored.
enum KeyPlace {
    Nowhere,
    /// It came with the environment.
    Given(String),
    /// A login stored it; the file is read for each request, so that a logout counts at once.
    Stored(PathBuf, Keyring),
}

/// A provider, and where its key is.
struct KeyedProvider {
    config: ProviderConfig,
    key: KeyPlace,
}

impl KeyedProvider {
    async fn config(&self) -> Result<(Option<String>, ProviderConfig), InferenceExecutionError> {
        let base = self.config.base_url.as_deref().unwrap_or_default();
        let key = match &self.key {
            KeyPlace::Nowhere => None,
            KeyPlace::Given(key) => Some(key.clone()),
            KeyPlace::Stored(file, keyring) => {
                let wrong = |why: AppError| {
                    InferenceExecutionError::Unauthorized(format!("{}: {why}", self.config.name))
                };
                let key = keys::read_file(file, base, keyring).await.map_err(wrong)?;
                if key.is_none() && !Path::exists(file) {
                    let why = format!("its stored key is missing; run `aye login {}`", self.config.name);
                    return Err(wrong(why.into()));
                }
                key
            }
        };
        let config = match &key {
            Some(key) => self.config.clone().with_api_key(key.clone()),
            None => self.config.clone(),
        };
        Ok((key, config))
    }

    /// Names the closest successor of a model that the provider does not know.
    async fn advise(&self, error: InferenceExecutionError, model: &str) -> InferenceExecutionError {
        let InferenceExecutionError::InvalidRequest(why) = &error else { return error };
        if !why.contains(HAS_NO_MODEL) {
            return error;
        }
        let Ok((_, config)) = self.config().await else { return error };
        let Ok(listed) = offers(&config, START).await else { return error };
        let ids = listed.iter().map(|offer| offer.id.as_str()).filter(|id| can_chat(&config.name, id));
        match successor(model, ids) {
            Some(next) if listed.iter().all(|offer| offer.id != model) => {
                let name = &config.name;
                InferenceExecutionError::InvalidRequest(format!(
                    "{why}; the closest model that {name} lists is {next}: choose it with /model {name}/{next} or --model"
                ))
            }
            Some(_) | None => error,
        }
    }
}

/// A model behind an HTTP API, with this program's parts: the key, and the effort that the user set.
struct ModelExecutor {
    provider: Arc<KeyedProvider>,
    selection: ModelSelection,
    effort: Effort,
    /// The client, and the key that it was made with.
    ready: Mutex<Option<(Option<String>, Arc<GenaiExecutor>)>>,
}

impl ModelExecutor {
    async fn ready(&self) -> Result<Arc<GenaiExecutor>, InferenceExecutionError> {
        let (key, config) = self.provider.config().await?;
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, executor)) = ready.as_ref().filter(|(known, _)| *known == key) {
            return Ok(Arc::clone(executor));
        }
        let executor = Arc::new(GenaiExecutor::with(config));
        *ready = Some((key, Arc::clone(&executor)));
        Ok(executor)
    }

    /// Sets the effort and the limit on the answer.
    fn prepare(&self, request: &mut InferenceRequest) {
        let overrides = &mut request.overrides;
        overrides.reasoning_effort = self.effort_of(overrides);
        if let Some(limit) = output_limit(&self.selection) {
            overrides.max_tokens = Some(overrides.max_tokens.map_or(limit, |wanted| wanted.min(limit)));
        }
    }

    /// Returns the effort to send: the request's own, the user's, or the model's default.
    fn effort_of(&self, overrides: &InferenceOverride) -> Option<ReasoningEffort> {
        let is_side_job = overrides.reasoning_effort == Some(ReasoningEffort::None);
        let wanted = overrides.reasoning_effort.or(self.effort.get());
        // Providers refuse sampling parameters beside thoughts.
        if wanted.is_none() && (overrides.temperature.is_some() || overrides.top_p.is_some()) {
            return None;
        }
        // Not every server of these formats knows the word.
        let may_be_refused = matches!(self.selection.adapter, Wire::OpenAi | Wire::OpenAiResponses);
        if is_side_job && may_be_refused && self.selection.efforts.is_none() {
            return None;
        }
        self.selection.effort(wanted)
    }
}

#[async_trait]
impl LlmExecutor for ModelExecutor {
    async fn execute(&self, mut request: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        self.prepare(&mut request);
        let model = request.wire_model().to_owned();
        match self.ready().await?.execute(request).await {
            Err(error) => Err(self.provider.advise(error, &model).await),
            done => done,
        }
    }

    async fn execute_stream(
        &self,
        mut request: InferenceRequest,
    ) -> Result<LlmStream, InferenceExecutionError> {
        self.prepare(&mut request);
        let model = request.wire_model().to_owned();
        let stream = match self.ready().await?.execute_stream(request).await {
            Ok(stream) => stream,
            Err(error) => return Err(self.provider.advise(error, &model).await),
        };
        // Some readers report the provider's refusal as the first event.
        let provider = Arc::clone(&self.provider);
        let advised = stream.then(move |event| {
            let failed = event.is_err().then(|| (Arc::clone(&provider), model.clone()));
            async move {
                match (event, failed) {
                    (Err(error), Some((provider, model))) => Err(provider.advise(error, &model).await),
                    (event, _) => event,
                }
            }
        });
        Ok(advised.boxed())
    }

    fn name(&self) -> &str {
        &self.provider.config.name
    }
}

/// Tries a key at a provider's URL. Returns the list of models, or why there is none.
pub(crate) async fn try_key(
    provider: &ResolvedProvider,
    key: &str,
) -> Result<Vec<OfferedModel>, OffersError> {
    let config = ProviderConfig::new(&provider.name, adapter_of(provider.adapter))
        .with_base_url(provider.base_url.clone())
        .with_api_key(key);
    check_key(&config, PATIENT).await.map(|found| found.into_iter().map(offered).collect())
}
