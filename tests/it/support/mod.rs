//! What the tests share.

pub mod mock_server;
