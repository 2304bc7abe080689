use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::PhaseContext;
use crate::state::{
    JsonValue, MergeStrategy, ScheduledAction, ScheduledActionSpec, StateCommand, StateError, StateKey,
};

/// Carries out one kind of scheduled action.
#[async_trait]
pub trait TypedScheduledActionHandler<A: ScheduledActionSpec>: Send + Sync + 'static {
    /// Does it; the command may schedule more. The context carries the newest state.
    ///
    /// # Errors
    /// Any [`StateError`]; it is noted in [`FailedScheduledActions`], and the action is not tried again.
    async fn handle_typed(&self, ctx: &PhaseContext, payload: A::Payload)
    -> Result<StateCommand, StateError>;
}

/// A [`TypedScheduledActionHandler`] with its type erased.
#[async_trait]
pub trait ScheduledActionHandler: Send + Sync {
    /// Does it.
    ///
    /// # Errors
    /// [`StateError::KeyDecode`] when the payload is not the action's, else what the handler says.
    async fn handle(&self, ctx: &PhaseContext, payload: JsonValue) -> Result<StateCommand, StateError>;
}

/// A shared [`ScheduledActionHandler`].
pub type ScheduledActionHandlerArc = Arc<dyn ScheduledActionHandler>;

struct Erased<A, H> {
    handler: H,
    action: PhantomData<fn() -> A>,
}

#[async_trait]
impl<A: ScheduledActionSpec, H: TypedScheduledActionHandler<A>> ScheduledActionHandler for Erased<A, H> {
    async fn handle(&self, ctx: &PhaseContext, payload: JsonValue) -> Result<StateCommand, StateError> {
        let payload = decode::<A>(payload)?;
        self.handler.handle_typed(ctx, payload).await
    }
}

pub(super) fn erased<A, H>(handler: H) -> ScheduledActionHandlerArc
where
    A: ScheduledActionSpec,
    H: TypedScheduledActionHandler<A>,
{
    Arc::new(Erased { handler, action: PhantomData::<fn() -> A> })
}

pub(super) fn decode<A: ScheduledActionSpec>(payload: JsonValue) -> Result<A::Payload, StateError> {
    serde_json::from_value(payload)
        .map_err(|e| StateError::KeyDecode { key: A::KEY.into(), message: e.to_string() })
}

/// The actions that wait for their phase, oldest first. Part of a checkpoint: what a tool scheduled for the next step
/// survives a restart.
pub struct PendingScheduledActions;

/// An update of [`PendingScheduledActions`]; only the engine writes it.
#[derive(Clone, Debug, PartialEq)]
pub enum PendingUpdate {
    Push(Vec<ScheduledAction>),
    /// Takes out the actions at these places.
    Take(Vec<usize>),
}

impl StateKey for PendingScheduledActions {
    const KEY: &'static str = "runtime.pending_actions";
    // Actions are appended, so no writer undoes another one; taking insists on a revision.
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = Vec<ScheduledAction>;
    type Update = PendingUpdate;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        match update {
            PendingUpdate::Push(actions) => value.extend(actions),
            PendingUpdate::Take(places) => {
                let mut place = 0;
                value.retain(|_| {
                    place += 1;
                    !places.contains(&(place - 1))
                });
            }
        }
    }
}

/// One action whose handler failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedScheduledAction {
    pub key: String,
    pub payload: JsonValue,
    /// The error of the handler.
    pub error: String,
}

/// The actions of the run whose handlers failed, oldest first, the last hundred of them.
pub struct FailedScheduledActions;

impl FailedScheduledActions {
    /// The maximum number of entries, so that a handler that always fails does not fill the checkpoints of a
    /// long run.
    pub const LIMIT: usize = 100;
}

impl StateKey for FailedScheduledActions {
    const KEY: &'static str = "runtime.failed_actions";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = Vec<FailedScheduledAction>;
    type Update = FailedScheduledAction;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        if value.len() >= Self::LIMIT {
            value.drain(..=value.len() - Self::LIMIT);
        }
        value.push(update);
    }
}
