//! Safe work with files: opening them by descriptor, their identity, walking a folder, files that start with YAML front
//! matter, and who may use a replaced file.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

pub mod foreign;
pub mod front_matter;
pub mod known;
pub mod names;
pub mod opener;
pub mod rights;
pub mod unused;
pub mod walk;
