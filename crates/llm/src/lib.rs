//! Models: over HTTP, scripted, and the demo model.
//!
//! Input from a provider passes four small stages: bytes become frames (`http`), frames become facts (`decode`), facts become events and one whole answer (`fold`), and errors become one sentence
//! of one kind (`classify`). Requests are built by `convert`.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests use files and the environment"))]

mod anthropic_body;
mod chat_body;
mod classify;
mod claude;
pub mod convert;
mod decode;
pub mod demo;

pub mod executor;
pub mod fold;
mod gemini_body;
mod http;
mod offers;
mod ollama_body;
mod overflow;
pub mod provider;
mod reset;
mod responses_body;

pub mod scripted;

pub use aye_core::context::{estimate, repair};
pub use classify::HAS_NO_MODEL;
pub use demo::DemoExecutor;
pub use executor::GenaiExecutor;
pub use offers::{OffersError, ProviderModel, check_key, offers, offers_in, running_context};
pub use provider::{ProviderConfig, WireFormat};
pub use repair::repair;
pub use scripted::{MockLlmExecutor, ScriptedExecutor, ScriptedReply};
