use std::any::Any;

use super::model::Phase;

/// Why an operation on the state, or on what plugins registered, was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StateError {
    /// The batch was made against another revision than the current one.
    #[error("state changed meanwhile: expected revision {expected}, found {actual}")]
    RevisionConflict {
        /// The revision the batch was made against.
        expected: u64,
        /// The revision found at commit.
        actual: u64,
    },
    /// Two batches that were to be merged come from different snapshots.
    #[error("batches from different revisions cannot be merged: {left} and {right}")]
    MutationBaseRevisionMismatch {
        /// Base revision of the left batch.
        left: u64,
        /// Base revision of the right batch.
        right: u64,
    },
    /// A plugin of this name is installed already.
    #[error("plugin `{name}` is installed twice")]
    PluginAlreadyInstalled { name: String },
    /// The plugin was never installed.
    #[error("plugin `{type_name}` is not installed")]
    PluginNotInstalled { type_name: &'static str },
    /// Two registrations use one key.
    #[error("state key `{key}` is registered twice")]
    KeyAlreadyRegistered { key: String },
    /// Two types use one namespace of values that outlive a thread.
    #[error("profile key `{key}` is registered with two types")]
    ProfileKeyAlreadyRegistered {
        /// The namespace.
        key: String,
    },
    /// A key that is not registered.
    #[error("state key `{key}` is not registered")]
    UnknownKey { key: String },
    /// A stored value does not fit the key's type.
    #[error("state key `{key}` cannot be read: {message}")]
    KeyDecode {
        key: String,
        /// The message from serde.
        message: String,
    },
    /// A value cannot be written as JSON.
    #[error("state key `{key}` cannot be written: {message}")]
    KeyEncode {
        key: String,
        /// The message from serde.
        message: String,
    },
    /// Two handlers for one scheduled action.
    #[error("action `{key}` has two handlers")]
    HandlerAlreadyRegistered { key: String },
    /// Two handlers for one effect.
    #[error("effect `{key}` has two handlers")]
    EffectHandlerAlreadyRegistered { key: String },
    /// Actions kept scheduling actions.
    #[error("phase {phase:?} did not finish within {max_rounds} rounds of actions")]
    PhaseRunLoopExceeded {
        phase: Phase,
        /// The limit that was reached.
        max_rounds: usize,
    },
    /// An action without a handler.
    #[error("action `{key}` has no handler")]
    UnknownScheduledActionHandler { key: String },
    /// An effect without a handler; refused before the commit.
    #[error("effect `{key}` has no handler")]
    UnknownEffectHandler { key: String },
    /// Two batches touch one exclusive key.
    #[error("two writers of the exclusive key `{key}`")]
    ParallelMergeConflict { key: String },
    /// Two tools with one id.
    #[error("tool `{tool_id}` is registered twice")]
    ToolAlreadyRegistered { tool_id: String },
    /// A tool is registered under another id than it declares, so no call of the model would reach it.
    #[error("tool `{tool_id}` declares the id `{declared}`")]
    ToolIdMismatch {
        /// The id it is registered under.
        tool_id: String,
        /// The id in its descriptor.
        declared: String,
    },
    /// A plugin's code panicked; the changes that it requested are not applied.
    #[error("{what} panicked: {message}")]
    Panicked {
        /// The code that panicked, such as a hook of a plugin.
        what: String,
        message: String,
    },
    /// The run was cancelled while hooks ran.
    #[error("cancelled")]
    Cancelled,
}

impl StateError {
    /// The error for a caught panic.
    pub fn panicked(what: impl Into<String>, panic: &(dyn Any + Send)) -> Self {
        let message = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        Self::Panicked { what: what.into(), message }
    }
}
