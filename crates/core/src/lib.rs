//! The vocabulary of aye, its typed state, the run machine and the arithmetic of a context window: data and rules,
//! without an async runtime, a file or a socket.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

pub mod context;
pub mod contract;
pub mod failpoint;
pub mod phase;
pub mod run;
pub mod state;
