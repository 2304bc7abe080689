//! The vocabulary that every layer speaks: data, and the seams that layers meet at.

pub mod activity;
pub mod audit;
pub mod child;
pub mod clock;
pub mod content;
pub mod context_message;
pub mod digest;
pub mod display;
pub mod event;
pub mod event_sink;
pub mod executor;
pub mod grant;
pub mod hook;
pub mod identity;
pub mod ids;
pub mod inference;
pub mod json;
pub mod judgement;
pub mod lifecycle;
pub mod mailbox;
pub mod message;
pub mod mode;
pub mod near;
pub mod profile;
pub mod progress;
pub mod record;
pub mod spec;
pub mod statistics;
pub mod storage;
pub mod suspension;
pub mod terms;
pub mod tool;
pub mod tool_intercept;
pub mod workspace;

pub use crate::state::StateError;
