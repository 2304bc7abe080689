//! Errors of parts that a crate does not know.

/// The error of a part that the crate does not know: a store, a plugin, or the program around it. It is shown, and nobody
/// tells one from another.
pub type ForeignError = Box<dyn std::error::Error + Send + Sync>;
