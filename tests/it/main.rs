//! The one integration binary: the crate and the program as a user meets them.

mod book;
mod commands;
#[cfg(feature = "failpoints")]
mod crash;
mod edited;
mod exec;
mod headless;
mod hostile;
mod kills;
mod layers;
mod stale;
mod support;
mod terminal;
mod viewer;
mod waiting;
mod wire;
