use std::sync::Arc;

use async_trait::async_trait;

use super::PhaseContext;
use crate::contract::executor::InferenceRequest;
use crate::state::{StateCommand, StateError};

/// The behaviour of a plugin in a phase: reads a frozen snapshot and returns a command.
///
/// A hook has no effect besides its command and may be run twice: if another hook wrote an exclusive key that
/// this hook writes too, this hook's first command is dropped and the hook runs again on the new state.
#[async_trait]
pub trait PhaseHook: Send + Sync + 'static {
    /// Returns the hook's command.
    ///
    /// # Errors
    /// Any [`StateError`]; the phase fails and none of the commands of its parallel hooks is committed.
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError>;
}

#[async_trait]
impl<T: PhaseHook + ?Sized> PhaseHook for Arc<T> {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        T::run(self, ctx).await
    }
}

/// Changes a request on its way to the model. Transforms run in the order of their registration, each on what the one
/// before it made.
pub trait InferenceRequestTransform: Send + Sync + 'static {
    /// The request to send instead.
    fn transform(&self, request: InferenceRequest, ctx: &PhaseContext) -> InferenceRequest;
}
