//! The terminal front end.

pub mod composer;
pub mod host;
pub mod input;
pub mod keymap;
pub mod terminal;
pub mod theme;
pub mod transcript;
pub mod wrap;
