use serde::{Deserialize, Serialize};

use super::model::encode;
use super::{
    EffectSpec, JsonValue, MutationBatch, Phase, ScheduledActionSpec, StateError, StateKey, TypedEffect,
};

/// An action that waits for its phase, with its type erased.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduledAction {
    /// [`ScheduledActionSpec::KEY`].
    pub key: String,
    /// [`ScheduledActionSpec::PHASE`].
    pub phase: Phase,
    /// The payload as JSON.
    pub payload: JsonValue,
}

/// The changes requested by a hook, an action handler or a tool: updates, actions, effects.
#[derive(Debug, Default)]
pub struct StateCommand {
    pub batch: MutationBatch,
    /// Work for the engine.
    pub scheduled_actions: Vec<ScheduledAction>,
    /// Effects sent to their handlers after the commit.
    pub effects: Vec<TypedEffect>,
}

impl StateCommand {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether the command requests nothing.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.scheduled_actions.is_empty() && self.effects.is_empty()
    }

    pub fn update<K: StateKey>(&mut self, change: K::Update) {
        self.batch.update::<K>(change);
    }

    /// Schedules an action for its phase.
    ///
    /// # Errors
    /// [`StateError::KeyEncode`] when the payload is not JSON.
    pub fn schedule_action<A: ScheduledActionSpec>(&mut self, payload: A::Payload) -> Result<(), StateError> {
        self.scheduled_actions.push(ScheduledAction {
            key: A::KEY.into(),
            phase: A::PHASE,
            payload: encode(A::KEY, &payload)?,
        });
        Ok(())
    }

    /// Emits an effect.
    ///
    /// # Errors
    /// [`StateError::KeyEncode`] when the payload is not JSON.
    pub fn emit<E: EffectSpec>(&mut self, payload: E::Payload) -> Result<(), StateError> {
        self.effects.push(TypedEffect::from_spec::<E>(&payload)?);
        Ok(())
    }

    /// Appends another command of the same writer.
    pub fn extend(&mut self, other: Self) {
        self.batch.append(other.batch);
        self.scheduled_actions.extend(other.scheduled_actions);
        self.effects.extend(other.effects);
    }
}
