//! The terminal front end.

pub mod terminal;
pub mod theme;
pub mod wrap;
