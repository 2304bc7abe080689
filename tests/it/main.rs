//! The one integration binary: the crate and the program as a user meets them.

mod book;
mod exec;
mod headless;
mod hostile;
mod layers;
mod support;
mod terminal;
mod wire;
