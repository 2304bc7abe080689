//! The one integration binary: the crate and the program as a user meets them.

mod commands;
mod crash;
mod exec;
mod headless;
mod kills;
mod support;
mod terminal;
mod wire;
