use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;

use crate::state::{EffectSpec, Snapshot, TypedEffect};

/// Handles one kind of effect after the commit.
#[async_trait]
pub trait TypedEffectHandler<E: EffectSpec>: Send + Sync + 'static {
    /// Does it. The snapshot is the state after the commit of the command that emitted the effect.
    ///
    /// # Errors
    /// Any text; it is logged and counted, and nothing is undone.
    async fn handle_typed(&self, payload: E::Payload, snapshot: &Snapshot) -> Result<(), String>;
}

/// A [`TypedEffectHandler`] with its type erased.
#[async_trait]
pub trait EffectHandler: Send + Sync {
    /// Does it.
    ///
    /// # Errors
    /// What the handler says, or why the payload is not the effect's.
    async fn handle(&self, effect: &TypedEffect, snapshot: &Snapshot) -> Result<(), String>;
}

/// A shared [`EffectHandler`].
pub type EffectHandlerArc = Arc<dyn EffectHandler>;

struct Erased<E, H> {
    handler: H,
    effect: PhantomData<fn() -> E>,
}

#[async_trait]
impl<E: EffectSpec, H: TypedEffectHandler<E>> EffectHandler for Erased<E, H> {
    async fn handle(&self, effect: &TypedEffect, snapshot: &Snapshot) -> Result<(), String> {
        let payload = effect.decode::<E>().map_err(|e| e.to_string())?;
        self.handler.handle_typed(payload, snapshot).await
    }
}

pub(super) fn erased<E, H>(handler: H) -> EffectHandlerArc
where
    E: EffectSpec,
    H: TypedEffectHandler<E>,
{
    Arc::new(Erased { handler, effect: PhantomData::<fn() -> E> })
}

/// The results of the effects of one or more commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EffectDispatchReport {
    /// The number of effects.
    pub attempted: usize,
    /// The number of handlers that succeeded.
    pub dispatched: usize,
    /// The number of handlers that failed.
    pub failed: usize,
}

impl EffectDispatchReport {
    /// Adds another command's counts.
    pub fn add(&mut self, other: Self) {
        self.attempted += other.attempted;
        self.dispatched += other.dispatched;
        self.failed += other.failed;
    }
}
