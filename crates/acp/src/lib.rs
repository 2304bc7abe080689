//! The front end for editors: the Agent Client Protocol (ACP), version 1, as JSON-RPC lines over two streams.
//!
//! A session is a conversation. A prompt is one run or several, and ends when none of its work is left. A
//! question is asked inside the active prompt, and an answer from elsewhere counts like one from the client.
//! Questions outlive the connection.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

mod content;
mod ends;
mod host;
mod options;
mod questions;
mod server;
mod session;
mod updates;

pub use host::{ClientServer, EditorHost, FolderHost, ModelOption, PromptCommand, Refusal, WrittenPart};
pub use server::{ConnectionBroke, serve};
