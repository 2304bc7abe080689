//! Which model answers, and the executor that reaches it.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Failure;
use super::foundation::Foundation;
use crate::config::{
    Adapter as Wire, Env, ProbeCandidate, ProbeHit, Selection, needs_probe, probe_candidates, select_model,
};
use crate::contract::executor::LlmExecutor;
use crate::llm::{Adapter, DemoExecutor, GenaiExecutor, ProviderConfig};

/// How long a local server may take to answer.
const PROBE: Duration = Duration::from_millis(200);
/// How much of its answer is read.
const MAX_LIST: usize = 1 << 20;

/// Chooses the model; looks for local servers only when that could change the choice.
pub(super) async fn choose(foundation: &Foundation) -> Result<Selection, Failure> {
    let settings = &foundation.loaded.settings;
    let hits = if needs_probe(settings, &foundation.env) { probe(&foundation.env).await } else { Vec::new() };
    select_model(settings, &foundation.loaded.provenance, &foundation.env, &hits).map_err(Failure::usage)
}

/// Chooses a model by name, as if `--model` said it.
pub(super) async fn choose_named(foundation: &Foundation, name: &str) -> Result<Selection, String> {
    let mut settings = foundation.loaded.settings.clone();
    settings.model = Some(name.to_owned());
    let hits =
        if needs_probe(&settings, &foundation.env) { probe(&foundation.env).await } else { Vec::new() };
    select_model(&settings, &foundation.loaded.provenance, &foundation.env, &hits).map_err(|e| e.to_string())
}

/// Asks all local candidates at once.
pub(super) async fn probe(env: &Env) -> Vec<ProbeHit> {
    let asked = probe_candidates(env).into_iter().map(|candidate| async move {
        let models = tokio::time::timeout(PROBE, models_of(&candidate)).await.ok()??;
        Some(ProbeHit { candidate, models })
    });
    futures::future::join_all(asked).await.into_iter().flatten().collect()
}

/// One small HTTP request by hand: a client with TLS costs more time than the answer.
async fn models_of(candidate: &ProbeCandidate) -> Option<Vec<String>> {
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
    // A chunked body of a server that answers 1.0 with 1.1: the JSON stands between its braces all the same.
    let body = &body[body.find('{')?..=body.rfind('}')?];
    let list: serde_json::Value = serde_json::from_str(body).ok()?;
    let rows = list.get("data").or_else(|| list.get("models"))?.as_array()?;
    let name = |row: &serde_json::Value| {
        row.get("id").or_else(|| row.get("name")).and_then(serde_json::Value::as_str).map(str::to_owned)
    };
    Some(rows.iter().filter_map(name).collect())
}

/// The executor for a choice.
pub(super) fn executor(selection: &Selection, env: &Env) -> Arc<dyn LlmExecutor> {
    let adapter = match selection.adapter {
        Wire::Demo => return Arc::new(DemoExecutor::new()),
        Wire::OpenAi => Adapter::OpenAi,
        Wire::OpenAiResponses => Adapter::OpenAiResponses,
        Wire::Anthropic => Adapter::Anthropic,
        Wire::Gemini => Adapter::Gemini,
        Wire::Ollama => Adapter::Ollama,
    };
    let mut config =
        ProviderConfig::new(&selection.provider, adapter).with_base_url(selection.base_url.clone());
    if let Some(key) = selection.api_key_env.as_deref().and_then(|name| env.var(name)) {
        config = config.with_api_key(key);
    }
    Arc::new(GenaiExecutor::with(config))
}
