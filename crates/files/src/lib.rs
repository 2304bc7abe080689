//! Safe file reading: walking a folder, and files that start with YAML front matter.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

pub mod front_matter;
pub mod walk;
