//! The terminal front end.

pub mod diff;
pub mod highlight;
pub mod input;
pub mod markdown;
pub mod terminal;
pub mod theme;
pub mod wrap;
