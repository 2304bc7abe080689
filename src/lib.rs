#![doc = include_str!("ARCHITECTURE.md")]

pub mod cli;
pub mod config;
pub mod contract;
pub mod headless;
pub mod llm;
pub mod pattern;
pub mod phase;
pub mod plugins;
pub mod run;
pub mod runtime;
pub mod state;
pub mod store;
pub mod tools;
pub mod tui;
