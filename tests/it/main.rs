//! The one integration binary: the crate and the program as a user meets them.

mod agents;
mod audit;
mod book;
mod children;
mod client_tools;
mod commands;
mod contest;
mod context;
#[cfg(feature = "failpoints")]
mod crash;
mod deferred;
mod edited;
mod exec;
mod granting;
mod headless;
mod hooks;
mod hostile;
mod inbox;
mod kills;
mod layers;
mod lease;
mod mailbox;
mod mcp;
mod memory;
mod notify;
mod reminders;
mod stale;
mod stats;
mod stops;
mod support;
mod surfaces;
mod terminal;
mod unknown;
mod viewer;
mod waiting;
mod wire;
