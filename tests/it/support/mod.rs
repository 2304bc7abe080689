//! What the tests share.

pub mod home;
pub mod llm;
pub mod mock_server;
pub mod oauth;
pub mod operator;
pub mod pty;
