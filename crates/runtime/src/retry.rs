//! Repeats what may go better the next time, and turns to another model when it does not.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use super::breaker::{CircuitBreaker, CircuitOpen, Permit};
use aye_core::contract::executor::{
    InferenceExecutionError, InferenceRequest, LlmExecutor, LlmStream, LlmStreamEvent,
};
use aye_core::contract::inference::StreamResult;
use aye_core::contract::spec::PluginConfigKey;

/// No delay grows past this.
const MAX_BACKOFF: Duration = Duration::from_secs(8);
/// Maximum time to wait at a provider's request, and for a model that is paused; a longer wait is not one of this
/// request.
pub const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);
/// How long to wait while another request probes whether a paused model answers again.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// The retries, delays and fallback models for a failed inference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LlmRetryPolicy {
    /// Repetitions after the first try, for each model; 0 = none.
    pub max_retries: u32,
    /// Models to ask in order when the first one is exhausted, by their registered ids.
    pub fallback_models: Vec<String>,
    /// The first delay in milliseconds; each next one is twice as long, up to 8 s. 0 waits only when a provider asks
    /// for it.
    pub backoff_base_ms: u64,
}

impl Default for LlmRetryPolicy {
    fn default() -> Self {
        Self { max_retries: 2, fallback_models: Vec::new(), backoff_base_ms: 500 }
    }
}

impl LlmRetryPolicy {
    /// The delay before the repetition `nth` (from 0), spread by `jitter` (0 to 1) and never less than what the
    /// provider asks for.
    pub fn delay(&self, nth: u32, retry_after: Option<Duration>, jitter: f64) -> Duration {
        let doubled = self.backoff_base_ms.saturating_mul(1_u64.checked_shl(nth.min(63)).unwrap_or(u64::MAX));
        let backoff = Duration::from_millis(doubled).min(MAX_BACKOFF).mul_f64(0.9 + 0.2 * jitter);
        let asked = retry_after.unwrap_or_default().min(MAX_RETRY_AFTER).mul_f64(1.0 + 0.1 * jitter);
        backoff.max(asked)
    }
}

/// The section `retry` of an agent.
pub struct RetryConfigKey;

impl PluginConfigKey for RetryConfigKey {
    const KEY: &'static str = "retry";
    type Config = LlmRetryPolicy;
}

/// The access to a model that is asked only if another one fails.
#[derive(Clone)]
pub struct Fallback {
    /// The executor to ask.
    pub executor: Arc<dyn LlmExecutor>,
    /// The provider's name of the model; empty means the id.
    pub upstream_model: String,
}

/// Wraps an executor with a [`LlmRetryPolicy`]. Dropping a stream stops a wait at once.
pub struct RetryingExecutor {
    inner: Arc<dyn LlmExecutor>,
    policy: LlmRetryPolicy,
    breaker: Option<Arc<CircuitBreaker>>,
    fallbacks: HashMap<String, Fallback>,
    jitter: fn() -> f64,
}

impl RetryingExecutor {
    /// Repeats on `inner` by `policy`.
    pub fn new(inner: Arc<dyn LlmExecutor>, policy: LlmRetryPolicy) -> Self {
        Self { inner, policy, breaker: None, fallbacks: HashMap::new(), jitter: random }
    }

    /// Keeps away from models that fail again and again.
    #[must_use]
    pub fn with_breaker(mut self, breaker: Arc<CircuitBreaker>) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// Says where a fallback model is reached, when that is not the first model's own provider.
    #[must_use]
    pub fn with_fallback(mut self, model: impl Into<String>, fallback: Fallback) -> Self {
        self.fallbacks.insert(model.into(), fallback);
        self
    }

    #[cfg(test)]
    fn without_jitter(mut self) -> Self {
        self.jitter = || 0.5;
        self
    }

