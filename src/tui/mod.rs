//! The terminal front end.

pub mod theme;
pub mod wrap;
