//! Shared test support.

#[expect(dead_code, reason = "it is shared with the tests of the crate")]
pub mod emulator;
pub mod home;
pub mod http;
pub mod llm;
pub mod mock_server;
pub mod oauth;
pub mod operator;
pub mod pty;
pub mod random;
pub mod strict;
pub mod tmux;