    fn start(&self, request: InferenceRequest) -> Retrying {
        let names = request.overrides.fallback_models.as_ref().unwrap_or(&self.policy.fallback_models);
        let mut candidates: VecDeque<_> = names
            .iter()
            .filter(|name| **name != request.model)
            .map(|name| {
                let fallback = self.fallbacks.get(name);
                let mut request = request.clone();
                request.model.clone_from(name);
                request.upstream_model = fallback.map(|f| f.upstream_model.clone()).unwrap_or_default();
                (Arc::clone(fallback.map_or(&self.inner, |f| &f.executor)), request)
            })
            .collect();
        candidates.push_front((Arc::clone(&self.inner), request));
        let max = (self.policy.max_retries.saturating_add(1)).saturating_mul(candidates.len() as u32) - 1;
        Retrying {
            policy: self.policy.clone(),
            breaker: self.breaker.clone(),
            jitter: self.jitter,
            candidates,
            permit: None,
            paused: Duration::ZERO,
            repeated: 0,
            attempt: 0,
            max,
            shown: false,
            stage: RetryStage::Try,
        }
    }
}

/// A number between 0 and 1. The keys of a fresh hash map are as random as a delay needs.
fn random() -> f64 {
    let bits = std::collections::hash_map::RandomState::new().build_hasher().finish();
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[async_trait]
impl LlmExecutor for RetryingExecutor {
    async fn execute(&self, request: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        let mut stream = self.execute_stream(request).await?;
        while let Some(event) = stream.next().await {
            if let LlmStreamEvent::Finish { result, .. } = event? {
                return Ok(result);
            }
        }
        Err(cut())
    }

    async fn execute_stream(&self, request: InferenceRequest) -> Result<LlmStream, InferenceExecutionError> {
        let state = self.start(request);
        Ok(futures::stream::unfold(state, |mut state| async move {
            let event = state.next().await?;
            Some((event, state))
        })
        .boxed())
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}

/// The stream ended before the answer was complete.
pub(super) fn cut() -> InferenceExecutionError {
    InferenceExecutionError::Network("the stream ended before the answer was complete".into())
}

enum RetryStage {
    /// Ask the first candidate.
    Try,
    /// Its answer comes in.
    Stream(LlmStream),
    Done,
    /// Wait, then ask.
    Wait(Duration),
}

struct Retrying {
    policy: LlmRetryPolicy,
    breaker: Option<Arc<CircuitBreaker>>,
    jitter: fn() -> f64,
    /// The models to ask; the first is the current one.
    candidates: VecDeque<(Arc<dyn LlmExecutor>, InferenceRequest)>,
    /// The right to ask the current candidate: one for the request and its repetitions, which fail or succeed as one.
    permit: Option<Permit>,
    /// How long the request has waited for the circuit of the last candidate.
    paused: Duration,
    /// Repetitions for the current candidate.
    repeated: u32,
    /// Repetitions in all.
    attempt: u32,
    max: u32,
    /// Something was streamed since the last reset.
    shown: bool,
    stage: RetryStage,
}

type Item = Result<LlmStreamEvent, InferenceExecutionError>;

impl Retrying {
    async fn next(&mut self) -> Option<Item> {
        loop {
            match &mut self.stage {
                RetryStage::Done => return None,
                RetryStage::Wait(delay) => {
                    let delay = *delay;
                    if !delay.is_zero() {
                        tokio::time::sleep(delay).await;
                    }
                    self.stage = RetryStage::Try;
                }
                RetryStage::Try => {
                    let (executor, request) = self.candidates.front()?.clone();
                    if self.permit.is_none()
                        && let Some(breaker) = &self.breaker
                    {
                        match breaker.enter(&request.model) {
                            Ok(permit) => self.permit = Some(permit),
                            Err(refused) => match self.skip(&request.model, &refused) {
                                Some(item) => return Some(item),
                                None => continue,
                            },
                        }
                    }
                    match executor.execute_stream(request).await {
                        Ok(stream) => self.stage = RetryStage::Stream(stream),
                        Err(error) => return Some(self.failed(error)),
                    }
                }
                RetryStage::Stream(stream) => match stream.next().await {
                    Some(Ok(event)) => {
                        self.shown = true;
                        if matches!(event, LlmStreamEvent::Finish { .. }) {
                            if let Some(permit) = self.permit.take() {
                                permit.success();
                            }
                            self.stage = RetryStage::Done;
                        }
                        return Some(Ok(event));
                    }
                    Some(Err(error)) => return Some(self.failed(error)),
                    None => return Some(self.failed(cut())),
                },
            }
        }
    }

    /// Turns from a paused model to the next one; the last one is waited for. Returns `None` when there is nothing to
    /// report about the wait.
    fn skip(&mut self, model: &str, refused: &CircuitOpen) -> Option<Item> {
        let wait = refused.open_for.max(PROBE_WAIT);
        let error = InferenceExecutionError::Paused {
            message: format!(
                "{model} failed repeatedly and is paused for another {}; last error: {}",
                words(wait),
                refused.why
            ),
            retry_after: wait,
        };
        if self.candidates.len() > 1 {
            return Some(self.next_model(error));
        }
        let is_first = self.paused.is_zero();
        self.paused += wait;
        if self.paused > MAX_RETRY_AFTER {
            self.stage = RetryStage::Done;
            return Some(Err(error));
        }
        self.stage = RetryStage::Wait(wait);
        // A probe of another request is looked for often; that is no news.
        (is_first || !refused.open_for.is_zero()).then(|| Ok(self.retrying(wait, &error)))
    }

    fn failed(&mut self, error: InferenceExecutionError) -> Item {
        // The old stream, and with it the old connection, ends before anyone waits.
        self.stage = RetryStage::Done;
        if !error.is_retryable() {
            // A request that is refused says nothing about the health of the model.
            self.permit = None;
            return Err(error);
        }
        let asked = error.retry_after();
        let too_long = asked.filter(|asked| *asked > MAX_RETRY_AFTER).map(|asked| too_long(&error, asked));
        if too_long.is_none() && self.repeated < self.policy.max_retries {
            let delay = self.policy.delay(self.repeated, asked, (self.jitter)());
            self.repeated += 1;
            return Ok(self.again(delay, &error));
        }
        if let Some(permit) = self.permit.take() {
            permit.failure(&error.to_string());
        }
        self.next_model(too_long.unwrap_or(error))
    }

    /// Switches to the next candidate and asks it at once: it gave no reason for a pause.
    fn next_model(&mut self, error: InferenceExecutionError) -> Item {
        self.stage = RetryStage::Done;
        self.candidates.pop_front();
        if self.candidates.is_empty() {
            return Err(error);
        }
        self.repeated = 0;
        Ok(self.again(Duration::ZERO, &error))
    }

    fn again(&mut self, delay: Duration, error: &InferenceExecutionError) -> LlmStreamEvent {
        self.attempt += 1;
        self.stage = RetryStage::Wait(delay);
        self.retrying(delay, error)
    }

    /// Reports a wait. One for a paused model repeats nothing, and keeps the number of the attempt.
    fn retrying(&mut self, delay: Duration, error: &InferenceExecutionError) -> LlmStreamEvent {
        LlmStreamEvent::Retrying {
            attempt: self.attempt,
            max: self.max,
            delay,
            model: self.candidates.front().map(|(_, request)| request.model.clone()).unwrap_or_default(),
            reason: error.to_string(),
            reset: std::mem::take(&mut self.shown),
        }
    }
}

fn too_long(error: &InferenceExecutionError, asked: Duration) -> InferenceExecutionError {
    let message = format!(
        "{error}; the server asks to wait {}, longer than the maximum of {}",
        words(asked),
        words(MAX_RETRY_AFTER)
    );
    match error {
        InferenceExecutionError::RateLimited { .. } => {
            InferenceExecutionError::RateLimited { message, retry_after: Some(asked) }
        }
        _ => InferenceExecutionError::Unavailable { message, retry_after: Some(asked) },
    }
}

/// Formats a duration for users, in the two largest units.
fn words(duration: Duration) -> String {
    let secs = duration.as_secs();
    let (days, hours, mins) = (secs / 86_400, secs / 3600 % 24, secs / 60 % 60);
    let parts = [(days, "d"), (hours, "h"), (mins, "min"), (secs % 60, "s")];
    let sentences: Vec<String> = parts
        .iter()
        .skip_while(|(n, _)| *n == 0)
        .take(2)
        .filter(|(n, _)| *n > 0)
        .map(|(n, unit)| format!("{n} {unit}"))
        .collect();
    if sentences.is_empty() { "less than a second".into() } else { sentences.join(" ") }
}

#[cfg(test)]
mod tests;
