//! The one integration binary: the crate and the program as a user meets them.

mod audit;
mod book;
mod commands;
mod contest;
#[cfg(feature = "failpoints")]
mod crash;
mod edited;
mod exec;
mod granting;
mod headless;
mod hostile;
mod inbox;
mod kills;
mod layers;
mod lease;
mod mcp;
mod notify;
mod stale;
mod support;
mod terminal;
mod unknown;
mod viewer;
mod waiting;
mod wire;
