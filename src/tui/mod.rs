//! The terminal front end.

pub mod app;
pub mod approval;
pub mod composer;
pub mod diff;
pub mod highlight;
pub mod host;
pub mod input;
pub mod keymap;
pub mod markdown;
pub mod msg;
pub mod palette;
pub mod picker;
pub mod status;
pub mod terminal;
pub mod theme;
pub mod transcript;
pub mod update;
pub mod view;
pub mod wrap;
