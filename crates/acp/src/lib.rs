//! The front end for editors: the Agent Client Protocol (ACP), version 1, as JSON-RPC lines over two streams.
//!
//! A session is a conversation. A prompt is a run, or several, and ends when nothing of it is left to do; a question is
//! asked inside the open prompt, and an answer from elsewhere counts as the client's does. Questions outlive the
//! connection.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

mod content;
mod ends;
mod host;
mod options;
mod questions;
mod server;
mod session;
mod updates;

pub use host::{ClientServer, EditorHost, FolderHost, ModelOption, PromptCommand, PromptPart, Refusal};
pub use server::{ConnectionBroke, serve};
