//! Settings and paths as values.
