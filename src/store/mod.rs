//! SQLite: the one place that knows it.
