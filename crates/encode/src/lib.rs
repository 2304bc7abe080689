//! The events of a run as frames of the protocols that other programs speak, and what those programs send as types.
//!
//! Every encoder is a state machine of its own: events in, frames out. Nothing here does I/O, waits or reads a clock.

pub mod a2a;
pub mod ag_ui;
pub mod ai_sdk;
pub mod answer;
mod data_url;
mod outcome;
pub mod replay;
#[cfg(test)]
mod testing;
mod time;
