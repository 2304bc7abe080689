//! The HTTP front end: conversations, questions and their answers for browsers, scripts and other agents.
//!
//! Every promise about crashes applies here because the server keeps no state: a stream resumes from the
//! store, an answer takes the path that a keypress takes, and a waiting run needs no server to keep waiting.

mod access;
mod api;
pub mod app;
mod card;
mod clock;
mod config;
mod connections;
mod embedded;
mod error;
mod follow;
mod gate;
mod guard;
mod host;
mod hub;
mod inbox_feed;
mod listen;
mod live;
pub mod mailbox;
mod mcp;
mod mcp_transport;
mod metrics;
mod push;
mod push_config;
mod reading;
pub mod routes;
mod signature;
mod sse;
mod starts;

pub use access::{Access, Caller, TokenRecord, TokenScope, TokenStore, fresh_token};
pub use aye_core::contract::storage::Slice;
pub use card::{CardActor, CardDecision, CardFile, ProposedGrant, QuestionCard, QuestionKind};
pub use config::{
    AgentDefinition, ConfigChange, ConfigEntry, ConfigHost, ConfigNamespace, EntryOrigin, ModelDefinition,
    ProviderView, ServerEntry,
};
pub use embedded::catalog_view;
pub use error::ApiError;
pub use gate::{GateHost, GatedTool, serve_gate};
pub use guard::Names;
pub use host::{AgentFolder, PushHost, ServerHost, ServerTexts, WaitingPush};
pub use hub::Hub;
pub use listen::{Address, ListenError, Listening, Tls, bind};
pub use mcp::{McpServeError, serve_stdio as serve_mcp};
pub use push_config::{A2aAuthentication, A2aPushConfig, PUSH_DONE};
pub use signature::{is_signed, sign};
