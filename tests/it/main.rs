//! The one integration binary: the crate and the program as a user meets them.

mod exec;
mod headless;
mod hostile;
mod support;
mod terminal;
mod wire;
