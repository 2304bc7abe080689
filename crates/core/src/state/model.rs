//! Phases, and the typed specifications of scheduled actions and effects.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::StateError;

/// JSON, as the state engine stores it.
pub type JsonValue = serde_json::Value;

/// One of the eight points of a run where hooks run, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Once, before the first step.
    RunStart,
    /// Before each inference and what belongs to it.
    StepStart,
    /// Last chance to shape the request.
    BeforeInference,
    /// The model has answered; none of the answer's calls has run yet.
    AfterInference,
    /// Before one tool call: the gate.
    BeforeToolExecute,
    /// After one tool call has its result.
    AfterToolExecute,
    /// All calls of the step are settled.
    StepEnd,
    /// Once, however the run ended.
    RunEnd,
}

impl Phase {
    /// All phases in order.
    pub const ALL: [Self; 8] = [
        Self::RunStart,
        Self::StepStart,
        Self::BeforeInference,
        Self::AfterInference,
        Self::BeforeToolExecute,
        Self::AfterToolExecute,
        Self::StepEnd,
        Self::RunEnd,
    ];
}

/// A kind of scheduled action: work that a hook or a tool asks the engine to do in a phase.
pub trait ScheduledActionSpec: 'static + Send + Sync {
    /// Unique name, by convention `plugin.action`.
    const KEY: &'static str;
    /// The phase in which it is carried out.
    const PHASE: Phase;
    /// The data of the action, stored as JSON.
    type Payload: Serialize + DeserializeOwned + Send + Sync + 'static;
}

/// Declares actions, each a type of its own: its name, its key, its phase and its payload.
#[macro_export]
macro_rules! scheduled_actions {
    ($($(#[$doc:meta])* $visible:vis $name:ident = $key:literal in $phase:ident: $payload:ty;)+) => {$(
        $(#[$doc])*
        $visible struct $name;

        impl $crate::state::ScheduledActionSpec for $name {
            const KEY: &'static str = $key;
            const PHASE: $crate::state::Phase = $crate::state::Phase::$phase;
            type Payload = $payload;
        }
    )+};
}

/// A kind of effect: passed to its handler after the commit, never undone, never answered.
pub trait EffectSpec: 'static + Send + Sync {
    /// Unique name, by convention `plugin.effect`.
    const KEY: &'static str;
    /// The data of the effect, stored as JSON.
    type Payload: Serialize + DeserializeOwned + Send + Sync + 'static;
}

/// An effect with its type erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypedEffect {
    /// [`EffectSpec::KEY`].
    pub key: String,
    /// The payload as JSON.
    pub payload: JsonValue,
}

impl TypedEffect {
    /// Erases the type of an effect.
    ///
    /// # Errors
    /// [`StateError::KeyEncode`] when the payload is not JSON.
    pub fn from_spec<E: EffectSpec>(payload: &E::Payload) -> Result<Self, StateError> {
        Ok(Self { key: E::KEY.into(), payload: encode(E::KEY, payload)? })
    }

    /// Gives the typed payload back.
    ///
    /// # Errors
    /// [`StateError::KeyDecode`] when the payload is not what `E` carries.
    pub fn decode<E: EffectSpec>(&self) -> Result<E::Payload, StateError> {
        serde_json::from_value(self.payload.clone())
            .map_err(|e| StateError::KeyDecode { key: self.key.clone(), message: e.to_string() })
    }
}

pub(super) fn encode<T: Serialize>(key: &str, value: &T) -> Result<JsonValue, StateError> {
    serde_json::to_value(value)
        .map_err(|e| StateError::KeyEncode { key: key.to_owned(), message: e.to_string() })
}
