//! The terminal front end.

pub mod composer;
pub mod host;
pub mod keymap;
pub mod theme;
pub mod transcript;
pub mod wrap;
