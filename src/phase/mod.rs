//! The phase engine: plugins, hooks, scheduled actions, effects.
