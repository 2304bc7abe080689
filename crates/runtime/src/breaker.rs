//! Keeps away from a model that fails again and again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// When a model is left alone, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CircuitBreakerConfig {
    /// Number of consecutive failures that open the circuit; 0 never opens it.
    pub failure_threshold: u32,
    /// Time that the circuit stays open before a probe is let through.
    pub cooldown: Duration,
    /// Maximum number of concurrent probes.
    pub half_open_max: u32,
}

impl Default for CircuitBreakerConfig {
    fn default() -> Self {
        Self { failure_threshold: 5, cooldown: Duration::from_secs(30), half_open_max: 1 }
    }
}

#[derive(Debug, Default)]
struct Circuit {
    failures: u32,
    open_until: Option<Instant>,
    probes: u32,
    /// The message of the last failure.
    why: String,
}

/// A circuit is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitOpen {
    /// For how long; zero when only the place of the probe is taken.
    pub open_for: Duration,
    /// Why the model failed last.
    pub why: String,
}

/// One circuit for each model. Shared by everyone who asks the same providers.
#[derive(Debug, Default)]
pub struct CircuitBreaker {
    config: CircuitBreakerConfig,
    circuits: Mutex<HashMap<String, Circuit>>,
}

impl CircuitBreaker {
    /// All circuits closed.
    pub fn new(config: CircuitBreakerConfig) -> Self {
        Self { config, circuits: Mutex::default() }
    }

    fn with<T>(&self, model: &str, change: impl FnOnce(&mut Circuit) -> T) -> T {
        let mut circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        change(circuits.entry(model.to_owned()).or_default())
    }

    /// Asks to try a model.
    ///
    /// # Errors
    /// [`CircuitOpen`] while the circuit is open.
    pub fn enter(self: &Arc<Self>, model: &str) -> Result<Permit, CircuitOpen> {
        let is_probe = self.with(model, |circuit| {
            let Some(until) = circuit.open_until else { return Ok(false) };
            let open_for = until.saturating_duration_since(Instant::now());
            if !open_for.is_zero() {
                return Err(CircuitOpen { open_for, why: circuit.why.clone() });
            }
            if circuit.probes >= self.config.half_open_max.max(1) {
                return Err(CircuitOpen { open_for: Duration::ZERO, why: circuit.why.clone() });
            }
            circuit.probes += 1;
            Ok(true)
        })?;
        Ok(Permit { breaker: Arc::clone(self), model: model.to_owned(), is_probe })
    }

    /// Whether a request to the model would be refused now.
    pub fn is_open(&self, model: &str) -> bool {
        self.with(model, |circuit| circuit.open_until.is_some_and(|until| until > Instant::now()))
    }

    /// Lets the next request to each model through as a probe: a user wants to know now.
    pub fn probe_now(&self) {
        let mut circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        for until in circuits.values_mut().filter_map(|circuit| circuit.open_until.as_mut()) {
            *until = Instant::now();
        }
    }
}

/// One try. Dropped without a word it counts as nothing: a cancel says nothing about the model.
#[derive(Debug)]
pub struct Permit {
    breaker: Arc<CircuitBreaker>,
    model: String,
    is_probe: bool,
}

impl Permit {
    /// The model answered: its circuit closes.
    pub fn success(self) {
        self.breaker.with(&self.model, |circuit| {
            circuit.failures = 0;
            circuit.open_until = None;
            circuit.why.clear();
        });
    }

    /// The model failed, and said why.
    pub fn failure(self, why: &str) {
        let CircuitBreakerConfig { failure_threshold: threshold, cooldown, .. } = self.breaker.config;
        let is_probe = self.is_probe;
        self.breaker.with(&self.model, |circuit| {
            circuit.failures = circuit.failures.saturating_add(1);
            why.clone_into(&mut circuit.why);
            if is_probe || (threshold > 0 && circuit.failures >= threshold) {
                circuit.open_until = Some(Instant::now() + cooldown);
            }
        });
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.is_probe {
            self.breaker.with(&self.model, |circuit| circuit.probes = circuit.probes.saturating_sub(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(breaker: &Arc<CircuitBreaker>, times: u32) {
        for _ in 0..times {
            breaker.enter("m").expect("closed").failure("busy");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn five_failures_open_it_for_thirty_seconds() {
        let breaker = Arc::new(CircuitBreaker::default());
        fail(&breaker, 4);
        assert!(breaker.enter("m").is_ok());
        fail(&breaker, 1);
        let refused = breaker.enter("m").expect_err("open");
        assert_eq!(refused, CircuitOpen { open_for: Duration::from_secs(30), why: "busy".into() });
        assert!(breaker.enter("other").is_ok(), "each model has its own");
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(breaker.is_open("m"));
        tokio::time::advance(Duration::from_secs(1)).await;
        let probe = breaker.enter("m").expect("half open");
        assert_eq!(breaker.enter("m").expect_err("one probe").open_for, Duration::ZERO);
        probe.success();
        fail(&breaker, 4);
        assert!(breaker.enter("m").is_ok(), "a success starts the count anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_probe_reopens_it() {
        let breaker = Arc::new(CircuitBreaker::default());
        fail(&breaker, 5);
        tokio::time::advance(Duration::from_secs(30)).await;
        breaker.enter("m").expect("half open").failure("down");
        let refused = breaker.enter("m").expect_err("open");
        assert_eq!(refused, CircuitOpen { open_for: Duration::from_secs(30), why: "down".into() });
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_who_asks_again_gets_a_probe_at_once() {
        let breaker = Arc::new(CircuitBreaker::default());
        fail(&breaker, 5);
        breaker.probe_now();
        let probe = breaker.enter("m").expect("half open");
        assert!(breaker.enter("m").is_err(), "one probe");
        probe.failure("down");
        assert_eq!(breaker.enter("m").expect_err("open").open_for, Duration::from_secs(30));
        breaker.probe_now();
        breaker.enter("m").expect("half open").success();
        breaker.probe_now();
        assert!(!breaker.is_open("m"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancellation_does_not_count() {
        let breaker = Arc::new(CircuitBreaker::default());
        fail(&breaker, 4);
        for _ in 0..10 {
            drop(breaker.enter("m").expect("closed"));
        }
        fail(&breaker, 1);
        tokio::time::advance(Duration::from_secs(30)).await;
        drop(breaker.enter("m").expect("half open"));
        assert!(breaker.enter("m").is_ok(), "the place of the probe is free again");
    }
}
