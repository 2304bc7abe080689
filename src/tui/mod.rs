//! The terminal front end.

pub mod input;
pub mod terminal;
pub mod theme;
pub mod wrap;
