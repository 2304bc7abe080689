//! The terminal front end.

pub mod host;
pub mod theme;
pub mod wrap;
